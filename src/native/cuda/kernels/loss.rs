//! The cross-entropy of a classifier, and its gradient.

use super::compile::Program;
use super::run::{Argument, Launcher, aligned, queue};
use super::{count, fresh, of_format, primitive, ready, room, same_device, tensor, whole};
use crate::cuda::Fault;
use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::ffi::CStr;

const THREADS: u32 = 1024;

/// The sum of the cross-entropies in nats of answers `[rows, columns]` in any format, shape `[1]`, float32. Arithmetic is in float32.
///
/// A row whose class is negative or not among the classes counts for nothing; columns from `classes` on neither. None where it cannot be computed here.
pub fn cross_entropy(answers: &Tensor<2>, targets: &Tensor<1, Int>, classes: usize) -> Option<Tensor<1>> {
    let launch = Launch::of(answers, targets, classes, None)?;
    let [x, targets] = [primitive(answers)?, whole(targets)?].map(into_contiguous);
    let (losses, loss) = (fresh(&x, [launch.rows], DType::F32), fresh(&x, [1], DType::F32));
    let buffers = [&x, &targets, &losses, &loss].map(|tensor| &tensor.handle);
    queue(Program::Loss, &x, &buffers, move |places, card| {
        let [x, targets, losses, loss] = [0, 1, 2, 3].map(|place| places[place]);
        launch.rows(card, Places { x, targets, gradient: 0, losses, upstream: 0 }, 1.0)?;
        launch.total(card, losses, loss)
    });
    Some(tensor(loss))
}

/// `factor` times `upstream`, a tensor of one float32, times the gradient of [`cross_entropy`], in the format of the answers, whose memory it
/// may take. It is rounded once, so that the factor of a loss scale belongs in here. None where it cannot be computed here.
pub fn cross_entropy_back(
    answers: Tensor<2>,
    targets: &Tensor<1, Int>,
    classes: usize,
    factor: f32,
    upstream: &Tensor<1>,
) -> Option<Tensor<2>> {
    let launch = Launch::of(&answers, targets, classes, Some(upstream))?;
    let given = [primitive(&answers)?, whole(targets)?, primitive(upstream)?];
    drop(answers);
    let [x, targets, upstream] = given.map(into_contiguous);
    let (gradient, losses) = (room(&x), fresh(&x, [launch.rows], DType::F32));
    let buffers = [&x, &targets, &gradient, &losses, &upstream].map(|tensor| &tensor.handle);
    queue(Program::Loss, &x, &buffers, move |places, card| {
        let [x, targets, gradient, losses, upstream] = [0, 1, 2, 3, 4].map(|place| places[place]);
        launch.rows(card, Places { x, targets, gradient, losses, upstream }, factor)
    });
    Some(tensor(gradient))
}

/// What the kernels are told besides their tensors.
#[derive(Clone, Copy)]
struct Launch {
    name: &'static CStr,
    rows: usize,
    high: u32,
    wide: u32,
    classes: u32,
    /// Values that are read at once where the addresses allow it.
    pack: u32,
}

/// Where tensors are; zero for none.
struct Places {
    x: u64,
    targets: u64,
    gradient: u64,
    losses: u64,
    upstream: u64,
}

impl Launch {
    /// None where the kernels cannot be run.
    fn of(answers: &Tensor<2>, targets: &Tensor<1, Int>, classes: usize, upstream: Option<&Tensor<1>>) -> Option<Self> {
        let ([rows, columns], dtype) = (answers.dims(), answers.dtype());
        let name = of_format(dtype, [c"cross_entropy_f32", c"cross_entropy_f16", c"cross_entropy_bf16"])?;
        let (high, wide, classes) = (count(rows)?, count(columns)?, count(classes.min(columns))?);
        let one =
            |tensor: &Tensor<1>| tensor.dims() == [1] && tensor.dtype() == DType::F32 && same_device(tensor, answers);
        let right = targets.dims() == [rows] && targets.dtype() == DType::I32 && targets.device() == answers.device();
        // Threads count columns a little further than there are.
        let fits = classes > 0 && rows > 0 && wide < u32::MAX / 2 && right && upstream.is_none_or(one);
        let pack = if dtype == DType::F32 { 4 } else { 8 };
        (fits && ready(Program::Loss, answers)).then_some(Self { name, rows, high, wide, classes, pack })
    }

    fn rows(&self, card: &Launcher, places: Places, factor: f32) -> Result<(), Fault> {
        let Places { x, targets, gradient, losses, upstream } = places;
        let packed = aligned(&[x, gradient], 16) && self.wide.is_multiple_of(self.pack);
        let addresses = [x, targets, gradient, losses, upstream].map(Argument::Address);
        let rest = [
            Argument::U32(self.wide),
            Argument::U32(self.classes),
            Argument::F32(factor),
            Argument::U32(packed.into()),
        ];
        let arguments: Vec<_> = addresses.into_iter().chain(rest).collect();
        card.launch(self.name, [self.high, 1], [THREADS, 1], &arguments)
    }

    fn total(&self, card: &Launcher, losses: u64, loss: u64) -> Result<(), Fault> {
        let arguments = [Argument::Address(losses), Argument::Address(loss), Argument::U32(self.high)];
        card.launch(c"total", [1, 1], [THREADS, 1], &arguments)
    }
}
