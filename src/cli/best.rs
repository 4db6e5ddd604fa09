//! `ledger best`

mod brief;
mod quality;
mod remarks;
mod scan;
pub(super) mod speed;

use self::remarks::remarks;
use self::speed::Speeds;
use super::bounds;
use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::output::say;
use super::selection::{
    Selection, all_tainted, direction_of, meant, nothing, recorded_direction, runs_of, usual_metric,
};
use super::versions::Grouping;
use crate::analysis::{Contender, Measured, Ordering, Place, considered, differing, newest_run, place, saving};
use crate::manifest::nearest;
use crate::record::{Direction, GroupId, MetricKind, Run, RunId, Target, Value, Why, known_metric};
use crate::report::{self, Baseline, Ranking};
use crate::store::{Reader, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Deref};

/// Rank the configurations of a model by a metric, with intervals and tests
///
/// Configurations are ranked by their means over independent units. For an outcome (accuracy, loss) the unit is the
/// seed: attempts of one seed are averaged, and identical executions count once. For a measured metric (time,
/// energy) the unit is the attempt, or the GPU if there are several. `±` is the half-width of the 95% interval
/// (scatter and sensors); two units show their range instead. VS BEST compares each configuration with the first:
/// ratios, or points for shares, with a 95% interval. P(BEST) is the probability of being the best of those shown.
/// Failed, interrupted and hidden attempts are left out and counted, as are those without a finite value. Of tainted
/// attempts only times, energies and other measurements are left out.
///
/// Without --model, every model is ranked. Without --metric, the metric is the objective that most of the model's
/// attempts state.
///
/// Example: ledger best --model mnist_mlp --metric accuracy --where 'optimizer == adam' --top 3
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model [default: each model]
    #[arg(long, value_name = "M")]
    model: Option<String>,

    /// The metric [default: the recorded objective]
    #[arg(long, value_name = "X")]
    metric: Option<String>,

    #[command(flatten)]
    rest: Rest,
}

/// What is asked besides model and metric.
#[derive(Debug, clap::Args)]
struct Rest {
    /// Show at most N configurations
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,

    /// The better direction of a custom metric
    #[arg(long, value_name = "WAY", value_parser = ["minimize", "maximize"])]
    direction: Option<String>,

    #[command(flatten)]
    selection: Selection,

    #[command(flatten)]
    grouping: Grouping,

    #[command(flatten)]
    bounds: bounds::Args,

    /// Also list configurations within this margin of the best: `2%` or `0.02`
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    tolerance: Option<f64>,

    /// Compare the best with another run: `fastest`, or an ID [default: the run tagged `default`, else the fastest]
    #[arg(long, value_name = "ID")]
    against: Option<String>,
}

/// A query: a model, a metric and further options.
struct Asked<'a> {
    model: String,
    metric: String,
    rest: &'a Rest,
    /// Fields that separate the versions of a program into different rows.
    versions: Vec<String>,
}

impl Deref for Asked<'_> {
    type Target = Rest;

    fn deref(&self) -> &Rest {
        self.rest
    }
}

/// The tag of the run that savings are compared with, and from which a search begins.
pub(super) const DEFAULT: &str = "default";

/// Returns the run that is tagged [`DEFAULT`].
pub(super) fn default_run(reader: &Reader<'_>) -> Result<Option<RunId>, StoreError> {
    Ok(match reader.tags()?.get(DEFAULT) {
        Some(Target::Run(id)) => Some(*id),
        Some(Target::Attempt(id)) => reader.attempt(*id)?.map(|attempt| attempt.run),
        None => None,
    })
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let share = number.trim().parse::<f64>().ok().map(|number| number * scale);
    let share = share.filter(|share| share.is_finite() && *share >= 0.0);
    match share.ok_or_else(|| "it must be a share of 0 or more, such as 2%".to_owned())? {
        // A person who writes 5 means 5%.
        large if large >= 1.0 && scale == 1.0 => {
            let (number, percent) = (number.trim(), report::significant(100.0 * large));
            Err(format!("{number} is a share of {percent}% (write {number}% or {percent}%)"))
        }
        share => Ok(share),
    }
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let Some(model) = &args.model else { return every_model(args, context) };
    let asked = match &args.metric {
        Some(metric) => Asked::of(model, metric, &args.rest),
        None => objective(model, args, context)?,
    };
    let (asked, direction) = directed(asked, context)?;
    let ranking = ranked(&asked, direction, context)?;
    if ranking.places.is_empty() {
        return Err(empty(&asked, &ranking, context));
    }
    context.answer(|| report::best_text(&ranking), || report::best_value(&ranking))?;
    remarks(&ranking, &args.rest, context.store(), false)?;
    Ok(exit::YES)
}

