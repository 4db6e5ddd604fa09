//! Bytes as a pack, and as the body of one whose digest is right: nothing panics, and little memory is taken on their word.
#![no_main]

use ledger::record::Digest;
use ledger::wire::{decode_packed, encode_packed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = decode_packed(bytes);
    let digest = Digest::of(bytes).0;
    for format in [0, 2, 3] {
        let signed = [b"ledger\0".as_slice(), &[format], &digest, bytes].concat();
        let Ok(packed) = decode_packed(&signed) else { continue };
        let again = encode_packed(&packed).expect("what was read is written");
        let other = decode_packed(&again).expect("what was written is read");
        assert_eq!(packed.attempts.len(), other.attempts.len());
        assert_eq!(packed.sources, other.sources);
    }
});
