//! A run of several ranks: the preparation before they start, and the work of each rank.

use crate::device::smoke;
use crate::device::{self, DeviceError, Place};
use crate::fit::{fit, rehearse};
use crate::native::memory::neighbours_reach_each_other;
use crate::native::nccl;
use crate::parallel::{Fault, LIMITS, Limits, Link, Pace, ParallelError, ProcessGroup, RankContext, run_ranks};
use crate::parameters::ParamSpec;
use crate::spec::{DeviceSpec, Spec};
use crate::task::Loaded;
use crate::{Finish, Sink, TrainError};
use ledger_record::EventKind;
use std::panic::resume_unwind;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The time limit for loading kernels that an earlier run has tuned.
const LOADING: Duration = Duration::from_secs(120);
/// The time limit for connecting GPUs, which takes a few seconds.
const CONNECTING: Duration = Duration::from_secs(120);

/// Trains a cell whose work several ranks share.
///
/// # Errors
/// As for [`run`](crate::run), and if the devices cannot be connected. The error names a rank that fails.
pub fn train(
    spec: &Spec,
    tuned: bool,
    fault: Option<Fault>,
    sink: &dyn Sink,
    stop: &AtomicBool,
) -> Result<Finish, TrainError> {
    device::suffice(spec.device, spec.ranks)?;
    let (loaded, link) = beside_loading(spec, || link(spec, sink))?;
    let limits = Limits { first: if tuned { LOADING } else { LIMITS.first }, ..LIMITS };
    let run = Run { spec: spec.clone(), loaded, limits, tuned, open: device::open };
    run.share(&link, fault, sink, stop)
}

/// Loads the data on another thread while `open` opens devices. If both fail, returns the error of `open`.
pub fn beside_loading<T>(spec: &Spec, open: impl FnOnce() -> Result<T, TrainError>) -> Result<(Loaded, T), TrainError> {
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| Loaded::load(spec));
        let opened = open();
        let loaded = loading.join();
        let opened = opened?;
        Ok((loaded.unwrap_or_else(|panic| resume_unwind(panic))?, opened))
    })
}

/// Connects the ranks' devices.
fn link(spec: &Spec, sink: &dyn Sink) -> Result<Link, TrainError> {
    match spec.device {
        DeviceSpec::Cpu => Ok(Link::Host),
        DeviceSpec::Cuda => cards(spec, sink),
    }
}

fn cards(spec: &Spec, sink: &dyn Sink) -> Result<Link, TrainError> {
    let all = nccl::communicators(spec.ranks, CONNECTING).map_err(ParallelError::from)?;
    if let Some(version) = nccl::version() {
        sink.emit(EventKind::Fact { name: "nccl".to_owned(), value: version.into() });
    }
    if let Ok(reach) = neighbours_reach_each_other(spec.ranks) {
        sink.emit(EventKind::Fact { name: "peer_access".to_owned(), value: reach.into() });
    }
    // Pipeline stages sum no gradients.
    if spec.micro_batches.is_none() {
        let by = if all.iter().all(|communicator| communicator.copies()) { "copies" } else { "nccl" };
        sink.emit(EventKind::Fact { name: "all_reduce".to_owned(), value: by.into() });
    }
    Ok(Link::Cards(all))
}

/// Function that opens the device of a rank.
type Open = fn(DeviceSpec, usize) -> Result<Place, DeviceError>;

/// The state with which each rank of a run starts.
struct Run {
    spec: Spec,
    loaded: Loaded,
    limits: Limits,
    /// Whether an earlier run has tuned the devices' kernels.
    tuned: bool,
    /// Opens a rank's device.
    open: Open,
}

impl Run {
    /// Runs all ranks.
    fn share(
        self,
        link: &Link,
        fault: Option<Fault>,
        sink: &dyn Sink,
        stop: &AtomicBool,
    ) -> Result<Finish, TrainError> {
        run_ranks(self.spec.ranks, link, sink, stop, fault, move |context| self.work(&context))
    }

    /// The work of a data-parallel rank. The first rank opens its device and warms it up before the others open theirs.
    /// They then find its compiled and tuned kernels, instead of compiling and tuning at the same time.
    fn work(&self, context: &RankContext) -> Result<Finish, TrainError> {
        if self.spec.micro_batches.is_some() {
            return self.staged(context);
        }
        let all = context.process_group(self.limits, &[]);
        context.sink.doing("warm_up", 1, self.warming(&all));
        let place = if all.is_leader() {
            let place = self.led(context)?;
            // From here on the first rank may wait for others.
            context.sink.doing("warm_up", 1, None);
            all.barrier("warm_up", 1, Pace::Steady)?;
            place
        } else {
            all.barrier("warm_up", 1, Pace::Alone)?;
            let place = open(&self.spec, self.open, context.rank, &context.sink)?;
            smoke::smoke(&place, &self.quiet(context))?;
            place
        };
        let task = self.loaded.task(&self.spec, &place, context.rank);
        let lengths: Vec<usize> = task.param_specs().iter().map(ParamSpec::len).collect();
        let group = context.process_group(self.limits, &lengths);
        fit(group, &self.spec, task, &place, &context.sink, &context.stop, self.tuned)
    }

