//! From rank to rank: values that one of them has and another one waits for, in the order in which they were sent.
//!
//! Who sends does not wait. Who waits for a rank that does not send is told so after a while; where that one waits itself, the rank at the end of the chain is named.
//! Between GPUs the taker copies: no device ever waits for a rank that has not come so far. What was sent is kept until then ([`End::release`]).

use super::{Limits, Link, Occasion, ParallelError};
#[cfg(feature = "cuda")]
use crate::device::Place;
#[cfg(feature = "cuda")]
use crate::native::peer::{self, Given, Offer};
#[cfg(feature = "cuda")]
use burn::backend::DType;
use burn::tensor::{Device, Tensor};
use std::collections::VecDeque;
#[cfg(feature = "cuda")]
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A tensor on its way: its values, and the shape in which they are to be taken up.
#[derive(Debug)]
pub struct Parcel {
    /// All values, one after the other.
    pub values: Tensor<1>,
    /// Their shape.
    pub shape: Vec<usize>,
}

/// What lies in the host's memory of some parcels.
struct Letter {
    occasion: Occasion,
    shapes: Vec<Vec<usize>>,
    what: Content,
}

enum Content {
    /// The values themselves.
    Values(Vec<Tensor<1>>),
    /// They are to be copied from another card, in these formats.
    #[cfg(feature = "cuda")]
    Offered(Offer, Vec<DType>),
}

/// The ways from each rank to each other one.
pub struct Pipes {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By who sends and who takes.
    letters: Vec<Vec<VecDeque<Letter>>>,
    /// For whom each rank waits.
    waits: Vec<Option<usize>>,
    ended: bool,
}

impl Pipes {
    /// Between so many ranks.
    pub fn of(ranks: usize) -> Self {
        let letters = (0..ranks).map(|_| (0..ranks).map(|_| VecDeque::new()).collect()).collect();
        let state = State { letters, waits: vec![None; ranks], ended: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Nobody gets anything any more: whoever waits is told so.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn post(&self, from: usize, to: usize, letter: Letter) -> Result<(), ParallelError> {
        let mut state = self.lock();
        if state.ended {
            return Err(ParallelError::Ended);
        }
        if let Some(way) = state.letters.get_mut(from).and_then(|ways| ways.get_mut(to)) {
            way.push_back(letter);
        }
        self.changed.notify_all();
        Ok(())
    }

    fn take(&self, from: usize, to: usize, occasion: Occasion) -> Result<Letter, ParallelError> {
        let (mut state, start) = (self.lock(), Instant::now());
        loop {
            if state.ended {
                return Err(ParallelError::Ended);
            }
            if let Some(letter) = state.letters.get_mut(from).and_then(|ways| ways.get_mut(to)?.pop_front()) {
                state.wait_for(to, None);
                // Somebody may wait until it is taken.
                self.changed.notify_all();
                let there = letter.occasion;
                if !there.is(occasion) {
                    return Err(ParallelError::Elsewhere { rank: to, here: occasion, other: from, there });
                }
                return Ok(letter);
            }
            state.wait_for(to, Some(from));
            state = self.wait(state, start, from, occasion)?;
        }
    }

    /// Waits until at most so many letters from one rank to another have not been taken.
    fn settle(&self, from: usize, to: usize, most: usize, occasion: Occasion) -> Result<(), ParallelError> {
        let (mut state, start) = (self.lock(), Instant::now());
        loop {
            if state.ended {
                return Err(ParallelError::Ended);
            }
            let left = state.letters.get(from).and_then(|ways| Some(ways.get(to)?.len())).unwrap_or(0);
            if left <= most {
                state.wait_for(from, None);
                return Ok(());
            }
            state.wait_for(from, Some(to));
            state = self.wait(state, start, to, occasion)?;
        }
    }

    /// Waits for a change, as long as the occasion allows.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        start: Instant,
        other: usize,
        occasion: Occasion,
    ) -> Result<MutexGuard<'a, State>, ParallelError> {
        match occasion.limit.map(|limit| (limit, limit.saturating_sub(start.elapsed()))) {
            None => Ok(self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)),
            Some((limit, left)) if left.is_zero() => {
                Err(ParallelError::Late { ranks: vec![state.at_the_end_of(other)], occasion, limit })
            }
            Some((_, left)) => Ok(self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0),
        }
    }

    /// Whether a rank waits for another one.
    pub fn waits(&self, rank: usize) -> bool {
        self.lock().waits.get(rank).is_some_and(Option::is_some)
    }

    /// The rank for which that one waits, and so on, that waits for nobody.
    pub fn at_the_end_of(&self, rank: usize) -> usize {
        self.lock().at_the_end_of(rank)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait_for(&mut self, rank: usize, other: Option<usize>) {
        if let Some(place) = self.waits.get_mut(rank) {
            *place = other;
        }
    }

    /// The rank for which that one waits, and so on, that waits for nobody.
    fn at_the_end_of(&self, rank: usize) -> usize {
        let next = |rank: &usize| self.waits.get(*rank).copied().flatten();
        // In a circle everybody is as late as everybody else.
        std::iter::successors(Some(rank), next).take(self.waits.len()).last().unwrap_or(rank)
    }
}

