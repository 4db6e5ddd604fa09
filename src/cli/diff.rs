//! `ledger diff`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::analysis;
use crate::report;

/// Compare two attempts: identity, surroundings, metrics, curves
///
/// Of a run, its newest finished attempt is taken. Exit code 1 if anything differs.
///
/// Example: ledger diff latest~1 latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    a: String,

    /// Another one
    b: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (a, b) = context
        .store()
        .read(|reader| Ok((context::resolve_attempt(reader, &args.a)?, context::resolve_attempt(reader, &args.b)?)))?;
    let ((_, a), (_, b)) = (a?, b?);
    let difference = analysis::diff(&a, &b);
    context.answer(|| report::diff_text(&difference, &args.a, &args.b), || report::diff_value(&difference))?;
    Ok(if difference.is_empty() { exit::YES } else { exit::NO })
}
