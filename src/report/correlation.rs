//! The output of `correlate`, as text and as a document.

use super::contrast::p_value;
use super::document::table_of;
use super::number::{count, significant};
use super::ranking::probability;
use super::table::columns;
use crate::analysis::{Correlation, SIGNIFICANCE, Split};
use crate::record::{Table, Value};

/// One point of a correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledPoint {
    /// The run, the GPU, or the attempt and its phase.
    pub label: String,
    /// The first quantity.
    pub x: f64,
    /// The second quantity.
    pub y: f64,
    /// Index of its independent unit; points with the same index depend on each other.
    pub unit: usize,
}

/// The indices of the points in each of the two clusters.
type Clusters = [Vec<usize>; 2];

/// Two quantities over several points.
#[derive(Clone, Debug)]
pub struct Correlated {
    /// The name and the unit of the first quantity.
    pub x: (String, String),
    /// The name and the unit of the second quantity.
    pub y: (String, String),
    /// Kind of a point: `run`, `gpu` or `phase`.
    pub by: String,
    /// Independent unit if points depend on each other: `attempt` or `host`.
    pub unit: &'static str,
    /// The points.
    pub points: Vec<LabelledPoint>,
    /// Number of points left out because a quantity is missing.
    pub incomplete: usize,
    /// Event to which samples are restricted; `None` if all count.
    pub within: Option<String>,
    /// Correlation over all points.
    pub correlation: Correlation,
    /// Two clusters, if requested; the inner value is `None` if there are too few points.
    pub split: Option<Option<Split>>,
}

impl Correlated {
    /// Returns the two clusters if the evidence for them is strong.
    fn clusters(&self) -> Option<(&Split, Clusters)> {
        let split = self.split.as_ref()?.as_ref().filter(|split| split.is_strong())?;
        let of = |second: bool| (0..self.points.len()).filter(|at| split.is_second.get(*at) == Some(&second)).collect();
        Some((split, [of(false), of(true)]))
    }

    /// Returns the correlation over the points at `places`.
    fn over(&self, places: &[usize]) -> Option<Correlation> {
        let units: Vec<usize> = places.iter().map(|at| self.points[*at].unit).collect();
        Correlation::of_clusters(&self.plain(places), &units)
    }

    fn plain(&self, places: &[usize]) -> Vec<(f64, f64)> {
        places.iter().map(|at| (self.points[*at].x, self.points[*at].y)).collect()
    }

    fn split_text(&self) -> String {
        let (x, y) = (&self.x.0, &self.y.0);
        let Some(split) = &self.split else { return String::new() };
        let Some((split, clusters)) = self.clusters() else {
            return match split {
                None => "too few points for two clusters\n".to_owned(),
                Some(split) => format!(
                    "no strong evidence for two clusters: they describe the points {} than one by {} (BIC; strong beyond {})\n",
                    if split.gain > 0.0 { "better" } else { "worse" },
                    significant(split.gain.abs()),
                    split.threshold
                ),
            };
        };
        let mut text = format!(
            "two clusters describe the points better than one by {} (BIC; strong beyond {})\n",
            significant(split.gain),
            split.threshold
        );
        if self.correlation.clusters.is_some() {
            text.push_str(&format!(
                "points of one {} depend on each other, and may be clusters for that reason alone\n",
                self.unit
            ));
        }
        let over_all = &self.correlation;
        let told = |found: &Correlation| found.pearson_p.is_some_and(|p| p < SIGNIFICANCE);
        let within = clusters.map(|places| self.over(&places));
        let turns = |found: &Correlation| told(found) && found.pearson * over_all.pearson < 0.0;
        if !told(over_all) {
            // Without an overall correlation there is nothing that the clusters could explain.
        } else if within.iter().flatten().all(|found| !told(found)) {
            text.push_str(&format!(
                "no significant correlation of {y} with {x} within either cluster: the correlation over all points comes from the difference between the clusters\n"
            ));
        } else if within.iter().all(|found| found.as_ref().is_some_and(turns)) {
            let (inside, over_all) = if over_all.pearson > 0.0 { ("falls", "rises") } else { ("rises", "falls") };
            text.push_str(&format!(
                "within both clusters {y} {inside} with {x}, though it {over_all} over all points: the overall correlation comes from the difference between the clusters (Simpson's paradox)\n"
            ));
        }
        text
    }
}

