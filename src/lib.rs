//! `ledger` runs deep-learning experiments, keeps what they did, and answers which configuration is best.
//!
//! The rooms, each listed after those that it may import (`docs/architecture.md` has the table). Five of them are crates of
//! their own, known here by their rooms' names. A test holds the borders of the others.

pub use ledger_record as record;

pub use ledger_wire as wire;

pub mod manifest;

pub use ledger_host as host;

pub use ledger_gpu as gpu;

pub mod journal;

pub mod store;

#[cfg(feature = "train")]
pub use ledger_train as train;

pub mod analysis;

pub mod engine;

pub mod interop;

pub mod cluster;

pub mod report;

pub mod ui;

pub mod cli;
