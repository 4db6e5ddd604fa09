//! A campaign of faults against one ledger: `kill -9` of runs, sweeps, merges, imports and small changes, a disk that is full, many processes at once.
//!
//! After each fault: what was sealed is there, the next command needs no help, nothing is left over. A round is one fault. `LEDGER_TEST_ROUNDS`
//! says how many kills there are, `LEDGER_TEST_SEED` where they fall; the default keeps the suite short. `tests/attack.sh` is the long form.

#[cfg(target_arch = "x86_64")]
mod calls;
mod held;
#[cfg(target_arch = "x86_64")]
mod tracer;

use crate::sandbox::{Said, Sandbox, WORKER};
use held::{Held, IMPORTED, MERGED, broken_words, held, losses, notes, opened};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

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

/// A place for the program that is built, or for another build of it.
fn place() -> Sandbox {
    std::env::var_os("LEDGER_TEST_PROGRAM").map_or_else(Sandbox::new, |program| Sandbox::of(program.into()))
}

/// Everything is there that was, nothing is left over, and every byte is what it says.
fn check(sandbox: &Sandbox, when: &str) -> Held {
    let now = held(sandbox);
    assert!(sandbox.journals().is_empty(), "{when}: left over {:?}", sandbox.journals());
    let names = || -> Vec<String> {
        let Ok(entries) = fs::read_dir(sandbox.ledger_dir()) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    // What a dead founder left goes with the next change.
    let is_unfinished = |name: &String| name.starts_with(".ledger.redb.");
    if !now.attempts.is_empty() && names().iter().any(is_unfinished) {
        let id = now.attempts.keys().next().unwrap();
        sandbox.run(&["note", id, "a change"]).expect(0);
        assert!(!names().iter().any(is_unfinished), "{when}: left over {:?}", names());
    }
    if !now.attempts.is_empty() {
        let verified = sandbox.run(&["verify", "--deep"]);
        assert_eq!(verified.code, Some(0), "{when}: {}{}", verified.out, verified.err);
    }
    let known = ["ledger.redb", "journal", "kernels", "cache", "verified"];
    let strange: Vec<String> =
        names().into_iter().filter(|name| !known.contains(&name.as_str()) && !is_unfinished(name)).collect();
    assert!(strange.is_empty(), "{when}: left over {strange:?}");
    now
}

/// A table of results that no other round has.
fn table(sandbox: &Sandbox, name: &str, round: u64, rows: u64) {
    let mut text = "model,batch,seconds,loss\n".to_owned();
    (0..rows).for_each(|row| text.push_str(&format!("m{},{},{round}.5,0.{row}\n", row % 3, 1 + row % 17)));
    sandbox.write(name, text);
    sandbox.write(
        "map.toml",
        "name = \"rows\"\ndate = 2026-01-01\ndevice = \"d\"\n[fields]\nmodel.name = \"{model}\"\ntraining.batch_size = \"{batch}\"\n\
         [metrics]\nepoch_time = { value = \"{seconds}\", unit = \"s\" }\nloss = { value = \"{loss}\", unit = \"\" }\n",
    );
}

const KINDS: [&str; 7] = ["run", "sweep", "merge", "import", "tag", "note", "hide"];

/// The command that is killed.
fn prepare(sandbox: &Sandbox, kind: &str, round: u64, before: &Held) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match kind {
        "run" => {
            sandbox.sweep_manifest(WORKER, "1", &format!("{round}"));
            words(&["run", "m.toml"])
        }
        "sweep" => {
            sandbox.sweep_manifest(
                &format!("{WORKER}\nsleep 0.01\n"),
                "[1, 2, 3, 4, 5]",
                &format!("[{round}, {}]", round + 9000),
            );
            words(&["run", "m.toml", "--jobs", "2"])
        }
        "merge" => {
            table(sandbox, "other.csv", round, MERGED as u64);
            let _ = fs::remove_dir_all(sandbox.path("other"));
            sandbox.run(&["--ledger", "other", "import", "table", "other.csv", "--map", "map.toml"]).expect(0);
            words(&["merge", "other"])
        }
        "import" => {
            table(sandbox, "rows.csv", round, IMPORTED as u64);
            words(&["import", "table", "rows.csv", "--map", "map.toml"])
        }
        "tag" => words(&["tag", "latest", &format!("t-{}", round % 5)]),
        "note" => words(&["note", "latest", &format!("seen in {round}")]),
        _ => match before.hidden.first() {
            Some(id) => words(&["hide", id, "--undo"]),
            None => words(&["hide", "latest"]),
        },
    }
}

