//! The program part of a run's identity, for external programs.

use super::closure::{Closure, closure};
use super::container;
use super::machine::{KnownFile, Machine};
use super::refusal::{BindError, ClosureError};
use crate::host::{HostError, python};
use crate::manifest::{MetricPattern, Program, ProgramIdentity};
use crate::record::{Cell, Digest, Table, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The members of a program part besides command and files. Parts of earlier versions may lack some.
#[derive(Default)]
pub(super) struct Stated {
    settings: Table,
    metrics: Option<Value>,
}

impl Stated {
    /// Members of a program part.
    const SETTINGS: &str = "settings";
    const METRICS: &str = "metrics";

    /// The settings in the command, and the patterns of metrics, because another pattern finds another quantity.
    pub(super) fn of(program: &Program, cell: &Cell) -> Self {
        let patterns = MetricPattern::of(&cell.settings).into_iter();
        let metrics: Table = patterns.map(|pattern| (pattern.name.clone(), pattern.value())).collect();
        Self { settings: program.settings(cell), metrics: (!metrics.is_empty()).then(|| metrics.into()) }
    }

    /// The members of a recorded program part. Paths may differ on this machine.
    pub(super) fn recorded(part: &Value) -> Self {
        let member = |name: &str| part.as_table()?.get(name).cloned();
        let settings = member(Self::SETTINGS).and_then(|settings| settings.as_table().cloned());
        Self { settings: settings.unwrap_or_default(), metrics: member(Self::METRICS) }
    }
}

/// The setting with the program's working directory.
pub(super) const DIRECTORY: &str = "program.directory";

/// A file in a run's identity.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramFile {
    /// The name in the identity, relative to the program's folder.
    pub name: String,
    /// The path.
    pub path: PathBuf,
    pub(super) known: KnownFile,
    /// Whether it is code, and not a word of the command, which may name a file that the program writes.
    pub(super) is_code: bool,
}

impl ProgramFile {
    /// The digest of the content.
    pub fn digest(&self) -> Digest {
        self.known.digest
    }
}

/// A program part and its files.
pub(super) struct Named {
    pub(super) part: Value,
    pub(super) files: Vec<ProgramFile>,
    /// Unknown parts, for warnings.
    pub(super) notes: Vec<String>,
}

impl Named {
    /// For a program and a cell. In an image, a word of the command that names a file outside the folder means a file
    /// of the image, which the image's digest identifies.
    pub(super) fn of(
        program: &Program,
        (cell, stated): (&Cell, Stated),
        is_contained: bool,
        machine: &Machine,
    ) -> Result<Self, BindError> {
        let directory = Path::new(cell.text(DIRECTORY).unwrap_or("."));
        let mut paths: BTreeMap<String, PathBuf> =
            program.files.iter().map(|file| (file.clone(), directory.join(file))).collect();
        if program.identity != ProgramIdentity::Files {
            paths.extend(words_of(program, directory, is_contained));
        }
        // Code is the started file and the files that the manifest names.
        let first = program.command.iter().find(|word| paths.contains_key(*word));
        let mut code: BTreeSet<PathBuf> =
            program.files.iter().chain(first).filter_map(|name| paths.get(name)).cloned().collect();
        let mut made = Closure::default();
        if program.identity == ProgramIdentity::Closure {
            paths.retain(|word, path| !(python::is_python(word) && program.command.contains(word) && path.is_file()));
            let recorded = machine.distrusted().and_then(|parts| parts.program.as_table());
            made = match (closure(&program.argv(cell)?, directory, is_contained, machine), recorded) {
                (Err(BindError::Closure(ClosureError::Untrusted(word))), Some(recorded)) => {
                    as_recorded(recorded, &word, &mut paths, directory)
                }
                (made, _) => made?,
            };
            for (name, path) in std::mem::take(&mut made.files) {
                code.insert(path.clone());
                // A file enters once, however the command writes its path.
                if !paths.values().any(|known| same(known, &path)) {
                    paths.insert(name, path);
                }
            }
            if let Some(submitted) = machine.submitted() {
                as_submitted(&submitted, &mut made, &mut paths, directory);
            }
        }
        let mut files = Vec::new();
        let mut unread: Vec<(String, HostError)> = Vec::new();
        for (name, path) in paths {
            match machine.known(&path) {
                Ok(known) => {
                    let is_code = code.contains(&path);
                    files.push(ProgramFile { name, path, known, is_code });
                }
                Err(why) => unread.push((name, why)),
            }
        }
        let mut unread = unread.into_iter();
        if let Some((file, why)) = unread.next() {
            return Err(BindError::File { file, why, others: unread.map(|(_, why)| why).collect() });
        }
        let digests: Table = files.iter().map(|file| (file.name.clone(), file.digest().to_string().into())).collect();
        let mut table: Table = [
            ("command".to_owned(), program.command.clone().into()),
            ("named_files".to_owned(), program.files.clone().into()),
            ("files".to_owned(), digests.into()),
        ]
        .into();
        if !stated.settings.is_empty() {
            table.insert(Stated::SETTINGS.to_owned(), stated.settings.into());
        }
        table.extend(stated.metrics.map(|metrics| (Stated::METRICS.to_owned(), metrics)));
        match program.identity {
            // Earlier versions hashed no such member, and their ids must stay.
            ProgramIdentity::Git => {
                let git = machine.git(directory);
                for (fact, field) in [("git.commit", GIT_COMMIT), ("git.patch", "git_patch")] {
                    table.extend(git.get(fact).map(|value| (field.to_owned(), value.clone())));
                }
            }
            identity => drop(table.insert(ProgramIdentity::MEMBER.to_owned(), identity.name().into())),
        }
        table.extend(made.interpreter.map(|interpreter| (INTERPRETER.to_owned(), interpreter.into())));
        if !made.packages.is_empty() {
            let packages: Table = made.packages.into_iter().map(|(name, version)| (name, version.into())).collect();
            table.insert(PACKAGES.to_owned(), packages.into());
        }
        Ok(Self { part: table.into(), files, notes: made.notes })
    }
}

