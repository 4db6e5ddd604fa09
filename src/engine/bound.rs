//! A cell that is bound to this machine: what is executed, and how it is launched.

use super::container::Image;
use super::data::DataFiles;
use super::program::ProgramFile;
use super::refusal::BindError;
use crate::gpu::{GpuInfo, Settings};
use crate::record::{Cell, Digest, Owner, Run, Table, Value};
use std::path::PathBuf;
use std::sync::Arc;

/// The setting that says that nothing is set on the GPUs.
pub const OBSERVE_ONLY: &str = "hardware.observe_only";

/// The built-in trainer as a part of a run's identity.
#[derive(Clone, Debug)]
pub struct Trainer {
    /// The program part on `cpu` or `cuda`, for the model of this name.
    pub program: fn(device: &str, model: &str) -> Value,
    /// The digest of each generator's samples, by the data's name.
    pub generators: Vec<(&'static str, Digest)>,
}

impl Trainer {
    /// The program part of a cell's run on `cpu` or `cuda`.
    pub(super) fn part(&self, device: &str, cell: &Cell) -> Value {
        (self.program)(device, cell.text("model.name").unwrap_or_default())
    }
}

/// How a run's worker is started.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// The built-in trainer.
    Trainer,
    /// Another program, in that directory.
    Program {
        /// Program and arguments.
        argv: Vec<String>,
        /// Where it runs.
        directory: PathBuf,
    },
    /// A process that already runs the program: it is watched, and neither started nor signalled.
    Attached(Owner),
}

/// A cell bound to this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The run that will be executed.
    pub run: Run,
    /// The cell, with everything that the machine decided.
    pub cell: Cell,
    /// How.
    pub launch: Launch,
    /// The GPUs that it uses, by rank; none on the CPU.
    pub gpus: Vec<GpuInfo>,
    /// The NVIDIA driver's management library, where it is not the usual one.
    pub nvml: Option<PathBuf>,
    /// The image that its worker runs in; none is the host itself.
    pub image: Option<Image>,
    /// The files of its data as they were when it was named by them; none where no files were read.
    pub data: Option<Arc<DataFiles>>,
    /// The files of its program that it is named by, as they were then.
    pub program_files: Vec<ProgramFile>,
    /// Warnings for the attempt: parts of its program that are unknown.
    pub notes: Vec<String>,
    /// Why it uses no GPU, where it was left open and one might be expected.
    pub no_gpu: Option<String>,
    /// Its origin, as facts of its attempts. Other runs of the sweep may have other ones.
    pub facts: Table,
}

/// How the warning of an attempt ends whose program changed.
pub(super) const CHANGED: &str = "changed after its run id was computed";
/// How it ends where that is not known.
pub(super) const MAY_HAVE_CHANGED: &str =
    "may have changed after its run id was computed: there was no time to compare it";

impl Bound {
    /// How long an attempt may take, in seconds.
    pub fn timeout_s(&self) -> Option<f64> {
        self.cell.float("limits.timeout_s")
    }

    /// The power limit and clocks to set on its GPUs. None if the cell states none, and with `--observe-only`.
    pub fn settings_to_make(&self) -> Option<Settings> {
        let observed = self.cell.get(OBSERVE_ONLY).is_some();
        Settings::of(&self.cell.config).filter(|_| !observed && !self.gpus.is_empty())
    }

    /// How often the hardware is looked at, in looks a second.
    pub fn telemetry_hz(&self) -> u32 {
        self.cell.int("telemetry.hz").and_then(|hz| u32::try_from(hz).ok()).unwrap_or(0)
    }

    /// A warning if its data changed since it was named by them.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub(super) fn changed_data(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Option<String>, BindError> {
        self.data.as_ref().map_or(Ok(None), |data| data.changed(is_over))
    }

    /// Why other files may have run than those that it is named by. Words of a command may be files that the program writes.
    pub(super) fn changed_program(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<String> {
        self.program_files.iter().find_map(|file| {
            let found = match file.known.is_of(&file.path, is_over) {
                Some(true) => return None,
                Some(false) => CHANGED,
                None => MAY_HAVE_CHANGED,
            };
            Some(format!("`{}` {found}", file.path.display()))
        })
    }

    /// A source file of the program that has changed since the run id was computed, if one certainly has.
    pub(super) fn changed_code(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<String> {
        let mut code = self.program_files.iter().filter(|file| file.is_code);
        let changed = code.find(|file| file.known.is_of(&file.path, is_over) == Some(false))?;
        Some(format!("`{}` changed after the run ids were computed", changed.path.display()))
    }

    /// The files that an external program's manifest names, where they lie.
    pub(super) fn named_files(&self) -> Vec<PathBuf> {
        let Launch::Program { directory, .. } = &self.launch else { return Vec::new() };
        let named = self.run.parts.program.as_table().and_then(|program| program.get("named_files"));
        let Some(Value::List(files)) = named else { return Vec::new() };
        files.iter().filter_map(Value::as_str).map(|file| directory.join(file)).collect()
    }
}
