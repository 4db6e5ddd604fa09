//! Whole commands on a machine whose GPUs a fake NVML makes up: what is handed out, what is recorded, and what is said of what is missing.

use crate::fake::Fake;
use crate::sandbox::{Said, Sandbox, curves};
use serde_json::Value;
use std::fs;
use std::process::Command;

const TWO: &str = "
driver 580.159.04
cuda 13000
gpu NVIDIA H200
uuid GPU-aa11
power 0 250
energy_base 1000000
gpu NVIDIA H200
uuid GPU-bb22
power 0 400
";

/// Tells which GPUs it may see, and works for as long as three changes of the energy counter take.
const WORKER: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say "{\"event\":\"fact\",\"name\":\"visible\",\"value\":\"$CUDA_VISIBLE_DEVICES\"}"
say '{"event":"plan","steps":2,"epochs":1,"samples_per_step":8}'
say '{"event":"phase_start","name":"epoch","index":1}'
sleep 0.6
say '{"event":"step","step":1,"duration_ns":600000000,"values":{"loss":2}}'
sleep 0.6
say '{"event":"step","step":2,"duration_ns":600000000,"values":{"loss":1}}'
say '{"event":"phase_stop","name":"epoch","index":1}'
"#;

/// A sandbox with GPUs.
pub struct Machine {
    pub sandbox: Sandbox,
    pub fake: Fake,
}

impl Machine {
    pub fn new(fake: Fake) -> Self {
        let sandbox = Sandbox::new();
        fs::create_dir(sandbox.path("lib")).unwrap();
        // Any library will do: nothing here calls CUDA.
        fs::copy(fake.path(), sandbox.path("lib/libcuda.so.1")).unwrap();
        Self { sandbox, fake }
    }

    pub fn manifest(&self, worker: &str, more: &str) {
        self.sandbox.write("worker.sh", worker);
        let head = "name = \"gpu\"\n[model]\nname = \"toy\"\n[program]\ncommand = [\"sh\", \"worker.sh\"]\n";
        self.sandbox.write("m.toml", format!("{head}[hardware]\ndevice = \"cuda\"\n{more}"));
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(args);
        command.env("LEDGER_NVML", self.fake.path()).env("LD_LIBRARY_PATH", self.sandbox.path("lib"));
        command
    }

    pub fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Said {
        let mut command = self.command(args);
        command.envs(env.iter().copied());
        Said::new(command.output().unwrap())
    }

    /// The only attempt, after `run m.toml` has ended with that code.
    pub fn attempt(&self, code: i32, env: &[(&str, &str)]) -> Value {
        self.run(&["run", "m.toml"], env).expect(code);
        self.sandbox.json(&["show", "latest"], 0)["attempts"][0].clone()
    }
}

/// Name and number of points of each series that was read of the hardware.
fn readings(attempt: &Value) -> Vec<(&str, i64)> {
    let series = attempt["series"].as_array().unwrap().iter().filter(|series| series["axis"] == "time_ns");
    series.map(|series| (series["name"].as_str().unwrap(), series["len"].as_i64().unwrap())).collect()
}

fn warnings(attempt: &Value) -> String {
    attempt["warnings"].to_string()
}

#[test]
fn a_run_sees_and_is_measured_on_the_gpus_that_its_identity_names() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest(WORKER, "");
    let attempt = machine.attempt(0, &[]);
    assert_eq!(attempt["facts"]["worker.visible"], "GPU-aa11");
    assert_eq!(attempt["facts"]["gpu.0.uuid"], "GPU-aa11");
    assert_eq!(curves(&attempt), [("loss", 2), ("step_duration", 2)]);
    let readings = readings(&attempt);
    for quantity in
        ["power_instant", "power_average", "energy", "temperature", "utilization_gpu", "memory_used", "clock_sm"]
    {
        let name = format!("gpu.0.{quantity}");
        assert!(readings.iter().any(|(found, len)| *found == name && *len >= 1), "{name} in {readings:?}");
    }
    assert!(!readings.iter().any(|(name, _)| name.starts_with("gpu.1.")), "{readings:?}");
    assert!(attempt["facts"]["telemetry.unread.gpu.0.pcie_tx"].as_str().is_some_and(|reason| !reason.is_empty()));
    assert!(readings.iter().any(|(name, len)| *name == "gpu.0.tensor_active" && *len >= 2), "{readings:?}");
    let parts = &machine.sandbox.json(&["show", "latest"], 0)["parts"];
    assert_eq!(parts["driver"]["value"], "580.159.04");
    assert_eq!(parts["device"]["value"][0], "NVIDIA H200");
    assert_eq!(parts["cuda"]["value"]["driver_api"], "13.0");
}

