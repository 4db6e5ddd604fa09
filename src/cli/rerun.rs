//! `ledger rerun`

mod original;

pub(super) use self::original::{
    DIRECTORY, Elsewhere, Original, find, is_executed_by_user, is_program, tell_packed_rerun,
};
use super::context::Context;
use super::failure::{Failure, exit};
use super::output::say;
use super::provenance::Provenance;
use super::run::{facts, shim};
use super::sources;
use super::trainer::trainer;
use super::watch::{Interruption, Watcher};
use crate::analysis::{FieldDifference, Grade, Margin, environment_changes, verdict, why};
use crate::engine::{
    BindError, Bound, Cause, Executed, KernelCache, Machine, Refusal, Sweep, plan, rebind, surroundings,
};
use crate::gpu::Settings;
use crate::host::clock;
use crate::record::{Attempt, AttemptId, Change, LogEntry, Part, Run, RunId, Sealed, Table, Value};
use crate::report::{fields_text, verdict_text, verdict_value, why_text};

/// Execute a run again and compare the results
///
/// Compares every recorded curve bit by bit, and the digests of the final weights. The verdict is `identical` if
/// nothing differs. It is `equivalent` if all differences stay within the rounding that the reproducibility class
/// allows. With --margin, it is also `equivalent` if two one-sided tests over the repetitions hold every metric
/// within the margin. `drifted` means not reproduced (exit code 5): it names the first step that differs, and its
/// phase if steps have durations. `failed` has exit code 4. The verdict is written to the log, and `ledger show`
/// shows it.
///
/// If the ID is a run, compares with its first finished attempt that is not a rerun. `latest` is the newest attempt;
/// if that is a rerun, the attempt that it repeats, and so on to the first. If this machine gives a different run id
/// (other devices, versions or program), nothing is executed and the exit code is 5. With --on-current it runs anyway
/// and is recorded under the new id. Other changes of the environment are listed.
///
/// Example: ledger rerun latest
///
/// Example: ledger rerun latest --times 5 --margin 1%
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// Execute it N times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    times: u16,

    /// Largest difference of metric means that counts as equal: `1%` of the original's mean, or `0.002` in the
    /// metric's unit
    #[arg(long, value_name = "MARGIN")]
    margin: Option<Margin>,

    #[command(flatten)]
    consent: Consent,

    #[command(flatten)]
    elsewhere: Elsewhere,
}

/// What is executed only if somebody says so.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Consent {
    /// Execute it even if this machine gives a different run id
    #[arg(long)]
    pub(super) on_current: bool,

    /// Execute commands and images that this user did not execute in this ledger, read files and set GPUs as recorded
    #[arg(long)]
    pub(super) trust: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let original = context.store().read(|reader| find(reader, &args.id))??;
    original.tell_rerun();
    rerun(&original, usize::from(args.times), args.margin, (args.consent, &args.elsewhere), context)
}

/// Binds a recorded run on this machine.
///
/// Without `is_trusted`, git is not run in the program's folder, because a repository can name commands that git
/// executes. The data at the recorded path are not read either, because the path may be arbitrary and reading may take
/// hours.
pub(super) fn bind_again(
    sealed: &Sealed,
    shown: &str,
    elsewhere: &Elsewhere,
    is_trusted: bool,
) -> Result<Bound, Failure> {
    is_repeatable(sealed, shown)?;
    let unnamed = elsewhere.unnamed_data(sealed);
    let machine = match (is_trusted, unnamed) {
        (true, _) => Machine::default(),
        (false, None) => Machine::without_git(&sealed.run).untrusting(&sealed.run),
        (false, Some(_)) => Machine::without_git(&sealed.run).untrusting(&sealed.run).without_data(&sealed.run),
    };
    let bound = rebind(&sealed.run, &elsewhere.settings(sealed)?, trainer().as_ref(), &machine);
    bound.map_err(|error| match error {
        BindError::Refused(Refusal::NoData { .. }) if unnamed.is_some() => {
            Failure::new(exit::USAGE, format!("{error} (--data PATH names the data here)"))
        }
        error => error.into(),
    })
}

/// Refuses attempts that cannot be executed again, trusted or not.
fn is_repeatable(sealed: &Sealed, shown: &str) -> Result<(), Failure> {
    if let Some(reason) = sealed.attempt.outcome.reason() {
        let outcome = sealed.attempt.outcome.name();
        let text = format!(
            "attempt `{shown}` is {outcome}, but a rerun needs a finished attempt (name its run or another attempt, if one finished): {reason}"
        );
        return Err(Failure::new(exit::NO, text));
    }
    if sealed.attempt.facts.contains_key("import") {
        let text = format!("`{shown}` was imported from another tool's files, so there is no program to execute again");
        return Err(Failure::new(exit::NO, text));
    }
    Ok(())
}

