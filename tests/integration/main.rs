//! End-to-end tests: whole commands over an environment that was cleared, and the structure of the source.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod answers;
mod architecture;
mod browser;
mod calibrate;
mod campaign;
mod container;
mod crash;
mod data;
mod effects;
mod fake;
mod faults;
mod foreign;
mod golden;
mod gpu;
mod identity;
mod images;
mod limits;
mod machine;
mod modes;
mod outputs;
mod pictures;
mod programs;
mod protocol;
mod python;
mod questions;
mod reports;
mod reruns;
mod results;
mod sandbox;
mod scripts;
mod slurm;
mod slurm_ends;
mod slurm_local;
mod slurm_scripted;
mod sweep;
mod tables;
mod telemetry;
mod trackers;
#[cfg(feature = "train")]
mod training;
mod trust;
mod tuning;
mod units;
mod validity;
mod words;
