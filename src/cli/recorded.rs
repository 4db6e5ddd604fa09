//! The telemetry of a recorded attempt, read one series at a time: the series of an attempt of days may not fit into memory.

use super::plot::energy_state;
use crate::analysis::{Given, portions};
use crate::record::{Attempt, AttemptId, Axis, Sealed, Series};
use crate::report::EnergyOf;
use crate::store::{Reader, StoreError};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Reads a series by its name.
type Read<'a> = dyn Fn(&str) -> Result<Option<Series>, StoreError> + 'a;

/// Series over time, each read on demand.
pub(super) struct Recorded<'a> {
    names: BTreeSet<String>,
    read: &'a Read<'a>,
    fault: RefCell<Option<StoreError>>,
}

impl<'a> Recorded<'a> {
    /// Returns the series of an attempt.
    pub(super) fn of(attempt: &Attempt, read: &'a Read<'a>) -> Self {
        let timed = attempt.series.iter().filter(|series| series.axis == Axis::TimeNs);
        Self { names: timed.map(|series| series.name.clone()).collect(), read, fault: RefCell::default() }
    }

    /// Fails if a series could not be read from the ledger.
    pub(super) fn check(self) -> Result<(), StoreError> {
        self.fault.into_inner().map_or(Ok(()), Err)
    }
}

impl Given for Recorded<'_> {
    fn names(&self) -> BTreeSet<String> {
        self.names.clone()
    }

    fn give(&self, name: &str) -> Option<Cow<'_, Series>> {
        let name = self.names.get(name)?;
        match (self.read)(name) {
            Ok(series) => series.map(Cow::Owned),
            Err(fault) => {
                self.fault.replace(Some(fault));
                None
            }
        }
    }
}

/// Returns the energy of a recorded attempt by phase. Returns `None` if the attempt does not decode.
pub(super) fn energy_of(reader: &Reader<'_>, id: AttemptId) -> Result<Option<(Sealed, EnergyOf)>, StoreError> {
    let Some(head) = reader.phased(id)? else { return Ok(None) };
    let read = |name: &str| reader.readable_series(id, name);
    let recorded = Recorded::of(&head.attempt, &read);
    let portions = portions(&head, &recorded);
    recorded.check()?;
    let energy = EnergyOf { attempt: id, run: head.run.clone(), state: energy_state(&head), portions };
    Ok(Some((head, energy)))
}
