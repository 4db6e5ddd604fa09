//! The context of a model's forward pass over a batch: parameters by name, number format, and training or inference.
//!
//! Knows nothing of any model. Layers (`layers`) take what they need from it. A missing name is a fault of the model's
//! code.

use crate::gradient_readiness::{self, ParameterGroups, ReadyMarks};
use crate::number::wide;
use crate::parameters::Index;
use crate::precision::Precision;
use crate::rng::{Rng, Stream};
use crate::tape::{self, Plain, Taped};
use burn::tensor::{Device, Int, Shape, Tensor, TensorData};
use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// The place in which one operation leaves a second part of an output's gradient for the operation that computed the
/// output.
pub type SecondPart = Arc<Mutex<Option<Tensor<4>>>>;

/// The parameters of a model and everything else that its forward pass depends on.
pub struct ForwardContext<'a> {
    index: &'a Index,
    parameters: &'a [Tensor<1>],
    statistics: &'a Index,
    running: &'a mut [Tensor<1>],
    /// Number format of products and convolutions.
    pub precision: Precision,
    training: Option<Training>,
    /// Whether the loss is on a tape.
    taped: bool,
    /// The tape's ids of parameters whose gradients a built-in operation of Burn computes, which does not report them.
    untracked: RefCell<BTreeSet<u64>>,
    /// By the tape's id of an output: the places for gradients that may come in two parts.
    second_parts: RefCell<HashMap<u64, SecondPart>>,
    /// The positions whose outputs are computed; `None` for all.
    selected: Option<Tensor<1, Int>>,
    /// Results of earlier passes that depend on parameters only, if constants are folded.
    folded: Option<&'a Folded>,
    device: Device,
}

/// Folded constants: results that depend on parameters and running statistics only, by name. These must not change
/// between the passes that share it.
#[derive(Default)]
pub struct Folded(RefCell<HashMap<String, Box<dyn Any + Send>>>);

/// The source of a training step's random keys.
#[derive(Clone, Copy)]
struct Training {
    seed: u64,
    step: u64,
    keys_used: u64,
}

/// A model's parameters and running statistics, their number format and their device.
pub struct ModelState<'a> {
    /// The index of the parameters.
    pub index: &'a Index,
    /// Their values, flat, float32; on a tape for a training step.
    pub parameters: &'a [Tensor<1>],
    /// The index of the running statistics.
    pub statistics: &'a Index,
    /// Their values, flat, float32, never on a tape.
    pub running: &'a mut [Tensor<1>],
    /// Number format of products and convolutions.
    pub precision: Precision,
    /// The device of the tensors.
    pub device: Device,
}

impl<'a> ForwardContext<'a> {
    /// A forward pass in inference: no dropout, and running statistics are used but not updated.
    pub fn inference(state: ModelState<'a>) -> Self {
        Self::new(state, None, false)
    }

    /// A forward pass in inference that folds constants. Parameters and running statistics must be the same in all
    /// passes with this `folded`.
    pub fn folding(state: ModelState<'a>, folded: &'a Folded) -> Self {
        Self { folded: Some(folded), ..Self::inference(state) }
    }

    /// The forward pass of a training step, with its parameters on a tape.
    pub fn training(state: ModelState<'a>, seed: u64, step: u64) -> Self {
        Self::new(state, Some(Training { seed, step, keys_used: 0 }), true)
    }

    /// A forward pass in inference, with its parameters on a tape.
    #[cfg(test)]
    pub fn inference_on_tape(state: ModelState<'a>) -> Self {
        Self::new(state, None, true)
    }

    /// A forward pass in inference through layers without parameters, on a tape.
    #[cfg(test)]
    pub fn without_parameters(precision: Precision, device: &Device) -> Self {
        static NONE: std::sync::LazyLock<Index> = std::sync::LazyLock::new(Index::default);
        let (index, statistics, device) = (&*NONE, &*NONE, device.clone());
        Self::inference_on_tape(ModelState { index, parameters: &[], statistics, running: &mut [], precision, device })
    }

    fn new(state: ModelState<'a>, training: Option<Training>, taped: bool) -> Self {
        let ModelState { index, parameters, statistics, running, precision, device } = state;
        Self {
            index,
            parameters,
            statistics,
            running,
            precision,
            training,
            taped,
            untracked: RefCell::default(),
            second_parts: RefCell::default(),
            selected: None,
            folded: None,
            device,
        }
    }

