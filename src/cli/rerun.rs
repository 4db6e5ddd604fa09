//! `ledger rerun`

use super::context::{self, Context, say};
use super::failure::{Failure, exit};
use super::run::{facts, shim};
use super::trainer::trainer;
use super::watch::{Interruption, Watcher};
use crate::analysis::{Grade, Margin, environment_changes, verdict, why};
use crate::engine::{Bound, Cause, Executed, KernelCache, Machine, Sweep, plan, rebind, surroundings};
use crate::host::clock;
use crate::record::{Attempt, AttemptId, Change, LogEntry, RunId, Sealed, SourceText, Table, Value};
use crate::report::{fields_text, verdict_text, verdict_value, why_text};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// Execute a run again, and say whether it did the same
///
/// Compares every recorded curve bit by bit and the digests of the final weights. The verdict is `identical`; `equivalent`, if all
/// that differs stays within the rounding that the run's class allows, or if --margin states how far metrics may be apart and two one-sided tests over the
/// repetitions hold them within it; `drifted` (with the first step at which they part and its phase; exit code 5); or `failed` (exit code 4). It is written into
/// the log.
///
/// If this machine would make it another run (other devices, versions, program), that is said and nothing is executed (exit code 5),
/// unless --on-current accepts it: it is recorded as the run that it then is. What else has changed of the surroundings is named.
///
/// Example: ledger rerun latest
///
/// Example: ledger rerun latest --times 5 --margin 1%
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// Execute it so many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    times: u16,

    /// How far the means of metrics may be apart and still count as equal: `1%` of the original's mean, or `0.002` in the metric's unit
    #[arg(long, value_name = "MARGIN")]
    margin: Option<Margin>,

    #[command(flatten)]
    consent: Consent,
}

/// What is executed only if somebody says so.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Consent {
    /// Execute it on this machine even if that makes it another run
    #[arg(long)]
    pub(super) on_current: bool,

    /// Execute a command, or an image, that came from another ledger
    #[arg(long)]
    pub(super) trust: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let original = find(context, &args.id)?;
    rerun(&original, usize::from(args.times), args.margin, args.consent, context)
}

/// What is to be repeated.
pub(super) struct Original {
    pub(super) id: AttemptId,
    pub(super) sealed: Sealed,
    /// All finished attempts of the run that count, this one among them; without reruns and those of other ledgers.
    pub(super) earlier: Vec<Attempt>,
    /// Whether it came from another ledger.
    pub(super) is_foreign: bool,
}

/// Finds what is to be repeated.
pub(super) fn find(context: &Context, text: &str) -> Result<Original, Failure> {
    context.store().read(|reader| {
        Ok(match context::resolve_attempt(reader, text)? {
            Err(failure) => Err(failure),
            Ok((id, sealed)) => {
                let is_foreign = reader.was_imported(id)?;
                let earlier = earlier(reader, sealed.run.id, id, is_foreign)?;
                Ok(Original { id, is_foreign, sealed, earlier })
            }
        })
    })?
}

