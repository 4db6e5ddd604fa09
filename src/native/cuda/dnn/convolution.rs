//! Convolutions of images, and their gradients.

mod biased;

pub use biased::convolve_biased;

use super::descriptors::{self, Plans, ask, code};
use super::execution::{self, Demand, Operand, Target, note};
use super::graph::{CONVOLUTION, CONVOLVE, Graph, OF_INPUT, OF_WEIGHT, Object, Value, graph, longs};
use super::job::{Places, queue};
use super::library::Dnn;
use super::storage::Storage;
use super::{card, countable, fitting, primitive, tensor};
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use crate::cuda::{Fault, format};
use burn::tensor::Tensor;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex};

/// The maximum workspace of a plan, in bytes.
///
/// In half formats, NCHW images are converted to NHWC in the workspace, which takes as much memory as the images.
const WORKSPACE: usize = 4 << 30;

/// The configuration of a convolution without dilation and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// The vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Zero padding, vertical (above and below) and horizontal (at both sides).
    pub padding: [usize; 2],
    /// Whether float32 operands may be rounded to TF32.
    pub tf32: bool,
    /// The memory layout of images, weights and results.
    pub storage: Storage,
}

/// The computations of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The result, from images and weights.
    Result,
    /// The gradient of the images, from weights and the gradient of the result.
    OfInput,
    /// The gradient of the weights, from images and the gradient of the result.
    OfWeight,
}

/// Everything that the choice of a kernel depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    card: usize,
    part: Part,
    format: Format,
    input: [usize; 4],
    weight: [usize; 4],
    output: [usize; 4],
    how: Convolution,
}

/// A prepared convolution. Its operands are images, weights and result, or their gradients.
struct Plan {
    part: Part,
    plan: execution::Plan,
}

static PLANS: Plans<Kind, Plan> = LazyLock::new(Mutex::default);

/// Convolves images `[count, channels in, height, width]` with weights `[channels out, channels in, height, width]`.
/// `None` if cuDNN does not support it.
pub fn convolve(x: Tensor<4>, w: Tensor<4>, how: Convolution) -> Option<Tensor<4>> {
    let (input, weight) = (x.dims(), w.dims());
    compute(Part::Result, x, w, [input, weight, output(input, weight, how)?], how)
}

/// Returns the gradient of images of this shape, from the gradient of the result and the weights. `None` if cuDNN does
/// not support it.
pub fn of_input(dy: Tensor<4>, w: Tensor<4>, input: [usize; 4], how: Convolution) -> Option<Tensor<4>> {
    let weight = w.dims();
    let output = output(input, weight, how).filter(|output| *output == dy.dims())?;
    compute(Part::OfInput, w, dy, [input, weight, output], how)
}

/// Returns the gradient of weights of this shape, from the images and the gradient of the result. `None` if cuDNN does
/// not support it. It has the format of the images: cuDNN sums in float32, but has no kernels with a float32 result.
pub fn of_weight(x: Tensor<4>, dy: Tensor<4>, weight: [usize; 4], how: Convolution) -> Option<Tensor<4>> {
    let input = x.dims();
    let output = output(input, weight, how).filter(|output| *output == dy.dims())?;
    compute(Part::OfWeight, x, dy, [input, weight, output], how)
}

/// Whether cuDNN supports the convolution and both gradients.
pub fn possible(x: &Tensor<4>, weight: [usize; 4], how: Convolution) -> bool {
    let input = x.dims();
    let found = output(input, weight, how).zip(card(x)).zip(format(x.dtype()));
    found.is_some_and(|((output, card), format)| {
        [Part::Result, Part::OfInput, Part::OfWeight].into_iter().all(|part| {
            let kind = Kind { card, part, format, input, weight, output, how };
            descriptors::plan(&PLANS, &kind, |dnn| make(dnn, kind)).is_some()
        })
    })
}

/// Returns the shape of the result, or `None` if the weights do not fit.
fn output(input: [usize; 4], weight: [usize; 4], how: Convolution) -> Option<[usize; 4]> {
    let ([count, channels, image @ ..], [outputs, inputs, window @ ..]) = (input, weight);
    let [height, width] = fitting(image, window, how.stride, how.padding)?;
    let output = [count, outputs, height, width];
    (channels == inputs && [input, weight, output].into_iter().all(countable)).then_some(output)
}

fn compute(
    part: Part,
    first: Tensor<4>,
    second: Tensor<4>,
    [input, weight, output]: [[usize; 4]; 3],
    how: Convolution,
) -> Option<Tensor<4>> {
    let dtype = first.dtype();
    let card = card(&first).filter(|place| second.dtype() == dtype && card(&second) == Some(*place))?;
    let kind = Kind { card, part, format: format(dtype)?, input, weight, output, how };
    let plan = descriptors::plan(&PLANS, &kind, |dnn| make(dnn, kind))?;
    let operands = [primitive(&how.storage.lying(first))?, primitive(&how.storage.lying(second))?];
    let shape = how.storage.shape(match part {
        Part::Result => output,
        Part::OfInput => input,
        Part::OfWeight => weight,
    });
    let promised = [(shape.into(), dtype)];
    let [made] = queue(operands, promised, plan.plan.workspace, |_, handle, places| plan.run(handle, places));
    Some(how.storage.named(tensor(made)))
}

