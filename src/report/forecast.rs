//! The output of `plan`: missing attempts and their expected time, energy and cost.

use super::document::table_of;
use super::listing::{axis_text, short_name};
use super::number::{count, duration, quantity, significant};
use super::table::{axis_heads, columns};
use crate::analysis::{Basis, Forecast};
use crate::record::{Cell, Table, Value};

/// A run of the plan.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// Its id, short or full.
    pub id: String,
    /// Its cell.
    pub cell: Cell,
    /// Number of finished attempts in the ledger.
    pub sealed: usize,
    /// Number of missing attempts.
    pub missing: usize,
    /// Time of one attempt in seconds, the basis of the forecast and its number of attempts.
    pub time: Option<(Forecast, Basis, usize)>,
    /// Energy of one attempt in joules, the basis of the forecast and its number of attempts.
    pub energy: Option<(Forecast, Basis, usize)>,
    /// Cost of all its missing attempts.
    pub cost: Option<f64>,
}

/// The whole plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs.
    pub runs: Vec<PlannedRun>,
    /// The fields in which they differ.
    pub axes: Vec<String>,
    /// Total time of all missing attempts with a forecast, run one after the other, in seconds.
    pub time: Option<Forecast>,
    /// Total energy of the missing attempts with an energy forecast, in joules.
    pub energy: Option<Forecast>,
    /// Total cost of the missing attempts for which all priced quantities are known; `None` without prices.
    pub cost: Option<Forecast>,
    /// Number of missing attempts without a cost, if there are prices.
    pub unpriced: usize,
}

fn forecast(found: Option<Forecast>, show: impl Fn(f64) -> String) -> String {
    let Some(found) = found else { return "-".to_owned() };
    match found.half_width {
        Some(half) => format!("{} ± {}", show(found.value), show(half)),
        None => show(found.value),
    }
}

fn basis((_, basis, n): &(Forecast, Basis, usize)) -> String {
    match basis {
        Basis::Same => format!("{n} of the same"),
        Basis::OtherSoftware => format!("{n} with another version"),
        Basis::Alike(fields) => format!("{n} with {} different", count(*fields, "field")),
    }
}

/// Describes the basis of a run's time, and of its energy if that differs.
fn from(run: &PlannedRun) -> String {
    match (run.time.as_ref().map(basis), run.energy.as_ref().map(basis)) {
        (Some(time), Some(energy)) if time != energy => format!("{time}, energy {energy}"),
        (Some(time), _) => time,
        (None, Some(energy)) => format!("energy {energy}"),
        (None, None) => "-".to_owned(),
    }
}

/// Counts the missing attempts of runs for which `known` is false.
fn missing_without(plan: &Plan, known: fn(&PlannedRun) -> bool) -> usize {
    plan.runs.iter().filter(|run| !known(run)).map(|run| run.missing).sum()
}

fn without_energy(plan: &Plan) -> usize {
    missing_without(plan, |run| run.energy.is_some())
}

fn joules(value: f64) -> String {
    quantity(value, "J")
}

