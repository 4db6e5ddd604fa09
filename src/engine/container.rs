//! The image that a worker runs in: what it is, how the worker is started in it, and what is recorded of it.
//!
//! The image's digest is a part of the identity. What reaches into the container from the host is stated one by one, and recorded: the variables, the files, and
//! NVIDIA's libraries where the run has GPUs. Nothing else of the host is visible inside but its kernel.

use super::bind::{Bound, Launch};
use super::kernels::InUse;
use super::machine::Machine;
use crate::host::sif::{self, Sif, SifError};
use crate::host::sums::{Stamp, Sums};
use crate::host::{HostError, command, environment, secrets};
use crate::record::{Cell, Table, Value};
use crate::wire::from_json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a cell says which image it wants, and what stands there for none.
pub(super) const IMAGE: &str = "container.image";
pub(super) const HOST: &str = "host";
/// Where a submission keeps the digest of the image that it was made with.
pub(super) const EXPECTED: &str = "container.sha256";

/// Programs that start an image, the preferred one first, and how the variables begin that each of them hands on.
const TOOLS: [(&str, &str); 2] = [("apptainer", "APPTAINERENV_"), ("singularity", "SINGULARITYENV_")];
/// Variables of these programs' own that change nothing that the worker sees; others are taken away, since they bring in files and options that nobody stated.
const HARMLESS: [&str; 6] = ["ADD_CAPS", "CACHEDIR", "CONFIGDIR", "DROP_CAPS", "TMPDIR", "LIBRARY"];
/// Where things of ours lie inside.
const OWN: &str = "/.ledger";
/// Folders of an image that a bind over them would hide.
const SYSTEM: [&str; 13] =
    ["/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr", "/var"];
/// A record keeps no longer text of an image, and no more labels.
const MOST_TEXT: usize = 16 << 10;
const MOST_LABELS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(20);

/// A worker cannot be started in an image.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The image would have to be fetched.
    #[error(
        "`container.image` is `{0}`, which is no file (fetch it once, `apptainer pull image.sif {0}`, and name the file)"
    )]
    Remote(String),
    /// There is no such file.
    #[error("`container.image` is `{}`, which is not there (build it: `apptainer build IMAGE containers/cpu.def`)", .0.display())]
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
    /// A folder that has to be visible inside would hide what the image holds.
    #[error("`{}` has to be visible in the container, but would hide the image's own files there (use another folder)", .0.display())]
    Hides(PathBuf),
}

/// An image file, as it was when a run was bound to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    path: PathBuf,
    sha256: String,
    stamp: Stamp,
    told: Sif,
    tool: Tool,
}

/// What starts an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tool {
    path: PathBuf,
    version: String,
    /// How the variables begin that it hands on.
    prefix: &'static str,
}

/// The image that a cell asks for, if it does.
pub(super) fn image(cell: &Cell, machine: &Machine) -> Result<Option<Image>, ContainerError> {
    let Some(path) = asked(cell)? else { return Ok(None) };
    let mut shown = ["program.directory", "data.path"].into_iter().filter_map(|field| cell.text(field)).map(Path::new);
    if let Some(hiding) = shown.find(|shown| SYSTEM.iter().any(|folder| *shown == Path::new(folder))) {
        return Err(ContainerError::Hides(hiding.to_owned()));
    }
    let (sha256, stamp, told) = machine.image(&path)?;
    let tool = machine.container_tool()?;
    Ok(Some(Image { path, sha256, stamp, told, tool }))
}

/// The file that a cell asks for, if it does.
pub(super) fn asked(cell: &Cell) -> Result<Option<PathBuf>, ContainerError> {
    match cell.text(IMAGE) {
        None | Some(HOST) => Ok(None),
        Some(remote) if remote.contains("://") => Err(ContainerError::Remote(remote.to_owned())),
        Some(path) => Ok(Some(PathBuf::from(path))),
    }
}

/// The container part of a run in an image of that digest; `host` for none.
pub(super) fn part(sha256: Option<&str>) -> Value {
    sha256.map_or(HOST.into(), |sha256| format!("sha256:{sha256}").into())
}

/// What a file is, if it is an image: its digest, what says that it is still the same, and what it tells of itself.
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

