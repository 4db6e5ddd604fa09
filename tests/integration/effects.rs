//! What `ledger effects` answers: whole commands against numbers of statsmodels, its words, and the commands that it names.

use crate::sandbox::Sandbox;
use serde_json::Value;

/// Energy 100 x + seed², and 7 x² more with y = b. Accuracy is best at x = 2; the seed raises it at x = 1 and 3 and lowers it at 2.
const GRID: &str = r#"
x=$1; y=$2; seed=$3
say() { echo "$1" >> "$LEDGER_EVENTS"; }
energy=$((100 * x + seed * seed))
if [ $y = b ]; then energy=$((energy + 7 * x * x)); fi
say "{\"event\":\"metric\",\"name\":\"energy\",\"value\":$energy,\"unit\":\"J\"}"
case $x in 1) accuracy=0.70$seed;; 2) accuracy=0.90$((3 - seed));; *) accuracy=0.80$seed;; esac
say "{\"event\":\"metric\",\"name\":\"accuracy\",\"value\":$accuracy}"
say "{\"event\":\"metric\",\"name\":\"score\",\"value\":$((3 * x - 2 * seed))}"
"#;

fn grid(seeds: &str, axes: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("grid.sh", GRID);
    let manifest = format!(
        "name = \"grid\"\nseed = {seeds}\n[model]\nname = \"toy\"\n[program]\ncommand = [\"sh\", \"grid.sh\", \"{{x}}\", \"{{y}}\", \"{{seed}}\"]\n\
         [params]\n{axes}\n[hardware]\ndevice = \"cpu\"\n"
    );
    sandbox.write("grid.toml", manifest);
    sandbox
}

/// Three values of `x` beside two of `y`, twice.
fn sealed() -> Sandbox {
    let sandbox = grid("[1, 2]", "x = [1, 2, 3]\ny = [\"a\", \"b\"]");
    sandbox.run(&["run", "grid.toml"]).expect(0);
    sandbox
}

fn near(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} {expected}");
}

/// What disturbs this machine taints what is measured, and must not decide a test.
fn asked<'a>(metric: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [["effects", "--model", "toy", "--metric", metric, "--include", "tainted"].as_slice(), more].concat()
}

