//! Differences between runs and attempts, as text and as a document.

use super::comparison::{shown_all, tainted};
use super::contrast::change;
use super::document::table_of;
use super::live::fitted;
use super::number::{count, duration, percent, quantity, significant};
use super::plain::plain;
use super::ranking::probability;
use super::sample::{compared_text, compared_value};
use super::table::columns;
use super::units;
use crate::analysis::{
    Difference, FieldDifference, Kind, MetricDifference, PROGRAM_FILES, PROGRAM_PACKAGES, PartDifference,
    PhaseDifference, Significance, TelemetryDifference, Untested, is_of_an_answer,
};
use crate::record::{Part, Table, Value, first_of};
use std::collections::{BTreeMap, BTreeSet};

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), Value::to_string)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), significant)
}

/// Returns the fields that differ, one line each.
pub fn fields_text(fields: &[FieldDifference], a: &str, b: &str) -> String {
    let rows =
        fields.iter().map(|field| vec![format!("  {}", field.field), shown(field.a.as_ref()), shown(field.b.as_ref())]);
    columns(&["  FIELD", &format!("<{a}"), &format!("<{b}")], rows)
}

/// Explains why two runs have different ids.
pub fn why_text(parts: &[PartDifference], a: &str, b: &str) -> String {
    if parts.is_empty() {
        return format!("{a} and {b} are the same run: all seven parts of the identity are equal\n");
    }
    let mut text = String::new();
    for part in parts {
        let (plain, others): (Vec<_>, Vec<_>) = part
            .fields
            .iter()
            .map(|field| (program_line(part.part, field, a, b), field))
            .partition(|(line, _)| line.is_some());
        text.push_str(&format!("{} differs:\n", part.part));
        for (line, field) in plain {
            text.push_str(&format!("  {}\n", line.unwrap_or_default()));
            changed_text(field).for_each(|line| text.push_str(&format!("    {line}\n")));
        }
        let others: Vec<FieldDifference> = others.into_iter().map(|(_, field)| field.clone()).collect();
        if !others.is_empty() {
            text.push_str(&fields_text(&others, a, b));
        }
    }
    text
}

/// Returns the first changed lines of a program's file, truncated to the width of a terminal.
fn changed_text(field: &FieldDifference) -> impl Iterator<Item = String> {
    const LINES: usize = 12;
    const WIDTH: usize = 76;
    let lines = field.lines.as_ref().map_or(&[][..], |changed| &changed.lines);
    let more = lines.len().checked_sub(LINES).filter(|more| *more > 0);
    let more = more.map(|more| format!("… and {more} more of {}", count(lines.len(), "changed line")));
    let shown: Vec<String> = lines.iter().map(|line| plain(&line.replace('\t', "    "))).collect();
    let cut = |at: usize| fitted(&around_change(&shown, at, WIDTH), Some(WIDTH));
    (0..shown.len().min(LINES)).map(cut).chain(more).collect::<Vec<_>>().into_iter()
}

/// Returns a changed line, `- …` or `+ …`. If it is wider than `width`, the beginning that it shares with the line that
/// it replaces, or that replaces it, is left out.
fn around_change(lines: &[String], at: usize, width: usize) -> String {
    /// Characters that are kept before the first one that differs.
    const BEFORE: usize = 16;
    let body = |line: &str| line.chars().skip(2).collect::<Vec<char>>();
    let own = body(&lines[at]);
    let other = partner(lines, at).map_or_else(Vec::new, |other| body(&lines[other]));
    let shared = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
    match shared.checked_sub(BEFORE).filter(|_| own.len() + 2 > width) {
        Some(left_out @ 1..) => lines[at].chars().take(2).chain(['…']).chain(own.into_iter().skip(left_out)).collect(),
        _ => lines[at].clone(),
    }
}

