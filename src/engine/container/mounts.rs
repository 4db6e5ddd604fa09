//! The files of the host that are visible in a container.

use std::path::{Component, Path, PathBuf};

/// The largest number of links that are followed to a file.
const MOST_LINKS: usize = 40;

/// A file or folder of the host that is visible in the container.
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

    /// The argument of `--mount`: comma-separated, quoted values.
    pub(super) fn argument(&self) -> String {
        let field = |name: &str, path: &Path| format!("\"{name}={}\"", path.display().to_string().replace('"', "\"\""));
        let read_only = if self.is_writable { "" } else { ",ro" };
        format!("type=bind,{},{}{read_only}", field("source", &self.source), field("destination", &self.target))
    }
}

/// Whether a path lies in a folder, with links resolved.
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

/// The mount for a file outside the bound folder, at the path where its name or a link leaves that folder. `None` if
/// the file lies in it.
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
