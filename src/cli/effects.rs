//! `ledger effects`

mod confounded;
mod versions;

use super::context::Context;
use super::drifted;
use super::failure::{Failure, exit};
use super::selection::{
    Ask, Found, GPUS, OBJECTIVE, OfModel, Selected, Selection, direction_of, nothing, usual_metric,
};
use super::timed_inference;
use crate::analysis::{
    self, Asked, Factor, ModelScale, Observation, Observations, Relation, count_left_out, effects, is_feasible,
    observations,
};
use crate::record::{Attempt, Direction, MetricKind, Names, Value, count, known_metric};
use crate::report::{self, Confounded, Effected};
use confounded::Subject;
use std::collections::{BTreeMap, BTreeSet};

/// Show the effect of each axis of an experiment on a metric, alone and in pairs
///
/// The axes are the identity fields in which the attempts differ, except the seed. An analysis of variance (type
/// II) reports the effect of each axis with its 95% interval, its share of the variance, and its significance.
/// Pairs of axes are tested if repetitions or further axes leave residual degrees of freedom.
///
/// Times, energies, power, bytes and rates are analysed by their logarithm: effects are ratios. Other metrics are
/// analysed as they are: effects are differences, in points for shares.
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
    #[command(flatten)]
    model: OfModel,

    /// The metric [default: the recorded objective]
    #[arg(long, value_name = "X")]
    metric: Option<String>,

    /// Analyse only these fields, without the limits of 8 axes and 24 values
    #[arg(long, value_name = "FIELDS", value_delimiter = ',')]
    axes: Vec<String>,

    /// Analyse the metric itself (linear) or its logarithm (log) [default: log for times, energies, power, bytes and rates]
    #[arg(long, value_name = "SCALE", value_parser = ["linear", "log"])]
    scale: Option<String>,

    /// The better direction of a custom metric
    #[arg(long, value_name = "WAY", value_parser = ["minimize", "maximize"])]
    direction: Option<String>,

    #[command(flatten)]
    selection: Selection,
}

/// What is asked of a metric, beside its name.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    /// The axes; empty for all fields that differ.
    pub(super) axes: &'a [String],
    /// The scale; none for the metric's own.
    pub(super) scale: Option<ModelScale>,
    /// Which way it is better; none for what is known of the metric or was recorded as the objective.
    pub(super) direction: Option<Direction>,
    /// How the attempts were selected, for commands that select some of them.
    pub(super) selection: Option<&'a Selection>,
}

/// A field with more values than this is no axis, unless it is asked for.
const MOST_LEVELS: usize = 24;
/// More axes than this are not judged, unless they are asked for.
const MOST_AXES: usize = 8;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (found, _) = find(&args.question, context)?;
    context.answer(|| report::effects_text(&found), || report::effects_value(&found))?;
    Ok(exit::YES)
}

/// The effects that are asked for, and the observations that they were found from.
pub(super) fn find(args: &Question, context: &Context) -> Result<(Effected, Vec<f64>), Failure> {
    let model = args.model.name(context)?;
    let wanted = match &args.metric {
        Some(metric) => metric.clone(),
        None => usual_metric(&model, context)?,
    };
    let ask = |names: &Selected<()>| {
        let metric = names.metric(&wanted, "--metric")?;
        let axes = names.full_names(&args.axes, "--axes")?;
        let mut fields = names.varied();
        fields.extend(axes);
        fields.extend(OBJECTIVE.map(str::to_owned));
        fields.extend([confounded::IMPORT, Attempt::RERUN_OF].map(str::to_owned));
        fields.extend(versions::fields(&names.names).cloned());
        Ok(Ask { fields, metrics: [metric].into(), of_others: false })
    };
    match args.selection.find(context, &model, &ask)? {
        Found::Briefs(selected) => found(args, (&model, &wanted), &selected, context),
        Found::Records(selected) => found(args, (&model, &wanted), &selected, context),
    }
}

