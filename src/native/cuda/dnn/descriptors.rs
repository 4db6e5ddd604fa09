//! Descriptors of tensors and of each kind of work. Like the plans of matrix products, they live as long as the
//! process.

use super::library::{Dnn, dnn};
use crate::cuda::library::{Opaque, driver};
use crate::cuda::plan::{Format, enter};
use crate::cuda::{Fault, check};
use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Debug;
use std::hash::Hash;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{LazyLock, Mutex, PoisonError};

/// `CUDNN_TENSOR_NCHW`.
const NCHW: c_int = 0;

/// Returns the `cudnnDataType_t` of a format.
pub fn code(format: Format) -> c_int {
    match format {
        Format::F32 => 0,
        Format::F16 => 2,
        Format::Bf16 => 9,
    }
}

/// The plan of each kind of work; `None` if cuDNN does not support it.
pub type Plans<K, P> = LazyLock<Mutex<HashMap<K, Option<&'static P>>>>;

/// Returns the plan for a kind of work, making it on first use. `None` if cuDNN does not support it.
pub fn plan<K: Clone + Debug + Eq + Hash, P>(
    plans: &Plans<K, P>,
    kind: &K,
    make: impl FnOnce(&'static Dnn) -> Result<P, Fault>,
) -> Option<&'static P> {
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = plans.get(kind) {
        return *plan;
    }
    let plan = match dnn().ok_or(Fault::Absent).and_then(make) {
        Ok(plan) => Some(&*Box::leak(Box::new(plan))),
        Err(fault) => {
            log::debug!("cuDNN does not take {kind:?}: {fault}");
            None
        }
    };
    plans.insert(kind.clone(), plan);
    plan
}

/// Queries cuDNN about a GPU. The handle is separate from those of the runtime's threads, because this thread may not
/// use theirs.
pub fn ask<T>(dnn: &Dnn, card: usize, question: impl FnOnce(Opaque) -> Result<T, Fault>) -> Result<T, Fault> {
    static HANDLES: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);
    enter(driver().ok_or(Fault::Absent)?, card)?;
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = match handles.get(&card) {
        Some(handle) => with_exposed_provenance_mut(*handle),
        None => {
            let handle = handle(dnn)?;
            handles.insert(card, handle.expose_provenance());
            handle
        }
    };
    question(handle)
}

/// Creates a handle for the current context.
pub fn handle(dnn: &Dnn) -> Result<Opaque, Fault> {
    // SAFETY: `new` can be written to, and a card's context is that of this thread.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    made("cudnnCreate", |new| unsafe { (dnn.create)(new) })
}

/// Creates the descriptor of a contiguous tensor, its last axis innermost.
pub fn tensor(dnn: &Dnn, format: Format, shape: [usize; 4]) -> Result<Opaque, Fault> {
    let [count, channels, height, width] = lengths(shape)?;
    // SAFETY: `new` can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let tensor = made("cudnnCreateTensorDescriptor", |new| unsafe { (dnn.tensor)(new) })?;
    // SAFETY: the descriptor was made above.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.set_tensor)(tensor, NCHW, code(format), count, channels, height, width) };
    check("cudnnSetTensor4dDescriptor", status)?;
    Ok(tensor)
}

/// Creates the descriptor of a max pooling.
pub fn pooling(dnn: &Dnn, size: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Result<Opaque, Fault> {
    let ([height, width], [above, beside], [down, along]) = (lengths(size)?, lengths(padding)?, lengths(stride)?);
    // SAFETY: `new` can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let pooling = made("cudnnCreatePoolingDescriptor", |new| unsafe { (dnn.pooling)(new) })?;
    // CUDNN_POOLING_MAX_DETERMINISTIC, and CUDNN_PROPAGATE_NAN: a NaN that pooling hides would not be noticed later.
    let (mode, nan) = (3, 1);
    // SAFETY: the descriptor was made above.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.set_pooling)(pooling, mode, nan, height, width, above, beside, down, along) };
    check("cudnnSetPooling2dDescriptor", status)?;
    Ok(pooling)
}

/// Converts lengths to cuDNN's type.
pub fn lengths<const N: usize>(shape: [usize; N]) -> Result<[c_int; N], Fault> {
    let mut lengths = [0; N];
    for (length, axis) in lengths.iter_mut().zip(shape) {
        *length = c_int::try_from(axis).map_err(|_| Fault::Runtime("a tensor is too long for cuDNN".to_owned()))?;
    }
    Ok(lengths)
}

/// Returns a descriptor that a function of cuDNN creates.
pub fn made(what: &'static str, make: impl FnOnce(*mut Opaque) -> c_int) -> Result<Opaque, Fault> {
    let mut new = null_mut();
    check(what, make(&raw mut new))?;
    Ok(new)
}
