//! `ledger hide`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::host::clock;
use crate::record::{Change, LogEntry};
use crate::report::table_of;

/// Take a run or an attempt out of listings and answers
///
/// It stays in the ledger, can be shown by its id, and comes back with --undo.
///
/// Example: ledger hide latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// Put it back
    #[arg(long)]
    undo: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let target = store.read(|reader| context::resolve(reader, &args.id))??;
    let change = if args.undo { Change::Unhidden(target) } else { Change::Hidden(target) };
    store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    let id = target.digest();
    context.answer(
        || format!("{} is {}\n", id.prefix(8), if args.undo { "shown again" } else { "hidden" }),
        || table_of([("target", id.to_string().into()), ("hidden", (!args.undo).into())]),
    )?;
    Ok(exit::YES)
}
