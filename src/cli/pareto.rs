//! `ledger pareto`

use super::context::Context;
use super::drifted;
use super::failure::{Failure, exit};
use super::output::say;
use super::picture;
use super::selection::{Ask, Found, OfModel, Selected, Selection, all_tainted, metric_of_model, nothing};
use super::timed_inference;
use super::versions::{self, Grouping};
use crate::analysis::{
    self, Asked, Configuration, Ordering, Place, configurations, count_left_out, dominators, front_probabilities, place,
};
use crate::record::{Attempt, AttemptId, Direction, LeftOut, Table};
use crate::report::{self, Coordinate, Front, FrontPoint, Incomplete, Millimetres};
use crate::store::Reader;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Show the Pareto front: the configurations that no other one beats in every metric
///
/// A configuration is on the Pareto front if no other is at least as good in every metric and better in one. It
/// uses means over repetitions (attempts that differ only in the seed). It leaves out the same attempts as `ledger
/// best`.
///
/// Example: ledger pareto --model resnet50 --metrics energy,epoch_time,accuracy --plot front.svg
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    question: Question,

    /// Also show dominated configurations, and which ones dominate them
    #[arg(long)]
    dominated: bool,

    /// Draw into a file: `.svg`, `.png`, `.csv`; `term` draws on standard output
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "plot")]
    force: bool,
}

/// Arguments that say what front is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    #[command(flatten)]
    model: OfModel,

    /// Two or more metrics; `score:maximize` states the better direction of a custom metric that was no objective
    #[arg(long, value_name = "X,Y,…", value_delimiter = ',', required = true)]
    metrics: Vec<String>,

    #[command(flatten)]
    selection: Selection,

    #[command(flatten)]
    grouping: Grouping,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let front = find(&args.question, context)?;
    if let Some(path) = &args.plot {
        let figure = report::front_figure(&front).map_err(picture::failed)?;
        if path.as_os_str() == "term" {
            return picture::put(&figure, path, Millimetres::PAGE, args.force, context, Table::new());
        }
        picture::save(&figure, path, Millimetres::PAGE, args.force)?;
    }
    context.answer(|| report::pareto_text(&front, args.dominated), || report::pareto_value(&front, args.dominated))?;
    let shown = || front.points.iter().filter(|point| args.dominated || point.dominated_by.is_none());
    let counted: BTreeSet<AttemptId> = shown()
        .flat_map(|point| &point.places)
        .flat_map(|place| &place.contender.measured)
        .map(|one| one.attempt)
        .collect();
    let drifted = context.store().read(|reader| {
        let mut reruns = BTreeSet::new();
        for id in counted {
            let attempt = reader.readable(id)?;
            reruns.extend(attempt.filter(|one| one.facts.contains_key(Attempt::RERUN_OF)).map(|_| id));
        }
        drifted::drifted(reader, &reruns)
    })?;
    drifted::note("the front", &drifted).iter().for_each(|text| say(&format!("note: {text}")));
    let unlike = context.store().read(|reader| {
        let mut unlike = Vec::new();
        for (at, coordinate) in front.coordinates.iter().enumerate() {
            let rows: Vec<_> = shown().filter_map(|point| point.places.get(at)).map(|place| &place.contender).collect();
            unlike.extend(timed_inference::unlike(reader, &coordinate.metric, &rows)?);
        }
        Ok(unlike)
    })?;
    unlike.iter().for_each(|line| say(line));
    // A row that averages over much may be what keeps others off the front.
    let rows = shown().map(|point| (point.number, point.places.iter().map(|place| &place.contender).collect()));
    versions::averaged(rows, context.store())?.iter().for_each(|line| say(line));
    if args.question.grouping.group_by.is_empty() {
        let rows = shown().map(|point| (point.number, &point.run));
        versions::apart(rows, context.store())?.iter().for_each(|line| say(line));
    }
    Ok(exit::YES)
}

/// The front that is asked for.
pub(super) fn find(args: &Question, context: &Context) -> Result<Front, Failure> {
    let model = args.model.name(context)?;
    let coordinates = coordinates(args, &model, context)?;
    find_with(args, &model, coordinates, &[], context)
}

