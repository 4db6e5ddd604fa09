//! All stored data of one attempt.

use super::{Attempt, Phase, Run, Series, SeriesSummary};
use std::collections::BTreeSet;

/// An attempt with its run, its series and its phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Sealed {
    /// The run that was executed.
    pub run: Run,
    /// The record of the execution.
    pub attempt: Attempt,
    /// Every series that the attempt lists, in that order.
    pub series: Vec<Series>,
    /// Every phase, sorted by start.
    pub phases: Vec<Phase>,
}

/// Pieces that do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    /// The attempt is of another run.
    #[error("the attempt is of another run than the one beside it")]
    Run,
    /// There are more or fewer series than the attempt lists.
    #[error("the number of series differs from the attempt's list")]
    SeriesCount,
    /// A series is not the one that the attempt lists.
    #[error("series `{0}` does not match its digest")]
    Series(String),
    /// A series has no name. The empty name is that of the phases' storage.
    #[error("a series has no name")]
    Unnamed,
    /// Two series have the same name. Series are stored by name, so one would replace the other.
    #[error("two series are named `{0}`")]
    Repeated(String),
    /// The phases are not those of the attempt.
    #[error("the phases do not match their digest")]
    Phases,
}

impl Sealed {
    /// Checks by digests that run, attempt, series and phases belong together, and that series can be stored by their names.
    pub fn check(&self) -> Result<(), Inconsistency> {
        let series: Vec<SeriesSummary> = self.series.iter().map(Series::summary).collect();
        check_pieces(&self.run, &self.attempt, &series, &self.phases)
    }
}

/// As [`Sealed::check`], for series with known summaries.
pub fn check_pieces(
    run: &Run,
    attempt: &Attempt,
    series: &[SeriesSummary],
    phases: &[Phase],
) -> Result<(), Inconsistency> {
    if attempt.run != run.id {
        return Err(Inconsistency::Run);
    }
    if attempt.series.len() != series.len() {
        return Err(Inconsistency::SeriesCount);
    }
    let mut names = BTreeSet::new();
    for (summary, found) in attempt.series.iter().zip(series) {
        if summary.name.is_empty() {
            return Err(Inconsistency::Unnamed);
        }
        if !names.insert(summary.name.as_str()) {
            return Err(Inconsistency::Repeated(summary.name.clone()));
        }
        if summary != found {
            return Err(Inconsistency::Series(summary.name.clone()));
        }
    }
    if attempt.phases != Phase::digest_all(phases) {
        return Err(Inconsistency::Phases);
    }
    Ok(())
}
