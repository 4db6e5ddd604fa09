//! `ledger correlate`

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::say;
use super::selection::{Selected, Selection};
use crate::analysis::{self, Beside, Correlation, Curve, PhaseRow, Trial};
use crate::record::{self, Attempt, AttemptId, Digest, MetricKind, RunId, Sealed, Unit, Value, Why, known_metric};
use crate::report::{self, Correlated, LabelledPoint};
use crate::store::{Reader, StoreError};
use std::collections::BTreeMap;

/// Correlate two quantities over runs, GPUs or phases
///
/// By run, X and Y are fields or metrics, averaged over the attempts of each run. By phase there are also time,
/// mean, median, count, share, power, energy and utilization of each phase name of each attempt. By gpu there are
/// also the samples of each GPU (`power_instant`, `temperature` and so on), averaged over its attempts. The name of
/// an event or a phase means its mean time: by phase on the same rank, by gpu beside that GPU.
///
/// Phases of one attempt depend on each other. So intervals and P by phase take the attempt as the independent unit,
/// or the host of imported cluster telemetry.
///
/// With --split auto, the points are divided into two clusters if there is strong evidence for them. This shows
/// whether a correlation comes only from the difference between two groups.
///
/// Example: ledger correlate power_instant TotalRender --by gpu
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A field, a metric, or a quantity of phases or GPUs
    x: String,

    /// The other field, metric or quantity
    y: String,

    /// Take only the attempts of this model
    #[arg(long, value_name = "M")]
    model: Option<String>,

    #[command(flatten)]
    selection: Selection,

    /// What each point is
    #[arg(long, value_name = "WHAT", default_value = "run", value_parser = ["run", "gpu", "phase"])]
    by: String,

    /// GPU samples to use: all of the attempt, or only those within events
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = ["all", "in-events"])]
    readings: String,

    /// The events of `--readings in-events` [default: X or Y if that is an event, else the events that take the
    /// most time]
    #[arg(long, value_name = "NAME")]
    event: Option<String>,

    /// Divide the points into two clusters if there is strong evidence for them
    #[arg(long, value_name = "HOW", value_parser = ["auto"])]
    split: Option<String>,
}

/// The quantities of each phase, with their units.
const OF_PHASES: [(&str, &str); 8] = [
    ("time", "s"),
    ("mean", "s"),
    ("median", "s"),
    ("count", ""),
    ("share", ""),
    ("power", "W"),
    ("energy", "J"),
    ("utilization", "%"),
];

/// Points of one attempt depend on each other; in an imported cluster, points of one host do.
type Cluster = (AttemptId, Option<u32>);

/// The cluster that all values of a point come from, if it is only one, and the point's label.
type PointKey = (Option<Cluster>, String);

/// Points by key, with the values of both quantities.
#[derive(Default)]
struct Points {
    values: BTreeMap<PointKey, (Vec<f64>, Vec<f64>)>,
    /// Digests of the results of runs with a seed, and the first run with each.
    computed: BTreeMap<Digest, RunId>,
    /// How many runs computed the same results as an earlier one.
    copies: usize,
}

impl Points {
    fn add(&mut self, of: PointKey, x: Option<f64>, y: Option<f64>) {
        let (xs, ys) = self.values.entry(of).or_default();
        xs.extend(x.filter(|value| value.is_finite()));
        ys.extend(y.filter(|value| value.is_finite()));
    }

