//! `ledger note`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::host::clock;
use crate::record::{Change, LogEntry};
use crate::report::table_of;

/// Add a note to a run or an attempt
///
/// Notes are entries of the log: they can be added, but not changed.
///
/// Example: ledger note latest 'fan was noisy'
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// The note
    text: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.text.trim().is_empty() {
        return Err(Failure::new(exit::USAGE, "the note is empty (write a text)"));
    }
    let store = context.store();
    let target = store.read(|reader| context::resolve(reader, &args.id))??;
    let change = Change::Noted { target, text: args.text.clone() };
    store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    context.answer(
        || format!("noted on {}\n", target.digest().prefix(8)),
        || table_of([("target", target.digest().to_string().into()), ("note", args.text.as_str().into())]),
    )?;
    Ok(exit::YES)
}
