//! The training loop: steps, epochs, evaluations, and the events that report them.
//!
//! An epoch visits every sample once; its last batch may be smaller (PyTorch's default, `drop_last=False`). A run given
//! in steps continues from epoch to epoch and ends within one. `line` is reported as a single epoch of full-batch
//! steps, since each of its steps is a pass.
//!
//! A NaN loss is a value like any other: the run continues to its end.
//!
//! Synchronising with a device costs time. A device with a queue is therefore waited for only now and then, and a step
//! that is measured from inside is read alone, so that the measurement does not slow other steps.
//!
//! Each of several ranks runs the loop on its shard of every batch, in step with the others (`parallel`). The first
//! rank reports the run and evaluates. The others report their phases and the durations of their steps. A rank that
//! gets no sample of a smaller last batch still takes part in that step.

pub mod heartbeat;

use crate::data::images::order;
use crate::device::Place;
use crate::device::step_timer::StepTimer;
use crate::device::{idle, memory};
use crate::fit::heartbeat::{Heartbeat, Watch};
use crate::gradient_readiness::StagePasses;
use crate::native::memory::unstaged;
use crate::number::{real, real_len, wide};
use crate::ops::joined;
use crate::optimizer::Optimizer;
use crate::parallel::{Pace, ProcessGroup};
use crate::precision::Scaler;
use crate::spec::Spec;
use crate::task::Task;
use crate::{Finish, Sink, TrainError};
use burn::tensor::Tensor;
use ledger_record::{Digest, EventKind, PhaseEdge, Value};
use plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod evaluation;
mod plan;
mod rehearsal;
mod step;

pub use rehearsal::rehearse;

/// The number of warm-up steps on a device with a queue, which compile and tune for every way of running later steps.
/// The first few are read one by one. The last waits after each phase. Those between are queued, where Burn fuses
/// operations differently than when it is waited for.
pub const WARM_UP: u64 = 10;

/// The number of first steps that are read one by one.
const ALONE: u64 = 3;

/// The interval of steps that are measured from inside: on the host, and on a device with a queue. Losses on a device
/// are read at the same interval, because a read waits until the queue is empty.
const INNER_EVERY: [u64; 2] = [10, 50];

/// A loss that has not been read yet.
struct Unread {
    step: u64,
    loss: Tensor<1>,
    /// The factor of this loss in the sum over ranks.
    share: f64,
    /// The time limit class of the step.
    pace: Pace,
    /// Timestamps of this stage's passes.
    passes: Option<StagePasses>,
}

/// A model in training.
struct Trainer<'a> {
    group: ProcessGroup,
    spec: &'a Spec,
    task: Box<dyn Task>,
    place: &'a Place,
    sink: &'a dyn Sink,
    parameters: Vec<Tensor<1>>,
    optimizer: Optimizer,
    scaler: Option<Scaler>,
    plan: Plan,
    inner_every: u64,
    /// Whether every step's loss is read at once.
    drained: bool,
    /// Reports progress to the supervisor.
    heartbeat: Heartbeat<'a>,
    /// Whether a batch of another size, the last of an epoch, has been run before.
    smaller: bool,
    /// Losses of consecutive steps.
    unread: Vec<Unread>,
    /// The start of the first of them.
    since_ns: u64,
    /// Their boundaries by the device's clock.
    step_timer: StepTimer,
    last_loss: f64,
    /// For each step with timed passes, the fraction of it in which this stage was in no pass.
    idle: Vec<f64>,
    /// The digest of all samples that this rank has seen, in order.
    seen: Digest,
}

/// Trains to the end or to a stop, as one rank of a process group. `tuned` says whether the device's kernels have been
/// tuned before.
pub fn fit(
    group: ProcessGroup,
    spec: &Spec,
    task: Box<dyn Task>,
    place: &Place,
    sink: &dyn Sink,
    stop: &AtomicBool,
    tuned: bool,
) -> Result<Finish, TrainError> {
    Trainer::new(group, spec, task, place, sink)?.run(stop, tuned)
}

