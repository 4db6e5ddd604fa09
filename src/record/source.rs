//! Texts that are stored next to records: the sources of runs (manifest, patch), and workers' output.

use super::{Digest, OutputFacts, Table, Value};

/// A text that attempts refer to by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The digest of the original text, by which records name it.
    pub original: Digest,
    /// Whether secrets were removed before it was stored.
    pub is_redacted: bool,
    /// The stored text.
    pub kept: Vec<u8>,
}

impl SourceText {
    /// The largest size of a stored text.
    pub const MOST_BYTES: usize = 4 << 20;

    /// The fact with the stored replacement of each original that has secrets: the original's digest, with the digest
    /// of the stored text.
    pub const REDACTED: &str = "sources.redacted";

    /// The fact with the program's files whose texts are stored: the file's name in the identity, with the digest of its text.
    pub const PROGRAM: &str = "program.sources";

    /// The storage key: the text's digest if it is complete, otherwise a digest of both digests. So no text can replace another one.
    pub fn key(&self) -> Digest {
        Self::key_of(self.original, Digest::of(&self.kept))
    }

    fn key_of(original: Digest, kept: Digest) -> Digest {
        if original == kept { original } else { Digest::of(&[original.0, kept.0].concat()) }
    }

    /// The fact that attempts with these sources have to record; `None` if no secrets were removed.
    pub fn redacted(sources: &[Self]) -> Option<(String, Value)> {
        let of = |source: &Self| (source.original.to_string(), Digest::of(&source.kept).to_string().into());
        let table: Table = sources.iter().filter(|source| source.is_redacted).map(of).collect();
        (!table.is_empty()).then(|| (Self::REDACTED.to_owned(), table.into()))
    }

    fn redacted_as(original: Digest, facts: &Table) -> Option<Digest> {
        facts.get(Self::REDACTED)?.as_table()?.get(&original.to_string())?.as_str()?.parse().ok()
    }

    /// The possible storage keys of a text that an attempt with these facts uses: that of the complete text, and that
    /// of the redacted one.
    pub fn keys(original: Digest, facts: &Table) -> impl Iterator<Item = Digest> {
        let redacted = Self::redacted_as(original, facts).map(|kept| Self::key_of(original, kept));
        std::iter::once(original).chain(redacted)
    }

    /// The role of this text in an attempt: `manifest`, `patch` or `output`.
    pub fn kind(&self, settings: &Table, facts: &Table) -> Option<&'static str> {
        let (kind, _) = Self::belonging_to(settings, facts).into_iter().find(|(_, digest)| *digest == self.original)?;
        Self::keys(self.original, facts).any(|key| key == self.key()).then_some(kind)
    }

    /// The digests of all texts that an attempt names: its sources, and the worker's output.
    pub fn belonging_to(settings: &Table, facts: &Table) -> Vec<(&'static str, Digest)> {
        let mut all = Self::named_by(settings, facts);
        all.extend(OutputFacts::digest_in(facts).map(|digest| (Self::OUTPUT, digest)));
        all
    }

    /// The [kind](Self::kind) of a worker's output.
    pub const OUTPUT: &str = "output";

    /// The digests of an attempt's sources, with their kinds.
    pub fn named_by(settings: &Table, facts: &Table) -> Vec<(&'static str, Digest)> {
        let digest = |table: &Table, name: &str| table.get(name).and_then(Value::as_str)?.parse().ok();
        let manifest = digest(settings, "manifest.digest").map(|digest| ("manifest", digest));
        let patch = digest(facts, "git.patch").map(|digest| ("patch", digest));
        let files = Self::of_program(facts).into_iter().map(|(_, digest)| ("file", digest));
        manifest.into_iter().chain(patch).chain(files).collect()
    }

    /// The files of an attempt's program whose texts are stored, by their names in the identity.
    pub fn of_program(facts: &Table) -> Vec<(&str, Digest)> {
        let files = facts.get(Self::PROGRAM).and_then(Value::as_table).into_iter().flatten();
        files.filter_map(|(name, digest)| Some((name.as_str(), digest.as_str()?.parse().ok()?))).collect()
    }
}