fn row(name: &str, found: &Correlation) -> Vec<String> {
    let number = |r: Option<f64>| r.map_or_else(|| "-".to_owned(), |r| format!("{r:+.3}"));
    let (pearson, spearman) = found.coefficients().unzip();
    let p = |p: Option<f64>| p.map_or_else(|| "-".to_owned(), probability);
    let interval = found.interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:+.3} to {high:+.3}"));
    let slope = found.slope_half_width.map_or_else(
        || significant(found.slope),
        |half| format!("{} ± {}", significant(found.slope), significant(half)),
    );
    vec![
        name.to_owned(),
        found.n.to_string(),
        number(pearson),
        interval,
        p(found.pearson_p),
        number(spearman),
        p(found.spearman_p),
        slope,
        significant(found.intercept),
    ]
}

/// Returns the name of the quantity that does not vary over these points, if there is one.
fn unvaried<'a>(points: &[(f64, f64)], found: &'a Correlated) -> Option<&'a str> {
    let is_still = |of: fn(&(f64, f64)) -> f64| points.windows(2).all(|two| of(&two[0]) == of(&two[1]));
    let quantities = [(is_still(|point| point.0), &found.x.0), (is_still(|point| point.1), &found.y.0)];
    quantities.into_iter().find(|(still, _)| *still).map(|(_, name)| name.as_str())
}

/// Returns the unit of the slope as a phrase; empty if neither quantity has a unit.
fn slope_unit(y: &str, x: &str) -> String {
    match (y, x) {
        ("", "") => String::new(),
        (y, "") => format!("; the slope is in {y}"),
        ("", x) => format!("; the slope is for each {x}"),
        (y, x) => format!("; the slope is in {y} for each {x}"),
    }
}

/// Whether the rank correlation is significant (or untested) and has the sign of the linear one.
fn is_monotone(correlation: &Correlation) -> bool {
    let is_told = correlation.spearman_p.is_none_or(|p| p < SIGNIFICANCE);
    is_told && correlation.spearman.signum() == correlation.pearson.signum()
}

