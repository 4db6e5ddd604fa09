//! Exports of Neptune: Parquet files `PROJECT/RUN_part_N.parquet` of neptune-exporter, with a row for each attribute,
//! and for each point of a series.

use super::foreign::{ForeignRun, Point, files_below};
use super::moment::iso_ms;
use super::rows::ImportError;
use crate::record::{DigestWriter, Outcome, Table, Value};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

const TOOL: &str = "neptune";
/// The text before the number of a part in the name of its file.
const PART: &str = "_part_";
/// Namespaces of parameters, which are removed from their names.
const PARAMETERS: [&str; 8] =
    ["parameters/", "params/", "hyperparameters/", "hparams/", "config/", "cfg/", "args/", "arguments/"];
/// The factor of steps in an export, which are stored in millionths.
const STEP: i128 = 1_000_000;

/// Reads the runs of a folder with an export, or the run of one file. Calls `take` with each run as soon as it is read.
/// Returns the names of runs in Neptune's trash.
///
/// # Errors
/// If a file cannot be read or has another format, or the folder has none.
pub fn read_neptune<E: From<ImportError>>(
    path: &Path,
    take: &mut dyn FnMut(ForeignRun) -> Result<(), E>,
) -> Result<Vec<String>, E> {
    let mut files = Vec::new();
    if path.is_file() {
        // A single file selects all parts of its run.
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let path = std::path::absolute(path).map_err(unreadable)?;
        match (part_of(&path), path.parent()) {
            (Some((run, _)), Some(folder)) => {
                files_below(folder, &|other| part_of(other).is_some_and(|(of, _)| of == run), &mut files)?;
            }
            _ => files.push(path),
        }
    } else {
        files_below(path, &|path| part_of(path).is_some(), &mut files)?;
    }
    // Parts are sorted by number, which is not the order of names if there are ten or more.
    let mut runs: BTreeMap<PathBuf, BTreeMap<u64, PathBuf>> = BTreeMap::new();
    for file in files {
        let Some((run, part)) = part_of(&file) else {
            let text = format!("`{}` is no part of an export (expected `RUN{PART}0.parquet`)", file.display());
            return Err(ImportError::Refused(text).into());
        };
        runs.entry(run).or_default().insert(part, file);
    }
    if runs.is_empty() {
        let text = format!("`{}` has no export of Neptune (expected `PROJECT/RUN{PART}0.parquet`)", path.display());
        return Err(ImportError::Refused(text).into());
    }
    let mut trashed = Vec::new();
    for (path, parts) in &runs {
        let mut reading = Reading::default();
        for file in parts.values() {
            reading.file(file)?;
        }
        if reading.run.is_empty() {
            // Without rows, the name of the file is the run's name.
            reading.run = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        // The exporter renames part 0 last.
        let is_whole = parts.keys().copied().eq(0..parts.len() as u64);
        match reading.finish(is_whole) {
            Ok(run) => take(run)?,
            Err(name) => trashed.push(name),
        }
    }
    Ok(trashed)
}

/// Returns the path of a file without its part, and the part's number.
fn part_of(path: &Path) -> Option<(PathBuf, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".parquet")?;
    let (run, part) = name.rsplit_once(PART)?;
    Some((path.with_file_name(run), part.parse().ok()?))
}

/// A run whose parts are being read.
#[derive(Default)]
struct Reading {
    project: String,
    run: String,
    written: DigestWriter,
    curves: BTreeMap<String, Vec<Point>>,
    system: BTreeMap<String, Vec<Point>>,
    /// Attributes with a single value, except datetimes.
    single: Table,
    /// Datetimes in ms since the Unix epoch.
    moments: BTreeMap<String, i64>,
    skipped: BTreeMap<String, u64>,
}

