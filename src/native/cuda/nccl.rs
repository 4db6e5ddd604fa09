//! NCCL: sums over the GPUs of this process, and broadcasts from the first one, on the memory of Burn's tensors.
//!
//! Loaded at run time. Each GPU has a communicator. Its work is queued in the runtime's stream after all earlier work
//! on that GPU (`submit`), or in a separate stream (`overlap`). The caller must ensure that every rank makes the same
//! calls, and that none has ended: a GPU that waits for another would wait forever.

use super::kernels::room;
use super::library::{Opaque, functions, open};
use super::submit::{pointer, submit};
use super::{Cube, Fault, card_of, check, primitive, submit::bound, tensor};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use libloading::Library;
use std::ffi::c_int;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// In the order of `ledger-gpu`'s survey, whose result is part of the run's identity.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclFloat32`, and `ncclSum`.
const FLOAT32: c_int = 7;
const SUM: c_int = 0;

functions! {
    /// Functions of `nccl.h`. Each returns an `ncclResult_t`.
    Nccl {
        /// `ncclGetVersion(version)`.
        version = c"ncclGetVersion" (*mut c_int);
        /// `ncclCommInitAll(communicators, how many, ordinals of their cards)`.
        init = c"ncclCommInitAll" (*mut Opaque, c_int, *const c_int);
        /// `ncclCommAbort(communicator)`.
        abort = c"ncclCommAbort" (Opaque);
        /// `ncclCommGetAsyncError(communicator, error)`.
        error = c"ncclCommGetAsyncError" (Opaque, *mut c_int);
        /// `ncclGroupStart()`.
        begin = c"ncclGroupStart" ();
        /// `ncclGroupEnd()`.
        end = c"ncclGroupEnd" ();
        /// `ncclAllReduce(from, to, count, format, operation, communicator, stream)`.
        all_reduce = c"ncclAllReduce" (Opaque, Opaque, usize, c_int, c_int, Opaque, Opaque);
        /// `ncclBroadcast(from, to, count, format, root, communicator, stream)`.
        broadcast = c"ncclBroadcast" (Opaque, Opaque, usize, c_int, c_int, Opaque, Opaque);
    }
}

/// Why NCCL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NcclError {
    /// It is missing.
    #[error(
        "NCCL is missing: neither libnccl.so.2 nor libnccl.so can be loaded (install package libnccl2, or pip's nvidia-nccl-cu13 with its directory in LD_LIBRARY_PATH; or set `hardware.gpus` to 1)"
    )]
    Absent,
    /// It failed.
    #[error("NCCL cannot connect {ranks} GPUs: {reason} (NCCL_DEBUG=INFO makes it say more)")]
    Failed {
        /// The number of GPUs.
        ranks: usize,
        /// NCCL's error.
        reason: String,
    },
}

/// Returns the library, loaded on first use.
fn nccl() -> Option<&'static Nccl> {
    static NCCL: OnceLock<Option<Nccl>> = OnceLock::new();
    NCCL.get_or_init(|| first(&NAMES)).as_ref()
}

fn first(names: &[&str]) -> Option<Nccl> {
    names.iter().find_map(|name| open(name, Nccl::of))
}

/// Returns the name of an `ncclResult_t`.
fn meaning(code: c_int) -> String {
    let meaning = match code {
        1 => "a call of CUDA failed",
        2 => "a call of the system failed",
        3 => "an internal error",
        4 => "an invalid argument",
        5 => "an invalid use",
        6 => "a remote error",
        7 => "it is still in progress",
        _ => return format!("error {code}"),
    };
    format!("{meaning} (error {code})")
}

/// Returns the version with major, minor and patch, such as `22803`, or `None` if NCCL is missing.
pub fn version() -> Option<i64> {
    let nccl = nccl()?;
    let mut version = 0;
    // SAFETY: the version can be written to.
    #[expect(unsafe_code, reason = "a function of NCCL")]
    let status = unsafe { (nccl.version)(&raw mut version) };
    (status == 0).then(|| i64::from(version))
}

/// One GPU's part in collective operations. It lives as long as the process.
#[derive(Clone, Copy, Debug)]
pub struct Communicator {
    /// `ncclComm_t` as a number, so that it can be sent to another thread.
    comm: usize,
    card: usize,
    /// If GPUs can access each other's memory, their buckets are summed by copies.
    copies: Option<&'static End>,
}

