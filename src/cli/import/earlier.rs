//! Rows of tables that were imported earlier: rows that an import replaces in answers, and rows of other files in the same runs.

use crate::cli::selection::in_parallel;
use crate::interop::{Results, RowOrigin};
use crate::record::{AttemptId, Change, Digest, LogEntry, RunId, Sealed, Target, Value};
use crate::store::{Added, Reader, StoreError, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// The beginning of the note on an attempt that an import hides.
pub(super) const HIDDEN_BY: &str = "replaced by an import of ";
/// The beginning of the note on an attempt that an import shows again.
pub(super) const SHOWN_BY: &str = "counts again by an import of ";

/// The beginning of the note on an attempt that an import hides because an earlier result of its row was hidden by hand.
const KEPT_BY: &str = "hidden like the earlier result of its row, by an import of ";

/// Whether a later import of the same row replaced an attempt. `notes` are the attempt's notes, the oldest first.
pub(in crate::cli) fn is_replaced(notes: &[String]) -> bool {
    let mut by_imports = notes.iter().rev().filter(|note| note.starts_with(HIDDEN_BY) || note.starts_with(SHOWN_BY));
    by_imports.next().is_some_and(|note| note.starts_with(HIDDEN_BY))
}

/// The attempts that were imported from rows of tables.
#[derive(Default)]
pub(super) struct Earlier {
    rows: Vec<Row>,
    /// The indexes into `rows` for each line number.
    by_line: BTreeMap<i64, Vec<usize>>,
}

struct Row {
    id: AttemptId,
    run: RunId,
    origin: RowOrigin,
    /// Whether the attempt itself is hidden, rather than its run.
    is_hidden: bool,
    /// Whether it is included in answers.
    counts: bool,
    /// Whether a person hid it or its run, rather than a later import.
    is_hidden_by_hand: bool,
}

/// The changes that an import makes to earlier ones.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Replaced {
    /// Attempts of the same rows, which are hidden.
    hidden: Vec<AttemptId>,
    /// Attempts of this import that an import in between had replaced.
    shown: Vec<AttemptId>,
    /// New attempts of rows that were hidden by hand. They stay hidden.
    kept_hidden: Vec<AttemptId>,
    /// The number of rows whose earlier attempts are hidden.
    pub(super) rows: usize,
    /// The number of rows whose attempts are hidden and stay so.
    pub(super) hidden_before: usize,
    /// The number of new rows in runs that have rows of other files, and the names of these files.
    pub(super) shared: (usize, BTreeSet<String>),
    /// Attempts of an earlier version of the file whose rows this version contains too.
    versions: BTreeSet<AttemptId>,
    /// How many of these are hidden.
    pub(super) version_rows: usize,
    /// The attempts of this import.
    own: BTreeSet<AttemptId>,
}

impl Earlier {
    /// Reads all imported rows of a ledger.
    pub(super) fn read(reader: &Reader<'_>) -> Result<Self, StoreError> {
        let mut runs = Vec::new();
        reader.runs(|run| {
            let program = run.parts.program.as_table();
            if program.and_then(|program| program.get("import")).and_then(Value::as_str) == Some("table") {
                runs.push(run.id);
            }
            Ok(())
        })?;
        let hidden = reader.hidden()?;
        let row = |(id, run): &(AttemptId, RunId)| -> Result<Option<Row>, StoreError> {
            let Some(origin) = reader.readable(*id)?.as_ref().and_then(RowOrigin::of) else { return Ok(None) };
            let is_hidden = hidden.contains(&id.0);
            let counts = !is_hidden && !hidden.contains(&run.0);
            let is_hidden_by_hand = !(counts || is_hidden && is_replaced(&reader.notes(id.0)?));
            Ok(Some(Row { id: *id, run: *run, origin, is_hidden, counts, is_hidden_by_hand }))
        };
        let mut attempts = Vec::new();
        for run in runs {
            attempts.extend(reader.attempts_of(run)?.into_iter().map(|(id, _)| (id, run)));
        }
        let rows: Vec<Row> = in_parallel(&attempts, &row)?.into_iter().flatten().collect();
        let mut by_line: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        rows.iter().enumerate().for_each(|(at, row)| by_line.entry(row.origin.line).or_default().push(at));
        Ok(Self { rows, by_line })
    }

    /// Returns the changes that an import makes. The newest import of each row of a file counts.
    pub(super) fn replaced(&self, results: &Results, added: &[Added]) -> Replaced {
        let source = results.sources.first().filter(|_| !self.rows.is_empty());
        let Some(source) = source else { return Replaced::default() };
        let digest = source.digest.to_string();
        let ids: BTreeSet<AttemptId> = added.iter().map(|added| added.id()).collect();
        let lines: BTreeSet<i64> =
            results.sealed.iter().filter_map(|sealed| Some(RowOrigin::of(&sealed.attempt)?.line)).collect();
        let same: Vec<&Row> =
            self.rows.iter().filter(|row| row.origin.digest == digest && lines.contains(&row.origin.line)).collect();
        let out = same.iter().filter(|row| row.counts && !ids.contains(&row.id));
        let (hidden, replaced): (Vec<AttemptId>, BTreeSet<i64>) = out.map(|row| (row.id, row.origin.line)).unzip();
        // Attempts that a person hid stay hidden: no import had replaced them.
        let back =
            same.iter().filter(|row| row.is_hidden && ids.contains(&row.id) && replaced.contains(&row.origin.line));
        let shown: Vec<AttemptId> = back.map(|row| row.id).collect();
        let known = self.rows.iter().filter(|row| !row.counts && ids.contains(&row.id)).count();
        Replaced {
            hidden_before: known - shown.len(),
            kept_hidden: self.kept_hidden(results, added, &digest),
            shown,
            rows: replaced.len(),
            shared: if results.has_devices { Default::default() } else { self.shared(results, added, &digest) },
            versions: self.versions(results, &digest),
            version_rows: 0,
            own: ids,
            hidden,
        }
    }

