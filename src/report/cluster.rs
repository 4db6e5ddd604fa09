//! Submissions to a cluster and their progress, as text and as a document.

use super::document::table_of;
use super::number::{count, significant};
use super::plain::{plain, plain_lines};
use super::table::columns;
use crate::record::{Digest, RunId, Table, Value};
use std::collections::BTreeMap;

/// One job array that was or would be submitted.
#[derive(Clone, Debug)]
pub struct SubmittedArray {
    /// The scheduler's id of the job; `None` if it was not submitted.
    pub job: Option<String>,
    /// Number of tasks.
    pub tasks: usize,
    /// GPUs of each task.
    pub gpus: u32,
    /// Path of its script.
    pub script: String,
    /// Content of the script.
    pub text: String,
    /// Cells: digest, task, and the label that distinguishes the cell.
    pub cells: Vec<(Digest, u32, String)>,
}

impl SubmittedArray {
    fn size(&self) -> String {
        let gpus = if self.gpus == 0 { String::new() } else { format!(" with {}", count(self.gpus, "GPU")) };
        format!("{} in {}{gpus}", count(self.cells.len(), "cell"), count(self.tasks, "task"))
    }
}

/// Returns the submitted jobs as text. Without a submitted job: the cells and scripts that would be submitted.
pub fn submit_text(submission: Option<&str>, arrays: &[SubmittedArray]) -> String {
    let Some(name) = submission else { return "nothing to submit\n".to_owned() };
    let mut text = String::new();
    let is_submitted = arrays.iter().any(|array| array.job.is_some());
    for array in arrays {
        match &array.job {
            Some(job) => text.push_str(&format!("job {job}: {}\n", array.size())),
            None if is_submitted => text.push_str(&format!("not submitted: {}\n", array.size())),
            None => {
                let rows =
                    array.cells.iter().map(|(cell, task, label)| vec![cell.prefix(8), task.to_string(), label.clone()]);
                text.push_str(&columns(&["CELL", ">TASK", "WITH"], rows));
                text.push_str(&format!("{}, by this script:\n\n{}\n", array.size(), array.text));
            }
        }
    }
    if is_submitted {
        text.push_str(&format!(
            "submission {name} (`ledger status` shows its progress, `ledger collect` imports its results)\n"
        ));
    }
    text
}

/// Returns the submitted arrays as a document's members.
pub fn submit_value(arrays: &[SubmittedArray]) -> Table {
    let items = arrays.iter().map(|array| {
        let cells = array.cells.iter().map(|(cell, task, label)| {
            let members =
                [("cell", cell.to_string().into()), ("task", (*task).into()), ("with", label.as_str().into())];
            Value::Table(table_of(members))
        });
        let mut table = table_of([
            ("tasks", array.tasks.into()),
            ("gpus_per_task", array.gpus.into()),
            ("script_path", array.script.as_str().into()),
            ("script", array.text.as_str().into()),
            ("cells", Value::List(cells.collect())),
        ]);
        if let Some(job) = &array.job {
            table.insert("job".to_owned(), job.as_str().into());
        }
        Value::Table(table)
    });
    table_of([("arrays", Value::List(items.collect()))])
}

/// Returns the resubmitted jobs as text: each job's id and its number of tasks.
pub fn resume_text(submission: &str, jobs: &[(String, usize)]) -> String {
    if jobs.is_empty() {
        return format!("nothing to resume in {submission}\n");
    }
    jobs.iter().map(|(job, tasks)| format!("job {job}: {} of {submission} again\n", count(*tasks, "task"))).collect()
}

/// Returns the tasks that would be resubmitted, by the index of their array, as text.
pub fn resumable_text(submission: &str, tasks: &BTreeMap<usize, Vec<u32>>) -> String {
    if tasks.is_empty() {
        return resume_text(submission, &[]);
    }
    let line = |(array, tasks): (&usize, &Vec<u32>)| {
        let numbers: Vec<String> = tasks.iter().map(ToString::to_string).collect();
        format!("array {array} of {submission}: {} again ({})\n", count(tasks.len(), "task"), numbers.join(", "))
    };
    tasks.iter().map(line).collect()
}

