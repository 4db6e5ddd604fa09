//! Transfers tensors between GPUs. The receiving GPU copies them in its own stream if it can access the other GPU's
//! memory. Otherwise they pass through host memory, into which the sending GPU copies.
//!
//! No GPU waits for work that has not been queued yet: the receiver's stream waits for an event that is already in the
//! sender's stream. Thus driver calls that block meanwhile (memory, modules, pinned pages) terminate, unlike with a GPU
//! that spins in a collective operation.
//!
//! The tensors stay unchanged until they have been copied: the sender's stream waits for the copy before their memory
//! is reused ([`HeldTensors::release`]).

use super::event::Event;
use super::library::{Driver, Opaque, driver};
use super::submit::{bound, flush, submit};
use super::{Cube, Fault, card_of, check, primitive};
use crate::number::wide;
use burn::backend::DType;
use burn::tensor::{Device, Tensor};
use burn_cubecl::kernel::into_contiguous;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The sender's message: the addresses of the values, and the event after which they are valid.
struct Ready {
    addresses: Vec<u64>,
    event: Event,
    /// The host memory with the values, if they pass through it.
    pages: Option<Pages>,
}

/// The receiver's message: the event after which the values have been copied.
struct Taken {
    event: Event,
    /// The host memory with the values, if they passed through it.
    pages: Option<Pages>,
}

/// The receiver's part of a transfer.
pub struct Offer {
    ready: Receiver<Ready>,
    taken: Sender<Taken>,
    bytes: Vec<usize>,
}

/// The sender's part of a transfer: the tensors, kept until they have been copied.
pub struct HeldTensors {
    tensors: Vec<Cube>,
    taken: Receiver<Taken>,
}

/// Offers tensors to a GPU, after all earlier work on theirs. `None` if they are not all on one GPU.
pub fn offer(tensors: Vec<Tensor<1>>, to: usize) -> Option<(Offer, HeldTensors)> {
    let cards: BTreeSet<Option<usize>> = tensors.iter().map(|tensor| card_of(&tensor.device())).collect();
    let card = cards.first().copied().flatten().filter(|_| cards.len() == 1)?;
    let all = tensors.into_iter().map(|tensor| primitive(&tensor).map(into_contiguous));
    let all: Vec<Cube> = all.collect::<Option<_>>()?;
    let bytes: Vec<usize> = all.iter().map(|tensor| tensor.meta.shape().num_elements() * tensor.dtype.size()).collect();
    let buffers = all.iter().map(|tensor| bound(&tensor.handle)).collect();
    let ((say, ready), (taken, hear)) = (channel(), channel());
    let lengths = bytes.clone();
    submit(&all[0].device, buffers, move |places, stream| {
        let driver = driver().ok_or(Fault::Absent)?;
        let (addresses, pages) = if reaches(driver, to, card)? {
            (places.to_vec(), None)
        } else {
            let (addresses, pages) = Pages::filled(driver, places, &lengths, stream)?;
            (addresses, Some(pages))
        };
        let event = Event::behind(driver, stream)?;
        // The receiver may have ended.
        let _ = say.send(Ready { addresses, event, pages });
        Ok(())
    });
    flush(&all[0].device);
    Some((Offer { ready, taken, bytes }, HeldTensors { tensors: all, taken: hear }))
}

impl Offer {
    /// Copies the offered tensors to this GPU, in these formats. Later work on the GPU comes after the copies.
    ///
    /// # Panics
    /// If the formats do not fit the offer, which is a mistake of the caller.
    pub fn take(self, device: &Device, lengths: &[usize], formats: &[DType]) -> Vec<Tensor<1>> {
        let Self { ready, taken, bytes } = self;
        let room = |(length, format): (&usize, &DType)| Tensor::<1>::empty([*length], (device, *format));
        let rooms: Vec<Tensor<1>> = lengths.iter().zip(formats).map(room).collect();
        let all: Vec<Cube> = rooms.iter().filter_map(primitive).collect();
        let fit = all.iter().map(|tensor| tensor.meta.shape().num_elements() * tensor.dtype.size()).eq(bytes.clone());
        assert!(fit, "what is taken does not fit what was offered");
        let Some(first) = all.first() else { return rooms };
        let buffers = all.iter().map(|tensor| bound(&tensor.handle)).collect();
        submit(&first.device.clone(), buffers, move |places, stream| {
            let driver = driver().ok_or(Fault::Absent)?;
            // The message arrives unless the sender failed: its work was started before the receiver got the offer.
            let Ready { addresses, event, pages } = ready.recv().map_err(|_| Fault::Gone)?;
            event.hold(driver, stream)?;
            for ((to, from), bytes) in places.iter().zip(addresses).zip(bytes) {
                copy(driver, *to, from, bytes, stream)?;
            }
            let _ = taken.send(Taken { event: Event::behind(driver, stream)?, pages });
            Ok(())
        });
        flush(&first.device);
        rooms
    }
}

