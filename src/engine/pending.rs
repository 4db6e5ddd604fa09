//! The file of changed GPU settings, from which any process can undo them: the GPUs, their old settings, and the
//! attempted changes.

use super::hold_error::HoldError;
use super::place::Place;
use super::zeusd::Zeusd;
use crate::gpu::{Change, ChangeError, GpuInfo, Gpus, Settings};
use crate::host::{HostError, files, machine, owner};
use crate::record::{Table, Value};
use crate::wire::{from_json, to_json_text};
use std::path::{Path, PathBuf};

/// Power limits that differ by no more than this are equal, in milliwatts, because drivers may round.
const SAME_MW: u32 = 500;

/// One GPU and the changes to undo on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Card {
    pub(super) gpu: GpuInfo,
    /// The old power limit.
    pub(super) power_limit_mw: Option<u32>,
    /// The settings that were changed or may have been.
    pub(super) made: Settings,
}

/// The content of the file, written before the first change and at each change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    /// The boot id of the machine, which is the same in all its containers.
    pub(super) boot_id: String,
    /// The process, as information for people.
    pub(super) pid: u32,
    pub(super) cards: Vec<Card>,
    /// The number of GPUs that this process sees.
    gpus: usize,
}

/// A change was not made, or may not have been made.
pub(super) struct Unmade {
    pub(super) why: HoldError,
    /// Whether it is certain that nothing was changed.
    pub(super) for_certain: bool,
}

impl Pending {
    /// For GPUs without changes so far.
    pub(super) fn new(
        gpus: &Gpus,
        cards: &[GpuInfo],
        count: usize,
        asked: Settings,
    ) -> Result<Self, super::EngineError> {
        let owner = owner::this_owner()?;
        let card = |gpu: &GpuInfo| {
            let limit = asked.power_limit_mw.map(|_| gpus.power_limit_mw(&gpu.uuid)).transpose();
            let power_limit_mw = limit.map_err(|why| HoldError::Refused {
                change: "asking for the power limit".to_owned(),
                gpu: gpu.index,
                why,
            })?;
            Ok::<_, HoldError>(Card { gpu: gpu.clone(), power_limit_mw, made: Settings::default() })
        };
        let cards = cards.iter().map(card).collect::<Result<_, _>>()?;
        Ok(Self { boot_id: owner.boot_id, pid: owner.pid, cards, gpus: count })
    }

    /// The UUIDs of the GPUs.
    pub(super) fn uuids(&self) -> Vec<String> {
        self.cards.iter().map(|card| card.gpu.uuid.clone()).collect()
    }

    /// Makes a change through NVML, or through zeusd if this user lacks the privilege.
    pub(super) fn make(&self, gpus: &Gpus, at: usize, change: Change) -> Result<(), Unmade> {
        let gpu = &self.cards[at].gpu;
        let (what, index) = (change.to_string(), gpu.index);
        let refused = |why: String, for_certain: bool| {
            Err(Unmade { why: HoldError::Refused { change: what.clone(), gpu: index, why }, for_certain })
        };
        match gpus.change(&gpu.uuid, change) {
            Ok(()) => Ok(()),
            Err(ChangeError::Refused(why)) => refused(why, true),
            Err(ChangeError::Unclear(why)) => refused(why, false),
            Err(error @ ChangeError::NoPermission) => {
                let (said, for_certain) = match Zeusd::find() {
                    None => ("no zeusd listens here (ZEUSD_SOCK_PATH names its socket)".to_owned(), true),
                    Some(zeusd) => match zeusd.change(gpu, self.gpus, change) {
                        Ok(()) => return Ok(()),
                        Err(why) => (format!("zeusd at `{}`: {why}", zeusd.socket.display()), why.for_certain),
                    },
                };
                let why = format!("{error}; {said}");
                Err(Unmade { why: HoldError::NoPrivilege { change, gpu: index, why }, for_certain })
            }
        }
    }

    /// Undoes all changes as far as possible, and removes them from the file. So a change is not undone again on a GPU
    /// that another process may have set since. Returns messages, and the first change that could not be undone as an
    /// error.
    pub(super) fn undo(&mut self, gpus: &Gpus, file: &Path) -> (Vec<String>, Result<(), String>) {
        let (mut told, mut wrong) = (Vec::new(), Ok(()));
        for at in 0..self.cards.len() {
            let card = self.cards[at].clone();
            for change in card.made.undoing(card.power_limit_mw) {
                let undone = match change {
                    Change::PowerLimit(_) => match gpus.power_limit_mw(&card.gpu.uuid) {
                        Err(why) => Err(format!("the power limit of GPU {} cannot be read: {why}", card.gpu.index)),
                        Ok(now) if card.made.power_limit_mw.is_some_and(|made| made.abs_diff(now) <= SAME_MW) => {
                            self.make(gpus, at, change).map_err(|unmade| unmade.why.to_string())
                        }
                        Ok(now) => {
                            // The limit was never set, is restored already, or was set by another process since.
                            if card.power_limit_mw != Some(now) {
                                let watts = f64::from(now) / 1e3;
                                let text = format!(
                                    "GPU {} keeps its power limit of {watts} W, which another process has set meanwhile",
                                    card.gpu.index
                                );
                                told.push(text);
                            }
                            Ok(())
                        }
                    },
                    _ => self.make(gpus, at, change).map_err(|unmade| unmade.why.to_string()),
                };
                match undone {
                    Ok(()) => {
                        self.cards[at].made.forget(change);
                        if self.cards.iter().any(|card| card.made != Settings::default()) {
                            // If this fails, the limit may be restored twice, which does no harm.
                            let _ = self.write(file);
                        }
                    }
                    Err(why) => wrong = wrong.and(Err(why)),
                }
            }
        }
        (told, wrong)
    }

