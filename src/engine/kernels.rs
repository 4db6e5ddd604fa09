//! A cache of the kernels that were compiled and tuned for a GPU. It lies beside the ledger and can be moved between
//! machines.
//!
//! Tuning takes minutes on a new GPU, and its choices decide the speed of a run. The folder's name is a hash of
//! everything that kernels depend on: product, driver, CUDA versions and trainer. A folder of other versions is never
//! used. Only the trainer knows the format of the files; they are moved unchanged.

use super::Stop;
use crate::host::files;
use crate::record::{Digest, Part, Parts, Run, Table, Value};
use crate::wire::{Kernels, KernelsError, decode_kernels, encode_kernels, from_json, to_json_text};
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

mod pin;

use pin::Pinning;
pub use pin::UnpinnedError;

const FOLDER: &str = "cache/kernels";
const KEY_FILE: &str = "key.json";
const LOCK_FILE: &str = ".lock";
const CONFIG_FILE: &str = "cubecl.toml";
/// The working directory of workers whose kernels must still be tuned.
const TUNING: &str = "tuning";
/// The working directory of workers with tuned kernels.
const READY: &str = "ready";
/// The polling interval for the lock.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Kernels cannot be stored, found or moved.
#[derive(Debug, thiserror::Error)]
pub enum KernelCacheError {
    /// A file operation failed.
    #[error("cannot {action} `{path}`", path = .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A run uses the kernels.
    #[error("`{path}` is in use by a run (wait until it has ended)", path = .0.display())]
    Busy(PathBuf),
    /// No kernels have this key.
    #[error("no kernels have the key `{0}` (`ledger cache ls` lists the keys)")]
    Unknown(String),
    /// Several keys have this prefix.
    #[error("`{0}` fits several keys: {list} (give more digits)", list = .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// Kernels with this key exist already.
    #[error("kernels of the key {0} exist already (--force replaces them)")]
    There(String),
    /// The file is not an export.
    #[error(transparent)]
    Damaged(#[from] KernelsError),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KernelCacheError {
    let path = path.to_owned();
    move |source| KernelCacheError::Io { action, path, source }
}

/// The kernels for one GPU product, driver, CUDA and trainer.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCache {
    /// The prefix of a digest of `environment`.
    pub key: String,
    /// Everything that the kernels depend on.
    pub environment: Table,
    /// The folder.
    pub dir: PathBuf,
}

/// Kernels that a run uses. They cannot be exported or replaced meanwhile.
#[derive(Debug)]
pub(super) struct InUse {
    /// The kernels.
    pub(super) cache: KernelCache,
    /// Whether an earlier run with the same shapes has tuned them.
    pub(super) tuned: bool,
    /// The worker's working directory.
    pub(super) workplace: PathBuf,
    /// The facts about the kernels before the run.
    pub(super) before: Table,
    /// The pin of a deterministic run.
    pinning: Option<Pinning>,
    mark: PathBuf,
    _lock: Lock,
}

/// A lock that ends when this is dropped. It is unlocked explicitly, because a forked process may have the file open
/// too until its `exec`.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// The beginning of the warning that kernels were compiled during the measurement.
const COMPILED: &str = "kernels were compiled or tuned";

/// Whether a warning reports that kernels were compiled during the measurement.
pub fn is_compiled_late(warning: &str) -> bool {
    warning.starts_with(COMPILED)
}

impl InUse {
    /// A warning if kernels were compiled after the warm-up, which shows in the facts after the run. Some kernels are
    /// first needed by a later step.
    pub(super) fn warning(&self, after: &Table) -> Option<String> {
        let grew = self.before.get("kernel_cache.bytes_before") != after.get("kernel_cache.bytes_after");
        let text = format!(
            "{COMPILED} after the warm-up of this attempt: its times and energies may include that (`--repeat 1` makes another attempt without it)"
        );
        (!self.tuned || grew).then_some(text)
    }

    /// Stores that the shapes of this run are tuned, and the choices if the run is deterministic.
    pub(super) fn remember(&self) -> Result<(), KernelCacheError> {
        let pin = self.pinning.as_ref().map(|pinning| pinning.pin.as_str());
        if self.tuned && pin.is_none() {
            return Ok(());
        }
        if let Some(folder) = self.mark.parent() {
            files::private_folder(folder).map_err(io_error("make the folder", folder))?;
        }
        files::write_whole(&self.mark, pin.unwrap_or_default().as_bytes())
            .map_err(|error| io_error("write", &self.mark)(io::Error::other(error)))
    }

