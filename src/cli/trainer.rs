//! The built-in trainer of this binary, if it has one.

use crate::engine::Trainer;

/// Returns the trainer. Returns `None` in a binary that was built without it.
#[cfg(feature = "train")]
pub(super) fn trainer() -> Option<Trainer> {
    Some(Trainer { program: crate::train::program, generators: crate::train::generators() })
}

/// Returns the trainer. Returns `None` in a binary that was built without it.
#[cfg(not(feature = "train"))]
pub(super) fn trainer() -> Option<Trainer> {
    None
}

/// Whether this binary can put a load on a GPU by itself.
pub(super) fn has_load() -> bool {
    cfg!(feature = "train")
}
