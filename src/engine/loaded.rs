//! What a program's Python processes have loaded and read, compared with the closure that its run is named by.
//!
//! A folder in front of `PYTHONPATH` holds a `sitecustomize` of ours. It takes its own folder out of the import path, imports the `sitecustomize` that
//! there would have been, and appends paths to a list when the process ends: of modules, those of the standard library and of installed packages
//! aside, and of files of the program's folder that were opened to read. A Python
//! that is started with `-I`, `-E` or `-S`, and one that is killed, lists nothing.

use super::bound::{Bound, CHANGED, Launch, MAY_HAVE_CHANGED};
use super::program::INTERPRETER;
use crate::host::{environment, files, git, python};
use crate::manifest::ProgramIdentity;
use crate::record::{Digest, Table, Value};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// A warning names no more files.
const SHOWN: usize = 5;
/// No list is read beyond this.
const MOST_BYTES: u64 = 16 << 20;

/// The list of one attempt, and the folder of the `sitecustomize` that fills it.
pub(super) struct Loaded {
    list: PathBuf,
    folder: PathBuf,
    since: SystemTime,
}

impl Loaded {
    /// Makes the list of an attempt beside its journal. None where there is nothing to compare, and where it cannot be made: a run needs it as little as
    /// its identity does.
    pub(super) fn prepare(bound: &Bound, journal: &Path) -> Option<Self> {
        if !matches!(bound.launch, Launch::Program { .. }) || bound.image.is_some() {
            return None;
        }
        let key = Digest::of(python::LOADED.as_bytes()).prefix(16);
        let folder = journal.parent()?.parent()?.join("cache/python").join(key);
        // In a list of folders this one would be two.
        if folder.to_string_lossy().contains(':') {
            return None;
        }
        let script = folder.join("sitecustomize.py");
        // Python executes it: what somebody has changed there is not used.
        if std::fs::read(&script).ok().as_deref() != Some(python::LOADED.as_bytes()) {
            files::private_folder(&folder).ok()?;
            // A file in its place: no Python keeps compiled code here, with a mode of the user's mask.
            files::write_private(&folder.join("__pycache__"), b"").ok()?;
            files::write_whole(&script, python::LOADED.as_bytes()).ok()?;
        }
        let list = journal.with_extension("loaded");
        files::write_private(&list, b"").ok()?;
        Some(Self { list, folder, since: SystemTime::now() })
    }