/// Ranks each model that has an answer, and prints the reason for each other one.
fn every_model(args: &Args, context: &Context) -> Result<u8, Failure> {
    let models = context.store().read(|reader| {
        let mut models: BTreeSet<String> = reader.ranked_metrics()?.into_keys().collect();
        if models.is_empty() {
            // Each model reports why none of its attempts counts.
            reader.runs(|run| {
                models.insert(run.model().to_owned());
                Ok(())
            })?;
        }
        Ok(models)
    })?;
    let (mut rankings, mut without) = (Vec::new(), Vec::new());
    for model in models {
        let asked = match &args.metric {
            Some(metric) => Ok(Asked::of(&model, metric, &args.rest)),
            None => objective(&model, args, context),
        };
        let answer = asked.and_then(|asked| {
            let (asked, direction) = directed(asked, context)?;
            let ranking = ranked(&asked, direction, context)?;
            if ranking.places.is_empty() { Err(empty(&asked, &ranking, context)) } else { Ok(ranking) }
        });
        match answer {
            Ok(ranking) => rankings.push(ranking),
            Err(failure) => without.push((model, failure)),
        }
    }
    if rankings.is_empty() {
        let none = || {
            Failure::new(
                exit::NO,
                "no model has a finished attempt with a finite metric (`ledger run MANIFEST` makes some)",
            )
        };
        return Err(without.into_iter().next().map_or_else(none, |(_, failure)| failure));
    }
    without.iter().for_each(|(model, failure)| say(&format!("note: {model} is not ranked: {}", failure.source)));
    let text = || rankings.iter().map(report::best_text).collect::<Vec<_>>().join("\n");
    context.answer(text, || {
        let models = rankings.iter().map(|ranking| Value::Table(report::best_value(ranking))).collect();
        [("models".to_owned(), Value::List(models))].into()
    })?;
    rankings.iter().try_for_each(|ranking| remarks(ranking, &args.rest, context.store(), rankings.len() > 1))?;
    Ok(exit::YES)
}

/// Returns the query with the model's usual metric.
fn objective<'a>(model: &str, args: &'a Args, context: &Context) -> Result<Asked<'a>, Failure> {
    Ok(Asked::of(model, &usual_metric(model, context)?, &args.rest))
}

/// Adds the direction in which the metric is better: as stated, as known, or else as the attempts' objective records it.
fn directed<'a>(asked: Asked<'a>, context: &Context) -> Result<(Asked<'a>, Direction), Failure> {
    match direction_of(&asked.metric, asked.direction.as_deref()) {
        Ok(direction) => {
            warn_of_direction(&asked, context)?;
            Ok((asked, direction))
        }
        Err(failure) if known_metric(&asked.metric).is_some() => Err(failure),
        Err(failure) => {
            let (recorded, of_model, left_out) = context.store().read(|reader| {
                let of_model = reader.ranked_metrics()?.remove(&asked.model).unwrap_or_default();
                let left_out = reader.tally(&asked.model, &asked.metric)?.left_out;
                Ok((recorded_direction(reader, &asked.model, &asked.metric)?, of_model, left_out))
            })?;
            let is_there = of_model.contains(&asked.metric);
            let nearest = nearest(&asked.metric, of_model.iter().map(String::as_str));
            let undirected = || {
                let (metric, model) = (&asked.metric, &asked.model);
                let text =
                    format!("`{metric}` of `{model}` has no recorded direction (add --direction minimize or maximize)");
                Failure::new(exit::USAGE, text)
            };
            let is_recorded = left_out.keys().any(|left| matches!(left.why, Why::NotFinite | Why::Missing));
            let fault = |_| match nearest {
                _ if is_there => undirected(),
                _ if is_recorded => nothing(context, &asked.model, &asked.metric, &left_out),
                Some(nearest) => {
                    let text = format!(
                        "no attempt of `{}` that counts has `{}` (did you mean `{nearest}`? For a custom metric add --direction minimize or maximize)",
                        asked.model, asked.metric
                    );
                    Failure::new(exit::USAGE, text)
                }
                None if meant(&asked.metric).is_some() || of_model.is_empty() => failure,
                None => Failure { code: exit::USAGE, ..nothing(context, &asked.model, &asked.metric, &left_out) },
            };
            let direction = direction_of(&asked.metric, recorded.as_deref()).map_err(fault)?;
            Ok((asked, direction))
        }
    }
}

