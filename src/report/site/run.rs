//! The page of a run: its identity, attempts and repetitions.

use super::super::figure::{Figure, FigureError};
use super::super::number::{significant, took, when, within};
use super::html::{Field, Frame, escaped, figure, pairs, table};
use super::page_of;
use crate::record::{Attempt, AttemptId, Part, Run, RunId, Value, known_metric};

/// An attempt of a run, and its figures.
#[derive(Clone, Debug)]
pub struct AttemptOf {
    /// Its id.
    pub id: AttemptId,
    /// The attempt.
    pub attempt: Attempt,
    /// Its figures, each with a name for ids.
    pub figures: Vec<(String, Figure)>,
}

/// The content of a run's page.
#[derive(Clone, Debug)]
pub struct RunOf<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its attempts.
    pub attempts: Vec<AttemptOf>,
    /// Its tags and those of its attempts.
    pub tags: Vec<String>,
    /// Notes, oldest first.
    pub notes: Vec<String>,
    /// Runs with a page that differ only in the seed, including this one.
    pub repetitions: &'a [RunId],
}

/// Returns the page, which belongs in the folder `runs`.
///
/// # Errors
/// If a figure cannot be drawn.
pub fn run_page(of: &RunOf<'_>) -> Result<String, FigureError> {
    let run = of.run;
    let title = format!("Run {}: {}", run.id.0.prefix(8), run.model());
    let mut html = format!("<p class=\"id\">{}</p>\n", run.id);
    if !of.tags.is_empty() {
        html.push_str(&format!("<p>Tags: {}</p>\n", escaped(&of.tags.join(" "))));
    }
    for note in &of.notes {
        html.push_str(&format!("<p class=\"warn\">Note: {}</p>\n", escaped(note)));
    }
    let mut links = vec![("../index.html".to_owned(), "the report".to_owned())];
    for one in &of.attempts {
        let short = one.id.0.prefix(8);
        links.push((format!("#a-{short}"), format!("attempt {short}")));
        html.push_str(&attempt(one)?);
    }
    html.push_str("<section aria-labelledby=\"h-identity\">\n<h2 id=\"h-identity\">What it is</h2>\n");
    let config: Vec<(String, String)> =
        run.config().iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    html.push_str(&pairs("config", "Configuration (hashed)", ["field", "value"], &config));
    let rows: Vec<Vec<Field>> = Part::ALL
        .into_iter()
        .map(|part| {
            let value = if part == Part::Config { "see above".to_owned() } else { run.parts.value(part).to_string() };
            vec![Field::text(part.name()), Field::text(run.parts.digest(part).prefix(16)), Field::text(value)]
        })
        .collect();
    html.push_str(&table("parts", "Parts of the id", &["part", "digest", "value"].map(str::to_owned), &rows, false));
    html.push_str("</section>\n");
    if of.repetitions.len() > 1 {
        html.push_str("<section aria-labelledby=\"h-same\">\n<h2 id=\"h-same\">The same with other seeds</h2>\n<ul>\n");
        for other in of.repetitions {
            let short = other.0.prefix(8);
            let item = if *other == run.id {
                format!("{short} (this one)")
            } else {
                format!("<a href=\"../{}\">{short}</a>", page_of(other))
            };
            html.push_str(&format!("<li class=\"id\">{item}</li>\n"));
        }
        html.push_str("</ul>\n</section>\n");
    }
    let footer = format!("Made by ledger {}.", env!("CARGO_PKG_VERSION"));
    Ok(Frame { title: &title, links, footer }.page(&html))
}

fn attempt(of: &AttemptOf) -> Result<String, FigureError> {
    let AttemptOf { id, attempt, figures } = of;
    let short = id.0.prefix(8);
    let mut html = format!(
        "<section id=\"a-{short}\" aria-labelledby=\"h-{short}\">\n<h2 id=\"h-{short}\">Attempt {short}</h2>\n\
         <p>{}, started {} UTC, {}. <span class=\"id\">{id}</span></p>\n",
        escaped(attempt.outcome.name()),
        when(attempt.started_unix_ms),
        took(attempt.wall_ns),
    );
    let faults = attempt.outcome.reason().into_iter().map(|reason| format!("Why: {reason}"));
    let taints = attempt.taints();
    let taints = (!taints.is_empty()).then(|| format!("Tainted: {}", taints.join("; ")));
    let disturbed = attempt.disturbances();
    let disturbed = (!disturbed.is_empty())
        .then(|| format!("Tainted measurements of times, power and energy: {}", disturbed.join("; ")));
    let disagree = attempt
        .estimators_disagree()
        .then(|| "Tainted measurements of power and energy: the two estimators disagree".to_owned());
    let warnings = attempt.warnings.iter().map(|warning| format!("Warning: {warning}"));
    for line in faults.chain(taints).chain(disturbed).chain(disagree).chain(warnings) {
        html.push_str(&format!("<p class=\"warn\">{}</p>\n", escaped(&line)));
    }
    let rows: Vec<Vec<Field>> = attempt
        .metrics
        .iter()
        .map(|(name, metric)| {
            let value = match (metric.value, &metric.reason) {
                (Some(value), _) => Field::number(within(significant, value, metric.uncertainty), value),
                (None, reason) => Field::text(format!("– ({})", reason.as_deref().unwrap_or("not measured"))),
            };
            let meaning = known_metric(name).map_or("", |known| known.meaning);
            vec![Field::text(name.clone()), value, Field::text(metric.unit.clone()), Field::text(meaning)]
        })
        .collect();
    let heads = ["metric", ">value", "unit", "what it is"].map(str::to_owned);
    html.push_str(&table(&format!("metrics-{short}"), &format!("Metrics of attempt {short}"), &heads, &rows, true));
    for (name, one) in figures {
        html.push_str(&figure(&format!("f-{short}-{name}"), one, "../", &|_| false, &[])?);
    }
    let is_shown = |name: &str| !name.starts_with("telemetry.") && name != "energy" && name != "cluster";
    let recorded = attempt.settings.iter().chain(attempt.facts.iter().filter(|(name, _)| is_shown(name)));
    let recorded = Value::Table(recorded.map(|(name, value)| (name.clone(), value.clone())).collect());
    let rows: Vec<(String, String)> =
        recorded.flatten().into_iter().map(|(name, value)| (name, value.to_string())).collect();
    if !rows.is_empty() {
        html.push_str("<details><summary>Recorded, not hashed</summary>\n");
        html.push_str(&pairs(&format!("facts-{short}"), "Recorded, not hashed", ["field", "value"], &rows));
        html.push_str("</details>\n");
    }
    for (title, tail) in [("standard error", &attempt.tail.stderr), ("standard output", &attempt.tail.stdout)] {
        if !tail.trim().is_empty() {
            let line = |line: &str| line.split('\t').map(escaped).collect::<Vec<_>>().join("\t");
            let lines: Vec<String> = tail.lines().map(line).collect();
            html.push_str(&format!(
                "<details><summary>End of {title}</summary><pre>{}</pre></details>\n",
                lines.join("\n")
            ));
        }
    }
    html.push_str("</section>\n");
    Ok(html)
}
