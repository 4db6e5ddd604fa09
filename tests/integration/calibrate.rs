//! `ledger calibrate` on a machine whose GPU and sensors a fake NVML makes up, with a load in the shell.

use crate::fake::Fake;
use crate::sandbox::{Said, Sandbox, signal};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The load: busy is who says so in a file.
const LOAD: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
while read on off; do
  echo 1 > busy; say '{"event":"phase_start","name":"load"}'
  sleep $on
  echo 0 > busy; say '{"event":"phase_stop","name":"load"}'
  sleep $off
done
echo "$CUDA_VISIBLE_DEVICES" > seen
"#;

const WORKER: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":2,"epochs":1,"samples_per_step":8}'
say '{"event":"phase_start","name":"epoch","index":1}'
sleep 0.9
say '{"event":"step","step":1,"duration_ns":900000000,"values":{"loss":2}}'
sleep 0.9
say '{"event":"step","step":2,"duration_ns":900000000,"values":{"loss":1}}'
say '{"event":"phase_stop","name":"epoch","index":1}'
"#;

struct Machine {
    sandbox: Sandbox,
    fake: Fake,
}

impl Machine {
    fn new(more: &str) -> Self {
        let sandbox = Sandbox::new();
        let busy = sandbox.write("busy", "0");
        let gpu =
            "gpu NVIDIA H200\nuuid GPU-aa11\nvbios 96.00.CF\npower 0 90.013\nsensor 100 30 20\nenergy_tick_ms 100\n";
        let fake = Fake::new(&format!("driver 580.159.04\n{gpu}busy {} 600\n{more}", busy.display()));
        fs::create_dir(sandbox.path("lib")).unwrap();
        fs::copy(fake.path(), sandbox.path("lib/libcuda.so.1")).unwrap();
        sandbox.write("load.sh", LOAD);
        sandbox.write("worker.sh", WORKER);
        let head = "name = \"gpu\"\n[model]\nname = \"toy\"\n[program]\ncommand = [\"sh\", \"worker.sh\"]\n";
        sandbox.write("m.toml", format!("{head}[hardware]\ndevice = \"cuda\"\n"));
        Self { sandbox, fake }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(args);
        command.env("LEDGER_NVML", self.fake.path()).env("LD_LIBRARY_PATH", self.sandbox.path("lib"));
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        Said::new(self.command(args).output().unwrap())
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[args, &["--json"]].concat()).expect(0)).unwrap()
    }

    /// What lies where calibrations are kept.
    fn kept(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.sandbox.ledger_dir().join("calibrations"));
        entries.map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
    }

    fn doctor(&self) -> Value {
        let document = self.json(&["doctor"]);
        let checks = document["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == "calibration").unwrap().clone()
    }
}

/// A load that is not quite on time must not fail the test: a machine has else to do.
fn assert_ms(what: &Value, expected: f64, margin: f64) {
    let found = what["s"].as_f64().unwrap() * 1e3;
    assert!((found - expected).abs() <= margin, "{found} ms is not {expected} ms: {what}");
}

#[test]
fn what_the_sensors_do_is_found_kept_and_used() {
    let machine = Machine::new("");
    assert_eq!(machine.doctor()["state"], "missing");
    assert_eq!(machine.doctor()["found"], "none of NVIDIA H200 with driver 580.159.04");
    let said = machine.run(&["calibrate", "--seconds", "15", "--", "sh", "load.sh"]);
    let text = said.expect(0);
    assert!(text.starts_with("GPU 0, NVIDIA H200\nSENSOR "), "{text}");
    assert_eq!(fs::read_to_string(machine.sandbox.path("seen")).unwrap(), "GPU-aa11\n");
    let kept = machine.kept();
    assert_eq!(kept.len(), 1, "one file and no pipe: {kept:?}");
    let key = kept[0].file_stem().unwrap().to_str().unwrap().to_owned();
    assert!(text.contains(&format!("\nstored as {key}, digest ")), "{text}");

    let shown = machine.json(&["calibrate", "--show", &key[..6]]);
    assert_eq!((&shown["device"], &shown["vbios"]), (&"NVIDIA H200".into(), &"96.00.CF".into()));
    assert_eq!((&shown["load"], &shown["unknown"]), (&"sh load.sh".into(), &serde_json::json!({})));
    let instant = &shown["power_instant"];
    assert_ms(&instant["period"], 100.0, 2.0);
    assert_ms(&instant["delay"], 50.0 + 20.0 + 15.0, 30.0);
    assert_ms(&shown["power_average"]["delay"], 50.0 + 20.0 + 500.0, 60.0);
    assert_ms(&shown["energy"]["delay"], 50.0, 30.0);
    assert_eq!(shown["energy"]["quantum_j"], 0.001);
    let listed = machine.json(&["calibrate", "--list"])["calibrations"].clone();
    assert_eq!((&listed[0]["key"], &listed[0]["digest"]), (&key.as_str().into(), &shown["digest"]));
    assert_eq!(machine.doctor()["state"], "ok");

    machine.run(&["run", "m.toml"]).expect(0);
    let facts = machine.sandbox.json(&["show", "latest"], 0)["attempts"][0]["facts"].clone();
    assert_eq!(facts["gpu.0.calibration"]["digest"], shown["digest"]);
    assert_eq!(facts["energy"]["training"]["gpu.0"]["calibration"], shown["digest"], "{}", facts["energy"]);
    assert_eq!(facts["energy"]["training"]["all"]["calibration"], shown["digest"]);

    // What was changed is not used, and whoever asks is told.
    let text = fs::read_to_string(&kept[0]).unwrap();
    fs::write(&kept[0], text.replace("\"load_ms\": 15000", "\"load_ms\": 15001")).unwrap();
    assert!(machine.doctor()["found"].as_str().unwrap().contains("its digest does not match its content"));
    let warned = machine.run(&["calibrate", "--list"]);
    assert!(
        warned.err.contains(" is not used: its digest does not match its content (`ledger calibrate` makes a new one)")
    );
    machine.run(&["run", "m.toml", "--repeat", "1"]).expect(0);
    let attempt = machine.sandbox.json(&["show", "latest"], 0)["attempts"][0].clone();
    assert!(attempt["facts"].get("gpu.0.calibration").is_none());
    assert!(attempt["warnings"].to_string().contains("energies assume default sensor timing for GPU 0"));
}

