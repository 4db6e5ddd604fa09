//! `ledger compare`

use super::context::{self, Context};
use super::drifted;
use super::failure::{Failure, exit};
use super::output::say;
use crate::analysis::{self, Trial};
use crate::record::{Attempt, Target};
use crate::report;

/// Show attempts side by side: differences of identity, and metrics
///
/// For a run, its newest finished attempt is shown. The best value of each metric is marked if the better direction
/// is known. `ledger diff` compares two attempts in detail.
///
/// Example: ledger compare latest latest~1 latest~2
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Runs or attempts: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(required = true, num_args = 2.., value_name = "ID")]
    ids: Vec<String>,

    /// Also show equal fields, and recorded fields outside the identity
    #[arg(long)]
    all: bool,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (found, of_runs) = context.store().read(|reader| {
        // Runs with several attempts, of which one is shown.
        let (mut found, mut of_runs) = (Vec::new(), Vec::new());
        for name in &args.ids {
            let (id, sealed) = match context::resolve_attempt(reader, name)? {
                Ok(found) => found,
                Err(failure) => return Ok(Err(failure)),
            };
            if let Ok(Target::Run(run)) = context::resolve(reader, name)? {
                let attempts = reader.attempts_of(run)?.len();
                of_runs.extend((attempts > 1).then(|| (name, id.0.prefix(8), attempts)));
            }
            found.push((id, sealed));
        }
        Ok(Ok((found, of_runs)))
    })??;
    let (mut trials, mut ids) = (Vec::new(), Vec::new());
    for (one, name) in found.into_iter().zip(&args.ids) {
        let (id, sealed) = one;
        ids.push((sealed.run.id.to_string(), id.to_string(), name.clone()));
        trials.push(Trial { id, run: sealed.run, attempt: sealed.attempt, is_hidden: false });
    }
    let reruns = trials.iter().filter(|trial| trial.attempt.facts.contains_key(Attempt::RERUN_OF));
    let reruns = reruns.map(|trial| trial.id).collect();
    let drifted = context.store().read(|reader| drifted::drifted(reader, &reruns))?;
    let sides = analysis::side_by_side(&trials);
    // A whole id would make a column too wide to read.
    let names: Vec<String> = ids.iter().map(|(.., name)| name.chars().take(16).collect()).collect();
    let full: Vec<(String, String)> = ids.into_iter().map(|(run, attempt, _)| (run, attempt)).collect();
    context
        .answer(|| report::compare_text(&sides, &names, args.all), || report::compare_value(&sides, &full, args.all))?;
    for (name, attempt, of) in of_runs {
        say(&format!(
            "note: of run {name} its newest attempt {attempt} is shown, of {of} (`ledger best` compares means)"
        ));
    }
    for (trial, name) in trials.iter().zip(&names) {
        if let Some(reason) = trial.attempt.outcome.reason() {
            say(&format!("note: {name} is {}: {reason}", trial.attempt.outcome.name()));
        }
    }
    for id in drifted {
        say(&format!("note: {} is a drifted rerun", id.0.prefix(8)));
    }
    Ok(exit::YES)
}
