//! `ledger collect`

use super::cluster::{PATIENCE, ask, bring, meant, readable, spool};
use super::context::Context;
use super::failure::{Failure, exit};
use super::output::say;
use crate::cluster::Brought;
use crate::record::Value;
use crate::report::{columns, count, table_of};
use std::time::Duration;

/// Import the results of Slurm tasks into the ledger
///
/// Imports attempts that have ended. If a task is gone, its attempt is sealed as interrupted with the data of its
/// journal. You can call it at any time and repeatedly: attempts that the ledger already holds stay unchanged.
///
/// Example: ledger collect 4711
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A job's number or a part of a submission's name [default: all submissions with results to come]
    #[arg(value_name = "JOB")]
    job: Option<String>,

    /// Treat a task as gone if its journal did not change for this long (files from a node can appear late)
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE.as_secs())]
    patience: u64,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (folders, unreadable) = readable(meant(&spool(context, None), args.job.as_deref())?);
    let tasks = ask(&folders)?;
    let mut all: Vec<(String, Brought)> = Vec::new();
    let (mut waiting, mut faults) = (0, unreadable);
    for folder in &folders {
        let (collected, _) = bring(context, folder, tasks.of(folder), Duration::from_secs(args.patience))?;
        all.extend(collected.brought.into_iter().map(|brought| (folder.name(), brought)));
        waiting += collected.waiting;
        faults += collected.faults.len();
    }
    let state = |brought: &Brought| if brought.new { "new" } else { "known" };
    context.answer(
        || {
            if all.is_empty() {
                return "nothing new was imported\n".to_owned();
            }
            let rows = all.iter().map(|(submission, brought)| {
                let ids = [brought.run.0.prefix(8), brought.attempt.0.prefix(8)];
                let words = [brought.outcome.clone(), state(brought).to_owned(), submission.clone()];
                ids.into_iter().chain(words).collect()
            });
            columns(&["RUN", "ATTEMPT", "OUTCOME", "STATE", "SUBMISSION"], rows)
        },
        || {
            let items = all.iter().map(|(submission, brought)| {
                Value::Table(table_of([
                    ("run", brought.run.to_string().into()),
                    ("attempt", brought.attempt.to_string().into()),
                    ("outcome", brought.outcome.as_str().into()),
                    ("state", state(brought).into()),
                    ("submission", submission.as_str().into()),
                ]))
            });
            table_of([("collected", Value::List(items.collect())), ("waiting", waiting.into())])
        },
    )?;
    if waiting > 0 {
        say(&format!("waits until its task has ended and its files are unchanged: {}", count(waiting, "file")));
    }
    Ok(if faults == 0 { exit::YES } else { exit::NO })
}
