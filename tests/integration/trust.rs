//! What makes a record worth believing: reruns, and ledgers that are checked, moved and merged.

use crate::sandbox::{Sandbox, WORKER};

#[test]
fn a_rerun_says_whether_it_did_the_same() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(sandbox.json(&["rerun", "latest"], 0)["verdict"], "identical");
    // The program is the same, but it looks at something that is no part of the run.
    let moody =
        format!("{WORKER}\nif [ -e mood ]; then say '{{\"event\":\"step\",\"step\":6,\"values\":{{\"loss\":1}}}}'; fi");
    sandbox.sweep_manifest(&moody, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox.write("mood", "");
    let drifted = sandbox.json(&["rerun", "latest"], 5);
    assert_eq!(drifted["verdict"], "drifted");
    assert!(drifted["detail"].as_str().unwrap().contains("`loss` parts at step 6"), "{drifted}");
    // Another program makes another run: that is said, and not executed.
    sandbox.sweep_manifest("exit 1", "1", "1");
    let before = sandbox.outcomes().len();
    assert!(sandbox.run(&["rerun", "latest"]).complaint(5).contains("program differs"));
    assert_eq!(sandbox.outcomes().len(), before);
    assert_eq!(sandbox.json(&["rerun", "latest", "--on-current"], 4)["verdict"], "failed");
    sandbox.json(&["verify"], 0);
}

/// A worker whose accuracy is that of the file `accuracy`, which is no part of the run.
const MOODY: &str = r#"
echo "{\"event\":\"step\",\"step\":1,\"values\":{\"loss\":1.5}}" >> "$LEDGER_EVENTS"
n=$(cat count); echo $((n + 1)) > count
echo "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.95$n}" >> "$LEDGER_EVENTS"
echo "{\"event\":\"digest\",\"name\":\"weights\",\"digest\":\"$(printf '%064d' $n)\"}" >> "$LEDGER_EVENTS"
"#;

#[test]
fn repeats_are_equivalent_within_a_stated_margin() {
    let sandbox = Sandbox::new();
    sandbox.write("count", "1");
    sandbox.sweep_manifest(MOODY, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let id = sandbox.json(&["ls"], 0)["attempts"][0]["attempt"].as_str().unwrap().to_owned();
    let drifted = sandbox.json(&["rerun", &id], 5);
    assert_eq!(drifted["reruns"][0]["digests"], serde_json::json!(["weights"]), "{drifted}");
    let equivalent = sandbox.json(&["rerun", &id, "--times", "3", "--margin", "1%"], 0);
    assert_eq!((&equivalent["verdict"], &equivalent["class"]), (&"equivalent".into(), &"unknown".into()));
    assert_eq!(equivalent["reruns"].as_array().unwrap().len(), 3);
    // Two attempts before, three now: 0.951, 0.952 and 0.953 to 0.955.
    let tested = equivalent["tested"].as_array().unwrap();
    let accuracy = tested.iter().find(|one| one["metric"] == "accuracy").unwrap();
    assert_eq!((accuracy["n_before"].as_i64(), accuracy["n_now"].as_i64()), (Some(2), Some(3)));
    assert!(accuracy["p"].as_f64().unwrap() < 0.05);
    let text = sandbox.run(&["rerun", &id, "--times", "2", "--margin", "0.0001"]).expect(5);
    assert!(text.starts_with("drifted: ") && text.contains("not within 0.0001: `accuracy` (p "), "{text}");
    assert!(text.contains("RERUN") && text.contains("METRIC"), "{text}");
    for margin in ["0", "-1%", "x"] {
        sandbox.run(&["rerun", &id, &format!("--margin={margin}")]).complaint(2);
    }
    sandbox.json(&["verify"], 0);
}

#[test]
fn what_changed_of_the_surroundings_is_named() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let rerun = sandbox.command(&["rerun", "latest", "--json"]).env("OMP_NUM_THREADS", "3").output().unwrap();
    assert!(String::from_utf8(rerun.stderr).unwrap().contains("OMP_NUM_THREADS  (absent)  3"));
    let document: serde_json::Value = serde_json::from_slice(&rerun.stdout).unwrap();
    assert_eq!(
        (&document["verdict"], &document["environment"][0]["field"]),
        (&"identical".into(), &"OMP_NUM_THREADS".into())
    );
}

#[test]
fn a_command_of_another_ledger_is_executed_only_on_trust() {
    let from = Sandbox::new();
    from.sweep_manifest(WORKER, "1", "1");
    from.run(&["run", "m.toml"]).expect(0);
    let to = Sandbox::new();
    let file = to.path("one.ledger");
    from.run(&["export", "latest", "-o", file.to_str().unwrap()]).expect(0);
    to.run(&["import", "one.ledger"]).expect(0);
    let refused = to.run(&["rerun", "latest"]).complaint(2);
    assert!(refused.contains("--trust") && refused.contains("worker.sh"), "{refused}");
    assert_eq!(to.outcomes().len(), 1);
    assert_eq!(to.json(&["rerun", "latest", "--trust"], 0)["verdict"], "identical");
}
