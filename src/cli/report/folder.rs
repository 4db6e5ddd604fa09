//! A folder that appears when it is whole.

use crate::cli::failure::{Failure, exit};
use crate::report::MARKER;
use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

/// A folder beside its place; gone again if it is not finished.
pub(super) struct Folder {
    place: PathBuf,
    new: PathBuf,
    is_finished: std::cell::Cell<bool>,
}

fn refused(path: &Path, error: &Error) -> Failure {
    Failure::new(exit::USAGE, format!("cannot write `{}`: {error}", path.display()))
}

/// A name beside that of a folder which nobody else uses.
fn beside(place: &Path, what: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{what}-{}", std::process::id()));
    place.with_file_name(name)
}

impl Folder {
    /// Begins a folder. What is no report, and not empty, is replaced only by force.
    pub(super) fn new(place: &Path, force: bool) -> Result<Self, Failure> {
        let place = std::path::absolute(place).map_err(|error| refused(place, &error))?;
        if place.file_name().is_none() {
            return Err(Failure::new(exit::USAGE, format!("`{}` cannot become a report", place.display())));
        }
        if let Ok(found) = fs::symlink_metadata(&place) {
            if !found.is_dir() {
                return Err(Failure::new(
                    exit::USAGE,
                    format!("`{}` is no folder (-o names another one)", place.display()),
                ));
            }
            let is_empty = fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_none());
            let is_report = place.join(MARKER).is_file();
            if !is_empty && !is_report && !force {
                let text = format!("`{}` is no report, and is left as it is (--force replaces it)", place.display());
                return Err(Failure::new(exit::USAGE, text));
            }
        }
        let new = beside(&place, "new");
        let made = fs::create_dir(&new)
            .and_then(|()| ["runs", "figures", "data"].iter().try_for_each(|name| fs::create_dir(new.join(name))));
        made.map_err(|error| refused(&place, &error))?;
        Ok(Self { place, new, is_finished: std::cell::Cell::new(false) })
    }

    /// Writes a file of it.
    pub(super) fn write(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        fs::write(self.new.join(path), content).map_err(|error| refused(&self.place.join(path), &error))
    }

    /// Moves it to its place; what is there goes only when the new one is there.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let old = beside(&self.place, "old");
        let failed = |error: Error| refused(&self.place, &error);
        let is_there = self.place.exists();
        if is_there {
            fs::rename(&self.place, &old).map_err(failed)?;
        }
        if let Err(error) = fs::rename(&self.new, &self.place) {
            if is_there {
                // Nothing better can be done than to tell of the first failure.
                let _ = fs::rename(&old, &self.place);
            }
            return Err(failed(error));
        }
        self.is_finished.set(true);
        if is_there {
            fs::remove_dir_all(&old).map_err(|error| refused(&old, &error))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_finished.get() {
            // Half a report is worth nothing; if it cannot be removed, its name says what it is.
            let _ = fs::remove_dir_all(&self.new);
        }
    }
}
