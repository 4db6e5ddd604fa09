//! The rows of `ls`: selection, order and columns.

use super::{Args, TAINTED};
use crate::analysis::expr::{Expr, ExprError, full_name};
use crate::analysis::{Trial, names, unify_by_model};
use crate::cli::failure::{Failure, exit};
use crate::cli::selection::{decoded, no_match};
use crate::record::{AttemptId, Names, Row, Value};
use crate::store::{Reader, StoreError};
use crate::wire::Known;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

/// The rows that are shown, and the number of all matching rows.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) matching: u64,
    /// Why no attempt meets the condition, if none does.
    pub(super) unmet: Option<Failure>,
    /// The full names of the columns that are asked for.
    pub(super) columns: Vec<String>,
}

/// The sort key of a listing.
enum Key {
    /// A column of every row.
    OfRow(fn(&Row) -> Value),
    /// A field or a metric, by its full name.
    Field(String),
}

impl Key {
    /// Returns the key for a name: a column of the listing (`started`, `time`, …), or else a field or a metric.
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
    /// The sort key, and whether the order is descending.
    sort: Option<(Key, bool)>,
    columns: Vec<String>,
}

impl Asking {
    fn new(args: &Args, names: &Names) -> Result<Self, Failure> {
        let parse = |text: &String| {
            Expr::parse_in(text, &names.tiers()).map_err(|error| {
                let hint = if text.contains(TAINTED) { "\nTainted attempts: --outcome tainted" } else { "" };
                Failure::new(exit::USAGE, format!("--where: {error}{hint}"))
            })
        };
        let key = |text: &String| {
            let (name, is_descending) = text.strip_prefix('-').map_or((text.as_str(), false), |name| (name, true));
            Ok::<_, Failure>((Key::named(name, names)?, is_descending))
        };
        Ok(Self {
            condition: args.condition.as_ref().map(parse).transpose()?,
            // Rows are read with the newest first.
            sort: args.sort.as_ref().filter(|text| *text != "-started").map(key).transpose()?,
            columns: args.columns.iter().map(|name| full(name, names, "--columns")).collect::<Result<_, _>>()?,
        })
    }

