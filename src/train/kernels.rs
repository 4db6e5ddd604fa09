//! The folder in which the device's runtime keeps what it tuned and compiled.
//!
//! Knows how its files are named: one SQLite database for each environment, `<name>.db`, with most of its content in `<name>.db-wal`
//! until somebody folds that in. Who runs the worker chooses the folder, by a `cubecl.toml` in the worker's directory.

use std::fs;
use std::path::Path;

/// Less than this is an empty database and the few kernels of the smoke operation; a model's are a megabyte and more.
const WARM_BYTES: u64 = 256 << 10;

/// Whether the folder holds the kernels of an earlier run. They may still be those of another model.
pub fn is_warm(folder: Option<&Path>) -> bool {
    let Some(entries) = folder.and_then(|folder| fs::read_dir(folder).ok()) else { return false };
    let of_database = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.ends_with(".db") || name.ends_with(".db-wal")
    };
    let sizes =
        entries.filter_map(Result::ok).filter(of_database).filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.sum::<u64>() >= WARM_BYTES
}

/// What to say to who waits for the first step.
pub fn announcement(warm: bool) -> &'static str {
    if warm { "loading kernels" } else { "compiling and tuning kernels for this GPU: the first run takes minutes" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_warm_when_its_databases_are_large_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, kib: usize| fs::write(folder.path().join(name), vec![0; kib << 10]).expect("written");
        assert!(!is_warm(None));
        assert!(!is_warm(Some(&folder.path().join("absent"))));
        assert!(!is_warm(Some(folder.path())));
        write("cubecl.toml", 400);
        write("default.db-shm", 400);
        write("default.db", 4);
        assert!(!is_warm(Some(folder.path())));
        write("default.db-wal", 252);
        assert!(is_warm(Some(folder.path())));
        assert_ne!(announcement(true), announcement(false));
    }
}
