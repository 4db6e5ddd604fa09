//! The selection of attempts: the arguments that several commands share, and the attempts that they select.

mod brief;
mod objective;

pub(super) use brief::{Ask, BriefTrial, select as select_briefs};
pub(super) use objective::{
    OBJECTIVE, direction_of, meant, metric_of, metric_of_model, recorded_direction, recorded_objective, usual_metric,
};

use super::context::Context;
use super::failure::{Failure, exit};
use crate::analysis::expr::{Expr, full_name};
use crate::analysis::{Asked, Configuration, Factor, Names, Trial, is_varied, names, unify_by_model};
use crate::manifest::nearest;
use crate::record::{AttemptId, Digest, Direction, LeftOut, Part, Value, Why, known_metric};
use crate::report::{plain, significant};
use crate::store::{Reader, Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;

/// Arguments that select attempts.
#[derive(Debug, clap::Args)]
pub(super) struct Selection {
    /// Only attempts whose fields and metrics match: `gpus <= 2 and precision == "bf16" and batch_size >= 64`
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,

    /// Only attempts on N GPUs; 0 is the CPU alone
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,

    /// Include attempts that are left out by default: failed, interrupted, tainted, hidden
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = ["failed", "interrupted", "tainted", "hidden"])]
    include: Vec<String>,
}

/// The argument that names the model of a question.
#[derive(Debug, clap::Args)]
pub(super) struct OfModel {
    /// The model [default: the only model of the ledger]
    #[arg(long, value_name = "M")]
    model: Option<String>,
}

impl OfModel {
    /// Returns the named model, or the only one in the ledger.
    ///
    /// # Errors
    /// If none is named and there are several, or none.
    pub(super) fn name(&self, context: &Context) -> Result<String, Failure> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        let mut models = context.store().read(|reader| reader.models())?;
        match (models.pop(), models.as_slice()) {
            (Some(only), []) => Ok(only),
            (None, _) => Err(Failure::new(exit::NO, "the ledger has no attempts (`ledger run MANIFEST` makes some)")),
            (Some(last), first) => {
                let text = format!("--model is needed: the ledger has the models {} and {last}", first.join(", "));
                Err(Failure::new(exit::USAGE, text))
            }
        }
    }
}

/// The selected attempts.
pub(super) struct Selected<T = Trial> {
    /// The attempts that match.
    pub(super) trials: Vec<T>,
    /// The attempts that do not.
    pub(super) others: Vec<T>,
    /// The names that any attempt of the model has.
    pub(super) names: Names,
    /// The reasons that do not exclude an attempt here.
    pub(super) admitted: BTreeSet<Why>,
}

/// Attempts from the indexes or from the records.
pub(super) enum Found {
    Briefs(Selected<BriefTrial>),
    Records(Selected),
}

impl Selection {
    /// Whether every attempt that counts is selected.
    pub(super) fn is_everything(&self) -> bool {
        self.condition.is_none() && self.gpus.is_none() && self.include.is_empty()
    }

    /// Whether the condition contains this name.
    pub(super) fn mentions(&self, name: &str) -> bool {
        let is_of_name = |c: char| c.is_alphanumeric() || "._@".contains(c);
        self.condition.as_ref().is_some_and(|text| text.split(|c| !is_of_name(c)).any(|word| word == name))
    }

    /// Whether attempts are included that do not count otherwise.
    pub(super) fn takes_in_more(&self) -> bool {
        !self.include.is_empty()
    }

    /// Returns the condition that attempts have to meet.
    pub(super) fn condition(&self, names: &Names) -> Result<Condition, Failure> {
        let wrong = |error| Failure::new(exit::USAGE, format!("--where: {error}"));
        let parse = |text: &String| Expr::parse_in(text, &names.tiers()).map_err(wrong);
        Ok(Condition { expr: self.condition.as_ref().map(parse).transpose()?, gpus: self.gpus.map(i64::from) })
    }

