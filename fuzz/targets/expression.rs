//! Text as a condition and as a formula: nothing panics, faults have a place within the text, and what parses can be asked.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| ledger_fuzz::expression(text));
