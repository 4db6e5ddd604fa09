//! Bad input, and workers that misbehave: each is named, and nothing is lost.

use crate::sandbox::{Sandbox, WORKER, curves};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs one script as the worker; gives the attempt's record.
fn attempt_of(script: &str, code: i32) -> serde_json::Value {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(script, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(code);
    assert!(sandbox.journals().is_empty());
    sandbox.json(&["verify"], 0);
    sandbox.json(&["show", "latest"], 0)["attempts"][0].clone()
}

#[test]
fn a_worker_that_fails_says_why() {
    let attempt = attempt_of("echo first >&2; echo 'no such file: data.bin' >&2; exit 7", 4);
    assert_eq!(attempt["outcome"], "failed");
    assert_eq!(attempt["reason"], "the worker exited with code 7: no such file: data.bin");
    assert_eq!(attempt["exit_code"], 7);
    assert_eq!(attempt["stderr_tail"], "first\nno such file: data.bin\n");
}

#[test]
fn what_a_worker_wrote_moves_no_cursor_in_the_line_about_its_end() {
    let sandbox = Sandbox::new();
    let said = |script: &str| {
        sandbox.sweep_manifest(script, "1", "1");
        let said = sandbox.run(&["run", "m.toml"]);
        assert_eq!(said.code, Some(4));
        said.err
    };
    let err = said("printf 'line \\033[31mred\\033[2J\\007 end\\n' >&2; exit 2");
    assert!(
        err.contains(r"exited with code 2: line \u{1b}[31mred\u{1b}[2J\u{7} end)") && !err.contains('\u{1b}'),
        "{err}"
    );
    let err = said(r#"printf '{"event":"failure","message":"oops\\nzwei"}\n' >> "$LEDGER_EVENTS"; exit 1"#);
    assert!(err.contains(r"(oops\u{a}zwei)"), "{err}");
}

#[test]
fn a_worker_that_never_stops_telling_is_kept_in_bounds_and_read_again() {
    let script = r#"name=$(printf '%0100d' 0); yes "{\"event\":\"phase_stop\",\"name\":\"$name\"}" | head -n 30000 >> "$LEDGER_EVENTS""#;
    let attempt = attempt_of(script, 0);
    let warnings = attempt["warnings"].as_array().unwrap();
    let stops: Vec<&str> =
        warnings.iter().filter_map(|text| text.as_str()).filter(|text| text.contains("phase")).collect();
    assert!(stops.len() == 1 && stops[0].starts_with("30000 phases were stopped but never started"), "{warnings:?}");
}

#[test]
fn a_worker_that_is_killed_is_recorded_with_the_signal_and_its_last_words() {
    let script = r#"echo '{"event":"step","step":4,"values":{"loss":2}}' >> "$LEDGER_EVENTS"; kill -SEGV $$"#;
    let attempt = attempt_of(script, 4);
    assert_eq!(attempt["reason"], "the worker was ended by SIGSEGV");
    assert_eq!(attempt["exit_signal"], 11);
    assert!(attempt["last_events"][0].as_str().unwrap().contains("\"step\":4"));
}

#[test]
fn a_worker_that_failed_and_does_not_end_is_ended() {
    let attempt = attempt_of(
        r#"echo '{"event":"failure","message":"the device is gone"}' >> "$LEDGER_EVENTS"; exec sleep 600"#,
        4,
    );
    assert_eq!(attempt["reason"], "the device is gone (it did not end by itself, and was killed)");
}

#[test]
fn a_failure_event_fails_the_attempt_whatever_the_exit_code() {
    let script = r#"echo '{"event":"failure","message":"kernel launch failed"}' >> "$LEDGER_EVENTS""#;
    assert_eq!(attempt_of(script, 4)["reason"], "kernel launch failed");
}

#[test]
fn rubbish_among_events_is_counted_and_does_no_harm() {
    let script = r#"head -c 5000 /dev/urandom >> "$LEDGER_EVENTS"; printf '\nhello\n{"event":"nonsense"}\n{"event":"metric","name":"accuracy","value":NaN}\n' >> "$LEDGER_EVENTS""#;
    let attempt = attempt_of(script, 0);
    assert_eq!(attempt["metrics"]["accuracy"]["value"], "NaN", "Python's spelling is understood");
    let warning = attempt["warnings"][0].as_str().unwrap();
    assert!(warning.contains("are not events"), "{warning}");
}

#[test]
fn times_that_cannot_be_are_warned_of_and_do_not_count() {
    let script = r#"
    say() { echo "$1" >> "$LEDGER_EVENTS"; }
    say '{"event":"step","step":1,"duration_ns":1000000000000000,"values":{"loss":2}}'
    say '{"event":"step","step":2,"duration_ns":1000000000000000,"values":{"loss":1}}'
    say '{"event":"phase_start","name":"back","index":1}'
    say '{"event":"phase_stop","name":"back","index":1,"t_ns":1}'
    say '{"event":"phase_start","name":"late","index":2,"t_ns":9000000000000000000}'
    say '{"event":"phase_stop","name":"late","index":2,"t_ns":9000000000000000001}'
    "#;
    let attempt = attempt_of(script, 0);
    assert!(attempt["facts"]["validity.reasons"].to_string().contains("steps longer than the attempt"), "{attempt}");
    let warnings = attempt["warnings"].to_string();
    for told in [
        "the steps report 2000000.000 s in total, but the attempt took ",
        "phase `back` 1 was stopped before it was started, by its `t_ns`",
        "phase `late` 2 began after the attempt's end",
    ] {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
}

#[test]
fn a_program_without_events_is_timed_all_the_same() {
    let attempt = attempt_of("sleep 0.1", 0);
    assert!(attempt["metrics"]["wall_time"]["value"].as_f64().unwrap() >= 0.1);
    assert_eq!(curves(&attempt), []);
}

#[test]
fn a_worker_that_never_ends_is_ended() {
    let sandbox = Sandbox::new();
    let path = sandbox.sweep_manifest("sleep 600", "1", "1");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}[limits]\ntimeout_s = 0.3\n")).unwrap();
    sandbox.run(&["run", "m.toml"]).expect(4);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(attempt["reason"], "it took longer than `limits.timeout_s` = 0.3 s");
}

#[test]
fn a_worker_that_never_stops_talking_is_ended_in_time() {
    let sandbox = Sandbox::new();
    let script = r#"exec yes '{"event":"step","step":1,"values":{"loss":1}}' >> "$LEDGER_EVENTS""#;
    let path = sandbox.sweep_manifest(script, "1", "1");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}[limits]\ntimeout_s = 0.5\n")).unwrap();
    sandbox.run(&["run", "m.toml"]).expect(4);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(attempt["reason"], "it took longer than `limits.timeout_s` = 0.5 s");
    let wall_time = attempt["metrics"]["wall_time"]["value"].as_f64().unwrap();
    assert!((0.5..3.0).contains(&wall_time), "{wall_time}");
}

#[test]
fn who_says_more_than_is_kept_at_once_loses_nothing() {
    let script = r#"
        for i in 1 2 3 4 5 6 7 8 9 10; do echo '{"event":"step","step":'$i',"values":{"loss":1}}'; done > ten
        while [ $((n += 1)) -le 3000 ]; do cat ten; done >> "$LEDGER_EVENTS"
        echo '{"event":"metric","name":"accuracy","value":0.5}' >> "$LEDGER_EVENTS""#;
    let attempt = attempt_of(script, 0);
    assert_eq!(curves(&attempt), [("loss", 30_000)]);
    assert_eq!(attempt["metrics"]["accuracy"]["value"], 0.5);
}

#[test]
fn the_worker_is_the_file_that_runs_whatever_lies_at_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("ledger");
    fs::copy(env!("CARGO_BIN_EXE_ledger"), &program).unwrap();
    let sandbox = Sandbox::of(program.clone());
    let replace = format!("printf '#!/bin/sh\nexit 9\n' > new; chmod +x new; mv new '{}'", program.display());
    sandbox.sweep_manifest(&replace, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(sandbox.run(&["ls"]).code, Some(9), "another program lies there by now");
}

#[test]
fn an_attempt_that_could_not_be_sealed_is_sealed_before_the_sweep_ends() {
    let sandbox = Sandbox::new();
    // The first run of each round takes the ledger away, and the second one brings it back.
    let script = r#"cd "$LEDGER_DIR"
        if [ -f ledger.redb ]; then mv ledger.redb away; mkdir ledger.redb; else rmdir ledger.redb; mv away ledger.redb; fi"#;
    sandbox.sweep_manifest(script, "[1, 2]", "1");
    let said = sandbox.run(&["run", "m.toml", "--repeat", "3", "--json"]);
    assert_eq!(said.err.matches("could not be sealed and waits in").count(), 3, "{}", said.err);
    let document: serde_json::Value = serde_json::from_str(&said.expect(0)).unwrap();
    assert_eq!(document["executed"], 6, "what is missing beside it is executed all the same");
    assert_eq!(document["trouble"].as_array().unwrap().len(), 0);
    assert_eq!(sandbox.outcomes(), ["finished"; 6]);
    assert!(sandbox.journals().is_empty());
}

#[test]
fn only_a_journal_that_is_there_is_sealed_by_hand() {
    let sandbox = Sandbox::new();
    sandbox.run(&["doctor", "--seal", "0123456789abcdef-01.journal"]).complaint(1);
    assert!(!sandbox.ledger_dir().exists(), "looking leaves nothing behind");
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let complaint = sandbox.run(&["doctor", "--seal", "ledger/journal/0123456789abcdef-01.journal"]).complaint(1);
    assert!(complaint.contains("there is no abandoned journal `0123456789abcdef-01.journal` in `"), "{complaint}");
}

#[test]
fn what_a_worker_leaves_behind_is_ended_with_it() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest("sleep 600 & echo $! > child; exit 0", "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let child = fs::read_to_string(sandbox.path("child")).unwrap();
    let stat = fs::read_to_string(Path::new("/proc").join(child.trim()).join("stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn a_program_that_is_missing_is_named_once_before_anything_is_executed() {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", "");
    for (command, reason) in [
        ("['no-such-program', 'train.py']", "`no-such-program`, which is not on the PATH"),
        ("['./absent', 'train.py']", "absent`, which is not a file"),
        ("['python3', 'absent.py']", "absent.py`, which is not a file"),
    ] {
        for identity in ["closure", "git"] {
            let program = format!("[program]\ncommand = {command}\nidentity = '{identity}'\n");
            let text = format!("seed = [1, 2, 3]\n[model]\nname = 'm'\n{program}[hardware]\ndevice = 'cpu'\n");
            sandbox.write("m.toml", text);
            if identity == "git" && command.contains("python3") {
                continue;
            }
            let said = sandbox.run(&["run", "m.toml"]).complaint(2);
            assert!(said.lines().count() == 1 && said.contains(reason), "{command}: {said}");
        }
    }
    assert!(!sandbox.ledger_dir().join("ledger.redb").exists(), "nothing is recorded");
}

#[test]
fn manifests_that_are_none_are_refused_before_anything_is_made() {
    let sandbox = Sandbox::new();
    let complaint = |name: &str| sandbox.run(&["run", name]).complaint(2);
    assert!(complaint("absent.toml").contains("absent.toml"));
    fs::create_dir(sandbox.path("folder")).unwrap();
    assert!(complaint("folder").contains("directory"));
    sandbox.write("rubbish.toml", [0u8, 159, 146, 150, 255]);
    assert!(complaint("rubbish.toml").contains("rubbish.toml:1:"));
    sandbox.write("unknown.toml", "[model]\nname = \"resnet5000\"\n[training]\nlearning_rate = 0.1\nepochs = 1\n");
    let text = complaint("unknown.toml");
    assert!(text.contains("unknown.toml:2:8:") && text.contains("mnist_cnn"), "{text}");
    sandbox.write("empty.toml", "[model]\nname = \"softmax\"\n[training]\nlearning_rate = []\nepochs = 1\n");
    assert!(complaint("empty.toml").contains("empty.toml:4:17:"));
    let axis = |name: &str| format!("{name} = [{}]\n", (1..=1000).map(|i| i.to_string()).collect::<Vec<_>>().join(","));
    let huge = format!(
        "seed = [{}]\n[model]\nname = \"mnist_mlp\"\n{}[training]\nlearning_rate = 0.1\n{}",
        (1..=1000).map(|i| i.to_string()).collect::<Vec<_>>().join(","),
        axis("hidden"),
        axis("epochs")
    );
    sandbox.write("huge.toml", huge);
    let text = complaint("huge.toml");
    assert!(text.contains("1000000000") || text.contains("1,000,000,000"), "{text}");
    assert!(!sandbox.ledger_dir().exists());
}

#[test]
fn a_ledger_may_be_named_by_a_relative_path_and_a_missing_image_is_refused() {
    let sandbox = Sandbox::new();
    let path = sandbox.sweep_manifest(WORKER, "1", "1");
    fs::create_dir(sandbox.path("below")).unwrap();
    fs::rename(sandbox.path("worker.sh"), sandbox.path("below/worker.sh")).unwrap();
    fs::rename(&path, sandbox.path("below/m.toml")).unwrap();
    sandbox.run(&["--ledger", "book", "run", "below/m.toml"]).expect(0);
    let show = sandbox.json(&["--ledger", "book", "show", "latest"], 0);
    let curves = curves(&show["attempts"][0]);
    assert_eq!(curves[0], ("loss", 6), "the program, in its own folder, has found its pipe");
    let text = fs::read_to_string(sandbox.path("below/m.toml")).unwrap();
    sandbox.write("m.toml", format!("{text}[container]\nimage = \"x.sif\"\n"));
    let said = sandbox.run(&["run", "m.toml"]).complaint(2);
    assert!(
        said.contains("m.toml:12:9: `container.image` is `") && said.contains("x.sif`, which does not exist"),
        "{said}"
    );
}

#[test]
fn the_only_model_is_meant_where_none_is_named() {
    let sandbox = Sandbox::new();
    let asks = [&["effects", "--metric", "loss"][..], &["pareto", "--metrics", "loss,wall_time"][..]];
    for ask in asks {
        assert!(sandbox.run(ask).complaint(3).contains("there is no ledger"), "{ask:?}");
    }
    sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let front = sandbox.json(&["pareto", "--metrics", "loss,wall_time"], 0);
    assert_eq!(front["model"], "toy");
    sandbox.run(&["plot", "distribution", "--metric", "loss", "-o", "d.svg"]).expect(0);
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("toy", "other"));
    sandbox.run(&["run", "m.toml"]).expect(0);
    let several = "error: --model is needed: the ledger has the models other and toy\n";
    for ask in asks {
        assert_eq!(sandbox.run(ask).complaint(2), several, "{ask:?}");
    }
}

#[test]
fn files_that_a_manifest_names_and_that_are_not_there_are_told_with_their_places() {
    let sandbox = Sandbox::new();
    let complaint = |command: &str| {
        let said = sandbox.run(&[command, "m.toml"]).complaint(2);
        said.replace(&sandbox.path("").canonicalize().unwrap().display().to_string(), "HERE")
    };
    sandbox.write("worker.sh", WORKER);
    sandbox.write(
        "m.toml",
        "[model]\nname = 'toy'\n[program]\ncommand = ['sh', 'worker.sh']\nfiles = ['worker.sh', 'gone.py']\n",
    );
    let gone = "m.toml:5:23: cannot read `HERE/gone.py` (check the path): No such file or directory (os error 2)\n";
    assert_eq!([complaint("run"), complaint("plan")], [gone, gone]);
    sandbox.write(
        "m.toml",
        "[model]\nname = 'toy'\n[program]\ncommand = ['sh', 'worker.sh']\nfiles = ['z.py', 'gone.py', 'also.yaml']\n",
    );
    let cannot =
        |file: &str| format!("cannot read `HERE/{file}` (check the path): No such file or directory (os error 2)");
    let all = ["also.yaml", "gone.py", "z.py"].map(cannot).join("; ");
    assert_eq!(complaint("run"), format!("m.toml:5:29: {all}\n"));
    for (command, place) in [("'./gone.sh'", 12), ("'python3', 'gone.py'", 23), ("'no-such-program'", 12)] {
        sandbox.write("m.toml", format!("[model]\nname = 'toy'\n[program]\ncommand = [{command}]\n"));
        let said = complaint("run");
        assert!(said.starts_with(&format!("m.toml:4:{place}: the command starts `")), "{said}");
    }
    sandbox.write(
        "m.toml",
        "model.name = 'softmax'\ntraining = { learning_rate = 0.1, epochs = [1, 2] }\nhardware.device = 'cpu'\n\
         data = { name = 'idx', path = ['a', 'b'] }\n",
    );
    let lines = |path: &str, column: u32| {
        let file = "train-images-idx3-ubyte (plain or .gz)";
        format!("m.toml:4:{column}: `data.path` is `HERE/{path}`, which has no {file}\n")
    };
    assert_eq!(complaint("run"), lines("a", 32) + &lines("b", 37), "each once");
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn an_attempt_whose_record_is_damaged_is_passed_over_and_named() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let one = sandbox.json(&["ls"], 0)["attempts"][0].clone();
    let (id, run) = (one["attempt"].as_str().unwrap(), one["run"].as_str().unwrap());
    let nonce = sandbox.json(&["show", id], 0)["attempts"][0]["nonce"].as_str().unwrap().to_owned();
    // A record begins with these two; in it the length of a name becomes one that no record has.
    let head = [bytes_of(run), bytes_of(&nonce)].concat();
    let path = sandbox.ledger_dir().join("ledger.redb");
    let mut file = fs::read(&path).unwrap();
    let records: Vec<usize> = (0..file.len()).filter(|at| file[*at..].starts_with(&head)).collect();
    assert!(!records.is_empty());
    let other = sandbox.json(&["ls"], 0)["attempts"][1]["attempt"].as_str().unwrap().to_owned();
    sandbox.run(&["pack", id, &other, "-o", "whole.pack"]).expect(0);
    for at in records {
        let name = file[at..].windows(9).position(|window| window == b"\x08accuracy").unwrap();
        file[at + name] = 253;
    }
    fs::write(&path, file).unwrap();
    for (args, code) in
        [(vec!["ls"], 0), (vec!["export", "--to", "csv"], 0), (vec!["show", run], 0), (vec!["verify"], 1)]
    {
        let said = sandbox.run(&args);
        assert_eq!(said.code, Some(code), "{args:?}: {}", said.err);
        assert!([said.err, said.out].concat().contains(&format!("attempt {id}")), "{args:?}");
    }
    assert!(sandbox.run(&["show", id]).complaint(3).contains("cannot be read: attempt does not decode"));
    sandbox.run(&["hide", id]).expect(0);
    assert_eq!(sandbox.json(&["ls"], 0)["attempts"].as_array().unwrap().len(), 1);
    let best = sandbox.json(&["best", "--model", "toy", "--metric", "accuracy"], 0);
    assert!(!best.to_string().contains(run), "{best}");
    // A pack that was made before has it whole.
    let restored = sandbox.run(&["unpack", "whole.pack"]);
    assert!(restored.err.contains("note: 1 damaged attempt restored from the pack\n"), "{}", restored.err);
    assert_eq!(["known", "restored"].map(|state| restored.out.matches(state).count()), [1, 1], "{}", restored.out);
    sandbox.run(&["verify"]).expect(0);
    sandbox.run(&["hide", "--undo", id]).expect(0);
    sandbox.run(&["verify"]).expect(0);
    let best = sandbox.json(&["best", "--model", "toy", "--metric", "accuracy"], 0);
    assert!(best.to_string().contains(run), "{best}");
    assert!(!sandbox.run(&["unpack", "whole.pack"]).expect(0).contains("restored"));
}

#[test]
fn a_journal_that_is_damaged_at_its_start_is_kept_and_named() {
    let sandbox = sealed_ledger();
    let path = sandbox.ledger_dir().join("journal/0123456789abcdef-00.journal");
    fs::write(&path, vec![7; 4000]).unwrap();
    assert!(sandbox.run(&["ls"]).err.contains("it is kept under this name"));
    assert!(path.with_extension("damaged").exists() && !path.exists());
    fs::write(&path, b"ledgerJ").unwrap();
    sandbox.run(&["ls"]).expect(0);
    assert!(!path.exists(), "nothing can have begun in it");
}

#[test]
fn ids_that_name_nothing_or_too_much_are_explained() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(&["show", "latest"]).complaint(3).contains("`ledger run` or `ledger import` begins one"));
    sandbox.sweep_manifest(WORKER, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert!(sandbox.run(&["show", "zzzz"]).complaint(1).contains("the newest run is "));
    assert!(sandbox.run(&["show", "latest~9"]).complaint(1).contains("latest~9"));
    assert!(sandbox.run(&["show", "abc"]).complaint(1).contains("at least 4 digits"));
    assert!(sandbox.run(&["best", "--model", "no", "--metric", "loss"]).complaint(1).contains("there are: toy"));
    assert!(sandbox.run(&["best", "--model", "toy", "--metric", "x"]).complaint(2).contains("there are: accuracy, "));
}

