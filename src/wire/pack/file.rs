//! Incremental reading and writing of packs: memory does not grow with their series.

use super::{
    FRAME_HEAD_BYTES, FRAME_MOST_BYTES, FRAMES_MOST_BYTES, MOST_PHASES_BYTES, OF_ATTEMPT, OF_SOURCE, PACK_MAGIC,
    PACK_MOST_BYTES, PackError, PackRoom, ZSTD_LEVEL, named_sources, record_memory,
};
use crate::chunk::{decode_phases, decode_series, phases_memory, series_memory, summarize_series};
use crate::source::{decode_source, encode_source};
use crate::v1::{
    LIMIT_BYTES, WireError, decode_attempt_if, decode_first, decode_run_if, encode, encode_attempt, encode_run,
};
use ledger_record::{Attempt, Digest, DigestWriter, Inconsistency, Run, Sealed, SourceText, check_pieces};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The largest size of a record or chunk.
const PIECE_MOST_BYTES: u64 = 2 * LIMIT_BYTES as u64;
/// Smaller content is kept in memory, and larger content in a file.
const LITTLE_BYTES: usize = 1 << 16;
/// The longest number in bincode's variable-length encoding.
const NUMBER_BYTES: u64 = 9;

/// The content of a pack. Its records are in memory; its series and phases stay on disk.
#[derive(Debug)]
pub struct PackFile {
    /// The attempts, each with its run.
    pub attempts: Vec<PackedAttempt>,
    /// The attempts' source texts.
    pub sources: Vec<SourceText>,
}

/// Creates an empty, private file for content that cannot be read twice.
pub type Spool<'s> = dyn Fn() -> io::Result<File> + 's;

/// An attempt of a pack.
#[derive(Debug)]
pub struct PackedAttempt {
    /// Its run and its record, without series and phases, which [`chunk`](Self::chunk) returns.
    pub sealed: Sealed,
    frames: Arc<Frames>,
    series: Vec<Range<u64>>,
    phases: Range<u64>,
}

/// The frames of a pack.
#[derive(Debug)]
pub(super) enum Frames {
    Memory(Vec<u8>),
    File(File),
}

impl Frames {
    fn read(&self, range: &Range<u64>) -> Result<Vec<u8>, PackError> {
        let len = usize::try_from(range.end - range.start).map_err(|_| PackError::Damaged)?;
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(range.start).map_err(|_| PackError::Damaged)?;
                Ok(bytes.get(start..start + len).ok_or(PackError::Damaged)?.to_vec())
            }
            Self::File(file) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, range.start).map_err(PackError::Unread)?;
                Ok(bytes)
            }
        }
    }
}

impl PackFile {
    /// Reads and checks a pack of any format. Its memory is subtracted from `room`, which may be used for several packs.
    ///
    /// # Errors
    /// If it cannot be read, or is not valid.
    pub fn read(mut pack: impl Read, room: &mut PackRoom, spool: &Spool<'_>) -> Result<Self, PackError> {
        let (format, expected) = read_head(&mut pack)?;
        let (mut frames, mut len, digest) = spooled(pack, PACK_MOST_BYTES - HEAD_BYTES as u64, spool)?;
        if digest != expected {
            return Err(PackError::Damaged);
        }
        if format == 3 {
            let compressed: Box<dyn Read> = match frames {
                Frames::Memory(bytes) => Box::new(io::Cursor::new(bytes)),
                Frames::File(file) => Box::new(file),
            };
            let decoder = zstd::Decoder::new(compressed).map_err(|_| PackError::Damaged)?;
            (frames, len, _) = spooled(Decompressed(decoder), FRAMES_MOST_BYTES, spool)?;
        }
        frames_of(frames, len, format, room)
    }

    /// Reads a pack of one attempt that this ledger wrote, with its sources. Its memory is not limited, because it was in memory before.
    ///
    /// # Errors
    /// If it cannot be read, is not valid, or has another number of attempts.
    pub fn read_own(pack: impl Read, spool: &Spool<'_>) -> Result<(PackedAttempt, Vec<SourceText>), PackError> {
        let Self { mut attempts, sources } = Self::read(pack, &mut { PackRoom::ALL }, spool)?;
        match attempts.pop() {
            Some(attempt) if attempts.is_empty() => Ok((attempt, sources)),
            _ => Err(PackError::Damaged),
        }
    }