/// Returns the correlation as a table and a sentence.
pub fn correlate_text(found: &Correlated) -> String {
    let mut rows = vec![row("all", &found.correlation)];
    let mut still = String::new();
    if let Some((_, clusters)) = found.clusters() {
        for (name, places) in ["cluster 1", "cluster 2"].into_iter().zip(clusters) {
            rows.push(match found.over(&places) {
                Some(found) => row(name, &found),
                None => {
                    [name.to_owned(), places.len().to_string()].into_iter().chain(vec!["-".to_owned(); 7]).collect()
                }
            });
            still.extend(
                unvaried(&found.plain(&places), found)
                    .map(|quantity| format!("within {name} {quantity} does not vary\n")),
            );
        }
    }
    let heads = ["POINTS", ">N", ">PEARSON", ">95%", ">P", ">SPEARMAN", ">P", ">SLOPE", ">AT ZERO"];
    let mut text = columns(&heads, rows);
    let (x, y) = (&found.x.0, &found.y.0);
    let correlation = &found.correlation;
    text.push_str(&match correlation.pearson_p {
        Some(p) if p < SIGNIFICANCE && !is_monotone(correlation) => format!(
            "a line explains {:.0}% of the variance of {y} over {}, but by ranks {y} does not {} with {x}: the relation is not monotone\n",
            100.0 * correlation.pearson.powi(2),
            count(correlation.n, &found.by),
            if correlation.pearson > 0.0 { "rise" } else { "fall" },
        ),
        Some(p) if p < SIGNIFICANCE => format!(
            "{y} {} with {x}: a line explains {:.0}% of its variance over {}{}\n",
            if correlation.pearson > 0.0 { "rises" } else { "falls" },
            100.0 * correlation.pearson.powi(2),
            count(correlation.n, &found.by),
            slope_unit(&found.y.1, &found.x.1),
        ),
        Some(p) => {
            format!(
                "no significant linear correlation of {y} with {x} ({}, {})\n",
                p_value(p),
                count(correlation.n, &found.by)
            )
        }
        None => match correlation.clusters.map(|units| count(units, found.unit)) {
            Some(units) => format!(
                "not tested: points of one {} depend on each other, and at least 4 that scatter are needed ({units})\n",
                found.unit
            ),
            None => "two points always lie on a line\n".to_owned(),
        },
    });
    if let Some(units) = correlation.clusters.filter(|_| correlation.pearson_p.is_some()) {
        let unit = found.unit;
        text.push_str(&format!("intervals and P take the {unit} as the independent unit ({})\n", count(units, unit)));
    }
    text.push_str(&found.split_text());
    text.push_str(&still);
    if let Some(event) = &found.within {
        text.push_str(&format!("samples within `{event}` only\n"));
    }
    if found.incomplete > 0 {
        text.push_str(&format!(
            "left out: {} whose {x} or {y} is missing, not finite or tainted\n",
            count(found.incomplete, &found.by)
        ));
    }
    text
}

