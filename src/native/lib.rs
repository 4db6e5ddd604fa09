//! Operations on Burn's tensors that Burn does not have: backward rules of our own on its tape, and NVIDIA's libraries
//! and our own kernels on the memory of its tensors.
//!
//! Knows nothing of models, data or records. Without the feature `tape` the crate is empty.
#![cfg(feature = "tape")]

pub mod cuda;
pub mod gradient_readiness;
pub mod number;
pub mod tape;
