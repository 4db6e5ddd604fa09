//! Trainable parameters as flat tensors: names, shapes and initial values.
//!
//! Knows nothing of models. The order of a model's parameters affects the results of runs: frozen.

use crate::number::{real_len, single, wide};
use crate::rng::{Rng, Stream};
use rayon::prelude::*;
use std::collections::HashMap;

/// The name, shape and initialisation of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// The name in the reference implementation, such as `layer1.0.conv1.weight`.
    pub name: String,
    /// Linear weights are [in, out], convolutions [out, in, height, width].
    pub shape: Vec<usize>,
    /// How its initial values are drawn.
    pub init: Init,
}

/// The distribution of initial values, sampled on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All values are equal.
    Constant(f32),
    /// Uniform between minus this value and this value.
    Uniform(f32),
    /// Normal with mean 0 and this standard deviation (Box and Muller 1958).
    Normal(f64),
    /// 0, except that in each period of `period` values the one at `place` is `value`.
    Every {
        /// The length of a period.
        period: usize,
        /// The place within a period, from 0.
        place: usize,
        /// The value at that place.
        value: f32,
    },
    /// As `Normal`, but values beyond two deviations from 0 are drawn again (TensorFlow's `truncated_normal`).
    Truncated(f64),
}

impl ParamSpec {
    /// A parameter with this name, shape and initialisation.
    pub fn new(name: impl Into<String>, shape: &[usize], init: Init) -> Self {
        Self { name: name.into(), shape: shape.to_vec(), init }
    }

    /// `name.weight` of this shape and `name.bias` with `outputs` values. Both are uniform in ±1/√fan_in, where fan_in
    /// is the number of inputs of one output: PyTorch's default for linear and convolution layers (Kaiming-uniform with
    /// a = √5).
    pub fn pair(name: &str, shape: &[usize], outputs: usize) -> [Self; 2] {
        let fan_in = shape.iter().product::<usize>() / outputs.max(1);
        let init = Init::Uniform(single(1.0 / real_len(fan_in).sqrt()));
        let called = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        [Self::new(called("weight"), shape, init), Self::new(called("bias"), &[outputs], init)]
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn values(&self, rng: &Rng) -> Vec<f32> {
        let len = self.len();
        match self.init {
            Init::Constant(value) => vec![value; len],
            Init::Uniform(bound) => drawn(rng, len, 1, |rng| rng.range(-bound, bound)),
            Init::Normal(deviation) => drawn(rng, len, 2, |rng| single(rng.normal() * deviation)),
            Init::Every { period, place, value } => {
                (0..len).map(|n| if n % period.max(1) == place { value } else { 0.0 }).collect()
            }
            Init::Truncated(deviation) => {
                let (mut values, mut tried) = (Vec::with_capacity(len), 0);
                while values.len() < len {
                    let missing = len - values.len();
                    let next = drawn(&rng.skipped(2 * tried), missing, 2, Rng::normal);
                    values.extend(
                        next.into_iter().filter(|value| value.abs() <= 2.0).map(|value| single(value * deviation)),
                    );
                    tried += wide(missing);
                }
                values
            }
        }
    }
}

/// The number of values that one thread draws at a time.
const PIECE: usize = 1 << 16;

/// Draws `len` values in parallel, each of which takes `numbers` random numbers. They are those of a sequential loop.
fn drawn<T: Clone + Default + Send>(
    rng: &Rng,
    len: usize,
    numbers: u64,
    draw: impl Fn(&mut Rng) -> T + Sync,
) -> Vec<T> {
    let mut values = vec![T::default(); len];
    values.par_chunks_mut(PIECE).enumerate().for_each(|(piece, values)| {
        let mut rng = rng.skipped(wide(piece * PIECE) * numbers);
        values.iter_mut().for_each(|value| *value = draw(&mut rng));
    });
    values
}

/// Returns the initial values of every parameter. Each parameter has its own sequence of random numbers, by its place.
pub fn initial(param_specs: &[ParamSpec], seed: u64) -> Vec<Vec<f32>> {
    let of =
        |(place, param_spec): (usize, &ParamSpec)| param_spec.values(&Rng::new(seed, Stream::Initial, wide(place)));
    param_specs.par_iter().enumerate().map(of).collect()
}

/// Returns the initial values of some parameters, each given with its place among all parameters of the model.
pub fn initial_of(param_specs: &[(usize, ParamSpec)], seed: u64) -> Vec<Vec<f32>> {
    let of =
        |(place, param_spec): &(usize, ParamSpec)| param_spec.values(&Rng::new(seed, Stream::Initial, wide(*place)));
    param_specs.par_iter().map(of).collect()
}

/// Returns the number of values of all parameters.
pub fn count(param_specs: &[ParamSpec]) -> u64 {
    param_specs.iter().map(|param_spec| wide(param_spec.len())).sum()
}

/// Finds parameters by their names.
#[derive(Clone, Debug, Default)]
pub struct Index {
    places: HashMap<String, (usize, Vec<usize>)>,
}

impl Index {
    /// The index of these parameters, in order.
    pub fn new(param_specs: &[ParamSpec]) -> Self {
        let place =
            |(place, param_spec): (usize, &ParamSpec)| (param_spec.name.clone(), (place, param_spec.shape.clone()));
        Self { places: param_specs.iter().enumerate().map(place).collect() }
    }

