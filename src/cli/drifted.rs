//! Reruns that drifted: they count like all other attempts, and answers say so.

use crate::analysis::Grade;
use crate::record::{AttemptId, first_of};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// Those of these reruns that drifted.
pub(super) fn drifted(reader: &Reader<'_>, reruns: &BTreeSet<AttemptId>) -> Result<Vec<AttemptId>, StoreError> {
    let mut found = Vec::new();
    for (id, origin) in reader.origins(reruns)? {
        let Some(repeated) = origin.as_rerun(id).filter(|one| one.verdict == Grade::Drifted.name()) else {
            continue;
        };
        // With another program, say, it is an ordinary attempt of another run.
        let run = |id| Ok::<_, StoreError>(reader.readable(id)?.map(|attempt| attempt.run));
        let original = run(repeated.original)?;
        found.extend((original.is_none() || original == run(id)?).then_some(id));
    }
    Ok(found)
}

/// A sentence that says that an answer, such as `the ranking`, includes these attempts; none of no attempt.
pub(super) fn note(answer: &str, drifted: &[AttemptId]) -> Option<String> {
    let named = named(&drifted.iter().map(|id| id.0.prefix(8)).collect::<Vec<String>>())?;
    Some(format!("{answer} includes drifted reruns: {named} (`ledger hide ID` leaves one out)"))
}

/// The first of these ids, and how many more there are.
pub(super) fn named(ids: &[String]) -> Option<String> {
    (!ids.is_empty()).then(|| first_of(ids, 5))
}
