//! One pass of a model over a batch: its parameters by name, the number format, and whether it trains.
//!
//! Knows nothing of any model. Layers (`layers`) take from it what they need. A name that is not there is a fault of the model's code.

use super::draw::{Draw, Stream};
use super::parameters::Index;
use super::precision::Precision;
use burn::tensor::{Device, Int, Shape, Tensor, TensorData};

/// The parameters of a model and all that a pass over them depends on.
pub struct Pass<'a> {
    index: &'a Index,
    parameters: &'a [Tensor<1>],
    statistics: &'a Index,
    running: &'a mut [Tensor<1>],
    /// Number format of products and convolutions.
    pub precision: Precision,
    training: Option<Training>,
    /// The loss is on a tape.
    taped: bool,
    device: Device,
    by_hand: Vec<Hand>,
}

/// A part of a model that is not on the tape: for the tape its answer is a leaf.
struct Hand {
    /// The answer.
    leaf: Tensor<2>,
    /// What it was given, on the tape.
    input: Tensor<2>,
    /// Its backward pass.
    backward: Box<Backward>,
}

/// From the gradient of an answer to that of the input, and to those of parameters by their names.
type Backward = dyn FnOnce(Tensor<2>) -> (Tensor<2>, Vec<(String, Tensor<1>)>);

/// What a training step is drawn from.
#[derive(Clone, Copy)]
struct Training {
    seed: u64,
    step: u64,
    drawn: u64,
}

/// What a pass works on.
pub struct Material<'a> {
    /// Where parameters are.
    pub index: &'a Index,
    /// Their values, flat, float32; on a tape for a training step.
    pub parameters: &'a [Tensor<1>],
    /// Where running statistics are.
    pub statistics: &'a Index,
    /// Their values, flat, float32, never on a tape.
    pub running: &'a mut [Tensor<1>],
    /// Number format of products and convolutions.
    pub precision: Precision,
    /// Where tensors live.
    pub device: Device,
}

impl<'a> Pass<'a> {
    /// A pass that answers: nothing is dropped, running statistics are used and stay as they are.
    pub fn to_answer(material: Material<'a>) -> Self {
        Self::new(material, None, false)
    }

    /// A pass of a training step, its parameters on a tape.
    pub fn to_train(material: Material<'a>, seed: u64, step: u64) -> Self {
        Self::new(material, Some(Training { seed, step, drawn: 0 }), true)
    }

    /// A pass that answers, its parameters on a tape.
    #[cfg(test)]
    pub fn on_tape(material: Material<'a>) -> Self {
        Self::new(material, None, true)
    }

    fn new(material: Material<'a>, training: Option<Training>, taped: bool) -> Self {
        let Material { index, parameters, statistics, running, precision, device } = material;
        Self { index, parameters, statistics, running, precision, training, taped, device, by_hand: Vec::new() }
    }

    /// Whether this is a training step.
    pub fn trains(&self) -> bool {
        self.training.is_some()
    }

    /// Whether the parameters are on a tape.
    pub fn taped(&self) -> bool {
        self.taped
    }

    /// Whether there is such a parameter.
    pub fn has(&self, name: &str) -> bool {
        self.index.find(name).is_some()
    }

    /// A parameter in float32, in its shape.
    pub fn exact<const D: usize>(&self, name: &str) -> Tensor<D> {
        let Some((place, shape)) = self.index.find(name) else { panic!("the model has no parameter `{name}`") };
        self.parameters[place].clone().reshape(Shape::from(shape.to_vec()))
    }

    /// A parameter in the number format of the arithmetic, in its shape.
    pub fn weight<const D: usize>(&self, name: &str) -> Tensor<D> {
        self.round(self.exact(name))
    }

