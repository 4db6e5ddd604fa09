//! The answer to `run`: the runs and what came out, how far their repetitions came, what the canary says, and the best of each model.

use super::{Context, Failure, report, short_ids};
use crate::analysis::{self, Trial, configurations, count_left_out};
use crate::cli::context::say;
use crate::engine::{Canary, Drift, Planned, SweepReport, Until};
use crate::manifest::{Manifest, Objective};
use crate::record::{Attempt, Direction, LeftOut, RunId, Table, Value, Why, known_metric};
use crate::report::{Repetition, Summary, repetitions_text, repetitions_value, table_of};
use crate::store::{Reader, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// What the ledger holds of a run.
struct OfRun {
    /// Its newest finished attempt, or its newest if none finished.
    newest: Option<Trial>,
    /// For each metric that may say which run is best: its values together, and which attempts do not count in it.
    judged: Vec<(Option<analysis::Summary>, BTreeMap<LeftOut, u64>)>,
}

/// What the ledger holds of the runs of a sweep.
struct Held {
    runs: Vec<OfRun>,
    /// What the repetitions of a run that asks for an interval have come to.
    repetitions: Vec<Repetition>,
    canary: Option<Canary>,
}

pub(super) fn answer(
    context: &Context,
    store: &Store,
    planned: &[Planned],
    axes: &[String],
    manifests: &[Manifest],
    report: &SweepReport,
) -> Result<(), Failure> {
    let ids = short_ids(store, planned)?;
    let deciding = deciding(manifests.iter().find_map(|manifest| manifest.objective.as_ref()));
    let held = store.read(|reader| held(reader, planned, &ids, &deciding))?;
    let newest: Vec<Option<&Trial>> = held.runs.iter().map(|run| run.newest.as_ref()).collect();
    let summaries: Vec<Summary<'_>> = planned
        .iter()
        .zip(&ids)
        .zip(&newest)
        .map(|((planned, id), newest)| (id.clone(), &planned.bound.cell, newest.map(|trial| &trial.attempt)))
        .collect();
    let best = best_of_each(planned, &held.runs, &deciding);
    let text = || {
        let mut text = report::summary_text(&summaries, axes);
        text.push_str(&repetitions_text(&held.repetitions));
        text.extend(held.canary.as_ref().map(canary_text));
        best.iter().for_each(|best| text.push_str(&best_text(best, &ids)));
        text
    };
    let members = || {
        let runs = planned.iter().zip(&newest).map(|(planned, newest)| {
            let mut table = table_of([("run", planned.bound.run.id.to_string().into())]);
            if let Some(Trial { id, attempt, .. }) = newest {
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
            ("best", Value::List(best.iter().filter_map(|best| best_value(best, planned)).collect())),
            ("drift", held.canary.as_ref().map_or_else(|| Value::Table(Table::new()), canary_value)),
        ])
    };
    context.answer(text, members)?;
    let sealed_before = planned.iter().filter(|planned| planned.missing == 0).count();
    if sealed_before > 0 {
        say(&format!("{} sealed before and not executed again", report::count(sealed_before, "run")));
    }
    if report.interrupted {
        say("interrupted; the same command executes what is missing (a run that was under way begins anew)");
    }
    Ok(())
}

/// Why runs were not executed, or not kept: each reason of a run once.
fn trouble_value(report: &SweepReport) -> Value {
    let troubled = report.troubled.iter().map(|(run, error)| (run, error.to_string()));
    let untried = report.untried.iter().map(|(run, why)| (run, format!("not tried, since {why}")));
    let reasons: BTreeSet<(&RunId, String)> = troubled.chain(untried).collect();
    let item = |(run, why): (&RunId, String)| {
        Value::Table(table_of([("run", run.to_string().into()), ("reason", why.into())]))
    };
    Value::List(reasons.into_iter().map(item).collect())
}

/// What says without an objective which run is the best, the first that a run has. The loss comes last: it is of the training, and that of a `dqn` is small where nothing was
/// learned.
const USUAL: [&str; 5] = ["accuracy", "mean_return", "perplexity", "eval_loss", "loss"];

/// The metrics by which a run may be the best of its model, and which way they are better: the objective, then the usual ones.
fn deciding(objective: Option<&Objective>) -> Vec<(String, Direction)> {
    let stated = objective.map(|objective| (objective.metric.clone(), objective.direction));
    let known = |name: &str| known_metric(name).map(|metric| (name.to_owned(), metric.direction));
    stated.into_iter().chain(USUAL.into_iter().filter_map(known)).collect()
}

fn held(
    reader: &Reader<'_>,
    planned: &[Planned],
    ids: &[String],
    deciding: &[(String, Direction)],
) -> Result<Held, StoreError> {
    let (hidden, nothing) = (reader.hidden()?, BTreeSet::new());
    let (mut runs, mut repetitions) = (Vec::new(), Vec::new());
    let mut all = Vec::with_capacity(planned.len());
    for planned in planned {
        let run = &planned.bound.run;
        let mut trials = Vec::new();
        for (id, _) in reader.attempts_of(run.id)? {
            let Some(attempt) = reader.readable(id)? else { continue };
            let is_hidden = hidden.contains(&id.0) || hidden.contains(&run.id.0);
            trials.push(Trial { id, run: run.clone(), attempt, is_hidden });
        }
        all.push(trials);
    }
    // As `ledger best` has it.
    let flat: Vec<&mut Trial> = all.iter_mut().flatten().collect();
    analysis::unify_by_model(flat);
    for ((planned, id), trials) in planned.iter().zip(ids).zip(all) {
        let run = &planned.bound.run;
        let judge = |(metric, _): &(String, Direction)| {
            let values = configurations(&trials, &[]).pop().map(|one| one.values(metric, &nothing)).unwrap_or_default();
            (analysis::Summary::of(&values), count_left_out(&trials, metric, &nothing).1)
        };
        let judged = deciding.iter().map(judge).collect();
        runs.push(OfRun { newest: newest(trials), judged });
        if let Some(until) = Until::of(&planned.bound) {
            let standing = until.standing(reader, &planned.bound)?;
            repetitions.push(Repetition {
                run: run.id,
                id: id.clone(),
                metric: until.metric.clone(),
                summary: standing.summary,
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
    }
    let canary = planned.first().map(|first| Canary::look(reader, &first.bound)).transpose()?.flatten();
    Ok(Held { runs, repetitions, canary })
}

/// The unit of a metric that every run records.
fn unit_of(metric: &str) -> Option<String> {
    known_metric(metric).map(|known| known.unit.to_owned())
}

fn newest(trials: Vec<Trial>) -> Option<Trial> {
    let finished = |trial: &Trial| trial.attempt.outcome.name() == "finished";
    trials.into_iter().max_by_key(|trial| (finished(trial), trial.attempt.started_unix_ms, trial.id))
}

/// What the canary's attempts say, in a line.
fn canary_text(canary: &Canary) -> String {
    match canary {
        Canary::Told(Drift { metric, attempts, share, p }) => {
            let p =
                p.map_or_else(|| "too few to tell from chance".to_owned(), |p| format!("p {}", report::significant(p)));
            let share = report::percent(*share);
            format!(
                "canary: {metric} went {share} from its first to its last of {} ({p})\n",
                report::count(*attempts, "attempt")
            )
        }
        Canary::Silent { attempts, counted, why } => {
            let counted = if *counted == 0 { "none".to_owned() } else { counted.to_string() };
            let why = why.as_ref().map_or_else(String::new, |why| format!(" ({})", words(why)));
            format!(
                "canary: {counted} of its {} counts, so that nothing is known of drift{why}\n",
                report::count(*attempts, "attempt")
            )
        }
    }
}

/// Why something is left out: `tainted: hot start`.
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

/// The best run of a model.
struct Best {
    model: String,
    metric: String,
    unit: String,
    /// Which run, and its values together; else how many attempts are tainted, and why one is.
    found: Result<(usize, analysis::Summary), (u64, String)>,
}

/// For each model the best run by the first of the metrics that any of its attempts has: by the mean over those that count, as `ledger best`
/// has it.
fn best_of_each(planned: &[Planned], runs: &[OfRun], deciding: &[(String, Direction)]) -> Vec<Best> {
    let models: BTreeSet<&str> = planned.iter().map(|planned| planned.bound.run.model()).collect();
    let mut found = Vec::new();
    for model in models {
        let own = || runs.iter().enumerate().filter(|(at, _)| planned[*at].bound.run.model() == model);
        let by = |nth: usize, direction: Direction| {
            let means = own().filter_map(|(at, run)| Some((at, run.judged[nth].0?)));
            means.reduce(|best, next| {
                let better = match direction {
                    Direction::Minimize => next.1.mean < best.1.mean,
                    Direction::Maximize => next.1.mean > best.1.mean,
                };
                if better { next } else { best }
            })
        };
        let tainted = |nth: usize| {
            let all = || own().flat_map(|(_, run)| &run.judged[nth].1).filter(|(left, _)| left.why == Why::Tainted);
            let (first, _) = all().next()?;
            Some((all().map(|(_, count)| count).sum(), first.reason.clone()))
        };
        for (nth, (metric, direction)) in deciding.iter().enumerate() {
            // Another metric would hide that nothing is known of this one.
            let best = by(nth, *direction).map(Ok).or_else(|| tainted(nth).map(Err));
            if let Some(best) = best {
                let recorded = |run: &OfRun| Some(run.newest.as_ref()?.attempt.metrics.get(metric)?.unit.clone());
                let unit = own().find_map(|(_, run)| recorded(run)).or_else(|| unit_of(metric)).unwrap_or_default();
                found.push(Best { model: model.to_owned(), metric: metric.clone(), unit, found: best });
                break;
            }
        }
    }
    found
}

fn best_text(best: &Best, ids: &[String]) -> String {
    let Best { model, metric, unit, found } = best;
    match found {
        Ok((at, summary)) => {
            let mean = report::mean_text(summary.mean, summary.half_width(), unit);
            let of = if summary.n > 1 { format!(", the mean of {}", summary.n) } else { String::new() };
            format!("best {model}: {} with {metric} {mean}{of}\n", ids[*at])
        }
        Err((count, reason)) => {
            let count = report::count(usize::try_from(*count).unwrap_or(usize::MAX), "attempt");
            format!("best {model}: none, since no `{metric}` counts: {count} tainted, such as by {reason}\n")
        }
    }
}

fn best_value(best: &Best, planned: &[Planned]) -> Option<Value> {
    let (at, summary) = best.found.as_ref().ok()?;
    let mut table = table_of([
        ("model", best.model.as_str().into()),
        ("metric", best.metric.as_str().into()),
        ("run", planned[*at].bound.run.id.to_string().into()),
        ("value", summary.mean.into()),
        ("n", summary.n.into()),
    ]);
    table.extend(summary.half_width().map(|half_width| ("half_width".to_owned(), half_width.into())));
    Some(table.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objective_decides_before_what_is_usual() {
        let said = |objective: Option<&Objective>| {
            let name = |(name, direction): (String, Direction)| format!("{name} {direction:?}");
            deciding(objective).into_iter().map(name).collect::<Vec<_>>()
        };
        let usual =
            ["accuracy Maximize", "mean_return Maximize", "perplexity Minimize", "eval_loss Minimize", "loss Minimize"];
        assert_eq!(said(None), usual);
        let objective = Objective { metric: "cost".to_owned(), direction: Direction::Minimize };
        assert_eq!(said(Some(&objective)), [&["cost Minimize"], &usual[..]].concat());
    }
}