#[test]
fn gpm_counters_are_series_and_metrics_and_stand_beside_phases() {
    let script = TWO.replacen("power 0 250", "power 0 250\ngpm 90 20 60 30 1 2 0 0", 1);
    let machine = Machine::new(Fake::new(&script));
    // The end of the training lies well before the last reading.
    machine.manifest(&format!("{WORKER}sleep 0.5\n"), "");
    let attempt = machine.attempt(0, &[]);
    for (name, expected, unit) in
        [("tensor_active", 60.0, "%"), ("sm_occupancy", 20.0, "%"), ("pcie_rx_rate", 2_097_152.0, "B/s")]
    {
        let metric = &attempt["metrics"][name];
        let off = metric["value"].as_f64().map(|value| (value - expected).abs());
        assert!(off.is_some_and(|off| off < 1e-6) && metric["unit"] == unit, "{name}: {metric}");
    }
    let phases = machine.sandbox.json(&["events", "latest"], 0)["phases"].clone();
    let busy = phases[0]["counters"]["dram_util"].as_f64().unwrap();
    assert!((busy - 30.0).abs() < 1e-6, "{phases}");
    assert!(machine.sandbox.run(&["events", "latest"]).expect(0).contains("TENSOR"));
    let telemetry = machine.sandbox.run(&["telemetry", "latest", "--series", "gpu.0.pcie_rx_rate"]).expect(0);
    assert!(telemetry.contains("gpu.0.pcie_rx_rate  level  MiB/s"), "{telemetry}");
}

#[test]
fn without_gpm_counters_metrics_have_the_reason() {
    let machine = Machine::new(Fake::new(&TWO.replace("power 0 250", "power 0 250\ncapability 8 0")));
    machine.manifest(WORKER, "");
    let attempt = machine.attempt(0, &[]);
    let reason = "the GPU has no GPM counters (NVIDIA Hopper or newer has them)";
    assert_eq!(attempt["metrics"]["tensor_active"]["reason"], reason);
    assert_eq!(attempt["facts"]["telemetry.unread.gpu.0.tensor_active"], reason);
    assert!(!machine.sandbox.run(&["events", "latest"]).expect(0).contains("TENSOR"));
}

#[test]
fn visible_devices_are_respected_and_the_choice_is_no_part_of_the_identity() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest(WORKER, "");
    let first = machine.attempt(0, &[("CUDA_VISIBLE_DEVICES", "1")]);
    assert_eq!(first["facts"]["worker.visible"], "GPU-bb22");
    assert_eq!(first["facts"]["gpu.0.uuid"], "GPU-bb22");
    machine.run(&["run", "m.toml", "--repeat", "1"], &[("CUDA_VISIBLE_DEVICES", "GPU-aa")]).expect(0);
    let listed = machine.sandbox.json(&["ls", "--all"], 0)["attempts"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["run"], listed[1]["run"], "the same run twice");
    let none = machine.run(&["run", "m.toml"], &[("CUDA_VISIBLE_DEVICES", "")]);
    assert!(none.complaint(2).contains("no GPU is visible"));
}

