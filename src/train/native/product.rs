//! A product on the tensors of Burn's CUDA runtime: who computes it.

use super::layout::{alignment, matrices};
use super::library::{Opaque, lt};
use super::operation::Cube;
use super::plan::{Kind, Plan, plan};
use super::submit::{bound, pointer, report, submit};
use super::{Fault, Options, format, told};
use burn::backend::DType;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul as by_burn};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::empty_device_dtype;
use std::ptr::from_ref;

/// The product of tensors whose shapes fit. What cuBLASLt cannot do is done by Burn.
pub fn matmul(factors: Vec<Cube>, dtype: DType, options: Options) -> Vec<Cube> {
    let Ok([mut lhs, mut rhs]) = <[Cube; 2]>::try_from(factors) else { unreachable!("a product has two factors") };
    let axes = lhs.meta.num_dims();
    for (tensor, transposed) in [(&mut lhs, options.transpose_lhs), (&mut rhs, options.transpose_rhs)] {
        if transposed {
            tensor.meta.swap(axes - 2, axes - 1);
        }
    }
    let mut shape = lhs.meta.shape().clone();
    shape[axes - 1] = rhs.meta.shape()[axes - 1];
    let out = empty_device_dtype(lhs.client.clone(), lhs.device.clone(), shape, dtype);
    // What does not lie as the library reads it is brought together first: less work than a product by anyone else.
    for tensor in [&mut lhs, &mut rhs] {
        if matrices(tensor.meta.shape(), tensor.meta.strides()).is_none() {
            *tensor = into_contiguous(tensor.clone());
        }
    }
    match kind(&lhs, &rhs, &out, options).and_then(plan) {
        Some(plan) => {
            queue(&lhs, &rhs, &out, plan);
            vec![out]
        }
        None => vec![slowly(lhs, rhs, out)],
    }
}

fn slowly(lhs: Cube, rhs: Cube, out: Cube) -> Cube {
    let (within, dtype) = (lhs.dtype, out.dtype);
    let given = (within == dtype).then_some(out.clone());
    match by_burn(lhs, rhs, given, MatmulStrategy::default(), within) {
        Ok(product) if within == dtype => product,
        Ok(product) => cast(product, dtype),
        Err(error) => {
            report(&Fault::Runtime(format!("{error:?}")));
            out
        }
    }
}

fn kind(lhs: &Cube, rhs: &Cube, out: &Cube, options: Options) -> Option<Kind> {
    let lies = |tensor: &Cube| matrices(tensor.meta.shape(), tensor.meta.strides());
    // Read column after column every matrix is its transpose, and that of a product is the product of the transposes in the other order.
    let ((first, _), (second, _), (product, count)) = (lies(rhs)?, lies(lhs)?, lies(out)?);
    Some(Kind {
        device: lhs.device.index,
        first,
        second,
        product,
        count,
        factors: format(lhs.dtype)?,
        result: format(out.dtype)?,
        rounded: options.tf32,
        aligned: [rhs, lhs, out].map(|tensor| alignment(tensor.handle.offset_start.unwrap_or(0))),
    })
}

/// Sends a product to the thread that talks to the card, behind all that was sent there from this thread.
fn queue(lhs: &Cube, rhs: &Cube, out: &Cube, plan: &'static Plan) {
    let mut buffers = vec![bound(&rhs.handle), bound(&lhs.handle), bound(&out.handle)];
    if plan.workspace > 0 {
        buffers.push(out.client.empty(plan.workspace).binding());
    }
    submit(&out.device, buffers, move |places, stream| {
        multiply(plan, [0, 1, 2, 3].map(|place| places.get(place).copied().unwrap_or(0)), stream)
    });
}

/// Queues a product, on the thread that talks to the card. The operands lie at these addresses in the order of the plan, behind them the memory that the plan needs beside
/// them, zero for none.
pub fn multiply(plan: &Plan, places: [u64; 4], stream: Opaque) -> Result<(), Fault> {
    let lt = lt().ok_or(Fault::Absent)?;
    let [first, second, product, workspace] = places.map(|place| pointer(Some(&place)));
    let (first, second, product, workspace) = (first?, second?, product?, workspace?);
    let (one, nothing) = (1.0_f32, 0.0_f32);
    // SAFETY: the plan was made for operands that lie like these on this card, whose buffers are kept until the work is queued, behind which nothing
    // that the runtime does with them can come; the scalars are on the host and read at once.
    #[expect(unsafe_code, reason = "a function of cuBLASLt")]
    let status = unsafe {
        (lt.multiply)(
            plan.handle,
            plan.operation,
            from_ref(&one).cast(),
            first,
            plan.first,
            second,
            plan.second,
            from_ref(&nothing).cast(),
            product,
            plan.product,
            product,
            plan.product,
            &raw const plan.algorithm,
            workspace,
            plan.workspace,
            stream,
        )
    };
    told("cublasLtMatmul", status)
}
