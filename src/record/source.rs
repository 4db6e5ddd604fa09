//! Texts that are kept beside records: what runs were made from (manifest, patch), and what workers wrote (output).

use super::{Digest, OutputFacts, Table, Value};

/// A text that attempts refer to by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The digest of the text as it was, by which records name it.
    pub original: Digest,
    /// Whether secrets were removed from it before it was kept.
    pub is_redacted: bool,
    /// What is kept.
    pub kept: Vec<u8>,
}

impl SourceText {
    /// Larger ones are not kept.
    pub const MOST_BYTES: usize = 4 << 20;

    /// The fact that says for each original that holds secrets what is kept in its place: by the original's digest, the digest of what is kept.
    pub const REDACTED: &str = "sources.redacted";

    /// The fact that names the program's files whose texts are kept: by the file's name in the identity, the digest of its text.
    pub const PROGRAM: &str = "program.sources";

    /// What it is kept by: its digest if it is whole, else a digest of both. So no text can take the place of another one.
    pub fn key(&self) -> Digest {
        Self::key_of(self.original, Digest::of(&self.kept))
    }

    fn key_of(original: Digest, kept: Digest) -> Digest {
        if original == kept { original } else { Digest::of(&[original.0, kept.0].concat()) }
    }

    /// What attempts that are made from these have to record of them; none if no secrets were removed.
    pub fn redacted(sources: &[Self]) -> Option<(String, Value)> {
        let of = |source: &Self| (source.original.to_string(), Digest::of(&source.kept).to_string().into());
        let table: Table = sources.iter().filter(|source| source.is_redacted).map(of).collect();
        (!table.is_empty()).then(|| (Self::REDACTED.to_owned(), table.into()))
    }

    fn redacted_as(original: Digest, facts: &Table) -> Option<Digest> {
        facts.get(Self::REDACTED)?.as_table()?.get(&original.to_string())?.as_str()?.parse().ok()
    }

    /// What a text may be kept by of which an attempt with these facts was made: whole, else as the attempt says.
    pub fn keys(original: Digest, facts: &Table) -> impl Iterator<Item = Digest> {
        let redacted = Self::redacted_as(original, facts).map(|kept| Self::key_of(original, kept));
        std::iter::once(original).chain(redacted)
    }

    /// What this text is to an attempt that names it: `manifest`, `patch` or `output`.
    pub fn kind(&self, settings: &Table, facts: &Table) -> Option<&'static str> {
        let (kind, _) = Self::belonging_to(settings, facts).into_iter().find(|(_, digest)| *digest == self.original)?;
        Self::keys(self.original, facts).any(|key| key == self.key()).then_some(kind)
    }

    /// The digests of all texts that an attempt names: those that it was made from, and the worker's output.
    pub fn belonging_to(settings: &Table, facts: &Table) -> Vec<(&'static str, Digest)> {
        let mut all = Self::named_by(settings, facts);
        all.extend(OutputFacts::digest_in(facts).map(|digest| (Self::OUTPUT, digest)));
        all
    }

    /// The [kind](Self::kind) of what a worker wrote.
    pub const OUTPUT: &str = "output";

    /// The digests by which an attempt names what it was made from, with what each is.
    pub fn named_by(settings: &Table, facts: &Table) -> Vec<(&'static str, Digest)> {
        let digest = |table: &Table, name: &str| table.get(name).and_then(Value::as_str)?.parse().ok();
        let manifest = digest(settings, "manifest.digest").map(|digest| ("manifest", digest));
        let patch = digest(facts, "git.patch").map(|digest| ("patch", digest));
        let files = Self::of_program(facts).into_iter().map(|(_, digest)| ("file", digest));
        manifest.into_iter().chain(patch).chain(files).collect()
    }

    /// The files of an attempt's program whose texts are kept, by their names in the identity.
    pub fn of_program(facts: &Table) -> Vec<(&str, Digest)> {
        let files = facts.get(Self::PROGRAM).and_then(Value::as_table).into_iter().flatten();
        files.filter_map(|(name, digest)| Some((name.as_str(), digest.as_str()?.parse().ok()?))).collect()
    }
}
