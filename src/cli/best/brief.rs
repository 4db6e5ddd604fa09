//! The question with conditions, answered from what the indexes have of each attempt; records are read of those alone that are shown.

use super::scan::{Asking, Question};
use super::{Asked as Query, DEFAULT, TIMES};
use crate::analysis::{Asked, Configuration, Contender, Measured, newest_run};
use crate::cli::failure::Failure;
use crate::cli::selection::Selected;
use crate::record::{
    Attempt, AttemptId, Direction, GroupId, LeftOut, MetricKind, Names, Replicate, RunId, Value, Why, known_metric,
};
use crate::report::Ranking;
use crate::store::{Brief, Reader, StoreError};
use crate::wire::Known;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// The answer; none where only the records can tell: if what does not count is asked for, a fact or a list, if nothing matches, or if something is
/// wrong with the question.
pub(super) fn by_briefs(
    reader: &Reader<'_>,
    args: &Query<'_>,
    direction: Direction,
) -> Result<Result<Option<Ranking>, Failure>, StoreError> {
    if args.selection.takes_in_more() {
        return Ok(Ok(None));
    }
    let Some(briefs) = reader.briefs(&args.model)? else { return Ok(Ok(None)) };
    // A stated kind is in the record alone.
    if briefs.names().facts.iter().any(|fact| fact.trim_start_matches("worker.").starts_with(Attempt::METRIC_KIND)) {
        return Ok(Ok(None));
    }
    let mut names = Names::known();
    names.add(&briefs.names());
    let (trials, others) = (Vec::new(), Vec::new());
    let selected = Selected { trials, others, names, admitted: BTreeSet::new() };
    let Ok((asking, condition)) =
        Asking::of(args, &selected).and_then(|asking| Ok((asking, args.selection.condition(&selected.names)?)))
    else {
        return Ok(Ok(None));
    };
    let mut fields = condition.fields();
    fields.extend(asking.by.iter().cloned());
    let metrics = TIMES.into_iter().chain([args.metric.as_str()]).map(str::to_owned);
    let metrics = metrics.chain(asking.bounds.iter().map(|bound| bound.metric.clone()));
    let columns = Columns::read(reader, &args.model, fields.into_iter().collect(), metrics.collect())?;
    let rows = briefs.ask(&columns.fields)?;
    if rows.iter().flat_map(|row| &row.values).any(|value| matches!(value, Known::Unsaid)) {
        return Ok(Ok(None));
    }
    let kinds = kinds(reader, &columns, &briefs.ask(&[])?)?;
    let columns = Rc::new(Columns { kinds, ..columns });
    let of_row = |row| BriefTrial { row, columns: Rc::clone(&columns) };
    let (mut trials, mut others): (Vec<_>, Vec<_>) =
        rows.into_iter().map(of_row).partition(|trial| condition.matches(&|name| trial.field(name)));
    briefs.ask_more(trials.iter_mut().map(|trial| &mut trial.row), &columns.metrics)?;
    if is_held_against_any(reader, args)? {
        briefs.ask_more(others.iter_mut().map(|trial| &mut trial.row), &columns.metrics)?;
    }
    if trials.is_empty() {
        return Ok(Ok(None));
    }
    let selected = Selected { trials, others, ..selected };
    let contender = |one: &Configuration<'_, BriefTrial>| contender(reader, args, one);
    let unit = unit(reader, args, &selected.trials)?;
    let question = Question { args, direction, selected: &selected, names: &asking, contender: &contender };
    Ok(question.answer(reader, unit).map(Some))
}

/// Whether a run may be asked about that does not meet the conditions.
fn is_held_against_any(reader: &Reader<'_>, args: &Query<'_>) -> Result<bool, StoreError> {
    Ok(match args.against.as_deref() {
        Some(run) => run != "fastest",
        None => reader.tags()?.contains_key(DEFAULT),
    })
}

/// What is asked of each attempt.
struct Columns {
    fields: Vec<String>,
    metrics: Vec<String>,
    /// What decides each of the metrics.
    kinds: Vec<MetricKind>,
    /// For each of the metrics the attempts that count, but not in it.
    unmeasured: Vec<HashMap<AttemptId, LeftOut>>,
}

impl Columns {
    fn read(
        reader: &Reader<'_>,
        model: &str,
        fields: Vec<String>,
        mut metrics: Vec<String>,
    ) -> Result<Self, StoreError> {
        metrics.sort_unstable();
        metrics.dedup();
        let of_metric = |metric: &String| Ok(reader.unmeasured(model, metric)?.into_iter().collect());
        let unmeasured = metrics.iter().map(of_metric).collect::<Result<_, StoreError>>()?;
        Ok(Self { fields, metrics, kinds: Vec::new(), unmeasured })
    }
}

