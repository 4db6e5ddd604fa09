//! `ledger submit`

mod resume;
mod wait;

use self::resume::resume_one;
use self::wait::{Awaited, answer_and_wait};
use super::cluster::{PATIENCE, ask, bring, readable_or_damaged, spool};
use super::context::{Context, read_file};
use super::failure::{Failure, exit};
use super::only::only;
use super::output::say;
use super::provenance::{Provenance, refuse_secrets};
use super::run::own_path;
use super::slurm::{SlurmArgs, request};
use super::sources;
use super::trainer::trainer;
use super::unbound;
use crate::cluster::{
    ClusterError, Draft, Drafted, Folder, Limits, Member, Placed, ProgramText, Request, Slurm, Spool, Standing,
    Submitted, Turn, cover, draft, place, stand, under_way, waiting,
};
use crate::engine::{Cause, Expected, KeptCalibration, Machine, anchor};
use crate::host::clock;
use crate::manifest::{self, Manifest};
use crate::record::{Digest, Table};
use crate::report::{self, count, table_of, when};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time to wait for another `submit`: each of its arrays may take sbatch 90 s.
const TURN: Duration = Duration::from_secs(120);

/// Submit the missing runs of a manifest to Slurm, as job arrays
///
/// Cells that the ledger holds already, or that an earlier submission will still execute, are left out. The command
/// returns at once. `ledger status` shows the progress, and `ledger collect` imports the results. Settings come
/// from flags, then from the manifest's [slurm], then from the site profile (docs/slurm.md).
///
/// Example: ledger submit manifests/bert.toml --partition gpu --time 4:00:00 --array-limit 8
#[derive(Debug, clap::Args)]
#[command(override_usage = "ledger submit [OPTIONS] <MANIFEST>\n       ledger submit --resume [<JOB>]")]
pub(super) struct Args {
    /// The manifest
    #[arg(value_name = "MANIFEST", required_unless_present = "resume", conflicts_with = "resume")]
    manifest: Option<PathBuf>,

    /// Submit again the cells of this submission that did not end on their own. JOB is a job's number or a part of
    /// the submission's name [default: the newest]
    #[arg(long, value_name = "JOB", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["repeat", "only", "SlurmArgs"])]
    resume: Option<String>,

    /// Print the scripts and the cells (with --resume, the tasks), and submit nothing
    #[arg(long)]
    dry_run: bool,

    /// Wait until all cells are finished and imported, including those of earlier submissions
    #[arg(long)]
    wait: bool,

    /// Execute each run N more times, finished or not
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// Only the cells whose fields match: `gpus <= 2 and optimizer in [adam, sgd]`
    #[arg(long, value_name = "EXPR")]
    only: Option<String>,

    #[command(flatten)]
    slurm: SlurmArgs,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match (&args.resume, &args.manifest) {
        (Some(text), _) => resume_one(args, context, text),
        (None, Some(path)) => submit(args, context, path),
        (None, None) => Err(Failure::new(exit::USAGE, "name a manifest")),
    }
}

fn submit(args: &Args, context: &Context, path: &Path) -> Result<u8, Failure> {
    let manifest = manifest::load(path)?;
    refuse_secrets(path, &manifest)?;
    let request = request(&args.slurm, &manifest)?;
    let limits = match Slurm.limits() {
        Err(error) if args.dry_run => {
            say(&format!("note: {error}; the scripts assume default cluster limits"));
            Limits::usual()
        }
        limits => limits?,
    };
    let turn = if args.dry_run { None } else { Some(take_turn(context)?) };
    let spool = spool(context, request.spool.as_deref());
    let busy = if args.dry_run { look(&spool)? } else { catch_up(context, &spool)? };
    let mut left_to_others = under_way(busy.iter().map(|(_, standing)| standing));
    if args.dry_run {
        // A real `submit` would first import finished attempts.
        left_to_others.extend(waiting(busy.iter().map(|(folder, standing)| (folder, standing)))?);
    }
    let cells = cells(args, &manifest, &request, &limits)?;
    let chosen = choose(args, context, &spool, &cells, &left_to_others)?;
    let mut awaited = if args.wait && !args.dry_run { awaited(&busy, &chosen.under_way) } else { Vec::new() };
    if chosen.members.is_empty() {
        drop(turn);
        let (text, members) = told(&chosen, None, &[]);
        tell_left_out(chosen.sealed, chosen.under_way.len(), "an earlier");
        if awaited.is_empty() {
            context.answer(|| text, || members)?;
            return Ok(exit::YES);
        }
        return answer_and_wait(context, text, members, &awaited);
    }
    let now_ms = clock::unix_ms();
    let moment = when(now_ms);
    let name = format!("{}-{}", stamp(&moment), slug(&manifest.name));
    let folder = if args.dry_run { spool.folder(&name) } else { spool.make(&name)? };
    let ledger = match &request.ledger {
        Some(path) => path.clone(),
        None => own_path()?,
    };
    // Texts that the attempts name by digest are stored now, because the repository may change before their results are
    // imported.
    let Provenance { mut facts, mut sources } = Provenance::of(path, &manifest);
    let files = chosen.members.iter().flat_map(|member| member.expected.program_files());
    sources.extend(sources::keep(&mut facts, files));
    if !args.dry_run {
        context.store().write(|writer| sources.iter().try_for_each(|source| writer.keep(source)))?;
    }
    let drafted = draft(
        &Draft {
            experiment: &slug(&manifest.name),
            manifest: (path, manifest.source),
            when: (now_ms, &format!("{moment} UTC")),
            request: &request,
            limits: &limits,
            ledger: &ledger,
            program: manifest.program.as_ref().map(|program| ProgramText {
                command: program.command.clone(),
                files: program.files.clone(),
                identity: program.identity,
            }),
            facts,
            members: chosen.members.clone(),
        },
        &folder,
    );
    let drafted = drafted.map_err(|error| {
        if !args.dry_run {
            // The folder was just created, and nothing refers to it yet.
            let _ = std::fs::remove_dir_all(folder.dir());
        }
        Failure::new(exit::USAGE, error)
    })?;
    let placed = if args.dry_run {
        Placed { jobs: Vec::new(), refused: None }
    } else {
        hand_on_calibrations(context, &folder);
        place(&drafted, &read_file(path)?, &folder, Slurm).map_err(|error| match folder.dir().exists() {
            true => Failure::from(error).with_hint("Slurm may have accepted it anyway: `ledger status` shows it"),
            false => error.into(),
        })?
    };
    drop(turn);
    let (text, members) = told(&chosen, Some((&drafted, &folder)), &placed.jobs);
    tell_left_out(chosen.sealed, chosen.under_way.len(), "an earlier");
    if args.wait && !args.dry_run && placed.refused.is_none() {
        awaited.push(Awaited { folder, cells: None });
        return answer_and_wait(context, text, members, &awaited);
    }
    context.answer(|| text, || members)?;
    not_refused(placed.refused, &folder)
}

