//! Query results as text and as JSON documents, plots, and progress while something runs.
//!
//! Knows how results are presented. Must not know where they come from: functions take plain records and return text.

mod calibration;
mod cluster;
mod comparison;
mod contrast;
mod correlation;
mod difference;
mod document;
mod effects;
mod events;
mod fields;
mod figure;
mod forecast;
mod front;
mod grouped;
mod left_out;
mod limited;
mod listing;
mod live;
mod number;
mod paint;
mod panels;
mod pictures;
mod plain;
mod progress;
mod ranking;
mod record;
mod repeats;
mod sample;
mod site;
mod sparkline;
mod sureness;
mod table;
mod telemetry;
mod tuning;
mod units;
mod verdict;

pub use calibration::{sensors_text, sensors_value};
pub use cluster::{
    CellLine, StatusView, SubmittedArray, resumable_text, resume_text, status_text, status_value, submit_text,
    submit_value,
};
pub use comparison::{compare_text, compare_value};
pub use contrast::p_value;
pub use correlation::{Correlated, LabelledPoint, correlate_text, correlate_value};
pub use difference::{
    diff_text, diff_value, fields_text, fields_value as environment_value, program_changes, why_text, why_value,
};
pub use document::{document, table_of};
pub use effects::{Confounded, Effected, effects_text, effects_value};
pub use events::{events_text, events_value};
pub use fields::{field_text, listed_fields, short_names};
pub use figure::{Drawing, FONT_LICENSE, Figure, FigureError, Millimetres, Sheet, png, term};
pub use forecast::{Plan, PlannedRun, forecast_text, forecast_value};
pub use front::{Coordinate, Front, FrontPoint, Incomplete, pareto_text, pareto_value};
pub use grouped::{grouped_text, grouped_value};
pub use left_out::left_out_text;
pub use limited::{Limited, Reached};
pub use listing::{
    Line, Listing, Running, Summary, axes_label, checks_text, checks_value, ls_text, ls_value, own_metrics, plan_text,
    plan_value, summary_text,
};
pub use live::{Screen, Seen, fitted, live_lines, live_text, live_value};
pub use number::{bytes, count, duration, mean_within, percent, quantity, significant, timestamp, when};
pub use paint::Paint;
pub use pictures::{
    Curved, EnergyOf, Heat, Over, Subject, curves, distribution, effects_figure, energy_figure, front_figure, heat,
    readings_figure, scaling,
};
pub use plain::{PlainWriter, plain, plain_lines};
pub use progress::{Bar, Count, Progress};
pub use ranking::{Baseline, Ranking, Unmet, best_text, best_value, mean_text};
pub use record::{Described, show_text, show_value};
pub use repeats::{Repetition, repetitions_text, repetitions_value};
pub use sample::{place_text, sample_text, sample_value};
pub use site::{
    AttemptNames, AttemptOf, AttemptPage, AttemptTable, MARKER, ModelOf, ReportOf, RunOf, page_of, run_page,
};
pub use table::{columns, fitted_to};
pub use telemetry::{CSV_HEADS, Telemetry, TelemetryPart, TelemetryTable, csv_rows, telemetry_value};
pub use tuning::{
    Gone, Learned, Round, Tuning, behind, drawn_text, left_behind_text, left_behind_value, searched_text, too_slow,
    tuning_text, tuning_value,
};
pub use verdict::{verdict_text, verdict_value};
