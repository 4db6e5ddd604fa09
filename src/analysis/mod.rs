//! Analysis of records.
//!
//! Knows the words of `record`. Must not know files, clocks or devices: every result is a pure function of the
//! arguments.

mod best;
mod compare;
mod comparison;
mod contrast;
mod correlate;
mod counter;
#[cfg(test)]
mod coverage;
mod difference;
mod distribution;
mod effects;
mod energy;
mod events;
mod excerpt;
pub mod expr;
mod fields;
mod forecast;
mod halving;
mod hardware;
mod inference;
mod join;
mod lines;
mod measure;
mod mlperf;
mod outliers;
mod pairwise;
mod parallel;
mod pareto;
mod pipeline;
mod plausible;
mod portions;
mod readings;
mod regression;
mod replication;
mod resample;
mod resolution;
mod select;
mod sensor;
mod statistic;
mod steps;
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
pub use best::{
    Against, Contender, Measured, Ordering, Place, Saving, considered, may_have_probabilities, newest_run, place,
    saving,
};
pub use compare::{Line as SideLine, SideBySide, is_of_an_answer, side_by_side, stated_direction};
pub use comparison::{SIGNIFICANCE, Summary, holm, olympic_mean, together, tost};
pub use contrast::{PhaseDifference, Significance, TelemetryDifference, significance};
pub use correlate::{Correlation, Split, split};
pub use counter::CounterFault;
pub use difference::{
    CurveDifference, Difference, FieldDifference, MetricDifference, PROGRAM_FILES, PROGRAM_PACKAGES, PartDifference,
    count_lines, diff, is_computed, why,
};
pub use effects::{
    Contrast, Effects, Extreme, Factor, Inner, Interaction, MainEffect, ModelScale, Observation, Observations,
    Relation, Share, effects, interactions_with, is_feasible, observations,
};
pub use energy::{Energy, Method, Uncertainty};
pub use events::{
    Beside, By, EVENT_QUANTITIES, Events, EventsFault, EventsRow, LengthCorrelation, Mean, QuantityMeans, events_by,
    mean_of_all,
};
pub use excerpt::{EnergyOfDevices, energy_between, excerpt, phases_between};
pub use fields::{differing, differing_among, is_chosen, is_varied, is_version};
pub use forecast::{Basis, Forecast, History, history, total};
pub use halving::{FINALISTS, HALVING, Out, Standing, TimeBound, attempts_in, halve};
pub use hardware::gpus_of;
pub use join::{PhaseRow, join};
pub use lines::{ChangedLines, changed_lines};
pub use measure::Observed;
pub use mlperf::{MLPERF_POWER_RULES, Rule, Ruling, Unchecked, mlperf_power};
pub use outliers::{Outlier, outliers};
pub use pairwise::{Block, Comparison, Method as TestMethod, Scale, Untested, leads_by_other_seeds};
pub use pareto::{dominators, front_probabilities};
pub use plausible::{Implausible, implausible, share_for_percent};
pub use portions::{Portion, Portions, portions, quartiles};
pub use replication::{Estimate, SampleModel};
pub use select::{Unmatched, select};
pub use sensor::{Calibration, Sensor, Shape, Watched, Within, calibrate};
pub use steps::{Steps, Timed};
pub use telemetry::{Curve, Figures, Given, Kind, bit_shares, quantity};
pub use thin::Thin;
pub use training::{lay_out, warmup_among, warmup_steps};
pub use trials::{Asked, Configuration, Trial, configurations, count_left_out, names};
pub use units::{standard, unify, unify_by_model};
pub use validity::Bounds;
pub use verdict::{
    Class, Divergence, Grade, Judged, Margin, MarginFault, Verdict, compared_metrics, environment_changes, verdict,
};
pub use work::{
    grows_with_samples, is_of_sample, is_of_training, of_one_sample, samples_behind, samples_of_a_pass, unequal_samples,
};
