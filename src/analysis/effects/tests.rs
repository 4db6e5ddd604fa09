use super::*;
use crate::record::Value;

type Row = (&'static str, i64, &'static str, f64);

const ROWS: [Row; 14] = [
    ("a", 1, "x", 10.1),
    ("a", 1, "x", 10.4),
    ("a", 2, "x", 12.0),
    ("a", 2, "y", 12.9),
    ("a", 3, "y", 15.2),
    ("b", 1, "x", 11.0),
    ("b", 1, "y", 11.9),
    ("b", 2, "x", 15.1),
    ("b", 2, "y", 15.9),
    ("b", 2, "y", 16.4),
    ("b", 3, "x", 20.3),
    ("b", 3, "y", 20.0),
    ("a", 3, "x", 14.6),
    ("a", 1, "y", 10.9),
];

fn factors(rows: &[Row]) -> (Vec<Factor>, Vec<f64>) {
    let of = |name: &str, value: &dyn Fn(&Row) -> Value| {
        Factor::new(name, rows.iter().map(value).collect::<Vec<_>>()).unwrap()
    };
    let all = [of("p", &|row| row.0.into()), of("q", &|row| row.1.into()), of("r", &|row| row.2.into())];
    (all.into(), rows.iter().map(|row| row.3).collect())
}

fn linear(factors: &[Factor], y: &[f64]) -> Option<Effects> {
    effects(factors, y, ModelScale::Linear, None, &[])
}

fn main_of(found: &Effects, factor: usize) -> &MainEffect {
    found.main.iter().find(|effect| effect.factor == factor).unwrap()
}

/// The difference and half the width of its interval, if there is one.
fn apart(effect: &MainEffect) -> (f64, Option<f64>) {
    let contrast = effect.contrast.unwrap();
    (contrast.difference, contrast.half_width)
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-8 * expected.abs().max(1e-6), "{found} {expected}");
}

#[test]
fn an_unbalanced_design_has_the_results_of_statsmodels() {
    // statsmodels 0.15.0: anova_lm(ols("v ~ C(p)+C(q)+C(r)+C(p):C(q)+C(p):C(r)+C(q):C(r)", d).fit(), typ=2).
    let (factors, y) = factors(&ROWS);
    let found = linear(&factors, &y).unwrap();
    assert_eq!((found.residual_degrees, found.n), (4, 14));
    near(found.unexplained, 0.381863354037267 / 144.435);
    let main = [
        (1, 87.1243317853458, 2, 456.31156205077, 1.90431314058951e-05),
        (0, 29.8003333333337, 1, 312.15703751898, 6.02818175710028e-05),
        (2, 1.4300833333333, 1, 14.9800531338101, 0.0179872537953046),
    ];
    for (effect, (factor, squares, degrees, f, p)) in found.main.iter().zip(main) {
        assert_eq!((effect.factor, effect.share.degrees), (factor, degrees));
        near(effect.share.squares, squares);
        near(effect.share.f.unwrap(), f);
        near(effect.share.p.unwrap(), p);
        near(effect.share.eta_squared, squares / 144.435);
    }
    let interactions = [
        ((0, 1), 10.4661366459628, 0.00123912926084643),
        ((1, 2), 0.399636645962737, 0.238758037709999),
        ((0, 2), 0.0149223602484457, 0.712754481977764),
    ];
    for (effect, (pair, squares, p)) in found.interactions.iter().zip(interactions) {
        assert_eq!(effect.factors, pair);
        near(effect.share.squares, squares);
        near(effect.share.p.unwrap(), p);
    }
    let corrected = interactions_with(&factors[2], &factors[..2], &y, ModelScale::Linear, &[]);
    near(corrected[0].unwrap(), 0.712754481977764);
    near(corrected[1].unwrap(), 2.0 * 0.238758037709999);
    let of_machines = [factors[0].clone(), Factor { is_of_machines: true, ..factors[1].clone() }];
    let untested = interactions_with(&factors[2], &of_machines, &y, ModelScale::Linear, &[]);
    near(untested[0].unwrap(), 0.712754481977764);
    assert_eq!(untested[1], None);
    // Coefficients of ols("v ~ C(p)+C(q)+C(r)", d), with the full model's residuals: t.ppf(0.975, 4) standard errors.
    for (factor, between, difference, half_width) in [
        (0, (0, 1), 3.00964912280701, 0.468489778368214),
        (1, (0, 2), 6.30973684210527, 0.578821081250562),
        (2, (0, 1), 0.54298245614035, 0.468489778368214),
    ] {
        let effect = main_of(&found, factor);
        assert_eq!(effect.between, between);
        near(apart(effect).0, difference);
        near(apart(effect).1.unwrap(), half_width);
    }
    near(main_of(&found, 1).means[0], (10.1 + 10.4 + 11.0 + 11.9 + 10.9) / 5.0);
}

