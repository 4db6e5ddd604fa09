//! Replayed work of training steps and inference. It is recorded once as a CUDA graph. A replay computes the same bits
//! as the recorded work, and the host launches one graph instead of hundreds of kernels.
//!
//! Work can be replayed if only the values that it reads differ from step to step. This holds for steps on whole
//! batches without random numbers of the device and without loss scaling, and for timed inference. A graph needs memory
//! of its own, so the work must be small. All other work runs as usual.

use super::{Gradients, Step};
use crate::TrainError;
use crate::device::{Place, shortened};
use crate::gradient_readiness::ReadyMarks;
use crate::native;
use crate::native::step_graph::{Operand, Operands, StepGraph, copy_into};
use burn::tensor::Tensor;
use ledger_record::{EventKind, Value};

/// The fact that names the first replayed step, or the reason why none is.
const FACT: &str = "step_graph";

/// A step is recorded if at most 1/16 of the GPU's memory is in use, and inference if at most 1/4. During recording no
/// memory is reused. A forward pass needs less memory than a step.
const PART_FOR_A_STEP: u16 = 16;
const PART_FOR_INFERENCE: u16 = 4;

/// The reason for not recording work that reads or writes a value elsewhere than on the GPU.
const ELSEWHERE: &str = "its values are elsewhere";

/// The results of a step's passes, and whether they [repeat](crate::forward_context::ForwardContext::repeats).
pub type Found = (Gradients, bool);

/// Work of a task, and its graph once it is recorded.
#[derive(Default)]
pub enum Replayed<T> {
    /// It has not been recorded yet.
    #[default]
    Unrecorded,
    /// It has been recorded.
    Recorded(Box<Recorded<T>>),
    /// It cannot be recorded, for this reason.
    Never(String),
}

/// Recorded work.
pub struct Recorded<T> {
    graph: StepGraph,
    /// The tensors that the work reads and updates from step to step.
    state: Vec<Tensor<1>>,
    /// Other tensors that it reads, held so that their memory stays valid.
    _fixed: Vec<Tensor<1>>,
    /// The result, overwritten by each replay.
    found: T,
}

/// The loss and the gradients of a step.
pub struct Passes {
    loss: Tensor<1>,
    gradients: Vec<Tensor<1>>,
    /// The number of samples or tokens that the loss is the mean of.
    mean_of: Option<usize>,
    /// Events behind which the gradients of each group are complete, in each replay. The graph records these events, so
    /// they must live as long as the graph.
    marks: ReadyMarks,
}

impl<T> Replayed<T> {
    /// Returns whether it is replayed: `recorded`, or the reason why not. `None` if it was not tried.
    pub fn outcome(&self) -> Option<&str> {
        match self {
            Self::Unrecorded => None,
            Self::Recorded(_) => Some("recorded"),
            Self::Never(why) => Some(why),
        }
    }

    /// Returns the tensors that a graph reads in this step. `None` if this step cannot be replayed.
    fn may_take(
        &self,
        step: &Step<'_>,
        parameters: &[Tensor<1>],
        state: &[Tensor<1>],
        inputs: &impl Operands,
    ) -> Option<Vec<Operand>> {
        let may = step.may_replay && !matches!(self, Self::Never(_));
        may.then(|| operands(parameters, state, inputs)).flatten()
    }

    /// Returns the recorded work, if it accepts these values.
    fn taking(&self, operands: &[Operand]) -> Option<&Recorded<T>> {
        match self {
            Self::Recorded(recorded) if recorded.graph.takes(operands) => Some(recorded),
            _ => None,
        }
    }

    /// Records work that ran at least once before. The graph copies parameters and state, and takes over the inputs,
    /// which must not be used afterwards. If the device cannot record it, [`Self::outcome`] gives the reason.
    fn record<I: Operands>(
        &mut self,
        place: &Place,
        (parameters, state): (&[Tensor<1>], &[Tensor<1>]),
        inputs: &I,
        mut work: impl FnMut(&[Tensor<1>], &mut Vec<Tensor<1>>, I) -> Result<T, TrainError>,
    ) -> Result<(), TrainError> {
        if let Err(why) = has_room(place, PART_FOR_A_STEP) {
            *self = Self::Never(why);
            return Ok(());
        }
        // The graph gets copies: the optimiser updates parameters in place only if nothing else holds them.
        let own = |tensors: &[Tensor<1>]| tensors.iter().map(|tensor| tensor.clone() * 1.0).collect::<Vec<_>>();
        let (parameters, kept) = (own(parameters), own(state));
        let (Some(operands), Some(places)) = (operands(&parameters, &kept, inputs), all(&kept)) else {
            *self = Self::Never(ELSEWHERE.to_owned());
            return Ok(());
        };
        self.record_with(place, operands, [kept.clone(), Vec::new()], || {
            let mut state = kept.clone();
            let found = work(&parameters, &mut state, inputs.clone())?;
            let Some(left) = all(&state) else { return Ok(None) };
            copy_into(&places, &left);
            Ok(Some(found))
        })
    }

