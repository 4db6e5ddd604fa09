//! The rows of `ls`: selection, order and columns.

use super::Args;
use crate::analysis::expr::{Expr, full_name};
use crate::analysis::{Trial, names, unify_by_model};
use crate::cli::failure::{Failure, exit};
use crate::cli::selection::decoded;
use crate::record::{AttemptId, Names, Row, Value};
use crate::store::{Reader, StoreError};
use crate::wire::Known;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

/// The rows that are shown, and how many there are in all.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) matching: u64,
    /// The full names of the columns that were asked for.
    pub(super) columns: Vec<String>,
}

/// The sort key of a listing.
enum Key {
    /// A column that every row has.
    OfRow(fn(&Row) -> Value),
    /// A field or a metric, by its full name.
    Field(String),
}

impl Key {
    /// `started`, `time` and so on, as the listing has them; everything else is a field or a metric.
    fn named(name: &str, names: &Names) -> Result<Self, Failure> {
        let of_row: fn(&Row) -> Value = match name {
            "started" => |row| row.started_unix_ms.into(),
            "time" => |row| row.wall_ns.into(),
            "experiment" => |row| row.experiment.as_str().into(),
            "model" => |row| row.model.as_str().into(),
            "outcome" => |row| row.outcome.as_str().into(),
            _ => return Ok(Self::Field(full(name, names, "--sort")?)),
        };
        Ok(Self::OfRow(of_row))
    }
}

fn full(name: &str, names: &Names, argument: &str) -> Result<String, Failure> {
    full_name(name, &names.tiers()).map_err(|error| Failure::new(exit::USAGE, format!("{argument}: {error}")))
}

/// Selects, sorts and cuts the listing.
pub(super) fn read(reader: &Reader<'_>, args: &Args) -> Result<Result<Rows, Failure>, StoreError> {
    let needs_names = args.condition.is_some() || args.sort.is_some() || !args.columns.is_empty();
    let of_records = || Ok::<_, StoreError>(names(&decoded(reader, &reader.of_model(None)?, &BTreeSet::new())?));
    let names = if needs_names { reader.names()?.map_or_else(of_records, Ok)? } else { Names::default() };
    match Asking::new(args, &names) {
        Ok(asking) => asking.rows(reader, args),
        Err(failure) => Ok(Err(failure)),
    }
}

struct Asking {
    condition: Option<Expr>,
    /// The sort key, and whether the largest comes first.
    sort: Option<(Key, bool)>,
    columns: Vec<String>,
}

impl Asking {
    fn new(args: &Args, names: &Names) -> Result<Self, Failure> {
        let parse = |text: &String| {
            Expr::parse_in(text, &names.tiers()).map_err(|error| Failure::new(exit::USAGE, format!("--where: {error}")))
        };
        let key = |text: &String| {
            let (name, is_descending) = text.strip_prefix('-').map_or((text.as_str(), false), |name| (name, true));
            Ok::<_, Failure>((Key::named(name, names)?, is_descending))
        };
        Ok(Self {
            condition: args.condition.as_ref().map(parse).transpose()?,
            // The newest first is how rows are read.
            sort: args.sort.as_ref().filter(|text| *text != "-started").map(key).transpose()?,
            columns: args.columns.iter().map(|name| full(name, names, "--columns")).collect::<Result<_, _>>()?,
        })
    }

    fn rows(self, reader: &Reader<'_>, args: &Args) -> Result<Result<Rows, Failure>, StoreError> {
        let fields: BTreeSet<&str> = self.condition.iter().flat_map(Expr::fields).chain(self.sort_field()).collect();
        let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
        let values = match values(reader, args.model.as_deref(), &fields)? {
            _ if fields.is_empty() => None,
            values => Some(values),
        };
        let value = |id: AttemptId, name: &str| -> Option<Value> {
            let at = fields.iter().position(|field| field == name)?;
            values.as_ref()?.get(&id)?.get(at).cloned().flatten()
        };
        if let (Some(condition), Some(values)) = (&self.condition, &values)
            && !values.keys().any(|id| condition.matches(&|name| value(*id, name)))
            && let Some(error) = values.keys().find_map(|id| condition.check(&|name| value(*id, name)).err())
        {
            return Ok(Err(Failure::new(exit::USAGE, format!("--where: {error}"))));
        }
        let is_meant = |row: &Row| {
            let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
            is(&args.model, &row.model)
                && is(&args.experiment, &row.experiment)
                && is(&args.outcome, &row.outcome)
                && self.condition.as_ref().is_none_or(|expr| expr.matches(&|name| value(row.attempt, name)))
        };
        let most = if args.all { usize::MAX } else { args.n };
        let is_all = args.model.is_none() && args.experiment.is_none() && args.outcome.is_none();
        let is_cut = self.sort.is_none() && self.condition.is_none() && is_all;
        // Without a condition those that are shown are read and no others.
        let (skip, limit) = if is_cut { (args.skip, most) } else { (0, usize::MAX) };
        let mut rows: Vec<Row> = reader.recent(skip, limit, args.hidden)?.into_iter().filter(is_meant).collect();
        if let Some((key, is_descending)) = &self.sort {
            let of = |row: &Row| match key {
                Key::OfRow(of) => Some(of(row)),
                Key::Field(name) => value(row.attempt, name),
            };
            sort(&mut rows, of, *is_descending);
        }
        let hidden = if args.hidden { 0 } else { reader.hidden_attempts()?.len() as u64 };
        let matching = if is_cut { reader.attempt_count()?.saturating_sub(hidden) } else { rows.len() as u64 };
        rows.drain(..(args.skip - skip).min(rows.len()));
        rows.truncate(most);
        Ok(Ok(Rows { rows, matching, columns: self.columns }))
    }

