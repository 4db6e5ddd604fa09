//! Devices: opening one, waiting for it, and what is hashed or recorded of the program that runs on it.
//!
//! Knows how Burn names devices. Nothing of a GPU library is touched before a CUDA device is asked for.

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

/// The version of what the trainer computes with a model on `cpu` or `cuda`.
///
/// Raise it whenever the same cell would give other numbers, or clearly other times and energies. Raise it for the models and devices
/// that change, and no others, because it gives their runs new ids. Changes:
/// 1. first version.
/// 2. BERT's head at masked positions alone; VGG16 on a GPU in NHWC, with biases in the number format of the convolutions.
/// 3. On a GPU in half formats, attention whose scores are never stored or rounded; ResNet-50 on a GPU in NHWC; products without padded rows, for
///    which cuBLASLt may take other kernels.
/// 4. On a GPU, GELU by other formulas (in fp32 the slope of its tanh form alone); other orders of sums in cross-entropy and in the gradients of residual layer norm.
/// 5. The same numbers. On a GPU, memory is taken in pieces of the sizes that are asked for: less time at small batches, less memory.
/// 6. The same numbers. On a single GPU, steps that draw no random numbers on the GPU are replayed as a CUDA graph, if they leave 15/16 of its memory free: less time, more memory. NaN among DQN's next values makes the target NaN.
/// 7. The same numbers. Timed inference: on a GPU each batch is replayed as a CUDA graph, without the transfers to and from the GPU for every model; constants are folded,
///    batch normalisation among them. Steps are replayed on several GPUs that share batches, too. The first builds of this revision lack that: their attempts on several
///    GPUs have no fact `worker.step_graph`.
/// 8. On a GPU: YOLOv3 in NHWC; timed inference of YOLOv3 and Mask R-CNN is replayed up to the first data-dependent
///    step; DQN sends each frame of a batch once, and CartPole's target moves within the replayed step. Other models stay at 7.
/// 9. On a GPU, one kernel computes boxes and scores of YOLOv3 in evaluation and inference: less time, and other roundings of boxes and scores.
fn revision(device: &str, model: &str) -> i64 {
    match (device, model) {
        ("cuda", "yolov3") => 9,
        ("cuda", "maskrcnn" | "dqn") => 8,
        _ => 7,
    }
}

/// The version of Burn that is compiled in; a test holds it to `Cargo.toml`.
pub const BURN: &str = "0.22.0-pre.3";

/// The device that a run asks for cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no usable CUDA device.
    #[error(
        "no CUDA device was found (install the NVIDIA driver, check `nvidia-smi`, or set `hardware.device` to `cpu`)"
    )]
    Absent,
    /// There are fewer CUDA devices than are asked for.
    #[error(
        "{} asked for, but {there} found (lower `hardware.gpus`; CUDA_VISIBLE_DEVICES decides which are seen)",
        count(ranks, "CUDA device")
    )]
    TooFew {
        /// How many are asked for.
        ranks: usize,
        /// How many there are.
        there: usize,
    },
    /// A device is to be made as small as it is, or smaller than what is in use.
    #[error(
        "`hardware.memory_limit_gib` is {limit}, but `{device}` has {has} GiB, of which as much is in use that it cannot be made so small (give less than it has, and more than other programs use)"
    )]
    Size {
        /// Burn's name of the device.
        device: String,
        /// What it was to be.
        limit: u64,
        /// What it has.
        has: String,
    },
    /// The device does not compute what it must.
    #[error("the smoke operation on `{device}` failed: {problem} (run `ledger doctor`)")]
    Smoke {
        /// Burn's name of the device.
        device: String,
        /// What came of it.
        problem: String,
    },
    /// The device stopped working.
    #[error("`{device}` does not work any more: {problem} (run `ledger doctor`)")]
    Lost {
        /// Burn's name of the device.
        device: String,
        /// What it said.
        problem: String,
    },
    /// A card that others work with stopped working.
    #[error("`Cuda({card})` does not work any more: {problem} (run `ledger doctor`)")]
    Card {
        /// Its ordinal, which is its rank.
        card: usize,
        /// What it said.
        problem: String,
    },
}

