//! Frozen, versioned encodings of `ledger-record`: bincode in the ledger, in journals and in packs, JSON elsewhere.
//!
//! These types are the stored format, separate from the types that the program uses. A released format never changes: a
//! new one is added, and old ones upgrade one step at a time. Every decoder is bounded: no input makes it panic,
//! recurse without end or allocate more than its limit.

mod brief;
mod choice;
mod chunk;
mod entry;
mod event;
mod json;
mod kernels;
mod log;
mod output;
mod pack;
mod source;
mod v1;

pub use brief::{Known, Place, Shape, Wanted, decode_shape, decode_values, encode_brief};
pub use choice::{Choice, parse_choice};
pub use chunk::{
    ChunkError, First, Points, decode_phases, decode_series, encode_phases, encode_points, encode_series,
    phases_memory, series_memory, summarize_series, visit_series,
};
pub use entry::{decode_entry, encode_entry};
pub use event::{EventFault, MAX_EVENT_BYTES, event_schema, parse_event, parse_line, write_event};
pub use json::{JsonFault, from_json, to_json, to_json_line, to_json_text};
pub use kernels::{Kernels, KernelsError, decode_kernels, encode_kernels};
pub use log::{decode_log_entry, decode_row, encode_log_entry, encode_row};
pub use output::{decode_output, encode_output};
pub use pack::{
    NextChunk, PACK_MAGIC, PACK_MOST_BYTES, PackError, PackFile, PackRoom, Packed, PackedAttempt, Spool, ToPack,
    decode_pack, decode_packed, encode_pack, encode_packed, missing_sources, write_pack,
};
pub use source::{decode_source, encode_source};
pub use v1::{WireError, decode_attempt, decode_run, encode_attempt, encode_run};

/// The format of all stored data. A ledger with a higher number is refused, for reading and for writing.
///
/// - 1: runs, attempts, series and phases as in `docs/record-format.md`.
pub const FORMAT: u32 = 1;

/// The format of every JSON document that a command prints (`"format": 1`).
pub const JSON_FORMAT: i64 = 1;
