//! Matrix products on the tensors of Burn's CUDA runtime, by cuBLASLt or by Burn.

use super::layout::{alignment, matrices};
use super::library::{Opaque, lt};
use super::plan::{Kind, Plan, Role, Vector, plan, plan_with};
use super::submit::{bound, pointer, report, submit};
use super::{Cube, Fault, Options, check, format};
use burn::backend::{DType, Shape};
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul as by_burn};
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::{add, empty_device_contiguous_dtype, empty_device_dtype};
use std::ptr::from_ref;

/// Multiplies tensors whose shapes fit. Burn computes what cuBLASLt cannot.
pub fn matmul(lhs: Cube, rhs: Cube, dtype: DType, options: Options) -> Cube {
    Task::new(lhs, rhs, dtype, options).run()
}

/// Multiplies matrices in this format and adds a contiguous bias [columns] in the same format to each row.
pub fn matmul_bias(lhs: Cube, rhs: Cube, bias: &Cube, dtype: DType, options: Options) -> Cube {
    let task = Task::new(lhs, rhs, dtype, options);
    let vector = Vector { role: Role::Bias, aligned: begins(bias), apart: 0 };
    match task.kind.and_then(|kind| plan_with(kind, Some(vector))) {
        Some(plan) => task.queue(plan, Some(bias)),
        None => add(task.run(), shaped(bias, [1, bias.meta.num_elements()])),
    }
}

/// Multiplies matrices in this format. Also returns sums of one factor in the same format, if cuBLASLt can compute them
/// with the product.
pub fn matmul_sums(lhs: Cube, rhs: Cube, of: Role, dtype: DType, options: Options) -> (Cube, Option<Cube>) {
    let task = Task::new(lhs, rhs, dtype, options);
    let axis = task.out.meta.num_dims() - if of == Role::SumsOfFirst { 2 } else { 1 };
    let len = task.out.meta.shape()[axis];
    let vector = Vector { role: of, aligned: alignment(0), apart: 0 };
    match task.kind.and_then(|kind| plan_with(kind, Some(vector))) {
        Some(plan) => {
            let sums = empty_device_dtype(task.out.client.clone(), task.out.device.clone(), Shape::from([len]), dtype);
            (task.queue(plan, Some(&sums)), Some(sums))
        }
        None => (task.run(), None),
    }
}

/// Allocates memory for a product. Rows that are not a multiple of 16 bytes are padded, for reads of 16 bytes. All
/// others are contiguous, so that later kernels need no copy.
fn room(like: &Cube, shape: Shape, dtype: DType) -> Cube {
    let wide = shape.last().copied().unwrap_or(0) * dtype.size();
    let empty = if wide.is_multiple_of(16) { empty_device_contiguous_dtype } else { empty_device_dtype };
    empty(like.client.clone(), like.device.clone(), shape, dtype)
}

/// Returns the values of a contiguous tensor, or the first of them, in another shape.
pub fn shaped(tensor: &Cube, shape: impl Into<Shape>) -> Cube {
    let (client, device) = (tensor.client.clone(), tensor.device.clone());
    Cube::new_contiguous(client, device, shape.into(), tensor.handle.clone(), tensor.dtype)
}

/// Returns the alignment of a tensor's address, in bytes.
pub fn begins(tensor: &Cube) -> u32 {
    alignment(tensor.handle.offset_start.unwrap_or(0))
}

/// A product to be computed.
struct Task {
    lhs: Cube,
    rhs: Cube,
    out: Cube,
    kind: Option<Kind>,
}

impl Task {
    fn new(mut lhs: Cube, mut rhs: Cube, dtype: DType, options: Options) -> Self {
        let axes = lhs.meta.num_dims();
        for (tensor, transposed) in [(&mut lhs, options.transpose_lhs), (&mut rhs, options.transpose_rhs)] {
            if transposed {
                tensor.meta.swap(axes - 2, axes - 1);
            }
        }
        let mut shape = lhs.meta.shape().clone();
        shape[axes - 1] = rhs.meta.shape()[axes - 1];
        let out = room(&lhs, shape, dtype);
        // Tensors in a layout that the library cannot read are copied first, which costs less than a product by Burn.
        for tensor in [&mut lhs, &mut rhs] {
            if matrices(tensor.meta.shape(), tensor.meta.strides()).is_none() {
                *tensor = into_contiguous(tensor.clone());
            }
        }
        let kind = kind(&lhs, &rhs, &out, options);
        Self { lhs, rhs, out, kind }
    }

