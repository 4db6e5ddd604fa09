//! Slurm's commands and the parsing of their output.
//!
//! They print lines of fields, which all versions since 20.02 format alike. The JSON output changes between versions.

use super::ClusterError;
use crate::host::command::{self, CommandError, Said};
use crate::host::owner;
use crate::record::Exit;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The timeout of a command. Slurm's commands try for a minute to reach an absent controller.
const PATIENCE: Duration = Duration::from_secs(90);
/// The timeout of a query for a dispensable value during an attempt.
const SHORT: Duration = Duration::from_secs(5);
/// The maximum array size if the site does not report one (Slurm's default `MaxArraySize` is 1001).
const USUAL_TASKS: u32 = 1001;

/// Environment variables that take precedence over the script in sbatch, each with the script option that it overrides.
const OVERRIDES: &[(&str, &str)] = &[
    ("--array", "SBATCH_ARRAY_INX"),
    ("--job-name", "SBATCH_JOB_NAME"),
    ("--open-mode", "SBATCH_OPEN_MODE"),
    ("--output", "SBATCH_OUTPUT"),
    // Would redirect the task's stderr away from its log.
    ("--output", "SBATCH_ERROR"),
    ("--signal", "SBATCH_SIGNAL"),
    ("--requeue", "SBATCH_NO_REQUEUE"),
    ("--no-requeue", "SBATCH_REQUEUE"),
    ("--partition", "SBATCH_PARTITION"),
    ("--account", "SBATCH_ACCOUNT"),
    ("--qos", "SBATCH_QOS"),
    ("--constraint", "SBATCH_CONSTRAINT"),
    ("--time", "SBATCH_TIMELIMIT"),
    ("--mem", "SBATCH_MEM_PER_NODE"),
    ("--mem", "SBATCH_MEM_PER_CPU"),
    ("--mem", "SBATCH_MEM_PER_GPU"),
    ("--gres", "SBATCH_GRES"),
    ("--gres", "SBATCH_GPUS"),
    ("--gres", "SBATCH_GPUS_PER_NODE"),
    ("--gres", "SBATCH_GPUS_PER_TASK"),
];
/// Would make sbatch wait for the job, or submit to a cluster that ledger does not query.
const NEVER: [&str; 2] = ["SBATCH_WAIT", "SBATCH_CLUSTERS"];

/// Environment variables that would hide jobs from squeue.
const HIDES: &[&str] = &[
    "SQUEUE_ACCOUNT",
    "SQUEUE_LICENSES",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_QOS",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
];

/// A task of a job array: the array's job and the task's number.
pub type TaskId = (String, u32);

/// A Slurm job id.
pub type Job = String;

/// A cluster's name and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The cluster's name.
    pub cluster: String,
    /// The maximum number of tasks of an array.
    pub tasks: u32,
}

impl Limits {
    /// Returns the defaults for a cluster that cannot be queried.
    pub fn usual() -> Self {
        Self { cluster: "cluster".to_owned(), tasks: USUAL_TASKS }
    }
}

/// The scheduling phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is pending, for the first time or again.
    Waiting,
    /// It has a node.
    Running,
    /// It has ended and will not run again.
    Over,
}

/// Slurm's report about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its phase.
    pub fate: Fate,
    /// Slurm's name of its state.
    pub state: String,
    /// Its node, if it has or had one.
    pub node: String,
    /// Slurm's reason why it is pending, or empty.
    pub reason: String,
}

/// Slurm's reports about the tasks of some jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    jobs: BTreeSet<Job>,
    tasks: BTreeMap<TaskId, Seen>,
}

impl Answer {
    /// Creates an answer from the queried jobs and the reports about their tasks.
    pub fn new(jobs: impl IntoIterator<Item = Job>, tasks: BTreeMap<TaskId, Seen>) -> Self {
        Self { jobs: jobs.into_iter().collect(), tasks }
    }

    /// Returns `None` if Slurm was not queried about that job, and `Some(None)` if it has forgotten the task.
    pub fn of(&self, job: &str, task: u32) -> Option<Option<&Seen>> {
        self.jobs.contains(job).then(|| self.tasks.get(&(job.to_owned(), task)))
    }
}

