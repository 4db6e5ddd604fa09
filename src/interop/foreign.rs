//! A run of another tracker as a sealed attempt.

use super::rows::ImportError;
use super::{imported_run, nonce_of};
use crate::record::{Attempt, Axis, Digest, Metric, Outcome, Phase, Sealed, Series, Table, Tail, Value, count};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The limits on a record, the same as for workers: the length of names, and the number of series.
const MOST_NAME_BYTES: usize = 256;
const MOST_SERIES: usize = 1000;
/// The length of one text.
const MOST_TEXT_BYTES: usize = 64 << 10;
/// The series with the time in s at which each step was logged.
const LOGGED_AT: &str = "logged_at";

/// A logged value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The step. A negative one is left out of series.
    pub step: i64,
    /// Seconds since the Unix epoch.
    pub unix_s: f64,
    /// The value.
    pub value: f64,
}

/// A run of another tracker.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignRun {
    /// The tracker: `tensorboard`, `mlflow`.
    pub tool: &'static str,
    /// The experiment, project or folder that it belongs to there.
    pub experiment: String,
    /// Its name there.
    pub name: String,
    /// Its id there, which stays the same as the run grows.
    pub id: String,
    /// The digest of the data that was read.
    pub digest: Digest,
    /// Its parameters.
    pub params: Table,
    /// Curves by name, as logged.
    pub curves: BTreeMap<String, Vec<Point>>,
    /// Measurements of the machine, over time.
    pub system: BTreeMap<String, Vec<Point>>,
    /// Tags and notes.
    pub texts: BTreeMap<String, String>,
    /// How it ended, as far as the tracker records it.
    pub outcome: Outcome,
    /// The number of items that a record cannot contain, by type.
    pub skipped: BTreeMap<String, u64>,
    /// Further warnings.
    pub warnings: Vec<String>,
    /// When it began, if the tracker records it.
    pub started_unix_s: Option<f64>,
    /// When it ended, if the tracker records it.
    pub ended_unix_s: Option<f64>,
}

impl ForeignRun {
    /// Returns a run without any content.
    pub(super) fn new(tool: &'static str, experiment: String, name: String) -> Self {
        Self {
            tool,
            experiment,
            id: name.clone(),
            name,
            digest: Digest::of(b""),
            params: Table::new(),
            curves: BTreeMap::new(),
            system: BTreeMap::new(),
            texts: BTreeMap::new(),
            outcome: Outcome::Finished,
            skipped: BTreeMap::new(),
            warnings: Vec::new(),
            started_unix_s: None,
            ended_unix_s: None,
        }
    }

    /// Returns the number of points.
    pub fn points(&self) -> usize {
        self.curves.values().chain(self.system.values()).map(Vec::len).sum()
    }

