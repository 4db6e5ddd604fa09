//! Events as JSON lines: what a worker writes to the file that `$LEDGER_EVENTS` names.

use super::json::{float_json, to_json, value_of};
use ledger_record::{Attempt, Event, EventKind, MetricKind, PhaseEdge};
use serde_json::{Map, Value as Json, json};

/// The longest line that is parsed, in bytes.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Why a line is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventFault {
    /// It is not a JSON object.
    #[error("it is not a JSON object ({0})")]
    Syntax(String),
    /// Its `event` is missing or unknown.
    #[error(
        "its `event` is {0} (plan, phase_start, phase_stop, step, metric, digest, fact, status and failure are known)"
    )]
    Kind(String),
    /// A member is missing or of another type.
    #[error("`{event}` needs `{member}` ({expected})")]
    Member {
        /// The event.
        event: &'static str,
        /// The member.
        member: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// An optional member is of another type.
    #[error("its `{member}` is `{found}` (it must be {expected}, or be left out)")]
    Optional {
        /// The member.
        member: &'static str,
        /// The value found.
        found: String,
        /// The expected type.
        expected: &'static str,
    },
}

/// Appends the event as one JSON line to `out`.
pub fn write_event(event: &Event, out: &mut Vec<u8>) {
    let mut map = Map::new();
    let mut put = |key: &str, value: Json| {
        map.insert(key.to_owned(), value);
    };
    let name = match &event.kind {
        EventKind::Plan { .. } => "plan",
        EventKind::Phase { edge: PhaseEdge::Start, .. } => "phase_start",
        EventKind::Phase { edge: PhaseEdge::Stop, .. } => "phase_stop",
        EventKind::Step { .. } => "step",
        EventKind::Metric { .. } => "metric",
        EventKind::Digest { .. } => "digest",
        EventKind::Fact { .. } => "fact",
        EventKind::Status { .. } => "status",
        EventKind::Failure { .. } => "failure",
    };
    put("event", name.into());
    put("t_ns", event.t_ns.into());
    if event.rank != 0 {
        put("rank", event.rank.into());
    }
    match &event.kind {
        EventKind::Plan { steps, epochs, samples_per_step } => {
            put("steps", (*steps).into());
            put("epochs", (*epochs).into());
            put("samples_per_step", (*samples_per_step).into());
        }
        EventKind::Phase { name, index, .. } => {
            put("name", name.as_str().into());
            put("index", (*index).into());
        }
        EventKind::Step { step, duration_ns, values } => {
            put("step", (*step).into());
            if let Some(duration_ns) = duration_ns {
                put("duration_ns", (*duration_ns).into());
            }
            let values: Map<_, _> = values.iter().map(|(name, value)| (name.clone(), float_json(*value))).collect();
            put("values", Json::Object(values));
        }
        EventKind::Metric { name, value, unit } => {
            put("name", name.as_str().into());
            put("value", float_json(*value));
            if !unit.is_empty() {
                put("unit", unit.as_str().into());
            }
        }
        EventKind::Digest { name, digest } => {
            put("name", name.as_str().into());
            put("digest", digest.to_hex().into());
        }
        EventKind::Fact { name, value } => {
            put("name", name.as_str().into());
            put("value", to_json(value));
        }
        EventKind::Status { message } | EventKind::Failure { message } => put("message", message.as_str().into()),
    }
    out.extend_from_slice(Json::Object(map).to_string().as_bytes());
    out.push(b'\n');
}

/// Parses one line, without its line break. A line without `t_ns` gets the time `now_ns`.
///
/// Numbers may be the texts `"NaN"`, `"Infinity"` and `"-Infinity"`, or the bare words that Python's `json` writes.
pub fn parse_event(line: &[u8], now_ns: u64) -> Result<Event, EventFault> {
    Ok(parse_line(line, now_ns)?.0)
}

