//! The state of a directory's git repository, as `git` reports it.

use super::environment;
use ledger_record::{Digest, DigestWriter, Table, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The timeout of a git command. A repository on a slow network file system may take seconds; a hung one must not delay
/// a run for long.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns facts about the repository that contains a directory.
///
/// - `git.state`: `clean`, `dirty`, or why the state is unknown (no git, no repository, a timeout, git's own message);
/// - `git.commit`, `git.branch`: absent before the first commit, and the branch on a detached head;
/// - `git.untracked`: the number of files and directories that git neither tracks nor ignores; `git.untracked_names`:
///   the first hundred of them;
/// - `git.patch`: the digest of `git diff HEAD` in a fixed format, if the state is dirty.
///
/// Untracked files alone leave the state clean. Nothing is written into the repository, and no program runs that the
/// repository configures: no filter, hook, monitor, external diff or transport. Filters of the user's own configuration
/// run, such as those of Git LFS.
pub fn facts(directory: &Path) -> Table {
    match environment::which("git") {
        Some(git) => facts_by(git.as_os_str(), directory, TIMEOUT),
        None => said("git is not installed"),
    }
}

/// All options that a user's configuration could change are explicit, so that a change has the same digest everywhere.
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

/// Why a patch cannot be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It exceeds the limit in bytes.
    #[error("it has more than {} MiB", .0 >> 20)]
    Long(usize),
    /// The repository no longer has the patch with this digest.
    #[error("the repository was changed meanwhile")]
    Changed,
    /// Git does not return a patch.
    #[error("git did not report it")]
    Silent,
}

/// Returns the patch whose digest [`facts`] reports.
///
/// # Errors
/// If it has more than `most` bytes, or has changed.
pub fn patch(directory: &Path, digest: Digest, most: usize) -> Result<Vec<u8>, PatchError> {
    let git = environment::which("git").ok_or(PatchError::Silent)?;
    let disarmed = disarmed(git.as_os_str(), directory, TIMEOUT, 0).map_err(|_| PatchError::Silent)?;
    let answer = ask(git.as_os_str(), directory, &after(&disarmed, DIFF), TIMEOUT, most.saturating_add(1));
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
    let disarmed = match disarmed(git, directory, timeout, 0) {
        Ok(disarmed) => disarmed,
        Err(table) => return table,
    };
    let listed = match ask(git, directory, &after(&disarmed, &status), timeout, MOST_LISTED) {
        Ok(answer) if answer.status.success() => parse_status(&answer.head),
        Ok(answer) => return said(&refusal(&answer.errors)),
        Err(error) => return unanswered(&error),
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
        let patch = if listed.changed { ask(git, directory, &after(&disarmed, DIFF), timeout, 0).ok() } else { None };
        if let Some(patch) = patch.filter(|patch| patch.status.success()) {
            put("git.patch", patch.writer.finish().to_string().into());
        }
    }
    table
}

fn unanswered(error: &io::Error) -> Table {
    match error.kind() {
        io::ErrorKind::TimedOut => said("git did not answer in time"),
        _ => said(&format!("git cannot be started: {error}")),
    }
}

/// Returns those of these files that git tracks, or all if git does not answer. Names are relative to `directory`, and
/// may lie outside of the repository.
pub fn tracked(directory: &Path, names: &BTreeSet<String>) -> BTreeSet<String> {
    tracked_of(directory, names).unwrap_or_else(|| names.clone())
}

fn tracked_of(directory: &Path, names: &BTreeSet<String>) -> Option<BTreeSet<String>> {
    if names.is_empty() {
        return Some(BTreeSet::new());
    }
    let git = environment::which("git")?;
    let lines = |arguments: &[&str], end: u8| {
        let answer = ask(git.as_os_str(), directory, arguments, TIMEOUT, MOST_LISTED).ok()?;
        let lines = answer.head.split(|byte| *byte == end).filter(|line| !line.is_empty());
        answer.status.success().then(|| lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect())
    };
    let top: Vec<String> = lines(&["rev-parse", "--show-toplevel"], b'\n')?;
    let top = Path::new(top.first()?).canonicalize().ok()?;
    // git would fail for all names if one were outside of the repository.
    let is_inside = |name: &&str| directory.join(name).canonicalize().is_ok_and(|path| path.starts_with(&top));
    let inside: Vec<&str> = names.iter().map(String::as_str).filter(is_inside).collect();
    let mut tracked = BTreeSet::new();
    for some in inside.chunks(MOST_ASKED) {
        let listed: Vec<String> = lines(&[&["--literal-pathspecs", "ls-files", "-z", "--"], some].concat(), 0)?;
        tracked.extend(listed);
    }
    Some(tracked)
}

