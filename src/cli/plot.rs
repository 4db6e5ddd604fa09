//! `ledger plot`

use super::context::{self, Context};
use super::effects;
use super::failure::{Failure, exit};
use super::living;
use super::output;
use super::pareto;
use super::picture::{Output, failed};
use super::recorded::energy_of;
use super::selection::{OfModel, Selected, Selection, all_tainted, direction_of, nothing};
use crate::analysis::{self, Thin, portions};
use crate::record::{Attempt, AttemptId, Axis, Run, Sealed, SeriesSummary, Why, known_metric};
use crate::report::{self, Curved, EnergyOf, Figure, Heat, Over, Subject};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// Draw a plot as SVG, PNG or text, or write its data as CSV
///
/// Without -o, the plot is drawn as text on the terminal. Plots have the width of a page or a column, and text in a
/// paper's size. Colours are safe for colour-blind readers and come with dashes, markers and hatches.
///
/// Example: ledger plot scaling --model resnet50 --metric throughput -o scaling.png --width column
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    Curves(Curves),
    Scaling(Scaling),
    Effects(Effects),
    Pareto(Pareto),
    Energy(Energy),
    Distribution(Distribution),
    Heat(Grid),
    /// Print the licence of the font in this program and in its plots
    ///
    /// Example: ledger plot license
    License,
}

/// Curves of up to eight attempts; of one attempt, with its phases shaded
///
/// Example: ledger plot curves latest latest~1 --series loss -o loss.svg
#[derive(Debug, clap::Args)]
struct Curves {
    /// Runs (their newest finished attempts) or attempts: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Only these series: names, prefixes or patterns (`gpu.*.power*`) [default: all series over steps that the
    /// worker reported]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    series: Vec<String>,

    /// The x axis of series over steps
    #[arg(long, value_name = "AXIS", default_value = "step", value_parser = ["step", "time"])]
    over: String,

    #[command(flatten)]
    output: Output,
}

/// A metric over the number of GPUs, or over another numeric field
///
/// Draws one line for each configuration of the other fields. For throughput and times, it also draws ideal
/// scaling.
///
/// Example: ledger plot scaling --model resnet50 --metric throughput
#[derive(Debug, clap::Args)]
struct Scaling {
    #[command(flatten)]
    question: Question,

    /// The field of the x axis
    #[arg(long, value_name = "FIELD", default_value = "hardware.gpus")]
    axis: String,

    #[command(flatten)]
    output: Output,
}

/// The effect of each axis of an experiment on a metric
///
/// Example: ledger plot effects --model resnet50 --metric energy -o effects.svg
#[derive(Debug, clap::Args)]
struct Effects {
    #[command(flatten)]
    question: effects::Question,

    #[command(flatten)]
    output: Output,
}

/// The Pareto front of several metrics
///
/// Example: ledger plot pareto --model resnet50 --metrics energy,epoch_time -o front.svg
#[derive(Debug, clap::Args)]
struct Pareto {
    #[command(flatten)]
    question: pareto::Question,

    #[command(flatten)]
    output: Output,
}

/// Energy of attempts by phase, stacked
///
/// Example: ledger plot energy latest latest~1 -o energy.svg
#[derive(Debug, clap::Args)]
struct Energy {
    /// Runs (their newest finished attempts) or attempts: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    #[command(flatten)]
    output: Output,
}

/// Every attempt's value of a metric, by configuration or by fields
///
/// Example: ledger plot distribution --model mnist_mlp --metric accuracy --by optimizer
#[derive(Debug, clap::Args)]
struct Distribution {
    #[command(flatten)]
    question: Question,

    /// Combine all attempts that agree in these fields [default: attempts that differ only in the seed]
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    by: Vec<String>,

    #[command(flatten)]
    output: Output,
}

/// A metric over two fields, as a grid
///
/// Example: ledger plot heat --model resnet50 --metric energy --x batch_size --y power_limit_w -o grid.png
#[derive(Debug, clap::Args)]
struct Grid {
    #[command(flatten)]
    question: Question,

