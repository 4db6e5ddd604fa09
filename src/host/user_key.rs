//! A secret of this user, which distinguishes commands recorded by this user from those that others put into a ledger.
//!
//! It is stored outside of every ledger, so that neither a copied nor a foreign ledger contains it. Machines that share
//! a home folder share it.

use super::environment::user_folder;
use super::files;
use super::owner::user_id;
use ledger_record::{Digest, Nonce, RunId, Table, Value};
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BYTES: usize = 32;
/// One byte more than a key, to detect files that are too long.
const MOST_BYTES: u64 = 33;
/// The mode bits of other users.
const OTHERS: u32 = 0o077;

/// The secret key.
#[derive(Clone, PartialEq, Eq)]
pub struct UserKey([u8; BYTES]);

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey(…)")
    }
}

impl UserKey {
    /// Returns this user's key: `ledger/key` in `$XDG_STATE_HOME`, or in `~/.local/state`. `None` if it does not exist,
    /// or other users could read it.
    pub fn of_user() -> Option<Self> {
        Self::read(&file()?)
    }

    /// As [`of_user`](Self::of_user), but makes the key if it does not exist. `None` if the folder is not this user's
    /// or cannot be written.
    pub fn of_user_or_new() -> Option<Self> {
        let path = file()?;
        Self::read(&path).or_else(|| {
            Self::make(&path).ok()?;
            Self::read(&path)
        })
    }

    fn read(path: &Path) -> Option<Self> {
        let file = fs::File::open(path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || found.uid() != user_id() || found.mode() & OTHERS != 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(BYTES + 1);
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// Makes the key file. The first process wins, and all others read its key.
    fn make(path: &Path) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
        let existing = folder.ancestors().find(|above| above.exists()).ok_or(io::ErrorKind::NotFound)?;
        // Under sudo the home may be another user's, who could then not read the key.
        if fs::metadata(existing)?.uid() != user_id() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        files::private_folder(folder)?;
        let [first, second, name] = [random()?, random()?, random()?];
        let temporary = folder.join(format!(".key-{name}"));
        let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let linked = written.and_then(|mut file| {
            file.write_all(&first.0)?;
            file.write_all(&second.0)?;
            file.sync_all()?;
            fs::hard_link(&temporary, path)
        });
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the mark of a run that this user executes with these settings, which include the command, its folder,
    /// the image and the data's path.
    pub fn mark(&self, run: RunId, settings: &Table) -> Digest {
        let settings = Value::Table(settings.clone()).digest();
        Digest::of_pieces("ledger executed by v1", &[&self.0, &run.0.0, &settings.0])
    }
}

fn random() -> io::Result<Nonce> {
    files::random_nonce().map_err(io::Error::other)
}

fn file() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("ledger/key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_refused_if_others_could_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/ledger/key");
        assert_eq!(UserKey::read(&path), None);
        UserKey::make(&path).unwrap();
        let key = UserKey::read(&path).unwrap();
        UserKey::make(&path).unwrap();
        assert_eq!(UserKey::read(&path), Some(key.clone()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(format!("{key:?}"), "UserKey(…)");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(UserKey::read(&path), None);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, [0; BYTES + 1]).unwrap();
        assert_eq!(UserKey::read(&path), None);
    }

    #[test]
    fn the_mark_depends_on_key_run_and_settings() {
        let (run, settings) = (RunId(Digest([1; 32])), Table::from([("program.directory".to_owned(), "/a".into())]));
        let key = UserKey([3; BYTES]);
        let mark = key.mark(run, &settings);
        assert_eq!(key.mark(run, &settings), mark);
        assert_ne!(UserKey([4; BYTES]).mark(run, &settings), mark);
        assert_ne!(key.mark(RunId(Digest([2; 32])), &settings), mark);
        assert_ne!(key.mark(run, &Table::new()), mark);
    }
}
