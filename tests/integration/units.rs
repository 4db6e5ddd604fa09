//! Numbers in several units: what a worker states is compared as what it is.

use crate::sandbox::Sandbox;
use serde_json::{Value, json};

/// Energy 5 kJ, 6 J and 7 of what is no energy; latency 150, 5.5 and 6 ms, and one that is an energy.
const WORKER: &str = r#"
say() { echo "{\"event\":\"metric\",\"name\":\"$1\",\"value\":$2,\"unit\":\"$3\"}" >> "$LEDGER_EVENTS"; }
case $1 in
1) say energy 5 kJ; say lat 0.15 s;;
2) say energy 6 J; say lat 5.5 ms;;
3) say energy 7 furlong; say lat 6 ms;;
4) say lat 9 J;;
esac
"#;

fn sealed() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3, 4]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

fn means(found: &Value) -> Vec<(i64, f64)> {
    let of = |place: &Value| (place["config"]["params.x"].as_i64().unwrap(), place["mean"].as_f64().unwrap());
    found["places"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_known_metric_is_sealed_in_its_unit() {
    let sandbox = sealed();
    for top in ["1", "9"] {
        let found = sandbox.json(&["best", "--model", "toy", "--metric", "energy", "--top", top], 0);
        assert_eq!((found["unit"].as_str(), means(&found)[0]), (Some("J"), (2, 6.0)));
        assert_eq!(means(&found).get(1).copied(), (top == "9").then_some((1, 5000.0)));
    }
    let listed = sandbox.json(&["ls"], 0);
    let shown = |attempt: &Value| sandbox.run(&["show", attempt["attempt"].as_str().unwrap()]).expect(0);
    let shown: Vec<String> = listed["attempts"].as_array().unwrap().iter().map(shown).collect();
    let told =
        "the worker states `energy` as 7.0 `furlong`, but it is in `J` (state it so, or under a name of its own)";
    assert_eq!(shown.iter().filter(|text| text.contains(told)).count(), 1, "{shown:?}");
}

#[test]
fn metrics_of_ones_own_are_compared_in_one_unit_and_what_does_not_fit_is_counted() {
    let sandbox = sealed();
    let ask = |more: &[&str]| {
        let plain = ["best", "--model", "toy", "--metric", "lat", "--direction", "minimize"];
        sandbox.json(&[plain.as_slice(), more].concat(), 0)
    };
    for more in [&[][..], &["--where", "seed == 1"], &["--top", "3"]] {
        let found = ask(more);
        assert_eq!((found["unit"].as_str(), means(&found)), (Some("ms"), vec![(2, 5.5), (3, 6.0), (1, 150.0)]));
        let reason = "it is in `J`, which is not comparable to what is in `ms`";
        assert_eq!(found["left_out"], json!([{"why": "missing", "reason": reason, "attempts": 1}]));
    }
    // A condition compares in the same unit.
    assert_eq!(means(&ask(&["--where", "lat > 100"])), [(1, 150.0)]);
    let run = |x: i64| {
        let energies = sandbox.json(&["best", "--model", "toy", "--metric", "wall_time", "--group-by", "x"], 0);
        let place = energies["places"].as_array().unwrap().iter().find(|place| place["config"]["params.x"] == x);
        place.unwrap()["run"].as_str().unwrap().to_owned()
    };
    let lat = |a: i64, b: i64| {
        let found = sandbox.json(&["diff", &run(a), &run(b)], 1);
        found["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "lat").unwrap().clone()
    };
    let fits = lat(2, 1);
    assert_eq!((&fits["unit"], &fits["b"], &fits["absolute"]), (&json!("ms"), &json!(150.0), &json!(144.5)));
    let apart = lat(2, 4);
    assert_eq!((&apart["unit_b"], &apart["b"], &apart["absolute"]), (&json!("J"), &json!(9.0), &Value::Null));
    let text = sandbox.run(&["diff", &run(2), &run(4)]).expect(1);
    assert!(text.contains("ms / J"), "{text}");
    let compared = sandbox.run(&["compare", &run(2), &run(4)]).expect(0);
    assert!(compared.contains("5.5 ms") && compared.contains("9 J"), "{compared}");
    sandbox.json(&["verify"], 0);
}