#[test]
fn a_ledger_that_cannot_be_written_means_that_nothing_is_trained() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest("touch ../../trained trained", "1", "1");
    // A file where a folder should be: it refuses everybody, root too.
    sandbox.write("book", "not a folder");
    let said = sandbox.run(&["--ledger", "book/ledger", "run", "m.toml"]).complaint(3);
    assert!(said.contains("cannot create `") && said.contains("/book/ledger`"), "{said}");
    assert!(!sandbox.path("trained").exists());
}

fn sealed_ledger() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

#[test]
fn a_ledger_that_is_cut_short_is_refused_and_left_as_it_is() {
    let sandbox = sealed_ledger();
    let file = sandbox.ledger_dir().join("ledger.redb");
    let bytes = fs::read(&file).unwrap();
    sandbox.run(&["verify"]).expect(0);
    for keep in [0, 1, 100, 4096, bytes.len() / 2, bytes.len() - 4096] {
        fs::write(&file, &bytes[..keep]).unwrap();
        for args in [["ls"].as_slice(), &["verify"]] {
            let said = sandbox.run(args);
            assert!(!said.err.contains("panicked"), "{keep} bytes: {}", said.err);
            assert_ne!(said.code, Some(0), "{keep} bytes of the ledger are no ledger: {}", said.out);
        }
        assert_eq!(fs::read(&file).unwrap(), &bytes[..keep], "{keep} bytes");
    }
    assert!(!sandbox.ledger_dir().join("verified").exists(), "what was sound before is not believed");
}

