//! The connection between the devices of ranks.

use super::bucket::Bucket;
use super::{HostReducer, Reducer, Rendezvous};
use super::{ParallelError, Part, Sums, SyncPoint};
use crate::gradient_readiness::ReadyMarks;
use crate::native::nccl::{BucketPlan, Communicator, exposed_s, waits_s};
use crate::native::{self, event::Mark};
use crate::number::single;
use burn::tensor::{DType, Device, Tensor};
use std::cell::RefCell;
use std::iter::repeat;
use std::sync::Arc;

/// The number of values from which on NCCL sums overlap with the backward pass (256 MiB). NCCL takes multiprocessors
/// and memory bandwidth from the backward pass. Below this size that costs more than summing afterwards
/// (`docs/measurements/2026-11-22-h200-overlap.md`).
const OVERLAP_MIN_VALUES: usize = 64 << 20;

/// The transport of values between ranks.
#[derive(Clone, Debug)]
pub enum Link {
    /// Through the host's memory.
    Host,
    /// By NCCL.
    Cards(Vec<Communicator>),
}

impl Link {
    /// Returns the reducer of a rank.
    pub fn reducer(&self, rank: usize, rendezvous: Arc<Rendezvous>) -> Box<dyn Reducer> {
        match self {
            Self::Host => Box::new(HostReducer::new(rank, rendezvous)),
            Self::Cards(all) => match all.get(rank) {
                Some(communicator) => {
                    Box::new(NcclReducer { rank, rendezvous, communicator: *communicator, memory: RefCell::default() })
                }
                None => Box::new(HostReducer::new(rank, rendezvous)),
            },
        }
    }

    /// Whether the ranks compute on the host's processors, so that a working rank uses processor time.
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host)
    }

    /// Returns the first communication failure, if there is one: the rank and the problem.
    pub fn fault(&self) -> Option<(usize, String)> {
        match self {
            Self::Host => None,
            Self::Cards(all) => {
                all.iter().enumerate().find_map(|(rank, communicator)| Some((rank, communicator.fault()?)))
            }
        }
    }

    /// Releases the ranks that wait on the link. The link must not be used afterwards.
    pub fn cut(&self) {
        if let Self::Cards(all) = self {
            for communicator in all.clone() {
                // Aborting may block. Nothing waits for it, because the process is about to end.
                std::thread::spawn(move || communicator.abort());
            }
        }
    }
}

/// Collective operations of GPUs in one process, by NCCL. Words go through the host's memory.
struct NcclReducer {
    rank: usize,
    rendezvous: Arc<Rendezvous>,
    communicator: Communicator,
    /// The memory of the buckets whose sums overlap with the backward pass.
    memory: RefCell<Option<Tensor<1>>>,
}

impl Drop for NcclReducer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.communicator.leave(memory);
        }
    }
}

impl Reducer for NcclReducer {
    fn ranks(&self) -> usize {
        self.rendezvous.ranks()
    }

    fn all_gather(&self, at: SyncPoint, words: Vec<u64>) -> Result<Vec<Vec<u64>>, ParallelError> {
        // Submit queued work, so that the GPU works while its rank waits.
        native::begin(self.rank);
        super::all_gather_words(&self.rendezvous, self.rank, at, words)
    }

    fn all_reduce(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError> {
        self.communicator.all_reduce(buckets).ok_or(ParallelError::Unlike { rank: self.rank, at })
    }

    fn sum(
        &self,
        at: SyncPoint,
        buckets: &[Bucket],
        (tensors, marks): (Vec<Tensor<1>>, ReadyMarks),
        share: f64,
    ) -> Result<Sums, ParallelError> {
        let plan = |(bucket, mark): (&Bucket, Option<Mark>)| BucketPlan {
            tensors: bucket.tensors.clone(),
            places: bucket.places.clone(),
            len: bucket.len,
            mark,
        };
        // There are no marks if the step waits between its phases or if this rank has no sample.
        let ReadyMarks { groups, end, .. } = marks;
        let plans: Vec<BucketPlan> = buckets.iter().zip(groups.into_iter().chain(repeat(None))).map(plan).collect();
        if !self.communicator.overlaps(&tensors, &plans) {
            return super::summed(self, at, buckets, tensors, share);
        }
        let lengths: Vec<usize> = buckets.iter().map(|bucket| bucket.len).collect();
        let values = self.communicator.room(&lengths);
        let room = || Tensor::empty([values], (&Device::cuda(self.rank), DType::F32));
        let memory = self.memory.borrow_mut().get_or_insert_with(room).clone();
        let pending = self.communicator.sum_overlapped(tensors, (plans, end), memory, single(share));
        Ok(Sums::new(pending.into_iter().map(|sums| Part::new(sums.tensors(), || sums.take())).collect()))
    }

    fn overlap_min_values(&self) -> Option<usize> {
        Some(if self.communicator.copies() { 0 } else { OVERLAP_MIN_VALUES })
    }

    fn begin(&self) {
        native::begin(self.rank);
    }

    fn exposed_s(&self) -> Option<f64> {
        exposed_s(self.ranks())
    }

    fn waits_s(&self) -> Vec<Vec<f64>> {
        waits_s(self.ranks())
    }

    fn broadcast(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError> {
        // Ensures that no device waits for a rank that does not come.
        self.barrier(at)?;
        self.communicator.broadcast(buckets).ok_or(ParallelError::Unlike { rank: self.rank, at })
    }
}
