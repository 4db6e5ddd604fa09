//! The small models for teaching: their parameters, outputs and losses.
//!
//! Knows tensors and nothing of data files, optimisers or events. On the CPU our own code, outside the tape, computes
//! the convolutions; so the models have separate forward and backward passes there.

mod convolution;

use crate::data::Batch;
use crate::data::images::{CLASSES, PIXELS, SIDE};
use crate::device::Place;
use crate::native::step_graph::{Operand, Operands};
use crate::number::{real_len, single};
use crate::parameters::{Init, ParamSpec};
use crate::rng::{Rng, Stream};
use crate::spec::Small;
use crate::tape::clean;
use burn::tensor::activation::{log_softmax, relu};
use burn::tensor::{Tensor, TensorData, TensorReadError};
use convolution::{FEATURES, Trace};

mod device;

impl Batch {
    /// The inputs [rows, width] as a tensor on the device.
    pub fn inputs(&self, place: &Place) -> Tensor<2> {
        tensor(&self.inputs, self.rows, place)
    }

    fn targets(&self, place: &Place) -> Tensor<2> {
        tensor(&self.targets, self.rows, place)
    }
}

fn tensor(values: &[f32], rows: usize, place: &Place) -> Tensor<2> {
    let width = values.len() / rows.max(1);
    Tensor::from_data(TensorData::new(values.to_vec(), [rows, width]), &place.device())
}

/// The inputs of one training step.
#[derive(Clone)]
pub struct Fed {
    inputs: Inputs,
    targets: Tensor<2>,
    mask: Option<Tensor<2>>,
}

#[derive(Clone)]
enum Inputs {
    /// For our own convolutions, which read host memory.
    Memory(Vec<f32>),
    /// For everything else.
    Tensor(Box<Tensor<2>>),
}

impl Operands for Fed {
    fn operands(&self) -> Option<Vec<Operand>> {
        let Inputs::Tensor(inputs) = &self.inputs else { return None };
        Some([inputs.operands()?, self.targets.operands()?, self.mask.operands()?].concat())
    }
}

/// A loss and everything that its backward pass needs. It shares the parameters' memory: drop it before they change.
pub struct Taped {
    loss: Tensor<1>,
    leaves: Vec<Tensor<1>>,
    convolved: Option<Convolved>,
}

/// The saved state of our own convolutions, which are not on the tape.
struct Convolved {
    blocks: [Tensor<1>; 4],
    inputs: Vec<f32>,
    trace: Trace,
    features: Tensor<2>,
}

impl Taped {
    /// The loss, shape [1] and off the tape, and the gradients of the parameters in their order.
    pub fn backward(self) -> Result<(Tensor<1>, Vec<Tensor<1>>), TensorReadError> {
        let mut tape = self.loss.backward();
        let mut gradients = Vec::with_capacity(self.leaves.len());
        let mut leaves = self.leaves.as_slice();
        if let Some(Convolved { blocks, inputs, trace, features }) = &self.convolved {
            if let Some(gradient) = features.grad_remove(&mut tape) {
                gradients.extend(convolution::backward(blocks, inputs, trace, gradient)?);
            }
            leaves = &leaves[blocks.len()..];
        }
        gradients.extend(leaves.iter().filter_map(|leaf| leaf.grad_remove(&mut tape).map(clean)));
        Ok((self.loss.inner(), gradients))
    }
}

/// Width of the layer between convolutions and classes.
const WIDE: usize = 1024;

impl Small {
    /// The parameters, in their fixed order.
    pub fn param_specs(&self) -> Vec<ParamSpec> {
        let affine = |name, inputs, outputs| ParamSpec::pair(name, &[inputs, outputs], outputs);
        match *self {
            Self::Linear { weight, bias } => [("weight", [1, 1].as_slice(), weight), ("bias", &[1], bias)]
                .map(|(name, shape, start)| ParamSpec::new(name, shape, Init::Constant(single(start))))
                .to_vec(),
            Self::Softmax => affine("", PIXELS, CLASSES).to_vec(),
            Self::Mlp { hidden } => [affine("fc1", PIXELS, hidden), affine("fc2", hidden, CLASSES)].concat(),
            Self::Cnn { .. } => [
                ParamSpec::pair("conv1", &[32, 1, 5, 5], 32),
                ParamSpec::pair("conv2", &[64, 32, 5, 5], 64),
                affine("fc1", FEATURES, WIDE),
                affine("fc2", WIDE, CLASSES),
            ]
            .concat(),
        }
    }

    /// Width of an input row.
    pub fn inputs(&self) -> usize {
        if matches!(self, Self::Linear { .. }) { 1 } else { PIXELS }
    }

    /// Width of an output row.
    pub fn outputs(&self) -> usize {
        if matches!(self, Self::Linear { .. }) { 1 } else { CLASSES }
    }

