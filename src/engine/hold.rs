//! Changes the settings of an attempt's GPUs, and undoes the changes however the attempt ends.
//!
//! Before the first change a file is written to a [`Place`] of the machine, and a watcher is started: this program by a
//! hidden command, in its own session, with a pipe from the supervisor. Each change is written to the file before it is
//! tried. It is taken out again only if it was certainly not made: without an answer it may have been made. The changes
//! are undone by
//!
//! - the supervisor, when the attempt is over, when it fails, is interrupted or panics;
//! - the watcher, when the pipe ends and the file is still there: the supervisor was killed;
//! - the next command that opens a ledger on this machine, and `ledger doctor --restore`, when both were killed.
//!
//! Locks of the GPUs keep two processes from doing it at once. A reboot resets GPU settings, so files of an earlier
//! boot are only removed.

use super::bound::Bound;
use super::hold_error::HoldError;
use super::pending::{Pending, Unmade};
use super::place::{Locks, Place};
use super::restore::{Restored, start_watcher, undo_left};
use super::worker::Shim;
use super::{EngineError, Stop};
use crate::gpu::{GpuInfo, Gpus, Settings};
use crate::record::{Entry, Table};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long the processes of an earlier attempt may take to leave a GPU. The driver frees their memory after they were
/// killed.
const DYING: Duration = Duration::from_secs(10);
/// The polling interval meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The changed settings of an attempt's GPUs.
pub(super) struct Hold {
    pending: Pending,
    file: PathBuf,
    gpus: Gpus,
    watcher: Child,
    /// `None` once the settings are undone.
    locks: Option<Locks>,
}

/// The result of a request to change settings.
pub(super) enum Taken {
    /// The GPUs are set.
    Held(Box<Hold>),
    /// Another living process has changed one of the GPUs.
    Elsewhere,
    /// A request to stop came first.
    Stopped,
}

