//! The table of all attempts, in pages, and the CSV of all attempts with all metrics.
//! Attempts are added one at a time, so that memory does not grow with their number.

use super::super::fields::short_names;
use super::super::figure::Sheet;
use super::super::number::{count, duration, significant, wall_seconds, when};
use super::html::{Field, Frame, table};
use super::page_of;
use crate::analysis::Trial;
use crate::record::{Digest, Metric, RunId, known_metric};
use std::collections::{BTreeMap, BTreeSet};

/// Most columns of metrics.
const METRICS: usize = 8;
/// Metrics shown in the table if an attempt has them, in this order.
const SHOWN: [&str; 12] = [
    "accuracy",
    "eval_loss",
    "loss",
    "perplexity",
    "mean_return",
    "train_time",
    "epoch_time",
    "throughput",
    "energy",
    "energy_total",
    "power_mean",
    "wall_time",
];
/// Rows per page; browsers become slow with more.
const ROWS: usize = 1000;

/// The metrics, units and fields of a report's attempts.
#[derive(Clone, Debug, Default)]
pub struct AttemptNames {
    metrics: BTreeSet<String>,
    /// The metrics that have a finite value in at least one attempt.
    valued: BTreeSet<String>,
    units: BTreeMap<String, String>,
    fields: BTreeSet<String>,
    attempts: usize,
}

impl AttemptNames {
    /// Adds the names of one attempt.
    pub fn see(&mut self, trial: &Trial) {
        self.attempts += 1;
        for (name, metric) in &trial.attempt.metrics {
            if !self.metrics.contains(name) {
                self.metrics.insert(name.clone());
                self.units.insert(name.clone(), metric.unit.clone());
            }
            if metric.value.is_some_and(f64::is_finite) && !self.valued.contains(name) {
                self.valued.insert(name.clone());
            }
        }
        for name in trial.run.config().keys().filter(|name| !self.fields.contains(*name)).collect::<Vec<_>>() {
            self.fields.insert(name.clone());
        }
    }

    /// Returns the suffix for a unit that differs from that of the other attempts.
    fn other_unit(&self, name: &str, metric: &Metric) -> Option<String> {
        (self.units.get(name) != Some(&metric.unit)).then(|| format!(" {}", metric.unit))
    }

    /// Returns the head of the CSV of all attempts, with a line break.
    pub fn csv_head(&self) -> String {
        let mut heads: Vec<String> =
            ["run", "attempt", "model", "seed", "outcome", "tainted"].map(str::to_owned).to_vec();
        // A duplicate name gets a prefix.
        let mut head = |name: &str, of: &str| {
            let mut name = name.to_owned();
            while heads.contains(&name) {
                name = format!("{of}.{name}");
            }
            heads.push(name);
        };
        self.fields.iter().for_each(|name| head(name, "field"));
        for name in &self.metrics {
            head(name, "metric");
            head(&format!("{name}.half_width_95"), "metric");
        }
        Sheet { heads, rows: Vec::new() }.csv()
    }

    /// Returns an attempt's line in the CSV of all attempts, with a line break.
    pub fn csv_line(&self, trial: &Trial) -> String {
        let mut row = vec![
            trial.run.id.to_string(),
            trial.id.to_string(),
            trial.run.model().to_owned(),
            trial.run.parts.seed.to_string(),
            trial.attempt.outcome.name().to_owned(),
            trial.attempt.all_taints().join("; "),
        ];
        let config = trial.run.config();
        row.extend(self.fields.iter().map(|name| config.get(name).map_or_else(String::new, ToString::to_string)));
        row.extend(self.metrics.iter().flat_map(|name| {
            let metric = trial.attempt.metrics.get(name);
            let unit = metric.and_then(|metric| self.other_unit(name, metric)).unwrap_or_default();
            let text = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:?}{unit}"));
            [text(metric.and_then(|metric| metric.value)), text(metric.and_then(|metric| metric.uncertainty))]
        }));
        Sheet { heads: row, rows: Vec::new() }.csv()
    }
}

/// Builds the pages of the table of all attempts, newest first.
pub struct AttemptTable<'a> {
    /// The report's title.
    title: &'a str,
    names: &'a AttemptNames,
    heads: Vec<String>,
    metrics: Vec<String>,
    fields: Vec<String>,
    tags: &'a BTreeMap<Digest, Vec<String>>,
    /// Runs that have a page.
    pages: &'a BTreeSet<RunId>,
    all: usize,
    number: usize,
    rows: Vec<Vec<Field>>,
}

/// A page of the table.
pub struct AttemptPage {
    /// Number from 1. The first page is part of the index.
    pub number: usize,
    /// HTML of its table.
    pub html: String,
}

