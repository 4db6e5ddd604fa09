//! The process group of a rank in the training loop: its shard of each batch, its share of each mean, and collective
//! operations. In a group of one rank they do nothing.

use super::bucket::{self, Bucket, MOST, buckets};
use super::rendezvous::SyncPoint;
use super::timeouts::{LIMITS, Limits, Pace, Timeouts};
use super::{ParallelError, Reducer, Sums};
use crate::gradient_readiness::{ParameterGroups, ReadyMarks};
use burn::tensor::Tensor;
use ledger_record::Digest;
use std::sync::Arc;
use std::time::Duration;

/// A rank's view of its process group.
pub struct ProcessGroup {
    rank: usize,
    /// `None` in a group of one rank.
    reducer: Option<Box<dyn Reducer>>,
    timeouts: Timeouts,
    buckets: Vec<Bucket>,
    /// The parameters of each bucket, if sums begin before the backward pass is over.
    groups: Option<Arc<ParameterGroups>>,
    /// Whether each rank has a stage of the model and all work on the same batch.
    pipelined: bool,
}

impl ProcessGroup {
    /// The group of a single rank.
    pub fn single() -> Self {
        Self {
            rank: 0,
            reducer: None,
            timeouts: Timeouts::new(LIMITS),
            buckets: Vec::new(),
            groups: None,
            pipelined: false,
        }
    }

    /// A data-parallel group whose gradients have these lengths.
    pub fn new(rank: usize, reducer: Box<dyn Reducer>, limits: Limits, lengths: &[usize]) -> Self {
        let buckets = buckets(lengths, MOST);
        let worth = reducer.overlap_min_values().is_some_and(|most| lengths.iter().sum::<usize>() >= most);
        let groups = worth.then(|| Arc::new(ParameterGroups::new(bucket::numbers(&buckets))));
        Self { rank, reducer: Some(reducer), timeouts: Timeouts::new(limits), buckets, groups, pipelined: false }
    }

    /// A group of pipeline stages: each rank has a stage of the model and parameters of its own.
    pub fn stage(rank: usize, reducer: Box<dyn Reducer>, limits: Limits) -> Self {
        Self { pipelined: true, ..Self::new(rank, reducer, limits, &[]) }
    }

    /// Whether each rank has a stage of the model.
    pub fn pipelined(&self) -> bool {
        self.pipelined
    }

    /// The number of shards of a batch, one for each rank.
    pub fn shards(&self) -> usize {
        if self.pipelined { 1 } else { self.ranks() }
    }

    /// The parameters of each bucket, if sums overlap with the backward pass.
    pub fn groups(&self) -> Option<Arc<ParameterGroups>> {
        self.groups.clone()
    }

    /// The mean time in seconds that a device waits for gradient sums in a step (exposed communication), if measured.
    pub fn exposed_s(&self) -> Option<f64> {
        self.reducer.as_ref().and_then(|reducer| reducer.exposed_s())
    }

