//! Errors of binding a cell to this machine.
//!
//! Knows what may be missing. It must not know how that is determined.

use super::container::{BINDS, ContainerError, IMAGE};
use crate::host::{HostError, python};
use crate::manifest::ArgvError;
use crate::record::{Cell, Value, count};
use std::error::Error as _;
use std::path::PathBuf;

/// The cell cannot be bound to this machine.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A program's command has a placeholder without a value.
    #[error(transparent)]
    Argv(#[from] ArgvError),
    /// A system call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Files of the program cannot be read.
    #[error("{}", unread(why, others))]
    File {
        /// The file as the manifest names it.
        file: String,
        /// The cause.
        why: HostError,
        /// Further files that cannot be read.
        others: Vec<HostError>,
    },
    /// The data cannot be read.
    #[error(transparent)]
    Data(HostError),
    /// This machine lacks something that the cell asks for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The image cannot be used.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The files and packages of the program cannot be determined.
    #[error(transparent)]
    Closure(#[from] ClosureError),
}

impl BindError {
    /// The manifest's key for the missing or unreadable file, and its value in the cell. `None` if the error does not
    /// concern a file.
    pub fn named<'a>(&'a self, cell: &'a Cell) -> Option<(&'static str, &'a str)> {
        let of = |key| Some((key, cell.text(key)?));
        match self {
            Self::File { file: word, .. }
            | Self::Closure(
                ClosureError::NoScript { word, .. } | ClosureError::NoProgram(word) | ClosureError::NotExecutable(word),
            ) => Some(("program", word.as_str())),
            Self::Data(_) | Self::Refused(Refusal::NoData { .. }) => of("data.path"),
            Self::Container(error) if error.is_of_image() => of(IMAGE),
            Self::Container(error) => match (error.bind(), cell.get(BINDS)) {
                (Some(index), Some(Value::List(texts))) => Some((BINDS, texts.get(index)?.as_str()?)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Something that the cell asks for and this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The program is to be identified by its commit, but there is none.
    #[error("`identity` of [program] is git, but git names no commit of `{}`: {why} (remove `identity` to name the program by its files)", directory.display())]
    NoCommit {
        /// The folder of the program.
        directory: PathBuf,
        /// The reason from git.
        why: String,
    },
    /// A GPU is requested, but there is none.
    #[error("{asked}, but {why} (`ledger doctor` shows what is missing; device = \"cpu\" trains without)")]
    NoCuda {
        /// The part of the cell that requests it.
        asked: String,
        /// Why there is none.
        why: String,
    },
    /// More GPUs are requested than there are.
    #[error("`hardware.gpus` is {asked}, but {} visible: {} (CUDA_VISIBLE_DEVICES selects the visible GPUs)", are(*there), names.join(", "))]
    TooFewGpus {
        /// The requested number.
        asked: i64,
        /// The visible number.
        there: usize,
        /// Their names.
        names: Vec<String>,
    },
    /// Several GPUs are requested, but they cannot be connected.
    #[error("`hardware.gpus` is {asked}, but {why} (gpus = 1 trains without; `ledger doctor` shows what is missing)")]
    NoNccl {
        /// The requested number.
        asked: usize,
        /// The missing library, and the remedy.
        why: String,
    },
    /// A GPU does not allow the requested power limit or clock.
    #[error("{0}")]
    NotAllowed(String),
    /// A power limit or a clock is requested, but the run uses no GPU.
    #[error(
        "the cell sets a power limit or clocks, but uses no GPU (give device = \"cuda\", or remove the keys; `ledger doctor` shows what is missing)"
    )]
    NothingToSet,
    /// This binary has no trainer.
    #[error("this `ledger` was built without its trainer (build with default features, or give a [program])")]
    NoTrainer,
    /// A data file is missing.
    #[error("`data.path` is `{}`, which has no {file}", path.display())]
    NoData {
        /// The directory.
        path: PathBuf,
        /// The missing file, and its accepted formats.
        file: String,
    },
}

fn unread(first: &HostError, others: &[HostError]) -> String {
    let one = |why: &HostError| why.source().map_or_else(|| why.to_string(), |cause| format!("{why}: {cause}"));
    let shown = [first].into_iter().chain(others).take(MOST_FILES).map(one).collect::<Vec<_>>().join("; ");
    let left = (1 + others.len()).saturating_sub(MOST_FILES);
    if left == 0 { shown } else { format!("{shown}; and {}", count(left, "file")) }
}

/// The largest number of unreadable files that are named.
const MOST_FILES: usize = 8;

fn are(count: usize) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

/// The closure of a program cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum ClosureError {
    /// There is no such interpreter.
    #[error(
        "the command needs `{0}`, which is not an executable here (install it or fix program.command; `[program] identity = \"files\"` does not need it)"
    )]
    NoInterpreter(String),
    /// The environment of `uv run` does not exist yet.
    #[error("the packages of `uv run` are unknown: `{}` has no environment (run `uv sync` there, or say `[program] identity = \"files\"`)", .0.display())]
    NoEnvironment(PathBuf),
    /// The environment of another project manager is neither active nor in the project's folder.
    #[error(
        "the packages of `{0} run` are unknown: its environment is neither active nor `.venv` (activate it, or say `[program] identity = \"files\"`)"
    )]
    NoActive(&'static str),
    /// The command sets PYTHONPATH.
    #[error(
        "the command sets PYTHONPATH, so the files that it imports are unknown (set PYTHONPATH for `ledger run`, or say `[program] identity = \"files\"`)"
    )]
    PythonPath,
    /// Only the record names the interpreter, and it is not trusted.
    #[error("its interpreter `{0}` is not started without trust (--trust starts it)")]
    Untrusted(String),
    /// The script does not exist.
    #[error("the command starts `{}`, which is not a file (fix program.command)", path.display())]
    NoScript {
        /// The script as the command names it.
        word: String,
        /// The path.
        path: PathBuf,
    },
    /// The program is not executable.
    #[error("the command starts `{0}`, which is not executable (`chmod +x {0}`)")]
    NotExecutable(String),
    /// The program is not on the PATH.
    #[error("the command starts `{0}`, which is not on the PATH (install it or fix program.command)")]
    NoProgram(String),
    /// The interpreter failed.
    #[error("{0} (`[program] identity = \"files\"` does not need it)")]
    Python(#[from] python::PythonError),
}
