//! Which configuration is best, by how much, and how sure that is.
//!
//! Knows groups of repetitions of one metric. Must not know how they were chosen, nor what a metric is called.

use super::comparison::{SIGNIFICANCE, Summary, Test, holm, olympic_mean, together, welch};
use crate::record::{AttemptId, Direction, Run, RunId, Value};
use std::collections::BTreeSet;

/// One attempt's value of the metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run.
    pub run: RunId,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The value.
    pub value: f64,
    /// Half the width of its own 95% interval, in its unit; none where that was not estimated.
    pub half_width: Option<f64>,
    /// The sensors that it comes from.
    pub sensors: BTreeSet<String>,
}

/// The repetitions of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Of its runs that of the attempt which [`newest_run`] names.
    pub run: Run,
    /// What its attempts agree on, where they were put together by fields.
    pub agreed: Vec<(String, Option<Value>)>,
    /// Its attempts that count, at least one.
    pub measured: Vec<Measured>,
}

/// The run of the attempt that began last: by it a configuration is named, wherever the attempts come from.
pub fn newest_run(measured: &[Measured]) -> Option<RunId> {
    measured.iter().max_by_key(|one| (one.started_unix_ms, one.attempt)).map(|one| one.run)
}

impl Contender {
    /// The values, in the order of the attempts.
    pub fn values(&self) -> Vec<f64> {
        self.measured.iter().map(|measured| measured.value).collect()
    }

    /// How far the mean may be off by what repeating does not average out: the largest uncertainty of an attempt as a share of its
    /// value, of the mean. A sensor that is off is off in every repetition, so that a mean is no surer than they are.
    fn sensor_half_width(&self, mean: f64) -> Option<f64> {
        let share = |measured: &Measured| Some(measured.half_width? / measured.value.abs());
        let largest = self.measured.iter().filter_map(share).filter(|share| share.is_finite()).reduce(f64::max)?;
        Some(largest * mean.abs())
    }

    /// The sensors that made all of its values, if they are the same ones each time.
    fn sensors(&self) -> Option<&BTreeSet<String>> {
        let (first, others) = self.measured.split_first()?;
        let same = !first.sensors.is_empty() && others.iter().all(|other| other.sensors == first.sensors);
        same.then_some(&first.sensors)
    }
}

/// Whether a configuration differs from the first one in more than chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Likeness {
    /// It does.
    Differs(Test),
    /// Chance alone may have made the difference.
    Alike(Test),
    /// Nothing is known of its scatter, or of the first one's: there is one attempt.
    Untested,
    /// Neither scatters, though there are several attempts of each, so that chance cannot be judged.
    Still,
}

/// A configuration beside the first one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Against {
    /// Its mean less the first one's, as a share of that; none where that is zero.
    pub relative: Option<f64>,
    /// Whether that is more than chance.
    pub likeness: Likeness,
    /// The test's probability, corrected for the number of configurations that were tested.
    pub corrected: Option<f64>,
    /// Whether it lies within the difference that was asked to be of no account.
    pub is_within: bool,
}

/// A configuration's place.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Whose.
    pub contender: Contender,
    /// Number, mean and variance of the values.
    pub summary: Summary,
    /// Half the width of the mean's 95% interval, scatter and sensors together; none where neither is known.
    pub half_width: Option<f64>,
    /// The sensors' part of it.
    pub sensor_half_width: Option<f64>,
    /// The mean without the smallest and the largest value; none of fewer than three.
    pub olympic_mean: Option<f64>,
    /// How it stands to the first one; none for the first one itself.
    pub against: Option<Against>,
}

