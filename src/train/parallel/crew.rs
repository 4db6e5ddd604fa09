//! The ranks of a run: a thread each, what they tell, and what becomes of the run when one of them fails.
//!
//! Whoever starts them gets their events in the order in which they come, hands them on, and looks after the ranks meanwhile. A rank that returns an error, panics or
//! takes too long ends the run at once. Nobody waits for it, nor for those that wait for it on a device: the process is about to end, and their threads with it.

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

/// How often ranks are looked after, and how often the way between them.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOK_AT_LINK_EVERY: Duration = Duration::from_secs(1);

/// How long the others get to end by themselves when one has failed.
const GRACE: Duration = Duration::from_millis(500);

/// The time without processor use after which the run has stalled. It is longer than the timeout of a steady step, whose error says more.
const STALL_LIMIT: Duration = Duration::from_secs(7);

/// What a rank is given.
pub struct Member {
    /// Its number, from 0.
    pub rank: usize,
    /// Where its events go.
    pub sink: Relay,
    /// Set when the run is to stop.
    pub stop: Arc<AtomicBool>,
    rendezvous: Arc<Rendezvous>,
    channels: Arc<Channels>,
    link: Link,
}

impl Member {
    /// Its endpoint for messages with other ranks, for tensors of this device.
    pub fn endpoint(&self, device: Device, limits: Limits) -> Endpoint {
        Endpoint::new(self.rank, Arc::clone(&self.channels), self.link.clone(), (device, limits))
    }

    /// What it does together with the others, with tensors of these lengths.
    pub fn group(&self, limits: Limits, lengths: &[usize]) -> ProcessGroup {
        let reducer = self.link.reducer(self.rank, Arc::clone(&self.rendezvous));
        ProcessGroup::new(self.rank, reducer, limits, lengths)
    }

    /// The same where each rank has a stage of the model.
    pub fn stage(&self, limits: Limits) -> ProcessGroup {
        ProcessGroup::stage(self.rank, self.link.reducer(self.rank, Arc::clone(&self.rendezvous)), limits)
    }
}

/// Sends a rank's events to whoever started the ranks.
pub struct Relay {
    rank: usize,
    sender: Sender<Message>,
    progress: Arc<RankProgress>,
    clock: Clock,
    fault: Option<Fault>,
}

/// A clock that goes on from another one.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    start_ns: u64,
}

