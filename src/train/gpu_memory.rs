//! GPU memory of a run of one rank, for the message when it runs out.

use super::device::Place;
use super::number::wide;
use std::sync::OnceLock;

/// Memory in use before the first step: the card, bytes, and the samples of a step.
static BEFORE: OnceLock<(usize, u64, u64)> = OnceLock::new();

/// Records the memory in use before the first step of so many samples.
pub(super) fn begin(place: &Place, batch: usize) {
    if let Some((card, (free, total))) = card(place).and_then(|card| Some((card, left(card)?))) {
        let _ = BEFORE.set((card, total.saturating_sub(free), wide(batch)));
    }
}

/// Free and total bytes of the GPU. None if no step was begun on one.
pub fn memory() -> Option<(u64, u64)> {
    BEFORE.get().and_then(|(card, ..)| left(*card))
}

/// Bytes of the GPU in use before the first step, and the samples of a step.
pub fn memory_before_steps() -> Option<(u64, u64)> {
    BEFORE.get().map(|(_, used, batch)| (*used, *batch))
}

#[cfg(feature = "cuda")]
fn card(place: &Place) -> Option<usize> {
    if let Place::Device(device) = place { super::native::card_of(device) } else { None }
}

#[cfg(feature = "cuda")]
fn left(card: usize) -> Option<(u64, u64)> {
    super::native::memory::left(card).ok()
}

#[cfg(not(feature = "cuda"))]
fn card(_: &Place) -> Option<usize> {
    None
}

#[cfg(not(feature = "cuda"))]
fn left(_: usize) -> Option<(u64, u64)> {
    None
}
