//! What makes a record worth believing: reruns, and ledgers that are checked, moved and merged.

use crate::sandbox::{Said, Sandbox, WORKER};
use ledger::record::{Axis, Parts, Run, Series};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn a_rerun_says_whether_it_did_the_same() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(sandbox.json(&["rerun", "latest"], 0)["verdict"], "identical");
    // The program is the same, but it looks at something that is no part of the run.
    let moody =
        format!("{WORKER}\nif [ -e mood ]; then say '{{\"event\":\"step\",\"step\":6,\"values\":{{\"loss\":1}}}}'; fi");
    sandbox.sweep_manifest(&moody, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox.write("mood", "");
    let drifted = sandbox.json(&["rerun", "latest"], 5);
    assert_eq!(drifted["verdict"], "drifted");
    assert!(drifted["detail"].as_str().unwrap().contains("`loss` first differs at step 6"), "{drifted}");
    // Another program makes another run: that is said, and not executed.
    sandbox.sweep_manifest("exit 1", "1", "1");
    let before = sandbox.outcomes().len();
    assert!(sandbox.run(&["rerun", "latest"]).complaint(5).contains("program differs"));
    assert_eq!(sandbox.outcomes().len(), before);
    assert_eq!(sandbox.json(&["rerun", "latest", "--on-current"], 4)["verdict"], "failed");
    sandbox.json(&["verify"], 0);
}

/// A worker whose accuracy is that of the file `accuracy`, which is no part of the run.
const MOODY: &str = r#"
echo "{\"event\":\"step\",\"step\":1,\"values\":{\"loss\":1.5}}" >> "$LEDGER_EVENTS"
n=$(cat count); echo $((n + 1)) > count
echo "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.95$n}" >> "$LEDGER_EVENTS"
echo "{\"event\":\"digest\",\"name\":\"weights\",\"digest\":\"$(printf '%064d' $n)\"}" >> "$LEDGER_EVENTS"
"#;

#[test]
fn repeats_are_equivalent_within_a_stated_margin() {
    let sandbox = Sandbox::new();
    sandbox.write("count", "1");
    sandbox.sweep_manifest(MOODY, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let id = sandbox.json(&["ls"], 0)["attempts"][0]["attempt"].as_str().unwrap().to_owned();
    let drifted = sandbox.json(&["rerun", &id], 5);
    assert_eq!(drifted["reruns"][0]["digests"], serde_json::json!(["weights"]), "{drifted}");
    let equivalent = sandbox.json(&["rerun", &id, "--times", "3", "--margin", "1%"], 0);
    assert_eq!((&equivalent["verdict"], &equivalent["class"]), (&"equivalent".into(), &"unknown".into()));
    assert_eq!(equivalent["reruns"].as_array().unwrap().len(), 3);
    // One attempt before, three now: 0.951 and 0.953 to 0.955. What has drifted, 0.952, is no reference.
    let tested = equivalent["tested"].as_array().unwrap();
    let accuracy = tested.iter().find(|one| one["metric"] == "accuracy").unwrap();
    assert_eq!((accuracy["n_before"].as_i64(), accuracy["n_now"].as_i64()), (Some(1), Some(3)));
    assert!(accuracy["p"].as_f64().unwrap() < 0.05);
    let text = sandbox.run(&["rerun", &id, "--times", "2", "--margin", "0.0001"]).expect(5);
    assert!(
        text.starts_with("drifted: ") && text.contains("not shown to be within 0.0001: `accuracy` (p = "),
        "{text}"
    );
    assert!(text.contains("RERUN") && text.contains("METRIC"), "{text}");
    for margin in ["0", "-1%", "x"] {
        sandbox.run(&["rerun", &id, &format!("--margin={margin}")]).complaint(2);
    }
    sandbox.json(&["verify"], 0);
}

#[test]
fn what_changed_of_the_surroundings_is_named() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let rerun = sandbox.command(&["rerun", "latest", "--json"]).env("OMP_NUM_THREADS", "3").output().unwrap();
    assert!(String::from_utf8(rerun.stderr).unwrap().contains("OMP_NUM_THREADS  (absent)  3"));
    let document: serde_json::Value = serde_json::from_slice(&rerun.stdout).unwrap();
    assert_eq!(
        (&document["verdict"], &document["environment"][0]["field"]),
        (&"identical".into(), &"OMP_NUM_THREADS".into())
    );
}

