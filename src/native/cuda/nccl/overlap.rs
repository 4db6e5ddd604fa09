//! Overlap of communication with computation: buckets are summed in a stream of their own, each as soon as its gradients are complete,
//! while the backward pass goes on.
//!
//! The memory of the buckets is kept between steps, because newly allocated memory may still be in use by earlier work
//! in the runtime's stream. That stream waits for a bucket where its sums are taken, so that any later use of the
//! gradients' memory comes after. What the runtime does with the sums of one bucket overlaps with the sums of the next.

use super::{Communicator, End, nccl};
use crate::cuda::event::{Event, Mark};
use crate::cuda::kernels::bucket::{Entry, at, entries, fits, launch};
use crate::cuda::kernels::{Launcher, Program};
use crate::cuda::library::{Driver, Opaque, driver};
use crate::cuda::submit::{bound, flush, submit};
use crate::cuda::{Cube, Fault, card_of, check, owned, primitive, tensor};
use crate::number::{real_len, wide};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// `CU_STREAM_NON_BLOCKING`, and the highest priority: communication must not wait for matrix products.
const NON_BLOCKING: u32 = 1;
const HIGHEST_PRIORITY: i32 = -5;

/// A bucket to be summed: its tensors, their places, and when its gradients are complete.
pub struct BucketPlan {
    /// The range of its tensors among all.
    pub tensors: Range<usize>,
    /// The start and length of each tensor in the bucket.
    pub places: Vec<(usize, usize)>,
    /// The number of values in the bucket.
    pub len: usize,
    /// The mark after which its gradients are complete; `None` if unknown, then after all earlier work.
    pub mark: Option<Mark>,
}

/// A [`BucketPlan`] with its places in the kernels' type.
struct Job {
    tensors: Range<usize>,
    entries: Vec<[u32; 3]>,
    /// The start of the bucket in the shared memory, and its length, both in values.
    start: u64,
    len: usize,
    mark: Option<Mark>,
}

thread_local! {
    /// The communication stream, as a number. It is thread-local, because the runtime uses a GPU from one thread.
    static SIDE_STREAM: Cell<Option<usize>> = const { Cell::new(None) };
    /// The waits of the runtime's stream for each bucket of past steps, if the GPU has not reached all of them.
    static PENDING_WAITS: RefCell<VecDeque<Vec<Wait>>> = const { RefCell::new(VecDeque::new()) };
    /// The waits of the current step.
    static STEP_WAITS: RefCell<Vec<Wait>> = const { RefCell::new(Vec::new()) };
}

/// A wait of the runtime's stream, between two points.
struct Wait {
    from: From,
    to: Event,
}

enum From {
    /// The end of a backward pass, after which nothing is queued until the sums are needed.
    Pass(Mark),
    /// The end of the work on the previous bucket.
    Bucket(Event),
}

/// Returns the communication stream of this thread.
fn side_stream() -> Result<Opaque, Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    if let Some(stream) = SIDE_STREAM.get() {
        return Ok(with_exposed_provenance_mut(stream));
    }
    let mut stream = null_mut();
    // SAFETY: the stream can be written to, and the card's context is current.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    let status = unsafe { (driver.urgent)(&raw mut stream, NON_BLOCKING, HIGHEST_PRIORITY) };
    check("cuStreamCreateWithPriority", status)?;
    SIDE_STREAM.set(Some(stream.expose_provenance()));
    Ok(stream)
}

/// The time that each GPU's stream has waited for each bucket of each step, in seconds.
static WAITED: Mutex<BTreeMap<usize, Vec<Vec<f64>>>> = Mutex::new(BTreeMap::new());

/// Returns the time that a GPU waits for sums in a step (exposed communication), in seconds: the median over each GPU's
/// steps, averaged over the first `cards` GPUs.
pub fn exposed_s(cards: usize) -> Option<f64> {
    let waited = WAITED.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = |steps: &Vec<Vec<f64>>| median(steps.iter().map(|waits| waits.iter().sum()).collect());
    let medians: Vec<f64> = waited.range(..cards).filter_map(|(_, each)| steps(each)).collect();
    (!medians.is_empty()).then(|| medians.iter().sum::<f64>() / real_len(medians.len()))
}