    /// Returns the attempts of an earlier version of the file whose rows this version contains too: with the same
    /// cells, or the same line and run. Attempts that are also of this version are included.
    fn versions(&self, results: &Results, digest: &str) -> BTreeSet<AttemptId> {
        let of_row = |sealed: &Sealed| Some((RowOrigin::of(&sealed.attempt)?, sealed.run.id));
        let rows: Vec<(RowOrigin, RunId)> = results.sealed.iter().filter_map(of_row).collect();
        let Some((RowOrigin { file, .. }, _)) = rows.first() else { return BTreeSet::new() };
        let cells: BTreeSet<Digest> = rows.iter().map(|(origin, _)| origin.cells).collect();
        let places: BTreeSet<(RunId, i64)> = rows.iter().map(|(origin, run)| (*run, origin.line)).collect();
        let is_version = |row: &&Row| row.counts && row.origin.digest != digest && row.origin.file == *file;
        let is_same = |row: &&Row| cells.contains(&row.origin.cells) || places.contains(&(row.run, row.origin.line));
        self.rows.iter().filter(is_version).filter(is_same).map(|row| row.id).collect()
    }

    /// Returns new attempts of rows whose earlier results all do not count because a person hid them. A row of an
    /// earlier version of the file is the same row if its line and cells are the same.
    fn kept_hidden(&self, results: &Results, added: &[Added], digest: &str) -> Vec<AttemptId> {
        let new = results.sealed.iter().zip(added).filter(|(_, added)| matches!(added, Added::New(_)));
        let is_kept = |(sealed, added): (&Sealed, &Added)| {
            let own = RowOrigin::of(&sealed.attempt)?;
            let of_row = |row: &&Row| {
                row.origin.line == own.line
                    && (row.origin.digest == digest || row.origin.file == own.file && row.origin.cells == own.cells)
            };
            let of_row = || self.by_line.get(&own.line).into_iter().flatten().map(|at| &self.rows[*at]).filter(of_row);
            (of_row().any(|row| row.is_hidden_by_hand) && !of_row().any(|row| row.counts)).then(|| added.id())
        };
        new.filter_map(is_kept).collect()
    }

    /// Returns the number of new rows in runs that have rows of files with other names, and these names.
    fn shared(&self, results: &Results, added: &[Added], digest: &str) -> (usize, BTreeSet<String>) {
        let mut files: BTreeMap<RunId, BTreeSet<&str>> = BTreeMap::new();
        let name = results.sealed.first().and_then(|sealed| RowOrigin::of(&sealed.attempt)).map(|origin| origin.file);
        let is_other = |row: &&Row| row.origin.digest != digest && Some(&row.origin.file) != name.as_ref();
        for row in self.rows.iter().filter(|row| row.counts).filter(is_other) {
            files.entry(row.run).or_default().insert(&row.origin.file);
        }
        let new = results.sealed.iter().zip(added).filter(|(_, added)| matches!(added, Added::New(_)));
        let shared: Vec<_> = new.filter_map(|(sealed, _)| files.get(&sealed.run.id)).collect();
        (shared.len(), shared.iter().copied().flatten().map(|file| (*file).to_owned()).collect())
    }
}

impl Replaced {
    /// Adds the changes of another piece of the same import.
    pub(super) fn add(&mut self, other: Self) {
        self.hidden.extend(other.hidden);
        self.shown.extend(other.shown);
        self.kept_hidden.extend(other.kept_hidden);
        self.rows += other.rows;
        self.hidden_before += other.hidden_before;
        self.shared.0 += other.shared.0;
        self.shared.1.extend(other.shared.1);
        self.versions.extend(other.versions);
        self.own.extend(other.own);
    }

    /// Returns the number of attempts of earlier versions of the file that count in addition to this version.
    pub(super) fn beside_versions(&self) -> usize {
        self.versions.difference(&self.own).count()
    }

    /// Hides these attempts too.
    pub(super) fn replace_versions(&mut self) {
        let versions: Vec<AttemptId> = std::mem::take(&mut self.versions).difference(&self.own).copied().collect();
        self.version_rows = versions.len();
        self.hidden.extend(versions);
    }

    /// Returns the same changes, without hiding earlier attempts.
    pub(super) fn beside(self) -> Self {
        Self { hidden: Vec::new(), rows: 0, ..self }
    }

    /// Returns the number of new attempts that stay hidden because their rows were hidden by hand.
    pub(super) fn kept_hidden(&self) -> usize {
        self.kept_hidden.len()
    }

    /// Returns the numbers of attempts that are hidden and shown again.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.hidden.len(), self.shown.len())
    }

    /// Writes the changes into the log, each with a note that gives the reason.
    pub(super) fn write(&self, writer: &mut Writer<'_>, source: &str, unix_ms: i64) -> Result<(), StoreError> {
        let hidden = self.hidden.iter().map(|id| (*id, Change::Hidden as fn(Target) -> Change, HIDDEN_BY));
        let kept = self.kept_hidden.iter().map(|id| (*id, Change::Hidden as fn(Target) -> Change, KEPT_BY));
        let shown = self.shown.iter().map(|id| (*id, Change::Unhidden as fn(Target) -> Change, SHOWN_BY));
        for (id, change, by) in hidden.chain(kept).chain(shown) {
            let target = Target::Attempt(id);
            let text = format!("{by}{source}");
            writer.note(&LogEntry { unix_ms, change: Change::Noted { target, text } })?;
            writer.note(&LogEntry { unix_ms, change: change(target) })?;
        }
        Ok(())
    }
}
