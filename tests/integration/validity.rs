//! The stamp on what was measured: who gets `valid`, who gets `tainted`, and what answers make of it.

use crate::fake::Fake;
use crate::machine::Machine;
use insta::assert_snapshot;
use serde_json::Value;

const CARD: &str = "gpu NVIDIA H200\nuuid GPU-aa11\npower 0 400\nsm_clock 1980\n";

/// Trains for a second and a half, in steps of a tenth.
const WORKER: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":15,"epochs":1,"samples_per_step":8}'
say '{"event":"phase_start","name":"epoch","index":1}'
for step in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  sleep 0.1
  say "{\"event\":\"step\",\"step\":$step,\"duration_ns\":100000000,\"values\":{\"loss\":1}}"
done
say '{"event":"phase_stop","name":"epoch","index":1}'
say '{"event":"metric","name":"accuracy","value":0.5}'
"#;

fn machine(card: &str, hardware: &str) -> Machine {
    let machine = Machine::new(Fake::new(card));
    machine.manifest(WORKER, hardware);
    machine
}

fn reasons(attempt: &Value) -> Vec<String> {
    let stamp = attempt["facts"]["validity"].as_str().unwrap();
    let reasons = attempt["facts"]["validity.reasons"].as_array().cloned().unwrap_or_default();
    assert_eq!(stamp, if reasons.is_empty() { "valid" } else { "tainted" });
    let texts = reasons.iter().map(|reason| reason.as_str().unwrap().to_owned());
    // Whatever else this machine has to do is nothing of these tests.
    texts.filter(|reason| !reason.starts_with("host overloaded") && !reason.starts_with("page faults")).collect()
}

fn of_card(card: &str) -> Vec<String> {
    reasons(&machine(card, "").attempt(0, &[]))
}

#[test]
fn an_attempt_that_nothing_disturbed_is_valid() {
    assert_eq!(of_card(CARD), Vec::<String>::new());
    let power_capped = format!("{CARD}throttle 4\n");
    assert_eq!(of_card(&power_capped), Vec::<String>::new(), "a card at its power limit is as it was set");
}

#[test]
fn each_disturbance_has_its_reason() {
    assert_eq!(
        of_card(&format!("{CARD}throttle 96\n")),
        ["throttled: GPU 0, sw_thermal in 100% of the samples, hw_thermal in 100% of the samples"]
    );
    assert_eq!(of_card(&format!("{CARD}ecc_errors 7 0 1\n")), ["ECC event: 1 corrected error in GPU 0's memory"]);
    assert_eq!(of_card(&format!("{CARD}ecc_errors 7 0 3\n")), ["ECC event: 3 corrected errors in GPU 0's memory"]);
    assert_eq!(of_card(&format!("{CARD}ecc_errors 7 2 0\n")), Vec::<String>::new(), "errors of before");
    assert_eq!(
        of_card(&format!("{CARD}process 1 1073741824\n")),
        ["foreign process on the GPU: 1 other process computes there"]
    );
}

#[test]
fn an_attempt_whose_gpu_was_lost_is_tainted() {
    // Some calls tell which GPU it is; the others are looks.
    let told = of_card(&format!("{CARD}lost_after 60\n"));
    assert_eq!(told, ["GPU lost: GPU 0 fell off the bus or was reset meanwhile"]);
}

#[test]
fn a_tainted_attempt_is_in_no_ranking_of_what_was_measured() {
    let machine = machine(&format!("{CARD}throttle 64\n"), "");
    machine.run(&["run", "m.toml"], &[]).expect(0);
    machine.run(&["best", "--model", "toy", "--metric", "accuracy"], &[]).expect(0);
    for metric in ["energy", "train_time"] {
        let said = machine.run(&["best", "--model", "toy", "--metric", metric], &[]).complaint(1);
        assert!(said.contains("throttled: GPU 0") && said.contains("--include"), "{said}");
        machine.run(&["best", "--model", "toy", "--metric", metric, "--include", "tainted"], &[]).expect(0);
        for question in [
            vec!["effects", "--model", "toy", "--metric", metric],
            vec!["plot", "distribution", "--model", "toy", "--metric", metric],
            vec!["plot", "distribution", "--model", "toy", "--metric", metric, "--gpus", "1"],
        ] {
            let said = machine.run(&question, &[]).complaint(1);
            assert!(said.contains("throttled: GPU 0") && said.contains("--include"), "{question:?}: {said}");
        }
    }
    for more in [vec![], vec!["--gpus", "1"]] {
        let question = ["pareto", "--model", "toy", "--metrics", "accuracy,energy"];
        let said = machine.run(&[&question[..], &more].concat(), &[]).complaint(1);
        assert!(said.contains("throttled: GPU 0"), "{said}");
    }
}

