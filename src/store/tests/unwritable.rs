//! A ledger whose writer was killed, on a read-only medium.

use super::*;
use std::fs::{self, File};

/// A ledger of one attempt whose writer was killed within a change.
fn killed() -> (tempfile::TempDir, Store) {
    let (dir, whole) = store();
    whole.write(|writer| writer.seal(&sealed(1, 1, 1, 0.5, true), 0)).unwrap();
    let torn = Store::at(dir.path().join("torn"));
    fs::create_dir(torn.dir()).unwrap();
    let database = builder().open(whole.file()).unwrap();
    let txn = database.begin_write().unwrap();
    txn.open_table(tables::META).unwrap().insert("never", b"committed".as_slice()).unwrap();
    fs::copy(whole.file(), torn.file()).unwrap();
    drop(txn);
    let wants_repair = builder().open_read_only(torn.file());
    assert!(matches!(wants_repair, Err(DatabaseError::RepairAborted)), "{:?}", wants_repair.err());
    (dir, torn)
}

#[test]
fn a_ledger_that_needs_repair_is_repaired_in_memory_only() {
    let (_dir, store) = killed();
    let before = fs::read(store.file()).unwrap();
    let handle = store.open_in_memory().unwrap();
    let txn = handle.begin_read().unwrap();
    store.check_format(&txn).unwrap();
    let reader = Reader::new(&txn, &store.passed_over).unwrap();
    assert_eq!(reader.attempt_count().unwrap(), 1);
    assert_eq!(reader.verify(&mut |_, _| {}).unwrap().faults, []);
    drop(reader);
    drop((txn, handle));
    assert_eq!(fs::read(store.file()).unwrap(), before);
    // If the file can be written, the next command repairs it.
    assert_eq!(store.read(|reader| reader.attempt_count()).unwrap(), 1);
    assert_ne!(fs::read(store.file()).unwrap(), before);
}

#[test]
fn an_in_memory_repair_waits_for_writers() {
    let (_dir, store) = killed();
    let store = Store { patience: Duration::from_millis(20), ..store };
    let writer = File::open(store.file()).unwrap();
    writer.try_lock().unwrap();
    assert!(matches!(store.open_in_memory(), Err(StoreError::Busy { .. })));
    drop(writer);
    assert!(store.open_in_memory().is_ok());
}

#[test]
fn only_a_medium_that_refuses_is_unwritable() {
    for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem] {
        assert!(is_unwritable(&kind.into()));
    }
    assert!(!is_unwritable(&io::ErrorKind::NotFound.into()));
}
