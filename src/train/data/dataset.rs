//! Data of the larger models: samples by index, made on the host.
//!
//! Knows nothing of models and tensors. A batch is a function of seed, epoch and indices: it does not matter who asks, in which order, or on how many threads.

use crate::DataError;
use ledger_record::{Digest, Value};

/// A batch in the host's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The model's input.
    pub inputs: Inputs,
    /// The right class of each position that the model answers for: one for an image, one for each token. Negative where none is asked for.
    pub targets: Vec<i32>,
}

/// The input of a model, on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Pictures [rows, 3, height, width] as bytes, a quarter of what they are as float32 on their way to a device.
    Pictures {
        /// Row by row, channel by channel.
        bytes: Vec<u8>,
        /// The four sizes.
        shape: [usize; 4],
    },
    /// Tokens [rows, width].
    Tokens {
        /// Their ids, row by row.
        ids: Vec<i32>,
        /// The two sizes.
        shape: [usize; 2],
    },
}

/// Data to train on and to evaluate with.
pub trait Dataset: Send + Sync {
    /// Number of training samples.
    fn train_len(&self) -> usize;

    /// Number of evaluation samples.
    fn eval_len(&self) -> usize;

    /// How many different classes the targets have, from 0.
    fn classes(&self) -> usize;

    /// Tokens of a sample; 1 where a sample has none.
    fn width(&self) -> usize {
        1
    }

    /// The maximum number of positions of a sample that have a target: all of them, unless tokens are masked.
    fn max_targets(&self) -> usize {
        self.width()
    }

    /// Training samples. Whatever is random in them (crops, masks) depends on seed, epoch (from 1) and index.
    fn train(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<Samples, DataError>;

    /// Evaluation samples: the same ones each time.
    fn eval(&self, indices: &[usize]) -> Result<Samples, DataError>;

    /// What is worth recording of it.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Hashes all that is trained on or evaluated with.
    fn digest(&self) -> Digest;
}