#[test]
fn readers_do_not_wait_for_the_lock_of_the_journals() {
    let sandbox = sealed_ledger();
    let journals = sandbox.ledger_dir().join("journal");
    // Too short to hold an attempt: whoever has the lock removes it.
    let left = journals.join("0123456789abcdef-00.journal");
    fs::write(&left, [0; 9]).unwrap();
    let lock = fs::File::create(journals.join(".lock")).unwrap();
    lock.lock().unwrap();
    sandbox.run(&["ls"]).expect(0);
    sandbox.run(&["verify"]).expect(0);
    assert!(left.exists());
    lock.unlock().unwrap();
    sandbox.run(&["ls"]).expect(0);
    assert!(!left.exists());
}

#[test]
fn a_second_verification_checks_what_came_since_the_first() {
    let sandbox = sealed_ledger();
    let first = sandbox.json(&["verify", "--since-last"], 0);
    assert_eq!((&first["since_last"], &first["attempts"]), (&false.into(), &2.into()));
    sandbox.run(&["run", "m.toml", "--repeat", "2"]).expect(0);
    let second = sandbox.json(&["verify", "--since-last"], 0);
    // Each of two runs twice more.
    assert_eq!((&second["since_last"], &second["attempts"]), (&true.into(), &4.into()));
    assert!(
        sandbox.run(&["verify", "--since-last"]).expect(0).starts_with("sound since the last verification: 0 runs")
    );
}