/// Returns the line on the other side of a change: the k-th added one for the k-th removed one before it.
fn partner(lines: &[String], at: usize) -> Option<usize> {
    let is = |at: usize, sign: char| lines.get(at).is_some_and(|line| line.starts_with(sign));
    let start = |mut at: usize, sign: char| {
        while at > 0 && is(at - 1, sign) {
            at -= 1;
        }
        at
    };
    if is(at, '-') {
        let removed = start(at, '-');
        let added = (at..lines.len()).find(|next| !is(*next, '-'))?;
        let other = added + (at - removed);
        (added..=other).all(|line| is(line, '+')).then_some(other)
    } else {
        let added = start(at, '+');
        let other = start(added, '-') + (at - added);
        (other < added).then_some(other)
    }
}

/// Summarizes the differences between the programs of two runs in one line.
pub fn program_changes(parts: &[PartDifference], a: &str, b: &str) -> String {
    let fields = parts.iter().flat_map(|part| part.fields.iter().map(|field| (part.part, field)));
    let line = |(part, field): (Part, &FieldDifference)| {
        program_line(part, field, a, b).unwrap_or_else(|| field.field.clone())
    };
    plain(&first_of(fields.map(line), SHOWN))
}

/// Most changes listed in one line.
const SHOWN: usize = 3;

/// Describes a changed file, package or interpreter of a program: `model.py: 3 lines`, `numpy 2.1.3 → 2.0.2`.
fn program_line(part: Part, field: &FieldDifference, a: &str, b: &str) -> Option<String> {
    if part != Part::Program {
        return None;
    }
    let versions = |name: &str| {
        let of = |value: &Option<Value>| shown(value.as_ref());
        format!("{name} {} → {}", of(&field.a), of(&field.b))
    };
    if let Some(file) = field.field.strip_prefix(PROGRAM_FILES) {
        return Some(match (&field.a, &field.b, field.lines.as_ref().map(|lines| lines.count)) {
            (Some(_), None, _) => format!("{file}: only {a}"),
            (None, _, _) => format!("{file}: only {b}"),
            (_, _, Some(0)) => format!("{file}: another content (no line differs: line ends, or removed secrets)"),
            (_, _, Some(lines)) => format!("{file}: {}", count(lines, "line")),
            (_, _, None) => format!("{file}: another content"),
        });
    }
    if let Some(package) = field.field.strip_prefix(PROGRAM_PACKAGES) {
        return Some(versions(package));
    }
    match field.field.as_str() {
        pattern if pattern.starts_with("metrics.") => Some(versions(pattern)),
        "interpreter" => Some(versions("interpreter")),
        // The next two are fields of the built-in trainer.
        "revision" => Some(versions("revision of the trainer")),
        "burn" => Some(versions("Burn")),
        // Records of earlier versions have no `identity`: commit and patch were part of theirs.
        "identity" => {
            let of = |value: &Option<Value>| value.as_ref().map_or_else(|| "git".to_owned(), Value::to_string);
            Some(format!("identity {} → {} (`[program] identity` of the manifest)", of(&field.a), of(&field.b)))
        }
        _ => None,
    }
}

/// Returns the fields that differ as a document's value.
pub fn fields_value(fields: &[FieldDifference]) -> Value {
    let item = |field: &FieldDifference| {
        let mut table = table_of([("field", field.field.as_str().into())]);
        table.extend(field.lines.as_ref().map(|lines| ("lines".to_owned(), lines.count.into())));
        for (side, value) in [("a", &field.a), ("b", &field.b)] {
            if let Some(value) = value {
                table.insert(side.to_owned(), value.clone());
            }
        }
        Value::Table(table)
    };
    Value::List(fields.iter().map(item).collect())
}

pub(super) fn parts_value(parts: &[PartDifference]) -> Value {
    let item = |part: &PartDifference| {
        Value::Table(table_of([("part", part.part.name().into()), ("fields", fields_value(&part.fields))]))
    };
    Value::List(parts.iter().map(item).collect())
}

