//! Tasks of a real Slurm that do not come to their end: stopped, preempted, cancelled, killed, on a node that dies or is drained, forgotten.

use crate::sandbox::curves;
use crate::slurm::{fact, found_sorted, outcomes};
use crate::slurm_local::Cluster;
use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Works until a file `go` is there, or it is told to stop.
const PATIENT: &str = r#"
trap 'echo "asked to stop"; exit 130' INT
x=$1
echo "{\"event\":\"plan\",\"steps\":2}" >> "$LEDGER_EVENTS"
echo "{\"event\":\"step\",\"step\":1,\"values\":{\"loss\":$x}}" >> "$LEDGER_EVENTS"
touch "started-$x"
while [ ! -e go ] && [ ! -e "go-$x" ]; do sleep 0.05; done
echo "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.$x}" >> "$LEDGER_EVENTS"
"#;

#[test]
fn a_forewarning_seals_what_was_done_and_resume_executes_the_rest() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(PATIENT, "[1, 2]", "1");
    cluster.sandbox.write("go-1", "");
    let job = cluster.submit(&[]);
    cluster.wait_for("the worker's start", || cluster.sandbox.path("started-2").exists());
    cluster.await_states(&["finished", "running"]);
    cluster.slurm("scancel", &["--batch", "--signal=USR1", &format!("{job}_1")]);
    cluster.await_states(&["finished", "interrupted"]);
    let reason = "it was stopped by Slurm's warning: its time limit was near";
    assert_eq!(cluster.states()[1].1, reason);
    let text = cluster.ledger(&["status"]).expect(0);
    assert!(text.contains("asked to stop"), "{text}");
    let collected = cluster.collect();
    assert_eq!(collected.iter().filter(|attempt| attempt["outcome"] == "interrupted").count(), 1);

    cluster.sandbox.write("go", "");
    let resumed = cluster.json(&["submit", "--resume"], 0);
    assert_eq!(resumed["jobs"][0]["tasks"], 1);
    cluster.await_states(&["finished"; 2]);
    let resumed = cluster.json(&["submit", "--resume", &job], 0);
    assert_eq!(resumed["jobs"].as_array().unwrap().len(), 0, "there is nothing left");
    cluster.collect();
    let attempts = cluster.attempts();
    let interrupted: Vec<_> = attempts.iter().filter(|attempt| attempt["outcome"] == "interrupted").collect();
    assert_eq!((attempts.len(), interrupted.len()), (3, 1));
    assert_eq!((&interrupted[0]["reason"], curves(interrupted[0])), (&reason.into(), vec![("loss", 1)]));
    cluster.json(&["verify"], 0);
}

#[test]
fn a_task_whose_time_is_over_asks_for_another_start_and_goes_on_there() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(PATIENT, "[1, 2, 3]", "1");
    cluster.sandbox.write("go-1", "");
    let job = cluster.submit(&["--cells-per-task", "3"]);
    cluster.wait_for("the second cell", || cluster.sandbox.path("started-2").exists());
    cluster.sandbox.write("go-3", "");
    cluster.slurm("scancel", &["--batch", "--signal=USR1", &format!("{job}_0")]);
    cluster.wait_for("the end of the first start", || {
        cluster.states().iter().map(|(state, _)| state.as_str()).eq(["finished", "waiting", "waiting"])
    });
    assert!(!cluster.sandbox.path("started-3").exists(), "no cell is begun after the forewarning");
    cluster.sandbox.write("go-2", "");
    cluster.await_states(&["finished"; 3]);
    cluster.collect();
    let attempts = cluster.attempts();
    assert_eq!(outcomes(&attempts), ["finished", "interrupted", "finished", "finished"]);
    assert_eq!(fact(&attempts[3], "slurm.restart_count"), "1");
}