fn make(dnn: &Dnn, kind: Kind) -> Result<Plan, Fault> {
    let graph = graph().ok_or(Fault::Absent)?;
    ask(dnn, kind.card, |handle| planned(graph, kind, &Target::handle(handle)))
}

/// Returns the first acceptable plan.
fn planned(graph: &'static Graph, kind: Kind, target: &Target<'_>) -> Result<Plan, Fault> {
    let mut parts = Vec::with_capacity(7);
    for (place, shape) in [kind.input, kind.weight, kind.output].into_iter().enumerate() {
        parts.push(kind.operand(shape).given(graph, place)?);
    }
    parts.push(windows(graph, kind.how)?);
    let [input, weight, output, windows] = parts.as_slice() else { unreachable!("three tensors and how windows move") };
    let operation = operation(graph, kind.part, [input, weight, output, windows])?;
    let demand = Demand { forbidden: kind.forbidden(), workspace: WORKSPACE };
    Ok(Plan { part: kind.part, plan: execution::plan(graph, vec![operation], parts, target, &demand)? })
}

impl Kind {
    fn operand(&self, shape: [usize; 4]) -> Operand {
        Operand { format: self.format, shape, storage: self.how.storage }
    }

    /// Returns the numerical notes that rule an engine out: less precision than requested, or nondeterminism.
    fn forbidden(&self) -> &'static [c_int] {
        const ALWAYS: [c_int; 3] =
            [note::NONDETERMINISTIC, note::DOWN_CONVERT_INPUTS, note::REDUCED_PRECISION_REDUCTION];
        const STRICT: [c_int; 4] = [ALWAYS[0], ALWAYS[1], ALWAYS[2], note::TENSOR_CORE];
        if self.format == Format::F32 && !self.how.tf32 { &STRICT } else { &ALWAYS }
    }
}

/// Describes a convolution with float32 sums.
fn windows(graph: &'static Graph, how: Convolution) -> Result<Object, Fault> {
    let (stride, padding) = (longs(how.stride)?, longs(how.padding)?);
    let attributes = [
        (100, Value::Format(code(Format::F32))), // CUDNN_ATTR_CONVOLUTION_COMP_TYPE
        (101, Value::Convolution(1)), // CUDNN_ATTR_CONVOLUTION_CONV_MODE: CUDNN_CROSS_CORRELATION, the weights are not turned round
        (102, Value::Integers(&[1, 1])), // CUDNN_ATTR_CONVOLUTION_DILATIONS
        (103, Value::Integers(&stride)), // CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES
        (104, Value::Integers(&padding)), // CUDNN_ATTR_CONVOLUTION_POST_PADDINGS
        (105, Value::Integers(&padding)), // CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS
        (106, Value::Integers(&[2])), // CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS
    ];
    Object::new(graph, CONVOLUTION, &attributes)
}

/// Describes the operation on images, weights, result and convolution.
fn operation(
    graph: &'static Graph,
    part: Part,
    [input, weight, output, windows]: [&Object; 4],
) -> Result<Object, Fault> {
    // CUDNN_ATTR_OPERATION_CONVOLUTION_… _X, _W, _Y, _CONV_DESC, _ALPHA and _BETA of FORWARD; _DX, _W, _DY, … of
    // BWD_DATA; _X, _DW, _DY, … of BWD_FILTER.
    let (sort, [x, w, y, by, alpha, beta]) = match part {
        Part::Result => (CONVOLVE, [704, 703, 705, 702, 700, 701]),
        Part::OfInput => (OF_INPUT, [710, 709, 711, 708, 706, 707]),
        Part::OfWeight => (OF_WEIGHT, [716, 715, 717, 714, 712, 713]),
    };
    let attributes = [
        (x, Value::Object(input)),
        (w, Value::Object(weight)),
        (y, Value::Object(output)),
        (by, Value::Object(windows)),
        (alpha, Value::Real(1.0)),
        (beta, Value::Real(0.0)),
    ];
    Object::new(graph, sort, &attributes)
}

impl Plan {
    fn run(&self, handle: Opaque, places: Places<2, 1>) -> Result<(), Fault> {
        let Places { inputs: [first, second], outputs: [made], workspace, .. } = places;
        let operands = match self.part {
            Part::Result => [first, second, made],
            Part::OfInput => [made, first, second],
            Part::OfWeight => [first, made, second],
        };
        self.plan.run(handle, &operands, workspace)
    }
}

#[cfg(test)]
mod tests;