/// Slurm, through its commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slurm;

impl Slurm {
    fn ask(program: &'static str, arguments: &[&str]) -> Result<Said, ClusterError> {
        Ok(command::ask(program, arguments, Path::new("/"), &[], PATIENCE)?)
    }

    /// Queries the cluster's name and limits.
    ///
    /// # Errors
    /// If `scontrol` is not there or does not answer.
    pub fn limits(self) -> Result<Limits, ClusterError> {
        let said = Self::ask("scontrol", &["show", "config"])?;
        if !said.is_success() {
            return Err(refused("scontrol", &said));
        }
        let value = |name: &str| {
            let line = said.out.lines().find_map(|line| line.trim_start().strip_prefix(name));
            line.and_then(|rest| rest.trim_start().strip_prefix('=')).map(|rest| rest.trim().to_owned())
        };
        let usual = Limits::usual();
        Ok(Limits {
            cluster: value("ClusterName").unwrap_or(usual.cluster),
            tasks: value("MaxArraySize").and_then(|size| size.parse().ok()).unwrap_or(usual.tasks).max(1),
        })
    }

    /// Submits the script of an array from its folder, for all tasks or for the given range.
    ///
    /// # Errors
    /// If `sbatch` refuses, or its answer leaves open whether there is a job.
    pub fn submit(self, script: &Path, tasks: Option<&str>) -> Result<Job, ClusterError> {
        let text = script.display().to_string();
        let array = tasks.map(|tasks| format!("--array={tasks}"));
        let arguments: Vec<&str> = ["--parsable"].into_iter().chain(array.as_deref()).chain([text.as_str()]).collect();
        let folder = script.parent().unwrap_or(Path::new("/"));
        let without = overriding(&std::fs::read_to_string(script).map_err(super::io_error("read", script))?);
        let said = command::instruct("sbatch", &arguments, folder, &without, PATIENCE)?;
        number(&said)
    }

    /// Queries the tasks of these jobs. Tasks that Slurm has forgotten are left out.
    ///
    /// # Errors
    /// If `squeue` is not there or does not answer.
    pub fn tasks(self, jobs: &[&str]) -> Result<Answer, ClusterError> {
        if jobs.is_empty() {
            return Ok(Answer::default());
        }
        let list = jobs.join(",");
        let fields = ["-h", "-r", "-t", "all", "-j", &list, "-o", "%F|%K|%T|%N|%r"];
        let said = command::ask("squeue", &fields, Path::new("/"), HIDES, PATIENCE)?;
        let mut found = if said.is_success() {
            read_queue(&said.out)
        } else if said.err.contains("Invalid job id") {
            BTreeMap::new()
        } else {
            return Err(refused("squeue", &said));
        };
        // squeue forgets a job minutes after its end. Without accounting, no other command knows it.
        match Self::ask("sacct", &["-n", "-P", "-X", "-j", &list, "-o", "JobID,State,NodeList"]) {
            Ok(said) if said.is_success() => {
                for (task, seen) in read_accounts(&said.out) {
                    found.entry(task).or_insert(seen);
                }
            }
            Ok(_) | Err(ClusterError::Command(CommandError::Absent(_))) => {}
            Err(error) => return Err(error),
        }
        Ok(Answer::new(jobs.iter().map(|job| (*job).to_owned()), found))
    }

    /// Returns the script and the tasks of each of this user's jobs that Slurm still knows.
    ///
    /// # Errors
    /// If `squeue` is not there or does not answer.
    pub fn scripts(self) -> Result<BTreeMap<Job, (String, Vec<u32>)>, ClusterError> {
        let user = owner::user_id().to_string();
        // The command is last, because it is free text that may contain a `|`.
        let fields = ["-h", "-r", "-t", "all", "-u", &user, "-o", "%F|%K|%o"];
        let said = command::ask("squeue", &fields, Path::new("/"), HIDES, PATIENCE)?;
        if said.is_success() { Ok(read_scripts(&said.out)) } else { Err(refused("squeue", &said)) }
    }

