//! The rankings and figures of each model in a report.

use crate::analysis::{self, Asked, Ordering, configurations, considered, count_left_out, place};
use crate::cli::effects;
use crate::cli::failure::Failure;
use crate::cli::pareto;
use crate::cli::plot::{Head, curved};
use crate::cli::recorded::energy_of;
use crate::cli::selection::{Selected, direction_of, metric_of, recorded_direction, recorded_objective};
use crate::manifest::Manifest;
use crate::record::{AttemptId, Direction, JUDGING_METRICS, known_metric};
use crate::report::{self, Coordinate, Figure, Heat, ModelOf, Over, Ranking, Subject};
use crate::store::{Reader, Store, StoreError};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The default metrics: the first of each group that the model has.
const KINDS: [&[&str]; 3] = [&JUDGING_METRICS, &["energy", "energy_total"], &["train_time", "epoch_time", "wall_time"]];
/// The largest number of places in a ranking; `SINGLE` and `STACKED` limit the attempts in a figure.
const PLACES: usize = 25;
const SINGLE: usize = 4;
const STACKED: usize = 8;
/// The largest number of values on a side of a grid.
const LEVELS: usize = 16;

#[derive(Clone, PartialEq)]
struct Metric {
    name: String,
    direction: Direction,
}

/// The metrics by which models are ranked.
pub(super) struct Judged {
    /// The metrics that are asked for.
    stated: Vec<Metric>,
    /// Otherwise, the objectives of the manifests.
    wanted: Vec<Metric>,
    /// Without manifests, the objective of most attempts of each model.
    recorded: BTreeMap<String, Metric>,
}

impl Judged {
    pub(super) fn new(
        stated: &[String],
        manifests: &[Manifest],
        models: &[String],
        store: &Store,
    ) -> Result<Self, Failure> {
        let mut found = Self { stated: Vec::new(), wanted: Vec::new(), recorded: BTreeMap::new() };
        for text in stated {
            let (name, direction) = metric_of(text, "--metrics").or_else(|failure| -> Result<_, Failure> {
                let of = |reader: &Reader<'_>| -> Result<Vec<_>, StoreError> {
                    models.iter().map(|model| recorded_direction(reader, model, text)).collect()
                };
                let of = store.if_there(of)?.unwrap_or_default();
                let recorded = of.into_iter().flatten().next();
                Ok((text.clone(), direction_of(text, recorded.as_deref()).map_err(|_| failure)?))
            })?;
            found.stated.push(Metric { name, direction });
        }
        if found.stated.is_empty() {
            let objectives = manifests.iter().filter_map(|manifest| manifest.objective.as_ref());
            found.wanted =
                objectives.map(|one| Metric { name: one.metric.clone(), direction: one.direction }).collect();
        }
        if found.stated.is_empty() && manifests.is_empty() {
            let read = |reader: &Reader<'_>| -> Result<BTreeMap<_, _>, StoreError> {
                models.iter().filter_map(|model| objective(reader, model).transpose()).collect()
            };
            found.recorded = store.if_there(read)?.unwrap_or_default();
        }
        Ok(found)
    }

    /// Returns the names of all metrics that may rank a model: these, and the default ones.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let own = self.stated.iter().chain(&self.wanted).chain(self.recorded.values());
        let usual = KINDS.iter().flat_map(|kind| kind.iter().copied()).map(str::to_owned);
        own.map(|metric| metric.name.clone()).chain(usual).collect()
    }

    /// Returns the metrics that are asked for, or else the objectives and the first metric of each default group.
    fn of<T: Asked>(&self, model: &str, selected: &Selected<T>) -> Vec<Metric> {
        let mut found = self.stated.clone();
        if !found.is_empty() {
            return found;
        }
        found.extend(self.wanted.iter().chain(self.recorded.get(model)).cloned());
        let measured =
            |name: &str| selected.trials.iter().any(|trial| trial.measured(name, &selected.admitted).is_ok());
        let has = |name: &str| selected.trials.iter().any(|trial| trial.has(name));
        for kind in KINDS {
            let one = kind.iter().find(|name| measured(name)).or_else(|| kind.iter().find(|name| has(name)));
            let known = one.and_then(|name| known_metric(name));
            found.extend(known.map(|known| Metric { name: known.name.to_owned(), direction: known.direction }));
        }
        let mut names = BTreeSet::new();
        found.retain(|one| names.insert(one.name.clone()));
        found
    }
}

