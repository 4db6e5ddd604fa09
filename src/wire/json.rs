//! Values as JSON and back.

use ledger_record::{Value, is_invisible};
use serde_json::{Number, Value as Json};

/// JSON that cannot be converted to a value.
#[derive(Debug, thiserror::Error)]
pub enum JsonFault {
    /// The text is not JSON.
    #[error("{0}")]
    Syntax(#[from] serde_json::Error),
    /// `null`, or a number beyond `i64` and `f64`.
    #[error("`{0}` is not a value (text, numbers, true, false, lists and tables are)")]
    NoValue(String),
}

/// Converts a value to JSON. Non-finite numbers become the texts `"NaN"`, `"Infinity"` and `"-Infinity"`.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::Number((*value).into()),
        Value::Float(value) => float_json(*value),
        Value::Str(value) => Json::String(value.clone()),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Table(table) => Json::Object(table.iter().map(|(key, value)| (key.clone(), to_json(value))).collect()),
    }
}

pub(super) fn float_json(value: f64) -> Json {
    Number::from_f64(value).map_or_else(|| Json::String(non_finite_name(value).to_owned()), Json::Number)
}

fn non_finite_name(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

/// Indented JSON text, ending in a line break.
pub fn to_json_text(value: &Value) -> String {
    seen(format!("{:#}\n", to_json(value)))
}

/// JSON text on one line, without a line break.
pub fn to_json_line(value: &Value) -> String {
    seen(to_json(value).to_string())
}

/// Escapes invisible characters beyond ASCII, which terminals interpret and JSON itself does not escape.
fn seen(text: String) -> String {
    let is_raw = |c: char| !c.is_ascii() && is_invisible(c);
    if !text.contains(is_raw) {
        return text;
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_raw(c) {
            // Such characters occur only in strings.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| clean.push_str(&format!("\\u{unit:04x}")));
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Parses a value from JSON text. Whole numbers stay whole, and `1.0` stays real. A number from 2^63 to 2^64 - 1 becomes text.
pub fn from_json(text: &str) -> Result<Value, JsonFault> {
    value_of(serde_json::from_str(text)?)
}

pub(super) fn value_of(json: Json) -> Result<Value, JsonFault> {
    Ok(match json {
        Json::Bool(value) => Value::Bool(value),
        Json::String(value) => Value::Str(value),
        Json::Array(items) => Value::List(items.into_iter().map(value_of).collect::<Result<_, _>>()?),
        Json::Object(map) => {
            let fields = map.into_iter().map(|(key, value)| Ok((key, value_of(value)?)));
            Value::Table(fields.collect::<Result<_, JsonFault>>()?)
        }
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(int), ..) => Value::Int(int),
            // As a real number it would be rounded.
            (None, Some(large), _) => Value::Str(large.to_string()),
            (None, None, Some(float)) => Value::Float(float),
            (None, None, None) => return Err(JsonFault::NoValue(number.to_string())),
        },
        Json::Null => return Err(JsonFault::NoValue("null".to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            prop::num::f64::NORMAL.prop_map(Value::Float),
            ".{0,8}".prop_map(Value::Str),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                prop::collection::btree_map(".{0,4}", inner, 0..4).prop_map(Value::Table),
            ]
        })
    }

    #[test]
    fn no_json_moves_the_cursor_of_a_terminal() {
        let hostile = Value::from("a\u{1b}[2J\u{9b}1A\u{202e}b\u{e0041}é");
        let (line, text) = (to_json_line(&hostile), to_json_text(&hostile));
        assert_eq!(line, "\"a\\u001b[2J\\u009b1A\\u202eb\\udb40\\udc41é\"");
        assert_eq!(text.trim_end(), line);
        assert_eq!(from_json(&line).unwrap(), hostile);
    }

    proptest! {
        #[test]
        fn finite_values_round_trip(value in value()) {
            prop_assert_eq!(from_json(&to_json_line(&value)).unwrap().digest(), value.digest());
            prop_assert_eq!(from_json(&to_json_text(&value)).unwrap(), value);
        }

        #[test]
        fn rubbish_never_panics(text in ".{0,60}") {
            let _ = from_json(&text);
        }
    }

    #[test]
    fn kinds_of_numbers_are_kept_and_non_finite_ones_have_names() {
        assert_eq!(from_json("1").unwrap(), Value::Int(1));
        assert_eq!(from_json("1.0").unwrap(), Value::Float(1.0));
        assert_eq!(from_json("9223372036854775807").unwrap(), Value::Int(i64::MAX));
        for large in ["9223372036854775808", "18446744073709551615"] {
            assert_eq!(from_json(large).unwrap(), Value::from(large));
        }
        assert_eq!(to_json_line(&Value::Float(f64::NEG_INFINITY)), "\"-Infinity\"");
        assert!(from_json("null").is_err());
        assert!(from_json(&"[".repeat(100_000)).is_err());
    }
}
