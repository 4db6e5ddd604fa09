//! What programs write: kept with every attempt, shown while they run, searched for metrics; and programs that write too much, nothing or rubbish.

use crate::sandbox::Sandbox;
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};

/// A program of the shell, and what else stands in `[program]`.
fn sandbox(script: &str, program: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("worker.sh", script);
    let text = format!(
        "name = 'toy'\n[model]\nname = 'toy'\n[hardware]\ndevice = 'cpu'\n[program]\ncommand = ['sh', 'worker.sh']\n{program}\n"
    );
    sandbox.write("m.toml", text);
    sandbox
}

fn attempt(sandbox: &Sandbox) -> Value {
    sandbox.json(&["show", "latest"], 0)["attempts"][0].clone()
}

fn warnings(attempt: &Value) -> String {
    attempt["warnings"].to_string()
}

const BOTH: &str = "echo one; sleep 0.1; echo oh >&2; sleep 0.1; echo two; echo PASSWORD=hunter2\n";

#[test]
fn a_process_that_leaves_its_group_and_lives_on_is_told() {
    let sandbox = sandbox("setsid sleep 20 >/dev/null 2>&1 &\nsleep 0.3\n", "");
    let said = sandbox.run(&["run", "m.toml"]);
    let begin = "warning: processes of the program still run: `sleep` (process ";
    let at = said.err.find(begin).unwrap_or_else(|| panic!("{said:?}"));
    let rest = &said.err[at + begin.len()..];
    let pid = &rest[..rest.find(')').unwrap()];
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert!(warnings(&attempt(&sandbox)).contains("processes of the program still run"));
}

#[test]
fn the_output_of_a_finished_attempt_is_kept_without_secrets_and_shown_by_stream() {
    let sandbox = sandbox(BOTH, "");
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(sandbox.run(&["logs"]).expect(0), "one\noh\ntwo\nPASSWORD=(redacted)\n");
    assert_eq!(sandbox.run(&["logs", "latest", "--stderr"]).expect(0), "oh\n");
    assert_eq!(sandbox.run(&["logs", "latest", "--stdout", "--tail", "2"]).expect(0), "two\nPASSWORD=(redacted)\n");
    let document = sandbox.json(&["logs", "latest"], 0);
    assert_eq!(
        (document["running"].as_bool(), document["output"][1]["stream"].as_str()),
        (Some(false), Some("stderr"))
    );
    let facts = &attempt(&sandbox)["facts"];
    assert_eq!(facts["output.bytes"], "one\noh\ntwo\nPASSWORD=hunter2\n".len());
    assert!(facts.get("output.left_out").is_none());
    sandbox.run(&["verify", "--deep"]).expect(0);
}

#[test]
fn the_output_goes_where_the_attempt_goes() {
    let sandbox = sandbox(BOTH, "");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let shown = sandbox.run(&["logs"]).expect(0);
    sandbox.run(&["pack", "latest", "-o", "all.pack"]).expect(0);
    sandbox.run(&["export", "latest", "-o", "one.ledger"]).expect(0);
    for (to, arguments) in [("a", ["unpack", "all.pack"]), ("b", ["import", "one.ledger"]), ("c", ["merge", "ledger"])]
    {
        let there = |arguments: &[&str]| sandbox.run(&[arguments, &["--ledger", to]].concat());
        there(&arguments).expect(0);
        assert_eq!(there(&["logs", "latest"]).expect(0), shown, "{to}");
        there(&["verify"]).expect(0);
    }
}

#[test]
fn an_attempt_without_output_says_so() {
    let sandbox = sandbox("true", "");
    let said = sandbox.run(&["run", "m.toml", "--repeat", "2"]);
    assert_eq!(said.code, Some(0));
    assert_eq!(said.err.matches(" and 1 more: note: the program wrote no events").count(), 1, "{}", said.err);
    let said = sandbox.run(&["logs", "latest"]).complaint(1);
    assert!(said.contains("its program wrote none"), "{said}");
    assert!(attempt(&sandbox)["facts"].get("output.digest").is_none());
}

/// A sandbox with a program that lives until a file is there, and its `ledger run`.
fn begun(said: &str) -> (Sandbox, Child) {
    let script = format!(
        "{said}\nwhile [ ! -e go ]; do sleep 0.02; done\necho the end\necho '{{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.75}}' >> \"$LEDGER_EVENTS\"\n"
    );
    let sandbox = sandbox(&script, "");
    let child = sandbox.start(&["run", "m.toml"]);
    (sandbox, child)
}