    /// The sources that an attempt of the pack names, with their kinds. Others are never used.
    pub fn named_sources(&self) -> Vec<(&'static str, &SourceText)> {
        named_sources(&self.sources, self.attempts.iter().map(|packed| &packed.sealed.attempt))
    }
}

/// The length of magic and digest.
const HEAD_BYTES: usize = 40;

/// Returns the format, if it is supported, and the digest.
fn read_head(pack: &mut impl Read) -> Result<(u8, Digest), PackError> {
    let mut head = [0; HEAD_BYTES];
    let has = read_up_to(pack, &mut head).map_err(PackError::Unread)?;
    let magic = head.first_chunk::<8>().filter(|magic| has >= 8 && magic[..7] == PACK_MAGIC[..7]);
    let format = magic.ok_or(PackError::NoPack)?[7];
    if format > 3 {
        return Err(PackError::Newer(format));
    }
    match head.last_chunk() {
        Some(digest) if has == HEAD_BYTES => Ok((format, Digest(*digest))),
        _ => Err(PackError::Damaged),
    }
}

/// Separates errors of zstd's decoding from errors of reading.
struct Decompressed<R>(R);

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }
}

fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut has = 0;
    while has < buffer.len() {
        match from.read(&mut buffer[has..]) {
            Ok(0) => break,
            Ok(more) => has += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(has)
}

/// Copies at most `most` bytes so that they can be read again: small content to memory, large content to a file.
/// Returns it with its length and its digest.
fn spooled(mut from: impl Read, most: u64, spool: &Spool<'_>) -> Result<(Frames, u64, Digest), PackError> {
    let (mut digest, mut len) = (DigestWriter::new(), 0);
    let mut buffer = vec![0; LITTLE_BYTES];
    let mut file: Option<File> = None;
    loop {
        let has = read_up_to(&mut from, &mut buffer).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => PackError::Damaged,
            _ => PackError::Unread(error),
        })?;
        len += has as u64;
        if len > most {
            return Err(PackError::Long);
        }
        digest.write(&buffer[..has]);
        if has < buffer.len() && file.is_none() {
            buffer.truncate(has);
            return Ok((Frames::Memory(buffer), len, digest.finish()));
        }
        let mut to = match file {
            Some(file) => file,
            None => spool().map_err(PackError::Unspooled)?,
        };
        to.write_all(&buffer[..has]).map_err(PackError::Unspooled)?;
        if has < buffer.len() {
            to.rewind().map_err(PackError::Unspooled)?;
            return Ok((Frames::File(to), len, digest.finish()));
        }
        file = Some(to);
    }
}

/// Decodes the attempts and sources in frames with the right digest.
pub(super) fn frames_of(frames: Frames, len: u64, format: u8, room: &mut PackRoom) -> Result<PackFile, PackError> {
    let frames = Arc::new(frames);
    if format < 2 {
        let attempt = PackedAttempt::read(&frames, 0..len, room)?;
        return Ok(PackFile { attempts: vec![attempt], sources: Vec::new() });
    }
    let mut packed = PackFile { attempts: Vec::new(), sources: Vec::new() };
    let mut at = 0;
    while at < len {
        let content = at + FRAME_HEAD_BYTES as u64;
        if content > len {
            return Err(PackError::Damaged);
        }
        let head = frames.read(&(at..content))?;
        let length = u64::from(u32::from_le_bytes([head[1], head[2], head[3], head[4]]));
        at = content + length;
        if at > len {
            return Err(PackError::Damaged);
        }
        match head[0] {
            OF_ATTEMPT => packed.attempts.push(PackedAttempt::read(&frames, content..at, room)?),
            OF_SOURCE => {
                room.hold(size_of::<SourceText>() as u64 + length)?;
                packed.sources.push(decode_source(&frames.read(&(content..at))?)?);
            }
            _ => return Err(PackError::Damaged),
        }
    }
    Ok(packed)
}

