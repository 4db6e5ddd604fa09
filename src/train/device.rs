//! Devices: opening and synchronising them, and the part of a run's identity that describes the program.
//!
//! Knows how Burn names devices. Touches no GPU library before a CUDA device is requested.

pub mod idle;
pub mod load;
pub mod memory;
pub mod messages;
pub mod peak;
pub mod smoke;
pub mod step_timer;

use crate::native;
use crate::precision::Precision;
use crate::spec::DeviceSpec;
use burn::tensor::{Device, DeviceType};
use ledger_record::{Table, Value, count};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The version of the computation of a model on `cpu` or `cuda`.
///
/// Raise it whenever the same cell would give other numbers, or clearly other times and energies. Raise it only for the
/// models and devices that change, because it gives their runs new ids. Changes:
/// 1. First version.
/// 2. BERT's head at masked positions only; VGG16 on a GPU in NHWC, with biases in the number format of the
///    convolutions.
/// 3. On a GPU in half formats, attention whose scores are never stored or rounded; ResNet-50 on a GPU in NHWC;
///    products without padded rows, for which cuBLASLt may select other kernels.
/// 4. On a GPU, other formulas for GELU (in fp32 only for the gradient of its tanh form); other summation orders in
///    cross-entropy and in the gradients of residual layer norm.
/// 5. The same numbers. On a GPU, memory is allocated in blocks of the requested sizes: less time at small batches,
///    less memory.
/// 6. The same numbers. On a single GPU, steps that draw no random numbers on the GPU are replayed as a CUDA graph if
///    15/16 of its memory stays free: less time, more memory. NaN among DQN's next values makes the target NaN.
/// 7. The same numbers. Timed inference: on a GPU each batch is replayed as a CUDA graph, for every model without the
///    transfers to and from the GPU. Constants are folded, batch normalisation among them. Steps are replayed on
///    several data-parallel GPUs, too. The first builds of this revision lack that: their attempts on several GPUs have
///    no fact `worker.step_graph`.
/// 8. On a GPU: YOLOv3 in NHWC; timed inference of YOLOv3 and Mask R-CNN is replayed up to the first data-dependent
///    step; DQN sends each frame of a batch once, and CartPole's target moves within the replayed step. Other models
///    stay at 7.
/// 9. On a GPU, one kernel computes boxes and scores of YOLOv3 in evaluation and inference: less time, and other
///    roundings of boxes and scores.
fn revision(device: &str, model: &str) -> i64 {
    match (device, model) {
        ("cuda", "yolov3") => 9,
        ("cuda", "maskrcnn" | "dqn") => 8,
        _ => 7,
    }
}

/// The version of Burn that is compiled in. A test compares it with `Cargo.toml`.
pub const BURN: &str = "0.22.0-pre.3";

/// The device that a run asks for cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no usable CUDA device.
    #[error(
        "no CUDA device was found (install the NVIDIA driver, check `nvidia-smi`, or set `hardware.device` to `cpu`)"
    )]
    Absent,
    /// There are fewer CUDA devices than requested.
    #[error(
        "{} asked for, but {there} found (lower `hardware.gpus`; CUDA_VISIBLE_DEVICES decides which are seen)",
        count(ranks, "CUDA device")
    )]
    TooFew {
        /// The number requested.
        ranks: usize,
        /// The number found.
        there: usize,
    },
    /// A device cannot be limited to this size: it is no larger, or more memory is in use.
    #[error(
        "`hardware.memory_limit_gib` is {limit}, but `{device}` has {has} GiB, of which as much is in use that it cannot be made so small (give less than it has, and more than other programs use)"
    )]
    Size {
        /// Burn's name of the device.
        device: String,
        /// The requested limit in GiB.
        limit: u64,
        /// The device's memory in GiB.
        has: String,
    },
    /// The device computes wrong values or cannot run the smoke operation.
    #[error("the smoke operation on `{device}` failed: {problem} (run `ledger doctor`)")]
    Smoke {
        /// Burn's name of the device.
        device: String,
        /// The failure.
        problem: String,
    },
    /// The device stopped working.
    #[error("`{device}` does not work any more: {problem} (run `ledger doctor`)")]
    Lost {
        /// Burn's name of the device.
        device: String,
        /// The device's message.
        problem: String,
    },
    /// A GPU of a multi-GPU run stopped working.
    #[error("`Cuda({card})` does not work any more: {problem} (run `ledger doctor`)")]
    Card {
        /// Its ordinal, which is its rank.
        card: usize,
        /// The device's message.
        problem: String,
    },
}

