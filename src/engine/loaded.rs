//! Compares the files that a program's Python processes have loaded and read with the closure in the run's identity.
//!
//! A folder in front of `PYTHONPATH` has a `sitecustomize` of ledger. It removes its own folder from the import path
//! and imports the `sitecustomize` that it replaces. It lists the files of the program's folder that are opened for
//! reading. At the end it lists the modules that are neither of the standard library nor of an installed package. A
//! Python started with `-I`, `-E` or `-S` lists nothing.

use super::bound::{Bound, CHANGED, Launch, MAY_HAVE_CHANGED};
use super::program::INTERPRETER;
use crate::host::{environment, files, git, python};
use crate::manifest::ProgramIdentity;
use crate::record::{Digest, Table, Value, count, first_of};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// The largest number of files that a warning names.
const SHOWN: usize = 5;
/// The largest part of a list that is read.
const MOST_BYTES: u64 = 16 << 20;

/// The list of one attempt, and the folder of the `sitecustomize` that writes it.
pub(super) struct Loaded {
    list: PathBuf,
    folder: PathBuf,
    since: SystemTime,
}

impl Loaded {
    /// Creates the list of an attempt beside its journal. `None` if there is nothing to compare, or it cannot be
    /// created: the run works without it.
    pub(super) fn prepare(bound: &Bound, journal: &Path) -> Option<Self> {
        if !matches!(bound.launch, Launch::Program { .. }) || bound.image.is_some() {
            return None;
        }
        let key = Digest::of(python::LOADED.as_bytes()).prefix(16);
        let folder = journal.parent()?.parent()?.join("cache/python").join(key);
        // In PYTHONPATH such a folder would be two.
        if folder.to_string_lossy().contains(':') {
            return None;
        }
        let script = folder.join("sitecustomize.py");
        // Python executes this file, so a changed one is replaced.
        if std::fs::read(&script).ok().as_deref() != Some(python::LOADED.as_bytes()) {
            files::private_folder(&folder).ok()?;
            // A file with this name keeps Python from storing compiled code here, which would have the umask's mode.
            files::write_private(&folder.join("__pycache__"), b"").ok()?;
            files::write_whole(&script, python::LOADED.as_bytes()).ok()?;
        }
        let list = journal.with_extension("loaded");
        files::write_private(&list, b"").ok()?;
        Some(Self { list, folder, since: SystemTime::now() })
    }

    /// The environment variables for the worker.
    pub(super) fn variables(&self, bound: &Bound) -> [(&'static str, OsString); 3] {
        let mut path = self.folder.clone().into_os_string();
        if let Some(own) = environment::var("PYTHONPATH").filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        let folders: Vec<OsString> = folders(bound).into_iter().map(PathBuf::into_os_string).collect();
        let folders = folders.join(OsStr::new(":"));
        [("LEDGER_LOADED", self.list.clone().into()), ("LEDGER_FOLDERS", folders), ("PYTHONPATH", path)]
    }

    /// Warnings about files that the program's Python processes loaded or read and that are not in the identity, and
    /// about an interpreter that is not in it. Also facts with the digests of these files.
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
        let is_shell = program.get(INTERPRETER).is_none();
        let folders = folders(bound);
        let found = opened(&listed, &folders);
        let is_hidden_python = is_shell && identity == ProgramIdentity::Closure;
        let has_python = is_hidden_python && found.values().any(|opened| opened.is_loaded);
        let (mut loaded, mut read, mut changed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (path, opened) in found {
            let name = name_from(&directory, &path);
            let is_data = data.as_ref().is_some_and(|data| path.starts_with(data));
            let is_inside = opened.is_inside || is_in(&folders, &path);
            let is_read = opened.changed_ns.is_some();
            // Files that are opened elsewhere are data.
            let is_other = !opened.is_loaded && (!is_read || is_data || !is_inside);
            // A new module that the program wrote, or did not list as read. A shell lists nothing, so a file that is
            // created while it runs counts too.
            let is_own = self.is_new(&path)
                && (opened.is_loaded && (opened.is_written || !is_read) || is_shell && self.is_made(&path));
            if known.contains(&path) || is_hidden(&name) || is_own || is_other {
                continue;
            }
            let name = name.display().to_string();
            if is_read && !opened.is_written && self.is_new(&path) {
                changed.insert(name.clone());
            }
            if opened.is_loaded {
                loaded.insert(name)
            } else {
                read.insert(name)
            };
        }
        if identity == ProgramIdentity::Git {
            // Commit and patch identify the files that git tracks.
            let tracked = git::tracked(&directory, &loaded.union(&read).cloned().collect());
            loaded.retain(|name| !tracked.contains(name));
            read.retain(|name| !tracked.contains(name));
        }
        changed.retain(|name| loaded.contains(name) || read.contains(name));
        let read = lonely_first(read);
        let loaded: Vec<String> = loaded.into_iter().collect();
        let files = |how: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{how}: {} (add them to `files` of [program])", listing(names)))
        };
        let starter = argv.first().map_or("", String::as_str);
        let python = has_python.then(|| {
            format!("{BEHIND} `{starter}`: the versions of Python and its packages are not in its identity (start Python in `command` of [program])")
        });
        let of_files = [files(LOADED, &loaded), files(OPENED, &read)];
        let meanwhile: Vec<String> = changed.iter().cloned().collect();
        let meanwhile = (!meanwhile.is_empty())
            .then(|| format!("{MEANWHILE}: {} (what it read of them is not known)", listing(&meanwhile)));
        let names: Vec<String> = loaded.into_iter().chain(read).collect();
        let digest = |name: &String| {
            let digest = if changed.contains(name) {
                Some("changed meanwhile".to_owned())
            } else {
                content(&directory.join(name))
            };
            Some((format!("{READ}{name}"), digest?.into()))
        };
        let digests: Table = names.iter().filter_map(digest).take(MOST_READ).collect();
        let unwatched = names.len() - digests.len();
        let unwatched = (unwatched > 0).then(|| {
            format!("{UNWATCHED} {} that are not in its identity will not be noticed", count(unwatched, "file"))
        });
        let silent = (listed.is_empty() && !is_shell).then(|| UNSEEN.to_owned());
        let warnings = of_files.into_iter().flatten().chain(meanwhile).chain(unwatched).chain(python).chain(silent);
        Some((warnings.chain(self.written(bound, &directory)).collect(), digests))
    }

