//! Axes of an experiment, and axes that cannot be told apart by the attempts that there are.

use crate::record::{self, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// An axis of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// The field's full name.
    pub name: String,
    /// Its values, numbers in their order.
    pub levels: Vec<Value>,
    /// The level of each observation.
    pub of: Vec<usize>,
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
    /// A factor from the value of each observation; none where fewer than two differ.
    pub fn new(name: &str, values: &[Value]) -> Option<Self> {
        let mut levels: BTreeMap<_, Value> = BTreeMap::new();
        values.iter().for_each(|value| {
            levels.entry(value.digest()).or_insert_with(|| value.clone());
        });
        let mut levels: Vec<Value> = levels.into_values().collect();
        levels.sort_by(|a, b| match (a.as_float(), b.as_float()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.to_string().cmp(&b.to_string()),
        });
        let places: BTreeMap<_, usize> = levels.iter().enumerate().map(|(at, level)| (level.digest(), at)).collect();
        let of = values.iter().filter_map(|value| places.get(&value.digest()).copied()).collect();
        (levels.len() > 1).then(|| Self { name: name.to_owned(), levels, of })
    }

    /// Whether its levels have an order.
    pub fn is_ordered(&self) -> bool {
        self.levels.iter().all(|level| level.as_float().is_some())
    }

    /// How its levels depend on those of another axis of the same observations. `None` if neither axis determines the other one.
    pub fn relation(&self, other: &Self) -> Option<Relation> {
        match (self.determines(other), other.determines(self)) {
            (true, true) => Some(Relation::Equal),
            (true, false) => Some(Relation::Nested),
            (false, true) => Some(Relation::Nesting),
            (false, false) => None,
        }
    }

    /// Whether each of its levels occurs with one level of the other axis only.
    fn determines(&self, other: &Self) -> bool {
        let mut there: BTreeMap<usize, usize> = BTreeMap::new();
        self.of.iter().zip(&other.of).all(|(a, b)| *there.entry(*a).or_insert(*b) == *b)
    }

    /// A column for each level but the first.
    pub(super) fn columns(&self) -> Vec<Vec<f64>> {
        let column = |level| self.of.iter().map(|at| if *at == level { 1.0 } else { 0.0 }).collect();
        (1..self.levels.len()).map(column).collect()
    }

    /// The mean of the observations at a level that are to be kept; none where there is none.
    pub(super) fn mean(&self, level: usize, y: &[f64], keep: &dyn Fn(usize) -> bool) -> Option<f64> {
        let of_level = self.of.iter().zip(y).enumerate().filter(|(at, (own, _))| **own == level && keep(*at));
        let values: Vec<f64> = of_level.map(|(_, (_, y))| *y).collect();
        (!values.is_empty()).then(|| record::mean(&values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64]) -> Factor {
        Factor::new("f", &values.iter().map(|value| Value::Int(*value)).collect::<Vec<_>>()).unwrap()
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
    fn numbers_and_texts_of_one_axis_have_an_order() {
        let mixed: Vec<Value> =
            (1..150i64).flat_map(|i| [Value::Int(2 * i), format!("{i}x").as_str().into()]).collect();
        let factor = Factor::new("k", &mixed).unwrap();
        assert!(factor.levels.is_sorted_by_key(|level| level.as_float().is_none()));
        assert_eq!(factor.levels[..2], [Value::Int(2), Value::Int(4)]);
    }
}
