//! Plans of cuBLASLt products, made once for each kind of product and kept until the process ends.

use super::layout::Matrix;
use super::library::{Algorithm, Driver, Found, Lt, Opaque, driver, lt};
use super::{Fault, check};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The maximum workspace of an algorithm in bytes: NVIDIA's recommendation for Hopper.
const WORKSPACE: u64 = 32 << 20;

/// The number format of values in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl Format {
    /// Returns the size of a value in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Returns the `cudaDataType`.
    fn code(self) -> c_int {
        match self {
            Self::F32 => 0,
            Self::F16 => 2,
            Self::Bf16 => 14,
        }
    }
}

/// Everything that the choice of a kernel depends on. The operands are cuBLASLt's, which computes the transposed
/// product: its first is our second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The ordinal of the GPU.
    pub device: usize,
    /// Our second factor.
    pub first: Matrix,
    /// Our first factor.
    pub second: Matrix,
    pub product: Matrix,
    /// The number of products.
    pub count: i32,
    /// The format of the factors.
    pub factors: Format,
    /// The format of the product.
    pub result: Format,
    /// Whether binary32 factors may be rounded to TF32.
    pub rounded: bool,
    /// The alignments of the addresses, in bytes.
    pub aligned: [u32; 3],
}

/// An additional vector operand of a product, in the format of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    pub role: Role,
    /// The alignment of its address, in bytes.
    pub aligned: u32,
    /// The distance between the vectors of two products, in values.
    pub apart: i64,
}

/// The role of a vector in a product. Our second factor is the library's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A bias that is added to each of our rows, before the product is rounded.
    Bias,
    /// An output with the sums of our first factor over the axis that both factors share: one value per row.
    SumsOfFirst,
    /// An output with the sums of our second factor over that axis: one value per column.
    SumsOfSecond,
}

impl Role {
    /// Returns the `cublasLtEpilogue_t`: BIAS, BGRADB or BGRADA.
    fn code(self) -> u32 {
        match self {
            Self::Bias => 4,
            Self::SumsOfFirst => 512,
            Self::SumsOfSecond => 256,
        }
    }
}

/// A prepared product.
pub struct Plan {
    /// The library's handle for the GPU.
    pub handle: Opaque,
    /// The description of the operation. It contains the address of the vector, so only one call may use it at a time.
    operation: Mutex<Opaque>,
    /// The layout of the first operand.
    pub first: Opaque,
    /// The layout of the second operand.
    pub second: Opaque,
    /// The layout of the product.
    pub product: Opaque,
    pub algorithm: Algorithm,
    /// The size of its workspace in bytes.
    pub workspace: usize,
}

impl Plan {
    /// Calls the library with the description of the operation, in which `vector` is the vector's address during the
    /// call: the library reads it before it returns.
    pub fn described(
        &self,
        lt: &Lt,
        vector: Option<u64>,
        call: impl FnOnce(Opaque) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let operation = self.operation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vector) = vector {
            // CUBLASLT_MATMUL_DESC_BIAS_POINTER.
            set(lt.set_operation, *operation, 8, &vector)?;
        }
        call(*operation)
    }
}

// SAFETY: the descriptors are plain memory of the library, which nobody frees; after the plan was made only that of the
// operation is written to, by whom has its lock. cuBLASLt lets several threads use one handle.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Plan {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Sync for Plan {}

#[derive(Default)]
struct Plans {
    /// Plans by kind; `None` if the library has no kernel.
    plans: HashMap<(Kind, Option<Vector>), Option<&'static Plan>>,
    /// Handles by GPU, as numbers, so that the table can be shared.
    handles: HashMap<usize, usize>,
}

/// Returns the plan for a kind of product, or `None` if the library has no kernel for it.
///
/// Plans are never freed: a run has as many kinds as its model has shapes.
pub fn plan(kind: Kind) -> Option<&'static Plan> {
    plan_with(kind, None)
}

/// As [`plan`], for a product with a vector.
pub fn plan_with(kind: Kind, vector: Option<Vector>) -> Option<&'static Plan> {
    static PLANS: OnceLock<Mutex<Plans>> = OnceLock::new();
    let mut plans = PLANS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = plans.plans.get(&(kind, vector)) {
        return *plan;
    }
    let plan = match make(&mut plans.handles, kind, vector) {
        Ok(plan) => Some(&*Box::leak(Box::new(plan))),
        Err(fault) => {
            log::debug!("cuBLASLt does not take {kind:?} with {vector:?}: {fault}");
            None
        }
    };
    plans.plans.insert((kind, vector), plan);
    plan
}