    /// The dropout mask of a step, [rows, 1024]: 0 where a value is dropped, 1/(1-p) where it is kept. `None` for models without dropout.
    pub fn mask(&self, seed: u64, step: u64, rows: usize, place: &Place) -> Option<Tensor<2>> {
        let Self::Cnn { dropout } = *self else {
            return None;
        };
        let (threshold, kept) = (single(dropout), single(1.0 / (1.0 - dropout)));
        let mut rng = Rng::new(seed, Stream::Dropout, step);
        let mask: Vec<f32> = (0..rows * WIDE).map(|_| if rng.unit() < threshold { 0.0 } else { kept }).collect();
        Some(Tensor::from_data(TensorData::new(mask, [rows, WIDE]), &place.device()))
    }

    /// The outputs [rows, outputs] for inputs [rows, inputs], off the tape and without dropout.
    pub fn answer(&self, parameters: &[Tensor<1>], batch: Batch, place: &Place) -> Result<Tensor<2>, TensorReadError> {
        if let Place::Device(device) = place {
            return Ok(self.answer_on_device(parameters, batch.inputs(place), device));
        }
        let features = match self.blocks(parameters) {
            Some(blocks) => convolution::forward(&blocks, &batch.inputs)?.0,
            None => batch.inputs(place),
        };
        Ok(self.head(parameters, features, None))
    }

    /// Moves the inputs of a step to where the model reads them.
    pub fn feed(&self, batch: Batch, mask: Option<Tensor<2>>, place: &Place) -> Fed {
        let targets = batch.targets(place);
        let inputs = match (self, place) {
            (Self::Cnn { .. }, Place::Host) => Inputs::Memory(batch.inputs),
            _ => Inputs::Tensor(Box::new(batch.inputs(place))),
        };
        Fed { inputs, targets, mask }
    }

    /// The loss, on the tape.
    pub fn forward(&self, parameters: &[Tensor<1>], fed: Fed, place: &Place) -> Result<Taped, TensorReadError> {
        let leaves: Vec<Tensor<1>> =
            parameters.iter().map(|parameter| Tensor::from_inner(parameter.clone()).require_grad()).collect();
        let mask = fed.mask.map(Tensor::from_inner);
        let targets = Tensor::from_inner(fed.targets);
        let (inputs, convolved) = match (fed.inputs, self.blocks(parameters)) {
            (Inputs::Memory(inputs), Some(blocks)) => {
                let (features, trace) = convolution::forward(&blocks, &inputs)?;
                let features = Tensor::from_inner(features).require_grad();
                (features.clone(), Some(Convolved { blocks, inputs, trace, features }))
            }
            (Inputs::Memory(inputs), None) => (Tensor::from_inner(tensor(&inputs, targets.dims()[0], place)), None),
            (Inputs::Tensor(inputs), _) => (Tensor::from_inner(*inputs), None),
        };
        let answers = match place {
            Place::Host => self.head(&leaves, inputs, mask),
            Place::Device(device) => self.train_on_device(&leaves, inputs, mask, device),
        };
        let loss = self.loss(answers, targets);
        Ok(Taped { loss, leaves, convolved })
    }

    /// Weights and biases of the convolutions, if the model has any.
    fn blocks(&self, parameters: &[Tensor<1>]) -> Option<[Tensor<1>; 4]> {
        match (*self, parameters) {
            (Self::Cnn { .. }, [c1, d1, c2, d2, ..]) => Some([c1, d1, c2, d2].map(Tensor::clone)),
            _ => None,
        }
    }

    /// Applies the linear layers on the host: outputs [rows, outputs] from their input. The mask is given only in training.
    fn head(&self, parameters: &[Tensor<1>], features: Tensor<2>, mask: Option<Tensor<2>>) -> Tensor<2> {
        match (*self, parameters) {
            (Self::Mlp { hidden }, [w1, b1, w2, b2]) => {
                let inner = relu(affine(features, w1, b1, [PIXELS, hidden]));
                affine(inner, w2, b2, [hidden, CLASSES])
            }
            (Self::Cnn { .. }, [.., w1, b1, w2, b2]) => {
                let inner = relu(affine(features, w1, b1, [FEATURES, WIDE]));
                let inner = match mask {
                    Some(mask) => inner * mask,
                    None => inner,
                };
                affine(inner, w2, b2, [WIDE, CLASSES])
            }
            (_, [weight, bias, ..]) => affine(features, weight, bias, [self.inputs(), self.outputs()]),
            _ => features,
        }
    }

    /// The loss of outputs, shape [1]: the sum of squared errors for `linear`, otherwise the mean cross-entropy.
    ///
    /// Sums along one dimension, as a full `sum` may use atomics, whose order changes from run to run.
    pub fn loss(&self, answers: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
        let [rows, columns] = answers.dims();
        let flat = |terms: Tensor<2>| terms.reshape([1, rows * columns]).sum_dim(1).reshape([1]);
        match self {
            Self::Linear { .. } => {
                let off = answers - targets;
                flat(off.clone() * off)
            }
            _ => flat(log_softmax(answers, 1) * targets) * (-1.0 / real_len(rows)),
        }
    }
}

