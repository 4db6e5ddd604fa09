//! Descriptors for a stack of recurrent layers.

use super::plan::Kind;
use crate::cuda::dnn::descriptors::{code, lengths, made};
use crate::cuda::dnn::library::Dnn;
use crate::cuda::kernels::Unit;
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use crate::cuda::{Fault, check};
use std::ffi::c_int;
use std::ptr::null_mut;

/// `CUDNN_RNN_ALGO_STANDARD`, which PyTorch also uses for more than 192 hidden features. Whether a GPU supports a
/// persistent algorithm shows only at run time, which is too late.
const ALGORITHM: c_int = 0;

/// `CUDNN_FWD_MODE_INFERENCE`.
pub const ANSWERING: c_int = 0;
/// `CUDNN_FWD_MODE_TRAINING`.
pub const TRAINING: c_int = 1;

/// Sizes of memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// The workspace.
    pub workspace: usize,
    /// The memory kept from the forward to the backward pass.
    pub reserve: usize,
}

/// Creates the descriptor of the layers.
pub fn stack(dnn: &Dnn, handle: Opaque, kind: Kind) -> Result<Opaque, Fault> {
    let math = match (kind.format, kind.tf32) {
        // CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION would round to binary16.
        (Format::F32, true) => 0,  // CUDNN_DEFAULT_MATH
        (Format::F32, false) => 3, // CUDNN_FMA_MATH
        _ => 1,                    // CUDNN_TENSOR_OP_MATH
    };
    let unit = match kind.unit {
        Unit::Lstm => 2, // CUDNN_LSTM
        Unit::Gru => 3,  // CUDNN_GRU
    };
    // SAFETY: `new` can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let dropout = made("cudnnCreateDropoutDescriptor", |new| unsafe { (dnn.dropout)(new) })?;
    // SAFETY: the descriptor was made above; where nothing is dropped no states are needed.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.set_dropout)(dropout, handle, 0.0, null_mut(), 0, 0) };
    check("cudnnSetDropoutDescriptor", status)?;
    // SAFETY: `new` can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let recurrent = made("cudnnCreateRNNDescriptor", |new| unsafe { (dnn.recurrent)(new) })?;
    let [inputs, hidden, layers] = lengths([kind.inputs, kind.hidden, kind.layers])?;
    // CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, and CUDNN_RNN_PADDED_IO_ENABLED, which unpacked rows need.
    let (biases, direction, input, flags) = (2, 0, 0, 1);
    let (values, sums) = (code(kind.format), code(Format::F32));
    // SAFETY: both descriptors were made above. A projection as wide as the state is none.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe {
        (dnn.set_recurrent)(
            recurrent, ALGORITHM, unit, biases, direction, input, values, sums, math, inputs, hidden, hidden, layers,
            dropout, flags,
        )
    };
    check("cudnnSetRNNDescriptor_v8", status)?;
    Ok(recurrent)
}

/// Creates the descriptor of rows with this many features per time step, time steps outermost.
pub fn rows(dnn: &Dnn, kind: Kind, features: usize) -> Result<Opaque, Fault> {
    let [width, many, features] = lengths([kind.width, kind.rows, features])?;
    // SAFETY: `new` can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let rows = made("cudnnCreateRNNDataDescriptor", |new| unsafe { (dnn.rows)(new) })?;
    let (values, times) = (code(kind.format), vec![width; kind.rows]);
    // CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED.
    let layout = 0;
    // SAFETY: the descriptor was made above, there is a length for each row, and no row is filled up.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.set_rows)(rows, values, layout, width, many, features, times.as_ptr(), null_mut()) };
    check("cudnnSetRNNDataDescriptor", status)?;
    Ok(rows)
}

/// Creates the descriptor of the states of all layers at one time step.
pub fn states(dnn: &Dnn, kind: Kind) -> Result<Opaque, Fault> {
    let [layers, rows, hidden] = lengths([kind.layers, kind.rows, kind.hidden])?;
    let [down] = lengths([kind.rows * kind.hidden])?;
    // SAFETY: `new` can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let states = made("cudnnCreateTensorDescriptor", |new| unsafe { (dnn.tensor)(new) })?;
    let (sizes, strides) = ([layers, rows, hidden], [down, hidden, 1]);
    // SAFETY: the descriptor was made above; there are as many lengths and strides as axes.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.set_axes)(states, code(kind.format), 3, sizes.as_ptr(), strides.as_ptr()) };
    check("cudnnSetTensorNdDescriptor", status)?;
    Ok(states)
}

/// Returns the memory that cuDNN needs in a mode.
pub fn room(dnn: &Dnn, handle: Opaque, recurrent: Opaque, x: Opaque, mode: c_int) -> Result<Room, Fault> {
    let mut room = Room::default();
    let (workspace, reserve) = (&raw mut room.workspace, &raw mut room.reserve);
    // SAFETY: both descriptors were made for each other, and both numbers can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    let status = unsafe { (dnn.size_recurrent)(handle, recurrent, mode, x, workspace, reserve) };
    check("cudnnGetRNNTempSpaceSizes", status)?;
    Ok(room)
}
