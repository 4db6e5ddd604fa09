//! `ledger verify`

use super::attest::beside;
use super::context::{Context, read_file};
use super::failure::{Failure, exit};
use super::output::say;
use crate::interop::attest::{AttestError, Head, Verifier, subject};
use crate::record::{AttemptId, Value};
use crate::report::{Count, count, table_of};
use crate::store::{Fault, Store, StoreError};
use std::path::{Path, PathBuf};

/// Recompute every id, digest and index of the ledger, and the chain of its log
///
/// Uses all processors. Commands that write have priority: the check continues after them and includes their
/// changes.
///
/// Names the owner of the first wrong byte. Exit code 1 if anything is wrong, or differs from the attested state.
///
/// Example: ledger verify --deep
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also recompute the checksum of every page of the file, including bytes outside records and indexes
    #[arg(long)]
    deep: bool,

    /// Check only entries since the last verification without faults; check all if there was none, or if anything
    /// is wrong
    #[arg(long, conflicts_with = "deep")]
    since_last: bool,

    /// A statement of `ledger attest`: also check its signature, and that its content is unchanged
    #[arg(long, value_name = "FILE", requires = "key")]
    attested: Option<PathBuf>,

    /// The public key that must have signed it
    #[arg(long, value_name = "FILE.pub", requires = "attested")]
    key: Option<PathBuf>,
}

/// Makes the next `--since-last` check everything.
fn forget(store: &Store) {
    if let Err(error) = store.forget_verified() {
        say(&format!("warning: the next `--since-last` passes over this damage: {error} (verify without it)"));
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let progress = Count::new("attempts");
    let last = if args.since_last { store.last_verified() } else { None };
    let mut show = |done, total| progress.set(done, total);
    let found = match &last {
        Some(last) => store.verify_since(last, &mut show),
        None => store.verify(args.deep, &mut show).map(|found| (found, false)),
    };
    progress.finish();
    let (found, is_partial) = found.map_err(|error| match error {
        // The advice of the error's own message, to run `verify`, does not apply here.
        StoreError::Damaged { path, fault } => {
            forget(store);
            let text = format!("`{}` is damaged: {fault} (keep the file, and restore a copy)", path.display());
            Failure::new(exit::LEDGER, text)
        }
        error => error.into(),
    })?;
    if let Some(verified) = &found.verified
        && let Err(error) = store.remember_verified(verified)
        && args.since_last
    {
        say(&format!("warning: the next `--since-last` begins where this one began: {error}"));
    }
    let sound = found.faults.is_empty();
    if !sound {
        forget(store);
    }
    // An attestation and the integrity of the ledger are independent results.
    let attested = match (&args.attested, &args.key) {
        (Some(file), Some(key)) => {
            let fault = |fault| Fault { owner: file.display().to_string(), fault };
            Some(attested(file, key, store)?.map_err(fault))
        }
        _ => None,
    };
    let is_as_attested = attested.as_ref().is_none_or(Result::is_ok);
    let faults: Vec<&Fault> =
        found.faults.iter().chain(attested.as_ref().and_then(|attested| attested.as_ref().err())).collect();
    let notes: Vec<&str> = found
        .notes
        .iter()
        .chain(attested.as_ref().and_then(|attested| attested.as_ref().ok()))
        .map(String::as_str)
        .collect();
    context.answer(
        || {
            let mut text = String::new();
            for fault in &faults {
                text.push_str(&format!("{}: {}\n", fault.owner, fault.fault));
            }
            notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
            text.push_str(&format!(
                "{}: {}, {}, {}, {}, {}{}\n",
                match (sound, is_as_attested) {
                    (true, true) if is_partial => "sound since the last verification",
                    (true, true) => "sound",
                    (true, false) => "sound, but NOT AS ATTESTED",
                    (false, _) => "DAMAGED",
                },
                count(found.runs, "run"),
                count(found.attempts, "attempt"),
                count(found.chunks, "chunk"),
                count(found.log_entries, "log entry"),
                count(found.index_entries, "index entry"),
                if found.pages { ", every page" } else { "" }
            ));
            text
        },
        || {
            let told = faults.iter().map(|fault| {
                let pairs = [("owner", fault.owner.as_str().into()), ("fault", fault.fault.as_str().into())];
                Value::Table(table_of(pairs))
            });
            let mut table = table_of([
                ("sound", sound.into()),
                ("runs", found.runs.into()),
                ("attempts", found.attempts.into()),
                ("chunks", found.chunks.into()),
                ("sources", found.sources.into()),
                ("log_entries", found.log_entries.into()),
                ("index_entries", found.index_entries.into()),
                ("pages", found.pages.into()),
                ("since_last", is_partial.into()),
                ("faults", Value::List(told.collect())),
                ("notes", notes.clone().into()),
            ]);
            table.extend(attested.as_ref().map(|attested| ("attested".to_owned(), attested.is_ok().into())));
            table
        },
    )?;
    Ok(if sound && is_as_attested { exit::YES } else { exit::NO })
}

/// Checks an attestation against the ledger. Returns a note, or the reason why it does not hold.
fn attested(file: &Path, key: &Path, store: &Store) -> Result<Result<String, String>, Failure> {
    let text = |path: &Path| -> Result<String, Failure> {
        let refused = |_| Failure::new(exit::USAGE, format!("`{}` is not text", path.display()));
        String::from_utf8(read_file(path)?).map_err(refused)
    };
    let failed = |path: &Path, error: AttestError| Failure::new(exit::USAGE, format!("`{}`: {error}", path.display()));
    let verifier = Verifier::read(&text(key)?).map_err(|error| failed(key, error))?;
    let content = text(file)?;
    let by = verifier.fingerprint();
    if content.trim_start().starts_with('{') {
        let statement = match verifier.open(&content) {
            Ok(statement) => statement,
            Err(AttestError::Wrong) => return Ok(Err(AttestError::Wrong.to_string())),
            Err(error) => return Err(failed(file, error)),
        };
        let id = AttemptId(subject(&statement).map_err(|error| failed(file, error))?);
        let is_here = store.read(|reader| Ok(reader.attempt(id)?.is_some_and(|attempt| attempt.id() == id)))?;
        return Ok(if is_here {
            Ok(format!("attempt {} is attested by {by}", id.0.prefix(8)))
        } else {
            Err(format!("attempt {id}, which it names, is not in the ledger"))
        });
    }
    let beside = beside(file);
    match verifier.check(&content, &text(&beside)?) {
        Ok(()) => {}
        Err(AttestError::Wrong) => return Ok(Err(AttestError::Wrong.to_string())),
        Err(error) => return Err(failed(&beside, error)),
    }
    let head = Head::read(&content).map_err(|error| failed(file, error))?;
    let (after, len) = store.read(|reader| Ok((reader.head_after(head.entries)?, reader.log_len()?)))?;
    Ok(match after {
        Some(digest) if digest == head.digest => {
            Ok(format!("attested by {by}: the first {} of {}", head.entries, count(len, "log entry")))
        }
        Some(_) => Err(format!(
            "its {} do not match the first of this ledger: it belongs to another ledger, or entries were changed",
            count(head.entries, "log entry")
        )),
        None => Err(format!(
            "it states {}, but the ledger has {len}: it belongs to another ledger, or entries were lost",
            count(head.entries, "log entry")
        )),
    })
}
