//! Plots a metric over the number of GPUs, or over another numeric field.

use super::super::figure::{Figure, FigureError, Mark, Point, Scale, Shape, Sheet, Style, axis, padded, panel};
use super::{Mean, Subject, counts, full, intervals, labels_by, largest, optional, said, scaled};
use crate::analysis::{self, Asked, Configuration, Names, configurations};
use crate::record::{Value, count};
use std::collections::BTreeMap;

/// Further lines are left out with a note.
const LINES: usize = 8;
/// Metrics that twice as many GPUs would ideally double, and those that they would halve.
/// `train_time` is halved only if the work stays the same.
const DOUBLED: [&str; 2] = ["throughput", "achieved_tflops"];
const HALVED: [&str; 2] = ["epoch_time", TRAINING];
const TRAINING: &str = "train_time";
const GPUS: &str = "hardware.gpus";
const EACH: &str = "training.batch_size";
const ALL: &str = "training.batch_global";
/// Fields that only runs on several GPUs have, or that are `none` on one GPU.
const OF_SEVERAL: [&str; 3] = ["hardware.parallelism", "training.learning_rate_scaling", "cuda.nccl"];

/// Plots the metric over `field`, with a line for each configuration of the other fields and an ideal line.
///
/// # Errors
/// If no attempt counts, or the field has fewer than two numbers.
pub fn scaling<T: Asked>(subject: &Subject<'_, T>, field: &str) -> Result<Figure, FigureError> {
    let found = configurations(subject.trials, &[]);
    let mut points: Vec<At<'_, T>> = Vec::new();
    for one in &found {
        let at = value(one, field).and_then(|value| value.as_float());
        let Some(at) = at.filter(|at| at.is_finite()) else { continue };
        points.extend(subject.plain_mean(one).map(|mean| (at, one, mean)));
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
    let Lines { lines, confounded } = lines(&points, subject.names, field);
    let (unit, factor) = scaled(subject.unit, largest(points.iter().map(|(_, _, mean)| *mean)));
    let left_out = lines.len().saturating_sub(LINES);
    let is_linear = DOUBLED.contains(&subject.metric);
    let has_ideal = field == GPUS && (is_linear || HALVED.contains(&subject.metric)) && confounded.is_empty();
    let mut is_without = false;
    let mut sheet = Sheet::new(&["line", "field", "value", "run", "mean", "half_width_95", "n", "unit"]);
    let mut marks = Vec::new();
    let mut highs = Vec::new();
    let mut shown_means = Vec::new();
    for (series, (label, of_line)) in lines.iter().take(LINES).enumerate() {
        let of_line = of_line.iter().map(|at| &points[*at]);
        let of_line = of_line.filter_map(|(at, one, _)| Some((*at, *one, subject.mean(one)?)));
        let of_line: Vec<(f64, &Configuration<'_, T>, Mean)> = of_line.collect();
        let style = Style::Series(series);
        let is_same_work = subject.metric != TRAINING || is_same_work(&of_line);
        is_without |= has_ideal && !is_same_work;
        if has_ideal
            && is_same_work
            && let Some((first, _, base)) = of_line.first()
            && *first > 0.0
        {
            let has_name = marks.iter().any(|mark: &Mark| mark.style == Style::Ideal);
            let ideal = |at: f64| base.mean * factor * if is_linear { at / first } else { first / at };
            let piece: Vec<(f64, f64)> = of_line.iter().map(|(at, ..)| (*at, ideal(*at))).collect();
            highs.extend(piece.iter().map(|(_, y)| *y));
            let label = if has_name { "" } else { "ideal, from the smallest" };
            marks.push(Mark { label: label.to_owned(), style: Style::Ideal, shape: Shape::Line(vec![piece]) });
        }
        let piece: Vec<(f64, f64)> = of_line.iter().map(|(at, _, mean)| (*at, mean.mean * factor)).collect();
        let dots = of_line.iter().map(|(at, one, mean)| Point {
            at: (*at, mean.mean * factor),
            half: (None, mean.bar().map(|half| half * factor)),
            name: format!("{label}; {} {at}: {}", short(field), said(mean, &unit, factor)),
            run: subject.run_of(one),
            ..Point::default()
        });
        let dots: Vec<Point> = dots.collect();
        for (at, one, mean) in &of_line {
            highs.extend([mean.mean, mean.mean + mean.bar().unwrap_or(0.0)].map(|value| value * factor));
            let run = subject.run_of(one).map_or_else(String::new, |run| run.to_string());
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
        intervals(shown_means.iter().map(|mean| mean.bar()))
    )];
    if left_out > 0 {
        notes.push(format!("Left out: {} (--where selects).", count(left_out, "more line")));
    }
    if !confounded.is_empty() {
        notes.push(format!(
            "These fields change along the axis as well, so their effects cannot be separated: {}.",
            confounded.join("; ")
        ));
    }
    if is_without {
        notes.push(
            "No ideal line where the work differs: a fixed number of steps with one batch per GPU is more work on more GPUs."
                .to_owned(),
        );
    }
    notes.extend(subject.left_out());
    Ok(Figure {
        title: format!("{}: {} by {}", subject.model, subject.metric, short(field)),
        summary: format!(
            "{} over {} ({}), {}. The plot's table has values and runs.",
            subject.metric,
            short(field),
            levels.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
            count(lines.len().min(LINES), "line")
        ),
        notes,
        key: Vec::new(),
        panels: vec![one],
        across: 1,
        sheet,
    })
}

/// Returns the last component of a field's name.
pub(super) fn short(field: &str) -> &str {
    field.rsplit_once('.').map_or(field, |(_, last)| last)
}

struct Lines {
    /// Labels of the lines, and the indices of their points.
    lines: Vec<(String, Vec<usize>)>,
    /// Fields that change along the axis but are not part of it, with their values.
    confounded: Vec<String>,
}

/// Groups points that agree in all fields except the axis and the fields that change with it. Long lines come first.
fn lines<T: Asked>(points: &[At<'_, T>], names: &Names, field: &str) -> Lines {
    let firsts: Vec<&T> = points.iter().filter_map(|(_, one, _)| one.first()).collect();
    let mut without: Vec<String> = vec![field.to_owned()];
    let mut confounded = Vec::new();
    let differing = analysis::differing_among(&firsts, names);
    for name in differing.iter().filter(|name| *name != field) {
        // A field with one value per axis value does not distinguish lines.
        let mut of_level: BTreeMap<u64, Option<String>> = BTreeMap::new();
        let text = |one: &Configuration<'_, T>| value(one, name).map(|value| value.to_string());
        let is_of_level = |(at, one, _): &At<'_, T>| {
            let value = text(one);
            *of_level.entry(at.to_bits()).or_insert_with(|| value.clone()) == value
        };
        if !points.iter().all(is_of_level) {
            continue;
        }
        let of_point = |(at, one, _): &At<'_, T>| (*at, text(one).unwrap_or_else(|| "none".to_owned()));
        let mut in_order: Vec<(f64, String)> = points.iter().map(of_point).collect();
        if !(field == GPUS && is_of_the_axis(points, name)) {
            in_order.dedup();
            let values: Vec<String> = in_order.iter().map(|(at, value)| format!("{at}: {value}")).collect();
            confounded.push(format!("{name} ({})", values.join(", ")));
        }
        without.push(name.clone());
    }
    let without: Vec<&str> = without.iter().map(String::as_str).collect();
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let labels = labels_by(differing, &without, &firsts, &|trial, name| trial.field(name));
    for (at, label) in labels.into_iter().enumerate() {
        found.entry(label).or_default().push(at);
    }
    let mut lines: Vec<(String, Vec<usize>)> = found.into_iter().collect();
    lines.sort_by_cached_key(|(label, points)| (std::cmp::Reverse(points.len()), super::natural(label)));
    Lines { lines, confounded }
}

/// The axis value, a configuration, and its mean.
type At<'a, T> = (f64, &'a Configuration<'a, T>, f64);

fn value<T: Asked>(one: &Configuration<'_, T>, name: &str) -> Option<Value> {
    one.first()?.field(name)
}

/// Returns the global batch size: the samples of one step over all GPUs.
fn batch<T: Asked>(one: &Configuration<'_, T>) -> Option<String> {
    value(one, ALL).or_else(|| value(one, EACH)).map(|value| value.to_string())
}

fn agree<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let first = values.next();
    values.all(|value| Some(&value) == first.as_ref())
}

/// Whether a field that changes with the number of GPUs is an inherent part of using more GPUs.
/// This applies to the batch size per GPU or in total, if one of the two stays constant, and to fields of several GPUs.
fn is_of_the_axis<T: Asked>(points: &[At<'_, T>], name: &str) -> bool {
    if name == EACH || name == ALL {
        return agree(points.iter().map(|(_, one, _)| batch(one)))
            || agree(points.iter().map(|(_, one, _)| value(one, EACH).map(|value| value.to_string())));
    }
    let values = points.iter().filter_map(|(_, one, _)| value(one, name)).map(|value| value.to_string());
    OF_SEVERAL.contains(&name) && agree(values.filter(|value| value != "none"))
}

/// Whether all points of a line train equally much: the same epochs, or the same steps with the same global batch.
fn is_same_work<T: Asked>(of_line: &[(f64, &Configuration<'_, T>, Mean)]) -> bool {
    let is_fixed = |name: &str| {
        let values = || of_line.iter().map(|(_, one, _)| value(one, name).map(|value| value.to_string()));
        values().all(|value| value.is_some()) && agree(values())
    };
    is_fixed("training.epochs") || (is_fixed("training.steps") && agree(of_line.iter().map(|(_, one, _)| batch(one))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Trial;
    use crate::record::{Attempt, AttemptId, Digest, Direction, Metric, Parts, Run};
    use std::collections::BTreeSet;

    fn trial(gpus: i64, fields: &[(&str, Value)], metrics: &[(&str, f64)]) -> Trial {
        let fields = fields.iter().cloned().chain([(GPUS, Value::Int(gpus)), ("training.steps", Value::Int(100))]);
        let run = Run::new(Parts {
            config: Value::Table(fields.map(|(name, value)| (name.to_owned(), value)).collect()),
            ..Parts::sample()
        });
        let attempt = Attempt {
            run: run.id,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), Metric::new(*value, ""))).collect(),
            ..Attempt::sample()
        };
        Trial { id: AttemptId(Digest::of(&gpus.to_le_bytes())), run, attempt, is_hidden: false }
    }

    fn drawn(metric: &str, trials: &[Trial]) -> (bool, String) {
        let admitted = BTreeSet::new();
        let direction = Some(Direction::Minimize);
        let figure = scaling(
            &Subject {
                model: "m",
                metric,
                unit: "",
                direction,
                trials,
                names: &analysis::names(trials),
                admitted: &admitted,
            },
            GPUS,
        )
        .unwrap();
        let is_ideal = figure.panels[0].marks.iter().any(|mark| mark.style == Style::Ideal);
        (is_ideal, figure.notes.join(" "))
    }

    #[test]
    fn an_ideal_line_requires_the_same_work_on_more_gpus() {
        let of = |gpus: i64, each: i64| {
            let batch = [(EACH, Value::Int(each)), (ALL, Value::Int(each * gpus))];
            let fields = if gpus == 1 { &batch[..1] } else { &batch[..] };
            trial(gpus, fields, &[("train_time", 8.0), ("throughput", 5.0), ("epoch_time", 3.0)])
        };
        let weak = [of(1, 32), of(2, 32), of(4, 32)];
        let strong = [of(1, 32), of(2, 16), of(4, 8)];
        assert!(!drawn("train_time", &weak).0 && drawn("train_time", &weak).1.contains("No ideal line where the work"));
        assert!(drawn("train_time", &strong).0 && !drawn("train_time", &strong).1.contains("No ideal"));
        for metric in ["throughput", "epoch_time"] {
            assert!(drawn(metric, &weak).0 && drawn(metric, &strong).0, "{metric}");
        }
        let (is_ideal, notes) = drawn("throughput", &[of(1, 32), of(4, 64)]);
        assert!(!is_ideal && notes.contains("training.batch_size (1: 32, 4: 64)"), "{notes}");
    }

    #[test]
    fn fields_that_change_with_the_number_of_gpus_are_noted() {
        let of = |gpus: i64, precision: &str| {
            trial(gpus, &[("training.precision", precision.into())], &[("throughput", 5.0)])
        };
        let (is_ideal, notes) = drawn("throughput", &[of(1, "fp32"), of(4, "bf16")]);
        assert!(!is_ideal && notes.contains("training.precision (1: fp32, 4: bf16)"), "{notes}");
        let both = [of(1, "fp32"), of(4, "fp32"), of(1, "bf16"), of(4, "bf16")];
        assert!(
            drawn("throughput", &both).0
                && !drawn("throughput", &both).1.contains("These fields change along the axis")
        );
    }
}
