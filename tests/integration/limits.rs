//! Power limits and clocks: set for an attempt, and given back however it ends. Never on a real card: the fake NVML writes down every
//! call that would change one.

mod restore;
mod zeusd;

use crate::fake::Fake;
use crate::machine::Machine;
use crate::sandbox::signal;
use ledger::engine::{Attempted, Bound, Launch, Place, Seen, Shim, Stop, Watch, execute};
use ledger::gpu::{GpuInfo, Gpus, usable};
use ledger::record::{Cell, Parts, Run, Table, Value};
use ledger::store::Store;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Stdio;

const CARD: &str = "gpu NVIDIA H200\nuuid GPU-aa11\nbus 00000000:3B:00.0\nlimits 200 700 650\nsupported 3201 1980 1500 990\nsupported 2619 1980 990\n";
const ALL: &str = "power_limit_w = 300\nsm_clock_mhz = 990\nmemory_clock_mhz = 2619\n";
const QUICK: &str = "exit 0";
const LONG: &str = "touch started; exec sleep 600";

const SET: [&str; 3] = [
    "0 nvmlDeviceSetMemoryLockedClocks 2619 2619 = 0",
    "0 nvmlDeviceSetGpuLockedClocks 990 990 = 0",
    "0 nvmlDeviceSetPowerManagementLimit 300000 = 0",
];
const UNDONE: [&str; 3] = [
    "0 nvmlDeviceSetPowerManagementLimit 650000 = 0",
    "0 nvmlDeviceResetGpuLockedClocks = 0",
    "0 nvmlDeviceResetMemoryLockedClocks = 0",
];

fn machine(card: &str, worker: &str, hardware: &str) -> Machine {
    let machine = Machine::new(Fake::new(card));
    machine.manifest(worker, hardware);
    machine
}

fn lines(machine: &Machine) -> Vec<String> {
    machine.fake.log().lines().map(str::to_owned).collect()
}

fn set_and_undone() -> Vec<&'static str> {
    SET.into_iter().chain(UNDONE).collect()
}

/// The files that name what has to be undone.
fn pending(machine: &Machine) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(machine.sandbox.path("restore")) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect()
}

#[test]
fn what_a_cell_asks_for_is_set_before_the_worker_and_undone_after_it() {
    let machine = machine(CARD, QUICK, ALL);
    let attempt = machine.attempt(0, &[]);
    assert_eq!(lines(&machine), set_and_undone());
    let facts = &attempt["facts"];
    assert_eq!((&facts["gpu.0.power_limit_w"], &facts["gpu.0.power_limit_before_w"]), (&300.0.into(), &650.0.into()));
    assert_eq!(facts["hardware.set"], true);
    assert_eq!(attempt["warnings"].to_string(), "[]");
    assert!(pending(&machine).is_empty());
    let config = &machine.sandbox.json(&["show", "latest"], 0)["parts"]["config"]["value"];
    assert_eq!(config["hardware.power_limit_w"], 300, "it is part of the run's identity");
}

#[test]
fn nothing_is_set_where_nothing_is_asked_for() {
    let machine = machine(CARD, QUICK, "");
    let attempt = machine.attempt(0, &[]);
    assert_eq!(machine.fake.log(), "");
    assert_eq!(attempt["facts"]["hardware.set"], serde_json::Value::Null);
    assert!(!machine.sandbox.path("restore").exists());
}

#[test]
fn each_card_of_a_run_gets_its_own_limit_back() {
    let two = "gpu A\nuuid GPU-a\nlimits 100 400 400\ngpu A\nuuid GPU-b\nlimits 100 400 350\n";
    let machine = machine(two, QUICK, "gpus = 2\nparallelism = 'data'\npower_limit_w = 200\n");
    machine.attempt(0, &[]);
    let call = "nvmlDeviceSetPowerManagementLimit";
    let expected = [
        format!("0 {call} 200000 = 0"),
        format!("1 {call} 200000 = 0"),
        format!("0 {call} 400000 = 0"),
        format!("1 {call} 350000 = 0"),
    ];
    assert_eq!(lines(&machine), expected);
}

#[test]
fn a_sweep_over_limits_sets_and_undoes_for_each_run() {
    let machine = machine(CARD, QUICK, "power_limit_w = [300, 400]\n");
    machine.run(&["run", "m.toml"], &[]).expect(0);
    let limits: Vec<String> = lines(&machine).iter().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
    assert_eq!(limits, ["300000", "650000", "400000", "650000"]);
    let refused = machine.run(&["run", "m.toml", "--repeat", "1", "--jobs", "2"], &[]).complaint(2);
    assert!(refused.contains("one after the other"), "{refused}");
}

