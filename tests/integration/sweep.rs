//! Runs of a manifest: which are executed, what is sealed, what is answered.

use crate::sandbox::{Said, Sandbox, WORKER, curves, signal};

#[test]
fn a_sweep_executes_what_is_missing_and_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2]", "1");
    let plan = sandbox.json(&["run", "m.toml", "--dry-run"], 0);
    assert!(!sandbox.ledger_dir().exists(), "a dry run leaves nothing behind");
    let planned: Vec<&str> = plan["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(planned.len(), 2);
    let first = sandbox.json(&["run", "m.toml"], 0);
    assert_eq!(first["executed"], 2);
    let ran: Vec<&str> = first["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap()).collect();
    assert_eq!(ran, planned, "the ids that were announced are those that were executed");
    assert_eq!(sandbox.json(&["run", "m.toml"], 0)["executed"], 0);
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    assert_eq!(sandbox.json(&["run", "m.toml"], 0)["executed"], 1);
    assert_eq!(sandbox.json(&["run", "m.toml", "--repeat", "2", "--only", "x == 3"], 0)["executed"], 2);
    assert_eq!(sandbox.outcomes(), ["finished"; 5]);
    assert!(sandbox.journals().is_empty());
    let sound = sandbox.json(&["verify"], 0);
    assert_eq!((&sound["sound"], &sound["runs"], &sound["attempts"]), (&true.into(), &3.into(), &5.into()));
}

#[test]
fn what_the_worker_says_is_sealed() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "7", "3");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let show = sandbox.json(&["show", "latest"], 0);
    let attempt = &show["attempts"][0];
    assert_eq!(attempt["outcome"], "finished");
    let value = |name: &str| attempt["metrics"][name]["value"].as_f64().unwrap();
    assert_eq!((value("accuracy"), value("loss"), value("step_time")), (0.73, 724.0, 0.001));
    assert_eq!(value("throughput"), 4000.0);
    assert!(value("wall_time") > 0.0 && value("cpu_time") >= 0.0);
    // Absent where the lines of an epoch were read at once.
    assert!(attempt["metrics"]["epoch_time"]["value"].as_f64().is_none_or(|epoch_s| epoch_s > 0.0));
    assert_eq!(curves(attempt), [("loss", 6), ("step_duration", 6)]);
    assert_eq!(show["parts"]["seed"]["value"], "3");
    assert_eq!(show["parts"]["cuda"]["value"], "none");
}

#[test]
fn what_ran_out_of_gpu_memory_is_not_tried_again_unless_asked() {
    let sandbox = Sandbox::new();
    let script = r#"if [ $1 = 2 ]; then echo "torch.OutOfMemoryError: CUDA out of memory." >&2; exit 1; fi"#;
    sandbox.sweep_manifest(script, "[2, 1]", "1");
    let said = sandbox.json(&["run", "m.toml"], 4);
    assert_eq!(said["executed"], 2, "the sweep goes on");
    let note = sandbox.run(&["run", "m.toml"]).complaint(4);
    assert!(
        note.contains("not executed again: 1 run that ran out of GPU memory (--retry-oom executes them)"),
        "{note}"
    );
    assert_eq!(sandbox.outcomes().len(), 2);
    let known = sandbox.run(&["export", "--to", "csv", "--where", "failure == \"oom\""]).expect(0);
    assert_eq!(known.lines().count(), 2, "{known}");
    assert_eq!(sandbox.json(&["run", "m.toml", "--retry-oom"], 4)["executed"], 1);
    assert_eq!(sandbox.json(&["run", "m.toml", "--repeat", "1", "--only", "x == 2"], 4)["executed"], 1);
}