    /// Returns the energy in joules of a running job's batch step by Slurm's own counter, or `None` without one.
    pub fn energy_j(self, job: &str) -> Option<i64> {
        let step = format!("{job}.batch");
        let fields = ["-n", "-P", "-a", "--noconvert", "-j", &step, "-o", "ConsumedEnergyRaw"];
        let said = command::ask("sstat", &fields, Path::new("/"), &[], SHORT).ok()?;
        let joules = said.out.lines().next()?.trim().parse().ok()?;
        // Clusters without a counter report 0.
        (joules > 0).then_some(joules)
    }
}

/// Parses the job id in sbatch's output.
fn number(said: &Said) -> Result<Job, ClusterError> {
    let unanswered = || ClusterError::Unanswered { said: said.complaint().to_owned() };
    match &said.exit {
        Exit::Code(0) => {
            // With several clusters, `;` and the cluster's name follow.
            let job = said.out.lines().last().unwrap_or_default().split(';').next().unwrap_or_default().trim();
            let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { Ok(job.to_owned()) } else { Err(unanswered()) }
        }
        // The controller had received the script, but its answer was lost.
        Exit::Code(_) if ["timed out", "zero bytes"].iter().any(|words| said.err.to_lowercase().contains(words)) => {
            Err(unanswered())
        }
        Exit::Code(_) => Err(refused("sbatch", said)),
        _ => Err(unanswered()),
    }
}

/// Returns the environment variables that would override the script's options in sbatch.
fn overriding(script: &str) -> Vec<&'static str> {
    let options: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("#SBATCH ")).collect();
    let says = |option: &str| options.iter().any(|said| said.split('=').next() == Some(option));
    let named = OVERRIDES.iter().filter(|(option, _)| says(option)).map(|(_, variable)| *variable);
    named.chain(NEVER).collect()
}

fn refused(command: &'static str, said: &Said) -> ClusterError {
    let words = said.complaint().trim_start_matches(command).trim_start_matches(": ");
    ClusterError::Refused { command, said: words.trim_start_matches("error: ").to_owned() }
}

/// Slurm's states of jobs that will not run again. All other jobs are pending or running.
const OVER: [&str; 12] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REVOKED",
    "TIMEOUT",
];
const RUNNING: [&str; 7] = ["RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"];

fn fate(state: &str) -> Fate {
    if OVER.contains(&state) {
        Fate::Over
    } else if RUNNING.contains(&state) {
        Fate::Running
    } else {
        Fate::Waiting
    }
}

fn read_queue(text: &str) -> BTreeMap<TaskId, Seen> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        let [job, task, state, node, reason] = fields.as_slice() else { return None };
        // A job that is not an array has no number here.
        let task = task.trim().parse().unwrap_or(0);
        let reason = if *reason == "None" { "" } else { *reason };
        let seen =
            Seen { fate: fate(state), state: (*state).to_owned(), node: (*node).to_owned(), reason: reason.to_owned() };
        Some((((*job).trim().to_owned(), task), seen))
    };
    text.lines().filter_map(line).collect()
}

fn read_scripts(text: &str) -> BTreeMap<Job, (String, Vec<u32>)> {
    let mut found: BTreeMap<Job, (String, Vec<u32>)> = BTreeMap::new();
    for line in text.lines() {
        let [Some(job), Some(task), Some(script)] = std::array::from_fn({
            let mut fields = line.splitn(3, '|');
            move |_| fields.next().map(str::trim)
        }) else {
            continue;
        };
        let known = found.entry(job.to_owned()).or_insert_with(|| (script.to_owned(), Vec::new()));
        known.1.extend(task.parse::<u32>().ok());
    }
    found
}

/// Parses `12_3|CANCELLED by 1000|n1`, one line per task that has started or ended.
fn read_accounts(text: &str) -> BTreeMap<TaskId, Seen> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('|').collect();
        let [id, state, node] = fields.as_slice() else { return None };
        let (job, task) = id.split_once('_').unwrap_or((id, "0"));
        let task = task.parse().ok()?;
        let state = state.split(' ').next().unwrap_or_default();
        let node = if *node == "None assigned" { "" } else { *node };
        let seen = Seen { fate: fate(state), state: state.to_owned(), node: node.to_owned(), reason: String::new() };
        Some(((job.to_owned(), task), seen))
    };
    text.lines().filter_map(line).collect()
}