    /// Returns the attempt. Its nonce depends on tracker, id and digest, so that a second import gives the same attempt.
    pub fn sealed(mut self) -> Sealed {
        let points = self.points();
        self.bound();
        let started_unix_s = self.started_unix_s.unwrap_or_else(|| self.times().reduce(f64::min).unwrap_or(0.0));
        let ended_unix_s = self.ended_unix_s.or_else(|| self.times().reduce(f64::max)).unwrap_or(started_unix_s);
        let seed = self.params.get("seed").and_then(seed_of);
        let is_param = |name: &String| name != "seed" || seed.is_none();
        let params = self.params.iter().filter(|(name, _)| is_param(name));
        let mut config: Table = params.map(|(name, value)| (format!("params.{name}"), value.clone())).collect();
        if config.is_empty() {
            // Nothing else distinguishes it from other runs of its experiment.
            config.insert("params.run".to_owned(), self.name.as_str().into());
        }
        config.insert("model.name".to_owned(), self.experiment.as_str().into());
        let program = Table::from([
            ("import".to_owned(), self.tool.into()),
            ("name".to_owned(), self.experiment.as_str().into()),
        ]);
        let run = imported_run(config, program, None, seed.unwrap_or(0));
        let metrics = self.metrics();
        let mut series: Vec<Series> = self.series(started_unix_s);
        series.sort_by(|one, other| one.name.cmp(&other.name));
        let skipped: Table = self.skipped.iter().map(|(kind, count)| (kind.clone(), (*count).into())).collect();
        let mut import = Table::from([
            (KIND.to_owned(), self.tool.into()),
            (ID.to_owned(), self.id.as_str().into()),
            ("run".to_owned(), self.name.as_str().into()),
            ("experiment".to_owned(), self.experiment.as_str().into()),
            ("digest".to_owned(), self.digest.to_string().into()),
            (POINTS.to_owned(), points.into()),
            ("skipped".to_owned(), skipped.into()),
        ]);
        // A run without a seed also has seed 0.
        import.extend(seed.map(|_| ("seed".to_owned(), true.into())));
        let mut facts = Table::from([(IMPORT.to_owned(), import.into())]);
        facts.extend(self.texts.iter().map(|(name, text)| (format!("{}.{name}", self.tool), text.as_str().into())));
        let pieces: [&[u8]; 4] = [self.tool.as_bytes(), self.id.as_bytes(), &self.digest.0, &run.id.0.0];
        let attempt = Attempt {
            run: run.id,
            nonce: nonce_of("ledger foreign run v1", &pieces),
            started_unix_ms: whole(started_unix_s * 1e3),
            wall_ns: u64::try_from(whole((ended_unix_s - started_unix_s) * 1e9)).unwrap_or(0),
            outcome: self.outcome,
            exit: None,
            metrics,
            digests: BTreeMap::new(),
            settings: Table::from([("experiment.name".to_owned(), self.experiment.as_str().into())]),
            facts,
            warnings: self.warnings,
            tail: Tail::default(),
            series: series.iter().map(Series::summary).collect(),
            phases: Phase::digest_all(&[]),
        };
        Sealed { run, attempt, series, phases: Vec::new() }
    }

    fn times(&self) -> impl Iterator<Item = f64> {
        self.curves.values().chain(self.system.values()).flatten().map(|point| point.unix_s).filter(|at| at.is_finite())
    }

    /// Applies the limits of a record, and adds a warning about everything left out.
    fn bound(&mut self) {
        let mut left = Vec::new();
        let long = |name: &String| name.len() > MOST_NAME_BYTES;
        let names = self.curves.keys().chain(self.system.keys()).chain(self.texts.keys()).chain(self.params.keys());
        let too_long: Vec<&String> = names.filter(|name| long(name)).collect();
        if let Some(first) = too_long.first() {
            let first: String = first.chars().take(40).collect();
            left.push(format!(
                "{} longer than {MOST_NAME_BYTES} bytes, with all that they name (the first begins `{first}`)",
                count(too_long.len(), "name")
            ));
            self.curves.retain(|name, _| !long(name));
            self.system.retain(|name, _| !long(name));
            self.texts.retain(|name, _| !long(name));
            self.params.retain(|name, _| !long(name));
        }
        let below: usize =
            self.curves.values_mut().map(|points| points.extract_if(.., |point| point.step < 0).count()).sum();
        if below > 0 {
            left.push(format!("{} at steps below 0", count(below, "point")));
        }
        self.curves.retain(|_, points| !points.is_empty());
        // One series is that of the times.
        let most = MOST_SERIES - 1;
        let all = self.curves.len() + self.system.len();
        if all > most {
            let last = |curves: &mut BTreeMap<String, Vec<Point>>, surplus: usize| {
                (0..surplus).filter_map(|_| curves.pop_last()).map(|(_, points)| points.len()).sum::<usize>()
            };
            let of_system = (all - most).min(self.system.len());
            let points = last(&mut self.system, of_system) + last(&mut self.curves, all - most - of_system);
            left.push(format!("{} series beyond {most}, with {}", all - most, count(points, "point")));
        }
        let texts = self.texts.values_mut().filter(|text| text.len() > MOST_TEXT_BYTES);
        let cut = texts.map(|text| text.truncate(text.floor_char_boundary(MOST_TEXT_BYTES))).count();
        if cut > 0 {
            left.push(format!("the end of {} beyond {} KiB", count(cut, "text"), MOST_TEXT_BYTES >> 10));
        }
        if !self.skipped.is_empty() {
            let all: Vec<String> = self.skipped.iter().map(|(kind, number)| count(number, kind)).collect();
            left.push(all.join(", "));
        }
        if !left.is_empty() {
            self.warnings.push(format!("the import left out {}", left.join("; ")));
        }
    }