    /// Returns the same for each rank and each bucket, in the order in which buckets are summed; empty if not measured.
    pub fn waits_s(&self) -> Vec<Vec<f64>> {
        self.reducer.as_ref().map(|reducer| reducer.waits_s()).unwrap_or_default()
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether this is rank 0, which evaluates and emits the run's events.
    pub fn is_leader(&self) -> bool {
        self.rank == 0
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.reducer.as_ref().map_or(1, |reducer| reducer.ranks())
    }

    /// MiB of gradients that are summed in a step; `None` without data parallelism.
    pub fn gradient_mebibytes(&self) -> Option<f64> {
        self.reducer.as_ref().filter(|_| !self.pipelined).map(|_| bucket::mebibytes(&self.buckets))
    }

    /// Records the duration of a step for the timeouts.
    pub fn record_step(&mut self, step: Duration) {
        self.timeouts.record_step(step);
    }

    /// The timeouts of this group.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Returns the timeout of `steps` steps at this pace.
    pub fn limit(&self, pace: Pace, steps: usize) -> Option<Duration> {
        self.timeouts.limit(pace, steps)
    }

    fn point(&self, what: &'static str, index: u64, pace: Pace) -> SyncPoint {
        SyncPoint { what, index, limit: self.limit(pace, 1) }
    }

    /// Waits for all ranks.
    pub fn barrier(&self, what: &'static str, index: u64, pace: Pace) -> Result<(), ParallelError> {
        match &self.reducer {
            None => Ok(()),
            Some(reducer) => reducer.barrier(self.point(what, index, pace)),
        }
    }

    /// Whether `yes` holds on all ranks.
    pub fn all_agree(&self, what: &'static str, index: u64, pace: Pace, yes: bool) -> Result<bool, ParallelError> {
        let Some(reducer) = &self.reducer else { return Ok(yes) };
        let gathered = reducer.all_gather(self.point(what, index, pace), vec![u64::from(yes)])?;
        Ok(gathered.iter().all(|words| words == &[1]))
    }

    /// Returns the sum of a number over all ranks.
    pub fn sum(&self, what: &'static str, index: u64, pace: Pace, mine: f64) -> Result<f64, ParallelError> {
        let Some(reducer) = &self.reducer else { return Ok(mine) };
        let gathered = reducer.all_gather(self.point(what, index, pace), vec![mine.to_bits()])?;
        Ok(gathered.iter().flatten().map(|bits| f64::from_bits(*bits)).sum())
    }

    /// Returns the numbers of rank 0, on all ranks.
    pub fn broadcast_numbers(
        &self,
        what: &'static str,
        index: u64,
        pace: Pace,
        mine: Vec<f64>,
    ) -> Result<Vec<f64>, ParallelError> {
        let Some(reducer) = &self.reducer else { return Ok(mine) };
        let words = if self.is_leader() { mine.iter().map(|number| number.to_bits()).collect() } else { Vec::new() };
        let gathered = reducer.all_gather(self.point(what, index, pace), words)?;
        Ok(gathered.first().into_iter().flatten().map(|bits| f64::from_bits(*bits)).collect())
    }

    /// Returns the parameters of rank 0, on all ranks.
    pub fn broadcast_parameters(&self, values: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError> {
        let Some(reducer) = self.reducer.as_ref().filter(|_| !self.pipelined) else { return Ok(values) };
        let gathered = bucket::gather(&self.buckets, values, 1.0);
        let sent = reducer.broadcast(self.point("start", 1, Pace::First), gathered)?;
        Ok(bucket::scatter(&self.buckets, sent))
    }

    /// Returns the factor of this rank's loss and gradients before they are summed: its fraction of all that the mean
    /// is over, or 1 if the loss is a sum. Returns `None` if the first rank wants to stop before the step is done.
    ///
    /// `mean_of` is the number of samples or tokens that the loss is the mean of.
    pub fn share(
        &self,
        step: u64,
        pace: Pace,
        mean_of: Option<usize>,
        stop: bool,
    ) -> Result<Option<f64>, ParallelError> {
        let Some(reducer) = &self.reducer else { return Ok(Some(1.0)) };
        let mine = mean_of.map_or(0, crate::number::wide);
        let what = if self.pipelined { "together" } else { "all_reduce" };
        let gathered = reducer.all_gather(self.point(what, step, pace), vec![mine, u64::from(stop)])?;
        if gathered.first().is_some_and(|words| words.last() == Some(&1)) {
            return Ok(None);
        }
        if self.pipelined {
            // The last stage has the loss.
            return Ok(Some(if self.rank + 1 == self.ranks() { 1.0 } else { 0.0 }));
        }
        let all: u64 = gathered.iter().filter_map(|words| words.first()).sum();
        Ok(Some(match mean_of {
            None => 1.0,
            Some(_) => crate::number::real(mine) / crate::number::real(all.max(1)),
        }))
    }

    /// Returns the sums of all ranks' gradients, each times its rank's share. Marks say when the gradients of each
    /// bucket are complete, if that is known.
    pub fn sum_gradients(
        &self,
        step: u64,
        pace: Pace,
        (gradients, marks): (Vec<Tensor<1>>, ReadyMarks),
        share: f64,
    ) -> Result<Sums, ParallelError> {
        let Some(reducer) = self.reducer.as_ref().filter(|_| !self.pipelined) else { return Ok(Sums::of(gradients)) };
        reducer.sum(self.point("all_reduce", step, pace), &self.buckets, (gradients, marks), share)
    }

    /// Submits the queued work to the device, because other ranks may wait for it.
    pub fn begin(&self) {
        if let Some(reducer) = &self.reducer {
            reducer.begin();
        }
    }

    /// Returns the sums of all ranks' losses, in the order of ranks. Each loss is multiplied by its share. A loss with
    /// share 0 is ignored, even if it is not finite.
    pub fn sum_losses(&self, step: u64, pace: Pace, losses: Vec<(f32, f64)>) -> Result<Vec<f64>, ParallelError> {
        let shares = losses.into_iter().map(|(loss, share)| if share == 0.0 { 0.0 } else { f64::from(loss) * share });
        let mine: Vec<f64> = shares.collect();
        let Some(reducer) = &self.reducer else { return Ok(mine) };
        let words = mine.iter().map(|loss| loss.to_bits()).collect();
        let gathered = reducer.all_gather(self.point("losses", step, pace), words)?;
        let of =
            |place: usize| gathered.iter().filter_map(|words| words.get(place)).map(|bits| f64::from_bits(*bits)).sum();
        Ok((0..mine.len()).map(of).collect())
    }

    /// Checks that all ranks have the same digest.
    ///
    /// # Errors
    /// Names the ranks that differ from the first one.
    pub fn check_equal(&self, what: &'static str, digest: Digest) -> Result<(), ParallelError> {
        let Some(reducer) = self.reducer.as_ref().filter(|_| !self.pipelined) else { return Ok(()) };
        let words =
            digest.0.chunks_exact(8).map(|bytes| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        let gathered =
            reducer.all_gather(self.point(what, 1, Pace::Within(self.timeouts.limits().last)), words.collect())?;
        let other = |(rank, words): (usize, &Vec<u64>)| (Some(words) != gathered.first()).then_some(rank);
        let ranks: Vec<usize> = gathered.iter().enumerate().filter_map(other).collect();
        if ranks.is_empty() { Ok(()) } else { Err(ParallelError::Apart { ranks }) }
    }

    /// Returns this rank's shard of a batch.
    pub fn shard<'a, T>(&self, batch: &'a [T]) -> &'a [T] {
        shard(batch, if self.pipelined { 0 } else { self.rank }, self.shards())
    }

    /// Returns the first rank's shard of a batch.
    pub fn leader_shard<'a, T>(&self, batch: &'a [T]) -> &'a [T] {
        shard(batch, 0, self.shards())
    }
}

