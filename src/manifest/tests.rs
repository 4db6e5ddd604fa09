//! Manifests as a whole, from text to cells or faults.

mod cells;
mod faults;
mod files;
mod writing;

use super::*;

/// The manifest of a text, which must be right.
fn read(text: &str) -> Manifest {
    parse(text, "test.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The faults of a text, one a line.
fn faults(text: &str) -> String {
    let error = parse(text, "m").expect_err(text);
    assert!(!error.faults().is_empty(), "{error}");
    error.to_string()
}

/// What enters the identity of each cell.
fn identities(manifest: &Manifest) -> Vec<(Digest, u64)> {
    manifest.cells.iter().map(|cell| (Value::Table(cell.config.clone()).digest(), cell.seed)).collect()
}
