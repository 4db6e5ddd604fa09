//! Data parallelism: ranks train the same model on different shards of each batch, each on a thread of the operating
//! system, and sum their gradients.
//!
//! Knows threads, flat tensors and communication between ranks; nothing of models, data or optimisers. A rank that
//! fails or hangs ends the run for all ranks.
//!
//! A step with several ranks, each with its shard of the global batch:
//! 1. Every rank computes the gradients of its shard.
//! 2. The ranks synchronise in the host's memory and exchange the weights of their shards. A device only gets work that
//!    waits for other ranks after all ranks have arrived, so that a dead rank leaves no device waiting.
//! 3. Gradients are stored in flat buckets, each multiplied by its rank's share, and the buckets are summed over the
//!    ranks.
//! 4. Every rank updates its parameters with the same gradients: first those of the first buckets, while the others are
//!    still summed.

mod bucket;
mod fault;
mod host;
mod link;
mod point_to_point;
mod process_group;
mod progress;
mod rendezvous;
mod stall;
mod sums;
mod supervisor;
mod timeouts;

#[cfg(test)]
pub use bucket::{buckets, numbers};
pub use fault::{Fault, FaultError};
pub use link::Link;
pub use point_to_point::{Endpoint, FlatTensor};
pub use process_group::{ProcessGroup, shard};
pub use progress::write_last_phases;
pub use rendezvous::{Contribution, Rendezvous, SyncPoint};
pub use sums::{Part, Sums};
pub use supervisor::{RankContext, run_ranks};
pub use timeouts::{LIMITS, Limits, Pace, Timeouts};

use crate::gradient_readiness::ReadyMarks;
use bucket::Bucket;
use host::HostReducer;

use burn::tensor::{Tensor, TensorReadError};
use std::time::Duration;