#[test]
fn a_ledger_of_a_newer_format_is_refused() {
    let sandbox = sealed_ledger();
    let file = sandbox.ledger_dir().join("ledger.redb");
    {
        let database = redb::Database::open(&file).unwrap();
        let txn = database.begin_write().unwrap();
        let meta: redb::TableDefinition<&str, &[u8]> = redb::TableDefinition::new("meta");
        txn.open_table(meta).unwrap().insert("format", 99u32.to_le_bytes().as_slice()).unwrap();
        txn.commit().unwrap();
    }
    for args in [["ls"].as_slice(), &["run", "m.toml", "--repeat", "1"], &["verify"]] {
        let complaint = sandbox.run(args).complaint(3);
        assert!(complaint.contains("format 99") && complaint.contains("use a newer ledger"), "{complaint}");
    }
}

#[test]
fn verify_names_whose_bytes_were_changed() {
    let sandbox = sealed_ledger();
    sandbox.run(&["verify"]).expect(0);
    let file = sandbox.ledger_dir().join("ledger.redb");
    type Chunks = redb::TableDefinition<'static, ([u8; 32], &'static str), &'static [u8]>;
    let chunks: Chunks = redb::TableDefinition::new("chunks");
    {
        let database = redb::Database::open(&file).unwrap();
        let txn = database.begin_write().unwrap();
        {
            use redb::ReadableTable;
            let mut table = txn.open_table(chunks).unwrap();
            let (id, mut bytes) = {
                let mut found = table.iter().unwrap().map(Result::unwrap).filter(|(key, _)| key.value().1 == "loss");
                let (key, value) = found.next().unwrap();
                (key.value().0, value.value().to_vec())
            };
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            table.insert((id, "loss"), bytes.as_slice()).unwrap();
        }
        txn.commit().unwrap();
    }
    let found = sandbox.json(&["verify"], 1);
    let fault = &found["faults"][0];
    let owner = fault["owner"].as_str().unwrap();
    assert!(owner.starts_with("series `loss` of attempt "), "{fault}");
    // What was verified before is not believed any more.
    assert_eq!(sandbox.json(&["verify", "--since-last"], 1)["since_last"], false);
    let id = &owner[owner.len() - 64..];
    let said = sandbox.run(&["pack", id, "-o", "x.pack"]).complaint(3);
    assert!(said.contains(&format!("attempt {id} cannot be read")) && !sandbox.path("x.pack").exists(), "{said}");
}

