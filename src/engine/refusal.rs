//! Why a cell cannot be bound to this machine.
//!
//! Knows what may be missing. It must not know how it is looked for.

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
    /// The machine refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Files of the program cannot be read.
    #[error("{}", unread(why, others))]
    File {
        /// As the manifest names it.
        file: String,
        /// The cause.
        why: HostError,
        /// Further files that cannot be read.
        others: Vec<HostError>,
    },
    /// The data cannot be read.
    #[error(transparent)]
    Data(HostError),
    /// What is asked for is not to be had here.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The image that it asks for cannot be started.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The files and packages of its program are not known.
    #[error(transparent)]
    Closure(#[from] ClosureError),
}

impl BindError {
    /// The key by which a manifest names what is not there or cannot be read, and the text that the cell has of it; none where it is no file.
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
    /// The program is to be named by its commit, and there is none.
    #[error("`identity` of [program] is git, but git names no commit of `{}`: {why} (remove `identity` to name the program by its files)", directory.display())]
    NoCommit {
        /// The folder of the program.
        directory: PathBuf,
        /// What git says.
        why: String,
    },
    /// A GPU is asked for and there is none.
    #[error("{asked}, but {why} (`ledger doctor` shows what is missing; device = \"cpu\" trains without)")]
    NoCuda {
        /// What in the cell asks for it.
        asked: String,
        /// Why there is none.
        why: String,
    },
    /// More GPUs are asked for than there are.
    #[error("`hardware.gpus` is {asked}, but {} visible: {} (CUDA_VISIBLE_DEVICES selects the visible GPUs)", are(*there), names.join(", "))]
    TooFewGpus {
        /// How many are asked for.
        asked: i64,
        /// How many there are.
        there: usize,
        /// Their names.
        names: Vec<String>,
    },
    /// Several GPUs are asked for, and nothing connects them.
    #[error("`hardware.gpus` is {asked}, but {why} (gpus = 1 trains without; `ledger doctor` shows what is missing)")]
    NoNccl {
        /// How many are asked for.
        asked: usize,
        /// What is missing, and how to get it.
        why: String,
    },
    /// A power limit or a clock is asked for that a card does not have.
    #[error("{0}")]
    NotAllowed(String),
    /// A power limit or a clock is asked for, and there is no GPU to set it on.
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
        /// The missing file, and in which form it may be there.
        file: String,
    },
}

fn unread(first: &HostError, others: &[HostError]) -> String {
    let one = |why: &HostError| why.source().map_or_else(|| why.to_string(), |cause| format!("{why}: {cause}"));
    let shown = [first].into_iter().chain(others).take(MOST_FILES).map(one).collect::<Vec<_>>().join("; ");
    let left = (1 + others.len()).saturating_sub(MOST_FILES);
    if left == 0 { shown } else { format!("{shown}; and {}", count(left, "file")) }
}

/// So many files that cannot be read are named.
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
    /// The environment that `uv run` would make is not there yet.
    #[error("the packages of `uv run` are unknown: `{}` has no environment (run `uv sync` there, or say `[program] identity = \"files\"`)", .0.display())]
    NoEnvironment(PathBuf),
    /// The environment of another manager of projects is neither active nor in the project's folder.
    #[error(
        "the packages of `{0} run` are unknown: its environment is neither active nor `.venv` (activate it, or say `[program] identity = \"files\"`)"
    )]
    NoActive(&'static str),
    /// The command sets where its imports are looked for.
    #[error(
        "the command sets PYTHONPATH, so the files that it imports are unknown (set PYTHONPATH for `ledger run`, or say `[program] identity = \"files\"`)"
    )]
    PythonPath,
    /// The interpreter lies where the record says, and nobody has said that it may be started.
    #[error("its interpreter `{0}` is not started without trust (--trust starts it)")]
    Untrusted(String),
    /// The script is not there.
    #[error("the command starts `{}`, which is not a file (fix program.command)", path.display())]
    NoScript {
        /// As the command names it.
        word: String,
        /// Where it would lie.
        path: PathBuf,
    },
    /// The program lacks the permission.
    #[error("the command starts `{0}`, which is not executable (`chmod +x {0}`)")]
    NotExecutable(String),
    /// The program is not there.
    #[error("the command starts `{0}`, which is not on the PATH (install it or fix program.command)")]
    NoProgram(String),
    /// The interpreter did not answer.
    #[error("{0} (`[program] identity = \"files\"` does not need it)")]
    Python(#[from] python::PythonError),
}
