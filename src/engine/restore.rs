//! Undoes what was set on GPUs when its supervisor is gone: the watcher that each supervisor starts, the next command, and
//! `ledger doctor --restore`.
//!
//! Works on files of a [`Place`], each under the locks of the cards that it names; what a file says is [`Pending`]'s to know.

use super::EngineError;
use super::hold_error::HoldError;
use super::pending::Pending;
use super::place::Place;
use super::worker::Shim;
use crate::gpu::Gpus;
use crate::host::owner;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The word that a watcher says once it is ready.
const READY: &[u8] = b"ready\n";
/// How often a watcher looks whether whoever has locked its cards is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What became of a file of settings that somebody left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The cards are as they were before.
    Undone(String),
    /// Its machine was started anew since: there is nothing to undo.
    Forgotten(PathBuf),
    /// Its cards are on another machine.
    Elsewhere(PathBuf),
    /// It is of another start of a machine, and which cards are here is not known: the driver does not answer.
    Unasked(PathBuf),
    /// Its supervisor lives.
    Held(PathBuf),
    /// It could not be undone, and why.
    Failed(PathBuf, String),
    /// It cannot be read, so that nobody knows what is to be undone.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Which file, and why.
        why: String,
        /// Whether it is older than this machine's start: no card here is set as it says.
        is_old: bool,
    },
}

impl Restored {
    fn unreadable(path: &Path, why: String) -> Self {
        Self::Unreadable { file: path.to_owned(), why, is_old: Pending::is_of_earlier_boot(path) }
    }
}

/// Starts a watcher of a file, and waits until it says that it is ready.
pub(super) fn start_watcher(shim: &Shim, nvml: Option<&Path>, file: &Path) -> std::io::Result<Child> {
    let mut command = shim.command();
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
    let Some(place) = Place::of(file) else { return Ok(()) };
    let uuids = pending.uuids();
    while file.exists() {
        if let Some(_locks) = place.lock(uuids.iter().map(String::as_str))? {
            return match undo_left(file, Ok(&gpus))? {
                Some(Restored::Failed(_, why) | Restored::Unreadable { why, .. }) => Err(HoldError::Silent(why).into()),
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
                all.push(Restored::unreadable(&path, why));
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

/// A file of what was set on GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The file.
    pub file: PathBuf,
    /// What it says of the GPUs that are here.
    pub state: HeldState,
}

/// What a file of settings says of the GPUs that are here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// Somebody who lives looks after it.
    Lives,
    /// Its supervisor is gone, and what it names may be set.
    Left,
    /// This machine was started anew since: nothing is set as it says.
    Forgotten,
    /// It names GPUs of another machine.
    Elsewhere,
    /// It is of another machine or of an earlier start of this one, and the driver, which would tell the GPUs that are here, does not answer.
    Unasked,
    /// It cannot be read.
    Unreadable {
        /// Which file, and why.
        why: String,
        /// Whether it is older than this machine's start, so that no card here is set as it says.
        is_old: bool,
    },
}

/// The files of settings that somebody holds or has left behind. `nvml` is the driver's library where it is not the usual one.
///
/// # Errors
/// If the folder cannot be read or its locks cannot be opened.
pub fn held(place: &Place, nvml: Option<&Path>) -> Result<Vec<Held>, EngineError> {
    let here = owner::this_owner()?;
    let mut all = Vec::new();
    for file in place.files()? {
        let state = match Pending::read(&file) {
            Ok(found) if place.is_busy(found.uuids().iter().map(String::as_str))? => HeldState::Lives,
            Ok(found) if found.boot_id == here.boot_id => HeldState::Left,
            Ok(found) => match Gpus::load(nvml).ok().as_ref().and_then(|gpus| is_here(&found, gpus)) {
                Some(true) => HeldState::Forgotten,
                Some(false) => HeldState::Elsewhere,
                None => HeldState::Unasked,
            },
            Err(_) if !file.exists() => continue,
            Err(why) => HeldState::Unreadable { why, is_old: Pending::is_of_earlier_boot(&file) },
        };
        all.push(Held { file, state });
    }
    Ok(all)
}

/// Whether any card that a file names is one of this machine's; none where the driver does not tell.
fn is_here(found: &Pending, gpus: &Gpus) -> Option<bool> {
    let devices = gpus.devices().ok()?;
    let named = found.uuids();
    if devices.iter().flatten().any(|gpu| named.contains(&gpu.uuid)) {
        return Some(true);
    }
    // One that does not answer may be the one.
    devices.iter().all(Result::is_ok).then_some(false)
}

/// Undoes what a file names whose cards are locked by this process; none if it is gone.
pub(super) fn undo_left(path: &Path, gpus: Result<&Gpus, String>) -> Result<Option<Restored>, EngineError> {
    let here = owner::this_owner()?;
    let mut found = match Pending::read(path) {
        Ok(found) => found,
        Err(_) if !path.exists() => return Ok(None),
        Err(why) => return Ok(Some(Restored::unreadable(path, why))),
    };
    let forgotten = found.boot_id != here.boot_id;
    if forgotten {
        // Either this machine was started anew since, or the folder is shared and the cards are another machine's.
        match gpus.as_ref().ok().and_then(|gpus| is_here(&found, gpus)) {
            None => return Ok(Some(Restored::Unasked(path.to_owned()))),
            Some(false) => return Ok(Some(Restored::Elsewhere(path.to_owned()))),
            Some(true) => {}
        }
    }
    let (told, undone) = match gpus {
        _ if forgotten => (Vec::new(), Ok(())),
        Ok(gpus) => found.undo(gpus, path),
        Err(why) => (Vec::new(), Err(why)),
    };
    let done = undone.and_then(|()| std::fs::remove_file(path).map_err(|error| error.to_string()));
    Ok(Some(match done {
        Err(why) => Restored::Failed(path.to_owned(), why),
        Ok(()) if forgotten => Restored::Forgotten(path.to_owned()),
        Ok(()) => {
            let cards: Vec<String> = found.cards.iter().map(|card| format!("GPU {}", card.gpu.index)).collect();
            let told: String = told.iter().map(|told| format!("; {told}")).collect();
            Restored::Undone(format!("{}, set by process {}{told}", cards.join(", "), found.pid))
        }
    }))
}