    /// The variables of the worker.
    pub(super) fn variables(&self) -> [(&'static str, OsString); 2] {
        let mut path = self.folder.clone().into_os_string();
        if let Some(own) = environment::var("PYTHONPATH").filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        [("LEDGER_LOADED", self.list.clone().into()), ("PYTHONPATH", path)]
    }

    /// What its Python processes loaded or read and its identity does not hold: warnings of local files, of the interpreter with its packages, and
    /// facts with the digests of these files.
    pub(super) fn finish(self, bound: &Bound) -> (Vec<String>, Table) {
        self.unknown(bound).unwrap_or_default()
    }

    fn unknown(&self, bound: &Bound) -> Option<(Vec<String>, Table)> {
        use std::io::Read;
        let Launch::Program { directory, argv } = &bound.launch else { return None };
        let mut listed = Vec::new();
        std::fs::File::open(&self.list).ok()?.take(MOST_BYTES).read_to_end(&mut listed).ok()?;
        let known: BTreeSet<PathBuf> =
            bound.program_files.iter().filter_map(|file| file.path.canonicalize().ok()).collect();
        let directory = directory.canonicalize().ok()?;
        let data = bound.cell.settings.get("data.path").and_then(Value::as_str);
        let data = data.and_then(|path| directory.join(path).canonicalize().ok()).filter(|data| *data != directory);
        let program = bound.run.parts.program.as_table()?;
        let identity = ProgramIdentity::recorded(program);
        let is_hidden_python = identity == ProgramIdentity::Closure && program.get(INTERPRETER).is_none();
        let (mut loaded, mut read, mut has_python) = (BTreeSet::new(), BTreeSet::new(), false);
        // Sorted, so that loaded files come before those that were opened: an import opens its file, too.
        let listed: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).collect();
        for path in listed {
            let Some((kind, path)) = std::str::from_utf8(path).ok().and_then(|path| path.split_at_checked(1)) else {
                continue;
            };
            let Ok(path) = source_of(Path::new(path)).canonicalize() else { continue };
            let is_loaded = kind == "L";
            let is_inside = path.starts_with(&directory);
            // What is opened elsewhere is data.
            if !is_inside && !is_loaded {
                continue;
            }
            let name = name_from(&directory, &path);
            has_python |= is_inside && is_loaded && is_hidden_python;
            let is_data = data.as_ref().is_some_and(|data| path.starts_with(data));
            if known.contains(&path) || is_hidden(&name) || self.is_new(&path) || (!is_loaded && is_data) {
                continue;
            }
            let name = name.display().to_string();
            if is_loaded {
                loaded.insert(name);
            } else if !loaded.contains(&name) {
                read.insert(name);
            }
        }
        if identity == ProgramIdentity::Git {
            // Commit and patch hold what git tracks. One name outside of the repository would leave git without an answer.
            let is_outside = |name: &&str| name.starts_with("..");
            let (outside, inside): (Vec<&str>, Vec<&str>) =
                loaded.iter().chain(&read).map(String::as_str).partition(is_outside);
            let mut tracked: BTreeSet<String> = git::tracked(&directory, &inside)
                .unwrap_or_else(|| inside.iter().map(|name| (*name).to_owned()).collect());
            tracked.extend(outside.iter().filter_map(|name| git::tracked(&directory, &[name])).flatten());
            loaded.retain(|name| !tracked.contains(name));
            read.retain(|name| !tracked.contains(name));
        }
        let files = |how: &str, names: &BTreeSet<String>| {
            let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
            let more = names.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            (!names.is_empty()).then(|| format!("{how}: {}{more} (add them to `files` of [program])", shown.join(", ")))
        };
        let starter = argv.first().map_or("", String::as_str);
        let python = has_python.then(|| {
            format!("{BEHIND} `{starter}`: the versions of Python and its packages are not in its identity (start Python in `command` of [program])")
        });
        let of_files = [files(LOADED, &loaded), files(OPENED, &read)];
        let warnings = of_files.into_iter().flatten().chain(python).chain(self.written(bound, &directory)).collect();
        let digests = loaded.into_iter().chain(read).take(MOST_READ).filter_map(|name| {
            let digest = content(&directory.join(&name))?;
            Some((format!("{READ}{name}"), digest.into()))
        });
        Some((warnings, digests.collect()))
    }

    /// Warns of files that the program wrote and its command names: the next binding would take them as a part of the program.
    fn written(&self, bound: &Bound, directory: &Path) -> Option<String> {
        let words = bound.run.parts.program.as_table()?.get("command")?;
        let Value::List(words) = words else { return None };
        let is_known = |word: &str| bound.program_files.iter().any(|file| file.name == word);
        let is_written = |word: &&str| {
            let path = directory.join(word);
            path.is_file() && self.is_new(&path) && !is_known(word)
        };
        let word = words.iter().filter_map(Value::as_str).find(is_written)?;
        Some(format!(
            "the program wrote `{word}`, which its command names: the next run takes it as a file of the program and has another id (name it by a parameter, such as `{{out}}`)"
        ))
    }

    /// Whether the program made the file itself, as far as the clocks say.
    fn is_new(&self, path: &Path) -> bool {
        std::fs::metadata(path).and_then(|metadata| metadata.modified()).is_ok_and(|changed| changed >= self.since)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.list);
    }
}

/// How the warning of an attempt begins whose program loaded other files.
const LOADED: &str = "the program loaded files that are not in its identity";