    fn rows(self, reader: &Reader<'_>, args: &Args) -> Result<Result<Rows, Failure>, StoreError> {
        let most = if args.all { usize::MAX } else { args.n };
        let is_meant = |row: &Row| {
            let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
            if !is(&args.model, &row.model) || !is(&args.experiment, &row.experiment) {
                return Ok(false);
            }
            Ok::<_, StoreError>(match args.outcome.as_deref() {
                // Older indexes do not have this.
                Some(TAINTED) if !reader.is_current() => {
                    reader.readable(row.attempt)?.is_some_and(|attempt| !attempt.all_taints().is_empty())
                }
                Some(TAINTED) => reader.is_tainted(row)?,
                _ => is(&args.outcome, &row.outcome),
            })
        };
        let is_any = args.model.is_none() && args.experiment.is_none() && args.outcome.is_none();
        if self.condition.is_none() && self.sort.is_none() && is_any {
            // Only the rows that are shown are read.
            let rows = reader.recent(args.skip, most, args.hidden)?;
            let hidden = if args.hidden { 0 } else { reader.hidden_attempts()?.len() as u64 };
            let matching = reader.attempt_count()?.saturating_sub(hidden);
            return Ok(Ok(Rows { rows, matching, unmet: None, columns: self.columns }));
        }
        let hidden = if args.hidden { BTreeSet::new() } else { reader.hidden_attempts()? };
        let needs_values = self.condition.is_some() || self.sort_field().is_some();
        let mut listed = if needs_values {
            match self.matching(reader, args)? {
                Ok(matching) => matching,
                Err(failure) => return Ok(Err(failure)),
            }
        } else {
            Vec::new()
        };
        let unmet = if listed.is_empty() { self.unmet(reader, args)? } else { None };
        listed.retain(|one| !hidden.contains(&one.key.1));
        // Rows are decoded here if they decide; otherwise only the rows that are shown are decoded.
        if !is_any || !self.is_by_field() {
            let mut values: HashMap<_, _> = listed.drain(..).map(|one| (one.key.1, one.value)).collect();
            reader.each_recent(|recent| {
                let id = recent.key.1;
                let value = if needs_values { values.remove(&id) } else { Some(None) };
                if let Some(value) = value.filter(|_| !hidden.contains(&id)) {
                    let row = recent.row()?;
                    if is_meant(&row)? {
                        let value = if let Some((Key::OfRow(of), _)) = &self.sort { Some(of(&row)) } else { value };
                        listed.push(Listed { key: recent.key, value });
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let matching = listed.len() as u64;
        let is_descending = self.sort.as_ref().is_some_and(|(_, is_descending)| *is_descending);
        let shown = first_in_order(listed, args.skip.saturating_add(most), is_descending).into_iter().skip(args.skip);
        let rows = shown.map(|one| reader.row(one.key)).collect::<Result<Vec<_>, _>>()?;
        Ok(Ok(Rows { rows: rows.into_iter().flatten().collect(), matching, unmet, columns: self.columns }))
    }

    /// Returns the attempts that meet the condition, each with its value of the sort field.
    fn matching(&self, reader: &Reader<'_>, args: &Args) -> Result<Result<Vec<Listed>, Failure>, StoreError> {
        let fields = sorted(self.condition.iter().flat_map(Expr::fields).chain(self.sort_field()));
        let place = |name: &str| fields.iter().position(|field| field == name);
        let order = self.sort_field().and_then(place);
        let parts = each_values(reader, args.model.as_deref(), &fields, |part: &mut Part, key, values| {
            let value = |name: &str| values.get(place(name)?)?.clone();
            match &self.condition {
                Some(condition) if !condition.matches(&value) => {
                    if part.fault.is_none() && part.listed.is_empty() {
                        part.fault = condition.check(&value).err();
                    }
                }
                _ => part.listed.push(Listed { key, value: order.and_then(|at| values.get_mut(at)?.take()) }),
            }
        })?;
        let (mut listed, mut fault) = (Vec::new(), None);
        for part in parts {
            listed.extend(part.listed);
            fault = fault.or(part.fault);
        }
        match fault.filter(|_| listed.is_empty()) {
            Some(error) => Ok(Err(Failure::new(exit::USAGE, format!("--where: {error}")))),
            None => Ok(Ok(listed)),
        }
    }

    /// Names the part of the condition that no attempt of the model meets, hidden or not. Called if none meets the whole.
    fn unmet(&self, reader: &Reader<'_>, args: &Args) -> Result<Option<Failure>, StoreError> {
        let Some(condition) = &self.condition else { return Ok(None) };
        let fields = sorted(condition.fields().into_iter());
        let parts = each_values(reader, args.model.as_deref(), &fields, |part: &mut Vec<_>, _, values| {
            part.push(values.to_vec());
        })?;
        let attempts: Vec<Vec<Option<Value>>> = parts.into_iter().flatten().collect();
        let lookup = |values: &Vec<Option<Value>>, name: &str| {
            values.get(fields.iter().position(|field| field == name)?)?.clone()
        };
        Ok((!attempts.is_empty()).then(|| no_match("--where", &attempts, &lookup, condition)))
    }

    /// Whether the order, if there is one, is by a field or a metric.
    fn is_by_field(&self) -> bool {
        self.sort.as_ref().is_none_or(|(key, _)| matches!(key, Key::Field(_)))
    }

    fn sort_field(&self) -> Option<&str> {
        match &self.sort {
            Some((Key::Field(name), _)) => Some(name),
            _ => None,
        }
    }
}

/// Names in alphabetical order, each once.
fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Some of the attempts that meet a condition, and the first fault of the condition.
#[derive(Default)]
struct Part {
    listed: Vec<Listed>,
    fault: Option<ExprError>,
}

/// A listed attempt: its start in milliseconds since 1970, its id, and its sort value.
struct Listed {
    key: (i64, AttemptId),
    value: Option<Value>,
}

impl Listed {
    /// The value, unless it is NaN.
    fn known(&self) -> Option<&Value> {
        self.value.as_ref().filter(|value| !value.as_float().is_some_and(f64::is_nan))
    }
}

/// Returns the first `most` attempts in the order of their values. Those without a value or with NaN come last, and equal
/// ones are ordered by start, newest first.
fn first_in_order(mut listed: Vec<Listed>, most: usize, is_descending: bool) -> Vec<Listed> {
    let by_value = |a: &Listed, b: &Listed| match (a.known(), b.known()) {
        (Some(a), Some(b)) if is_descending => compared(b, a),
        (Some(a), Some(b)) => compared(a, b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    let order = |a: &Listed, b: &Listed| by_value(a, b).then(b.key.cmp(&a.key));
    if most < listed.len() {
        listed.select_nth_unstable_by(most, order);
        listed.truncate(most);
    }
    listed.sort_unstable_by(order);
    listed
}

/// Compares values: numbers come before texts; numbers are ordered by value, texts alphabetically.
fn compared(a: &Value, b: &Value) -> Ordering {
    match (a.as_float(), b.as_float()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.to_string().cmp(&b.to_string()),
    }
}

/// Calls `each` with the start, the id and the values of these fields of each attempt, from the indexes or, if they do
/// not have them, from the record. `each` collects into several `T`, as [`Briefs::each`](crate::store::Briefs::each) does.
fn each_values<T: Default + Send>(
    reader: &Reader<'_>,
    model: Option<&str>,
    fields: &[String],
    each: impl Fn(&mut T, (i64, AttemptId), &mut [Option<Value>]) + Sync,
) -> Result<Vec<T>, StoreError> {
    let models = model.map_or_else(|| reader.models(), |model| Ok(vec![model.to_owned()]))?;
    let mut parts = Vec::new();
    for model in models {
        let briefs = if reader.has_one_unit_each(&model)? { reader.briefs(&model)? } else { None };
        let mut unsaid = Vec::new();
        match briefs {
            Some(briefs) => {
                let columns = briefs.columns(fields, &[]);
                let found = briefs.each(|(part, unsaid): &mut (T, Vec<AttemptId>), row| {
                    let mut values = Vec::new();
                    row.read(&columns, &mut values)?;
                    if values.contains(&Known::Unsaid) {
                        unsaid.push(row.id);
                        return Ok(());
                    }
                    let of = |value| if let Known::Is(value) = value { Some(value) } else { None };
                    let mut values: Vec<Option<Value>> = values.into_iter().map(of).collect();
                    each(part, (row.started_unix_ms, row.id), &mut values);
                    Ok(())
                })?;
                for (part, of_part) in found {
                    parts.push(part);
                    unsaid.extend(of_part);
                }
            }
            None => unsaid = reader.of_model(Some(&model))?,
        }
        let mut trials = decoded(reader, &unsaid, &BTreeSet::new())?;
        unify_by_model(&mut trials);
        let mut part = T::default();
        for trial in &trials {
            let mut values: Vec<Option<Value>> = fields.iter().map(|name| trial.field(name)).collect();
            each(&mut part, (trial.attempt.started_unix_ms, trial.id), &mut values);
        }
        parts.push(part);
    }
    Ok(parts)
}

/// Returns the column values of the rows that are shown, in the order of the rows.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Digest;

    #[test]
    fn the_first_rows_are_those_of_the_whole_order_and_equal_ones_begin_with_the_newest() {
        let listed = || -> Vec<Listed> {
            let values = [Some(2.0), None, Some(1.0), Some(2.0), Some(3.0), Some(f64::NAN), Some(2.0)];
            let one = |(at, value): (i64, Option<f64>)| Listed {
                key: (at, AttemptId(Digest([0; 32]))),
                value: value.map(Value::from),
            };
            (0..).zip(values).map(one).collect()
        };
        let starts = |most, is_descending| -> Vec<i64> {
            first_in_order(listed(), most, is_descending).iter().map(|one| one.key.0).collect()
        };
        let (up, down) = ([2, 6, 3, 0, 4, 5, 1], [4, 6, 3, 0, 2, 5, 1]);
        for most in 0..=8 {
            assert_eq!(starts(most, false), up[..most.min(7)]);
            assert_eq!(starts(most, true), down[..most.min(7)]);
        }
    }
}
