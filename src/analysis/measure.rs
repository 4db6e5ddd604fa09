//! The metrics that follow from what every worker says, its steps, its phases and its end, and from what the hardware did meanwhile.
//!
//! Knows by which rule each is made; `docs/metrics.md` is the long form. Must not know how anything was read.

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

/// Estimators that differ by more are worth a warning, over windows that are long enough for both.
const DISAGREEMENT: f64 = 0.05;
const DISAGREEMENT_SECONDS: f64 = 10.0;
/// What energies come from.
const MEASURED: [Quantity; 3] = [Quantity::PowerInstant, Quantity::PowerAverage, Quantity::Energy];
/// How reasons name it.
const TRAINING: &str = "the training";
/// Why answers have no time.
const AT_ONCE: &str =
    "the lines of most answers were read from their start to their stop at once (flush each line, or state `t_ns`)";
/// A 99th percentile needs so many values.
const PERCENTILE_VALUES: usize = 100;

/// What the metrics are computed from.
#[derive(Debug, Default)]
pub struct Observed {
    /// Training steps of rank 0 in order.
    pub steps: Steps,
    /// Phases by start, the steps among them.
    pub phases: Vec<Phase>,
    /// What the tests have read of the hardware.
    #[cfg(test)]
    pub(super) telemetry: BTreeMap<String, crate::record::Series>,
    /// How often each device was to be read, in times a second.
    pub telemetry_hz: Option<f64>,
    /// How many GPUs the run uses.
    pub gpus: u32,
    /// Samples a step, if the worker said so.
    pub samples_per_step: Option<u64>,
    /// Samples of a pass over the data, if its last step is known to take what is left.
    pub samples_of_a_pass: Option<i64>,
    /// The last value of `loss` over the steps.
    pub last_loss: Option<f64>,
    /// From the worker's start to its end.
    pub wall_ns: u64,
    /// Processor time of the worker, if it could be read.
    pub cpu_ns: Option<u64>,
    /// Whether somebody saw the end.
    pub ended: bool,
    /// What the cell asks of the hardware and of the measurement.
    pub bounds: Bounds,
}

impl Observed {
    /// Fills in every metric that the worker did not state itself and that follows from what was seen, notes beside the attempt's
    /// other facts by what rule it was measured, and warns of what a reader of the numbers must know.
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
        exchanged(&exchanges, &mut put);
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

    /// Whether the first rank answers alone, as it does where ranks share their gradients. The built-in trainer says what its ranks do; its phases do not, since a short run has no
    /// step that is looked into. Of a program the phases tell.
    fn first_answers_alone(&self, shares: bool, facts: &Table) -> bool {
        let several = facts.get("worker.ranks").and_then(Value::as_int).is_some_and(|ranks| ranks > 1);
        // Any program may call something `ranks`.
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
        // Why there is none is told where somebody may look for it.
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
        // From here on the worker may have stated what others follow from.
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

    /// How long each phase of this name took.
    fn lengths(&self, name: &str) -> Vec<u64> {
        let named = self.phases.iter().filter(|phase| phase.name == name && phase.rank == 0);
        named.filter_map(|phase| Some(phase.stop_ns?.saturating_sub(phase.start_ns))).collect()
    }

    /// What the hardware's gauges showed while the worker trained, and the most memory that was taken. Returns what each GPU showed.
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

    /// The times in which a device was not read, as a word for `telemetry.marks`; each is also warned of.
    fn silences(
        &self,
        hardware: &Hardware<'_>,
        meters: &[(Source, Meter)],
        facts: &Table,
        warnings: &mut Vec<String>,
    ) -> BTreeSet<&'static str> {
        let mut marks = BTreeSet::new();
        for (source, meter) in meters {
            // Power and counter are read in one look, and a look that failed is one gap.
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

    /// How many steps a pass over the data has, where that is known.
    fn steps_of_a_pass(&self) -> Option<u64> {
        let of_a_pass = u64::try_from(self.samples_of_a_pass?).ok()?;
        self.samples_per_step.filter(|batch| *batch > 0).map(|batch| of_a_pass.div_ceil(batch))
    }

    /// When the phases of a name were, as the worker said.
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
        // Our energy is of the time that we found, whatever the worker says of that; its own energy is of its own time.
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
        // A model whose samples have no tokens has no energy of one.
        if let Some(tokens) = put.known("tokens_per_sample").filter(|tokens| *tokens > 0.0) {
            put.within("energy_per_token", put.recorded("energy_per_sample").map(|energy| energy.each(tokens)));
        }
        let train_s = put.known("train_time").ok_or_else(no_time);
        put.within("edp", energy.and_then(|energy| Ok(energy.times(train_s?))));
    }
}

const CUT_SHORT: &str = "its only epoch was cut short: it ended before a whole pass over the data";

/// A value, and half the width of its interval where that was estimated.
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

    /// A multiple of it; a time that it is multiplied by has no interval.
    fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, half_width: self.half_width.map(|half_width| half_width * factor.abs()) }
    }

    /// What of it each of so many has.
    fn each(self, many: f64) -> Self {
        Self { value: self.value / many, half_width: self.half_width.map(|half_width| half_width / many) }
    }

    /// The difference of two that are independent; what a worker states without an interval is taken to be right.
    fn less(self, other: Self) -> Self {
        let known = [self.half_width, other.half_width];
        let half_width = known.iter().any(Option::is_some).then(|| quadrature(known.into_iter().flatten()));
        Self { value: self.value - other.value, half_width }
    }
}

/// The energy of an answered sample.
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

/// What it took the ranks to share their gradients.
fn exchanged(exchanges: &Exchanges, put: &mut Put<'_>) {
    put.some("all_reduce_time", exchanges.time_s());
    put.some("all_reduce_exposed", exchanges.exposed_s());
    put.some("straggler_spread", exchanges.spread_s());
}

/// How fast answers came. Those of the first size have the plain names too.
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
    // Of a worker that tells of no answer, and states what one took.
    let each = put.known("inference_time").zip(stated);
    put.some("inference_sample_time", each.map(|(batch_s, rows)| batch_s / rows));
}

fn of_training(reason: String) -> String {
    format!("{TRAINING} {reason}")
}

/// The share of all processors' time that the worker had.
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

/// The energy of each device and of all, or why there is none.
type Seen = Result<(Vec<(Source, Energy)>, Energy), String>;

/// The energies of an attempt.
struct Energies {
    /// Of the training after its warm-up.
    training: Seen,
    /// From start to end.
    attempt: Seen,
    /// Of the phase `idle`.
    idle: Seen,
    /// Of the phases `inference`, for each size of a batch.
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

/// What is wrong with the energies, in words for `telemetry.marks`; each is also warned of.
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

/// Where metrics go: each with the unit that is known of its name, and none over one that the worker stated.
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

    /// What is recorded by that name, whoever said it.
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