/// Returns a model and its recorded objective.
fn objective(reader: &Reader<'_>, model: &str) -> Result<Option<(String, Metric)>, StoreError> {
    let Some(name) = recorded_objective(reader, model)? else { return Ok(None) };
    let direction = direction_of(&name, recorded_direction(reader, model, &name)?.as_deref()).ok();
    Ok(direction.map(|direction| (model.to_owned(), Metric { name, direction })))
}

/// Returns the part of a report on a model. `at` is the model's number, counted from 0.
pub(super) fn model<T: Asked>(
    (at, model): (usize, &str),
    judged: &Judged,
    selected: &Selected<T>,
    store: &Store,
) -> Result<ModelOf, Failure> {
    let metrics = judged.of(model, selected);
    let mut rankings: Vec<(Ranking, usize)> = metrics.iter().map(|metric| ranking(model, metric, selected)).collect();
    // A ranking without places gives the reason why no attempt counts.
    rankings.retain(|(one, _)| !one.places.is_empty() || !one.left_out.is_empty());
    let figures = figures(model, &metrics, &rankings, selected, store)?;
    let named = figures
        .into_iter()
        .enumerate()
        .map(|(number, (kind, figure))| (format!("{:02}-{:02}-{}-{kind}", at + 1, number + 1, slug(model)), figure));
    Ok(ModelOf { model: model.to_owned(), figures: named.collect(), rankings })
}

/// Returns a name that is valid on every file system.
fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    text.chars().take(40).map(plain).collect()
}

/// Returns the best configurations by a metric, and the number of all configurations.
fn ranking<T: Asked>(model: &str, metric: &Metric, selected: &Selected<T>) -> (Ranking, usize) {
    let found = configurations(&selected.trials, &[]);
    let ranked = selected.ranked(&found, &metric.name, metric.direction);
    let all = ranked.len();
    let shown = ranked.into_iter().take(considered(PLACES));
    let contenders: Vec<_> = shown.filter_map(|one| one.contender(&metric.name, &selected.admitted)).collect();
    let unit = selected.unit(&metric.name);
    let ordering = Ordering { limit: PLACES, ..Ordering::of(&metric.name, &unit, metric.direction) };
    let places = place(contenders, ordering);
    let (counted, left_out) = count_left_out(&selected.trials, &metric.name, &selected.admitted);
    let ranking = Ranking {
        model: model.to_owned(),
        metric: metric.name.clone(),
        unit,
        direction: metric.direction,
        ids: places.iter().map(|place| place.contender.run.id.0.prefix(8)).collect(),
        places,
        counted,
        left_out,
        limited: Vec::new(),
        unmet: Vec::new(),
        searched: Vec::new(),
        versions: Vec::new(),
        tolerance: None,
        baseline: None,
    };
    (ranking, all)
}

