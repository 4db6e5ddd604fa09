//! Devices: opening one, and what is hashed of the program that runs on it.
//!
//! Knows how Burn names devices. Nothing of a GPU library is touched before a CUDA device is asked for.

use super::spec::DeviceSpec;
use crate::record::{Table, Value};
use burn::tensor::Device;

/// The version of what the trainer computes.
///
/// Raise it whenever the same cell would give other numbers. Changes:
/// 1. first version.
pub const REVISION: i64 = 1;

/// The version of Burn that is compiled in; a test holds it to `Cargo.toml`.
pub const BURN: &str = "0.22.0-pre.3";

/// The device that a run asks for cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The program was built for the CPU alone.
    #[error("this program was built without CUDA (build it with `--features cuda`, or set `hardware.device` to `cpu`)")]
    NotBuilt,
    /// There is no usable CUDA device.
    #[error(
        "no CUDA device was found (install the NVIDIA driver, check `nvidia-smi`, or set `hardware.device` to `cpu`)"
    )]
    Absent,
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
}

/// Opens the device.
pub fn open(spec: DeviceSpec) -> Result<Place, DeviceError> {
    match spec {
        DeviceSpec::Cpu => Ok(Place::Host),
        DeviceSpec::Cuda => cuda(),
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Place, DeviceError> {
    use burn::tensor::DeviceType;
    let found = Device::enumerate(DeviceType::Cuda).into_iter().count();
    if found == 0 { Err(DeviceError::Absent) } else { Ok(Place::Device(Device::cuda(0))) }
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Place, DeviceError> {
    Err(DeviceError::NotBuilt)
}

/// What executes a run on `cpu` or `cuda`, as it enters the run's identity.
///
/// The generator's digest is not in it: it belongs to the data, see [`digits_reference_digest`](super::digits_reference_digest).
pub fn program(device: &str) -> Value {
    let kernels: Vec<&str> = if device == "cuda" {
        [("autotune", cfg!(feature = "cuda")), ("fusion", cfg!(feature = "fusion"))]
            .into_iter()
            .filter_map(|(name, built)| built.then_some(name))
            .collect()
    } else {
        vec!["flex"]
    };
    let fields: Table = [
        ("trainer".to_owned(), "ledger".into()),
        ("revision".to_owned(), REVISION.into()),
        ("burn".to_owned(), BURN.into()),
        ("kernels".to_owned(), kernels.into()),
    ]
    .into();
    fields.into()
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
    fn the_program_names_its_kernels() {
        let program = program("cpu");
        let table = program.as_table().expect("a table");
        assert_eq!(table["kernels"].to_string(), "[flex]");
        assert_eq!(table["revision"], Value::Int(REVISION));
    }
}
