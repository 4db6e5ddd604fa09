//! A sealed attempt as one portable file.
//!
//! The file has the magic, the BLAKE3 digest of everything after it, and a bincode body: run, attempt, series chunks,
//! phases chunk. A reader recomputes every id and digest before it uses any of it.
//!
//! Format 2 has many attempts and their source texts. After magic and digest come frames: one byte for the type, four
//! for the length, and the content.
//!
//! Format 3 is format 2 with its frames compressed by zstd. Attempts of one machine have most of their facts in common,
//! and the series of one attempt their times. Names in it are relative to a folder that its reader creates.

mod file;

pub use file::{NextChunk, PackFile, PackedAttempt, Spool, ToPack, write_pack};

use super::chunk::{ChunkError, encode_phases, encode_series};
use super::v1::WireError;
use file::{Frames, frames_of};
use ledger_record::{Attempt, Digest, Inconsistency, Parts, Run, Sealed, SourceText, Table, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read as _};

/// The first eight bytes of a pack; the last of them is the format.
pub const PACK_MAGIC: [u8; 8] = *b"ledger\x00\x01";

/// A pack that is not valid.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It does not start like a pack.
    #[error("it is not a ledger pack")]
    NoPack,
    /// It was written by a newer ledger.
    #[error("it has pack format {0}, but this ledger reads up to 3 (use a newer ledger)")]
    Newer(u8),
    /// Bytes were changed or lost.
    #[error("its content does not match its digest (it is damaged or cut short: fetch it again)")]
    Damaged,
    /// Memory was exhausted, or zstd failed.
    #[error("it cannot be compressed: {0}")]
    Compress(#[source] io::Error),
    /// Its content, or the data to be packed, cannot be read.
    #[error("it cannot be read: {0}")]
    Unread(#[source] io::Error),
    /// Its content cannot be stored in a temporary file while it is checked.
    #[error("its content cannot be kept in a temporary file: {0}")]
    Unspooled(#[source] io::Error),
    /// Its file cannot be written.
    #[error("it cannot be written: {0}")]
    Unwritten(#[source] io::Error),
    /// One attempt exceeds the size of a frame.
    #[error("one of the attempts has more than 1 GiB (`merge` takes a whole ledger)")]
    Large,
    /// The content exceeds the size of a pack.
    #[error("it has more than 1 GiB (`merge` takes a whole ledger)")]
    Long,
    /// It would take more memory than a pack may.
    #[error(
        "its records take more than 160 MiB of memory, its phases 320 MiB, or its points 2 GiB (`merge` takes a whole ledger)"
    )]
    Memory,
    /// The run or attempt does not decode.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A series or the phases do not decode.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// Its pieces do not belong together.
    #[error("its pieces do not belong together: {0}")]
    Inconsistent(#[from] Inconsistency),
}

/// The largest size of a pack.
pub const PACK_MOST_BYTES: u64 = 1 << 30;
/// The largest size of a pack's frames, without magic and digest.
const FRAMES_MOST_BYTES: u64 = PACK_MOST_BYTES - 64;
/// The largest size of an attempt's frame, without type and length.
const FRAME_MOST_BYTES: usize = (1 << 30) - 64 - FRAME_HEAD_BYTES;
const FRAME_HEAD_BYTES: usize = 5;
/// Higher levels save less than 1% (telemetry of GPUs) and take several times as long.
const ZSTD_LEVEL: i32 = 9;
/// The most memory that the records and sources of a pack may take together: a few bytes can encode millions of empty texts.
const MOST_HELD_BYTES: u64 = 160 << 20;
/// The most memory that the phases of one attempt may take while they are checked.
const MOST_PHASES_BYTES: u64 = 320 << 20;
/// The most memory that all points of a pack would take together. They are never all in memory, but each is checked.
const MOST_POINT_BYTES: u64 = 2 << 30;

/// The content of a pack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    /// The attempts, each with its run, series and phases.
    pub attempts: Vec<Sealed>,
    /// The attempts' source texts.
    pub sources: Vec<SourceText>,
}

/// The sources that one of these attempts names, with their kinds.
fn named_sources<'s>(
    sources: &'s [SourceText],
    attempts: impl Iterator<Item = &'s Attempt>,
) -> Vec<(&'static str, &'s SourceText)> {
    let by_key: BTreeMap<Digest, usize> = sources.iter().enumerate().map(|(at, source)| (source.key(), at)).collect();
    let mut kinds = vec![None; sources.len()];
    for attempt in attempts {
        for (kind, digest) in SourceText::belonging_to(&attempt.settings, &attempt.facts) {
            let found = SourceText::keys(digest, &attempt.facts).find_map(|key| by_key.get(&key));
            if let Some(at) = found {
                kinds[*at].get_or_insert(kind);
            }
        }
    }
    kinds.into_iter().zip(sources).filter_map(|(kind, source)| Some((kind?, source))).collect()
}

