//! Kernels over many tensors at once: the sum of squares of gradients, multiplication by a factor, and copies.

use super::compile::Program;
use super::run::{Argument, Launcher, pair, queue};
use super::{count, fresh, owned, primitive, ready, room, same_device, tensor};
use crate::cuda::library::Opaque;
use crate::cuda::{Cube, Fault};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl::server::Handle;

/// As in the kernels: gradients per launch, words per gradient, values per block.
const ENTRIES: usize = 150;
const WORDS: usize = 3;
const CHUNK: u32 = 16_384;
const THREADS: u32 = 256;
const THREADS_AT_THE_END: u32 = 1024;

/// The factor of all values.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    /// A constant.
    Given(f32),
    /// Clipping: scales the gradients down to this norm if theirs is larger. Their sum of squares is known.
    Norm(&'a Tensor<1>, f32),
}

/// Returns the sum of all squares, shape `[1]`, summed in float64. `None` if the kernels cannot run.
pub fn square_sum(gradients: &[Tensor<1>]) -> Option<Tensor<1>> {
    let inputs = gradients.iter().map(primitive).collect::<Option<_>>().filter(|_| fits(gradients))?;
    Some(tensor(sum(inputs)))
}

/// Returns a closure that multiplies all gradients by a factor, in place if a tensor's memory is not shared. `None` if
/// the kernels cannot run.
pub fn multiplied(
    gradients: &[Tensor<1>],
    factor: Factor<'_>,
) -> Option<impl FnOnce(Vec<Tensor<1>>) -> Vec<Tensor<1>> + use<>> {
    let (total, factor) = match factor {
        Factor::Given(factor) => (None, factor),
        Factor::Norm(total, norm) => (Some(primitive(total)?), norm),
    };
    let multiply = move |gradients: Vec<Tensor<1>>| -> Vec<Tensor<1>> {
        times(gradients.into_iter().map(owned).collect(), factor, total).into_iter().map(tensor).collect()
    };
    fits(gradients).then_some(multiply)
}

fn fits(gradients: &[Tensor<1>]) -> bool {
    let Some(first) = gradients.first() else { return false };
    let fit = |gradient: &Tensor<1>| {
        let [length] = gradient.dims();
        // A launch counts values and blocks with 32 bits.
        length > 0 && count(length).is_some() && gradient.dtype() == DType::F32 && same_device(gradient, first)
    };
    gradients.iter().all(fit) && ready(Program::Gradients, first)
}

/// Returns the table of a launch, and the number of its blocks. Entries are (source, target, length).
fn table(entries: &[(u64, u64, u32)]) -> ([u64; ENTRIES * WORDS], u32) {
    let mut table = [0_u64; ENTRIES * WORDS];
    let mut blocks = 0;
    for ((from, to, len), words) in entries.iter().zip(table.chunks_exact_mut(WORDS)) {
        words.copy_from_slice(&[*from, *to, pair(*len, blocks)]);
        blocks += len.div_ceil(CHUNK);
    }
    (table, blocks)
}

fn lengths(inputs: &[Cube]) -> Vec<u32> {
    inputs.iter().map(|input| count(input.meta.shape().num_elements()).unwrap_or(0)).collect()
}

fn sum(inputs: Vec<Cube>) -> Cube {
    let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
    let lengths = lengths(&inputs);
    let blocks: usize = lengths.iter().map(|len| usize::try_from(len.div_ceil(CHUNK)).unwrap_or(0)).sum();
    let like = &inputs[0];
    let total = fresh(like, [1], DType::F32);
    // One float64 per block.
    let sums = fresh(like, [2 * blocks], DType::F32);
    let mut buffers: Vec<&Handle> = inputs.iter().map(|input| &input.handle).collect();
    buffers.extend([&sums.handle, &total.handle]);
    queue(Program::Gradients, like, &buffers, move |places, card| {
        let [from @ .., sums, total] = places else { unreachable!("two buffers behind the gradients") };
        let entries: Vec<(u64, u64, u32)> = from.iter().zip(&lengths).map(|(from, len)| (*from, *from, *len)).collect();
        let mut summed = 0;
        for entries in entries.chunks(ENTRIES) {
            let (table, blocks) = table(entries);
            let to = Argument::Address(sums + 8 * u64::from(summed));
            let arguments = [Argument::Words(&table), Argument::U32(count(entries.len()).unwrap_or(0)), to];
            card.launch(c"squares", [blocks, 1], [THREADS, 1], &arguments)?;
            summed += blocks;
        }
        let arguments = [Argument::Address(*sums), Argument::U32(summed), Argument::Address(*total)];
        card.launch(c"squares_end", [1, 1], [THREADS_AT_THE_END, 1], &arguments)
    });
    total
}

fn times(inputs: Vec<Cube>, factor: f32, total: Option<Cube>) -> Vec<Cube> {
    let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
    let total = total.map(into_contiguous);
    let lengths = lengths(&inputs);
    let made: Vec<Cube> = inputs.iter().map(room).collect();
    let mut buffers: Vec<&Handle> = inputs.iter().map(|input| &input.handle).collect();
    // A gradient that is overwritten is both input and output.
    let first_made = buffers.len();
    buffers.extend(made.iter().map(|made| &made.handle));
    let place_of_total = total.as_ref().map(|total| {
        buffers.push(&total.handle);
        buffers.len() - 1
    });
    queue(Program::Gradients, &inputs[0], &buffers, move |places, card| {
        let at = |place: usize| places.get(place).copied().unwrap_or(0);
        let entry = |(from, len): (usize, &u32)| (at(from), at(first_made + from), *len);
        let entries: Vec<(u64, u64, u32)> = lengths.iter().enumerate().map(entry).collect();
        let total = place_of_total.map_or(0, at);
        entries.chunks(ENTRIES).try_for_each(|entries| launch(card, entries, total, factor))
    });
    made
}

/// Copies 4-byte words on a GPU; entries are (source, target, words). The GPU's context must be current.
pub fn copied(card: usize, stream: Opaque, entries: &[(u64, u64, u32)]) -> Result<(), Fault> {
    let card = Launcher::of(Program::Gradients, card, stream)?;
    entries.chunks(ENTRIES).try_for_each(|entries| {
        let (table, blocks) = table(entries);
        let arguments = [Argument::Words(&table), Argument::U32(count(entries.len()).unwrap_or(0))];
        card.launch(c"copied", [blocks, 1], [THREADS, 1], &arguments)
    })
}

fn launch(card: &Launcher, entries: &[(u64, u64, u32)], total: u64, factor: f32) -> Result<(), Fault> {
    let (table, blocks) = table(entries);
    let arguments = [
        Argument::Words(&table),
        Argument::U32(count(entries.len()).unwrap_or(0)),
        Argument::Address(total),
        Argument::F32(factor),
    ];
    card.launch(c"multiplied", [blocks, 1], [THREADS, 1], &arguments)
}
