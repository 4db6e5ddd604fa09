//! A GPU's memory: allocation by the runtime, and limiting a large GPU to the memory of a small one.

use super::library::{Driver, driver};
use super::plan::enter;
use super::step_graph::tolerate_here;
use super::{Fault, check};
use crate::number::{real, wide};
use burn::tensor::{DType, Tensor, TensorData, TensorReadError};
use cubecl::bytes::{AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes};
use cubecl::config::memory::{MemoryPoolConfig, MemoryPoolsConfig};
use cubecl::config::size::MemorySize;
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::{InstallMemoryPoolsError, Runtime};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// The result of limiting a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The number of bytes allocated to reduce the free memory to that of a smaller GPU. They stay allocated until the
    /// process ends.
    Taken(u64),
    /// The GPU has only this much memory in total, or too much of it is in use to reach the limit by allocation.
    Smaller(u64),
}

/// The bytes allocated on each GPU to make it smaller.
static TAKEN: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());

/// Returns unused memory of the runtime's pools to the driver.
pub fn release(card: usize) {
    CudaRuntime::client(&CudaDevice::new(card)).memory_cleanup();
}

/// Returns the share of a GPU's memory that is in use, relative to its limited size.
///
/// # Errors
/// If the driver is missing or a call of it fails.
pub fn share_in_use(card: usize) -> Result<f64, Fault> {
    let (free, total) = left(card)?;
    let total = total - TAKEN.lock().unwrap_or_else(PoisonError::into_inner).get(&card).copied().unwrap_or(0);
    Ok(1.0 - real(free) / real(total.max(1)))
}

/// Limits a GPU to `limit_bytes` by allocating the memory beyond. Memory in use by other processes is part of the
/// limit.
///
/// # Errors
/// If the driver is missing or a call of it fails.
pub fn shrink(card: usize, limit_bytes: u64) -> Result<Room, Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    // The driver's context belongs to a thread, so a separate thread leaves this one's unchanged.
    let shrunk = std::thread::spawn(move || shrink_here(driver, card, limit_bytes));
    shrunk.join().map_err(|_| Fault::Absent)?
}

/// Returns the free and the total bytes of a GPU.
///
/// # Errors
/// If the driver is missing or a call of it fails.
pub fn left(card: usize) -> Result<(u64, u64), Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    // As above.
    let left = std::thread::spawn(move || left_here(driver, card));
    let (free, total) = left.join().map_err(|_| Fault::Absent)??;
    Ok((wide(free), wide(total)))
}

fn left_here(driver: &Driver, card: usize) -> Result<(usize, usize), Fault> {
    tolerate_here(driver)?;
    enter(driver, card)?;
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: both can be written to, and the card's context is that of this thread.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuMemGetInfo", unsafe { (driver.memory)(&raw mut free, &raw mut total) })?;
    Ok((free, total))
}

fn shrink_here(driver: &Driver, card: usize, limit_bytes: u64) -> Result<Room, Fault> {
    let (free, total) = left_here(driver, card)?;
    let mut taken = 0_u64;
    let total_bytes = wide(total);
    let beyond = total_bytes.checked_sub(limit_bytes).and_then(|beyond| usize::try_from(beyond).ok());
    let Some(beyond) = beyond.filter(|beyond| *beyond <= free) else { return Ok(Room::Smaller(total_bytes)) };
    if beyond > 0 {
        // SAFETY: it can be written to, and the card's context is that of this thread; what is taken is never given back.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuMemAlloc", unsafe { (driver.allocate)(&raw mut taken, beyond) })?;
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(card, wide(beyond));
    }
    Ok(Room::Taken(wide(beyond)))
}

/// Size classes for allocations of up to 1 MiB, as powers of two: 512 bytes (the runtime's alignment), 1 KiB, 2 KiB, …
/// 1 MiB.
const SMALL_CLASSES: std::ops::RangeInclusive<u32> = 9..=20;

