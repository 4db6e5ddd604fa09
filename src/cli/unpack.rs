//! `ledger unpack`

use super::context::{Context, write_new};
use super::failure::{Failure, exit};
use super::import::packs::{read_packs, take_in};
use super::output::say;
use super::pack::tell_missing;
use super::replay::in_short;
use super::rerun::tell_packed_rerun;
use crate::record::{Digest, SourceText, first_of};
use crate::report::count;
use crate::wire::{PackFile, missing_sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Import packs into the ledger, after recomputing every id and digest in them
///
/// Attempts that the ledger already holds stay unchanged. Nothing of a pack is executed, and no data are read from
/// recorded paths. stderr says whether this machine can repeat the runs; `ledger replay` gives details.
///
/// Example: ledger unpack run.pack --sources .
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files that `ledger pack` or `ledger export` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Also write manifests, patches and program files into this folder, as `manifest-DIGEST.toml`,
    /// `patch-DIGEST.diff` and `file-DIGEST.txt`; none of them may exist yet
    #[arg(long, value_name = "DIR")]
    sources: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let packs = read_packs(&args.files)?;
    let targets = args.sources.as_ref().map_or_else(BTreeMap::new, |dir| targets(dir, &packs));
    // This detects unwritable targets before anything is imported.
    if let Some(path) = targets.keys().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::new(exit::USAGE, format!("cannot write `{}`: it exists already", path.display())));
    }
    if let Some(dir) = args.sources.as_ref().filter(|dir| !dir.is_dir()) {
        let text = format!("--sources: `{}` is not a folder (create it first)", dir.display());
        return Err(Failure::new(exit::USAGE, text));
    }
    let code = take_in(&packs, context)?;
    for (path, packed) in &packs {
        let attempts = packed.attempts.iter().map(|one| &one.sealed.attempt);
        tell_missing(&missing_sources(attempts, &packed.sources), &format!("not in `{}`", path.display()));
        packed.attempts.iter().for_each(|one| tell_packed_rerun(&one.sealed.attempt));
        tell_target(packed);
    }
    for (path, source) in &targets {
        write_new(path, &source.kept)?;
        let note = if source.is_redacted { " (secrets were removed)" } else { "" };
        say(&format!("{}{note}", path.display()));
    }
    Ok(code)
}

/// The largest number of runs that are checked against this machine.
const MOST_TOLD: usize = 10;
/// The largest number of listed runs with the same result.
const MOST_NAMED: usize = 3;

/// Reports what this machine would make of the runs of a pack. It executes nothing and reads no data.
fn tell_target(packed: &PackFile) {
    let mut seen = BTreeSet::new();
    let mut runs = packed.attempts.iter().map(|one| &one.sealed).filter(|sealed| seen.insert(sealed.run.id));
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for sealed in runs.by_ref().take(MOST_TOLD) {
        let (id, text) = (sealed.run.id.0.prefix(8), in_short(sealed, packed));
        match told.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ids)) => ids.push(id),
            None => told.push((text, vec![id])),
        }
    }
    for (text, ids) in told {
        let which = if ids.len() == 1 { "run" } else { "each of the runs" };
        say(&format!("note: {which} {} {text}", first_of(ids, MOST_NAMED)));
    }
    let rest = runs.count();
    if rest > 0 {
        say(&format!("note: {} more (`ledger replay FILE ID` checks one)", count(rest, "run")));
    }
}

/// Returns the files to write, each text once across all packs.
fn targets<'a>(dir: &Path, packs: &'a [(&Path, PackFile)]) -> BTreeMap<PathBuf, &'a SourceText> {
    let mut targets: BTreeMap<PathBuf, &SourceText> = BTreeMap::new();
    let all = packs.iter().flat_map(|(_, packed)| packed.named_sources());
    // `ledger logs` shows outputs.
    for (kind, source) in all.filter(|(kind, _)| *kind != SourceText::OUTPUT) {
        // The file name is generated: nothing in a pack is used as a path.
        let ending = match kind {
            "manifest" => "toml",
            "patch" => "diff",
            _ => "txt",
        };
        let name = |digest: Digest| dir.join(format!("{kind}-{}.{ending}", digest.prefix(8)));
        let plain = name(source.original);
        // Two packs may contain the same original with different secrets removed.
        let is_other = targets.get(&plain).is_some_and(|known| *known != source);
        targets.insert(if is_other { name(source.key()) } else { plain }, source);
    }
    targets
}
