//! The backward of a normalisation of images by statistics that stay as they are. Its forward is [`batch_norm_answer`](super::batch_norm_answer).

use super::super::format;
use super::super::operation::{Cube, Primitive, Promise, register};
use super::super::plan::Format;
use super::batch_norm::{Blocks, begin_packs, countable, lanes, queue_some};
use super::compile::Program;
use super::run::pair;
use super::{count, fresh, own, primitive, ready, same_device, single, tensor};
use burn::backend::Shape;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// How images were normalised, and what followed.
pub struct FrozenNorm<'a> {
    /// Gain and variance, a float32 value for each channel.
    pub channels: [&'a Tensor<1>; 2],
    /// What is added to a variance.
    pub epsilon: f64,
    /// The answer, and what values below zero were multiplied by; none where there was no activation.
    pub activation: Option<(&'a Tensor<4>, f64)>,
    /// A residual was added before the activation, and its gradient is wanted.
    pub residual: bool,
}

/// The gradients of the images and of the residual, from that of the answer: dy·gain/√(variance + epsilon) and dy, both where the answer is above zero, and leak times as much elsewhere.
/// They have its format. Gives dy back where the kernels cannot be run.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn frozen_norm_back(dy: Tensor<4>, norm: &FrozenNorm<'_>) -> Result<(Tensor<4>, Option<Tensor<4>>), Tensor<4>> {
    let Some((task, given)) = Task::of(&dy, norm) else { return Err(dy) };
    let like: Promise = (Shape::from(dy.dims()), dy.dtype());
    let promised = vec![like; if task.writes_both { 2 } else { 1 }];
    // With nothing behind the sum it is that of the answer.
    let passed = (norm.residual && !task.writes_both).then(|| dy.clone());
    drop(dy);
    let mut made = register("frozen_norm_back", given, promised, move |inputs| task.run(inputs)).into_iter();
    let Some(dx) = made.next() else { unreachable!("a gradient was promised") };
    Ok((tensor(dx), made.next().map(tensor).or(passed)))
}

/// What the kernel is told besides its tensors.
#[derive(Clone, Copy)]
struct Task {
    format: Format,
    counted: [u32; 3],
    epsilon: f32,
    leak: f32,
    /// The gradient of a residual is another one than that of the answer.
    writes_both: bool,
}

impl Task {
    /// With the inputs of the operation; none where the kernels cannot be run.
    fn of(dy: &Tensor<4>, norm: &FrozenNorm<'_>) -> Option<(Self, Vec<Primitive>)> {
        let (shape, dtype) = (dy.dims(), dy.dtype());
        let [rows, channels, height, width] = shape;
        let counted = [count(rows)?, count(channels)?, count(height.checked_mul(width)?)?];
        let vector = |vector: &&Tensor<1>| {
            vector.dims() == [channels] && vector.dtype() == DType::F32 && same_device(*vector, dy)
        };
        let like = |(y, _): (&Tensor<4>, f64)| y.dims() == shape && y.dtype() == dtype && same_device(y, dy);
        let fit = countable(counted) && norm.channels.iter().all(vector) && norm.activation.is_none_or(like);
        let format = format(dtype)?;
        if !fit || !ready(Program::BatchNorm(format), dy) {
            return None;
        }
        let given = std::iter::once(primitive(dy)).chain(norm.channels.map(primitive));
        let given: Option<Vec<_>> = given.chain(norm.activation.map(|(y, _)| primitive(y))).collect();
        let (leak, writes_both) = norm.activation.map_or((0.0, false), |(_, leak)| (single(leak), norm.residual));
        Some((Self { format, counted, epsilon: single(norm.epsilon), leak, writes_both }, given?))
    }

    fn run(self, inputs: Vec<Cube>) -> Vec<Cube> {
        let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let [dy, gain, variance, y @ ..] = inputs.as_slice() else { unreachable!("as many inputs as were registered") };
        let y = y.first();
        let blocks = Blocks::of(self.counted, lanes(self.format), begin_packs([Some(dy), y]), false);
        // Every value is read by the thread that writes in its place, before.
        let (in_dy, unlike) = (own(dy).then(|| dy.clone()), || fresh(dy, dy.meta.shape().clone(), dy.dtype));
        let (dx, dresidual) = if self.writes_both {
            (unlike(), Some(in_dy.unwrap_or_else(unlike)))
        } else {
            (in_dy.unwrap_or_else(unlike), None)
        };
        let tensors = [Some(dy), y, Some(&dx), dresidual.as_ref(), Some(gain), Some(variance)];
        queue_some(Program::BatchNorm(self.format), dy, &tensors, move |mut words, card| {
            words.extend(blocks.words);
            words.push(pair(self.epsilon.to_bits(), self.leak.to_bits()));
            words.push(pair(blocks.packed.into(), 0));
            blocks.launch(card, [c"frozen_back", c"frozen_back_split"], &words)
        });
        std::iter::once(dx).chain(dresidual).collect()
    }
}