/// What can start an image here.
pub(super) fn tool() -> Result<Tool, ContainerError> {
    let mut why = "there is no `apptainer` and no `singularity` on PATH".to_owned();
    for (name, prefix) in TOOLS {
        let Some(path) = environment::which(name) else { continue };
        match command::ask(name, &["--version"], Path::new("/"), &[], PATIENCE) {
            Ok(said) if said.is_success() => {
                let version = said.out.trim().chars().take(200).collect();
                return Ok(Tool { path, version, prefix });
            }
            Ok(said) => why = format!("`{name}` does not work: {}", said.complaint()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(ContainerError::NoTool(why))
}

/// A file or folder of the host that is visible inside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    source: PathBuf,
    target: PathBuf,
    is_writable: bool,
}

impl Mount {
    fn same(path: &Path, is_writable: bool) -> Self {
        Self { source: path.to_owned(), target: path.to_owned(), is_writable }
    }

    /// As `--mount` takes it: comma-separated values, of which any may be quoted.
    fn argument(&self) -> String {
        let field = |name: &str, path: &Path| format!("\"{name}={}\"", path.display().to_string().replace('"', "\"\""));
        let read_only = if self.is_writable { "" } else { ",ro" };
        format!("type=bind,{},{}{read_only}", field("source", &self.source), field("destination", &self.target))
    }
}

/// A worker's command in a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Contained {
    /// Program and arguments.
    pub(super) argv: Vec<OsString>,
    /// Variables that are set.
    pub(super) set: Vec<(String, OsString)>,
    /// Variables that are taken away.
    pub(super) unset: Vec<OsString>,
    mounts: Vec<Mount>,
    inside: Vec<(&'static str, OsString)>,
}

/// What a worker's start knows besides its run.
pub(super) struct Start<'a> {
    /// This program.
    pub(super) executable: &'a Path,
    /// The pipe of the events.
    pub(super) fifo: &'a Path,
    pub(super) kernels: Option<&'a InUse>,
    /// Where programs keep what they need for a while.
    pub(super) scratch: &'a Path,
    /// The variables that a worker is told of its run.
    pub(super) told: Vec<(&'static str, OsString)>,
}

impl Image {
    /// The container part of its runs.
    pub(super) fn part(&self) -> Value {
        part(Some(&self.sha256))
    }

    /// Why the image is not the one any more that its run is bound to.
    pub(super) fn change(&self) -> Option<String> {
        let now = std::fs::metadata(&self.path).map(|metadata| Stamp::of(&metadata));
        let shown = self.path.display();
        match now {
            Ok(now) if now == self.stamp => None,
            Ok(_) => Some(format!("the image `{shown}` was changed since its digest was taken")),
            Err(error) => Some(format!("the image `{shown}` is gone since its digest was taken: {error}")),
        }
    }

    /// The command that starts a worker in it.
    pub(super) fn contain(&self, bound: &Bound, start: &Start<'_>) -> Contained {
        let own = |name: &str| Path::new(OWN).join(name);
        let mut mounts = vec![
            Mount { source: start.fifo.to_owned(), target: own("events"), is_writable: true },
            Mount::same(start.scratch, true),
        ];
        let mut inside = start.told.clone();
        inside.push(("LEDGER_EVENTS", own("events").into()));
        inside.push(("TMPDIR", start.scratch.into()));
        let data = bound.cell.text("data.path").map(Path::new).filter(|path| path.exists());
        mounts.extend(data.map(|path| Mount::same(path, false)));
        let (directory, program): (PathBuf, Vec<OsString>) = match &bound.launch {
            Launch::Program { argv, directory } => {
                mounts.push(Mount::same(directory, true));
                (directory.clone(), argv.iter().map(OsString::from).collect())
            }
            Launch::Trainer => {
                let binary = own("ledger");
                mounts.push(Mount { source: start.executable.to_owned(), target: binary.clone(), is_writable: false });
                mounts.extend(start.kernels.map(|kernels| Mount::same(&kernels.cache.dir, true)));
                let directory = start.kernels.map_or(start.scratch, |kernels| &kernels.workplace);
                (directory.to_owned(), vec![binary.into(), "worker".into()])
            }
        };
        mounts.extend(
            bound
                .named_files()
                .into_iter()
                .filter(|file| !file.starts_with(&directory))
                .map(|file| Mount::same(&file, false)),
        );
        mounts.dedup();
        let mut argv: Vec<OsString> = vec![self.tool.path.clone().into(), "--quiet".into(), "exec".into()];
        if !bound.gpus.is_empty() {
            argv.push("--nv".into());
        }
        // Without `--no-eval` a shell would read the variables' values.
        argv.extend(["--cleanenv", "--contain", "--pid", "--no-eval", "--pwd"].map(OsString::from));
        argv.push(directory.into());
        for mount in &mounts {
            argv.extend(["--mount".into(), mount.argument().into()]);
        }
        argv.push(self.path.clone().into());
        argv.extend(program);
        let set = inside.iter().map(|(name, value)| (format!("{}{name}", self.tool.prefix), value.clone())).collect();
        Contained { argv, set, unset: strays(environment::all()), mounts, inside }
    }

    /// What is recorded of the image and of how the worker was started in it.
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
        put("mounts", contained.mounts.iter().map(mount).collect::<Vec<_>>().into());
        put("variables", contained.inside.iter().map(|(name, _)| *name).collect::<Vec<_>>().into());
        let labels = labels(&self.told);
        let source = oci_digest(&labels, self.told.definition.as_deref());
        if let Some(digest) = source {
            put("oci_digest", digest.into());
        }
        if !labels.is_empty() {
            put("labels", labels.into());
        }
        if let Some(text) = &self.told.definition {
            put("definition", short(text).into());
        }
        facts
    }
}

/// What a run leaves open of what it computes with: what is neither in its identity nor kept from changing.
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
                open.push("the interpreter and packages of the program, and what it starts or reads beyond the files that the manifest names");
            }
        }
    }
    open.into()
}

