//! SHA-256 of large files, as `sha256sum` computes it, cached while a file does not change.
//!
//! A cached sum is found by device, inode, size and both times of the file, so that neither a name nor a path is
//! stored. Without a writable cache it is computed each time.

use super::{HostError, environment, files};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that changed this shortly before it was read may change again without a change of its time stamp.
const SETTLED: Duration = Duration::from_secs(2);
/// The maximum number of cached sums.
const MOST_KEPT: usize = 4096;
/// The maximum size of a cache file; a larger one was not written by ledger.
const MOST_BYTES: u64 = 4 << 20;
const BUFFER: usize = 1 << 18;
/// How often a file is read if it changes meanwhile.
const MOST_READ: usize = 2;
const CHANGED: &str = "it was changed while it was read";
const STOPPED: &str = "there was no time to read it";

/// The metadata that shows whether a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    /// Returns the stamp of a file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        let time = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified_ns: time(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: time(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns the stamp as text without the device, whose number for a shared file system differs between machines.
    pub fn shared(&self) -> String {
        format!("{} {} {} {}", self.inode, self.size, self.modified_ns, self.changed_ns)
    }

    /// The file's length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the file has not changed for a while. Later changes then always change its times.
    pub fn is_settled_now(&self) -> bool {
        self.is_settled(SystemTime::now())
    }

    /// Whether the file had not changed for a while at that moment.
    fn is_settled(&self, at: SystemTime) -> bool {
        let now = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let limit = i128::try_from(now.saturating_sub(SETTLED).as_nanos()).unwrap_or(0);
        self.changed_ns.max(self.modified_ns) < limit
    }
}

/// Sums of files, with a cache.
#[derive(Debug, Default)]
pub struct Sums {
    place: Option<PathBuf>,
    known: BTreeMap<Stamp, String>,
    /// The sums computed in this process, each with whether it may be cached.
    new: BTreeMap<Stamp, Computed>,
}

/// A computed sum. The file had the same stamp before and after it was read.
#[derive(Clone, Debug)]
struct Computed {
    stamp: Stamp,
    sum: String,
    is_settled: bool,
}

impl Sums {
    /// Opens this user's cache: `ledger/sums` in `$XDG_CACHE_HOME`, else in `~/.cache`. Without either, nothing is
    /// cached.
    pub fn of_user() -> Self {
        let cache = environment::user_folder("XDG_CACHE_HOME", ".cache");
        cache.map(|cache| Self::at(cache.join("ledger/sums"))).unwrap_or_default()
    }

    /// Opens a cache file, which need not exist.
    pub fn at(place: PathBuf) -> Self {
        let known = read(&place);
        Self { place: Some(place), known, new: BTreeMap::new() }
    }

    /// Returns the sum of a file if it is already known.
    pub fn known(&self, stamp: &Stamp) -> Option<&str> {
        self.new.get(stamp).map(|new| &new.sum).or_else(|| self.known.get(stamp)).map(String::as_str)
    }

    /// Returns the sum of a regular file, in hexadecimal digits, and the file's stamp.
    ///
    /// # Errors
    /// If it cannot be read or is not a regular file.
    pub fn of(&mut self, path: &Path) -> Result<(String, Stamp), HostError> {
        self.of_until(path, &|| false)
    }

    /// As [`of`](Self::of), but stops when `is_over` returns true.
    ///
    /// # Errors
    /// As [`of`](Self::of), and if it was stopped.
    pub fn of_until(&mut self, path: &Path, is_over: &(dyn Fn() -> bool + Sync)) -> Result<(String, Stamp), HostError> {
        let failed = |source: io::Error| HostError::File {
            action: "read",
            path: path.to_owned(),
            remedy: "check the path; it must be a regular file that this user can read",
            source,
        };
        // Checked before opening, because opening a pipe would block.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        self.of_open(&file, is_over).map_err(failed)
    }

    fn of_open(&mut self, file: &File, is_over: &(dyn Fn() -> bool + Sync)) -> io::Result<(String, Stamp)> {
        let stamp = Stamp::of(&file.metadata()?);
        if let Some(sum) = self.known(&stamp) {
            return Ok((sum.to_owned(), stamp));
        }
        let computed = compute(file, is_over)?;
        let found = (computed.sum.clone(), computed.stamp);
        self.new.insert(computed.stamp, computed);
        Ok(found)
    }

