//! Files: digests of their contents, named pipes, and durable writes.

use super::sums::Stamp;
use super::{HostError, environment};
use flate2::bufread::MultiGzDecoder;
use ledger_record::{DEEPEST, Digest, DigestWriter, Nonce, PICTURE_ENDINGS, is_hidden, is_picture, is_text};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, mkfifoat, renameat_with};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// When files are only inspected, the time limit is checked once per this many files, because the check takes longer
/// than the inspection.
const ASK_EVERY: usize = 64;

/// The buffer size for digests, large enough that reading is not the bottleneck.
const BUFFER: usize = 1 << 18;

/// The first two bytes of every gzip stream (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Returns the digest of a file's content: of the unpacked bytes of a gzip stream, otherwise of the file's bytes.
///
/// `data` and `data.gz` with the same content have the same digest.
///
/// # Errors
/// If it cannot be read, is not a regular file (a device may have no end, a pipe no writer), or is a damaged gzip
/// stream.
pub fn digest_content(path: &Path) -> Result<Digest, HostError> {
    digest_content_until(path, &|| false)
}

/// As [`digest_content`], but stops when `is_over` returns true, which is called before each chunk.
///
/// # Errors
/// As [`digest_content`], and if it was stopped.
pub fn digest_content_until(path: &Path, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Digest, HostError> {
    let failed = |source| unreadable(path, source);
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        let kind = if kind.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::Unsupported };
        return Err(failed(std::io::Error::new(kind, "it is not a regular file")));
    }
    let file = File::open(path).map_err(failed)?;
    let mut magic = Vec::with_capacity(2);
    (&file).take(2).read_to_end(&mut magic).map_err(failed)?;
    let whole = magic.as_slice().chain(file);
    if magic == GZIP_MAGIC {
        digest_stream(MultiGzDecoder::new(BufReader::with_capacity(BUFFER, whole)), is_over).map_err(failed)
    } else {
        digest_stream(whole, is_over).map_err(failed)
    }
}

