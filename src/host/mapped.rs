//! The libraries that a program has mapped. Their files are kept open, so that they can be read after the program has
//! ended.

use super::meter::tree;
use super::sums::{Stamp, Sums};
use ledger_record::{Table, Value};
use rustix::fs::OFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Prefixes of names of libraries that can affect numerical results: NVIDIA's, linear algebra, threading, the C library
/// and its mathematics.
const NAMES: [&str; 32] = [
    "libblas",
    "libblis",
    "libc.so",
    "libcublas",
    "libcuda.so",
    "libcudart",
    "libcudnn",
    "libcufft",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libdnnl",
    "libflexiblas",
    "libgomp",
    "libiomp5",
    "libjax",
    "liblapack",
    "libm.so",
    "libmkl",
    "libnccl",
    "libnvJitLink",
    "libnvidia",
    "libnvrtc",
    "libomp",
    "libonnxruntime",
    "libopenblas",
    "libpython",
    "libtensorflow",
    "libtorch",
    "libxla",
    "libz3",
];
/// A folder that every Apptainer image has.
const MARK: &str = "/.singularity.d";
/// The folder in which Apptainer puts the host's libraries for a program inside.
pub const INJECTED: &str = "/.singularity.d/libs";
/// The maximum number of files that are kept.
const MOST: usize = 96;
/// The maximum number of names of further files that are kept.
const MOST_PASSED: usize = 4096;
const REPLACED: &str = "it was replaced while it was in use";
/// The maximum number of processes of a worker that are inspected.
const MOST_PROCESSES: usize = 64;

/// The libraries seen so far.
#[derive(Debug, Default)]
pub struct Mapped {
    seen: BTreeMap<PathBuf, Found>,
    /// Files beyond the maximum, each counted once.
    passed: BTreeSet<PathBuf>,
    /// Whether the program runs in an image, whose digest covers all its files.
    is_contained: bool,
    /// The folders of the host that are mounted in the image.
    bound: Vec<PathBuf>,
}

/// The state of a library's file.
#[derive(Debug)]
enum Found {
    Open(File),
    /// The file belongs to the image.
    OfImage,
    /// Why its content is unknown.
    Unread(String),
}

impl Mapped {
    /// Returns an empty collection for a program in an image. Of the image's own libraries only the names are recorded;
    /// files that the host has injected or mounted (`bound`) are read.
    pub fn contained(bound: Vec<PathBuf>) -> Self {
        Self { is_contained: true, bound, ..Self::default() }
    }

    /// Inspects a worker and all processes that it has started.
    pub fn look(&mut self, worker: u32) {
        for pid in tree(worker).into_iter().take(MOST_PROCESSES) {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            if self.is_contained {
                // The container's starter and guard run on the host.
                if !root.join(&MARK[1..]).is_dir() {
                    continue;
                }
                self.injected(&root);
            }
            // The maps of a process that has ended or belongs to another user cannot be read.
            let read = || fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            let maps = read();
            let mut again = None;
            for line in libraries(&maps) {
                // The program that starts a container is mapped there with its files on the host.
                if self.is_contained && !line.is_deleted && !lies_in(&root, line.path) {
                    continue;
                }
                // On some file systems the inode differs from the mapped one. The kernel must then still list the file
                // by this name.
                self.take(&root, &line, || libraries(again.get_or_insert_with(read)).any(|now| now == line));
            }
        }
    }

    /// Adds the libraries that the host has injected, because they may be loaded later.
    fn injected(&mut self, root: &Path) {
        let Ok(entries) = fs::read_dir(root.join(&INJECTED[1..])) else { return };
        for entry in entries.flatten() {
            let path = Path::new(INJECTED).join(entry.file_name());
            self.take(root, &Line { path: &path, inode: None, is_deleted: false }, || true);
        }
    }

    fn take(&mut self, root: &Path, line: &Line<'_>, is_still_there: impl FnOnce() -> bool) {
        let path = line.path;
        if self.seen.contains_key(path) || self.passed.contains(path) {
            return;
        }
        if self.seen.len() >= MOST {
            if self.passed.len() < MOST_PASSED {
                self.passed.insert(path.to_owned());
            }
            return;
        }
        let is_of_host = path.starts_with(INJECTED) || self.bound.iter().any(|folder| path.starts_with(folder));
        let found = if self.is_contained && !is_of_host {
            Found::OfImage
        } else if line.is_deleted {
            Found::Unread(REPLACED.to_owned())
        } else {
            match open(&root.join(path.strip_prefix("/").unwrap_or(path))) {
                Ok((_, inode)) if line.inode.is_some_and(|mapped| mapped != inode) && !is_still_there() => {
                    Found::Unread(REPLACED.to_owned())
                }
                Ok((file, _)) => Found::Open(file),
                Err(error) => Found::Unread(format!("it could not be opened: {error}")),
            }
        };
        self.seen.insert(path.to_owned(), found);
    }

