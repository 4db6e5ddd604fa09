//! `ledger hide`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::host::clock;
use crate::record::{Change, Digest, LogEntry};
use crate::report::table_of;
use std::collections::BTreeSet;

/// Take a run or an attempt out of listings and answers
///
/// It stays in the ledger, can be shown by its id, and comes back with --undo and that id: `latest` and `latest~1` mean what
/// is not hidden.
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
    let (target, hidden) =
        store.read(|reader| Ok(context::resolve(reader, &args.id)?.map(|target| (target, reader.hidden()))))??;
    let (hidden, id) = (hidden?, target.digest());
    let is_hidden = hidden.contains(&id);
    if args.undo && !is_hidden {
        return Err(not_hidden(&args.id, id, &hidden));
    }
    if args.undo == is_hidden {
        let change = if args.undo { Change::Unhidden(target) } else { Change::Hidden(target) };
        store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    }
    let state = match (args.undo, is_hidden) {
        (true, _) => "shown again",
        (false, false) => "hidden",
        (false, true) => "hidden already",
    };
    context.answer(
        || format!("{} is {state}\n", id.prefix(8)),
        || table_of([("target", id.to_string().into()), ("hidden", (!args.undo).into())]),
    )?;
    Ok(exit::YES)
}

/// So many of what is hidden are named.
const NAMED: usize = 5;

fn not_hidden(text: &str, id: Digest, hidden: &BTreeSet<Digest>) -> Failure {
    let named: Vec<String> = hidden.iter().take(NAMED).map(|id| id.prefix(8)).collect();
    let more = if hidden.len() > NAMED { format!(" and {} more", hidden.len() - NAMED) } else { String::new() };
    let there = if hidden.is_empty() { "nothing is".to_owned() } else { format!("hidden: {}{more}", named.join(", ")) };
    Failure::new(exit::NO, format!("`{text}`, which is {}, is not hidden ({there})", id.prefix(8)))
}
