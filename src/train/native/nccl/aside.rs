//! Sums of buckets in a stream beside the runtime's, each as soon as its gradients are whole, while the backward pass goes on.
//!
//! The bucket's memory is ours and is kept: the runtime's own may still be used by work that comes before in its stream. Its stream waits for a bucket where the sums are taken out.

use super::super::event::{Event, Mark};
use super::super::kernels::bucket::{Entry, at, entries, fits, launch};
use super::super::kernels::{Launcher, Program, room};
use super::super::library::{Driver, Opaque, driver};
use super::super::operation::{Cube, Primitive, Promise, register};
use super::super::submit::{bound, submit};
use super::super::{Fault, card_of, told};
use super::{Communicator, nccl};
use crate::train::number::{real_len, wide};
use burn::backend::{Cuda, TensorMetadata};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// `CU_STREAM_NON_BLOCKING`, and the highest priority there is: the links shall not wait for products.
const NON_BLOCKING: u32 = 1;
const FIRST: i32 = -5;

/// A bucket to be summed: which tensors it has, where in it they lie (start and length), how many values it has in all, and behind what its gradients are whole; behind everything
/// where that is not known.
pub struct Piece {
    /// Which of all tensors.
    pub tensors: Range<usize>,
    /// Where they lie.
    pub places: Vec<(usize, usize)>,
    /// Values in all.
    pub len: usize,
    /// Behind what.
    pub mark: Option<Mark>,
}

/// A [`Piece`] as kernels count.
struct Job {
    tensors: Range<usize>,
    entries: Vec<[u32; 3]>,
    /// Where the bucket begins in the memory of all, and its values.
    start: u64,
    len: usize,
    mark: Option<Mark>,
}

thread_local! {
    /// The runtime talks to a card from one thread.
    static ASIDE: RefCell<Option<Aside>> = const { RefCell::new(None) };
    /// From where to where the runtime's stream waited, which the card may not have come to yet.
    static LATER: RefCell<VecDeque<(Event, Event)>> = const { RefCell::new(VecDeque::new()) };
}

#[derive(Clone, Copy)]
struct Aside {
    stream: Opaque,
    memory: u64,
    values: u64,
}

/// By card, how long its stream has waited in all, in seconds, and how often.
static WAITED: Mutex<BTreeMap<usize, (f64, u32)>> = Mutex::new(BTreeMap::new());

/// How long each of the first so many cards had nothing to do but to wait for sums and to take them out, in the mean over those that were told behind what gradients are whole.
pub fn exposed_s(cards: usize) -> Option<f64> {
    let waited = WAITED.lock().unwrap_or_else(PoisonError::into_inner);
    let means: Vec<f64> = waited.range(..cards).map(|(_, (seconds, times))| seconds / f64::from(*times)).collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / real_len(means.len()))
}

/// Adds up what is known by now, and keeps the rest.
fn waited(driver: &Driver, card: usize, more: Option<(Event, Event)>) {
    LATER.with_borrow_mut(|later| {
        later.extend(more);
        while let Some(seconds) = later.front().and_then(|(first, last)| last.since(driver, first)) {
            later.pop_front();
            let mut waited = WAITED.lock().unwrap_or_else(PoisonError::into_inner);
            let (sum, times) = waited.entry(card).or_default();
            (*sum, *times) = (*sum + seconds, *times + 1);
        }
    });
}

impl Aside {
    /// That of this thread, with room for so many values.
    fn with(values: u64) -> Result<Self, Fault> {
        let driver = driver().ok_or(Fault::Absent)?;
        let bytes = usize::try_from(values).ok().and_then(|values| values.checked_mul(4)).ok_or(Fault::Absent)?;
        ASIDE.with_borrow_mut(|aside| {
            if let Some(aside) = aside.filter(|aside| aside.values >= values) {
                return Ok(aside);
            }
            let (mut stream, mut memory) = (null_mut(), 0);
            // SAFETY: all can be written to, and the card's context is current. What there was before may still be used, and is kept: there is one size for each model.
            #[expect(unsafe_code, reason = "functions of the CUDA driver")]
            unsafe {
                told("cuStreamCreateWithPriority", (driver.urgent)(&raw mut stream, NON_BLOCKING, FIRST))?;
                told("cuMemAlloc", (driver.allocate)(&raw mut memory, bytes))?;
            }
            Ok(*aside.insert(Aside { stream, memory, values }))
        })
    }
}

