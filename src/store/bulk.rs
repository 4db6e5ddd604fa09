//! Writes many attempts at once: every table is opened once and filled in the order of its keys, and each mean is
//! computed once.
//!
//! The result is the same as writing one attempt after the other with [`Writer::unite`].

use super::brief::{Kept, Shared};
use super::census::Census;
use super::index::{member, ordered, pack, place, unpack};
use super::rank::{group_means, ranked_metrics};
use super::seal::{Added, Writer, outcome_code};
use super::tables::{
    ATTEMPTS, BRIEFS, BY_MODEL, BY_RUN, CHUNKS, GROUPS, HIDDEN, Id, NONCES, RANKING, RECENT, RUNS, SHAPES, TOTALS,
    UNITS, UNMEASURED, VALUES,
};
use super::{MANY_CACHE_BYTES, Store, StoreError, index, rank};
use crate::record::{Attempt, AttemptId, Change, Digest, LogEntry, MetricKind, Replicate, Run, Sealed};
use crate::wire::{decode_attempt, decode_run, encode_attempt, encode_phases, encode_row, encode_run, encode_series};
use redb::{Database, ReadableTable, Table, WriteTransaction};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An attempt whose ids and digests were recomputed, with its encoded bytes.
pub(super) struct Checked<'a> {
    pub(super) attempt: Cow<'a, Attempt>,
    pub(super) run: Cow<'a, Run>,
    pub(super) encoded: Encoded,
}

/// Attempts with their encoded bytes. Encoding takes time, so it is done before the ledger is locked.
pub struct Piece {
    sealed: Vec<Sealed>,
    /// The bytes of each, in the same order.
    encoded: Vec<Encoded>,
}

/// The encoded bytes of an attempt.
pub(super) struct Encoded {
    pub(super) id: Id,
    pub(super) attempt: Vec<u8>,
    pub(super) run: Vec<u8>,
    /// Series by name. The empty name has the phases.
    pub(super) chunks: Vec<(String, Vec<u8>)>,
    /// The index row.
    pub(super) brief: Kept,
}

impl Piece {
    /// Checks and encodes attempts on up to four threads.
    ///
    /// # Errors
    /// If an attempt is inconsistent or too large.
    pub fn of(sealed: Vec<Sealed>) -> Result<Self, StoreError> {
        let known = Shared::default();
        let encoded = in_parallel(sealed.iter().collect(), &|one| Encoded::of(one, &known));
        Ok(Self { encoded: encoded.into_iter().collect::<Result<_, _>>()?, sealed })
    }
}

impl Encoded {
    fn of(sealed: &Sealed, known: &Shared) -> Result<Self, StoreError> {
        sealed.check()?;
        let Sealed { run, attempt, series, phases } = sealed;
        let mut chunks = vec![(String::new(), encode_phases(phases)?)];
        for one in series {
            chunks.push((one.name.clone(), encode_series(one)?));
        }
        let mut brief = Kept::of(run, attempt)?;
        brief.share(known);
        Ok(Self { id: attempt.id().0.0, attempt: encode_attempt(attempt)?, run: encode_run(run)?, chunks, brief })
    }
}

impl Checked<'_> {
    /// Shares the names with similar attempts.
    pub(super) fn sharing(mut self, known: &Shared) -> Self {
        self.encoded.brief.share(known);
        self
    }
}

impl Checked<'static> {
    /// An attempt that is stored already, for the metric indexes: without encoded records and chunks.
    fn measured(id: Id, attempt: Attempt, run: Run) -> Result<Self, StoreError> {
        let brief = Kept::of(&run, &attempt)?;
        let encoded = Encoded { id, attempt: Vec::new(), run: Vec::new(), chunks: Vec::new(), brief };
        Ok(Self { attempt: Cow::Owned(attempt), run: Cow::Owned(run), encoded })
    }
}