#[test]
fn a_full_disk_fails_the_attempt_and_says_so() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.ledger_dir()).unwrap();
    let mount = |args: &[&str]| {
        Command::new("mount").args(args).arg(sandbox.ledger_dir()).output().is_ok_and(|output| output.status.success())
    };
    if !mount(&["-t", "tmpfs", "-o", "size=1700k", "tmpfs"]) {
        println!("skipped: mounting a small tmpfs needs root");
        return;
    }
    let flood = r#"i=0; while [ $i -lt 400000 ]; do i=$((i+1)); echo "{\"event\":\"step\",\"step\":$i,\"values\":{\"loss\":$i.123}}"; done >> "$LEDGER_EVENTS""#;
    sandbox.sweep_manifest(flood, "1", "1");
    let said = sandbox.run(&["run", "m.toml"]);
    let told = format!("{}{}", said.out, said.err);
    let grown = mount(&["-o", "remount,size=64m"]);
    let outcomes = if grown { sandbox.outcomes() } else { Vec::new() };
    let show = if grown { Some(sandbox.json(&["show", "latest"], 0)) } else { None };
    let sound = sandbox.run(&["verify"]);
    let unmounted = Command::new("umount").arg(sandbox.ledger_dir()).status().is_ok_and(|status| status.success());
    assert!(grown && unmounted);
    assert!(told.contains("(free some space; nothing that was sealed is lost): No space left"), "{told}");
    assert_eq!(outcomes, ["failed"], "{told}");
    let reason = show.unwrap()["attempts"][0]["reason"].clone();
    assert!(reason.as_str().unwrap().contains("the journal cannot be written"), "{reason}");
    sound.expect(0);
}

#[test]
fn an_error_is_a_document_too() {
    let sandbox = Sandbox::new();
    let error = |args: &[&str], code: i32| {
        let said = sandbox.run(args);
        assert!(!said.err.is_empty(), "{said:?}");
        let document: serde_json::Value = serde_json::from_str(&said.expect(code)).unwrap();
        assert_eq!((&document["format"], &document["error"]["code"]), (&1.into(), &code.into()), "{document}");
        document["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(error(&["show", "latest", "--json"], 3).contains("there is no ledger"));
    assert!(error(&["run", "absent.toml", "--json"], 2).contains("absent.toml"));
    assert!(error(&["ls", "--json", "--no-such-option"], 2).contains("--no-such-option"));
    assert_eq!(sandbox.run(&["show", "latest"]).out, "");
}