/// A rank's end of the pipes.
pub struct End {
    rank: usize,
    pipes: Arc<Pipes>,
    link: Link,
    device: Device,
    /// What other cards have not copied yet, as far as is known.
    #[cfg(feature = "cuda")]
    given: Mutex<VecDeque<(usize, Given)>>,
    /// How long others may take where nobody knows it from the steps before.
    pub limits: Limits,
}

impl End {
    /// That of a rank whose tensors live on this device.
    pub fn new(rank: usize, pipes: Arc<Pipes>, link: Link, (device, limits): (Device, Limits)) -> Self {
        Self {
            rank,
            pipes,
            link,
            device,
            #[cfg(feature = "cuda")]
            given: Mutex::default(),
            limits,
        }
    }

    /// Waits until a rank has taken what was sent to it, but for so many sendings.
    ///
    /// # Errors
    /// As [`Self::take`] has it.
    pub fn settle(&self, to: usize, most: usize, at: Occasion) -> Result<(), ParallelError> {
        self.pipes.settle(self.rank, to, most, at)
    }

    /// Sends tensors.
    ///
    /// # Errors
    /// If the run has ended, or the tensors are not where they should be.
    pub fn send(&self, to: usize, at: Occasion, parcels: Vec<Parcel>) -> Result<(), ParallelError> {
        let (values, shapes): (Vec<Tensor<1>>, Vec<Vec<usize>>) =
            parcels.into_iter().map(|parcel| (parcel.values, parcel.shape)).unzip();
        match &self.link {
            Link::Host => {
                self.pipes.post(self.rank, to, Letter { occasion: at, shapes, what: Content::Values(values) })
            }
            #[cfg(feature = "cuda")]
            Link::Cards(_) => {
                let formats = values.iter().map(Tensor::dtype).collect();
                let unlike = |_| ParallelError::Unlike { rank: self.rank, at };
                let (offer, given) =
                    if values.is_empty() { return Ok(()) } else { peer::offer(values, to).map_err(unlike)? };
                self.kept().push_back((to, given));
                self.pipes.post(self.rank, to, Letter { occasion: at, shapes, what: Content::Offered(offer, formats) })
            }
        }
    }

