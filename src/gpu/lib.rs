//! NVIDIA GPUs: which exist, which CUDA would use, what they measure and report, and the libraries that training needs.
//!
//! NVIDIA's libraries are loaded at run time and only on request, so that the program starts on a machine without them
//! and starts fast on one with them. The crate knows nothing of runs or ledgers and reads no environment variables
//! (callers pass them). Only `control` changes settings of a GPU, and only on request.

mod checks;
mod condition;
mod control;
mod identity;
mod libraries;
mod loader;
mod meter;
mod nvml;
mod report;
mod shortage;
mod visible;

pub use checks::checks;
pub use control::{Allowed, Change, ChangeError, Settings};
pub use identity::{CudaVersions, cuda_part, device_part, driver_part};
pub use libraries::{Item, LibraryEnv, LibrarySurvey, survey};
pub use meter::{GpuProcess, Look, Meter};
pub use nvml::{GpuError, GpuInfo, Gpus};
pub use report::{SurveyReport, report};
pub use shortage::{Shortage, is_out_of_memory, needed_bytes};
pub use visible::{UsableError, VisibleError, usable, visible};