/// The texts that attempts name and that are missing, with their kinds.
pub fn missing_sources<'a>(
    attempts: impl Iterator<Item = &'a Attempt>,
    sources: &[SourceText],
) -> BTreeSet<(&'static str, Digest)> {
    let keys: BTreeSet<Digest> = sources.iter().map(SourceText::key).collect();
    let named = attempts.flat_map(|attempt| {
        let named = SourceText::belonging_to(&attempt.settings, &attempt.facts).into_iter();
        named.map(|(kind, digest)| (kind, digest, &attempt.facts))
    });
    let is_missing = |digest, facts| !SourceText::keys(digest, facts).any(|key| keys.contains(&key));
    named.filter(|(_, digest, facts)| is_missing(*digest, *facts)).map(|(kind, digest, _)| (kind, digest)).collect()
}

const OF_ATTEMPT: u8 = 1;
const OF_SOURCE: u8 = 2;

/// Encodes attempts and sources as the bytes of a pack of format 3.
pub fn encode_packed(packed: &Packed) -> Result<Vec<u8>, PackError> {
    encode_as(3, &packed.attempts, &packed.sources)
}

/// Encodes a sealed attempt as the bytes of a pack of format 1.
pub fn encode_pack(sealed: &Sealed) -> Result<Vec<u8>, PackError> {
    encode_as(1, std::slice::from_ref(sealed), &[])
}

fn encode_as(format: u8, attempts: &[Sealed], sources: &[SourceText]) -> Result<Vec<u8>, PackError> {
    let (mut chunks, mut to_pack) = (Vec::new(), Vec::new());
    for Sealed { run, attempt, series, phases } in attempts {
        let of_attempt = series.iter().map(encode_series).chain([encode_phases(phases)]);
        let of_attempt = of_attempt.collect::<Result<Vec<_>, _>>()?;
        let chunk_lengths = of_attempt.iter().map(Vec::len).collect();
        to_pack.push(ToPack { run: run.clone(), attempt: attempt.clone(), chunk_lengths });
        chunks.extend(of_attempt);
    }
    let (mut pack, mut chunks) = (Cursor::new(Vec::new()), chunks.into_iter());
    let mut next_chunk = || chunks.next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
    write_pack(&mut pack, format, &to_pack, sources, &mut next_chunk)?;
    Ok(pack.into_inner())
}

/// The memory that packs may still take.
#[derive(Clone, Copy, Debug)]
pub struct PackRoom {
    held_bytes: u64,
    point_bytes: u64,
}

impl PackRoom {
    /// The limit for all packs of a command.
    pub const WHOLE: Self = Self { held_bytes: MOST_HELD_BYTES, point_bytes: MOST_POINT_BYTES };
    const ALL: Self = Self { held_bytes: u64::MAX, point_bytes: u64::MAX };

    /// Resets the limit of points for another pack.
    pub fn renew_points(&mut self) {
        self.point_bytes = MOST_POINT_BYTES;
    }

    fn hold(&mut self, bytes: u64) -> Result<(), PackError> {
        self.held_bytes = self.held_bytes.checked_sub(bytes).ok_or(PackError::Memory)?;
        Ok(())
    }

    /// Checks that this many lists and tables may be created, before anything else is known about them.
    fn may_make(&self, containers: usize) -> Result<(), PackError> {
        let bytes = (containers * NODE_BYTES) as u64;
        if bytes <= self.held_bytes { Ok(()) } else { Err(PackError::Memory) }
    }

