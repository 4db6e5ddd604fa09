//! The time loops of a recurrent layer, forward and backward: at each time step a product of the states and a kernel
//! for the rest, all queued at once.

use super::compile::Program;
use super::run::{Argument, Launcher, pair, queue};
use super::{count, fresh, of_format, owned, primitive, ready, room, same_device, tensor};
use crate::cuda::layout::{alignment, matrices};
use crate::cuda::plan::{Format, Kind, Plan, plan};
use crate::cuda::submit::all;
use crate::cuda::{Cube, Fault, available, format};
use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl::server::Handle;
use std::ffi::CStr;

/// Values of a state per block.
const THREADS: u32 = 128;

/// A recurrent cell, as PyTorch and cuDNN define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Long short-term memory: the gates i, f, g, o.
    Lstm,
    /// Gated recurrent unit: the gates r, z, n, with a bias inside of the product with r.
    Gru,
}

impl Unit {
    /// Returns the number of gates: the gates' width divided by the state's.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

/// The configuration of a layer's time loop.
#[derive(Clone, Copy, Debug)]
pub struct Recurrence {
    /// The cell.
    pub unit: Unit,
    /// The number of time steps.
    pub width: usize,
    /// Whether float32 factors may be rounded to TF32.
    pub tf32: bool,
    /// Whether a backward pass follows.
    pub taped: bool,
}

/// Saved tensors of the forward pass.
pub struct SavedStates {
    /// The states before each time step, [width·rows, hidden] in the number format of the products.
    pub before: Tensor<2>,
    /// The gates after their activation functions, laid out like the inputs.
    gates: Tensor<2>,
    /// LSTM's cell states after each time step, or the contribution of the previous states to GRU's n.
    beside: Tensor<2>,
    /// GRU's states after each time step.
    states: Option<Tensor<2>>,
    layer: Layer,
}

/// Returns a closure that computes the states after each time step, [width·rows, hidden] in float32, from `inputs`,
/// which it may overwrite. With a backward pass it also returns the saved tensors. `None` if the kernels cannot run.
///
/// `inputs` is the contribution of the inputs of all time steps to the gates, [width·rows, gates·hidden]. It and
/// `weight` [hidden, gates·hidden] have the number format of the products; the biases [1, gates·hidden] are in float32.
/// Gates and states are computed in float32, and the initial states are zero.
pub fn recurrent(
    how: Recurrence,
    inputs: &Tensor<2>,
    weight: &Tensor<2>,
    biases: &[Tensor<2>; 2],
) -> Option<impl FnOnce(Tensor<2>) -> (Tensor<2>, Option<SavedStates>) + use<>> {
    let layer = Layer::of(how, inputs, weight, biases)?;
    let [of_inputs, of_states] = biases;
    let parameters = [primitive(weight)?, primitive(of_inputs)?, primitive(of_states)?];
    Some(move |inputs: Tensor<2>| {
        let (states, kept) = layer.forward(how.taped, owned(inputs), parameters);
        let states: Tensor<2> = tensor(states);
        let kept = kept.map(|[before, gates, beside]| {
            let states = (how.unit == Unit::Gru).then(|| states.clone());
            SavedStates { before: tensor(before), gates: tensor(gates), beside: tensor(beside), states, layer }
        });
        (states, kept)
    })
}

/// Returns the gradients of the contributions of inputs and of previous states to the gates, [width·rows, gates·hidden]
/// in the number format of the products, from that of the states after each time step. `None` if the gradient is not on
/// the device of the forward pass.
pub fn recurrent_back(gradient: &Tensor<2>, weight: &Tensor<2>, course: SavedStates) -> Option<[Tensor<2>; 2]> {
    let SavedStates { gates, beside, states, layer, .. } = course;
    let given = [primitive(gradient)?, primitive(weight)?, primitive(&gates)?, primitive(&beside)?];
    let remembered = super::beside(states.as_ref())?;
    drop((gates, beside, states));
    Some(layer.backward(given, remembered).map(tensor))
}

/// The parameters of both loops besides their tensors.
#[derive(Clone, Copy, Debug)]
struct Layer {
    unit: Unit,
    width: usize,
    rows: usize,
    hidden: usize,
    /// Rows and hidden width in the kernels' type; below, the number of time steps as addresses count.
    counted: [u32; 2],
    times: u64,
    /// The number format of the products.
    dtype: DType,
    tf32: bool,
    /// The ordinal of the GPU.
    device: usize,
}

impl Layer {
    /// Returns `None` if one of the loops cannot run.
    fn of(how: Recurrence, inputs: &Tensor<2>, weight: &Tensor<2>, biases: &[Tensor<2>; 2]) -> Option<Self> {
        let Recurrence { unit, width, tf32, taped } = how;
        let ([all, gates], [hidden, _], dtype) = (inputs.dims(), weight.dims(), inputs.dtype());
        let device = match inputs.device().as_dispatch() {
            DispatchDevice::Cuda(device) => device.index,
            _ => return None,
        };
        let rows = all.checked_div(width)?;
        let counted = [count(rows)?, count(hidden)?];
        let layer = Self { unit, width, rows, hidden, counted, times: count(width)?.into(), dtype, tf32, device };
        let like = |tensor: &Tensor<2>, shape, dtype| {
            tensor.dims() == shape && tensor.dtype() == dtype && same_device(tensor, inputs)
        };
        let fit = all == width * rows
            && all > 0
            && hidden > 0
            && gates == layer.gates()
            && count(gates).is_some()
            && like(weight, [hidden, gates], dtype)
            && biases.iter().all(|bias| like(bias, [1, gates], DType::F32));
        let runs = fit && ready(Program::Recurrent, inputs) && available();
        let planned = |back| !runs || layer.plan(back, 0).is_some();
        (runs && planned(false) && (!taped || planned(true))).then_some(layer)
    }

