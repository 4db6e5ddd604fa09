//! `ledger run`

mod answer;
mod attach;
mod best;
mod untold;
pub(super) mod versions;

use super::context::Context;
use super::failure::{Failure, exit};
use super::only;
use super::output::say;
use super::provenance::{self, Provenance};
use super::sources;
use super::trainer::trainer;
use super::unbound;
use super::watch::{Interruption, Watcher};
use crate::analysis::differing;
use crate::engine::{
    self, BindError, Bound, Cause, EngineError, Launch, Machine, Place, Planned, Shim, Sweep, SweepReport,
    bind_anchored, is_of_identity, plan, read_files_changed,
};
use crate::host::user_key::UserKey;
use crate::host::{container, environment, machine, process, slurm, terminal};
use crate::journal::JournalError;
use crate::manifest::{self, Manifest};
use crate::record::{Cell, Digest, Outcome, Run, RunId, SourceText, Table};
use crate::report::{self, count};
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Execute the runs of manifests that the ledger does not hold yet
///
/// Finished runs are not executed again. Failed and interrupted runs are, except those that ran out of GPU memory.
/// Two `ledger run` commands can work on one ledger at once: they share the runs. The first Ctrl-C stops at the
/// next step, the second at once. All data recorded so far are kept.
///
/// Example: ledger run manifests/quickstart.toml --only 'optimizer == adam'
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The manifests
    #[arg(required_unless_present = "attach", value_name = "MANIFEST")]
    manifests: Vec<PathBuf>,

    /// Print the runs with their ids, and execute nothing
    #[arg(long)]
    dry_run: bool,

    /// Execute each run N more times, finished or not, without control runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// Only the runs whose fields match: `gpus <= 2 and optimizer in [adam, sgd]`
    #[arg(long, value_name = "EXPR")]
    only: Option<String>,

    /// Execute N runs at once. They use the same GPUs and disturb each other's times; for one GPU each, start one
    /// `CUDA_VISIBLE_DEVICES=K ledger run …` per GPU
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,

    /// Also execute runs again that ran out of GPU memory
    #[arg(long)]
    retry_oom: bool,

    /// Do not set power limits and clocks, even if the manifest asks for them; attempts at other settings are
    /// tainted
    #[arg(long)]
    observe_only: bool,

    /// Record the process with this id, which already runs, until it ends
    ///
    /// `ledger_events.attach` of the Python package starts this command and speaks with it: standard input has the
    /// manifest. The process is never signalled. If it dies, its attempt is recorded as interrupted.
    #[arg(
        long,
        value_name = "PID",
        conflicts_with_all = ["manifests", "dry_run", "repeat", "only", "jobs", "retry_oom", "observe_only"]
    )]
    attach: Option<u32>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if let Some(pid) = args.attach {
        return attach::run(pid, context);
    }
    let manifests: Vec<Manifest> = args.manifests.iter().map(|path| manifest::load(path)).collect::<Result<_, _>>()?;
    let named: Vec<(&Path, &Manifest)> = args.manifests.iter().map(PathBuf::as_path).zip(&manifests).collect();
    named.iter().try_for_each(|(path, manifest)| provenance::refuse_secrets(path, manifest))?;
    // A dry run records nothing.
    let from = if args.dry_run { Vec::new() } else { Provenance::of_all(&named) };
    let mut bounds = bound(&manifests, &from, args.repeat, args.only.as_deref(), args.observe_only)?;
    let mut programs: BTreeMap<Digest, SourceText> = BTreeMap::new();
    if !args.dry_run {
        for (bound, _) in &mut bounds {
            let kept = sources::keep(&mut bound.facts, bound.program_files.iter());
            programs.extend(kept.into_iter().map(|source| (source.key(), source)));
        }
    }
    if args.jobs > 1 && bounds.iter().any(|(bound, _)| bound.settings_to_make().is_some()) {
        let text = "runs that set a power limit or clocks are executed one after the other (remove --jobs)";
        return Err(Failure::new(exit::USAGE, text));
    }
    let store = if args.dry_run { context.store_as_it_is() } else { context.store() };
    let mut planned = plan(store, bounds)?;
    if args.retry_oom {
        planned.iter_mut().for_each(Planned::try_again);
    }
    let planned = planned;
    let axes = axes(&planned);
    untold::say_untold_axes(&planned, &axes);
    say_what_uses_the_cpu(&planned);
    say_what_may_be_stale(store, &planned)?;
    versions::say_new_versions(store, &planned)?;
    if args.dry_run {
        return answer_plan(context, store, &planned, &axes, (String::new(), Table::new()));
    }
    // This detects an unwritable ledger before the training.
    let facts = facts();
    let sources = from.iter().flat_map(|one| &one.sources).chain(programs.values());
    store.write(|writer| sources.clone().try_for_each(|source| writer.keep(source)))?;
    let missing: usize = planned.iter().map(|planned| planned.missing).sum();
    let interruption = Interruption::install()?;
    let report = if missing == 0 {
        SweepReport::default()
    } else {
        // A requested number of attempts includes no control runs.
        let canary = args.repeat.is_none();
        let watcher = Watcher::new(engine::attempts(&planned, canary), &axes);
        let sweep = Sweep {
            store,
            facts: &facts,
            shim: &shim()?,
            watch: &watcher,
            stop: &interruption,
            jobs: usize::from(args.jobs),
            canary,
        };
        let report = sweep.run(planned.clone());
        watcher.finish();
        report
    };
    let ranked = answer::answer(context, store, &planned, &axes, &report)?;
    let is_short = planned.iter().any(|planned| planned.out_of_memory.is_some());
    let code = match code(&report) {
        exit::YES if is_short => exit::FAILED,
        code => code,
    };
    if missing > 0 && !context.json && terminal::stderr_columns().is_some() {
        let first = if code == exit::YES { ranked.as_deref().unwrap_or("ls") } else { "logs" };
        say(&next_commands(context, first));
    } else if report.any_failed() {
        say("note: `ledger logs RUN` shows what a run wrote");
    }
    Ok(code)
}

