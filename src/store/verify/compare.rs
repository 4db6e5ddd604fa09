//! Compares an index with the records, entry by entry, on several threads.

use super::super::{StoreError, leads_outside};
use super::Verification;
use crate::record::count;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

/// Reads from a table. The inner error is why the table cannot be read: on a damaged page the database fails or panics.
///
/// # Errors
/// If the file itself cannot be read.
pub(super) fn guarded<T>(look: impl FnOnce() -> Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    Ok(Err(match catch_unwind(AssertUnwindSafe(look)) {
        Ok(Ok(value)) => return Ok(Ok(value)),
        Ok(Err(StoreError::Database(error))) if leads_outside(&error) => "a page lies beyond the file's end".to_owned(),
        Ok(Err(StoreError::Database(error))) if !matches!(error, redb::Error::Io(_)) => error.to_string(),
        Ok(Err(error)) => return Err(error),
        Err(_) => "its pages are inconsistent".to_owned(),
    }))
}

/// Reads from a table. Reports a fault and returns `None` if the table cannot be read.
pub(super) fn of_table<T>(
    table: &str,
    found: &mut Verification,
    look: impl FnOnce(&mut Verification) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    match guarded(|| look(found))? {
        Ok(value) => Ok(Some(value)),
        Err(fault) => {
            found.fault(format!("table `{table}`"), fault);
            Ok(None)
        }
    }
}

/// Compares a small table with its expected content.
pub(super) fn check_table<K: Ord, V: PartialEq>(
    name: &str,
    expected: &BTreeMap<K, V>,
    found: &mut Verification,
    read: impl FnOnce() -> Result<BTreeMap<K, V>, StoreError>,
) -> Result<(), StoreError> {
    if let Some(actual) = of_table(name, found, |_| read())? {
        found.index_entries += actual.len() as u64;
        let missing = expected.keys().filter(|key| !actual.contains_key(key)).count() as u64;
        let extra = actual.keys().filter(|key| !expected.contains_key(key)).count() as u64;
        let wrong = actual.iter().filter(|(key, value)| expected.get(key).is_some_and(|other| other != *value)).count();
        report(name, missing, extra, wrong as u64, found);
    }
    Ok(())
}

fn report(name: &str, missing: u64, extra: u64, wrong: u64, found: &mut Verification) {
    if missing + extra + wrong > 0 {
        let missing = count(usize::try_from(missing).unwrap_or(usize::MAX), "entry");
        found.fault(format!("index `{name}`"), format!("{missing} missing, {extra} too many, {wrong} wrong"));
    }
}

/// Counts how many of the expected entries an index has. Surplus entries show in its length.
pub(super) struct Comparison {
    name: &'static str,
    there: AtomicU64,
    missing: AtomicU64,
    wrong: AtomicU64,
    unreadable: Mutex<Option<String>>,
}

impl Comparison {
    pub(super) fn of(name: &'static str) -> Self {
        let zero = AtomicU64::default;
        Self { name, there: zero(), missing: zero(), wrong: zero(), unreadable: Mutex::default() }
    }

    /// Opens the table; `None` if it cannot be read.
    pub(super) fn open<T>(&self, open: impl FnOnce() -> Result<T, redb::TableError>) -> Result<Option<T>, StoreError> {
        Ok(guarded(|| Ok(open()?))?.map_err(|fault| self.set_unreadable(fault)).ok())
    }

    /// Counts an expected entry, for which `look` returns `None` if it is missing, otherwise whether it is right.
    pub(super) fn expect(&self, look: impl FnOnce() -> Result<Option<bool>, StoreError>) -> Result<(), StoreError> {
        match guarded(look)? {
            Ok(Some(is_right)) => {
                self.there.fetch_add(1, Ordering::Relaxed);
                self.wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
            }
            Ok(None) => {
                self.missing.fetch_add(1, Ordering::Relaxed);
            }
            Err(fault) => self.set_unreadable(fault),
        }
        Ok(())
    }

    fn set_unreadable(&self, fault: String) {
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    /// Reports the differences. `len` returns the number of entries of the table. Without it surplus entries are not
    /// reported.
    pub(super) fn finish(
        &self,
        len: Option<&dyn Fn() -> Result<u64, StoreError>>,
        found: &mut Verification,
    ) -> Result<(), StoreError> {
        let there = self.there.load(Ordering::Relaxed);
        let len = match len.map(guarded).transpose()? {
            Some(Ok(len)) => len,
            Some(Err(fault)) => {
                self.set_unreadable(fault);
                0
            }
            None => there,
        };
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(fault) = unreadable {
            found.fault(format!("table `{}`", self.name), fault);
            return Ok(());
        }
        found.index_entries += len;
        let missing = self.missing.load(Ordering::Relaxed);
        // A length smaller than the entries found is a fault too.
        let extra = len.abs_diff(there);
        report(self.name, missing, extra, self.wrong.load(Ordering::Relaxed), found);
        Ok(())
    }
}

/// Works on numbered pieces with one thread per processor, which begin them in order. Stops early, after at least one
/// piece, if `is_wanted` returns true. Returns the number of the first piece that was not begun.
pub(super) fn each_piece<T: Send>(
    from: usize,
    to: usize,
    is_wanted: &(dyn Fn() -> bool + Sync),
    work: &(dyn Fn(usize) -> T + Sync),
    take: &mut dyn FnMut(usize, T),
) -> usize {
    let next = AtomicU32::new(0);
    let all = to.saturating_sub(from);
    let begun = || usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all);
    std::thread::scope(|scope| {
        // With a capacity of 1, threads would wait for each other at every piece of a small ledger.
        let (sender, receiver) = sync_channel(64);
        for _ in 0..threads {
            let sender = sender.clone();
            let begun = &begun;
            scope.spawn(move || {
                loop {
                    let piece = begun();
                    if piece >= all || sender.send((from + piece, work(from + piece))).is_err() || is_wanted() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().for_each(|(piece, value)| take(piece, value));
    });
    let begun = usize::try_from(next.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
    from + begun.min(all)
}
