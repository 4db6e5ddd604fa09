//! `ledger verify`

use super::context::Context;
use super::failure::{Failure, exit};
use crate::record::Value;
use crate::report::{Count, table_of};

/// Recompute every id, digest and index of the ledger, and the chain of its log
///
/// Names the owner of the first wrong byte. Exit code 1 if anything is wrong.
///
/// Example: ledger verify --deep
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Recompute the checksum of every page of the file too: bytes that no record and no index is made of
    #[arg(long)]
    deep: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let count = Count::new("attempts");
    let found = store.verify(args.deep, &mut |done, total| count.set(done, total));
    count.finish();
    let found = found?;
    let sound = found.faults.is_empty();
    context.answer(
        || {
            let mut text = String::new();
            for fault in &found.faults {
                text.push_str(&format!("{}: {}\n", fault.owner, fault.fault));
            }
            found.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
            text.push_str(&format!(
                "{}: {} runs, {} attempts, {} chunks, {} log entries, {} index entries{}\n",
                if sound { "sound" } else { "DAMAGED" },
                found.runs,
                found.attempts,
                found.chunks,
                found.log_entries,
                found.index_entries,
                if found.pages { ", every page" } else { "" }
            ));
            text
        },
        || {
            let faults = found.faults.iter().map(|fault| {
                let pairs = [("owner", fault.owner.as_str().into()), ("fault", fault.fault.as_str().into())];
                Value::Table(table_of(pairs))
            });
            table_of([
                ("sound", sound.into()),
                ("runs", found.runs.into()),
                ("attempts", found.attempts.into()),
                ("chunks", found.chunks.into()),
                ("sources", found.sources.into()),
                ("log_entries", found.log_entries.into()),
                ("index_entries", found.index_entries.into()),
                ("pages", found.pages.into()),
                ("faults", Value::List(faults.collect())),
                ("notes", found.notes.clone().into()),
            ])
        },
    )?;
    Ok(if sound { exit::YES } else { exit::NO })
}
