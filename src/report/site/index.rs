//! The first page: rankings and figures of each model, and every attempt.

use super::super::figure::FigureError;
use super::super::number::{count, duration, significant, wall_seconds, when};
use super::super::ranking::{Ranking, best_lines, head_of, probability, short_names, shown_fields};
use super::super::sample::{compared_text, estimate_text, sample_text};
use super::html::{Field, Frame, figure, table};
use super::{ModelOf, ReportOf, page_of};
use crate::analysis::{self, Trial};
use crate::record::{AttemptId, Run, RunId, known_metric};
use std::collections::{BTreeMap, BTreeSet};

/// Columns of the table of attempts, at most.
const METRICS: usize = 8;
/// The metrics that are shown of attempts, where they have them, in this order.
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
/// Rows of the table of attempts, at most: browsers become slow with more.
const ROWS: usize = 5000;
/// Runs of a configuration that have a link each.
const LINKS: usize = 8;

pub(super) fn page(report: &ReportOf) -> Result<String, FigureError> {
    let known: BTreeMap<AttemptId, RunId> = report.trials.iter().map(|trial| (trial.id, trial.run.id)).collect();
    let pages: BTreeSet<RunId> = known.values().copied().collect();
    let mut content = String::new();
    for sentence in &report.about {
        content.push_str(&format!("<p>{}</p>\n", super::html::escaped(sentence)));
    }
    let mut links = Vec::new();
    for (at, model) in report.models.iter().enumerate() {
        links.push((format!("#m{at}"), model.model.clone()));
        content.push_str(&section(at, model, &known, &pages)?);
    }
    links.push(("#attempts".to_owned(), "all attempts".to_owned()));
    links.push(("report.md".to_owned(), "Markdown".to_owned()));
    links.push(("data/attempts.csv".to_owned(), "CSV of all attempts".to_owned()));
    content.push_str("<section aria-labelledby=\"h-attempts\">\n<h2 id=\"h-attempts\">All attempts</h2>\n");
    content.push_str(&attempts(report));
    content.push_str("</section>\n");
    let frame = Frame {
        title: &report.title,
        links,
        footer: format!(
            "Made by ledger {} from a ledger whose log ends in {}.",
            env!("CARGO_PKG_VERSION"),
            report.head.prefix(16)
        ),
    };
    Ok(frame.page(&content))
}

fn section(
    at: usize,
    model: &ModelOf,
    known: &BTreeMap<AttemptId, RunId>,
    pages: &BTreeSet<RunId>,
) -> Result<String, FigureError> {
    let mut html = format!(
        "<section id=\"m{at}\" aria-labelledby=\"h-m{at}\">\n<h2 id=\"h-m{at}\">{}</h2>\n",
        super::html::escaped(&model.model)
    );
    for (number, (ranking, all)) in model.rankings.iter().enumerate() {
        html.push_str(&format!("<h3>By {}</h3>\n", super::html::escaped(&ranking.metric)));
        if ranking.places.is_empty() {
            html.push_str("<p>No attempt counts.</p>\n");
        } else {
            html.push_str(&ranked(&format!("m{at}-r{number}"), ranking, known));
        }
        if *all > ranking.places.len() {
            html.push_str(&format!("<p>The best {} of {all} configurations.</p>\n", ranking.places.len()));
        }
        for line in best_lines(ranking) {
            html.push_str(&format!("<p>{}</p>\n", super::html::escaped(&line)));
        }
    }
    if model.rankings.is_empty() {
        html.push_str("<p>No attempt has a metric whose better direction is known.</p>\n");
    }
    for (number, (name, one)) in model.figures.iter().enumerate() {
        let files =
            [(format!("data/{name}.csv"), "the numbers (CSV)"), (format!("figures/{name}.svg"), "the picture (SVG)")];
        html.push_str(&figure(&format!("m{at}-f{number}"), one, "", &|run| pages.contains(run), &files)?);
    }
    html.push_str("</section>\n");
    Ok(html)
}

/// Configurations by a metric; each number leads to the run behind it, and a mean of several to each of them.
fn ranked(id: &str, ranking: &Ranking, known: &BTreeMap<AttemptId, RunId>) -> String {
    let fields = shown_fields(&ranking.places);
    let mut heads: Vec<String> = [
        ">#",
        "run",
        &format!(">{}", head_of(&ranking.metric, &ranking.unit)),
        "sample",
        "attempts of runs",
        "vs best",
        ">p",
        ">P(best)",
    ]
    .map(str::to_owned)
    .to_vec();
    heads.extend(short_names(&fields));
    let rows: Vec<Vec<Field>> = (1u32..)
        .zip(ranking.places.iter().zip(&ranking.ids))
        .map(|(rank, (place, short))| {
            let run = place.contender.run.id;
            let mean = place.estimate.mean;
            let comparison = place.against.and_then(|against| against.comparison);
            let p = place.against.and_then(|against| against.corrected);
            let blank = || Field::text("–");
            let mut row = vec![
                Field::number(rank.to_string(), f64::from(rank)),
                Field::text(short.clone()).to("", &run),
                Field::number(estimate_text(place, &ranking.unit), mean).to("", &run),
                Field::text(sample_text(place)).to("", &run),
                behind(place, known),
                comparison.map_or_else(blank, |comparison| {
                    Field::number(compared_text(&comparison, &ranking.unit), comparison.estimate).to("", &run)
                }),
                p.map_or_else(blank, |p| Field::number(probability(p), p).to("", &run)),
                place.probability.map_or_else(blank, |p| Field::number(format!("{:.0}%", 100.0 * p), p).to("", &run)),
            ];
            row.extend(fields.iter().map(|name| {
                let value = super::super::ranking::field_of(place, name);
                let text = value.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string);
                Field { value: value.and_then(|value| value.as_float()), ..Field::text(text) }
            }));
            row
        })
        .collect();
    let caption = format!("Configurations by {} ({})", ranking.metric, ranking.direction.name());
    table(id, &caption, &heads, &rows, true)
}

