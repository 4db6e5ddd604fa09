//! The closure of an external program: its local files, its interpreter and its packages.
//!
//! Knows how commands start Python programs. It must not know manifests' texts or ledgers.

use super::machine::Machine;
use super::refusal::{BindError, ClosureError};
use crate::host::environment;
use crate::host::python::{self, Entry, Imports, Question, is_named, is_python};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Launchers, which start the script among their arguments with the Python that they are installed in, and their
/// modules.
const LAUNCHERS: [(&str, &str); 7] = [
    ("torchrun", "torch"),
    ("accelerate", "accelerate"),
    ("deepspeed", "deepspeed"),
    ("horovodrun", "horovod"),
    ("ipython", "IPython"),
    ("coverage", "coverage"),
    ("kernprof", "kernprof"),
];
/// Wrappers, which execute the command among their arguments.
const WRAPPERS: [&str; 17] = [
    "env", "nice", "ionice", "taskset", "numactl", "timeout", "stdbuf", "time", "setsid", "nohup", "chrt", "mpirun",
    "mpiexec", "srun", "uv", "poetry", "pdm",
];
/// Options of the interpreter that take the next word as their value.
const WITH_VALUE: [&str; 3] = ["-W", "-X", "--check-hash-based-pycs"];
/// Stands for the other folders of the import path in the names of files outside the program's folder.
const ELSEWHERE: &str = "sys.path";

/// The parts of a program besides the files that its manifest and its command name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Closure {
    /// Local files by their names in the identity.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Name and version of the interpreter.
    pub(super) interpreter: Option<String>,
    /// The versions of the imported distributions.
    pub(super) packages: BTreeMap<String, String>,
    /// Unknown parts, for the attempt's warnings.
    pub(super) notes: Vec<String>,
}

/// How a command starts a Python program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Started {
    /// The word that names the interpreter, or the script whose first line does.
    interpreter: Interpreter,
    flags: String,
    entry: Option<Entry>,
    /// The entry that a non-local module starts.
    launched: Option<Entry>,
    also: Vec<String>,
}

