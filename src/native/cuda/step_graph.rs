//! Records work once as a CUDA graph and repeats it by one launch, so that the host does not launch each kernel.
//!
//! A graph repeats its kernels on the same addresses. So it has its own buffers for all inputs that change (its
//! operands), into which each repetition copies the new values. It also has its own buffers for all results, which the
//! next repetition overwrites.
//!
//! The runtime records (`graph_prepare`, `start_capture`, `stop_capture`), and our work in its stream is recorded with
//! its own. During the recording nothing may be allocated, compiled or sent from the host. So the work is done twice
//! before: once normally, which compiles and tunes, and once with the memory of the recording.

use super::kernels::copied;
use super::library::{Driver, driver};
use super::peer::copy;
use super::submit::{bound, submit};
use super::{Cube, Fault, card_of, check, fault_on, primitive, whole};
use burn::backend::DispatchDevice;
use burn::tensor::{Device, Int, Tensor};
use cubecl::Runtime;
use cubecl::client::{ComputeClient, Graph};
use cubecl::cuda::CudaRuntime;
use std::ffi::c_int;

/// A tensor whose values a graph reads, and that can be replaced.
#[derive(Clone)]
pub struct Operand(Cube);

impl Operand {
    /// Returns an operand for a tensor, sharing its memory. `None` on other devices, and if several values share one
    /// address.
    pub fn of<const D: usize>(tensor: &Tensor<D>) -> Option<Self> {
        primitive(tensor).filter(Cube::is_nonoverlapping).map(Self)
    }

    /// As [`Self::of`], for an integer tensor.
    pub fn of_whole<const D: usize>(tensor: &Tensor<D, Int>) -> Option<Self> {
        whole(tensor).filter(Cube::is_nonoverlapping).map(Self)
    }

    /// Returns the size of the memory to copy, in bytes; rows may have gaps between them.
    fn bytes(&self) -> u64 {
        self.0.handle.size_in_used()
    }

    /// Whether the values of another operand fit into its memory.
    fn takes(&self, other: &Self) -> bool {
        (self.0.dtype, &self.0.meta, self.bytes()) == (other.0.dtype, &other.0.meta, other.bytes())
    }
}

/// Values that recorded work reads, and that change between repetitions.
pub trait Operands: Clone {
    /// Returns their tensors, in a fixed order. `None` if a graph cannot read them.
    fn operands(&self) -> Option<Vec<Operand>>;
}

impl<const D: usize> Operands for Tensor<D> {
    fn operands(&self) -> Option<Vec<Operand>> {
        Some(vec![Operand::of(self)?])
    }
}

impl<const D: usize> Operands for Tensor<D, Int> {
    fn operands(&self) -> Option<Vec<Operand>> {
        Some(vec![Operand::of_whole(self)?])
    }
}

impl<T: Operands> Operands for Option<T> {
    fn operands(&self) -> Option<Vec<Operand>> {
        self.as_ref().map_or(Some(Vec::new()), T::operands)
    }
}

impl<A: Operands, B: Operands> Operands for (A, B) {
    fn operands(&self) -> Option<Vec<Operand>> {
        Some([self.0.operands()?, self.1.operands()?].concat())
    }
}

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: captures of other threads do not restrict this one.
const THREAD_LOCAL: c_int = 1;

/// Allows this thread, and the one that talks to a CUDA device, to work while other threads record for other devices.
/// Otherwise the driver would refuse calls such as allocations on these threads, and abort the other recording. Do not
/// pass buffers between threads of one device meanwhile: the runtime would wait on a thread that lacks this mode.
///
/// # Errors
/// If the driver is missing, or refuses on this thread. A refusal on the device's thread is recorded for [`fault_on`].
pub fn tolerate_other_recordings(device: &Device) -> Result<(), Fault> {
    let tolerate = || tolerate_here(driver().ok_or(Fault::Absent)?);
    if let DispatchDevice::Cuda(card) = device.as_dispatch() {
        submit(card, Vec::new(), move |_, _| tolerate());
        tolerate()?;
    }
    Ok(())
}

