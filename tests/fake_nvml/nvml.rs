//! A library with NVML's functions and no GPU behind it: it answers what a script says.
//!
//! The tests compile it with `rustc` alone, copy the library to a folder of their own as `X.so` and write `X.so.script` beside
//! it, which is read when NVML is initialised. Calls that change a card are appended to `X.so.log` as `GPU FUNCTION ARGUMENTS = CODE`; what
//! they set is read back from there, so that it outlives the process as it does on a card. A function is left out of the library
//! with `--cfg without="nvmlDeviceGetFieldValues"`.
//!
//! The script has one directive a line; `#` begins a comment. For the whole machine:
//!
//! ```text
//! driver 580.159.04             the driver's version
//! cuda 13000                    the driver's CUDA version
//! init CODE                     initialising fails
//! clock monotonic               time goes on by itself from initialising on (the rule)
//! clock call 100                each GPU's time stands still, but goes on 100 ms with each of its calls for fields or power;
//!                               the first sees 0 ms
//! topology A B LEVEL            internal, single, multiple, hostbridge, node or system (the rule)
//! fail FUNCTION CODE [after N [calls]] [for M [calls]]
//! slow FUNCTION MS              the call takes that long
//! gpu NVIDIA H200               begins a GPU; the lines below belong to it, `fail` and `slow` included
//! ```
//!
//! For the GPU:
//!
//! ```text
//! uuid GPU-…                    bus 00000000:3B:00.0       vbios 96.00.CF.00.01       serial 1654
//! memory TOTAL [USED]           capability 9 0             pcie_link GENERATION WIDTH
//! ecc 1                         persistence 1              mig 0
//! cooled MS DEGREES             so many milliseconds after the script was written it is that cool
//! ecc_errors CORRECTED UNCORRECTED MORE    errors of the memory, and how many more corrected ones at each question
//! temperature 55                utilization GPU MEMORY     throttle BITS
//! sm_clock 1980                 memory_clock 3201          supported MEMORY_CLOCK GRAPHICS_CLOCK…
//! limits MIN MAX DEFAULT        of the power, in watts
//! process PID BYTES|none [MS]   a compute process, that many milliseconds after the script was written gone
//! power 0 126; 1000 700         watts from that millisecond on
//! busy FILE 600                watts from when that file begins with `1` until it does not
//! sensor 100 25 10              power is renewed every 100 ms: the mean of 25 ms, or of a second, 10 ms ago
//! energy_base 1000000           what the counter (mJ) had counted before
//! energy_tick_ms 100            the counter moves only at multiples of that
//! energy_frozen_after 500       and no more from that millisecond on
//! pcie SENT RECEIVED            bytes each millisecond; without it the counters are not supported
//! gpm SM OCCUPANCY TENSOR DRAM PCIE_TX PCIE_RX NVLINK_TX NVLINK_RX    in percent and MiB/s; from capability 9 0 on (0);
//!                               two threads that sample at once fail with `In use by another client`, as with driver 580
//! field ID TYPE VALUE           what a field holds; TYPE is double, u32, ulong, u64, i64, or a number that NVML may use later
//! fail field.ID CODE …          one field fails, the others do not
//! lost_after N                  after so many calls the GPU is lost
//! ```
//!
//! The power function gives what `nvml.h` says: the last second's average on Ampere and newer but for the A100's chip, and the
//! power of the moment before.

mod passing;
mod script;
mod state;

use passing::*;
use script::{Gpu, Script};
use state::{Moment, change, device, init, shutdown, state, system};
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn handle_of(script: &Script, to: *mut usize, which: impl Fn(&Gpu) -> bool) -> c_int {
    match script.gpus.iter().position(|gpu| which(gpu)) {
        Some(index) => put(to, index + 1),
        None => NOT_FOUND,
    }
}

fn clock(moment: &Moment, kind: c_int, to: *mut u32) -> c_int {
    let (gpu, settings) = (&moment.gpu, moment.settings());
    let within = |clock: u32, bounds: Option<(u32, u32)>| bounds.map_or(clock, |(min, max)| clock.clamp(min, max));
    match kind {
        0 | 1 => put(to, within(gpu.sm_clock, settings.locked)),
        2 => put(to, within(gpu.memory_clock, settings.locked_memory)),
        _ => INVALID,
    }
}

fn highest(gpu: &Gpu, kind: c_int) -> Option<u32> {
    match kind {
        0 | 1 => gpu.supported().iter().flat_map(|(_, graphics)| graphics).max().copied(),
        2 => gpu.supported().iter().map(|(memory, _)| *memory).max(),
        _ => None,
    }
}

