//! `ledger plan`

use super::context::Context;
use super::failure::{Failure, exit};
use super::run::versions::say_new_versions;
use super::run::{axes, bound, short_ids};
use super::selection::trials_of;
use crate::analysis::{self, Forecast, History, Trial, history, total};
use crate::engine::{Planned, plan};
use crate::manifest::{self, Manifest};
use crate::report::{self, Plan, PlannedRun};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Show the missing runs of a manifest, with the expected time, energy and cost
///
/// Each run is predicted from attempts in the ledger. The first choice is the same configuration. The next is the same
/// config with another version of the program, driver or libraries. The last is the same model on the same devices,
/// with the fewest different fields. Intervals are 95% and include the scatter of single attempts. Nothing is executed.
///
/// Example: ledger plan manifests/resnet50.toml --price-kwh 0.30 --price-gpu-hour 2.50
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The manifests
    #[arg(required = true, value_name = "MANIFEST")]
    manifests: Vec<PathBuf>,

    /// Execute each run N more times, finished or not
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,

    /// Only the runs whose fields match: `gpus <= 2 and optimizer in [adam, sgd]`
    #[arg(long, value_name = "EXPR")]
    only: Option<String>,

    /// The price of a kilowatt hour
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_kwh: Option<f64>,

    /// The price of a GPU hour; a run without GPUs counts as one GPU
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_gpu_hour: Option<f64>,
}

/// Metrics of an attempt's energy; the first one with a history is used.
const ENERGIES: [&str; 2] = ["energy_total", "energy"];
const JOULES_PER_KWH: f64 = 3.6e6;

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "a price is a number of at least 0".to_owned())
}

/// The histories that apply to a missing run.
struct Known {
    time: Option<History>,
    energy: Option<History>,
    gpus: f64,
}

impl Args {
    /// Returns the cost of one or more attempts, from their time in seconds, number of GPUs and energy.
    fn cost(&self, time: Option<Forecast>, energy: Option<Forecast>, gpus: f64) -> Option<Forecast> {
        let scaled = |found: Option<Forecast>, factor: f64| {
            let found = found?;
            Some(Forecast { value: factor * found.value, half_width: found.half_width.map(|half| factor * half) })
        };
        let by_time = match self.price_gpu_hour {
            Some(price) => Some(scaled(time, price * gpus / 3600.0)?),
            None => None,
        };
        let by_energy = match self.price_kwh {
            Some(price) => Some(scaled(energy, price / JOULES_PER_KWH)?),
            None => None,
        };
        match (by_time, by_energy) {
            // A longer attempt takes more energy, so the errors add up.
            (Some(a), Some(b)) => Some(Forecast {
                value: a.value + b.value,
                half_width: a.half_width.zip(b.half_width).map(|(a, b)| a + b),
            }),
            (one, other) => one.or(other),
        }
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let manifests: Vec<Manifest> = args.manifests.iter().map(|path| manifest::load(path)).collect::<Result<_, _>>()?;
    let bounds = bound(&manifests, &[], args.repeat, args.only.as_deref(), false)?;
    let store = context.store();
    let planned = plan(store, bounds)?;
    let mut trials: Vec<Trial> = Vec::new();
    if store.if_there(|_| Ok(()))?.is_some() {
        let models: BTreeSet<&str> = planned.iter().map(|planned| planned.bound.run.model()).collect();
        for model in models {
            trials.extend(store.read(|reader| trials_of(reader, Some(model)))?);
        }
        analysis::unify_by_model(&mut trials);
    }
    let ids = short_ids(store, &planned)?;
    let known: Vec<Known> = planned.iter().map(|planned| known(planned, &trials)).collect();
    let parts = |of: fn(&Known) -> Option<&History>| {
        known
            .iter()
            .zip(&planned)
            .filter(|(_, planned)| planned.missing > 0)
            .filter_map(move |(known, planned)| Some((of(known)?, planned.missing)))
    };
    let time = total(parts(|known| known.time.as_ref()));
    let energy = total(parts(|known| known.energy.as_ref()));
    let runs: Vec<PlannedRun> = planned
        .iter()
        .zip(&ids)
        .zip(&known)
        .map(|((planned, id), known)| planned_run(args, planned, id, known, context.json))
        .collect();
    let is_priced = args.price_kwh.is_some() || args.price_gpu_hour.is_some();
    let unpriced = runs.iter().filter(|run| is_priced && run.cost.is_none()).map(|run| run.missing).sum();
    let plan = Plan { axes: axes(&planned), cost: sum_of_costs(args, &planned, &known), unpriced, runs, time, energy };
    context.answer(|| report::forecast_text(&plan), || report::forecast_value(&plan))?;
    say_new_versions(store, &planned)?;
    Ok(exit::YES)
}

fn known(planned: &Planned, trials: &[Trial]) -> Known {
    let run = &planned.bound.run;
    let gpus = planned.bound.cell.int("hardware.gpus").and_then(|gpus| u32::try_from(gpus).ok()).unwrap_or(0);
    Known {
        time: history(run, trials, "wall_time"),
        energy: ENERGIES.iter().find_map(|metric| history(run, trials, metric)),
        gpus: f64::from(gpus.max(1)),
    }
}

fn planned_run(args: &Args, planned: &Planned, id: &str, known: &Known, whole: bool) -> PlannedRun {
    let next = |history: &History| Some((history.next()?, history.basis, history.values.len()));
    let cost = cost_of(args, planned, known);
    PlannedRun {
        id: if whole { planned.bound.run.id.to_string() } else { id.to_owned() },
        cell: planned.bound.cell.clone(),
        sealed: planned.sealed,
        missing: planned.missing,
        time: known.time.as_ref().and_then(next),
        energy: known.energy.as_ref().and_then(next),
        cost: cost.map(|cost| cost.value),
    }
}

/// Returns the cost of a run's missing attempts. Returns `None` if a priced quantity is unknown.
fn cost_of(args: &Args, planned: &Planned, known: &Known) -> Option<Forecast> {
    let sum = |history: &Option<History>| history.as_ref().and_then(|history| history.sum_of(planned.missing));
    args.cost(sum(&known.time), sum(&known.energy), known.gpus)
}

/// Returns the cost of all missing attempts whose cost is known. Runs with equal numbers of GPUs are summed, with the
/// errors of their histories.
fn sum_of_costs(args: &Args, planned: &[Planned], known: &[Known]) -> Option<Forecast> {
    let mut sums = Vec::new();
    let counts: BTreeSet<u64> = known.iter().map(|known| known.gpus.to_bits()).collect();
    for gpus in counts {
        let of = || {
            known.iter().zip(planned).filter(move |(known, planned)| {
                known.gpus.to_bits() == gpus && planned.missing > 0 && cost_of(args, planned, known).is_some()
            })
        };
        let time = total(of().filter_map(|(known, planned)| Some((known.time.as_ref()?, planned.missing))));
        let energy = total(of().filter_map(|(known, planned)| Some((known.energy.as_ref()?, planned.missing))));
        sums.extend(args.cost(time, energy, f64::from_bits(gpus)));
    }
    let halves: Option<Vec<f64>> = sums.iter().map(|sum| sum.half_width).collect();
    let value = sums.iter().map(|sum| sum.value).sum();
    (!sums.is_empty()).then(|| Forecast {
        value,
        half_width: halves.map(|halves| halves.iter().map(|half| half * half).sum::<f64>().sqrt()),
    })
}
