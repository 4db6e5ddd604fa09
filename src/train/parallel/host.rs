//! Collective operations of ranks that are threads of one process, in the host's memory. The CPU trains with them, and
//! tests compare other implementations with them.
//!
//! Every rank adds the same values in the same order, so that all ranks get the same bits in every run.

use super::rendezvous::{Contribution, Rendezvous, SyncPoint};
use super::{ParallelError, Reducer};
use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;
use std::sync::Arc;

/// The reducer of one rank.
pub struct HostReducer {
    rank: usize,
    rendezvous: Arc<Rendezvous>,
}

/// The number of values that one thread adds at a time.
const CHUNK: usize = 16_384;

impl HostReducer {
    /// The reducer of a rank that exchanges values at this rendezvous.
    pub fn new(rank: usize, rendezvous: Arc<Rendezvous>) -> Self {
        Self { rank, rendezvous }
    }

    fn exchange(&self, at: SyncPoint, buckets: Vec<Vec<f32>>) -> Result<Arc<[Contribution]>, ParallelError> {
        self.rendezvous.exchange(self.rank, at, Contribution::Buckets(buckets))
    }
}

impl Reducer for HostReducer {
    fn ranks(&self) -> usize {
        self.rendezvous.ranks()
    }

    fn all_gather(&self, at: SyncPoint, words: Vec<u64>) -> Result<Vec<Vec<u64>>, ParallelError> {
        super::all_gather_words(&self.rendezvous, self.rank, at, words)
    }

    fn all_reduce(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError> {
        let (device, mine) = read(buckets)?;
        let lengths: Vec<usize> = mine.iter().map(Vec::len).collect();
        let gathered = self.exchange(at, mine)?;
        let all = contributions(&gathered, &lengths, at)?;
        let sum = |(place, length): (usize, &usize)| {
            let mut sum = vec![0.0_f32; *length];
            sum.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, sum)| add(sum, &all, place, chunk * CHUNK));
            Tensor::from_data(TensorData::new(sum, [*length]), &device)
        };
        Ok(lengths.iter().enumerate().map(sum).collect())
    }

    fn broadcast(&self, at: SyncPoint, buckets: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, ParallelError> {
        let (device, mine) = read(buckets)?;
        let lengths: Vec<usize> = mine.iter().map(Vec::len).collect();
        let mine = if self.rank == 0 { mine } else { lengths.iter().map(|_| Vec::new()).collect() };
        let gathered = self.exchange(at, mine)?;
        let first = contributions(&gathered[..1], &lengths, at)?;
        let given = first.into_iter().flatten();
        Ok(given.map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &device)).collect())
    }
}

