//! Export of attempts to other tools: as tables, and in the formats of trackers, monitors and benchmarks.
//!
//! Knows sealed attempts and foreign formats. Must not know where a ledger is, who asked, or where the output goes.

mod columnar;
mod frame;
mod mlflow;
mod mllog;
mod perfetto;
mod prometheus;
mod rocrate;
mod tables;
mod tensorboard;
#[cfg(test)]
mod tests;
mod write;

pub use frame::Frame;
pub use mlflow::{MlflowFiles, mlflow_files};
pub use mllog::mllog_lines;
pub use perfetto::perfetto_trace;
pub use prometheus::{PrometheusFamilies, PrometheusNames};
pub use rocrate::{CrateOf, ResearchObject, Sourced};
pub use tables::{WideColumns, long, no_phases, no_points, phases, write_points};
pub use tensorboard::tensorboard_file;
pub use write::{Encoding, TableWriter};

use crate::record::{Attempt, AttemptId, Digest, Phase, Sealed, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Percent-encodes the characters that a URI does not allow (RFC 3986), except the bytes in `kept`.
fn percent(text: &str, kept: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// The number of id digits in an attempt's file name: two attempts that share the eight displayed digits need different files.
const ID_DIGITS: usize = 16;

/// An attempt and its id. Series and phases may be missing if a format does not use them.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The hash of the attempt.
    pub id: AttemptId,
    /// The run and the attempt.
    pub sealed: Sealed,
}

impl Entry {
    fn attempt(&self) -> &Attempt {
        &self.sealed.attempt
    }

    /// Returns the name of its experiment, or else its model.
    fn experiment(&self) -> &str {
        self.attempt().settings.get("experiment.name").and_then(Value::as_str).unwrap_or(self.sealed.run.model())
    }

    /// Returns its title: the model and the first digits of the id.
    fn title(&self) -> String {
        format!("{} {}", self.sealed.run.model(), self.id.0.prefix(8))
    }

    /// Returns every field of the run and every setting by its name, as text. A setting with the name of a field gets a prefix.
    fn fields(&self) -> BTreeMap<String, String> {
        let config = self.sealed.run.config();
        let settings = self.attempt().settings.iter().map(|(name, value)| {
            let mut name = name.clone();
            while config.contains_key(&name) {
                name = format!("setting.{name}");
            }
            (name, value.to_string())
        });
        settings.chain(config.iter().map(|(name, value)| (name.clone(), value.to_string()))).collect()
    }

    /// Returns the end of the attempt, in ms since the Unix epoch.
    fn ended_unix_ms(&self) -> i64 {
        self.unix_ms(self.attempt().wall_ns)
    }

    /// Converts a position in the attempt to ms since the Unix epoch.
    fn unix_ms(&self, position_ns: u64) -> i64 {
        self.attempt().started_unix_ms.saturating_add(i64::try_from(position_ns / 1_000_000).unwrap_or(i64::MAX))
    }
}

/// The end of each step in ns since the attempt's start, from its phases. Points over steps have no time of their own.
struct StepTimes(BTreeMap<u64, u64>);

impl StepTimes {
    fn new(phases: &[Phase]) -> Self {
        let steps = phases.iter().filter(|phase| phase.name == "step" && phase.rank == 0);
        Self(steps.filter_map(|phase| Some((phase.index, phase.stop_ns?))).collect())
    }

    /// Returns the end of the step. If no phase has it, this is the end of the last recorded step before it, or else the start.
    fn at(&self, step: u64) -> u64 {
        self.0.range(..=step).next_back().map_or(0, |(_, stop_ns)| *stop_ns)
    }
}

/// The writer of a file. Packs also seek, because their digest precedes the content.
pub trait Sink: io::Write + io::Seek + Send {}

impl<W: io::Write + io::Seek + Send> Sink for W {}

/// Writes the content of a file, piece by piece.
pub type Content<'a> = dyn Fn(&mut dyn Sink) -> io::Result<()> + 'a;

/// A file to write.
pub struct File<'a> {
    /// Its path below the output folder.
    pub path: PathBuf,
    content: Box<Content<'a>>,
}

