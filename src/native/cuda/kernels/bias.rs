//! Biases of images: a value for each channel that is added, with the rectifier behind it; and the backward.

use super::super::format;
use super::super::operation::{Cube, Promise, exactly, register};
use super::super::plan::Format;
use super::batch_norm::{Blocks, begin_packs, countable, lanes, queue_some};
use super::compile::Program;
use super::run::{Argument, pair};
use super::{count, fresh, own, primitive, ready, room, same_device, tensor};
use burn::backend::Shape;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// Threads of a block that ends the sums, a warp for each channel.
const THREADS: u32 = 256;
const CHANNELS: u32 = THREADS / 32;

/// x + bias for images `[rows, channels, height, width]` and a float32 bias `[channels]`, and with `rectified` the larger of that and zero.
/// Computed in float32 and rounded once to the
/// format of the images, whose memory it may take. Gives x back where the kernels cannot be run.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn add_bias(x: Tensor<4>, bias: &Tensor<1>, rectified: bool) -> Result<Tensor<4>, Tensor<4>> {
    let fits = bias.dims() == [x.dims()[1]] && bias.dtype() == DType::F32 && same_device(bias, &x);
    let Some(task) = Task::of(&x).filter(|_| fits) else { return Err(x) };
    let (Some(given), Some(beside)) = (primitive(&x), primitive(bias)) else { return Err(x) };
    let promised = vec![like(&x)];
    drop(x);
    let work = move |inputs| task.forward(rectified, inputs);
    let [y] = exactly(register("add_bias", vec![given, beside], promised, work));
    Ok(tensor(y))
}

/// The gradients of x and of the bias from that of the answer, whose memory the first may take. `y` is the answer where it was rectified. Gives dy back where the kernels cannot be
/// run, or where y is another kind of tensor than dy.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn add_bias_back(dy: Tensor<4>, y: Option<&Tensor<4>>) -> Result<(Tensor<4>, Tensor<1>), Tensor<4>> {
    let of_dy = |y: &Tensor<4>| y.dims() == dy.dims() && y.dtype() == dy.dtype() && same_device(y, &dy);
    let Some(task) = Task::of(&dy).filter(|_| y.is_none_or(of_dy)) else { return Err(dy) };
    let given: Option<Vec<_>> = std::iter::once(primitive(&dy)).chain(y.map(primitive)).collect();
    let Some(given) = given else { return Err(dy) };
    let mut promised = vec![(Shape::from([dy.dims()[1]]), DType::F32)];
    promised.extend(y.map(like));
    // Without a rectifier it is that of the answer.
    let passed = y.is_none().then(|| dy.clone());
    drop(dy);
    let mut made = register("add_bias_back", given, promised, move |inputs| task.backward(inputs)).into_iter();
    match (made.next(), made.next().map(tensor).or(passed)) {
        (Some(dbias), Some(dx)) => Ok((dx, tensor(dbias))),
        _ => unreachable!("gradients were promised"),
    }
}

fn like(x: &Tensor<4>) -> Promise {
    (Shape::from(x.dims()), x.dtype())
}

/// What the kernels are told besides their tensors.
#[derive(Clone, Copy)]
struct Task {
    format: Format,
    /// Rows, channels, and values of a channel in a row.
    counted: [u32; 3],
    channels: usize,
}

impl Task {
    /// None where the kernels cannot be run.
    fn of(x: &Tensor<4>) -> Option<Self> {
        let [rows, channels, height, width] = x.dims();
        let counted = [count(rows)?, count(channels)?, count(height.checked_mul(width)?)?];
        let format = format(x.dtype())?;
        (countable(counted) && ready(Program::BatchNorm(format), x)).then_some(Self { format, counted, channels })
    }

    fn forward(self, rectified: bool, inputs: Vec<Cube>) -> Vec<Cube> {
        let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let [x, bias] = inputs.as_slice() else { unreachable!("as many inputs as were registered") };
        // Every value is read by the thread that writes in its place, before.
        let made = room(x);
        let blocks = Blocks::of(self.counted, lanes(self.format), begin_packs([Some(x)]), false);
        let tensors = [Some(x), None, Some(&made), Some(bias), None];
        queue_some(Program::BatchNorm(self.format), x, &tensors, move |mut words, card| {
            words.extend(blocks.words);
            words.push(pair(rectified.into(), blocks.packed.into()));
            blocks.launch(card, [c"bias_add", c"bias_add_split"], &words)
        });
        vec![made]
    }

    /// The gradient of the bias, and where there is an answer that of x.
    fn backward(self, inputs: Vec<Cube>) -> Vec<Cube> {
        let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let [dy, y @ ..] = inputs.as_slice() else { unreachable!("as many inputs as were registered") };
        let y = y.first();
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
        std::iter::once(dbias).chain(dx).collect()
    }
}
