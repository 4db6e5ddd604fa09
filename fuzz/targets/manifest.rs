//! Text as a manifest: nothing panics, and what is wrong with it is said.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = ledger::manifest::parse(text, "fuzz.toml") {
        assert!(!error.to_string().is_empty());
    }
});
