//! What goes through NVML's functions: codes, structures, and how results are handed over.

use std::ffi::{CStr, CString, c_char, c_int};

pub const OK: c_int = 0;
pub const UNINITIALIZED: c_int = 1;
pub const INVALID: c_int = 2;
pub const NOT_SUPPORTED: c_int = 3;
pub const NOT_FOUND: c_int = 6;
pub const TOO_SMALL: c_int = 7;
pub const LOST: c_int = 15;
pub const IN_USE: c_int = 19;
pub const VERSION: c_int = 25;
pub const UNKNOWN: c_int = 999;

#[repr(C)]
pub struct FieldValue {
    pub id: u32,
    pub scope: u32,
    pub timestamp: i64,
    pub latency: i64,
    pub value_type: u32,
    pub code: c_int,
    pub value: u64,
}

#[repr(C)]
pub struct Memory {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

#[repr(C)]
pub struct Utilization {
    pub gpu: u32,
    pub memory: u32,
}

#[repr(C)]
pub struct Process {
    pub pid: u32,
    pub used: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

#[repr(C)]
pub struct GpmSupport {
    pub version: u32,
    pub is_supported: u32,
}

/// NVML's own is opaque.
pub struct GpmSample {
    pub gpu: usize,
    /// When it was taken.
    pub ms: u64,
}

#[repr(C)]
pub struct GpmMetric {
    pub id: u32,
    pub code: c_int,
    pub value: f64,
    pub texts: [*mut c_char; 3],
}

#[repr(C)]
pub struct GpmMetrics {
    pub version: u32,
    pub count: u32,
    pub before: *const GpmSample,
    pub after: *const GpmSample,
    pub metrics: [GpmMetric; 210],
}

#[repr(C)]
pub struct Pci {
    pub bus_legacy: [u8; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
    pub bus_id: [u8; 32],
}

pub fn put<T>(to: *mut T, value: T) -> c_int {
    if to.is_null() {
        return INVALID;
    }
    // SAFETY: NVML's callers pass null or a place of that type.
    unsafe { to.write(value) };
    OK
}

pub fn put2<T, U>(first: (*mut T, T), second: (*mut U, U)) -> c_int {
    match put(first.0, first.1) {
        OK => put(second.0, second.1),
        code => code,
    }
}

pub fn put_text(to: *mut c_char, len: u32, text: &str) -> c_int {
    let Ok(text) = CString::new(text) else { return UNKNOWN };
    let bytes = text.as_bytes_with_nul();
    if to.is_null() {
        return INVALID;
    }
    if bytes.len() > len as usize {
        return TOO_SMALL;
    }
    // SAFETY: there is room for `len` bytes, and these are no more.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    OK
}

/// Fills an array whose length the caller gives in `count`, and gets back there.
pub fn put_all<T>(count: *mut u32, to: *mut T, items: Vec<T>) -> c_int {
    if count.is_null() {
        return INVALID;
    }
    // SAFETY: `count` is a place, and `to` has room for as many items as it says.
    unsafe {
        let room = count.replace(items.len() as u32) as usize;
        if room < items.len() {
            return TOO_SMALL;
        }
        items.into_iter().enumerate().for_each(|(at, item)| to.add(at).write(item));
    }
    OK
}

pub fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: callers pass null or text that ends in a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