#[test]
fn two_gpus_are_measured_each_by_its_rank() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest(WORKER, "gpus = 2\nparallelism = \"data\"\n");
    let attempt = machine.attempt(0, &[("CUDA_VISIBLE_DEVICES", "1,0")]);
    assert_eq!(attempt["facts"]["worker.visible"], "GPU-bb22,GPU-aa11");
    assert_eq!(
        (&attempt["facts"]["gpu.0.uuid"], &attempt["facts"]["gpu.1.uuid"]),
        (&"GPU-bb22".into(), &"GPU-aa11".into())
    );
    let readings = readings(&attempt);
    assert!(["gpu.0.energy", "gpu.1.energy"].iter().all(|name| readings.iter().any(|(found, _)| found == name)));
}

#[test]
fn more_gpus_than_are_visible_are_refused_with_a_list_of_those_that_are() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest(WORKER, "gpus = 4\nparallelism = \"data\"\n");
    let complaint = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(complaint.contains("`hardware.gpus` is 4, but 2 are visible: NVIDIA H200, NVIDIA H200"), "{complaint}");
    let complaint = machine.run(&["run", "m.toml"], &[("CUDA_VISIBLE_DEVICES", "1")]).complaint(2);
    assert!(
        complaint.contains("but 1 is visible: NVIDIA H200 (CUDA_VISIBLE_DEVICES selects the visible GPUs)"),
        "{complaint}"
    );
    assert!(!machine.sandbox.ledger_dir().join("ledger.redb").exists(), "nothing was started");
    machine.manifest(WORKER, "gpus = [1, 2, 4]\nparallelism = \"data\"\n");
    let complaint = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(complaint.contains("; --only 'hardware.gpus <= 2' selects the runs that fit"), "{complaint}");
    let some = machine.run(&["run", "m.toml", "--dry-run", "--only", "hardware.gpus <= 2"], &[]).expect(0);
    assert!(some.contains("2 runs"), "{some}");
    let some = machine.run(&["run", "m.toml", "--dry-run", "--only", "gpus == 2"], &[]).expect(0);
    assert!(some.contains("1 run"), "{some}");
    let complaint = machine.run(&["run", "m.toml", "--dry-run", "--only", "gpus == 4"], &[]).complaint(2);
    assert!(
        complaint.contains("`hardware.gpus` is 4") && !complaint.contains("selects the runs that fit"),
        "{complaint}"
    );
}

/// The trainer sums gradients by NCCL, and knows before it trains that it cannot.
#[test]
#[cfg(feature = "train")]
fn several_gpus_without_nccl_are_refused_before_the_training() {
    let machine = Machine::new(Fake::new(TWO));
    if !machine.run(&["doctor"], &[]).expect(0).contains("not found: libnccl.so.2 in ") {
        return; // This machine has it.
    }
    // Any library will do, and any header: nothing is compiled.
    fs::copy(machine.fake.path(), machine.sandbox.path("lib/libnvrtc.so")).unwrap();
    fs::create_dir_all(machine.sandbox.path("cuda/include")).unwrap();
    for header in ["cuda_fp16.h", "mma.h"] {
        machine.sandbox.write(&format!("cuda/include/{header}"), "");
    }
    let cuda = machine.sandbox.path("cuda").display().to_string();
    let text = "[model]\nname = \"softmax\"\n[training]\nlearning_rate = 0.1\nsteps = 1\n[hardware]\ndevice = \"cuda\"\ngpus = GPUS\nparallelism = \"data\"\n";
    machine.sandbox.write("m.toml", text.replace("GPUS", "2"));
    let complaint = machine.run(&["run", "m.toml"], &[("CUDA_PATH", &cuda)]).complaint(2);
    let expected = "`hardware.gpus` is 2, but `libnccl.so.2` is missing (install NCCL (package libnccl2";
    assert!(complaint.contains(expected), "{complaint}");
    assert!(!machine.sandbox.ledger_dir().join("ledger.redb").exists(), "nothing was started");
    machine.sandbox.write("m.toml", text.replace("GPUS", "1").replace("parallelism = \"data\"\n", ""));
    machine.run(&["run", "m.toml", "--dry-run"], &[("CUDA_PATH", &cuda)]).expect(0);
}

