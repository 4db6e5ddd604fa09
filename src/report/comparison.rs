//! Several attempts side by side, as text and as a document.

use super::document::table_of;
use super::live::fitted;
use super::number::significant;
use super::table::columns;
use super::units;
use crate::analysis::{Kind, SideBySide, SideLine};
use crate::record::{Table, Value};

/// Longer texts are truncated to this many characters.
const WIDEST: usize = 40;

/// Formats the values of a row with as few digits as distinguish different values.
pub(super) fn shown_all(values: &[Option<Value>]) -> Vec<String> {
    let of = |digits: usize| -> Vec<String> { values.iter().map(|value| shown(value.as_ref(), digits)).collect() };
    let is_alike = |short: &Vec<String>| {
        let alike = |a: usize, b: usize| short[a] == short[b] && values[a] != values[b];
        (0..short.len()).any(|a| (0..a).any(|b| alike(a, b)))
    };
    let whole = || values.iter().map(|value| value.as_ref().map_or_else(|| "-".to_owned(), Value::to_string)).collect();
    [4, 6, 9, 12].into_iter().map(of).find(|short| !is_alike(short)).unwrap_or_else(whole)
}

fn shown(value: Option<&Value>, digits: usize) -> String {
    let text = match value {
        None => return "-".to_owned(),
        Some(Value::Float(number)) if digits == 4 => significant(*number),
        Some(Value::Float(number)) => to_digits(*number, digits),
        Some(other) => other.to_string(),
    };
    fitted(&text, Some(WIDEST))
}

/// Formats a number rounded to `digits` significant digits.
fn to_digits(number: f64, digits: usize) -> String {
    let rounded = format!("{number:.*e}", digits - 1).parse().unwrap_or(number);
    Value::Float(rounded).to_string()
}

/// Scales a metric in bytes to the unit that suits its largest value; other lines stay as they are.
fn in_readable_unit(line: &SideLine) -> SideLine {
    if line.unit != "B" {
        return line.clone();
    }
    let number = |value: &Value| value.as_float();
    let largest = line.values.iter().flatten().filter_map(number).fold(0.0, |most: f64, value| most.max(value.abs()));
    let shown = units::shown(&line.unit, Kind::Level, largest);
    let scaled = |value: &Option<Value>| {
        value.as_ref().map(|value| number(value).map_or_else(|| value.clone(), |one| (one * shown.factor).into()))
    };
    SideLine { unit: shown.unit.clone(), values: line.values.iter().map(scaled).collect(), ..line.clone() }
}

/// Whether a line is shown without `all`: its values differ, or it is an objective.
fn is_told(sides: &SideBySide, line: &SideLine) -> bool {
    let objective = sides.recorded.iter().find(|one| one.name == "objective.metric");
    let mut objectives = objective.iter().flat_map(|one| one.values.iter().flatten());
    line.differs() || objectives.any(|value| value.as_str() == Some(&line.name))
}