/// As a program whose language keeps lines back until it ends, or until there are many.
#[test]
fn lines_that_are_told_at_once_have_no_times() {
    let sandbox = Sandbox::new();
    let step = r#"{\"event\":\"step\",\"step\":$step,\"values\":{\"loss\":1}}"#;
    let steps = "1 2 3 4 5 6 7 8 9 10 11 12";
    let kept = format!(
        "lines=$(for step in {steps}; do sleep 0.01; echo \"{step}\"; done); echo \"$lines\" >> $LEDGER_EVENTS"
    );
    sandbox.sweep_manifest(&kept, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let metric = |name: &str| sandbox.json(&["show", "latest"], 0)["attempts"][0]["metrics"][name].clone();
    assert!(metric("step_time")["value"].is_null(), "{}", metric("step_time"));
    assert!(metric("step_time")["reason"].as_str().unwrap().contains("flush each line"));
    let flushed = format!("for step in {steps}; do sleep 0.02; echo \"{step}\" >> $LEDGER_EVENTS; done");
    sandbox.sweep_manifest(&flushed, "1", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert!(metric("step_time")["value"].as_f64().unwrap() > 0.01, "{}", metric("step_time"));
}

#[test]
fn an_objective_that_nothing_reports_is_told_at_the_first_attempt() {
    let sandbox = Sandbox::new();
    let manifest = sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "1");
    let objective = |metric: &str| format!("[objective]\nmetric = \"{metric}\"\ndirection = \"maximize\"\n");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let said = |metric: &str| {
        sandbox.write("m.toml", format!("{text}{}", objective(metric)));
        sandbox.run(&["run", "m.toml"]).err
    };
    let missed = said("score");
    let warning = "no value of `score`, which is the objective; this may be so in other attempts";
    assert_eq!(missed.matches(warning).count(), 1, "{missed}");
    assert!(missed.find(warning) < missed.find("x 2"), "{missed}");
    assert!(!said("accuracy").contains("which is the objective"));
}

#[test]
fn what_a_worker_says_does_not_move_the_cursor() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(r#"printf 'a\033[2Kb\033]0;title\007\n' >&2; exit 3"#, r#""x\rEVIL is best""#, "1");
    let said = sandbox.run(&["run", "m.toml"]);
    assert_eq!(said.code, Some(4), "{}", said.err);
    assert!(said.err.contains(r"x\u{d}EVIL is best"), "{}", said.err);
    assert!(!said.err.chars().any(|c| c.is_control() && c != '\n'), "{:?}", said.err);
}

#[test]
fn a_variable_that_names_nothing_names_no_ledger() {
    let sandbox = Sandbox::new();
    let output = sandbox.command(&["ls"]).env("LEDGER_DIR", "").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(".local/share/ledger"), "{said}");
    sandbox.write("file", "");
    let file =
        |by: &str, path: &str| format!("error: {by}: `{path}` is a file (name the folder that holds the ledger)\n");
    assert_eq!(sandbox.run(&["--ledger", "file", "ls"]).complaint(2), file("--ledger", "file"));
    let output = sandbox.command(&["ls"]).env("LEDGER_DIR", sandbox.path("file")).output().unwrap();
    let path = sandbox.path("file").display().to_string();
    assert_eq!(Said::new(output).complaint(2), file("LEDGER_DIR", &path));
}

#[test]
fn four_at_once_are_as_good_as_one_after_the_other() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3, 4, 5, 6, 7, 8]", "1");
    assert_eq!(sandbox.json(&["run", "m.toml", "--jobs", "4"], 0)["executed"], 8);
    assert_eq!(sandbox.outcomes(), ["finished"; 8]);
    sandbox.json(&["verify"], 0);
}

#[test]
fn two_commands_share_the_runs_of_one_ledger() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(&format!("{WORKER}\nsleep 0.2\n"), "[1, 2, 3, 4]", "1");
    let both = [sandbox.start(&["run", "m.toml", "--json"]), sandbox.start(&["run", "m.toml", "--json"])];
    let executed: i64 = both
        .map(|child| {
            let document: serde_json::Value = serde_json::from_str(&Sandbox::finish(child).expect(0)).unwrap();
            assert!(document["runs"].as_array().unwrap().iter().all(|run| run["outcome"] == "finished"));
            document["executed"].as_i64().unwrap()
        })
        .iter()
        .sum();
    assert_eq!(executed, 4, "each run is executed once");
    assert_eq!(sandbox.outcomes(), ["finished"; 4]);
    sandbox.json(&["verify"], 0);
}

const SLOW: &str = r#"
trap 'echo "{\"event\":\"status\",\"message\":\"stopping\"}" >> "$LEDGER_EVENTS"; exit 130' INT
echo '{"event":"step","step":1,"values":{"loss":1}}' >> "$LEDGER_EVENTS"
touch started
while true; do sleep 0.05; done
"#;

