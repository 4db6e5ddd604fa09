//! The JSON Schema of manifests, generated from the field table.

use super::field::{Field, Interval, Kind, Preset};
use super::table::{FIELDS, MODELS, sections};
use crate::record::{Table, Value};

/// Returns the JSON Schema (draft 2020-12) of manifests, for editors and other programs.
///
/// It covers keys, types, ranges and choices. Rules that span several keys are checked only when a manifest is loaded.
pub fn schema() -> Value {
    let mut properties = Table::new();
    for field in writable().filter(|field| field.section().is_empty()) {
        properties.insert(field.key.to_owned(), property(field));
    }
    for section in sections() {
        if section == "repeats" {
            // An integer or a table of bounds. JSON Schema applies numeric keywords to numbers only, likewise for objects.
            let (Some(Value::Table(both)), Value::Table(table)) =
                (properties.get_mut(section), section_schema(section))
            else {
                continue;
            };
            both.extend(table);
            both.insert("type".to_owned(), list(["integer", "object"]));
            continue;
        }
        properties.insert(section.to_owned(), section_schema(section));
    }
    let no_program = table([("not", table([("required", list(["program"]))]))]);
    let names = table([("name", any_or_list(&table([("enum", list(MODELS.iter().copied()))])))]);
    let model = table([("required", list(["name"])), ("properties", names)]);
    let built_in = table([
        ("required", list(["model", "training"])),
        (
            "properties",
            table([
                ("model", model),
                ("training", table([("required", list(["learning_rate"]))])),
                ("params", false.into()),
            ]),
        ),
    ]);
    table([
        ("$schema", "https://json-schema.org/draft/2020-12/schema".into()),
        ("title", "ledger manifest".into()),
        ("description", "One experiment; a list of values is an axis of its grid.".into()),
        ("type", "object".into()),
        ("additionalProperties", false.into()),
        ("properties", properties.into()),
        ("if", no_program),
        ("then", built_in),
    ])
}

fn writable() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| field.is_writable())
}

fn section_schema(section: &str) -> Value {
    let mut schema: Table = [("type".to_owned(), "object".into())].into();
    if section == "params" {
        let names = table([("pattern", "^[A-Za-z0-9_-]{1,100}$".into())]);
        schema.insert("propertyNames".to_owned(), names);
        schema.insert("additionalProperties".to_owned(), any_or_list(&scalar(Kind::Scalar)));
        return schema.into();
    }
    let fields = || writable().filter(|field| field.section() == section);
    let leaf = |field: &Field| field.key.rsplit('.').next().unwrap_or_default().to_owned();
    let properties: Table = fields().map(|field| (leaf(field), property(field))).collect();
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("additionalProperties".to_owned(), false.into());
    if section == "program" {
        schema.insert("required".to_owned(), list(["command"]));
    } else if section == "repeats" {
        schema.insert("required".to_owned(), list(["until"]));
    } else if section == "objective" {
        schema.insert("required".to_owned(), list(["metric"]));
    }
    schema.into()
}

fn property(field: &Field) -> Value {
    let one = scalar(field.kind);
    let mut schema = match if field.axis { any_or_list(&one) } else { one } {
        Value::Table(schema) => schema,
        _ => Table::new(),
    };
    let applies = field.when.map_or_else(String::new, |when| format!(" (applies where {when})"));
    schema.insert("description".to_owned(), format!("{}{applies}", field.meaning).into());
    if let Preset::Is(constant) = field.preset {
        schema.insert("default".to_owned(), constant.into());
    }
    if field.key == "program.command" {
        schema.insert("minItems".to_owned(), Value::Int(1));
    }
    schema.into()
}

fn scalar(kind: Kind) -> Value {
    match kind {
        Kind::Text { max, lines } => {
            let mut schema: Table = [("type".to_owned(), "string".into()), ("maxLength".to_owned(), max.into())].into();
            if !lines {
                schema.insert("minLength".to_owned(), Value::Int(1));
            }
            schema.into()
        }
        Kind::Word { max } => {
            table([("type", "string".into()), ("maxLength", max.into()), ("pattern", "^\\S+$".into())])
        }
        Kind::Flag => table([("type", "boolean".into())]),
        Kind::Choice(words) => table([("enum", list(words.iter().copied()))]),
        Kind::Known(_) => table([("type", "string".into()), ("pattern", "^[a-z0-9_.-]{1,200}$".into())]),
        Kind::Int { min, max } => {
            let mut schema: Table = [("type".to_owned(), "integer".into()), ("minimum".to_owned(), min.into())].into();
            if max != i64::MAX {
                schema.insert("maximum".to_owned(), max.into());
            }
            schema.into()
        }
        Kind::OneOf(numbers) => table([("enum", numbers.to_vec().into())]),
        Kind::Real(interval) => {
            let mut schema: Table = [("type".to_owned(), "number".into())].into();
            let mut bound = |name: &str, value: f64| schema.insert(name.to_owned(), value.into());
            match interval {
                Interval::Any => {}
                Interval::Positive => drop(bound("exclusiveMinimum", 0.0)),
                Interval::UpTo(top) => drop((bound("exclusiveMinimum", 0.0), bound("maximum", top))),
                Interval::Below(top) => drop((bound("minimum", 0.0), bound("exclusiveMaximum", top))),
            }
            schema.into()
        }
        Kind::Seed => table([(
            "anyOf",
            Value::List(vec![
                table([("type", "integer".into()), ("minimum", Value::Int(0))]),
                table([("type", "string".into()), ("pattern", "^[0-9]{1,20}$".into())]),
            ]),
        )]),
        Kind::Texts | Kind::Binds => table([("type", "array".into()), ("items", table([("type", "string".into())]))]),
        Kind::Counts { max, most } => table([
            ("type", "array".into()),
            ("items", scalar(Kind::Int { min: 1, max })),
            ("minItems", Value::Int(1)),
            ("maxItems", most.into()),
            ("uniqueItems", true.into()),
        ]),
        Kind::Grid(words) => {
            let item = if words.ends_with("tables") {
                table([("type", "object".into()), ("minProperties", Value::Int(1))])
            } else {
                table([
                    ("type", "array".into()),
                    ("items", table([("type", "string".into())])),
                    ("minItems", Value::Int(2)),
                    ("uniqueItems", true.into()),
                ])
            };
            table([("type", "array".into()), ("items", item)])
        }
        Kind::Patterns => {
            let pattern = table([("type", "string".into()), ("minLength", Value::Int(1))]);
            let members = table([
                ("pattern", pattern.clone()),
                ("series", table([("type", "boolean".into())])),
                ("unit", table([("type", "string".into())])),
                ("kind", table([("enum", list(["outcome", "measured"]))])),
            ]);
            let full = table([
                ("type", "object".into()),
                ("properties", members),
                ("required", list(["pattern"])),
                ("additionalProperties", false.into()),
            ]);
            let each = table([("anyOf", Value::List(vec![pattern, full]))]);
            table([("type", "object".into()), ("additionalProperties", each)])
        }
        Kind::Scalar => table([("type", list(["boolean", "number", "string"]))]),
    }
}

/// Returns the schema of a value or a list of such values, which is an axis.
fn any_or_list(one: &Value) -> Value {
    // Items need not be unique, because a zip may vary another axis with them.
    let many = table([("type", "array".into()), ("items", one.clone()), ("minItems", Value::Int(1))]);
    table([("anyOf", Value::List(vec![one.clone(), many]))])
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).into())
}

fn list(words: impl IntoIterator<Item = &'static str>) -> Value {
    words.into_iter().collect::<Vec<_>>().into()
}
