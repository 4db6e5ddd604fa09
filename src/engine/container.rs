//! The image that a worker runs in: its identity, how the worker is started in it, and the facts recorded about it.
//!
//! The image's digest is a part of the identity. Everything of the host that is visible in the container is listed and
//! recorded: variables, files and, for runs on GPUs, NVIDIA's libraries. Otherwise only the host's kernel is shared.

mod brought;
mod error;
mod inside;
mod mounts;
mod told;
mod tool;

pub(super) use self::brought::{BINDS, Loads, texts as binds};
use self::brought::{Brought, brought, digests};
pub use self::error::ContainerError;
pub(super) use self::inside::{NCCL, TOOLKIT};
pub(super) use self::mounts::lies_in;
use self::mounts::{Mount, outside};
use self::told::{MOST_TEXT, labels, oci_digest, short};
pub(super) use self::tool::{Tool, tool};
use super::kernels::InUse;
use crate::gpu::CudaVersions;
use crate::host::environment;
use crate::host::sif::{self, Sif};
use crate::host::sums::{Stamp, Sums};
use crate::record::{Cell, Parts, Table, Value};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The cell's field for the image, and its value for none.
pub(super) const IMAGE: &str = "container.image";
pub(super) const HOST: &str = Parts::HOST;
/// The setting in which a submission stores the digest of its image.
pub(super) const EXPECTED: &str = "container.sha256";
/// The setting in which a submission stores the image's stamp, which shows that the file is unchanged.
pub(super) const STAMP: &str = "container.stamp";

/// Variables of Apptainer and Singularity that do not affect the worker. Others are removed, because they add files and
/// options that the manifest does not state.
const HARMLESS: [&str; 5] = ["CACHEDIR", "CONFIGDIR", "DROP_CAPS", "TMPDIR", "LIBRARY"];
/// Variables that both programs pass on by default, in lower case. `all_proxy` and similar ones may hold a password.
const HANDED_ON: [&str; 6] = ["all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy", "term"];
/// The folder of ledger's own files in a container.
const OWN: &str = "/.ledger";
/// Folders that must not be bind targets, because that would hide the image's own files.
const SYSTEM: [&str; 22] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/opt",
    "/opt/conda",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local",
    "/usr/local/bin",
    "/usr/local/cuda",
    "/usr/local/lib",
    "/usr/sbin",
    "/var",
];

/// An image file as it was when a run was bound to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    path: PathBuf,
    sha256: String,
    stamp: Stamp,
    told: Sif,
    tool: Tool,
    /// The binds of the manifest.
    brought: Vec<Brought>,
}

/// An image that a run is bound to, and its content.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    pub(super) image: Image,
    /// The versions of the libraries in binds.
    pub(super) versions: CudaVersions,
    /// Warnings about missing libraries that make the run slower.
    pub(super) notes: Vec<String>,
}

/// The image that a cell asks for, if any. `known` reads its digest, stamp and metadata; `tool` finds the container
/// program.
pub(super) fn image(
    cell: &Cell,
    known: impl FnOnce(&Path) -> Result<(String, Stamp, Sif), ContainerError>,
    tool: impl FnOnce() -> Result<Tool, ContainerError>,
) -> Result<Option<Image>, ContainerError> {
    let Some(path) = asked(cell)? else {
        return if binds(cell).is_empty() { Ok(None) } else { Err(ContainerError::NothingToBindIn) };
    };
    let scratch = scratch();
    if !scratch.is_absolute() || !scratch.is_dir() {
        return Err(ContainerError::NoScratch(scratch));
    }
    let stated = ["program.directory", "data.path"].into_iter().filter_map(|field| cell.text(field)).map(Path::new);
    let mut shown = stated.chain([scratch.as_path()]);
    if let Some(hiding) = shown.find(|shown| SYSTEM.iter().any(|folder| *shown == Path::new(folder))) {
        return Err(ContainerError::Hides(hiding.to_owned()));
    }
    let (sha256, stamp, told) = known(&path)?;
    Ok(Some(Image { path, sha256, stamp, told, tool: tool()?, brought: Vec::new() }))
}

