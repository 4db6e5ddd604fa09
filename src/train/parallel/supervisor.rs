//! The supervisor of ranks: starts a thread for each, forwards their events, and ends the run when one of them fails.
//!
//! A rank that returns an error, panics or exceeds its time limit ends the run at once. The supervisor waits neither
//! for it nor for ranks that wait for it on a device: the process is about to end, and their threads with it.

use super::link::Link;
use super::point_to_point::{Channels, Endpoint};
use super::process_group::ProcessGroup;
use super::progress::RankProgress;
use super::rendezvous::Rendezvous;
use super::stall::{self, StallDetector};
use super::timeouts::Limits;
use super::{Fault, ParallelError};
use crate::device::{DeviceError, caught};
use crate::{Finish, Sink, TrainError};
use burn::tensor::Device;
use ledger_record::EventKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The polling periods: of ranks, and of the link between their devices.
const POLL_EVERY: Duration = Duration::from_millis(20);
const CHECK_LINK_EVERY: Duration = Duration::from_secs(1);

/// The time that other ranks have to end by themselves after a failure.
const GRACE: Duration = Duration::from_millis(500);

/// The time without processor use after which the run has stalled. It is longer than the timeout of a steady step,
/// whose error is more specific.
const STALL_LIMIT: Duration = Duration::from_secs(7);

/// The context of a rank: its number, its sink and its connections.
pub struct RankContext {
    /// Its number, from 0.
    pub rank: usize,
    /// The receiver of its events.
    pub sink: RankSink,
    /// Set when the run is to stop.
    pub stop: Arc<AtomicBool>,
    rendezvous: Arc<Rendezvous>,
    channels: Arc<Channels>,
    link: Link,
}

impl RankContext {
    /// Its endpoint for messages with other ranks, for tensors of this device.
    pub fn endpoint(&self, device: Device, limits: Limits) -> Endpoint {
        Endpoint::new(self.rank, Arc::clone(&self.channels), self.link.clone(), (device, limits))
    }

    /// Its process group for data parallelism, with gradients of these lengths.
    pub fn process_group(&self, limits: Limits, lengths: &[usize]) -> ProcessGroup {
        let reducer = self.link.reducer(self.rank, Arc::clone(&self.rendezvous));
        ProcessGroup::new(self.rank, reducer, limits, lengths)
    }

    /// Its process group for pipeline parallelism: each rank has a stage of the model.
    pub fn pipeline_group(&self, limits: Limits) -> ProcessGroup {
        ProcessGroup::stage(self.rank, self.link.reducer(self.rank, Arc::clone(&self.rendezvous)), limits)
    }
}

/// A rank's sink: sends its events to the supervisor.
pub struct RankSink {
    rank: usize,
    sender: Sender<Report>,
    progress: Arc<RankProgress>,
    clock: Clock,
    fault: Option<Fault>,
}

/// A clock that continues from another one.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    start_ns: u64,
}

