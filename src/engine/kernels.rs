//! The kernels that were compiled and tuned for a GPU, kept beside the ledger and moved between machines.
//!
//! Tuning takes minutes on a GPU that has never been seen, and its choices decide how fast a run is. So they live in a folder whose name
//! follows from all that they depend on: product, driver, CUDA's versions and the trainer. A folder of other versions is never looked
//! at. What is in the files is the trainer's business; they are moved as they are.

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
/// Where workers are started whose kernels still have to be tuned, and where the others are.
const TUNING: &str = "tuning";
const READY: &str = "ready";
/// How often it is looked whether others have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Kernels that cannot be kept, found or moved.
#[derive(Debug, thiserror::Error)]
pub enum KernelCacheError {
    /// The file system refused.
    #[error("cannot {action} `{path}`", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A run uses them.
    #[error("`{path}` is in use by a run (wait until it has ended)", path = .0.display())]
    Busy(PathBuf),
    /// There are none of that key.
    #[error("no kernels have the key `{0}` (`ledger cache ls` lists the keys)")]
    Unknown(String),
    /// Several keys begin so.
    #[error("`{0}` fits several keys: {list} (give more digits)", list = .1.join(", "))]
    Ambiguous(String, Vec<String>),
    /// There are some of that key already.
    #[error("kernels of the key {0} exist already (--force replaces them)")]
    There(String),
    /// The file is no export.
    #[error(transparent)]
    Damaged(#[from] KernelsError),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KernelCacheError {
    let path = path.to_owned();
    move |source| KernelCacheError::Io { action, path, source }
}

/// The kernels of one kind of GPU, driver, CUDA and trainer.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCache {
    /// Names them: the digest of `environment`.
    pub key: String,
    /// All that they depend on.
    pub environment: Table,
    /// Where they lie.
    pub dir: PathBuf,
}

/// Kernels that a run uses; they are neither exported nor replaced meanwhile.
#[derive(Debug)]
pub(super) struct InUse {
    /// What they are.
    pub(super) cache: KernelCache,
    /// Whether an earlier run of the same shapes has tuned them.
    pub(super) tuned: bool,
    /// Where the worker is started.
    pub(super) workplace: PathBuf,
    /// What is recorded of them before the run.
    pub(super) before: Table,
    /// Of a run that takes no choice anew.
    pinning: Option<Pinning>,
    mark: PathBuf,
    _lock: Lock,
}

/// A lock that ends with this value. Closing the file would not do: a process that was forked meanwhile, for another worker, has it
/// open too until its own program begins.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// How the warning of such an attempt begins.
const COMPILED: &str = "kernels were compiled or tuned";

/// Whether a warning of an attempt says that kernels were compiled while it was measured.
pub fn is_compiled_late(warning: &str) -> bool {
    warning.starts_with(COMPILED)
}

impl InUse {
    /// What to warn of, given what is recorded of the kernels after the run: some are compiled only when a later step needs them first.
    pub(super) fn warning(&self, after: &Table) -> Option<String> {
        let grew = self.before.get("kernel_cache.bytes_before") != after.get("kernel_cache.bytes_after");
        let text = format!(
            "{COMPILED} after the warm-up of this attempt: its times and energies may include that (`--repeat 1` makes another attempt without it)"
        );
        (!self.tuned || grew).then_some(text)
    }

    /// Remembers that the shapes of this run are tuned, and by which choices if these are pinned.
    pub(super) fn remember(&self) -> Result<(), KernelCacheError> {
        let pin = self.pinning.as_ref().map(Pinning::pin);
        if self.tuned && pin.is_none() {
            return Ok(());
        }
        if let Some(folder) = self.mark.parent() {
            files::private_folder(folder).map_err(io_error("make the folder", folder))?;
        }
        files::write_whole(&self.mark, pin.unwrap_or_default().as_bytes())
            .map_err(|error| io_error("write", &self.mark)(io::Error::other(error)))
    }

    /// Whether the run takes no choice anew.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinning.is_some()
    }

    /// What is recorded of the choices that the run was pinned to.
    pub(super) fn pinned(&self) -> Table {
        self.pinning.iter().map(|pinning| (pin::FACT.to_owned(), pinning.pin().into())).collect()
    }

    /// Why a deterministic run is none after all: it has chosen kernels by their times, when it should have taken those chosen before.
    pub(super) fn chosen(&self) -> Option<String> {
        self.pinning.as_ref()?.chosen()
    }
}