impl Communicator {
    /// The sums over all cards of gradients in float32, each times a factor, bucket by bucket in this order; or the gradients, where they are elsewhere.
    pub fn sum_aside(
        self,
        gradients: Vec<Tensor<1>>,
        pieces: Vec<Piece>,
        factor: f32,
    ) -> Result<Vec<Tensor<1>>, Vec<Tensor<1>>> {
        let here = |tensor: &Tensor<1>| card_of(&tensor.device()) == Some(self.card);
        let fit = |piece: &Piece| gradients.get(piece.tensors.clone()).is_some_and(|own| fits(own, &piece.places));
        if nccl().is_none() || gradients.is_empty() || !gradients.iter().all(here) || !pieces.iter().all(fit) {
            return Err(gradients);
        }
        let Some(mut jobs) = jobs(pieces) else { return Err(gradients) };
        let inputs: Result<Vec<Primitive>, _> =
            gradients.iter().map(|gradient| gradient.clone().try_into_primitive::<Cuda>()).collect();
        let Ok(inputs) = inputs else { return Err(gradients) };
        drop(gradients);
        for job in &mut jobs {
            // What has yet to be put in order is not whole before that.
            job.mark = job.mark.take().filter(|_| inputs[job.tensors.clone()].iter().all(Cube::is_contiguous));
        }
        let promised: Vec<Promise> = inputs.iter().map(|input| (input.shape(), DType::F32)).collect();
        let made = register("sum_aside", inputs, promised, move |inputs| {
            let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
            let made: Vec<Cube> = inputs.iter().map(room).collect();
            let buffers = inputs.iter().chain(&made).map(|tensor| bound(&tensor.handle)).collect();
            submit(&inputs[0].device, buffers, move |places, stream| {
                let (from, to) = places.split_at(places.len() / 2);
                self.sum(&jobs, (from, to), factor, stream)
            });
            made
        });
        Ok(made.into_iter().map(Tensor::from_primitive::<Cuda>).collect())
    }

    /// To be called on the thread that talks to the card, when its context is current.
    fn sum(self, jobs: &[Job], (from, to): (&[u64], &[u64]), factor: f32, stream: Opaque) -> Result<(), Fault> {
        let driver = driver().ok_or(Fault::Absent)?;
        let aside = Aside::with(jobs.last().map_or(0, |job| job.start + wide(job.len)))?;
        let card = Launcher::of(Program::Bucket, self.card, aside.stream)?;
        let end = Event::timed(driver, stream)?;
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            match &job.mark {
                Some(mark) => mark.hold(driver, aside.stream)?,
                None => end.hold(driver, aside.stream)?,
            }
            let bucket = aside.memory + 4 * job.start;
            let gather = |(from, [start, len, room]): (&u64, &[u32; 3])| (*from, at(bucket, *start), *len, *room);
            let entries: Vec<Entry> = from[job.tensors.clone()].iter().zip(&job.entries).map(gather).collect();
            launch(&card, &entries, factor)?;
            self.sum_in_place(bucket, job.len, aside.stream)?;
            done.push(Event::behind(driver, aside.stream)?);
        }
        let card = Launcher::of(Program::Bucket, self.card, stream)?;
        for (job, done) in jobs.iter().zip(done) {
            done.hold(driver, stream)?;
            let bucket = aside.memory + 4 * job.start;
            let scatter = |(to, [start, len, _]): (&u64, &[u32; 3])| (at(bucket, *start), *to, *len, *len);
            let entries: Vec<Entry> = to[job.tensors.clone()].iter().zip(&job.entries).map(scatter).collect();
            launch(&card, &entries, 1.0)?;
        }
        let told = jobs.iter().any(|job| job.mark.is_some());
        let last = Event::timed(driver, stream)?;
        waited(driver, self.card, told.then_some((end, last)));
        Ok(())
    }
}

/// Buckets one behind the other.
fn jobs(pieces: Vec<Piece>) -> Option<Vec<Job>> {
    let mut start = 0;
    let mut job = |Piece { tensors, places, len, mark }: Piece| {
        let entries = entries(&places, len)?;
        let job = Job { tensors, entries, start, len, mark };
        start += wide(len);
        Some(job)
    };
    pieces.into_iter().map(&mut job).collect()
}
