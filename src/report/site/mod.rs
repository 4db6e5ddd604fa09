//! A report as a folder of static files: pages that need no network and no script, Markdown, and the numbers behind each figure.
//!
//! Knows records, answers and figures. Must not know where they come from, nor where the files go. Whatever a person or a worker wrote is escaped.

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
    /// The attempts whose runs have a page, and these runs.
    pub pages: BTreeMap<AttemptId, RunId>,
    /// The runs that have a page.
    pub runs: BTreeSet<RunId>,
    /// How many attempts there are.
    pub all: usize,
    /// How many runs there are.
    pub all_runs: usize,
    /// The first page of the table of attempts.
    pub table: String,
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
    /// Every file of the report but the pages of runs and attempts, and the CSV of attempts: path and content.
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