    /// A warning if the command names a file that the program wrote: the next run would take it as a part of the
    /// program.
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
            "{WROTE}{word}`, which its command names: the next run takes it as a file of the program and has another id (name it by a parameter, such as `{{out}}`)"
        ))
    }

    /// Whether the file was modified since the attempt's start, according to the clocks.
    fn is_new(&self, path: &Path) -> bool {
        std::fs::metadata(path).and_then(|metadata| metadata.modified()).is_ok_and(|changed| changed >= self.since)
    }

    /// Whether the file was created since the attempt's start, according to the file system.
    fn is_made(&self, path: &Path) -> bool {
        std::fs::metadata(path).and_then(|metadata| metadata.created()).is_ok_and(|made| made >= self.since)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.list);
    }
}

/// The beginning of the warning about loaded files.
const LOADED: &str = "the program loaded files that are not in its identity";

/// The beginning of the warning about files that were read.
const OPENED: &str = "the program read files that are not in its identity";

/// The beginning of the warning about files that changed before the program ended.
const MEANWHILE: &str = "files that the program read changed while it ran";

/// The beginning of the warning about files without a digest.
const UNWATCHED: &str = "later changes of";

/// The warning for a Python program whose processes listed nothing.
const UNSEEN: &str = "no Python process of the program reported what it loaded and read (start Python without -I, -E and -S, and keep what PYTHONPATH has)";

/// The prefix of the facts with the digests of these files. The path relative to the program's folder follows.
const READ: &str = "program.read.";

/// The largest number of files with a digest, and the largest file in bytes.
const MOST_READ: usize = 100;
const MOST_READ_BYTES: u64 = 16 << 20;

/// The beginning of the warning about a Python that another program, such as a shell script, started.
const BEHIND: &str = "the program started Python behind";

/// The beginning of the warning about a written file that the command names.
const WROTE: &str = "the program wrote `";

/// The BLAKE3 digest of a file's content. `None` if the file is large or cannot be read.
fn content(path: &Path) -> Option<String> {
    let is_small =
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MOST_READ_BYTES);
    let content = std::fs::read(path).ok().filter(|_| is_small)?;
    Some(Digest::of(&content).to_string())
}

/// The files that an attempt read and that are not in its run's identity, each with the digest of its content or why
/// there is none.
pub fn read_files(facts: &Table) -> impl Iterator<Item = (&str, &str)> {
    facts.iter().filter_map(|(fact, digest)| Some((fact.strip_prefix(READ)?, digest.as_str()?)))
}

/// Those of [`read_files`] whose content has changed since.
pub fn read_files_changed(facts: &Table, directory: &Path) -> Vec<String> {
    let is_changed = |(name, digest): &(&str, &str)| content(&directory.join(name)).is_none_or(|now| now != *digest);
    read_files(facts).filter(is_changed).map(|(name, _)| name.to_owned()).collect()
}

/// Whether a warning reports that a part of the program is not in the identity.
pub fn is_of_program(warning: &str) -> bool {
    [BEHIND, WROTE, UNSEEN].iter().any(|begin| warning.starts_with(begin))
        || is_of_files(warning)
        || is_of_identity(warning)
}