fn interrupted(signals: &[&str], script: &str) -> (Sandbox, Said) {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(script, "[1, 2]", "1");
    let child = sandbox.start(&["run", "m.toml"]);
    sandbox.wait_for("the worker's start", || sandbox.path("started").exists());
    for name in signals {
        signal(child.id(), name);
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let said = Sandbox::finish(child);
    (sandbox, said)
}

#[test]
fn the_first_ctrl_c_stops_in_order_and_is_sealed() {
    let (sandbox, said) = interrupted(&["INT"], SLOW);
    assert!(said.err.contains("repeat the command to continue"), "{}", said.err);
    said.expect(130);
    assert_eq!(sandbox.outcomes(), ["interrupted"], "the second run was not begun");
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(attempt["reason"], "it was stopped on request");
    assert_eq!(attempt["exit_code"], 130);
    assert_eq!(curves(attempt)[0].1, 1);
    assert!(sandbox.journals().is_empty());
}

#[test]
fn the_second_ctrl_c_kills() {
    let deaf = SLOW.replace("exit 130", "true");
    let (sandbox, said) = interrupted(&["INT", "INT"], &deaf);
    said.expect(130);
    let attempt = &sandbox.json(&["show", "latest"], 0)["attempts"][0];
    assert_eq!(
        (attempt["reason"].as_str(), attempt["exit_signal"].as_i64()),
        (Some("it was killed on request"), Some(9))
    );
}

/// Says a score that follows from `x` and the seed: 10, 0 and 5 for `x = 1`, 8 for others.
const SCORING: &str = r#"
case "$1$2" in 11) score=10 ;; 12) score=0 ;; 13) score=5 ;; *) score=8 ;; esac
echo "{\"event\":\"metric\",\"name\":\"score\",\"value\":$score,\"unit\":\"pt\"}" >> "$LEDGER_EVENTS"
echo '{"event":"metric","name":"accuracy","value":0.5}' >> "$LEDGER_EVENTS"
"#;

fn scored(sandbox: &Sandbox, file: &str, model: &str, direction: &str, seeds: &str) {
    sandbox.write("worker.sh", SCORING);
    sandbox.write(
        file,
        format!(
            "seed = {seeds}\n[model]\nname = '{model}'\n[program]\ncommand = ['sh', 'worker.sh', '{{x}}', '{{seed}}']\n\
             [params]\nx = [1, 2]\n[hardware]\ndevice = 'cpu'\n\
             [objective]\nmetric = 'score'\ndirection = '{direction}'\n"
        ),
    );
}

#[test]
fn the_best_is_a_configuration_as_best_has_it_and_no_lucky_seed() {
    let sandbox = Sandbox::new();
    scored(&sandbox, "m.toml", "toy", "maximize", "[1, 2]");
    let said = sandbox.run(&["run", "m.toml"]).expect(0);
    assert!(said.contains("best toy: x 2 with score 8 pt (no scatter), mean of 2 seeds (newest run "), "{said}");
    let told = || {
        let own = sandbox.json(&["run", "m.toml"], 0);
        let best = &own["best"][0];
        // From the indexes, and with a condition from what they have of each attempt or from the records.
        for more in [&[][..], &["--where", "outcome == finished"], &["--where", "score >= 0", "--include", "failed"]] {
            let words = ["best", "--model", "toy", "--metric", "score", "--direction", "maximize"];
            let first = sandbox.json(&[&words[..], more].concat(), 0)["places"][0].clone();
            assert_eq!((&best["run"], &best["value"], &best["n"]), (&first["run"], &first["mean"], &first["n"]));
        }
        assert_eq!((&own["executed"], &best["value"]), (&0.into(), &8.0.into()));
        (best["run"].as_str().unwrap().to_owned(), best["n"].as_i64().unwrap())
    };
    let (newest, n) = told();
    assert_eq!(n, 2);
    // Both directions can be stated, and the one against the objective is warned of. The objective has a column of `ls`.
    let stated = |direction: &str| sandbox.run(&["best", "--metric", "score", "--direction", direction]).err;
    let warning =
        "warning: most attempts of `toy` with the objective `score` record maximize (leave --direction out)\n";
    assert_eq!((stated("maximize"), stated("minimize").as_str()), (String::new(), warning));
    let list = sandbox.run(&["ls"]).expect(0);
    assert!(list.lines().next().unwrap().ends_with(" score"), "{list}");
    // Of a sweep over fewer seeds the same is said.
    scored(&sandbox, "m.toml", "toy", "maximize", "1");
    assert_eq!(told(), (newest, 2));
    // Another attempt makes its run the newest one.
    let again = ["run", "m.toml", "--only", "x == 2", "--repeat", "1"];
    let plan = sandbox.json(&[&again[..], &["--dry-run"]].concat(), 0);
    sandbox.run(&again).expect(0);
    assert_eq!(told(), (plan["runs"][0]["run"].as_str().unwrap().to_owned(), 3));
}