/// Returns the differing parts as a document's members.
pub fn why_value(parts: &[PartDifference]) -> Table {
    table_of([("same_run", parts.is_empty().into()), ("parts", parts_value(parts))])
}

/// Returns all differences between two attempts as text.
pub fn diff_text(difference: &Difference, significance: &BTreeMap<String, Significance>, a: &str, b: &str) -> String {
    if difference.is_empty() {
        return format!("{a} and {b} have no recorded differences\n");
    }
    let mut text = String::new();
    if difference.parts.is_empty() {
        text.push_str("identity: the same run\n");
        text.push_str(kernels_text(difference));
    } else {
        text.push_str(&why_text(&difference.parts, a, b));
    }
    if !difference.equal.is_empty() {
        text.push_str(&format!("equal, bit for bit: {}\n", plain(&difference.equal.join(", "))));
    }
    for (name, taints) in [(a, &difference.taints.0), (b, &difference.taints.1)] {
        if !taints.is_empty() {
            text.push_str(&tainted(name, taints));
        }
    }
    text.push_str(&metrics_text(difference, significance, a, b));
    if !difference.curves.is_empty() {
        text.push_str("curves:\n");
        let rows = difference.curves.iter().map(|curve| {
            vec![
                format!("  {}", curve.name),
                curve.first_step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
                number(curve.values.0),
                number(curve.values.1),
                number(curve.max_distance),
            ]
        });
        let heads = ["  CURVE", ">PARTS AT STEP", &format!(">{a}"), &format!(">{b}"), ">MOST APART"];
        text.push_str(&columns(&heads, rows));
    }
    for name in &difference.digests {
        text.push_str(&format!("the digest of `{name}` differs\n"));
    }
    text.push_str(&phases_text(&difference.phases, a, b));
    text.push_str(&telemetry_text(&difference.telemetry, a, b));
    if !difference.environment.is_empty() {
        text.push_str("recorded, not hashed:\n");
        let (shown, folded) = folded(&difference.environment);
        text.push_str(&fields_text(&shown, a, b));
        let folded: Vec<String> =
            folded.iter().map(|(group, fields)| format!("{group}.* ({})", count(*fields, "field"))).collect();
        if !folded.is_empty() {
            text.push_str(&format!("  and in {} (--json lists them)\n", plain(&folded.join(", "))));
        }
    }
    text
}

/// The metric with the number of samples per inference request.
const INFERENCE_BATCH_SIZE: &str = "inference_batch_size";

/// Larger groups of fields are shown as one line.
const MOST_OF_GROUP: usize = 8;

/// Splits off large groups of fields and counts their fields; deep groups first (`gpu.0.calibration` before `gpu.0`).
fn folded(fields: &[FieldDifference]) -> (Vec<FieldDifference>, BTreeMap<&str, usize>) {
    let (mut shown, mut groups) = (fields.iter().collect::<Vec<_>>(), BTreeMap::new());
    let deepest = fields.iter().map(|field| field.field.matches('.').count()).max().unwrap_or(0);
    for depth in (2..=deepest).rev() {
        let group = |field: &FieldDifference| field.field.match_indices('.').nth(depth - 1).map(|(at, _)| at);
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for field in &shown {
            group(field).into_iter().for_each(|at| *sizes.entry(&field.field[..at]).or_default() += 1);
        }
        sizes.retain(|_, size| *size > MOST_OF_GROUP);
        shown.retain(|field| group(field).is_none_or(|at| !sizes.contains_key(&field.field[..at])));
        groups.extend(sizes);
    }
    (shown.into_iter().cloned().collect(), groups)
}

/// Names the tuned kernels if they differ between two attempts of one run with different results.
/// Other kernels may add in another order.
fn kernels_text(difference: &Difference) -> &'static str {
    let is_other = !difference.curves.is_empty() || !difference.digests.is_empty();
    let is_tuned = difference.environment.iter().any(|field| field.field == "kernel_cache.digest_before");
    if !is_other || !is_tuned {
        return "";
    }
    "kernels: the two began with different tuned kernels, which may explain different bits (`ledger cache import` takes those of another machine)\n"
}