/// The location of tensors.
#[derive(Clone, Debug)]
pub enum Place {
    /// The host's memory; code of our own does some of the work.
    Host,
    /// A device with a queue; Burn's operations do all the work.
    Device(Device),
}

impl Place {
    /// Returns Burn's handle of the device.
    pub fn device(&self) -> Device {
        match self {
            Self::Host => Device::flex(),
            Self::Device(device) => device.clone(),
        }
    }

    /// Returns Burn's name of the device, such as `Cuda(0)`.
    pub fn name(&self) -> String {
        let name = format!("{:?}", self.device());
        // Burn's debug output shows two of its own layers around the device.
        let inner = name.strip_prefix("Device<").and_then(|name| name.strip_suffix(")>"));
        inner.and_then(|inner| inner.split_once('(')).map_or(name.as_str(), |(_, inner)| inner).to_owned()
    }

    /// Returns the ordinal of a GPU; `None` for other devices.
    pub fn card(&self) -> Option<usize> {
        match self {
            Self::Host => None,
            Self::Device(device) => native::card_of(device),
        }
    }

    /// Waits until all submitted work is done.
    pub fn sync(&self) -> Result<(), DeviceError> {
        match self {
            Self::Host => Ok(()),
            Self::Device(device) => device
                .sync()
                .map_err(|error| DeviceError::Lost { device: self.name(), problem: shortened(&error.to_string()) }),
        }
    }

    /// Submits work that is still queued on the host: the device otherwise receives work in batches.
    pub fn begin(&self) {
        if let Some(card) = self.card() {
            native::begin(card);
        }
    }

    /// Lets this thread use the device while other threads capture CUDA graphs on other devices.
    pub fn tolerate_other_recordings(&self) -> Result<(), DeviceError> {
        native::step_graph::tolerate_other_recordings(&self.device())
            .map_err(|fault| DeviceError::Lost { device: self.name(), problem: fault.to_string() })
    }

    /// Returns unused memory of its pools to the driver. The driver has it after the next [`sync`](Self::sync).
    pub fn release(&self) {
        if let Some(card) = self.card() {
            native::memory::release(card);
        }
    }

    /// Returns an error if a GPU operation failed. Call it after reading values: queued work may fail later.
    pub fn check(&self) -> Result<(), DeviceError> {
        match self.card().and_then(native::fault_on) {
            Some(native::Failure { card, problem }) => Err(DeviceError::Card { card, problem }),
            None => Ok(()),
        }
    }

    /// Returns the facts that are recorded about the device for a run in this number format.
    pub fn facts(&self, precision: Precision) -> Vec<(&'static str, Value)> {
        let mut facts = vec![("device_name", self.name().into())];
        match self {
            Self::Host => facts.extend([
                ("precision", precision.name().into()),
                ("kernels", kernels("cpu").into()),
                ("rayon_threads", rayon::current_num_threads().into()),
            ]),
            Self::Device(_) => {
                let format = match precision {
                    Precision::Fp32 if tf32() => "fp32 (tf32 allowed)",
                    other => other.name(),
                };
                facts.extend([("precision", format.into()), ("kernels", kernels("cuda").into())]);
            }
        }
        facts
    }
}

/// Whether float32 factors may be rounded to TF32: unless NVIDIA's own variable forbids it.
fn tf32() -> bool {
    std::env::var_os("NVIDIA_TF32_OVERRIDE").is_none_or(|value| value != "0")
}

/// Runs work on a device and turns a panic into its message: the runtime's threads pass theirs to the thread that
/// waits.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Nothing uses the interrupted state again: the run is over.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        shortened(text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked"))
    })
}

/// Cuts a message of the runtime to its beginning; it may contain a kernel's whole source.
pub fn shortened(text: &str) -> String {
    const SHOWN: usize = 2000;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} […]", &text[..end]),
        None => text.to_owned(),
    }
}

/// Opens a rank's device.
pub fn open(spec: DeviceSpec, rank: usize) -> Result<Place, DeviceError> {
    match spec {
        DeviceSpec::Cpu => Ok(Place::Host),
        DeviceSpec::Cuda => {
            suffice(spec, rank + 1)?;
            let place = Place::Device(Device::cuda(rank));
            let lost = |fault: native::Fault| DeviceError::Lost { device: place.name(), problem: fault.to_string() };
            let (free_bytes, _) = native::memory::left(rank).map_err(lost)?;
            // If the process opened the GPU before, this layout is set already.
            native::memory::take_by_size(rank, free_bytes / 8 * 7).map_err(lost)?;
            Ok(place)
        }
    }
}

