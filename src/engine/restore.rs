//! Restores GPU settings after their supervisor is gone. This is done by the watcher that each supervisor starts, by
//! the next command, and by `ledger doctor --restore`.
//!
//! Works on files of a [`Place`], each with the GPUs that it names locked. [`Pending`] knows the content of the files.

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

/// The message of a watcher that is ready.
const READY: &[u8] = b"ready\n";
/// The interval at which a watcher tries to lock its GPUs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The result for a file of changed settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The old settings are restored.
    Undone(String),
    /// The machine was rebooted since: there is nothing to undo.
    Forgotten(PathBuf),
    /// The GPUs are on another machine.
    Elsewhere(PathBuf),
    /// The file has another boot id, and the driver does not answer, so it is unknown whether the GPUs are on this
    /// machine.
    Unasked(PathBuf),
    /// The supervisor is alive.
    Held(PathBuf),
    /// The settings could not be restored, and why.
    Failed(PathBuf, String),
    /// The file cannot be read, so its changes are unknown.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The file, and why.
        why: String,
        /// Whether it is older than this machine's boot. Then its settings are no longer in effect.
        is_old: bool,
    },
}

impl Restored {
    fn unreadable(path: &Path, why: String) -> Self {
        Self::Unreadable { file: path.to_owned(), why, is_old: Pending::is_of_earlier_boot(path) }
    }
}

/// Starts a watcher of a file, and waits until it is ready.
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

/// The main function of a watcher: reports that it is ready, waits for the end of its standard input, and restores the
/// settings in the file if that still exists. The caller must catch the signals that end a process.
///
/// # Errors
/// If the file cannot be read, or the settings cannot be restored. The file stays then.
pub fn watch_settings(
    file: &Path,
    nvml: Option<&Path>,
    mut ended: impl Read,
    mut ready: impl Write,
) -> Result<(), EngineError> {
    let pending = Pending::read(file).map_err(HoldError::Silent)?;
    // Loaded now, so that restoring needs no library that may be gone by then.
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

/// Restores the settings of this machine's GPUs that dead supervisors have changed.
///
/// # Errors
/// If the folder cannot be read or locked.
pub fn restore(place: &Place, nvml: Option<&Path>) -> Result<Vec<Restored>, EngineError> {
    let paths = place.files()?;
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    // Always this process's own library, never one that a file names.
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

/// A file of changed GPU settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The file.
    pub file: PathBuf,
    /// Its state.
    pub state: HeldState,
}

/// The state of a file of changed settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldState {
    /// Its owner is alive.
    Lives,
    /// Its supervisor is gone, and its settings may be in effect.
    Left,
    /// This machine was rebooted since: its settings are no longer in effect.
    Forgotten,
    /// It names GPUs of another machine.
    Elsewhere,
    /// It is of another machine or an earlier boot of this one. The driver does not answer, so the GPUs of this machine
    /// are unknown.
    Unasked,
    /// It cannot be read.
    Unreadable {
        /// The file, and why.
        why: String,
        /// Whether it is older than this machine's boot. Then its settings are no longer in effect.
        is_old: bool,
    },
}

/// Lists the files of changed settings, with and without a living owner. `nvml` is the path of NVML if it is not the
/// usual one.
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

/// Whether any GPU in a file belongs to this machine. `None` if the driver does not list all GPUs.
fn is_here(found: &Pending, gpus: &Gpus) -> Option<bool> {
    let devices = gpus.devices().ok()?;
    let named = found.uuids();
    if devices.iter().flatten().any(|gpu| named.contains(&gpu.uuid)) {
        return Some(true);
    }
    // A GPU that does not answer may be the one.
    devices.iter().all(Result::is_ok).then_some(false)
}

/// Restores the settings in a file whose GPUs this process has locked. `None` if the file is gone.
pub(super) fn undo_left(path: &Path, gpus: Result<&Gpus, String>) -> Result<Option<Restored>, EngineError> {
    let here = owner::this_owner()?;
    let mut found = match Pending::read(path) {
        Ok(found) => found,
        Err(_) if !path.exists() => return Ok(None),
        Err(why) => return Ok(Some(Restored::unreadable(path, why))),
    };
    let forgotten = found.boot_id != here.boot_id;
    if forgotten {
        // Either this machine was rebooted since, or the folder is shared and the GPUs belong to another machine.
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
