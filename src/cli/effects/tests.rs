use super::*;
use crate::analysis::{Trial, names};
use crate::record::{Attempt, Metric, Parts, Run, Table};

/// An attempt on a host, of a device, with a value of `x` and an energy.
fn trial(host: &str, device: &str, x: i64, energy: f64) -> Trial {
    trial_of("p".into(), host, device, x, energy)
}

fn trial_of(program: Value, host: &str, device: &str, x: i64, energy: f64) -> Trial {
    trial_with(&[("params.x", x)], program, host, device, energy)
}

fn trial_with(fields: &[(&str, i64)], program: Value, host: &str, device: &str, energy: f64) -> Trial {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
    let config: Table = fields.chain([("model.name".to_owned(), "m".into())]).collect();
    let run = Run::new(Parts { config: config.into(), program, device: device.into(), ..Parts::sample() });
    let attempt = Attempt {
        run: run.id,
        metrics: [("energy".to_owned(), Metric::new(energy, "J"))].into(),
        facts: [("host.name".to_owned(), host.into())].into(),
        ..Attempt::sample()
    };
    Trial { id: attempt.id(), run, attempt, is_hidden: false }
}

fn judged(trials: Vec<Trial>) -> Effected {
    let names = names(&trials);
    let selected = Selected { trials, others: Vec::new(), names, admitted: BTreeSet::new() };
    judge("m", "energy", &Wanted::default(), &selected).unwrap().unwrap().0
}

#[test]
fn machines_are_blocks_of_what_is_measured() {
    let on = |host: &'static str| move |(x, energy): (i64, f64)| trial(host, "cpu", x, energy);
    let a = [(1, 100.0), (1, 101.0), (2, 103.0), (2, 102.5)].map(on("a"));
    let b = [(1, 110.0), (1, 111.5), (2, 113.0), (2, 114.5), (2, 113.9)].map(on("b"));
    let found = judged(a.into_iter().chain(b).collect());
    // statsmodels 0.15.0: f = ols("np.log(e) ~ C(machine) + C(x)", d).fit(); anova_lm(f, typ=2); f.params, f.conf_int(). Without machines P
    // is 0.386.
    let x = &found.effects.main[0];
    assert!((x.share.p.unwrap() - 0.0013028985594148973).abs() < 1e-9, "{:?}", x.share);
    let contrast = x.contrast.unwrap();
    assert!((contrast.ratio() - 1.0252037274105825).abs() < 1e-9);
    assert!((contrast.ratio_interval().unwrap().0 - 1.0142373023826987).abs() < 1e-9);
    assert!((found.effects.blocks.unwrap() - 0.8811634576314026).abs() < 1e-9);
    assert_eq!(
        (found.blocks.as_slice(), found.confounded.as_slice()),
        (["machine".to_owned()].as_slice(), [].as_slice())
    );
    let text = report::effects_text(&found);
    assert!(text.contains("machines are blocks: all effects are within machines (88.1% of the variance"), "{text}");
    assert!(report::effects_value(&found).contains_key("machine_blocks"));
}

#[test]
fn versions_of_a_program_are_blocks() {
    let of = |version: &'static str| {
        let program = || Value::Table([("interpreter".to_owned(), version.into())].into());
        move |(x, energy): (i64, f64)| trial_of(program(), "a", "cpu", x, energy)
    };
    let a = [(1, 100.0), (1, 101.0), (2, 103.0), (2, 102.5)].map(of("a"));
    let b = [(1, 110.0), (1, 111.5), (2, 113.0), (2, 114.5), (2, 113.9)].map(of("b"));
    let found = judged(a.into_iter().chain(b).collect());
    // The same numbers as those of two machines, above.
    let x = &found.effects.main[0];
    assert!((x.share.p.unwrap() - 0.0013028985594148973).abs() < 1e-9, "{:?}", x.share);
    assert_eq!(
        (found.blocks.as_slice(), found.confounded.as_slice()),
        (["version".to_owned()].as_slice(), [].as_slice())
    );
    let text = report::effects_text(&found);
    assert!(text.contains("versions are blocks: all effects are within versions (88.1% of the variance"), "{text}");
    assert!(text.contains("2 versions of the program; effects are within versions ("), "{text}");
}