/// Members of a program part.
pub(super) const INTERPRETER: &str = "interpreter";
const PACKAGES: &str = "packages";
pub(super) const GIT_COMMIT: &str = "git_commit";

fn same(a: &Path, b: &Path) -> bool {
    a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// The files that words of the command name. Placeholders are not expanded, because they may become files that the
/// program writes.
fn words_of(program: &Program, directory: &Path, is_contained: bool) -> BTreeMap<String, PathBuf> {
    let words = program.command.iter().map(|word| (word.clone(), directory.join(word)));
    words.filter(|(_, path)| path.is_file() && (!is_contained || container::lies_in(path, directory))).collect()
}

/// The closure for an untrusted record, whose interpreter is not started: the recorded imports, whose files are read
/// here.
fn as_recorded(
    recorded: &Table,
    interpreter: &str,
    paths: &mut BTreeMap<String, PathBuf>,
    directory: &Path,
) -> Closure {
    let mut made = Closure::default();
    as_submitted(recorded, &mut made, paths, directory);
    made.notes = vec![format!("`{interpreter}` was not started: its version and packages are the recorded ones")];
    made
}

/// Replaces the closure of a task by that of its submission, because a login node may have another interpreter.
/// Differences become notes.
fn as_submitted(submitted: &Table, made: &mut Closure, paths: &mut BTreeMap<String, PathBuf>, directory: &Path) {
    let text = |name: &str| submitted.get(name).and_then(Value::as_str).map(str::to_owned);
    let table = |name: &str| submitted.get(name).and_then(Value::as_table).cloned().unwrap_or_default();
    let told = text(INTERPRETER);
    if told != made.interpreter {
        let [was, is] = [&told, &made.interpreter].map(|one| one.as_deref().unwrap_or("unknown").to_owned());
        made.notes.push(format!("the interpreter on the node is {is}, and was {was} at the submission"));
        made.interpreter = told;
    }
    let packages: BTreeMap<String, String> =
        table(PACKAGES).into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))).collect();
    for (name, was) in &packages {
        let is = made.packages.get(name).map_or("unknown", String::as_str);
        if is != was {
            made.notes.push(format!("`{name}` on the node is {is}, and was {was} at the submission"));
        }
    }
    made.packages = packages;
    let names = table("files");
    paths.retain(|name, _| names.contains_key(name));
    for name in names.into_keys() {
        let path = directory.join(&name);
        paths.entry(name).or_insert(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::PATTERNS;

    #[test]
    fn a_record_without_patterns_keeps_its_id() {
        let metrics = Table::from([("accuracy".to_owned(), r"acc (\S+)".into())]);
        let cell =
            Cell { config: Table::new(), settings: [(PATTERNS.to_owned(), metrics.clone().into())].into(), seed: 0 };
        let program = Program::new(vec!["sh".to_owned()], Vec::new(), ProgramIdentity::Closure).unwrap();
        assert_eq!(Stated::of(&program, &cell).metrics, Some(metrics.clone().into()));
        let part = |metrics: Option<&Table>| {
            let command = ("command".to_owned(), vec!["sh".to_owned()].into());
            let metrics = metrics.map(|metrics| (Stated::METRICS.to_owned(), metrics.clone().into()));
            Value::Table([command].into_iter().chain(metrics).collect())
        };
        assert_eq!(Stated::recorded(&part(None)).metrics, None);
        assert_eq!(Stated::recorded(&part(Some(&metrics))).metrics, Some(metrics.into()));
    }

    #[test]
    fn a_task_has_the_closure_of_its_submission_and_notes_differences() {
        let table = |pairs: &[(&str, &str)]| -> Table {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect()
        };
        let submitted: Table = [
            (INTERPRETER.to_owned(), "cpython 3.12.1".into()),
            (PACKAGES.to_owned(), table(&[("numpy", "2.1.3"), ("torch", "2.5")]).into()),
            ("files".to_owned(), table(&[("train.py", "1"), ("model.py", "2")]).into()),
        ]
        .into();
        let mut made = Closure {
            interpreter: Some("cpython 3.9.2".to_owned()),
            packages: [("numpy".to_owned(), "2.0.2".to_owned()), ("torch".to_owned(), "2.5".to_owned())].into(),
            ..Closure::default()
        };
        let mut paths: BTreeMap<String, PathBuf> =
            [("train.py".to_owned(), "/f/train.py".into()), ("new.py".to_owned(), "/f/new.py".into())].into();
        as_submitted(&submitted, &mut made, &mut paths, Path::new("/f"));
        assert_eq!(made.interpreter.as_deref(), Some("cpython 3.12.1"));
        assert_eq!(made.packages["numpy"], "2.1.3");
        assert_eq!(paths.into_values().collect::<Vec<_>>(), [Path::new("/f/model.py"), Path::new("/f/train.py")]);
        let expected = [
            "the interpreter on the node is cpython 3.9.2, and was cpython 3.12.1 at the submission",
            "`numpy` on the node is 2.0.2, and was 2.1.3 at the submission",
        ];
        assert_eq!(made.notes, expected);
    }
}
