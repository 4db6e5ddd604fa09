//! The report as Markdown, for a paper's appendix.

use super::super::fields::{field_of, short_names, shown_fields};
use super::super::number::count;
use super::super::ranking::{Ranking, best_lines, head_of, probability};
use super::super::sample::{estimate_text, sample_text};
use super::{ReportOf, headline};
use crate::record::is_invisible;

pub(super) fn text(report: &ReportOf) -> String {
    let mut text = format!("# {}\n\n", plain(&report.title));
    for sentence in &report.about {
        text.push_str(&format!("{}\n\n", plain(sentence)));
    }
    let mut number = 0u32;
    for model in &report.models {
        text.push_str(&format!("## {}\n\n", plain(&model.model)));
        for said in headline::lead(model) {
            text.push_str(&format!("{}\n\n", plain(&said)));
        }
        for (ranking, all) in &model.rankings {
            text.push_str(&ranked(ranking, *all));
        }
        for (name, figure) in &model.figures {
            number += 1;
            text.push_str(&format!("![{}](figures/{name}.svg)\n\n", plain(&figure.summary)));
            let notes: Vec<String> = figure.below().map(plain).collect();
            text.push_str(&format!(
                "**Figure {number}.** {}. {} Numbers: [`data/{name}.csv`](data/{name}.csv).\n\n",
                plain(&figure.title),
                notes.join(" ")
            ));
        }
    }
    text.push_str(&format!(
        "{}, with all metrics in [`data/attempts.csv`](data/attempts.csv). Log of the ledger: `{}`.\n",
        count(report.all, "attempt"),
        report.head
    ));
    text
}

fn ranked(ranking: &Ranking, all: usize) -> String {
    let fields = shown_fields(&ranking.places);
    let mut heads: Vec<String> =
        vec!["#".into(), "run".into(), head_of(&ranking.metric, &ranking.unit), "sample".into(), "p".into()];
    heads.extend(short_names(&fields));
    let mut text = format!("### By {} ({})\n\n", plain(&ranking.metric), ranking.direction.name());
    if ranking.places.is_empty() {
        let why: Vec<String> = best_lines(ranking).iter().map(|line| format!("{}\n\n", plain(line))).collect();
        return format!("{text}No attempt counts.\n\n{}", why.concat());
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text.push_str(&line(heads.iter().map(|head| plain(head)).collect()));
    text.push_str(&line(
        heads.iter().enumerate().map(|(at, _)| if at == 1 { "---" } else { "--:" }.to_owned()).collect(),
    ));
    for (rank, (place, id)) in (1u32..).zip(ranking.places.iter().zip(&ranking.ids)) {
        let p = place.against.and_then(|against| against.corrected);
        let mut cells = vec![
            rank.to_string(),
            format!("`{id}`"),
            estimate_text(place, &ranking.unit),
            sample_text(place),
            p.map_or_else(|| "–".to_owned(), probability),
        ];
        cells.extend(
            fields.iter().map(|name| field_of(place, name).map_or_else(|| "–".to_owned(), |value| value.to_string())),
        );
        text.push_str(&line(
            cells.into_iter().enumerate().map(|(at, cell)| if at == 1 { cell } else { plain(&cell) }).collect(),
        ));
    }
    text.push('\n');
    if all > ranking.places.len() {
        text.push_str(&format!("The best {} of {all} configurations.\n\n", ranking.places.len()));
    }
    for sentence in best_lines(ranking) {
        text.push_str(&format!("{}\n\n", plain(&sentence)));
    }
    text
}

/// Returns text in one line with everything escaped that Markdown, or HTML within it, interprets.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c if is_invisible(c) => out.push(' '),
            other => out.push(other),
        }
    }
    out
}
