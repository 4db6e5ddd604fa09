//! Compiled and tuned kernels as one portable file.
//!
//! The file has the magic, the BLAKE3 digest of everything after it, a bincode head, and the files' contents one after
//! the other. The head has the environment on which the kernels depend, and the names and lengths of their files.

use super::v1::{ValueV1, WireError, decode_first, encode};
use bincode::{Decode, Encode};
use ledger_record::{Digest, Table};

const MAGIC: [u8; 8] = *b"ledgerK\x01";

/// A file that is not valid.
#[derive(Debug, thiserror::Error)]
pub enum KernelsError {
    /// It does not start like an export of kernels.
    #[error("it is not an export of kernels")]
    NoKernels,
    /// It was written by a newer ledger.
    #[error("it has kernel format {0}, but this ledger reads up to 1 (use a newer ledger)")]
    Newer(u8),
    /// Bytes were changed or lost.
    #[error("its content does not match its digest (it is damaged or cut short: fetch it again)")]
    Damaged,
    /// A file would be written outside of its folder.
    #[error("its file `{0}` has a name that is refused")]
    Name(String),
    /// The body does not decode.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Kernels with the environment on which they depend.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    /// Product name, driver, CUDA versions, trainer.
    pub environment: Table,
    /// Name and content of each file.
    pub files: Vec<(String, Vec<u8>)>,
}

#[derive(Encode, Decode)]
struct HeadV1 {
    environment: ValueV1,
    files: Vec<(String, u64)>,
}

/// Encodes kernels.
pub fn encode_kernels(kernels: &Kernels) -> Result<Vec<u8>, KernelsError> {
    let lengths = kernels.files.iter().map(|(name, content)| (name.clone(), content.len() as u64));
    let head = HeadV1 { environment: ValueV1::table(&kernels.environment), files: lengths.collect() };
    let mut body = encode("kernels", &head)?;
    kernels.files.iter().for_each(|(_, content)| body.extend_from_slice(content));
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
    let (HeadV1 { environment, files: lengths }, mut rest) = decode_first("kernels", body)?;
    let mut files = Vec::new();
    for (name, len) in lengths {
        if !name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && !part.contains('\0')) {
            return Err(KernelsError::Name(name));
        }
        let content = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
        let (content, others) = content.ok_or(KernelsError::Damaged)?;
        rest = others;
        files.push((name, content.to_vec()));
    }
    if rest.is_empty() {
        Ok(Kernels { environment: environment.into_table()?, files })
    } else {
        Err(KernelsError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_come_back_and_names_outside_the_folder_are_refused() {
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
