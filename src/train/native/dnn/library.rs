//! The functions of cuDNN 9 that are called by hand, loaded at run time.
//!
//! Types, constants and the order of fields were compared with the headers of cuDNN 9.19 and the bindings of cudarc 0.19.10 for 9.10 and 9.21; those of recurrent layers
//! with the headers of 9.12, 9.19 and 9.28.

use super::super::library::{Opaque, functions, open};
use libloading::Library;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

/// `cudnnConvolutionFwdAlgoPerf_t`; those of the gradients have the same fields.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Found {
    /// One of the algorithms of its kind of convolution.
    pub algorithm: c_int,
    /// Zero where it can run.
    pub state: c_int,
    /// Milliseconds, where they were measured.
    pub time: f32,
    /// Bytes that it needs beside its operands.
    pub workspace: usize,
    /// One where it always computes the same.
    pub deterministic: c_int,
    /// What it may do to its operands, to be set before it runs.
    pub math: c_int,
    /// For later versions.
    pub reserved: [c_int; 3],
}

/// Tells algorithms with what they need, the best first: `(handle, first, second, convolution, result, wanted, how many, found)`.
pub type Find = unsafe extern "C" fn(Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut Found) -> c_int;

/// Tells the bytes that an algorithm needs: `(handle, first, second, convolution, result, algorithm, bytes)`.
pub type Size = unsafe extern "C" fn(Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize) -> c_int;

/// Convolves: `(handle, alpha, first, …, second, …, convolution, algorithm, workspace, its size, beta, result, …)`.
pub type Convolve = unsafe extern "C" fn(
    Opaque,
    *const c_void,
    Opaque,
    *const c_void,
    Opaque,
    *const c_void,
    Opaque,
    c_int,
    *mut c_void,
    usize,
    *const c_void,
    Opaque,
    *mut c_void,
) -> c_int;

