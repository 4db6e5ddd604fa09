//! The ledger file: tables, indexes, the chained log.
//!
//! A process that has redb's file open for writing excludes all others. So no process keeps it open: each call opens
//! it, does one short transaction and closes it. While another process has it open, a call waits for a limited time.
//! This room knows records and their encodings, but not who made them or what they mean.

mod brief;
mod bulk;
mod census;
mod chunks;
mod found;
mod index;
mod listing;
mod merge;
mod origin;
mod overruled;
mod pages;
mod query;
mod rank;
mod seal;
mod tables;
mod turn;
mod units;
mod verified;
mod verify;

use crate::record::{AttemptId, Digest, Inconsistency, disk_hint};
use crate::wire::{ChunkError, FORMAT, WireError};
use redb::{Database, DatabaseError, ReadOnlyDatabase, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use turn::Turn;

pub use brief::{Brief, BriefColumns, BriefRow, Briefs};
pub use bulk::{Importer, Piece};
pub use census::Tally;
pub use chunks::Chunks;
pub use index::label_of;
pub use listing::Recent;
pub use merge::Merged;
pub use overruled::Overruled;
pub use query::{Reader, ResolveError};
pub use rank::Ranked;
pub use seal::{Added, Writer};
pub use verified::Verified;
pub use verify::{Fault, Verification};

/// The ledger cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no ledger.
    #[error("there is no ledger at `{}`: nothing is recorded there yet (`ledger run` or `ledger import` begins one; --ledger names another place)", .0.display())]
    Missing(PathBuf),
    /// The file is empty, and no process is creating it.
    #[error("`{}` is empty: its content is lost, and ledger does not replace it (restore a copy of it; remove it if it never held anything)", .0.display())]
    Empty(PathBuf),
    /// Another process had the file open for too long.
    #[error("`{}` is busy: waited {seconds} s while other processes had it open (try again)", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// The time waited.
        seconds: u64,
    },
    /// The file was written by a newer ledger.
    #[error("`{}` has {what} {found}, but this ledger reads up to {known} (use a newer ledger)", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The part of it that is newer.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// The content is damaged.
    #[error("`{}` is damaged: {fault} (`ledger verify` lists the damage; keep the file, and restore a copy)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        fault: String,
    },
    /// A file operation failed.
    #[error("cannot {action} `{}`{}: {source}", path.display(), disk_hint(source.kind()))]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A database operation failed.
    #[error("the database refused: {0}")]
    Database(#[from] redb::Error),
    /// The stored data of an attempt does not decode.
    #[error("attempt {id} cannot be read: {source} (`ledger verify` names all that is damaged)")]
    Attempt {
        /// The attempt.
        id: AttemptId,
        /// The cause.
        source: ChunkError,
    },
    /// A record does not decode or encode.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A chunk does not decode or encode.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The attempt to be added is inconsistent.
    #[error("the attempt is refused: {0}")]
    Refused(#[from] Inconsistency),
}

macro_rules! from_redb {
    ($($error:ty),*) => {
        $(impl From<$error> for StoreError {
            fn from(error: $error) -> Self {
                Self::Database(error.into())
            }
        })*
    };
}
from_redb!(redb::TransactionError, redb::TableError, redb::StorageError, redb::CommitError);

/// A ledger on disk.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    patience: Duration,
    /// Whether calls fail at once instead of waiting.
    is_hurried: Arc<AtomicBool>,
    passed_over: PassedOver,
    #[cfg(test)]
    disk: Option<Arc<tests::Disk>>,
}

/// Attempts that are missing in answers because they do not decode.
type PassedOver = Arc<Mutex<BTreeSet<AttemptId>>>;

