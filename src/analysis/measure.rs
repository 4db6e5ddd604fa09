//! Metrics that follow from a worker's steps, phases and end, and from the hardware telemetry.
//!
//! Knows the rule of each metric; `docs/metrics.md` has the details. Must not know how anything was read.

use super::counter::CounterFault;
use super::energy::{Energy, Meter};
use super::hardware::{Hardware, device};
use super::inference::Answers;
use super::parallel::{Exchanges, wait_energy};
use super::pipeline::Rounds;
use super::resolution::{COVERED, Pace, mean_used, resolve};
use super::statistic::{median, nearest_rank, number, quadrature, real, seconds, share, span};
use super::steps::Steps;
use super::telemetry::Given;
use super::training::{Training, throughput};
use super::unequal::EachGpu;
use super::validity::{Bounds, Evidence, stamp};
use super::window::Windows;
use super::work::trained_on;
use crate::record::{Metric, Phase, Quantity, Source, Table, Value, known_metric};
use std::collections::{BTreeMap, BTreeSet};

/// Estimators that disagree by more cause a warning, over windows that are long enough for both.
const DISAGREEMENT: f64 = 0.05;
const DISAGREEMENT_SECONDS: f64 = 10.0;
/// The quantities from which energies are computed.
const MEASURED: [Quantity; 3] = [Quantity::PowerInstant, Quantity::PowerAverage, Quantity::Energy];
/// The name of the training in reasons.
const TRAINING: &str = "the training";
/// Why answers have no time.
const AT_ONCE: &str =
    "the lines of most answers were read from their start to their stop at once (flush each line, or state `t_ns`)";
/// The fewest values for a 99th percentile.
const PERCENTILE_VALUES: usize = 100;

/// The input of the metrics.
#[derive(Debug, Default)]
pub struct Observed {
    /// Training steps of rank 0 in order.
    pub steps: Steps,
    /// Phases by start, the steps among them.
    pub phases: Vec<Phase>,
    /// The hardware telemetry of tests.
    #[cfg(test)]
    pub(super) telemetry: BTreeMap<String, crate::record::Series>,
    /// The requested rate of readings of each device, in hertz.
    pub telemetry_hz: Option<f64>,
    /// How many GPUs the run uses.
    pub gpus: u32,
    /// Samples per step, if the worker reported them.
    pub samples_per_step: Option<u64>,
    /// Samples of a pass over the data, if its last step is known to take the remaining ones.
    pub samples_of_a_pass: Option<i64>,
    /// The last value of `loss` over the steps.
    pub last_loss: Option<f64>,
    /// The time from the worker's start to its end, in nanoseconds.
    pub wall_ns: u64,
    /// Processor time of the worker in nanoseconds, if it could be read.
    pub cpu_ns: Option<u64>,
    /// Whether the worker's end was observed.
    pub ended: bool,
    /// The cell's requirements for the hardware and the measurement.
    pub bounds: Bounds,
}