    /// Returns the last value of each curve: that of the greatest step, or the last one logged among equal steps.
    fn metrics(&self) -> BTreeMap<String, Metric> {
        let last = |points: &Vec<Point>| points.iter().max_by_key(|point| point.step).map(|point| point.value);
        let curves = self.curves.iter().filter_map(|(name, points)| Some((name.clone(), last(points)?)));
        curves.map(|(name, value)| (name, Metric::new(value, ""))).collect()
    }

    fn series(&self, started_unix_s: f64) -> Vec<Series> {
        let mut series = Vec::new();
        let mut times: BTreeMap<u64, f64> = BTreeMap::new();
        for (name, points) in &self.curves {
            let mut made = Series::new(name.as_str(), "", Axis::Step);
            // Positions must not descend. Points of one step stay in the order in which they were logged.
            let mut sorted: Vec<&Point> = points.iter().collect();
            sorted.sort_by_key(|point| point.step);
            for point in sorted {
                let step = u64::try_from(point.step).unwrap_or(0);
                made.push(step, point.value);
                let after_s = point.unix_s - started_unix_s;
                if after_s.is_finite() {
                    times.entry(step).and_modify(|first| *first = first.min(after_s)).or_insert(after_s);
                }
            }
            series.push(made);
        }
        for (name, points) in &self.system {
            let mut made = Series::new(name.as_str(), "", Axis::TimeNs);
            let position = |point: &Point| u64::try_from(whole((point.unix_s - started_unix_s) * 1e9)).unwrap_or(0);
            let mut sorted: Vec<(u64, f64)> = points.iter().map(|point| (position(point), point.value)).collect();
            sorted.sort_by_key(|(at_ns, _)| *at_ns);
            sorted.into_iter().for_each(|(at_ns, value)| made.push(at_ns, value));
            series.push(made);
        }
        if !times.is_empty() && !self.curves.contains_key(LOGGED_AT) && !self.system.contains_key(LOGGED_AT) {
            let mut made = Series::new(LOGGED_AT, "s", Axis::Step);
            times.into_iter().for_each(|(step, after_s)| made.push(step, after_s));
            series.push(made);
        }
        series
    }
}

/// Parses a seed as trackers store it: a number, or its text.
fn seed_of(value: &Value) -> Option<u64> {
    if let Some(text) = value.as_str() {
        return text.parse().ok();
    }
    // Larger numbers are not exact, so several texts may give the same one.
    let is_exact = |number: &f64| number.fract() == 0.0 && number.abs() < EXACT;
    u64::try_from(value.as_int().or_else(|| value.as_float().filter(is_exact).map(whole))?).ok()
}

/// Integers below this one are exact as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[expect(clippy::cast_possible_truncation, reason = "saturates, and is 0 for NaN")]
fn whole(number: f64) -> i64 {
    number.round() as i64
}

/// The fact of an imported attempt, and its members.
const IMPORT: &str = "import";
const KIND: &str = "kind";
const ID: &str = "id";
const POINTS: &str = "points";

/// The run of a tracker that an attempt was imported from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignOrigin {
    /// The tracker.
    pub tool: String,
    /// The run's id there.
    pub id: String,
    /// The number of points at the import.
    pub points: i64,
}

impl ForeignOrigin {
    /// Returns the origin of an attempt. Returns `None` if it was not imported from a tracker.
    pub fn of(attempt: &Attempt) -> Option<Self> {
        let import = attempt.facts.get(IMPORT)?.as_table()?;
        let text = |name: &str| import.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Self { tool: text(KIND)?, id: text(ID)?, points: import.get(POINTS)?.as_int()? })
    }
}

/// Adds the wanted files of a folder and its subfolders, in the order of their paths. Links such as W&B's `latest-run` are not followed.
pub(super) fn files_below(
    folder: &Path,
    is_wanted: &dyn Fn(&Path) -> bool,
    found: &mut Vec<PathBuf>,
) -> Result<(), ImportError> {
    let unreadable = |source| ImportError::Unreadable { path: folder.to_owned(), source };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        entries.push((entry.path(), entry.file_type().map_err(unreadable)?));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (path, kind) in entries {
        if kind.is_dir() {
            files_below(&path, is_wanted, found)?;
        } else if kind.is_file() && is_wanted(&path) {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
