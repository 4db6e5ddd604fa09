//! Foreign formats: import of results, event logs and telemetry of other tools into a ledger, and export of attempts.
//!
//! Knows how foreign files are written and read, and converts them to and from sealed attempts. Must not know where a ledger is, or what is asked of
//! it.

pub mod attest;
mod bridge;
mod cluster;
mod event_file;
mod export;
mod foreign;
mod moment;
mod neptune;
mod protobuf;
mod rows;
mod table;
mod tensorboard;
mod wandb;

pub use bridge::BridgedRuns;
pub use cluster::{Cluster, ClusterFiles, read_cluster};
pub use export::{
    CrateOf, Encoding, Entry, File, Frame, MlflowFiles, PrometheusFamilies, PrometheusNames, ResearchObject, Sink,
    Sourced, TableWriter, WideColumns, long, mlflow_files, mllog_lines, no_phases, no_points, perfetto_trace, phases,
    tensorboard_file, write_points,
};
pub use foreign::{ForeignOrigin, ForeignRun};
pub use neptune::read_neptune;
pub use rows::{ImportError, RowFault, Source};
pub use table::{Results, RowOrigin, is_from, read_results};
pub use tensorboard::read_tensorboard;
pub use wandb::read_wandb;
