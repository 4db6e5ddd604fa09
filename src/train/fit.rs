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
//!
//! Each rank of several runs the loop on its shard of every batch, in step with the others (`parallel`). The first one tells of the run and evaluates; the others
//! tell of their phases and of how long their steps took. A rank for which nothing is left of a smaller last batch takes part in that step with no sample.

use super::device::Place;
use super::gradient::{clipped, finite, scaled, shortening, squares};
use super::gradient_readiness::{self, Mark, ReadyMarks, StagePasses};
use super::heartbeat::{Heartbeat, Watch};
use super::images::order;
use super::number::{real, real_len, wide};
use super::optimizer::Optimizer;
use super::parallel::{Pace, ProcessGroup, Sums};
use super::parameters::ParamSpec;
use super::precision::Scaler;
use super::spec::Spec;
use super::step_timer::StepTimer;
use super::task::{Gradients, Inner, Step, Task};
use super::{Finish, Sink, TrainError, gpu_memory, idle};
use burn::tensor::{Tensor, TensorData};
use ledger_record::{Digest, EventKind, PhaseEdge, Value};
use plan::{Plan, warming};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod evaluation;
mod plan;
mod rehearsal;

pub use rehearsal::rehearse;

/// First steps of a device with a queue: they compile and tune, for each way in which later steps are done. The first few are read one by one, the last is waited for
/// in each of its parts, and those between are queued, where operations are fused in other groups than where the device is waited for.
pub const WARM_UP: u64 = 10;

/// How many of them are read one by one.
const ALONE: u64 = 3;

/// Every how many steps one is measured from inside: on the host, and on a device with a queue, whose losses are read no more often
/// because a read waits until the queue is empty.
const INNER_EVERY: [u64; 2] = [10, 50];

/// A loss that has not been read yet.
struct Unread {
    step: u64,
    loss: Tensor<1>,
    /// What it is multiplied by before it is added to those of other ranks.
    share: f64,
    /// How long the step might take.
    pace: Pace,
    /// When this stage worked.
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
    /// Every step's loss is read at once.
    drained: bool,
    /// What tells that it answers.
    heartbeat: Heartbeat<'a>,
    /// A batch of another size, the last of an epoch, was there already.
    smaller: bool,
    /// Losses of steps that follow each other.
    unread: Vec<Unread>,
    /// When the first of them began.
    since_ns: u64,
    /// Their borders by the device's clock.
    step_timer: StepTimer,
    last_loss: f64,
    /// Of each step whose passes are timed, the share of it in which this stage was in none.
    idle: Vec<f64>,
    /// Of all samples that this rank has seen, in their order.
    seen: Digest,
}

