//! `doctor` checks of the GPUs' state: conditions that distort measurements, and which settings can be changed.

use super::{GpuInfo, Gpus};
use ledger_record::Check;

/// Throttle reasons that the GPU's settings do not explain, by NVML's bits.
const THROTTLES: [(u64, &str); 4] =
    [(0x08, "hw_slowdown"), (0x20, "sw_thermal"), (0x40, "hw_thermal"), (0x80, "hw_power_brake")];

/// Checks the state of the visible GPUs. Values that a GPU does not report are left out.
pub(super) fn condition(gpus: &Gpus, chosen: &[GpuInfo]) -> Vec<Check> {
    if chosen.is_empty() {
        return Vec::new();
    }
    vec![
        persistence(gpus, chosen),
        mig(chosen),
        throttling(gpus, chosen),
        processes(gpus, chosen),
        limits(gpus, chosen),
    ]
}

/// Joins the texts of all GPUs for which `said` returns one, each with the GPU's index.
fn each(chosen: &[GpuInfo], said: impl Fn(&GpuInfo) -> Option<String>) -> String {
    let all = chosen.iter().filter_map(|gpu| Some(format!("GPU {}: {}", gpu.index, said(gpu)?)));
    all.collect::<Vec<_>>().join("; ")
}

/// Lists the GPUs that do not report a value, or returns `None` if all do.
fn silent(chosen: &[GpuInfo], tells: impl Fn(&GpuInfo) -> bool) -> Option<String> {
    let silent = each(chosen, |gpu| (!tells(gpu)).then(|| "not told".to_owned()));
    (!silent.is_empty()).then_some(silent)
}

fn persistence(gpus: &Gpus, chosen: &[GpuInfo]) -> Check {
    const NAME: &str = "persistence";
    let is_on = |gpu: &GpuInfo| gpus.by_uuid(&gpu.uuid).and_then(|device| device.is_in_persistent_mode()).ok();
    let off = each(chosen, |gpu| (is_on(gpu) == Some(false)).then(|| "off".to_owned()));
    if off.is_empty() {
        return Check::ok(NAME, silent(chosen, |gpu| is_on(gpu).is_some()).unwrap_or_else(|| "on".to_owned()));
    }
    Check::warning(
        NAME,
        off,
        "the driver unloads an idle GPU: runs begin with seconds of initialisation, and the GPU loses its settings",
        "`nvidia-smi -pm 1` as root, or the service nvidia-persistenced",
    )
}

fn mig(chosen: &[GpuInfo]) -> Check {
    let split = each(chosen, |gpu| gpu.mig.then(|| "split into instances".to_owned()));
    if split.is_empty() {
        return Check::ok("MIG", "off");
    }
    let consequence = "runs on these GPUs are refused: an instance has no power sensor of its own";
    Check::warning("MIG", split, consequence, "`nvidia-smi -mig 0` as root, or choose others with CUDA_VISIBLE_DEVICES")
}

fn throttling(gpus: &Gpus, chosen: &[GpuInfo]) -> Check {
    let bits = |gpu: &GpuInfo| gpus.by_uuid(&gpu.uuid).and_then(|device| device.current_throttle_reasons()).ok();
    let throttled = each(chosen, |gpu| {
        let bits = bits(gpu)?.bits();
        let names: Vec<&str> = THROTTLES.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect();
        (!names.is_empty()).then(|| names.join(", "))
    });
    if throttled.is_empty() {
        let none = silent(chosen, |gpu| bits(gpu).is_some()).unwrap_or_else(|| "none now".to_owned());
        return Check::ok("throttling", none);
    }
    Check::warning(
        "throttling",
        throttled,
        "clocks are low: attempts are tainted while this lasts",
        "let the GPU cool, check its fans and its power supply (`nvidia-smi -q -d PERFORMANCE`)",
    )
}

fn processes(gpus: &Gpus, chosen: &[GpuInfo]) -> Check {
    const NAME: &str = "other processes";
    let busy = each(chosen, |gpu| {
        let pids = gpus.compute_processes(&gpu.uuid).ok().filter(|pids| !pids.is_empty())?;
        Some(pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
    });
    if busy.is_empty() {
        let Some(silent) = silent(chosen, |gpu| gpus.compute_processes(&gpu.uuid).is_ok()) else {
            return Check::ok(NAME, "none computes on the GPUs");
        };
        let consequence = "other processes that disturb an attempt are not detected, and nothing is set on such a GPU";
        return Check::warning(NAME, silent, consequence, "run `nvidia-smi` on the machine itself");
    }
    Check::warning(
        NAME,
        busy,
        "they share time and power of the GPU: attempts are tainted, and nothing is set on it",
        "wait for them, end them, or choose others with CUDA_VISIBLE_DEVICES",
    )
}

fn limits(gpus: &Gpus, chosen: &[GpuInfo]) -> Check {
    const NAME: &str = "power limits";
    let told = each(chosen, |gpu| {
        let device = gpus.by_uuid(&gpu.uuid).ok()?;
        let (range, now) = (device.power_management_limit_constraints().ok()?, device.power_management_limit().ok()?);
        let watts = |mw: u32| f64::from(mw) / 1e3;
        Some(format!("{} W of {} to {}", watts(now), watts(range.min_limit), watts(range.max_limit)))
    });
    if told.is_empty() {
        let consequence = "manifests that set a power limit are refused";
        return Check::missing(
            NAME,
            "the GPUs have none that can be set",
            consequence,
            "remove the key, or use another GPU",
        );
    }
    Check::ok(NAME, told)
}
