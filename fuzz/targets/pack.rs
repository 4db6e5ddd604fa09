//! Bytes as a pack, and as the body of one whose digest is right: nothing panics, and little memory is taken on their word.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledger_fuzz::pack(bytes));
