//! Holds what an attempt has set on its GPUs, and gives it back however the attempt ends.
//!
//! Before the first change, what has to be undone is written to a file of the ledger (`restore/`), and a watcher is started: this
//! program by a hidden command, in a process group of its own, with a pipe from the supervisor. Whoever is there undoes the changes:
//!
//! - the supervisor, when the attempt is over, when it fails, is interrupted or panics;
//! - the watcher, when the pipe ends and the file is still there: the supervisor was killed;
//! - the next command that opens the ledger, and `ledger doctor --restore`, when both were killed.
//!
//! Undoing twice does no harm; a lock on the folder keeps two of them from doing it at once. Cards forget what was set when the machine
//! starts anew, so that files of an earlier boot are only removed.

use super::EngineError;
use super::bind::Bound;
use super::worker::Shim;
use super::zeusd::Zeusd;
use crate::gpu::{Change, ChangeError, GpuInfo, Gpus, Settings};
use crate::host::{files, owner};
use crate::journal::Gate;
use crate::record::{Entry, Owner, Table, Value};
use crate::store::Store;
use crate::wire::{from_json, to_json_text};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The word that a watcher says once it is ready.
const READY: &[u8] = b"ready\n";

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
    /// It is of another host.
    Elsewhere(PathBuf),
    /// Its supervisor lives.
    Held(PathBuf),
    /// It could not be undone, and why.
    Failed(PathBuf, String),
}

/// One card and what has to be undone on it.
#[derive(Clone, Debug, PartialEq)]
struct Before {
    gpu: GpuInfo,
    power_limit_mw: Option<u32>,
}

/// What is written down before anything is set.
#[derive(Clone, Debug, PartialEq)]
struct Pending {
    owner: Owner,
    asked: Settings,
    cards: Vec<Before>,
    library: Option<PathBuf>,
    /// How many GPUs the machine has, as this process sees it.
    gpus: usize,
}

/// The settings of an attempt, held until it is over.
pub(super) struct Hold {
    pending: Pending,
    file: PathBuf,
    gpus: Gpus,
    watcher: Child,
    /// What was really done, by the card's place.
    made: Vec<(usize, Change)>,
    released: bool,
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
    pub(super) fn take(store: &Store, bound: &Bound, asked: Settings, shim: &Shim) -> Result<Taken, EngineError> {
        let folder = folder(store);
        let gate = Gate::enter(&folder)?;
        for (path, found) in pending_in(&folder)? {
            let Ok(found) = found else { continue };
            let shared = found.cards.iter().find(|card| bound.gpus.iter().any(|gpu| gpu.uuid == card.gpu.uuid));
            let Some(card) = shared else { continue };
            match undo_left(&path, &found)? {
                Restored::Held(_) => return Ok(Taken::Elsewhere),
                Restored::Failed(_, why) => return Err(HoldError::Unrestored { gpu: card.gpu.index, why }.into()),
                _ => {}
            }
        }
        let gpus = Gpus::load(bound.nvml.as_deref()).map_err(|error| HoldError::Silent(error.to_string()))?;
        let count = gpus.devices().map_err(|error| HoldError::Silent(error.to_string()))?.len();
        let mut cards = Vec::new();
        for gpu in &bound.gpus {
            // What cannot be asked is not known to be in use.
            if let Some(pid) = gpus.compute_processes(&gpu.uuid).unwrap_or_default().first() {
                return Err(HoldError::InUse { gpu: gpu.index, pid: *pid }.into());
            }
            let limit = asked.power_limit_mw.map(|_| gpus.power_limit_mw(&gpu.uuid)).transpose();
            let power_limit_mw = limit.map_err(|why| HoldError::Refused {
                change: "asking for the power limit".to_owned(),
                gpu: gpu.index,
                why,
            })?;
            cards.push(Before { gpu: gpu.clone(), power_limit_mw });
        }
        let owner = owner::this_owner()?;
        let pending = Pending { owner, asked, cards, library: bound.nvml.clone(), gpus: count };
        let file = folder.join(format!("{}.json", files::random_nonce()?));
        files::write_whole(&file, to_json_text(&pending.to_value()).as_bytes())?;
        let watcher = match start_watcher(shim, &file) {
            Ok(watcher) => watcher,
            Err(error) => {
                let _ = std::fs::remove_file(&file);
                return Err(HoldError::NoWatcher(error).into());
            }
        };
        // From here on its drop undoes whatever was done.
        let mut hold = Self { pending, file, gpus, watcher, made: Vec::new(), released: false };
        drop(gate);
        for (place, gpu) in bound.gpus.iter().enumerate() {
            for change in asked.changes() {
                hold.pending.make(&hold.gpus, gpu, change)?;
                hold.made.push((place, change));
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
        let wrong = self.undo();
        wrong
            .map(|why| {
                Entry::Warning(format!(
                    "what was set on the GPUs could not be undone: {why} (`ledger doctor --restore` tries again)"
                ))
            })
            .into_iter()
            .collect()
    }

    fn undo(&mut self) -> Option<String> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        let gate = self.file.parent().map(Gate::enter);
        let wrong = match self
            .pending
            .undo(&self.gpus, |place, undo| self.made.iter().any(|(at, change)| *at == place && undo.undoes(*change)))
        {
            Ok(()) => std::fs::remove_file(&self.file).err().map(|error| error.to_string()),
            Err(why) => Some(why),
        };
        drop(gate);
        // The end of the pipe is the watcher's sign; it finds nothing to do, or tries once more.
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
        wrong
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Nobody is left to tell; the file stays where it failed.
        let _ = self.undo();
    }
}

impl Pending {
    /// Makes a change through NVML, or through zeusd where this user may not.
    fn make(&self, gpus: &Gpus, gpu: &GpuInfo, change: Change) -> Result<(), HoldError> {
        let (what, index) = (change.to_string(), gpu.index);
        match gpus.change(&gpu.uuid, change) {
            Ok(()) => Ok(()),
            Err(ChangeError::Refused(why)) => Err(HoldError::Refused { change: what, gpu: index, why }),
            Err(error @ ChangeError::NoPermission) => {
                let said = match Zeusd::find() {
                    None => "no zeusd listens here (ZEUSD_SOCK_PATH names its socket)".to_owned(),
                    Some(zeusd) => match zeusd.change(gpu, self.gpus, change) {
                        Ok(()) => return Ok(()),
                        Err(why) => format!("zeusd at `{}`: {why}", zeusd.socket().display()),
                    },
                };
                Err(HoldError::NoPrivilege { change: what, gpu: index, why: format!("{error}; {said}") })
            }
        }
    }