#[test]
fn an_old_driver_gives_what_it_has_and_reasons_for_the_rest() {
    let machine = Machine::new(Fake::without(&["nvmlDeviceGetFieldValues"], TWO));
    machine.manifest(WORKER, "");
    let attempt = machine.attempt(0, &[]);
    let readings = readings(&attempt);
    assert!(readings.iter().any(|(name, len)| *name == "gpu.0.energy" && *len >= 3), "{readings:?}");
    let reason = attempt["facts"]["telemetry.unread.gpu.0.pcie_tx"].as_str().unwrap();
    assert!(reason.contains("nvmlDeviceGetFieldValues"), "{reason}");
}

#[test]
fn a_gpu_that_is_lost_is_said_and_its_readings_end() {
    let machine = Machine::new(Fake::new(&format!(
        "{}lost_after 20\n",
        TWO.split("gpu NVIDIA H200\nuuid GPU-bb22").next().unwrap()
    )));
    machine.manifest(WORKER, "");
    let attempt = machine.attempt(0, &[]);
    assert!(warnings(&attempt).contains("GPU 0 was lost"), "{}", warnings(&attempt));
    let reason = attempt["facts"]["telemetry.unread.gpu.0.energy"].as_str().unwrap();
    assert!(reason.contains("lost"), "{reason}");
}

#[test]
fn a_foreign_process_on_the_gpu_is_named() {
    let script = TWO.replace("uuid GPU-aa11", "uuid GPU-aa11\nprocess 1 1073741824");
    let machine = Machine::new(Fake::new(&script));
    machine.manifest(WORKER, "");
    let attempt = machine.attempt(0, &[]);
    assert!(warnings(&attempt).contains("process 1, 1024 MiB uses GPU 0 too"), "{}", warnings(&attempt));
    assert_eq!(attempt["facts"]["telemetry.foreign_processes"], 1);
}

/// A machine of eight cards; of the fifth and the sixth there is more to say.
fn eight(fifth: &str, sixth: &str) -> Machine {
    let more = |card: usize| match card {
        4 => fifth,
        5 => sixth,
        _ => "",
    };
    let cards: String = (0..8).map(|card| format!("gpu NVIDIA H200\nuuid GPU-{card}0\n{}\n", more(card))).collect();
    Machine::new(Fake::new(&format!("driver 580.159.04\ncuda 13000\n{cards}")))
}

#[test]
fn who_is_to_look_at_a_gpu_is_told_its_number_on_the_machine() {
    let machine = eight("process 1 1073741824", "lost_after 20");
    machine.manifest(WORKER, "gpus = 2\nparallelism = \"data\"\n");
    let told = warnings(&machine.attempt(0, &[("CUDA_VISIBLE_DEVICES", "4,5")]));
    assert!(told.contains("process 1, 1024 MiB uses GPU 0 (number 4 of the machine) too"), "{told}");
    assert!(told.contains("GPU 1 (number 5 of the machine) was lost"), "{told}");
}

#[test]
fn a_process_on_several_gpus_is_one() {
    let foreign = |process: &str, list: &str| {
        let machine = eight(process, process);
        machine.manifest(WORKER, "gpus = 2\nparallelism = \"data\"\n");
        let attempt = machine.attempt(0, &[("CUDA_VISIBLE_DEVICES", list)]);
        let told = warnings(&attempt);
        (attempt["facts"]["telemetry.foreign_processes"].clone(), told)
    };
    let (count, told) = foreign("process 1 1073741824", "4,5");
    assert_eq!(count, 1, "{told}");
    assert!(told.contains("GPU 0 (number 4 ") && told.contains("GPU 1 (number 5 "), "both are named: {told}");
    // As in a container; the first list of processes, before the worker is there, has none of them.
    let hidden = "process 4194301 5\nfail nvmlDeviceGetComputeRunningProcesses_v3 3 for 1 calls";
    let (count, told) = foreign(hidden, "5,4");
    assert_eq!(count, 1, "{told}");
}