#[test]
fn what_the_card_does_not_allow_is_refused_with_what_it_does() {
    let complaint = |hardware: &str| {
        let machine = machine(CARD, QUICK, hardware);
        let said = machine.run(&["run", "m.toml"], &[]).complaint(2);
        assert_eq!(machine.fake.log(), "");
        assert!(!machine.sandbox.ledger_dir().join("ledger.redb").exists(), "nothing was started");
        said
    };
    let card = "GPU 0 (NVIDIA H200)";
    assert_eq!(
        complaint("power_limit_w = [300, 100]\n"),
        format!("error: `hardware.power_limit_w` is 100, but {card} takes 200 to 700 W\n")
    );
    assert_eq!(
        complaint("sm_clock_mhz = 1000\n"),
        format!("error: `hardware.sm_clock_mhz` is 1000, but {card} has 990, 1500, 1980 MHz\n")
    );
    assert_eq!(
        complaint("memory_clock_mhz = 1\n"),
        format!("error: `hardware.memory_clock_mhz` is 1, but {card} has 2619, 3201 MHz\n")
    );
    let silent = machine(&format!("{CARD}fail nvmlDeviceGetPowerManagementLimitConstraints 3\n"), QUICK, ALL);
    let said = silent.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(said.contains("`hardware.power_limit_w` cannot be set on GPU 0 (NVIDIA H200): "), "{said}");
}

#[test]
fn without_privilege_the_run_is_refused_and_says_which_is_missing() {
    let script = format!("{CARD}fail nvmlDeviceSetPowerManagementLimit 4\n");
    let machine = machine(&script, QUICK, "power_limit_w = [300, 400]\n");
    let socket = machine.sandbox.path("nobody.sock");
    let env = [("ZEUSD_SOCK_PATH", socket.to_str().unwrap())];
    let said = machine.run(&["run", "m.toml"], &env).complaint(2);
    for part in ["setting the power limit to 300 W on GPU 0 is refused", "CAP_SYS_ADMIN", "no zeusd", "--observe-only"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("400 W"), "said once: {said}");
    assert_eq!(lines(&machine), ["0 nvmlDeviceSetPowerManagementLimit 300000 = 4"], "there was nothing to undo");
    assert!(machine.sandbox.outcomes().is_empty());
    assert!(pending(&machine).is_empty());
}

#[test]
fn what_was_done_before_a_refusal_is_undone() {
    let machine = machine(&format!("{CARD}fail nvmlDeviceSetPowerManagementLimit 999\n"), QUICK, ALL);
    let said = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(said.contains("setting the power limit to 300 W on GPU 0 failed"), "{said}");
    let refused = "0 nvmlDeviceSetPowerManagementLimit 300000 = 999";
    assert_eq!(lines(&machine), [SET[0], SET[1], refused, UNDONE[1], UNDONE[2]]);
    assert!(pending(&machine).is_empty());
}

#[test]
fn a_driver_that_does_not_know_a_call_leaves_nothing_to_undo() {
    let old = "fail nvmlDeviceSetMemoryLockedClocks 13\nfail nvmlDeviceResetMemoryLockedClocks 13\n";
    let machine = machine(&format!("{CARD}{old}"), QUICK, ALL);
    let said = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(said.contains("locking the memory's clock at 2619 MHz on GPU 0 failed"), "{said}");
    assert!(pending(&machine).is_empty(), "the card is as it was, and others may set it");
    machine.manifest(QUICK, "power_limit_w = 300\n");
    machine.run(&["run", "m.toml"], &[]).expect(0);
}

#[test]
fn nothing_is_set_on_a_card_on_which_others_compute() {
    let machine = machine(&format!("{CARD}process 4711 1024\n"), QUICK, ALL);
    let said = machine.run(&["run", "m.toml"], &[]).complaint(75);
    assert!(said.contains("nothing is set on GPU 0: process 4711 computes on it"), "{said}");
    assert_eq!(machine.fake.log(), "");
}

#[test]
fn processes_of_the_attempt_before_may_take_their_time_to_die() {
    let machine = machine(&format!("{CARD}process 4711 1024 3000\n"), QUICK, ALL);
    machine.run(&["run", "m.toml"], &[]).expect(0);
    assert_eq!(lines(&machine), set_and_undone());
}

