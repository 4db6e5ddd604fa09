//! Text as a manifest: nothing panics, and what is wrong with it is said.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| ledger_fuzz::manifest(text));