    /// Returns the width of the gates.
    fn gates(&self) -> usize {
        self.hidden * self.unit.gates()
    }

    /// Returns the plan for the product of one time step: of states [rows, hidden] and the weight, or of gradients of
    /// gates [rows, gates·hidden] and the transposed weight. `weight` is the weight's offset in its memory.
    fn plan(&self, back: bool, weight: u64) -> Option<&'static Plan> {
        let (rows, hidden, gates) = (self.rows, self.hidden, self.gates());
        let lies = |shape: [usize; 2], strides: [usize; 2]| Some(matrices(&shape, &strides)?.0);
        let (first, [from, to], step) = if back {
            (lies([gates, hidden], [1, gates])?, [gates, hidden], self.gates_in(self.dtype))
        } else {
            (lies([hidden, gates], [gates, 1])?, [hidden, gates], self.state_in(self.dtype))
        };
        plan(Kind {
            device: self.device,
            first,
            second: lies([rows, from], [from, 1])?,
            product: lies([rows, to], [to, 1])?,
            count: 1,
            factors: format(self.dtype)?,
            result: Format::F32,
            rounded: self.tf32,
            aligned: [alignment(weight), alignment(step), alignment(0)],
        })
    }

    fn state_in(&self, dtype: DType) -> u64 {
        let [rows, hidden] = self.counted.map(u64::from);
        rows * hidden * if dtype == DType::F32 { 4 } else { 2 }
    }

    fn gates_in(&self, dtype: DType) -> u64 {
        self.state_in(dtype) * if self.unit == Unit::Lstm { 4 } else { 3 }
    }

    /// Returns the states and, if a backward pass follows, the previous states, the gates and the additional saved
    /// tensor.
    fn forward(self, taped: bool, x: Cube, [weight, of_inputs, of_states]: [Cube; 3]) -> (Cube, Option<[Cube; 3]>) {
        let [x, weight, of_inputs, of_states] = &[x, weight, of_inputs, of_states].map(into_contiguous);
        let times = self.width * self.rows;
        // Without later use, one time step's memory is enough.
        let kept = if taped { times } else { self.rows };
        let states = fresh(x, [times, self.hidden], DType::F32);
        let before = fresh(x, [kept, self.hidden], self.dtype);
        let beside = fresh(x, [kept, self.hidden], DType::F32);
        let given = fresh(x, [self.rows, self.gates()], DType::F32);
        let gates = if !taped {
            given.clone()
        } else if self.dtype == DType::F32 {
            room(x)
        } else {
            fresh(x, [times, self.gates()], DType::F32)
        };
        let plan = self.plan(false, weight.handle.offset_start.unwrap_or(0));
        let scratch = workspace(x, plan);
        let tensors = [x, weight, of_inputs, of_states, &given, &states, &before, &beside, &gates];
        let buffers: Vec<&Handle> = tensors.into_iter().map(|tensor| &tensor.handle).chain(&scratch).collect();
        queue(Program::Recurrent, x, &buffers, move |places, card| {
            self.queue_forward(plan.ok_or(Fault::Absent)?, taped, places, card)
        });
        (states, taped.then_some([before, gates, beside]))
    }

