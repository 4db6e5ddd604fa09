//! Processes of a program that still run after it ended.

use crate::host::process;
use std::path::Path;
use std::time::Duration;

/// The beginning of the warning about such processes.
const STILL_RUNNING: &str = "processes of the program still run";

/// Whether a warning reports such processes.
pub fn is_of_left_processes(warning: &str) -> bool {
    warning.starts_with(STILL_RUNNING)
}

/// A warning about processes of the program that left its process group and so did not end with it. They are found by
/// the variable with its pipe.
pub(super) fn still_running(fifo: &Path) -> Option<String> {
    /// How long a process that was killed with its group may take to disappear.
    const GRACE: Duration = Duration::from_millis(100);
    let find = || process::started_with("LEDGER_EVENTS", |path| Path::new(path).file_name() == fifo.file_name());
    if find().is_empty() {
        return None;
    }
    std::thread::sleep(GRACE);
    let named: Vec<String> = find().into_iter().map(|(pid, command)| format!("`{command}` (process {pid})")).collect();
    (!named.is_empty()).then(|| {
        format!(
            "{STILL_RUNNING}: {}; they were not measured to their end (let the program wait for them)",
            named.join(", ")
        )
    })
}
