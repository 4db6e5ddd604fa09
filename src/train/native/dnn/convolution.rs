//! Convolutions of images and their gradients.

use super::super::library::Opaque;
use super::super::operation::{Cube, custom};
use super::super::plan::Format;
use super::super::{Fault, format, told};
use super::descriptors::{self, Plans, ask, convolution, filter, set_math, tensor};
use super::job::{Places, queue};
use super::library::{Convolve, Dnn, Find, Found, Size};
use super::{card, countable, fitting, primitive};
use burn::backend::{Cuda, DType};
use burn::tensor::Tensor;
use std::ffi::c_int;
use std::ptr::from_ref;
use std::sync::{LazyLock, Mutex};

/// Bytes beside the operands that an algorithm may take.
///
/// In half formats images are brought into another order on the way, which takes as much memory as they have.
const WORKSPACE: usize = 4 << 30;

/// What a convolution is besides its operands. Its windows are not spread out, and each sees all channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Values from one window to the next, downwards and along.
    pub stride: [usize; 2],
    /// Zeros around the image, above and below and at the sides.
    pub padding: [usize; 2],
    /// Values in float32 may be rounded to TF32.
    pub tf32: bool,
}

/// What of a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// From images and weights.
    Result,
    /// From weights and the gradient of the result.
    OfInput,
    /// From images and the gradient of the result.
    OfWeight,
}

/// All on which the choice of a kernel depends.
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

/// A convolution that is ready to run.
struct Plan {
    part: Part,
    first: Opaque,
    second: Opaque,
    result: Opaque,
    convolution: Opaque,
    algorithm: c_int,
    workspace: usize,
}

// SAFETY: the descriptors are plain memory of the library, which nobody writes to or frees after the plan was made.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Plan {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Sync for Plan {}

static PLANS: Plans<Kind, Plan> = LazyLock::new(Mutex::default);

/// Images `[count, channels in, height, width]` through weights `[channels out, channels in, height, width]`; or both, where cuDNN cannot do this.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn convolve(x: Tensor<4>, w: Tensor<4>, how: Convolution) -> Result<Tensor<4>, (Tensor<4>, Tensor<4>)> {
    let (input, weight) = (x.dims(), w.dims());
    match output(input, weight, how) {
        Some(output) => compute(Part::Result, x, w, [input, weight, output], how),
        None => Err((x, w)),
    }
}

/// The gradient of the images, whose shape is given, from that of the result and the weights; or both, where cuDNN cannot do this.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn of_input(
    dy: Tensor<4>,
    w: Tensor<4>,
    input: [usize; 4],
    how: Convolution,
) -> Result<Tensor<4>, (Tensor<4>, Tensor<4>)> {
    let weight = w.dims();
    match output(input, weight, how) {
        Some(output) if output == dy.dims() => {
            compute(Part::OfInput, w, dy, [input, weight, output], how).map_err(|(w, dy)| (dy, w))
        }
        _ => Err((dy, w)),
    }
}

/// The gradient of the weights, whose shape is given, from the images and the gradient of the result; or both, where cuDNN cannot do this.
/// It has the format of the images: cuDNN sums in float32 but has no kernels that would keep the sums so.
#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
pub fn of_weight(
    x: Tensor<4>,
    dy: Tensor<4>,
    weight: [usize; 4],
    how: Convolution,
) -> Result<Tensor<4>, (Tensor<4>, Tensor<4>)> {
    let input = x.dims();
    match output(input, weight, how) {
        Some(output) if output == dy.dims() => compute(Part::OfWeight, x, dy, [input, weight, output], how),
        _ => Err((x, dy)),
    }
}

/// Whether cuDNN can compute all of it: the result and both gradients.
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

/// The shape of a result; none where the weights do not fit.
fn output(input: [usize; 4], weight: [usize; 4], how: Convolution) -> Option<[usize; 4]> {
    let ([count, channels, image @ ..], [outputs, inputs, window @ ..]) = (input, weight);
    let [height, width] = fitting(image, window, how.stride, how.padding)?;
    let output = [count, outputs, height, width];
    (channels == inputs && [input, weight, output].into_iter().all(countable)).then_some(output)
}

