//! The loop: steps, epochs, evaluations, and the events that tell of them.
//!
//! Knows the order of what happens. An epoch visits every sample once; its last batch may be smaller (PyTorch's default,
//! `drop_last=False`). A run given in steps goes on from epoch to epoch and ends within one. `line` is told as a single epoch
//! of full-batch steps, since each of its steps is a pass.
//!
//! A loss that is no number any more is a value like any other: the run goes on to its end.
//!
//! Knows also that looking costs time: a device with a queue is waited for only now and then, and a step that is measured from
//! inside stands alone, so that what is measured is not slowed by the measuring.

use super::data::Data;
use super::device::Place;
use super::evaluate::{answer, enough, equal_batches, evaluate};
use super::images::{Images, order};
use super::number::{real, wide};
use super::optimizer::Optimizer;
use super::spec::{Length, ModelSpec, Spec};
use super::{Finish, Sink, TrainError, idle};
use crate::record::{Digest, EventKind, PhaseEdge, Value};
use burn::tensor::{Tensor, TensorData};
use std::sync::atomic::{AtomicBool, Ordering};

/// First steps of a device with a queue, each of which is read at once: they compile and tune, and no mean may hide that.
const WARM_UP: u64 = 10;

/// Every how many steps one is measured from inside: on the host, and on a device with a queue, whose losses are read no more often
/// because a read waits until the queue is empty.
const INNER_EVERY: [u64; 2] = [10, 50];

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
    inner_every: u64,
    /// Every step's loss is read at once.
    drained: bool,
    /// Losses that have not been read yet, with their steps, which follow each other.
    unread: Vec<(u64, Tensor<1>)>,
    /// When the first of them began.
    since_ns: u64,
    last_loss: f64,
}

/// The inner phases of one step.
#[derive(Clone, Copy)]
struct Inner<'a> {
    place: &'a Place,
    sink: &'a dyn Sink,
    step: u64,
    /// The device is waited for after each phase.
    waits: bool,
    /// The phases are told.
    tells: bool,
}

impl Inner<'_> {
    fn phase<T>(self, name: &str, work: impl FnOnce() -> Result<T, TrainError>) -> Result<T, TrainError> {
        let tell = |edge| {
            if self.tells {
                self.sink.emit(EventKind::Phase { name: name.to_owned(), index: self.step, edge });
            }
        };
        tell(PhaseEdge::Start);
        let done = work()?;
        if self.waits {
            self.place.sync()?;
        }
        tell(PhaseEdge::Stop);
        Ok(done)
    }
}

/// Trains to the end or to a stop. `tuned` says whether the device's kernels have been tuned before.
pub fn fit(
    spec: &Spec,
    data: &Data,
    place: &Place,
    sink: &dyn Sink,
    stop: &AtomicBool,
    tuned: bool,
) -> Result<Finish, TrainError> {
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
    let [on_host, on_device] = INNER_EVERY;
    let drained = matches!(place, Place::Host);
    let mut trainee = Trainee {
        spec,
        data,
        place,
        sink,
        parameters,
        optimizer,
        plan: Plan::new(spec, data),
        inner_every: if drained { on_host } else { on_device },
        drained,
        unread: Vec::new(),
        since_ns: 0,
        last_loss: f64::NAN,
    };
    trainee.run(stop, tuned)
}

