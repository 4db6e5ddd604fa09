//! Submissions to a Slurm of four scripts, which can be slow, refuse and forget when a test wants it.

use crate::sandbox::{Said, Sandbox, WORKER};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Takes a script, and starts its tasks in the background. `refuse` names a script that it does not take, `slow` keeps its answer back, `hold` its tasks,
/// `unread` answers instead.
const SBATCH: &str = r##"#!/bin/sh
for script; do :; done
env > "$FAKE/env"
if [ "$(cat "$FAKE/refuse" 2> /dev/null)" = "${script##*/}" ]; then
  echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
  exit 1
fi
until mkdir "$FAKE/lock" 2> /dev/null; do sleep 0.01; done
job=$(($(cat "$FAKE/last" 2> /dev/null || echo 0) + 1))
echo $job > "$FAKE/last"
range=$(sed -n 's/^#SBATCH --array=//p' "$script")
for option; do case "$option" in --array=*) range=${option#--array=} ;; esac; done
tasks=$(seq ${range%%-*} ${range##*-})
for task in $tasks; do
  echo "$script" > "$FAKE/jobs/$job.$task.script"
  echo PENDING > "$FAKE/jobs/$job.$task"
done
rmdir "$FAKE/lock"
for task in $tasks; do
  (
    while [ -e "$FAKE/hold" ]; do sleep 0.05; done
    [ "$(cat "$FAKE/jobs/$job.$task")" = PENDING ] || exit
    echo RUNNING > "$FAKE/jobs/$job.$task"
    SLURM_JOB_ID=$job$task SLURM_ARRAY_JOB_ID=$job SLURM_ARRAY_TASK_ID=$task SLURMD_NODENAME=n1 \
      bash "$script" > "${script%/*}/logs/${job}_$task.log" 2>&1
    echo COMPLETED > "$FAKE/jobs/$job.$task"
  ) > /dev/null 2>&1 &
done
: > "$FAKE/taken"
while [ -e "$FAKE/slow" ]; do sleep 0.05; done
if [ -e "$FAKE/unread" ]; then . "$FAKE/unread"; fi
echo $job
"##;

/// Is not there while `deaf` is.
const SQUEUE: &str = r#"#!/bin/sh
if [ -e "$FAKE/deaf" ]; then echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; fi
for format; do :; done
for path in "$FAKE"/jobs/*.script; do
  [ -e "$path" ] || exit 0
  id=${path##*/}; id=${id%.script}
  case "$format" in
    *%o) echo "${id%.*}|${id#*.}|$(cat "$path")" ;;
    *) echo "${id%.*}|${id#*.}|$(cat "${path%.script}")|n1|None" ;;
  esac
done
"#;

const SCONTROL: &str = "#!/bin/sh\necho ClusterName = scripted\necho MaxArraySize = $(cat \"$FAKE/most\")\n";

struct Scripted {
    sandbox: Sandbox,
}

impl Scripted {
    fn new() -> Self {
        let scripted = Self { sandbox: Sandbox::new() };
        for folder in ["bin", "slurm", "slurm/jobs"] {
            fs::create_dir(scripted.sandbox.path(folder)).unwrap();
        }
        scripted.put("most", "1001");
        let silent = "#!/bin/sh\nexit 1\n";
        for (name, text) in
            [("sbatch", SBATCH), ("squeue", SQUEUE), ("scontrol", SCONTROL), ("sacct", silent), ("sstat", silent)]
        {
            let path = scripted.sandbox.write(&format!("bin/{name}"), text);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        scripted
    }

    /// Sets what the scripts go by.
    fn put(&self, name: &str, text: &str) {
        self.sandbox.write(&format!("slurm/{name}"), text);
    }

    fn take(&self, name: &str) {
        fs::remove_file(self.sandbox.path("slurm").join(name)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(args);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.sandbox.path("bin").display());
        command.env("PATH", path).env("FAKE", self.sandbox.path("slurm"));
        command
    }

    fn ledger(&self, args: &[&str]) -> Said {
        Said::new(self.command(args).output().unwrap())
    }

    fn json(&self, args: &[&str], code: i32) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ledger(&args).expect(code)).unwrap()
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The states of the cells of the newest submission.
    fn states(&self) -> Vec<String> {
        let document = self.json(&["status", "--all"], 0);
        let cells = document["submissions"].as_array().unwrap().last().unwrap()["cells"].as_array().unwrap().clone();
        cells.iter().map(|cell| cell["state"].as_str().unwrap().to_owned()).collect()
    }

