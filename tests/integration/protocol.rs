//! The fair protocol: order, repetitions, canary, cooling, warm-up, and that all of it is recorded.

use crate::fake::Fake;
use crate::machine::Machine;
use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use ledger::engine::Order;
use std::fs;

/// Notes that it was executed, and says the value that its parameter and the count of its executions give.
const NOTING: &str = r#"
echo "$1" >> executed
n=$(grep -c "^$1$" executed)
echo "{\"event\":\"metric\",\"name\":\"cost\",\"value\":$(($1 * 100 + VALUE))}" >> "$LEDGER_EVENTS"
"#;

fn sandbox(value: &str, head: &str, x: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", NOTING.replace("VALUE", value));
    let text = format!(
        "{head}\n[model]\nname = 'toy'\n[program]\ncommand = ['sh', 'worker.sh', '{{x}}']\n[params]\nx = {x}\n[hardware]\ndevice = 'cpu'\n[objective]\nmetric = 'cost'\ndirection = 'minimize'\n"
    );
    sandbox.write("m.toml", text);
    sandbox
}

fn executed(sandbox: &Sandbox) -> Vec<u32> {
    fs::read_to_string(sandbox.path("executed")).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn rounds_are_shuffled_by_the_seed_and_each_has_every_run_once() {
    let head = "repeats = 3\n[protocol]\norder_seed = 7\ncanary_every = 0\n";
    let sandbox = sandbox("0", head, "[1, 2, 3, 4, 5]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let order = Order { seed: Some(7), canary_every: 0 };
    let seed = sandbox.json(&["ls", "--all"], 0)["attempts"][0]["seed"].to_string();
    let seed: u64 = seed.trim_matches('"').parse().unwrap();
    let mut expected = Vec::new();
    let mut round = vec![1, 2, 3, 4, 5];
    for number in 0..3 {
        order.arrange(number, 5 * seed, &mut round);
        expected.extend(round.clone());
    }
    assert_eq!(executed(&sandbox), expected);
    let settings = &sandbox.json(&["show", "latest"], 0)["attempts"][0]["settings"];
    assert_eq!(settings["protocol.order"], "shuffled", "it is recorded");
    assert_eq!(settings["protocol.order_seed"], 7);
    assert_eq!(settings["protocol.min_window_s"], 10.0);
}

#[test]
fn without_a_protocol_the_order_is_that_of_the_cells() {
    let sandbox = sandbox("0", "repeats = 2\n", "[1, 2, 3]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&sandbox), [1, 2, 3, 1, 2, 3]);
    let settings = sandbox.json(&["show", "latest"], 0)["attempts"][0]["settings"].to_string();
    assert!(!settings.contains("protocol") && !settings.contains("repeats"), "{settings}");
}

/// Whatever happens on this machine, an attempt that tells of these steps is valid under `[protocol]` with these bounds.
const STEADY: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":12,"epochs":1,"samples_per_step":8}'
say '{"event":"phase_start","name":"epoch","index":1}'
sleep 0.1
for step in 1 2 3 4 5 6 7 8 9 10 11 12; do
  say "{\"event\":\"step\",\"step\":$step,\"duration_ns\":10000000,\"values\":{\"loss\":1}}"
done
say '{"event":"phase_stop","name":"epoch","index":1}'
"#;
const LENIENT: &str = "min_window_s = 0.0\nmin_readings = 0\n";

#[test]
fn the_canary_is_executed_first_last_and_in_between() {
    let head = format!("repeats = 2\n[protocol]\norder = 'written'\ncanary_every = 3\n{LENIENT}");
    let sandbox = sandbox("n", &head, "[1, 2, 3, 4]");
    sandbox.write("worker.sh", format!("{}{STEADY}", NOTING.replace("VALUE", "n")));
    let said = sandbox.run(&["run", "m.toml"]);
    // The canary's attempts are attempts of the first cell: with two of them its own second one is not wanted any more.
    assert_eq!(executed(&sandbox), [1, 1, 2, 3, 1, 4, 2, 1, 3, 4, 1]);
    // What is to be best is the program's own, and comes out the same on a machine that drifts.
    assert!(said.out.contains("canary: train_time changed by "), "{}", said.out);
    assert!(said.out.contains("from the first to the last of 4 attempts (p "), "{}", said.out);
    let attempts = sandbox.json(&["show", "latest~10"], 0);
    let canaries = attempts["attempts"].as_array().unwrap().iter();
    let canaries = canaries.filter(|attempt| attempt["settings"]["protocol.canary"] == true).count();
    assert_eq!(canaries, 1, "the first attempt of all");
    let document = sandbox.json(&["run", "m.toml"], 0);
    assert_eq!(document["executed"], 0, "everything is there");
    assert_eq!(document["drift"]["attempts"], 4, "the canaries of earlier commands of this manifest are there too");
    let document = sandbox.json(&["run", "m.toml", "--repeat", "3"], 0);
    assert_eq!(document["executed"], 12, "three more of each of the four, and no canary");
}

#[test]
fn more_jobs_than_runs_keep_the_control_runs_between_and_after_them() {
    let head = format!("repeats = 3\n[protocol]\norder = 'written'\ncanary_every = 3\n{LENIENT}");
    let sandbox = sandbox("n", &head, "[1, 2]");
    sandbox.write("worker.sh", format!("{}{STEADY}", NOTING.replace("VALUE", "n")));
    let document = sandbox.json(&["run", "m.toml", "--jobs", "8"], 0);
    assert_eq!(document["drift"]["attempts"], 3, "first, after three attempts, and last");
}

#[test]
fn a_canary_that_does_not_count_says_why() {
    let sandbox = sandbox("0", "repeats = 2\n[protocol]\norder = 'written'\n", "[1, 2, 3]");
    let said = sandbox.run(&["run", "m.toml"]).expect(0);
    assert!(said.contains("canary: none of its 3 attempts counts, so drift is unknown (tainted: warm-up"), "{said}");
    assert_eq!(sandbox.json(&["run", "m.toml"], 0)["drift"]["counted"], 0);
}

#[test]
fn a_single_run_is_executed_as_often_as_wanted_and_has_no_canary() {
    let sandbox = sandbox("0", "repeats = 5\n[protocol]\ncanary_every = 1\n", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&sandbox).len(), 5);
}

#[test]
fn a_rerun_is_executed_as_often_as_wanted_and_has_no_canary() {
    let sandbox = sandbox("0", "[protocol]\norder = 'written'\ncanary_every = 1\n", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let document = sandbox.json(&["rerun", "latest", "--times", "3"], 0);
    assert_eq!(document["reruns"].as_array().unwrap().len(), 3, "{document}");
    assert_eq!(executed(&sandbox).len(), 4);
}

#[test]
fn repetitions_end_when_the_interval_is_narrow() {
    let head = "repeats = { min = 3, max = 6, until = '2%' }\n";
    let calm = sandbox("0", head, "[1, 2]");
    calm.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&calm), [1, 2, 1, 2, 1, 2]);
    assert_eq!(calm.json(&["run", "m.toml"], 0)["executed"], 0);
    // 100 ± 40 for x = 1; for x = 2 the same is 20%: both go on to the end.
    let wild = sandbox("(n % 2) * 40", head, "1");
    let said = wild.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&wild), [1; 6]);
    let document = wild.json(&["run", "m.toml"], 0);
    assert_eq!(executed(&wild).len(), 6, "enough in any case");
    // Six values of 140 and 100 in turn: half the width of the interval is 2.5706 * 21.9 / sqrt(6), 19% of their mean.
    let of = |text: &str| text.lines().skip_while(|line| !line.starts_with("REPEATED")).collect::<Vec<_>>().join("\n");
    let id = document["runs"][0]["run"].as_str().unwrap()[..8].to_owned();
    assert_snapshot!(of(&said).replace(&id, "HASHHASH"), @r"
    REPEATED  METRIC  N       MEAN  INTERVAL
    HASHHASH  cost    6  120 ± 19%  not within 2%, ended by repeats.max = 6
    best toy: HASHHASH with cost 120 ± 19%, mean of 1 seed, 6 attempts
    ");
    let told = &document["repetitions"][0];
    assert_eq!((&told["reached"], &told["n"], &told["mean"]), (&false.into(), &6.into(), &120.0.into()), "{told}");
    assert_eq!(document["best"][0]["value"], 120.0, "the mean, and not the newest");
}