/// Returns the median wait of each of the first `cards` GPUs in seconds, by bucket in the order in which they are
/// summed.
pub fn waits_s(cards: usize) -> Vec<Vec<f64>> {
    let waited = WAITED.lock().unwrap_or_else(PoisonError::into_inner);
    (0..cards).map(|card| by_bucket(waited.get(&card).map_or(&[], Vec::as_slice))).collect()
}

/// Returns the median wait of these steps for each bucket.
fn by_bucket(steps: &[Vec<f64>]) -> Vec<f64> {
    let buckets = steps.iter().map(Vec::len).max().unwrap_or(0);
    (0..buckets)
        .filter_map(|bucket| median(steps.iter().filter_map(|waits| waits.get(bucket).copied()).collect()))
        .collect()
}

fn median(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    let upper = *seconds.get(seconds.len() / 2)?;
    Some(f64::midpoint(seconds[(seconds.len() - 1) / 2], upper))
}

/// Records a wait of a GPU's stream. After a step's last wait, collects the durations of completed steps.
fn record_wait(driver: &Driver, card: usize, wait: Wait, last: bool) {
    STEP_WAITS.with_borrow_mut(|step| {
        if matches!(wait.from, From::Pass(_)) {
            // Waits of a step that failed.
            step.clear();
        }
        step.push(wait);
    });
    if !last {
        return;
    }
    PENDING_WAITS.with_borrow_mut(|pending| {
        pending.push_back(STEP_WAITS.take());
        while let Some(seconds) = pending.front().and_then(|waits| durations_s(driver, waits)) {
            pending.pop_front();
            WAITED.lock().unwrap_or_else(PoisonError::into_inner).entry(card).or_default().push(seconds);
        }
    });
}

/// Returns the durations of waits in seconds, or `None` if the GPU has not reached the end of one.
fn durations_s(driver: &Driver, waits: &[Wait]) -> Option<Vec<f64>> {
    let each = waits.iter().map(|Wait { from, to }| match from {
        From::Pass(mark) => mark.until(driver, to),
        From::Bucket(event) => to.since(driver, event),
    });
    each.collect()
}

/// A pending sum of a bucket. It must be taken: the memory of its gradients is reused when it is dropped.
#[must_use]
pub struct PendingSum {
    communicator: Communicator,
    tensors: Range<usize>,
    entries: Vec<[u32; 3]>,
    start: u64,
    /// The gradients. Their memory may be reused once the runtime's stream has waited for the sum.
    inputs: Vec<Cube>,
    /// The memory with the sums.
    memory: Cube,
    done: Arc<OnceLock<Event>>,
    /// Whether it is the last bucket.
    last: bool,
    /// Whether waits are recorded; for the first bucket with the mark at which its wait begins.
    counted: Option<Option<Mark>>,
}

impl PendingSum {
    /// Returns the range of its tensors among all.
    pub fn tensors(&self) -> Range<usize> {
        self.tensors.clone()
    }

    /// Returns the sums, in the bucket's memory, where they are valid until the next sums are requested. Later work on
    /// the GPU waits for them.
    pub fn take(self) -> Vec<Tensor<1>> {
        let Self { communicator, entries, start, inputs, memory, done, last, counted, .. } = self;
        let card = communicator.card;
        // Also the gradients: otherwise the runtime could reuse their memory for work queued before the wait, while the
        // communication stream still has to read it.
        let buffers = inputs.iter().chain([&memory]).map(|tensor| bound(&tensor.handle)).collect();
        submit(&memory.device, buffers, move |_, stream| {
            let driver = driver().ok_or(Fault::Absent)?;
            let from = match counted {
                Some(Some(mark)) => Some(From::Pass(mark)),
                Some(None) => Some(From::Bucket(Event::timed(driver, stream)?)),
                None => None,
            };
            done.get().ok_or(Fault::Absent)?.hold(driver, stream)?;
            if let Some(from) = from {
                record_wait(driver, card, Wait { from, to: Event::timed(driver, stream)? }, last);
            }
            Ok(())
        });
        drop(inputs);
        let part = |[place, len, _]: &[u32; 3]| part(&memory, start + u64::from(*place), u64::from(*len));
        entries.iter().map(part).map(tensor).collect()
    }
}

