//! What a run was made from, kept beside its record: the manifest's text, a patch.

use super::Digest;

/// A text that attempts refer to by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The digest of the text as it was, by which records name it.
    pub original: Digest,
    /// Whether secrets were taken out of it before it was kept.
    pub is_redacted: bool,
    /// What is kept.
    pub kept: Vec<u8>,
}

impl SourceText {
    /// Larger ones are not kept.
    pub const MOST_BYTES: usize = 4 << 20;

    /// The digests by which an attempt names what it was made from, with what each is.
    pub fn named_by(settings: &super::Table, facts: &super::Table) -> Vec<(&'static str, Digest)> {
        let digest = |table: &super::Table, name: &str| table.get(name).and_then(super::Value::as_str)?.parse().ok();
        let manifest = digest(settings, "manifest.digest").map(|digest| ("manifest", digest));
        let patch = digest(facts, "git.patch").map(|digest| ("patch", digest));
        manifest.into_iter().chain(patch).collect()
    }
}