/// How long a change takes that nobody disturbs, in µs.
fn undisturbed(kind: &str) -> u64 {
    let sandbox = place();
    table(&sandbox, "first.csv", 0, 60);
    sandbox.run(&["import", "table", "first.csv", "--map", "map.toml"]).expect(0);
    let mut took = 0;
    // The first one also finds out what the program's sum is.
    for round in 1..=2 {
        let args = prepare(&sandbox, kind, round, &held(&sandbox));
        let since = Instant::now();
        sandbox.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).expect(0);
        took = since.elapsed().as_micros();
    }
    u64::try_from(took).unwrap()
}

/// Whether the file wants to be repaired: whoever had it open for writing is dead.
fn wants_repair(sandbox: &Sandbox) -> bool {
    let opened = redb::Database::builder().open_read_only(sandbox.ledger_dir().join("ledger.redb"));
    matches!(opened, Err(redb::DatabaseError::RepairAborted))
}

/// A small change has nothing to change where there is no ledger, and where everything is hidden.
fn has_nothing_to_change(kind: &str, said: &Said) -> bool {
    let told = ["there is no ledger", "no run, attempt or tag matches"];
    matches!(kind, "tag" | "note" | "hide") && told.iter().any(|told| said.err.contains(told))
}

#[test]
fn killed_at_any_moment_of_any_change_nothing_sealed_is_lost() {
    let rounds = asked("LEDGER_TEST_ROUNDS", 21);
    let mut draw = Draw(8 + 1000 * asked("LEDGER_TEST_SEED", 0));
    let mut longest: Vec<u64> = KINDS.iter().map(|kind| undisturbed(kind)).collect();
    let mut sandbox = place();
    let mut sealed = Held::default();
    let mut noted: Vec<(String, String)> = Vec::new();
    let mut counts: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for round in 1..=rounds {
        // Small ledgers keep the checks short; each begins with a ledger that is not there yet.
        if round.is_multiple_of(100) {
            noted.iter().for_each(|(id, text)| assert!(notes(&sandbox, id).contains(text), "round {round}: {text}"));
            noted.clear();
            sandbox = place();
            sealed = Held::default();
        }
        let which = usize::try_from(round % 7).unwrap();
        let kind = KINDS[which];
        let args = prepare(&sandbox, kind, round, &sealed);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut child = sandbox.start(&args);
        // In sevenths up to 1.4 times as long as it takes, so that a few rounds already fall on either side of the end.
        let share = draw.below(200) + 200 * (round / 7 * 3 % 7);
        std::thread::sleep(Duration::from_micros(longest[which] * share / 1000));
        child.kill().unwrap();
        let said = Sandbox::finish(child);
        if share > 1000 && said.code.is_none() {
            // The ledger has grown, or the machine has other work.
            longest[which] += longest[which] / 4;
        }
        let when = format!("round {round}, {kind}");
        let is_early = said.code != Some(0) && has_nothing_to_change(kind, &said);
        assert!(matches!(said.code, None | Some(0)) || is_early, "{when}: {said:?}");
        let in_journals = opened(&sandbox);
        let repair = wants_repair(&sandbox);
        let now = check(&sandbox, &when);
        assert_eq!(losses(kind, &args, &sealed, &now), [""; 0], "{when}: lost");
        assert_eq!(
            broken_words(kind, &args, &said, &in_journals, &sealed, &now),
            [""; 0],
            "{when}: not as it was said"
        );
        if kind == "note" && said.code == Some(0) {
            let id = said.out.split_whitespace().last().unwrap().to_owned();
            assert!(notes(&sandbox, &id).iter().any(|note| note == args[2]), "{when}");
            noted.push((id, args[2].to_owned()));
        }
        let count = counts.entry(kind).or_default();
        count[usize::from(said.code.is_some())] += 1;
        count[2] += (now.attempts.len() - sealed.attempts.len()) as u64;
        count[3] += u64::from(repair);
        // What was cut off goes on where it stopped.
        let before = std::mem::replace(&mut sealed, now);
        if matches!(kind, "merge" | "import") {
            sandbox.run(&args).expect(0);
            let whole = held(&sandbox);
            assert_eq!(losses(kind, &args, &sealed, &whole), [""; 0], "{when}");
            let rows = if kind == "merge" { MERGED } else { IMPORTED };
            assert_eq!(whole.attempts.len(), before.attempts.len() + rows, "{when}: done once more it is all there");
            sandbox.run(&args).expect(0);
            assert_eq!(held(&sandbox), whole, "{when}: the same once more changes nothing");
            sealed = whole;
        }
    }
    noted.iter().for_each(|(id, text)| assert!(notes(&sandbox, id).contains(text), "at the end: {text}"));
    let last = check(&sandbox, "at the end");
    assert_eq!(last, sealed);
    if let Some(program) = std::env::var_os("LEDGER_TEST_PROGRAM") {
        println!("another build of the program: {}", program.display());
    }
    println!(
        "{rounds} kills: kind, before its end, after it, attempts that were there all the same, files that wanted repair"
    );
    for (kind, [before, after, attempts, repairs]) in &counts {
        println!("{kind:<8} {before:>5} {after:>5} {attempts:>6} {repairs:>5}");
        if rounds >= 210 {
            assert!(*before > 0 && *after > 0, "kills of {kind} fall on either side of its end");
        }
    }
    let sum = |at: usize| counts.values().map(|count| count[at]).sum::<u64>();
    assert!(sum(0) > 0, "no kill came before an end");
    assert!(rounds < 210 || sum(3) > 0, "no kill came while the ledger was open for writing");
}