/// Returns the plan as a table and its totals.
pub fn forecast_text(plan: &Plan) -> String {
    let names = axis_heads(&plan.axes.iter().map(|axis| short_name(axis)).collect::<Vec<_>>());
    let is_priced = plan.runs.iter().any(|run| run.cost.is_some());
    let mut heads = vec!["RUN", ">SEALED", ">MISSING"];
    heads.extend(names.iter().map(String::as_str));
    heads.extend([">TIME OF ONE", ">ENERGY OF ONE"]);
    heads.extend(is_priced.then_some(">COST"));
    heads.push("~FROM");
    let rows = plan.runs.iter().map(|run| {
        let mut row = vec![run.id.clone(), run.sealed.to_string(), run.missing.to_string()];
        row.extend(plan.axes.iter().map(|axis| axis_text(&run.cell, axis)));
        row.push(forecast(run.time.map(|(time, ..)| time), duration));
        row.push(forecast(run.energy.map(|(energy, ..)| energy), joules));
        row.extend(is_priced.then(|| run.cost.map_or_else(|| "-".to_owned(), significant)));
        row.push(from(run));
        row
    });
    let mut text = columns(&heads, rows);
    let missing: usize = plan.runs.iter().map(|run| run.missing).sum();
    let unknown = missing_without(plan, |run| run.time.is_some());
    text.push_str(&format!("{}, {} missing", count(plan.runs.len(), "run"), count(missing, "attempt")));
    if missing > unknown {
        text.push_str(&format!(": {} one after the other", forecast(plan.time, duration)));
        text.push_str(&plan.energy.map_or_else(String::new, |energy| format!(", {}", forecast(Some(energy), joules))));
        text.push_str(
            &plan.cost.map_or_else(String::new, |cost| format!(", costs {}", forecast(Some(cost), significant))),
        );
    }
    text.push('\n');
    let is_of_others = |run: &&PlannedRun| run.time.is_some_and(|(_, basis, _)| matches!(basis, Basis::Alike(1..)));
    let of_others = plan.runs.iter().filter(is_of_others).count();
    if of_others > 0 {
        let of_others = count(of_others, "run");
        let why = "they are forecast from runs with other field values, whose effect on time and energy is unknown";
        text.push_str(&format!("no ± for {of_others}: {why}\n"));
    }
    let without = without_energy(plan);
    if plan.energy.is_some() && without > unknown {
        text.push_str(&format!("the energy of {} is unknown and not in the sums\n", count(without, "missing attempt")));
    }
    if plan.unpriced > unknown {
        let without = count(plan.unpriced, "missing attempt");
        text.push_str(&format!("the cost of {without} is unknown and not in the sums\n"));
    }
    if unknown > 0 {
        text.push_str(&format!(
            "no forecast for {}: no attempt of the model on these devices has finished without a taint\n",
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

/// Returns the plan as a document's members.
pub fn forecast_value(plan: &Plan) -> Table {
    let runs = plan.runs.iter().map(|run| {
        let mut table = table_of([
            ("run", run.id.as_str().into()),
            ("sealed", run.sealed.into()),
            ("missing", run.missing.into()),
            ("config", run.cell.config.clone().into()),
            ("seed", run.cell.seed.to_string().into()),
        ]);
        for (name, of, found) in [("time_s", "", run.time), ("energy_j", "energy_", run.energy)] {
            let Some((forecast, from, n)) = found else { continue };
            table.insert(name.to_owned(), forecast_members(&forecast));
            let (basis, fields) = match from {
                Basis::Same => ("same", 0),
                Basis::OtherSoftware => ("other_software", 0),
                Basis::Alike(fields) => ("alike", fields),
            };
            table.insert(format!("{of}history"), n.into());
            table.insert(format!("{of}basis"), basis.into());
            table.insert(format!("{of}different_fields"), fields.into());
        }
        table.extend(run.cost.map(|cost| ("cost".to_owned(), cost.into())));
        Value::Table(table)
    });
    let mut members = table_of([
        ("runs", Value::List(runs.collect())),
        ("missing", plan.runs.iter().map(|run| run.missing).sum::<usize>().into()),
    ]);
    let without = without_energy(plan);
    if plan.energy.is_some() && without > 0 {
        members.insert("without_energy".to_owned(), without.into());
    }
    if plan.unpriced > 0 {
        members.insert("unpriced".to_owned(), plan.unpriced.into());
    }
    for (name, found) in [("time_s", plan.time), ("energy_j", plan.energy), ("cost", plan.cost)] {
        members.extend(found.map(|found| (name.to_owned(), forecast_members(&found))));
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, missing: usize, energy: Option<(f64, Basis)>) -> PlannedRun {
        let of = |value, basis| (Forecast { value, half_width: None }, basis, 2);
        PlannedRun {
            id: id.to_owned(),
            cell: Cell { config: Table::new(), settings: Table::new(), seed: 1 },
            sealed: 2,
            missing,
            time: Some(of(60.0, Basis::Same)),
            energy: energy.map(|(value, basis)| of(value, basis)),
            cost: None,
        }
    }

    #[test]
    fn totals_name_the_attempts_they_leave_out() {
        let sum = |value| Some(Forecast { value, half_width: None });
        let mut plan = Plan {
            runs: vec![run("a", 2, Some((6000.0, Basis::Alike(1)))), run("b", 8, None)],
            axes: Vec::new(),
            time: sum(600.0),
            energy: sum(12_000.0),
            cost: None,
            unpriced: 0,
        };
        insta::assert_snapshot!(forecast_text(&plan), @r"
        RUN  SEALED  MISSING  TIME OF ONE  ENERGY OF ONE  FROM
        a         2        2       60.0 s        6.00 kJ  2 of the same, energy 2 with 1 field different
        b         2        8       60.0 s              -  2 of the same
        2 runs, 10 attempts missing: 10 min 00 s one after the other, 12.0 kJ
        the energy of 8 missing attempts is unknown and not in the sums
        ");
        let members = forecast_value(&plan);
        let Some(Value::List(runs)) = members.get("runs") else { panic!("{members:?}") };
        let first = runs[0].as_table().unwrap();
        let text = |name: &str| first.get(name).and_then(Value::as_str);
        assert_eq!((text("basis"), text("energy_basis")), (Some("same"), Some("alike")));
        assert_eq!(
            (first.get("energy_different_fields"), members.get("without_energy")),
            (Some(&Value::Int(1)), Some(&Value::Int(8)))
        );
        // Without a total energy, there is nothing to qualify.
        (plan.energy, plan.runs[0].energy) = (None, None);
        assert!(
            !forecast_text(&plan).contains("the energy of") && !forecast_value(&plan).contains_key("without_energy")
        );
    }
}
