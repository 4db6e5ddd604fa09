//! The checks of the fuzz targets. `cargo test` applies them to the inputs in `corpus`.

use ledger::analysis::expr::{Expr, Formula};
use ledger::journal::parse;
use ledger::record::{Digest, Value};
use ledger::wire::{
    PackFile, PackRoom, PackedAttempt, Place, Wanted, decode_attempt, decode_entry, decode_kernels, decode_log_entry,
    decode_packed, decode_phases, decode_row, decode_run, decode_series, decode_shape, decode_source, decode_values,
    encode_attempt, encode_entry, encode_log_entry, encode_packed, encode_phases, encode_row, encode_run,
    encode_series, encode_source, from_json, parse_event, phases_memory, series_memory, to_json_line, write_event,
};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;

/// Chunks that say that they are larger are not decoded here: they are allowed, and slow.
const MOST: u64 = 16 << 20;

/// Bytes as series and phases: nothing panics, and what they take in memory is known before they are decoded.
pub fn chunk(bytes: &[u8]) {
    if series_memory(bytes).is_ok_and(|memory| memory <= MOST)
        && let Ok(series) = decode_series(bytes)
    {
        let again = encode_series(&series).expect("it is encoded again");
        let other = decode_series(&again).expect("it is decoded again");
        assert_eq!(series.summary(), other.summary());
    }
    if phases_memory(bytes).is_ok_and(|memory| memory <= MOST)
        && let Ok(phases) = decode_phases(bytes)
    {
        let again = encode_phases(&phases).expect("it is encoded again");
        assert_eq!(decode_phases(&again).expect("it is decoded again"), phases);
    }
}

/// Bytes as a line of a worker, and text as JSON: nothing panics, and an event that was understood is written as one that is.
pub fn event(bytes: &[u8]) {
    if let Ok(event) = parse_event(bytes, 7) {
        let mut line = Vec::new();
        write_event(&event, &mut line);
        let again = parse_event(line.trim_ascii_end(), 7).expect("a written event is read");
        let mut other = Vec::new();
        write_event(&again, &mut other);
        assert_eq!(line, other);
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(value) = from_json(text)
    {
        let _ = (value.digest(), to_json_line(&value));
    }
}

/// Text as a condition and as a formula: nothing panics, faults have a place within the text, and what parses can be asked.
pub fn expression(text: &str) {
    let names: BTreeSet<String> =
        ["model.name", "hardware.gpus", "seed", "energy", "params.x", "x.y.z"].map(str::to_owned).into();
    let chars = text.chars().count();
    match Expr::parse(text, &names) {
        Ok(expr) => {
            for value in
                [None, Some(Value::Int(2)), Some(Value::Float(f64::NAN)), Some("bert".into()), Some(Value::Bool(true))]
            {
                let lookup = |_: &str| value.clone();
                let _ = (expr.matches(&lookup), expr.check(&lookup), expr.fields());
            }
        }
        Err(error) => {
            assert!(error.place.0 <= chars && error.place.1 >= 1, "{:?} in {chars}", error.place);
            assert!(!error.to_string().is_empty());
        }
    }
    match Formula::parse(text, &names) {
        Ok(formula) => {
            let _ = (formula.value(&|_| Some(3.5)), formula.value(&|_| None).is_ok());
        }
        Err(error) => assert!(error.place.0 <= chars && !error.to_string().is_empty()),
    }
}

/// Bytes as a journal, and as one whole frame of it: nothing panics, what is read is written back as it was.
pub fn journal(bytes: &[u8]) {
    let contents = parse(bytes);
    assert!(contents.torn_bytes <= bytes.len() as u64);
    // No fuzzer finds a checksum; the magic, a length and a checksum that fit are put before the bytes.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let framed = [b"ledgerJ\x01".as_slice(), &len, &crc32c(bytes).to_le_bytes(), bytes].concat();
    let contents = parse(&framed);
    match decode_entry(bytes) {
        Ok(entry) => {
            assert_eq!(contents.torn_bytes, 0);
            let again = encode_entry(&entry).expect("it is encoded again");
            // Numbers that are none are not equal to themselves: bytes are compared.
            let twice =
                encode_entry(&decode_entry(&again).expect("it is decoded again")).expect("it is encoded a second time");
            assert_eq!(again, twice);
        }
        Err(_) => assert!(contents.entries.is_empty()),
    }
}

/// CRC-32C by its definition, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 })
    })
}

/// Text as a manifest: nothing panics, and what is wrong with it is said.
pub fn manifest(text: &str) {
    if let Err(error) = ledger::manifest::parse(text, "fuzz.toml") {
        assert!(!error.to_string().is_empty());
    }
}

/// Bytes as a pack, and as the body of one whose digest is right: nothing panics, little memory is taken on their word, and a pack that is read piece by piece
/// holds the same.
pub fn pack(bytes: &[u8]) {
    let _ = decode_packed(bytes);
    let in_memory = || Err(io::Error::other("only what fits into memory is read here"));
    let digest = Digest::of(bytes).0;
    for format in [0, 2, 3] {
        let signed = [b"ledger\0".as_slice(), &[format], &digest, bytes].concat();
        let Ok(packed) = decode_packed(&signed) else { continue };
        if let Ok(file) = PackFile::read(signed.as_slice(), &mut { PackRoom::WHOLE }, &in_memory) {
            let are_there =
                |attempt: &PackedAttempt| (0..=attempt.sealed.attempt.series.len()).all(|at| attempt.chunk(at).is_ok());
            assert!(file.attempts.iter().all(are_there));
            let ids: Vec<_> = file.attempts.iter().map(|one| one.sealed.attempt.id()).collect();
            assert_eq!(ids, packed.attempts.iter().map(|one| one.attempt.id()).collect::<Vec<_>>());
            assert_eq!(file.sources, packed.sources);
        } else {
            assert!(format == 3 || signed.len() > 1 << 15, "a little pack is read piece by piece too");
        }
        let again = encode_packed(&packed).expect("it is written again");
        let other = decode_packed(&again).expect("it is read again");
        assert_eq!(packed.attempts.len(), other.attempts.len());
        assert_eq!(packed.sources, other.sources);
    }
}

/// Decodes, encodes, and does so once more: numbers that are none are not equal to themselves, so that bytes are compared.
fn round<T, E: Debug>(bytes: &[u8], decode: fn(&[u8]) -> Result<T, E>, encode: fn(&T) -> Result<Vec<u8>, E>) {
    let Ok(value) = decode(bytes) else { return };
    let again = encode(&value).expect("it is encoded again");
    let other = decode(&again).expect("it is decoded again");
    assert_eq!(again, encode(&other).expect("it is encoded a second time"));
}

/// Bytes as each kind of record of the ledger: nothing panics, and what decodes encodes to what decodes to the same.
pub fn record(bytes: &[u8]) {
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
        6 => {
            let wanted = Wanted::new(&[Place::At(0), Place::At(7), Place::Elsewhere, Place::At(1)]);
            let _ = decode_values(bytes, &wanted, &mut Vec::new());
        }
        _ => drop(decode_kernels(bytes)),
    }
}
