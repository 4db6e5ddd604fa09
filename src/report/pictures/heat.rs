//! Plots a metric over two fields as a heat map.

use super::super::figure::{Cell, Figure, FigureError, Key, Mark, Scale, Shape, Sheet, Style, axis, panel};
use super::scaling::short;
use super::{Mean, Subject, full, largest, optional, said, scaled};
use crate::analysis::{Asked, Configuration, Summary, configurations, is_version};
use crate::record::{Digest, Direction, Value, count};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Most rows or columns that are drawn.
const MOST: usize = 40;

/// Values of both fields, the configuration shown there, its mean (or that of several), and how many there are.
type Shown<'a, T> = (&'a (Value, Value), &'a Configuration<'a, T>, Mean, usize);

/// Values of both fields, and the configurations that have them.
type Field<'a, T> = ((Value, Value), Vec<(&'a Configuration<'a, T>, f64)>);

/// The two fields, and what a cell shows if it has several configurations.
#[derive(Clone, Copy, Debug)]
pub struct Heat<'a> {
    /// The field along x.
    pub x: &'a str,
    /// The field along y, top to bottom.
    pub y: &'a str,
    /// Whether a cell shows its best configuration instead of the mean over all. It requires a known direction.
    pub best: bool,
}

/// Plots the heat map.
///
/// # Errors
/// If no attempt counts, a field has too many values, or `best` lacks a direction.
pub fn heat<T: Asked>(subject: &Subject<'_, T>, asked: &Heat<'_>) -> Result<Figure, FigureError> {
    let found = parts(subject, asked);
    if asked.best && subject.direction.is_none() {
        let text =
            format!("the better direction of `{}` is unknown (add --direction minimize or maximize)", subject.metric);
        return Err(FigureError::Asked(text));
    }
    let mut fields: Vec<Field<'_, T>> = Vec::new();
    let mut places: BTreeMap<(Digest, Digest), usize> = BTreeMap::new();
    for (at, one) in &found {
        let Some(mean) = subject.plain_mean(one) else { continue };
        match places.entry((at.0.digest(), at.1.digest())) {
            Entry::Occupied(place) => fields[*place.get()].1.push((one, mean)),
            Entry::Vacant(place) => {
                place.insert(fields.len());
                fields.push((at.clone(), vec![(one, mean)]));
            }
        }
    }
    if fields.is_empty() {
        return Err(subject.empty());
    }
    let several_programs: Vec<&str> =
        fields.iter().filter_map(|(_, there)| differs_in_program(subject, there)).collect();
    let (across, down) = (levels(fields.iter().map(|(at, _)| &at.0)), levels(fields.iter().map(|(at, _)| &at.1)));
    if across.len().max(down.len()) > MOST {
        return Err(FigureError::Asked(format!(
            "a grid of {} × {} values cannot be read (--where selects)",
            across.len(),
            down.len()
        )));
    }
    let better = |a: f64, b: f64| match subject.direction {
        Some(Direction::Maximize) => b.total_cmp(&a),
        _ => a.total_cmp(&b),
    };
    let several = fields.iter().filter(|(_, there)| there.len() > 1).count();
    let shown: Vec<Shown<'_, T>> = fields
        .iter()
        .filter_map(|(at, there)| {
            let (one, _) = there.iter().min_by(|a, b| better(a.1, b.1))?;
            let mean = if asked.best || there.len() == 1 { subject.mean(one)? } else { pooled(there)? };
            Some((at, *one, mean, there.len()))
        })
        .collect();
    let values: Vec<f64> = shown.iter().map(|(_, _, mean, _)| mean.mean).collect();
    let (unit, factor) = scaled(subject.unit, largest(values.iter().copied()));
    // A mean over several configurations is worse than the best of them, so it cannot be marked as the best.
    let is_comparable = asked.best || several == 0;
    let best = subject.direction.filter(|_| is_comparable).and_then(|direction| {
        values.iter().copied().reduce(|a, b| match direction {
            Direction::Minimize => a.min(b),
            Direction::Maximize => a.max(b),
        })
    });
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    let form = Form::of(low * factor, high * factor);
    let mut sheet = Sheet::new(&[asked.x, asked.y, "mean", "half_width_95", "n", "configurations", "unit", "run"]);
    let mut cells = Vec::new();
    for ((x, y), one, mean, count) in &shown {
        let place = |levels: &[Value], value: &Value| levels.iter().position(|level| level == value).unwrap_or(0);
        let run = subject.run_of(one);
        let mut lines = vec![form.text(mean.mean * factor)];
        lines.extend((mean.n > 1).then(|| match mean.bar() {
            Some(half) => format!("± {}", super::significant(half * factor)),
            None => format!("n = {}", mean.n),
        }));
        cells.push(Cell {
            at: (place(&across, x), place(&down, y)),
            depth: Some(if high > low { (mean.mean - low) / (high - low) } else { 0.5 }),
            lines,
            is_best: best.is_some_and(|best| best.to_bits() == mean.mean.to_bits()),
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
    let has_interval = shown.iter().any(|(_, _, mean, _)| mean.n > 1 && mean.bar().is_some());
    let mut notes = vec![format!(
        "{}{shown_unit}{}.{}",
        subject.metric,
        super::better(subject.direction),
        if has_interval { " ± is the half-width of the mean's 95% interval." } else { "" }
    )];
    let (drawn, typed) = if best.is_some() {
        ("Darker is more; the best one is framed.", "* is the best one.")
    } else {
        ("Darker is more.", "")
    };
    if several > 0 {
        notes.push(if asked.best {
            format!("{} with several configurations: the best of them is shown.", count(several, "field"))
        } else {
            format!("{} with several configurations: the mean over these n is shown, and no field is marked as the best (--best shows the best of them, --where selects).", count(several, "field"))
        });
    }
    if let Some(first) = several_programs.first() {
        notes.push(format!(
            "{} with several versions of the program, which differ in {first}, for example (--where selects one).",
            count(several_programs.len(), "field")
        ));
    }
    let missing = across.len() * down.len() - shown.len();
    if missing > 0 {
        notes.push(format!("{} empty: no attempt there counts.", count(missing, "field")));
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
            "A grid of {} by {}.{}",
            across.len(),
            down.len(),
            best_name.map_or_else(String::new, |name| format!(" The best is {name}."))
        ),
        key: vec![Key::new(drawn, typed)],
        notes,
        panels: vec![one],
        across: 1,
        sheet,
    })
}

/// Returns the configurations by the values of both fields.
/// A configuration whose attempts differ in a field (the seed, or a fact) is split into parts that agree.
fn parts<'a, T: Asked>(subject: &Subject<'a, T>, asked: &Heat<'_>) -> Vec<((Value, Value), Configuration<'a, T>)> {
    let mut found: Vec<((Value, Value), Configuration<'a, T>)> = Vec::new();
    for one in configurations(subject.trials, &[]) {
        let mut places: BTreeMap<(Digest, Digest), usize> = BTreeMap::new();
        for trial in one.trials {
            let (Some(x), Some(y)) = (trial.field(asked.x), trial.field(asked.y)) else { continue };
            match places.entry((x.digest(), y.digest())) {
                Entry::Occupied(place) => found[*place.get()].1.trials.push(trial),
                Entry::Vacant(place) => {
                    place.insert(found.len());
                    found.push(((x, y), Configuration { agreed: Vec::new(), trials: vec![trial] }));
                }
            }
        }
    }
    found
}

/// Returns a field that shows that the configurations are different versions of a program.
fn differs_in_program<'a, T: Asked>(
    subject: &Subject<'a, T>,
    there: &[(&Configuration<'_, T>, f64)],
) -> Option<&'a str> {
    let value = |one: &Configuration<'_, T>, name: &str| Some(one.first()?.field(name)?.digest());
    let mut names = subject.names.identity.iter().map(String::as_str).filter(|name| is_version(name));
    names.find(|name| there.iter().any(|(one, _)| value(one, name) != value(there[0].0, name)))
}

/// Returns the mean over the means of several configurations.
fn pooled<T: Asked>(there: &[(&Configuration<'_, T>, f64)]) -> Option<Mean> {
    let summary = Summary::of(&there.iter().map(|(_, mean)| *mean).collect::<Vec<f64>>())?;
    // There is no interval, because configurations do not differ by chance.
    Some(Mean { mean: summary.mean, half: None, n: summary.n })
}

/// Sorts values: numbers by size, then texts alphabetically.
fn levels<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let levels: BTreeMap<Digest, &Value> = values.map(|value| (value.digest(), value)).collect();
    let mut levels: Vec<Value> = levels.into_values().cloned().collect();
    levels.sort_by(|a, b| match (a.as_float(), b.as_float()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.to_string().cmp(&b.to_string()),
    });
    levels
}

/// The number format of all cells of a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// Fixed-point with this many decimals.
    Plain(usize),
    /// Scientific with this many decimals.
    Exponent(usize),
}

impl Form {
    /// Returns the format whose digits distinguish the values.
    /// It has four digits of the largest value and two of the range, or more.
    fn of(low: f64, high: f64) -> Self {
        let size = low.abs().max(high.abs());
        let digits = |needed: i32, most: usize| usize::try_from(needed).unwrap_or(0).min(most);
        let (Some(top), spread) = (exponent(size), exponent(high - low)) else { return Self::Plain(0) };
        if (-3..5).contains(&top) {
            return Self::Plain(digits((3 - top).max(spread.map_or(0, |spread| 1 - spread)), 12));
        }
        Self::Exponent(digits(spread.map_or(2, |spread| (top - spread + 1).max(2)), 12))
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Exponent(digits) => format!("{value:.digits$e}"),
            Self::Plain(digits) => {
                let text = format!("{value:.digits$}");
                // A non-zero value is not shown as zero.
                let is_blank = value != 0.0 && text.parse::<f64>().is_ok_and(|shown| shown == 0.0);
                if is_blank { format!("{value:.1e}") } else { text }
            }
        }
    }
}