    /// Writes a new file.
    pub(super) fn write_new(&self, place: &Place) -> Result<PathBuf, HostError> {
        let file = place.folder().join(format!("{}.json", files::random_nonce()?));
        self.write(&file)?;
        Ok(file)
    }

    /// Replaces the content of the file.
    pub(super) fn write(&self, file: &Path) -> Result<(), HostError> {
        files::write_whole(file, to_json_text(&self.to_value()).as_bytes())
    }

    /// Reads a file.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("`{}`: {error}", file.display()))?;
        let value = from_json(&text).ok();
        let found = value.as_ref().and_then(Self::of_value);
        found.ok_or_else(|| format!("`{}` is damaged or of a newer ledger", file.display()))
    }

    /// Whether a file was written before this machine was booted. Then its settings are no longer in effect, even if it
    /// cannot be read.
    pub(super) fn is_of_earlier_boot(file: &Path) -> bool {
        let written = std::fs::symlink_metadata(file).and_then(|found| found.modified()).ok();
        written.zip(machine::booted()).is_some_and(|(written, booted)| written < booted)
    }

    fn to_value(&self) -> Value {
        let table = |pairs: Vec<(&str, Value)>| -> Value {
            Value::Table(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        let made = |made: Settings| {
            let all = [
                ("power_limit_mw", made.power_limit_mw),
                ("sm_clock_mhz", made.sm_clock_mhz),
                ("memory_clock_mhz", made.memory_clock_mhz),
            ];
            table(all.into_iter().filter_map(|(name, value)| Some((name, value?.into()))).collect())
        };
        let cards = self.cards.iter().map(|card| {
            let mut pairs = vec![
                ("index", card.gpu.index.into()),
                ("name", card.gpu.name.as_str().into()),
                ("uuid", card.gpu.uuid.as_str().into()),
                ("pci_bus_id", card.gpu.pci_bus_id.as_str().into()),
                ("made", made(card.made)),
            ];
            pairs.extend(card.power_limit_mw.map(|mw| ("power_limit_mw", mw.into())));
            table(pairs)
        });
        table(vec![
            ("format", Value::Int(1)),
            ("boot_id", self.boot_id.as_str().into()),
            ("pid", self.pid.into()),
            ("gpus", self.gpus.into()),
            ("cards", Value::List(cards.collect())),
        ])
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
                memory_total_bytes: None,
                mig: false,
                pci_bus_id: text(card, "pci_bus_id")?,
            };
            let made = card.get("made")?.as_table()?;
            let made = Settings {
                power_limit_mw: number(made, "power_limit_mw"),
                sm_clock_mhz: number(made, "sm_clock_mhz"),
                memory_clock_mhz: number(made, "memory_clock_mhz"),
            };
            Some(Card { gpu, power_limit_mw: number(card, "power_limit_mw"), made })
        };
        Some(Self {
            boot_id: text(table, "boot_id")?,
            pid: number(table, "pid")?,
            cards: cards.iter().map(card).collect::<Option<_>>()?,
            gpus: usize::try_from(number(table, "gpus")?).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_read_again() {
        let gpu = GpuInfo {
            index: 3,
            name: "NVIDIA H200".into(),
            uuid: "GPU-1".into(),
            memory_total_bytes: None,
            mig: false,
            pci_bus_id: "00000000:3B:00.0".into(),
        };
        let made = Settings { power_limit_mw: Some(300_000), sm_clock_mhz: None, memory_clock_mhz: Some(3201) };
        let card = Card { gpu, power_limit_mw: Some(650_000), made };
        let untouched = Card { made: Settings::default(), power_limit_mw: None, ..card.clone() };
        let pending = Pending { boot_id: "b".into(), pid: 7, cards: vec![card, untouched], gpus: 8 };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.json");
        pending.write(&file).unwrap();
        assert_eq!(Pending::read(&file).unwrap(), pending);
        std::fs::write(&file, to_json_text(&pending.to_value()).replace("\"format\": 1", "\"format\": 2")).unwrap();
        assert!(Pending::read(&file).unwrap_err().contains("of a newer ledger"));
    }
}