#[test]
fn a_card_whose_worker_cannot_be_started_is_given_back_and_what_went_wrong_is_kept() {
    let machine = machine(&format!("{CARD}fail nvmlDeviceResetGpuLockedClocks 999\n"), "", "");
    let (store, bound, mut shim) = asking(&machine);
    // It becomes the watcher, and is gone when the worker is to be started.
    let once = machine.sandbox.path("once");
    fs::write(&once, format!("#!/bin/sh\nrm \"$0\"\nexec '{}' \"$@\"\n", shim.executable.display())).unwrap();
    fs::set_permissions(&once, fs::Permissions::from_mode(0o755)).unwrap();
    shim.executable = once;
    let came = execute(&store, &bound, None, &Table::new(), &shim, &Panicking, &Nobody);
    let Ok(Attempted::Executed(executed)) = came else { panic!("{came:?}") };
    let attempt = &executed.attempt;
    assert!(attempt.outcome.reason().unwrap().contains("the worker could not be started"), "{attempt:?}");
    let warned = attempt.warnings.concat();
    assert!(warned.contains("could not be restored: unlocking the multiprocessors' clock on GPU 0 failed"), "{warned}");
}

/// Sets another limit while the worker works, as an administrator would.
#[test]
fn a_limit_that_is_changed_in_the_midst_of_an_attempt_taints_it() {
    for hardware in ["power_limit_w = 300\n", ""] {
        let machine = machine(CARD, "exit 0", hardware);
        let line = "0 nvmlDeviceSetPowerManagementLimit 500000 = 0";
        machine
            .manifest(&format!("sleep 0.5; echo '{line}' >> '{}'; sleep 0.5", log_path(&machine).display()), hardware);
        let attempt = machine.attempt(0, &[]);
        let (reasons, facts) = (attempt["facts"]["validity.reasons"].to_string(), &attempt["facts"]);
        assert_eq!(facts["gpu.0.power_limit_after_w"], 500.0, "{hardware}");
        assert!(reasons.contains("W at the beginning and 500 W at the end"), "{reasons}");
    }
}

#[test]
fn observing_sets_nothing() {
    let machine = machine(CARD, QUICK, ALL);
    machine.run(&["run", "m.toml", "--observe-only"], &[]).expect(0);
    assert_eq!(machine.fake.log(), "");
    let attempt = &machine.sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(attempt["settings"]["hardware.observe_only"], true);
}

#[test]
fn observing_asks_nobody_what_is_allowed() {
    let script = format!("{CARD}fail nvmlDeviceGetPowerManagementLimitConstraints 3\n");
    let machine = machine(&script, QUICK, "power_limit_w = 300\n");
    machine.run(&["run", "m.toml"], &[]).complaint(2);
    machine.run(&["run", "m.toml", "--observe-only"], &[]).expect(0);
    assert_eq!(machine.fake.log(), "");
}

#[test]
fn attempts_that_only_watched_do_not_stand_for_those_that_are_wanted() {
    let machine = machine(CARD, QUICK, "power_limit_w = 300\n");
    machine.run(&["run", "m.toml", "--observe-only"], &[]).expect(0);
    assert_eq!(machine.fake.log(), "");
    for _ in 0..2 {
        machine.run(&["run", "m.toml"], &[]).expect(0);
        assert_eq!(machine.sandbox.outcomes().len(), 2, "one more, and then enough");
    }
}

#[test]
fn a_limit_that_one_cell_alone_asks_for_is_shown() {
    let machine = machine(CARD, QUICK, "[grid]\ninclude = [{ hardware.power_limit_w = 300 }]\n");
    let said = machine.run(&["run", "m.toml", "--dry-run"], &[]).expect(0);
    assert!(said.contains("power_limit_w") && said.contains("300"), "{said}");
}

