use super::*;

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
        Factor::new(name, &rows.iter().map(value).collect::<Vec<_>>()).unwrap()
    };
    let all = [of("p", &|row| row.0.into()), of("q", &|row| row.1.into()), of("r", &|row| row.2.into())];
    (all.into(), rows.iter().map(|row| row.3).collect())
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-8 * expected.abs().max(1e-6), "{found} {expected}");
}

#[test]
fn an_unbalanced_design_is_judged_as_by_statsmodels() {
    // statsmodels 0.15.0: anova_lm(ols("v ~ C(p)+C(q)+C(r)+C(p):C(q)+C(p):C(r)+C(q):C(r)", d).fit(), typ=2).
    let (factors, y) = factors(&ROWS);
    let found = effects(&factors, &y).unwrap();
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
    // Coefficients of ols("v ~ C(p)+C(q)+C(r)", d), with the full model's residuals: t.ppf(0.975, 4) standard errors.
    let of = |factor| found.main.iter().find(|effect| effect.factor == factor).unwrap();
    for (factor, between, difference, half_width) in [
        (0, (0, 1), 3.00964912280701, 0.468489778368214),
        (1, (0, 2), 6.30973684210527, 0.578821081250562),
        (2, (0, 1), 0.54298245614035, 0.468489778368214),
    ] {
        assert_eq!(of(factor).between, between);
        near(of(factor).difference.unwrap(), difference);
        near(of(factor).half_width.unwrap(), half_width);
    }
    near(of(1).means[0], (10.1 + 10.4 + 11.0 + 11.9 + 10.9) / 5.0);
}

#[test]
fn without_repetitions_pairs_are_not_judged_and_what_cannot_be_tested_is_not() {
    let rows = [("a", 1, "x", 1.0), ("a", 2, "x", 2.0), ("b", 1, "x", 3.0), ("b", 2, "x", 4.5)];
    let of = |value: &dyn Fn(usize) -> Value| Factor::new("f", &(0..4).map(value).collect::<Vec<_>>());
    let (p, q) = (of(&|at| rows[at].0.into()).unwrap(), of(&|at| Value::Int(rows[at].1)).unwrap());
    assert_eq!(of(&|at| rows[at].2.into()), None);
    let y: Vec<f64> = rows.iter().map(|row| row.3).collect();
    let found = effects(&[p.clone(), q], &y).unwrap();
    assert_eq!((found.interactions.len(), found.residual_degrees, found.without_pairs.is_some()), (0, 1, true));
    // By hand: the means of p are 1.5 and 3.75, so that its sum of squares is 4 * 1.125^2.
    near(found.main[0].share.squares, 5.0625);
    // Two observations and one axis leave nothing for chance.
    let two = Factor::new("p", &["a".into(), "b".into()]).unwrap();
    let found = effects(&[two], &[1.0, 2.0]).unwrap();
    assert_eq!((found.main[0].share.p, found.main[0].half_width, found.main[0].difference), (None, None, Some(1.0)));
    assert_eq!(effects(&[p], &[1.0; 4]), None);
}

#[test]
fn what_does_not_scatter_has_neither_test_nor_interval() {
    let axis = Factor::new("p", &["a".into(), "a".into(), "b".into(), "b".into()]).unwrap();
    let found = effects(&[axis], &[0.912, 0.912, 0.911, 0.911]).unwrap();
    let main = &found.main[0];
    assert_eq!((found.residual_degrees, main.share.p, main.half_width), (2, None, None));
    near(main.difference.unwrap(), -0.001);
}

#[test]
fn axes_that_go_together_are_known() {
    let of = |values: [i64; 4]| Factor::new("f", &values.map(Value::Int)).unwrap();
    assert!(of([1, 2, 1, 2]).is_like(&of([7, 5, 7, 5])));
    assert!(!of([1, 2, 1, 2]).is_like(&of([7, 5, 5, 7])) && !of([1, 2, 1, 2]).is_like(&of([1, 2, 3, 4])));
    assert_eq!(of([8, 16, 2, 8]).levels, [2, 8, 16].map(Value::Int));
}

