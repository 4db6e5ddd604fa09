//! Lists: attempts, planned runs, checks, and the results of a sweep.

use super::document::table_of;
use super::live::fitted;
use super::number::{count, duration, significant, wall_seconds, when};
use super::plain::plain;
use super::ranking::mean_text;
use super::table::{axis_heads, columns};
use crate::record::{
    Attempt, AttemptId, Cell, Check, JUDGING_METRICS, Metric, Nonce, Origin, Row, Table, Value, first_of, known_metric,
};
use std::collections::BTreeSet;

/// Most failure reasons shown, and most attempts named for each.
const REASONS: usize = 5;
const NAMED: usize = 3;

/// An attempt's row with the names under which its run and attempt are shown.
#[derive(Clone, Debug)]
pub struct Line {
    /// The row.
    pub row: Row,
    /// The run's short id.
    pub run: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether the attempt is tainted.
    pub is_tainted: bool,
    /// Whether the attempt or its run is hidden.
    pub is_hidden: bool,
    /// The attempt's origin according to the log.
    pub origin: Origin,
    /// The attempt that it reruns.
    pub rerun_of: Option<AttemptId>,
    /// Why it did not finish, if that was read.
    pub reason: Option<String>,
    /// Its objective and the value of that, if that was read.
    pub objective: Option<(String, Option<f64>)>,
    /// Values of the listing's extra columns.
    pub values: Vec<Option<Value>>,
}

/// A list of attempts in display order.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Running attempts, the oldest first.
    pub running: Vec<Running>,
    /// Sealed attempts that are shown.
    pub lines: Vec<Line>,
    /// Full names of the fields and metrics shown as extra columns.
    pub columns: Vec<String>,
    /// Number of attempts that match, shown or not.
    pub matching: u64,
    /// Number of all attempts.
    pub total: u64,
    /// Number of hidden attempts that are not listed.
    pub hidden: u64,
    /// Number of matching attempts before the shown ones.
    pub skipped: usize,
}

impl Line {
    /// Returns the outcome with its marks: tainted, rerun and verdict, imported, hidden.
    fn outcome(&self) -> String {
        let verdict = self.origin.as_rerun(self.row.attempt);
        let verdict = verdict.map_or("no verdict".to_owned(), |repeated| repeated.verdict.clone());
        let rerun = self.rerun_of.map(|_| format!("rerun: {verdict}"));
        let hidden = self.is_hidden.then(|| "hidden".to_owned());
        let imported = self.origin.is_imported.then(|| "imported".to_owned());
        let marks: Vec<String> = rerun.into_iter().chain(imported).chain(hidden).collect();
        let outcome = format!("{}{}", self.row.outcome, if self.is_tainted { ", tainted" } else { "" });
        if marks.is_empty() { outcome } else { format!("{outcome} ({})", marks.join(", ")) }
    }
}

/// A running attempt.
#[derive(Clone, Debug)]
pub struct Running {
    /// Identifies the execution.
    pub nonce: Nonce,
    /// Its row as far as it is known.
    pub row: Row,
    /// The host that executes it.
    pub host: String,
    /// The last step and the number of planned steps (0 if unknown).
    pub step: Option<(u64, u64)>,
    /// Estimated seconds for the remaining steps.
    pub left_s: Option<f64>,
}

impl Running {
    /// Returns the progress, `120/5000`; `None` before the first step.
    pub(super) fn steps(&self) -> Option<String> {
        self.step.map(|(step, planned)| if planned == 0 { step.to_string() } else { format!("{step}/{planned}") })
    }

    fn cells(&self) -> Vec<String> {
        let steps = self.steps().map_or_else(String::new, |steps| format!(", step {steps}"));
        cells_of(&self.row, self.row.run.0.prefix(8), self.row.label.clone(), format!("running{steps}"))
    }

    pub(super) fn value(&self) -> Value {
        let mut table = members(&self.row);
        table.extend(table_of([("nonce", self.nonce.to_string().into()), ("host", self.host.as_str().into())]));
        if let Some((step, planned)) = self.step {
            table.insert("step".to_owned(), step.into());
            table.extend((planned > 0).then(|| ("steps".to_owned(), planned.into())));
        }
        table.extend(self.left_s.map(|left_s| ("left_s".to_owned(), left_s.into())));
        Value::Table(table)
    }
}

