//! The output of `show`: one run with its attempts, in full.

use super::document::table_of;
use super::number::{duration, quantity, significant, took, when, within};
use super::plain::{plain, plain_lines};
use super::table::columns;
use super::units;
use crate::record::{Attempt, AttemptId, Axis, Origin, Part, Run, Table, Value};
use std::collections::BTreeMap;

/// A run with the attempts to show, and its tags and notes.
#[derive(Clone, Debug)]
pub struct Described {
    /// The run.
    pub run: Run,
    /// The attempts with their ids and short ids.
    pub attempts: Vec<(AttemptId, String, Attempt)>,
    /// Tags.
    pub tags: Vec<String>,
    /// Notes, oldest first.
    pub notes: Vec<String>,
    /// Origins of the attempts according to the log.
    pub origins: BTreeMap<AttemptId, Origin>,
    /// Running attempts, as they would be sealed if they ended now.
    pub running: Vec<Attempt>,
}

/// Returns the run as text.
pub fn show_text(described: &Described) -> String {
    let Described { run, attempts, tags, notes, origins, running } = described;
    let mut text = format!("run      {}\n", run.id);
    if !tags.is_empty() {
        text.push_str(&format!("tags     {}\n", tags.join(" ")));
    }
    for note in notes {
        text.push_str(&format!("note     {}\n", within_lines(note)));
    }
    text.push_str("identity\n");
    let parts = Part::ALL.into_iter().map(|part| {
        let value = match part {
            Part::Config => "see below".to_owned(),
            _ => run.parts.value(part).to_string(),
        };
        vec![format!("  {part}"), run.parts.digest(part).prefix(8), value]
    });
    text.push_str(&columns(&["  PART", "DIGEST", "VALUE"], parts));
    text.push_str("config\n");
    let fields = run.config().iter().map(|(field, value)| vec![format!("  {field}"), value.to_string()]);
    text.push_str(&columns(&["  FIELD", "VALUE"], fields));
    for (at, (id, short, attempt)) in attempts.iter().enumerate() {
        text.push('\n');
        let first = attempts.first().filter(|_| at > 0).map(|(_, short, first)| (short.as_str(), first));
        text.push_str(&attempt_text(*id, short, attempt, origins.get(id).unwrap_or(&Origin::default()), first));
    }
    for attempt in running {
        let short = run.id.0.prefix(8);
        text.push_str(&format!("\nattempt  not sealed yet (execution {})\n", attempt.nonce));
        text.push_str("outcome  running: these are its numbers so far\n");
        text.push_str(&format!("started  {} UTC\n", when(attempt.started_unix_ms)));
        text.push_str(&content_text(&short, attempt, None));
    }
    text
}

/// Indents further lines of a text, so that none can pass for a line of the output.
fn within_lines(text: &str) -> String {
    text.trim_end().replace('\n', "\n         ")
}

/// Returns an attempt's import and verdicts from the log, one line each.
fn origin_text(id: AttemptId, attempt: &Attempt, origin: &Origin) -> String {
    let mut text = String::new();
    let import = attempt.facts.get("import").and_then(Value::as_table);
    match import.and_then(|import| import.get("kind")?.as_str()) {
        Some(kind) => text.push_str(&format!("origin   `ledger import {}`\n", plain(kind))),
        None if origin.is_imported => text.push_str("origin   another ledger (import, merge, unpack or collect)\n"),
        None => {}
    }
    for repeated in &origin.verdicts {
        let (title, other) = if repeated.rerun == id {
            ("verdict", format!("as a rerun of {}", repeated.original.0.prefix(8)))
        } else {
            ("rerun", format!("by {}", repeated.rerun.0.prefix(8)))
        };
        let because = if repeated.detail.is_empty() { String::new() } else { format!(": {}", plain(&repeated.detail)) };
        let (verdict, at) = (plain(&repeated.verdict), when(repeated.unix_ms));
        text.push_str(&format!("{title:8} {verdict}, {other}, {at} UTC{because}\n"));
    }
    text
}

/// Returns an attempt as text. If `first` is given, only settings and facts that differ from it are listed.
fn attempt_text(
    id: AttemptId,
    short: &str,
    attempt: &Attempt,
    origin: &Origin,
    first: Option<(&str, &Attempt)>,
) -> String {
    let mut text = format!("attempt  {id}\n");
    text.push_str(&format!("outcome  {}", attempt.outcome.name()));
    if let Some(reason) = attempt.outcome.reason() {
        text.push_str(&format!(": {}", within_lines(reason)));
    }
    text.push_str(&format!("\nstarted  {} UTC, {}\n", when(attempt.started_unix_ms), took(attempt.wall_ns)));
    text.push_str(&origin_text(id, attempt, origin));
    text.push_str(&content_text(short, attempt, first));
    text
}