impl Observed {
    /// Adds every metric that follows from the observations and that the worker did not state itself. Adds the rule of
    /// measurement to the facts, and warnings that a reader of the numbers needs.
    pub fn complete(
        &self,
        telemetry: &dyn Given,
        metrics: &mut BTreeMap<String, Metric>,
        facts: &mut Table,
        warnings: &mut Vec<String>,
    ) {
        let training = Training::new(self);
        facts.insert("measure.warmup_steps".to_owned(), training.warmup().into());
        if let Some(rule) = training.rule() {
            facts.insert("measure.rule".to_owned(), rule.into());
        }
        if let Some(samples) = self.samples_per_step {
            facts.insert("measure.samples_per_step".to_owned(), samples.into());
        }
        let mut put = Put(metrics);
        self.times(&training, &mut put);
        let exchanges = Exchanges::of(&self.phases, training.warmup());
        put.some("all_reduce_time", exchanges.time_s());
        put.some("all_reduce_exposed", exchanges.exposed_s());
        put.some("straggler_spread", exchanges.spread_s());
        let rounds = Rounds::of(&self.phases, training.warmup());
        put.some("bubble_fraction", rounds.bubble());
        put.some("straggler_spread", rounds.spread_s());
        let answers = Answers::of(&self.phases);
        inference(&answers, &mut put);
        let seen_facts = facts.clone();
        let hardware = Hardware::new(telemetry, &seen_facts, self.gpus, self.telemetry_hz);
        self.gauges(&training, &hardware, &seen_facts, &mut put).tell(facts, warnings);
        let meters = hardware.meters();
        let shares = self.phases.iter().any(|phase| phase.name == "all_reduce" && phase.rank > 0);
        let all = meters.as_deref().map_err(String::as_str);
        let is_alone = self.first_answers_alone(shares, &seen_facts) && self.gpus > 0;
        let of_answers = all.map(|meters| if is_alone { meters.get(..1).unwrap_or(meters) } else { meters });
        let energies = Energies {
            training: training
                .unseen()
                .map_or(Ok(()), |reason| Err(reason.to_owned()))
                .and_then(|()| Hardware::energy(all, TRAINING, &training.measured)),
            attempt: match self.ended {
                true => Hardware::energy(all, "the attempt", &Windows::new([(0, self.wall_ns)])),
                false => Err("the attempt's end was not observed".to_owned()),
            },
            idle: self.told("idle").and_then(|windows| Hardware::energy(all, "phase `idle`", &windows)),
            inference: {
                let energy = |(place, of_size): (usize, &Answers)| {
                    let name = of_size.names(place).next().map_or_else(String::new, |name| name("inference"));
                    (name, Hardware::energy(of_answers, "inference", &of_size.windows()))
                };
                answers.iter().enumerate().map(energy).collect()
            },
        };
        self.energies(&training, &energies, &mut put);
        let waits_s = if shares { exchanges.waits_s() } else { rounds.waits_s() };
        if !waits_s.is_empty() {
            let idle = energies.idle.as_ref().map_err(Clone::clone);
            let waited = idle.and_then(|(devices, _)| wait_energy(&waits_s, devices, real(training.steps())));
            let figure = |(value, half_width)| Figure { value, half_width: Some(half_width) };
            put.within("wait_energy", waited.map(figure));
        }
        answering(&answers, &energies.inference, &mut put);
        let table = energies.to_table();
        if !table.is_empty() {
            facts.insert("energy".to_owned(), table.into());
        }
        if hardware.speaks() {
            let mut marks = self.silences(&hardware, meters.as_deref().unwrap_or_default(), &seen_facts, warnings);
            marks.extend(doubts(&energies, warnings));
            facts.insert("telemetry.marks".to_owned(), marks.into_iter().collect::<Vec<_>>().into());
        }
        let whole = Windows::new([(0, self.wall_ns)]);
        let evidence = Evidence {
            bounds: &self.bounds,
            facts: &seen_facts,
            telemetry,
            measured: if training.measured.is_empty() { &whole } else { &training.measured },
            trained: !training.measured.is_empty(),
            wall_ns: self.wall_ns,
            gpus: self.gpus,
            unsteady: training.unsteady(),
            speaks: hardware.speaks(),
        };
        stamp(&evidence, facts);
    }

    /// Whether only the first rank answers, as in runs whose ranks share their gradients. The built-in trainer shows it
    /// by facts and not by phases, since a short run has no step with phases. Other programs show it by phases.
    fn first_answers_alone(&self, shares: bool, facts: &Table) -> bool {
        let several = facts.get("worker.ranks").and_then(Value::as_int).is_some_and(|ranks| ranks > 1);
        // Any program may have a fact called `ranks`.
        let several = several && facts.contains_key("worker.batch_global");
        let staged = facts.contains_key("worker.stages");
        let all_of_first = || self.phases.iter().all(|phase| phase.name != "inference" || phase.rank == 0);
        (several || shares) && !staged && all_of_first()
    }

