//! `ledger correlate`

use super::context::Context;
use super::failure::{Failure, exit};
use super::selection::{Selected, Selection};
use crate::analysis::{self, Correlation, Curve, PhaseRow, Trial};
use crate::record::{self, Attempt, Sealed, Unit, Value, Why, known_metric};
use crate::report::{self, Correlated, LabelledPoint};
use crate::store::{Reader, StoreError};
use std::collections::BTreeMap;

/// Say how two quantities go together: over runs, GPUs or phases
///
/// By run, X and Y are fields or metrics, the mean over the attempts of each run. By phase there are also time, median, count, share, power,
/// energy and utilization of each kind of phase of each attempt; by gpu also what was read of each card: power_instant, temperature and so on, the
/// mean over its attempts. With --split auto the points are parted into two clusters where there is strong reason, so that a correlation that
/// only the difference of two groups makes is seen for what it is.
///
/// Example: ledger correlate temperature power_instant --by gpu --split auto
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A field, a metric, or a quantity of phases or GPUs
    x: String,

    /// Another one
    y: String,

    /// Take only the attempts of this model
    #[arg(long, value_name = "M")]
    model: Option<String>,

    #[command(flatten)]
    selection: Selection,

    /// What a point stands for
    #[arg(long, value_name = "WHAT", default_value = "run", value_parser = ["run", "gpu", "phase"])]
    by: String,

    /// Part the points into two clusters where there is strong reason
    #[arg(long, value_name = "HOW", value_parser = ["auto"])]
    split: Option<String>,
}

/// What there is of each phase, with its unit.
const OF_PHASES: [(&str, &str); 7] = [
    ("time", "s"),
    ("median", "s"),
    ("count", ""),
    ("share", ""),
    ("power", "W"),
    ("energy", "J"),
    ("utilization", "%"),
];

/// Points by what they stand for: the values of either quantity.
#[derive(Default)]
struct Points {
    values: BTreeMap<String, (Vec<f64>, Vec<f64>)>,
}

impl Points {
    fn add(&mut self, label: String, x: Option<f64>, y: Option<f64>) {
        let (xs, ys) = self.values.entry(label).or_default();
        xs.extend(x.filter(|value| value.is_finite()));
        ys.extend(y.filter(|value| value.is_finite()));
    }

    /// The means of the points that have both, and how many have not.
    fn finish(self) -> (Vec<LabelledPoint>, usize) {
        let all = self.values.len();
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| record::mean(&values));
        let whole = |(label, (x, y))| Some(LabelledPoint { label, x: mean(x)?, y: mean(y)? });
        let points: Vec<LabelledPoint> = self.values.into_iter().filter_map(whole).collect();
        let incomplete = all - points.len();
        (points, incomplete)
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mut selected = args.selection.select(context, args.model.as_deref())?;
    // Points of several models are in one picture.
    analysis::unify(&mut selected.trials);
    let counting: Vec<&Trial> =
        selected.trials.iter().filter(|trial| trial.counts(&selected.admitted).is_ok()).collect();
    if counting.is_empty() {
        return Err(Failure::new(exit::NO, "no finished attempt matches (`ledger ls` lists what there is)"));
    }
    let quantities = match args.by.as_str() {
        "phase" => OF_PHASES.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned())).collect(),
        "gpu" => of_gpus(&counting),
        _ => BTreeMap::new(),
    };
    let (x, y) = (name(args, &args.x, &quantities, &selected)?, name(args, &args.y, &quantities, &selected)?);
    let points = context.store_as_it_is().read(|reader| points(reader, args, &counting, (&x.0, &y.0), &selected))?;
    let (points, incomplete) = points.finish();
    let plain: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
    let Some(correlation) = Correlation::of(&plain) else {
        let text = format!(
            "{} with both, and both have to vary ({incomplete} without a finite `{}` or `{}`)",
            report::count(points.len(), &args.by),
            x.0,
            y.0
        );
        return Err(Failure::new(exit::NO, text));
    };
    let split = args.split.is_some().then(|| analysis::split(&plain));
    let found = Correlated { x, y, by: args.by.clone(), points, incomplete, correlation, split };
    context.answer(|| report::correlate_text(&found), || report::correlate_value(&found))?;
    Ok(exit::YES)
}