/// The number of attempts that are reindexed at a time.
const REINDEXED: usize = if cfg!(test) { 3 } else { 20_000 };
/// The size of the records, in bytes, after which a smaller batch is reindexed.
const REINDEXED_BYTES: usize = 64 << 20;

/// Maps items on one thread per processor, at most four. The results are in the order of the items. This thread takes a
/// share, too, and the shares of threads that cannot be started.
pub(super) fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: &(dyn Fn(T) -> R + Sync)) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let share = items.len().div_ceil(threads).max(1);
    let mut shares: Vec<Mutex<Option<Vec<T>>>> = Vec::new();
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        shares.push(Mutex::new(Some(items.by_ref().take(share).collect())));
    }
    let take = |share: &Mutex<Option<Vec<T>>>| {
        let items = share.lock().unwrap_or_else(PoisonError::into_inner).take();
        items.map(|items| items.into_iter().map(work).collect::<Vec<R>>())
    };
    std::thread::scope(|scope| {
        let start = |share| std::thread::Builder::new().spawn_scoped(scope, move || take(share)).ok();
        let workers: Vec<_> =
            shares.iter().enumerate().map(|(at, share)| if at == 0 { None } else { start(share) }).collect();
        let done = shares.iter().zip(workers).flat_map(|(share, worker)| match worker {
            Some(worker) => worker.join().unwrap_or_else(|panic| resume_unwind(panic)).unwrap_or_default(),
            None => take(share).unwrap_or_default(),
        });
        done.collect()
    })
}

/// The metrics of an attempt that is in no ranking yet.
struct Unranked {
    group: Id,
    id: Id,
    run: Id,
    model: Arc<str>,
    /// Encoded by [`pack`].
    metrics: Vec<u8>,
}

impl Unranked {
    fn metrics(&self) -> impl Iterator<Item = (&str, MetricKind, f64)> {
        unpack(&self.metrics).1
    }
}

/// A transaction ends after this many attempts or after [`LONGEST`], so that other processes get their turn in between.
const TRANSACTION: usize = if cfg!(test) { 3 } else { 50_000 };
/// The longest duration of a transaction.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest duration of a transaction while another writer waits.
const LONGEST_IF_WANTED: Duration = Duration::from_millis(500);
/// How long the file stays closed between two transactions. Waiting readers try to open it at least once in this time.
const GAP: Duration = Duration::from_millis(10);
/// A transaction ends if no piece arrives within this time.
const IDLE: Duration = Duration::from_millis(100);

/// Imports attempts piece by piece, many pieces per transaction.
///
/// Ids have no order, so each piece touches most pages of the indexes, but a page is written once per transaction.
/// Memory is that of a piece, and of the metrics of a transaction.
pub struct Importer<'s> {
    store: &'s Store,
    unix_ms: i64,
    open: Option<Open>,
}

/// An open transaction whose attempts are not ranked yet.
struct Open {
    txn: WriteTransaction,
    /// Keeps the file locked. Closed after the transaction.
    _database: Database,
    unranked: Vec<Unranked>,
    attempts: usize,
    since: Instant,
}

