//! Work of cuDNN on tensors of Burn's CUDA runtime, and how it gets to the thread that talks to the card.

use super::super::layout::alignment;
use super::super::library::{Opaque, driver};
use super::super::operation::{Cube, Promise};
use super::super::submit::{bound, pointer, submit};
use super::super::{Fault, told};
use super::descriptors::handle;
use super::library::{Dnn, dnn};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::null_mut;

/// What an address has to be a multiple of so that a kernel may read it in the largest pieces there are.
const PIECE: u32 = 16;

thread_local! {
    /// By the ordinal of the card and the stream. The runtime talks to a card from one thread, and a handle is for one thread at a time; streams do not
    /// wait for each other, so that they must not share what memory a handle has.
    static HANDLES: RefCell<HashMap<(usize, Opaque), Opaque>> = RefCell::default();
}

/// Where the buffers of some work are on the card.
#[derive(Clone, Copy)]
pub struct Places<const N: usize, const M: usize> {
    /// What is read.
    pub inputs: [Opaque; N],
    /// What is written.
    pub outputs: [Opaque; M],
    /// What is used in between; null where nothing was asked for.
    pub workspace: Opaque,
    /// `cudaStream_t`.
    pub stream: Opaque,
}

impl<const N: usize, const M: usize> Places<N, M> {
    fn of(places: &[u64], stream: Opaque) -> Result<Self, Fault> {
        let mut all =
            Self { inputs: [null_mut(); N], outputs: [null_mut(); M], workspace: pointer(places.get(N + M))?, stream };
        for (place, address) in all.inputs.iter_mut().chain(&mut all.outputs).zip(places) {
            *place = pointer(Some(address))?;
        }
        Ok(all)
    }
}

/// Has cuDNN work on tensors behind all that was sent to the card from this thread, and answers what it will have made.
pub fn queue<const N: usize, const M: usize>(
    inputs: [Cube; N],
    outputs: [Promise; M],
    workspace: usize,
    work: impl FnOnce(&Dnn, Opaque, Places<N, M>) -> Result<(), Fault> + Send + 'static,
) -> [Cube; M] {
    let inputs = inputs.map(packed);
    let [first, ..] = inputs.as_slice() else { unreachable!("an operation has operands") };
    let (client, device) = (first.client.clone(), first.device.clone());
    let outputs =
        outputs.map(|(shape, dtype)| empty_device_contiguous_dtype(client.clone(), device.clone(), shape, dtype));
    let card = device.index;
    let mut buffers: Vec<_> = inputs.iter().chain(&outputs).map(|tensor| bound(&tensor.handle)).collect();
    if workspace > 0 {
        buffers.push(client.empty(workspace).binding());
    }
    submit(&device, buffers, move |places, stream| {
        let dnn = dnn().ok_or(Fault::Absent)?;
        work(dnn, ready(dnn, card, stream)?, Places::of(places, stream)?)
    });
    outputs
}

/// Copies float32 values of one buffer to another.
pub fn copy(from: Opaque, to: Opaque, values: usize, stream: Opaque) -> Result<(), Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    let [from, to] = [from, to].map(|place| u64::try_from(place.expose_provenance()));
    let (Ok(from), Ok(to)) = (from, to) else { return Err(Fault::Absent) };
    // SAFETY: both buffers have room for so many values and are kept until this is queued.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    let status = unsafe { (driver.copy)(to, from, 4 * values, stream) };
    told("cuMemcpyDtoDAsync", status)
}

/// The tensor as cuDNN is told that it lies.
fn packed(tensor: Cube) -> Cube {
    let tensor = into_contiguous(tensor);
    if alignment(tensor.handle.offset_start.unwrap_or(0)) < PIECE { into_contiguous(tensor.copy()) } else { tensor }
}

/// This thread's handle whose work goes into a stream. To be called when the card's context is current.
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
    told("cudnnSetStream", status)?;
    Ok(handle)
}