impl Started {
    fn by(interpreter: Interpreter) -> Self {
        Self { interpreter, flags: String::new(), entry: None, launched: None, also: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Interpreter {
    /// A word of the command, or of a script's first line.
    Word(String),
    /// The Python that an installed program's first line names.
    Of(String),
    /// The Python of the environment that `uv run` chooses.
    Uv,
}

/// Refuses a command whose program is missing or not executable. A bare name is looked up only if the command runs
/// here, because it may be on the PATH of the node only.
pub(super) fn check_program(argv: &[String], directory: &Path, runs_here: bool) -> Result<(), ClosureError> {
    match argv.first() {
        Some(word) if word.contains('/') => {
            let path = directory.join(word);
            if !path.is_file() {
                return Err(ClosureError::NoScript { word: word.clone(), path });
            }
            match environment::which(&path.to_string_lossy()) {
                None if runs_here => Err(ClosureError::NotExecutable(word.clone())),
                _ => Ok(()),
            }
        }
        Some(word) if runs_here && environment::which(word).is_none() => Err(ClosureError::NoProgram(word.clone())),
        _ => Ok(()),
    }
}

/// Determines the closure of a command that runs in a folder. In an image only the folder's files count, and the host's
/// Python parses them.
pub(super) fn closure(
    argv: &[String],
    directory: &Path,
    is_contained: bool,
    machine: &Machine,
) -> Result<Closure, BindError> {
    let mut found = Closure::default();
    if !is_contained {
        found.files.extend(executable(argv));
    }
    let Some(started) = started(argv, directory) else { return Ok(found) };
    let sets_path = |word: &&String| word.starts_with("PYTHONPATH=");
    if argv.first().is_some_and(|first| is_named(first, &["env"])) && argv.iter().any(|word| sets_path(&word)) {
        return Err(ClosureError::PythonPath.into());
    }
    let started = match manager(argv) {
        Some(tool) if matches!(&started.interpreter, Interpreter::Word(word) | Interpreter::Of(word) if !word.contains('/')) =>
        {
            let python = active_python(directory).ok_or(ClosureError::NoActive(tool))?;
            Started { interpreter: Interpreter::Word(python), ..started }
        }
        _ => started,
    };
    let Some(entry) = started.entry.clone() else { return Ok(found) };
    if let Entry::Script(script) = &entry {
        let path = directory.join(script);
        let is_inside = || path.starts_with(directory);
        if !path.is_file() && (!is_contained || is_inside()) {
            return Err(ClosureError::NoScript { word: script.clone(), path }.into());
        }
        if is_contained && !is_inside() {
            return Ok(found);
        }
    }
    let interpreter = if is_contained {
        match environment::which("python3") {
            Some(host) => host,
            None => {
                found.notes.push("no `python3` on the host: imported local files are not in the identity".to_owned());
                return Ok(found);
            }
        }
    } else {
        interpreter(&started.interpreter, directory, machine)?
    };
    let flags = if is_contained { "Es".to_owned() } else { started.flags.clone() };
    let (launched, also) = (started.launched.clone(), started.also.clone());
    let question = Question { interpreter, flags, entry, launched, also, directory: directory.to_owned() };
    let imports = machine.imports(&question)?;
    take(&mut found, &imports, directory, is_contained);
    if started.interpreter == Interpreter::Uv && uv_python(directory).is_none() {
        found.notes.push("the packages of `uv run` are not in the identity: its folder has no environment".to_owned());
        found.packages.clear();
    }
    Ok(found)
}

fn take(found: &mut Closure, imports: &Imports, directory: &Path, is_contained: bool) {
    for (path, root) in &imports.files {
        match path.strip_prefix(directory) {
            Ok(name) => drop(found.files.insert(name.to_string_lossy().into_owned(), path.clone())),
            Err(_) if is_contained || found.files.values().any(|known| known == path) => {}
            Err(_) => {
                let name =
                    path.strip_prefix(root).map_or_else(|_| path.clone(), |inner| Path::new(ELSEWHERE).join(inner));
                found.files.insert(name.to_string_lossy().into_owned(), path.clone());
            }
        }
    }
    for (path, why) in &imports.notes {
        let name = Path::new(path).strip_prefix(directory).unwrap_or(Path::new(path));
        found.notes.push(format!("the imports of `{}` are unknown: {why}", name.display()));
    }
    if !is_contained {
        found.interpreter = Some(imports.interpreter.clone());
        found.packages.extend(imports.packages.clone());
    }
}

/// The program that a command starts, if it is found on PATH and is no wrapper, interpreter or launcher. It enters the
/// identity by its content.
fn executable(argv: &[String]) -> Option<(String, PathBuf)> {
    let mut is_behind = false;
    for word in argv {
        if is_named(word, &WRAPPERS) {
            is_behind = true;
            continue;
        }
        let is_other = is_python(word) || is_shell(word) || launcher(word).is_some();
        // A path enters the identity elsewhere, as a word that names a file.
        if is_other || word.contains('/') {
            return None;
        }
        let path = environment::which(word);
        // Between a wrapper and its program are options, their values and variables.
        if path.is_some() || !is_behind {
            return path.map(|path| (word.clone(), path));
        }
    }
    None
}

/// The project manager that runs the command in its own environment, if one does.
fn manager(argv: &[String]) -> Option<&'static str> {
    let named = |tool: &&str| argv.first().is_some_and(|first| is_named(first, &[*tool]));
    ["poetry", "pdm"].into_iter().find(|tool| named(tool) && argv.get(1).is_some_and(|word| word == "run"))
}

/// The Python of the active environment, or of `.venv` in the project.
fn active_python(directory: &Path) -> Option<String> {
    let active = environment::var("VIRTUAL_ENV").map(PathBuf::from);
    let own = || directory.ancestors().map(|folder| folder.join(".venv")).find(|folder| folder.is_dir());
    let python = active.or_else(own)?.join("bin/python");
    environment::which(&python.to_string_lossy()).map(|path| path.to_string_lossy().into_owned())
}

/// Whether a word names a shell. The program is then the script that it reads.
fn is_shell(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    name.strip_suffix("sh").is_some_and(|kind| ["", "ba", "da", "z", "k"].contains(&kind))
}

fn launcher(word: &str) -> Option<&'static str> {
    LAUNCHERS.iter().find(|(name, _)| is_named(word, &[name])).map(|(_, module)| *module)
}

/// How a command starts a Python program, if it does.
fn started(argv: &[String], directory: &Path) -> Option<Started> {
    let first = argv.first()?;
    let is_uv = is_named(first, &["uv"]) && argv.get(1).is_some_and(|word| word == "run");
    let wraps = is_named(first, &WRAPPERS);
    // In a wrapper's command the first word that starts Python counts.
    let from = usize::from(wraps);
    for (at, word) in argv.iter().enumerate().skip(from) {
        if is_python(word) {
            let own = if is_uv && !word.contains('/') { Interpreter::Uv } else { Interpreter::Word(word.clone()) };
            return Some(of_interpreter(own, &argv[at + 1..], directory));
        }
        if let Some(module) = launcher(word) {
            let own = if is_uv { Interpreter::Uv } else { Interpreter::Of(word.clone()) };
            let entry = launched(&argv[at + 1..], directory);
            return Some(Started { entry, also: vec![module.to_owned()], ..Started::by(own) });
        }
        let installed = || environment::which(word).filter(|_| at == 0 && !word.contains('/'));
        let path = installed().unwrap_or_else(|| directory.join(word));
        if is_uv && at > 1 && word.ends_with(".py") && path.is_file() {
            let entry = Some(Entry::Script(word.clone()));
            return Some(Started { entry, ..Started::by(Interpreter::Uv) });
        }
        if let Some(named) = python::shebang(&path).filter(|_| path.is_file() && (at == 0 || wraps)) {
            let (interpreter, options) = named.split_first()?;
            let mut words = options.to_vec();
            words.push(path.to_string_lossy().into_owned());
            return Some(of_interpreter(Interpreter::Word(interpreter.clone()), &words, directory));
        }
        if !wraps {
            return None;
        }
    }
    None
}

/// Parses the arguments of an interpreter: its options, then a script, a module or code.
fn of_interpreter(interpreter: Interpreter, words: &[String], directory: &Path) -> Started {
    let mut started = Started::by(interpreter);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word.as_str()) {
            words.next();
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            if word != "-" {
                // Python executes this file of a folder.
                let main = format!("{}/__main__.py", word.trim_end_matches('/'));
                let is_folder = directory.join(&main).is_file();
                started.entry = Some(Entry::Script(if is_folder { main } else { word.clone() }));
            }
            return started;
        };
        if letters.starts_with(['-', 'W', 'X']) {
            continue;
        }
        for (at, letter) in letters.char_indices() {
            let rest = &letters[at + 1..];
            let mut value = || if rest.is_empty() { words.next().cloned() } else { Some(rest.to_owned()) };
            match letter {
                'm' => {
                    started.entry = value().map(Entry::Module);
                    let rest: Vec<String> = words.cloned().collect();
                    started.launched = launched(&rest, directory).filter(|inner| match inner {
                        Entry::Script(path) => directory.join(path).is_file(),
                        _ => true,
                    });
                    return started;
                }
                'c' => {
                    started.entry = value().map(Entry::Code);
                    return started;
                }
                'E' | 'I' | 'P' | 'S' | 's' => started.flags.push(letter),
                _ => {}
            }
        }
    }
    started
}