#[test]
fn what_is_shown_of_tainted_attempts_says_so_and_nothing_of_it_is_best() {
    let machine = machine(&format!("{CARD}throttle 64\n"), "");
    machine.run(&["run", "m.toml", "--repeat", "2"], &[]).expect(0);
    let compare = ["compare", "latest", "latest~1"];
    let said = machine.run(&compare, &[]).expect(0);
    assert!(said.contains("latest is tainted: throttled: GPU 0") && said.contains("latest~1 is tainted"), "{said}");
    let marked = |metric: &str| said.lines().any(|line| line.starts_with(metric) && line.contains('*'));
    assert!(!marked("energy") && !marked("train_time") && !marked("wall_time"), "{said}");
    let document = machine.sandbox.json(&compare, 0);
    assert!(document["attempts"][1]["tainted"][0].as_str().unwrap().starts_with("throttled"), "{document}");
    let said = machine.run(&["diff", "latest~1", "latest"], &[]).expect(1);
    assert!(said.contains("latest~1 is tainted: throttled: GPU 0"), "{said}");
    machine.manifest(WORKER, "[objective]\nmetric = \"train_time\"\n");
    let said = machine.run(&["run", "m.toml"], &[]).expect(0);
    assert!(said.contains("best toy: none, since no attempt has a usable `train_time`: 2 attempts tainted"), "{said}");
    assert!(said.contains("finished, tainted"), "{said}");
    let listed = machine.run(&["ls"], &[]).expect(0);
    assert_eq!(listed.matches("finished, tainted").count(), 2, "{listed}");
    assert_eq!(machine.sandbox.json(&["ls"], 0)["attempts"][0]["tainted"], true);
}

#[test]
fn whatever_is_made_of_a_tainted_attempt_says_so() {
    let machine = machine(&format!("{CARD}throttle 64\n"), "");
    machine.run(&["run", "m.toml"], &[]).expect(0);
    let sandbox = &machine.sandbox;
    let drawn = machine.run(&["plot", "energy", "latest"], &[]).expect(0);
    assert!(drawn.contains("(tainted)"), "{drawn}");
    let csv = machine.run(&["export", "--to", "csv"], &[]).expect(0);
    assert!(csv.contains("throttled: GPU 0"), "{csv}");
    machine.run(&["export", "latest", "--ro-crate", "crate"], &[]).expect(0);
    let crate_of = std::fs::read_to_string(sandbox.path("crate/ro-crate-metadata.json")).unwrap();
    assert!(crate_of.contains("; tainted: throttled: GPU 0"), "{crate_of}");
    machine.run(&["report", "--all", "-o", "site"], &[]).expect(0);
    let read = |file: &str| std::fs::read_to_string(sandbox.path(file)).unwrap();
    assert!(read("site/index.html").contains("finished, tainted"));
    assert!(read("site/data/attempts.csv").contains("throttled: GPU 0"));
    let page = std::fs::read_dir(sandbox.path("site/runs")).unwrap().next().unwrap().unwrap().path();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Tainted measurements of times, power and energy: throttled: GPU 0"), "{page}");
}

