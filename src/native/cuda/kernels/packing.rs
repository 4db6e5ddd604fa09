//! Packs weights for the products of affine maps, and sums over rows.

use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, fresh, of_format};
use crate::cuda::Cube;
use burn::tensor::DType;

/// The width and height of a block in threads, as in the kernels.
const BLOCK: [u32; 2] = [32, 8];
/// The maximum number of blocks vertically; a GPU supports 65,535.
const DOWN: u32 = 4096;
/// The maximum number of partial sums over rows.
const STRETCHES: u32 = 128;
/// The maximum number of matrices side by side, as in the kernel.
pub const PARTS: usize = 3;

/// Packs contiguous float32 matrices of one shape [rows, columns] side by side into a matrix of this shape and format,
/// with zero padding below and beside them. `None` for more than [`PARTS`] matrices or shapes too large for the kernel.
pub fn pack(sources: &[Cube], [rows, each]: [usize; 2], shape: [usize; 2], dtype: DType) -> Option<Cube> {
    let like = sources.first().filter(|_| sources.len() <= PARTS)?;
    let name = of_format(dtype, [c"lay_f32", c"lay_f16", c"lay_bf16"])?;
    let [rows, each, high, wide, parts] = counted([rows, each, shape[0], shape[1], sources.len()])?;
    let to = fresh(like, shape, dtype);
    let mut buffers: Vec<_> = sources.iter().map(|source| &source.handle).collect();
    buffers.push(&to.handle);
    queue(Program::Affine, like, &buffers, move |places, card| {
        let Some((to, sources)) = places.split_last() else { return Ok(()) };
        let packed = aligned(places, 16) && [each, wide].iter().all(|len| len.is_multiple_of(4));
        let source = |part: usize| Argument::Address(sources.get(part).copied().unwrap_or(0));
        let mut arguments = vec![source(0), source(1), source(2), Argument::Address(*to)];
        arguments.extend([parts, rows, each, high, wide, packed.into()].map(Argument::U32));
        let across = if packed { 4 * BLOCK[0] } else { BLOCK[0] };
        card.launch(name, [wide.div_ceil(across), high.div_ceil(BLOCK[1]).min(DOWN)], BLOCK, &arguments)
    });
    Some(to)
}

/// Returns the sums of a contiguous matrix over its rows, [columns] in float32. `None` if the shape is too large for
/// the kernel.
pub fn row_sums(x: &Cube) -> Option<Cube> {
    let [rows, columns] = <[usize; 2]>::try_from(x.meta.shape().to_vec()).ok()?;
    let name = of_format(x.dtype, [c"sums_f32", c"sums_f16", c"sums_bf16"])?;
    let lanes = if x.dtype == DType::F32 { 4 } else { 8 };
    let sums = fresh(x, [columns], DType::F32);
    let [high, wide] = counted([rows, columns])?;
    // A multiple of the rows that a block reads at a time.
    let tall = high.div_ceil(STRETCHES).next_multiple_of(BLOCK[1]);
    let stretches = high.div_ceil(tall);
    let parts = fresh(x, [usize::try_from(stretches).ok()?, columns], DType::F32);
    queue(Program::Affine, x, &[&x.handle, &parts.handle, &sums.handle], move |places, card| {
        let [x, parts, sums] = [0, 1, 2].map(|number| Argument::Address(places[number]));
        let packed = aligned(&places[..2], 16) && wide.is_multiple_of(lanes);
        let across = if packed { lanes * BLOCK[0] } else { BLOCK[0] };
        let [rows, columns, tall, packed] = [high, wide, tall, packed.into()].map(Argument::U32);
        let arguments = [x, parts, rows, columns, tall, packed];
        card.launch(name, [wide.div_ceil(across), stretches], BLOCK, &arguments)?;
        let [stretches, columns] = [stretches, wide].map(Argument::U32);
        let arguments = [Argument::Address(places[1]), sums, stretches, columns];
        card.launch(c"sums_total", [wide.div_ceil(BLOCK[0]), 1], BLOCK, &arguments)
    });
    Some(sums)
}

/// Converts lengths to the kernels' type, leaving room for counts beyond the end.
fn counted<const N: usize>(lengths: [usize; N]) -> Option<[u32; N]> {
    let mut counted = [0; N];
    for (counted, length) in counted.iter_mut().zip(lengths) {
        *counted = count(length).filter(|length| *length > 0 && *length < u32::MAX / 2)?;
    }
    Some(counted)
}
