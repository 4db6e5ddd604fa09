//! Images twice as high and wide, and the backward.

use super::super::operation::{Cube, exactly, register};
use super::batch_norm::queue_some;
use super::compile::Program;
use super::run::{Argument, aligned};
use super::{count, fresh, of_format, primitive, ready, same_device, tensor};
use burn::backend::Shape;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

/// Bytes that are read of a row of the smaller images at once, and threads of a block.
const PACK: usize = 8;
const THREADS: u32 = 256;

/// Each value of images [rows, channels, height, width] four times, as two by two; and to that added a lateral tensor [rows, channels, 2·height, 2·width], where there is one, in float32 and
/// rounded once. All in one format. None where the kernels cannot be run.
pub fn upsample(x: &Tensor<4>, lateral: Option<&Tensor<4>>) -> Option<Tensor<4>> {
    let [rows, channels, height, width] = x.dims();
    let large = [rows, channels, height.checked_mul(2)?, width.checked_mul(2)?];
    let fits = |lateral: &Tensor<4>| lateral.dims() == large && lateral.dtype() == x.dtype() && same_device(lateral, x);
    let name = of_format(x.dtype(), [c"upsample_f32", c"upsample_f16", c"upsample_bf16"])?;
    let task = Task::of(name, [rows, channels, height, width], x.dtype())?;
    if !lateral.is_none_or(fits) || !ready(Program::Upsample, x) {
        return None;
    }
    let given: Option<Vec<_>> = [Some(x), lateral].into_iter().flatten().map(primitive).collect();
    let promised = vec![(Shape::from(large), task.dtype)];
    let work = move |inputs: Vec<Cube>| {
        let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let Some(x) = inputs.first() else { return Vec::new() };
        let y = fresh(x, large, task.dtype);
        task.queue(&[Some(x), inputs.get(1), Some(&y)]);
        vec![y]
    };
    let [y] = exactly(register("upsample", given?, promised, work));
    Some(tensor(y))
}

/// Sums of two by two values of [rows, channels, 2·height, 2·width], in float32 and rounded once: the gradient of [`upsample`]. Gives dy back where the kernels
/// cannot be run.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn upsample_back(dy: Tensor<4>) -> Result<Tensor<4>, Tensor<4>> {
    let [rows, channels, height, width] = dy.dims();
    let small = [rows, channels, height / 2, width / 2];
    let name = of_format(dy.dtype(), [c"upsample_back_f32", c"upsample_back_f16", c"upsample_back_bf16"]);
    let task = name.and_then(|name| Task::of(name, small, dy.dtype()));
    let even = [height, width] == [small[2] * 2, small[3] * 2];
    let Some(task) = task.filter(|_| even && ready(Program::Upsample, &dy)) else { return Err(dy) };
    let Some(given) = primitive(&dy) else { return Err(dy) };
    drop(dy);
    let promised = vec![(Shape::from(small), task.dtype)];
    let work = move |inputs: Vec<Cube>| {
        let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let Some(dy) = inputs.first() else { return Vec::new() };
        let dx = fresh(dy, small, task.dtype);
        task.queue(&[Some(dy), Some(&dx)]);
        vec![dx]
    };
    let [dx] = exactly(register("upsample_back", vec![given], promised, work));
    Ok(tensor(dx))
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
    /// None where there is nothing to do, or more than can be counted.
    fn of(name: &'static CStr, shape: [usize; 4], dtype: DType) -> Option<Self> {
        let len = shape.iter().try_fold(1_usize, |len, side| len.checked_mul(*side)).and_then(count)?;
        (len > 0).then_some(Self { name, dtype, len, width: count(shape[3])? })
    }

    fn queue(self, tensors: &[Option<&Cube>]) {
        let Some(like) = tensors.iter().flatten().next() else { return };
        let lanes = count(PACK / self.dtype.size()).unwrap_or(1);
        queue_some(Program::Upsample, like, tensors, move |places, card| {
            // Twice as many values are read and written of the larger images.
            let packed = self.width.is_multiple_of(lanes) && aligned(&places, 16);
            let count = if packed { self.len / lanes } else { self.len };
            let numbers = [count, self.width, packed.into()].map(Argument::U32);
            let arguments: Vec<_> = places.into_iter().map(Argument::Address).chain(numbers).collect();
            card.launch(self.name, [count.div_ceil(THREADS), 1], [THREADS, 1], &arguments)
        });
    }
}
