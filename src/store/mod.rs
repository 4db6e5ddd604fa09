//! The ledger file: tables, indexes, the chained log.
//!
//! redb lets one process open the file for writing and keeps every other out meanwhile. So nobody holds it open: each call opens
//! it, does one short transaction and closes it, and waits its turn, within bounds, while another process has it. This room
//! knows records and their encodings, and nothing of who made them or what they mean.

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
    /// Its file holds nothing, and nobody is making it.
    #[error("`{}` is empty: its content is lost, and ledger does not replace it (restore a copy of it; remove it if it never held anything)", .0.display())]
    Empty(PathBuf),
    /// Another process kept it open for too long.
    #[error("`{}` is busy: waited {seconds} s while other processes had it open (try again)", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// How long we waited.
        seconds: u64,
    },
    /// It was written by a newer ledger.
    #[error("`{}` has {what} {found}, but this ledger reads up to {known} (use a newer ledger)", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What of it is newer.
        what: &'static str,
        /// Which one it has.
        found: u32,
        /// The newest one that this program reads.
        known: u32,
    },
    /// Its content is damaged.
    #[error("`{}` is damaged: {fault} (`ledger verify` lists the damage; keep the file, and restore a copy)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        fault: String,
    },
    /// The file system refused.
    #[error("cannot {action} `{}`{}: {source}", path.display(), disk_hint(source.kind()))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The database refused.
    #[error("the database refused: {0}")]
    Database(#[from] redb::Error),
    /// What is kept of an attempt does not decode.
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
    /// What was to be added is not consistent in itself.
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

/// A ledger's place on disk.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    patience: Duration,
    /// Whether the time to wait is over already.
    is_hurried: Arc<AtomicBool>,
    passed_over: PassedOver,
    #[cfg(test)]
    disk: Option<Arc<tests::Disk>>,
}

/// Attempts that an answer does not have because they do not decode.
type PassedOver = Arc<Mutex<BTreeSet<AttemptId>>>;

impl Store {
    /// The ledger in that directory, which need not exist yet.
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

