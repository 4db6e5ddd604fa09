//! The texts of a program's files: stored with its runs, compared with others, and included in packs.

use super::draft::{beside, sweep, unwritten, used_up};
use super::failure::{Failure, exit};
use super::output::say;
use super::provenance::kept;
use super::rerun::DIRECTORY;
use crate::analysis::{PartDifference, count_lines};
use crate::engine::{Bound, ProgramFile};
use crate::host::{files, python};
use crate::record::{Digest, Part, Sealed, SourceText, Table, Value};
use crate::report::plain;
use crate::store::{Reader, StoreError};
use crate::wire::PackFile;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// A part of the name of every temporary folder of packed files.
const FOLDER: &str = "files";
/// The limits on the stored files of one program.
const MOST_BYTES: usize = 16 << 20;
const MOST_FILES: usize = 1000;

/// Texts by their digests.
pub(super) type Texts = BTreeMap<Digest, String>;

/// Records the program's files in the facts of their attempts, and returns their texts without secrets. Binary and long
/// files are only in the identity.
pub(super) fn keep<'a>(facts: &mut Table, files: impl Iterator<Item = &'a ProgramFile>) -> Vec<SourceText> {
    let (mut named, mut sources, mut size) = (Table::new(), Vec::new(), 0);
    let mut seen = BTreeSet::new();
    for file in files.filter(|file| seen.insert(&file.name)).take(MOST_FILES) {
        let most = u64::try_from(SourceText::MOST_BYTES).unwrap_or(u64::MAX);
        let is_short = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.len() <= most);
        let Some(content) = Some(&file.path).filter(|path| is_short(path)).and_then(|path| std::fs::read(path).ok())
        else {
            continue;
        };
        // A file that was changed since, or that is compressed, has another digest.
        let is_same = Digest::of(&content) == file.digest();
        if !is_same
            || content.contains(&0)
            || std::str::from_utf8(&content).is_err()
            || size + content.len() > MOST_BYTES
        {
            continue;
        }
        let Some(source) = kept(file.digest(), &content) else { continue };
        size += source.kept.len();
        named.insert(file.name.clone(), file.digest().to_string().into());
        sources.push(source);
    }
    if !named.is_empty() {
        facts.insert(SourceText::PROGRAM.to_owned(), named.into());
    }
    if let Some((name, Value::Table(redacted))) = SourceText::redacted(&sources) {
        let known = facts.get(&name).and_then(Value::as_table).cloned().unwrap_or_default();
        facts.insert(name, Value::Table(known.into_iter().chain(redacted).collect()));
    }
    sources
}

/// Returns the stored texts of a program's files, for an attempt with these facts.
pub(super) fn of_ledger(reader: &Reader<'_>, facts: &Table) -> Result<Texts, StoreError> {
    let mut texts = Texts::new();
    for (_, digest) in SourceText::of_program(facts) {
        let text = reader.source(digest, facts)?.and_then(|source| String::from_utf8(source.kept).ok());
        texts.extend(text.map(|text| (digest, text)));
    }
    Ok(texts)
}

/// Like [`of_ledger`], from a pack.
pub(super) fn of_pack(packed: &PackFile, facts: &Table) -> Texts {
    let of =
        |digest| packed.sources.iter().find(|source| SourceText::keys(digest, facts).any(|key| key == source.key()));
    let texts = SourceText::of_program(facts).into_iter().filter_map(|(_, digest)| {
        let text = String::from_utf8(of(digest)?.kept.clone()).ok()?;
        Some((digest, text))
    });
    texts.collect()
}

/// Counts the changed lines of program files that differ from the recorded ones here.
pub(super) fn count_lines_here(parts: &mut [PartDifference], recorded: &Texts, bound: &Bound) {
    let here = |name: &str, digest: Digest| {
        let file = bound.program_files.iter().find(|file| file.name == name && file.digest() == digest)?;
        let source = kept(digest, &std::fs::read(&file.path).ok()?)?;
        String::from_utf8(source.kept).ok()
    };
    count_lines(parts, &|_, digest| recorded.get(&digest).cloned(), &here);
}

