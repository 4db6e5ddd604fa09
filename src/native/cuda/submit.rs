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
static FAULTS: Mutex<BTreeMap<usize, Noted>> = Mutex::new(BTreeMap::new());

struct Noted {
    problem: String,
    /// It is another card's.
    is_another_s: bool,
}

/// What failed, and on which card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its ordinal.
    pub card: usize,
    /// What failed.
    pub problem: String,
}

/// The first failure on a card since this was last asked: its values are rubbish, and so is all that was computed from them. Where it only missed another card's
/// part, that one's failure, if it is known.
pub fn fault_on(card: usize) -> Option<Failure> {
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = faults.remove(&card)?;
    let cause = faults.iter().find(|(_, other)| noted.is_another_s && !other.is_another_s);
    Some(match cause {
        Some((card, cause)) => Failure { card: *card, problem: cause.problem.clone() },
        None => Failure { card, problem: noted.problem },
    })
}

/// The first failure on any card since this was last asked.
pub fn fault() -> Option<String> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner).pop_first().map(|(_, noted)| noted.problem)
}

/// Notes a failure on a card that its caller cannot be told of, since it has long gone on.
pub fn report(card: usize, fault: &Fault) {
    log::error!("work on card {card} failed: {fault}");
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = || Noted { problem: fault.to_string(), is_another_s: matches!(fault, Fault::Gone) };
    faults.entry(card).or_insert_with(noted);
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

/// Has all that was sent to the thread of the card with this ordinal begin.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_missed_another_one_tells_what_failed_there() {
        // No machine has them.
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
