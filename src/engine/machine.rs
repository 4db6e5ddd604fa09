//! The properties of this machine that runs depend on.

use super::Stop;
use super::container::{self, ContainerError, Image, Inside, Loads, NCCL, TOOLKIT, Tool};
use super::data::{self, DataFiles};
use super::refusal::{BindError, ClosureError};
use crate::gpu::{self, Allowed, GpuError, GpuInfo, Gpus, LibraryEnv};
use crate::host::python::{self, Imports, Question};
use crate::host::sif::{self, Sif};
use crate::host::sums::Stamp;
use crate::host::{HostError, cpu, environment, files, git};
use crate::record::{Cell, Digest, Parts, Run, Table, Value};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file as it was when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownFile {
    stamp: Stamp,
    pub(super) digest: Digest,
}

impl KnownFile {
    fn read(path: &Path) -> Result<Self, HostError> {
        // The stamp comes before the content: a file that is written meanwhile gets another stamp.
        let stamp = files::stamps(&[path], &|| false)?.remove(0);
        Ok(Self { stamp, digest: files::digest_content(path)? })
    }

    /// Whether the file still has this content, which counts even if the file was touched or copied. `None` if
    /// `is_over` ended the check.
    pub(super) fn is_of(&self, path: &Path, is_over: &(dyn Fn() -> bool + Sync)) -> Option<bool> {
        if files::stamps(&[path], &|| false).is_ok_and(|now| now.first() == Some(&self.stamp)) {
            return Some(true);
        }
        match files::digest_content_until(path, is_over) {
            Err(_) if is_over() => None,
            digest => Some(digest.is_ok_and(|digest| digest == self.digest)),
        }
    }
}

/// The digest of data, and their files as they were when it was computed.
type ReadData = (Digest, Arc<DataFiles>);

/// An image, its binds, and the libraries that a run loads in it.
type ImageUse = (Option<PathBuf>, Vec<String>, Loads);

/// The properties of this machine. Each is queried once, when it is first needed.
#[derive(Default)]
pub struct Machine {
    cpu_name: OnceCell<String>,
    gpus: OnceCell<GpuState>,
    allowed: RefCell<BTreeMap<String, Allowed>>,
    program_files: RefCell<BTreeMap<PathBuf, KnownFile>>,
    data: RefCell<BTreeMap<(String, PathBuf), ReadData>>,
    repositories: RefCell<BTreeMap<PathBuf, Table>>,
    imports: RefCell<BTreeMap<Question, Imports>>,
    images: RefCell<BTreeMap<PathBuf, (String, Stamp, Sif)>>,
    inside: RefCell<BTreeMap<ImageUse, Inside>>,
    container_tool: OnceCell<Tool>,
    /// Replaces git's answer for every repository.
    told: Option<Table>,
    /// The submitted program part, whose closure a task adopts.
    submitted: RefCell<Option<Table>>,
    /// The parts of an untrusted record. No program is started that only it names.
    distrusted: Option<Box<Parts>>,
    /// Replaces the digest of data files, which are not read then.
    told_data: Option<Value>,
    /// A request to stop ends the reading of data.
    stop: Option<Arc<dyn Stop>>,
}

/// The state of the GPUs.
pub(super) struct GpuState {
    pub(super) visible: Vec<GpuInfo>,
    pub(super) driver: Option<String>,
    pub(super) versions: gpu::CudaVersions,
    /// Whether a run is expected to use a GPU: one is visible, or the driver failed. Not if all are hidden.
    pub(super) is_expected: bool,
    /// Why no GPU can be used.
    no_gpu: Option<String>,
    /// Why the built-in trainer cannot use a GPU: it compiles its kernels and needs the toolkit for that.
    no_toolkit: Option<String>,
    /// Why the built-in trainer cannot use several GPUs together.
    pub(super) no_nccl: Option<String>,
}

impl GpuState {
    /// Why a run cannot use a GPU. An external program brings its own libraries.
    pub(super) fn fault(&self, external: bool) -> Option<String> {
        self.no_gpu.clone().or_else(|| if external { None } else { self.no_toolkit.clone() })
    }
}