#[test]
fn what_is_learned_ends_no_repetitions() {
    let head = "repeats = { min = 2, max = 3, until = '0.001%' }\n";
    let sandbox = sandbox("0", head, "1");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", manifest.replace("metric = 'cost'\ndirection = 'minimize'", "metric = 'accuracy'"));
    let learned = r#"say '{"event":"metric","name":"accuracy","value":0.9}'"#;
    sandbox.write("worker.sh", format!("{}{STEADY}{learned}\n", NOTING.replace("VALUE", "0")));
    let document = sandbox.json(&["run", "m.toml"], 0);
    assert_eq!(document["repetitions"][0]["metric"], "train_time", "{document}");
    assert_eq!(executed(&sandbox).len(), 3, "the same accuracy from the same seed is no narrow interval");
    assert_eq!(document["best"][0]["metric"], "accuracy");
}

#[test]
fn a_hidden_attempt_does_not_end_the_repetitions() {
    let sandbox = sandbox("0", "repeats = { min = 3, max = 6, until = '2%' }\n", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&sandbox).len(), 3);
    let attempt = sandbox.json(&["show", "latest"], 0)["attempts"][0]["attempt"].as_str().unwrap().to_owned();
    sandbox.run(&["hide", &attempt]).expect(0);
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&sandbox).len(), 4, "three that count");
}