/// The folder for temporary files of programs.
pub(super) fn scratch() -> PathBuf {
    environment::var("LEDGER_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The image file that a cell asks for, if any.
pub(super) fn asked(cell: &Cell) -> Result<Option<PathBuf>, ContainerError> {
    match cell.text(IMAGE) {
        None | Some(HOST) => Ok(None),
        Some(remote) if remote.contains("://") => Err(ContainerError::Remote(remote.to_owned())),
        Some(path) => Ok(Some(PathBuf::from(path))),
    }
}

/// The container part of a run in an image with this digest; `host` without an image.
pub(super) fn part(sha256: Option<&str>) -> Value {
    sha256.map_or(HOST.into(), |sha256| format!("sha256:{sha256}").into())
}

/// The image in a container part; `host` without an image.
pub fn image_of(container: &Value) -> &Value {
    container.as_table().and_then(|table| table.get("image")).unwrap_or(container)
}

/// The container and CUDA parts of an untrusted record. Its binds are not read, but assumed to hold what was recorded.
pub(super) fn recorded(recorded: &Parts, container: Value, cuda: Value) -> (Value, Value) {
    let is_same = *image_of(&recorded.container) == container;
    let container = if is_same { recorded.container.clone() } else { container };
    let cuda = match (&recorded.cuda, cuda) {
        (Value::Table(recorded), Value::Table(here)) => {
            recorded.clone().into_iter().chain(here).collect::<Table>().into()
        }
        (_, here) => here,
    };
    (container, cuda)
}

/// Reads an image file: its digest, its stamp and its metadata.
pub(super) fn read(path: &Path) -> Result<(String, Stamp, Sif), ContainerError> {
    if !path.exists() {
        return Err(ContainerError::Missing(path.to_owned()));
    }
    let told = sif::read(path).map_err(|why| ContainerError::NoImage { path: path.to_owned(), why })?;
    let mut sums = Sums::of_user();
    let (sha256, stamp) = sums.of(path)?;
    sums.keep();
    Ok((sha256, stamp, told))
}

/// A worker's command in a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Contained {
    /// Program and arguments.
    pub(super) argv: Vec<OsString>,
    /// Variables that are set.
    pub(super) set: Vec<(String, OsString)>,
    /// Variables that are removed.
    pub(super) unset: Vec<OsString>,
    mounts: Vec<Mount>,
    inside: Vec<(&'static str, OsString)>,
}

/// The program, folders and files of a worker in a container.
pub(super) struct Start<'a> {
    /// The command of an external program and its folder. `None` is the built-in trainer.
    pub(super) program: Option<(&'a [String], &'a Path)>,
    /// The files that the manifest names.
    pub(super) named_files: Vec<PathBuf>,
    /// The path of the data, if any.
    pub(super) data: Option<&'a Path>,
    pub(super) has_gpus: bool,
    /// This program.
    pub(super) executable: &'a Path,
    /// The pipe of the events.
    pub(super) fifo: &'a Path,
    pub(super) kernels: Option<&'a InUse>,
    /// The folder for temporary files of programs.
    pub(super) scratch: &'a Path,
    /// The variables with which a worker learns about its run.
    pub(super) told: Vec<(&'static str, OsString)>,
}

impl Image {
    /// The container part of a run: the image's digest, and the digests of bound files that the run loads, if any.
    pub(super) fn part(&self) -> Value {
        let image = part(Some(&self.sha256));
        let mut table = digests(&self.brought);
        if table.is_empty() {
            return image;
        }
        table.insert("image".to_owned(), image);
        table.into()
    }

    /// Reads the cell's binds, and lets the built-in trainer report what it finds in the container.
    ///
    /// # Errors
    /// If a bind cannot be made, the trainer does not start, or a needed file is missing.
    pub(super) fn bring(mut self, cell: &Cell, loads: Loads) -> Result<Inside, ContainerError> {
        self.brought = brought(cell, loads)?;
        if loads == Loads::Any {
            return Ok(Inside { image: self, versions: CudaVersions::default(), notes: Vec::new() });
        }
        let report = self.survey(loads)?;
        let notes = self.lacking(&report, loads)?;
        // The digest identifies all libraries of an image without binds.
        let versions = if self.brought.is_empty() { CudaVersions::default() } else { report.versions };
        Ok(Inside { image: self, versions, notes })
    }

    /// The command of the built-in trainer.
    fn trainer(&self) -> Vec<OsString> {
        let mut command = vec![Path::new(OWN).join("ledger").into(), "worker".into()];
        let folders = self.brought.iter().flat_map(|one| &one.folders).map(|folder| folder.as_os_str());
        let folders = folders.collect::<Vec<_>>().join(OsStr::new(":"));
        if !folders.is_empty() {
            command.extend(["--libraries".into(), folders]);
        }
        command
    }

    /// The arguments before the command that is executed in the container.
    fn exec(&self, nv: bool, directory: &Path, mounts: &[Mount]) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec![self.tool.path.clone().into(), "--quiet".into(), "exec".into()];
        if nv {
            argv.push("--nv".into());
        }
        // Without `--no-eval` a shell would read the variables' values.
        argv.extend(["--cleanenv", "--contain", "--pid", "--no-eval", "--pwd"].map(OsString::from));
        argv.push(directory.into());
        for mount in mounts {
            argv.extend(["--mount".into(), mount.argument().into()]);
        }
        argv.push(self.path.clone().into());
        argv
    }

    /// The targets of the binds, which are folders of the host.
    pub(super) fn bound_folders(&self) -> Vec<PathBuf> {
        self.brought.iter().map(|one| one.mount.target.clone()).collect()
    }

    /// Checks that the image and the bound files are those that the run is bound to. The content counts: a file that
    /// was only touched, linked or moved back is read again.
    ///
    /// # Errors
    /// If a file changed or cannot be read, or `is_over` ended the check.
    pub(super) fn check(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<(), ContainerError> {
        unchanged(&self.path, &self.stamp, &self.sha256, is_over)?;
        self.brought.iter().try_for_each(|one| one.check(is_over))
    }

    /// The command that starts a worker in the container.
    pub(super) fn contain(&self, start: &Start<'_>) -> Contained {
        let own = |name: &str| Path::new(OWN).join(name);
        let mut mounts = vec![
            Mount { source: start.fifo.to_owned(), target: own("events"), is_writable: true },
            Mount::same(start.scratch, true),
        ];
        let mut inside = start.told.clone();
        inside.push(("LEDGER_EVENTS", own("events").into()));
        inside.push(("TMPDIR", start.scratch.into()));
        mounts.extend(start.data.filter(|path| path.exists()).map(|path| Mount::same(path, false)));
        let (directory, program): (PathBuf, Vec<OsString>) = match start.program {
            Some((argv, directory)) => {
                mounts.push(Mount::same(directory, true));
                (directory.to_owned(), argv.iter().map(OsString::from).collect())
            }
            None => {
                mounts.push(own_binary(start.executable));
                mounts.extend(start.kernels.map(|kernels| Mount::same(&kernels.cache.dir, true)));
                let directory = start.kernels.map_or(start.scratch, |kernels| &kernels.workplace);
                (directory.to_owned(), self.trainer())
            }
        };
        mounts.extend(start.named_files.iter().filter_map(|file| outside(file, &directory)));
        mounts.extend(self.brought.iter().map(|one| one.mount.clone()));
        mounts.dedup();
        let mut argv = self.exec(start.has_gpus, &directory, &mounts);
        argv.extend(program);
        let set = inside.iter().map(|(name, value)| (format!("{}{name}", self.tool.prefix), value.clone())).collect();
        Contained { argv, set, unset: strays(environment::all()), mounts, inside }
    }

    /// The facts about the image and the start of the worker.
    pub(super) fn facts(&self, contained: &Contained) -> Table {
        let mut facts = Table::new();
        let mut put = |name: &str, value: Value| drop(facts.insert(format!("image.{name}"), value));
        put("path", self.path.display().to_string().into());
        put("bytes", self.stamp.size().into());
        put("sha256", self.sha256.as_str().into());
        put("runtime", self.tool.version.as_str().into());
        let mount = |mount: &Mount| {
            let kind = if mount.is_writable { "" } else { " (read-only)" };
            let (source, target) = (mount.source.display(), mount.target.display());
            if mount.source == mount.target { format!("{source}{kind}") } else { format!("{source} at {target}{kind}") }
        };
        let binds = self.brought.iter().map(|one| (one.mount.target.display().to_string(), one.fact()));
        let binds: Table = binds.collect();
        if !binds.is_empty() {
            put("binds", binds.into());
        }
        put("mounts", contained.mounts.iter().map(mount).collect::<Vec<_>>().into());
        let variables = contained.inside.iter();
        let variables: Table =
            variables.map(|(name, value)| ((*name).to_owned(), value.to_string_lossy().as_ref().into())).collect();
        put("variables", variables.into());
        if let Some(dropped) = environment::text_var("APPTAINER_DROP_CAPS") {
            put("capabilities_dropped", dropped.into());
        }
        let labels = labels(&self.told);
        let source = oci_digest(&labels, self.told.definition.as_deref());
        if let Some(digest) = source {
            put("oci_digest", digest.into());
        }
        if !labels.is_empty() {
            put("labels", labels.into());
        }
        if let Some(text) = &self.told.definition {
            put("definition", short(text, MOST_TEXT).into());
        }
        facts
    }
}

/// Checks that a file is the one that a run was bound to. The content counts: a file that was only touched, linked or
/// moved back is read again.
fn unchanged(
    path: &Path,
    stamp: &Stamp,
    sha256: &str,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<(), ContainerError> {
    let changed = |why: String| ContainerError::Changed { path: path.to_owned(), why };
    let now = std::fs::metadata(path).map_err(|error| changed(error.to_string()))?;
    if Stamp::of(&now) == *stamp {
        return Ok(());
    }
    let mut sums = Sums::of_user();
    let (found, _) = sums.of_until(path, is_over).map_err(|error| changed(error.to_string()))?;
    sums.keep();
    if found == sha256 { Ok(()) } else { Err(changed(format!("its digest is {found} now"))) }
}

/// The mount of this program in a container.
fn own_binary(executable: &Path) -> Mount {
    Mount { source: executable.to_owned(), target: Path::new(OWN).join("ledger"), is_writable: false }
}

/// The facts about the environment. For a worker in an image, which does not see the host's variables, these get the
/// prefix `host.env.`.
pub fn surroundings(image: Option<&Image>, facts: &Table) -> Table {
    let is_variable = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    let named = |name: &String| match image {
        Some(_) if is_variable(name) => format!("host.env.{name}"),
        _ => name.clone(),
    };
    facts.iter().map(|(name, value)| (named(name), value.clone())).collect()
}

/// The influences on a run that are neither in its identity nor kept from changing.
pub(super) fn leaves_open(image: Option<&Image>, external: bool) -> Value {
    let mut open = vec!["the host's kernel and hardware settings (host.*, cpu.*, gpu.*)"];
    match image {
        Some(_) => open.push(
            "what is bound into the container (image.mounts) and, with GPUs, the host's driver libraries (library.*)",
        ),
        None => {
            open.push("the host's C library, mathematics and other libraries (host.libc, library.*)");
            open.push("the host's environment variables, of which those that are known to matter are recorded");
            if external {
                open.push("files that the program reads or starts beyond those of its identity, and packages that only other packages import");
            }
        }
    }
    open.into()
}

/// The variables that would make the container program do something that the manifest does not state.
fn strays(all: Vec<(OsString, OsString)>) -> Vec<OsString> {
    let is_stray = |name: &str| {
        let of_tool = ["APPTAINER", "SINGULARITY"].iter().find_map(|tool| name.strip_prefix(tool));
        of_tool.is_some_and(|rest| rest.strip_prefix('_').is_none_or(|rest| !HARMLESS.contains(&rest)))
            || HANDED_ON.contains(&name.to_ascii_lowercase().as_str())
    };
    all.into_iter().map(|(name, _)| name).filter(|name| is_stray(&name.to_string_lossy())).collect()
}

#[cfg(test)]
mod tests;