/// The value of a key, found once.
fn once<K: Ord, V: Clone, E>(
    known: &RefCell<BTreeMap<K, V>>,
    key: K,
    find: impl FnOnce(&K) -> Result<V, E>,
) -> Result<V, E> {
    if let Some(found) = known.borrow().get(&key) {
        return Ok(found.clone());
    }
    let found = find(&key)?;
    known.borrow_mut().insert(key, found.clone());
    Ok(found)
}

impl Machine {
    /// A machine that does not call git, and assumes the repository state of a recorded run.
    pub fn without_git(run: &Run) -> Self {
        Self::default().with_git_of(&run.parts.program)
    }

    /// The same machine without calls of git. It assumes the repository state in a program part.
    pub fn with_git_of(self, program: &Value) -> Self {
        let told = |name: &str| program.as_table().and_then(|program| program.get(name)).cloned();
        let facts = [("git.commit", "git_commit"), ("git.patch", "git_patch")];
        let told = facts.into_iter().filter_map(|(fact, field)| Some((fact.to_owned(), told(field)?))).collect();
        Self { told: Some(told), ..self }
    }

    /// From now on programs have the files, the interpreter and the packages of this submitted program part.
    pub fn take_submitted(&self, program: Option<&Value>) {
        self.submitted.replace(program.and_then(Value::as_table).cloned());
    }

    /// The same machine for an untrusted record: it starts no interpreter that only the record names.
    pub fn untrusting(self, run: &Run) -> Self {
        Self { distrusted: Some(Box::new(run.parts.clone())), ..self }
    }

    pub(super) fn submitted(&self) -> Option<Table> {
        self.submitted.borrow().clone()
    }

    pub(super) fn distrusted(&self) -> Option<&Parts> {
        self.distrusted.as_deref()
    }

    /// The imports of a Python program, determined once for all cells of a sweep.
    pub(super) fn imports(&self, question: &Question) -> Result<Imports, ClosureError> {
        once(&self.imports, question.clone(), |question| Ok(python::imports(question)?))
    }

    /// The same machine without reading data files. It assumes the digest that a run was recorded with.
    pub fn without_data(self, run: &Run) -> Self {
        // A record without a digest must not cause the files to be read.
        let told = run.config().get(data::DIGEST).cloned().unwrap_or_else(|| "not recorded".into());
        Self { told_data: Some(told), ..self }
    }

    /// A machine that stops reading data after a request to stop.
    pub fn heeding(stop: Arc<dyn Stop>) -> Self {
        Self { stop: Some(stop), ..Self::default() }
    }

    /// The assumed digest of the data, if they are not read.
    pub(super) fn told_data(&self) -> Option<&Value> {
        self.told_data.as_ref()
    }

    pub(super) fn cpu_name(&self) -> &str {
        self.cpu_name.get_or_init(cpu::cpu_name)
    }

    pub(super) fn gpus(&self) -> &GpuState {
        self.gpus.get_or_init(|| {
            let absent = |fault: String, is_expected: bool| GpuState {
                visible: Vec::new(),
                driver: None,
                versions: gpu::CudaVersions::default(),
                is_expected,
                no_gpu: Some(fault),
                no_toolkit: None,
                no_nccl: None,
            };
            let gpus = match Gpus::load(self.nvml().as_deref()) {
                Ok(gpus) => gpus,
                Err(error) => {
                    let no_driver = matches!(error, GpuError::Library { .. } | GpuError::NoDriver { .. });
                    return absent(error.to_string(), !no_driver);
                }
            };
            let visible = match gpu::usable(&gpus, environment::text_var("CUDA_VISIBLE_DEVICES").as_deref()) {
                Ok(visible) => visible,
                Err(error) => return absent(error.to_string(), true),
            };
            let library_path = environment::var("LD_LIBRARY_PATH");
            let cuda_path = environment::var("CUDA_PATH");
            let survey = gpu::survey(&LibraryEnv::usual(library_path.as_deref(), cuda_path.as_deref()));
            let missing = |name: &str| {
                survey.items().into_iter().find_map(|(file, item)| match item {
                    gpu::Item::Missing { fix, .. } if file == name => Some(format!("`{name}` is missing ({fix})")),
                    _ => None,
                })
            };
            let no_toolkit = TOOLKIT.into_iter().find_map(missing);
            let no_gpu = visible.is_empty().then(|| "no GPU is visible".to_owned()).or_else(|| missing("libcuda.so.1"));
            let no_nccl = missing(NCCL);
            let driver = gpus.driver_version().ok();
            GpuState {
                versions: survey.versions(Some(&gpus)),
                driver,
                is_expected: !visible.is_empty(),
                visible,
                no_gpu,
                no_toolkit,
                no_nccl,
            }
        })
    }

