//! Whole submissions on a real Slurm: what is submitted, what tasks do, and what comes home.

use crate::sandbox::{Said, Sandbox, WORKER};
use crate::slurm_local::Cluster;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

pub fn outcomes(attempts: &[Value]) -> Vec<&str> {
    attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect()
}

pub fn fact<'a>(attempt: &'a Value, name: &str) -> &'a str {
    attempt["facts"][name].as_str().unwrap_or_else(|| panic!("{name} is missing in {}", attempt["facts"]))
}

/// The value of `x` of each run in the ledger.
fn values(cluster: &Cluster) -> BTreeSet<i64> {
    let document = cluster.json(&["ls", "--all"], 0);
    let runs = document["attempts"].as_array().unwrap().iter().map(|row| row["run"].as_str().unwrap().to_owned());
    let x = |run: String| cluster.json(&["show", &run], 0)["parts"]["config"]["value"]["params.x"].as_i64().unwrap();
    runs.map(x).collect()
}

#[test]
fn an_array_executes_what_is_missing_and_all_of_it_comes_home() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2]", "[1, 2]");
    let job = cluster.submit(&["--gpus-per-task", "2", "--array-limit", "3", "--time", "10"]);
    let ledger = || fs::read(cluster.sandbox.ledger_dir().join("ledger.redb")).unwrap();
    let submitted = ledger();
    cluster.await_states(&["finished"; 4]);
    let status = cluster.json(&["status", &job], 0);
    let cell = &status["submissions"][0]["cells"][3];
    assert_eq!((&cell["with"], &cell["task"]), (&"x 2 seed 2".into(), &format!("{job}_3").into()));
    assert!(ledger() == submitted, "no task opens the ledger");

    let collected = cluster.collect();
    assert_eq!(collected.len(), 4);
    assert!(collected.iter().all(|attempt| attempt["state"] == "new" && attempt["outcome"] == "finished"));
    assert!(cluster.collect().is_empty(), "nothing comes twice");
    cluster.json(&["verify"], 0);
    let attempts = cluster.attempts();
    assert_eq!(outcomes(&attempts), ["finished"; 4]);
    let tasks: BTreeSet<&str> = attempts.iter().map(|attempt| fact(attempt, "slurm.array_task_id")).collect();
    assert_eq!(tasks, ["0", "1", "2", "3"].into());
    for attempt in &attempts {
        assert_eq!((fact(attempt, "slurm.array_job_id"), fact(attempt, "slurm.partition")), (job.as_str(), "gpu"));
        assert!(["0,1", "2,3"].contains(&fact(attempt, "slurm.gpus")), "{attempt}");
        assert!(["n1", "n2"].contains(&fact(attempt, "slurm.node")));
        assert!(fact(attempt, "slurm.script").contains("\n#SBATCH --gres=gpu:2\n"));
        assert!(fact(attempt, "slurm.script").contains("\n#SBATCH --array=0-3%3\n"));
    }
    // What they were made from was kept when they were submitted, and is packed with them.
    assert_eq!(cluster.json(&["pack", "latest", "-o", "one.pack"], 0)["sources"], 2);
    // The run that the node executed is the one that this machine would.
    let plan = cluster.json(&["run", "m.toml", "--dry-run"], 0);
    assert!(plan["runs"].as_array().unwrap().iter().all(|run| run["missing"] == 0), "{plan}");

    let again = cluster.json(&["submit", "m.toml", "--gpus-per-task", "2"], 0);
    assert_eq!((&again["sealed"], &again["arrays"]), (&4.into(), &Value::Array(vec![])));
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "[1, 2]");
    let more = cluster.json(&["submit", "m.toml", "--gpus-per-task", "2"], 0);
    assert_eq!((&more["sealed"], &more["arrays"][0]["tasks"]), (&4.into(), &2.into()));
    let busy = cluster.json(&["submit", "m.toml", "--gpus-per-task", "2"], 0);
    assert_eq!((&busy["sealed"], &busy["under_way"]), (&4.into(), &2.into()), "submitted once is enough");
    cluster.await_states(&["finished"; 2]);
    let text = cluster.ledger(&["status"]).expect(0);
    assert!(text.contains("\n2 cells: 2 finished\n"), "{text}");
}

