//! Data parallelism: ranks train the same model on different shards of each batch, one thread of the operating system each, and sum their
//! gradients.
//!
//! Knows threads, flat tensors and communication between ranks; nothing of models, data or optimisers. A rank that fails or hangs ends the
//! run for all.
//!
//! What a step does with several ranks, each with its shard of the global batch:
//! 1. every rank computes the gradients of its shard;
//! 2. the ranks meet in the host's memory and learn how much each shard weighs: nothing that waits for other ranks is ever asked of a device before all of them are
//!    there, so that a rank that died leaves no device waiting;
//! 3. gradients lie in flat buckets, each times its rank's share, and the buckets are summed over the ranks;
//! 4. every rank does the optimiser's step with the same gradients: with those of the first buckets, while the others are summed.

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

/// What ranks cannot do together.
#[derive(Debug, thiserror::Error)]
pub enum ParallelError {
    /// Another rank has failed: the run is over.
    #[error("another rank has failed")]
    Ended,
    /// Ranks are missing.
    #[error("{} did not come to {point} within {} s", named(ranks), seconds(*limit))]
    Late {
        /// Which.
        ranks: Vec<usize>,
        /// Where the others wait.
        point: SyncPoint,
        /// For how long they did.
        limit: Duration,
    },
    /// Ranks do different things: a fault of the loop.
    #[error("rank {rank} is at {here}, but rank {other} at {there}")]
    Elsewhere {
        /// A rank.
        rank: usize,
        /// Where it is.
        here: SyncPoint,
        /// Another one.
        other: usize,
        /// Where that is.
        there: SyncPoint,
    },
    /// A rank's values are not those of the same parameters: a fault of the loop.
    #[error("rank {rank} brought other buckets to {at}")]
    Unlike {
        /// The rank.
        rank: usize,
        /// Where.
        at: SyncPoint,
    },
    /// Ranks have learned different things: a fault of a device or of the loop.
    #[error("the weights of {} are not those of rank 0 (their digests differ after the last step)", named(ranks))]
    Apart {
        /// Which.
        ranks: Vec<usize>,
    },
    /// There are more stages than the model has units.
    #[error("the model has {units} parts, too few for {stages} stages (lower `hardware.gpus`)")]
    Stages {
        /// How many parts.
        units: usize,
        /// How many stages.
        stages: usize,
    },
    /// Nobody saw a fault happen that was asked for.
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
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// GPUs cannot be connected.
    #[error(transparent)]
    Nccl(#[from] crate::native::nccl::NcclError),
    /// A device failed while others waited for what it does.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    /// A device did not give values back.
    #[error("values cannot be read back from the device (its own messages say more)")]
    Read(#[source] TensorReadError),
}

impl ParallelError {
    fn read(source: TensorReadError) -> Self {
        Self::Read(source)
    }
}

/// `rank 1 and rank 3`.
fn named(ranks: &[usize]) -> String {
    ranks.iter().map(|rank| format!("rank {rank}")).collect::<Vec<_>>().join(" and ")
}

/// In hundredths, as people read them.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

/// Collective operations. All ranks call the same functions in the same order.
pub trait Reducer: Send {
    /// How many ranks there are.
    fn ranks(&self) -> usize;

    /// The words of all ranks, in their order, in the host's memory.
    ///
    /// # Errors
    /// See [`Rendezvous::exchange`].
    fn all_gather(&self, at: SyncPoint, words: Vec<u64>) -> Result<Vec<Vec<u64>>, ParallelError>;

    /// Waits for all.
    ///
    /// # Errors
    /// See [`Rendezvous::exchange`].
    fn barrier(&self, at: SyncPoint) -> Result<(), ParallelError> {
        self.all_gather(at, Vec::new()).map(drop)
    }

    /// The sums over all ranks, value by value, in an order that is the same in every run; every rank gets the same bits. A mean is made of it by shares: each rank
    /// multiplies its values by its own before.
    ///
    /// # Errors
    /// If another rank ended or the values are not alike. What fails on a device is told by the device.
    fn all_reduce(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError>;

    /// [`Self::all_reduce`] of tensors in buckets, each times a share. Marks say behind what the tensors of each bucket are whole, if that is known: a bucket may be summed from
    /// there on.
    ///
    /// # Errors
    /// As [`Self::all_reduce`] has it.
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

    /// The number of values from which on sums overlap with the backward pass; `None` for never.
    fn overlap_min_values(&self) -> Option<usize> {
        None
    }

    /// The mean time in seconds that a device waits for such sums in a step (exposed communication), if measured.
    fn exposed_s(&self) -> Option<f64> {
        None
    }

    /// The same of each rank, for each bucket in the order in which they are summed.
    fn waits_s(&self) -> Vec<Vec<f64>> {
        Vec::new()
    }

    /// The first rank's values, in buckets that are as long as those that are given.
    ///
    /// # Errors
    /// As [`Self::all_reduce`] has it.
    fn broadcast(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError>;
}

/// The sums of tensors in buckets, each times a share, when all of them are whole.
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

/// The words of all ranks.
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