/// Makes the runtime allocate each tensor by its size, and return free memory to the GPU once `reclaim_at_bytes` are
/// allocated.
///
/// By default the runtime divides pages, and searches all parts of a page for each allocation. A training step requests
/// the sizes of the previous step, so a free allocation of that size exists. Small sizes share the allocations of their
/// class, which keeps the list of large ones short.
///
/// This applies to the stream of this thread and to later streams. Returns false if this stream has memory already, and
/// keeps its layout.
///
/// # Errors
/// If the runtime cannot be used.
pub fn take_by_size(card: usize, reclaim_at_bytes: u64) -> Result<bool, Fault> {
    let client = CudaRuntime::client(&CudaDevice::new(card));
    match client.install_memory_pools(&pools(reclaim_at_bytes)) {
        Ok(()) => Ok(true),
        Err(InstallMemoryPoolsError::PoolsInUse { .. }) => Ok(false),
        Err(error) => Err(Fault::Runtime(error.to_string())),
    }
}

fn pools(reclaim_at_bytes: u64) -> MemoryPoolsConfig {
    let small = SMALL_CLASSES
        .map(|power| MemoryPoolConfig::Exclusive { max_alloc_size: MemorySize(1 << power), dealloc_period: None });
    let others = MemoryPoolConfig::Direct { reclaim_at: Some(MemorySize(reclaim_at_bytes)) };
    MemoryPoolsConfig::Explicit(small.chain([others]).collect())
}

/// The largest number of values that [`read`] copies at a time: 1 MiB.
///
/// The runtime copies through page-locked memory, which it allocates in pages. A page for up to 1 MiB has 32 MiB or a
/// little more; one for 100 MB has a 64th of the GPU's memory. Locking that takes up to a second.
const PIECE: usize = 1 << 18;

/// Alignment of the parts of a tensor that the runtime copies without a kernel, in values of four bytes.
const ALIGNED: usize = 128;

/// Reads a flat tensor of 32-bit floats in pieces. The values are copied when this returns; those of the runtime's own
/// `TensorData` are copied at their first use.
///
/// # Errors
/// If the tensor cannot be read.
pub fn read(tensor: &Tensor<1>) -> Result<TensorData, TensorReadError> {
    let len = tensor.shape().num_elements();
    if len <= PIECE || !len.is_multiple_of(ALIGNED) {
        return Ok(TensorData::new(tensor.clone().try_into_vec_as::<f32>()?, [len]));
    }
    let mut values = Vec::with_capacity(len);
    for first in (0..len).step_by(PIECE) {
        let piece = tensor.clone().narrow(0, first, PIECE.min(len - first));
        values.extend(piece.try_into_vec_as::<f32>()?);
    }
    Ok(TensorData::new(values, [len]))
}

/// Returns values for a flat tensor that the runtime copies to a GPU without page-locked memory in between. Not while a
/// CUDA graph is recorded, which allows no copy from ordinary memory.
pub fn unstaged(values: Vec<f32>) -> TensorData {
    let len = values.len();
    // SAFETY: all bytes of the values are initialized. The runtime (cubecl-cuda 0.11.0-pre.3) keeps the bytes in its drop
    // queue until a fence behind the copy.
    #[expect(unsafe_code, reason = "the runtime's own controllers stage what they hold")]
    let bytes = unsafe { Bytes::from_controller(Box::new(Unstaged(values)), size_of::<f32>() * len) };
    TensorData::from_bytes(bytes, [len], DType::F32)
}

/// Values in ordinary memory. The runtime is told that they are page-locked, so it passes their address to the driver,
/// which accepts both.
struct Unstaged(Vec<f32>);

impl AllocationController for Unstaged {
    fn alloc_align(&self) -> usize {
        align_of::<f32>()
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Pinned
    }

    #[expect(unsafe_code, reason = "the trait's method is unsafe")]
    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let bytes = size_of_val(self.0.as_slice());
        // SAFETY: the values are borrowed as long as their bytes, and the caller writes initialized bytes only.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), bytes) })
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let bytes = size_of_val(self.0.as_slice());
        // SAFETY: the values are borrowed as long as their bytes.
        #[expect(unsafe_code, reason = "values as their bytes")]
        Ok(unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), bytes) })
    }
}

