//! SHA-256 of large files, which everybody can recompute with `sha256sum`; computed once for as long as a file does not change.
//!
//! What is known of a file is found again by device, inode, size and both times, so that neither a name nor a path is kept. Whoever
//! cannot keep it computes it each time.

use super::{HostError, environment, files};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that was changed so shortly before it was read may change once more without its time telling.
const SETTLED: Duration = Duration::from_secs(2);
/// No more is kept.
const MOST_KEPT: usize = 4096;
/// A kept file that is larger was not written by us.
const MOST_BYTES: u64 = 4 << 20;
const BUFFER: usize = 1 << 18;

/// What says that a file is still the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl Stamp {
    /// Of a file's metadata.
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

    /// The file's length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let limit = i128::try_from(now.saturating_sub(SETTLED).as_nanos()).unwrap_or(0);
        self.changed_ns.max(self.modified_ns) < limit
    }
}

/// Sums of files, as far as they are known.
#[derive(Debug, Default)]
pub struct Sums {
    place: Option<PathBuf>,
    known: BTreeMap<Stamp, String>,
    new: BTreeMap<Stamp, String>,
}

impl Sums {
    /// What this user keeps: `ledger/sums` in `$XDG_CACHE_HOME`, else in `~/.cache`. Without either nothing is kept.
    pub fn of_user() -> Self {
        let absolute = |name| environment::var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        cache.map(|cache| Self::at(cache.join("ledger/sums"))).unwrap_or_default()
    }

    /// What is kept in a file, which need not exist.
    pub fn at(place: PathBuf) -> Self {
        let known = read(&place);
        Self { place: Some(place), known, new: BTreeMap::new() }
    }

    /// The sum of a file if it is known already.
    pub fn known(&self, stamp: &Stamp) -> Option<&str> {
        self.new.get(stamp).or_else(|| self.known.get(stamp)).map(String::as_str)
    }

    /// The sum of a regular file, in hexadecimal digits, and what says that it is still the same.
    ///
    /// # Errors
    /// If it cannot be read or is no regular file.
    pub fn of(&mut self, path: &Path) -> Result<(String, Stamp), HostError> {
        let failed = |source: io::Error| HostError::File {
            action: "read",
            path: path.to_owned(),
            remedy: "check the path; it must be a regular file that this user can read",
            source,
        };
        // A pipe is not waited for.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        self.of_open(&file).map_err(failed)
    }

    /// As [`of`](Self::of), of an open file, from its beginning.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_open(&mut self, file: &File) -> io::Result<(String, Stamp)> {
        let stamp = Stamp::of(&file.metadata()?);
        if let Some(sum) = self.known(&stamp) {
            return Ok((sum.to_owned(), stamp));
        }
        let sum = compute(file)?;
        self.put(stamp, &sum);
        Ok((sum, stamp))
    }

    /// As [`of_open`](Self::of_open), of many files; those that are not known are read at once, each by a thread.
    pub fn of_all(&mut self, files: &[&File]) -> Vec<io::Result<(String, Stamp)>> {
        let mut unknown: Vec<&File> = Vec::new();
        for file in files {
            let stamp = file.metadata().map(|metadata| Stamp::of(&metadata));
            if stamp.is_ok_and(|stamp| self.known(&stamp).is_none()) {
                unknown.push(file);
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16);
        let share = unknown.len().div_ceil(threads).max(1);
        let read: Vec<(Stamp, String)> = std::thread::scope(|scope| {
            let each = |file: &&File| Some((Stamp::of(&file.metadata().ok()?), compute(file).ok()?));
            let running: Vec<_> = unknown
                .chunks(share)
                .map(|files| scope.spawn(move || files.iter().filter_map(each).collect::<Vec<_>>()))
                .collect();
            running.into_iter().flat_map(|one| one.join().unwrap_or_default()).collect()
        });
        read.iter().for_each(|(stamp, sum)| self.put(*stamp, sum));
        files.iter().map(|file| self.of_open(file)).collect()
    }

    fn put(&mut self, stamp: Stamp, sum: &str) {
        self.new.insert(stamp, sum.to_owned());
    }

    /// Keeps what was computed since, for others and for later. That it could not be kept costs time and nothing else.
    pub fn keep(&mut self) {
        let Some(place) = &self.place else { return };
        let new: Vec<(Stamp, String)> =
            self.new.iter().filter(|(stamp, _)| stamp.is_settled()).map(|(stamp, sum)| (*stamp, sum.clone())).collect();
        if new.iter().all(|(stamp, _)| self.known.contains_key(stamp)) {
            return;
        }
        // What others have kept meanwhile stays.
        self.known = read(place);
        if self.known.len() + new.len() > MOST_KEPT {
            self.known.clear();
        }
        self.known.extend(new);
        let mut text = String::new();
        for (stamp, sum) in &self.known {
            let Stamp { device, inode, size, modified_ns, changed_ns } = stamp;
            // Writing into a text does not fail.
            let _ = writeln!(text, "{device} {inode} {size} {modified_ns} {changed_ns} {sum}");
        }
        if let Some(folder) = place.parent() {
            let _ = files::private_folder(folder);
        }
        let _ = files::write_whole(place, text.as_bytes());
    }
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn compute(file: &File) -> io::Result<String> {
    use std::os::unix::fs::FileExt;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    loop {
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
}

/// Lines that cannot be read are nobody's.
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
        let all = Sums::default().of_all(&files.iter().collect::<Vec<_>>());
        assert!(all.len() == 5 && all.into_iter().all(|one| one.unwrap().0 == theirs[..64]));
    }

    #[test]
    fn what_is_kept_is_used_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (place, path) = (dir.path().join("deep/sums"), dir.path().join("file"));
        old(&path, b"one");
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        let made_up = "0".repeat(64);
        let mut sums = Sums::at(place.clone());
        sums.put(stamp, &made_up);
        sums.keep();
        // The change of the inode's time is of this moment: it is not settled yet, and not kept.
        assert!(!place.exists());
        std::thread::sleep(SETTLED + Duration::from_millis(100));
        sums.keep();
        assert_eq!(Sums::at(place.clone()).of(&path).unwrap().0, made_up, "it is not computed again");
        old(&path, b"two");
        assert_eq!(Sums::at(place.clone()).of(&path).unwrap().0, sha256(b"two"), "same size, same time, other change");
        fs::write(&place, "rubbish\n1 2 3\n").unwrap();
        assert_eq!(Sums::at(place).of(&path).unwrap().0, sha256(b"two"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        for path in ["/dev/zero", "/", "/no/such/file"] {
            assert!(Sums::default().of(Path::new(path)).is_err(), "{path}");
        }
    }
}