/// Whether the GPUs have been disconnected, permanently: their communicators are gone.
static CUT: AtomicBool = AtomicBool::new(false);

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collective {
    AllReduce,
    Broadcast,
}

/// Connects the first `ranks` GPUs.
///
/// # Errors
/// If NCCL is missing, fails, or does not answer in time.
pub fn communicators(ranks: usize, limit: Duration) -> Result<Vec<Communicator>, NcclError> {
    let nccl = nccl().ok_or(NcclError::Absent)?;
    let failed = |reason: String| NcclError::Failed { ranks, reason };
    let (sender, receiver) = channel();
    // A separate thread allows a timeout, and leaves this thread's current context unchanged.
    std::thread::spawn(move || sender.send(connect(nccl, ranks)));
    match receiver.recv_timeout(limit) {
        Ok(connected) => connected.map_err(|code| failed(meaning(code))),
        Err(RecvTimeoutError::Timeout) => Err(failed(format!("it did not answer within {} s", limit.as_secs()))),
        Err(RecvTimeoutError::Disconnected) => Err(failed("it panicked".to_owned())),
    }
}

fn connect(nccl: &Nccl, ranks: usize) -> Result<Vec<Communicator>, c_int> {
    const INVALID_ARGUMENT: c_int = 4;
    let cards: Vec<c_int> = (0..).take(ranks).collect();
    let count = c_int::try_from(ranks).map_err(|_| INVALID_ARGUMENT)?;
    let mut comms: Vec<Opaque> = vec![null_mut(); ranks];
    // SAFETY: there is room for as many communicators as there are ordinals.
    #[expect(unsafe_code, reason = "a function of NCCL")]
    let status = unsafe { (nccl.init)(comms.as_mut_ptr(), count, cards.as_ptr()) };
    if status != 0 {
        return Err(status);
    }
    let copies = copies::ends(ranks);
    let end = |card: usize| copies.as_ref().and_then(|ends| ends.get(card).copied());
    let communicator =
        |(card, comm): (usize, Opaque)| Communicator { comm: comm.expose_provenance(), card, copies: end(card) };
    Ok(comms.into_iter().enumerate().map(communicator).collect())
}

impl Communicator {
    /// Sums float32 tensors on this GPU over all GPUs, value by value. `None` if they are elsewhere.
    pub fn all_reduce(self, tensors: Vec<Tensor<1>>) -> Option<Vec<Tensor<1>>> {
        self.queue(Collective::AllReduce, tensors)
    }

    /// Replaces this GPU's values with those of the first GPU. `None` if they are elsewhere.
    pub fn broadcast(self, tensors: Vec<Tensor<1>>) -> Option<Vec<Tensor<1>>> {
        self.queue(Collective::Broadcast, tensors)
    }

    /// Returns an error of the collective operations so far, if there is one.
    pub fn fault(self) -> Option<String> {
        let nccl = nccl()?;
        let mut code = 0;
        // SAFETY: the communicator was made by the library; the code can be written to.
        #[expect(unsafe_code, reason = "a function of NCCL")]
        let status = unsafe { (nccl.error)(self.pointer(), &raw mut code) };
        let code = if status == 0 { code } else { status };
        (code != 0 && code != 7).then(|| format!("NCCL on card {}: {}", self.card, meaning(code)))
    }

    /// Ends operations in which GPUs wait for each other. Do not use the communicator afterwards. This call may block
    /// itself.
    pub fn abort(self) {
        CUT.store(true, Ordering::SeqCst);
        if let Some(nccl) = nccl() {
            // SAFETY: the communicator was made by the library and is used no more: the process is about to end.
            #[expect(unsafe_code, reason = "a function of NCCL")]
            let status = unsafe { (nccl.abort)(self.pointer()) };
            if status != 0 {
                log::warn!("ncclCommAbort: {}", meaning(status));
            }
        }
    }

    /// Whether buckets are summed by copies between GPUs, which occupy few multiprocessors, instead of NCCL's kernels.
    pub fn copies(self) -> bool {
        self.copies.is_some()
    }

