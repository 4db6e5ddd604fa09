//! Operations on Burn's tensors that Burn does not have: rules of our own on its tape, and NVIDIA's libraries and kernels of
//! our own on the memory of its tensors.
//!
//! Knows nothing of models, data or records. `cuda` is there with the feature of that name; without the feature `tape` the
//! crate is empty.
#![cfg(feature = "tape")]

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod gradient_readiness;
pub mod number;
pub mod tape;