    fn times(&self, training: &Training, put: &mut Put<'_>) {
        if self.ended {
            put.value("wall_time", seconds(self.wall_ns));
            let unread = "the worker's processor time could not be read".to_owned();
            put.found("cpu_time", self.cpu_ns.map(seconds).ok_or(unread));
        }
        put.some("loss", self.last_loss);
        // The reason for a missing metric is recorded only if somebody may look for it.
        let time = |put: &mut Put<'_>, name, is_asked, value: Option<f64>| match (value, training.read_together()) {
            (None, Some(reason)) if is_asked => put.found(name, Err(reason.to_owned())),
            (value, _) => put.some(name, value),
        };
        time(put, "step_time", true, training.step_s());
        time(put, "step_time_p95", true, training.step_p95_s());
        time(put, "warmup_time", training.warmup() > 0, training.warmup_s());
        let (whole, _) = training.whole_epochs(self.steps_of_a_pass());
        if whole == 0 && training.epochs() > 0 {
            put.found("epoch_time", Err(CUT_SHORT.to_owned()));
        } else {
            time(put, "epoch_time", training.epochs() > 0, training.epoch_s(whole));
        }
        time(put, "train_time", true, training.train_s());
        put.some("data_time", median(&self.lengths("data")).filter(|ns| *ns > 0.0).map(|ns| ns / 1e9));
        // From here on, metrics follow from others that the worker may have stated.
        let samples = self.samples_per_step.filter(|samples| *samples > 0);
        let step_s = put.known("step_time").filter(|step_s| *step_s > 0.0);
        let rate = samples.zip(step_s).map(|(samples, step_s)| throughput(samples, step_s));
        time(put, "throughput", samples.is_some(), rate);
        let flops = put.known("flops_per_sample").zip(put.known("throughput"));
        put.some("achieved_tflops", flops.map(|(flops, throughput)| flops * throughput / 1e12));
        // The peak is that of one GPU.
        let peak = put.known("matmul_tflops").filter(|peak| *peak > 0.0).map(|peak| peak * f64::from(self.gpus.max(1)));
        put.some("mfu", put.known("achieved_tflops").zip(peak).map(|(tflops, peak)| 100.0 * tflops / peak));
    }

    /// The lengths of rank 0's phases with this name, in nanoseconds.
    fn lengths(&self, name: &str) -> Vec<u64> {
        let named = self.phases.iter().filter(|phase| phase.name == name && phase.rank == 0);
        named.filter_map(|phase| Some(phase.stop_ns?.saturating_sub(phase.start_ns))).collect()
    }

    /// Adds means of the hardware's gauges during training, and peaks of memory. Returns the means of each GPU.
    fn gauges(&self, training: &Training, hardware: &Hardware<'_>, facts: &Table, put: &mut Put<'_>) -> EachGpu {
        let measured = training.unseen().map_or(Ok(&training.measured), |reason| Err(reason.to_owned()));
        let gpus: Vec<Source> = hardware.gpus().collect();
        let mut shown = EachGpu::default();
        if !gpus.is_empty() {
            let means = |quantity: Quantity| -> Result<Vec<f64>, String> {
                let windows = measured.as_ref().map_err(Clone::clone)?;
                let each = gpus.iter().map(|gpu| {
                    let gauge = hardware.gauge(*gpu, quantity)?;
                    mean_used(quantity, &gauge, windows).map_err(of_training)
                });
                each.collect()
            };
            let over_gpus = |means: Vec<f64>| means.iter().sum::<f64>() / number(means.len());
            let each = means(Quantity::UtilizationGpu);
            let named =
                |each: &Result<Vec<f64>, String>| gpus.iter().copied().zip(each.iter().flatten().copied()).collect();
            shown = EachGpu { used: named(&each), clocks_mhz: named(&means(Quantity::ClockSm)) };
            put.found("gpu_util", each.map(over_gpus));
            put.found("gpu_mem_util", means(Quantity::UtilizationMemory).map(over_gpus));
            for quantity in Quantity::GPM {
                put.found(quantity.name(), means(quantity).map(over_gpus));
            }
            let peaks = gpus.iter().map(|gpu| Ok(hardware.gauge(*gpu, Quantity::MemoryUsed)?.maximum()));
            let peaks: Result<Vec<f64>, String> = peaks.collect();
            put.found("gpu_mem_peak", peaks.map(|peaks| peaks.into_iter().fold(0.0, f64::max)));
        }
        let memory = hardware.gauge(Source::Host, Quantity::WorkerMemory);
        put.found("host_mem_peak", memory.map(|memory| memory.maximum()));
        put.found("cpu_util", measured.and_then(|windows| cpu_util(hardware, facts, windows)));
        shown
    }

    /// Finds times in which a device was not read. Returns marks for `telemetry.marks`, and adds a warning for each device.
    fn silences(
        &self,
        hardware: &Hardware<'_>,
        meters: &[(Source, Meter)],
        facts: &Table,
        warnings: &mut Vec<String>,
    ) -> BTreeSet<&'static str> {
        let mut marks = BTreeSet::new();
        for (source, meter) in meters {
            // Power and counter are read together, so a failed reading is one gap.
            let silent = meter.readings().map(|readings| readings.silent(self.wall_ns));
            let gaps = Windows::new(silent.flat_map(|silent| silent.iter().collect::<Vec<_>>()));
            if gaps.is_empty() {
                continue;
            }
            marks.insert("gap");
            let names = MEASURED.map(|quantity| source.series(quantity));
            let mut read = names.iter().filter(|name| hardware.has(name));
            let why = read.find_map(|name| facts.get(&format!("telemetry.unread.{name}"))?.as_str());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let (name, length) = (device(*source), span(gaps.length()));
            warnings.push(format!("{name} was not read for {length} in all (gaps: {}){why}", gaps.count()));
        }
        marks
    }

    /// The number of steps in a pass over the data, if it is known.
    fn steps_of_a_pass(&self) -> Option<u64> {
        let of_a_pass = u64::try_from(self.samples_of_a_pass?).ok()?;
        self.samples_per_step.filter(|batch| *batch > 0).map(|batch| of_a_pass.div_ceil(batch))
    }

    /// The times of rank 0's phases with this name, as the worker reported them.
    fn told(&self, name: &str) -> Result<Windows, String> {
        let named = self.phases.iter().filter(|phase| phase.name == name && phase.rank == 0);
        let windows = Windows::new(named.filter_map(|phase| Some((phase.start_ns, phase.stop_ns?))));
        if windows.is_empty() { Err(format!("the worker reported no phase `{name}`")) } else { Ok(windows) }
    }

    fn energies(&self, training: &Training, energies: &Energies, put: &mut Put<'_>) {
        let of = |seen: &Seen, figure: fn(&Energy) -> Figure| match seen {
            Ok((_, sum)) => Ok(figure(sum)),
            Err(reason) => Err(reason.clone()),
        };
        put.within("power_mean", of(&energies.training, Figure::watts));
        put.within("power_idle", of(&energies.idle, Figure::watts));
        put.within("energy_total", of(&energies.attempt, Figure::joules));
        let no_time = || "the training has no time".to_owned();
        let computed_s = training.train_s().ok_or_else(no_time);
        let is_stated = put.known("energy").is_some();
        put.within("energy", put.recorded("power_mean").and_then(|power| Ok(power.times(computed_s.clone()?))));
        // The computed energy is over the computed time, even if the worker states another. A stated energy is over the stated time.
        let train_s = if is_stated { put.known("train_time").ok_or_else(no_time) } else { computed_s };
        let energy = put.recorded("energy");
        put.within("energy_net", {
            let idle = || put.recorded("power_idle");
            energy.clone().and_then(|energy| Ok(energy.less(idle()?.times(train_s?))))
        });
        let each = |many: Result<f64, &str>| -> Result<Figure, String> { Ok(energy.clone()?.each(many?)) };
        let (whole, share) = training.whole_epochs(self.steps_of_a_pass());
        let epochs = match training.epochs() {
            0 => Err("the worker reported no epoch"),
            _ if whole == 0 => Err(CUT_SHORT),
            _ => Ok(number(whole) / share),
        };
        put.within("energy_per_epoch", each(epochs));
        let samples = match self.samples_per_step.filter(|samples| *samples > 0) {
            None => Err("the worker did not report the number of samples per step"),
            Some(_) if training.steps() == 0 => Err(training.stepless()),
            Some(batch) => Ok(trained_on(training.steps(), batch, self.samples_of_a_pass)),
        };
        put.within("energy_per_sample", each(samples));
        let delay_s = put.known("train_time").zip(samples.ok()).map(|(train_s, samples)| train_s / samples);
        let edp = put.recorded("energy_per_sample").and_then(|energy| Ok(energy.times(delay_s.ok_or_else(no_time)?)));
        put.within("edp_per_sample", edp);
        // A model whose samples have no tokens has no energy per token.
        if let Some(tokens) = put.known("tokens_per_sample").filter(|tokens| *tokens > 0.0) {
            put.within("energy_per_token", put.recorded("energy_per_sample").map(|energy| energy.each(tokens)));
        }
        let train_s = put.known("train_time").ok_or_else(no_time);
        put.within("edp", energy.and_then(|energy| Ok(energy.times(train_s?))));
    }
}

