//! Which configuration is best, by how much and how sure; fronts and correlations: whole commands against numbers of SciPy and statsmodels.

use crate::sandbox::Sandbox;
use serde_json::Value;

/// Energy 1000 x + 10 seed, accuracy 0.6, 0.7 and 0.65; with x = 3 the second seed fails and the third is tainted.
const WORKER: &str = r#"
x=$1; seed=$2
say() { echo "$1" >> "$LEDGER_EVENTS"; }
say "{\"event\":\"step\",\"step\":1,\"duration_ns\":${x}000000,\"values\":{\"loss\":$x}}"
say "{\"event\":\"step\",\"step\":2,\"duration_ns\":${x}000000,\"values\":{\"loss\":0.5}}"
if [ $x$seed = 32 ]; then echo "out of memory" >&2; exit 3; fi
if [ $x$seed = 33 ]; then say '{"event":"fact","name":"tainted","value":"throttled"}'; fi
say "{\"event\":\"metric\",\"name\":\"energy\",\"value\":$((1000 * x + 10 * seed)),\"unit\":\"J\"}"
case $x in 1) accuracy=0.6;; 2) accuracy=0.7;; *) accuracy=0.65;; esac
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":$accuracy}"
"#;

/// Accuracy 0.9 whatever x is, and a loss that is no number with x = 4 and the first seed.
const EQUALS: &str = r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
if [ $1$2 = 41 ]; then loss=NaN; else loss=0.1; fi
say "{\"event\":\"metric\",\"name\":\"loss\",\"value\":$loss}"
say '{"event":"metric","name":"accuracy","value":0.9}'
"#;

fn sealed() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "[1, 2, 3]");
    sandbox.run(&["run", "m.toml"]).expect(4);
    sandbox
}

fn best(sandbox: &Sandbox, more: &[&str]) -> Value {
    sandbox.json(&[["best", "--model", "toy", "--metric", "energy"].as_slice(), more].concat(), 0)
}

fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} {expected}");
}

fn xs(document: &Value) -> Vec<i64> {
    document["places"].as_array().unwrap().iter().map(|place| place["config"]["params.x"].as_i64().unwrap()).collect()
}