    /// The field from left to right
    #[arg(long, value_name = "FIELD")]
    x: String,

    /// The field from the top down
    #[arg(long, value_name = "FIELD")]
    y: String,

    /// If several configurations fall into one grid cell, show the best instead of the mean
    #[arg(long)]
    best: bool,

    #[command(flatten)]
    output: Output,
}

/// Arguments that say which values are meant.
#[derive(Debug, clap::Args)]
struct Question {
    #[command(flatten)]
    model: OfModel,

    /// The metric
    #[arg(long, value_name = "X")]
    metric: String,

    /// The better direction of a custom metric
    #[arg(long, value_name = "WAY", value_parser = ["minimize", "maximize"])]
    direction: Option<String>,

    #[command(flatten)]
    selection: Selection,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.kind {
        Kind::License => {
            output::print(report::FONT_LICENSE)?;
            Ok(exit::YES)
        }
        Kind::Curves(args) => args.output.put(&args.figure(context)?, context),
        Kind::Effects(args) => {
            let (found, values) = effects::find(&args.question, context)?;
            args.output.put(&report::effects_figure(&found, &values).map_err(failed)?, context)
        }
        Kind::Pareto(args) => {
            let front = pareto::find(&args.question, context)?;
            args.output.put(&report::front_figure(&front).map_err(failed)?, context)
        }
        Kind::Energy(args) => args.output.put(&args.figure(context)?, context),
        Kind::Scaling(args) => {
            let figure = args.question.figure(context, |subject, selected| {
                let axis = selected.full_name(&args.axis, "--axis")?;
                report::scaling(subject, &axis).map_err(failed)
            })?;
            args.output.put(&figure, context)
        }
        Kind::Distribution(args) => {
            let figure = args.question.figure(context, |subject, selected| {
                let by: Result<Vec<String>, Failure> =
                    args.by.iter().map(|name| selected.full_name(name, "--by")).collect();
                report::distribution(subject, &by?).map_err(failed)
            })?;
            args.output.put(&figure, context)
        }
        Kind::Heat(args) => {
            let figure = args.question.figure(context, |subject, selected| {
                let (x, y) = (selected.full_name(&args.x, "--x")?, selected.full_name(&args.y, "--y")?);
                report::heat(subject, &Heat { x: &x, y: &y, best: args.best }).map_err(failed)
            })?;
            args.output.put(&figure, context)
        }
    }
}

