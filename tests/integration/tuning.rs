//! `tune`: which configurations are executed how often, what is told of them, and that a search goes on where it stopped.

mod hardware;

use crate::sandbox::{Sandbox, signal};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// Costs batch / x; small batches take long.
const WORKER: &str = r#"
echo "$1 $2" >> executed
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"phase_start","name":"epoch","index":1}'
if [ "$1" = 16 ]; then sleep 2.5; else sleep 0.2; fi
say '{"event":"phase_stop","name":"epoch","index":1}'
say "{\"event\":\"metric\",\"name\":\"cost\",\"value\":$(($1 / $2))}"
"#;
const SEARCH: [&str; 13] = [
    "tune",
    "--model",
    "toy",
    "--metric",
    "cost",
    "--direction",
    "minimize",
    "--axis",
    "batch_size=16,64,128",
    "--axis",
    "x=2",
    "--slower-at-most",
    "400%",
];

fn manifest(work: &str) -> String {
    format!(
        "name = 'toy'\n[model]\nname = 'toy'\n[program]\ncommand = ['sh', 'worker.sh', '{{training.batch_size}}', '{{x}}']\n[params]\nx = 1\n[training]\nbatch_size = 32\n{work}\n[telemetry]\nhz = 0\n"
    )
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", WORKER);
    sandbox.write("m.toml", format!("{}[hardware]\ndevice = 'cpu'\n", manifest("epochs = 1")));
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

#[test]
fn a_base_whose_only_attempt_is_tainted_is_refused_before_anything_is_executed() {
    let sandbox = Sandbox::new();
    let taint = r#"say '{"event":"fact","name":"tainted","value":"the fan failed"}'"#;
    sandbox.write("worker.sh", format!("{WORKER}{taint}\n"));
    sandbox.write("m.toml", format!("{}[hardware]\ndevice = 'cpu'\n", manifest("epochs = 1")));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let from = sandbox.json(&["show", "latest"], 0)["run"].as_str().unwrap().to_owned();
    let args: Vec<&str> = SEARCH.into_iter().chain(["--from", &from]).collect();
    let said = sandbox.run(&args).complaint(1);
    assert!(said.contains("nothing can be compared with the base") && said.contains("the fan failed"), "{said}");
    assert_eq!(executed(&sandbox).values().sum::<usize>(), 1, "no round was begun");
}

/// How often each pair of batch and x was executed.
fn executed(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(sandbox.path("executed")).unwrap_or_default().lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// What halving makes of it: one of each, two of the base and the better half of seven, four of the last two and the base, and three fresh ones of the winner and the base.
fn expected() -> BTreeMap<String, usize> {
    let counts =
        [("32 1", 7), ("16 1", 1), ("64 1", 2), ("128 1", 1), ("32 2", 7), ("16 2", 1), ("64 2", 4), ("128 2", 2)];
    counts.map(|(pair, count)| (pair.to_owned(), count)).into()
}

fn list<'a>(document: &'a Value, name: &str) -> &'a Vec<Value> {
    document[name].as_array().unwrap_or_else(|| panic!("no {name} in {document}"))
}

