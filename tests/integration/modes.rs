//! Who may read and write what a ledger makes, whatever the process's mask: a ledger is its user's alone, what is handed on can be read by all that the mask allows.

use crate::sandbox::{Said, Sandbox, WORKER};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command that begins with this mask.
fn under(mask: &str, sandbox: &Sandbox, args: &[&str]) -> Command {
    let inner = sandbox.command(args);
    let mut outer = Command::new("/bin/sh");
    outer.args(["-c", "umask \"$0\" && exec \"$@\"", mask]).arg(inner.get_program()).args(inner.get_args());
    outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.current_dir(inner.get_current_dir().unwrap()).stdin(Stdio::null());
    outer
}

fn run(mask: &str, sandbox: &Sandbox, args: &[&str]) -> String {
    Said::new(under(mask, sandbox, args).output().unwrap()).expect(0)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// All below a folder, the folder among them.
fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    if !folder.is_dir() {
        return found;
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(all(&path)) } else { found.push(path) }
    }
    found
}

fn assert_private(sandbox: &Sandbox, mask: &str) {
    let found = all(&sandbox.ledger_dir());
    assert!(found.len() > 2, "{found:?}");
    for path in found {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{} under {mask}", path.display());
    }
}

#[test]
fn a_ledger_is_its_users_alone_and_exports_are_not() {
    for (mask, handed_on) in [("000", 0o644), ("022", 0o644), ("077", 0o600)] {
        let sandbox = Sandbox::new();
        let script =
            format!("{WORKER}\numask > mask\necho > made\ntouch started\nwhile [ ! -e go ]; do sleep 0.05; done\n");
        sandbox.sweep_manifest(&script, "1", "1");
        let child =
            under(mask, &sandbox, &["run", "m.toml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sandbox.wait_for("the worker's start", || sandbox.path("started").exists());
        // The journal, what is kept aside beside it, the pipe of the events, and the list of loaded files.
        assert_eq!(sandbox.journals().len(), 4);
        assert_private(&sandbox, mask);
        sandbox.write("go", "");
        Sandbox::finish(child).expect(0);
        assert_private(&sandbox, mask);
        assert_eq!(
            fs::read_to_string(sandbox.path("mask")).unwrap().trim(),
            format!("0{mask}"),
            "the worker's mask is the user's"
        );
        run(mask, &sandbox, &["pack", "latest", "-o", "a.pack"]);
        run(mask, &sandbox, &["export", "latest", "-o", "a.ledger"]);
        run(mask, &sandbox, &["export", "--to", "csv", "-o", "a.csv"]);
        run(mask, &sandbox, &["export", "--to", "mlflow", "-o", "mlflow"]);
        run(mask, &sandbox, &["export", "latest", "--ro-crate", "crate"]);
        run(mask, &sandbox, &["report", "--all", "-o", "report"]);
        for name in ["a.pack", "a.ledger", "a.csv", "mlflow", "crate", "report"] {
            for path in all(&sandbox.path(name)).into_iter().filter(|path| path.is_file()) {
                assert_eq!(mode(&path), handed_on, "{} under {mask}", path.display());
            }
        }
    }
}

#[test]
fn a_ledger_behind_a_link_to_nothing_is_its_users_alone() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.ledger_dir()).unwrap();
    fs::create_dir(sandbox.path("disk")).unwrap();
    let target = sandbox.path("disk/real.redb");
    std::os::unix::fs::symlink(&target, sandbox.ledger_dir().join("ledger.redb")).unwrap();
    sandbox.sweep_manifest(WORKER, "1", "1");
    run("022", &sandbox, &["run", "m.toml"]);
    assert_eq!(mode(&target), 0o600);
    run("022", &sandbox, &["verify"]);
    assert_eq!(sandbox.outcomes(), ["finished"]);
}