    /// As [`of`](Self::of), for many open files, each from its beginning. Unknown sums are computed on several threads
    /// until `is_over` returns true. All threads call it for every chunk.
    pub fn of_all(&mut self, files: &[&File], is_over: &(dyn Fn() -> bool + Sync)) -> Vec<io::Result<(String, Stamp)>> {
        let known = |sums: &Self, file: &File| {
            let stamp = Stamp::of(&file.metadata()?);
            Ok::<_, io::Error>(sums.known(&stamp).map(|sum| (sum.to_owned(), stamp)))
        };
        let unknown: Vec<(usize, &File)> =
            files.iter().copied().enumerate().filter(|(_, file)| matches!(known(self, file), Ok(None))).collect();
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut read = Vec::new();
            while let Some((index, file)) = unknown.get(next.fetch_add(1, Ordering::Relaxed)) {
                read.push((*index, compute(file, is_over)));
            }
            read
        };
        let mut read: BTreeMap<usize, io::Result<Computed>> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads.min(unknown.len())).map(|_| scope.spawn(work)).collect();
            running.into_iter().flat_map(|one| one.join().unwrap_or_default()).collect()
        });
        let each = |(index, file): (usize, &&File)| match read.remove(&index) {
            None => known(self, file)?.ok_or_else(|| io::Error::other(CHANGED)),
            Some(computed) => {
                let computed = computed?;
                let found = (computed.sum.clone(), computed.stamp);
                self.new.insert(computed.stamp, computed);
                Ok(found)
            }
        };
        files.iter().enumerate().map(each).collect()
    }

    /// Writes the computed sums to the cache. A failure only costs time later.
    pub fn keep(&mut self) {
        let Some(place) = &self.place else { return };
        let new: Vec<(Stamp, String)> =
            self.new.values().filter(|new| new.is_settled).map(|new| (new.stamp, new.sum.clone())).collect();
        if new.iter().all(|(stamp, _)| self.known.contains_key(stamp)) {
            return;
        }
        // Keeps the sums that other processes have added meanwhile.
        self.known = read(place);
        if self.known.len() + new.len() > MOST_KEPT {
            self.known.clear();
        }
        self.known.extend(new);
        let mut text = String::new();
        for (stamp, sum) in &self.known {
            let Stamp { device, inode, size, modified_ns, changed_ns } = stamp;
            // Writing to a `String` cannot fail.
            let _ = writeln!(text, "{device} {inode} {size} {modified_ns} {changed_ns} {sum}");
        }
        if let Some(folder) = place.parent() {
            let _ = files::private_folder(folder);
        }
        let _ = files::write_whole(place, text.as_bytes());
    }
}

/// Returns the SHA-256 of some bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Computes the sum of a file, again if the file changes meanwhile.
fn compute(file: &File, is_over: &(dyn Fn() -> bool + Sync)) -> io::Result<Computed> {
    for _ in 0..MOST_READ {
        // Taken before the first byte is read: a later change may or may not be part of the sum.
        let now = SystemTime::now();
        let stamp = Stamp::of(&file.metadata()?);
        let sum = content(file, is_over)?;
        if Stamp::of(&file.metadata()?) == stamp {
            return Ok(Computed { stamp, sum, is_settled: stamp.is_settled(now) });
        }
    }
    Err(io::Error::other(CHANGED))
}

