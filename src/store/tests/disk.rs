//! A disk that fails: at every sync, at any write, and by losing what was not synced when the power goes.
//!
//! After each fault the ledger is opened from the real disk: everything sealed before is there, the interrupted change
//! is there completely or not at all, every checksum matches, and the same change succeeds. `LEDGER_TEST_FAULTS` is the
//! number of changes; the default keeps the suite short.

use super::*;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind};
use std::sync::MutexGuard;

/// The kind of fault, and the number of the operation that fails, from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// One sync reports an error. The data may or may not be on the disk.
    Sync(u64),
    /// From this sync on every operation reports an error.
    Gone(u64),
    /// From this write or growth on the disk is full. A part of the first write is made.
    Full(u64),
    /// The power fails at this sync. A random part of the writes since the last sync is made.
    Power(u64),
}

/// A disk under a ledger's file.
#[derive(Debug)]
pub(in crate::store) struct Disk {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fault: Fault,
    syncs: u64,
    writes: u64,
    /// Whether the fault has occurred.
    is_met: bool,
    random: u64,
    /// The operations since the last sync, for power failures.
    pending: Vec<Pending>,
}

#[derive(Debug)]
enum Pending {
    Write(u64, Vec<u8>),
    Len(u64),
}

impl State {
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn keeps(&self) -> bool {
        matches!(self.fault, Fault::Power(_))
    }
}

impl Disk {
    fn new(fault: Fault, random: u64) -> Arc<Self> {
        let (pending, random) = (Vec::new(), random | 1);
        Arc::new(Self { state: Mutex::new(State { fault, syncs: 0, writes: 0, is_met: false, random, pending }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store) fn open(self: &Arc<Self>, path: &Path) -> Result<Failing, DatabaseError> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Failing { file: FileBackend::new(file)?, disk: Arc::clone(self) })
    }
}

/// The file on that disk.
#[derive(Debug)]
pub(in crate::store) struct Failing {
    file: FileBackend,
    disk: Arc<Disk>,
}

fn broken() -> Error {
    Error::other("the disk does not answer")
}

fn full() -> Error {
    Error::new(ErrorKind::StorageFull, "no space left")
}

impl Failing {
    /// Counts a write or a growth, and refuses it if the disk is full or gone.
    fn admit(&self, state: &mut State) -> Result<(), Error> {
        let number = state.writes;
        state.writes += 1;
        match state.fault {
            Fault::Full(at) if number >= at => {
                state.is_met = true;
                Err(full())
            }
            Fault::Gone(_) | Fault::Power(_) if state.is_met => Err(broken()),
            _ => Ok(()),
        }
    }

