//! The parts of a run's identity that describe the GPUs.

use super::GpuInfo;
use ledger_record::{Table, Value};

/// The value of a part for a run without GPUs.
const NONE: &str = "none";

/// The versions of the CUDA libraries that a run uses; `None` if a library is absent or does not report its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaVersions {
    /// The newest CUDA version that the driver supports.
    pub driver_api: Option<(u32, u32)>,
    /// NVRTC's version. It has no patch level.
    pub nvrtc: Option<(u32, u32)>,
    /// cuBLASLt's version.
    pub cublaslt: Option<(u32, u32, u32)>,
    /// cuDNN's version.
    pub cudnn: Option<(u32, u32, u32)>,
    /// NCCL's version.
    pub nccl: Option<(u32, u32, u32)>,
}

/// Returns the `cuda` part: `{cublaslt = "13.1.0", cudnn = "9.14.0", driver_api = "13.0", nvrtc = "13.0"}`, with `nccl`
/// for a run on several GPUs, or `none` for a run without GPUs. Unknown versions are left out, so that a later known
/// version gives another run id.
pub fn cuda_part(versions: &CudaVersions, gpus: usize) -> Value {
    if gpus == 0 {
        return NONE.into();
    }
    let two = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let three = |(major, minor, patch): (u32, u32, u32)| format!("{major}.{minor}.{patch}");
    let nccl = versions.nccl.filter(|_| gpus > 1);
    let fields = [
        ("driver_api", versions.driver_api.map(two)),
        ("nvrtc", versions.nvrtc.map(two)),
        ("cublaslt", versions.cublaslt.map(three)),
        ("cudnn", versions.cudnn.map(three)),
        ("nccl", nccl.map(three)),
    ];
    let known = fields.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?.into())));
    known.collect::<Table>().into()
}

/// Returns the `driver` part: the NVIDIA driver's version, or `none` for a run without GPUs.
pub fn driver_part(driver_version: Option<&str>) -> Value {
    driver_version.unwrap_or(NONE).into()
}

/// Returns the `device` part: the GPUs' product names by rank, or the processor's name for a run without GPUs.
pub fn device_part(gpus: &[GpuInfo], cpu_name: &str) -> Value {
    if gpus.is_empty() {
        return vec![cpu_name].into();
    }
    gpus.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, uuid: &str) -> GpuInfo {
        GpuInfo { name: name.into(), uuid: uuid.into(), ..GpuInfo::default() }
    }

    #[test]
    fn identity_has_no_cuda_versions_without_gpus() {
        let versions = CudaVersions {
            driver_api: Some((13, 0)),
            nvrtc: Some((13, 0)),
            nccl: Some((2, 28, 3)),
            ..CudaVersions::default()
        };
        assert_eq!(cuda_part(&versions, 0), "none".into());
        assert_eq!(driver_part(None), "none".into());
        assert_eq!(device_part(&[], "A CPU"), vec!["A CPU"].into());
    }

    #[test]
    fn nccl_enters_the_identity_only_with_several_gpus() {
        let versions = CudaVersions {
            driver_api: Some((13, 0)),
            nvrtc: Some((12, 9)),
            cublaslt: Some((13, 1, 0)),
            cudnn: Some((9, 14, 0)),
            nccl: Some((2, 28, 3)),
        };
        let one = "{cublaslt = 13.1.0, cudnn = 9.14.0, driver_api = 13.0, nvrtc = 12.9}";
        assert_eq!(cuda_part(&versions, 1).to_string(), one);
        assert_eq!(cuda_part(&versions, 2).to_string(), one.replace("nvrtc", "nccl = 2.28.3, nvrtc"));
        let fewer = CudaVersions { cublaslt: None, cudnn: None, ..versions };
        assert_eq!(cuda_part(&fewer, 1).to_string(), "{driver_api = 13.0, nvrtc = 12.9}");
        assert_eq!(cuda_part(&CudaVersions::default(), 2).to_string(), "{}");
    }

    #[test]
    fn device_part_holds_product_names_by_rank() {
        let one = device_part(&[gpu("H200", "GPU-1"), gpu("A100", "GPU-2")], "");
        assert_eq!(one, device_part(&[gpu("H200", "GPU-3"), gpu("A100", "GPU-4")], "cpu"));
        assert_ne!(one, device_part(&[gpu("A100", "GPU-2"), gpu("H200", "GPU-1")], ""));
        assert_eq!(driver_part(Some("580.159.04")), "580.159.04".into());
    }
}