    /// The work of a rank with a pipeline stage. The first rank measures the cost of each unit of the model, which also
    /// compiles and tunes its kernels.
    fn staged(&self, context: &RankContext) -> Result<Finish, TrainError> {
        let group = context.pipeline_group(self.limits);
        context.sink.doing("warm_up", 1, self.warming(&group));
        let (place, costs) = if group.is_leader() {
            let place = opened(&self.spec, self.open, &context.sink)?;
            if matches!(place, Place::Device(_)) {
                let message = "measuring what each part of the model costs, on one GPU for all".to_owned();
                context.sink.emit(EventKind::Status { message });
            }
            let beat = || context.sink.doing("warm_up", 1, self.warming(&group));
            let costs = self.loaded.costs(&self.spec, &place, &beat)?;
            context.sink.doing("warm_up", 1, None);
            (place, group.broadcast_numbers("warm_up", 1, Pace::Steady, costs)?)
        } else {
            let costs = group.broadcast_numbers("warm_up", 1, Pace::Alone, Vec::new())?;
            let place = open(&self.spec, self.open, context.rank, &context.sink)?;
            smoke::smoke(&place, &self.quiet(context))?;
            (place, costs)
        };
        let endpoint = context.endpoint(place.device(), self.limits);
        let Some(task) = self.loaded.stage(&self.spec, &costs, &place, (context.rank, endpoint)) else {
            return Err(ParallelError::Stages { units: costs.len(), stages: self.spec.ranks }.into());
        };
        fit(group, &self.spec, task, &place, &context.sink, &context.stop, self.tuned)
    }

    /// The time limit of the next progress report during warm-up: only the first rank has one, because it compiles
    /// while the others wait for it.
    fn warming(&self, group: &ProcessGroup) -> Option<Duration> {
        Some(self.limits.first).filter(|_| group.is_leader())
    }

    fn quiet<'a>(&self, context: &'a RankContext) -> Quiet<'a> {
        Quiet { sink: &context.sink, limit: Some(self.limits.first).filter(|_| context.rank == 0) }
    }

    /// Opens the first rank's device, reports its facts, and runs a few steps that are discarded.
    fn led(&self, context: &RankContext) -> Result<Place, TrainError> {
        let place = opened(&self.spec, self.open, &context.sink)?;
        if matches!(place, Place::Device(_)) {
            let doing =
                if self.tuned { "loading kernels" } else { "compiling and tuning kernels, which takes minutes once," };
            context.sink.emit(EventKind::Status { message: format!("{doing} on one GPU for all") });
            let task = self.loaded.task(&self.spec, &place, context.rank);
            rehearse(&self.spec, task, &place, &self.quiet(context), &context.stop, self.tuned)?;
        }
        Ok(place)
    }
}

/// Opens a rank's device, with as much memory as the cell allows.
fn open(spec: &Spec, open: Open, rank: usize, sink: &dyn Sink) -> Result<Place, DeviceError> {
    let place = open(spec.device, rank)?;
    if let Some(limit_gib) = spec.memory_limit_gib {
        let taken = device::shrink(&place, limit_gib)?;
        if rank == 0 {
            sink.emit(EventKind::Fact { name: "memory_taken_bytes".to_owned(), value: taken.to_string().into() });
        }
    }
    if spec.ranks > 1 {
        place.tolerate_other_recordings()?;
    }
    Ok(place)
}

/// Opens the first rank's device, reports its facts and runs the smoke operation.
pub fn opened(spec: &Spec, open_device: Open, sink: &dyn Sink) -> Result<Place, TrainError> {
    let place = open(spec, open_device, 0, sink)?;
    for (name, value) in place.facts(spec.precision) {
        sink.emit(EventKind::Fact { name: name.to_owned(), value });
    }
    smoke::smoke(&place, sink)?;
    Ok(place)
}

/// A sink that discards all events and only reports that the rank still warms up.
struct Quiet<'a> {
    sink: &'a dyn Sink,
    /// The time limit of the next progress report.
    limit: Option<Duration>,
}

impl Sink for Quiet<'_> {
    fn now_ns(&self) -> u64 {
        self.sink.now_ns()
    }

    fn emit_from(&self, _: usize, _: u64, _: EventKind) {}

    fn doing(&self, _: &'static str, _: u64, _: Option<Duration>) {
        self.sink.doing("warm_up", 1, self.limit);
    }
}

#[cfg(test)]
mod tests;