fn found<T: Asked>(
    args: &Question,
    (model, metric): (&str, &str),
    selected: &Selected<T>,
    context: &Context,
) -> Result<(Effected, Vec<f64>), Failure> {
    let metric = selected.metric(metric, "--metric")?;
    let stated = args.direction.as_deref();
    let wanted = Wanted {
        axes: &args.axes,
        scale: args.scale.as_deref().map(|name| if name == "log" { ModelScale::Log } else { ModelScale::Linear }),
        direction: stated.map(|stated| direction_of(&metric, Some(stated))).transpose()?,
        selection: Some(&args.selection),
    };
    let (mut effected, values) = judge(model, &metric, &wanted, selected)?.ok_or_else(|| {
        let left_out = count_left_out(&selected.trials, &metric, &selected.admitted).1;
        nothing(context, model, &metric, &left_out)
    })?;
    let counted = || selected.trials.iter().filter(|trial| trial.measured(&metric, &selected.admitted).is_ok());
    let revisions = counted().filter_map(|trial| trial.field(super::versions::REVISION)?.as_int());
    effected.warnings.extend(timed_inference::other_timing(&metric, model, revisions));
    let reruns = counted().filter(|trial| trial.field(Attempt::RERUN_OF).is_some());
    let reruns = reruns.map(Asked::id).collect();
    let drifted = context.store().read(|reader| drifted::drifted(reader, &reruns))?;
    effected.notes.extend(drifted::note("the analysis", &drifted));
    Ok((effected, values))
}

fn direction_named(name: &str) -> Direction {
    if name == Direction::Maximize.name() { Direction::Maximize } else { Direction::Minimize }
}

/// Observations of an outcome that are copies of one result, as one; what was asked for keeps them apart.
fn joined<'a, T: Asked>(observed: Observations<'a, T>, asked: &[String], names: &Names) -> Observations<'a, T> {
    if observed.kind != MetricKind::Outcome {
        return observed;
    }
    let trials: Vec<&T> = observed.observations.iter().flat_map(|one| one.trials.iter().copied()).collect();
    let fields = analysis::differing_among(&trials, names);
    observed.joined(&fields, asked)
}