/// Returns the path of the ledger and the next commands, printed on a terminal only.
fn next_commands(context: &Context, first: &str) -> String {
    let ledger = context.store_as_it_is().dir().display();
    let program = if context.is_named { format!("ledger --ledger {ledger}") } else { "ledger".to_owned() };
    format!("recorded in `{ledger}`; next: `{program} {first}`, `{program} show`")
}

/// Reports runs that fall back to the CPU: work that takes minutes on a GPU may take days.
fn say_what_uses_the_cpu(planned: &[Planned]) {
    let missing = planned.iter().filter(|planned| planned.missing > 0);
    let reasons: BTreeSet<&str> = missing.filter_map(|planned| planned.bound.no_gpu.as_deref()).collect();
    reasons.iter().for_each(|why| say(&format!("note: runs use the CPU: {why}")));
}

/// Warns about sealed attempts that are not executed again, although their program may differ from the recorded one, or
/// files that they read have changed.
fn say_what_may_be_stale(store: &Store, planned: &[Planned]) -> Result<(), Failure> {
    let sealed = planned.iter().filter(|planned| planned.sealed > 0);
    let programs: Vec<(RunId, &Path, bool)> = sealed
        .filter_map(|planned| match &planned.bound.launch {
            Launch::Program { directory, .. } => Some((planned.bound.run.id, directory.as_path(), planned.missing > 0)),
            Launch::Trainer | Launch::Attached(_) => None,
        })
        .collect();
    let doubts = store.if_there(|reader| {
        let mut doubts: BTreeMap<String, BTreeSet<RunId>> = BTreeMap::new();
        for (run, directory, is_missing) in &programs {
            // The reason why none of the run's attempts counts, without the numbers of each attempt.
            let mut tainted = None;
            let mut counts = *is_missing;
            for (id, _) in reader.attempts_of(*run)? {
                let Some(attempt) = reader.readable(id)? else { continue };
                counts |= attempt.counts().is_ok() || attempt.outcome != Outcome::Finished;
                let reason = attempt.taints().first().and_then(|reason| reason.split(" (").next().map(str::to_owned));
                tainted = tainted.or(reason);
                let warnings = attempt.warnings.into_iter().filter(|warning| is_of_identity(warning));
                let changed = read_files_changed(&attempt.facts, directory).into_iter().map(|name| {
                    format!(
                        "the program read `{name}`, which has changed since and is not in its identity (add it to `files` of [program])"
                    )
                });
                for doubt in warnings.chain(changed) {
                    doubts.entry(doubt).or_default().insert(*run);
                }
            }
            if let Some(reason) = tainted.filter(|_| !counts) {
                doubts.entry(format!("all attempts are tainted: {reason}")).or_default().insert(*run);
            }
        }
        Ok(doubts)
    })?;
    for (doubt, runs) in doubts.unwrap_or_default() {
        let fix = if doubt.ends_with("of [program])") {
            ""
        } else {
            "; `ledger run MANIFEST --repeat 1` executes them again"
        };
        say(&format!("warning: {} sealed before: {doubt}{fix}", count(runs.len(), "run")));
    }
    Ok(())
}

