//! `ledger pack`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::output::say;
use super::packing;
use crate::record::{AttemptId, Digest, SourceText, Target, Value, first_of};
use crate::report::{bytes, count, plain, table_of};
use crate::wire::{ToPack, missing_sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Write runs and everything that belongs to them into one file: records, series, output, manifests, patches,
/// environment
///
/// A run means all its attempts. `ledger unpack` imports the file into another ledger; `ledger replay` checks
/// whether a machine can repeat the run. Secrets with a known form or name were removed when manifests, patches and
/// worker messages were recorded. Inspect a pack before you publish it.
///
/// Example: ledger pack latest -o run.pack
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Runs and attempts: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// The file, which must not exist yet
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let Collected { attempts, sources, reruns } = collect(&args.ids, context)?;
    let length = packing::write(&args.output, 3, (&attempts, &sources), context)?;
    let missing = missing_sources(attempts.iter().map(|to_pack| &to_pack.attempt), &sources);
    tell_missing(&missing, "not in the ledger");
    reruns.iter().for_each(|note| say(note));
    let file = args.output.display().to_string();
    context.answer(
        || {
            let (attempts, sources) = (count(attempts.len(), "attempt"), count(sources.len(), "source"));
            format!("{file}: {attempts}, {sources}, {}\n", bytes(length))
        },
        || {
            let ids = attempts.iter().map(|to_pack| to_pack.attempt.id().to_string()).collect::<Vec<_>>();
            table_of([
                ("file", file.as_str().into()),
                ("attempts", ids.into()),
                ("sources", sources.len().into()),
                ("bytes", length.into()),
                ("missing", missing_value(&missing)),
            ])
        },
    )?;
    Ok(exit::YES)
}

/// Reports the texts of the runs that are missing.
pub(super) fn tell_missing(missing: &BTreeSet<(&'static str, Digest)>, why: &str) {
    /// At most this many are named of each kind.
    const NAMED: usize = 3;
    let mut of_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (kind, digest) in missing {
        of_kind.entry(kind).or_default().push(digest.prefix(8));
    }
    for (kind, digests) in of_kind {
        match digests.as_slice() {
            [one] => say(&format!("note: without {kind} {one}: {why}")),
            many => say(&format!("note: without {} ({}): {why}", count(many.len(), kind), first_of(many, NAMED))),
        }
    }
}

fn missing_value(missing: &BTreeSet<(&'static str, Digest)>) -> Value {
    let item = |(kind, digest): &(&'static str, Digest)| {
        Value::Table(table_of([("kind", (*kind).into()), ("digest", digest.to_string().into())]))
    };
    Value::List(missing.iter().map(item).collect())
}

/// The content of a pack, and a note for each rerun in it, because a pack does not contain verdicts.
struct Collected {
    attempts: Vec<ToPack>,
    sources: Vec<SourceText>,
    reruns: Vec<String>,
}

/// Collects what the ids name. The ledger is closed between two attempts, because the points of each are read
/// meanwhile.
fn collect(ids: &[String], context: &Context) -> Result<Collected, Failure> {
    let store = context.store();
    // The value is true for attempts of a named run: these are skipped if they cannot be read.
    let mut chosen: BTreeMap<AttemptId, bool> = BTreeMap::new();
    for text in ids {
        store.read(|reader| {
            match context::resolve(reader, text)? {
                Err(failure) => return Ok(Err(failure)),
                Ok(Target::Attempt(id)) => drop(chosen.insert(id, false)),
                Ok(Target::Run(run)) => {
                    for (id, _) in reader.attempts_of(run)? {
                        chosen.entry(id).or_insert(true);
                    }
                }
            }
            Ok(Ok(()))
        })??;
    }
    let mut attempts: BTreeMap<AttemptId, ToPack> = BTreeMap::new();
    let mut sources: BTreeMap<_, SourceText> = BTreeMap::new();
    for (id, is_of_run) in chosen {
        store.read(|reader| {
            let found = if is_of_run { reader.readable_to_pack(id)? } else { reader.to_pack(id)? };
            let Some(to_pack) = found else { return Ok(()) };
            let attempt = &to_pack.attempt;
            for (_, digest) in SourceText::belonging_to(&attempt.settings, &attempt.facts) {
                let source = reader.source(digest, &attempt.facts)?;
                sources.extend(source.map(|source| (source.key(), source)));
            }
            attempts.insert(id, to_pack);
            Ok(())
        })?;
    }
    if attempts.is_empty() {
        let text = "no attempt of these runs can be read (`ledger verify` names all that is damaged)";
        return Err(Failure::new(exit::LEDGER, text));
    }
    let ids = attempts.keys().copied().collect();
    let origins = store.read(|reader| reader.origins(&ids))?;
    let note = |(id, to_pack): (&AttemptId, &ToPack)| {
        let of = to_pack.attempt.rerun_of()?;
        let verdict = origins.get(id).and_then(|origin| origin.as_rerun(*id));
        let verdict = verdict.map_or("no verdict", |repeated| repeated.verdict.as_str());
        let text = "which the pack does not say";
        Some(format!("note: {} is a rerun of {} ({}), {text}", id.0.prefix(8), of.0.prefix(8), plain(verdict)))
    };
    let reruns = attempts.iter().filter_map(note).collect();
    let (attempts, sources) = (attempts.into_values().collect(), sources.into_values().collect());
    Ok(Collected { attempts, sources, reruns })
}
