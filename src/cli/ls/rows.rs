//! The rows of `ls`: selection, order and columns.

use super::{Args, TAINTED};
use crate::analysis::expr::{Expr, full_name};
use crate::analysis::{Trial, names, unify_by_model};
use crate::cli::failure::{Failure, exit};
use crate::cli::selection::decoded;
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
            return Ok(Ok(Rows { rows, matching, columns: self.columns }));
        }
        let mut matching = match self.matching(reader, args)? {
            Ok(matching) => matching,
            Err(failure) => return Ok(Err(failure)),
        };
        let hidden = if args.hidden { BTreeSet::new() } else { reader.hidden_attempts()? };
        let of_row = match &self.sort {
            Some((Key::OfRow(of), _)) => Some(of),
            _ => None,
        };
        if let Some(matching) = &mut matching {
            hidden.iter().for_each(|id| drop(matching.remove(id)));
        }
        // If the condition alone decides, the search stops at the last row that is shown.
        let count = matching.as_ref().filter(|_| is_any && self.sort.is_none()).map(Matching::len);
        let enough = if count.is_some() { args.skip.saturating_add(most) } else { usize::MAX };
        let mut listed: Vec<Listed> = Vec::new();
        reader.each_recent(|recent| {
            let id = recent.key.1;
            if listed.len() == enough {
                return Ok(ControlFlow::Break(()));
            }
            if hidden.contains(&id) {
                return Ok(ControlFlow::Continue(()));
            }
            let mut value = match &mut matching {
                Some(matching) => match matching.remove(&id) {
                    Some(value) => value,
                    None => return Ok(ControlFlow::Continue(())),
                },
                None => None,
            };
            // Rows are decoded here if they decide; otherwise only the rows that are shown are decoded.
            if !is_any || of_row.is_some() {
                let row = recent.row()?;
                if !is_meant(&row)? {
                    return Ok(ControlFlow::Continue(()));
                }
                value = of_row.map(|of| of(&row)).or(value);
            }
            listed.push(Listed { key: recent.key, value });
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some((_, is_descending)) = self.sort {
            sort(&mut listed, is_descending);
        }
        let matching = count.unwrap_or(listed.len()) as u64;
        let shown = listed.into_iter().skip(args.skip).take(most);
        let rows = shown.map(|one| reader.row(one.key)).collect::<Result<Vec<_>, _>>()?;
        Ok(Ok(Rows { rows: rows.into_iter().flatten().collect(), matching, columns: self.columns }))
    }

    /// Returns the attempts that meet the condition, each with its value of the sort field. Returns `None` without
    /// condition and sort field.
    fn matching(&self, reader: &Reader<'_>, args: &Args) -> Result<Result<Option<Matching>, Failure>, StoreError> {
        let fields: BTreeSet<&str> = self.condition.iter().flat_map(Expr::fields).chain(self.sort_field()).collect();
        if fields.is_empty() && self.condition.is_none() {
            return Ok(Ok(None));
        }
        let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
        let place = |name: &str| fields.iter().position(|field| field == name);
        let order = self.sort_field().and_then(place);
        let (mut matching, mut fault) = (HashMap::new(), None);
        each_values(reader, args.model.as_deref(), &fields, &mut |id, values| {
            let value = |name: &str| values.get(place(name)?)?.clone();
            match &self.condition {
                Some(condition) if !condition.matches(&value) => {
                    if fault.is_none() && matching.is_empty() {
                        fault = condition.check(&value).err();
                    }
                }
                _ => drop(matching.insert(id, order.and_then(|at| values.get_mut(at)?.take()))),
            }
        })?;
        match fault.filter(|_| matching.is_empty()) {
            Some(error) => Ok(Err(Failure::new(exit::USAGE, format!("--where: {error}")))),
            None => Ok(Ok(Some(matching))),
        }
    }

    fn sort_field(&self) -> Option<&str> {
        match &self.sort {
            Some((Key::Field(name), _)) => Some(name),
            _ => None,
        }
    }
}

/// Matching attempts, each with the value of its sort field.
type Matching = HashMap<AttemptId, Option<Value>>;

/// A listed attempt: its start time in ms, its id, and its sort value.
struct Listed {
    key: (i64, AttemptId),
    value: Option<Value>,
}

/// Sorts by the values. Rows without a value come last, and equal rows keep their order.
fn sort(listed: &mut [Listed], is_descending: bool) {
    listed.sort_by(|a, b| match (&a.value, &b.value) {
        (Some(a), Some(b)) if is_descending => compared(b, a),
        (Some(a), Some(b)) => compared(a, b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
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

/// Calls `each` with the values of these fields of each attempt, from the indexes or, if they do not have them, from the record.
fn each_values(
    reader: &Reader<'_>,
    model: Option<&str>,
    fields: &[String],
    each: &mut dyn FnMut(AttemptId, &mut [Option<Value>]),
) -> Result<(), StoreError> {
    let models = model.map_or_else(|| reader.models(), |model| Ok(vec![model.to_owned()]))?;
    let mut found = Vec::new();
    for model in models {
        let briefs = if reader.has_one_unit_each(&model)? { reader.briefs(&model)? } else { None };
        let mut unsaid = Vec::new();
        match briefs {
            Some(briefs) => {
                let (columns, mut values) = (briefs.columns(fields, &[]), Vec::new());
                briefs.each(|row| {
                    row.read(&columns, &mut values)?;
                    if values.contains(&Known::Unsaid) {
                        unsaid.push(row.id);
                        return Ok(());
                    }
                    found.clear();
                    found.extend(
                        values.drain(..).map(|value| if let Known::Is(value) = value { Some(value) } else { None }),
                    );
                    each(row.id, &mut found);
                    Ok(())
                })?;
            }
            None => unsaid = reader.of_model(Some(&model))?,
        }
        let mut trials = decoded(reader, &unsaid, &BTreeSet::new())?;
        unify_by_model(&mut trials);
        for trial in &trials {
            found.clear();
            found.extend(fields.iter().map(|name| trial.field(name)));
            each(trial.id, &mut found);
        }
    }
    Ok(())
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
