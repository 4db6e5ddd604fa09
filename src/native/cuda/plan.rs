//! What cuBLASLt needs to know of a product before it runs: made once for each kind of product, kept for the life of the process.

use super::layout::Matrix;
use super::library::{Algorithm, Driver, Found, Lt, Opaque, driver, lt};
use super::{Fault, check};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes beside the operands that an algorithm may take: what NVIDIA recommends for Hopper.
const WORKSPACE: u64 = 32 << 20;

/// A number format of values in memory.
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
    /// Of a value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// `cudaDataType`.
    fn code(self) -> c_int {
        match self {
            Self::F32 => 0,
            Self::F16 => 2,
            Self::Bf16 => 14,
        }
    }
}

/// All on which the choice of a kernel depends. The operands are those of cuBLASLt, which computes the transposed product: its first is our second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The ordinal of the card.
    pub device: usize,
    /// Our second factor.
    pub first: Matrix,
    /// Our first factor.
    pub second: Matrix,
    /// The product.
    pub product: Matrix,
    /// How many products.
    pub count: i32,
    /// Format of the factors.
    pub factors: Format,
    /// Format of the product.
    pub result: Format,
    /// Factors in binary32 may be rounded to TF32.
    pub rounded: bool,
    /// What the addresses are multiples of, in bytes.
    pub aligned: [u32; 3],
}

/// A vector that takes part in a product, in the format of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    /// What it is.
    pub role: Role,
    /// What its address is a multiple of, in bytes.
    pub aligned: u32,
    /// Values from that of one product to that of the next.
    pub apart: i64,
}

/// What a vector is to a product. Our second factor is the library's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It is added to each of our rows, before the product is rounded.
    Bias,
    /// It gets the sums of our first factor over what both factors have in common: a value for each of our rows.
    SumsOfFirst,
    /// It gets those of our second factor: a value for each of our columns.
    SumsOfSecond,
}

impl Role {
    /// `cublasLtEpilogue_t`: BIAS, BGRADB and BGRADA.
    fn code(self) -> u32 {
        match self {
            Self::Bias => 4,
            Self::SumsOfFirst => 512,
            Self::SumsOfSecond => 256,
        }
    }
}

/// A product that is ready to run.
pub struct Plan {
    /// Of the library, for the card.
    pub handle: Opaque,
    /// What is computed. The address of a vector is a part of it, so that it is for one call at a time.
    operation: Mutex<Opaque>,
    /// Of the first operand.
    pub first: Opaque,
    /// Of the second.
    pub second: Opaque,
    /// Of the product.
    pub product: Opaque,
    /// The kernel.
    pub algorithm: Algorithm,
    /// Bytes that it needs beside the operands.
    pub workspace: usize,
}

impl Plan {
    /// Calls the library with the description of the product, in which the vector is at this address for as long as the call takes: the library reads it before it answers.
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

// SAFETY: the descriptors are plain memory of the library, which nobody frees; after the plan was made only that of the operation is written to, by whom has its lock. cuBLASLt lets
// several threads use one handle.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Plan {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Sync for Plan {}

#[derive(Default)]
struct Plans {
    /// None for what the library has no kernel for.
    plans: HashMap<(Kind, Option<Vector>), Option<&'static Plan>>,
    /// A handle as a number, so that the table can be shared.
    handles: HashMap<usize, usize>,
}

/// The plan for a kind of product; none where the library has no kernel for it.
///
/// Plans are never freed: a run has as many kinds as its model has shapes.
pub fn plan(kind: Kind) -> Option<&'static Plan> {
    plan_with(kind, None)
}

/// [`plan`] for a product with a vector.
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
    // The thread that makes plans is none of those that Burn's runtime talks to the card from.
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

/// The description of what is computed.
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
        // CUBLASLT_MATMUL_DESC_EPILOGUE, then _BIAS_POINTER: the search for a kernel reads nothing there and looks only at what the address is a multiple of.
        set(lt.set_operation, operation, 7, &vector.role.code())?;
        set(lt.set_operation, operation, 8, &u64::from(vector.aligned))?;
        if kind.count > 1 {
            // CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE.
            set(lt.set_operation, operation, 10, &vector.apart)?;
        }
    }
    Ok(operation)
}

/// Makes the card's primary context, the one of Burn's runtime, that of this thread.
pub fn enter(driver: &Driver, device: usize) -> Result<(), Fault> {
    let ordinal = c_int::try_from(device).map_err(|_| Fault::Absent)?;
    let (mut device, mut context) = (0, null_mut());
    // SAFETY: both can be written to; a context that is retained once more than released lives as long as the process, as the runtime's own does.
    #[expect(unsafe_code, reason = "functions of the CUDA driver")]
    unsafe {
        check("cuDeviceGet", (driver.device)(&raw mut device, ordinal))?;
        check("cuDevicePrimaryCtxRetain", (driver.primary)(&raw mut context, device))?;
        check("cuCtxSetCurrent", (driver.set_current)(context))
    }
}

/// The library's handle of a card.
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
