//! Work on the very buffers of Burn's tensors on a CUDA device: products of matrices by cuBLASLt (on an H200 three to seven times as fast as Burn's kernels), convolutions by
//! cuDNN (`dnn`), and kernels of ours (`kernels`).
//!
//! Knows how Burn keeps tensors on a CUDA device, and nothing of models. All of it takes its place among Burn's operations (`submit`): nobody
//! waits for the card, and nothing is copied. A function answers `None` where a library is not there, on other devices, on a tape, and for what
//! its kernels do not take: that is decided from shapes and formats, before anything is queued. What fails only once it is queued is told by
//! [`fault_on`].

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

/// What Burn's CUDA backend has for a tensor, of whole numbers as well as of real ones: its buffer and how it lies there.
pub(crate) type Cube = CubeTensor<CudaRuntime>;

/// What a product is besides its operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The last two axes of the first factor are exchanged.
    pub transpose_lhs: bool,
    /// The last two axes of the second factor are exchanged.
    pub transpose_rhs: bool,
    /// Factors in float32 may be rounded to TF32.
    pub tf32: bool,
    /// The product is in float32 whatever the factors are in.
    pub exact: bool,
}

/// Why NVIDIA's libraries or kernels of ours did not compute something.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A library is not there.
    #[error("cuBLASLt, cuDNN, NVRTC or the CUDA driver cannot be loaded")]
    Absent,
    /// A function failed.
    #[error("{what} failed ({code})")]
    Failed {
        /// The function.
        what: &'static str,
        /// What it answered.
        code: c_int,
    },
    /// Burn's runtime failed.
    #[error("the runtime failed: {0}")]
    Runtime(String),
    /// Another card does not do its part of what both do.
    #[error("another card takes no part any more")]
    Gone,
}

/// The product of the last two axes, for each index of the axes before them, which both factors have in common. None where cuBLASLt is not
/// there or this is not its matter: another device, a tape, formats that differ.
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

/// The ordinal of a card; none for other devices.
pub fn card_of(device: &Device) -> Option<usize> {
    match device.as_dispatch() {
        DispatchDevice::Cuda(device) => Some(device.index),
        _ => None,
    }
}

/// A second holder of a tensor of the CUDA backend.
fn primitive<const D: usize>(tensor: &Tensor<D>) -> Option<Cube> {
    tensor.clone().try_into_primitive::<Cuda>().ok()
}

/// [`primitive`] of a tensor that need not be there.
fn beside<const D: usize>(tensor: Option<&Tensor<D>>) -> Option<Option<Cube>> {
    tensor.map_or(Some(None), |tensor| primitive(tensor).map(Some))
}

/// The same tensor, of which it is known that it is one of the CUDA backend.
fn owned<const D: usize>(tensor: Tensor<D>) -> Cube {
    match tensor.try_into_primitive::<Cuda>() {
        Ok(tensor) => tensor,
        Err(error) => panic!("a tensor is not where it was when its kernel was chosen: {error:?}"),
    }
}

/// A second holder of a tensor of whole numbers of the CUDA backend.
fn whole<const D: usize>(tensor: &Tensor<D, Int>) -> Option<Cube> {
    tensor.clone().try_into_primitive::<Cuda>().ok()
}

fn tensor<const D: usize>(primitive: Cube) -> Tensor<D> {
    Tensor::from_primitive::<Cuda>(primitive)
}

/// The shape of a product; none where the factors do not fit or there is nothing in them.
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

/// A status of NVIDIA's libraries, where zero is success.
fn check(what: &'static str, code: c_int) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(Fault::Failed { what, code }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_products() {
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
    fn the_host_has_no_products_here() {
        let device = Device::flex();
        let (lhs, rhs) = (Tensor::<2>::ones([2, 3], &device), Tensor::<2>::ones([3, 4], &device));
        assert!(matmul(&lhs, &rhs, Options::default()).is_none(), "no CUDA device is asked for");
    }
}
