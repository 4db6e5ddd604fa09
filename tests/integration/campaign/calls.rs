//! `kill -9` before each system call by which a command changes something.
//!
//! After each kill: what was sealed is there, every byte is what it says, the same command comes to its end, and nothing is left over.
//! `LEDGER_TEST_CALLS` says how many calls of each command are tried, evenly spread: `all` in `docs/measurements/`, a few by default.

use super::held::{IMPORTED, MERGED, broken_words, held, losses, opened};
use super::tracer::{Traced, traced};
use super::{check, prepare, table};
use crate::sandbox::{Sandbox, WORKER};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Names and contents below a folder.
fn tree(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let Ok(entries) = fs::read_dir(next) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

/// Makes a folder what another one is.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// A ledger with a table, a run and a name, what the command needs besides, and the command.
fn scene(kind: &str) -> Option<(Sandbox, Vec<String>)> {
    let sandbox = super::place();
    table(&sandbox, "first.csv", 0, 20);
    sandbox.run(&["import", "table", "first.csv", "--map", "map.toml"]).expect(0);
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox.run(&["tag", "latest", "base"]).expect(0);
    fs::create_dir(sandbox.path("out")).unwrap();
    let words: Vec<&str> = match kind {
        "rerun" => vec!["rerun", "base"],
        "verify" => vec!["verify"],
        "report" => {
            sandbox.run(&["report", "--all", "-o", "out/site"]).expect(0);
            // The report that takes its place is another one.
            vec!["report", "--all", "--title", "again", "-o", "out/site"]
        }
        "pack" => vec!["pack", "base", "-o", "out/x.ledger"],
        "export" => vec!["export", "base", "-o", "out/x.ledger"],
        "csv" => vec!["export", "--to", "csv", "-o", "out/x.csv"],
        "plot" => vec!["plot", "curves", "base", "-o", "out/x.svg"],
        "research_object" => vec!["export", "base", "--ro-crate", "out/crate"],
        "attest" => {
            let args = ["-q", "-t", "ed25519", "-N", "", "-f", "key"];
            Command::new("ssh-keygen").args(args).current_dir(sandbox.path(".")).status().ok()?;
            vec!["attest", "--key", "key", "-o", "out/x.head"]
        }
        "unpack" => {
            sandbox.sweep_manifest(WORKER, "[2, 3]", "1");
            sandbox.run(&["--ledger", "other", "run", "m.toml"]).expect(0);
            sandbox.run(&["--ledger", "other", "pack", "latest", "latest~1", "-o", "x.ledger"]).expect(0);
            vec!["unpack", "x.ledger"]
        }
        "tune" => {
            vec!["tune", "--model", "toy", "--metric", "accuracy", "--axis", "x=1,2", "--attempts", "2"]
        }
        // What a killed supervisor has left behind is sealed by whoever comes next.
        "seal" => {
            sandbox.abandoned_run("2");
            vec!["ls"]
        }
        kind => {
            let args = prepare(&sandbox, kind, 7, &held(&sandbox));
            return Some((sandbox, args));
        }
    };
    let words = words.into_iter().map(str::to_owned).collect();
    Some((sandbox, words))
}

#[expect(clippy::print_stdout, reason = "what was killed where is the result")]
fn killed_before_each_call_of(kind: &str) {
    let Some((sandbox, args)) = scene(kind) else {
        println!("skipped: there is no ssh-keygen");
        return;
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    fs::create_dir(sandbox.path("tmp")).unwrap();
    let command = || {
        let mut command = sandbox.command(&args);
        command.env("TMPDIR", sandbox.path("tmp"));
        command
    };
    let places =
        ["ledger", "out", "restore", "home"].map(|name| (sandbox.path(name), sandbox.path(&format!("was-{name}"))));
    let places: Vec<_> = places.iter().filter(|(place, _)| place.exists()).collect();
    places.iter().for_each(|(place, was)| copy(place, was));
    let again = || places.iter().for_each(|(place, was)| copy(was, place));
    let waits_in_journal = kind == "seal";
    let before = if waits_in_journal {
        let before = held(&sandbox);
        again();
        before
    } else {
        held(&sandbox)
    };
    let outputs = |sandbox: &Sandbox| tree(&sandbox.path("out"));
    let outputs_before = outputs(&sandbox);
    let Some(whole) = traced(command(), None).filter(|whole| whole.calls > 0) else {
        println!("skipped: this machine lets nobody trace a process");
        return;
    };
    assert_eq!(whole.said.code, Some(0), "{:?}", whole.said);
    let (whole_held, whole_outputs) = (held(&sandbox), outputs(&sandbox));
    let tried = match std::env::var("LEDGER_TEST_CALLS") {
        Ok(all) if all == "all" => whole.calls,
        Ok(number) => number.parse().unwrap(),
        Err(_) => 2,
    };
    let (mut killed, mut done) = (0, 0);
    let step = (whole.calls / tried.max(1)).max(1);
    // Each command makes a few calls more or fewer than the time before.
    for n in (1..=whole.calls + step + 8).step_by(usize::try_from(step).unwrap()) {
        again();
        let Traced { said, killed_before, .. } = traced(command(), Some(n)).unwrap();
        let when = format!("{args:?} killed before change {n} of {} (system call {killed_before:?})", whole.calls);
        if killed_before.is_some() {
            assert_eq!(said.code, None, "{when}: {said:?}");
            killed += 1;
        } else {
            assert_eq!(said.code, Some(0), "{when}: {said:?}");
            done += 1;
        }
        let in_journals = opened(&sandbox);
        let now = check(&sandbox, &when);
        assert_eq!(losses(kind, &args, &before, &now), [""; 0], "{when}: lost");
        if !waits_in_journal {
            assert_eq!(broken_words(kind, &args, &said, &in_journals, &before, &now), [""; 0], "{when}");
        }
        // A file that has its name is whole.
        for (name, bytes) in outputs(&sandbox) {
            let is_unfinished = name.split('/').any(|part| part.starts_with('.'));
            let is_whole = [&outputs_before, &whole_outputs].iter().any(|whole| whole.get(&name) == Some(&bytes));
            assert!(is_unfinished || is_whole || has_a_date(&name), "{when}: {name} is neither old nor whole");
        }
        if sandbox.path("out/x.head").exists() {
            sandbox.run(&["verify", "--attested", "out/x.head", "--key", "key.pub"]).expect(0);
        }
        // Between the making of a temporary file and the removal of its name is one call.
        let temporary = fs::read_dir(sandbox.path("tmp")).unwrap().count();
        assert!(temporary <= 1, "{when}: {temporary} temporary files");
        fs::remove_dir_all(sandbox.path("tmp")).and_then(|()| fs::create_dir(sandbox.path("tmp"))).unwrap();
        let has_outputs = outputs_before != whole_outputs;
        let said = sandbox.run(&args);
        let is_there = has_outputs && said.code == Some(2) && said.err.contains("exists");
        assert!(said.code == Some(0) || is_there, "{when}, then again: {said:?}");
        let names = |tree: &BTreeMap<String, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&outputs(&sandbox)), names(&whole_outputs), "{when}, then again");
        let at_the_end = check(&sandbox, &when);
        let sealed = before.attempts.len();
        let expected = match kind {
            "merge" => sealed + MERGED,
            "import" => sealed + IMPORTED,
            // A command that was killed once it had sealed something has the rest to do, and no more.
            _ => whole_held.attempts.len(),
        };
        // Attempts that were interrupted stay beside those that took their place.
        let finished = at_the_end.attempts.values().filter(|(_, outcome)| outcome == "finished").count();
        let is_all = match kind {
            // It repeats what a killed one had repeated already.
            "rerun" => finished >= expected,
            "seal" => at_the_end == whole_held,
            _ => finished == expected,
        };
        assert!(is_all, "{when}, then again: {finished} of {expected}");
    }
    assert!(killed > 0, "no kill came before the end of {args:?}");
    println!("{kind}: {} changes, {killed} kills before one of them, {done} ends", whole.calls);
}

/// Statements and descriptions that say when they were made.
fn has_a_date(name: &str) -> bool {
    name.starts_with("x.head") || name.starts_with("crate/")
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        $(#[test]
        fn $kind() {
            killed_before_each_call_of(stringify!($kind));
        })*
    };
}

kinds! { run sweep rerun tune merge import unpack seal tag note hide verify attest report plot pack export csv research_object }
