//! Runs of MLflow, from the lines of `host/python/mlflow.py`.

use super::foreign::{ForeignRun, Point};
use crate::record::{DigestWriter, Outcome, Table, Value};
use crate::wire::from_json;

const TOOL: &str = "mlflow";
/// What MLflow calls its measurements of the machine.
const SYSTEM: &str = "system/";

/// Makes runs of lines.
#[derive(Default)]
pub struct MlflowRuns {
    open: Option<(ForeignRun, DigestWriter)>,
    is_deleted: bool,
    /// Names of runs that MLflow has deleted.
    pub deleted: Vec<String>,
}

impl MlflowRuns {
    /// Takes a line. Returns the run that it completes, or an error that names what is wrong.
    ///
    /// # Errors
    /// If the line is none of the reader.
    pub fn take(&mut self, line: &str) -> Result<Option<ForeignRun>, String> {
        let fault = || format!("the reader of MLflow's store wrote `{}`", line.chars().take(60).collect::<String>());
        let Ok(Value::Table(mut table)) = from_json(line) else { return Err(fault()) };
        if let Some(Value::Table(run)) = table.remove("run") {
            self.is_deleted = run.get("deleted") == Some(&true.into());
            self.open = Some((begin(run).ok_or_else(fault)?, DigestWriter::new()));
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

fn begin(mut table: Table) -> Option<ForeignRun> {
    let mut text = |name: &str| table.remove(name)?.as_str().map(str::to_owned);
    let (id, name, experiment, status) = (text("id")?, text("name")?, text("experiment")?, text("status")?);
    let mut run = ForeignRun::new(TOOL, experiment, name);
    run.id = id;
    let seconds = |name: &str| table.get(name).and_then(Value::as_float).filter(|ms| *ms > 0.0).map(|ms| ms / 1e3);
    (run.started_unix_s, run.ended_unix_s) = (seconds("start_ms"), seconds("end_ms"));
    run.outcome = match status.as_str() {
        "FAILED" => Outcome::Failed { reason: "MLflow says that it failed".to_owned() },
        "KILLED" => Outcome::Interrupted { reason: "MLflow says that it was killed".to_owned() },
        "RUNNING" | "SCHEDULED" => {
            let reason = format!("MLflow says that it is {}", status.to_lowercase());
            Outcome::Interrupted { reason }
        }
        _ => Outcome::Finished,
    };
    if let Some(files) = table.get("artifacts").and_then(Value::as_int).and_then(|files| u64::try_from(files).ok())
        && files > 0
    {
        run.skipped.insert("artifact".to_owned(), files);
    }
    let mut pairs = |name: &str| table.remove(name).and_then(|value| value.as_table().cloned()).unwrap_or_default();
    run.params = pairs("params").into_iter().map(|(name, value)| (name, typed(value))).collect();
    run.texts = pairs("tags").into_iter().map(|(name, value)| (name, value.to_string())).collect();
    Some(run)
}

/// MLflow keeps parameters as texts: those that are numbers become numbers, so that answers compare them.
fn typed(value: Value) -> Value {
    let Some(text) = value.as_str() else { return value };
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    match text.parse::<f64>() {
        Ok(number) if is_number && number.is_finite() => number.into(),
        _ => value,
    }
}

/// Adds a name and its points: step, milliseconds and value of each.
fn add(run: &mut ForeignRun, points: &[Value]) -> Option<()> {
    let [name, Value::List(points)] = points else { return None };
    let name = name.as_str()?;
    let curves = if name.starts_with(SYSTEM) { &mut run.system } else { &mut run.curves };
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
        curve.push(Point { step: step.as_int()?, unix_s: ms.as_float()? / 1e3, value });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lines: &[&str]) -> (Vec<ForeignRun>, Vec<String>) {
        let mut runs = MlflowRuns::default();
        let found = lines.iter().filter_map(|line| runs.take(line).unwrap()).collect();
        (found, runs.deleted)
    }

    const RUN: &str = r#"{"run":{"id":"a1","name":"one","experiment":"Default","status":"FINISHED","start_ms":1000,"end_ms":3000,"deleted":false,"artifacts":2,"params":{"lr":"0.1","layers":"3","name":"nan"},"tags":{"note.content":"good"}}}"#;

    #[test]
    fn a_run_has_its_points_parameters_tags_and_times() {
        let points = r#"{"points":["loss",[[1,1500,1.5],[2,2000,"NaN"],[3,2500,"-Infinity"]]]}"#;
        let system = r#"{"points":["system/gpu_0_power_usage_watts",[[0,1000,70.5]]]}"#;
        let (found, _) = runs(&[RUN, points, system, r#"{"end":true}"#]);
        let run = &found[0];
        assert_eq!((run.id.as_str(), run.started_unix_s, run.ended_unix_s), ("a1", Some(1.0), Some(3.0)));
        let expected = Table::from([
            ("lr".to_owned(), 0.1.into()),
            ("layers".to_owned(), 3.into()),
            ("name".to_owned(), "nan".into()),
        ]);
        assert_eq!(run.params, expected);
        assert_eq!(run.texts["note.content"], "good");
        let loss = &run.curves["loss"];
        assert_eq!(loss[0], Point { step: 1, unix_s: 1.5, value: 1.5 });
        assert!(loss[1].value.is_nan() && loss[2].value == f64::NEG_INFINITY);
        assert_eq!((run.system.len(), run.skipped["artifact"]), (1, 2));
        run.clone().sealed().check().unwrap();
    }

    #[test]
    fn deleted_runs_are_named_and_what_says_that_it_runs_is_not_finished() {
        let deleted = RUN.replace("\"deleted\":false", "\"deleted\":true");
        let running = RUN.replace("FINISHED", "RUNNING");
        let end = r#"{"end":true}"#;
        let (found, names) = runs(&[&deleted, end, &running, end]);
        assert_eq!((found.len(), names), (1, vec!["one".to_owned()]));
        assert_eq!(found[0].outcome.reason(), Some("MLflow says that it is running"));
    }

    #[test]
    fn a_run_that_has_grown_has_another_digest() {
        let (one, more) = (r#"{"points":["loss",[[1,1500,1.5]]]}"#, r#"{"points":["loss",[[1,1500,1.5],[2,1600,1.0]]]}"#);
        let digest = |points: &str| runs(&[RUN, points, r#"{"end":true}"#]).0[0].digest;
        assert_eq!(digest(one), digest(one));
        assert_ne!(digest(one), digest(more));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "[]", r#"{"end":true}"#, r#"{"points":["loss",[[1]]]}"#, r#"{"run":{}}"#] {
            assert!(MlflowRuns::default().take(line).is_err(), "{line}");
        }
        let mut runs = MlflowRuns::default();
        runs.take(RUN).unwrap();
        assert!(runs.take(r#"{"points":["loss",[[1,2,"high"]]]}"#).is_err());
    }
}
