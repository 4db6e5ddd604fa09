//! The first operation on a device: a small one with a known result.
//!
//! Knows tensors and nothing of a run. It detects a mismatched driver, a missing compiler or a broken GPU within
//! seconds and by name, before a run waits forever or trains on garbage.

use crate::Sink;
use crate::device::{DeviceError, Place, caught, shortened};
use crate::number::real;
use burn::tensor::{Device, Tensor, TensorData};
use ledger_record::EventKind;

/// How many values are computed.
const COUNT: u16 = 1024;

/// Computes 3x + 1 of small whole numbers, which is exact in float32, reads the values back and compares every one.
/// Emits the fact `smoke`. Does nothing on the host.
///
/// # Errors
/// If a value is wrong or missing, or the device fails. The error names the device, the expected and the found value.
pub fn smoke(place: &Place, sink: &dyn Sink) -> Result<(), DeviceError> {
    let Place::Device(device) = place else { return Ok(()) };
    sink.emit(EventKind::Status { message: format!("checking {}", place.name()) });
    let start_ns = sink.now_ns();
    let found = caught(|| compute(device)).and_then(|found| found);
    found.and_then(|found| compare(&found)).map_err(|problem| DeviceError::Smoke { device: place.name(), problem })?;
    let took_s = real(sink.now_ns().saturating_sub(start_ns)) / 1e9;
    let value = format!("ok: {COUNT} values in {took_s:.3} s").into();
    sink.emit(EventKind::Fact { name: "smoke".to_owned(), value });
    Ok(())
}

fn compute(device: &Device) -> Result<Vec<f32>, String> {
    let values: Vec<f32> = (0..COUNT).map(f32::from).collect();
    let computed = Tensor::<1>::from_data(TensorData::from(values.as_slice()), device) * 3.0 + 1.0;
    computed.try_into_vec_as().map_err(|error| shortened(&error.to_string()))
}

fn compare(found: &[f32]) -> Result<(), String> {
    if found.len() != usize::from(COUNT) {
        return Err(format!("{COUNT} values were expected, {} came back", found.len()));
    }
    let pairs = (0..COUNT).map(|x| f32::from(x) * 3.0 + 1.0).zip(found);
    // Compare bits, so that NaN counts as a difference.
    let mut wrong = (0..COUNT).zip(pairs).filter(|(_, (expected, found))| expected.to_bits() != found.to_bits());
    match wrong.next() {
        None => Ok(()),
        Some((x, (expected, found))) => {
            let more = wrong.count();
            Err(format!("3 x {x} + 1 gave {found} and not {expected}; {more} other values are wrong too"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::EventLog;

    #[test]
    fn a_working_device_passes() {
        let log = EventLog::default();
        smoke(&Place::Device(Device::flex()), &log).expect("it computes");
        let events = log.events();
        let [_, EventKind::Fact { name, value }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(name, "smoke");
        assert!(value.as_str().is_some_and(|text| text.starts_with("ok: 1024 values in ")), "{value}");
    }

    #[test]
    fn nothing_is_done_on_the_host() {
        let log = EventLog::default();
        smoke(&Place::Host, &log).expect("nothing can fail");
        assert_eq!(log.events(), []);
    }

    #[test]
    fn any_single_wrong_value_is_found() {
        let right: Vec<f32> = (0..COUNT).map(|x| f32::from(x) * 3.0 + 1.0).collect();
        assert_eq!(compare(&right), Ok(()));
        for value in [0.0, 3070.0 - 1e-3, f32::NAN, f32::INFINITY] {
            let mut wrong = right.clone();
            wrong[1023] = value;
            let problem = compare(&wrong).expect_err("a difference");
            assert_eq!(problem, format!("3 x 1023 + 1 gave {value} and not 3070; 0 other values are wrong too"));
        }
        assert_eq!(compare(&[1.0]).expect_err("too few"), "1024 values were expected, 1 came back");
        let zeros = compare(&[0.0; 1024]).expect_err("all wrong");
        assert_eq!(zeros, "3 x 0 + 1 gave 0 and not 1; 1023 other values are wrong too");
    }
}