    /// Undoes all that was made, as far as it can be undone; an error is the first thing that could not.
    fn undo(&self, gpus: &Gpus, was_made: impl Fn(usize, Change) -> bool) -> Result<(), String> {
        let mut wrong = Ok(());
        for (place, card) in self.cards.iter().enumerate() {
            for change in self.asked.undoing(card.power_limit_mw) {
                if was_made(place, change)
                    && let Err(error) = self.make(gpus, &card.gpu, change)
                {
                    wrong = wrong.and(Err(error.to_string()));
                }
            }
        }
        wrong
    }

    fn to_value(&self) -> Value {
        let table = |pairs: Vec<(&str, Value)>| -> Value {
            Value::Table(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        let cards = self.cards.iter().map(|card| {
            let mut pairs = vec![
                ("index", card.gpu.index.into()),
                ("name", card.gpu.name.as_str().into()),
                ("uuid", card.gpu.uuid.as_str().into()),
                ("pci_bus_id", card.gpu.pci_bus_id.as_str().into()),
            ];
            pairs.extend(card.power_limit_mw.map(|mw| ("power_limit_mw", mw.into())));
            table(pairs)
        });
        let mut pairs = vec![
            ("format", Value::Int(1)),
            ("host", self.owner.host.as_str().into()),
            ("boot_id", self.owner.boot_id.as_str().into()),
            ("pid", self.owner.pid.into()),
            ("start_ticks", self.owner.start_ticks.to_string().into()),
            ("gpus", Value::Int(i64::try_from(self.gpus).unwrap_or(i64::MAX))),
            ("cards", Value::List(cards.collect())),
        ];
        let asked = [
            ("power_limit_mw", self.asked.power_limit_mw),
            ("sm_clock_mhz", self.asked.sm_clock_mhz),
            ("memory_clock_mhz", self.asked.memory_clock_mhz),
        ];
        pairs.extend(asked.into_iter().filter_map(|(name, value)| Some((name, value?.into()))));
        pairs.extend(self.library.as_ref().map(|path| ("library", path.to_string_lossy().as_ref().into())));
        table(pairs)
    }

    fn of_value(value: &Value) -> Option<Self> {
        let table = value.as_table()?;
        let text = |table: &Table, name: &str| table.get(name).and_then(Value::as_str).map(str::to_owned);
        let number =
            |table: &Table, name: &str| table.get(name).and_then(Value::as_int).and_then(|n| u32::try_from(n).ok());
        if number(table, "format") != Some(1) {
            return None;
        }
        let Some(Value::List(cards)) = table.get("cards") else { return None };
        let card = |card: &Value| {
            let card = card.as_table()?;
            let gpu = GpuInfo {
                index: number(card, "index")?,
                name: text(card, "name")?,
                uuid: text(card, "uuid")?,
                memory_total_bytes: 0,
                mig: false,
                pci_bus_id: text(card, "pci_bus_id")?,
            };
            Some(Before { gpu, power_limit_mw: number(card, "power_limit_mw") })
        };
        Some(Self {
            owner: Owner {
                host: text(table, "host")?,
                boot_id: text(table, "boot_id")?,
                pid: number(table, "pid")?,
                start_ticks: text(table, "start_ticks")?.parse().ok()?,
            },
            asked: Settings {
                power_limit_mw: number(table, "power_limit_mw"),
                sm_clock_mhz: number(table, "sm_clock_mhz"),
                memory_clock_mhz: number(table, "memory_clock_mhz"),
            },
            cards: cards.iter().map(card).collect::<Option<_>>()?,
            library: text(table, "library").map(PathBuf::from),
            gpus: usize::try_from(number(table, "gpus")?).ok()?,
        })
    }
}

fn folder(store: &Store) -> PathBuf {
    store.dir().join("restore")
}

fn start_watcher(shim: &Shim, file: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(&shim.executable);
    command.arg("restorer").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A Ctrl-C of the terminal is not for it.
    let mut child = command.process_group(0).spawn()?;
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
/// If the file cannot be read at the beginning, or what it names cannot be undone; it stays then.
pub fn watch_settings(file: &Path, mut ended: impl Read, mut ready: impl Write) -> Result<(), EngineError> {
    let pending = read(file).map_err(HoldError::Silent)?;
    // Loaded while all is well: what is needed later is here by then.
    let gpus = Gpus::load(pending.library.as_deref()).map_err(|error| HoldError::Silent(error.to_string()))?;
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
    let Some(folder) = file.parent() else { return Ok(()) };
    let _gate = Gate::enter(folder)?;
    if file.exists() {
        pending.undo(&gpus, |_, _| true).map_err(HoldError::Silent)?;
        // If it cannot be removed, the next command undoes once more.
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}

/// Undoes what supervisors that are gone have set on this machine's GPUs.
///
/// # Errors
/// If the folder cannot be read or locked.
pub fn restore(store: &Store) -> Result<Vec<Restored>, EngineError> {
    let folder = folder(store);
    if pending_in(&folder)?.is_empty() {
        return Ok(Vec::new());
    }
    let _gate = Gate::enter(&folder)?;
    let found = pending_in(&folder)?.into_iter().map(|(path, found)| match found {
        Ok(found) => undo_left(&path, &found),
        Err(why) => Ok(Restored::Failed(path, why)),
    });
    found.collect()
}

/// The files of settings that somebody holds or has left behind.
///
/// # Errors
/// If the folder cannot be read.
pub fn held(store: &Store) -> Result<Vec<PathBuf>, EngineError> {
    Ok(pending_in(&folder(store))?.into_iter().map(|(path, _)| path).collect())
}

fn undo_left(path: &Path, found: &Pending) -> Result<Restored, EngineError> {
    let here = owner::this_owner()?;
    match owner::liveness(&found.owner)? {
        owner::Liveness::Elsewhere => return Ok(Restored::Elsewhere(path.to_owned())),
        owner::Liveness::Alive => return Ok(Restored::Held(path.to_owned())),
        owner::Liveness::Gone => {}
    }
    let remove = || std::fs::remove_file(path).map_err(|error| error.to_string());
    let forgotten = found.owner.boot_id != here.boot_id;
    let done = if forgotten {
        remove()
    } else {
        let gpus = Gpus::load(found.library.as_deref()).map_err(|error| error.to_string());
        gpus.and_then(|gpus| found.undo(&gpus, |_, _| true)).and_then(|()| remove())
    };
    Ok(match done {
        Err(why) => Restored::Failed(path.to_owned(), why),
        Ok(()) if forgotten => Restored::Forgotten(path.to_owned()),
        Ok(()) => {
            let cards: Vec<String> = found.cards.iter().map(|card| format!("GPU {}", card.gpu.index)).collect();
            Restored::Undone(format!("{}, set by process {}", cards.join(", "), found.owner.pid))
        }
    })
}

fn read(path: &Path) -> Result<Pending, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    let value = from_json(&text).ok();
    let found = value.as_ref().and_then(Pending::of_value);
    found.ok_or_else(|| format!("`{}` is damaged or of a newer ledger", path.display()))
}

type Found = Vec<(PathBuf, Result<Pending, String>)>;

fn pending_in(folder: &Path) -> Result<Found, EngineError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let named = files::beginning(folder, "", ".json")?;
    Ok(named.into_iter().map(|(_, path)| (path.clone(), read(&path))).collect())
}
