//! Upsampling of images by two, and the backward.

use super::compile::Program;
use super::run::{Argument, aligned, queue_some};
use super::{beside, count, fresh, of_format, primitive, ready, same_device, tensor};
use crate::cuda::Cube;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// The number of bytes read at once of a row of the smaller images; below, the threads of a block.
const PACK: usize = 8;
const THREADS: u32 = 256;

/// Repeats each value of images [rows, channels, height, width] two by two, and adds an optional lateral tensor [rows,
/// channels, 2·height, 2·width]. The sum is in float32 and rounded once. All tensors have one format. `None` if the
/// kernels cannot run.
pub fn upsample(x: &Tensor<4>, lateral: Option<&Tensor<4>>) -> Option<Tensor<4>> {
    let [rows, channels, height, width] = x.dims();
    let large = [rows, channels, height.checked_mul(2)?, width.checked_mul(2)?];
    let fits = |lateral: &Tensor<4>| lateral.dims() == large && lateral.dtype() == x.dtype() && same_device(lateral, x);
    let name = of_format(x.dtype(), [c"upsample_f32", c"upsample_f16", c"upsample_bf16"])?;
    let task = Task::of(name, [rows, channels, height, width], x.dtype())?;
    if !lateral.is_none_or(fits) || !ready(Program::Upsample, x) {
        return None;
    }
    let (x, lateral) = (into_contiguous(primitive(x)?), beside(lateral)?.map(into_contiguous));
    let y = fresh(&x, large, task.dtype);
    task.queue(&x, &[Some(&x), lateral.as_ref(), Some(&y)]);
    Some(tensor(y))
}

/// Sums two by two values of [rows, channels, 2·height, 2·width], in float32 and rounded once: the gradient of
/// [`upsample`]. `None` if the kernels cannot run.
pub fn upsample_back(dy: &Tensor<4>) -> Option<Tensor<4>> {
    let [rows, channels, height, width] = dy.dims();
    let small = [rows, channels, height / 2, width / 2];
    let name = of_format(dy.dtype(), [c"upsample_back_f32", c"upsample_back_f16", c"upsample_back_bf16"])?;
    let even = [height, width] == [small[2] * 2, small[3] * 2];
    let task = Task::of(name, small, dy.dtype()).filter(|_| even && ready(Program::Upsample, dy))?;
    let dy = into_contiguous(primitive(dy)?);
    let dx = fresh(&dy, small, task.dtype);
    task.queue(&dy, &[Some(&dy), Some(&dx)]);
    Some(tensor(dx))
}

/// A kernel over all values of the smaller images.
#[derive(Clone, Copy)]
struct Task {
    name: &'static CStr,
    dtype: DType,
    len: u32,
    width: u32,
}

impl Task {
    /// Returns `None` if there is nothing to do, or the sizes are too large.
    fn of(name: &'static CStr, shape: [usize; 4], dtype: DType) -> Option<Self> {
        let len = shape.iter().try_fold(1_usize, |len, side| len.checked_mul(*side)).and_then(count)?;
        (len > 0).then_some(Self { name, dtype, len, width: count(shape[3])? })
    }

    fn queue(self, like: &Cube, tensors: &[Option<&Cube>]) {
        let lanes = count(PACK / self.dtype.size()).unwrap_or(1);
        queue_some(Program::Upsample, like, tensors, move |places, card| {
            // Twice as many values of the larger images are read and written.
            let packed = self.width.is_multiple_of(lanes) && aligned(&places, 16);
            let count = if packed { self.len / lanes } else { self.len };
            let numbers = [count, self.width, packed.into()].map(Argument::U32);
            let arguments: Vec<_> = places.into_iter().map(Argument::Address).chain(numbers).collect();
            card.launch(self.name, [count.div_ceil(THREADS), 1], [THREADS, 1], &arguments)
        });
    }
}
