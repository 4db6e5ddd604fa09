//! Times of work on a card, for tests.

use crate::cuda::fault;
use burn::tensor::Device;
use std::time::Instant;

/// Microseconds of one time of many.
pub fn timed<T>(mut work: impl FnMut() -> T) -> f64 {
    const TIMES: u32 = 50;
    let card = Device::cuda(0);
    let mut last = None;
    for _ in 0..10 {
        last = Some(work());
    }
    card.sync().unwrap();
    let start = Instant::now();
    for _ in 0..TIMES {
        last = Some(work());
    }
    card.sync().unwrap();
    drop(last);
    start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
}

/// Panics if anything failed on a card.
pub fn fault_free() {
    assert_eq!(fault(), None);
}
