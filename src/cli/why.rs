//! `ledger why`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::sources::{self, Texts};
use crate::analysis::{self, count_lines};
use crate::record::{Part, Run, SourceText};
use crate::report;
use crate::store::{Reader, StoreError};

/// Show why two runs have different ids
///
/// Compares only the identity: part by part, then field by field. Exit code 1 if the runs differ.
///
/// Example: ledger why latest~1 latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    a: String,

    /// The other run or attempt
    b: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (a, b) = context.store().read(|reader| Ok((find(reader, &args.a)?, find(reader, &args.b)?)))?;
    let (a, b) = (a?, b?);
    let mut parts = analysis::why(&a, &b);
    let of = |run: &Run| context.store().read(|reader| texts(reader, run));
    if parts.iter().any(|part| part.part == Part::Program) {
        let (of_a, of_b) = (of(&a)?, of(&b)?);
        count_lines(&mut parts, &|_, digest| of_a.get(&digest).cloned(), &|_, digest| of_b.get(&digest).cloned());
    }
    context.answer(|| report::why_text(&parts, &args.a, &args.b), || report::why_value(&parts))?;
    Ok(if parts.is_empty() { exit::YES } else { exit::NO })
}

/// Returns the texts of the program's files of a run, as its attempts name them.
pub(super) fn texts(reader: &Reader<'_>, run: &Run) -> Result<Texts, StoreError> {
    for (id, _) in reader.attempts_of(run.id)? {
        if let Some(attempt) = reader.readable(id)?.filter(|attempt| attempt.facts.contains_key(SourceText::PROGRAM)) {
            return sources::of_ledger(reader, &attempt.facts);
        }
    }
    Ok(Texts::new())
}

fn find(reader: &Reader<'_>, text: &str) -> Result<Result<Run, Failure>, StoreError> {
    let id = match context::resolve_run(reader, text)? {
        Ok(id) => id,
        Err(failure) => return Ok(Err(failure)),
    };
    Ok(reader.run(id)?.ok_or_else(|| Failure::new(exit::LEDGER, format!("run {id} is missing (run `ledger verify`)"))))
}
