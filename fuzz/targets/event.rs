//! Bytes as a line of a worker, and text as JSON: nothing panics, and an event that was understood is written as one that is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledger_fuzz::event(bytes));
