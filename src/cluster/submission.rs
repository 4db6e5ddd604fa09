//! The record of a submission: the cells, the request, and the full cells of each task.
//!
//! `submission.json` lists the cells. `tasks/ARRAY-TASK.json` holds the expanded cells of one task. A later change of
//! the manifest thus cannot change what a task executes, and no task has to read the cells of others.

use super::ClusterError;
use super::fields::{Fields, table_of, text_of};
use crate::engine::{Cause, Expected};
use crate::manifest::{Program, ProgramIdentity};
use crate::record::{Cell, Digest, RunId, Table, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// A program's command and files, as written in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramText {
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
    /// Files whose contents enter the identity.
    pub files: Vec<String>,
    /// The part of the program that enters the identity.
    pub identity: ProgramIdentity,
}

impl ProgramText {
    /// Returns the program, or `None` if its placeholders are invalid.
    pub fn program(&self) -> Option<Program> {
        Program::new(self.command.clone(), self.files.clone(), self.identity).ok()
    }
}

/// One cell of a submission, in full.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its id: [`Expected::id`].
    pub id: Digest,
    /// The label that distinguishes it for the user.
    pub label: String,
    /// The cell, and the programs that may execute it.
    pub expected: Expected,
    /// How many attempts it needs.
    pub cause: Cause,
    /// Finished attempts by run, on any machine, that the ledger had at submission.
    pub sealed: BTreeMap<RunId, usize>,
}

/// One cell in the list of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: Digest,
    /// The label that distinguishes it for the user.
    pub label: String,
    /// The array in which it is executed.
    pub array: usize,
    /// The task of that array.
    pub task: u32,
    /// How many attempts it needs. Sealed attempts of its run are subtracted once its node knows the run.
    pub attempts: usize,
}

/// One job array of a submission, with cells of the same needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// GPUs per task.
    pub gpus: u32,
    /// How many tasks it has.
    pub tasks: usize,
    /// The kind of machine that Slurm may choose: [`Request::kind`](super::Request::kind).
    pub kind: String,
}

impl Array {
    /// Returns the name of its script.
    pub fn script(number: usize) -> String {
        format!("array-{number}.sh")
    }
}

/// The record of a submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Its name, and that of its folder.
    pub name: String,
    /// The experiment's name.
    pub experiment: String,
    /// The manifest's path.
    pub manifest: String,
    /// The digest of the manifest's bytes.
    pub manifest_digest: Digest,
    /// When it was submitted, in milliseconds since the Unix epoch.
    pub created_unix_ms: i64,
    /// The request to Slurm, by the keys of `[slurm]`.
    pub request: Table,
    /// Its arrays.
    pub arrays: Vec<Array>,
    /// Its cells, in the manifest's order.
    pub cells: Vec<Listed>,
}

impl Submission {
    /// Returns the cluster that it was submitted to.
    pub fn cluster(&self) -> Option<&str> {
        self.arrays.first()?.kind.split('/').next()
    }

    /// Returns the text of `submission.json`.
    pub fn text(&self) -> String {
        let arrays = self.arrays.iter().map(|array| {
            let members =
                [("gpus", array.gpus.into()), ("tasks", array.tasks.into()), ("kind", array.kind.as_str().into())];
            Value::Table(table_of(members))
        });
        let cells = self.cells.iter().map(|cell| {
            Value::Table(table_of([
                ("cell", cell.id.to_string().into()),
                ("label", cell.label.as_str().into()),
                ("array", cell.array.into()),
                ("task", cell.task.into()),
                ("attempts", cell.attempts.into()),
            ]))
        });
        text_of([
            ("submission", self.name.as_str().into()),
            ("experiment", self.experiment.as_str().into()),
            ("manifest", self.manifest.as_str().into()),
            ("manifest_digest", self.manifest_digest.to_string().into()),
            ("created_unix_ms", self.created_unix_ms.into()),
            ("slurm", self.request.clone().into()),
            ("arrays", Value::List(arrays.collect())),
            ("cells", Value::List(cells.collect())),
        ])
    }

