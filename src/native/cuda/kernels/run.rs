//! Launches kernels in order with the work of Burn's runtime, on the thread that talks to the GPU.

use super::compile::{Program, image};
use crate::cuda::library::{Opaque, driver};
use crate::cuda::plan::Plan;
use crate::cuda::product::multiply;
use crate::cuda::submit::{bound, submit};
use crate::cuda::{Cube, Fault, check};
use cubecl::server::Handle;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// A parameter of a kernel.
pub enum Argument<'a> {
    /// The address of a buffer on the GPU; zero for none.
    Address(u64),
    /// An integer.
    U32(u32),
    /// A float32 number.
    F32(f32),
    /// A structure, as words of memory.
    Words(&'a [u64]),
}

/// Combines two half words in memory order.
pub fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// Whether all addresses are multiples of `bytes`, as a flag for a kernel.
pub fn aligned(addresses: &[u64], bytes: u64) -> bool {
    addresses.iter().all(|address| address.is_multiple_of(bytes))
}

/// Submits launches to the thread that talks to the GPU, after all work submitted from this thread. They get the
/// addresses of the buffers.
///
/// Temporary memory is passed as handles, too: the runtime reuses it in stream order.
pub fn queue(
    program: Program,
    like: &Cube,
    buffers: &[&Handle],
    work: impl FnOnce(&[u64], &Launcher) -> Result<(), Fault> + Send + 'static,
) {
    let index = like.device.index;
    submit(&like.device, buffers.iter().map(|handle| bound(handle)).collect(), move |places, stream| {
        work(places, &Launcher::of(program, index, stream)?)
    });
}

/// As [`queue`], with the addresses of tensors, zero for missing ones.
pub fn queue_some(
    program: Program,
    like: &Cube,
    tensors: &[Option<&Cube>],
    work: impl FnOnce(Vec<u64>, &Launcher) -> Result<(), Fault> + Send + 'static,
) {
    let there: Vec<bool> = tensors.iter().map(Option::is_some).collect();
    let buffers: Vec<&Handle> = tensors.iter().flatten().map(|tensor| &tensor.handle).collect();
    queue(program, like, &buffers, move |places, card| {
        let mut places = places.iter().copied();
        let mut address = |there| if there { places.next() } else { None };
        work(there.into_iter().map(|there| address(there).unwrap_or(0)).collect(), card)
    });
}

thread_local! {
    /// The runtime talks to a GPU from one thread, so these are thread-local: modules by context and program, functions
    /// by module and name.
    static MODULES: RefCell<HashMap<(usize, Program), usize>> = RefCell::default();
    static FUNCTIONS: RefCell<HashMap<(usize, &'static CStr), usize>> = RefCell::default();
}

fn module(program: Program, device: usize) -> Result<Opaque, Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    let mut context = null_mut();
    // SAFETY: the context can be written to.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuCtxGetCurrent", unsafe { (driver.current)(&raw mut context) })?;
    let key = (context.expose_provenance(), program);
    if let Some(module) = MODULES.with_borrow(|modules| modules.get(&key).copied()) {
        return Ok(with_exposed_provenance_mut(module));
    }
    let image = image(program, device).ok_or(Fault::Absent)?;
    let mut module = null_mut();
    // SAFETY: the image is whole machine code from the compiler, for this kind of card.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuModuleLoadData", unsafe { (driver.load)(&raw mut module, image.as_ptr()) })?;
    MODULES.with_borrow_mut(|modules| modules.insert(key, module.expose_provenance()));
    Ok(module)
}

/// Launches kernels of a program, in the stream of the tensors.
pub struct Launcher {
    module: Opaque,
    stream: Opaque,
}

impl Launcher {
    /// Loads a program on the GPU whose context is current, for one of its streams.
    pub fn of(program: Program, card: usize, stream: Opaque) -> Result<Self, Fault> {
        Ok(Self { module: module(program, card)?, stream })
    }

    /// Launches a kernel. The arguments must match its source.
    pub fn launch(
        &self,
        name: &'static CStr,
        [blocks, blocks_down]: [u32; 2],
        [threads, threads_down]: [u32; 2],
        arguments: &[Argument<'_>],
    ) -> Result<(), Fault> {
        let driver = driver().ok_or(Fault::Absent)?;
        let function = self.function(name)?;
        let (mut words, mut starts) = (Vec::with_capacity(arguments.len()), Vec::with_capacity(arguments.len()));
        for argument in arguments {
            starts.push(words.len());
            match argument {
                Argument::Address(address) => words.push(*address),
                Argument::U32(value) => words.push(pair(*value, 0)),
                Argument::F32(value) => words.push(pair(value.to_bits(), 0)),
                Argument::Words(structure) => words.extend_from_slice(structure),
            }
        }
        let first = words.as_mut_ptr();
        let mut pointers: Vec<Opaque> = starts.iter().map(|start| first.wrapping_add(*start).cast()).collect();
        // SAFETY: the function belongs to a module of the current context, and the stream too. There is a pointer for
        // each of its parameters to at least as many bytes as it has, which are copied before the call is over. Buffers
        // are those of tensors with the shapes that the kernel is told.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        let status = unsafe {
            (driver.launch)(
                function,
                blocks,
                blocks_down,
                1,
                threads,
                threads_down,
                1,
                0,
                self.stream,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        check("cuLaunchKernel", status)
    }

    /// Queues a cuBLASLt product between kernels. `places` are the addresses of the plan's operands and workspace.
    pub fn multiply(&self, plan: &Plan, places: [u64; 4]) -> Result<(), Fault> {
        multiply(plan, places, self.stream)
    }

    fn function(&self, name: &'static CStr) -> Result<Opaque, Fault> {
        let key = (self.module.addr(), name);
        if let Some(function) = FUNCTIONS.with_borrow(|functions| functions.get(&key).copied()) {
            return Ok(with_exposed_provenance_mut(function));
        }
        let driver = driver().ok_or(Fault::Absent)?;
        let mut function = null_mut();
        // SAFETY: the module was loaded and is never unloaded; the name ends with a zero.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuModuleGetFunction", unsafe { (driver.function)(&raw mut function, self.module, name.as_ptr()) })?;
        FUNCTIONS.with_borrow_mut(|functions| functions.insert(key, function.expose_provenance()));
        Ok(function)
    }
}