/// Where tensors live.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the host's memory, where some of the work is done by code of ours.
    Host,
    /// On a device with a queue, where Burn's operations do all of it.
    Device(Device),
}

impl Place {
    /// Burn's name of it.
    pub fn device(&self) -> Device {
        match self {
            Self::Host => Device::flex(),
            Self::Device(device) => device.clone(),
        }
    }

    /// What Burn calls it: `Cuda(0)`.
    pub fn name(&self) -> String {
        let name = format!("{:?}", self.device());
        // It shows two of its own layers around the device.
        let inner = name.strip_prefix("Device<").and_then(|name| name.strip_suffix(")>"));
        inner.and_then(|inner| inner.split_once('(')).map_or(name.as_str(), |(_, inner)| inner).to_owned()
    }

    /// Waits until all that was asked of it is done.
    pub fn sync(&self) -> Result<(), DeviceError> {
        match self {
            Self::Host => Ok(()),
            Self::Device(device) => device
                .sync()
                .map_err(|error| DeviceError::Lost { device: self.name(), problem: shortened(&error.to_string()) }),
        }
    }

    /// Has all that was sent to it begin: it takes work in batches, and the rest of one waits.
    pub fn begin(&self) {
        if let Self::Device(device) = self
            && let Some(card) = native::card_of(device)
        {
            native::begin(card);
        }
    }

    /// Lets this thread work on it while other threads record CUDA graphs on other devices.
    pub fn tolerate_other_recordings(&self) -> Result<(), DeviceError> {
        native::step_graph::tolerate_other_recordings(&self.device())
            .map_err(|fault| DeviceError::Lost { device: self.name(), problem: fault.to_string() })
    }

    /// Returns unused memory of its pools to the driver, which has it after the next [`sync`](Self::sync).
    pub fn release(&self) {
        if let Self::Device(device) = self
            && let Some(card) = native::card_of(device)
        {
            native::memory::release(card);
        }
    }

    /// Whether what was read from it is what should have been computed. To be asked after values were read: work that was only queued may still fail.
    pub fn check(&self) -> Result<(), DeviceError> {
        if let Self::Device(device) = self
            && let Some(native::Failure { card, problem }) = native::card_of(device).and_then(native::fault_on)
        {
            return Err(DeviceError::Card { card, problem });
        }
        Ok(())
    }

    /// What is recorded of it beside a run's numbers in that format.
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

/// Whether factors in float32 may be rounded to TF32: unless NVIDIA's own variable forbids its libraries to do so.
fn tf32() -> bool {
    std::env::var_os("NVIDIA_TF32_OVERRIDE").is_none_or(|value| value != "0")
}

/// Does work on a device and gives the message of a panic, instead of passing it on: the runtime's threads hand theirs to whoever waits.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // What the work left half done is not looked at again: the run is over.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        shortened(text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked"))
    })
}

/// The beginning of a message of the runtime, which may hold a kernel's whole source.
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
            // A process that opens the GPU again has the layout already.
            native::memory::take_by_size(rank, free_bytes / 8 * 7).map_err(lost)?;
            Ok(place)
        }
    }
}

/// Takes memory of a device so that it is as small as one of so many GiB. A host's memory is left alone.
///
/// Answers how many bytes it took.
pub fn shrink(place: &Place, limit_gib: u64) -> Result<u64, DeviceError> {
    if let Place::Device(device) = place
        && let Some(card) = native::card_of(device)
    {
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

/// Refuses to begin where there are fewer devices than ranks.
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
/// The generator's digest is not in it: it belongs to the data, see [`generators`](crate::generators).
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

/// How operations become code on `cpu` or `cuda`.
fn kernels(device: &str) -> Vec<&'static str> {
    // `native`: NVIDIA's libraries, whose versions are in the part `cuda`, and kernels of ours.
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
