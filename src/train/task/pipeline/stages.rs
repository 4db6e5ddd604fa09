//! The units and parameters of each pipeline stage.

use crate::models::Model;
use crate::models::units::Unit;
use crate::number::real_len;
use crate::parameters::ParamSpec;
use std::fmt;
use std::ops::Range;

/// A model cut into stages.
#[derive(Clone, Debug)]
pub struct Stages {
    ranges: Vec<Range<usize>>,
    param_specs: Vec<ParamSpec>,
    /// For each stage, the places of its parameters among all parameters.
    places: Vec<Vec<usize>>,
    /// The units of each stage.
    units: Vec<Vec<Unit>>,
}

impl Stages {
    /// Stages with these units. Panics on a model that is not made of units, a fault of the caller.
    pub fn new(model: &dyn Model, ranges: Vec<Range<usize>>) -> Self {
        let Some(parts) = model.units() else { panic!("the model is not made of units") };
        let (units, param_specs) = (parts.units(1), model.param_specs());
        let of_stages: Vec<Vec<Unit>> = ranges.iter().map(|range| units[range.clone()].to_vec()).collect();
        let of = |units: &Vec<Unit>| {
            let own = |param_spec: &ParamSpec| units.iter().any(|unit| unit.has(&param_spec.name));
            param_specs.iter().enumerate().filter(|(_, param_spec)| own(param_spec)).map(|(place, _)| place).collect()
        };
        Self { places: of_stages.iter().map(of).collect(), ranges, param_specs, units: of_stages }
    }

    /// A single stage with all units.
    pub fn one(model: &dyn Model) -> Self {
        let units = model.units().map_or(0, |parts| parts.units(1).len());
        Self::new(model, std::iter::once(0..units).collect())
    }

    /// Returns the number of stages.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the units of a stage.
    pub fn units(&self, stage: usize) -> Range<usize> {
        self.ranges[stage].clone()
    }

    /// Returns all parameters of the model.
    pub fn param_specs(&self) -> &[ParamSpec] {
        &self.param_specs
    }

    /// Returns the places of a stage's parameters among all parameters.
    pub fn places(&self, stage: usize) -> &[usize] {
        &self.places[stage]
    }

    /// Returns a stage's parameters.
    pub fn own(&self, stage: usize) -> Vec<ParamSpec> {
        self.places[stage].iter().map(|place| self.param_specs[*place].clone()).collect()
    }

    /// Returns a stage's parameters with their places among all parameters.
    pub fn numbered(&self, stage: usize) -> Vec<(usize, ParamSpec)> {
        self.places[stage].iter().map(|place| (*place, self.param_specs[*place].clone())).collect()
    }

    /// Returns a stage's running statistics.
    pub fn own_statistics(&self, stage: usize, model: &dyn Model) -> Vec<ParamSpec> {
        let own = |param_spec: &ParamSpec| self.units[stage].iter().any(|unit| unit.has(&param_spec.name));
        model.statistics().into_iter().filter(own).collect()
    }

    /// Returns for each of a stage's parameters whether it is the first stage that has it.
    pub fn owned(&self, stage: usize) -> Vec<bool> {
        let before = |place: &usize| self.places[..stage].iter().any(|places| places.contains(place));
        self.places[stage].iter().map(|place| !before(place)).collect()
    }

    /// Returns the parameters that another stage has too: their places among the stage's own, and the other stage.
    pub fn tied(&self, stage: usize) -> Vec<(usize, usize)> {
        let mut tied = Vec::new();
        for (place, global) in self.places[stage].iter().enumerate() {
            let others = (0..self.count()).filter(|other| *other != stage && self.places[*other].contains(global));
            tied.extend(others.map(|other| (place, other)));
        }
        tied
    }

    /// Returns the fraction of time in which a stage is idle, if all stages take equally long: (p − 1)/(m + p − 1)
    /// (section 2.3 of the paper).
    pub fn bubble(&self, micro_batches: usize) -> f64 {
        let idle = self.count() - 1;
        real_len(idle) / real_len(micro_batches + idle)
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.ranges.iter().map(|units| format!("{}-{}", units.start, units.end - 1)).collect();
        write!(f, "units {}", each.join(", "))
    }
}