/// The maximum number of names per `git ls-files`, because the length of a command is limited.
const MOST_ASKED: usize = 200;
/// The maximum output of git that is read; a longer one is refused or truncated.
const MOST_LISTED: usize = 1 << 26;
/// The maximum depth of nested submodules.
const MOST_DEPTH: usize = 8;

/// Returns the options that disable each filter configured by a repository or its submodules, because `git status` and
/// `git diff` run filters on changed files. A filter of the user's own configuration keeps its value. Git passes these
/// options on to its processes in submodules.
///
/// # Errors
/// The facts to report instead, if git does not answer or a filter cannot be disabled.
fn disarmed(git: &OsStr, directory: &Path, timeout: Duration, depth: usize) -> Result<Vec<String>, Table> {
    let list = |arguments: &[&str]| match ask(git, directory, arguments, timeout, MOST_LISTED) {
        Ok(answer) if answer.head.len() >= MOST_LISTED => Err(said("git lists more than can be read")),
        Ok(answer) => Ok(answer),
        Err(error) => Err(unanswered(&error)),
    };
    let scoped = list(&["config", "--list", "-z", "--show-scope"])?;
    let (entries, has_scope) = if scoped.status.success() {
        (scoped.head, true)
    } else {
        // Before git 2.26 the user's own filters cannot be distinguished.
        (list(&["config", "--list", "-z"])?.head, false)
    };
    let mut options = Vec::new();
    for (key, value) in overrides(&entries, has_scope) {
        if key.contains('=') {
            return Err(said("its configuration names a filter with `=`, which cannot be kept from running"));
        }
        options.extend(["-c".to_owned(), format!("{key}={value}")]);
    }
    let files = list(&["ls-files", "--stage", "-z"])?.head;
    for path in gitlinks(&files).map(|path| directory.join(path)).filter(|path| path.join(".git").exists()) {
        if depth == MOST_DEPTH {
            return Err(said("its submodules lie too deep in each other"));
        }
        options.extend(disarmed(git, &path, timeout, depth + 1)?);
    }
    Ok(options)
}

/// Returns the value for each filter key: the user's own, or one that disables it.
fn overrides(entries: &[u8], has_scope: bool) -> BTreeMap<String, String> {
    let (mut own, mut foreign) = (BTreeMap::new(), BTreeSet::new());
    let mut parts = entries.split(|byte| *byte == 0);
    loop {
        let scope = if has_scope { parts.next() } else { Some(&b"local"[..]) };
        let (Some(scope), Some(entry)) = (scope, parts.next()) else { break };
        let entry = String::from_utf8_lossy(entry);
        let (key, value) = entry.split_once('\n').unwrap_or((&entry, "true"));
        if !key.starts_with("filter.") {
            continue;
        }
        if matches!(scope, b"system" | b"global") {
            own.insert(key.to_owned(), value.to_owned());
        } else {
            foreign.insert(key.to_owned());
        }
    }
    let set = |key: String| {
        let nothing = if key.ends_with(".required") { "false" } else { "" };
        let value = own.get(&key).cloned().unwrap_or_else(|| nothing.to_owned());
        (key, value)
    };
    foreign.into_iter().map(set).collect()
}

/// Returns the paths of submodules among the entries of the index.
fn gitlinks(files: &[u8]) -> impl Iterator<Item = PathBuf> {
    files.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 ")).filter_map(|entry| {
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        Some(PathBuf::from(OsStr::from_bytes(&entry[tab + 1..])))
    })
}

/// Returns a git command preceded by these options.
fn after<'a>(options: &'a [String], command: &[&'a str]) -> Vec<&'a str> {
    options.iter().map(String::as_str).chain(command.iter().copied()).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Listed {
    commit: Option<String>,
    branch: Option<String>,
    changed: bool,
    untracked: usize,
    names: Vec<String>,
}

/// The maximum number of names of untracked files that are recorded.
const MOST_NAMES: usize = 100;

/// Parses the format of git-status(1), "Porcelain Format Version 2", with entries terminated by NUL.
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
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("git failed without a message");
    let line = line.strip_prefix("fatal: ").unwrap_or(line);
    if line.starts_with("not a git repository") { "not in a git repository".to_owned() } else { line.to_owned() }
}

struct Answer {
    status: ExitStatus,
    /// The beginning of the output, up to the requested length.
    head: Vec<u8>,
    /// The digest of the whole output.
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
        "core.hooksPath=/dev/null",
        "-c",
        "core.sshCommand=false",
        "-c",
        "core.quotePath=true",
        "-c",
        "status.submoduleSummary=false",
        "-C",
    ]);
    command.arg(directory).args(arguments);
    // A partial clone would fetch missing files with the transport that its configuration names.
    command.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none").env("GIT_OPTIONAL_LOCKS", "0");
    // Git sets these while it runs a hook. They would select another repository than the directory's.
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
            // The receiver is gone after the timeout.
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

