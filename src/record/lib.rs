//! The data of a ledger: ids, parts, cells, attempts, events, series, metrics.
//!
//! Knows how each of them is hashed. Must not know how any is stored, sent, measured or shown. No I/O and no clock.

mod attempt;
mod check;
mod count;
mod digest;
mod disk;
mod entry;
mod event;
mod field;
mod glyph;
mod listing;
mod log;
mod metric;
mod output;
mod replicate;
mod run;
mod sample;
mod sealed;
mod series;
mod source;
mod standing;
mod unit;
mod value;

pub use attempt::{Attempt, AttemptId, Exit, Nonce, Outcome, Tail};
pub use check::{Check, CheckState};
pub use count::{count, first_of};
pub use digest::{Digest, DigestParseError, DigestWriter};
pub use disk::disk_hint;
pub use entry::Entry;
pub use event::{Event, EventKind, PhaseEdge};
pub use field::{Kind, Names, Visit, each_fact, each_field, field};
pub use glyph::is_invisible;
pub use listing::{DEEPEST, PICTURE_ENDINGS, is_hidden, is_picture, is_text};
pub use log::{Change, LogEntry, Origin, Repeated, Row, Target, tag_fault};
pub use metric::{Direction, JUDGING_METRICS, KNOWN_METRICS, Metric, MetricInfo, MetricKind, known_metric, mean};
pub use output::{OutputFacts, Piece, Stream};
pub use replicate::{Replicate, execution_values, is_computed, unit_mean, unit_values};
pub use run::{Cell, GroupId, Owner, Part, Parts, Run, RunId};
pub use sample::{Quantity, Reading, Sample, Source};
pub use sealed::{Inconsistency, Sealed, check_pieces};
pub use series::{Axis, Phase, Series, SeriesDigest, SeriesSummary};
pub use source::SourceText;
pub use standing::{LeftOut, Why};
pub use unit::{Unit, known_units};
pub use value::{Table, Value, ValueKey};