/// The effects on a metric, and the observations that they were found from; none without observations.
pub(super) fn judge<T: Asked>(
    model: &str,
    metric: &str,
    wanted: &Wanted<'_>,
    selected: &Selected<T>,
) -> Result<Option<(Effected, Vec<f64>)>, Failure> {
    let asked = selected.full_names(wanted.axes, "--axes")?;
    let observed = observations(&selected.trials, metric, &selected.admitted, &asked);
    let observed = joined(observed, &asked, &selected.names);
    if observed.observations.is_empty() {
        return Ok(None);
    }
    let values = observed.values();
    let unit = selected.unit(metric);
    let scale = scale_of(wanted.scale, &observed, metric, &unit, &values)?;
    let direction = wanted.direction.or_else(|| usual_direction(metric, &observed));
    let names = &selected.names;
    let subject = Subject { model, metric, direction, selection: wanted.selection, observed: &observed, names };
    let analysed: Vec<f64> = values.iter().map(|value| scale.apply(*value)).collect();
    let mut axes = axes(&subject, &asked, &analysed)?;
    let blocks: Option<Factor> = match observed.kind {
        MetricKind::Outcome => subject.seeds(&axes.judged),
        MetricKind::Measured => subject.machines(&mut axes),
    };
    let blocks: Vec<Factor> = blocks.into_iter().chain(subject.versions_as_blocks(&mut axes, &asked)).collect();
    let mut analysed = effects(&axes.judged, &values, scale, direction, &blocks);
    let dependent = subject.depends_on_length().then_some(metric);
    let hides = |found: &analysis::Effects| found.main.iter().any(|effect| effect.contrast.is_none());
    // Without the length of the training, the axes that determine it may have effects of their own.
    if asked.is_empty() && analysed.as_ref().is_some_and(hides) && axes.leave_out_lengths(&blocks, dependent) {
        analysed = effects(&axes.judged, &values, scale, direction, &blocks);
    }
    let length = axes.judged.iter().find(|axis| LENGTHS.contains(&axis.name.as_str())).filter(|_| asked.is_empty());
    if let (Some(length), Some(instead)) = (length, analysis::of_one_sample(metric))
        && dependent.is_some()
        && analysed.as_ref().is_some_and(hides)
    {
        let text = "an axis that cannot be separated from others";
        axes.warnings.push(format!("`{metric}` grows with `{}`, {text} (`{instead}` does not)", length.name));
    }
    let left_out = count_left_out(&selected.trials, metric, &selected.admitted).1;
    let Some(effects) = analysed else {
        let why = if axes.judged.is_empty() { "the attempts differ in no axis" } else { "all values are the same" };
        let left_out = report::left_out_text(&left_out, metric);
        let notes = axes.notes.iter().map(String::as_str).chain(left_out.lines());
        let notes = notes.map(|note| format!("; {note}")).collect::<String>();
        return Err(Failure::new(exit::NO, format!("no effect on `{metric}` can be analysed: {why}{notes}")));
    };
    axes.warnings.extend(versions::differing_by_version(&axes.judged, &values, scale, &blocks));
    let mut nested = subject.nested(&axes.judged, &effects);
    // Of an axis whose values machines determine, that is the reason.
    nested
        .retain(|one| one.with.is_some() || axes.confounded.iter().all(|told| told.with.as_ref() != Some(&one.field)));
    axes.confounded.extend(nested);
    axes.notes.extend(effects.without_pairs.map(|why| format!("pairs of axes are not tested: {why}")));
    axes.notes.extend(empty_cells(&axes.judged));
    if direction.is_none() && axes.judged.iter().any(|axis| axis.is_ordered() && axis.levels.len() > 2) {
        axes.notes.push(format!("no best value is named (`--direction` states which way `{metric}` is better)"));
    }
    let found = Effected {
        model: model.to_owned(),
        unit,
        direction,
        kind: observed.kind,
        blocks: blocks.into_iter().map(|blocks| blocks.name).collect(),
        attempts: observed.attempts(),
        factors: axes.judged,
        effects,
        confounded: axes.confounded,
        warnings: axes.warnings,
        notes: axes.notes,
        left_out,
        metric: metric.to_owned(),
    };
    Ok(Some((found, values)))
}

/// Names the combinations of values that no observation has. `None` if half of them or more are empty, which is no grid.
fn empty_cells(axes: &[Factor]) -> Option<String> {
    /// More are counted only.
    const NAMED: usize = 3;
    let all = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.levels.len()))?;
    let cell = |at: usize| axes.iter().map(|axis| axis.of[at]).collect::<Vec<usize>>();
    let filled: BTreeSet<Vec<usize>> = (0..axes.first()?.of.len()).map(cell).collect();
    if filled.len() == all || 2 * filled.len() <= all {
        return None;
    }
    let grid = axes.iter().fold(vec![Vec::new()], |cells, axis| {
        let with =
            |cell: &Vec<usize>| (0..axis.levels.len()).map(|level| [&cell[..], &[level]].concat()).collect::<Vec<_>>();
        cells.iter().flat_map(with).collect::<Vec<Vec<usize>>>()
    });
    let names = report::short_names(&axes.iter().map(|axis| axis.name.clone()).collect::<Vec<_>>());
    let named = |cell: &Vec<usize>| {
        let levels = axes.iter().zip(&names).zip(cell);
        let word = |((axis, name), level): ((&Factor, &String), &usize)| {
            format!("{name} {}", report::field_text(&axis.name, Some(&axis.levels[*level])))
        };
        levels.map(word).collect::<Vec<_>>().join(" ")
    };
    let mut empty: Vec<String> = grid.iter().filter(|cell| !filled.contains(*cell)).take(NAMED).map(named).collect();
    let (missing, shown) = (all - filled.len(), empty.len());
    empty.extend((missing > shown).then(|| format!("{} more", missing - shown)));
    let verb = if missing == 1 { "has" } else { "have" };
    Some(format!("{missing} of {} {verb} no attempt that counts: {}", count(all, "combination"), empty.join(", ")))
}

