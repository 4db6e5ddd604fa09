//! Source texts of runs, format 1: the stored text, and the digest of the original.

use super::v1::{WireError, decode, encode};
use bincode::{Decode, Encode};
use ledger_record::{Digest, SourceText};

#[derive(Encode, Decode)]
struct SourceV1 {
    original: [u8; 32],
    /// The digest of the stored text, equal to `original` unless something was removed.
    digest: [u8; 32],
    kept: Vec<u8>,
}

/// Encodes a source.
pub fn encode_source(source: &SourceText) -> Result<Vec<u8>, WireError> {
    let digest = Digest::of(&source.kept).0;
    encode("source", &SourceV1 { original: source.original.0, digest, kept: source.kept.clone() })
}

/// Decodes a source and recomputes its digest.
pub fn decode_source(bytes: &[u8]) -> Result<SourceText, WireError> {
    let wire: SourceV1 = decode("source", bytes)?;
    if Digest::of(&wire.kept).0 != wire.digest {
        return Err(WireError::Shape { what: "source", fault: "it does not match its digest" });
    }
    if wire.kept.len() > SourceText::MOST_BYTES {
        return Err(WireError::Shape { what: "source", fault: "it is larger than any source" });
    }
    Ok(SourceText { original: Digest(wire.original), is_redacted: wire.original != wire.digest, kept: wire.kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_comes_back_and_another_one_is_refused() {
        let kept = b"name = \"toy\"".to_vec();
        let whole = SourceText { original: Digest::of(&kept), is_redacted: false, kept: kept.clone() };
        let redacted = SourceText { original: Digest::of(b"secret"), is_redacted: true, kept };
        for source in [whole, redacted] {
            let bytes = encode_source(&source).unwrap();
            assert_eq!(decode_source(&bytes).unwrap(), source);
            let mut other = bytes.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(decode_source(&other).is_err());
        }
    }
}