/// Returns the members common to running and sealed attempts.
fn members(row: &Row) -> Table {
    let mut table = table_of([
        ("run", row.run.to_string().into()),
        ("started_unix_ms", row.started_unix_ms.into()),
        ("experiment", row.experiment.as_str().into()),
        ("model", row.model.as_str().into()),
        ("with", row.label.as_str().into()),
        ("seed", row.seed.to_string().into()),
        ("outcome", row.outcome.as_str().into()),
    ]);
    let numbers = [("wall_time_s", wall_seconds(row.wall_ns)), ("accuracy", row.accuracy), ("loss", row.loss)];
    table.extend(numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    table
}

/// Returns the cells of an attempt, running or sealed.
fn cells_of(row: &Row, run: String, label: String, outcome: String) -> Vec<String> {
    let metric = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
    vec![
        run,
        when(row.started_unix_ms),
        row.experiment.clone(),
        row.model.clone(),
        label,
        row.seed.to_string(),
        outcome,
        wall_seconds(row.wall_ns).map_or_else(|| "-".to_owned(), duration),
        metric(row.accuracy),
        metric(row.loss),
    ]
}

/// Returns the listing as a table; running attempts come first.
pub fn ls_text(listing: &Listing) -> String {
    let Listing { running, lines, columns: more, matching, total, hidden, skipped } = listing;
    if *total == 0 && running.is_empty() {
        return "no runs yet (`ledger run MANIFEST` makes some)\n".to_owned();
    }
    // If several attempts of one run are listed, each also shows its own id.
    let names_attempts = lines.iter().map(|line| line.row.run).collect::<BTreeSet<_>>().len() < lines.len();
    let objectives = objectives(listing);
    let rows = lines.iter().map(|line| {
        let row = &line.row;
        let mut label = row.label.clone();
        if !line.tags.is_empty() {
            label = format!("{label} [{}]", line.tags.join(" "));
        }
        let mut cells = cells_of(row, line.run.clone(), label, line.outcome());
        if names_attempts {
            cells.insert(1, row.attempt.0.prefix(8));
        }
        let of_objective = |name: &String| match &line.objective {
            Some((own, Some(value))) if own == name => significant(*value),
            _ => "-".to_owned(),
        };
        cells.extend(objectives.iter().map(of_objective));
        cells.extend(line.values.iter().map(|value| value.as_ref().map_or_else(|| "-".to_owned(), shown)));
        cells
    });
    let of_running = |one: &Running| {
        let mut cells = one.cells();
        if names_attempts {
            cells.insert(1, "-".to_owned());
        }
        cells.resize(cells.len() + objectives.len() + more.len(), "-".to_owned());
        cells
    };
    let mut rows: Vec<Vec<String>> = running.iter().rev().map(of_running).chain(rows).collect();
    let mut heads = vec![
        "RUN",
        "~~STARTED (UTC)",
        "~~~EXPERIMENT",
        "MODEL",
        "<WITH",
        ">SEED",
        "OUTCOME",
        ">TIME",
        ">ACCURACY",
        ">~LOSS",
    ];
    if names_attempts {
        heads.insert(1, "ATTEMPT");
    }
    for metric in [">ACCURACY", ">~LOSS"] {
        let at = heads.iter().position(|head| *head == metric);
        let is_asked = more.iter().any(|own| own.eq_ignore_ascii_case(metric.trim_start_matches(['>', '~'])));
        if let Some(at) = at.filter(|at| is_asked || rows.iter().all(|cells| cells[*at] == "-")) {
            heads.remove(at);
            rows.iter_mut().for_each(|cells| drop(cells.remove(at)));
        }
    }
    let more: Vec<String> = objectives.iter().chain(more).map(|name| format!(">{name}")).collect();
    heads.extend(more.iter().map(String::as_str));
    let mut text = if lines.is_empty() && running.is_empty() { String::new() } else { columns(&heads, rows) };
    text.push_str(&reasons(lines, names_attempts));
    // The same ids as in the table; originals are attempts, which may not be listed.
    let own = |line: &Line| if names_attempts { line.row.attempt.0.prefix(8) } else { line.run.clone() };
    let repeated = lines.iter().filter_map(|line| Some(format!("{} of {}", own(line), line.rerun_of?.0.prefix(8))));
    let repeated: Vec<String> = repeated.collect();
    if !repeated.is_empty() {
        text.push_str(&format!("reruns: {}\n", first_of(repeated, RERUNS)));
    }
    let shown = lines.len() as u64;
    let listed = total.saturating_sub(*hidden);
    let mut why: Vec<String> = Vec::new();
    if *matching < listed {
        why.push(match *matching {
            0 if !running.is_empty() => "none that ended matches".to_owned(),
            0 => "none matches".to_owned(),
            all if all == shown => "all that match".to_owned(),
            some => format!("{some} match"),
        });
    }
    if *matching > 0 && *skipped as u64 >= *matching {
        why.push(format!("--skip passes over all {matching} that match"));
    } else if *matching > shown + *skipped as u64 {
        why.push("-n N shows more, --all all of them".to_owned());
    }
    match hidden {
        0 => {}
        1 => why.push("1 is hidden, --hidden shows it".to_owned()),
        many => why.push(format!("{many} are hidden, --hidden shows them")),
    }
    if !why.is_empty() {
        text.push_str(&format!("{shown} of {} ({})\n", count(*total, "attempt"), why.join("; ")));
    }
    text
}

/// The largest number of reruns that are named with their originals.
const RERUNS: usize = 20;

/// The largest number of objectives that have a column.
const OBJECTIVES: usize = 2;

/// Returns the objectives of the attempts that have no column yet: none if there are many.
fn objectives(listing: &Listing) -> Vec<String> {
    let named = listing.lines.iter().filter_map(|line| Some(line.objective.as_ref()?.0.as_str()));
    let has_column = |name: &str| ["accuracy", "loss"].contains(&name) || listing.columns.iter().any(|own| own == name);
    let named: BTreeSet<&str> = named.filter(|name| !has_column(name)).collect();
    if named.len() > OBJECTIVES { Vec::new() } else { named.into_iter().map(str::to_owned).collect() }
}

/// Returns why attempts did not finish: the first line of each distinct reason, with the first attempts or runs.
fn reasons(lines: &[Line], names_attempts: bool) -> String {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines {
        let Some(reason) = &line.reason else { continue };
        let mut rows = reason.trim().lines();
        let first = rows.next().unwrap_or_default();
        let told = format!("{}: {}{}", line.row.outcome, plain(first), if rows.next().is_some() { " …" } else { "" });
        // The same id as in the table.
        let id = if names_attempts { line.row.attempt.0.prefix(8) } else { line.run.clone() };
        match reasons.iter_mut().find(|(known, _)| *known == told) {
            Some((_, ids)) => ids.push(id),
            None => reasons.push((told, vec![id])),
        }
    }
    let told = reasons.iter().take(REASONS).map(|(told, ids)| format!("{told} ({})\n", first_of(ids, NAMED)));
    let mut text: String = told.collect();
    if reasons.len() > REASONS {
        text.push_str(&format!("{} (`ledger show ID` tells one)\n", count(reasons.len() - REASONS, "more reason")));
    }
    text
}

/// Formats a field or a metric with few digits.
fn shown(value: &Value) -> String {
    match value {
        Value::Float(value) => significant(*value),
        other => other.to_string(),
    }
}

/// Returns the listing as a document's members.
pub fn ls_value(listing: &Listing) -> Table {
    let Listing { running, lines, columns, matching, total, hidden, .. } = listing;
    let attempts = lines.iter().map(|line| {
        let row = &line.row;
        let mut table = members(row);
        table.extend(table_of([
            ("attempt", row.attempt.to_string().into()),
            ("tags", line.tags.clone().into()),
            ("imported", line.origin.is_imported.into()),
        ]));
        table.extend(line.is_tainted.then(|| ("tainted".to_owned(), true.into())));
        table.extend(line.is_hidden.then(|| ("hidden".to_owned(), true.into())));
        table.extend(line.rerun_of.map(|of| ("rerun_of".to_owned(), of.to_string().into())));
        table.extend(line.reason.as_deref().map(|reason| ("reason".to_owned(), reason.into())));
        if let Some((metric, value)) = &line.objective {
            let mut objective = table_of([("metric", metric.as_str().into())]);
            objective.extend(value.map(|value| ("value".to_owned(), value.into())));
            table.insert("objective".to_owned(), Value::Table(objective));
        }
        if let Some(repeated) = line.origin.as_rerun(row.attempt) {
            table.insert("verdict".to_owned(), repeated.verdict.as_str().into());
        }
        if !columns.is_empty() {
            let known = columns.iter().cloned().zip(line.values.iter().cloned());
            let known = known.filter_map(|(name, value)| Some((name, value?)));
            table.insert("columns".to_owned(), Value::Table(known.collect()));
        }
        Value::Table(table)
    });
    let running = running.iter().rev().map(Running::value).collect();
    table_of([
        ("attempts", Value::List(attempts.collect())),
        ("matching", (*matching).into()),
        ("total", (*total).into()),
        ("hidden", (*hidden).into()),
        ("running", Value::List(running)),
    ])
}

/// Returns the runs of a manifest before execution: id, cell, sealed and missing attempts.
pub fn plan_text(plans: &[(String, &Cell, usize, usize)], axes: &[String]) -> String {
    let mut heads = vec!["RUN", ">SEALED", ">MISSING"];
    let names = axis_heads(&axes.iter().map(|axis| short_name(axis)).collect::<Vec<_>>());
    heads.extend(names.iter().map(String::as_str));
    let rows = plans.iter().map(|(id, cell, sealed, missing)| {
        let mut row = vec![id.clone(), sealed.to_string(), missing.to_string()];
        row.extend(axes.iter().map(|axis| axis_text(cell, axis)));
        row
    });
    let missing: usize = plans.iter().map(|(_, _, _, missing)| missing).sum();
    let mut text = columns(&heads, rows);
    text.push_str(&format!("{}, {} missing\n", count(plans.len(), "run"), count(missing, "attempt")));
    text
}

pub(super) fn short_name(axis: &str) -> String {
    let (section, name) = axis.rsplit_once('.').unwrap_or(("", axis));
    if name == "name" { section.to_owned() } else { name.to_owned() }
}

/// Returns a label that distinguishes a cell within its grid: `optimizer adam seed 2`.
/// A cell without axes is labelled with its model.
pub fn axes_label(cell: &Cell, axes: &[String], width: Option<usize>) -> String {
    let words = axes.iter().filter(|axis| axis.as_str() == "seed" || cell.get(axis).is_some());
    let label: Vec<(String, String)> = words.map(|axis| (short_name(axis), axis_text(cell, axis))).collect();
    if label.is_empty() {
        return fitted(cell.text("model.name").unwrap_or("program"), width);
    }
    let with_names_of = |most: usize| {
        let words = label.iter().map(|(name, value)| format!("{} {value}", fitted(name, Some(most))));
        words.collect::<Vec<_>>().join(" ")
    };
    let longest = label.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    // The names are shortened before the values, because only values distinguish runs.
    let fits = |label: &String| width.is_none_or(|width| label.chars().count() <= width);
    (1..=longest).rev().map(with_names_of).find(fits).unwrap_or_else(|| fitted(&with_names_of(1), width))
}

pub(super) fn axis_text(cell: &Cell, axis: &str) -> String {
    if axis == "seed" {
        return cell.seed.to_string();
    }
    cell.get(axis).map_or_else(|| "-".to_owned(), Value::to_string)
}

/// Returns the plan as a document's members, with complete cells.
pub fn plan_value(plans: &[(String, &Cell, usize, usize)]) -> Table {
    let runs = plans.iter().map(|(id, cell, sealed, missing)| {
        Value::Table(table_of([
            ("run", id.as_str().into()),
            ("sealed", (*sealed).into()),
            ("missing", (*missing).into()),
            ("config", cell.config.clone().into()),
            ("settings", cell.settings.clone().into()),
            ("seed", cell.seed.to_string().into()),
        ]))
    });
    table_of([("runs", Value::List(runs.collect()))])
}

/// One run of a finished sweep: short id, cell, and its newest attempt.
pub type Summary<'a> = (String, &'a Cell, Option<&'a Attempt>);

/// Returns the runs of a sweep with outcomes and metrics.
pub fn summary_text(runs: &[Summary<'_>], axes: &[String]) -> String {
    let metrics = summary_metrics(runs);
    let names = axis_heads(&axes.iter().map(|axis| short_name(axis)).collect::<Vec<_>>());
    // On a narrow terminal, later metrics are dropped first; the first one is the objective.
    let spare = |at: usize| "~".repeat(at);
    let metric_heads: Vec<String> =
        metrics.iter().enumerate().map(|(at, name)| format!("{}>{name}", spare(at))).collect();
    let mut heads = vec!["RUN"];
    heads.extend(names.iter().map(String::as_str));
    heads.push("OUTCOME");
    heads.extend(metric_heads.iter().map(String::as_str));
    let rows = runs.iter().map(|(id, cell, newest)| {
        let mut row = vec![id.clone()];
        row.extend(axes.iter().map(|axis| axis_text(cell, axis)));
        match newest {
            None => row.extend(std::iter::once("missing".to_owned()).chain(metrics.iter().map(|_| "-".to_owned()))),
            Some(newest) => {
                row.push(newest.standing());
                row.extend(metrics.iter().map(|name| match newest.metrics.get(*name) {
                    Some(Metric { value: Some(value), unit, .. }) => mean_text(*value, None, unit),
                    _ => "-".to_owned(),
                }));
            }
        }
        row
    });
    columns(&heads, rows)
}

/// Returns the metrics to show: objectives, then the usual ones, then a program's own, if any attempt has a value.
fn summary_metrics<'a>(runs: &[Summary<'a>]) -> Vec<&'a str> {
    let usual = JUDGING_METRICS.into_iter().chain(["step_time", "train_time"]);
    // A metric that is missing in all attempts would be an empty column.
    let has = |name: &str| runs.iter().any(|(_, _, newest)| newest.is_some_and(|newest| newest.metric(name).is_some()));
    // `wall_time` is nearly the same as `train_time`, which is preferred if no attempt lacks it.
    let lacks = |newest: &Attempt| newest.metric("train_time").is_none();
    let or_else = runs.iter().any(|(_, _, newest)| newest.is_some_and(lacks)).then_some("wall_time");
    let objectives = runs.iter().filter_map(|(_, cell, _)| cell.text("objective.metric"));
    let mut metrics = Vec::new();
    let own = runs.iter().filter_map(|(_, cell, newest)| Some(own_metrics(cell, (*newest)?))).flatten();
    for name in objectives.chain(usual).chain(own).chain(or_else) {
        if !metrics.contains(&name) && has(name) {
            metrics.push(name);
        }
    }
    metrics
}

