//! Running attempts: from this ledger's own journals, and from the copies that Slurm's tasks make of theirs.

use super::cluster::spool;
use super::context::Context;
use super::failure::{Failure, exit};
use crate::engine::{Living, Pulse};
use crate::host::{clock, owner};
use crate::journal::{self, Follower};
use crate::record::{AttemptId, Digest, Row, Sealed, Value};
use crate::report::Running;
use crate::store::label_of;
use std::path::PathBuf;
use std::time::Duration;

/// A task copies its journals every few seconds. A copy that is older than this belongs to a task that ended.
const SILENT: Duration = Duration::from_secs(120);
/// The least number of digits of an id that name an attempt.
const LEAST_DIGITS: usize = 4;

/// Returns the running attempts, the oldest first. Unreadable journals are left out: their owner seals them, or the
/// next command reports them.
pub(super) fn all(context: &Context) -> Vec<Living> {
    let mut journals = journal::list(&context.store_as_it_is().journals()).unwrap_or_default();
    journals.extend(copies(context));
    let living = journals.iter().filter_map(|path| Living::open(path));
    let mut found: Vec<Living> = living.filter(|living| !living.is_over()).collect();
    found.sort_by_key(|living| (living.started_unix_ms, living.nonce));
    found
}

/// Returns the journals that Slurm's tasks copied recently.
fn copies(context: &Context) -> Vec<PathBuf> {
    let folders = spool(context, None).open().unwrap_or_default();
    let journals = folders.iter().flat_map(|folder| journal::list(&folder.journals()).unwrap_or_default());
    let is_fresh = |path: &PathBuf| {
        let written = path.metadata().and_then(|metadata| metadata.modified()).ok();
        written.and_then(|at| at.elapsed().ok()).is_none_or(|since| since < SILENT)
    };
    journals.filter(is_fresh).collect()
}

/// Returns the running attempt whose id, or whose run's id, begins with this text. For `latest`, it is the one that started last.
///
/// # Errors
/// If several attempts match.
pub(super) fn find(context: &Context, text: &str) -> Result<Option<Living>, Failure> {
    if text == "latest" {
        return Ok(all(context).pop());
    }
    if text.len() < LEAST_DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let text = text.to_ascii_lowercase();
    let is_meant =
        |living: &Living| living.run.id.to_string().starts_with(&text) || living.nonce.to_string().starts_with(&text);
    let mut found: Vec<Living> = all(context).into_iter().filter(is_meant).collect();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let ids: Vec<String> = found.iter().map(|living| living.nonce.to_string()[..8].to_owned()).collect();
            let text = format!("`{text}` means {} running attempts: {} (name one)", ids.len(), ids.join(", "));
            Err(Failure::new(exit::USAGE, text))
        }
    }
}

/// A running attempt and its progress.
pub(super) struct Followed {
    pub(super) living: Living,
    pub(super) pulse: Pulse,
    follower: Follower,
}

impl Followed {
    pub(super) fn new(living: Living) -> Self {
        Self { follower: Follower::new(&living.journal), living, pulse: Pulse::default() }
    }

    /// Reads the entries since the last call. Entries that cannot be read now are read later.
    pub(super) fn look(&mut self) {
        let Self { pulse, follower, .. } = self;
        let _ = follower.read(|entry| pulse.take(&entry));
    }

    /// Returns the attempt's line of a listing.
    pub(super) fn running(&self) -> Running {
        let Self { living, pulse, .. } = self;
        let experiment = living.settings.get("experiment.name").and_then(Value::as_str).unwrap_or_default();
        // The elapsed time of a running attempt is known only by the clock of its own host.
        let is_here = living.owner.host == owner::host_name();
        let now_ns = if is_here && !pulse.has_ended { clock::monotonic_ns().max(pulse.last_ns) } else { pulse.last_ns };
        Running {
            nonce: living.nonce,
            row: Row {
                attempt: id_of(living),
                run: living.run.id,
                started_unix_ms: living.started_unix_ms,
                wall_ns: now_ns.saturating_sub(living.started_ns),
                outcome: "running".to_owned(),
                experiment: experiment.to_owned(),
                model: living.run.model().to_owned(),
                label: label_of(living.run.config()),
                seed: living.run.parts.seed,
                accuracy: pulse.metrics.get("accuracy").copied(),
                loss: pulse.loss.or(pulse.metrics.get("loss").copied()),
            },
            host: living.owner.host.clone(),
            step: pulse.step,
            left_s: pulse.left_s(),
        }
    }
}

/// Returns the nonce of a running attempt in the form of an id, because it has no id yet.
pub(super) fn id_of(living: &Living) -> AttemptId {
    let mut digits = [0; 32];
    digits[..16].copy_from_slice(&living.nonce.0);
    AttemptId(Digest(digits))
}

/// Returns the running attempts as they are listed, the oldest first.
pub(super) fn running(context: &Context) -> Vec<Running> {
    let look = |living: Living| {
        let mut followed = Followed::new(living);
        followed.look();
        (!followed.pulse.has_ended).then(|| followed.running())
    };
    all(context).into_iter().filter_map(look).collect()
}

/// Returns the record that would be sealed if the running attempt with this id ended now. Returns `None` if no attempt
/// has the id, or if the ledger has a finished attempt of its run.
///
/// # Errors
/// If several attempts have it, or its journal cannot be read.
pub(super) fn unsealed(context: &Context, text: &str) -> Result<Option<(AttemptId, Sealed)>, Failure> {
    let Some(living) = find(context, text)? else { return Ok(None) };
    let is_run = living.run.id.to_string().starts_with(&text.to_ascii_lowercase());
    let finished = context.store_as_it_is().if_there(|reader| reader.finished_count(living.run.id))?;
    if is_run && finished.unwrap_or(0) > 0 {
        return Ok(None);
    }
    let sealed = living.sealed().map_err(|error| Failure::new(exit::LEDGER, error))?;
    Ok(sealed.map(|sealed| (id_of(&living), sealed)))
}
