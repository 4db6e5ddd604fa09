//! The sources of the kernels, compiled by NVRTC on first use: once per process for all GPUs of a compute capability.

use crate::cuda::library::{Opaque, driver, functions, open};
use crate::cuda::plan::Format;
use crate::cuda::{Fault, check};
use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

functions! {
    /// Functions of `nvrtc.h`. Each returns an `nvrtcResult`.
    Compiler {
        /// `nvrtcCreateProgram(program, text, name, headers, their texts, their names)`.
        create = c"nvrtcCreateProgram" (
            *mut Opaque, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        );
        /// `nvrtcCompileProgram(program, options, their texts)`.
        compile = c"nvrtcCompileProgram" (Opaque, c_int, *const *const c_char);
        /// `nvrtcGetCUBINSize(program, bytes)`.
        size = c"nvrtcGetCUBINSize" (Opaque, *mut usize);
        /// `nvrtcGetCUBIN(program, machine code)`.
        code = c"nvrtcGetCUBIN" (Opaque, *mut c_char);
        /// `nvrtcGetProgramLogSize(program, bytes)`.
        log_size = c"nvrtcGetProgramLogSize" (Opaque, *mut usize);
        /// `nvrtcGetProgramLog(program, log)`.
        log = c"nvrtcGetProgramLog" (Opaque, *mut c_char);
        /// `nvrtcDestroyProgram(program)`.
        destroy = c"nvrtcDestroyProgram" (*mut Opaque);
    }
}

/// Returns the compiler, loaded on first use.
fn compiler() -> Option<&'static Compiler> {
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    let names = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"];
    COMPILER.get_or_init(|| names.iter().find_map(|name| open(name, Compiler::of))).as_ref()
}

/// Kernels that are compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// Optimiser steps.
    Update,
    /// Operations on all gradients at once, and copies of many tensors.
    Gradients,
    /// Buckets of many tensors.
    Bucket,
    /// Dropout.
    Dropout,
    /// Gradients of embedding tables.
    Embedding,
    /// Losses.
    Loss,
    /// Losses of one-stage detectors.
    PlaceLoss,
    /// Layer normalisation, alone and with the residual sum.
    Norm,
    /// The softmax of attention.
    Attention,
    /// Attention without stored scores, for queries in this 16-bit format.
    FusedAttention(Format),
    /// Time steps of recurrent layers.
    Recurrent,
    /// Batch normalisation and biases of images in this format.
    BatchNorm(Format),
    /// Batch normalisation of NHWC images in this format.
    BatchNormNhwc(Format),
    /// Packing and row sums for affine maps.
    Affine,
    /// Activation functions.
    Activation,
    /// Transposition.
    Transpose,
    /// RoIAlign of features in this format.
    RoiAlign(Format),
    /// Upsampling of images by two.
    Upsample,
    /// Other operations on NHWC images.
    Nhwc,
    /// Standardisation of images.
    Standardise,
    /// A computational load, for the calibration of power sensors.
    Load,
}

impl Program {
    /// All programs.
    #[cfg(test)]
    pub const ALL: [Self; 28] = [
        Self::Update,
        Self::Gradients,
        Self::Bucket,
        Self::Dropout,
        Self::Embedding,
        Self::Loss,
        Self::PlaceLoss,
        Self::Norm,
        Self::Attention,
        Self::FusedAttention(Format::F16),
        Self::FusedAttention(Format::Bf16),
        Self::Recurrent,
        Self::BatchNorm(Format::F32),
        Self::BatchNorm(Format::F16),
        Self::BatchNorm(Format::Bf16),
        Self::BatchNormNhwc(Format::F32),
        Self::BatchNormNhwc(Format::F16),
        Self::BatchNormNhwc(Format::Bf16),
        Self::Affine,
        Self::Activation,
        Self::Transpose,
        Self::RoiAlign(Format::F32),
        Self::RoiAlign(Format::F16),
        Self::RoiAlign(Format::Bf16),
        Self::Upsample,
        Self::Nhwc,
        Self::Standardise,
        Self::Load,
    ];

    fn text(self) -> String {
        let own = match self {
            Self::Update => include_str!("update.cu"),
            Self::Gradients => include_str!("gradients.cu"),
            Self::Bucket => include_str!("bucket.cu"),
            Self::Dropout => include_str!("dropout.cu"),
            Self::Embedding => include_str!("embedding.cu"),
            Self::Loss => include_str!("loss.cu"),
            Self::PlaceLoss => include_str!("place_loss.cu"),
            Self::Norm => concat!(include_str!("norm.cu"), include_str!("residual_norm.cu")),
            Self::Attention => include_str!("attention.cu"),
            Self::FusedAttention(_) => include_str!("fused_attention.cu"),
            Self::Recurrent => include_str!("recurrent.cu"),
            Self::BatchNorm(_) => {
                concat!(
                    include_str!("batch_norm.cu"),
                    include_str!("batch_norm_back.cu"),
                    include_str!("frozen_norm.cu"),
                    include_str!("bias.cu")
                )
            }
            Self::BatchNormNhwc(_) => {
                concat!("#define NHWC\n", include_str!("batch_norm.cu"), include_str!("batch_norm_back.cu"))
            }
            Self::Affine => include_str!("affine.cu"),
            Self::Activation => include_str!("activation.cu"),
            Self::Transpose => include_str!("transpose.cu"),
            Self::RoiAlign(_) => concat!(include_str!("roi_align.cu"), include_str!("roi_align_back.cu")),
            Self::Upsample => include_str!("upsample.cu"),
            Self::Nhwc => include_str!("nhwc.cu"),
            Self::Standardise => include_str!("standardise.cu"),
            Self::Load => include_str!("load.cu"),
        };
        // Compiled for one format at a time: all three would take three times as long.
        let format = match self {
            Self::BatchNorm(format)
            | Self::BatchNormNhwc(format)
            | Self::RoiAlign(format)
            | Self::FusedAttention(format) => match format {
                Format::F32 => "typedef F32 Format;\n#define PACK 4\n",
                Format::F16 => "typedef F16 Format;\n#define PACK 8\n",
                Format::Bf16 => "typedef Bf16 Format;\n#define PACK 8\n",
            },
            _ => "",
        };
        [include_str!("common.cu"), format, own].concat()
    }
}