/// As [`tolerate_other_recordings`], for this thread only.
pub(super) fn tolerate_here(driver: &Driver) -> Result<(), Fault> {
    let mut mode = THREAD_LOCAL;
    // SAFETY: the mode can be written to.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuThreadExchangeStreamCaptureMode", unsafe { (driver.capture_mode)(&raw mut mode) })
}

/// Recorded work.
pub struct StepGraph {
    graph: Graph<CudaRuntime>,
    operands: Vec<Operand>,
}

impl StepGraph {
    /// Records the work on a CUDA device with these operands. Returns the graph and the result of the recorded work:
    /// tensors that have values after each [`replay`](Self::replay), and none before. The work must do the same each
    /// time, and must have been done before.
    ///
    /// Everything else that the work reads must stay at its address as long as the graph exists. All earlier work of
    /// the device must be complete.
    ///
    /// # Errors
    /// If the device cannot record it. The recording has then been ended, and its failures have been cleared.
    pub fn record<T>(device: &Device, operands: Vec<Operand>, mut work: impl FnMut() -> T) -> Result<(Self, T), Fault> {
        let card = card_of(device).ok_or(Fault::Absent)?;
        let client = CudaRuntime::client(&cubecl::cuda::CudaDevice::new(card));
        let fault = |error: &dyn std::fmt::Display| Fault::Runtime(error.to_string());
        let found = client.graph_prepare().and_then(|()| {
            // The result is dropped, so that the recording uses its memory.
            drop(work());
            client.start_capture()?;
            let recorded = work();
            Ok((client.stop_capture()?, recorded))
        });
        // A failure of our work is known by now, because the GPU's thread has processed it before the end of the
        // recording.
        let failure = fault_on(card);
        match (found, failure) {
            (Ok((graph, recorded)), None) => Ok((Self { graph, operands }, recorded)),
            (Ok(recorded), Some(failure)) => {
                drop(recorded);
                give_up(&client, card);
                Err(Fault::Runtime(failure.problem))
            }
            (Err(error), _) => {
                give_up(&client, card);
                Err(fault(&error))
            }
        }
    }

    /// Whether these operands can replace its own.
    pub fn takes(&self, operands: &[Operand]) -> bool {
        fit(&self.operands, operands)
    }

    /// Repeats the work with other values of its operands, which it must [take](Self::takes).
    ///
    /// # Panics
    /// If it does not take them, which is a mistake of the caller.
    pub fn replay(&self, operands: &[Operand]) {
        copy_into(&self.operands, operands);
        // SAFETY: the runtime keeps all memory that was taken while it recorded for as long as there is the graph; the
        // operands' is held here. Copies before it and reads behind it are sent from the same thread, and so go into
        // the same stream.
        #[expect(unsafe_code, reason = "a graph works on addresses")]
        unsafe {
            self.graph.replay();
        }
    }
}

/// Copies values into the memory of operands that [take](StepGraph::takes) them, all at once: no source may overlap
/// another target. Nothing is copied if source and target are the same. It may be called during a recording.
///
/// # Panics
/// If an operand does not take a value, which is a mistake of the caller.
pub fn copy_into(places: &[Operand], values: &[Operand]) {
    assert!(fit(places, values), "values do not fit into their places");
    let Some(Operand(first)) = places.first() else { return };
    let bytes: Vec<u64> = places.iter().map(Operand::bytes).collect();
    let card = first.device.index;
    let buffers = places.iter().chain(values).map(|operand| bound(&operand.0.handle)).collect();
    submit(&first.device, buffers, move |addresses, stream| {
        let (to, from) = addresses.split_at(bytes.len());
        let all = to.iter().zip(from).zip(bytes).map(|((to, from), bytes)| (*from, *to, bytes));
        let moved = all.filter(|(from, to, bytes)| from != to && *bytes > 0);
        let is_of_words = |(from, to, bytes): &(u64, u64, u64)| {
            (from | to | bytes).is_multiple_of(4) && bytes / 4 <= u64::from(u32::MAX)
        };
        let (words, mut rest): (Vec<_>, Vec<_>) = moved.partition(is_of_words);
        let entries: Vec<_> =
            words.iter().map(|(from, to, bytes)| (*from, *to, u32::try_from(bytes / 4).unwrap_or(0))).collect();
        match copied(card, stream, &entries) {
            // Without a compiler there is no kernel.
            Err(Fault::Absent) => rest.extend(words),
            done => done?,
        }
        let driver = driver().ok_or(Fault::Absent)?;
        rest.into_iter().try_for_each(|(from, to, bytes)| {
            copy(driver, to, from, usize::try_from(bytes).map_err(|_| Fault::Absent)?, stream)
        })
    });
}

