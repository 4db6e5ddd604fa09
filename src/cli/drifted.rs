//! Reruns that drifted. They count like all other attempts, and answers mention them.

use crate::analysis::Grade;
use crate::record::{AttemptId, first_of};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// Returns the reruns that drifted.
pub(super) fn drifted(reader: &Reader<'_>, reruns: &BTreeSet<AttemptId>) -> Result<Vec<AttemptId>, StoreError> {
    let mut found = Vec::new();
    for (id, origin) in reader.origins(reruns)? {
        let Some(repeated) = origin.as_rerun(id).filter(|one| one.verdict == Grade::Drifted.name()) else {
            continue;
        };
        // A rerun with another program, for example, is an ordinary attempt of another run.
        let run = |id| Ok::<_, StoreError>(reader.readable(id)?.map(|attempt| attempt.run));
        let original = run(repeated.original)?;
        found.extend((original.is_none() || original == run(id)?).then_some(id));
    }
    Ok(found)
}

/// Returns a note that an answer, such as `the ranking`, includes these attempts. Returns `None` without attempts.
pub(super) fn note(answer: &str, drifted: &[AttemptId]) -> Option<String> {
    let named = named(&drifted.iter().map(|id| id.0.prefix(8)).collect::<Vec<String>>())?;
    Some(format!("{answer} includes drifted reruns: {named} (`ledger hide ID` leaves one out)"))
}

/// Returns the first of these ids and the number of others.
pub(super) fn named(ids: &[String]) -> Option<String> {
    (!ids.is_empty()).then(|| first_of(ids, 5))
}
