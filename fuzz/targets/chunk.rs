//! Bytes as series and phases: nothing panics, and what they take in memory is known before they are decoded.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledger_fuzz::chunk(bytes));