/// Warns of a stated direction that is not the one that most attempts with this objective record.
fn warn_of_direction(asked: &Asked<'_>, context: &Context) -> Result<(), Failure> {
    let (model, metric) = (&asked.model, &asked.metric);
    let Some(stated) = asked.direction.as_deref().filter(|_| known_metric(metric).is_none()) else { return Ok(()) };
    let recorded = context.store().read(|reader| recorded_direction(reader, model, metric))?;
    if let Some(recorded) = recorded.filter(|recorded| recorded != stated) {
        say(&format!(
            "warning: most attempts of `{model}` with the objective `{metric}` record {recorded} (leave --direction out)"
        ));
    }
    Ok(())
}

fn ranked(args: &Asked<'_>, direction: Direction, context: &Context) -> Result<Ranking, Failure> {
    let ranking = ranked_once(args, direction, context).map_err(|failure| {
        // Without runs every field has an unknown name, but the model is what is wrong.
        let is_of_no_run = failure.code == exit::USAGE && runs_of(context, &args.model) == 0;
        if is_of_no_run { nothing(context, &args.model, &args.metric, &BTreeMap::new()) } else { failure }
    })?;
    if ranking.versions.is_empty() {
        return Ok(ranking);
    }
    let apart = Asked { versions: ranking.versions, ..Asked::of(&args.model, &args.metric, args.rest) };
    let ranking = ranked_once(&apart, direction, context)?;
    Ok(Ranking { versions: apart.versions, ..ranking })
}

/// Returns the ranking, or only the fields that are needed to separate versions of a program.
fn ranked_once(args: &Asked<'_>, direction: Direction, context: &Context) -> Result<Ranking, Failure> {
    let is_plain = args.selection.is_everything() && args.grouping.group_by.is_empty() && args.bounds.is_empty();
    let store = context.store();
    // Older indexes contain attempts that do not count, and no index converts units.
    let (is_behind, is_uniform) = (store.is_behind()?, has_one_unit_each(store, &args.model)?);
    match (is_plain && !is_behind, is_behind || is_uniform) {
        (_, false) => scan::by_scan(args, direction, store),
        (true, _) => by_index(args, direction, store),
        (false, _) => by_condition(args, direction, store),
    }
}

/// Whether every metric of the model has one unit, so that its values can be compared without conversion.
fn has_one_unit_each(store: &Store, model: &str) -> Result<bool, Failure> {
    Ok(store.if_there(|reader| reader.has_one_unit_each(model))?.unwrap_or(true))
}

/// Answers a query with conditions from the indexes, or from the records if the indexes do not suffice.
fn by_condition(args: &Asked<'_>, direction: Direction, store: &Store) -> Result<Ranking, Failure> {
    match store.read(|reader| brief::by_briefs(reader, store, args, direction)) {
        // If the indexes do not decode, the records still do; `verify` reports the fault.
        Err(StoreError::Wire(_)) => scan::by_scan(args, direction, store),
        answer => match answer?? {
            Some(ranking) => Ok(ranking),
            None => scan::by_scan(args, direction, store),
        },
    }
}

fn empty(args: &Asked<'_>, ranking: &Ranking, context: &Context) -> Failure {
    let unmet: usize = ranking.unmet.iter().map(|one| one.configurations).sum();
    if unmet > 0 {
        let limits: Vec<&str> = ranking.unmet.iter().map(|one| one.limit.as_str()).collect();
        return Failure::new(
            exit::NO,
            format!(
                "no configuration has {} and a finite `{}` ({} left out)",
                limits.join(" and "),
                args.metric,
                report::count(unmet, "configuration")
            ),
        );
    }
    if let Some(failure) = all_tainted(context, &args.model, &args.metric, &ranking.left_out) {
        return failure;
    }
    if !args.selection.is_everything() && ranking.counted == 0 {
        let failure = "no attempt matches, or none has a finite value of this metric";
        let text = format!("{failure} (`--include` adds failed, tainted and hidden attempts)");
        return Failure::new(exit::NO, text);
    }
    nothing(context, &args.model, &args.metric, &ranking.left_out)
}

impl Rest {
    fn limit(&self) -> usize {
        usize::try_from(self.top).unwrap_or(usize::MAX)
    }
}

impl<'a> Asked<'a> {
    fn of(model: &str, metric: &str, rest: &'a Rest) -> Self {
        Self { model: model.to_owned(), metric: metric.to_owned(), rest, versions: Vec::new() }
    }

