//! What is asked of a ledger afterwards.

use crate::sandbox::{Sandbox, WORKER, repository};
use insta::assert_snapshot;

fn sealed() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

/// The ids of the runs in the order of the plan.
fn runs(sandbox: &Sandbox) -> Vec<String> {
    let plan = sandbox.json(&["run", "m.toml", "--dry-run"], 0);
    plan["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect()
}

/// Replaces what differs from run to run.
fn steady(sandbox: &Sandbox, text: &str) -> String {
    let mut text = text.to_owned();
    for (i, id) in runs(sandbox).iter().enumerate() {
        text = text.replace(id, &format!("<run {i}>")).replace(&id[..8], &format!("<run-{i}>"));
    }
    text
}

#[test]
fn best_ranks_configurations_by_the_mean_over_their_seeds() {
    let sandbox = sealed();
    let text = sandbox.run(&["best", "--model", "toy", "--metric", "loss"]).expect(0);
    // Which one is the fastest is no matter of what was computed.
    let text: String =
        text.lines().filter(|line| !line.contains("the fastest")).map(|line| format!("{line}\n")).collect();
    assert_snapshot!(steady(&sandbox, &text), @r"
    toy by loss (lower is better), mean of 2 seeds each
    #  RUN             loss  VS BEST               P(BEST)  x
    1  <run-1>  104 to 114  best                      97%  1
    2  <run-3>  204 to 214  1.92× (1.41 to 2.61)       3%  2
    3  <run-5>  304 to 314  2.83× (1.91 to 4.20)       0%  3
    not tested: #2 #3; too few seeds for a p below 0.05 (3 or more each are needed: `seed = [...]` in the manifest); their intervals assume a normal distribution
    two seeds give a range, not an interval, and a rough P(BEST): about 7 more would give ±5% (`seed = [...]` in the manifest)
    ");
    let best = sandbox.json(&["best", "--model", "toy", "--metric", "accuracy", "--top", "1"], 0);
    assert_eq!(best["places"].as_array().unwrap().len(), 1);
    assert_eq!(best["places"][0]["config"]["params.x"], 3);
    assert_eq!(best["direction"], "maximize");
    let turned = ["best", "--model", "toy", "--metric", "accuracy", "--direction", "minimize"];
    assert_snapshot!(sandbox.run(&turned).complaint(2), @"error: direction `minimize`: higher is better of `accuracy` (leave the direction out: it is for metrics of your own)");
    sandbox.json(&[&turned[..6], &["maximize"]].concat(), 0);
}

#[test]
fn a_hidden_run_leaves_every_answer_and_comes_back() {
    let sandbox = sealed();
    let ids = runs(&sandbox);
    let first = |sandbox: &Sandbox| {
        let best = sandbox.json(&["best", "--model", "toy", "--metric", "loss"], 0);
        (best["places"][0]["config"]["params.x"].as_i64(), best["places"][0]["n"].as_i64())
    };
    assert_eq!(first(&sandbox), (Some(1), Some(2)));
    sandbox.run(&["hide", &ids[0]]).expect(0);
    assert_eq!(first(&sandbox), (Some(1), Some(1)));
    sandbox.run(&["hide", &ids[1]]).expect(0);
    assert_eq!(first(&sandbox), (Some(2), Some(2)));
    assert_eq!(sandbox.json(&["ls"], 0)["attempts"].as_array().unwrap().len(), 4);
    assert_eq!(sandbox.json(&["ls", "--hidden"], 0)["attempts"].as_array().unwrap().len(), 6);
    sandbox.run(&["show", &ids[0]]).expect(0);
    sandbox.json(&["verify"], 0);
    sandbox.run(&["hide", "--undo", &ids[0]]).expect(0);
    sandbox.run(&["hide", "--undo", &ids[1]]).expect(0);
    assert_eq!(first(&sandbox), (Some(1), Some(2)));
    sandbox.json(&["verify"], 0);
}

#[test]
fn what_is_hidden_is_told_wherever_it_is_missed() {
    let sandbox = sealed();
    let ids = runs(&sandbox);
    let last = |sandbox: &Sandbox, args: &[&str]| sandbox.run(args).expect(0).lines().last().unwrap().to_owned();
    assert_eq!(last(&sandbox, &["ls", "-n", "0"]), "0 of 6 attempts (-n N shows more, --all all of them)");
    sandbox.run(&["hide", &ids[0]]).expect(0);
    for all in [&["ls", "--all"][..], &["ls", "-n", "100"]] {
        assert_eq!(last(&sandbox, all), "5 of 6 attempts (1 is hidden, --hidden shows it)");
    }
    let few = last(&sandbox, &["ls", "-n", "2"]);
    assert_eq!(few, "2 of 6 attempts (-n N shows more, --all all of them; 1 is hidden, --hidden shows it)");
    assert_eq!(sandbox.json(&["ls"], 0)["hidden"], 1);
    // All that meet a condition are counted, however few are shown.
    let (one, every) = (["ls", "--where", "x <= 2", "-n", "1"], ["ls", "--where", "x <= 2", "--all"]);
    let [shown, all] = [&one[..], &every].map(|asked| sandbox.json(asked, 0));
    assert_eq!((&shown["matching"], &all["matching"]), (&3.into(), &3.into()));
    assert_eq!(shown["attempts"].as_array().unwrap()[..], all["attempts"].as_array().unwrap()[..1]);
    let second = sandbox.json(&[&one[..], &["--skip", "1"]].concat(), 0);
    assert_eq!(second["attempts"].as_array().unwrap()[..], all["attempts"].as_array().unwrap()[1..2]);
    assert_eq!(sandbox.json(&[&one[..], &["--hidden"]].concat(), 0)["matching"], 4);
    assert!(!sandbox.run(&["ls", "--hidden"]).expect(0).contains(" of 6"));
    ids[1..].iter().for_each(|id| drop(sandbox.run(&["hide", id]).expect(0)));
    assert_snapshot!(sandbox.run(&["ls"]).expect(0), @"0 of 6 attempts (6 are hidden, --hidden shows them)");
    assert_snapshot!(sandbox.run(&["best", "--model", "toy", "--metric", "loss"]).complaint(1), @"error: no `loss` counts: there are 6 hidden attempts (add --include hidden)");
    assert_snapshot!(sandbox.run(&["best", "--model", "toy", "--metric", "lost", "--direction", "minimize"]).complaint(1), @"error: no finished attempt counts: there are 6 hidden attempts (add --include hidden)");
    sandbox.run(&["best", "--model", "toy", "--metric", "loss", "--include", "hidden"]).expect(0);
    assert_snapshot!(sandbox.run(&["show", "latest"]).complaint(1), @"error: no run, attempt or tag matches `latest` (there are 0 attempts, and 6 hidden: `ledger ls --hidden`)");
    assert_snapshot!(sandbox.run(&["show", "nosuch"]).complaint(1), @"error: no run, attempt or tag matches `nosuch` (all attempts are hidden: `ledger ls --hidden`)");
    assert_snapshot!(sandbox.run(&["export", "--to", "csv"]).complaint(1), @"error: all matching attempts are hidden (add --hidden)");
    sandbox.run(&["export", "--to", "csv", "--hidden"]).expect(0);
}

#[test]
fn only_what_is_hidden_comes_back() {
    let sandbox = sealed();
    let attempts = sandbox.json(&["ls"], 0);
    let short = |at: usize| attempts["attempts"][at]["attempt"].as_str().unwrap()[..8].to_owned();
    let log = |sandbox: &Sandbox| sandbox.json(&["verify"], 0)["log_entries"].clone();
    assert!(sandbox.run(&["hide", "--undo", "latest"]).complaint(1).contains("(nothing is)"));
    sandbox.run(&["hide", "latest"]).expect(0);
    let before = log(&sandbox);
    let complaint = sandbox.run(&["hide", "--undo", "latest"]).complaint(1);
    assert_eq!(
        complaint.trim_end(),
        format!("error: `latest`, which is {}, is not hidden (hidden: {})", short(1), short(0))
    );
    assert_eq!(sandbox.run(&["hide", &short(0)]).expect(0), format!("{} is hidden already\n", short(0)));
    assert_eq!(log(&sandbox), before);
    sandbox.run(&["hide", "--undo", &short(0)]).expect(0);
    assert_eq!(sandbox.json(&["ls"], 0)["attempts"][0]["attempt"], attempts["attempts"][0]["attempt"]);
    assert_eq!(log(&sandbox), serde_json::json!(before.as_u64().unwrap() + 1));
}

#[test]
fn a_tag_is_no_option_and_a_note_says_something() {
    let sandbox = sealed();
    assert!(sandbox.run(&["tag", "latest", "--", "-x"]).complaint(2).contains("begins with `-`"));
    assert!(sandbox.run(&["note", "latest", " "]).complaint(2).contains("is empty"));
}

#[test]
fn why_and_diff_name_what_differs() {
    let sandbox = sealed();
    let ids = runs(&sandbox);
    let why = sandbox.run(&["why", &ids[0][..8], &ids[3][..8]]).expect(1);
    assert_snapshot!(steady(&sandbox, &why), @r"
    config differs:
      FIELD     <run-0>  <run-3>
      params.x  1         2
    seed differs:
      FIELD  <run-0>  <run-3>
      seed   1         2
    ");
    assert_eq!(sandbox.json(&["why", &ids[0], &ids[0]], 0)["same_run"], true);
    let diff = sandbox.json(&["diff", &ids[0], &ids[2]], 1);
    assert_eq!(diff["parts"][0]["fields"][0]["field"], "params.x");
    let loss = diff["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "loss").unwrap();
    assert_eq!(
        (loss["a"].as_f64(), loss["b"].as_f64(), loss["absolute"].as_f64()),
        (Some(104.0), Some(204.0), Some(100.0))
    );
    let curve = &diff["curves"][0];
    assert_eq!((curve["first_step"].as_i64(), curve["max_distance"].as_f64()), (Some(1), Some(100.0)));
    let same = sandbox.json(&["diff", &ids[0], &ids[0]], 0);
    assert_eq!(
        same["equal"],
        serde_json::json!(["accuracy", "loss"]),
        "the same bits are no difference, and worth a word"
    );
    assert!(
        ["parts", "environment", "metrics", "curves", "digests"]
            .iter()
            .all(|key| same[key].as_array().unwrap().is_empty())
    );
}

#[test]
fn events_stand_beside_what_was_read_of_the_hardware() {
    let sandbox = sealed();
    let document = sandbox.json(&["events", "latest"], 0);
    let phases = document["phases"].as_array().unwrap();
    let counts: Vec<(&str, i64)> =
        phases.iter().map(|phase| (phase["phase"].as_str().unwrap(), phase["count"].as_i64().unwrap())).collect();
    assert!(counts.contains(&("epoch", 2)) && counts.contains(&("step", 6)), "{counts:?}");
    for phase in phases {
        let told = ["energy", "energy_reason"].iter().filter(|key| phase.get(**key).is_some()).count();
        assert_eq!(told, 1, "an energy or a reason: {phase}");
    }
    let text = sandbox.run(&["events", &runs(&sandbox)[0][..8]]).expect(0);
    assert!(text.lines().nth(1).unwrap().starts_with("PHASE"), "{text}");
    sandbox.run(&["events", "0000"]).complaint(1);
}

#[test]
fn tags_and_notes_stay_with_what_they_name() {
    let sandbox = sealed();
    let ids = runs(&sandbox);
    sandbox.run(&["tag", &ids[2], "baseline"]).expect(0);
    sandbox.run(&["note", "baseline", "the fan was noisy"]).expect(0);
    let show = sandbox.json(&["show", "baseline"], 0);
    assert_eq!((show["run"].as_str(), &show["notes"][0]), (Some(ids[2].as_str()), &"the fan was noisy".into()));
    sandbox.run(&["tag", &ids[3], "baseline"]).expect(0);
    assert_eq!(sandbox.json(&["show", "baseline"], 0)["run"].as_str(), Some(ids[3].as_str()), "the name has moved");
    for name in ["latest", "abcd", "a b", ""] {
        sandbox.run(&["tag", &ids[0], name]).complaint(2);
    }
    sandbox.run(&["tag", "--remove", "baseline"]).expect(0);
    sandbox.run(&["show", "baseline"]).complaint(1);
    sandbox.run(&["tag", "--remove", "baseline"]).complaint(1);
    sandbox.json(&["verify"], 0);
}

#[test]
fn an_attempt_travels_in_one_file_and_arrives_once() {
    let from = sealed();
    let to = Sandbox::new();
    let file = to.path("one.ledger");
    let file = file.to_str().unwrap();
    let exported = from.json(&["export", "latest", "-o", file], 0);
    from.run(&["export", "latest", "-o", file]).complaint(2);
    assert_eq!(to.json(&["import", file], 0)["imported"][0]["state"], "new");
    assert_eq!(to.json(&["import", file], 0)["imported"][0]["state"], "known");
    let (there, here) = (from.json(&["show", "latest"], 0), to.json(&["show", "latest"], 0));
    assert_eq!(there["attempts"], here["attempts"]);
    assert_eq!(here["attempts"][0]["attempt"], exported["attempt"]);
    to.json(&["verify"], 0);
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    to.write("bad.ledger", &bytes);
    assert!(to.run(&["import", "bad.ledger"]).complaint(2).contains("damaged"));
    to.write("no.ledger", "hello");
    assert!(to.run(&["import", "no.ledger"]).complaint(2).contains("not a ledger pack"));
    to.run(&["import", "absent.ledger"]).complaint(2);
}

#[test]
fn the_machine_is_described_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    let checks = sandbox.json(&["doctor"], 0);
    for check in checks["checks"].as_array().unwrap() {
        let fine = check["state"] == "ok";
        assert!(fine || !check["consequence"].as_str().unwrap().is_empty(), "{check}");
    }
    assert!(!sandbox.ledger_dir().exists());
}

#[test]
fn every_command_has_help_with_an_example() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(&["--help"]).expect(0);
    let listed = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    // A long line goes on below, further to the right.
    let listed = listed.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let commands: Vec<&str> =
        listed.map(|line| line.split(' ').next().unwrap()).filter(|name| *name != "help").collect();
    assert!(commands.len() > 40 && commands.contains(&"best"), "{commands:?}");
    for command in commands {
        let help = sandbox.run(&[command, "--help"]).expect(0);
        assert!(help.contains("Example: ledger "), "{help}");
        sandbox.run(&["man", command]).expect(0);
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(sandbox.run(&["completions", shell]).expect(0).contains("LEDGER_COMPLETE"));
    }
    for args in [["schema"].as_slice(), &["schema", "--events"]] {
        let schema: serde_json::Value = serde_json::from_str(&sandbox.run(args).expect(0)).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
    // What the docs except from --json.
    for args in [["schema"].as_slice(), &["completions", "bash"], &["man"], &["plot", "license"]] {
        let plain = sandbox.run(args).expect(0);
        assert_eq!(sandbox.run(&[args, &["--json"]].concat()).expect(0), plain);
    }
    let text = std::fs::read_to_string(repository("docs/record-format.md")).unwrap();
    assert!(text.contains("but `completions`, `man`, `schema` and `plot license`"));
    sandbox.run(&[]).complaint(2);
    sandbox.run(&["fly"]).complaint(2);
    assert!(sandbox.run(&["fly", "--json"]).out.contains("\"code\": 2"));
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let sandbox = sealed();
    let mut child = sandbox.start(&["show", "latest"]);
    drop(child.stdout.take());
    let said = Sandbox::finish(child);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}

#[test]
fn best_says_where_configurations_did_not_do_the_same_work() {
    let sandbox = Sandbox::new();
    sandbox.write("t.csv", "batch,joules,sample,seconds\n32,800,0.25,9\n128,3000,0.21,20\n");
    sandbox.write(
        "m.toml",
        "date = 2024-05-31\n[fields]\nmodel.name = \"net\"\ndata.train_count = 20480\ntraining.steps = 110\ntraining.batch_size = \"{batch}\"\n\
         [metrics]\nenergy = { value = \"{joules}\", unit = \"J\" }\n\
         energy_per_sample = { value = \"{sample}\", unit = \"J\" }\ntrain_time = { value = \"{seconds}\", unit = \"s\" }\n",
    );
    sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    let ask = |metric: &str| sandbox.run(&["best", "--model", "net", "--metric", metric]).expect(0);
    let note = |metric: &str, instead: &str| {
        format!("not the same work: {metric} is of 3520 to 14080 samples (compare `{instead}` instead)\n")
    };
    let (energy, time) = (ask("energy"), ask("train_time"));
    assert!(energy.contains(&note("energy", "energy_per_sample")), "{energy}");
    assert!(time.contains(&note("train_time", "throughput")), "{time}");
    let found = sandbox.json(&["best", "--model", "net", "--metric", "energy"], 0);
    let work = serde_json::json!({"metric": "energy", "least": 3520, "most": 14080});
    assert_eq!(found["unequal_samples"], work);
    // Against the fastest, which did less.
    let each = ask("energy_per_sample");
    assert!(
        each.contains("energy_per_sample 0.840×, train_time 2.22×") && each.contains(&note("train_time", "throughput")),
        "{each}"
    );
    let grouped = ["best", "--model", "net", "--metric", "energy", "--group-by", "batch_size"];
    assert!(sandbox.run(&grouped).expect(0).contains(&note("energy", "energy_per_sample")));
    let asked = ["pareto", "--model", "net", "--metrics", "energy,energy_per_sample", "--group-by", "batch_size"];
    let front = sandbox.run(&asked).expect(0);
    assert!(
        front.contains(&note("energy", "energy_per_sample")) && front.matches("not the same").count() == 1,
        "{front}"
    );
    let groups: Vec<_> =
        sandbox.json(&asked, 0)["points"].as_array().unwrap().iter().map(|point| point["group"].clone()).collect();
    assert_eq!(
        groups,
        [serde_json::json!({"training.batch_size": 32}), serde_json::json!({"training.batch_size": 128})]
    );
    let beside = sandbox.json(&["compare", "latest", "latest~1"], 0);
    let marked = beside["metrics"].as_array().unwrap().iter().filter(|line| line.get("best").is_some());
    let marked: Vec<&str> = marked.map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(marked, ["energy_per_sample"], "of other totals the least is no merit");
    let said = sandbox.run(&["best", "--model", "net", "--metric", "energy", "--group-by", "program"]).complaint(2);
    assert!(said.contains("--group-by: `program` has several fields (name one of them, such as `program."), "{said}");
    // One size alone.
    let one = sandbox.run(&["best", "--model", "net", "--metric", "energy", "--where", "batch_size == 128"]).expect(0);
    assert!(!one.contains("not the same work"), "{one}");
}

#[test]
fn of_unequal_work_the_fastest_is_that_of_the_highest_throughput() {
    let sandbox = Sandbox::new();
    // The first takes longer for twice the steps.
    sandbox.write("t.csv", "batch,steps,joules,seconds,rate\n128,540,0.2,22,3180\n64,300,0.4,21,1823\n");
    sandbox.write(
        "m.toml",
        "date = 2024-05-31\n[fields]\nmodel.name = \"net\"\ndata.train_count = 204800\ntraining.steps = \"{steps}\"\ntraining.batch_size = \"{batch}\"\n\
         [metrics]\nenergy_per_sample = { value = \"{joules}\", unit = \"J\" }\ntrain_time = { value = \"{seconds}\", unit = \"s\" }\n\
         throughput = { value = \"{rate}\", unit = \"samples/s\" }\n",
    );
    sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    for more in [[].as_slice(), &["--group-by", "batch_size"], &["--where", "steps > 0"]] {
        let asked = [["best", "--model", "net", "--metric", "energy_per_sample"].as_slice(), more].concat();
        let said = sandbox.run(&asked).expect(0);
        assert!(said.contains("#1 is also the fastest (by throughput), by the mean\n"), "{said}");
    }
}

/// Training times are not compared where the number of samples of one program is unknown.
#[test]
fn of_unknown_work_the_fastest_is_that_of_the_highest_throughput() {
    let sandbox = Sandbox::new();
    for (name, row, samples) in
        [("own", "480,0.2,12,4900", "data.train_count = 204800\n"), ("other", "760,0.3,20,5000", "")]
    {
        sandbox.write("t.csv", format!("steps,joules,seconds,rate\n{row}\n"));
        sandbox.write(
            "m.toml",
            format!(
                "date = 2024-05-31\n[fields]\nmodel.name = \"net\"\n{samples}training.steps = \"{{steps}}\"\ntraining.batch_size = 128\nparams.by = \"{name}\"\n\
                 [metrics]\nenergy_per_sample = {{ value = \"{{joules}}\", unit = \"J\" }}\ntrain_time = {{ value = \"{{seconds}}\", unit = \"s\" }}\n\
                 throughput = {{ value = \"{{rate}}\", unit = \"samples/s\" }}\n"
            ),
        );
        sandbox.run(&["import", "table", "t.csv", "--map", "m.toml"]).expect(0);
    }
    let said = sandbox.run(&["best", "--model", "net", "--metric", "energy_per_sample", "--group-by", "by"]).expect(0);
    assert!(said.contains("against the fastest, ") && said.contains(", throughput 0."), "{said}");
}

/// The completions of the last of these words in bash.
fn completed(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let index = (words.len() - 1).to_string();
    let mut command = sandbox.command(&[]);
    command.args(["--"]).args(words);
    command.envs([("LEDGER_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")]);
    let said = command.output().unwrap();
    String::from_utf8_lossy(&said.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_what_the_ledger_holds() {
    let sandbox = Sandbox::new();
    assert!(completed(&sandbox, &["ledger", "best", "--model", ""]).is_empty());
    assert!(!sandbox.ledger_dir().join("ledger.redb").exists(), "completion makes no ledger");
    let worker = "echo '{\"event\":\"metric\",\"name\":\"--x $(y)\",\"value\":1}' >> $LEDGER_EVENTS; echo '{\"event\":\"metric\",\"name\":\"score/a\",\"value\":1}' >> $LEDGER_EVENTS";
    sandbox.sweep_manifest(worker, "[1]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox.run(&["tag", "latest", "first"]).expect(0);
    assert_eq!(completed(&sandbox, &["ledger", "best", "--model", "t"]), ["toy"]);
    assert_eq!(completed(&sandbox, &["ledger", "best", "--metric", "score/"]), ["score/a"]);
    assert_eq!(completed(&sandbox, &["ledger", "show", "fir"]), ["first"]);
    let shown = completed(&sandbox, &["ledger", "show", ""]);
    assert!(shown.contains(&"latest".to_owned()), "{shown:?}");
    let where_ = completed(&sandbox, &["ledger", "ls", "--where", "seed == 1 and params."]);
    assert_eq!(where_, ["seed == 1 and params.x"]);
    let metrics = completed(&sandbox, &["ledger", "best", "--metric", ""]);
    assert!(!metrics.iter().any(|name| name.contains('$')), "{metrics:?}");
    // Whoever only has the variable gets what was asked for.
    let mut command = sandbox.command(&["ls"]);
    let said = command.env("LEDGER_COMPLETE", "bash").output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("RUN "), "{said:?}");
}
