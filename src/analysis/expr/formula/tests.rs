use super::*;
use proptest::prelude::*;

fn names() -> BTreeSet<String> {
    ["power", "metric.time", "time per epoch", "x@32", "nothing"].map(str::to_owned).into()
}

fn value(text: &str) -> Result<f64, String> {
    let formula = Formula::parse(text, &names()).map_err(|error| error.to_string())?;
    let lookup = |name: &str| match name {
        "power" => Some(100.0),
        "metric.time" => Some(3.0),
        "time per epoch" => Some(7.0),
        "x@32" => Some(0.5),
        _ => None,
    };
    formula.value(&lookup).map_err(|missing| format!("no {missing}"))
}

#[test]
fn formulas_come_out_as_on_paper() {
    for (text, expected) in [
        ("power * time / 2", 150.0),
        ("1 - 2 - 3", -4.0),
        ("12 / 3 / 2", 2.0),
        ("2 + 3 * 4 ^ 2 ^ 0.5", 2.0 + 3.0 * 4.0_f64.powf(2.0_f64.sqrt())),
        ("-2 ^ 2", -4.0),
        ("2 ^ -1", 0.5),
        ("--3 + +1", 4.0),
        ("(1 + 2) * (power - 98)", 6.0),
        ("`time per epoch` * x@32", 3.5),
        ("max(1, time, 2) - min(4, 5)", -1.0),
        ("sqrt(abs(-16)) + ln(exp(2)) + log10(1e3)", 9.0),
        ("power-time", 97.0),
        ("1_000 * 1e-3", 1.0),
    ] {
        assert_eq!(value(text), Ok(expected), "{text}");
    }
    assert_eq!(value("1 / 0"), Ok(f64::INFINITY));
    assert!(value("max(1, 0 / 0)").unwrap().is_nan());
    assert_eq!(value("power + nothing"), Err("no nothing".to_owned()));
}

#[test]
fn faults_point_at_their_place() {
    insta::assert_snapshot!(value("power * tme").unwrap_err(), @r"
    unknown name `tme` (did you mean `metric.time`?)
      power * tme
              ^^^
    ");
    insta::assert_snapshot!(value("power * (time + 1").unwrap_err(), @r"
    `)` or a sign is expected here
      power * (time + 1
                       ^
    ");
    insta::assert_snapshot!(value("cos(1)").unwrap_err(), @r"
    unknown function `cos` (there are: abs, sqrt, exp, ln, log10, min, max)
      cos(1)
      ^^^
    ");
    insta::assert_snapshot!(value("sqrt(1, 2) + 1").unwrap_err(), @r"
    `sqrt` takes one number
      sqrt(1, 2) + 1
      ^^^^
    ");
    for text in ["", "1 +", ")", "1 2", "power)", "1e", "`x", "é", "%", "max(", "max()", "1..2", "* 1"] {
        assert!(value(text).is_err(), "{text}");
    }
    assert!(value(&"(".repeat(100_000)).unwrap_err().contains("64 levels"));
    assert!(value(&"-".repeat(100_000)).unwrap_err().contains("64 levels"));
    assert_eq!(value(&vec!["1"; 100_000].join("+")), Ok(100_000.0));
}

/// A random formula and its value.
fn formulas() -> impl Strategy<Value = (String, f64)> {
    let leaf = prop_oneof![
        (0..100u32).prop_map(|number| (number.to_string(), f64::from(number))),
        Just(("power".to_owned(), 100.0)),
    ];
    leaf.prop_recursive(4, 30, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| (format!("({} + {})", a.0, b.0), a.1 + b.1)),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| (format!("({}) - ({})", a.0, b.0), a.1 - b.1))
                .prop_map(|(text, value)| (format!("({text})"), value)),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| (format!("({} * {})", a.0, b.0), a.1 * b.1)),
            inner.prop_map(|a| (format!("(-{})", a.0), -a.1)),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_plain_arithmetic((text, expected) in formulas()) {
        prop_assert_eq!(value(&text), Ok(expected), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[a-z0-9.+*/^(),` é-]{0,40}") {
        let _ = value(&text);
    }
}