/// The scale that is asked for, or the metric's own.
fn scale_of<T>(
    asked: Option<ModelScale>,
    observed: &Observations<'_, T>,
    metric: &str,
    unit: &str,
    values: &[f64],
) -> Result<ModelScale, Failure> {
    let scale = asked.unwrap_or_else(|| ModelScale::of(observed.kind, unit, values));
    if scale.takes(values) {
        return Ok(scale);
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let text = format!(
        "--scale log: `{metric}` has values that are not above 0, such as {} (--scale linear takes them)",
        report::significant(least)
    );
    Err(Failure::new(exit::USAGE, text))
}

/// Which way a metric is better, as it is known or as the newest attempt with it as its objective says.
fn usual_direction<T: Asked>(metric: &str, observed: &Observations<'_, T>) -> Option<Direction> {
    let trials = || observed.observations.iter().flat_map(|one| &one.trials);
    let stated = |trial: &&&T| {
        let is = |name: &str, word: &str| trial.field(name).as_ref().and_then(Value::as_str) == Some(word);
        let direction = || trial.field(OBJECTIVE[1])?.as_str().map(direction_named);
        is(OBJECTIVE[0], metric).then(direction).flatten()
    };
    let recorded = || trials().filter_map(|trial| Some((trial.started_unix_ms(), stated(&trial)?)));
    let newest = || recorded().max_by_key(|(started, _)| *started).map(|(_, direction)| direction);
    known_metric(metric).map(|known| known.direction).or_else(newest)
}

impl<T: Asked> Subject<'_, T> {
    /// Whether the metric is known before the timed inference begins.
    fn is_of_training(&self) -> bool {
        self.observed.kind == MetricKind::Outcome || analysis::is_of_training(self.metric)
    }

    /// Whether a longer training has another value of the metric.
    fn depends_on_length(&self) -> bool {
        let is_known = known_metric(self.metric).is_some();
        self.observed.kind == MetricKind::Outcome || !is_known || analysis::grows_with_samples(self.metric)
    }

    /// Whether attempts of one observation differ in a field.
    fn averages_over(&self, name: &str) -> bool {
        let level = |trial: &T| trial.field(name).as_ref().map(Value::digest);
        let differs = |trials: &[&T]| trials.len() > 1 && trials.iter().any(|trial| level(trial) != level(trials[0]));
        self.observed.observations.iter().any(|one| differs(&one.trials))
    }

    /// Returns the machines of a measured metric as blocks, if some of them made several observations. If each machine ran one value of
    /// an axis only, both are reported as confounded, and the axis has no effect of its own. Axes of devices are the exception, since no
    /// machine can have several of their values. Beside them machines are no blocks, and what differs between machines alone is not tested.
    fn machines(&self, axes: &mut Axes) -> Option<Factor> {
        let machine = |one: &Observation<'_, T>| {
            let machine = one.trials.first()?.replicate().machine;
            (machine != 0).then(|| Value::from(format!("{machine:016x}")))
        };
        let machines: Vec<Value> = self.observed.observations.iter().map(machine).collect::<Option<_>>()?;
        let machines = Factor::new(MACHINE, machines)?;
        let (count, n) = (machines.levels.len(), machines.of.len());
        let names_devices = |axis: &Factor| axis.name == GPUS || axis.name.split('.').next() == Some("device");
        let nested = |axis: &Factor| {
            machines.relation(axis).filter(|relation| matches!(relation, Relation::Equal | Relation::Nested))
        };
        // With one observation on each machine, the observations are independent.
        let is_block = count < n && !axes.judged.iter().any(|axis| names_devices(axis) && nested(axis).is_some());
        for axis in &mut axes.judged {
            let Some(relation) = nested(axis) else { continue };
            axis.is_of_machines = count < n && !is_block;
            axes.confounded.insert(0, self.of_machines(axis, relation, names_devices(axis)));
        }
        is_block.then_some(machines)
    }

    /// The seeds of an outcome as blocks, if each occurs in at least half of the combinations of the axes.
    fn seeds(&self, axes: &[Factor]) -> Option<Factor> {
        if axes.iter().any(|axis| axis.name == SEED) {
            return None;
        }
        let seed = |one: &Observation<'_, T>| {
            let replicate = one.trials.first()?.replicate();
            replicate.is_seeded().then(|| Value::from(replicate.seed.to_string()))
        };
        let seeds: Vec<Value> = self.observed.observations.iter().map(seed).collect::<Option<_>>()?;
        let seeds = Factor::new(SEED, seeds)?;
        let mut combinations: BTreeSet<Vec<usize>> = BTreeSet::new();
        let mut of_seed: BTreeMap<usize, BTreeSet<Vec<usize>>> = BTreeMap::new();
        for (at, seed) in seeds.of.iter().enumerate() {
            let combination: Vec<usize> = axes.iter().map(|axis| axis.of[at]).collect();
            combinations.insert(combination.clone());
            of_seed.entry(*seed).or_default().insert(combination);
        }
        let is_common = of_seed.values().all(|own| 2 * own.len() >= combinations.len());
        (combinations.len() > 1 && is_common).then_some(seeds)
    }
}

