//! How work of ours gets to the thread that talks to a card.

use super::Fault;
use super::library::Opaque;
use super::order::in_turn;
use burn::tensor::StreamId;
use cubecl::Runtime;
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::device::Device;
use cubecl::device_handle::DeviceHandle;
use cubecl::server::{BufferBinding, ComputeServer, Handle};
use std::collections::BTreeMap;
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Mutex, PoisonError};

type Server = <CudaRuntime as Runtime>::Server;

/// The first failure on each card, by its ordinal.
static FAULTS: Mutex<BTreeMap<usize, String>> = Mutex::new(BTreeMap::new());

/// The first failure on a card since this was last asked: its values are rubbish, and so is all that was computed from them.
pub fn fault_on(card: usize) -> Option<String> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&card)
}

/// The first failure on any card since this was last asked.
#[cfg(test)]
pub fn fault() -> Option<String> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner).pop_first().map(|(_, fault)| fault)
}

/// Notes a failure on a card that its caller cannot be told of, since it has long gone on.
pub fn report(card: usize, fault: &Fault) {
    log::error!("work on card {card} failed: {fault}");
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    faults.entry(card).or_insert_with(|| fault.to_string());
}

/// A buffer for [`submit`]. It is kept until the work is queued, without keeping others from writing into it later: the runtime takes memory back in the order of the
/// stream.
pub fn bound(handle: &Handle) -> BufferBinding {
    handle.clone().binding()
}

/// Has work queued on a card by the thread that talks to it, behind all that was sent there from this thread. It gets the addresses of the buffers, and the stream.
pub fn submit(
    device: &CudaDevice,
    buffers: Vec<BufferBinding>,
    work: impl FnOnce(&[u64], Opaque) -> Result<(), Fault> + Send + 'static,
) {
    let card = device.index;
    DeviceHandle::<Server>::new(device.to_id()).submit(move |server| {
        if let Err(fault) = run(server, &buffers, work) {
            report(card, &fault);
        }
        drop(buffers);
    });
}

/// Has all that was sent to a card's thread begin. The thread takes work in batches of 32, and the rest of one waits until it is whole or somebody waits for an answer: whoever
/// waits for the effect of work otherwise has to ask for it.
pub fn flush(device: &CudaDevice) {
    DeviceHandle::<Server>::new(device.to_id()).flush_queue();
}

/// [`flush`] of the card with this ordinal.
pub fn begin(card: usize) {
    flush(&CudaDevice::new(card));
}

fn run(
    server: &mut Server,
    buffers: &[BufferBinding],
    work: impl FnOnce(&[u64], Opaque) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let id = StreamId::current();
    let mut places = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        // This also makes the card's context current and lets the stream wait for others that the buffers come from.
        let resource = server.get_resource(buffer.clone(), id).map_err(|error| Fault::Runtime(error.to_string()))?;
        places.push(resource.resource().ptr);
    }
    in_turn(server, id, |stream| work(&places, stream))
}

/// An address as the libraries take it; null where there is none.
pub fn pointer(place: Option<&u64>) -> Result<Opaque, Fault> {
    let place = usize::try_from(place.copied().unwrap_or(0)).map_err(|_| Fault::Absent)?;
    Ok(with_exposed_provenance_mut(place))
}
