//! `--wait`: imports results until all tasks have ended.

use crate::cli::cluster::{PATIENCE, ask, bring};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::{print, say};
use crate::cli::status;
use crate::cli::watch::Interruption;
use crate::cluster::{Collected, Folder, Stand, Standing, State};
use crate::engine::Stop;
use crate::host::clock;
use crate::record::{Digest, Table};
use crate::report::{self, StatusView, count, document};
use std::collections::BTreeSet;
use std::time::Duration;

/// A submission that is waited for.
pub(super) struct Awaited {
    pub(super) folder: Folder,
    /// The cells that are waited for; `None` means all.
    pub(super) cells: Option<BTreeSet<Digest>>,
}

impl Awaited {
    fn wants(&self, stand: &Stand) -> bool {
        self.cells.as_ref().is_none_or(|cells| cells.contains(&stand.cell.id))
    }

    /// Whether all awaited results have been imported.
    fn is_over(&self, standing: &Standing, collected: &Collected) -> bool {
        let is_at_rest = match &self.cells {
            None => collected.waiting == 0,
            Some(cells) => !cells.iter().any(|cell| collected.waiting_for.contains(&Folder::key(*cell))),
        };
        is_at_rest && !standing.cells.iter().any(|stand| self.wants(stand) && stand.state.is_under_way())
    }
}

/// Prints what was submitted, waits, and prints the results. With `--json`, both are in one document.
pub(super) fn answer_and_wait(
    context: &Context,
    text: String,
    members: Table,
    awaited: &[Awaited],
) -> Result<u8, Failure> {
    if !context.json {
        print(&text)?;
    }
    let waited = wait(context, awaited);
    match &waited {
        Ok(waited) if context.json => {
            let mut members = members;
            members.extend(report::status_value(&waited.views));
            print(&document(members))?;
        }
        Ok(waited) => print(&report::status_text(&waited.views))?,
        // The submitted tasks continue.
        Err(_) if context.json => print(&document(members))?,
        Err(_) => {}
    }
    waited.map(|waited| waited.code)
}

/// The state of the awaited submissions when the waiting ends.
struct Waited {
    code: u8,
    views: Vec<StatusView>,
}

/// Waits until all results are imported. Ctrl-C ends only the waiting.
fn wait(context: &Context, awaited: &[Awaited]) -> Result<Waited, Failure> {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);
    let interruption = Interruption::install()?;
    let folders: Vec<Folder> = awaited.iter().map(|awaited| awaited.folder.clone()).collect();
    let mut pause = SHORTEST;
    let mut was_over = false;
    let (standings, faults) = loop {
        let tasks = ask(&folders)?;
        let (mut standings, mut is_over, mut has_come) = (Vec::new(), true, false);
        let mut faults = 0;
        for awaited in awaited {
            let folder = &awaited.folder;
            let (collected, standing) = bring(context, folder, tasks.of(folder), PATIENCE)?;
            for brought in &collected.brought {
                let (run, done) = (brought.run.0.prefix(8), standing.cells.iter());
                let done = done.filter(|stand| !stand.state.is_under_way()).count();
                say(&format!("{run} {} ({done} of {})", brought.outcome, count(standing.cells.len(), "cell")));
            }
            is_over &= awaited.is_over(&standing, &collected);
            has_come |= !collected.brought.is_empty();
            faults += collected.faults.len();
            standings.push(standing);
        }
        if is_over {
            // One more round imports results that arrived during this one.
            if std::mem::replace(&mut was_over, true) {
                break (standings, faults);
            }
            continue;
        }
        was_over = false;
        let until = clock::monotonic_ns() + u64::try_from(pause.as_nanos()).unwrap_or(0);
        while clock::monotonic_ns() < until {
            if interruption.asked() > 0 {
                say("stopped waiting; the tasks continue, and `ledger collect` imports their results");
                return Ok(Waited { code: exit::INTERRUPTED, views: views(context, awaited, &standings) });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        pause = if has_come { SHORTEST } else { (pause * 2).min(LONGEST) };
    };
    let wanted = awaited.iter().zip(&standings);
    let wanted = wanted.flat_map(|(awaited, standing)| standing.cells.iter().filter(|stand| awaited.wants(stand)));
    let states: Vec<State> = wanted.map(|stand| stand.state).collect();
    let code = match code(&states) {
        // A result could not be imported.
        exit::YES if faults > 0 => exit::NO,
        code => code,
    };
    if code == exit::SCHEDULER {
        let lost = states.iter().filter(|state| **state == State::Lost).count();
        let was = if lost == 1 { "was" } else { "were" };
        say(&format!("{} {was} lost (`ledger submit --resume NAME` executes what is missing)", count(lost, "cell")));
    }
    Ok(Waited { code, views: views(context, awaited, &standings) })
}

fn views(context: &Context, awaited: &[Awaited], standings: &[Standing]) -> Vec<StatusView> {
    let store = context.store_as_it_is();
    awaited.iter().zip(standings).map(|(awaited, standing)| status::view(store, &awaited.folder, standing)).collect()
}

/// Returns the exit code of cells that have ended.
fn code(states: &[State]) -> u8 {
    let is = |wanted: &[State]| states.iter().any(|state| wanted.contains(state));
    if states.iter().all(|state| *state == State::Finished) {
        exit::YES
    } else if is(&[State::Failed, State::Refused]) {
        exit::FAILED
    } else if is(&[State::Lost]) {
        exit::SCHEDULER
    } else {
        exit::INTERRUPTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_cells_give_the_exit_code_of_the_scheduler() {
        use State::{Cancelled, Failed, Finished, Interrupted, Lost};
        assert_eq!(code(&[Finished, Finished]), exit::YES);
        assert_eq!(code(&[Finished, Failed, Lost]), exit::FAILED);
        assert_eq!(code(&[Finished, Interrupted, Lost]), exit::SCHEDULER);
        assert_eq!(code(&[Cancelled, Interrupted]), exit::INTERRUPTED);
    }
}