#[test]
fn without_repetitions_pairs_are_not_analysed_and_without_residuals_nothing_is_tested() {
    let rows = [("a", 1, "x", 1.0), ("a", 2, "x", 2.0), ("b", 1, "x", 3.0), ("b", 2, "x", 4.5)];
    let of = |value: &dyn Fn(usize) -> Value| Factor::new("f", (0..4).map(value).collect::<Vec<_>>());
    let (p, q) = (of(&|at| rows[at].0.into()).unwrap(), of(&|at| Value::Int(rows[at].1)).unwrap());
    assert_eq!(of(&|at| rows[at].2.into()), None);
    let y: Vec<f64> = rows.iter().map(|row| row.3).collect();
    let found = linear(&[p.clone(), q], &y).unwrap();
    assert_eq!((found.interactions.len(), found.residual_degrees, found.without_pairs.is_some()), (0, 1, true));
    // By hand: the means of p are 1.5 and 3.75, so that its sum of squares is 4 * 1.125^2.
    near(found.main[0].share.squares, 5.0625);
    // Two observations and one axis leave no residual degrees of freedom.
    let two = Factor::new("p", ["a".into(), "b".into()]).unwrap();
    let found = linear(&[two], &[1.0, 2.0]).unwrap();
    assert_eq!((found.main[0].share.p, apart(&found.main[0])), (None, (1.0, None)));
    assert_eq!(linear(&[p], &[1.0; 4]), None);
}

#[test]
fn without_scatter_there_is_no_test_and_no_interval() {
    let axis = Factor::new("p", ["a".into(), "a".into(), "b".into(), "b".into()]).unwrap();
    let found = linear(&[axis], &[0.912, 0.912, 0.911, 0.911]).unwrap();
    let main = &found.main[0];
    assert_eq!((found.residual_degrees, main.share.p, apart(main).1), (2, None, None));
    near(apart(main).0, -0.001);
}