impl Sink for Relay {
    fn now_ns(&self) -> u64 {
        let passed_ns = u64::try_from(self.clock.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.clock.start_ns.saturating_add(passed_ns)
    }

    fn emit_from(&self, _: usize, t_ns: u64, kind: EventKind) {
        // Nobody hears it any more when the run has failed.
        let _ = self.sender.send(Message::Event(self.rank, t_ns, kind));
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

enum Message {
    Event(usize, u64, EventKind),
    Ended(usize, Result<Finish, Trouble>),
}

/// Why a rank did not come to its end.
enum Trouble {
    Error(TrainError),
    Panic(String),
}

/// Has so many ranks work, each on a thread of its own, and waits for them. One of them may be asked to fail.
///
/// # Errors
/// With the rank that failed first and what it was doing; within [`GRACE`] of its failure.
pub fn together<W>(
    ranks: usize,
    link: &Link,
    sink: &dyn Sink,
    stop: &AtomicBool,
    fault: Option<Fault>,
    work: W,
) -> Result<Finish, TrainError>
where
    W: Fn(Member) -> Result<Finish, TrainError> + Send + Sync + 'static,
{
    let (sender, receiver) = channel();
    let clock = Clock { start: Instant::now(), start_ns: sink.now_ns() };
    let (progress, rendezvous, work) =
        (Arc::new(RankProgress::of(ranks)), Arc::new(Rendezvous::of(ranks)), Arc::new(work));
    let (halted, channels) = (Arc::new(AtomicBool::new(false)), Arc::new(Channels::of(ranks)));
    for rank in 0..ranks {
        let (rendezvous_of_rank, link, stop) = (Arc::clone(&rendezvous), link.clone(), Arc::clone(&halted));
        let relay =
            Relay { rank, sender: sender.clone(), progress: Arc::clone(&progress), clock, fault: fault.clone() };
        let (work, ended) = (Arc::clone(&work), sender.clone());
        let member =
            Member { rank, sink: relay, stop, rendezvous: rendezvous_of_rank, channels: Arc::clone(&channels), link };
        let start = move || {
            RankProgress::register_thread(rank);
            let how = match caught(|| work(member)) {
                Ok(finish) => finish.map_err(Trouble::Error),
                Err(problem) => Err(Trouble::Panic(problem)),
            };
            let _ = ended.send(Message::Ended(rank, how));
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
    let watch = Watch {
        ranks,
        link,
        rendezvous: &rendezvous,
        channels: &channels,
        progress: &progress,
        // Who waits for a card may use no time of the host's.
        stall: stall::sample()
            .filter(|_| link.is_host())
            .map(|seen| StallDetector::new(STALL_LIMIT, Instant::now(), seen)),
        failed: None,
        left: false,
        finished: Vec::new(),
    };
    match (watch.until_the_end(&receiver, sink, stop, &halted), asked) {
        // One that happens ends in an error.
        (Ok(Finish::Done), Some(fault)) => Err(ParallelError::NoFault { fault }.into()),
        (how, _) => how,
    }
}

/// The card that failed where a rank says that one did, which may be another one's.
fn failed_card(error: &TrainError) -> Option<usize> {
    match error {
        TrainError::Device(DeviceError::Card { card, .. }) => Some(*card),
        #[cfg(feature = "cuda")]
        TrainError::Parallel(ParallelError::Device(DeviceError::Card { card, .. })) => Some(*card),
        _ => None,
    }
}

/// What is known of the ranks.
struct Watch<'a> {
    ranks: usize,
    link: &'a Link,
    rendezvous: &'a Rendezvous,
    channels: &'a Channels,
    progress: &'a RankProgress,
    /// Where who works uses the host's time.
    stall: Option<StallDetector>,
    failed: Option<(Instant, TrainError)>,
    /// A rank ended because another one had failed.
    left: bool,
    finished: Vec<Finish>,
}

impl Watch<'_> {
    fn until_the_end(
        mut self,
        receiver: &Receiver<Message>,
        sink: &dyn Sink,
        stop: &AtomicBool,
        halted: &AtomicBool,
    ) -> Result<Finish, TrainError> {
        let (mut running, mut looked) = (self.ranks, Instant::now());
        while running > 0 && self.failed.as_ref().is_none_or(|(since, _)| since.elapsed() < GRACE) {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok(Message::Event(rank, t_ns, kind)) => sink.emit_from(rank, t_ns, kind),
                Ok(Message::Ended(rank, how)) => {
                    running -= 1;
                    self.ended(rank, how);
                    // It keeps nobody waiting any more.
                    self.progress.set(rank, "end", 1, None);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                halted.store(true, Ordering::Relaxed);
            }
            self.look();
            self.look_whether_anybody_works();
            // It is cut when a rank has failed, and nothing may be asked of it then.
            if self.failed.is_none() && looked.elapsed() > LOOK_AT_LINK_EVERY {
                looked = Instant::now();
                if let Some((rank, problem)) = self.link.fault() {
                    self.fail(rank, problem);
                }
            }
        }
        match self.failed {
            Some((_, error)) => Err(error),
            None if self.left => Err(ParallelError::Ended.into()),
            None if self.finished.contains(&Finish::Stopped) => Ok(Finish::Stopped),
            None => Ok(Finish::Done),
        }
    }

    /// Looks for ranks that take too long. Devices that wait for each other do not say for which.
    fn look(&mut self) {
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

    /// Ranks may take as long as they need in their first step, but one that hangs there uses no time.
    fn look_whether_anybody_works(&mut self) {
        let now = Instant::now();
        let Some(detector) = self.stall.as_mut().filter(|detector| detector.is_due(now)) else { return };
        if stall::sample().is_none_or(|seen| !detector.is_stalled(now, seen)) {
            return;
        }
        let busy = |rank: &usize| !self.progress.ended(*rank) && !self.channels.is_waiting(*rank);
        // Where all wait for each other they say so by themselves, and where all have ended only their events are left.
        let Some(hangs) = self.rendezvous.absent().into_iter().find(busy) else { return };
        self.fail(hangs, format!("no thread has worked for {} s", super::seconds(STALL_LIMIT)));
    }

    fn ended(&mut self, rank: usize, how: Result<Finish, Trouble>) {
        match how {
            Ok(finish) => self.finished.push(finish),
            // Another rank says why, now or soon.
            Err(Trouble::Error(TrainError::Parallel(ParallelError::Ended))) => self.left = true,
            Err(Trouble::Error(TrainError::Parallel(error @ ParallelError::Late { .. }))) => {
                let missing =
                    if let ParallelError::Late { ranks, .. } = &error { ranks.first().copied() } else { None };
                // Who is missing may itself wait for another stage.
                let missing = missing.map(|missing| self.channels.end_of_wait_chain(missing));
                self.fail(missing.unwrap_or(rank), error.to_string());
            }
            Err(Trouble::Error(error)) => self.fail(failed_card(&error).unwrap_or(rank), error.to_string()),
            Err(Trouble::Panic(problem)) => self.fail(rank, problem),
        }
    }

    /// The first failure counts.
    fn fail(&mut self, rank: usize, problem: String) {
        if self.failed.is_some() {
            return;
        }
        // A reason is one line wherever it is shown.
        let problem = problem.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let last = self.progress.get(rank).map(|progress| progress.to_string()).unwrap_or_default();
        self.failed = Some((Instant::now(), TrainError::Rank { rank, last, problem }));
        self.rendezvous.end();
        self.channels.end();
        self.link.cut();
    }
}
