//! Records an attempt of a process that already runs.

use super::attempt::{Attempted, execute};
use super::bound::{Bound, Launch};
use super::worker::Shim;
use super::{EngineError, Stop, Watch};
use crate::record::{Owner, Table};
use crate::store::Store;

/// Records a process that already runs, until it ends or reports that it finished. `bound` is bound to the process's
/// own command.
///
/// # Errors
/// As [`execute`].
pub fn attach(
    (store, facts): (&Store, &Table),
    bound: Bound,
    process: Owner,
    shim: &Shim,
    watch: &dyn Watch,
    stop: &dyn Stop,
) -> Result<Attempted, EngineError> {
    let mut bound = Bound { launch: Launch::Attached(process), ..bound };
    bound.facts.insert("attached".to_owned(), true.into());
    execute(store, &bound, None, facts, shim, watch, stop)
}
