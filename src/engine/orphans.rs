//! Processes that a program leaves behind when it ends.

use crate::host::process;
use std::path::Path;
use std::time::Duration;

/// How the warning begins of processes that a program has left behind.
const STILL_RUNNING: &str = "processes of the program still run";

/// Whether a warning of an attempt says so.
pub fn is_of_left_processes(warning: &str) -> bool {
    warning.starts_with(STILL_RUNNING)
}

/// Warns of processes that the program started and that left its process group, so that they did not end with it. They were told of its pipe.
pub(super) fn still_running(fifo: &Path) -> Option<String> {
    /// A process that was killed with its group may take as long to be gone.
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
