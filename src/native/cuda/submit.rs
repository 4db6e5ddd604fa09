//! Submits our work to the thread that talks to a GPU.

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

/// The first failure on each GPU, by its ordinal.
static FAULTS: Mutex<BTreeMap<usize, Noted>> = Mutex::new(BTreeMap::new());

struct Noted {
    problem: String,
    /// Whether the failure originated on another GPU.
    is_another_s: bool,
}

/// A failure, and the GPU on which it occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The ordinal of the GPU.
    pub card: usize,
    /// The description of the failure.
    pub problem: String,
}

/// Returns and clears the first failure on a GPU. Its values, and all that depend on them, are invalid. If the GPU only
/// missed another GPU's part, returns that GPU's failure, if known.
pub fn fault_on(card: usize) -> Option<Failure> {
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = faults.remove(&card)?;
    let cause = faults.iter().find(|(_, other)| noted.is_another_s && !other.is_another_s);
    Some(match cause {
        Some((card, cause)) => Failure { card: *card, problem: cause.problem.clone() },
        None => Failure { card, problem: noted.problem },
    })
}

/// Returns and clears the first failure on any GPU.
pub fn fault() -> Option<String> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner).pop_first().map(|(_, noted)| noted.problem)
}

/// Records a failure on a GPU, because the caller has continued and cannot get an error.
pub fn report(card: usize, fault: &Fault) {
    log::error!("work on card {card} failed: {fault}");
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = || Noted { problem: fault.to_string(), is_another_s: matches!(fault, Fault::Gone) };
    faults.entry(card).or_insert_with(noted);
}

/// Returns a buffer for [`submit`]. It is kept until the work is queued. Later writes by others are allowed, because
/// the runtime reuses memory in stream order.
pub fn bound(handle: &Handle) -> BufferBinding {
    handle.clone().binding()
}

/// Submits work for a GPU to the thread that talks to it, after all earlier work of this thread. `work` gets the
/// addresses of the buffers, and the stream.
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

/// Starts all work submitted to a GPU's thread. The thread takes work in batches of 32. An incomplete batch waits until
/// it is full or a thread waits for a result. A thread that waits for the effect of work in another way has to call
/// this.
pub fn flush(device: &CudaDevice) {
    DeviceHandle::<Server>::new(device.to_id()).flush_queue();
}

/// As `flush`, for the GPU with this ordinal.
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
        // This also makes the GPU's context current, and makes the stream wait for other streams that the buffers come
        // from.
        let resource = server.get_resource(buffer.clone(), id).map_err(|error| Fault::Runtime(error.to_string()))?;
        places.push(resource.resource().ptr);
    }
    in_turn(server, id, |stream| work(&places, stream))
}

/// Returns the first addresses; zero for missing ones.
pub fn all<const N: usize>(places: &[u64]) -> [u64; N] {
    std::array::from_fn(|number| places.get(number).copied().unwrap_or(0))
}

/// Converts an address to a pointer; null if there is none.
pub fn pointer(place: Option<&u64>) -> Result<Opaque, Fault> {
    let place = usize::try_from(place.copied().unwrap_or(0)).map_err(|_| Fault::Absent)?;
    Ok(with_exposed_provenance_mut(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_missed_another_one_returns_its_failure() {
        // Ordinals that no machine has.
        let [fails, first, second] = [901, 900, 902];
        report(first, &Fault::Gone);
        report(first, &Fault::Absent);
        let gone = Failure { card: first, problem: Fault::Gone.to_string() };
        assert_eq!((fault_on(first), fault_on(first)), (Some(gone), None), "nobody else has said anything");
        let fault = Fault::Failed { what: "cuMemcpyAsync", code: 700 };
        report(first, &Fault::Gone);
        report(fails, &fault);
        report(fails, &Fault::Gone);
        report(second, &Fault::Gone);
        let cause = Failure { card: fails, problem: "cuMemcpyAsync failed (700)".to_owned() };
        for card in [first, second, fails] {
            assert_eq!(fault_on(card).as_ref(), Some(&cause), "{card}");
            assert_eq!(fault_on(card), None);
        }
    }
}