    fn look_at(&mut self, bytes: u64) -> Result<(), PackError> {
        self.point_bytes = self.point_bytes.checked_sub(bytes).ok_or(PackError::Memory)?;
        Ok(())
    }
}

/// Decodes and checks a pack of any format into memory, with all its points. [`PackFile`] leaves points on disk.
pub fn decode_packed(bytes: &[u8]) -> Result<Packed, PackError> {
    if u64::try_from(bytes.len()).is_ok_and(|length| length > PACK_MOST_BYTES) {
        return Err(PackError::Long);
    }
    decode_within(bytes, PackRoom::WHOLE)
}

fn decode_within(bytes: &[u8], mut room: PackRoom) -> Result<Packed, PackError> {
    let magic = bytes.first_chunk::<8>().filter(|magic| magic[..7] == PACK_MAGIC[..7]).ok_or(PackError::NoPack)?;
    let frames = match magic[7] {
        0..=2 => body_of(bytes)?.to_vec(),
        3 => decompress(body_of(bytes)?, FRAMES_MOST_BYTES)?,
        newer => return Err(PackError::Newer(newer)),
    };
    let len = frames.len() as u64;
    let PackFile { attempts, sources } = frames_of(Frames::Memory(frames), len, magic[7], &mut room)?;
    let attempts = attempts.into_iter().map(PackedAttempt::whole).collect::<Result<_, _>>()?;
    Ok(Packed { attempts, sources })
}

/// Decodes and checks a pack of one attempt.
pub fn decode_pack(bytes: &[u8]) -> Result<Sealed, PackError> {
    let mut packed = decode_packed(bytes)?;
    packed.attempts.pop().filter(|_| packed.attempts.is_empty()).ok_or(PackError::Damaged)
}

/// Returns the bytes after a pack's magic and digest, if the digest is right.
fn body_of(pack: &[u8]) -> Result<&[u8], PackError> {
    let (digest, body) = pack.get(8..).and_then(|rest| rest.split_at_checked(32)).ok_or(PackError::Damaged)?;
    if Digest::of(body).0 == *digest { Ok(body) } else { Err(PackError::Damaged) }
}

/// Decompresses at most `most` bytes.
fn decompress(body: &[u8], most: u64) -> Result<Vec<u8>, PackError> {
    let mut frames = Vec::new();
    let decoder = zstd::Decoder::with_buffer(body).map_err(|_| PackError::Damaged)?;
    decoder.take(most + 1).read_to_end(&mut frames).map_err(|_| PackError::Damaged)?;
    if u64::try_from(frames.len()).is_ok_and(|length| length <= most) { Ok(frames) } else { Err(PackError::Long) }
}

/// The approximate memory of a run and an attempt. An empty text takes 24 times its encoded size.
fn record_memory(run: &Run, attempt: &Attempt) -> u64 {
    let Parts { config, program, container, cuda, driver, device, .. } = &run.parts;
    let parts: usize = [config, program, container, cuda, driver, device].into_iter().map(value_memory).sum();
    let texts = |texts: &[String]| texts.iter().map(|text| text_memory(text)).sum::<usize>();
    let tables = table_memory(&attempt.settings) + table_memory(&attempt.facts);
    let metrics = attempt.metrics.iter().map(|(name, metric)| {
        let reason = metric.reason.as_deref().map_or(0, text_memory);
        size_of_val(metric) + 2 * text_memory(name) + text_memory(&metric.unit) + reason
    });
    let digests = attempt.digests.keys().map(|name| size_of::<Digest>() + 2 * text_memory(name));
    let series = attempt.series.iter().map(|one| size_of_val(one) + text_memory(&one.name) + text_memory(&one.unit));
    let said = [&attempt.tail.stderr, &attempt.tail.stdout].map(|text| text_memory(text)).iter().sum::<usize>();
    let said = said + texts(&attempt.warnings) + texts(&attempt.tail.events);
    let said = said + attempt.outcome.reason().map_or(0, text_memory);
    let all = parts + tables + metrics.sum::<usize>() + digests.sum::<usize>() + series.sum::<usize>() + said;
    u64::try_from(all + 2 * NODE_BYTES).unwrap_or(u64::MAX)
}

