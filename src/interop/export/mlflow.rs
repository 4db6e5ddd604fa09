//! MLflow's file store: one folder per experiment, in it one folder per run, in it files of metrics, parameters and tags.

use super::{Entry, File, PointsOf, Sink, StepTimes, distinct, each_point, path_name, percent};
use crate::record::{Axis, Digest, Outcome};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The longest value of parameters and tags that MLflow accepts, in characters.
const LONGEST_VALUE: usize = 6000;

/// The files of an attempt in a file store.
pub struct MlflowFiles<'a> {
    /// The folders that MLflow needs for a run, even if they are empty.
    pub folders: Vec<PathBuf>,
    /// The file that describes the experiment, which its runs share.
    pub experiment: (PathBuf, String),
    /// The files of this attempt.
    pub files: Vec<File<'a>>,
}

/// Returns the files of an attempt below the store's folder `root`. They contain this path, so it must be absolute.
///
/// Experiments are those of the manifests. Metrics keep their names, with `_at_` for `@`. Series are `series/NAME` over
/// steps, and `system/NAME` over time, which MLflow shows as system metrics. Parameters are all fields and settings.
pub fn mlflow_files<'a>(entry: &'a Entry, points: &'a PointsOf<'a>, root: &Path) -> MlflowFiles<'a> {
    let id = experiment_id(entry.experiment());
    let run = entry.id.0.prefix(32);
    let folder = PathBuf::from(&id).join(&run);
    let folders = ["metrics", "params", "artifacts"].map(|name| folder.join(name)).to_vec();
    let experiment = (PathBuf::from(&id).join("meta.yaml"), experiment_meta(entry, &id, root));
    let mut files = vec![File::of(folder.join("meta.yaml"), run_meta(entry, &id, &run, root))];
    files.extend(metrics(entry, points, &folder.join("metrics")));
    let fields = entry.fields();
    let params = distinct(fields.keys().cloned(), &[], formed);
    for (name, param) in &params {
        let value = fields.get(name).map_or("", String::as_str);
        files.push(File::of(folder.join("params").join(param), shortened(value)));
    }
    for (name, value) in tags(entry) {
        files.push(File::of(folder.join("tags").join(name), shortened(&value)));
    }
    MlflowFiles { folders, experiment, files }
}

/// Returns an id of 18 digits, as MLflow makes them. A name has the same id in every export.
fn experiment_id(name: &str) -> String {
    let Digest(bytes) = Digest::of_pieces("ledger mlflow experiment v1", &[name.as_bytes()]);
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    format!("{:018}", 100_000_000_000_000_000 + u64::from_le_bytes(number) % 900_000_000_000_000_000)
}

fn experiment_meta(entry: &Entry, id: &str, root: &Path) -> String {
    let place = quoted(&uri(&root.join(id)));
    let at = entry.attempt().started_unix_ms;
    let name = quoted(entry.experiment());
    format!(
        "artifact_location: {place}\ncreation_time: {at}\nexperiment_id: '{id}'\nlast_update_time: {at}\nlifecycle_stage: active\nname: {name}\n"
    )
}

fn run_meta(entry: &Entry, experiment: &str, run: &str, root: &Path) -> String {
    // FINISHED, FAILED and KILLED.
    let status = match entry.attempt().outcome {
        Outcome::Finished => 3,
        Outcome::Failed { .. } => 4,
        Outcome::Interrupted { .. } => 5,
    };
    let place = quoted(&uri(&root.join(experiment).join(run).join("artifacts")));
    let (start, end, name) = (entry.attempt().started_unix_ms, entry.ended_unix_ms(), quoted(&entry.title()));
    format!(
        "artifact_uri: {place}\nend_time: {end}\nentry_point_name: ''\nexperiment_id: '{experiment}'\nlifecycle_stage: active\n\
         run_id: '{run}'\nrun_name: {name}\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {start}\n\
         status: {status}\ntags: []\nuser_id: ledger\n"
    )
}

/// Returns a file for each series with points, and for each metric with a value. Its lines are time, value and step.
fn metrics<'a>(entry: &'a Entry, points: &'a PointsOf<'a>, folder: &Path) -> Vec<File<'a>> {
    let attempt = entry.attempt();
    let times = Rc::new(StepTimes::new(&entry.sealed.phases));
    let of_axis = |axis| {
        let series = attempt.series.iter().filter(move |series| series.axis == axis);
        distinct(series.map(|series| series.name.clone()), &[], formed)
    };
    let (over_steps, over_time) = (of_axis(Axis::Step), of_axis(Axis::TimeNs));
    let mut files = Vec::new();
    for series in attempt.series.iter().filter(|series| series.len > 0) {
        let (kind, names) = if series.axis == Axis::Step { ("series", &over_steps) } else { ("system", &over_time) };
        let Some(name) = names.get(&series.name) else { continue };
        let times = Rc::clone(&times);
        files.push(File::new(folder.join(kind).join(name), move |out| {
            let mut index = 0;
            each_point(points, &series.name, |position, value| {
                let (at, step) = match series.axis {
                    Axis::Step => (entry.unix_ms(times.at(position)), position),
                    Axis::TimeNs => (entry.unix_ms(position), index),
                };
                index += 1;
                line(out, at, value, step)
            })
        }));
    }
    // A file and a folder cannot have the same name.
    let names = distinct(attempt.metrics.keys().cloned(), &["series", "system"], |name| {
        let (formed, _) = formed(&name.replace('@', "_at_"));
        let is_same = formed == name;
        (formed, is_same)
    });
    for (name, file) in &names {
        if let Some(value) = attempt.metrics.get(name).and_then(|metric| metric.value) {
            files.push(File::new(folder.join(file), move |out| line(out, entry.ended_unix_ms(), value, 0)));
        }
    }
    files
}

fn line(out: &mut dyn Sink, at: i64, value: f64, step: u64) -> io::Result<()> {
    // Python parses `NaN` and `inf`.
    writeln!(out, "{at} {value:?} {step}")
}

fn tags(entry: &Entry) -> Vec<(&'static str, String)> {
    let attempt = entry.attempt();
    let mut tags = vec![
        ("mlflow.runName", entry.title()),
        ("mlflow.source.type", "LOCAL".to_owned()),
        ("mlflow.source.name", "ledger".to_owned()),
        ("mlflow.user", "ledger".to_owned()),
        ("ledger.attempt", entry.id.to_string()),
        ("ledger.run", entry.sealed.run.id.to_string()),
        ("ledger.seed", entry.sealed.run.parts.seed.to_string()),
        ("ledger.device", entry.sealed.run.parts.device.to_string()),
        ("ledger.outcome", attempt.outcome.name().to_owned()),
    ];
    tags.extend(attempt.outcome.reason().map(|reason| ("ledger.reason", reason.to_owned())));
    let taints = attempt.all_taints();
    if !taints.is_empty() {
        tags.push(("ledger.tainted", taints.join("; ")));
    }
    tags
}

/// Returns a name that MLflow accepts (letters, digits, `_`, `-` and `.`, at most 250 bytes), and whether it is unchanged.
fn formed(name: &str) -> (String, bool) {
    let formed = path_name(name);
    let is_same = formed == name;
    (formed, is_same)
}

fn shortened(value: &str) -> String {
    value.chars().take(LONGEST_VALUE).collect()
}

/// Quotes a text for YAML.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("'{}'", plain.replace('\'', "''"))
}

/// Returns a path as a `file:` URI.
fn uri(path: &Path) -> String {
    format!("file://{}", percent(&path.to_string_lossy(), b"/"))
}
