//! Conversion of the metrics of several attempts to common units.
//!
//! Knows what attempts state. Records are not changed, only the copies that are analysed.

use super::trials::Trial;
use crate::record::{Metric, known_metric};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The weight of a counted attempt, relative to one that is not counted: more than there are attempts.
const COUNTS: u64 = 1 << 32;

/// Converts each metric of the attempts of a model to one unit; see [`unify`].
pub fn unify_by_model<'a>(trials: impl IntoIterator<Item = &'a mut Trial>) {
    let mut models: BTreeMap<String, Vec<&mut Trial>> = BTreeMap::new();
    for trial in trials {
        models.entry(trial.run.model().to_owned()).or_default().push(trial);
    }
    models.into_values().for_each(unify);
}

/// Converts each metric of the attempts to one unit. A known metric has its own unit; any other has the unit that most
/// of the counted attempts state, the first of several. A value that cannot be converted is replaced by a reason.
pub fn unify<'a>(trials: impl IntoIterator<Item = &'a mut Trial>) {
    let mut trials: Vec<&mut Trial> = trials.into_iter().collect();
    let mut stated: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    let nothing = BTreeSet::new();
    for trial in &trials {
        // The units of attempts that are not counted, such as hidden or disturbed ones, matter only if no attempt is counted.
        let weight = if trial.counts(&nothing).is_ok() { COUNTS } else { 1 };
        for (name, unit) in trial.attempt.told_units() {
            let units = stated.entry(name).or_default();
            match units.iter_mut().find(|(known, _)| *known == unit) {
                Some((_, count)) => *count += weight,
                None => units.push((unit, weight)),
            }
        }
    }
    let target = |(name, units): (&str, Vec<(&str, u64)>)| {
        let unit = match known_metric(name) {
            Some(known) => known.unit,
            None if units.len() < 2 => return None,
            None => units.into_iter().min_by_key(|(_, count)| Reverse(*count))?.0,
        };
        Some((name.to_owned(), unit.to_owned()))
    };
    let targets: Vec<(String, String)> = stated.into_iter().filter_map(target).collect();
    for trial in &mut trials {
        for (name, unit) in &targets {
            if let Some(metric) = trial.attempt.metrics.get_mut(name) {
                *metric = brought(metric, name, unit);
            }
        }
    }
}

/// A metric in its comparable form: a known one in its own unit, if it can be converted.
pub fn standard(name: &str, metric: &Metric) -> Metric {
    known_metric(name).and_then(|known| known.standard(metric)).unwrap_or_else(|| metric.clone())
}

/// Converts a metric to a unit, or states the reason why that is impossible.
fn brought(metric: &Metric, name: &str, unit: &str) -> Metric {
    if metric.value.is_none() {
        return Metric { unit: unit.to_owned(), ..metric.clone() };
    }
    let converted = known_metric(name).map_or_else(|| metric.in_unit(unit), |known| known.standard(metric));
    converted.unwrap_or_else(|| {
        let named = |unit: &str| if unit.is_empty() { "without a unit".to_owned() } else { format!("in `{unit}`") };
        Metric::missing(
            unit,
            format!("it is {}, which is not comparable to what is {}", named(&metric.unit), named(unit)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::trials::tests::trial;
    use super::*;

    fn stated(name: &str, metric: Metric) -> Trial {
        let mut one = trial(&[("model.name", "m".into())], 1, &[]);
        one.attempt.metrics.insert(name.to_owned(), metric);
        one
    }

    fn of(trials: &[Trial], name: &str) -> Vec<(Option<f64>, String)> {
        let metric = |trial: &Trial| (trial.attempt.metrics[name].value, trial.attempt.metrics[name].unit.clone());
        trials.iter().map(metric).collect()
    }

    #[test]
    fn a_known_metric_is_in_its_own_unit() {
        let mut trials = [
            stated("energy", Metric::within(5.0, 0.5, "kJ")),
            stated("energy", Metric::new(5.0, "J")),
            stated("energy", Metric::new(5.0, "")),
            stated("energy", Metric::new(5.0, "furlong")),
        ];
        unify_by_model(&mut trials);
        let joules = |value| (value, "J".to_owned());
        assert_eq!(of(&trials, "energy"), [Some(5000.0), Some(5.0), Some(5.0), None].map(joules));
        assert_eq!(trials[0].attempt.metrics["energy"].uncertainty, Some(500.0));
        let reason = trials[3].attempt.metrics["energy"].reason.clone().unwrap();
        assert_eq!(reason, "it is in `furlong`, which is not comparable to what is in `J`");
    }

    #[test]
    fn others_are_in_the_unit_that_most_state() {
        let all = [(5.5, "ms"), (0.15, "s"), (6.0, "ms"), (7.0, "J"), (8.0, "")];
        let mut trials = all.map(|(value, unit)| stated("lat", Metric::new(value, unit)));
        unify_by_model(&mut trials);
        let ms = |value| (value, "ms".to_owned());
        assert_eq!(of(&trials, "lat"), [Some(5.5), Some(150.0), Some(6.0), None, None].map(ms));
        // Hidden attempts do not matter while others are counted.
        let mut corrected = [(7.0, "tokens"), (8.0, "tokens"), (9.0, "ms")]
            .map(|(value, unit)| stated("lat", Metric::new(value, unit)));
        corrected[..2].iter_mut().for_each(|one| one.is_hidden = true);
        unify_by_model(&mut corrected);
        assert_eq!(of(&corrected, "lat")[2], ms(Some(9.0)));
        // A single unit, known or not, is kept, and so is the unit of another model.
        let mut alone = [stated("lat", Metric::new(1.0, "furlong")), stated("lat", Metric::new(2.0, "s"))];
        alone[1].run = trial(&[("model.name", "other".into())], 1, &[]).run;
        let before = alone.clone();
        unify_by_model(&mut alone);
        assert_eq!(alone, before);
    }
}
