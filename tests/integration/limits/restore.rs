//! What nobody was left to undo: who undoes it, and what stays as it is.

use super::*;

#[test]
fn the_watcher_undoes_what_a_killed_supervisor_has_set() {
    for (name, number) in [("KILL", 9), ("HUP", 1), ("QUIT", 3)] {
        // As under `nohup`, or in the background of a script: what is ignored here is ignored by the supervisor too.
        if is_ignored(number) {
            println!("skipped: SIG{name} is ignored where these tests run");
            continue;
        }
        let machine = machine(CARD, LONG, ALL);
        let mut child = machine.command(&["run", "m.toml"]).spawn().unwrap();
        machine.sandbox.wait_for("the worker's start", || machine.sandbox.path("started").exists());
        signal(child.id(), name);
        child.wait().unwrap();
        machine.sandbox.wait_for("the watcher's work", || pending(&machine).is_empty());
        assert_eq!(lines(&machine), set_and_undone(), "SIG{name}");
    }
}

/// Whether this process, and whatever it starts, ignores a signal.
fn is_ignored(signal: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

/// The watcher of a supervisor: its child that has the hidden command.
fn watcher_of(supervisor: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap_or_default();
    let all =
        fs::read_dir(format!("/proc/{supervisor}/task")).unwrap().map(|task| task.unwrap().path().join("children"));
    let children = all
        .map(|path| fs::read_to_string(path).unwrap_or_default())
        .fold(children, |all, more| format!("{all} {more}"));
    let is_it =
        |pid: &&str| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("restorer");
    children.split_whitespace().find(is_it).unwrap().parse().unwrap()
}

#[test]
fn the_watcher_lives_through_what_ends_everything_else() {
    let machine = machine(CARD, LONG, ALL);
    let mut child = machine.command(&["run", "m.toml"]).spawn().unwrap();
    machine.sandbox.wait_for("the worker's start", || machine.sandbox.path("started").exists());
    let watcher = watcher_of(child.id());
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
        signal(watcher, name);
    }
    // It is alone to undo what was set, so that it did outlive them.
    child.kill().unwrap();
    child.wait().unwrap();
    machine.sandbox.wait_for("the watcher's work", || pending(&machine).is_empty());
    assert_eq!(lines(&machine), set_and_undone());
}

#[test]
fn the_next_command_undoes_what_nobody_was_left_to_undo() {
    for next in [&["ls"][..], &["doctor", "--restore"]] {
        let machine = machine(CARD, LONG, ALL);
        let mut child = machine.command(&["run", "m.toml"]).spawn().unwrap();
        machine.sandbox.wait_for("the worker's start", || machine.sandbox.path("started").exists());
        let watcher = watcher_of(child.id());
        signal(watcher, "KILL");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines(&machine), SET);
        let doctor = machine.run(&["doctor"], &[]).expect(0);
        assert!(doctor.contains("ledger doctor --restore"), "it says so, and does nothing: {doctor}");
        assert_eq!(lines(&machine), SET);
        let said = machine.run(next, &[]);
        assert!(said.err.contains("restored the settings of GPU 0"), "{said:?}");
        assert_eq!(lines(&machine), set_and_undone(), "{next:?}");
        assert!(pending(&machine).is_empty());
    }
}

#[test]
fn what_cannot_be_undone_stays_and_is_said() {
    let script = format!("{CARD}fail nvmlDeviceResetGpuLockedClocks 999\n");
    let machine = machine(&script, QUICK, ALL);
    let attempt = machine.attempt(0, &[]);
    let warned = attempt["warnings"].to_string();
    assert!(warned.contains("could not be restored: unlocking the multiprocessors' clock on GPU 0 failed"), "{warned}");
    assert_eq!(pending(&machine).len(), 1);
    // The supervisor is gone: `show` has tried again already, and in vain.
    let said = machine.run(&["doctor", "--restore"], &[]);
    assert!(said.err.contains("are still set on GPUs") && said.code == Some(1), "{said:?}");
    let refused = machine.run(&["run", "m.toml", "--repeat", "1"], &[]).complaint(2);
    assert!(refused.contains("settings of an earlier attempt are still there"), "{refused}");
    assert_eq!(lines(&machine).iter().filter(|line| **line == SET[2]).count(), 1, "nothing was set on top of it");
}