    /// Returns the libraries as facts: `library.NAME` with path, size and SHA-256. Missing digests are computed until
    /// `is_over` returns true.
    pub fn facts(&self, sums: &mut Sums, is_over: &(dyn Fn() -> bool + Sync)) -> Table {
        let files = || {
            self.seen.iter().filter_map(|(path, found)| match found {
                Found::Open(file) => Some((path, file)),
                Found::OfImage | Found::Unread(_) => None,
            })
        };
        let computed = sums.of_all(&files().map(|(_, file)| file).collect::<Vec<_>>(), is_over);
        let computed: BTreeMap<&PathBuf, io::Result<(String, Stamp)>> =
            files().map(|(path, _)| path).zip(computed).collect();
        let mut facts = Table::new();
        for (path, found) in &self.seen {
            let mut told: Table = [("path".to_owned(), path.display().to_string().into())].into();
            let mut put = |name: &str, value: Value| drop(told.insert(name.to_owned(), value));
            match (found, computed.get(path)) {
                (_, Some(Ok((sum, stamp)))) => {
                    put("bytes", stamp.size().into());
                    put("sha256", sum.as_str().into());
                }
                (_, Some(Err(error))) => put("unread", error.to_string().into()),
                (Found::Unread(why), None) => put("unread", why.as_str().into()),
                (Found::OfImage | Found::Open(_), None) => put("of", "the image".into()),
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // If two libraries have the same name, the second is listed by its path.
            let plain = format!("library.{name}");
            let name = if facts.contains_key(&plain) { format!("library.{}", path.display()) } else { plain };
            facts.insert(name, told.into());
        }
        if !self.passed.is_empty() {
            facts.insert("library.more".to_owned(), self.passed.len().into());
        }
        facts
    }
}

/// Whether a file name is that of a library that can affect numerical results.
pub fn is_known(name: &str) -> bool {
    NAMES.iter().any(|known| name.starts_with(known))
}

/// Whether a path exists under a root.
fn lies_in(root: &Path, path: &Path) -> bool {
    fs::symlink_metadata(root.join(path.strip_prefix("/").unwrap_or(path))).is_ok()
}

/// Opens a regular file without blocking. Returns it with its inode number.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let check = |metadata: &Metadata| match metadata.is_file() {
        true => Ok(metadata.ino()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    check(&fs::metadata(path)?)?;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let inode = check(&file.metadata()?)?;
    Ok((file, inode))
}

/// A file that is mapped as executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    path: &'a Path,
    inode: Option<u64>,
    /// Whether the file was removed or replaced.
    is_deleted: bool,
}

