//! The attempts that live: of this ledger's own journals, and of the copies that Slurm's tasks leave of theirs.

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

/// A task copies its journals every few seconds. One that was not written for so long is of a task that is gone.
const SILENT: Duration = Duration::from_secs(120);
/// Digits by which an attempt can be named.
const LEAST_DIGITS: usize = 4;

/// The attempts that live, the oldest first. What cannot be read is left out: its owner seals it, or the next command says so.
pub(super) fn all(context: &Context) -> Vec<Living> {
    let mut journals = journal::list(&context.store_as_it_is().journals()).unwrap_or_default();
    journals.extend(copies(context));
    let living = journals.iter().filter_map(|path| Living::open(path));
    let mut found: Vec<Living> = living.filter(|living| !living.is_over()).collect();
    found.sort_by_key(|living| (living.started_unix_ms, living.nonce));
    found
}

/// The journals that Slurm's tasks have copied lately.
fn copies(context: &Context) -> Vec<PathBuf> {
    let folders = spool(context, None).open().unwrap_or_default();
    let journals = folders.iter().flat_map(|folder| journal::list(&folder.journals()).unwrap_or_default());
    let is_fresh = |path: &PathBuf| {
        let written = path.metadata().and_then(|metadata| metadata.modified()).ok();
        written.and_then(|at| at.elapsed().ok()).is_none_or(|since| since < SILENT)
    };
    journals.filter(is_fresh).collect()
}

/// The running attempt whose id, or whose run's id, begins with this text; of `latest` the one that started last.
///
/// # Errors
/// If several have.
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

/// An attempt that lives, and how far it is.
pub(super) struct Followed {
    pub(super) living: Living,
    pub(super) pulse: Pulse,
    follower: Follower,
}

impl Followed {
    pub(super) fn new(living: Living) -> Self {
        Self { follower: Follower::new(&living.journal), living, pulse: Pulse::default() }
    }

    /// Reads what has come since the last call. What cannot be read now is read later.
    pub(super) fn look(&mut self) {
        let Self { pulse, follower, .. } = self;
        let _ = follower.read(|entry| pulse.take(&entry));
    }

    /// As it is listed.
    pub(super) fn running(&self) -> Running {
        let Self { living, pulse, .. } = self;
        let experiment = living.settings.get("experiment.name").and_then(Value::as_str).unwrap_or_default();
        // Only this host's clock says how long something took that has not ended.
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

/// What stands for the id of an attempt that has none yet: its nonce.
pub(super) fn id_of(living: &Living) -> AttemptId {
    let mut digits = [0; 32];
    digits[..16].copy_from_slice(&living.nonce.0);
    AttemptId(Digest(digits))
}

/// The attempts that live as they are listed, the oldest first.
pub(super) fn running(context: &Context) -> Vec<Running> {
    let look = |living: Living| {
        let mut followed = Followed::new(living);
        followed.look();
        (!followed.pulse.has_ended).then(|| followed.running())
    };
    all(context).into_iter().filter_map(look).collect()
}

/// What would be sealed of the attempt that lives and has this id, if it ended now; none if none has, or if the ledger holds a finished attempt of its run.
///
/// # Errors
/// If several have it, or its journal cannot be read.
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