#[test]
fn an_axis_whose_effect_differs_by_version_is_warned_of() {
    let of = |version: &'static str| {
        let program = || Value::Table([("interpreter".to_owned(), version.into())].into());
        move |(x, energy): (i64, f64)| trial_of(program(), "a", "cpu", x, energy)
    };
    let a = || [(1, 100.0), (1, 101.0), (2, 103.0), (2, 102.5)].map(of("a"));
    let warnings_with = |at_two: f64| {
        let b = [(1, 110.0), (1, 111.5), (2, at_two), (2, at_two + 1.5)].map(of("b"));
        judged(a().into_iter().chain(b).collect()).warnings
    };
    assert_eq!(warnings_with(113.0), Vec::<String>::new());
    let told = "the effect of `params.x` (interaction: p < 0.001) differs between versions of the program: ";
    assert!(warnings_with(150.0).iter().any(|warning| warning.contains(told)), "{:?}", warnings_with(150.0));
}

#[test]
fn versions_are_blocks_beside_machines() {
    // Too few attempts for a block of each machine and version, and the axis is unbalanced over them.
    let rows = [
        ("a", "one", 1, 100.0),
        ("a", "one", 2, 103.0),
        ("b", "one", 1, 110.0),
        ("b", "one", 2, 113.5),
        ("c", "one", 1, 120.0),
        ("c", "two", 2, 125.0),
        ("a", "two", 1, 101.5),
        ("b", "two", 2, 114.5),
        ("c", "two", 1, 121.0),
    ];
    let trials = rows.map(|(host, version, x, energy)| {
        let program = Value::Table([("interpreter".to_owned(), version.into())].into());
        trial_of(program, host, "cpu", x, energy)
    });
    let found = judged(trials.into());
    assert_eq!(found.blocks, ["machine", "version"]);
    // Ordinary least squares of the logarithm on machine, version and x, by the normal equations.
    let x = &found.effects.main[0];
    assert!((x.share.f.unwrap() - 381.85031338650435).abs() < 1e-6, "{:?}", x.share);
    assert!((x.share.p.unwrap() - 4.0440867777891834e-05).abs() < 1e-12, "{:?}", x.share);
    assert!((x.contrast.unwrap().ratio() - 1.0300348115708529).abs() < 1e-9);
    let text = report::effects_text(&found);
    assert!(
        text.contains("machines and versions are blocks: all effects are within machines and versions ("),
        "{text}"
    );
    let blocks = report::effects_value(&found)["blocks"].flatten();
    assert_eq!(blocks["of"], vec!["machine", "version"].into());
    assert_eq!(blocks["share"], found.effects.blocks.unwrap().into());
}

#[test]
fn an_axis_of_which_each_machine_ran_one_value_is_confounded_with_them() {
    let values = [(1, 100.0), (1, 101.0), (2, 103.0), (2, 102.5)];
    let host = |x| if x == 1 { "a" } else { "b" };
    let found = judged(values.map(|(x, energy)| trial(host(x), "cpu", x, energy)).into());
    let told = "`machine` equals `params.x`: each value of one occurs with one value of the other only";
    assert!(report::effects_text(&found).contains(&format!("confounded: {told}\n")), "{told}");
    assert_eq!(found.confounded.len(), 1);
    assert_eq!((found.effects.main[0].contrast, found.effects.main[0].share.p), (None, None));
    // Other devices are other machines: the effect is shown, and that machines may explain it.
    let device = |x| if x == 1 { "H100" } else { "H200" };
    let found = judged(values.map(|(x, energy)| trial(host(x), device(x), 1, energy)).into());
    assert!(found.effects.main[0].contrast.is_some() && found.blocks.is_empty());
    let told = "`machine` equals `device`: each value of one occurs with one value of the other only";
    assert!(report::effects_text(&found).contains(&format!("confounded: {told}\n")), "{told}");
    assert_eq!(found.confounded.len(), 1);
}

#[test]
fn devices_are_tested_if_each_machine_ran_one_attempt() {
    let device = |host| if host < "c" { "H100" } else { "H200" };
    let on = |host: &'static str, energy: f64| trial(host, device(host), 1, energy);
    let several =
        judged(vec![on("a", 100.0), on("a", 100.1), on("b", 104.0), on("c", 103.0), on("c", 103.1), on("d", 107.0)]);
    let axis = &several.effects.main[0];
    assert_eq!((axis.share.f, axis.share.p), (None, None));
    assert_eq!(axis.contrast.unwrap().half_width, None);
    let text = report::effects_text(&several);
    assert!(
        text.contains("\n    not tested: its values ran on different machines, each with several attempts; "),
        "{text}"
    );
    assert!(!text.contains("worse"), "{text}");
    let once = judged(vec![on("a", 100.0), on("b", 104.0), on("c", 103.0), on("d", 107.0)]);
    // Student's t of the logarithms: with 2 degrees of freedom, P is 1 - t / sqrt(2 + t²).
    assert!((once.effects.main[0].share.p.unwrap() - 0.3999985092).abs() < 1e-9, "{:?}", once.effects.main[0].share);
}

