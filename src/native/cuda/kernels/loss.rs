//! The cross-entropy of a classifier, and its gradient.

use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, fresh, of_format, primitive, ready, room, same_device, tensor, whole};
use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// Threads of a block, for a row and for the sum over all rows.
const THREADS: u32 = 256;
const TOTAL_THREADS: u32 = 1024;

/// Saved values of each row's softmax: the largest logit, and Σ exp(logit − largest). Undefined for ignored rows.
#[derive(Clone, Debug)]
pub struct RowStatistics {
    largest: Tensor<1>,
    sum: Tensor<1>,
}

/// Returns the summed cross-entropy in nats of logits `[rows, columns]` in any format, shape `[1]`, float32, with the
/// row statistics for [`cross_entropy_back`]. Arithmetic is in float32.
///
/// Rows with a class outside of 0..`classes` are ignored, and so are columns from `classes` on. `None` if the kernels
/// cannot run.
pub fn cross_entropy(
    answers: &Tensor<2>,
    targets: &Tensor<1, Int>,
    classes: usize,
) -> Option<(Tensor<1>, RowStatistics)> {
    let launch = Launch::of(answers, targets, classes)?;
    let name = of_format(answers.dtype(), [c"cross_entropy_f32", c"cross_entropy_f16", c"cross_entropy_bf16"])?;
    let [x, targets] = [primitive(answers)?, whole(targets)?].map(into_contiguous);
    let [losses, largest, sum] = [(); 3].map(|()| fresh(&x, [launch.rows], DType::F32));
    let loss = fresh(&x, [1], DType::F32);
    let buffers = [&x, &targets, &losses, &largest, &sum, &loss].map(|tensor| &tensor.handle);
    queue(Program::Loss, &x, &buffers, move |places, card| {
        let given = places[..5].iter().map(|place| Argument::Address(*place));
        let arguments: Vec<_> = given.chain(launch.sizes(&places[..1])).collect();
        card.launch(name, [launch.high, 1], [THREADS, 1], &arguments)?;
        let [losses, loss] = [2, 5].map(|number| Argument::Address(places[number]));
        card.launch(c"total", [1, 1], [TOTAL_THREADS, 1], &[losses, loss, Argument::U32(launch.high)])
    });
    Some((tensor(loss), RowStatistics { largest: tensor(largest), sum: tensor(sum) }))
}

/// Returns `factor` times `upstream`, a tensor of one float32, times the gradient of [`cross_entropy`]. It has the
/// format of the logits, which it may overwrite. It is rounded once, so include the factor of a loss scale here. `None`
/// if the kernels cannot run.
pub fn cross_entropy_back(
    answers: Tensor<2>,
    targets: &Tensor<1, Int>,
    classes: usize,
    rows: RowStatistics,
    factor: f32,
    upstream: &Tensor<1>,
) -> Option<Tensor<2>> {
    let one = upstream.dims() == [1] && upstream.dtype() == DType::F32 && same_device(upstream, &answers);
    let launch = Launch::of(&answers, targets, classes).filter(|_| one)?;
    let names = [c"cross_entropy_back_f32", c"cross_entropy_back_f16", c"cross_entropy_back_bf16"];
    let name = of_format(answers.dtype(), names)?;
    let given = [primitive(&answers)?, whole(targets)?];
    let beside = [&rows.largest, &rows.sum, upstream].map(primitive);
    drop((answers, rows));
    let [x, targets] = given.map(into_contiguous);
    let [Some(largest), Some(sum), Some(upstream)] = beside else { return None };
    let upstream = into_contiguous(upstream);
    let gradient = room(&x);
    let buffers = [&x, &targets, &largest, &sum, &upstream, &gradient].map(|tensor| &tensor.handle);
    queue(Program::Loss, &x, &buffers, move |places, card| {
        let sizes = launch.sizes(&[places[0], places[5]]);
        let given = places.iter().map(|place| Argument::Address(*place));
        let arguments: Vec<_> = given.chain(sizes).chain([Argument::F32(factor)]).collect();
        card.launch(name, [launch.high, 1], [THREADS, 1], &arguments)
    });
    Some(tensor(gradient))
}

/// The kernels' parameters besides their tensors.
#[derive(Clone, Copy)]
struct Launch {
    rows: usize,
    high: u32,
    wide: u32,
    classes: u32,
    /// The number of values read at once if the addresses are aligned.
    pack: u32,
}

impl Launch {
    /// Returns `None` if the kernels cannot run.
    fn of(answers: &Tensor<2>, targets: &Tensor<1, Int>, classes: usize) -> Option<Self> {
        let ([rows, columns], dtype) = (answers.dims(), answers.dtype());
        let (high, wide, classes) = (count(rows)?, count(columns)?, count(classes.min(columns))?);
        let right = targets.dims() == [rows] && targets.dtype() == DType::I32 && targets.device() == answers.device();
        // Threads count columns slightly beyond the last one.
        let fits = classes > 0 && rows > 0 && wide < u32::MAX / 2 && right;
        let pack = if dtype == DType::F32 { 4 } else { 8 };
        (fits && ready(Program::Loss, answers)).then_some(Self { rows, high, wide, classes, pack })
    }

    /// Returns columns, classes, and whether packs can be read at these addresses.
    fn sizes(self, places: &[u64]) -> [Argument<'static>; 3] {
        let packed = aligned(places, 16) && self.wide.is_multiple_of(self.pack);
        [self.wide, self.classes, packed.into()].map(Argument::U32)
    }
}
