//! Loads NVML and lists the machine's GPUs.

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample, Nvml};
use std::ffi::OsStr;
use std::path::Path;

/// The library's name, as the driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Why NVML cannot be loaded or a query failed.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The library cannot be loaded.
    #[error(
        "cannot load `{library}` (install the NVIDIA driver; in a container, start it with the GPUs: `apptainer --nv`, `docker --gpus all`)"
    )]
    Library {
        /// The library's name or path.
        library: String,
        /// The loader's error.
        #[source]
        source: NvmlError,
    },
    /// The library exists, but the driver is not loaded.
    #[error("the NVIDIA driver is not loaded (load it with `modprobe nvidia`, or reboot after installing it)")]
    NoDriver {
        /// NVML's error.
        #[source]
        source: NvmlError,
    },
    /// The library belongs to another driver version than the one that the kernel runs.
    #[error(
        "the NVIDIA driver and its library are of different versions (reboot, so that the kernel loads the installed driver)"
    )]
    Mismatch {
        /// NVML's error.
        #[source]
        source: NvmlError,
    },
    /// A property of one GPU cannot be read.
    #[error(
        "NVML cannot tell of GPU {index} {what}: {source} (`nvidia-smi` shows whether it is well; CUDA_VISIBLE_DEVICES can leave it out)"
    )]
    Silent {
        /// Its index in NVML's order.
        index: u32,
        /// The requested property.
        what: &'static str,
        /// NVML's error.
        #[source]
        source: NvmlError,
    },
    /// A call failed.
    #[error("NVML cannot report {what} (`nvidia-smi` shows whether the GPU is well)")]
    Call {
        /// The requested value.
        what: &'static str,
        /// NVML's error.
        #[source]
        source: NvmlError,
    },
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its index in NVML's order, which is that of the PCI bus.
    pub index: u32,
    /// The product name: `NVIDIA H200`.
    pub name: String,
    /// Its globally unique id: `GPU-8932f937-…`.
    pub uuid: String,
    /// Its memory in bytes, or `None` if NVML does not report it, as for a GPU that shares the host's memory.
    pub memory_total_bytes: Option<u64>,
    /// Whether it is split into MIG instances, so that CUDA sees these instead of the whole GPU.
    pub mig: bool,
    /// Its PCI bus id: `00000000:3B:00.0`.
    pub pci_bus_id: String,
}

/// NVML, loaded and initialised. It is shut down on drop.
#[derive(Debug)]
pub struct Gpus {
    nvml: Nvml,
}

impl Gpus {
    /// Loads NVML from this path, or by its usual name through the dynamic loader.
    ///
    /// # Errors
    /// If there is no such library, no driver, or their versions differ.
    pub fn load(library: Option<&Path>) -> Result<Self, GpuError> {
        let library = library.map_or(OsStr::new(LIBRARY), Path::as_os_str);
        match Nvml::builder().lib_path(library).init() {
            Ok(nvml) => Ok(Self { nvml }),
            Err(source @ NvmlError::DriverNotLoaded) => Err(GpuError::NoDriver { source }),
            Err(source @ NvmlError::LibRmVersionMismatch) => Err(GpuError::Mismatch { source }),
            Err(source @ (NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_))) => {
                Err(GpuError::Library { library: library.to_string_lossy().into_owned(), source })
            }
            Err(source) => Err(GpuError::Call { what: "anything: it does not start", source }),
        }
    }

    /// Returns the driver's version: `580.159.04`.
    ///
    /// # Errors
    /// If NVML does not report it.
    pub fn driver_version(&self) -> Result<String, GpuError> {
        self.nvml.sys_driver_version().map_err(call("the driver's version"))
    }

    /// Returns the newest CUDA version that the driver supports, major and minor.
    ///
    /// # Errors
    /// If NVML does not report it.
    pub fn cuda_driver_version(&self) -> Result<(u32, u32), GpuError> {
        let version = self.nvml.sys_cuda_driver_version().map_err(call("the driver's CUDA version"))?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Returns the number of GPUs in the machine, including those that do not answer.
    ///
    /// # Errors
    /// If NVML does not report it.
    pub fn count(&self) -> Result<u32, GpuError> {
        self.nvml.device_count().map_err(call("the number of GPUs"))
    }

    /// Returns every GPU of the machine in the order of the PCI bus, visible to CUDA or not. A GPU that cannot be
    /// identified is an `Err`.
    ///
    /// # Errors
    /// If NVML does not report how many there are.
    pub fn devices(&self) -> Result<Vec<Result<GpuInfo, GpuError>>, GpuError> {
        Ok((0..self.count()?).map(|index| self.device(index)).collect())
    }

    /// Returns the version of a GPU's firmware, or `None` if NVML does not report it.
    pub fn vbios(&self, gpu: &GpuInfo) -> Option<String> {
        self.by_uuid(&gpu.uuid).and_then(|device| device.vbios_version()).ok()
    }

    /// Returns NVML's handle of the GPU with this UUID.
    pub(super) fn by_uuid(&self, uuid: &str) -> Result<Device<'_>, NvmlError> {
        self.nvml.device_by_uuid(uuid)
    }

    /// Returns the mean of each metric between two samples of a GPU, in NVML's unit, or NVML's error for the metric.
    pub(super) fn gpm_metrics<'a>(
        &'a self,
        before: &GpmSample<'a>,
        after: &GpmSample<'a>,
        ids: &[GpmMetricId],
    ) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
        let answers = gpm_metrics_get(&self.nvml, before, after, ids)?;
        Ok(answers.into_iter().map(|answer| answer.map(|metric| metric.value)).collect())
    }

    fn device(&self, index: u32) -> Result<GpuInfo, GpuError> {
        let silent = |what| move |source| GpuError::Silent { index, what, source };
        let device = self.nvml.device_by_index(index).map_err(silent("which one it is"))?;
        let mig = match device.mig_mode() {
            Ok(mode) => mode.current == 1,
            // Cards and drivers older than MIG.
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => false,
            Err(source) => return Err(silent("whether it is split into MIG instances")(source)),
        };
        let memory_total_bytes = match device.memory_info() {
            Ok(memory) => Some(memory.total),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => None,
            Err(source) => return Err(silent("its memory")(source)),
        };
        Ok(GpuInfo {
            index,
            name: device.name().map_err(silent("its name"))?,
            uuid: device.uuid().map_err(silent("its UUID"))?,
            memory_total_bytes,
            mig,
            pci_bus_id: device.pci_info().map_err(silent("its place on the PCI bus"))?.bus_id,
        })
    }
}

fn call(what: &'static str) -> impl FnOnce(NvmlError) -> GpuError {
    move |source| GpuError::Call { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libnvidia-ml.so.1");
        let error = Gpus::load(Some(&path)).unwrap_err();
        assert!(matches!(error, GpuError::Library { .. }), "{error:?}");
        let expected = format!("cannot load `{}` (install the NVIDIA driver; ", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no library").unwrap();
        assert!(matches!(Gpus::load(Some(file.path())), Err(GpuError::Library { .. })));
    }

    #[test]
    fn a_library_without_nvml_is_an_error_too() {
        assert!(matches!(Gpus::load(Some(Path::new("libc.so.6"))), Err(GpuError::Library { .. })));
    }
}
