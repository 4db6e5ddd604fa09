//! Errors of changing GPU settings.

use crate::gpu::Change;
use std::path::PathBuf;

/// A power limit or clock cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// Neither this user nor zeusd has the privilege.
    #[error(
        "{change} on GPU {gpu} is refused: {why} (run as root, or start zeusd; `ledger run --observe-only` sets nothing, and marks attempts at other settings as tainted)"
    )]
    NoPrivilege {
        /// The change.
        change: Change,
        /// The GPU's index.
        gpu: u32,
        /// The missing privilege, and zeusd's answer.
        why: String,
    },
    /// The GPU or its driver refused.
    #[error("{change} on GPU {gpu} failed: {why} (`nvidia-smi -q -i {gpu}` shows what the GPU supports)")]
    Refused {
        /// The change.
        change: String,
        /// The GPU's index.
        gpu: u32,
        /// Why.
        why: String,
    },
    /// Another process computes on the GPU.
    #[error(
        "nothing is set on GPU {gpu}: process {pid} computes on it, and its clocks and power would change too (wait for it, or choose another GPU with CUDA_VISIBLE_DEVICES)"
    )]
    InUse {
        /// The GPU's index.
        gpu: u32,
        /// The process.
        pid: u32,
    },
    /// The watcher could not be started. Nothing is changed without it.
    #[error(
        "nothing is set on the GPUs: the process that restores settings could not be started: {0} (start this program from its own file)"
    )]
    NoWatcher(std::io::Error),
    /// The folder for the files of changed settings cannot be used.
    #[error("GPU settings are recorded in `{}`, which cannot be used: {why} (LEDGER_RESTORE names another folder)", folder.display())]
    NoPlace {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
    /// The processes on a GPU cannot be listed.
    #[error("nothing is set on GPU {gpu}: its other processes cannot be listed: {why} (`ledger doctor` shows details)")]
    Unseen {
        /// The GPU's index.
        gpu: u32,
        /// NVML's error.
        why: String,
    },
    /// NVML failed.
    #[error("nothing is set on the GPUs: {0} (`ledger doctor` shows details)")]
    Silent(String),
    /// A file of changed settings cannot be read and may name the GPU.
    #[error(
        "nothing is set on GPU {gpu}: {why}, and may name it (check `nvidia-smi -q -d POWER,CLOCK`, reset with `nvidia-smi -pl`, `-rgc` and `-rmc`, and remove that file, if no newer ledger is running)"
    )]
    Unreadable {
        /// The GPU's index.
        gpu: u32,
        /// The file, and why.
        why: String,
    },
    /// The settings of an earlier attempt could not be undone.
    #[error(
        "nothing is set on GPU {gpu}: settings of an earlier attempt are still there: {why} (`ledger doctor --restore` tries again)"
    )]
    Unrestored {
        /// The GPU's index.
        gpu: u32,
        /// Why.
        why: String,
    },
}

impl HoldError {
    /// Whether the error is temporary: another process uses the GPU now.
    pub fn passes(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}
