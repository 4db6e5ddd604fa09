//! Values from card to card, by copies in the stream of the card that takes them.
//!
//! No card ever waits for work that has not been queued yet: the taker's stream waits for an event that the giver's stream has in it already. So whatever the driver waits for
//! meanwhile (memory, modules, pinned pages) comes to its end, which a card that spins in a collective operation does not.
//!
//! What was given stays as it is until the copy is made: the giver's stream waits for that before its memory is used for anything else ([`Given::release`]).

use super::event::Event;
use super::library::{Driver, Opaque, driver};
use super::operation::Cube;
use super::submit::{bound, flush, submit};
use super::{Fault, card_of, told};
use burn::backend::{Cuda, DType};
use burn::tensor::{Device, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where values lie, and the event behind which they do.
struct Ready {
    card: usize,
    addresses: Vec<u64>,
    event: Event,
}

/// What the taker is told.
pub struct Offer {
    ready: Receiver<Ready>,
    taken: Sender<Event>,
    bytes: Vec<usize>,
}

/// What the giver keeps until it was taken.
pub struct Given {
    tensors: Vec<Cube>,
    taken: Receiver<Event>,
}

/// Offers tensors to another card, behind all that was asked of theirs before; or the tensors, where they are on no card or on several.
pub fn offer(tensors: Vec<Tensor<1>>) -> Result<(Offer, Given), Vec<Tensor<1>>> {
    let cards: BTreeSet<Option<usize>> = tensors.iter().map(|tensor| card_of(&tensor.device())).collect();
    let (Some(Some(card)), 1) = (cards.first().copied(), cards.len()) else { return Err(tensors) };
    let all: Result<Vec<Cube>, _> = tensors.iter().map(|tensor| tensor.clone().try_into_primitive::<Cuda>()).collect();
    let Ok(all) = all else { return Err(tensors) };
    drop(tensors);
    let all: Vec<Cube> = all.into_iter().map(into_contiguous).collect();
    let bytes = all.iter().map(|tensor| tensor.meta.shape().num_elements() * tensor.dtype.size()).collect();
    let buffers = all.iter().map(|tensor| bound(&tensor.handle)).collect();
    let ((say, ready), (taken, hear)) = (channel(), channel());
    submit(&all[0].device, buffers, move |places, stream| {
        let event = Event::behind(driver().ok_or(Fault::Absent)?, stream)?;
        // Who takes may have ended.
        let _ = say.send(Ready { card, addresses: places.to_vec(), event });
        Ok(())
    });
    flush(&all[0].device);
    Ok((Offer { ready, taken, bytes }, Given { tensors: all, taken: hear }))
}

impl Offer {
    /// Copies of what is offered, on that card, in these formats. What is asked of the card afterwards comes behind the copies.
    ///
    /// Panics if formats and offer do not fit, a fault of the caller.
    pub fn take(self, device: &Device, lengths: &[usize], formats: &[DType]) -> Vec<Tensor<1>> {
        let Self { ready, taken, bytes } = self;
        let room = |(length, format): (&usize, &DType)| Tensor::<1>::empty([*length], (device, *format));
        let rooms: Vec<Tensor<1>> = lengths.iter().zip(formats).map(room).collect();
        let all: Vec<Cube> = rooms.iter().filter_map(|room| room.clone().try_into_primitive::<Cuda>().ok()).collect();
        let fit = all.iter().map(|tensor| tensor.meta.shape().num_elements() * tensor.dtype.size()).eq(bytes.clone());
        assert!(fit, "what is taken does not fit what was offered");
        let Some(first) = all.first() else { return rooms };
        let card = first.device.index;
        let buffers = all.iter().map(|tensor| bound(&tensor.handle)).collect();
        submit(&first.device.clone(), buffers, move |places, stream| {
            let driver = driver().ok_or(Fault::Absent)?;
            // It comes: what was offered had begun before the taker was told of it.
            let Ready { card: from, addresses, event } = ready.recv().map_err(|_| Fault::Absent)?;
            open(driver, card, from)?;
            event.hold(driver, stream)?;
            for ((to, from), bytes) in places.iter().zip(addresses).zip(bytes) {
                // SAFETY: both buffers have so many bytes; this one is kept until the copy is queued, behind which nothing that the runtime does with it can come, and the
                // giver keeps the other one until its stream has waited for the copy.
                #[expect(unsafe_code, reason = "a function of the CUDA driver")]
                told("cuMemcpyAsync", unsafe { (driver.copy)(*to, from, bytes, stream) })?;
            }
            let _ = taken.send(Event::behind(driver, stream)?);
            Ok(())
        });
        flush(&first.device);
        rooms
    }
}

impl Given {
    /// Frees what was given, behind the copy. It waits until the taker's work is queued.
    ///
    /// # Errors
    /// If that takes longer than `limit`, or the taker has ended.
    pub fn release(self, limit: Duration) -> Result<(), RecvTimeoutError> {
        let Self { tensors, taken } = self;
        let event = taken.recv_timeout(limit)?;
        if let Some(first) = tensors.first() {
            submit(&first.device, vec![bound(&first.handle)], move |_, stream| {
                event.hold(driver().ok_or(Fault::Absent)?, stream)
            });
        }
        drop(tensors);
        Ok(())
    }
}

/// `CUmemAccessDesc`: a device (`CU_MEM_LOCATION_TYPE_DEVICE`) may read and write (`CU_MEM_ACCESS_FLAGS_PROT_READWRITE`).
#[repr(C)]
struct Access {
    kind: c_int,
    device: c_int,
    flags: c_int,
}

/// Lets a card read another one's memory where it can; the driver takes a longer way where it cannot.
fn open(driver: &Driver, reader: usize, owner: usize) -> Result<(), Fault> {
    static OPEN: Mutex<BTreeSet<(usize, usize)>> = Mutex::new(BTreeSet::new());
    if !OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert((reader, owner)) {
        return Ok(());
    }
    let ordinal = |card: usize| c_int::try_from(card).map_err(|_| Fault::Absent);
    let (reader, owner) = (ordinal(reader)?, ordinal(owner)?);
    let (mut reads, mut owns, mut reaches, mut pool): (c_int, c_int, c_int, Opaque) = (0, 0, 0, null_mut());
    // SAFETY: all can be written to; the pool is the device's own.
    #[expect(unsafe_code, reason = "functions of the CUDA driver")]
    unsafe {
        told("cuDeviceGet", (driver.device)(&raw mut reads, reader))?;
        told("cuDeviceGet", (driver.device)(&raw mut owns, owner))?;
        told("cuDeviceCanAccessPeer", (driver.reaches)(&raw mut reaches, reads, owns))?;
        if reaches == 1 {
            let access = Access { kind: 1, device: reads, flags: 3 };
            told("cuDeviceGetMemPool", (driver.pool)(&raw mut pool, owns))?;
            told("cuMemPoolSetAccess", (driver.share)(pool, (&raw const access).cast(), 1))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fault_on;
    use super::*;
    use burn::tensor::{DType, TensorData};

    /// Back and forth, each way behind work that is still going on, with more memory taken and given back meanwhile.
    #[test]
    #[ignore = "needs two GPUs"]
    fn cards_take_from_each_other_on_gpu() {
        let there = Device::enumerate(burn::tensor::DeviceType::Cuda).into_iter().count();
        if there < 2 {
            return println!("skipped: it needs two GPUs, and {there} is visible");
        }
        let ((forth, taken), (back, returned)) = (channel::<Offer>(), channel::<Offer>());
        const LEN: usize = 1_000_003;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let device = Device::cuda(0);
                for round in 0..20_u8 {
                    let values = vec![f32::from(round); LEN];
                    let values = Tensor::<1>::from_data(TensorData::from(values.as_slice()), &device) * 2.0 + 1.0;
                    let (offer, given) = offer(vec![values]).map_err(drop).expect("on a card");
                    forth.send(offer).expect("the other is there");
                    let other = Tensor::<1>::zeros([LEN + usize::from(round)], &device) + 7.0;
                    given.release(Duration::from_secs(20)).expect("it was taken");
                    let back = returned.recv().expect("the other is there").take(&device, &[LEN], &[DType::BF16]);
                    let found: Vec<f32> = back[0].clone().cast(DType::F32).try_into_vec_as().expect("readable");
                    assert!(found.iter().all(|value| *value == f32::from(round) * 2.0 + 2.0), "round {round}");
                    drop(other);
                }
                assert_eq!(fault_on(0), None);
            });
            scope.spawn(move || {
                let device = Device::cuda(1);
                for _ in 0..20 {
                    let came = taken.recv().expect("the other is there").take(&device, &[LEN], &[DType::F32]);
                    let (offer, given) =
                        offer(vec![(came[0].clone() + 1.0).cast(DType::BF16)]).map_err(drop).expect("on a card");
                    back.send(offer).expect("the other is there");
                    given.release(Duration::from_secs(20)).expect("it was taken");
                }
                assert_eq!(fault_on(1), None);
            });
        });
    }
}
