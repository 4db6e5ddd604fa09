//! Durations of queued steps by the device's clock. The host only learns when all of them are over.

use crate::device::Place;
use crate::native::{begin, event::Mark};
use std::time::Duration;

/// Measures queued steps by events at their boundaries.
#[derive(Debug, Default)]
pub struct StepTimer {
    borders: Vec<Mark>,
}

impl StepTimer {
    /// Puts the first boundary into the device's queue: the first step begins here.
    pub fn begin(&mut self, place: &Place) {
        self.borders.clear();
        if let Some(card) = place.card() {
            self.borders.push(Mark::of(&place.device(), true));
            // Submit the mark now, not together with the first step's work.
            begin(card);
        }
    }

    /// Puts a boundary behind the work of a step.
    pub fn mark_step(&mut self, place: &Place) {
        if let (Place::Device(device), false) = (place, self.borders.is_empty()) {
            self.borders.push(Mark::of(device, true));
        }
    }

    /// Returns the duration of each step in nanoseconds, once all are over; `None` if the device has no clock.
    pub fn durations_ns(&mut self) -> Option<Vec<u64>> {
        let borders = std::mem::take(&mut self.borders);
        let nanoseconds = |seconds| u64::try_from(Duration::try_from_secs_f64(seconds).ok()?.as_nanos()).ok();
        borders.windows(2).map(|pair| pair[1].since(&pair[0]).and_then(nanoseconds)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_no_clock_of_a_device() {
        let mut step_timer = StepTimer::default();
        step_timer.begin(&Place::Host);
        step_timer.mark_step(&Place::Host);
        assert!(step_timer.durations_ns().is_none_or(|durations| durations.is_empty()));
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn steps_are_timed_by_the_card_on_gpu() {
        use burn::tensor::{Device, Tensor};
        use std::time::Instant;

        let place = Place::Device(Device::cuda(0));
        let factor = Tensor::<2>::ones([4096, 4096], &place.device());
        let work = |times: usize| {
            let product = (0..times).fold(factor.clone(), |product, _| product * 0.5 + 1.0);
            drop(product);
        };
        let mut step_timer = StepTimer::default();
        // The first call compiles and allocates memory.
        work(40);
        place.sync().expect("works");
        let begin = Instant::now();
        step_timer.begin(&place);
        for times in [10, 10, 40, 10] {
            work(times);
            step_timer.mark_step(&place);
        }
        place.sync().expect("works");
        let all = u64::try_from(begin.elapsed().as_nanos()).expect("small");
        let durations = step_timer.durations_ns().expect("a card has a clock");
        println!("{durations:?} of {all} ns");
        assert_eq!(durations.len(), 4);
        assert!(durations.iter().sum::<u64>() <= all);
        assert!(durations[2] > 2 * durations[1] && durations[2] > 2 * durations[3], "{durations:?}");
    }
}