#[test]
fn each_model_has_the_objective_of_its_own_manifest() {
    let sandbox = Sandbox::new();
    scored(&sandbox, "most.toml", "a", "maximize", "1");
    scored(&sandbox, "least.toml", "b", "minimize", "1");
    let document = sandbox.json(&["run", "most.toml", "least.toml"], 0);
    let told = |document: &serde_json::Value| -> Vec<String> {
        let best = document["best"].as_array().unwrap().iter();
        best.map(|best| format!("{} {} {}", best["model"], best["direction"], best["value"])).collect()
    };
    assert_eq!(told(&document), ["\"a\" \"maximize\" 10.0", "\"b\" \"minimize\" 8.0"]);
    // The models differ too, but not within a model.
    let said = sandbox.run(&["run", "most.toml", "least.toml"]).expect(0);
    assert!(said.contains("best a: x 1 with score 10 pt, from one attempt (run "), "{said}");
    scored(&sandbox, "least.toml", "a", "minimize", "2");
    let said = sandbox.run(&["run", "most.toml", "least.toml"]).expect(0);
    assert!(
        said.contains("best a: x 2 with score 8 pt (no scatter), mean of 2 seeds (maximize) (newest run "),
        "{said}"
    );
    assert!(said.contains("best a: x 1 with score 0 to 10 pt, the range of 2 seeds (minimize) (newest run "), "{said}");
}

#[test]
fn where_no_attempt_has_the_objective_no_other_metric_stands_in() {
    let sandbox = Sandbox::new();
    let worker = "echo '{\"event\":\"step\",\"step\":1,\"values\":{\"loss\":0.25}}' >> \"$LEDGER_EVENTS\"";
    let manifest = |objective: &str| {
        sandbox.sweep_manifest(worker, "1", "1");
        let text = std::fs::read_to_string(sandbox.path("m.toml")).unwrap();
        sandbox.write("m.toml", format!("{text}{objective}"));
    };
    manifest("[objective]\nmetric = 'energy_per_sample'\n");
    let said = sandbox.run(&["run", "m.toml"]).expect(0);
    assert!(
        said.contains("best toy: none, since no attempt has a usable `energy_per_sample`: 1 attempt without "),
        "{said}"
    );
    assert!(!said.contains(" with loss "), "{said}");
    let document = sandbox.json(&["run", "m.toml"], 0);
    assert_eq!(document["best"].as_array().unwrap().len(), 0);
    let none = &document["without_best"][0];
    assert_eq!((&none["model"], &none["metric"]), (&"toy".into(), &"energy_per_sample".into()));
    assert!(none["why"].as_str().unwrap().starts_with("1 attempt without "), "{none}");
    manifest("");
    assert!(sandbox.run(&["run", "m.toml"]).expect(0).contains(" with loss 0.25"), "nobody asked for another one");
}

#[test]
fn an_axis_that_the_command_does_not_name_is_told() {
    let sandbox = Sandbox::new();
    let manifest = |command: &str, more: &str| {
        sandbox.sweep_manifest("exit 0", "[1, 2]", "[1, 2]");
        let text = std::fs::read_to_string(sandbox.path("m.toml")).unwrap();
        let text = text.replace(r#""{x}", "{seed}""#, command).replace("[params]\n", &format!("[params]\n{more}"));
        sandbox.write("m.toml", text);
        sandbox.run(&["run", "m.toml", "--dry-run"]).err
    };
    let told = |axis: &str, name: &str| {
        format!("warning: the command is the same for all values of `{axis}` (add `{{{name}}}`, or give one value)\n")
    };
    assert_eq!(manifest(r#""{x}", "{seed}""#, ""), "");
    assert_eq!(manifest(r#""{seed}""#, ""), told("params.x", "x"));
    assert_eq!(manifest(r#""{x}""#, "y = [3, 4]\n"), told("params.y", "y") + &told("seed", "seed"));
}

#[test]
fn while_runs_are_missing_the_best_is_so_far() {
    let sandbox = Sandbox::new();
    let worker = r#"[ "$1" = 2 ] && [ ! -e go ] && exit 3; echo '{"event":"metric","name":"loss","value":1}' >> "$LEDGER_EVENTS""#;
    sandbox.sweep_manifest(worker, "[1, 2]", "1");
    assert!(sandbox.run(&["run", "m.toml"]).out.contains("best toy so far (1 run not finished): "));
    sandbox.write("go", "");
    let said = sandbox.run(&["run", "m.toml"]).out;
    assert!(said.contains("best toy: "), "{said}");
}

#[test]
fn what_decides_is_told_first_of_every_run() {
    let sandbox = Sandbox::new();
    scored(&sandbox, "m.toml", "toy", "maximize", "1");
    let said = sandbox.run(&["run", "m.toml"]);
    let line = |text: &str, words: &str| {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.any(|line| line.contains(words))
    };
    assert!(line(&said.out, "RUN x OUTCOME score accuracy wall_time"), "{}", said.out);
    assert!(line(&said.out, " 1 finished 10 pt 0.5 "), "{}", said.out);
    assert!(line(&said.err, "finished score 8 pt accuracy 0.5 in "), "{}", said.err);
}