    /// Gives up what was sent, but for the last so many sendings, and waits until it has been taken. To be called before the host waits for a later step of the others.
    ///
    /// # Errors
    /// If a rank does not take it within the occasion's limit, or has ended.
    pub fn release(&self, most: usize, at: Occasion) -> Result<(), ParallelError> {
        #[cfg(feature = "cuda")]
        while self.kept().len() > most {
            let Some((to, given)) = self.kept().pop_front() else { break };
            let limit = at.limit.unwrap_or(self.limits.first);
            match given.release(limit) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let ranks = vec![self.pipes.at_the_end_of(to)];
                    return Err(ParallelError::Late { ranks, occasion: at, limit });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // It may have failed because this one's card did.
                    Place::Device(self.device.clone()).check()?;
                    return Err(ParallelError::Ended);
                }
            }
        }
        let _ = (most, at);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn kept(&self) -> MutexGuard<'_, VecDeque<(usize, Given)>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what a rank sent, and waits until it has sent it; on a GPU the values may come later than this returns, and what is asked of it afterwards waits for them.
    ///
    /// # Errors
    /// If the other rank does not send within the occasion's limit, sends for another occasion, or has ended.
    pub fn take(&self, from: usize, at: Occasion) -> Result<Vec<Parcel>, ParallelError> {
        let Letter { shapes, what, .. } = self.pipes.take(from, self.rank, at)?;
        let values = match what {
            Content::Values(values) => values,
            #[cfg(feature = "cuda")]
            Content::Offered(offer, formats) => {
                let lengths: Vec<usize> = shapes.iter().map(|shape| shape.iter().product()).collect();
                offer.take(&self.device, &lengths, &formats)
            }
        };
        Ok(values.into_iter().zip(shapes).map(|(values, shape)| Parcel { values, shape }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::LIMITS;
    use super::*;
    use std::time::Duration;

    fn at(what: &'static str, index: u64, limit_ms: u64) -> Occasion {
        Occasion { what, index, limit: Some(Duration::from_millis(limit_ms)) }
    }

    fn ends(ranks: usize) -> (Vec<End>, Arc<Pipes>) {
        let pipes = Arc::new(Pipes::of(ranks));
        let end = |rank| End::new(rank, Arc::clone(&pipes), Link::Host, (Device::flex(), LIMITS));
        ((0..ranks).map(end).collect(), pipes)
    }

    fn parcel(values: [f32; 4]) -> Parcel {
        Parcel { values: Tensor::from_data(values, &Device::flex()), shape: vec![2, 2] }
    }

    fn read(parcels: Vec<Parcel>) -> Vec<(Vec<f32>, Vec<usize>)> {
        parcels.into_iter().map(|parcel| (parcel.values.try_into_vec_as().expect("readable"), parcel.shape)).collect()
    }

    #[test]
    fn what_is_sent_comes_in_its_order_whoever_else_sends() {
        let (ends, _) = ends(3);
        for number in 0..5_u8 {
            ends[0].send(2, at("forward", 1, 0), vec![parcel([f32::from(number); 4])]).expect("running");
            ends[1].send(2, at("tied", 1, 0), vec![]).expect("running");
        }
        for number in 0..5_u8 {
            let taken = ends[2].take(0, at("forward", 1, 5000)).expect("sent");
            assert_eq!(read(taken), [(vec![f32::from(number); 4], vec![2, 2])]);
        }
        assert_eq!(read(ends[2].take(1, at("tied", 1, 5000)).expect("sent")), []);
    }

    #[test]
    fn who_waits_in_vain_names_the_rank_at_the_end_of_the_chain() {
        let (ends, pipes) = ends(4);
        std::thread::scope(|scope| {
            for rank in [1, 2] {
                let end = &ends[rank];
                scope.spawn(move || end.take(rank - 1, at("forward", 7, 20_000)));
            }
            while pipes.lock().waits[..] != [None, Some(0), Some(1), None] {
                std::thread::yield_now();
            }
            let late = ends[3].take(2, at("forward", 7, 30)).expect_err("nobody sends").to_string();
            assert_eq!(late, "rank 0 did not come to `forward` 7 within 0.03 s");
            pipes.end();
        });
        assert!(matches!(ends[1].take(0, at("forward", 8, 20_000)), Err(ParallelError::Ended)));
        assert!(matches!(ends[0].send(1, at("forward", 8, 0), vec![]), Err(ParallelError::Ended)));
    }

    #[test]
    fn who_sent_waits_until_it_was_taken_and_names_who_does_not_take_it() {
        let (ends, _) = ends(2);
        for _ in 0..3 {
            ends[0].send(1, at("forward", 1, 0), vec![]).expect("running");
        }
        ends[0].settle(1, 3, at("forward", 1, 0)).expect("so many may lie there");
        let late = ends[0].settle(1, 2, at("forward", 1, 20)).expect_err("nobody takes them").to_string();
        assert_eq!(late, "rank 1 did not come to `forward` 1 within 0.02 s");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ends[0].settle(1, 0, at("forward", 1, 20_000)));
            for _ in 0..3 {
                ends[1].take(0, at("forward", 1, 20_000)).expect("sent");
            }
            waiting.join().expect("no panic").expect("all are taken");
        });
    }

    #[test]
    fn ranks_at_different_occasions_are_a_fault() {
        let (ends, _) = ends(2);
        ends[0].send(1, at("forward", 3, 0), vec![]).expect("running");
        let found = ends[1].take(0, at("backward", 3, 5000)).expect_err("another pass").to_string();
        assert_eq!(found, "rank 1 is at `backward` 3, but rank 0 at `forward` 3");
    }
}
