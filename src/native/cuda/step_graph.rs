//! Work that is recorded once as a CUDA graph and then repeated by one launch: the host no longer launches its kernels one by one.
//!
//! A graph repeats its kernels on the same addresses. So it has buffers of its own for all that it reads and that changes (its operands), into which
//! each repetition copies the new values, and for all that it computes, which the next repetition overwrites.
//!
//! The runtime records (`graph_prepare`, `start_capture`, `stop_capture`); work of ours in its stream is recorded with it. Nothing may be allocated,
//! compiled or sent from the host while it records. So the work is done twice before: once as always, which compiles and tunes, and once with the
//! memory that the recording takes.

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

/// A tensor whose values a graph reads, and that other values take the place of.
#[derive(Clone)]
pub struct Operand(Cube);

impl Operand {
    /// A second holder of a tensor. None on other devices, and of a tensor of which several values lie in one place.
    pub fn of<const D: usize>(tensor: &Tensor<D>) -> Option<Self> {
        primitive(tensor).filter(Cube::is_nonoverlapping).map(Self)
    }

    /// [`Self::of`] for whole numbers.
    pub fn of_whole<const D: usize>(tensor: &Tensor<D, Int>) -> Option<Self> {
        whole(tensor).filter(Cube::is_nonoverlapping).map(Self)
    }

    /// How much is copied: rows may have gaps between them.
    fn bytes(&self) -> u64 {
        self.0.handle.size_in_used()
    }

    /// Whether the values of the other one fit into its place.
    fn takes(&self, other: &Self) -> bool {
        (self.0.dtype, &self.0.meta, self.bytes()) == (other.0.dtype, &other.0.meta, other.bytes())
    }
}

/// Values that recorded work reads, and that change.
pub trait Operands: Clone {
    /// Their tensors, in an order of their own. None where no graph can read them.
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

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: captures of other threads forbid this one no call.
const THREAD_LOCAL: c_int = 1;

/// Lets this thread and the one that talks to a CUDA device work while other threads record for other devices. Without it the driver would refuse calls such as
/// allocations on these threads, and end the other one's recording. Meanwhile, do not pass buffers between threads of one device: the runtime would wait on a thread
/// that lacks this mode.
///
/// # Errors
/// If the driver is not there, or refuses on this thread. A refusal on the device's thread is noted for [`fault_on`].
pub fn tolerate_other_recordings(device: &Device) -> Result<(), Fault> {
    let tolerate = || tolerate_here(driver().ok_or(Fault::Absent)?);
    if let DispatchDevice::Cuda(card) = device.as_dispatch() {
        submit(card, Vec::new(), move |_, _| tolerate());
        tolerate()?;
    }
    Ok(())
}

/// [`tolerate_other_recordings`], for this thread alone.
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
    /// Records what is done on a CUDA device with these operands, and returns what the work returned when it was recorded: tensors that have values
    /// after each [`replay`](Self::replay), and none before. The work must do the same each time and was done before.
    ///
    /// All else that the work reads has to stay where it is for as long as there is the graph. Whatever was asked of the device before has to be done.
    ///
    /// # Errors
    /// If the device cannot record it. Nothing is recorded any more then, and no failure of the recording is left for others.
    pub fn record<T>(device: &Device, operands: Vec<Operand>, mut work: impl FnMut() -> T) -> Result<(Self, T), Fault> {
        let card = card_of(device).ok_or(Fault::Absent)?;
        let client = CudaRuntime::client(&cubecl::cuda::CudaDevice::new(card));
        let fault = |error: &dyn std::fmt::Display| Fault::Runtime(error.to_string());
        let found = client.graph_prepare().and_then(|()| {
            // What it returns goes: the recording takes its memory.
            drop(work());
            client.start_capture()?;
            let recorded = work();
            Ok((client.stop_capture()?, recorded))
        });
        // A failure of work of ours is known by now: the thread of the card has stopped recording behind it.
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

    /// Whether these operands can take the places of its own.
    pub fn takes(&self, operands: &[Operand]) -> bool {
        fit(&self.operands, operands)
    }

    /// Does the work with other values of its operands, which it [takes](Self::takes).
    ///
    /// Panics if it does not, a fault of the caller.
    pub fn replay(&self, operands: &[Operand]) {
        copy_into(&self.operands, operands);
        // SAFETY: the runtime keeps all memory that was taken while it recorded for as long as there is the graph; the operands' is held here. Copies
        // before it and reads behind it are sent from the same thread, and so go into the same stream.
        #[expect(unsafe_code, reason = "a graph works on addresses")]
        unsafe {
            self.graph.replay();
        }
    }
}

/// Copies values into the places of others, which [take](StepGraph::takes) them, all at once: no value may lie in another one's place. Where both are one place
/// there is nothing to do. It may be called while work is recorded.
///
/// Panics if one does not take the other, a fault of the caller.
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

/// Leaves nothing of a recording that failed: errors that wait for whoever asks next, memory that is only for recordings, and a runtime that still
/// expects one.
fn give_up(client: &ComputeClient<CudaRuntime>, card: usize) {
    let _ = client.flush();
    // Where it did not come to record, it still waits for that. An empty graph ends the waiting.
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
    fn the_host_has_no_graphs() {
        let device = Device::flex();
        let tensor = Tensor::<2>::ones([2, 3], &device);
        assert!(Operand::of(&tensor).is_none());
        assert!(matches!(StepGraph::record(&device, Vec::new(), || ()), Err(Fault::Absent)));
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn many_tensors_are_copied_as_they_are_on_gpu() {
        let device = Device::cuda(burn::tensor::DeviceIndex::Default);
        // More than a launch takes, of one, few and many blocks, and with ends that fill no packed word.
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
            // Something else in between takes no memory of the graph.
            let _ = read(&(other.clone() * 3.0));
            assert_eq!(read(&answer), expected);
        }
    }
}