    fn run(self) -> Cube {
        match self.kind.and_then(plan) {
            Some(plan) => self.queue(plan, None),
            None => slowly(self.lhs, self.rhs, self.out),
        }
    }

    fn queue(self, plan: &'static Plan, vector: Option<&Cube>) -> Cube {
        queue([&self.lhs, &self.rhs, &self.out], vector, plan);
        self.out
    }
}

fn slowly(lhs: Cube, rhs: Cube, out: Cube) -> Cube {
    let (within, dtype) = (lhs.dtype, out.dtype);
    let given = (within == dtype).then_some(out.clone());
    match by_burn(lhs, rhs, given, MatmulStrategy::default(), within) {
        Ok(product) if within == dtype => product,
        Ok(product) => cast(product, dtype),
        Err(error) => {
            report(out.device.index, &Fault::Runtime(format!("{error:?}")));
            out
        }
    }
}

fn kind(lhs: &Cube, rhs: &Cube, out: &Cube, options: Options) -> Option<Kind> {
    let lies = |tensor: &Cube| matrices(tensor.meta.shape(), tensor.meta.strides());
    // In column-major order every matrix is its transpose, and the transpose of a product is the product of the
    // transposes in reverse order.
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
        aligned: [rhs, lhs, out].map(begins),
    })
}

/// Submits a product to the thread that talks to the GPU, after all earlier work of this thread. `out` receives the
/// product, and `vector` is that of the plan.
pub fn queue([lhs, rhs, out]: [&Cube; 3], vector: Option<&Cube>, plan: &'static Plan) {
    let mut buffers = vec![bound(&rhs.handle), bound(&lhs.handle), bound(&out.handle)];
    let scratch = (plan.workspace > 0).then(|| {
        buffers.push(out.client.empty(plan.workspace).binding());
        buffers.len() - 1
    });
    let beside = vector.map(|vector| {
        buffers.push(bound(&vector.handle));
        buffers.len() - 1
    });
    submit(&out.device, buffers, move |places, stream| {
        let place = |number: Option<usize>| number.and_then(|number| places.get(number)).copied();
        let [first, second, product] = [0, 1, 2].map(|number| place(Some(number)).unwrap_or(0));
        multiply_with(plan, [first, second, product, place(scratch).unwrap_or(0)], place(beside), stream)
    });
}

/// Queues a product, on the thread that talks to the GPU. The addresses are those of the plan's operands in order, then
/// of its workspace; zero for none.
pub fn multiply(plan: &Plan, places: [u64; 4], stream: Opaque) -> Result<(), Fault> {
    multiply_with(plan, places, None, stream)
}

/// As [`multiply`], for a plan with a vector at this address.
fn multiply_with(plan: &Plan, places: [u64; 4], vector: Option<u64>, stream: Opaque) -> Result<(), Fault> {
    let lt = lt().ok_or(Fault::Absent)?;
    let [first, second, product, workspace] = places.map(|place| pointer(Some(&place)));
    let (first, second, product, workspace) = (first?, second?, product?, workspace?);
    let (one, nothing) = (1.0_f32, 0.0_f32);
    // SAFETY: the plan was made for operands that lie like these on this card, whose buffers are kept until the work is
    // queued, behind which nothing that the runtime does with them can come; the scalars are on the host and read at
    // once.
    #[expect(unsafe_code, reason = "a function of cuBLASLt")]
    let call = |operation| unsafe {
        (lt.multiply)(
            plan.handle,
            operation,
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
    plan.described(lt, vector, |operation| check("cublasLtMatmul", call(operation)))
}