/// Formats two values with as few digits as distinguish them.
fn shown_pair(a: Option<f64>, b: Option<f64>) -> [String; 2] {
    let values = [a, b].map(|value| value.map(Value::from));
    let mut shown = shown_all(&values).into_iter();
    [(); 2].map(|()| shown.next().unwrap_or_default())
}

/// Returns a metric's name with its unit, `gpu_mem_peak [GiB]`, and its two values. Durations contain their own unit.
fn in_readable_unit(name: &str, unit: &str, a: Option<f64>, b: Option<f64>) -> (String, [String; 2]) {
    if unit == "s" {
        let shown = [a, b].map(|value| value.map_or_else(|| "-".to_owned(), duration));
        if shown[0] != shown[1] || a == b {
            return (name.to_owned(), shown);
        }
    }
    let largest = [a, b].into_iter().flatten().map(f64::abs).fold(0.0, f64::max);
    let shown = units::shown(unit, Kind::Level, largest);
    let scaled = |value: Option<f64>| value.map(|value| value * shown.factor);
    let head = if shown.unit.is_empty() { name.to_owned() } else { format!("{name} [{}]", shown.unit) };
    (head, shown_pair(scaled(a), scaled(b)))
}

fn metrics_text(difference: &Difference, significance: &BTreeMap<String, Significance>, a: &str, b: &str) -> String {
    if difference.metrics.is_empty() {
        return String::new();
    }
    // `inference_time` repeats the value of one batch size, which has a row of its own.
    let shown = |metric: &MetricDifference| {
        let means = significance.get(&metric.name).map(|tested| (Some(tested.means.0), Some(tested.means.1)));
        means.unwrap_or((metric.a, metric.b))
    };
    let is_told_again = |metric: &MetricDifference| {
        let mut others = difference.metrics.iter().filter(|other| shown(other) == shown(metric));
        others.any(|other| other.name.strip_prefix(&metric.name).is_some_and(|rest| rest.starts_with('@')))
    };
    // With different batch sizes, inference metrics are compared per batch size only.
    let is_of_batches = difference.metrics.iter().any(|metric| metric.name == INFERENCE_BATCH_SIZE);
    let is_unlike = |metric: &MetricDifference| is_of_batches && is_of_an_answer(&metric.name);
    let is_one_sided = |metric: &MetricDifference| {
        !significance.is_empty() && (metric.a.is_none() || metric.b.is_none()) && metric.unit_b.is_none()
    };
    let told: Vec<&MetricDifference> =
        difference.metrics.iter().filter(|metric| !is_told_again(metric) && !is_unlike(metric)).collect();
    let rows = told.iter().filter(|metric| !is_one_sided(metric)).map(|metric| {
        let tested = significance.get(&metric.name);
        let (of_a, of_b) = shown(metric);
        let (head, values) = match &metric.unit_b {
            Some(other) => {
                let named = |unit: &str| if unit.is_empty() { "-".to_owned() } else { unit.to_owned() };
                (format!("{} [{} / {}]", metric.name, named(&metric.unit), named(other)), shown_pair(of_a, of_b))
            }
            None => in_readable_unit(&metric.name, &metric.unit, of_a, of_b),
        };
        let [of_a, of_b] = values;
        let beside = match tested {
            Some(tested) => {
                let mark = if tested.is_of_common_blocks() { " *" } else { "" };
                Some(format!("{}{mark}", compared_text(&tested.comparison, &metric.unit)))
            }
            None if metric.unit_b.is_some() => None,
            None => change(&metric.name, &metric.unit, metric.a, metric.b),
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut row = vec![format!("  {head}"), of_a, of_b, or_none(beside)];
        if !significance.is_empty() {
            row.push(or_none(tested.and_then(|tested| tested.corrected).map(probability)));
            let said = tested.map_or("-", |tested| match tested.is_significant() {
                Some(true) => "yes",
                Some(false) => "no",
                None => "untested",
            });
            row.push(said.to_owned());
        }
        row
    });
    let (head_a, head_b, head) = (format!(">{a}"), format!(">{b}"), format!("{b} AGAINST {a}"));
    let mut heads = vec!["  METRIC", &head_a, &head_b, &head];
    heads.extend((!significance.is_empty()).then_some([">P", "~DIFFERS"]).into_iter().flatten());
    let tested: Vec<(&str, &Significance)> =
        told.iter().filter_map(|metric| Some((metric.name.as_str(), significance.get(&metric.name)?))).collect();
    let most = |of: fn(&Significance) -> usize| tested.iter().map(|(_, tested)| of(tested)).max();
    let of_means = most(|tested| tested.n.0).zip(most(|tested| tested.n.1)).map_or_else(String::new, |(x, y)| {
        format!(
            " (where P is given: means of up to {x} and {y} attempts of the two configurations, with 95% intervals)"
        )
    });
    let mut text = format!("metrics{of_means}:\n{}", columns(&heads, rows));
    let named = |is_meant: &dyn Fn(&MetricDifference) -> bool| {
        let names: Vec<&str> =
            told.iter().filter(|metric| is_meant(metric)).map(|metric| metric.name.as_str()).collect();
        (!names.is_empty()).then(|| first_of(names, SHOWN))
    };
    for (side, is_of) in
        [(a, MetricDifference::is_of_a as fn(&MetricDifference) -> bool), (b, MetricDifference::is_of_b)]
    {
        let names = named(&|metric| is_one_sided(metric) && is_of(metric));
        text.extend(names.map(|names| format!("  only {side} has {names}\n")));
    }
    for (why, said) in [
        (Untested::NoScatter, "neither varies over its repetitions"),
        (Untested::TooFew, "too few independent seeds, GPUs or attempts for a p below 0.05; 3 or more each are needed"),
        (
            Untested::Confounded,
            "the two ran on different GPUs of one device, or have one seed each: the difference contains that of the GPUs or seeds",
        ),
        (
            Untested::OtherRounds,
            "the two did not run in the same rounds, and a single round may explain the difference (repeat both together: `ledger run MANIFEST --repeat 3`)",
        ),
        (Untested::Sensors, "different sensors measured the two, so a t-test needs 3 or more repetitions each"),
    ] {
        let names = named(&|metric| significance.get(&metric.name).is_some_and(|one| one.comparison.test == Err(why)));
        text.extend(names.map(|names| format!("  untested ({said}): {names}\n")));
    }
    if !tested.is_empty() {
        text.push_str("  P: Holm's correction over all metrics; proportional ones count once\n");
    }
    let limits: BTreeSet<&str> = tested.iter().filter_map(|(_, tested)| tested.covers).collect();
    for covers in limits {
        let names = tested.iter().filter(|(_, tested)| tested.covers == Some(covers)).map(|(name, _)| *name);
        let names = first_of(names.collect::<Vec<_>>(), SHOWN);
        text.push_str(&format!("  intervals cover {covers}: {names}\n"));
    }
    if tested.iter().any(|(_, tested)| tested.is_of_common_blocks()) {
        text.push_str("  * over the seeds, GPUs or rounds that both have, so not the quotient or the difference of the two means\n");
    }
    text
}

fn share(a: Option<f64>, b: Option<f64>) -> String {
    let share = a.zip(b).map(|(a, b)| (b - a) / a.abs()).filter(|share| share.is_finite());
    share.map_or_else(|| "-".to_owned(), percent)
}

fn phases_text(phases: &[PhaseDifference], a: &str, b: &str) -> String {
    if phases.is_empty() {
        return String::new();
    }
    let time = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), duration);
    let joules = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |joules| quantity(joules, "J"));
    let whole = |count: Option<usize>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let rows = phases.iter().map(|phase| {
        let counts = match phase.count {
            (x, y) if x == y => whole(x),
            (x, y) => format!("{} / {}", whole(x), whole(y)),
        };
        vec![
            format!("  {}", phase.name),
            phase.rank.to_string(),
            phase.gpu.map_or_else(|| "-".to_owned(), |gpu| gpu.to_string()),
            counts,
            time(phase.time_s.0),
            time(phase.time_s.1),
            share(phase.time_s.0, phase.time_s.1),
            joules(phase.energy_j.0),
            joules(phase.energy_j.1),
            share(phase.energy_j.0, phase.energy_j.1),
        ]
    });
    let of_b = format!(">{b}");
    let (time_a, energy_a) = (format!(">TIME {a}"), format!(">ENERGY {a}"));
    let heads =
        ["  PHASE", "~~~>RANK", "~~~>GPU", "~~>COUNT", &time_a, &of_b, "~>CHANGE", &energy_a, &of_b, "~>CHANGE"];
    format!("phases:\n{}", columns(&heads, rows))
}

