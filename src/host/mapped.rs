//! The libraries that a program has loaded, as the kernel has them mapped, held open so that they can be read when the program is gone.

use super::meter::tree;
use super::sums::{Stamp, Sums};
use crate::record::{Table, Value};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// What numbers depend on, by the beginning of a file's name: NVIDIA's libraries, those of linear algebra and threads, the C library and its mathematics.
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
/// What every image of Apptainer's has.
const MARK: &str = "/.singularity.d";
/// Where Apptainer puts the host's libraries for a program inside.
pub const INJECTED: &str = "/.singularity.d/libs";
/// No more files are kept in mind.
const MOST: usize = 96;
/// No more processes of a worker are looked at.
const MOST_PROCESSES: usize = 64;

/// Libraries that were seen.
#[derive(Debug, Default)]
pub struct Mapped {
    seen: BTreeMap<PathBuf, Option<File>>,
    more: usize,
    /// Whether the program has a file system of its own, an image, whose digest stands for all files in it.
    is_contained: bool,
}

impl Mapped {
    /// Of a program in an image: of its own libraries only the names are kept, of those that the host has put in all.
    pub fn contained() -> Self {
        Self { is_contained: true, ..Self::default() }
    }

    /// Looks at a worker and all that it has started.
    pub fn look(&mut self, worker: u32) {
        for pid in tree(worker).into_iter().take(MOST_PROCESSES) {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            if self.is_contained {
                // What starts and guards a container runs on the host.
                if !root.join(&MARK[1..]).is_dir() {
                    continue;
                }
                self.injected(&root);
            }
            // A process that is gone, or another user's, tells nothing.
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            for path in libraries(&maps) {
                self.take(&root, path);
            }
        }
    }

    /// What the host has put in may be loaded later.
    fn injected(&mut self, root: &Path) {
        let Ok(entries) = fs::read_dir(root.join(&INJECTED[1..])) else { return };
        for entry in entries.flatten() {
            self.take(root, &Path::new(INJECTED).join(entry.file_name()));
        }
    }

    fn take(&mut self, root: &Path, path: &Path) {
        if self.seen.contains_key(path) {
            return;
        }
        if self.seen.len() >= MOST {
            self.more += 1;
            return;
        }
        let is_open = !self.is_contained || path.starts_with(INJECTED);
        let inside = path.strip_prefix("/").unwrap_or(path);
        let file = File::open(root.join(inside)).ok().filter(|_| is_open);
        self.seen.insert(path.to_owned(), file);
    }