    /// Records work that reads these operands, its state and the `fixed` tensors. The fixed ones must not change while
    /// the recording exists. The work returns `None` if a graph cannot read a value where it is.
    fn record_with(
        &mut self,
        place: &Place,
        operands: Vec<Operand>,
        [state, fixed]: [Vec<Tensor<1>>; 2],
        work: impl FnMut() -> Result<Option<T>, TrainError>,
    ) -> Result<(), TrainError> {
        // Errors after this point come from the recording.
        place.sync()?;
        place.check()?;
        *self = match StepGraph::record(&place.device(), operands, work) {
            Ok((graph, found)) => match found? {
                Some(found) => Self::Recorded(Box::new(Recorded { graph, state, _fixed: fixed, found })),
                None => Self::Never(ELSEWHERE.to_owned()),
            },
            Err(fault) => Self::Never(shortened(&fault.to_string())),
        };
        Ok(())
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
    /// Returns the loss and the gradients of a step, by `passes` or by a graph recorded of them. The passes may read
    /// and replace the state. Nothing else may change it in place. The loss is the mean of `mean_of` samples or tokens.
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
            if repeats {
                self.record(step.inner.place, (parameters, state), &inputs, |parameters, state, inputs| {
                    let Gradients { loss, gradients, marks, .. } = passes(parameters, state, inputs)?.0;
                    Ok(Passes { loss, gradients, mean_of, marks })
                })?;
            } else {
                *self = Self::Never("steps draw random numbers".to_owned());
            }
            let told = match self {
                Self::Never(why) => format!("none: {why}"),
                _ => format!("from step {}", step.number + 1),
            };
            // Each rank decides for itself, by the memory of its GPU.
            let name = if step.rank == 0 { FACT.to_owned() } else { format!("{FACT}.{}", step.rank) };
            step.inner.sink.emit(EventKind::Fact { name, value: Value::from(told) });
        }
        Ok(found)
    }
}

impl Passes {
    fn gradients(&self) -> Gradients {
        Gradients {
            // The loss is read after the next step has overwritten it.
            loss: self.loss.clone() * 1.0,
            gradients: self.gradients.clone(),
            mean_of: self.mean_of,
            marks: self.marks.clone(),
        }
    }
}

impl<T: Clone> Replayed<T> {
    /// Returns the outputs for a batch of timed inference. `pass` computes the first batch and is recorded if
    /// `may_replay`; later batches are replayed. The pass reads the `fixed` tensors, which must not change while the
    /// recording exists. The next call overwrites the outputs.
    pub fn inference<I: Operands>(
        &mut self,
        place: &Place,
        (may_replay, fixed): (bool, &[&[Tensor<1>]]),
        inputs: I,
        mut pass: impl FnMut(I) -> T,
    ) -> Result<T, TrainError> {
        let may_take = may_replay && !matches!(self, Self::Never(_));
        let Some(operands) = may_take.then(|| inputs.operands()).flatten() else { return Ok(pass(inputs)) };
        if let Some(recorded) = self.taking(&operands) {
            return Ok(recorded.replay(&operands, &mut Vec::new()).clone());
        }
        let answers = pass(inputs.clone());
        if matches!(self, Self::Unrecorded) {
            // Memory that training freed counts as in use until it is returned to the driver.
            place.release();
            place.sync()?;
            match has_room(place, PART_FOR_INFERENCE) {
                Ok(()) => {
                    self.record_with(place, operands, [Vec::new(), fixed.concat()], || Ok(Some(pass(inputs.clone()))))?
                }
                Err(why) => *self = Self::Never(why),
            }
        }
        Ok(answers)
    }
}

impl<const D: usize> Replayed<Tensor<D>> {
    /// Returns the outputs for inputs, by `pass` or by a graph recorded of it. The next call overwrites them.
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
            let work = |parameters: &[Tensor<1>], _: &mut Vec<Tensor<1>>, inputs| Ok(pass(parameters, inputs));
            self.record(step.inner.place, (parameters, &[]), &inputs, work)?;
        }
        Ok(answers)
    }
}

/// Returns tensors as a graph reads them. `None` if it cannot.
fn all(tensors: &[Tensor<1>]) -> Option<Vec<Operand>> {
    tensors.iter().map(Operand::of).collect()
}

fn operands(parameters: &[Tensor<1>], state: &[Tensor<1>], inputs: &impl Operands) -> Option<Vec<Operand>> {
    Some([all(parameters)?, all(state)?, inputs.operands()?].concat())
}

/// Returns an error with the reason if more than 1/`part` of the GPU's memory is in use.
fn has_room(place: &Place, part: u16) -> Result<(), String> {
    match place.card().and_then(|card| native::memory::share_in_use(card).ok()) {
        Some(share) if share <= 1.0 / f64::from(part) => Ok(()),
        Some(_) => Err(format!("more than 1/{part} of the GPU's memory is in use")),
        None => Err("the GPU does not tell how much of its memory is in use".to_owned()),
    }
}
