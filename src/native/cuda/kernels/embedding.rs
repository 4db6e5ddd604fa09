//! The gradient of an embedding table.

use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, fresh, primitive, ready, tensor, whole};
use burn::tensor::{DType, Int, IntDType, Tensor};
use burn_cubecl::kernel::into_contiguous;

const THREADS: u32 = 256;
/// The number of blocks that a GPU runs at a time. With fewer rows, each row has its own block.
const BLOCKS: u32 = 1056;
/// The maximum rows of a block: the number of bits in a word.
const GROUP: u32 = 32;

/// Returns the gradient [rows, features] of a table from which the rows `ids` were taken, from the rows' gradients
/// [ids, features], in float32. Contributions to a row are added in the order of the ids, as in a sequential loop. Ids
/// outside of the table are ignored.
///
/// `None` if the kernels cannot run.
pub fn embedding_back<const D: usize>(ids: &Tensor<D, Int>, dy: &Tensor<2>, rows: usize) -> Option<Tensor<2>> {
    let [n, features] = dy.dims();
    let (many, high, wide) = (count(n)?, count(rows)?, count(features)?);
    let group = (high / BLOCKS).clamp(1, GROUP);
    let fits = n > 0 && rows > 0 && features > 0;
    let alike = ids.shape().num_elements() == n && dy.dtype() == DType::F32 && ids.device() == dy.device();
    if !fits || !alike || !ready(Program::Embedding, dy) {
        return None;
    }
    let ids = if ids.dtype() == DType::I32 { whole(ids) } else { whole(&ids.clone().cast(IntDType::I32)) };
    let [ids, dy] = [ids?, primitive(dy)?].map(into_contiguous);
    let table = fresh(&dy, [rows, features], DType::F32);
    queue(Program::Embedding, &dy, &[&ids.handle, &dy.handle, &table.handle], move |places, card| {
        let packed = aligned(&places[1..], 16) && wide.is_multiple_of(4);
        let arguments = [
            Argument::Address(places[0]),
            Argument::Address(places[1]),
            Argument::Address(places[2]),
            Argument::U32(many),
            Argument::U32(high),
            Argument::U32(wide),
            Argument::U32(packed.into()),
        ];
        card.launch(c"embedding_back", [high.div_ceil(group), 1], [THREADS, 1], &arguments)
    });
    Some(tensor(table))
}
