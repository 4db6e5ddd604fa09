//! Properties of file systems: free space, type, and whether a directory is writable.

use super::HostError;
use rustix::fs::{Access, AtFlags, CWD, accessat, statfs, statvfs};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The type of a file system, as far as it matters to a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemKind {
    /// Its name, such as `ext4` or `nfs`, or its magic number in hex if it is unknown.
    pub name: Cow<'static, str>,
    /// Whether other hosts write to it: locks may not hold, and a synced file may not be on a disk.
    pub network: bool,
    /// Whether it is in memory and lost on reboot.
    pub volatile: bool,
}

/// Magic numbers from statfs(2) and `linux/magic.h`.
const KINDS: &[(u32, &str, bool, bool)] = &[
    (0x0000_ef53, "ext4", false, false),
    (0x5846_5342, "xfs", false, false),
    (0x9123_683e, "btrfs", false, false),
    (0x2fc1_2fc1, "zfs", false, false),
    (0xca45_1a4e, "bcachefs", false, false),
    (0xf2f5_2010, "f2fs", false, false),
    (0x794c_7630, "overlayfs", false, false),
    (0x0102_1994, "tmpfs", false, true),
    (0x8584_58f6, "ramfs", false, true),
    (0x7371_7368, "squashfs", false, false),
    (0x0000_4d44, "vfat", false, false),
    (0x2011_bab0, "exfat", false, false),
    (0x7366_746e, "ntfs3", false, false),
    (0x0000_6969, "nfs", true, false),
    (0xff53_4d42, "cifs", true, false),
    (0xfe53_4d42, "smb2", true, false),
    (0x0000_517b, "smb", true, false),
    (0x0bd0_0bd0, "lustre", true, false),
    (0x00c3_6400, "ceph", true, false),
    (0x4750_4653, "gpfs", true, false),
    (0x1983_0326, "beegfs", true, false),
    (0x2003_0528, "orangefs", true, false),
    (0x5346_414f, "afs", true, false),
    (0x0102_1997, "9p", true, false),
    // The file system behind it is unknown, such as sshfs or a cloud client.
    (0x6573_5546, "fuse", true, false),
];

/// Returns the type of the file system of a path, which need not exist.
///
/// # Errors
/// If not even the nearest existing directory above can be queried.
pub fn file_system_kind(path: &Path) -> Result<FileSystemKind, HostError> {
    let path = nearest_existing(path);
    let answer = statfs(&path).map_err(|source| failed("ask for the file system of", &path, source))?;
    // The field's type differs between processors; the magic numbers have 32 bits on all of them.
    let magic = i128::from(answer.f_type).rem_euclid(1 << 32);
    Ok(kind_of(u32::try_from(magic).unwrap_or(0)))
}

fn kind_of(magic: u32) -> FileSystemKind {
    match KINDS.iter().find(|kind| kind.0 == magic) {
        Some(&(_, name, network, volatile)) => FileSystemKind { name: name.into(), network, volatile },
        None => FileSystemKind { name: format!("{magic:#x}").into(), network: false, volatile: false },
    }
}

/// Returns how many bytes this user may still write to the file system of a path, which need not exist.
///
/// # Errors
/// If not even the nearest existing directory above can be queried.
pub fn disk_free_bytes(path: &Path) -> Result<u64, HostError> {
    let path = nearest_existing(path);
    let answer = statvfs(&path).map_err(|source| failed("ask for the free space at", &path, source))?;
    Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// Whether this user may write into a directory, or make it if it does not exist. Nothing is written.
pub fn writable(path: &Path) -> bool {
    let path = nearest_existing(path);
    path.is_dir() && accessat(CWD, &path, Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty()).is_ok()
}

/// Returns the path, or the nearest existing directory above it.
fn nearest_existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn failed(action: &'static str, path: &Path, source: rustix::io::Errno) -> HostError {
    let remedy = "its file system must be mounted and answer";
    HostError::File { action, path: path.to_owned(), remedy, source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_known_by_magic_number() {
        assert_eq!(kind_of(0x6969), FileSystemKind { name: "nfs".into(), network: true, volatile: false });
        assert!(kind_of(0xff53_4d42).network);
        assert!(!kind_of(0xef53).network);
        assert!(kind_of(0x0102_1994).volatile);
        assert_eq!(kind_of(0x1234).name, "0x1234");
    }

    #[test]
    fn a_missing_path_has_the_file_system_of_its_parent() {
        assert_eq!(file_system_kind(Path::new("/proc/self")).unwrap().name, "0x9fa0");
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("not/there/yet");
        assert_eq!(file_system_kind(&deep).unwrap(), file_system_kind(dir.path()).unwrap());
        assert!(disk_free_bytes(&deep).unwrap() > 0);
        assert!(writable(&deep));
    }

    #[test]
    fn a_path_below_a_file_is_not_writable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!writable(&file.path().join("below")));
    }
}