#[test]
fn what_goes_wrong_is_told_and_nothing_is_kept() {
    let machine = Machine::new("");
    let fails = |script: &str, code: i32, expected: &str| {
        machine.sandbox.write("bad.sh", script);
        let complaint = machine.run(&["calibrate", "--seconds", "15", "--", "sh", "bad.sh"]).complaint(code);
        assert!(complaint.contains(expected), "{complaint}");
        assert_eq!(machine.kept(), [] as [PathBuf; 0]);
    };
    fails(
        "cat > /dev/null; echo no device >&2; exit 3",
        4,
        "so nothing was stored: it exited with code 3: no device\n",
    );
    fails(
        "cat > /dev/null",
        4,
        "so nothing was stored: it reported no phase `load` (docs/protocol.md describes the events)\n",
    );
    let failure = r#"echo '{"event":"failure","message":"out of memory"}' >> "$LEDGER_EVENTS""#;
    fails(failure, 4, "so nothing was stored: out of memory\n");
    fails("kill -9 $$", 4, "so nothing was stored: it was ended by SIGKILL\n");
    let complaint = |args: &[&str]| machine.run(args).complaint(2);
    assert!(complaint(&["calibrate", "--gpu", "3", "--", "true"]).contains("no GPU 3 is visible (0 to 0 are)"));
    assert!(complaint(&["calibrate", "--seconds", "1", "--", "true"]).contains("1 is not in 15..=600"));
    #[cfg(not(feature = "train"))]
    assert!(
        complaint(&["calibrate"])
            .contains("this `ledger` was built without a load for GPUs (build with default features, or ")
    );
    assert!(machine.run(&["calibrate", "--list"]).expect(0).contains("no calibration is stored"));
    machine.run(&["calibrate", "--show", "12"]).complaint(1);
    let nowhere = machine.sandbox.command(&["calibrate", "--", "true"]).env("LEDGER_NVML", "/nonexistent.so").output();
    assert!(
        Said::new(nowhere.unwrap()).complaint(2).contains("cannot load `/nonexistent.so` (install the NVIDIA driver")
    );
    let hidden = machine.command(&["calibrate", "--", "true"]).env("CUDA_VISIBLE_DEVICES", "").output();
    assert!(
        Said::new(hidden.unwrap()).complaint(2).contains("no GPU is visible (`ledger doctor` shows what is missing)")
    );
}

#[test]
fn who_stops_it_finds_nothing_kept_and_no_load_left() {
    let machine = Machine::new("");
    machine.sandbox.write("load.sh", format!("echo $$ > pid\n{LOAD}"));
    let mut command = machine.command(&["calibrate", "--", "sh", "load.sh"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    machine
        .sandbox
        .wait_for("the load", || fs::read_to_string(machine.sandbox.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    signal(child.id(), "INT");
    let said = Sandbox::finish(child);
    assert!(said.complaint(130).ends_with("error: it was stopped, so nothing was stored\n"));
    assert_eq!(machine.kept(), [] as [PathBuf; 0]);
    let pid = fs::read_to_string(machine.sandbox.path("pid")).unwrap();
    assert!(!PathBuf::from(format!("/proc/{}", pid.trim())).exists());
}

#[test]
fn a_sensor_that_is_not_there_or_tells_nothing_has_its_reason() {
    let machine = Machine::new(
        "capability 8 0\nfail field.185 3\nfail field.83 999\nfail nvmlDeviceGetTotalEnergyConsumption 999\n",
    );
    // A load that says that it is on and is not.
    machine.sandbox.write("idle.sh", LOAD.replace("echo 1", "echo 0"));
    let text = machine.run(&["calibrate", "--seconds", "15", "--", "sh", "idle.sh"]).expect(1);
    assert!(text.contains("power_instant: unknown, because the load explains "), "{text}");
    assert!(text.contains("power_average: unknown, because `POWER_AVERAGE`: "), "{text}");
    assert!(text.contains("energy: unknown, because `TOTAL_ENERGY_CONSUMPTION`: "), "{text}");
    assert!(text.ends_with("nothing was stored: energies still assume default sensor timing\n"), "{text}");
    assert_eq!(machine.kept(), [] as [PathBuf; 0]);
}
