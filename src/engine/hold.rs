//! Holds what an attempt has set on its GPUs, and gives it back however the attempt ends.
//!
//! Before the first change a file is written to a [`Place`] of the machine, and a watcher is started: this program by a hidden command,
//! in a session of its own, with a pipe from the supervisor. Each change is written to the file before it is tried, and taken out again
//! only where it was certainly not made: a change whose answer was lost may have been made. Whoever is there undoes the changes:
//!
//! - the supervisor, when the attempt is over, when it fails, is interrupted or panics;
//! - the watcher, when the pipe ends and the file is still there: the supervisor was killed;
//! - the next command that opens a ledger on this machine, and `ledger doctor --restore`, when both were killed.
//!
//! Locks of the cards keep two of them from doing it at once. Cards forget what was set when the machine starts anew, so that files of
//! an earlier boot are only removed.

use super::EngineError;
use super::bind::Bound;
use super::pending::{Pending, Unmade};
use super::place::{Locks, Place};
use super::worker::Shim;
use crate::gpu::{GpuInfo, Gpus, Settings};
use crate::host::owner;
use crate::record::{Entry, Table};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The word that a watcher says once it is ready.
const READY: &[u8] = b"ready\n";
/// How often a watcher looks whether whoever has locked its cards is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a cell asks for cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Nobody who may do it is there.
    #[error(
        "{change} on GPU {gpu} is refused: {why} (run as root, start zeusd, or give --observe-only, which sets nothing and marks attempts at other settings as tainted)"
    )]
    NoPrivilege {
        /// What was tried.
        change: String,
        /// The card's number.
        gpu: u32,
        /// Which privilege is missing, and what zeusd said.
        why: String,
    },
    /// The card or its driver refused.
    #[error("{change} on GPU {gpu} failed: {why} (`nvidia-smi -q -i {gpu}` shows what the card supports)")]
    Refused {
        /// What was tried.
        change: String,
        /// The card's number.
        gpu: u32,
        /// Why.
        why: String,
    },
    /// Somebody else computes on the card.
    #[error(
        "nothing is set on GPU {gpu}: process {pid} computes on it, and its clocks and power would change too (wait for it, or choose another GPU with CUDA_VISIBLE_DEVICES)"
    )]
    InUse {
        /// The card's number.
        gpu: u32,
        /// The process.
        pid: u32,
    },
    /// The watcher could not be started: without it nothing is set.
    #[error(
        "nothing is set on the GPUs: the process that would undo it could not be started: {0} (start this program from its own file)"
    )]
    NoWatcher(std::io::Error),
    /// The folder of what has to be undone cannot be used.
    #[error("what is set on GPUs is written down in `{}`, which cannot be used: {why} (LEDGER_RESTORE names another folder)", folder.display())]
    NoPlace {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
    /// Whether others compute on a card is not known.
    #[error(
        "nothing is set on GPU {gpu}: whether others compute on it cannot be asked: {why} (`ledger doctor` says more)"
    )]
    Unseen {
        /// The card's number.
        gpu: u32,
        /// What NVML says.
        why: String,
    },
    /// The driver's library does not answer.
    #[error("nothing is set on the GPUs: {0} (`ledger doctor` says more)")]
    Silent(String),
    /// An earlier attempt's settings are still there.
    #[error(
        "nothing is set on GPU {gpu}: what an earlier attempt has set is still there: {why} (`ledger doctor --restore` tries again)"
    )]
    Unrestored {
        /// The card's number.
        gpu: u32,
        /// Why it could not be undone.
        why: String,
    },
}

/// What became of a file of settings that somebody left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The cards are as they were before.
    Undone(String),
    /// Its machine was started anew since: there is nothing to undo.
    Forgotten(PathBuf),
    /// Its cards are on another machine.
    Elsewhere(PathBuf),
    /// Its supervisor lives.
    Held(PathBuf),
    /// It could not be undone, and why.
    Failed(PathBuf, String),
}

/// The settings of an attempt, held until it is over.
pub(super) struct Hold {
    pending: Pending,
    file: PathBuf,
    gpus: Gpus,
    watcher: Child,
    /// None once it is released.
    locks: Option<Locks>,
}

/// What came of wanting to hold.
pub(super) enum Taken {
    /// The cards are set.
    Held(Box<Hold>),
    /// Another living process has set one of the cards.
    Elsewhere,
}

