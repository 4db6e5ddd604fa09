//! What a person does about a disk that is full.

use std::io::ErrorKind;

/// What stands behind the name of a ledger's file that could not be written: what to do where the disk is full or the folder is not writable.
pub fn room_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => " (free some space; nothing that was sealed is lost)",
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => " (--ledger or LEDGER_DIR names another folder)",
        _ => "",
    }
}
