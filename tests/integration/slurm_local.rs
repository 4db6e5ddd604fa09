//! A real Slurm for a test: two virtual nodes on this machine, bound to loopback, ended with the test.

use crate::sandbox::{Said, Sandbox, repository};
use serde_json::Value;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Clusters at once: a test mostly waits, but the machine is small.
const AT_ONCE: usize = 3;
/// How long something may take to come about.
const PATIENCE: Duration = Duration::from_secs(90);

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A cluster and a sandbox whose commands are its clients.
pub struct Cluster {
    pub sandbox: Sandbox,
    tool: PathBuf,
    dir: PathBuf,
}

/// The script that starts one.
fn tool() -> PathBuf {
    repository("tests/tools/slurm-local")
}

/// Says something that is seen of tests that pass, too.
fn tell(text: &str) {
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_installed(programs: &[&str]) -> bool {
    let there = |program: &&str| ["/usr/bin", "/usr/sbin"].iter().any(|dir| PathBuf::from(dir).join(program).is_file());
    programs.iter().all(there)
}

impl Cluster {
    /// Starts one with these options; none where there is no Slurm, and then it says so.
    pub fn start(options: &[&str]) -> Option<Self> {
        let tool = tool();
        let mut programs = vec!["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol"];
        if options.contains(&"--accounting") {
            programs.extend(["slurmdbd", "mariadbd", "sacct"]);
        }
        if !is_installed(&programs) {
            tell(&format!("skipped: no Slurm here (`{} install` installs it)", tool.display()));
            return None;
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        while *running >= AT_ONCE {
            running = ENDED.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
        *running += 1;
        drop(running);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ledger-slurm-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst));
        // Slurm's sockets lie in it, and their paths are short.
        let cluster = Self { sandbox: Sandbox::new(), tool, dir: PathBuf::from("/tmp").join(name) };
        let output = cluster.tool(&[&["start"], options].concat()).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "Slurm does not start: {said}");
        Some(cluster)
    }

    fn tool(&self, arguments: &[&str]) -> io::Result<Output> {
        Command::new(&self.tool).args(arguments).env("LOCAL_SLURM_DIR", &self.dir).output()
    }

    /// Waits for something that a task on a node does: Slurm takes its time to start one.
    pub fn wait_for(&self, what: &str, mut there: impl FnMut() -> bool) {
        let since = Instant::now();
        while !there() {
            let queue = || self.slurm("squeue", &["-t", "all"]);
            assert!(since.elapsed() < PATIENCE, "{what} did not come\n{}", queue());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A command of ledger's.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(args);
        command.env("SLURM_CONF", self.dir.join("slurm.conf"));
        command
    }

    pub fn ledger(&self, args: &[&str]) -> Said {
        Said::new(self.command(args).output().unwrap())
    }

    /// The document that a command prints.
    pub fn json(&self, args: &[&str], code: i32) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ledger(&args).expect(code)).unwrap()
    }

    /// A command of Slurm's that has to succeed.
    pub fn slurm(&self, program: &str, args: &[&str]) -> String {
        let output = Command::new(program).args(args).env("SLURM_CONF", self.dir.join("slurm.conf")).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Submits `m.toml`, and gives the number of its only job.
    pub fn submit(&self, options: &[&str]) -> String {
        let document = self.json(&[&["submit", "m.toml"], options].concat(), 0);
        let arrays = document["arrays"].as_array().unwrap();
        assert_eq!(arrays.len(), 1, "{document}");
        arrays[0]["job"].as_str().unwrap().to_owned()
    }

    /// State and reason of each cell of the newest submission.
    pub fn states(&self) -> Vec<(String, String)> {
        let document = self.json(&["status", "--all"], 0);
        let newest = document["submissions"].as_array().unwrap().last().unwrap();
        let text = |cell: &Value, name: &str| cell[name].as_str().unwrap_or_default().to_owned();
        let cells = newest["cells"].as_array().unwrap().iter();
        cells.map(|cell| (text(cell, "state"), text(cell, "reason"))).collect()
    }

    /// Waits until the cells of the newest submission are in these states.
    pub fn await_states(&self, expected: &[&str]) {
        let since = Instant::now();
        loop {
            let states = self.states();
            if states.iter().map(|(state, _)| state.as_str()).eq(expected.iter().copied()) {
                return;
            }
            let queue = || self.slurm("squeue", &["-t", "all"]);
            assert!(since.elapsed() < PATIENCE, "{expected:?} did not come: {states:?}\n{}", queue());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Brings everything home that there is, dead tasks' journals too.
    pub fn collect(&self) -> Vec<Value> {
        let document = self.json(&["collect", "--patience", "0"], 0);
        document["collected"].as_array().unwrap().clone()
    }

    /// The attempts in the ledger, oldest first.
    pub fn attempts(&self) -> Vec<Value> {
        let document = self.json(&["ls", "--all"], 0);
        let ids = document["attempts"].as_array().unwrap().iter().rev();
        let show = |id: &Value| self.json(&["show", id.as_str().unwrap()], 0)["attempts"][0].clone();
        ids.map(|row| show(&row["attempt"])).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = self.sandbox.ledger_dir().join("slurm");
            // Another panic would end the whole process, and the other clusters would stay.
            if let Ok(found) = Command::new("grep").args(["-rh", "", "--include=*.log"]).arg(&logs).output() {
                tell(&format!("what the tasks printed:\n{}", String::from_utf8_lossy(&found.stdout)));
            }
        }
        let output = self.tool(&["stop"]);
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
        if !std::thread::panicking() {
            let output = output.unwrap();
            assert!(output.status.success(), "Slurm does not stop: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
