//! Training steps that the device replays: the forward and backward pass of a step, recorded once as a CUDA graph. It computes the same bits as the step that it was recorded from, and the host launches one graph instead of hundreds of kernels.
//!
//! Replayed are steps whose work is the same but for the values that it reads: without random numbers of the device, running statistics and loss scaling, by one
//! process, of whole batches. A graph takes memory of its own, so they must be small. All other steps are done as always.

use super::{Gradients, Step};
use crate::TrainError;
use crate::device::shortened;
use crate::gradient_readiness::ReadyMarks;
use crate::native;
use crate::native::step_graph::{Operand, Operands, StepGraph};
use burn::tensor::{Device, Tensor};
use ledger_record::{EventKind, Value};

/// The fact that says from which step on steps are replayed, or why none is.
const FACT: &str = "step_graph";

/// What a step's passes found, and whether they [repeat](crate::forward_context::ForwardContext::repeats).
pub type Found = (Gradients, bool);

/// The steps of a task, and the graph that stands for them once it is recorded.
#[derive(Default)]
pub enum Replayed {
    /// No step was recorded yet.
    #[default]
    Unrecorded,
    /// This one was.
    Recorded(Box<Recorded>),
    /// None can be.
    Never,
}

/// A recorded step.
pub struct Recorded {
    graph: StepGraph,
    /// What it computes, overwritten by each replay.
    loss: Tensor<1>,
    gradients: Vec<Tensor<1>>,
    mean_of: Option<usize>,
}

impl Replayed {
    /// The loss and the gradients of a step, by `passes` or by the graph that was recorded of them. The loss is the mean of `mean_of` samples or tokens.
    pub fn gradients<I: Operands>(
        &mut self,
        step: &Step<'_>,
        parameters: &[Tensor<1>],
        (inputs, mean_of): (I, Option<usize>),
        mut passes: impl FnMut(&[Tensor<1>], I) -> Result<Found, TrainError>,
    ) -> Result<Gradients, TrainError> {
        let may_replay = step.may_replay && !matches!(self, Self::Never);
        let operands = if may_replay { operands(parameters, &inputs) } else { None };
        let Some(operands) = operands else { return Ok(passes(parameters, inputs)?.0) };
        if let Self::Recorded(recorded) = self
            && recorded.mean_of == mean_of
            && recorded.graph.takes(&operands)
        {
            return step.inner.phase("forward", || Ok(recorded.replay(&operands)));
        }
        let (found, repeats) = passes(parameters, inputs.clone())?;
        if matches!(self, Self::Unrecorded) {
            let device = step.inner.place.device();
            let recorded = if !repeats {
                Err("steps draw random numbers or keep running statistics".to_owned())
            } else if !has_room(&device) {
                Err("more than a sixteenth of the GPU's memory is in use".to_owned())
            } else {
                // What fails from here on is the recording.
                step.inner.place.sync()?;
                step.inner.place.check()?;
                Recorded::of(&device, parameters, (inputs, mean_of), &mut passes)?
            };
            let (now, told) = match recorded {
                Ok(recorded) => (Self::Recorded(Box::new(recorded)), format!("from step {}", step.number + 1)),
                Err(why) => (Self::Never, format!("none: {why}")),
            };
            *self = now;
            step.inner.sink.emit(EventKind::Fact { name: FACT.to_owned(), value: Value::from(told) });
        }
        Ok(found)
    }
}

impl Recorded {
    /// Records the passes. Otherwise it says why the device cannot.
    fn of<I: Operands>(
        device: &Device,
        parameters: &[Tensor<1>],
        (inputs, mean_of): (I, Option<usize>),
        passes: &mut impl FnMut(&[Tensor<1>], I) -> Result<Found, TrainError>,
    ) -> Result<Result<Self, String>, TrainError> {
        // Parameters are updated where they are, which nobody else may hold.
        let own: Vec<Tensor<1>> = parameters.iter().map(|parameter| parameter.clone() * 1.0).collect();
        let Some(operands) = operands(&own, &inputs) else { return Ok(Err("its inputs are elsewhere".to_owned())) };
        match StepGraph::record(device, operands, || passes(&own, inputs.clone())) {
            Ok((graph, found)) => {
                let Gradients { loss, gradients, .. } = found?.0;
                Ok(Ok(Self { graph, loss, gradients, mean_of }))
            }
            Err(fault) => Ok(Err(shortened(&fault.to_string()))),
        }
    }

    fn replay(&self, operands: &[Operand]) -> Gradients {
        self.graph.replay(operands);
        Gradients {
            // It is read later than the next step is done.
            loss: self.loss.clone() * 1.0,
            gradients: self.gradients.clone(),
            mean_of: self.mean_of,
            marks: ReadyMarks::default(),
        }
    }
}

fn operands(parameters: &[Tensor<1>], inputs: &impl Operands) -> Option<Vec<Operand>> {
    parameters.iter().map(Operand::of).chain(inputs.operands()?.into_iter().map(Some)).collect()
}

/// Whether at most one sixteenth of the device's memory is in use: while a graph is recorded no memory of the step is used twice.
fn has_room(device: &Device) -> bool {
    let share = native::card_of(device).and_then(|card| native::memory::share_in_use(card).ok());
    share.is_some_and(|share| share <= 1.0 / 16.0)
}