/// Adds the values of all ranks, from the first rank to the last.
fn add(sum: &mut [f32], all: &[&[Vec<f32>]], place: usize, start: usize) {
    for (rank, buckets) in all.iter().enumerate() {
        let values = &buckets[place][start..start + sum.len()];
        if rank == 0 {
            sum.copy_from_slice(values);
        } else {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
}

fn read(buckets: Vec<Tensor<1>>) -> Result<(Device, Vec<Vec<f32>>), ParallelError> {
    let device = buckets.first().map_or_else(Device::flex, Tensor::device);
    let values: Result<Vec<Vec<f32>>, _> = buckets.into_iter().map(Tensor::try_into_vec_as).collect();
    Ok((device, values.map_err(ParallelError::Read)?))
}

/// Returns the buckets of each rank, which must have these lengths.
fn contributions<'a>(
    gathered: &'a [Contribution],
    lengths: &[usize],
    at: SyncPoint,
) -> Result<Vec<&'a [Vec<f32>]>, ParallelError> {
    let of = |(rank, contribution): (usize, &'a Contribution)| match contribution {
        Contribution::Buckets(buckets) if buckets.iter().map(Vec::len).eq(lengths.iter().copied()) => {
            Ok(buckets.as_slice())
        }
        _ => Err(ParallelError::Unlike { rank, at }),
    };
    gathered.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::single;
    use std::thread;
    use std::time::Duration;

    fn at(what: &'static str) -> SyncPoint {
        SyncPoint { what, index: 1, limit: Some(Duration::from_secs(20)) }
    }

    /// Returns the result of each of `count` ranks.
    fn ranks<T: Send>(count: usize, work: impl Fn(usize, &HostReducer) -> T + Sync) -> Vec<T> {
        let rendezvous = Arc::new(Rendezvous::of(count));
        thread::scope(|scope| {
            let start = |rank| {
                let (rendezvous, work) = (Arc::clone(&rendezvous), &work);
                scope.spawn(move || work(rank, &HostReducer::new(rank, rendezvous)))
            };
            let threads: Vec<_> = (0..count).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    fn tensor(values: Vec<f32>) -> Tensor<1> {
        Tensor::from_data(TensorData::from(values.as_slice()), &Device::flex())
    }

    fn values(tensors: Vec<Tensor<1>>) -> Vec<Vec<f32>> {
        tensors.into_iter().map(|tensor| tensor.try_into_vec_as().expect("readable")).collect()
    }

    /// Values whose sum depends on the order of the additions.
    fn uneven(rank: usize, len: usize) -> Vec<f32> {
        let rank = u32::try_from(rank).expect("small");
        let value =
            |n: u32| single(f64::from(n * 37 + rank * 1009).sin() * 10_f64.powi(i32::try_from(n % 13).unwrap_or(0)));
        (0_u32..).take(len).map(value).collect()
    }

    #[test]
    fn sums_are_taken_in_the_order_of_ranks_and_all_get_the_same_bits() {
        for count in [2, 4] {
            // Below, at and above the values that one thread adds at a time.
            let lengths = [1, CHUNK, 2 * CHUNK + 5];
            let found = ranks(count, |rank, reducer| {
                let buckets = lengths.map(|len| tensor(uneven(rank, len)));
                values(reducer.all_reduce(at("all_reduce"), buckets.into()).expect("all come"))
            });
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            for (place, len) in lengths.into_iter().enumerate() {
                let mut expected = uneven(0, len);
                for rank in 1..count {
                    expected.iter_mut().zip(uneven(rank, len)).for_each(|(sum, value)| *sum += value);
                }
                assert!(
                    found.iter().all(|found| bits(&found[place]) == bits(&expected)),
                    "{count} ranks, {len} values"
                );
            }
            let backwards = (0..count).rev().map(|rank| uneven(rank, 1000)).reduce(|mut sum, values| {
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                sum
            });
            let backwards = backwards.expect("some");
            assert!(count == 2 || backwards != found[0][1][..1000], "the order of these numbers matters");
        }
    }

    #[test]
    fn all_get_the_first_ranks_values_and_all_words() {
        for count in [2, 4] {
            let found = ranks(count, |rank, reducer| {
                let buckets = vec![tensor(uneven(rank, 100)), tensor(vec![f32::NAN; 3])];
                let given = values(reducer.broadcast(at("start"), buckets).expect("all come"));
                let rank = u64::try_from(rank).expect("small");
                let words = reducer.all_gather(at("scale"), vec![rank, 7]).expect("all come");
                reducer.barrier(at("end")).expect("all come");
                (given[0].clone(), given[1].len(), words)
            });
            let words: Vec<Vec<u64>> = (0..).take(count).map(|rank| vec![rank, 7]).collect();
            assert!(found.iter().all(|found| *found == (uneven(0, 100), 3, words.clone())), "{count} ranks");
        }
    }

    #[test]
    fn buckets_of_other_lengths_are_a_fault() {
        let found = ranks(2, |rank, reducer| {
            let bucket = tensor(vec![1.0; 5 + rank]);
            reducer.all_reduce(at("all_reduce"), vec![bucket]).expect_err("other lengths").to_string()
        });
        assert_eq!(found[0], "rank 1 brought other buckets to `all_reduce` 1");
        assert_eq!(found[1], "rank 0 brought other buckets to `all_reduce` 1");
    }
}
