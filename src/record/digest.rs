//! 256-bit BLAKE3 digests and their prefixes.

use std::fmt;
use std::str::FromStr;

/// A BLAKE3 digest (32 bytes), shown as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

/// The text is not 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest (it has 64 hex digits)")]
pub struct DigestParseError {
    text: String,
}

impl Digest {
    /// Hashes the bytes as they are. For anything structured use [`Value::digest`](super::Value::digest).
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Hashes a domain label and then each piece, preceded by its length, so that no two lists of pieces collide.
    pub fn of_pieces(domain: &str, pieces: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(domain.as_bytes());
        for piece in pieces {
            hasher.update(&length(piece.len()));
            hasher.update(piece);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The 64 hex digits.
    pub fn to_hex(self) -> String {
        let mut hex = String::with_capacity(64);
        for byte in self.0 {
            hex.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            hex.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        hex
    }

    /// The first `digits` hex digits.
    pub fn prefix(self, digits: usize) -> String {
        let mut hex = self.to_hex();
        hex.truncate(digits);
        hex
    }
}

/// Hashes bytes incrementally. The division into pieces does not matter.
#[derive(Clone, Debug, Default)]
pub struct DigestWriter(blake3::Hasher);

impl DigestWriter {
    /// Creates a writer without bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes, equal to [`Digest::of`] of the whole.
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

pub(super) fn length(len: usize) -> [u8; 8] {
    u64::try_from(len).unwrap_or(u64::MAX).to_le_bytes()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.prefix(12))
    }
}

impl FromStr for Digest {
    type Err = DigestParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || DigestParseError { text: text.chars().take(80).collect() };
        let digits: Vec<u8> = text
            .chars()
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect::<Option<_>>()
            .ok_or_else(fault)?;
        if digits.len() != 64 {
            return Err(fault());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Self(bytes))
    }
}

/// Defines a newtype over [`Digest`] with the same display, parsing and order.
macro_rules! digest_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub $crate::Digest);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::DigestParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}
pub(crate) use digest_id;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips() {
        let digest = Digest::of(b"ledger");
        assert_eq!(digest.to_hex().parse::<Digest>(), Ok(digest));
        assert!("12".parse::<Digest>().is_err());
        assert!("é".repeat(64).parse::<Digest>().is_err());
    }

    #[test]
    fn a_writer_agrees_with_the_whole() {
        let mut writer = DigestWriter::new();
        assert_eq!(writer.finish(), Digest::of(b""));
        writer.write(b"led");
        writer.write(b"");
        writer.write(b"ger");
        assert_eq!(writer.finish(), Digest::of(b"ledger"));
    }

    #[test]
    fn pieces_do_not_run_into_each_other() {
        assert_ne!(Digest::of_pieces("d", &[b"ab", b"c"]), Digest::of_pieces("d", &[b"a", b"bc"]));
        assert_ne!(Digest::of_pieces("d", &[b"ab"]), Digest::of_pieces("d", &[b"ab", b""]));
    }
}