/// How it begins if the program opened other files to read.
const OPENED: &str = "the program read files that are not in its identity";

/// How the facts begin that have the digests of these files; their names in the program's folder follow.
const READ: &str = "program.read.";

/// No more files have a digest, and none that is larger.
const MOST_READ: usize = 100;
const MOST_READ_BYTES: u64 = 16 << 20;

/// How it begins if a program that is not seen through started a Python.
const BEHIND: &str = "the program started Python behind";

/// The SHA-256 of a file's content; none if it is large or cannot be read.
fn content(path: &Path) -> Option<String> {
    let is_small =
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MOST_READ_BYTES);
    let content = std::fs::read(path).ok().filter(|_| is_small)?;
    Some(Digest::of(&content).to_string())
}

/// The files that an attempt read, that are not in its run's identity, and that have another content by now.
pub fn read_files_changed(facts: &Table, directory: &Path) -> Vec<String> {
    let read = facts.iter().filter_map(|(fact, digest)| Some((fact.strip_prefix(READ)?, digest.as_str()?)));
    let is_changed = |(name, digest): &(&str, &str)| content(&directory.join(name)).is_none_or(|now| now != *digest);
    read.filter(is_changed).map(|(name, _)| name.to_owned()).collect()
}

/// Whether a warning of an attempt says that something of its program is not in its identity.
pub fn is_of_program(warning: &str) -> bool {
    warning.starts_with(BEHIND) || is_of_files(warning) || is_of_identity(warning)
}

/// Whether a warning of an attempt names files that are not in its run's identity.
pub fn is_of_files(warning: &str) -> bool {
    [LOADED, OPENED].iter().any(|begin| warning.starts_with(begin))
}

/// Whether a warning of an attempt says that other files may have run than those that name its run.
pub fn is_of_identity(warning: &str) -> bool {
    warning.starts_with(LOADED) || [CHANGED, MAY_HAVE_CHANGED].iter().any(|end| warning.ends_with(end))
}

/// Whether a warning of an attempt says that a file of its program changed.
pub fn is_changed(warning: &str) -> bool {
    warning.ends_with(CHANGED)
}

/// The source of compiled code, which Python keeps as `__pycache__/NAME.cpython-312.pyc` beside it; of another file itself.
fn source_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| folder.ends_with("__pycache__")).and_then(Path::parent);
    let name = path.file_name().and_then(|name| {
        let name = name.to_str()?.strip_suffix(".pyc")?;
        let name = name.rsplit_once(".opt-").map_or(name, |(name, _)| name);
        Some(format!("{}.py", name.rsplit_once('.')?.0))
    });
    folder.zip(name).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// The way from a folder to a file, as `files` of a manifest takes it: `../shared/layers.py`.
fn name_from(directory: &Path, path: &Path) -> PathBuf {
    let common = directory.components().zip(path.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(common).map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

/// Whether a file lies in a hidden folder, such as an environment or a cache.
fn is_hidden(name: &Path) -> bool {
    name.components().any(|part| matches!(part, Component::Normal(part) if part.to_string_lossy().starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_from_the_folder_of_the_program() {
        for (path, name) in [
            ("/p/a/model.py", "model.py"),
            ("/p/a/b/model.py", "b/model.py"),
            ("/p/shared/model.py", "../shared/model.py"),
            ("/q/model.py", "../../q/model.py"),
        ] {
            assert_eq!(name_from(Path::new("/p/a"), Path::new(path)), Path::new(name));
        }
    }

    #[test]
    fn compiled_code_is_known_by_its_source() {
        for (path, source) in [
            ("/p/__pycache__/model.cpython-312.pyc", "/p/model.py"),
            ("/p/__pycache__/my.mod.cpython-312.opt-1.pyc", "/p/my.mod.py"),
            ("/p/model.py", "/p/model.py"),
            ("/p/model.pyc", "/p/model.pyc"),
        ] {
            assert_eq!(source_of(Path::new(path)), Path::new(source));
        }
    }
}
