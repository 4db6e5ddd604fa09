//! How long each of several queued steps took, by the clock of the device: the host knows only when all of them were over.

use super::device::Place;
#[cfg(feature = "cuda")]
use super::native::{begin, card_of, event::Mark};
#[cfg(feature = "cuda")]
use std::time::Duration;

/// The borders of steps that follow each other.
#[derive(Debug, Default)]
pub struct Laps {
    #[cfg(feature = "cuda")]
    borders: Vec<Mark>,
}

impl Laps {
    /// The first of them begins now.
    pub fn begin(&mut self, place: &Place) {
        #[cfg(feature = "cuda")]
        {
            self.borders.clear();
            if let Place::Device(device) = place
                && let Some(card) = card_of(device)
            {
                self.borders.push(Mark::of(device, true));
                // Not only when the first step's work is sent.
                begin(card);
            }
        }
        let _ = place;
    }

    /// One more has been asked for.
    pub fn lap(&mut self, place: &Place) {
        #[cfg(feature = "cuda")]
        if let (Place::Device(device), false) = (place, self.borders.is_empty()) {
            self.borders.push(Mark::of(device, true));
        }
        let _ = place;
    }

    /// How long each took, in nanoseconds. To be asked when they are over; nothing where the device has no clock of its own.
    #[cfg(feature = "cuda")]
    pub fn durations_ns(&mut self) -> Option<Vec<u64>> {
        let borders = std::mem::take(&mut self.borders);
        let nanoseconds = |seconds| u64::try_from(Duration::try_from_secs_f64(seconds).ok()?.as_nanos()).ok();
        borders.windows(2).map(|pair| pair[1].since(&pair[0]).and_then(nanoseconds)).collect()
    }

    /// As above: there is none.
    #[cfg(not(feature = "cuda"))]
    pub fn durations_ns(&mut self) -> Option<Vec<u64>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_no_clock_of_a_device() {
        let mut laps = Laps::default();
        laps.begin(&Place::Host);
        laps.lap(&Place::Host);
        assert!(laps.durations_ns().is_none_or(|laps| laps.is_empty()));
    }

    #[cfg(feature = "cuda")]
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
        let mut laps = Laps::default();
        // The first time compiles and takes memory.
        work(40);
        place.sync().expect("works");
        let begin = Instant::now();
        laps.begin(&place);
        for times in [10, 10, 40, 10] {
            work(times);
            laps.lap(&place);
        }
        place.sync().expect("works");
        let all = u64::try_from(begin.elapsed().as_nanos()).expect("small");
        let laps = laps.durations_ns().expect("a card has a clock");
        println!("{laps:?} of {all} ns");
        assert_eq!(laps.len(), 4);
        assert!(laps.iter().sum::<u64>() <= all);
        assert!(laps[2] > 2 * laps[1] && laps[2] > 2 * laps[3], "{laps:?}");
    }
}