/// One cell of a submission and its progress.
#[derive(Clone, Debug)]
pub struct CellLine {
    /// The cell's digest.
    pub cell: Digest,
    /// State as shown, for example `running` or `failed`.
    pub state: &'static str,
    /// Its task, as the scheduler names it.
    pub task: Option<String>,
    /// Its node; empty if it has none.
    pub node: String,
    /// Its run; `None` until a node has computed the id.
    pub run: Option<RunId>,
    /// Finished attempts, and how many are wanted.
    pub done: (usize, usize),
    /// Label that distinguishes the cell from the others.
    pub label: String,
    /// The last reported step, and the number of steps (0 if unknown).
    pub step: Option<(u64, u64)>,
    /// The last reported loss.
    pub loss: Option<f64>,
    /// Reason of the state.
    pub reason: Option<String>,
    /// The last lines of its output if it did not finish.
    pub tail: String,
}

/// A submission and its progress.
#[derive(Clone, Debug)]
pub struct StatusView {
    /// Name of the submission.
    pub submission: String,
    /// Ids of its jobs.
    pub jobs: Vec<String>,
    /// Path of its folder.
    pub folder: String,
    /// Its cells.
    pub cells: Vec<CellLine>,
}

impl StatusView {
    /// Counts the cells of each state, sorted by state.
    fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for cell in &self.cells {
            *counts.entry(cell.state).or_default() += 1;
        }
        counts
    }

    fn jobs_text(&self) -> String {
        match self.jobs.as_slice() {
            [] => "not submitted".to_owned(),
            [job] => format!("job {job}"),
            jobs => format!("jobs {}", jobs.join(", ")),
        }
    }
}

/// Returns the progress of submissions as text.
pub fn status_text(views: &[StatusView]) -> String {
    views.iter().map(one_text).collect::<Vec<_>>().join("\n")
}

fn one_text(view: &StatusView) -> String {
    let dash = || "-".to_owned();
    let rows = view.cells.iter().map(|cell| {
        let step = match cell.step.filter(|_| cell.state == "running") {
            Some((step, 0)) => step.to_string(),
            Some((step, steps)) => format!("{step}/{steps}"),
            None => dash(),
        };
        vec![
            cell.cell.prefix(8),
            cell.state.to_owned(),
            format!("{}/{}", cell.done.0, cell.done.1),
            cell.task.clone().unwrap_or_else(dash),
            if cell.node.is_empty() { dash() } else { cell.node.clone() },
            cell.run.map_or_else(dash, |run| run.0.prefix(8)),
            step,
            cell.loss.filter(|_| cell.state == "running").map_or_else(dash, significant),
            cell.label.clone(),
        ]
    });
    let mut text = format!("{}, {}\n", view.submission, view.jobs_text());
    text.push_str(&columns(&["CELL", "STATE", ">DONE", "~~TASK", "~NODE", "~~~RUN", ">STEP", ">LOSS", "<WITH"], rows));
    let counts: Vec<String> = view.counts().into_iter().map(|(state, number)| format!("{number} {state}")).collect();
    text.push_str(&format!("{}: {}\n", count(view.cells.len(), "cell"), counts.join(", ")));
    for cell in view.cells.iter().filter(|cell| cell.reason.is_some() || !cell.tail.is_empty()) {
        let reason = cell.reason.as_deref().unwrap_or("it says:");
        text.push_str(&format!("\n{} {}: {}\n", cell.cell.prefix(8), cell.state, plain(reason)));
        text.extend(cell.tail.lines().map(|line| format!("    {}\n", plain_lines(line))));
    }
    text
}

/// Returns the progress of submissions as a document's members.
pub fn status_value(views: &[StatusView]) -> Table {
    let items = views.iter().map(|view| {
        let counts: Table =
            view.counts().into_iter().map(|(state, number)| (state.to_owned(), number.into())).collect();
        Value::Table(table_of([
            ("submission", view.submission.as_str().into()),
            ("jobs", view.jobs.clone().into()),
            ("folder", view.folder.as_str().into()),
            ("counts", counts.into()),
            ("cells", Value::List(view.cells.iter().map(cell_value).collect())),
        ]))
    });
    table_of([("submissions", Value::List(items.collect()))])
}

