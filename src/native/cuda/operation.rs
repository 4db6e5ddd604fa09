//! The place of work of our own among the operations of Burn: any number of tensors in, any number out.

use burn::backend::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaRuntime;

/// A tensor of the runtime: its buffer and how it lies there.
pub type Cube = CubeTensor<CudaRuntime>;

/// What Burn's CUDA backend has for a tensor, of whole numbers as well as of real ones.
pub type Primitive = Cube;

/// A tensor that is to come.
pub type Promise = (Shape, DType);

/// Puts work behind all that was asked of the device before.
///
/// It gets the inputs in their order and gives the outputs in theirs, with the shapes and formats that were promised, contiguous: anything else is a fault of the operation of this
/// name. An input that nobody else has may be overwritten: `Cube::can_mut` tells.
pub fn register(
    name: &'static str,
    inputs: Vec<Primitive>,
    outputs: Vec<Promise>,
    work: impl FnOnce(Vec<Cube>) -> Vec<Cube>,
) -> Vec<Primitive> {
    let made = work(inputs);
    let kept = |(made, (shape, dtype)): (&Cube, &Promise)| *made.meta.shape() == *shape && made.dtype == *dtype;
    assert!(made.len() == outputs.len() && made.iter().zip(&outputs).all(kept), "`{name}` did not keep its promise");
    made
}

/// [`register`] for numbers of inputs and outputs that are known beforehand.
pub fn custom<const N: usize, const M: usize>(
    name: &'static str,
    inputs: [Primitive; N],
    outputs: [Promise; M],
    work: impl FnOnce([Cube; N]) -> [Cube; M],
) -> [Primitive; M] {
    exactly(register(name, inputs.into(), outputs.into(), move |inputs| match inputs.try_into() {
        Ok(inputs) => work(inputs).into(),
        Err(_) => unreachable!("as many inputs as were registered"),
    }))
}

/// The outputs of an operation that promised so many.
pub fn exactly<const M: usize>(outputs: Vec<Primitive>) -> [Primitive; M] {
    match <[Primitive; M]>::try_from(outputs) {
        Ok(outputs) => outputs,
        Err(_) => unreachable!("as many outputs as were promised"),
    }
}
