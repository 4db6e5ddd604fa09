//! `ledger tune`

mod axes;
mod search;

use super::best::{DEFAULT, default_run};
use super::bounds;
use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::output::say;
use super::provenance::Provenance;
use super::rerun::is_executed_by_user;
use super::run::answer_plan;
use super::selection::{direction_of, trials_of};
use super::trainer::trainer;
use crate::analysis;
use crate::engine::{Bound, CANARY, Cause, Machine, OBSERVE_ONLY, plan, rebind_with};
use crate::manifest::vary;
use crate::record::{AttemptId, Parts, Run, Sealed, Table, Value, known_metric};
use crate::report;
use axes::Impossible;
use search::{Arm, CONFIRMS, Search, confirmation};
use std::collections::BTreeSet;

/// Search for the best configuration of a model by a metric, at little cost in time
///
/// Starts from a run in the ledger and varies its batch size and precision. With --set-hardware, it also varies the
/// power limit and the clock of the GPUs. It uses successive halving: every configuration is executed once, the
/// better half twice, the better half of these four times and so on. Configurations that are too slow are dropped
/// at once. Outcomes (accuracy, loss) are repeated with other seeds, measured metrics (time, energy) in other
/// attempts. At the end the winner and the base are executed again, and the answer uses only these new attempts.
///
/// Every attempt belongs to an ordinary run in the ledger, and existing attempts are not executed again. An
/// interrupted search therefore continues where it stopped.
///
/// Example: ledger tune --model resnet50 --metric energy --slower-at-most 5% --at-least accuracy=0.9
///
/// Example: ledger tune --model mnist_mlp --metric train_time --axis batch_size=32,64,128 --axis learning_rate=0.1,0.01
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model
    #[arg(long, value_name = "M")]
    model: String,

    /// The metric
    #[arg(long, value_name = "X")]
    metric: String,

    /// Leave out configurations whose time exceeds the base's by more than this share: `5%` or `0.05`
    #[arg(long, value_name = "SHARE", value_parser = super::best::share)]
    slower_at_most: Option<f64>,

    #[command(flatten)]
    bounds: bounds::Args,

    /// The better direction of a custom metric
    #[arg(long, value_name = "WAY", value_parser = ["minimize", "maximize"])]
    direction: Option<String>,

    /// The base: the run to start from [default: the run tagged `default`, else the model's newest run that no
    /// search made]
    #[arg(long, value_name = "ID")]
    from: Option<String>,

    /// Search this field instead of the usual ones, with these values if given: `precision`, `batch_size=32,64`
    #[arg(long, value_name = "FIELD[=VALUES]")]
    axis: Vec<String>,

    /// Also search the power limit and the clock; they are set on the GPUs during each attempt, as are the base's
    /// settings
    #[arg(long)]
    set_hardware: bool,

    /// Start with at most N configurations; if there are more, N are drawn
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    candidates: u16,

    /// For a measured metric: new attempts of the winner and of the base
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    attempts: u16,

    /// For an outcome: new seeds of the winner and of the base
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,

    /// Print the runs of the first round, and execute nothing
    #[arg(long)]
    dry_run: bool,
}