#[test]
fn best_says_how_sure_it_is_and_what_it_leaves_out() {
    let sandbox = sealed();
    let found = best(&sandbox, &[]);
    assert_eq!(xs(&found), [1, 2, 3]);
    let places = found["places"].as_array().unwrap();
    near(&places[0]["mean"], 1020.0);
    // SciPy 1.17.1: t.ppf(0.975, 2) * 10 / sqrt(3); Welch's test of the logarithm of the ratio, v = (sem(a) / mean(a)) ** 2 + (sem(b) / mean(b)) ** 2.
    near(&places[0]["half_width"], 24.8413771175033);
    near(&places[1]["p_corrected"], 2.067442982460641e-06);
    assert_eq!((places[0]["n"].as_i64(), places[0]["olympic_mean"].as_f64()), (Some(3), Some(1020.0)));
    assert_eq!((&places[1]["differs"], &places[2]["differs"]), (&"yes".into(), &"untested".into()));
    assert_eq!(found["counted"], 7);
    let left_out: Vec<(&str, i64)> = found["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["why"].as_str().unwrap(), one["attempts"].as_i64().unwrap()))
        .collect();
    assert_eq!(left_out, [("failed", 1), ("tainted", 1)]);
    let text = sandbox.run(&["best", "--model", "toy", "--metric", "energy"]).expect(0);
    for line in [
        "#1 differs significantly from #2 (Welch's t-test)",
        "not tested: #3; too few attempts for a p below 0.05 (3 or more each are needed: `ledger run MANIFEST --repeat 2`)",
        "intervals cover repeats in one round on one machine only",
        "left out: 1 failed (the worker exited with code 3: out of memory), 1 tainted (throttled) (--include tainted counts them)",
        "list the failed attempts: `ledger ls --model toy --outcome failed`",
    ] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
    assert!(text.starts_with("toy by energy (lower is better), means\n"), "{text}");
    assert!(
        text.contains("1020 ± 2.4%  3 attempts in 1 round on 1 machine") && text.contains("1.980× (1.941 to 2.021)"),
        "{text}"
    );
    sandbox.json(&["verify"], 0);
}

#[test]
fn a_metric_that_none_has_is_not_looked_for_among_the_tainted() {
    let sandbox = sealed();
    let ask = |metric: &str| sandbox.run(&["best", "--model", "toy", "--metric", metric]).complaint(1);
    let said = ask("perplexity");
    assert!(said.contains("has a finite `perplexity` (there are: accuracy, "), "{said}");
    let said = sandbox.run(&["report", "--all", "--metrics", "own", "-o", "r"]).complaint(2);
    assert!(
        said.contains(
            "--metrics: `own` is not a known metric (`ledger show` lists those of an attempt; for a custom metric write `own:minimize` or `own:maximize`)"
        ),
        "{said}"
    );
    let said = sandbox.run(&["pareto", "--model", "toy", "--metrics", ","]).complaint(2);
    assert!(said.contains("--metrics: a metric's name is missing"), "{said}");
}

#[test]
fn fields_are_told_first_and_a_group_has_each_once() {
    let sandbox = sealed();
    let found = best(&sandbox, &["--group-by", "x,params.x"]);
    assert_eq!(found["places"][0]["group"].as_object().unwrap().len(), 1);
    let text = sandbox.run(&["best", "--model", "toy", "--metric", "energy", "--group-by", "x,x"]).expect(0);
    assert_eq!(text.lines().nth(1).unwrap().matches(" x").count(), 1, "{text}");
    let said =
        sandbox.run(&["best", "--model", "toy", "--metric", "energy", "--group-by", "nothing_like_it"]).complaint(2);
    let place = |name: &str| said.find(name).unwrap_or(usize::MAX);
    assert!(place("params.x") < place("accuracy") && place("accuracy") < usize::MAX, "{said}");
    // The whole id of the first one.
    let run = best(&sandbox, &[])["places"][0]["run"].as_str().unwrap().to_owned();
    let text = sandbox.run(&["best", "--model", "toy", "--metric", "energy", "--against", &run]).expect(0);
    assert!(text.contains("#1 is ") && !text.contains(&run), "{text}");
}

#[test]
fn the_index_answers_as_a_scan_of_all_attempts_does() {
    let sandbox = sealed();
    // Of two siblings one diverges, and three configurations are as good as each other.
    sandbox.sweep_manifest(EQUALS, "[4, 5, 6]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    for metric in ["energy", "accuracy", "loss"] {
        for top in ["1", "2", "10"] {
            same(&sandbox, metric, top);
        }
    }
    let found = sandbox.json(&["best", "--model", "toy", "--metric", "loss"], 0);
    assert_eq!((xs(&found).contains(&4), found["left_out"].to_string().contains("not_finite")), (false, true));
}

fn same(sandbox: &Sandbox, metric: &str, top: &str) {
    let ask = |more: &[&str]| {
        let mut found =
            sandbox.json(&[["best", "--model", "toy", "--metric", metric, "--top", top].as_slice(), more].concat(), 0);
        for place in found["places"].as_array_mut().unwrap() {
            // The attempts of a configuration, and so the run that names it, have no order.
            for key in ["attempts", "values", "run"] {
                place.as_object_mut().unwrap().remove(key);
            }
        }
        found["against"]["run"] = Value::Null;
        found
    };
    assert_eq!(ask(&[]), ask(&["--where", "seed >= 0"]), "{metric}");
}

#[test]
fn conditions_groups_and_limits() {
    let sandbox = sealed();
    assert_eq!(xs(&best(&sandbox, &["--where", "x >= 2 and accuracy > 0.65"])), [2]);
    assert_eq!(xs(&best(&sandbox, &["--at-least", "accuracy=0.65"])), [2, 3]);
    assert_eq!(xs(&best(&sandbox, &["--gpus", "0", "--top", "1"])), [1]);
    let by_seed = best(&sandbox, &["--group-by", "seed", "--where", "x < 3"]);
    let means: Vec<f64> =
        by_seed["places"].as_array().unwrap().iter().map(|place| place["mean"].as_f64().unwrap()).collect();
    assert_eq!(means, [1510.0, 1520.0, 1530.0]);
    assert_eq!(by_seed["places"][0]["group"]["seed"], 1);
    let with_tainted = best(&sandbox, &["--include", "tainted"]);
    assert_eq!((with_tainted["places"][2]["n"].as_i64(), with_tainted["counted"].as_i64()), (Some(2), Some(8)));
    let tolerant = best(&sandbox, &["--tolerance", "100%"]);
    assert_eq!(
        (&tolerant["places"][1]["is_within_tolerance"], &tolerant["places"][2]["is_within_tolerance"]),
        (&true.into(), &false.into())
    );
    let ask =
        |more: &[&str]| sandbox.run(&[["best", "--model", "toy", "--metric", "energy"].as_slice(), more].concat());
    assert!(ask(&["--where", "x >= 2 and acuracy > 1"]).complaint(2).contains("did you mean `accuracy`"));
    assert!(ask(&["--where", "x == big"]).complaint(2).ends_with("\n  x == big\n  ^^^^^^^^\n"));
    let none = "--where: no attempt meets `x > 9` (`params.x` is 1, 2, 3)";
    let listed = sandbox.run(&["ls", "--where", "x > 9"]);
    assert_eq!((listed.code, listed.err), (Some(0), format!("note: {none}\n")));
    assert!(ask(&["--where", "x >= 1 and x > 9"]).complaint(1).contains(none));
    let learned =
        "warning: #1 learned less: its accuracy is 0.6, that of #2 is 0.7 (`--at-least accuracy=0.65` requires more";
    assert!(ask(&[]).err.contains(learned), "{}", ask(&[]).err);
    let none = "--gpus: no attempt meets `hardware.gpus == 2` (`hardware.gpus` is 0)";
    assert!(ask(&["--gpus", "2"]).complaint(1).contains(none), "{}", ask(&["--gpus", "2"]).err);
    let slip = sandbox.run(&["best", "--model", "toy", "--metric", "acuracy"]);
    assert!(slip.complaint(2).contains("did you mean `accuracy`?"));
    assert!(
        ask(&["--at-least", "accuracy=0.99"]).complaint(1).contains("accuracy of at least 0.99 (the nearest has 0.")
    );
    for wrong in [
        ["--at-least", "accuracy"],
        ["--tolerance", "much"],
        ["--tolerance", "5"],
        ["--group-by", "nothing"],
        ["--against", "ffff"],
    ] {
        assert!(matches!(ask(&wrong).code, Some(1 | 2)), "{wrong:?}");
    }
}

#[test]
fn a_saving_is_told_against_the_default() {
    let sandbox = sealed();
    let second = best(&sandbox, &[])["places"][1]["run"].as_str().unwrap().to_owned();
    sandbox.run(&["tag", &second, "default"]).expect(0);
    for more in [[].as_slice(), &["--where", "x <= 3"]] {
        let against = best(&sandbox, more)["against"].clone();
        assert_eq!((against["what"].as_str(), against["is_best"].as_bool()), (Some("the default"), Some(false)));
        near(&against["metric"], -1000.0 / 2020.0);
        assert!(against["time"].is_f64(), "{against}");
    }
    assert_eq!(best(&sandbox, &["--against", "fastest"])["against"]["what"], "the fastest");
    // What the conditions leave out is held against all the same.
    for more in [["--where", "x != 2"], ["--where", "x == 1"], ["--against", &second]] {
        let against = best(&sandbox, &more)["against"].clone();
        assert_eq!(against["run"].as_str(), Some(second.as_str()), "{more:?}");
        near(&against["metric"], -1000.0 / 2020.0);
    }
    // A hidden one gives way to the fastest, and that is said.
    let rows = sandbox.run(&["export", "--to", "jsonl", "--where", "x == 2"]).expect(0);
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let repetitions: Vec<&str> = rows.iter().map(|row| row["run"].as_str().unwrap()).collect();
    repetitions.iter().for_each(|run| drop(sandbox.run(&["hide", run]).expect(0)));
    for more in [[].as_slice(), &["--where", "x <= 3"]] {
        let said = sandbox.run(&[["best", "--model", "toy", "--metric", "energy"].as_slice(), more].concat());
        let note =
            "note: the run tagged `default` has no `energy` that counts; the best is compared with the fastest instead";
        assert_eq!((said.code, said.err.trim_end()), (Some(0), note));
    }
    repetitions.iter().for_each(|run| drop(sandbox.run(&["hide", "--undo", run]).expect(0)));
    // A run without the metric cannot be: as the default it gives way to the fastest, by name it is missed.
    sandbox.sweep_manifest("exit 3", "4", "1");
    sandbox.run(&["run", "m.toml"]);
    sandbox.run(&["tag", "latest", "default"]).expect(0);
    for more in [[].as_slice(), &["--where", "x < 3"]] {
        assert_eq!(best(&sandbox, more)["against"]["what"], "the fastest");
        let asked = [["best", "--model", "toy", "--metric", "energy", "--against", "latest"].as_slice(), more].concat();
        assert!(sandbox.run(&asked).complaint(1).contains("has no `energy` that counts"));
    }
}

#[test]
fn compare_and_diff_put_runs_side_by_side() {
    let sandbox = sealed();
    let places = best(&sandbox, &[]);
    let id = |place: usize| places["places"][place]["run"].as_str().unwrap().to_owned();
    let compared = sandbox.json(&["compare", &id(0), &id(1), &id(2)], 0);
    let line = |kind: &str, name: &str| {
        compared[kind].as_array().unwrap().iter().find(|line| line["name"] == name).cloned().unwrap_or(Value::Null)
    };
    assert_eq!(line("identity", "params.x")["values"], serde_json::json!({"0": 1, "1": 2, "2": 3}));
    assert_eq!((line("metrics", "energy")["best"][0].as_i64(), line("identity", "model.name")), (Some(0), Value::Null));
    let all = sandbox.run(&["compare", &id(0), &id(1), "--all"]).expect(0);
    assert!(all.contains("model.name") && all.contains("* the best value of the row"), "{all}");
    sandbox.run(&["compare", &id(0)]).complaint(2);
    sandbox.run(&["compare", &id(0), "ffff"]).complaint(1);
    assert!(!sandbox.run(&["compare", &id(0), &id(1)]).err.contains("newest attempt"));

    let diff = sandbox.json(&["diff", &id(0), &id(1)], 1);
    let energy = diff["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "energy").unwrap();
    assert_eq!(energy["significance"]["n_a"], 3);
    near(&energy["significance"]["p"], 2.067442982460641e-06);
    near(&energy["significance"]["difference"], 1000.0);
    let step = diff["phases"].as_array().unwrap().iter().find(|phase| phase["phase"] == "step").unwrap();
    assert_eq!(step["count"], serde_json::json!({"a": 2, "b": 2}));
    let same = sandbox.json(&["diff", &id(0), &id(0)], 0);
    assert!(["phases", "telemetry"].iter().all(|key| same[key].as_array().unwrap().is_empty()));
}

#[test]
fn a_front_is_what_nothing_beats_in_everything() {
    let sandbox = sealed();
    let ask = ["pareto", "--model", "toy", "--metrics", "energy,accuracy"];
    let points = |document: &Value| -> Vec<(i64, bool)> {
        let points = document["points"].as_array().unwrap().iter();
        points
            .map(|point| (point["config"]["params.x"].as_i64().unwrap(), point["on_front"].as_bool().unwrap()))
            .collect()
    };
    assert_eq!(points(&sandbox.json(&ask, 0)), [(1, true), (2, true)]);
    let all = sandbox.json(&[ask.as_slice(), &["--dominated", "--plot", "front.svg"]].concat(), 0);
    assert_eq!(points(&all), [(1, true), (2, true), (3, false)]);
    assert_eq!(all["points"][2]["dominated_by"], all["points"][1]["run"]);
    let svg = std::fs::read_to_string(sandbox.path("front.svg")).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("energy, kJ (better ←)") && svg.contains("accuracy (better ↑)"),
        "{svg}"
    );
    let again = sandbox.run(&[ask.as_slice(), &["--plot", "front.svg"]].concat()).complaint(2);
    assert!(again.contains("(--force replaces it)"), "{again}");
    sandbox.write("front.svg", "old");
    sandbox.run(&[ask.as_slice(), &["--plot", "front.svg", "--force"]].concat()).expect(0);
    assert!(std::fs::read_to_string(sandbox.path("front.svg")).unwrap().starts_with("<svg"));
    for (metrics, code) in [("energy", 2), ("energy,own", 2), ("energy,own:minimize", 1)] {
        sandbox.run(&["pareto", "--model", "toy", "--metrics", metrics]).complaint(code);
    }
    let misspelt = sandbox.run(&["pareto", "--model", "toy", "--metrics", "energy:minimise,own:minimize"]).complaint(2);
    assert!(misspelt.contains("--metrics: `minimise` is no direction of `energy` (write `energy`)"), "{misspelt}");
}

#[test]
fn a_model_whose_attempts_all_failed_is_known() {
    let sandbox = sealed();
    sandbox.write("bad.toml", "model.name = \"broken\"\nprogram.command = [\"false\"]\n");
    sandbox.command(&["run", "bad.toml"]).output().unwrap();
    let said = sandbox.run(&["best", "--model", "broken", "--metric", "loss"]).complaint(1);
    assert!(
        said.contains("`broken` has 1 run, but no attempt that counts (`ledger ls --model broken` lists them)"),
        "{said}"
    );
    for asked in [&["effects", "--axes", "loss"][..], &["best", "--group-by", "loss"]] {
        let said = sandbox.run(&[asked, &["--model", "toy", "--metric", "loss"]].concat()).complaint(2);
        assert!(said.contains("`loss` is a metric (name a field, such as"), "{said}");
    }
    for more in [&[][..], &["--group-by", "batch_size"]] {
        let said = sandbox.run(&[&["best", "--model", "brokem", "--metric", "loss"], more].concat()).complaint(1);
        assert!(said.contains("no finished attempt is of model `brokem` (there are: toy)"), "{said}");
    }
    let said = sandbox.run(&["compare", "latest", "latest~1"]).err;
    assert!(said.contains("note: latest is failed: ") && !said.contains("latest~1 is"), "{said}");
}

/// A worker with an accuracy, and with an energy if `$1` (x) or `$2` (the seed) is 1.
fn energy_where_one(word: &str) -> String {
    r#"
say() { echo "$1" >> "$LEDGER_EVENTS"; }
if [ WORD = 1 ]; then say "{\"event\":\"metric\",\"name\":\"energy\",\"value\":$1,\"unit\":\"J\"}"; fi
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":0.$1}"
"#
    .replace("WORD", word)
}

#[test]
fn a_point_of_a_front_has_one_name_in_whichever_order_metrics_are_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(&energy_where_one("$2"), "[1, 2]", "[1, 2, 3]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let named = |metrics: &str| {
        let all = sandbox.json(&["pareto", "--model", "toy", "--metrics", metrics, "--dominated"], 0);
        let points = all["points"].as_array().unwrap().iter();
        let points = points.map(|point| (point["config"]["params.x"].as_i64().unwrap(), point["run"].to_string()));
        points.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(named("energy,accuracy"), named("accuracy,energy"));
    assert_eq!(named("energy,accuracy").len(), 2);
}

#[test]
fn a_front_counts_configurations_that_lack_a_metric() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(&energy_where_one("$1"), "[1, 2, 3]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let ask = |metrics| ["pareto", "--model", "toy", "--metrics", metrics];
    let said = sandbox.run(&ask("accuracy,energy")).expect(0);
    assert!(said.contains("not compared: 2 configurations (without values of energy that count)\n"), "{said}");
    assert_eq!(sandbox.json(&ask("accuracy,energy"), 0)["incomplete_configurations"], 2);
    let whole = sandbox.run(&ask("accuracy,wall_time")).expect(0);
    assert!(!whole.contains("not compared"), "{whole}");
}

#[test]
fn correlations_are_those_of_scipy() {
    let sandbox = sealed();
    let found = sandbox.json(&["correlate", "params.x", "energy", "--split", "auto"], 0);
    // SciPy 1.17.1: pearsonr, spearmanr and linregress of the seven runs that count.
    near(&found["all"]["pearson"], 0.99993572289372);
    near(&found["all"]["spearman"], 0.925820099772552);
    near(&found["all"]["slope"], 996.25);
    assert_eq!((found["points"].as_array().unwrap().len(), found["x"]["name"].as_str()), (7, Some("params.x")));
    assert!(found.get("clusters").is_none());
    let by_phase = sandbox.json(&["correlate", "median", "params.x", "--by", "phase"], 0);
    // The first step is told of so early that its time may be cut at the start of the attempt.
    assert!(
        by_phase["all"]["pearson"].as_f64() > Some(0.5) && by_phase["points"].as_array().unwrap().len() == 7,
        "{by_phase}"
    );
    sandbox.run(&["correlate", "params.x", "nothing"]).complaint(2);
    let text = sandbox.run(&["correlate", "model.name", "energy"]).complaint(2);
    assert!(text.contains("`model.name` is text, and a correlation needs numbers"), "{text}");
    let unknown = sandbox.run(&["best", "--model", "toy", "--metric", "time"]).complaint(2);
    assert!(unknown.contains("did you mean one of ") && unknown.contains("`train_time`"), "{unknown}");
    assert!(
        sandbox.run(&["correlate", "medain", "energy", "--by", "phase"]).complaint(2).contains("by phase also: count")
    );
    sandbox.run(&["correlate", "accuracy", "energy", "--where", "x == 1"]).complaint(1);
}

#[test]
fn a_plan_says_what_is_missing_and_what_it_takes() {
    let sandbox = sealed();
    sandbox.sweep_manifest(WORKER, "[1, 2, 4]", "[1, 2, 3, 4]");
    let plan = sandbox.json(&["plan", "m.toml", "--price-kwh", "3600"], 0);
    assert_eq!(plan["missing"], 6);
    let of = |x: i64, seed: &str| {
        let runs = plan["runs"].as_array().unwrap().iter();
        runs.clone().find(|run| run["config"]["params.x"] == x && run["seed"] == seed).cloned().unwrap()
    };
    assert_eq!((of(1, "1")["missing"].as_i64(), of(1, "4")["missing"].as_i64()), (Some(0), Some(1)));
    assert_eq!((of(1, "4")["basis"].as_str(), of(4, "1")["basis"].as_str()), (Some("same"), Some("alike")));
    near(&of(1, "4")["energy_j"]["value"], 1020.0);
    // SciPy 1.17.1: t.ppf(0.975, 2) * 10 * sqrt(1 + 1/3).
    near(&of(1, "4")["energy_j"]["half_width"], 49.6827542350066);
    // Like x = 4 are the seven that count, each in one field: a mean of 12130 / 7 J.
    near(&of(4, "1")["energy_j"]["value"], 12130.0 / 7.0);
    near(&plan["energy_j"]["value"], 1020.0 + 2020.0 + 4.0 * 12130.0 / 7.0);
    near(&plan["cost"]["value"], (1020.0 + 2020.0 + 4.0 * 12130.0 / 7.0) / 1000.0);
    // Nothing is known of the energy where there is no sensor: half a cost is none.
    let fresh = Sandbox::new();
    fresh.sweep_manifest("exit 0", "[1, 2]", "1");
    fresh.run(&["run", "m.toml"]).expect(0);
    let ask = ["plan", "m.toml", "--repeat", "2", "--price-kwh", "1", "--price-gpu-hour", "1"];
    let half = fresh.json(&ask, 0);
    assert_eq!((half["missing"].as_i64(), half["unpriced"].as_i64(), half.get("cost")), (Some(4), Some(4), None));
    assert!(fresh.run(&ask).expect(0).contains("the cost of 4 missing attempts is unknown"));
    let text = sandbox.run(&["plan", "m.toml"]).expect(0);
    assert!(text.contains("12 runs, 6 attempts missing: ") && text.contains("7 with 1 field different"), "{text}");
    let fresh = Sandbox::new();
    fresh.sweep_manifest(WORKER, "1", "1");
    let text = fresh.run(&["plan", "m.toml"]).expect(0);
    assert!(text.contains("no forecast for 1 missing attempt"), "{text}");
    fresh.run(&["plan", "m.toml", "--price-kwh", "dear"]).complaint(2);
    fresh.run(&["plan", "absent.toml"]).complaint(2);
}

#[test]
fn what_a_question_leaves_out_or_averages_is_told() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(crate::sandbox::WORKER, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let told = |more: &[&str]| {
        let said = sandbox.run(&[&["best", "--model", "toy", "--metric", "accuracy"], more].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.err
    };
    assert!(told(&["--top", "2"]).contains("note: 2 attempts are of configurations that are not shown"));
    assert!(told(&["--where", "accuracy > 0.12"]).contains("note: --where selects attempts by `accuracy`"));
    assert!(told(&["--group-by", "device"]).contains("note: rows average over `params.x`"));
    let plain = told(&["--where", "x > 1"]);
    assert!(!plain.contains("not shown") && !plain.contains("selects") && !plain.contains("average"), "{plain}");
}

/// Only some attempts have `train_time`, by which the best would be faster than "the fastest".
#[test]
fn the_time_that_names_the_fastest_is_the_one_that_is_compared() {
    let sandbox = Sandbox::new();
    let worker = r#"
x=$1; seed=$2
say() { echo "{\"event\":\"metric\",\"name\":\"$1\",\"value\":$2,\"unit\":\"$3\"}" >> "$LEDGER_EVENTS"; }
say loss 0.$x ""
case $x in 1) say epoch_time 20 s;; 2) say epoch_time 10 s;; *) say epoch_time 30 s;; esac
case $x$seed in 11) say train_time 5 s;; 21) say train_time 9 s;; esac
"#;
    sandbox.sweep_manifest(worker, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    for more in [[].as_slice(), &["--where", "x >= 1"]] {
        let found = sandbox.json(&[["best", "--model", "toy", "--metric", "loss"].as_slice(), more].concat(), 0);
        let against = &found["against"];
        assert_eq!(
            (&against["what"], &against["time_metric"]),
            (&"the fastest".into(), &"epoch_time".into()),
            "{against}"
        );
        let said = sandbox.run(&[["best", "--model", "toy", "--metric", "loss"].as_slice(), more].concat()).expect(0);
        assert!(said.contains("against the fastest, ") && said.contains(", epoch_time 2.00×"), "{said}");
    }
}

