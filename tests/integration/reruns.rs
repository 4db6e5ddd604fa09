//! What a rerun is held against, what it says of where it was executed, and where its verdict can be read.

use crate::sandbox::{Sandbox, WORKER};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// The worker of the tests, which does something else where there is a file `mood`.
fn moody() -> Sandbox {
    moody_with("1")
}

/// The same with these values of `x`.
fn moody_with(x: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    let script =
        format!("{WORKER}\nif [ -e mood ]; then say '{{\"event\":\"step\",\"step\":6,\"values\":{{\"loss\":1}}}}'; fi");
    sandbox.sweep_manifest(&script, x, "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn git(folder: &std::path::Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let done = Command::new("git").args(identity).args(args).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_drift_stays_one_and_is_told_everywhere() {
    let sandbox = moody();
    let first = sandbox.json(&["ls"], 0)["attempts"][0].clone();
    let (run, original) = (text(&first, "run").to_owned(), text(&first, "attempt").to_owned());
    sandbox.write("mood", "");
    for name in ["latest", "latest", &run] {
        let drifted = sandbox.json(&["rerun", name], 5);
        assert_eq!((text(&drifted, "verdict"), text(&drifted, "original")), ("drifted", original.as_str()), "{name}");
    }
    // One that is named by its own id is meant itself.
    let listed = sandbox.json(&["ls"], 0);
    let rerun = text(&listed["attempts"][0], "attempt").to_owned();
    assert_eq!(listed["attempts"][0]["verdict"], "drifted");
    assert_eq!(listed["attempts"][3]["verdict"], Value::Null);
    let named = sandbox.command(&["rerun", &rerun]).output().unwrap();
    assert_eq!(named.status.code(), Some(0), "{named:?}");
    let note = format!("note: {} is itself a rerun of {}, with the verdict `drifted`", &rerun[..8], &original[..8]);
    assert!(err(&named).contains(&note), "{}", err(&named));
    let list = sandbox.run(&["ls"]).expect(0);
    let named = format!("{} of {}", &rerun[..8], &original[..8]);
    assert!(list.contains("finished (rerun: drifted)") && list.contains(&named), "{list}");
    let shown = sandbox.run(&["show", &rerun]).expect(0);
    assert!(shown.contains(&format!("verdict  drifted, as a rerun of {}, ", &original[..8])), "{shown}");
    assert!(shown.contains("`loss` first differs at step 6"), "{shown}");
    let shown = sandbox.json(&["show", &original], 0);
    let verdicts = shown["origins"][0]["verdicts"].as_array().unwrap();
    assert_eq!((verdicts.len(), &shown["origins"][0]["imported"]), (3, &false.into()));
    assert!(sandbox.run(&["show", &original]).expect(0).contains("rerun    drifted, by "));
    for (note, command) in [
        ("the ranking includes drifted reruns: ", &["best", "--model", "toy", "--metric", "accuracy"][..]),
        ("the front includes drifted reruns: ", &["pareto", "--model", "toy", "--metrics", "accuracy,wall_time"]),
    ] {
        let said = err(&sandbox.command(command).output().unwrap());
        assert!(said.contains(note) && said.contains(&rerun[..8]), "{said}");
    }
    let said = err(&sandbox.command(&["compare", &rerun, &original]).output().unwrap());
    assert!(said.contains(&format!("note: {} is a drifted rerun\n", &rerun[..8])), "{said}");
    assert!(!said.contains(&format!("note: {} is a drifted rerun\n", &original[..8])), "{said}");
    // Of a run one attempt is shown.
    let said = err(&sandbox.command(&["compare", &run, &rerun]).output().unwrap());
    assert!(
        said.contains(&format!("note: of run {run} its newest attempt ")) && said.contains(" is shown, of "),
        "{said}"
    );
    sandbox.json(&["verify"], 0);
}

#[test]
fn effects_name_the_drifted_reruns_among_their_attempts() {
    let sandbox = moody_with("[1, 2]");
    let ask = ["effects", "--model", "toy", "--metric", "loss", "--axes", "x"];
    assert!(!sandbox.run(&ask).expect(0).contains("drifted"));
    sandbox.write("mood", "");
    sandbox.json(&["rerun", "latest"], 5);
    let rerun = text(&sandbox.json(&["ls"], 0)["attempts"][0], "attempt")[..8].to_owned();
    let said = sandbox.run(&ask).expect(0);
    assert!(said.contains(&format!("note: the analysis includes drifted reruns: {rerun} ")), "{said}");
}

#[test]
fn a_packed_rerun_says_so_wherever_it_comes() {
    let sandbox = moody();
    let original = text(&sandbox.json(&["ls"], 0)["attempts"][0], "attempt").to_owned();
    sandbox.write("mood", "");
    sandbox.json(&["rerun", "latest"], 5);
    let rerun = text(&sandbox.json(&["ls"], 0)["attempts"][0], "attempt").to_owned();
    let packed = sandbox.command(&["pack", &rerun, "-o", "rerun.pack"]).output().unwrap();
    let note = format!("note: {} is a rerun of {} (drifted), which the pack", &rerun[..8], &original[..8]);
    assert!(err(&packed).contains(&note), "{}", err(&packed));
    sandbox.run(&["pack", &original, &rerun, "-o", "both.pack"]).expect(0);
    let said = sandbox.run(&["replay", "both.pack"]).complaint(2);
    assert!(said.contains(&format!("{} (a rerun of {})", &rerun[..8], &original[..8])), "{said}");

    let to = Sandbox::new();
    to.write("rerun.pack", fs::read(sandbox.path("rerun.pack")).unwrap());
    let note = format!("note: {} is itself a rerun of {}", &rerun[..8], &original[..8]);
    for args in [&["replay", "rerun.pack"][..], &["unpack", "rerun.pack"], &["replay", "rerun.pack", "--trust"]] {
        let said = to.command(args).output().unwrap();
        assert_eq!(said.status.code(), Some(0), "{said:?}");
        assert!(err(&said).contains(&note), "{args:?}: {}", err(&said));
    }
    to.run(&["hide", &rerun[..16]]).expect(0);
    let listed = to.run(&["ls", "--hidden"]).expect(0);
    assert!(listed.contains("(rerun: no verdict, imported, hidden)"), "{listed}");
    let said = to.run(&["unpack", "rerun.pack", "--sources", "nowhere"]).complaint(2);
    assert!(said.contains("--sources: `nowhere` is not a folder (create it first)"), "{said}");
}

#[test]
fn what_on_current_accepts_is_told_and_kept() {
    let sandbox = moody();
    let script = fs::read_to_string(sandbox.path("worker.sh")).unwrap();
    sandbox.write("worker.sh", format!("{script}\n# another program that does the same\n"));
    let output = sandbox.command(&["rerun", "latest", "--on-current", "--json"]).output().unwrap();
    assert!(err(&output).contains("accepted by --on-current:\nprogram differs"), "{}", err(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((text(&document, "verdict"), text(&document, "detail")), ("identical", "another run id, by `program`"));
    assert_eq!(
        (&document["parts"][0]["part"], &document["reruns"][0]["parts"][0]),
        (&"program".into(), &"program".into())
    );
    assert!(sandbox.run(&["show", "latest"]).expect(0).contains("UTC: another run id, by `program`"));
    let text = sandbox.run(&["rerun", "latest", "--on-current"]).expect(0);
    assert!(text.starts_with("identical: ") && text.contains("; another run id, by `program`"), "{text}");
}

#[test]
fn libraries_that_were_replaced_are_named() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let Some(library) =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libgcc_s"))
    else {
        return;
    };
    let sandbox = Sandbox::new();
    let mut content = fs::read(library).unwrap();
    sandbox.write("libgomp.so.1", &content);
    sandbox.sweep_manifest(&format!("{WORKER}\nLD_PRELOAD=\"$PWD/libgomp.so.1\" sleep 0.5"), "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    content.push(0);
    fs::remove_file(sandbox.path("libgomp.so.1")).unwrap();
    sandbox.write("libgomp.so.1", &content);
    let output = sandbox.command(&["rerun", "latest", "--json"]).output().unwrap();
    let said = err(&output);
    assert!(said.contains("also changed, as seen during execution:"), "{said}");
    assert!(said.contains("libgomp.so.1") && said.contains("sha256"), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(text(&document, "verdict"), "identical");
    let fields = document["environment"].as_array().unwrap().iter().map(|change| text(change, "field"));
    assert!(fields.clone().any(|field| field.contains("libgomp")), "{document}");
}

#[test]
fn each_manifest_has_the_state_of_its_own_repository() {
    let sandbox = Sandbox::new();
    let mut commits = Vec::new();
    for (name, x) in [("one", "1"), ("two", "2")] {
        sandbox.sweep_manifest(WORKER, x, "1");
        let folder = sandbox.path(name);
        fs::create_dir(&folder).unwrap();
        for file in ["m.toml", "worker.sh"] {
            fs::rename(sandbox.path(file), folder.join(file)).unwrap();
        }
        git(&folder, &["init", "-q"]);
        git(&folder, &["add", "."]);
        git(&folder, &["commit", "-qm", name]);
        commits.push(git(&folder, &["rev-parse", "HEAD"]));
    }
    // Of the second, a patch belongs to it.
    let changed = format!("{WORKER}\n# changed\n");
    sandbox.write("two/worker.sh", &changed);
    sandbox.run(&["run", "one/m.toml", "two/m.toml"]).expect(0);
    let facts = |name: &str| {
        let shown = sandbox.json(&["show", name], 0);
        let commit = text(&shown["attempts"][0]["facts"], "git.commit").to_owned();
        (commit, shown["attempts"][0]["facts"]["git.patch"].clone(), text(&shown["attempts"][0], "run").to_owned())
    };
    let (second, first) = (facts("latest"), facts("latest~1"));
    assert_eq!([&first.0, &second.0], [&commits[0], &commits[1]]);
    assert!(first.1.is_null() && second.1.is_string(), "{first:?} {second:?}");
    // A rerun is made from the same repository, and its pack has the patch.
    sandbox.run(&["rerun", "latest"]).expect(0);
    let rerun = facts("latest");
    assert_eq!(rerun, second);
    let packed = sandbox.json(&["pack", "latest", "-o", "rerun.pack"], 0);
    assert_eq!((packed["sources"].as_i64(), packed["missing"].as_array().unwrap().len()), (Some(3), 0));
    assert_eq!(sandbox.json(&["verify"], 0)["notes"], serde_json::json!([]));
}

#[test]
fn a_patch_that_is_too_long_is_told_of() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.write("large.txt", "a\n");
    git(&sandbox.path("."), &["init", "-q"]);
    git(&sandbox.path("."), &["add", "large.txt", "worker.sh"]);
    git(&sandbox.path("."), &["commit", "-qm", "one"]);
    sandbox.write("large.txt", "a line of sixteen\n".repeat(300_000));
    let ran = sandbox.command(&["run", "m.toml"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(err(&ran).contains("is not kept: it has more than 4 MiB"), "{}", err(&ran));
    let shown = sandbox.json(&["show", "latest"], 0);
    assert_eq!(shown["attempts"][0]["facts"]["git.patch_kept"], "no: it has more than 4 MiB");
    let packed = sandbox.command(&["pack", "latest", "-o", "one.pack", "--json"]).output().unwrap();
    let document: Value = serde_json::from_slice(&packed.stdout).unwrap();
    assert_eq!(document["missing"][0]["kind"], "patch", "{document}");
    assert!(err(&packed).contains("note: without patch "), "{}", err(&packed));
    let to = Sandbox::new();
    to.write("one.pack", fs::read(sandbox.path("one.pack")).unwrap());
    let unpacked = to.command(&["unpack", "one.pack"]).output().unwrap();
    assert!(err(&unpacked).contains("not in `one.pack`"), "{}", err(&unpacked));
    assert!(
        err(&unpacked).contains("gives a different run id here (changed: `program`")
            || err(&unpacked).contains("gives the same run id here")
    );
    let verified = sandbox.json(&["verify"], 0);
    assert!(
        text(&verified["notes"], "0").is_empty() && verified["notes"][0].as_str().unwrap().contains("such as patch")
    );
}

#[test]
fn a_secret_in_a_parameter_is_refused_and_a_doubtful_name_is_told() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "1", "1");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    let with = |line: &str| sandbox.write("m.toml", manifest.replace("[params]\n", &format!("[params]\n{line}\n")));
    with("hub = \"hf_AbCdEfGhIjKlMnOpQrSt\"");
    let said = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(said.contains("`m.toml`: `params.hub` holds a token") && !said.contains("AbCdEf"), "{said}");
    for (field, name) in [("description", "experiment.description"), ("name", "experiment.name")] {
        let line = format!("{field} = \"with https://me:pw98765@host/\"\n");
        let rest = manifest.replace("name = \"toy\"\nseed", "seed");
        let text = if field == "name" { rest } else { manifest.clone() };
        sandbox.write("m.toml", line + &text);
        let said = sandbox.run(&["run", "m.toml"]).complaint(2);
        assert!(said.contains(&format!("`{name}` holds a token")) && !said.contains("pw98765"), "{said}");
    }
    assert!(!sandbox.ledger_dir().join("ledger.redb").exists());
    with("pad_token = \"[PAD]\"");
    let ran = sandbox.command(&["run", "m.toml"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(err(&ran).contains("warning: `m.toml`: `params.pad_token` is recorded as it is"), "{}", err(&ran));
}

#[test]
fn what_a_worker_says_is_kept_without_secrets() {
    let sandbox = Sandbox::new();
    let script = r#"
        say() { echo "$1" >> "$LEDGER_EVENTS"; }
        say '{"event":"fact","name":"hub_token","value":"a1b2c3d4e5"}'
        say 'ghp_one0123456789abcdef is no event'
        say '{"event":"failure","message":"401 of https://me:hunter2@host/"}'
        echo "out ghp_two0123456789abcdef"; echo "PASSWORD=swordfish" >&2; exit 3
    "#;
    sandbox.sweep_manifest(script, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(4);
    let shown = sandbox.run(&["show", "latest"]).expect(0);
    for secret in ["a1b2c3d4e5", "ghp_", "hunter2", "swordfish"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    for kept in ["401 of https://(redacted)@host/", "| out (redacted)", "| PASSWORD=(redacted)", "worker.hub_token"] {
        assert!(shown.contains(kept), "{kept}: {shown}");
    }
    sandbox.json(&["verify"], 0);
}

#[test]
fn a_program_that_lies_elsewhere_is_named_and_found() {
    let from = moody();
    from.run(&["pack", "latest", "-o", "one.pack"]).expect(0);
    let to = Sandbox::new();
    to.write("one.pack", fs::read(from.path("one.pack")).unwrap());
    fs::create_dir(to.path("here")).unwrap();
    fs::copy(from.path("worker.sh"), to.path("here/worker.sh")).unwrap();
    let gone = from.path(".").canonicalize().unwrap();
    drop(from);
    // The pack holds the program itself.
    assert_eq!(to.json(&["replay", "one.pack"], 0)["same_run"], true);
    assert!(!to.ledger_dir().exists(), "nothing is taken in either");
    assert!(
        to.run(&["replay", "one.pack", "--in", "nowhere"]).complaint(2).contains("--in: `nowhere` is not a folder")
    );
    assert!(
        to.run(&["replay", "one.pack", "--image", "x.sif", "--in", "here"]).complaint(2).contains("--image: the run")
    );
    assert_eq!(to.json(&["replay", "one.pack", "--in", "here"], 0)["same_run"], true);
    assert_eq!(to.json(&["replay", "one.pack", "--in", "here", "--trust"], 0)["verdict"], "identical");
    let said = to.run(&["rerun", "latest", "--trust"]).complaint(2);
    let expected =
        format!("the program's folder `{}`, named by the record, does not exist here (--in DIR", gone.display());
    assert!(said.contains(&expected), "{said}");
    // The rerun's own record names where it was executed.
    assert_eq!(to.json(&["rerun", "latest", "--in", "here", "--trust"], 0)["verdict"], "identical");
    to.json(&["verify"], 0);
}

#[test]
fn a_merge_names_the_tags_that_it_moves_and_what_it_hides() {
    let one = |seed: &str| {
        let sandbox = Sandbox::new();
        sandbox.sweep_manifest(WORKER, "1", seed);
        sandbox.run(&["run", "m.toml"]).expect(0);
        sandbox
    };
    let (a, b) = (one("1"), one("2"));
    let id = |sandbox: &Sandbox| text(&sandbox.json(&["ls", "--hidden"], 0)["attempts"][0], "attempt").to_owned();
    let own = id(&a);
    a.run(&["tag", "latest", "baseline"]).expect(0);
    b.run(&["merge", a.ledger_dir().to_str().unwrap()]).expect(0);
    b.run(&["tag", "latest", "baseline"]).expect(0);
    b.run(&["hide", &own]).expect(0);
    let merged = a.json(&["merge", b.ledger_dir().to_str().unwrap()], 0);
    let overruled = merged["merged"][0]["overruled"].as_array().unwrap();
    assert_eq!((text(&overruled[0], "tag"), text(&overruled[0], "from")), ("baseline", own.as_str()), "{merged}");
    assert_eq!((text(&overruled[1], "hidden"), overruled.len()), (own.as_str(), 2), "{merged}");
    a.run(&["hide", "--undo", &own]).expect(0);
    let said = b.run(&["merge", a.ledger_dir().to_str().unwrap()]).expect(0);
    assert!(said.contains(&format!("shown again: attempt {}", &own[..8])), "{said}");
    // What came from the other ledger says so.
    let listed = a.json(&["ls", "--hidden"], 0);
    let imported: Vec<bool> =
        listed["attempts"].as_array().unwrap().iter().map(|one| one["imported"] == Value::Bool(true)).collect();
    assert_eq!(imported.iter().filter(|imported| **imported).count(), 1, "{listed}");
    assert!(a.run(&["ls"]).expect(0).contains("finished (imported)"));
    assert!(a.run(&["show", "baseline"]).expect(0).contains("origin   another ledger ("));
}