/// The field that names the seed.
const SEED: &str = "seed";
/// What the GPUs or the host are called by whose sensors an attempt was measured.
const MACHINE: &str = "machine";

/// The axes that are judged, those that cannot be separated from them, and those that are left out, as sentences.
#[derive(Default)]
struct Axes {
    judged: Vec<Factor>,
    confounded: Vec<Confounded>,
    warnings: Vec<String>,
    notes: Vec<String>,
}

/// `values` are those that are analysed, by which the strongest axes are chosen where there are too many.
fn axes<T: Asked>(subject: &Subject<'_, T>, asked: &[String], values: &[f64]) -> Result<Axes, Failure> {
    let observed = subject.observed;
    let factor = |name: &str| {
        let trials = observed.observations.iter().filter_map(|one| one.trials.first());
        Factor::new(name, trials.map(|trial| trial.field(name).unwrap_or_else(|| "(absent)".into())))
    };
    let trials: Vec<&T> = observed.observations.iter().flat_map(|one| one.trials.iter().copied()).collect();
    let differing = analysis::differing_among(&trials, subject.names);
    let names = if asked.is_empty() { &differing } else { asked };
    let n = observed.observations.len();
    let mut found = Axes::default();
    let follows = following(&differing, asked, &factor);
    if !follows.is_empty() && names.iter().any(|name| name == GPUS) {
        let why = "determined by the number of GPUs and the batch of each; `--axes` analyses them";
        found.notes.push(format!("not analysed: {} ({why})", report::listed_fields(&follows)));
    }
    for name in names.iter().filter(|name| !follows.contains(name)) {
        if asked.is_empty() && subject.averages_over(name) {
            let text =
                "attempts of one seed that differ in it are averaged, or have the same value (`--axes` analyses it)";
            found.notes.push(format!("`{name}` is not analysed: {text}"));
            continue;
        }
        if asked.is_empty() && name.starts_with("inference.") && subject.is_of_training() {
            found
                .notes
                .push(format!("`{name}` is not analysed: inference follows the training (`--axes` analyses it)"));
            continue;
        }
        let Some(factor) = factor(name) else {
            found.notes.push(format!("`{name}` is the same in all attempts"));
            continue;
        };
        let levels = factor.levels.len();
        let other = found.judged.iter().find(|other| is_equal(other, &factor));
        if let Some(other) = other {
            if other.name != factor.name {
                found.confounded.push(subject.equal(&factor, other));
            }
        } else if asked.is_empty() && (levels > MOST_LEVELS || levels > n / 2) {
            let limit = if levels > MOST_LEVELS {
                format!("more than {MOST_LEVELS}")
            } else {
                "too few of each to analyse".to_owned()
            };
            found.notes.push(format!(
                "`{name}` is not analysed: {} in {}, {limit} (`--axes` analyses it)",
                count(levels, "value"),
                count(n, "observation")
            ));
        } else {
            found.judged.push(factor);
        }
    }
    if asked.is_empty() {
        found.keep_the_strongest(values);
    }
    if !asked.is_empty() && !is_feasible(&found.judged) {
        let widest = found.judged.iter().max_by_key(|factor| factor.levels.len());
        let widest = widest.map_or_else(String::new, |factor| {
            format!(": `{}` has {}", factor.name, count(factor.levels.len(), "value"))
        });
        let text = format!(
            "--axes: too many values for {}{widest} (`--where` selects fewer attempts, `--axes` fewer axes)",
            count(n, "observation")
        );
        return Err(Failure::new(exit::USAGE, text));
    }
    let says_nothing = |name: &str| LENGTHS.contains(&name) && !subject.depends_on_length();
    let others: Vec<&String> =
        differing.iter().filter(|name| !asked.contains(name) && !follows.contains(name)).collect();
    let others = if asked.is_empty() { Vec::new() } else { others };
    let free: Vec<String> = others.iter().filter(|name| !says_nothing(name)).map(|name| (*name).clone()).collect();
    if !free.is_empty() {
        let text = "which is not held constant (`--axes` adds axes, `--where` selects attempts)";
        found.notes.push(format!("the attempts also differ in {}, {text}", report::listed_fields(&free)));
    }
    // An axis that was not asked for may be the reason for the effect of one that was.
    for name in others {
        let Some(factor) = factor(name).filter(|_| !subject.averages_over(name)) else { continue };
        if let Some(other) = found.judged.iter().find(|other| is_equal(other, &factor)) {
            found.confounded.push(subject.equal(&factor, other));
            continue;
        }
        // Where each value was observed once, an axis is nested in every other one, which says nothing.
        let is_within = |axis: &&Factor| axis.levels.len() < n && axis.relation(&factor) == Some(Relation::Nested);
        let nested = found.judged.iter().filter(is_within).map(|axis| subject.nested_in(axis, &factor, None));
        found.confounded.extend(nested);
    }
    Ok(found)
}