#[test]
fn what_follows_from_the_number_of_gpus_is_no_axis() {
    let of = |gpus: i64, batch: i64, energy: f64| {
        let fields = [("hardware.gpus", gpus), ("training.batch_size", batch)];
        let mut one = trial_with(&fields, "p".into(), &format!("host {gpus}"), "cpu", energy);
        let mut config = one.run.parts.config.as_table().unwrap().clone();
        let way = if gpus == 1 { "none" } else { "data" };
        config.insert("hardware.parallelism".to_owned(), way.into());
        if gpus > 1 {
            config.insert("training.batch_global".to_owned(), (gpus * batch).into());
        }
        one.run = Run::new(Parts { config: config.into(), ..one.run.parts });
        one.attempt.run = one.run.id;
        Trial { id: one.attempt.id(), ..one }
    };
    let cells =
        [(1, 8, 1.0), (1, 8, 1.1), (2, 8, 1.3), (2, 8, 1.2), (1, 16, 0.9), (1, 16, 0.8), (2, 16, 1.0), (2, 16, 1.1)];
    let found = judged(cells.map(|(gpus, batch, energy)| of(gpus, batch, energy)).into());
    let mut axes: Vec<&str> = found.factors.iter().map(|axis| axis.name.as_str()).collect();
    axes.sort_unstable();
    assert_eq!(axes, ["hardware.gpus", "training.batch_size"]);
    assert!(found.effects.main.iter().all(|axis| axis.contrast.is_some()), "{:?}", found.effects.main);
    let note = "not analysed: `hardware.parallelism`, `training.batch_global` (determined by the number of GPUs";
    assert!(found.notes.iter().any(|told| told.starts_with(note)), "{:?}", found.notes);
}

#[test]
fn machines_are_blocks_unless_each_has_one_observation() {
    let values = [("a", 1, 100.0), ("b", 1, 101.0), ("c", 2, 103.0), ("a", 2, 102.5), ("c", 1, 99.0)];
    let found = judged(values.map(|(host, x, energy)| trial(host, "cpu", x, energy)).into());
    assert_eq!(found.blocks, ["machine"]);
    // Two machines ran both values: the t-test of two pairs of logarithms, where P is 1 - 2 atan(t) / pi.
    let p = found.effects.main[0].share.p.unwrap();
    assert!((p - 0.1451144348).abs() < 1e-9, "{p}");
    let once = [("a", 1, 100.0), ("b", 1, 101.0), ("c", 2, 103.0), ("d", 2, 102.5)];
    let found = judged(once.map(|(host, x, energy)| trial(host, "cpu", x, energy)).into());
    assert!(found.blocks.is_empty());
}

#[test]
fn versions_of_a_program_are_told_and_the_axes_that_may_be_their_effect() {
    let program = |digest: &str| -> Value {
        Value::Table([("files".to_owned(), Value::Table([("t.py".to_owned(), digest.into())].into()))].into())
    };
    let told = |of: &dyn Fn(i64, usize) -> &'static str| {
        let values = [(1, 100.0), (1, 101.0), (2, 103.0), (2, 102.5)];
        let trials =
            values.iter().zip(0..).map(|((x, energy), at)| trial_of(program(of(*x, at)), "a", "cpu", *x, *energy));
        let started = |(mut one, at): (Trial, i64)| {
            one.attempt.started_unix_ms = at;
            one
        };
        let trials: Vec<Trial> = trials.zip(0..).map(started).collect();
        judged(trials)
    };
    let found = told(&|_, _| "one");
    assert_eq!((found.notes.len(), found.confounded.len()), (0, 0));
    let found = told(&|_, at| if at % 2 == 0 { "one" } else { "two" });
    assert_eq!(found.confounded.len(), 0);
    let note = &found.notes[0];
    assert!(note.starts_with("the attempts are of 2 versions of the program; "), "{note}");
    assert!(note.ends_with("`--where 'program.files.t.py == \"two\"'` selects the newest)"), "{note}");
    let found = told(&|x, _| if x == 1 { "one" } else { "two" });
    assert_eq!(found.notes.len(), 1);
    let text = "`program` equals `params.x`: each value of one occurs with one value of the other only";
    assert!(report::effects_text(&found).contains(&format!("confounded: {text}\n")), "{text}");
    // Two versions ran one value, and a third the other one.
    let found = told(&|x, at| if x == 2 { "three" } else { ["one", "two"][at] });
    let text = "`program` is nested in `params.x`: each value of `program` occurs with one value of `params.x` only";
    assert!(report::effects_text(&found).contains(&format!("confounded: {text}\n")), "{text}");
}