/// Returns the machine code of a program for the GPU with this ordinal, or `None` if it cannot be compiled.
///
/// It is never freed, because there are only a few programs.
pub fn image(program: Program, device: usize) -> Option<&'static [u8]> {
    type Images = HashMap<(Program, [c_int; 2]), Option<&'static [u8]>>;
    static GENERATIONS: OnceLock<Mutex<HashMap<usize, Option<[c_int; 2]>>>> = OnceLock::new();
    static IMAGES: OnceLock<Mutex<Images>> = OnceLock::new();
    let told = |fault: Fault| log::warn!("no kernels of {program:?} on card {device}: {fault}");
    let mut generations = GENERATIONS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let of = (*generations.entry(device).or_insert_with(|| generation(device).map_err(told).ok()))?;
    drop(generations);
    let mut images = IMAGES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    *images.entry((program, of)).or_insert_with(|| make(program, of).map_err(told).ok().map(|image| &*image.leak()))
}

/// Returns a GPU's compute capability.
fn generation(device: usize) -> Result<[c_int; 2], Fault> {
    // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
    Ok([attribute(device, 75)?, attribute(device, 76)?])
}

/// Returns a property of a GPU, by the number of a `CUdevice_attribute`.
pub fn attribute(card: usize, attribute: c_int) -> Result<c_int, Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    let ordinal = c_int::try_from(card).map_err(|_| Fault::Absent)?;
    let (mut device, mut value) = (0, 0);
    // SAFETY: both can be written to.
    #[expect(unsafe_code, reason = "functions of the CUDA driver")]
    unsafe {
        check("cuDeviceGet", (driver.device)(&raw mut device, ordinal))?;
        check("cuDeviceGetAttribute", (driver.attribute)(&raw mut value, attribute, device))?;
    }
    Ok(value)
}

fn make(program: Program, [major, minor]: [c_int; 2]) -> Result<Vec<u8>, Fault> {
    let compiler = compiler().ok_or(Fault::Absent)?;
    let text = CString::new(program.text()).map_err(|_| Fault::Absent)?;
    let target = CString::new(format!("--gpu-architecture=sm_{major}{minor}")).map_err(|_| Fault::Absent)?;
    // Contracted operations would round differently from the host and from tensor operations.
    let options = [target.as_ptr(), c"--fmad=false".as_ptr()];
    let mut object = null_mut();
    // SAFETY: the text ends with a zero and is copied; there are no headers.
    #[expect(unsafe_code, reason = "a function of NVRTC")]
    let created = unsafe { (compiler.create)(&raw mut object, text.as_ptr(), null(), 0, null(), null()) };
    check("nvrtcCreateProgram", created)?;
    // SAFETY: the program was made above; both options end with a zero and live until the call is over.
    #[expect(unsafe_code, reason = "a function of NVRTC")]
    let compiled = unsafe { (compiler.compile)(object, 2, options.as_ptr()) };
    let code = match check("nvrtcCompileProgram", compiled) {
        Ok(()) => bytes(compiler.size, compiler.code, object),
        Err(fault) => {
            let said = bytes(compiler.log_size, compiler.log, object).unwrap_or_default();
            log::warn!("NVRTC on {program:?}: {}", String::from_utf8_lossy(&said));
            Err(fault)
        }
    };
    // SAFETY: the program was made above, and nothing of it is used any more.
    #[expect(unsafe_code, reason = "a function of NVRTC")]
    let destroyed = unsafe { (compiler.destroy)(&raw mut object) };
    check("nvrtcDestroyProgram", destroyed)?;
    code
}

type Length = unsafe extern "C" fn(Opaque, *mut usize) -> c_int;
type Contents = unsafe extern "C" fn(Opaque, *mut c_char) -> c_int;

/// Reads an output of a compiled program.
fn bytes(length: Length, contents: Contents, object: Opaque) -> Result<Vec<u8>, Fault> {
    let mut len = 0;
    // SAFETY: the object is a program of the compiler, and the length can be written to.
    #[expect(unsafe_code, reason = "a function of NVRTC")]
    check("a length of NVRTC", unsafe { length(object, &raw mut len) })?;
    let mut bytes = vec![0_u8; len];
    // SAFETY: as many bytes as are asked for can be written to.
    #[expect(unsafe_code, reason = "a function of NVRTC")]
    check("contents of NVRTC", unsafe { contents(object, bytes.as_mut_ptr().cast()) })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_compiles_where_there_is_a_compiler() {
        if compiler().is_none() {
            return;
        }
        for program in Program::ALL {
            let code = make(program, [9, 0]);
            assert!(code.is_ok_and(|code| code.starts_with(b"\x7fELF")), "{program:?}");
        }
    }
}
