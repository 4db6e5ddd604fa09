use super::*;
use crate::record::Table;
use proptest::prelude::*;

fn values() -> Table {
    let entries: [(&str, Value); 11] = [
        ("seed", u64::MAX.to_string().into()),
        ("model.name", "bert".into()),
        ("data.name", "digits".into()),
        ("hardware.gpus", Value::Int(2)),
        ("training.precision", "bf16".into()),
        ("training.optimizer", "adam".into()),
        ("training.learning_rate", 0.001.into()),
        ("params.flag", true.into()),
        ("accuracy", 0.95.into()),
        ("loss", f64::NAN.into()),
        ("big", Value::Int(i64::MAX)),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

fn names() -> BTreeSet<String> {
    values().into_keys().chain(["missing".to_owned()]).collect()
}

fn parsed(text: &str) -> Expr {
    Expr::parse(text, &names()).unwrap_or_else(|error| panic!("{error}"))
}

fn holds(text: &str) -> bool {
    let values = values();
    parsed(text).matches(&|name| values.get(name).cloned())
}

fn fault(text: &str) -> String {
    Expr::parse(text, &names()).unwrap_err().to_string()
}

#[test]
fn comparisons_hold_as_they_read() {
    for text in [
        "gpus <= 2 and precision == \"bf16\" and (accuracy >= 0.9 or not model == \"bert\")",
        "optimizer == adam",
        "optimizer in [sgd, 'adam']",
        "optimizer not in [sgd, momentum,]",
        "learning_rate == 1e-3",
        "hardware.gpus == 2.0",
        "gpus > 1 and gpus >= 2 and gpus < 3 and gpus != 3",
        "flag == true",
        "accuracy > -inf",
        "loss == nan",
        "loss == NaN",
        "accuracy > -Infinity",
        "big == 9223372036854775807 and big != 9223372036854775806",
        "seed == 18446744073709551615 and seed != 18446744073709551614 and seed > 9223372036854775807",
        "seed > 1.0 and seed < 1e20 and seed in [18446744073709551615]",
        "big < 9223372036854775808 and accuracy < 99999999999999999999",
        "not not gpus == 2",
        "gpus == 9 and gpus == 9 or gpus == 2",
    ] {
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("not ({text})")), "{text}");
    }
}

#[test]
fn a_short_name_is_looked_for_in_one_set_after_the_other() {
    let [first, second]: [BTreeSet<String>; 2] = [
        ["hardware.gpus", "model.name"].map(str::to_owned).into(),
        ["worker.gpus", "cpu.model", "host.name", "box.name"].map(str::to_owned).into(),
    ];
    let full = |name: &str| full_name(name, &[&first, &second]);
    assert_eq!(full("gpus"), Ok("hardware.gpus".to_owned()));
    assert_eq!(full("worker.gpus"), Ok("worker.gpus".to_owned()));
    assert_eq!(full("model"), Ok("model.name".to_owned()));
    assert_eq!(full("name"), Ok("model.name".to_owned()));
    assert_eq!(full("host"), Ok("host.name".to_owned()));
    assert!(full("hst.name").unwrap_err().contains("did you mean `host.name`?"));
    let near = |name: &str| full_name(name, &[&["loss", "host.os"].map(str::to_owned).into()]).unwrap_err();
    assert!(near("los").contains("did you mean `loss`?"), "{}", near("los"));
    let begun = full_name("batch", &[&["git.patch", "training.batch_size"].map(str::to_owned).into()]).unwrap_err();
    assert!(begun.contains("did you mean `training.batch_size`?"), "{begun}");
    let expr = Expr::parse_in("gpus == 2 and host == n1", &[&first, &second]).unwrap();
    assert_eq!(expr.fields(), ["hardware.gpus", "host.name"].into());
}

#[test]
fn a_digest_may_be_given_by_its_first_digits() {
    let digest = "16d97ee2".repeat(8);
    let holds = |text: &str, value: &str| {
        Expr::parse(text, &["file".to_owned()].into()).unwrap().matches(&|_| Some(value.into()))
    };
    let (eight, seven) = ("file == '16d97ee2'", "file == '16d97ee'");
    assert!(holds(eight, &digest) && holds(eight, &digest[..40]) && holds("file in ['16d97ee21']", &digest));
    assert!(!holds(seven, &digest) && !holds("file != '16d97ee2'", &digest) && !holds("file == '26d97ee2'", &digest));
    assert!(!holds(eight, &digest[..16]) && !holds(eight, &format!("{}z", &digest[..63])), "no digests");
}

