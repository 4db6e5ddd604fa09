//! A task's own ledger on its node's scratch space, and those that killed tasks left there.

use crate::cli::failure::{Failure, exit};
use crate::cli::output::say;
use crate::cluster::Folder;
use crate::engine::KeptCalibration;
use crate::host::{environment, files, owner, slurm};
use crate::store::Store;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that is locked while its task runs. The kernel releases the lock however the task ends, in any container.
const LIVING: &str = "task.lock";
/// How long sealed attempts that were not exported stay available.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The prefix of the names of all such folders.
const PREFIX: &str = "ledger-";

/// A ledger of the task's own.
pub(super) struct Scratch {
    pub(super) dir: PathBuf,
    pub(super) store: Store,
    /// Absent on a file system without locks.
    _living: Option<File>,
}

impl Scratch {
    /// Creates the ledger with the GPU calibrations of the submitting one, and removes those that killed tasks left.
    pub(super) fn make(place: &slurm::Place, folder: &Folder) -> Result<Self, Failure> {
        let root = environment::var("LEDGER_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
        // Two clusters may share a host, and their job numbers may coincide.
        let nonce = files::random_nonce().map_err(|error| Failure::new(exit::LEDGER, error))?.to_string();
        let dir = root.join(format!("{PREFIX}{}-{}-{nonce:.8}", place.job, place.restarts));
        files::private_folder(&dir).map_err(|error| {
            Failure::new(
                exit::LEDGER,
                format!("cannot make `{}` (slurm.scratch names another): {error}", dir.display()),
            )
        })?;
        let living = lock(&dir).ok();
        for left in remove_dead(&root, &dir) {
            say(&format!("removed `{}`, which a killed task had left", left.display()));
        }
        if let Err(error) = KeptCalibration::hand_on(folder.dir(), &dir) {
            say(&format!("warning: energies have wider intervals, since no calibration is found: {error}"));
        }
        Ok(Self { store: Store::at(&dir), dir, _living: living })
    }

    /// Keeps the folder for a person. No later task removes it.
    pub(super) fn keep(self) {
        say(&format!("`{}` is kept, since its results could not be imported", self.dir.display()));
        if let Err(error) = fs::remove_file(self.dir.join(LIVING))
            && error.kind() != io::ErrorKind::NotFound
        {
            say(&format!("warning: the next task on this node will remove it: {error}"));
        }
    }

    pub(super) fn remove(self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            say(&format!("warning: `{}` is left behind: {error}", self.dir.display()));
        }
    }
}

/// Locks a folder for as long as the file stays open.
fn lock(dir: &Path) -> io::Result<File> {
    // The file is locked before it gets its final name, so that it is never seen unlocked.
    let making = dir.join(format!(".{LIVING}"));
    let mut file = File::create(&making)?;
    file.write_all(owner::host_name().as_bytes())?;
    match file.try_lock().map_err(io::Error::from).and_then(|()| fs::rename(&making, dir.join(LIVING))) {
        Ok(()) => Ok(file),
        Err(error) => {
            // The file is unused.
            let _ = fs::remove_file(&making);
            Err(error)
        }
    }
}

/// Whether the last write is older than [`KEPT`].
fn is_old(dir: &Path) -> bool {
    let written =
        fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok()?.modified().ok());
    let age = |newest: SystemTime| newest.elapsed().is_ok_and(|age| age > KEPT);
    written.max().is_some_and(age)
}

/// Removes the folders of this user's tasks that died on this host long ago, and returns their paths. On file systems
/// whose locks are valid within one host, the state of other hosts' tasks is unknown.
fn remove_dead(root: &Path, own: &Path) -> Vec<PathBuf> {
    let Ok(user) = fs::metadata(own).map(|metadata| metadata.uid()) else { return Vec::new() };
    let paths = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_dead = |path: &PathBuf| {
        let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        let is_ours = || fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user);
        let is_free = || {
            files::open_lock(&path.join(LIVING), None)
                .is_ok_and(|file| file.is_some_and(|file| file.try_lock().is_ok()))
        };
        let is_of_this_host = || fs::read_to_string(path.join(LIVING)).is_ok_and(|host| host == owner::host_name());
        path != own && is_named && is_ours() && is_of_this_host() && is_old(path) && is_free()
    };
    // The next task can try again to remove the rest.
    paths.filter(is_dead).filter(|path| fs::remove_dir_all(path).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_folders_of_dead_tasks_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let [own, living, dead, fresh, foreign, kept, other] =
            ["ledger-1", "ledger-2", "ledger-3", "ledger-4", "ledger-5", "ledger-6", "else-7"]
                .map(|name| root.path().join(name));
        let all = [&own, &living, &dead, &fresh, &foreign, &kept, &other];
        for dir in all {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("ledger.redb"), "x").unwrap();
        }
        let locks = [lock(&own).unwrap(), lock(&living).unwrap()];
        drop([&dead, &fresh, &foreign, &other].map(|dir| lock(dir).unwrap()));
        // A task of another host, whose lock is not visible here.
        fs::write(foreign.join(LIVING), "another-host").unwrap();
        let long_ago = SystemTime::now() - KEPT - Duration::from_secs(60);
        for dir in all.into_iter().filter(|dir| **dir != fresh) {
            for entry in fs::read_dir(dir).unwrap() {
                File::options().write(true).open(entry.unwrap().path()).unwrap().set_modified(long_ago).unwrap();
            }
        }
        std::os::unix::fs::symlink(&dead, root.path().join("ledger-8")).unwrap();
        assert_eq!(remove_dead(root.path(), &own), std::slice::from_ref(&dead));
        assert!(
            !dead.exists() && all.into_iter().filter(|dir| **dir != dead).all(|dir| dir.join("ledger.redb").exists())
        );
        drop(locks);
        assert_eq!(remove_dead(root.path(), &own), [living]);
    }
}