/// Returns the version that `git` reports, or `None` if it is not installed or does not answer.
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

    /// Writes the script in another process. A file that this process has open for writing, even in a child that
    /// another test is just starting, cannot be executed ("text file busy").
    fn script(directory: &Path, text: &str) -> PathBuf {
        let path = directory.join("git");
        script_at(&path, text);
        path
    }

    fn script_at(path: &Path, text: &str) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).arg(text);
        assert!(command.status().unwrap().success());
    }

    #[test]
    fn the_state_of_a_repository_is_reported_from_its_creation_on() {
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

    /// Each program that a repository can configure creates a file with its name.
    #[test]
    fn no_program_of_a_repository_runs() {
        if environment::which("git").is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let marks = dir.path().join("marks");
        fs::create_dir(&marks).unwrap();
        let mark = |name: &str| format!("touch '{}'; cat", marks.join(name).display());
        let repository = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            git(&path, &["init", "-q"]);
            fs::write(path.join(".gitattributes"), "* filter=evil diff=evil\n*.lfs filter=evil.Sub\n").unwrap();
            fs::write(path.join("a"), "one\n").unwrap();
            fs::write(path.join("b.lfs"), "one\n").unwrap();
            git(&path, &["add", "."]);
            git(&path, &["commit", "-qm", "m"]);
            path
        };
        let (outer, inner) = (repository("outer"), repository("outer/inner"));
        git(&outer, &["-c", "advice.addEmbeddedRepo=false", "add", "inner"]);
        git(&outer, &["commit", "-qm", "submodule"]);
        for (path, name) in [(&outer, "outer"), (&inner, "inner")] {
            for (key, program) in [
                ("filter.evil.clean", "clean"),
                ("filter.evil.smudge", "smudge"),
                ("filter.evil.Sub.process", "process"),
                ("diff.evil.textconv", "textconv"),
                ("diff.evil.command", "command"),
                ("diff.external", "external"),
                ("core.fsmonitor", "fsmonitor"),
                ("core.sshCommand", "ssh"),
                ("core.pager", "pager"),
                ("core.editor", "editor"),
                ("alias.status", "alias"),
            ] {
                git(path, &["config", key, &mark(&format!("{name}-{program}"))]);
            }
            git(path, &["config", "filter.evil.required", "true"]);
            git(path, &["config", "filter.evil.Sub.required", "true"]);
            for hook in ["post-index-change", "fsmonitor-watchman", "pre-commit"] {
                script_at(&path.join(".git/hooks").join(hook), &format!("#!/bin/sh\n{}\n", mark(hook)));
            }
            fs::write(path.join("a"), "two\n").unwrap();
            fs::write(path.join("b.lfs"), "two\n").unwrap();
        }
        let told = facts(&outer);
        assert_eq!(told["git.state"], "dirty".into(), "{told:?}");
        let digest = told["git.patch"].as_str().unwrap().parse().unwrap();
        let patch = String::from_utf8(patch(&outer, digest, 1 << 20).unwrap()).unwrap();
        assert!(patch.contains("-one\n+two"), "{patch}");
        let left: Vec<_> = fs::read_dir(&marks).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");

        git(&outer, &["config", "filter.a=b.clean", &mark("named")]);
        let refused = facts(&outer);
        assert!(refused["git.state"].as_str().unwrap().contains("a filter with `=`"), "{refused:?}");
    }

    #[test]
    fn filters_of_the_users_configuration_are_kept() {
        let scoped =
            b"global\0filter.lfs.clean\ngit-lfs clean -- %f\0local\0filter.lfs.clean\nevil\0local\0filter.x.required\0\
            worktree\0filter.x.process\nevil\0global\0filter.y.clean\nown\0local\0core.bare\nfalse\0";
        let expected =
            [("filter.lfs.clean", "git-lfs clean -- %f"), ("filter.x.process", ""), ("filter.x.required", "false")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(overrides(scoped, true), expected.into());
        let old = overrides(b"filter.lfs.clean\ngit-lfs\0core.bare\nfalse\0", false);
        assert_eq!(old, [("filter.lfs.clean".to_owned(), String::new())].into());
        let files = b"100644 aa 0\ta\x00160000 bb 0\tsub/one\0";
        assert_eq!(gitlinks(files).collect::<Vec<_>>(), [PathBuf::from("sub/one")]);
    }

    #[test]
    fn a_missing_git_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("git");
        let facts = facts_by(missing.as_os_str(), dir.path(), TIMEOUT);
        assert!(facts["git.state"].as_str().unwrap().starts_with("git cannot be started: "), "{facts:?}");
    }

    #[test]
    fn a_hanging_git_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let hanging = script(dir.path(), "#!/bin/sh\nexec sleep 600\n");
        let facts = facts_by(hanging.as_os_str(), dir.path(), Duration::from_millis(50));
        assert_eq!(facts, said("git did not answer in time"));
    }

    #[test]
    fn an_error_of_git_is_quoted() {
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
