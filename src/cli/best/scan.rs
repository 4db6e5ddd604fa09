//! Answers a query with conditions: the part that is independent of the attempts' source, and the answer from their
//! records.

use super::{Asked as Query, Stated, baseline, has_none, ids, is_zero, speed, stated_baseline};
use crate::analysis::{Asked, Configuration, Contender, Place, configurations, considered, count_left_out};
use crate::cli::bounds::Bound;
use crate::cli::failure::Failure;
use crate::cli::selection::Selected;
use crate::record::Direction;
use crate::report::{Baseline, Limited, Ranking, Reached, Unmet};
use crate::store::{Reader, Store, StoreError};
use std::collections::BTreeSet;
use std::convert::Infallible;

/// Returns the ranking from all records of the model.
pub(super) fn by_scan(args: &Query<'_>, direction: Direction, store: &Store) -> Result<Ranking, Failure> {
    let selected = args.selection.select_from(store, Some(&args.model))?;
    let names = Asking::of(args, &selected)?;
    let contender = |one: &Configuration<'_>| Ok(one.contender(&args.metric, &selected.admitted));
    let question = Question { args, direction, selected: &selected, names: &names, contender: &contender };
    store.read(|reader| Ok(question.answer(reader, selected.unit(&args.metric))))?
}

/// The full names of the fields and metrics in a query.
pub(super) struct Asking {
    pub(super) by: Vec<String>,
    pub(super) bounds: Vec<Bound>,
}

impl Asking {
    pub(super) fn of<T>(args: &Query<'_>, selected: &Selected<T>) -> Result<Self, Failure> {
        let mut by = selected.full_names(&args.grouping.group_by, "--group-by")?;
        by.extend(args.versions.iter().cloned());
        let bounds = args.bounds.read(|name, option| selected.metric(name, option))?;
        Ok(Self { by, bounds })
    }
}

/// Turns a configuration into one that can be shown.
type Show<'a, T> = dyn Fn(&Configuration<'_, T>) -> Result<Option<Contender>, StoreError> + 'a;

/// A query and the attempts that it selects.
pub(super) struct Question<'a, T> {
    pub(super) args: &'a Query<'a>,
    pub(super) direction: Direction,
    pub(super) selected: &'a Selected<T>,
    pub(super) names: &'a Asking,
    /// Returns the configuration to show, if the metric counts in any of its attempts.
    pub(super) contender: &'a Show<'a, T>,
}