/// Whether a warning names files that are not in the identity.
pub fn is_of_files(warning: &str) -> bool {
    [LOADED, OPENED, MEANWHILE, UNWATCHED].iter().any(|begin| warning.starts_with(begin))
}

/// Whether a warning reports that other files may have run than those in the identity.
pub fn is_of_identity(warning: &str) -> bool {
    warning.starts_with(LOADED) || [CHANGED, MAY_HAVE_CHANGED].iter().any(|end| warning.ends_with(end))
}

/// Whether a warning reports that a program file changed.
pub fn is_changed(warning: &str) -> bool {
    warning.ends_with(CHANGED)
}

/// The source of compiled code, which Python stores as `__pycache__/NAME.cpython-312.pyc` beside it. Any other path is
/// returned unchanged.
fn source_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| folder.ends_with("__pycache__")).and_then(Path::parent);
    let name = path.file_name().and_then(|name| {
        let name = name.to_str()?.strip_suffix(".pyc")?;
        let name = name.rsplit_once(".opt-").map_or(name, |(name, _)| name);
        Some(format!("{}.py", name.rsplit_once('.')?.0))
    });
    folder.zip(name).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// How the processes of a program used a file.
#[derive(Default)]
struct Opened {
    is_loaded: bool,
    is_written: bool,
    /// Whether the path by which it was opened lies in the program's folders. A link may lead out of them.
    is_inside: bool,
    /// Its modification time (Unix) when it was first opened for reading. `None` if the program had written it before.
    changed_ns: Option<u64>,
}

/// Parses a list. Its entries are in the order of the events.
fn opened(listed: &[u8], folders: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, Opened> {
    let mut found: BTreeMap<PathBuf, Opened> = BTreeMap::new();
    for entry in listed.split(|byte| *byte == 0) {
        let Some((kind, path)) = std::str::from_utf8(entry).ok().and_then(|entry| entry.split_at_checked(1)) else {
            continue;
        };
        let (changed_ns, path) = match path.split_once(' ').filter(|_| kind == "R") {
            Some((time, path)) => (time.parse().ok(), path),
            None => (None, path),
        };
        let source = source_of(Path::new(path));
        let Ok(path) = source.canonicalize() else { continue };
        if !path.is_file() {
            continue;
        }
        let opened = found.entry(path).or_default();
        opened.is_inside |= is_in(folders, &source);
        match kind {
            "W" => opened.is_written = true,
            "L" => opened.is_loaded = true,
            // A program may read files that it wrote.
            _ if !opened.is_written && opened.changed_ns.is_none() => opened.changed_ns = changed_ns,
            _ => {}
        }
    }
    found
}

/// Whether a path lies in one of these folders, without resolving links.
fn is_in(folders: &BTreeSet<PathBuf>, path: &Path) -> bool {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    folders.iter().any(|folder| plain.starts_with(folder))
}

/// The folders whose files belong to the program: its own, those of its scripts and modules elsewhere, and the
/// repository. A home folder belongs to it only if it is its own folder.
fn folders(bound: &Bound) -> BTreeSet<PathBuf> {
    let Launch::Program { directory, .. } = &bound.launch else { return BTreeSet::new() };
    let Ok(directory) = directory.canonicalize() else { return BTreeSet::new() };
    let home = environment::var("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let repository = directory.ancestors().find(|folder| folder.join(".git").exists());
    let code = bound.program_files.iter().filter(|file| file.path.extension().is_some_and(|end| end == "py"));
    let code = code.filter_map(|file| Some(file.path.canonicalize().ok()?.parent()?.to_owned()));
    let mut folders: BTreeSet<PathBuf> = code.collect();
    folders.extend(repository.map(Path::to_owned));
    folders.retain(|folder| Some(folder) != home.as_ref());
    folders.insert(directory);
    // In the variable with all folders such a folder would be two.
    folders.retain(|folder| !folder.to_string_lossy().contains(':'));
    folders
}

/// Sorts files by how many were read in their folder, fewest first: folders with many are data.
fn lonely_first(names: BTreeSet<String>) -> Vec<String> {
    let folder = |name: &str| Path::new(name).parent().map(Path::to_owned);
    let mut count: BTreeMap<Option<PathBuf>, usize> = BTreeMap::new();
    names.iter().for_each(|name| *count.entry(folder(name)).or_default() += 1);
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_by_cached_key(|name| count.get(&folder(name)).copied());
    names
}

/// The first names and the number of others.
fn listing(names: &[String]) -> String {
    first_of(names.iter().map(|name| format!("`{name}`")), SHOWN)
}

/// The relative path from a folder to a file, as in `files` of a manifest: `../shared/layers.py`.
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
    fn compiled_code_maps_to_its_source() {
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
