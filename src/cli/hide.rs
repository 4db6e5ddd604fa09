//! `ledger hide`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::import::earlier::is_replaced;
use super::selection::{parted, trials_of};
use crate::analysis::{Trial, names, unify_by_model};
use crate::host::clock;
use crate::interop::{file_name, is_from};
use crate::record::{Change, Digest, LogEntry, Target, Value, first_of};
use crate::report::{count, table_of};
use crate::store::Store;
use std::collections::BTreeSet;
use std::path::Path;

/// Hide a run, an attempt, or all matching attempts from listings and answers
///
/// A hidden attempt stays in the ledger and can be shown by its id; `latest` and `latest~1` skip it. --undo with
/// its id shows it again. --where and --import select every attempt that matches; with both, an attempt must match
/// both. With --undo they select every hidden attempt, except rows that a later import of the same table replaced.
/// Such rows come back by their id, or when the earlier map is imported again.
///
/// Example: ledger hide --where 'model == resnet50 and import.file == "runs.csv"'
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required_unless_present_any = ["condition", "import"], conflicts_with_all = ["condition", "import"])]
    id: Option<String>,

    /// All attempts whose fields and metrics match, as in `best --where`
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,

    /// All attempts that were imported from this file: its path, its name, or its digest
    #[arg(long, value_name = "FILE")]
    import: Option<String>,

    /// Show it again
    #[arg(long)]
    undo: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.id {
        Some(id) => one(id, args.undo, context),
        None => all(args, context),
    }
}

fn one(text: &str, undo: bool, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let (target, hidden) =
        store.read(|reader| Ok(context::resolve(reader, text)?.map(|target| (target, reader.hidden()))))??;
    let (hidden, id) = (hidden?, target.digest());
    let is_hidden = hidden.contains(&id);
    if undo && !is_hidden {
        return Err(not_hidden(text, id, &hidden));
    }
    if undo == is_hidden {
        let change = if undo { Change::Unhidden(target) } else { Change::Hidden(target) };
        store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    }
    let state = match (undo, is_hidden) {
        (true, _) => "shown again",
        (false, false) => "hidden",
        (false, true) => "hidden already",
    };
    context.answer(
        || format!("{} is {state}\n", id.prefix(8)),
        || table_of([("target", id.to_string().into()), ("hidden", (!undo).into())]),
    )?;
    Ok(exit::YES)
}

fn all(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let (mut trials, hidden) = store.read(|reader| Ok((trials_of(reader, None)?, reader.hidden()?)))?;
    if let Some(file) = &args.import {
        trials = imported(trials, file)?;
    }
    if let Some(condition) = &args.condition {
        unify_by_model(&mut trials);
        let names = names(&trials);
        trials = parted(trials, condition, &names)?.0;
    }
    if trials.is_empty() {
        return Err(Failure::new(exit::NO, "no attempt matches (`ledger ls` lists attempts)"));
    }
    let (by_itself, others): (Vec<&Trial>, Vec<&Trial>) = trials.iter().partition(|trial| hidden.contains(&trial.id.0));
    let with_run = others.iter().filter(|trial| trial.is_hidden).count();
    let (replaced, back): (Vec<&Trial>, Vec<&Trial>) =
        if args.undo { replaced(store, by_itself)? } else { Default::default() };
    let replaced = replaced.len();
    let changed: Vec<&Trial> =
        if args.undo { back } else { others.into_iter().filter(|trial| !trial.is_hidden).collect() };
    let unchanged = trials.len() - changed.len() - if args.undo { with_run + replaced } else { 0 };
    store.write_many(|writer| {
        let unix_ms = clock::unix_ms();
        changed.iter().try_for_each(|trial| {
            let target = Target::Attempt(trial.id);
            let change = if args.undo { Change::Unhidden(target) } else { Change::Hidden(target) };
            writer.note(&LogEntry { unix_ms, change })
        })
    })?;
    let text = || {
        let verb = if changed.len() == 1 { "is" } else { "are" };
        let (state, before) = if args.undo { ("shown again", "not hidden") } else { ("hidden", "hidden already") };
        let mut text = format!("{} {verb} {state}", count(changed.len(), "attempt"));
        if unchanged > 0 {
            text.push_str(&format!(", {unchanged} {before}"));
        }
        text.push('\n');
        if args.undo && with_run > 0 {
            let attempts = count(with_run, "attempt");
            text.push_str(&format!(
                "hidden with their runs: {attempts} (`ledger hide --undo RUN` shows a run again)\n"
            ));
        }
        if replaced > 0 {
            text.push_str(&format!(
                "still hidden, since a later import of the same rows counts: {} (`ledger hide --undo ATTEMPT` shows one again)\n",
                count(replaced, "attempt")
            ));
        }
        text
    };
    context.answer(text, || {
        let ids: Vec<Value> = changed.iter().map(|trial| trial.id.to_string().into()).collect();
        table_of([
            ("attempts", Value::List(ids)),
            ("hidden", (!args.undo).into()),
            ("unchanged", unchanged.into()),
            ("replaced", replaced.into()),
        ])
    })?;
    Ok(exit::YES)
}

/// Splits attempts into those that a later import of the same rows replaced, and the others.
fn replaced<'a>(store: &Store, trials: Vec<&'a Trial>) -> Result<(Vec<&'a Trial>, Vec<&'a Trial>), Failure> {
    let superseded = store.read(|reader| {
        let mut superseded = BTreeSet::new();
        for trial in &trials {
            if is_replaced(&reader.notes(trial.id.0)?) {
                superseded.insert(trial.id);
            }
        }
        Ok(superseded)
    })?;
    Ok(trials.into_iter().partition(|trial| superseded.contains(&trial.id)))
}

/// The least number of hexadecimal digits that identify a digest.
const DIGITS: usize = 8;

/// Returns the attempts that were imported from a file.
fn imported(trials: Vec<Trial>, text: &str) -> Result<Vec<Trial>, Failure> {
    let path = Path::new(text);
    let name = file_name(path);
    let digest = if path.is_file() { Some(Digest::of(&context::read_file(path)?).to_string()) } else { None };
    let is_digest = text.len() >= DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut is_meant = |file: &str, of: &str| match &digest {
        Some(digest) => digest == of,
        None => file == name || is_digest && of.starts_with(text),
    };
    let (found, others): (Vec<Trial>, Vec<Trial>) =
        trials.into_iter().partition(|trial| is_from(&trial.attempt, &mut is_meant));
    if found.is_empty() {
        let mut same_name = BTreeSet::new();
        for trial in &others {
            is_from(&trial.attempt, &mut |file, digest| {
                if file == name {
                    same_name.extend(digest.get(..DIGITS).map(str::to_owned));
                }
                false
            });
        }
        let same_name: Vec<String> = same_name.into_iter().collect();
        let hint = if same_name.is_empty() {
            "`ledger show` says where an attempt came from".to_owned()
        } else {
            format!("files of that name had other content: name one by its digest, {}", same_name.join(" or "))
        };
        return Err(Failure::new(exit::NO, format!("no attempt was imported from `{text}` ({hint})")));
    }
    Ok(found)
}

/// The number of hidden items that are listed.
const NAMED: usize = 5;

fn not_hidden(text: &str, id: Digest, hidden: &BTreeSet<Digest>) -> Failure {
    let named = first_of(hidden.iter().map(|id| id.prefix(8)), NAMED);
    let there = if hidden.is_empty() { "nothing is".to_owned() } else { format!("hidden: {named}") };
    Failure::new(exit::NO, format!("`{text}`, which is {}, is not hidden ({there})", id.prefix(8)))
}