/// The setting that marks an attempt of a search. Its value is the run from which the search began.
const BASE: &str = "tune.base";
/// Settings that apply only to the attempt that recorded them.
const OF_ANOTHER: [&str; 3] = [CANARY, "manifest.digest", CONFIRMS];

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (_, sealed) = base(args, context)?;
    let stated = args.direction.as_deref().or_else(|| analysis::stated_direction(&sealed.attempt, &args.metric));
    let direction = direction_of(&args.metric, stated)?;
    let is_known = |name: &str| known_metric(name).is_some() || sealed.attempt.metrics.contains_key(name);
    let bounds = args.bounds.read(|name, option| {
        if is_known(name) {
            return Ok(name.to_owned());
        }
        let there: Vec<&str> = sealed.attempt.metrics.keys().map(String::as_str).collect();
        let text = format!("{option}: no metric `{name}` (the base has: {})", there.join(", "));
        Err(Failure::new(exit::USAGE, text))
    })?;
    let machine = Machine::default();
    let trainer = trainer();
    let mut settings = sealed.attempt.settings.clone();
    OF_ANOTHER.iter().for_each(|name| drop(settings.remove(*name)));
    settings.insert(BASE.to_owned(), sealed.run.id.to_string().into());
    let is_watched = settings.contains_key(OBSERVE_ONLY);
    if args.set_hardware {
        settings.remove(OBSERVE_ONLY);
    }
    let rebind = |changes: &Table, seed: u64, is_fresh: bool| -> Result<Bound, String> {
        let mut settings = settings.clone();
        if is_fresh {
            settings.insert(CONFIRMS.to_owned(), confirmation(sealed.run.id, &args.metric).into());
        }
        let config = vary(&sealed.run, &settings, changes)?;
        let run = Run::new(Parts { seed, ..sealed.run.parts.clone() });
        rebind_with(&run, config, &settings, trainer.as_ref(), &machine).map_err(|error| error.to_string())
    };
    let bind = |changes: &Table| rebind(changes, sealed.run.parts.seed, false);
    let kind = sealed.attempt.metric_kind(&args.metric);
    let base = bind(&Table::new()).map_err(|why| {
        let id = sealed.run.id.0.prefix(8);
        Failure::new(exit::USAGE, format!("no search can start from run `{id}`: {why} (--from names another run)"))
    })?;
    if base.settings_to_make().is_some() && !args.set_hardware {
        let id = sealed.run.id.0.prefix(8);
        let text = format!(
            "the base, run `{id}`, sets a power limit or clocks on its GPUs (--set-hardware allows that; start from an attempt of `ledger run --observe-only` to leave them unchanged; --from names another run)"
        );
        return Err(Failure::new(exit::USAGE, text));
    }
    let (axes, mut not_searched) = axes::find(&args.axis, args.set_hardware, &base, &machine)?;
    let most = usize::from(args.candidates);
    let candidates = axes::candidates(&axes, most)?;
    let mut arms = vec![Arm { changes: Table::new(), bound: base }];
    let (mut impossible, mut seen) = (Impossible::default(), BTreeSet::from([arms[0].bound.run.id]));
    let mut left = candidates.into_iter();
    // Candidates that cannot be executed do not count towards the limit.
    for changes in left.by_ref() {
        match bind(&changes) {
            Ok(bound) if seen.insert(bound.run.id) => arms.push(Arm { changes, bound }),
            Ok(_) => {}
            Err(why) => impossible.add(why, changes),
        }
        if arms.len() > most {
            break;
        }
    }
    if left.len() > 0 {
        not_searched.push(report::drawn_text(left.len()));
    }
    let gone = impossible.into_gone();
    if arms.len() < 2 {
        let mut reasons: Vec<String> = gone.iter().map(|gone| gone.why.clone()).chain(not_searched).collect();
        reasons.dedup();
        let text = format!("there is nothing to search: {} (--axis names fields and values)", reasons.join("; "));
        return Err(Failure::new(exit::NO, text));
    }
    if args.dry_run {
        let bounds = arms.iter().map(|arm| (arm.bound.clone(), Cause::Complete(1))).collect();
        let planned = plan(context.store_as_it_is(), bounds)?;
        let axes: Vec<String> = axes.into_iter().map(|axis| axis.field).collect();
        let more = (report::left_behind_text(&not_searched, &gone), report::left_behind_value(&not_searched, &gone));
        return answer_plan(context, context.store_as_it_is(), &planned, &axes, more);
    }
    let searched = axes::searched(&axes, &arms[0].bound);
    let objective = sealed.attempt.settings.get("objective.metric").and_then(Value::as_str).map(str::to_owned);
    let fields = axes.into_iter().map(|axis| axis.field).collect();
    let search = Search {
        args,
        context,
        provenance: Provenance::of_record(&sealed.attempt.facts, &arms[0].bound),
        direction,
        kind,
        rebind: &rebind,
        from: sealed.run.id,
        bounds,
        objective,
        searched,
        not_searched,
        axes: fields,
        is_watched,
    };
    match search.run(arms, gone)? {
        Some(found) => {
            context.answer(|| report::tuning_text(&found), || report::tuning_value(&found))?;
            Ok(exit::YES)
        }
        None => {
            say("interrupted; repeat the command to continue");
            Ok(exit::INTERRUPTED)
        }
    }
}

/// Returns the attempt from whose run the search begins.
fn base(args: &Args, context: &Context) -> Result<(AttemptId, Sealed), Failure> {
    let (id, sealed, is_foreign) = context.store().read(|reader| {
        let named = match &args.from {
            Some(text) => Some(text.clone()),
            None => {
                let run = default_run(reader)?.map(|id| reader.run(id)).transpose()?.flatten();
                run.filter(|run| run.model() == args.model).map(|_| DEFAULT.to_owned())
            }
        };
        let found = match named {
            Some(text) => context::resolve_attempt(reader, &text)?,
            None => {
                let trials = trials_of(reader, Some(&args.model))?;
                let counting = trials.iter().filter(|trial| {
                    trial.counts(&BTreeSet::new()).is_ok() && !trial.attempt.settings.contains_key(BASE)
                });
                let newest =
                    // Reruns come last, because the folder of a replayed program is gone.
                    counting.max_by_key(|trial| (trial.attempt.rerun_of().is_none(), trial.attempt.started_unix_ms, trial.id)).map(|trial| trial.id);
                let sealed = newest.map(|id| reader.sealed(id)).transpose()?.flatten();
                newest.zip(sealed).ok_or_else(|| none_of(args))
            }
        };
        Ok(match found {
            Err(failure) => Err(failure),
            Ok((id, sealed)) => {
                let is_foreign = reader.was_imported(id)? || !is_executed_by_user(&sealed);
                Ok((id, sealed, is_foreign))
            }
        })
    })??;
    let shown = sealed.run.id.0.prefix(8);
    if sealed.run.model() != args.model {
        let text = format!("--from: run `{shown}` is of model `{}`, not `{}`", sealed.run.model(), args.model);
        return Err(Failure::new(exit::USAGE, text));
    }
    let has_command = sealed.run.parts.program.as_table().is_some_and(|program| program.contains_key("command"));
    if sealed.attempt.facts.contains_key("import") || is_foreign && has_command {
        let text = format!(
            "run `{shown}` was imported, so its command is not executed (`ledger rerun {shown} --trust` executes it in this ledger)"
        );
        return Err(Failure::new(exit::USAGE, text));
    }
    Ok((id, sealed))
}

fn none_of(args: &Args) -> Failure {
    let text =
        format!("model `{}` has no finished attempt to start from (`ledger run MANIFEST` makes one)", args.model);
    Failure::new(exit::NO, text)
}