    /// The settings that a GPU allows, queried once.
    pub fn allowed(&self, gpu: &GpuInfo) -> Allowed {
        let mut known = self.allowed.borrow_mut();
        let ask = || match Gpus::load(self.nvml().as_deref()) {
            Ok(gpus) => gpus.allowed(gpu),
            Err(error) => Allowed::unknown(&error.to_string()),
        };
        known.entry(gpu.uuid.clone()).or_insert_with(ask).clone()
    }

    /// The stamp and digest of a file, read once.
    pub(super) fn known(&self, path: &Path) -> Result<KnownFile, HostError> {
        once(&self.program_files, path.to_owned(), |path| KnownFile::read(path))
    }

    /// The digest of data of a kind, and their files as they were then. Read once, even if the files change later.
    pub(super) fn data(&self, kind: &str, path: &Path) -> Result<ReadData, BindError> {
        let stop = self.stop.as_deref();
        once(&self.data, (kind.to_owned(), path.to_owned()), |_| {
            let (files, digest) = DataFiles::read(kind, path, &|| stop.is_some_and(|stop| stop.asked() > 0))?;
            Ok((digest, Arc::new(files)))
        })
    }

    /// The digest, stamp and metadata of an image, read once.
    pub(super) fn image(&self, path: &Path) -> Result<(String, Stamp, Sif), ContainerError> {
        once(&self.images, path.to_owned(), |path| container::read(path))
    }

    /// Adopts the digest of a submitted cell's image if the file is unchanged, so that an array of a thousand tasks
    /// reads it once.
    pub fn take_image(&self, cell: &Cell) {
        let Ok(Some(path)) = container::asked(cell) else { return };
        let Ok(stamp) = std::fs::metadata(&path).map(|metadata| Stamp::of(&metadata)) else { return };
        if let (Some(sha256), Some(submitted)) = (cell.text(container::EXPECTED), cell.text(container::STAMP))
            && stamp.shared() == submitted
            && let Ok(told) = sif::read(&path)
        {
            self.images.borrow_mut().insert(path, (sha256.to_owned(), stamp, told));
        }
    }

    /// The content of an image with the binds of a cell, determined once for each. Starts nothing for an untrusted
    /// record.
    pub(super) fn inside(&self, image: Image, cell: &Cell, loads: Loads) -> Result<Inside, ContainerError> {
        if self.distrusted.is_some() {
            return Ok(Inside { image, versions: gpu::CudaVersions::default(), notes: Vec::new() });
        }
        let key = (container::asked(cell)?, container::binds(cell), loads);
        once(&self.inside, key, |_| image.bring(cell, loads))
    }

    /// The container program, searched once.
    pub(super) fn container_tool(&self) -> Result<Tool, ContainerError> {
        if let Some(known) = self.container_tool.get() {
            return Ok(known.clone());
        }
        let tool = container::tool()?;
        Ok(self.container_tool.get_or_init(|| tool).clone())
    }

    /// The git facts of a folder, determined once for all cells of a sweep.
    pub(super) fn git(&self, directory: &Path) -> Table {
        if let Some(told) = &self.told {
            return told.clone();
        }
        self.repositories.borrow_mut().entry(directory.to_owned()).or_insert_with(|| git::facts(directory)).clone()
    }

    /// The path of NVML in `LEDGER_NVML`. `None` is the default library.
    pub fn nvml(&self) -> Option<PathBuf> {
        environment::var("LEDGER_NVML").filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}