impl HeldTensors {
    /// Frees the tensors after they have been copied. Waits until the receiver's work is queued.
    ///
    /// # Errors
    /// If that takes longer than `limit`, or the receiver has ended.
    pub fn release(self, limit: Duration) -> Result<(), RecvTimeoutError> {
        let Self { tensors, taken } = self;
        let Taken { event, pages } = taken.recv_timeout(limit)?;
        if let Some(pages) = pages {
            // The GPU has copied the tensors into these pages itself, before any later work.
            pages.give_back(event);
        } else if let Some(first) = tensors.first() {
            submit(&first.device, vec![bound(&first.handle)], move |_, stream| {
                event.hold(driver().ok_or(Fault::Absent)?, stream)
            });
        }
        drop(tensors);
        Ok(())
    }
}

/// Copies memory in a stream whose context is current. Both places have `bytes` bytes, and must stay valid until the
/// copy is queued; later operations of the runtime on them come after it. The sender keeps its memory until its stream
/// has waited for the copy.
pub(super) fn copy(driver: &Driver, to: u64, from: u64, bytes: usize, stream: Opaque) -> Result<(), Fault> {
    // SAFETY: as said above.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuMemcpyAsync", unsafe { (driver.copy)(to, from, bytes, stream) })
}

/// Page-locked host memory that all GPUs read and write.
struct Pages {
    address: u64,
    bytes: usize,
}

/// Unused pages, each with the event that the next user has to wait for before writing. Locking pages takes longer than
/// copying them, so they are never unlocked.
static FREE: Mutex<Vec<(Pages, Event)>> = Mutex::new(Vec::new());

/// `CU_MEMHOSTALLOC_PORTABLE`: for all contexts.
const PORTABLE: c_uint = 1;

/// The alignment of tensors in the pages, in bytes.
const ALIGNED: usize = 256;

/// Pages are locked in multiples of this size in bytes, so that they can be reused for other lengths.
const LOCKED: usize = 1 << 20;

impl Pages {
    /// Copies tensors into pages in a stream. Returns the addresses of the copies, and the pages.
    fn filled(driver: &Driver, from: &[u64], bytes: &[usize], stream: Opaque) -> Result<(Vec<u64>, Self), Fault> {
        let starts = bytes.iter().scan(0, |end, bytes| {
            let start = *end;
            *end += bytes.next_multiple_of(ALIGNED);
            Some(start)
        });
        let starts: Vec<usize> = starts.collect();
        let all = bytes.iter().map(|bytes| bytes.next_multiple_of(ALIGNED)).sum();
        let pages = Self::of(driver, all, stream)?;
        let addresses: Vec<u64> = starts.into_iter().map(|start| pages.address + wide(start)).collect();
        for ((from, to), bytes) in from.iter().zip(&addresses).zip(bytes) {
            copy(driver, *to, *from, *bytes, stream)?;
        }
        Ok((addresses, pages))
    }

    /// Returns pages of this size, which are free at the current point of the stream.
    fn of(driver: &Driver, bytes: usize, stream: Opaque) -> Result<Self, Fault> {
        let bytes = bytes.max(1).next_multiple_of(LOCKED);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = free.iter().position(|(pages, _)| pages.bytes == bytes) {
            let (pages, event) = free.remove(place);
            event.hold(driver, stream)?;
            return Ok(pages);
        }
        drop(free);
        let mut address: Opaque = null_mut();
        // SAFETY: the address can be written to, and the context of the stream is current.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuMemHostAlloc", unsafe { (driver.pages)(&raw mut address, bytes, PORTABLE) })?;
        Ok(Self { address: wide(address.expose_provenance()), bytes })
    }

    /// Makes the pages available after this event.
    fn give_back(self, event: Event) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push((self, event));
    }
}

/// `CUmemAccessDesc`: a device (`CU_MEM_LOCATION_TYPE_DEVICE`) may read and write (`CU_MEM_ACCESS_FLAGS_PROT_READWRITE`).
#[repr(C)]
struct Access {
    kind: c_int,
    device: c_int,
    flags: c_int,
}

/// Treats GPUs as if they could not access each other. Set by tests.
static APART: AtomicBool = AtomicBool::new(false);

