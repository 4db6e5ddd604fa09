//! A place of its own for a test: a folder, a ledger, a cleared environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A folder that is gone after the test.
pub struct Sandbox {
    dir: tempfile::TempDir,
    program: PathBuf,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Said {
    pub fn new(output: Output) -> Self {
        Self {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }

    /// The output of a command that has to end with that code.
    pub fn expect(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self.out
    }

    /// The complaint of a command that has to end with that code.
    pub fn complaint(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

/// A worker in the shell: two epochs of three steps with a loss that follows from `x` and the seed.
pub const WORKER: &str = r#"
x=$1; seed=$2
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":6,"epochs":2,"samples_per_step":4}'
for epoch in 1 2; do
  say "{\"event\":\"phase_start\",\"name\":\"epoch\",\"index\":$epoch}"
  for i in 1 2 3; do
    step=$((3 * (epoch - 1) + i))
    say "{\"event\":\"step\",\"step\":$step,\"duration_ns\":1000000,\"values\":{\"loss\":$((100 * x + 10 * seed - step))}}"
  done
  say "{\"event\":\"phase_stop\",\"name\":\"epoch\",\"index\":$epoch}"
done
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.$x$seed}"
"#;

impl Sandbox {
    pub fn new() -> Self {
        Self::of(env!("CARGO_BIN_EXE_ledger").into())
    }

    /// The same for a program of that path.
    pub fn of(program: PathBuf) -> Self {
        let sandbox = Self { dir: tempfile::tempdir().unwrap(), program };
        fs::create_dir(sandbox.path("home")).unwrap();
        sandbox
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn ledger_dir(&self) -> PathBuf {
        self.path("ledger")
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Writes `m.toml`: the shell worker over these values of `x`, with these seeds.
    pub fn sweep_manifest(&self, script: &str, x: &str, seeds: &str) -> PathBuf {
        self.write("worker.sh", script);
        self.write(
            "m.toml",
            format!(
                "name = \"toy\"\nseed = {seeds}\n[model]\nname = \"toy\"\n\
                 [program]\ncommand = [\"sh\", \"worker.sh\", \"{{x}}\", \"{{seed}}\"]\n\
                 [params]\nx = {x}\n[hardware]\ndevice = \"cpu\"\n"
            ),
        )
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            // The sum of this program is computed once for all tests.
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env("LEDGER_DIR", self.ledger_dir())
            .env("LEDGER_RESTORE", self.path("restore"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Said {
        Said::new(self.command(args).output().unwrap())
    }

    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn finish(child: Child) -> Said {
        Said::new(child.wait_with_output().unwrap())
    }

    /// A run whose supervisor was killed after the worker's first step.
    pub fn abandoned_run(&self, x: &str) {
        let script = r#"echo '{"event":"step","step":1,"values":{"loss":5}}' >> "$LEDGER_EVENTS"; sleep 0.2; touch started; exec sleep 60"#;
        self.sweep_manifest(script, x, "1");
        let mut child = self.start(&["run", "m.toml"]);
        self.wait_for("the worker's start", || self.path("started").exists());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The document that a command prints with `--json`.
    pub fn json(&self, args: &[&str], code: i32) -> serde_json::Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let document: serde_json::Value = serde_json::from_str(&self.run(&args).expect(code)).unwrap();
        assert_eq!(document["format"], 1);
        document
    }

    /// The outcomes of all attempts, newest first.
    pub fn outcomes(&self) -> Vec<String> {
        let document = self.json(&["ls", "--all"], 0);
        let attempts = document["attempts"].as_array().unwrap();
        attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap().to_owned()).collect()
    }

    /// Nothing waits to be sealed, and nothing else lies about.
    pub fn journals(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.ledger_dir().join("journal")) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.file_name() != Some(".lock".as_ref())).collect()
    }

    pub fn wait_for(&self, what: &str, mut there: impl FnMut() -> bool) {
        for _ in 0..2000 {
            if there() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{what} did not come");
    }
}

/// Name and number of points of each series that the worker reported.
pub fn curves(attempt: &serde_json::Value) -> Vec<(&str, i64)> {
    let series = attempt["series"].as_array().unwrap().iter().filter(|series| series["axis"] == "step");
    series.map(|series| (series["name"].as_str().unwrap(), series["len"].as_i64().unwrap())).collect()
}

/// Sends a signal to a process.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
