//! Weights & Biases' offline runs: files `run-ID.wandb`, a log of protobuf records in LevelDB's format.
//!
//! A file begins with `:W&B`, a magic number and a version. Blocks of 32 KiB contain chunks (CRC-32, length, type,
//! bytes). A record is one chunk, or a first, middle and last ones. `wandb_internal.proto` defines the records.

use super::foreign::{ForeignRun, Point, files_below};
use super::protobuf::{Wire, fields};
use super::rows::ImportError;
use crate::record::{Digest, Outcome, Value, count};
use crate::wire::from_json;
use std::collections::BTreeMap;
use std::path::Path;

const TOOL: &str = "wandb";
/// `:W&B`, 0xBEE1 in little-endian order, and version 0.
const HEADER: [u8; 7] = [b':', b'W', b'&', b'B', 0xe1, 0xbe, 0];
const BLOCK: usize = 32 << 10;
/// The size of a chunk's head: CRC-32, length and type.
const HEAD: usize = 7;

/// Reads the offline runs of a folder, or of one file. Calls `take` with each run as soon as it is read.
///
/// # Errors
/// If a file cannot be read or has another format, or the folder has none.
pub fn read_wandb<E: From<ImportError>>(
    path: &Path,
    take: &mut dyn FnMut(ForeignRun) -> Result<(), E>,
) -> Result<(), E> {
    let mut files = Vec::new();
    if path.is_file() {
        files.push(path.to_owned());
    } else {
        files_below(path, &|path| path.extension().is_some_and(|extension| extension == "wandb"), &mut files)?;
    }
    if files.is_empty() {
        let text = format!("`{}` has no offline run (expected `offline-run-…/run-ID.wandb`)", path.display());
        return Err(ImportError::Refused(text).into());
    }
    for file in files {
        take(read(&file)?)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<ForeignRun, ImportError> {
    let bytes = std::fs::read(path).map_err(|source| ImportError::Unreadable { path: path.to_owned(), source })?;
    if !bytes.starts_with(&HEADER) {
        let text =
            format!("`{}` is no file of W&B's version 0 (expected the header `:W&B`, 0xBEE1, 0)", path.display());
        return Err(ImportError::Refused(text));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut reading = Reading::new(ForeignRun::new(TOOL, "uncategorized".to_owned(), stem));
    let (read, fault) = records(&bytes, |record| {
        if reading.record(record).is_none() {
            *reading.run.skipped.entry("unknown record".to_owned()).or_default() += 1;
        }
    });
    if let Some(fault) = fault {
        reading.run.warnings.push(fault);
    }
    reading.run.digest = Digest::of(&bytes[..read]);
    Ok(reading.finish())
}

/// Calls `take` with each record. Returns the bytes up to the end of the last one, and the fault that ended the reading, if any.
fn records(log: &[u8], mut take: impl FnMut(&[u8])) -> (usize, Option<String>) {
    let (mut at, mut whole) = (HEADER.len(), HEADER.len());
    let mut begun: Option<Vec<u8>> = None;
    let cut = || Some("the file ends within a record: the run is still going on, or was killed".to_owned());
    loop {
        let left = BLOCK - at % BLOCK;
        // No chunk begins in the last bytes of a block, which are zeros.
        if left < HEAD {
            at += left;
            continue;
        }
        let Some(head) = log.get(at..at + HEAD) else {
            return (whole, if at < log.len() || begun.is_some() { cut() } else { None });
        };
        let &[a, b, c, d, low, high, kind] = head else { return (whole, cut()) };
        let size = usize::from(u16::from_le_bytes([low, high]));
        let Some(bytes) = log.get(at + HEAD..at + HEAD + size) else { return (whole, cut()) };
        if u32::from_le_bytes([a, b, c, d]) != crc32(&log[at + HEAD - 1..at + HEAD + size]) {
            let rest = count(log.len() - at, "byte");
            let text = format!("the file is damaged at byte {at}; its {rest} after that are left out");
            return (whole, Some(text));
        }
        at += HEAD + size;
        match (kind, begun.as_mut()) {
            (1, _) => {
                begun = None;
                take(bytes);
                whole = at;
            }
            (2, _) => begun = Some(bytes.to_vec()),
            (3, Some(begun)) => begun.extend_from_slice(bytes),
            (4, Some(first)) => {
                first.extend_from_slice(bytes);
                take(first);
                begun = None;
                whole = at;
            }
            _ => {
                let text = format!("the file has an unknown chunk of type {kind} at byte {at}; the rest is left out");
                return (whole, Some(text));
            }
        }
    }
}

/// Returns the CRC-32 of IEEE 802.3, as in zlib and gzip.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = !0u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}

/// A run that is being read.
struct Reading {
    run: ForeignRun,
    project: Option<String>,
    id: Option<String>,
    /// The step metric of each metric, by its name or by a pattern that ends with `*`.
    step_metrics: BTreeMap<String, String>,
    /// The number of points whose step metric is not an integer.
    odd_steps: usize,
    exit: Option<u64>,
}

impl Reading {
    fn new(run: ForeignRun) -> Self {
        Self { run, project: None, id: None, step_metrics: BTreeMap::new(), odd_steps: 0, exit: None }
    }

    fn record(&mut self, record: &[u8]) -> Option<()> {
        for (field, wire) in fields(record)? {
            let Wire::Bytes(bytes) = wire else { continue };
            match field {
                2 => self.history(bytes)?,
                5 => self.config(bytes)?,
                7 => self.stats(bytes)?,
                8 => *self.run.skipped.entry("artifact".to_owned()).or_default() += 1,
                12 => self.metric(bytes)?,
                17 => self.about(bytes)?,
                18 => {
                    let code = fields(bytes)?.into_iter().find(|(field, _)| *field == 1);
                    self.exit = Some(if let Some((_, Wire::Int(code))) = code { code } else { 0 });
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Reads a row of values. `_step` and `_timestamp` are two of them.
    fn history(&mut self, bytes: &[u8]) -> Option<()> {
        let (mut row, mut own_step) = (Vec::new(), None);
        for (field, wire) in fields(bytes)? {
            match field {
                1 => {
                    let (name, value) = item(wire.bytes()?)?;
                    value.into_iter().for_each(|value| flatten(name.clone(), value, &mut row));
                }
                2 => own_step = fields(wire.bytes()?)?.into_iter().find(|(field, _)| *field == 1),
                _ => {}
            }
        }
        self.take_media(&mut row);
        let number = |name: &str| row.iter().find(|(own, _)| own == name).and_then(|(_, value)| float(value));
        let own_step = if let Some((_, Wire::Int(step))) = own_step { step.cast_signed() } else { 0 };
        let step = number("_step").and_then(whole).unwrap_or(own_step);
        let unix_s = number("_timestamp").unwrap_or(f64::NAN);
        for (name, value) in &row {
            if name.starts_with('_') {
                continue;
            }
            let Some(value) = float(value) else {
                *self.run.skipped.entry(kind_of(value).to_owned()).or_default() += 1;
                continue;
            };
            let mut step = step;
            if let Some(by) = self.step_metric(name) {
                match number(by).and_then(whole) {
                    Some(own) => step = own,
                    None => self.odd_steps += 1,
                }
            }
            self.run.curves.entry(name.clone()).or_default().push(Point { step, unix_s, value });
        }
        Some(())
    }

    /// Removes media from a row: groups of members, one of which names the type.
    fn take_media(&mut self, row: &mut Vec<(String, Value)>) {
        let kinds: Vec<(String, String)> = row
            .iter()
            .filter_map(|(name, value)| Some((name.strip_suffix("_type")?.to_owned(), value.as_str()?.to_owned())))
            .filter(|(start, _)| start.ends_with('.'))
            .collect();
        for (start, kind) in kinds {
            row.retain(|(name, _)| !name.starts_with(&start));
            let kind = kind.strip_suffix("-file").unwrap_or(&kind).to_owned();
            *self.run.skipped.entry(kind).or_default() += 1;
        }
    }

    fn step_metric(&self, name: &str) -> Option<&str> {
        let by_pattern = || {
            let mut patterns = self.step_metrics.iter().filter_map(|(own, by)| Some((own.strip_suffix('*')?, by)));
            patterns.find(|(start, _)| name.starts_with(start)).map(|(_, by)| by)
        };
        let by = self.step_metrics.get(name).or_else(by_pattern)?;
        (by != "_step" && by != name).then_some(by)
    }

    fn metric(&mut self, bytes: &[u8]) -> Option<()> {
        let (mut name, mut by) = (None, None);
        for (field, wire) in fields(bytes)? {
            match field {
                1 | 2 => name = wire.text().filter(|text| !text.is_empty()).or(name),
                4 => by = wire.text().filter(|text| !text.is_empty()),
                _ => {}
            }
        }
        self.step_metrics.extend(name.zip(by));
        Some(())
    }

    fn config(&mut self, bytes: &[u8]) -> Option<()> {
        for (field, wire) in fields(bytes)? {
            if field == 1 {
                let (name, value) = item(wire.bytes()?)?;
                let mut pairs = Vec::new();
                if let Some(value) = value.filter(|_| name != "_wandb" && !name.starts_with("_wandb.")) {
                    flatten(name, value, &mut pairs);
                }
                self.run.params.extend(pairs);
            }
        }
        Some(())
    }

    /// Reads measurements of the machine at one time.
    fn stats(&mut self, bytes: &[u8]) -> Option<()> {
        let (mut unix_s, mut items) = (f64::NAN, Vec::new());
        for (field, wire) in fields(bytes)? {
            match field {
                2 => unix_s = timestamp(wire.bytes()?)?,
                3 => items.push(item(wire.bytes()?)?),
                _ => {}
            }
        }
        for (name, value) in items {
            if let Some(value) = value.as_ref().and_then(float) {
                self.run.system.entry(format!("system/{name}")).or_default().push(Point { step: 0, unix_s, value });
            }
        }
        Some(())
    }

    fn about(&mut self, bytes: &[u8]) -> Option<()> {
        let mut tags = Vec::new();
        for (field, wire) in fields(bytes)? {
            match field {
                1 => self.id = wire.text(),
                3 => self.project = wire.text().filter(|text| !text.is_empty()),
                4 => self.config(wire.bytes()?)?,
                6 => self.text("group", wire),
                7 => self.text("job_type", wire),
                8 => self.run.name = wire.text().filter(|text| !text.is_empty()).unwrap_or(self.run.name.clone()),
                9 => self.text("notes", wire),
                10 => tags.extend(wire.text()),
                13 => self.text("host", wire),
                17 => self.run.started_unix_s = Some(timestamp(wire.bytes()?)?),
                _ => {}
            }
        }
        if !tags.is_empty() {
            self.run.texts.insert("tags".to_owned(), tags.join(", "));
        }
        Some(())
    }

    fn text(&mut self, name: &str, wire: Wire<'_>) {
        self.run.texts.extend(wire.text().filter(|text| !text.is_empty()).map(|text| (name.to_owned(), text)));
    }

    fn finish(self) -> ForeignRun {
        let mut run = self.run;
        if self.odd_steps > 0 {
            let points = count(self.odd_steps, "point");
            run.warnings.push(format!("the step metric of {points} is no whole number: the step of the row is kept"));
        }
        run.outcome = match self.exit {
            Some(0) => Outcome::Finished,
            Some(code) => {
                Outcome::Failed { reason: format!("W&B says that it ended with exit code {}", code.cast_signed()) }
            }
            None => Outcome::Interrupted { reason: "the file has no end: it is running, or was killed".to_owned() },
        };
        run.experiment = self.project.unwrap_or(run.experiment);
        let id = self.id.unwrap_or_else(|| run.name.clone());
        // A resumed run has a file for each of its parts.
        let part = run.started_unix_s.map_or_else(String::new, |at| format!("@{at}"));
        run.id = format!("{}/{id}{part}", run.experiment);
        run
    }
}

/// Returns a name (nested ones as `outer.inner`) and its value. The value is `None` if it is `null`.
fn item(bytes: &[u8]) -> Option<(String, Option<Value>)> {
    let (mut name, mut nested, mut value) = (String::new(), Vec::new(), None);
    for (field, wire) in fields(bytes)? {
        match field {
            1 => name = wire.text()?,
            2 => nested.push(wire.text()?),
            // Fields of later versions: boolean, integer, real number, text.
            4 => value = if let Wire::Int(flag) = wire { Some((flag != 0).into()) } else { None },
            5 => value = if let Wire::Int(number) = wire { Some(number.cast_signed().into()) } else { None },
            6 => value = if let Wire::Double(number) = wire { Some(number.into()) } else { None },
            7 => value = wire.text().map(Value::from),
            8 | 16 => {
                let text = wire.text()?;
                value = match text.as_str() {
                    "NaN" | "Infinity" | "-Infinity" => Some(text.as_str().into()),
                    text => from_json(text).ok(),
                };
            }
            _ => {}
        }
    }
    let name = if name.is_empty() { nested.join(".") } else { name };
    Some((name, value))
}

/// Collects the values of nested tables, under names such as `outer.inner`.
fn flatten(name: String, value: Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Table(table) => {
            for (inner, value) in table {
                flatten(format!("{name}.{inner}"), value, found);
            }
        }
        value => found.push((name, value)),
    }
}

fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_float(),
    }
}

fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within bounds")]
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
}

/// Returns the type of a value that is not a number.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Str(_) => "text value",
        Value::Bool(_) => "truth value",
        _ => "list",
    }
}

/// Returns a `google.protobuf.Timestamp` in seconds.
fn timestamp(bytes: &[u8]) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "seconds of this age are far below 2^53")]
    let number = |wire| if let Wire::Int(number) = wire { number as f64 } else { 0.0 };
    let found = fields(bytes)?;
    let of = |field: u64| found.iter().find(|(own, _)| *own == field).map_or(0.0, |(_, wire)| number(*wire));
    Some(of(1) + of(2) / 1e9)
}

#[cfg(test)]
mod tests;