/// Returns a view of `len` float32 values from `start` on. It must not be written to, because the memory is shared.
fn part(whole: &Cube, start: u64, len: u64) -> Cube {
    let handle = &whole.handle;
    let end = handle.size_in_used() - 4 * (start + len);
    let shape = [usize::try_from(len).unwrap_or(0)].into();
    let handle = handle.clone().offset_start(4 * start).offset_end(end);
    Cube::new_contiguous(whole.client.clone(), whole.device.clone(), shape, handle, DType::F32)
}

impl Communicator {
    /// Returns the number of values that the memory of [`Self::sum_overlapped`] needs for buckets of these lengths.
    pub fn room(self, lengths: &[usize]) -> usize {
        let copied = |copies: &End| lengths.iter().map(|len| copies.room(*len)).max().unwrap_or(0);
        lengths.iter().sum::<usize>() + self.copies.map_or(0, copied)
    }

    /// Keeps the memory of [`Self::sum_overlapped`] until all GPUs have copied its content.
    pub fn leave(self, memory: Tensor<1>) {
        let (Some(copies), Some(memory)) = (self.copies, primitive(&memory)) else { return };
        submit(&memory.device, vec![bound(&memory.handle)], move |_, stream| {
            copies.begin(driver().ok_or(Fault::Absent)?, &[stream])
        });
        flush(&memory.device);
    }

    /// Whether [`Self::sum_overlapped`] can sum these gradients in these buckets.
    pub fn overlaps(self, gradients: &[Tensor<1>], plans: &[BucketPlan]) -> bool {
        let here = |tensor: &Tensor<1>| card_of(&tensor.device()) == Some(self.card);
        let fit = |plan: &BucketPlan| {
            gradients.get(plan.tensors.clone()).is_some_and(|own| fits(own, &plan.places))
                // Kernels process four values at a time.
                && plan.len.is_multiple_of(4)
                && entries(&plan.places, plan.len).is_some()
        };
        nccl().is_some() && !gradients.is_empty() && gradients.iter().all(here) && plans.iter().all(fit)
    }

    /// Sums float32 gradients over all GPUs, each times a factor, bucket by bucket in this order. All sums must be
    /// taken, in this order.
    ///
    /// With a mark at the end of the backward pass, the time that the GPU waits from there on is recorded.
    ///
    /// Buckets are in `memory`, which is not shared and has the size [`Self::room`]. A bucket that is not known to be
    /// complete before the end of the backward pass delays those after it, because all GPUs must use the same order.
    ///
    /// # Panics
    /// If [`Self::overlaps`] does not hold, which is a mistake of the caller.
    pub fn sum_overlapped(
        self,
        gradients: Vec<Tensor<1>>,
        (plans, end): (Vec<BucketPlan>, Option<Mark>),
        memory: Tensor<1>,
        factor: f32,
    ) -> Vec<PendingSum> {
        let mut jobs = jobs(plans);
        let (inputs, memory): (Vec<Cube>, Cube) = (gradients.into_iter().map(owned).collect(), owned(memory));
        for job in &mut jobs {
            // A gradient that has to be made contiguous first is not complete at its mark.
            job.mark = job.mark.take().filter(|_| inputs[job.tensors.clone()].iter().all(Cube::is_contiguous));
        }
        let mut inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let buffers = inputs.iter().chain([&memory]).map(|tensor| bound(&tensor.handle)).collect();
        let mut sums: Vec<PendingSum> = Vec::with_capacity(jobs.len());
        for job in &jobs {
            sums.push(PendingSum {
                communicator: self,
                tensors: job.tensors.clone(),
                entries: job.entries.clone(),
                start: job.start,
                // The first bucket has the last tensors.
                inputs: inputs.split_off(job.tensors.start.min(inputs.len())),
                memory: memory.clone(),
                done: Arc::default(),
                last: sums.len() + 1 == jobs.len(),
                counted: end.is_some().then(|| end.clone().filter(|_| sums.is_empty())),
            });
        }
        let done: Vec<Arc<OnceLock<Event>>> = sums.iter().map(|sum| Arc::clone(&sum.done)).collect();
        submit(&memory.device, buffers, move |places, stream| {
            let (memory, from) = places.split_last().ok_or(Fault::Absent)?;
            self.sum(&jobs, (from, *memory), (factor, &done), stream)
        });
        // Other GPUs wait for this work.
        flush(&memory.device);
        sums
    }