/// Returns this program as the worker's executable. It is the running file itself, even if the file at its path has changed.
pub(super) fn shim() -> Result<Shim, Failure> {
    own_path()?;
    Ok(Shim { executable: process::OWN_FILE.into(), restore: Place::usual(), key: UserKey::of_user_or_new() })
}

/// Returns the path of this program's file.
pub(super) fn own_path() -> Result<PathBuf, Failure> {
    process::own_path()
        .map_err(|error| Failure::new(exit::FAILED, format!("cannot find this program's own file: {error}")))
}

/// Binds the runs of manifests to this machine, and returns those selected by `only` with the number of attempts of
/// each. `from` is the provenance of each manifest, if it is recorded. `observe_only` leaves GPU settings unchanged.
pub(super) fn bound(
    manifests: &[Manifest],
    from: &[Provenance],
    repeat: Option<u32>,
    only: Option<&str>,
    observe_only: bool,
) -> Result<Vec<(Bound, Cause)>, Failure> {
    let trainer = trainer();
    let machine = Machine::default();
    let mut bounds: Vec<(&Manifest, &Cell, Result<Bound, BindError>, Cause)> = Vec::new();
    for (number, manifest) in manifests.iter().enumerate() {
        let facts = from.get(number).map(|from| from.facts.clone()).unwrap_or_default();
        for cell in &manifest.cells {
            let cause = match repeat {
                Some(times) => Cause::Repeat(usize::try_from(times).unwrap_or(usize::MAX)),
                None => Cause::Complete(usize::try_from(manifest.repeats).unwrap_or(usize::MAX)),
            };
            let mut anchored = engine::anchor(cell, manifest);
            if observe_only {
                engine::observe_only(&mut anchored);
            }
            let bound = bind_anchored(anchored, manifest.program.as_ref(), trainer.as_ref(), &machine);
            let bound = bound.map(|bound| Bound { facts: facts.clone(), ..bound });
            bounds.push((manifest, cell, bound, cause));
        }
    }
    if let Some(text) = only {
        // Cells that this machine cannot execute do not prevent the selection of others.
        only::only(text, &mut bounds, |(_, cell, bound, _)| bound.as_ref().map_or(*cell, |bound| &bound.cell))?;
    }
    let (mut bound, mut unbound) = (Vec::new(), Vec::new());
    for (manifest, cell, one, cause) in bounds {
        match one {
            Ok(one) => bound.push((one, cause)),
            Err(error) => unbound.push((manifest, cell.clone(), error)),
        }
    }
    match unbound::failure(unbound, !bound.is_empty()) {
        Some(failure) => Err(failure),
        None => Ok(bound),
    }
}

/// Returns the fields in which the runs differ.
pub(super) fn axes(planned: &[Planned]) -> Vec<String> {
    let Some(first) = planned.first() else { return Vec::new() };
    let names: BTreeSet<&String> = planned.iter().flat_map(|planned| planned.bound.cell.config.keys()).collect();
    let runs: Vec<&Run> = planned.iter().map(|planned| &planned.bound.run).collect();
    let mut axes = differing(&runs);
    // The data's digest depends on other fields.
    axes.retain(|axis| names.contains(axis) && axis != "data.digest");
    for place in ["data.path", "container.image"] {
        if planned.iter().any(|other| other.bound.cell.text(place) != first.bound.cell.text(place)) {
            axes.push(place.to_owned());
        }
    }
    if planned.iter().any(|other| other.bound.cell.seed != first.bound.cell.seed) {
        axes.push("seed".to_owned());
    }
    axes
}

