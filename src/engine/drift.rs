//! Drift of a machine during a sweep, measured by its control run (canary).

use super::bound::Bound;
use super::protocol::CANARY;
use super::until::{counted, usual_metric};
use crate::analysis::{Correlation, Summary};
use crate::record::{Attempt, LeftOut, Outcome};
use crate::store::{Reader, StoreError};

/// The setting that names the manifest of an attempt.
const MANIFEST: &str = "manifest.digest";

/// The result of the canary's attempts.
#[derive(Clone, Debug, PartialEq)]
pub enum Canary {
    /// The drift.
    Told(Drift),
    /// No drift can be computed: fewer than two attempts have a value that counts.
    Silent {
        /// The number of attempts.
        attempts: usize,
        /// The number of attempts that count.
        counted: usize,
        /// Why one of the others does not count, if that is known.
        why: Option<LeftOut>,
    },
}

/// The linear trend of the canary's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The metric.
    pub metric: &'static str,
    /// The number of attempts that count.
    pub attempts: usize,
    /// The change along the regression line from the first to the last attempt, as a share of the mean.
    pub share: f64,
    /// The p-value of the slope. `None` for fewer than three attempts.
    pub p: Option<f64>,
}

impl Canary {
    /// Reads the canary's attempts of this manifest from the ledger, including those of earlier commands. `None` if
    /// there are none.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn look(reader: &Reader<'_>, bound: &Bound) -> Result<Option<Self>, StoreError> {
        let (hidden, manifest) = (reader.hidden()?, bound.cell.settings.get(MANIFEST));
        let mut found = Vec::new();
        for (id, _) in reader.attempts_of(bound.run.id)? {
            let is_hidden = hidden.contains(&id.0) || hidden.contains(&bound.run.id.0);
            let attempt = if is_hidden { None } else { reader.readable(id)? };
            let is_own =
                |attempt: &Attempt| attempt.settings.contains_key(CANARY) && attempt.settings.get(MANIFEST) == manifest;
            found.extend(attempt.filter(is_own));
        }
        found.sort_by_key(|attempt| attempt.started_unix_ms);
        // A program may not report its training, and a host may not measure power, but the wall time is always known.
        let metrics = [usual_metric(bound), "train_time", "wall_time"];
        Ok(Self::of(&found, &metrics))
    }

    /// From attempts in the order of their starts, by the first metric that all finished ones have, otherwise by the
    /// last metric.
    fn of(attempts: &[Attempt], metrics: &[&'static str]) -> Option<Self> {
        let finished = || attempts.iter().filter(|attempt| attempt.outcome == Outcome::Finished);
        let has = |metric: &&&'static str| finished().all(|attempt| attempt.metric(metric).is_some());
        let metric = metrics.iter().find(has).or(metrics.last())?;
        if attempts.is_empty() {
            return None;
        }
        Some(match Drift::of(attempts, metric) {
            Ok(drift) => Self::Told(drift),
            Err((counted, why)) => Self::Silent { attempts: attempts.len(), counted, why },
        })
    }
}

impl Drift {
    /// The trend of a metric. The error has the number of values that count, and why one does not.
    fn of(attempts: &[Attempt], metric: &'static str) -> Result<Self, (usize, Option<LeftOut>)> {
        let (mut points, mut why) = (Vec::new(), None);
        for attempt in attempts {
            match counted(attempt, metric) {
                #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact for 285,000 years")]
                Ok(value) => points.push((attempt.started_unix_ms as f64, value)),
                Err(left) => why = why.or(Some(left)),
            }
        }
        let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
        let mean = Summary::of(&values).map_or(0.0, |summary| summary.mean);
        let ends = points.first().zip(points.last()).map(|(first, last)| (first.0, last.0));
        let Some((first, last)) = ends.filter(|_| points.len() >= 2 && mean != 0.0) else {
            return Err((points.len(), why));
        };
        points.iter_mut().for_each(|point| point.0 -= first);
        // Constant values have no regression line and no drift.
        let line = Correlation::of(&points);
        let (slope, p) = line.map_or((0.0, None), |line| (line.slope, line.pearson_p));
        Ok(Self { metric, attempts: points.len(), share: slope * (last - first) / mean, p })
    }
}
