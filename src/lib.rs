//! `ledger` runs deep-learning experiments, keeps what they did, and answers which configuration is best.
//!
//! The rooms, each listed after those that it may import (`docs/architecture.md` has the table, a test holds it).

pub mod record;

pub mod wire;

pub mod manifest;

pub mod host;

pub mod gpu;

pub mod journal;

pub mod store;

#[cfg(feature = "train")]
pub mod train;

pub mod analysis;

pub mod engine;

pub mod interop;

pub mod cluster;

pub mod report;

pub mod cli;
