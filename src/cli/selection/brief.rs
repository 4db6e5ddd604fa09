//! Attempts of a model from the indexes; records are read only of those that are shown.

use super::{Condition, Selected, Selection};
use crate::analysis::Asked;
use crate::record::{
    Attempt, AttemptId, Digest, GroupId, LeftOut, MetricKind, Names, Part, Replicate, Run, RunId, Value, ValueKey, Why,
    field, known_metric,
};
use crate::store::{Brief, Briefs, Reader, Store, StoreError};
use crate::wire::Known;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The values that a query needs of each attempt.
pub(in crate::cli) struct Ask {
    /// The full names of fields; those of conditions are added.
    pub(in crate::cli) fields: BTreeSet<String>,
    pub(in crate::cli) metrics: BTreeSet<String>,
    /// Whether the attempts that do not match are needed as well.
    pub(in crate::cli) of_others: bool,
}

/// Returns the attempts that match, and with [`Ask::of_others`] the others. Returns `None` if only the records have the
/// answer: for attempts that do not count, facts, metrics in several units, or if nothing matches. `ask` returns `None`
/// for a wrong query.
pub(in crate::cli) fn select(
    reader: &Reader<'_>,
    store: &Store,
    selection: &Selection,
    model: &str,
    ask: &dyn Fn(&Selected<()>) -> Option<Ask>,
) -> Result<Option<Selected<BriefTrial>>, StoreError> {
    if selection.takes_in_more() || !reader.has_one_unit_each(model)? {
        return Ok(None);
    }
    let Some(briefs) = reader.briefs(model)? else { return Ok(None) };
    let mut names = Names::known();
    names.add(&briefs.names());
    let asking = Selected { trials: Vec::new(), others: Vec::new(), names, admitted: BTreeSet::new() };
    let (Some(ask), Ok(condition)) = (ask(&asking), selection.condition(&asking.names)) else { return Ok(None) };
    let names = asking.names;
    // Only the record contains a stated metric kind.
    let is_stated = |metric: &String| {
        let fact = format!("{}{metric}", Attempt::METRIC_KIND);
        names.facts.contains(&format!("worker.{fact}")) || names.facts.contains(&fact)
    };
    if ask.metrics.iter().any(is_stated) {
        return Ok(None);
    }
    let fields: Vec<String> =
        ask.fields.into_iter().chain(condition.fields()).collect::<BTreeSet<_>>().into_iter().collect();
    let columns = Columns::read(reader, store, model, &fields, ask.metrics.into_iter().collect(), &names)?;
    let Some([trials, others]) = rows(reader, &briefs, &condition, &columns, &fields, ask.of_others, &names)? else {
        return Ok(None);
    };
    let kinds = kinds(reader, &columns, &trials)?;
    let columns = Rc::new(Columns { kinds, ..columns });
    let of_rows = |rows: Vec<Brief>| {
        let of_row = |row| BriefTrial { row, columns: Rc::clone(&columns), record: OnceCell::new() };
        rows.into_iter().map(of_row).collect::<Vec<_>>()
    };
    let (trials, others) = (of_rows(trials), of_rows(others));
    Ok((!trials.is_empty()).then_some(Selected { trials, others, names, admitted: BTreeSet::new() }))
}

/// Returns the attempts that meet a condition and, with `of_others`, the others; those that do not count are last.
/// Returns `None` if only the records have the answer.
fn rows(
    reader: &Reader<'_>,
    briefs: &Briefs,
    condition: &Condition,
    columns: &Columns,
    fields: &[String],
    of_others: bool,
    names: &Names,
) -> Result<Option<[Vec<Brief>; 2]>, StoreError> {
    let tested: Vec<String> = condition.fields().into_iter().collect();
    let (test, complete_test) = (briefs.columns(&tested, &[]), Complete::new(reader, &tested, names));
    let (all, complete_all) = (briefs.columns(fields, &columns.metrics), Complete::new(reader, fields, names));
    let is_all = AtomicBool::new(true);
    let found = briefs.each(|parts: &mut [Vec<Brief>; 2], row| {
        if !is_all.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut values = Vec::new();
        row.read(&test, &mut values)?;
        let mut is_complete = complete_test.one(row.run, &mut values)?;
        let value = |name: &str| match values.get(tested.iter().position(|field| field == name)?)? {
            Known::Is(value) => Some(value.clone()),
            Known::Nothing | Known::Unsaid => None,
        };
        let is_met = condition.matches(&value);
        if is_complete && (is_met || of_others) {
            let mut brief = row.brief(&all)?;
            is_complete = complete_all.one(row.run, &mut brief.values)?;
            parts[usize::from(!is_met)].push(brief);
        }
        if !is_complete {
            is_all.store(false, Ordering::Relaxed);
        }
        Ok(())
    });
    // The records decide then, whether or not another row could be read.
    if !is_all.into_inner() {
        return Ok(None);
    }
    let mut parts = [Vec::new(), Vec::new()];
    for [met, others] in found? {
        parts[0].extend(met);
        parts[1].extend(others);
    }
    parts.iter_mut().for_each(|part| part.sort_by_key(|row| row.standing));
    Ok(Some(parts))
}

