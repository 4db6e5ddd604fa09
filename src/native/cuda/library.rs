//! Bindings to the functions of cuBLASLt and of the CUDA driver that are called directly, loaded at run time: a machine
//! without them uses other code.

use super::check;
use libloading::Library;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::OnceLock;

/// An opaque object of a library.
pub type Opaque = *mut c_void;

/// `cublasLtMatmulAlgo_t`.
pub type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Found {
    /// The algorithm with its configuration.
    pub algorithm: Algorithm,
    /// The size of its workspace in bytes.
    pub workspace: usize,
    /// Zero if it can run.
    pub state: c_int,
    /// The utilization of the GPU, in waves.
    pub waves: f32,
    /// Reserved for later versions.
    pub reserved: [c_int; 4],
}

macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($(#[$what:meta])* $name:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        $(#[$about])*
        pub struct $table {
            $($(#[$what])* pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps the library loaded, because unloading would remove the functions.
            _library: Library,
        }

        impl $table {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                $(
                    // SAFETY: the type is that of the function in the headers of CUDA 12 and 13, whose enums are `int`s
                    // of C; the table keeps the library for as long as it has the pointer.
                    #[expect(unsafe_code, reason = "a function of a library that is loaded at run time")]
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol) }?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

pub(super) use functions;

functions! {
    /// Functions of `cublasLt.h`. Each returns a `cublasStatus_t`.
    Lt {
        /// `cublasLtCreate(handle)`.
        create = c"cublasLtCreate" (*mut Opaque);
        /// `cublasLtMatmulDescCreate(description, compute type, type of the scalars)`.
        operation = c"cublasLtMatmulDescCreate" (*mut Opaque, c_int, c_int);
        /// `cublasLtMatmulDescSetAttribute(description, attribute, value, its size)`.
        set_operation = c"cublasLtMatmulDescSetAttribute" (Opaque, c_int, *const c_void, usize);
        /// `cublasLtMatrixLayoutCreate(layout, type, rows, columns, leading dimension)`.
        layout = c"cublasLtMatrixLayoutCreate" (*mut Opaque, c_int, u64, u64, i64);
        /// `cublasLtMatrixLayoutSetAttribute(layout, attribute, value, its size)`.
        set_layout = c"cublasLtMatrixLayoutSetAttribute" (Opaque, c_int, *const c_void, usize);
        /// `cublasLtMatmulPreferenceCreate(preference)`.
        preference = c"cublasLtMatmulPreferenceCreate" (*mut Opaque);
        /// `cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, its size)`.
        set_preference = c"cublasLtMatmulPreferenceSetAttribute" (Opaque, c_int, *const c_void, usize);
        /// `cublasLtMatmulPreferenceDestroy(preference)`.
        drop_preference = c"cublasLtMatmulPreferenceDestroy" (Opaque);
        /// `cublasLtMatmulAlgoGetHeuristic(handle, operation, A, B, C, D, preference, wanted, found, how many)`.
        find = c"cublasLtMatmulAlgoGetHeuristic" (
            Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut Found, *mut c_int
        );
        /// `cublasLtMatmul(handle, operation, alpha, A, its layout, B, …, beta, C, …, D, …, algorithm, workspace, its size, stream)`.
        multiply = c"cublasLtMatmul" (
            Opaque, Opaque, *const c_void, *const c_void, Opaque, *const c_void, Opaque, *const c_void, *const c_void, Opaque,
            *mut c_void, Opaque, *const Algorithm, *mut c_void, usize, Opaque
        );
    }
}

functions! {
    /// Functions of `cuda.h`. Each returns a `CUresult`.
    Driver {
        /// `cuInit(flags)`.
        init = c"cuInit" (c_uint);
        /// `cuDeviceGet(device, ordinal)`.
        device = c"cuDeviceGet" (*mut c_int, c_int);
        /// `cuDeviceGetAttribute(value, attribute, device)`.
        attribute = c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
        /// `cuDevicePrimaryCtxRetain(context, device)`.
        primary = c"cuDevicePrimaryCtxRetain" (*mut Opaque, c_int);
        /// `cuCtxSetCurrent(context)`.
        set_current = c"cuCtxSetCurrent" (Opaque);
        /// `cuCtxGetCurrent(context)`.
        current = c"cuCtxGetCurrent" (*mut Opaque);
        /// `cuModuleLoadData(module, image)`.
        load = c"cuModuleLoadData" (*mut Opaque, *const u8);
        /// `cuModuleGetFunction(function, module, name)`.
        function = c"cuModuleGetFunction" (*mut Opaque, Opaque, *const c_char);
        /// `cuLaunchKernel(function, grid, block, bytes of shared memory, stream, parameters, extra)`.
        launch = c"cuLaunchKernel" (
            Opaque, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Opaque, *mut Opaque, *mut Opaque
        );
        /// `cuMemGetInfo(free, total)`.
        memory = c"cuMemGetInfo_v2" (*mut usize, *mut usize);
        /// `cuMemAlloc(address, bytes)`.
        allocate = c"cuMemAlloc_v2" (*mut u64, usize);
        /// `cuMemHostAlloc(address, bytes, flags)`: host memory that GPUs can read and write.
        pages = c"cuMemHostAlloc" (*mut Opaque, usize, c_uint);
        /// `cuDeviceCanAccessPeer(whether, device, other device)`.
        reaches = c"cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
        /// `cuMemcpyAsync(to, from, bytes, stream)`, also between GPUs and the host.
        copy = c"cuMemcpyAsync" (u64, u64, usize, Opaque);
        /// `cuDeviceGetMemPool(pool, device)`.
        pool = c"cuDeviceGetMemPool" (*mut Opaque, c_int);
        /// `cuMemPoolSetAccess(pool, descriptions, how many)`.
        share = c"cuMemPoolSetAccess" (Opaque, *const c_void, usize);
        /// `cuStreamCreate(stream, flags)`.
        stream = c"cuStreamCreate" (*mut Opaque, c_uint);
        /// `cuStreamCreateWithPriority(stream, flags, priority)`, lower numbers first.
        urgent = c"cuStreamCreateWithPriority" (*mut Opaque, c_uint, c_int);
        /// `cuStreamSynchronize(stream)`.
        await_all = c"cuStreamSynchronize" (Opaque);
        /// `cuStreamGetCtx(stream, context)`.
        context_of = c"cuStreamGetCtx" (Opaque, *mut Opaque);
        /// `cuStreamWaitEvent(stream, event, flags)`.
        wait = c"cuStreamWaitEvent" (Opaque, Opaque, c_uint);
        /// `cuMemsetD8Async(to, byte, how often, stream)`.
        fill = c"cuMemsetD8Async" (u64, c_uchar, usize, Opaque);
        /// `cuEventCreate(event, flags)`.
        event = c"cuEventCreate" (*mut Opaque, c_uint);
        /// `cuEventDestroy(event)`.
        destroy = c"cuEventDestroy_v2" (Opaque);
        /// `cuEventRecord(event, stream)`.
        record = c"cuEventRecord" (Opaque, Opaque);
        /// `cuEventRecordWithFlags(event, stream, flags)`.
        record_with = c"cuEventRecordWithFlags" (Opaque, Opaque, c_uint);
        /// `cuStreamIsCapturing(stream, status)`.
        is_capturing = c"cuStreamIsCapturing" (Opaque, *mut c_int);
        /// `cuThreadExchangeStreamCaptureMode(mode)`: sets the mode of this thread and stores the previous one in its
        /// place.
        capture_mode = c"cuThreadExchangeStreamCaptureMode" (*mut c_int);
        /// `cuEventQuery(event)`.
        query = c"cuEventQuery" (Opaque);
        /// `cuEventElapsedTime(milliseconds, first, second)`.
        elapsed = c"cuEventElapsedTime" (*mut f32, Opaque, Opaque);
        /// `cuCtxRecordEvent(context, event)`, since CUDA 12.5.
        record_all = c"cuCtxRecordEvent" (Opaque, Opaque);
        /// `cuCtxWaitEvent(context, event)`, since CUDA 12.5.
        wait_all = c"cuCtxWaitEvent" (Opaque, Opaque);
    }
}

/// Returns cuBLASLt, loaded on first use.
pub fn lt() -> Option<&'static Lt> {
    static LT: OnceLock<Option<Lt>> = OnceLock::new();
    // In the order of `ledger-gpu`'s survey, whose result is part of the run's identity.
    let names = ["libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"];
    LT.get_or_init(|| names.iter().find_map(|name| open(name, Lt::of))).as_ref()
}

/// Returns the CUDA driver, loaded and initialised on first use, possibly before the runtime's.
pub fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let begun = |driver: &Driver| {
        // SAFETY: it takes no memory, and may be called again and again.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        let status = unsafe { (driver.init)(0) };
        check("cuInit", status).is_ok()
    };
    DRIVER.get_or_init(|| open("libcuda.so.1", Driver::of).filter(begun)).as_ref()
}

pub(super) fn open<T>(name: &str, of: impl FnOnce(Library) -> Result<T, libloading::Error>) -> Option<T> {
    // SAFETY: loading runs the library's initialisers. Only NVIDIA's own libraries are loaded here, and theirs are made
    // to be run by any program.
    #[expect(unsafe_code, reason = "libraries that may be absent can only be loaded at run time")]
    let library = unsafe { Library::new(name) };
    library.and_then(of).ok()
}