fn fields(moment: &Moment, count: c_int, values: *mut FieldValue) -> c_int {
    if count <= 0 || values.is_null() {
        return INVALID;
    }
    // SAFETY: the caller passes so many values.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count as usize) };
    for value in values {
        let name = format!("field.{}", value.id);
        let before = state().as_mut().map_or(0, |state| state.count(moment.index + 1, &name));
        value.timestamp = moment.now as i64 * 1000;
        value.code = moment.gpu.faults.code(&name, before);
        match moment.gpu.field(value.id, moment.now) {
            _ if value.code != OK => {}
            Some((value_type, bits)) => (value.value_type, value.value) = (value_type, bits),
            None => value.code = NOT_SUPPORTED,
        }
    }
    OK
}

macro_rules! export {
    ($($name:literal ($($argument:ident: $type:ty),*) $body:expr;)*) => { $(
        const _: () = {
            #[cfg(not(without = $name))]
            #[unsafe(export_name = $name)]
            extern "C" fn function($($argument: $type),*) -> c_int { $body }
        };
    )* };
}

macro_rules! of_system {
    ($($name:literal ($($argument:ident: $type:ty),*) $answer:expr;)*) => {
        export! { $($name ($($argument: $type),*) system($name, $answer);)* }
    };
}

macro_rules! of_device {
    ($($name:literal ($($argument:ident: $type:ty),*) $answer:expr;)*) => {
        export! { $($name (handle: usize $(, $argument: $type)*) device($name, handle, $answer);)* }
    };
}

macro_rules! changes {
    ($($name:literal ($($argument:ident),*) $check:expr;)*) => {
        export! { $($name (handle: usize $(, $argument: u32)*) change($name, handle, &[$($argument),*], $check);)* }
    };
}

export! {
    "nvmlInit_v2" () init();
    "nvmlInitWithFlags" (_flags: u32) init();
    "nvmlShutdown" () shutdown();
}

export! {
    "nvmlGpmSampleAlloc" (to: *mut *mut GpmSample) put(to, Box::into_raw(Box::new(GpmSample { gpu: 0, ms: 0 })));
    "nvmlGpmSampleFree" (sample: *mut GpmSample) {
        if sample.is_null() {
            return INVALID;
        }
        // SAFETY: callers free each sample once, and all come from `nvmlGpmSampleAlloc`.
        drop(unsafe { Box::from_raw(sample) });
        OK
    };
}

of_system! {
    "nvmlGpmMetricsGet" (to: *mut GpmMetrics) |script| {
        // SAFETY: callers pass null or such a structure.
        let Some(to) = (unsafe { to.as_mut() }) else { return INVALID };
        // SAFETY: its samples are null or from `nvmlGpmSampleAlloc`.
        let (Some(before), Some(after)) = (unsafe { (to.before.as_ref(), to.after.as_ref()) }) else { return INVALID };
        let Some(gpu) = script.gpus.get(after.gpu) else { return INVALID };
        for metric in to.metrics.iter_mut().take(to.count as usize) {
            let name = format!("metric.{}", metric.id);
            (metric.code, metric.value) = match gpu.counter(metric.id) {
                _ if gpu.faults.code(&name, 0) != OK => (gpu.faults.code(&name, 0), 0.0),
                None => (NOT_SUPPORTED, 0.0),
                // As on a card whose counters were not renewed meanwhile.
                Some(value) => (OK, if after.ms > before.ms { value } else { 0.0 }),
            };
        }
        OK
    };
    "nvmlSystemGetDriverVersion" (to: *mut c_char, len: u32) |script| put_text(to, len, &script.driver);
    "nvmlSystemGetNVMLVersion" (to: *mut c_char, len: u32) |script| put_text(to, len, &format!("13.{}", script.driver));
    "nvmlSystemGetCudaDriverVersion_v2" (to: *mut c_int) |script| put(to, script.cuda);
    "nvmlSystemGetProcessName" (pid: u32, to: *mut c_char, len: u32) |_| put_text(to, len, &format!("process {pid}"));
    "nvmlDeviceGetCount_v2" (to: *mut u32) |script| put(to, script.gpus.len() as u32);
    "nvmlDeviceGetHandleByIndex_v2" (index: u32, to: *mut usize) |script| {
        if (index as usize) < script.gpus.len() { put(to, index as usize + 1) } else { INVALID }
    };
    "nvmlDeviceGetHandleByUUID" (uuid: *const c_char, to: *mut usize) |script| {
        handle_of(script, to, |gpu| gpu.uuid == text_of(uuid))
    };
    "nvmlDeviceGetHandleByPciBusId_v2" (bus: *const c_char, to: *mut usize) |script| {
        handle_of(script, to, |gpu| gpu.bus == text_of(bus))
    };
    "nvmlDeviceGetTopologyCommonAncestor" (a: usize, b: usize, to: *mut c_int) |script| {
        let (a, b) = (a.wrapping_sub(1), b.wrapping_sub(1));
        if a.max(b) >= script.gpus.len() {
            return INVALID;
        }
        let level = script.topology.get(&(a, b)).or(script.topology.get(&(b, a)));
        put(to, level.copied().unwrap_or(50))
    };
}