    /// Reads `submission.json`.
    ///
    /// # Errors
    /// If it cannot be read, or was not written with [`text`](Self::text).
    pub fn read(path: &Path) -> Result<Self, ClusterError> {
        let fields = Fields::read(path)?;
        let array = |value: &Value| {
            let fields = fields.within(value)?;
            Ok(Array { gpus: fields.number("gpus")?, tasks: fields.number("tasks")?, kind: fields.text("kind")? })
        };
        let cell = |value: &Value| {
            let fields = fields.within(value)?;
            Ok(Listed {
                id: fields.digest("cell")?,
                label: fields.text("label")?,
                array: fields.number("array")?,
                task: fields.number("task")?,
                attempts: fields.number("attempts")?,
            })
        };
        Ok(Self {
            name: fields.text("submission")?,
            experiment: fields.text("experiment")?,
            manifest: fields.text("manifest")?,
            manifest_digest: fields.digest("manifest_digest")?,
            created_unix_ms: fields.int("created_unix_ms")?,
            request: fields.table("slurm")?,
            arrays: fields.list("arrays")?.iter().map(array).collect::<Result<_, ClusterError>>()?,
            cells: fields.list("cells")?.iter().map(cell).collect::<Result<_, ClusterError>>()?,
        })
    }
}

/// The input of a task: `tasks/ARRAY-TASK.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskFile {
    /// The submission's name.
    pub submission: String,
    /// The kind of machine that Slurm may choose.
    pub kind: String,
    /// Whether a restarted task may continue with what is left.
    pub requeue: bool,
    /// How many seconds before the time limit it is signalled to stop.
    pub grace_s: u32,
    /// The program of its cells; `None` for the built-in trainer.
    pub program: Option<ProgramText>,
    /// Facts about the submission that are recorded with each attempt.
    pub facts: Table,
    /// Its cells.
    pub members: Vec<Member>,
}

impl TaskFile {
    /// Returns the name of the file.
    pub fn name(array: usize, task: u32) -> String {
        format!("{array}-{task}.json")
    }

    /// Returns its text.
    pub fn text(&self) -> String {
        let mut program = Table::new();
        if let Some(text) = &self.program {
            program = table_of([
                ("command", text.command.clone().into()),
                ("files", text.files.clone().into()),
                (ProgramIdentity::MEMBER, text.identity.name().into()),
            ]);
        }
        text_of([
            ("submission", self.submission.as_str().into()),
            ("kind", self.kind.as_str().into()),
            ("requeue", self.requeue.into()),
            ("grace_s", self.grace_s.into()),
            ("program", program.into()),
            ("facts", self.facts.clone().into()),
            ("cells", Value::List(self.members.iter().map(member_value).collect())),
        ])
    }

    /// Reads the file, and checks that each cell's id matches its content.
    ///
    /// # Errors
    /// If it cannot be read, or was not written with [`text`](Self::text).
    pub fn read(path: &Path) -> Result<Self, ClusterError> {
        let fields = Fields::read(path)?;
        let program = fields.within(&fields.table("program")?.into())?;
        let program = match program.get("command") {
            None => None,
            // Submissions by older versions, which knew only this identity, have no such member.
            Some(_) => Some(ProgramText {
                command: program.texts("command")?,
                files: program.texts("files")?,
                identity: match program.get(ProgramIdentity::MEMBER).and_then(Value::as_str) {
                    Some(name) => ProgramIdentity::named(name).ok_or_else(|| {
                        program.fault(&format!("the identity `{name}` is unknown (use a newer ledger)"))
                    })?,
                    None => ProgramIdentity::Git,
                },
            }),
        };
        Ok(Self {
            submission: fields.text("submission")?,
            kind: fields.text("kind")?,
            requeue: fields.get("requeue") == Some(&true.into()),
            grace_s: fields.number("grace_s")?,
            program,
            facts: fields.table("facts")?,
            members: fields.list("cells")?.iter().map(|value| member(&fields, value)).collect::<Result<_, _>>()?,
        })
    }
}

fn member_value(member: &Member) -> Value {
    let cell = member.expected.cell();
    let (cause, times) = match member.cause {
        Cause::Complete(times) => ("complete", times),
        Cause::Repeat(times) => ("repeat", times),
    };
    let sealed: Table = member.sealed.iter().map(|(run, count)| (run.to_string(), (*count).into())).collect();
    Value::Table(table_of([
        ("cell", member.id.to_string().into()),
        ("label", member.label.as_str().into()),
        ("config", cell.config.clone().into()),
        ("settings", cell.settings.clone().into()),
        ("seed", cell.seed.to_string().into()),
        ("programs", member.expected.programs().clone().into()),
        ("cause", cause.into()),
        ("times", times.into()),
        ("sealed", sealed.into()),
    ]))
}

