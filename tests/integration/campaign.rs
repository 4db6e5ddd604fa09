//! A campaign of faults against one ledger: `kill -9` of runs, sweeps, merges, imports and small changes, a disk that is full, many processes at once.
//!
//! After each fault: what was sealed is there, the next command needs no help, nothing is left over. The seed is fixed. A round is one fault;
//! `LEDGER_TEST_ROUNDS` says how many kills there are (2,000 in `docs/measurements/`), the default keeps the suite short.

use crate::sandbox::{Sandbox, WORKER};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::Duration;

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % n
    }
}

/// The attempts that a ledger holds, with how each ended; nothing where there is no ledger yet.
fn held(sandbox: &Sandbox) -> BTreeSet<String> {
    let said = sandbox.run(&["ls", "--all", "--hidden", "--json"]);
    if said.code == Some(3) && said.err.contains("there is no ledger") {
        return BTreeSet::new();
    }
    let document: serde_json::Value = serde_json::from_str(&said.expect(0)).unwrap();
    let of = |attempt: &serde_json::Value| format!("{} {}", attempt["attempt"], attempt["outcome"]);
    document["attempts"].as_array().unwrap().iter().map(of).collect()
}

/// Everything is there that was, nothing is left over, and every byte is what it says.
fn check(sandbox: &Sandbox, before: &BTreeSet<String>, when: &str) -> BTreeSet<String> {
    let now = held(sandbox);
    let lost: Vec<&String> = before.difference(&now).collect();
    assert!(lost.is_empty(), "{when}: lost {lost:?}");
    assert!(sandbox.journals().is_empty(), "{when}: left over {:?}", sandbox.journals());
    let Ok(entries) = fs::read_dir(sandbox.ledger_dir()) else { return now };
    let known = ["ledger.redb", "journal", "kernels"];
    let strange: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !known.contains(&name.as_str()) && !name.starts_with(".ledger.redb."))
        .collect();
    assert!(strange.is_empty(), "{when}: left over {strange:?}");
    if !now.is_empty() {
        let verified = sandbox.run(&["verify", "--deep"]);
        assert_eq!(verified.code, Some(0), "{when}: {}{}", verified.out, verified.err);
    }
    now
}

/// A table of results that no other round has.
fn table(sandbox: &Sandbox, name: &str, round: u64, rows: u64) {
    let mut text = "model,batch,seconds,loss\n".to_owned();
    (0..rows).for_each(|row| text.push_str(&format!("m{},{},{round}.5,0.{row}\n", row % 3, row % 17)));
    sandbox.write(name, text);
    sandbox.write(
        "map.toml",
        "name = \"rows\"\ndate = 2026-01-01\ndevice = \"d\"\n[fields]\nmodel.name = \"{model}\"\ntraining.batch_size = \"{batch}\"\n\
         [metrics]\nepoch_time = { value = \"{seconds}\", unit = \"s\" }\nloss = { value = \"{loss}\", unit = \"\" }\n",
    );
}

const KINDS: [&str; 7] = ["run", "sweep", "merge", "import", "tag", "note", "hide"];

/// The command that is killed, and how long it may take until then, in ms.
fn prepare(sandbox: &Sandbox, kind: &str, round: u64) -> (Vec<String>, u64) {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match kind {
        "run" => {
            sandbox.sweep_manifest(WORKER, "1", &format!("{round}"));
            (words(&["run", "m.toml"]), 60)
        }
        "sweep" => {
            sandbox.sweep_manifest(
                &format!("{WORKER}\nsleep 0.01\n"),
                "[1, 2, 3, 4, 5]",
                &format!("[{round}, {}]", round + 9000),
            );
            (words(&["run", "m.toml", "--jobs", "2"]), 250)
        }
        "merge" => {
            table(sandbox, "other.csv", round, 100);
            let _ = fs::remove_dir_all(sandbox.path("other"));
            sandbox.run(&["--ledger", "other", "import", "table", "other.csv", "--map", "map.toml"]).expect(0);
            (words(&["merge", "other"]), 60)
        }
        "import" => {
            table(sandbox, "rows.csv", round, 60);
            (words(&["import", "table", "rows.csv", "--map", "map.toml"]), 40)
        }
        "tag" => (words(&["tag", "latest", &format!("t-{}", round % 5)]), 15),
        "note" => (words(&["note", "latest", &format!("seen in {round}")]), 15),
        _ if round.is_multiple_of(2) => (words(&["hide", "latest", "--undo"]), 15),
        _ => (words(&["hide", "latest"]), 15),
    }
}

#[test]
fn killed_at_any_moment_of_any_change_nothing_sealed_is_lost() {
    let rounds = asked("LEDGER_TEST_ROUNDS", 21);
    let mut draw = Draw(8);
    let mut sandbox = Sandbox::new();
    let mut sealed = BTreeSet::new();
    let mut counts: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for round in 1..=rounds {
        // Small ledgers keep the checks short; each begins with a ledger that is not there yet.
        if round.is_multiple_of(100) {
            sandbox = Sandbox::new();
            sealed = BTreeSet::new();
        }
        let kind = KINDS[usize::try_from(round % 7).unwrap()];
        let (args, longest) = prepare(&sandbox, kind, round);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut child = sandbox.start(&args);
        std::thread::sleep(Duration::from_micros(draw.below(1000 * longest)));
        let ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        let when = format!("round {round}, {kind}");
        let now = check(&sandbox, &sealed, &when);
        let count = counts.entry(kind).or_default();
        count[usize::from(ended)] += 1;
        count[2] += (now.len() - sealed.len()) as u64;
        sealed = now;
        // What was cut off goes on where it stopped.
        if matches!(kind, "merge" | "import") {
            sandbox.run(&args).expect(0);
            let whole = held(&sandbox);
            assert!(whole.is_superset(&sealed), "{when}");
            sandbox.run(&args).expect(0);
            assert_eq!(held(&sandbox), whole, "{when}: the same once more changes nothing");
            sealed = whole;
        }
    }
    check(&sandbox, &sealed, "at the end");
    println!("{rounds} kills: kind, killed before its end, killed after it, attempts that were there all the same");
    counts
        .iter()
        .for_each(|(kind, [before, after, attempts])| println!("{kind:<8} {before:>5} {after:>5} {attempts:>6}"));
}