fn fit(places: &[Operand], values: &[Operand]) -> bool {
    places.len() == values.len() && places.iter().zip(values).all(|(place, value)| place.takes(value))
}

/// Cleans up after a failed recording: pending errors, memory reserved for recordings, and a runtime that still expects
/// a recording.
fn give_up(client: &ComputeClient<CudaRuntime>, card: usize) {
    let _ = client.flush();
    // If the recording did not start, the runtime still expects it. An empty graph ends this state.
    if client.start_capture().is_ok() {
        let _ = client.stop_capture();
    }
    let _ = client.flush();
    client.memory_cleanup();
    let _ = fault_on(card);
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    #[test]
    fn graphs_refuse_host_tensors() {
        let device = Device::flex();
        let tensor = Tensor::<2>::ones([2, 3], &device);
        assert!(Operand::of(&tensor).is_none());
        assert!(matches!(StepGraph::record(&device, Vec::new(), || ()), Err(Fault::Absent)));
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn many_tensors_are_copied_as_they_are_on_gpu() {
        let device = Device::cuda(burn::tensor::DeviceIndex::Default);
        // More than a launch can take, of one, few and many blocks, with ends that do not fill a word.
        let lengths = (1..200).chain([16_383, 16_384, 16_385, 40_001]);
        let tensor = |len: usize, first: f32| {
            let values: Vec<f32> =
                (0..len).map(|at| first + f32::from(u16::try_from(at).expect("short"))).chain([f32::NAN]).collect();
            Tensor::<1>::from_data(TensorData::new(values, [len + 1]), &device)
        };
        let pairs: Vec<[Tensor<1>; 2]> = lengths.map(|len| [0.0, 0.5].map(|first| tensor(len, first))).collect();
        let all = |which: usize| -> Vec<Operand> {
            pairs.iter().map(|pair| Operand::of(&pair[which]).expect("on the GPU")).collect()
        };
        copy_into(&all(0), &all(1));
        for pair in pairs {
            let [found, expected] = pair.map(|tensor| tensor.try_into_vec_as::<f32>().expect("readable"));
            assert!(found.iter().zip(&expected).all(|(found, expected)| found.to_bits() == expected.to_bits()));
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn a_replay_has_the_values_of_its_operands_on_gpu() {
        let device = Device::cuda(burn::tensor::DeviceIndex::Default);
        let tensor = |values: [f32; 4]| Tensor::<2>::from_data(TensorData::new(values.to_vec(), [2, 2]), &device);
        let read = |tensor: &Tensor<2>| tensor.clone().try_into_vec_as::<f32>().expect("readable");
        let (x, factor) = (tensor([1.0, 2.0, 3.0, 4.0]), tensor([2.0, 0.0, 0.0, 2.0]));
        let work = || (x.clone().matmul(factor.clone()) + 1.0).exp();
        let expected = read(&work());
        let operands = [&x, &factor].map(|tensor| Operand::of(tensor).expect("on the GPU"));
        let (graph, answer) = StepGraph::record(&device, operands.to_vec(), work).expect("recorded");
        graph.replay(&operands);
        assert_eq!(read(&answer), expected);
        for value in [0.5, -1.0] {
            let other = tensor([value; 4]);
            let new = [&other, &factor].map(|tensor| Operand::of(tensor).expect("on the GPU"));
            assert!(graph.takes(&new) && !graph.takes(&new[..1]));
            graph.replay(&new);
            let expected = read(&(other.clone().matmul(factor.clone()) + 1.0).exp());
            // Other work in between does not use the graph's memory.
            let _ = read(&(other.clone() * 3.0));
            assert_eq!(read(&answer), expected);
        }
    }
}
