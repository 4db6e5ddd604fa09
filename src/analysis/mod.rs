//! Pure questions about records.
//!
//! Knows the words of `record` and nothing of files, clocks or devices: every answer follows from what it is given.

mod best;
mod compare;
mod comparison;
mod contrast;
mod correlate;
mod counter;
mod difference;
mod distribution;
mod effects;
mod energy;
mod events;
pub mod expr;
mod fields;
mod forecast;
mod halving;
mod hardware;
mod inference;
mod join;
mod measure;
mod mlperf;
mod parallel;
mod pareto;
mod pipeline;
mod portions;
mod readings;
mod regression;
mod resolution;
mod select;
mod sensor;
mod statistic;
mod telemetry;
mod thin;
mod training;
mod trials;
mod unequal;
mod units;
mod validity;
mod verdict;
mod window;
mod work;

pub use crate::record::{Names, field};
pub use best::{Against, Contender, Likeness, Measured, Place, Saving, newest_run, place, saving};
pub use compare::{Line as SideLine, SideBySide, side_by_side};
pub use comparison::{SIGNIFICANCE, Summary, Test, holm, olympic_mean, together, tost, welch};
pub use contrast::{PhaseDifference, Significance, TelemetryDifference, significance};
pub use correlate::{Correlation, Split, split};
pub use counter::CounterFault;
pub use difference::{
    CurveDifference, Difference, FieldDifference, MetricDifference, PartDifference, diff, is_computed, why,
};
pub use effects::{Effects, Factor, Interaction, MainEffect, Share, effects};
pub use energy::{Energy, Method, Uncertainty};
pub use events::{
    By, EVENT_QUANTITIES, Events, EventsFault, EventsRow, LengthCorrelation, Mean, QuantityMeans, events_by,
};
pub use fields::{differing, is_chosen};
pub use forecast::{Basis, Forecast, History, history, total};
pub use halving::{FINALISTS, HALVING, Out, Standing, TimeBound, attempts_in, halve};
pub use join::{PhaseRow, join};
pub use measure::{Observed, Timed};
pub use mlperf::{MLPERF_POWER_RULES, Rule, Ruling, Unchecked, mlperf_power};
pub use pareto::dominators;
pub use portions::{Portion, Portions, portions, quartiles};
pub use select::{Unmatched, select};
pub use sensor::{Calibration, Sensor, Shape, Watched, Within, calibrate};
pub use telemetry::{Curve, Figures, Kind, bit_shares, quantity};
pub use thin::Thin;
pub use training::{lay_out, warmup_among, warmup_steps};
pub use trials::{Asked, Configuration, Trial, configurations, count_left_out, names};
pub use units::{standard, unify, unify_by_model};
pub use validity::Bounds;
pub use verdict::{
    Class, Divergence, Grade, Judged, Margin, MarginFault, Verdict, compared_metrics, environment_changes, verdict,
};
pub use work::{of_one_sample, samples_behind, samples_of_a_pass};