const CUT_SHORT: &str = "its only epoch was cut short: it ended before a whole pass over the data";

/// A value, and half the width of its interval if that was estimated.
#[derive(Clone, Copy, Debug)]
struct Figure {
    value: f64,
    half_width: Option<f64>,
}

impl Figure {
    fn joules(energy: &Energy) -> Self {
        Self { value: energy.joules, half_width: Some(energy.half_width()) }
    }

    fn watts(energy: &Energy) -> Self {
        Self::joules(energy).each(energy.length_s)
    }

    /// Multiplies the figure by a factor without uncertainty.
    fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, half_width: self.half_width.map(|half_width| half_width * factor.abs()) }
    }

    /// Divides the figure by a number without uncertainty.
    fn each(self, many: f64) -> Self {
        Self { value: self.value / many, half_width: self.half_width.map(|half_width| half_width / many) }
    }

    /// Subtracts an independent figure. A value that a worker states without an interval counts as exact.
    fn less(self, other: Self) -> Self {
        let known = [self.half_width, other.half_width];
        let half_width = known.iter().any(Option::is_some).then(|| quadrature(known.into_iter().flatten()));
        Self { value: self.value - other.value, half_width }
    }
}

/// Adds the energy per answered sample.
fn answering(answers: &[Answers], energies: &[(String, Seen)], put: &mut Put<'_>) {
    let stated = put.known("inference_batch_size");
    for (place, (of_size, (_, seen))) in answers.iter().zip(energies).enumerate() {
        let rows = of_size.rows.map(real).or(stated).filter(|rows| *rows > 0.0);
        let Some(rows) = rows else { continue };
        let answered = rows * number(of_size.spans.len());
        let energy = seen.as_ref().map(|(_, sum)| Figure::joules(sum).each(answered));
        for name in of_size.names(place) {
            put.within(&name("inference_energy"), energy.map_err(Clone::clone));
        }
    }
}

