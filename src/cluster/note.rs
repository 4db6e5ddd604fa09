//! The note of a running task: its node, and the progress of each of its cells.

use super::ClusterError;
use super::fields::{Fields, table_of, text_of};
use crate::record::{Digest, RunId, Value};
use std::path::Path;

/// The progress of a cell in its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellState {
    /// Its execution has not begun.
    Waiting,
    /// It is being executed.
    Running,
    /// All its attempts have finished or failed.
    Done,
    /// The node cannot execute it, or would execute another cell than was submitted.
    Refused,
    /// It was stopped.
    Interrupted,
}

impl CellState {
    const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Done, Self::Refused, Self::Interrupted];

    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The progress of one cell of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct CellNote {
    /// The cell's id.
    pub id: Digest,
    /// Its run on this node, once that is known.
    pub run: Option<RunId>,
    /// Its progress.
    pub state: CellState,
    /// Why it is refused or was stopped.
    pub reason: Option<String>,
    /// The last reported step, and the number of steps.
    pub step: Option<(u64, u64)>,
    /// The last reported loss.
    pub loss: Option<f64>,
}

impl CellNote {
    /// Returns the note of a cell whose execution has not begun.
    pub fn new(id: Digest) -> Self {
        Self { id, run: None, state: CellState::Waiting, reason: None, step: None, loss: None }
    }
}

/// The note of one start of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The index of the array in the submission.
    pub array: usize,
    /// The task of that array.
    pub task: u32,
    /// The Slurm job id of the array.
    pub job: String,
    /// How often Slurm had restarted the task before.
    pub restarts: u32,
    /// The node.
    pub node: String,
    /// When it started, by the node's clock.
    pub started_unix_ms: i64,
    /// The exit code of the task, once it has ended.
    pub code: Option<i64>,
    /// Its cells.
    pub cells: Vec<CellNote>,
}

impl Note {
    /// The name of its file.
    pub fn name(&self) -> String {
        format!("{}-{}.{}.{}.json", self.array, self.task, self.job, self.restarts)
    }

    /// The text of its file.
    pub fn text(&self) -> String {
        let cells = self.cells.iter().map(|cell| {
            let mut table = table_of([("cell", cell.id.to_string().into()), ("state", cell.state.name().into())]);
            let mut put = |name: &str, value: Option<Value>| {
                table.extend(value.map(|value| (name.to_owned(), value)));
            };
            put("run", cell.run.map(|run| run.to_string().into()));
            put("reason", cell.reason.as_deref().map(Value::from));
            put("step", cell.step.map(|(step, _)| step.into()));
            put("steps", cell.step.map(|(_, steps)| steps.into()));
            put("loss", cell.loss.filter(|loss| loss.is_finite()).map(Value::from));
            Value::Table(table)
        });
        let code = self.code.map_or_else(|| Value::List(Vec::new()), |code| vec![code].into());
        text_of([
            ("array", self.array.into()),
            ("task", self.task.into()),
            ("job", self.job.as_str().into()),
            ("restarts", self.restarts.into()),
            ("node", self.node.as_str().into()),
            ("started_unix_ms", self.started_unix_ms.into()),
            ("code", code),
            ("cells", Value::List(cells.collect())),
        ])
    }

    /// Reads a note.
    ///
    /// # Errors
    /// If it cannot be read, or was not written with [`text`](Self::text).
    pub fn read(path: &Path) -> Result<Self, ClusterError> {
        let fields = Fields::read(path)?;
        let cell = |value: &Value| {
            let fields = fields.within(value)?;
            let state = fields.text("state")?;
            let whole = |name: &str| fields.get(name).and_then(Value::as_int).and_then(|n| u64::try_from(n).ok());
            Ok(CellNote {
                id: fields.digest("cell")?,
                run: fields.digest("run").ok().map(RunId),
                state: CellState::ALL.into_iter().find(|known| known.name() == state).unwrap_or(CellState::Waiting),
                reason: fields.text("reason").ok(),
                step: whole("step").zip(whole("steps")),
                loss: fields.get("loss").and_then(Value::as_float),
            })
        };
        Ok(Self {
            array: fields.number("array")?,
            task: fields.number("task")?,
            job: fields.text("job")?,
            restarts: fields.number("restarts")?,
            node: fields.text("node")?,
            started_unix_ms: fields.int("started_unix_ms")?,
            code: fields.list("code")?.first().and_then(Value::as_int),
            cells: fields.list("cells")?.iter().map(cell).collect::<Result<_, ClusterError>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let id = Digest::of(b"c");
        let running = CellNote {
            run: Some(RunId(id)),
            state: CellState::Running,
            reason: Some("r".to_owned()),
            step: Some((3, 9)),
            loss: Some(0.5),
            ..CellNote::new(id)
        };
        let note = Note {
            array: 1,
            task: 17,
            job: "42".to_owned(),
            restarts: 2,
            node: "n1".to_owned(),
            started_unix_ms: 5,
            code: None,
            cells: vec![CellNote::new(id), running],
        };
        assert_eq!(note.name(), "1-17.42.2.json");
        for note in [Note { code: Some(130), ..note.clone() }, note] {
            let path = dir.path().join(note.name());
            std::fs::write(&path, note.text()).unwrap();
            assert_eq!(Note::read(&path).unwrap(), note);
        }
    }
}
