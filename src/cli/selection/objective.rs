//! The objective and its direction: as stated, as known of the metric, or as recorded by attempts.

use super::{nothing, trials_of};
use crate::cli::best::speed::TIMES;
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::manifest::nearest;
use crate::record::{Direction, JUDGING_METRICS, KNOWN_METRICS, Value, known_metric};
use crate::store::{Reader, StoreError};
use crate::wire::Known;
use std::collections::BTreeMap;

/// Returns the direction in which a metric is better. That of a known metric cannot be stated otherwise.
pub(in crate::cli) fn direction_of(metric: &str, stated: Option<&str>) -> Result<Direction, Failure> {
    match (stated, known_metric(metric)) {
        (Some(stated), Some(known)) if stated != known.direction.name() => {
            let better = if known.direction == Direction::Minimize { "lower" } else { "higher" };
            let text = format!(
                "direction `{stated}`: {better} is better of `{metric}` (leave the direction out: it is for metrics of your own)"
            );
            Err(Failure::new(exit::USAGE, text))
        }
        (_, Some(known)) => Ok(known.direction),
        (Some("maximize"), None) => Ok(Direction::Maximize),
        (Some(_), None) => Ok(Direction::Minimize),
        (None, None) => Err(Failure::new(exit::USAGE, unknown(metric, "add --direction minimize or maximize"))),
    }
}

/// The largest number of metrics that an error suggests.
const MOST_MEANT: usize = 5;

/// Returns the message for an unknown metric. `direction` tells how to state the better direction of a custom metric.
fn unknown(metric: &str, direction: &str) -> String {
    let meant = meant(metric).unwrap_or_else(|| "`ledger show` lists those of an attempt;".to_owned());
    format!("`{metric}` is not a known metric ({meant} for a custom metric {direction})")
}

/// Asks for the known metrics that were probably meant, if there are any.
pub(in crate::cli) fn meant(metric: &str) -> Option<String> {
    if let Some(meant) = nearest(metric, KNOWN_METRICS.iter().map(|known| known.name)) {
        return Some(format!("did you mean `{meant}`?"));
    }
    // `time` may stand for several metrics.
    let ends = format!("_{metric}");
    let mut several: Vec<&str> =
        KNOWN_METRICS.iter().map(|known| known.name).filter(|name| name.ends_with(&ends)).collect();
    several.sort_by_key(|name| !TIMES.contains(name));
    let several: Vec<String> = several.iter().take(MOST_MEANT).map(|name| format!("`{name}`")).collect();
    (!several.is_empty()).then(|| format!("did you mean one of {}?", several.join(", ")))
}

/// Parses a metric of an argument that takes several, `NAME` or `NAME:minimize`. Returns it with its better direction.
pub(in crate::cli) fn metric_of(text: &str, argument: &str) -> Result<(String, Direction), Failure> {
    let (metric, way) = match text.rsplit_once(':') {
        Some((metric, way @ ("minimize" | "maximize"))) => (metric, Some(way)),
        _ => (text, None),
    };
    let fault = |text: String| Failure::new(exit::USAGE, format!("{argument}: {text}"));
    if let Some((name, way)) = metric.rsplit_once(':').filter(|(name, _)| known_metric(name).is_some()) {
        return Err(fault(format!("`{way}` is no direction of `{name}` (write `{name}`)")));
    }
    if metric.is_empty() {
        return Err(fault("a metric's name is missing (write `NAME`, or `NAME:minimize`)".to_owned()));
    }
    let direction = match known_metric(metric) {
        // A known metric has its direction.
        Some(_) => direction_of(metric, way)?,
        None => direction_of(metric, way)
            .map_err(|_| fault(unknown(metric, &format!("write `{metric}:minimize` or `{metric}:maximize`"))))?,
    };
    Ok((metric.to_owned(), direction))
}

