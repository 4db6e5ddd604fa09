//! The provenance of runs: the manifest's text and the state of its repository, without secrets.

use super::failure::{Failure, exit};
use super::output::say;
use crate::engine::{Bound, Launch};
use crate::host::{git, secrets};
use crate::manifest::Manifest;
use crate::record::{Digest, SourceText, Table, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The fact that gives the reason why a patch is named but not stored.
const PATCH_KEPT: &str = "git.patch_kept";

/// The recorded and stored provenance of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Provenance {
    /// The facts of Git, and those of secrets removed from the sources.
    pub(super) facts: Table,
    /// The source texts of the runs, without secrets.
    pub(super) sources: Vec<SourceText>,
}

impl Provenance {
    /// Returns the provenance of each manifest, given the path that it was read from. Each repository is read once.
    pub(super) fn of_all(manifests: &[(&Path, &Manifest)]) -> Vec<Self> {
        let mut repositories: BTreeMap<PathBuf, Self> = BTreeMap::new();
        let mut found = Vec::new();
        for (path, manifest) in manifests {
            let directory = directory(manifest);
            let repository = repositories.entry(directory).or_insert_with_key(|path| Self::of_folder(path)).clone();
            found.push(repository.with(path, manifest));
        }
        found
    }

    /// Returns the provenance of a manifest, given the path that it was read from.
    pub(super) fn of(path: &Path, manifest: &Manifest) -> Self {
        Self::of_folder(&directory(manifest)).with(path, manifest)
    }

    /// Returns the state of the repository that contains a folder, and its uncommitted changes.
    pub(super) fn of_folder(directory: &Path) -> Self {
        let mut found = Self { facts: git::facts(directory), sources: Vec::new() };
        let digest = found.facts.get("git.patch").and_then(Value::as_str).and_then(|digest| digest.parse().ok());
        let Some(digest) = digest else { return found };
        match git::patch(directory, digest, SourceText::MOST_BYTES).map(|patch| kept(digest, &patch)) {
            Ok(Some(patch)) => found.sources.push(patch),
            Ok(None) => found.lacks_patch(directory, &git::PatchError::Long(SourceText::MOST_BYTES)),
            Err(why) => found.lacks_patch(directory, &why),
        }
        found.facts.extend(SourceText::redacted(&found.sources));
        found
    }

    /// Returns the provenance of a rerun, from the facts that an attempt recorded.
    pub(super) fn of_record(recorded: &Table, bound: &Bound) -> Self {
        let mut found = match &bound.launch {
            Launch::Program { directory, .. } => Self::of_folder(directory),
            // The trainer reads no repository, so the recorded state is kept.
            Launch::Trainer | Launch::Attached(_) => {
                let git = recorded.iter().filter(|(name, _)| name.starts_with("git."));
                let facts = git.map(|(name, value)| (name.clone(), value.clone())).collect();
                Self { facts, sources: Vec::new() }
            }
        };
        // The ledger stores the manifest's text without its secrets.
        if let Some(redacted) = recorded.get(SourceText::REDACTED).and_then(Value::as_table) {
            let own = found.facts.get(SourceText::REDACTED).and_then(Value::as_table).cloned().unwrap_or_default();
            let all: Table = redacted.clone().into_iter().chain(own).collect();
            found.facts.insert(SourceText::REDACTED.to_owned(), all.into());
        }
        found
    }

    fn lacks_patch(&mut self, directory: &Path, why: &git::PatchError) {
        let text = "the patch of uncommitted changes is not kept";
        say(&format!("warning: `{}`: {text}: {why} (commit the files that belong to the run)", directory.display()));
        self.facts.insert(PATCH_KEPT.to_owned(), format!("no: {why}").into());
    }

    fn with(mut self, path: &Path, manifest: &Manifest) -> Self {
        // A file that was changed since it was read is another manifest.
        let content = std::fs::read(path).ok().filter(|content| Digest::of(content) == manifest.source);
        match content.and_then(|content| kept(manifest.source, &content)) {
            Some(text) => self.sources.push(text),
            None => say(&format!(
                "warning: the text of `{}` is not kept: it was changed since it was read, or has more than {} MiB",
                path.display(),
                SourceText::MOST_BYTES >> 20
            )),
        }
        self.facts.extend(SourceText::redacted(&self.sources));
        self
    }
}

/// Returns the stored form of a text. Returns `None` if it is too long.
pub(super) fn kept(original: Digest, text: &[u8]) -> Option<SourceText> {
    let (kept, is_redacted) = secrets::redact(text);
    (kept.len() <= SourceText::MOST_BYTES).then_some(SourceText { original, is_redacted, kept })
}

/// Returns the folder to which a manifest's paths are relative.
pub(super) fn directory(manifest: &Manifest) -> PathBuf {
    if manifest.directory.as_os_str().is_empty() { PathBuf::from(".") } else { manifest.directory.clone() }
}

/// Refuses a manifest whose records would contain a secret, because a run's identity can never be redacted later.
///
/// A name alone gives only a warning: a `token` may be a word of a vocabulary.
pub(super) fn refuse_secrets(path: &Path, manifest: &Manifest) -> Result<(), Failure> {
    let mut doubtful = BTreeSet::new();
    let fields = manifest.cells.iter().flat_map(|cell| cell.config.iter().chain(&cell.settings));
    for (field, value) in fields {
        if secrets::cleaned(value, &secrets::without_known) != *value {
            return Err(secret(path, &format!("`{field}`")));
        }
        let is_named = field.starts_with("params.") && secrets::is_named_secret(field);
        if value.as_str().is_some_and(|text| is_named || secrets::redacted(text) != text) {
            doubtful.insert(field.as_str());
        }
    }
    for command in manifest.program.iter().map(|program| &program.command) {
        if secrets::has_known(&command.join(" ")) {
            return Err(secret(path, "`program.command`"));
        }
        if secrets::has_secret_words(command) {
            doubtful.insert("program.command");
        }
    }
    for field in doubtful {
        let text = "is recorded as it is (if it is a secret, let the program read it from an environment variable)";
        say(&format!("warning: `{}`: `{field}` {text}", path.display()));
    }
    Ok(())
}

fn secret(path: &Path, field: &str) -> Failure {
    let text = "holds a token, a private key or a password, which each record would keep for ever (remove it; a program can read it from an environment variable)";
    Failure::new(exit::USAGE, format!("`{}`: {field} {text}", path.display()))
}