/// Orders configurations by their means, best first, keeps at most `limit`, and tests each against the first. Equal ones stand by their groups; those that are of
/// several stay in the order in which they come.
///
/// `tolerance` is the difference that is of no account, as a share of the first one's mean.
pub fn place(contenders: Vec<Contender>, direction: Direction, limit: usize, tolerance: Option<f64>) -> Vec<Place> {
    let mut places: Vec<Place> = contenders.into_iter().filter_map(alone).collect();
    places.sort_by(|a, b| {
        let order = a.summary.mean.total_cmp(&b.summary.mean);
        let order = if direction == Direction::Maximize { order.reverse() } else { order };
        let group = |place: &Place| place.contender.agreed.is_empty().then(|| place.contender.run.parts.group_id());
        order.then_with(|| group(a).cmp(&group(b)))
    });
    places.truncate(limit);
    let Some((first, others)) = places.split_first_mut() else { return places };
    let tests: Vec<Option<Test>> = others.iter().map(|other| test(first, other)).collect();
    let probabilities: Vec<f64> = tests.iter().flatten().map(|test| test.p).collect();
    let mut corrected = holm(&probabilities).into_iter();
    for (other, test) in others.iter_mut().zip(tests) {
        let corrected = test.and_then(|_| corrected.next());
        let likeness = match (test, corrected) {
            (Some(test), Some(p)) if p < SIGNIFICANCE => Likeness::Differs(test),
            (Some(test), _) => Likeness::Alike(test),
            (None, _) if first.summary.n > 1 && other.summary.n > 1 => Likeness::Still,
            (None, _) => Likeness::Untested,
        };
        let difference = other.summary.mean - first.summary.mean;
        let relative = (first.summary.mean != 0.0).then(|| difference / first.summary.mean.abs());
        let is_within = tolerance.is_some_and(|most| difference.abs() <= most * first.summary.mean.abs());
        other.against = Some(Against { relative, likeness, corrected, is_within });
    }
    places
}

fn alone(contender: Contender) -> Option<Place> {
    let values = contender.values();
    let summary = Summary::of(&values)?;
    let sensor_half_width = contender.sensor_half_width(summary.mean);
    Some(Place {
        half_width: together(summary.half_width(), sensor_half_width),
        sensor_half_width,
        olympic_mean: olympic_mean(&values),
        against: None,
        summary,
        contender,
    })
}

/// Tests the means of two configurations as [`place`] does, and says how many attempts each is over. None where either has fewer than two, or one
/// that is not finite; no test where neither scatters.
pub(super) fn test_of(first: &Contender, other: &Contender) -> Option<((usize, usize), Option<Test>)> {
    if first.measured.len().min(other.measured.len()) < 2 {
        return None;
    }
    if first.measured.iter().chain(&other.measured).any(|one| !one.value.is_finite()) {
        return None;
    }
    let (first, other) = (alone(first.clone())?, alone(other.clone())?);
    Some(((first.summary.n, other.summary.n), test(&first, &other)))
}

/// What the same sensors are off by, they are off by on both sides, and it cancels; other sensors may be off to other sides.
fn test(first: &Place, other: &Place) -> Option<Test> {
    let same = first.contender.sensors().is_some_and(|sensors| Some(sensors) == other.contender.sensors());
    let off = |place: &Place| if same { 0.0 } else { place.sensor_half_width.unwrap_or(0.0) };
    welch(&first.summary, &other.summary, (off(first), off(other)))
}

/// What the first configuration costs beside another: the metric and the time, each as a share of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saving {
    /// The metric's difference.
    pub metric: f64,
    /// The time's difference; none where either has no time.
    pub time: Option<f64>,
}

/// Compares two means of a metric, and two of time, with the baseline's second. None where the baseline is zero.
pub fn saving(metric: (f64, f64), time: Option<(f64, f64)>) -> Option<Saving> {
    let share = |(own, baseline): (f64, f64)| (baseline != 0.0).then(|| (own - baseline) / baseline.abs());
    Some(Saving { metric: share(metric)?, time: time.and_then(share) })
}

#[cfg(test)]
mod tests {
    use super::super::statistic::number;
    use super::*;
    use crate::record::{Digest, Parts};
    use proptest::prelude::*;

