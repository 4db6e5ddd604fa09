//! The fields of an attempt for conditions, in few bytes that are read in order. Names are stored apart from values,
//! since many attempts have the same names. It is derived from the records, so its format may change with the indexes' version.

use super::v1::{WireError, decode, encode};
use bincode::{Decode, Encode};
use ledger_record::{Attempt, Kind, Names, Run, Value, each_fact, each_field};
use std::ops::{ControlFlow, Range};

/// The names of an attempt, and the order of its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// The names.
    pub names: Names,
    /// The names that have a value, in the order of the values. If a name occurs twice, the first occurrence is valid.
    pub valued: Vec<String>,
    /// The positions of the metrics among these.
    metrics: Range<usize>,
}

#[derive(Encode, Decode, Default)]
struct ShapeV1 {
    identity: Vec<String>,
    metrics: Vec<String>,
    settings: Vec<String>,
    facts: Vec<String>,
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// There is no value.
    Nothing,
    /// The value.
    Is(Value),
    /// The value is too long, or is a list or a table: it is only in the record.
    Unsaid,
}

/// The longest stored text, in bytes.
const MOST_TEXT: usize = 256;

const NOTHING: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const TEXT: u8 = 5;
const UNSAID: u8 = 6;
const SMALL_INT: u8 = 7;
const MIDDLE_INT: u8 = 8;

/// The largest size of an attempt's names and values together. Larger ones are only in the record.
const MOST_BYTES: usize = 256 << 10;

/// Encodes the shape of an attempt and its values. Both are empty if they would take more than 256 KiB.
///
/// # Errors
/// If there are more names than a record may have.
pub fn encode_brief(run: &Run, attempt: &Attempt) -> Result<(Vec<u8>, Vec<u8>), WireError> {
    let mut shape = ShapeV1::default();
    let mut values = Vec::with_capacity(512);
    let mut of_names = 0;
    let bounded = |bytes: usize| if bytes > MOST_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let mut is_all = each_field(run, attempt, &mut |kind, name, value| {
        let names = match kind {
            Kind::Identity => &mut shape.identity,
            Kind::Metric => &mut shape.metrics,
            Kind::Setting => &mut shape.settings,
        };
        put(&mut values, value);
        of_names += name.len();
        bounded(of_names + values.len())?;
        names.push(name.to_owned());
        ControlFlow::Continue(())
    });
    if is_all.is_continue() {
        is_all = each_fact(attempt, &mut |name| {
            of_names += name.len();
            bounded(of_names + values.len())?;
            shape.facts.push(name.to_owned());
            ControlFlow::Continue(())
        });
    }
    Ok(if is_all.is_continue() { (encode("names", &shape)?, values) } else { (Vec::new(), Vec::new()) })
}

fn put(out: &mut Vec<u8>, value: Option<&Value>) {
    match value {
        None => out.push(NOTHING),
        Some(Value::Bool(value)) => out.push(if *value { TRUE } else { FALSE }),
        Some(Value::Int(value)) => match (i8::try_from(*value), i32::try_from(*value)) {
            (Ok(small), _) => {
                out.push(SMALL_INT);
                out.extend(small.to_le_bytes());
            }
            (_, Ok(middle)) => {
                out.push(MIDDLE_INT);
                out.extend(middle.to_le_bytes());
            }
            _ => {
                out.push(INT);
                out.extend(value.to_le_bytes());
            }
        },
        Some(Value::Float(value)) => {
            out.push(FLOAT);
            out.extend(value.to_bits().to_le_bytes());
        }
        Some(Value::Str(text)) => match u16::try_from(text.len()) {
            Ok(len) if text.len() <= MOST_TEXT => {
                out.push(TEXT);
                out.extend(len.to_le_bytes());
                out.extend(text.as_bytes());
            }
            _ => out.push(UNSAID),
        },
        Some(Value::List(_) | Value::Table(_)) => out.push(UNSAID),
    }
}

/// Decodes a shape. `None` if the attempt's fields are only in the record.
///
/// # Errors
/// If the bytes are not a shape.
pub fn decode_shape(bytes: &[u8]) -> Result<Option<Shape>, WireError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let ShapeV1 { identity, metrics, settings, facts } = decode("names", bytes)?;
    let places = identity.len()..identity.len() + metrics.len();
    let valued = identity.iter().chain(&metrics).chain(&settings).cloned().collect();
    let names = Names {
        identity: identity.into_iter().collect(),
        metrics: metrics.into_iter().collect(),
        settings: settings.into_iter().collect(),
        facts: facts.into_iter().collect(),
    };
    Ok(Some(Shape { names, valued, metrics: places }))
}

impl Shape {
    /// The position of the value of a full name.
    pub fn place(&self, name: &str) -> Place {
        if let Some(place) = self.valued.iter().position(|valued| valued == name) {
            return Place::At(place);
        }
        // A fact's value is only in the record, and so is a table of which only the fields have names.
        let within = |other: &String| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let is_elsewhere = self.names.facts.contains(name) || self.names.tiers().into_iter().flatten().any(within);
        if is_elsewhere { Place::Elsewhere } else { Place::Nowhere }
    }

