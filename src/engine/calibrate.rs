//! Measures the timing of a GPU's sensors: a load with known times runs on it, while power and energy are read every
//! millisecond.
//!
//! Changes no setting of the GPU. The load is a separate process, as a worker is, so its failure does not affect this
//! one.

use super::Stop;
use super::calibrations::{CalibrationError, KeptCalibration};
use super::worker::{Shim, Worker};
use crate::analysis::{Calibration, Sensor, Watched, calibrate as find};
use crate::gpu::{GpuError, GpuInfo, Gpus, Meter};
use crate::host::clock::{monotonic_ns, unix_ms};
use crate::host::process::{self, Signal};
use crate::record::{Entry, EventKind, Exit, PhaseEdge, Table, count};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The shortest interval between two NVML queries.
const POLL: Duration = Duration::from_millis(1);
/// How long the sensors are read before the load is started and after it has ended.
const REST: Duration = Duration::from_millis(1500);
/// The extra time allowed for a load, which has to start first.
const LOAD_GRACE: Duration = Duration::from_secs(60);
/// The phase with which a load reports when it is on.
const PHASE: &str = "load";

/// The program that draws power while the sensors are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// The kernel of the built-in trainer.
    Kernel,
    /// Another program, with its arguments.
    Program(Vec<String>),
}

impl Load {
    fn name(&self) -> String {
        match self {
            Self::Kernel => "built-in kernel".to_owned(),
            Self::Program(argv) => argv.join(" "),
        }
    }
}

