//! `ledger plot`

use super::context::{self, Context};
use super::effects;
use super::failure::{Failure, exit};
use super::living;
use super::pareto;
use super::picture::{Output, failed};
use super::selection::{Selected, Selection, all_tainted, nothing};
use crate::analysis::{self, portions};
use crate::record::{AttemptId, Direction, Sealed, Why, known_metric};
use crate::report::{self, Curved, EnergyOf, Figure, Heat, Over, Subject};
use std::collections::BTreeSet;

/// Draw a picture: SVG, PNG, characters on the terminal, or the numbers behind it as CSV
///
/// Without -o it is drawn with characters. Pictures are as wide as a page's text or a column of it, with text in the size of a paper's; colours can be told
/// apart by colour-blind people, and go with dashes, markers and hatches.
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
    /// Print the licence of the font that is in this program, and in its pictures
    ///
    /// Example: ledger plot license
    License,
}

/// Curves of one attempt with its phases shaded, or of up to eight
///
/// Example: ledger plot curves latest latest~1 --series loss -o loss.svg
#[derive(Debug, clap::Args)]
struct Curves {
    /// Runs (their newest finished attempts) or attempts: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Only these: names, beginnings or patterns (`gpu.*.power*`) [default: all that the worker told of steps]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    series: Vec<String>,

    /// What is on the x axis of curves over steps
    #[arg(long, value_name = "AXIS", default_value = "step", value_parser = ["step", "time"])]
    over: String,

    #[command(flatten)]
    output: Output,
}

/// A metric over the number of GPUs, or over another field with numbers
///
/// A line for each configuration of the other fields; of throughput and times, also what would be ideal.
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

/// What each axis of an experiment does to a metric
///
/// Example: ledger plot effects --model resnet50 --metric energy -o effects.svg
#[derive(Debug, clap::Args)]
struct Effects {
    #[command(flatten)]
    question: effects::Question,

    #[command(flatten)]
    output: Output,
}

/// What nothing beats in several metrics at once
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

    /// Put together all attempts that agree on these fields, instead of those that differ in their seed alone
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

    /// Where several configurations fall into one field, show the best of them, not the mean
    #[arg(long)]
    best: bool,

    #[command(flatten)]
    output: Output,
}

/// Arguments that say which values are meant.
#[derive(Debug, clap::Args)]
struct Question {
    /// The model
    #[arg(long, value_name = "M")]
    model: String,

    /// The metric
    #[arg(long, value_name = "X")]
    metric: String,

    /// For a metric of your own: which way it is better
    #[arg(long, value_name = "WAY", value_parser = ["minimize", "maximize"])]
    direction: Option<String>,

    #[command(flatten)]
    selection: Selection,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.kind {
        Kind::License => {
            context::print(report::FONT_LICENSE)?;
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
        let selected = self.selection.select(context, Some(&self.model))?;
        let metric = selected.metric(&self.metric, "--metric")?;
        let counts = selected.trials.iter().any(|trial| trial.measured(&metric, &selected.admitted).is_ok());
        if !counts {
            let left_out = analysis::count_left_out(&selected.trials, &metric, &selected.admitted).1;
            if self.selection.is_everything() {
                return Err(nothing(context, &self.model, &metric, &left_out));
            }
            all_tainted(context, &self.model, &metric, &left_out).map_or(Ok(()), Err)?;
        }
        let stated = match self.direction.as_deref() {
            Some("maximize") => Some(Direction::Maximize),
            Some(_) => Some(Direction::Minimize),
            None => known_metric(&metric).map(|known| known.direction),
        };
        let unit = selected.unit(&metric);
        let subject = Subject {
            model: &self.model,
            metric: &metric,
            unit: &unit,
            direction: stated,
            trials: &selected.trials,
            admitted: &selected.admitted,
        };
        draw(&subject, &selected)
    }
}

fn sealed(ids: &[String], context: &Context) -> Result<Vec<(AttemptId, Sealed)>, Failure> {
    let store = context.store();
    let mut found = Vec::new();
    for id in ids {
        match living::unsealed(context, id)? {
            Some(one) => found.push(one),
            None => found.push(store.read(|reader| context::resolve_attempt(reader, id))??),
        }
    }
    Ok(found)
}

impl Curves {
    fn figure(&self, context: &Context) -> Result<Figure, Failure> {
        let found = sealed(&self.ids, context)?;
        let all: BTreeSet<&str> =
            found.iter().flat_map(|(_, one)| &one.attempt.series).map(|series| series.name.as_str()).collect();
        let wanted: Option<BTreeSet<String>> = if self.series.is_empty() {
            None
        } else {
            let chosen = analysis::select(&self.series, &all).map_err(|error| Failure::new(exit::USAGE, error))?;
            Some(chosen.into_iter().map(str::to_owned).collect())
        };
        let curved: Vec<Curved> = found.into_iter().map(|(id, one)| curved(id, one, wanted.as_ref())).collect();
        let over = if self.over == "time" { Over::Time } else { Over::Own };
        report::curves(&curved, over).map_err(failed)
    }
}

/// Why an attempt would not count in an answer.
fn state(one: &Sealed) -> Option<&'static str> {
    if one.attempt.outcome.is_running() {
        return Some("running");
    }
    one.attempt.counts().err().map(|left| left.why.name())
}

/// As [`state`], of its energies.
pub(super) fn energy_state(one: &Sealed) -> Option<&'static str> {
    state(one).or_else(|| (!one.attempt.believes_energies()).then(|| Why::Tainted.name()))
}

/// The curves of an attempt that are wanted: those over steps where nothing is said.
pub(super) fn curved(id: AttemptId, one: Sealed, wanted: Option<&BTreeSet<String>>) -> Curved {
    let is_wanted = |series: &crate::record::Series| match wanted {
        Some(names) => names.contains(&series.name),
        None => series.axis == crate::record::Axis::Step,
    };
    Curved {
        attempt: id,
        state: state(&one),
        wall_ns: one.attempt.wall_ns,
        series: one.series.into_iter().filter(is_wanted).collect(),
        phases: one.phases,
        run: one.run,
    }
}

impl Energy {
    fn figure(&self, context: &Context) -> Result<Figure, Failure> {
        let found = sealed(&self.ids, context)?;
        let of = |(attempt, one): (AttemptId, Sealed)| EnergyOf {
            attempt,
            state: energy_state(&one),
            portions: portions(&one),
            run: one.run,
        };
        report::energy_figure(&found.into_iter().map(of).collect::<Vec<_>>()).map_err(failed)
    }
}