/// Adds the inference times. Those of the first batch size also have the plain names.
fn inference(answers: &[Answers], put: &mut Put<'_>) {
    let stated = put.known("inference_batch_size").filter(|rows| *rows > 0.0);
    for (place, of_size) in answers.iter().enumerate() {
        let lengths = of_size.lengths();
        let Some(median_ns) = median(&lengths) else { continue };
        let few = format!("{} batches were answered, and a 99th percentile needs {PERCENTILE_VALUES}", lengths.len());
        let p99 = nearest_rank(&lengths, 99).filter(|_| lengths.len() >= PERCENTILE_VALUES);
        let rows = of_size.rows.map(real).filter(|rows| *rows > 0.0).or(stated);
        let is_seen = median_ns > 0.0;
        for name in of_size.names(place) {
            put.found(&name("inference_time"), if is_seen { Ok(median_ns / 1e9) } else { Err(AT_ONCE.to_owned()) });
            let each = put.known(&name("inference_time")).zip(rows);
            put.some(&name("inference_sample_time"), each.map(|(batch_s, rows)| batch_s / rows));
            if is_seen {
                put.found(&name("inference_p99"), p99.map(seconds).ok_or_else(|| few.clone()));
            }
        }
    }
    // For a worker that reports no answers but states the time of one.
    let each = put.known("inference_time").zip(stated);
    put.some("inference_sample_time", each.map(|(batch_s, rows)| batch_s / rows));
}

fn of_training(reason: String) -> String {
    format!("{TRAINING} {reason}")
}

/// The worker's share of all processors' time, in percent.
fn cpu_util(hardware: &Hardware<'_>, facts: &Table, windows: &Windows) -> Result<f64, String> {
    let time = hardware.gauge(Source::Host, Quantity::WorkerCpuTime)?;
    let pace = Pace { why: "processor time is read every", ns: time.interval_ns() };
    let resolved = resolve(windows, pace).map_err(of_training)?;
    let growth = time.growth(&resolved.windows);
    if resolved.kept * share(growth.covered_ns, resolved.windows.length()) < COVERED {
        return Err(of_training("has too few samples of the worker's processor time".to_owned()));
    }
    let cores = facts.get("cpu.logical_cores").and_then(Value::as_float).filter(|cores| *cores >= 1.0);
    let cores = cores.ok_or("the number of processors is unknown")?;
    Ok(100.0 * growth.area / seconds(growth.covered_ns) / cores)
}

