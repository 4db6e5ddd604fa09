//! The points of an attempt's series during finalization.

use super::super::kept::{Dropped, Surplus, quoted};
use crate::analysis::Given;
use crate::journal::{Column, Spill};
use crate::record::{Axis, Series};
use crate::wire::{ChunkError, Points};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The points of a series.
pub(super) struct Told {
    pub(super) unit: &'static str,
    pub(super) axis: Axis,
    pub(super) points: Column,
}

impl Told {
    pub(super) fn new(unit: &'static str, axis: Axis) -> Self {
        Self { unit, axis, points: Column::default() }
    }

    pub(super) fn load(&self, name: &str, spill: &Spill) -> Result<Series, ChunkError> {
        let mut series = Series::new(name, self.unit, self.axis);
        spill.points(&self.points).visit(&mut |position, value| series.push(position, value))?;
        Ok(series)
    }
}

/// Gives series their names in the record. If several ranks would get the same name, the lowest keeps it.
pub(super) fn named(told: BTreeMap<u32, BTreeMap<String, Told>>, dropped: &mut Dropped) -> BTreeMap<String, Told> {
    let mut named: BTreeMap<String, Told> = BTreeMap::new();
    for (rank, series) in told {
        for (name, series) in series {
            let full = if rank == 0 { name.clone() } else { format!("{name}.{rank}") };
            if named.contains_key(&full) {
                dropped.count(Surplus::SameSeries, || {
                    format!("{} of rank {rank}, which is another rank's {}", quoted(&name), quoted(&full))
                });
                continue;
            }
            named.insert(full, series);
        }
    }
    named
}

/// Access to the stored sensor samples.
pub(super) struct Readings<'f> {
    telemetry: &'f BTreeMap<String, Told>,
    spill: &'f Spill,
    fault: RefCell<Option<ChunkError>>,
}

impl<'f> Readings<'f> {
    pub(super) fn of(telemetry: &'f BTreeMap<String, Told>, spill: &'f Spill) -> Self {
        Self { telemetry, spill, fault: RefCell::default() }
    }

    /// Fails if a series could not be read.
    pub(super) fn check(self) -> Result<(), ChunkError> {
        self.fault.into_inner().map_or(Ok(()), Err)
    }
}

impl Given for Readings<'_> {
    fn names(&self) -> BTreeSet<String> {
        self.telemetry.keys().cloned().collect()
    }

    fn give(&self, name: &str) -> Option<Cow<'_, Series>> {
        match self.telemetry.get(name)?.load(name, self.spill) {
            Ok(series) => Some(Cow::Owned(series)),
            Err(fault) => {
                self.fault.replace(Some(fault));
                None
            }
        }
    }
}
