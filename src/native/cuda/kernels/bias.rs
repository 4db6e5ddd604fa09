//! Biases of images, one value per channel, with an optional ReLU, and their backward.

use super::batch_norm::{Blocks, begin_packs, countable, lanes};
use super::compile::Program;
use super::run::{Argument, pair, queue_some};
use super::{beside, count, fresh, own, owned, primitive, ready, room, same_device, tensor};
use crate::cuda::plan::Format;
use crate::cuda::{Cube, format};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// Threads of a block that completes the sums, one warp per channel.
const THREADS: u32 = 256;
const CHANNELS: u32 = THREADS / 32;

/// Returns a closure that computes x + bias for images `[rows, channels, height, width]` and a float32 bias
/// `[channels]`, with `rectified` followed by ReLU. It computes in float32, rounds once to the images' format, and may
/// overwrite the images. `None` if the kernels cannot run.
pub fn add_bias(
    x: &Tensor<4>,
    bias: &Tensor<1>,
    rectified: bool,
) -> Option<impl FnOnce(Tensor<4>) -> Tensor<4> + use<>> {
    let fits = bias.dims() == [x.dims()[1]] && bias.dtype() == DType::F32 && same_device(bias, x);
    let (task, bias) = (Task::of(x).filter(|_| fits)?, primitive(bias)?);
    Some(move |x: Tensor<4>| tensor(task.forward(rectified, owned(x), bias)))
}

/// Returns the gradients of x and of the bias from that of the output, which it may overwrite. `y` is the output if
/// ReLU followed. `None` if the kernels cannot run, or `y` and `dy` differ in shape or format.
pub fn add_bias_back(dy: Tensor<4>, y: Option<&Tensor<4>>) -> Option<(Tensor<4>, Tensor<1>)> {
    let of_dy = |y: &Tensor<4>| y.dims() == dy.dims() && y.dtype() == dy.dtype() && same_device(y, &dy);
    let task = Task::of(&dy).filter(|_| y.is_none_or(of_dy))?;
    let (given, y) = (primitive(&dy)?, beside(y)?);
    // Without ReLU it is the output's gradient.
    let passed = y.is_none().then(|| dy.clone());
    drop(dy);
    let (dbias, dx) = task.backward(given, y);
    Some((dx.map(tensor).or(passed)?, tensor(dbias)))
}

/// The kernels' parameters besides their tensors.
#[derive(Clone, Copy)]
struct Task {
    format: Format,
    /// Rows, channels, and values of a channel per row.
    counted: [u32; 3],
    channels: usize,
}

impl Task {
    /// Returns `None` if the kernels cannot run.
    fn of(x: &Tensor<4>) -> Option<Self> {
        let [rows, channels, height, width] = x.dims();
        let counted = [count(rows)?, count(channels)?, count(height.checked_mul(width)?)?];
        let format = format(x.dtype())?;
        (countable(counted) && ready(Program::BatchNorm(format), x)).then_some(Self { format, counted, channels })
    }

    fn forward(self, rectified: bool, x: Cube, bias: Cube) -> Cube {
        let [x, bias] = &[x, bias].map(into_contiguous);
        // In-place is safe: every value is read before it is overwritten, by the same thread.
        let made = room(x);
        let blocks = Blocks::of(self.counted, lanes(self.format), begin_packs([Some(x)]), false);
        let tensors = [Some(x), None, Some(&made), Some(bias), None];
        queue_some(Program::BatchNorm(self.format), x, &tensors, move |mut words, card| {
            words.extend(blocks.words);
            words.push(pair(rectified.into(), blocks.packed.into()));
            blocks.launch(card, [c"bias_add", c"bias_add_split"], &words)
        });
        made
    }

    /// Returns the gradient of the bias, and that of x if there is an output.
    fn backward(self, dy: Cube, y: Option<Cube>) -> (Cube, Option<Cube>) {
        let (dy, y) = (&into_contiguous(dy), y.map(into_contiguous));
        let y = y.as_ref();
        let blocks = Blocks::of(self.counted, lanes(self.format), begin_packs([Some(dy), y]), false);
        let in_dy = || own(dy).then(|| dy.clone());
        let dx = y.map(|_| in_dy().unwrap_or_else(|| fresh(dy, dy.meta.shape().clone(), dy.dtype)));
        let dbias = fresh(dy, [self.channels], DType::F32);
        let parts = fresh(dy, blocks.room(1), DType::F32);
        let tensors = [Some(dy), y, dx.as_ref(), None, Some(&parts), Some(&dbias)];
        let (channels, count) = (self.counted[1], blocks.parts());
        queue_some(Program::BatchNorm(self.format), dy, &tensors, move |mut words, card| {
            let (parts, dbias) = (words[4], words[5]);
            words.truncate(5);
            words.extend(blocks.words);
            words.push(pair(0, blocks.packed.into()));
            blocks.launch(card, [c"bias_back", c"bias_back_split"], &words)?;
            let ends =
                [Argument::Address(parts), Argument::Address(dbias), Argument::U32(channels), Argument::U32(count)];
            card.launch(c"bias_total", [channels.div_ceil(CHANNELS), 1], [THREADS, 1], &ends)
        });
        (dbias, dx)
    }
}