impl Trainee<'_> {
    fn run(&mut self, stop: &AtomicBool, tuned: bool) -> Result<Finish, TrainError> {
        let Plan { steps, epochs, .. } = self.plan;
        let sample_count = if *self.data == Data::Line { self.data.train_len() } else { self.spec.batch };
        self.sink.emit(EventKind::Plan { steps, epochs, samples_per_step: wide(sample_count) });
        let weights: usize = self.spec.model.layouts().iter().map(super::model::Layout::len).sum();
        self.status(format!("training {weights} parameters on {} samples", self.data.train_len()));
        self.fact("inner_every", self.inner_every.into());
        if !self.drained {
            self.place.sync()?;
            if !idle::rest(self.sink, stop, self.spec.idle_ns) {
                return Ok(Finish::Stopped);
            }
            let cold = "compiling and tuning kernels for this GPU, which takes minutes once";
            self.status(if tuned { "loading kernels" } else { cold }.to_owned());
        }
        for epoch in 1..=epochs {
            self.phase("epoch", epoch, PhaseEdge::Start);
            let finish = self.epoch(epoch, stop)?;
            self.phase("epoch", epoch, PhaseEdge::Stop);
            if finish == Finish::Stopped {
                return Ok(Finish::Stopped);
            }
            if let Data::Images { eval, .. } = self.data {
                self.evaluation(epoch, eval)?;
            }
        }
        self.summary()?;
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
            let measured = step.is_multiple_of(self.inner_every);
            // A batch of another size may compile and tune anew, as the first steps do.
            let alone = self.drained || measured || step <= WARM_UP || indices.len() < self.spec.batch;
            if alone {
                self.read_losses()?;
                self.place.sync()?;
            }
            if self.unread.is_empty() {
                self.since_ns = self.sink.now_ns();
            }
            // A step of `line` is a pass over it, and passes are what a schedule in epochs counts.
            let pass = if *self.data == Data::Line { step } else { epoch };
            let loss = self.step(step, pass, indices, measured)?;
            self.unread.push((step, loss));
            if alone {
                self.read_losses()?;
            }
        }
        self.read_losses()?;
        Ok(Finish::Done)
    }

    fn step(&mut self, step: u64, pass: u64, indices: &[usize], measured: bool) -> Result<Tensor<1>, TrainError> {
        let (model, place) = (&self.spec.model, self.place);
        // Where the device is waited for, operations are fused in other groups: those are compiled before any is measured.
        let waits = measured || step == WARM_UP;
        let inner = Inner { place, sink: self.sink, step, waits, tells: measured };
        let fed = inner.phase("data", || {
            let batch = self.data.batch(indices);
            let mask = model.mask(self.spec.seed, step, batch.rows, place);
            Ok(model.feed(batch, mask, place))
        })?;
        let gradients_unread = |source| TrainError::read("the gradients", source);
        let taped = inner.phase("forward", || model.forward(&self.parameters, fed, place).map_err(gradients_unread))?;
        let (loss, gradients) = inner.phase("backward", || taped.backward().map_err(gradients_unread))?;
        if gradients.len() != self.parameters.len() {
            return Err(TrainError::Gradients { found: gradients.len(), expected: self.parameters.len() });
        }
        let rate = self.spec.learning_rate * self.spec.schedule.factor(step, pass, self.plan.steps);
        inner.phase("optimizer", || {
            self.optimizer
                .step(&mut self.parameters, gradients, rate)
                .map_err(|source| TrainError::read("the parameters", source))
        })?;
        Ok(loss)
    }

    /// Reads the losses that are there, which waits for their steps, and tells of each where the mean of their times puts it.
    fn read_losses(&mut self) -> Result<(), TrainError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        let (steps, losses): (Vec<u64>, Vec<Tensor<1>>) = self.unread.drain(..).unzip();
        let losses: Vec<f32> =
            joined(losses).try_into_vec_as().map_err(|source| TrainError::read("the loss", source))?;
        let duration_ns = self.sink.now_ns().saturating_sub(self.since_ns) / wide(steps.len());
        let mut t_ns = self.since_ns;
        for (step, loss) in steps.into_iter().zip(losses) {
            self.last_loss = f64::from(loss);
            t_ns = t_ns.saturating_add(duration_ns);
            let values = vec![("loss".to_owned(), self.last_loss)];
            self.sink.emit_at(t_ns, EventKind::Step { step, duration_ns: Some(duration_ns), values });
            if step == 1 && !self.drained {
                let first_s = real(duration_ns) / 1e9;
                self.status(format!("first step took {first_s:.1} s"));
                self.fact("first_step_s", first_s.into());
            }
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
            self.inference(eval)?;
        }
        Ok(())
    }

    /// Answers one batch after the other, each in a phase of its own, after one that warms up.
    fn inference(&self, eval: &Images) -> Result<(), TrainError> {
        let batches = equal_batches(eval.len());
        let answer = |indices: &[usize]| {
            answer(&self.spec.model, &self.parameters, eval, indices, self.place)
                .map_err(|source| TrainError::read("the answers", source))
        };
        if let Some(first) = batches.first() {
            answer(first)?;
        }
        let start_ns = self.sink.now_ns();
        for (done, indices) in (0..).zip(batches.iter().cycle()) {
            if enough(done, self.sink.now_ns().saturating_sub(start_ns)) {
                break;
            }
            self.phase("inference", done + 1, PhaseEdge::Start);
            answer(indices)?;
            self.phase("inference", done + 1, PhaseEdge::Stop);
        }
        Ok(())
    }

    fn summary(&mut self) -> Result<(), TrainError> {
        self.metric("loss", self.last_loss, "");
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

    fn status(&self, message: String) {
        self.sink.emit(EventKind::Status { message });
    }

    fn fact(&self, name: &str, value: Value) {
        self.sink.emit(EventKind::Fact { name: name.to_owned(), value });
    }

    fn metric(&self, name: &str, value: f64, unit: &str) {
        self.sink.emit(EventKind::Metric { name: name.to_owned(), value, unit: unit.to_owned() });
    }
}

/// One tensor after the other.
///
/// A single one stays as it is: with fusion, joining one tensor to nothing while other operations wait in the queue gives zeros on CUDA
/// (burn-fusion 0.22.0-pre.3).
pub(super) fn joined(mut tensors: Vec<Tensor<1>>) -> Tensor<1> {
    if tensors.len() == 1 { tensors.remove(0) } else { Tensor::cat(tensors, 0) }
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