/// Returns the fields that the number of GPUs and the batch of each determine: how GPUs share a step, and its whole batch.
fn following(differing: &[String], asked: &[String], factor: &dyn Fn(&str) -> Option<Factor>) -> Vec<String> {
    let sources = |name: &str| match name {
        "hardware.parallelism" => vec![GPUS],
        "training.batch_global" => vec![GPUS, "training.batch_size"],
        _ => Vec::new(),
    };
    let follows = |name: &&String| {
        let sources: Vec<Factor> = sources(name).into_iter().filter_map(factor).collect();
        sources.first().is_some_and(|first| first.name == GPUS)
            && factor(name).is_some_and(|own| decide(&sources.iter().collect::<Vec<_>>(), &own))
    };
    differing.iter().filter(|name| !asked.contains(name)).filter(follows).cloned().collect()
}

/// The fields that say how long a training is.
const LENGTHS: [&str; 2] = ["training.steps", "training.epochs"];

impl Axes {
    /// Keeps as many axes as are analysed at once: those that explain most of the variance of these values, each alone
    /// and for its number of levels.
    fn keep_the_strongest(&mut self, values: &[f64]) {
        if self.judged.len() <= MOST_AXES {
            return;
        }
        let mut strongest: Vec<(f64, usize)> =
            self.judged.iter().enumerate().map(|(at, axis)| (axis.explains(values), at)).collect();
        strongest.sort_by(|a, b| b.0.total_cmp(&a.0));
        let kept: BTreeSet<usize> = strongest.iter().take(MOST_AXES).map(|(_, at)| *at).collect();
        let why = "other axes alone explain as much of the variance or more (`--axes` selects)";
        let left = self.judged.iter().enumerate().filter(|(at, _)| !kept.contains(at));
        self.notes.extend(left.map(|(_, axis)| format!("`{}` is not analysed: {MOST_AXES} {why}", axis.name)));
        let mut at = 0;
        self.judged.retain(|_| {
            at += 1;
            kept.contains(&(at - 1))
        });
    }