/// The script or the module among a launcher's arguments. A missing script only if there is no other.
fn launched(words: &[String], directory: &Path) -> Option<Entry> {
    let mut missing = None;
    for (at, word) in words.iter().enumerate() {
        if word == "-m" || word == "--module" {
            return words.get(at + 1).cloned().map(Entry::Module);
        }
        if word.ends_with(".py") {
            if directory.join(word).is_file() {
                return Some(Entry::Script(word.clone()));
            }
            missing.get_or_insert_with(|| Entry::Script(word.clone()));
        }
    }
    missing
}

/// The path of the interpreter.
fn interpreter(named: &Interpreter, directory: &Path, machine: &Machine) -> Result<PathBuf, BindError> {
    let missing = |word: &str| BindError::from(ClosureError::NoInterpreter(word.to_owned()));
    let found = |word: &str| match word.contains('/') {
        true => environment::which(&directory.join(word).to_string_lossy()),
        false => environment::which(word),
    };
    let (word, path) = match named {
        Interpreter::Word(word) => (word.clone(), found(word).ok_or_else(|| missing(word))?),
        Interpreter::Of(program) => {
            let script = found(program).ok_or_else(|| missing(program))?;
            let beside = script.with_file_name("python3");
            let first = python::shebang(&script).and_then(|words| words.first().and_then(|word| found(word)));
            (
                program.clone(),
                first.or_else(|| environment::which(&beside.to_string_lossy())).ok_or_else(|| missing("python3"))?,
            )
        }
        Interpreter::Uv => match uv_python(directory) {
            Some(path) => (path.to_string_lossy().into_owned(), path),
            None => match project(directory) {
                Some(project) => return Err(ClosureError::NoEnvironment(project).into()),
                None => ("python3".to_owned(), found("python3").ok_or_else(|| missing("python3"))?),
            },
        },
    };
    // A record of another ledger may name any file. A plain name is a program that the user has put on PATH.
    let is_plain = !word.contains('/') && !path.starts_with(directory);
    if machine.distrusted().is_some() && !is_plain {
        return Err(ClosureError::Untrusted(word).into());
    }
    Ok(path)
}

/// The folder of the project that `uv run` would work in.
fn project(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().find(|folder| folder.join("pyproject.toml").is_file()).map(Path::to_owned)
}

/// The Python of the environment that `uv run` uses, if it exists.
fn uv_python(directory: &Path) -> Option<PathBuf> {
    let project = project(directory);
    let stated =
        environment::var("UV_PROJECT_ENVIRONMENT").map(|path| project.as_deref().unwrap_or(directory).join(path));
    let active = || environment::var("VIRTUAL_ENV").filter(|_| project.is_none()).map(PathBuf::from);
    let own = || directory.ancestors().map(|folder| folder.join(".venv")).find(|folder| folder.is_dir());
    let python = stated.or_else(active).or_else(own)?.join("bin/python");
    environment::which(&python.to_string_lossy())
}

#[cfg(test)]
mod tests;