#[test]
fn a_length_that_hides_nothing_is_an_axis() {
    // Each combination of the others occurs once, so that any length is determined by them.
    let steps = [10, 40, 20, 20, 10, 40, 40, 20, 10, 10, 20, 40];
    let trials = steps.iter().zip(0i64..).map(|(steps, at)| {
        let (x, z) = (at / 4, at % 4);
        let energy = (0.1 * f64::from(i32::try_from(*steps).unwrap()) + f64::from(i32::try_from(x).unwrap())).exp();
        let fields = [("params.x", x), ("params.z", z), ("training.steps", *steps)];
        trial_with(&fields, "p".into(), "a", "cpu", energy)
    });
    let found = judged(trials.collect());
    let names: Vec<&str> = found.factors.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["params.x", "params.z", "training.steps"]);
    // At each of two batch sizes one number of steps.
    let zipped = [(8, 1, 100), (8, 2, 90), (16, 1, 50), (16, 2, 60)]
        .into_iter()
        .cycle()
        .take(8)
        .zip([5.0, 9.0, 4.0, 7.0, 5.1, 9.2, 4.1, 7.1]);
    let trials = zipped.map(|((batch, precision, steps), energy)| {
        let fields = [("training.batch_size", batch), ("params.p", precision), ("training.steps", steps)];
        trial_with(&fields, "p".into(), "a", "cpu", energy)
    });
    let found = judged(trials.collect());
    let names: Vec<&str> = found.factors.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["params.p", "training.batch_size"]);
    assert!(found.effects.main.iter().all(|effect| effect.contrast.is_some()));
}

/// A metric that depends on the length.
const LOSS: Option<&str> = Some("loss");

#[test]
fn a_length_that_the_other_axes_determine_is_left_out() {
    let axis = |name: &str, values: &[i64]| Factor::new(name, values.iter().map(|value| Value::Int(*value))).unwrap();
    let (batch, precision) = (axis("batch", &[8, 8, 16, 16]), axis("precision", &[1, 2, 1, 2]));
    let judged = |steps: &[i64], others: &[&Factor]| {
        let judged = others.iter().copied().cloned().chain([axis("training.steps", steps)]).collect();
        let mut axes = Axes { judged, ..Axes::default() };
        axes.leave_out_lengths(&[], LOSS);
        (axes.judged.len(), axes.warnings.len())
    };
    assert_eq!(judged(&[100, 90, 50, 60], &[&batch, &precision]), (2, 1));
    assert_eq!(judged(&[100, 90, 50, 60], &[&batch]), (2, 0), "two lengths at one batch size");
    assert_eq!(judged(&[100, 90, 50, 60], &[]), (1, 0), "it is the only axis");
    // Each version of the program has lengths of its own.
    let versions = axis(versions::VERSION, &[1, 1, 2, 2]);
    let mut axes =
        Axes { judged: vec![axis("batch", &[8, 16, 8, 16]), axis("training.steps", &[9, 5, 7, 4])], ..Axes::default() };
    assert!(!axes.leave_out_lengths(&[], LOSS) && axes.leave_out_lengths(std::slice::from_ref(&versions), LOSS));
    let warning = "the effects contain that of `training.steps` (4 to 9), since the other axes and the program's version determine it (`--axes` analyses it)";
    assert_eq!(axes.warnings, [warning]);
    // Of a program whose length is not known in all attempts, the range is that of the known ones.
    let some = Factor::new("training.steps", [Value::Int(300), Value::Int(900), "(absent)".into()]).unwrap();
    let text = length_text("energy", &some, "why");
    assert_eq!(
        text,
        "the effects contain that of `training.steps` (300 to 900), since why (compare `energy_per_sample` instead)"
    );
    // A metric of one sample does not depend on it.
    for (others, removed) in [(vec![batch.clone()], true), (Vec::new(), false)] {
        let judged = others.into_iter().chain([axis("training.steps", &[100, 90, 50, 60])]).collect();
        let mut axes = Axes { judged, ..Axes::default() };
        assert_eq!((axes.leave_out_lengths(&[], None), axes.notes.len()), (removed, usize::from(removed)));
    }
    // One that the version alone determines stays, and so does the only axis.
    let lengths = || axis("training.steps", &[9, 9, 7, 7]);
    for judged in [vec![axis("batch", &[8, 16, 8, 16]), lengths()], vec![lengths()]] {
        let mut axes = Axes { judged, ..Axes::default() };
        assert!(!axes.leave_out_lengths(std::slice::from_ref(&versions), LOSS));
    }
    // It stands for another axis that equals it.
    let equal = Confounded {
        field: "training.weight_decay".to_owned(),
        with: Some("training.steps".to_owned()),
        relation: Some(Relation::Equal),
        separation: ("", None),
        alone: None,
    };
    let mut axes =
        Axes { judged: vec![batch, axis("training.steps", &[1, 1, 2, 2])], confounded: vec![equal], ..Axes::default() };
    assert!(!axes.leave_out_lengths(&[], LOSS));
}

