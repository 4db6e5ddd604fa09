//! `doctor` checks of the GPUs and of the libraries that training on them needs.

use super::condition::condition;
use super::libraries::{Item, LibraryEnv, LibrarySurvey, survey};
use super::visible::in_place;
use super::{GpuError, GpuInfo, Gpus, usable, visible};
use ledger_record::Check;
use std::error::Error;
use std::path::Path;

const CPU: &str = "runs use the CPU";
const REFUSED: &str = "runs use the CPU, and those that ask for a GPU are refused";

/// Checks the build, the driver, the visible GPUs, and CUDA's libraries and headers.
///
/// `cuda` is whether the program was built with CUDA. `library` is the path of NVML if it is not the usual one. On a
/// machine without GPUs every check is `Missing` and none is a warning, because runs use the CPU.
pub fn checks(cuda: bool, library: Option<&Path>, env: &LibraryEnv, cuda_visible_devices: Option<&str>) -> Vec<Check> {
    let gpus = Gpus::load(library);
    let found = survey(env);
    let mut checks = vec![build(cuda)];
    match &gpus {
        Ok(gpus) => {
            checks.push(driver(gpus));
            checks.extend(devices(gpus, cuda_visible_devices));
            // If the selection is invalid, the `GPUs` check gives the reason; the state of all answering GPUs is still
            // checked.
            let answering = || gpus.devices().unwrap_or_default().into_iter().flatten().collect();
            let chosen = usable(gpus, cuda_visible_devices).unwrap_or_else(|_| answering());
            checks.extend(condition(gpus, &chosen));
        }
        Err(error) => {
            let (what, fix) = split_remedy(&chain(error));
            checks.push(Check::missing("driver", what, CPU, fix));
            let fix = "see `driver`";
            checks.push(Check::missing("GPUs", "unknown without the driver", CPU, fix));
        }
    }
    checks.extend(libraries(&found));
    checks
}

fn build(cuda: bool) -> Check {
    if cuda {
        return Check::ok("build", "with CUDA");
    }
    Check::missing("build", "without CUDA", CPU, "build with the default features: `cargo build --release`")
}

fn driver(gpus: &Gpus) -> Check {
    match (gpus.driver_version(), gpus.cuda_driver_version()) {
        (Ok(driver), Ok((major, minor))) => Check::ok("driver", format!("{driver}, CUDA {major}.{minor}")),
        (Err(error), _) | (_, Err(error)) => {
            let (what, fix) = split_remedy(&chain(&error));
            Check::warning("driver", what, "the version is not part of a run's identity", fix)
        }
    }
}

fn devices(gpus: &Gpus, cuda_visible_devices: Option<&str>) -> Vec<Check> {
    let answers = match gpus.devices() {
        Ok(answers) => answers,
        Err(error) => return vec![unanswered(&error, REFUSED)],
    };
    let (devices, silent) = in_place(answers);
    let chosen = visible(&devices, cuda_visible_devices).ok();
    let is_chosen = |index: &u32| Some(chosen.as_ref()?.iter().any(|gpu| gpu.index == *index));
    let mut checks = Vec::new();
    if !silent.keys().any(|index| is_chosen(index) == Some(true)) {
        checks.push(seen(&devices, cuda_visible_devices));
    }
    checks.extend(silent.iter().map(|(index, error)| {
        let consequence = match is_chosen(index) {
            Some(true) => "as long as it is visible runs use the CPU, and those that ask for a GPU are refused",
            Some(false) => "runs do not need it",
            None => "CUDA_VISIBLE_DEVICES decides whether runs need it, but is invalid itself",
        };
        unanswered(error, consequence)
    }));
    checks
}

fn unanswered(error: &GpuError, consequence: &str) -> Check {
    let (what, fix) = split_remedy(&chain(error));
    Check::warning("GPUs", what, consequence, fix)
}

fn seen(devices: &[GpuInfo], cuda_visible_devices: Option<&str>) -> Check {
    const NAME: &str = "GPUs";
    if devices.is_empty() {
        return Check::missing(
            NAME,
            "the driver runs none",
            CPU,
            "give this machine, container or job access to the GPUs",
        );
    }
    let chosen = match visible(devices, cuda_visible_devices) {
        Ok(chosen) => chosen,
        Err(error) => {
            let (what, fix) = split_remedy(&error.to_string());
            return Check::warning(NAME, what, REFUSED, fix);
        }
    };
    let variable = cuda_visible_devices.unwrap_or_default();
    if chosen.is_empty() {
        let found = format!("none of {}, by CUDA_VISIBLE_DEVICES=\"{variable}\"", devices.len());
        return Check::missing(NAME, found, CPU, "unset CUDA_VISIBLE_DEVICES, or name GPUs that exist");
    }
    let list: Vec<String> = chosen.iter().map(describe).collect();
    let left_out = devices.len() - chosen.len();
    let rest = if left_out > 0 { format!(" ({left_out} more hidden by CUDA_VISIBLE_DEVICES)") } else { String::new() };
    let found = format!("{}{rest}", list.join(", "));
    let asked = cuda_visible_devices.map_or(chosen.len(), |list| list.split(',').count());
    if asked > chosen.len() {
        let consequence = "entries from the first invalid one on have no effect";
        return Check::warning(NAME, found, consequence, format!("correct CUDA_VISIBLE_DEVICES=\"{variable}\""));
    }
    Check::ok(NAME, found)
}

