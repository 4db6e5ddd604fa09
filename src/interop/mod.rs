//! Foreign formats: import of results, event logs and telemetry of other tools into a ledger, and export of attempts.
//!
//! Knows how foreign files are written and read, and converts them to and from sealed attempts. Must not know where a
//! ledger is, or what is asked of it.

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
pub use rows::{ImportError, RowFault, Source, file_name};
pub use table::{Results, RowOrigin, is_from, read_results};
pub use tensorboard::read_tensorboard;
pub use wandb::read_wandb;

use crate::record::{Digest, Nonce, Parts, Run, Table, Value};

/// Returns the run of an imported attempt, in which everything that its files do not state is unknown.
fn imported_run(config: Table, program: Table, device: Option<String>, seed: u64) -> Run {
    let unknown = || Value::from("unknown");
    Run::new(Parts {
        config: config.into(),
        program: program.into(),
        container: unknown(),
        cuda: unknown(),
        driver: unknown(),
        device: device.map_or_else(unknown, Value::from),
        seed,
    })
}

/// Returns the nonce of an imported attempt, which depends only on its content.
fn nonce_of(domain: &str, pieces: &[&[u8]]) -> Nonce {
    let Digest(bytes) = Digest::of_pieces(domain, pieces);
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&bytes[..16]);
    Nonce(nonce)
}
