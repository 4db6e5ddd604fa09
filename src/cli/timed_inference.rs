//! Metrics of timed inference that are not comparable: of other batch sizes, or timed in another way.

use crate::analysis::{Contender, is_of_an_answer};
use crate::record::{Run, Value, field};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// The metric that tells how many samples a timed batch has.
const BATCH_SIZE: &str = "inference_batch_size";
/// The revisions of the trainer since which inference is timed in another way, and of which models; of all if none is named.
const CHANGES: [(i64, &[&str]); 2] = [(7, &[]), (8, &["maskrcnn", "yolov3"])];

/// Warns if rows have values of this metric that are not of the same work.
pub(super) fn unlike(reader: &Reader<'_>, metric: &str, rows: &[&Contender]) -> Result<Vec<String>, StoreError> {
    let mut said = Vec::new();
    if !metric.starts_with("inference_") || metric == BATCH_SIZE {
        return Ok(said);
    }
    let measured = || rows.iter().flat_map(|row| &row.measured);
    if is_of_an_answer(metric) {
        let mut sizes = Vec::new();
        for one in measured() {
            sizes.extend(reader.readable(one.attempt)?.and_then(|attempt| attempt.metric(BATCH_SIZE)));
        }
        let least = sizes.iter().copied().fold(f64::INFINITY, f64::min);
        let most = sizes.iter().copied().fold(0.0, f64::max);
        if least < most {
            said.push(format!(
                "warning: `{metric}` is of batches of {least} to {most} samples, so rows are not alike (`{metric}@N` is of batches of N)"
            ));
        }
    }
    let ids: BTreeSet<_> = measured().map(|one| one.run).collect();
    let mut runs = Vec::new();
    for id in ids {
        runs.extend(reader.run(id)?);
    }
    said.extend(changed(&runs).map(|revision| {
        let text = format!("since revision {revision} of the trainer `{metric}` is timed in another way");
        format!("warning: {text} (`--where 'program.revision >= {revision}'` selects runs that are alike)")
    }));
    Ok(said)
}

/// The last revision before which some of the runs are, and some are not, and that changed how their inference is timed.
fn changed(runs: &[Run]) -> Option<i64> {
    let revision = |run: &Run| field(run, None, "program.revision").and_then(|revision| revision.as_int());
    let is_of = |run: &Run, models: &[&str]| {
        let model = field(run, None, "model.name");
        models.is_empty() || model.as_ref().and_then(Value::as_str).is_some_and(|model| models.contains(&model))
    };
    let is_between = |(at, models): &(i64, &[&str])| {
        let of_model = runs.iter().filter(|run| is_of(run, models));
        let revisions: BTreeSet<bool> = of_model.filter_map(revision).map(|revision| revision >= *at).collect();
        revisions.len() > 1
    };
    CHANGES.iter().rev().find(|change| is_between(change)).map(|(revision, _)| *revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parts, Table};

    #[test]
    fn revisions_that_time_inference_in_another_way_are_found() {
        let run = |model: &str, revision: i64| {
            let config: Table = [("model.name".to_owned(), model.into())].into();
            let program: Table = [("revision".to_owned(), revision.into())].into();
            Run::new(Parts { config: config.into(), program: Value::Table(program), ..Parts::sample() })
        };
        let of = |model, revisions: [i64; 2]| changed(&revisions.map(|revision| run(model, revision)));
        assert_eq!([of("yolov3", [7, 8]), of("yolov3", [5, 8])], [Some(8), Some(8)]);
        assert_eq!([of("bert", [6, 7]), of("bert", [7, 8]), of("bert", [4, 5])], [Some(7), None, None]);
    }
}
