//! One pass of a model over a batch: its parameters by name, the number format, and whether it trains.
//!
//! Knows nothing of any model. Layers (`layers`) take from it what they need. A name that is not there is a fault of the model's code.

use super::early::{self, Groups, Marks};
use super::number::wide;
use super::parameters::Index;
use super::precision::Precision;
use super::rng::{Rng, Stream};
use super::tape::{self, Plain, Taped};
use burn::tensor::{Device, Int, Shape, Tensor, TensorData};
use std::cell::RefCell;
use std::collections::BTreeSet;

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
    /// The parameters that were handed out in a shape of their own, from which only Burn's tape leads back.
    reshaped: RefCell<BTreeSet<usize>>,
    /// The positions whose answers are wanted; none for all.
    asked: Option<Tensor<1, Int>>,
    device: Device,
}

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
        Self {
            index,
            parameters,
            statistics,
            running,
            precision,
            training,
            taped,
            reshaped: RefCell::default(),
            asked: None,
            device,
        }
    }

    /// Asks for the answers at these positions, in this order, and no others: only of a model that [can
    /// tell](super::models::Model::answers_asked).
    pub fn ask(&mut self, positions: Tensor<1, Int>) {
        self.asked = Some(positions);
    }

    /// The positions whose answers are wanted, off the tape; none for all.
    pub fn asked(&self) -> Option<Tensor<1, Int>> {
        self.asked.clone()
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
        let (values, shape) = self.flat(name);
        match (D, shape) {
            // It has its shape, and a tape would note every reshape.
            (1, [_]) => Tensor::from_dispatch(values.into_dispatch()),
            _ => {
                self.is_shared(name);
                values.reshape(Shape::from(shape.to_vec()))
            }
        }
    }

    /// An operation of Burn's own takes a parameter that others may take too: where its gradient is whole is not known.
    pub fn is_shared(&self, name: &str) {
        self.reshaped.borrow_mut().extend(self.index.find(name).map(|(place, _)| place));
    }

    /// A parameter in float32 as it is kept, flat, and its shape: to take it so puts nothing on the tape.
    pub fn flat(&self, name: &str) -> (Tensor<1>, &'a [usize]) {
        let Some((place, shape)) = self.index.find(name) else { panic!("the model has no parameter `{name}`") };
        (self.parameters[place].clone(), shape)
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

    /// An answer that was computed off the tape from `inputs`; on it, if there is one ([`tape::recorded`]).
    pub fn recorded<const N: usize, const D: usize>(
        &self,
        inputs: impl FnOnce() -> [Taped; N],
        answer: Tensor<D>,
        backward: impl FnOnce(Tensor<D>, [bool; N]) -> [Option<Plain>; N] + Send + 'static,
    ) -> Tensor<D> {
        if self.taped { tape::recorded(inputs(), answer, backward) } else { answer }
    }

    /// Two answers that were computed off the tape together; on it, if there is one ([`tape::recorded_twice`]).
    #[cfg(feature = "cuda")]
    pub fn recorded_twice<const N: usize, const D: usize, const E: usize>(
        &self,
        inputs: impl FnOnce() -> [Taped; N],
        answers: (Tensor<D>, Tensor<E>),
        backward: impl FnOnce((Tensor<D>, Option<Tensor<E>>), [bool; N]) -> [Option<Plain>; N] + Send + 'static,
    ) -> (Tensor<D>, Tensor<E>) {
        if self.taped { tape::recorded_twice(inputs(), answers, backward) } else { answers }
    }

    /// [`Self::recorded`] for a number of inputs that is not known beforehand ([`tape::recorded_all`]).
    pub fn recorded_all<const D: usize>(
        &self,
        inputs: impl FnOnce() -> Vec<Taped>,
        answer: Tensor<D>,
        backward: impl FnOnce(Tensor<D>, &[bool]) -> Vec<Option<Plain>> + Send + 'static,
    ) -> Tensor<D> {
        if self.taped { tape::recorded_all(inputs(), answer, backward) } else { answer }
    }

    /// The gradient of a loss on the tape for each parameter, flat and in their order; none where the loss does not depend on it.
    #[cfg(test)]
    pub fn backward(self, loss: &Tensor<1>) -> Vec<Option<Tensor<1>>> {
        self.backward_by(loss, None).0
    }

    /// The gradient of a loss on the tape for each parameter, flat and in their order; none where the loss does not depend on it. With the marks of groups that are to be watched.
    pub fn backward_by(self, loss: &Tensor<1>, groups: Option<&Groups>) -> (Vec<Option<Tensor<1>>>, Marks) {
        let number = |(place, parameter): (usize, &Tensor<1>)| {
            tape::numbered(parameter).filter(|_| !self.reshaped.borrow().contains(&place))
        };
        let numbers = || self.parameters.iter().enumerate().map(number).collect();
        let (mut tape, marks) = match groups {
            Some(groups) => early::watched(groups, numbers(), &self.device, || loss.backward()),
            None => (loss.backward(), Marks::default()),
        };
        let gradient = |parameter: &Tensor<1>| parameter.grad_remove(&mut tape).map(tape::clean);
        (self.parameters.iter().map(gradient).collect(), marks)
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

    /// Sets a running statistic, off the tape.
    pub fn set_running(&mut self, name: &str, value: Tensor<1>) {
        let place = self.statistic(name);
        self.running[place] = value;
    }

    fn statistic(&self, name: &str) -> usize {
        let Some((place, _)) = self.statistics.find(name) else { panic!("the model has no statistic `{name}`") };
        place
    }

    /// A part of the model begins its work on a micro-batch: what it draws does not depend on which parts were gone through before.
    pub fn begin(&mut self, part: usize, micro_batch: usize) {
        if let Some(training) = &mut self.training {
            // No part draws 64 things, no model has 256 parts, and no step 64 micro-batches.
            training.drawn = (wide(micro_batch) << 14) + (wide(part) << 6);
        }
    }

    /// 32 random bits for the next thing that this step draws on the device; none where nothing is drawn.
    pub fn key(&mut self) -> Option<u32> {
        let training = self.training.as_mut()?;
        training.drawn += 1;
        // No step draws as many things as that.
        let index = training.step.wrapping_mul(1 << 20).wrapping_add(training.drawn);
        let bits = Rng::new(training.seed, Stream::Dropout, index).bits();
        u32::try_from(bits >> 32).ok()
    }

    /// Where tensors live.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// Running values as they start: the statistics of nothing.
pub fn fresh(param_specs: &[super::parameters::ParamSpec], device: &Device) -> Vec<Tensor<1>> {
    super::parameters::initial(param_specs, 0)
        .into_iter()
        .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), device))
        .collect()
}

/// Whole numbers as a tensor.
pub fn whole<const D: usize>(values: &[i32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}