    fn queue_forward(&self, plan: &Plan, taped: bool, places: &[u64], card: &Launcher) -> Result<(), Fault> {
        let [x, weight, of_inputs, of_states, given, states, before, beside, gates, scratch] = all(places);
        let names = match self.unit {
            Unit::Lstm => [c"lstm_f32", c"lstm_f16", c"lstm_bf16"],
            Unit::Gru => [c"gru_f32", c"gru_f16", c"gru_bf16"],
        };
        let kept = |start, step| Track { start, step: if taped { step } else { 0 } };
        let x = Track { start: x, step: self.gates_in(self.dtype) };
        let states = Track { start: states, step: self.state_in(DType::F32) };
        let before = kept(before, self.state_in(self.dtype));
        let beside = kept(beside, self.state_in(DType::F32));
        let gates = taped.then_some(Track { start: gates, step: self.gates_in(DType::F32) });
        let remembered = match self.unit {
            Unit::Lstm => beside,
            Unit::Gru => states,
        };
        for time in 0..self.times {
            let earlier = time.checked_sub(1);
            if earlier.is_some() {
                card.multiply(plan, [weight, before.at(time), given, scratch])?;
            }
            let words = [
                x.at(time),
                earlier.map_or(0, |_| given),
                of_inputs,
                of_states,
                earlier.map_or(0, |earlier| remembered.at(earlier)),
                gates.map_or(0, |gates| gates.at(time)),
                beside.at(time),
                states.at(time),
                if earlier.is_none() { before.at(time) } else { 0 },
                if self.ends(time) { 0 } else { before.at(time + 1) },
                pair(self.counted[1], 0),
            ];
            self.launch(card, names, &words)?;
        }
        Ok(())
    }

    /// Returns the gradients of the gates; LSTM's are the same for both contributions. GRU also needs its states.
    fn backward(self, given: [Cube; 4], states: Option<Cube>) -> [Cube; 2] {
        let [gradient, weight, gates, beside] = &given.map(into_contiguous);
        let states = states.map(into_contiguous);
        let remembered = states.as_ref().unwrap_or(beside);
        let shape = [self.width * self.rows, self.gates()];
        let of_inputs = if self.dtype == DType::F32 { room(gates) } else { fresh(gates, shape, self.dtype) };
        let of_states = match self.unit {
            Unit::Lstm => of_inputs.clone(),
            Unit::Gru => fresh(gates, shape, self.dtype),
        };
        let [kept, through] = [(); 2].map(|()| fresh(gates, [self.rows, self.hidden], DType::F32));
        let plan = self.plan(true, weight.handle.offset_start.unwrap_or(0));
        let scratch = workspace(gates, plan);
        let tensors = [gradient, weight, gates, beside, remembered, &of_inputs, &of_states, &kept, &through];
        let buffers: Vec<&Handle> = tensors.into_iter().map(|tensor| &tensor.handle).chain(&scratch).collect();
        queue(Program::Recurrent, gates, &buffers, move |places, card| {
            self.queue_backward(plan.ok_or(Fault::Absent)?, places, card)
        });
        [of_inputs, of_states]
    }

    fn queue_backward(&self, plan: &Plan, places: &[u64], card: &Launcher) -> Result<(), Fault> {
        let [gradient, weight, gates, beside, remembered, of_inputs, of_states, kept, through, scratch] = all(places);
        let names = match self.unit {
            Unit::Lstm => [c"lstm_back_f32", c"lstm_back_f16", c"lstm_back_bf16"],
            Unit::Gru => [c"gru_back_f32", c"gru_back_f16", c"gru_back_bf16"],
        };
        let state = |start| Track { start, step: self.state_in(DType::F32) };
        let [gradient, beside, remembered] = [gradient, beside, remembered].map(state);
        let gates = Track { start: gates, step: self.gates_in(DType::F32) };
        let [of_inputs, of_states] =
            [of_inputs, of_states].map(|start| Track { start, step: self.gates_in(self.dtype) });
        for time in (0..self.times).rev() {
            let last = self.ends(time);
            let words = [
                gradient.at(time),
                if last { 0 } else { through },
                if last { 0 } else { kept },
                kept,
                gates.at(time),
                beside.at(time),
                time.checked_sub(1).map_or(0, |earlier| remembered.at(earlier)),
                of_inputs.at(time),
                of_states.at(time),
                pair(self.counted[1], 0),
            ];
            self.launch(card, names, &words)?;
            // The gradient of the initial zero states is not needed.
            if time > 0 {
                card.multiply(plan, [weight, of_states.at(time), through, scratch])?;
            }
        }
        Ok(())
    }

    fn launch(&self, card: &Launcher, names: [&'static CStr; 3], words: &[u64]) -> Result<(), Fault> {
        let [rows, hidden] = self.counted;
        let name = of_format(self.dtype, names).ok_or(Fault::Absent)?;
        card.launch(name, [rows, hidden.div_ceil(THREADS)], [THREADS, 1], &[Argument::Words(words)])
    }

    fn ends(&self, time: u64) -> bool {
        time + 1 == self.times
    }
}

/// The place of a tensor at each time step.
#[derive(Clone, Copy)]
struct Track {
    start: u64,
    step: u64,
}

impl Track {
    fn at(self, time: u64) -> u64 {
        self.start + time * self.step
    }
}

/// Allocates the workspace of a plan.
fn workspace(like: &Cube, plan: Option<&Plan>) -> Option<Handle> {
    let bytes = plan.map_or(0, |plan| plan.workspace);
    (bytes > 0).then(|| like.client.empty(bytes))
}