#[expect(clippy::result_large_err, reason = "what comes back is what was given")]
fn compute(
    part: Part,
    first: Tensor<4>,
    second: Tensor<4>,
    [input, weight, output]: [[usize; 4]; 3],
    how: Convolution,
) -> Result<Tensor<4>, (Tensor<4>, Tensor<4>)> {
    let dtype = first.dtype();
    let (Some(card), Some(format), true) = (card(&first), format(dtype), second.dtype() == dtype) else {
        return Err((first, second));
    };
    if self::card(&second) != Some(card) {
        return Err((first, second));
    }
    let kind = Kind { card, part, format, input, weight, output, how };
    let Some(plan) = descriptors::plan(&PLANS, &kind, |dnn| make(dnn, kind)) else { return Err((first, second)) };
    let (Some(one), Some(other)) = (primitive(&first), primitive(&second)) else { return Err((first, second)) };
    drop((first, second));
    let (shape, name) = match part {
        Part::Result => (output, "convolve_dnn"),
        Part::OfInput => (input, "convolve_of_input_dnn"),
        Part::OfWeight => (weight, "convolve_of_weight_dnn"),
    };
    let [made] =
        custom(name, [one, other], [(shape.into(), dtype)], move |operands| launch(operands, plan, shape, dtype));
    Ok(Tensor::from_primitive::<Cuda>(made))
}

fn launch(operands: [Cube; 2], plan: &'static Plan, shape: [usize; 4], dtype: DType) -> [Cube; 1] {
    queue(operands, [(shape.into(), dtype)], plan.workspace, |dnn, handle, places| plan.run(dnn, handle, places))
}

/// The functions of a part, which take their operands in the order of its plan.
fn functions(dnn: &Dnn, part: Part) -> (Find, Size, Convolve) {
    match part {
        Part::Result => (dnn.find_forward, dnn.size_forward, dnn.forward),
        Part::OfInput => (dnn.find_input, dnn.size_input, dnn.of_input),
        Part::OfWeight => (dnn.find_weight, dnn.size_weight, dnn.of_weight),
    }
}

fn make(dnn: &Dnn, kind: Kind) -> Result<Plan, Fault> {
    let input = tensor(dnn, kind.format, kind.input)?;
    let weight = filter(dnn, kind.format, kind.weight)?;
    let output = tensor(dnn, kind.format, kind.output)?;
    let (first, second, result) = match kind.part {
        Part::Result => (input, weight, output),
        Part::OfInput => (weight, output, input),
        Part::OfWeight => (input, output, weight),
    };
    let math = match (kind.format, kind.how.tf32) {
        (Format::F32, true) => 0,  // CUDNN_DEFAULT_MATH
        (Format::F32, false) => 3, // CUDNN_FMA_MATH
        _ => 1,                    // CUDNN_TENSOR_OP_MATH
    };
    let convolution = convolution(dnn, kind.how.stride, kind.how.padding, math)?;
    let (find, size, _) = functions(dnn, kind.part);
    ask(dnn, kind.card, |handle| {
        // There are 8 algorithms at most, each of which may be there with several kinds of mathematics.
        let (mut found, mut count) = ([Found::default(); 32], 0);
        // SAFETY: the descriptors were made above; as many results are asked for as there is room for.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status =
            unsafe { find(handle, first, second, convolution, result, 32, &raw mut count, found.as_mut_ptr()) };
        told("an algorithm of cuDNN", status)?;
        let count = usize::try_from(count).unwrap_or(0);
        let fits = |found: &&Found| found.state == 0 && found.deterministic == 1 && found.workspace <= WORKSPACE;
        for found in found.iter().take(count).filter(fits) {
            // What is to be exact must not become less so by an algorithm's own choice.
            let exact = kind.format == Format::F32 && !kind.how.tf32;
            set_math(dnn, convolution, if exact { math } else { found.math })?;
            let mut workspace = 0;
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "a function of cuDNN")]
            let status =
                unsafe { size(handle, first, second, convolution, result, found.algorithm, &raw mut workspace) };
            if status == 0 && workspace <= WORKSPACE {
                let algorithm = found.algorithm;
                return Ok(Plan { part: kind.part, first, second, result, convolution, algorithm, workspace });
            }
        }
        Err(Fault::Runtime("no algorithm that is deterministic and takes little memory".to_owned()))
    })
}

impl Plan {
    fn run(&self, dnn: &Dnn, handle: Opaque, places: Places<2, 1>) -> Result<(), Fault> {
        let Places { inputs: [first, second], outputs: [result], workspace, .. } = places;
        let (one, nothing) = (1.0_f32, 0.0_f32);
        let (_, _, convolve) = functions(dnn, self.part);
        // SAFETY: the plan was made for operands of these shapes and formats on this card, which lie as it was told and are kept until the work is
        // queued; the workspace is as long as the algorithm asked for; the scalars are on the host and read at once.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            convolve(
                handle,
                from_ref(&one).cast(),
                self.first,
                first,
                self.second,
                second,
                self.convolution,
                self.algorithm,
                workspace,
                self.workspace,
                from_ref(&nothing).cast(),
                self.result,
                result,
            )
        };
        told("a convolution of cuDNN", status)
    }
}
