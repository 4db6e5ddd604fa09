//! Operations directly on the buffers of Burn's tensors on a CUDA device: matrix products by cuBLASLt (on an H200 three
//! to seven times as fast as Burn's kernels), convolutions by cuDNN (`dnn`), and our own kernels (`kernels`).
//!
//! Knows how Burn stores tensors on a CUDA device, and nothing of models. All work is queued in order with Burn's
//! operations (`submit`): no thread waits for the GPU, and nothing is copied. Functions return `None` if a library is
//! missing, on other devices, on a tape, and for unsupported operands. Shapes and formats decide this before anything
//! is queued. Failures after that are returned by [`fault_on`].

pub mod dnn;
pub mod event;
pub mod kernels;
mod layout;
mod library;
pub mod load;
pub mod memory;
pub mod nccl;
mod order;
pub mod peer;
mod plan;
mod product;
pub mod step_graph;
mod submit;

pub use submit::{Failure, begin, fault, fault_on};

use burn::backend::{Cuda, DispatchDevice};
use burn::tensor::{DType, Device, Int, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::cuda::CudaRuntime;
use plan::Format;
use std::ffi::c_int;

/// A tensor of Burn's CUDA backend, floating-point or integer: its buffer and layout.
pub(crate) type Cube = CubeTensor<CudaRuntime>;

/// The configuration of a matrix product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether the last two axes of the first factor are exchanged.
    pub transpose_lhs: bool,
    /// Whether the last two axes of the second factor are exchanged.
    pub transpose_rhs: bool,
    /// Whether float32 factors may be rounded to TF32.
    pub tf32: bool,
    /// Whether the product is in float32 whatever the format of the factors.
    pub exact: bool,
}

/// Why NVIDIA's libraries or our kernels did not compute something.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A library is missing.
    #[error("cuBLASLt, cuDNN, NVRTC or the CUDA driver cannot be loaded")]
    Absent,
    /// A function failed.
    #[error("{what} failed ({code})")]
    Failed {
        /// The function.
        what: &'static str,
        /// Its status code.
        code: c_int,
    },
    /// Burn's runtime failed.
    #[error("the runtime failed: {0}")]
    Runtime(String),
    /// Another GPU no longer takes part in a joint operation.
    #[error("another card takes no part any more")]
    Gone,
}

/// Multiplies matrices along the last two axes, for each index of the leading axes, which both factors share. `None` if
/// cuBLASLt is missing or cannot be used: on another device, on a tape, or for formats that differ.
pub fn matmul<const D: usize>(lhs: &Tensor<D>, rhs: &Tensor<D>, options: Options) -> Option<Tensor<D>> {
    product_shape(lhs.dims(), rhs.dims(), options)?;
    let alike = lhs.dtype() == rhs.dtype() && format(lhs.dtype()).is_some();
    if !alike || card_of(&lhs.device()).is_none() || card_of(&rhs.device()).is_none() || !available() {
        return None;
    }
    let dtype = if options.exact { DType::F32 } else { lhs.dtype() };
    Some(tensor(product::matmul(primitive(lhs)?, primitive(rhs)?, dtype, options)))
}

/// Whether cuBLASLt and the driver can be loaded.
pub fn available() -> bool {
    library::lt().is_some() && library::driver().is_some()
}

/// Returns the ordinal of a GPU, or `None` for other devices.
pub fn card_of(device: &Device) -> Option<usize> {
    match device.as_dispatch() {
        DispatchDevice::Cuda(device) => Some(device.index),
        _ => None,
    }
}

/// Returns a second reference to a tensor of the CUDA backend.
fn primitive<const D: usize>(tensor: &Tensor<D>) -> Option<Cube> {
    tensor.clone().try_into_primitive::<Cuda>().ok()
}

/// As [`primitive`], for an optional tensor.
fn beside<const D: usize>(tensor: Option<&Tensor<D>>) -> Option<Option<Cube>> {
    tensor.map_or(Some(None), |tensor| primitive(tensor).map(Some))
}

/// Converts a tensor that is known to be one of the CUDA backend.
fn owned<const D: usize>(tensor: Tensor<D>) -> Cube {
    match tensor.try_into_primitive::<Cuda>() {
        Ok(tensor) => tensor,
        Err(error) => panic!("a tensor is not where it was when its kernel was chosen: {error:?}"),
    }
}

/// Returns a second reference to an integer tensor of the CUDA backend.
fn whole<const D: usize>(tensor: &Tensor<D, Int>) -> Option<Cube> {
    tensor.clone().try_into_primitive::<Cuda>().ok()
}

fn tensor<const D: usize>(primitive: Cube) -> Tensor<D> {
    Tensor::from_primitive::<Cuda>(primitive)
}

/// Returns the shape of a product, or `None` if the factors do not fit or are empty.
fn product_shape<const D: usize>(mut lhs: [usize; D], mut rhs: [usize; D], options: Options) -> Option<[usize; D]> {
    let (rows, columns) = (D.checked_sub(2)?, D.checked_sub(1)?);
    if options.transpose_lhs {
        lhs.swap(rows, columns);
    }
    if options.transpose_rhs {
        rhs.swap(rows, columns);
    }
    if lhs[columns] != rhs[rows] || lhs[..rows] != rhs[..rows] || lhs.contains(&0) || rhs.contains(&0) {
        return None;
    }
    lhs[columns] = rhs[columns];
    Some(lhs)
}

fn format(dtype: DType) -> Option<Format> {
    match dtype {
        DType::F32 => Some(Format::F32),
        DType::F16 => Some(Format::F16),
        DType::BF16 => Some(Format::Bf16),
        _ => None,
    }
}

/// Converts a status code of NVIDIA's libraries, of which zero is success.
fn check(what: &'static str, code: c_int) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(Fault::Failed { what, code }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_products_are_computed() {
        let plain = Options::default();
        assert_eq!(product_shape([2, 3], [3, 5], plain), Some([2, 5]));
        assert_eq!(product_shape([3, 2], [3, 5], Options { transpose_lhs: true, ..plain }), Some([2, 5]));
        assert_eq!(product_shape([2, 3], [5, 3], Options { transpose_rhs: true, ..plain }), Some([2, 5]));
        assert_eq!(product_shape([7, 2, 3], [7, 3, 5], plain), Some([7, 2, 5]));
        assert_eq!(product_shape([7, 2, 3], [1, 3, 5], plain), None);
        assert_eq!(product_shape([2, 3], [4, 5], plain), None);
        assert_eq!(product_shape([0, 3], [3, 5], plain), None);
        assert_eq!(product_shape([3], [3], plain), None);
    }

    #[test]
    fn products_refuse_host_tensors() {
        let device = Device::flex();
        let (lhs, rhs) = (Tensor::<2>::ones([2, 3], &device), Tensor::<2>::ones([3, 4], &device));
        assert!(matmul(&lhs, &rhs, Options::default()).is_none(), "no CUDA device is asked for");
    }
}
