//! The samples of a cluster's GPUs: one row for each GPU and time.

use super::checkpoints::{hash, joined};
use super::names::{Names, SEPARATOR};
use crate::interop::rows::{Faults, ImportError, RowFault, Rows, Source, shown};
use crate::record::Quantity;
use csv::ByteRecord;
use std::path::Path;

/// The known columns and their metrics.
pub(super) const QUANTITIES: [(&str, Quantity); 4] = [
    ("powerDrawWatt", Quantity::PowerInstant),
    ("gpuTempC", Quantity::Temperature),
    ("gpuUtilPerc", Quantity::UtilizationGpu),
    ("gpuMemUtilPerc", Quantity::UtilizationMemory),
];

/// Texts that tools write for a missing value.
const MISSING: [&str; 6] = ["", "na", "n/a", "nan", "not supported", "unknown error"];

/// One row of the samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) gpu: u32,
    pub(super) at_ns: i64,
    /// NaN for missing values.
    pub(super) values: [f64; QUANTITIES.len()],
    rest: u64,
}

impl Reading {
    fn key(&self) -> (u32, i64, [u64; QUANTITIES.len()], u64) {
        (self.gpu, self.at_ns, self.values.map(f64::to_bits), self.rest)
    }
}

/// All rows, sorted by GPU and time, without duplicates.
pub(super) struct Readings {
    pub(super) source: Source,
    /// Host, serial and UUID of each GPU.
    pub(super) gpus: Vec<String>,
    pub(super) readings: Vec<Reading>,
    pub(super) duplicates: usize,
    /// The number of samples of one GPU that have the same time and differ.
    pub(super) contradictions: usize,
    /// The number of missing values.
    pub(super) missing: usize,
    pub(super) faults: Faults,
}

struct Places {
    timestamp: usize,
    host: usize,
    serial: Option<usize>,
    uuid: Option<usize>,
    values: [Option<usize>; QUANTITIES.len()],
    others: Vec<usize>,
}

impl Places {
    fn new(rows: &Rows) -> Result<Self, ImportError> {
        let values = QUANTITIES.map(|(column, _)| rows.find(column));
        if values.iter().all(Option::is_none) {
            rows.column(QUANTITIES[0].0)?;
        }
        let mut places = Self {
            timestamp: rows.column("timestamp")?,
            host: rows.column("hostname")?,
            serial: rows.find("gpuSerial"),
            uuid: rows.find("gpuUUID"),
            values,
            others: Vec::new(),
        };
        let mut known = vec![places.timestamp, places.host];
        known.extend(places.serial.into_iter().chain(places.uuid).chain(values.into_iter().flatten()));
        places.others = (0..rows.heads().len()).filter(|at| !known.contains(at)).collect();
        Ok(places)
    }

    fn values(&self, rows: &Rows, record: &ByteRecord) -> Result<[f64; QUANTITIES.len()], RowFault> {
        let mut values = [f64::NAN; QUANTITIES.len()];
        for (value, place) in values.iter_mut().zip(self.values) {
            let Some(field) = place.and_then(|place| record.get(place)) else { continue };
            *value = number(field).map_err(|()| {
                let column = place.and_then(|place| rows.heads().get(place)).map_or("", String::as_str);
                rows.fault(record, format!("{column} is `{}` (it must be a number, or empty)", shown(field)))
            })?;
        }
        Ok(values)
    }
}

/// Parses a value. Returns NaN if it is missing.
fn number(field: &[u8]) -> Result<f64, ()> {
    let text = std::str::from_utf8(field).map_err(|_| ())?.trim();
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => {
            let word = text.trim_start_matches('[').trim_end_matches(']');
            if MISSING.iter().any(|missing| word.eq_ignore_ascii_case(missing)) { Ok(f64::NAN) } else { Err(()) }
        }
    }
}

/// Reads the samples.
pub(super) fn read(path: &Path) -> Result<Readings, ImportError> {
    let mut rows = Rows::open(path, b',')?;
    let places = Places::new(&rows)?;
    let mut gpus = Names::default();
    let mut readings = Vec::new();
    let mut faults = Faults::default();
    let (mut record, mut device, mut key) = (ByteRecord::new(), Vec::new(), Vec::new());
    while rows.next(&mut record)? {
        let at = rows.moment(&record, places.timestamp);
        let (at_ns, values) = match at.and_then(|at_ns| Ok((at_ns, places.values(&rows, &record)?))) {
            Ok(found) => found,
            Err(fault) => {
                faults.add(fault);
                continue;
            }
        };
        let field = |place: Option<usize>| place.and_then(|place| record.get(place)).unwrap_or_default();
        joined(&mut device, field(places.serial), field(places.uuid));
        joined(&mut key, &record[places.host], &device);
        readings.push(Reading { gpu: gpus.code(&key), at_ns, values, rest: hash(&record, &places.others) });
    }
    readings.sort_unstable_by_key(Reading::key);
    let before = readings.len();
    readings.dedup_by_key(|reading| reading.key());
    let of_one = |pair: &&[Reading]| pair[0].gpu == pair[1].gpu && pair[0].at_ns == pair[1].at_ns;
    let known = places.values.map(|place| place.is_some());
    let missing =
        |reading: &Reading| known.iter().zip(reading.values).filter(|(known, value)| **known && value.is_nan()).count();
    Ok(Readings {
        source: rows.finish(),
        gpus: gpus.into_texts(),
        duplicates: before - readings.len(),
        contradictions: readings.windows(2).filter(of_one).count(),
        missing: readings.iter().map(missing).sum(),
        readings,
        faults,
    })
}

/// Returns host, serial and UUID.
pub(super) fn parts(gpu: &str) -> (&str, &str, &str) {
    let (host, device) = gpu.split_once(SEPARATOR).unwrap_or((gpu, ""));
    let (serial, uuid) = device.split_once(SEPARATOR).unwrap_or((device, ""));
    (host, serial, uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_nan_and_never_zero() {
        for field in ["", "[N/A]", "N/A", "nan", "[Not Supported]"] {
            assert!(number(field.as_bytes()).unwrap().is_nan(), "{field}");
        }
        assert_eq!((number(b" 26.87 "), number(b"0")), (Ok(26.87), Ok(0.0)));
        for field in ["watt", "26,87", "inf", "\u{0}"] {
            assert_eq!(number(field.as_bytes()).map(f64::to_bits), Err(()), "{field}");
        }
        assert!(number(&[0xff]).is_err());
    }

    #[test]
    fn gpus_are_identified_by_host_serial_and_uuid() {
        assert_eq!(parts("h\u{1f}007\u{1f}GPU-1"), ("h", "007", "GPU-1"));
        assert_eq!(parts("h\u{1f}\u{1f}"), ("h", "", ""));
    }
}
