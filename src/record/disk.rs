//! Hints for errors from a disk that is full or cannot be written.

use std::io::ErrorKind;

/// Returns the end of an error message about a ledger's file if the disk is full or read-only, and an empty text
/// otherwise.
pub fn disk_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => " (free some space; nothing that was sealed is lost)",
        ErrorKind::ReadOnlyFilesystem => " (choose a folder that can be written with --ledger or LEDGER_DIR)",
        _ => "",
    }
}