/// Returns a table with attempts in columns, and fields and metrics in rows.
/// Without `all`, it has only the objectives and what differs in identity or metrics; recorded fields are left out.
pub fn compare_text(sides: &SideBySide, names: &[String], all: bool) -> String {
    let mut text = String::new();
    let sides_heads: Vec<String> = names.iter().map(|name| format!("<{name}")).collect();
    let sections = [("IDENTITY", &sides.identity), ("METRIC", &sides.metrics), ("RECORDED", &sides.recorded)];
    for (head, lines) in sections.into_iter().take(if all { 3 } else { 2 }) {
        let rows = lines.iter().filter(|line| all || is_told(sides, line)).map(in_readable_unit).map(|line| {
            let mark = |at: usize| if line.best.contains(&at) { " *" } else { "" };
            let mut row = vec![line.name.clone()];
            row.extend(shown_all(&line.values).into_iter().enumerate().map(|(at, text)| format!("{text}{}", mark(at))));
            row.extend((head == "METRIC").then(|| line.unit.clone()));
            row
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let mut heads: Vec<&str> = vec![head];
        heads.extend(sides_heads.iter().map(String::as_str));
        heads.extend((head == "METRIC").then_some("UNIT"));
        text.push_str(&columns(&heads, rows));
    }
    if ![&sides.identity, &sides.metrics].into_iter().flatten().any(SideLine::differs) {
        text.push_str("no part of the identity and no metric differs\n");
    } else if sides.metrics.iter().any(|line| !line.best.is_empty() && (all || line.differs())) {
        text.push_str("* the best value of the row; invalid values do not count\n");
    }
    for (name, taints) in names.iter().zip(&sides.taints).filter(|(_, taints)| !taints.is_empty()) {
        text.push_str(&tainted(name, taints));
    }
    text
}

/// Returns a line that an attempt is tainted, with the reasons.
pub(super) fn tainted(name: &str, taints: &[String]) -> String {
    format!("{name} is tainted: {}\n", taints.join("; "))
}

fn line_value(line: &SideLine) -> Value {
    // JSON cannot leave out an element of a list, so values are an object by position.
    let values = line.values.iter().enumerate().filter_map(|(at, value)| Some((at.to_string(), value.clone()?)));
    let mut table = table_of([
        ("name", line.name.as_str().into()),
        ("values", Value::Table(values.collect())),
        ("differs", line.differs().into()),
    ]);
    if !line.unit.is_empty() {
        table.insert("unit".to_owned(), line.unit.as_str().into());
    }
    if !line.best.is_empty() {
        table.insert("best".to_owned(), line.best.clone().into());
    }
    Value::Table(table)
}

/// Returns the comparison as a document's members; the values of a line are keyed by the position of the attempt.
pub fn compare_value(sides: &SideBySide, attempts: &[(String, String)], all: bool) -> Table {
    let lines = |lines: &[SideLine]| {
        Value::List(lines.iter().filter(|line| all || is_told(sides, line)).map(line_value).collect())
    };
    let attempt = |((run, attempt), taints): (&(String, String), &Vec<String>)| {
        let mut table = table_of([("run", run.as_str().into()), ("attempt", attempt.as_str().into())]);
        table.extend((!taints.is_empty()).then(|| ("tainted".to_owned(), taints.clone().into())));
        Value::Table(table)
    };
    table_of([
        ("attempts", Value::List(attempts.iter().zip(&sides.taints).map(attempt).collect())),
        ("identity", lines(&sides.identity)),
        ("metrics", lines(&sides.metrics)),
        ("recorded", lines(&sides.recorded)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_a_unit_that_fits_and_an_equal_objective_is_shown() {
        let line = |name: &str, unit: &str, values: [Value; 2]| SideLine {
            name: name.to_owned(),
            unit: unit.to_owned(),
            values: values.map(Some).to_vec(),
            best: Vec::new(),
        };
        let sides = SideBySide {
            metrics: vec![
                line("accuracy", "", [0.5.into(), 0.5.into()]),
                line("energy", "J", [2.0.into(), 2.0.into()]),
                line("host_mem_peak", "B", [15_421_440.0.into(), 15_831_040.0.into()]),
            ],
            recorded: vec![line("objective.metric", "", ["accuracy".into(), "accuracy".into()])],
            taints: vec![Vec::new(); 2],
            ..SideBySide::default()
        };
        let text = compare_text(&sides, &["a".to_owned(), "b".to_owned()], false);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            words[1..],
            [vec!["accuracy", "0.5", "0.5"], vec!["host_mem_peak", "14.71", "15.1", "MiB"]],
            "{text}"
        );
    }

    #[test]
    fn different_values_are_never_shown_with_equal_digits() {
        let line = |values: [f64; 2]| SideLine {
            name: "training.learning_rate".to_owned(),
            unit: String::new(),
            values: values.map(|value| Some(value.into())).to_vec(),
            best: Vec::new(),
        };
        let text = |values: [f64; 2]| {
            let sides =
                SideBySide { identity: vec![line(values)], taints: vec![Vec::new(); 2], ..SideBySide::default() };
            compare_text(&sides, &["a".to_owned(), "b".to_owned()], false)
        };
        assert!(text([0.1, 0.100_001]).contains("0.1  0.100001"), "{}", text([0.1, 0.100_001]));
        assert!(text([0.1, 0.123_456]).contains("0.1  0.1235"), "as short as they may be");
        assert!(text([49.998_377_548_594_39, 50.001_018_118_116_14]).contains("49.9984  50.001"), "not all digits");
    }
}
