//! Event logs and sampled GPU metrics of a whole cluster, as one sealed attempt.
//!
//! Each host is a rank. Each event is a phase whose index is the position of its task in the list of tasks. Each metric
//! of a GPU is a series. Names of hosts, GPUs and tasks are facts of the attempt. Equal rows count once.

mod checkpoints;
mod names;
mod readings;
mod tasks;
#[cfg(test)]
mod tests;

use super::rows::{Faults, ImportError, Source};
use super::{imported_run, nonce_of};
use crate::record::{Attempt, Axis, Nonce, Outcome, Phase, Quantity, Run, Sealed, Series, Table, Tail, Value};
use checkpoints::{Checkpoints, Interval};
use names::{SEPARATOR, Sorted};
use readings::{QUANTITIES, Reading, Readings};
use std::collections::BTreeMap;
use std::path::Path;
use tasks::Tasks;

/// The files of a cluster's telemetry, and its name.
#[derive(Clone, Copy, Debug)]
pub struct ClusterFiles<'a> {
    /// The event log.
    pub checkpoints: &'a Path,
    /// The samples of the GPUs.
    pub gpu: &'a Path,
    /// The levels of tasks.
    pub tasks: Option<&'a Path>,
    /// The name of the experiment.
    pub name: &'a str,
    /// Whether rows that cannot be read are left out and counted; otherwise they are refused.
    pub skip_faulty: bool,
}

/// A cluster's telemetry, ready for import into a ledger.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The run and the attempt.
    pub sealed: Sealed,
    /// The event log, the samples, and the tasks if they were given.
    pub sources: Vec<Source>,
    /// Counts by name: hosts, GPUs, tasks, events, readings, duplicates and missing values.
    pub counts: BTreeMap<&'static str, usize>,
}

/// Reads a cluster's telemetry.
///
/// # Errors
/// If a file cannot be read or lacks a column, or if rows are invalid (with their places).
pub fn read_cluster(files: &ClusterFiles<'_>) -> Result<Cluster, ImportError> {
    let (checkpoints, readings) = std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| checkpoints::read(files.checkpoints));
        let readings = readings::read(files.gpu);
        let checkpoints = checkpoints
            .join()
            .unwrap_or_else(|_| Err(ImportError::Refused(format!("`{}` cannot be read", files.checkpoints.display()))));
        (checkpoints, readings)
    });
    let (mut checkpoints, mut readings) = (checkpoints?, readings?);
    let mut tasks = files.tasks.map(tasks::read).transpose()?;
    let mut faulty = Vec::new();
    for faults in
        [&mut checkpoints.faults, &mut readings.faults].into_iter().chain(tasks.as_mut().map(|tasks| &mut tasks.faults))
    {
        let faults = std::mem::take(faults);
        if files.skip_faulty {
            faulty.push(faults);
        } else {
            faults.check()?;
        }
    }
    if checkpoints.marks.is_empty() {
        return Err(ImportError::Empty(files.checkpoints.to_owned()));
    }
    if readings.readings.is_empty() {
        return Err(ImportError::Empty(files.gpu.to_owned()));
    }
    Ok(seal(files.name, checkpoints, readings, tasks, &faulty))
}

