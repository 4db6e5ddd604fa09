//! `ledger ls`

mod rows;

use super::cluster::spool;
use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::living;
use super::output::say;
use super::selection::{OBJECTIVE, unknown_model};
use crate::record::{Attempt, Digest};
use crate::report::{self, Line, Listing};
use crate::store::{Reader, StoreError};

/// List attempts, newest first, including running ones
///
/// Imported and hidden attempts are marked. A rerun shows its verdict; a line below the table names the attempts that
/// reruns repeat. ACCURACY and LOSS are left out if no attempt has them: scripts should read --json. Objectives and
/// reasons of failures are shown for at most 1000 attempts.
///
/// Example: ledger ls --where 'batch_size >= 64' --sort -energy --columns energy,batch_size
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show at most N attempts
    #[arg(short, long = "limit", value_name = "N", default_value_t = 50)]
    n: usize,

    /// Show all attempts
    #[arg(long)]
    all: bool,

    /// Leave out the first N
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: usize,

    /// Only attempts whose fields and metrics match, as in `best --where`
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,

    /// Only attempts of this model
    #[arg(long, value_name = "M")]
    model: Option<String>,

    /// Only attempts of this experiment
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,

    /// Only attempts that ended so; `tainted`: finished, but left out of answers
    #[arg(long, value_name = "OUTCOME", value_parser = ["finished", "failed", "interrupted", TAINTED])]
    outcome: Option<String>,

    /// Sort by `started`, `time`, `experiment`, `model`, `outcome`, a field or a metric; a `-` before it puts the
    /// largest first [default: -started]
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    sort: Option<String>,

    /// Show these fields and metrics, too
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    columns: Vec<String>,

    /// Include hidden attempts
    #[arg(long)]
    hidden: bool,
}

/// The value of `--outcome` for finished attempts with disturbed measurements.
const TAINTED: &str = "tainted";

/// The largest number of lines for which the records are read.
const MOST_READ: usize = 1000;

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let store = context.store();
    // This comes before the ledger is read, so that an attempt that ends meanwhile is in at least one of the two.
    let running = living::running(context);
    // There is no ledger before the first attempt is sealed.
    let found = store.if_there(|reader| listing(reader, args))?;
    let (mut listing, unmet) = match found {
        Some(found) => found?,
        None if running.is_empty() => return Err(Failure::from(StoreError::Missing(store.dir().to_owned()))),
        None => (Listing::default(), None),
    };
    // Running attempts have no values for conditions.
    let is_any = args.condition.is_none() && args.outcome.is_none() && args.skip == 0;
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
    if (args.condition.is_some() || args.outcome.is_some()) && !running.is_empty() {
        let running = report::count(running.len(), "running attempt");
        say(&format!("note: {running} cannot be selected by --where or --outcome (`ledger watch` shows what runs)"));
    }
    listing.running = running;
    listing
        .running
        .retain(|one| is_any && is(&args.model, &one.row.model) && is(&args.experiment, &one.row.experiment));
    if let Some(unmet) = unmet.filter(|_| listing.running.is_empty()) {
        say(&format!("note: {}", unmet.source));
    }
    context.answer(|| report::ls_text(&listing), || report::ls_value(&listing))?;
    let folders = spool(context, None).open().unwrap_or_default();
    let waiting: usize = folders.iter().map(|folder| folder.packs().map_or(0, |packs| packs.len())).sum();
    if waiting > 0 {
        say(&format!("note: `ledger collect` imports {} of Slurm tasks", report::count(waiting, "attempt")));
    }
    Ok(exit::YES)
}

/// Returns the listing, and why no attempt meets the condition, if none does.
fn listing(reader: &Reader<'_>, args: &Args) -> Result<Result<(Listing, Option<Failure>), Failure>, StoreError> {
    let mut found = match rows::read(reader, args)? {
        Ok(found) => found,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut unmet = found.unmet.take();
    if let (Some(model), true) = (&args.model, found.rows.is_empty()) {
        let models = reader.models()?;
        let known: Vec<&str> = models.iter().map(String::as_str).collect();
        let told = || Failure::new(exit::NO, format!("no attempt is of {}", unknown_model(model, &known)));
        unmet = unmet.or((!known.contains(&model.as_str())).then(told));
    }
    let tags = context::tags(reader)?;
    let mut columns = rows::columns(reader, &found)?.into_iter();
    let hidden = reader.hidden()?;
    let mut origins = reader.origins(&found.rows.iter().map(|row| row.attempt).collect())?;
    let is_short = found.rows.len() <= MOST_READ;
    let mut lines = Vec::new();
    for row in found.rows {
        let of = |id: &Digest| tags.get(id).cloned().unwrap_or_default();
        let tags = [of(&row.run.0), of(&row.attempt.0)].concat();
        let origin = origins.remove(&row.attempt).unwrap_or_default();
        let is_tainted = reader.is_tainted(&row)?;
        let is_hidden = hidden.contains(&row.run.0) || hidden.contains(&row.attempt.0);
        // Only the record contains the reason of a failure, the objective, and the original of a rerun without a verdict.
        // Reading it for many attempts takes too long.
        let record = if is_short { reader.readable(row.attempt)? } else { None };
        let rerun_of = match origin.as_rerun(row.attempt) {
            Some(repeated) => Some(repeated.original),
            None => record.as_ref().and_then(Attempt::rerun_of),
        };
        let objective = record.as_ref().and_then(|attempt| {
            let name = attempt.settings.get(OBJECTIVE[0])?.as_str()?;
            Some((name.to_owned(), attempt.metric(name)))
        });
        let reason = record.and_then(|attempt| attempt.outcome.reason().map(str::to_owned));
        let (run, values) = (reader.short(row.run.0)?, columns.next().unwrap_or_default());
        lines.push(Line { run, tags, is_tainted, is_hidden, origin, rerun_of, reason, objective, row, values });
    }
    let hidden = if args.hidden { 0 } else { reader.hidden_attempts()?.len() as u64 };
    let (matching, total, skipped) = (found.matching, reader.attempt_count()?, args.skip);
    let listing = Listing { running: Vec::new(), lines, columns: found.columns, matching, total, hidden, skipped };
    Ok(Ok((listing, unmet)))
}
