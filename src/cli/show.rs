//! `ledger show`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::living;
use crate::record::Target;
use crate::report::{self, Described};
use crate::store::{Reader, StoreError};
use std::collections::BTreeMap;

/// Show the full record of a run or of one attempt, also while it runs
///
/// Includes log entries of each attempt: whether it was imported, and the verdicts of reruns in which it is the
/// original or the repetition.
///
/// Example: ledger show latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run (all its attempts) or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(default_value = "latest")]
    id: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let living = living::find(context, &args.id)?;
    let id = match &living {
        Some(living) if args.id == "latest" => living.nonce.to_string(),
        _ => args.id.clone(),
    };
    let running = living.map(|living| living.sealed()).transpose();
    let running = running.map_err(|error| Failure::new(exit::LEDGER, error))?.flatten();
    let found = store.read(|reader| match context::resolve(reader, &id)? {
        Err(failure) => Ok(Err(failure)),
        Ok(target) => Ok(describe(reader, target)?.ok_or_else(|| {
            Failure::new(
                exit::LEDGER,
                format!("`{}` is listed, but its record is missing (run `ledger verify`)", args.id),
            )
        })),
    });
    let described = match (found, running) {
        (Ok(Ok(described)), running) => {
            let running = running.map(|sealed| sealed.attempt).into_iter().collect();
            Described { running, ..described }
        }
        // No attempt of its run is sealed.
        (Ok(Err(_)) | Err(StoreError::Missing(_)), Some(sealed)) => Described {
            run: sealed.run,
            attempts: Vec::new(),
            tags: Vec::new(),
            notes: Vec::new(),
            origins: BTreeMap::new(),
            running: vec![sealed.attempt],
        },
        (found, None) => found??,
        (Err(error), Some(_)) => return Err(error.into()),
    };
    context.answer(|| report::show_text(&described), || report::show_value(&described))?;
    Ok(exit::YES)
}

fn describe(reader: &Reader<'_>, target: Target) -> Result<Option<Described>, StoreError> {
    let (run, ids) = match target {
        Target::Run(run) => (run, reader.attempts_of(run)?.into_iter().map(|(id, _)| id).collect()),
        Target::Attempt(id) => match reader.attempt(id)? {
            Some(attempt) => (attempt.run, vec![id]),
            None => return Ok(None),
        },
    };
    let mut attempts = Vec::new();
    for id in ids {
        if let Some(attempt) = reader.readable(id)? {
            attempts.push((id, reader.short(id.0)?, attempt));
        }
    }
    attempts.sort_by_key(|(id, _, attempt)| (attempt.started_unix_ms, *id));
    let Some(run) = reader.run(run)? else { return Ok(None) };
    let digests: Vec<_> = attempts.iter().map(|(id, _, _)| id.0).chain([run.id.0]).collect();
    let tags = reader.tags()?.into_iter().filter(|(_, target)| digests.contains(&target.digest()));
    let tags = tags.map(|(name, _)| name).collect();
    let mut notes = Vec::new();
    for digest in digests {
        notes.extend(reader.notes(digest)?);
    }
    let origins = reader.origins(&attempts.iter().map(|(id, ..)| *id).collect())?;
    Ok(Some(Described { run, attempts, tags, notes, origins, running: Vec::new() }))
}
