//! Submits cuDNN's work on tensors of Burn's CUDA runtime to the thread that talks to the GPU.

use super::descriptors::handle;
use super::library::{Dnn, dnn};
use crate::cuda::layout::packed;
use crate::cuda::library::{Opaque, driver};
use crate::cuda::submit::{bound, pointer, submit};
use crate::cuda::{Cube, Fault, check};
use burn::backend::{DType, Shape};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::null_mut;

/// The shape and type of a tensor to be computed.
pub type Promise = (Shape, DType);

thread_local! {
    /// Handles by the GPU's ordinal and the stream. The runtime talks to a GPU from one thread, and only one thread may
    /// use a handle at a time. Streams run concurrently, so they must not share a handle's memory.
    static HANDLES: RefCell<HashMap<(usize, Opaque), Opaque>> = RefCell::default();
}

/// The addresses of any number of buffers, as kernels take them.
pub struct Addresses {
    /// Buffers that are read.
    pub inputs: Vec<u64>,
    /// Buffers that are written.
    pub outputs: Vec<u64>,
    /// Temporary buffers; zero if none was requested.
    pub scratch: Vec<u64>,
    /// The ordinal of the GPU.
    pub card: usize,
    /// `cudaStream_t`.
    pub stream: Opaque,
}

/// The addresses of a fixed number of buffers.
#[derive(Clone, Copy)]
pub struct Places<const N: usize, const M: usize> {
    /// Buffers that are read.
    pub inputs: [Opaque; N],
    /// Buffers that are written.
    pub outputs: [Opaque; M],
    /// The temporary buffer; null if none was requested.
    pub workspace: Opaque,
}

impl<const N: usize, const M: usize> Places<N, M> {
    fn of(addresses: &Addresses) -> Result<Self, Fault> {
        let Addresses { inputs, outputs, scratch, .. } = addresses;
        let workspace = pointer(scratch.first())?;
        let mut all = Self { inputs: [null_mut(); N], outputs: [null_mut(); M], workspace };
        for (place, address) in all.inputs.iter_mut().chain(&mut all.outputs).zip(inputs.iter().chain(outputs)) {
            *place = pointer(Some(address))?;
        }
        Ok(all)
    }
}

/// Queues work of cuDNN on tensors, after all work submitted to the GPU from this thread. Returns the tensors that it
/// will compute.
pub fn queue<const N: usize, const M: usize>(
    inputs: [Cube; N],
    outputs: [Promise; M],
    workspace: usize,
    work: impl FnOnce(&Dnn, Opaque, Places<N, M>) -> Result<(), Fault> + Send + 'static,
) -> [Cube; M] {
    let made = queue_all(inputs.into(), outputs.into(), [workspace], |dnn, handle, addresses| {
        work(dnn, handle, Places::of(&addresses)?)
    });
    match made.try_into() {
        Ok(made) => made,
        Err(_) => unreachable!("as many outputs as were promised"),
    }
}

/// As [`queue`], for any number of tensors, with temporary buffers of these sizes in bytes.
pub fn queue_all<const B: usize>(
    inputs: Vec<Cube>,
    outputs: Vec<Promise>,
    scratch: [usize; B],
    work: impl FnOnce(&Dnn, Opaque, Addresses) -> Result<(), Fault> + Send + 'static,
) -> Vec<Cube> {
    let inputs: Vec<Cube> = inputs.into_iter().map(packed).collect();
    let [first, ..] = inputs.as_slice() else { unreachable!("an operation has operands") };
    let (client, device) = (first.client.clone(), first.device.clone());
    let new = |(shape, dtype)| empty_device_contiguous_dtype(client.clone(), device.clone(), shape, dtype);
    let outputs: Vec<Cube> = outputs.into_iter().map(new).collect();
    let (card, read, written) = (device.index, inputs.len(), outputs.len());
    let mut buffers: Vec<_> = inputs.iter().chain(&outputs).map(|tensor| bound(&tensor.handle)).collect();
    buffers.extend(scratch.into_iter().filter(|bytes| *bytes > 0).map(|bytes| client.empty(bytes).binding()));
    submit(&device, buffers, move |places, stream| {
        let dnn = dnn().ok_or(Fault::Absent)?;
        let mut places = places.iter().copied();
        let inputs = places.by_ref().take(read).collect();
        let outputs = places.by_ref().take(written).collect();
        let scratch = scratch.map(|bytes| if bytes > 0 { places.next().unwrap_or(0) } else { 0 }).into();
        work(dnn, ready(dnn, card, stream)?, Addresses { inputs, outputs, scratch, card, stream })
    });
    outputs
}

/// Fills a buffer with zeros.
pub fn clear(place: u64, bytes: usize, stream: Opaque) -> Result<(), Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    // SAFETY: the buffer has room for so many bytes and is kept until this is queued.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    let status = unsafe { (driver.fill)(place, 0, bytes, stream) };
    check("cuMemsetD8Async", status)
}

/// Returns this thread's handle for a stream. The GPU's context must be current.
fn ready(dnn: &Dnn, card: usize, stream: Opaque) -> Result<Opaque, Fault> {
    let handle = HANDLES.with_borrow_mut(|handles| {
        if let Some(handle) = handles.get(&(card, stream)) {
            return Ok(*handle);
        }
        let handle = handle(dnn)?;
        handles.insert((card, stream), handle);
        Ok::<_, Fault>(handle)
    })?;
    // SAFETY: the handle is of this thread, and the stream of its card.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.set_stream)(handle, stream) };
    check("cudnnSetStream", status)?;
    Ok(handle)
}
