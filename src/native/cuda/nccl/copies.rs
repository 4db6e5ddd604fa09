//! Sums over GPUs by copies between them, which need multiprocessors only for additions. A GPU's copy engines fetch its
//! slice of a bucket from all others, the GPU adds these up, and the engines fetch the other slices' sums. Meanwhile,
//! the multiprocessors continue the backward pass. NCCL's kernels would take some of them from products that were
//! planned for all (`docs/measurements/2026-11-22-h200-copies.md`).
//!
//! Values are added in the order of the ranks, like in the host's reducer, so the bits are the same for any number of
//! GPUs.
//!
//! No stream waits for an event that has not been recorded in another stream: the GPUs' threads exchange their events,
//! bucket by bucket in the same order.

use super::CUT;
use crate::cuda::event::Event;
use crate::cuda::kernels::{Argument, Launcher};
use crate::cuda::library::{Driver, Opaque};
use crate::cuda::{Fault, peer};
use crate::number::wide;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The alignment of slices, in values: 256 bytes.
const ALIGNED: usize = 64;

/// Values that a block adds up.
const CHUNK: usize = 1024;

/// How often a wait for other ranks checks whether the run has ended.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// The message about a bucket to other cards.
#[derive(Debug)]
struct PeerMessage {
    /// The event behind which the bucket is ready.
    event: Event,
    /// The bucket's address.
    address: u64,
}

/// A card's end of the links to all others.
#[derive(Debug)]
pub struct End {
    rank: usize,
    ranks: usize,
    links: Mutex<PeerLinks>,
    /// Whether a sum has failed on any GPU. Further messages between the GPUs would refer to different buckets.
    broken: Arc<AtomicBool>,
}

#[derive(Debug)]
struct PeerLinks {
    /// The links to the other ranks, in a circle from the next rank on.
    others: Vec<PeerLink>,
    /// Whether the buckets have been announced, so that other GPUs may still be copying them.
    announced: bool,
}

#[derive(Debug)]
struct PeerLink {
    rank: usize,
    send: Sender<Arc<PeerMessage>>,
    receive: Receiver<Arc<PeerMessage>>,
}

/// Creates the ends for `ranks` GPUs, or returns `None` if they cannot access each other's memory. The ends live as
/// long as the process.
pub fn ends(ranks: usize) -> Option<Vec<&'static End>> {
    peer::all_reach_each_other(ranks).then(|| of(ranks).into_iter().map(|end| &*Box::leak(Box::new(end))).collect())
}

fn of(ranks: usize) -> Vec<End> {
    let broken = Arc::new(AtomicBool::new(false));
    let mut receivers: Vec<Vec<Receiver<Arc<PeerMessage>>>> = (0..ranks).map(|_| Vec::new()).collect();
    let link = |receivers: &mut Vec<Receiver<Arc<PeerMessage>>>| {
        let (send, receive) = channel();
        receivers.push(receive);
        send
    };
    let senders: Vec<Vec<Sender<Arc<PeerMessage>>>> =
        (0..ranks).map(|_| receivers.iter_mut().map(link).collect()).collect();
    let ends = senders.into_iter().zip(receivers).enumerate().map(|(rank, (senders, receivers))| {
        let links = senders.into_iter().zip(receivers).enumerate().map(|(rank, (send, receive))| PeerLink {
            rank,
            send,
            receive,
        });
        let mut others: Vec<PeerLink> = links.collect();
        others.rotate_left(rank);
        // The first link is to itself.
        others.remove(0);
        End { rank, ranks, links: Mutex::new(PeerLinks { others, announced: false }), broken: Arc::clone(&broken) }
    });
    ends.collect()
}

/// Returns the start and length of each rank's slice of `len` values.
fn slices(len: usize, ranks: usize) -> Vec<(usize, usize)> {
    let each = slice(len, ranks);
    (0..ranks).map(|rank| (rank * each).min(len)).map(|start| (start, each.min(len - start))).collect()
}

fn slice(len: usize, ranks: usize) -> usize {
    len.div_ceil(ranks).next_multiple_of(ALIGNED)
}

/// Returns the index of another rank's slice among the slices from all others.
fn slot(rank: usize, other: usize) -> usize {
    if other < rank { other } else { other - 1 }
}

impl End {
    /// Returns the memory needed for the slices copied from the others, in values, for a bucket of `len` values.
    pub fn room(&self, len: usize) -> usize {
        (self.ranks - 1) * slice(len, self.ranks)
    }