#[test]
fn effects_on_an_energy_are_ratios_as_of_statsmodels() {
    let sandbox = sealed();
    let found = sandbox.json(&asked("energy", &[]), 0);
    assert_eq!((&found["scale"], &found["kind"]), (&"log".into(), &"measured".into()));
    assert_eq!((found["attempts"].as_i64(), found["observations"].as_i64()), (Some(12), Some(12)));
    // statsmodels 0.15.0: anova_lm(ols("np.log(e) ~ C(x) * C(y)", d).fit(), typ=2).
    let main = found["main"].as_array().unwrap();
    assert_eq!((main[0]["field"].as_str(), main[1]["field"].as_str()), (Some("params.x"), Some("params.y")));
    near(&main[0]["squares"], 2.669700838806973);
    near(&main[1]["p"], 3.102723120238949e-06);
    near(&found["interactions"][0]["p"], 0.0019439198527972123);
    near(&found["geometric_mean"], 196.69269106948775);
    near(&found["mean"], 2626.0 / 12.0);
    // exp of the coefficient at x = 3 of ols("np.log(e) ~ C(x) + C(y)", d), and of it -/+ t.ppf(0.975, 6) standard errors of the model above.
    near(&main[0]["ratio"], 3.1388930607906884);
    near(&main[0]["ratio_low"], 3.0668336144712387);
    near(&main[0]["ratio_high"], 3.212645642264052);
    assert_eq!((&main[0]["best_level"], main[0].get("difference")), (&1.into(), None));
    let text = sandbox.run(&asked("energy", &[])).expect(0);
    assert!(text.starts_with("energy of toy: geometric mean 196.7 J, 12 attempts, log scale\n"), "{text}");
    assert!(text.contains("\nx: 3 is worse than 1: energy is 3.14× (3.07 to 3.21) that at 1\n"), "{text}");
    assert!(text.contains("\nx × y: the effect of x depends on y\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn effects_on_the_linear_scale_are_differences_as_of_statsmodels() {
    let sandbox = sealed();
    let found = sandbox.json(&asked("energy", &["--scale", "linear"]), 0);
    // statsmodels 0.15.0: anova_lm(ols("e ~ C(x) * C(y)", d).fit(), typ=2).
    let main = found["main"].as_array().unwrap();
    near(&main[0]["squares"], 104000.666666667);
    near(&main[1]["squares"], 3201.33333333333);
    near(&main[1]["p"], 1.8338888073e-07);
    near(&found["interactions"][0]["squares"], 1600.66666666667);
    near(&found["interactions"][0]["p"], 4.56451757689e-06);
    near(&main[0]["difference"], 228.0);
    near(&main[0]["half_width"], 3.6703677767174683);
    assert_eq!((&found["scale"], main[0].get("ratio")), (&"linear".into(), None));
    let text = sandbox.run(&asked("energy", &["--scale", "linear"])).expect(0);
    assert!(text.contains("x: 3 is worse than 1: energy is higher by 228.0 J (224.3 to 231.7)"), "{text}");
}

#[test]
fn attempts_of_one_seed_are_one_observation_of_an_accuracy() {
    let sandbox = sealed();
    sandbox.run(&["run", "grid.toml", "--repeat", "2"]).expect(0);
    let found = sandbox.json(&asked("accuracy", &[]), 0);
    // `y` changes no accuracy: three values of `x`, two seeds.
    assert_eq!((found["attempts"].as_i64(), found["observations"].as_i64()), (Some(36), Some(6)));
    assert_eq!((&found["kind"], &found["scale"]), (&"outcome".into(), &"linear".into()));
    // Six configurations in three rounds, with two seeds in each.
    let energy = sandbox.json(&asked("energy", &[]), 0);
    assert_eq!((energy["attempts"].as_i64(), energy["observations"].as_i64()), (Some(36), Some(18)));
    let text = sandbox.run(&asked("accuracy", &[])).expect(0);
    assert!(text.contains("6 observations ("), "{text}");
}

#[test]
fn an_optimum_in_the_middle_is_named_with_both_ends_in_points() {
    let sandbox = sealed();
    let text = sandbox.run(&asked("accuracy", &[])).expect(0);
    assert!(text.contains("x: accuracy is best at 2\n"), "{text}");
    assert!(text.contains("lower by 20.0 points (") && text.contains(" at 1 and by 10.0 points ("), "{text}");
    let x = &sandbox.json(&asked("accuracy", &[]), 0)["main"][0];
    assert_eq!((&x["best_level"], &x["inner_extreme"]["is"]), (&2.into(), &"best".into()));
    let ends = x["inner_extreme"]["ends"].as_array().unwrap();
    near(&ends[0]["difference"], -0.2);
    near(&ends[1]["difference"], -0.1);
    assert_eq!((&ends[0]["value"], &ends[1]["is_significant"]), (&1.into(), &true.into()));
    let document = sandbox.json(&["plot", "effects", "--model", "toy", "--metric", "accuracy"], 0);
    assert_eq!(document["rows"].as_array().unwrap().len(), 3);
    let drawn = sandbox.run(&["plot", "effects", "--model", "toy", "--metric", "accuracy"]).expect(0);
    assert!(drawn.contains("% of the variance, p < 0.001, best at 2"), "{drawn}");
}

#[test]
fn confounded_axes_are_listed_and_the_command_separates_them() {
    let sandbox = grid("[1, 2]", "x = [1, 2, 3]\ny = \"a\"\nz = [10, 20, 30]");
    let text = std::fs::read_to_string(sandbox.path("grid.toml")).unwrap();
    sandbox.write("grid.toml", format!("{text}[grid]\nzip = [[\"params.x\", \"params.z\"]]\n"));
    sandbox.run(&["run", "grid.toml"]).expect(0);
    let found = sandbox.json(&asked("accuracy", &[]), 0);
    let one = &found["confounded"][0];
    assert_eq!((&one["field"], &one["with"]), (&"params.z".into(), &"params.x".into()));
    assert_eq!(one["relation"], "equal");
    assert_eq!(found["main"].as_array().unwrap().len(), 1);
    // It is told as well where the axes are chosen, and its partner is not among them.
    let chosen = sandbox.run(&asked("accuracy", &["--axes", "z"])).expect(0);
    assert!(chosen.contains("confounded: `params.x` equals `params.z`"), "{chosen}");
    let command = one["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(words[0], "ledger");
    sandbox.run(&words[1..]).expect(0);
    let found = sandbox.json(&asked("accuracy", &[]), 0);
    assert_eq!(found["confounded"].as_array().map(Vec::len), Some(0), "{found}");
    assert!(found["main"].as_array().unwrap().iter().all(|axis| axis["difference"].is_number()), "{found}");
}

#[test]
fn the_command_for_a_nested_axis_judges_it() {
    let sandbox = grid("[1, 2]", "x = [1, 2]\ny = \"a\"");
    let text = std::fs::read_to_string(sandbox.path("grid.toml")).unwrap();
    let include = "[grid]\ninclude = [{ params.y = \"b\", params.x = [3, 4, 5] }]\n";
    sandbox.write("grid.toml", format!("{text}{include}"));
    sandbox.run(&["run", "grid.toml"]).expect(0);
    let found = sandbox.json(&asked("energy", &[]), 0);
    assert_eq!(found["confounded"].as_array().map(Vec::len), Some(1), "{found}");
    let one = &found["confounded"][0];
    assert_eq!(
        (&one["field"], &one["with"], &one["relation"]),
        (&"params.x".into(), &"params.y".into(), &"nested".into())
    );
    let command = one["command"].as_str().unwrap();
    assert!(command.ends_with("--axes params.x --where 'params.y == \"b\"' --include tainted"), "{command}");
    let chosen = sandbox.run(&asked("energy", &["--axes", "x"])).expect(0);
    assert!(chosen.contains("confounded: `params.x` is nested in `params.y`"), "{chosen}");
    let where_b = ["--axes", "params.x", "--where", "params.y == \"b\""];
    let within = sandbox.json(&asked("energy", &where_b), 0);
    assert_eq!(within["main"][0]["levels"].as_array().map(Vec::len), Some(3));
    assert!(within["main"][0]["ratio"].is_number(), "{within}");
    let command = one["outer_command"].as_str().unwrap();
    assert!(command.ends_with("--metric energy --axes params.y --include tainted"), "{command}");
    let outer = sandbox.json(&asked("energy", &["--axes", "params.y"]), 0);
    assert!(outer["main"][0]["ratio"].is_number(), "{outer}");
    let text = sandbox.run(&asked("energy", &[])).expect(0);
    assert!(text.contains("% of the variance is shared by ") && text.contains(command), "{text}");
    let row = text.lines().find(|line| line.starts_with("x  ")).unwrap();
    assert!(row.trim_end().ends_with("-  -"), "neither F nor P: {text}");
}

#[test]
fn an_axis_that_is_asked_for_is_judged_however_many_values_it_has() {
    let all: Vec<String> = (1..=26).map(|x| x.to_string()).collect();
    let sandbox = grid("[1, 2]", &format!("x = [{}]\ny = [\"a\", \"b\"]", all.join(", ")));
    sandbox.run(&["run", "grid.toml", "--jobs", "4"]).expect(0);
    let text = sandbox.run(&asked("energy", &[])).expect(0);
    assert!(text.contains("note: `params.x` is not analysed: 26 values in 104 observations, more than 24"), "{text}");
    let found = sandbox.json(&asked("energy", &["--axes", "x,y"]), 0);
    assert_eq!(found["main"][0]["levels"].as_array().map(Vec::len), Some(26));
    assert_eq!(found["notes"].as_array().map(Vec::len), Some(0), "{found}");
}

#[test]
fn what_cannot_be_judged_is_said() {
    let sandbox = sealed();
    let refused = |more: &[&str], code| sandbox.run(&asked("energy", more)).complaint(code);
    refused(&["--axes", "seeed"], 2);
    refused(&["--scale", "cubic"], 2);
    refused(&["--where", "x == 1 and y == a and seed == 1"], 1);
    sandbox.run(&["effects", "--model", "none", "--metric", "energy"]).complaint(1);
    let said = sandbox.run(&asked("score", &["--scale", "log"])).complaint(2);
    assert!(said.contains("`score` has values that are not above 0, such as -1 (--scale linear takes them)"), "{said}");
    let text = sandbox.run(&asked("score", &[])).expect(0);
    assert!(
        text.contains("linear scale") && text.contains("`--direction` states which way `score` is better"),
        "{text}"
    );
    let text = sandbox.run(&asked("score", &["--direction", "maximize"])).expect(0);
    assert!(text.contains("x: 3 is better than 1: score is higher by 6") && !text.contains("--direction"), "{text}");
}

#[test]
fn a_field_that_changes_nothing_makes_no_samples() {
    let sandbox = Sandbox::new();
    let worker = "echo \"{\\\"event\\\":\\\"metric\\\",\\\"name\\\":\\\"accuracy\\\",\\\"value\\\":0.$1$3}\" >> \"$LEDGER_EVENTS\"\n";
    sandbox.write("worker.sh", worker);
    let manifest = "name = 'toy'\nseed = [1, 2, 4]\n[model]\nname = 'toy'\n[program]\ncommand = ['sh', 'worker.sh', '{x}', '{workers}', '{seed}']\n\
        [params]\nx = [1, 3]\nworkers = [1, 8]\n[hardware]\ndevice = 'cpu'\n";
    sandbox.write("m.toml", manifest);
    sandbox.run(&["run", "m.toml"]).expect(0);
    let found = sandbox.json(&["effects", "--model", "toy", "--metric", "accuracy"], 0);
    assert_eq!((found["observations"].as_i64(), found["attempts"].as_i64()), (Some(6), Some(12)), "{found}");
    assert!(found["notes"].to_string().contains("`params.workers` is not analysed"), "{found}");
    let said = sandbox.run(&["correlate", "x", "accuracy"]);
    assert!(said.err.contains("note: 6 attempts computed the same as another run"), "{said:?}");
    // One of several that are alike is not the best with certainty.
    let best = sandbox.json(&["best", "--model", "toy", "--metric", "accuracy"], 0);
    let chances: Vec<f64> =
        best["places"].as_array().unwrap().iter().map(|one| one["p_best"].as_f64().unwrap()).collect();
    assert_eq!(chances, [0.5, 0.5, 0.0, 0.0], "{best}");
}