impl Sink for RankSink {
    fn now_ns(&self) -> u64 {
        let passed_ns = u64::try_from(self.clock.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.clock.start_ns.saturating_add(passed_ns)
    }

    fn emit_from(&self, _: usize, t_ns: u64, kind: EventKind) {
        // The supervisor is gone if the run has failed.
        let _ = self.sender.send(Report::Event(self.rank, t_ns, kind));
    }

    fn doing(&self, what: &'static str, index: u64, limit: Option<Duration>) {
        self.progress.set(self.rank, what, index, limit);
        if let Some(fault) = self.fault.as_ref().filter(|fault| fault.is_at(self.rank, what, index)) {
            self.emit(EventKind::Status {
                message: format!("rank {} fails in `{what}` {index}, as was asked for", self.rank),
            });
            fault.strike();
        }
    }
}

enum Report {
    Event(usize, u64, EventKind),
    Ended(usize, Result<Finish, Failure>),
}

/// The reason why a rank failed.
enum Failure {
    Error(TrainError),
    Panic(String),
}

/// Runs `ranks` ranks, each on a thread of its own, and supervises them. `fault` makes one of them fail.
///
/// # Errors
/// Names the rank that failed first and its phase; returns within [`GRACE`] of its failure.
pub fn run_ranks<W>(
    ranks: usize,
    link: &Link,
    sink: &dyn Sink,
    stop: &AtomicBool,
    fault: Option<Fault>,
    work: W,
) -> Result<Finish, TrainError>
where
    W: Fn(RankContext) -> Result<Finish, TrainError> + Send + Sync + 'static,
{
    let (sender, receiver) = channel();
    let clock = Clock { start: Instant::now(), start_ns: sink.now_ns() };
    let (progress, rendezvous, work) =
        (Arc::new(RankProgress::of(ranks)), Arc::new(Rendezvous::of(ranks)), Arc::new(work));
    let (stop_ranks, channels) = (Arc::new(AtomicBool::new(false)), Arc::new(Channels::of(ranks)));
    for rank in 0..ranks {
        let (rendezvous_of_rank, link, stop) = (Arc::clone(&rendezvous), link.clone(), Arc::clone(&stop_ranks));
        let rank_sink =
            RankSink { rank, sender: sender.clone(), progress: Arc::clone(&progress), clock, fault: fault.clone() };
        let (work, ended) = (Arc::clone(&work), sender.clone());
        let context = RankContext {
            rank,
            sink: rank_sink,
            stop,
            rendezvous: rendezvous_of_rank,
            channels: Arc::clone(&channels),
            link,
        };
        let start = move || {
            RankProgress::register_thread(rank);
            let how = match caught(|| work(context)) {
                Ok(finish) => finish.map_err(Failure::Error),
                Err(problem) => Err(Failure::Panic(problem)),
            };
            let _ = ended.send(Report::Ended(rank, how));
        };
        let named = std::thread::Builder::new().name(format!("rank {rank}"));
        if let Err(source) = named.spawn(start) {
            rendezvous.end();
            channels.end();
            return Err(ParallelError::Thread { rank, source }.into());
        }
    }
    drop(sender);
    let asked = fault.clone();
    let supervisor = Supervisor {
        ranks,
        link,
        rendezvous: &rendezvous,
        channels: &channels,
        progress: &progress,
        // Ranks that wait for a GPU may use no processor time.
        stall: stall::sample()
            .filter(|_| link.is_host())
            .map(|seen| StallDetector::new(STALL_LIMIT, Instant::now(), seen)),
        failed: None,
        aborted: false,
        finished: Vec::new(),
    };
    match (supervisor.supervise(&receiver, sink, stop, &stop_ranks), asked) {
        // If the fault had happened, the run would have failed.
        (Ok(Finish::Done), Some(fault)) => Err(ParallelError::NoFault { fault }.into()),
        (how, _) => how,
    }
}

/// Returns the GPU that failed according to a rank's error; it may be another rank's.
fn failed_gpu(error: &TrainError) -> Option<usize> {
    match error {
        TrainError::Device(DeviceError::Card { card, .. }) => Some(*card),
        TrainError::Parallel(ParallelError::Device(DeviceError::Card { card, .. })) => Some(*card),
        _ => None,
    }
}

/// The state of the ranks.
struct Supervisor<'a> {
    ranks: usize,
    link: &'a Link,
    rendezvous: &'a Rendezvous,
    channels: &'a Channels,
    progress: &'a RankProgress,
    /// Present if ranks compute on the host's processors.
    stall: Option<StallDetector>,
    failed: Option<(Instant, TrainError)>,
    /// Whether a rank ended because another one had failed.
    aborted: bool,
    finished: Vec<Finish>,
}

