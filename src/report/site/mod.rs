//! A report as a folder of static files: HTML that needs no network and no script, Markdown, and the data of figures.
//!
//! Knows records, rankings and figures. Must not know their origin, nor where files are written.
//! All text from people and workers is escaped.

mod attempts;
mod headline;
mod html;
mod index;
mod markdown;
mod run;

pub use attempts::{AttemptNames, AttemptPage, AttemptTable};
pub use run::{AttemptOf, RunOf, run_page};

use super::figure::{Drawing, Figure, FigureError};
use super::ranking::Ranking;
use crate::record::{AttemptId, Digest, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// File that marks a folder as a report and lists the report's own files, which may be replaced.
pub const MARKER: &str = ".ledger-report";

/// The content of a report.
#[derive(Clone, Debug)]
pub struct ReportOf {
    /// Title.
    pub title: String,
    /// Introductory sentences.
    pub about: Vec<String>,
    /// The models, sorted by name.
    pub models: Vec<ModelOf>,
    /// The attempts whose runs have a page, with these runs.
    pub pages: BTreeMap<AttemptId, RunId>,
    /// The runs that have a page.
    pub runs: BTreeSet<RunId>,
    /// Number of attempts.
    pub all: usize,
    /// Number of runs.
    pub all_runs: usize,
    /// HTML of the first page of the table of attempts.
    pub table: String,
    /// Head of the ledger's log, which identifies the state of the ledger.
    pub head: Digest,
}

/// The section of one model.
#[derive(Clone, Debug)]
pub struct ModelOf {
    /// Its name.
    pub model: String,
    /// The best configurations by each metric, and the number of all configurations.
    pub rankings: Vec<(Ranking, usize)>,
    /// The figures, each with a name for files.
    pub figures: Vec<(String, Figure)>,
}

/// Returns the path of a run's page, relative to the report's folder.
pub fn page_of(run: &RunId) -> String {
    format!("runs/{}.html", run.0.prefix(20))
}

impl ReportOf {
    /// Returns path and content of the report's files, except pages of runs and attempts and the CSV of attempts.
    ///
    /// # Errors
    /// If a figure cannot be drawn.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, FigureError> {
        let mut files = vec![
            ("index.html".to_owned(), index::page(self)?.into_bytes()),
            ("report.md".to_owned(), markdown::text(self).into_bytes()),
        ];
        for model in &self.models {
            for (name, figure) in &model.figures {
                files.push((format!("figures/{name}.svg"), Drawing::default().svg(figure)?.into_bytes()));
                files.push((format!("data/{name}.csv"), figure.sheet.csv().into_bytes()));
            }
        }
        Ok(files)
    }
}