/// Whether each of the first `cards` GPUs can access the memory of the next and of the previous one.
///
/// # Errors
/// If the driver is missing or a call of it fails.
pub fn neighbours_reach_each_other(cards: usize) -> Result<bool, Fault> {
    if super::peer::forbidden() {
        return Ok(false);
    }
    let driver = driver().ok_or(Fault::Absent)?;
    let count = c_int::try_from(cards).map_err(|_| Fault::Absent)?;
    let device = |ordinal: c_int| {
        let mut device = 0;
        // SAFETY: the device can be written to.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuDeviceGet", unsafe { (driver.device)(&raw mut device, ordinal) })?;
        Ok::<c_int, Fault>(device)
    };
    for (first, second) in (1..count).flat_map(|next| [(next - 1, next), (next, next - 1)]) {
        let (first, second, mut reaches) = (device(first)?, device(second)?, 0);
        // SAFETY: the answer can be written to.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuDeviceCanAccessPeer", unsafe { (driver.reaches)(&raw mut reaches, first, second) })?;
        if reaches == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cubecl::MemoryConfiguration;
    use cubecl::ir::MemoryDeviceProperties;

    #[test]
    fn the_runtime_accepts_the_memory_pools() {
        let gpu = MemoryDeviceProperties { max_page_size: 6 << 30, alignment: 512 };
        let accepted = MemoryConfiguration::default().resolve(Some(&pools(18 << 30)), &gpu).expect("a valid layout");
        let MemoryConfiguration::Custom { pool_options } = accepted else { panic!("not the pools that were given") };
        let shown: Vec<String> = pool_options.iter().map(|pool| format!("{:?}", pool.pool_type)).collect();
        assert_eq!(shown.len(), 13);
        assert_eq!(shown[0], "ExclusivePages { max_alloc_size: 512 }");
        assert_eq!(shown[11], "ExclusivePages { max_alloc_size: 1048576 }");
        assert_eq!(shown[12], "Direct { reclaim_at: Some(19327352832) }");
    }

    #[test]
    fn values_without_staging_are_the_same_values() {
        let values = vec![1.0_f32, -2.5, f32::MIN_POSITIVE];
        let data = unstaged(values.clone());
        assert_eq!(data.bytes.property(), AllocationProperty::Pinned);
        assert_eq!(data, TensorData::new(values.clone(), [3]));
        assert_eq!(data.clone().try_into_vec::<f32>().expect("f32"), values);
        let tensor = Tensor::<1>::from_data(data, &burn::tensor::Device::flex());
        assert_eq!(read(&tensor).expect("readable"), TensorData::new(values, [3]));
    }

    /// Checks that tensors of several lengths have the same bits after an upload and a read in pieces.
    fn round_trips(device: &burn::tensor::Device) {
        for len in [1, PIECE, PIECE + 1, 2 * PIECE + ALIGNED, 3 * PIECE] {
            let values: Vec<f32> =
                (0..len).map(|at| f32::from_bits(0x3f00_0000 | u32::try_from(at).expect("small"))).collect();
            let tensor = Tensor::<1>::from_data(unstaged(values.clone()), device);
            assert!(read(&tensor).expect("readable") == TensorData::new(values, [len]), "{len} values");
        }
    }

    #[test]
    fn values_are_read_in_pieces() {
        round_trips(&burn::tensor::Device::flex());
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn values_are_uploaded_and_read_in_pieces_on_gpu() {
        round_trips(&burn::tensor::Device::cuda(0));
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_card_is_made_smaller_and_not_larger_on_gpu() {
        let gib = |count: u64| count << 30;
        let taken = shrink(0, gib(20)).expect("the driver is there");
        assert!(matches!(taken, Room::Taken(bytes) if bytes > 0), "{taken:?}");
        let again = shrink(0, gib(20)).expect("the driver is there");
        assert!(
            matches!(again, Room::Smaller(bytes) if bytes > gib(20)),
            "there is no room to take it twice: {again:?}"
        );
        assert!(matches!(shrink(0, gib(100_000)).expect("the driver is there"), Room::Smaller(_)));
    }
}