/// As [`parse_event`], with a second event that the line may imply: a metric that states its `kind` is also a fact with
/// the name `metric_kind.` and the metric's.
pub fn parse_line(line: &[u8], now_ns: u64) -> Result<(Event, Option<Event>), EventFault> {
    let syntax = |fault: &dyn std::fmt::Display| EventFault::Syntax(fault.to_string());
    let text = std::str::from_utf8(line).map_err(|fault| syntax(&fault))?;
    let json: Json = match serde_json::from_str(text) {
        Ok(json) => json,
        Err(fault) => serde_json::from_str(&quote_non_finite(text)).map_err(|_| syntax(&fault))?,
    };
    let Json::Object(map) = json else { return Err(syntax(&"it is another JSON value")) };
    let kind = kind(&map)?;
    let stated = match &kind {
        EventKind::Metric { name, .. } => metric_kind(&map, name)?,
        _ => None,
    };
    let rank = |found: &Json| whole(found).and_then(|rank| u32::try_from(rank).ok());
    let rank = optional(&map, "rank", "a whole number from 0, below 2^32", rank)?.unwrap_or(0);
    let t_ns = optional(&map, "t_ns", NANOSECONDS, nanoseconds)?.unwrap_or(now_ns);
    Ok((Event { t_ns, rank, kind }, stated.map(|kind| Event { t_ns, rank, kind })))
}

fn metric_kind(map: &Map<String, Json>, metric: &str) -> Result<Option<EventKind>, EventFault> {
    let named = |found: &Json| found.as_str().and_then(MetricKind::named);
    let stated = optional(map, "kind", "`outcome` or `measured`", named)?;
    let fact = |kind: MetricKind| EventKind::Fact {
        name: format!("{}{metric}", Attempt::METRIC_KIND),
        value: kind.name().into(),
    };
    Ok(stated.map(fact))
}

fn kind(map: &Map<String, Json>) -> Result<EventKind, EventFault> {
    let name = match map.get("event") {
        Some(Json::String(name)) => name.as_str(),
        Some(other) => return Err(EventFault::Kind(format!("{other:.40}"))),
        None => return Err(EventFault::Kind("missing".to_owned())),
    };
    let members = |event| Members { event, map };
    Ok(match name {
        "plan" => {
            let of = members("plan");
            EventKind::Plan {
                steps: of.count("steps")?,
                epochs: optional(map, "epochs", COUNT, whole)?.unwrap_or(0),
                samples_per_step: optional(map, "samples_per_step", COUNT, whole)?.unwrap_or(0),
            }
        }
        "phase_start" | "phase_stop" => {
            let of = members(if name == "phase_start" { "phase_start" } else { "phase_stop" });
            EventKind::Phase {
                name: of.text("name")?,
                index: optional(map, "index", COUNT, whole)?.unwrap_or(0),
                edge: if name == "phase_start" { PhaseEdge::Start } else { PhaseEdge::Stop },
            }
        }
        "step" => {
            let of = members("step");
            let values = match map.get("values") {
                None => Vec::new(),
                Some(Json::Object(values)) => values
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), number(value).ok_or_else(|| of.fault("values", NUMBERS))?)))
                    .collect::<Result<_, _>>()?,
                Some(_) => return Err(of.fault("values", NUMBERS)),
            };
            let duration_ns = optional(map, "duration_ns", NANOSECONDS, nanoseconds)?;
            EventKind::Step { step: of.count("step")?, duration_ns, values }
        }
        "metric" => {
            let of = members("metric");
            let value = map.get("value").and_then(number).ok_or_else(|| of.fault("value", "a number"))?;
            let unit = optional(map, "unit", "text", |unit| unit.as_str().map(str::to_owned))?;
            EventKind::Metric { name: of.text("name")?, value, unit: unit.unwrap_or_default() }
        }
        "digest" => {
            let of = members("digest");
            let digest = of.text("digest")?.parse().map_err(|_| of.fault("digest", "64 hex digits"))?;
            EventKind::Digest { name: of.text("name")?, digest }
        }
        "fact" => {
            let of = members("fact");
            let value = map.get("value").filter(|value| is_shallow(value, MAX_FACT_DEPTH)).cloned();
            let value = value.and_then(|value| value_of(value).ok());
            let value = value.ok_or_else(|| of.fault("value", "a JSON value without null, nested 16 deep at most"))?;
            EventKind::Fact { name: of.text("name")?, value }
        }
        "status" => EventKind::Status { message: members("status").text("message")? },
        "failure" => EventKind::Failure { message: members("failure").text("message")? },
        other => return Err(EventFault::Kind(format!("`{}`", other.chars().take(40).collect::<String>()))),
    })
}

