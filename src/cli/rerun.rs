//! `ledger rerun`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::run::{facts, shim};
use super::trainer::trainer;
use super::watch::{Interruption, Watcher};
use crate::analysis::{Verdict, is_computed, verdict, why};
use crate::engine::{Cause, Machine, Sweep, plan, rebind};
use crate::host::clock;
use crate::record::{Change, LogEntry};
use crate::report::{count, table_of, why_text};

/// Execute a run again, and say whether it did the same
///
/// Compares every recorded curve bit by bit and the digests of the final weights. The verdict is `identical`, `drifted`
/// (with the first step at which they part; exit code 5) or `failed` (exit code 4), and is written into the log.
/// If this machine would make it another run (other devices, versions, program), that is said and nothing is executed,
/// unless --on-current accepts it.
///
/// Example: ledger rerun latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    id: String,

    /// Execute it on this machine even if that makes it another run
    #[arg(long)]
    on_current: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    let (original_id, original) = store.read(|reader| context::resolve_attempt(reader, &args.id))??;
    if let Some(reason) = original.attempt.outcome.reason() {
        let outcome = original.attempt.outcome.name();
        return Err(Failure::new(
            exit::NO,
            format!("`{}` has no finished attempt to compare with (the newest is {outcome}: {reason})", args.id),
        ));
    }
    if original.attempt.facts.contains_key("import") {
        let text = format!("`{}` came from another tool's files: there is no program to execute again", args.id);
        return Err(Failure::new(exit::NO, text));
    }
    let machine = Machine::default();
    let bound = rebind(&original.run, &original.attempt.settings, trainer().as_ref(), &machine)?;
    let parts = why(&original.run, &bound.run);
    if !parts.is_empty() && !args.on_current {
        let text = why_text(&parts, "recorded", "here");
        return Err(Failure::new(
            exit::NOT_REPRODUCED,
            format!("here it would be another run (--on-current executes it all the same)\n{}", text.trim_end()),
        ));
    }
    let planned = plan(store, vec![(bound, Cause::Repeat(1))])?;
    let watcher = Watcher::new(1);
    let interruption = Interruption::install()?;
    let facts = facts(&[]);
    let shim = shim()?;
    let sweep = Sweep { store, facts: &facts, shim: &shim, watch: &watcher, stop: &interruption, jobs: 1 };
    let mut report = sweep.run(planned);
    watcher.finish();
    if let Some((_, error)) = report.troubled.pop() {
        return Err(error.into());
    }
    let Some(rerun) = report.executed.pop() else {
        return Err(Failure::new(exit::INTERRUPTED, "interrupted before it was executed"));
    };
    if report.interrupted {
        return Err(Failure::new(exit::INTERRUPTED, "interrupted; what the rerun did is recorded, without a verdict"));
    }
    let verdict = verdict(&original, &rerun.sealed);
    let change = Change::Verdict {
        original: original_id,
        rerun: rerun.id,
        verdict: verdict.name().to_owned(),
        detail: verdict.detail().to_owned(),
    };
    store.write(|writer| writer.note(&LogEntry { unix_ms: clock::unix_ms(), change }))?;
    let compared = original.series.iter().filter(|series| is_computed(series)).count();
    context.answer(
        || match &verdict {
            Verdict::Identical => format!(
                "identical: {} bit for bit, and {} ({} and {})\n",
                count(compared, "curve"),
                count(original.attempt.digests.len(), "digest"),
                original_id.0.prefix(8),
                rerun.id.0.prefix(8),
            ),
            other => format!("{}: {}\n", other.name(), other.detail()),
        },
        || {
            table_of([
                ("verdict", verdict.name().into()),
                ("detail", verdict.detail().into()),
                ("original", original_id.to_string().into()),
                ("rerun", rerun.id.to_string().into()),
                ("run", rerun.sealed.run.id.to_string().into()),
            ])
        },
    )?;
    Ok(match verdict {
        Verdict::Identical => exit::YES,
        Verdict::Drifted(_) => exit::NOT_REPRODUCED,
        Verdict::Failed(_) => exit::FAILED,
    })
}
