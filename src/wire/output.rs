//! The stored output of a worker, format 1: magic, then zlib over bincode of its pieces.

use super::v1::{WireError, decode, encode};
use bincode::{Decode, Encode};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use ledger_record::{Piece, Stream};
use std::io::{Read, Write};

const MAGIC: [u8; 8] = *b"ledgerO\x01";
/// The largest decompressed size of an output.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Encode, Decode)]
enum PieceV1 {
    Stdout(String),
    Stderr(String),
    LeftOut(u64),
}

fn fault(fault: &'static str) -> WireError {
    WireError::Shape { what: "output", fault }
}

/// Encodes an output.
pub fn encode_output(pieces: &[Piece]) -> Result<Vec<u8>, WireError> {
    let piece = |piece: &Piece| match piece {
        Piece::Text(Stream::Stdout, text) => PieceV1::Stdout(text.clone()),
        Piece::Text(Stream::Stderr, text) => PieceV1::Stderr(text.clone()),
        Piece::LeftOut(bytes) => PieceV1::LeftOut(*bytes),
    };
    let body = encode("output", &pieces.iter().map(piece).collect::<Vec<_>>())?;
    let mut packer = ZlibEncoder::new(MAGIC.to_vec(), Compression::default());
    packer.write_all(&body).and_then(|()| packer.finish()).map_err(|_| fault("it cannot be compressed"))
}

/// Decodes an output.
pub fn decode_output(bytes: &[u8]) -> Result<Vec<Piece>, WireError> {
    let packed = bytes.strip_prefix(&MAGIC).ok_or(fault("it does not begin as an output of format 1"))?;
    let mut body = Vec::new();
    ZlibDecoder::new(packed)
        .take(MOST_BYTES + 1)
        .read_to_end(&mut body)
        .map_err(|_| fault("its compressed data are damaged"))?;
    if u64::try_from(body.len()).is_ok_and(|length| length > MOST_BYTES) {
        return Err(fault("it unpacks to more than 64 MiB"));
    }
    let pieces: Vec<PieceV1> = decode("output", &body)?;
    let piece = |piece| match piece {
        PieceV1::Stdout(text) => Piece::Text(Stream::Stdout, text),
        PieceV1::Stderr(text) => Piece::Text(Stream::Stderr, text),
        PieceV1::LeftOut(bytes) => Piece::LeftOut(bytes),
    };
    Ok(pieces.into_iter().map(piece).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_output_comes_back_and_a_damaged_one_is_refused() {
        let pieces = [
            Piece::Text(Stream::Stdout, "epoch 1\n".repeat(1000)),
            Piece::LeftOut(u64::MAX),
            Piece::Text(Stream::Stderr, "no memory\n".to_owned()),
        ];
        let bytes = encode_output(&pieces).unwrap();
        assert!(bytes.len() < 200, "{}", bytes.len());
        assert_eq!(decode_output(&bytes).unwrap(), pieces);
        for cut in 0..bytes.len() - 4 {
            assert!(decode_output(&bytes[..cut]).is_err(), "{cut}");
        }
        let mut newer = bytes.clone();
        newer[7] = 2;
        assert!(decode_output(&newer).unwrap_err().to_string().contains("format 1"));
    }

    #[test]
    fn an_output_that_unpacks_without_end_is_refused() {
        let mut packer = ZlibEncoder::new(MAGIC.to_vec(), Compression::best());
        let zeros = vec![0; 1 << 20];
        (0..=64).for_each(|_| packer.write_all(&zeros).unwrap());
        let refused = decode_output(&packer.finish().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("more than 64 MiB"), "{refused}");
    }

    proptest! {
        #[test]
        fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_output(&[MAGIC.as_slice(), &bytes].concat());
        }
    }
}