#[test]
fn a_nested_axis_has_no_effect_of_its_own_but_a_shared_one() {
    // Each rate belongs to one optimizer, so the optimizer explains nothing in addition to the rate. The batch size is free.
    let rates = [0.001, 0.002, 0.1, 0.2].repeat(4);
    let optimizer = |rate: &f64| Value::from(if *rate < 0.01 { "adam" } else { "sgd" });
    let sizes: Vec<i64> = (0..16).map(|at| if at < 8 { 32 } else { 64 }).collect();
    let y: Vec<f64> = rates
        .iter()
        .zip(&sizes)
        .zip([0.1, -0.2, 0.3, 0.0, -0.1, 0.2, -0.3, 0.1, 0.2, 0.0, 0.1, -0.1, 0.0, 0.3, -0.2, 0.1])
        .map(|((rate, size), noise)| if *rate < 0.01 { 10.0 } else { 20.0 } + if *size == 64 { 3.0 } else { 0.0 } + noise)
        .collect();
    let factor = |name, values: Vec<Value>| Factor::new(name, values.clone()).unwrap();
    let factors = [
        factor("optimizer", rates.iter().map(optimizer).collect()),
        factor("rate", rates.iter().map(|rate| Value::Float(*rate)).collect()),
        factor("size", sizes.iter().map(|size| Value::Int(*size)).collect()),
    ];
    let found = linear(&factors, &y).unwrap();
    let of = |factor| main_of(&found, factor);
    assert_eq!((of(0).share.degrees, of(0).contrast, &of(0).adjusted, of(0).best), (0, None, &None, None));
    assert_eq!(of(1).contrast, None);
    // In a balanced design all shares and the part that cannot be divided add up to 1.
    let told: f64 = found.main.iter().map(|one| one.share.eta_squared).sum();
    let pairs: f64 = found.interactions.iter().map(|one| one.share.eta_squared).sum();
    let shared = found.shared.unwrap();
    assert!(shared > 0.8, "{shared}");
    near(told + pairs + shared + found.unexplained, 1.0);
    // By hand: the design is balanced, so the difference is that of the two halves' means, which the noise moves by 0.3 / 8.
    near(apart(of(2)).0, 3.0 + (0.4 - 0.1) / 8.0);
}

#[test]
fn equal_values_have_no_effects() {
    let values: Vec<Value> = (0..11).map(|at| i64::from(at % 2).into()).collect();
    let factor = Factor::new("x", values.clone()).unwrap();
    assert_eq!(linear(&[factor], &[0.1; 11]), None);
}

#[test]
fn means_are_adjusted_for_the_spread_over_the_other_axes() {
    // 100 with one GPU, 1000 with eight, and 50 more with b. Most runs with eight GPUs have a, most with one have b.
    let cells = [("a", 1i64, 1), ("a", 8, 9), ("b", 1, 9), ("b", 8, 1)];
    let rows: Vec<(&str, i64)> = cells.iter().flat_map(|(o, gpus, n)| vec![(*o, *gpus); *n]).collect();
    let y: Vec<f64> = rows
        .iter()
        .map(|(o, gpus)| f64::from(u8::from(*o == "b")) * 50.0 + if *gpus == 1 { 100.0 } else { 1000.0 })
        .collect();
    let of = |value: &dyn Fn(&(&str, i64)) -> Value| rows.iter().map(value).collect::<Vec<_>>();
    let factors = [
        Factor::new("optimizer", of(&|row| row.0.into())).unwrap(),
        Factor::new("gpus", of(&|row| row.1.into())).unwrap(),
    ];
    let found = linear(&factors, &y).unwrap();
    let base = |at| (main_of(&found, at).adjusted.as_ref().unwrap()[0], apart(main_of(&found, at)).0);
    let (optimizer, gpus) = (base(0), base(1));
    near(optimizer.0, 550.0);
    near(optimizer.1, 50.0);
    near(gpus.0, 125.0);
    near(gpus.1, 900.0);
}

