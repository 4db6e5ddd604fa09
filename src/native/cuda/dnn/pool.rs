//! Max pooling of images, and its gradient.

use super::descriptors::{self, Plans, pooling};
use super::job::{Places, queue};
use super::library::Dnn;
use super::{card, countable, fitting, primitive, tensor};
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use crate::cuda::{Fault, check, format};
use burn::tensor::Tensor;
use std::ptr::from_ref;
use std::sync::{LazyLock, Mutex};

/// The configuration of a max pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// The height and width of a window.
    pub size: [usize; 2],
    /// The vertical and horizontal stride.
    pub stride: [usize; 2],
    /// How far windows may extend beyond the image, vertically and horizontally.
    pub padding: [usize; 2],
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    format: Format,
    input: [usize; 4],
    output: [usize; 4],
    how: Pool,
}

/// A prepared pooling.
struct Plan {
    pooling: Opaque,
    input: Opaque,
    output: Opaque,
}

// SAFETY: the descriptors are plain memory of the library, which nobody writes to or frees after the plan was made.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Plan {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Sync for Plan {}

static PLANS: Plans<Kind, Plan> = LazyLock::new(Mutex::default);

/// Returns the largest value of each window that fits completely. `None` if cuDNN does not support it.
pub fn pool_max(x: &Tensor<4>, how: Pool) -> Option<Tensor<4>> {
    card(x)?;
    let output = output(x.dims(), how)?;
    let plan = plan(x, output, how)?;
    let promised = [(output.into(), x.dtype())];
    let [y] = queue([primitive(x)?], promised, 0, |dnn, handle, places| plan.forward(dnn, handle, places));
    Some(tensor(y))
}

/// Returns the gradient of the images, from the images, the result and its gradient. `None` if cuDNN does not support
/// it. If a window's maximum occurs several times, always the same occurrence gets the gradient.
pub fn pool_max_back(x: &Tensor<4>, y: &Tensor<4>, dy: &Tensor<4>, how: Pool) -> Option<Tensor<4>> {
    let (input, dtype, place) = (x.dims(), x.dtype(), card(x)?);
    let output = output(input, how)?;
    let alike = |tensor: &Tensor<4>| tensor.dims() == output && tensor.dtype() == dtype && card(tensor) == Some(place);
    let plan = plan(x, output, how).filter(|_| alike(y) && alike(dy))?;
    let given = [primitive(x)?, primitive(y)?, primitive(dy)?];
    let [dx] = queue(given, [(input.into(), dtype)], 0, |dnn, handle, places| plan.back(dnn, handle, places));
    Some(tensor(dx))
}

/// Returns the shape of the result, or `None` if a window could lie completely beyond the image.
fn output(input: [usize; 4], how: Pool) -> Option<[usize; 4]> {
    let [count, channels, image @ ..] = input;
    let within = how.padding.iter().zip(how.size).all(|(padding, size)| padding.saturating_mul(2) <= size);
    let [height, width] = fitting(image, how.size, how.stride, how.padding)?;
    let output = [count, channels, height, width];
    (within && countable(input) && countable(output)).then_some(output)
}

fn plan(x: &Tensor<4>, output: [usize; 4], how: Pool) -> Option<&'static Plan> {
    let kind = Kind { format: format(x.dtype())?, input: x.dims(), output, how };
    descriptors::plan(&PLANS, &kind, |dnn| {
        Ok(Plan {
            pooling: pooling(dnn, how.size, how.stride, how.padding)?,
            input: descriptors::tensor(dnn, kind.format, kind.input)?,
            output: descriptors::tensor(dnn, kind.format, kind.output)?,
        })
    })
}

impl Plan {
    fn forward(&self, dnn: &Dnn, handle: Opaque, places: Places<1, 1>) -> Result<(), Fault> {
        let Places { inputs: [x], outputs: [y], .. } = places;
        let (one, nothing) = (1.0_f32, 0.0_f32);
        // SAFETY: the plan was made for images of this shape and format, which lie as it was told and are kept until
        // the work is queued; the scalars are on the host and read at once.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.pool)(
                handle,
                self.pooling,
                from_ref(&one).cast(),
                self.input,
                x,
                from_ref(&nothing).cast(),
                self.output,
                y,
            )
        };
        check("cudnnPoolingForward", status)
    }

    fn back(&self, dnn: &Dnn, handle: Opaque, places: Places<3, 1>) -> Result<(), Fault> {
        let Places { inputs: [x, y, dy], outputs: [dx], .. } = places;
        let (one, nothing) = (1.0_f32, 0.0_f32);
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.pool_back)(
                handle,
                self.pooling,
                from_ref(&one).cast(),
                self.output,
                y,
                self.output,
                dy,
                self.input,
                x,
                from_ref(&nothing).cast(),
                self.input,
                dx,
            )
        };
        check("cudnnPoolingBackward", status)
    }
}