/// The front of the rows that `--group-by` puts together. `versions` are further fields, which keep versions of a program apart.
fn find_with(
    args: &Question,
    model: &str,
    coordinates: Vec<Coordinate>,
    versions: &[String],
    context: &Context,
) -> Result<Front, Failure> {
    let ask = |names: &Selected<()>| {
        let mut fields = names.varied();
        fields.extend(names.full_names(&args.grouping.group_by, "--group-by")?);
        fields.extend(versions.iter().cloned());
        let metrics = coordinates.iter().map(|one| one.metric.clone()).collect();
        Ok(Ask { fields, metrics, of_others: false })
    };
    match args.selection.find(context, model, &ask)? {
        Found::Briefs(selected) => find_among(args, model, &selected, coordinates, versions, context),
        Found::Records(selected) => find_among(args, model, &selected, coordinates, versions, context),
    }
}

fn find_among<T: Asked>(
    args: &Question,
    model: &str,
    selected: &Selected<T>,
    mut coordinates: Vec<Coordinate>,
    versions: &[String],
    context: &Context,
) -> Result<Front, Failure> {
    coordinates.iter_mut().for_each(|one| one.unit = selected.unit(&one.metric));
    let mut by = selected.full_names(&args.grouping.group_by, "--group-by")?;
    by.extend(versions.iter().cloned());
    let found = configurations(&selected.trials, &by);
    let apart = if versions.is_empty() {
        let metrics: Vec<&str> = coordinates.iter().map(|one| one.metric.as_str()).collect();
        let of =
            |reader: &Reader<'_>| args.grouping.kept_apart(&found, &metrics, &selected.admitted, &|id| reader.run(id));
        context.store().read(of)?
    } else {
        Vec::new()
    };
    if !apart.is_empty() {
        let front = find_with(args, model, coordinates, &apart, context)?;
        let note = front.points.first().and_then(|point| versions::apart_note(&apart, &point.run, &args.selection));
        note.into_iter().for_each(|note| say(&note));
        return Ok(front);
    }
    let mut front = front(model, selected, coordinates, &found);
    if front.points.is_empty() {
        return Err(empty(context, args, &front, selected));
    }
    name(context, &mut front)?;
    Ok(front)
}

/// Gives each point the short id of its run.
pub(super) fn name(context: &Context, front: &mut Front) -> Result<(), Failure> {
    let runs: Vec<_> = front.points.iter().map(|point| point.run.id).collect();
    let ids: Vec<String> =
        context.store_as_it_is().read(|reader| runs.iter().map(|run| reader.short(run.0)).collect())?;
    front.points.iter_mut().zip(ids).for_each(|(point, id)| point.id = id);
    Ok(())
}

fn coordinates(args: &Question, model: &str, context: &Context) -> Result<Vec<Coordinate>, Failure> {
    let mut found: Vec<Coordinate> = Vec::new();
    for text in &args.metrics {
        let (metric, direction) = metric_of_model(text, "--metrics", model, context)?;
        if !found.iter().any(|one| one.metric == metric) {
            found.push(Coordinate { metric, unit: String::new(), direction });
        }
    }
    if found.len() < 2 {
        return Err(Failure::new(
            exit::USAGE,
            "--metrics: at least two metrics are needed (`ledger best` ranks by one)",
        ));
    }
    Ok(found)
}

fn empty<T: Asked>(context: &Context, args: &Question, front: &Front, selected: &Selected<T>) -> Failure {
    let model = &front.model;
    let none = |one: &&Coordinate| {
        !selected.trials.iter().any(|trial| trial.measured(&one.metric, &selected.admitted).is_ok())
    };
    let left_out = |one: &Coordinate| count_left_out(&selected.trials, &one.metric, &selected.admitted).1;
    let why = front.coordinates.iter().find(none).and_then(|one| match args.selection.is_everything() {
        true => Some(nothing(context, model, &one.metric, &left_out(one))),
        false => all_tainted(context, model, &one.metric, &left_out(one)),
    });
    why.unwrap_or_else(|| Failure::new(exit::NO, "no matching configuration has a finite value of every metric"))
}

/// Points that are dominated are listed up to this number, those first that are better in the first metric.
const MOST_DOMINATED: usize = 1000;

