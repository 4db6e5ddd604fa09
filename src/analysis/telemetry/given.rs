//! Series over time, loaded one after the other, because all series of a long attempt may not fit into memory.

use crate::record::{Axis, Series};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Hardware telemetry.
pub trait Given {
    /// The names of the series over time.
    fn names(&self) -> BTreeSet<String>;

    /// The series of that name; `None` if there is none over time, or if it cannot be read.
    fn give(&self, name: &str) -> Option<Cow<'_, Series>>;
}

impl Given for BTreeMap<String, Series> {
    fn names(&self) -> BTreeSet<String> {
        self.values().filter(|series| series.axis == Axis::TimeNs).map(|series| series.name.clone()).collect()
    }

    fn give(&self, name: &str) -> Option<Cow<'_, Series>> {
        self.get(name).filter(|series| series.axis == Axis::TimeNs).map(Cow::Borrowed)
    }
}

impl Given for Vec<Series> {
    fn names(&self) -> BTreeSet<String> {
        self.iter().filter(|series| series.axis == Axis::TimeNs).map(|series| series.name.clone()).collect()
    }

    fn give(&self, name: &str) -> Option<Cow<'_, Series>> {
        self.iter().rfind(|series| series.axis == Axis::TimeNs && series.name == name).map(Cow::Borrowed)
    }
}
