//! GPU memory of a run of one rank, for the message when it runs out.

use crate::device::Place;
use crate::native::memory::left;
use crate::number::wide;
use std::sync::OnceLock;

/// Memory in use before the first step: the GPU's ordinal, bytes, and the samples of a step.
static BEFORE: OnceLock<(usize, u64, u64)> = OnceLock::new();

/// Records the memory in use before the first step of `batch` samples.
pub fn begin(place: &Place, batch: usize) {
    if let Some((card, (free, total))) = place.card().and_then(|card| Some((card, left(card).ok()?))) {
        let _ = BEFORE.set((card, total.saturating_sub(free), wide(batch)));
    }
}

/// Free and total bytes of the GPU. `None` unless a run of one rank has begun on a GPU.
pub fn memory() -> Option<(u64, u64)> {
    BEFORE.get().and_then(|(card, ..)| left(*card).ok())
}

/// Bytes of the GPU in use before the first step, and the samples of a step.
pub fn memory_before_steps() -> Option<(u64, u64)> {
    BEFORE.get().map(|(_, used, batch)| (*used, *batch))
}