/// The energy of each device and their sum, or why there is none.
type Seen = Result<(Vec<(Source, Energy)>, Energy), String>;

/// The energies of an attempt.
struct Energies {
    /// The training after its warm-up.
    training: Seen,
    /// The whole attempt.
    attempt: Seen,
    /// The phase `idle`.
    idle: Seen,
    /// The phases `inference` of each batch size, with the name of the metric.
    inference: Vec<(String, Seen)>,
}

impl Energies {
    fn each(&self) -> impl Iterator<Item = (&str, &Seen)> {
        let alone = [("training", &self.training), ("attempt", &self.attempt), ("idle", &self.idle)];
        alone.into_iter().chain(self.inference.iter().map(|(name, seen)| (name.as_str(), seen)))
    }

    fn to_table(&self) -> Table {
        let mut table = Table::new();
        for (name, seen) in self.each() {
            let Ok((devices, sum)) = seen else { continue };
            let mut of: Table =
                devices.iter().map(|(source, energy)| (source.to_string(), energy.to_table().into())).collect();
            of.insert("all".to_owned(), sum.to_table().into());
            table.insert(name.to_owned(), of.into());
        }
        table
    }
}

/// Finds faults of the energies. Returns marks for `telemetry.marks`, and adds a warning for each fault.
fn doubts(energies: &Energies, warnings: &mut Vec<String>) -> BTreeSet<&'static str> {
    let mut marks = BTreeSet::new();
    let mut faulty = BTreeSet::new();
    for (name, seen) in energies.each() {
        for (source, energy) in seen.iter().flat_map(|(devices, _)| devices) {
            if let Some(fault) = energy.fault.filter(|_| faulty.insert(*source)) {
                marks.insert(fault.name());
                let what = match fault {
                    CounterFault::Frozen => "stood still while power was drawn",
                    CounterFault::Backwards => "went backwards",
                };
                let device = device(*source);
                warnings
                    .push(format!("the energy counter of {device} {what}; its power samples were integrated instead"));
            }
            let apart = energy.disagreement().filter(|apart| apart.abs() > DISAGREEMENT);
            if let Some(apart) = apart.filter(|_| energy.length_s >= DISAGREEMENT_SECONDS) {
                marks.insert("disagreement");
                let (device, percent, length_s) = (device(*source), apart * 100.0, energy.length_s);
                warnings.push(format!(
                    "the energy counter of {device} is {percent:+.1}% off its integrated power over {length_s:.0} s ({name})"
                ));
            }
        }
    }
    marks
}

/// Adds metrics, each with the known unit of its name. A metric that the worker stated is not replaced.
struct Put<'a>(&'a mut BTreeMap<String, Metric>);

impl Put<'_> {
    fn metric(&mut self, name: &str, make: impl FnOnce(&'static str) -> Metric) {
        let unit = known_metric(name).map_or("", |known| known.unit);
        self.0.entry(name.to_owned()).or_insert_with(|| make(unit));
    }

    fn value(&mut self, name: &str, value: f64) {
        self.metric(name, |unit| Metric::new(value, unit));
    }

    fn some(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    fn found(&mut self, name: &str, found: Result<f64, String>) {
        self.metric(name, |unit| match found {
            Ok(value) => Metric::new(value, unit),
            Err(reason) => Metric::missing(unit, reason),
        });
    }

    fn within(&mut self, name: &str, found: Result<Figure, String>) {
        self.metric(name, |unit| match found {
            Ok(Figure { value, half_width }) => Metric { uncertainty: half_width, ..Metric::new(value, unit) },
            Err(reason) => Metric::missing(unit, reason),
        });
    }

    /// The recorded metric of that name, stated or computed.
    fn recorded(&self, name: &str) -> Result<Figure, String> {
        let metric = self.0.get(name).ok_or_else(|| format!("there is no `{name}`"))?;
        let reason = || metric.reason.clone().unwrap_or_default();
        Ok(Figure { value: metric.value.ok_or_else(reason)?, half_width: metric.uncertainty })
    }

    fn known(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.value
    }
}

#[cfg(test)]
mod tests;