    fn await_states(&self, expected: &[&str]) {
        self.sandbox.wait_for(&format!("{expected:?}"), || self.states() == expected);
    }

    /// The only file below the submissions whose name ends so.
    fn file(&self, end: &str) -> PathBuf {
        let folder = self.sandbox.ledger_dir().join("slurm");
        let output = Command::new("find").arg(folder).args(["-name", &format!("*{end}")]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "{end}: {text}");
        text.trim().into()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        // Tasks that are held would wait for ever.
        let jobs = fs::read_dir(self.sandbox.path("slurm/jobs")).into_iter().flatten().flatten();
        for path in jobs.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end != "script")) {
            let _ = fs::write(path, "CANCELLED");
        }
        for name in ["hold", "slow"] {
            let _ = fs::remove_file(self.sandbox.path("slurm").join(name));
        }
    }
}

/// The only one of these that submitted something, and the other one.
fn one_of(said: [Said; 2], list: &str) -> [Value; 2] {
    let documents = said.map(|said| serde_json::from_str::<Value>(&said.expect(0)).unwrap());
    let numbers = documents.each_ref().map(|document| document[list].as_array().unwrap().len());
    assert_eq!(numbers.iter().sum::<usize>(), 1, "{documents:?}");
    let [first, second] = documents;
    if first[list] == json!([]) { [second, first] } else { [first, second] }
}

#[test]
fn two_at_once_submit_every_cell_once() {
    let slurm = Scripted::new();
    slurm.put("hold", "");
    slurm.put("slow", "");
    slurm.sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    let both = |args: &[&str], list: &str| {
        let children = [slurm.start(args), slurm.start(args)];
        slurm.sandbox.wait_for("one to be taken", || slurm.sandbox.path("slurm/taken").exists());
        // The other one has come as far as it can.
        std::thread::sleep(std::time::Duration::from_secs(1));
        slurm.take("slow");
        slurm.take("taken");
        one_of(children.map(Sandbox::finish), list)
    };
    let [first, second] = both(&["submit", "m.toml", "--json"], "arrays");
    assert_eq!(first["arrays"][0]["cells"].as_array().unwrap().len(), 3);
    assert_eq!(second["under_way"], 3);

    for task in 0..3 {
        slurm.put(&format!("jobs/1.{task}"), "CANCELLED");
    }
    assert_eq!(slurm.states(), ["cancelled"; 3]);
    slurm.put("slow", "");
    let [again, _] = both(&["submit", "--resume", "--json"], "jobs");
    assert_eq!(again["jobs"][0]["tasks"], 3);
    slurm.take("hold");
    slurm.await_states(&["finished"; 3]);
    slurm.json(&["collect"], 0);
    assert_eq!(slurm.sandbox.outcomes(), ["finished"; 3]);
}

