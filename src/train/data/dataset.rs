//! Data of the published models: samples by index, made on the host.
//!
//! Knows nothing of models and tensors. A batch is a function of seed, epoch and indices. It does not depend on the
//! caller, the order of calls or the number of threads.

use crate::DataError;
use ledger_record::{Digest, Value};

/// A batch in the host's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The model's input.
    pub inputs: Inputs,
    /// The target class of each position: one for an image, one for each token. Negative for positions without a
    /// target.
    pub targets: Vec<i32>,
}

/// The input of a model, on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Pictures [rows, 3, height, width] as bytes, which transfer to a device in a quarter of the size of float32.
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

/// Data for training and evaluation.
pub trait Dataset: Send + Sync {
    /// Returns the number of training samples.
    fn train_len(&self) -> usize;

    /// Returns the number of evaluation samples.
    fn eval_len(&self) -> usize;

    /// Returns the number of classes of the targets, from 0.
    fn classes(&self) -> usize;

    /// Returns the tokens of a sample; 1 for samples without tokens.
    fn width(&self) -> usize {
        1
    }

    /// Returns the maximum number of positions of a sample that have a target: all of them, unless tokens are masked.
    fn max_targets(&self) -> usize {
        self.width()
    }

    /// Returns training samples. Their random changes (crops, masks) depend on seed, epoch (from 1) and index.
    fn train(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<Samples, DataError>;

    /// Returns evaluation samples: the same ones each time.
    fn eval(&self, indices: &[usize]) -> Result<Samples, DataError>;

    /// Returns facts about the data.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Returns a digest of all training and evaluation data.
    fn digest(&self) -> Digest;
}
