//! Lines of MLPerf logs: `:::MLLOG ` and a JSON object.
//!
//! Readable lines do not make a run compliant with MLPerf's rules.

use super::{Entry, File, ID_DIGITS, PointsOf, path_name};
use crate::record::{Axis, Outcome, Phase, Table, Value};
use crate::wire::to_json_line;
use std::io;

/// Returns the log of an attempt, as a file named by model and id.
///
/// It contains seed, batch size, optimizer and learning rate under MLPerf's keys; starts and stops of the run, its
/// epochs and its evaluations; the results of evaluations (`eval_accuracy`, `eval_loss`); and every metric as
/// `ledger_NAME`.
pub fn mllog_lines<'a>(entry: &'a Entry, points: &'a PointsOf<'a>) -> File<'a> {
    let name = format!("{}-{}.txt", entry.short_model(), entry.id.0.prefix(ID_DIGITS));
    File::new(path_name(&name).into(), move |out| {
        lines(entry, points)?.iter().try_for_each(|line| out.write_all(line.text(entry).as_bytes()))
    })
}

fn lines(entry: &Entry, points: &PointsOf<'_>) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    point(&mut lines, 0, "submission_benchmark", entry.sealed.run.model().into(), Table::new());
    point(&mut lines, 0, "submission_platform", device(entry).into(), Table::new());
    let seed = entry.sealed.run.parts.seed;
    let seed = i64::try_from(seed).map_or_else(|_| Value::from(seed.to_string()), Value::from);
    point(&mut lines, 0, "seed", seed, Table::new());
    settings(&mut lines, entry);
    timeline(&mut lines, entry, points)?;
    lines.sort_by_key(|line| line.at_ns);
    for (name, metric) in &entry.attempt().metrics {
        if let Some(value) = metric.value {
            let metadata = Table::from([("unit".to_owned(), metric.unit.as_str().into())]);
            point(&mut lines, entry.attempt().wall_ns, &format!("ledger_{name}"), value.into(), metadata);
        }
    }
    let taints = entry.attempt().all_taints();
    if !taints.is_empty() {
        point(&mut lines, entry.attempt().wall_ns, "ledger_tainted", taints.join("; ").into(), Table::new());
    }
    Ok(lines)
}

struct Line {
    at_ns: u64,
    event_type: &'static str,
    key: String,
    value: Option<Value>,
    metadata: Table,
}

impl Line {
    fn text(&self, entry: &Entry) -> String {
        // The object is written by hand, because a table keeps no order and has no null.
        let value = self.value.as_ref().map_or_else(|| "null".to_owned(), to_json_line);
        format!(
            ":::MLLOG {{\"namespace\": \"\", \"time_ms\": {}, \"event_type\": \"{}\", \"key\": {}, \"value\": {value}, \"metadata\": {}}}\n",
            entry.unix_ms(self.at_ns),
            self.event_type,
            to_json_line(&self.key.as_str().into()),
            to_json_line(&Value::Table(self.metadata.clone())),
        )
    }
}

fn point(lines: &mut Vec<Line>, at_ns: u64, key: &str, value: Value, metadata: Table) {
    lines.push(Line { at_ns, event_type: "POINT_IN_TIME", key: key.to_owned(), value: Some(value), metadata });
}

fn device(entry: &Entry) -> String {
    entry.sealed.run.parts.device.to_string()
}

/// Adds the settings that have a key of MLPerf.
fn settings(lines: &mut Vec<Line>, entry: &Entry) {
    let config = entry.sealed.run.config();
    // The global batch size is recorded if there are several ranks.
    let batch = ["training.batch_global", "training.batch_size"].into_iter().find(|name| config.contains_key(*name));
    for (key, name) in [
        ("global_batch_size", batch.unwrap_or_default()),
        ("opt_name", "training.optimizer"),
        ("opt_base_learning_rate", "training.learning_rate"),
        ("opt_weight_decay", "training.weight_decay"),
        ("opt_learning_rate_warmup_steps", "training.warmup_steps"),
        ("train_samples", "data.train_count"),
    ] {
        if let Some(value) = config.get(name) {
            point(lines, 0, key, value.clone(), Table::new());
        }
    }
}

/// Adds starts and stops, and the results of evaluations.
fn timeline(lines: &mut Vec<Line>, entry: &Entry, points: &PointsOf<'_>) -> io::Result<()> {
    let attempt = entry.attempt();
    let mut edge = |at_ns, event_type, key: &str, metadata| {
        lines.push(Line { at_ns, event_type, key: key.to_owned(), value: None, metadata });
    };
    let of = |name: &'static str| entry.sealed.phases.iter().filter(move |phase| phase.name == name && phase.rank == 0);
    let first = of("epoch").map(|phase| phase.start_ns).min().unwrap_or(0);
    let last = of("epoch").chain(of("eval")).filter_map(|phase| phase.stop_ns).max().unwrap_or(attempt.wall_ns);
    edge(0, "INTERVAL_START", "init_start", Table::new());
    edge(first, "INTERVAL_END", "init_stop", Table::new());
    edge(first, "INTERVAL_START", "run_start", Table::new());
    for (name, start, stop) in [("epoch", "epoch_start", "epoch_stop"), ("eval", "eval_start", "eval_stop")] {
        for phase in of(name) {
            edge(phase.start_ns, "INTERVAL_START", start, epoch(phase));
            if let Some(stop_ns) = phase.stop_ns {
                edge(stop_ns, "INTERVAL_END", stop, epoch(phase));
            }
        }
    }
    let evals: Vec<&Phase> = of("eval").collect();
    for series in &attempt.series {
        // A series with one point for each evaluation contains the results.
        let is_of_evaluations = series.axis == Axis::Step && series.name.starts_with("eval_");
        if is_of_evaluations && usize::try_from(series.len).is_ok_and(|len| len == evals.len()) {
            found(lines, &series.name, points, &evals)?;
        }
    }
    let status = if attempt.outcome == Outcome::Finished { "success" } else { "aborted" };
    lines.push(Line {
        at_ns: last,
        event_type: "INTERVAL_END",
        key: "run_stop".to_owned(),
        value: None,
        metadata: Table::from([("status".to_owned(), status.into())]),
    });
    Ok(())
}

fn epoch(phase: &Phase) -> Table {
    Table::from([("epoch_num".to_owned(), i64::try_from(phase.index).unwrap_or(i64::MAX).into())])
}

fn found(lines: &mut Vec<Line>, series: &str, points: &PointsOf<'_>, evals: &[&Phase]) -> io::Result<()> {
    let mut evals = evals.iter();
    points(series, &mut |_, value| {
        if let Some(phase) = evals.next() {
            point(lines, phase.stop_ns.unwrap_or(phase.start_ns), series, value.into(), epoch(phase));
        }
    })
}
