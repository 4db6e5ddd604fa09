//! Why the settings that a cell asks for cannot be set on its GPUs.

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
        /// What was tried.
        change: Change,
        /// The card's number.
        gpu: u32,
        /// Which privilege is missing, and what zeusd said.
        why: String,
    },
    /// The card or its driver refused.
    #[error("{change} on GPU {gpu} failed: {why} (`nvidia-smi -q -i {gpu}` shows what the GPU supports)")]
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
        "nothing is set on the GPUs: the process that restores settings could not be started: {0} (start this program from its own file)"
    )]
    NoWatcher(std::io::Error),
    /// The folder of what has to be undone cannot be used.
    #[error("GPU settings are recorded in `{}`, which cannot be used: {why} (LEDGER_RESTORE names another folder)", folder.display())]
    NoPlace {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: String,
    },
    /// Whether others compute on a card is not known.
    #[error("nothing is set on GPU {gpu}: its other processes cannot be listed: {why} (`ledger doctor` shows details)")]
    Unseen {
        /// The card's number.
        gpu: u32,
        /// What NVML says.
        why: String,
    },
    /// The driver's library does not answer.
    #[error("nothing is set on the GPUs: {0} (`ledger doctor` shows details)")]
    Silent(String),
    /// A file may say what is set on the card, and cannot be read.
    #[error(
        "nothing is set on GPU {gpu}: {why}, and may name it (check `nvidia-smi -q -d POWER,CLOCK`, reset with `nvidia-smi -pl`, `-rgc` and `-rmc`, and remove that file, if no newer ledger is running)"
    )]
    Unreadable {
        /// The card's number.
        gpu: u32,
        /// Which file, and why.
        why: String,
    },
    /// An earlier attempt's settings are still there.
    #[error(
        "nothing is set on GPU {gpu}: settings of an earlier attempt are still there: {why} (`ledger doctor --restore` tries again)"
    )]
    Unrestored {
        /// The card's number.
        gpu: u32,
        /// Why it could not be undone.
        why: String,
    },
}

impl HoldError {
    /// Whether it passes by itself: somebody else is there now.
    pub fn passes(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}
