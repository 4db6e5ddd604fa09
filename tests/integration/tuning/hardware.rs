//! `tune` on cards that can be set: only if somebody says so, and what becomes of configurations whose settings are refused.

use super::{executed, list, manifest};
use crate::fake::Fake;
use crate::machine::Machine;
use serde_json::Value;
use std::fs;
use std::process::Stdio;

const CARD: &str = "gpu NVIDIA H200\nuuid GPU-aa11\nlimits 200 700 650\nsupported 3201 1980 1500 990\n";
const LEARNING: &str = r#"echo "{\"event\":\"metric\",\"name\":\"loss\",\"value\":$1}" >> "$LEDGER_EVENTS""#;

fn machine(card: &str) -> Machine {
    base(card, "", &["run", "m.toml"])
}

/// A machine on which that command made the base.
fn base(card: &str, hardware: &str, command: &[&str]) -> Machine {
    let machine = Machine::new(Fake::new(card));
    machine.sandbox.write("worker.sh", LEARNING);
    machine.sandbox.write("m.toml", format!("{}[hardware]\ndevice = 'cuda'\n{hardware}", manifest("epochs = 1")));
    machine.run(command, &[]).expect(0);
    machine
}

/// The answer as a document.
fn answer(machine: &Machine, args: &[&str]) -> Value {
    let mut command = machine.command(&TUNE);
    let output = command.args(args).arg("--json").stderr(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Why each configuration was left behind.
fn reasons(document: &Value) -> Vec<String> {
    list(document, "gone").iter().map(|gone| format!("{}: {}", gone["changes"], gone["why"])).collect()
}

fn limits(machine: &Machine) -> Vec<String> {
    let log = machine.fake.log();
    let set =
        log.lines().filter(|line| line.contains("SetPowerManagementLimit") || line.contains("SetGpuLockedClocks"));
    set.map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect()
}

const TUNE: [&str; 5] = ["tune", "--model", "toy", "--metric", "loss"];

#[test]
fn limits_and_clocks_are_searched_if_that_is_allowed() {
    let machine = machine(CARD);
    let said = machine.run(&TUNE, &[]).expect(0);
    assert_eq!(machine.fake.log(), "", "nothing is set unless somebody says so");
    assert!(said.contains("not searched: hardware.power_limit_w (--set-hardware"), "{said}");
    let args: Vec<&str> =
        TUNE.into_iter().chain(["--set-hardware", "--axis", "power_limit_w", "--axis", "sm_clock_mhz"]).collect();
    let said = machine.run(&args, &[]).expect(0);
    // 85%, 70%, 55% and 40% of 700 W, and the clocks that are nearest to those shares of 1980 MHz.
    assert!(said.contains("power_limit_w 595, 490, 385, 280 (as it is at the base)"), "{said}");
    assert!(said.contains("sm_clock_mhz 1500, 990 (as it is at the base)"), "{said}");
    let set = limits(&machine);
    assert_eq!(set.iter().filter(|set| *set == "650000").count(), set.iter().filter(|set| set.len() == 6).count() / 2);
    for limit in ["595000", "490000", "385000", "280000", "1500", "990"] {
        assert!(set.iter().any(|set| set == limit), "{limit} in {set:?}");
    }
    assert!(
        fs::read_dir(machine.sandbox.path("restore"))
            .unwrap()
            .all(|entry| { entry.unwrap().path().extension().is_some_and(|ending| ending == "lock") })
    );
}

#[test]
fn where_nothing_may_be_set_the_rest_is_searched() {
    let machine =
        machine(&format!("{CARD}fail nvmlDeviceSetPowerManagementLimit 4\nfail nvmlDeviceSetGpuLockedClocks 4\n"));
    let document = answer(&machine, &["--set-hardware", "--candidates", "99"]);
    let batch = |place: &Value| place["config"]["training.batch_size"].as_i64().unwrap();
    assert_eq!(batch(&list(&document, "places")[0]), 16, "the loss is the batch size here");
    let gone = list(&document, "gone");
    let refused = gone.iter().filter(|gone| gone["why"].as_str().unwrap().contains("is refused")).count();
    // Four limits (and none) times two clocks (and none), each with one of four batches, less those that set nothing.
    assert_eq!(refused, (5 * 3 - 1) * 4, "{gone:?}");
}

#[test]
fn a_base_that_only_watched_is_searched_without_setting_anything() {
    let at_300 = CARD.replace("650", "300");
    for privilege in ["", "fail nvmlDeviceSetPowerManagementLimit 4\n"] {
        let card = format!("{at_300}{privilege}");
        let machine = base(&card, "power_limit_w = 300\n", &["run", "m.toml", "--observe-only"]);
        let document = answer(&machine, &["--axis", "batch_size=16"]);
        assert_eq!(machine.fake.log(), "", "nobody said --set-hardware");
        assert_eq!(list(&document, "places").len(), 2);
    }
}

#[test]
fn a_base_that_sets_its_gpus_is_searched_only_if_that_is_allowed() {
    let machine = base(CARD, "power_limit_w = 300\n", &["run", "m.toml"]);
    let before = machine.fake.log();
    let args: Vec<&str> = TUNE.into_iter().chain(["--axis", "batch_size=16"]).collect();
    let said = machine.run(&args, &[]).complaint(2);
    assert!(said.contains("sets a power limit or clocks on its GPUs (--set-hardware allows that"), "{said}");
    assert_eq!(machine.fake.log(), before);
    answer(&machine, &["--axis", "batch_size=16", "--set-hardware"]);
    assert!(machine.fake.log().len() > before.len());
}

#[test]
fn a_refused_setting_leaves_those_in_the_search_that_do_without_it() {
    let axes = ["--set-hardware", "--axis", "sm_clock_mhz=990", "--axis", "power_limit_w=300"];
    // A card without such locks, and one whose user may not make them.
    for refusal in ["fail nvmlDeviceSetGpuLockedClocks 3\n", "fail nvmlDeviceSetGpuLockedClocks 4\n"] {
        let machine = machine(&format!("{CARD}{refusal}"));
        let places = |document: &Value| -> Vec<(String, i64)> {
            let places = list(document, "places").iter();
            places.map(|place| (place["config"].to_string(), place["n"].as_i64().unwrap())).collect()
        };
        let first = answer(&machine, &axes);
        assert_eq!(places(&first).len(), 2, "{refusal}{:?}", reasons(&first));
        assert!(places(&first).iter().any(|(config, _)| config.contains("\"hardware.power_limit_w\":300")));
        let again = answer(&machine, &axes);
        assert_eq!(places(&again), places(&first), "{refusal}{:?}", reasons(&again));
        assert!(executed(&machine.sandbox).is_empty());
        for gone in reasons(&again) {
            assert!(gone.contains("sm_clock_mhz") && gone.contains("locking the multiprocessors' clock"), "{gone}");
        }
    }
}

#[test]
fn who_is_not_tried_for_want_of_a_privilege_is_told_what_was_refused() {
    let machine = machine(&format!("{CARD}fail nvmlDeviceSetGpuLockedClocks 4\n"));
    let document = answer(&machine, &["--set-hardware", "--axis", "sm_clock_mhz=990,1500"]);
    let reasons = reasons(&document);
    let untried = reasons.iter().filter(|why| why.contains("\"not tried, since locking")).count();
    assert_eq!((reasons.len(), untried), (2, 1), "{reasons:?}");
}

#[test]
fn what_was_searched_is_told_where_all_that_are_left_agree() {
    let machine = machine(CARD);
    let args: Vec<&str> = TUNE.into_iter().chain(["--axis", "batch_size=16", "--at-most", "loss=20"]).collect();
    let said = machine.run(&args, &[]).expect(0);
    let row = said.lines().find(|line| line.starts_with("1  ")).unwrap_or_else(|| panic!("{said}"));
    let heads = said.lines().find(|line| line.starts_with("#  RUN")).unwrap_or_else(|| panic!("{said}"));
    assert!(heads.trim_end().ends_with("batch_size"), "{said}");
    assert!(row.trim_end().ends_with("16"), "{said}");
    let wrong: Vec<&str> = args.iter().map(|arg| if *arg == "--at-most" { "--at-least" } else { arg }).collect();
    let said = machine.run(&wrong, &[]).complaint(2);
    assert!(said.contains("--at-least: less `loss` is better (--at-most loss=20"), "{said}");
}
