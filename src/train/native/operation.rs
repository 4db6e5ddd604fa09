//! The place of work of our own among the operations that Burn gathers before it runs them: any number of tensors in, any number out.

use burn::backend::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaRuntime;

/// A tensor of the runtime: its buffer and how it lies there.
pub type Cube = CubeTensor<CudaRuntime>;

/// What Burn's CUDA backend has for a tensor, of whole numbers as well as of real ones.
#[cfg(feature = "fusion")]
pub type Primitive = burn_fusion::FusionTensor<burn_cubecl::fusion::FusionCubeRuntime<CudaRuntime>>;
/// What Burn's CUDA backend has for a tensor, of whole numbers as well as of real ones.
#[cfg(not(feature = "fusion"))]
pub type Primitive = Cube;

/// A tensor that is to come.
pub type Promise = (Shape, DType);

/// Puts work behind all that was asked of the device before.
///
/// It gets the inputs in their order and gives the outputs in theirs, with the shapes and formats that were promised, contiguous. An input that nobody
/// else has may be overwritten: `Cube::can_mut` tells.
pub fn register(
    name: &'static str,
    inputs: Vec<Primitive>,
    outputs: Vec<Promise>,
    work: impl Fn(Vec<Cube>) -> Vec<Cube> + Send + Sync + 'static,
) -> Vec<Primitive> {
    #[cfg(feature = "fusion")]
    let made = fused::register(name, inputs, outputs, Box::new(work));
    #[cfg(not(feature = "fusion"))]
    let made = {
        let _ = (name, outputs);
        work(inputs)
    };
    made
}

/// [`register`] for numbers of inputs and outputs that are known beforehand.
pub fn custom<const N: usize, const M: usize>(
    name: &'static str,
    inputs: [Primitive; N],
    outputs: [Promise; M],
    work: impl Fn([Cube; N]) -> [Cube; M] + Send + Sync + 'static,
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

#[cfg(feature = "fusion")]
mod fused {
    use super::{Cube, Primitive, Promise};
    use burn::tensor::StreamId;
    use burn_cubecl::CubeBackend;
    use burn_cubecl::fusion::{CubeFusionHandle, FusionCubeRuntime};
    use burn_fusion::stream::Operation;
    use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};
    use cubecl::cuda::CudaRuntime;
    use std::fmt;

    type Backend = CubeBackend<CudaRuntime>;
    type Work = Box<dyn Fn(Vec<Cube>) -> Vec<Cube> + Send + Sync>;

    struct Own {
        name: &'static str,
        inputs: Vec<TensorIr>,
        outputs: Vec<TensorIr>,
        work: Work,
    }

    impl fmt::Debug for Own {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name)
        }
    }

    impl Operation<FusionCubeRuntime<CudaRuntime>> for Own {
        fn execute(&self, handles: &mut HandleContainer<CubeFusionHandle<CudaRuntime>>) {
            // Whole numbers are kept like real ones, so that one function takes all out.
            let inputs = self.inputs.iter().map(|input| handles.get_float_tensor::<Backend>(input)).collect();
            for (output, made) in self.outputs.iter().zip((self.work)(inputs)) {
                handles.register_float_tensor::<Backend>(&output.id, made);
            }
        }
    }

    pub fn register(name: &'static str, inputs: Vec<Primitive>, outputs: Vec<Promise>, work: Work) -> Vec<Primitive> {
        let Some(client) = inputs.first().map(|input| input.client.clone()) else { return Vec::new() };
        let inputs: Vec<TensorIr> = inputs.into_iter().map(Primitive::into_ir).collect();
        let uninit = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
        let outputs: Vec<TensorIr> = outputs.into_iter().map(uninit).collect();
        let operation = CustomOpIr::new(name, &inputs, &outputs);
        let own = Own { name, inputs, outputs, work };
        client.register(StreamId::current(), OperationIr::Custom(operation), own)
    }
}
