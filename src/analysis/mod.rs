//! Pure questions about records.
//!
//! Knows the words of `record` and nothing of files, clocks or devices: every answer follows from what it is given.

mod counter;
mod difference;
mod energy;
mod events;
pub mod expr;
mod hardware;
mod inference;
mod join;
mod measure;
mod parallel;
mod readings;
mod select;
mod statistic;
mod telemetry;
mod training;
mod window;

pub use counter::CounterFault;
pub use difference::{
    CurveDifference, Difference, FieldDifference, MetricDifference, PartDifference, Verdict, diff, is_computed,
    verdict, why,
};
pub use energy::{Energy, Method, Uncertainty};
pub use events::{By, Correlation, EVENT_QUANTITIES, Events, EventsFault, EventsRow, Mean, QuantityMeans, events_by};
pub use join::{PhaseRow, join};
pub use measure::{Observed, Timed};
pub use select::{Unmatched, select};
pub use telemetry::{Curve, Figures, Kind, bit_shares, quantity};
pub use training::{lay_out, warmup_steps};