/// A folder with the files of a packed program.
pub(super) struct Unpacked {
    /// The program's folder.
    pub(super) path: PathBuf,
    /// The created folder. It is above the program's folder if the program has files beside that.
    top: PathBuf,
    /// The lock of a temporary folder. Other processes remove no locked folder.
    private: Option<File>,
}

impl Unpacked {
    /// Writes the program's files of a pack into the folder `into`, which stays, or into a temporary one, which is
    /// removed. Returns `None` if the pack contains none.
    pub(super) fn write(sealed: &Sealed, packed: &PackFile, into: Option<&Path>) -> Result<Option<Self>, Failure> {
        let facts = &sealed.attempt.facts;
        let program = sealed.run.parts.value(Part::Program);
        let wanted =
            program.as_table().and_then(|program| program.get("files")?.as_table()).cloned().unwrap_or_default();
        let texts = of_pack(packed, facts);
        let digest = |value: &Value| value.as_str()?.parse::<Digest>().ok();
        let files: Vec<(&String, Digest, &String)> = wanted
            .iter()
            .filter_map(|(name, value)| Some((name, digest(value)?)))
            .filter_map(|(name, digest)| Some((name, digest, texts.get(&digest)?)))
            .collect();
        let recorded = sealed.attempt.settings.get(DIRECTORY).and_then(Value::as_str).unwrap_or_default();
        let (own, most) = folders_for(recorded, files.iter().map(|(name, ..)| name.as_str()));
        let files: Vec<(&String, Digest, &String)> =
            files.into_iter().filter(|(name, ..)| climbs(name).is_some_and(|up| up <= most)).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let (path, private) = match into {
            Some(path) => {
                files::private_folder(path).map_err(|error| unwritten(path, &error, ""))?;
                (path.to_owned(), None)
            }
            None => {
                let (path, held) = private_in(&std::env::temp_dir())?;
                (path, Some(held))
            }
        };
        let top = path.canonicalize().map_err(|error| unwritten(&path, &error, ""))?;
        let unpacked = Self { path: top.join(own), top, private };
        files::private_folder(&unpacked.path).map_err(|error| unwritten(&unpacked.path, &error, ""))?;
        for (name, digest, text) in files {
            let target = unpacked.path.join(name);
            let made = write_new(&target, text);
            made.map_err(|error| unwritten(&target, &error, ""))?;
            if Digest::of(text.as_bytes()) != digest {
                say(&format!("note: secrets were removed from `{}` before it was packed", plain(name)));
            }
        }
        Ok(Some(unpacked))
    }
}

impl Unpacked {
    /// Links the interpreter that the command names by a path in the program's folder, with its environment. A pack contains neither.
    pub(super) fn link_interpreter(&self, sealed: &Sealed) -> Result<(), Failure> {
        let program = sealed.run.parts.value(Part::Program);
        let command = program.as_table().and_then(|program| program.get("command")).cloned();
        let Some(Value::List(words)) = command else { return Ok(()) };
        let is_inside = |word: &&str| python::is_python(word) && word.contains('/') && !word.starts_with('/');
        let Some(word) = words.iter().filter_map(Value::as_str).find(is_inside) else { return Ok(()) };
        if self.path.join(word).exists() {
            return Ok(());
        }
        if !is_plain(word) {
            let text = format!(
                "its interpreter `{}` is named by a way out of the program's folder, which a pack does not bring along (--in DIR names the program's folder here)",
                plain(word)
            );
            return Err(Failure::new(exit::USAGE, text));
        }
        let recorded = sealed.attempt.settings.get(DIRECTORY).and_then(Value::as_str).unwrap_or_default();
        let environment = |part: &&Path| Path::new(recorded).join(part).join("pyvenv.cfg").is_file();
        let inside = Path::new(word).ancestors().filter(|part| !part.as_os_str().is_empty());
        let linked = inside.clone().find(environment).unwrap_or(Path::new(word));
        let (there, here) = (Path::new(recorded).join(linked), self.path.join(linked));
        if !Path::new(recorded).join(word).is_file() {
            let text = format!(
                "its interpreter `{}` is not in the pack and not in `{}` (--in DIR names a folder that has it and the program's files; --sources DIR writes the files into one)",
                plain(word),
                plain(recorded)
            );
            return Err(Failure::new(exit::USAGE, text));
        }
        let made = here.parent().map_or(Ok(()), files::private_folder);
        made.and_then(|()| std::os::unix::fs::symlink(&there, &here)).map_err(|error| unwritten(&here, &error, ""))
    }
}

