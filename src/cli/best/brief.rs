//! Answers a query with conditions from the indexes; only the records of configurations that are shown are read.

use super::scan::{Asking, Question};
use super::{Asked as Query, DEFAULT, speed};
use crate::analysis::{Asked, Configuration, Contender, Measured, newest_run};
use crate::cli::failure::Failure;
use crate::cli::selection::{Ask, BriefTrial, Selected, select_briefs};
use crate::record::{Direction, known_metric};
use crate::report::Ranking;
use crate::store::{Reader, Store, StoreError};
use std::collections::BTreeSet;

/// Returns the ranking. Returns `None` if only the records have the answer: see [`select_briefs`].
pub(super) fn by_briefs(
    reader: &Reader<'_>,
    store: &Store,
    args: &Query<'_>,
    direction: Direction,
) -> Result<Result<Option<Ranking>, Failure>, StoreError> {
    let of_others = is_held_against_any(reader, args)?;
    let ask = |names: &Selected<()>| {
        let asking = Asking::of(args, names).ok()?;
        let metrics = speed::all().map(str::to_owned).chain([args.metric.clone()]);
        let metrics = metrics.chain(asking.bounds.iter().map(|bound| bound.metric.clone()));
        Some(Ask { fields: asking.by.iter().cloned().collect(), metrics: metrics.collect(), of_others })
    };
    let Some(selected) = select_briefs(reader, store, &args.selection, &args.model, &ask)? else { return Ok(Ok(None)) };
    let asking = match Asking::of(args, &selected) {
        Ok(asking) => asking,
        Err(failure) => return Ok(Err(failure)),
    };
    let contender = |one: &Configuration<'_, BriefTrial>| contender(reader, args, one);
    let unit = unit(reader, args, &selected.trials)?;
    let question = Question { args, direction, selected: &selected, names: &asking, contender: &contender };
    Ok(question.answer(reader, unit).map(Some))
}

/// Whether the best may be compared with a run that does not meet the conditions.
fn is_held_against_any(reader: &Reader<'_>, args: &Query<'_>) -> Result<bool, StoreError> {
    Ok(match args.against.as_deref() {
        Some(run) => run != "fastest",
        None => reader.tags()?.contains_key(DEFAULT),
    })
}

/// Returns the configuration to show, with the uncertainties from the records.
fn contender(
    reader: &Reader<'_>,
    args: &Query<'_>,
    one: &Configuration<'_, BriefTrial>,
) -> Result<Option<Contender>, StoreError> {
    let nothing = BTreeSet::new();
    let mut measured = Vec::new();
    for trial in &one.trials {
        let Ok(value) = trial.measured(&args.metric, &nothing) else { continue };
        let Some(attempt) = reader.readable(trial.id())? else { continue };
        let Some(run) = reader.run(attempt.run)? else { continue };
        measured.push(Measured::of(trial.id(), &run, &attempt, &args.metric, value));
    }
    let run = newest_run(&measured).map(|run| reader.run(run)).transpose()?.flatten();
    let kind = one.metric_kind(&args.metric, &nothing);
    Ok(run.map(|run| Contender { run, agreed: one.agreed.clone(), kind, measured }))
}

/// Returns the metric's unit, as known or as recorded by the attempts.
fn unit(reader: &Reader<'_>, args: &Query<'_>, trials: &[BriefTrial]) -> Result<String, StoreError> {
    if let Some(known) = known_metric(&args.metric) {
        return Ok(known.unit.to_owned());
    }
    let first = trials.iter().find(|trial| trial.has(&args.metric));
    let attempt = first.map(|trial| reader.readable(trial.id())).transpose()?.flatten();
    let unit = attempt.and_then(|attempt| Some(attempt.metrics.get(&args.metric)?.unit.clone()));
    Ok(unit.unwrap_or_default())
}

#[cfg(test)]
mod tests;