/// Returns everything recorded of an attempt except its outcome and times.
fn content_text(short: &str, attempt: &Attempt, first: Option<(&str, &Attempt)>) -> String {
    let mut text = String::new();
    if let Some(stamp) = attempt.facts.get(Attempt::VALIDITY).and_then(Value::as_str) {
        let reasons = attempt.disturbances().join("; ");
        let because = if reasons.is_empty() { reasons } else { format!(": {reasons}") };
        text.push_str(&format!("measured {stamp}{because}\n"));
    }
    for warning in &attempt.warnings {
        text.push_str(&format!("warning  {}\n", within_lines(warning)));
    }
    let metrics = attempt.metrics.iter().filter_map(|(name, metric)| {
        let in_unit = |value: f64| match metric.unit.as_str() {
            unit @ ("J" | "W") => quantity(value, unit),
            "s" => duration(value),
            "B" => units::bytes(value),
            "" => significant(value),
            unit => format!("{} {unit}", significant(value)),
        };
        Some(vec![format!("  {name}"), within(in_unit, metric.value?, metric.uncertainty)])
    });
    text.push_str(&columns(&["  METRIC", ">VALUE"], metrics));
    text.push_str(&missing_text(attempt));
    for (name, digest) in &attempt.digests {
        text.push_str(&format!("digest   {} {digest}\n", plain(name)));
    }
    let (steps, readings): (Vec<_>, Vec<_>) = attempt.series.iter().partition(|series| series.axis == Axis::Step);
    let series = steps.iter().map(|series| {
        vec![format!("  {}", series.name), series.len.to_string(), series.axis.name().to_owned(), series.unit.clone()]
    });
    if !steps.is_empty() {
        text.push_str(&columns(&["  SERIES", ">POINTS", "OVER", "UNIT"], series));
    }
    if !readings.is_empty() {
        let count = readings.len();
        text.push_str(&format!(
            "  {count} series of hardware samples (`ledger telemetry {short}`, `ledger events {short}`)\n"
        ));
    }
    let known = first.map(|(_, first)| surroundings(first)).unwrap_or_default();
    let mut rows = surroundings(attempt);
    known.keys().for_each(|field| _ = rows.entry(field.clone()).or_insert_with(|| "-".to_owned()));
    rows.retain(|field, value| known.get(field) != Some(value));
    let (is_empty, rows) = (rows.is_empty(), rows.into_iter().map(|(field, value)| vec![format!("  {field}"), value]));
    match first {
        Some((first, _)) if is_empty => text.push_str(&format!("recorded, not hashed: as in {first}\n")),
        Some((first, _)) => text.push_str(&format!("recorded, not hashed; other fields are as in {first}\n")),
        None => text.push_str("recorded, not hashed\n"),
    }
    if first.is_none() || !is_empty {
        text.push_str(&columns(&["  FIELD", "VALUE"], rows));
    }
    for (title, tail) in [("standard error", &attempt.tail.stderr), ("standard output", &attempt.tail.stdout)] {
        if !tail.trim().is_empty() {
            text.push_str(&format!("end of the worker's {title} ({short})\n"));
            tail.lines().for_each(|line| text.push_str(&format!("  | {}\n", plain_lines(line))));
        }
    }
    text
}

/// Returns the recorded settings and facts of an attempt, by field.
/// Hardware samples and energies are left out, because `telemetry` and `events` show them.
fn surroundings(attempt: &Attempt) -> BTreeMap<String, String> {
    let is_shown = |name: &str| {
        !name.starts_with("telemetry.") && !["energy", "cluster"].contains(&name) && !name.starts_with("kernel_cache.")
    };
    let recorded = attempt.settings.iter().chain(attempt.facts.iter().filter(|(name, _)| is_shown(name)));
    let recorded = Value::Table(recorded.map(|(k, v)| (k.clone(), v.clone())).collect());
    recorded.flatten().into_iter().map(|(field, value)| (field, value.to_string())).collect()
}