#[test]
fn a_disk_that_is_full_at_any_moment_loses_nothing() {
    let rounds = asked("LEDGER_TEST_FULL", 6);
    let mut draw = Draw(81);
    let sandbox = place();
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
        let mut sealed = Held::default();
        let mut refused = 0;
        for round in 1..=rounds {
            if round.is_multiple_of(40) {
                let _ = fs::remove_file(sandbox.ledger_dir().join("ledger.redb"));
                sealed = Held::default();
            }
            let kind = KINDS[usize::try_from(draw.below(7)).unwrap()];
            let args = prepare(&sandbox, kind, round, &sealed);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let used: u64 = 4 + used_kib(&sandbox);
            assert!(mount(&format!("remount,size={}k", used + 4 * draw.below(60))));
            let said = sandbox.run(&args);
            let in_journals = opened(&sandbox);
            assert!(mount("remount,size=256m"));
            let when = format!("round {round}, {kind}, {said:?}");
            let told = format!("{}{}", said.out, said.err);
            assert!(!told.contains("panicked"), "{when}");
            let is_full = told.contains("o space left");
            assert!(said.code == Some(0) || is_full || has_nothing_to_change(kind, &said), "{when}");
            refused += u64::from(said.code != Some(0) && is_full);
            let now = check(&sandbox, &when);
            assert_eq!(losses(kind, &args, &sealed, &now), [""; 0], "{when}");
            assert_eq!(broken_words(kind, &args, &said, &in_journals, &sealed, &now), [""; 0], "{when}");
            sealed = now;
            if matches!(kind, "merge" | "import") {
                sandbox.run(&args).expect(0);
                sealed = held(&sandbox);
            }
        }
        println!("{rounds} changes on a disk that may be full: {refused} were refused for want of space");
        assert!(rounds < 100 || refused > 0, "the disk was never full");
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
    let sandbox = place();
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
    let there = check(&sandbox, "after many at once").attempts;
    assert_eq!(there.len(), expected);
    assert!(there.values().all(|(_, outcome)| outcome == "finished"), "{there:?}");
    println!("{processes} processes at once: exit codes {codes:?}, {expected} attempts, each once");
}
