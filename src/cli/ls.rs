//! `ledger ls`

use super::cluster::spool;
use super::context::{Context, say};
use super::failure::{Failure, exit};
use super::living;
use crate::record::Digest;
use crate::report::{self, Line};
use crate::store::StoreError;
use std::collections::BTreeMap;

/// List attempts, newest first, including running ones
///
/// Imported and hidden attempts are marked. A rerun shows the attempt that it repeats, and its verdict.
///
/// Example: ledger ls -n 5
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show at most N attempts
    #[arg(short, value_name = "N", default_value_t = 50)]
    n: usize,

    /// Show all attempts
    #[arg(long)]
    all: bool,

    /// Include hidden attempts
    #[arg(long)]
    hidden: bool,
}

/// Of no more lines the records are read.
const MOST_READ: usize = 1000;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let limit = if args.all { usize::MAX } else { args.n };
    let store = context.store();
    // Before the ledger is read: an attempt that ends meanwhile is in one of the two, or in both.
    let running = living::running(context);
    // Where nothing was sealed yet there is no ledger.
    let found = store.if_there(|reader| {
        let mut tags: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        for (name, target) in reader.tags()? {
            tags.entry(target.digest()).or_default().push(name);
        }
        let mut lines = Vec::new();
        let rows = reader.recent(limit, args.hidden)?;
        let hidden = reader.hidden()?;
        let mut origins = reader.origins(&rows.iter().map(|row| row.attempt).collect())?;
        let is_short = rows.len() <= MOST_READ;
        for row in rows {
            let of = |id: &Digest| tags.get(id).cloned().unwrap_or_default();
            let tags = [of(&row.run.0), of(&row.attempt.0)].concat();
            let origin = origins.remove(&row.attempt).unwrap_or_default();
            let is_tainted = reader.is_tainted(&row)?;
            let is_hidden = hidden.contains(&row.run.0) || hidden.contains(&row.attempt.0);
            let rerun_of = match origin.as_rerun(row.attempt) {
                Some(repeated) => Some(repeated.original),
                // Of one without a verdict only its record tells, which takes too long for a ledger of many.
                None if is_short => reader.readable(row.attempt)?.and_then(|attempt| attempt.rerun_of()),
                None => None,
            };
            lines.push(Line { run: reader.short(row.run.0)?, tags, is_tainted, is_hidden, origin, rerun_of, row });
        }
        let left_out = if args.hidden { 0 } else { reader.hidden_attempts()?.len() as u64 };
        Ok((lines, reader.attempt_count()?, left_out))
    })?;
    let (lines, total, left_out) = match found {
        Some(found) => found,
        None if running.is_empty() => return Err(Failure::from(StoreError::Missing(store.dir().to_owned()))),
        None => (Vec::new(), 0, 0),
    };
    context.answer(
        || report::ls_text(&running, &lines, total, left_out),
        || report::ls_value(&running, &lines, total, left_out),
    )?;
    let folders = spool(context, None).open().unwrap_or_default();
    let waiting: usize = folders.iter().map(|folder| folder.packs().map_or(0, |packs| packs.len())).sum();
    if waiting > 0 {
        say(&format!("note: `ledger collect` imports {} of Slurm tasks", report::count(waiting, "attempt")));
    }
    Ok(exit::YES)
}
