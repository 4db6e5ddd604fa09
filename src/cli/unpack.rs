//! `ledger unpack`

use super::context::{Context, say, write_new};
use super::failure::Failure;
use super::import::packs::{read_pack, run as import};
use crate::record::SourceText;
use std::path::PathBuf;

/// Take packs into the ledger, after every id and digest in them was recomputed
///
/// An attempt that the ledger holds already stays as it is. Nothing of a pack is executed.
///
/// Example: ledger unpack run.pack --sources .
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files that `ledger pack` or `ledger export` wrote
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write manifests and patches into this folder too, as `manifest-DIGEST.toml` and `patch-DIGEST.diff`; none of them may exist yet
    #[arg(long, value_name = "DIR")]
    sources: Option<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let code = import(&args.files, context)?;
    let Some(dir) = &args.sources else { return Ok(code) };
    for path in &args.files {
        let packed = read_pack(path)?;
        for source in &packed.sources {
            let named = packed.attempts.iter().find_map(|sealed| {
                let named = SourceText::named_by(&sealed.attempt.settings, &sealed.attempt.facts);
                named.into_iter().find(|(_, digest)| *digest == source.original)
            });
            // The name is made here: nothing in a pack is a path.
            let kind = named.map_or("source", |(kind, _)| kind);
            let ending = if kind == "manifest" { "toml" } else { "diff" };
            let path = dir.join(format!("{kind}-{}.{ending}", source.original.prefix(8)));
            write_new(&path, &source.kept)?;
            let note = if source.is_redacted { " (secrets were taken out)" } else { "" };
            say(&format!("{}{note}", path.display()));
        }
    }
    Ok(code)
}