    /// Whether the run is deterministic, with pinned choices.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinning.is_some()
    }

    /// The fact about the pinned choices.
    pub(super) fn pinned(&self) -> Table {
        self.pinning.iter().map(|pinning| (pin::FACT.to_owned(), pinning.pin.as_str().into())).collect()
    }

    /// An error if a deterministic run has chosen kernels by their times instead of using the pinned choices.
    pub(super) fn chosen(&self) -> Option<String> {
        self.pinning.as_ref()?.chosen()
    }
}

impl KernelCache {
    /// The kernels for a run of the built-in trainer on GPUs.
    pub(super) fn of(ledger: &Path, run: &Run) -> Self {
        let names: BTreeSet<String> = match run.parts.value(Part::Device) {
            Value::List(names) => names.iter().map(ToString::to_string).collect(),
            other => [other.to_string()].into(),
        };
        let cuda = match run.parts.value(Part::Cuda) {
            // The number of GPUs does not change a kernel.
            Value::Table(mut cuda) => {
                cuda.remove("nccl");
                cuda.into()
            }
            other => other,
        };
        let mut environment: Table = [
            ("device".to_owned(), names.into_iter().collect::<Vec<_>>().into()),
            ("driver".to_owned(), run.parts.value(Part::Driver)),
            ("cuda".to_owned(), cuda),
            ("program".to_owned(), run.parts.value(Part::Program)),
        ]
        .into();
        // An image has its own compiler.
        let container = run.parts.value(Part::Container);
        if container.as_str() != Some(Parts::HOST) {
            environment.insert("container".to_owned(), container);
        }
        Self::new(ledger, environment)
    }

    fn new(ledger: &Path, environment: Table) -> Self {
        let digest = Value::Table(environment.clone()).digest();
        let key = Digest::of_pieces("ledger kernels v1", &[&digest.0]).prefix(16);
        Self { dir: ledger.join(FOLDER).join(&key), key, environment }
    }

    /// Prepares the folder for the worker of a run.
    ///
    /// Tuning compiles hundreds of kernels, of which a few win. So kernels are stored only after tuning, from the
    /// second run with the same shapes on. Otherwise they would take half a gigabyte for a model of three layers.
    ///
    /// A deterministic run without choices waits until no other run uses the kernels. `None` if it is asked to stop
    /// meanwhile.
    pub(super) fn open(self, run: &Run, stop: &dyn Stop) -> Result<Option<InUse>, KernelCacheError> {
        let mark = self.mark(run);
        let is_pinned = pin::is_deterministic(run);
        let lock = loop {
            files::private_folder(&self.dir).map_err(io_error("make the folder", &self.dir))?;
            let lock = Lock(self.lock_file()?);
            let alone = is_pinned && pin::read(&mark).is_none();
            if !wait(&lock.0, alone, stop).map_err(io_error("lock", &self.dir))? {
                return Ok(None);
            }
            // An earlier exclusive user may have made the choices, or replaced the folder.
            if self.is_locked_by(&lock)? && (!alone || pin::read(&mark).is_none()) {
                break lock;
            }
        };
        if !self.dir.join(KEY_FILE).exists() {
            self.write(KEY_FILE, &to_json_text(&self.environment.clone().into()))?;
        }
        let tuned = mark.exists();
        // Burn's kernels are those of cubecl, which reads this file in the working directory.
        let quoted = |path: &Path| path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let mut config = format!(
            "[environment]\npath = {{ directory = \"{}\" }}\n\n[compilation]\ncache = {tuned}\n",
            quoted(&self.dir)
        );
        let (folder, pinning) = if is_pinned {
            let pinning = Pinning::new(&self.dir, &mark)?;
            config += &format!("\n[autotune.recorder]\nfile = \"{}\"\n", quoted(&pinning.record));
            (pinning.folder().to_owned(), Some(pinning))
        } else {
            (if tuned { READY } else { TUNING }.to_owned(), None)
        };
        let workplace = self.dir.join(&folder);
        files::private_folder(&workplace).map_err(io_error("make the folder", &workplace))?;
        self.write(&format!("{folder}/{CONFIG_FILE}"), &config)?;
        let before = self.facts("before");
        Ok(Some(InUse { cache: self, tuned, workplace, before, pinning, mark, _lock: lock }))
    }

    /// The file that exists once the kernels for a run's shapes are tuned. It has the pin of deterministic runs.
    fn mark(&self, run: &Run) -> PathBuf {
        self.dir.join("tuned").join(shapes(run).prefix(16))
    }

    fn lock_file(&self) -> Result<File, KernelCacheError> {
        let path = self.dir.join(LOCK_FILE);
        File::options().create(true).append(true).open(&path).map_err(io_error("open", &path))
    }

