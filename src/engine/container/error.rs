//! Why a worker cannot be started in an image, and what to do.

use crate::host::HostError;
use crate::host::sif::SifError;
use std::path::PathBuf;

/// A worker cannot be started in an image.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The image would have to be fetched.
    #[error(
        "`container.image` is `{0}`, which is not a file (fetch it once, `apptainer pull image.sif {0}`, and name the file)"
    )]
    Remote(String),
    /// There is no such file.
    #[error("`container.image` is `{}`, which does not exist (build one: `containers/build.sh cpu`)", .0.display())]
    Missing(PathBuf),
    /// It is no image.
    #[error("`container.image` is `{}`, but {why} (`apptainer build` makes images)", path.display())]
    NoImage {
        /// The file.
        path: PathBuf,
        /// Why it is none.
        why: SifError,
    },
    /// It cannot be read.
    #[error(transparent)]
    Unread(#[from] HostError),
    /// Nothing can start it.
    #[error("`container.image` asks for a container, but {0} (install Apptainer, or load its module)")]
    NoTool(String),
    /// A file is not the one any more that a run was bound to.
    #[error("`{}` changed after its digest was taken: {why} (repeat the command to use the new file)", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is known of it.
        why: String,
    },
    /// This program, which the trainer in the image is, is found by its path.
    #[error("this program's file is no longer at `{}`, from where a container takes the trainer (repeat the command to use the new program)", .0.display())]
    Replaced(PathBuf),
    /// Nothing can be kept for a while.
    #[error("`{}`, from LEDGER_SCRATCH or TMPDIR, is not the full path of an existing folder (create it for the container, or set LEDGER_SCRATCH)", .0.display())]
    NoScratch(PathBuf),
    /// A bind is not one, or what it names is not there.
    #[error("`container.binds` {why}")]
    NoBind {
        /// Its place in the list.
        index: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There are binds and no image.
    #[error("`container.binds` needs an image (name one in `container.image`, or remove the binds)")]
    NothingToBindIn,
    /// A file of a bind cannot be read.
    #[error("`{}`, from `container.binds`, cannot be read: {error} (its digest is a part of the run's identity)", path.display())]
    UnreadBind {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The built-in trainer does not start in it.
    #[error("the built-in trainer does not start in `{}`: {said} (the image needs libgcc_s and a C library no older than that of the machine where this program was built; build containers/minimal.def)", image.display())]
    NoStart {
        /// The image.
        image: PathBuf,
        /// What was said.
        said: String,
    },
    /// It lacks a file that the run needs.
    #[error("{what} the image `{}` ({fix})", image.display())]
    Lacks {
        /// The image.
        image: PathBuf,
        /// The file, and why it is missing.
        what: String,
        /// What to do.
        fix: &'static str,
    },
    /// A folder that has to be visible inside would hide what the image holds.
    #[error("`{}` must be visible in the container, but would hide the image's own files there (use another folder)", .0.display())]
    Hides(PathBuf),
}

impl ContainerError {
    /// The number of the bind that is at fault, if one is.
    pub(in crate::engine) fn bind(&self) -> Option<usize> {
        if let Self::NoBind { index, .. } = self { Some(*index) } else { None }
    }

    /// Whether it is the named image that is at fault.
    pub(in crate::engine) fn is_of_image(&self) -> bool {
        matches!(
            self,
            Self::Remote(_)
                | Self::Missing(_)
                | Self::NoImage { .. }
                | Self::Unread(_)
                | Self::Changed { .. }
                | Self::NoStart { .. }
                | Self::Lacks { .. }
        )
    }
}
