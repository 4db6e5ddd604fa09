//! Text as a condition and as a formula: nothing panics, faults have a place within the text, and what parses can be asked.
#![no_main]

use ledger::analysis::expr::{Expr, Formula};
use ledger::record::Value;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

fuzz_target!(|text: &str| {
    let names: BTreeSet<String> =
        ["model.name", "hardware.gpus", "seed", "energy", "params.x", "x.y.z"].map(str::to_owned).into();
    let chars = text.chars().count();
    match Expr::parse(text, &names) {
        Ok(expr) => {
            for value in
                [None, Some(Value::Int(2)), Some(Value::Float(f64::NAN)), Some("bert".into()), Some(Value::Bool(true))]
            {
                let lookup = |_: &str| value.clone();
                let _ = (expr.matches(&lookup), expr.check(&lookup), expr.fields());
            }
        }
        Err(error) => {
            assert!(error.place.0 <= chars && error.place.1 >= 1, "{:?} in {chars}", error.place);
            assert!(!error.to_string().is_empty());
        }
    }
    match Formula::parse(text, &names) {
        Ok(formula) => {
            let _ = (formula.value(&|_| Some(3.5)), formula.value(&|_| None).is_ok());
        }
        Err(error) => assert!(error.place.0 <= chars && !error.to_string().is_empty()),
    }
});
