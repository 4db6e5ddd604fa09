//! `ledger import tensorboard`, `mlflow`, `wandb`, `trackio`, `neptune` and `aim`

use super::earlier::{HIDDEN_BY, SHOWN_BY, is_replaced};
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::host::{clock, environment, python, secrets};
use crate::interop::{BridgedRuns, ForeignOrigin, ForeignRun, read_neptune, read_tensorboard, read_wandb};
use crate::record::{AttemptId, Change, LogEntry, Outcome, Table, Target, Value};
use crate::report::{columns, count, table_of};
use crate::store::{Added, Reader, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Import the runs of TensorBoard's event files, with every scalar
///
/// Each folder with event files is a run. Hyperparameters become parameters; without any, the run's name does. The last
/// value of each scalar is a metric. Texts are kept. Images, audio, histograms and graphs are left out and counted.
///
/// A second import adds nothing. A run that has grown is imported again, and its earlier attempt is hidden.
///
/// Example: ledger import tensorboard runs/
#[derive(Debug, clap::Args)]
pub(super) struct TensorboardArgs {
    /// The folder of event files, or one file
    path: PathBuf,
}

/// Import the runs of an MLflow store, with every point
///
/// The store is an SQLite database, or a folder with MLflow's file store. It is only read, by `python3`, which has SQLite.
/// Parameters, tags, metrics and system metrics are imported. Artifacts are left out and counted; deleted runs are named.
///
/// A second import adds nothing. A run that has grown is imported again, and its earlier attempt is hidden.
///
/// Example: ledger import mlflow mlflow.db
#[derive(Debug, clap::Args)]
pub(super) struct MlflowArgs {
    /// The database, or the folder of the store
    path: PathBuf,
}

/// Import offline runs of Weights & Biases, with every point
///
/// The files `run-ID.wandb` of `WANDB_MODE=offline` are read. Configuration, metrics, system metrics, notes and tags are
/// imported. A metric with a step metric (`define_metric`) has its steps. Media, tables and artifacts are left out and
/// counted.
///
/// A second import adds nothing. A run that has grown is imported again, and its earlier attempt is hidden.
///
/// Example: ledger import wandb wandb/
#[derive(Debug, clap::Args)]
pub(super) struct WandbArgs {
    /// The folder with offline runs, or one file
    path: PathBuf,
}

/// Import the runs of a Trackio project, with every point
///
/// The database is only read, by `python3`, which has SQLite. Configurations, metrics and system metrics are imported.
/// Media, tables, texts, traces and artifacts are left out and counted. Trackio keeps one time for each batch of rows, so
/// the times of steps are unknown.
///
/// A second import adds nothing. A run that has grown is imported again, and its earlier attempt is hidden.
///
/// Example: ledger import trackio ~/.cache/huggingface/trackio/digits.db
#[derive(Debug, clap::Args)]
pub(super) struct TrackioArgs {
    /// The database PROJECT.db, or the folder with databases
    path: PathBuf,
}

/// Import the runs of a Neptune export, with every point
///
/// The export is the folder with Parquet files that neptune-exporter wrote. Attributes below `parameters/`, `params/`,
/// `config/` and the like are parameters. Of other attributes with one value, real numbers are metrics, and the rest are
/// parameters. `monitoring/` is telemetry, and `sys/` is kept as facts. Texts, files and histograms are left out and
/// counted; runs in the trash are named.
///
/// A second import adds nothing. A run that has grown is imported again, and its earlier attempt is hidden.
///
/// Example: ledger import neptune exports/data
#[derive(Debug, clap::Args)]
pub(super) struct NeptuneArgs {
    /// The folder of the export, or one of its Parquet files
    path: PathBuf,
}

/// Import the runs of an Aim repository, with every point
///
/// The repository is only read, by `python3`, which needs the package `aimrocks`: activate a virtual environment that
/// has it. Attributes, metrics and system metrics are imported; `loss` in the context `{subset: val}` is `loss/val`.
/// Texts, media, environment variables and packages are left out and counted. A run without an end is `interrupted`.
///
/// A second import adds nothing. A run that has grown is imported again, and its earlier attempt is hidden.
///
/// Example: ledger import aim .aim
#[derive(Debug, clap::Args)]
pub(super) struct AimArgs {
    /// The folder `.aim`, or the one that holds it
    path: PathBuf,
}

pub(super) fn tensorboard(args: &TensorboardArgs, context: &Context) -> Result<u8, Failure> {
    let mut taken = Taken::begin("tensorboard", context)?;
    read_tensorboard(&args.path, &mut |run| taken.take(run))?;
    taken.answer(context)
}

pub(super) fn wandb(args: &WandbArgs, context: &Context) -> Result<u8, Failure> {
    let mut taken = Taken::begin("wandb", context)?;
    read_wandb(&args.path, &mut |run| taken.take(run))?;
    taken.answer(context)
}

pub(super) fn neptune(args: &NeptuneArgs, context: &Context) -> Result<u8, Failure> {
    let mut taken = Taken::begin("neptune", context)?;
    taken.deleted = read_neptune(&args.path, &mut |run| taken.take(run))?;
    taken.answer(context)
}

pub(super) fn mlflow(args: &MlflowArgs, context: &Context) -> Result<u8, Failure> {
    bridged(("mlflow", &args.path), "an MLflow store", "give mlflow.db, or the folder mlruns", context)
}

pub(super) fn trackio(args: &TrackioArgs, context: &Context) -> Result<u8, Failure> {
    bridged(("trackio", &args.path), "a Trackio project", "give PROJECT.db, or its folder", context)
}

pub(super) fn aim(args: &AimArgs, context: &Context) -> Result<u8, Failure> {
    bridged(("aim", &args.path), "an Aim repository", "give the folder that holds .aim", context)
}

/// Imports a store that is read through Python.
fn bridged((tool, path): (&'static str, &Path), what: &str, fix: &str, context: &Context) -> Result<u8, Failure> {
    let metadata = path.metadata();
    metadata.map_err(|error| Failure::new(exit::USAGE, format!("cannot read `{}`: {error}", path.display())))?;
    let interpreter = environment::which("python3").ok_or_else(|| {
        Failure::new(exit::FAILED, format!("{what} is read by python3, which is not here (install Python 3)"))
    })?;
    let mut taken = Taken::begin(tool, context)?;
    let mut runs = BridgedRuns::of(tool);
    let read = python::tracker_lines(&interpreter, (tool, path), &mut |line| match runs.take(line) {
        Ok(Some(run)) => taken.take(run),
        Ok(None) => Ok(()),
        Err(fault) => Err(Failure::new(exit::FAILED, fault)),
    })?;
    read.map_err(|said| {
        let fix = if said.ends_with(')') { String::new() } else { format!(" ({fix})") };
        Failure::new(exit::USAGE, format!("`{}` cannot be read as {what}: {said}{fix}", path.display()))
    })?;
    taken.deleted = runs.deleted;
    taken.answer(context)
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(exit::FAILED, format!("cannot read from python3: {error}"))
    }
}

/// The result for one run.
struct Row {
    experiment: String,
    name: String,
    attempt: AttemptId,
    state: &'static str,
    points: usize,
    warnings: Vec<String>,
}

/// An attempt of an earlier import that no later import has replaced.
struct EarlierImport {
    attempt: AttemptId,
    points: i64,
    is_finished: bool,
    /// Whether a person has hidden it.
    is_hidden: bool,
}

#[derive(Default)]
struct EarlierImports {
    /// Attempts by the ids of their runs in the tracker.
    newest: BTreeMap<String, Vec<EarlierImport>>,
    /// Attempts that are hidden because a later import replaced them.
    replaced: BTreeSet<AttemptId>,
}

/// Imports runs one after the other: the points of one are in memory at a time.
struct Taken<'a> {
    tool: &'static str,
    store: &'a Store,
    earlier: EarlierImports,
    /// Names of runs without any content, with their warnings.
    empty: Vec<(String, Vec<String>)>,
    rows: Vec<Row>,
    deleted: Vec<String>,
}

