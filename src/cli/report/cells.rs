//! The cells of manifests as they were written, and the runs that are of them.
//!
//! Nothing is bound: a report is made where neither the GPUs nor the data of its runs are. What binding decides, the device that `auto` takes, the
//! number of its GPUs, and the data's digest, is taken as the run has it.

use crate::manifest::Manifest;
use crate::record::{Cell, Digest, Run, Table, Value};
use std::collections::{BTreeMap, BTreeSet};

const DEVICE: &str = "hardware.device";
const GPUS: &str = "hardware.gpus";
/// Fields of a run that its cell may leave open.
const BOUND: [&str; 3] = [DEVICE, GPUS, "data.digest"];

/// The device and the number of GPUs that a cell asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    device: String,
    gpus: Option<i64>,
}

/// A cell, by all that it states and its seed, and what it asks for.
pub(super) type CellId = ((Digest, u64), usize);

/// The cells of manifests, each once.
pub(super) struct Cells(BTreeMap<(Digest, u64), BTreeSet<Asked>>);

impl Cells {
    pub(super) fn of(manifests: &[Manifest]) -> Self {
        let mut cells: BTreeMap<(Digest, u64), BTreeSet<Asked>> = BTreeMap::new();
        for cell in manifests.iter().flat_map(|manifest| &manifest.cells) {
            cells.entry(key(&cell.config, cell.seed)).or_default().insert(asked(cell));
        }
        Self(cells)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// The cells that a run is of: several, where one leaves the device open.
    pub(super) fn of_run(&self, run: &Run) -> Vec<CellId> {
        let key = key(run.config(), run.parts.seed);
        let Some(asked) = self.0.get(&key) else { return Vec::new() };
        let fitting = asked.iter().enumerate().filter(|(_, asked)| fits(asked, run.config()));
        fitting.map(|(at, _)| (key, at)).collect()
    }
}

/// Everything that a cell states itself.
fn key(config: &Table, seed: u64) -> (Digest, u64) {
    let stated: Table = config
        .iter()
        .filter(|(name, _)| !BOUND.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (Value::Table(stated).digest(), seed)
}

fn asked(cell: &Cell) -> Asked {
    let device = cell.config.get(DEVICE).and_then(Value::as_str).unwrap_or("auto").to_owned();
    Asked { device, gpus: cell.config.get(GPUS).and_then(Value::as_int).filter(|gpus| *gpus > 0) }
}

/// Whether binding could have made these of what was asked for: one GPU where no number is stated, and none on the CPU.
fn fits(asked: &Asked, config: &Table) -> bool {
    let gpus = config.get(GPUS).and_then(Value::as_int);
    match config.get(DEVICE).and_then(Value::as_str) {
        Some("cpu") => asked.device == "cpu" || (asked.device == "auto" && asked.gpus.is_none()),
        Some("cuda") => asked.device != "cpu" && gpus == Some(asked.gpus.unwrap_or(1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_left_open_is_the_runs() {
        let config = |device: &str, gpus: i64| -> Table {
            [(DEVICE.to_owned(), device.into()), (GPUS.to_owned(), gpus.into())].into()
        };
        let asked = |device: &str, gpus| Asked { device: device.to_owned(), gpus };
        for (cell, cpu, one, two) in [
            (asked("auto", None), true, true, false),
            (asked("auto", Some(2)), false, false, true),
            (asked("cuda", None), false, true, false),
            (asked("cuda", Some(2)), false, false, true),
            (asked("cpu", None), true, false, false),
            (asked("cpu", Some(2)), true, false, false),
        ] {
            let found = [("cpu", 0), ("cuda", 1), ("cuda", 2)].map(|(device, gpus)| fits(&cell, &config(device, gpus)));
            assert_eq!(found, [cpu, one, two], "{cell:?}");
        }
    }

    #[test]
    fn what_binding_decides_is_no_part_of_a_cell() {
        let mut config: Table = [("params.x".to_owned(), Value::Int(1)), (DEVICE.to_owned(), "auto".into())].into();
        let cell = key(&config, 7);
        config.insert(DEVICE.to_owned(), "cuda".into());
        config.insert(GPUS.to_owned(), Value::Int(1));
        config.insert("data.digest".to_owned(), "abc".into());
        assert_eq!(key(&config, 7), cell);
        assert_ne!(key(&config, 8), cell);
        config.insert("params.y".to_owned(), Value::Int(1));
        assert_ne!(key(&config, 7), cell);
    }
}