/// Whether NCCL is configured to not use peer access, as on boards whose switches corrupt such transfers. This applies
/// to our copies, too.
pub fn forbidden() -> bool {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.trim().parse::<i64>().ok());
    let level = std::env::var("NCCL_P2P_LEVEL").unwrap_or_default();
    number("NCCL_P2P_DISABLE").is_some_and(|value| value != 0) || ["LOC", "0"].contains(&level.trim())
}

/// Whether each of the first `cards` GPUs can access the memory of all others. Enables the access.
pub(super) fn all_reach_each_other(cards: usize) -> bool {
    let Some(driver) = driver() else { return false };
    let mut pairs = (0..cards).flat_map(|one| (0..cards).map(move |other| (one, other)));
    pairs.all(|(one, other)| one == other || reaches(driver, one, other).unwrap_or(false))
}

/// Whether a GPU can access another one's memory. Enables the access.
fn reaches(driver: &Driver, reader: usize, owner: usize) -> Result<bool, Fault> {
    static KNOWN: Mutex<BTreeMap<(usize, usize), bool>> = Mutex::new(BTreeMap::new());
    if APART.load(Ordering::Relaxed) || forbidden() {
        return Ok(false);
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(reaches) = known.get(&(reader, owner)) {
        return Ok(*reaches);
    }
    let ordinal = |card: usize| c_int::try_from(card).map_err(|_| Fault::Absent);
    let (mut reads, mut owns, mut reaches, mut pool): (c_int, c_int, c_int, Opaque) = (0, 0, 0, null_mut());
    // SAFETY: all can be written to; the pool is the device's own.
    #[expect(unsafe_code, reason = "functions of the CUDA driver")]
    unsafe {
        check("cuDeviceGet", (driver.device)(&raw mut reads, ordinal(reader)?))?;
        check("cuDeviceGet", (driver.device)(&raw mut owns, ordinal(owner)?))?;
        check("cuDeviceCanAccessPeer", (driver.reaches)(&raw mut reaches, reads, owns))?;
        if reaches == 1 {
            let access = Access { kind: 1, device: reads, flags: 3 };
            check("cuDeviceGetMemPool", (driver.pool)(&raw mut pool, owns))?;
            // If access is refused, transfers pass through host memory.
            reaches = c_int::from((driver.share)(pool, (&raw const access).cast(), 1) == 0);
        }
    }
    known.insert((reader, owner), reaches == 1);
    Ok(reaches == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::fault_on;
    use burn::tensor::{DType, TensorData};

    #[test]
    #[ignore = "needs two GPUs"]
    fn cards_take_from_each_other_on_gpu() {
        back_and_forth();
    }

    #[test]
    #[ignore = "needs two GPUs"]
    fn cards_that_do_not_reach_each_other_take_the_host_s_way_on_gpu() {
        APART.store(true, Ordering::Relaxed);
        let has_run = back_and_forth();
        APART.store(false, Ordering::Relaxed);
        if !has_run {
            return;
        }
        let pages = FREE.lock().unwrap_or_else(PoisonError::into_inner).len();
        // One or two for each direction, because pages are reused.
        assert!((2..=4).contains(&pages), "{pages}");
    }

    /// Transfers in both directions behind running work, while memory is allocated and freed. Returns false with a
    /// single GPU.
    fn back_and_forth() -> bool {
        let there = Device::enumerate(burn::tensor::DeviceType::Cuda).into_iter().count();
        if there < 2 {
            println!("skipped: it needs two GPUs, and {there} is visible");
            return false;
        }
        let ((forth, taken), (back, returned)) = (channel::<Offer>(), channel::<Offer>());
        const LEN: usize = 1_000_003;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let device = Device::cuda(0);
                for round in 0..20_u8 {
                    let values = vec![f32::from(round); LEN];
                    let values = Tensor::<1>::from_data(TensorData::from(values.as_slice()), &device) * 2.0 + 1.0;
                    let (offer, held) = offer(vec![values], 1).expect("on a card");
                    forth.send(offer).expect("the other is there");
                    let other = Tensor::<1>::zeros([LEN + usize::from(round)], &device) + 7.0;
                    held.release(Duration::from_secs(20)).expect("it was taken");
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
                    let (offer, held) = offer(vec![(came[0].clone() + 1.0).cast(DType::BF16)], 0).expect("on a card");
                    back.send(offer).expect("the other is there");
                    held.release(Duration::from_secs(20)).expect("it was taken");
                }
                assert_eq!(fault_on(1), None);
            });
        });
        true
    }
}