#[test]
fn an_unbalanced_design_on_the_log_scale_has_the_results_of_statsmodels() {
    // statsmodels 0.15.0, l = log(v): anova_lm(ols("l ~ C(p)+C(q)+C(r)+C(p):C(q)+C(p):C(r)+C(q):C(r)", d).fit(), typ=2).
    let (factors, y) = factors(&ROWS);
    let found = effects(&factors, &y, ModelScale::Log, None, &[]).unwrap();
    near(found.unexplained, 0.001627370542989877 / 0.6869688368932957);
    near(found.geometric_mean.unwrap(), 13.703029304728503);
    near(found.mean, 14.05);
    for (factor, squares, f, p) in [
        (0, 0.129756975516108, 318.93652266241156, 5.777219662992445e-05),
        (1, 0.43314001601363666, 532.3188598680823, 1.4010672573263951e-05),
        (2, 0.009079978572662059, 22.31815885269724, 0.009143095608439171),
    ] {
        let share = main_of(&found, factor).share;
        near(share.squares, squares);
        near(share.f.unwrap(), f);
        near(share.p.unwrap(), p);
    }
    for (effect, (pair, squares, p)) in found.interactions.iter().zip([
        ((0, 1), 0.028704482543718726, 0.0028785581927155564),
        ((1, 2), 0.002231757514654434, 0.17782569760278394),
        ((0, 2), 0.00013190051615843078, 0.5995424139121948),
    ]) {
        assert_eq!(effect.factors, pair);
        near(effect.share.squares, squares);
        near(effect.share.p.unwrap(), p);
    }
    // exp of coefficients of ols("l ~ C(p)+C(q)+C(r)", d), and of these -/+ t.ppf(0.975, 4) standard errors with the
    // full model's residuals.
    for (factor, ratio, low, high) in [
        (0, 1.220202659696078, 1.1834492961084069, 1.2580974407821157),
        (1, 1.5590148434969429, 1.5012046417449398, 1.619051270330906),
        (2, 1.0481658578848123, 1.0165943639457489, 1.0807178404680144),
    ] {
        let contrast = main_of(&found, factor).contrast.unwrap();
        near(contrast.ratio(), ratio);
        near(contrast.ratio_interval().unwrap().0, low);
        near(contrast.ratio_interval().unwrap().1, high);
    }
    // exp of the mean over the observations of that model's predict(d) with q set to each level.
    let adjusted = main_of(&found, 1).adjusted.as_ref().unwrap();
    let expected = [11.11297581416859, 14.00591794127192, 17.32529424971136];
    adjusted.iter().zip(expected).for_each(|(found, expected)| near(*found, expected));
}

/// Accuracy by learning rate and optimizer; it is best at 0.03.
const RATES: [(f64, &str, f64); 12] = [
    (0.003, "a", 0.81),
    (0.003, "a", 0.82),
    (0.003, "b", 0.79),
    (0.01, "a", 0.88),
    (0.01, "b", 0.87),
    (0.03, "a", 0.93),
    (0.03, "a", 0.94),
    (0.03, "b", 0.91),
    (0.03, "b", 0.90),
    (0.3, "a", 0.90),
    (0.3, "b", 0.84),
    (0.3, "b", 0.87),
];

fn rates(scale: ModelScale, direction: Option<Direction>) -> Effects {
    let of = |value: &dyn Fn(&(f64, &str, f64)) -> Value| RATES.iter().map(value).collect::<Vec<_>>();
    let factors = [
        Factor::new("rate", of(&|row| Value::Float(row.0))).unwrap(),
        Factor::new("optimizer", of(&|row| row.1.into())).unwrap(),
    ];
    effects(&factors, &RATES.map(|row| row.2), scale, direction, &[]).unwrap()
}

#[test]
fn an_inner_optimum_is_compared_with_both_ends_as_by_statsmodels() {
    // statsmodels 0.15.0: m = ols("v ~ C(lr)*C(o)", d).fit(); coefficients of ols("v ~ C(lr)+C(o)", d).fit() at 0.003 and 0.3 less that at
    // 0.03, -/+ t.ppf(1 - 0.025/6, 4) standard errors with the residuals of m.
    let found = rates(ModelScale::Linear, Some(Direction::Maximize));
    let rate = main_of(&found, 0);
    assert_eq!((rate.best, rate.between), (Some(2), (0, 3)));
    let inner = rate.inner.clone().unwrap();
    assert_eq!((inner.level, inner.extreme), (2, Extreme::Best));
    let [first, last] = inner.ends;
    near(first.difference, -0.11813725490196017);
    near(first.half_width.unwrap(), 0.04575675964781063);
    near(last.difference, -0.04519607843137233);
    near(last.half_width.unwrap(), 0.045756759647810605);
    assert_eq!([first, last].map(|end| end.is_apart()), [Some(true), Some(false)]);
    let adjusted = [0.8018627450980392, 0.8749999999999992, 0.9199999999999994, 0.8748039215686272];
    rate.adjusted.as_ref().unwrap().iter().zip(adjusted).for_each(|(found, expected)| near(*found, expected));
    // The same of log(v), as ratios.
    let found = rates(ModelScale::Log, Some(Direction::Maximize));
    let [first, last] = main_of(&found, 0).inner.clone().unwrap().ends;
    for (end, ratio, low, high) in [
        (first, 0.8720325399775757, 0.8269032737016626, 0.9196247916344573),
        (last, 0.9506244073096166, 0.9014278692917108, 1.0025059070814217),
    ] {
        near(end.ratio(), ratio);
        near(end.ratio_interval().unwrap().0, low);
        near(end.ratio_interval().unwrap().1, high);
    }
}

