//! What lives while NVML is initialised, and what every call does before it answers: count, fail, take its time.

use super::passing::{INVALID, LOST, OK, UNINITIALIZED, UNKNOWN};
use super::script::{Gpu, Script};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub struct State {
    script: Script,
    users: u32,
    start: Instant,
    /// Calls so far by function; of the machine, then of each GPU.
    calls: Vec<BTreeMap<String, u64>>,
    looks: Vec<u64>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

pub fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Counts a call; gives how many there were before.
    pub fn count(&mut self, whose: usize, function: &str) -> u64 {
        let calls = self.calls[whose].entry(function.to_owned()).or_default();
        *calls += 1;
        *calls - 1
    }

    fn now(&self, index: usize) -> u64 {
        match self.script.tick {
            Some(tick) => tick * self.looks[index].saturating_sub(1),
            None => self.start.elapsed().as_millis() as u64,
        }
    }
}

/// A GPU at the time of a call.
pub struct Moment {
    pub index: usize,
    pub gpu: Arc<Gpu>,
    pub now: u64,
}

/// Whether the script was written so many milliseconds ago.
fn is_older(ms: u64) -> bool {
    let age = || beside("script").metadata().ok()?.modified().ok()?.elapsed().ok();
    age().is_some_and(|age| age.as_millis() >= u128::from(ms))
}

impl Moment {
    pub fn processes(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let there = self.gpu.processes.iter().filter(|(_, _, gone)| !gone.is_some_and(is_older));
        there.map(|&(pid, bytes, _)| (pid, bytes))
    }

    pub fn temperature(&self) -> u32 {
        match self.gpu.cooled {
            Some((ms, cool)) if is_older(ms) => cool,
            _ => self.gpu.temperature,
        }
    }

    pub fn settings(&self) -> Settings {
        Settings::read(self.index)
    }
}

/// A call that is about the machine.
pub fn system(function: &str, answer: impl FnOnce(&Script) -> c_int) -> c_int {
    let (code, slowness) = match state().as_mut() {
        None => return UNINITIALIZED,
        Some(state) => {
            let before = state.count(0, function);
            (state.script.faults.code(function, before), state.script.faults.slowness(function))
        }
    };
    std::thread::sleep(slowness);
    if code != OK {
        return code;
    }
    state().as_ref().map_or(UNINITIALIZED, |state| answer(&state.script))
}

/// A call that is about one GPU; its handle is its index and one.
pub fn device(function: &str, handle: usize, answer: impl FnOnce(&Moment) -> c_int) -> c_int {
    let (code, slowness, moment) = match state().as_mut() {
        None => return UNINITIALIZED,
        Some(state) => {
            let Some(index) = handle.checked_sub(1).filter(|index| *index < state.script.gpus.len()) else {
                return INVALID;
            };
            let now = state.now(index);
            if let Some(step) = state.script.gpus[index].is_news(now) {
                Arc::make_mut(&mut state.script.gpus[index]).power.push(step);
            }
            let gpu = Arc::clone(&state.script.gpus[index]);
            let before = state.count(handle, function);
            if matches!(function, "nvmlDeviceGetFieldValues" | "nvmlDeviceGetPowerUsage") {
                state.looks[index] += 1;
            }
            let all: u64 = state.calls[handle].iter().filter(|(name, _)| name.starts_with("nvml")).map(|c| c.1).sum();
            let lost = all > gpu.lost_after;
            let code = if lost { LOST } else { gpu.faults.code(function, before) };
            (code, gpu.faults.slowness(function), Moment { index, now: state.now(index), gpu })
        }
    };
    std::thread::sleep(slowness);
    if code == OK { answer(&moment) } else { code }
}

/// A call that changes a GPU.
pub fn change(function: &str, handle: usize, arguments: &[u32], check: impl FnOnce(&Gpu) -> bool) -> c_int {
    let code = device(function, handle, |moment| if check(&moment.gpu) { OK } else { INVALID });
    let arguments: String = arguments.iter().map(|argument| format!(" {argument}")).collect();
    let line = format!("{} {function}{arguments} = {code}\n", handle.wrapping_sub(1));
    let file = std::fs::File::options().append(true).create(true).open(beside("log"));
    match file.and_then(|mut file| file.write_all(line.as_bytes())) {
        Ok(()) => code,
        Err(_) => UNKNOWN,
    }
}

/// What was set on a GPU.
#[derive(Default)]
pub struct Settings {
    pub power_limit: Option<u32>,
    /// Memory and graphics.
    pub applications: Option<(u32, u32)>,
    pub locked: Option<(u32, u32)>,
    pub locked_memory: Option<(u32, u32)>,
}

impl Settings {
    fn read(index: usize) -> Self {
        let mut settings = Self::default();
        let log = std::fs::read_to_string(beside("log")).unwrap_or_default();
        for line in log.lines().filter_map(|line| line.strip_suffix(" = 0")) {
            let mut words = line.split(' ');
            if words.next() != Some(&index.to_string()) {
                continue;
            }
            let function = words.next().unwrap_or_default();
            let arguments: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
            let pair = || Some((arguments[0], arguments[1]));
            match function {
                "nvmlDeviceSetPowerManagementLimit" => settings.power_limit = Some(arguments[0]),
                "nvmlDeviceSetApplicationsClocks" => settings.applications = pair(),
                "nvmlDeviceResetApplicationsClocks" => settings.applications = None,
                "nvmlDeviceSetGpuLockedClocks" => settings.locked = pair(),
                "nvmlDeviceResetGpuLockedClocks" => settings.locked = None,
                "nvmlDeviceSetMemoryLockedClocks" => settings.locked_memory = pair(),
                "nvmlDeviceResetMemoryLockedClocks" => settings.locked_memory = None,
                _ => {}
            }
        }
        settings
    }
}

#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
}

/// The file beside this library that has its name and that ending.
fn beside(ending: &str) -> PathBuf {
    let mut info = DlInfo {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    let own = beside as fn(&str) -> PathBuf as *const c_void;
    // SAFETY: the address is one of this library, whose name lives as long as it is loaded.
    let name = unsafe {
        assert!(dladdr(own, &raw mut info) != 0 && !info.file.is_null(), "the library does not know its own name");
        CStr::from_ptr(info.file).to_bytes()
    };
    let mut path = OsStr::from_bytes(name).to_owned();
    path.push(".");
    path.push(ending);
    path.into()
}

pub fn init() -> c_int {
    let mut state = state();
    if let Some(state) = state.as_mut() {
        state.users += 1;
        return OK;
    }
    let path = beside("script");
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let script = match text.and_then(|text| Script::read(&text)) {
        Ok(script) => script,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return UNKNOWN;
        }
    };
    let (code, gpus) = (script.init, script.gpus.len());
    if code == OK {
        let calls = vec![BTreeMap::new(); gpus + 1];
        *state = Some(State { script, users: 1, start: Instant::now(), calls, looks: vec![0; gpus] });
    }
    code
}

pub fn shutdown() -> c_int {
    let mut state = state();
    match state.as_mut() {
        None => return UNINITIALIZED,
        Some(state) => state.users -= 1,
    }
    if state.as_ref().is_some_and(|state| state.users == 0) {
        *state = None;
    }
    OK
}