const MAX_FACT_DEPTH: usize = 16;

fn is_shallow(json: &Json, depth: usize) -> bool {
    match json {
        Json::Array(items) => depth > 0 && items.iter().all(|item| is_shallow(item, depth - 1)),
        Json::Object(map) => depth > 0 && map.values().all(|item| is_shallow(item, depth - 1)),
        _ => true,
    }
}

const NUMBERS: &str = "an object of numbers";
const COUNT: &str = "a whole number from 0";
const NANOSECONDS: &str = "nanoseconds, a number from 0";

/// Reads an optional member, which `null` omits too. A member of another type makes the line invalid, because ignoring
/// it would lose data without notice.
fn optional<T>(
    map: &Map<String, Json>,
    member: &'static str,
    expected: &'static str,
    read: impl Fn(&Json) -> Option<T>,
) -> Result<Option<T>, EventFault> {
    let Some(found) = map.get(member).filter(|found| !found.is_null()) else { return Ok(None) };
    let odd = || EventFault::Optional { member, found: found.to_string().chars().take(40).collect(), expected };
    read(found).map(Some).ok_or_else(odd)
}

/// Reads a whole number, also if it is written as `64.0` by languages with one type of number.
fn whole(json: &Json) -> Option<u64> {
    json.as_u64().or_else(|| json.as_f64().filter(|number| number.fract() == 0.0).and_then(rounded))
}

/// Reads a time, which programs often compute from seconds: the nearest whole nanosecond.
fn nanoseconds(json: &Json) -> Option<u64> {
    json.as_u64().or_else(|| json.as_f64().and_then(rounded))
}

fn rounded(number: f64) -> Option<u64> {
    let number = number.round();
    // 2^64 is the first number that does not fit.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within bounds")]
    (0.0..18_446_744_073_709_551_616.0).contains(&number).then_some(number as u64)
}

struct Members<'a> {
    event: &'static str,
    map: &'a Map<String, Json>,
}

impl Members<'_> {
    fn fault(&self, member: &'static str, expected: &'static str) -> EventFault {
        EventFault::Member { event: self.event, member, expected }
    }

    fn count(&self, member: &'static str) -> Result<u64, EventFault> {
        self.map.get(member).and_then(whole).ok_or_else(|| self.fault(member, COUNT))
    }

    fn text(&self, member: &'static str) -> Result<String, EventFault> {
        let text = self.map.get(member).and_then(Json::as_str).ok_or_else(|| self.fault(member, "text"))?;
        Ok(text.to_owned())
    }
}

