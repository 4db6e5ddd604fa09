//! Binds a cell to this machine: determines the run, its id and how to launch it.

use super::bound::{Bound, Launch, OBSERVE_ONLY, Trainer};
use super::closure::check_program;
use super::container::{self, BINDS, HOST, IMAGE, Image, Inside, Loads};
use super::data::{self, DataFiles};
use super::machine::Machine;
use super::program::{DIRECTORY, GIT_COMMIT, Named, Stated};
use super::refusal::{BindError, Refusal};
use crate::gpu::{self, GpuInfo, Settings};
use crate::manifest::{Bind, Manifest, Program, ProgramIdentity};
use crate::record::{Cell, Parts, Run, Table, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Marks a cell so that no settings are changed on its GPUs. Their actual settings are compared with the requested
/// ones.
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

/// Adds everything that a cell needs from its manifest, so that it can be bound without it, also on another host.
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

/// Binds a recorded run to this machine. The parts that the machine decides may differ from the record.
pub fn rebind(run: &Run, settings: &Table, trainer: Option<&Trainer>, machine: &Machine) -> Result<Bound, BindError> {
    let mut config = run.config().clone();
    config.remove(data::DIGEST);
    rebind_with(run, config, settings, trainer, machine)
}

/// As [`rebind`], with another configuration in place of the recorded one.
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
    // A recorded command was parsed before, so this cannot fail.
    let program = program.and_then(Result::ok);
    bind_cell(cell, program.as_ref(), Some(Stated::recorded(&run.parts.program)), trainer, machine)
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
    recorded: Option<Stated>,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<Bound, BindError> {
    let image = container::image(&cell, |path| machine.image(path), || machine.container_tool())?;
    let (gpus, no_gpu) = choose_device(&mut cell, program.is_some(), image.is_some(), trainer, machine)?;
    if gpus > 1
        && program.is_none()
        && image.is_none()
        && let Some(why) = &machine.gpus().no_nccl
    {
        return Err(Refusal::NoNccl { asked: gpus, why: why.clone() }.into());
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
            let stated = recorded.unwrap_or_else(|| Stated::of(program, &cell));
            let named = Named::of(program, (&cell, stated), image.is_some(), machine)?;
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
            (trainer.part(if gpus == 0 { "cpu" } else { "cuda" }, &cell), Launch::Trainer)
        }
    };
    let used: Vec<GpuInfo> =
        if gpus == 0 { Vec::new() } else { machine.gpus().visible.iter().take(gpus).cloned().collect() };
    if let Some(asked) = Settings::of(&cell.config) {
        if used.is_empty() {
            return Err(Refusal::NothingToSet.into());
        }
        // Settings that are not changed need no permission.
        if cell.get(OBSERVE_ONLY).is_none() {
            used.iter().try_for_each(|gpu| machine.allowed(gpu).check(asked, gpu)).map_err(Refusal::NotAllowed)?;
        }
    }
    let device = gpu::device_part(&used, machine.cpu_name());
    let (cuda, driver) = if gpus == 0 {
        ("none".into(), "none".into())
    } else {
        let state = machine.gpus();
        // An image's digest identifies its libraries. Those of binds are also identified by their versions.
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

/// Adds the digest of the data to the cell: of the files' content as it is stored, or of the generator's samples.
/// Returns the files if they were read.
pub(super) fn bind_data(
    cell: &mut Cell,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<Option<Arc<DataFiles>>, BindError> {
    let Some(name) = cell.text("data.name").map(str::to_owned) else { return Ok(None) };
    if !data::is_of_files(&name) {
        let drawn = trainer.and_then(|trainer| trainer.generators.iter().find(|(of, _)| *of == name));
        if let Some((_, digest)) = drawn {
            cell.config.insert(data::DIGEST.to_owned(), digest.to_string().into());
        }
        return Ok(None);
    }
    if let Some(told) = machine.told_data() {
        cell.config.insert(data::DIGEST.to_owned(), told.clone());
        return Ok(None);
    }
    let (digest, files) = machine.data(&name, Path::new(cell.text("data.path").unwrap_or_default()))?;
    cell.config.insert(data::DIGEST.to_owned(), digest.to_string().into());
    Ok(Some(files))
}

/// Chooses the device if the cell leaves it open, and writes it into the cell. Returns the number of GPUs. If a GPU was
/// to be expected but none is used, also returns why.
fn choose_device(
    cell: &mut Cell,
    external: bool,
    contained: bool,
    trainer: Option<&Trainer>,
    machine: &Machine,
) -> Result<(usize, Option<String>), Refusal> {
    let asked = cell.config.get("hardware.device").and_then(Value::as_str).unwrap_or("auto").to_owned();
    let wanted = cell.config.get("hardware.gpus").and_then(Value::as_int).filter(|gpus| *gpus > 0);
    let mut no_gpu = None;
    let cuda = match asked.as_str() {
        "cpu" => false,
        _ if !external && trainer.is_none() => return Err(Refusal::NoTrainer),
        _ => match machine.gpus().fault(external || contained) {
            None => true,
            Some(why) if asked == "cuda" => {
                return Err(Refusal::NoCuda { asked: "`hardware.device` is cuda".to_owned(), why });
            }
            Some(why) => match wanted {
                Some(gpus) => return Err(Refusal::NoCuda { asked: format!("`hardware.gpus` is {gpus}"), why }),
                None => {
                    no_gpu = machine.gpus().is_expected.then_some(why);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_trainer_no_device_is_recommended() {
        for device in ["cuda", "auto"] {
            let config = [("hardware.device".to_owned(), device.into())].into();
            let mut cell = Cell { config, settings: Table::new(), seed: 1 };
            let chosen = choose_device(&mut cell, false, false, None, &Machine::default());
            assert_eq!(chosen.unwrap_err(), Refusal::NoTrainer, "{device}");
        }
    }

    #[test]
    fn data_without_permission_to_read_get_the_recorded_digest() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("gone").display().to_string();
        let config: Table = [("data.name".to_owned(), "idx".into()), (data::DIGEST.to_owned(), "ab".into())].into();
        let run = Run::new(Parts { config: config.clone().into(), ..Parts::sample() });
        let settings: Table = [("data.path".to_owned(), gone.into())].into();
        let bound = |machine: &Machine| {
            let config = [("data.name".to_owned(), "idx".into())].into();
            let mut cell = Cell { config, settings: settings.clone(), seed: 1 };
            bind_data(&mut cell, None, machine).map(|_| cell.config)
        };
        assert!(matches!(bound(&Machine::default()), Err(BindError::Refused(Refusal::NoData { .. }))));
        assert_eq!(bound(&Machine::without_git(&run).without_data(&run)).unwrap(), config);
        assert!(bound(&Machine::default().without_data(&Run::new(Parts::sample()))).is_ok());
    }
}