fn telemetry_text(telemetry: &[TelemetryDifference], a: &str, b: &str) -> String {
    if telemetry.is_empty() {
        return String::new();
    }
    let rows = telemetry.iter().map(|row| {
        let largest = row.means.0.into_iter().chain(row.means.1).map(f64::abs).fold(0.0, f64::max);
        let shown = match row.kind {
            Kind::Flags => units::Shown { unit: "% of the time".to_owned(), factor: 100.0 },
            kind => units::shown(&row.unit, kind, largest),
        };
        let mean = |value: Option<f64>| number(value.map(|value| value * shown.factor));
        vec![
            format!("  {}", row.name),
            mean(row.means.0),
            mean(row.means.1),
            share(row.means.0, row.means.1),
            shown.unit.clone(),
        ]
    });
    let heads = ["  MEAN OF", &format!(">{a}"), &format!(">{b}"), ">CHANGE", "UNIT"];
    format!("hardware:\n{}", columns(&heads, rows))
}

/// Returns the differences as a document's members.
pub fn diff_value(difference: &Difference, significance: &BTreeMap<String, Significance>) -> Table {
    let optional = |pairs: Vec<(&str, Option<f64>)>, mut table: Table| {
        for (name, value) in pairs {
            if let Some(value) = value {
                table.insert(name.to_owned(), value.into());
            }
        }
        Value::Table(table)
    };
    let metrics = difference.metrics.iter().map(|metric| {
        let mut table = table_of([("name", metric.name.as_str().into()), ("unit", metric.unit.as_str().into())]);
        table.extend(metric.unit_b.as_ref().map(|unit| ("unit_b".to_owned(), unit.as_str().into())));
        if let Some(tested) = significance.get(&metric.name) {
            table.insert("significance".to_owned(), significance_value(tested));
        }
        let pairs =
            vec![("a", metric.a), ("b", metric.b), ("absolute", metric.absolute()), ("relative", metric.relative())];
        optional(pairs, table)
    });
    let curves = difference.curves.iter().map(|curve| {
        let mut table = table_of([("name", curve.name.as_str().into()), ("common_steps", curve.common.into())]);
        if let Some(step) = curve.first_step {
            table.insert("first_step".to_owned(), step.into());
        }
        optional(vec![("a", curve.values.0), ("b", curve.values.1), ("max_distance", curve.max_distance)], table)
    });
    table_of([
        ("parts", parts_value(&difference.parts)),
        ("environment", fields_value(&difference.environment)),
        ("metrics", Value::List(metrics.collect())),
        ("curves", Value::List(curves.collect())),
        ("digests", difference.digests.clone().into()),
        ("equal", difference.equal.clone().into()),
        ("phases", Value::List(difference.phases.iter().map(phase_value).collect())),
        ("telemetry", Value::List(difference.telemetry.iter().map(reading_value).collect())),
        (
            "tainted",
            Value::Table(table_of([
                ("a", difference.taints.0.clone().into()),
                ("b", difference.taints.1.clone().into()),
            ])),
        ),
    ])
}