#[test]
fn a_command_of_another_ledger_is_executed_only_on_trust() {
    let from = Sandbox::new();
    from.sweep_manifest(WORKER, "1", "1");
    from.run(&["run", "m.toml"]).expect(0);
    let to = Sandbox::new();
    let file = to.path("one.ledger");
    from.run(&["export", "latest", "-o", file.to_str().unwrap()]).expect(0);
    to.run(&["import", "one.ledger"]).expect(0);
    let refused = to.run(&["rerun", "latest"]).complaint(2);
    assert!(refused.contains("--trust") && refused.contains("worker.sh"), "{refused}");
    assert_eq!(to.outcomes().len(), 1);
    assert_eq!(to.json(&["rerun", "latest", "--trust"], 0)["verdict"], "identical");
}

fn one_run(script: &str, seed: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(script, "[1, 2]", seed);
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

#[test]
fn ledgers_are_merged_once_and_in_any_order() {
    let (a, b) = (one_run(WORKER, "1"), one_run(WORKER, "2"));
    a.run(&["tag", "latest", "baseline"]).expect(0);
    b.run(&["note", "latest", "the fan was noisy"]).expect(0);
    let (one, other) = (Sandbox::new(), Sandbox::new());
    let (from_a, from_b) = (a.ledger_dir(), b.ledger_dir().join("ledger.redb"));
    let (from_a, from_b) = (from_a.to_str().unwrap(), from_b.to_str().unwrap());
    let merged = one.json(&["merge", from_a, from_b], 0);
    assert_eq!((merged["merged"][0]["new"].as_i64(), merged["merged"][0]["entries"].as_i64()), (Some(2), Some(1)));
    other.run(&["merge", from_b]).expect(0);
    other.run(&["merge", from_a]).expect(0);
    assert_eq!(one.json(&["ls", "--all"], 0)["attempts"], other.json(&["ls", "--all"], 0)["attempts"]);
    assert_eq!(one.json(&["show", "baseline"], 0), other.json(&["show", "baseline"], 0));
    let again = one.json(&["merge", from_a, from_b], 0);
    for merged in again["merged"].as_array().unwrap() {
        assert_eq!(
            (merged["new"].as_i64(), merged["known"].as_i64(), merged["entries"].as_i64()),
            (Some(0), Some(2), Some(0))
        );
    }
    assert_eq!(one.json(&["verify", "--deep"], 0)["pages"], true);
    let own = one.ledger_dir();
    assert!(one.run(&["merge", own.to_str().unwrap()]).complaint(2).contains("this ledger itself"));
    assert!(one.run(&["merge", "nowhere"]).complaint(2).contains("no ledger at `nowhere`"));
}

/// The files below a folder.
fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn git(sandbox: &Sandbox, args: &[&str]) {
    let done = std::process::Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(args)
        .current_dir(sandbox.path("."))
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_pack_holds_all_that_belongs_to_a_run_and_no_secret() {
    let from = Sandbox::new();
    from.sweep_manifest(WORKER, "[1, 2]", "1");
    git(&from, &["init", "-q"]);
    git(&from, &["add", "worker.sh"]);
    git(&from, &["commit", "-qm", "one"]);
    // Planted: in what the repository has changed, in the manifest, in the environment.
    let secrets = ["ghp_0123456789abcdefghij", "hunter2hunter2x9", "xyzzyxyzzy1234"];
    from.write("worker.sh", format!("{WORKER}\n# {}\nAPI_KEY=\"{}\"\n", secrets[0], secrets[1]));
    let manifest = std::fs::read_to_string(from.path("m.toml")).unwrap();
    from.write("m.toml", format!("# token: {}\n{manifest}", secrets[0]));
    let run = from.command(&["run", "m.toml"]).env("TORCH_API_TOKEN", secrets[2]).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let packed = from.json(&["pack", "latest", "latest~1", "-o", "two.pack"], 0);
    assert_eq!((packed["attempts"].as_array().unwrap().len(), packed["sources"].as_i64()), (2, Some(3)));
    from.run(&["pack", "latest", "-o", "two.pack"]).complaint(2);
    let bytes = std::fs::read(from.path("two.pack")).unwrap();
    let ledger = std::fs::read(from.ledger_dir().join("ledger.redb")).unwrap();
    for secret in secrets {
        for (place, bytes) in [("the pack", &bytes), ("the ledger", &ledger)] {
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in {place}");
        }
    }
    let to = Sandbox::new();
    let before = files(&to.path("."));
    to.write("two.pack", &bytes);
    std::fs::create_dir(to.path("sources")).unwrap();
    let unpacked = to.json(&["unpack", "two.pack", "--sources", "sources"], 0);
    assert_eq!(unpacked["imported"].as_array().unwrap().len(), 2);
    assert_eq!(from.json(&["show", "latest"], 0)["attempts"], to.json(&["show", "latest"], 0)["attempts"]);
    let names: Vec<String> = files(&to.path("sources"))
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let [file, manifest, patch] = [&names[0], &names[1], &names[2]];
    assert!(file.starts_with("file-") && manifest.starts_with("manifest-") && patch.starts_with("patch-"), "{names:?}");
    let file = std::fs::read_to_string(to.path("sources").join(file)).unwrap();
    assert!(file.contains("API_KEY=\"(redacted)\"") && file.contains("# (redacted)"), "{file}");
    let patch = std::fs::read_to_string(to.path("sources").join(patch)).unwrap();
    assert!(patch.contains("+API_KEY=\"(redacted)\"") && patch.contains("+# (redacted)"), "{patch}");
    let manifest = std::fs::read_to_string(to.path("sources").join(manifest)).unwrap();
    assert!(manifest.contains("# token: (redacted)") && manifest.contains("name = \"toy\""), "{manifest}");
    // Nothing lies anywhere else.
    let new: Vec<_> = files(&to.path(".")).into_iter().filter(|path| !before.contains(path)).collect();
    let expected = |path: &std::path::PathBuf| {
        ["two.pack", "ledger.redb"].iter().any(|name| path.ends_with(name)) || path.starts_with(to.path("./sources"))
    };
    assert!(new.iter().all(expected), "{new:?}");
    to.json(&["verify", "--deep"], 0);
    // Never over what is there, and then nothing is taken in either.
    to.run(&["unpack", "two.pack", "--sources", "sources"]).complaint(2);
    let other = Sandbox::new();
    other.write("two.pack", &bytes);
    std::fs::create_dir(other.path("sources")).unwrap();
    other.write(&format!("sources/{}", names[1]), "mine");
    other.run(&["unpack", "two.pack", "--sources", "sources"]).complaint(2);
    assert!(!other.ledger_dir().join("ledger.redb").exists());
    // Two packs of one manifest have it in common.
    std::fs::remove_file(other.path("sources").join(&names[1])).unwrap();
    from.run(&["pack", "latest~1", "-o", "first.pack"]).expect(0);
    other.write("first.pack", std::fs::read(from.path("first.pack")).unwrap());
    other.run(&["unpack", "first.pack", "two.pack", "--sources", "sources"]).expect(0);
    assert_eq!(files(&other.path("sources")).len(), 3);
}

/// A pack that nobody of good will writes: each name in it climbs out of the folder that it is put into.
fn hostile(pack: &[u8]) -> Vec<u8> {
    const UP: &str = "../../../../evil";
    let mut packed = ledger::wire::decode_packed(pack).unwrap();
    let sealed = &mut packed.attempts[0];
    let mut config = sealed.run.config().clone();
    config.insert("model.name".to_owned(), UP.into());
    // Two of its program's files are one text, of which one climbs out.
    let mut program = sealed.run.parts.program.as_table().unwrap().clone();
    let mut named = program["files"].as_table().unwrap().clone();
    named.insert(UP.to_owned(), named["worker.sh"].clone());
    named.insert("/tmp/evil".to_owned(), named["worker.sh"].clone());
    program.insert("files".to_owned(), named.clone().into());
    sealed.attempt.facts.insert("program.sources".to_owned(), named.into());
    let parts = Parts { config: config.into(), program: program.into(), ..sealed.run.parts.clone() };
    sealed.run = Run::new(parts);
    sealed.attempt.run = sealed.run.id;
    sealed.attempt.settings.insert("experiment.name".to_owned(), UP.into());
    sealed.attempt.facts.insert("git.patch".to_owned(), "/tmp/evil".into());
    sealed.attempt.facts.insert("image.path".to_owned(), UP.into());
    for (number, series) in sealed.series.iter_mut().enumerate() {
        series.name = format!("{UP}/{number}");
    }
    sealed.attempt.series = sealed.series.iter().map(Series::summary).collect();
    let metric = sealed.attempt.metrics.values().next().unwrap().clone();
    sealed.attempt.metrics.insert(format!("/{UP}"), metric);
    ledger::wire::encode_packed(&packed).unwrap()
}

#[test]
fn a_name_in_a_pack_is_no_path() {
    let from = Sandbox::new();
    from.sweep_manifest(WORKER, "1", "1");
    from.run(&["run", "m.toml"]).expect(0);
    from.run(&["pack", "latest", "-o", "one.pack"]).expect(0);
    let to = Sandbox::new();
    to.write("one.pack", hostile(&std::fs::read(from.path("one.pack")).unwrap()));
    let inside = to.path("a/b/c");
    std::fs::create_dir_all(&inside).unwrap();
    to.run(&["unpack", "one.pack", "--sources", "a/b/c"]).expect(0);
    assert_eq!(files(&inside).len(), 2, "the manifest and the program's file, by their digests");
    to.run(&["replay", "one.pack", "--sources", "a/b/c/kept"]).expect(1);
    assert_eq!(files(&inside.join("kept")), [inside.join("kept/worker.sh")]);
    std::fs::remove_dir_all(inside.join("kept")).unwrap();
    let before: Vec<_> = files(&to.path(".")).into_iter().filter(|path| !path.starts_with(to.ledger_dir())).collect();
    for form in ["mlflow", "tensorboard", "mllog", "perfetto"] {
        to.run(&["export", "--to", form, "-o", &format!("a/b/c/{form}")]).expect(0);
    }
    to.run(&["export", "latest", "--ro-crate", "a/b/c/crate"]).expect(0);
    let said = to.run(&["export", "latest", "--ro-crate", "a/b/c/crate"]).complaint(2);
    assert!(said.contains("(a folder has this name; --ro-crate with another name makes another one)"), "{said}");
    let said = to.run(&["export", "latest", "--ro-crate", "a/b/c/other", "--license", "MIT"]).complaint(2);
    assert!(said.contains("https://spdx.org/licenses/MIT"), "{said}");
    assert_eq!(std::fs::read_dir(&inside).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 5);
    to.run(&["report", "--all", "-o", "a/b/c/report"]).expect(0);
    to.run(&["export", "latest", "-o", "a/b/c/latest.ledger"]).expect(0);
    let after = files(&to.path("."));
    let is_new = |path: &&std::path::PathBuf| !before.contains(path) && !path.starts_with(to.ledger_dir());
    let new: Vec<_> = after.iter().filter(is_new).collect();
    assert!(new.len() > 10, "{new:?}");
    for path in new {
        assert!(path.starts_with(&inside), "{} was written outside", path.display());
    }
    let above = to.path(".").canonicalize().unwrap();
    let above = above.parent().unwrap();
    assert!(!above.join("evil").exists() && !std::path::Path::new("/tmp/evil").exists());
}

/// A pack of one attempt whose series have these names, two of one name being different series.
fn with_series(pack: &[u8], names: &[&str]) -> Vec<u8> {
    let mut packed = ledger::wire::decode_packed(pack).unwrap();
    let sealed = &mut packed.attempts[0];
    sealed.series = names.iter().map(|name| Series::new(*name, "", Axis::Step)).collect();
    sealed.series.iter_mut().zip([1.5, 2.5]).for_each(|(series, value)| series.push(1, value));
    sealed.attempt.series = sealed.series.iter().map(Series::summary).collect();
    ledger::wire::encode_packed(&packed).unwrap()
}

#[test]
fn a_pack_whose_series_cannot_be_kept_by_their_names_is_refused() {
    let from = one_run(WORKER, "1");
    from.run(&["pack", "latest", "-o", "one.pack"]).expect(0);
    let pack = std::fs::read(from.path("one.pack")).unwrap();
    let to = Sandbox::new();
    for (names, why) in [(["loss", "loss"], "two series are named `loss`"), (["loss", ""], "a series has no name")] {
        to.write("one.pack", with_series(&pack, &names));
        for args in [&["unpack", "one.pack"][..], &["import", "one.pack"], &["replay", "one.pack", "--trust"]] {
            let said = to.run(args).complaint(2);
            assert!(said.contains(why), "{args:?}: {said}");
        }
    }
    assert!(!to.ledger_dir().exists(), "nothing was taken in");
    to.write("one.pack", with_series(&pack, &["loss", "loss2"]));
    to.run(&["unpack", "one.pack"]).expect(0);
    to.json(&["verify", "--deep"], 0);
}

#[test]
fn a_pack_comes_through_a_pipe_too() {
    use std::io::Write;
    let from = one_run(WORKER, "1");
    from.run(&["pack", "latest", "-o", "one.pack"]).expect(0);
    let pack = std::fs::read(from.path("one.pack")).unwrap();
    let to = Sandbox::new();
    std::fs::create_dir(to.path("sources")).unwrap();
    let mut command = to.command(&["unpack", "/dev/stdin", "--sources", "sources"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&pack).unwrap();
    let said = Sandbox::finish(child).expect(0);
    assert!(said.contains("new    /dev/stdin"), "{said}");
    assert_eq!(files(&to.path("sources")).len(), 2, "the manifest and the program's file");
    assert_eq!(from.json(&["show", "latest"], 0)["attempts"], to.json(&["show", "latest"], 0)["attempts"]);
}

#[test]
fn a_replay_says_what_would_differ_and_executes_on_trust_alone() {
    let from = one_run(WORKER, "1");
    from.run(&["pack", "latest", "-o", "one.pack"]).expect(0);
    let ran = |sandbox: &Sandbox| sandbox.outcomes().len();
    let check = from.json(&["replay", "one.pack"], 0);
    assert_eq!((&check["same_run"], &check["executed"]), (&true.into(), &false.into()));
    assert!(from.run(&["replay", "one.pack"]).expect(0).contains("--trust would execute [\"sh\", \"worker.sh\""));
    // Its program has changed since in the folder that the record names; the pack has it as it was.
    from.write("worker.sh", "exit 1");
    let changed = from.path(".").display().to_string();
    let to = Sandbox::new();
    to.write("one.pack", std::fs::read(from.path("one.pack")).unwrap());
    assert_eq!(to.json(&["replay", "one.pack"], 0)["same_run"], true);
    // One that was killed left its files behind; another one is at work.
    let mut killed = std::process::Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let folder = |process: u32| to.path(&format!("temp/.ledger-replay.files-{process}-0"));
    let [left, living] = [killed.id(), std::process::id()].map(folder);
    for folder in [&left, &living] {
        std::fs::create_dir_all(folder.join("program")).unwrap();
    }
    let said = Said::new(to.command(&["replay", "one.pack"]).env("TMPDIR", to.path("temp")).output().unwrap());
    assert_eq!((said.code, left.exists(), living.exists()), (Some(0), false, true), "{}", said.err);
    assert_eq!(std::fs::read_dir(to.path("temp")).unwrap().count(), 1, "its own is gone too");
    let text = to.run(&["replay", "one.pack", "--in", &changed]).expect(1);
    assert!(text.contains("program differs") && text.contains("--trust --on-current would execute"), "{text}");
    assert!(!to.ledger_dir().exists(), "looking makes nothing");
    assert!(to.run(&["replay", "one.pack", "--trust", "--in", &changed]).complaint(5).contains("program differs"));
    assert_eq!(ran(&to), 1, "it is taken in, and not executed");
    from.write("worker.sh", WORKER);
    assert_eq!(to.json(&["replay", "one.pack", "--trust"], 0)["verdict"], "identical");
    assert_eq!(ran(&to), 2);
    to.run(&["replay", "one.pack", "0000"]).complaint(1);
    to.write("bad.pack", b"ledger\0\x02hello");
    assert!(to.run(&["replay", "bad.pack"]).complaint(2).contains("damaged"));
    to.write("new.pack", b"ledger\0\x04hello");
    assert!(to.run(&["unpack", "new.pack"]).complaint(2).contains("reads up to 3"));
    let huge = std::fs::File::create(to.path("huge.pack")).unwrap();
    huge.set_len((1 << 30) + 1).unwrap();
    assert!(to.run(&["unpack", "huge.pack"]).complaint(2).contains("more than 1 GiB"));
}

#[test]
fn what_is_attested_is_checked_by_ssh_keygen_and_by_verify() {
    let sandbox = one_run(WORKER, "1");
    let keygen =
        |args: &[&str]| std::process::Command::new("ssh-keygen").args(args).current_dir(sandbox.path(".")).output();
    if keygen(&["-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", "key"]).is_err() {
        // No ssh-keygen on this machine: its own signatures are compared in the library's tests.
        return;
    }
    let early = sandbox.json(&["attest", "--key", "key", "-o", "early.head"], 0);
    assert_eq!(early["files"], serde_json::json!(["early.head", "early.head.sig"]));
    let public = std::fs::read_to_string(sandbox.path("key.pub")).unwrap();
    sandbox.write("allowed", format!("me {public}"));
    let verified = std::process::Command::new("ssh-keygen")
        .args(["-Y", "verify", "-f", "allowed", "-I", "me", "-n", "ledger-head", "-s", "early.head.sig"])
        .current_dir(sandbox.path("."))
        .stdin(std::fs::File::open(sandbox.path("early.head")).unwrap())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    let check = |file: &str, key: &str, code: i32| sandbox.json(&["verify", "--attested", file, "--key", key], code);
    assert!(check("early.head", "key.pub", 0)["notes"][0].as_str().unwrap().contains("the first 2 of 2 log entries"));
    let before = std::fs::read(sandbox.ledger_dir().join("ledger.redb")).unwrap();
    sandbox.run(&["tag", "latest", "baseline"]).expect(0);
    assert!(check("early.head", "key.pub", 0)["notes"][0].as_str().unwrap().contains("the first 2 of 3 log entries"));
    sandbox.run(&["attest", "--key", "key", "-o", "late.head"]).expect(0);
    // An envelope about one attempt.
    sandbox.run(&["attest", "latest", "--key", "key", "-o", "run.json"]).expect(0);
    check("run.json", "key.pub", 0);
    // Another key, another text, a ledger that was put back to what it was.
    keygen(&["-q", "-t", "ed25519", "-N", "", "-f", "other"]).unwrap();
    for file in ["early.head", "run.json"] {
        // The ledger has nothing to do with whose key it is.
        let told = check(file, "other.pub", 1);
        assert_eq!((&told["sound"], &told["attested"]), (&true.into(), &false.into()));
        let text = sandbox.run(&["verify", "--attested", file, "--key", "other.pub"]).expect(1);
        assert!(text.contains("sound, but NOT AS ATTESTED: ") && !text.contains("DAMAGED"), "{text}");
        assert!(check(file, "other.pub", 1)["faults"][0]["fault"].as_str().unwrap().contains("from another key"));
    }
    std::fs::write(sandbox.ledger_dir().join("ledger.redb"), before).unwrap();
    assert!(check("late.head", "key.pub", 1)["faults"][0]["fault"].as_str().unwrap().contains("entries were lost"));
    let head = std::fs::read_to_string(sandbox.path("early.head")).unwrap();
    std::fs::write(sandbox.path("early.head"), head.replace("entries 2", "entries 1")).unwrap();
    check("early.head", "key.pub", 1);
    sandbox.run(&["verify", "--attested", "early.head"]).complaint(2);
    sandbox.run(&["attest", "--key", "absent", "-o", "x"]).complaint(2);
    // Whoever was killed between the two names has left a signature alone.
    std::fs::copy(sandbox.path("late.head.sig"), sandbox.path("again.head.sig")).unwrap();
    sandbox.run(&["attest", "--key", "key", "-o", "again.head"]).expect(0);
    check("again.head", "key.pub", 0);
    assert!(
        sandbox
            .run(&["attest", "--key", "key", "-o", "again.head"])
            .complaint(2)
            .contains("(choose another name with -o)")
    );
    sandbox.write("mine.head.sig", "a signature of somebody else");
    assert!(sandbox.run(&["attest", "--key", "key", "-o", "mine.head"]).complaint(2).contains("mine.head.sig"));
    assert!(!sandbox.path("mine.head").exists());
    std::fs::set_permissions(sandbox.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(sandbox.run(&["attest", "--key", "key", "-o", "x"]).complaint(2).contains("mode 0644"));
    sandbox.run(&["attest", "-o", "x"]).complaint(2);
    keygen(&["-q", "-t", "ed25519", "-N", "secret", "-f", "locked"]).unwrap();
    assert!(sandbox.run(&["attest", "--key", "locked", "-o", "x"]).complaint(2).contains("ssh-keygen -Y sign"));
    sandbox.run(&["attest", "--statement", "-o", "plain.head"]).expect(0);
}

#[test]
fn a_replay_asks_no_repository_and_reads_no_device_before_it_is_trusted() {
    let from = Sandbox::new();
    from.sweep_manifest(WORKER, "1", "1");
    git(&from, &["init", "-q"]);
    from.write(".gitattributes", "worker.sh filter=f\n");
    git(&from, &["add", "worker.sh", ".gitattributes"]);
    git(&from, &["commit", "-qm", "one"]);
    from.run(&["run", "m.toml"]).expect(0);
    from.run(&["pack", "latest", "-o", "one.pack"]).expect(0);
    // What a git without care would execute if it was asked whether the file has changed.
    let trap = from.path("sprung");
    let touch = format!("touch '{}'; cat", trap.display());
    git(&from, &["config", "filter.f.clean", &touch]);
    from.write("worker.sh", format!("{WORKER} "));
    let to = Sandbox::new();
    to.write("one.pack", std::fs::read(from.path("one.pack")).unwrap());
    let folder = from.path(".").display().to_string();
    let text = to.run(&["replay", "one.pack", "--in", &folder]).expect(1);
    assert!(text.contains("program differs") && !text.contains("git_"), "{text}");
    to.run(&["replay", "one.pack"]).expect(0);
    to.run(&["import", "one.pack"]).expect(0);
    to.run(&["rerun", "latest"]).complaint(2);
    assert!(!trap.exists(), "git was asked in a folder that a pack names");
    for args in [&["run", "m.toml", "--dry-run"][..], &["plan", "m.toml"], &["run", "m.toml"]] {
        from.run(args);
        assert!(!trap.exists(), "{args:?} executed a filter of the repository");
    }
    git(&from, &["diff"]);
    assert!(trap.exists(), "the trap works");
    // A pipe that nobody writes into.
    std::fs::remove_file(from.path("worker.sh")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(from.path("worker.sh")).status().unwrap();
    assert!(made.success());
    to.run(&["replay", "one.pack", "--in", &folder]).expect(1);
}

#[test]
fn a_command_of_a_copied_ledger_is_executed_only_on_trust() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    // Another user, or another machine: its home does not hold the key.
    std::fs::create_dir(sandbox.path("other")).unwrap();
    let as_other =
        |args: &[&str]| Said::new(sandbox.command(args).env("HOME", sandbox.path("other")).output().unwrap());
    let refused = as_other(&["rerun", "latest"]).complaint(2);
    assert!(refused.contains("from another ledger, user or machine") && refused.contains("worker.sh"), "{refused}");
    assert_eq!(sandbox.outcomes().len(), 1);
    as_other(&["rerun", "latest", "--trust"]).expect(0);
    // A folder that its own user moves stays her own.
    std::fs::rename(sandbox.ledger_dir(), sandbox.path("moved")).unwrap();
    let moved = sandbox.path("moved");
    sandbox.run(&["--ledger", moved.to_str().unwrap(), "rerun", "latest~1"]).expect(0);
}

#[test]
fn a_mark_is_of_its_own_run_and_settings() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    let mark = attempt["facts"]["execution.mark"].as_str().unwrap_or_default().to_owned();
    assert_eq!(mark.len(), 64, "{attempt}");
}

#[test]
fn a_ledger_above_that_everybody_may_write_to_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    std::fs::create_dir(sandbox.path("deep")).unwrap();
    let found = |variable: Option<(&str, &std::path::Path)>, args: &[&str]| {
        let mut command = sandbox.command(args);
        command.env_remove("LEDGER_DIR").envs(variable).current_dir(sandbox.path("deep"));
        Said::new(command.output().unwrap())
    };
    found(None, &["ls"]).expect(0);
    std::fs::set_permissions(sandbox.ledger_dir(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = found(None, &["ls"]).complaint(3);
    assert!(refused.contains("every user may write to") && refused.contains("LEDGER_SAFE="), "{refused}");
    let ledger = sandbox.ledger_dir();
    found(Some(("LEDGER_SAFE", &ledger)), &["ls"]).expect(0);
    found(Some(("LEDGER_DIR", &ledger)), &["ls"]).expect(0);
    found(None, &["ls", "--ledger", ledger.to_str().unwrap()]).expect(0);
    found(None, &["schema"]).expect(0);
}