#[test]
fn a_task_makes_as_many_attempts_as_are_wanted_and_no_canary() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest("exit 0", "1", "1");
    let manifest = fs::read_to_string(cluster.sandbox.path("m.toml")).unwrap();
    cluster.sandbox.write("m.toml", format!("repeats = 3\n{manifest}[protocol]\ncanary_every = 1\n"));
    cluster.submit(&[]);
    cluster.await_states(&["finished"]);
    cluster.wait_for("the task's end", || cluster.slurm("squeue", &["-h"]).trim().is_empty());
    assert_eq!(cluster.collect().len(), 3);
}

#[test]
fn another_kind_of_machine_is_asked_for_and_the_node_knows_what_is_sealed() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    cluster.ledger(&["run", "m.toml"]).expect(0);
    // Nobody knows yet what a node is, so that the cells are submitted; the node is this machine, and finds both sealed.
    cluster.submit(&[]);
    cluster.await_states(&["finished"; 2]);
    assert!(cluster.collect().is_empty());
    assert_eq!(cluster.sandbox.outcomes(), ["finished"; 2]);
    assert_eq!(cluster.json(&["submit", "m.toml"], 0)["sealed"], 2, "now it is known");
    let other = cluster.json(&["submit", "m.toml", "--partition", "preemptible", "--option", "--hold"], 0);
    assert_eq!((&other["sealed"], &other["arrays"][0]["tasks"]), (&0.into(), &2.into()), "of that kind nothing is");
}

#[test]
fn what_was_submitted_is_executed_whatever_becomes_of_the_manifest() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    let job = cluster.submit(&["--option", "--hold", "--only", "x >= 2"]);
    cluster.sandbox.sweep_manifest(WORKER, "[7, 8, 9]", "5");
    cluster.slurm("scontrol", &["release", &job]);
    cluster.await_states(&["finished"; 2]);
    cluster.collect();
    assert_eq!(values(&cluster), [2, 3].into());

    let job = cluster.submit(&["--option", "--hold", "--only", "x == 7"]);
    cluster.sandbox.write("worker.sh", format!("{WORKER}\n# another program\n"));
    cluster.slurm("scontrol", &["release", &job]);
    cluster.await_states(&["refused"]);
    let (_, reason) = cluster.states().remove(0);
    assert_eq!(reason, "its program changed after it was submitted, by `worker.sh` (submit it again)");
    assert!(cluster.collect().is_empty());
}

pub fn found_sorted(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn fifty_tasks_at_once_while_everything_is_brought_home() {
    let Some(cluster) = Cluster::start(&["--cpus", "32", "--mem", "16384"]) else { return };
    let seeds: Vec<String> = (1..=25).map(|seed| seed.to_string()).collect();
    cluster.sandbox.sweep_manifest(&format!("{WORKER}\nsleep 1\n"), "[1, 2]", &format!("[{}]", seeds.join(", ")));
    assert_eq!(cluster.json(&["submit", "m.toml"], 0)["arrays"][0]["tasks"], 50);
    cluster.wait_for("all fifty", || {
        cluster.collect();
        cluster.states().iter().all(|(state, _)| state == "finished")
    });
    cluster.collect();
    assert_eq!(cluster.sandbox.outcomes(), vec!["finished"; 50]);
    let sound = cluster.json(&["verify"], 0);
    assert_eq!((&sound["runs"], &sound["attempts"]), (&50.into(), &50.into()));
}

#[test]
fn a_task_is_seen_and_followed_while_it_runs() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let script = "echo '{\"event\":\"plan\",\"steps\":9}' >> \"$LEDGER_EVENTS\"\necho '{\"event\":\"step\",\"step\":2}' >> \"$LEDGER_EVENTS\"\n\
                  echo begun; while [ ! -e go ]; do sleep 0.05; done; echo the end; printf 'no line end'";
    cluster.sandbox.sweep_manifest(script, "1", "1");
    cluster.submit(&["--time", "10"]);
    // A task copies its journal every five seconds.
    cluster.wait_for("the step", || cluster.ledger(&["watch", "--once"]).out.contains("2/9"));
    assert_eq!(cluster.json(&["ls"], 0)["running"][0]["step"], 2);
    let mut follower = cluster.command(&["logs", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(follower.stdout.take().unwrap());
    let mut text = String::new();
    said.read_line(&mut text).unwrap();
    cluster.sandbox.write("go", "");
    said.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), follower.wait().unwrap().code()), ("begun\nthe end\nno line end", Some(0)));
    assert_eq!(cluster.ledger(&["watch", "--once"]).code, Some(1));
    cluster.await_states(&["finished"]);
}