    /// Removes the number of steps or epochs from the axes if the other axes determine it, or if the metric does not
    /// depend on it. An example is a manifest that gives each batch size its own number of steps: the effects of the
    /// others could not be separated from it. It stays if it equals an axis that is not judged. `dependent`: the
    /// metric, if a longer training changes it. Returns whether anything was removed.
    fn leave_out_lengths(&mut self, blocks: &[Factor], dependent: Option<&str>) -> bool {
        let before = self.judged.len();
        let spare = |axes: &Self| {
            axes.judged
                .iter()
                .enumerate()
                .find_map(|(at, axis)| Some((at, axes.spare_length(axis, dependent.is_some(), blocks)?)))
        };
        while let Some((at, why)) = spare(self) {
            let axis = self.judged.remove(at);
            match dependent {
                Some(metric) => self.warnings.push(length_text(metric, &axis, why)),
                None => self.notes.push(format!("`{}` is not analysed: {why} (`--axes` analyses it)", axis.name)),
            }
            self.confounded.retain(|one| one.field != axis.name && one.with.as_ref() != Some(&axis.name));
        }
        self.judged.len() < before
    }

    /// Says why this length is to be left out; none if it is not.
    fn spare_length(&self, axis: &Factor, is_needed: bool, blocks: &[Factor]) -> Option<&'static str> {
        let equals = |one: &Confounded| one.relation == Some(Relation::Equal) && one.with.as_ref() == Some(&axis.name);
        let stands_for_another = self.confounded.iter().any(|one| one.field != MACHINE && equals(one));
        if stands_for_another || !LENGTHS.contains(&axis.name.as_str()) {
            return None;
        }
        let is_alone = self.judged.len() == 1;
        self.determining(axis, blocks).or((!is_needed && !is_alone).then_some("the metric does not depend on it"))
    }

    /// Says that others determine the axis: the other axes alone, or together with the program's version.
    fn determining(&self, axis: &Factor, blocks: &[Factor]) -> Option<&'static str> {
        let versions: Vec<&Factor> = blocks.iter().filter(|block| block.name == versions::VERSION).collect();
        let others: Vec<&Factor> = self.judged.iter().filter(|other| other.name != axis.name).collect();
        match others.is_empty() {
            true => None,
            false if decide(&others, axis) => Some("the other axes determine it"),
            // An axis that the version alone determines stays: it is reported as confounded with the version.
            false if decide(&versions, axis) => None,
            false => decide(&[others, versions].concat(), axis)
                .then_some("the other axes and the program's version determine it"),
        }
    }
}

/// Warns of a length that is no axis, though the metric depends on it.
fn length_text(metric: &str, length: &Factor, why: &str) -> String {
    let numbers = || length.levels.iter().filter_map(Value::as_int);
    let range = match (numbers().min(), numbers().max()) {
        (Some(least), Some(most)) if least < most => format!(" ({least} to {most})"),
        _ => String::new(),
    };
    let fix = match analysis::of_one_sample(metric) {
        Some(instead) => format!("compare `{instead}` instead"),
        None => "`--axes` analyses it".to_owned(),
    };
    format!("the effects contain that of `{}`{range}, since {why} ({fix})", length.name)
}

/// Whether these determine the axis: each combination of their levels occurs with one level of it.
fn decide(others: &[&Factor], axis: &Factor) -> bool {
    let mut levels: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    let combination = |at: usize| others.iter().map(|other| other.of[at]).collect();
    !others.is_empty()
        && axis.of.iter().enumerate().all(|(at, of)| *levels.entry(combination(at)).or_insert(*of) == *of)
}

/// Whether each level of either axis occurs with one level of the other axis only.
fn is_equal(axis: &Factor, other: &Factor) -> bool {
    axis.levels.len() == other.levels.len() && axis.relation(other) == Some(Relation::Equal)
}

#[cfg(test)]
mod tests;
