//! The backward of a normalisation of images with fixed statistics. Its forward is
//! [`batch_norm_answer`](super::batch_norm_answer).

use super::batch_norm::{Blocks, begin_packs, countable, lanes};
use super::compile::Program;
use super::run::{pair, queue_some};
use super::{beside, count, fresh, own, owned, primitive, ready, same_device, single, tensor};
use crate::cuda::plan::Format;
use crate::cuda::{Cube, format};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// The parameters of a normalisation, and the operations that followed.
pub struct FrozenNorm<'a> {
    /// Gain and variance, one float32 value per channel.
    pub channels: [&'a Tensor<1>; 2],
    /// Added to the variance.
    pub epsilon: f64,
    /// The output, and the factor of negative values; `None` without an activation.
    pub activation: Option<(&'a Tensor<4>, f64)>,
    /// Whether a residual was added before the activation and its gradient is requested.
    pub residual: bool,
}

/// Returns a closure that computes the gradients of the images and of the residual from that of the output:
/// dy·gain/√(variance + epsilon) and dy, both multiplied by `leak` where the output is not above zero. They have its
/// format, and one may overwrite it. `None` if the kernels cannot run.
pub fn frozen_norm_back(
    dy: &Tensor<4>,
    norm: &FrozenNorm<'_>,
) -> Option<impl FnOnce(Tensor<4>) -> (Tensor<4>, Option<Tensor<4>>) + use<>> {
    let (task, channels, y) = Task::of(dy, norm)?;
    let residual = norm.residual;
    Some(move |dy: Tensor<4>| {
        // Without an activation after the sum, it is the output's gradient.
        let passed = (residual && !task.writes_both).then(|| dy.clone());
        let (dx, dresidual) = task.run(owned(dy), channels, y);
        (tensor(dx), dresidual.map(tensor).or(passed))
    })
}

/// The kernel's parameters besides its tensors.
#[derive(Clone, Copy)]
struct Task {
    format: Format,
    counted: [u32; 3],
    epsilon: f32,
    leak: f32,
    /// Whether the residual's gradient differs from the output's.
    writes_both: bool,
}

impl Task {
    /// Returns the parameters with gain, variance and the output, or `None` if the kernels cannot run.
    fn of(dy: &Tensor<4>, norm: &FrozenNorm<'_>) -> Option<(Self, [Cube; 2], Option<Cube>)> {
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
        let [gain, variance] = norm.channels.map(primitive);
        let y = beside(norm.activation.map(|(y, _)| y))?;
        let (leak, writes_both) = norm.activation.map_or((0.0, false), |(_, leak)| (single(leak), norm.residual));
        let task = Self { format, counted, epsilon: single(norm.epsilon), leak, writes_both };
        Some((task, [gain?, variance?], y))
    }

    fn run(self, dy: Cube, [gain, variance]: [Cube; 2], y: Option<Cube>) -> (Cube, Option<Cube>) {
        let [dy, gain, variance] = &[dy, gain, variance].map(into_contiguous);
        let y = y.map(into_contiguous);
        let y = y.as_ref();
        let blocks = Blocks::of(self.counted, lanes(self.format), begin_packs([Some(dy), y]), false);
        // In-place is safe: every value is read before it is overwritten, by the same thread.
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
        (dx, dresidual)
    }
}
