//! Configurations in two metrics at a time.

use super::super::figure::{AxisOf, Figure, FigureError, Mark, Point, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::super::front::{Coordinate, Front, FrontPoint};
use super::super::number::{count, significant};
use super::super::ranking::left_out_text;
use super::{full, largest, optional, scaled, thinned, thinning};
use crate::record::{Direction, Value};

/// The front: a panel for each pair of metrics, the front with its numbers, what is dominated behind it, and the 95% intervals of the means.
///
/// # Errors
/// If there are fewer than two metrics, or no point.
pub fn front_figure(front: &Front) -> Result<Figure, FigureError> {
    let last = front.coordinates.len();
    let pairs: Vec<(usize, usize)> = (0..last).flat_map(|a| (a + 1..last).map(move |b| (a, b))).collect();
    if pairs.is_empty() || front.points.is_empty() {
        return Err(FigureError::Empty("two metrics and a configuration that has both are wanted".to_owned()));
    }
    let scales: Vec<(String, f64)> = (0..last)
        .map(|at| scaled(&front.coordinates[at].unit, largest(front.points.iter().map(|point| point.means[at].0))))
        .collect();
    let panels = pairs.iter().map(|(x, y)| {
        let mut one = panel("", axis_of(front, &scales, *x, ("←", "→")), axis_of(front, &scales, *y, ("↓", "↑")));
        let point = |at: usize, of: &FrontPoint| {
            let metric = |m: usize| (of.means[m].0 * scales[m].1, of.means[m].1.map(|half| half * scales[m].1));
            let (across, up) = (metric(*x), metric(*y));
            let on_front = of.dominated_by.is_none();
            Point {
                at: (across.0, up.0),
                half: (across.1, up.1),
                name: name(front, at, of),
                tag: if on_front { (at + 1).to_string() } else { String::new() },
                run: Some(of.run.id),
            }
        };
        let (mut best, mut beaten) = (Vec::new(), Vec::new());
        for (at, of) in front.points.iter().enumerate() {
            if of.dominated_by.is_none() { best.push(point(at, of)) } else { beaten.push(point(at, of)) }
        }
        let mark = |label: &str, style, shape| Mark { label: label.to_owned(), style, shape };
        let every = thinning(beaten.len());
        let beaten: Vec<Point> = beaten.into_iter().step_by(every).collect();
        if !beaten.is_empty() {
            one.marks.push(mark("dominated", Style::Faint, Shape::Points(beaten)));
        }
        if last == 2 {
            one.marks.push(mark("", Style::Ideal, Shape::Line(vec![staircase(&best, front)])));
        }
        one.marks.push(mark("on the front", Style::Series(0), Shape::Points(best)));
        one
    });
    let panels: Vec<_> = panels.collect();
    let on_front = front.points.iter().filter(|point| point.dominated_by.is_none()).count();
    let metrics: Vec<String> = front.coordinates.iter().map(|one| one.metric.clone()).collect();
    let has_intervals = front.points.iter().any(|point| point.means.iter().any(|(_, half, _)| half.is_some()));
    let mut notes = vec![format!(
        "Numbered: the front, by the means alone ({on_front} of {}). {}",
        count(front.points.len(), "configuration"),
        if has_intervals {
            "Bars are 95% intervals of the means, where they are known."
        } else {
            "No interval is known."
        }
    )];
    notes.extend(thinned("dominated configurations", front.points.len() - on_front));
    let left_out = left_out_text(&front.left_out, "metric");
    notes.extend((!left_out.is_empty()).then(|| left_out.trim_end().to_owned()));
    Ok(Figure {
        title: format!("{}: {}", front.model, metrics.join(" and ")),
        summary: format!(
            "{} of {} are beaten by none in {} at once. Which ones is in the table behind the picture.",
            on_front,
            count(front.points.len(), "configuration"),
            metrics.join(", ")
        ),
        notes,
        key: Vec::new(),
        panels,
        across: 2,
        sheet: sheet(front),
    })
}

/// What is not beaten lies beyond steps, not beyond a line from point to point.
fn staircase(best: &[Point], front: &Front) -> Vec<(f64, f64)> {
    let mut places: Vec<(f64, f64)> = best.iter().map(|point| point.at).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let is_first_then_up = front.coordinates[0].direction == Direction::Minimize;
    let mut line: Vec<(f64, f64)> = Vec::new();
    for place in places {
        if let Some(before) = line.last().copied() {
            line.push(if is_first_then_up { (place.0, before.1) } else { (before.0, place.1) });
        }
        line.push(place);
    }
    line
}

fn axis_of(front: &Front, scales: &[(String, f64)], at: usize, (less, more): (&str, &str)) -> AxisOf {
    let Coordinate { metric, direction, .. } = &front.coordinates[at];
    let arrow = if *direction == Direction::Minimize { less } else { more };
    let (unit, factor) = &scales[at];
    let ends = front.points.iter().flat_map(|point| {
        let (mean, half, _) = point.means[at];
        let half = half.unwrap_or(0.0);
        [mean - half, mean + half].map(|value| value * factor)
    });
    let (low, high) = padded(ends, false);
    axis(&format!("{metric} (better {arrow})"), unit, Scale::Linear(low, high))
}

fn fields(front: &Front, point: &FrontPoint) -> String {
    let names = super::short_names(&front.fields);
    let pairs = names.iter().zip(&point.fields);
    let pairs: Vec<String> = pairs.filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))).collect();
    pairs.join(", ")
}

fn name(front: &Front, at: usize, point: &FrontPoint) -> String {
    let means = point.means.iter().zip(&front.coordinates);
    let means: Vec<String> =
        means.map(|((mean, ..), one)| format!("{} {} {}", one.metric, significant(*mean), one.unit)).collect();
    format!("#{} {}: {}", at + 1, fields(front, point), means.join(", "))
}

fn sheet(front: &Front) -> Sheet {
    let mut heads: Vec<String> = ["number", "run", "on_front"].map(str::to_owned).to_vec();
    for one in &front.coordinates {
        let unit = if one.unit.is_empty() { String::new() } else { format!(" [{}]", one.unit) };
        heads.extend([
            format!("{}{unit}", one.metric),
            format!("{} half_width_95", one.metric),
            format!("{} n", one.metric),
        ]);
    }
    heads.extend(front.fields.iter().cloned());
    let rows = front.points.iter().enumerate().map(|(at, point)| {
        let mut row = vec![(at + 1).to_string(), point.run.id.to_string(), point.dominated_by.is_none().to_string()];
        row.extend(point.means.iter().flat_map(|(mean, half, n)| [full(*mean), optional(*half), n.to_string()]));
        row.extend(point.fields.iter().map(|value| value.as_ref().map_or_else(String::new, Value::to_string)));
        row
    });
    Sheet { heads, rows: rows.collect() }
}