fn seal(name: &str, checkpoints: Checkpoints, readings: Readings, tasks: Option<Tasks>, faulty: &[Faults]) -> Cluster {
    let (intervals, unstarted) = checkpoints::pair(&checkpoints.marks);
    let unstopped = intervals.iter().filter(|interval| interval.stop_ns.is_none()).count();
    let moments = checkpoints.marks.iter().map(|mark| mark.at_ns);
    let moments = moments.chain(readings.readings.iter().map(|reading| reading.at_ns));
    let (first, last) = moments.fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(at), last.max(at)));
    let started_unix_ms = first.div_euclid(1_000_000);
    let clock = Clock { start_ns: started_unix_ms * 1_000_000 };

    let gpu_hosts: Vec<String> = readings.gpus.iter().map(|gpu| readings::parts(gpu).0.to_owned()).collect();
    let hosts = Sorted::new(checkpoints.hosts.iter().chain(&gpu_hosts));
    let gpus = Sorted::new(&readings.gpus);
    let task_names = Sorted::new(&checkpoints.tasks);
    let phases = phases(&checkpoints, &intervals, &hosts, &task_names, clock);
    let series = series(&readings, &gpus, clock);

    let mut counts = BTreeMap::from([
        ("hosts", hosts.texts.len()),
        ("gpus", gpus.texts.len()),
        ("tasks", task_names.texts.len()),
        ("events", phases.len()),
        ("unstarted_events", unstarted),
        ("unstopped_events", unstopped),
        ("readings", readings.readings.len()),
        ("missing_values", readings.missing),
        ("contradicting_readings", readings.contradictions),
        ("duplicate_checkpoints", checkpoints.duplicates),
        ("duplicate_readings", readings.duplicates),
        ("faulty_rows", faulty.iter().map(|faults| faults.count).sum()),
    ]);
    if let Some(tasks) = &tasks {
        counts.insert("duplicate_tasks", tasks.duplicates);
    }
    let mut cluster = cluster_facts(&hosts, &gpus);
    let without_level = task_facts(&mut cluster, &task_names, tasks.as_ref());
    if tasks.is_some() {
        counts.insert("tasks_without_level", without_level);
    }
    let warnings = warnings(&counts, faulty);
    let mut sources = vec![checkpoints.source, readings.source];
    sources.extend(tasks.map(|tasks| tasks.source));

    let config = Table::from([("model.name".to_owned(), name.into())]);
    let run = imported_run(config, Table::from([("import".to_owned(), "telemetry".into())]), None, 0);
    let mut import = Table::from([
        ("kind".to_owned(), "telemetry".into()),
        ("files".to_owned(), Value::List(sources.iter().map(Source::to_value).collect())),
    ]);
    import.extend(counts.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())));
    let attempt = Attempt {
        run: run.id,
        nonce: nonce(&run, &sources),
        started_unix_ms,
        wall_ns: clock.position(last),
        outcome: Outcome::Finished,
        exit: None,
        metrics: BTreeMap::new(),
        digests: BTreeMap::new(),
        settings: Table::from([("experiment.name".to_owned(), name.into())]),
        facts: Table::from([("import".to_owned(), import.into()), ("cluster".to_owned(), cluster.into())]),
        warnings,
        tail: Tail::default(),
        series: series.iter().map(Series::summary).collect(),
        phases: Phase::digest_all(&phases),
    };
    Cluster { sealed: Sealed { run, attempt, series, phases }, sources, counts }
}

/// Converts times to positions in the attempt.
#[derive(Clone, Copy)]
struct Clock {
    start_ns: i64,
}

impl Clock {
    fn position(self, at_ns: i64) -> u64 {
        u64::try_from(at_ns - self.start_ns).unwrap_or(0)
    }
}

/// Returns the nonce of an import. Equal files give the same attempt at any time.
fn nonce(run: &Run, sources: &[Source]) -> Nonce {
    let digests = sources.iter().map(|source| source.digest.0.as_slice());
    let pieces: Vec<&[u8]> = std::iter::once(run.id.0.0.as_slice()).chain(digests).collect();
    nonce_of("ledger telemetry import v1", &pieces)
}