/// Cuts units of these costs into stages so that the maximum cost of a stage is minimal. Among equally good cuts,
/// earlier stages are shorter. Returns `None` if there are fewer units than stages.
pub fn cut(costs: &[f64], stages: usize) -> Option<Vec<Range<usize>>> {
    let units = costs.len();
    if stages == 0 || units < stages {
        return None;
    }
    let cost = |range: Range<usize>| costs[range].iter().sum::<f64>();
    // By the number of stages left and the first unit left: the minimal maximum cost, and the end of the next stage.
    let mut best: Vec<Vec<Option<(f64, usize)>>> = vec![vec![None; units + 1]; stages + 1];
    best[0][units] = Some((0.0, units));
    for left in 1..=stages {
        for start in 0..units {
            let with = |end: usize| best[left - 1][end].map(|(rest, _)| (cost(start..end).max(rest), end));
            let found =
                (start + 1..=units).filter_map(with).reduce(|best, next| if next.0 < best.0 { next } else { best });
            best[left][start] = found;
        }
    }
    let mut start = 0;
    (0..stages)
        .map(|stage| {
            let (_, end) = best[stages - stage][start]?;
            let range = start..end;
            start = end;
            Some(range)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Gpt2, Vgg};

    /// Returns the minimal maximum cost of a stage, by trying all cuts.
    fn least(costs: &[f64], stages: usize) -> f64 {
        if stages == 1 {
            return costs.iter().sum();
        }
        let with = |end: usize| costs[..end].iter().sum::<f64>().max(least(&costs[end..], stages - 1));
        (1..=costs.len() - (stages - 1)).map(with).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_maximum_cost_of_a_stage_is_minimal() {
        let mut rng = crate::rng::Rng::new(3, crate::rng::Stream::Initial, 0);
        for units in 4..12_usize {
            let costs: Vec<f64> =
                (0..units).map(|_| f64::from(u32::try_from(rng.bits() % 100).expect("small"))).collect();
            for stages in 1..=4 {
                let found = cut(&costs, stages).expect("enough units");
                assert_eq!(found.len(), stages);
                assert_eq!((found[0].start, found[stages - 1].end), (0, units));
                assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert!(found.iter().all(|range| !range.is_empty()));
                let most = found.iter().map(|range| costs[range.clone()].iter().sum::<f64>()).fold(0.0, f64::max);
                assert_eq!(most, least(&costs, stages), "{costs:?} over {stages}: {found:?}");
            }
        }
        assert_eq!(cut(&[1.0, 1.0], 3), None);
        assert_eq!(cut(&[5.0, 1.0, 1.0, 5.0], 2), Some(vec![0..2, 2..4]));
    }

    #[test]
    fn every_parameter_is_owned_once_and_tied_parameters_are_found() {
        let gpt2 = Gpt2::tiny(50, 16);
        let stages = Stages::new(&gpt2, vec![0..1, 1..2, 2..3, 3..4]);
        let owned: usize = (0..4).map(|stage| stages.owned(stage).into_iter().filter(|own| *own).count()).sum();
        assert_eq!(owned, stages.param_specs().len());
        assert_eq!(stages.tied(0), [(0, 3)]);
        assert_eq!(stages.tied(3), [(0, 0)]);
        assert_eq!((stages.tied(1), stages.tied(2)), (Vec::new(), Vec::new()));
        assert_eq!(stages.to_string(), "units 0-0, 1-1, 2-2, 3-3");
        assert!((stages.bubble(5) - 0.375).abs() < 1e-12);
        let together = Stages::one(&gpt2);
        assert_eq!(together.tied(0), []);
        let names = |stage: usize, stages: &Stages| {
            stages.own(stage).into_iter().map(|param_spec| param_spec.name).collect::<Vec<_>>()
        };
        let vgg = Vgg::tiny(10);
        let two = Stages::new(&vgg, vec![0..6, 6..9]);
        assert_eq!(
            names(1, &two),
            [
                "classifier.0.weight",
                "classifier.0.bias",
                "classifier.3.weight",
                "classifier.3.bias",
                "classifier.6.weight",
                "classifier.6.bias"
            ]
        );
    }
}
