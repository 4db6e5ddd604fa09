//! Changes by way of zeusd, for who may not change cards.

use super::*;

/// Serves as zeusd does, until the end of the test; says what it was asked for after `/discover`. One that does not answer has done
/// what it was asked for all the same.
fn zeusd(socket: PathBuf, group: &'static str, log: PathBuf, answers: bool) -> std::sync::mpsc::Receiver<String> {
    let listener = UnixListener::bind(&socket).unwrap();
    let (to, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines: Vec<String> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let discover = format!(
                r#"{{"gpus":[{{"id":5,"name":"NVIDIA H200","pci_address":"0000:3b:00.0"}}],"cpus":[],"enabled_api_groups":["{group}"],"auth_required":false}}"#
            );
            if let Some((_, mw)) = lines[0].split_once("power_limit_mw=") {
                // What it does is seen by NVML.
                let mw = mw.split(' ').next().unwrap();
                let mut log = fs::File::options().append(true).create(true).open(&log).unwrap();
                writeln!(log, "0 nvmlDeviceSetPowerManagementLimit {mw} = 0").unwrap();
            }
            let body = if lines[0].starts_with("GET /discover ") { discover.as_str() } else { "" };
            if body.is_empty() && !answers {
                let _ = to.send(lines[0].clone());
                continue;
            }
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
            if body.is_empty() && to.send(lines[0].clone()).is_err() {
                return;
            }
        }
    });
    asked
}

#[test]
fn zeusd_sets_and_undoes_for_who_may_not() {
    let denied: String = [
        "SetPowerManagementLimit",
        "SetGpuLockedClocks",
        "ResetGpuLockedClocks",
        "SetMemoryLockedClocks",
        "ResetMemoryLockedClocks",
    ]
    .map(|call| format!("fail nvmlDevice{call} 4\n"))
    .concat();
    let machine = machine(&format!("{CARD}{denied}"), QUICK, ALL);
    let socket = machine.sandbox.path("zeusd.sock");
    let asked = zeusd(socket.clone(), "gpu-control", log_path(&machine), true);
    let attempt = machine.attempt(0, &[("ZEUSD_SOCK_PATH", socket.to_str().unwrap())]);
    assert_eq!(attempt["warnings"].to_string(), "[]");
    let call = |call: &str, more: &str| format!("POST /gpu/{call}?gpu_ids=5&block=true{more} HTTP/1.1");
    let expected = [
        call("set_mem_locked_clocks", "&min_clock_mhz=2619&max_clock_mhz=2619"),
        call("set_gpu_locked_clocks", "&min_clock_mhz=990&max_clock_mhz=990"),
        call("set_power_limit", "&power_limit_mw=300000"),
        call("set_power_limit", "&power_limit_mw=650000"),
        call("reset_gpu_locked_clocks", ""),
        call("reset_mem_locked_clocks", ""),
    ];
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), expected);
    let done = lines(&machine).into_iter().filter(|line| !line.ends_with("= 4")).count();
    assert_eq!(done, 2, "both limits by zeusd: {:?}", lines(&machine));
}

#[test]
fn a_change_whose_answer_was_lost_is_undone() {
    let machine = machine(&format!("{CARD}fail nvmlDeviceSetPowerManagementLimit 4\n"), QUICK, "power_limit_w = 300\n");
    let socket = machine.sandbox.path("zeusd.sock");
    let _asked = zeusd(socket.clone(), "gpu-control", log_path(&machine), false);
    let said = machine.run(&["run", "m.toml"], &[("ZEUSD_SOCK_PATH", socket.to_str().unwrap())]).complaint(2);
    assert!(said.contains("zeusd.sock`: "), "{said}");
    let done: Vec<String> = lines(&machine).into_iter().filter(|line| line.ends_with("= 0")).collect();
    let call = "0 nvmlDeviceSetPowerManagementLimit";
    assert_eq!(done, [format!("{call} 300000 = 0"), format!("{call} 650000 = 0")], "and undone once");
    assert!(pending(&machine).is_empty() && machine.sandbox.outcomes().is_empty());
}

#[test]
fn a_zeusd_that_may_not_is_named_in_the_refusal() {
    let machine = machine(&format!("{CARD}fail nvmlDeviceSetPowerManagementLimit 4\n"), QUICK, "power_limit_w = 300\n");
    let socket = machine.sandbox.path("zeusd.sock");
    let asked = zeusd(socket.clone(), "gpu-read", log_path(&machine), true);
    let said = machine.run(&["run", "m.toml"], &[("ZEUSD_SOCK_PATH", socket.to_str().unwrap())]).complaint(2);
    assert!(said.contains("zeusd.sock`: its API group gpu-control is off"), "{said}");
    assert_eq!(asked.try_iter().count(), 0);
}
