//! The cells of manifests as written, and their runs.
//!
//! No cell is bound, because a report may be made without the GPUs or the data of its runs. The device for `auto`, its
//! number of GPUs, and the data's digest are taken from the run.

use crate::cli::selection::GPUS;
use crate::manifest::Manifest;
use crate::record::{Cell, Digest, Run, Table, Value};
use std::collections::{BTreeMap, BTreeSet};

const DEVICE: &str = "hardware.device";
/// Fields of a run that its cell may leave open.
const BOUND: [&str; 3] = [DEVICE, GPUS, "data.digest"];

/// The device and the number of GPUs that a cell asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    device: String,
    gpus: Option<i64>,
}

/// The identity of a cell: the digest of its stated fields, its seed, and the index of its [`Asked`].
pub(super) type CellId = ((Digest, u64), usize);

/// The distinct cells of manifests.
pub(super) struct Cells(BTreeMap<(Digest, u64), BTreeSet<Asked>>);

impl Cells {
    pub(super) fn of(manifests: &[Manifest]) -> Self {
        let mut cells: BTreeMap<(Digest, u64), BTreeSet<Asked>> = BTreeMap::new();
        for cell in manifests.iter().flat_map(|manifest| &manifest.cells) {
            cells.entry(key(&cell.config, cell.seed)).or_default().insert(asked(cell));
        }
        Self(cells)
    }

    /// Returns the number of cells.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Returns the cells that a run belongs to. There are several if one leaves the device open.
    pub(super) fn of_run(&self, run: &Run) -> Vec<CellId> {
        let key = key(run.config(), run.parts.seed);
        let Some(asked) = self.0.get(&key) else { return Vec::new() };
        let fitting = asked.iter().enumerate().filter(|(_, asked)| fits(asked, run.config()));
        fitting.map(|(at, _)| (key, at)).collect()
    }
}

/// Returns the key of the fields that a cell states itself.
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

/// Whether binding could turn the requested device and number of GPUs into those of the run. The default is one GPU, and none on the CPU.
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
    fn a_cell_fits_the_runs_that_binding_could_make_of_it() {
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
    fn fields_set_by_binding_are_not_part_of_a_cells_key() {
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
