//! Plots configurations by two metrics at a time.

use super::super::fields::field_text;
use super::super::figure::{AxisOf, Figure, FigureError, Mark, Point, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::super::front::{Coordinate, Front, FrontPoint};
use super::super::left_out::left_out_text;
use super::super::number::{count, significant};
use super::{full, largest, optional, scaled, thinned, thinning};
use crate::record::{Direction, Value};

/// Plots one panel for each pair of metrics.
/// It shows the numbered front, dominated points behind it, and the 95% intervals of the means.
///
/// # Errors
/// If there are fewer than two metrics, or no point.
pub fn front_figure(front: &Front) -> Result<Figure, FigureError> {
    let last = front.coordinates.len();
    let pairs: Vec<(usize, usize)> = (0..last).flat_map(|a| (a + 1..last).map(move |b| (a, b))).collect();
    if pairs.is_empty() || front.points.is_empty() {
        return Err(FigureError::Empty("two metrics and a configuration with both are needed".to_owned()));
    }
    let scales: Vec<(String, f64)> = (0..last)
        .map(|at| scaled(&front.coordinates[at].unit, largest(front.points.iter().map(|point| point.means[at].0))))
        .collect();
    let panels = pairs.iter().map(|(x, y)| {
        let mut one = panel("", axis_of(front, &scales, *x, ("←", "→")), axis_of(front, &scales, *y, ("↓", "↑")));
        let point = |of: &FrontPoint| {
            let metric = |m: usize| (of.means[m].0 * scales[m].1, bar(of, m).map(|half| half * scales[m].1));
            let (across, up) = (metric(*x), metric(*y));
            Point {
                at: (across.0, up.0),
                half: (across.1, up.1),
                name: name(front, of),
                run: Some(of.run.id),
                ..Point::default()
            }
        };
        let (mut best, mut numbers, mut beaten) = (Vec::new(), Vec::new(), Vec::new());
        for of in &front.points {
            if of.dominated_by.is_none() {
                best.push(point(of));
                numbers.push(of.number);
            } else {
                beaten.push(point(of));
            }
        }
        let span = (extent(best.iter().chain(&beaten), |at| at.0), extent(best.iter().chain(&beaten), |at| at.1));
        label(&mut best, &numbers, span);
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
    let on_front = front.on_front;
    let metrics: Vec<String> = front.coordinates.iter().map(|one| one.metric.clone()).collect();
    let has_intervals = front.points.iter().any(|point| (0..last).any(|at| bar(point, at).is_some()));
    let mut notes = vec![format!(
        "Numbered: the front, by the means alone ({on_front} of {}). {}",
        count(front.all, "configuration"),
        if has_intervals {
            "Bars are 95% intervals of the means, where they are known (two values make none)."
        } else {
            "No interval is known."
        }
    )];
    notes.extend(thinned("dominated configurations", front.points.len() - on_front));
    let unlisted = front.all - front.points.len();
    notes.extend(
        (unlisted > 0)
            .then(|| format!("Left out: {unlisted} more that are dominated (`ledger export --to csv` has all).")),
    );
    let left_out = left_out_text(&front.left_out, "metric");
    notes.extend((!left_out.is_empty()).then(|| left_out.trim_end().to_owned()));
    Ok(Figure {
        title: format!("{}: {}", front.model, metrics.join(" and ")),
        summary: format!(
            "{} of {} are beaten by none in {} at once. Which ones is in the table behind the picture.",
            on_front,
            count(front.all, "configuration"),
            metrics.join(", ")
        ),
        notes,
        key: Vec::new(),
        panels,
        across: 2,
        sheet: sheet(front),
    })
}

/// Points closer than this share of the plot share a label.
const COVERED: f64 = 0.005;
/// Most ranges of numbers in one label.
const STRETCHES: usize = 3;

/// Returns the distance between the outermost points along an axis.
fn extent<'a>(points: impl Iterator<Item = &'a Point>, along: impl Fn((f64, f64)) -> f64) -> f64 {
    let ends = points.map(|point| along(point.at)).fold(None, |ends: Option<(f64, f64)>, value| {
        Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    });
    ends.map_or(0.0, |(low, high)| high - low)
}

/// Labels points with their numbers. Points that cover each other share one label, at the first of them.
fn label(points: &mut [Point], numbers: &[usize], span: (f64, f64)) {
    let mut groups: Vec<((f64, f64), usize, Vec<usize>)> = Vec::new();
    for (index, (point, number)) in points.iter().zip(numbers).enumerate() {
        let covers = |at: (f64, f64)| {
            (at.0 - point.at.0).abs() <= COVERED * span.0 && (at.1 - point.at.1).abs() <= COVERED * span.1
        };
        match groups.iter_mut().find(|(at, ..)| covers(*at)) {
            Some((_, _, numbers)) => numbers.push(*number),
            None => groups.push((point.at, index, vec![*number])),
        }
    }
    for (_, first, numbers) in groups {
        points[first].tag = stretches(&numbers);
    }
}

/// Formats ascending numbers as ranges: `1–4, 7`.
fn stretches(numbers: &[usize]) -> String {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => found.push((*number, *number)),
        }
    }
    let text = |(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    let shown: Vec<String> = found.iter().take(STRETCHES).map(text).collect();
    let more = if found.len() > STRETCHES { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Returns the border of the dominated region, which is a staircase and not a line between points.
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

/// Returns the half-width of a metric's error bar. It is `None` for two values, whose range is in tables.
fn bar(point: &FrontPoint, at: usize) -> Option<f64> {
    point.means[at].1.filter(|_| point.places[at].estimate.range().is_none())
}

fn axis_of(front: &Front, scales: &[(String, f64)], at: usize, (less, more): (&str, &str)) -> AxisOf {
    let Coordinate { metric, direction, .. } = &front.coordinates[at];
    let arrow = if *direction == Direction::Minimize { less } else { more };
    let (unit, factor) = &scales[at];
    let ends = front.points.iter().flat_map(|point| {
        let (mean, half) = (point.means[at].0, bar(point, at).unwrap_or(0.0));
        [mean - half, mean + half].map(|value| value * factor)
    });
    let (low, high) = padded(ends, false);
    axis(&format!("{metric} (better {arrow})"), unit, Scale::Linear(low, high))
}

fn fields(front: &Front, point: &FrontPoint) -> String {
    let names = super::short_names(&front.fields);
    let shown = |((field, name), value): ((&String, &String), &Option<Value>)| {
        value.as_ref().map(|value| format!("{name} {}", field_text(field, Some(value))))
    };
    front.fields.iter().zip(&names).zip(&point.fields).filter_map(shown).collect::<Vec<_>>().join(", ")
}

fn name(front: &Front, point: &FrontPoint) -> String {
    let means = point.means.iter().zip(&front.coordinates);
    let means: Vec<String> =
        means.map(|((mean, ..), one)| format!("{} {} {}", one.metric, significant(*mean), one.unit)).collect();
    format!("#{} {}: {}", point.number, fields(front, point), means.join(", "))
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
    let rows = front.points.iter().map(|point| {
        let mut row =
            vec![point.number.to_string(), point.run.id.to_string(), point.dominated_by.is_none().to_string()];
        row.extend(point.means.iter().flat_map(|(mean, half, n)| [full(*mean), optional(*half), n.to_string()]));
        row.extend(point.fields.iter().map(|value| value.as_ref().map_or_else(String::new, Value::to_string)));
        row
    });
    Sheet { heads, rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_cover_each_other_have_one_label() {
        let at = [(1.0, 1.0), (1.0, 1.0), (1.001, 1.0), (1.0, 1.0), (3.0, 0.5), (1.0, 1.0), (2.0, 0.7)];
        let mut points: Vec<Point> = at.iter().map(|at| Point { at: *at, ..Point::default() }).collect();
        label(&mut points, &[1, 2, 3, 4, 5, 7, 8], (2.0, 0.5));
        let tags: Vec<&str> = points.iter().map(|point| point.tag.as_str()).collect();
        assert_eq!(tags, ["1–4, 7", "", "", "", "5", "", "8"]);
        assert_eq!(stretches(&[1, 2, 4, 6, 8]), "1, 2, 4, 6, …");
        let mut equal = vec![Point::default(); 2];
        label(&mut equal, &[1, 2], (0.0, 0.0));
        assert_eq!((equal[0].tag.as_str(), equal[1].tag.as_str()), ("1, 2", ""), "a picture without extent");
    }
}
