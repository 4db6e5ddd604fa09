//! Checks what the built-in trainer finds in a container, before a run is bound to it.

use super::brought::Loads;
use super::{ContainerError, Image};
use crate::gpu::SurveyReport;
use crate::host::{command, environment, process};
use crate::wire::from_json;
use std::path::Path;
use std::time::Duration;

/// The library and headers with which the built-in trainer compiles GPU kernels.
pub(in crate::engine) const TOOLKIT: [&str; 3] = ["libnvrtc.so", "cuda_fp16.h", "mma.h"];
/// The library that connects several GPUs.
pub(in crate::engine) const NCCL: &str = "libnccl.so.2";
/// How long a container may take to start and report. Without squashfuse a user's image is unpacked first.
const PATIENCE: Duration = Duration::from_secs(120);
/// The driver's library.
const DRIVER: &str = "libcuda.so.1";
/// Libraries that the trainer replaces by slower kernels of its own, and what they compute.
const FASTER: [(&str, &str); 2] =
    [("libcublasLt.so", "products of matrices"), ("libcudnn.so", "convolutions and recurrent layers")];

impl Image {
    /// Starts this program in the container and returns its report.
    pub(super) fn survey(&self, loads: Loads) -> Result<SurveyReport, ContainerError> {
        let no_start = |said: String| ContainerError::NoStart { image: self.path.clone(), said };
        let own = process::own_path().map_err(|error| no_start(error.to_string()))?;
        let is_cuda = matches!(loads, Loads::Cuda { .. });
        let mut mounts = vec![super::own_binary(&own)];
        mounts.extend(self.brought.iter().map(|one| one.mount.clone()));
        let mut argv = self.exec(is_cuda, Path::new("/"), &mounts);
        argv.extend(self.trainer());
        argv.push("--survey".into());
        let argv: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let strays = super::strays(environment::all());
        let strays: Vec<String> = strays.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let [words, strays] = [&argv[1..], &strays].map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
        let said = command::ask(&argv[0], &words, Path::new("/"), &strays, PATIENCE);
        let said = said.map_err(|error| no_start(error.to_string()))?;
        let report = said.out.lines().last().and_then(|line| SurveyReport::of_value(&from_json(line).ok()?));
        report.ok_or_else(|| no_start(said.complaint().to_owned()))
    }

    /// Refuses a container that lacks files that a run on GPUs needs. Returns warnings about missing libraries that
    /// make it slower.
    pub(super) fn lacking(&self, report: &SurveyReport, loads: Loads) -> Result<Vec<String>, ContainerError> {
        let Loads::Cuda { nccl } = loads else { return Ok(Vec::new()) };
        let mut needed = TOOLKIT.into_iter().chain([DRIVER]).chain(nccl.then_some(NCCL));
        if let Some((name, why)) = needed.find_map(|name| Some((name, report.missing.get(name)?))) {
            return Err(ContainerError::Lacks { image: self.path.clone(), what: lacks(name, why), fix: fix(name) });
        }
        let slower = FASTER.into_iter().filter_map(|(name, what)| {
            let lacks = lacks(name, report.missing.get(name)?);
            Some(format!("{lacks} the image: {what} use slower kernels ({})", fix(name)))
        });
        Ok(slower.collect())
    }
}

fn lacks(name: &str, why: &str) -> String {
    if why.is_empty() { format!("`{name}` is not in") } else { format!("`{name}` cannot be loaded ({why}) in") }
}

fn fix(name: &str) -> &'static str {
    match name {
        DRIVER => "install the NVIDIA driver on the host, from where `--nv` takes it",
        NCCL | "libcudnn.so" => "bind the folder that holds it, or use the image of `containers/build.sh cuda`",
        _ => "bind /usr/local/cuda, or use the image of `containers/build.sh cuda`",
    }
}
