//! Compiled and tuned kernels as one portable file.
//!
//! The file is the magic, the BLAKE3 digest of all that follows, and a bincode body: what the kernels depend on, and their files.

use super::v1::{ValueV1, WireError, decode, encode};
use crate::record::{Digest, Table};
use bincode::{Decode, Encode};

const MAGIC: [u8; 8] = *b"ledgerK\x01";

/// A file that cannot be believed.
#[derive(Debug, thiserror::Error)]
pub enum KernelsError {
    /// It does not begin as an export of kernels does.
    #[error("it is not an export of kernels")]
    NoKernels,
    /// It was written by a newer ledger.
    #[error("it has kernel format {0}, but this ledger reads up to 1 (use a newer ledger)")]
    Newer(u8),
    /// Bytes were changed or lost.
    #[error("its content does not match its digest (it is damaged or cut short: fetch it again)")]
    Damaged,
    /// A file would lie elsewhere than it may.
    #[error("its file `{0}` has a name that is refused")]
    Name(String),
    /// The body does not decode.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Kernels and all that they depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    /// Product, driver, CUDA's versions, trainer.
    pub environment: Table,
    /// Name and content of each file.
    pub files: Vec<(String, Vec<u8>)>,
}

#[derive(Encode, Decode)]
struct BodyV1 {
    environment: ValueV1,
    files: Vec<(String, Vec<u8>)>,
}

/// Encodes kernels.
pub fn encode_kernels(kernels: &Kernels) -> Result<Vec<u8>, KernelsError> {
    let body = BodyV1 { environment: ValueV1::table(&kernels.environment), files: kernels.files.clone() };
    let body = encode("kernels", &body)?;
    Ok([MAGIC.as_slice(), Digest::of(&body).0.as_slice(), &body].concat())
}

/// Decodes and checks kernels.
pub fn decode_kernels(bytes: &[u8]) -> Result<Kernels, KernelsError> {
    let (magic, rest) = bytes.split_at_checked(8).ok_or(KernelsError::NoKernels)?;
    if magic[..7] != MAGIC[..7] {
        return Err(KernelsError::NoKernels);
    }
    if magic[7] > MAGIC[7] {
        return Err(KernelsError::Newer(magic[7]));
    }
    let (digest, body) = rest.split_at_checked(32).ok_or(KernelsError::Damaged)?;
    if Digest::of(body).0 != *digest {
        return Err(KernelsError::Damaged);
    }
    let BodyV1 { environment, files } = decode("kernels", body)?;
    let is_plain =
        |name: &str| name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.contains('\0'));
    if let Some((name, _)) = files.iter().find(|(name, _)| !is_plain(name)) {
        return Err(KernelsError::Name(name.clone()));
    }
    Ok(Kernels { environment: environment.into_table()?, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_come_back_and_names_that_lead_elsewhere_do_not() {
        let kernels = |name: &str| Kernels {
            environment: [("driver".to_owned(), "580".into())].into(),
            files: vec![(name.to_owned(), b"ptx".to_vec())],
        };
        let bytes = encode_kernels(&kernels("driver/a/index")).unwrap();
        assert_eq!(decode_kernels(&bytes).unwrap(), kernels("driver/a/index"));
        for name in ["../escaped", "a/../b", "/a", "a/", "", ".lock"] {
            let bytes = encode_kernels(&kernels(name)).unwrap();
            assert!(matches!(decode_kernels(&bytes), Err(KernelsError::Name(_))), "{name}");
        }
        assert!(matches!(decode_kernels(&bytes[..50]), Err(KernelsError::Damaged)));
        assert!(matches!(decode_kernels(b"ledger\0\x01"), Err(KernelsError::NoKernels)));
        assert!(matches!(decode_kernels(b"ledgerK\x02"), Err(KernelsError::Newer(2))));
    }
}
