//! The answer to `correlate`, as text and as a document.

use super::document::table_of;
use super::number::{count, significant};
use super::ranking::probability;
use super::table::columns;
use crate::analysis::{Correlation, Split};
use crate::record::{Table, Value};

/// Two clusters are told of where they describe the points better than one by more than this.
const STRONG: f64 = 10.0;

/// A point and what it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledPoint {
    /// The run, the GPU, or the attempt and its phase.
    pub label: String,
    /// The first quantity.
    pub x: f64,
    /// The second quantity.
    pub y: f64,
}

/// The points of either cluster.
type Clusters = [Vec<(f64, f64)>; 2];

/// Two quantities over several points.
#[derive(Clone, Debug)]
pub struct Correlated {
    /// The name and the unit of the first quantity.
    pub x: (String, String),
    /// The name and the unit of the second quantity.
    pub y: (String, String),
    /// What a point is: `run`, `gpu` or `phase`.
    pub by: String,
    /// The points.
    pub points: Vec<LabelledPoint>,
    /// How many had only one of the quantities, or none.
    pub incomplete: usize,
    /// How they go together.
    pub correlation: Correlation,
    /// Two clusters, if they were asked for; none inside where the points are too few.
    pub split: Option<Option<Split>>,
}

impl Correlated {
    /// The two clusters, where there is strong reason for them.
    fn clusters(&self) -> Option<(&Split, Clusters)> {
        let split = self.split.as_ref()?.as_ref().filter(|split| split.gain > STRONG)?;
        let of = |second: bool| {
            let chosen = self.points.iter().zip(&split.is_second).filter(|(_, is)| **is == second);
            chosen.map(|(point, _)| (point.x, point.y)).collect()
        };
        Some((split, [of(false), of(true)]))
    }

    fn split_text(&self) -> String {
        let (x, y) = (&self.x.0, &self.y.0);
        let Some(split) = &self.split else { return String::new() };
        let Some((split, clusters)) = self.clusters() else {
            return match split {
                None => "the points are too few to be parted into clusters\n".to_owned(),
                Some(split) => format!(
                    "no reason to part the points: two clusters describe them {} than one by {} (BIC; strong beyond {STRONG})\n",
                    if split.gain > 0.0 { "better" } else { "worse" },
                    significant(split.gain.abs())
                ),
            };
        };
        let mut text = format!(
            "two clusters describe the points better than one by {} (BIC; strong beyond {STRONG})\n",
            significant(split.gain)
        );
        let within = clusters.map(|points| Correlation::of(&points).map(|found| found.pearson));
        let turns = within.iter().all(|r| r.is_some_and(|r| r * self.correlation.pearson < 0.0));
        if turns {
            let (inside, over_all) =
                if self.correlation.pearson > 0.0 { ("falls", "rises") } else { ("rises", "falls") };
            text.push_str(&format!(
                "within both clusters {y} {inside} with {x}, though it {over_all} over all points: the difference between the clusters makes the whole correlation (Simpson's paradox)\n"
            ));
        }
        text
    }
}

fn row(name: &str, found: &Correlation) -> Vec<String> {
    let number = |r: f64| format!("{r:+.3}");
    let p = |p: Option<f64>| p.map_or_else(|| "-".to_owned(), probability);
    let interval = found.interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:+.3} to {high:+.3}"));
    let slope = found.slope_half_width.map_or_else(
        || significant(found.slope),
        |half| format!("{} ± {}", significant(found.slope), significant(half)),
    );
    vec![
        name.to_owned(),
        found.n.to_string(),
        number(found.pearson),
        interval,
        p(found.pearson_p),
        number(found.spearman),
        p(found.spearman_p),
        slope,
        significant(found.intercept),
    ]
}

/// The correlation in a table and a sentence.
pub fn correlate_text(found: &Correlated) -> String {
    let mut rows = vec![row("all", &found.correlation)];
    if let Some((_, clusters)) = found.clusters() {
        for (name, points) in ["cluster 1", "cluster 2"].into_iter().zip(clusters) {
            rows.extend(Correlation::of(&points).map(|found| row(name, &found)));
        }
    }
    let heads = ["POINTS", ">N", ">PEARSON", ">95%", ">P", ">SPEARMAN", ">P", ">SLOPE", ">AT ZERO"];
    let mut text = columns(&heads, rows);
    let (x, y) = (&found.x.0, &found.y.0);
    let unit = |unit: &str| if unit.is_empty() { "1".to_owned() } else { unit.to_owned() };
    let correlation = &found.correlation;
    text.push_str(&match correlation.pearson_p {
        Some(p) if p < 0.05 => format!(
            "{y} {} with {x}: a line explains {:.0}% of its variance over {}; the slope is in {} for each {}\n",
            if correlation.pearson > 0.0 { "rises" } else { "falls" },
            100.0 * correlation.pearson.powi(2),
            count(correlation.n, &found.by),
            unit(&found.y.1),
            unit(&found.x.1),
        ),
        Some(_) => format!(
            "that {y} goes with {x} in a line cannot be told from chance over {}\n",
            count(correlation.n, &found.by)
        ),
        None => "two points always lie on a line\n".to_owned(),
    });
    text.push_str(&found.split_text());
    if found.incomplete > 0 {
        text.push_str(&format!("left out: {} without a finite {x} or {y}\n", count(found.incomplete, &found.by)));
    }
    text
}

fn correlation_value(found: &Correlation) -> Value {
    let mut table = table_of([
        ("n", found.n.into()),
        ("pearson", found.pearson.into()),
        ("spearman", found.spearman.into()),
        ("slope", found.slope.into()),
        ("intercept", found.intercept.into()),
    ]);
    let pairs = [
        ("pearson_low", found.interval.map(|interval| interval.0)),
        ("pearson_high", found.interval.map(|interval| interval.1)),
        ("pearson_p", found.pearson_p),
        ("spearman_p", found.spearman_p),
        ("slope_half_width", found.slope_half_width),
    ];
    table.extend(pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    Value::Table(table)
}

/// The correlation as a document's members, every point among them.
pub fn correlate_value(found: &Correlated) -> Table {
    let quantity = |(name, unit): &(String, String)| {
        Value::Table(table_of([("name", name.as_str().into()), ("unit", unit.as_str().into())]))
    };
    let clusters = found.clusters();
    let points = found.points.iter().enumerate().map(|(at, point)| {
        let mut table =
            table_of([("label", point.label.as_str().into()), ("x", point.x.into()), ("y", point.y.into())]);
        let cluster = clusters.as_ref().and_then(|(split, _)| split.is_second.get(at));
        table.extend(cluster.map(|is_second| ("cluster".to_owned(), Value::Int(if *is_second { 2 } else { 1 }))));
        Value::Table(table)
    });
    let mut members = table_of([
        ("x", quantity(&found.x)),
        ("y", quantity(&found.y)),
        ("by", found.by.as_str().into()),
        ("all", correlation_value(&found.correlation)),
        ("points", Value::List(points.collect())),
        ("incomplete", found.incomplete.into()),
    ]);
    if let Some(Some(split)) = &found.split {
        members.insert("split_gain".to_owned(), split.gain.into());
    }
    if let Some((_, within)) = &clusters {
        let within = within.iter().map(|points| {
            Correlation::of(points).map_or_else(|| Value::Table(Table::new()), |found| correlation_value(&found))
        });
        members.insert("clusters".to_owned(), Value::List(within.collect()));
    }
    members
}