    fn pointer(self) -> Opaque {
        with_exposed_provenance_mut(self.comm)
    }

    /// Queues all tensors as one operation, so that nothing can interrupt or reorder them.
    fn queue(self, what: Collective, tensors: Vec<Tensor<1>>) -> Option<Vec<Tensor<1>>> {
        let here = |tensor: &Tensor<1>| card_of(&tensor.device()) == Some(self.card) && tensor.dtype() == DType::F32;
        if tensors.is_empty() || !tensors.iter().all(here) || nccl().is_none() {
            return None;
        }
        // The tensors to overwrite must not be shared.
        let inputs = tensors.into_iter().map(|each| primitive(&each));
        let made = self.collect(what, inputs.collect::<Option<_>>()?);
        Some(made.into_iter().map(tensor).collect())
    }

    fn collect(self, what: Collective, inputs: Vec<Cube>) -> Vec<Cube> {
        let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
        let made: Vec<Cube> = inputs.iter().map(room).collect();
        let lengths: Vec<usize> = inputs.iter().map(|input| input.meta.shape().num_elements()).collect();
        let buffers = inputs.iter().chain(&made).map(|tensor| bound(&tensor.handle)).collect();
        submit(&inputs[0].device, buffers, move |places, stream| {
            let (from, to) = places.split_at(lengths.len());
            let each = from.iter().zip(to).zip(lengths);
            self.call(what, each.map(|((from, to), length)| (*from, *to, length)).collect(), stream)
        });
        made
    }

    /// Call it on the thread that talks to the GPU, with its context current.
    fn call(self, what: Collective, buffers: Vec<(u64, u64, usize)>, stream: Opaque) -> Result<(), Fault> {
        let name = if what == Collective::AllReduce { "ncclAllReduce" } else { "ncclBroadcast" };
        self.grouped(|nccl| {
            buffers.into_iter().try_for_each(|(from, to, length)| {
                let (from, to) = (pointer(Some(&from))?, pointer(Some(&to))?);
                let comm = self.pointer();
                // SAFETY: both buffers are on this card, hold so many values and are kept until the work is queued,
                // behind which nothing that the runtime does with them can come; the communicator is that of this card,
                // and the stream too.
                #[expect(unsafe_code, reason = "functions of NCCL")]
                let status = unsafe {
                    match what {
                        Collective::AllReduce => (nccl.all_reduce)(from, to, length, FLOAT32, SUM, comm, stream),
                        Collective::Broadcast => (nccl.broadcast)(from, to, length, FLOAT32, 0, comm, stream),
                    }
                };
                check(name, status)
            })
        })
    }

    /// Sums `length` values at an address over all GPUs, in place. Call it like [`Self::call`].
    fn sum_in_place(self, address: u64, length: usize, stream: Opaque) -> Result<(), Fault> {
        let nccl = nccl().filter(|_| !CUT.load(Ordering::SeqCst)).ok_or(Fault::Absent)?;
        let place = pointer(Some(&address))?;
        // SAFETY: there are so many values of this card, which nobody uses before what comes behind this in the stream;
        // the communicator is that of this card, and the stream too.
        #[expect(unsafe_code, reason = "a function of NCCL")]
        let status = unsafe { (nccl.all_reduce)(place, place, length, FLOAT32, SUM, self.pointer(), stream) };
        check("ncclAllReduce", status)
    }

    /// Makes calls that NCCL treats as one group.
    fn grouped(self, calls: impl FnOnce(&'static Nccl) -> Result<(), Fault>) -> Result<(), Fault> {
        let nccl = nccl().filter(|_| !CUT.load(Ordering::SeqCst)).ok_or(Fault::Absent)?;
        // SAFETY: it takes no memory; its end follows.
        #[expect(unsafe_code, reason = "a function of NCCL")]
        check("ncclGroupStart", unsafe { (nccl.begin)() })?;
        let queued = calls(nccl);
        // SAFETY: it was begun above.
        #[expect(unsafe_code, reason = "a function of NCCL")]
        let ended = unsafe { (nccl.end)() };
        queued.and(check("ncclGroupEnd", ended))
    }
}

mod copies;
mod overlap;

use copies::End;
pub use overlap::{BucketPlan, exposed_s, waits_s};

#[cfg(test)]
mod tests;
