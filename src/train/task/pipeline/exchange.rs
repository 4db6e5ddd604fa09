//! Communication between stages: activations, their gradients, gradients of parameters on two stages, and inference
//! outputs.

use super::boundary::Boundary;
use super::{PipelineStage, run};
use crate::TrainError;
use crate::forward_context::ForwardContext;
use crate::models::Input;
use crate::models::units::Activation;
use crate::parallel::{FlatTensor, SyncPoint};
use crate::task::Step;
use burn::tensor::Tensor;
use std::time::Duration;

/// Inference batches that may be pending between two stages.
const AHEAD: usize = 2;

impl PipelineStage {
    /// Adds the other stage's gradient to each gradient of a parameter that two stages have.
    pub(super) fn tie(&self, step: &Step<'_>, gradients: &mut [Tensor<1>]) -> Result<(), TrainError> {
        for (place, other) in self.stages.tied(self.number) {
            let Some(mine) = gradients.get(place).cloned() else { continue };
            let send = |mine: Tensor<1>| {
                let shape = vec![mine.dims()[0]];
                self.send_tensors(step, "tied", other, vec![FlatTensor { values: mine, shape }])
            };
            // If both stages sent first, they would wait for each other.
            let sends_first = self.number < other;
            if sends_first {
                send(mine.clone())?;
            }
            let Some(theirs) = self.received(step, "tied", other)?.pop() else { continue };
            if !sends_first {
                send(mine.clone())?;
            }
            // The order is the same on both stages, so that both get the same bits.
            let [first, second] = if sends_first { [mine, theirs.values] } else { [theirs.values, mine] };
            gradients[place] = first + second;
        }
        Ok(())
    }

    pub(super) fn receive(&self, step: &Step<'_>, phase: &'static str, from: usize) -> Result<Boundary, TrainError> {
        Ok(Boundary::from_flat_tensors(self.received(step, phase, from)?))
    }

    fn received(&self, step: &Step<'_>, phase: &'static str, from: usize) -> Result<Vec<FlatTensor>, TrainError> {
        let Some(endpoint) = &self.endpoint else { panic!("one stage waits for no other") };
        let inner = step.inner;
        let at = SyncPoint { what: phase, index: step.number, limit: inner.wait_limit };
        if inner.waits {
            // The stage's own computation does not count as waiting.
            inner.place.sync()?;
        }
        let received = inner.phase("wait", || Ok(endpoint.receive(from, at)?))?;
        inner.sink.doing(phase, step.number, inner.limit);
        Ok(received)
    }

    pub(super) fn send(
        &self,
        step: &Step<'_>,
        phase: &'static str,
        to: usize,
        boundary: Boundary,
    ) -> Result<(), TrainError> {
        self.send_tensors(step, phase, to, boundary.into_flat_tensors())
    }

    fn send_tensors(
        &self,
        step: &Step<'_>,
        phase: &'static str,
        to: usize,
        tensors: Vec<FlatTensor>,
    ) -> Result<(), TrainError> {
        let Some(endpoint) = &self.endpoint else { panic!("one stage has no other to send to") };
        let inner = step.inner;
        let at = SyncPoint { what: phase, index: step.number, limit: inner.wait_limit };
        Ok(endpoint.send(to, at, tensors)?)
    }

    /// Runs this stage's part of inference. Returns `more` of the outputs on the last stage and `None` on the others.
    pub(super) fn answered<T>(
        &mut self,
        (parameters, limit): (&[Tensor<1>], Option<Duration>),
        input: Option<Input>,
        more: impl FnOnce(&ForwardContext<'_>, Tensor<2>) -> T,
    ) -> Result<Option<T>, TrainError> {
        self.exchanges += 1;
        let at = SyncPoint { what: "answers", index: self.exchanges, limit };
        let (number, last, units) = (self.number, self.last(), self.stages.units(self.number));
        let activation = match (input, &self.endpoint) {
            (Some(input), _) => Activation::Input(input),
            (None, Some(endpoint)) => Boundary::from_flat_tensors(endpoint.receive(number - 1, at)?).activation(),
            (None, None) => panic!("one stage has the input"),
        };
        let (model, mut ctx) = self.network.inference(parameters);
        let output = run(model, &mut ctx, units, activation, 0);
        if last {
            return Ok(Some(more(&ctx, output.rows())));
        }
        if let Some(endpoint) = &self.endpoint {
            // Limits the number of pending messages, because sent tensors occupy memory until they are copied.
            endpoint.wait_pending(number + 1, AHEAD, at)?;
            endpoint.release(AHEAD, at)?;
            endpoint.send(number + 1, at, Boundary::of(output).into_flat_tensors())?;
        }
        Ok(None)
    }

    /// Returns the last stage's value on the first stage, and `None` on the others.
    pub(super) fn led(
        &self,
        found: Option<Tensor<1>>,
        limit: Option<Duration>,
    ) -> Result<Option<Tensor<1>>, TrainError> {
        let Some(endpoint) = &self.endpoint else { return Ok(found) };
        let at = SyncPoint { what: "answered", index: self.exchanges, limit };
        match found {
            Some(values) => {
                let shape = values.dims().to_vec();
                endpoint.send(0, at, vec![FlatTensor { values, shape }])?;
                Ok(None)
            }
            None if self.first() => {
                Ok(endpoint.receive(self.stages.count() - 1, at)?.pop().map(|tensor| tensor.values))
            }
            None => Ok(None),
        }
    }
}
