//! Runs of other trackers: what is imported, what is known, and what has grown.

use crate::sandbox::{Sandbox, WORKER, curves};
use std::process::Command;

/// A ledger with two runs of three and more points.
fn recorded() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

/// The points of the series `loss` of all attempts, in a row.
fn losses(sandbox: &Sandbox, ledger: &str) -> Vec<(u64, f64)> {
    let text = sandbox.run(&["--ledger", ledger, "export", "--to", "jsonl", "--table", "points"]).expect(0);
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let points = rows.filter(|row| row["series"] == "loss" || row["series"] == "series/loss");
    let mut points: Vec<(u64, f64)> =
        points.map(|row| (row["step"].as_u64().unwrap(), row["value"].as_f64().unwrap())).collect();
    points.sort_by(|one, other| one.partial_cmp(other).unwrap());
    points
}

fn states(document: &serde_json::Value) -> Vec<&str> {
    document["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect()
}

#[test]
fn an_export_for_tensorboard_is_imported_with_every_point_and_only_once() {
    let sandbox = recorded();
    sandbox.run(&["export", "--to", "tensorboard", "-o", "boards"]).expect(0);
    let import = || sandbox.json(&["--ledger", "other", "import", "tensorboard", "boards"], 0);
    let first = import();
    assert_eq!(states(&first), ["new", "new"]);
    assert_eq!(losses(&sandbox, "other"), losses(&sandbox, "ledger"));
    assert_eq!(states(&import()), ["known", "known"]);
    let shown = sandbox.json(&["--ledger", "other", "show", "latest"], 0);
    let attempt = &shown["attempts"][0];
    assert_eq!(attempt["facts"]["import"]["kind"], "tensorboard");
    assert!(curves(attempt).contains(&("logged_at", 7)), "six steps, and the last one of metrics: {attempt}");
    sandbox.run(&["--ledger", "other", "verify"]).expect(0);
}

#[test]
fn a_run_that_has_grown_takes_the_place_of_its_earlier_import() {
    let sandbox = recorded();
    sandbox.run(&["export", "latest", "--to", "tensorboard", "-o", "boards"]).expect(0);
    let find = |dir: &std::path::Path| std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let file = find(&find(&find(&sandbox.path("boards"))));
    let whole = std::fs::read(&file).unwrap();
    let import = || sandbox.json(&["--ledger", "other", "import", "tensorboard", "boards"], 0);
    std::fs::write(&file, &whole[..whole.len() * 3 / 4]).unwrap();
    let cut = import();
    assert_eq!(states(&cut), ["new"]);
    assert!(cut["runs"][0]["warnings"][0].as_str().unwrap().contains("ends within a record"), "{cut}");
    std::fs::write(&file, &whole).unwrap();
    let grown = import();
    assert_eq!(states(&grown), ["grown"]);
    let listed = sandbox.json(&["--ledger", "other", "ls", "--all"], 0);
    assert_eq!(listed["attempts"].as_array().unwrap().len(), 1, "the earlier one is hidden: {listed}");
    // One that a person has hidden stays hidden when its run has grown.
    let import_third = || sandbox.json(&["--ledger", "third", "import", "tensorboard", "boards"], 0);
    std::fs::write(&file, &whole[..whole.len() * 3 / 4]).unwrap();
    let attempt = import_third()["runs"][0]["attempt"].as_str().unwrap().to_owned();
    sandbox.run(&["--ledger", "third", "hide", &attempt]).expect(0);
    std::fs::write(&file, &whole).unwrap();
    let grown = import_third();
    assert_eq!(states(&grown), ["grown"]);
    assert!(grown["runs"][0]["warnings"][0].as_str().unwrap().contains("it stays hidden"), "{grown}");
    let listed = sandbox.json(&["--ledger", "third", "ls", "--all"], 0);
    assert_eq!(listed["attempts"].as_array().unwrap().len(), 0, "{listed}");
    // An older copy does not take the place of the newer one.
    std::fs::write(&file, &whole[..whole.len() * 3 / 4]).unwrap();
    assert_eq!(states(&import()), ["older"]);
    std::fs::write(&file, &whole).unwrap();
    assert_eq!(states(&import()), ["known"]);
}

#[test]
fn content_that_comes_back_counts_and_rubbish_is_no_run() {
    let sandbox = recorded();
    sandbox.run(&["export", "latest", "--to", "tensorboard", "-o", "boards"]).expect(0);
    let find = |dir: &std::path::Path| std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let folder = find(&find(&sandbox.path("boards")));
    let file = find(&folder);
    let whole = std::fs::read(&file).unwrap();
    let import = || sandbox.json(&["--ledger", "other", "import", "tensorboard", "boards"], 0);
    let counting = || sandbox.json(&["--ledger", "other", "ls", "--all"], 0)["attempts"].as_array().unwrap().len();
    // The same points, and the file's first record once more: the version.
    let length = 16 + usize::try_from(u64::from_le_bytes(whole[..8].try_into().unwrap())).unwrap();
    let other = [&whole[..], &whole[..length]].concat();
    for (content, state) in
        [(&whole, "new"), (&other, "grown"), (&whole, "again"), (&whole, "known"), (&other, "again")]
    {
        std::fs::write(&file, content).unwrap();
        let document = import();
        assert_eq!((states(&document), counting()), (vec![state], 1), "{document}");
    }
    std::fs::create_dir(folder.with_file_name("rubbish")).unwrap();
    std::fs::write(folder.with_file_name("rubbish").join("events.out.tfevents.1"), [7; 3000]).unwrap();
    let said = sandbox.run(&["--ledger", "other", "import", "tensorboard", "boards"]);
    assert!(said.err.contains("not imported, since it has no points, parameters or texts"), "{}", said.err);
    assert_eq!(counting(), 1);
}

#[test]
fn what_cannot_be_read_is_refused_with_the_fix() {
    let sandbox = Sandbox::new();
    sandbox.write("text.db", "no database");
    let absent = sandbox.run(&["import", "tensorboard", "absent"]).complaint(2);
    assert!(absent.contains("cannot read `absent`"), "{absent}");
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3 here");
        return;
    }
    let text = sandbox.run(&["import", "mlflow", "text.db"]).complaint(2);
    assert!(text.contains("cannot be read as an MLflow store: DatabaseError"), "{text}");
    assert!(text.contains("(give mlflow.db, or the folder mlruns)"), "{text}");
}