#[test]
fn bounds_of_repetitions_are_checked() {
    let complaint = |head: &str| sandbox("0", head, "1").run(&["run", "m.toml", "--dry-run"]).complaint(2);
    assert_snapshot!(
        [
            complaint("repeats = { min = 3 }"),
            complaint("repeats = { until = '0%' }"),
            complaint("repeats = { until = 'soon', max = 2 }"),
            complaint("repeats = { until = '5%', often = 3 }"),
            complaint("[protocol]\norder = 'random'\nwarmup_cv = 2\ncool_to_c = [40, 50]\n"),
        ]
        .join(""),
        @r#"
    m.toml:1:11: repeats.until is missing (give a share of the mean, such as "2%")
    m.toml:1:21: repeats.until is 0% (it must be a share above 0%, such as "2%")
    m.toml:1:21: repeats.until is soon (it must be a share above 0%, such as "2%")
    m.toml:1:35: repeats.max is 2, but repeats.min is 3 (it must be at least that)
    m.toml:1:27: unknown key `repeats.often` (known keys: min, max, until, metric)
    m.toml:2:9: protocol.order is the text 'random' (it must be shuffled or written)
    m.toml:3:13: protocol.warmup_cv is 2 (it must be a number from 0 and below 1)
    m.toml:4:13: protocol.cool_to_c is a list (it holds for the whole manifest: give one value)
    "#
    );
}