#[test]
fn a_limited_metric_stands_beside_the_ranking_with_those_that_miss_the_limit() {
    let sandbox = Sandbox::new();
    let worker = r#"
say() { echo "{\"event\":\"metric\",\"name\":\"$1\",\"value\":$2}" >> "$LEDGER_EVENTS"; }
say loss 0.$1
case $1$2 in 11) say accuracy 1;; 12) say accuracy 0.875;; 2?) say accuracy 0.5;; esac
"#;
    sandbox.sweep_manifest(worker, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let asked = ["best", "--model", "toy", "--metric", "loss", "--at-least", "accuracy=0.9"];
    let said = sandbox.run(&asked).expect(0);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words.contains(&"accuracy") && words.contains(&"0.9375"), "{said}");
    assert!(said.contains("the mean meets accuracy of at least 0.9, some attempts do not: #1 (1 of 2)\n"), "{said}");
    assert!(said.contains("without accuracy of at least 0.9: 2 configurations (1 without a value)\n"), "{said}");
    let found = sandbox.json(&asked, 0);
    assert_eq!(found["limited"][0]["places"], serde_json::json!([{"mean": 0.9375, "missed": 1, "values": 2}]));
    assert_eq!((&found["unmet"][0]["configurations"], &found["unmet"][0]["without_value"]), (&2.into(), &1.into()));
    // The metric of the ranking has its own column, and a metric with two limits has one.
    let heads = |more: &[&str]| {
        let said = sandbox.run(&[["best", "--model", "toy", "--metric"].as_slice(), more].concat()).expect(0);
        assert!(said.contains("some attempts do not: #1 (1 of 2)\n"), "{said}");
        said.lines().nth(1).unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(heads(&["accuracy", "--at-least", "accuracy=0.9"]).iter().filter(|head| *head == "accuracy").count(), 1);
    let twice = ["loss", "--at-least", "accuracy=0.9", "--at-least", "accuracy=0.8"];
    assert_eq!(heads(&twice).iter().filter(|head| *head == "accuracy").count(), 1);
}