impl<'a> Trainer<'a> {
    /// A trainer before its first step. Every rank starts with the first one's parameters.
    fn new(
        group: ProcessGroup,
        spec: &'a Spec,
        task: Box<dyn Task>,
        place: &'a Place,
        sink: &'a dyn Sink,
    ) -> Result<Self, TrainError> {
        let parameters = group.broadcast_parameters(initial(&group, &*task, spec.seed, place))?;
        let optimizer = match place {
            Place::Host => Optimizer::on_host(spec.rule, spec.decay, task.param_specs()),
            Place::Device(device) => Optimizer::on_device(spec.rule, spec.decay, task.param_specs(), device),
        };
        let [on_host, on_device] = INNER_EVERY;
        let drained = matches!(place, Place::Host);
        let plan = Plan::new(spec, &*task, spec.batch * group.shards());
        let inner_every = if drained { on_host } else { on_device };
        let scaler = Scaler::of(spec.precision);
        let (watched, compiles, shared) = (group.ranks() > 1, !drained, group.pipelined());
        let heartbeat = Heartbeat::new(sink, Watch { watched, compiles, shared, rows: spec.batch });
        Ok(Self {
            group,
            spec,
            task,
            place,
            sink,
            parameters,
            optimizer,
            scaler,
            plan,
            inner_every,
            drained,
            heartbeat,
            smaller: false,
            unread: Vec::new(),
            since_ns: 0,
            step_timer: StepTimer::default(),
            last_loss: f64::NAN,
            idle: Vec::new(),
            seen: Digest::of(b""),
        })
    }

