//! What a person does about a disk that is full.

use std::io::ErrorKind;

/// What stands behind the name of a file that could not be written, where that was for want of room.
pub fn room_hint(kind: ErrorKind) -> &'static str {
    let is_full = matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    if is_full { " (free some space; nothing that was sealed is lost)" } else { "" }
}