#[test]
fn an_axis_that_lies_within_another_is_not_said_to_do_nothing() {
    // Each rate belongs to one optimizer, so that nothing of the optimizer is left beside the rate; the batch size is free.
    let rates = [0.001, 0.002, 0.1, 0.2].repeat(4);
    let optimizer = |rate: &f64| Value::from(if *rate < 0.01 { "adam" } else { "sgd" });
    let sizes: Vec<i64> = (0..16).map(|at| if at < 8 { 32 } else { 64 }).collect();
    let y: Vec<f64> = rates
        .iter()
        .zip(&sizes)
        .zip([0.1, -0.2, 0.3, 0.0, -0.1, 0.2, -0.3, 0.1, 0.2, 0.0, 0.1, -0.1, 0.0, 0.3, -0.2, 0.1])
        .map(|((rate, size), noise)| if *rate < 0.01 { 10.0 } else { 20.0 } + if *size == 64 { 3.0 } else { 0.0 } + noise)
        .collect();
    let factor = |name, values: Vec<Value>| Factor::new(name, &values).unwrap();
    let factors = [
        factor("optimizer", rates.iter().map(optimizer).collect()),
        factor("rate", rates.iter().map(|rate| Value::Float(*rate)).collect()),
        factor("size", sizes.iter().map(|size| Value::Int(*size)).collect()),
    ];
    let found = effects(&factors, &y).unwrap();
    let of = |factor| found.main.iter().find(|effect| effect.factor == factor).unwrap();
    assert_eq!((of(0).share.degrees, of(0).difference, of(0).half_width), (0, None, None));
    assert_eq!(of(1).difference, None);
    // By hand: balanced, so that the difference is that of the means of either half, which the noise moves by 0.3 / 8.
    near(of(2).difference.unwrap(), 3.0 + (0.4 - 0.1) / 8.0);
}

#[test]
fn of_equal_values_nothing_is_explained_and_nothing_left() {
    let values: Vec<Value> = (0..11).map(|at| i64::from(at % 2).into()).collect();
    let factor = Factor::new("x", &values).unwrap();
    assert_eq!(effects(&[factor], &[0.1; 11]), None);
}

#[test]
fn numbers_and_texts_of_one_axis_have_an_order() {
    let mixed: Vec<Value> = (1..150i64).flat_map(|i| [Value::Int(2 * i), format!("{i}x").as_str().into()]).collect();
    let factor = Factor::new("k", &mixed).unwrap();
    assert!(factor.levels.is_sorted_by_key(|level| level.as_float().is_none()));
    assert_eq!(factor.levels[..2], [Value::Int(2), Value::Int(4)]);
}

#[test]
fn a_difference_is_a_share_of_the_mean_that_is_adjusted_as_it_is() {
    // 100 with one GPU, 1000 with eight, 50 more with b: most of eight with a, most of one with b.
    let cells = [("a", 1i64, 1), ("a", 8, 9), ("b", 1, 9), ("b", 8, 1)];
    let rows: Vec<(&str, i64)> = cells.iter().flat_map(|(o, gpus, n)| vec![(*o, *gpus); *n]).collect();
    let y: Vec<f64> = rows
        .iter()
        .map(|(o, gpus)| f64::from(u8::from(*o == "b")) * 50.0 + if *gpus == 1 { 100.0 } else { 1000.0 })
        .collect();
    let of = |value: &dyn Fn(&(&str, i64)) -> Value| rows.iter().map(value).collect::<Vec<_>>();
    let factors = [
        Factor::new("optimizer", &of(&|row| row.0.into())).unwrap(),
        Factor::new("gpus", &of(&|row| row.1.into())).unwrap(),
    ];
    let found = effects(&factors, &y).unwrap();
    let base = |at: usize| {
        found.main.iter().find(|effect| effect.factor == at).map(|effect| (effect.base, effect.difference.unwrap()))
    };
    let (optimizer, gpus) = (base(0).unwrap(), base(1).unwrap());
    near(optimizer.0, 550.0);
    near(optimizer.1, 50.0);
    near(gpus.0, 125.0);
    near(gpus.1, 900.0);
}