/// Returns every figure that has data.
fn figures<T: Asked>(
    model: &str,
    metrics: &[Metric],
    rankings: &[(Ranking, usize)],
    selected: &Selected<T>,
    store: &Store,
) -> Result<Vec<(&'static str, Figure)>, Failure> {
    let mut figures = Vec::new();
    if let Some(front) = front(model, metrics, selected) {
        figures.push(("pareto", front));
    }
    for (ranking, all) in rankings {
        let subject = Subject {
            model,
            metric: &ranking.metric,
            unit: &ranking.unit,
            direction: Some(ranking.direction),
            trials: &selected.trials,
            names: &selected.names,
            admitted: &selected.admitted,
        };
        if *all > 1 {
            figures.extend(report::distribution(&subject, &[]).ok().map(|one| ("distribution", one)));
        }
        figures.extend(report::scaling(&subject, "hardware.gpus").ok().map(|one| ("scaling", one)));
        // Without an axis there are no effects, so no figure is missing.
        let wanted = effects::Wanted { direction: Some(ranking.direction), ..effects::Wanted::default() };
        let Ok(Some((found, values))) = effects::judge(model, &ranking.metric, &wanted, selected) else { continue };
        let small = |at: &&usize| found.factors[**at].levels.len() <= LEVELS;
        let order: Vec<usize> = found.effects.main.iter().map(|effect| effect.factor).collect();
        let largest: Vec<&usize> = order.iter().filter(small).take(2).collect();
        figures.extend(report::effects_figure(&found, &values).ok().map(|one| ("effects", one)));
        if let [y, x] = largest.as_slice() {
            let (x, y) = (&found.factors[**x].name, &found.factors[**y].name);
            figures.extend(report::heat(&subject, &Heat { x, y, best: true }).ok().map(|one| ("heat", one)));
        }
    }
    figures.extend(of_single_attempts(rankings, selected, store)?);
    Ok(figures)
}

fn front<T: Asked>(model: &str, metrics: &[Metric], selected: &Selected<T>) -> Option<Figure> {
    if metrics.len() < 2 {
        return None;
    }
    let coordinate = |one: &Metric| Coordinate {
        metric: one.name.clone(),
        unit: selected.unit(&one.name),
        direction: one.direction,
    };
    let found = configurations(&selected.trials, &[]);
    let front = pareto::front(model, selected, metrics.iter().map(coordinate).collect(), &found);
    if front.points.len() > 1 { report::front_figure(&front).ok() } else { None }
}

/// Returns the figures of the best attempts: curves, and energy by phase.
fn of_single_attempts<T: Asked>(
    rankings: &[(Ranking, usize)],
    selected: &Selected<T>,
    store: &Store,
) -> Result<Vec<(&'static str, Figure)>, Failure> {
    let best: Vec<AttemptId> = match rankings.iter().find(|(ranking, _)| !ranking.places.is_empty()) {
        Some((ranking, _)) => {
            let first = |place: &analysis::Place| place.contender.measured.first().map(|one| one.attempt);
            ranking.places.iter().filter_map(first).take(STACKED).collect()
        }
        // If no attempt counts, the newest are shown. Their labels give the reason.
        None => newest(selected, STACKED),
    };
    let has = |id: &AttemptId| {
        let trial = selected.trials.iter().find(|trial| trial.id() == *id);
        trial.and_then(Asked::record).is_some_and(|(_, attempt)| !attempt.series.is_empty())
    };
    let mut figures = Vec::new();
    let (mut lines, mut stacks) = (Vec::new(), Vec::new());
    let wanted: BTreeSet<String> = ["loss", "eval_loss", "eval_accuracy"].map(str::to_owned).into();
    for id in best.into_iter().filter(has) {
        let Some((sealed, energy)) = store.read(|reader| energy_of(reader, id))? else { continue };
        stacks.push(energy);
        if lines.len() < SINGLE {
            let one = Head { id, run: sealed.run, attempt: sealed.attempt, living: None };
            lines.push(store.read(|reader| curved(reader, &one, Some(&wanted)))?);
        }
    }
    figures.extend(report::curves(&lines, Over::Own).ok().map(|one| ("curves", one)));
    figures.extend(report::energy_figure(&stacks).ok().map(|one| ("energy", one)));
    Ok(figures)
}

/// Returns the attempts that started last, the newest first.
fn newest<T: Asked>(selected: &Selected<T>, most: usize) -> Vec<AttemptId> {
    let mut all: Vec<_> = selected.trials.iter().map(|trial| (Reverse(trial.started_unix_ms()), trial.id())).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, id)| id).take(most).collect()
}