#[test]
fn waiting_ends_with_the_answer() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    let said = cluster.ledger(&["submit", "m.toml", "--wait"]);
    let text = said.expect(0);
    assert!(text.starts_with("job 1: 2 cells in 2 tasks\n") && text.contains("\n2 cells: 2 finished\n"), "{text}");
    assert_eq!(cluster.sandbox.outcomes(), ["finished"; 2], "and they are in the ledger");

    cluster.sandbox.sweep_manifest("echo on the way; echo lost it >&2; exit 3", "5", "1");
    let said = cluster.ledger(&["submit", "m.toml", "--wait"]);
    let text = said.expect(4);
    let expected = "failed: the worker exited with code 3: lost it\n    on the way\n    lost it\n";
    assert!(text.contains(expected), "{text}");
    let resumed = cluster.json(&["submit", "--resume"], 0);
    assert_eq!(resumed["jobs"].as_array().unwrap().len(), 0, "one that failed came to an end of its own");
}

#[test]
fn dependencies_sites_and_modules_are_as_they_were_asked_for() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let sites = cluster.sandbox.path("home/.config/ledger/sites");
    fs::create_dir_all(&sites).unwrap();
    let scratch = cluster.sandbox.path("scratch");
    fs::create_dir(&scratch).unwrap();
    let setup = "modules = [\"singularity/3.11\", \"cuda/12.2.2\"]\nsetup = [\"export FROM_SITE=yes\"]";
    let scratch_line = format!("scratch = \"{}/$SLURM_JOB_ID\"", scratch.display());
    fs::write(sites.join("here.toml"), format!("partition = \"gpu\"\n{setup}\n{scratch_line}\n")).unwrap();
    let script = format!("echo \"$FROM_SITE $PWD\"; ls -d {}/*/*/calibrations/*; exit 1", scratch.display());
    let calibrations = cluster.sandbox.ledger_dir().join("calibrations");
    fs::create_dir_all(&calibrations).unwrap();
    fs::write(calibrations.join("0123.json"), "{}").unwrap();
    cluster.sandbox.sweep_manifest("", "1", "1");
    cluster.sandbox.write("first.sh", script);
    let manifest = fs::read_to_string(cluster.sandbox.path("m.toml")).unwrap();
    cluster.sandbox.write("m.toml", manifest.replace("worker.sh", "first.sh"));
    // Where there are modules, shells that people log into hand this function on, and sbatch does.
    let loading = "() { [ \"$1\" = load ] && shift && local IFS=: && export LOADEDMODULES=\"$*\"; }";
    let options = ["submit", "m.toml", "--site", "here", "--option", "--hold", "--json"];
    let mut command = cluster.command(&options);
    command
        .env("BASH_FUNC_module%%", loading)
        .env("SBATCH_PARTITION", "preemptible")
        .env("SBATCH_CLUSTERS", "elsewhere");
    let said: Value = serde_json::from_str(&Said::new(command.output().unwrap()).expect(0)).unwrap();
    let first = said["arrays"][0]["job"].as_str().unwrap();
    cluster.sandbox.sweep_manifest(WORKER, "2", "1");
    let dependency = format!("--dependency=afterany:{first}");
    cluster.submit(&["--option", &dependency]);
    let waits = ("waiting".to_owned(), "Dependency".to_owned());
    cluster.wait_for("the reason", || cluster.states()[0] == waits);
    let mut command = cluster.command(&["status", "--all", "--json"]);
    command.env("SQUEUE_USERS", "nobody").env("SQUEUE_PARTITION", "preemptible").env("SQUEUE_NAMES", "another");
    let said: Value = serde_json::from_str(&Said::new(command.output().unwrap()).expect(0)).unwrap();
    let newest = said["submissions"].as_array().unwrap().last().unwrap();
    assert_eq!(newest["cells"][0]["state"], "waiting", "no variable hides it");
    cluster.slurm("scontrol", &["release", first]);
    cluster.await_states(&["finished"]);
    cluster.collect();
    let attempts = cluster.attempts();
    assert_eq!(outcomes(&attempts), ["failed", "finished"], "the second after the first");
    let attempt = &attempts[0];
    let said = attempt["stdout_tail"].as_str().unwrap();
    let folder = fs::canonicalize(cluster.sandbox.path("")).unwrap();
    assert!(said.starts_with(&format!("yes {}\n", folder.display())), "{said}");
    assert!(said.contains(&format!("\n{}/", scratch.display())), "{said}");
    assert!(said.contains("/calibrations/0123.json\n"), "the task's own ledger has what the other one knows: {said}");
    let modules: Vec<&str> =
        attempt["facts"]["modules"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(modules, ["singularity/3.11", "cuda/12.2.2"]);
    assert_eq!(fact(attempt, "slurm.partition"), "gpu", "the script counts before the environment");
    let left: Vec<_> = walk(&scratch);
    assert!(left.is_empty(), "nothing is left on the node: {left:?}");
}