    fn contender(x: i64, values: &[f64], share: Option<f64>, sensor: &str) -> Contender {
        let run = Run::new(Parts {
            config: Value::Table([("params.x".to_owned(), Value::Int(x))].into()),
            program: "p".into(),
            container: "host".into(),
            cuda: "none".into(),
            driver: "none".into(),
            device: "cpu".into(),
            seed: 1,
        });
        let id = run.id;
        let measured = |value: &f64| Measured {
            attempt: AttemptId(Digest([0; 32])),
            run: id,
            started_unix_ms: 0,
            value: *value,
            half_width: share.map(|share| share * value.abs()),
            sensors: [sensor.to_owned()].into(),
        };
        Contender { run, agreed: Vec::new(), measured: values.iter().map(measured).collect() }
    }

    fn x(place: &Place) -> i64 {
        place.contender.run.config()["params.x"].as_int().unwrap()
    }

    #[test]
    fn equal_means_of_several_groups_stay_in_the_order_in_which_they_come_however_many_are_kept() {
        let agreed = |x: i64| vec![("params.y".to_owned(), Some(Value::Int(x)))];
        let all: Vec<Contender> =
            (1..=8).map(|x| Contender { agreed: agreed(x), ..contender(x, &[1.0], None, "s") }).collect();
        for limit in [3, 8] {
            let places = place(all.clone(), Direction::Maximize, limit, None);
            assert!(places.iter().map(x).eq((1..=8).take(limit)));
        }
    }

    #[test]
    fn places_are_ordered_tested_and_corrected_together() {
        // SciPy 1.17.1, scipy.stats.ttest_ind(a, other, equal_var=False).pvalue: b 0.0325276968503995, c 0.584113305918301;
        // statsmodels 0.15.0, multipletests of both, method="holm": 0.065055393700799, 0.584113305918301.
        let a = contender(1, &[12.1, 12.9, 11.4, 12.6, 12.2], None, "s");
        let b = contender(2, &[13.4, 14.1, 13.0], None, "s");
        let c = contender(3, &[12.3, 12.5], None, "s");
        let single = contender(4, &[15.0], None, "s");
        let places = place(vec![single, b.clone(), c, a.clone()], Direction::Minimize, 9, Some(0.02));
        assert_eq!(places.iter().map(x).collect::<Vec<_>>(), [1, 3, 2, 4]);
        let against = |place: usize| places[place].against.unwrap();
        assert!(matches!(against(2).likeness, Likeness::Alike(test) if (test.p - 0.0325276968503995).abs() < 1e-9));
        assert!((against(2).corrected.unwrap() - 0.065055393700799).abs() < 1e-9);
        assert!((against(1).corrected.unwrap() - 0.584113305918301).abs() < 1e-9);
        assert_eq!((against(3).likeness, against(3).corrected), (Likeness::Untested, None));
        assert_eq!([1, 2, 3].map(|at| against(at).is_within), [true, false, false]);
        assert_eq!((places[0].against, places[0].olympic_mean), (None, Some((12.1 + 12.2 + 12.6) / 3.0)));
        // One question alone needs no correction.
        let two = place(vec![a, b], Direction::Minimize, 9, None);
        assert!(matches!(two[1].against.unwrap().likeness, Likeness::Differs(_)));
    }

