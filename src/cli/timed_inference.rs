//! Warns of metrics of timed inference that are not comparable: of different batch sizes, or timed in different ways.

use super::versions::REVISION;
use crate::analysis::{Contender, is_of_an_answer};
use crate::record::{Run, Value, field};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// The metric that tells how many samples a timed batch has.
const BATCH_SIZE: &str = "inference_batch_size";
/// The models whose inference is timed in another way since revision 8 of the trainer. For the others that is revision 7.
/// Later revisions time the same work, which takes less time.
const DETECTORS: [&str; 2] = ["maskrcnn", "yolov3"];

/// Returns warnings if the values of a metric in these rows are of different work.
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
    let value = |run: &Run, name: &str| field(run, None, name);
    let model = runs.first().and_then(|run| value(run, "model.name"));
    let model = model.as_ref().and_then(Value::as_str).unwrap_or_default();
    let revisions = runs.iter().filter_map(|run| value(run, REVISION)?.as_int());
    said.extend(other_timing(metric, model, revisions).map(|text| format!("warning: {text}")));
    Ok(said)
}

/// Warns if a metric of inference is from revisions of the trainer that time a model's inference in different ways.
pub(super) fn other_timing(metric: &str, model: &str, revisions: impl Iterator<Item = i64>) -> Option<String> {
    if !metric.starts_with("inference_") || metric == BATCH_SIZE {
        return None;
    }
    let since = if DETECTORS.contains(&model) { 8 } else { 7 };
    let found: BTreeSet<bool> = revisions.map(|revision| revision >= since).collect();
    (found.len() > 1).then(|| {
        let text = format!("since revision {since} of the trainer `{metric}` is timed in another way");
        format!("{text} (`--where 'program.revision >= {since}'` selects runs that are alike)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_that_time_inference_in_another_way_are_found() {
        let of = |metric, model, revisions: [i64; 2]| other_timing(metric, model, revisions.into_iter());
        let text = of("inference_time", "yolov3", [5, 8]).unwrap();
        assert!(text.starts_with("since revision 8 of the trainer `inference_time` is timed in another way"), "{text}");
        assert!(of("inference_p99@8", "bert", [6, 7]).unwrap().starts_with("since revision 7"));
        for (metric, model, revisions) in [
            ("inference_time", "yolov3", [5, 7]),
            ("inference_time", "yolov3", [8, 9]),
            ("inference_time", "bert", [7, 8]),
            ("energy_per_sample", "bert", [6, 7]),
        ] {
            assert_eq!(of(metric, model, revisions), None);
        }
    }
}