    /// Whether a lock is that of the current folder. The lock file is replaced or removed with its folder.
    fn is_locked_by(&self, lock: &Lock) -> Result<bool, KernelCacheError> {
        let path = self.dir.join(LOCK_FILE);
        let number = |file: fs::Metadata| (file.dev(), file.ino());
        let held = lock.0.metadata().map(number).map_err(io_error("look at", &path))?;
        match fs::metadata(&path).map(number) {
            Ok(found) => Ok(found == held),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error("look at", &path)(error)),
        }
    }

    /// Writes a file atomically, unless it has this content already: workers of other threads and processes may be
    /// reading.
    fn write(&self, name: &str, text: &str) -> Result<(), KernelCacheError> {
        static DRAFTS: AtomicU64 = AtomicU64::new(0);
        let path = self.dir.join(name);
        if fs::read_to_string(&path).is_ok_and(|found| found == text) {
            return Ok(());
        }
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = self.dir.join(format!(".draft.{}.{number}", std::process::id()));
        files::write_private(&draft, text.as_bytes())
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(io_error("write", &path))
    }

    /// The folder of the driver's cache, with kernels compiled for this GPU.
    pub(super) fn driver_cache(&self) -> PathBuf {
        self.dir.join("driver")
    }

    /// The files with kernels, by relative path.
    fn files(&self) -> Result<Vec<(String, PathBuf)>, KernelCacheError> {
        let mut found = Vec::new();
        let mut folders = vec![(String::new(), self.dir.clone())];
        while let Some((prefix, folder)) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(io_error("list", &folder))? {
                let entry = entry.map_err(io_error("list", &folder))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                // `-shm` is memory shared by the users of the database.
                if name.starts_with('.') || name == KEY_FILE || name == CONFIG_FILE || name.ends_with("-shm") {
                    continue;
                }
                let whole = format!("{prefix}{name}");
                if entry.path().is_dir() {
                    folders.push((format!("{whole}/"), entry.path()));
                } else {
                    found.push((whole, entry.path()));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The size of all kernels in bytes, and the hash of their files. `None` if there are no kernels.
    pub fn state(&self) -> Result<Option<(u64, Digest)>, KernelCacheError> {
        let mut bytes = 0;
        let mut pieces = Vec::new();
        for (name, path) in self.files()? {
            let content = fs::read(&path).map_err(io_error("read", &path))?;
            bytes += content.len() as u64;
            pieces.push(name.into_bytes());
            pieces.push(Digest::of(&content).0.to_vec());
        }
        let digest =
            Digest::of_pieces("ledger kernels files v1", &pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Ok((bytes > 0).then_some((bytes, digest)))
    }

    /// The facts about the kernels before or after a run.
    pub(super) fn facts(&self, moment: &str) -> Table {
        let mut facts: Table = [("kernel_cache.key".to_owned(), self.key.as_str().into())].into();
        let value = match self.state() {
            Ok(Some((bytes, digest))) => {
                facts.insert(format!("kernel_cache.bytes_{moment}"), bytes.into());
                digest.to_string()
            }
            Ok(None) => "empty".to_owned(),
            Err(error) => error.to_string(),
        };
        facts.insert(format!("kernel_cache.digest_{moment}"), value.into());
        facts
    }

    /// All kernels beside a ledger, sorted by key.
    pub fn list(ledger: &Path) -> Result<Vec<Self>, KernelCacheError> {
        let folder = ledger.join(FOLDER);
        let mut found = Vec::new();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries.map_err(io_error("list", &folder))?,
        };
        for entry in entries.flatten() {
            let text = fs::read_to_string(entry.path().join(KEY_FILE)).unwrap_or_default();
            if let Ok(Value::Table(environment)) = from_json(&text) {
                let cache = Self::new(ledger, environment);
                // Ignores folders whose name does not match their key file.
                found.extend((cache.dir == entry.path()).then_some(cache));
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// The kernels whose key has this prefix.
    pub fn find(ledger: &Path, prefix: &str) -> Result<Self, KernelCacheError> {
        let mut found: Vec<Self> =
            Self::list(ledger)?.into_iter().filter(|cache| cache.key.starts_with(prefix)).collect();
        if found.len() > 1 {
            let keys = found.into_iter().map(|cache| cache.key).collect();
            return Err(KernelCacheError::Ambiguous(prefix.to_owned(), keys));
        }
        found.pop().ok_or_else(|| KernelCacheError::Unknown(prefix.to_owned()))
    }

    fn lock_alone(&self) -> Result<Lock, KernelCacheError> {
        loop {
            let lock = Lock(self.lock_file()?);
            lock.0.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => KernelCacheError::Busy(self.dir.clone()),
                TryLockError::Error(error) => io_error("lock", &self.dir)(error),
            })?;
            if self.is_locked_by(&lock)? {
                return Ok(lock);
            }
        }
    }

    /// A path beside the folder that no other process uses.
    fn beside(&self, role: &str) -> PathBuf {
        self.dir.with_extension(format!("{role}.{}", std::process::id()))
    }

    /// Exports the kernels as one portable file.
    pub fn export(&self) -> Result<Vec<u8>, KernelCacheError> {
        let _alone = self.lock_alone()?;
        let read = |(name, path): (String, PathBuf)| Ok((name, fs::read(&path).map_err(io_error("read", &path))?));
        let files = self.files()?.into_iter().map(read).collect::<Result<_, KernelCacheError>>()?;
        Ok(encode_kernels(&Kernels { environment: self.environment.clone(), files })?)
    }

    /// Imports an export of another ledger. Replaces existing kernels with the same key only with `force`.
    pub fn import(ledger: &Path, bytes: &[u8], force: bool) -> Result<Self, KernelCacheError> {
        let kernels = decode_kernels(bytes)?;
        // Names with a meaning of their own here.
        let is_taken = |name: &str| [TUNING, READY, "tuned", KEY_FILE, CONFIG_FILE].contains(&name);
        if let Some((name, _)) = kernels.files.iter().find(|(name, _)| is_taken(name)) {
            return Err(KernelsError::Name(name.clone()).into());
        }
        let cache = Self::new(ledger, kernels.environment);
        files::private_folder(&cache.dir).map_err(io_error("make the folder", &cache.dir))?;
        let _alone = cache.lock_alone()?;
        if cache.state()?.is_some() && !force {
            return Err(KernelCacheError::There(cache.key));
        }
        // The new kernels are written and synced beside the folder, then swapped in. The old ones come back if that
        // fails.
        let (draft, old) = (Self { dir: cache.beside("import"), ..cache.clone() }, cache.beside("old"));
        let placed = draft.fill(kernels.files).and_then(|()| {
            fs::rename(&cache.dir, &old).map_err(io_error("replace", &cache.dir))?;
            fs::rename(&draft.dir, &cache.dir).map_err(|error| {
                // If this fails too, both folders still exist beside it.
                let _ = fs::rename(&old, &cache.dir);
                io_error("replace", &cache.dir)(error)
            })
        });
        // Removes the folder that is no longer needed.
        let _ = fs::remove_dir_all(if placed.is_ok() { &old } else { &draft.dir });
        placed.map(|()| cache)
    }

    fn fill(&self, files: Vec<(String, Vec<u8>)>) -> Result<(), KernelCacheError> {
        let key = to_json_text(&self.environment.clone().into()).into_bytes();
        for (name, content) in files.into_iter().chain([(KEY_FILE.to_owned(), key)]) {
            let path = self.dir.join(&name);
            let folder = path.parent().unwrap_or(&self.dir);
            files::private_folder(folder).map_err(io_error("make the folder", folder))?;
            let written = files::write_private(&path, &content).and_then(|()| File::open(&path)?.sync_all());
            written.map_err(io_error("write", &path))?;
        }
        files::fsync_dir(&self.dir).map_err(|error| io_error("sync", &self.dir)(io::Error::other(error)))
    }

    /// Removes the kernels.
    pub fn remove(&self) -> Result<(), KernelCacheError> {
        let _alone = self.lock_alone()?;
        // Renamed first: a process that comes while the files are removed creates a new folder and lock.
        let old = self.beside("old");
        fs::rename(&self.dir, &old).map_err(io_error("remove", &self.dir))?;
        fs::remove_dir_all(&old).map_err(io_error("remove", &old))
    }
}

/// Waits for an exclusive or a shared lock of a file. Returns false if it is asked to stop meanwhile.
fn wait(lock: &File, alone: bool, stop: &dyn Stop) -> io::Result<bool> {
    loop {
        match if alone { lock.try_lock() } else { lock.try_lock_shared() } {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if stop.asked() > 0 => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// The hash of the fields that decide the shapes of a run's kernels.
fn shapes(run: &Run) -> Digest {
    let decides = |name: &str| {
        [
            "model.",
            "data.",
            "training.batch_size",
            "training.clip_norm",
            "training.micro_batches",
            "training.optimizer",
            "training.precision",
            "inference.",
            "hardware.",
        ]
        .iter()
        .any(|known| name.starts_with(known))
    };
    let fields =
        run.config().iter().filter(|(name, _)| decides(name)).map(|(name, value)| (name.clone(), value.clone()));
    Value::Table(fields.collect()).digest()
}

#[cfg(test)]
mod tests;