/// If Slurm refused a part, returns a failure with the command that submits the rest.
fn not_refused(refused: Option<ClusterError>, folder: &Folder) -> Result<u8, Failure> {
    let Some(error) = refused else { return Ok(exit::YES) };
    Err(Failure::from(error).with_hint(&format!("`ledger submit --resume {}` submits the rest", folder.name())))
}

/// Waits until no other command submits cells of the ledger.
fn take_turn(context: &Context) -> Result<Turn, Failure> {
    let waits = || say("another `submit` of this ledger is running; waiting");
    let turn = Turn::take(context.store_as_it_is().dir(), TURN, waits)?;
    if !turn.is_sure() {
        say("note: the ledger's file system has no locks: submit from one place at a time");
    }
    Ok(turn)
}

/// Returns the submissions that execute these cells.
fn awaited(busy: &[(Folder, Standing)], cells: &BTreeSet<Digest>) -> Vec<Awaited> {
    let wanted = |standing: &Standing| {
        let of = standing.cells.iter().filter(|stand| stand.state.is_under_way()).map(|stand| stand.cell.id);
        of.filter(|id| cells.contains(id)).collect::<BTreeSet<Digest>>()
    };
    let all = busy.iter().map(|(folder, standing)| Awaited { folder: folder.clone(), cells: Some(wanted(standing)) });
    all.filter(|awaited| awaited.cells.as_ref().is_some_and(|cells| !cells.is_empty())).collect()
}

/// Returns the state of the submissions that are not complete, without importing results.
fn look(spool: &Spool) -> Result<Vec<(Folder, Standing)>, Failure> {
    let folders = readable_or_damaged(spool.open()?)?;
    let tasks = ask(&folders)?;
    let look = |folder: Folder| stand(&folder, tasks.of(&folder)).map(|standing| (folder, standing));
    Ok(folders.into_iter().map(look).collect::<Result<_, _>>()?)
}

/// Imports the available results. Returns the state of the submissions that are not complete.
fn catch_up(context: &Context, spool: &Spool) -> Result<Vec<(Folder, Standing)>, Failure> {
    context.store();
    let folders = readable_or_damaged(spool.open()?)?;
    let tasks = ask(&folders)?;
    let mut standings = Vec::new();
    for folder in &folders {
        let (collected, standing) = bring(context, folder, tasks.of(folder), PATIENCE)?;
        if !collected.brought.is_empty() {
            say(&format!("{} of {} imported", count(collected.brought.len(), "attempt"), folder.name()));
        }
        standings.push((folder.clone(), standing));
    }
    Ok(standings)
}

/// A cell of the manifest.
struct Wanted {
    expected: Expected,
    label: String,
    cause: Cause,
    kind: String,
}

