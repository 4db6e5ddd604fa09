//! NVIDIA's GPUs: which there are, which of them CUDA would use, what they draw and do, and the libraries that training on
//! them needs.
//!
//! Everything of NVIDIA's is loaded at run time and only when it is asked for, so that the program starts on a machine
//! without any of it, and starts fast on one that has it. It knows nothing of runs or ledgers, reads no environment variables
//! (they are handed in) and changes nothing on a card but in `control`, when it is told to.

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