/// Formats numbers in sbatch's syntax for `--array`: `0-2,5`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let mut sorted: Vec<u32> = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut out: Vec<String> = Vec::new();
    for run in sorted.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [one] => out.push(one.to_string()),
            [first, .., last] => out.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    out.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_read() {
        let text =
            "3|0|PENDING||JobHeldUser\n3|7|RUNNING|n1|None\n3|8|COMPLETING|n2|None\n4|N/A|NODE_FAIL|n2|NodeDown\n";
        let found = read_queue(text);
        let told = |job: &str, task: u32| {
            let seen = &found[&(job.to_owned(), task)];
            (seen.fate, seen.node.as_str(), seen.reason.as_str())
        };
        assert_eq!(told("3", 0), (Fate::Waiting, "", "JobHeldUser"));
        assert_eq!(told("3", 7), (Fate::Running, "n1", ""));
        assert_eq!(told("3", 8), (Fate::Running, "n2", ""));
        assert_eq!(told("4", 0), (Fate::Over, "n2", "NodeDown"));
        assert_eq!(fate("REQUEUE_HOLD"), Fate::Waiting);
        assert!(read_queue("slurm_load_jobs error\n").is_empty());
    }

    #[test]
    fn scripts_of_jobs_are_read() {
        let found = read_scripts("3|0|/s/array-0.sh\n3|7|/s/array-0.sh\n4|N/A|echo a|b\nerror\n");
        assert_eq!(found["3"], ("/s/array-0.sh".to_owned(), vec![0, 7]));
        assert_eq!((found["4"].clone(), found.len()), (("echo a|b".to_owned(), vec![]), 2));
    }

    #[test]
    fn the_accounts_are_read() {
        let text = "12_3|CANCELLED by 1000|n1\n12_4|COMPLETED|n2\n12_[5-9%2]|PENDING|None assigned\n13|TIMEOUT|n1\n";
        let found = read_accounts(text);
        assert_eq!(found.len(), 3, "tasks that were never started are the queue's");
        assert_eq!(found[&("12".to_owned(), 3)].state, "CANCELLED");
        assert_eq!(found[&("12".to_owned(), 4)].fate, Fate::Over);
        assert_eq!(found[&("13".to_owned(), 0)].node, "n1");
    }

    #[test]
    fn variables_that_override_the_script_are_removed() {
        let script = "#!/bin/bash\n#SBATCH --partition=gpu\n#SBATCH --requeue\n\necho --time=5\n";
        assert_eq!(overriding(script), ["SBATCH_NO_REQUEUE", "SBATCH_PARTITION", "SBATCH_WAIT", "SBATCH_CLUSTERS"]);
        let script = "#SBATCH --output=/logs/%A_%a.log\n";
        assert_eq!(overriding(script), ["SBATCH_OUTPUT", "SBATCH_ERROR", "SBATCH_WAIT", "SBATCH_CLUSTERS"]);
    }

    #[test]
    fn a_submission_with_a_lost_answer_is_not_a_refusal() {
        let of = |exit: Exit, out: &str, err: &str| number(&Said { out: out.to_owned(), err: err.to_owned(), exit });
        assert_eq!(of(Exit::Code(0), "note\n12;there\n", "").unwrap(), "12");
        let late = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n";
        let unread = "sbatch: a note\nsbatch: error: Zero Bytes were transmitted or received\n";
        for (exit, out, err) in [
            (Exit::Code(1), "", late),
            (Exit::Code(1), "", unread),
            (Exit::Code(0), "Submitted batch job\n", ""),
            (Exit::Code(0), "", ""),
            (Exit::Signal(9), "", ""),
        ] {
            let error = of(exit, out, err).unwrap_err();
            assert!(matches!(error, ClusterError::Unanswered { .. }), "{error}");
        }
        let no = of(Exit::Code(1), "", "sbatch: error: invalid partition specified: x\n").unwrap_err();
        assert_eq!(no.to_string(), "`sbatch` refused: invalid partition specified: x");
    }

    #[test]
    fn numbers_are_formatted_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 9, 8, 9]), "0-2,5,8-9");
        assert_eq!(ranges(&[]), "");
    }
}
