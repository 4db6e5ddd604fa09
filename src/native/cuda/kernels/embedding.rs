//! The gradient of a table of vectors.

use super::super::operation::{exactly, register};
use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, fresh, primitive, ready, taken, tensor, whole};
use burn::backend::Shape;
use burn::tensor::{DType, Int, IntDType, Tensor};

const THREADS: u32 = 256;
/// A card's blocks at a time: with fewer rows than these, each has its own block.
const BLOCKS: u32 = 1056;
/// The rows of a block at most: as many as a word has bits.
const GROUP: u32 = 32;

/// The gradient [rows, features] of a table of which the rows `ids` were taken, from theirs [ids, features], in float32. What one row gets is added up in the
/// order of the ids, as if they were gone through one after the other; ids that the table does not have count for nothing.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn embedding_back<const D: usize>(
    ids: Tensor<D, Int>,
    dy: Tensor<2>,
    rows: usize,
) -> Result<Tensor<2>, (Tensor<D, Int>, Tensor<2>)> {
    let [n, features] = dy.dims();
    let shape = Shape::from([rows, features]);
    let (Some(many), Some(high), Some(wide)) = (count(n), count(rows), count(features)) else {
        return Err((ids, dy));
    };
    let group = (high / BLOCKS).clamp(1, GROUP);
    // A block clears its rows by 32-bit places.
    let fits = group.checked_mul(wide).is_some() && n > 0 && rows > 0 && features > 0;
    if !fits || ids.shape().num_elements() != n || dy.dtype() != DType::F32 || ids.device() != dy.device() {
        return Err((ids, dy));
    }
    if !ready(Program::Embedding, &dy) {
        return Err((ids, dy));
    }
    let short = if ids.dtype() == DType::I32 { ids.clone() } else { ids.clone().cast(IntDType::I32) };
    let (Some(first), Some(second)) = (whole(&short), primitive(&dy)) else { return Err((ids, dy)) };
    drop((ids, short, dy));
    let promised = shape.clone();
    let work = move |inputs| {
        let [ids, dy] = taken(inputs);
        let table = fresh(&dy, shape.clone(), DType::F32);
        queue(Program::Embedding, &dy, &[&ids.handle, &dy.handle, &table.handle], move |places, card| {
            let packed = aligned(&places[1..], 16) && wide.is_multiple_of(4);
            let arguments = [
                Argument::Address(places[0]),
                Argument::Address(places[1]),
                Argument::Address(places[2]),
                Argument::U32(many),
                Argument::U32(high),
                Argument::U32(wide),
                Argument::U32(group),
                Argument::U32(packed.into()),
            ];
            card.launch(c"embedding_back", [high.div_ceil(group), 1], [THREADS, 1], &arguments)
        });
        vec![table]
    };
    let [table] = exactly(register("embedding_back", vec![first, second], vec![(promised, DType::F32)], work));
    Ok(tensor(table))
}
