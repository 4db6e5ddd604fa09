//! What a person does about a disk that is full or cannot be written.

use std::io::ErrorKind;

/// What stands behind the name of a ledger's file in an error, where the disk is full or read-only.
pub fn disk_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => " (free some space; nothing that was sealed is lost)",
        ErrorKind::ReadOnlyFilesystem => " (choose a folder that can be written with --ledger or LEDGER_DIR)",
        _ => "",
    }
}
