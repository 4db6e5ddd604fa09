//! Rows of tables that were imported earlier: those that an import replaces in answers, and those of other files that share its runs.

use crate::cli::selection::in_parallel;
use crate::interop::{Results, RowOrigin};
use crate::record::{AttemptId, Change, Digest, LogEntry, RunId, Sealed, Target, Value};
use crate::store::{Added, Reader, StoreError, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// How the note of an attempt begins that an import hides.
pub(super) const HIDDEN_BY: &str = "replaced by an import of ";
/// How the note of an attempt begins that an import shows again.
pub(super) const SHOWN_BY: &str = "counts again by an import of ";

/// How the note of an attempt begins that an import hides, because an earlier result of its row was hidden by hand.
const KEPT_BY: &str = "hidden like the earlier result of its row, by an import of ";

/// Whether a later import of the same row replaced an attempt, by the attempt's notes, the oldest first.
pub(in crate::cli) fn is_replaced(notes: &[String]) -> bool {
    let mut by_imports = notes.iter().rev().filter(|note| note.starts_with(HIDDEN_BY) || note.starts_with(SHOWN_BY));
    by_imports.next().is_some_and(|note| note.starts_with(HIDDEN_BY))
}

/// The attempts that were made of rows of tables.
#[derive(Default)]
pub(super) struct Earlier {
    rows: Vec<Row>,
    /// The places of the rows on each line.
    by_line: BTreeMap<i64, Vec<usize>>,
}

struct Row {
    id: AttemptId,
    run: RunId,
    origin: RowOrigin,
    /// Whether it was taken out of answers by itself, and not with its run.
    is_hidden: bool,
    /// Whether it is in answers.
    counts: bool,
    /// Whether a person took it, or its run, out of answers, and no later import.
    is_hidden_by_hand: bool,
}

/// What an import changes of earlier ones.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Replaced {
    /// Attempts of the same rows that are taken out of answers.
    hidden: Vec<AttemptId>,
    /// Attempts of this import that an import in between had replaced.
    shown: Vec<AttemptId>,
    /// New attempts of rows that were hidden by hand: they stay out of answers.
    kept_hidden: Vec<AttemptId>,
    /// How many rows have attempts that are taken out.
    pub(super) rows: usize,
    /// How many rows are hidden attempts, and stay so.
    pub(super) hidden_before: usize,
    /// New rows in runs that have rows of other files, and the names of these.
    pub(super) shared: (usize, BTreeSet<String>),
    /// Attempts of earlier versions of the file that rows of this one stand for too.
    versions: BTreeSet<AttemptId>,
    /// How many of these are taken out.
    pub(super) version_rows: usize,
    /// The attempts of this import.
    own: BTreeSet<AttemptId>,
}

impl Earlier {
    /// All of a ledger.
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

    /// What an import of rows changes: of each row of a file the newest import counts.
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
        // What a person took out stays out: nothing stood in its place.
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

    /// The attempts of an earlier version of the file that these rows stand for too: by their cells, or by their place and run. Those that
    /// are attempts of this version as well are among them.
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

    /// New attempts of rows of which no earlier result counts, because a person hid it. A row of an earlier version of the file is the same
    /// if line and cells are.
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

    /// New rows in runs that have rows of files with other names.
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
    /// Adds what another piece of the same import changes.
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

    /// How many attempts of earlier versions of the file count beside this version.
    pub(super) fn beside_versions(&self) -> usize {
        self.versions.difference(&self.own).count()
    }

    /// Takes these out of answers too.
    pub(super) fn replace_versions(&mut self) {
        let versions: Vec<AttemptId> = std::mem::take(&mut self.versions).difference(&self.own).copied().collect();
        self.version_rows = versions.len();
        self.hidden.extend(versions);
    }

    /// The same, except that nothing is hidden.
    pub(super) fn beside(self) -> Self {
        Self { hidden: Vec::new(), rows: 0, ..self }
    }

    /// How many new attempts stay out of answers, since their rows were hidden by hand.
    pub(super) fn kept_hidden(&self) -> usize {
        self.kept_hidden.len()
    }

    /// How many attempts are taken out of answers, and how many come back.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.hidden.len(), self.shown.len())
    }

    /// Writes it into the log, each attempt with a note that says why.
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
