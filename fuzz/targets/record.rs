//! Bytes as each kind of record of the ledger: nothing panics, and what decodes encodes to what decodes to the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledger_fuzz::record(bytes));
