//! The classes: ten forms, each in eight fills.
//!
//! Class `c` has the form `c` mod 10 and the fill `c` / 10, rounded down. Up to ten classes differ only in form, twenty
//! are ten plain and ten striped forms, and eighty are all. A mirrored form or fill looks the same. Knows names and
//! numbers, no pixels.

use crate::data::shapes::outline::NAMES;

/// The allowed numbers of classes.
pub const CLASSES: std::ops::RangeInclusive<usize> = 2..=NAMES.len() * FILLS.len();

/// The fills in the order of their numbers; all but the first have two colours.
pub const FILLS: [&str; 8] = ["plain", "striped", "checked", "dotted", "ringed", "zigzag", "meshed", "rayed"];

/// Returns the form of a class, from 0, as `shapes` numbers them.
pub fn form(class: usize) -> usize {
    class % NAMES.len()
}

/// Returns the fill of a class, from 0.
pub fn fill(class: usize) -> usize {
    class / NAMES.len() % FILLS.len()
}

/// Returns the name of a class, such as `striped star`.
#[cfg(test)]
pub fn name(class: usize) -> String {
    format!("{} {}", FILLS[fill(class)], NAMES[form(class)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_class_is_another_pair_of_form_and_fill() {
        assert_eq!(CLASSES, 2..=80);
        let pairs: BTreeSet<_> = (0..80).map(|class| (form(class), fill(class))).collect();
        let names: BTreeSet<_> = (0..80).map(name).collect();
        assert_eq!((pairs.len(), names.len()), (80, 80));
        assert_eq!([name(0), name(13), name(79)], ["plain circle", "striped star", "rayed arrow"]);
    }
}
