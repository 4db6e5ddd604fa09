//! Plans for stacks of recurrent layers, made once for each kind, and the calls that run them.

use super::describe::{ANSWERING, Room, TRAINING, room, rows, stack, states};
use super::weights::{self, Place};
use crate::cuda::dnn::descriptors::{self, Plans, ask};
use crate::cuda::dnn::job::{Addresses, clear};
use crate::cuda::dnn::library::Dnn;
use crate::cuda::kernels::{Transposition, Unit, transpose};
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use crate::cuda::submit::{all, pointer};
use crate::cuda::{Fault, check};
use burn::backend::DType;
use burn::tensor::{FloatDType, Tensor};
use std::ffi::c_int;
use std::ptr::{null, null_mut};
use std::sync::{LazyLock, Mutex};

/// `CUDNN_WGRAD_MODE_ADD`, the only mode that cuDNN implements.
const ADD: c_int = 0;

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// The ordinal of the card.
    pub card: usize,
    pub unit: Unit,
    pub layers: usize,
    /// The number format of products, inputs, outputs and states.
    pub format: Format,
    /// Whether float32 factors may be rounded to TF32.
    pub tf32: bool,
    pub rows: usize,
    /// The number of time steps.
    pub width: usize,
    /// Input features of the lowest layer.
    pub inputs: usize,
    /// Hidden features.
    pub hidden: usize,
}

/// A prepared stack.
pub struct Plan {
    kind: Kind,
    recurrent: Opaque,
    x: Opaque,
    y: Opaque,
    /// The descriptor of the hidden states of all layers.
    state: Opaque,
    /// The descriptor of LSTM's cell states.
    memory: Opaque,
    /// The parameters' places in cuDNN's memory.
    pub places: Vec<Place>,
    /// The size of all parameters in bytes.
    pub weights: usize,
    /// The memory that a training step needs.
    pub training: Room,
    /// The workspace of inference, in bytes.
    pub answering: usize,
}

// SAFETY: the descriptors are plain memory of the library, which nobody writes to or frees after the plan was made; a
// plan is of one card, which one thread talks to.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Plan {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Sync for Plan {}

/// Returns the plan for a kind of stack, or `None` if cuDNN does not support it.
pub fn plan(kind: Kind) -> Option<&'static Plan> {
    static PLANS: Plans<Kind, Plan> = LazyLock::new(Mutex::default);
    descriptors::plan(&PLANS, &kind, |dnn| make(dnn, kind))
}

fn make(dnn: &Dnn, kind: Kind) -> Result<Plan, Fault> {
    let x = rows(dnn, kind, kind.inputs)?;
    let y = rows(dnn, kind, kind.hidden)?;
    let state = states(dnn, kind)?;
    let memory = if kind.unit == Unit::Lstm { state } else { null_mut() };
    let places = kind.places();
    ask(dnn, kind.card, |handle| {
        let recurrent = stack(dnn, handle, kind)?;
        let weights = weights::bytes(dnn, handle, recurrent, (kind.unit, kind.format), &places)?;
        let training = room(dnn, handle, recurrent, x, TRAINING)?;
        let answering = room(dnn, handle, recurrent, x, ANSWERING)?.workspace;
        Ok(Plan { kind, recurrent, x, y, state, memory, places, weights, training, answering })
    })
}

impl Kind {
    /// Returns the parameters' places in cuDNN's memory.
    pub fn places(self) -> Vec<Place> {
        weights::places(self.unit, self.layers, [self.inputs, self.hidden])
    }
}

impl Plan {
    /// Returns the number format of products, inputs, outputs and states.
    pub fn dtype(&self) -> DType {
        self.float().into()
    }

    fn float(&self) -> FloatDType {
        match self.kind.format {
            Format::F32 => FloatDType::F32,
            Format::F16 => FloatDType::F16,
            Format::Bf16 => FloatDType::BF16,
        }
    }

    /// Converts a tensor to that format.
    pub fn rounded(&self, tensor: Tensor<2>) -> Tensor<2> {
        if tensor.dtype() == self.dtype() { tensor } else { tensor.cast(self.float()) }
    }

    /// Returns the shape of the output.
    pub fn states(&self) -> [usize; 2] {
        [self.kind.width * self.kind.rows, self.kind.hidden]
    }

    /// Returns the number of values of the weights, and the number of float32 values that hold cuDNN's reserve.
    pub fn kept(&self) -> [[usize; 1]; 2] {
        [[self.weights / self.kind.format.bytes()], [self.training.reserve.div_ceil(4).max(1)]]
    }

    /// Runs the forward pass of training: reads x and the parameters, writes the output, the packed weights and the
    /// reserve.
    pub fn train(&self, dnn: &Dnn, handle: Opaque, at: &Addresses) -> Result<(), Fault> {
        let [y, weights, reserve] = all(&at.outputs);
        let [workspace] = all(&at.scratch);
        self.forward(dnn, handle, at, (TRAINING, self.training), [y, weights, workspace, reserve])
    }