#[test]
fn hidden_processes_are_foreign_if_they_outlive_the_worker() {
    // As in a container, where NVML tells numbers of the host; they are there once the worker is.
    let attempt = |until: &str| {
        let hidden = format!(
            "uuid GPU-aa11\nprocess 4194301 5{until}\nprocess 4194302 5{until}\nfail nvmlDeviceGetComputeRunningProcesses_v3 3 for 1 calls"
        );
        let machine = Machine::new(Fake::new(&TWO.replace("uuid GPU-aa11", &hidden)));
        machine.manifest(WORKER, "");
        machine.attempt(0, &[])
    };
    let stay = attempt("");
    for told in [
        "2 processes that are not visible from here use GPU 0 at once: one of them may be foreign",
        "after the worker has ended GPU 0 is in use by 2 processes not visible from here",
    ] {
        assert!(warnings(&stay).contains(told), "{}", warnings(&stay));
    }
    assert_eq!(stay["facts"]["telemetry.foreign_processes"], 2);
    assert!(stay["facts"]["validity.reasons"].to_string().contains("foreign process"), "{stay}");
    // They may all have been the worker's.
    let gone = attempt(" 1");
    assert_eq!(gone["facts"]["telemetry.foreign_processes"], 0);
    assert!(!gone["facts"]["validity.reasons"].to_string().contains("foreign"), "{gone}");
}

#[test]
fn a_slow_library_costs_looks_and_not_the_worker() {
    let script = TWO.replace("uuid GPU-aa11", "uuid GPU-aa11\nslow nvmlDeviceGetFieldValues 150");
    let machine = Machine::new(Fake::new(&script));
    machine.manifest(WORKER, "[telemetry]\nhz = 100\n");
    let attempt = machine.attempt(0, &[]);
    let fact = |name: &str| attempt["facts"][name].as_i64().unwrap();
    assert!(fact("telemetry.samples_dropped") > fact("telemetry.samples_taken"));
    assert!(fact("telemetry.nvml.fields.ns") >= 150_000_000 * fact("telemetry.nvml.fields.calls"));
}

#[test]
fn nothing_is_read_where_the_manifest_says_so() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest(WORKER, "[telemetry]\nhz = 0\n");
    let attempt = machine.attempt(0, &[]);
    assert_eq!(readings(&attempt), []);
    assert_eq!(attempt["facts"]["worker.visible"], "GPU-aa11");
}

#[test]
fn readings_survive_the_death_of_the_supervisor() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest("sleep 0.5; touch started; exec sleep 600", "");
    let mut child = machine.command(&["run", "m.toml"]).spawn().unwrap();
    machine.sandbox.wait_for("the worker's start", || machine.sandbox.path("started").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let attempt = &machine.sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(attempt["outcome"], "interrupted");
    assert!(
        readings(attempt).iter().any(|(name, len)| *name == "gpu.0.energy" && *len >= 2),
        "{:?}",
        readings(attempt)
    );
    assert_eq!(attempt["facts"]["gpu.0.uuid"], "GPU-aa11");
}

#[test]
fn a_missing_driver_is_named_before_anything_is_started() {
    let machine = Machine::new(Fake::new(TWO));
    machine.manifest(WORKER, "");
    let said = machine.run(&["run", "m.toml"], &[("LEDGER_NVML", "/nonexistent/libnvidia-ml.so.1")]);
    let complaint = said.complaint(2);
    assert!(complaint.contains("cannot load `/nonexistent/libnvidia-ml.so.1`"), "{complaint}");
    assert!(complaint.contains("ledger doctor"), "{complaint}");
    assert!(!machine.sandbox.ledger_dir().join("ledger.redb").exists());
    let no_driver = Machine::new(Fake::new("init 9\n"));
    no_driver.manifest(WORKER, "");
    assert!(no_driver.run(&["run", "m.toml"], &[]).complaint(2).contains("the NVIDIA driver is not loaded"));
    let doctor = no_driver.run(&["doctor"], &[]).expect(0);
    assert!(doctor.contains("modprobe nvidia"), "{doctor}");
}

/// With a GPU that is lost behind one that is well.
fn half_lost() -> Machine {
    Machine::new(Fake::new(&format!("{TWO}lost_after 0\n")))
}