/// Prints the runs that would be executed, with further text and members of the document.
pub(super) fn answer_plan(
    context: &Context,
    store: &Store,
    planned: &[Planned],
    axes: &[String],
    (more_text, more): (String, Table),
) -> Result<u8, Failure> {
    let ids = short_ids(store, planned)?;
    let full = |planned: &Planned, short: &String| {
        if context.json { planned.bound.run.id.to_string() } else { short.clone() }
    };
    let plans: Vec<_> = planned
        .iter()
        .zip(&ids)
        .map(|(planned, id)| (full(planned, id), &planned.bound.cell, planned.sealed, planned.missing))
        .collect();
    let members = || report::plan_value(&plans).into_iter().chain(more).collect();
    context.answer(|| format!("{}{more_text}", report::plan_text(&plans, axes)), members)?;
    Ok(exit::YES)
}

/// Returns the ids to display, as short as in the ledger if it exists.
pub(super) fn short_ids(store: &Store, planned: &[Planned]) -> Result<Vec<String>, StoreError> {
    let shown =
        store.if_there(|reader| planned.iter().map(|planned| reader.short(planned.bound.run.id.0)).collect())?;
    Ok(shown.unwrap_or_else(|| planned.iter().map(|planned| planned.bound.run.id.0.prefix(8)).collect()))
}

/// Returns the facts about the environment that every attempt records.
pub(super) fn facts() -> Table {
    let mut facts = machine::facts();
    facts.extend(container::facts());
    facts.extend(slurm::facts());
    facts.extend(environment::recorded());
    facts
}

fn code(report: &SweepReport) -> u8 {
    if report.interrupted {
        exit::INTERRUPTED
    } else if report.troubled.iter().any(|(_, error)| match error {
        EngineError::Hold(error) => !error.passes(),
        EngineError::Container(_) => true,
        _ => false,
    }) {
        exit::USAGE
    } else if report.troubled.iter().any(|(_, error)| match error {
        EngineError::Journal(error) => matches!(error, JournalError::Busy { .. }),
        EngineError::Store(error) => matches!(error, StoreError::Busy { .. }),
        error => matches!(error, EngineError::Hold(_)),
    }) {
        exit::BUSY
    } else if !report
        .troubled
        .iter()
        .all(|(_, error)| matches!(error, EngineError::Data(_) | EngineError::Program(_) | EngineError::Unseen(_)))
    {
        exit::LEDGER
    } else if report.any_failed() || !report.troubled.is_empty() {
        exit::FAILED
    } else {
        exit::YES
    }
}

#[cfg(test)]
mod tests {
    use super::{EngineError, SweepReport, code, exit};
    use crate::analysis::is_chosen;
    use crate::manifest::{Preset, Role, fields};
    use crate::record::{Parts, Run, Table};

    fn run(config: Table) -> Run {
        Run::new(Parts { config: config.into(), ..Parts::sample() })
    }

    #[test]
    fn changed_data_end_a_sweep_like_a_failed_run() {
        let id = run(Table::new()).id;
        let code_of = |troubles: Vec<EngineError>| {
            let troubled = troubles.into_iter().map(|error| (id, error)).collect();
            code(&SweepReport { troubled, ..SweepReport::default() })
        };
        let data = || EngineError::Data("the data changed".to_owned());
        let blocked = EngineError::Blocked { journal: "j".into() };
        assert_eq!((code_of(vec![data()]), code_of(vec![data(), blocked])), (exit::FAILED, exit::LEDGER));
        assert_eq!(code_of(Vec::new()), exit::YES);
    }

    #[test]
    fn fields_without_a_default_are_listed_as_chosen_by_a_person() {
        let config: Table = [("training.optimizer".to_owned(), "adamw".into())].into();
        let run = run(config);
        for field in fields().iter().filter(|field| field.role == Role::Config) {
            let has_none = matches!(field.preset, Preset::None);
            assert_eq!(is_chosen(field.cell, &run), has_none, "{}", field.key);
        }
    }
}
