//! Cells that this machine cannot execute: the missing files that manifests name, with their places.

use super::failure::{Failure, exit, with_causes};
use crate::engine::{BindError, Refusal};
use crate::manifest::Manifest;
use crate::record::Cell;

/// A cell as in its manifest or as submitted, and the reason why it cannot be bound.
pub(super) type Unbound<'a> = (&'a Manifest, Cell, BindError);

/// Returns the failure: every missing file once, or else the first reason, with a hint if other cells can be executed.
pub(super) fn failure(unbound: Vec<Unbound<'_>>, any_fits: bool) -> Option<Failure> {
    let mut lines: Vec<String> = Vec::new();
    for (manifest, cell, error) in &unbound {
        let place = error.named(cell).and_then(|(key, text)| manifest.place(key, text));
        let line = place.map(|place| format!("{place}: {}", with_causes(error)));
        lines.extend(line.filter(|line| !lines.contains(line)));
    }
    if lines.is_empty() {
        return unbound.into_iter().next().map(|(.., error)| match error {
            BindError::Refused(Refusal::TooFewGpus { there, .. }) if any_fits => {
                let text = format!("{error}; --only 'hardware.gpus <= {there}' selects the runs that fit");
                Failure::new(exit::USAGE, text)
            }
            error => error.into(),
        });
    }
    Some(Failure::new(exit::USAGE, lines.join("\n")))
}
