//! The best configuration of each model of a sweep, as `ledger best` returns it.

use super::report;
use crate::analysis::{Ordering, Place, Trial, configurations, count_left_out, place};
use crate::engine::Planned;
use crate::record::{AttemptId, Cell, Direction, GroupId, JUDGING_METRICS, RunId, Value, Why, known_metric};
use crate::report::table_of;
use crate::store::{Reader, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// The best configuration of a model by a metric.
pub(super) struct Best {
    model: String,
    metric: String,
    direction: Direction,
    unit: String,
    /// The configuration, or the reason why there is none.
    found: Result<Found, String>,
}

impl Best {
    /// Returns the command that ranks the configurations, if there is a best one.
    pub(super) fn command(&self) -> Option<String> {
        self.found.as_ref().ok()?;
        Some(format!("best --model {} --metric {}", self.model, self.metric))
    }
}

struct Found {
    /// The run that labels the configuration in `ledger best`; `id` is its displayed id.
    run: RunId,
    id: String,
    place: Place,
}

type Objective = (String, Direction);

/// The objectives of each model's cells; `None` for cells without one.
pub(super) struct Objectives(BTreeMap<String, Vec<Option<Objective>>>);

impl Objectives {
    pub(super) fn of(planned: &[Planned]) -> Self {
        let mut all: BTreeMap<String, Vec<Option<Objective>>> = BTreeMap::new();
        for Planned { bound, .. } in planned {
            let of_model = all.entry(bound.run.model().to_owned()).or_default();
            let stated = objective(&bound.cell);
            if !of_model.contains(&stated) {
                of_model.push(stated);
            }
        }
        Self(all)
    }

    /// Returns the attempts of other runs that belong to the configurations of the planned runs: they differ only in their seeds.
    pub(super) fn siblings(&self, reader: &Reader<'_>, planned: &[Planned]) -> Result<Vec<AttemptId>, StoreError> {
        let groups: BTreeMap<GroupId, &str> =
            planned.iter().map(|one| (one.bound.run.parts.group_id(), one.bound.run.model())).collect();
        let mut found = BTreeSet::new();
        for (group, model) in groups {
            for (metric, _) in self.0.get(model).into_iter().flatten().flat_map(|stated| deciding(stated.as_ref())) {
                found.extend(reader.values(group, &metric)?.into_iter().map(|(id, _)| id));
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Returns the best of each model by each of its objectives. `trials` are all attempts by model.
    pub(super) fn best(
        &self,
        reader: &Reader<'_>,
        trials: &BTreeMap<String, Vec<Trial>>,
    ) -> Result<Vec<Best>, StoreError> {
        let mut all: Vec<Best> = Vec::new();
        for (model, objectives) in &self.0 {
            let own = trials.get(model).map_or(&[] as &[Trial], Vec::as_slice);
            for objective in objectives {
                let Some(best) = best_of(reader, model, objective.as_ref(), own)? else {
                    continue;
                };
                if !all.iter().any(|other| other.is_of_the_same(&best)) {
                    all.push(best);
                }
            }
        }
        Ok(all)
    }
}

fn objective(cell: &Cell) -> Option<Objective> {
    let stated = cell.text("objective.direction")?;
    let direction = [Direction::Minimize, Direction::Maximize].into_iter().find(|one| one.name() == stated)?;
    Some((cell.text("objective.metric")?.to_owned(), direction))
}

/// Returns the metrics that may rank configurations, with their directions: the objective, then the usual ones.
fn deciding(objective: Option<&Objective>) -> Vec<Objective> {
    let known = |name: &str| known_metric(name).map(|metric| (name.to_owned(), metric.direction));
    objective.into_iter().cloned().chain(JUDGING_METRICS.into_iter().filter_map(known)).collect()
}

/// Returns the best by the objective. Without an objective, the first usual metric that any attempt has is used.
fn best_of(
    reader: &Reader<'_>,
    model: &str,
    objective: Option<&Objective>,
    trials: &[Trial],
) -> Result<Option<Best>, StoreError> {
    let nothing = BTreeSet::new();
    for (metric, direction) in &deciding(objective) {
        let contenders = configurations(trials, &[]).iter().filter_map(|one| one.contender(metric, &nothing)).collect();
        let recorded = trials.iter().find_map(|trial| Some(trial.attempt.metrics.get(metric)?.unit.clone()));
        let unit = recorded.or_else(|| super::answer::unit_of(metric)).unwrap_or_default();
        let first = place(contenders, Ordering { limit: 1, ..Ordering::of(metric, &unit, *direction) }).pop();
        let found = match first {
            Some(place) => {
                let run = place.contender.run.id;
                Ok(Found { run, id: reader.short(run.0)?, place })
            }
            // Another metric would hide that this one is unknown.
            None => match why_none(trials, metric, objective.is_some()) {
                Some(why) => Err(why),
                None => continue,
            },
        };
        let (model, metric, direction) = (model.to_owned(), metric.clone(), *direction);
        return Ok(Some(Best { model, metric, direction, unit, found }));
    }
    Ok(None)
}

/// Explains why a metric ranks no attempt. Returns `None` if there are no attempts. A metric that nobody asked for is
/// explained only if it is tainted.
fn why_none(trials: &[Trial], metric: &str, is_asked: bool) -> Option<String> {
    let left_out = count_left_out(trials, metric, &BTreeSet::new()).1;
    let told = |why: Why| {
        let of_kind = || left_out.iter().filter(|(left, _)| left.why == why);
        let reason = of_kind().next()?.0.reason.lines().next().unwrap_or_default();
        let number = of_kind().map(|(_, count)| count).sum::<u64>();
        let attempts = report::count(usize::try_from(number).unwrap_or(usize::MAX), "attempt");
        Some(match why {
            Why::Absent => format!("{attempts} without it"),
            Why::Missing => format!("{attempts} without a value, for example: {reason}"),
            Why::NotFinite => format!("{attempts} without a finite value"),
            Why::Tainted => format!("{attempts} tainted, for example: {reason}"),
            Why::Failed | Why::Interrupted | Why::Hidden => format!("{attempts} {}", why.name()),
        })
    };
    let kinds = Why::ALL.into_iter().filter(|why| is_asked || *why == Why::Tainted);
    let reasons: Vec<String> = kinds.filter_map(told).collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

impl Best {
    fn is_of_the_same(&self, other: &Self) -> bool {
        (&self.model, &self.metric, self.direction) == (&other.model, &other.metric, other.direction)
    }

    /// Describes the best. `label` distinguishes the configuration from others, and is `None` if it is the only one.
    fn text(&self, all: &[Self], missing: usize, label: impl Fn(GroupId) -> Option<String>) -> String {
        let Self { model, metric, direction, unit, found } = self;
        match found {
            Ok(Found { id, place, .. }) => {
                let mean = report::place_text(place, unit);
                let of = match place.estimate.attempts {
                    1 => ", from one attempt".to_owned(),
                    _ if place.estimate.range().is_some_and(|(low, high)| low < high) => {
                        format!(", the range of {}", report::sample_text(place))
                    }
                    _ => format!(", mean of {}", report::sample_text(place)),
                };
                let is_ambiguous = all.iter().filter(|one| (&one.model, &one.metric) == (model, metric)).count() > 1;
                let way = if is_ambiguous { format!(" ({})", direction.name()) } else { String::new() };
                let so_far = match missing {
                    0 => String::new(),
                    _ => format!(" so far ({} not finished)", report::count(missing, "run")),
                };
                let runs: BTreeSet<RunId> = place.contender.measured.iter().map(|one| one.run).collect();
                let text = format!("{metric} {mean}{of}{way}");
                let which = if runs.len() == 1 { "run" } else { "newest run" };
                let text = match label(place.contender.run.parts.group_id()) {
                    Some(label) => format!("{label} with {text} ({which} {id})"),
                    None if runs.len() == 1 => format!("{id} with {text}"),
                    // The value is the mean over all runs of the configuration.
                    None => format!("{text} ({which} {id})"),
                };
                format!("best {model}{so_far}: {text}\n")
            }
            Err(why) => {
                let absent = "without it";
                let fix = if why.ends_with(absent) {
                    " (the program has to print it, or its pattern has to match; the runs then get new ids)"
                } else {
                    ""
                };
                format!("best {model}: none, since no attempt has a usable `{metric}`: {why}{fix}\n")
            }
        }
    }

    fn value(&self) -> Value {
        let mut table = table_of([
            ("model", self.model.as_str().into()),
            ("metric", self.metric.as_str().into()),
            ("direction", self.direction.name().into()),
        ]);
        match &self.found {
            Ok(found) => {
                let estimate = &found.place.estimate;
                let (run, value, n) = (found.run.to_string().into(), estimate.mean.into(), estimate.attempts.into());
                table.extend(table_of([("run", run), ("value", value), ("n", n)]));
                table.insert("sample".to_owned(), report::sample_value(&found.place));
                table.extend(found.place.half_width.map(|half_width| ("half_width".to_owned(), half_width.into())));
            }
            Err(why) => drop(table.insert("why".to_owned(), why.as_str().into())),
        }
        table.into()
    }
}

/// Returns one line per model and metric. `axes` are the fields in which the runs of all models differ.
pub(super) fn best_text(
    all: &[Best],
    planned: &[Planned],
    axes: &[String],
    is_finished: impl Fn(RunId) -> bool,
) -> String {
    let text = |best: &Best| {
        let of_model = || planned.iter().filter(|one| one.bound.run.model() == best.model);
        let differs = |axis: &String| {
            let mut values = of_model().map(|one| one.bound.cell.get(axis));
            let first = values.next();
            values.any(|other| Some(other) != first)
        };
        let own: Vec<String> = axes.iter().filter(|axis| *axis != "seed" && differs(axis)).cloned().collect();
        let label = |group: GroupId| {
            let one = of_model().find(|one| one.bound.run.parts.group_id() == group && !own.is_empty())?;
            Some(report::axes_label(&one.bound.cell, &own, None))
        };
        best.text(all, of_model().filter(|one| !is_finished(one.bound.run.id)).count(), label)
    };
    all.iter().map(text).collect()
}

/// Returns the best configurations as a list.
pub(super) fn best_value(all: &[Best]) -> Value {
    Value::List(all.iter().filter(|best| best.found.is_ok()).map(Best::value).collect())
}

/// Returns the models without a best configuration, with the reasons, as a list.
pub(super) fn without_best_value(all: &[Best]) -> Value {
    Value::List(all.iter().filter(|best| best.found.is_err()).map(Best::value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_objective_precedes_the_usual_metrics() {
        let said = |objective: Option<&Objective>| {
            deciding(objective).into_iter().map(|(name, direction)| format!("{name} {direction:?}")).collect::<Vec<_>>()
        };
        let usual =
            ["accuracy Maximize", "perplexity Minimize", "mean_return Maximize", "eval_loss Minimize", "loss Minimize"];
        assert_eq!(said(None), usual);
        let objective = ("cost".to_owned(), Direction::Minimize);
        assert_eq!(said(Some(&objective)), [&["cost Minimize"], &usual[..]].concat());
    }
}
