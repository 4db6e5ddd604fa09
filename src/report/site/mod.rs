//! A report as a folder of static files: pages that need no network and no script, Markdown, and the numbers behind each figure.
//!
//! Knows records, answers and figures. Must not know where they come from, nor where the files go. Whatever a person or a worker wrote is escaped.

mod html;
mod index;
mod markdown;
mod run;

pub use run::{AttemptOf, RunOf, run_page};

use super::figure::{Drawing, Figure, FigureError, Sheet};
use super::ranking::Ranking;
use crate::analysis::{Trial, configurations};
use crate::record::{Digest, GroupId, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// The file that says that a folder is a report, and which files are its own: these may be replaced.
pub const MARKER: &str = ".ledger-report";

/// What a report is of.
#[derive(Clone, Debug)]
pub struct ReportOf {
    /// What stands above it.
    pub title: String,
    /// What is in it, in sentences.
    pub about: Vec<String>,
    /// The models, in the order of their names.
    pub models: Vec<ModelOf>,
    /// Every attempt, the newest first.
    pub trials: Vec<Trial>,
    /// The tags of runs and attempts.
    pub tags: BTreeMap<Digest, Vec<String>>,
    /// The head of the ledger's log, which says what of the ledger this is.
    pub head: Digest,
}

/// What a report says of one model.
#[derive(Clone, Debug)]
pub struct ModelOf {
    /// Its name.
    pub model: String,
    /// The best configurations by each metric, and how many there are in all.
    pub rankings: Vec<(Ranking, usize)>,
    /// The figures, each with a name for files.
    pub figures: Vec<(String, Figure)>,
}

/// The page of a run, from the folder of the report.
pub fn page_of(run: &RunId) -> String {
    format!("runs/{}.html", run.0.prefix(20))
}

impl ReportOf {
    /// Every file of the report but the pages of the runs: path and content.
    ///
    /// # Errors
    /// If a figure cannot be drawn.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, FigureError> {
        let mut files = vec![
            ("index.html".to_owned(), index::page(self)?.into_bytes()),
            ("report.md".to_owned(), markdown::text(self).into_bytes()),
            ("data/attempts.csv".to_owned(), self.attempts().csv().into_bytes()),
        ];
        for model in &self.models {
            for (name, figure) in &model.figures {
                files.push((format!("figures/{name}.svg"), Drawing::default().svg(figure)?.into_bytes()));
                files.push((format!("data/{name}.csv"), figure.sheet.csv().into_bytes()));
            }
        }
        Ok(files)
    }

    /// Every attempt with all of its metrics.
    fn attempts(&self) -> Sheet {
        let metrics: BTreeSet<&String> = self.trials.iter().flat_map(|trial| trial.attempt.metrics.keys()).collect();
        let fields: BTreeSet<&String> = self.trials.iter().flat_map(|trial| trial.run.config().keys()).collect();
        let mut heads: Vec<String> =
            ["run", "attempt", "model", "seed", "outcome", "tainted"].map(str::to_owned).to_vec();
        // A name that is taken says what its column is of.
        let mut head = |name: &str, of: &str| {
            let mut name = name.to_owned();
            while heads.contains(&name) {
                name = format!("{of}.{name}");
            }
            heads.push(name);
        };
        fields.iter().for_each(|name| head(name, "field"));
        for name in &metrics {
            head(name, "metric");
            head(&format!("{name}.half_width_95"), "metric");
        }
        let row = |trial: &Trial| {
            let mut row = vec![
                trial.run.id.to_string(),
                trial.id.to_string(),
                trial.run.model().to_owned(),
                trial.run.parts.seed.to_string(),
                trial.attempt.outcome.name().to_owned(),
                trial.attempt.all_taints().join("; "),
            ];
            row.extend(
                fields.iter().map(|name| trial.run.config().get(*name).map_or_else(String::new, ToString::to_string)),
            );
            row.extend(metrics.iter().flat_map(|name| {
                let metric = trial.attempt.metrics.get(*name);
                let text = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:?}"));
                [text(metric.and_then(|metric| metric.value)), text(metric.and_then(|metric| metric.uncertainty))]
            }));
            row
        };
        Sheet { heads, rows: self.trials.iter().map(row).collect() }
    }

    /// The runs of each configuration, those of one another's repetitions.
    pub fn repetitions(&self) -> BTreeMap<GroupId, Vec<RunId>> {
        let mut found: BTreeMap<GroupId, Vec<RunId>> = BTreeMap::new();
        for one in configurations(&self.trials, &[]) {
            let runs: BTreeSet<RunId> = one.trials.iter().map(|trial| trial.run.id).collect();
            if let Some(run) = one.run() {
                found.insert(run.parts.group_id(), runs.into_iter().collect());
            }
        }
        found
    }
}