    /// What was seen, as facts: `library.NAME` with path, length and SHA-256. Sums that are not known are computed, unless there is no time.
    pub fn facts(&self, sums: &mut Sums, in_haste: bool) -> Table {
        let files: Vec<(&PathBuf, &File)> =
            self.seen.iter().filter_map(|(path, file)| Some((path, file.as_ref()?))).collect();
        let computed: Vec<io::Result<(String, Stamp)>> = if in_haste {
            files.iter().map(|(_, file)| known(sums, file)).collect()
        } else {
            sums.of_all(&files.iter().map(|(_, file)| *file).collect::<Vec<_>>())
        };
        let computed: BTreeMap<&PathBuf, io::Result<(String, Stamp)>> =
            files.iter().map(|(path, _)| *path).zip(computed).collect();
        let mut facts = Table::new();
        for path in self.seen.keys() {
            let mut told: Table = [("path".to_owned(), path.display().to_string().into())].into();
            let mut put = |name: &str, value: Value| drop(told.insert(name.to_owned(), value));
            match computed.get(path) {
                Some(Ok((sum, stamp))) => {
                    put("bytes", stamp.size().into());
                    put("sha256", sum.as_str().into());
                }
                Some(Err(error)) => put("unread", error.to_string().into()),
                None if self.is_contained => put("of", "the image".into()),
                None => put("unread", "it could not be opened".into()),
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Two of one name: the second by its path.
            let plain = format!("library.{name}");
            let name = if facts.contains_key(&plain) { format!("library.{}", path.display()) } else { plain };
            facts.insert(name, told.into());
        }
        if self.more > 0 {
            facts.insert("library.more".to_owned(), self.more.into());
        }
        facts
    }
}

fn known(sums: &Sums, file: &File) -> io::Result<(String, Stamp)> {
    let stamp = Stamp::of(&file.metadata()?);
    let sum = sums.known(&stamp).ok_or_else(|| io::Error::other("it was stopped before this was computed"))?;
    Ok((sum.to_owned(), stamp))
}

/// The files that are mapped to be executed and whose names are known.
fn libraries(maps: &str) -> impl Iterator<Item = &Path> {
    maps.lines().filter_map(|line| {
        let permissions = line.split_ascii_whitespace().nth(1)?;
        // The path is the last column and the only one that begins with a slash; it may hold spaces.
        let path = Path::new(&line[line.find('/')?..]);
        let name = path.file_name()?.to_str()?;
        let is_known = NAMES.iter().any(|known| name.starts_with(known)) && !name.ends_with(" (deleted)");
        (permissions.contains('x') && is_known).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn known_names_that_are_executed() {
        let maps = "7f00-7f01 r--p 0 08:01 5    /usr/lib/libcudnn.so.9\n\
                    7f01-7f02 r-xp 0 08:01 6    /opt/a b/libnvrtc.so.13.0.88\n7f02-7f03 rw-p 0 00:00 0\n\
                    7f03-7f04 r-xp 0 08:01 7    /usr/lib/libfoo.so\n7f05-7f06 r-xp 0 08:01 6    /lib/libc.so.6 (deleted)\n";
        assert_eq!(libraries(maps).collect::<Vec<_>>(), [Path::new("/opt/a b/libnvrtc.so.13.0.88")]);
    }

    #[test]
    fn what_a_program_has_loaded_is_told_after_it_is_gone() {
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
        let in_haste = mapped.facts(&mut sums, true);
        let Value::Table(libc) = &in_haste["library.libc.so.6"] else { panic!("{in_haste:?}") };
        assert!(libc.contains_key("unread") && !libc.contains_key("sha256"));
        let facts = mapped.facts(&mut sums, false);
        let Value::Table(libc) = &facts["library.libc.so.6"] else { panic!("{facts:?}") };
        let (sum, stamp) = Sums::default().of(Path::new(libc["path"].as_str().unwrap())).unwrap();
        assert_eq!((&libc["sha256"], &libc["bytes"]), (&sum.into(), &stamp.size().into()));
        assert_eq!(mapped.facts(&mut sums, true), facts, "by now they are known");
    }

    #[test]
    fn of_an_image_the_hosts_files_are_read_and_its_own_are_named() {
        let root = tempfile::tempdir().unwrap();
        let libs = root.path().join(&INJECTED[1..]);
        fs::create_dir_all(&libs).unwrap();
        fs::write(libs.join("libcuda.so.1"), "the driver").unwrap();
        let mut mapped = Mapped::contained();
        mapped.injected(root.path());
        mapped.take(root.path(), Path::new("/usr/lib/libcublas.so.13"));
        let told: Vec<String> =
            mapped.facts(&mut Sums::default(), false).iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let sum = super::super::sums::sha256(b"the driver");
        assert_eq!(
            told,
            [
                "library.libcublas.so.13 = {of = the image, path = /usr/lib/libcublas.so.13}".to_owned(),
                format!(
                    "library.libcuda.so.1 = {{bytes = 10, path = /.singularity.d/libs/libcuda.so.1, sha256 = {sum}}}"
                ),
            ]
        );
        for number in 0..200 {
            mapped.take(root.path(), Path::new(&format!("/usr/lib/libm.so.{number}")));
        }
        assert_eq!((mapped.seen.len(), mapped.more), (MOST, 200 - (MOST - 2)));
    }
}