impl Hold {
    /// Changes the settings of a run's GPUs.
    pub(super) fn take(bound: &Bound, asked: Settings, shim: &Shim, stop: &dyn Stop) -> Result<Taken, EngineError> {
        let place = &shim.restore;
        place.make()?;
        let ours = |uuid: &str| bound.gpus.iter().any(|gpu| gpu.uuid == uuid);
        let Some(locks) = place.lock(bound.gpus.iter().map(|gpu| gpu.uuid.as_str()))? else {
            return Ok(Taken::Elsewhere);
        };
        let gpus = Gpus::load(bound.nvml.as_deref()).map_err(|error| HoldError::Silent(error.to_string()))?;
        let count = gpus.count().map_err(|error| HoldError::Silent(error.to_string()))?;
        for path in place.files()? {
            // An unreadable file may name one of these GPUs.
            let found = Pending::read(&path);
            let card = found.as_ref().map(|found| found.cards.iter().find(|card| ours(&card.gpu.uuid)));
            let gpu = match card {
                Ok(None) => continue,
                Ok(Some(card)) => card.gpu.index,
                Err(_) if !path.exists() || Pending::is_of_earlier_boot(&path) => continue,
                Err(why) => {
                    let gpu = bound.gpus.first().map_or(0, |gpu| gpu.index);
                    return Err(HoldError::Unreadable { gpu, why: why.clone() }.into());
                }
            };
            let others: Vec<String> = found.iter().flat_map(Pending::uuids).filter(|uuid| !ours(uuid)).collect();
            let Some(_others) = place.lock(others.iter().map(String::as_str))? else { return Ok(Taken::Elsewhere) };
            match undo_left(&path, Ok(&gpus))? {
                Some(Restored::Failed(_, why)) => return Err(HoldError::Unrestored { gpu, why }.into()),
                Some(Restored::Unreadable { why, .. }) => return Err(HoldError::Unreadable { gpu, why }.into()),
                Some(Restored::Elsewhere(path)) => {
                    let why = format!("`{}` names it, but no GPU that is here", path.display());
                    return Err(HoldError::Unrestored { gpu, why }.into());
                }
                _ => {}
            }
        }
        let since = Instant::now();
        while let Some((gpu, pid)) = in_use(bound, &gpus)? {
            if stop.asked() > 0 {
                return Ok(Taken::Stopped);
            }
            if since.elapsed() >= DYING {
                return Err(HoldError::InUse { gpu, pid }.into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let pending = Pending::new(&gpus, &bound.gpus, usize::try_from(count).unwrap_or(usize::MAX), asked)?;
        let file = pending.write_new(place)?;
        let watcher = match start_watcher(shim, bound.nvml.as_deref(), &file) {
            Ok(watcher) => watcher,
            Err(error) => {
                let _ = std::fs::remove_file(&file);
                return Err(HoldError::NoWatcher(error).into());
            }
        };
        // From here on dropping it undoes all changes.
        let mut hold = Self { pending, file, gpus, watcher, locks: Some(locks) };
        for at in 0..bound.gpus.len() {
            for change in asked.changes() {
                // Written before it is tried, because another process may have to undo it from the file.
                hold.pending.cards[at].made.note(change);
                if let Err(error) = hold.pending.write(&hold.file) {
                    hold.pending.cards[at].made.forget(change);
                    return Err(error.into());
                }
                if let Err(Unmade { why, for_certain }) = hold.pending.make(&hold.gpus, at, change) {
                    if for_certain {
                        hold.pending.cards[at].made.forget(change);
                        hold.pending.write(&hold.file)?;
                    }
                    return Err(why.into());
                }
            }
        }
        Ok(Taken::Held(Box::new(hold)))
    }

    /// The facts about the settings.
    pub(super) fn facts(&self) -> Table {
        let mut facts = Table::new();
        for (rank, card) in self.pending.cards.iter().enumerate() {
            if let Some(mw) = card.power_limit_mw {
                facts.insert(format!("gpu.{rank}.power_limit_before_w"), (f64::from(mw) / 1e3).into());
                // Records the actual limit, which is read back.
                let now = self.gpus.power_limit_mw(&card.gpu.uuid).map(|mw| f64::from(mw) / 1e3);
                facts.extend(now.ok().map(|watts| (format!("gpu.{rank}.power_limit_w"), watts.into())));
            }
        }
        facts.insert("hardware.set".to_owned(), true.into());
        facts
    }

    /// Undoes the changes. Failures are warnings, and the file stays for the next command.
    pub(super) fn release(mut self) -> Vec<Entry> {
        let told = self.undo();
        told.into_iter().map(Entry::Warning).collect()
    }

    /// Undoes the changes and returns warnings.
    fn undo(&mut self) -> Vec<String> {
        let Some(locks) = self.locks.take() else { return Vec::new() };
        let (mut told, undone) = self.pending.undo(&self.gpus, &self.file);
        let wrong = match undone {
            Ok(()) => std::fs::remove_file(&self.file).err().map(|error| error.to_string()),
            Err(why) => Some(why),
        };
        drop(locks);
        // The watcher reacts to the end of the pipe. It finds nothing to do, or tries once more.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
        if let Some(why) = wrong.filter(|_| self.file.exists()) {
            told.push(format!("GPU settings could not be restored: {why} (`ledger doctor --restore` tries again)"));
        }
        told
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Warnings are lost here. If undoing failed, the file stays.
        let _ = self.undo();
    }
}

/// A GPU of the run on which a process computes, and its pid. Fails if the processes cannot be listed.
fn in_use(bound: &Bound, gpus: &Gpus) -> Result<Option<(u32, u32)>, HoldError> {
    for gpu in &bound.gpus {
        let pids = gpus.compute_processes(&gpu.uuid);
        let pids = pids.map_err(|why| HoldError::Unseen { gpu: gpu.index, why })?;
        if let Some(pid) = pids.first() {
            return Ok(Some((gpu.index, *pid)));
        }
    }
    Ok(None)
}

/// Whether another living process has changed one of these GPUs.
pub(super) fn is_busy(place: &Place, gpus: &[GpuInfo]) -> Result<bool, HoldError> {
    place.is_busy(gpus.iter().map(|gpu| gpu.uuid.as_str()))
}

/// The file of changed settings that names one of these GPUs, whether its attempt still runs or left it. An unreadable
/// file counts too.
pub(super) fn left_on(place: &Place, gpus: &[GpuInfo]) -> Option<PathBuf> {
    let names = |path: &PathBuf| match Pending::read(path) {
        Ok(found) => found.cards.iter().any(|card| gpus.iter().any(|gpu| gpu.uuid == card.gpu.uuid)),
        Err(_) => !gpus.is_empty() && path.exists() && !Pending::is_of_earlier_boot(path),
    };
    place.files().unwrap_or_default().into_iter().find(names)
}
