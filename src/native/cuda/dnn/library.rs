//! Bindings to the functions of cuDNN 9 that are called directly, loaded at run time.
//!
//! Types, constants and the order of fields were compared with the headers of cuDNN 9.19 and the bindings of cudarc
//! 0.19.10 for 9.10 and 9.21. Those of recurrent layers were compared with the headers of 9.12, 9.19 and 9.28.

use crate::cuda::library::{Opaque, functions, open};
use libloading::Library;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

functions! {
    /// Functions of `cudnn.h`. Each returns a `cudnnStatus_t`.
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
        /// `cudnnSetRNNDescriptor_v8(layers, algorithm, cell, biases, direction, input, type, type of the sums, math,
        /// features of an input, of a state, of its projection, how many layers, dropout, flags)`.
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
        /// `cudnnGetRNNWeightParams(handle, layers, which of them, bytes of the weights, weights, which product,
        /// matrix, its address, bias, its address)`.
        find_weights = c"cudnnGetRNNWeightParams" (
            Opaque, Opaque, c_int, usize, *const c_void, c_int, Opaque, *mut Opaque, Opaque, *mut Opaque
        );
        /// `cudnnGetRNNTempSpaceSizes(handle, layers, mode, rows of the input, bytes of the workspace, bytes of what is kept)`.
        size_recurrent = c"cudnnGetRNNTempSpaceSizes" (Opaque, Opaque, c_int, Opaque, *mut usize, *mut usize);
        /// `cudnnRNNForward(handle, layers, mode, times of each row, x, …, y, …, state, first, last, memory, first,
        /// last, bytes of the weights, …, bytes of the workspace, …, bytes of what is kept, …)`.
        recur = c"cudnnRNNForward" (
            Opaque, Opaque, c_int, *const c_int, Opaque, *const c_void, Opaque, *mut c_void, Opaque, *const c_void,
            *mut c_void, Opaque, *const c_void, *mut c_void, usize, *const c_void, usize, *mut c_void, usize, *mut c_void
        );
        /// `cudnnRNNBackwardData_v8(handle, layers, times of each row, y, …, dy, x, dx, state, first, gradient of the
        /// last, of the first, memory, first, gradient of the last, of the first, bytes of the weights, …, bytes of the
        /// workspace, …, bytes of what was kept, …)`.
        recur_of_input = c"cudnnRNNBackwardData_v8" (
            Opaque, Opaque, *const c_int, Opaque, *const c_void, *const c_void, Opaque, *mut c_void, Opaque, *const c_void,
            *const c_void, *mut c_void, Opaque, *const c_void, *const c_void, *mut c_void, usize, *const c_void, usize,
            *mut c_void, usize, *mut c_void
        );
        /// `cudnnRNNBackwardWeights_v8(handle, layers, mode, times of each row, x, …, state, first, y, …, bytes of the
        /// weights, their gradient, bytes of the workspace, …, bytes of what was kept, …)`.
        recur_of_weights = c"cudnnRNNBackwardWeights_v8" (
            Opaque, Opaque, c_int, *const c_int, Opaque, *const c_void, Opaque, *const c_void, Opaque, *const c_void, usize,
            *mut c_void, usize, *mut c_void, usize, *mut c_void
        );
    }
}

/// Returns cuDNN, loaded on first use.
pub fn dnn() -> Option<&'static Dnn> {
    static DNN: OnceLock<Option<Dnn>> = OnceLock::new();
    // Other major versions have other status codes and may lack these functions.
    let names = ["libcudnn.so", "libcudnn.so.9"];
    DNN.get_or_init(|| names.iter().find_map(|name| open(name, Dnn::of))).as_ref()
}
