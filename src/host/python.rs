//! The imports of a Python program, as determined by the interpreter that will run it.
//!
//! The interpreter runs ledger's own program, which parses source files. It imports no module of the user's program,
//! and executes no `.pth` line and no `sitecustomize` of its environment.

use super::command::{self, CommandError};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The timeout. A network file system with many packages may take long; a hung one must not delay a run forever.
const PATIENCE: Duration = Duration::from_secs(120);
const CLOSURE: &str = include_str!("python/closure.py");
/// Installed as `sitecustomize.py` in a folder of its own, it reports the files that a Python process has loaded.
pub const LOADED: &str = include_str!("python/loaded.py");

/// A program that prints the runs of a tracker's store as lines of JSON.
const TRACKERS: &str = include_str!("python/trackers.py");

/// The entry point of a Python program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A source file.
    Script(String),
    /// A module's name, as for `python -m`.
    Module(String),
    /// Source text, as for `python -c`.
    Code(String),
}

impl Entry {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Script(path) => ("script", path),
            Self::Module(name) => ("module", name),
            Self::Code(text) => ("code", text),
        }
    }
}

/// A query for the imports of a Python program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The interpreter's path.
    pub interpreter: PathBuf,
    /// The interpreter's options that affect where modules are found: letters of `EIPSs`.
    pub flags: String,
    /// The program's entry point.
    pub entry: Entry,
    /// The program that the entry starts if the entry is a module that is not local: for `python -m cProfile train.py`,
    /// `train.py`.
    pub launched: Option<Entry>,
    /// Additional modules that it imports.
    pub also: Vec<String>,
    /// The working directory.
    pub directory: PathBuf,
}

/// The imports of a Python program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// Name and version of the interpreter, such as `cpython 3.11.7`.
    pub interpreter: String,
    /// The local files, each with the folder of the import path in which it was found.
    pub files: BTreeMap<PathBuf, PathBuf>,
    /// The versions of the installed distributions that local files import, by name.
    pub packages: BTreeMap<String, String>,
    /// Files that could not be parsed, each with the reason.
    pub notes: Vec<(String, String)>,
}

/// Why the interpreter gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// It could not be started, or did not end in time.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It is not a Python that can be queried.
    #[error("`{}` could not list the imports: {said}", .interpreter.display())]
    Refused {
        /// The interpreter.
        interpreter: PathBuf,
        /// The last line of its standard error.
        said: String,
    },
}

/// Returns the imports of a program.
///
/// # Errors
/// If the interpreter cannot be started, is not Python 3, or takes too long.
pub fn imports(question: &Question) -> Result<Imports, PythonError> {
    let (kind, root) = question.entry.words();
    let (launched, inner) = question.launched.as_ref().map_or(("", ""), Entry::words);
    let interpreter = question.interpreter.to_string_lossy();
    let (folder, also) = (question.directory.to_string_lossy(), question.also.join(","));
    let arguments = ["-I", "-S", "-c", CLOSURE, kind, root, &folder, &question.flags, &also, launched, inner];
    let said = command::ask(&interpreter, &arguments, &question.directory, &[], PATIENCE)?;
    let answer = if said.is_success() { read(&said.out) } else { None };
    answer.ok_or_else(|| {
        let last = said.err.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it gave no answer");
        PythonError::Refused { interpreter: question.interpreter.clone(), said: last.trim().to_owned() }
    })
}

/// Passes each run of a tracker's store to `take`, as lines of JSON. Python reads the store, because it has SQLite and
/// users of such stores have Python.
///
/// # Errors
/// If Python cannot be started, or `take` fails. The inner error is Python's last line if it cannot read the store.
pub fn tracker_lines<E: From<io::Error>>(
    interpreter: &Path,
    (tool, store): (&str, &Path),
    take: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<Result<(), String>, E> {
    let mut child = Command::new(interpreter)
        .args(["-I", "-c", TRACKERS, tool])
        .arg(store)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut took = Ok(());
    if let Some(out) = child.stdout.take() {
        took = BufReader::new(out).lines().try_for_each(|line| take(&line?));
    }
    if took.is_err() {
        let _ = child.kill();
    }
    let said = child.wait_with_output()?;
    took?;
    let last = || String::from_utf8_lossy(&said.stderr).trim().lines().last().unwrap_or("it gave no reason").to_owned();
    Ok(if said.status.success() { Ok(()) } else { Err(last()) })
}

/// Parses triples of NUL-terminated texts, or returns `None` if the output is invalid.
fn read(out: &str) -> Option<Imports> {
    let texts: Vec<&str> = out.strip_suffix('\0')?.split('\0').collect();
    let mut found = Imports::default();
    for triple in texts.chunks(3) {
        let [kind, name, value] = triple else { return None };
        match *kind {
            "python" => found.interpreter = format!("{name} {value}"),
            "file" => drop(found.files.insert(PathBuf::from(name), PathBuf::from(value))),
            "package" => drop(found.packages.insert((*name).to_owned(), (*value).to_owned())),
            "note" => found.notes.push(((*name).to_owned(), (*value).to_owned())),
            _ => return None,
        }
    }
    (!found.interpreter.is_empty()).then_some(found)
}

/// Returns the words of a script's first line, without `env`, if it names a Python interpreter.
pub fn shebang(path: &Path) -> Option<Vec<String>> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(512).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let words = line.split_ascii_whitespace().map(str::to_owned);
    let words: Vec<String> = words.skip_while(|word| is_named(word, &["env"]) || word == "-S").collect();
    words.first().is_some_and(|word| is_python(word)).then_some(words)
}

/// Whether a word of a command names a Python interpreter: `python`, `python3.12`, `.venv/bin/python`, `pypy3`.
pub fn is_python(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Whether a word of a command names one of these programs, with or without a path.
pub fn is_named(word: &str, names: &[&str]) -> bool {
    names.contains(&word.rsplit('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests;
