//! Orders our work with that of Burn's runtime on a GPU. The runtime's streams do not wait for each other, nor for a
//! default stream.
//!
//! Our work is queued in the runtime's own stream, so that nothing has to wait. cubecl 0.11.0-pre.3 has no accessor for
//! the stream: no public function of its server returns one (the trait `ComputeServer`; `CudaServer` has no other).
//! `get_resource` returns an address (`GpuResource`), `stream_ids` returns numbers. The stream is `Stream::sys` in
//! cubecl-cuda's private module `compute::stream`; `CudaServer`'s fields and constructor are private, too. Nor can a
//! stream be passed in, because the server creates its own. Therefore the stream is read once from the server's `Debug`
//! output, and the driver confirms that it belongs to the GPU's context (`cuStreamGetCtx`). cubecl's version is pinned;
//! an accessor in a later one will replace `shown` and `Search`.
//!
//! If the stream is not found, our work is queued in a separate stream. It waits for all earlier work of the GPU's
//! context, and all later work waits for it. This requires CUDA 12.5, and makes the GPU idle for a moment each time.

use super::library::{Driver, Opaque, driver};
use super::{Fault, check};
use burn::tensor::StreamId;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::server::ComputeServer;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::ptr::{null_mut, with_exposed_provenance_mut};

thread_local! {
    /// The state of a GPU. It is thread-local, because the runtime talks to a GPU from one thread.
    static CARD: RefCell<Card> = RefCell::default();
}

#[derive(Default)]
struct Card {
    /// The runtime's streams by their index; `None` for a stream that was not found.
    streams: HashMap<u64, Option<usize>>,
    /// Our separate stream.
    side_stream: Option<SideStream>,
}

#[derive(Clone, Copy)]
struct SideStream {
    stream: Opaque,
    before: Opaque,
    after: Opaque,
}

/// Launches work in order with that of a stream of the runtime. Call it on the runtime's thread, with the GPU's context
/// current.
pub fn in_turn<S: ComputeServer>(
    server: &S,
    id: StreamId,
    launch: impl FnOnce(Opaque) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let driver = driver().ok_or(Fault::Absent)?;
    CARD.with_borrow_mut(|card| match card.stream(driver, server, id) {
        Some(stream) => launch(stream),
        None => card.side_stream(driver)?.between(driver, launch),
    })
}

impl Card {
    fn stream<S: ComputeServer>(&mut self, driver: &Driver, server: &S, id: StreamId) -> Option<Opaque> {
        // The runtime has at most this many streams, and assigns them like this.
        let place = id.value % u64::from(CubeClRuntimeConfig::get().streaming.max_streams).max(1);
        let found = *self.streams.entry(place).or_insert_with(|| {
            let number = server.stream_ids().iter().position(|stream| stream.value == place);
            let found = number.and_then(|number| shown(server, number)).filter(|stream| is_of_context(driver, *stream));
            if found.is_none() {
                log::warn!("the stream of the runtime was not found: products wait for the whole card");
            }
            found
        });
        found.map(with_exposed_provenance_mut)
    }

    fn side_stream(&mut self, driver: &Driver) -> Result<SideStream, Fault> {
        if let Some(side_stream) = self.side_stream {
            return Ok(side_stream);
        }
        let mut side_stream = SideStream { stream: null_mut(), before: null_mut(), after: null_mut() };
        // CU_STREAM_NON_BLOCKING, and CU_EVENT_DISABLE_TIMING, without which an event costs more.
        // SAFETY: all can be written to, and the card's context is current.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        unsafe {
            check("cuStreamCreate", (driver.stream)(&raw mut side_stream.stream, 1))?;
            check("cuEventCreate", (driver.event)(&raw mut side_stream.before, 2))?;
            check("cuEventCreate", (driver.event)(&raw mut side_stream.after, 2))?;
        }
        self.side_stream = Some(side_stream);
        Ok(side_stream)
    }
}

impl SideStream {
    fn between(self, driver: &Driver, launch: impl FnOnce(Opaque) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut context = null_mut();
        // SAFETY: the stream and the events were made by the driver and are never given back; an event may be recorded
        // again as soon as the wait for it is queued.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        unsafe {
            check("cuCtxGetCurrent", (driver.current)(&raw mut context))?;
            check("cuCtxRecordEvent", (driver.record_all)(context, self.before))?;
            check("cuStreamWaitEvent", (driver.wait)(self.stream, self.before, 0))?;
        }
        launch(self.stream)?;
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "functions of the CUDA driver")]
        unsafe {
            check("cuEventRecord", (driver.record)(self.after, self.stream))?;
            check("cuCtxWaitEvent", (driver.wait_all)(context, self.after))
        }
    }
}

/// Whether the driver confirms that a stream belongs to the current context.
fn is_of_context(driver: &Driver, stream: usize) -> bool {
    let (mut current, mut context) = (null_mut(), null_mut());
    // SAFETY: both can be written to. The stream is what the runtime holds as one: the text around it says so, and the
    // runtime's version is pinned.
    #[expect(unsafe_code, reason = "functions of the CUDA driver")]
    let told = unsafe {
        ((driver.current)(&raw mut current), (driver.context_of)(with_exposed_provenance_mut(stream), &raw mut context))
    };
    told == (0, 0) && current == context
}

/// Returns the address of a stream from a server's debug output, which lists its streams by index.
fn shown(server: &impl fmt::Debug, number: usize) -> Option<usize> {
    let mut search = Search { skip: number, matched: 0, digits: String::new(), found: None };
    // It ends with an error as soon as the address is found.
    let _ = write!(search, "{server:?}");
    search.found
}

const BEFORE: &[u8] = b"StreamWrapper { stream: Stream { sys: 0x";

struct Search {
    /// The number of streams to skip.
    skip: usize,
    /// How much of the text before an address has been matched.
    matched: usize,
    digits: String,
    found: Option<usize>,
}

impl Write for Search {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.matched < BEFORE.len() {
                // The first letter of the text occurs elsewhere in it only where a shorter match begins.
                self.matched = match byte {
                    byte if byte == BEFORE[self.matched] => self.matched + 1,
                    b'S' => 1,
                    _ => 0,
                };
            } else if byte.is_ascii_hexdigit() {
                self.digits.push(char::from(byte));
            } else if self.skip > 0 {
                self.skip -= 1;
                self.matched = 0;
                self.digits.clear();
            } else {
                self.found = usize::from_str_radix(&self.digits, 16).ok().filter(|address| *address != 0);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "only shown")]
    struct Stream {
        sys: *const u8,
        other: Option<usize>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "only shown")]
    struct StreamWrapper {
        stream: Stream,
        cursor: u64,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "only shown")]
    struct StreamPool {
        streams: Vec<Option<StreamWrapper>>,
    }

    #[test]
    fn streams_are_parsed_in_order() {
        let wrapper = |address: usize| {
            let stream = Stream { sys: std::ptr::without_provenance(address), other: None };
            Some(StreamWrapper { stream, cursor: 0x11 })
        };
        let pool = StreamPool { streams: vec![None, wrapper(0x7fab_c0de), None, wrapper(0xdead_0000)] };
        assert_eq!([0, 1, 2].map(|number| shown(&pool, number)), [Some(0x7fab_c0de), Some(0xdead_0000), None]);
        assert_eq!(shown(&StreamPool { streams: vec![wrapper(0)] }, 0), None);
        assert_eq!(shown(&"StreamWrapper { stream: StreamStream { sys: 0x12 }", 0), None);
    }
}