    /// Call it on the thread that talks to the GPU, with its context current.
    fn sum(
        self,
        jobs: &[Job],
        (from, memory): (&[u64], u64),
        (factor, done): (f32, &[Arc<OnceLock<Event>>]),
        stream: Opaque,
    ) -> Result<(), Fault> {
        let (driver, side_stream) = (driver().ok_or(Fault::Absent)?, side_stream()?);
        let [own, other] = [stream, side_stream].map(|stream| Launcher::of(Program::Bucket, self.card, stream));
        let (own, other) = (own?, other?);
        // After all buckets.
        let room = memory + 4 * jobs.iter().map(|job| wide(job.len)).sum::<u64>();
        if let Some(copies) = self.copies {
            copies.begin(driver, &[stream, side_stream])?;
        }
        for (job, done) in jobs.iter().zip(done) {
            let bucket = memory + 4 * job.start;
            let gather = |(from, [start, len, room]): (&u64, &[u32; 3])| (*from, at(bucket, *start), *len, *room);
            let entries: Vec<Entry> = from[job.tensors.clone()].iter().zip(&job.entries).map(gather).collect();
            if let Some(mark) = &job.mark {
                mark.hold(driver, side_stream)?;
                launch(&other, &entries, factor)?;
            } else {
                // The runtime's stream is idle until the sums exist, so it gathers a bucket while the previous one is
                // summed.
                launch(&own, &entries, factor)?;
                Event::behind(driver, stream)?.hold(driver, side_stream)?;
            }
            match self.copies {
                Some(copies) => copies.sum((driver, &other), (bucket, room, job.len), side_stream)?,
                None => self.sum_in_place(bucket, job.len, side_stream)?,
            }
            let _ = done.set(Event::behind(driver, side_stream)?);
        }
        self.copies.map_or(Ok(()), |copies| copies.end(driver, side_stream))
    }
}

/// Lays the buckets out one after the other.
fn jobs(plans: Vec<BucketPlan>) -> Vec<Job> {
    let mut start = 0;
    let mut job = |BucketPlan { tensors, places, len, mark }: BucketPlan| {
        let Some(entries) = entries(&places, len) else { panic!("a bucket's tensors do not follow each other") };
        let job = Job { tensors, entries, start, len, mark };
        start += wide(len);
        job
    };
    plans.into_iter().map(&mut job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_the_median_of_its_waits() {
        let steps = [vec![0.1, 3.0], vec![0.3, 1.0], vec![0.2, 2.0]];
        assert_eq!(by_bucket(&steps), [0.2, 2.0]);
        assert!(by_bucket(&[]).is_empty());
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(vec![9.0, 3.0, 1.0, 0.0]), Some(2.0));
        assert_eq!((median(vec![3.0]), median(vec![])), (Some(3.0), None));
    }
}