impl<'a> AttemptTable<'a> {
    /// Creates a table without rows. It shows these fields, and also the metrics by which models are `ranked`.
    pub fn new(
        title: &'a str,
        names: &'a AttemptNames,
        ranked: &[String],
        fields: Vec<String>,
        tags: &'a BTreeMap<Digest, Vec<String>>,
        pages: &'a BTreeSet<RunId>,
    ) -> Self {
        let mut metrics: Vec<String> =
            SHOWN.into_iter().filter(|name| names.valued.contains(*name)).map(str::to_owned).collect();
        for name in ranked.iter().filter(|name| !SHOWN.contains(&name.as_str())) {
            if !metrics.contains(name) {
                metrics.insert(0, name.clone());
            }
        }
        metrics.truncate(METRICS);
        let mut heads: Vec<String> = ["run", "started (UTC)", "outcome", ">took"].map(str::to_owned).to_vec();
        heads.extend(metrics.iter().map(|name| {
            let unit = names.units.get(name).map(String::as_str);
            let unit = unit.or(known_metric(name).map(|known| known.unit)).unwrap_or_default();
            if unit.is_empty() { format!(">{name}") } else { format!(">{name} [{unit}]") }
        }));
        heads.push(">seed".to_owned());
        heads.extend(short_names(&fields));
        heads.push("tags".to_owned());
        let (all, number, rows) = (names.attempts, 0, Vec::new());
        Self { title, names, heads, metrics, fields, tags, pages, all, number, rows }
    }

    /// Adds an attempt; returns the page if it is full.
    pub fn push(&mut self, trial: &Trial) -> Option<AttemptPage> {
        let row = self.row(trial);
        self.rows.push(row);
        (self.rows.len() == ROWS).then(|| self.page())
    }

    /// Returns the last page; `None` if it is empty and not the first.
    pub fn finish(&mut self) -> Option<AttemptPage> {
        (!self.rows.is_empty() || self.number == 0).then(|| self.page())
    }

    fn page(&mut self) -> AttemptPage {
        let first = self.number * ROWS;
        self.number += 1;
        let all = count(self.all, "attempt");
        let caption = if self.all > ROWS {
            let last = first + self.rows.len();
            format!("Attempts {} to {last} of {all}, newest first; data/attempts.csv has all of them", first + 1)
        } else {
            format!("{all}, newest first")
        };
        let html = table("t-attempts", &caption, &self.heads, &std::mem::take(&mut self.rows), true);
        let links = self.links(self.number);
        AttemptPage { number: self.number, html: format!("<div id=\"attempts\">{html}</div>\n{links}") }
    }

    /// Returns links to the previous and the next page.
    fn links(&self, number: usize) -> String {
        let pages = self.all.div_ceil(ROWS);
        let link = |to: usize, text: &str| format!("<a href=\"{}\">{text}</a>", place(to));
        let mut links = Vec::new();
        if number > 1 {
            links.push(link(number - 1, "newer attempts"));
        }
        if number < pages {
            links.push(link(number + 1, "older attempts"));
        }
        if links.is_empty() { String::new() } else { format!("<p>{}</p>\n", links.join(" · ")) }
    }

    /// Returns path and content of the file for a page.
    pub fn file(&self, page: &AttemptPage) -> (String, Vec<u8>) {
        let links = vec![("index.html".to_owned(), "the report".to_owned())];
        let footer = format!("Made by ledger {}.", env!("CARGO_PKG_VERSION"));
        let title = format!("{}: attempts, page {}", self.title, page.number);
        (place(page.number), Frame { title: &title, links, footer }.page(&page.html).into_bytes())
    }

    fn row(&self, trial: &Trial) -> Vec<Field> {
        let run = trial.run.id;
        let outcome = match (trial.attempt.counts(), trial.is_hidden) {
            (_, true) => "hidden".to_owned(),
            (Ok(()), _) => trial.attempt.standing(),
            (Err(left), _) => left.why.name().to_owned(),
        };
        let wall = wall_seconds(trial.attempt.wall_ns);
        let page = self.pages.contains(&run).then(|| format!("{}#a-{}", page_of(&run), trial.id.0.prefix(8)));
        let mut row = vec![
            Field { target: page.clone(), ..Field::text(run.0.prefix(8)) },
            Field::text(when(trial.attempt.started_unix_ms)),
            Field::text(outcome),
            wall.map_or_else(|| Field::text("–"), |wall| Field::number(duration(wall), wall)),
        ];
        row.extend(self.metrics.iter().map(|name| {
            let metric = trial.attempt.metrics.get(name);
            let Some((metric, value)) = metric.and_then(|metric| Some((metric, metric.value?))) else {
                return Field::text("–");
            };
            let unit = self.names.other_unit(name, metric).unwrap_or_default();
            Field { target: page.clone(), ..Field::number(format!("{}{unit}", significant(value)), value) }
        }));
        let seed = trial.run.parts.seed;
        row.push(Field::number(seed.to_string(), seed.to_string().parse().unwrap_or(f64::MAX)));
        row.extend(self.fields.iter().map(|name| Field::of(trial.field(name))));
        let tags: Vec<&str> = [run.0, trial.id.0]
            .iter()
            .filter_map(|digest| self.tags.get(digest))
            .flatten()
            .map(String::as_str)
            .collect();
        row.push(Field::text(tags.join(" ")));
        row
    }
}

/// Returns the path of a page.
fn place(number: usize) -> String {
    if number == 1 { "index.html#attempts".to_owned() } else { format!("attempts-{number}.html") }
}
