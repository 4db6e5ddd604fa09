//! Bytes as a pack, and as the body of one whose digest is right: nothing panics, little memory is taken on their word, and a pack that is read
//! piece by piece holds the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ledger_fuzz::pack(bytes));