/// Returns the power of ten of a number; `None` for zero and non-finite numbers.
fn exponent(value: f64) -> Option<i32> {
    let text = format!("{:e}", value.abs());
    if value == 0.0 || !value.is_finite() {
        return None;
    }
    text.rsplit_once('e')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_grid_stay_distinguishable() {
        let shown = |values: &[f64]| -> Vec<String> {
            let (low, high) =
                values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
            values.iter().map(|value| Form::of(low, high).text(*value)).collect()
        };
        assert_eq!(shown(&[104.0, 314.0]), ["104.0", "314.0"]);
        assert_eq!(shown(&[2.3012, 2.3014]), ["2.30120", "2.30140"]);
        assert_eq!(shown(&[2e-5, 4.5e-5]), ["2.00e-5", "4.50e-5"]);
        assert_eq!(shown(&[0.002, 0.004]), ["0.002000", "0.004000"]);
        assert_eq!(shown(&[1e9, 1.002e9]), ["1.0000e9", "1.0020e9"]);
        assert_eq!(shown(&[0.0, 4e-5, 3.0]), ["0.000", "4.0e-5", "3.000"]);
        assert_eq!(shown(&[0.0]), ["0"]);
        assert_eq!(shown(&[99_999.0, 12.0]), ["99999", "12"]);
    }
}
