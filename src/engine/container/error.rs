//! Errors of starting a worker in an image.

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
    /// The file is not an image.
    #[error("`container.image` is `{}`, but {why} (`apptainer build` makes images)", path.display())]
    NoImage {
        /// The file.
        path: PathBuf,
        /// Why it is not an image.
        why: SifError,
    },
    /// The image cannot be read.
    #[error(transparent)]
    Unread(#[from] HostError),
    /// There is no program to start a container.
    #[error("`container.image` asks for a container, but {0} (install Apptainer, or load its module)")]
    NoTool(String),
    /// A file changed after a run was bound to it.
    #[error("`{}` changed after its digest was taken: {why} (repeat the command to use the new file)", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// How it changed.
        why: String,
    },
    /// This program's file has moved. The trainer in a container is this program, mounted by its path.
    #[error("this program's file is no longer at `{}`, from where a container takes the trainer (repeat the command to use the new program)", .0.display())]
    Replaced(PathBuf),
    /// The folder for temporary files does not exist.
    #[error("`{}`, from LEDGER_SCRATCH or TMPDIR, is not the full path of an existing folder (create it for the container, or set LEDGER_SCRATCH)", .0.display())]
    NoScratch(PathBuf),
    /// A bind is malformed, or its source does not exist.
    #[error("`container.binds` {why}")]
    NoBind {
        /// The index in the list.
        index: usize,
        /// The reason.
        why: String,
    },
    /// There are binds but no image.
    #[error("`container.binds` needs an image (name one in `container.image`, or remove the binds)")]
    NothingToBindIn,
    /// A file of a bind cannot be read.
    #[error("`{}`, from `container.binds`, cannot be read: {error} (its digest is a part of the run's identity)", path.display())]
    UnreadBind {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The built-in trainer does not start in the image.
    #[error("the built-in trainer does not start in `{}`: {said} (the image needs libgcc_s and a C library no older than that of the machine where this program was built; build containers/minimal.def)", image.display())]
    NoStart {
        /// The image.
        image: PathBuf,
        /// The output.
        said: String,
    },
    /// The image lacks a file that the run needs.
    #[error("{what} the image `{}` ({fix})", image.display())]
    Lacks {
        /// The image.
        image: PathBuf,
        /// The file, and why it is missing.
        what: String,
        /// The remedy.
        fix: &'static str,
    },
    /// A folder that must be visible in the container would hide the image's own files.
    #[error("`{}` must be visible in the container, but would hide the image's own files there (use another folder)", .0.display())]
    Hides(PathBuf),
}

impl ContainerError {
    /// The index of the bind that caused the error, if one did.
    pub(in crate::engine) fn bind(&self) -> Option<usize> {
        if let Self::NoBind { index, .. } = self { Some(*index) } else { None }
    }

    /// Whether the image caused the error.
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
