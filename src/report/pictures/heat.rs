//! A metric over two fields at once, as a grid.

use super::super::figure::{Cell, Figure, FigureError, Mark, Scale, Shape, Sheet, Style, axis, panel};
use super::scaling::short;
use super::{Mean, Subject, full, largest, optional, said, scaled};
use crate::analysis::{Configuration, Summary, configurations};
use crate::record::{Direction, Value};
use std::cmp::Ordering;

/// Rows and columns beyond make no picture.
const MOST: usize = 40;

/// The values of both fields, and the configurations that have them.
type Field<'a> = ((Value, Value), Vec<(&'a Configuration<'a>, Mean)>);

/// The two fields, and what a field of the grid shows where several configurations are in it.
#[derive(Clone, Copy, Debug)]
pub struct Heat<'a> {
    /// The field from left to right.
    pub x: &'a str,
    /// The field from the top down.
    pub y: &'a str,
    /// Whether the best configuration stands for the others, instead of the mean over all attempts.
    pub best: bool,
}

/// The grid.
///
/// # Errors
/// If nothing counts, or there are too many values.
pub fn heat(subject: &Subject<'_>, asked: &Heat<'_>) -> Result<Figure, FigureError> {
    let found = parts(subject, asked);
    let direction = subject.direction.unwrap_or(Direction::Minimize);
    let mut fields: Vec<Field<'_>> = Vec::new();
    for (at, one) in &found {
        let Some(mean) = subject.mean(one) else { continue };
        match fields.iter_mut().find(|(there, _)| there == at) {
            Some((_, there)) => there.push((one, mean)),
            None => fields.push((at.clone(), vec![(one, mean)])),
        }
    }
    if fields.is_empty() {
        return Err(subject.empty());
    }
    let (across, down) = (levels(fields.iter().map(|(at, _)| &at.0)), levels(fields.iter().map(|(at, _)| &at.1)));
    if across.len().max(down.len()) > MOST {
        return Err(FigureError::Empty(format!(
            "a grid of {} × {} values cannot be read (--where selects)",
            across.len(),
            down.len()
        )));
    }
    let better = |a: &Mean, b: &Mean| match direction {
        Direction::Minimize => a.mean.total_cmp(&b.mean),
        Direction::Maximize => b.mean.total_cmp(&a.mean),
    };
    let several = fields.iter().filter(|(_, there)| there.len() > 1).count();
    let shown: Vec<(&(Value, Value), &Configuration<'_>, Mean, usize)> = fields
        .iter()
        .filter_map(|(at, there)| {
            let (one, mean) = there.iter().min_by(|a, b| better(&a.1, &b.1))?;
            let mean = if asked.best || there.len() == 1 { mean.clone() } else { pooled(subject, there)? };
            Some((at, *one, mean, there.len()))
        })
        .collect();
    let values: Vec<f64> = shown.iter().map(|(_, _, mean, _)| mean.mean).collect();
    let (unit, factor) = scaled(subject.unit, largest(values.iter().copied()));
    let best = values.iter().copied().reduce(|a, b| match direction {
        Direction::Minimize => a.min(b),
        Direction::Maximize => a.max(b),
    });
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    let digits = digits(low * factor, high * factor);
    let mut sheet = Sheet::new(&[asked.x, asked.y, "mean", "half_width_95", "n", "configurations", "unit", "run"]);
    let mut cells = Vec::new();
    for ((x, y), one, mean, count) in &shown {
        let place = |levels: &[Value], value: &Value| levels.iter().position(|level| level == value).unwrap_or(0);
        let run = one.run().map(|run| run.id);
        let mut lines = vec![format!("{:.digits$}", mean.mean * factor)];
        lines.extend((mean.n > 1).then(|| match mean.half {
            Some(half) => format!("± {}", super::significant(half * factor)),
            None => format!("n = {}", mean.n),
        }));
        cells.push(Cell {
            at: (place(&across, x), place(&down, y)),
            depth: Some(if high > low { (mean.mean - low) / (high - low) } else { 0.5 }),
            lines,
            is_best: Some(mean.mean) == best,
            name: format!("{} {x}, {} {y}: {}", short(asked.x), short(asked.y), said(mean, &unit, factor)),
            run,
        });
        let run = run.map_or_else(String::new, |run| run.to_string());
        let numbers = [full(mean.mean), optional(mean.half), mean.n.to_string(), count.to_string()];
        let told = [x.to_string(), y.to_string()].into_iter().chain(numbers);
        sheet.rows.push(told.chain([subject.unit.to_owned(), run]).collect());
    }
    let names = |levels: &[Value]| Scale::Names(levels.iter().map(Value::to_string).collect());
    let mut one = panel("", axis(short(asked.x), "", names(&across)), axis(short(asked.y), "", names(&down)));
    one.marks = vec![Mark { label: String::new(), style: Style::Series(0), shape: Shape::Cells(cells) }];
    let shown_unit = if unit.is_empty() { String::new() } else { format!(" in {unit}") };
    let mut notes = vec![format!(
        "{}{shown_unit}{}; darker is more; the best one is framed. ± is half the width of the mean's 95% interval.",
        subject.metric,
        subject.better()
    )];
    if several > 0 {
        notes.push(if asked.best {
            format!("{several} fields hold several configurations, and show the best of them.")
        } else {
            format!("{several} fields hold several configurations, and show the mean over all their attempts (--best shows the best).")
        });
    }
    let missing = across.len() * down.len() - shown.len();
    if missing > 0 {
        notes.push(format!("{missing} fields are empty: no attempt there counts."));
    }
    notes.extend(subject.left_out());
    let best_name = one.marks.iter().find_map(|mark| match &mark.shape {
        Shape::Cells(cells) => cells.iter().find(|cell| cell.is_best).map(|cell| cell.name.clone()),
        _ => None,
    });
    Ok(Figure {
        title: format!(
            "{}: {}{shown_unit} by {} and {}",
            subject.model,
            subject.metric,
            short(asked.x),
            short(asked.y)
        ),
        summary: format!(
            "A grid of {} by {}. The best is {}.",
            across.len(),
            down.len(),
            best_name.unwrap_or_default()
        ),
        notes,
        panels: vec![one],
        across: 1,
        sheet,
    })
}

/// Configurations, those whose attempts differ in one of the fields (the seed, or a fact) in parts that agree.
fn parts<'a>(subject: &Subject<'a>, asked: &Heat<'_>) -> Vec<((Value, Value), Configuration<'a>)> {
    let mut found: Vec<((Value, Value), Configuration<'a>)> = Vec::new();
    for one in configurations(subject.trials, &[]) {
        let first = found.len();
        for trial in one.trials {
            let (Some(x), Some(y)) = (trial.field(asked.x), trial.field(asked.y)) else { continue };
            match found[first..].iter_mut().find(|(at, _)| at.0 == x && at.1 == y) {
                Some((_, there)) => there.trials.push(trial),
                None => found.push(((x, y), Configuration { agreed: Vec::new(), trials: vec![trial] })),
            }
        }
    }
    found
}

/// The mean over all attempts of several configurations.
fn pooled(subject: &Subject<'_>, there: &[(&Configuration<'_>, Mean)]) -> Option<Mean> {
    let values: Vec<f64> = there.iter().flat_map(|(one, _)| one.values(subject.metric, subject.admitted)).collect();
    let summary = Summary::of(&values)?;
    // What differs between configurations is no chance: no interval is told.
    Some(Mean { mean: summary.mean, half: None, n: summary.n })
}

/// Values in their order: numbers by size, texts by the alphabet.
fn levels<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let mut levels: Vec<Value> = Vec::new();
    for value in values {
        if !levels.contains(value) {
            levels.push(value.clone());
        }
    }
    levels.sort_by(|a, b| match (a.as_float(), b.as_float()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.to_string().cmp(&b.to_string()),
    });
    levels
}

/// As many digits behind the point as tell the values apart, all of them with equally many.
fn digits(low: f64, high: f64) -> usize {
    let size = low.abs().max(high.abs());
    [(1000.0, 0), (100.0, 1), (10.0, 2), (1.0, 3)].into_iter().find(|(limit, _)| size >= *limit).map_or(4, |(_, n)| n)
}