impl Importer<'_> {
    /// Receives the next piece; `None` after the last one. Commits and unlocks the ledger if no piece arrives soon.
    ///
    /// # Errors
    /// If the ledger cannot be written. Attempts of committed transactions stay.
    pub fn next_of<T>(&mut self, made: &Receiver<T>) -> Result<Option<T>, StoreError> {
        match made.recv_timeout(IDLE) {
            Ok(piece) => Ok(Some(piece)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                self.commit()?;
                Ok(made.recv().ok())
            }
        }
    }

    /// Imports a piece. The result is that of [`Writer::import`] for one attempt after the other, except that the log
    /// has them in the order of their ids.
    ///
    /// The ledger stays locked until enough pieces have come, or until [`finish`](Self::finish). Returns the attempts,
    /// and for each whether it was new.
    ///
    /// # Errors
    /// If the ledger cannot be written. Attempts of committed transactions stay.
    pub fn add(&mut self, piece: Piece) -> Result<(Vec<Sealed>, Vec<Added>), StoreError> {
        let (unix_ms, Piece { sealed, encoded }) = (self.unix_ms, piece);
        let import =
            |writer: &mut Writer<'_>, unranked: &mut _| writer.import_piece(&sealed, encoded, unix_ms, unranked);
        let added = self.change(sealed.len(), import)?;
        Ok((sealed, added))
    }

    /// Imports attempts of another ledger, and leaves known ones as they are. Returns the number of new ones.
    pub(super) fn add_checked(&mut self, batch: Vec<Checked<'_>>) -> Result<u64, StoreError> {
        let unix_ms = self.unix_ms;
        self.change(batch.len(), |writer, unranked| writer.import_all(batch, unix_ms, unranked))
    }

    fn change<T>(
        &mut self,
        attempts: usize,
        work: impl FnOnce(&mut Writer<'_>, &mut Vec<Unranked>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (store, open) = (self.store, self.open.take());
        let (done, open) = store.guarded(move || {
            let mut open = match open {
                Some(open) => open,
                None => {
                    let (txn, _database) = store.open_for_change(MANY_CACHE_BYTES)?;
                    Open { txn, _database, unranked: Vec::new(), attempts: 0, since: Instant::now() }
                }
            };
            let mut writer = Writer::new(&open.txn)?;
            let done = work(&mut writer, &mut open.unranked)?;
            writer.finish()?;
            open.attempts += attempts;
            Ok((done, open))
        })?;
        let elapsed = open.since.elapsed();
        let is_full =
            open.attempts >= TRANSACTION || elapsed > LONGEST || elapsed > LONGEST_IF_WANTED && self.store.is_wanted();
        self.open = Some(open);
        if is_full {
            self.commit()?;
            std::thread::sleep(GAP);
        }
        Ok(done)
    }

    /// Commits the last pieces.
    ///
    /// # Errors
    /// If the ledger cannot be written.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.commit()
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let Some(Open { txn, _database, unranked, .. }) = self.open.take() else { return Ok(()) };
        self.store.guarded(move || {
            Writer::new(&txn)?.put_ranking(unranked)?;
            Ok(txn.commit()?)
        })
    }
}

impl Store {
    /// Begins an import of many attempts that were executed elsewhere for this ledger.
    pub fn importer(&self, unix_ms: i64) -> Importer<'_> {
        Importer { store: self, unix_ms, open: None }
    }
}