#[test]
fn only_an_ordered_axis_has_an_inner_extreme() {
    let words = Factor::new("w", ["a", "b", "c"].repeat(2).iter().map(|word| (*word).into()).collect::<Vec<_>>());
    let y = [1.0, 5.0, 2.0, 1.1, 5.1, 2.1];
    let found = effects(&[words.unwrap()], &y, ModelScale::Linear, Some(Direction::Maximize), &[]).unwrap();
    assert_eq!((found.main[0].best, &found.main[0].inner, found.main[0].between), (Some(1), &None, (0, 1)));
}

#[test]
fn an_inner_extreme_that_is_not_the_best_is_reported_if_both_ends_differ_from_it() {
    // The interval at 0.3 includes zero, so without a direction 0.03 is not reported as the highest.
    assert_eq!(main_of(&rates(ModelScale::Linear, None), 0).inner, None);
    let found = rates(ModelScale::Linear, Some(Direction::Minimize));
    assert_eq!((main_of(&found, 0).best, &main_of(&found, 0).inner), (Some(0), &None));
    assert_eq!((main_of(&found, 1).best, &main_of(&found, 1).inner), (Some(1), &None));
    let factor = Factor::new("x", [1i64, 2, 3].repeat(2).into_iter().map(Value::Int).collect::<Vec<_>>()).unwrap();
    let extreme = |direction| {
        let y = [5.0, 1.0, 5.2, 5.1, 1.1, 5.3];
        let found = effects(std::slice::from_ref(&factor), &y, ModelScale::Linear, direction, &[]).unwrap();
        let inner = found.main[0].inner.clone().unwrap();
        (inner.level, inner.extreme)
    };
    assert_eq!(extreme(None), (1, Extreme::Lowest));
    assert_eq!(extreme(Some(Direction::Maximize)), (1, Extreme::Worst));
    assert_eq!(extreme(Some(Direction::Minimize)), (1, Extreme::Best));
}

#[test]
fn the_best_of_equal_levels_is_an_end() {
    let values: Vec<Value> = [1i64, 2, 3, 1, 2, 3].map(Value::Int).into();
    let factor = Factor::new("x", values.clone()).unwrap();
    let found = effects(&[factor], &[0.5, 0.9, 0.9, 0.6, 0.7, 0.7], ModelScale::Linear, Some(Direction::Maximize), &[])
        .unwrap();
    assert_eq!((found.main[0].best, &found.main[0].inner), (Some(2), &None));
}

/// The effects of `a` and `b` on rows of a, b, version and value, with versions as blocks.
fn within_versions(rows: &[(i64, i64, i64, f64)]) -> Effects {
    let factor = |name: &str, of: fn(&(i64, i64, i64, f64)) -> i64| {
        Factor::new(name, rows.iter().map(|row| Value::Int(of(row)))).unwrap()
    };
    let factors = [factor("a", |row| row.0), factor("b", |row| row.1)];
    let y: Vec<f64> = rows.iter().map(|row| row.3).collect();
    effects(&factors, &y, ModelScale::Linear, None, &[factor("version", |row| row.2)]).unwrap()
}

