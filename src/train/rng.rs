//! Random numbers on the host: a counter-based generator whose n-th number depends only on its key and on n.
//!
//! Knows nothing of tensors or devices. All random numbers of a run (initial values, order, dropout, data) come from
//! here. None come from Burn's generator, which is global to the process and shared by its threads.
//!
//! The numbers are those of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA
//! 2014, with the finaliser that Stafford calls variant 13). The generator starts at a key that is mixed from seed,
//! stream and index. Two keys give shifted views of one sequence of 2^64 numbers. The probability that two given
//! streams of up to 2^32 numbers of a run overlap is below 2^-30.

use crate::number::{fraction, wide};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the seed of a rank: the run's own for the first rank, an independent one for each other rank. Dropout uses
/// it.
pub fn rank_seed(seed: u64, rank: usize) -> u64 {
    if rank == 0 { seed } else { Rng::new(seed, Stream::Rank, wide(rank)).bits() }
}

/// The purpose of random numbers. Streams of one seed are independent. The numbers are part of a run's results: frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Initial values of a parameter; the index is its place in the model.
    Initial,
    /// Order of an epoch's samples; the index is the epoch, from 1.
    Order,
    /// Dropout masks of a step; the index is the step, from 1.
    Dropout,
    /// Which samples are held back for evaluation.
    Split,
    /// A training image; the index is the image's.
    TrainImage,
    /// An evaluation image; the index is the image's.
    EvalImage,
    /// The start and the course of a training episode; the index is the episode, from 1.
    TrainEpisode,
    /// An episode of an evaluation; the index is the episode, from 1.
    EvalEpisode,
    /// Whether an action is random, and which; the index is the step, from 1.
    Explore,
    /// The transitions of a replay memory in an update; the index is the update, from 1.
    Replay,
    /// A training document of the grammar; the index is the document's.
    TrainText,
    /// An evaluation document of the grammar; the index is the document's.
    EvalText,
    /// Which tokens of an epoch's windows are masked; the index is the epoch, or the window within it.
    Mask,
    /// Which tokens of the evaluation windows are masked; the index is the window.
    EvalMask,
    /// A training picture of `shapes`; the index is the picture's.
    TrainPicture,
    /// An evaluation picture of `shapes`; the index is the picture's.
    EvalPicture,
    /// A training scene of `scenes`; the index is the scene's.
    TrainScene,
    /// An evaluation scene of `scenes`; the index is the scene's.
    EvalScene,
    /// The anchors and proposals of a picture that a step trains on; the index is the picture's place in the batch.
    Sample,
    /// The augmentation of a training picture; the index is the epoch, or the picture within it.
    Augment,
    /// A factor of the products that measure a device's peak; the index is the factor's.
    Peak,
    /// The seed of a rank's own draws; the index is the rank, from 1.
    Rank,
}

impl Stream {
    fn number(self) -> u64 {
        match self {
            Self::Initial => 1,
            Self::Order => 2,
            Self::Dropout => 3,
            Self::Split => 4,
            Self::TrainImage => 5,
            Self::EvalImage => 6,
            Self::TrainEpisode => 7,
            Self::EvalEpisode => 9,
            Self::Explore => 10,
            Self::Replay => 11,
            Self::TrainText => 20,
            Self::EvalText => 21,
            Self::Mask => 22,
            Self::EvalMask => 23,
            Self::TrainPicture => 30,
            Self::EvalPicture => 31,
            Self::Augment => 32,
            Self::TrainScene => 33,
            Self::EvalScene => 34,
            Self::Sample => 35,
            Self::Peak => 40,
            Self::Rank => 41,
        }
    }
}

/// A generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The sequence of a seed, a stream and an index within it.
    pub fn new(seed: u64, stream: Stream, index: u64) -> Self {
        let stream = stream.number().wrapping_mul(GOLDEN);
        let key = mix(mix(mix(seed).wrapping_add(stream)).wrapping_add(index.wrapping_mul(GOLDEN)));
        Self { state: key }
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// The same sequence without its first `numbers` numbers.
    pub fn skipped(&self, numbers: u64) -> Self {
        Self { state: self.state.wrapping_add(GOLDEN.wrapping_mul(numbers)) }
    }

    /// Returns a float32 in [0, 1), one of 2^24 equally likely ones.
    pub fn unit(&mut self) -> f32 {
        fraction(self.bits())
    }

    /// Returns a float32 in [`low`, `high`).
    pub fn range(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Returns a float32 in (-1, 1) whose density falls linearly from 0 to both sides; its variance is 1/6.
    pub fn triangle(&mut self) -> f32 {
        self.unit() - self.unit()
    }

    /// Returns a standard normal number (Box and Muller 1958: one of the two that a pair of uniform numbers gives).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - f64::from(self.unit()), f64::from(self.unit()));
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// Returns a whole number below `bound`, or 0 if `bound` is 0. It multiplies and keeps the high half (Lemire 2019)
    /// without the rejection step, so its bias is at most `bound` / 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        let high = (u128::from(self.bits()) * u128::from(wide(bound))) >> 64;
        usize::try_from(high).unwrap_or(0)
    }

    /// Returns the numbers 0..`len` in random order (Fisher and Yates).
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Rng, Stream};
    use proptest::prelude::*;

    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut rng = Rng { state: 1_234_567 };
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn the_numbers_of_a_key_are_frozen() {
        let mut rng = Rng::new(0, Stream::Initial, 0);
        assert_eq!([rng.bits(), rng.bits()], FIRST_OF_SEED_0);
    }

    const FIRST_OF_SEED_0: [u64; 2] = [6_235_967_106_033_911_276, 4_964_577_235_801_436_555];

    #[test]
    fn units_have_the_right_mean_and_never_reach_one() {
        let mut rng = Rng::new(7, Stream::Order, 1);
        let drawn: Vec<f64> = (0..100_000).map(|_| f64::from(rng.unit())).collect();
        assert!(drawn.iter().all(|value| (0.0..1.0).contains(value)));
        // The mean of n uniform numbers has standard deviation 1/sqrt(12 n) = 0.0009; 5 of them are allowed.
        assert!((drawn.iter().sum::<f64>() / 100_000.0 - 0.5).abs() < 0.0046);
    }

    proptest! {
        #[test]
        fn a_permutation_holds_every_number_once(seed: u64, index: u64, len in 0..300_usize) {
            let mut order = Rng::new(seed, Stream::Order, index).permutation(len);
            order.sort_unstable();
            prop_assert_eq!(order, (0..len).collect::<Vec<_>>());
        }

        #[test]
        fn streams_and_indices_differ(seed: u64, index in 0..u64::MAX) {
            let first = |stream, index| Rng::new(seed, stream, index).bits();
            prop_assert_ne!(first(Stream::TrainImage, index), first(Stream::EvalImage, index));
            prop_assert_ne!(first(Stream::Order, index), first(Stream::Order, index + 1));
        }
    }
}