fn member(file: &Fields, value: &Value) -> Result<Member, ClusterError> {
    let fields = file.within(value)?;
    let id = fields.digest("cell")?;
    let seed = fields.text("seed")?.parse().map_err(|_| fields.fault("`seed` is no number"))?;
    let cell = Cell { config: fields.table("config")?, settings: fields.table("settings")?, seed };
    let expected = Expected::recorded(cell, fields.table("programs")?);
    if expected.id() != id {
        return Err(fields.fault(&format!("cell {} is not the one that this name is for", id.prefix(8))));
    }
    let times = fields.number("times")?;
    let cause = if fields.text("cause")? == "repeat" { Cause::Repeat(times) } else { Cause::Complete(times) };
    let mut sealed = BTreeMap::new();
    for (run, count) in fields.table("sealed")? {
        let run = run.parse().map_err(|_| fields.fault("`sealed` names no run"))?;
        sealed.insert(RunId(run), count.as_int().and_then(|count| usize::try_from(count).ok()).unwrap_or(0));
    }
    Ok(Member { id, label: fields.text("label")?, expected, cause, sealed })
}

#[cfg(test)]
impl Submission {
    /// Returns an empty submission for tests.
    pub(super) fn empty() -> Self {
        Self {
            name: "n".to_owned(),
            experiment: "e".to_owned(),
            manifest: "m.toml".to_owned(),
            manifest_digest: Digest::of(b"m"),
            created_unix_ms: 0,
            request: Table::new(),
            arrays: Vec::new(),
            cells: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rate: f64) -> Member {
        let config = table_of([("lr", rate.into()), ("hardware.device", "auto".into())]);
        let cell = Cell { config, settings: table_of([("data.path", "/d".into())]), seed: u64::MAX };
        let expected = Expected::recorded(cell, table_of([("program", table_of([("command", "x".into())]).into())]));
        let sealed = [(RunId(Digest::of(b"run")), 2)].into();
        Member { id: expected.id(), label: "lr".to_owned(), expected, cause: Cause::Repeat(3), sealed }
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let submission = Submission {
            created_unix_ms: -5,
            request: table_of([("partition", "gpu".into())]),
            arrays: vec![Array { gpus: 2, tasks: 3, kind: "k".to_owned() }],
            cells: vec![Listed { id: member(0.1).id, label: "l".to_owned(), array: 0, task: 2, attempts: 1 }],
            ..Submission::empty()
        };
        let path = dir.path().join("s.json");
        std::fs::write(&path, submission.text()).unwrap();
        assert_eq!(Submission::read(&path).unwrap(), submission);

        let task = TaskFile {
            submission: "n".to_owned(),
            kind: "k".to_owned(),
            requeue: true,
            grace_s: 60,
            program: Some(ProgramText {
                command: vec!["{lr}".to_owned()],
                files: vec![],
                identity: ProgramIdentity::Closure,
            }),
            facts: table_of([("git.commit", "abc".into())]),
            members: vec![member(0.1), member(1.0)],
        };
        std::fs::write(&path, task.text()).unwrap();
        assert_eq!(TaskFile::read(&path).unwrap(), task);
        let bare = TaskFile { program: None, requeue: false, ..task };
        std::fs::write(&path, bare.text()).unwrap();
        assert_eq!(TaskFile::read(&path).unwrap(), bare);
    }

    #[test]
    fn a_changed_cell_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        let task = TaskFile {
            submission: "n".to_owned(),
            kind: "k".to_owned(),
            requeue: true,
            grace_s: 60,
            program: None,
            facts: Table::new(),
            members: vec![member(0.25)],
        };
        std::fs::write(&path, task.text().replace("0.25", "0.5")).unwrap();
        let error = TaskFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("is not the one that this name is for"), "{error}");
        std::fs::write(&path, task.text().replace("\"format\": 1", "\"format\": 2")).unwrap();
        assert!(matches!(TaskFile::read(&path), Err(ClusterError::Newer { found: 2, .. })));
        std::fs::write(&path, "{\"format\": 1}").unwrap();
        assert!(TaskFile::read(&path).unwrap_err().to_string().contains("`program` is missing"));
        std::fs::write(&path, "[]").unwrap();
        assert!(matches!(TaskFile::read(&path), Err(ClusterError::Damaged { .. })));
    }
}