const THREE_CELLS: [(i64, i64, i64, f64); 6] =
    [(0, 0, 0, 1.0), (0, 0, 0, 1.02), (1, 0, 0, 0.8), (1, 0, 0, 0.82), (0, 1, 0, 0.6), (0, 1, 0, 0.62)];

#[test]
fn the_effects_within_a_pair_are_adjusted_for_blocks() {
    // The second version, much better, ran in one combination only. Pooled, `a` would seem to do more at the second level of `b`.
    let last = [(1, 1, 0, 0.5), (1, 1, 0, 0.52), (1, 1, 1, -0.5), (1, 1, 1, -0.48)];
    let found = within_versions(&[THREE_CELLS.as_slice(), &last].concat());
    let at: Vec<Contrast> = found.interactions[0].at.iter().map(|contrast| contrast.unwrap()).collect();
    near(at[0].difference, -0.2);
    near(at[1].difference, -0.1);
    // Five cells of two observations each, 0.02 apart: t.ppf(0.975, 5) sqrt(2 * 1e-4 / 2 + 2 * 1e-4 / 2).
    near(at[0].half_width.unwrap(), 2.5705818366147395 * 2e-4_f64.sqrt());
}

#[test]
fn an_effect_within_a_pair_needs_both_combinations_in_one_version() {
    // At the second level of `b` only another version ran `a` = 1. At the third level `a` = 0 was not run.
    let last = [(1, 1, 1, 0.1), (1, 1, 1, 0.12), (1, 2, 0, 0.3), (0, 3, 0, 0.5), (1, 3, 0, 0.1)];
    let at = &within_versions(&[THREE_CELLS.as_slice(), &last].concat()).interactions[0].at;
    assert_eq!(at.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, true]);
    near(at[0].unwrap().difference, -0.2);
    near(at[3].unwrap().difference, -0.4);
}

#[test]
fn factors_that_multiply_have_no_interaction_on_the_log_scale() {
    // Time halves with each doubling of x, and z multiplies it by 3 everywhere; noise of 1%.
    let noise = [1.01, 0.99, 1.0, 0.99, 1.01, 1.0, 1.01, 0.99];
    let rows: Vec<(i64, i64)> = [1, 2, 4, 8].iter().flat_map(|x| [(*x, 0), (*x, 1)]).collect();
    let rows = [rows.clone(), rows].concat();
    let y: Vec<f64> = rows
        .iter()
        .zip(noise.iter().chain(noise.iter().rev()))
        .map(|((x, z), noise)| 8.0 / f64::from(u8::try_from(*x).unwrap()) * if *z == 1 { 3.0 } else { 1.0 } * noise)
        .collect();
    let of = |value: &dyn Fn(&(i64, i64)) -> i64| rows.iter().map(|row| value(row).into()).collect::<Vec<Value>>();
    let factors = [Factor::new("x", of(&|row| row.0)).unwrap(), Factor::new("z", of(&|row| row.1)).unwrap()];
    let is_significant =
        |scale| effects(&factors, &y, scale, None, &[]).unwrap().interactions[0].share.is_significant();
    assert_eq!(is_significant(ModelScale::Linear), Some(true));
    assert_eq!(is_significant(ModelScale::Log), Some(false));
    assert_eq!(effects(&factors, &y.iter().map(|y| y - 1.0).collect::<Vec<_>>(), ModelScale::Log, None, &[]), None);
}

#[test]
fn an_axis_with_a_level_for_each_observation_has_no_test() {
    let values: Vec<Value> = (0..40i64).map(Value::Int).collect();
    let factor = Factor::new("x", values.clone()).unwrap();
    assert!(is_feasible(std::slice::from_ref(&factor)));
    let y: Vec<f64> = (0..40u32).map(f64::from).collect();
    let found = linear(&[factor], &y).unwrap();
    assert_eq!((found.residual_degrees, found.main[0].share.p, found.main[0].share.degrees), (0, None, 39));
    let many: Vec<Value> = (0..4000i64).map(Value::Int).collect();
    assert!(!is_feasible(&[Factor::new("x", many).unwrap()]));
}

