//! Pictures and texts as data sets of the published models.

use super::pictures::{PictureBatch, PictureError, Pictures};
use super::text::{Text, TokenBatch};
use crate::DataError;
use crate::data::dataset::{Dataset, Inputs, Samples};
use crate::number::real_len;
use ledger_record::{Digest, Value};

impl Dataset for Pictures {
    fn train_len(&self) -> usize {
        Self::train_len(self)
    }

    fn eval_len(&self) -> usize {
        Self::eval_len(self)
    }

    fn classes(&self) -> usize {
        Self::classes(self)
    }

    fn train(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<Samples, DataError> {
        samples(self.side(), self.train_batch(seed, epoch, indices))
    }

    fn eval(&self, indices: &[usize]) -> Result<Samples, DataError> {
        samples(self.side(), self.eval_batch(indices))
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        let ignored = Some(self.ignored()).filter(|ignored| *ignored > 0);
        let chance = 1.0 / real_len(self.classes().max(1));
        let ignored = ignored.map(|ignored| ("data_files_ignored", ignored.into()));
        ignored.into_iter().chain([("chance_accuracy", chance.into())]).collect()
    }

    fn digest(&self) -> Digest {
        Self::digest(self)
    }
}

fn samples(side: usize, batch: Result<PictureBatch, PictureError>) -> Result<Samples, DataError> {
    let PictureBatch { rows, pixels, labels } = batch?;
    Ok(Samples { inputs: Inputs::Pictures { bytes: pixels, shape: [rows, 3, side, side] }, targets: labels })
}

impl Dataset for Text {
    fn train_len(&self) -> usize {
        Self::train_len(self)
    }

    fn eval_len(&self) -> usize {
        Self::eval_len(self)
    }

    fn classes(&self) -> usize {
        self.vocabulary_len()
    }

    fn width(&self) -> usize {
        Self::width(self)
    }

    fn max_targets(&self) -> usize {
        Self::max_targets(self)
    }

    fn train(&self, seed: u64, epoch: u64, indices: &[usize]) -> Result<Samples, DataError> {
        Ok(tokens(self.train_batch(seed, epoch, indices)))
    }

    fn eval(&self, indices: &[usize]) -> Result<Samples, DataError> {
        Ok(tokens(self.eval_batch(indices)))
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        let chance = Some(("chance_perplexity", real_len(self.vocabulary_len()).into()));
        let floor = self.floor().map(|floor| ("eval_loss_floor", floor.into()));
        chance.into_iter().chain(floor).collect()
    }

    fn digest(&self) -> Digest {
        Self::digest(self)
    }
}

fn tokens(batch: TokenBatch) -> Samples {
    let TokenBatch { rows, width, ids, targets } = batch;
    Samples { inputs: Inputs::Tokens { ids, shape: [rows, width] }, targets }
}