functions! {
    /// Of `cudnn.h`. Each answers a `cudnnStatus_t`.
    Dnn {
        /// `cudnnCreate(handle)`.
        create = c"cudnnCreate" (*mut Opaque);
        /// `cudnnSetStream(handle, stream)`.
        set_stream = c"cudnnSetStream" (Opaque, Opaque);
        /// `cudnnCreateTensorDescriptor(tensor)`.
        tensor = c"cudnnCreateTensorDescriptor" (*mut Opaque);
        /// `cudnnDestroyTensorDescriptor(tensor)`.
        drop_tensor = c"cudnnDestroyTensorDescriptor" (Opaque);
        /// `cudnnSetTensor4dDescriptor(tensor, layout, type, count, channels, height, width)`.
        set_tensor = c"cudnnSetTensor4dDescriptor" (Opaque, c_int, c_int, c_int, c_int, c_int, c_int);
        /// `cudnnCreateFilterDescriptor(filter)`.
        filter = c"cudnnCreateFilterDescriptor" (*mut Opaque);
        /// `cudnnSetFilter4dDescriptor(filter, type, layout, channels out, channels in, height, width)`.
        set_filter = c"cudnnSetFilter4dDescriptor" (Opaque, c_int, c_int, c_int, c_int, c_int, c_int);
        /// `cudnnCreateConvolutionDescriptor(convolution)`.
        convolution = c"cudnnCreateConvolutionDescriptor" (*mut Opaque);
        /// `cudnnSetConvolution2dDescriptor(convolution, padding, …, stride, …, dilation, …, mode, type of the sums)`.
        set_convolution = c"cudnnSetConvolution2dDescriptor" (
            Opaque, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int
        );
        /// `cudnnSetConvolutionMathType(convolution, math)`.
        set_math = c"cudnnSetConvolutionMathType" (Opaque, c_int);
        /// A [`Find`] of images and weights.
        find_forward = c"cudnnGetConvolutionForwardAlgorithm_v7" (
            Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut Found
        );
        /// A [`Find`] of weights and the gradient of the result.
        find_input = c"cudnnGetConvolutionBackwardDataAlgorithm_v7" (
            Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut Found
        );
        /// A [`Find`] of images and the gradient of the result.
        find_weight = c"cudnnGetConvolutionBackwardFilterAlgorithm_v7" (
            Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut Found
        );
        /// A [`Size`] of images and weights.
        size_forward = c"cudnnGetConvolutionForwardWorkspaceSize" (
            Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize
        );
        /// A [`Size`] of weights and the gradient of the result.
        size_input = c"cudnnGetConvolutionBackwardDataWorkspaceSize" (
            Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize
        );
        /// A [`Size`] of images and the gradient of the result.
        size_weight = c"cudnnGetConvolutionBackwardFilterWorkspaceSize" (
            Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize
        );
        /// A [`Convolve`] of images and weights.
        forward = c"cudnnConvolutionForward" (
            Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void, Opaque, c_int, *mut c_void, usize,
            *const c_void, Opaque, *mut c_void
        );
        /// A [`Convolve`] of weights and the gradient of the result.
        of_input = c"cudnnConvolutionBackwardData" (
            Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void, Opaque, c_int, *mut c_void, usize,
            *const c_void, Opaque, *mut c_void
        );
        /// A [`Convolve`] of images and the gradient of the result.
        of_weight = c"cudnnConvolutionBackwardFilter" (
            Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void, Opaque, c_int, *mut c_void, usize,
            *const c_void, Opaque, *mut c_void
        );
        /// `cudnnCreatePoolingDescriptor(pooling)`.
        pooling = c"cudnnCreatePoolingDescriptor" (*mut Opaque);
        /// `cudnnSetPooling2dDescriptor(pooling, mode, NaN, size, …, padding, …, stride, …)`.
        set_pooling = c"cudnnSetPooling2dDescriptor" (
            Opaque, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int
        );
        /// `cudnnPoolingForward(handle, pooling, alpha, x, …, beta, y, …)`.
        pool = c"cudnnPoolingForward" (
            Opaque, Opaque, *const c_void, Opaque, *const c_void, *const c_void, Opaque, *mut c_void
        );
        /// `cudnnPoolingBackward(handle, pooling, alpha, y, …, dy, …, x, …, beta, dx, …)`.
        pool_back = c"cudnnPoolingBackward" (
            Opaque, Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void,
            *const c_void, Opaque, *mut c_void
        );
        /// `cudnnSetTensorNdDescriptor(tensor, type, axes, lengths, strides)`.
        set_axes = c"cudnnSetTensorNdDescriptor" (Opaque, c_int, c_int, *const c_int, *const c_int);
        /// `cudnnGetTensorNdDescriptor(tensor, axes asked for, type, axes, lengths, strides)`.
        get_axes = c"cudnnGetTensorNdDescriptor" (Opaque, c_int, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
        /// `cudnnCreateDropoutDescriptor(dropout)`.
        dropout = c"cudnnCreateDropoutDescriptor" (*mut Opaque);
        /// `cudnnSetDropoutDescriptor(dropout, handle, share, states, their size, seed)`.
        set_dropout = c"cudnnSetDropoutDescriptor" (Opaque, Opaque, f32, *mut c_void, usize, c_ulonglong);
        /// `cudnnCreateRNNDescriptor(layers)`.
        recurrent = c"cudnnCreateRNNDescriptor" (*mut Opaque);
        /// `cudnnSetRNNDescriptor_v8(layers, algorithm, cell, biases, direction, input, type, type of the sums, math, features of an input, of a state, of its
        /// projection, how many layers, dropout, flags)`.
        set_recurrent = c"cudnnSetRNNDescriptor_v8" (
            Opaque, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, c_int, Opaque, c_uint
        );
        /// `cudnnCreateRNNDataDescriptor(rows)`.
        rows = c"cudnnCreateRNNDataDescriptor" (*mut Opaque);
        /// `cudnnSetRNNDataDescriptor(rows, type, layout, times, how many, features, times of each, padding)`.
        set_rows = c"cudnnSetRNNDataDescriptor" (
            Opaque, c_int, c_int, c_int, c_int, c_int, *const c_int, *mut c_void
        );
        /// `cudnnGetRNNWeightSpaceSize(handle, layers, bytes)`.
        size_weights = c"cudnnGetRNNWeightSpaceSize" (Opaque, Opaque, *mut usize);
        /// `cudnnGetRNNWeightParams(handle, layers, which of them, bytes of the weights, weights, which product, matrix, its address, bias, its address)`.
        find_weights = c"cudnnGetRNNWeightParams" (
            Opaque, Opaque, c_int, usize, *const c_void, c_int, Opaque, *mut Opaque, Opaque, *mut Opaque
        );
        /// `cudnnGetRNNTempSpaceSizes(handle, layers, mode, rows of the input, bytes of the workspace, bytes of what is kept)`.
        size_recurrent = c"cudnnGetRNNTempSpaceSizes" (Opaque, Opaque, c_int, Opaque, *mut usize, *mut usize);
        /// `cudnnRNNForward(handle, layers, mode, times of each row, x, …, y, …, state, first, last, memory, first, last, bytes of the weights, …, bytes of the workspace, …, bytes of
        /// what is kept, …)`.
        recur = c"cudnnRNNForward" (
            Opaque, Opaque, c_int, *const c_int, Opaque, *const c_void, Opaque, *mut c_void, Opaque, *const c_void,
            *mut c_void, Opaque, *const c_void, *mut c_void, usize, *const c_void, usize, *mut c_void, usize, *mut c_void
        );
        /// `cudnnRNNBackwardData_v8(handle, layers, times of each row, y, …, dy, x, dx, state, first, gradient of the last, of the first, memory, first, gradient of the last, of the
        /// first, bytes of the weights, …, bytes of the workspace, …, bytes of what was kept, …)`.
        recur_of_input = c"cudnnRNNBackwardData_v8" (
            Opaque, Opaque, *const c_int, Opaque, *const c_void, *const c_void, Opaque, *mut c_void, Opaque, *const c_void,
            *const c_void, *mut c_void, Opaque, *const c_void, *const c_void, *mut c_void, usize, *const c_void, usize,
            *mut c_void, usize, *mut c_void
        );
        /// `cudnnRNNBackwardWeights_v8(handle, layers, mode, times of each row, x, …, state, first, y, …, bytes of the weights, their gradient, bytes of the workspace, …, bytes of what
        /// was kept, …)`.
        recur_of_weights = c"cudnnRNNBackwardWeights_v8" (
            Opaque, Opaque, c_int, *const c_int, Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void, usize,
            *mut c_void, usize, *mut c_void, usize, *mut c_void
        );
    }
}

/// cuDNN, loaded at the first call.
pub fn dnn() -> Option<&'static Dnn> {
    static DNN: OnceLock<Option<Dnn>> = OnceLock::new();
    // Other versions have other numbers for what they answer and may have left these functions out.
    let names = ["libcudnn.so", "libcudnn.so.9"];
    DNN.get_or_init(|| names.iter().find_map(|name| open(name, Dnn::of))).as_ref()
}
