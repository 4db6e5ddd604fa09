//! A cell that is bound to this machine: the run, and how to launch it.

use super::container::Image;
use super::data::DataFiles;
use super::program::ProgramFile;
use super::refusal::BindError;
use crate::gpu::{GpuInfo, Settings};
use crate::record::{Cell, Digest, Owner, Run, Table, Value};
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the setting for not changing GPU settings.
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
    /// An external program.
    Program {
        /// Program and arguments.
        argv: Vec<String>,
        /// The working directory.
        directory: PathBuf,
    },
    /// A process that already runs the program. It is monitored, but neither started nor signalled.
    Attached(Owner),
}

/// A cell bound to this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The run that will be executed.
    pub run: Run,
    /// The cell, completed by the machine's choices.
    pub cell: Cell,
    /// How the worker is started.
    pub launch: Launch,
    /// The GPUs by rank. Empty on the CPU.
    pub gpus: Vec<GpuInfo>,
    /// The path of the NVML library, if it is not the usual one.
    pub nvml: Option<PathBuf>,
    /// The image that the worker runs in. `None` is the host.
    pub image: Option<Image>,
    /// The data files as they were when the run id was computed. `None` if no files were read.
    pub data: Option<Arc<DataFiles>>,
    /// The program files in the identity, as they were when the run id was computed.
    pub program_files: Vec<ProgramFile>,
    /// Warnings for the attempt, such as unknown parts of the program.
    pub notes: Vec<String>,
    /// Why no GPU is used, if the cell left that open and one was to be expected.
    pub no_gpu: Option<String>,
    /// Facts for the run's attempts, such as its origin. They may differ between the runs of a sweep.
    pub facts: Table,
}

/// The end of the warning that a program file changed.
pub(super) const CHANGED: &str = "changed after its run id was computed";
/// The end of the warning that a program file may have changed.
pub(super) const MAY_HAVE_CHANGED: &str =
    "may have changed after its run id was computed: there was no time to compare it";

impl Bound {
    /// The time limit of an attempt, in seconds.
    pub fn timeout_s(&self) -> Option<f64> {
        self.cell.float("limits.timeout_s")
    }

    /// The power limit and clocks to set on the GPUs. `None` if the cell states none, and with `--observe-only`.
    pub fn settings_to_make(&self) -> Option<Settings> {
        let observed = self.cell.get(OBSERVE_ONLY).is_some();
        Settings::of(&self.cell.config).filter(|_| !observed && !self.gpus.is_empty())
    }

    /// The sampling rate of the sensors, in Hz.
    pub fn telemetry_hz(&self) -> u32 {
        self.cell.int("telemetry.hz").and_then(|hz| u32::try_from(hz).ok()).unwrap_or(0)
    }

    /// A warning if the data changed since the run id was computed.
    ///
    /// # Errors
    /// If the data cannot be read.
    pub(super) fn changed_data(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Option<String>, BindError> {
        self.data.as_ref().map_or(Ok(None), |data| data.changed(is_over))
    }

    /// A warning if a program file of the identity changed or may have changed. It is no failure, because a file named
    /// in the command may be one that the program writes.
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

    /// An error text if a source file of the program has certainly changed since the run id was computed.
    pub(super) fn changed_code(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<String> {
        let mut code = self.program_files.iter().filter(|file| file.is_code);
        let changed = code.find(|file| file.known.is_of(&file.path, is_over) == Some(false))?;
        Some(format!("`{}` changed after the run ids were computed", changed.path.display()))
    }

    /// The paths of the files that an external program's manifest names.
    pub(super) fn named_files(&self) -> Vec<PathBuf> {
        let Launch::Program { directory, .. } = &self.launch else { return Vec::new() };
        let named = self.run.parts.program.as_table().and_then(|program| program.get("named_files"));
        let Some(Value::List(files)) = named else { return Vec::new() };
        files.iter().filter_map(Value::as_str).map(|file| directory.join(file)).collect()
    }
}