fn significance_value(tested: &Significance) -> Value {
    let mut table = table_of([("n_a", tested.n.0.into()), ("n_b", tested.n.1.into())]);
    table.insert("difference".to_owned(), (tested.means.1 - tested.means.0).into());
    table.insert("comparison".to_owned(), compared_value(&tested.comparison));
    table.extend(tested.comparison.test.ok().map(|(p, _)| ("p".to_owned(), p.into())));
    table.extend(tested.corrected.map(|p| ("p_corrected".to_owned(), p.into())));
    table.extend(tested.is_significant().map(|differs| ("differs".to_owned(), differs.into())));
    Value::Table(table)
}

/// Inserts two values under `a` and `b`, without a missing one.
fn both(table: &mut Table, name: &str, (a, b): (Option<Value>, Option<Value>)) {
    let sides = [("a", a), ("b", b)].into_iter().filter_map(|(side, value)| Some((side.to_owned(), value?)));
    table.insert(name.to_owned(), Value::Table(sides.collect()));
}

fn phase_value(phase: &PhaseDifference) -> Value {
    let mut table = table_of([("phase", phase.name.as_str().into()), ("rank", phase.rank.into())]);
    table.extend(phase.gpu.map(|gpu| ("gpu".to_owned(), gpu.into())));
    both(&mut table, "count", (phase.count.0.map(Value::from), phase.count.1.map(Value::from)));
    both(&mut table, "time_s", (phase.time_s.0.map(Value::from), phase.time_s.1.map(Value::from)));
    both(&mut table, "energy_j", (phase.energy_j.0.map(Value::from), phase.energy_j.1.map(Value::from)));
    Value::Table(table)
}