fn correlation_value(found: &Correlation) -> Value {
    let mut table =
        table_of([("n", found.n.into()), ("slope", found.slope.into()), ("intercept", found.intercept.into())]);
    let (pearson, spearman) = found.coefficients().unzip();
    let pairs = [
        ("pearson", pearson),
        ("spearman", spearman),
        ("pearson_low", found.interval.map(|interval| interval.0)),
        ("pearson_high", found.interval.map(|interval| interval.1)),
        ("pearson_p", found.pearson_p),
        ("spearman_p", found.spearman_p),
        ("slope_half_width", found.slope_half_width),
    ];
    table.extend(pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    table.extend(found.clusters.map(|units| ("independent".to_owned(), units.into())));
    Value::Table(table)
}

/// Returns the correlation as a document's members, including every point.
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
    if let Some(event) = &found.within {
        members.insert("within".to_owned(), event.as_str().into());
    }
    if let Some(Some(split)) = &found.split {
        members.insert("split_gain".to_owned(), split.gain.into());
        members.insert("split_threshold".to_owned(), split.threshold.into());
    }
    if let Some((_, within)) = &clusters {
        let within = within.iter().map(|places| {
            let points = found.plain(places);
            let alone = || {
                let reason = unvaried(&points, found).map_or_else(String::new, |name| format!("{name} does not vary"));
                Value::Table(table_of([("n", points.len().into()), ("reason", reason.into())]))
            };
            found.over(places).map_or_else(alone, |found| correlation_value(&found))
        });
        members.insert("clusters".to_owned(), Value::List(within.collect()));
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::split;

    fn correlated(points: &[(f64, f64)], units: (&str, &str)) -> Correlated {
        let labelled =
            points.iter().enumerate().map(|(unit, (x, y))| LabelledPoint { label: "r".to_owned(), x: *x, y: *y, unit });
        Correlated {
            x: ("loss".to_owned(), units.0.to_owned()),
            y: ("time".to_owned(), units.1.to_owned()),
            by: "run".to_owned(),
            unit: "attempt",
            points: labelled.collect(),
            incomplete: 0,
            within: None,
            correlation: Correlation::of(points).unwrap(),
            split: Some(split(points)),
        }
    }

    #[test]
    fn significant_line_without_rank_correlation_is_not_monotone() {
        // It rises except for the last four points, which are far below, so the ranks show no significant correlation.
        let y = |at: u32| {
            f64::from(at * 7 % 20) * 0.01 + if at < 16 { f64::from(at) * 0.02 } else { -1000.0 - f64::from(at) }
        };
        let points: Vec<(f64, f64)> = (0..20).map(|at| (f64::from(at), y(at))).collect();
        let said = correlate_text(&correlated(&points, ("", "")));
        assert!(said.contains("the relation is not monotone") && !said.contains("falls with"), "{said}");
    }

    #[test]
    fn two_points_have_no_coefficients() {
        let found = correlated(&[(1.0, 2.0), (2.0, 5.0)], ("", ""));
        let text = correlate_text(&found);
        assert!(!text.contains("+1.000") && text.contains("two points always lie on a line"), "{text}");
        let all = correlate_value(&found)["all"].flatten();
        assert!(!all.contains_key("pearson") && !all.contains_key("spearman") && all.contains_key("slope"), "{all:?}");
    }

    /// Twenty points around (`x`, `y`) with the given slope.
    fn cloud(x: f64, y: f64, slant: f64) -> impl Iterator<Item = (f64, f64)> {
        (0..20).map(move |at| {
            let (along, across) = (f64::from(at % 5) - 2.0, f64::from(at / 5) - 1.5);
            (x + along, y + slant * along + across)
        })
    }

    #[test]
    fn clusters_without_a_correlation_are_not_called_simpsons_paradox() {
        // The slope within each cluster is too small to be significant.
        let points: Vec<_> = cloud(0.0, 0.0, -0.05).chain(cloud(50.0, 50.0, -0.05)).collect();
        let text = correlate_text(&correlated(&points, ("", "s")));
        assert!(!text.contains("Simpson"), "{text}");
        let told = "no significant correlation of time with loss within either cluster: the correlation over all points comes from the difference between the clusters\n";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("over 40 runs; the slope is in s\n"), "{text}");
    }

    #[test]
    fn opposite_sign_within_both_clusters_is_simpsons_paradox() {
        let points: Vec<_> = cloud(0.0, 0.0, -2.0).chain(cloud(50.0, 50.0, -2.0)).collect();
        let text = correlate_text(&correlated(&points, ("", "")));
        assert!(text.contains("within both clusters time falls with loss, though it rises over all points"), "{text}");
        assert!(text.contains("over 40 runs\n"), "{text}");
        let one: Vec<_> = cloud(0.0, 0.0, -2.0).chain(cloud(50.0, 50.0, 0.0)).collect();
        let text = correlate_text(&correlated(&one, ("", "")));
        assert!(!text.contains("within either cluster") && !text.contains("Simpson"), "{text}");
    }

    #[test]
    fn clusters_in_which_a_quantity_does_not_vary_are_shown() {
        let points: Vec<_> =
            (0..20).map(|at| (f64::from(at / 10), f64::from(at % 10) + f64::from(at / 10) * 50.0)).collect();
        let is_second = (0..20).map(|at| at >= 10).collect();
        let found = Correlated {
            split: Some(Some(Split { is_second, gain: 99.0, threshold: 10.0 })),
            ..correlated(&points, ("J", "s"))
        };
        let text = correlate_text(&found);
        assert!(text.lines().any(|line| line.starts_with("cluster 1") && line.contains(" 10 ")), "{text}");
        assert!(text.contains("within cluster 1 loss does not vary\nwithin cluster 2 loss does not vary\n"), "{text}");
        assert!(text.contains("the slope is in s for each J\n"), "{text}");
        let Value::List(clusters) = &correlate_value(&found)["clusters"] else { panic!("{text}") };
        assert_eq!(clusters[0].flatten()["reason"], "loss does not vary".into());
        assert_eq!(clusters[1].flatten()["n"], 10i64.into());
    }
}