impl<'a> File<'a> {
    fn new(path: PathBuf, content: impl Fn(&mut dyn Sink) -> io::Result<()> + 'a) -> Self {
        Self { path, content: Box::new(content) }
    }

    fn of(path: PathBuf, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::new(path, move |out| out.write_all(&bytes))
    }

    /// Writes its content.
    ///
    /// # Errors
    /// If a series cannot be read, or if `out` fails.
    pub fn write(&self, out: &mut dyn Sink) -> io::Result<()> {
        (self.content)(out)
    }
}

/// Calls a function with each point of a named series of an attempt, in order.
pub type PointsOf<'a> = dyn Fn(&str, &mut dyn FnMut(u64, f64)) -> io::Result<()> + 'a;

/// Calls `visit` with each point of a series, until `visit` fails.
fn each_point(
    points: &PointsOf<'_>,
    series: &str,
    mut visit: impl FnMut(u64, f64) -> io::Result<()>,
) -> io::Result<()> {
    let mut visited = Ok(());
    points(series, &mut |position, value| {
        if visited.is_ok() {
            visited = visit(position, value);
        }
    })?;
    visited
}

/// Converts names into a tool's format. If several names become equal, or equal to a taken one, a short digest is
/// appended. `form` also returns whether a name is unchanged; such a name keeps its form.
fn distinct(
    names: impl IntoIterator<Item = String>,
    taken: &[&str],
    form: impl Fn(&str) -> (String, bool),
) -> BTreeMap<String, String> {
    let mut alike: BTreeMap<String, BTreeSet<(bool, String)>> = BTreeMap::new();
    for name in names {
        let (formed, is_same) = form(&name);
        alike.entry(formed).or_default().insert((!is_same, name));
    }
    let mut found = BTreeMap::new();
    for (formed, names) in alike {
        let mut is_free = !taken.contains(&formed.as_str());
        for (_, name) in names {
            let apart = if std::mem::replace(&mut is_free, false) {
                formed.clone()
            } else {
                format!("{}_{}", cut(&formed, LONGEST_START), Digest::of(name.as_bytes()).prefix(8))
            };
            found.insert(name, apart);
        }
    }
    found
}

/// The largest number of bytes that stay of a name with a digest, within the limit of every tool.
const LONGEST_START: usize = 200;

/// Returns a name that is safe as a component of a path on every system. Other characters become `_`, and a long name is [`fitted`].
fn path_name(name: &str) -> String {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    // `.` and `..` are folders, and a name with a leading dot is hidden.
    let visible = if safe.is_empty() || safe.starts_with('.') { format!("_{safe}") } else { safe };
    fitted(&visible, name, LONGEST_NAME)
}

/// The largest name in bytes: file systems allow 255, and endings such as `.txt` need some.
const LONGEST_NAME: usize = 250;
/// The largest part in bytes of a model's name before an id.
const LONGEST_MODEL: usize = 200;

/// Returns a name of at most `most` bytes: a longer one is cut, and a short digest of the `whole` name is appended.
fn fitted(name: &str, whole: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    format!("{}_{}", cut(name, most - 9), Digest::of(whole.as_bytes()).prefix(8))
}

/// Returns the beginning of a text, of at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

impl Entry {
    /// Returns the model as it begins names of files.
    fn short_model(&self) -> String {
        let model = self.sealed.run.model();
        fitted(model, model, LONGEST_MODEL)
    }

    /// Returns the names that are too long for folders and files, whose ends are replaced by a digest.
    ///
    /// `has_file_each` is true for formats such as MLflow's, in which metrics, series and fields have files of their own.
    pub fn long_names(&self, has_file_each: bool) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        if has_file_each {
            names.extend(self.attempt().metrics.keys().cloned());
            names.extend(self.attempt().series.iter().map(|series| series.name.clone()));
            names.extend(self.fields().into_keys());
        } else {
            names.insert(self.experiment().to_owned());
        }
        names.retain(|name| name.len() > LONGEST_NAME);
        let model = self.sealed.run.model();
        if !has_file_each && model.len() > LONGEST_MODEL {
            names.insert(model.to_owned());
        }
        names
    }
}