/// The quantities that were read of any GPU, with their units: a counter's mean is that of its rate.
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

/// The full name of a quantity, and its unit.
fn name(
    args: &Args,
    text: &str,
    quantities: &BTreeMap<String, String>,
    selected: &Selected,
) -> Result<(String, String), Failure> {
    if let Some(unit) = quantities.get(text) {
        return Ok((text.to_owned(), unit.clone()));
    }
    let full = selected.full_name(text, "correlate").map_err(|error| {
        let also: Vec<&str> = quantities.keys().map(String::as_str).collect();
        if also.is_empty() { error } else { error.with_hint(&format!("by {} also: {}", args.by, also.join(", "))) }
    })?;
    let is_metric = known_metric(&full).is_some() || selected.names.metrics.contains(&full);
    let unit = if is_metric { selected.unit(&full) } else { String::new() };
    Ok((full, unit))
}

fn points(
    reader: &Reader<'_>,
    args: &Args,
    trials: &[&Trial],
    (x, y): (&str, &str),
    selected: &Selected,
) -> Result<Points, StoreError> {
    let mut points = Points::default();
    for trial in trials {
        let plain = |name: &str| match trial.attempt.metrics.get(name) {
            Some(_) => trial.measured(name, &selected.admitted).ok(),
            None => trial.field(name).as_ref().and_then(Value::as_float),
        };
        if args.by == "run" {
            points.add(trial.run.id.0.prefix(12), plain(x), plain(y));
            continue;
        }
        let Some(sealed) = reader.readable_sealed(trial.id)? else { continue };
        let believed = Believed::of(&trial.attempt, selected.admitted.contains(&Why::Tainted));
        if args.by == "phase" {
            for row in analysis::join(&sealed) {
                let of = |name: &str| of_phase(&row, name, believed).unwrap_or_else(|| plain(name));
                let gpu = row.gpu.map_or_else(String::new, |gpu| format!(" gpu {gpu}"));
                points.add(format!("{} {} rank {}{gpu}", trial.id.0.prefix(12), row.name, row.rank), of(x), of(y));
            }
            continue;
        }
        for (rank, label) in gpus(&sealed) {
            let of = |name: &str| of_gpu(&sealed, rank, name, believed).unwrap_or_else(|| plain(name));
            points.add(label, of(x), of(y));
        }
    }
    Ok(points)
}

/// What of an attempt counts, if it does so at all.
#[derive(Clone, Copy)]
struct Believed {
    /// What was measured while it ran.
    measured: bool,
    /// Power and energy.
    energies: bool,
}

impl Believed {
    /// `all` says that somebody asked for what is tainted too.
    fn of(attempt: &Attempt, all: bool) -> Self {
        Self { measured: all || attempt.disturbances().is_empty(), energies: all || attempt.believes_energies() }
    }
}

/// A quantity of a phase, if it counts; none where that name is none of them.
fn of_phase(row: &PhaseRow, name: &str, believed: Believed) -> Option<Option<f64>> {
    Some(match name {
        "count" => u32::try_from(row.count).ok().map(f64::from),
        "time" | "median" | "share" | "utilization" if !believed.measured => None,
        "power" | "energy" if !believed.energies => None,
        "time" => Some(row.total_s),
        "median" => Some(row.median_s),
        "share" => Some(row.share),
        "power" => row.energy.as_ref().ok().map(|energy| energy.joules / row.total_s),
        "energy" => row.energy.as_ref().ok().map(|energy| energy.joules),
        "utilization" => row.utilization.as_ref().ok().copied(),
        _ => return None,
    })
}

/// The GPUs of an attempt: their ranks, and what names each card wherever it is used.
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

