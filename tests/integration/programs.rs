//! What a program that is not ours runs on: another command, other data and another file make another run.

use crate::sandbox::Sandbox;
use std::fs;

/// Says the number that lies in the folder that it is given.
const READING: &str = r#"
echo "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":$(cat "$1"/v)}" >> "$LEDGER_EVENTS"
"#;

fn manifest(sandbox: &Sandbox, head: &str, command: &str, tables: &str) {
    let model = "[model]\nname = 'toy'\n[hardware]\ndevice = 'cpu'\n";
    sandbox.write("m.toml", format!("{head}\n{model}[program]\ncommand = {command}\n{tables}"));
}

fn planned(sandbox: &Sandbox) -> Vec<String> {
    let plan = sandbox.json(&["run", "m.toml", "--dry-run"], 0);
    plan["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect()
}

fn on_data(sandbox: &Sandbox, paths: &str) {
    manifest(sandbox, "", "['sh', 'worker.sh', '{data.path}']", &format!("[data]\nname = 'text'\npath = {paths}\n"));
}

#[test]
fn other_data_are_another_run_wherever_they_lie() {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", READING);
    for (folder, value) in [("d1", "0.5"), ("d2", "0.7")] {
        fs::create_dir(sandbox.path(folder)).unwrap();
        sandbox.write(&format!("{folder}/v"), value);
    }
    on_data(&sandbox, "['d1', 'd2']");
    let said = sandbox.run(&["run", "m.toml"]).expect(0);
    assert!(said.contains("path") && said.contains("/d1") && said.contains("/d2"), "{said}");
    assert!(said.contains("0.5") && said.contains("with accuracy 0.7"), "{said}");
    let first = planned(&sandbox);
    assert_eq!(first.len(), 2);
    fs::rename(sandbox.path("d1"), sandbox.path("e1")).unwrap();
    let gone = sandbox.run(&["rerun", &first[0]]).complaint(2);
    assert!(gone.contains("/d1`, which the record names, is not here (--data PATH"), "{gone}");
    let e1 = sandbox.path("e1").display().to_string();
    sandbox.run(&["rerun", &first[0], "--data", &e1]).expect(0);
    on_data(&sandbox, "['e1', 'd2']");
    assert_eq!(planned(&sandbox), first, "what they hold counts, and not where they lie");
    sandbox.write("e1/v", "0.6");
    let document = sandbox.json(&["run", "m.toml"], 0);
    assert_eq!((&document["executed"], &document["best"][0]["value"]), (&1.into(), &0.7.into()));
    let refused = sandbox.run(&["rerun", &first[0], "--data", &e1]).complaint(5);
    assert!(refused.contains("data.digest"), "{refused}");
    on_data(&sandbox, "'d3'");
    let refused = sandbox.run(&["run", "m.toml", "--dry-run"]).complaint(2);
    assert!(refused.contains("/d3`, which has no file"), "{refused}");
}

#[test]
fn what_a_command_says_beyond_its_configuration_makes_another_run() {
    let sandbox = Sandbox::new();
    let ids = |name: &str, command: &str, timeout: &str| {
        manifest(&sandbox, &format!("name = '{name}'"), command, &format!("[limits]\ntimeout_s = {timeout}\n"));
        planned(&sandbox)
    };
    let silent = "['sh', '-c', 'true']";
    assert_eq!(ids("one", silent, "5"), ids("two", silent, "50"));
    let named = "['sh', '-c', 'true {experiment.name}']";
    assert_eq!(ids("one", named, "5"), ids("one", named, "50"));
    assert_ne!(ids("one", named, "5"), ids("two", named, "5"));
    let limited = "['sh', '-c', 'true {limits.timeout_s}']";
    assert_ne!(ids("one", limited, "5"), ids("one", limited, "50"));
}

#[test]
fn a_file_that_a_parameter_names_counts_and_one_that_the_program_writes_does_not() {
    let sandbox = Sandbox::new();
    sandbox.write("a.sh", "echo 1 >> \"$1\"\n");
    sandbox.write("b.sh", "echo 2 >> \"$1\"\n");
    manifest(&sandbox, "", "['sh', '{script}', 'out-{seed}']", "[params]\nscript = ['a.sh', 'b.sh']\n");
    let executed = || sandbox.json(&["run", "m.toml"], 0)["executed"].clone();
    assert_eq!(executed(), 2);
    assert!(sandbox.path("out-1").exists());
    assert_eq!(executed(), 0);
    sandbox.write("a.sh", "echo 3 >> \"$1\"\n");
    assert_eq!(executed(), 1);
    let differs = sandbox.run(&["why", "latest", "latest~1"]);
    assert!(differs.out.contains("program"), "{differs:?}");
}

#[test]
fn a_program_that_changes_during_a_sweep_is_not_run_under_its_old_name() {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", "echo ': changed' >> worker.sh");
    manifest(&sandbox, "seed = [1, 2]", "['sh', 'worker.sh']", "");
    let said = sandbox.run(&["run", "m.toml"]);
    let path = sandbox.path("worker.sh").display().to_string();
    let reason = format!("the program changed since the run was named by it: `{path}` was written to (start it again)");
    assert!(said.code == Some(4) && said.err.contains(&reason), "{said:?}");
    let missing = sandbox.run(&["run", "m.toml", "--dry-run"]).expect(0);
    assert!(
        missing.contains("2 missing") || !missing.contains("sealed"),
        "another program makes other runs: {missing}"
    );
}

#[test]
fn a_program_that_writes_to_its_data_is_warned_of() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("d1")).unwrap();
    sandbox.write("d1/v", "0.5");
    sandbox.write("worker.sh", "echo >> \"$1\"/v");
    on_data(&sandbox, "'d1'");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let shown = sandbox.run(&["show", "latest"]).expect(0);
    assert!(shown.contains("the data changed since the run was named by them"), "{shown}");
}