    /// Returns the means of the points that have both quantities, and the number of points that have not.
    fn finish(self) -> (Vec<LabelledPoint>, usize) {
        let all = self.values.len();
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| record::mean(&values));
        let mut units: BTreeMap<Cluster, usize> = BTreeMap::new();
        let mut points: Vec<LabelledPoint> = Vec::new();
        for ((unit, label), (x, y)) in self.values {
            let (Some(x), Some(y)) = (mean(x), mean(y)) else { continue };
            let next = points.len();
            let unit = unit.map_or(next, |unit| *units.entry(unit).or_insert(next));
            points.push(LabelledPoint { label, x, y, unit });
        }
        let incomplete = all - points.len();
        (points, incomplete)
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mut selected = args.selection.select(context, args.model.as_deref())?;
    // Points of several models are in one plot.
    analysis::unify(&mut selected.trials);
    let counting: Vec<&Trial> =
        selected.trials.iter().filter(|trial| trial.counts(&selected.admitted).is_ok()).collect();
    if counting.is_empty() {
        return Err(Failure::new(exit::NO, "no finished attempt matches (`ledger ls` lists attempts)"));
    }
    let quantities = match args.by.as_str() {
        "phase" => OF_PHASES.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned())).collect(),
        "gpu" => of_gpus(&counting),
        _ => BTreeMap::new(),
    };
    let asked = Asked::of(args, &counting, &selected, context)?;
    let named = |text: &String| name(args, text, &quantities, &asked.events, &selected);
    let (x, y) = (named(&args.x)?, named(&args.y)?);
    let points = context.store_as_it_is().read(|reader| points(reader, &asked, &counting, (&x.0, &y.0), &selected))?;
    if points.copies > 0 {
        let runs = report::count(points.copies, "attempt");
        say(&format!("note: {runs} computed the same as another run with the same seed, and do not count again"));
    }
    let (points, incomplete) = points.finish();
    let plain: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
    let units: Vec<usize> = points.iter().map(|point| point.unit).collect();
    let Some(correlation) = Correlation::of_clusters(&plain, &units) else {
        let is_text = |name: &&String| counting.iter().any(|trial| matches!(trial.field(name), Some(Value::Str(_))));
        if let Some(name) = [&x.0, &y.0].into_iter().find(is_text) {
            let text =
                format!("`{name}` is text, and a correlation needs numbers (`ledger effects` compares its values)");
            return Err(Failure::new(exit::USAGE, text));
        }
        let text = format!(
            "{} with both, and both have to vary ({incomplete} without a finite `{}` or `{}`)",
            report::count(points.len(), &args.by),
            x.0,
            y.0
        );
        return Err(Failure::new(exit::NO, text));
    };
    let split = args.split.is_some().then(|| analysis::split(&plain));
    let within = asked.event.clone().filter(|_| asked.is_within);
    let is_cluster = counting.iter().all(|trial| trial.attempt.facts.contains_key(CLUSTER));
    let unit = if is_cluster { "host" } else { "attempt" };
    let found = Correlated { x, y, by: args.by.clone(), unit, points, incomplete, within, correlation, split };
    context.answer(|| report::correlate_text(&found), || report::correlate_value(&found))?;
    let mut differing = analysis::differing_among(&counting, &selected.names);
    differing.retain(|field| ![&found.x.0, &found.y.0].contains(&field));
    if !differing.is_empty() {
        let fields = report::listed_fields(&differing);
        let text = "these may explain the correlation (`--where` selects attempts)";
        say(&format!("note: the attempts also differ in {fields}; {text}"));
    }
    Ok(exit::YES)
}

/// The fact that marks imported telemetry of a cluster.
const CLUSTER: &str = "cluster";

/// The query that is applied to each attempt.
struct Asked<'a> {
    by: &'a str,
    /// The names of events that are X or Y.
    events: Vec<&'a str>,
    /// Whether only samples within events count.
    is_within: bool,
    /// The events that the samples have to be within.
    event: Option<String>,
}

impl<'a> Asked<'a> {
    fn of(args: &'a Args, trials: &[&Trial], selected: &Selected, context: &Context) -> Result<Self, Failure> {
        let is_within = args.readings == "in-events";
        if args.by != "gpu" && (is_within || args.event.is_some()) {
            return Err(Failure::new(exit::USAGE, "--readings and --event need --by gpu"));
        }
        if args.event.is_some() && !is_within {
            return Err(Failure::new(exit::USAGE, "--event selects events for the samples (add --readings in-events)"));
        }
        let is_field = |name: &str| selected.names.tiers().iter().any(|names| names.contains(name));
        let free: Vec<&str> =
            [&args.x, &args.y].into_iter().map(String::as_str).filter(|name| !is_field(name)).collect();
        let mut asked = Self { by: &args.by, events: Vec::new(), is_within, event: args.event.clone() };
        if args.by == "run" || free.is_empty() && !is_within {
            return Ok(asked);
        }
        let mut lengths: BTreeMap<String, u64> = BTreeMap::new();
        context.store_as_it_is().read(|reader| {
            for trial in trials {
                for phase in reader.phases(trial.id)? {
                    let length = phase.stop_ns.map_or(0, |stop_ns| stop_ns.saturating_sub(phase.start_ns));
                    let total = lengths.entry(phase.name).or_default();
                    *total = total.saturating_add(length);
                }
            }
            Ok(())
        })?;
        if let Some(event) = asked.event.as_ref().filter(|event| !lengths.contains_key(*event)) {
            let there: Vec<&str> = lengths.keys().map(String::as_str).collect();
            let text = format!("--event: no event is called `{event}` (there are: {})", there.join(", "));
            return Err(Failure::new(exit::USAGE, text));
        }
        asked.events = free.into_iter().filter(|name| lengths.contains_key(*name)).collect();
        let longest = || lengths.iter().max_by_key(|(_, total)| **total).map(|(name, _)| name.clone());
        asked.event = asked.event.or_else(|| asked.events.first().map(|name| (*name).to_owned())).or_else(longest);
        Ok(asked)
    }

