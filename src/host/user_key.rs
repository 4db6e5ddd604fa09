//! A secret of this user, by which a ledger's own commands are told from those that somebody else put into it.
//!
//! It lies outside every ledger, so that neither a copied folder nor a foreign one has it. It goes where the user's home goes: machines that share a home share it.

use super::environment::var;
use super::files;
use super::owner::user_id;
use ledger_record::{Digest, Nonce, RunId, Table, Value};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BYTES: usize = 32;
/// One byte more than a key has shows a file that is none.
const MOST_BYTES: u64 = 33;
/// No other user may read it.
const OTHERS: u32 = 0o077;

/// The secret.
#[derive(Clone, PartialEq, Eq)]
pub struct UserKey([u8; BYTES]);

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserKey(…)")
    }
}

impl UserKey {
    /// The key of this user: `ledger/key` in `$XDG_STATE_HOME`, or in `~/.local/state`. None where there is none, or where others could know it.
    pub fn of_user() -> Option<Self> {
        Self::read(&file()?)
    }

    /// As [`of_user`](Self::of_user), made if there is none. None where the folder is not this user's or cannot be written.
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

    /// The first process wins; all others read what it wrote.
    fn make(path: &Path) -> io::Result<()> {
        let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
        let existing = folder.ancestors().find(|above| above.exists()).ok_or(io::ErrorKind::NotFound)?;
        // Under sudo the home may be another user's, who could not read the key then.
        if fs::metadata(existing)?.uid() != user_id() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
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

    /// The mark of a run that this user executes with these settings: the command, its folder, the image and the data's place are among them.
    pub fn mark(&self, run: RunId, settings: &Table) -> Digest {
        let settings = Value::Table(settings.clone()).digest();
        Digest::of_pieces("ledger executed by v1", &[&self.0, &run.0.0, &settings.0])
    }
}

fn random() -> io::Result<Nonce> {
    files::random_nonce().map_err(io::Error::other)
}

fn file() -> Option<PathBuf> {
    let path = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = path("XDG_STATE_HOME").or_else(|| Some(path("HOME")?.join(".local/state")))?;
    Some(state.join("ledger/key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_read_only_while_nobody_else_can_know_it() {
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
