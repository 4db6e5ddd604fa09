//! Work of training steps that the device replays: recorded once as a CUDA graph, it computes the same bits as the work that it was recorded from, and the host
//! launches one graph instead of hundreds of kernels.
//!
//! Replayed is work that is the same in each step but for the values that it reads: without random numbers of the device and loss scaling, by one process, of
//! whole batches. A graph takes memory of its own, so steps must be small. All other work is done as always.

use super::{Gradients, Step};
use crate::TrainError;
use crate::device::shortened;
use crate::gradient_readiness::ReadyMarks;
use crate::native;
use crate::native::step_graph::{Operand, Operands, StepGraph, copy_into};
use burn::tensor::{Device, Tensor};
use ledger_record::{EventKind, Value};

/// The fact that says from which step on passes are replayed, or why none are.
const FACT: &str = "step_graph";

/// What a step's passes found, and whether they [repeat](crate::forward_context::ForwardContext::repeats).
pub type Found = (Gradients, bool);

/// Work of a task, and the graph that stands for it once it is recorded.
#[derive(Default)]
pub enum Replayed<T> {
    /// It was not recorded yet.
    #[default]
    Unrecorded,
    /// It was.
    Recorded(Box<Recorded<T>>),
    /// It cannot be.
    Never,
}

/// Recorded work.
pub struct Recorded<T> {
    graph: StepGraph,
    /// Where the work reads and leaves what it keeps from step to step.
    state: Vec<Tensor<1>>,
    /// What it computes, overwritten by each replay.
    found: T,
}

/// The loss and the gradients of a step.
pub struct Passes {
    loss: Tensor<1>,
    gradients: Vec<Tensor<1>>,
    /// How many samples or tokens the loss is the mean of.
    mean_of: Option<usize>,
}

impl<T> Replayed<T> {
    /// The tensors that a graph reads in this step. `None` if this step cannot be replayed.
    fn may_take(
        &self,
        step: &Step<'_>,
        parameters: &[Tensor<1>],
        state: &[Tensor<1>],
        inputs: &impl Operands,
    ) -> Option<Vec<Operand>> {
        let may = step.may_replay && !matches!(self, Self::Never);
        may.then(|| operands(parameters, state, inputs)).flatten()
    }

    /// The recorded work, if it takes these values.
    fn taking(&self, operands: &[Operand]) -> Option<&Recorded<T>> {
        match self {
            Self::Recorded(recorded) if recorded.graph.takes(operands) => Some(recorded),
            _ => None,
        }
    }

    /// Records the work, which was done at least once before. Parameters and state are copied. The inputs become the graph's: nobody may use them afterwards.
    /// If the device cannot record it, the answer says why.
    fn record<I: Operands>(
        &mut self,
        step: &Step<'_>,
        (parameters, state): (&[Tensor<1>], &[Tensor<1>]),
        inputs: &I,
        mut work: impl FnMut(&[Tensor<1>], &mut Vec<Tensor<1>>, I) -> Result<T, TrainError>,
    ) -> Result<Result<(), String>, TrainError> {
        *self = Self::Never;
        let device = step.inner.place.device();
        if !has_room(&device) {
            return Ok(Err("more than a sixteenth of the GPU's memory is in use".to_owned()));
        }
        // What fails from here on is the recording.
        step.inner.place.sync()?;
        step.inner.place.check()?;
        // The graph gets copies: the optimiser updates parameters in place only if nothing else holds them.
        let own = |tensors: &[Tensor<1>]| tensors.iter().map(|tensor| tensor.clone() * 1.0).collect::<Vec<_>>();
        let (parameters, kept) = (own(parameters), own(state));
        let elsewhere = || Ok(Err("its values are elsewhere".to_owned()));
        let (Some(operands), Some(places)) = (operands(&parameters, &kept, inputs), all(&kept)) else {
            return elsewhere();
        };
        let recorded = StepGraph::record(&device, operands, || {
            let mut state = kept.clone();
            let found = work(&parameters, &mut state, inputs.clone())?;
            let Some(left) = all(&state) else { return Ok(None) };
            copy_into(&places, &left);
            Ok::<Option<T>, TrainError>(Some(found))
        });
        let (graph, found) = match recorded {
            Ok((graph, found)) => (graph, found?),
            Err(fault) => return Ok(Err(shortened(&fault.to_string()))),
        };
        let Some(found) = found else { return elsewhere() };
        *self = Self::Recorded(Box::new(Recorded { graph, state: kept, found }));
        Ok(Ok(()))
    }
}

