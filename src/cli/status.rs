//! `ledger status`

use super::cluster::{ask, readable, spool};
use super::context::Context;
use super::failure::{Failure, exit};
use crate::cluster::{Folder, Stand, Standing, State, read_result, stand};
use crate::record::{AttemptId, Tail};
use crate::report::{self, CellLine, StatusView};
use crate::store::Store;
use std::collections::BTreeMap;

/// The number of lines that are shown of a failed cell's output.
const TAIL_LINES: usize = 10;

/// Show the progress of Slurm submissions
///
/// Reads the states of Slurm, of the tasks and of imported attempts; the ledger is not changed. For cells that
/// failed or were stopped, it shows the last lines of their output.
///
/// Example: ledger status 4711
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A job's number or a part of a submission's name [default: all submissions with results to come, else the
    /// newest]
    #[arg(value_name = "JOB")]
    job: Option<String>,

    /// Show every submission of the ledger
    #[arg(long, conflicts_with = "job")]
    all: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let spool = spool(context, None);
    let mut folders = match &args.job {
        Some(text) => vec![spool.find(text)?],
        None if args.all => spool.all()?,
        None => spool.open()?,
    };
    if folders.is_empty() {
        folders.extend(spool.all()?.pop());
    }
    if folders.is_empty() {
        return Err(Failure::new(
            exit::NO,
            "nothing was submitted from this ledger (`ledger submit MANIFEST` submits runs)",
        ));
    }
    let (folders, unreadable) = readable(folders);
    let tasks = ask(&folders)?;
    let mut views = Vec::new();
    for folder in &folders {
        views.push(view(context.store_as_it_is(), folder, &stand(folder, tasks.of(folder))?));
    }
    context.answer(|| report::status_text(&views), || report::status_value(&views))?;
    Ok(if unreadable == 0 { exit::YES } else { exit::NO })
}

/// Returns the view of one submission.
pub(super) fn view(store: &Store, folder: &Folder, standing: &Standing) -> StatusView {
    let shows_tail = |stand: &&Stand| !matches!(stand.state, State::Finished) && !stand.state.is_under_way();
    let mut tails =
        if standing.cells.iter().any(|stand| shows_tail(&stand)) { tails(store, folder) } else { BTreeMap::new() };
    let cells = standing.cells.iter().map(|stand| {
        let told = if shows_tail(&stand) { tails.remove(&Folder::key(stand.cell.id)) } else { None };
        let (reason, tail) = match told {
            Some((reason, tail)) => (stand.reason.clone().or(reason), last_lines(&[&tail.stdout, &tail.stderr])),
            None if shows_tail(&stand) => (stand.reason.clone(), log(folder, stand)),
            None => (stand.reason.clone(), String::new()),
        };
        CellLine {
            cell: stand.cell.id,
            state: stand.state.name(),
            task: stand.job.as_ref().map(|job| format!("{job}_{}", stand.cell.task)),
            node: stand.node.clone(),
            run: stand.run,
            done: (stand.tally.good(), stand.cell.attempts),
            label: stand.cell.label.clone(),
            step: stand.step,
            loss: stand.loss,
            reason,
            tail,
        }
    });
    StatusView {
        submission: standing.submission.name.clone(),
        jobs: standing.jobs.iter().map(|submitted| submitted.job.clone()).collect(),
        folder: folder.dir().display().to_string(),
        cells: cells.collect(),
    }
}

/// Returns the reason why the newest attempt of each cell did not finish, and its last output. Sources are packs that
/// are not collected yet, and the ledger.
fn tails(store: &Store, folder: &Folder) -> BTreeMap<String, (Option<String>, Tail)> {
    let mut tails: BTreeMap<String, (i64, Option<String>, Tail)> = BTreeMap::new();
    let mut take = |cell: String, attempt: crate::record::Attempt| {
        let newest = tails.get(&cell).is_none_or(|(started, ..)| attempt.started_unix_ms >= *started);
        if let (Some(reason), true) = (attempt.outcome.reason(), newest) {
            let reason = Some(reason.to_owned());
            tails.insert(cell, (attempt.started_unix_ms, reason, attempt.tail));
        }
    };
    for pack in folder.packs().unwrap_or_default() {
        let name = pack.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some((cell, rest)) = name.split_once('-') else { continue };
        // No output is shown for finished attempts.
        if rest.contains(".finished.") {
            continue;
        }
        if let Ok((packed, _)) = read_result(&pack) {
            take(cell.to_owned(), packed.sealed.attempt);
        }
    }
    let collected: Vec<(String, AttemptId)> = folder
        .collected()
        .unwrap_or_default()
        .into_iter()
        .flat_map(|(cell, ids)| ids.into_iter().map(move |id| (cell.clone(), id)))
        .collect();
    if !collected.is_empty() {
        // If the ledger cannot be read, less is shown.
        let _ = store.read(|reader| {
            for (cell, id) in collected {
                if let Some(attempt) = reader.readable(id)? {
                    take(cell, attempt);
                }
            }
            Ok(())
        });
    }
    tails.into_iter().map(|(cell, (_, reason, tail))| (cell, (reason, tail))).collect()
}

/// Returns the end of the task's log.
fn log(folder: &Folder, stand: &Stand) -> String {
    let Some(job) = &stand.job else { return String::new() };
    let text = std::fs::read(folder.log(job, stand.cell.task)).unwrap_or_default();
    last_lines(&[&String::from_utf8_lossy(&text)])
}

fn last_lines(texts: &[&str]) -> String {
    let last = |text: &&str| {
        let lines: Vec<&str> = text.trim_end().lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    };
    let parts: Vec<String> = texts.iter().map(last).filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_both_outputs_are_shown() {
        let long: String = (1..=30).map(|line| format!("line {line}\n")).collect();
        let shown = last_lines(&[&long, "", "oh\n"]);
        assert_eq!(shown.lines().count(), 11);
        assert!(shown.starts_with("line 21\n") && shown.ends_with("line 30\noh"), "{shown}");
    }
}
