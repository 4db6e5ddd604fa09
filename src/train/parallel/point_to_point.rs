//! Point-to-point communication: messages of tensors between two ranks, received in the order in which they were sent.
//!
//! Sending does not block. Receiving ends in an error after a timeout; the error names the rank at the end of the chain
//! of waits. Between GPUs the receiver copies, so that no device waits for a rank that has not arrived. The sender
//! keeps the tensors until they are copied ([`Endpoint::release`]).

use super::{Limits, Link, ParallelError, SyncPoint};
use crate::device::Place;
use crate::native::peer::{self, HeldTensors, Offer};
use burn::backend::DType;
use burn::tensor::{Device, Tensor};
use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A flat tensor and the shape that the receiver gives it.
#[derive(Debug)]
pub struct FlatTensor {
    /// All values, one after the other.
    pub values: Tensor<1>,
    /// Their shape.
    pub shape: Vec<usize>,
}

/// A message in the host's memory.
struct Message {
    point: SyncPoint,
    shapes: Vec<Vec<usize>>,
    payload: Payload,
}

enum Payload {
    /// The values themselves.
    Values(Vec<Tensor<1>>),
    /// An offer to copy them from another GPU, in these formats.
    Offered(Offer, Vec<DType>),
}

/// The message queues between all ranks.
pub struct Channels {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By sender and receiver.
    queues: Vec<Vec<VecDeque<Message>>>,
    /// The rank that each rank waits for.
    waiting_for: Vec<Option<usize>>,
    ended: bool,
}

impl Channels {
    /// The queues between `ranks` ranks.
    pub fn of(ranks: usize) -> Self {
        let queues = (0..ranks).map(|_| (0..ranks).map(|_| VecDeque::new()).collect()).collect();
        let state = State { queues, waiting_for: vec![None; ranks], ended: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Ends communication: ranks that wait get an error.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn send(&self, from: usize, to: usize, message: Message) -> Result<(), ParallelError> {
        let mut state = self.lock();
        if state.ended {
            return Err(ParallelError::Ended);
        }
        if let Some(queue) = state.queues.get_mut(from).and_then(|queues| queues.get_mut(to)) {
            queue.push_back(message);
        }
        self.changed.notify_all();
        Ok(())
    }

    fn receive(&self, from: usize, to: usize, point: SyncPoint) -> Result<Message, ParallelError> {
        let (mut state, start) = (self.lock(), Instant::now());
        loop {
            if state.ended {
                return Err(ParallelError::Ended);
            }
            if let Some(message) = state.queues.get_mut(from).and_then(|queues| queues.get_mut(to)?.pop_front()) {
                state.set_waiting_for(to, None);
                // The sender may wait for this.
                self.changed.notify_all();
                let there = message.point;
                if !there.same_as(point) {
                    return Err(ParallelError::Elsewhere { rank: to, here: point, other: from, there });
                }
                return Ok(message);
            }
            state.set_waiting_for(to, Some(from));
            state = self.wait(state, start, from, point)?;
        }
    }

    /// Waits until at most `most` messages from one rank to another are pending.
    fn wait_pending(&self, from: usize, to: usize, most: usize, point: SyncPoint) -> Result<(), ParallelError> {
        let (mut state, start) = (self.lock(), Instant::now());
        loop {
            if state.ended {
                return Err(ParallelError::Ended);
            }
            let left = state.queues.get(from).and_then(|queues| Some(queues.get(to)?.len())).unwrap_or(0);
            if left <= most {
                state.set_waiting_for(from, None);
                return Ok(());
            }
            state.set_waiting_for(from, Some(to));
            state = self.wait(state, start, to, point)?;
        }
    }

    /// Waits for a change, at most for the point's timeout.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        start: Instant,
        other: usize,
        point: SyncPoint,
    ) -> Result<MutexGuard<'a, State>, ParallelError> {
        match point.limit.map(|limit| (limit, limit.saturating_sub(start.elapsed()))) {
            None => Ok(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)),
            Some((limit, left)) if left.is_zero() => {
                Err(ParallelError::Late { ranks: vec![state.end_of_wait_chain(other)], point, limit })
            }
            Some((_, left)) => Ok(self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0),
        }
    }

    /// Whether a rank waits for another one.
    pub fn is_waiting(&self, rank: usize) -> bool {
        self.lock().waiting_for.get(rank).is_some_and(Option::is_some)
    }

    /// Returns the rank at the end of the chain of waits that begins with this one.
    pub fn end_of_wait_chain(&self, rank: usize) -> usize {
        self.lock().end_of_wait_chain(rank)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set_waiting_for(&mut self, rank: usize, other: Option<usize>) {
        if let Some(place) = self.waiting_for.get_mut(rank) {
            *place = other;
        }
    }

    /// Returns the rank at the end of the chain of waits that begins with this one.
    fn end_of_wait_chain(&self, rank: usize) -> usize {
        let next = |rank: &usize| self.waiting_for.get(*rank).copied().flatten();
        // In a cycle any rank is a valid answer.
        std::iter::successors(Some(rank), next).take(self.waiting_for.len()).last().unwrap_or(rank)
    }
}