impl<T> Recorded<T> {
    /// Replays the graph with these operands. Afterwards the state is the graph's own tensors.
    fn replay(&self, operands: &[Operand], state: &mut Vec<Tensor<1>>) -> &T {
        self.graph.replay(operands);
        state.clone_from(&self.state);
        &self.found
    }
}

impl Replayed<Passes> {
    /// The loss and the gradients of a step, by `passes` or by the graph that was recorded of them. The passes may read and replace the state, which nothing else
    /// changes in place. The loss is the mean of `mean_of` samples or tokens.
    pub fn gradients<I: Operands>(
        &mut self,
        step: &Step<'_>,
        (parameters, state): (&[Tensor<1>], &mut Vec<Tensor<1>>),
        (inputs, mean_of): (I, Option<usize>),
        mut passes: impl FnMut(&[Tensor<1>], &mut Vec<Tensor<1>>, I) -> Result<Found, TrainError>,
    ) -> Result<Gradients, TrainError> {
        let Some(operands) = self.may_take(step, parameters, state, &inputs) else {
            return Ok(passes(parameters, state, inputs)?.0);
        };
        if let Some(recorded) = self.taking(&operands).filter(|recorded| recorded.found.mean_of == mean_of) {
            return step.inner.phase("forward", || Ok(recorded.replay(&operands, state).gradients()));
        }
        let (found, repeats) = passes(parameters, state, inputs.clone())?;
        if matches!(self, Self::Unrecorded) {
            let recorded = if repeats {
                self.record(step, (parameters, state), &inputs, |parameters, state, inputs| {
                    let Gradients { loss, gradients, .. } = passes(parameters, state, inputs)?.0;
                    Ok(Passes { loss, gradients, mean_of })
                })?
            } else {
                *self = Self::Never;
                Err("steps draw random numbers".to_owned())
            };
            let told = match recorded {
                Ok(()) => format!("from step {}", step.number + 1),
                Err(why) => format!("none: {why}"),
            };
            step.inner.sink.emit(EventKind::Fact { name: FACT.to_owned(), value: Value::from(told) });
        }
        Ok(found)
    }
}

impl Passes {
    fn gradients(&self) -> Gradients {
        Gradients {
            // It is read later than the next step is done.
            loss: self.loss.clone() * 1.0,
            gradients: self.gradients.clone(),
            mean_of: self.mean_of,
            marks: ReadyMarks::default(),
        }
    }
}

impl<const D: usize> Replayed<Tensor<D>> {
    /// The answers to inputs, by `pass` or by the graph that was recorded of it. The next answers overwrite them.
    pub fn answers<I: Operands>(
        &mut self,
        step: &Step<'_>,
        parameters: &[Tensor<1>],
        inputs: I,
        mut pass: impl FnMut(&[Tensor<1>], I) -> Tensor<D>,
    ) -> Result<Tensor<D>, TrainError> {
        let Some(operands) = self.may_take(step, parameters, &[], &inputs) else {
            return Ok(pass(parameters, inputs));
        };
        if let Some(recorded) = self.taking(&operands) {
            return Ok(recorded.replay(&operands, &mut Vec::new()).clone());
        }
        let answers = pass(parameters, inputs.clone());
        if matches!(self, Self::Unrecorded) {
            // Where that fails, answers are computed as always.
            let work = |parameters: &[Tensor<1>], _: &mut Vec<Tensor<1>>, inputs| Ok(pass(parameters, inputs));
            let _ = self.record(step, (parameters, &[]), &inputs, work)?;
        }
        Ok(answers)
    }
}

/// Tensors as a graph reads them. None where it cannot.
fn all(tensors: &[Tensor<1>]) -> Option<Vec<Operand>> {
    tensors.iter().map(Operand::of).collect()
}

fn operands(parameters: &[Tensor<1>], state: &[Tensor<1>], inputs: &impl Operands) -> Option<Vec<Operand>> {
    Some([all(parameters)?, all(state)?, inputs.operands()?].concat())
}

/// Whether at most one sixteenth of the device's memory is in use: while a graph is recorded no memory of the step is used twice.
fn has_room(device: &Device) -> bool {
    let share = native::card_of(device).and_then(|card| native::memory::share_in_use(card).ok());
    share.is_some_and(|share| share <= 1.0 / 16.0)
}