impl KernelCache {
    /// The kernels that a run on GPUs of the built-in trainer uses.
    pub(super) fn of(ledger: &Path, run: &Run) -> Self {
        let names: BTreeSet<String> = match run.parts.value(Part::Device) {
            Value::List(names) => names.iter().map(ToString::to_string).collect(),
            other => [other.to_string()].into(),
        };
        let cuda = match run.parts.value(Part::Cuda) {
            // How many GPUs take part does not change a kernel.
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
        // An image has a compiler of its own.
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

    /// Makes the folder ready for the worker of a run.
    ///
    /// Tuning compiles hundreds of kernels of which a few win. They are kept only once it is over, from the second run of the same
    /// shapes on: half a gigabyte otherwise, for a model of three layers.
    ///
    /// A deterministic run whose choices are not made yet waits until it is alone; nothing where it is to stop meanwhile.
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
            // Whoever was alone before may have made the choices, or put other kernels here.
            if self.is_locked_by(&lock)? && (!alone || pin::read(&mark).is_none()) {
                break lock;
            }
        };
        if !self.dir.join(KEY_FILE).exists() {
            self.write(KEY_FILE, &to_json_text(&self.environment.clone().into()))?;
        }
        let tuned = mark.exists();
        // Burn's kernels are cubecl's, which looks for this file in the folder in which a program is started.
        let quoted = |path: &Path| path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let mut config = format!(
            "[environment]\npath = {{ directory = \"{}\" }}\n\n[compilation]\ncache = {tuned}\n",
            quoted(&self.dir)
        );
        let (folder, pinning) = if is_pinned {
            let pinning = Pinning::new(&self.dir, &mark)?;
            config += &format!("\n[autotune.recorder]\nfile = \"{}\"\n", quoted(pinning.record()));
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

    /// The file that is there once the kernels of a run's shapes are tuned, and holds the pin of deterministic runs.
    fn mark(&self, run: &Run) -> PathBuf {
        self.dir.join("tuned").join(shapes(run).prefix(16))
    }

    fn lock_file(&self) -> Result<File, KernelCacheError> {
        let path = self.dir.join(LOCK_FILE);
        File::options().create(true).append(true).open(&path).map_err(io_error("open", &path))
    }

    /// Whether a lock is the one that everybody finds here: the folder goes with its lock when it is replaced or removed.
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

    /// Whole or not at all, and not where it is there already: workers of other threads and processes may be reading.
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

    /// Where the driver keeps what it made of kernels for the card at hand.
    pub(super) fn driver_cache(&self) -> PathBuf {
        self.dir.join("driver")
    }

    /// The files that hold kernels, by their names from the folder on.
    fn files(&self) -> Result<Vec<(String, PathBuf)>, KernelCacheError> {
        let mut found = Vec::new();
        let mut folders = vec![(String::new(), self.dir.clone())];
        while let Some((prefix, folder)) = folders.pop() {
            for entry in fs::read_dir(&folder).map_err(io_error("list", &folder))? {
                let entry = entry.map_err(io_error("list", &folder))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                // `-shm` is memory that the database's users share, and means nothing to others.
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

    /// How many bytes of kernels there are, and the hash of all their files; none where there are none.
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

    /// What is recorded of the kernels before a run or after it.
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

    /// Every kind of kernels that a ledger keeps, by key.
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
                // A folder whose name does not follow from its key file is nobody's.
                found.extend((cache.dir == entry.path()).then_some(cache));
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// The kernels whose key begins so.
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

    /// A place beside that of the kernels, which no other process uses.
    fn beside(&self, role: &str) -> PathBuf {
        self.dir.with_extension(format!("{role}.{}", std::process::id()))
    }

    /// All of them as one portable file.
    pub fn export(&self) -> Result<Vec<u8>, KernelCacheError> {
        let _alone = self.lock_alone()?;
        let read = |(name, path): (String, PathBuf)| Ok((name, fs::read(&path).map_err(io_error("read", &path))?));
        let files = self.files()?.into_iter().map(read).collect::<Result<_, KernelCacheError>>()?;
        Ok(encode_kernels(&Kernels { environment: self.environment.clone(), files })?)
    }

    /// Takes in what another ledger exported. Where kernels of that key are there already, they stay unless `force`.
    pub fn import(ledger: &Path, bytes: &[u8], force: bool) -> Result<Self, KernelCacheError> {
        let kernels = decode_kernels(bytes)?;
        // Folders of ours.
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
        // Beside their place until they are whole and on the disk; the old ones go last, and come back where the new ones cannot be placed.
        let (draft, old) = (Self { dir: cache.beside("import"), ..cache.clone() }, cache.beside("old"));
        let placed = draft.fill(kernels.files).and_then(|()| {
            fs::rename(&cache.dir, &old).map_err(io_error("replace", &cache.dir))?;
            fs::rename(&draft.dir, &cache.dir).map_err(|error| {
                // If this fails too, both still lie beside each other.
                let _ = fs::rename(&old, &cache.dir);
                io_error("replace", &cache.dir)(error)
            })
        });
        // What is left of either is of no use any more.
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

    /// Removes them.
    pub fn remove(&self) -> Result<(), KernelCacheError> {
        let _alone = self.lock_alone()?;
        // At once out of the way: who comes while the files go makes a folder, and a lock, anew.
        let old = self.beside("old");
        fs::rename(&self.dir, &old).map_err(io_error("remove", &self.dir))?;
        fs::remove_dir_all(&old).map_err(io_error("remove", &old))
    }
}

/// Locks a file for this process alone or beside others, once these allow it; false where it is to stop before.
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

/// All of a run that decides which shapes its kernels have.
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