    fn run(&mut self, stop: &AtomicBool, tuned: bool) -> Result<Finish, TrainError> {
        let Plan { steps, epochs, .. } = self.plan;
        let sample_count = if self.task.is_full_batch() { self.task.samples() } else { self.batch() };
        if self.group.is_leader() {
            self.sink.emit(EventKind::Plan { steps, epochs, samples_per_step: wide(sample_count) });
        }
        let weights = self.task.parameter_count();
        self.status(format!("training {weights} parameters on {} samples", self.task.samples()));
        for (name, value) in self.task.facts() {
            self.fact(name, value);
        }
        let stated = self.task.static_metrics();
        for (name, value, unit) in &stated {
            self.metric(name, *value, unit);
        }
        self.fact("inner_every", self.inner_every.into());
        self.tell_of_team();
        if !self.drained {
            self.place.sync()?;
            if !self.rested(stop)? {
                return Ok(Finish::Stopped);
            }
            if self.group.ranks() == 1 {
                memory::begin(self.place, self.spec.batch);
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
        self.bubble()?;
        self.summary()?;
        if let Some(exposed_s) = self.group.exposed_s() {
            self.metric("all_reduce_exposed", exposed_s, "s");
            let of = |waits: Vec<f64>| Value::from(waits.into_iter().map(Value::from).collect::<Vec<_>>());
            let waits: Vec<Value> = self.group.waits_s().into_iter().map(of).collect();
            self.fact("all_reduce_waits_s", waits.into());
        }
        if self.group.is_leader() && stated.iter().any(|(name, ..)| *name == "flops_per_sample") {
            self.peak();
        }
        Ok(Finish::Done)
    }

    /// Reports the mean fraction of time in which pipeline stages are in no pass, by the clocks of their devices.
    fn bubble(&self) -> Result<(), TrainError> {
        if self.drained || !self.group.pipelined() {
            return Ok(());
        }
        let mine = self.idle.iter().sum::<f64>() / real_len(self.idle.len());
        let all = self.group.sum("bubble", 1, Pace::Steady, mine)? / real_len(self.group.ranks());
        if all.is_finite() {
            self.metric("bubble_fraction", all, "");
        }
        Ok(())
    }

    /// The number of samples of a step over all ranks.
    fn batch(&self) -> usize {
        self.spec.batch * self.group.shards()
    }

    /// Reports the facts of a run with several ranks.
    fn tell_of_team(&self) {
        if self.group.ranks() == 1 {
            return;
        }
        self.fact("ranks", self.group.ranks().into());
        self.fact("batch_global", self.batch().into());
        self.fact("learning_rate", self.spec.learning_rate.into());
        if let Some(mebibytes) = self.group.gradient_mebibytes() {
            self.fact("all_reduce_mib", mebibytes.into());
        }
        let left = if self.task.is_full_batch() { 0 } else { self.task.samples() % self.batch() };
        // A run that ends before the last batch has none.
        if self.plan.steps >= self.plan.steps_per_epoch {
            self.fact("last_batch", (if left == 0 { self.batch() } else { left }).into());
        }
    }

    /// Waits while idle power is measured, on all devices at the same time. Returns false if the run was asked to stop.
    fn rested(&self, stop: &AtomicBool) -> Result<bool, TrainError> {
        self.sink.doing("idle", 1, None);
        self.group.barrier("idle", 1, Pace::First)?;
        let rested = !self.group.is_leader() || idle::rest(self.sink, stop, self.spec.idle_ns);
        let rest = Duration::from_nanos(self.spec.idle_ns);
        Ok(self.group.all_agree("idle", 2, Pace::Within(rest), rested)?)
    }

    fn epoch(&mut self, epoch: u64, stop: &AtomicBool) -> Result<Finish, TrainError> {
        let first = (epoch - 1) * self.plan.steps_per_epoch + 1;
        let last = self.plan.last_of(epoch);
        let samples = self.task.samples();
        let order =
            if self.task.is_full_batch() { (0..samples).collect() } else { order(self.spec.seed, epoch, samples) };
        let batch = self.batch();
        let mut batches = (first..=last).zip(order.chunks(batch).cycle()).peekable();
        while let Some((step, indices)) = batches.next() {
            // Several ranks stop at the same step. The first of them decides that in the step itself.
            if self.group.ranks() == 1 && stop.load(Ordering::Relaxed) {
                self.read_losses()?;
                return Ok(Finish::Stopped);
            }
            let measured = step.is_multiple_of(self.inner_every);
            // A batch of another size may compile and tune again, as the first steps do.
            let first = step <= ALONE || step == WARM_UP;
            let alone = self.drained || measured || first || indices.len() < batch;
            if alone {
                self.read_losses()?;
                self.place.sync()?;
            }
            if self.unread.is_empty() {
                self.since_ns = self.sink.now_ns();
                self.step_timer.begin(self.place);
            }
            // A step of `line` is a pass over its data. Schedules in epochs count passes.
            let pass = if self.task.is_full_batch() { step } else { epoch };
            let next = batches.peek().map(|(_, indices)| *indices);
            let pace = self.pace(step, indices.len());
            let Some(unread) = self.step([step, pass], (indices, next), measured, (pace, stop))? else {
                self.read_losses()?;
                return Ok(Finish::Stopped);
            };
            self.unread.push(unread);
            self.step_timer.mark_step(self.place);
            // Steps of few launches would be submitted several at a time, which makes their times by the device's clock
            // too short or too long.
            self.place.begin();
            if alone {
                self.read_losses()?;
            }
            self.smaller |= indices.len() < batch;
        }
        self.read_losses()?;
        Ok(Finish::Done)
    }

    /// The time limit class of a step of `samples` samples.
    fn pace(&self, step: u64, samples: usize) -> Pace {
        let usual = samples == self.batch() || self.smaller;
        let known = if self.drained { step > 1 } else { step > WARM_UP && usual };
        if known { Pace::Steady } else { Pace::First }
    }

    /// Reads the unread losses, which waits for their steps, and reports each step. Durations are by the device's
    /// clock. They are the mean host time if the device has no clock or if a single step was waited for, because the
    /// phases of such a step are by the host's clock, too.
    fn read_losses(&mut self) -> Result<(), TrainError> {
        let Some(Unread { step: first, pace, .. }) = self.unread.first() else { return Ok(()) };
        let (first, pace, many) = (*first, *pace, self.unread.len());
        let last = first + wide(many) - 1;
        // Twice the limit, as in a step: ranks that wait for the sum then name the missing one.
        let limit = self.group.limit(pace, many).filter(|_| !self.drained).map(|limit| limit.saturating_mul(2));
        self.sink.doing("losses", first, limit);
        let (mut shares, mut losses, mut passes) = (Vec::new(), Vec::new(), Vec::new());
        for unread in self.unread.drain(..) {
            shares.push(unread.share);
            losses.push(unread.loss);
            passes.push(unread.passes);
        }
        let losses: Vec<f32> =
            joined(losses).try_into_vec_as().map_err(|source| TrainError::read("the loss", source))?;
        self.place.check()?;
        let losses = self.group.sum_losses(first, pace, losses.into_iter().zip(shares).collect())?;
        let duration_ns = self.sink.now_ns().saturating_sub(self.since_ns) / wide(many);
        self.sink.doing("step", last, None);
        // Compilation says nothing about later steps. The CPU compiles nothing, and the last step of the warm-up is
        // read alone.
        if pace == Pace::Steady || self.drained || last == WARM_UP {
            self.group.record_step(Duration::from_nanos(duration_ns));
        }
        let mut t_ns = self.since_ns;
        let durations = self.step_timer.durations_ns().filter(|durations| durations.len() == many && many > 1);
        let told = |(passes, duration_ns): (&Option<StagePasses>, &u64)| {
            passes.as_ref()?.idle(Duration::from_nanos(*duration_ns).as_secs_f64())
        };
        self.idle.extend(passes.iter().zip(durations.iter().flatten()).filter_map(told));
        let durations = durations.unwrap_or_else(|| vec![duration_ns; many]);
        for ((step, loss), duration_ns) in (first..).zip(losses).zip(durations) {
            self.last_loss = loss;
            t_ns = t_ns.saturating_add(duration_ns);
            // The loss is that of all ranks together.
            let values = if self.group.is_leader() { vec![("loss".to_owned(), loss)] } else { Vec::new() };
            self.sink.emit_at(t_ns, EventKind::Step { step, duration_ns: Some(duration_ns), values });
            if step == 1 && !self.drained {
                let first_s = real(duration_ns) / 1e9;
                self.status(format!("first step took {first_s:.1} s"));
                self.fact("first_step_s", first_s.into());
            }
        }
        Ok(())
    }

    fn phase(&self, name: &'static str, index: u64, edge: PhaseEdge) {
        if edge == PhaseEdge::Start {
            self.sink.doing(name, index, None);
        }
        self.sink.emit(EventKind::Phase { name: name.to_owned(), index, edge });
    }

    fn status(&self, message: String) {
        if self.group.is_leader() {
            self.sink.emit(EventKind::Status { message });
        }
    }

    fn fact(&self, name: &str, value: Value) {
        if self.group.is_leader() {
            self.sink.emit(EventKind::Fact { name: name.to_owned(), value });
        }
    }

    fn metric(&self, name: &str, value: f64, unit: &str) {
        if self.group.is_leader() {
            self.sink.emit(EventKind::Metric { name: name.to_owned(), value, unit: unit.to_owned() });
        }
    }
}

/// Returns the initial parameters. Ranks with the same parameters as the first one only allocate them, because the
/// first one sends its own.
fn initial(group: &ProcessGroup, task: &dyn Task, seed: u64, place: &Place) -> Vec<Tensor<1>> {
    let device = place.device();
    if !group.is_leader() && !group.pipelined() {
        return task.param_specs().iter().map(|param_spec| Tensor::zeros([param_spec.len()], &device)).collect();
    }
    task.initial(seed).into_iter().map(|values| Tensor::from_data(unstaged(values), &device)).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
