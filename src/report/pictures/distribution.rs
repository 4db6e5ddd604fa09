//! Plots the distribution of a metric: every attempt as a point, in groups.

use super::super::figure::{
    Figure, FigureError, Mark, Point, Quartiles, Scale, Shape, Sheet, Style, axis, padded, panel,
};
use super::{Mean, Subject, agreed_label, full, intervals, labels_among, largest, optional, said, scaled};
use crate::analysis::{Asked, Configuration, configurations, quartiles};
use crate::record::{Direction, count};

/// Further rows are left out with a note.
const ROWS: usize = 24;
/// Least number of values with a box; fewer values are clearer without quartiles.
const BOXED: usize = 5;
/// Vertical offsets of points, so that equal values stay visible.
pub(super) const JITTER: [f64; 5] = [0.0, -0.12, 0.12, -0.22, 0.22];

/// Plots the attempts of each configuration, or of all that agree on the fields `by`.
/// The best group is first, or the one with the smallest mean if the better direction is unknown.
///
/// # Errors
/// If no attempt counts.
pub fn distribution<T: Asked>(subject: &Subject<'_, T>, by: &[String]) -> Result<Figure, FigureError> {
    let found = configurations(subject.trials, by);
    let mut ranked: Vec<(&Configuration<'_, T>, f64)> =
        found.iter().filter_map(|one| Some((one, subject.plain_mean(one)?))).collect();
    ranked.sort_by(|(_, a), (_, b)| match subject.direction {
        Some(Direction::Maximize) => b.total_cmp(a),
        _ => a.total_cmp(b),
    });
    let more = ranked.len().saturating_sub(ROWS);
    let groups: Vec<(&Configuration<'_, T>, Mean)> =
        ranked.into_iter().take(ROWS).filter_map(|(one, _)| Some((one, subject.mean(one)?))).collect();
    if groups.is_empty() {
        return Err(subject.empty());
    }
    let firsts: Vec<&T> = groups.iter().filter_map(|(one, _)| one.first()).collect();
    let told = labels_among(&firsts, subject.names, &[]);
    let named = |(at, (one, _)): (usize, &(&Configuration<'_, T>, Mean))| {
        agreed_label(one).unwrap_or_else(|| told.get(at).cloned().unwrap_or_default())
    };
    let named: Vec<String> = groups.iter().enumerate().map(named).collect();
    // No field shows the version of a program, so equal labels get the run's id.
    let label = |at: usize| match subject.run_of(groups[at].0) {
        Some(run) if named.iter().filter(|other| **other == named[at]).count() > 1 => {
            format!("{} {}", named[at], run.0.prefix(8))
        }
        _ => named[at].clone(),
    };
    let (unit, factor) = scaled(subject.unit, largest(groups.iter().map(|(_, mean)| mean.mean)));
    let mut sheet =
        Sheet::new(&["group", "run", "attempt", "value", "unit", "group_mean", "group_half_width_95", "group_n"]);
    let (mut values, mut dots, mut means, mut boxes, mut names) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (row, (one, mean)) in groups.iter().enumerate() {
        let label = label(row);
        let middle = f64::from(u16::try_from(row).unwrap_or(u16::MAX)) + 0.5;
        let mut own = Vec::new();
        for trial in &one.trials {
            let Ok(value) = trial.measured(subject.metric, subject.admitted) else { continue };
            let jitter = if mean.n > 1 { JITTER[own.len() % JITTER.len()] } else { 0.0 };
            dots.push(Point {
                at: (value * factor, middle + jitter),
                name: format!(
                    "{label}: {} {unit}, run {}",
                    super::significant(value * factor),
                    trial.run_id().0.prefix(8)
                ),
                run: Some(trial.run_id()),
                ..Point::default()
            });
            own.push(value * factor);
            let cells = [
                label.clone(),
                trial.run_id().to_string(),
                trial.id().to_string(),
                full(value),
                subject.unit.to_owned(),
            ];
            let of_group = [full(mean.mean), optional(mean.half), mean.n.to_string()];
            sheet.rows.push(cells.into_iter().chain(of_group).collect());
        }
        if own.len() >= BOXED {
            boxes.extend(quartiles(&own).map(|at| Quartiles { row, at }));
        }
        means.push(Point {
            at: (mean.mean * factor, middle),
            half: (mean.bar().map(|half| half * factor), None),
            name: format!("{label}: {}", said(mean, &unit, factor)),
            run: subject.run_of(one),
            ..Point::default()
        });
        let half = mean.bar().unwrap_or(0.0);
        values.extend(own);
        values.extend([mean.mean - half, mean.mean + half].map(|value| value * factor));
        names.push(if mean.n > 1 { format!("{label} (n = {})", mean.n) } else { label });
    }
    let from_zero = values.iter().all(|value| *value >= 0.0) && is_wide(&values);
    let (low, high) = padded(values, from_zero);
    let has_boxes = !boxes.is_empty();
    let first = names.first().cloned().unwrap_or_default();
    let mut one = panel("", axis(&subject.name(), &unit, Scale::Linear(low, high)), axis("", "", Scale::Names(names)));
    let mark = |label: &str, style, shape| Mark { label: label.to_owned(), style, shape };
    one.marks = vec![mark("", Style::Faint, Shape::Boxes(boxes))];
    let is_repeated = groups.iter().any(|(_, mean)| mean.n > 1);
    if is_repeated {
        one.marks.push(mark("an attempt", Style::Faint, Shape::Points(dots)));
    }
    one.marks.push(mark(if is_repeated { "the mean" } else { "" }, Style::Series(0), Shape::Points(means)));
    let mut notes = vec![format!("{}.", intervals(groups.iter().map(|(_, mean)| mean.bar())))];
    if has_boxes {
        notes.push(format!("Boxes: quartiles and median, of groups of at least {BOXED}."));
    }
    if more > 0 {
        let which = if subject.direction.is_some() { "worse" } else { "larger" };
        let left_out = count(more, "group");
        notes.push(format!("Left out: {left_out} with {which} means (--where selects, --by groups)."));
    }
    notes.extend(subject.left_out());
    Ok(Figure {
        title: format!("{}: {} of {}", subject.model, subject.metric, count(groups.len(), "group")),
        summary: format!(
            "{} by group, {} first: {}. Every attempt is in the table behind the picture.",
            subject.metric,
            if subject.direction.is_some() { "best" } else { "smallest" },
            groups.first().map_or_else(String::new, |(_, mean)| format!("{first} with {}", said(mean, &unit, factor)))
        ),
        notes,
        key: Vec::new(),
        panels: vec![one],
        across: 1,
        sheet,
    })
}

/// Whether values spread so far that an axis from zero still separates them.
pub(super) fn is_wide(values: &[f64]) -> bool {
    let (low, high) = values.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
    high - low > 0.4 * high
}