impl<T: Asked> Question<'_, T> {
    pub(super) fn answer(&self, reader: &Reader<'_>, unit: String) -> Result<Ranking, Failure> {
        let Self { args, direction, selected, names, .. } = self;
        let mut found = configurations(&selected.trials, &names.by);
        if args.versions.is_empty() {
            let bounds = names.bounds.iter().map(|bound| bound.metric.as_str());
            let metrics: Vec<&str> = bounds.chain([args.metric.as_str()]).collect();
            let run = |id| reader.run(id);
            let versions = args.grouping.kept_apart(&found, &metrics, &selected.admitted, &run)?;
            if !versions.is_empty() {
                return Ok(Ranking { versions, ..args.ranking(*direction, unit, Vec::new()) });
            }
        }
        let mut unmet = Vec::new();
        for bound in &names.bounds {
            let mean = |one: &Configuration<'_, T>| one.mean(&bound.metric, &selected.admitted);
            let before = found.len();
            let absent = found.iter().filter(|one| mean(one).is_none()).count();
            let nearest = bound.nearest(found.iter().filter_map(mean));
            found.retain(|one| mean(one).is_some_and(|mean| bound.is_met(mean)));
            let is_short = found.is_empty() && before > 0;
            let text = if is_short { format!("{} ({nearest})", bound.text()) } else { bound.text() };
            unmet.push(Unmet { limit: text, configurations: before - found.len(), absent });
        }
        // The index counts in the same way: it includes siblings of an attempt whose value is not finite.
        let counts = |trial: &&&T| trial.measured(&args.metric, &selected.admitted).is_ok();
        let counted = found.iter().map(|one| one.trials.iter().filter(counts).count() as u64).sum();
        let limited = |bound: &Bound| Limited {
            metric: bound.metric.clone(),
            unit: selected.unit(&bound.metric),
            limit: bound.text(),
            of: Vec::new(),
        };
        let mut limited: Vec<Limited> = names.bounds.iter().map(limited).collect();
        let mut contenders = Vec::new();
        let ranked = selected.ranked(&found, &args.metric, *direction);
        for one in ranked.into_iter().take(considered(args.limit())) {
            let Some(contender) = (self.contender)(one)? else { continue };
            for (bound, limited) in names.bounds.iter().zip(&mut limited) {
                let values = one.values(&bound.metric, &selected.admitted);
                let missed = values.iter().filter(|(_, value)| !bound.is_met(*value)).count();
                let attempts = contender.measured.iter().map(|one| one.attempt).collect();
                let mean = one.mean(&bound.metric, &selected.admitted);
                limited.of.extend(mean.map(|mean| Reached { attempts, mean, missed, values: values.len() }));
            }
            contenders.push(contender);
        }
        let speeds = speed::of(contenders.iter().map(|one| &one.run));
        let mut ranking = args.ranking(*direction, unit, contenders);
        ranking.left_out = count_left_out(&selected.trials, &args.metric, &selected.admitted).1;
        ranking.counted = counted;
        ranking.limited = limited;
        ranking.unmet = unmet.into_iter().filter(|one| one.configurations > 0).collect();
        ranking.ids = ids(reader, &ranking.places)?;
        let stated = stated_baseline(reader, args)??;
        ranking.baseline = self.baseline(&found, &ranking.places, (speeds, stated))?;
        if let Some(baseline) = &mut ranking.baseline {
            baseline.id = reader.short(baseline.run.id.0)?;
        }
        Ok(ranking)
    }

    fn baseline(
        &self,
        found: &[Configuration<'_, T>],
        places: &[Place],
        (speeds, stated): (&[&'static str], Option<Stated>),
    ) -> Result<Option<Baseline>, Failure> {
        let Self { args, selected, names, .. } = self;
        let Some(first) = places.first() else { return Ok(None) };
        let own: BTreeSet<_> = first.contender.measured.iter().map(|one| one.attempt).collect();
        let is_first = |one: &Configuration<'_, T>| one.trials.iter().any(|trial| own.contains(&trial.id()));
        let Some(first_one) = found.iter().find(|one| is_first(one)) else { return Ok(None) };
        let mean = |one: &Configuration<'_, T>, metric: &str| one.mean(metric, &selected.admitted);
        let beside = |other: &Configuration<'_, T>, metric: f64, times: &[&'static str], run, what: &str| {
            let common = speed::common(times, |time| Ok::<_, Infallible>((mean(first_one, time), mean(other, time))));
            let time = common.unwrap_or_else(|never| match never {});
            baseline((run, what), (first.estimate.mean, metric), time, is_first(other))
        };
        if let Some(stated) = &stated {
            let group = stated.run.parts.group_id();
            let holds = |one: &&Configuration<'_, T>| one.trials.iter().any(|trial| trial.group() == group);
            // Configurations that the conditions leave out can still be the baseline.
            let all = configurations(selected.trials.iter().chain(&selected.others), &names.by);
            let usable = found.iter().chain(&all).filter(holds).find_map(|one| Some((one, mean(one, &args.metric)?)));
            let beside = usable.map(|(one, metric)| beside(one, metric, speeds, stated.run.clone(), &stated.what));
            match beside {
                Some(Some(found)) => return Ok(Some(found)),
                Some(None) => stated.unusable(&is_zero(args))?,
                None => stated.unusable(&has_none(args))?,
            }
        }
        // A configuration that has the metric but not the time may be the fastest.
        let has_all =
            |time: &&str| found.iter().all(|one| mean(one, &args.metric).is_none() || mean(one, time).is_some());
        let Some(time) = speeds.iter().copied().find(|time| mean(first_one, time).is_some() && has_all(time)) else {
            return Ok(None);
        };
        let timed = found.iter().filter_map(|one| Some((mean(one, time)?, mean(one, &args.metric)?, one)));
        let least = timed.min_by(|(a, ..), (b, ..)| match speed::direction(time) {
            Direction::Minimize => a.total_cmp(b),
            Direction::Maximize => b.total_cmp(a),
        });
        // If several are equally fast, the best counts as the fastest.
        let first_time = mean(first_one, time).zip(mean(first_one, &args.metric));
        let Some((_, metric, fastest)) = least.map(|(least, metric, one)| match first_time {
            Some((of_first, first)) if speed::is_as_fast(time, of_first, least) => (of_first, first, first_one),
            _ => (least, metric, one),
        }) else {
            return Ok(None);
        };
        let is_of = |place: &&Place| {
            let attempt = place.contender.measured.first().map(|one| one.attempt);
            fastest.trials.iter().any(|trial| Some(trial.id()) == attempt)
        };
        let fastest_one = match places.iter().find(is_of) {
            Some(place) => Some(place.contender.clone()),
            None => (self.contender)(fastest)?,
        };
        let Some(fastest_one) = fastest_one else { return Ok(None) };
        Ok(beside(fastest, metric, &[time], fastest_one.run, "the fastest"))
    }
}