    /// Exchanges messages with the others, unless something has failed before.
    fn together<T>(
        &self,
        what: impl FnOnce(&mut PeerLinks, &dyn Fn() -> bool) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let over = || self.broken.load(Ordering::SeqCst) || CUT.load(Ordering::SeqCst);
        if over() {
            return Err(Fault::Gone);
        }
        let done = what(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner), &over);
        if done.is_err() {
            self.broken.store(true, Ordering::SeqCst);
        }
        done
    }

    /// Makes streams wait until the others have copied this GPU's buckets.
    pub fn begin(&self, driver: &Driver, streams: &[Opaque]) -> Result<(), Fault> {
        self.together(|links, over| {
            if std::mem::take(&mut links.announced) {
                for (_, message) in links.receive(over)? {
                    streams.iter().try_for_each(|stream| message.event.hold(driver, *stream))?;
                }
            }
            Ok(())
        })
    }

    /// Sums a bucket, which is complete at this point of the stream, in place. `room` is memory of the size
    /// [`Self::room`].
    pub fn sum(
        &self,
        (driver, card): (&Driver, &Launcher),
        (bucket, room, len): (u64, u64, usize),
        stream: Opaque,
    ) -> Result<(), Fault> {
        self.together(|links, over| self.exchange((driver, card), (bucket, room, len), stream, (links, over)))
    }

    fn exchange(
        &self,
        (driver, card): (&Driver, &Launcher),
        (bucket, room, len): (u64, u64, usize),
        stream: Opaque,
        (links, over): (&PeerLinks, &dyn Fn() -> bool),
    ) -> Result<(), Fault> {
        let (slices, each) = (slices(len, self.ranks), slice(len, self.ranks));
        let bytes = |values: usize| wide(4 * values);
        links.send(PeerMessage { event: Event::behind(driver, stream)?, address: bucket })?;
        let others = links.receive(over)?;
        let (start, mine) = slices[self.rank];
        for (_, message) in &others {
            message.event.hold(driver, stream)?;
        }
        if mine > 0 {
            for (other, message) in &others {
                let place = room + bytes(slot(self.rank, *other) * each);
                peer::copy(driver, place, message.address + bytes(start), 4 * mine, stream)?;
            }
            add(card, (bucket + bytes(start), room), (mine, each), (self.rank, self.ranks))?;
        }
        links.send(PeerMessage { event: Event::behind(driver, stream)?, address: bucket })?;
        for (other, message) in links.receive(over)? {
            message.event.hold(driver, stream)?;
            let (start, len) = slices[other];
            if len > 0 {
                peer::copy(driver, bucket + bytes(start), message.address + bytes(start), 4 * len, stream)?;
            }
        }
        Ok(())
    }

    /// Announces that all buckets have been summed at this point of the stream.
    pub fn end(&self, driver: &Driver, stream: Opaque) -> Result<(), Fault> {
        self.together(|links, _| {
            links.announced = true;
            links.send(PeerMessage { event: Event::behind(driver, stream)?, address: 0 })
        })
    }
}

impl PeerLinks {
    fn send(&self, message: PeerMessage) -> Result<(), Fault> {
        let message = Arc::new(message);
        self.others.iter().try_for_each(|link| link.send.send(Arc::clone(&message)).map_err(|_| Fault::Gone))
    }

    /// Receives the next message of each other rank, unless the run ends before.
    fn receive(&self, over: &dyn Fn() -> bool) -> Result<Vec<(usize, Arc<PeerMessage>)>, Fault> {
        let receive = |link: &PeerLink| loop {
            match link.receive.recv_timeout(POLL_EVERY) {
                Ok(message) => return Ok((link.rank, message)),
                Err(RecvTimeoutError::Timeout) if !over() => {}
                Err(_) => return Err(Fault::Gone),
            }
        };
        self.others.iter().map(receive).collect()
    }
}

/// Adds the others' values to this GPU's own, in the order of the ranks.
fn add(
    card: &Launcher,
    (own, others): (u64, u64),
    (len, each): (usize, usize),
    (rank, ranks): (usize, usize),
) -> Result<(), Fault> {
    let count = |value: usize| u32::try_from(value).map(Argument::U32).map_err(|_| Fault::Absent);
    let blocks = u32::try_from(len.div_ceil(CHUNK)).map_err(|_| Fault::Absent)?;
    let places = [Argument::Address(own), Argument::Address(others)];
    let numbers = [count(len)?, count(each)?, count(rank)?, count(ranks)?];
    let arguments: Vec<Argument<'_>> = places.into_iter().chain(numbers).collect();
    card.launch(c"added", [blocks, 1], [256, 1], &arguments)
}

#[cfg(test)]
mod tests;
