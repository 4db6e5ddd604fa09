//! Axes of an experiment, and axes that the attempts cannot separate.

use super::super::statistic::number;
use crate::record::{self, Value, ValueKey};
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// An axis of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// The field's full name.
    pub name: String,
    /// Its distinct values; numbers come first, in ascending order.
    pub levels: Vec<Value>,
    /// The level of each observation.
    pub of: Vec<usize>,
    /// Whether each machine has only one level, and several observations. These are not independent samples of the
    /// level, so the axis has no test and no interval.
    pub is_of_machines: bool,
}

/// How the levels of an axis depend on those of another axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Each level of either axis occurs with one level of the other axis only.
    Equal,
    /// Each level of the axis occurs with one level of the other axis only: the axis is nested in the other one.
    Nested,
    /// Each level of the other axis occurs with one level of the axis only: the other one is nested in the axis.
    Nesting,
}

impl Relation {
    /// The word in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Nested => "nested",
            Self::Nesting => "nesting",
        }
    }
}

impl Factor {
    /// Creates a factor from the value of each observation; `None` if fewer than two values differ.
    pub fn new(name: &str, values: impl IntoIterator<Item = Value>) -> Option<Self> {
        let mut known: HashMap<ValueKey, usize> = HashMap::new();
        let mut found: Vec<Value> = Vec::new();
        let number = |value: Value| match known.entry(value.clone().into_key()) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(place) => {
                found.push(value);
                *place.insert(found.len() - 1)
            }
        };
        let numbers: Vec<usize> = values.into_iter().map(number).collect();
        if found.len() < 2 {
            return None;
        }
        let mut levels: Vec<(Option<f64>, String, usize)> = found
            .iter()
            .enumerate()
            .map(|(at, value)| {
                let number = value.as_float();
                (number, if number.is_none() { value.to_string() } else { String::new() }, at)
            })
            .collect();
        levels.sort_by(|(a, a_text, a_at), (b, b_text, b_at)| match (a, b) {
            (Some(a), Some(b)) => a.total_cmp(b).then_with(|| found[*a_at].digest().cmp(&found[*b_at].digest())),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a_text.cmp(b_text).then_with(|| found[*a_at].digest().cmp(&found[*b_at].digest())),
        });
        let mut places = vec![0; found.len()];
        levels.iter().enumerate().for_each(|(place, (.., at))| places[*at] = place);
        Some(Self {
            name: name.to_owned(),
            of: numbers.into_iter().map(|number| places[number]).collect(),
            levels: levels.into_iter().map(|(.., at)| found[at].clone()).collect(),
            is_of_machines: false,
        })
    }

    /// The share of the variance of these values that the axis explains alone, less the share that as many levels
    /// explain by chance (adjusted R²). 0 if they do not vary.
    pub fn explains(&self, values: &[f64]) -> f64 {
        let mut of_level: Vec<(f64, f64)> = vec![(0.0, 0.0); self.levels.len()];
        for (level, value) in self.of.iter().zip(values) {
            of_level[*level].0 += 1.0;
            of_level[*level].1 += value;
        }
        let squares = |mean: &dyn Fn(usize) -> f64| -> f64 {
            self.of.iter().zip(values).map(|(level, value)| (value - mean(*level)).powi(2)).sum()
        };
        let mean = record::mean(values);
        let (within, total) = (squares(&|level| of_level[level].1 / of_level[level].0), squares(&|_| mean));
        if !total.is_finite() || total <= 0.0 {
            return 0.0;
        }
        let (n, levels) = (number(values.len()), number(self.levels.len()));
        1.0 - within / (n - levels).max(1.0) * (n - 1.0) / total
    }

    /// Whether its levels have an order.
    pub fn is_ordered(&self) -> bool {
        self.levels.iter().all(|level| level.as_float().is_some())
    }

    /// How its levels depend on those of another axis of the same observations. `None` if neither axis determines the other.
    pub fn relation(&self, other: &Self) -> Option<Relation> {
        match (self.determines(other), other.determines(self)) {
            (true, true) => Some(Relation::Equal),
            (true, false) => Some(Relation::Nested),
            (false, true) => Some(Relation::Nesting),
            (false, false) => None,
        }
    }

    /// Whether each of its levels occurs with only one level of the other axis.
    fn determines(&self, other: &Self) -> bool {
        let mut there: BTreeMap<usize, usize> = BTreeMap::new();
        self.of.iter().zip(&other.of).all(|(a, b)| *there.entry(*a).or_insert(*b) == *b)
    }

    /// A column for each level but the first, of some of the observations.
    pub(super) fn columns(&self, observations: Range<usize>) -> Vec<Vec<f64>> {
        let of = self.of.get(observations).unwrap_or_default();
        let column = |level| of.iter().map(|at| if *at == level { 1.0 } else { 0.0 }).collect();
        (1..self.levels.len()).map(column).collect()
    }

    /// The mean of the observations at a level.
    pub(super) fn mean(&self, level: usize, y: &[f64]) -> f64 {
        let of_level = self.of.iter().zip(y).filter(|(own, _)| **own == level);
        record::mean(&of_level.map(|(_, y)| *y).collect::<Vec<f64>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64]) -> Factor {
        Factor::new("f", values.iter().map(|value| Value::Int(*value))).unwrap()
    }

    #[test]
    fn axes_that_determine_each_other_are_equal_and_one_that_is_determined_is_nesting() {
        assert_eq!(of(&[1, 2, 1, 2]).relation(&of(&[7, 5, 7, 5])), Some(Relation::Equal));
        assert_eq!(of(&[1, 2, 1, 2]).relation(&of(&[7, 5, 5, 7])), None);
        let (rate, optimizer) = (of(&[1, 2, 3, 4]), of(&[1, 1, 2, 2]));
        assert_eq!(rate.relation(&optimizer), Some(Relation::Nested));
        assert_eq!(optimizer.relation(&rate), Some(Relation::Nesting));
        assert_eq!(of(&[8, 16, 2, 8]).levels, [2, 8, 16].map(Value::Int));
    }

    #[test]
    fn an_axis_explains_what_differs_between_its_levels() {
        // By hand: within 2 * 0.5 of in all 17; 1 - (1 / 2) / (17 / 3).
        assert!((of(&[1, 1, 2, 2]).explains(&[1.0, 2.0, 5.0, 6.0]) - (1.0 - 0.5 / (17.0 / 3.0))).abs() < 1e-12);
        assert!(of(&[1, 2, 1, 2]).explains(&[1.0, 2.0, 5.0, 6.0]) < 0.0, "less than chance");
        assert_eq!(of(&[1, 1, 2, 2]).explains(&[3.0; 4]), 0.0);
    }

    #[test]
    fn numbers_and_texts_of_one_axis_have_an_order() {
        let mixed: Vec<Value> =
            (1..150i64).flat_map(|i| [Value::Int(2 * i), format!("{i}x").as_str().into()]).collect();
        let factor = Factor::new("k", mixed).unwrap();
        assert!(factor.levels.is_sorted_by_key(|level| level.as_float().is_none()));
        assert_eq!(factor.levels[..2], [Value::Int(2), Value::Int(4)]);
    }
}