const STEPS: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say '{"event":"plan","steps":40}'
say '{"event":"phase_start","name":"load"}'
say '{"event":"phase_stop","name":"load"}'
say '{"event":"step","step":1,"values":{"loss":4}}'
say '{"event":"step","step":8,"values":{"loss":2.5}}'
echo begun
"#;

#[test]
fn an_attempt_is_seen_while_it_runs() {
    let (sandbox, child) = begun(STEPS);
    sandbox.wait_for("the program's output", || sandbox.run(&["logs"]).out == "begun\n");
    let running = sandbox.json(&["ls"], 0)["running"][0].clone();
    assert_eq!((running["step"].as_u64(), running["steps"].as_u64()), (Some(8), Some(40)), "{running}");
    assert_eq!((running["loss"].as_f64(), running["outcome"].as_str()), (Some(2.5), Some("running")));
    assert!(sandbox.run(&["ls"]).expect(0).contains("running, step 8/40"));
    let id = &running["run"].as_str().unwrap()[..8];
    for named in [id, "latest"] {
        let shown = sandbox.run(&["show", named]).expect(0);
        assert!(shown.contains("outcome  running: these are its numbers so far") && shown.contains("loss"), "{shown}");
        assert_eq!(sandbox.json(&["show", named], 0)["running"][0]["outcome"], "running");
        let picture = format!("{named}.csv");
        sandbox.run(&["plot", "curves", named, "-o", &picture]).expect(0);
        assert!(fs::read_to_string(sandbox.path(&picture)).unwrap().contains("2.5"));
        let telemetry = sandbox.json(&["telemetry", named, "--series", "loss"], 0);
        assert_eq!(telemetry["run"], running["run"]);
        let events = sandbox.json(&["events", named], 0);
        assert!(events["phases"].as_array().unwrap().iter().any(|phase| phase["phase"] == "load"), "{events}");
        assert!(sandbox.run(&["events", named, "--by", "name"]).expect(0).contains("load"));
    }
    let watched = sandbox.run(&["watch", "--once"]).expect(0);
    assert!(watched.contains("8/40") && watched.contains(id), "{watched}");
    assert!(
        sandbox.journals().iter().any(|path| path.extension().is_some_and(|end| end == "journal")),
        "nobody sealed it"
    );
    fs::write(sandbox.path("go"), "").unwrap();
    Sandbox::finish(child).expect(0);
    assert_eq!(sandbox.outcomes(), ["finished"]);
    assert_eq!(sandbox.json(&["ls"], 0)["running"], serde_json::json!([]));
    assert_eq!(sandbox.run(&["watch", "--once"]).code, Some(1));
    assert_eq!(sandbox.journals(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_output_is_followed_to_its_last_line() {
    let (sandbox, child) = begun("echo begun");
    sandbox.wait_for("the program's output", || sandbox.run(&["logs"]).out == "begun\n");
    let follower = sandbox.start(&["logs", "--follow"]);
    fs::write(sandbox.path("go"), "").unwrap();
    assert_eq!(Sandbox::finish(follower).expect(0), "begun\nthe end\n");
    Sandbox::finish(child).expect(0);
}

#[test]
fn an_output_whose_supervisor_dies_is_followed_to_its_end_and_sealed() {
    let (sandbox, mut child) = begun("echo begun");
    sandbox.wait_for("the program's output", || sandbox.run(&["logs"]).out == "begun\n");
    let follower = sandbox.start(&["logs", "--follow"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = Sandbox::finish(follower).expect(0);
    assert!(said == "begun\n", "{said}");
    assert_eq!(sandbox.outcomes(), ["interrupted"]);
    assert_eq!(sandbox.run(&["logs", "latest"]).expect(0), "begun\n");
}

#[test]
fn metrics_are_found_in_the_output() {
    let script = "for i in 1 2 3; do echo \"step ${i}0 loss 0.$i\"; done; echo 'acc 0.5'; printf 'acc 0.875'\n";
    let patterns = "[program.metrics]\naccuracy = 'acc (\\d\\.\\d+)'\nloss = { pattern = 'step (?<step>\\d+) loss (?<value>\\S+)', series = true }\nttft = { pattern = 'first after (\\S+)', unit = 's', kind = 'measured' }\ntop5 = { pattern = 'acc (\\S+)', kind = 'outcome' }";
    let sandbox = sandbox(script, patterns);
    let said = sandbox.run(&["run", "m.toml"]);
    assert!(
        said.err.contains("program.metrics.ttft: no line of the standard output matches `first after (\\S+)`"),
        "{}",
        said.err
    );
    let attempt = attempt(&sandbox);
    let value = |name: &str| attempt["metrics"][name]["value"].as_f64();
    assert_eq!(
        (value("accuracy"), value("loss"), value("ttft"), value("top5")),
        (Some(0.875), Some(0.3), None, Some(0.875))
    );
    assert!(warnings(&attempt).contains("program.metrics.ttft"), "{attempt}");
    assert_eq!(attempt["facts"]["metric_kind.top5"], "outcome");
    assert_eq!(attempt["settings"]["program.metrics"]["accuracy"], "acc (\\d\\.\\d+)", "it is recorded");
    sandbox.run(&["plot", "curves", "latest", "-o", "loss.csv"]).expect(0);
    let points = fs::read_to_string(sandbox.path("loss.csv")).unwrap();
    assert!(points.contains("30") && points.contains("0.3"), "{points}");
    // Another pattern finds another quantity.
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    sandbox.write("m.toml", text.replace("first after", "first token after"));
    assert!(sandbox.run(&["run", "m.toml", "--dry-run"]).expect(0).contains("1 attempt missing"));
}

#[test]
fn a_value_that_a_later_line_may_replace_is_said_to_be_stale_where_it_is_shown() {
    let script = "echo 'acc 0.5'; echo 'acc nan'; echo 'loss 1.5e-03'";
    let patterns = "[program.metrics]\naccuracy = 'acc (\\d\\.\\d+)'\nloss = 'loss (\\d\\.\\d+)'";
    let sandbox = sandbox(script, patterns);
    let stale = "program.metrics.accuracy: the value may be stale: the later line `acc nan` does not match";
    let said = sandbox.run(&["run", "m.toml"]);
    assert!(said.err.contains(stale), "{}", said.err);
    assert!(sandbox.run(&["show", "latest"]).expect(0).contains(stale));
    assert_eq!(attempt(&sandbox)["metrics"]["loss"]["value"], 0.0015);
    let best = |metric: &str| sandbox.run(&["best", "--model", "toy", "--metric", metric]).err;
    assert!(best("accuracy").contains("warning: `accuracy` may be stale in "), "{}", best("accuracy"));
    assert!(!best("loss").contains("stale"), "{}", best("loss"));
}

#[test]
fn a_metric_that_states_its_kind_is_recorded_with_it() {
    let script = r#"echo '{"event":"metric","name":"ttft","value":0.2,"kind":"measured"}' >> "$LEDGER_EVENTS"
echo '{"event":"metric","name":"fid","value":9,"kind":"speed"}' >> "$LEDGER_EVENTS""#;
    let sandbox = sandbox(script, "");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let attempt = attempt(&sandbox);
    assert_eq!(attempt["facts"]["worker.metric_kind.ttft"], "measured");
    assert!(
        warnings(&attempt)
            .contains("its `kind` is `\\\"speed\\\"` (it must be `outcome` or `measured`, or be left out)"),
        "{attempt}"
    );
}

#[test]
fn lines_that_are_no_events_are_reported_once_at_the_end() {
    let script = "for i in $(seq 23); do echo \"loss 0.$i\" >> \"$LEDGER_EVENTS\"; done\n";
    let sandbox = sandbox(script, "");
    let said = sandbox.run(&["run", "m.toml", "--repeat", "3"]);
    assert_eq!(said.code, Some(0));
    let lines: Vec<&str> = said.err.lines().filter(|line| line.contains("not events")).collect();
    let [line] = lines[..] else { panic!("{}", said.err) };
    assert!(line.contains(" and 2 more: warning: 23 lines are not events; the first: `loss 0.1` (it is not"), "{line}");
    assert_eq!(attempt(&sandbox)["facts"]["events.rejected"], 23);
}

#[test]
fn a_long_reason_is_said_once_at_the_end_and_each_line_names_what_varies() {
    let sandbox = Sandbox::new();
    let long = "too little memory ".repeat(14);
    sandbox.sweep_manifest(&format!("echo '{long}' >&2; exit 3"), "1", "[1, 2]");
    let said = sandbox.run(&["run", "m.toml"]);
    assert_eq!(said.code, Some(4));
    let err = said.err;
    assert!(err.contains(" seed 1: failed") && err.contains(" seed 2: failed"), "{err}");
    assert!(!err.contains("lr ") && !err.contains(" x 1 "), "{err}");
    assert_eq!(err.matches(long.trim()).count(), 1, "{err}");
    assert!(err.contains(" and 1 more: the worker exited with code 3: too little"), "{err}");
}

/// What a command prints at a terminal of so many columns; none where no program makes one.
fn at_a_terminal(sandbox: &Sandbox, columns: u32, args: &str) -> Option<String> {
    at_a_terminal_of(sandbox, &format!("cols {columns}"), "", args)
}

/// As [`at_a_terminal`], with what `stty` sets and what the command finds in its environment.
fn at_a_terminal_of(sandbox: &Sandbox, settings: &str, environment: &str, args: &str) -> Option<String> {
    let own = sandbox.command(&[]);
    let line =
        format!("stty {settings}; export TERM=xterm; {environment} exec '{}' {args}", own.get_program().display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(own.get_current_dir()?).env_clear();
    script.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = script.stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

#[test]
fn a_terminal_gets_the_next_commands_and_tables_that_fit() {
    let sandbox = Sandbox::new();
    let worker = "echo '{\"event\":\"metric\",\"name\":\"loss\",\"value\":0.5}' >> \"$LEDGER_EVENTS\"";
    sandbox.sweep_manifest(worker, "[1, 2]", "1");
    let Some(said) = at_a_terminal(&sandbox, 80, "run m.toml") else {
        eprintln!("skipped: there is no `script`");
        return;
    };
    let ledger = sandbox.ledger_dir();
    let next =
        format!("recorded in `{}`; next: `ledger best --model toy --metric loss`, `ledger show`", ledger.display());
    assert!(said.contains(&next), "{said}");
    sandbox.run(&["best", "--model", "toy", "--metric", "loss"]).expect(0);
    let listed = at_a_terminal(&sandbox, 60, "ls").unwrap();
    assert!(listed.contains("all rows: ") && !listed.contains("ACCURACY"), "{listed}");
    let rows = || listed.lines().skip_while(|line| !line.starts_with("RUN"));
    assert!(rows().take(3).all(|line| line.trim_end().chars().count() <= 60), "{listed}");
    let piped = sandbox.run(&["ls"]).expect(0);
    assert!(piped.contains("EXPERIMENT") && !piped.contains("left out"), "{piped}");
}

#[test]
fn a_terminal_gets_colours_and_a_pager_for_what_is_long() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest("exit 0", "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let Some(listed) = at_a_terminal(&sandbox, 80, "ls") else {
        eprintln!("skipped: there is no `script`");
        return;
    };
    assert!(listed.contains("\u{1b}[1mRUN ") && listed.contains("\u{1b}[32mfinished\u{1b}[0m"), "{listed}");
    assert!(!at_a_terminal(&sandbox, 80, "ls --color never").unwrap().contains('\u{1b}'));
    let colored = sandbox.run(&["ls", "--color", "always"]).expect(0);
    assert!(colored.contains("\u{1b}[1mRUN "), "{colored}");
    assert!(!sandbox.run(&["ls"]).expect(0).contains('\u{1b}'));
    let said = sandbox.run(&["ls", "--where", "nothing", "--color", "always"]).err;
    assert!(said.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "), "{said}");
    // More than five lines; the pager shows the first two.
    let shown = |rows: u32, pager: &str, args: &str| {
        let (settings, environment) = (format!("rows {rows} cols 80"), format!("LEDGER_PAGER='{pager}'"));
        at_a_terminal_of(&sandbox, &settings, &environment, args).unwrap().lines().count()
    };
    assert_eq!(shown(5, "head -n 2", "ls"), 2);
    assert_eq!(
        (shown(50, "head -n 2", "ls"), shown(5, "head -n 2", "--no-pager ls"), shown(5, "cat", "ls")),
        (7, 7, 7)
    );
    assert_eq!(shown(5, "no-such-pager", "ls"), 7, "without the pager, the answer is printed");
}

#[test]
fn an_impossible_value_is_told_when_the_run_ends_with_the_fix() {
    let sandbox = sandbox("echo acc 92.5", "[program.metrics]\naccuracy = 'acc (\\S+)'");
    let said = sandbox.run(&["run", "m.toml"]);
    let told = "invalid: `accuracy` is no share from 0 to 1 (the worker states 92.5; state a percentage with the unit `%`, in the event or in [program.metrics])";
    assert!(said.code == Some(0) && said.err.contains(told), "{}", said.err);
    let text = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    let stated = text.replace("'acc (\\S+)'", "{ pattern = 'acc (\\S+)', unit = '%' }");
    assert_ne!(stated, text);
    sandbox.write("m.toml", stated);
    sandbox.run(&["run", "m.toml", "--repeat", "1"]).expect(0);
    let shown = sandbox.json(&["show", "latest"], 0)["attempts"][0].clone();
    assert!((shown["metrics"]["accuracy"]["value"].as_f64().unwrap() - 0.925).abs() < 1e-9, "{shown}");
}

#[test]
fn much_output_is_kept_at_both_ends_and_nothing_else_is_lost() {
    // Twenty times what is kept of it.
    let script =
        "echo first; yes 'one line of a very long output' | head -c 40000000; echo; echo last; echo 'acc 0.5'\n";
    let sandbox = sandbox(script, "[program.metrics]\naccuracy = 'acc (\\S+)'");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let attempt = attempt(&sandbox);
    assert_eq!(attempt["metrics"]["accuracy"]["value"], 0.5);
    let bytes = |name: &str| attempt["facts"][name].as_u64().unwrap();
    assert_eq!(bytes("output.bytes"), 40_000_020);
    let shown = sandbox.run(&["logs", "latest"]).expect(0);
    assert!(shown.starts_with("first\none line") && shown.ends_with("\nlast\nacc 0.5\n"));
    let gap = format!("\n[… {} bytes are left out …]\n", bytes("output.left_out"));
    assert!(shown.contains(&gap) && shown.len() < 3 << 20, "{gap} {}", shown.len());
    let size = fs::metadata(sandbox.ledger_dir().join("ledger.redb")).unwrap().len();
    assert!(size < 4 << 20, "{size}");
}

#[test]
fn a_program_that_closes_its_output_goes_on() {
    let sandbox = sandbox(
        "echo before; exec >&- 2>&-; echo '{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":1}' >> \"$LEDGER_EVENTS\"",
        "",
    );
    sandbox.run(&["run", "m.toml"]).expect(0);
    assert_eq!(attempt(&sandbox)["metrics"]["accuracy"]["value"], 1.0);
    assert_eq!(sandbox.run(&["logs"]).expect(0), "before\n");
}

#[test]
fn what_a_program_leaves_behind_is_ended_and_its_output_is_kept() {
    let sandbox = sandbox("(while :; do echo child; sleep 0.05; done) & echo parent; sleep 0.2; exit 0", "");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let shown = sandbox.run(&["logs"]).expect(0);
    assert!(shown.contains("parent\n") && shown.contains("child\n"), "{shown}");
}

#[test]
fn a_program_that_fails_says_why_in_one_line() {
    for (script, reason) in [
        ("exec python3 nowhere.py", "the worker exited with code 2: "),
        (
            "exec python3 -c 'import nothing_of_that_name'",
            "ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        ("exec ./nowhere", "the worker exited with code "),
    ] {
        let sandbox = sandbox(script, "");
        let said = sandbox.run(&["run", "m.toml"]);
        assert_eq!(said.code, Some(4), "{script}");
        let told: Vec<&str> = said.err.lines().filter(|line| line.contains("failed")).collect();
        let [line] = told[..] else { panic!("{}", said.err) };
        assert!(line.contains(reason), "{line}");
        assert_eq!(sandbox.outcomes(), ["failed"]);
        assert!(!sandbox.run(&["logs", "latest"]).expect(0).is_empty());
    }
}

#[test]
fn reasons_that_differ_in_numbers_alone_are_one_line_at_the_end() {
    let sandbox = Sandbox::new();
    let long = "too little memory ".repeat(14);
    sandbox.sweep_manifest(&format!("echo \"{long} $2\" >&2; exit 3"), "1", "[1, 2, 3]");
    let err = sandbox.run(&["run", "m.toml"]).err;
    assert_eq!(err.matches(long.trim()).count(), 1, "{err}");
    assert!(err.contains(" and 2 more, with other numbers: the worker exited with code 3: too little"), "{err}");
}

#[test]
fn a_supervisor_that_is_killed_leaves_no_list_of_loaded_files() {
    let (sandbox, mut child) = begun("echo begun");
    sandbox.wait_for("the program's output", || sandbox.run(&["logs"]).out == "begun\n");
    let lists = || sandbox.journals().into_iter().filter(|path| path.extension().is_some_and(|end| end == "loaded"));
    let list = lists().next().unwrap();
    // As if a Python of it had been cut off while it wrote.
    fs::write(&list, "/a/b.py\0/a/c").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sandbox.outcomes(), ["interrupted"]);
    assert_eq!(sandbox.journals(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_hundred_thousand_events_are_all_there() {
    let script = r#"seq 100000 | sed 's/.*/{"event":"step","step":&,"values":{"loss":&}}/' >> "$LEDGER_EVENTS""#;
    let sandbox = sandbox(script, "");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let attempt = attempt(&sandbox);
    assert_eq!(attempt["metrics"]["loss"]["value"], 100_000.0);
    let series = attempt["series"].as_array().unwrap();
    assert!(series.iter().any(|series| series["name"] == "loss" && series["len"] == 100_000), "{attempt}");
}