/// Returns the known libraries that are mapped as executable.
fn libraries(maps: &str) -> impl Iterator<Item = Line<'_>> {
    maps.lines().filter_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let (permissions, inode) = (columns.nth(1)?, columns.nth(2)?);
        // The path is the last column and the only one that begins with a slash. It may contain spaces.
        let shown = &line[line.find('/')?..];
        let kept = shown.strip_suffix(" (deleted)");
        let path = Path::new(kept.unwrap_or(shown));
        let name = path.file_name()?.to_str()?;
        let line = Line { path, inode: inode.parse().ok(), is_deleted: kept.is_some() };
        (permissions.contains('x') && is_known(name)).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn known_executable_mappings_are_listed() {
        let maps = "7f00-7f01 r--p 0 08:01 5    /usr/lib/libcudnn.so.9\n\
                    7f01-7f02 r-xp 0 08:01 6    /opt/a b/libnvrtc.so.13.0.88\n7f02-7f03 rw-p 0 00:00 0\n\
                    7f03-7f04 r-xp 0 08:01 7    /usr/lib/libfoo.so\n7f05-7f06 r-xp 0 08:01 6    /lib/libc.so.6 (deleted)\n";
        let line = |path, inode, is_deleted| Line { path: Path::new(path), inode: Some(inode), is_deleted };
        assert_eq!(
            libraries(maps).collect::<Vec<_>>(),
            [line("/opt/a b/libnvrtc.so.13.0.88", 6, false), line("/lib/libc.so.6", 6, true)]
        );
    }

    #[test]
    fn only_the_file_that_is_mapped_is_read() {
        let root = tempfile::tempdir().unwrap();
        for name in ["libm.so.1", "libm.so.2", "libm.so.3", "libm.so.4"] {
            fs::write(root.path().join(name), name).unwrap();
        }
        let made = Command::new("mkfifo").arg(root.path().join("libm.so.5")).status().unwrap();
        assert!(made.success());
        let inode = |name: &str| fs::metadata(root.path().join(name)).unwrap().ino();
        let mut mapped = Mapped::default();
        let mut take = |path: &str, inode: u64, is_deleted: bool, still: bool| {
            mapped.take(root.path(), &Line { path: Path::new(path), inode: Some(inode), is_deleted }, || still);
        };
        take("/libm.so.1", inode("libm.so.1"), false, false);
        take("/libm.so.2", inode("libm.so.1"), false, false);
        take("/libm.so.3", inode("libm.so.1"), false, true);
        take("/libm.so.4", inode("libm.so.4"), true, false);
        take("/libm.so.5", inode("libm.so.5"), false, true);
        let facts = mapped.facts(&mut Sums::default(), &|| false);
        let told: Vec<String> = (1..=5)
            .map(|number| {
                let Value::Table(told) = &facts[&format!("library.libm.so.{number}")] else { panic!("{facts:?}") };
                told.get("unread").or(told.get("bytes")).unwrap().to_string()
            })
            .collect();
        let replaced = REPLACED.to_owned();
        assert_eq!(told[..4], ["9".to_owned(), replaced.clone(), "9".to_owned(), replaced]);
        assert_eq!(told[4], "it could not be opened: it is not a regular file");
    }

    #[test]
    fn libraries_of_an_ended_program_are_read() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let mut mapped = Mapped::default();
        for _ in 0..500 {
            mapped.look(child.id());
            if mapped.seen.keys().any(|path| path.ends_with("libc.so.6")) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut sums = Sums::default();
        let in_haste = mapped.facts(&mut sums, &|| true);
        let Value::Table(libc) = &in_haste["library.libc.so.6"] else { panic!("{in_haste:?}") };
        assert!(libc.contains_key("unread") && !libc.contains_key("sha256"));
        let facts = mapped.facts(&mut sums, &|| false);
        let Value::Table(libc) = &facts["library.libc.so.6"] else { panic!("{facts:?}") };
        let (sum, stamp) = Sums::default().of(Path::new(libc["path"].as_str().unwrap())).unwrap();
        assert_eq!((&libc["sha256"], &libc["bytes"]), (&sum.into(), &stamp.size().into()));
        assert_eq!(mapped.facts(&mut sums, &|| true), facts, "by now they are known");
    }

    #[test]
    fn libraries_of_the_containers_starter_are_left_out() {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir_all(image.path().join(&MARK[1..])).unwrap();
        fs::create_dir_all(image.path().join("usr/lib")).unwrap();
        fs::write(image.path().join("usr/lib/libc.so.6"), "").unwrap();
        let inside = |path: &str| lies_in(image.path(), Path::new(path));
        assert!(inside("/usr/lib/libc.so.6") && !inside("/opt/apptainer/lib/libc.so.6"));
        assert!(!lies_in(image.path(), Path::new(image.path().join("usr/lib/libc.so.6").to_str().unwrap())));
    }

    #[test]
    fn in_an_image_host_files_are_read_and_its_own_are_only_named() {
        let root = tempfile::tempdir().unwrap();
        let libs = root.path().join(&INJECTED[1..]);
        fs::create_dir_all(&libs).unwrap();
        fs::write(libs.join("libcuda.so.1"), "the driver").unwrap();
        fs::create_dir_all(root.path().join("opt/cuda")).unwrap();
        fs::write(root.path().join("opt/cuda/libnvrtc.so.13"), "a bind").unwrap();
        let mut mapped = Mapped::contained(vec!["/opt/cuda".into()]);
        mapped.injected(root.path());
        let bound = Line { path: Path::new("/opt/cuda/libnvrtc.so.13"), inode: None, is_deleted: false };
        mapped.take(root.path(), &bound, || true);
        let of_image = |path: &str, mapped: &mut Mapped| {
            mapped.take(root.path(), &Line { path: Path::new(path), inode: Some(1), is_deleted: false }, || true);
        };
        of_image("/usr/lib/libcublas.so.13", &mut mapped);
        let told: Vec<String> = mapped
            .facts(&mut Sums::default(), &|| false)
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let [sum, of_bind] = ["the driver", "a bind"].map(|text| super::super::sums::sha256(text.as_bytes()));
        assert_eq!(
            told,
            [
                "library.libcublas.so.13 = {of = the image, path = /usr/lib/libcublas.so.13}".to_owned(),
                format!(
                    "library.libcuda.so.1 = {{bytes = 10, path = /.singularity.d/libs/libcuda.so.1, sha256 = {sum}}}"
                ),
                format!("library.libnvrtc.so.13 = {{bytes = 6, path = /opt/cuda/libnvrtc.so.13, sha256 = {of_bind}}}"),
            ]
        );
        // Several processes or rounds find the same files.
        for number in (0..200).chain(0..200) {
            of_image(&format!("/usr/lib/libm.so.{number}"), &mut mapped);
        }
        assert_eq!((mapped.seen.len(), mapped.passed.len()), (MOST, 200 - (MOST - 3)));
    }
}
