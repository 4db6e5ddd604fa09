//! Bytes as a journal, and as one whole frame of it: nothing panics, what is read is written back as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledger_fuzz::journal(bytes));
