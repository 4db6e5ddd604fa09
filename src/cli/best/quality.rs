//! Whether a configuration that is cheap or fast learned as much as others.

use crate::analysis::Place;
use crate::cli::failure::Failure;
use crate::cli::selection::OBJECTIVE;
use crate::record::{Direction, JUDGING_METRICS, MetricInfo, MetricKind, Value, known_metric, unit_mean};
use crate::report::{Ranking, significant};
use crate::store::{Reader, Store, StoreError};

/// The least difference of accuracy that gives a warning.
const SHARE: f64 = 0.05;
/// The least difference of other metrics that gives a warning, relative to the larger value.
const PART: f64 = 0.1;

/// Warns if the first configuration by a measured metric (time, energy, …) learned much less than another one that is
/// shown. A worse model is often cheaper.
pub(super) fn tell_quality(ranking: &Ranking, store: &Store, said: &mut Vec<String>) -> Result<(), Failure> {
    let is_cost = ranking.places.first().is_some_and(|first| first.estimate.kind == MetricKind::Measured);
    if !is_cost || ranking.places.len() < 2 {
        return Ok(());
    }
    let found = store.read(|reader| {
        if is_meant_for_cost(reader, ranking)? {
            return Ok(None);
        }
        for name in JUDGING_METRICS {
            let means: Vec<Option<f64>> =
                ranking.places.iter().map(|place| mean_of(reader, place, name)).collect::<Result<_, _>>()?;
            if means[0].is_some() && means[1..].iter().flatten().any(|mean| mean.is_finite()) {
                return Ok(Some((name, means)));
            }
        }
        Ok(None)
    })?;
    let Some((name, means)) = found else { return Ok(()) };
    let maximize = known_metric(name).is_none_or(|known| known.direction == Direction::Maximize);
    let order = |value: f64| if maximize { value } else { -value };
    let finite = means.iter().enumerate().filter_map(|(at, mean)| Some((at, mean.filter(|mean| mean.is_finite())?)));
    let best = finite.max_by(|(_, a), (_, b)| order(*a).total_cmp(&order(*b)));
    let (Some(first), Some((at, best))) = (means[0], best) else { return Ok(()) };
    if !first.is_finite() {
        said.push(format!("warning: #1 diverged: its {name} is not finite (`ledger hide` leaves attempts out)"));
        return Ok(());
    }
    let least = if name == "accuracy" { SHARE } else { PART * best.abs().max(first.abs()) };
    // A difference of exactly `least` gives no warning, whatever its rounding.
    if order(best) - order(first) > least * (1.0 + 1e-9) {
        let limit = if maximize { "at-least" } else { "at-most" };
        said.push(format!(
            "warning: #1 learned less: its {name} is {}, that of #{} is {} (`--{limit} {name}={}` requires more, `ledger pareto` shows the trade-off)",
            significant(first),
            at + 1,
            significant(best),
            significant(f64::midpoint(first, best))
        ));
    }
    Ok(())
}

/// Whether the first configuration was executed to find a measured metric (time, energy, …), by the objective of its manifest.
fn is_meant_for_cost(reader: &Reader<'_>, ranking: &Ranking) -> Result<bool, StoreError> {
    let Some(measured) = ranking.places.first().and_then(|first| first.contender.measured.first()) else {
        return Ok(false);
    };
    let Some(attempt) = reader.readable(measured.attempt)? else { return Ok(false) };
    let objective = attempt.settings.get(OBJECTIVE[0]).and_then(Value::as_str);
    Ok(objective.and_then(known_metric).is_some_and(MetricInfo::is_measured))
}

/// The largest number of attempts of a place whose records are read.
const MOST_READ: usize = 100;

/// Returns the mean of a metric of a place over its seeds. It is not finite if one attempt's value is not. Returns
/// `None` if an attempt has no value.
fn mean_of(reader: &Reader<'_>, place: &Place, name: &str) -> Result<Option<f64>, StoreError> {
    let measured = &place.contender.measured;
    if measured.len() > MOST_READ {
        // The index has the mean of all attempts of a configuration.
        return match place.contender.agreed.is_empty() {
            true => reader.mean(place.contender.run.parts.group_id(), name),
            false => Ok(None),
        };
    }
    let mut values = Vec::new();
    for one in measured {
        let attempt = reader.readable(one.attempt)?;
        let Some(value) = attempt.and_then(|attempt| attempt.metric(name)) else { return Ok(None) };
        values.push((one.replicate, value));
    }
    Ok((!values.is_empty()).then(|| unit_mean(MetricKind::Outcome, &values)))
}
