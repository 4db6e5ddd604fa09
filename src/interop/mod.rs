//! Other people's formats: results, event logs and telemetry of other tools on their way into a ledger.
//!
//! Knows how foreign files are written and turns them into sealed attempts. Must not know where a ledger lies, or what is asked
//! of it afterwards.

mod cluster;
mod moment;
mod rows;
mod table;
mod unit;

pub use cluster::{Cluster, ClusterFiles, read_cluster};
pub use rows::{ImportError, RowFault, Source};
pub use table::{Results, read_results};