    /// Describes the selection in words that follow "attempts". Returns `None` if nothing is selected explicitly.
    pub(super) fn words(&self) -> Option<String> {
        let condition = self.condition.as_ref().map(|text| format!("where {}", text.trim()));
        let gpus =
            self.gpus.map(|gpus| format!("on {}", crate::report::count(gpus.try_into().unwrap_or(usize::MAX), "GPU")));
        let include =
            (!self.include.is_empty()).then(|| format!("including those that are {}", self.include.join(", ")));
        let words: Vec<String> = condition.into_iter().chain(gpus).chain(include).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Returns the arguments that select the same attempts, restricted by one more condition.
    pub(super) fn arguments(&self, more: Option<&str>) -> Vec<String> {
        let condition = match (self.condition.as_ref(), more) {
            (Some(text), Some(more)) => Some(format!("({text}) and {more}")),
            (text, more) => text.map(ToString::to_string).or(more.map(str::to_owned)),
        };
        let mut arguments: Vec<String> = condition.into_iter().flat_map(|text| ["--where".to_owned(), text]).collect();
        arguments.extend(self.gpus.iter().flat_map(|gpus| ["--gpus".to_owned(), gpus.to_string()]));
        if !self.include.is_empty() {
            arguments.extend(["--include".to_owned(), self.include.join(",")]);
        }
        arguments
    }

    /// Returns the matching attempts of a model from the indexes, or from the records if the indexes do not suffice.
    pub(super) fn find(
        &self,
        context: &Context,
        model: &str,
        ask: &dyn Fn(&Selected<()>) -> Result<Ask, Failure>,
    ) -> Result<Found, Failure> {
        let store = context.store();
        let ask = |names: &Selected<()>| ask(names).ok();
        match store.if_there(|reader| select_briefs(reader, store, self, model, &ask)) {
            Ok(Some(Some(selected))) => Ok(Found::Briefs(selected)),
            // If the indexes do not decode, the records still do; `verify` reports the fault.
            Ok(_) | Err(StoreError::Wire(_)) => {
                let selected = self.select_from(store, Some(model))?;
                // Without attempts every field has an unknown name, but the model is what is wrong.
                if selected.trials.is_empty() && selected.others.is_empty() {
                    return Err(nothing(context, model, "", &BTreeMap::new()));
                }
                Ok(Found::Records(selected))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the attempts of a model, or of all models, and keeps those that match.
    pub(super) fn select(&self, context: &Context, model: Option<&str>) -> Result<Selected, Failure> {
        self.select_from(context.store(), model)
    }

    /// Like [`select`](Self::select), from an open ledger.
    pub(super) fn select_from(&self, store: &Store, model: Option<&str>) -> Result<Selected, Failure> {
        self.select_of(read_trials(store, model)?)
    }

    /// Keeps the attempts that match.
    pub(super) fn select_of(&self, mut trials: Vec<Trial>) -> Result<Selected, Failure> {
        unify_by_model(&mut trials);
        let names = names(&trials);
        let (trials, others) = self.filter(trials, &names)?;
        let named = |why: &Why| self.include.iter().any(|kind| kind == why.name());
        Ok(Selected { trials, others, names, admitted: Why::ALL.into_iter().filter(named).collect() })
    }

    /// Returns the attempts that match, and those that do not.
    fn filter(&self, trials: Vec<Trial>, names: &Names) -> Result<(Vec<Trial>, Vec<Trial>), Failure> {
        let (trials, mut others) = match &self.condition {
            Some(text) => parted(trials, text, names)?,
            None => (trials, Vec::new()),
        };
        let Some(wanted) = self.gpus else { return Ok((trials, others)) };
        let is_wide = |trial: &Trial| trial.field(GPUS).and_then(|value| value.as_int()) == Some(i64::from(wanted));
        let (wide, of_others): (Vec<Trial>, Vec<Trial>) = trials.into_iter().partition(is_wide);
        if wide.is_empty() && !of_others.is_empty() {
            let condition = Expr::parse_in(&format!("{GPUS} == {wanted}"), &[&[GPUS.to_owned()].into()]);
            let condition = condition.map_err(|error| Failure::new(exit::USAGE, format!("--gpus: {error}")))?;
            return Err(no_match("--gpus", &of_others, &Trial::field, &condition));
        }
        others.extend(of_others);
        Ok((wide, others))
    }
}

/// The field with the number of GPUs that share a step.
pub(super) const GPUS: &str = "hardware.gpus";

/// The condition on attempts: an expression and a number of GPUs.
pub(super) struct Condition {
    expr: Option<Expr>,
    gpus: Option<i64>,
}

impl Condition {
    /// Returns the full names of its fields.
    pub(super) fn fields(&self) -> BTreeSet<String> {
        let fields = self.expr.iter().flat_map(Expr::fields);
        fields.chain(self.gpus.map(|_| GPUS)).map(str::to_owned).collect()
    }

    /// Whether the values meet it.
    pub(super) fn matches(&self, lookup: &dyn Fn(&str) -> Option<Value>) -> bool {
        let is_wide = || lookup(GPUS).and_then(|value| value.as_int()) == self.gpus;
        (self.gpus.is_none() || is_wide()) && self.expr.as_ref().is_none_or(|expr| expr.matches(lookup))
    }
}

/// Returns the attempts that meet the condition of `--where`, and those that do not.
pub(super) fn parted(trials: Vec<Trial>, text: &str, names: &Names) -> Result<(Vec<Trial>, Vec<Trial>), Failure> {
    let wrong = |error| Failure::new(exit::USAGE, format!("--where: {error}"));
    let condition = Expr::parse_in(text, &names.tiers()).map_err(wrong)?;
    let matching = |trial: &Trial| condition.matches(&|name| trial.field(name));
    if !trials.is_empty() && !trials.iter().any(matching) {
        let fault = trials.iter().find_map(|trial| condition.check(&|name| trial.field(name)).err());
        return Err(fault.map_or_else(|| no_match("--where", &trials, &Trial::field, &condition), wrong));
    }
    Ok(trials.into_iter().partition(matching))
}

/// Names a model that does not occur, what may be meant, and the models that occur.
pub(super) fn unknown_model(model: &str, known: &[&str]) -> String {
    let begins = || known.iter().copied().find(|name| name.starts_with(model));
    let meant = nearest(model, known.iter().copied()).or_else(begins);
    let meant = meant.map_or_else(String::new, |meant| format!("did you mean `{meant}`? "));
    format!("model `{model}` ({meant}there are: {})", known.join(", "))
}

/// Returns the failure if no attempt matches. It names a part of the condition that none meets, and the values that exist.
pub(super) fn no_match<T>(
    argument: &str,
    attempts: &[T],
    lookup: &dyn Fn(&T, &str) -> Option<Value>,
    condition: &Expr,
) -> Failure {
    /// The largest number of values that are listed.
    const LISTED: usize = 6;
    let text = match condition.unmet(attempts, lookup) {
        None => format!("no attempt meets `{}`", condition.text().trim()),
        Some((part, field)) => {
            let values = Factor::new(field, attempts.iter().filter_map(|attempt| lookup(attempt, field)));
            let only = || attempts.iter().find_map(|attempt| lookup(attempt, field)).into_iter().collect();
            let values = values.map_or_else(only, |values| values.levels);
            let shown = |value: &Value| match value {
                Value::Float(number) => significant(*number),
                other => plain(&other.to_string()),
            };
            let mut listed: Vec<String> = values.iter().take(LISTED).map(shown).collect();
            if let (true, [first, .., last]) = (values.len() > LISTED, values.as_slice()) {
                listed = match (first.as_float(), last.as_float()) {
                    (Some(least), Some(most)) => vec![format!("{} to {}", significant(least), significant(most))],
                    _ => [listed, vec![format!("and {} more", values.len() - LISTED)]].concat(),
                };
            }
            match listed.is_empty() {
                true => format!("no attempt meets `{part}`: none has `{field}`"),
                false => format!("no attempt meets `{part}` (`{field}` is {})", listed.join(", ")),
            }
        }
    };
    Failure::new(exit::NO, format!("{argument}: {text}"))
}

impl<T> Selected<T> {
    /// Returns the fields of the identity that a person varies.
    pub(super) fn varied(&self) -> BTreeSet<String> {
        self.names.identity.iter().filter(|name| is_varied(name)).cloned().collect()
    }

    /// Returns the full name of a field that a person named.
    pub(super) fn full_name(&self, name: &str, argument: &str) -> Result<String, Failure> {
        full_name(name, &self.names.tiers()).map_err(|error| Failure::new(exit::USAGE, format!("{argument}: {error}")))
    }

    /// Returns the full names of fields that a person named, each once.
    pub(super) fn full_names(&self, names: &[String], argument: &str) -> Result<Vec<String>, Failure> {
        let mut found: Vec<String> = Vec::new();
        for name in names {
            let full = self.full_name(name, argument)?;
            self.has_one_value(&full, argument)?;
            if self.names.metrics.contains(&full) {
                let text = format!("{argument}: `{full}` is a metric (name a field, such as `training.batch_size`)");
                return Err(Failure::new(exit::USAGE, text));
            }
            if !found.contains(&full) {
                found.push(full);
            }
        }
        Ok(found)
    }

    /// Refuses the name of a part of the identity that is a table, because only its fields have values.
    fn has_one_value(&self, name: &str, argument: &str) -> Result<(), Failure> {
        const LISTED: usize = 3;
        let start = format!("{name}.");
        let fields = self.names.identity.iter().filter(|field| field.starts_with(&start));
        let fields: Vec<String> = fields.take(LISTED).map(|field| format!("`{field}`")).collect();
        if fields.is_empty() || name.parse::<Part>().is_err() {
            return Ok(());
        }
        let text = format!("{argument}: `{name}` has several fields (name one of them, such as {})", fields.join(", "));
        Err(Failure::new(exit::USAGE, text))
    }

    /// Returns the full name of a metric that a person named.
    pub(super) fn metric(&self, name: &str, argument: &str) -> Result<String, Failure> {
        if self.names.metrics.contains(name) || known_metric(name).is_some() {
            return Ok(name.to_owned());
        }
        full_name(name, &[&self.names.metrics]).map_err(|error| {
            Failure::new(exit::USAGE, format!("{argument}: {}", error.replace("unknown name", "no metric")))
        })
    }
}

impl<T: Asked> Selected<T> {
    /// Returns the unit of a metric, as known or as recorded by the attempts.
    pub(super) fn unit(&self, metric: &str) -> String {
        let recorded = || self.trials.iter().find_map(|trial| trial.unit(metric));
        let known = known_metric(metric).map(|known| known.unit.to_owned());
        known.or_else(recorded).unwrap_or_default()
    }

    /// Returns the configurations with a mean of the metric, the best first.
    pub(super) fn ranked<'a>(
        &self,
        found: &'a [Configuration<'a, T>],
        metric: &str,
        direction: Direction,
    ) -> Vec<&'a Configuration<'a, T>> {
        let keyed =
            |one: &'a Configuration<'a, T>| Some((one.mean(metric, &self.admitted)?, one.first()?.group(), one));
        let mut ranked: Vec<_> = found.iter().filter_map(keyed).collect();
        ranked.sort_by(|a, b| {
            let order = a.0.total_cmp(&b.0);
            let order = if direction == Direction::Maximize { order.reverse() } else { order };
            order.then_with(|| a.1.cmp(&b.1))
        });
        ranked.into_iter().map(|(.., one)| one).collect()
    }
}

/// Returns every attempt of a model, or of all models. Waiting writers get the ledger between two slices.
pub(super) fn read_trials(store: &Store, model: Option<&str>) -> Result<Vec<Trial>, StoreError> {
    read_trials_where(store, model, &|_| true)
}

/// Like [`read_trials`], with only the attempts for which `is_meant` is true.
pub(super) fn read_trials_where(
    store: &Store,
    model: Option<&str>,
    is_meant: &dyn Fn(&Trial) -> bool,
) -> Result<Vec<Trial>, StoreError> {
    let ids = store.read(|reader| reader.of_model(model))?;
    let mut trials = Vec::new();
    each_slice(store, &ids, &mut |slice| trials.extend(slice.into_iter().filter(is_meant)))?;
    Ok(trials)
}

/// Passes attempts to `each` in slices, so that memory use is bounded. Waiting writers get the ledger between two slices.
fn each_slice(store: &Store, ids: &[AttemptId], each: &mut dyn FnMut(Vec<Trial>)) -> Result<(), StoreError> {
    const SLICE: usize = 4096;
    let hidden = store.read(|reader| reader.hidden())?;
    let mut slices = ids.chunks(SLICE).peekable();
    while slices.peek().is_some() {
        store.read(|reader| {
            for slice in slices.by_ref() {
                each(decoded(reader, slice, &hidden)?);
                if store.is_wanted() {
                    break;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the attempts that meet the condition of `--where`, in their order.
pub(super) fn matching(store: &Store, ids: &[AttemptId], text: &str) -> Result<Vec<AttemptId>, Failure> {
    let mut known = Names::known();
    each_slice(store, ids, &mut |slice| known.add(&names(&slice)))?;
    let wrong = |error| Failure::new(exit::USAGE, format!("--where: {error}"));
    let condition = Expr::parse_in(text, &known.tiers()).map_err(wrong)?;
    let (mut kept, mut fault) = (Vec::new(), None);
    each_slice(store, ids, &mut |slice| {
        for trial in slice {
            if condition.matches(&|name| trial.field(name)) {
                kept.push(trial.id);
            } else if kept.is_empty() && fault.is_none() {
                fault = condition.check(&|name| trial.field(name)).err();
            }
        }
    })?;
    match fault.filter(|_| kept.is_empty()) {
        Some(error) => Err(wrong(error)),
        None => Ok(kept),
    }
}

/// Like [`read_trials`], from one state of the ledger.
pub(super) fn trials_of(reader: &Reader<'_>, model: Option<&str>) -> Result<Vec<Trial>, StoreError> {
    decoded(reader, &reader.of_model(model)?, &reader.hidden()?)
}

/// Returns these attempts, decoded on all processors.
pub(super) fn decoded(
    reader: &Reader<'_>,
    ids: &[AttemptId],
    hidden: &BTreeSet<Digest>,
) -> Result<Vec<Trial>, StoreError> {
    let trial = |id: &AttemptId| -> Result<Option<Trial>, StoreError> {
        let Some(attempt) = reader.readable(*id)? else { return Ok(None) };
        let Some(run) = reader.run(attempt.run)? else { return Ok(None) };
        let is_hidden = hidden.contains(&id.0) || hidden.contains(&run.id.0);
        Ok(Some(Trial { id: *id, run, attempt, is_hidden }))
    };
    Ok(in_parallel(ids, &trial)?.into_iter().flatten().collect())
}

/// Calls `ask` for each item on all processors. The answers are in the order of the items.
pub(super) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    ask: &(dyn Fn(&T) -> Result<R, StoreError> + Sync),
) -> Result<Vec<R>, StoreError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(threads).max(1);
    let work = |items: &[T]| items.iter().map(ask).collect::<Result<Vec<R>, StoreError>>();
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = items.chunks(share).map(|items| scope.spawn(move || work(items))).collect();
        let mut answers = Vec::with_capacity(items.len());
        for worker in workers {
            answers.extend(worker.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(answers)
    })
}

/// Returns the failure if attempts have values that are all left out because they are tainted. Returns `None` if no
/// tainted attempt of the model has a value, because including them would not help.
pub(super) fn all_tainted(
    context: &Context,
    model: &str,
    metric: &str,
    left_out: &BTreeMap<LeftOut, u64>,
) -> Option<Failure> {
    let tainted = || left_out.iter().filter(|(left, _)| left.why == Why::Tainted);
    let (first, _) = tainted().next()?;
    let has_value = |trial: &Trial| trial.attempt.metric(metric).is_some() && !trial.attempt.all_taints().is_empty();
    let trials = context.store_as_it_is().read(|reader| trials_of(reader, Some(model)));
    if trials.is_ok_and(|trials| !trials.iter().any(has_value)) {
        return None;
    }
    let all = usize::try_from(tainted().map(|(_, count)| count).sum::<u64>()).unwrap_or(usize::MAX);
    let text = format!(
        "no `{metric}` counts: {} tainted, for example: {} (add --include tainted)",
        crate::report::count(all, "attempt"),
        first.reason
    );
    Some(Failure::new(exit::NO, text))
}

/// Like [`all_tainted`], for hidden attempts.
fn all_hidden(context: &Context, model: &str, metric: &str, left_out: &BTreeMap<LeftOut, u64>) -> Option<Failure> {
    let hidden: u64 = left_out.iter().filter(|(left, _)| left.why == Why::Hidden).map(|(_, count)| count).sum();
    if hidden == 0 {
        return None;
    }
    let has_value = |trial: &Trial| trial.is_hidden && trial.attempt.metric(metric).is_some();
    let trials = context.store_as_it_is().read(|reader| trials_of(reader, Some(model)));
    if trials.is_ok_and(|trials| !trials.iter().any(has_value)) {
        return None;
    }
    let hidden = crate::report::count(usize::try_from(hidden).unwrap_or(usize::MAX), "hidden attempt");
    let text = format!("no `{metric}` counts: there are {hidden} (add --include hidden)");
    Some(Failure::new(exit::NO, text))
}

/// Returns the number of runs of a model in the ledger, with any outcome.
pub(super) fn runs_of(context: &Context, model: &str) -> usize {
    let mut count = 0;
    let runs = context.store_as_it_is().read(|reader| {
        reader.runs(|run| {
            count += usize::from(run.model() == model);
            Ok(())
        })
    });
    runs.map_or(0, |()| count)
}

/// The largest number of metrics that [`nothing`] names.
const MOST_NAMED: usize = 20;

/// Returns the reason why nothing was found: values that are tainted or hidden, or else the metrics or models that exist.
pub(super) fn nothing(context: &Context, model: &str, metric: &str, left_out: &BTreeMap<LeftOut, u64>) -> Failure {
    let failure =
        all_tainted(context, model, metric, left_out).or_else(|| all_hidden(context, model, metric, left_out));
    if let Some(failure) = failure {
        return failure;
    }
    let asked =
        |reader: &Reader<'_>| Ok((reader.is_current(), reader.ranked_metrics()?, reader.hidden_attempts()?.len()));
    let (is_current, ranked, hidden) = context.store_as_it_is().read(asked).unwrap_or((true, BTreeMap::new(), 0));
    let list = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let text = match ranked.get(model) {
        Some(metrics) => {
            let not_finite: u64 =
                left_out.iter().filter(|(left, _)| left.why == Why::NotFinite).map(|(_, attempts)| attempts).sum();
            let not_finite = match usize::try_from(not_finite).unwrap_or(usize::MAX) {
                0 => String::new(),
                attempts => format!("NaN or infinite in {}; ", crate::report::count(attempts, "attempt")),
            };
            // Metrics of single inference batches have the same names with `@`.
            let is_meant = |name: &&String| metric.contains('@') == name.contains('@');
            let mut named: Vec<&String> = metrics.iter().filter(is_meant).collect();
            let more = match named.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more; `ledger show` lists those of an attempt"),
            };
            named.truncate(MOST_NAMED);
            let there = list(named);
            let is_missing = left_out.keys().any(|left| left.why == Why::Missing);
            let why = if is_missing { "`ledger show` says why it is missing; " } else { "" };
            format!(
                "no finished attempt of `{model}` has a finite `{metric}` ({not_finite}{why}there are: {there}{more})"
            )
        }
        // Without current indexes, the existing metrics are unknown.
        None if !is_current => format!("no finished attempt of `{model}` has a finite `{metric}`"),
        None if ranked.is_empty() && hidden > 0 => {
            let hidden = crate::report::count(hidden, "hidden attempt");
            format!("no finished attempt counts: there are {hidden} (add --include hidden)")
        }
        None if ranked.is_empty() => {
            "the ledger holds no finished attempt (`ledger run MANIFEST` makes some)".to_owned()
        }
        None => match runs_of(context, model) {
            0 => {
                let known: Vec<&str> = ranked.keys().map(String::as_str).collect();
                format!("no finished attempt is of {}", unknown_model(model, &known))
            }
            runs => {
                let runs = crate::report::count(runs, "run");
                format!("`{model}` has {runs}, but no attempt that counts (`ledger ls --model {model}` lists them)")
            }
        },
    };
    Failure::new(exit::NO, text)
}