/// Reads values of runs from their records if they are too long for the indexes, or lists.
struct Complete<'a> {
    reader: &'a Reader<'a>,
    /// Each field, whether it belongs to the identity, and whether it is a table.
    fields: Vec<(&'a str, bool, bool)>,
}

impl<'a> Complete<'a> {
    fn new(reader: &'a Reader<'a>, fields: &'a [String], names: &Names) -> Self {
        let is_table =
            |part: &str| part.parse::<Part>().is_ok() && names.identity.iter().any(|name| is_within(name, part));
        let of = |name: &'a String| (name.as_str(), names.identity.contains(name), is_table(name));
        Self { reader, fields: fields.iter().map(of).collect() }
    }

    /// Completes the values of an attempt. Returns false if one is only in the attempt's record.
    fn one(&self, of_run: RunId, values: &mut [Known]) -> Result<bool, StoreError> {
        let mut run: Option<Run> = None;
        for ((name, is_of_run, is_table), value) in self.fields.iter().zip(values) {
            if *value != Known::Unsaid {
                continue;
            }
            if !is_of_run {
                return Ok(false);
            }
            // A table has no value of its own; only its fields have.
            let mut known = Known::Nothing;
            if !is_table {
                if run.is_none() {
                    run = self.reader.run(of_run)?;
                }
                let Some(run) = &run else { return Ok(false) };
                known = field(run, None, name).map_or(Known::Nothing, Known::Is);
            }
            *value = known;
        }
        Ok(true)
    }
}

fn is_within(name: &str, part: &str) -> bool {
    name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'))
}

/// The columns that a query reads of each attempt.
struct Columns {
    /// The index of each field among the values of an attempt; metrics follow.
    fields: HashMap<String, usize>,
    /// The indexes of the fields that belong to the configuration.
    of_config: Vec<usize>,
    metrics: Vec<String>,
    /// The kind of each metric.
    kinds: Vec<MetricKind>,
    /// For each metric, the attempts that count except in this metric.
    unmeasured: Vec<HashMap<AttemptId, LeftOut>>,
    store: Store,
}

impl Columns {
    fn read(
        reader: &Reader<'_>,
        store: &Store,
        model: &str,
        fields: &[String],
        metrics: Vec<String>,
        names: &Names,
    ) -> Result<Self, StoreError> {
        let of_metric = |metric: &String| Ok(reader.unmeasured(model, metric)?.into_iter().collect());
        let unmeasured = metrics.iter().map(of_metric).collect::<Result<_, StoreError>>()?;
        let is_part = |name: &str| name.split('.').next().is_some_and(|head| head.parse::<Part>().is_ok());
        let is_of_config = |name: &String| names.identity.contains(name) && !is_part(name);
        Ok(Self {
            fields: fields.iter().cloned().enumerate().map(|(at, name)| (name, at)).collect(),
            of_config: (0..fields.len()).filter(|at| is_of_config(&fields[*at])).collect(),
            metrics,
            kinds: Vec::new(),
            unmeasured,
            store: store.clone(),
        })
    }
}

/// An attempt without its record.
pub(in crate::cli) struct BriefTrial {
    row: Brief,
    columns: Rc<Columns>,
    /// Its run and record, once they have been read.
    record: OnceCell<Option<Box<(Run, Attempt)>>>,
}

impl BriefTrial {
    fn value(&self, at: usize) -> Option<Value> {
        match self.row.values.get(at)? {
            Known::Is(value) => Some(value.clone()),
            Known::Nothing | Known::Unsaid => None,
        }
    }