/// Creates a temporary folder in another one, and removes those that killed processes left there.
fn private_in(folder: &Path) -> Result<(PathBuf, File), Failure> {
    let place = folder.join("ledger-replay");
    sweep(&place, FOLDER);
    for path in beside(&place, FOLDER) {
        match DirBuilder::new().mode(0o700).create(&path).and_then(|()| File::open(&path)) {
            // If another process has just locked the folder, it is being removed. This cannot happen without file locks.
            Ok(held) if !matches!(held.try_lock(), Err(TryLockError::WouldBlock)) => return Ok((path, held)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unwritten(&path, &error, "")),
        }
    }
    Err(unwritten(&place, &used_up(), ""))
}

/// Returns the program's folder relative to the created one, and the number of folders that a name may climb from it. A name such as
/// `../shared/layers.py` needs as many folders above the program's; they get their recorded names.
fn folders_for<'a>(recorded: &str, names: impl Iterator<Item = &'a str>) -> (PathBuf, usize) {
    let ends: Vec<Component<'_>> =
        Path::new(recorded).components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let up = names.filter_map(climbs).filter(|up| *up <= ends.len()).max().unwrap_or(0);
    (ends[ends.len() - up..].iter().collect(), up)
}

/// Returns the number of `..` at the start of a file's name. Returns `None` if the rest is no valid name of a file.
fn climbs(name: &str) -> Option<usize> {
    let path = Path::new(name);
    let up = path.components().take_while(|part| matches!(part, Component::ParentDir)).count();
    let rest: PathBuf = path.components().skip(up).collect();
    (is_plain(&rest.to_string_lossy()) && rest.file_name().is_some()).then_some(up)
}

/// Whether an untrusted name stays inside the folder that it is joined to.
fn is_plain(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Writes a new file with the folders above it. A script becomes executable.
fn write_new(target: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = target.parent() {
        files::private_folder(folder)?;
    }
    let mut file = File::options().write(true).create_new(true).open(target)?;
    file.write_all(text.as_bytes())?;
    let mode = if text.starts_with("#!") { 0o700 } else { 0o600 };
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if self.private.is_some() {
            let _ = std::fs::remove_dir_all(&self.top);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_packed_name_leaves_the_created_folder() {
        let of = |recorded: &str, names: &[&str]| folders_for(recorded, names.iter().copied());
        assert_eq!(of("/home/a/app", &["train.py", "../shared/x.py"]), ("app".into(), 1));
        assert_eq!(of("/home/a/app", &["../../x.py", "../y.py"]), ("a/app".into(), 2));
        // `.` and `..` in the recorded path do not count as folders.
        assert_eq!(of("/x/././app", &["../../../x.py"]), (PathBuf::new(), 0));
        assert_eq!(of("/x/../app", &["../../x.py"]), ("x/app".into(), 2));
        assert_eq!(of("", &["../x.py"]), (PathBuf::new(), 0));
        for name in ["/etc/x", "a/../../x", "..", "", "../", "a/.."] {
            assert_eq!(climbs(name), None, "{name}");
        }
        assert_eq!((climbs("a/./b.py"), climbs("../../b.py")), (Some(0), Some(2)));
    }
}
