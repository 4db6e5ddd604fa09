//! The classes: ten forms, each in eight fills.
//!
//! Class `c` has the form `c` mod 10 and the fill `c` / 10, both rounded down: up to ten classes differ in form alone, twenty are
//! ten plain and ten striped forms, eighty are all. Form and fill look the same in a mirror. Knows names and numbers, no pixels.

use crate::data::shapes::outline::NAMES;

/// The fewest and the most classes.
pub const CLASSES: std::ops::RangeInclusive<usize> = 2..=NAMES.len() * FILLS.len();

/// The fills in the order of their numbers; all but the first have two colours.
pub const FILLS: [&str; 8] = ["plain", "striped", "checked", "dotted", "ringed", "zigzag", "meshed", "rayed"];

/// The form of a class, from 0, as `shapes` numbers them.
pub fn form(class: usize) -> usize {
    class % NAMES.len()
}

/// The fill of a class, from 0.
pub fn fill(class: usize) -> usize {
    class / NAMES.len() % FILLS.len()
}

/// What a class is called: `striped star`.
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