    /// Runs inference: reads x and the parameters, writes the output.
    pub fn answer(&self, dnn: &Dnn, handle: Opaque, at: &Addresses) -> Result<(), Fault> {
        let [workspace, weights] = all(&at.scratch);
        let room = Room { workspace: self.answering, reserve: 0 };
        self.forward(dnn, handle, at, (ANSWERING, room), [all::<1>(&at.outputs)[0], weights, workspace, 0])
    }

    fn forward(
        &self,
        dnn: &Dnn,
        handle: Opaque,
        at: &Addresses,
        (mode, room): (c_int, Room),
        [y, weights, workspace, reserve]: [u64; 4],
    ) -> Result<(), Fault> {
        let [x] = all(&at.inputs);
        let parameters = at.inputs.get(1..).unwrap_or_default();
        let packed: Option<Vec<_>> =
            self.places.iter().zip(parameters).map(|(place, from)| self.packed(*place, *from, weights)).collect();
        let packed = packed.ok_or(Fault::Absent)?;
        transpose(at.card, at.stream, [Format::F32, self.kind.format], &packed)?;
        let [x, y, weights, workspace, reserve] = pointers([x, y, weights, workspace, reserve])?;
        // SAFETY: the plan was made for tensors of these shapes and formats on this card, which lie as it was told and
        // are kept until the work is queued, as is memory of the sizes that were asked for. What is null is zeros, or
        // is not asked for; all rows are equally long, which cuDNN knows from their descriptor.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.recur)(
                handle,
                self.recurrent,
                mode,
                null(),
                self.x,
                x,
                self.y,
                y,
                self.state,
                null(),
                null_mut(),
                self.memory,
                null(),
                null_mut(),
                self.weights,
                weights,
                room.workspace,
                workspace,
                room.reserve,
                reserve,
            )
        };
        check("cudnnRNNForward", status)
    }

    /// Runs the backward pass: reads x, the output, its gradient, the weights and the reserve, writes the gradients of
    /// x and of the parameters.
    pub fn back(&self, dnn: &Dnn, handle: Opaque, at: &Addresses) -> Result<(), Fault> {
        let [dx] = all(&at.outputs);
        let [workspace, of_weights] = all(&at.scratch);
        let [x, y, dy, weights, reserve] = pointers(all(&at.inputs))?;
        let [dx, workspace, gradient] = pointers([dx, workspace, of_weights])?;
        let Room { workspace: working, reserve: kept } = self.training;
        let (rnn, state, memory) = (self.recurrent, self.state, self.memory);
        // SAFETY: as in the forward, whose weights and whose kept memory these are.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.recur_of_input)(
                handle,
                rnn,
                null(),
                self.y,
                y,
                dy,
                self.x,
                dx,
                state,
                null(),
                null(),
                null_mut(),
                memory,
                null(),
                null(),
                null_mut(),
                self.weights,
                weights,
                working,
                workspace,
                kept,
                reserve,
            )
        };
        check("cudnnRNNBackwardData_v8", status)?;
        // cuDNN adds to the existing values.
        clear(of_weights, self.weights, at.stream)?;
        // SAFETY: as above; it comes behind the gradient of the input, which it needs.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.recur_of_weights)(
                handle,
                rnn,
                ADD,
                null(),
                self.x,
                x,
                state,
                null(),
                self.y,
                y,
                self.weights,
                gradient,
                working,
                workspace,
                kept,
                reserve,
            )
        };
        check("cudnnRNNBackwardWeights_v8", status)?;
        let parameters = at.outputs.get(1..).unwrap_or_default();
        let unpacked: Option<Vec<_>> =
            self.places.iter().zip(parameters).map(|(place, to)| self.unpacked(*place, of_weights, *to)).collect();
        transpose(at.card, at.stream, [self.kind.format, Format::F32], &unpacked.ok_or(Fault::Absent)?)
    }

    /// Describes the copy of a parameter to its place in the packed weights.
    fn packed(&self, place: Place, from: u64, weights: u64) -> Option<Transposition> {
        let to = weights + u64::try_from(place.start * self.kind.format.bytes()).ok()?;
        Some(Transposition {
            from,
            to,
            rows: u32::try_from(place.columns).ok()?,
            columns: u32::try_from(place.rows).ok()?,
        })
    }

    /// Describes the copy of a gradient out of the packed weights.
    fn unpacked(&self, place: Place, weights: u64, to: u64) -> Option<Transposition> {
        let Transposition { from, to, rows, columns } = self.packed(place, to, weights)?;
        Some(Transposition { from: to, to: from, rows: columns, columns: rows })
    }
}

fn pointers<const N: usize>(places: [u64; N]) -> Result<[Opaque; N], Fault> {
    let mut pointers = [null_mut(); N];
    for (to, place) in pointers.iter_mut().zip(places) {
        *to = pointer(Some(&place))?;
    }
    Ok(pointers)
}
