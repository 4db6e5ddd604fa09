//! Runs of trackers whose stores are read through Python, from the lines of `host/python/trackers.py`.

use super::foreign::{ForeignRun, Point};
use crate::record::{DigestWriter, Outcome, Table, Value};
use crate::wire::from_json;

/// Builds runs from lines.
pub struct BridgedRuns {
    tool: &'static str,
    open: Option<(ForeignRun, DigestWriter)>,
    is_deleted: bool,
    /// Names of runs that the tracker has deleted.
    pub deleted: Vec<String>,
}

impl BridgedRuns {
    /// Returns a builder for the runs of a tracker.
    pub fn of(tool: &'static str) -> Self {
        Self { tool, open: None, is_deleted: false, deleted: Vec::new() }
    }

    /// Reads a line. Returns the run that it completes, if any.
    ///
    /// # Errors
    /// A description of the line, if the reader cannot have written it.
    pub fn take(&mut self, line: &str) -> Result<Option<ForeignRun>, String> {
        let fault = || format!("the reader of the store wrote `{}`", line.chars().take(60).collect::<String>());
        let Ok(Value::Table(mut table)) = from_json(line) else { return Err(fault()) };
        if let Some(Value::Table(run)) = table.remove("run") {
            self.is_deleted = run.get("deleted") == Some(&true.into());
            self.open = Some((begin(self.tool, run).ok_or_else(fault)?, DigestWriter::new()));
        } else if let Some(Value::List(points)) = table.remove("points") {
            let (run, _) = self.open.as_mut().ok_or_else(fault)?;
            add(run, &points).ok_or_else(fault)?;
        } else {
            let (mut run, written) = self.open.take().ok_or_else(fault)?;
            run.digest = written.finish();
            if self.is_deleted {
                self.deleted.push(run.name);
                return Ok(None);
            }
            return Ok(Some(run));
        }
        if let Some((_, written)) = &mut self.open {
            written.write(line.as_bytes());
            written.write(b"\n");
        }
        Ok(None)
    }
}

fn begin(tool: &'static str, mut table: Table) -> Option<ForeignRun> {
    let mut text = |name: &str| table.remove(name)?.as_str().map(str::to_owned);
    let (id, name, experiment, status) = (text("id")?, text("name")?, text("experiment")?, text("status")?);
    let mut run = ForeignRun::new(tool, experiment, name);
    run.id = id;
    let seconds = |name: &str| table.get(name).and_then(Value::as_float).filter(|ms| *ms > 0.0).map(|ms| ms / 1e3);
    (run.started_unix_s, run.ended_unix_s) = (seconds("start_ms"), seconds("end_ms"));
    run.outcome = match status.as_str() {
        "FAILED" => Outcome::Failed { reason: "the tracker says that it failed".to_owned() },
        "KILLED" => Outcome::Interrupted { reason: "the tracker says that it was killed".to_owned() },
        "RUNNING" | "SCHEDULED" => {
            let reason = format!("the tracker says that it is {}", status.to_lowercase());
            Outcome::Interrupted { reason }
        }
        _ => Outcome::Finished,
    };
    let mut pairs = |name: &str| table.remove(name).and_then(|value| value.as_table().cloned()).unwrap_or_default();
    let number =
        |value: Value| value.as_int().and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0);
    run.skipped = pairs("skipped").into_iter().filter_map(|(kind, value)| Some((kind, number(value)?))).collect();
    run.params = pairs("params").into_iter().map(|(name, value)| (name, typed(value))).collect();
    run.texts = pairs("tags").into_iter().map(|(name, value)| (name, value.to_string())).collect();
    Some(run)
}

/// Converts texts to numbers where possible, because trackers store parameters as texts and answers compare numbers.
fn typed(value: Value) -> Value {
    let Some(text) = value.as_str() else { return value };
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match text.parse::<f64>() {
        // An integer beyond 63 bits would lose digits.
        Ok(number) if is_number && number.is_finite() && text.parse::<u64>().is_err() => number.into(),
        _ => value,
    }
}