/// The error for malformed bytes with the right digest.
fn misshapen(fault: &'static str) -> WireError {
    WireError::Shape { what: "pack", fault }
}

/// Iterates over the pieces of an attempt.
struct Pieces<'f> {
    frames: &'f Frames,
    left: Range<u64>,
}

impl Pieces<'_> {
    fn number(&mut self) -> Result<u64, PackError> {
        let end = self.left.end.min(self.left.start + NUMBER_BYTES);
        let bytes = self.frames.read(&(self.left.start..end))?;
        let (number, rest) = decode_first::<u64>("pack", &bytes)?;
        self.left.start = end - rest.len() as u64;
        Ok(number)
    }

    /// Returns the position of bytes that are preceded by their length.
    fn bytes(&mut self) -> Result<Range<u64>, PackError> {
        let len = self.number()?;
        // No valid record or chunk is longer, and it is read into memory.
        if len > PIECE_MOST_BYTES {
            return Err(PackError::Large);
        }
        let start = self.left.start;
        let end = start.checked_add(len).filter(|end| *end <= self.left.end);
        let end = end.ok_or(misshapen("a length leads beyond its end"))?;
        self.left.start = end;
        Ok(start..end)
    }
}

impl PackedAttempt {
    /// Reads and checks an attempt. Its memory is subtracted from `room`.
    pub(super) fn read(frames: &Arc<Frames>, place: Range<u64>, room: &mut PackRoom) -> Result<Self, PackError> {
        let mut pieces = Pieces { frames, left: place };
        let (run, attempt) = (pieces.bytes()?, pieces.bytes()?);
        let run = decode_run_if(&frames.read(&run)?, |containers| room.may_make(containers))?;
        let attempt = decode_attempt_if(&frames.read(&attempt)?, |containers| room.may_make(containers))?;
        room.hold(size_of::<Self>() as u64 + record_memory(&run, &attempt))?;
        if pieces.number()? != attempt.series.len() as u64 {
            return Err(Inconsistency::SeriesCount.into());
        }
        let mut series = Vec::new();
        for summary in &attempt.series {
            let place = pieces.bytes()?;
            let chunk = frames.read(&place)?;
            room.look_at(series_memory(&chunk)?)?;
            if summarize_series(&chunk)? != *summary {
                return Err(Inconsistency::Series(summary.name.clone()).into());
            }
            series.push(place);
        }
        let phases = pieces.bytes()?;
        if !pieces.left.is_empty() {
            return Err(misshapen("bytes follow its end").into());
        }
        let chunk = frames.read(&phases)?;
        let takes = phases_memory(&chunk)?;
        room.look_at(takes)?;
        if takes > MOST_PHASES_BYTES {
            return Err(PackError::Memory);
        }
        check_pieces(&run, &attempt, &attempt.series, &decode_phases(&chunk)?)?;
        let sealed = Sealed { run, attempt, series: Vec::new(), phases: Vec::new() };
        Ok(Self { sealed, frames: Arc::clone(frames), series, phases })
    }

    /// Returns the chunk of a series by its position in the record. The position after the last series is that of the phases.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn chunk(&self, at: usize) -> io::Result<Vec<u8>> {
        self.frames.read(self.series.get(at).unwrap_or(&self.phases)).map_err(io::Error::other)
    }

    /// Loads its series and phases into memory.
    pub(super) fn whole(self) -> Result<Sealed, PackError> {
        let series = self.series.iter().map(|place| Ok(decode_series(&self.frames.read(place)?)?));
        let series = series.collect::<Result<_, PackError>>()?;
        let phases = decode_phases(&self.frames.read(&self.phases)?)?;
        Ok(Sealed { series, phases, ..self.sealed })
    }
}

/// An attempt to be packed: its records, and the lengths of the chunks of its series, in order, and of its phases.
#[derive(Clone, Debug)]
pub struct ToPack {
    /// The run that was executed.
    pub run: Run,
    /// The record of the execution.
    pub attempt: Attempt,
    /// The length of each chunk in bytes.
    pub chunk_lengths: Vec<usize>,
}