/// Returns [`digest_content_until`] of many files, in their order, on as many threads as there are processors.
///
/// # Errors
/// The error of the first file that cannot be read.
pub fn digest_contents(paths: &[&Path], is_over: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Digest>, HostError> {
    each(paths, |_, path| digest_content_until(path, is_over))
}

/// Returns the stamps of many files, in their order, which show later whether the files are unchanged. Stops when
/// `is_over` returns true.
///
/// # Errors
/// The error of the first file that cannot be found, or if it was stopped.
pub fn stamps(paths: &[&Path], is_over: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Stamp>, HostError> {
    each(paths, |at, path| {
        if at.is_multiple_of(ASK_EVERY) {
            in_time(is_over).map_err(|source| unreadable(path, source))?;
        }
        let metadata = std::fs::metadata(path).map_err(|source| unreadable(path, source))?;
        Ok(Stamp::of(&metadata))
    })
}

/// Calls `ask` for each file, on as many threads as there are processors. Each thread counts its own files from 0.
fn each<T: Send>(
    paths: &[&Path],
    ask: impl Fn(usize, &Path) -> Result<T, HostError> + Sync,
) -> Result<Vec<T>, HostError> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = paths.len().div_ceil(threads).max(1);
    let ask_all =
        |paths: &[&Path]| paths.iter().enumerate().map(|(at, path)| ask(at, path)).collect::<Result<Vec<T>, _>>();
    if paths.len() < 2 {
        return ask_all(paths);
    }
    let shares = std::thread::scope(|scope| {
        let ask_all = &ask_all;
        let running: Vec<_> = paths.chunks(share).map(|paths| scope.spawn(move || ask_all(paths))).collect();
        // Propagates the panic of a thread.
        running
            .into_iter()
            .map(|share| share.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    let mut found = Vec::with_capacity(paths.len());
    for share in shares {
        found.extend(share?);
    }
    Ok(found)
}

/// Returns the images in a directory tree, sorted by their relative paths (`a/b.png`). Hidden entries are left out, and
/// links are followed.
///
/// # Errors
/// If a directory cannot be read, there is no image, or `is_over` returns true.
pub fn pictures(directory: &Path, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Vec<(String, PathBuf)>, HostError> {
    let mut found = Vec::new();
    let mut waiting = vec![(String::new(), directory.to_owned(), 0)];
    while let Some((prefix, folder, depth)) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|source| unreadable(&folder, source))? {
            let entry = in_time(is_over).and(entry).map_err(|source| unreadable(&folder, source))?;
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            if is_hidden(&entry.file_name()) {
                continue;
            }
            // The entry's own type avoids one system call for each of possibly a million images.
            let is_folder = match entry.file_type() {
                Ok(kind) if !kind.is_symlink() => kind.is_dir(),
                _ => path.is_dir(),
            };
            if is_folder {
                if depth < DEEPEST {
                    waiting.push((format!("{prefix}{name}/"), path, depth + 1));
                }
            } else if is_picture(&path) {
                found.push((format!("{prefix}{name}"), path));
            }
        }
    }
    found.sort();
    some(directory, found, &PICTURE_ENDINGS)
}

/// Returns the text files directly in a directory, sorted by name.
///
/// # Errors
/// If the directory cannot be read, or there is no text.
pub fn texts(directory: &Path) -> Result<Vec<(String, PathBuf)>, HostError> {
    let mut found = beginning(directory, "", "")?;
    found.retain(|(_, path)| is_text(path.file_name().unwrap_or(OsStr::new(""))) && path.is_file());
    some(directory, found, &["txt"])
}

/// Returns the files found, or an error if there are none.
fn some<T>(directory: &Path, found: Vec<T>, endings: &[&str]) -> Result<Vec<T>, HostError> {
    if found.is_empty() {
        let source = std::io::Error::new(ErrorKind::NotFound, format!("no file ends in .{}", endings.join(", .")));
        return Err(unreadable(directory, source));
    }
    Ok(found)
}

/// Returns the entries of a directory whose names begin and end with these texts, sorted by name.
///
/// # Errors
/// If the directory cannot be read.
pub fn beginning(directory: &Path, begin: &str, end: &str) -> Result<Vec<(String, PathBuf)>, HostError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(|source| unreadable(directory, source))? {
        let entry = entry.map_err(|source| unreadable(directory, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(begin) && name.ends_with(end) {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a folder and its parents, accessible to this user only where they are new, so that no other user can change a
/// ledger.
///
/// # Errors
/// If it cannot be made.
pub fn private_folder(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only this user may access if it is new. An existing file is overwritten.
///
/// # Errors
/// If it cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Makes a temporary file for reading and writing that has no name. It vanishes with this process. The folder may be
/// writable by others.
///
/// # Errors
/// If it cannot be made.
pub fn nameless_in(folder: &Path) -> std::io::Result<File> {
    let nonce = random_nonce().map_err(std::io::Error::other)?;
    let path = folder.join(format!(".ledger-{nonce}"));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Returns the folder for large temporary files: `TMPDIR`, else `/var/tmp`, which is rarely in memory.
pub fn folder_for_large() -> PathBuf {
    environment::var("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// Returns the options for a file that other users may read, subject to the umask, and only this user may write.
pub fn handed_on() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o644);
    options
}

/// Writes a file that other users may read. An existing file is overwritten.
///
/// # Errors
/// If it cannot be written.
pub fn hand_on(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    handed_on().create(true).truncate(true).open(path)?.write_all(bytes)
}

fn digest_stream(mut stream: impl Read, is_over: &(dyn Fn() -> bool + Sync)) -> std::io::Result<Digest> {
    let mut writer = DigestWriter::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        in_time(is_over)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(writer.finish()),
            Ok(read) => writer.write(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns an error if the time is over. The caller of `is_over` knows the reason.
fn in_time(is_over: &(dyn Fn() -> bool + Sync)) -> std::io::Result<()> {
    if is_over() { Err(std::io::Error::other("there was no time to read it")) } else { Ok(()) }
}

/// Makes a named pipe that only this user may open.
///
/// # Errors
/// If the name is taken, or the directory cannot be written.
pub fn fifo(path: &Path) -> Result<(), HostError> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).map_err(|source| HostError::File {
        action: "make the named pipe",
        path: path.to_owned(),
        remedy: "its directory must be writable, on a file system that has named pipes, and hold nothing of that name",
        source: source.into(),
    })
}

/// Checks that a name is not taken, not even by a dangling link.
///
/// # Errors
/// If it is taken.
pub fn unused(path: &Path) -> std::io::Result<()> {
    if path.symlink_metadata().is_ok() { Err(rustix::io::Errno::EXIST.into()) } else { Ok(()) }
}

/// Renames a file or folder to a name that is not taken.
///
/// # Errors
/// If the name is taken, or the system refuses.
pub fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system cannot check and rename in one step.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            unused(to)?;
            std::fs::rename(from, to)
        }
        renamed => renamed.map_err(Into::into),
    }
}

/// Syncs a directory, so that names made, renamed or removed in it survive a crash.
///
/// # Errors
/// If the directory cannot be opened or the disk reports an error.
pub fn fsync_dir(path: &Path) -> Result<(), HostError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|source| HostError::File {
        action: "sync the directory",
        path: path.to_owned(),
        remedy: "it must exist and its disk must be sound",
        source,
    })
}

/// Writes a file atomically and durably, replacing an existing one.
///
/// For files that other processes of this user read at the same time, also on other hosts: none sees a partial file.
/// Other users may not read it.
///
/// # Errors
/// If the directory cannot be written or the disk reports an error. A previous file is then unchanged.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    write_whole_with(path, |mut file| file.write_all(bytes))
}

/// As [`write_whole`], with the content that `content` writes into the file.
///
/// # Errors
/// As [`write_whole`], and if `content` fails.
pub fn write_whole_with(path: &Path, content: impl FnOnce(&File) -> std::io::Result<()>) -> Result<(), HostError> {
    let failed = |source| HostError::File {
        action: "write",
        path: path.to_owned(),
        remedy: "its directory must exist and be writable, with room on its disk",
        source,
    };
    let directory = path.parent().unwrap_or(Path::new("."));
    let draft = directory.join(format!(".draft-{}", random_nonce()?));
    let write = || {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
        content(&file)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().map_err(|source| {
        // Removes the incomplete file.
        let _ = std::fs::remove_file(&draft);
        failed(source)
    })?;
    fsync_dir(directory)
}

/// Opens a file as a lock, without following a link and without blocking, as on a pipe. If it does not exist, it is
/// made if a mode is given, otherwise the result is `None`. The caller has to check its owner.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub fn open_lock(path: &Path, make: Option<u32>) -> std::io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    // Opens without creating first: the kernel may forbid `O_CREAT` for a file that another user made in a shared
    // folder.
    let there = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match (there, make) {
        (Err(error), None) if error.kind() == ErrorKind::NotFound => return Ok(None),
        (Err(error), Some(mode)) if error.kind() == ErrorKind::NotFound => {
            let mut making = OpenOptions::new();
            making.read(true).write(true).create(true).truncate(false).mode(mode).custom_flags(flags);
            making.open(path)?
        }
        (there, _) => there?,
    };
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other(format!("`{}` is not a file", path.display())));
    }
    Ok(Some(file))
}

/// Returns sixteen random bytes from the kernel's random source.
///
/// # Errors
/// If the kernel has no random source, as in some sandboxes.
pub fn random_nonce() -> Result<Nonce, HostError> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(source) => {
                let (action, remedy) = ("draw random bytes", "the system call `getrandom` must be allowed");
                return Err(HostError::System { action, remedy, source: source.into() });
            }
        }
    }
    Ok(Nonce(bytes))
}