fn cells(args: &Args, manifest: &Manifest, request: &Request, limits: &Limits) -> Result<Vec<Wanted>, Failure> {
    let (trainer, machine) = (trainer(), Machine::default());
    let cause = match args.repeat {
        Some(times) => Cause::Repeat(usize::try_from(times).unwrap_or(usize::MAX)),
        None => Cause::Complete(usize::try_from(manifest.repeats).unwrap_or(usize::MAX)),
    };
    let (mut seen, mut unbound) = (BTreeSet::new(), Vec::new());
    let mut cells = Vec::new();
    for cell in &manifest.cells {
        let contained = args.slurm.contained(cell, request);
        let anchored = anchor(&contained, manifest);
        let expected = match Expected::of(&anchored, manifest.program.as_ref(), trainer.as_ref(), &machine) {
            Ok(expected) => expected,
            Err(error) => {
                unbound.push((manifest, contained, error));
                continue;
            }
        };
        let gpus = request.gpus_of(&anchored).map_err(|error| Failure::new(exit::USAGE, error))?;
        if seen.insert(expected.id()) {
            let label = report::axes_label(&anchored, &manifest.axes, None);
            cells.push(Wanted { expected, label, cause, kind: request.kind(&limits.cluster, gpus) });
        }
    }
    if let Some(failure) = unbound::failure(unbound, false) {
        return Err(failure);
    }
    if let Some(text) = &args.only {
        only(text, &mut cells, |wanted| wanted.expected.cell())?;
    }
    Ok(cells)
}

/// The cells to submit, and the numbers of those left out.
struct Chosen {
    members: Vec<Member>,
    sealed: usize,
    under_way: BTreeSet<Digest>,
}

fn choose(
    args: &Args,
    context: &Context,
    spool: &Spool,
    cells: &[Wanted],
    busy: &BTreeSet<(Digest, String)>,
) -> Result<Chosen, Failure> {
    let asked: Vec<_> = cells.iter().map(|wanted| (&wanted.expected, wanted.cause, wanted.kind.clone())).collect();
    let covered = cover(context.store_as_it_is(), spool, &asked)?;
    let mut chosen = Chosen { members: Vec::new(), sealed: 0, under_way: BTreeSet::new() };
    for (wanted, covered) in cells.iter().zip(covered) {
        let id = wanted.expected.id();
        if covered.missing == 0 {
            chosen.sealed += 1;
        } else if args.repeat.is_none() && busy.contains(&(id, wanted.kind.clone())) {
            chosen.under_way.insert(id);
        } else {
            let (label, expected) = (wanted.label.clone(), wanted.expected.clone());
            let member = Member { id, label, expected, cause: wanted.cause, sealed: covered.sealed };
            chosen.members.push(member);
        }
    }
    Ok(chosen)
}

/// Formats `2026-11-22 03:36:24` as `20261122-033624`.
fn stamp(moment: &str) -> String {
    moment.chars().filter(|c| c.is_ascii_digit() || *c == ' ').map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns a name that is safe in paths and job lists.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let slug: String = name.chars().take(40).map(plain).collect();
    let slug = slug.trim_matches(['-', '.']);
    if slug.is_empty() { "experiment".to_owned() } else { slug.to_owned() }
}

/// Describes what was or would be submitted, as text and as members of the document.
fn told(chosen: &Chosen, made: Option<(&Drafted, &Folder)>, jobs: &[Submitted]) -> (String, Table) {
    let arrays: Vec<report::SubmittedArray> = made
        .iter()
        .flat_map(|(drafted, folder)| {
            drafted.submission.arrays.iter().zip(&drafted.scripts).enumerate().map(|(number, (array, text))| {
                let cells = drafted.submission.cells.iter().filter(|cell| cell.array == number);
                report::SubmittedArray {
                    job: jobs.get(number).map(|submitted| submitted.job.clone()),
                    tasks: array.tasks,
                    gpus: array.gpus,
                    script: folder.script(number).display().to_string(),
                    text: text.clone(),
                    cells: cells.map(|cell| (cell.id, cell.task, cell.label.clone())).collect(),
                }
            })
        })
        .collect();
    let name = made.map(|(drafted, _)| drafted.submission.name.clone());
    let mut members = report::submit_value(&arrays);
    members.extend(table_of([("sealed", chosen.sealed.into()), ("under_way", chosen.under_way.len().into())]));
    members.extend(name.as_deref().map(|name| ("submission".to_owned(), name.into())));
    (report::submit_text(name.as_deref(), &arrays), members)
}

fn tell_left_out(sealed: usize, under_way: usize, which: &str) {
    if sealed > 0 {
        say(&format!("{} sealed before and not submitted", count(sealed, "cell")));
    }
    if under_way > 0 {
        say(&format!("{} pending in {which} submission", count(under_way, "cell")));
    }
}

/// Copies the calibrations into the submission: the ledgers of tasks have none of their own.
fn hand_on_calibrations(context: &Context, folder: &Folder) {
    if let Err(error) = KeptCalibration::hand_on(context.store_as_it_is().dir(), folder.dir()) {
        say(&format!("warning: the tasks find no calibration, so energies have wider intervals: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths() {
        assert_eq!(stamp("2026-11-22 03:36:24"), "20261122-033624");
        assert_eq!(slug("BERT, base (2)/x"), "BERT--base--2--x");
        assert_eq!([slug("über.."), slug("…")], ["ber", "experiment"]);
    }
}
