//! The standard fields of cells, used to check names and types in imported tables.
//!
//! Limits of the built-in trainer do not apply: other programs have other optimizers, more classes or longer samples.

use super::fault::{nearest, shown};
use super::field::{Field, Interval, Kind, Role};
use super::table::FIELDS;
use crate::record::Value;

/// Tables whose fields are part of the identity.
const SECTIONS: [&str; 5] = ["model", "data", "training", "inference", "hardware"];

/// The classification of a dotted name.
#[derive(Clone, Copy, Debug)]
pub enum Standard {
    /// A field of manifests.
    Field(&'static Field),
    /// Not a field of manifests, but similar to this one in spelling or table.
    Misspelled(&'static str),
    /// A user-defined field.
    Own {
        /// Whether it is in a table of standard fields.
        among_standard: bool,
    },
}

fn known() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| SECTIONS.contains(&field.section()) && field.role != Role::Constant)
}

fn leaf(field: &Field) -> &'static str {
    field.key.rsplit('.').next().unwrap_or_default()
}

/// Classifies a dotted name.
pub fn standard(name: &str) -> Standard {
    if let Some(field) = FIELDS.iter().find(|field| field.key == name && SECTIONS.contains(&field.section())) {
        return Standard::Field(field);
    }
    let Some((section, rest)) = name.split_once('.') else { return Standard::Own { among_standard: false } };
    let within = |section: &str, rest: &str| {
        let meant = nearest(rest, known().filter(|field| field.section() == section).map(leaf))?;
        known().find(|field| field.section() == section && leaf(field) == meant).map(|field| field.key)
    };
    let is_standard = SECTIONS.contains(&section);
    let meant = if is_standard {
        within(section, rest).or_else(|| known().find(|field| leaf(field) == rest).map(|field| field.key))
    } else if section == "params" {
        None
    } else {
        // In other tables, only the table's name can be misspelled.
        let near = nearest(section, SECTIONS);
        near.and_then(|near| known().find(|field| field.section() == near && leaf(field) == rest))
            .map(|field| field.key)
    };
    meant.map_or(Standard::Own { among_standard: is_standard }, Standard::Misspelled)
}

/// Returns the standard field with this name without its table, such as `batch_size`.
pub fn without_table(name: &str) -> Option<&'static str> {
    known().find(|field| leaf(field) == name).map(|field| field.key)
}

impl Field {
    /// Whether its values are numbers.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Int { .. } | Kind::OneOf(_) | Kind::Real(_))
    }

    /// Whether its values are `true` and `false`.
    pub fn is_flag(&self) -> bool {
        matches!(self.kind, Kind::Flag)
    }

    /// Converts a value to the field's type: for an integer `64.0` becomes `64`, for a float `1` becomes `1.0`.
    ///
    /// # Errors
    /// The fault, phrased to follow the field's name.
    pub fn typed(&self, value: &Value) -> Result<Value, String> {
        let wrong = |expected: String| Err(format!("is {} (it must be {expected})", shown(&value.to_string())));
        match self.kind {
            Kind::Text { .. } | Kind::Word { .. } | Kind::Known(_) | Kind::Choice(_) => match value {
                Value::Str(_) => Ok(value.clone()),
                _ => wrong("text; type = \"text\" makes text of a number".to_owned()),
            },
            Kind::Flag => match value {
                Value::Bool(_) => Ok(value.clone()),
                _ => wrong("true or false".to_owned()),
            },
            Kind::Int { min, .. } => {
                let least = min.clamp(0, 1);
                whole(value)
                    .filter(|number| *number >= least)
                    .map(Value::Int)
                    .map_or_else(|| wrong(format!("a whole number from {least}")), Ok)
            }
            Kind::OneOf(_) => match whole(value).filter(|number| *number >= 1) {
                Some(number) => Ok(Value::Int(number)),
                None => wrong("a whole number from 1".to_owned()),
            },
            Kind::Real(interval) => real(value, interval).map_or_else(|| wrong(interval.to_string()), Ok),
            _ => Ok(value.clone()),
        }
    }
}

fn real(value: &Value, interval: Interval) -> Option<Value> {
    let number = value.as_float().filter(|number| interval.contains(*number))?;
    Some(Value::Float(number))
}

/// Returns the integer that a value represents, if it does.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Float(number) => {
            #[expect(clippy::cast_possible_truncation, reason = "compared below")]
            let whole = *number as i64;
            (Value::Int(whole).as_float() == Some(*number)).then_some(whole)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(name: &str) -> Option<&'static str> {
        match standard(name) {
            Standard::Misspelled(meant) => Some(meant),
            _ => None,
        }
    }

    #[test]
    fn misspelled_standard_fields_are_found_and_other_names_are_free() {
        for (name, expected) in [
            ("training.batchsize", "training.batch_size"),
            ("training.lr", "training.learning_rate"),
            ("hardware.gpu", "hardware.gpus"),
            ("trainng.batch_size", "training.batch_size"),
            ("hardware.batch_size", "training.batch_size"),
        ] {
            assert_eq!(meant(name), Some(expected), "{name}");
        }
        for own in ["params.batchsize", "extra.batch_size", "net", "batch_size", "objective.target"] {
            assert!(matches!(standard(own), Standard::Own { among_standard: false }), "{own}");
        }
        assert!(matches!(standard("model.depth"), Standard::Own { among_standard: true }));
        assert!(matches!(standard("training.batch_size"), Standard::Field(field) if field.is_number()));
        assert_eq!(without_table("batch_size"), Some("training.batch_size"));
    }

    #[test]
    fn values_have_the_type_of_their_field() {
        let typed = |name: &str, value: Value| match standard(name) {
            Standard::Field(field) => field.typed(&value),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(typed("training.batch_size", 64.0.into()), Ok(64i64.into()));
        assert_eq!(
            typed("training.batch_size", 0.01.into()),
            Err("is 0.01 (it must be a whole number from 1)".to_owned())
        );
        assert_eq!(typed("training.learning_rate", 1i64.into()), Ok(1.0.into()));
        assert!(typed("training.learning_rate", f64::NAN.into()).is_err());
        assert_eq!(typed("hardware.gpus", 8i64.into()), Ok(8i64.into()), "not only as many as the trainer takes");
        assert_eq!(typed("training.optimizer", "adadelta".into()), Ok("adadelta".into()));
        assert!(typed("training.precision", 16i64.into()).unwrap_err().contains("type = \"text\""));
        assert_eq!(typed("data.width", 4096i64.into()), Ok(4096i64.into()));
        assert!(typed("training.deterministic", 1i64.into()).is_err());
        assert_eq!(typed("data.seed", 0i64.into()), Ok(0i64.into()));
        assert!(typed("training.epochs", 1e300.into()).is_err());
    }
}
