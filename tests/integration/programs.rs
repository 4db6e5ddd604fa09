//! What a program that is not ours says of its cell: another command makes another run.

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
fn a_place_of_data_that_stands_in_the_command_makes_another_run() {
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
    // A rerun is of the recorded run, wherever its data lie now.
    fs::rename(sandbox.path("d1"), sandbox.path("e1")).unwrap();
    let e1 = sandbox.path("e1").display().to_string();
    sandbox.run(&["rerun", &first[0], "--data", &e1]).expect(0);
    on_data(&sandbox, "['e1', 'd2']");
    let second = planned(&sandbox);
    assert!(second[0] != first[0] && second[1] == first[1], "what lies there is the program's own matter");
    // It need not be there yet.
    on_data(&sandbox, "'later'");
    assert_eq!(planned(&sandbox).len(), 1);
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
fn what_a_program_writes_does_not_make_another_run() {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", "echo 1 >> \"$1\"; echo 2 >> \"$2\"\n");
    manifest(&sandbox, "seed = [1, 2]", "['sh', 'worker.sh', '{out}', 'out-{seed}']", "[params]\nout = 'model.pt'\n");
    let executed = || sandbox.json(&["run", "m.toml"], 0)["executed"].clone();
    assert_eq!(executed(), 2);
    assert!(sandbox.path("model.pt").exists() && sandbox.path("out-1").exists());
    assert_eq!(executed(), 0);
}

#[test]
fn a_program_that_changes_during_a_sweep_ends_it() {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", "echo ': changed' >> worker.sh\n");
    manifest(&sandbox, "seed = [1, 2, 3]", "['sh', 'worker.sh']", "");
    let path = sandbox.path("worker.sh").display().to_string();
    // The first run is warned of: it may have started before the change. The others would be another program than their ids name.
    let said = sandbox.run(&["run", "m.toml"]).complaint(4);
    assert!(said.contains(&format!("`{path}` changed after the run ids were computed; the remaining runs")), "{said}");
    let shown = sandbox.json(&["show", "latest"], 0).to_string();
    assert!(shown.contains(&format!("`{path}` changed after its run id was computed")), "{shown}");
    assert_eq!(sandbox.outcomes().len(), 1);
    let said = sandbox.run(&["run", "m.toml"]).complaint(4);
    assert!(said.contains("the remaining runs"), "{said}");
    assert_eq!(sandbox.outcomes().len(), 2, "another program makes other runs");
    sandbox.write("worker.sh", "true");
    assert_eq!(sandbox.json(&["run", "m.toml"], 0)["executed"], 3);
}

#[test]
fn programs_with_other_commands_are_told_apart() {
    let sandbox = Sandbox::new();
    for (file, key, loss) in [("a.sh", "x", 2), ("b.sh", "y", 1)] {
        sandbox.write(file, "echo \"loss $1\"\n");
        let manifest = format!(
            "[model]\nname = \"toy\"\n[program]\ncommand = [\"sh\", \"{file}\", \"{{{key}}}\"]\n\
             [program.metrics]\nloss = 'loss (\\S+)'\n[params]\n{key} = [{loss}, {loss}.5]\n[hardware]\ndevice = \"cpu\"\n"
        );
        sandbox.write("m.toml", manifest);
        sandbox.run(&["run", "m.toml"]).expect(0);
    }
    let asked = ["best", "--model", "toy", "--metric", "loss"];
    let told = "note: rows are of different programs: #1 `sh b.sh {y}`, #3 `sh a.sh {x}` (";
    let said = sandbox.run(&asked).err;
    assert!(said.contains(told), "{said}");
    let one = sandbox.run(&[asked.as_slice(), &["--where", "x > 0"]].concat()).err;
    assert!(!one.contains("different programs"), "{one}");
    let said = sandbox.run(&[asked.as_slice(), &["--group-by", "device"]].concat()).err;
    assert!(said.contains("warning: rows average over different programs (`program.command` in --group-by"), "{said}");
}
