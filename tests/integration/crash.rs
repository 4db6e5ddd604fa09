//! `kill -9` of a supervisor in the middle of a sweep: nothing that was sealed is lost, nothing needs repair, and every attempt is
//! accounted for. `LEDGER_TEST_KILLS` says how often; the default keeps the suite short.

use crate::sandbox::{Sandbox, WORKER, curves};
use std::collections::BTreeSet;
use std::time::Duration;

fn kills() -> u32 {
    std::env::var("LEDGER_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn killed_at_any_moment_the_sweep_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    // The pipe of a worker has its run's digits and its nonce for a name.
    let script = format!("echo \"${{LEDGER_EVENTS##*/}}\" >> started\n{WORKER}\nsleep 0.01\n");
    let x: Vec<String> = (1..=9).map(|x| x.to_string()).collect();
    let mut sealed: BTreeSet<String> = BTreeSet::new();
    let mut round = 0u64;
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for _ in 0..kills() {
        round += 1;
        // New seeds when all is done, so that there is always something to be killed in.
        let seeds = format!("[{}, {}]", round / 4 + 1, round / 4 + 1000);
        sandbox.sweep_manifest(&script, &format!("[{}]", x.join(", ")), &seeds);
        let mut child = sandbox.start(&["run", "m.toml", "--jobs", "2"]);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(5 + random % 300));
        child.kill().unwrap();
        child.wait().unwrap();
        let document = sandbox.run(&["ls", "--all", "--json"]);
        // One whose maker was killed before its first change is no ledger yet.
        if document.code == Some(3) && sealed.is_empty() && document.err.contains("there is no ledger at") {
            continue;
        }
        let document: serde_json::Value = serde_json::from_str(&document.expect(0)).unwrap();
        let now: BTreeSet<String> = document["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attempt| format!("{} {}", attempt["attempt"], attempt["outcome"]))
            .collect();
        let lost: Vec<&String> = sealed.difference(&now).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert!(sandbox.journals().is_empty(), "left over: {:?}", sandbox.journals());
        sealed = now;
    }
    // On a busy machine every kill may have come before there was a ledger.
    if !sealed.is_empty() {
        sandbox.json(&["verify"], 0);
    }
    let plan = sandbox.json(&["run", "m.toml", "--dry-run"], 0);
    let missing: i64 = plan["runs"].as_array().unwrap().iter().map(|run| run["missing"].as_i64().unwrap()).sum();
    assert_eq!(sandbox.json(&["run", "m.toml"], 0)["executed"], missing);
    assert_eq!(sandbox.json(&["run", "m.toml"], 0)["executed"], 0);
    sandbox.json(&["verify"], 0);
    let kept = nonces(&sandbox);
    let started = std::fs::read_to_string(sandbox.path("started")).unwrap();
    let is_lost = |name: &&str| !name.split_once('-').is_some_and(|(_, rest)| kept.contains(rest));
    let lost: Vec<&str> = started.lines().map(|name| name.trim_end_matches(".events")).filter(is_lost).collect();
    assert!(lost.is_empty(), "of {} attempts that began these were not sealed: {lost:?}", started.lines().count());
}

/// Of every attempt that the ledger holds.
fn nonces(sandbox: &Sandbox) -> BTreeSet<String> {
    let listed = sandbox.json(&["ls", "--all"], 0);
    let runs: BTreeSet<&str> =
        listed["attempts"].as_array().unwrap().iter().map(|attempt| attempt["run"].as_str().unwrap()).collect();
    let mut found = BTreeSet::new();
    for run in runs {
        let shown = sandbox.json(&["show", run], 0);
        let attempts = shown["attempts"].as_array().unwrap();
        found.extend(attempts.iter().map(|attempt| attempt["nonce"].as_str().unwrap().to_owned()));
    }
    found
}

#[test]
fn an_attempt_whose_supervisor_was_killed_is_sealed_as_interrupted_with_what_it_said() {
    let sandbox = Sandbox::new();
    sandbox.abandoned_run("1");
    assert!(!sandbox.journals().is_empty());
    let said = sandbox.run(&["ls"]);
    assert!(said.err.contains("which its supervisor had abandoned"), "{}", said.err);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(attempt["outcome"], "interrupted");
    assert!(attempt["reason"].as_str().unwrap().contains("its supervisor (pid "));
    assert_eq!(curves(attempt), [("loss", 1)]);
    assert!(attempt["metrics"].get("wall_time").is_none(), "nobody saw its end, so nobody knows how long it took");
}