    fn sort_field(&self) -> Option<&str> {
        match &self.sort {
            Some((Key::Field(name), _)) => Some(name),
            _ => None,
        }
    }
}

/// Sorts by a value; rows without one come last, and equal ones stay in their order.
fn sort(rows: &mut Vec<Row>, of: impl Fn(&Row) -> Option<Value>, is_descending: bool) {
    let (mut with, without): (Vec<_>, Vec<_>) =
        rows.drain(..).map(|row| (of(&row), row)).partition(|(value, _)| value.is_some());
    with.sort_by(|(a, _), (b, _)| {
        let order = a.as_ref().zip(b.as_ref()).map_or(Ordering::Equal, |(a, b)| compared(a, b));
        if is_descending { order.reverse() } else { order }
    });
    rows.extend(with.into_iter().chain(without).map(|(_, row)| row));
}

/// Numbers before texts, numbers by size, texts by their letters.
fn compared(a: &Value, b: &Value) -> Ordering {
    match (a.as_float(), b.as_float()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.to_string().cmp(&b.to_string()),
    }
}

type Values = HashMap<AttemptId, Vec<Option<Value>>>;

/// The values of these fields, of each attempt: from the indexes, or from the record where the indexes do not have them.
fn values(reader: &Reader<'_>, model: Option<&str>, fields: &[String]) -> Result<Values, StoreError> {
    let mut found = Values::new();
    if fields.is_empty() {
        return Ok(found);
    }
    let models = model.map_or_else(|| reader.models(), |model| Ok(vec![model.to_owned()]))?;
    for model in models {
        let briefs = if reader.has_one_unit_each(&model)? { reader.briefs(&model)? } else { None };
        let mut unsaid = Vec::new();
        match briefs {
            Some(briefs) => {
                let (columns, mut values) = (briefs.columns(fields, &[]), Vec::new());
                briefs.each(|row| {
                    row.read(&columns, &mut values)?;
                    let known = |known: &mut Known| match std::mem::replace(known, Known::Nothing) {
                        Known::Is(value) => Ok(Some(value)),
                        Known::Nothing => Ok(None),
                        Known::Unsaid => Err(()),
                    };
                    match values.iter_mut().map(known).collect() {
                        Ok(values) => drop(found.insert(row.id, values)),
                        Err(()) => unsaid.push(row.id),
                    }
                    Ok(())
                })?;
            }
            None => unsaid = reader.of_model(Some(&model))?,
        }
        let mut trials = decoded(reader, &unsaid, &BTreeSet::new())?;
        unify_by_model(&mut trials);
        let of = |trial: &Trial| fields.iter().map(|name| trial.field(name)).collect();
        found.extend(trials.iter().map(|trial| (trial.id, of(trial))));
    }
    Ok(found)
}

/// The values of the columns of the rows that are shown, in the order of the rows.
pub(super) fn columns(reader: &Reader<'_>, rows: &Rows) -> Result<Vec<Vec<Option<Value>>>, StoreError> {
    if rows.columns.is_empty() {
        return Ok(vec![Vec::new(); rows.rows.len()]);
    }
    let ids: Vec<AttemptId> = rows.rows.iter().map(|row| row.attempt).collect();
    let trials = decoded(reader, &ids, &BTreeSet::new())?;
    let of: HashMap<AttemptId, &Trial> = trials.iter().map(|trial| (trial.id, trial)).collect();
    let value = |id: &AttemptId, name: &String| of.get(id).and_then(|trial| trial.field(name));
    Ok(ids.iter().map(|id| rows.columns.iter().map(|name| value(id, name)).collect()).collect())
}