impl Store {
    /// The ledger in this directory, which need not exist yet.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            patience: Duration::from_secs(30),
            is_hurried: Arc::default(),
            passed_over: PassedOver::default(),
            #[cfg(test)]
            disk: None,
        }
    }

    /// From now on calls fail at once if another process has the ledger open: a command that has waited before does not
    /// wait again.
    pub fn stop_waiting(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    fn patience_left(&self) -> Duration {
        if self.is_hurried.load(Ordering::Relaxed) { Duration::ZERO } else { self.patience }
    }

    /// Whether a writer waits for the ledger. Long queries then close the file and continue later.
    pub fn is_wanted(&self) -> bool {
        Turn::is_taken(&self.dir)
    }

    /// The ledger's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The ledger's file.
    pub fn file(&self) -> PathBuf {
        self.dir.join("ledger.redb")
    }

    /// The directory with the journals of running attempts.
    pub fn journals(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Runs a query on one consistent state of the ledger.
    pub fn read<T>(&self, question: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let found = std::fs::metadata(self.file()).map_err(|error| self.unfound(error))?;
        if found.len() == 0 {
            self.check_begun()?;
            return Err(StoreError::Missing(self.dir.clone()));
        }
        self.guarded(|| {
            let handle = self.open_for_reading()?;
            let txn = handle.begin_read()?;
            self.check_format(&txn)?;
            question(&Reader::new(&txn, &self.passed_over)?)
        })
    }

    /// The error for a file whose metadata cannot be read: without permission it is unknown whether the file exists.
    fn unfound(&self, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreError::Missing(self.dir.clone()),
            _ => StoreError::Io { action: "read", path: self.file(), source },
        }
    }

    /// Returns and clears the list of attempts that queries have skipped because they do not decode.
    pub fn passed_over(&self) -> BTreeSet<AttemptId> {
        std::mem::take(&mut *self.passed_over.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`read`](Self::read), but `None` if there is no ledger yet.
    ///
    /// # Errors
    /// If there is a ledger and it cannot be read.
    pub fn if_there<T>(
        &self,
        question: impl FnOnce(&Reader) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match self.read(question) {
            Ok(answer) => Ok(Some(answer)),
            Err(StoreError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Recomputes every id, digest, index and the chain, and with `deep` every page's checksum. Calls `progress` with
    /// the number of attempts that are done and their total.
    ///
    /// # Errors
    /// If the ledger is too damaged to be checked.
    pub fn verify(&self, deep: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Verification, StoreError> {
        self.verify_by(verify::Check::new(None), deep, progress)
    }

    /// As [`verify`](Self::verify), but only what came after the log that was verified before. Verifies everything if
    /// that part has a fault or the earlier log has changed. Also returns whether the check was partial.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_since(
        &self,
        verified: &Verified,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Verification, bool), StoreError> {
        if self.read(|reader| reader.log_len())? >= verified.entries {
            let found = self.verify_by(verify::Check::new(Some(verified)), false, progress)?;
            if found.faults.is_empty() {
                return Ok((found, true));
            }
        }
        Ok((self.verify(false, progress)?, false))
    }

    /// Runs a check to its end. It closes the file in between if writers wait.
    fn verify_by(
        &self,
        mut check: verify::Check,
        deep: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Verification, StoreError> {
        loop {
            if let Some(found) = self.verify_on(&mut check, deep, progress)? {
                return Ok(found);
            }
        }
    }

    fn verify_on(
        &self,
        check: &mut verify::Check,
        deep: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Option<Verification>, StoreError> {
        let mut is_open = false;
        let found = self.read(|reader| {
            is_open = true;
            let is_wanted = Turn::is_taken_at_times(&self.dir);
            let Some(mut found) = check.go_on(reader, &is_wanted, progress)? else { return Ok(None) };
            if deep {
                // The file stays open for reading meanwhile, so that no process changes it.
                match catch_unwind(AssertUnwindSafe(|| pages::are_sound(&self.file()))) {
                    Ok(Ok(true)) => found.pages = true,
                    Ok(Ok(false)) => {
                        found.fault("pages", "a page does not match its checksum, or is not the one that is used")
                    }
                    Ok(Err(error)) => found.fault("pages", error.to_string()),
                    Err(_) => found.fault("pages", "they are inconsistent"),
                }
            }
            Ok(Some(found))
        });
        match found {
            // Adds which part of the file keeps it from being opened.
            Err(StoreError::Damaged { path, fault }) if !is_open => {
                Err(StoreError::Damaged { path, fault: format!("in its header or the list of its tables, {fault}") })
            }
            found => found,
        }
    }

    /// Makes one change, which is durable when this returns. Creates the ledger if there is none.
    pub fn write<T>(&self, change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.write_within(CACHE_BYTES, change)
    }

    /// As [`write`](Self::write), with a larger cache for a change of many attempts.
    pub fn write_many<T>(
        &self,
        change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.write_within(MANY_CACHE_BYTES, change)
    }

    fn write_within<T>(
        &self,
        cache_bytes: usize,
        change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.guarded(|| {
            let (txn, _database) = self.open_for_change(cache_bytes)?;
            let value = {
                let mut writer = Writer::new(&txn)?;
                let value = change(&mut writer)?;
                writer.finish()?;
                value
            };
            txn.commit()?;
            Ok(value)
        })
    }

    /// Waits for the writer's turn and opens the ledger for one change. The file is locked as long as the database is
    /// open.
    fn open_for_change(&self, cache_bytes: usize) -> Result<(WriteTransaction, Database), StoreError> {
        self.found()?;
        let turn = Turn::take(&self.dir, self.patience_left());
        let database = self.wait(|| self.create(builder().set_cache_size(cache_bytes), &self.file()))?;
        drop(turn);
        Ok((self.begin(&database)?, database))
    }

    /// Begins a transaction. Creates missing tables and rebuilds outdated indexes.
    fn begin(&self, database: &Database) -> Result<WriteTransaction, StoreError> {
        let mut txn = database.begin_write()?;
        txn.set_quick_repair(true);
        self.initialise(&txn)?;
        self.bring_up_to_date(&txn)?;
        Ok(txn)
    }

    fn create(&self, builder: &redb::Builder, path: &Path) -> Result<Database, DatabaseError> {
        #[cfg(test)]
        if let Some(disk) = &self.disk {
            return builder.create_with_backend(disk.open(path)?);
        }
        builder.create(path)
    }

    /// Runs work on the file. redb panics on some damaged files: a panic is returned as [`StoreError::Damaged`].
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let damaged = |fault| StoreError::Damaged { path: self.file(), fault };
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Err(StoreError::Database(redb::Error::Corrupted(fault)))) => Err(damaged(fault)),
            Ok(Err(StoreError::Database(error))) if is_of_content(&error) => Err(damaged(error.to_string())),
            Ok(Err(StoreError::Database(error))) if leads_outside(&error) => {
                Err(damaged("a page lies beyond its end".to_owned()))
            }
            Ok(Err(StoreError::Database(redb::Error::Io(source)))) => {
                Err(StoreError::Io { action: "read or write", path: self.file(), source })
            }
            Ok(result) => result,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                // Later lines of the panic message concern redb's internals.
                let why = text.and_then(|text| Some(format!(" ({})", text.lines().next()?))).unwrap_or_default();
                Err(damaged(format!("its pages are inconsistent{why}")))
            }
        }
    }

    fn open_for_reading(&self) -> Result<Handle, StoreError> {
        Turn::let_writers_go_first(&self.dir, self.patience_left());
        // After a crash the file needs a repair, which only a writer can make. It takes milliseconds, because every
        // commit stores the data for a quick repair.
        match self.wait(|| builder().open_read_only(self.file())) {
            Err(StoreError::Database(redb::Error::RepairAborted)) => match self.wait(|| builder().open(self.file())) {
                Err(StoreError::Io { source, .. }) if is_unwritable(&source) => self.open_in_memory(),
                opened => Ok(Handle::Writable(opened?)),
            },
            result => Ok(Handle::ReadOnly(result?)),
        }
    }

    /// Opens a file that needs a repair but cannot be written. It is repaired in memory only.
    fn open_in_memory(&self) -> Result<Handle, StoreError> {
        let open = || builder().create_with_backend(pages::Overlay::shared(&self.file())?);
        Ok(Handle::Writable(self.wait(open)?))
    }

    fn wait<D>(&self, open: impl Fn() -> Result<D, DatabaseError>) -> Result<D, StoreError> {
        let (started, patience) = (Instant::now(), self.patience_left());
        let mut pause = Duration::from_micros(500);
        loop {
            match open() {
                Ok(database) => return Ok(database),
                Err(DatabaseError::DatabaseAlreadyOpen) if started.elapsed() < patience => {
                    std::thread::sleep(pause + jitter(pause));
                    pause = (pause * 2).min(Duration::from_millis(4));
                }
                Err(DatabaseError::DatabaseAlreadyOpen) => {
                    return Err(StoreError::Busy { path: self.file(), seconds: self.patience.as_secs() });
                }
                Err(DatabaseError::UpgradeRequired(format)) => {
                    return Err(StoreError::Damaged {
                        path: self.file(),
                        fault: format!("its file format {format} is not known"),
                    });
                }
                Err(DatabaseError::Storage(redb::StorageError::Io(source))) => {
                    let path = self.file();
                    return Err(match source.kind() {
                        io::ErrorKind::InvalidData => {
                            StoreError::Damaged { path, fault: "it is not a ledger file".to_owned() }
                        }
                        io::ErrorKind::UnexpectedEof => {
                            StoreError::Damaged { path, fault: "it is cut short".to_owned() }
                        }
                        _ => StoreError::Io { action: "open", path, source },
                    });
                }
                Err(error) => return Err(StoreError::Database(error.into())),
            }
        }
    }

    fn check_format(&self, txn: &ReadTransaction) -> Result<(), StoreError> {
        let table = match txn.open_table(tables::META) {
            Ok(table) => table,
            // The creator was killed before its first change was durable.
            Err(redb::TableError::TableDoesNotExist(_)) if txn.list_tables()?.next().is_none() => {
                return Err(StoreError::Missing(self.dir.clone()));
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = table.get("format")?;
        self.accept(bytes.as_ref().map(|bytes| bytes.value()))?;
        self.accept_indexes(index_version(&table)?)
    }

    /// Refuses newer indexes, because their tables may have other names and types.
    fn accept_indexes(&self, found: u32) -> Result<(), StoreError> {
        if found > INDEXES {
            return Err(StoreError::Newer { path: self.file(), what: "indexes of kind", found, known: INDEXES });
        }
        Ok(())
    }

    fn accept(&self, format: Option<&[u8]>) -> Result<(), StoreError> {
        let found = format.and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        match found {
            Some(found) if found > FORMAT => {
                Err(StoreError::Newer { path: self.file(), what: "format", found, known: FORMAT })
            }
            Some(_) => Ok(()),
            None => Err(StoreError::Damaged { path: self.file(), fault: "it states no format".to_owned() }),
        }
    }

    /// Whether the indexes are outdated. The next change rebuilds them. False if there is no ledger.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn is_behind(&self) -> Result<bool, StoreError> {
        Ok(self.if_there(|reader| Ok(!reader.is_current()))?.unwrap_or(false))
    }

    /// Rebuilds outdated indexes from the records.
    fn bring_up_to_date(&self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let found = index_version(&txn.open_table(tables::META)?)?;
        self.accept_indexes(found)?;
        // This creates the tables, which must exist before they can be read.
        let writer = Writer::new(txn)?;
        if found < INDEXES {
            writer.reindex()?;
            txn.open_table(tables::META)?.insert("indexes", INDEXES.to_le_bytes().as_slice())?;
        }
        Ok(())
    }

    fn initialise(&self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let mut meta = txn.open_table(tables::META)?;
        if redb::ReadableTableMetadata::is_empty(&meta)? {
            meta.insert("format", FORMAT.to_le_bytes().as_slice())?;
            meta.insert("log_head", Digest([0; 32]).0.as_slice())?;
        }
        let format = redb::ReadableTable::get(&meta, "format")?.map(|bytes| bytes.value().to_vec());
        self.accept(format.as_deref())
    }
}

/// The version of the indexes that this program writes. They are derived from the records, so a ledger's format does
/// not depend on it.
///
/// - 1: values, ranking and groups.
/// - 2: these leave out tainted attempts; `by_model`, `unmeasured` and `totals` count what is left out.
/// - 3: `briefs` and `shapes` serve conditions; `measured` and `places`, whose keys are bytes, replace `values` and
///   `ranking`.
/// - 4: a mean of equal values is that value; a seed above 2^63 - 1 is text; `units` shows metrics with several units.
/// - 5: a metric is measured in any unit of its kind, and two shares of time are measured metrics.
/// - 6: means are over independent units (seeds, machines); the rows of attempts name them.
/// - 7: a disturbed attempt has no value of a metric that is declared as measured, whatever its unit.
/// - 8: names are stored by model (`names` replaces `shapes`), and small integers take fewer bytes.
/// - 9: the rows of attempts have their start.
const INDEXES: u32 = 9;

fn index_version(meta: &impl redb::ReadableTable<&'static str, &'static [u8]>) -> Result<u32, StoreError> {
    let bytes = meta.get("indexes")?;
    Ok(bytes.and_then(|bytes| bytes.value().try_into().ok()).map_or(1, u32::from_le_bytes))
}

/// Whether the file's tables differ from those of every ledger.
fn is_of_content(error: &redb::Error) -> bool {
    use redb::Error::{
        TableDoesNotExist, TableIsMultimap, TableIsNotMultimap, TableTypeMismatch, TypeDefinitionChanged,
    };
    matches!(
        error,
        TableDoesNotExist(_)
            | TableIsMultimap(_)
            | TableIsNotMultimap(_)
            | TableTypeMismatch { .. }
            | TypeDefinitionChanged { .. }
    )
}

/// Whether a page lies beyond the end of the file, which is damage and not a failing disk.
fn leads_outside(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof)
}

/// Whether the medium or the file's permissions prevent writing.
fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// An open file.
enum Handle {
    ReadOnly(ReadOnlyDatabase),
    Writable(Database),
}

impl Handle {
    fn begin_read(&self) -> Result<ReadTransaction, redb::TransactionError> {
        match self {
            Self::ReadOnly(database) => database.begin_read(),
            Self::Writable(database) => database.begin_read(),
        }
    }
}

/// The size of redb's cache during a query. It is small because most queries read a table once.
const READ_CACHE_BYTES: usize = 8 << 20;

/// The size of the cache during a change.
const CACHE_BYTES: usize = 64 << 20;

/// The size of the cache during a change of many attempts. Their index keys have no order, so they touch most pages.
const MANY_CACHE_BYTES: usize = 160 << 20;

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(READ_CACHE_BYTES);
    builder
}

/// A random part of a pause, so that processes that started together do not retry together.
fn jitter(pause: Duration) -> Duration {
    let [byte, ..] = found::random().to_le_bytes();
    pause.mul_f64(f64::from(byte) / 256.0)
}

#[cfg(test)]
mod tests;
