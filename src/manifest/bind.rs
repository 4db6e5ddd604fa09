//! Files and folders of the host that a manifest makes visible in a container.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A host path that is visible in a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bind {
    /// Path on the host.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    /// Whether the run may write to it.
    pub is_writable: bool,
}

/// Folders of an image that a bind may not hide. [`KERNEL`] lists folders below which no bind is allowed either.
const SYSTEM: [&str; 14] = [
    "/",
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib64",
    "/sbin",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local",
    "/usr/sbin",
    "/var",
];
const KERNEL: [&str; 5] = ["/.ledger", "/.singularity.d", "/dev", "/proc", "/sys"];

impl Bind {
    /// Parses `HOST[:INSIDE][:ro|:rw]`. A relative host path is relative to `directory`.
    ///
    /// # Errors
    /// The fault, phrased to follow the key's name.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("has `{text}`, {why}"));
        let mut words: Vec<&str> = text.split(':').collect();
        let access = words.pop_if(|word| ["ro", "rw"].contains(word));
        let (host, inside) = match words[..] {
            [host] if !host.is_empty() => (host, None),
            [host, inside] if !host.is_empty() => (host, Some(inside)),
            _ => return wrong("which is no bind (it must be `HOST`, `HOST:INSIDE`, and `:ro` or `:rw` behind it)"),
        };
        let source = std::path::absolute(directory.join(host)).unwrap_or_else(|_| directory.join(host));
        let target = inside.map_or_else(|| source.clone(), PathBuf::from);
        let is_full = target.is_absolute() && !target.components().any(|part| part == Component::ParentDir);
        if !is_full {
            return wrong("whose path inside is not a full path (give one without `..`, such as `/opt/cuda`)");
        }
        let is_system = SYSTEM.iter().any(|folder| target == Path::new(folder));
        if is_system || KERNEL.iter().any(|folder| target.starts_with(folder)) {
            return wrong(
                "which would hide files of the image or the kernel (name another path inside: `HOST:INSIDE`)",
            );
        }
        Ok(Self { source, target, is_writable: access == Some("rw") })
    }
}

/// Writes all parts, in the manifest's syntax.
impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.is_writable { "rw" } else { "ro" };
        write!(f, "{}:{}:{access}", self.source.display(), self.target.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_is_read_only_at_the_same_path_by_default() {
        let read = |text: &str| Bind::parse(text, Path::new("/m")).map(|bind| bind.to_string());
        let cases = [
            ("/usr/local/cuda", "/usr/local/cuda:/usr/local/cuda:ro"),
            ("/usr/local/cuda:ro", "/usr/local/cuda:/usr/local/cuda:ro"),
            ("/opt/cuda-13:/usr/local/cuda", "/opt/cuda-13:/usr/local/cuda:ro"),
            ("cache:/cache:rw", "/m/cache:/cache:rw"),
            ("cache", "/m/cache:/m/cache:ro"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).as_deref(), Ok(expected));
            assert_eq!(read(expected).as_deref(), Ok(expected), "what is written is read again");
        }
        for (text, expected) in [
            ("", "no bind"),
            (":/x", "no bind"),
            ("/a:/b:/c", "no bind"),
            ("/a:/b:ro:rw", "no bind"),
            ("/a:b", "not a full path"),
            ("/a:/b/../c", "not a full path"),
            ("/a:/usr", "would hide"),
            ("/", "would hide"),
            ("/a:/proc/1", "would hide"),
            ("/a:/.ledger/ledger", "would hide"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
