//! How the devices of ranks are connected.

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

/// From so many values on (256 MiB), sums by NCCL overlap with the backward pass: they take multiprocessors and memory from it, and below
/// that more than they would take after it
/// (`docs/measurements/2026-11-22-h200-overlap.md`).
const OVERLAP_MIN_VALUES: usize = 64 << 20;

/// A way for values from rank to rank.
#[derive(Clone, Debug)]
pub enum Link {
    /// Through the host's memory.
    Host,
    /// By NCCL.
    Cards(Vec<Communicator>),
}

impl Link {
    /// A rank's end of it.
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

    /// Whether those that it connects compute with the host's processors, so that who works uses their time.
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host)
    }

    /// What went wrong on the way, if anything did: the rank, and what it was.
    pub fn fault(&self) -> Option<(usize, String)> {
        match self {
            Self::Host => None,
            Self::Cards(all) => {
                all.iter().enumerate().find_map(|(rank, communicator)| Some((rank, communicator.fault()?)))
            }
        }
    }

    /// Frees who waits on the way. It is not used any more afterwards.
    pub fn cut(&self) {
        if let Self::Cards(all) = self {
            for communicator in all.clone() {
                // It may wait itself, and nobody waits for it: the process is about to end.
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
    /// The memory of the buckets, whose sums overlap with the backward pass.
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
        // The card works while its rank waits.
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
        // Nobody knows of any where the step waits between its phases, or where no sample was left for this rank.
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
        // Nobody's device waits for a rank that does not come.
        self.barrier(at)?;
        self.communicator.broadcast(buckets).ok_or(ParallelError::Unlike { rank: self.rank, at })
    }
}
