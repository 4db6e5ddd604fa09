//! Cells that this machine cannot execute: what their manifests name and is not there, each with its place.

use super::failure::{Failure, exit, with_causes};
use crate::engine::{BindError, Refusal};
use crate::manifest::Manifest;
use crate::record::Cell;

/// A cell as its manifest has it, or as it is submitted, and why it cannot be bound.
pub(super) type Unbound<'a> = (&'a Manifest, Cell, BindError);

/// What is said of them: every file that is at fault, once; else the first reason, and how to execute those that fit, if any do.
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