fn number(json: &Json) -> Option<f64> {
    match json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Quotes the bare words `NaN`, `Infinity` and `-Infinity` outside of strings.
fn quote_non_finite(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut quoted = false;
    while let Some(c) = rest.chars().next() {
        if quoted && c == '\\' {
            let len = rest.chars().take(2).map(char::len_utf8).sum();
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        quoted ^= c == '"';
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !quoted && rest.starts_with(word));
        if let Some(word) = word {
            out.push('"');
            out.push_str(word);
            out.push('"');
            rest = &rest[word.len()..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// The JSON Schema (2020-12) of one event line, as JSON text.
pub fn event_schema() -> String {
    let count = json!({"type": "integer", "minimum": 0});
    let time_ns = json!({"type": "number", "minimum": 0});
    let number = json!({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]});
    let text = json!({"type": "string"});
    let event = |name: &str, members: Json, required: &[&str]| {
        let mut properties = members.as_object().cloned().unwrap_or_default();
        properties.insert("event".to_owned(), json!({"const": name}));
        properties.insert("t_ns".to_owned(), time_ns.clone());
        properties.insert("rank".to_owned(), count.clone());
        let required: Vec<&str> = std::iter::once("event").chain(required.iter().copied()).collect();
        json!({"type": "object", "properties": properties, "required": required})
    };
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a worker's event file",
        "oneOf": [
            event("plan", json!({"steps": count, "epochs": count, "samples_per_step": count}), &["steps"]),
            event("phase_start", json!({"name": text, "index": count}), &["name"]),
            event("phase_stop", json!({"name": text, "index": count}), &["name"]),
            event("step", json!({"step": count, "duration_ns": time_ns,
                "values": {"type": "object", "additionalProperties": number}}), &["step"]),
            event("metric", json!({"name": text, "value": number, "unit": text,
                "kind": {"enum": ["outcome", "measured"]}}), &["name", "value"]),
            event("digest", json!({"name": text, "digest": {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}}),
                &["name", "digest"]),
            event("fact", json!({"name": text, "value": true}), &["name", "value"]),
            event("status", json!({"message": text}), &["message"]),
            event("failure", json!({"message": text}), &["message"]),
        ]
    });
    format!("{schema:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_record::Digest;
    use proptest::prelude::*;

    fn round_trip(kind: EventKind) {
        let event = Event { t_ns: 7, rank: 1, kind };
        let mut line = Vec::new();
        write_event(&event, &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        assert!(!line.contains(&b'\n'));
        let back = parse_event(&line, 0).unwrap();
        assert_eq!(format!("{back:?}"), format!("{event:?}"));
    }

    #[test]
    fn every_kind_round_trips() {
        round_trip(EventKind::Plan { steps: 10, epochs: 2, samples_per_step: 64 });
        round_trip(EventKind::Phase { name: "epoch".into(), index: 1, edge: PhaseEdge::Start });
        round_trip(EventKind::Phase { name: "a \"b\"\n".into(), index: 1, edge: PhaseEdge::Stop });
        let values = vec![("loss".to_owned(), 0.1), ("x".to_owned(), f64::NAN), ("y".to_owned(), f64::NEG_INFINITY)];
        round_trip(EventKind::Step { step: 3, duration_ns: Some(5), values });
        round_trip(EventKind::Step { step: 3, duration_ns: None, values: vec![] });
        round_trip(EventKind::Metric { name: "accuracy".into(), value: f64::INFINITY, unit: "s".into() });
        round_trip(EventKind::Digest { name: "weights".into(), digest: Digest::of(b"w") });
        round_trip(EventKind::Fact { name: "torch".into(), value: vec!["2.11", "cu130"].into() });
        round_trip(EventKind::Status { message: "warming up".into() });
        round_trip(EventKind::Failure { message: "out of memory".into() });
    }

    #[test]
    fn python_spells_non_finite_numbers_bare() {
        let line = br#"{"event": "step", "step": 1, "values": {"NaN": NaN, "b": -Infinity, "c\"": Infinity}}"#;
        let EventKind::Step { values, .. } = parse_event(line, 9).unwrap().kind else { panic!("no step") };
        assert_eq!(format!("{values:?}"), r#"[("NaN", NaN), ("b", -inf), ("c\"", inf)]"#);
    }

    #[test]
    fn a_line_without_a_time_gets_the_reader_s_time() {
        assert_eq!(parse_event(br#"{"event":"status","message":"m"}"#, 42).unwrap().t_ns, 42);
    }

    #[test]
    fn an_optional_member_of_another_type_is_refused() {
        let fault = |members: &str| {
            let line = format!(r#"{{"event":{members}}}"#);
            parse_event(line.as_bytes(), 0).expect_err(members).to_string()
        };
        assert_eq!(
            fault(r#""step","step":1,"rank":"1""#),
            r#"its `rank` is `"1"` (it must be a whole number from 0, below 2^32, or be left out)"#
        );
        assert_eq!(
            fault(r#""step","step":1,"duration_ns":-1.5"#),
            "its `duration_ns` is `-1.5` (it must be nanoseconds, a number from 0, or be left out)"
        );
        for members in [
            r#""step","step":1,"t_ns":"7""#,
            r#""step","step":1,"rank":4294967296"#,
            r#""step","step":1,"duration_ns":1e300"#,
            r#""plan","steps":9,"samples_per_step":"64""#,
            r#""plan","steps":9,"samples_per_step":0.5"#,
            r#""plan","steps":9,"epochs":-1"#,
            r#""phase_start","name":"epoch","index":[1]"#,
            r#""metric","name":"m","value":1,"unit":7"#,
            r#""metric","name":"m","value":1,"kind":"speed""#,
            r#""metric","name":"m","value":1,"kind":true"#,
        ] {
            assert!(fault(members).contains("or be left out"), "{members}");
        }
    }

    #[test]
    fn a_metric_may_state_its_kind() {
        let line = br#"{"event":"metric","name":"ttft","value":0.2,"unit":"s","kind":"measured","rank":1,"t_ns":5}"#;
        let (event, fact) = parse_line(line, 0).unwrap();
        assert_eq!(event.kind, EventKind::Metric { name: "ttft".into(), value: 0.2, unit: "s".into() });
        let kind = EventKind::Fact { name: "metric_kind.ttft".into(), value: "measured".into() };
        assert_eq!(fact, Some(Event { t_ns: 5, rank: 1, kind }));
        let silent = |line: &[u8]| parse_line(line, 0).unwrap().1;
        assert_eq!(silent(br#"{"event":"metric","name":"ttft","value":0.2,"kind":null}"#), None);
        assert_eq!(silent(br#"{"event":"status","message":"m","kind":"measured"}"#), None, "of a metric alone");
    }

    #[test]
    fn numbers_may_be_written_with_a_point() {
        let line = br#"{"event":"step","step":3.0,"t_ns":1.5e3,"rank":1.0,"duration_ns":12345678.9}"#;
        let event = parse_event(line, 0).unwrap();
        assert_eq!((event.t_ns, event.rank), (1500, 1));
        let EventKind::Step { step, duration_ns, .. } = event.kind else { panic!("no step") };
        assert_eq!((step, duration_ns), (3, Some(12_345_679)));
        let line = br#"{"event":"plan","steps":9,"epochs":null,"samples_per_step":64.0,"rank":null}"#;
        let EventKind::Plan { epochs, samples_per_step, .. } = parse_event(line, 0).unwrap().kind else {
            panic!("no plan")
        };
        assert_eq!((epochs, samples_per_step), (0, 64));
        assert!(parse_event(br#"{"event":"step","step":1.5}"#, 0).is_err());
    }

    #[test]
    fn faults_name_the_member() {
        let fault = |line: &str| parse_event(line.as_bytes(), 0).unwrap_err().to_string();
        assert_eq!(fault(r#"{"event":"step"}"#), "`step` needs `step` (a whole number from 0)");
        assert_eq!(fault(r#"{"event":"metric","name":"m"}"#), "`metric` needs `value` (a number)");
        assert!(fault(r#"{"event":"stepp"}"#).starts_with("its `event` is `stepp`"));
        let deep = format!("{}1{}", "[".repeat(17), "]".repeat(17));
        assert!(fault(&format!(r#"{{"event":"fact","name":"n","value":{deep}}}"#)).starts_with("`fact` needs `value`"));
        assert!(fault("loss 0.3").starts_with("it is not a JSON object"));
    }

    proptest! {
        #[test]
        fn rubbish_never_panics(line in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_event(&line, 0);
        }

        #[test]
        fn single_precision_losses_keep_their_bits(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let kind = EventKind::Step { step: 1, duration_ns: None, values: vec![("loss".into(), f64::from(value))] };
            let mut line = Vec::new();
            write_event(&Event { t_ns: 0, rank: 0, kind }, &mut line);
            let EventKind::Step { values, .. } = parse_event(&line[..line.len() - 1], 0).unwrap().kind else { panic!() };
            prop_assert_eq!(values[0].1.to_bits(), f64::from(value).to_bits());
        }
    }
}