    #[test]
    fn other_sensors_may_be_off_to_another_side_and_the_same_ones_may_not() {
        let first = contender(1, &[100.0, 100.2, 99.8], Some(0.05), "gpu a");
        let same = contender(2, &[103.0, 103.2, 102.8], Some(0.05), "gpu a");
        let other = contender(3, &[103.0, 103.2, 102.8], Some(0.05), "gpu b");
        let places = place(vec![first, same, other], Direction::Minimize, 9, None);
        let likeness = |wanted: i64| places.iter().find(|place| x(place) == wanted).unwrap().against.unwrap().likeness;
        assert!(matches!(likeness(2), Likeness::Differs(_)));
        assert!(matches!(likeness(3), Likeness::Alike(_)));
        // 5% of 100, and what three repetitions scatter by: t(0.975, 2) * 0.2 / sqrt(3) = 0.4968275; in quadrature 5.0246235.
        let half_width = places[0].half_width.unwrap();
        assert!((half_width - (25.0f64 + 0.496_827_5f64.powi(2)).sqrt()).abs() < 1e-6, "{half_width}");
        assert!((places[0].sensor_half_width.unwrap() - 5.0).abs() < 1e-2);
        // Runs that repeat themselves well: what the sensors may be off by has 16 million degrees of freedom beside their scatter.
        let steady = contender(4, &[100.0, 100.1, 99.9], Some(0.05), "gpu a");
        let apart = contender(5, &[103.0, 103.1, 102.9], Some(0.05), "gpu b");
        let places = place(vec![steady, apart], Direction::Minimize, 9, None);
        let Likeness::Alike(test) = places[1].against.unwrap().likeness else { panic!("{places:?}") };
        // s = (5^2 / 1.96^2 + 5.15^2 / 1.96^2 + 2 * 0.1^2 / 3) ** 0.5; scipy.stats.norm.ppf(0.975) * s and 2 * scipy.stats.norm.sf(3 / s).
        assert!(test.degrees > 1.5e7 && (test.half_width - 7.17957).abs() < 1e-4, "{test:?}");
        assert!((test.p - 0.41280).abs() < 1e-4, "{test:?}");
    }

    #[test]
    fn what_does_not_scatter_is_not_tested_and_takes_no_part_in_the_correction() {
        // `energy_to_target` where all seeds took the same number of epochs, beside one that scatters.
        let first = contender(1, &[100.0, 100.0, 100.0], None, "s");
        let still = contender(2, &[103.7, 103.7], None, "s");
        let scatters = contender(3, &[104.0, 106.0], None, "s");
        let ties = contender(4, &[100.0, 100.0], None, "s");
        let places = place(vec![first, still, scatters, ties], Direction::Minimize, 9, None);
        let against = |wanted: i64| places.iter().find(|place| x(place) == wanted).unwrap().against;
        assert_eq!(against(2).map(|still| (still.likeness, still.corrected)), Some((Likeness::Still, None)));
        // Either of the two may stand first.
        let tie = against(1).or(against(4)).unwrap();
        assert_eq!((tie.likeness, tie.corrected), (Likeness::Still, None));
        // SciPy 1.17.1, ttest_ind([104, 106], [100, 100, 100], equal_var=False).pvalue is 0.1256659163780024; it alone was tested.
        assert!((against(3).unwrap().corrected.unwrap() - 0.1256659163780024).abs() < 1e-9, "{:?}", against(3));
    }

    #[test]
    fn a_saving_is_a_share_of_the_baseline() {
        let found = saving((69.0, 100.0), Some((10.4, 10.0))).unwrap();
        assert!((found.metric + 0.31).abs() < 1e-12 && (found.time.unwrap() - 0.04).abs() < 1e-12);
        assert_eq!(saving((1.0, 0.0), None), None);
        assert_eq!(saving((1.0, -2.0), None).unwrap().metric, 1.5);
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_the_means(
            groups in prop::collection::vec(prop::collection::vec(-9i8..9, 1..5), 0..8),
            limit in 1..9usize,
        ) {
            let all: Vec<Contender> = (0..).zip(&groups).map(|(x, values)| {
                contender(x, &values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>(), None, "")
            }).collect();
            let mean = |values: &[i8]| values.iter().map(|value| f64::from(*value)).sum::<f64>() / number(values.len());
            let mut means: Vec<f64> = groups.iter().map(|values| mean(values)).collect();
            means.sort_by(|a, b| b.total_cmp(a));
            means.truncate(limit);
            let places = place(all, Direction::Maximize, limit, None);
            prop_assert_eq!(places.iter().map(|place| place.summary.mean).collect::<Vec<_>>(), means);
        }
    }
}