/// What was executed again to be compared is no reference for the next comparison, nor is what another ledger says of a run of this one.
fn earlier(reader: &Reader<'_>, run: RunId, original: AttemptId, is_foreign: bool) -> Result<Vec<Attempt>, StoreError> {
    let no_reference: BTreeSet<AttemptId> = reader
        .log()?
        .into_iter()
        .filter_map(|entry| match entry.change {
            Change::Verdict { rerun: id, .. } => Some(id),
            Change::Imported(id) => (!is_foreign).then_some(id),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for (id, _) in reader.attempts_of(run)? {
        if id != original && no_reference.contains(&id) {
            continue;
        }
        found.extend(reader.attempt(id)?.filter(|attempt| attempt.counts().is_ok()));
    }
    Ok(found)
}

/// What this machine makes of a recorded run.
///
/// `asks_git` says whether git may be asked of the program's folder: a repository can name commands that git executes, and the record says which folder.
pub(super) fn bind_again(sealed: &Sealed, shown: &str, asks_git: bool) -> Result<Bound, Failure> {
    if let Some(reason) = sealed.attempt.outcome.reason() {
        let outcome = sealed.attempt.outcome.name();
        let text = format!("`{shown}` has no finished attempt to compare with (the newest is {outcome}: {reason})");
        return Err(Failure::new(exit::NO, text));
    }
    if sealed.attempt.facts.contains_key("import") {
        let text = format!("`{shown}` came from another tool's files: there is no program to execute again");
        return Err(Failure::new(exit::NO, text));
    }
    let machine = if asks_git { Machine::default() } else { Machine::without_git(&sealed.run) };
    Ok(rebind(&sealed.run, &sealed.attempt.settings, trainer().as_ref(), &machine)?)
}

/// What a record of another ledger would have executed here, besides the built-in trainer.
fn executed_by(program: &Value, settings: &Table) -> Option<String> {
    if let Some(command) = program.as_table().and_then(|program| program.get("command")) {
        let words: Vec<&str> = match command {
            Value::List(words) => words.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        return Some(format!("command came from another ledger and is not executed (--trust executes it): {words:?}"));
    }
    let image = settings.get("container.image").and_then(Value::as_str).filter(|image| *image != "host")?;
    Some(format!("image came from another ledger and is not executed (--trust executes it): `{image}`"))
}

/// Executes it as often as wanted, and judges.
pub(super) fn rerun(
    original: &Original,
    times: usize,
    margin: Option<Margin>,
    consent: Consent,
    context: &Context,
) -> Result<u8, Failure> {
    let distrusted = || executed_by(&original.sealed.run.parts.program, &original.sealed.attempt.settings);
    if let (true, false, Some(what)) = (original.is_foreign, consent.trust, distrusted()) {
        let text = format!("its {what}");
        return Err(Failure::new(exit::USAGE, text));
    }
    let bound = bind_again(&original.sealed, &original.id.0.prefix(8), true)?;
    let mut facts = facts(&[]);
    // It is made from the same text, of which the same is kept.
    let redacted = original.sealed.attempt.facts.get_key_value(SourceText::REDACTED);
    facts.extend(redacted.map(|(name, value)| (name.clone(), value.clone())));
    let changed = environment_changes(&original.sealed.attempt.facts, &surroundings(bound.image.as_ref(), &facts));
    let parts = why(&original.sealed.run, &bound.run);
    let surroundings = fields_text(&changed, "recorded", "here");
    if !parts.is_empty() && !consent.on_current {
        let mut text = why_text(&parts, "recorded", "here");
        if !changed.is_empty() {
            text.push_str(&format!("changed too, without making it another run:\n{surroundings}"));
        }
        let text = format!("here it would be another run (--on-current executes it all the same)\n{}", text.trim_end());
        return Err(Failure::new(exit::NOT_REPRODUCED, text));
    }
    let pinned = KernelCache::has_pin(context.store().dir(), &bound.run, &original.sealed.attempt.facts);
    if let (Err(unpinned), false) = (pinned, consent.on_current) {
        return Err(Failure::new(exit::NOT_REPRODUCED, unpinned.to_string()));
    }
    if !changed.is_empty() {
        say(&format!("changed since it was recorded:\n{}", surroundings.trim_end()));
    }
    let executed = execute(bound, times, &facts, context)?;
    let reruns: Vec<&Sealed> = executed.iter().map(|rerun| &rerun.sealed).collect();
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
    let ids: Vec<(AttemptId, RunId)> = executed.iter().map(|rerun| (rerun.id, rerun.sealed.run.id)).collect();
    context.answer(
        || verdict_text(&verdict, original.id, &original.sealed, &ids),
        || verdict_value(&verdict, original.id, &ids, &changed),
    )?;
    Ok(match verdict.grade {
        Grade::Identical | Grade::Equivalent => exit::YES,
        Grade::Drifted => exit::NOT_REPRODUCED,
        Grade::Failed => exit::FAILED,
    })
}

fn execute(bound: Bound, times: usize, facts: &Table, context: &Context) -> Result<Vec<Executed>, Failure> {
    let store = context.store_as_it_is();
    let planned = plan(store, vec![(bound, Cause::Repeat(times))])?;
    let watcher = Watcher::new(times);
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
        return Err(Failure::new(exit::INTERRUPTED, "interrupted; what the rerun did is recorded, without a verdict"));
    }
    Ok(report.executed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table_of;

    #[test]
    fn the_trainer_needs_no_trust_and_an_image_does() {
        let asks = |program: Value, image: &str| executed_by(&program, &table_of([("container.image", image.into())]));
        let trainer = || Value::from("trainer");
        let program = || Value::Table(table_of([("command", vec!["sh", "a"].into())]));
        assert_eq!((asks(trainer(), "host"), executed_by(&trainer(), &Table::new())), (None, None));
        assert!(
            asks(trainer(), "/tmp/x.sif")
                .is_some_and(|text| text.starts_with("image") && text.ends_with("`/tmp/x.sif`"))
        );
        assert!(asks(program(), "host").is_some_and(|text| text.contains("[\"sh\", \"a\"]")));
    }
}
