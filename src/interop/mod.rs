//! Other people's formats: results, event logs and telemetry of other tools on their way into a ledger, and attempts on their way out.
//!
//! Knows how foreign files are written and read, and turns them into sealed attempts and these into them. Must not know where a ledger
//! lies, or what is asked of it.

pub mod attest;
mod cluster;
mod export;
mod moment;
mod rows;
mod table;

pub use cluster::{Cluster, ClusterFiles, read_cluster};
pub use export::{
    CrateOf, Encoding, Entry, File, Frame, MlflowFiles, Points, PrometheusFamilies, PrometheusNames, ResearchObject,
    Sourced, TableWriter, WideColumns, long, mlflow_files, mllog_lines, no_phases, no_points, phases, tensorboard_file,
};
pub use rows::{ImportError, RowFault, Source};
pub use table::{Results, RowOrigin, is_from, read_results};