#[test]
fn seeds_that_all_combinations_share_are_blocks() {
    // statsmodels: anova_lm(ols('y ~ C(lr) + C(depth) + C(lr):C(depth) + C(seed)'), typ=2).
    let lr: Vec<Value> = (0..16i64).map(|at| (at / 8).into()).collect();
    let depth: Vec<Value> = (0..16i64).map(|at| (at / 4 % 2).into()).collect();
    let seed: Vec<Value> = (0..16i64).map(|at| (at % 4).into()).collect();
    let y = [0.70, 0.80, 0.60, 0.90, 0.71, 0.82, 0.61, 0.90, 0.74, 0.85, 0.64, 0.93, 0.75, 0.85, 0.66, 0.96];
    let factors = [Factor::new("lr", lr).unwrap(), Factor::new("depth", depth).unwrap()];
    let blocks = Factor::new("seed", seed).unwrap();
    let found = effects(&factors, &y, ModelScale::Linear, None, std::slice::from_ref(&blocks)).unwrap();
    let alone = effects(&factors, &y, ModelScale::Linear, None, &[]).unwrap();
    assert_eq!((found.residual_degrees, alone.residual_degrees), (9, 12));
    let p = |found: &Effects| found.main[0].share.p.unwrap();
    assert!(p(&found) < 1e-6 && p(&alone) > 0.3, "{} {}", p(&found), p(&alone));
    let difference = |found: &Effects| found.main[0].contrast.unwrap().difference;
    assert!((difference(&found) - difference(&alone)).abs() < 1e-12);
    assert!(found.blocks.unwrap() > 0.9 && alone.blocks.is_none());
}

#[test]
fn variance_that_terms_explain_only_together_is_the_rest() {
    let levels = |values: &[i64]| values.iter().map(|value| Value::Int(*value)).collect::<Vec<_>>();
    let of = |x: &[i64], z: &[i64], y: &[f64]| {
        let factors = [Factor::new("x", levels(x)).unwrap(), Factor::new("z", levels(z)).unwrap()];
        effects(&factors, y, ModelScale::Linear, None, &[]).unwrap().of_no_term().unwrap()
    };
    // Each combination twice: all sums of squares add up.
    let balanced = of(&[1, 1, 2, 2, 1, 1, 2, 2], &[1, 2, 1, 2, 1, 2, 1, 2], &[1.0, 2.0, 5.0, 6.5, 1.2, 2.1, 5.1, 6.0]);
    assert!(balanced.abs() < 1e-9, "{balanced}");
    // Both are larger in the same observations, but for two.
    let unequal = of(&[1, 1, 1, 1, 2, 2, 2, 2], &[1, 1, 1, 2, 2, 2, 2, 1], &[1.0, 1.2, 1.1, 3.1, 8.0, 8.1, 8.3, 6.0]);
    assert!(unequal > 0.1, "{unequal}");
    // A third axis that equals the first explains nothing of its own. What both explain counts as shared.
    let factors = [&[1, 1, 1, 1, 2, 2, 2, 2], &[1, 1, 1, 2, 2, 2, 2, 1], &[5, 5, 5, 5, 6, 6, 6, 6]]
        .map(|values: &[i64; 8]| Factor::new("axis", levels(values)).unwrap());
    let y = [1.0, 1.2, 1.1, 3.1, 8.0, 8.1, 8.3, 6.0];
    let found = effects(&factors, &y, ModelScale::Linear, None, &[]).unwrap();
    let (shared, rest) = (found.shared.unwrap(), found.of_no_term().unwrap());
    assert!(shared > 0.1 && rest > 0.01 && rest < unequal + 1e-9, "{shared} {rest} {unequal}");
}