#[test]
fn of_too_many_axes_those_stay_that_explain_most() {
    let axes: Vec<Factor> = (0..10_i64)
        .map(|axis| Factor::new(&format!("axis{axis}"), (0..40_i64).map(|at| (at / (axis + 1) % 2).into())).unwrap())
        .collect();
    // The last axis, which comes behind eight others, decides.
    let values: Vec<f64> = (0..40).map(|at| if at / 10 % 2 == 0 { 1.0 } else { 5.0 }).collect();
    let mut found = Axes { judged: axes, ..Axes::default() };
    found.keep_the_strongest(&values);
    let kept: Vec<&str> = found.judged.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!((kept.len(), found.notes.len()), (MOST_AXES, 2), "{:?}", found.notes);
    assert!(kept.contains(&"axis9") && kept.is_sorted(), "{kept:?}");
    // Of values that do not vary, the first ones stay, and nothing is lost.
    let axes: Vec<Factor> =
        (0..9).map(|axis| Factor::new(&format!("axis{axis}"), (0..4_i64).map(Value::from)).unwrap()).collect();
    let mut found = Axes { judged: axes, ..Axes::default() };
    found.keep_the_strongest(&[1.0; 4]);
    assert_eq!((found.judged.len(), found.judged[7].name.as_str()), (MOST_AXES, "axis7"));
}

#[test]
fn combinations_of_a_grid_without_an_attempt_are_named() {
    let of = |(x, y): (i64, i64)| {
        trial_with(
            &[("params.x", x), ("params.y", y)],
            "p".into(),
            "a",
            "cpu",
            100.0 + f64::from(i32::try_from(10 * x + y * y).unwrap()),
        )
    };
    let cells = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)];
    let told = |cells: &[(i64, i64)]| {
        let found = judged([cells, cells].concat().into_iter().map(of).collect());
        found.notes.into_iter().find(|note| note.contains("no attempt"))
    };
    assert_eq!(told(&cells), None);
    let one = "1 of 6 combinations has no attempt that counts: x 2 y 3";
    assert_eq!(told(&cells[..5]).as_deref(), Some(one));
    let five: Vec<(i64, i64)> =
        (0..9).map(|at| (at / 3, at % 3)).filter(|(x, y)| x != y || *x == 0).chain([(3, 0)]).collect();
    let more = "4 of 12 combinations have no attempt that counts: x 1 y 1, x 2 y 2, x 3 y 1, 1 more";
    assert_eq!(told(&five).as_deref(), Some(more));
    // Half of the combinations are empty: these axes are no grid.
    assert_eq!(told(&[(1, 1), (2, 2), (3, 3), (1, 2)]), None);
}

#[test]
fn an_effect_that_depends_on_combinations_without_attempts_says_so() {
    let of = |(at, (x, y)): (usize, (i64, i64))| {
        let scatter = [1.0, 1.004, 0.997, 1.002][at % 4];
        let energy = (100.0 + f64::from(i32::try_from(60 * x * y).unwrap())) * scatter;
        trial_with(&[("params.x", x), ("params.y", y)], "p".into(), "a", "cpu", energy)
    };
    let text = |cells: &[(i64, i64)]| {
        let all = [cells; 4].concat();
        report::effects_text(&judged(all.into_iter().enumerate().map(of).collect()))
    };
    let cells = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)];
    assert!(!text(&cells).contains("not all combinations"), "{}", text(&cells));
    let lacking = text(&cells[..5]);
    assert_eq!(lacking.matches(", and not all combinations were run (see ").count(), 2, "{lacking}");
    // Of a corner nothing can be said of how both act together.
    let corner = text(&[(1, 1), (1, 2), (2, 1)]);
    assert!(
        corner.contains("\nnot tested, since too few of their combinations were run: ")
            && !corner.contains("and 1 more"),
        "{corner}"
    );
    assert!(!corner.contains("not tested\n"), "{corner}");
}
