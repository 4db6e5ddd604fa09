//! Gathers many tensors into one bucket, and scatters them again, in one pass.

use super::compile::Program;
use super::run::{Argument, Launcher, pair, queue};
use super::{count, fresh, primitive, ready, same_device, tensor};
use crate::cuda::{Cube, Fault};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl::server::Handle;

/// As in the kernel: tensors per launch, words per tensor, values per block.
const ENTRIES: usize = 120;
const WORDS: usize = 4;
const CHUNK: u32 = 16_384;
const THREADS: u32 = 256;

/// The copy of a tensor: source, target, number of values, and number of values written with padding.
pub(in crate::cuda) type Entry = (u64, u64, u32, u32);

/// Returns a bucket of `len` values with all tensors, each times a factor, at their places (start and length) and
/// zero-padded up to the next one. `None` if the kernels cannot run.
pub fn gathered(tensors: &[Tensor<1>], places: &[(usize, usize)], len: usize, factor: f32) -> Option<Tensor<1>> {
    let entries = entries(places, len).filter(|_| fits(tensors, places))?;
    let inputs: Vec<Cube> = tensors.iter().map(primitive).collect::<Option<_>>()?;
    Some(tensor(gather(inputs, entries, len, factor)))
}

/// Returns the tensors at these places (start and length) of a bucket. `None` if the kernels cannot run.
pub fn scattered(bucket: &Tensor<1>, places: &[(usize, usize)]) -> Option<Vec<Tensor<1>>> {
    let [len] = bucket.dims();
    let fits = len > 0 && bucket.dtype() == DType::F32 && ready(Program::Bucket, bucket);
    let entries = entries(places, len).filter(|_| fits)?;
    Some(scatter(primitive(bucket)?, entries).into_iter().map(tensor).collect())
}

/// Whether tensors can be put at these places (start and length).
pub(in crate::cuda) fn fits(tensors: &[Tensor<1>], places: &[(usize, usize)]) -> bool {
    let Some(first) = tensors.first() else { return false };
    let fit = |(tensor, (_, len)): (&Tensor<1>, &(usize, usize))| {
        tensor.dims() == [*len] && tensor.dtype() == DType::F32 && same_device(tensor, first)
    };
    tensors.len() == places.len() && tensors.iter().zip(places).all(fit) && ready(Program::Bucket, first)
}

/// Returns for each place its start, its length, and its length with padding, in the kernels' type. `None` if a place
/// is empty or they do not follow each other.
pub(in crate::cuda) fn entries(places: &[(usize, usize)], len: usize) -> Option<Vec<[u32; 3]>> {
    let ends = places.iter().skip(1).map(|(start, _)| *start).chain([len]);
    let entry = |((start, length), end): (&(usize, usize), usize)| {
        let room = end.checked_sub(*start).filter(|room| *length > 0 && room >= length)?;
        Some([count(*start)?, count(*length)?, count(room)?])
    };
    places.iter().zip(ends).map(entry).collect()
}

/// Returns the address of a value in a bucket.
pub(in crate::cuda) fn at(bucket: u64, start: u32) -> u64 {
    bucket + 4 * u64::from(start)
}

fn gather(inputs: Vec<Cube>, entries: Vec<[u32; 3]>, len: usize, factor: f32) -> Cube {
    let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
    let bucket = fresh(&inputs[0], [len], DType::F32);
    let mut buffers: Vec<&Handle> = inputs.iter().map(|input| &input.handle).collect();
    buffers.push(&bucket.handle);
    queue(Program::Bucket, &inputs[0], &buffers, move |places, card| {
        let [from @ .., bucket] = places else { unreachable!("a bucket behind the tensors") };
        let entry = |(from, [start, len, room]): (&u64, &[u32; 3])| (*from, at(*bucket, *start), *len, *room);
        launch(card, &from.iter().zip(&entries).map(entry).collect::<Vec<Entry>>(), factor)
    });
    bucket
}

fn scatter(bucket: Cube, entries: Vec<[u32; 3]>) -> Vec<Cube> {
    let bucket = into_contiguous(bucket);
    let length = |len: u32| usize::try_from(len).unwrap_or(0);
    let made: Vec<Cube> = entries.iter().map(|[_, len, _]| fresh(&bucket, [length(*len)], DType::F32)).collect();
    let mut buffers: Vec<&Handle> = vec![&bucket.handle];
    buffers.extend(made.iter().map(|made| &made.handle));
    queue(Program::Bucket, &bucket, &buffers, move |places, card| {
        let [bucket, to @ ..] = places else { unreachable!("a bucket before the tensors") };
        let entry = |(to, [start, len, _]): (&u64, &[u32; 3])| (at(*bucket, *start), *to, *len, *len);
        launch(card, &to.iter().zip(&entries).map(entry).collect::<Vec<Entry>>(), 1.0)
    });
    made
}

/// Copies entries, with each value times a factor.
pub(in crate::cuda) fn launch(card: &Launcher, entries: &[Entry], factor: f32) -> Result<(), Fault> {
    entries.chunks(ENTRIES).try_for_each(|entries| {
        let (table, blocks) = table(entries);
        let count = Argument::U32(count(entries.len()).unwrap_or(0));
        let arguments = [Argument::Words(&table), count, Argument::F32(factor)];
        card.launch(c"bucket", [blocks, 1], [THREADS, 1], &arguments)
    })
}

/// Returns the table of a launch, and the number of its blocks.
fn table(entries: &[Entry]) -> ([u64; ENTRIES * WORDS], u32) {
    let mut table = [0_u64; ENTRIES * WORDS];
    let mut blocks = 0;
    for ((from, to, len, room), words) in entries.iter().zip(table.chunks_exact_mut(WORDS)) {
        words.copy_from_slice(&[*from, *to, pair(*len, blocks), u64::from(*room)]);
        blocks += room.div_ceil(CHUNK);
    }
    (table, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_contain_the_first_block_of_each_tensor() {
        let (table, blocks) = table(&[(1000, 2000, 5, 64), (3000, 2256, CHUNK + 1, CHUNK + 64), (7, 8, 64, 64)]);
        assert_eq!(blocks, 1 + 2 + 1);
        assert_eq!(table[..4], [1000, 2000, 5, 64]);
        assert_eq!(table[4..8], [3000, 2256, u64::from(CHUNK + 1) | 1 << 32, u64::from(CHUNK + 64)]);
        assert_eq!(table[8..12], [7, 8, 64 | 3 << 32, 64]);
    }

    #[test]
    fn places_that_do_not_follow_each_other_are_refused() {
        assert_eq!(entries(&[(0, 5), (64, 64)], 128), Some(vec![[0, 5, 64], [64, 64, 64]]));
        assert_eq!(entries(&[(0, 5), (4, 64)], 128), None, "they overlap");
        assert_eq!(entries(&[(0, 5), (64, 65)], 128), None, "beyond the end");
        assert_eq!(entries(&[(0, 0), (64, 64)], 128), None, "nothing to launch");
    }
}
