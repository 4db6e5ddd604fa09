//! `ledger best`

use super::context::Context;
use super::failure::{Failure, exit};
use crate::record::{Direction, RunId, known_metric};
use crate::report::{self, Place};
use crate::store::{Reader, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// Say which configuration of a model is best by a metric
///
/// Attempts that differ in their seed alone are repetitions: a configuration stands by the mean over its finished attempts,
/// and N says how many those are. Configurations with a non-finite value, failed and hidden attempts are left out.
///
/// Example: ledger best --model mnist_mlp --metric accuracy --top 3
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model
    #[arg(long, value_name = "M")]
    model: String,

    /// The metric
    #[arg(long, value_name = "X")]
    metric: String,

    /// Show that many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// For a metric of your own: which way it is better
    #[arg(long, value_name = "WAY", value_parser = ["minimize", "maximize"])]
    direction: Option<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let known = known_metric(&args.metric);
    let direction = match (args.direction.as_deref(), known) {
        (Some("maximize"), _) => Direction::Maximize,
        (Some(_), _) => Direction::Minimize,
        (None, Some(known)) => known.direction,
        (None, None) => {
            let text = format!("`{}` is no metric of ours (add --direction minimize or maximize)", args.metric);
            return Err(Failure::new(exit::USAGE, text));
        }
    };
    let limit = usize::try_from(args.top).unwrap_or(usize::MAX);
    let (places, ranked) = context.store().read(|reader| {
        let mut places = Vec::new();
        for ranked in reader.best(&args.model, &args.metric, direction, limit)? {
            if let Some(run) = reader.run(ranked.run)? {
                let uncertainty = uncertainty(reader, run.id, &args.metric)?.map(|share| share * ranked.mean.abs());
                places.push(Place { id: reader.short(run.id.0)?, run, mean: ranked.mean, uncertainty, n: ranked.n });
            }
        }
        let ranked = if places.is_empty() { reader.ranked_metrics()? } else { BTreeMap::new() };
        Ok((places, ranked))
    })?;
    if places.is_empty() {
        return Err(Failure::new(exit::NO, nothing(args, &ranked)));
    }
    let unit = known.map_or("", |known| known.unit);
    context.answer(
        || report::best_text(&places, &args.metric, unit, direction),
        || report::best_value(&places, &args.model, &args.metric, unit, direction),
    )?;
    Ok(exit::YES)
}

/// How far a metric of a run may be off, as a share of it: the largest over its finished attempts. A sensor that is off is off in
/// every repetition, so that a mean is no surer than they are.
fn uncertainty(reader: &Reader<'_>, run: RunId, metric: &str) -> Result<Option<f64>, StoreError> {
    let mut largest: Option<f64> = None;
    for (id, _) in reader.attempts_of(run)?.into_iter().filter(|(_, finished)| *finished) {
        let metric = reader.attempt(id)?.and_then(|mut attempt| attempt.metrics.remove(metric));
        let share = metric.and_then(|metric| Some(metric.uncertainty? / metric.value?.abs()));
        largest = share.filter(|share| share.is_finite()).into_iter().chain(largest).reduce(f64::max);
    }
    Ok(largest)
}

fn nothing(args: &Args, ranked: &BTreeMap<String, BTreeSet<String>>) -> String {
    let list = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match ranked.get(&args.model) {
        Some(metrics) => format!(
            "no finished attempt of `{}` has a finite `{}` (there are: {})",
            args.model,
            args.metric,
            list(metrics.iter().collect())
        ),
        None if ranked.is_empty() => {
            "the ledger holds no finished attempt (`ledger run MANIFEST` makes some)".to_owned()
        }
        None => {
            format!("no finished attempt is of model `{}` (there are: {})", args.model, list(ranked.keys().collect()))
        }
    }
}