/// An attempt without its record.
struct BriefTrial {
    row: Brief,
    columns: Rc<Columns>,
}

impl BriefTrial {
    fn value(&self, at: usize) -> Option<Value> {
        match self.row.values.get(at)? {
            Known::Is(value) => Some(value.clone()),
            Known::Nothing | Known::Unsaid => None,
        }
    }

    /// Where a metric is among the columns.
    fn column(&self, metric: &str) -> Option<usize> {
        self.columns.metrics.iter().position(|column| column == metric)
    }

    /// Whether it has such a metric, with or without a value.
    fn has(&self, metric: &str) -> bool {
        let Some(at) = self.column(metric) else { return false };
        let is_unmeasured = self.columns.unmeasured.get(at).is_some_and(|of| of.contains_key(&self.row.id));
        is_unmeasured || self.value(self.columns.fields.len() + at).is_some()
    }
}

impl Asked for BriefTrial {
    fn id(&self) -> AttemptId {
        self.row.id
    }

    fn run_id(&self) -> RunId {
        self.row.run
    }

    fn group(&self) -> GroupId {
        self.row.group
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.value(self.columns.fields.iter().position(|field| field == name)?)
    }

    fn replicate(&self) -> Replicate {
        self.row.replicate
    }

    fn metric_kind(&self, metric: &str) -> MetricKind {
        self.column(metric).and_then(|at| self.columns.kinds.get(at).copied()).unwrap_or(MetricKind::Outcome)
    }

    /// Nothing is admitted here that does not count.
    fn measured(&self, metric: &str, _admitted: &BTreeSet<Why>) -> Result<f64, LeftOut> {
        let absent = || LeftOut { why: Why::Absent, reason: String::new() };
        if let Some(left) = &self.row.left_out {
            return Err(left.clone());
        }
        let at = self.column(metric).ok_or_else(absent)?;
        if let Some(left) = self.columns.unmeasured.get(at).and_then(|of| of.get(&self.row.id)) {
            return Err(left.clone());
        }
        self.value(self.columns.fields.len() + at).and_then(|value| value.as_float()).ok_or_else(absent)
    }
}

/// The configuration as it is shown, with what the records say of its uncertainties.
fn contender(
    reader: &Reader<'_>,
    args: &Query<'_>,
    one: &Configuration<'_, BriefTrial>,
) -> Result<Option<Contender>, StoreError> {
    let nothing = BTreeSet::new();
    let mut measured = Vec::new();
    for trial in &one.trials {
        let Ok(value) = trial.measured(&args.metric, &nothing) else { continue };
        let Some(attempt) = reader.readable(trial.row.id)? else { continue };
        let Some(run) = reader.run(attempt.run)? else { continue };
        measured.push(Measured::of(trial.row.id, &run, &attempt, &args.metric, value));
    }
    let run = newest_run(&measured).map(|run| reader.run(run)).transpose()?.flatten();
    let kind = one.metric_kind(&args.metric, &nothing);
    Ok(run.map(|run| Contender { run, agreed: one.agreed.clone(), kind, measured }))
}

/// What decides each metric: as the table of metrics has it, else as an attempt that counts says.
fn kinds(reader: &Reader<'_>, columns: &Columns, rows: &[Brief]) -> Result<Vec<MetricKind>, StoreError> {
    if columns.metrics.iter().all(|metric| known_metric(metric).is_some()) {
        return Ok(columns
            .metrics
            .iter()
            .filter_map(|metric| known_metric(metric))
            .map(|known| known.kind())
            .collect());
    }
    let mut found = vec![None; columns.metrics.len()];
    for row in rows.iter().filter(|row| row.left_out.is_none()) {
        let Some(attempt) = reader.readable(row.id)? else { continue };
        for (kind, metric) in found.iter_mut().zip(&columns.metrics) {
            if kind.is_none() && (known_metric(metric).is_some() || attempt.metrics.contains_key(metric)) {
                *kind = Some(attempt.metric_kind(metric));
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(found.into_iter().map(|kind| kind.unwrap_or(MetricKind::Outcome)).collect())
}

/// The unit of the metric, as the attempts have it.
fn unit(reader: &Reader<'_>, args: &Query<'_>, trials: &[BriefTrial]) -> Result<String, StoreError> {
    if let Some(known) = known_metric(&args.metric) {
        return Ok(known.unit.to_owned());
    }
    let first = trials.iter().find(|trial| trial.has(&args.metric));
    let attempt = first.map(|trial| reader.readable(trial.row.id)).transpose()?.flatten();
    let unit = attempt.and_then(|attempt| Some(attempt.metrics.get(&args.metric)?.unit.clone()));
    Ok(unit.unwrap_or_default())
}

#[cfg(test)]
mod tests;
