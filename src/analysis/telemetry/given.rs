//! Series over time that are given one after the other: all of an attempt of days are more than memory should hold.

use crate::record::{Axis, Series};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What was read of the hardware.
pub trait Given {
    /// The names of the series over time.
    fn names(&self) -> BTreeSet<String>;

    /// The series of that name; none where there is none over time, or it cannot be read.
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