impl<'a> Taken<'a> {
    fn begin(tool: &'static str, context: &'a Context) -> Result<Self, Failure> {
        let store = context.store();
        let earlier = store.if_there(|reader| earlier(reader, tool))?.unwrap_or_default();
        Ok(Self { tool, store, earlier, empty: Vec::new(), rows: Vec::new(), deleted: Vec::new() })
    }

    fn take(&mut self, mut run: ForeignRun) -> Result<(), Failure> {
        for text in run.texts.values_mut() {
            *text = secrets::redacted(text);
        }
        let (id, name, points) = (run.id.clone(), run.name.clone(), run.points());
        let experiment = run.experiment.clone();
        for field in secrets::places(&run.params) {
            say(&format!("warning: the parameter `{field}` of {name} may hold a secret and is recorded unchanged"));
        }
        if points == 0 && run.params.is_empty() && run.texts.is_empty() {
            self.empty.push((name, run.warnings));
            return Ok(());
        }
        let before = self.earlier.newest.remove(&id).unwrap_or_default();
        let is_whole = run.outcome == Outcome::Finished;
        // A truncated copy has fewer points, or as many and no end.
        let larger = before.iter().find(|one| {
            usize::try_from(one.points).is_ok_and(|had| had > points || had == points && one.is_finished && !is_whole)
        });
        if let Some(larger) = larger {
            let had = larger.points;
            let end = if is_whole { "" } else { " and no end" };
            let warning = format!("not imported: it has {}{end}, and the imported one {had}", count(points, "point"));
            self.rows.push(Row {
                experiment,
                name,
                attempt: larger.attempt,
                state: "older",
                points,
                warnings: vec![warning],
            });
            return Ok(());
        }
        let mut sealed = run.sealed();
        let now = clock::unix_ms();
        let is_hidden = before.iter().any(|one| one.is_hidden);
        let replaced = &self.earlier.replaced;
        let (added, grown) = self.store.write_many(|writer| {
            let added = writer.import(&sealed, now)?;
            let id = added.id();
            let is_again = replaced.contains(&id);
            // The content is the same, and nothing has replaced it.
            if matches!(added, Added::Known(_)) && !is_again {
                return Ok((added, false));
            }
            let mut change = |id, change: fn(Target) -> Change, text: Option<String>| {
                let target = Target::Attempt(id);
                let noted = text.map(|text| Change::Noted { target, text });
                let mut changes = noted.into_iter().chain([change(target)]);
                changes.try_for_each(|change| writer.note(&LogEntry { unix_ms: now, change }))
            };
            for one in before.iter().filter(|one| !one.is_hidden) {
                change(
                    one.attempt,
                    Change::Hidden,
                    Some(format!("{HIDDEN_BY}{experiment}/{name}, which has changed")),
                )?;
            }
            if is_hidden {
                change(id, Change::Hidden, None)?;
            } else if is_again {
                change(id, Change::Unhidden, Some(format!("{SHOWN_BY}{experiment}/{name}")))?;
            }
            Ok((added, !before.is_empty()))
        })?;
        if is_hidden && matches!(added, Added::New(_)) {
            let id = added.id().0.prefix(8);
            sealed
                .attempt
                .warnings
                .push(format!("it stays hidden, as its earlier import is (`ledger hide --undo {id}` shows it)"));
        }
        let state = match added {
            Added::Known(_) | Added::Restored(_) if grown => "again",
            Added::Known(_) | Added::Restored(_) => "known",
            Added::New(_) if grown => "grown",
            Added::New(_) => "new",
        };
        let warnings = sealed.attempt.warnings;
        self.rows.push(Row { experiment, name, attempt: added.id(), state, points, warnings });
        Ok(())
    }