/// The variables that would tell the tool to do what nobody stated.
fn strays(all: Vec<(OsString, OsString)>) -> Vec<OsString> {
    let is_stray = |name: &str| {
        let of_tool = ["APPTAINER", "SINGULARITY"].iter().find_map(|tool| name.strip_prefix(tool));
        of_tool.is_some_and(|rest| rest.strip_prefix('_').is_none_or(|rest| !HARMLESS.contains(&rest)))
    };
    all.into_iter().map(|(name, _)| name).filter(|name| is_stray(&name.to_string_lossy())).collect()
}

/// A text with its secrets taken out, and its end cut off where it is long.
fn short(text: &str) -> String {
    let (clean, _) = secrets::redact(text.as_bytes());
    let clean = String::from_utf8_lossy(&clean);
    let kept: String = clean.chars().take(MOST_TEXT).collect();
    if kept.len() < clean.len() { format!("{kept}…") } else { kept }
}

/// The labels of an image, by their names.
fn labels(sif: &Sif) -> Table {
    let mut found = Table::new();
    for document in sif.documents.iter().filter_map(|text| from_json(text).ok()) {
        let flat = document.flatten();
        // Apptainer's own document has them in `data.attributes.labels`, an OCI configuration in `config.Labels`.
        for (name, value) in flat {
            let label =
                ["data.attributes.labels.", "config.Labels."].iter().find_map(|before| name.strip_prefix(before));
            if let (Some(label), Some(text)) = (label, value.as_str()) {
                found.insert(label.to_owned(), environment::without_credentials(&short(text)).into());
            }
        }
    }
    while found.len() > MOST_LABELS {
        found.pop_last();
    }
    found
}

/// The digest of the OCI image that an image was made from, where a label or the definition's `From:` still holds it.
fn oci_digest(labels: &Table, definition: Option<&str>) -> Option<String> {
    const LABELS: [&str; 3] = [
        "org.opencontainers.image.base.digest",
        "org.label-schema.usage.singularity.deffile.from",
        "org.label-schema.usage.apptainer.deffile.from",
    ];
    let of_labels = LABELS.iter().filter_map(|name| labels.get(*name)?.as_str());
    let from = definition.unwrap_or_default().lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case("from").then_some(value)
    });
    of_labels.chain(from).find_map(digest_in).map(str::to_owned)
}

/// `sha256:` and 64 digits, at the beginning of a text or behind an `@`.
fn digest_in(text: &str) -> Option<&str> {
    let text = text.trim();
    let digest = text.rsplit_once('@').map_or(text, |(_, digest)| digest);
    let digits = digest.strip_prefix("sha256:")?;
    (digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}

#[cfg(test)]
mod tests;