    fn ordering(&self, direction: Direction, unit: &str) -> Ordering {
        Ordering { limit: self.limit(), tolerance: self.tolerance, ..Ordering::of(&self.metric, unit, direction) }
    }

    /// Ranks these configurations. If some are not shown, the fields in which they differ are still columns.
    fn ranking(&self, direction: Direction, unit: String, contenders: Vec<Contender>) -> Ranking {
        let is_grouped = contenders.iter().any(|one| !one.agreed.is_empty());
        let many = contenders.len();
        let mut searched = differing(&contenders.iter().map(|one| &one.run).collect::<Vec<_>>());
        let places = place(contenders, self.ordering(direction, &unit));
        if is_grouped || places.len() == many {
            searched.clear();
        }
        Ranking {
            model: self.model.clone(),
            metric: self.metric.clone(),
            unit,
            direction,
            places,
            ids: Vec::new(),
            counted: 0,
            left_out: BTreeMap::new(),
            limited: Vec::new(),
            unmet: Vec::new(),
            tolerance: self.tolerance,
            baseline: None,
            searched,
            versions: Vec::new(),
        }
    }
}

/// The run given by `--against` or by the tag [`DEFAULT`].
struct Stated {
    run: Run,
    what: String,
    /// Whether `--against` gave it. If only the tag did, it may be unusable without an error.
    is_asked: bool,
}

/// Returns the run that the best is compared with. Returns `None` if that is the fastest.
fn stated_baseline(reader: &Reader<'_>, args: &Asked<'_>) -> Result<Result<Option<Stated>, Failure>, StoreError> {
    let (id, what) = match args.against.as_deref() {
        Some("fastest") => return Ok(Ok(None)),
        Some(text) => match context::resolve_run(reader, text)? {
            Ok(id) => (id, text.to_owned()),
            Err(_) if text == DEFAULT => {
                let text = format!("--against: no run is tagged `{DEFAULT}` (`ledger tag ID {DEFAULT}` tags one)");
                return Ok(Err(Failure::new(exit::USAGE, text)));
            }
            Err(failure) => return Ok(Err(failure)),
        },
        None => match default_run(reader)? {
            Some(id) => (id, "the default".to_owned()),
            None => return Ok(Ok(None)),
        },
    };
    let run = reader.run(id)?;
    let is_asked = args.against.is_some();
    let is_comparable = run.as_ref().is_some_and(|run| run.model() == args.model);
    if !is_comparable && is_asked {
        return Ok(Err(Failure::new(exit::USAGE, format!("--against: run `{what}` is not of model `{}`", args.model))));
    }
    Ok(Ok(run.filter(|_| is_comparable).map(|run| Stated { run, what, is_asked })))
}

impl Stated {
    /// Reports that this run cannot be compared with: an error if `--against` gave it, else a note that the fastest is used.
    fn unusable(&self, why: &str) -> Result<(), Failure> {
        if self.is_asked {
            return Err(Failure::new(exit::NO, format!("--against: run `{}` {why}", self.what)));
        }
        say(&format!("note: the run tagged `{DEFAULT}` {why}; the best is compared with the fastest instead"));
        Ok(())
    }
}

/// Compares the best with the run `run`. Returns `None` if the baseline's metric is 0, because no ratio can be computed.
fn baseline((run, what): (Run, &str), metric: (f64, f64), time: Option<Speeds>, is_first: bool) -> Option<Baseline> {
    let saving = if is_first { None } else { Some(saving(metric, time.map(|(_, both)| both))?) };
    let time = time.map(|(name, _)| name.to_owned());
    Some(Baseline { id: String::new(), run, what: what.to_owned(), time, saving })
}

/// Answers a query without conditions from the ordered index. Reads only the configurations that are shown.
fn by_index(args: &Asked<'_>, direction: Direction, store: &Store) -> Result<Ranking, Failure> {
    store.read(|reader| {
        let mut contenders = Vec::new();
        let known = known_metric(&args.metric).map(|known| known.unit.to_owned());
        let mut unit = known.clone().unwrap_or_default();
        for ranked in reader.best(&args.model, &args.metric, direction, considered(args.limit()))? {
            let found = indexed(reader, ranked.group, &args.metric)?;
            contenders.extend(found.map(|(contender, recorded)| {
                if known.is_none() && !recorded.is_empty() {
                    unit = recorded;
                }
                contender
            }));
        }
        let speeds = speed::of(contenders.iter().map(|one| &one.run));
        let mut ranking = args.ranking(direction, unit, contenders);
        ranking.ids = ids(reader, &ranking.places)?;
        let tally = reader.tally(&args.model, &args.metric)?;
        ranking.counted = tally.counted;
        ranking.left_out = tally.left_out;
        match stated_baseline(reader, args)? {
            Ok(stated) => match indexed_baseline(reader, args, &ranking.places, (speeds, stated))? {
                Ok(found) => ranking.baseline = found,
                Err(failure) => return Ok(Err(failure)),
            },
            Err(failure) => return Ok(Err(failure)),
        }
        if let Some(baseline) = &mut ranking.baseline {
            baseline.id = reader.short(baseline.run.id.0)?;
        }
        Ok(Ok(ranking))
    })?
}

