//! Several attempts side by side, as text and as a document.

use super::document::table_of;
use super::number::significant;
use super::table::columns;
use crate::analysis::{SideBySide, SideLine};
use crate::record::{Table, Value};

/// Longer texts are cut.
const WIDEST: usize = 40;

/// The values of a row, with as few digits as tell different ones apart.
fn shown_all(values: &[Option<Value>]) -> Vec<String> {
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
    if text.chars().count() <= WIDEST {
        return text;
    }
    text.chars().take(WIDEST - 1).chain(['…']).collect()
}

/// A number, rounded to `digits` significant digits.
fn to_digits(number: f64, digits: usize) -> String {
    let rounded = format!("{number:.*e}", digits - 1).parse().unwrap_or(number);
    Value::Float(rounded).to_string()
}

/// Attempts in columns, fields and metrics in rows; without `all` only those that differ, and nothing of what is recorded only.
pub fn compare_text(sides: &SideBySide, names: &[String], all: bool) -> String {
    let mut text = String::new();
    let sides_heads: Vec<String> = names.iter().map(|name| format!("<{name}")).collect();
    let sections = [("IDENTITY", &sides.identity), ("METRIC", &sides.metrics), ("RECORDED", &sides.recorded)];
    for (head, lines) in sections.into_iter().take(if all { 3 } else { 2 }) {
        let rows = lines.iter().filter(|line| all || line.differs()).map(|line| {
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
    if text.is_empty() {
        text.push_str("no part of the identity and no metric differs\n");
    } else if sides.metrics.iter().any(|line| !line.best.is_empty() && (all || line.differs())) {
        text.push_str("* the best value of the row; invalid values do not count\n");
    }
    for (name, taints) in names.iter().zip(&sides.taints).filter(|(_, taints)| !taints.is_empty()) {
        text.push_str(&tainted(name, taints));
    }
    text
}

/// That numbers of an attempt are not to be believed, in a line.
pub(super) fn tainted(name: &str, taints: &[String]) -> String {
    format!("{name} is tainted: {}\n", taints.join("; "))
}

fn line_value(line: &SideLine) -> Value {
    // JSON has a place for what is missing only in an object.
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

/// The comparison as a document's members: each line's values by the position of the attempt.
pub fn compare_value(sides: &SideBySide, attempts: &[(String, String)], all: bool) -> Table {
    let lines =
        |lines: &[SideLine]| Value::List(lines.iter().filter(|line| all || line.differs()).map(line_value).collect());
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
    fn values_that_differ_are_not_shown_alike() {
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