#[test]
fn a_refused_run_says_why_in_the_document_too() {
    let machine = machine(
        &format!("{CARD}fail nvmlDeviceSetPowerManagementLimit 4\n"),
        QUICK,
        "power_limit_w = [300, 400]\nsm_clock_mhz = 990\n",
    );
    let output = machine.command(&["run", "m.toml", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons: Vec<&str> =
        document["trouble"].as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons.iter().all(|why| why.contains("setting the power limit to")), "{reasons:?}");
    assert_eq!(reasons.iter().filter(|why| why.starts_with("not tried, since ")).count(), 1, "{reasons:?}");
}

#[test]
fn watched_attempts_on_cards_that_are_set_otherwise_are_none_of_the_repeats() {
    for (now, expected) in [("650", 2), ("300", 1)] {
        let card = CARD.replace("650", now);
        let machine = machine(&card, QUICK, "power_limit_w = 300\n");
        for _ in 0..2 {
            machine.run(&["run", "m.toml", "--observe-only"], &[]).expect(0);
        }
        assert_eq!(machine.sandbox.outcomes().len(), expected, "at {now} W, one is wanted");
    }
}

#[test]
fn an_attempt_on_a_card_that_another_one_has_set_is_tainted() {
    let machine = machine(CARD, QUICK, "");
    let restore = place(&machine);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(restore.join("a.json"), left(boot.trim(), "GPU-aa11")).unwrap();
    // Its supervisor lives.
    let lock = fs::File::create(restore.join("GPU-aa11.lock")).unwrap();
    lock.lock().unwrap();
    let attempt = machine.attempt(0, &[]);
    let reasons = attempt["facts"]["validity.reasons"].to_string();
    assert!(reasons.contains("settings of others: `"), "{reasons}");
    assert_eq!(machine.fake.log(), "");
    assert_eq!(pending(&machine).len(), 1);
}

#[test]
fn whoever_wants_a_card_that_is_set_waits_for_it() {
    let machine = machine(CARD, QUICK, ALL);
    let lock = fs::File::create(place(&machine).join("GPU-aa11.lock")).unwrap();
    lock.lock().unwrap();
    let mut child = machine.command(&["run", "m.toml"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // It says that it waits; the ledger that has set the card may be any.
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(machine.fake.log(), "", "{line}");
    assert!(machine.sandbox.outcomes().is_empty() && child.try_wait().unwrap().is_none(), "{line}");
    lock.unlock().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(lines(&machine), set_and_undone());
    drop(said);
}

#[test]
fn a_worker_that_fails_leaves_the_card_as_it_was() {
    let machine = machine(CARD, "exit 3", ALL);
    machine.run(&["run", "m.toml"], &[]).complaint(4);
    assert_eq!(lines(&machine), set_and_undone());
}

#[test]
fn an_interruption_leaves_the_card_as_it_was() {
    for name in ["INT", "TERM"] {
        let machine = machine(CARD, LONG, ALL);
        let child = machine.command(&["run", "m.toml"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        machine.sandbox.wait_for("the worker's start", || machine.sandbox.path("started").exists());
        assert_eq!(lines(&machine), SET);
        assert_eq!(pending(&machine).len(), 1);
        let doctor = machine.run(&["doctor"], &[]).expect(0);
        assert!(doctor.contains("1 file of attempts that run now"), "{doctor}");
        signal(child.id(), name);
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
        assert_eq!(lines(&machine), set_and_undone(), "SIG{name}");
        assert!(pending(&machine).is_empty());
    }
}

#[test]
fn a_sweep_goes_on_to_its_end_when_a_card_cannot_be_given_back() {
    let script = format!("{CARD}fail nvmlDeviceResetGpuLockedClocks 999\n");
    let machine = machine(&script, QUICK, "sm_clock_mhz = [990, 1500]\n");
    let said = machine.run(&["run", "m.toml"], &[]);
    assert!(said.err.contains("settings of an earlier attempt are still there"), "{said:?}");
    assert_eq!(machine.sandbox.outcomes().len(), 1, "the second one is refused");
    assert!(!lines(&machine).iter().any(|line| line.contains("1500")), "{:?}", lines(&machine));
}

#[test]
fn what_was_set_on_the_first_card_is_undone_when_the_second_refuses() {
    let two = "gpu A\nuuid GPU-a\nlimits 100 400 400\ngpu B\nuuid GPU-b\nlimits 100 400 350\nfail nvmlDeviceSetPowerManagementLimit 3\n";
    let machine = machine(two, QUICK, "gpus = 2\nparallelism = 'data'\npower_limit_w = 200\n");
    machine.run(&["run", "m.toml"], &[]).complaint(2);
    let call = "nvmlDeviceSetPowerManagementLimit";
    assert_eq!(
        lines(&machine),
        [format!("0 {call} 200000 = 0"), format!("1 {call} 200000 = 3"), format!("0 {call} 400000 = 0")]
    );
    assert!(pending(&machine).is_empty() && machine.sandbox.outcomes().is_empty());
}

#[test]
fn nothing_is_set_on_a_card_that_does_not_tell_who_computes_on_it() {
    let calls = [
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ];
    let fails: String = calls.map(|call| format!("fail {call} 999\n")).concat();
    let machine = machine(&format!("{CARD}{fails}"), QUICK, ALL);
    let said = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(said.contains("its other processes cannot be listed"), "{said}");
    assert_eq!(machine.fake.log(), "");
}

/// The folder of what has to be undone, made as the program makes it.
fn place(machine: &Machine) -> PathBuf {
    let restore = machine.sandbox.path("restore");
    fs::create_dir_all(&restore).unwrap();
    fs::set_permissions(&restore, fs::Permissions::from_mode(0o700)).unwrap();
    restore
}

/// A file of a supervisor that is gone, which had set a limit of 300 W.
fn left(boot: &str, uuid: &str) -> String {
    format!(
        r#"{{"format":1,"boot_id":"{boot}","pid":99,"gpus":1,"cards":[{{"index":0,"name":"NVIDIA H200","uuid":"{uuid}","pci_bus_id":"x","made":{{"power_limit_mw":300000}},"power_limit_mw":650000}}]}}"#
    )
}

/// Where the fake writes down what changes a card.
fn log_path(machine: &Machine) -> PathBuf {
    let mut path = machine.fake.path().into_os_string();
    path.push(".log");
    path.into()
}

struct Nobody;

impl Stop for Nobody {
    fn asked(&self) -> u32 {
        0
    }

    fn time_left(&self) -> Option<std::time::Duration> {
        None
    }
}

struct Panicking;

impl Watch for Panicking {
    fn see(&self, seen: Seen<'_>) {
        assert!(!matches!(seen, Seen::Output(..)), "as asked for");
    }
}

/// A run that says hello and asks for everything, and what executes it.
fn asking(machine: &Machine) -> (Store, Bound, Shim) {
    let gpus: Vec<GpuInfo> = usable(&Gpus::load(Some(&machine.fake.path())).unwrap(), None).unwrap();
    let hardware = [("power_limit_w", 300), ("sm_clock_mhz", 990), ("memory_clock_mhz", 2619)];
    let config: Table = hardware.map(|(key, value)| (format!("hardware.{key}"), Value::Int(value))).into();
    let run = Run::new(Parts {
        config: config.clone().into(),
        program: "p".into(),
        container: "host".into(),
        cuda: "none".into(),
        driver: "none".into(),
        device: "cuda".into(),
        seed: 1,
    });
    let argv = ["sh", "-c", "echo hello; sleep 600"].map(str::to_owned).into();
    let bound = Bound {
        run,
        cell: Cell { config, ..Cell::default() },
        launch: Launch::Program { argv, directory: machine.sandbox.path("") },
        gpus,
        nvml: Some(machine.fake.path()),
        image: None,
        data: None,
        program_files: Vec::new(),
        notes: Vec::new(),
        no_gpu: None,
        facts: Table::new(),
    };
    let store = Store::at(machine.sandbox.ledger_dir());
    let restore = Place::at(machine.sandbox.path("restore"));
    let shim = Shim { executable: env!("CARGO_BIN_EXE_ledger").into(), restore, key: None };
    (store, bound, shim)
}

#[test]
fn nothing_is_set_for_an_attempt_that_nobody_wants_any_more() {
    let machine = machine(CARD, "", "");
    let (store, bound, shim) = asking(&machine);
    let came = execute(&store, &bound, Some(0), &Table::new(), &shim, &Panicking, &Nobody);
    assert!(matches!(came, Ok(Attempted::Complete)), "{came:?}");
    assert_eq!(machine.fake.log(), "");
    assert!(pending(&machine).is_empty());
}

#[test]
fn a_panic_of_the_supervisor_leaves_the_card_as_it_was() {
    let machine = machine(CARD, "", "");
    let (store, bound, shim) = asking(&machine);
    let panicked = std::panic::catch_unwind(|| {
        let _ = execute(&store, &bound, None, &Table::new(), &shim, &Panicking, &Nobody);
    });
    assert!(panicked.is_err());
    assert_eq!(lines(&machine), set_and_undone());
    assert!(pending(&machine).is_empty());
}
