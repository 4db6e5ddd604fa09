//! Tests of whole manifests, from text to cells or faults.

mod cells;
mod faults;
mod files;
mod writing;

use super::*;

/// Parses a manifest that must be valid.
fn read(text: &str) -> Manifest {
    parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the faults of a text, one per line.
fn faults(text: &str) -> String {
    let error = parse(text, "m").expect_err(text);
    assert!(!error.faults().is_empty(), "{error}");
    error.to_string()
}

/// Returns the hashed part of each cell.
fn identities(manifest: &Manifest) -> Vec<(Digest, u64)> {
    manifest.cells.iter().map(|cell| (Value::Table(cell.config.clone()).digest(), cell.seed)).collect()
}