#[test]
fn settings_that_were_only_observed_are_held_against_the_cell() {
    let asked = "power_limit_w = 300\nsm_clock_mhz = 990\n";
    let observed = |card: &str| {
        let machine = machine(card, asked);
        machine.run(&["run", "m.toml", "--observe-only"], &[]).expect(0);
        assert_eq!(machine.fake.log(), "");
        reasons(&machine.sandbox.json(&["show", "latest"], 0)["attempts"][0])
    };
    let card = format!("{CARD}supported 3201 1980 990\n");
    assert_eq!(
        observed(&format!("{card}limits 200 700 650\n")),
        [
            "power limit: 300 W were requested, but GPU 0 had 650 W",
            "clocks moved: GPU 0's multiprocessors were to run at 990 MHz, but 100% of the samples differ (median 1980 MHz)"
        ]
    );
    let set_by_others = card.replace("sm_clock 1980", "sm_clock 990");
    assert_eq!(observed(&format!("{set_by_others}limits 200 700 300\n")), Vec::<String>::new());
}

#[test]
fn a_locked_clock_is_where_it_was_locked() {
    let machine = machine(&format!("{CARD}supported 3201 1980 990\n"), "power_limit_w = 300\nsm_clock_mhz = 990\n");
    assert_eq!(reasons(&machine.attempt(0, &[])), Vec::<String>::new());
}

#[test]
fn a_result_is_of_all_attempts_of_one_configuration() {
    let machine = machine(CARD, "");
    machine.run(&["run", "m.toml", "--repeat", "3"], &[]).expect(0);
    let run = |at: usize| machine.sandbox.json(&["ls", "--all"], 0)["attempts"][at]["run"].as_str().unwrap().to_owned();
    let first = run(0);
    let document = machine.sandbox.json(&["check", "mlperf-power", &first], 1);
    let rulings = document["results"].as_array().unwrap().iter();
    let passed: Vec<&str> =
        rulings.filter(|rule| rule["ruling"] == "pass").map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert!(
        passed.contains(&"Measure all Runs") && passed.contains(&"Scoring: Olympic mean of the runs"),
        "{passed:?}"
    );
    machine.manifest(&format!("{WORKER}# another program"), "");
    machine.run(&["run", "m.toml"], &[]).expect(0);
    let second = (0..4).map(run).find(|id| *id != first).unwrap();
    let said = machine.run(&["check", "mlperf-power", &first, &second], &[]).complaint(2);
    assert!(said.contains("2 configurations that differ in more than the seed"), "{said}");
}

#[test]
fn mlperfs_rules_are_told_one_by_one() {
    let machine = machine(CARD, "");
    machine.run(&["run", "m.toml"], &[]).expect(0);
    let document = machine.sandbox.json(&["check", "mlperf-power", "latest"], 1);
    let results = document["results"].as_array().unwrap();
    let told: Vec<String> = results
        .iter()
        .map(|rule| format!("{} | {}", rule["ruling"].as_str().unwrap(), rule["rule"].as_str().unwrap()))
        .collect();
    assert_snapshot!(told.join("\n"), @r"
    fail | Measure at Node Level
    pass | Measure All Nodes
    not applicable | Measure or Estimate Interconnects
    fail | Measure at the PSUs
    fail | Measure all Runs
    pass | Report 1 Measurement per Second
    fail | Measure max(a run, 60 power samples)
    fail | Target 5% Accuracy
    pass | Scoring: sum of reading x duration
    fail | Scoring: Olympic mean of the runs
    ");
    let why = |rule: &str| results.iter().find(|one| one["rule"] == rule).unwrap()["why"].as_str().unwrap().to_owned();
    assert!(why("Measure max(a run, 60 power samples)").contains("and 60 are needed"));
    // 400 W over the second and a half of the epoch.
    let score: f64 = why("Scoring: sum of reading x duration").split(' ').next().unwrap().parse().unwrap();
    let epoch = machine.sandbox.json(&["show", "latest"], 0)["attempts"][0]["wall_ns"].as_f64().unwrap() / 1e9;
    assert!(score > 400.0 * 1.5 && score <= 400.0 * epoch, "{score} J in {epoch} s");
    assert!(machine.run(&["check", "mlperf", "latest"], &[]).complaint(2).contains("mlperf-power"));
    assert!(machine.run(&["check", "mlperf-power", "ffff"], &[]).complaint(1).contains("ffff"));
}
