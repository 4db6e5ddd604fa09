//! `ledger doctor --secrets`

use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::host::secrets::{places, redact, redacted};
use crate::record::{Attempt, Change, Digest, RunId, SourceText, Table, Value};
use crate::report::{columns, count, table_of};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// The location of a possible secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// `run`, `attempt`, `text` or `note`.
    kind: &'static str,
    /// The id of the run or attempt, or the digest by which records name the text.
    id: Digest,
    /// The part that contains it.
    part: String,
}

pub(super) fn run(context: &Context) -> Result<u8, Failure> {
    let (found, attempts) = context.store().read(|reader| {
        let mut search = Search::default();
        for row in reader.recent(0, usize::MAX, true)? {
            search.attempts += 1;
            if let Some(attempt) = reader.readable(row.attempt)? {
                search.attempt(reader, row.attempt.0, &attempt)?;
            }
        }
        for entry in reader.log()? {
            if let Change::Noted { target, text } = entry.change
                && redacted(&text) != text
            {
                search.put("note", target.digest(), "note");
            }
        }
        Ok((search.found, search.attempts))
    })?;
    context.answer(|| text(&found, attempts), || value(&found, attempts))?;
    Ok(if found.is_empty() { exit::YES } else { exit::NO })
}

#[derive(Default)]
struct Search {
    found: BTreeSet<Place>,
    runs: BTreeSet<RunId>,
    texts: BTreeSet<Digest>,
    attempts: usize,
}

impl Search {
    fn put(&mut self, kind: &'static str, id: Digest, part: impl Into<String>) {
        self.found.insert(Place { kind, id, part: part.into() });
    }

    fn attempt(&mut self, reader: &Reader<'_>, id: Digest, attempt: &Attempt) -> Result<(), StoreError> {
        if self.runs.insert(attempt.run)
            && let Some(run) = reader.run(attempt.run)?
        {
            let parts = Table::from([("program".to_owned(), run.parts.program.clone())]);
            let all = places(run.config()).into_iter().chain(places(&parts));
            all.for_each(|part| self.put("run", run.id.0, part));
        }
        places(&attempt.settings).into_iter().for_each(|part| self.put("attempt", id, part));
        places(&attempt.facts).into_iter().for_each(|part| self.put("attempt", id, part));
        let tail = &attempt.tail;
        let words = [("stderr", tail.stderr.clone()), ("stdout", tail.stdout.clone())];
        let events = ("events", tail.events.join("\n"));
        let warnings = ("warnings", attempt.warnings.join("\n"));
        let reason = ("reason", attempt.outcome.reason().unwrap_or_default().to_owned());
        for (part, words) in words.into_iter().chain([events, warnings, reason]) {
            if redacted(&words) != words {
                self.put("attempt", id, part);
            }
        }
        for (part, original) in SourceText::belonging_to(&attempt.settings, &attempt.facts) {
            if self.texts.insert(original)
                && let Some(source) = reader.source(original, &attempt.facts)?
                && redact(&source.kept).1
            {
                self.put("text", original, part);
            }
        }
        Ok(())
    }
}

const REMEDY: &str = "Revoke these secrets: sealed records never change. Runs in a new ledger are free of them.";

fn text(found: &BTreeSet<Place>, attempts: usize) -> String {
    let all = count(attempts, "attempt");
    if found.is_empty() {
        return format!("no secrets in {all}\n");
    }
    let rows = found.iter().map(|place| vec![place.kind.to_owned(), place.id.prefix(8), place.part.clone()]);
    let mut text = columns(&["OF", "ID", "PLACE"], rows);
    text.push_str(&format!("{} in {all} may hold a secret. {REMEDY}\n", count(found.len(), "place")));
    text
}

fn value(found: &BTreeSet<Place>, attempts: usize) -> Table {
    let of = |place: &Place| {
        Value::Table(table_of([
            ("of", place.kind.into()),
            ("id", place.id.to_string().into()),
            ("place", place.part.as_str().into()),
        ]))
    };
    table_of([("secrets", Value::List(found.iter().map(of).collect())), ("attempts", attempts.into())])
}