/// The files below a folder.
fn walk(folder: &std::path::Path) -> Vec<String> {
    found_sorted(Command::new("find").arg(folder).args(["-type", "f"]))
}

#[test]
fn a_dry_run_needs_no_slurm_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", format!("{text}[slurm]\npartition = \"gpu\"\ntime = \"1:00:00\"\ncells_per_task = 2\n"));
    let args = ["submit", "m.toml", "--dry-run", "--time", "2:00:00", "--gpus-per-task", "1"];
    let mut command = sandbox.command(&args);
    let said = Said::new(command.env("PATH", "/nowhere").output().unwrap());
    assert!(said.err.contains("there is no `scontrol` on PATH"), "{}", said.err);
    let out = said.expect(0);
    for line in ["#SBATCH --array=0-1", "#SBATCH --partition=gpu", "#SBATCH --time=2:00:00", "#SBATCH --gres=gpu:1"] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    assert!(!sandbox.ledger_dir().exists());
    let mut command = sandbox.command(&["submit", "m.toml"]);
    let said = Said::new(command.env("PATH", "/nowhere").output().unwrap());
    let complaint = said.complaint(7);
    assert!(complaint.contains("Slurm's commands are on a cluster's login node"), "{complaint}");
    let said = sandbox.run(&["status"]).complaint(1);
    assert!(said.contains("nothing was submitted"), "{said}");
    let said = sandbox.run(&["submit", "m.toml", "--site", "nowhere", "--dry-run"]).complaint(2);
    assert!(said.contains("nowhere.toml` cannot be read (docs/slurm.md"), "{said}");
    let said = sandbox.run(&["submit", "m.toml", "--container", "x.sif", "--dry-run"]).complaint(2);
    assert!(said.contains("x.sif`, which does not exist (build one"), "{said}");
    let said = sandbox.run(&["submit", "m.toml", "--dry-run", "--time", "1"]).expect(0);
    assert!(said.contains("\n#SBATCH --signal=B:USR1@15\n"), "a cell has the most of a short time: {said}");
    sandbox.write(
        "m.toml",
        format!("{text}[slurm]\ntime = \"2\"\ngrace_s = 120\nspool = \"here\"\nledger = \"~/bin/ledger\"\n"),
    );
    let said = sandbox.run(&["submit", "m.toml", "--dry-run"]).complaint(2);
    assert!(said.contains("slurm.time is `2`, 120 seconds, but slurm.grace_s is 120"), "{said}");
    let said = sandbox.run(&["submit", "m.toml", "--dry-run", "--time", "5"]).expect(0);
    let spool = format!("\n#SBATCH --output={}/ledger-", sandbox.path("here").display());
    let task =
        format!("\n{}/bin/ledger task {}/ledger-", sandbox.path("home").display(), sandbox.path("here").display());
    assert!(said.contains(&spool) && said.contains(&task), "{said}");
    sandbox.write("m.toml", format!("{text}[slurm]\nspool = \"~nobody/x\"\n"));
    let said = sandbox.run(&["submit", "m.toml", "--dry-run"]).complaint(2);
    assert!(said.contains("slurm.spool is `~nobody/x`, but its home folder is unknown (give the full path)"), "{said}");
    sandbox.write("m.toml", format!("{text}[slurm]\ncontainer = \"usual.sif\"\n"));
    let said = sandbox.run(&["submit", "m.toml", "--dry-run"]).complaint(2);
    assert!(said.contains(&format!("`{}`, which does not exist", sandbox.path("usual.sif").display())), "{said}");
    sandbox.run(&["submit", "m.toml", "--dry-run", "--container", "host"]).expect(0);
    let said = sandbox.run(&["submit", "--resume", "--time", "5"]).complaint(2);
    assert!(said.contains("cannot be used with"), "{said}");
    let said = sandbox.run(&["task", ".", "--array", "0"]).complaint(2);
    assert!(said.contains("this is not a Slurm job"), "{said}");
}

