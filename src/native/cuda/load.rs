//! A computational load that begins and ends at known times, for the calibration of power sensors: multiplications and
//! additions on all multiprocessors.

use super::kernels::{Argument, Launcher, Program, attribute};
use super::library::{Opaque, driver};
use super::plan::enter;
use super::{Fault, check};
use std::ptr::null_mut;
use std::time::Duration;

/// Blocks per multiprocessor: as many threads as it supports.
const BLOCKS: u32 = 8;
const THREADS: u32 = 256;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: i32 = 16;

/// A GPU that is ready to work. It belongs to the thread that made it.
pub struct Load {
    launcher: Launcher,
    stream: Opaque,
    out: u64,
    blocks: u32,
}

impl Load {
    /// Prepares the GPU with this ordinal.
    ///
    /// # Errors
    /// If the driver or its compiler is missing or fails.
    pub fn on(card: usize) -> Result<Self, Fault> {
        let driver = driver().ok_or(Fault::Absent)?;
        enter(driver, card)?;
        let (mut stream, mut out) = (null_mut(), 0);
        // SAFETY: both can be written to, and the card's context is current.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        unsafe {
            check("cuStreamCreate", (driver.stream)(&raw mut stream, 1))?;
            check("cuMemAlloc", (driver.allocate)(&raw mut out, 4))?;
        }
        let launcher = Launcher::of(Program::Load, card, stream)?;
        let processors = u32::try_from(attribute(card, MULTIPROCESSORS)?).map_err(|_| Fault::Absent)?;
        Ok(Self { launcher, stream, out, blocks: processors * BLOCKS })
    }

    /// Works for this time, and waits for the end.
    ///
    /// # Errors
    /// If the GPU fails.
    pub fn work(&self, time: Duration) -> Result<(), Fault> {
        let microseconds = u32::try_from(time.as_micros()).map_err(|_| Fault::Absent)?;
        let arguments = [Argument::Address(self.out), Argument::U32(microseconds)];
        self.launcher.launch(c"load", [self.blocks, 1], [THREADS, 1], &arguments)?;
        let driver = driver().ok_or(Fault::Absent)?;
        // SAFETY: the stream was made above, in the context of this thread.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuStreamSynchronize", unsafe { (driver.await_all)(self.stream) })
    }
}
