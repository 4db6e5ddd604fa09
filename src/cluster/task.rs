//! The work of a task on its node: which attempts are left, and the delivery of results to the shared folder.

use super::{CellNote, CellState, ClusterError, Folder, Member, Mirror, Note, Tally};
use crate::engine::Cause;
use crate::record::{AttemptId, Digest, Outcome, RunId, SourceText};
use crate::store::Store;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The remaining work of a task on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Attempts to execute.
    pub attempts: usize,
    /// Finished attempts of this run that the ledger had when the cell was submitted.
    pub sealed: usize,
}

/// Returns the remaining work on a cell, given its run on this node and the attempts of earlier starts of the task.
///
/// It does not read the ledger, which its host may be using: the submission recorded what the ledger had.
pub fn left(member: &Member, run: RunId, tally: Tally) -> Left {
    match member.cause {
        Cause::Complete(wanted) => {
            let sealed = member.sealed.get(&run).copied().unwrap_or(0);
            Left { attempts: wanted.saturating_sub(sealed + tally.finished + tally.failed), sealed }
        }
        Cause::Repeat(times) => Left { attempts: times.saturating_sub(tally.finished + tally.failed), sealed: 0 },
    }
}

/// Keeps the shared folder up to date while a task executes its cells.
#[derive(Debug)]
pub struct Spooler {
    folder: Folder,
    note: Arc<Mutex<Shared>>,
    mirror: Mirror,
}

#[derive(Debug)]
struct Shared {
    note: Note,
    /// Whether it has changed since it was last written.
    fresh: bool,
}

fn lock(note: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    note.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spooler {
    /// Writes the first note and starts copying the journals of the task's own ledger.
    ///
    /// # Errors
    /// If the shared folder cannot be written.
    pub fn start(folder: &Folder, note: Note, journals: &std::path::Path) -> Result<Self, ClusterError> {
        folder.keep_note(&note)?;
        let (job, task, restarts) = (note.job.clone(), note.task, note.restarts);
        let note = Arc::new(Mutex::new(Shared { note, fresh: false }));
        let (of_beat, in_folder) = (Arc::clone(&note), folder.clone());
        let beat = move || {
            let mut shared = lock(&of_beat);
            // If this fails, the next beat retries it.
            if shared.fresh && in_folder.keep_note(&shared.note).is_ok() {
                shared.fresh = false;
            }
        };
        let mirror = Mirror::start(journals, folder, (&job, task, restarts), beat);
        Ok(Self { folder: folder.clone(), note, mirror })
    }

    /// Changes the note of a cell; the next beat writes it.
    pub fn tell(&self, cell: Digest, change: impl FnOnce(&mut CellNote)) {
        let mut shared = lock(&self.note);
        if let Some(told) = shared.note.cells.iter_mut().find(|told| told.id == cell) {
            change(told);
            shared.fresh = true;
        }
    }

    /// Writes the note now.
    ///
    /// # Errors
    /// If the shared folder cannot be written.
    pub fn write(&self) -> Result<(), ClusterError> {
        let mut shared = lock(&self.note);
        shared.fresh = false;
        self.folder.keep_note(&shared.note)
    }

    /// Delivers an attempt of the task's ledger to where `collect` finds it.
    ///
    /// # Errors
    /// If the ledger cannot be read or the shared folder cannot be written. The copy of the journal then stays there.
    pub fn bring(
        &self,
        cell: Digest,
        store: &Store,
        id: AttemptId,
        sources: &[SourceText],
    ) -> Result<(), ClusterError> {
        let Some(packed) = store.read(|reader| reader.to_pack(id))? else { return Ok(()) };
        self.folder.put(cell, store, &packed, sources)?;
        self.mirror.forget(packed.run.id, packed.attempt.nonce)?;
        if let Outcome::Interrupted { reason } = &packed.attempt.outcome {
            self.tell(cell, |told| (told.state, told.reason) = (CellState::Interrupted, Some(reason.clone())));
        }
        self.write()
    }

    /// Stops copying, and records the task's exit code.
    ///
    /// # Errors
    /// If the shared folder cannot be written.
    pub fn finish(self, code: u8) -> Result<(), ClusterError> {
        drop(self.mirror);
        let mut shared = lock(&self.note);
        shared.note.code = Some(i64::from(code));
        self.folder.keep_note(&shared.note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Expected;
    use crate::record::{Cell, Table};

    #[test]
    fn remaining_attempts_exclude_those_already_made() {
        let expected = Expected::recorded(Cell::default(), Table::new());
        let (this, other) = (RunId(Digest::of(b"this")), RunId(Digest::of(b"other")));
        let sealed = [(this, 2), (other, 9)].into();
        let mut member =
            Member { id: expected.id(), label: String::new(), expected, cause: Cause::Complete(5), sealed };
        let tally = |finished, failed| Tally { finished, failed, interrupted: 3, ..Tally::default() };
        assert_eq!(left(&member, this, tally(0, 0)), Left { attempts: 3, sealed: 2 });
        assert_eq!(left(&member, this, tally(1, 1)).attempts, 1);
        assert_eq!(left(&member, this, tally(4, 0)).attempts, 0);
        let unknown = RunId(Digest::of(b"a machine that nobody has met"));
        assert_eq!(left(&member, unknown, tally(0, 0)), Left { attempts: 5, sealed: 0 });
        member.cause = Cause::Repeat(2);
        assert_eq!(left(&member, this, tally(0, 0)), Left { attempts: 2, sealed: 0 });
        assert_eq!(left(&member, this, tally(0, 2)).attempts, 0);
    }
}
