//! `ledger merge`

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::say;
use crate::host::clock;
use crate::journal;
use crate::record::{Table, Target, Value};
use crate::report::{Count, columns, count, table_of};
use crate::store::{Merged, Overruled, Store};
use std::path::{Path, PathBuf};

/// Import everything from other ledgers: runs, attempts, series, tags, notes, hidden marks, verdicts
///
/// Every id and digest is recomputed first. Data that do not match are left out and listed (exit code 1). Attempts
/// are identified by their content, so they cannot conflict: the order of merges does not matter, and merging again
/// changes nothing. If two ledgers give the same tag, the newer one counts; so does the newer decision to hide an
/// attempt. Tags that now mean something else are listed. Repeat the command to continue an interrupted merge. The
/// other ledgers are not changed.
///
/// Example: ledger merge /scratch/gpu07/ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The other ledgers' folders
    #[arg(required = true, value_name = "OTHER")]
    others: Vec<PathBuf>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let others: Vec<Store> = args.others.iter().map(|path| other(path, store)).collect::<Result<_, _>>()?;
    let mut merged: Vec<Merged> = Vec::new();
    for other in &others {
        let waiting = journal::list(&other.journals()).map_or(0, |found| found.len());
        if waiting > 0 {
            say(&format!(
                "note: `{}` has {} that run or wait to be sealed; they are not merged",
                other.dir().display(),
                count(waiting, "attempt")
            ));
        }
        let progress = Count::new("attempts");
        let result = store.merge(other, clock::unix_ms(), &mut |done, total| progress.set(done, total));
        progress.finish();
        merged.push(result.inspect_err(|_| {
            let done = others.iter().take(merged.len()).map(|other| format!("`{}`", other.dir().display()));
            let done: Vec<String> = done.collect();
            if !done.is_empty() {
                say(&format!("note: merged before the error: {}", done.join(", ")));
            }
        })?);
    }
    let sound = merged.iter().all(|merged| merged.faults.is_empty());
    context.answer(
        || text(&others, &merged),
        || {
            let items = others.iter().zip(&merged).map(|(other, merged)| {
                let faults = merged.faults.iter().map(|fault| {
                    let pairs = [("owner", fault.owner.as_str().into()), ("fault", fault.fault.as_str().into())];
                    Value::Table(table_of(pairs))
                });
                Value::Table(table_of([
                    ("ledger", other.dir().display().to_string().into()),
                    ("new", merged.new.into()),
                    ("known", merged.known.into()),
                    ("entries", merged.entries.into()),
                    ("overruled", Value::List(merged.overruled.iter().map(overruled_value).collect())),
                    ("faults", Value::List(faults.collect())),
                ]))
            });
            table_of([("merged", Value::List(items.collect()))])
        },
    )?;
    Ok(if sound { exit::YES } else { exit::NO })
}

fn other(path: &Path, own: &Store) -> Result<Store, Failure> {
    let is_file = path.file_name().is_some_and(|name| name == "ledger.redb");
    let dir = if is_file { path.parent().unwrap_or(path) } else { path };
    let other = Store::at(if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    if !other.file().is_file() {
        let left = journal::list(&other.journals()).map_or(0, |found| found.len());
        let hint = if left == 0 {
            String::new()
        } else {
            let (attempts, dir) = (count(left, "attempt"), other.dir().display());
            format!(
                ", but {attempts} not sealed yet (`ledger --ledger {dir} ls` seals them, on the host where they ran)"
            )
        };
        return Err(Failure::new(exit::USAGE, format!("there is no ledger at `{}`{hint}", path.display())));
    }
    let same = |store: &Store| store.file().canonicalize().ok();
    if same(&other) == same(own) {
        return Err(Failure::new(exit::USAGE, format!("`{}` is this ledger itself", path.display())));
    }
    Ok(other)
}

fn text(others: &[Store], merged: &[Merged]) -> String {
    let mut text = String::new();
    for fault in merged.iter().flat_map(|merged| &merged.faults) {
        text.push_str(&format!("left out: {}: {}\n", fault.owner, fault.fault));
    }
    for overruled in merged.iter().flat_map(|merged| &merged.overruled) {
        text.push_str(&format!("{}\n", overruled_text(overruled)));
    }
    let rows = others.iter().zip(merged).map(|(other, merged)| {
        let numbers = [merged.new, merged.known, merged.entries].map(|number| number.to_string());
        let [new, known, entries] = numbers;
        vec![other.dir().display().to_string(), new, known, entries]
    });
    text.push_str(&columns(&["LEDGER", ">NEW", ">KNOWN", ">TAGS, NOTES, VERDICTS"], rows));
    text
}

fn named(target: Target) -> String {
    let kind = if matches!(target, Target::Run(_)) { "run" } else { "attempt" };
    format!("{kind} {}", target.digest().prefix(8))
}

fn overruled_text(overruled: &Overruled) -> String {
    match overruled {
        Overruled::Tag { name, from, to: Some(to) } => {
            format!("tag `{name}`: was {}, is now {}", named(*from), named(*to))
        }
        Overruled::Tag { name, from, to: None } => format!("tag `{name}`: removed, was {}", named(*from)),
        Overruled::Hidden(target) => format!("now hidden: {}", named(*target)),
        Overruled::Shown(target) => format!("shown again: {}", named(*target)),
    }
}

fn overruled_value(overruled: &Overruled) -> Value {
    let mut table = Table::new();
    let mut put = |name: &str, value: Value| drop(table.insert(name.to_owned(), value));
    let id = |target: &Target| Value::from(target.digest().to_string());
    match overruled {
        Overruled::Tag { name, from, to } => {
            put("tag", name.as_str().into());
            put("from", id(from));
            if let Some(to) = to {
                put("to", id(to));
            }
        }
        Overruled::Hidden(target) => put("hidden", id(target)),
        Overruled::Shown(target) => put("shown", id(target)),
    }
    Value::Table(table)
}