impl Reading {
    fn file(&mut self, path: &Path) -> Result<(), ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let other = |error: parquet::errors::ParquetError| {
            ImportError::Refused(format!("`{}` cannot be read as a file of neptune-exporter: {error}", path.display()))
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer).map_err(unreadable)? {
                0 => break,
                read => self.written.write(&buffer[..read]),
            }
        }
        file.rewind().map_err(unreadable)?;
        let reader = SerializedFileReader::new(file).map_err(other)?;
        for (number, row) in reader.get_row_iter(None).map_err(other)?.enumerate() {
            let row = row.map_err(other)?;
            self.row(&row).ok_or_else(|| {
                let place = format!("row {} of `{}`", number + 1, path.display());
                ImportError::Refused(format!(
                    "{place}: project_id, run_id, attribute_path or attribute_type is missing or of another run (expected a file of neptune-exporter)"
                ))
            })?;
        }
        Ok(())
    }

    /// Reads a row. Returns `None` if project, run, path or type is missing, or if the row belongs to another run.
    fn row(&mut self, row: &Row) -> Option<()> {
        let cells: BTreeMap<&str, &Field> = row.get_column_iter().map(|(name, cell)| (name.as_str(), cell)).collect();
        let text = |name: &str| match cells.get(name) {
            Some(Field::Str(text)) => Some(text.clone()),
            _ => None,
        };
        let of = (text("project_id")?, text("run_id")?);
        if self.run.is_empty() {
            (self.project, self.run) = of;
        } else if (&self.project, &self.run) != (&of.0, &of.1) {
            return None;
        }
        let (path, kind) = (text("attribute_path")?, text("attribute_type")?);
        if kind == "float_series" {
            let step = match cells.get("step") {
                Some(Field::Decimal(step)) => whole_step(step.data()),
                _ => None,
            };
            let value = match cells.get("float_value") {
                Some(Field::Double(value)) => value,
                Some(Field::Float(value)) => &f64::from(*value),
                _ => return Some(()),
            };
            let Some(step) = step else {
                *self.skipped.entry("point without a whole step".to_owned()).or_default() += 1;
                return Some(());
            };
            let unix_s = cells.get("timestamp").and_then(|at| ms(at)).and_then(seconds).unwrap_or(f64::NAN);
            let curves = if path.starts_with("monitoring/") { &mut self.system } else { &mut self.curves };
            curves.entry(path).or_default().push(Point { step, unix_s, value: *value });
            return Some(());
        }
        let value = match (kind.as_str(), cells.get(format!("{kind}_value").as_str())) {
            ("int", Some(Field::Long(value))) => (*value).into(),
            ("float", Some(Field::Double(value))) => (*value).into(),
            ("bool", Some(Field::Bool(value))) => (*value).into(),
            ("string", Some(Field::Str(value))) => value.as_str().into(),
            ("datetime", Some(at)) => {
                self.moments.extend(ms(at).map(|ms| (path, ms)));
                return Some(());
            }
            ("string_set", Some(Field::ListInternal(texts))) => {
                let texts = texts.elements().iter().filter_map(|text| match text {
                    Field::Str(text) => Some(text.as_str()),
                    _ => None,
                });
                texts.collect::<Vec<_>>().join(", ").into()
            }
            ("int" | "float" | "bool" | "string" | "datetime" | "string_set", _) => return Some(()),
            _ => {
                let kind = match kind.as_str() {
                    "string_series" => "text point",
                    "histogram_series" => "histogram",
                    "file_series" => "file",
                    "file_set" => "file set",
                    other => other,
                };
                *self.skipped.entry(kind.to_owned()).or_default() += 1;
                return Some(());
            }
        };
        self.single.insert(path, value);
        Some(())
    }

    /// Returns the run, or its name as the error if Neptune has it in the trash.
    fn finish(self, is_whole: bool) -> Result<ForeignRun, String> {
        let Self { project, run: id, written, curves, system, mut single, mut moments, skipped } = self;
        let mut of_system = |name: &str| single.remove(&format!("sys/{name}"));
        let is = |value: Option<Value>| value == Some(true.into());
        let begun = moments.remove("sys/creation_time").and_then(seconds);
        let lasted = of_system("running_time").as_ref().and_then(Value::as_float);
        let [failed, trashed] = ["failed", "trashed"].map(|name| is(of_system(name)));
        let state = of_system("state").and_then(|state| state.as_str().map(str::to_lowercase)).unwrap_or_default();
        let named = of_system("name").and_then(|name| name.as_str().map(str::to_owned)).filter(|name| !name.is_empty());
        let mut run = ForeignRun::new(TOOL, project, named.unwrap_or_else(|| id.clone()));
        if trashed {
            return Err(run.name);
        }
        (run.id, run.digest) = (format!("{}/{id}", run.experiment), written.finish());
        (run.curves, run.system, run.skipped) = (curves, system, skipped);
        run.started_unix_s = begun;
        run.ended_unix_s = begun.zip(lasted).map(|(begun, lasted)| begun + lasted);
        run.outcome = match state.as_str() {
            _ if failed => Outcome::Failed { reason: "the tracker says that it failed".to_owned() },
            "active" | "running" => Outcome::Interrupted { reason: format!("the tracker says that it is {state}") },
            _ if !is_whole => Outcome::Interrupted { reason: "its export is not complete".to_owned() },
            _ => Outcome::Finished,
        };
        if !is_whole {
            run.warnings.push("parts of its export are missing (run neptune-exporter again)".to_owned());
        }
        run.texts.extend(moments.into_iter().map(|(path, ms)| (path, iso_ms(ms))));
        let stripped =
            |path: &str| PARAMETERS.iter().find_map(|namespace| path.strip_prefix(namespace)).map(str::to_owned);
        let (named, others): (Vec<_>, Vec<_>) = single.into_iter().partition(|(path, _)| stripped(path).is_some());
        // A parameter without a namespace comes first, so that it keeps its name.
        for (path, value) in others.into_iter().chain(named) {
            let is_text = ["sys/", "source_code/", "monitoring/"].iter().any(|namespace| path.starts_with(namespace));
            match (stripped(&path), value.as_float().filter(|_| matches!(value, Value::Float(_)))) {
                (Some(name), _) => {
                    // If a name is taken, the namespace is kept.
                    let name = if run.params.contains_key(&name.replace('/', ".")) { path } else { name };
                    run.params.insert(name.replace('/', "."), value);
                }
                (None, _) if is_text => _ = run.texts.insert(path, value.to_string()),
                // A float outside of the parameters' namespaces is a metric.
                (None, Some(value)) => {
                    run.curves.entry(path).or_default().push(Point { step: 0, unix_s: f64::NAN, value });
                }
                (None, None) => _ = run.params.insert(path.replace('/', "."), value),
            }
        }
        Ok(run)
    }
}

/// Converts a step in millionths to an integer. Returns `None` if it is a fraction.
fn whole_step(bytes: &[u8]) -> Option<i64> {
    // The bytes are big-endian in two's complement, of any length.
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { -1 };
    let millionths =
        bytes.iter().try_fold(sign, |number: i128, byte| Some(number.checked_mul(256)? | i128::from(*byte)))?;
    if millionths % STEP == 0 { i64::try_from(millionths / STEP).ok() } else { None }
}

fn ms(cell: &Field) -> Option<i64> {
    match cell {
        Field::TimestampMillis(ms) => Some(*ms),
        _ => None,
    }
}

fn seconds(ms: i64) -> Option<f64> {
    Value::Int(ms).as_float().map(|ms| ms / 1e3)
}

#[cfg(test)]
mod tests;