fn make(handles: &mut HashMap<usize, usize>, kind: Kind, vector: Option<Vector>) -> Result<Plan, Fault> {
    let (lt, driver) = (lt().ok_or(Fault::Absent)?, driver().ok_or(Fault::Absent)?);
    // This thread is not one from which Burn's runtime talks to the GPU, so it has to make the context current.
    enter(driver, kind.device)?;
    let handle = handle(lt, handles, kind.device)?;
    let operation = operation(lt, kind, vector)?;
    let first = layout(lt, kind.factors, kind.first, kind.count)?;
    let second = layout(lt, kind.factors, kind.second, kind.count)?;
    let product = layout(lt, kind.result, kind.product, kind.count)?;
    let preference = made(|new| {
        // SAFETY: `new` can be written to.
        #[expect(unsafe_code, reason = "a function of cuBLASLt")]
        unsafe {
            (lt.preference)(new)
        }
    })?;
    // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, then _MIN_ALIGNMENT_A_BYTES, _B_, _C_ and _D_.
    set(lt.set_preference, preference, 1, &WORKSPACE)?;
    let [a, b, d] = kind.aligned;
    for (attribute, aligned) in [(5, a), (6, b), (7, d), (8, d)] {
        set(lt.set_preference, preference, attribute, &aligned)?;
    }
    let (mut found, mut count) = (Found::default(), 0);
    // SAFETY: the descriptors were made above; one result is asked for and there is room for one.
    #[expect(unsafe_code, reason = "a function of cuBLASLt")]
    let status = unsafe {
        let status = (lt.find)(
            handle,
            operation,
            first,
            second,
            product,
            product,
            preference,
            1,
            &raw mut found,
            &raw mut count,
        );
        (lt.drop_preference)(preference);
        status
    };
    check("cublasLtMatmulAlgoGetHeuristic", status)?;
    check("cublasLtMatmulAlgoGetHeuristic", if count == 0 { -1 } else { found.state })?;
    let operation = Mutex::new(operation);
    Ok(Plan { handle, operation, first, second, product, algorithm: found.algorithm, workspace: found.workspace })
}

/// Creates the description of the operation.
fn operation(lt: &Lt, kind: Kind, vector: Option<Vector>) -> Result<Opaque, Fault> {
    let compute = match (kind.factors, kind.rounded) {
        (Format::F32, true) => 77, // CUBLAS_COMPUTE_32F_FAST_TF32
        _ => 68,                   // CUBLAS_COMPUTE_32F
    };
    let operation = made(|new| {
        // SAFETY: `new` can be written to.
        #[expect(unsafe_code, reason = "a function of cuBLASLt")]
        unsafe {
            (lt.operation)(new, compute, Format::F32.code())
        }
    })?;
    // CUBLASLT_MATMUL_DESC_TRANSA and _TRANSB; CUBLAS_OP_T is 1.
    for (attribute, matrix) in [(3, kind.first), (4, kind.second)] {
        set(lt.set_operation, operation, attribute, &c_int::from(matrix.transposed))?;
    }
    if let Some(vector) = vector {
        // CUBLASLT_MATMUL_DESC_EPILOGUE, then _BIAS_POINTER: the search for a kernel only checks the alignment of this
        // address and reads nothing there.
        set(lt.set_operation, operation, 7, &vector.role.code())?;
        set(lt.set_operation, operation, 8, &u64::from(vector.aligned))?;
        if kind.count > 1 {
            // CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE.
            set(lt.set_operation, operation, 10, &vector.apart)?;
        }
    }
    Ok(operation)
}

/// Makes the GPU's primary context, which Burn's runtime uses, current for this thread.
pub fn enter(driver: &Driver, device: usize) -> Result<(), Fault> {
    let ordinal = c_int::try_from(device).map_err(|_| Fault::Absent)?;
    let (mut device, mut context) = (0, null_mut());
    // SAFETY: both can be written to; a context that is retained once more than released lives as long as the process,
    // as the runtime's own does.
    #[expect(unsafe_code, reason = "functions of the CUDA driver")]
    unsafe {
        check("cuDeviceGet", (driver.device)(&raw mut device, ordinal))?;
        check("cuDevicePrimaryCtxRetain", (driver.primary)(&raw mut context, device))?;
        check("cuCtxSetCurrent", (driver.set_current)(context))
    }
}

/// Returns the library's handle for a GPU.
fn handle(lt: &Lt, handles: &mut HashMap<usize, usize>, device: usize) -> Result<Opaque, Fault> {
    if let Some(handle) = handles.get(&device) {
        return Ok(std::ptr::with_exposed_provenance_mut(*handle));
    }
    let handle = made(|new| {
        // SAFETY: `new` can be written to, and the card's context is that of this thread.
        #[expect(unsafe_code, reason = "a function of cuBLASLt")]
        unsafe {
            (lt.create)(new)
        }
    })?;
    handles.insert(device, handle.expose_provenance());
    Ok(handle)
}

fn layout(lt: &Lt, format: Format, matrix: Matrix, count: i32) -> Result<Opaque, Fault> {
    let layout = made(|new| {
        // SAFETY: `new` can be written to.
        #[expect(unsafe_code, reason = "a function of cuBLASLt")]
        unsafe {
            (lt.layout)(new, format.code(), matrix.rows, matrix.columns, matrix.distance)
        }
    })?;
    if count > 1 {
        // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT and _STRIDED_BATCH_OFFSET.
        set(lt.set_layout, layout, 5, &count)?;
        set(lt.set_layout, layout, 6, &matrix.apart)?;
    }
    Ok(layout)
}

fn made(make: impl FnOnce(*mut Opaque) -> c_int) -> Result<Opaque, Fault> {
    let mut new = null_mut();
    check("a descriptor of cuBLASLt", make(&raw mut new))?;
    Ok(new)
}

type Setter = unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> c_int;

fn set<T>(setter: Setter, object: Opaque, attribute: c_int, value: &T) -> Result<(), Fault> {
    // SAFETY: the object was made by the library and is that of the setter; the value is read, for as many bytes as it has.
    #[expect(unsafe_code, reason = "a function of cuBLASLt")]
    let status = unsafe { setter(object, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
    check("an attribute of cuBLASLt", status)
}