fn affine(inputs: Tensor<2>, weight: &Tensor<1>, bias: &Tensor<1>, [from, to]: [usize; 2]) -> Tensor<2> {
    inputs.matmul(weight.clone().reshape([from, to])) + bias.clone().reshape([1, to])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::data::image_batch;
    use crate::parameters::initial;
    use burn::tensor::Device;

    const CNN: Small = Small::Cnn { dropout: 0.5 };

    #[test]
    fn parameter_counts_match_the_published_ones() {
        let count = |model: Small| model.param_specs().iter().map(ParamSpec::len).sum::<usize>();
        assert_eq!(count(CNN), 3_274_634);
        assert_eq!(count(Small::Softmax), 7_850);
        assert_eq!(count(Small::Mlp { hidden: 128 }), 101_770);
        assert_eq!(count(Small::Linear { weight: 0.3, bias: -0.3 }), 2);
    }

    #[test]
    fn initial_values_fill_their_range_and_depend_on_the_seed() {
        let param_specs = CNN.param_specs();
        let values = initial(&param_specs, 1);
        for (param_spec, values) in param_specs.iter().zip(&values) {
            let Init::Uniform(bound) = param_spec.init else { panic!("{param_spec:?}") };
            let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            assert!(largest <= bound && largest > 0.6 * bound, "{}: {largest} of {bound}", param_spec.name);
        }
        assert_eq!(param_specs[3].init, Init::Uniform(single(1.0 / 800_f64.sqrt())));
        assert_eq!(initial(&param_specs, 1), values);
        assert_ne!(initial(&param_specs, 2)[0], values[0]);
        assert_eq!(initial(&Small::Linear { weight: 0.3, bias: -0.3 }.param_specs(), 1), [[0.3], [-0.3]]);
    }

    #[test]
    fn a_mask_keeps_half_and_doubles_it() {
        let mask: Vec<f32> =
            CNN.mask(1, 1, 50, &Place::Host).expect("the model drops out").try_into_vec_as().expect("readable");
        let kept = mask.iter().filter(|value| **value == 2.0).count();
        assert!(mask.iter().all(|value| [0.0, 2.0].contains(value)));
        // 25,600 of 51,200 with a standard deviation of 113; 5 of them are allowed.
        assert!((25_034..26_166).contains(&kept), "{kept}");
    }

    /// Compares the host's code with that of other devices, both in float32. Sums of up to 12,544 terms are rounded in different orders.
    #[test]
    fn host_and_device_compute_the_same() {
        for model in [CNN, Small::Softmax, Small::Mlp { hidden: 33 }] {
            agree(model);
        }
    }

    fn agree(model: Small) {
        let set = digits::generate(0, digits::Split::Train, 7);
        let batch = image_batch(&set, &[0, 1, 2, 3, 4, 5, 6]);
        let parameters: Vec<Tensor<1>> = initial(&model.param_specs(), 1)
            .iter()
            .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &Device::flex()))
            .collect();
        let [host, device] = [Place::Host, Place::Device(Device::flex())].map(|place| {
            let mask = model.mask(1, 1, 7, &place);
            let fed = model.feed(batch.clone(), mask, &place);
            let taped = model.forward(&parameters, fed, &place).expect("readable");
            let (loss, gradients) = taped.backward().expect("readable");
            let answers = model.answer(&parameters, batch.clone(), &place).expect("readable").reshape([70]);
            let all = [vec![loss, answers], gradients].concat();
            all.into_iter().map(|tensor| tensor.try_into_vec_as::<f32>().expect("readable")).collect::<Vec<_>>()
        });
        assert_eq!((host.len(), device.len()), (2 + parameters.len(), 2 + parameters.len()));
        for (place, (host, device)) in host.iter().zip(&device).enumerate() {
            assert_eq!(host.len(), device.len());
            let largest = device.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            for (host, device) in host.iter().zip(device) {
                assert!((host - device).abs() <= 2e-5 * largest, "{place}: {host} and {device} of {largest}");
            }
        }
    }

    #[test]
    fn the_cross_entropy_of_equal_logits_is_ln_10() {
        let device = Device::flex();
        let answers = Tensor::from_data(TensorData::new(vec![3.0_f32; 20], [2, 10]), &device);
        let mut targets = vec![0.0_f32; 20];
        (targets[4], targets[17]) = (1.0, 1.0);
        let targets = Tensor::from_data(TensorData::new(targets, [2, 10]), &device);
        let loss: f32 = Small::Softmax.loss(answers, targets).try_into_scalar().expect("readable");
        assert!((loss - 10_f32.ln()).abs() < 1e-6, "{loss}");
    }
}
