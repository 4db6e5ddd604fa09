//! `ledger submit`

mod resume;

use self::resume::resume_one;
use super::cluster::{PATIENCE, ask, bring, spool};
use super::context::{Context, read_file, say};
use super::failure::{Failure, exit};
use super::only::only;
use super::provenance::{Provenance, refuse_secrets};
use super::run::shim;
use super::slurm::{SlurmArgs, request};
use super::status;
use super::trainer::trainer;
use super::watch::Interruption;
use crate::cluster::{
    Draft, Drafted, Folder, Limits, Member, ProgramText, Request, Slurm, Spool, Standing, State, Submitted, cover,
    draft, place, under_way,
};
use crate::engine::{Cause, Expected, KeptCalibration, Machine, Stop, anchor};
use crate::host::clock;
use crate::manifest::{self, Manifest};
use crate::report::{self, count, table_of, when};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Hand the combinations of a manifest that are missing to Slurm, as job arrays
///
/// Cells that the ledger holds already, or that an earlier submission is still to execute, are left out. The command ends at
/// once; `ledger status` says how far the tasks are, and `ledger collect` brings home what is over. Where and how is said by flags, by the
/// manifest's [slurm] and by the profile of a site, in this order (docs/slurm.md).
///
/// Example: ledger submit manifests/bert.toml --partition gpu --time 4:00:00 --array-limit 8
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The manifest
    #[arg(value_name = "MANIFEST", required_unless_present = "resume", conflicts_with = "resume")]
    manifest: Option<PathBuf>,

    /// Submit again what did not come to an end of its own: a job's number or a part of a submission's name [default: the newest]
    #[arg(long, value_name = "JOB", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["repeat", "only", "SlurmArgs"])]
    resume: Option<String>,

    /// Print the scripts and the cells, or with --resume the tasks, and submit nothing
    #[arg(long)]
    dry_run: bool,

    /// Wait until all is over and in the ledger
    #[arg(long)]
    wait: bool,

    /// Execute each run N more times, sealed or not
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// Take only the cells whose fields match: `gpus <= 2 and optimizer in [adam, sgd]`
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
    let spool = spool(context, request.spool.as_deref());
    let limits = match Slurm.limits() {
        Err(error) if args.dry_run => {
            say(&format!("note: {error}; the scripts are for a cluster with the usual limits"));
            Limits::usual()
        }
        limits => limits?,
    };
    let busy = if args.dry_run { Vec::new() } else { catch_up(context, &spool)? };
    let cells = cells(args, &manifest, &request, &limits)?;
    let chosen = choose(args, context, &spool, &cells, &under_way(&busy))?;
    if chosen.members.is_empty() {
        answer(context, &chosen, None, &[])?;
        return Ok(exit::YES);
    }
    let now_ms = clock::unix_ms();
    let moment = when(now_ms);
    let name = format!("{}-{}", stamp(&moment), slug(&manifest.name));
    let folder = if args.dry_run { spool.folder(&name) } else { spool.make(&name)? };
    let ledger = match &request.ledger {
        Some(path) => path.clone(),
        None => shim()?.executable,
    };
    // What the attempts will name by its digest is kept now: the repository is another when they come home.
    let Provenance { facts, sources } = Provenance::of(path, &manifest);
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
            program: manifest
                .program
                .as_ref()
                .map(|program| ProgramText { command: program.command.clone(), files: program.files.clone() }),
            facts,
            members: chosen.members.clone(),
        },
        &folder,
    );
    let drafted = drafted.map_err(|error| {
        if !args.dry_run {
            // It was made a moment ago, and nobody knows of it.
            let _ = std::fs::remove_dir_all(folder.dir());
        }
        Failure::new(exit::USAGE, error)
    })?;
    let jobs = if args.dry_run {
        Vec::new()
    } else {
        hand_on_calibrations(context, &folder);
        place(&drafted, &read_file(path)?, &folder, Slurm)?
    };
    answer(context, &chosen, Some((&drafted, &folder)), &jobs)?;
    if args.wait && !args.dry_run { wait(context, &folder) } else { Ok(exit::YES) }
}