    /// Returns the place and the shape of a parameter.
    pub fn find(&self, name: &str) -> Option<(usize, &[usize])> {
        self.places.get(name).map(|(place, shape)| (*place, shape.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(init: Init, seed: u64) -> Vec<f32> {
        initial(&[ParamSpec::new("w", &[100, 200], init)], seed).remove(0)
    }

    fn deviation(values: &[f32]) -> f64 {
        (values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / real_len(values.len())).sqrt()
    }

    #[test]
    fn starts_have_their_distributions() {
        assert_eq!(values(Init::Constant(1.5), 1), vec![1.5; 20_000]);
        let every = values(Init::Every { period: 5, place: 3, value: -2.0 }, 1);
        assert_eq!(every[..10], [0.0, 0.0, 0.0, -2.0, 0.0, 0.0, 0.0, 0.0, -2.0, 0.0]);
        let uniform = values(Init::Uniform(0.5), 1);
        assert!(uniform.iter().all(|value| value.abs() <= 0.5));
        // The relative standard error of a deviation of 20,000 normal numbers is 0.5%; 4 of them are allowed.
        assert!((deviation(&uniform) * 12_f64.sqrt() - 1.0).abs() < 0.02);
        let normal = values(Init::Normal(0.02), 1);
        assert!((deviation(&normal) / 0.02 - 1.0).abs() < 0.02);
        assert!(normal.iter().any(|value| value.abs() > 0.06));
        let truncated = values(Init::Truncated(0.02), 1);
        assert!(truncated.iter().all(|value| value.abs() <= 0.040_001));
        // The deviation of a normal distribution cut at two deviations is 0.8796 of it.
        assert!((deviation(&truncated) / 0.02 - 0.8796).abs() < 0.02);
        assert_eq!(values(Init::Normal(0.02), 1), normal);
        assert_ne!(values(Init::Normal(0.02), 2), normal);
    }

    #[test]
    fn values_drawn_in_parallel_are_those_of_a_loop() {
        let len = 2 * PIECE + 77;
        let drawn = |init: Init| initial(&[ParamSpec::new("w", &[len], init)], 9).remove(0);
        let looped = |draw: &dyn Fn(&mut Rng) -> f32| -> Vec<f32> {
            let mut rng = Rng::new(9, Stream::Initial, 0);
            (0..len).map(|_| draw(&mut rng)).collect()
        };
        assert!(drawn(Init::Uniform(0.5)) == looped(&|rng| rng.range(-0.5, 0.5)));
        assert!(drawn(Init::Normal(0.02)) == looped(&|rng| single(rng.normal() * 0.02)));
        let within = |rng: &mut Rng| loop {
            let value = rng.normal();
            if value.abs() <= 2.0 {
                return single(value * 0.02);
            }
        };
        assert!(drawn(Init::Truncated(0.02)) == looped(&within));
    }

    #[test]
    fn a_pair_is_bounded_by_its_inputs() {
        let [weight, bias] = ParamSpec::pair("conv", &[64, 32, 5, 5], 64);
        assert_eq!((weight.name.as_str(), bias.name.as_str()), ("conv.weight", "conv.bias"));
        assert_eq!(weight.init, Init::Uniform(single(1.0 / 800_f64.sqrt())));
        assert_eq!((bias.shape.as_slice(), bias.init), ([64].as_slice(), weight.init));
        assert_eq!(ParamSpec::pair("", &[1, 1], 1)[0].name, "weight");
    }

    #[test]
    fn parameters_are_found_by_name() {
        let param_specs =
            [ParamSpec::new("a", &[2, 3], Init::Constant(0.0)), ParamSpec::new("b", &[4], Init::Constant(0.0))];
        let index = Index::new(&param_specs);
        assert_eq!(index.find("b"), Some((1, [4].as_slice())));
        assert_eq!(index.find("c"), None);
        assert_eq!(count(&param_specs), 10);
    }
}