#[test]
fn an_array_is_found_whose_submit_was_killed_before_the_answer() {
    let slurm = Scripted::new();
    slurm.put("hold", "");
    slurm.put("slow", "");
    slurm.sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    let mut child = slurm.start(&["submit", "m.toml"]);
    slurm.sandbox.wait_for("the job", || slurm.sandbox.path("slurm/taken").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    slurm.take("slow");
    let said = slurm.ledger(&["status"]);
    assert!(said.err.contains("found job 1 of "), "{}", said.err);
    assert!(said.expect(0).contains(", job 1\n"));
    assert_eq!(slurm.states(), ["waiting"; 3]);
    let again = slurm.json(&["submit", "m.toml"], 0);
    assert_eq!((&again["arrays"], &again["under_way"]), (&json!([]), &3.into()));
    slurm.take("hold");
    slurm.await_states(&["finished"; 3]);
    slurm.json(&["collect"], 0);
    assert_eq!(slurm.sandbox.outcomes(), ["finished"; 3]);
    slurm.file("closed");
}

#[test]
fn an_array_is_found_whose_answer_was_none() {
    for answer in ["echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1", "echo taken; exit 0"] {
        let slurm = Scripted::new();
        slurm.put("hold", "");
        slurm.put("unread", answer);
        slurm.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
        let complaint = slurm.ledger(&["submit", "m.toml"]).complaint(7);
        assert!(complaint.contains("Slurm may have accepted it anyway: `ledger status` shows it"), "{complaint}");
        slurm.take("unread");
        let again = slurm.json(&["submit", "m.toml"], 0);
        assert_eq!((&again["arrays"], &again["under_way"]), (&json!([]), &2.into()));
        assert_eq!(slurm.states(), ["waiting"; 2]);
        slurm.take("hold");
        slurm.await_states(&["finished"; 2]);
        slurm.json(&["collect"], 0);
        assert_eq!(slurm.sandbox.outcomes(), ["finished"; 2]);
    }
}

#[test]
fn what_may_be_in_the_queue_is_not_handed_over_again_while_slurm_cannot_be_asked() {
    let slurm = Scripted::new();
    slurm.put("hold", "");
    slurm.put("slow", "");
    slurm.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    let mut child = slurm.start(&["submit", "m.toml"]);
    slurm.sandbox.wait_for("the job", || slurm.sandbox.path("slurm/taken").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    slurm.take("slow");
    // As if it were long ago.
    let submission = slurm.file("submission.json");
    let mut beside = fs::read_dir(submission.parent().unwrap()).unwrap().flatten().map(|entry| entry.path());
    let handover = beside.find(|path| path.display().to_string().contains("/handover-0-")).unwrap();
    let since = handover.file_stem().unwrap().to_string_lossy().rsplit('-').next().unwrap().to_owned();
    let text = fs::read_to_string(&handover).unwrap().replace(&since, "1");
    fs::write(handover.with_file_name("handover-0-1.json"), text).unwrap();
    fs::remove_file(&handover).unwrap();

    slurm.put("deaf", "");
    let said = slurm.ledger(&["status"]);
    assert!(
        said.err.contains("warning: the state of the cluster's tasks is unknown: `squeue` refused: "),
        "{}",
        said.err
    );
    assert_eq!(slurm.states(), ["unknown"; 2]);
    let again = slurm.json(&["submit", "m.toml"], 0);
    assert_eq!((&again["arrays"], &again["under_way"]), (&json!([]), &2.into()));
    slurm.ledger(&["submit", "--resume"]).complaint(7);
    slurm.json(&["collect"], 0);
    assert!(!submission.with_file_name("closed").exists());
    slurm.take("deaf");
    assert!(slurm.ledger(&["status"]).err.contains("found job 1 of "));
    assert_eq!(slurm.states(), ["waiting"; 2]);
}

#[test]
fn waiting_is_for_what_is_under_way_too_and_says_it_in_one_document() {
    let slurm = Scripted::new();
    slurm.put("hold", "");
    slurm.sandbox.sweep_manifest("[ $1 != 2 ] || exit 3", "[1, 2]", "1");
    slurm.json(&["submit", "m.toml"], 0);
    let of = |only: &str| slurm.start(&["submit", "m.toml", "--wait", "--json", "--only", only]);
    let waiting = [of("x == 1"), of("x == 2")];
    let new = slurm.start(&["submit", "m.toml", "--wait", "--json", "--only", "x == 1", "--repeat", "1"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    slurm.take("hold");
    let [good, bad] = waiting.map(Sandbox::finish);
    let good: Value = serde_json::from_str(&good.expect(0)).unwrap();
    assert_eq!((&good["under_way"], &good["arrays"]), (&1.into(), &json!([])));
    assert_eq!(good["submissions"][0]["cells"][0]["state"], "finished");
    bad.expect(4);
    let new: Value = serde_json::from_str(&Sandbox::finish(new).expect(0)).unwrap();
    assert_eq!((&new["arrays"][0]["tasks"], &new["submissions"][0]["submission"]), (&1.into(), &new["submission"]));
    assert_eq!(slurm.sandbox.outcomes().len(), 3, "all of it is in the ledger");
    let resumed = slurm.json(&["submit", "--resume", "--wait"], 0);
    assert_eq!((&resumed["jobs"], resumed["submissions"].as_array().unwrap().len()), (&json!([]), 1));
}

#[test]
fn what_comes_back_damaged_is_lost_and_can_be_resumed() {
    let slurm = Scripted::new();
    slurm.sandbox.sweep_manifest(WORKER, "1", "1");
    slurm.json(&["submit", "m.toml"], 0);
    slurm.await_states(&["finished"]);
    let pack = slurm.file(".finished.ledger");
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, bytes).unwrap();
    let said = slurm.ledger(&["collect", "--patience", "0"]);
    assert!(said.err.contains("it counts as lost: `ledger submit --resume "), "{}", said.err);
    said.expect(1);
    slurm.await_states(&["lost"]);
    slurm.json(&["submit", "--resume", "--wait"], 0);
    assert_eq!(slurm.sandbox.outcomes(), ["finished"]);
}

#[test]
fn what_slurm_refuses_in_part_is_told_and_can_be_resumed() {
    let slurm = Scripted::new();
    slurm.put("most", "2");
    slurm.put("refuse", "array-1.sh");
    slurm.sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    let said = slurm.ledger(&["submit", "m.toml", "--cells-per-task", "1"]);
    assert!(said.out.starts_with("job 1: 2 cells in 2 tasks\nnot submitted: 1 cell in 1 task\n"), "{}", said.out);
    let complaint = said.complaint(7);
    assert!(complaint.contains("QOSMaxSubmitJobPerUserLimit (`ledger submit --resume 2"), "{complaint}");
    slurm.await_states(&["finished", "finished", "lost"]);
    slurm.take("refuse");
    let resumed = slurm.json(&["submit", "--resume", "--wait"], 0);
    assert_eq!(resumed["jobs"], json!([{"job": "2", "tasks": 1}]));
    assert_eq!(slurm.sandbox.outcomes(), ["finished"; 3]);
}

#[test]
fn one_submission_that_cannot_be_read_keeps_back_no_other() {
    let slurm = Scripted::new();
    slurm.sandbox.sweep_manifest(WORKER, "1", "1");
    slurm.json(&["submit", "m.toml"], 0);
    slurm.await_states(&["finished"]);
    let result = slurm.file(".finished.ledger");
    fs::write(slurm.file("submission.json"), "{").unwrap();
    slurm.sandbox.sweep_manifest(WORKER, "2", "1");
    slurm.json(&["submit", "m.toml"], 0);
    slurm.sandbox.wait_for("the result", || slurm.ledger(&["status"]).expect(1).contains("1 cell: 1 finished"));
    for args in [&["status"][..], &["collect"]] {
        let said = slurm.ledger(args);
        assert!(said.err.contains("submission.json` is not a record of a submission: "), "{}", said.err);
        assert!(said.err.contains("`ledger import` reads the files in its `out`"), "{}", said.err);
        assert!(said.expect(1).contains("finished"), "of the other one all is told");
    }
    assert_eq!(slurm.sandbox.outcomes().len(), 1);
    slurm.json(&["import", result.to_str().unwrap()], 0);
    assert_eq!(slurm.sandbox.outcomes().len(), 2);
    assert_eq!(slurm.json(&["submit", "m.toml"], 0)["sealed"], 1);
}

#[test]
fn nothing_is_handed_over_beside_a_submission_that_only_cannot_be_read_now() {
    let slurm = Scripted::new();
    slurm.put("hold", "");
    slurm.sandbox.sweep_manifest(WORKER, "1", "1");
    slurm.json(&["submit", "m.toml"], 0);
    let record = slurm.file("submission.json");
    let text = fs::read_to_string(&record).unwrap();
    assert!(text.contains("\"format\": 1"), "{text}");
    fs::write(&record, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
    let complaint = slurm.ledger(&["submit", "m.toml"]).complaint(3);
    assert!(complaint.contains("submission.json` has format 2, but this ledger reads up to 1"), "{complaint}");
    slurm.ledger(&["status"]).expect(1);
    fs::write(&record, text).unwrap();
    let job = record.with_file_name("jobs").join("1.json");
    let text = fs::read_to_string(&job).unwrap();
    fs::remove_file(&job).unwrap();
    fs::create_dir(&job).unwrap();
    let complaint = slurm.ledger(&["submit", "m.toml"]).complaint(3);
    assert!(complaint.contains("the cells of this submission are unknown: try again"), "{complaint}");
    fs::remove_dir(&job).unwrap();
    fs::write(&job, text).unwrap();
    assert_eq!(slurm.json(&["submit", "m.toml"], 0)["under_way"], 1);
}

#[test]
fn tasks_have_the_users_environment_and_write_into_their_logs() {
    let slurm = Scripted::new();
    slurm.sandbox.sweep_manifest(WORKER, "1", "1");
    let mut command = slurm.command(&["submit", "m.toml"]);
    command.env("LC_ALL", "C.UTF-8").env("SBATCH_ERROR", "/dev/null").env("SBATCH_OUTPUT", "/dev/null");
    Said::new(command.output().unwrap()).expect(0);
    let environment = fs::read_to_string(slurm.sandbox.path("slurm/env")).unwrap();
    assert!(environment.lines().any(|line| line == "LC_ALL=C.UTF-8"), "{environment}");
    assert!(!environment.contains("SBATCH_"), "{environment}");
    slurm.await_states(&["finished"]);
}

#[test]
fn what_becomes_of_the_repository_refuses_no_task_and_a_changed_file_does() {
    let slurm = Scripted::new();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=n", "-c", "user.email=e@e", "-C"]).arg(slurm.sandbox.path(".")).args(args);
        assert!(command.output().unwrap().status.success(), "{args:?}");
    };
    let manifest = slurm.sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    git(&["init", "-q"]);
    git(&["add", "m.toml", "worker.sh"]);
    git(&["commit", "-qm", "one"]);
    slurm.put("hold", "");
    slurm.json(&["submit", "m.toml"], 0);
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, format!("{text}# the next sweep\n")).unwrap();
    slurm.take("hold");
    slurm.await_states(&["finished"; 2]);
    slurm.json(&["collect"], 0);

    // A node without git, or one on which git does not trust the folder. What the repository has changed makes no other run.
    assert_eq!(slurm.json(&["submit", "m.toml", "--dry-run"], 0)["sealed"], 2);
    slurm.put("hold", "");
    slurm.json(&["submit", "m.toml", "--repeat", "1"], 0);
    let stub = slurm.sandbox.write("bin/git", "#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n");
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
    slurm.take("hold");
    slurm.await_states(&["finished"; 2]);
    fs::remove_file(stub).unwrap();
    slurm.json(&["collect"], 0);
    assert_eq!(slurm.sandbox.outcomes(), ["finished"; 4]);
    let shown = slurm.json(&["show", "latest"], 0);
    let facts = &shown["attempts"][0]["facts"];
    assert!(facts["git.commit"].is_string() && facts["git.patch"].is_string(), "{facts}");
    assert!(shown["parts"]["program"]["value"]["git_commit"].is_null(), "commits are recorded and not hashed");
    // What was seen of it on the nodes is recorded.
    assert_eq!(shown["attempts"][0]["facts"]["slurm.git.commit"], "git does not report it on the node");
    let first = slurm.json(&["show", "latest~3"], 0);
    let facts = &first["attempts"][0]["facts"];
    assert_eq!(facts["slurm.git.commit"], facts["git.commit"]);
    assert!(facts["slurm.git.patch"].is_string(), "{facts}");

    slurm.put("hold", "");
    slurm.json(&["submit", "m.toml", "--repeat", "1"], 0);
    slurm.sandbox.write("worker.sh", format!("{WORKER}\n# another program\n"));
    slurm.take("hold");
    slurm.await_states(&["refused"; 2]);
    let document = slurm.json(&["status", "--all"], 0);
    let newest = document["submissions"].as_array().unwrap().last().unwrap();
    let expected = "its program changed after it was submitted, by `worker.sh` (submit it again)";
    assert_eq!(newest["cells"][0]["reason"], expected);
}

#[test]
fn a_dry_run_leaves_out_what_is_under_way_or_has_not_come_home() {
    let slurm = Scripted::new();
    slurm.put("hold", "");
    slurm.sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    slurm.json(&["submit", "m.toml"], 0);
    let planned = || {
        let document = slurm.json(&["submit", "m.toml", "--dry-run"], 0);
        (document["arrays"].as_array().unwrap().len(), document["under_way"].clone(), document["sealed"].clone())
    };
    assert_eq!(planned(), (0, 3.into(), 0.into()));
    let waited = slurm.json(&["submit", "m.toml", "--dry-run", "--wait"], 0);
    assert_eq!(waited["under_way"], 3, "a dry run waits for nothing");
    slurm.put("deaf", "");
    let said = slurm.ledger(&["submit", "m.toml", "--dry-run"]);
    assert!(said.err.contains("the state of the cluster's tasks is unknown"), "{}", said.err);
    slurm.take("deaf");
    slurm.take("hold");
    slurm.await_states(&["finished"; 3]);
    assert_eq!(planned(), (0, 3.into(), 0.into()));
    slurm.json(&["collect"], 0);
    assert_eq!(planned(), (0, 0.into(), 3.into()));
}

#[test]
fn what_a_killed_task_left_is_named_with_the_way_to_seal_it() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("left/journal")).unwrap();
    sandbox.write("left/journal/0123456789abcdef-00.journal", "");
    let said = sandbox.run(&["merge", "left"]).complaint(2);
    assert!(said.contains("no ledger at `left`, but 1 attempt not sealed yet (`ledger --ledger left ls`"), "{said}");
}

#[test]
fn a_site_is_a_plain_name() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    for name in ["", "../sites/here", "a/b"] {
        let said = sandbox.run(&["submit", "m.toml", "--dry-run", "--site", name]).complaint(2);
        assert!(said.contains(&format!("`{name}` is not a site's name")), "{said}");
    }
    let usage = sandbox.run(&["submit"]).complaint(2);
    assert!(
        usage.contains("Usage: ledger submit [OPTIONS] <MANIFEST>\n       ledger submit --resume [<JOB>]"),
        "{usage}"
    );
}