    fn is_event(&self, name: &str) -> bool {
        self.events.contains(&name)
    }
}

/// Returns the quantities that were sampled of any GPU, with their units. The mean of a counter is that of its rate.
fn of_gpus(trials: &[&Trial]) -> BTreeMap<String, String> {
    let series = trials.iter().flat_map(|trial| &trial.attempt.series);
    let of_gpu = |name: &str| Some(name.strip_prefix("gpu.")?.split_once('.')?.1.to_owned());
    series
        .filter_map(|series| {
            let quantity = analysis::quantity(&series.name)?;
            let unit = match analysis::Kind::of(&series.name) {
                analysis::Kind::Level => quantity.unit().to_owned(),
                analysis::Kind::Counter => format!("{}/s", quantity.unit()),
                analysis::Kind::Flags => "share of the time".to_owned(),
            };
            Some((of_gpu(&series.name)?, unit))
        })
        .collect()
}

/// Returns the full name of a quantity, and its unit.
fn name(
    args: &Args,
    text: &str,
    quantities: &BTreeMap<String, String>,
    events: &[&str],
    selected: &Selected,
) -> Result<(String, String), Failure> {
    if let Some(unit) = quantities.get(text) {
        return Ok((text.to_owned(), unit.clone()));
    }
    if events.contains(&text) {
        return Ok((text.to_owned(), "s".to_owned()));
    }
    let full = selected.full_name(text, "correlate").map_err(|error| {
        let also: Vec<&str> = quantities.keys().map(String::as_str).collect();
        if also.is_empty() {
            error
        } else {
            error.with_hint(&format!("by {} also: {}, and the names of events", args.by, also.join(", ")))
        }
    })?;
    let is_metric = known_metric(&full).is_some() || selected.names.metrics.contains(&full);
    let unit = if is_metric { selected.unit(&full) } else { String::new() };
    Ok((full, unit))
}