#[test]
fn the_better_half_is_executed_twice_as_often_until_few_are_left() {
    let sandbox = sandbox();
    let document = sandbox.json(&SEARCH, 0);
    assert_eq!(executed(&sandbox), expected());
    let rounds: Vec<[i64; 3]> = list(&document, "rounds")
        .iter()
        .map(|round| ["configurations", "attempts", "executed"].map(|name| round[name].as_i64().unwrap()))
        .collect();
    assert_eq!(rounds, [[8, 1, 7], [5, 2, 5], [3, 4, 6], [2, 3, 6]]);
    let places: Vec<(i64, i64, f64, i64)> = list(&document, "places")
        .iter()
        .map(|place| {
            let config = &place["config"];
            let field = |name: &str| config[name].as_i64().unwrap();
            let (mean, n) = (place["mean"].as_f64().unwrap(), place["n"].as_i64().unwrap());
            assert_eq!(place["attempts"].as_array().unwrap().len(), 3, "its evidence is fresh");
            (field("training.batch_size"), field("params.x"), mean, n)
        })
        .collect();
    assert_eq!(places, [(32, 2, 16.0, 3), (32, 1, 32.0, 3)]);
    assert_eq!(document["against"]["what"], "the base");
    assert_eq!(document["against"]["metric"], -0.5);
    let mut gone: Vec<String> = list(&document, "gone")
        .iter()
        .map(|gone| {
            let why = gone["why"].as_str().unwrap();
            let why = if why.ends_with(" train_time, slower than allowed") { "slower" } else { why };
            format!("{} after {}: {why}", gone["changes"], gone["round"])
        })
        .collect();
    gone.sort();
    assert_eq!(
        gone,
        [
            r#"{"params.x":2,"training.batch_size":128} after 2: 3 candidates are better"#,
            r#"{"params.x":2,"training.batch_size":16} after 1: slower"#,
            r#"{"params.x":2,"training.batch_size":64} after 3: 1 candidate is better"#,
            r#"{"training.batch_size":128} after 1: 4 candidates are better"#,
            r#"{"training.batch_size":16} after 1: slower"#,
            r#"{"training.batch_size":64} after 2: 2 candidates are better"#,
        ]
    );
    let again = sandbox.json(&SEARCH, 0);
    assert_eq!(executed(&sandbox), expected(), "all of it is in the ledger");
    assert_eq!(again["places"], document["places"]);
    let text = sandbox.run(&SEARCH).expect(0);
    for part in [
        "batch_size 16, 64, 128 (32 at the base); x 2 (1 at the base)",
        "within 400% of the base's train_time",
        "left behind",
        "against the base, ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let newest = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    let settings = &newest["settings"];
    assert!(settings["tune.base"].is_string() && settings["manifest.digest"].is_null(), "{settings}");
    assert!(newest["facts"]["program.sources"]["worker.sh"].is_string(), "the program's text is kept: {newest}");
}

#[test]
fn attempts_that_confirmed_a_smaller_search_choose_nothing_in_a_larger_one() {
    let sandbox = sandbox();
    let at = SEARCH.iter().position(|word| word.starts_with("x=")).expect("a second axis") - 1;
    let smaller = [&SEARCH[..at], &SEARCH[at + 2..]].concat();
    sandbox.json(&smaller, 0);
    let confirmed = executed(&sandbox);
    assert_eq!(confirmed["32 1"], 5, "two that chose, and three fresh ones: {confirmed:?}");
    sandbox.json(&SEARCH, 0);
    assert_eq!(executed(&sandbox)["32 1"], 7, "four that chose, and the same fresh ones");
    assert_eq!(executed(&sandbox)["32 2"], 7);
}

#[test]
fn a_search_that_was_interrupted_goes_on() {
    let sandbox = sandbox();
    let child = sandbox.start(&SEARCH);
    sandbox.wait_for("some attempts", || executed(&sandbox).len() > 3);
    signal(child.id(), "INT");
    let said = Sandbox::finish(child);
    assert!(said.code == Some(130) && said.err.contains("repeat the command to continue"), "{said:?}");
    let before = executed(&sandbox);
    let finished = sandbox.outcomes().iter().filter(|outcome| *outcome == "finished").count();
    assert!(finished < 8, "{before:?}");
    sandbox.json(&SEARCH, 0);
    let total: usize = expected().values().sum();
    let counted = sandbox.outcomes().iter().filter(|outcome| *outcome == "finished").count();
    assert_eq!(counted, total, "nothing that finished was executed again");
}

#[test]
fn a_dry_run_executes_nothing() {
    let sandbox = sandbox();
    let args: Vec<&str> = SEARCH.into_iter().chain(["--dry-run", "--candidates", "3"]).collect();
    let document = sandbox.json(&args, 0);
    assert_eq!(list(&document, "runs").len(), 4, "three that were drawn, and the base");
    assert_eq!(executed(&sandbox).len(), 1);
}

#[test]
fn the_tag_default_names_the_base_be_it_a_run_or_an_attempt() {
    let sandbox = sandbox();
    let first = sandbox.json(&["show", "latest"], 0);
    sandbox.write("m.toml", format!("{}[hardware]\ndevice = 'cpu'\n", manifest("epochs = 2")));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let base = || {
        let args: Vec<&str> = SEARCH.into_iter().chain(["--dry-run"]).collect();
        sandbox.json(&args, 0)["runs"][0]["run"].clone()
    };
    assert_ne!(base(), first["run"]);
    for id in [&first["attempts"][0]["attempt"], &first["run"]] {
        sandbox.run(&["tag", id.as_str().unwrap(), "default"]).expect(0);
        assert_eq!(base(), first["run"]);
    }
}

#[test]
fn those_are_drawn_that_can_be_executed() {
    let sandbox = sandbox();
    let axes = ["--axis", "batch_size=0,64,128", "--axis", "x=2,3", "--candidates", "6", "--dry-run"];
    let args: Vec<&str> =
        ["tune", "--model", "toy", "--metric", "cost", "--direction", "minimize"].into_iter().chain(axes).collect();
    let document = sandbox.json(&args, 0);
    assert_eq!(list(&document, "runs").len(), 7, "six of the eight that there are, and the base");
    let gone = list(&document, "gone");
    assert!(gone.len() <= 1, "once for each reason: {gone:?}");
    // All of them: what cannot be is told, with what the three have in common.
    let all: Vec<&str> = args.iter().map(|arg| if *arg == "6" { "9" } else { *arg }).collect();
    let document = sandbox.json(&all, 0);
    assert_eq!(list(&document, "runs").len(), 9);
    let gone = list(&document, "gone");
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!(gone[0]["changes"].to_string(), r#"{"training.batch_size":0}"#);
    assert!(gone[0]["why"].as_str().unwrap().ends_with("(3 configurations)"), "{gone:?}");
    let said = sandbox.run(&all).expect(0);
    assert!(said.contains("left behind") && said.contains("training.batch_size is 0"), "{said}");
}

#[test]
fn what_was_learned_is_told_and_can_be_asked_for() {
    let sandbox = Sandbox::new();
    // The larger the batch, the cheaper; the largest learns nothing.
    let worker = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say "{\"event\":\"metric\",\"name\":\"cost\",\"value\":$((1000 / $1))}"
if [ "$1" = 128 ]; then accuracy=0.5; else accuracy=0.8; fi
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":$accuracy}"
"#;
    sandbox.write("worker.sh", worker);
    sandbox.write("m.toml", format!("{}[hardware]\ndevice = 'cpu'\n", manifest("epochs = 1")));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let search = |more: &[&str]| {
        let plain =
            ["tune", "--model", "toy", "--metric", "cost", "--direction", "minimize", "--axis", "batch_size=64,128"];
        sandbox.run(&[&plain[..], more].concat())
    };
    let said = search(&[]).expect(0);
    assert!(said.contains("what #1 learned: accuracy 0.5 (0.8 at the base, -30.00 points)"), "{said}");
    let said = search(&["--at-least", "accuracy=0.7"]).expect(0);
    assert!(said.contains("what #1 learned: accuracy 0.8 (0.8 at the base, +0.00 points)"), "{said}");
    assert!(said.contains("accuracy 0.5, less than 0.7"), "{said}");
    let said = search(&["--at-least", "accuracy=0.9"]).complaint(1);
    assert!(
        said.contains("no configuration that was tried has accuracy of at least 0.9, nor has the base (0.8)"),
        "{said}"
    );
    assert!(search(&["--at-least", "nonsense=1"]).complaint(2).contains("--at-least: no metric `nonsense`"));
}

#[test]
fn what_cannot_be_searched_is_said() {
    let sandbox = sandbox();
    let search = |more: &[&str]| {
        let args: Vec<&str> = ["tune", "--model", "toy", "--metric", "cost", "--direction", "minimize"]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        sandbox.run(&args)
    };
    let axis = |text: &str, code: i32| search(&["--axis", text]).complaint(code);
    assert!(axis("nonsense=1", 2).contains("--axis: unknown name `nonsense`"), "{}", axis("nonsense=1", 2));
    assert!(axis("power_limit_w=300", 2).contains("--set-hardware allows that"));
    assert!(axis("x", 2).contains("it needs values"));
    assert!(axis("seed=1,2", 2).contains("`seed` is not an axis"), "{}", axis("seed=1,2", 2));
    assert!(axis("batch_size=32", 1).contains("there is no value to try except the base's"));
    assert!(axis("batch_size=0", 1).contains("training.batch_size is 0 (it must be at least 1)"));
    let said = sandbox.run(&["tune", "--model", "none", "--metric", "cost", "--direction", "minimize"]).complaint(1);
    assert!(said.contains("model `none` has no finished attempt"), "{said}");
    let said = sandbox.run(&["tune", "--model", "toy", "--metric", "energy", "--axis", "x=2"]).complaint(1);
    assert!(said.contains("nothing can be compared with the base"), "{said}");
    assert!(said.contains("choose another --metric") && !said.contains("ledger rerun"), "{said}");
    // A number of steps is other work with another batch.
    sandbox.write("m.toml", format!("{}[hardware]\ndevice = 'cpu'\n", manifest("steps = 9")));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let said = search(&[]).complaint(1);
    assert!(said.contains("another batch size changes the work") && said.contains("--set-hardware"), "{said}");
}

#[test]
fn a_configuration_that_fails_is_left_behind_and_not_tried_again() {
    let sandbox = sandbox();
    sandbox.write("worker.sh", format!("{WORKER}\n[ \"$2\" = 3 ] && {{ echo too much >&2; exit 1; }}; exit 0\n"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let args = ["tune", "--model", "toy", "--metric", "cost", "--direction", "minimize", "--axis", "x=2,3"];
    let document = sandbox.json(&args, 0);
    let gone = list(&document, "gone");
    assert!(gone[0]["why"].as_str().unwrap().contains("too much"), "{gone:?}");
    let before = executed(&sandbox);
    assert_eq!(before["32 3"], 1);
    assert_eq!(list(&document, "places").len(), 2);
    sandbox.json(&args, 0);
    assert_eq!(executed(&sandbox), before);
}