    /// Limits the outputs to these positions, in this order. The model must [support
    /// it](crate::models::Model::selects_positions).
    pub fn select_positions(&mut self, positions: Tensor<1, Int>) {
        self.selected = Some(positions);
    }

    /// The positions whose outputs are computed, off the tape; `None` for all.
    pub fn selected_positions(&self) -> Option<Tensor<1, Int>> {
        self.selected.clone()
    }

    /// Whether this is a training step.
    pub fn is_training(&self) -> bool {
        self.training.is_some()
    }

    /// Whether constants are folded, so that it pays to [compute more of them](Self::constant_of).
    pub fn folds(&self) -> bool {
        self.folded.is_some()
    }

    /// Returns the result of a computation that depends on parameters and running statistics only. If constants are
    /// folded, it is computed once and stored under its name, which must be unique.
    pub fn constant_of<T: Clone + Send + 'static>(&self, name: &str, compute: impl FnOnce() -> T) -> T {
        let Some(Folded(folded)) = self.folded else { return compute() };
        if let Some(found) = folded.borrow().get(name).and_then(|found| found.downcast_ref::<T>()) {
            return found.clone();
        }
        let computed = compute();
        folded.borrow_mut().insert(name.to_owned(), Box::new(computed.clone()));
        computed
    }

    /// Whether the parameters are on a tape.
    pub fn taped(&self) -> bool {
        self.taped
    }

    /// Whether the model has this parameter.
    pub fn has(&self, name: &str) -> bool {
        self.index.find(name).is_some()
    }

    /// A parameter in float32, in its shape.
    pub fn parameter<const D: usize>(&self, name: &str) -> Tensor<D> {
        let (values, shape) = self.flat_parameter(name);
        match (D, shape) {
            // It has its shape already, and a tape would record every reshape.
            (1, [_]) => Tensor::from_dispatch(values.into_dispatch()),
            _ => {
                self.mark_untracked(&values);
                values.reshape(Shape::from(shape.to_vec()))
            }
        }
    }

    /// Excludes a parameter from gradient readiness because a built-in operation of Burn uses it, which does not report
    /// its gradient.
    pub fn mark_untracked(&self, parameter: &Tensor<1>) {
        self.untracked.borrow_mut().extend(tape::numbered(parameter));
    }

    /// Declares that the operation that computed an output adds the contents of `part` to the output's gradient.
    pub fn takes_second_part(&self, answer: &Tensor<4>, part: SecondPart) {
        self.second_parts.borrow_mut().extend(tape::numbered(answer).map(|number| (number, part)));
    }

    /// Returns the place for a second part of a tensor's gradient, once. `None` if the operation that computed the
    /// tensor takes no second part.
    pub fn second_part(&self, of: &Tensor<4>) -> Option<SecondPart> {
        tape::numbered(of).and_then(|number| self.second_parts.borrow_mut().remove(&number))
    }

    /// Returns a parameter in float32 as it is stored, flat, and its shape. This adds nothing to the tape.
    pub fn flat_parameter(&self, name: &str) -> (Tensor<1>, &'a [usize]) {
        let Some((place, shape)) = self.index.find(name) else { panic!("the model has no parameter `{name}`") };
        (self.parameters[place].clone(), shape)
    }

    /// Rounds to the context's number format.
    pub fn round<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        self.precision.round(tensor)
    }

    /// Returns a tensor without a gradient that can be combined with the parameters.
    pub fn constant<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        if self.taped { Tensor::from_inner(tensor) } else { tensor }
    }

    /// Returns an integer tensor that can be combined with the parameters.
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

    /// Puts an output that was computed off the tape from `inputs` on the tape, if there is one ([`tape::recorded`]).
    pub fn recorded<const N: usize, const D: usize>(
        &self,
        inputs: impl FnOnce() -> [Taped; N],
        answer: Tensor<D>,
        backward: impl FnOnce(Tensor<D>, [bool; N]) -> [Option<Plain>; N] + Send + 'static,
    ) -> Tensor<D> {
        if self.taped { tape::recorded(inputs(), answer, backward) } else { answer }
    }

    /// Puts two outputs that were computed together off the tape on the tape, if there is one
    /// ([`tape::recorded_twice`]).
    pub fn recorded_twice<const N: usize, const D: usize, const E: usize>(
        &self,
        inputs: impl FnOnce() -> [Taped; N],
        answers: (Tensor<D>, Tensor<E>),
        backward: impl FnOnce((Tensor<D>, Option<Tensor<E>>), [bool; N]) -> [Option<Plain>; N] + Send + 'static,
    ) -> (Tensor<D>, Tensor<E>) {
        if self.taped { tape::recorded_twice(inputs(), answers, backward) } else { answers }
    }

    /// [`Self::recorded`] for a variable number of inputs ([`tape::recorded_all`]).
    pub fn recorded_all<const D: usize>(
        &self,
        inputs: impl FnOnce() -> Vec<Taped>,
        answer: Tensor<D>,
        backward: impl FnOnce(Tensor<D>, &[bool]) -> Vec<Option<Plain>> + Send + 'static,
    ) -> Tensor<D> {
        if self.taped { tape::recorded_all(inputs(), answer, backward) } else { answer }
    }

    /// Returns the gradient of a loss on the tape for each parameter, flat and in order; `None` if the loss does not
    /// depend on it.
    #[cfg(test)]
    pub fn backward(self, loss: &Tensor<1>) -> Vec<Option<Tensor<1>>> {
        self.backward_by(loss, None).0
    }

    /// Returns the gradient of a loss on the tape for each parameter, flat and in order; `None` if the loss does not
    /// depend on it. Also returns the marks of the watched groups.
    pub fn backward_by(
        self,
        loss: &Tensor<1>,
        groups: Option<&ParameterGroups>,
    ) -> (Vec<Option<Tensor<1>>>, ReadyMarks) {
        let tracked = |parameter: &Tensor<1>| {
            tape::numbered(parameter).filter(|number| !self.untracked.borrow().contains(number))
        };
        let numbers = || self.parameters.iter().map(tracked).collect();
        let (mut tape, marks) = match groups {
            Some(groups) => gradient_readiness::watch_backward(groups, numbers(), &self.device, || loss.backward()),
            None => (loss.backward(), ReadyMarks::default()),
        };
        let gradient = |parameter: &Tensor<1>| parameter.grad_remove(&mut tape).map(tape::clean);
        (self.parameters.iter().map(gradient).collect(), marks)
    }

    /// Returns a running statistic, a constant in float32.
    pub fn running(&self, name: &str) -> Tensor<1> {
        self.constant(self.running[self.statistic(name)].clone())
    }

    /// Updates a running statistic: `(1 - share)·old + share·value`.
    pub fn update_running(&mut self, name: &str, value: Tensor<1>, share: f64) {
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

    /// Begins a unit of the model on a micro-batch. Its dropout keys do not depend on the units that ran before.
    pub fn begin(&mut self, part: usize, micro_batch: usize) {
        if let Some(training) = &mut self.training {
            // No part draws 64 keys, no model has 256 parts, and no step has 64 micro-batches.
            training.keys_used = (wide(micro_batch) << 14) + (wide(part) << 6);
        }
    }

    /// 32 random bits, the key of the step's next dropout mask on the device; `None` in inference.
    pub fn dropout_key(&mut self) -> Option<u32> {
        let training = self.training.as_mut()?;
        training.keys_used += 1;
        // No step draws 2^20 keys.
        let index = training.step.wrapping_mul(1 << 20).wrapping_add(training.keys_used);
        let bits = Rng::new(training.seed, Stream::Dropout, index).bits();
        u32::try_from(bits >> 32).ok()
    }

    /// Whether the same pass could be replayed for another step: it drew no dropout key.
    pub fn repeats(&self) -> bool {
        self.training.is_none_or(|training| training.keys_used == 0)
    }

    /// The device of the tensors.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// Returns the initial running statistics.
pub fn initial_statistics(param_specs: &[crate::parameters::ParamSpec], device: &Device) -> Vec<Tensor<1>> {
    crate::parameters::initial(param_specs, 0)
        .into_iter()
        .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), device))
        .collect()
}

/// Returns an integer tensor of these values.
pub fn int_tensor<const D: usize>(values: &[i32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}