fn points(
    reader: &Reader<'_>,
    asked: &Asked<'_>,
    trials: &[&Trial],
    (x, y): (&str, &str),
    selected: &Selected,
) -> Result<Points, StoreError> {
    let mut points = Points::default();
    let outcomes = |trial: &Trial| {
        let all = trial.attempt.metrics.iter();
        let all = all.filter(|(name, _)| trial.attempt.metric_kind(name) == MetricKind::Outcome);
        all.map(|(name, metric)| (name.clone(), metric.value.map(f64::to_bits))).collect::<BTreeMap<_, _>>()
    };
    let of_outcome = trials.iter().any(|trial| {
        let all = outcomes(trial);
        all.contains_key(x) || all.contains_key(y)
    });
    for trial in trials {
        let plain = |name: &str| match trial.attempt.metrics.get(name) {
            Some(_) => trial.measured(name, &selected.admitted).ok(),
            None => trial.field(name).as_ref().and_then(Value::as_float),
        };
        if asked.by == "run" {
            let (of_x, of_y) = (plain(x), plain(y));
            let one = analysis::Asked::replicate(*trial);
            // For one seed, outcomes that agree to the last bit at the same place are copies of one point.
            let bits = [of_x, of_y].map(|value| value.map(f64::to_bits));
            let computed = Digest::of(format!("{} {bits:?} {:?}", one.seed, outcomes(trial)).as_bytes());
            let first = *points.computed.entry(computed).or_insert(trial.run.id);
            if of_outcome && one.is_seeded() && first != trial.run.id {
                points.copies += 1;
            } else {
                points.add((None, trial.run.id.0.prefix(12)), of_x, of_y);
            }
            continue;
        }
        let Some(sealed) = reader.readable_sealed(trial.id)? else { continue };
        let believed = Believed::of(&trial.attempt, selected.admitted.contains(&Why::Tainted));
        // Indexed by event, computed once for all GPUs.
        let lengths: BTreeMap<&str, Beside<'_>> =
            asked.events.iter().map(|event| (*event, Beside::new(&sealed, Some(event)))).collect();
        let length = |name: &str, of: &dyn Fn(&Beside<'_>) -> Option<f64>| {
            lengths.get(name).filter(|_| asked.is_event(name)).map(|beside| of(beside).filter(|_| believed.measured))
        };
        if asked.by == "phase" {
            for row in analysis::join(&sealed, &sealed.series) {
                let of = |name: &str| {
                    let found = of_phase(&row, name, believed)
                        .or_else(|| length(name, &|beside| beside.length_of_rank_s(row.rank)));
                    found.unwrap_or_else(|| plain(name))
                };
                let gpu = row.gpu.map_or_else(String::new, |gpu| format!(" gpu {gpu}"));
                let label = format!("{} {} rank {}{gpu}", trial.id.0.prefix(12), row.name, row.rank);
                let host = sealed.attempt.facts.contains_key(CLUSTER).then_some(row.rank);
                points.add((Some((trial.id, host)), label), of(x), of(y));
            }
            continue;
        }
        let beside = Beside::new(&sealed, asked.event.as_deref());
        let within = asked.is_within.then_some(&beside);
        for (rank, label) in gpus(&sealed) {
            let of = |name: &str| {
                let found = of_gpu(&sealed, rank, name, believed, within)
                    .or_else(|| length(name, &|beside| beside.length_s(rank)));
                found.unwrap_or_else(|| plain(name))
            };
            points.add((None, beside.name_of(rank).unwrap_or(label)), of(x), of(y));
        }
    }
    Ok(points)
}

/// The validity of an attempt's measurements.
#[derive(Clone, Copy)]
struct Believed {
    /// All that was measured while it ran.
    measured: bool,
    /// Power and energy.
    energies: bool,
}

impl Believed {
    /// Returns the valid measurements. With `all`, invalid measurements count too.
    fn of(attempt: &Attempt, all: bool) -> Self {
        Self { measured: all || attempt.disturbances().is_empty(), energies: all || attempt.believes_energies() }
    }
}

/// Returns a quantity of a phase, if it is valid. Returns `None` if no quantity has that name.
fn of_phase(row: &PhaseRow, name: &str, believed: Believed) -> Option<Option<f64>> {
    Some(match name {
        "count" => u32::try_from(row.count).ok().map(f64::from),
        "time" | "mean" | "median" | "share" | "utilization" if !believed.measured => None,
        "power" | "energy" if !believed.energies => None,
        "time" => Some(row.total_s),
        "mean" => u32::try_from(row.count).ok().map(|count| row.total_s / f64::from(count)),
        "median" => Some(row.median_s),
        "share" => Some(row.share),
        "power" => row.energy.as_ref().ok().map(|energy| energy.joules / row.total_s),
        "energy" => row.energy.as_ref().ok().map(|energy| energy.joules),
        "utilization" => row.utilization.as_ref().ok().copied(),
        _ => return None,
    })
}