#[test]
fn a_mean_over_versions_of_the_program_is_told() {
    let sandbox = Sandbox::new();
    let worker = |loss: &str| {
        format!("echo '{{\"event\":\"metric\",\"name\":\"loss\",\"value\":{loss}}}' >> \"$LEDGER_EVENTS\"")
    };
    sandbox.sweep_manifest(&worker("2"), "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let asked = ["best", "--model", "toy", "--metric", "loss", "--group-by", "x"];
    assert!(!sandbox.run(&asked).err.contains("versions of the program"));
    sandbox.sweep_manifest(&worker("1"), "[1, 2]", "1");
    let again = sandbox.run(&["run", "m.toml"]).err;
    assert!(again.contains("note: 2 of 2 runs are new because the program changed: worker.sh: 1 line\n"), "{again}");
    let heat =
        sandbox.run(&["plot", "heat", "--model", "toy", "--metric", "loss", "--x", "x", "--y", "seed"]).expect(0);
    assert!(
        heat.contains(
            "2 fields with several versions of the program, which differ in program.files.worker.sh, for example"
        ),
        "{heat}"
    );
    assert!(!sandbox.run(&["run", "m.toml", "--repeat", "1"]).err.contains("because the program changed"));
    let apart = sandbox.run(&asked);
    let rows = apart.out.lines().filter(|line| line.starts_with(['1', '2', '3', '4'])).count();
    assert!(rows == 4 && apart.out.contains("worker.sh"), "{}", apart.out);
    let note = "note: each version of the program has its own row (--where '";
    let condition = apart.err.split_once(note).and_then(|(_, rest)| rest.split_once("' selects")).expect(&apart.err).0;
    let selected = sandbox.run(&[asked.as_slice(), &["--where", condition]].concat()).out;
    let rows = selected.lines().filter(|line| line.starts_with(['1', '2', '3', '4'])).count();
    assert!(rows == 2, "{condition}: {selected}");
    let said = sandbox.run(&[asked.as_slice(), &["--any-version"]].concat()).err;
    assert!(said.contains("warning: #1 averages over versions of the program (`ledger why "), "{said}");
    let front = ["pareto", "--model", "toy", "--metrics", "loss,wall_time", "--group-by", "x", "--dominated"];
    assert_eq!(sandbox.json(&front, 0)["points"].as_array().map(Vec::len), Some(4));
    let front = [front.as_slice(), &["--any-version"]].concat();
    assert_eq!(sandbox.json(&front, 0)["points"].as_array().map(Vec::len), Some(2));
    let effects = sandbox.run(&["effects"]).expect(0);
    assert!(effects.contains("note: the attempts are of 2 versions of the program"), "{effects}");
}

#[test]
fn a_mean_over_programs_of_other_configurations_is_told() {
    let sandbox = Sandbox::new();
    for (loss, x) in [("2", "1"), ("1", "2")] {
        let line = format!("echo '{{\"event\":\"metric\",\"name\":\"loss\",\"value\":{loss}}}' >> \"$LEDGER_EVENTS\"");
        sandbox.sweep_manifest(&line, &format!("[{x}]"), "1");
        sandbox.run(&["run", "m.toml"]).expect(0);
    }
    let asked = ["--model", "toy", "--group-by", "device"];
    let best = sandbox.run(&[["best", "--metric", "loss"].as_slice(), &asked].concat()).err;
    let front = sandbox.run(&[["pareto", "--metrics", "loss,wall_time"].as_slice(), &asked].concat()).err;
    for said in [best, front] {
        assert!(said.contains("note: rows average over `params.x` ("), "{said}");
        assert!(said.contains("note: rows average over programs that differ (`ledger why "), "{said}");
    }
}

#[test]
fn a_cheap_configuration_that_diverged_is_told_unless_its_cost_was_the_objective() {
    let sandbox = Sandbox::new();
    let worker = r#"
say() { echo "{\"event\":\"metric\",\"name\":\"$1\",\"value\":$2,\"unit\":\"$3\"}" >> "$LEDGER_EVENTS"; }
say energy $((1000 * $1)) J
if [ $1 = 1 ]; then say accuracy '"NaN"' ''; else say accuracy 0.8 ''; fi
"#;
    let manifest = sandbox.sweep_manifest(worker, "[1, 2]", "1");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let said = |objective: &str, model: &str| {
        let text = text.replace("name = \"toy\"", &format!("name = \"{model}\""));
        sandbox.write("m.toml", format!("{text}[objective]\nmetric = \"{objective}\"\n"));
        sandbox.run(&["run", "m.toml"]);
        sandbox.run(&["best", "--model", model, "--metric", "energy"]).err
    };
    let diverged = "warning: #1 diverged: its accuracy is not finite";
    let of_accuracy = said("accuracy", "a");
    assert!(of_accuracy.contains(diverged), "{of_accuracy}");
    let of_energy = said("energy", "b");
    assert!(!of_energy.contains("diverged"), "{of_energy}");
}

#[test]
fn a_custom_metric_that_is_nan_everywhere_is_known_and_not_finite() {
    let sandbox = Sandbox::new();
    let worker = r#"echo '{"event":"metric","name":"gap","value":"NaN"}' >> "$LEDGER_EVENTS"; echo '{"event":"metric","name":"loss","value":1}' >> "$LEDGER_EVENTS""#;
    sandbox.sweep_manifest(worker, "[1, 2]", "1");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let said = sandbox.run(&["best", "--model", "toy", "--metric", "gap"]).complaint(1);
    assert!(said.contains("has a finite `gap` (NaN or infinite in 2 attempts; there are: "), "{said}");
}