impl Writer<'_> {
    /// Writes the new ones among the attempts of another ledger. They are not ranked yet.
    fn import_all(
        &mut self,
        mut batch: Vec<Checked<'_>>,
        unix_ms: i64,
        unranked: &mut Vec<Unranked>,
    ) -> Result<u64, StoreError> {
        batch.sort_unstable_by_key(|one| one.encoded.id);
        batch.dedup_by_key(|one| one.encoded.id);
        {
            let attempts = self.txn.open_table(ATTEMPTS)?;
            let mut fresh = Vec::with_capacity(batch.len());
            for one in batch {
                if attempts.get(one.encoded.id)?.is_none() {
                    fresh.push(one);
                }
            }
            batch = fresh;
        }
        unranked.extend(self.put_all(&batch, unix_ms)?);
        Ok(u64::try_from(batch.len()).unwrap_or(u64::MAX))
    }

    /// Writes the new attempts of a piece. They are not ranked yet.
    fn import_piece(
        &mut self,
        sealed: &[Sealed],
        encoded: Vec<Encoded>,
        unix_ms: i64,
        unranked: &mut Vec<Unranked>,
    ) -> Result<Vec<Added>, StoreError> {
        let mut added = Vec::with_capacity(encoded.len());
        let mut batch: Vec<Checked<'_>> = Vec::with_capacity(encoded.len());
        {
            let attempts = self.txn.open_table(ATTEMPTS)?;
            let nonces = self.txn.open_table(NONCES)?;
            let mut executed: HashMap<[u8; 16], Id> = HashMap::new();
            for (one, encoded) in sealed.iter().zip(encoded) {
                let (id, nonce) = (encoded.id, one.attempt.nonce.0);
                let known = match attempts.get(id)? {
                    Some(_) => Some(id),
                    None => match executed.get(&nonce) {
                        Some(known) => Some(*known),
                        None => nonces.get(nonce)?.map(|known| known.value()),
                    },
                };
                added.push(match known {
                    Some(known) => Added::Known(AttemptId(Digest(known))),
                    None => {
                        executed.insert(nonce, id);
                        let (attempt, run) = (Cow::Borrowed(&one.attempt), Cow::Borrowed(&one.run));
                        batch.push(Checked { attempt, run, encoded });
                        Added::New(AttemptId(Digest(id)))
                    }
                });
            }
        }
        batch.sort_unstable_by_key(|one| one.encoded.id);
        unranked.extend(self.put_all(&batch, unix_ms)?);
        Ok(added)
    }

    /// Writes new attempts, in the order of their ids. Returns those that are to be ranked.
    fn put_all(&mut self, batch: &[Checked<'_>], unix_ms: i64) -> Result<Vec<Unranked>, StoreError> {
        self.put_records(batch)?;
        self.put_indexes(batch)?;
        let unranked = self.put_measured(batch)?;
        let entries =
            batch.iter().map(|one| LogEntry { unix_ms, change: Change::Imported(AttemptId(Digest(one.encoded.id))) });
        self.log(entries)?;
        Ok(unranked)
    }

    /// Adds new attempts to the metric indexes except the rankings. Returns those that are to be ranked.
    fn put_measured(&self, batch: &[Checked<'_>]) -> Result<Vec<Unranked>, StoreError> {
        self.put_briefs(batch)?;
        self.put_units(batch)?;
        let hidden: BTreeSet<Id> = {
            let table = self.txn.open_table(HIDDEN)?;
            table.iter()?.map(|item| item.map(|(key, _)| key.value())).collect::<Result<_, _>>()?
        };
        let is_hidden = |one: &Checked<'_>| hidden.contains(&one.encoded.id) || hidden.contains(&one.run.id.0.0);
        self.put_census(batch, &is_hidden)?;
        let mut models: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        let visible = batch.iter().filter(|one| !is_hidden(one) && one.attempt.counts().is_ok());
        let unranked = visible.map(|one| Unranked {
            group: one.encoded.brief.group,
            id: one.encoded.id,
            run: one.run.id.0.0,
            model: Arc::clone(models.entry(one.run.model()).or_insert_with(|| one.run.model().into())),
            metrics: pack(Replicate::of(&one.run, &one.attempt), &ranked_metrics(&one.attempt)),
        });
        Ok(unranked.collect())
    }

    /// Rebuilds every metric index from the records that decode.
    pub(super) fn reindex(&self) -> Result<(), StoreError> {
        rank::clear(self.txn)?;
        let attempts = self.txn.open_table(ATTEMPTS)?;
        let runs = self.txn.open_table(RUNS)?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for item in attempts.iter()? {
            let (id, attempt) = item?;
            bytes += attempt.value().len();
            batch.push((id.value(), attempt.value().to_vec()));
            if batch.len() == REINDEXED || bytes > REINDEXED_BYTES {
                self.reindex_some(&runs, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        self.reindex_some(&runs, batch)
    }

    fn reindex_some(&self, runs: &Table<'_, Id, &[u8]>, batch: Vec<(Id, Vec<u8>)>) -> Result<(), StoreError> {
        let attempts = in_parallel(batch, &|(id, bytes)| Some((id, decode_attempt(&bytes).ok()?)));
        let mut whole = Vec::with_capacity(attempts.len());
        for (id, attempt) in attempts.into_iter().flatten() {
            if let Some(run) = runs.get(attempt.run.0.0)?.and_then(|run| decode_run(run.value()).ok()) {
                whole.push((id, attempt, run));
            }
        }
        let known = Shared::default();
        let checked =
            in_parallel(whole, &|(id, attempt, run)| Ok(Checked::measured(id, attempt, run)?.sharing(&known)));
        let unranked = self.put_measured(&checked.into_iter().collect::<Result<Vec<_>, StoreError>>()?)?;
        self.put_ranking(unranked)
    }

    fn put_records(&self, batch: &[Checked<'_>]) -> Result<(), StoreError> {
        let mut runs: Vec<(Id, &[u8])> = batch.iter().map(|one| (one.run.id.0.0, one.encoded.run.as_slice())).collect();
        runs.sort_unstable_by_key(|(id, _)| *id);
        runs.dedup_by_key(|(id, _)| *id);
        let mut table = self.txn.open_table(RUNS)?;
        for (id, bytes) in runs {
            if table.get(id)?.is_none() {
                table.insert(id, bytes)?;
            }
        }
        let mut attempts = self.txn.open_table(ATTEMPTS)?;
        for one in batch {
            attempts.insert(one.encoded.id, one.encoded.attempt.as_slice())?;
        }
        let mut chunks = self.txn.open_table(CHUNKS)?;
        for one in batch {
            for (name, bytes) in &one.encoded.chunks {
                chunks.insert((one.encoded.id, name.as_str()), bytes.as_slice())?;
            }
        }
        Ok(())
    }

    fn put_indexes(&self, batch: &[Checked<'_>]) -> Result<(), StoreError> {
        let mut keys: Vec<((Id, Id), u8)> =
            batch.iter().map(|one| ((one.run.id.0.0, one.encoded.id), outcome_code(&one.attempt.outcome))).collect();
        keys.sort_unstable();
        let mut by_run = self.txn.open_table(BY_RUN)?;
        for (key, code) in keys {
            by_run.insert(key, code)?;
        }
        let mut keys: Vec<([u8; 16], Id)> = batch.iter().map(|one| (one.attempt.nonce.0, one.encoded.id)).collect();
        keys.sort_unstable();
        let mut nonces = self.txn.open_table(NONCES)?;
        for (nonce, id) in keys {
            let known = nonces.get(nonce)?.map(|known| known.value());
            if known.is_none_or(|known| id < known) {
                nonces.insert(nonce, id)?;
            }
        }
        let mut keys: Vec<(i64, Id, &Checked<'_>)> =
            batch.iter().map(|one| (one.attempt.started_unix_ms, one.encoded.id, one)).collect();
        keys.sort_unstable_by_key(|(started, id, _)| (*started, *id));
        let mut recent = self.txn.open_table(RECENT)?;
        for (started, id, one) in keys {
            let row = encode_row(&index::row(AttemptId(Digest(id)), &one.run, &one.attempt))?;
            recent.insert((started, id), row.as_slice())?;
        }
        Ok(())
    }

    fn put_briefs(&self, batch: &[Checked<'_>]) -> Result<(), StoreError> {
        let shapes: BTreeMap<(&str, Id), &[u8]> = batch
            .iter()
            .map(|one| ((one.run.model(), one.encoded.brief.shape), &*one.encoded.brief.shape_bytes))
            .collect();
        let mut table = self.txn.open_table(SHAPES)?;
        for (shape, bytes) in shapes {
            if table.get(shape)?.is_none() {
                table.insert(shape, bytes)?;
            }
        }
        let mut rows: Vec<((&str, Id), &[u8])> =
            batch.iter().map(|one| ((one.run.model(), one.encoded.id), one.encoded.brief.row.as_slice())).collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        let mut table = self.txn.open_table(BRIEFS)?;
        for (key, row) in rows {
            table.insert(key, row)?;
        }
        Ok(())
    }

    fn put_units(&self, batch: &[Checked<'_>]) -> Result<(), StoreError> {
        let mut units: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
        for one in batch {
            let model = one.run.model();
            units.extend(one.attempt.told_units().map(|(metric, unit)| (model, metric, unit)));
        }
        let mut table = self.txn.open_table(UNITS)?;
        for key in units {
            table.insert(key, ())?;
        }
        Ok(())
    }

    fn put_census(&self, batch: &[Checked<'_>], is_hidden: &dyn Fn(&Checked<'_>) -> bool) -> Result<(), StoreError> {
        let mut by_model: BTreeMap<(&str, u8, Id), String> = BTreeMap::new();
        let mut unmeasured: BTreeMap<(&str, &str, Id), (u8, String)> = BTreeMap::new();
        let mut totals: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for one in batch {
            let model = one.run.model();
            let census = Census::of(&one.attempt, is_hidden(one));
            by_model.insert((model, census.standing.0, one.encoded.id), census.standing.1);
            for metric in census.counted {
                *totals.entry((model, metric)).or_default() += 1;
            }
            for (metric, kind, reason) in census.unmeasured {
                unmeasured.insert((model, metric, one.encoded.id), (kind, reason));
            }
        }
        let mut table = self.txn.open_table(BY_MODEL)?;
        for (key, reason) in &by_model {
            table.insert(*key, reason.as_str())?;
        }
        let mut table = self.txn.open_table(UNMEASURED)?;
        for (key, (kind, reason)) in &unmeasured {
            table.insert(*key, (*kind, reason.as_str()))?;
        }
        let mut table = self.txn.open_table(TOTALS)?;
        for (key, count) in totals {
            let before = table.get(key)?.map_or(0, |count| count.value());
            table.insert(key, before + count)?;
        }
        Ok(())
    }

    /// Adds attempts to the rankings. Each mean is computed once.
    fn put_ranking(&self, mut new: Vec<Unranked>) -> Result<(), StoreError> {
        let mut groups = self.txn.open_table(GROUPS)?;
        let mut values = self.txn.open_table(VALUES)?;
        let mut ranking = self.txn.open_table(RANKING)?;
        new.sort_unstable_by_key(|one| (one.group, one.id));
        let of_one = |a: &Unranked, b: &Unranked| a.group == b.group;
        let touched = |same: &[Unranked]| -> BTreeSet<String> {
            same.iter().flat_map(Unranked::metrics).map(|(name, ..)| name.to_owned()).collect()
        };
        let mut known: BTreeSet<Id> = BTreeSet::new();
        let mut gone: Vec<Vec<u8>> = Vec::new();
        for same in new.chunk_by(of_one) {
            let Some(Unranked { group, run, model, .. }) = same.first() else { continue };
            if groups.get(*group)?.is_none() {
                groups.insert(*group, *run)?;
                continue;
            }
            known.insert(*group);
            let touched = touched(same);
            for (metric, (mean, _)) in group_means(&values, *group)? {
                if mean.is_finite() && touched.contains(&metric) {
                    gone.push(place(model, &metric, ordered(mean), *group));
                }
            }
        }
        gone.sort_unstable();
        for key in gone {
            ranking.remove(key.as_slice())?;
        }
        for one in &new {
            values.insert(member(one.group, one.id).as_slice(), one.metrics.as_slice())?;
        }
        let mut places: Vec<(Vec<u8>, u32)> = Vec::new();
        for same in new.chunk_by(of_one) {
            let Some(one) = same.first() else { continue };
            let mut put = |metric: &str, mean: f64, n: u32| {
                if mean.is_finite() {
                    places.push((place(&one.model, metric, ordered(mean), one.group), n));
                }
            };
            if same.len() == 1 && !known.contains(&one.group) {
                one.metrics().for_each(|(metric, _, value)| put(metric, 0.0 + value, 1));
                continue;
            }
            let touched = touched(same);
            for (metric, (mean, n)) in group_means(&values, one.group)? {
                if touched.contains(&metric) {
                    put(&metric, mean, n);
                }
            }
        }
        places.sort_unstable();
        for (key, n) in places {
            ranking.insert(key.as_slice(), n)?;
        }
        Ok(())
    }
}