impl Question {
    fn figure(
        &self,
        context: &Context,
        draw: impl FnOnce(&Subject<'_>, &Selected) -> Result<Figure, Failure>,
    ) -> Result<Figure, Failure> {
        let model = self.model.name(context)?;
        let selected = self.selection.select(context, Some(&model))?;
        let metric = selected.metric(&self.metric, "--metric")?;
        let counts = selected.trials.iter().any(|trial| trial.measured(&metric, &selected.admitted).is_ok());
        if !counts {
            let left_out = analysis::count_left_out(&selected.trials, &metric, &selected.admitted).1;
            if self.selection.is_everything() {
                return Err(nothing(context, &model, &metric, &left_out));
            }
            all_tainted(context, &model, &metric, &left_out).map_or(Ok(()), Err)?;
        }
        let stated = match self.direction.as_deref() {
            Some(stated) => Some(direction_of(&metric, Some(stated))?),
            None => known_metric(&metric).map(|known| known.direction),
        };
        let unit = selected.unit(&metric);
        let subject = Subject {
            model: &model,
            metric: &metric,
            unit: &unit,
            direction: stated,
            trials: &selected.trials,
            names: &selected.names,
            admitted: &selected.admitted,
        };
        draw(&subject, &selected)
    }
}

impl Curves {
    fn figure(&self, context: &Context) -> Result<Figure, Failure> {
        let found = heads(&self.ids, context)?;
        let all: BTreeSet<&str> =
            found.iter().flat_map(|one| &one.attempt.series).map(|series| series.name.as_str()).collect();
        let wanted: Option<BTreeSet<String>> = if self.series.is_empty() {
            None
        } else {
            let chosen = analysis::select(&self.series, &all).map_err(|error| Failure::new(exit::USAGE, error))?;
            Some(chosen.into_iter().map(str::to_owned).collect())
        };
        let store = context.store_as_it_is();
        let curved = found.iter().map(|one| store.read(|reader| curved(reader, one, wanted.as_ref())));
        let curved = curved.collect::<Result<Vec<Curved>, _>>()?;
        let over = if self.over == "time" { Over::Time } else { Over::Own };
        report::curves(&curved, over).map_err(failed)
    }
}

/// An attempt without its series and phases.
pub(super) struct Head {
    pub(super) id: AttemptId,
    pub(super) run: Run,
    pub(super) attempt: Attempt,
    /// The record so far, if the attempt is running.
    pub(super) living: Option<Box<Sealed>>,
}

/// Returns the named attempts without their series, which may not fit into memory.
fn heads(ids: &[String], context: &Context) -> Result<Vec<Head>, Failure> {
    let store = context.store();
    let mut found = Vec::new();
    for text in ids {
        if let Some((id, sealed)) = living::unsealed(context, text)? {
            let (run, attempt) = (sealed.run.clone(), sealed.attempt.clone());
            found.push(Head { id, run, attempt, living: Some(Box::new(sealed)) });
            continue;
        }
        let (id, run, attempt) = store.read(|reader| context::resolve_head(reader, text))??;
        found.push(Head { id, run, attempt, living: None });
    }
    Ok(found)
}

/// Returns the reason why an attempt would not count in an answer.
fn state(attempt: &Attempt) -> Option<&'static str> {
    if attempt.outcome.is_running() {
        return Some("running");
    }
    attempt.counts().err().map(|left| left.why.name())
}

/// Like [`state`], for the attempt's energies.
pub(super) fn energy_state(one: &Sealed) -> Option<&'static str> {
    state(&one.attempt).or_else(|| (!one.attempt.believes_energies()).then(|| Why::Tainted.name()))
}

/// Returns the requested curves of an attempt; by default those over steps. Each is thinned while it is read.
pub(super) fn curved(reader: &Reader<'_>, one: &Head, wanted: Option<&BTreeSet<String>>) -> Result<Curved, StoreError> {
    let is_wanted = |series: &&SeriesSummary| match wanted {
        Some(names) => names.contains(&series.name),
        None => series.axis == Axis::Step,
    };
    let (mut series, mut thinned) = (Vec::new(), Vec::new());
    for summary in one.attempt.series.iter().filter(is_wanted) {
        let mut thin = Thin::default();
        if let Some(living) = &one.living {
            series.extend(living.series.iter().find(|series| series.name == summary.name).cloned());
            continue;
        }
        if reader.visit_series(one.id, &summary.name, &mut |position, value| thin.push(position, value))? {
            thinned.extend(thin.stretches().map(|stretches| (summary.name.clone(), thin.points(), stretches)));
            series.push(thin.series(&summary.name, &summary.unit, summary.axis));
        }
    }
    Ok(Curved {
        attempt: one.id,
        state: state(&one.attempt),
        wall_ns: one.attempt.wall_ns,
        series,
        thinned,
        phases: match &one.living {
            Some(living) => living.phases.clone(),
            None => reader.phases(one.id)?,
        },
        run: one.run.clone(),
    })
}

impl Energy {
    fn figure(&self, context: &Context) -> Result<Figure, Failure> {
        let mut all = Vec::new();
        for head in heads(&self.ids, context)? {
            match head.living {
                Some(living) => all.push(EnergyOf {
                    attempt: head.id,
                    state: energy_state(&living),
                    portions: portions(&living, &living.series),
                    run: living.run,
                }),
                None => {
                    let found = context.store_as_it_is().read(|reader| energy_of(reader, head.id))?;
                    all.extend(found.map(|(_, energy)| energy));
                }
            }
        }
        report::energy_figure(&all).map_err(failed)
    }
}