#[test]
fn the_canarys_attempts_count_for_the_interval_of_the_first_cell() {
    let head = "repeats = { min = 3, max = 6, until = '2%' }\n[protocol]\norder = 'written'\ncanary_every = 2\n";
    let sandbox = sandbox("0", head, "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&sandbox), [1, 1, 2, 1, 2, 1, 2, 1], "its own second one is not wanted any more");
}

#[test]
fn attempts_that_their_worker_taints_do_not_end_the_repetitions() {
    let sandbox = sandbox("0", "repeats = { min = 2, max = 4, until = '2%' }\n", "1");
    let taint = r#"echo '{"event":"fact","name":"tainted","value":"the fan failed"}' >> "$LEDGER_EVENTS""#;
    sandbox.write("worker.sh", format!("{}{taint}\n", NOTING.replace("VALUE", "0")));
    let said = sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(executed(&sandbox).len(), 4, "alike, but none of them counts");
    let told = "not within 2%, ended by repeats.max = 4; 4 without a value that counts (tainted: the fan failed)";
    assert!(said.contains(told), "{said}");
    assert!(said.contains("finished, tainted"), "{said}");
    let best = "best toy: none, since no attempt has a usable `cost`: 4 attempts tainted, for example: the fan failed";
    assert!(said.contains(best), "{said}");
    let document = sandbox.json(&["run", "m.toml"], 0);
    assert_eq!(document["runs"][0]["tainted"][0], "the fan failed");
    assert_eq!(document["best"].as_array().unwrap().len(), 0);
    assert_eq!(document["without_best"][0]["why"], "4 attempts tainted, for example: the fan failed");
}

const HOT: &str = "gpu NVIDIA H200\nuuid GPU-aa11\npower 0 400\ntemperature 60\n";

fn on_gpu(card: &str, worker: &str, protocol: &str) -> Machine {
    let machine = Machine::new(Fake::new(card));
    machine.manifest(worker, &format!("[protocol]\ncanary_every = 0\n{protocol}"));
    machine
}

fn reasons(attempt: &serde_json::Value) -> String {
    attempt["facts"]["validity.reasons"].to_string()
}

#[test]
fn an_attempt_waits_until_its_gpus_are_cool() {
    let machine = on_gpu(&format!("{HOT}cooled 2500 40\n"), "exit 0", "cool_to_c = 45\n");
    let attempt = machine.attempt(0, &[]);
    assert_eq!(attempt["facts"]["protocol.start_c"], 40);
    assert!(attempt["facts"]["protocol.cooled_s"].as_f64().unwrap() > 0.4);
    assert!(!reasons(&attempt).contains("hot start"), "{}", reasons(&attempt));
}

#[test]
fn one_that_cannot_wait_longer_is_a_hot_start() {
    let machine = on_gpu(HOT, "exit 0", "cool_to_c = 45\ncool_timeout_s = 0.1\n");
    let attempt = machine.attempt(0, &[]);
    assert_eq!(attempt["facts"]["protocol.start_c"], 60);
    assert!(reasons(&attempt).contains("hot start: GPU 0 began at 60 °C"), "{}", reasons(&attempt));
    assert!(reasons(&attempt).contains("too few samples"), "{}", reasons(&attempt));
}

#[test]
fn whoever_waits_for_a_gpu_can_be_interrupted() {
    let machine = on_gpu(HOT, "exit 0", "cool_to_c = 45\n");
    let mut command = machine.command(&["run", "m.toml"]);
    let mut child = command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("waits for a GPU of 60 °C to cool"), "{line}");
    crate::sandbox::signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(machine.sandbox.outcomes().is_empty(), "nothing began");
}

/// Steps of 10 ms, but for the first five, each half as long as the one before.
const SLOW_START: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":30,"epochs":1,"samples_per_step":8}'
step=0
for ms in 320 160 80 40 20 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10 10; do
  step=$((step + 1))
  say "{\"event\":\"step\",\"step\":$step,\"duration_ns\":${ms}000000,\"values\":{\"loss\":1}}"
done
"#;

#[test]
fn warm_up_lasts_until_steps_are_alike() {
    let protocol = "warmup_cv = 0.05\nwarmup_over = 10\nmin_window_s = 0.0\nmin_readings = 0\n";
    let attempt = on_gpu(HOT, SLOW_START, protocol).attempt(0, &[]);
    assert_eq!(attempt["facts"]["measure.warmup_steps"], 5);
    let rule = attempt["facts"]["measure.rule"].as_str().unwrap();
    assert!(rule.contains("the first 5 of 25 logged training steps, before the step time's coefficient"), "{rule}");
    assert!(!reasons(&attempt).contains("warm-up"), "{}", reasons(&attempt));
    let never = on_gpu(HOT, SLOW_START, &protocol.replace("= 10", "= 25")).attempt(0, &[]);
    assert!(reasons(&never).contains("warm-up: no 25 steps in a row"), "{}", reasons(&never));
    let plain = Machine::new(Fake::new(HOT));
    plain.manifest(SLOW_START, "");
    assert_eq!(plain.attempt(0, &[])["facts"]["measure.warmup_steps"], 2, "a tenth, without a protocol");
}