fn content(file: &File, is_over: &(dyn Fn() -> bool + Sync)) -> io::Result<String> {
    use std::os::unix::fs::FileExt;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while !is_over() {
        match file.read_at(&mut buffer, at) {
            Ok(0) => return Ok(hex(&hasher.finalize())),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(STOPPED))
}

/// Reads a cache file. Invalid lines are skipped.
fn read(place: &Path) -> BTreeMap<Stamp, String> {
    let mut text = String::new();
    let opened = File::open(place).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    if opened.is_err() {
        return BTreeMap::new();
    }
    let line = |line: &str| {
        let mut words = line.split(' ');
        let stamp = Stamp {
            device: words.next()?.parse().ok()?,
            inode: words.next()?.parse().ok()?,
            size: words.next()?.parse().ok()?,
            modified_ns: words.next()?.parse().ok()?,
            changed_ns: words.next()?.parse().ok()?,
        };
        let sum = words.next().filter(|sum| sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        Some((stamp, sum.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn old(path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).unwrap();
        assert!(Command::new("touch").args(["-d", "2020-01-01"]).arg(path).status().unwrap().success());
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(&path, &bytes).unwrap();
        let said = Command::new("sha256sum").arg(&path).output().unwrap();
        let theirs = String::from_utf8(said.stdout).unwrap();
        assert_eq!(Sums::default().of(&path).unwrap().0, theirs[..64]);
        assert_eq!(sha256(&bytes), theirs[..64]);
        let files: Vec<File> = (0..5).map(|_| File::open(&path).unwrap()).collect();
        let all = Sums::default().of_all(&files.iter().collect::<Vec<_>>(), &|| false);
        assert!(all.len() == 5 && all.into_iter().all(|one| one.unwrap().0 == theirs[..64]));
    }

    #[test]
    fn cached_sums_are_used_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (place, path) = (dir.path().join("deep/sums"), dir.path().join("file"));
        old(&path, b"one");
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        let made_up = "0".repeat(64);
        // The inode's change time is now: the file could change again without a new time stamp, even if the sum is
        // stored later.
        let mut sums = Sums::at(place.clone());
        assert_eq!(sums.of(&path).unwrap().0, sha256(b"one"));
        std::thread::sleep(SETTLED + Duration::from_millis(100));
        sums.keep();
        assert!(!place.exists());
        let mut sums = Sums::at(place.clone());
        assert_eq!(sums.of(&path).unwrap().0, sha256(b"one"));
        sums.new.get_mut(&stamp).unwrap().sum.clone_from(&made_up);
        sums.keep();
        assert_eq!(Sums::at(place.clone()).of(&path).unwrap().0, made_up, "it is not computed again");
        old(&path, b"two");
        assert_eq!(Sums::at(place.clone()).of(&path).unwrap().0, sha256(b"two"), "same size, same time, other change");
        fs::write(&place, "rubbish\n1 2 3\n").unwrap();
        assert_eq!(Sums::at(place).of(&path).unwrap().0, sha256(b"two"));
    }

    #[test]
    fn without_time_only_known_sums_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<File> = (0..3_u8)
            .map(|number| {
                let path = dir.path().join(number.to_string());
                fs::write(&path, [number]).unwrap();
                File::open(path).unwrap()
            })
            .collect();
        let mut sums = Sums::default();
        sums.of_open(&files[1], &|| false).unwrap();
        let told = sums.of_all(&files.iter().collect::<Vec<_>>(), &|| true);
        let told: Vec<String> =
            told.into_iter().map(|one| one.map_or_else(|error| error.to_string(), |(sum, _)| sum)).collect();
        assert_eq!(told, [STOPPED.to_owned(), sha256(&[1]), STOPPED.to_owned()]);
        // An endless file is abandoned within one chunk.
        let endless = File::open("/dev/zero").unwrap();
        let left = AtomicUsize::new(5);
        let told = Sums::default().of_all(&[&endless], &|| left.fetch_sub(1, Ordering::Relaxed) == 1);
        assert_eq!(told[0].as_ref().unwrap_err().to_string(), STOPPED);
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_has_no_sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [0; 10]).unwrap();
        let asked = AtomicUsize::new(0);
        let change = || {
            let time = SystemTime::now() + Duration::from_secs(asked.fetch_add(1, Ordering::Relaxed) as u64);
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            false
        };
        let told = Sums::default().of_all(&[&File::open(&path).unwrap()], &change);
        assert_eq!(told[0].as_ref().unwrap_err().to_string(), CHANGED);
    }

    #[test]
    fn sums_of_other_than_regular_files_are_refused() {
        for path in ["/dev/zero", "/", "/no/such/file"] {
            assert!(Sums::default().of(Path::new(path)).is_err(), "{path}");
        }
    }
}
