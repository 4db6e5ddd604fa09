//! Bytes as series and phases: nothing panics, and what they take in memory is known before they are decoded.
#![no_main]

use ledger::wire::{decode_phases, decode_series, encode_phases, encode_series, phases_memory, series_memory};
use libfuzzer_sys::fuzz_target;

/// Chunks that say that they are larger are not decoded here: they are allowed, and slow.
const MOST: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    if series_memory(bytes).is_ok_and(|memory| memory <= MOST)
        && let Ok(series) = decode_series(bytes)
    {
        let again = encode_series(&series).expect("what was decoded encodes");
        let other = decode_series(&again).expect("what was encoded decodes");
        assert_eq!(series.summary(), other.summary());
    }
    if phases_memory(bytes).is_ok_and(|memory| memory <= MOST)
        && let Ok(phases) = decode_phases(bytes)
    {
        let again = encode_phases(&phases).expect("what was decoded encodes");
        assert_eq!(decode_phases(&again).expect("what was encoded decodes"), phases);
    }
});