/// The mean of what was read of a GPU, if it counts; none where nothing of that name was read.
fn of_gpu(sealed: &Sealed, rank: u32, name: &str, believed: Believed) -> Option<Option<f64>> {
    let full = format!("gpu.{rank}.{name}");
    let series = sealed.series.iter().find(|series| series.name == full)?;
    let is_of_energy = Unit::named(&series.unit).is_some_and(Unit::is_of_energy);
    let counts = believed.measured && (believed.energies || !is_of_energy);
    Some(if counts { Curve::of(series).mean() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Energy, Method, Uncertainty};
    use crate::record::{Axis, Digest, Nonce, Outcome, Parts, Run, Series, Table, Tail};

    #[test]
    fn attempts_with_one_value_do_not_vary_however_many_a_run_has() {
        let mut points = Points::default();
        for run in 1..20u8 {
            (0..run).for_each(|_| points.add(format!("run {run}"), Some(0.1), Some(f64::from(run))));
        }
        points.add("incomplete".to_owned(), Some(1.0), Some(f64::NAN));
        let (points, incomplete) = points.finish();
        assert_eq!((points.len(), incomplete), (19, 1));
        assert!(points.iter().all(|point| point.x.to_bits() == 0.1f64.to_bits()));
        let plain: Vec<(f64, f64)> = points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(Correlation::of(&plain), None, "nothing but rounding goes along");
    }

    /// One that carries such a fact.
    fn sealed(fact: Option<(&str, Value)>) -> Sealed {
        let run = Run::new(Parts {
            config: Table::new().into(),
            program: "p".into(),
            container: "host".into(),
            cuda: "none".into(),
            driver: "none".into(),
            device: "gpu".into(),
            seed: 1,
        });
        let mut power = Series::new("gpu.0.power_instant", "W", Axis::TimeNs);
        let mut warm = Series::new("gpu.0.temperature", "degC", Axis::TimeNs);
        (0..3).for_each(|second| {
            power.push(second * 1_000_000_000, 300.0);
            warm.push(second * 1_000_000_000, 60.0);
        });
        let attempt = Attempt {
            run: run.id,
            nonce: Nonce([7; 16]),
            started_unix_ms: 0,
            wall_ns: 2_000_000_000,
            outcome: Outcome::Finished,
            exit: None,
            metrics: BTreeMap::new(),
            digests: BTreeMap::new(),
            settings: Table::new(),
            facts: fact.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            warnings: Vec::new(),
            tail: Tail::default(),
            series: Vec::new(),
            phases: Digest([0; 32]),
        };
        Sealed { run, attempt, series: vec![power, warm], phases: Vec::new() }
    }

    #[test]
    fn what_is_not_to_be_believed_is_left_out() {
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
            samples: None,
        };
        let all = |sealed: &Sealed, all: bool| {
            let believed = Believed::of(&sealed.attempt, all);
            let names = ["power", "energy", "time", "median", "share", "count", "loss"];
            let of_phase = names.map(|name| of_phase(&row, name, believed));
            let of_gpu = ["power_instant", "temperature", "loss"].map(|name| of_gpu(sealed, 0, name, believed));
            (of_phase, of_gpu)
        };
        let (two, one, none) = (Some(Some(2.0)), Some(Some(1.0)), Some(None));
        let whole =
            ([Some(Some(3.0)), Some(Some(6.0)), two, two, one, one, None], [Some(Some(300.0)), Some(Some(60.0)), None]);
        let disagrees = sealed(Some(("telemetry.marks", vec!["disagreement"].into())));
        let disturbed = sealed(Some(("validity.reasons", vec!["throttled"].into())));
        assert_eq!(all(&sealed(None), false), whole);
        assert_eq!(all(&disagrees, false), ([none, none, two, two, one, one, None], [none, Some(Some(60.0)), None]));
        assert_eq!(all(&disturbed, false), ([none, none, none, none, none, one, None], [none, none, None]));
        assert_eq!(all(&disagrees, true), whole);
        assert_eq!(all(&disturbed, true), whole);
    }
}