#[test]
fn a_folder_that_cannot_be_used_is_nothing_restored() {
    let machine = machine(CARD, QUICK, "");
    let restore = place(&machine);
    fs::write(restore.join("a.json"), left("before", "GPU-aa11")).unwrap();
    fs::set_permissions(&restore, fs::Permissions::from_mode(0o777)).unwrap();
    let said = machine.run(&["doctor", "--restore"], &[]);
    assert!(said.code == Some(1) && said.err.contains("could not be restored"), "{said:?}");
    machine.run(&["doctor"], &[]).expect(0);
    fs::set_permissions(&restore, fs::Permissions::from_mode(0o700)).unwrap();
    machine.run(&["doctor", "--restore"], &[]).expect(0);
    assert!(pending(&machine).is_empty());
}

#[test]
fn files_of_an_earlier_boot_and_of_other_machines_change_nothing_here() {
    let machine = machine(CARD, QUICK, "");
    let restore = place(&machine);
    fs::write(restore.join("a.json"), left("before", "GPU-aa11")).unwrap();
    fs::write(restore.join("b.json"), left("before", "GPU-zz99")).unwrap();
    fs::write(restore.join("c.json"), "rubbish").unwrap();
    let said = machine.run(&["ls"], &[]);
    assert!(said.err.contains("b.json` names GPUs of another machine"), "{said:?}");
    assert!(said.err.contains("c.json` is damaged or of a newer ledger"), "{said:?}");
    let left: Vec<_> = pending(&machine).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(machine.fake.log(), "");
    let doctor = machine.run(&["doctor"], &[]).expect(0);
    assert!(doctor.contains("c.json` is damaged or of a newer ledger"), "{doctor}");
    assert!(doctor.contains("and remove that file, if no newer ledger is running"), "a way out: {doctor}");
    assert!(doctor.contains("1 file for GPUs of another machine"), "{doctor}");
    assert!(!doctor.contains("attempts that are gone"), "nothing here can be done about it: {doctor}");
    let blind = "/nonexistent/libnvidia-ml.so.1";
    let doctor = machine.run(&["doctor"], &[("LEDGER_NVML", blind)]).expect(0);
    assert!(doctor.contains("1 file from another machine or from before this one's start"), "{doctor}");
    let said = machine.run(&["doctor", "--restore"], &[("LEDGER_NVML", blind)]);
    assert!(said.err.contains("b.json` belongs to another machine, or to an earlier start"), "{said:?}");
    machine.manifest(QUICK, ALL);
    let said = machine.run(&["run", "m.toml"], &[]).complaint(2);
    assert!(said.contains("c.json` is damaged or of a newer ledger, and may name it"), "{said}");
    assert!(said.contains("remove that file"), "a way out: {said}");
    assert_eq!(machine.fake.log(), "");
    machine.manifest(QUICK, "");
    machine.run(&["run", "m.toml"], &[]).expect(0);
    let attempt = &machine.sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert!(attempt["facts"]["validity.reasons"].to_string().contains("c.json"), "{attempt}");
    // Cards forget what was set when the machine starts.
    let old = fs::File::options().write(true).open(restore.join("c.json")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    let doctor = machine.run(&["doctor"], &[]).expect(0);
    assert!(doctor.contains("fix: remove it, unless it belongs to another machine"), "{doctor}");
    machine.manifest(QUICK, ALL);
    let said = machine.run(&["run", "m.toml"], &[]);
    assert!(said.code == Some(0) && said.err.contains("older than this machine's start"), "{said:?}");
    assert!(restore.join("c.json").exists(), "it may be another machine's");
    assert_eq!(lines(&machine), set_and_undone());
}

#[test]
fn a_limit_that_somebody_else_has_set_since_is_kept() {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for (now, expected) in [(500_000, 0), (300_000, 1), (650_000, 0)] {
        let machine = machine(CARD, QUICK, "");
        fs::write(place(&machine).join("a.json"), left(boot.trim(), "GPU-aa11")).unwrap();
        let set = format!("0 nvmlDeviceSetPowerManagementLimit {now} = 0\n");
        fs::write(log_path(&machine), &set).unwrap();
        let said = machine.run(&["ls"], &[]);
        assert_eq!(said.err.contains("keeps its power limit of 500 W"), now == 500_000, "{said:?}");
        assert_eq!(lines(&machine).len(), 1 + expected, "{:?}", lines(&machine));
        assert!(pending(&machine).is_empty());
    }
}
