//! Whether a ledger that was found rather than named may be used, by its owner and permissions.
//!
//! A ledger contains commands, GPU settings and results. A foreign ledger in a parent folder could make this user
//! execute another user's commands.

use super::environment::var;
use super::owner::user_id;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The variable that lists other users' ledgers that may be used, separated by colons; `*` allows all.
const ALLOWED: &str = "LEDGER_SAFE";
/// The mode bit with which every user may write.
const WORLD_WRITABLE: u32 = 0o002;

/// Why a ledger that was found is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dubious {
    ledger: PathBuf,
    path: PathBuf,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Foreign { owner: u32, user: u32 },
    Writable { mode: u32 },
}

impl fmt::Display for Dubious {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, ledger) = (self.path.display(), self.ledger.display());
        let named = format!("name it with `--ledger {ledger}` or LEDGER_DIR, or allow it with `{ALLOWED}={ledger}`");
        match self.fault {
            Fault::Foreign { owner, user } => {
                write!(f, "`{path}` belongs to user {owner}, and the command runs as user {user} ({named})")
            }
            Fault::Writable { mode } => write!(
                f,
                "every user may write to `{path}` (mode {:04o}; remove that with `chmod o-w {path}`, or {named})",
                mode & 0o7777
            ),
        }
    }
}

impl std::error::Error for Dubious {}

/// Checks the owner and the mode of a ledger's folder and file. A missing ledger passes.
///
/// # Errors
/// If another user owns it or every user may write to it, and `LEDGER_SAFE` does not list it.
pub fn check(ledger: &Path) -> Result<(), Dubious> {
    let allowed: Vec<PathBuf> = var(ALLOWED).map(|list| std::env::split_paths(&list).collect()).unwrap_or_default();
    let user = user_id();
    // Under sudo the invoking user's ledger may be used, as with git.
    let sudo = var("SUDO_UID").filter(|_| user == 0).and_then(|uid| uid.to_str()?.parse().ok());
    check_as(ledger, user, sudo, &allowed)
}

fn check_as(ledger: &Path, user: u32, sudo: Option<u32>, allowed: &[PathBuf]) -> Result<(), Dubious> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_meant =
        |path: &PathBuf| path.as_os_str() == "*" || !path.as_os_str().is_empty() && real(path) == real(ledger);
    if allowed.iter().any(is_meant) {
        return Ok(());
    }
    for path in [ledger.to_owned(), ledger.join("ledger.redb")] {
        // Checks both the link and its target, which may have different owners.
        let found = [std::fs::symlink_metadata(&path), std::fs::metadata(&path)];
        for metadata in found.into_iter().flatten() {
            let (owner, mode) = (metadata.uid(), metadata.mode());
            let fault = if owner != user && Some(owner) != sudo {
                Fault::Foreign { owner, user }
            } else if mode & WORLD_WRITABLE != 0 && !metadata.is_symlink() {
                Fault::Writable { mode }
            } else {
                continue;
            };
            return Err(Dubious { ledger: ledger.to_owned(), path, fault });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_ledger_of_another_user_is_refused_unless_it_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger");
        let own = user_id();
        let check = |user, sudo, allowed: &[PathBuf]| check_as(&ledger, user, sudo, allowed);
        assert_eq!(check(own + 1, None, &[]), Ok(()), "a ledger that does not exist yet");
        fs::create_dir(&ledger).unwrap();
        fs::set_permissions(&ledger, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(check(own, None, &[]), Ok(()));
        let text = check(own + 1, None, &[]).unwrap_err().to_string();
        assert!(text.contains(&format!("belongs to user {own}, and the command runs as user {}", own + 1)), "{text}");
        assert!(text.contains("--ledger") && text.contains("LEDGER_SAFE="), "{text}");
        assert_eq!(check(own + 1, Some(own), &[]), Ok(()));
        assert_eq!(check(own + 1, None, &["*".into()]), Ok(()));
        assert_eq!(check(own + 1, None, &[dir.path().join("./x/../ledger"), ledger.clone()]), Ok(()));
        assert!(check(own + 1, None, &["".into(), dir.path().to_owned()]).is_err());
    }

    #[test]
    fn a_ledger_that_every_user_may_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::create_dir(&real).unwrap();
        let ledger = dir.path().join("ledger");
        symlink(&real, &ledger).unwrap();
        let check = || check_as(&ledger, user_id(), None, &[]).map_err(|dubious| dubious.to_string());
        for (mode, is_refused) in [(0o777, true), (0o1777, true), (0o770, false), (0o755, false)] {
            fs::set_permissions(&real, Permissions::from_mode(mode)).unwrap();
            assert_eq!(check().is_err(), is_refused, "{mode:o}");
        }
        let file = real.join("ledger.redb");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        let text = check().unwrap_err();
        assert!(text.contains("ledger.redb") && text.contains("mode 0666; remove that with `chmod o-w"), "{text}");
    }
}