/// Returns the GPUs of an attempt: their ranks, and a label that identifies each GPU across attempts.
fn gpus(sealed: &Sealed) -> Vec<(u32, String)> {
    let rank = |name: &str| name.strip_prefix("gpu.")?.split_once('.')?.0.parse::<u32>().ok();
    let mut ranks: Vec<u32> = sealed.series.iter().filter_map(|series| rank(&series.name)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let label = |rank: u32| {
        let uuid = sealed.attempt.facts.get(&format!("gpu.{rank}.uuid")).and_then(Value::as_str).map(str::to_owned);
        uuid.unwrap_or_else(|| format!("{} gpu {rank}", sealed.attempt.id().0.prefix(12)))
    };
    ranks.into_iter().map(|rank| (rank, label(rank))).collect()
}

/// Returns the mean of a GPU's series, over all samples or those within events, if it is valid. Returns `None` if there
/// is no series of that name.
fn of_gpu(
    sealed: &Sealed,
    rank: u32,
    name: &str,
    believed: Believed,
    within: Option<&Beside<'_>>,
) -> Option<Option<f64>> {
    let full = format!("gpu.{rank}.{name}");
    let series = sealed.series.iter().find(|series| series.name == full)?;
    let is_of_energy = Unit::named(&series.unit).is_some_and(Unit::is_of_energy);
    let counts = believed.measured && (believed.energies || !is_of_energy);
    // The mean of a counter is that of its rate; the mean of flags is their share of the time.
    let mean = || match within {
        Some(beside) => beside.reading(rank, series),
        None => analysis::mean_of_all(series).or_else(|| Curve::of(series).mean()),
    };
    Some(if counts { mean() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Energy, Method, Uncertainty};
    use crate::record::{Axis, Parts, Run, Series};

    #[test]
    fn repetitions_with_one_value_do_not_vary() {
        let mut points = Points::default();
        for run in 1..20u8 {
            (0..run).for_each(|_| points.add((None, format!("run {run}")), Some(0.1), Some(f64::from(run))));
        }
        points.add((None, "incomplete".to_owned()), Some(1.0), Some(f64::NAN));
        let (points, incomplete) = points.finish();
        assert_eq!((points.len(), incomplete), (19, 1));
        assert!(points.iter().all(|point| point.x.to_bits() == 0.1f64.to_bits()));
        let plain: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(Correlation::of(&plain), None, "nothing but rounding goes along");
    }

    /// An attempt that has this fact.
    fn sealed(fact: Option<(&str, Value)>) -> Sealed {
        let run = Run::new(Parts::sample());
        let mut power = Series::new("gpu.0.power_instant", "W", Axis::TimeNs);
        let mut warm = Series::new("gpu.0.temperature", "degC", Axis::TimeNs);
        (0..3).for_each(|second| {
            power.push(second * 1_000_000_000, 300.0);
            warm.push(second * 1_000_000_000, 60.0);
        });
        let attempt = Attempt {
            run: run.id,
            wall_ns: 2_000_000_000,
            facts: fact.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Attempt::sample()
        };
        Sealed { run, attempt, series: vec![power, warm], phases: Vec::new() }
    }

    #[test]
    fn invalid_measurements_are_left_out() {
        let energy = Energy {
            joules: 6.0,
            length_s: 2.0,
            method: Method::PowerInstant,
            counter: None,
            integrated: Some(6.0),
            fault: None,
            coverage: 1.0,
            readings: 3,
            uncertainty: Uncertainty::default(),
            calibration: None,
        };
        let row = PhaseRow {
            name: "epoch".to_owned(),
            rank: 0,
            gpu: None,
            count: 1,
            total_s: 2.0,
            median_s: 2.0,
            share: 1.0,
            energy: Ok(energy),
            utilization: Err("not read".to_owned()),
            counters: Vec::new(),
            samples: None,
        };
        let all = |sealed: &Sealed, all: bool| {
            let believed = Believed::of(&sealed.attempt, all);
            let names = ["power", "energy", "time", "median", "mean", "share", "count", "loss"];
            let of_phase = names.map(|name| of_phase(&row, name, believed));
            let of_gpu = ["power_instant", "temperature", "loss"].map(|name| of_gpu(sealed, 0, name, believed, None));
            (of_phase, of_gpu)
        };
        let (two, one, none) = (Some(Some(2.0)), Some(Some(1.0)), Some(None));
        let whole = (
            [Some(Some(3.0)), Some(Some(6.0)), two, two, two, one, one, None],
            [Some(Some(300.0)), Some(Some(60.0)), None],
        );
        let disagrees = sealed(Some(("telemetry.marks", vec!["disagreement"].into())));
        let disturbed = sealed(Some(("validity.reasons", vec!["throttled"].into())));
        assert_eq!(all(&sealed(None), false), whole);
        assert_eq!(
            all(&disagrees, false),
            ([none, none, two, two, two, one, one, None], [none, Some(Some(60.0)), None])
        );
        assert_eq!(all(&disturbed, false), ([none, none, none, none, none, none, one, None], [none, none, None]));
        assert_eq!(all(&disagrees, true), whole);
        assert_eq!(all(&disturbed, true), whole);
    }
}