/// Reserves device memory so that only `limit_gib` GiB remain usable. Leaves a host's memory alone.
///
/// Returns the number of bytes reserved.
pub fn shrink(place: &Place, limit_gib: u64) -> Result<u64, DeviceError> {
    if let Some(card) = place.card() {
        use native::memory::{Room, shrink, take_by_size};
        let gib = |bytes: u64| format!("{:.1}", crate::number::real(bytes) / f64::from(1 << 30));
        let limit_bytes = limit_gib.saturating_mul(1 << 30);
        let lost = |fault: native::Fault| DeviceError::Lost { device: place.name(), problem: fault.to_string() };
        return match shrink(card, limit_bytes) {
            Ok(Room::Taken(bytes)) => match take_by_size(card, limit_bytes / 4 * 3).map_err(lost)? {
                true => Ok(bytes),
                false => Err(lost(native::Fault::Runtime("its memory is in use already".to_owned()))),
            },
            Ok(Room::Smaller(bytes)) => {
                Err(DeviceError::Size { device: place.name(), limit: limit_gib, has: gib(bytes) })
            }
            Err(fault) => Err(lost(fault)),
        };
    }
    Ok(0)
}

/// Returns an error if there are fewer devices than ranks.
pub fn suffice(spec: DeviceSpec, ranks: usize) -> Result<(), DeviceError> {
    match spec {
        DeviceSpec::Cpu => Ok(()),
        DeviceSpec::Cuda => match Device::enumerate(DeviceType::Cuda).into_iter().count() {
            0 => Err(DeviceError::Absent),
            there if there < ranks => Err(DeviceError::TooFew { ranks, there }),
            _ => Ok(()),
        },
    }
}

/// The program part of a run's identity, for a model on `cpu` or `cuda`.
///
/// It excludes the data generator's digest, which belongs to the data, see [`generators`](crate::generators).
pub fn program(device: &str, model: &str) -> Value {
    let fields: Table = [
        ("trainer".to_owned(), "ledger".into()),
        ("revision".to_owned(), revision(device, model).into()),
        ("burn".to_owned(), BURN.into()),
        ("kernels".to_owned(), kernels(device).into()),
    ]
    .into();
    fields.into()
}

/// The sources of kernels on `cpu` or `cuda`.
fn kernels(device: &str) -> Vec<&'static str> {
    // `native`: NVIDIA's libraries, whose versions are in the part `cuda`, and our own kernels.
    if device == "cuda" { vec!["autotune", "native"] } else { vec!["flex"] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_burn_is_the_one_in_the_manifest() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(manifest.contains(&format!("burn = {{ version = \"={BURN}\"")));
    }

    #[test]
    fn a_panic_becomes_a_message() {
        assert_eq!(caught(|| 3), Ok(3));
        assert_eq!(caught(|| -> u8 { panic!("no {}", 3) }), Err("no 3".to_owned()));
        assert_eq!(caught(|| -> u8 { panic!("none") }), Err("none".to_owned()));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"ö".repeat(5000));
        assert_eq!(cut.chars().count(), 2000 + " […]".chars().count());
    }

    #[test]
    fn facts_of_the_host_and_of_a_device_differ_in_their_precision() {
        let fact = |place: &Place, name| {
            place.facts(Precision::Fp32).into_iter().find(|fact| fact.0 == name).map(|fact| fact.1)
        };
        let device = Place::Device(Device::flex());
        assert_eq!(fact(&Place::Host, "precision"), Some("fp32".into()));
        assert_eq!(fact(&device, "precision"), Some("fp32 (tf32 allowed)".into()));
        assert!(fact(&Place::Host, "rayon_threads").and_then(|threads| threads.as_int()).is_some_and(|n| n > 0));
        assert_eq!(fact(&device, "rayon_threads"), None);
        for place in [Place::Host, device] {
            assert!(place.facts(Precision::Bf16).contains(&("precision", "bf16".into())));
        }
        let name = Place::Host.name();
        assert!(!name.is_empty() && !name.starts_with("Device<"), "{name}");
    }

    #[test]
    fn the_program_names_its_kernels_and_the_revision_of_its_model() {
        for (device, model, kernels, revision) in [
            ("cpu", "yolov3", "[flex]", 7),
            ("cuda", "yolov3", "[autotune, native]", 9),
            ("cuda", "resnet50", "[autotune, native]", 7),
        ] {
            let program = program(device, model);
            let table = program.as_table().expect("a table");
            assert_eq!((table["kernels"].to_string().as_str(), &table["revision"]), (kernels, &Value::Int(revision)));
        }
    }
}