    fn settle(&self, pending: Vec<Pending>) -> Result<(), Error> {
        pending.into_iter().try_for_each(|one| match one {
            Pending::Write(offset, data) => self.file.write(offset, &data),
            Pending::Len(len) => self.file.set_len(len),
        })
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> Result<u64, Error> {
        let state = self.disk.state();
        let grown = state.pending.iter().rev().find_map(|one| match one {
            Pending::Len(len) => Some(*len),
            Pending::Write(..) => None,
        });
        grown.map_or_else(|| self.file.len(), Ok)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let state = self.disk.state();
        if state.is_met && !matches!(state.fault, Fault::Full(_) | Fault::Sync(_)) {
            return Err(broken());
        }
        let there = self.file.len()?.saturating_sub(offset).min(out.len() as u64);
        let (head, tail) = out.split_at_mut(usize::try_from(there).unwrap());
        self.file.read(offset, head)?;
        tail.fill(0);
        for one in &state.pending {
            let Pending::Write(begin, data) = one else { continue };
            for (at, byte) in (*begin..).zip(data) {
                if let Some(place) = at.checked_sub(offset).and_then(|at| out.get_mut(usize::try_from(at).unwrap())) {
                    *place = *byte;
                }
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut state = self.disk.state();
        self.admit(&mut state)?;
        if state.keeps() {
            state.pending.push(Pending::Len(len));
            return Ok(());
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), Error> {
        let mut state = self.disk.state();
        let number = state.syncs;
        state.syncs += 1;
        match state.fault {
            Fault::Sync(at) if number == at => {
                state.is_met = true;
                return Err(broken());
            }
            Fault::Gone(at) if number >= at => {
                state.is_met = true;
                return Err(broken());
            }
            Fault::Power(_) if state.is_met => return Err(broken()),
            Fault::Power(at) if number >= at => {
                state.is_met = true;
                let pending = std::mem::take(&mut state.pending);
                // Writes beyond the length that the file got are lost.
                let kept: Vec<Pending> = pending.into_iter().filter(|_| state.draw(2) == 0).collect();
                let len = self.file.len()?;
                let longest = kept
                    .iter()
                    .fold(len, |longest, one| if let Pending::Len(len) = one { (*len).max(longest) } else { longest });
                self.settle(
                    kept.into_iter()
                        .filter(|one| !matches!(one, Pending::Write(at, data) if at + data.len() as u64 > longest))
                        .collect(),
                )?;
                return Err(broken());
            }
            _ => {}
        }
        let pending = std::mem::take(&mut state.pending);
        self.settle(pending)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut state = self.disk.state();
        if let Err(error) = self.admit(&mut state) {
            if state.fault == Fault::Full(state.writes - 1) {
                let kept = state.draw(data.len() as u64);
                self.file.write(offset, &data[..usize::try_from(kept).unwrap()])?;
            }
            return Err(error);
        }
        if state.keeps() {
            state.pending.push(Pending::Write(offset, data.to_vec()));
            return Ok(());
        }
        self.file.write(offset, data)
    }
}

/// The attempts of a ledger.
fn held(store: &Store) -> BTreeSet<AttemptId> {
    store
        .if_there(|reader| Ok(reader.recent(0, usize::MAX, true)?.into_iter().map(|row| row.attempt).collect()))
        .unwrap()
        .unwrap_or_default()
}

/// Makes one of four kinds of change. Returns the attempts that it adds.
fn change(store: &Store, kind: u64, number: u32) -> Result<Vec<AttemptId>, StoreError> {
    let one = |number: u32| {
        sealed(i64::from(number % 5), u64::from(number % 3), number, f64::from(number % 7), !number.is_multiple_of(11))
    };
    let many: Vec<Sealed> = (0..20).map(|at| one(number * 100 + at)).collect();
    match kind {
        0 => store.write(|writer| Ok(vec![writer.seal(&one(number * 100), 0)?.id()])),
        1 => {
            let mut importer = store.importer(0);
            let (_, added) = importer.add(Piece::of(many)?)?;
            importer.finish()?;
            Ok(added.into_iter().map(Added::id).collect())
        }
        2 => {
            let dir = tempfile::tempdir().unwrap();
            let other = Store::at(dir.path());
            let ids = change(&other, 1, number)?;
            let merged = store.merge(&other, 0, &mut |_, _| {})?;
            assert_eq!(merged.faults, []);
            Ok(ids)
        }
        _ => store.write(|writer| {
            let id = writer.seal(&one(number * 100), 0)?.id();
            writer.note(&LogEntry { unix_ms: 1, change: Change::Hidden(Target::Attempt(id)) })?;
            writer.note(&LogEntry {
                unix_ms: 2,
                change: Change::Noted { target: Target::Attempt(id), text: "n".into() },
            })?;
            Ok(vec![id])
        }),
    }
}

fn sound(store: &Store, when: &str) {
    let Some(found) = store.if_there(|_| Ok(())).unwrap().map(|()| store.verify(true, &mut |_, _| {}).unwrap()) else {
        return;
    };
    assert_eq!((found.faults, found.pages), (vec![], true), "{when}");
}

/// Repeats the change, each time with the fault `stride` operations later, until it meets none. Returns the number of
/// faults.
fn until_it_comes_through(store: &Store, kind: u64, number: u32, fault: fn(u64) -> Fault, stride: u64) -> u64 {
    let mut at = 0;
    let mut met = 0;
    loop {
        let before = held(store);
        let disk = Disk::new(fault(at), (u64::from(number) << 20 | at) * 0x9E37_79B9);
        let failing = Store { disk: Some(Arc::clone(&disk)), ..store.clone() };
        let result = change(&failing, kind, number);
        let is_met = disk.state().is_met;
        met += u64::from(is_met);
        let when = format!("{:?} in change {number} of kind {kind}", fault(at));
        sound(store, &when);
        let after = held(store);
        assert!(after.is_superset(&before), "{when}: what was sealed is lost");
        match result {
            Ok(ids) => {
                assert!(ids.iter().all(|id| after.contains(id)), "{when}: it was said to be durable");
                if !is_met {
                    return met;
                }
            }
            Err(error) => assert!(is_met, "{when}: {error}"),
        }
        let added = after.len() - before.len();
        assert!([0, 1, 20].contains(&added), "{when}: {added} of a change are there");
        at += stride;
    }
}

/// A description, the fault at an operation, and the step between two tested operations.
type Kind = (&'static str, fn(u64) -> Fault, u64);

#[test]
fn whatever_the_disk_does_nothing_sealed_is_lost_and_nothing_needs_repair() {
    quiet();
    let changes: u32 = std::env::var("LEDGER_TEST_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(16);
    let kinds: [Kind; 4] = [
        ("a sync fails", Fault::Sync, 1),
        ("the disk is gone from a sync on", Fault::Gone, 1),
        ("the disk is full from a write on", Fault::Full, 3),
        ("the power goes at a sync", Fault::Power, 1),
    ];
    let mut counts = [0; 4];
    for number in 0..changes {
        let of = usize::try_from(number % 4).unwrap();
        // Each change creates its ledger. Sixteen cover every change under every fault.
        let (_dir, store) = store();
        let (_, fault, stride) = kinds[of];
        counts[of] += until_it_comes_through(&store, u64::from(number / 4 % 4), number, fault, stride);
        assert!(!held(&store).is_empty(), "change {number}");
    }
    for ((what, ..), count) in kinds.iter().zip(counts) {
        assert!(count > 0, "{what}");
        println!("{what}: {count} times");
    }
}