/// Brings home what there is, and says how far the submissions are of which more is to come.
fn catch_up(context: &Context, spool: &Spool) -> Result<Vec<Standing>, Failure> {
    context.store();
    let folders = spool.open()?;
    let tasks = ask(&folders)?;
    let mut standings = Vec::new();
    for folder in &folders {
        let (collected, standing) = bring(context, folder, tasks.of(folder), PATIENCE)?;
        if !collected.brought.is_empty() {
            say(&format!("{} of {} came home", count(collected.brought.len(), "attempt"), folder.name()));
        }
        standings.push(standing);
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
    let mut seen = BTreeSet::new();
    let mut cells = Vec::new();
    for cell in &manifest.cells {
        let anchored = anchor(&args.slurm.contained(cell, request), manifest);
        let expected = Expected::of(&anchored, manifest.program.as_ref(), trainer.as_ref(), &machine)?;
        let gpus = request.gpus_of(&anchored).map_err(|error| Failure::new(exit::USAGE, error))?;
        if seen.insert(expected.id()) {
            let label = report::axes_label(&anchored, &manifest.axes);
            cells.push(Wanted { expected, label, cause, kind: request.kind(&limits.cluster, gpus) });
        }
    }
    if let Some(text) = &args.only {
        only(text, &mut cells, |wanted| wanted.expected.cell())?;
    }
    Ok(cells)
}

/// What is to be submitted, and how many cells are not.
struct Chosen {
    members: Vec<Member>,
    sealed: usize,
    under_way: usize,
}

fn choose(
    args: &Args,
    context: &Context,
    spool: &Spool,
    cells: &[Wanted],
    busy: &BTreeSet<(crate::record::Digest, String)>,
) -> Result<Chosen, Failure> {
    let asked: Vec<_> = cells.iter().map(|wanted| (&wanted.expected, wanted.cause, wanted.kind.clone())).collect();
    let covered = cover(context.store_as_it_is(), spool, &asked)?;
    let mut chosen = Chosen { members: Vec::new(), sealed: 0, under_way: 0 };
    for (wanted, covered) in cells.iter().zip(covered) {
        let id = wanted.expected.id();
        if covered.missing == 0 {
            chosen.sealed += 1;
        } else if args.repeat.is_none() && busy.contains(&(id, wanted.kind.clone())) {
            chosen.under_way += 1;
        } else {
            let (label, expected) = (wanted.label.clone(), wanted.expected.clone());
            let member = Member { id, label, expected, cause: wanted.cause, sealed: covered.sealed };
            chosen.members.push(member);
        }
    }
    Ok(chosen)
}

/// `2026-11-22 03:36:24` as `20261122-033624`.
fn stamp(moment: &str) -> String {
    moment.chars().filter(|c| c.is_ascii_digit() || *c == ' ').map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A name that is plain in paths and job lists.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let slug: String = name.chars().take(40).map(plain).collect();
    let slug = slug.trim_matches(['-', '.']);
    if slug.is_empty() { "experiment".to_owned() } else { slug.to_owned() }
}

fn answer(
    context: &Context,
    chosen: &Chosen,
    made: Option<(&Drafted, &Folder)>,
    jobs: &[Submitted],
) -> Result<(), Failure> {
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
    context.answer(
        || report::submit_text(name.as_deref(), &arrays),
        || {
            let mut members = report::submit_value(&arrays);
            members.extend(table_of([("sealed", chosen.sealed.into()), ("under_way", chosen.under_way.into())]));
            members.extend(name.as_deref().map(|name| ("submission".to_owned(), name.into())));
            members
        },
    )?;
    tell_left_out(chosen.sealed, chosen.under_way, "an earlier");
    Ok(())
}

fn tell_left_out(sealed: usize, under_way: usize, which: &str) {
    if sealed > 0 {
        say(&format!("{} sealed before and not submitted", count(sealed, "cell")));
    }
    if under_way > 0 {
        say(&format!("{} under way in {which} submission", count(under_way, "cell")));
    }
}

/// The nodes' tasks have ledgers of their own, and would find no calibration of their GPUs' sensors in them.
fn hand_on_calibrations(context: &Context, folder: &Folder) {
    if let Err(error) = KeptCalibration::hand_on(context.store_as_it_is().dir(), folder.dir()) {
        say(&format!("warning: the tasks find no calibration, and tell energies with wider intervals: {error}"));
    }
}

/// Brings home what comes until nothing more is to come. Ctrl-C ends the waiting, and nothing else.
fn wait(context: &Context, folder: &Folder) -> Result<u8, Failure> {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);
    let interruption = Interruption::install()?;
    let folders = std::slice::from_ref(folder);
    let mut pause = SHORTEST;
    let mut was_over = false;
    let standing = loop {
        let tasks = ask(folders)?;
        let (collected, standing) = bring(context, folder, tasks.of(folder), PATIENCE)?;
        for brought in &collected.brought {
            let (run, done) = (brought.run.0.prefix(8), standing.cells.iter());
            let done = done.filter(|stand| !stand.state.is_under_way()).count();
            say(&format!("{run} {} ({done} of {})", brought.outcome, count(standing.cells.len(), "cell")));
        }
        if standing.is_over() && collected.waiting == 0 {
            // What came between the bringing and the looking is brought by one more round.
            if std::mem::replace(&mut was_over, true) {
                break standing;
            }
            continue;
        }
        was_over = false;
        let until = clock::monotonic_ns() + u64::try_from(pause.as_nanos()).unwrap_or(0);
        while clock::monotonic_ns() < until {
            if interruption.asked() > 0 {
                say("no longer waited for; the tasks go on, and `ledger collect` brings them home");
                return Ok(exit::INTERRUPTED);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        pause = if collected.brought.is_empty() { (pause * 2).min(LONGEST) } else { SHORTEST };
    };
    status::answer_one(context, folder, &standing)?;
    let is = |state: State| standing.cells.iter().any(|stand| stand.state == state);
    Ok(if standing.cells.iter().all(|stand| stand.state == State::Finished) {
        exit::YES
    } else if is(State::Failed) || is(State::Refused) {
        exit::FAILED
    } else {
        exit::INTERRUPTED
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(stamp("2026-11-22 03:36:24"), "20261122-033624");
        assert_eq!(slug("BERT, base (2)/x"), "BERT--base--2--x");
        assert_eq!([slug("über.."), slug("…")], ["ber", "experiment"]);
    }
}