/// Adds a curve: its name, whether it measures the machine, and its points (step, time in ms, value).
fn add(run: &mut ForeignRun, points: &[Value]) -> Option<()> {
    let [name, Value::Bool(is_system), Value::List(points)] = points else { return None };
    let name = name.as_str()?;
    let curves = if *is_system { &mut run.system } else { &mut run.curves };
    let curve = curves.entry(name.to_owned()).or_default();
    for point in points {
        let Value::List(point) = point else { return None };
        let [step, ms, value] = point.as_slice() else { return None };
        let value = match value.as_str() {
            None => value.as_float()?,
            Some("NaN") => f64::NAN,
            Some("Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            Some(_) => return None,
        };
        // If the tracker does not store the time, it is an empty text.
        let unix_s = ms.as_float().map_or(f64::NAN, |ms| ms / 1e3);
        curve.push(Point { step: step.as_int()?, unix_s, value });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lines: &[&str]) -> (Vec<ForeignRun>, Vec<String>) {
        let mut runs = BridgedRuns::of("mlflow");
        let found = lines.iter().filter_map(|line| runs.take(line).unwrap()).collect();
        (found, runs.deleted)
    }

    const RUN: &str = r#"{"run":{"id":"a1","name":"one","experiment":"Default","status":"FINISHED","start_ms":1000,"end_ms":3000,"deleted":false,"skipped":{"artifact":2,"trace":0},"params":{"lr":"0.1","layers":"3","name":"nan"},"tags":{"note.content":"good"}}}"#;

    #[test]
    fn a_run_has_its_points_parameters_tags_and_times() {
        let points = r#"{"points":["loss",false,[[1,1500,1.5],[2,2000,"NaN"],[3,2500,"-Infinity"]]]}"#;
        let system = r#"{"points":["system/gpu_0_power_usage_watts",true,[[0,1000,70.5]]]}"#;
        let (found, _) = runs(&[RUN, points, system, r#"{"end":true}"#]);
        let run = &found[0];
        assert_eq!((run.id.as_str(), run.started_unix_s, run.ended_unix_s), ("a1", Some(1.0), Some(3.0)));
        let expected = Table::from([
            ("lr".to_owned(), 0.1.into()),
            ("layers".to_owned(), 3i64.into()),
            ("name".to_owned(), "nan".into()),
        ]);
        assert_eq!(run.params, expected);
        assert_eq!(run.texts["note.content"], "good");
        let loss = &run.curves["loss"];
        assert_eq!(loss[0], Point { step: 1, unix_s: 1.5, value: 1.5 });
        assert!(loss[1].value.is_nan() && loss[2].value == f64::NEG_INFINITY);
        assert_eq!((run.system.len(), run.skipped.len(), run.skipped["artifact"]), (1, 1, 2));
        run.clone().sealed().check().unwrap();
    }

    #[test]
    fn deleted_runs_are_listed_and_a_running_one_is_not_finished() {
        let deleted = RUN.replace("\"deleted\":false", "\"deleted\":true");
        let running = RUN.replace("FINISHED", "RUNNING");
        let end = r#"{"end":true}"#;
        let (found, names) = runs(&[&deleted, end, &running, end]);
        assert_eq!((found.len(), names), (1, vec!["one".to_owned()]));
        assert_eq!(found[0].outcome.reason(), Some("the tracker says that it is running"));
    }

    #[test]
    fn a_run_that_has_grown_has_another_digest() {
        let (one, more) =
            (r#"{"points":["loss",false,[[1,1500,1.5]]]}"#, r#"{"points":["loss",false,[[1,1500,1.5],[2,1600,1.0]]]}"#);
        let digest = |points: &str| runs(&[RUN, points, r#"{"end":true}"#]).0[0].digest;
        assert_eq!(digest(one), digest(one));
        assert_ne!(digest(one), digest(more));
    }

    #[test]
    fn other_lines_are_refused() {
        let named = r#"{"points":["loss",[[1,2,3]]]}"#;
        for line in ["", "[]", named, r#"{"end":true}"#, r#"{"points":["loss",false,[[1]]]}"#, r#"{"run":{}}"#] {
            assert!(BridgedRuns::of("mlflow").take(line).is_err(), "{line}");
        }
        let mut runs = BridgedRuns::of("mlflow");
        runs.take(RUN).unwrap();
        assert!(runs.take(r#"{"points":["loss",false,[[1,2,"high"]]]}"#).is_err());
    }
}
