//! Binds a cell to this machine: a run, its id, and how it is launched.

use super::closure::{ClosureError, check_program};
use super::container::{self, BINDS, ContainerError, HOST, IMAGE, Image, Inside, Loads};
use super::data::{self, DataFiles, bind_data};
use super::machine::Machine;
use super::program::{GIT_COMMIT, Named, ProgramFile};
use crate::gpu::{self, GpuInfo, Settings};
use crate::host::HostError;
use crate::manifest::{ArgvError, Bind, Manifest, Program, ProgramIdentity};
use crate::record::{Cell, Digest, Owner, Parts, Run, Table, Value};
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The cell cannot be bound to this machine.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A program's command has a placeholder without a value.
    #[error(transparent)]
    Argv(#[from] ArgvError),
    /// The machine refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Files of the program cannot be read.
    #[error("{why}{}", also_unread(others, why))]
    File {
        /// As the manifest names it.
        file: String,
        /// The cause.
        why: HostError,
        /// Further files that cannot be read.
        others: Vec<String>,
    },
    /// The data cannot be read.
    #[error(transparent)]
    Data(HostError),
    /// What is asked for is not to be had here.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The image that it asks for cannot be started.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The files and packages of its program are not known.
    #[error(transparent)]
    Closure(#[from] ClosureError),
}

impl BindError {
    /// The key by which a manifest names what is not there or cannot be read, and the text that the cell has of it; none where it is no file.
    pub fn named<'a>(&'a self, cell: &'a Cell) -> Option<(&'static str, &'a str)> {
        let of = |key| Some((key, cell.text(key)?));
        match self {
            Self::File { file: word, .. }
            | Self::Closure(ClosureError::NoScript { word, .. } | ClosureError::NoProgram(word)) => {
                Some(("program", word.as_str()))
            }
            Self::Data(_) | Self::Refused(Refusal::NoData { .. }) => of("data.path"),
            Self::Container(error) if error.is_of_image() => of(IMAGE),
            Self::Container(error) => match (error.bind(), cell.get(BINDS)) {
                (Some(index), Some(Value::List(texts))) => Some((BINDS, texts.get(index)?.as_str()?)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Something that the cell asks for and this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The program is to be named by its commit, and there is none.
    #[error("`identity` of [program] is git, but git names no commit of `{}`: {why} (remove `identity` to name the program by its files)", directory.display())]
    NoCommit {
        /// The folder of the program.
        directory: PathBuf,
        /// What git says.
        why: String,
    },
    /// A GPU is asked for and there is none.
    #[error("{asked}, but {why} (`ledger doctor` shows what is missing; device = \"cpu\" trains without)")]
    NoCuda {
        /// What in the cell asks for it.
        asked: String,
        /// Why there is none.
        why: String,
    },
    /// More GPUs are asked for than there are.
    #[error("`hardware.gpus` is {asked}, but {} visible: {} (CUDA_VISIBLE_DEVICES selects the visible GPUs)", are(*there), names.join(", "))]
    TooFewGpus {
        /// How many are asked for.
        asked: i64,
        /// How many there are.
        there: usize,
        /// Their names.
        names: Vec<String>,
    },
    /// Several GPUs are asked for, and nothing connects them.
    #[error("`hardware.gpus` is {asked}, but {why} (gpus = 1 trains without; `ledger doctor` shows what is missing)")]
    NoNccl {
        /// How many are asked for.
        asked: usize,
        /// What is missing, and how to get it.
        why: String,
    },
    /// A power limit or a clock is asked for that a card does not have.
    #[error("{0}")]
    NotAllowed(String),
    /// A power limit or a clock is asked for, and there is no GPU to set it on.
    #[error(
        "the cell sets a power limit or clocks, but uses no GPU (give device = \"cuda\", or remove the keys; `ledger doctor` shows what is missing)"
    )]
    NothingToSet,
    /// This binary has no trainer.
    #[error("this ledger was built without its trainer (build with default features, or give a [program])")]
    NoTrainer,
    /// A data file is missing.
    #[error("`data.path` is `{}`, which has no {file}", path.display())]
    NoData {
        /// The directory.
        path: PathBuf,
        /// The missing file, and in which form it may be there.
        file: String,
    },
}

fn also_unread(files: &[String], why: &HostError) -> String {
    let cause = why.source().map(|cause| format!(": {cause}"));
    files.iter().map(|file| format!(", nor `{file}`")).chain(cause).collect()
}

fn are(count: usize) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

/// The setting that says that nothing is set on the GPUs.
pub const OBSERVE_ONLY: &str = "hardware.observe_only";

/// What a program's part says of the settings that stand in its command.
pub(super) const SETTINGS: &str = "settings";
/// The setting that says in which folder a program runs.
pub(super) const DIRECTORY: &str = "program.directory";

/// What the built-in trainer is, as far as a run's identity goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Trainer {
    /// The program part on the CPU.
    pub cpu: Value,
    /// The program part on CUDA; none if this binary cannot use it.
    pub cuda: Option<Value>,
    /// What each generator draws, as a digest, by the data's name.
    pub generators: Vec<(&'static str, Digest)>,
}

/// How a run's worker is started.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// The built-in trainer.
    Trainer,
    /// Another program, in that directory.
    Program {
        /// Program and arguments.
        argv: Vec<String>,
        /// Where it runs.
        directory: PathBuf,
    },
    /// A process that already runs the program: it is watched, and neither started nor signalled.
    Attached(Owner),
}

/// A cell bound to this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What will be executed, by its id.
    pub run: Run,
    /// The cell, with everything that the machine decided.
    pub cell: Cell,
    /// How.
    pub launch: Launch,
    /// The GPUs that it uses, by rank; none on the CPU.
    pub gpus: Vec<GpuInfo>,
    /// The NVIDIA driver's management library, where it is not the usual one.
    pub nvml: Option<PathBuf>,
    /// The image that its worker runs in; none is the host itself.
    pub image: Option<Image>,
    /// The files of its data as they were when it was named by them; none where no files were read.
    pub data: Option<Arc<DataFiles>>,
    /// The files of its program that it is named by, as they were then.
    pub program_files: Vec<ProgramFile>,
    /// What could not be found out about its program, for the attempt's warnings.
    pub notes: Vec<String>,
    /// Why it uses no GPU, where it was left open and one might be expected.
    pub no_gpu: Option<String>,
    /// What is recorded of where it comes from, which other runs of a sweep need not share.
    pub facts: Table,
}