    /// The position of the value of a metric, even if a field has the same name.
    pub fn metric(&self, name: &str) -> Place {
        let mut metrics = self.metrics.clone();
        let is_it = |at: &usize| self.valued.get(*at).is_some_and(|valued| valued == name);
        metrics.find(is_it).map_or(Place::Nowhere, Place::At)
    }
}

/// The position of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is no such value.
    Nowhere,
    /// At this position among the values.
    At(usize),
    /// The value is only in the record.
    Elsewhere,
}

/// Positions in reading order, each with its position in the result.
#[derive(Clone, Debug)]
pub struct Wanted {
    start: Vec<Known>,
    places: Vec<(usize, usize)>,
}

impl Wanted {
    /// Creates the list of these positions.
    pub fn new(places: &[Place]) -> Self {
        let start = |place: &Place| if *place == Place::Elsewhere { Known::Unsaid } else { Known::Nothing };
        let at = |(slot, place): (usize, &Place)| if let Place::At(at) = place { Some((*at, slot)) } else { None };
        let start = places.iter().map(start).collect();
        let mut places: Vec<(usize, usize)> = places.iter().enumerate().filter_map(at).collect();
        places.sort_unstable();
        Self { start, places }
    }
}

/// Replaces `found` by the values at the wanted positions, in the order in which these were given.
///
/// # Errors
/// If the bytes are not values, or end before one of the positions.
pub fn decode_values(bytes: &[u8], wanted: &Wanted, found: &mut Vec<Known>) -> Result<(), WireError> {
    const FAULT: WireError = WireError::Shape { what: "values", fault: "they end too early, or are of no known kind" };
    found.clone_from(&wanted.start);
    let mut rest = bytes;
    let mut next = 0;
    // The last value read, which may be wanted twice.
    let mut read: &[u8] = &[];
    for (place, slot) in &wanted.places {
        while next <= *place {
            let (one, after) = split_value(rest).ok_or(FAULT)?;
            read = one;
            rest = after;
            next += 1;
        }
        if let Some(found) = found.get_mut(*slot) {
            *found = known(read).ok_or(FAULT)?;
        }
    }
    Ok(())
}

/// Splits off the first value, with its kind.
fn split_value(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = match *bytes.first()? {
        NOTHING | FALSE | TRUE | UNSAID => 1,
        INT | FLOAT => 9,
        SMALL_INT => 2,
        MIDDLE_INT => 5,
        TEXT => 3 + usize::from(u16::from_le_bytes([*bytes.get(1)?, *bytes.get(2)?])),
        _ => return None,
    };
    bytes.split_at_checked(len)
}

fn known(bytes: &[u8]) -> Option<Known> {
    let (kind, payload) = bytes.split_first()?;
    let value = match *kind {
        NOTHING => return Some(Known::Nothing),
        UNSAID => return Some(Known::Unsaid),
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT => Value::Int(i64::from_le_bytes(payload.try_into().ok()?)),
        SMALL_INT => Value::Int(i8::from_le_bytes(payload.try_into().ok()?).into()),
        MIDDLE_INT => Value::Int(i32::from_le_bytes(payload.try_into().ok()?).into()),
        FLOAT => Value::Float(f64::from_bits(u64::from_le_bytes(payload.try_into().ok()?))),
        _ => Value::Str(str::from_utf8(payload.get(2..)?).ok()?.to_owned()),
    };
    Some(Known::Is(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Option<Value>> {
        prop_oneof![
            Just(None),
            any::<bool>().prop_map(|value| Some(Value::Bool(value))),
            any::<i64>().prop_map(|value| Some(Value::Int(value))),
            any::<i32>().prop_map(|value| Some(Value::Int(value.into()))),
            any::<i8>().prop_map(|value| Some(Value::Int(value.into()))),
            (-1e9..1e9f64).prop_map(|value| Some(Value::Float(value))),
            ".{0,300}".prop_map(|value| Some(Value::Str(value))),
            Just(Some(Value::List(Vec::new()))),
        ]
    }

    proptest! {
        #[test]
        fn wanted_values_come_back_in_any_order(
            values in prop::collection::vec(value(), 1..12),
            wanted in prop::collection::vec(prop_oneof![9 => (0..12usize).prop_map(Place::At), 1 => Just(Place::Nowhere), 1 => Just(Place::Elsewhere)], 0..9),
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| put(&mut bytes, value.as_ref()));
            let expected = |place: &Place| match place {
                Place::Nowhere => Some(Known::Nothing),
                Place::Elsewhere => Some(Known::Unsaid),
                Place::At(at) => values.get(*at).map(|value| match value {
                    None => Known::Nothing,
                    Some(Value::List(_)) => Known::Unsaid,
                    Some(Value::Str(text)) if text.len() > MOST_TEXT => Known::Unsaid,
                    Some(value) => Known::Is(value.clone()),
                }),
            };
            let expected: Option<Vec<Known>> = wanted.iter().map(expected).collect();
            let mut found = vec![Known::Unsaid];
            let decoded = decode_values(&bytes, &Wanted::new(&wanted), &mut found);
            prop_assert_eq!(decoded.ok().map(|()| found), expected);
        }

        #[test]
        fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64), places in prop::collection::vec(0..20usize, 0..4)) {
            let places: Vec<Place> = places.into_iter().map(Place::At).collect();
            let _ = decode_values(&bytes, &Wanted::new(&places), &mut Vec::new());
            let _ = decode_shape(&bytes);
        }
    }
}