fn describe(gpu: &GpuInfo) -> String {
    let memory = gpu.memory_total_bytes.map_or(String::new(), |bytes| format!(" ({} GiB)", bytes >> 30));
    format!("{} {}{memory}", gpu.index, gpu.name)
}

fn libraries(survey: &LibrarySurvey) -> Vec<Check> {
    let nvrtc = survey.nvrtc_version.map(|(major, minor)| format!(" {major}.{minor}")).unwrap_or_default();
    let dots = |version: Option<(u32, u32, u32)>| version.map(|(a, b, c)| format!(" {a}.{b}.{c}")).unwrap_or_default();
    let slower =
        "models train with Burn's own kernels: several times slower, after minutes of tuning; the CPU does not need it";
    let single = "runs use one GPU at most; on a machine without GPUs, the CPU";
    vec![
        item("libcuda", &survey.libcuda, "", CPU),
        item("NVRTC", &survey.nvrtc, &nvrtc, CPU),
        item("cuda_fp16.h", &survey.cuda_fp16, "", CPU),
        item("mma.h", &survey.mma, "", CPU),
        item("cuBLASLt", &survey.cublaslt, &dots(survey.cublaslt_version), slower),
        item("cuDNN", &survey.cudnn, &dots(survey.cudnn_version), slower),
        item("NCCL", &survey.nccl, &dots(survey.nccl_version), single),
    ]
}

fn item(name: &'static str, item: &Item, version: &str, consequence: &str) -> Check {
    match item {
        Item::Found { path } => Check::ok(name, format!("{}{version}", path.display())),
        Item::Missing { looked_in, fix } => {
            Check::missing(name, format!("not found: {looked_in}"), consequence, fix.as_str())
        }
    }
}

/// Returns an error's message with its causes, and the fix last.
fn chain(error: &dyn Error) -> String {
    let (mut what, fix) = split_remedy(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        // Errors of some crates already contain their cause's text.
        let text = error.to_string();
        if !what.contains(&text) {
            what = format!("{what}: {text}");
        }
        cause = error.source();
    }
    format!("{what} ({fix})")
}

/// Splits a message into the fault and the fix, which ledger's messages end with, in parentheses.
fn split_remedy(message: &str) -> (String, String) {
    match message.strip_suffix(')').and_then(|message| message.rsplit_once(" (")) {
        Some((what, fix)) => (what.to_owned(), fix.to_owned()),
        None => (message.to_owned(), "`nvidia-smi` shows whether the GPU is well".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_record::CheckState::{Missing, Ok, Warning};

    fn gpus(number: u32) -> Vec<GpuInfo> {
        let gpu = |index| GpuInfo {
            index,
            name: "NVIDIA H200".into(),
            uuid: format!("GPU-{index}"),
            memory_total_bytes: Some(139 << 30),
            ..GpuInfo::default()
        };
        (0..number).map(gpu).collect()
    }

    #[test]
    fn a_machine_without_anything_uses_the_cpu() {
        let root = tempfile::tempdir().unwrap();
        let env = LibraryEnv {
            library_path: vec![root.path().into()],
            cuda_path: Some(root.path().into()),
            cuda_roots: vec![],
            ask_loader: false,
        };
        let checks = checks(false, Some(&root.path().join("libnvidia-ml.so.1")), &env, None);
        let names: Vec<_> = checks.iter().map(|check| check.name).collect();
        assert_eq!(
            names,
            ["build", "driver", "GPUs", "libcuda", "NVRTC", "cuda_fp16.h", "mma.h", "cuBLASLt", "cuDNN", "NCCL"]
        );
        for check in checks.iter().skip(1) {
            assert_eq!(check.state, Missing, "{check:?}");
            assert!(check.consequence.contains("CPU"), "{check:?}");
            assert!(!check.fix.is_empty() && !check.found.is_empty(), "{check:?}");
        }
        assert!(checks[1].fix.starts_with("install the NVIDIA driver"), "{:?}", checks[1]);
        assert_eq!(checks[1].found.matches("No such file").count(), 1, "{:?}", checks[1]);
    }

    #[test]
    fn doctor_lists_the_visible_gpus() {
        let cases = [
            (0, None, Missing, "the driver runs none"),
            (1, None, Ok, "0 NVIDIA H200 (139 GiB)"),
            (2, Some("1"), Ok, "1 NVIDIA H200 (139 GiB) (1 more hidden by CUDA_VISIBLE_DEVICES)"),
            (2, Some(""), Missing, "none of 2, by CUDA_VISIBLE_DEVICES=\"\""),
            (1, Some("0,5"), Warning, "0 NVIDIA H200 (139 GiB)"),
            (1, Some("MIG-1"), Warning, "CUDA_VISIBLE_DEVICES names the MIG instance `MIG-1`"),
        ];
        for (number, list, state, found) in cases {
            let check = seen(&gpus(number), list);
            assert_eq!((check.state, check.found.as_str()), (state, found), "{list:?}");
            assert_eq!(check.fix.is_empty(), state == Ok, "{check:?}");
        }
    }

    #[test]
    fn messages_are_split_into_fault_and_fix() {
        assert_eq!(split_remedy("a (b) c (do d)"), ("a (b) c".into(), "do d".into()));
        assert_eq!(split_remedy("plain").0, "plain");
    }
}