/// Returns the next chunk: for each attempt those of its series in order, then that of its phases.
pub type NextChunk<'c> = dyn FnMut() -> io::Result<Vec<u8>> + 'c;

/// Writes a pack of a format from 1 to 3, and returns its length. Format 1 has one attempt and no sources.
///
/// # Errors
/// If it cannot be written, if a chunk is not available, or if it would be too long.
pub fn write_pack<W: Write + Seek>(
    to: W,
    format: u8,
    attempts: &[ToPack],
    sources: &[SourceText],
    next_chunk: &mut NextChunk<'_>,
) -> Result<u64, PackError> {
    let mut to = Hashed { to: BufWriter::new(to), digest: DigestWriter::new(), len: 0 };
    to.to.write_all(&[&PACK_MAGIC[..7], &[format], &[0; 32]].concat()).map_err(PackError::Unwritten)?;
    if format == 3 {
        let mut encoder = zstd::Encoder::new(to, ZSTD_LEVEL).map_err(PackError::Compress)?;
        write_frames(&mut encoder, format, attempts, sources, next_chunk)?;
        to = encoder.finish().map_err(PackError::Unwritten)?;
    } else {
        write_frames(&mut to, format, attempts, sources, next_chunk)?;
    }
    let Hashed { mut to, digest, len } = to;
    // Incompressible content becomes a little longer.
    let len = len + 40;
    if len > PACK_MOST_BYTES {
        return Err(PackError::Long);
    }
    to.seek(SeekFrom::Start(8)).and_then(|_| to.write_all(&digest.finish().0)).map_err(PackError::Unwritten)?;
    to.flush().map_err(PackError::Unwritten)?;
    Ok(len)
}

fn write_frames(
    to: &mut impl Write,
    format: u8,
    attempts: &[ToPack],
    sources: &[SourceText],
    next_chunk: &mut NextChunk<'_>,
) -> Result<(), PackError> {
    let mut written = 0;
    let mut frame = |to: &mut dyn Write, kind: u8, length: u64| {
        written += FRAME_HEAD_BYTES as u64 + length;
        if written > FRAMES_MOST_BYTES {
            return Err(PackError::Long);
        }
        if format < 2 {
            return Ok(());
        }
        let length = u32::try_from(length).map_err(|_| PackError::Large)?;
        to.write_all(&[&[kind], length.to_le_bytes().as_slice()].concat()).map_err(PackError::Unwritten)
    };
    for ToPack { run, attempt, chunk_lengths } in attempts {
        let head = encode("pack", &(encode_run(run)?, encode_attempt(attempt)?))?;
        let number = |number: usize| encode("pack", &(number as u64));
        let count = number(chunk_lengths.len().saturating_sub(1))?;
        let mut length = head.len() + count.len();
        for chunk in chunk_lengths {
            length += number(*chunk)?.len() + chunk;
        }
        if length > FRAME_MOST_BYTES {
            return Err(PackError::Large);
        }
        frame(to, OF_ATTEMPT, length as u64)?;
        to.write_all(&head).and_then(|()| to.write_all(&count)).map_err(PackError::Unwritten)?;
        for length in chunk_lengths {
            let chunk = next_chunk().map_err(PackError::Unread)?;
            if chunk.len() != *length {
                let changed = "a series has another length than before (the ledger was replaced meanwhile: try again)";
                return Err(PackError::Unread(io::Error::other(changed)));
            }
            to.write_all(&number(chunk.len())?).and_then(|()| to.write_all(&chunk)).map_err(PackError::Unwritten)?;
        }
    }
    for source in sources {
        let content = encode_source(source)?;
        frame(to, OF_SOURCE, content.len() as u64)?;
        to.write_all(&content).map_err(PackError::Unwritten)?;
    }
    Ok(())
}

/// A writer that also computes the digest and the length of its output.
struct Hashed<W> {
    to: W,
    digest: DigestWriter,
    len: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.write(&bytes[..written]);
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