    /// Rounds to the number format of the arithmetic.
    pub fn round<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        self.precision.round(tensor)
    }

    /// A tensor without a gradient, ready to meet the parameters.
    pub fn constant<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        if self.taped { Tensor::from_inner(tensor) } else { tensor }
    }

    /// Whole numbers, ready to meet the parameters.
    pub fn indices<const D: usize>(&self, tensor: Tensor<D, Int>) -> Tensor<D, Int> {
        if self.taped { Tensor::from_inner(tensor) } else { tensor }
    }

    /// Float32 values of a shape as a constant.
    pub fn values<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        self.constant(Tensor::from_data(TensorData::new(values, shape), &self.device))
    }

    /// Takes a tensor off the tape, if there is one.
    pub fn off_tape<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        if self.taped { tensor.inner() } else { tensor }
    }

    /// An answer that was computed off the tape from `input`, which is on it. `backward` turns the gradient of the answer into the gradients of the input and, flat and by
    /// name, of parameters. All of them are off the tape and in float32.
    ///
    /// What `input` was made of has no other way to the loss: the tape before it is gone through once, when all of its gradient is known. Parameters may be used
    /// on both sides.
    pub fn by_hand(
        &mut self,
        input: Tensor<2>,
        answer: Tensor<2>,
        backward: impl FnOnce(Tensor<2>) -> (Tensor<2>, Vec<(String, Tensor<1>)>) + 'static,
    ) -> Tensor<2> {
        if !self.taped {
            return answer;
        }
        let leaf = Tensor::from_inner(answer).require_grad();
        self.by_hand.push(Hand { leaf: leaf.clone(), input, backward: Box::new(backward) });
        leaf
    }

    /// The gradient of a loss on the tape for each parameter, flat and in their order; none where the loss does not depend on it.
    ///
    /// The tape is cut at each part that was done by hand. Before such a part it goes on from the sum of `input` times the gradient of `input`, whose gradient is that
    /// one.
    pub fn backward(mut self, loss: &Tensor<1>) -> Vec<Option<Tensor<1>>> {
        let mut tapes = vec![loss.backward()];
        let mut gradients: Vec<Option<Tensor<1>>> = vec![None; self.parameters.len()];
        let add = |sum: &mut Option<Tensor<1>>, gradient: Tensor<1>| {
            *sum = Some(match sum.take() {
                Some(sum) => sum + gradient,
                None => gradient,
            });
        };
        while let Some(Hand { leaf, input, backward }) = self.by_hand.pop() {
            let Some(gradient) = tapes.iter_mut().find_map(|tape| leaf.grad_remove(tape)) else { continue };
            let (of_input, of_parameters) = backward(gradient);
            for (name, gradient) in of_parameters {
                let Some((place, _)) = self.index.find(&name) else { panic!("the model has no parameter `{name}`") };
                add(&mut gradients[place], gradient);
            }
            // The backward pass starts from ones of this shape: their sum needs not be computed.
            tapes.push((input * Tensor::from_inner(of_input)).backward());
        }
        for (sum, parameter) in gradients.iter_mut().zip(self.parameters) {
            tapes.iter_mut().filter_map(|tape| parameter.grad_remove(tape)).for_each(|gradient| add(sum, gradient));
        }
        gradients
    }

    /// A running statistic, a constant in float32.
    pub fn running(&self, name: &str) -> Tensor<1> {
        self.constant(self.running[self.statistic(name)].clone())
    }

    /// Moves a running statistic by this share towards a value.
    pub fn run_on(&mut self, name: &str, value: Tensor<1>, share: f64) {
        let value = self.off_tape(value);
        let place = self.statistic(name);
        let old = self.running[place].clone();
        self.running[place] = old * (1.0 - share) + value * share;
    }

    fn statistic(&self, name: &str) -> usize {
        let Some((place, _)) = self.statistics.find(name) else { panic!("the model has no statistic `{name}`") };
        place
    }

    /// 32 random bits for the next thing that this step draws on the device; none where nothing is drawn.
    pub fn key(&mut self) -> Option<u32> {
        let training = self.training.as_mut()?;
        training.drawn += 1;
        // No step draws as many things as that.
        let index = training.step.wrapping_mul(1 << 20).wrapping_add(training.drawn);
        let bits = Draw::new(training.seed, Stream::Dropout, index).bits();
        u32::try_from(bits >> 32).ok()
    }

    /// Where tensors live.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// Running values as they start: the statistics of nothing.
pub fn fresh(layouts: &[super::parameters::Layout], device: &Device) -> Vec<Tensor<1>> {
    super::parameters::initial(layouts, 0)
        .into_iter()
        .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), device))
        .collect()
}

/// Whole numbers as a tensor.
pub fn whole<const D: usize>(values: &[i32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::{Layout, Start};
    use super::*;

    /// The gradients of a and b in the sum of ((x·a)²·b)²·a, with both squares on the tape or done by hand.
    fn gradients(by_hand: bool) -> Vec<Vec<f32>> {
        let device = Device::flex();
        let layouts = ["a", "b", "unused"].map(|name| Layout::new(name, &[2, 2], Start::Constant(0.0)));
        let index = Index::new(&layouts);
        let leaf = |values: [f32; 4]| Tensor::from_inner(Tensor::<1>::from_data(values, &device)).require_grad();
        let parameters = [leaf([1.0, -2.0, 0.5, 3.0]), leaf([0.5, 1.0, -1.0, 2.0]), leaf([1.0; 4])];
        let material = Material {
            index: &index,
            parameters: &parameters,
            statistics: &Index::default(),
            running: &mut [],
            precision: Precision::Fp32,
            device: device.clone(),
        };
        let mut pass = Pass::on_tape(material);
        let x: Tensor<2> = pass.values(vec![1.0, 2.0, 3.0, 4.0], [2, 2]);
        // ((x·a)²·b)², where each square with the product after it is one part, so that a part has a parameter of its own.
        let mut y = x.matmul(pass.exact("a"));
        for name in ["b", "a"] {
            let weight = pass.exact::<2>(name);
            y = if by_hand {
                let [at, weight] = [y.clone(), weight].map(|tensor| pass.off_tape(tensor));
                let answer = (at.clone() * at.clone()).matmul(weight.clone());
                pass.by_hand(y, answer, move |gradient| {
                    let of_weight = (at.clone() * at.clone()).transpose().matmul(gradient.clone());
                    let of_input = gradient.matmul(weight.transpose()) * at * 2.0;
                    (of_input, vec![(name.to_owned(), of_weight.reshape([4]))])
                })
            } else {
                (y.clone() * y).matmul(weight)
            };
        }
        // `a` is used before, in and after the parts.
        let loss = (y * pass.exact("a")).reshape([1, 4]).sum_dim(1).reshape([1]);
        let gradients = pass.backward(&loss);
        assert!(gradients[2].is_none(), "a gradient of what was not used");
        gradients.into_iter().flatten().map(|tensor| tensor.try_into_vec_as().expect("readable")).collect()
    }

    #[test]
    fn parts_done_by_hand_have_the_gradients_of_the_tape() {
        let [taped, by_hand] = [false, true].map(gradients);
        assert_eq!(taped.len(), 2);
        assert!(taped.concat().iter().all(|value| value.abs() > 1.0), "{taped:?}");
        for (a, b) in taped.concat().iter().zip(by_hand.concat()) {
            assert!((a - b).abs() <= 1e-5 * a.abs(), "{taped:?}, by hand {by_hand:?}");
        }
    }
}