#[test]
fn ledgers_that_share_a_spool_bring_home_their_own_alone() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    let sites = cluster.sandbox.path("home/.config/ledger/sites");
    fs::create_dir_all(&sites).unwrap();
    fs::write(sites.join("here.toml"), "spool = \"~/spool\"\n").unwrap();
    cluster.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    let of_other = |args: &[&str]| -> Value {
        let mut command = cluster.command(&[args, &["--json"]].concat());
        let output = command.env("LEDGER_DIR", cluster.sandbox.path("other")).output().unwrap();
        serde_json::from_str(&Said::new(output).expect(0)).unwrap()
    };
    cluster.submit(&["--site", "here"]);
    of_other(&["submit", "m.toml", "--site", "here", "--only", "x == 1", "--option", "--hold"]);
    cluster.await_states(&["finished"; 2]);
    assert_eq!(fs::read_dir(cluster.sandbox.path("home/spool")).unwrap().count(), 2);
    assert_eq!(of_other(&["status", "--all"])["submissions"].as_array().unwrap().len(), 1);
    assert_eq!(of_other(&["collect"])["collected"], Value::Array(vec![]));
    assert_eq!(cluster.collect().len(), 2);
}

#[test]
fn what_slurm_refuses_is_said_and_nothing_is_left() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    cluster.sandbox.sweep_manifest(WORKER, "1", "1");
    let said = cluster.ledger(&["submit", "m.toml", "--partition", "nowhere"]).complaint(7);
    assert!(said.contains("`sbatch` refused: ") && said.contains("invalid partition"), "{said}");
    let said = cluster.ledger(&["submit", "m.toml", "--gpus-per-task", "9"]).complaint(7);
    assert!(said.contains("Requested node configuration is not available"), "{said}");
    let said = cluster.ledger(&["status"]).complaint(1);
    assert!(said.contains("nothing was submitted"), "{said}");
}