#[test]
fn a_preempted_task_is_sealed_and_started_again() {
    let Some(cluster) = Cluster::start(&["--nodes", "1", "--cpus", "1"]) else { return };
    cluster.sandbox.sweep_manifest(PATIENT, "1", "1");
    cluster.submit(&["--partition", "preemptible"]);
    cluster.wait_for("the worker's start", || cluster.sandbox.path("started-1").exists());
    cluster.slurm("sbatch", &["--partition=gpu", "--output=/dev/null", "--wrap", "sleep 2"]);
    cluster.wait_for("the preemption", || {
        let out = cluster.sandbox.ledger_dir().join("slurm");
        let found = Command::new("find").arg(out).args(["-name", "*.interrupted.ledger"]).output().unwrap();
        !found.stdout.is_empty()
    });
    cluster.sandbox.write("go", "");
    cluster.await_states(&["finished"]);
    cluster.collect();
    let attempts = cluster.attempts();
    assert_eq!(outcomes(&attempts), ["interrupted", "finished"]);
    assert_eq!(attempts[0]["reason"], "it was stopped by Slurm: cancelled, preempted, requeued or out of time");
}

#[test]
fn cancelled_tasks_are_sealed_and_those_that_never_ran_are_named() {
    let Some(cluster) = Cluster::start(&["--nodes", "1", "--cpus", "1"]) else { return };
    cluster.sandbox.sweep_manifest(PATIENT, "[1, 2]", "1");
    let manifest = fs::read_to_string(cluster.sandbox.path("m.toml")).unwrap();
    cluster.sandbox.write("m.toml", format!("{manifest}[slurm]\nspool = \"spool\"\n"));
    let job = cluster.submit(&[]);
    cluster.wait_for("the worker's start", || cluster.sandbox.path("started-1").exists());
    cluster.slurm("scancel", &[&job]);
    cluster.await_states(&["interrupted", "cancelled"]);
    cluster.collect();
    assert_eq!(outcomes(&cluster.attempts()), ["interrupted"]);
    let resumable = cluster.json(&["submit", "--resume", &job, "--dry-run"], 0);
    assert_eq!(resumable["arrays"][0]["tasks"], serde_json::json!([0, 1]));
    let text = cluster.ledger(&["submit", "--resume", &job, "--dry-run"]).expect(0);
    assert!(text.starts_with("array 0 of 2") && text.ends_with(": 2 tasks again (0, 1)\n"), "{text}");
    // Plain `submit` takes up what is missing as well, and then there is nothing to resume.
    assert_eq!(cluster.json(&["submit", "m.toml"], 0)["arrays"][0]["tasks"], 2);
    let resumed = cluster.json(&["submit", "--resume", &job], 0);
    assert_eq!((&resumed["jobs"], &resumed["under_way"]), (&serde_json::json!([]), &2.into()));
    cluster.sandbox.write("go", "");
    cluster.await_states(&["finished"; 2]);
    let resumed = cluster.json(&["submit", "--resume", &job], 0);
    assert_eq!((&resumed["jobs"], &resumed["sealed"]), (&serde_json::json!([]), &2.into()), "{resumed}");
    assert_eq!(outcomes(&cluster.attempts()), ["interrupted", "finished", "finished"]);
}

#[test]
fn a_resumed_task_counts_its_own_attempts_once() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    let second = "if [ -e first ]; then";
    let script = format!("{second} :; else : > go-once; fi\n{PATIENT}")
        .replace("[ ! -e go ]", "[ ! -e go ] && [ ! -e go-once ]");
    cluster.sandbox.sweep_manifest(&format!("{script}\nrm -f go-once; : > first\n"), "1", "1");
    let manifest = fs::read_to_string(cluster.sandbox.path("m.toml")).unwrap();
    cluster.sandbox.write("m.toml", format!("repeats = 2\n{manifest}"));
    let job = cluster.submit(&["--option", "--no-requeue"]);
    cluster.wait_for("the end of the first attempt", || cluster.sandbox.path("first").exists());
    fs::remove_file(cluster.sandbox.path("started-1")).unwrap();
    cluster.wait_for("the second attempt", || cluster.sandbox.path("started-1").exists());
    cluster.slurm("scancel", &[&job]);
    cluster.await_states(&["interrupted"]);
    cluster.collect();
    cluster.sandbox.write("go", "");
    assert_eq!(cluster.json(&["submit", "--resume", &job], 0)["jobs"][0]["tasks"], 1);
    cluster.await_states(&["finished"]);
    cluster.collect();
    assert_eq!(outcomes(&cluster.attempts()), ["finished", "interrupted", "finished"]);
}

