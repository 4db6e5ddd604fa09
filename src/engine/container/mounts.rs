//! What of the host's files is visible in a container, and where.

use std::path::{Component, Path, PathBuf};

/// No way to a file has more links.
const MOST_LINKS: usize = 40;

/// A file or folder of the host that is visible inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    pub(super) is_writable: bool,
}

impl Mount {
    pub(super) fn same(path: &Path, is_writable: bool) -> Self {
        Self { source: path.to_owned(), target: path.to_owned(), is_writable }
    }

    /// As `--mount` takes it: comma-separated values, of which any may be quoted.
    pub(super) fn argument(&self) -> String {
        let field = |name: &str, path: &Path| format!("\"{name}={}\"", path.display().to_string().replace('"', "\"\""));
        let read_only = if self.is_writable { "" } else { ",ro" };
        format!("type=bind,{},{}{read_only}", field("source", &self.source), field("destination", &self.target))
    }
}

/// Whether what lies at a path is in a folder, as it is on the disk and not by name.
pub(in crate::engine) fn lies_in(path: &Path, folder: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(path).starts_with(real(folder))
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// What has to be bound for a file that does not lie in the folder that is: the file, where the way to it leaves that folder, by its name or by a link.
pub(super) fn outside(file: &Path, folder: &Path) -> Option<Mount> {
    let source = file.canonicalize().unwrap_or_else(|_| plain(file));
    let mut way = plain(file);
    for _ in 0..MOST_LINKS {
        let Ok(inside) = way.strip_prefix(folder) else {
            return Some(Mount { source, target: way, is_writable: false });
        };
        let steps: Vec<&Path> = inside.ancestors().filter(|step| !step.as_os_str().is_empty()).collect();
        let (step, target) =
            steps.into_iter().rev().find_map(|step| Some((step, folder.join(step).read_link().ok()?)))?;
        let rest = inside.strip_prefix(step).unwrap_or(inside);
        let before = folder.join(step);
        way = plain(&before.parent().unwrap_or(folder).join(target).join(rest));
    }
    None
}