#[test]
fn a_disk_that_is_full_at_any_moment_loses_nothing() {
    let rounds = asked("LEDGER_TEST_FULL", 6);
    let mut draw = Draw(81);
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.ledger_dir()).unwrap();
    let mount = |options: &str| {
        let args = if options.starts_with("remount") {
            vec!["-o", options]
        } else {
            vec!["-t", "tmpfs", "-o", options, "tmpfs"]
        };
        Command::new("mount").args(args).arg(sandbox.ledger_dir()).output().is_ok_and(|output| output.status.success())
    };
    if !mount("size=64m") {
        println!("skipped: mounting a small tmpfs needs root");
        return;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut sealed = BTreeSet::new();
        let mut refused = 0;
        for round in 1..=rounds {
            if round.is_multiple_of(40) {
                let _ = fs::remove_file(sandbox.ledger_dir().join("ledger.redb"));
                sealed = BTreeSet::new();
            }
            let kind = KINDS[usize::try_from(draw.below(6)).unwrap()];
            let (args, _) = prepare(&sandbox, kind, round);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let used: u64 = 4 + used_kib(&sandbox);
            assert!(mount(&format!("remount,size={}k", used + 4 * draw.below(60))));
            let said = sandbox.run(&args);
            assert!(mount("remount,size=256m"));
            let told = format!("{}{}", said.out, said.err);
            assert!(!told.contains("panicked"), "round {round}, {kind}: {told}");
            if said.code != Some(0) {
                refused += u64::from(told.contains("o space left"));
            }
            sealed = check(&sandbox, &sealed, &format!("round {round}, {kind}, {told}"));
            if matches!(kind, "merge" | "import") {
                sandbox.run(&args).expect(0);
                sealed = held(&sandbox);
            }
        }
        println!("{rounds} changes on a disk that may be full: {refused} were refused for want of space");
    }));
    let unmounted = Command::new("umount").arg(sandbox.ledger_dir()).status().is_ok_and(|status| status.success());
    assert!(unmounted);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn used_kib(sandbox: &Sandbox) -> u64 {
    let output = Command::new("df").args(["-k", "--output=used"]).arg(sandbox.ledger_dir()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().nth(1).unwrap().trim().parse().unwrap()
}

#[test]
fn many_processes_at_once_share_one_ledger() {
    let processes = asked("LEDGER_TEST_PROCESSES", 14);
    let sandbox = Sandbox::new();
    let mut expected = 0;
    let mut children = Vec::new();
    for number in 0..processes {
        let folder = format!("p{number}");
        fs::create_dir(sandbox.path(&folder)).unwrap();
        let kind = number % 7;
        let words: Vec<String> = match kind {
            0..=2 => {
                sandbox.sweep_manifest(WORKER, "[1, 2]", &format!("[{number}]"));
                ["worker.sh", "m.toml"].iter().for_each(|name| {
                    fs::rename(sandbox.path(name), sandbox.path(&folder).join(name)).unwrap();
                });
                expected += 2;
                vec!["run".into(), format!("{folder}/m.toml")]
            }
            3 => {
                table(&sandbox, &format!("{folder}.csv"), number, 30);
                expected += 30;
                vec!["import".into(), "table".into(), format!("{folder}.csv"), "--map".into(), "map.toml".into()]
            }
            4 => {
                table(&sandbox, &format!("{folder}.csv"), number, 30);
                let csv = format!("{folder}.csv");
                let other = format!("{folder}/other");
                sandbox.run(&["--ledger", &other, "import", "table", &csv, "--map", "map.toml"]).expect(0);
                expected += 30;
                vec!["merge".into(), other]
            }
            5 => vec!["ls".into(), "--all".into()],
            _ => vec!["verify".into()],
        };
        children.push((kind, words));
    }
    let started: Vec<_> = children
        .iter()
        .map(|(kind, words)| {
            (*kind, words.join(" "), sandbox.start(&words.iter().map(String::as_str).collect::<Vec<_>>()))
        })
        .collect();
    let mut codes: BTreeMap<Option<i32>, u64> = BTreeMap::new();
    for (kind, words, child) in started {
        let said = Sandbox::finish(child);
        // Readers may come before there is a ledger.
        let is_early = kind >= 5 && said.code == Some(3) && said.err.contains("there is no ledger");
        assert!(said.code == Some(0) || is_early, "{words}: {:?} {}{}", said.code, said.out, said.err);
        *codes.entry(said.code).or_default() += 1;
    }
    let there = check(&sandbox, &BTreeSet::new(), "after many at once");
    assert_eq!(there.len(), expected);
    assert!(there.iter().all(|attempt| attempt.ends_with("\"finished\"")), "{there:?}");
    println!("{processes} processes at once: exit codes {codes:?}, {expected} attempts, each once");
}