/// How the warning of an attempt ends whose program changed.
pub(super) const CHANGED: &str = "changed after its run id was computed";
/// How it ends where that is not known.
pub(super) const MAY_HAVE_CHANGED: &str =
    "may have changed after its run id was computed: there was no time to compare it";

impl Bound {
    /// How long an attempt may take, in seconds.
    pub fn timeout_s(&self) -> Option<f64> {
        self.cell.float("limits.timeout_s")
    }

    /// What is to be set on its GPUs; none where the cell asks for nothing, or only to be watched (`--observe-only`).
    pub fn settings_to_make(&self) -> Option<Settings> {
        let observed = self.cell.get(OBSERVE_ONLY).is_some();
        Settings::of(&self.cell.config).filter(|_| !observed && !self.gpus.is_empty())
    }

    /// How often the hardware is looked at, in looks a second.
    pub fn telemetry_hz(&self) -> u32 {
        self.cell.int("telemetry.hz").and_then(|hz| u32::try_from(hz).ok()).unwrap_or(0)
    }

    /// What says that its worker may read other data than it is named by, or may have read them; an error if nobody can look.
    pub(super) fn changed_data(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<Option<String>, BindError> {
        self.data.as_ref().map_or(Ok(None), |data| data.changed(is_over))
    }

    /// Why other files may have run than those that it is named by. Words of a command may be files that the program writes.
    pub(super) fn changed_program(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<String> {
        self.program_files.iter().find_map(|file| {
            let found = match file.known.is_of(&file.path, is_over) {
                Some(true) => return None,
                Some(false) => CHANGED,
                None => MAY_HAVE_CHANGED,
            };
            Some(format!("`{}` {found}", file.path.display()))
        })
    }

    /// A source file of the program that has changed since the run id was computed, if one certainly has.
    pub(super) fn changed_code(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Option<String> {
        let mut code = self.program_files.iter().filter(|file| file.is_code);
        let changed = code.find(|file| file.known.is_of(&file.path, is_over) == Some(false))?;
        Some(format!("`{}` changed after the run ids were computed", changed.path.display()))
    }

    /// The files that an external program's manifest names, where they lie.
    pub(super) fn named_files(&self) -> Vec<PathBuf> {
        let Launch::Program { directory, .. } = &self.launch else { return Vec::new() };
        let named = self.run.parts.program.as_table().and_then(|program| program.get("named_files"));
        let Some(Value::List(files)) = named else { return Vec::new() };
        files.iter().filter_map(Value::as_str).map(|file| directory.join(file)).collect()
    }
}

/// Nothing is to be set on the cell's GPUs: their own settings are held against what it asks for.
pub fn observe_only(cell: &mut Cell) {
    if Settings::of(&cell.config).is_some() {
        cell.settings.insert(OBSERVE_ONLY.to_owned(), true.into());
    }
}

/// Binds a cell of a manifest.
pub fn bind(
    cell: &Cell,
    manifest: &Manifest,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<Bound, BindError> {
    bind_anchored(anchor(cell, manifest), manifest.program.as_ref(), trainer, machine)
}

/// The cell with all that it needs to know of its manifest, so that it can be bound without it, and on another host.
pub fn anchor(cell: &Cell, manifest: &Manifest) -> Cell {
    let mut cell = cell.clone();
    if let Some(path) = manifest.data_path(&cell) {
        cell.settings.insert("data.path".to_owned(), absolute(&path).display().to_string().into());
    }
    if let Some(image) = cell.text(IMAGE).filter(|image| *image != HOST && !image.contains("://")) {
        let image = absolute(&manifest.resolve_path(image)).display().to_string();
        cell.settings.insert(IMAGE.to_owned(), image.into());
    }
    let binds = container::binds(&cell).into_iter().filter_map(|text| Bind::parse(&text, &manifest.directory).ok());
    let binds: Vec<Value> = binds.map(|bind| bind.to_string().into()).collect();
    if !binds.is_empty() {
        cell.settings.insert(BINDS.to_owned(), Value::List(binds));
    }
    cell.settings.insert("manifest.digest".to_owned(), manifest.source.to_string().into());
    if manifest.program.is_some() {
        let directory = absolute(&manifest.directory);
        cell.settings.insert(DIRECTORY.to_owned(), directory.display().to_string().into());
    }
    cell
}

/// Binds a recorded run anew: as much of it as this machine decides may come out different.
pub fn rebind(run: &Run, settings: &Table, trainer: Option<&Trainer>, machine: &Machine) -> Result<Bound, BindError> {
    let mut config = run.config().clone();
    config.remove(data::DIGEST);
    rebind_with(run, config, settings, trainer, machine)
}

/// The same with another configuration in place of the recorded one.
pub fn rebind_with(
    run: &Run,
    config: Table,
    settings: &Table,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<Bound, BindError> {
    let cell = Cell { config, settings: settings.clone(), seed: run.parts.seed };
    let list = |name: &str| -> Vec<String> {
        let value = run.parts.program.as_table().and_then(|table| table.get(name));
        match value {
            Some(Value::List(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    };
    let command = list("command");
    let identity = run.parts.program.as_table().map(ProgramIdentity::recorded).unwrap_or_default();
    let program = (!command.is_empty()).then(|| Program::new(command, list("named_files"), identity));
    // A recorded command was read once already, so that it can be read again.
    let program = program.and_then(Result::ok);
    // Places may be other ones here, and older records have no settings: what the id says of them stays.
    let recorded = run.parts.program.as_table().and_then(|table| table.get(SETTINGS)?.as_table());
    bind_cell(cell, program.as_ref(), Some(recorded.cloned().unwrap_or_default()), trainer, machine)
}

fn absolute(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Binds a cell that [`anchor`] has made.
pub fn bind_anchored(
    cell: Cell,
    program: Option<&Program>,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<Bound, BindError> {
    bind_cell(cell, program, None, trainer, machine)
}

fn bind_cell(
    mut cell: Cell,
    program: Option<&Program>,
    recorded: Option<Table>,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<Bound, BindError> {
    let image = container::image(&cell, machine)?;
    let (gpus, no_gpu) = choose_device(&mut cell, program.is_some(), image.is_some(), trainer, machine)?;
    if gpus > 1
        && program.is_none()
        && image.is_none()
        && let Some(why) = machine.gpus().unconnected()
    {
        return Err(Refusal::NoNccl { asked: gpus, why: why.to_owned() }.into());
    }
    let loads = match (program, gpus) {
        (Some(_), _) => Loads::Any,
        (None, 0) => Loads::Nothing,
        (None, _) => Loads::Cuda { nccl: gpus > 1 },
    };
    let inside = image.map(|image| machine.inside(image, &cell, loads)).transpose()?;
    let data = match program {
        None => bind_data(&mut cell, trainer, machine).map_err(|error| match error {
            BindError::Host(source) => BindError::Data(source),
            other => other,
        })?,
        Some(_) => None,
    };
    let mut program_files = Vec::new();
    let (image, inside_versions, mut notes) = match inside {
        Some(Inside { image, versions, notes }) => (Some(image), versions, notes),
        None => (None, gpu::CudaVersions::default(), Vec::new()),
    };
    let (program_part, launch) = match program {
        Some(program) => {
            let directory = PathBuf::from(cell.text(DIRECTORY).unwrap_or("."));
            let argv = program.argv(&cell)?;
            if image.is_none() {
                check_program(&argv, &directory, true)?;
            }
            let is_recorded = recorded.is_some();
            let settings = recorded.unwrap_or_else(|| program.settings(&cell));
            let named = Named::of(program, (&cell, settings), image.is_some(), machine)?;
            let has_commit = named.part.as_table().is_some_and(|part| part.contains_key(GIT_COMMIT));
            if program.identity == ProgramIdentity::Git && !has_commit && !is_recorded {
                let why = machine.git(&directory).get("git.state").map_or_else(String::new, Value::to_string);
                return Err(Refusal::NoCommit { directory, why }.into());
            }
            program_files = named.files;
            notes.extend(named.notes);
            (named.part, Launch::Program { argv, directory })
        }
        None => {
            let trainer = trainer.ok_or(Refusal::NoTrainer)?;
            let value = if gpus == 0 { Some(&trainer.cpu) } else { trainer.cuda.as_ref() };
            (value.cloned().ok_or(Refusal::NoTrainer)?, Launch::Trainer)
        }
    };
    let used: Vec<GpuInfo> =
        if gpus == 0 { Vec::new() } else { machine.gpus().visible.iter().take(gpus).cloned().collect() };
    if let Some(asked) = Settings::of(&cell.config) {
        if used.is_empty() {
            return Err(Refusal::NothingToSet.into());
        }
        // What is not set need not be allowed, nor known to be.
        if cell.get(OBSERVE_ONLY).is_none() {
            used.iter().try_for_each(|gpu| machine.allowed(gpu).check(asked, gpu)).map_err(Refusal::NotAllowed)?;
        }
    }
    let device = gpu::device_part(&used, machine.cpu_name());
    let (cuda, driver) = if gpus == 0 {
        ("none".into(), "none".into())
    } else {
        let state = machine.gpus();
        // An image's digest says which libraries it has; those of binds are named by their versions, too.
        let versions = match image {
            Some(_) => gpu::CudaVersions { driver_api: state.versions.driver_api, ..inside_versions },
            None => state.versions,
        };
        (gpu::cuda_part(&versions, gpus), gpu::driver_part(state.driver.as_deref()))
    };
    let container = image.as_ref().map_or(HOST.into(), Image::part);
    let (container, cuda) = match machine.distrusted().filter(|_| !container::binds(&cell).is_empty()) {
        Some(recorded) => {
            notes.push("the binds were not read: their libraries are taken to be the recorded ones".to_owned());
            container::recorded(recorded, container, cuda)
        }
        None => (container, cuda),
    };
    let run = Run::new(Parts {
        config: cell.config.clone().into(),
        program: program_part,
        container,
        cuda,
        driver,
        device,
        seed: cell.seed,
    });
    let nvml = machine.nvml();
    Ok(Bound { run, cell, launch, gpus: used, nvml, image, data, program_files, notes, no_gpu, facts: Table::new() })
}

/// Decides the device where the cell leaves it open, writes the decision into the cell, and returns the number of GPUs; of none, why,
/// where somebody may expect one.
fn choose_device(
    cell: &mut Cell,
    external: bool,
    contained: bool,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<(usize, Option<String>), Refusal> {
    let asked = cell.config.get("hardware.device").and_then(Value::as_str).unwrap_or("auto").to_owned();
    let wanted = cell.config.get("hardware.gpus").and_then(Value::as_int).filter(|gpus| *gpus > 0);
    let capable = external || trainer.is_some_and(|trainer| trainer.cuda.is_some());
    let fault = || {
        if capable {
            machine.gpus().fault(external || contained)
        } else {
            Some("this ledger was built without it".to_owned())
        }
    };
    let mut no_gpu = None;
    let cuda = match asked.as_str() {
        "cpu" => false,
        _ => match fault() {
            None => true,
            Some(why) if asked == "cuda" => {
                return Err(Refusal::NoCuda { asked: "`hardware.device` is cuda".to_owned(), why });
            }
            Some(why) => match wanted {
                Some(gpus) => return Err(Refusal::NoCuda { asked: format!("`hardware.gpus` is {gpus}"), why }),
                None => {
                    // Whoever built it without CUDA knows.
                    no_gpu = (capable && machine.gpus().is_expected()).then_some(why);
                    false
                }
            },
        },
    };
    let gpus = if cuda { wanted.unwrap_or(1) } else { 0 };
    let count = usize::try_from(gpus).unwrap_or(0);
    if cuda && count > machine.gpus().visible.len() {
        let visible = &machine.gpus().visible;
        let names = visible.iter().map(|gpu| gpu.name.clone()).collect();
        return Err(Refusal::TooFewGpus { asked: gpus, there: visible.len(), names });
    }
    cell.config.insert("hardware.device".to_owned(), if cuda { "cuda" } else { "cpu" }.into());
    cell.config.insert("hardware.gpus".to_owned(), gpus.into());
    Ok((count, no_gpu))
}