/// A rank's endpoint of the channels.
pub struct Endpoint {
    rank: usize,
    channels: Arc<Channels>,
    link: Link,
    device: Device,
    /// Sent tensors that other GPUs may not have copied yet.
    held: Mutex<VecDeque<(usize, HeldTensors)>>,
    /// The initial limits of waits.
    pub limits: Limits,
}

impl Endpoint {
    /// The endpoint of a rank whose tensors are on this device.
    pub fn new(rank: usize, channels: Arc<Channels>, link: Link, (device, limits): (Device, Limits)) -> Self {
        Self { rank, channels, link, device, held: Mutex::default(), limits }
    }

    /// Waits until at most `most` messages to a rank are pending.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn wait_pending(&self, to: usize, most: usize, at: SyncPoint) -> Result<(), ParallelError> {
        self.channels.wait_pending(self.rank, to, most, at)
    }

    /// Sends tensors.
    ///
    /// # Errors
    /// If the run has ended, or the tensors are not on the expected device.
    pub fn send(&self, to: usize, at: SyncPoint, tensors: Vec<FlatTensor>) -> Result<(), ParallelError> {
        let (values, shapes): (Vec<Tensor<1>>, Vec<Vec<usize>>) =
            tensors.into_iter().map(|tensor| (tensor.values, tensor.shape)).unzip();
        match &self.link {
            Link::Host => {
                self.channels.send(self.rank, to, Message { point: at, shapes, payload: Payload::Values(values) })
            }
            Link::Cards(_) => {
                let formats = values.iter().map(Tensor::dtype).collect();
                if values.is_empty() {
                    return Ok(());
                }
                let unlike = ParallelError::Unlike { rank: self.rank, at };
                let (offer, held) = peer::offer(values, to).ok_or(unlike)?;
                self.unreleased().push_back((to, held));
                self.channels.send(
                    self.rank,
                    to,
                    Message { point: at, shapes, payload: Payload::Offered(offer, formats) },
                )
            }
        }
    }

    /// Releases sent tensors after their copies are done, except those of the last `most` messages. Call it before the
    /// host waits for a later step of other ranks.
    ///
    /// # Errors
    /// If a rank does not copy within the point's timeout, or has ended.
    pub fn release(&self, most: usize, at: SyncPoint) -> Result<(), ParallelError> {
        while self.unreleased().len() > most {
            let Some((to, held)) = self.unreleased().pop_front() else { break };
            let limit = at.limit.unwrap_or(self.limits.first);
            match held.release(limit) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let ranks = vec![self.channels.end_of_wait_chain(to)];
                    return Err(ParallelError::Late { ranks, point: at, limit });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // It may have failed because this rank's GPU failed.
                    Place::Device(self.device.clone()).check()?;
                    return Err(ParallelError::Ended);
                }
            }
        }
        Ok(())
    }

    fn unreleased(&self) -> MutexGuard<'_, VecDeque<(usize, HeldTensors)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the next message of a rank. On a GPU the copy may still be queued when this returns; later work on the device waits for it.
    ///
    /// # Errors
    /// If the other rank does not send within the point's timeout, sends for another point, or has ended.
    pub fn receive(&self, from: usize, at: SyncPoint) -> Result<Vec<FlatTensor>, ParallelError> {
        let Message { shapes, payload, .. } = self.channels.receive(from, self.rank, at)?;
        let values = match payload {
            Payload::Values(values) => values,
            Payload::Offered(offer, formats) => {
                let lengths: Vec<usize> = shapes.iter().map(|shape| shape.iter().product()).collect();
                offer.take(&self.device, &lengths, &formats)
            }
        };
        Ok(values.into_iter().zip(shapes).map(|(values, shape)| FlatTensor { values, shape }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::LIMITS;
    use std::time::Duration;

    fn at(what: &'static str, index: u64, limit_ms: u64) -> SyncPoint {
        SyncPoint { what, index, limit: Some(Duration::from_millis(limit_ms)) }
    }

    fn ends(ranks: usize) -> (Vec<Endpoint>, Arc<Channels>) {
        let channels = Arc::new(Channels::of(ranks));
        let end = |rank| Endpoint::new(rank, Arc::clone(&channels), Link::Host, (Device::flex(), LIMITS));
        ((0..ranks).map(end).collect(), channels)
    }

    fn tensor(values: [f32; 4]) -> FlatTensor {
        FlatTensor { values: Tensor::from_data(values, &Device::flex()), shape: vec![2, 2] }
    }

    fn read(tensors: Vec<FlatTensor>) -> Vec<(Vec<f32>, Vec<usize>)> {
        tensors.into_iter().map(|tensor| (tensor.values.try_into_vec_as().expect("readable"), tensor.shape)).collect()
    }

    #[test]
    fn messages_of_each_sender_arrive_in_order() {
        let (ends, _) = ends(3);
        for number in 0..5_u8 {
            ends[0].send(2, at("forward", 1, 0), vec![tensor([f32::from(number); 4])]).expect("running");
            ends[1].send(2, at("tied", 1, 0), vec![]).expect("running");
        }
        for number in 0..5_u8 {
            let taken = ends[2].receive(0, at("forward", 1, 5000)).expect("sent");
            assert_eq!(read(taken), [(vec![f32::from(number); 4], vec![2, 2])]);
        }
        assert_eq!(read(ends[2].receive(1, at("tied", 1, 5000)).expect("sent")), []);
    }

    #[test]
    fn a_receive_timeout_names_the_rank_at_the_end_of_the_chain() {
        let (ends, channels) = ends(4);
        std::thread::scope(|scope| {
            for rank in [1, 2] {
                let end = &ends[rank];
                scope.spawn(move || end.receive(rank - 1, at("forward", 7, 20_000)));
            }
            while channels.lock().waiting_for[..] != [None, Some(0), Some(1), None] {
                std::thread::yield_now();
            }
            let late = ends[3].receive(2, at("forward", 7, 30)).expect_err("nobody sends").to_string();
            assert_eq!(late, "rank 0 did not come to `forward` 7 within 0.03 s");
            channels.end();
        });
        assert!(matches!(ends[1].receive(0, at("forward", 8, 20_000)), Err(ParallelError::Ended)));
        assert!(matches!(ends[0].send(1, at("forward", 8, 0), vec![]), Err(ParallelError::Ended)));
    }

    #[test]
    fn a_sender_waits_for_pending_messages_and_names_the_rank_that_does_not_receive() {
        let (ends, _) = ends(2);
        for _ in 0..3 {
            ends[0].send(1, at("forward", 1, 0), vec![]).expect("running");
        }
        ends[0].wait_pending(1, 3, at("forward", 1, 0)).expect("so many may lie there");
        let late = ends[0].wait_pending(1, 2, at("forward", 1, 20)).expect_err("nobody takes them").to_string();
        assert_eq!(late, "rank 1 did not come to `forward` 1 within 0.02 s");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ends[0].wait_pending(1, 0, at("forward", 1, 20_000)));
            for _ in 0..3 {
                ends[1].receive(0, at("forward", 1, 20_000)).expect("sent");
            }
            waiting.join().expect("no panic").expect("all are taken");
        });
    }

    #[test]
    fn ranks_at_different_points_are_a_fault() {
        let (ends, _) = ends(2);
        ends[0].send(1, at("forward", 3, 0), vec![]).expect("running");
        let found = ends[1].receive(0, at("backward", 3, 5000)).expect_err("another pass").to_string();
        assert_eq!(found, "rank 1 is at `backward` 3, but rank 0 at `forward` 3");
    }
}
