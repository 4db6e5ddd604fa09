//! The loop: steps, epochs, evaluations, and the events that tell of them.
//!
//! Knows the order of what happens. An epoch visits every sample once; its last batch may be smaller (PyTorch's default,
//! `drop_last=False`). A run given in steps goes on from epoch to epoch and ends within one. `line` is told as a single epoch
//! of full-batch steps, since each of its steps is a pass.
//!
//! A loss that is no number any more is a value like any other: the run goes on to its end.

use super::data::Data;
use super::device::Place;
use super::evaluate::{answer_times, evaluate};
use super::images::{Images, order};
use super::number::wide;
use super::optimizer::Optimizer;
use super::spec::{Length, ModelSpec, Spec};
use super::{Finish, Sink, TrainError};
use crate::record::{Digest, EventKind, PhaseEdge};
use burn::tensor::{Tensor, TensorData};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps whose losses are read at once from a device with a queue: a read waits until the queue is empty.
const QUEUE: usize = 50;

/// How many steps and epochs a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    steps: u64,
    epochs: u64,
    steps_per_epoch: u64,
}

impl Plan {
    fn new(spec: &Spec, data: &Data) -> Self {
        let pass = wide(data.train_len().div_ceil(spec.batch));
        let steps = match spec.length {
            Length::Epochs(epochs) => epochs.saturating_mul(pass),
            Length::Steps(steps) => steps,
        };
        let steps_per_epoch = if *data == Data::Line { steps } else { pass };
        Self { steps, epochs: steps.div_ceil(steps_per_epoch.max(1)), steps_per_epoch }
    }

    /// The last step of an epoch.
    fn last_of(self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.steps_per_epoch).min(self.steps)
    }
}

/// A model in training.
struct Trainee<'a> {
    spec: &'a Spec,
    data: &'a Data,
    place: &'a Place,
    sink: &'a dyn Sink,
    parameters: Vec<Tensor<1>>,
    optimizer: Optimizer,
    plan: Plan,
    /// Losses that have not been read yet, with their steps.
    unread: Vec<(u64, Tensor<1>)>,
    /// When the first of them began.
    since: Instant,
    last_loss: f64,
}

/// Trains to the end or to a stop.
pub fn fit(spec: &Spec, data: &Data, place: &Place, sink: &dyn Sink, stop: &AtomicBool) -> Result<Finish, TrainError> {
    let parameters: Vec<Tensor<1>> = spec
        .model
        .initial(spec.seed)
        .into_iter()
        .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &place.device()))
        .collect();
    let optimizer = match place {
        Place::Host => Optimizer::on_host(spec.rule, &parameters),
        Place::Device(_) => Optimizer::on_device(spec.rule, &parameters),
    };
    let plan = Plan::new(spec, data);
    let since = Instant::now();
    let unread = Vec::new();
    let mut trainee =
        Trainee { spec, data, place, sink, parameters, optimizer, plan, unread, since, last_loss: f64::NAN };
    trainee.run(stop)
}