/// Makes a database with the columns of MLflow's that are read, and grows it with an argument.
const STORE: &str = r#"
import sqlite3, sys
base = sqlite3.connect("mlflow.db")
if len(sys.argv) == 1:
    base.executescript("""
        create table experiments (experiment_id integer, name text);
        create table runs (run_uuid text, name text, experiment_id integer, status text, start_time integer, end_time integer, lifecycle_stage text, artifact_uri text);
        create table metrics (key text, value double, timestamp integer, run_uuid text, step integer, is_nan boolean);
        create table params (key text, value text, run_uuid text);
        create table tags (key text, value text, run_uuid text);
        insert into experiments values (1, 'digits');
        insert into runs values ('a1', 'one', 1, 'FINISHED', 1000000, 1009000, 'active', '');
        insert into runs values ('b2', 'two', 1, 'FAILED', 1000000, 1009000, 'active', '');
        insert into runs values ('c3', 'gone', 1, 'FINISHED', 1000000, 1009000, 'deleted', '');
        insert into params values ('lr', '0.1', 'a1'), ('lr', '0.2', 'b2'), ('seed', '3', 'a1');
        insert into tags values ('mlflow.note.content', 'good', 'a1');
        insert into metrics values ('loss', 0, 1001000, 'a1', 1, 1), ('loss', 1.7976931348623157e308, 1002000, 'a1', 2, 0), ('loss', 0.25, 1003000, 'a1', 3, 0);
        insert into metrics values ('system/cpu_utilization_percentage', 50, 1001000, 'a1', 0, 0);
    """)
else:
    base.execute("insert into metrics values ('loss', 0.125, 1004000, 'a1', 4, 0)")
base.commit()
"#;

#[test]
fn a_database_of_mlflow_is_imported_with_every_point_parameters_and_tags() {
    let sandbox = Sandbox::new();
    sandbox.write("store.py", STORE);
    let store = |more: &[&str]| {
        let mut command = Command::new("python3");
        command.arg("store.py").args(more).current_dir(sandbox.path("")).status()
    };
    if !store(&[]).is_ok_and(|status| status.success()) {
        println!("skipped: no python3 with sqlite3 here");
        return;
    }
    let import = || sandbox.json(&["import", "mlflow", "mlflow.db"], 0);
    let first = import();
    assert_eq!(states(&first), ["new", "new"]);
    assert_eq!(first["deleted"][0], "gone");
    let shown = sandbox.json(&["show", first["runs"][0]["attempt"].as_str().unwrap()], 0);
    let attempt = &shown["attempts"][0];
    assert_eq!(curves(attempt), [("logged_at", 3), ("loss", 3)]);
    assert_eq!(attempt["metrics"]["loss"]["value"], 0.25);
    assert_eq!(attempt["facts"]["mlflow.note.content"], "good");
    let text = shown.to_string();
    assert!(text.contains("\"params.lr\":0.1") && !text.contains("params.seed"), "{text}");
    let points = sandbox.run(&["export", "--to", "csv", "--table", "points"]).expect(0);
    for expected in
        ["loss,,1,,NaN", "loss,,2,,inf", "loss,,3,,0.25", "system/cpu_utilization_percentage,,,1000000000,50"]
    {
        assert!(points.contains(expected), "{expected} in {points}");
    }
    let failed = sandbox.json(&["show", first["runs"][1]["attempt"].as_str().unwrap()], 0);
    assert_eq!(failed["attempts"][0]["outcome"], "failed");
    assert_eq!(states(&import()), ["known", "known"]);
    assert!(store(&["more"]).unwrap().success());
    assert_eq!(states(&import()), ["grown", "known"]);
}
