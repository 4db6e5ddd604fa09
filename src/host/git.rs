//! The state of a directory's git repository, asked of `git` itself.

use super::environment;
use crate::record::{Digest, DigestWriter, Table, Value};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A repository on a slow network file system may take seconds; a hung one must not hold a run up for long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Facts of the repository that a directory lies in.
///
/// - `git.state`: `clean`, `dirty`, or why nothing is known (no git, no repository, too slow, git's own words);
/// - `git.commit`, `git.branch`: absent before the first commit and on a detached head;
/// - `git.untracked`: how many files and directories git neither tracks nor ignores; `git.untracked_names`: the first hundred of them;
/// - `git.patch`: the digest of `git diff HEAD` in a fixed form, where the state is dirty.
///
/// Untracked files alone leave the state clean. Nothing is written into the repository and no hook is run.
pub fn facts(directory: &Path) -> Table {
    match environment::which("git") {
        Some(git) => facts_by(git.as_os_str(), directory, TIMEOUT),
        None => said("git is not installed"),
    }
}

/// Every option that a user's configuration could change is spelled out: one change has one digest everywhere.
const DIFF: &[&str] = &[
    "diff",
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--ignore-submodules=none",
    "--submodule=short",
    "HEAD",
];

/// Why a patch is not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is too long to be kept.
    #[error("it has more than {} MiB", .0 >> 20)]
    Long(usize),
    /// The repository is not in the state any more whose patch has that digest.
    #[error("the repository was changed meanwhile")]
    Changed,
    /// Git gives none.
    #[error("git did not tell it")]
    Silent,
}

/// The patch whose digest [`facts`] tells.
///
/// # Errors
/// If it has more than `most` bytes, or is another one by now.
pub fn patch(directory: &Path, digest: Digest, most: usize) -> Result<Vec<u8>, PatchError> {
    let git = environment::which("git").ok_or(PatchError::Silent)?;
    let answer = ask(git.as_os_str(), directory, DIFF, TIMEOUT, most.saturating_add(1));
    let answer = answer.ok().filter(|answer| answer.status.success()).ok_or(PatchError::Silent)?;
    if answer.writer.finish() != digest {
        Err(PatchError::Changed)
    } else if answer.head.len() > most {
        Err(PatchError::Long(most))
    } else {
        Ok(answer.head)
    }
}

fn said(state: &str) -> Table {
    [("git.state".to_owned(), Value::from(state))].into()
}

fn facts_by(git: &OsStr, directory: &Path, timeout: Duration) -> Table {
    let status = [
        "status",
        "--porcelain=v2",
        "--branch",
        "--untracked-files=normal",
        "--ignore-submodules=none",
        "--no-renames",
        "-z",
    ];
    let listed = match ask(git, directory, &status, timeout, 1 << 26) {
        Ok(answer) if answer.status.success() => parse_status(&answer.head),
        Ok(answer) => return said(&refusal(&answer.errors)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return said("git did not answer in time"),
        Err(error) => return said(&format!("git cannot be started: {error}")),
    };
    let mut table = said(if listed.changed { "dirty" } else { "clean" });
    let mut put = |name: &str, value: Value| table.insert(name.to_owned(), value);
    put("git.untracked", listed.untracked.into());
    if !listed.names.is_empty() {
        put("git.untracked_names", listed.names.into());
    }
    if let Some(branch) = listed.branch {
        put("git.branch", branch.into());
    }
    if let Some(commit) = listed.commit {
        put("git.commit", commit.into());
        let patch = if listed.changed { ask(git, directory, DIFF, timeout, 0).ok() } else { None };
        if let Some(patch) = patch.filter(|patch| patch.status.success()) {
            put("git.patch", patch.writer.finish().to_string().into());
        }
    }
    table
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    commit: Option<String>,
    branch: Option<String>,
    changed: bool,
    untracked: usize,
    names: Vec<String>,
}

/// No more names of untracked files are kept.
const MOST_NAMES: usize = 100;

/// Reads the format of git-status(1), "Porcelain Format Version 2", with entries ended by NUL.
fn parse_status(output: &[u8]) -> Listed {
    let mut listed = Listed::default();
    for entry in output.split(|byte| *byte == 0) {
        let text = String::from_utf8_lossy(entry);
        if let Some(commit) = text.strip_prefix("# branch.oid ") {
            listed.commit = Some(commit.to_owned()).filter(|commit| commit != "(initial)");
        } else if let Some(branch) = text.strip_prefix("# branch.head ") {
            listed.branch = Some(branch.to_owned()).filter(|branch| branch != "(detached)");
        } else if let Some(name) = text.strip_prefix("? ") {
            listed.untracked += 1;
            if listed.names.len() < MOST_NAMES {
                listed.names.push(name.chars().take(200).collect());
            }
        } else if ["1 ", "2 ", "u "].iter().any(|kind| text.starts_with(kind)) {
            listed.changed = true;
        }
    }
    listed
}

fn refusal(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("git refused without a word");
    let line = line.strip_prefix("fatal: ").unwrap_or(line);
    if line.starts_with("not a git repository") { "not in a git repository".to_owned() } else { line.to_owned() }
}

struct Answer {
    status: ExitStatus,
    /// The beginning of the output.
    head: Vec<u8>,
    /// The digest of all of the output.
    writer: DigestWriter,
    errors: Vec<u8>,
}

fn ask(git: &OsStr, directory: &Path, arguments: &[&str], timeout: Duration, keep: usize) -> io::Result<Answer> {
    let mut command = Command::new(git);
    command.args([
        "--no-optional-locks",
        "--no-pager",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.quotePath=true",
        "-C",
    ]);
    command.arg(directory).args(arguments);
    // Set while git runs a hook, these would name another repository than the directory's.
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_PREFIX",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_DIFF_OPTS",
        "GIT_EXTERNAL_DIFF",
    ] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
        thread::spawn(move || {
            let errors = thread::spawn(move || {
                let mut errors = Vec::new();
                let _ = stderr.take(1 << 16).read_to_end(&mut errors);
                errors
            });
            let read = drain(stdout, keep);
            // Nobody listens any more after the time is over.
            let _ = sender.send(read.map(|(head, writer)| (head, writer, errors.join().unwrap_or_default())));
        });
    }
    let Ok(read) = receiver.recv_timeout(timeout) else {
        child.kill()?;
        child.wait()?;
        return Err(io::ErrorKind::TimedOut.into());
    };
    let status = child.wait()?;
    let (head, writer, errors) = read?;
    Ok(Answer { status, head, writer, errors })
}

