//! The error that ends a command early: an exit code, a cause and hints.

use super::output::{self, has_printed, print};
use crate::cluster::ClusterError;
use crate::engine::{BindError, CalibrateError, CalibrationError, EngineError, KernelCacheError};
use crate::host::holders;
use crate::journal::JournalError;
use crate::manifest::ManifestError;
use crate::report::{document, table_of};
use crate::store::{ResolveError, StoreError};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// The exit codes, which are part of the interface.
pub mod exit {
    /// Success; the answer is yes.
    pub const YES: u8 = 0;
    /// Success; the answer is no: something differs, or nothing was found.
    pub const NO: u8 = 1;
    /// The arguments or the manifest are wrong.
    pub const USAGE: u8 = 2;
    /// The ledger cannot be read or written.
    pub const LEDGER: u8 = 3;
    /// A run failed and is recorded as failed. Or it was not started, because its data changed or cannot be read. Or a
    /// file could not be written, because the disk is full.
    pub const FAILED: u8 = 4;
    /// A rerun did not reproduce the run.
    pub const NOT_REPRODUCED: u8 = 5;
    /// Slurm refused, cannot be asked, or lost a task that the command waited for.
    pub const SCHEDULER: u8 = 7;
    /// Another process holds the ledger's lock, or a GPU whose settings were to be changed; try again.
    pub const BUSY: u8 = 75;
    /// The command was interrupted. Completed work is recorded.
    pub const INTERRUPTED: u8 = 130;
}

/// The error that ends a command early.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) source: Box<dyn Error>,
}

impl Failure {
    pub(super) fn new(code: u8, source: impl Into<Box<dyn Error>>) -> Self {
        Self { code, source: source.into() }
    }

    /// The failure for a lock that stayed taken, with the processes that hold it.
    fn busy(error: &dyn Error, locked: &Path) -> Self {
        Self::new(exit::BUSY, format!("{error}{}", held_by(locked)))
    }

    /// Appends a hint in parentheses.
    pub(super) fn with_hint(self, hint: &str) -> Self {
        Self::new(self.code, format!("{} ({hint})", self.source))
    }

    /// Prints the failure with its causes; with `json` also as a document if no answer was printed. Returns the exit code.
    pub(super) fn report(&self, json: bool) -> ExitCode {
        let mut causes = Vec::new();
        let message = self.source.to_string();
        let mut text = format!("{message}\n");
        let mut cause = self.source.source();
        while let Some(source) = cause {
            // Some messages already end with their cause's message.
            if !text.trim_end().ends_with(&source.to_string()) {
                text.push_str(&format!("  because: {source}\n"));
                causes.push(source.to_string());
            }
            cause = source.source();
        }
        let head = if text.starts_with("manifest") || text.contains(".toml:") { "" } else { "error: " };
        output::tell(&format!("{head}{text}"));
        if json {
            tell(&message, causes, self.code);
        }
        ExitCode::from(self.code)
    }
}

/// Prints an error as a JSON document, unless the command has printed its answer.
pub(super) fn tell(message: &str, causes: Vec<String>, code: u8) {
    if has_printed() {
        return;
    }
    let error = table_of([("message", message.into()), ("causes", causes.into()), ("code", i64::from(code).into())]);
    // If standard output is closed, the error cannot be reported.
    let _ = print(&document(table_of([("error", error.into())])));
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy { ref path, .. } => Self::busy(&error, path),
            error => Self::new(exit::LEDGER, error),
        }
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Busy { ref path, .. } => Self::busy(&error, path),
            error => Self::new(exit::LEDGER, error),
        }
    }
}

impl From<ManifestError> for Failure {
    fn from(error: ManifestError) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Self {
        Self::new(exit::USAGE, error)
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        let code = if matches!(error, ResolveError::Ambiguous { .. }) { exit::USAGE } else { exit::NO };
        Self::new(code, error)
    }
}

impl From<KernelCacheError> for Failure {
    fn from(error: KernelCacheError) -> Self {
        let code = match error {
            KernelCacheError::Busy(_) => exit::BUSY,
            KernelCacheError::Unknown(_) => exit::NO,
            KernelCacheError::Ambiguous(..) | KernelCacheError::There(_) | KernelCacheError::Damaged(_) => exit::USAGE,
            KernelCacheError::Io { .. } => exit::LEDGER,
        };
        Self::new(code, error)
    }
}

impl From<CalibrationError> for Failure {
    fn from(error: CalibrationError) -> Self {
        Self::new(exit::LEDGER, error)
    }
}

impl From<CalibrateError> for Failure {
    fn from(error: CalibrateError) -> Self {
        let code = match error {
            CalibrateError::Kept(error) => return error.into(),
            CalibrateError::Gpu(_) => exit::USAGE,
            CalibrateError::Stopped => exit::INTERRUPTED,
            CalibrateError::Start(_) | CalibrateError::Load(_) | CalibrateError::Lost(_) => exit::FAILED,
        };
        Self::new(code, error)
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        let code = match error {
            ClusterError::Store(error) => return error.into(),
            ClusterError::Request(_) => exit::USAGE,
            ClusterError::Unknown { .. } => exit::NO,
            ClusterError::Busy => exit::BUSY,
            ClusterError::Command(_) | ClusterError::Refused { .. } | ClusterError::Unanswered { .. } => {
                exit::SCHEDULER
            }
            _ => exit::LEDGER,
        };
        Self::new(code, error)
    }
}

/// Returns the processes that hold a file's lock, as the end of a message. It is empty if none is visible.
fn held_by(locked: &Path) -> String {
    let holders: Vec<String> = holders(locked).iter().map(ToString::to_string).collect();
    if holders.is_empty() { String::new() } else { format!("; it is held by {}", holders.join(" and by ")) }
}

/// Like [`with_causes`], with the processes that hold a lock which stayed taken.
pub(super) fn with_holders(error: &EngineError) -> String {
    let held = match error {
        EngineError::Store(StoreError::Busy { path, .. }) | EngineError::Journal(JournalError::Busy { path, .. }) => {
            held_by(path)
        }
        _ => String::new(),
    };
    with_causes(error) + &held
}

/// Returns the message in one line, with the causes that it does not contain itself.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        if !text.ends_with(&source.to_string()) {
            text.push_str(&format!(": {source}"));
        }
        cause = source.source();
    }
    text
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Journal(error) => error.into(),
            EngineError::Bind(error) => error.into(),
            EngineError::Hold(ref hold) if hold.passes() => Self::new(exit::BUSY, error),
            EngineError::Hold(_) => Self::new(exit::USAGE, error),
            EngineError::Data(_) | EngineError::Program(_) | EngineError::Unseen(_) => Self::new(exit::FAILED, error),
            EngineError::Unsealed { ref source, .. } if matches!(**source, StoreError::Busy { .. }) => {
                Self::new(exit::BUSY, error)
            }
            other => Self::new(exit::LEDGER, other),
        }
    }
}

/// Hides the panics that damaged ledger files cause in the database. The store turns them into errors.
pub(super) fn quiet_panics() {
    let standard = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let in_database = info.location().is_some_and(|location| location.file().contains("redb"));
        if !in_database {
            standard(info);
        }
    }));
}