    fn answer(&self, context: &Context) -> Result<u8, Failure> {
        for row in &self.rows {
            for warning in &row.warnings {
                say(&format!("note: {}: {warning}", row.name));
            }
        }
        for (name, warnings) in &self.empty {
            let why = warnings.iter().map(|warning| format!("; {warning}")).collect::<String>();
            say(&format!("warning: {name}: not imported, since it has no points, parameters or texts{why}"));
        }
        if self.rows.is_empty() && self.empty.is_empty() && self.deleted.is_empty() {
            say(&format!("warning: the {} store has no runs (check the path)", self.tool));
        }
        if !self.deleted.is_empty() {
            let names = self.deleted.join(", ");
            say(&format!("note: {} not imported, deleted in {}: {names}", count(self.deleted.len(), "run"), self.tool));
        }
        context.answer(|| self.text(), || self.value())?;
        Ok(if self.rows.is_empty() { exit::NO } else { exit::YES })
    }

    fn text(&self) -> String {
        // Runs of two experiments may have the same name.
        let is_mixed = self.rows.iter().any(|row| row.experiment != self.rows[0].experiment);
        let rows = self.rows.iter().map(|row| {
            let attempt = row.attempt.0.prefix(8);
            let name = if is_mixed { format!("{}/{}", row.experiment, row.name) } else { row.name.clone() };
            vec![name, attempt, row.state.to_owned(), row.points.to_string()]
        });
        columns(&["RUN", "ATTEMPT", "STATE", ">POINTS"], rows)
    }

    fn value(&self) -> Table {
        let runs = self.rows.iter().map(|row| {
            Value::Table(table_of([
                ("name", row.name.as_str().into()),
                ("experiment", row.experiment.as_str().into()),
                ("attempt", row.attempt.to_string().into()),
                ("state", row.state.into()),
                ("points", row.points.into()),
                ("warnings", row.warnings.clone().into()),
            ]))
        });
        table_of([
            ("tool", self.tool.into()),
            ("runs", Value::List(runs.collect())),
            ("deleted", self.deleted.clone().into()),
        ])
    }
}

/// Returns the attempts of the ledger that were imported from a tracker.
fn earlier(reader: &Reader<'_>, tool: &str) -> Result<EarlierImports, StoreError> {
    let mut runs = Vec::new();
    reader.runs(|run| {
        let program = run.parts.program.as_table();
        if program.and_then(|program| program.get("import")).and_then(Value::as_str) == Some(tool) {
            runs.push(run.id);
        }
        Ok(())
    })?;
    let hidden = reader.hidden()?;
    let mut found = EarlierImports::default();
    for run in runs {
        for (id, _) in reader.attempts_of(run)? {
            let is_hidden = hidden.contains(&id.0) || hidden.contains(&run.0);
            let Some(attempt) = reader.readable(id)? else { continue };
            let Some(origin) = ForeignOrigin::of(&attempt) else { continue };
            if is_hidden && is_replaced(&reader.notes(id.0)?) {
                found.replaced.insert(id);
                continue;
            }
            let is_finished = attempt.outcome == Outcome::Finished;
            let import = EarlierImport { attempt: id, points: origin.points, is_finished, is_hidden };
            found.newest.entry(origin.id).or_default().push(import);
        }
    }
    Ok(found)
}
