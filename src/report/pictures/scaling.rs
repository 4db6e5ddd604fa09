//! A metric over the number of GPUs, or another field that counts.

use super::super::figure::{Figure, FigureError, Mark, Point, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::{Mean, Subject, counts, full, intervals, labels, largest, optional, said, scaled};
use crate::analysis::{self, Configuration, configurations};
use std::collections::{BTreeMap, BTreeSet};

/// Lines beyond are left out, and that is said.
const LINES: usize = 8;
/// Metrics that twice as many GPUs would ideally double, and those that they would halve.
const DOUBLED: [&str; 2] = ["throughput", "achieved_tflops"];
const HALVED: [&str; 2] = ["epoch_time", "train_time"];

/// The metric over `field`, a line for each configuration of the other fields, and what would be ideal.
///
/// # Errors
/// If there is nothing to draw, or the field has no numbers.
pub fn scaling(subject: &Subject<'_>, field: &str) -> Result<Figure, FigureError> {
    let found = configurations(subject.trials, &[]);
    let mut points: Vec<(f64, &Configuration<'_>, Mean)> = Vec::new();
    for one in &found {
        let at = one.run().and_then(|run| analysis::field(run, None, field)).and_then(|value| value.as_float());
        let Some(at) = at.filter(|at| at.is_finite()) else { continue };
        points.extend(subject.mean(one).map(|mean| (at, one, mean)));
    }
    if points.is_empty() {
        return Err(subject.empty());
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut levels: Vec<f64> = points.iter().map(|(at, ..)| *at).collect();
    levels.dedup();
    if levels.len() < 2 {
        return Err(FigureError::Empty(format!("`{field}` is {} in all attempts that count", levels[0])));
    }
    let lines = lines(&points, field);
    let (unit, factor) = scaled(subject.unit, largest(points.iter().map(|(_, _, mean)| mean.mean)));
    let left_out = lines.len().saturating_sub(LINES);
    let is_linear = DOUBLED.contains(&subject.metric);
    let has_ideal = field == "hardware.gpus" && (is_linear || HALVED.contains(&subject.metric));
    let mut sheet = Sheet::new(&["line", "field", "value", "run", "mean", "half_width_95", "n", "unit"]);
    let mut marks = Vec::new();
    let mut highs = Vec::new();
    let mut shown_means = Vec::new();
    for (series, (label, of_line)) in lines.iter().take(LINES).enumerate() {
        let of_line: Vec<&(f64, &Configuration<'_>, Mean)> = of_line.iter().map(|at| &points[*at]).collect();
        let style = Style::Series(series);
        if has_ideal && let Some((first, _, base)) = of_line.first() {
            let ideal = |at: f64| base.mean * factor * if is_linear { at / first } else { first / at };
            let piece: Vec<(f64, f64)> = of_line.iter().map(|(at, ..)| (*at, ideal(*at))).collect();
            highs.extend(piece.iter().map(|(_, y)| *y));
            let label = if series == 0 { "ideal, from the smallest" } else { "" };
            marks.push(Mark { label: label.to_owned(), style: Style::Ideal, shape: Shape::Line(vec![piece]) });
        }
        let piece: Vec<(f64, f64)> = of_line.iter().map(|(at, _, mean)| (*at, mean.mean * factor)).collect();
        let dots = of_line.iter().map(|(at, one, mean)| Point {
            at: (*at, mean.mean * factor),
            half: (None, mean.half.map(|half| half * factor)),
            name: format!("{label}; {} {at}: {}", short(field), said(mean, &unit, factor)),
            tag: String::new(),
            run: one.run().map(|run| run.id),
        });
        let dots: Vec<Point> = dots.collect();
        for (at, one, mean) in &of_line {
            highs.extend([mean.mean, mean.mean + mean.half.unwrap_or(0.0)].map(|value| value * factor));
            let run = one.run().map_or_else(String::new, |run| run.id.to_string());
            let cells = [full(mean.mean), optional(mean.half), mean.n.to_string(), subject.unit.to_owned()];
            sheet.rows.push([label.clone(), field.to_owned(), full(*at), run].into_iter().chain(cells).collect());
            shown_means.push(mean.clone());
        }
        marks.push(Mark { label: String::new(), style, shape: Shape::Line(vec![piece]) });
        marks.push(Mark { label: label.clone(), style, shape: Shape::Points(dots) });
    }
    let (low, high) = padded(levels.iter().copied(), false);
    let x = axis(short(field), "", Scale::At(low, high, levels.clone()));
    let (low, high) = padded(highs, true);
    let mut one = panel("", x, axis(&subject.name(), &unit, Scale::Linear(low, high)));
    one.marks = marks;
    let mut notes = vec![format!(
        "{}; {}.",
        counts(shown_means.iter().map(|mean| mean.n)),
        intervals(shown_means.iter().map(|mean| mean.half))
    )];
    if left_out > 0 {
        notes.push(format!("{left_out} more lines are left out (--where selects)."));
    }
    notes.extend(subject.left_out());
    Ok(Figure {
        title: format!("{}: {} by {}", subject.model, subject.metric, short(field)),
        summary: format!(
            "{} over {} ({}), {} lines. Values and runs are in the table behind the picture.",
            subject.metric,
            short(field),
            levels.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
            lines.len().min(LINES)
        ),
        notes,
        panels: vec![one],
        across: 1,
        sheet,
    })
}

/// The last part of a field's name.
pub(super) fn short(field: &str) -> &str {
    field.rsplit_once('.').map_or(field, |(_, last)| last)
}

/// Which points belong together: those that agree in all fields but the one of the axis and those that go with it. The longest lines first.
fn lines(points: &[(f64, &Configuration<'_>, Mean)], field: &str) -> Vec<(String, Vec<usize>)> {
    let runs: Vec<_> = points.iter().filter_map(|(_, one, _)| one.run()).collect();
    // A field that has one value for each value of the axis says nothing more: the whole batch of so many GPUs, their names.
    let follows = |name: &String| {
        let mut of_level: BTreeMap<u64, BTreeSet<Option<String>>> = BTreeMap::new();
        for (at, one, _) in points {
            let value = one.run().and_then(|run| analysis::field(run, None, name)).map(|value| value.to_string());
            of_level.entry(at.to_bits()).or_default().insert(value);
        }
        of_level.values().all(|values| values.len() == 1)
    };
    let without: Vec<String> =
        analysis::differing(&runs).into_iter().filter(|name| name == field || follows(name)).collect();
    let without: Vec<&str> = without.iter().map(String::as_str).chain([field]).collect();
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, label) in labels(&runs, &without).into_iter().enumerate() {
        found.entry(label).or_default().push(at);
    }
    let mut found: Vec<(String, Vec<usize>)> = found.into_iter().collect();
    found.sort_by_key(|(label, points)| (std::cmp::Reverse(points.len()), super::natural(label)));
    found
}