/// Returns a rank's contiguous shard of a batch. Shards are equal; each of the first ranks gets one of the remaining
/// samples.
pub fn shard<T>(batch: &[T], rank: usize, ranks: usize) -> &[T] {
    let (each, over) = (batch.len() / ranks.max(1), batch.len() % ranks.max(1));
    let start = rank * each + rank.min(over);
    batch.get(start..start + each + usize::from(rank < over)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::Rendezvous;
    use crate::parallel::host::HostReducer;

    #[test]
    fn shards_partition_the_batch_and_differ_by_one_sample_at_most() {
        for len in 0..40 {
            let batch: Vec<usize> = (100..100 + len).collect();
            for ranks in [1, 2, 3, 4] {
                let shards: Vec<&[usize]> = (0..ranks).map(|rank| shard(&batch, rank, ranks)).collect();
                assert_eq!(shards.concat(), batch, "{len} over {ranks}");
                let lengths: Vec<usize> = shards.iter().map(|shard| shard.len()).collect();
                assert!(lengths.is_sorted_by(|a, b| a >= b) && lengths[0] - lengths[ranks - 1] <= 1, "{lengths:?}");
            }
        }
    }

    #[test]
    fn a_rank_alone_changes_nothing() {
        let group = ProcessGroup::single();
        assert_eq!((group.rank(), group.ranks(), group.is_leader(), group.gradient_mebibytes()), (0, 1, true, None));
        assert_eq!(group.shard(&[1, 2, 3]), [1, 2, 3]);
        assert_eq!(group.share(1, Pace::Steady, Some(3), true).expect("nobody else"), Some(1.0));
        assert_eq!(group.sum_losses(1, Pace::Steady, vec![(0.1, 1.0)]).expect("nobody else"), [f64::from(0.1_f32)]);
        assert!(!group.all_agree("scale", 1, Pace::Steady, false).expect("nobody else"));
    }

    /// Returns the result of each of `count` ranks.
    fn each_rank<T: Send>(count: usize, work: impl Fn(&ProcessGroup) -> T + Sync) -> Vec<T> {
        let rendezvous = Arc::new(Rendezvous::of(count));
        std::thread::scope(|scope| {
            let start = |rank| {
                let (rendezvous, work) = (Arc::clone(&rendezvous), &work);
                let limits =
                    Limits { step: Duration::from_secs(20), first: Duration::from_secs(20), last: Duration::ZERO };
                scope.spawn(move || {
                    work(&ProcessGroup::new(rank, Box::new(HostReducer::new(rank, rendezvous)), limits, &[]))
                })
            };
            let threads: Vec<_> = (0..count).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn shares_are_proportional_to_the_counts_behind_the_means() {
        let shares = |of: [Option<usize>; 4]| {
            each_rank(4, |group| group.share(1, Pace::Steady, of[group.rank()], false).expect("all come"))
        };
        assert_eq!(shares([Some(8); 4]), [Some(0.25); 4], "exactly");
        assert_eq!(shares([Some(2), Some(1), Some(1), Some(0)]), [Some(0.5), Some(0.25), Some(0.25), Some(0.0)]);
        assert_eq!(shares([None; 4]), [Some(1.0); 4], "sums");
        assert_eq!(shares([Some(0); 4]), [Some(0.0); 4], "nothing at all");
    }

    #[test]
    fn the_first_rank_alone_decides_to_stop() {
        let stopped = |who: usize| {
            each_rank(2, move |group| group.share(1, Pace::Steady, Some(1), group.rank() == who).expect("all come"))
        };
        assert_eq!(stopped(0), [None, None]);
        assert_eq!(stopped(1), [Some(0.5), Some(0.5)]);
    }

    #[test]
    fn losses_are_weighted_and_a_loss_without_share_does_not_count() {
        let found = each_rank(4, |group| {
            let mine = [(3.0, 0.5), (1.0, 0.25), (2.0, 0.25), (f32::NAN, 0.0)][group.rank()];
            group.sum_losses(1, Pace::Steady, vec![mine, (1.0, 0.25)]).expect("all come")
        });
        assert!(found.iter().all(|losses| losses == &[2.25, 1.0]), "{found:?}");
        let wild = each_rank(2, |group| {
            group.sum_losses(1, Pace::Steady, vec![([f32::INFINITY, 1.0][group.rank()], 0.5)]).expect("all come")
        });
        assert!(wild.iter().all(|losses| losses == &[f64::INFINITY]));
    }

    #[test]
    fn agreement_needs_all_ranks_and_a_different_digest_is_named() {
        let all = |no: usize| {
            each_rank(4, move |group| group.all_agree("scale", 1, Pace::Steady, group.rank() != no).expect("all come"))
        };
        assert_eq!(all(2), [false; 4]);
        assert_eq!(all(9), [true; 4]);
        let alike = |odd: usize| {
            each_rank(4, move |group| {
                let digest = Digest::of(if group.rank() == odd { b"other" } else { b"equal" });
                group.check_equal("weights", digest).map_err(|error| error.to_string())
            })
        };
        assert_eq!(alike(9), [const { Ok(()) }; 4]);
        let apart = "the weights of rank 2 are not those of rank 0 (their digests differ after the last step)";
        assert!(alike(2).iter().all(|found| found.as_ref().is_err_and(|error| error == apart)));
    }
}
