//! The answer to `plan`: what is missing, and what it will take.

use super::document::table_of;
use super::listing::{axis_text, short_name};
use super::number::{count, duration, quantity, significant};
use super::table::columns;
use crate::analysis::{Basis, Forecast};
use crate::record::{Cell, Table, Value};

/// A run of the plan.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// Its id, short or whole.
    pub id: String,
    /// Its cell.
    pub cell: Cell,
    /// Finished attempts that the ledger holds.
    pub sealed: usize,
    /// Attempts that are missing.
    pub missing: usize,
    /// The time of one attempt in seconds, and what that rests on.
    pub time: Option<(Forecast, Basis, usize)>,
    /// The energy of one attempt in joules.
    pub energy: Option<Forecast>,
    /// What all missing ones cost.
    pub cost: Option<f64>,
}

/// The whole plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<PlannedRun>,
    /// The fields in which they differ.
    pub axes: Vec<String>,
    /// The time of all missing attempts of which there is history, one after the other, in seconds.
    pub time: Option<Forecast>,
    /// Their energy, in joules.
    pub energy: Option<Forecast>,
    /// What those cost of which all is known that has a price; none without prices.
    pub cost: Option<Forecast>,
    /// How many missing attempts are not in the cost, though there are prices.
    pub unpriced: usize,
}

fn forecast(found: Option<Forecast>, show: impl Fn(f64) -> String) -> String {
    let Some(found) = found else { return "-".to_owned() };
    match found.half_width {
        Some(half) => format!("{} ± {}", show(found.value), show(half)),
        None => show(found.value),
    }
}

fn basis(found: Option<&(Forecast, Basis, usize)>) -> String {
    let Some((_, basis, n)) = found else { return "-".to_owned() };
    match basis {
        Basis::Same => format!("{n} of the same"),
        Basis::OtherSoftware => format!("{n} with other software"),
        Basis::Alike(fields) => format!("{n} with {} different", count(*fields, "field")),
    }
}

fn joules(value: f64) -> String {
    quantity(value, "J")
}

/// The plan as a table and its sum.
pub fn forecast_text(plan: &Plan) -> String {
    let names: Vec<String> = plan.axes.iter().map(|axis| short_name(axis)).collect();
    let is_priced = plan.runs.iter().any(|run| run.cost.is_some());
    let mut heads = vec!["RUN", ">SEALED", ">MISSING"];
    heads.extend(names.iter().map(String::as_str));
    heads.extend([">TIME OF ONE", ">ENERGY OF ONE"]);
    heads.extend(is_priced.then_some(">COST"));
    heads.push("FROM");
    let rows = plan.runs.iter().map(|run| {
        let mut row = vec![run.id.clone(), run.sealed.to_string(), run.missing.to_string()];
        row.extend(plan.axes.iter().map(|axis| axis_text(&run.cell, axis)));
        row.push(forecast(run.time.map(|(time, ..)| time), duration));
        row.push(forecast(run.energy, joules));
        row.extend(is_priced.then(|| run.cost.map_or_else(|| "-".to_owned(), significant)));
        row.push(basis(run.time.as_ref()));
        row
    });
    let mut text = columns(&heads, rows);
    let missing: usize = plan.runs.iter().map(|run| run.missing).sum();
    let unknown: usize = plan.runs.iter().filter(|run| run.time.is_none()).map(|run| run.missing).sum();
    text.push_str(&format!("{}, {} missing", count(plan.runs.len(), "run"), count(missing, "attempt")));
    if missing > unknown {
        text.push_str(&format!(": {} one after the other", forecast(plan.time, duration)));
        text.push_str(&plan.energy.map_or_else(String::new, |energy| format!(", {}", forecast(Some(energy), joules))));
        text.push_str(
            &plan.cost.map_or_else(String::new, |cost| format!(", costs {}", forecast(Some(cost), significant))),
        );
    }
    text.push('\n');
    if plan.unpriced > unknown {
        let without = count(plan.unpriced, "missing attempt");
        text.push_str(&format!("the cost of {without} is not known, and is in no sum\n"));
    }
    if unknown > 0 {
        text.push_str(&format!(
            "of {} nothing is known: no attempt of the model on these devices has finished\n",
            count(unknown, "missing attempt")
        ));
    }
    text
}

fn forecast_members(found: &Forecast) -> Value {
    let mut table = table_of([("value", found.value.into())]);
    table.extend(found.half_width.map(|half| ("half_width".to_owned(), half.into())));
    Value::Table(table)
}

/// The plan as a document's members.
pub fn forecast_value(plan: &Plan) -> Table {
    let runs = plan.runs.iter().map(|run| {
        let mut table = table_of([
            ("run", run.id.as_str().into()),
            ("sealed", run.sealed.into()),
            ("missing", run.missing.into()),
            ("config", run.cell.config.clone().into()),
            ("seed", run.cell.seed.to_string().into()),
        ]);
        if let Some((time, from, n)) = &run.time {
            table.insert("time_s".to_owned(), forecast_members(time));
            table.insert("history".to_owned(), (*n).into());
            let (name, fields) = match from {
                Basis::Same => ("same", 0),
                Basis::OtherSoftware => ("other_software", 0),
                Basis::Alike(fields) => ("alike", *fields),
            };
            table.insert("basis".to_owned(), name.into());
            table.insert("different_fields".to_owned(), fields.into());
        }
        table.extend(run.energy.map(|energy| ("energy_j".to_owned(), forecast_members(&energy))));
        table.extend(run.cost.map(|cost| ("cost".to_owned(), cost.into())));
        Value::Table(table)
    });
    let mut members = table_of([
        ("runs", Value::List(runs.collect())),
        ("missing", plan.runs.iter().map(|run| run.missing).sum::<usize>().into()),
    ]);
    if plan.unpriced > 0 {
        members.insert("unpriced".to_owned(), plan.unpriced.into());
    }
    for (name, found) in [("time_s", plan.time), ("energy_j", plan.energy), ("cost", plan.cost)] {
        members.extend(found.map(|found| (name.to_owned(), forecast_members(&found))));
    }
    members
}
