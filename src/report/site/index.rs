//! The first page: rankings and figures of each model, and the first attempts.

use super::super::fields::{field_of, short_names, shown_fields};
use super::super::figure::FigureError;
use super::super::number::count;
use super::super::ranking::{Ranking, best_lines, head_of, probability};
use super::super::sample::{compared_text, estimate_text, sample_text};
use super::html::{Field, Frame, figure, table};
use super::{ModelOf, ReportOf, headline, page_of};
use crate::analysis;
use crate::record::{AttemptId, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// Most runs of a configuration with a link.
const LINKS: usize = 8;

pub(super) fn page(report: &ReportOf) -> Result<String, FigureError> {
    let (known, pages) = (&report.pages, &report.runs);
    let mut content = String::new();
    for sentence in &report.about {
        content.push_str(&format!("<p>{}</p>\n", super::html::escaped(sentence)));
    }
    if report.models.len() > 1 {
        content.push_str(&headline::summary(&report.models));
    }
    let mut links = Vec::new();
    for (at, model) in report.models.iter().enumerate() {
        links.push((format!("#m{at}"), model.model.clone()));
        content.push_str(&section(at, model, known, pages)?);
    }
    links.push(("#attempts".to_owned(), "all attempts".to_owned()));
    links.push(("report.md".to_owned(), "Markdown".to_owned()));
    links.push(("data/attempts.csv".to_owned(), "CSV of all attempts".to_owned()));
    content.push_str("<section aria-labelledby=\"h-attempts\">\n<h2 id=\"h-attempts\">All attempts</h2>\n");
    if report.runs.len() < report.all_runs {
        content.push_str(&format!(
            "<p>{} of {} have a page: the newest and those of rankings. <code>ledger show</code> shows the others.</p>\n",
            report.runs.len(),
            count(report.all_runs, "run")
        ));
    }
    content.push_str(&report.table);
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
    for said in headline::lead(model) {
        html.push_str(&format!("<p class=\"lead\">{}</p>\n", super::html::escaped(&said)));
    }
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

/// Returns a table of configurations by a metric. Numbers link to a run, and means also to each of their attempts.
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
            let linked = |field: Field| field.to("", &run);
            let mut row = vec![
                Field::number(rank.to_string(), f64::from(rank)),
                linked(Field::text(short.clone())),
                linked(Field::number(estimate_text(place, &ranking.unit), mean)),
                linked(Field::text(sample_text(place))),
                behind(place, known),
                comparison.map_or_else(blank, |comparison| {
                    linked(Field::number(compared_text(&comparison, &ranking.unit), comparison.estimate))
                }),
                p.map_or_else(blank, |p| linked(Field::number(probability(p), p))),
                place.probability.map_or_else(blank, |p| linked(Field::number(format!("{:.0}%", 100.0 * p), p))),
            ];
            row.extend(fields.iter().map(|name| Field::of(field_of(place, name))));
            row
        })
        .collect();
    let caption = format!("Configurations by {} ({})", ranking.metric, ranking.direction.name());
    table(id, &caption, &heads, &rows, true)
}

/// Returns links to the attempts of a mean.
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