    /// Changes how long a call waits for its turn.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// From now on a call that finds the ledger open in another process fails without waiting: a command that has waited before does not wait again.
    pub fn stop_waiting(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    fn patience_left(&self) -> Duration {
        if self.is_hurried.load(Ordering::Relaxed) { Duration::ZERO } else { self.patience }
    }

    /// Whether a writer waits for the ledger: a long question closes the file and asks on later.
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

    /// Where the journals of living attempts lie.
    pub fn journals(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Answers a question from one consistent state of the ledger.
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

    /// Why the ledger's file cannot be looked at: where it may not be, nobody knows whether it is there.
    fn unfound(&self, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => StoreError::Missing(self.dir.clone()),
            _ => StoreError::Io { action: "read", path: self.file(), source },
        }
    }

    /// The attempts that answers have passed over since this was asked last, because they do not decode.
    pub fn passed_over(&self) -> BTreeSet<AttemptId> {
        std::mem::take(&mut *self.passed_over.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers a question, or says that there is no ledger yet.
    ///
    /// # Errors
    /// If there is one, and it cannot be read.
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

    /// Recomputes every id, digest, index and the chain; `deep` also every page's checksum. `progress` is told how many of how many attempts are done.
    ///
    /// # Errors
    /// If the ledger cannot be read so far that anything could be checked.
    pub fn verify(&self, deep: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Verification, StoreError> {
        self.verify_by(verify::Check::new(None), deep, progress)
    }

    /// As [`verify`](Self::verify), of what came after the log that was verified before. If anything is wrong with that, or the log is not the one that it was, everything is
    /// verified.
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

    /// Goes through a check, which lets writers go first.
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
                // The file stays open for reading meanwhile, so that nobody changes it.
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
            // Whose bytes they are that keep it from being opened.
            Err(StoreError::Damaged { path, fault }) if !is_open => {
                Err(StoreError::Damaged { path, fault: format!("in its header or the list of its tables, {fault}") })
            }
            found => found,
        }
    }

    /// Makes one change, durable when this returns. The ledger is created if there is none.
    pub fn write<T>(&self, change: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.write_within(CACHE_BYTES, change)
    }

    /// As [`write`](Self::write), of a change of many attempts: more of the file is kept in memory meanwhile.
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

    /// Opens the ledger for one change, when this writer's turn comes. The file is locked as long as the database is open.
    fn open_for_change(&self, cache_bytes: usize) -> Result<(WriteTransaction, Database), StoreError> {
        self.found()?;
        let turn = Turn::take(&self.dir, self.patience_left());
        let database = self.wait(|| self.create(builder().set_cache_size(cache_bytes), &self.file()))?;
        drop(turn);
        Ok((self.begin(&database)?, database))
    }

    /// Begins a change of a ledger that has all its tables, of this program's kind.
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

    /// A damaged file makes redb panic in places; a panic is a fault of the file here, and no reason to end the process.
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
                // What the database says of itself there is of use to those alone who know it.
                let why = text.and_then(|text| Some(format!(" ({})", text.lines().next()?))).unwrap_or_default();
                Err(damaged(format!("its pages are inconsistent{why}")))
            }
        }
    }

    fn open_for_reading(&self) -> Result<Handle, StoreError> {
        Turn::let_writers_go_first(&self.dir, self.patience_left());
        // After a crash the file wants a repair, which only a writer can make. It takes milliseconds, since every commit
        // keeps what a quick repair needs.
        match self.wait(|| builder().open_read_only(self.file())) {
            Err(StoreError::Database(redb::Error::RepairAborted)) => match self.wait(|| builder().open(self.file())) {
                Err(StoreError::Io { source, .. }) if is_unwritable(&source) => self.open_in_memory(),
                opened => Ok(Handle::Writable(opened?)),
            },
            result => Ok(Handle::ReadOnly(result?)),
        }
    }

    /// Opens a file that wants a repair and cannot be written: it is repaired in memory, for as long as it is open.
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
            // Whoever made the file was killed before its first change was durable.
            Err(redb::TableError::TableDoesNotExist(_)) if txn.list_tables()?.next().is_none() => {
                return Err(StoreError::Missing(self.dir.clone()));
            }
            Err(error) => return Err(error.into()),
        };
        let bytes = table.get("format")?;
        self.accept(bytes.as_ref().map(|bytes| bytes.value()))?;
        self.accept_indexes(index_version(&table)?)
    }

    /// Their tables may be of other names and types.
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

    /// Whether the indexes are of an older kind; the next change makes them anew. Nothing is behind where there is no ledger.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn is_behind(&self) -> Result<bool, StoreError> {
        match self.read(|reader| Ok(!reader.is_current())) {
            Err(StoreError::Missing(_)) => Ok(false),
            result => result,
        }
    }

    /// What can be made from the records is made anew where it is of an older kind.
    fn bring_up_to_date(&self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let found = index_version(&txn.open_table(tables::META)?)?;
        self.accept_indexes(found)?;
        // The tables have to be there before they can be read.
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

/// The kind of the indexes that this program keeps. They are made from the records, so that a ledger's format does not depend on it.
///
/// - 1: values, ranking and groups.
/// - 2: tainted attempts are in none of these; `by_model`, `unmeasured` and `totals` say what is left out.
/// - 3: `briefs` and `shapes` have what conditions ask; `measured` and `places`, whose keys are bytes, stand for `values` and `ranking`.
/// - 4: a mean of equal values is that value; a seed beyond 2^63 - 1 is text; `units` says where attempts do not state one unit.
/// - 5: what is measured is so in any unit of its kind, and two shares of time are.
/// - 6: means are over independent units (seeds, machines); rows of attempts say of which.
/// - 7: a disturbed attempt has no value of a metric that is stated to be measured, whatever its unit.
/// - 8: names are kept by model (`names` stands for `shapes`), and small whole numbers in fewer bytes.
const INDEXES: u32 = 8;

fn index_version(meta: &impl redb::ReadableTable<&'static str, &'static [u8]>) -> Result<u32, StoreError> {
    let bytes = meta.get("indexes")?;
    Ok(bytes.and_then(|bytes| bytes.value().try_into().ok()).map_or(1, u32::from_le_bytes))
}

/// Whether the file says something else of its tables than any ledger would.
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

/// Whether a page was to be read where the file has none: no disk refused that.
fn leads_outside(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof)
}

/// Whether it is the medium, or the file's mode, that keeps from writing.
fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Keeps the file open while a question is answered.
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

/// The size of redb's cache while a question is answered. It is small because most questions go through a table once.
const READ_CACHE_BYTES: usize = 8 << 20;

/// The size of the cache while a change is made.
const CACHE_BYTES: usize = 64 << 20;

/// Keys of indexes come in no order, so that a change of many attempts touches most of their pages: those stay in memory, up to this size.
const MANY_CACHE_BYTES: usize = 160 << 20;

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(READ_CACHE_BYTES);
    builder
}

/// Waiters that started together drift apart.
fn jitter(pause: Duration) -> Duration {
    let [byte, ..] = found::random().to_le_bytes();
    pause.mul_f64(f64::from(byte) / 256.0)
}

#[cfg(test)]
mod tests;