/// Returns the first metrics that a program reports in addition to the known ones.
pub fn own_metrics<'a>(cell: &Cell, attempt: &'a Attempt) -> impl Iterator<Item = &'a str> {
    const MOST: usize = 3;
    let is_program = cell.text("program.directory").is_some();
    let names = attempt.metrics.iter().filter(move |(name, metric)| {
        is_program && metric.value.is_some() && known_metric(name).is_none() && !name.contains(['.', '@', '/'])
    });
    names.map(|(name, _)| name.as_str()).take(MOST)
}

/// Returns the capabilities of this machine, and fixes for the missing ones.
pub fn checks_text(checks: &[Check]) -> String {
    let rows =
        checks.iter().map(|check| vec![check.name.to_owned(), check.state.name().to_owned(), check.found.clone()]);
    let mut text = columns(&["CHECK", "STATE", "FOUND"], rows);
    let wanting: Vec<&Check> = checks.iter().filter(|check| !check.fix.is_empty()).collect();
    if !wanting.is_empty() {
        text.push('\n');
    }
    for check in wanting {
        text.push_str(&format!("{}: {}\n    fix: {}\n", check.name, check.consequence, check.fix));
    }
    text
}

/// Returns the checks as a document's members.
pub fn checks_value(checks: &[Check]) -> Table {
    let items = checks.iter().map(|check| {
        Value::Table(table_of([
            ("name", check.name.into()),
            ("state", check.state.name().into()),
            ("found", check.found.as_str().into()),
            ("consequence", check.consequence.as_str().into()),
            ("fix", check.fix.as_str().into()),
        ]))
    });
    table_of([("checks", Value::List(items.collect()))])
}

#[cfg(test)]
mod tests;