impl Hold {
    /// Sets the cards of a run.
    pub(super) fn take(bound: &Bound, asked: Settings, shim: &Shim) -> Result<Taken, EngineError> {
        let place = &shim.restore;
        place.make()?;
        let ours = |uuid: &str| bound.gpus.iter().any(|gpu| gpu.uuid == uuid);
        let Some(locks) = place.lock(bound.gpus.iter().map(|gpu| gpu.uuid.as_str()))? else {
            return Ok(Taken::Elsewhere);
        };
        let gpus = Gpus::load(bound.nvml.as_deref()).map_err(|error| HoldError::Silent(error.to_string()))?;
        let devices = gpus.devices().map_err(|error| HoldError::Silent(error.to_string()))?;
        for path in place.files()? {
            // What cannot be read may name one of these cards.
            let found = Pending::read(&path);
            let card = found.as_ref().map(|found| found.cards.iter().find(|card| ours(&card.gpu.uuid)));
            let gpu = match card {
                Ok(None) => continue,
                Ok(Some(card)) => card.gpu.index,
                Err(_) => bound.gpus.first().map_or(0, |gpu| gpu.index),
            };
            let others: Vec<String> = found.iter().flat_map(Pending::uuids).filter(|uuid| !ours(uuid)).collect();
            let Some(_others) = place.lock(others.iter().map(String::as_str))? else { return Ok(Taken::Elsewhere) };
            match undo_left(&path, Ok(&gpus))? {
                Some(Restored::Failed(_, why)) => return Err(HoldError::Unrestored { gpu, why }.into()),
                Some(Restored::Elsewhere(path)) => {
                    let why = format!("`{}` names it, but no GPU that is here", path.display());
                    return Err(HoldError::Unrestored { gpu, why }.into());
                }
                _ => {}
            }
        }
        for gpu in &bound.gpus {
            // What cannot be asked is not known to be free.
            match gpus.compute_processes(&gpu.uuid).map(|pids| pids.first().copied()) {
                Ok(None) => {}
                Ok(Some(pid)) => return Err(HoldError::InUse { gpu: gpu.index, pid }.into()),
                Err(why) => return Err(HoldError::Unseen { gpu: gpu.index, why }.into()),
            }
        }
        let pending = Pending::new(&gpus, &bound.gpus, devices.len(), asked)?;
        let file = pending.write_new(place)?;
        let watcher = match start_watcher(shim, bound.nvml.as_deref(), &file) {
            Ok(watcher) => watcher,
            Err(error) => {
                let _ = std::fs::remove_file(&file);
                return Err(HoldError::NoWatcher(error).into());
            }
        };
        // From here on its drop undoes whatever was done.
        let mut hold = Self { pending, file, gpus, watcher, locks: Some(locks) };
        for at in 0..bound.gpus.len() {
            for change in asked.changes() {
                // Before it is tried: whoever finds the file may be all that is left.
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

    /// What is recorded of it.
    pub(super) fn facts(&self) -> Table {
        let mut facts = Table::new();
        for (rank, card) in self.pending.cards.iter().enumerate() {
            if let Some(mw) = card.power_limit_mw {
                facts.insert(format!("gpu.{rank}.power_limit_before_w"), (f64::from(mw) / 1e3).into());
                // Read back: what was asked for is not what is recorded.
                let now = self.gpus.power_limit_mw(&card.gpu.uuid).map(|mw| f64::from(mw) / 1e3);
                facts.extend(now.ok().map(|watts| (format!("gpu.{rank}.power_limit_w"), watts.into())));
            }
        }
        facts.insert("hardware.set".to_owned(), true.into());
        facts
    }

    /// Undoes what was set. What went wrong is a warning, and the file stays for the next command.
    pub(super) fn release(mut self) -> Vec<Entry> {
        let told = self.undo();
        told.into_iter().map(Entry::Warning).collect()
    }

    /// What there is to say of it.
    fn undo(&mut self) -> Vec<String> {
        let Some(locks) = self.locks.take() else { return Vec::new() };
        let (mut told, undone) = self.pending.undo(&self.gpus);
        let wrong = match undone {
            Ok(()) => std::fs::remove_file(&self.file).err().map(|error| error.to_string()),
            Err(why) => {
                // What was undone is not to be undone again; without that it is, which does no harm to a limit.
                let _ = self.pending.write(&self.file);
                Some(why)
            }
        };
        drop(locks);
        // The end of the pipe is the watcher's sign; it finds nothing to do, or tries once more.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
        if let Some(why) = wrong.filter(|_| self.file.exists()) {
            told.push(format!(
                "what was set on the GPUs could not be undone: {why} (`ledger doctor --restore` tries again)"
            ));
        }
        told
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Nobody is left to tell; the file stays where it failed.
        let _ = self.undo();
    }
}

fn start_watcher(shim: &Shim, nvml: Option<&Path>, file: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(&shim.executable);
    command.arg("restorer").arg(file);
    if let Some(nvml) = nvml {
        command.arg("--nvml").arg(nvml);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut said = [0; READY.len()];
    let read = child.stdout.take().map_or(Ok(()), |mut stdout| stdout.read_exact(&mut said));
    if read.is_ok() && said == READY {
        return Ok(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(read.err().unwrap_or_else(|| std::io::Error::other("it said something else")))
}

/// What a watcher does: says that it is ready, waits for the end of its standard input, and undoes what the file names if that is
/// still there. The signals that end a process are to be caught by the caller.
///
/// # Errors
/// If the file cannot be read, or what it names cannot be undone; it stays then.
pub fn watch_settings(
    file: &Path,
    nvml: Option<&Path>,
    mut ended: impl Read,
    mut ready: impl Write,
) -> Result<(), EngineError> {
    let pending = Pending::read(file).map_err(HoldError::Silent)?;
    // Loaded while all is well: what is needed later is here by then.
    let gpus = Gpus::load(nvml).map_err(|error| HoldError::Silent(error.to_string()))?;
    let deaf = |error: std::io::Error| HoldError::Silent(error.to_string());
    ready.write_all(READY).and_then(|()| ready.flush()).map_err(deaf)?;
    let mut bytes = [0; 64];
    loop {
        match ended.read(&mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let Some(place) = file.parent().map(Place::at) else { return Ok(()) };
    let uuids = pending.uuids();
    while file.exists() {
        if let Some(_locks) = place.lock(uuids.iter().map(String::as_str))? {
            return match undo_left(file, Ok(&gpus))? {
                Some(Restored::Failed(_, why)) => Err(HoldError::Silent(why).into()),
                _ => Ok(()),
            };
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Undoes what supervisors that are gone have set on this machine's GPUs.
///
/// # Errors
/// If the folder cannot be read or locked.
pub fn restore(place: &Place, nvml: Option<&Path>) -> Result<Vec<Restored>, EngineError> {
    let paths = place.files()?;
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    // Always this process's own library: what a file names is not to be executed.
    let gpus = Gpus::load(nvml).map_err(|error| error.to_string());
    let mut all = Vec::new();
    for path in paths {
        let found = match Pending::read(&path) {
            Ok(found) => found,
            Err(_) if !path.exists() => continue,
            Err(why) => {
                all.push(Restored::Failed(path, why));
                continue;
            }
        };
        let uuids = found.uuids();
        match place.lock(uuids.iter().map(String::as_str))? {
            None => all.push(Restored::Held(path)),
            Some(_locks) => all.extend(undo_left(&path, gpus.as_ref().map_err(String::clone))?),
        }
    }
    Ok(all)
}

/// The files of settings that somebody holds or has left behind.
///
/// # Errors
/// If the folder cannot be read.
pub fn held(place: &Place) -> Result<Vec<PathBuf>, EngineError> {
    Ok(place.files()?)
}

/// Whether another living process has set one of these cards.
pub(super) fn is_busy(place: &Place, gpus: &[GpuInfo]) -> Result<bool, HoldError> {
    Ok(place.folder().is_dir() && place.lock(gpus.iter().map(|gpu| gpu.uuid.as_str()))?.is_none())
}

/// The file that says that one of these cards is set, by another attempt or by one that left it so.
pub(super) fn left_on(place: &Place, gpus: &[GpuInfo]) -> Option<PathBuf> {
    let names = |path: &PathBuf| {
        let found = Pending::read(path);
        found.is_ok_and(|found| found.cards.iter().any(|card| gpus.iter().any(|gpu| gpu.uuid == card.gpu.uuid)))
    };
    place.files().unwrap_or_default().into_iter().find(names)
}

/// Undoes what a file names whose cards are locked by this process; none if it is gone.
fn undo_left(path: &Path, gpus: Result<&Gpus, String>) -> Result<Option<Restored>, EngineError> {
    let here = owner::this_owner()?;
    let mut found = match Pending::read(path) {
        Ok(found) => found,
        Err(_) if !path.exists() => return Ok(None),
        Err(why) => return Ok(Some(Restored::Failed(path.to_owned(), why))),
    };
    let forgotten = found.boot_id != here.boot_id;
    if forgotten {
        // Either this machine was started anew since, or the folder is shared and the cards are another machine's.
        let devices = gpus.as_ref().ok().and_then(|gpus| gpus.devices().ok()).unwrap_or_default();
        let is_here = |uuid: &String| devices.iter().any(|gpu| gpu.uuid == *uuid);
        if !found.uuids().iter().any(is_here) {
            return Ok(Some(Restored::Elsewhere(path.to_owned())));
        }
    }
    let (told, undone) = match gpus {
        _ if forgotten => (Vec::new(), Ok(())),
        Ok(gpus) => found.undo(gpus),
        Err(why) => (Vec::new(), Err(why)),
    };
    let done = undone.and_then(|()| std::fs::remove_file(path).map_err(|error| error.to_string()));
    Ok(Some(match done {
        Err(why) => {
            let _ = found.write(path);
            Restored::Failed(path.to_owned(), why)
        }
        Ok(()) if forgotten => Restored::Forgotten(path.to_owned()),
        Ok(()) => {
            let cards: Vec<String> = found.cards.iter().map(|card| format!("GPU {}", card.gpu.index)).collect();
            let told: String = told.iter().map(|told| format!("; {told}")).collect();
            Restored::Undone(format!("{}, set by process {}{told}", cards.join(", "), found.pid))
        }
    }))
}
