//! The answer of `run`: the runs and their results, the progress of their repetitions, the control run's drift, and the best of each model.

use super::best::{Best, Objectives, best_text, best_value, without_best_value};
use super::{Context, Failure, report, short_ids};
use crate::analysis::{self, Trial};
use crate::cli::failure::with_causes;
use crate::cli::output::say;
use crate::engine::{Canary, Drift, EngineError, Planned, SweepReport, Until};
use crate::record::{Attempt, LeftOut, Outcome, RunId, Table, Value, known_metric};
use crate::report::{Repetition, Summary, repetitions_text, repetitions_value, table_of};
use crate::store::{Reader, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// The ledger's content on the runs of a sweep.
struct Held {
    /// Their attempts and the other attempts of the same configurations, by model.
    trials: BTreeMap<String, Vec<Trial>>,
    best: Vec<Best>,
    /// The precision that runs with a requested interval have reached.
    repetitions: Vec<Repetition>,
    canary: Option<Canary>,
}

/// Prints the answer. Returns the command that ranks the runs of the first model with a best one.
pub(super) fn answer(
    context: &Context,
    store: &Store,
    planned: &[Planned],
    axes: &[String],
    report: &SweepReport,
) -> Result<Option<String>, Failure> {
    if report.troubled.iter().any(|(_, error)| is_of_ledger(error)) {
        say("some runs were not executed or not recorded (repeat the command once the ledger can be read and written)");
    }
    let ids = short_ids(store, planned)?;
    let held = store.read(|reader| held(reader, planned, &ids))?;
    let newest = newest(&held.trials);
    let newest_of = |planned: &Planned| newest.get(&planned.bound.run.id).copied();
    let summaries: Vec<Summary<'_>> = planned
        .iter()
        .zip(&ids)
        .map(|(planned, id)| (id.clone(), &planned.bound.cell, newest_of(planned).map(|trial| &trial.attempt)))
        .collect();
    let text = || {
        let mut text = report::summary_text(&summaries, axes);
        text.push_str(&repetitions_text(&held.repetitions));
        text.extend(held.canary.as_ref().map(canary_text));
        let is_finished = |run: RunId| newest.get(&run).is_some_and(|trial| trial.attempt.outcome == Outcome::Finished);
        text.push_str(&best_text(&held.best, planned, axes, is_finished));
        text
    };
    let members = || {
        let runs = planned.iter().map(|planned| {
            let mut table = table_of([("run", planned.bound.run.id.to_string().into())]);
            if let Some(Trial { id, attempt, .. }) = newest_of(planned) {
                table.insert("attempt".to_owned(), id.to_string().into());
                table.insert("outcome".to_owned(), attempt.outcome.name().into());
                table.extend(
                    attempt.facts.get_key_value(Attempt::VALIDITY).map(|(name, stamp)| (name.clone(), stamp.clone())),
                );
                let taints = attempt.all_taints();
                table.extend((!taints.is_empty()).then(|| ("tainted".to_owned(), taints.into())));
            }
            Value::Table(table)
        });
        table_of([
            ("executed", report.executed.len().into()),
            ("interrupted", report.interrupted.into()),
            ("trouble", trouble_value(report)),
            ("runs", Value::List(runs.collect())),
            ("repetitions", repetitions_value(&held.repetitions)),
            ("best", best_value(&held.best)),
            ("without_best", without_best_value(&held.best)),
            ("drift", held.canary.as_ref().map_or_else(|| Value::Table(Table::new()), canary_value)),
        ])
    };
    context.answer(text, members)?;
    let out_of_memory = planned.iter().filter(|planned| planned.out_of_memory.is_some()).count();
    if out_of_memory > 0 {
        let runs = report::count(out_of_memory, "run");
        say(&format!("not executed again: {runs} that ran out of GPU memory (--retry-oom executes them)"));
    }
    let sealed_before = planned.iter().filter(|planned| planned.missing == 0).count() - out_of_memory;
    if sealed_before > 0 {
        let runs = report::count(sealed_before, "run");
        say(&format!("{runs} sealed before and not executed again (--repeat 1 executes each once more)"));
    }
    if report.interrupted {
        say("interrupted; repeat the command to continue (the interrupted run starts from its beginning)");
    }
    Ok(held.best.iter().find_map(Best::command))
}

/// Whether the ledger prevented a run from being executed or recorded.
fn is_of_ledger(error: &EngineError) -> bool {
    matches!(error, EngineError::Store(_) | EngineError::Journal(_) | EngineError::Unsealed { .. })
}

/// Returns the reasons why runs were not executed or recorded. Each reason of a run appears once.
fn trouble_value(report: &SweepReport) -> Value {
    let troubled = report.troubled.iter().map(|(run, error)| (run, with_causes(error)));
    let untried = report.untried.iter().map(|(run, why)| (run, format!("not tried, since {why}")));
    let reasons: BTreeSet<(&RunId, String)> = troubled.chain(untried).collect();
    let item = |(run, why): (&RunId, String)| {
        Value::Table(table_of([("run", run.to_string().into()), ("reason", why.into())]))
    };
    Value::List(reasons.into_iter().map(item).collect())
}

fn held(reader: &Reader<'_>, planned: &[Planned], ids: &[String]) -> Result<Held, StoreError> {
    let objectives = Objectives::of(planned);
    let mut trials = trials(reader, planned, &objectives)?;
    // `ledger best` does the same.
    analysis::unify_by_model(trials.values_mut().flatten());
    let best = objectives.best(reader, &trials)?;
    let mut repetitions = Vec::new();
    for (planned, id) in planned.iter().zip(ids) {
        let Some(until) = Until::of(&planned.bound) else { continue };
        let standing = until.standing(reader, &planned.bound)?;
        repetitions.push(Repetition {
            run: planned.bound.run.id,
            id: id.clone(),
            metric: until.metric.clone(),
            estimate: standing.estimate,
            share: until.share,
            is_met: standing.is_met,
            unit: standing.unit.or_else(|| unit_of(&until.metric)).unwrap_or_default(),
            spent: standing.spent,
            canaries: standing.canaries,
            max: until.max,
            left_out: standing.left_out,
            beside: standing.beside,
        });
    }
    let canary = planned.first().map(|first| Canary::look(reader, &first.bound)).transpose()?.flatten();
    Ok(Held { trials, best, repetitions, canary })
}

/// Returns the attempts of the planned runs and the other attempts of the same configurations, by model.
fn trials(
    reader: &Reader<'_>,
    planned: &[Planned],
    objectives: &Objectives,
) -> Result<BTreeMap<String, Vec<Trial>>, StoreError> {
    let hidden = reader.hidden()?;
    let mut ids = BTreeSet::new();
    for planned in planned {
        ids.extend(reader.attempts_of(planned.bound.run.id)?.into_iter().map(|(id, _)| id));
    }
    ids.extend(objectives.siblings(reader, planned)?);
    let mut found: BTreeMap<String, Vec<Trial>> = BTreeMap::new();
    for id in ids {
        let Some(attempt) = reader.readable(id)? else { continue };
        let Some(run) = reader.run(attempt.run)? else { continue };
        let is_hidden = hidden.contains(&id.0) || hidden.contains(&run.id.0);
        found.entry(run.model().to_owned()).or_default().push(Trial { id, run, attempt, is_hidden });
    }
    Ok(found)
}

/// Returns the unit of a known metric.
pub(super) fn unit_of(metric: &str) -> Option<String> {
    known_metric(metric).map(|known| known.unit.to_owned())
}

/// Returns the newest finished attempt of each run, or its newest if none finished.
fn newest(trials: &BTreeMap<String, Vec<Trial>>) -> BTreeMap<RunId, &Trial> {
    let key = |trial: &Trial| (trial.attempt.outcome == Outcome::Finished, trial.attempt.started_unix_ms, trial.id);
    let mut found: BTreeMap<RunId, &Trial> = BTreeMap::new();
    for trial in trials.values().flatten() {
        let newest = found.entry(trial.run.id).or_insert(trial);
        if key(trial) > key(newest) {
            *newest = trial;
        }
    }
    found
}

/// Describes the drift of the control run in one line.
fn canary_text(canary: &Canary) -> String {
    match canary {
        Canary::Told(Drift { metric, attempts, share, p }) => {
            let p = p.map_or_else(|| "too few for a test".to_owned(), |p| format!("p {}", report::significant(p)));
            let share = report::percent(*share);
            format!(
                "canary: {metric} changed by {share} from the first to the last of {} ({p})\n",
                report::count(*attempts, "attempt")
            )
        }
        Canary::Silent { attempts, counted, why } => {
            let counted = if *counted == 0 { "none".to_owned() } else { counted.to_string() };
            let why = why.as_ref().map_or_else(String::new, |why| format!(" ({})", words(why)));
            format!(
                "canary: {counted} of its {} counts, so drift is unknown{why}\n",
                report::count(*attempts, "attempt")
            )
        }
    }
}

/// Returns the reason why an attempt is left out: `tainted: hot start`.
fn words(left: &LeftOut) -> String {
    if left.reason.is_empty() { left.why.name().to_owned() } else { format!("{}: {}", left.why.name(), left.reason) }
}

fn canary_value(canary: &Canary) -> Value {
    let mut table = Table::new();
    match canary {
        Canary::Told(drift) => {
            table.extend(table_of([
                ("metric", drift.metric.into()),
                ("attempts", drift.attempts.into()),
                ("share", drift.share.into()),
            ]));
            table.extend(drift.p.map(|p| ("p".to_owned(), p.into())));
        }
        Canary::Silent { attempts, counted, why } => {
            table.extend(table_of([("attempts", (*attempts).into()), ("counted", (*counted).into())]));
            table.extend(why.as_ref().map(|why| ("reason".to_owned(), words(why).into())));
        }
    }
    table.into()
}
