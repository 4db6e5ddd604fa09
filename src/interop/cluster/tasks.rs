//! The levels of a cluster's tasks.

use super::checkpoints::{hash, joined};
use crate::interop::rows::{Faults, ImportError, Rows, Source, shown};
use csv::ByteRecord;
use std::collections::HashMap;
use std::path::Path;

/// The levels of tasks.
pub(super) struct Tasks {
    pub(super) source: Source,
    /// Levels by job and task, with the separator between them. The job is empty if the file has none.
    levels: HashMap<String, String>,
    has_jobs: bool,
    pub(super) duplicates: usize,
    pub(super) faults: Faults,
}

impl Tasks {
    /// Returns the level of a task, given its job and name.
    pub(super) fn level(&self, job: &str, task: &str) -> Option<&str> {
        let mut key = Vec::new();
        joined(&mut key, if self.has_jobs { job.as_bytes() } else { b"" }, task.as_bytes());
        self.levels.get(std::str::from_utf8(&key).ok()?).map(String::as_str)
    }
}

/// Reads the list of tasks.
pub(super) fn read(path: &Path) -> Result<Tasks, ImportError> {
    let mut rows = Rows::open(path, b',')?;
    let (task, level, job) = (rows.column("taskId")?, rows.column("level")?, rows.find("jobId"));
    let all: Vec<usize> = (0..rows.heads().len()).collect();
    let mut levels: HashMap<String, String> = HashMap::new();
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut faults = Faults::default();
    let mut duplicates = 0;
    let (mut record, mut key) = (ByteRecord::new(), Vec::new());
    while rows.next(&mut record)? {
        if let Err(fault) = rows.whole(&record) {
            faults.add(fault);
            continue;
        }
        joined(&mut key, job.and_then(|job| record.get(job)).unwrap_or_default(), &record[task]);
        let name = String::from_utf8_lossy(&key).into_owned();
        let row = hash(&record, &all);
        if seen.get(&name) == Some(&row) {
            duplicates += 1;
            continue;
        }
        let found = String::from_utf8_lossy(&record[level]).trim().to_owned();
        match levels.get(&name) {
            Some(other) if *other != found => {
                let message = format!("task `{}` has level {found}, but {other} above", shown(&record[task]));
                faults.add(rows.fault(&record, message));
            }
            _ => {
                seen.insert(name.clone(), row);
                levels.insert(name, found);
            }
        }
    }
    Ok(Tasks { source: rows.finish(), levels, has_jobs: job.is_some(), duplicates, faults })
}