#[test]
fn a_missing_field_is_no_match() {
    for text in ["missing == 1", "missing != 1", "missing < 1", "missing in [1]", "missing not in [1]"] {
        assert!(!holds(text), "{text}");
    }
    assert!(holds("not missing == 1"));
}

#[test]
fn fields_are_named_in_full() {
    let expr = parsed("gpus == 1 or model == bert or gpus == 2");
    assert_eq!(expr.fields().into_iter().collect::<Vec<_>>(), ["hardware.gpus", "model.name"]);
    assert_eq!(expr.text(), "gpus == 1 or model == bert or gpus == 2");
}

#[test]
fn faults_point_at_their_place() {
    insta::assert_snapshot!(fault("gpus <= 2 and precison == \"bf16\""), @r#"
    unknown name `precison` (did you mean `training.precision`?)
      gpus <= 2 and precison == "bf16"
                    ^^^^^^^^
    "#);
    insta::assert_snapshot!(fault("name == bert"), @r"
    `name` stands for several fields (write `data.name` or `model.name`)
      name == bert
      ^^^^
    ");
    insta::assert_snapshot!(fault("optimizer < adam"), @r"
    text has no order here (compare with a number, or use `==`)
      optimizer < adam
                  ^^^^
    ");
    insta::assert_snapshot!(fault("gpus = 2"), @r"
    `=` is not known here (write `==`)
      gpus = 2
           ^
    ");
    insta::assert_snapshot!(fault("gpus == 2 && big == 1"), @r"
    `&&` is not known here (write `and`)
      gpus == 2 && big == 1
                ^^
    ");
    insta::assert_snapshot!(fault("(gpus == 2"), @r"
    `)`, `and` or `or` is expected here
      (gpus == 2
                ^
    ");
    insta::assert_snapshot!(fault("gpus in [1, two]"), @r"
    text among a number (a list holds one type)
      gpus in [1, two]
                  ^^^
    ");
    insta::assert_snapshot!(fault("model == 'ü' and é == 1x"), @r"
    this is not a number (put text in quotes)
      model == 'ü' and é == 1x
                            ^^
    ");
    insta::assert_snapshot!(fault(""), @r"
    the expression is empty (write a comparison such as `gpus <= 2`)
      
      ^
    ");
    for text in [
        "gpus",
        "gpus == ",
        "gpus == 1 gpus",
        "1 < gpus",
        "gpus == 1)",
        "gpus not 1",
        "gpus in []",
        "model == 'x",
        "and",
        "@",
    ] {
        assert!(!fault(text).is_empty());
    }
}

#[test]
fn different_types_are_reported_against_values() {
    let values = values();
    let check = |text: &str| parsed(text).check(&|name| values.get(name).cloned()).map_err(|error| error.to_string());
    assert_eq!(check("gpus == 2 and missing < 3"), Ok(()));
    insta::assert_snapshot!(check("gpus == 2 and optimizer < 3").unwrap_err(), @r"
    `training.optimizer` is text, but is compared with a number (compare it with text)
      gpus == 2 and optimizer < 3
                    ^^^^^^^^^^^^^
    ");
    assert!(!holds("optimizer < 3"));
    assert!(!holds("optimizer != 3"));
}

#[test]
fn two_fields_are_compared_by_their_values() {
    for text in [
        "gpus > accuracy and accuracy < gpus and not gpus < accuracy",
        "gpus < big and big < seed and gpus <= gpus",
        "optimizer == training.optimizer and optimizer != training.precision",
        "`hardware.gpus` != `big` and loss == `loss`",
        "optimizer == 'optimizer' or optimizer != big",
    ] {
        assert!(holds(text), "{text}");
    }
    // A missing value, and one of another type, is no match.
    for text in ["gpus < missing", "gpus != `missing`", "optimizer != `big`", "model.name < data.name"] {
        assert!(!holds(text), "{text}");
    }
    assert_eq!(parsed("gpus < big").fields(), ["big", "hardware.gpus"].into());
    let values = values();
    let check = |text: &str| parsed(text).check(&|name| values.get(name).cloned()).map_err(|error| error.message);
    assert_eq!(check("gpus < big and gpus < missing"), Ok(()));
    assert_eq!(
        check("optimizer == `big`").unwrap_err(),
        "`training.optimizer` is text, but `big` is a number (compare fields of one type)"
    );
    assert_eq!(
        check("model.name < data.name").unwrap_err(),
        "`model.name` and `data.name` are text, which has no order here (use `==` or `!=`)"
    );
    assert!(fault("gpus == `bg`").contains("did you mean `big`?"));
    assert!(fault("gpus == `big").contains("not closed"));
}

#[test]
fn a_bare_word_is_a_column_only_over_columns() {
    let columns: BTreeSet<String> = ["made", "wanted", "batch size"].map(str::to_owned).into();
    let row = |name: &str| {
        let cells = [("made", "x"), ("wanted", "y"), ("batch size", "8")];
        cells.into_iter().find(|(column, _)| *column == name).map(|(_, cell)| cell.into())
    };
    let over = |text: &str| Expr::over_columns(text, &columns).unwrap().matches(&row);
    assert!(over("made != wanted and made == made and made != 'made'"));
    assert!(!over("made == wanted") && !over("made in [wanted, made]"), "a list holds texts");
    assert!(over("`batch size` == '8'"), "a name with a blank");
    let plain = Expr::parse("made == wanted", &columns).unwrap();
    assert!(!plain.matches(&row) && plain.fields() == ["made"].into(), "elsewhere it is text");
}

#[test]
fn nesting_is_limited_and_length_is_not() {
    let deep = format!("{}gpus == 2{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(fault(&deep).contains("64 levels"));
    assert!(fault(&"not ".repeat(100_000)).contains("64 levels"));
    assert!(holds(&vec!["gpus == 2"; 20_000].join(" and ")));
}

/// A random condition and the same as its text.
fn conditions() -> impl Strategy<Value = (String, bool)> {
    let gpus = (0_i64..5, 0_usize..6).prop_map(|(number, operator)| {
        let operators = ["==", "!=", "<", "<=", ">", ">="];
        let truth = [2 == number, 2 != number, 2 < number, 2 <= number, 2 > number, 2 >= number];
        (format!("gpus {} {number}", operators[operator]), truth[operator])
    });
    gpus.prop_recursive(5, 40, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|(text, truth)| (format!("not ({text})"), !truth)),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| (format!("({}) and ({})", a.0, b.0), a.1 && b.1)),
            (inner.clone(), inner).prop_map(|(a, b)| (format!("({}) or ({})", a.0, b.0), a.1 || b.1)),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_plain_logic((text, truth) in conditions()) {
        prop_assert_eq!(holds(&text), truth);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,60}") {
        if let Err(error) = Expr::parse(&text, &names()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn no_tokens_panic(words in proptest::collection::vec(prop::sample::select(vec![
        "gpus", "model", "name", "==", "<", "in", "not", "and", "or", "(", ")", "[", "]", ",", "1", "-", "1e", "+inf", "'", "\"x\"", "é", "=", "!", ".5", "`", "`big`",
    ]), 0..20), space in any::<bool>()) {
        let text = words.join(if space { " " } else { "" });
        if let Ok(expr) = Expr::parse(&text, &names()) {
            let values = values();
            expr.matches(&|name| values.get(name).cloned());
            let _ = expr.check(&|name| values.get(name).cloned());
        }
    }
}

#[test]
fn the_comparison_that_nothing_meets_is_found() {
    let names = ["gpus", "model"].map(str::to_owned).into();
    let unmet = |text: &str| {
        let expr = Expr::parse(text, &names).unwrap();
        let value = |gpus: &i64, name: &str| Some(if name == "gpus" { Value::Int(*gpus) } else { "bert".into() });
        expr.unmet(&[1, 2], &value).map(|(part, field)| (part.to_owned(), field.to_owned()))
    };
    let told = |part: &str, field: &str| Some((part.to_owned(), field.to_owned()));
    assert_eq!(unmet("gpus <= 2 and model == gpt2"), told("model == gpt2", "model"));
    assert_eq!(unmet("(model == bert and gpus > 3) and gpus == 9"), told("gpus > 3", "gpus"));
    assert_eq!(unmet("gpus == 1 and gpus == 2"), None, "each is met by one of them");
    assert_eq!(unmet("gpus == 1 or gpus == 9"), None, "the other alternative is met");
}

#[test]
fn a_condition_on_one_value_is_one_that_parses_and_holds() {
    let digest = "0123456789abcdef".repeat(4);
    let name = "program.files.my worker+1.sh";
    let names = BTreeSet::from([name.to_owned()]);
    let text = equality(name, &digest.as_str().into()).unwrap();
    assert_eq!(text, "`program.files.my worker+1.sh` == \"01234567\"");
    let condition = Expr::parse_in(&text, &[&names]).unwrap();
    assert!(condition.matches(&|_| Some(digest.as_str().into())));
    assert_eq!(equality("hardware.gpus", &Value::Int(4)).as_deref(), Some("hardware.gpus == 4"));
    assert_eq!([equality("a", &"it's".into()), equality("it's", &Value::Int(1))], [None, None]);
}