/// Returns what a record of another ledger would do here, except computing with the built-in trainer.
///
/// `data` is the path of the data if only the record names it.
fn asks_trust(run: &Run, settings: &Table, data: Option<&str>) -> Option<String> {
    if let Some(command) = run.parts.program.as_table().and_then(|program| program.get("command")) {
        let words: Vec<&str> = match command {
            Value::List(words) => words.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        return Some(format!(
            "command comes from another ledger, user or machine and is not executed (--trust executes it): {words:?}"
        ));
    }
    if let Some(image) = settings.get("container.image").and_then(Value::as_str).filter(|image| *image != "host") {
        return Some(format!(
            "image comes from another ledger, user or machine and is not executed (--trust executes it): `{image}`"
        ));
    }
    if Settings::of(run.config()).is_some() {
        let text =
            "power limit and clocks come from another ledger, user or machine and are not set (--trust sets them)";
        return Some(text.to_owned());
    }
    let text = "data path comes from another ledger, user or machine and is not read (--trust reads it, --data PATH names another)";
    Some(format!("{text}: `{}`", data?))
}

/// Executes the run the given number of times, and compares the results.
pub(super) fn rerun(
    original: &Original,
    times: usize,
    margin: Option<Margin>,
    (consent, elsewhere): (Consent, &Elsewhere),
    context: &Context,
) -> Result<u8, Failure> {
    is_repeatable(&original.sealed, &original.id.0.prefix(8))?;
    let sealed = &original.sealed;
    let distrusted = || asks_trust(&sealed.run, &sealed.attempt.settings, elsewhere.unnamed_data(sealed));
    if let (false, false, Some(what)) = (original.is_own, consent.trust, distrusted()) {
        let text = format!("its {what}");
        return Err(Failure::new(exit::USAGE, text));
    }
    let bound = bind_again(&original.sealed, &original.id.0.prefix(8), elsewhere, true)?;
    let Provenance { facts: mut from, sources: mut kept } =
        Provenance::of_record(&original.sealed.attempt.facts, &bound);
    kept.extend(sources::keep(&mut from, bound.program_files.iter()));
    let mut facts = facts();
    facts.extend(from);
    facts.insert(Attempt::RERUN_OF.to_owned(), original.id.to_string().into());
    let mut changed = environment_changes(&original.sealed.attempt.facts, &surroundings(bound.image.as_ref(), &facts));
    let mut parts = why(&original.sealed.run, &bound.run);
    let texts = context.store().read(|reader| sources::of_ledger(reader, &original.sealed.attempt.facts))?;
    sources::count_lines_here(&mut parts, &texts, &bound);
    let told = fields_text(&changed, "recorded", "here");
    if !parts.is_empty() && !consent.on_current {
        let mut text = why_text(&parts, "recorded", "here");
        if !changed.is_empty() {
            text.push_str(&format!("also changed, with the same run id:\n{told}"));
        }
        let is_program_alone = parts.iter().all(|part| part.part == Part::Program);
        let why = if is_program_alone { "its program has changed" } else { "its run has another id here" };
        let text = format!(
            "attempt {}: {why}, so nothing was executed (--on-current executes it anyway)\n{}",
            original.id.0.prefix(8),
            text.trim_end()
        );
        return Err(Failure::new(exit::NOT_REPRODUCED, text));
    }
    let pinned = KernelCache::has_pin(context.store().dir(), &bound.run, &original.sealed.attempt.facts);
    match pinned {
        Err(unpinned) if !consent.on_current => {
            return Err(Failure::new(exit::NOT_REPRODUCED, unpinned.to_string()));
        }
        Err(unpinned) => say(&format!("--on-current executes it anyway: {unpinned}")),
        Ok(()) => {}
    }
    if !parts.is_empty() {
        let text = why_text(&parts, "recorded", "here");
        say(&format!("a different run id from the original's, accepted by --on-current:\n{}", text.trim_end()));
    }
    if !changed.is_empty() {
        say(&format!("changed since it was recorded:\n{}", told.trim_end()));
    }
    if !kept.is_empty() {
        context.store().write(|writer| kept.iter().try_for_each(|source| writer.keep(source)))?;
    }
    let executed = execute(bound, times, &facts, context)?;
    let late = seen_late(&original.sealed.attempt, &executed, &changed);
    if !late.is_empty() {
        let told = fields_text(&late, "recorded", "here");
        say(&format!("also changed, as seen during execution:\n{}", told.trim_end()));
    }
    changed.extend(late);
    let reruns = context.store().read(|reader| {
        let sealed = executed.iter().map(|rerun| reader.sealed(rerun.id));
        Ok(sealed.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect::<Vec<Sealed>>())
    })?;
    let reruns: Vec<&Sealed> = reruns.iter().collect();
    let verdict = verdict(&original.sealed, &original.earlier, &reruns, margin);
    let unix_ms = clock::unix_ms();
    context.store().write(|writer| {
        for (rerun, judged) in executed.iter().zip(&verdict.reruns) {
            let change = Change::Verdict {
                original: original.id,
                rerun: rerun.id,
                verdict: judged.grade.name().to_owned(),
                detail: verdict.detail_of(judged),
            };
            writer.note(&LogEntry { unix_ms, change })?;
        }
        Ok(())
    })?;
    let ids: Vec<(AttemptId, RunId)> = executed.iter().map(|rerun| (rerun.id, rerun.run.id)).collect();
    context.answer(
        || verdict_text(&verdict, original.id, &original.sealed, &ids),
        || verdict_value(&verdict, original.id, &ids, &parts, &changed),
    )?;
    Ok(match verdict.grade {
        Grade::Identical | Grade::Equivalent => exit::YES,
        Grade::Drifted => exit::NOT_REPRODUCED,
        Grade::Failed => exit::FAILED,
    })
}

/// Returns the changes of the environment that are known only after an attempt: those of libraries and GPUs.
fn seen_late(original: &Attempt, executed: &[Executed], known: &[FieldDifference]) -> Vec<FieldDifference> {
    let mut late: Vec<FieldDifference> = Vec::new();
    for rerun in executed {
        for change in environment_changes(&original.facts, &rerun.attempt.facts) {
            if known.iter().chain(&late).all(|other| other.field != change.field) {
                late.push(change);
            }
        }
    }
    late
}

fn execute(bound: Bound, times: usize, facts: &Table, context: &Context) -> Result<Vec<Executed>, Failure> {
    let store = context.store_as_it_is();
    let planned = plan(store, vec![(bound, Cause::Repeat(times))])?;
    let watcher = Watcher::new(times, &[]);
    let interruption = Interruption::install()?;
    let shim = shim()?;
    let sweep = Sweep { store, facts, shim: &shim, watch: &watcher, stop: &interruption, jobs: 1, canary: false };
    let mut report = sweep.run(planned);
    watcher.finish();
    if let Some((_, error)) = report.troubled.pop() {
        return Err(error.into());
    }
    if report.executed.is_empty() {
        return Err(Failure::new(exit::INTERRUPTED, "interrupted before it was executed"));
    }
    if report.interrupted {
        return Err(Failure::new(exit::INTERRUPTED, "interrupted; the rerun is recorded without a verdict"));
    }
    Ok(report.executed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Parts;
    use crate::report::table_of;

    fn run(program: Value, config: Table) -> Run {
        Run::new(Parts { config: config.into(), program, ..Parts::sample() })
    }

    #[test]
    fn the_trainer_needs_trust_only_for_recorded_data_paths_images_and_gpu_settings() {
        let asks = |run: &Run, pairs: &[(&str, &str)]| {
            let settings: Table = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
            asks_trust(run, &settings, settings.get("data.path").and_then(Value::as_str))
        };
        let trainer = run("trainer".into(), Table::new());
        assert_eq!((asks(&trainer, &[("container.image", "host")]), asks(&trainer, &[])), (None, None));
        let image = asks(&trainer, &[("container.image", "/tmp/x.sif")]).unwrap();
        assert!(image.starts_with("image") && image.ends_with("`/tmp/x.sif`"), "{image}");
        let data = asks(&trainer, &[("data.path", "/srv/data")]).unwrap();
        assert!(data.contains("--trust") && data.ends_with("`/srv/data`"), "{data}");
        let limit = [("hardware.power_limit_w".to_owned(), 300_i64.into())];
        let limited = run("trainer".into(), limit.into());
        assert!(asks(&limited, &[]).unwrap().starts_with("power limit"));
        let program = run(Value::Table(table_of([("command", vec!["sh", "a"].into())])), Table::new());
        assert!(asks(&program, &[]).unwrap().contains("[\"sh\", \"a\"]"));
    }
}
