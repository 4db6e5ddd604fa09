//! A model with its running statistics, ready for forward passes.

use super::{Gradients, Step};
use crate::device::Place;
use crate::forward_context::{Folded, ForwardContext, ModelState, initial_statistics};
use crate::models::detector::Detector;
use crate::models::{Input, Model};
use crate::parameters::{Index, ParamSpec};
use crate::precision::Precision;
use burn::tensor::Tensor;

/// A model and everything that its forward passes need besides the parameters.
pub struct Network<M: ?Sized = dyn Model> {
    /// The model.
    pub model: Box<M>,
    /// Its parameters in their order.
    pub param_specs: Vec<ParamSpec>,
    /// The device of the tensors.
    pub place: Place,
    /// Its running statistics.
    pub running: Vec<Tensor<1>>,
    index: Index,
    statistics: Index,
    precision: Precision,
}

impl<M: ?Sized> Network<M> {
    /// A model, or a part of it, with these parameters and initial running statistics.
    pub fn part(
        model: Box<M>,
        [param_specs, statistics]: [Vec<ParamSpec>; 2],
        precision: Precision,
        place: &Place,
    ) -> Self {
        Self {
            index: Index::new(&param_specs),
            statistics: Index::new(&statistics),
            running: initial_statistics(&statistics, &place.device()),
            param_specs,
            model,
            place: place.clone(),
            precision,
        }
    }

    /// Returns the model and the context of a training step with these leaves as parameters.
    pub fn training<'a>(&'a mut self, leaves: &'a [Tensor<1>], [seed, step]: [u64; 2]) -> (&'a M, ForwardContext<'a>) {
        let (model, state) = self.state(leaves);
        (model, ForwardContext::training(state, seed, step))
    }

    /// [`Self::training`] with these running statistics instead of the network's own.
    pub fn training_with<'a>(
        &'a self,
        parameters: &'a [Tensor<1>],
        running: &'a mut [Tensor<1>],
        [seed, step]: [u64; 2],
    ) -> (&'a M, ForwardContext<'a>) {
        let (index, statistics) = (&self.index, &self.statistics);
        let (precision, device) = (self.precision, self.place.device());
        let state = ModelState { index, parameters, statistics, running, precision, device };
        (&*self.model, ForwardContext::training(state, seed, step))
    }

    /// Returns the model and the context of inference with these parameters, off any tape.
    pub fn inference<'a>(&'a mut self, parameters: &'a [Tensor<1>]) -> (&'a M, ForwardContext<'a>) {
        let (model, state) = self.state(parameters);
        (model, ForwardContext::inference(state))
    }

    /// [`Self::inference`] that folds constants. Parameters and running statistics must be the same in all passes with
    /// this `folded`.
    pub fn folding<'a>(&'a mut self, parameters: &'a [Tensor<1>], folded: &'a Folded) -> (&'a M, ForwardContext<'a>) {
        let (model, state) = self.state(parameters);
        (model, ForwardContext::folding(state, folded))
    }

    fn state<'a>(&'a mut self, parameters: &'a [Tensor<1>]) -> (&'a M, ModelState<'a>) {
        let Self { model, index, statistics, running, precision, place, .. } = self;
        let (precision, device) = (*precision, place.device());
        (&**model, ModelState { index, parameters, statistics, running, precision, device })
    }
}

impl Network {
    /// A model with its initial running statistics.
    pub fn new(model: Box<dyn Model>, precision: Precision, place: &Place) -> Self {
        let parts = [model.param_specs(), model.statistics()];
        Self::part(model, parts, precision, place)
    }

    /// Runs inference with these parameters and returns `more` of the outputs.
    pub fn answer<T>(
        &mut self,
        parameters: &[Tensor<1>],
        input: Input,
        more: impl FnOnce(&ForwardContext<'_>, Tensor<2>) -> T,
    ) -> T {
        let (model, mut ctx) = self.inference(parameters);
        let answers = model.forward(&mut ctx, input);
        more(&ctx, answers)
    }
}

impl Network<dyn Detector> {
    /// A detector with its initial running statistics.
    pub fn detector(model: Box<dyn Detector>, precision: Precision, place: &Place) -> Self {
        let parts = [model.param_specs(), model.statistics()];
        Self::part(model, parts, precision, place)
    }
}

/// Returns parameters as leaves of a new tape.
pub fn leaves(parameters: &[Tensor<1>]) -> Vec<Tensor<1>> {
    parameters.iter().map(|parameter| Tensor::from_inner(parameter.clone()).require_grad()).collect()
}

/// Returns the outputs of a training step, on the tape.
pub fn answer_taped(model: &dyn Model, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2> {
    let input = input.taped(ctx);
    model.forward(ctx, input)
}

/// Returns the loss off the tape, and the gradient of every parameter that it depends on, times the step's scale. The
/// loss is the mean of `mean_of` samples or tokens.
pub fn backward(ctx: ForwardContext<'_>, loss: Tensor<1>, step: &Step<'_>, mean_of: usize) -> Gradients {
    let scaled = if step.scale == 1.0 { loss.clone() } else { loss.clone() * step.scale };
    let (gradients, marks) = ctx.backward_by(&scaled, step.groups);
    let gradients = gradients.into_iter().flatten().collect();
    Gradients { loss: loss.inner(), gradients, mean_of: Some(mean_of), marks }
}