/// Returns a configuration from the index, and the metric's unit. Returns `None` if none of its attempts can be read.
fn indexed(reader: &Reader<'_>, group: GroupId, metric: &str) -> Result<Option<(Contender, String)>, StoreError> {
    let (mut measured, mut unit, mut kind) = (Vec::new(), String::new(), MetricKind::Outcome);
    for (id, value) in reader.values(group, metric)? {
        let Some(attempt) = reader.readable(id)? else { continue };
        let Some(run) = reader.run(attempt.run)? else { continue };
        kind = kind.max(attempt.metric_kind(metric));
        unit = attempt.metrics.get(metric).map_or(unit, |metric| metric.unit.clone());
        measured.push(Measured::of(id, &run, &attempt, metric, value));
    }
    let run = newest_run(&measured).map(|run| reader.run(run)).transpose()?.flatten();
    Ok(run.map(|run| (Contender { run, agreed: Vec::new(), kind, measured }, unit)))
}

fn ids(reader: &Reader<'_>, places: &[Place]) -> Result<Vec<String>, StoreError> {
    places.iter().map(|place| reader.short(place.contender.run.id.0)).collect()
}

fn indexed_baseline(
    reader: &Reader<'_>,
    args: &Asked<'_>,
    places: &[Place],
    (speeds, stated): (&[&'static str], Option<Stated>),
) -> Result<Result<Option<Baseline>, Failure>, StoreError> {
    let Some(first) = places.first() else { return Ok(Ok(None)) };
    let group = first.contender.run.parts.group_id();
    let mean = |group: GroupId, metric: &str| reader.mean(group, metric);
    let beside = |run: Run, times: &[&'static str], what: &str| -> Result<Option<Option<Baseline>>, StoreError> {
        let other = run.parts.group_id();
        let Some(metric) = mean(other, &args.metric)? else { return Ok(None) };
        let time = speed::common(times, |time| Ok::<_, StoreError>((mean(group, time)?, mean(other, time)?)))?;
        Ok(Some(baseline((run, what), (first.estimate.mean, metric), time, other == group)))
    };
    if let Some(stated) = stated {
        let why = match beside(stated.run.clone(), speeds, &stated.what)? {
            Some(Some(found)) => return Ok(Ok(Some(found))),
            Some(None) => is_zero(args),
            None => has_none(args),
        };
        if let Err(failure) = stated.unusable(&why) {
            return Ok(Err(failure));
        }
    }
    for time in speeds {
        if let Some(own) = mean(group, time)? {
            let Some(run) = fastest(reader, args, time)? else { continue };
            // If several are equally fast, the best counts as the fastest.
            let is_first = mean(run.parts.group_id(), time)?.is_some_and(|least| speed::is_as_fast(time, own, least));
            let run = if is_first { first.contender.run.clone() } else { run };
            return Ok(Ok(beside(run, &[*time], "the fastest")?.flatten()));
        }
    }
    Ok(Ok(None))
}

fn has_none(args: &Asked<'_>) -> String {
    format!("has no `{}` that counts", args.metric)
}

fn is_zero(args: &Asked<'_>) -> String {
    format!("has a `{}` of 0, so no ratio can be computed", args.metric)
}

/// Returns the fastest configuration that has the metric. Returns `None` if an attempt has the metric and not the time: it may be faster.
fn fastest(reader: &Reader<'_>, args: &Asked<'_>, time: &str) -> Result<Option<Run>, StoreError> {
    if reader.counted(&args.model, time)? < reader.counted(&args.model, &args.metric)? {
        return Ok(None);
    }
    let mut found = None;
    reader.walk(&args.model, time, speed::direction(time), &mut |ranked| {
        let values = reader.values(ranked.group, &args.metric)?;
        if values.is_empty() || values.iter().any(|(_, value)| !value.is_finite()) {
            return Ok(ControlFlow::Continue(()));
        }
        found = indexed(reader, ranked.group, &args.metric)?.map(|(contender, _)| contender.run);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}
