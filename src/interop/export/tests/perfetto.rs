//! Traces of phases and counters.

use super::*;
use crate::wire::from_json;

fn trace(entry: &Entry) -> (String, Vec<Table>) {
    let (_, bytes) = content(&perfetto_trace(entry, &points_of(entry)));
    let text = String::from_utf8(bytes).unwrap();
    let Ok(Value::Table(document)) = from_json(&text) else { panic!("no JSON: {text}") };
    let Value::List(events) = &document["traceEvents"] else { panic!("no events") };
    (text.clone(), events.iter().filter_map(Value::as_table).cloned().collect())
}

#[test]
fn a_trace_has_phases_as_bars_and_series_as_counters() {
    let [entry, _] = both();
    insta::assert_snapshot!(text(trace(&entry).0.into_bytes()), @r#"
    {"displayTimeUnit":"ms","traceEvents":[
    {"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"toy/net dfa552b3"}},
    {"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"rank 0"}},
    {"ph":"X","name":"epoch","pid":1,"tid":1,"ts":1000000.000,"dur":2000000.000,"args":{"index":1}},
    {"ph":"X","name":"step","pid":1,"tid":1,"ts":1000000.000,"dur":1000000.000,"args":{"index":1}},
    {"ph":"X","name":"step","pid":1,"tid":1,"ts":2000000.000,"dur":1000000.000,"args":{"index":2}},
    {"ph":"X","name":"eval","pid":1,"tid":1,"ts":3000000.000,"dur":1000000.000,"args":{"index":1}},
    {"ph":"C","name":"gpu.0.power_instant [W]","pid":1,"ts":1500000.000,"args":{"value":100.25}},
    {"ph":"C","name":"loss","pid":1,"ts":2000000.000,"args":{"value":2.5}}
    ],"otherData":{"attempt":"HASH","device":"V100","experiment":"it's, \"mine\"","outcome":"finished","run":"HASH","started_unix_ms":1541665135510}}
    "#);
}

#[test]
fn bars_of_a_thread_nest_and_none_is_missing() {
    let mut entry = entry(Outcome::Finished, 1);
    let phase = |name: &str, rank, start_ns, stop_ns| Phase { name: name.into(), index: 0, rank, start_ns, stop_ns };
    entry.sealed.phases = vec![
        phase("late", 0, 5, Some(9)),
        phase("outer", 0, 0, Some(10)),
        phase("across", 0, 4, Some(12)),
        phase("inner", 0, 1, Some(4)),
        phase("open", 1, 3, None),
        phase("backwards", 1, 4, Some(2)),
    ];
    let (_, events) = trace(&entry);
    let bars: Vec<(i64, String, f64, f64)> = events
        .iter()
        .filter(|event| event["ph"] == "X".into())
        .map(|event| {
            let number = |name: &str| event[name].as_float().unwrap() * 1000.0;
            (event["tid"].as_int().unwrap(), event["name"].to_string(), number("ts"), number("ts") + number("dur"))
        })
        .collect();
    assert_eq!(bars.len(), 6);
    for (thread, name, start, stop) in &bars {
        let nests = |other: &&(i64, String, f64, f64)| {
            let (_, _, from, to) = other;
            to <= start || stop <= from || (from <= start && stop <= to) || (start <= from && to <= stop)
        };
        assert!(bars.iter().filter(|(other, ..)| other == thread).all(|other| nests(&other)), "{name}: {bars:?}");
    }
    let names = events.iter().filter(|event| event["name"] == "thread_name".into());
    let names: Vec<String> = names.map(|event| event["args"].as_table().unwrap()["name"].to_string()).collect();
    assert_eq!(names, ["rank 0", "rank 1", "rank 0 (2)"]);
}
