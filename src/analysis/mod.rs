//! Pure questions about records.
//!
//! Knows the words of `record` and nothing of files, clocks or devices: every answer follows from what it is given.

mod difference;
pub mod expr;
mod measure;
mod select;
mod telemetry;

pub use difference::{
    CurveDifference, Difference, FieldDifference, MetricDifference, PartDifference, Verdict, diff, is_computed,
    verdict, why,
};
pub use measure::{Observed, Timed, warmup_steps};
pub use select::{Unmatched, select};
pub use telemetry::{Curve, Figures, Kind, bit_shares, quantity};