/// A failure of communication or agreement between ranks.
#[derive(Debug, thiserror::Error)]
pub enum ParallelError {
    /// Another rank has failed: the run is over.
    #[error("another rank has failed")]
    Ended,
    /// Ranks did not arrive in time.
    #[error("{} did not come to {point} within {} s", named(ranks), seconds(*limit))]
    Late {
        /// The missing ranks.
        ranks: Vec<usize>,
        /// The point at which the other ranks wait.
        point: SyncPoint,
        /// The timeout of the other ranks.
        limit: Duration,
    },
    /// Ranks are at different points: a fault of the loop.
    #[error("rank {rank} is at {here}, but rank {other} at {there}")]
    Elsewhere {
        /// A rank.
        rank: usize,
        /// Its point.
        here: SyncPoint,
        /// Another one.
        other: usize,
        /// The point of the other rank.
        there: SyncPoint,
    },
    /// A rank's buckets have other lengths: a fault of the loop.
    #[error("rank {rank} brought other buckets to {at}")]
    Unlike {
        /// The rank.
        rank: usize,
        /// The point.
        at: SyncPoint,
    },
    /// Ranks have different weights: a fault of a device or of the loop.
    #[error("the weights of {} are not those of rank 0 (their digests differ after the last step)", named(ranks))]
    Apart {
        /// The ranks that differ from rank 0.
        ranks: Vec<usize>,
    },
    /// There are more stages than the model has units.
    #[error("the model has {units} parts, too few for {stages} stages (lower `hardware.gpus`)")]
    Stages {
        /// The number of units.
        units: usize,
        /// The number of stages.
        stages: usize,
    },
    /// A requested fault never happened.
    #[error("the fault {fault} never happened: no rank of this run came to that place (LEDGER_FAULT)")]
    NoFault {
        /// The fault.
        fault: Fault,
    },
    /// A rank's thread cannot be started.
    #[error("the thread of rank {rank} cannot be started")]
    Thread {
        /// The rank.
        rank: usize,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// GPUs cannot be connected.
    #[error(transparent)]
    Nccl(#[from] crate::native::nccl::NcclError),
    /// A device failed while other ranks waited for its work.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    /// Values cannot be read back from a device.
    #[error("values cannot be read back from the device (its own messages say more)")]
    Read(#[source] TensorReadError),
}

/// Formats ranks as `rank 1 and rank 3`.
fn named(ranks: &[usize]) -> String {
    ranks.iter().map(|rank| format!("rank {rank}")).collect::<Vec<_>>().join(" and ")
}

/// Returns seconds rounded to hundredths, for messages.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

/// Collective operations. All ranks call the same functions in the same order.
pub trait Reducer: Send {
    /// Returns the number of ranks.
    fn ranks(&self) -> usize;

    /// Returns the words of all ranks, in the order of ranks, in the host's memory.
    ///
    /// # Errors
    /// See [`Rendezvous::exchange`].
    fn all_gather(&self, at: SyncPoint, words: Vec<u64>) -> Result<Vec<Vec<u64>>, ParallelError>;

    /// Waits for all ranks.
    ///
    /// # Errors
    /// See [`Rendezvous::exchange`].
    fn barrier(&self, at: SyncPoint) -> Result<(), ParallelError> {
        self.all_gather(at, Vec::new()).map(drop)
    }

    /// Returns the sums over all ranks, value by value. The order of additions is the same in every run, and every rank
    /// gets the same bits. For a mean, each rank multiplies its values by its share before.
    ///
    /// # Errors
    /// If another rank ended or the lengths differ. The device reports its own failures.
    fn all_reduce(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError>;

    /// [`Self::all_reduce`] of tensors in buckets, each times a share. Marks say when the tensors of each bucket are
    /// complete, if that is known; a bucket may be summed from then on.
    ///
    /// # Errors
    /// As for [`Self::all_reduce`].
    fn sum(
        &self,
        at: SyncPoint,
        buckets: &[Bucket],
        (tensors, _): (Vec<Tensor<1>>, ReadyMarks),
        share: f64,
    ) -> Result<Sums, ParallelError> {
        summed(self, at, buckets, tensors, share)
    }

    /// Submits the queued work to the device.
    fn begin(&self) {}

    /// Returns the number of values from which on sums overlap with the backward pass; `None` for never.
    fn overlap_min_values(&self) -> Option<usize> {
        None
    }

    /// Returns the mean time in seconds that a device waits for overlapped sums in a step (exposed communication), if
    /// measured.
    fn exposed_s(&self) -> Option<f64> {
        None
    }

    /// Returns the same for each rank and each bucket, in the order in which buckets are summed.
    fn waits_s(&self) -> Vec<Vec<f64>> {
        Vec::new()
    }

    /// Returns the first rank's values, in buckets of the same lengths as the given ones.
    ///
    /// # Errors
    /// As for [`Self::all_reduce`].
    fn broadcast(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError>;
}

/// Returns the sums of tensors in buckets, each times a share. Begins when all tensors are complete.
pub(crate) fn summed(
    reducer: &(impl Reducer + ?Sized),
    at: SyncPoint,
    buckets: &[Bucket],
    tensors: Vec<Tensor<1>>,
    share: f64,
) -> Result<Sums, ParallelError> {
    let summed = reducer.all_reduce(at, bucket::gather(buckets, tensors, share))?;
    let part = |(bucket, values): (&Bucket, Tensor<1>)| {
        let bucket = bucket.clone();
        Part::new(bucket.tensors.clone(), move || bucket.scatter(values))
    };
    Ok(Sums::new(buckets.iter().zip(summed).map(part).collect()))
}

/// Returns the words of all ranks.
fn all_gather_words(
    rendezvous: &Rendezvous,
    rank: usize,
    at: SyncPoint,
    words: Vec<u64>,
) -> Result<Vec<Vec<u64>>, ParallelError> {
    let gathered = rendezvous.exchange(rank, at, Contribution::Words(words))?;
    let of = |(rank, contribution): (usize, &Contribution)| match contribution {
        Contribution::Words(words) => Ok(words.clone()),
        Contribution::Buckets(_) => Err(ParallelError::Unlike { rank, at }),
    };
    gathered.iter().enumerate().map(of).collect()
}
