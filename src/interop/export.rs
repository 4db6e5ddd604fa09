//! Attempts on their way to other tools: as tables, and in the forms that trackers, monitors and benchmarks read.
//!
//! Knows sealed attempts and foreign formats. Must not know where a ledger lies, who asked, or where the result goes.

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

/// Percent-encodes what may not stand in a URI (RFC 3986), these bytes apart.
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

/// How many digits of its id tell an attempt's file from others: two that share the eight that are shown must not meet.
const ID_DIGITS: usize = 16;

/// An attempt and its id. Series and phases may be left out where a format has no use for them.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The hash of the attempt.
    pub id: AttemptId,
    /// What is kept of it.
    pub sealed: Sealed,
}

impl Entry {
    fn attempt(&self) -> &Attempt {
        &self.sealed.attempt
    }

    /// The experiment that it is of; where none is named, its model.
    fn experiment(&self) -> &str {
        self.attempt().settings.get("experiment.name").and_then(Value::as_str).unwrap_or(self.sealed.run.model())
    }

    /// What to call it: its model and the first digits of its id.
    fn title(&self) -> String {
        format!("{} {}", self.sealed.run.model(), self.id.0.prefix(8))
    }

    /// Every field of the run and every setting by its name, as text. A setting that is called as a field says what it is.
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

    /// When it ended, in milliseconds since the Unix epoch.
    fn ended_unix_ms(&self) -> i64 {
        self.unix_ms(self.attempt().wall_ns)
    }

    /// A moment of the attempt, in milliseconds since the Unix epoch.
    fn unix_ms(&self, position_ns: u64) -> i64 {
        self.attempt().started_unix_ms.saturating_add(i64::try_from(position_ns / 1_000_000).unwrap_or(i64::MAX))
    }
}

/// When each step ended, in nanoseconds since the attempt's start: points over steps have no time of their own, but phases may tell.
struct StepTimes(BTreeMap<u64, u64>);

impl StepTimes {
    fn new(phases: &[Phase]) -> Self {
        let steps = phases.iter().filter(|phase| phase.name == "step" && phase.rank == 0);
        Self(steps.filter_map(|phase| Some((phase.index, phase.stop_ns?))).collect())
    }

    /// The end of the step; of one that no phase tells of, the end of the last one before it that is told of, else the start.
    fn at(&self, step: u64) -> u64 {
        self.0.range(..=step).next_back().map_or(0, |(_, stop_ns)| *stop_ns)
    }
}

/// The writer of a file. Packs also seek, because their digest stands before the content.
pub trait Sink: io::Write + io::Seek + Send {}

impl<W: io::Write + io::Seek + Send> Sink for W {}

/// Writes the content of a file, piece by piece.
pub type Content<'a> = dyn Fn(&mut dyn Sink) -> io::Result<()> + 'a;

/// A file that is to be written.
pub struct File<'a> {
    /// Its path below the folder that was named.
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
    /// If a series cannot be read, and those of `out`.
    pub fn write(&self, out: &mut dyn Sink) -> io::Result<()> {
        (self.content)(out)
    }
}

/// Gives each point of a series of an attempt, by the series' name and in the order of the points.
pub type PointsOf<'a> = dyn Fn(&str, &mut dyn FnMut(u64, f64)) -> io::Result<()> + 'a;

/// Calls `visit` with each point of a series, until it fails.
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

/// Names in the form that a tool takes. Where several become one, or one that is taken, a short digest behind them tells them apart;
/// `form` also says whether a name stayed as it was, which then keeps it.
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

/// Of a name that gets a digest, at most so much stays, so that it is no longer than any tool takes.
const LONGEST_START: usize = 200;

/// A name that is safe as one component of a path on every system: other characters become `_`, and a longer one is [`fitted`].
fn path_name(name: &str) -> String {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    // `.` and `..` are folders, and a name in front of which there is a dot is hidden.
    let visible = if safe.is_empty() || safe.starts_with('.') { format!("_{safe}") } else { safe };
    fitted(&visible, name, LONGEST_NAME)
}

/// File systems take names of 255 bytes, of which endings as `.txt` need some.
const LONGEST_NAME: usize = 250;
/// Of a model's name before an id, so that both fit.
const LONGEST_MODEL: usize = 200;

/// A name of at most so many bytes: of a longer one the beginning, and a short digest of the `whole` name.
fn fitted(name: &str, whole: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    format!("{}_{}", cut(name, most - 9), Digest::of(whole.as_bytes()).prefix(8))
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

impl Entry {
    /// The model, as names of files begin with it.
    fn short_model(&self) -> String {
        let model = self.sealed.run.model();
        fitted(model, model, LONGEST_MODEL)
    }

    /// Names that are too long for folders and files, in which a digest stands for their end.
    ///
    /// `has_file_each` is of forms in which metrics, series and fields are files of their own, as MLflow's.
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