fn reading_value(reading: &TelemetryDifference) -> Value {
    let mut table = table_of([
        ("name", reading.name.as_str().into()),
        ("unit", reading.unit.as_str().into()),
        ("kind", reading.kind.name().into()),
    ]);
    both(&mut table, "mean", (reading.means.0.map(Value::from), reading.means.1.map(Value::from)));
    Value::Table(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_changed_lines_are_cut_before_the_change() {
        let start = "x".repeat(40);
        let lines = [format!("- {start} - 0.5 end"), format!("+ {start} - 0.7 end"), "+ short".to_owned()];
        let shown: Vec<String> = (0..3).map(|at| around_change(&lines, at, 30)).collect();
        assert_eq!(shown, ["- …xxxxxxxxxxx - 0.5 end", "+ …xxxxxxxxxxx - 0.7 end", "+ short"]);
        assert_eq!(around_change(&lines, 0, 100), lines[0]);
        let lines = ["- a 1", "- b 1", "+ a 2", "+ b 2", "+ c", "- d", "+ e", "+ f"].map(str::to_owned);
        let partners: Vec<Option<usize>> = (0..lines.len()).map(|at| partner(&lines, at)).collect();
        assert_eq!(partners, [Some(2), Some(3), Some(0), Some(1), None, Some(6), Some(5), None]);
    }

    #[test]
    fn large_groups_of_recorded_fields_become_one_line() {
        let named =
            |name: String| FieldDifference { field: name, a: Some("a".into()), b: Some("b".into()), lines: None };
        let mut fields: Vec<FieldDifference> = (0..9).map(|at| named(format!("gpu.0.calibration.x{at}"))).collect();
        fields.extend(["gpu.0.uuid", "git.commit"].map(|name| named(name.to_owned())));
        fields.extend((0..8).map(|at| named(format!("telemetry.nvml.x{at}"))));
        let (shown, groups) = folded(&fields);
        assert_eq!(groups, [("gpu.0.calibration", 9)].into());
        assert_eq!(shown.len(), 10);
        assert_eq!(shown[0].field, "gpu.0.uuid");
    }
}
