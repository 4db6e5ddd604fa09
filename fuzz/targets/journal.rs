//! Bytes as a journal, and as one whole frame of it: nothing panics, what is read is written back as it was.
#![no_main]

use ledger::journal::parse;
use ledger::wire::{decode_entry, encode_entry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let contents = parse(bytes);
    assert!(contents.torn_bytes <= bytes.len() as u64);
    // No fuzzer finds a checksum; the magic, a length and a checksum that fit are put before the bytes.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let framed = [b"ledgerJ\x01".as_slice(), &len, &crc32c(bytes).to_le_bytes(), bytes].concat();
    let contents = parse(&framed);
    match decode_entry(bytes) {
        Ok(entry) => {
            assert_eq!(contents.torn_bytes, 0);
            let again = encode_entry(&entry).expect("what was decoded encodes");
            // Numbers that are none are not equal to themselves: bytes are compared.
            let twice = encode_entry(&decode_entry(&again).expect("what was encoded decodes")).expect("and encodes");
            assert_eq!(again, twice);
        }
        Err(_) => assert!(contents.entries.is_empty()),
    }
});

/// CRC-32C by its definition, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}