fn drain(mut stream: impl Read, keep: usize) -> io::Result<(Vec<u8>, DigestWriter)> {
    let mut writer = DigestWriter::new();
    let mut head = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok((head, writer));
        }
        writer.write(&buffer[..read]);
        head.extend_from_slice(&buffer[..read.min(keep - head.len())]);
    }
}

/// The version that `git` reports; none where it is not installed or does not answer.
pub fn version() -> Option<String> {
    let git = environment::which("git").map(OsString::from)?;
    let answer = ask(&git, Path::new("."), &["version"], TIMEOUT, 1 << 10).ok()?;
    let text = String::from_utf8_lossy(&answer.head).trim().to_owned();
    answer.status.success().then(|| text.strip_prefix("git version ").unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn git(directory: &Path, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=n", "-c", "user.email=e@e", "-c", "init.defaultBranch=main", "-C"]);
        command.arg(directory).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success(), "{arguments:?}");
    }

    /// Another process writes it: a file that this one holds open for writing, if only in a child that another test is just
    /// starting, cannot be executed ("text file busy").
    fn script(directory: &Path, text: &str) -> std::path::PathBuf {
        let path = directory.join("git");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(&path).arg(text);
        assert!(command.status().unwrap().success());
        path
    }

    #[test]
    fn a_repository_from_its_first_day_on() {
        if environment::which("git").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(facts(dir.path()), said("not in a git repository"));

        git(dir.path(), &["init", "-q"]);
        let new = facts(dir.path());
        assert_eq!(new["git.state"], "clean".into());
        assert!(!new.contains_key("git.commit"));

        let file = dir.path().join("a file");
        fs::write(&file, "one\n").unwrap();
        git(dir.path(), &["add", "."]);
        assert_eq!(facts(dir.path())["git.state"], "dirty".into());
        git(dir.path(), &["commit", "-qm", "m"]);
        fs::write(dir.path().join("untracked"), "").unwrap();
        let clean = facts(dir.path());
        assert_eq!((&clean["git.state"], &clean["git.untracked"]), (&"clean".into(), &1_i64.into()));
        assert_eq!(clean["git.branch"], "main".into());
        assert_eq!(clean["git.commit"].as_str().unwrap().len(), 40);
        assert!(!clean.contains_key("git.patch"));

        fs::write(&file, "two\n").unwrap();
        let dirty = facts(dir.path());
        assert_eq!(dirty["git.state"], "dirty".into());
        assert_eq!(dirty["git.commit"], clean["git.commit"]);
        git(dir.path(), &["config", "diff.noprefix", "true"]);
        git(dir.path(), &["config", "diff.algorithm", "patience"]);
        git(dir.path(), &["config", "color.ui", "always"]);
        assert_eq!(facts(dir.path()), dirty, "a person's configuration changes nothing");
        git(dir.path(), &["add", "a file"]);
        assert_eq!(facts(dir.path()), dirty, "staged or not, the change is the same");
        fs::write(&file, "three\n").unwrap();
        assert_ne!(facts(dir.path())["git.patch"], dirty["git.patch"]);

        git(dir.path(), &["checkout", "-qf", "--detach"]);
        assert!(!facts(dir.path()).contains_key("git.branch"));
    }

    #[test]
    fn absence_is_a_fact() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("git");
        let facts = facts_by(missing.as_os_str(), dir.path(), TIMEOUT);
        assert!(facts["git.state"].as_str().unwrap().starts_with("git cannot be started: "), "{facts:?}");
    }

    #[test]
    fn a_git_that_hangs_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let hanging = script(dir.path(), "#!/bin/sh\nexec sleep 600\n");
        let facts = facts_by(hanging.as_os_str(), dir.path(), Duration::from_millis(50));
        assert_eq!(facts, said("git did not answer in time"));
    }

    #[test]
    fn a_refusal_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\necho \"fatal: detected dubious ownership in repository at 'x'\" >&2\nexit 128\n";
        let facts = facts_by(script(dir.path(), text).as_os_str(), dir.path(), TIMEOUT);
        assert_eq!(facts, said("detected dubious ownership in repository at 'x'"));
    }

    #[test]
    fn the_status_is_read_as_documented() {
        let output = b"# branch.oid (initial)\0# branch.head main\0\x31 .M N... 100644 100644 100644 a b c\0? x\0? y\0";
        let listed = Listed {
            commit: None,
            branch: Some("main".into()),
            changed: true,
            untracked: 2,
            names: vec!["x".into(), "y".into()],
        };
        assert_eq!(parse_status(output), listed);
        assert_eq!(parse_status(b""), Listed::default());
    }
}