/// A calibration failed.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// NVML failed.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The result cannot be stored.
    #[error(transparent)]
    Kept(#[from] CalibrationError),
    /// The load could not be started.
    #[error("the load could not be started")]
    Start(#[source] io::Error),
    /// The load failed.
    #[error("the load failed, so nothing was stored: {0}")]
    Load(String),
    /// The GPU failed.
    #[error("GPU {0} was lost meanwhile, so nothing was stored (see `dmesg` and `nvidia-smi`)")]
    Lost(u32),
    /// The calibration was asked to stop.
    #[error("it was stopped, so nothing was stored")]
    Stopped,
}

/// The result for the sensors of a GPU.
#[derive(Debug)]
pub struct Calibrated {
    /// The GPU.
    pub gpu: GpuInfo,
    /// Each sensor by its name, or why it has no result.
    pub sensors: Vec<(&'static str, Result<Sensor, String>)>,
    /// The stored calibration. `None` if no sensor has a result.
    pub kept: Option<KeptCalibration>,
    /// Whether it replaced an older one.
    pub replaced: bool,
    /// The number of processes that computed on the GPU before the load started.
    pub foreign: usize,
}

/// Calibrates the sensors of a GPU with a load of `length_ms`, and stores the result beside the ledger.
///
/// # Errors
/// If the GPU or the load fails, or a stop was requested. Then nothing is stored.
pub fn calibrate(
    ledger: &Path,
    library: Option<&Path>,
    gpu: &GpuInfo,
    load: &Load,
    length_ms: u64,
    shim: &Shim,
    stop: &dyn Stop,
) -> Result<Calibrated, CalibrateError> {
    let gpus = Gpus::load(library)?;
    let driver = gpus.driver_version()?;
    let mut meter = Meter::new(&gpus, std::slice::from_ref(gpu), monotonic_ns);
    let vbios = gpus.vbios(gpu);
    let foreign = meter.processes(0).map_or(0, |processes| processes.len());
    let mut run = Reading { meter, index: gpu.index, watched: Watched::default(), unread: BTreeMap::new() };
    let schedule = Watched::schedule(length_ms);
    run.rest(stop)?;
    run.load(ledger, gpu, load, &schedule, shim, stop)?;
    run.rest(stop)?;
    let Reading { watched, unread, .. } = run;
    let found = find(&watched);
    let sensors: Vec<(&'static str, Result<Sensor, String>)> = Calibration::SENSORS
        .into_iter()
        .zip(found)
        .map(|(name, sensor)| (name, sensor.map_err(|reason| unread.get(name).cloned().unwrap_or(reason))))
        .collect();
    let kept = sensors.iter().any(|(_, sensor)| sensor.is_ok()).then(|| {
        let mut table = how(&watched, load, length_ms);
        let mut unknown = Table::new();
        for (name, sensor) in &sensors {
            match sensor {
                Ok(sensor) => table.insert((*name).to_owned(), sensor.to_table().into()),
                Err(reason) => unknown.insert((*name).to_owned(), reason.as_str().into()),
            };
        }
        table.insert("unknown".to_owned(), unknown.into());
        KeptCalibration::new(ledger, &gpu.name, vbios.as_deref(), &driver, table)
    });
    let replaced = kept.as_ref().is_some_and(|kept| kept.path.exists());
    if let Some(kept) = &kept {
        kept.write()?;
    }
    Ok(Calibrated { gpu: gpu.clone(), sensors, kept, replaced, foreign })
}

/// The conditions of the calibration.
fn how(watched: &Watched, load: &Load, length_ms: u64) -> Table {
    [
        ("made_unix_ms", unix_ms().into()),
        ("load", load.name().into()),
        ("load_ms", length_ms.into()),
        ("pulses", watched.pulses.len().into()),
        ("readings", watched.samples.len().into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

struct Reading<'a> {
    meter: Meter<'a>,
    index: u32,
    watched: Watched,
    unread: BTreeMap<&'static str, String>,
}

impl Reading<'_> {
    /// Reads one sample, and sleeps until the next one is due.
    fn read(&mut self, stop: &dyn Stop) -> Result<(), CalibrateError> {
        let begun = Instant::now();
        let look = self.meter.glance(0);
        if look.lost {
            return Err(CalibrateError::Lost(self.index));
        }
        self.unread.extend(look.unread.into_iter().map(|(quantity, reason)| (quantity.name(), reason)));
        self.watched.samples.push(look.sample);
        if stop.asked() > 0 {
            return Err(CalibrateError::Stopped);
        }
        std::thread::sleep(POLL.saturating_sub(begun.elapsed()));
        Ok(())
    }

    fn rest(&mut self, stop: &dyn Stop) -> Result<(), CalibrateError> {
        let begun = Instant::now();
        while begun.elapsed() < REST {
            self.read(stop)?;
        }
        Ok(())
    }

    /// Runs the load and records when it was on.
    fn load(
        &mut self,
        ledger: &Path,
        gpu: &GpuInfo,
        load: &Load,
        schedule: &[(u64, u64)],
        shim: &Shim,
        stop: &dyn Stop,
    ) -> Result<(), CalibrateError> {
        let fifo = pipe_of(ledger).map_err(CalibrateError::Start)?;
        let mut command = shim.command();
        command.arg("worker").env("LEDGER_EVENTS", &fifo);
        command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").env("CUDA_VISIBLE_DEVICES", &gpu.uuid);
        match load {
            Load::Kernel => command.arg("--load"),
            Load::Program(argv) => command.arg("--").args(argv),
        };
        let worker = Worker::launch(command, Some(&written(schedule)), &fifo).map_err(CalibrateError::Start)?;
        let length_ms: u64 = schedule.iter().map(|(on, off)| on + off).sum();
        let deadline = Instant::now() + 2 * Duration::from_millis(length_ms) + LOAD_GRACE;
        let mut heard = Heard::default();
        let exit = loop {
            heard.take(worker.receive(Duration::ZERO));
            if let Some(exit) = process::peek_end(worker.pid()).unwrap_or(Some(Exit::Code(-1))) {
                break exit;
            }
            let late = Instant::now() > deadline;
            let read = if late {
                Err(CalibrateError::Load(
                    "it did not end after its last pulse (docs/protocol.md describes its input)".to_owned(),
                ))
            } else {
                self.read(stop)
            };
            if let Err(error) = read {
                worker.signal(Signal::Kill);
                while matches!(process::peek_end(worker.pid()), Ok(None)) {
                    std::thread::sleep(POLL);
                }
                worker.finish();
                return Err(error);
            }
        };
        heard.take(worker.finish());
        self.watched.pulses = heard.pulses(exit, schedule.len())?;
        Ok(())
    }
}

/// The path of the load's pipe.
fn pipe_of(ledger: &Path) -> io::Result<PathBuf> {
    let folder = KeptCalibration::folder(ledger);
    crate::host::files::private_folder(&folder)?;
    Ok(folder.join(format!(".load-{}.events", std::process::id())))
}

/// The schedule as text: for each pulse a line with the seconds on and off.
fn written(schedule: &[(u64, u64)]) -> String {
    let time = |ms: u64| format!("{}.{:03}", ms / 1000, ms % 1000);
    schedule.iter().map(|(on, off)| format!("{} {}\n", time(*on), time(*off))).collect()
}

/// The messages of a load.
#[derive(Default)]
struct Heard {
    open: Option<u64>,
    pulses: Vec<(u64, u64)>,
    failure: Option<String>,
    stderr: String,
}

impl Heard {
    fn take(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            match entry {
                Entry::Stderr(text) => self.stderr.push_str(&text),
                Entry::Event(event) => match event.kind {
                    EventKind::Phase { name, edge, .. } if name == PHASE => match edge {
                        PhaseEdge::Start => self.open = Some(event.t_ns),
                        PhaseEdge::Stop => self.pulses.extend(self.open.take().map(|start| (start, event.t_ns))),
                    },
                    EventKind::Failure { message } => self.failure = Some(message),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    fn pulses(self, exit: Exit, expected: usize) -> Result<Vec<(u64, u64)>, CalibrateError> {
        let Self { pulses, failure, stderr, .. } = self;
        if let Some(message) = failure {
            return Err(CalibrateError::Load(message));
        }
        let ended = match exit {
            Exit::Code(0) if pulses.is_empty() => {
                Some(format!("it reported no phase `{PHASE}` (docs/protocol.md describes the events)"))
            }
            Exit::Code(0) if pulses.len() < expected => {
                let told = count(pulses.len(), "phase");
                Some(format!("it reported {told} `{PHASE}`, but {expected} were expected"))
            }
            Exit::Code(0) => None,
            Exit::Code(code) => Some(format!("it exited with code {code}")),
            Exit::Signal(signal) => Some(format!("it was ended by {}", process::signal_name(signal))),
        };
        if let Some(how) = ended {
            let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
            return Err(CalibrateError::Load(last.map_or(how.clone(), |line| format!("{how}: {line}"))));
        }
        let ordered = pulses.windows(2).all(|pair| pair[0].1 <= pair[1].0) && pulses.iter().all(|(a, b)| a < b);
        if ordered { Ok(pulses) } else { Err(CalibrateError::Load("its phases are not in order".to_owned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Event;

    fn phase(t_ns: u64, edge: PhaseEdge) -> Entry {
        Entry::Event(Event { t_ns, rank: 0, kind: EventKind::Phase { name: PHASE.to_owned(), index: 0, edge } })
    }

    fn heard(entries: Vec<Entry>, exit: Exit) -> Result<Vec<(u64, u64)>, String> {
        let mut heard = Heard::default();
        heard.take(entries);
        heard.pulses(exit, 2).map_err(|error| error.to_string())
    }

    #[test]
    fn the_schedule_of_a_load_is_written_in_seconds() {
        assert_eq!(written(&[(2500, 20), (7, 600)]), "2.500 0.020\n0.007 0.600\n");
    }

    #[test]
    fn a_load_reports_its_pulses_or_why_it_failed() {
        use PhaseEdge::{Start, Stop};
        let two = || vec![phase(1, Start), phase(5, Stop), phase(9, Start), phase(12, Stop)];
        assert_eq!(heard(two(), Exit::Code(0)), Ok(vec![(1, 5), (9, 12)]));
        let fails = |entries: Vec<Entry>, exit: Exit, why: &str| {
            assert_eq!(heard(entries, exit), Err(format!("the load failed, so nothing was stored: {why}")));
        };
        let stderr = |text: &str| Entry::Stderr(text.to_owned());
        fails([two(), vec![stderr("a\nno device\n\n")]].concat(), Exit::Code(3), "it exited with code 3: no device");
        fails(two(), Exit::Signal(9), "it was ended by SIGKILL");
        fails(vec![], Exit::Code(0), "it reported no phase `load` (docs/protocol.md describes the events)");
        fails(two()[..3].to_vec(), Exit::Code(0), "it reported 1 phase `load`, but 2 were expected");
        fails([two(), vec![phase(11, Start), phase(13, Stop)]].concat(), Exit::Code(0), "its phases are not in order");
    }
}