/// A link to each run that a mean is of.
fn behind(place: &analysis::Place, known: &BTreeMap<AttemptId, RunId>) -> Field {
    let mut list = Vec::new();
    for measured in place.contender.measured.iter().take(LINKS) {
        let short = measured.attempt.0.prefix(8);
        list.extend(known.get(&measured.attempt).map(|run| (format!("{}#a-{short}", page_of(run)), short.clone())));
    }
    let more = place.contender.measured.len().saturating_sub(LINKS);
    let text = if more > 0 { format!("{more} more and") } else { String::new() };
    Field { text, list, ..Field::default() }
}

fn attempts(report: &ReportOf) -> String {
    let has = |name: &&str| report.trials.iter().any(|trial| trial.attempt.metric(name).is_some());
    let mut metrics: Vec<&str> = SHOWN.into_iter().filter(|name| has(name)).collect();
    let ranked = report.models.iter().flat_map(|model| &model.rankings).map(|(ranking, _)| ranking.metric.as_str());
    for name in ranked.filter(|name| !SHOWN.contains(name)) {
        if !metrics.contains(&name) {
            metrics.insert(0, name);
        }
    }
    metrics.truncate(METRICS);
    let runs: Vec<&Run> = report.trials.iter().map(|trial| &trial.run).collect();
    let fields = analysis::differing(&runs);
    let names = short_names(&fields);
    let mut heads: Vec<String> = ["run", "started (UTC)", "outcome", ">took"].map(str::to_owned).to_vec();
    heads.extend(metrics.iter().map(|name| {
        let unit =
            report.trials.iter().find_map(|trial| trial.attempt.metrics.get(*name)).map(|metric| metric.unit.as_str());
        let unit = unit.or(known_metric(name).map(|known| known.unit)).unwrap_or_default();
        if unit.is_empty() { format!(">{name}") } else { format!(">{name} [{unit}]") }
    }));
    heads.push(">seed".to_owned());
    heads.extend(names);
    heads.push("tags".to_owned());
    let rows: Vec<Vec<Field>> =
        report.trials.iter().take(ROWS).map(|trial| row(report, trial, &metrics, &fields)).collect();
    let all = count(report.trials.len(), "attempt");
    let caption = if report.trials.len() > ROWS {
        format!("The newest {ROWS} of {all}, all of which are in data/attempts.csv")
    } else {
        format!("{all}, newest first")
    };
    format!("<div id=\"attempts\">{}</div>\n", table("t-attempts", &caption, &heads, &rows, true))
}

fn row(report: &ReportOf, trial: &Trial, metrics: &[&str], fields: &[String]) -> Vec<Field> {
    let run = trial.run.id;
    let outcome = match (trial.attempt.counts(), trial.is_hidden) {
        (_, true) => "hidden".to_owned(),
        (Ok(()), _) => trial.attempt.standing(),
        (Err(left), _) => left.why.name().to_owned(),
    };
    let wall = wall_seconds(trial.attempt.wall_ns);
    let page = format!("{}#a-{}", page_of(&run), trial.id.0.prefix(8));
    let mut row = vec![
        Field { target: Some(page.clone()), ..Field::text(run.0.prefix(8)) },
        Field::text(when(trial.attempt.started_unix_ms)),
        Field::text(outcome),
        wall.map_or_else(|| Field::text("–"), |wall| Field::number(duration(wall), wall)),
    ];
    row.extend(metrics.iter().map(|name| match trial.attempt.metrics.get(*name).and_then(|metric| metric.value) {
        Some(value) => Field { target: Some(page.clone()), ..Field::number(significant(value), value) },
        None => Field::text("–"),
    }));
    let seed = trial.run.parts.seed;
    row.push(Field::number(seed.to_string(), seed.to_string().parse().unwrap_or(f64::MAX)));
    row.extend(fields.iter().map(|name| {
        let value = trial.field(name);
        let text = value.as_ref().map_or_else(|| "–".to_owned(), ToString::to_string);
        Field { value: value.and_then(|value| value.as_float()), ..Field::text(text) }
    }));
    let tags: Vec<&str> =
        [run.0, trial.id.0].iter().filter_map(|digest| report.tags.get(digest)).flatten().map(String::as_str).collect();
    row.push(Field::text(tags.join(" ")));
    row
}