/// Trains to the end or to a stop, as one rank of a process group. `tuned` says whether the device's kernels have been tuned before.
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
    /// One that has learned nothing: every rank begins with the first one's values.
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
                gpu_memory::begin(self.place, self.spec.batch);
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

    /// How much of their time the stages of a pipeline are in no pass, by the clocks of their devices.
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

    /// Samples that all ranks together take in a step.
    fn batch(&self) -> usize {
        self.spec.batch * self.group.shards()
    }

    /// What is worth recording of several ranks.
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
        // A run that ends before has none.
        if self.plan.steps >= self.plan.steps_per_epoch {
            self.fact("last_batch", (if left == 0 { self.batch() } else { left }).into());
        }
    }

    /// The rest in which idle power is measured: on all devices at the same time.
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
            // Several ranks stop at the same step, which the first of them decides in the step itself.
            if self.group.ranks() == 1 && stop.load(Ordering::Relaxed) {
                self.read_losses()?;
                return Ok(Finish::Stopped);
            }
            let measured = step.is_multiple_of(self.inner_every);
            // A batch of another size may compile and tune anew, as the first steps do.
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
            // A step of `line` is a pass over it, and passes are what a schedule in epochs counts.
            let pass = if self.task.is_full_batch() { step } else { epoch };
            let next = batches.peek().map(|(_, indices)| *indices);
            let pace = self.pace(step, indices.len());
            let Some(unread) = self.step([step, pass], (indices, next), measured, (pace, stop))? else {
                self.read_losses()?;
                return Ok(Finish::Stopped);
            };
            self.unread.push(unread);
            self.step_timer.mark_step(self.place);
            if alone {
                self.read_losses()?;
            }
            self.smaller |= indices.len() < batch;
        }
        self.read_losses()?;
        Ok(Finish::Done)
    }

    /// How long a step of so many samples may take.
    fn pace(&self, step: u64, samples: usize) -> Pace {
        let usual = samples == self.batch() || self.smaller;
        let known = if self.drained { step > 1 } else { step > WARM_UP && usual };
        if known { Pace::Steady } else { Pace::First }
    }

    /// One step; none if it was not done because the run is to stop.
    fn step(
        &mut self,
        [number, pass]: [u64; 2],
        (indices, next): (&[usize], Option<&[usize]>),
        measured: bool,
        (pace, stop): (Pace, &AtomicBool),
    ) -> Result<Option<Unread>, TrainError> {
        let waits = measured || number == WARM_UP;
        // Twice as long as the ranks wait for each other: those that wait name the one that does not come.
        let watched = !self.drained && self.group.ranks() > 1;
        let limit = self.group.limit(pace, 1).filter(|_| watched).map(|limit| limit.saturating_mul(2));
        let wait_limit = self.group.limit(pace, 1);
        let inner =
            Inner { place: self.place, sink: self.sink, step: number, waits, tells: measured, limit, wait_limit };
        let scale = self.scaler.map_or(1.0, |scaler| scaler.scale());
        let next = next.map(|next| self.group.shard(next)).filter(|next| !next.is_empty());
        let (indices, lead, rank) = (self.group.shard(indices), self.group.leader_shard(indices), self.group.rank());
        // A step that is looked into waits between its phases, and the first ones compile.
        let groups = self.group.groups().filter(|_| !waits && number > WARM_UP);
        let groups = groups.as_deref();
        let step = Step { number, epoch: pass, rank, indices, lead, next, groups, scale, inner };
        self.see(indices);
        let found = if indices.is_empty() { self.nothing() } else { self.task.gradients(&step, &self.parameters)? };
        let Gradients { loss, gradients, mean_of, mut marks } = found;
        let passes = std::mem::take(&mut marks.passes);
        if gradients.len() != self.parameters.len() {
            return Err(TrainError::Gradients { found: gradients.len(), expected: self.parameters.len() });
        }
        let mut share = Some(1.0);
        let sums = if self.group.ranks() == 1 {
            Sums::of(gradients)
        } else {
            if self.group.shards() > 1 && !waits && number > WARM_UP {
                marks.end = Some(Mark::of(&self.place.device(), true));
            }
            // Work that a device refused leaves the others waiting for it: better told before they do.
            self.place.check()?;
            let what = if self.group.pipelined() { "together" } else { "all_reduce" };
            inner.phase(what, || {
                share = self.group.share(number, pace, mean_of, stop.load(Ordering::Relaxed))?;
                let sums = match share {
                    Some(share) => self.group.sum_gradients(number, pace, (gradients, marks), share)?,
                    None => Sums::of(gradients),
                };
                // A step that is looked into has all of them in the phase that makes them.
                Ok(if waits { Sums::of(sums.all()) } else { sums })
            })?
        };
        let Some(share) = share else { return Ok(None) };
        let rate = self.spec.learning_rate * self.spec.schedule.factor(number, pass, self.plan.steps);
        let rate = rate * warming(number, self.spec.warmup);
        let timed = !passes.is_empty();
        let update = inner.phase("optimizer", || self.update((number, pace, timed), sums, rate, scale))?;
        let passes = update.map(|update| StagePasses { borders: passes, update });
        self.group.begin();
        Ok(Some(Unread { step: number, loss, share, pace, passes }))
    }

    /// Keeps what several ranks were given, so that a record shows that each of them had its own.
    fn see(&mut self, indices: &[usize]) {
        if self.group.shards() > 1 {
            let bytes: Vec<u8> = indices.iter().flat_map(|index| wide(*index).to_le_bytes()).collect();
            self.seen = Digest::of_pieces("ledger shard v1", &[&self.seen.0, &bytes]);
        }
    }

    /// What a rank adds to a step in which no sample is left for it.
    fn nothing(&self) -> Gradients {
        let device = self.place.device();
        let zeros = |param_spec: &ParamSpec| Tensor::zeros([param_spec.len()], &device);
        let gradients = self.task.param_specs().iter().map(zeros).collect();
        Gradients { loss: Tensor::zeros([1], &device), gradients, mean_of: Some(0), marks: ReadyMarks::default() }
    }

    /// Between which marks the parameters were updated, if that is timed and they were.
    fn update(
        &mut self,
        (step, pace, timed): (u64, Pace, bool),
        sums: Sums,
        rate: f64,
        scale: f64,
    ) -> Result<Option<[Mark; 2]>, TrainError> {
        let unread = |source| TrainError::read("the gradients", source);
        let mut sums = sums;
        if let Some(scaler) = &mut self.scaler {
            let gradients = sums.all();
            let finite = finite(&gradients).map_err(unread)?;
            // All have the same gradients, and decide the same even if a device erred.
            if !scaler.take(self.group.all_agree("scale", step, pace, finite)?) {
                return Ok(None);
            }
            sums = Sums::of(scaled(gradients, 1.0 / scale));
        }
        if let Some(norm) = self.spec.clip_norm {
            let gradients = sums.all();
            sums = Sums::of(if self.group.pipelined() {
                let owned = gradients.iter().zip(self.task.owned()).filter(|(_, owned)| *owned);
                let mine = squares(&owned.map(|(gradient, _)| gradient.clone()).collect::<Vec<_>>()).map_err(unread)?;
                let all = self.group.sum("norm", step, pace, mine)?;
                scaled(gradients, shortening(all, norm))
            } else {
                clipped(gradients, norm)
            });
        }
        // Behind what stages wait for each other.
        let before = timed.then(|| Mark::of(&self.place.device(), true));
        self.optimizer
            .step(&mut self.parameters, sums.parts(), rate)
            .map_err(|source| TrainError::read("the parameters", source))?;
        Ok(before.map(|before| [before, Mark::of(&self.place.device(), true)]))
    }

    /// Reads the losses that are there, which waits for their steps, and tells of each where its time by the device's clock puts it; the mean of their times by that of the host where the
    /// device has none, and where a single one was waited for, whose parts are of the host too.
    fn read_losses(&mut self) -> Result<(), TrainError> {
        let Some(Unread { step: first, pace, .. }) = self.unread.first() else { return Ok(()) };
        let (first, pace, many) = (*first, *pace, self.unread.len());
        let last = first + wide(many) - 1;
        // As in a step: those that wait at the meeting name the one that does not come.
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
        // What compiles is no measure of how long the others may take. On the CPU nothing does, and the last step of the warm-up stands alone.
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
            // It is that of all ranks.
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

/// Initial values; where ranks have the same parameters, of others than the first only how many there are, since it sends them its own.
fn initial(group: &ProcessGroup, task: &dyn Task, seed: u64, place: &Place) -> Vec<Tensor<1>> {
    let device = place.device();
    if !group.is_leader() && !group.pipelined() {
        return task.param_specs().iter().map(|param_spec| Tensor::zeros([param_spec.len()], &device)).collect();
    }
    let values = task.initial(seed).into_iter();
    values.map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &device)).collect()
}

/// One tensor after the other.
pub fn joined(mut tensors: Vec<Tensor<1>>) -> Tensor<1> {
    if tensors.len() == 1 { tensors.remove(0) } else { Tensor::cat(tensors, 0) }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;
