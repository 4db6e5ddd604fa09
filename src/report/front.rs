//! The output of `pareto`: the Pareto-optimal configurations, as text, as a document and as points of a plot.

use super::document::table_of;
use super::fields::{field_of, field_text, short_names, version_field};
use super::left_out::{left_out_lines, left_out_value};
use super::number::count;
use super::ranking::{group_value, head_of, unequal_text};
use super::sample::{estimate_text, sample_text, sample_value};
use super::table::{axis_heads, columns};
use crate::analysis::{Place, unequal_samples};
use crate::record::{Direction, LeftOut, Run, Table, Value};
use std::collections::BTreeMap;

/// One of the compared metrics.
#[derive(Clone, Debug)]
pub struct Coordinate {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Direction of improvement.
    pub direction: Direction,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct FrontPoint {
    /// The short id of one of its runs.
    pub id: String,
    /// Rank among all configurations by the first metric, from 1.
    pub number: usize,
    /// That run.
    pub run: Run,
    /// Values of the fields that distinguish configurations.
    pub fields: Vec<Option<Value>>,
    /// For each metric: mean, half-width of its 95% interval if known, and number of attempts.
    pub means: Vec<(f64, Option<f64>, usize)>,
    /// The full estimates, one for each metric.
    pub places: Vec<Place>,
    /// Probability of being on the front in a repeated measurement; `None` if it cannot be estimated.
    pub probability: Option<f64>,
    /// Index of a point on the front that dominates it; `None` on the front.
    pub dominated_by: Option<usize>,
}

/// Configurations that are left out because they lack a metric.
#[derive(Clone, Debug, Default)]
pub struct Incomplete {
    /// Number of configurations.
    pub configurations: usize,
    /// For each metric, how many of them have no valid value.
    pub lacking: BTreeMap<String, usize>,
}

/// Configurations compared in several metrics, in the order of the first one.
#[derive(Clone, Debug)]
pub struct Front {
    /// The model.
    pub model: String,
    /// The metrics.
    pub coordinates: Vec<Coordinate>,
    /// Names of the fields that distinguish configurations.
    pub fields: Vec<String>,
    /// Listed configurations: all on the front, and as many dominated ones as fit.
    pub points: Vec<FrontPoint>,
    /// Number of configurations on the front.
    pub on_front: usize,
    /// Number of configurations with all metrics.
    pub all: usize,
    /// Configurations that lack a metric.
    pub incomplete: Incomplete,
    /// Number of attempts that do not count in all metrics, by reason.
    pub left_out: BTreeMap<LeftOut, u64>,
}

/// Names the dominated configuration with the highest P(FRONT), if that is above that of the configuration by which it is
/// dominated.
fn preferred_text(front: &Front, with_dominated: bool) -> String {
    let probability = |point: &FrontPoint| point.probability.unwrap_or(0.0);
    let pairs = front.points.iter().filter_map(|point| Some((point, front.points.get(point.dominated_by?)?)));
    let preferred = pairs.filter(|(point, by)| probability(point) > probability(by));
    match preferred.max_by(|(a, _), (b, _)| probability(a).total_cmp(&probability(b))) {
        None => String::new(),
        Some((point, by)) => format!(
            "#{} has a higher P(FRONT) than #{}, which beats it by the means: P(FRONT) is drawn from the units that both have{}\n",
            point.number,
            by.number,
            if with_dominated { "" } else { " (--dominated shows both)" }
        ),
    }
}

/// Returns the front as a table, with dominated configurations if requested. The numbers match those in the plot.
pub fn pareto_text(front: &Front, with_dominated: bool) -> String {
    let metric_heads: Vec<String> =
        front.coordinates.iter().map(|one| format!(">{}", head_of(&one.metric, &one.unit))).collect();
    let listed: Vec<&FrontPoint> =
        front.points.iter().filter(|point| with_dominated || point.dominated_by.is_none()).collect();
    let of_first: Vec<Place> = listed.iter().filter_map(|point| point.places.first().cloned()).collect();
    let version = version_field(&of_first).filter(|field| !front.fields.contains(field));
    let fields: Vec<String> = front.fields.iter().cloned().chain(version.clone()).collect();
    let names = axis_heads(&short_names(&fields));
    let samples: Vec<String> = listed.iter().map(|point| samples_text(point)).collect();
    let is_one_sample = samples.iter().all(|sample| *sample == samples[0]);
    let mut heads = vec![">#", "RUN"];
    heads.extend(metric_heads.iter().map(String::as_str));
    heads.extend((!is_one_sample).then_some("~~SAMPLE"));
    let is_sure = front.points.iter().any(|point| point.probability.is_some());
    heads.extend(is_sure.then_some(">P(FRONT)"));
    heads.extend(with_dominated.then_some("BEATEN BY"));
    heads.extend(names.iter().map(String::as_str));
    let number = |at: usize| front.points.get(at).map_or(0, |point| point.number);
    let rows = listed.iter().zip(&samples).map(|(point, sample)| {
        let mut row = vec![point.number.to_string(), point.id.clone()];
        let coordinates = point.places.iter().zip(&front.coordinates);
        row.extend(coordinates.map(|(place, coordinate)| estimate_text(place, &coordinate.unit)));
        row.extend((!is_one_sample).then(|| sample.clone()));
        row.extend(is_sure.then(|| point.probability.map_or_else(|| "-".to_owned(), |p| format!("{:.0}%", 100.0 * p))));
        row.extend(
            with_dominated.then(|| point.dominated_by.map_or_else(|| "-".to_owned(), |by| format!("#{}", number(by)))),
        );
        row.extend(front.fields.iter().zip(&point.fields).map(|(name, value)| field_text(name, value.as_ref())));
        let version = version.as_ref().zip(point.places.first());
        row.extend(version.map(|(name, place)| field_text(name, field_of(place, name).as_ref())));
        row
    });
    let mut text = columns(&heads, rows);
    let dominated = front.all - front.on_front;
    let ways: Vec<String> =
        front.coordinates.iter().map(|one| format!("{} {}", one.direction.name(), one.metric)).collect();
    text.push_str(&format!(
        "Pareto front: {} of {} ({}; by the means){}\n",
        front.on_front,
        count(front.all, "configuration"),
        ways.join(", "),
        if dominated > 0 && !with_dominated { "; --dominated shows the others" } else { "" },
    ));
    if front.incomplete.configurations > 0 {
        let Incomplete { configurations, lacking } = &front.incomplete;
        let lacks = |(metric, n): (&String, &usize)| format!("{n} without a value of {metric} that counts");
        let why = match lacking.values().all(|n| n == configurations) {
            // All of them lack all of these metrics.
            true => {
                let metrics: Vec<&str> = lacking.keys().map(String::as_str).collect();
                format!("without values of {} that count", metrics.join(" and "))
            }
            false => lacking.iter().map(lacks).collect::<Vec<_>>().join(", "),
        };
        text.push_str(&format!("not compared: {} ({why})\n", count(*configurations, "configuration")));
    }
    let is_single = |point: &FrontPoint| point.places.iter().any(|place| place.estimate.standard_error.is_none());
    let single: Vec<&FrontPoint> = front.points.iter().filter(|point| is_single(point)).collect();
    if let Some(first) = single.first().filter(|_| !is_sure && single.len() < front.points.len()) {
        let more = match single.len() - 1 {
            0 => " lacks them".to_owned(),
            more => format!(" and {more} more lack them"),
        };
        text.push_str(&format!(
            "no P(FRONT): each row needs two or more independent values, dominated ones too; #{}{more}\n",
            first.number
        ));
    }
    text.push_str(&preferred_text(front, with_dominated));
    let unlisted = front.all - front.points.len();
    if with_dominated && unlisted > 0 {
        text.push_str(&format!("{} more are dominated and not listed (`ledger export --to csv` has all)\n", unlisted));
    }
    if let Some(sample) = samples.first().filter(|_| is_one_sample) {
        text.push_str(&format!("means of {sample} each\n"));
    }
    for (at, one) in front.coordinates.iter().enumerate() {
        if let Some((least, most)) = unequal(front, at) {
            text.push_str(&unequal_text(&one.metric, (least, most), true));
        }
    }
    text.push_str(&left_out_lines(&front.left_out, "one of the metrics", &front.model));
    text
}

/// Describes the samples of a point's means: `3 attempts on 1 GPU`; different ones are joined by `; `.
fn samples_text(point: &FrontPoint) -> String {
    let mut samples: Vec<String> = Vec::new();
    for sample in point.places.iter().map(sample_text) {
        if !samples.contains(&sample) {
            samples.push(sample);
        }
    }
    samples.join("; ")
}

/// Returns the least and the most training samples behind metric `at` over all listed configurations, if unequal.
fn unequal(front: &Front, at: usize) -> Option<(i64, i64)> {
    let places = front.points.iter().filter_map(|point| point.places.get(at));
    unequal_samples(&front.coordinates[at].metric, places.map(|place| &place.contender.run))
}

/// Returns the front as a document's members.
pub fn pareto_value(front: &Front, with_dominated: bool) -> Table {
    let coordinate = |one: &Coordinate| {
        Value::Table(table_of([
            ("metric", one.metric.as_str().into()),
            ("unit", one.unit.as_str().into()),
            ("direction", one.direction.name().into()),
        ]))
    };
    let numbered = front.points.iter().filter(|point| with_dominated || point.dominated_by.is_none());
    let points = numbered.map(|point| {
        let means = point.means.iter().zip(&front.coordinates).map(|((mean, half_width, n), coordinate)| {
            let mut table = table_of([("mean", (*mean).into()), ("n", (*n).into())]);
            table.extend(half_width.map(|half_width| ("half_width".to_owned(), half_width.into())));
            (coordinate.metric.clone(), Value::Table(table))
        });
        let mut table = table_of([
            ("run", point.run.id.to_string().into()),
            ("metrics", Value::Table(means.collect())),
            ("on_front", point.dominated_by.is_none().into()),
            ("config", point.run.parts.config.clone()),
        ]);
        table.extend(point.probability.map(|p| ("p_front".to_owned(), p.into())));
        let samples = point.places.iter().zip(&front.coordinates);
        let samples = samples.map(|(place, one)| (one.metric.clone(), sample_value(place)));
        table.insert("samples".to_owned(), Value::Table(samples.collect()));
        table.extend(point.places.first().and_then(group_value));
        let by = point.dominated_by.and_then(|by| front.points.get(by));
        table.extend(by.map(|by| ("dominated_by".to_owned(), by.run.id.to_string().into())));
        Value::Table(table)
    });
    let unequal = front.coordinates.iter().enumerate().filter_map(|(at, one)| {
        let (least, most) = unequal(front, at)?;
        let work = table_of([("metric", one.metric.as_str().into()), ("least", least.into()), ("most", most.into())]);
        Some(Value::Table(work))
    });
    table_of([
        ("model", front.model.as_str().into()),
        ("unequal_samples", Value::List(unequal.collect())),
        ("metrics", Value::List(front.coordinates.iter().map(coordinate).collect())),
        ("configurations", front.all.into()),
        ("incomplete_configurations", front.incomplete.configurations.into()),
        (
            "incomplete_lacking",
            front.incomplete.lacking.iter().map(|(name, n)| (name.clone(), (*n).into())).collect::<Table>().into(),
        ),
        ("points", Value::List(points.collect())),
        ("left_out", left_out_value(&front.left_out)),
    ])
}
