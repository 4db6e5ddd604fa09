//! GPU memory of a run, for the message when it runs out.

use crate::device::Place;
use crate::native::card_of;
use crate::native::memory::left;
use crate::number::wide;
use std::sync::{Mutex, PoisonError};

/// Of each GPU before the first step.
static BEFORE: Mutex<Vec<Before>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
struct Before {
    card: usize,
    used_bytes: u64,
    batch: u64,
}

/// What is known of the memory of a run's fullest GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// Its number among those of this process. None if the run has one GPU.
    pub gpu: Option<usize>,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes in use before the first step.
    pub before_bytes: u64,
    /// Samples of a step of the whole run.
    pub batch: u64,
}

/// Records the memory of a GPU in use before the first step of so many samples.
pub fn begin(place: &Place, batch: usize) {
    let Place::Device(device) = place else { return };
    if let Some((card, (free, total))) = card_of(device).and_then(|card| Some((card, left(card).ok()?))) {
        let before = Before { card, used_bytes: total.saturating_sub(free), batch: wide(batch) };
        BEFORE.lock().unwrap_or_else(PoisonError::into_inner).push(before);
    }
}

/// The GPU with the least free memory. None if no step was begun on one, or the driver does not say.
pub fn fullest_gpu() -> Option<GpuMemory> {
    let all = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let memory = all.iter().filter_map(|before| {
        let (free_bytes, total_bytes) = left(before.card).ok()?;
        let gpu = (all.len() > 1).then_some(before.card);
        Some(GpuMemory { gpu, free_bytes, total_bytes, before_bytes: before.used_bytes, batch: before.batch })
    });
    memory.min_by_key(|memory| memory.free_bytes)
}