/// The process of `ledger task` and the script that started it.
fn task_processes(cluster: &Cluster) -> (String, String) {
    let worker = fs::read_to_string(cluster.sandbox.path("pid")).unwrap();
    let parent = |pid: &str| {
        let output = Command::new("ps").args(["-o", "ppid=", "-p", pid.trim()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let task = parent(&worker);
    let script = parent(&task);
    (task, script)
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

#[test]
fn of_a_task_that_was_killed_the_copy_of_its_journal_is_left() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(&format!("echo $$ > pid\n{PATIENT}"), "1", "1");
    let manifest = fs::read_to_string(cluster.sandbox.path("m.toml")).unwrap();
    let scratch = cluster.sandbox.path("scratch");
    cluster.sandbox.write("m.toml", format!("{manifest}[slurm]\nscratch = \"{}\"\n", scratch.display()));
    let on_node = || fs::read_dir(&scratch).unwrap().count();
    let job = cluster.submit(&[]);
    let copied = || {
        let folder = cluster.sandbox.ledger_dir().join("slurm");
        let mut found = found_sorted(Command::new("find").arg(folder).args(["-path", "*/journals/*"]));
        found.retain(|path| fs::metadata(path).unwrap().len() > 0);
        !found.is_empty()
    };
    cluster.wait_for("the copy of the journal", copied);
    assert_eq!(cluster.json(&["collect", "--patience", "0"], 0)["waiting"], 1, "its task lives");
    let (task, _) = task_processes(&cluster);
    kill("-KILL", &task);
    cluster.await_states(&["lost"]);
    assert!(cluster.states()[0].1.starts_with("Slurm says FAILED of its task on n"), "{:?}", cluster.states());
    let collected = cluster.collect();
    assert_eq!((collected.len(), &collected[0]["outcome"]), (1, &"interrupted".into()));
    let attempts = cluster.attempts();
    assert!(attempts[0]["reason"].as_str().unwrap().contains("Slurm says FAILED"), "{}", attempts[0]);
    assert_eq!(curves(&attempts[0]), [("loss", 1)]);
    assert_eq!(cluster.states()[0].0, "interrupted");
    cluster.sandbox.write("go", "");
    assert_eq!(on_node(), 1, "nobody was left to remove it");
    cluster.ledger(&["submit", "--resume", &job]).expect(0);
    cluster.await_states(&["finished"]);
    cluster.wait_for("the removal of the task's own", || on_node() == 1);
    let left = fs::read_dir(&scratch).unwrap().next().unwrap().unwrap().path();
    let long_ago = SystemTime::now() - Duration::from_secs(8 * 86_400);
    for entry in fs::read_dir(left).unwrap() {
        fs::File::open(entry.unwrap().path()).unwrap().set_modified(long_ago).unwrap();
    }
    cluster.submit(&["--repeat", "1"]);
    cluster.wait_for("the removal of what was left long ago", || on_node() == 0);
}

#[test]
fn a_node_that_dies_takes_one_attempt_and_resume_finds_another_node() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(&format!("echo $$ > pid\n{PATIENT}"), "1", "1");
    cluster.submit(&["--option", "--no-requeue"]);
    cluster.wait_for("the worker's start", || cluster.sandbox.path("started-1").exists());
    cluster.await_states(&["running"]);
    let status = cluster.json(&["status"], 0);
    let node = status["submissions"][0]["cells"][0]["node"].as_str().unwrap().to_owned();
    // As a node ends that loses its power: nobody hears a signal.
    let (task, script) = task_processes(&cluster);
    kill("-STOP", &script);
    kill("-KILL", &task);
    cluster.slurm("scontrol", &["update", &format!("nodename={node}"), "state=down", "reason=test"]);
    // Its slurmd lives, and would bring it back into service.
    cluster.slurm("scontrol", &["update", &format!("nodename={node}"), "state=drain", "reason=test"]);
    cluster.await_states(&["lost"]);
    assert_eq!(cluster.states()[0].1, format!("Slurm says NODE_FAIL of its task on {node}"));
    cluster.sandbox.write("go", "");
    assert_eq!(cluster.json(&["submit", "--resume"], 0)["jobs"][0]["tasks"], 1);
    cluster.await_states(&["finished"]);
    cluster.collect();
    let attempts = cluster.attempts();
    let last = attempts.last().unwrap();
    assert_eq!(last["outcome"], "finished");
    assert_ne!(fact(last, "slurm.node"), node);
}

#[test]
fn a_host_of_another_cluster_knows_nothing_of_what_lives() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    cluster.sandbox.sweep_manifest(PATIENT, "1", "1");
    let job = cluster.submit(&[]);
    cluster.await_states(&["running"]);
    let mut paths =
        found_sorted(Command::new("find").arg(cluster.sandbox.ledger_dir()).args(["-name", "submission.json"]));
    let path = paths.remove(0);
    let text = fs::read_to_string(&path).unwrap();
    let kind = text.split("\"kind\": \"").nth(1).unwrap();
    let (here, _) = kind.split_once('/').unwrap();
    fs::write(&path, text.replace(&format!("\"kind\": \"{here}/"), "\"kind\": \"another/")).unwrap();
    let said = cluster.ledger(&["status"]);
    assert!(said.err.contains(&format!("cluster `another`, but this host belongs to `{here}`")), "{}", said.err);
    assert_eq!(cluster.states()[0].0, "unknown");
    let said = cluster.ledger(&["submit", "--resume", &job]).complaint(7);
    assert!(said.contains("are unknown without Slurm"), "{said}");
    cluster.sandbox.write("go", "");
    cluster.await_states(&["finished"]);
}

#[test]
fn a_node_that_is_drained_ends_its_tasks_first() {
    let Some(cluster) = Cluster::start(&["--cpus", "1"]) else { return };
    cluster.sandbox.sweep_manifest(PATIENT, "[1, 2, 3, 4]", "1");
    let job = cluster.submit(&[]);
    cluster.await_states(&["running", "running", "waiting", "waiting"]);
    cluster.slurm("scontrol", &["update", "nodename=n1", "state=drain", "reason=test"]);
    cluster.sandbox.write("go", "");
    cluster.await_states(&["finished"; 4]);
    cluster.collect();
    let attempts = cluster.attempts();
    let on_first = attempts.iter().filter(|attempt| fact(attempt, "slurm.node") == "n1").count();
    assert_eq!((outcomes(&attempts), on_first), (vec!["finished"; 4], 1), "{job}");
}

#[test]
fn what_slurm_has_forgotten_is_over() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    cluster.sandbox.sweep_manifest(&format!("[ $1 = 1 ] || echo $$ > pid\n{PATIENT}"), "[1, 2]", "1");
    cluster.sandbox.write("go-1", "");
    let job = cluster.submit(&[]);
    cluster.wait_for("the worker's start", || cluster.sandbox.path("started-2").exists());
    cluster.await_states(&["finished", "running"]);
    kill("-KILL", &task_processes(&cluster).0);
    cluster.await_states(&["finished", "lost"]);
    // Slurm forgets once a minute: another number, that it does not know, is as good.
    for path in found_sorted(Command::new("find").arg(cluster.sandbox.ledger_dir()).args(["-name", "1.json"])) {
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&format!("\"job\": \"{job}\""), "\"job\": \"99999\"")).unwrap();
    }
    let states = cluster.states();
    let lost = ("lost".to_owned(), "its task has ended, and Slurm has no record of how".to_owned());
    assert_eq!((states[0].0.as_str(), &states[1]), ("finished", &lost));
    assert_eq!(cluster.collect().iter().filter(|attempt| attempt["outcome"] == "finished").count(), 1);
}

#[test]
#[ignore = "takes over a minute: that often the queue forgets what is older than MinJobAge"]
fn the_accounts_know_what_the_queue_has_forgotten() {
    let Some(cluster) = Cluster::start(&["--accounting", "--conf", "MinJobAge=2"]) else { return };
    cluster.sandbox.sweep_manifest(&format!("echo $$ > pid\n{PATIENT}"), "1", "1");
    cluster.submit(&["--time", "5"]);
    cluster.wait_for("the worker's start", || cluster.sandbox.path("started-1").exists());
    kill("-KILL", &task_processes(&cluster).0);
    while !cluster.slurm("squeue", &["-h", "-t", "all"]).is_empty() {
        std::thread::sleep(Duration::from_secs(1));
    }
    let (state, reason) = cluster.states().remove(0);
    assert!(state == "lost" && reason.starts_with("Slurm says FAILED of its task on n"), "{state}: {reason}");
}
