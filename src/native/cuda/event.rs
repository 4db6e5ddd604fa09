//! Events of the CUDA driver, with which streams of one GPU or several wait for each other.

use super::library::{Driver, Opaque, driver};
use super::submit::submit;
use super::{Fault, check};
use burn::backend::DispatchDevice;
use burn::tensor::Device;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Arc, OnceLock};

/// `CU_EVENT_DISABLE_TIMING`: events with timing are more expensive.
const UNTIMED: u32 = 2;
/// `CU_EVENT_RECORD_EXTERNAL`: each launch of a captured graph records the event, and streams outside of the graph may
/// wait for it.
const EXTERNAL: u32 = 1;

/// An event after all work in a stream at its creation. It is stored as a number, so that it can be sent to another
/// thread. If it was created during a capture, each launch of the graph records it, and it must live as long as the
/// graph.
#[derive(Debug)]
pub(super) struct Event(usize);

impl Event {
    /// Creates an event after all work in a stream of the current context.
    pub fn behind(driver: &Driver, stream: Opaque) -> Result<Self, Fault> {
        Self::with(driver, stream, UNTIMED)
    }

    /// As [`Self::behind`], with timing.
    pub fn timed(driver: &Driver, stream: Opaque) -> Result<Self, Fault> {
        Self::with(driver, stream, 0)
    }

    fn with(driver: &Driver, stream: Opaque, flags: u32) -> Result<Self, Fault> {
        let mut event: Opaque = null_mut();
        let mut capturing = 0;
        // SAFETY: event and status can be written to, and the context of the stream is current.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        unsafe {
            check("cuStreamIsCapturing", (driver.is_capturing)(stream, &raw mut capturing))?;
            check("cuEventCreate", (driver.event)(&raw mut event, flags))?;
        }
        let made = Self(event.expose_provenance());
        // SAFETY: the event was made above, in the context of the stream.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        let status = unsafe {
            if capturing == 0 { (driver.record)(event, stream) } else { (driver.record_with)(event, stream, EXTERNAL) }
        };
        check("cuEventRecord", status)?;
        Ok(made)
    }

    /// Returns the seconds from an earlier event to this one, both with timing, or `None` if the GPU has not reached
    /// it.
    pub fn since(&self, driver: &Driver, before: &Self) -> Option<f64> {
        let [first, last] = [before.0, self.0].map(with_exposed_provenance_mut);
        let mut milliseconds = 0.0_f32;
        // SAFETY: both were made above; the time can be written to.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        let done = unsafe { (driver.query)(last) == 0 && (driver.elapsed)(&raw mut milliseconds, first, last) == 0 };
        done.then(|| f64::from(milliseconds) / 1e3)
    }

    /// Makes a stream of any GPU wait for the event.
    pub fn hold(&self, driver: &Driver, stream: Opaque) -> Result<(), Fault> {
        // SAFETY: it was made above, and is there for as long as this is.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuStreamWaitEvent", unsafe { (driver.wait)(stream, with_exposed_provenance_mut(self.0), 0) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(driver) = driver() else { return };
        // SAFETY: no other code uses it. Streams that wait for it still do, and it goes when that is over. A graph that
        // records it is launched no more.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        let status = unsafe { (driver.destroy)(with_exposed_provenance_mut(self.0)) };
        if status != 0 {
            log::warn!("cuEventDestroy: error {status}");
        }
    }
}

/// A point in the work of a device: after all work submitted from this thread before. In work that a graph repeats, it
/// refers to the last launch.
#[derive(Clone, Debug)]
pub struct Mark(Arc<OnceLock<Event>>);

impl Mark {
    /// Creates a mark at the current point, with timing if requested. On other devices than GPUs all submitted work is
    /// already complete.
    pub fn of(device: &Device, timed: bool) -> Self {
        let mark = Self(Arc::default());
        if let DispatchDevice::Cuda(card) = device.as_dispatch() {
            let Self(place) = mark.clone();
            submit(card, Vec::new(), move |_, stream| {
                let driver = driver().ok_or(Fault::Absent)?;
                let event = if timed { Event::timed(driver, stream) } else { Event::behind(driver, stream) };
                let _ = place.set(event?);
                Ok(())
            });
        }
        mark
    }

    /// Returns the seconds from the mark to an event, if both have timing and the GPU has reached the event.
    pub(super) fn until(&self, driver: &Driver, event: &Event) -> Option<f64> {
        event.since(driver, self.0.get()?)
    }

    /// Returns the seconds from an earlier mark to this one, if both have timing and the GPU has reached this one.
    pub fn since(&self, before: &Self) -> Option<f64> {
        self.0.get()?.since(driver()?, before.0.get()?)
    }

    /// Makes a stream of the GPU wait for the mark. Call it from work submitted after the mark was made.
    pub(super) fn hold(&self, driver: &Driver, stream: Opaque) -> Result<(), Fault> {
        self.0.get().ok_or(Fault::Absent)?.hold(driver, stream)
    }
}