    /// Returns the index of a metric among the columns.
    fn column(&self, metric: &str) -> Option<usize> {
        self.columns.metrics.iter().position(|column| column == metric)
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

    fn configuration(&self) -> Digest {
        let mut bytes = Vec::with_capacity(512);
        for at in &self.columns.of_config {
            let Some(Known::Is(value)) = self.row.values.get(*at) else { continue };
            let (kind, payload): (u8, Vec<u8>) = match value.clone().into_key() {
                ValueKey::Bool(value) => (0, vec![u8::from(value)]),
                ValueKey::Int(value) => (1, value.to_le_bytes().to_vec()),
                ValueKey::Float(bits) => (2, bits.to_le_bytes().to_vec()),
                ValueKey::Str(text) => (3, text.into_bytes()),
                ValueKey::Other(digest) => (4, digest.0.to_vec()),
            };
            bytes.extend(at.to_le_bytes());
            bytes.extend(payload.len().to_le_bytes());
            bytes.push(kind);
            bytes.extend(payload);
        }
        Digest::of(&bytes)
    }

    fn started_unix_ms(&self) -> i64 {
        self.row.started_unix_ms
    }

    fn record(&self) -> Option<(Cow<'_, Run>, Cow<'_, Attempt>)> {
        let question = |reader: &Reader<'_>| Ok((reader.run(self.row.run)?, reader.readable(self.row.id)?));
        let read = || {
            let (run, attempt) = self.columns.store.read(question).ok()?;
            Some(Box::new((run?, attempt?)))
        };
        let (run, attempt) = &**self.record.get_or_init(read).as_ref()?;
        Some((Cow::Borrowed(run), Cow::Borrowed(attempt)))
    }

    fn each_record(trials: &[&Self], each: &mut dyn FnMut(&Self, &Run, &Attempt)) {
        let Some(first) = trials.first() else { return };
        // Records that do not decode are skipped, as in `record`.
        let _ = first.columns.store.read(|reader| {
            for trial in trials {
                let found = (reader.run(trial.row.run), reader.readable(trial.row.id));
                if let (Ok(Some(run)), Ok(Some(attempt))) = found {
                    each(trial, &run, &attempt);
                }
            }
            Ok(())
        });
    }

    fn unit(&self, metric: &str) -> Option<String> {
        let has = self.has(metric);
        has.then(|| Some(self.record()?.1.metrics.get(metric)?.unit.clone())).flatten()
    }

    fn has(&self, metric: &str) -> bool {
        let Some(at) = self.column(metric) else { return false };
        let is_unmeasured = self.columns.unmeasured.get(at).is_some_and(|of| of.contains_key(&self.row.id));
        is_unmeasured || self.value(self.columns.fields.len() + at).is_some()
    }

    fn is_hidden(&self) -> bool {
        self.row.left_out.as_ref().is_some_and(|left| left.why == Why::Hidden)
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.value(*self.columns.fields.get(name)?)
    }

    fn replicate(&self) -> Replicate {
        self.row.replicate
    }

    fn metric_kind(&self, metric: &str) -> MetricKind {
        self.column(metric).and_then(|at| self.columns.kinds.get(at).copied()).unwrap_or(MetricKind::Outcome)
    }

    /// Attempts that do not count are never admitted here.
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

/// Returns the kind of each metric, as known or else as recorded by an attempt that counts.
fn kinds(reader: &Reader<'_>, columns: &Columns, rows: &[Brief]) -> Result<Vec<MetricKind>, StoreError> {
    let known = |metric: &String| known_metric(metric).map(|known| known.kind());
    let mut found: Vec<Option<MetricKind>> = columns.metrics.iter().map(known).collect();
    for row in rows.iter().filter(|row| row.left_out.is_none()) {
        if found.iter().all(Option::is_some) {
            break;
        }
        let Some(attempt) = reader.readable(row.id)? else { continue };
        for (kind, metric) in found.iter_mut().zip(&columns.metrics) {
            if kind.is_none() && attempt.metrics.contains_key(metric) {
                *kind = Some(attempt.metric_kind(metric));
            }
        }
    }
    Ok(found.into_iter().map(|kind| kind.unwrap_or(MetricKind::Outcome)).collect())
}