/// The memory of a text. An allocation takes at least 32 bytes.
fn text_memory(text: &str) -> usize {
    size_of::<String>() + if text.is_empty() { 0 } else { 32.max(text.len() + 16) }
}

/// The memory of a map's node, which has space for eleven entries from the first entry on.
const NODE_BYTES: usize = 11 * (size_of::<String>() + size_of::<Value>());

/// The memory of a table. Names count twice, because nodes are at least half full.
fn table_memory(table: &Table) -> usize {
    let node = if table.is_empty() { 0 } else { NODE_BYTES };
    node + table.iter().map(|(name, value)| 2 * text_memory(name) + value_memory(value)).sum::<usize>()
}

fn value_memory(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Str(text) => text_memory(text),
            Value::List(values) => values.iter().map(value_memory).sum(),
            Value::Table(table) => table_memory(table),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{encode, encode_attempt, encode_run};
    use ledger_record::{Axis, Nonce, Phase, Series, SeriesSummary};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn packed() -> Vec<u8> {
        let kept = b"name = \"toy\"".to_vec();
        let sources = vec![SourceText { original: Digest::of(&kept), is_redacted: false, kept }; 2];
        encode_packed(&Packed { attempts: Vec::new(), sources }).unwrap()
    }

    /// A pack with this body and the right digest.
    fn signed(format: u8, body: &[u8]) -> Vec<u8> {
        [&PACK_MAGIC[..7], &[format], &Digest::of(body).0, body].concat()
    }

    fn body_with(attempt: &Sealed, series: Vec<Vec<u8>>) -> Vec<u8> {
        let (run, phases) = (encode_run(&attempt.run).unwrap(), encode_phases(&attempt.phases).unwrap());
        encode("pack", &(run, encode_attempt(&attempt.attempt).unwrap(), series, phases)).unwrap()
    }

    fn read_body(body: &[u8], room: &mut PackRoom) -> Result<PackedAttempt, PackError> {
        PackedAttempt::read(&Arc::new(Frames::Memory(body.to_vec())), 0..body.len() as u64, room)
    }

    fn frame(body: &[u8]) -> Vec<u8> {
        [&[OF_ATTEMPT], u32::try_from(body.len()).unwrap().to_le_bytes().as_slice(), body].concat()
    }

    proptest! {
        #[test]
        fn rubbish_neither_panics_nor_allocates_what_it_claims(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_packed(&body);
            let _ = decode_packed(&signed(2, &body));
            // A frame that claims to be an attempt, with arbitrary content.
            let length = u32::try_from(body.len()).unwrap().to_le_bytes();
            let _ = decode_packed(&signed(3, &body));
            for kind in [OF_ATTEMPT, OF_SOURCE] {
                let frame = [&[kind], length.as_slice(), &body].concat();
                prop_assert!(decode_packed(&signed(2, &frame)).is_err());
                let compressed = zstd::encode_all(frame.as_slice(), 1).unwrap();
                prop_assert!(decode_packed(&signed(3, &compressed)).is_err());
            }
        }

        #[test]
        fn every_flipped_bit_is_found(at in any::<prop::sample::Index>(), bit in 0u32..8) {
            let mut bytes = packed();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode_packed(&bytes).is_err());
        }
    }

    #[test]
    fn frames_stay_within_the_pack() {
        assert_eq!(decode_packed(&packed()).unwrap().sources.len(), 2);
        let long = [&[OF_SOURCE], u32::MAX.to_le_bytes().as_slice(), b"abc"].concat();
        assert!(matches!(decode_packed(&signed(2, &long)), Err(PackError::Damaged)));
        assert!(matches!(decode_packed(&signed(2, &[9, 0, 0, 0, 0])), Err(PackError::Damaged)));
        assert!(matches!(decode_packed(&signed(2, &[1, 0])), Err(PackError::Damaged)));
    }
    fn an_attempt() -> Sealed {
        let run = Run::new(Parts::sample());
        let attempt = Attempt { run: run.id, phases: Phase::digest_all(&[]), ..Attempt::sample() };
        Sealed { run, attempt, series: Vec::new(), phases: Vec::new() }
    }

    #[test]
    fn a_small_pack_does_not_allocate_what_it_claims() {
        let body = |len: u64| {
            let mut attempt = an_attempt();
            let (name, unit, axis, digest) = ("loss".to_owned(), String::new(), Axis::Step, Digest([0; 32]));
            attempt.attempt.series = vec![SeriesSummary { name, unit, axis, len, digest }];
            body_with(&attempt, vec![crate::chunk::bomb(len)])
        };
        let large = body(50_000_000);
        assert!(large.len() < 1000);
        let mut room = PackRoom { point_bytes: 700_000_000, ..PackRoom::WHOLE };
        assert!(matches!(read_body(&large, &mut room), Err(PackError::Memory)));
        // A series within the limit is checked, and its size is subtracted from the limit.
        let mut room = PackRoom { point_bytes: 2_000_000, ..PackRoom::WHOLE };
        assert!(matches!(read_body(&body(100_000), &mut room), Err(PackError::Inconsistent(Inconsistency::Series(_)))));
        assert!((390_000..=400_000).contains(&room.point_bytes), "{room:?}");
        assert!(matches!(read_body(&body(100_000), &mut room), Err(PackError::Memory)));
    }

    /// A ledger's own records have no such limit.
    #[test]
    fn tables_of_a_few_bytes_are_counted_before_they_are_made() {
        let small = Value::Table([(String::new(), Value::Bool(true))].into());
        let mut sealed = an_attempt();
        sealed.attempt.facts.insert("tables".to_owned(), vec![small; 300_000].into());
        let body = body_with(&sealed, Vec::new());
        assert!(body.len() < 2_000_000);
        assert!(matches!(read_body(&body, &mut { PackRoom::WHOLE }), Err(PackError::Memory)));
        assert_eq!(read_body(&body, &mut { PackRoom::ALL }).unwrap().whole().unwrap(), sealed);
    }

    /// 100,000 empty series would be 200,000 reads, and hundreds of bytes each.
    #[test]
    fn no_more_series_are_read_than_the_record_lists() {
        let empty = encode_series(&Series::new("", "", Axis::Step)).unwrap();
        let body = body_with(&an_attempt(), vec![empty; 100_000]);
        let found = read_body(&body, &mut { PackRoom::WHOLE });
        assert!(matches!(found, Err(PackError::Inconsistent(Inconsistency::SeriesCount))));
        let long = [encode("pack", &(1u64 << 29)).unwrap(), vec![0; 100]].concat();
        assert!(matches!(read_body(&long, &mut { PackRoom::WHOLE }), Err(PackError::Large)));
    }

    #[test]
    fn packs_that_could_not_be_read_back_are_not_written() {
        let mut attempt = an_attempt();
        assert!(
            decode_packed(&encode_packed(&Packed { attempts: vec![attempt.clone()], sources: Vec::new() }).unwrap())
                .is_ok()
        );
        attempt.attempt.facts.insert("long".to_owned(), "x".repeat(64 << 20).into());
        assert!(matches!(encode_pack(&attempt), Err(PackError::Wire(WireError::Unreadable { .. }))));
        let Sealed { run, attempt, .. } = an_attempt();
        let large = ToPack { run, attempt, chunk_lengths: vec![FRAME_MOST_BYTES] };
        let mut nothing = || Ok(Vec::new());
        let written = write_pack(&mut Cursor::new(Vec::new()), 3, &[large], &[], &mut nothing);
        assert!(matches!(written, Err(PackError::Large)));
    }

    #[test]
    fn an_attempt_may_have_more_than_any_of_its_parts() {
        let mut attempt = an_attempt();
        // Each part by itself decodes to at most 64 MiB.
        attempt.attempt.facts.insert("long".to_owned(), "x".repeat((64 << 20) - (8 << 10)).into());
        let name = "n".repeat(16 << 10);
        attempt.phases.push(Phase { name, index: 0, rank: 0, start_ns: 0, stop_ns: None });
        attempt.attempt.phases = Phase::digest_all(&attempt.phases);
        let pack = encode_pack(&attempt).unwrap();
        assert!(pack.len() > 64 << 20);
        assert_eq!(decode_pack(&pack).unwrap(), attempt);
        let (own, sources) = PackFile::read_own(pack.as_slice(), &|| tempfile::tempfile()).unwrap();
        assert_eq!((own.whole().unwrap(), sources), (attempt.clone(), Vec::new()));
        let packed = Packed { attempts: vec![attempt], sources: Vec::new() };
        assert_eq!(decode_packed(&encode_packed(&packed).unwrap()).unwrap(), packed);
    }

    #[test]
    fn packs_of_every_format_are_read() {
        let sealed = an_attempt();
        let sources = vec![SourceText { original: Digest::of(b"a"), is_redacted: false, kept: b"a".to_vec() }];
        let packed = Packed { attempts: vec![sealed.clone()], sources: sources.clone() };
        let without = Packed { sources: Vec::new(), ..packed.clone() };
        for (format, pack, content) in [
            (1, encode_pack(&sealed).unwrap(), &without),
            (2, encode_as(2, &packed.attempts, &sources).unwrap(), &packed),
            (3, encode_packed(&packed).unwrap(), &packed),
        ] {
            assert_eq!((pack[7], &decode_packed(&pack).unwrap()), (format, content));
        }
        assert!(matches!(decode_packed(&signed(4, &[])), Err(PackError::Newer(4))));
    }

    #[test]
    fn a_file_is_read_as_memory_is() {
        let mut sealed = an_attempt();
        sealed.series = vec![Series::new("loss", "", Axis::Step), Series::new("power", "W", Axis::TimeNs)];
        sealed.series.iter_mut().zip([1.5, 2.5]).for_each(|(series, value)| series.push(1, value));
        sealed.attempt.series = sealed.series.iter().map(Series::summary).collect();
        let sources = vec![SourceText { original: Digest::of(b"a"), is_redacted: false, kept: b"a".to_vec() }];
        let packed = Packed { attempts: vec![sealed.clone()], sources: sources.clone() };
        let spool = || tempfile::tempfile();
        for format in 1..=3 {
            let sources: &[_] = if format == 1 { &[] } else { &sources };
            let pack = encode_as(format, &packed.attempts, sources).unwrap();
            let read = |pack: &[u8]| PackFile::read(pack, &mut { PackRoom::WHOLE }, &spool);
            let mut file = read(&pack).unwrap();
            let one = file.attempts.pop().unwrap();
            assert_eq!(one.chunk(1).unwrap(), encode_series(&sealed.series[1]).unwrap());
            assert_eq!(one.chunk(2).unwrap(), encode_phases(&[]).unwrap());
            assert_eq!(one.whole().unwrap(), sealed);
            for at in 0..pack.len() {
                let mut damaged = pack.clone();
                damaged[at] ^= 1;
                let file = |pack: &[u8]| read(pack).map(drop).map_err(|error| error.to_string());
                let memory = |pack: &[u8]| decode_packed(pack).map(drop).map_err(|error| error.to_string());
                assert_eq!(file(&damaged), memory(&damaged), "byte {at}");
                assert_eq!(file(&pack[..at]), memory(&pack[..at]), "{at} bytes");
                assert!(at == 7 || file(&damaged).is_err());
            }
        }
        // Larger content is stored in a file.
        sealed.attempt.tail.stderr = (0..5_000u32).map(|i| Digest::of(&i.to_le_bytes()).to_string()).collect();
        let packed = Packed { attempts: vec![sealed.clone()], sources: Vec::new() };
        let pack = encode_packed(&packed).unwrap();
        assert!(pack.len() > 1 << 16);
        let mut file = PackFile::read(pack.as_slice(), &mut { PackRoom::WHOLE }, &spool).unwrap();
        assert_eq!(file.attempts.pop().unwrap().whole().unwrap(), sealed);
        let full = || Err(io::ErrorKind::StorageFull.into());
        let said = PackFile::read(pack.as_slice(), &mut { PackRoom::WHOLE }, &full).unwrap_err().to_string();
        assert!(said.contains("temporary file: no storage space"), "{said}");
    }

    #[test]
    fn common_facts_of_attempts_compress_well() {
        let attempts = (0..100).map(|nonce| {
            let mut sealed = an_attempt();
            let facts = (0..100).map(|fact| (format!("fact {fact}"), Value::from(Digest::of(&[fact]).to_string())));
            sealed.attempt.facts.extend(facts);
            sealed.attempt.nonce = Nonce([nonce; 16]);
            sealed
        });
        let packed = Packed { attempts: attempts.collect(), sources: Vec::new() };
        let frames: Vec<u8> = packed.attempts.iter().flat_map(|sealed| frame(&body_with(sealed, Vec::new()))).collect();
        let pack = encode_packed(&packed).unwrap();
        assert!(frames.len() > 20 * pack.len(), "{} to {} bytes", frames.len(), pack.len());
    }

    #[test]
    fn empty_texts_count_by_their_memory() {
        let mut sealed = an_attempt();
        sealed.attempt.warnings = vec![String::new(); 100_000];
        sealed.attempt.facts.insert("list".to_owned(), Value::List(vec![Value::Bool(true); 10_000]));
        let body = body_with(&sealed, Vec::new());
        assert!(body.len() < 130_000);
        let room = |held_bytes: u64| PackRoom { held_bytes, ..PackRoom::WHOLE };
        let mut some = room(6_000_000);
        assert!(read_body(&body, &mut some).is_ok());
        assert!(some.held_bytes < 3_400_000, "{some:?}");
        assert!(matches!(read_body(&body, &mut room(2_000_000)), Err(PackError::Memory)));
        let frames = frame(&body).repeat(100);
        let bomb = signed(3, &zstd::encode_all(frames.as_slice(), ZSTD_LEVEL).unwrap());
        assert!(bomb.len() < 10_000, "{}", bomb.len());
        assert!(matches!(decode_within(&bomb, room(20_000_000)), Err(PackError::Memory)));
    }

    #[test]
    fn decompression_is_bounded() {
        let compressed = zstd::encode_all([0; 1 << 20].as_slice(), ZSTD_LEVEL).unwrap();
        assert!(compressed.len() < 1 << 10);
        assert_eq!(decompress(&compressed, 1 << 20).unwrap(), [0; 1 << 20]);
        assert!(matches!(decompress(&compressed, (1 << 20) - 1), Err(PackError::Long)));
        for damaged in [&b""[..], b"no zstd", &compressed[..20]] {
            assert!(matches!(decode_packed(&signed(3, damaged)), Err(PackError::Damaged)));
        }
    }

    #[test]
    fn series_that_cannot_be_kept_by_their_names_are_refused() {
        let with = |names: &[&str]| {
            let mut sealed = an_attempt();
            sealed.series = names.iter().map(|name| Series::new(*name, "", Axis::Step)).collect();
            sealed.series.iter_mut().zip([1.5, 2.5]).for_each(|(series, value)| series.push(1, value));
            sealed.attempt.series = sealed.series.iter().map(Series::summary).collect();
            decode_pack(&encode_pack(&sealed).unwrap())
        };
        assert!(with(&["loss", "loss2"]).is_ok());
        let twice = Inconsistency::Repeated("loss".to_owned());
        for (names, why) in [(["loss", "loss"], twice), (["loss", ""], Inconsistency::Unnamed)] {
            assert!(matches!(with(&names), Err(PackError::Inconsistent(found)) if found == why), "{names:?}");
        }
    }

    #[test]
    fn texts_that_no_attempt_names_are_ignored() {
        let mut one = an_attempt();
        let text = |kept: &str| SourceText { original: Digest::of(b"secret"), is_redacted: true, kept: kept.into() };
        let (genuine, forged) = (text("(redacted)"), text("evil"));
        let kept = b"name = 1".to_vec();
        let patch = SourceText { original: Digest::of(&kept), is_redacted: false, kept };
        one.attempt.settings.insert("manifest.digest".to_owned(), genuine.original.to_string().into());
        one.attempt.facts.extend(SourceText::redacted(std::slice::from_ref(&genuine)));
        let sources = vec![forged, genuine.clone(), patch.clone()];
        fn named<'s>(one: &'s Sealed, sources: &'s [SourceText]) -> Vec<(&'static str, &'s SourceText)> {
            named_sources(sources, [&one.attempt].into_iter())
        }
        assert_eq!(named(&one, &sources), [("manifest", &genuine)]);
        one.attempt.facts.insert("git.patch".to_owned(), patch.original.to_string().into());
        assert_eq!(named(&one, &sources), [("manifest", &genuine), ("patch", &patch)]);
    }
}