fn cell_value(cell: &CellLine) -> Value {
    let mut table = table_of([
        ("cell", cell.cell.to_string().into()),
        ("state", cell.state.into()),
        ("finished", cell.done.0.into()),
        ("wanted", cell.done.1.into()),
        ("with", cell.label.as_str().into()),
    ]);
    let mut put = |name: &str, value: Option<Value>| table.extend(value.map(|value| (name.to_owned(), value)));
    put("task", cell.task.as_deref().map(Value::from));
    put("node", Some(cell.node.as_str()).filter(|node| !node.is_empty()).map(Value::from));
    put("run", cell.run.map(|run| run.to_string().into()));
    put("step", cell.step.map(|(step, _)| step.into()));
    put("steps", cell.step.map(|(_, steps)| steps.into()));
    put("loss", cell.loss.map(Value::from));
    put("reason", cell.reason.as_deref().map(Value::from));
    put("tail", Some(cell.tail.as_str()).filter(|tail| !tail.is_empty()).map(Value::from));
    table.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(state: &'static str) -> CellLine {
        CellLine {
            cell: Digest([0xab; 32]),
            state,
            task: Some("42_0".to_owned()),
            node: "n1".to_owned(),
            run: Some(RunId(Digest([0xcd; 32]))),
            done: (0, 1),
            label: "lr 0.1".to_owned(),
            step: Some((30, 100)),
            loss: Some(0.5),
            reason: None,
            tail: String::new(),
        }
    }

    #[test]
    fn status_lists_cells_counts_and_failures() {
        let waiting = CellLine { run: None, step: None, loss: None, node: String::new(), ..line("waiting") };
        let failed = CellLine {
            reason: Some("the worker exited with code 1".to_owned()),
            tail: "epoch\t1\n\u{1b}[31mout of memory".to_owned(),
            label: "lr 9".to_owned(),
            ..line("failed")
        };
        let view = StatusView {
            submission: "20261122-033624-toy".to_owned(),
            jobs: vec!["42".to_owned()],
            folder: "/s".to_owned(),
            cells: vec![line("running"), waiting, failed],
        };
        let expected = "\
20261122-033624-toy, job 42
CELL      STATE    DONE  TASK  NODE  RUN         STEP  LOSS  WITH
abababab  running   0/1  42_0  n1    cdcdcdcd  30/100   0.5  lr 0.1
abababab  waiting   0/1  42_0  -     -              -     -  lr 0.1
abababab  failed    0/1  42_0  n1    cdcdcdcd       -     -  lr 9
3 cells: 1 failed, 1 running, 1 waiting

abababab failed: the worker exited with code 1
    epoch\t1
    \\u{1b}[31mout of memory
";
        assert_eq!(status_text(&[view]), expected);
    }

    #[test]
    fn submit_text_shows_submitted_refused_and_planned_arrays() {
        let mut array = SubmittedArray {
            job: Some("42".to_owned()),
            tasks: 1,
            gpus: 2,
            script: "/s/array-0.sh".to_owned(),
            text: "#!/bin/bash\n".to_owned(),
            cells: vec![(Digest([1; 32]), 0, "lr 1".to_owned()), (Digest([2; 32]), 0, "lr 2".to_owned())],
        };
        let text = submit_text(Some("toy"), std::slice::from_ref(&array));
        assert!(text.starts_with("job 42: 2 cells in 1 task with 2 GPUs\nsubmission toy ("), "{text}");
        let refused = SubmittedArray { job: None, ..array.clone() };
        let text = submit_text(Some("toy"), &[array.clone(), refused]);
        assert!(text.contains("\nnot submitted: 2 cells in 1 task with 2 GPUs\nsubmission toy ("), "{text}");
        array.job = None;
        let text = submit_text(Some("toy"), &[array]);
        assert!(text.starts_with("CELL      TASK  WITH\n01010101     0  lr 1\n"), "{text}");
        assert!(text.ends_with("2 cells in 1 task with 2 GPUs, by this script:\n\n#!/bin/bash\n\n"), "{text}");
        assert_eq!(submit_text(None, &[]), "nothing to submit\n");
    }
}
