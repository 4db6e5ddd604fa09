//! Runs that are new because their program has another version.

use crate::analysis::{FieldDifference, why};
use crate::cli::failure::Failure;
use crate::cli::output::say;
use crate::cli::sources::{count_lines_here, of_ledger};
use crate::engine::{Bound, Planned};
use crate::record::{Part, Parts, Run, RunId};
use crate::report::{count, program_changes};
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// The field that lists the files named by a manifest.
const NAMED_FILES: &str = "named_files";
/// The number of newest attempts that are compared.
const RECENT: usize = 1000;

/// Reports which runs are new only because the program changed, and the changes. Even a changed comment makes all runs new.
pub(in crate::cli) fn say_new_versions(store: &Store, planned: &[Planned]) -> Result<(), Failure> {
    // All parts except the program.
    let cell = |run: &Run| Parts { program: "".into(), ..run.parts.clone() }.run_id();
    let new = planned.iter().filter(|one| one.missing > 0 && one.sealed == 0);
    let new: BTreeMap<RunId, &Bound> = new.map(|one| (cell(&one.bound.run), &one.bound)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let models: BTreeSet<&str> = new.values().map(|bound| bound.run.model()).collect();
    let found = store.if_there(|reader| {
        let (mut seen, mut cells, mut first) = (BTreeSet::new(), BTreeSet::new(), None);
        for row in reader.recent(0, RECENT, true)? {
            if !models.contains(row.model.as_str()) || !seen.insert(row.run) {
                continue;
            }
            let Some(run) = reader.run(row.run)? else { continue };
            let Some(bound) = new.get(&cell(&run)) else { continue };
            if run.parts.digest(Part::Program) == bound.run.parts.digest(Part::Program) || !cells.insert(cell(&run)) {
                continue;
            }
            if first.is_none() {
                let mut parts = why(&run, &bound.run);
                parts.retain(|part| part.part == Part::Program);
                // The files themselves are listed already.
                let is_told = |field: &FieldDifference| field.field != NAMED_FILES;
                parts.iter_mut().filter(|part| part.fields.len() > 1).for_each(|part| part.fields.retain(is_told));
                let texts =
                    reader.readable(row.attempt)?.map(|attempt| of_ledger(reader, &attempt.facts)).transpose()?;
                count_lines_here(&mut parts, &texts.unwrap_or_default(), bound);
                first = Some(program_changes(&parts, "before", "now"));
            }
        }
        Ok(first.map(|changes| (cells.len(), changes)))
    })?;
    if let Some((changed, changes)) = found.flatten() {
        let verb = if changed == 1 { "is" } else { "are" };
        say(&format!(
            "note: {} of {} {verb} new because the program changed: {changes}",
            changed,
            count(planned.len(), "run")
        ));
    }
    Ok(())
}