/// Returns the metrics without a value, grouped by reason.
fn missing_text(attempt: &Attempt) -> String {
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, metric) in attempt.metrics.iter().filter(|(_, metric)| metric.value.is_none()) {
        missing.entry(metric.reason.as_deref().unwrap_or("no reason is recorded")).or_default().push(name);
    }
    let line = |(reason, names): (&str, Vec<&str>)| {
        format!("missing  {}: {}\n", plain(&names.join(", ")), within_lines(reason))
    };
    missing.into_iter().map(line).collect()
}

/// Returns the run as a document's members.
pub fn show_value(described: &Described) -> Table {
    let Described { run, attempts, tags, notes, origins, running } = described;
    let parts: Table = Part::ALL
        .into_iter()
        .map(|part| {
            let digest = run.parts.digest(part).to_string();
            let table = table_of([("digest", digest.into()), ("value", run.parts.value(part))]);
            (part.name().to_owned(), table.into())
        })
        .collect();
    let attempts = attempts.iter().map(|(id, _, attempt)| match attempt.to_value() {
        Value::Table(mut table) => {
            table.insert("attempt".to_owned(), id.to_string().into());
            Value::Table(table)
        }
        other => other,
    });
    let running = running.iter().map(|attempt| match attempt.to_value() {
        Value::Table(mut table) => {
            table.remove("reason");
            table.insert("outcome".to_owned(), "running".into());
            Value::Table(table)
        }
        other => other,
    });
    table_of([
        ("running", Value::List(running.collect())),
        ("run", run.id.to_string().into()),
        ("parts", parts.into()),
        ("attempts", Value::List(attempts.collect())),
        ("tags", tags.clone().into()),
        ("notes", notes.clone().into()),
        ("origins", Value::List(origins.iter().map(|(id, origin)| origin_value(*id, origin)).collect())),
    ])
}

fn origin_value(id: AttemptId, origin: &Origin) -> Value {
    let verdicts = origin.verdicts.iter().map(|repeated| {
        Value::Table(table_of([
            ("original", repeated.original.to_string().into()),
            ("rerun", repeated.rerun.to_string().into()),
            ("verdict", repeated.verdict.as_str().into()),
            ("detail", repeated.detail.as_str().into()),
            ("unix_ms", repeated.unix_ms.into()),
        ]))
    });
    Value::Table(table_of([
        ("attempt", id.to_string().into()),
        ("imported", origin.is_imported.into()),
        ("verdicts", Value::List(verdicts.collect())),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;

    #[test]
    fn quantities_have_readable_units_and_each_reason_is_shown_once() {
        let metric = |value, unit: &str| Metric::new(value, unit);
        let attempt = Attempt {
            metrics: BTreeMap::from([
                ("accuracy".to_owned(), metric(0.03, "")),
                ("edp".to_owned(), Metric::missing("J·s", "no counter")),
                ("energy".to_owned(), Metric::missing("J", "no counter")),
                ("energy_total".to_owned(), Metric::within(12_345.0, 617.0, "J")),
                ("gpu_mem_peak".to_owned(), metric(3_221_225_472.0, "B")),
                ("gpu_util".to_owned(), metric(71.5, "%")),
                ("power_idle".to_owned(), Metric::missing("W", "no phase `idle`")),
                ("step_time".to_owned(), metric(2.605e-5, "s")),
            ]),
            ..Attempt::sample()
        };
        insta::assert_snapshot!(content_text("abcd", &attempt, None), @r"
          METRIC                 VALUE
          accuracy                0.03
          energy_total  12.3 kJ ± 5.0%
          gpu_mem_peak           3 GiB
          gpu_util              71.5 %
          step_time           26.05 µs
        missing  edp, energy: no counter
        missing  power_idle: no phase `idle`
        recorded, not hashed
          FIELD  VALUE
        ");
        let with = |name: &str, value: i64| {
            let facts = attempt.facts.iter().map(|(k, v)| (k.clone(), v.clone()));
            let facts = facts.chain([("host".to_owned(), "h".into()), (name.to_owned(), value.into())]).collect();
            Attempt { facts, ..attempt.clone() }
        };
        let (first, other) = (with("a", 1), with("b", 2));
        let text = content_text("abcd", &other, Some(("0123", &first)));
        let text = text.split_once("recorded, ").unwrap().1;
        assert_eq!(text, "not hashed; other fields are as in 0123\n  FIELD  VALUE\n  a      -\n  b      2\n");
    }
}