/// The front of configurations in these metrics.
pub(super) fn front<T: Asked>(
    model: &str,
    selected: &Selected<T>,
    coordinates: Vec<Coordinate>,
    found: &[Configuration<'_, T>],
) -> Front {
    let mut all: Vec<(Vec<f64>, &Configuration<'_, T>)> = Vec::new();
    let mut lacking: BTreeMap<String, usize> = BTreeMap::new();
    for one in found {
        let means: Vec<Option<f64>> =
            coordinates.iter().map(|coordinate| one.mean(&coordinate.metric, &selected.admitted)).collect();
        for (coordinate, _) in coordinates.iter().zip(&means).filter(|(_, mean)| mean.is_none()) {
            *lacking.entry(coordinate.metric.clone()).or_default() += 1;
        }
        all.extend(means.into_iter().collect::<Option<_>>().map(|means| (means, one)));
    }
    let is_up = coordinates[0].direction == Direction::Maximize;
    let run = |one: &Configuration<'_, T>| one.first().map(Asked::run_id);
    all.sort_by(|(a, a_one), (b, b_one)| {
        let order = a[0].total_cmp(&b[0]);
        let order = if is_up { order.reverse() } else { order };
        order.then_with(|| run(a_one).cmp(&run(b_one)))
    });
    let (means, all): (Vec<Vec<f64>>, Vec<&Configuration<'_, T>>) = all.into_iter().unzip();
    let directions: Vec<Direction> = coordinates.iter().map(|one| one.direction).collect();
    let dominated = dominators(&means, &directions);
    let on_front = dominated.iter().filter(|by| by.is_none()).count();
    let by: Vec<String> =
        found.first().map(|one| one.agreed.iter().map(|(name, _)| name.clone()).collect()).unwrap_or_default();
    let firsts: Vec<&T> = all.iter().filter_map(|one| one.first()).collect();
    let fields = if by.is_empty() { analysis::differing_among(&firsts, &selected.names) } else { by };
    let mut beaten = 0;
    let mut points: Vec<FrontPoint> = Vec::new();
    // Where each point of the front stands among those that are listed.
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, (one, by)) in all.iter().zip(&dominated).enumerate() {
        beaten += usize::from(by.is_some());
        if by.is_some() && beaten > MOST_DOMINATED {
            continue;
        }
        if let Some(point) = point(one, &coordinates, selected, &fields) {
            places.insert(at, points.len());
            points.push(FrontPoint { number: at + 1, dominated_by: *by, ..point });
        }
    }
    for point in &mut points {
        point.dominated_by = point.dominated_by.and_then(|by| places.get(&by).copied());
    }
    if points.len() == all.len() {
        let places: Vec<&[Place]> = points.iter().map(|point| point.places.as_slice()).collect();
        let probabilities = front_probabilities(&places, &directions);
        for (point, probability) in points.iter_mut().zip(probabilities.into_iter().flatten()) {
            point.probability = Some(probability);
        }
    }
    let mut left_out: BTreeMap<LeftOut, u64> = BTreeMap::new();
    for trial in &selected.trials {
        let fault = coordinates.iter().find_map(|one| trial.measured(&one.metric, &selected.admitted).err());
        fault.into_iter().for_each(|left| *left_out.entry(left).or_default() += 1);
    }
    let incomplete = Incomplete { configurations: found.len() - all.len(), lacking };
    Front { model: model.to_owned(), coordinates, fields, points, on_front, all: all.len(), incomplete, left_out }
}

/// A configuration that has all metrics, as it is listed.
fn point<T: Asked>(
    one: &Configuration<'_, T>,
    coordinates: &[Coordinate],
    selected: &Selected<T>,
    fields: &[String],
) -> Option<FrontPoint> {
    let (mut places, mut runs) = (Vec::new(), BTreeMap::new());
    let metrics: Vec<&str> = coordinates.iter().map(|coordinate| coordinate.metric.as_str()).collect();
    for (coordinate, contender) in coordinates.iter().zip(one.contenders(&metrics, &selected.admitted)?) {
        runs.insert(&coordinate.metric, contender.run.clone());
        let ordering = Ordering::of(&coordinate.metric, &coordinate.unit, coordinate.direction);
        places.push(place(vec![contender], ordering).pop()?);
    }
    let means = places.iter().map(|one| (one.estimate.mean, one.half_width, one.estimate.attempts)).collect();
    // By whichever metric the front is sorted, a point has one name.
    let run = runs.into_values().next()?;
    let fields = if one.agreed.is_empty() {
        fields.iter().map(|name| analysis::field(&run, None, name)).collect()
    } else {
        one.agreed.iter().map(|(_, value)| value.clone()).collect()
    };
    Some(FrontPoint { id: String::new(), number: 0, run, fields, means, places, probability: None, dominated_by: None })
}
