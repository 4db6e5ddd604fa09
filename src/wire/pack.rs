//! A sealed attempt as one portable file.
//!
//! The file is the magic, the BLAKE3 digest of all that follows, and a bincode body: run, attempt, series chunks, phases chunk.
//! A reader recomputes every id and digest before it believes any of it.

use super::chunk::{ChunkError, decode_phases, decode_series, encode_phases, encode_series};
use super::v1::{WireError, decode, decode_attempt, decode_run, encode, encode_attempt, encode_run};
use crate::record::{Digest, Inconsistency, Sealed};
use bincode::{Decode, Encode};

/// The first eight bytes of a pack; the last of them is the format.
pub const PACK_MAGIC: [u8; 8] = *b"ledger\x00\x01";

/// A pack that cannot be believed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It does not begin as a pack does.
    #[error("it is not a ledger pack")]
    NoPack,
    /// It was written by a newer ledger.
    #[error("it has pack format {0}, but this ledger reads up to 1 (use a newer ledger)")]
    Newer(u8),
    /// Bytes were changed or lost.
    #[error("its content does not match its digest (it is damaged or cut short: fetch it again)")]
    Damaged,
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

#[derive(Encode, Decode)]
struct BodyV1 {
    run: Vec<u8>,
    attempt: Vec<u8>,
    series: Vec<Vec<u8>>,
    phases: Vec<u8>,
}

/// Encodes a sealed attempt as the bytes of a pack.
pub fn encode_pack(sealed: &Sealed) -> Result<Vec<u8>, PackError> {
    let body = BodyV1 {
        run: encode_run(&sealed.run)?,
        attempt: encode_attempt(&sealed.attempt)?,
        series: sealed.series.iter().map(encode_series).collect::<Result<_, _>>()?,
        phases: encode_phases(&sealed.phases)?,
    };
    let body = encode("pack", &body)?;
    Ok([PACK_MAGIC.as_slice(), Digest::of(&body).0.as_slice(), &body].concat())
}

/// Decodes and checks a pack.
pub fn decode_pack(bytes: &[u8]) -> Result<Sealed, PackError> {
    let (magic, rest) = bytes.split_at_checked(8).ok_or(PackError::NoPack)?;
    if magic[..7] != PACK_MAGIC[..7] {
        return Err(PackError::NoPack);
    }
    if magic[7] > PACK_MAGIC[7] {
        return Err(PackError::Newer(magic[7]));
    }
    let (digest, body) = rest.split_at_checked(32).ok_or(PackError::Damaged)?;
    if Digest::of(body).0 != *digest {
        return Err(PackError::Damaged);
    }
    let body: BodyV1 = decode("pack", body)?;
    let sealed = Sealed {
        run: decode_run(&body.run)?,
        attempt: decode_attempt(&body.attempt)?,
        series: body.series.iter().map(|chunk| decode_series(chunk)).collect::<Result<_, _>>()?,
        phases: decode_phases(&body.phases)?,
    };
    sealed.check()?;
    Ok(sealed)
}