/// Like [`metric_of`]. The direction of a custom metric may come from the objective of the model's attempts.
pub(in crate::cli) fn metric_of_model(
    text: &str,
    argument: &str,
    model: &str,
    context: &Context,
) -> Result<(String, Direction), Failure> {
    metric_of(text, argument).or_else(|failure| {
        let (recorded, is_there) = context.store_as_it_is().read(|reader| {
            let is_there = reader.ranked_metrics()?.get(model).is_some_and(|metrics| metrics.contains(text));
            Ok((recorded_direction(reader, model, text)?, is_there))
        })?;
        let undirected = || {
            let told =
                format!("{argument}: `{text}` of `{model}` has no recorded direction (write `{text}:minimize` or `{text}:maximize`)");
            Failure::new(exit::USAGE, told)
        };
        let direction = direction_of(text, recorded.as_deref());
        Ok((text.to_owned(), direction.map_err(|_| if is_there { undirected() } else { failure })?))
    })
}

/// Returns the direction that most of the model's attempts with this objective record.
pub(in crate::cli) fn recorded_direction(
    reader: &Reader<'_>,
    model: &str,
    metric: &str,
) -> Result<Option<String>, StoreError> {
    stated(reader, model, OBJECTIVE[1], Some(metric))
}

/// Returns the objective of most of the model's attempts.
pub(in crate::cli) fn recorded_objective(reader: &Reader<'_>, model: &str) -> Result<Option<String>, StoreError> {
    stated(reader, model, OBJECTIVE[0], None)
}

/// Returns the metric for a query without one: the objective of most of the model's attempts, or else the first usual
/// metric that the model has.
///
/// # Errors
/// If there is none.
pub(in crate::cli) fn usual_metric(model: &str, context: &Context) -> Result<String, Failure> {
    let (stated, known) = context.store().read(|reader| {
        Ok((recorded_objective(reader, model)?, reader.ranked_metrics()?.remove(model).unwrap_or_default()))
    })?;
    if let Some(stated) = stated {
        return Ok(stated);
    }
    let usual = JUDGING_METRICS.into_iter().find(|name| known.contains(*name)).map(str::to_owned);
    if let Some(usual) = &usual {
        say(&format!(
            "note: no attempt of `{model}` states an objective, so `{usual}` is taken (--metric names another)"
        ));
    }
    usual.ok_or_else(|| {
        if known.is_empty() {
            return nothing(context, model, "metric", &BTreeMap::new());
        }
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        let text = format!("no attempt of `{model}` states an objective (--metric names one of {})", names.join(", "));
        Failure::new(exit::USAGE, text)
    })
}

/// The settings of the objective: its metric and direction.
pub(in crate::cli) const OBJECTIVE: [&str; 2] = ["objective.metric", "objective.direction"];

/// Returns the value of a setting that most attempts of a model have. With `objective`, only attempts with this objective count.
fn stated(
    reader: &Reader<'_>,
    model: &str,
    setting: &str,
    objective: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let count = |counts: &mut BTreeMap<String, usize>, value: Option<&Value>, metric: Option<&Value>| {
        let value = value.filter(|_| objective.is_none() || metric.and_then(Value::as_str) == objective);
        value.and_then(Value::as_str).into_iter().for_each(|text| *counts.entry(text.to_owned()).or_default() += 1);
    };
    match reader.briefs(model)? {
        Some(briefs) => {
            let columns = briefs.columns(&[setting.to_owned(), OBJECTIVE[0].to_owned()], &[]);
            let parts = briefs.each(|counts: &mut BTreeMap<String, usize>, row| {
                let mut values = Vec::new();
                row.read(&columns, &mut values)?;
                let known = |at: usize| if let Some(Known::Is(value)) = values.get(at) { Some(value) } else { None };
                count(counts, known(0), known(1));
                Ok(())
            })?;
            for (text, n) in parts.into_iter().flatten() {
                *counts.entry(text).or_default() += n;
            }
        }
        None => {
            for trial in trials_of(reader, Some(model))? {
                count(&mut counts, trial.field(setting).as_ref(), trial.field(OBJECTIVE[0]).as_ref());
            }
        }
    }
    Ok(counts.into_iter().max_by_key(|(_, n)| *n).map(|(text, _)| text))
}