#[test]
fn a_lost_gpu_refuses_only_runs_that_see_it() {
    let machine = half_lost();
    machine.manifest("true", "");
    let complaint = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(complaint.contains("`hardware.device` is cuda, but NVML cannot tell of GPU 1 "), "{complaint}");
    let attempt = machine.attempt(0, &[("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!(attempt["facts"]["gpu.0.uuid"], "GPU-aa11");
    let doctor = |list: &str| machine.run(&["doctor"], &[("CUDA_VISIBLE_DEVICES", list)]).expect(0);
    let (hidden, seen) = (doctor("0"), doctor("0,1"));
    assert!(hidden.contains("0 NVIDIA H200") && hidden.contains("runs do not need it"), "{hidden}");
    assert!(seen.contains("NVML cannot tell of GPU 1 ") && seen.contains("as long as it is visible"), "{seen}");
    // A list that is at fault refuses all of them, whichever it was to choose.
    let faulty = doctor("0,0");
    assert!(faulty.contains("CUDA_VISIBLE_DEVICES names GPU 0 twice"), "{faulty}");
    assert!(faulty.contains("but is invalid itself") && !faulty.contains("runs do not need it"), "{faulty}");
}

#[test]
fn a_run_that_falls_back_to_the_cpu_says_why() {
    let machine = half_lost();
    machine.manifest("true", "");
    let text = fs::read_to_string(machine.sandbox.path("m.toml")).unwrap();
    machine.sandbox.write("m.toml", text.replace("device = \"cuda\"", "device = \"auto\""));
    let run = |env: &[(&str, &str)]| {
        let said = machine.run(&["run", "m.toml", "--repeat", "1"], env);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let told = warnings(&machine.sandbox.json(&["show", "latest"], 0)["attempts"][0]);
        (said.err, told)
    };
    let (said, told) = run(&[]);
    assert_eq!(said.matches("note: runs use the CPU: NVML cannot tell of GPU 1 ").count(), 1, "{said}");
    assert!(told.contains("it uses the CPU: NVML cannot tell of GPU 1 "), "{told}");
    // Nothing is missing that anybody may expect.
    for (name, value) in [("LEDGER_NVML", "/nonexistent/libnvidia-ml.so.1"), ("CUDA_VISIBLE_DEVICES", "")] {
        let (said, told) = run(&[(name, value)]);
        assert!(!said.contains("use the CPU") && !told.contains("uses the CPU"), "{name}: {said} {told}");
    }
    let sealed = machine.run(&["run", "m.toml"], &[]);
    assert_eq!((sealed.code, sealed.err.contains("use the CPU")), (Some(0), false), "nothing is missing");
}

#[test]
#[cfg(feature = "train")]
fn a_training_without_cudas_headers_says_that_it_uses_the_cpu() {
    let machine = Machine::new(Fake::new(TWO));
    let text = "[model]\nname = \"softmax\"\n[training]\nlearning_rate = 0.1\nsteps = 1\n";
    machine.sandbox.write("m.toml", text);
    let cuda = machine.sandbox.path("no-cuda").display().to_string();
    let said = machine.run(&["run", "m.toml", "--dry-run"], &[("CUDA_PATH", &cuda)]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("note: runs use the CPU: `") && said.err.contains("` is missing ("), "{}", said.err);
}

#[test]
fn processes_that_cannot_be_listed_are_not_none() {
    let script = TWO.replace("uuid GPU-aa11", "uuid GPU-aa11\nfail nvmlDeviceGetComputeRunningProcesses_v3 3");
    let machine = Machine::new(Fake::new(&script));
    machine.manifest("true", "");
    let facts = machine.attempt(0, &[])["facts"].clone();
    assert!(facts.get("telemetry.foreign_processes").is_none(), "{facts}");
    let reason = facts["telemetry.unread.gpu.0.processes"].as_str().unwrap();
    assert!(reason.starts_with("`nvmlDeviceGetComputeRunningProcesses_v3`: "), "{reason}");
}

#[test]
fn doctor_tells_the_gpus_that_runs_would_use() {
    let machine = Machine::new(Fake::new(TWO));
    let doctor = machine.run(&["doctor"], &[("CUDA_VISIBLE_DEVICES", "1")]).expect(0);
    assert!(doctor.contains("580.159.04, CUDA 13.0"), "{doctor}");
    assert!(doctor.contains("NVIDIA H200"), "{doctor}");
}

#[test]
fn doctor_says_what_keeps_the_gpus_from_being_measured_fairly() {
    let well = Machine::new(Fake::new(TWO));
    let found = |machine: &Machine, name: &str| {
        let document = Said::new(machine.command(&["doctor", "--json"]).output().unwrap()).expect(0);
        let document: Value = serde_json::from_str(&document).unwrap();
        let checks = document["checks"].as_array().unwrap();
        let check =
            checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {document}"));
        for part in ["consequence", "fix"] {
            assert_eq!(check[part].as_str().unwrap().is_empty(), check["state"] == "ok", "{check}");
        }
        format!("{} {}", check["state"].as_str().unwrap(), check["found"].as_str().unwrap())
    };
    for (name, expected) in [
        ("persistence", "ok on"),
        ("MIG", "ok off"),
        ("throttling", "ok none now"),
        ("other processes", "ok none computes on the GPUs"),
        ("power limits", "ok GPU 0: 700 W of 200 to 700; GPU 1: 700 W of 200 to 700"),
    ] {
        assert_eq!(found(&well, name), expected);
    }
    let ill = "persistence 0\nthrottle 68\nprocess 77 5\nprocess 78 5\nlimits 100 400 350\n";
    let ill = Machine::new(Fake::new(&format!("gpu NVIDIA A100\n{ill}")));
    for (name, expected) in [
        ("persistence", "warning GPU 0: off"),
        ("throttling", "warning GPU 0: hw_thermal"),
        ("other processes", "warning GPU 0: 77, 78"),
        ("power limits", "ok GPU 0: 350 W of 100 to 400"),
    ] {
        assert_eq!(found(&ill, name), expected);
    }
    let calls = ["nvmlDeviceGetPersistenceMode", "nvmlDeviceGetCurrentClocksThrottleReasons"]
        .map(|call| format!("fail {call} 3\n"));
    let processes = ["", "_v2", "_v3"].map(|form| format!("fail nvmlDeviceGetComputeRunningProcesses{form} 3\n"));
    let silent = Machine::new(Fake::new(&format!("gpu NVIDIA A100\n{}{}", calls.concat(), processes.concat())));
    for (name, expected) in [
        ("persistence", "ok GPU 0: not told"),
        ("throttling", "ok GPU 0: not told"),
        ("other processes", "warning GPU 0: not told"),
    ] {
        assert_eq!(found(&silent, name), expected);
    }
    // Which GPUs runs would use is refused then; what the cards are like is told all the same.
    let split =
        Machine::new(Fake::new("gpu NVIDIA A100\nuuid GPU-a\nmig 1\ngpu NVIDIA A100\nuuid GPU-b\nthrottle 68\n"));
    for (name, expected) in [
        ("MIG", "warning GPU 0: split into instances"),
        ("throttling", "warning GPU 1: hw_thermal"),
        ("persistence", "ok on"),
    ] {
        assert_eq!(found(&split, name), expected);
    }
    for name in ["driver", "libcuda", "privileges", "control group", "disk", "clock", "containers", "slurm"] {
        found(&well, name);
    }
}

#[test]
fn kernels_are_listed_and_moved() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["cache", "ls"]).expect(0).contains("no kernels are stored"));
    assert!(sandbox.run(&["cache", "export"]).complaint(1).contains("no kernels have the key"));
    sandbox.write("bad.kernels", "nothing");
    assert!(sandbox.run(&["cache", "import", "bad.kernels"]).complaint(2).contains("`bad.kernels` is refused"));
    assert!(sandbox.run(&["cache", "import", "none.kernels"]).complaint(2).contains("cannot read `none.kernels`"));
}