of_device! {
    "nvmlDeviceGetIndex" (to: *mut u32) |m| put(to, m.index as u32);
    "nvmlDeviceGetMinorNumber" (to: *mut u32) |m| put(to, m.index as u32);
    "nvmlDeviceGetPciInfo_v3" (to: *mut Pci) |m| {
        let mut bus_id = [0; 32];
        let len = m.gpu.bus.len().min(31);
        bus_id[..len].copy_from_slice(&m.gpu.bus.as_bytes()[..len]);
        let mut bus_legacy = [0; 16];
        bus_legacy[..15].copy_from_slice(&bus_id[..15]);
        let bus = m.index as u32;
        put(to, Pci { bus_legacy, domain: 0, bus, device: 0, device_id: 0x2335_10de, subsystem_id: 0x18be_10de, bus_id })
    };
    "nvmlDeviceGetName" (to: *mut c_char, len: u32) |m| put_text(to, len, &m.gpu.name);
    "nvmlDeviceGetUUID" (to: *mut c_char, len: u32) |m| put_text(to, len, &m.gpu.uuid);
    "nvmlDeviceGetSerial" (to: *mut c_char, len: u32) |m| put_text(to, len, &m.gpu.serial);
    "nvmlDeviceGetVbiosVersion" (to: *mut c_char, len: u32) |m| put_text(to, len, &m.gpu.vbios);
    "nvmlDeviceGetCudaComputeCapability" (major: *mut c_int, minor: *mut c_int) |m| {
        put2((major, m.gpu.capability.0), (minor, m.gpu.capability.1))
    };
    "nvmlDeviceGetMigMode" (now: *mut u32, later: *mut u32) |m| put2((now, m.gpu.mig), (later, m.gpu.mig));
    "nvmlDeviceGetPersistenceMode" (to: *mut c_int) |m| put(to, m.gpu.persistence);
    "nvmlDeviceGetEccMode" (now: *mut c_int, later: *mut c_int) |m| put2((now, m.gpu.ecc), (later, m.gpu.ecc));
    "nvmlDeviceGetTotalEccErrors" (kind: c_int, _counter: c_int, to: *mut u64) |m| {
        let (corrected, uncorrected, more) = m.gpu.ecc_errors;
        let asked = state().as_mut().map_or(0, |state| state.count(m.index + 1, &format!("ecc.{kind}")));
        put(to, if kind == 0 { corrected + asked * more } else { uncorrected })
    };
    "nvmlDeviceGetPerformanceState" (to: *mut c_int) |_| put(to, 0);

    "nvmlDeviceGetFieldValues" (count: c_int, values: *mut FieldValue) |m| fields(m, count, values);
    "nvmlDeviceGetPowerUsage" (to: *mut u32) |m| {
        put(to, if m.gpu.averages() { m.gpu.power_average(m.now) } else { m.gpu.power_now(m.now) })
    };
    "nvmlDeviceGetTotalEnergyConsumption" (to: *mut u64) |m| put(to, m.gpu.energy(m.now));
    "nvmlDeviceGetPowerManagementLimit" (to: *mut u32) |m| {
        put(to, m.settings().power_limit.unwrap_or(m.gpu.limits.2))
    };
    "nvmlDeviceGetEnforcedPowerLimit" (to: *mut u32) |m| put(to, m.settings().power_limit.unwrap_or(m.gpu.limits.2));
    "nvmlDeviceGetPowerManagementLimitConstraints" (min: *mut u32, max: *mut u32) |m| {
        put2((min, m.gpu.limits.0), (max, m.gpu.limits.1))
    };
    "nvmlDeviceGetPowerManagementDefaultLimit" (to: *mut u32) |m| put(to, m.gpu.limits.2);

    "nvmlDeviceGetComputeMode" (to: *mut c_int) |_| put(to, 0);
    "nvmlDeviceGetTemperature" (sensor: c_int, to: *mut u32) |m| {
        if sensor == 0 { put(to, m.temperature()) } else { INVALID }
    };
    "nvmlDeviceGetUtilizationRates" (to: *mut Utilization) |m| {
        put(to, Utilization { gpu: m.gpu.utilization.0, memory: m.gpu.utilization.1 })
    };
    "nvmlDeviceGetMemoryInfo_v2" (to: *mut Memory) |m| {
        // SAFETY: as in `put`; the caller sets the version.
        if to.is_null() || unsafe { (*to).version } != 0x0200_0028 {
            return VERSION;
        }
        let (total, used) = m.gpu.memory;
        put(to, Memory { version: 0x0200_0028, total, reserved: 0, free: total - used, used })
    };
    "nvmlDeviceGetClockInfo" (kind: c_int, to: *mut u32) |m| clock(m, kind, to);
    "nvmlDeviceGetMaxClockInfo" (kind: c_int, to: *mut u32) |m| highest(&m.gpu, kind).map_or(INVALID, |mhz| put(to, mhz));
    "nvmlDeviceGetCurrentClocksThrottleReasons" (to: *mut u64) |m| put(to, m.gpu.throttle);
    "nvmlDeviceGetSupportedClocksThrottleReasons" (to: *mut u64) |_| put(to, 0x1ff);
    "nvmlDeviceGetPcieThroughput" (counter: c_int, to: *mut u32) |m| match (counter, m.gpu.pcie) {
        (0, Some((sent, _))) => put(to, sent as u32),
        (1, Some((_, received))) => put(to, received as u32),
        (0 | 1, None) => NOT_SUPPORTED,
        _ => INVALID,
    };
    "nvmlGpmQueryDeviceSupport" (to: *mut GpmSupport) |m| {
        // SAFETY: as in `put`; the caller sets the version.
        if to.is_null() || unsafe { (*to).version } != 1 {
            return VERSION;
        }
        put(to, GpmSupport { version: 1, is_supported: u32::from(m.gpu.counts()) })
    };
    "nvmlGpmSampleGet" (sample: *mut GpmSample) |m| {
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        let others = INSIDE.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(1));
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        if others > 0 {
            return IN_USE;
        }
        if m.gpu.counts() { put(sample, GpmSample { gpu: m.index, ms: m.now }) } else { NOT_SUPPORTED }
    };
    "nvmlDeviceGetCurrPcieLinkGeneration" (to: *mut u32) |m| put(to, m.gpu.pcie_link.0);
    "nvmlDeviceGetCurrPcieLinkWidth" (to: *mut u32) |m| put(to, m.gpu.pcie_link.1);
    "nvmlDeviceGetMaxPcieLinkGeneration" (to: *mut u32) |m| put(to, m.gpu.pcie_link.0);
    "nvmlDeviceGetMaxPcieLinkWidth" (to: *mut u32) |m| put(to, m.gpu.pcie_link.1);
    "nvmlDeviceGetComputeRunningProcesses_v3" (count: *mut u32, to: *mut Process) |m| {
        let process = |(pid, used)| Process { pid, used, gpu_instance: u32::MAX, compute_instance: u32::MAX };
        put_all(count, to, m.processes().map(process).collect())
    };
    "nvmlDeviceGetGraphicsRunningProcesses_v3" (count: *mut u32, _to: *mut Process) |_| put(count, 0);
    "nvmlDeviceGetMPSComputeRunningProcesses_v3" (count: *mut u32, _to: *mut Process) |_| put(count, 0);

    "nvmlDeviceGetApplicationsClock" (kind: c_int, to: *mut u32) |m| {
        let set = m.settings().applications.map(|(memory, graphics)| if kind == 2 { memory } else { graphics });
        highest(&m.gpu, kind).map_or(INVALID, |default| put(to, set.unwrap_or(default)))
    };
    "nvmlDeviceGetDefaultApplicationsClock" (kind: c_int, to: *mut u32) |m| {
        highest(&m.gpu, kind).map_or(INVALID, |mhz| put(to, mhz))
    };
    "nvmlDeviceGetSupportedMemoryClocks" (count: *mut u32, to: *mut u32) |m| {
        put_all(count, to, m.gpu.supported().iter().map(|(memory, _)| *memory).collect())
    };
    "nvmlDeviceGetSupportedGraphicsClocks" (memory: u32, count: *mut u32, to: *mut u32) |m| {
        match m.gpu.supported().iter().find(|(clock, _)| *clock == memory) {
            Some((_, graphics)) => put_all(count, to, graphics.clone()),
            None => NOT_FOUND,
        }
    };
}

changes! {
    "nvmlDeviceSetPowerManagementLimit" (mw) |gpu| (gpu.limits.0..=gpu.limits.1).contains(&mw);
    "nvmlDeviceSetApplicationsClocks" (memory, graphics) |gpu| {
        gpu.supported().iter().any(|(clock, clocks)| *clock == memory && clocks.contains(&graphics))
    };
    "nvmlDeviceResetApplicationsClocks" () |_| true;
    "nvmlDeviceSetGpuLockedClocks" (min, max) |_| min <= max;
    "nvmlDeviceResetGpuLockedClocks" () |_| true;
    "nvmlDeviceSetMemoryLockedClocks" (min, max) |_| min <= max;
    "nvmlDeviceResetMemoryLockedClocks" () |_| true;
}
