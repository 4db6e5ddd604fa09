//! What differs, as text and as a document.

use super::document::table_of;
use super::number::significant;
use super::table::columns;
use crate::analysis::{Difference, FieldDifference, PartDifference};
use crate::record::{Table, Value};

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), Value::to_string)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), significant)
}

fn fields_text(fields: &[FieldDifference], a: &str, b: &str) -> String {
    let rows =
        fields.iter().map(|field| vec![format!("  {}", field.field), shown(field.a.as_ref()), shown(field.b.as_ref())]);
    columns(&["  FIELD", a, b], rows)
}

/// Why two runs have different ids.
pub fn why_text(parts: &[PartDifference], a: &str, b: &str) -> String {
    if parts.is_empty() {
        return format!("{a} and {b} are one run: all seven parts of the identity are equal\n");
    }
    let mut text = String::new();
    for part in parts {
        text.push_str(&format!("{} differs:\n{}", part.part, fields_text(&part.fields, a, b)));
    }
    text
}

fn fields_value(fields: &[FieldDifference]) -> Value {
    let item = |field: &FieldDifference| {
        let mut table = table_of([("field", field.field.as_str().into())]);
        for (side, value) in [("a", &field.a), ("b", &field.b)] {
            if let Some(value) = value {
                table.insert(side.to_owned(), value.clone());
            }
        }
        Value::Table(table)
    };
    Value::List(fields.iter().map(item).collect())
}

fn parts_value(parts: &[PartDifference]) -> Value {
    let item = |part: &PartDifference| {
        Value::Table(table_of([("part", part.part.name().into()), ("fields", fields_value(&part.fields))]))
    };
    Value::List(parts.iter().map(item).collect())
}

/// The reasons as a document's members.
pub fn why_value(parts: &[PartDifference]) -> Table {
    table_of([("same_run", parts.is_empty().into()), ("parts", parts_value(parts))])
}

/// All that differs between two attempts.
pub fn diff_text(difference: &Difference, a: &str, b: &str) -> String {
    if difference.is_empty() {
        return format!("{a} and {b} do not differ in anything that is recorded\n");
    }
    let mut text = String::new();
    if difference.parts.is_empty() {
        text.push_str("identity: one run\n");
    } else {
        text.push_str(&why_text(&difference.parts, a, b));
    }
    if !difference.environment.is_empty() {
        text.push_str("recorded, not hashed:\n");
        text.push_str(&fields_text(&difference.environment, a, b));
    }
    if !difference.metrics.is_empty() {
        text.push_str("metrics:\n");
        let rows = difference.metrics.iter().map(|metric| {
            let relative = metric.relative().map_or_else(|| "-".to_owned(), |share| format!("{:+.1}%", share * 100.0));
            vec![
                format!("  {}", metric.name),
                number(metric.a),
                number(metric.b),
                number(metric.absolute()),
                relative,
                metric.unit.clone(),
            ]
        });
        text.push_str(&columns(&["  METRIC", &format!(">{a}"), &format!(">{b}"), ">B-A", ">SHARE", "UNIT"], rows));
    }
    if !difference.curves.is_empty() {
        text.push_str("curves:\n");
        let rows = difference.curves.iter().map(|curve| {
            vec![
                format!("  {}", curve.name),
                curve.first_step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
                number(curve.values.0),
                number(curve.values.1),
                significant(curve.max_distance),
            ]
        });
        let heads = ["  CURVE", ">PARTS AT STEP", &format!(">{a}"), &format!(">{b}"), ">MOST APART"];
        text.push_str(&columns(&heads, rows));
    }
    for name in &difference.digests {
        text.push_str(&format!("the digest of `{name}` differs\n"));
    }
    text
}

/// The differences as a document's members.
pub fn diff_value(difference: &Difference) -> Table {
    let optional = |pairs: Vec<(&str, Option<f64>)>, mut table: Table| {
        for (name, value) in pairs {
            if let Some(value) = value {
                table.insert(name.to_owned(), value.into());
            }
        }
        Value::Table(table)
    };
    let metrics = difference.metrics.iter().map(|metric| {
        let table = table_of([("name", metric.name.as_str().into()), ("unit", metric.unit.as_str().into())]);
        let pairs =
            vec![("a", metric.a), ("b", metric.b), ("absolute", metric.absolute()), ("relative", metric.relative())];
        optional(pairs, table)
    });
    let curves = difference.curves.iter().map(|curve| {
        let mut table = table_of([
            ("name", curve.name.as_str().into()),
            ("max_distance", curve.max_distance.into()),
            ("common_steps", curve.common.into()),
        ]);
        if let Some(step) = curve.first_step {
            table.insert("first_step".to_owned(), step.into());
        }
        optional(vec![("a", curve.values.0), ("b", curve.values.1)], table)
    });
    table_of([
        ("parts", parts_value(&difference.parts)),
        ("environment", fields_value(&difference.environment)),
        ("metrics", Value::List(metrics.collect())),
        ("curves", Value::List(curves.collect())),
        ("digests", difference.digests.clone().into()),
    ])
}
