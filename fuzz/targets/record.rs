//! Bytes as each kind of record of the ledger: nothing panics, and what decodes encodes to what decodes to the same.
#![no_main]

use ledger::wire::{
    Place, Wanted, decode_attempt, decode_kernels, decode_log_entry, decode_row, decode_run, decode_shape,
    decode_source, decode_values, encode_attempt, encode_log_entry, encode_row, encode_run, encode_source,
};
use libfuzzer_sys::fuzz_target;
use std::fmt::Debug;

/// Decodes, encodes, and does so once more: numbers that are none are not equal to themselves, so that bytes are compared.
fn round<T, E: Debug>(bytes: &[u8], decode: fn(&[u8]) -> Result<T, E>, encode: fn(&T) -> Result<Vec<u8>, E>) {
    let Ok(value) = decode(bytes) else { return };
    let again = encode(&value).expect("what was decoded encodes");
    let other = decode(&again).expect("what was encoded decodes");
    assert_eq!(again, encode(&other).expect("and encodes"));
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => round(bytes, decode_run, encode_run),
        1 => {
            round(bytes, decode_attempt, encode_attempt);
            if let Ok(attempt) = decode_attempt(bytes) {
                let _ = (attempt.id(), attempt.counts());
            }
        }
        2 => round(bytes, decode_log_entry, encode_log_entry),
        3 => round(bytes, decode_row, encode_row),
        4 => round(bytes, decode_source, encode_source),
        5 => drop(decode_shape(bytes)),
        6 => drop(decode_values(bytes, &Wanted::new(&[Place::At(0), Place::At(7), Place::Elsewhere, Place::At(1)]))),
        _ => drop(decode_kernels(bytes)),
    }
});
