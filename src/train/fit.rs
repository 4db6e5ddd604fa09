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

use super::device::{Place, caught};
use super::evaluate::enough;
use super::gradient::{clipped, finite, scaled};
use super::images::order;
use super::number::{real, real_len, wide};
use super::optimizer::Optimizer;
use super::parameters::{self, Layout, count};
use super::peak::matmul_tflops;
use super::precision::Scaler;
use super::spec::{Length, Spec};
use super::task::{Inner, Step, Task};
use super::{Finish, Sink, TrainError, idle};
use crate::record::{Digest, EventKind, PhaseEdge, Value};
use burn::tensor::{Tensor, TensorData};
use std::sync::atomic::{AtomicBool, Ordering};

/// First steps of a device with a queue: they compile and tune, for each way in which later steps are done. The first few are read one by one, the last is waited for
/// in each of its parts, and those between are queued, where operations are fused in other groups than where the device is waited for.
pub const WARM_UP: u64 = 10;

/// How many of them are read one by one.
const ALONE: u64 = 3;

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
    fn new(spec: &Spec, task: &dyn Task) -> Self {
        let pass = wide(task.samples().div_ceil(spec.batch));
        let steps = match spec.length {
            Length::Epochs(epochs) => epochs.saturating_mul(pass),
            Length::Steps(steps) => steps,
        };
        let steps_per_epoch = if task.whole() { steps } else { pass };
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
    task: Box<dyn Task>,
    place: &'a Place,
    sink: &'a dyn Sink,
    parameters: Vec<Tensor<1>>,
    optimizer: Optimizer,
    scaler: Option<Scaler>,
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

/// Trains to the end or to a stop. `tuned` says whether the device's kernels have been tuned before.
pub fn fit(
    spec: &Spec,
    task: Box<dyn Task>,
    place: &Place,
    sink: &dyn Sink,
    stop: &AtomicBool,
    tuned: bool,
) -> Result<Finish, TrainError> {
    let parameters: Vec<Tensor<1>> = parameters::initial(task.layouts(), spec.seed)
        .into_iter()
        .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &place.device()))
        .collect();
    let optimizer = match place {
        Place::Host => Optimizer::on_host(spec.rule, spec.decay, task.layouts()),
        Place::Device(device) => Optimizer::on_device(spec.rule, spec.decay, task.layouts(), device),
    };
    let [on_host, on_device] = INNER_EVERY;
    let drained = matches!(place, Place::Host);
    let mut trainee = Trainee {
        spec,
        plan: Plan::new(spec, &*task),
        task,
        place,
        sink,
        parameters,
        optimizer,
        scaler: Scaler::of(spec.precision),
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
        let sample_count = if self.task.whole() { self.task.samples() } else { self.spec.batch };
        self.sink.emit(EventKind::Plan { steps, epochs, samples_per_step: wide(sample_count) });
        let weights = count(self.task.layouts());
        self.status(format!("training {weights} parameters on {} samples", self.task.samples()));
        for (name, value) in self.task.facts() {
            self.fact(name, value);
        }
        let stated = self.task.stated();
        for (name, value, unit) in &stated {
            self.metric(name, *value, unit);
        }
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
            self.evaluation(epoch)?;
        }
        self.summary()?;
        if stated.iter().any(|(name, ..)| *name == "flops_per_sample") {
            self.peak();
        }
        Ok(Finish::Done)
    }

    fn epoch(&mut self, epoch: u64, stop: &AtomicBool) -> Result<Finish, TrainError> {
        let first = (epoch - 1) * self.plan.steps_per_epoch + 1;
        let last = self.plan.last_of(epoch);
        let order = order(self.spec.seed, epoch, self.task.samples());
        let mut batches = (first..=last).zip(order.chunks(self.spec.batch).cycle()).peekable();
        while let Some((step, indices)) = batches.next() {
            if stop.load(Ordering::Relaxed) {
                self.read_losses()?;
                return Ok(Finish::Stopped);
            }
            let measured = step.is_multiple_of(self.inner_every);
            // A batch of another size may compile and tune anew, as the first steps do.
            let first = step <= ALONE || step == WARM_UP;
            let alone = self.drained || measured || first || indices.len() < self.spec.batch;
            if alone {
                self.read_losses()?;
                self.place.sync()?;
            }
            if self.unread.is_empty() {
                self.since_ns = self.sink.now_ns();
            }
            // A step of `line` is a pass over it, and passes are what a schedule in epochs counts.
            let pass = if self.task.whole() { step } else { epoch };
            let next = batches.peek().map(|(_, indices)| *indices);
            let loss = self.step(step, pass, (indices, next), measured)?;
            self.unread.push((step, loss));
            if alone {
                self.read_losses()?;
            }
        }
        self.read_losses()?;
        Ok(Finish::Done)
    }

    fn step(
        &mut self,
        number: u64,
        pass: u64,
        (indices, next): (&[usize], Option<&[usize]>),
        measured: bool,
    ) -> Result<Tensor<1>, TrainError> {
        let waits = measured || number == WARM_UP;
        let inner = Inner { place: self.place, sink: self.sink, step: number, waits, tells: measured };
        let scale = self.scaler.map_or(1.0, |scaler| scaler.scale());
        let step = Step { number, epoch: pass, indices, next, scale, inner };
        let (loss, gradients) = self.task.gradients(&step, &self.parameters)?;
        if gradients.len() != self.parameters.len() {
            return Err(TrainError::Gradients { found: gradients.len(), expected: self.parameters.len() });
        }
        let rate = self.spec.learning_rate * self.spec.schedule.factor(number, pass, self.plan.steps);
        let rate = rate * warming(number, self.spec.warmup);
        inner.phase("optimizer", || self.update(gradients, rate, scale))?;
        Ok(loss)
    }

    fn update(&mut self, gradients: Vec<Tensor<1>>, rate: f64, scale: f64) -> Result<(), TrainError> {
        let unread = |source| TrainError::read("the gradients", source);
        let mut gradients = gradients;
        if let Some(scaler) = &mut self.scaler {
            if !scaler.take(finite(&gradients).map_err(unread)?) {
                return Ok(());
            }
            gradients = scaled(gradients, 1.0 / scale);
        }
        if let Some(norm) = self.spec.clip_norm {
            gradients = clipped(gradients, norm);
        }
        self.optimizer
            .step(&mut self.parameters, gradients, rate)
            .map_err(|source| TrainError::read("the parameters", source))
    }

    /// Reads the losses that are there, which waits for their steps, and tells of each where the mean of their times puts it.
    fn read_losses(&mut self) -> Result<(), TrainError> {
        if self.unread.is_empty() {
            return Ok(());
        }
        let (steps, losses): (Vec<u64>, Vec<Tensor<1>>) = self.unread.drain(..).unzip();
        let losses: Vec<f32> =
            joined(losses).try_into_vec_as().map_err(|source| TrainError::read("the loss", source))?;
        self.place.check()?;
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

    fn evaluation(&mut self, epoch: u64) -> Result<(), TrainError> {
        if self.task.whole() {
            return Ok(());
        }
        self.phase("eval", epoch, PhaseEdge::Start);
        let score = self.task.evaluate(&self.parameters)?;
        self.place.check()?;
        self.phase("eval", epoch, PhaseEdge::Stop);
        let Some(score) = score else { return Ok(()) };
        let values = score.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.sink.emit(EventKind::Step { step: self.plan.last_of(epoch), duration_ns: None, values });
        if epoch == self.plan.epochs {
            for (name, value) in score {
                // The loss of the last step has the name `loss`.
                self.metric(if name == "eval_loss" { name } else { name.trim_start_matches("eval_") }, value, "");
            }
            self.inference()?;
        }
        Ok(())
    }

    /// Answers batches of each size that is asked for; where the manifest names sizes, those of one size lie in a phase of their own.
    fn inference(&mut self) -> Result<(), TrainError> {
        let Some(usual) = self.task.answered_rows() else { return Ok(()) };
        let sizes = self.spec.inference.clone();
        self.metric("inference_batch_size", real_len(*sizes.first().unwrap_or(&usual)), "");
        if sizes.is_empty() {
            return self.answers(usual);
        }
        for rows in sizes {
            self.phase("inference_batch", wide(rows), PhaseEdge::Start);
            self.answers(rows)?;
            self.phase("inference_batch", wide(rows), PhaseEdge::Stop);
        }
        Ok(())
    }

    /// Answers one batch after the other, each in a phase of its own, after one that warms up.
    fn answers(&mut self, rows: usize) -> Result<(), TrainError> {
        self.task.ask(0, rows)?;
        self.task.answer(&self.parameters)?;
        let start_ns = self.sink.now_ns();
        for done in 0.. {
            if enough(done, self.sink.now_ns().saturating_sub(start_ns)) {
                break;
            }
            self.task.ask(done, rows)?;
            self.phase("inference", done + 1, PhaseEdge::Start);
            self.task.answer(&self.parameters)?;
            self.phase("inference", done + 1, PhaseEdge::Stop);
        }
        Ok(())
    }

    fn summary(&mut self) -> Result<(), TrainError> {
        self.metric("loss", self.last_loss, "");
        if let Some(scaler) = self.scaler {
            self.metric("skipped_steps", real(scaler.skipped()), "");
        }
        let mut values = Vec::new();
        for parameter in &self.parameters {
            let read: Vec<f32> =
                parameter.clone().try_into_vec_as().map_err(|source| TrainError::read("the parameters", source))?;
            values.push(read);
        }
        self.place.check()?;
        for (name, value) in self.task.metrics(&values) {
            self.metric(name, value, "");
        }
        let weights = weights_digest(self.task.layouts(), &values);
        self.sink.emit(EventKind::Digest { name: "weights".to_owned(), digest: weights });
        self.sink.emit(EventKind::Digest { name: "data".to_owned(), digest: self.task.digest() });
        Ok(())
    }

    /// Tells what the device reaches, last of all: a card whose memory is full has no room for it, and that takes nothing from the run.
    fn peak(&self) {
        self.phase("peak", 1, PhaseEdge::Start);
        let found = caught(|| matmul_tflops(self.place, self.spec.precision, self.sink));
        self.phase("peak", 1, PhaseEdge::Stop);
        match found.and_then(|found| found.map_err(|error| error.to_string())) {
            Ok(peak) => self.metric("matmul_tflops", peak, "TFLOP/s"),
            Err(problem) => self.status(format!("`mfu` is not told, since large products failed: {problem}")),
        }
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

/// The share of the learning rate in the first steps: it rises linearly to 1 at step `warmup` (Goyal et al. 2017, section 2.2).
fn warming(step: u64, warmup: u64) -> f64 {
    if step < warmup { real(step) / real(warmup) } else { 1.0 }
}

/// One tensor after the other.
pub(super) fn joined(mut tensors: Vec<Tensor<1>>) -> Tensor<1> {
    if tensors.len() == 1 { tensors.remove(0) } else { Tensor::cat(tensors, 0) }
}

/// Hashes every parameter in its order: name, shape, and the little-endian bytes of its values.
fn weights_digest(layouts: &[Layout], values: &[Vec<f32>]) -> Digest {
    let pieces: Vec<Vec<u8>> = layouts
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
