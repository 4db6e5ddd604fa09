//! `ledger why`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::analysis;
use crate::record::Run;
use crate::report;
use crate::store::{Reader, StoreError};

/// Say why two runs have different ids
///
/// Only the identity is compared: part by part, then field by field. Exit code 1 if they are different runs.
///
/// Example: ledger why latest~1 latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    a: String,

    /// Another one
    b: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (a, b) = context.store().read(|reader| Ok((find(reader, &args.a)?, find(reader, &args.b)?)))?;
    let parts = analysis::why(&a?, &b?);
    context.answer(|| report::why_text(&parts, &args.a, &args.b), || report::why_value(&parts))?;
    Ok(if parts.is_empty() { exit::YES } else { exit::NO })
}

fn find(reader: &Reader<'_>, text: &str) -> Result<Result<Run, Failure>, StoreError> {
    let id = match context::resolve_run(reader, text)? {
        Ok(id) => id,
        Err(failure) => return Ok(Err(failure)),
    };
    Ok(reader.run(id)?.ok_or_else(|| Failure::new(exit::LEDGER, format!("run {id} is missing (run `ledger verify`)"))))
}
