//! What a task of an array has to do, on its node: which attempts are left, and how what comes of them gets home.

use super::{CellNote, CellState, ClusterError, Folder, Member, Mirror, Note, Tally};
use crate::engine::Cause;
use crate::record::{AttemptId, Digest, Outcome, RunId, SourceText};
use crate::store::Store;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is left of a cell for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Attempts to execute.
    pub attempts: usize,
    /// Finished attempts of this very run that the ledger held when the cell was submitted.
    pub sealed: usize,
}

/// What is left of a cell once its run on this node is known, and what earlier starts of the task have done.
///
/// The ledger is not asked, since its host may be using it: what it held was written down when the cell was submitted.
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
    /// Whether it has changed since it was written.
    fresh: bool,
}

fn lock(note: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    note.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spooler {
    /// Begins, with the journals of the task's own ledger.
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
            // It is written again at the next beat.
            if shared.fresh && in_folder.keep_note(&shared.note).is_ok() {
                shared.fresh = false;
            }
        };
        let mirror = Mirror::start(journals, folder, (&job, task, restarts), beat);
        Ok(Self { folder: folder.clone(), note, mirror })
    }

    /// Changes what is said of a cell; it is written soon.
    pub fn tell(&self, cell: Digest, change: impl FnOnce(&mut CellNote)) {
        let mut shared = lock(&self.note);
        if let Some(told) = shared.note.cells.iter_mut().find(|told| told.id == cell) {
            change(told);
            shared.fresh = true;
        }
    }

    /// Writes what is said of the cells.
    ///
    /// # Errors
    /// If the shared folder cannot be written.
    pub fn write(&self) -> Result<(), ClusterError> {
        let mut shared = lock(&self.note);
        shared.fresh = false;
        self.folder.keep_note(&shared.note)
    }

    /// Puts an attempt of the task's ledger where `collect` finds it.
    ///
    /// # Errors
    /// If the ledger cannot be read or the shared folder not be written; then the copy of the journal stays in it.
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

    /// Ends, and says with which code the task does.
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
    fn what_is_left_is_what_nobody_has_done() {
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