fn phases(
    checkpoints: &Checkpoints,
    intervals: &[Interval],
    hosts: &Sorted,
    tasks: &Sorted,
    clock: Clock,
) -> Vec<Phase> {
    let (hosts, tasks) = (hosts.places(&checkpoints.hosts), tasks.places(&checkpoints.tasks));
    let place =
        |places: &[u32], code: u32| usize::try_from(code).ok().and_then(|code| places.get(code)).copied().unwrap_or(0);
    let event = |code: u32| usize::try_from(code).ok().and_then(|code| checkpoints.events.get(code));
    let mut phases: Vec<Phase> = intervals
        .iter()
        .map(|interval| Phase {
            name: event(interval.event).cloned().unwrap_or_default(),
            index: place(&tasks, interval.task).into(),
            rank: place(&hosts, interval.host),
            start_ns: clock.position(interval.start_ns),
            stop_ns: interval.stop_ns.map(|stop_ns| clock.position(stop_ns)),
        })
        .collect();
    phases.sort_unstable_by(|a, b| {
        let key = |phase: &Phase| (phase.start_ns, phase.rank, phase.index, phase.stop_ns);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    phases
}

fn series(readings: &Readings, gpus: &Sorted, clock: Clock) -> Vec<Series> {
    let places = gpus.places(&readings.gpus);
    let mut of_gpus: Vec<(u32, &[Reading])> = readings
        .readings
        .chunk_by(|a, b| a.gpu == b.gpu)
        .map(|of_gpu| {
            let code = of_gpu.first().and_then(|reading| usize::try_from(reading.gpu).ok());
            (code.and_then(|code| places.get(code)).copied().unwrap_or(0), of_gpu)
        })
        .collect();
    of_gpus.sort_unstable_by_key(|(place, _)| *place);
    let mut all = Vec::with_capacity(of_gpus.len() * QUANTITIES.len());
    for (place, of_gpu) in of_gpus {
        for (column, (_, quantity)) in QUANTITIES.iter().enumerate() {
            all.extend(one_series(place, *quantity, of_gpu, column, clock));
        }
    }
    // In the order of a record.
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Returns a metric's series of a GPU. Returns `None` if it was never sampled.
fn one_series(gpu: u32, quantity: Quantity, readings: &[Reading], column: usize, clock: Clock) -> Option<Series> {
    let name = crate::record::Source::Gpu(gpu).series(quantity);
    let mut series = Series::new(name, quantity.unit(), Axis::TimeNs);
    let present = readings.iter().filter(|reading| !reading.values[column].is_nan());
    present.for_each(|reading| series.push(clock.position(reading.at_ns), reading.values[column]));
    (!series.values.is_empty()).then_some(series)
}

/// Returns the names of hosts by rank, and of GPUs by number.
fn cluster_facts(hosts: &Sorted, gpus: &Sorted) -> Table {
    let parts: Vec<(&str, &str, &str)> = gpus.texts.iter().map(|gpu| readings::parts(gpu)).collect();
    let list = |part: fn(&(&str, &str, &str)) -> String| Value::from(parts.iter().map(part).collect::<Vec<_>>());
    let gpu_hosts: Vec<Value> = parts.iter().map(|(host, ..)| hosts.place(&(*host).to_owned()).into()).collect();
    Table::from([
        ("hosts".to_owned(), hosts.texts.clone().into()),
        ("gpu_hosts".to_owned(), Value::List(gpu_hosts)),
        ("gpu_serials".to_owned(), list(|(_, serial, _)| (*serial).to_owned())),
        ("gpu_uuids".to_owned(), list(|(.., uuid)| (*uuid).to_owned())),
    ])
}

/// Adds the names of tasks by index, with their jobs and levels. Returns the number of tasks without a level.
fn task_facts(facts: &mut Table, names: &Sorted, tasks: Option<&Tasks>) -> usize {
    let parts = |name: &str| {
        name.split_once(SEPARATOR).map(|(job, task)| (job.to_owned(), task.to_owned())).unwrap_or_default()
    };
    let (of_job, ids): (Vec<String>, Vec<String>) = names.texts.iter().map(|name| parts(name)).unzip();
    let jobs = Sorted::new(&of_job);
    let mut without = 0;
    if let Some(tasks) = tasks {
        let levels = of_job.iter().zip(&ids).map(|(job, task)| {
            let level = tasks.level(job, task);
            without += usize::from(level.is_none());
            level.unwrap_or_default().to_owned()
        });
        facts.insert("task_levels".to_owned(), levels.collect::<Vec<_>>().into());
    }
    facts.insert("task_jobs".to_owned(), jobs.places(&of_job).into());
    facts.insert("jobs".to_owned(), jobs.texts.into());
    facts.insert("tasks".to_owned(), ids.into());
    without
}

/// Returns the warnings that a reader of the results needs.
fn warnings(counts: &BTreeMap<&'static str, usize>, faulty: &[Faults]) -> Vec<String> {
    let told = [
        ("duplicate_checkpoints", "rows of the event log stand in it more than once, and count once"),
        ("duplicate_readings", "rows of the samples stand in them more than once, and count once"),
        ("contradicting_readings", "readings of one GPU at one moment differ"),
        ("missing_values", "values of the samples are missing"),
        ("unstarted_events", "stops of events have no start, and are left out"),
        ("unstopped_events", "starts of events have no stop, and are in no mean"),
        ("tasks_without_level", "tasks have no level"),
    ];
    let some = told.iter().filter_map(|(name, text)| {
        let count = counts.get(name).copied().filter(|count| *count > 0)?;
        Some(format!("{count} {text}"))
    });
    let faulty = faulty.iter().filter_map(|faults| {
        let first = faults.first()?;
        Some(format!("{} rows cannot be read, and are left out (the first is {first})", faults.count))
    });
    some.chain(faulty).collect()
}
