//! Whether a configuration that is cheap or fast learned as much as others.

use crate::cli::failure::Failure;
use crate::cli::selection::OBJECTIVE;
use crate::record::{Direction, JUDGING_METRICS, MetricInfo, MetricKind, Value, known_metric, mean};
use crate::report::{Ranking, significant};
use crate::store::{Reader, Store, StoreError};

/// Shares that differ by less are no matter of a warning.
const SHARE: f64 = 0.05;
/// Other metrics, by a smaller part of the better one.
const PART: f64 = 0.1;

/// Warns if the first configuration by a time, an energy or the like learned much less than another one that is shown. A worse model is often cheaper.
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
                (0..ranking.places.len()).map(|at| mean_of(reader, ranking, at, name)).collect::<Result<_, _>>()?;
            if means.iter().flatten().count() > 1 && means[0].is_some() {
                return Ok(Some((name, means)));
            }
        }
        Ok(None)
    })?;
    let Some((name, means)) = found else { return Ok(()) };
    let known = known_metric(name);
    let maximize = known.is_none_or(|known| known.direction == Direction::Maximize);
    let order = |value: f64| if maximize { value } else { -value };
    let shown = means.iter().enumerate().filter_map(|(at, mean)| Some((at, (*mean)?)));
    let best = shown.max_by(|(_, a), (_, b)| order(*a).total_cmp(&order(*b)));
    let (Some(first), Some((at, best))) = (means[0], best) else { return Ok(()) };
    let least = if name == "accuracy" { SHARE } else { PART * best.abs() };
    // A difference of exactly that is none, however it is rounded.
    if order(best) - order(first) > least * (1.0 + 1e-9) {
        let (limit, wanted) = if maximize { ("at-least", best - least) } else { ("at-most", best + least) };
        said.push(format!(
            "warning: #1 learned less: its {name} is {}, that of #{} is {} (`--{limit} {name}={}` requires more, `ledger pareto` shows the trade-off)",
            significant(first),
            at + 1,
            significant(best),
            significant(wanted)
        ));
    }
    Ok(())
}

/// Whether the first configuration was executed to find a time, an energy or the like: the objective of its manifest says so.
fn is_meant_for_cost(reader: &Reader<'_>, ranking: &Ranking) -> Result<bool, StoreError> {
    let Some(measured) = ranking.places.first().and_then(|first| first.contender.measured.first()) else {
        return Ok(false);
    };
    let Some(attempt) = reader.readable(measured.attempt)? else { return Ok(false) };
    let objective = attempt.settings.get(OBJECTIVE[0]).and_then(Value::as_str);
    Ok(objective.and_then(known_metric).is_some_and(MetricInfo::is_measured))
}

/// The mean of a metric over the attempts of a place. `None` if one has no finite value.
fn mean_of(reader: &Reader<'_>, ranking: &Ranking, at: usize, name: &str) -> Result<Option<f64>, StoreError> {
    let mut values = Vec::new();
    for measured in &ranking.places[at].contender.measured {
        let attempt = reader.readable(measured.attempt)?;
        let Some(value) = attempt.and_then(|attempt| attempt.metric(name)).filter(|value| value.is_finite()) else {
            return Ok(None);
        };
        values.push(value);
    }
    Ok((!values.is_empty()).then(|| mean(&values)))
}