impl Trainee<'_> {
    fn run(&mut self, stop: &AtomicBool) -> Result<Finish, TrainError> {
        let Plan { steps, epochs, .. } = self.plan;
        let sample_count = if *self.data == Data::Line { self.data.train_len() } else { self.spec.batch };
        self.sink.emit(EventKind::Plan { steps, epochs, samples_per_step: wide(sample_count) });
        let weights: usize = self.spec.model.layouts().iter().map(super::model::Layout::len).sum();
        self.sink.emit(EventKind::Status {
            message: format!("training {weights} parameters on {} samples", self.data.train_len()),
        });

        let mut times = Vec::new();
        for epoch in 1..=epochs {
            self.phase("epoch", epoch, PhaseEdge::Start);
            let start = Instant::now();
            let finish = self.epoch(epoch, stop)?;
            times.push(start.elapsed());
            self.phase("epoch", epoch, PhaseEdge::Stop);
            if finish == Finish::Stopped {
                return Ok(Finish::Stopped);
            }
            if let Data::Images { eval, .. } = self.data {
                self.evaluation(epoch, eval)?;
            }
        }
        self.summary(times)?;
        Ok(Finish::Done)
    }

    fn epoch(&mut self, epoch: u64, stop: &AtomicBool) -> Result<Finish, TrainError> {
        let first = (epoch - 1) * self.plan.steps_per_epoch + 1;
        let last = self.plan.last_of(epoch);
        let order = order(self.spec.seed, epoch, self.data.train_len());
        for (step, indices) in (first..=last).zip(order.chunks(self.spec.batch).cycle()) {
            if stop.load(Ordering::Relaxed) {
                self.read_losses()?;
                return Ok(Finish::Stopped);
            }
            if self.unread.is_empty() {
                self.since = Instant::now();
            }
            // A step of `line` is a pass over it, and passes are what a schedule in epochs counts.
            let pass = if *self.data == Data::Line { step } else { epoch };
            let loss = self.step(step, pass, indices)?;
            self.unread.push((step, loss));
            if matches!(self.place, Place::Host) || self.unread.len() == QUEUE {
                self.read_losses()?;
            }
        }
        self.read_losses()?;
        Ok(Finish::Done)
    }

    fn step(&mut self, step: u64, pass: u64, indices: &[usize]) -> Result<Tensor<1>, TrainError> {
        let model = &self.spec.model;
        let batch = self.data.batch(indices);
        let mask = model.mask(self.spec.seed, step, batch.rows, self.place);
        let (loss, gradients) = model
            .differentiate(&self.parameters, batch, mask, self.place)
            .map_err(|source| TrainError::read("the gradients", source))?;
        if gradients.len() != self.parameters.len() {
            return Err(TrainError::Gradients { found: gradients.len(), expected: self.parameters.len() });
        }
        let rate = self.spec.learning_rate * self.spec.schedule.factor(step, pass, self.plan.steps);
        self.optimizer
            .step(&mut self.parameters, gradients, rate)
            .map_err(|source| TrainError::read("the parameters", source))?;
        Ok(loss)
    }

    fn read_losses(&mut self) -> Result<(), TrainError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        let (steps, losses): (Vec<u64>, Vec<Tensor<1>>) = self.unread.drain(..).unzip();
        let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        let losses: Vec<f32> =
            Tensor::cat(losses, 0).try_into_vec_as().map_err(|source| TrainError::read("the loss", source))?;
        let duration_ns = nanoseconds(self.since.elapsed() / count);
        for (step, loss) in steps.into_iter().zip(losses) {
            self.last_loss = f64::from(loss);
            let values = vec![("loss".to_owned(), self.last_loss)];
            self.sink.emit(EventKind::Step { step, duration_ns: Some(duration_ns), values });
        }
        Ok(())
    }

    fn evaluation(&mut self, epoch: u64, eval: &Images) -> Result<(), TrainError> {
        self.phase("eval", epoch, PhaseEdge::Start);
        let score = evaluate(&self.spec.model, &self.parameters, eval, self.place)
            .map_err(|source| TrainError::read("the answers", source))?;
        self.phase("eval", epoch, PhaseEdge::Stop);
        let values = vec![("eval_loss".to_owned(), score.loss), ("eval_accuracy".to_owned(), score.accuracy)];
        let step = self.plan.last_of(epoch);
        self.sink.emit(EventKind::Step { step, duration_ns: None, values });
        if epoch == self.plan.epochs {
            self.metric("eval_loss", score.loss, "");
            self.metric("accuracy", score.accuracy, "");
            self.phase("inference", 1, PhaseEdge::Start);
            let times = answer_times(&self.spec.model, &self.parameters, eval, self.place)
                .map_err(|source| TrainError::read("the answers", source))?;
            self.phase("inference", 1, PhaseEdge::Stop);
            self.metric("inference_time", median(times), "s");
        }
        Ok(())
    }

    fn summary(&mut self, times: Vec<Duration>) -> Result<(), TrainError> {
        self.metric("loss", self.last_loss, "");
        self.metric("train_time", times.iter().sum::<Duration>().as_secs_f64(), "s");
        self.metric("epoch_time", median(times), "s");
        let mut values = Vec::new();
        for parameter in &self.parameters {
            let read: Vec<f32> =
                parameter.clone().try_into_vec_as().map_err(|source| TrainError::read("the parameters", source))?;
            values.push(read);
        }
        if let (ModelSpec::Linear { .. }, [weight, bias]) = (self.spec.model, values.as_slice()) {
            weight.iter().for_each(|weight| self.metric("weight", f64::from(*weight), ""));
            bias.iter().for_each(|bias| self.metric("bias", f64::from(*bias), ""));
        }
        let weights = weights_digest(&self.spec.model, &values);
        self.sink.emit(EventKind::Digest { name: "weights".to_owned(), digest: weights });
        self.sink.emit(EventKind::Digest { name: "data".to_owned(), digest: self.data.digest() });
        Ok(())
    }

    fn phase(&self, name: &str, index: u64, edge: PhaseEdge) {
        self.sink.emit(EventKind::Phase { name: name.to_owned(), index, edge });
    }

    fn metric(&self, name: &str, value: f64, unit: &str) {
        self.sink.emit(EventKind::Metric { name: name.to_owned(), value, unit: unit.to_owned() });
    }
}

/// Hashes every parameter in its order: name, shape, and the little-endian bytes of its values.
fn weights_digest(model: &ModelSpec, values: &[Vec<f32>]) -> Digest {
    let pieces: Vec<Vec<u8>> = model
        .layouts()
        .iter()
        .zip(values)
        .flat_map(|(layout, values)| {
            let shape = layout.shape.iter().flat_map(|size| wide(*size).to_le_bytes()).collect();
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            [layout.name.as_bytes().to_vec(), shape, bytes]
        })
        .collect();
    Digest::of_pieces("ledger weights v1", &pieces.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The median in seconds; NaN of nothing.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let middle = |from_end: usize| times.len().checked_sub(from_end).and_then(|at| times.get(at / 2));
    match (middle(1), middle(0)) {
        (Some(low), Some(high)) => (*low + *high).as_secs_f64() / 2.0,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests;