impl Supervisor<'_> {
    fn supervise(
        mut self,
        receiver: &Receiver<Report>,
        sink: &dyn Sink,
        stop: &AtomicBool,
        stop_ranks: &AtomicBool,
    ) -> Result<Finish, TrainError> {
        let (mut running, mut link_checked) = (self.ranks, Instant::now());
        while running > 0 && self.failed.as_ref().is_none_or(|(since, _)| since.elapsed() < GRACE) {
            match receiver.recv_timeout(POLL_EVERY) {
                Ok(Report::Event(rank, t_ns, kind)) => sink.emit_from(rank, t_ns, kind),
                Ok(Report::Ended(rank, how)) => {
                    running -= 1;
                    self.ended(rank, how);
                    // It no longer has a time limit.
                    self.progress.set(rank, "end", 1, None);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                stop_ranks.store(true, Ordering::Relaxed);
            }
            self.check_limits();
            self.check_stall();
            // The link is aborted when a rank has failed and must not be queried then.
            if self.failed.is_none() && link_checked.elapsed() > CHECK_LINK_EVERY {
                link_checked = Instant::now();
                if let Some((rank, problem)) = self.link.fault() {
                    self.fail(rank, problem);
                }
            }
        }
        match self.failed {
            Some((_, error)) => Err(error),
            None if self.aborted => Err(ParallelError::Ended.into()),
            None if self.finished.contains(&Finish::Stopped) => Ok(Finish::Stopped),
            None => Ok(Finish::Done),
        }
    }

    /// Finds ranks over their time limit. Devices that wait for each other do not report for which.
    fn check_limits(&mut self) {
        let late = self.progress.late();
        let Some(((rank, limit), others)) = late.split_first() else { return };
        let seconds = super::seconds(*limit);
        let others: Vec<usize> = others.iter().map(|(rank, _)| *rank).collect();
        self.fail(
            *rank,
            match others.as_slice() {
                [] => format!("it takes longer than {seconds} s"),
                others => {
                    let others = super::named(others);
                    format!(
                        "it takes longer than {seconds} s, and so does {others}: their devices may wait for each other"
                    )
                }
            },
        );
    }

    /// Finds a rank that hangs in a step without a time limit, because it uses no processor time.
    fn check_stall(&mut self) {
        let now = Instant::now();
        let Some(detector) = self.stall.as_mut().filter(|detector| detector.is_due(now)) else { return };
        if stall::sample().is_none_or(|seen| !detector.is_stalled(now, seen)) {
            return;
        }
        let busy = |rank: &usize| !self.progress.ended(*rank) && !self.channels.is_waiting(*rank);
        // Ranks that all wait for each other time out by themselves, and if all have ended only their events are left.
        let Some(hangs) = self.rendezvous.absent().into_iter().find(busy) else { return };
        self.fail(hangs, format!("no thread has worked for {} s", super::seconds(STALL_LIMIT)));
    }

    fn ended(&mut self, rank: usize, how: Result<Finish, Failure>) {
        match how {
            Ok(finish) => self.finished.push(finish),
            // Another rank reports the reason, now or soon.
            Err(Failure::Error(TrainError::Parallel(ParallelError::Ended))) => self.aborted = true,
            Err(Failure::Error(TrainError::Parallel(error @ ParallelError::Late { .. }))) => {
                let missing =
                    if let ParallelError::Late { ranks, .. } = &error { ranks.first().copied() } else { None };
                // The missing rank may itself wait for another stage.
                let missing = missing.map(|missing| self.channels.end_of_wait_chain(missing));
                self.fail(missing.unwrap_or(rank), error.to_string());
            }
            Err(Failure::Error(error)) => self.fail(failed_gpu(&error).unwrap_or(rank), error.to_string()),
            Err(Failure::Panic(problem)) => self.fail(rank, problem),
        }
    }

    /// Records the first failure; later ones are ignored.
    fn fail(&mut self, rank: usize, problem: String) {
        if self.failed.is_some() {
            return;
        }
        // Messages are shown on one line.
        let problem = problem.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let last = self.progress.get(rank).map(|progress| progress.to_string()).unwrap_or_default();
        self.failed = Some((Instant::now(), TrainError::Rank { rank, last, problem }));
        self.rendezvous.end();
        self.channels.end();
        self.link.cut();
    }
}
