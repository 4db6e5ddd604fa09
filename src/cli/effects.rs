//! `ledger effects`

use super::context::Context;
use super::failure::{Failure, exit};
use super::selection::{Selected, Selection, nothing};
use crate::analysis::{self, Factor, Trial, count_left_out, effects};
use crate::record::{Value, count, known_metric};
use crate::report::{self, Effected};

/// Say what each axis of an experiment does to a metric, alone and together with another one
///
/// The axes are the fields of the identity in which the attempts differ, the seed apart. An analysis of variance (type II) says what share of the
/// metric's variance each axis and each pair of axes explains, how large the effect is, and how sure; pairs are judged where repetitions or
/// further axes leave something to tell chance by.
///
/// Example: ledger effects --model resnet50 --metric energy --axes batch_size,precision
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    question: Question,
}

/// Arguments that say which effects are meant.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    /// The model
    #[arg(long, value_name = "M")]
    model: String,

    /// The metric
    #[arg(long, value_name = "X")]
    metric: String,

    /// Judge these fields only
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    axes: Vec<String>,

    #[command(flatten)]
    selection: Selection,
}

/// A field with more values than this is no axis of a grid.
const MOST_LEVELS: usize = 24;
/// Beyond this number of axes, pairs of them cannot be told apart by any experiment that we know.
const MOST_AXES: usize = 8;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (found, _) = find(&args.question, context)?;
    context.answer(|| report::effects_text(&found), || report::effects_value(&found))?;
    Ok(exit::YES)
}

/// The effects that are asked for, and the observations that they were found from.
pub(super) fn find(args: &Question, context: &Context) -> Result<(Effected, Vec<f64>), Failure> {
    let selected = args.selection.select(context, Some(&args.model))?;
    let metric = selected.metric(&args.metric, "--metric")?;
    judge(&args.model, &metric, &args.axes, &selected)?.ok_or_else(|| {
        let left_out = count_left_out(&selected.trials, &metric, &selected.admitted).1;
        nothing(context, &args.model, &metric, &left_out)
    })
}

/// The effects on a metric, and the observations that they were found from; none without observations.
pub(super) fn judge(
    model: &str,
    metric: &str,
    axes: &[String],
    selected: &Selected,
) -> Result<Option<(Effected, Vec<f64>)>, Failure> {
    let observed: Vec<(&Trial, f64)> = selected
        .trials
        .iter()
        .filter_map(|trial| Some((trial, trial.measured(metric, &selected.admitted).ok()?)))
        .collect();
    if observed.is_empty() {
        return Ok(None);
    }
    let mut notes = Vec::new();
    let factors = factors(axes, selected, &observed, &mut notes)?;
    let values: Vec<f64> = observed.iter().map(|(_, value)| *value).collect();
    let Some(effects) = effects(&factors, &values) else {
        let why =
            if factors.is_empty() { "the attempts differ in no axis" } else { "all attempts have the same value" };
        let notes = notes.iter().map(|note| format!("; {note}")).collect::<String>();
        return Err(Failure::new(exit::NO, format!("there is no effect on `{metric}` to be judged: {why}{notes}")));
    };
    notes.extend(effects.without_pairs.map(|why| format!("pairs of axes are not judged: {why}")));
    let found = Effected {
        model: model.to_owned(),
        unit: selected.unit(metric),
        direction: known_metric(metric).map(|known| known.direction),
        factors,
        effects,
        notes,
        left_out: count_left_out(&selected.trials, metric, &selected.admitted).1,
        metric: metric.to_owned(),
    };
    Ok(Some((found, values)))
}

fn factors(
    axes: &[String],
    selected: &Selected,
    observed: &[(&Trial, f64)],
    notes: &mut Vec<String>,
) -> Result<Vec<Factor>, Failure> {
    let runs: Vec<_> = observed.iter().map(|(trial, _)| &trial.run).collect();
    let full = |name: &String| selected.full_name(name, "--axes");
    let names = if axes.is_empty() {
        analysis::differing(&runs)
    } else {
        axes.iter().map(full).collect::<Result<Vec<_>, _>>()?
    };
    let mut found: Vec<Factor> = Vec::new();
    for name in names {
        let values: Vec<Value> =
            observed.iter().map(|(trial, _)| trial.field(&name).unwrap_or_else(|| "(absent)".into())).collect();
        let Some(factor) = Factor::new(&name, &values) else {
            notes.push(format!("`{name}` is the same in all attempts"));
            continue;
        };
        if factor.levels.len() > MOST_LEVELS || factor.levels.len() > values.len() / 2 {
            notes.push(format!(
                "`{name}` has {} in {} and is no axis",
                count(factor.levels.len(), "value"),
                count(values.len(), "attempt")
            ));
        } else if let Some(other) = found.iter().find(|other| other.is_like(&factor)) {
            notes.push(format!("`{name}` goes with `{}`, and cannot be told from it", other.name));
        } else if found.len() == MOST_AXES {
            notes.push(format!("`{name}` is not judged: more than {MOST_AXES} axes (--axes chooses)"));
        } else {
            found.push(factor);
        }
    }
    Ok(found)
}