fn unreadable(path: &Path, source: std::io::Error) -> HostError {
    let remedy = match source.kind() {
        ErrorKind::NotFound => "check the path",
        ErrorKind::IsADirectory => "name a file, not a directory",
        ErrorKind::Unsupported => "name a regular file",
        ErrorKind::PermissionDenied => "make it readable for this user",
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            "the gzip stream is damaged or cut; fetch the file again"
        }
        _ => "the disk or the file system reported an error",
    };
    HostError::File { action: "read", path: path.to_owned(), remedy, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn digests_cover_files_of_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for len in [0, 1, 2, BUFFER - 1, BUFFER, 2 * BUFFER + 3] {
            let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(digest_content(&path).unwrap(), Digest::of(&bytes), "{len}");
        }
    }

    #[test]
    fn files_below_a_folder_are_found_by_their_endings_and_digested_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b/2.PNG", "b/1.jpg", "a/c/3.png", "a/.4.png", ".d/5.png", "a/6.txt"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        // A link that makes a cycle.
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/c/up")).unwrap();
        let found = pictures(dir.path(), &|| false).unwrap();
        let names: Vec<&str> =
            found.iter().map(|(name, _)| name.as_str()).filter(|name| !name.contains("up/")).collect();
        assert_eq!(names, ["a/c/3.png", "b/1.jpg", "b/2.PNG"]);
        let paths: Vec<&Path> = found.iter().map(|(_, path)| path.as_path()).collect();
        let expected: Vec<Digest> = paths.iter().map(|path| digest_content(path).unwrap()).collect();
        assert_eq!(digest_contents(&paths, &|| false).unwrap(), expected);
        let fault = texts(dir.path()).unwrap_err();
        assert!(fault.to_string().contains("cannot read"), "{fault}");
        let names: Vec<String> = texts(&dir.path().join("a")).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["6.txt"]);
        assert!(digest_contents(&[Path::new("/no/such/file"), paths[0]], &|| false).is_err());
    }

    #[test]
    fn reading_files_stops_when_the_time_is_over() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let dir = tempfile::tempdir().unwrap();
        let (path, packed) = (dir.path().join("a.png"), dir.path().join("b.png"));
        let bytes = vec![7; 64 * BUFFER];
        fs::write(&path, &bytes).unwrap();
        fs::write(&packed, gzip(&bytes)).unwrap();
        for path in [path.as_path(), packed.as_path()] {
            let asked = AtomicUsize::new(0);
            let is_over = || asked.fetch_add(1, Ordering::Relaxed) >= 2;
            assert!(digest_content_until(path, &is_over).is_err());
            assert_eq!(asked.load(Ordering::Relaxed), 3, "two pieces were read");
        }
        let both = [path.as_path(), packed.as_path()];
        assert!(digest_contents(&both, &|| true).is_err() && stamps(&both, &|| true).is_err());
        assert!(pictures(dir.path(), &|| true).is_err());
        assert!(stamps(&both, &|| false).is_ok());
    }

    #[test]
    fn packed_and_unpacked_content_have_the_same_digest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut packed = gzip(b"first");
        packed.extend(gzip(b" second"));
        fs::write(&path, &packed).unwrap();
        assert_eq!(digest_content(&path).unwrap(), Digest::of(b"first second"));
        fs::write(&path, &packed[..packed.len() - 3]).unwrap();
        let error = digest_content(&path).unwrap_err();
        assert!(error.to_string().ends_with("(the gzip stream is damaged or cut; fetch the file again)"), "{error}");
    }

    #[test]
    fn errors_name_the_path_and_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing");
        let error = digest_content(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot read `{}` (check the path)", path.display()));
        let error = digest_content(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("(name a file, not a directory)"), "{error}");
    }

    #[test]
    fn a_named_pipe_is_private_and_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        fifo(&path).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_fifo());
        assert_eq!(metadata.permissions().mode() & 0o077, 0);
        assert!(fifo(&path).is_err());
        fsync_dir(dir.path()).unwrap();
        assert!(fsync_dir(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn a_file_is_written_whole_or_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        fs::create_dir(dir.path().join("folder")).unwrap();
        fs::write(dir.path().join("folder/inside"), "").unwrap();
        let error = write_whole(&dir.path().join("folder"), b"three").unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"), "{error}");
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "no draft is left");
    }

    #[test]
    fn renaming_does_not_replace_an_existing_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            fs::write(place(name), name).unwrap();
        }
        fs::create_dir(place("empty")).unwrap();
        fs::create_dir(place("folder")).unwrap();
        for (from, to) in [("a", "b"), ("folder", "empty")] {
            assert_eq!(rename_new(&place(from), &place(to)).unwrap_err().kind(), ErrorKind::AlreadyExists);
        }
        rename_new(&place("a"), &place("c")).unwrap();
        assert_eq!((fs::read(place("b")).unwrap(), fs::read(place("c")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(random_nonce().unwrap(), random_nonce().unwrap());
    }

    #[test]
    fn digests_of_pipes_and_devices_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), Path::new("/dev/zero"), dir.path()] {
            assert!(digest_content(path).is_err(), "{}", path.display());
        }
    }
}
