//! Whether a machine drifted while a sweep was executed: what its canary says.

use super::bound::Bound;
use super::protocol::CANARY;
use super::until::{counted, usual_metric};
use crate::analysis::{Correlation, Summary};
use crate::record::{Attempt, LeftOut, Outcome};
use crate::store::{Reader, StoreError};

/// The setting that names the manifest of an attempt.
const MANIFEST: &str = "manifest.digest";

/// What the canary's attempts say.
#[derive(Clone, Debug, PartialEq)]
pub enum Canary {
    /// How its values went.
    Told(Drift),
    /// Fewer than two of its attempts have a value that counts.
    Silent {
        /// How many attempts it has.
        attempts: usize,
        /// How many of them count.
        counted: usize,
        /// Why one that does not count does not, if that is known.
        why: Option<LeftOut>,
    },
}

/// How the canary's values went.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The metric that was watched.
    pub metric: &'static str,
    /// How many attempts of the canary count.
    pub attempts: usize,
    /// How far the line through them goes from the first to the last, as a share of their mean.
    pub share: f64,
    /// The probability of such a line, or a steeper one, where nothing drifts; none of fewer than three attempts.
    pub p: Option<f64>,
}

impl Canary {
    /// What the ledger holds of the canary of this manifest, also of commands before this one; none where there is none.
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
        // A program need not tell of its training, nor a host of its power; how long it took is always known.
        let metrics = [usual_metric(bound), "train_time", "wall_time"];
        Ok(Self::of(&found, &metrics))
    }

    /// From its attempts in the order of their starts, by the first of the metrics that all have that finished; else by the last.
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
    /// How a metric went; else how many values count, and why one does not.
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
        // Values that do not vary have no line, and do not drift.
        let line = Correlation::of(&points);
        let (slope, p) = line.map_or((0.0, None), |line| (line.slope, line.pearson_p));
        Ok(Self { metric, attempts: points.len(), share: slope * (last - first) / mean, p })
    }
}
