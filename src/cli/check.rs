//! `ledger check`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use crate::analysis::{MLPERF_POWER_RULES, Rule, Ruling, Unchecked, mlperf_power};
use crate::record::{AttemptId, RunId, Sealed, Target, Value};
use crate::report::{columns, count, table_of};
use crate::store::{Reader, StoreError};
use std::collections::BTreeSet;

/// Check attempts against a published set of rules
///
/// `mlperf-power`: the power measurement rules of MLPerf Training. Each rule passes, fails or does not apply. A
/// rule fails if the record does not show that it was met. Exit code 1 if any rule fails.
///
/// Example: ledger check mlperf-power latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The rules
    #[arg(value_parser = ["mlperf-power"])]
    rules: String,

    /// Runs (all their finished attempts) or attempts of one benchmark that differ only in the seed: prefixes of
    /// ids, tags, `latest`, `latest~1`
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (attempts, unchecked) = context.store().read(|reader| {
        let mut wanted = BTreeSet::new();
        for text in &args.ids {
            match context::resolve(reader, text)? {
                Ok(target) => wanted.extend(finished(reader, target)?),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        let mut found: Vec<(AttemptId, Sealed)> = Vec::new();
        for id in wanted.iter().copied() {
            found.extend(reader.readable_sealed(id)?.map(|sealed| (id, sealed)));
        }
        found.sort_by_key(|(id, sealed)| (sealed.attempt.started_unix_ms, *id));
        let runs: BTreeSet<RunId> = found.iter().map(|(_, sealed)| sealed.run.id).collect();
        let mut unchecked = Unchecked::default();
        for run in runs {
            for (id, finished) in reader.attempts_of(run)? {
                unchecked.finished += usize::from(finished && !wanted.contains(&id));
                unchecked.unfinished += usize::from(!finished);
            }
        }
        Ok(Ok((found, unchecked)))
    })??;
    if attempts.is_empty() {
        return Err(Failure::new(exit::NO, format!("`{}` has no finished attempt to check", args.ids.join("`, `"))));
    }
    let models: BTreeSet<&str> = attempts.iter().map(|(_, sealed)| sealed.run.model()).collect();
    if models.len() > 1 {
        let models = models.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            exit::USAGE,
            format!("the attempts are of several models: {models} (check one at a time)"),
        ));
    }
    let alike: BTreeSet<_> = attempts.iter().map(|(_, sealed)| sealed.run.parts.group_id()).collect();
    if alike.len() > 1 {
        return Err(Failure::new(
            exit::USAGE,
            format!(
                "the attempts belong to {} that differ in more than the seed (check one at a time; `ledger diff` shows the differences)",
                count(alike.len(), "configuration")
            ),
        ));
    }
    let ids: Vec<String> = attempts.iter().map(|(id, _)| id.to_string()).collect();
    let sealed: Vec<Sealed> = attempts.into_iter().map(|(_, sealed)| sealed).collect();
    let rules = mlperf_power(&sealed, unchecked);
    let failed = rules.iter().filter(|rule| rule.ruling == Ruling::Fail).count();
    context.answer(
        || {
            let row = |rule: &Rule| vec![rule.rule.to_owned(), rule.ruling.name().to_owned(), rule.why.clone()];
            let verdict =
                if failed == 0 { "no rule fails".to_owned() } else { format!("{} fail", count(failed, "rule")) };
            format!(
                "{MLPERF_POWER_RULES}\n{} of {}\n\n{}\n{verdict}\n",
                count(sealed.len(), "attempt"),
                sealed.first().map_or("", |first| first.run.model()),
                columns(&["RULE", "RULING", "WHAT THE RECORD SHOWS"], rules.iter().map(row)),
            )
        },
        || {
            let of = |rule: &Rule| {
                let pairs = [
                    ("rule", rule.rule.into()),
                    ("ruling", rule.ruling.name().into()),
                    ("why", rule.why.as_str().into()),
                ];
                Value::Table(table_of(pairs))
            };
            table_of([
                ("rules", args.rules.as_str().into()),
                ("text", MLPERF_POWER_RULES.into()),
                ("attempts", ids.clone().into()),
                ("left_out_finished", unchecked.finished.into()),
                ("left_out_unfinished", unchecked.unfinished.into()),
                ("failed", failed.into()),
                ("results", Value::List(rules.iter().map(of).collect())),
            ])
        },
    )?;
    Ok(if failed == 0 { exit::YES } else { exit::NO })
}

fn finished(reader: &Reader<'_>, target: Target) -> Result<Vec<AttemptId>, StoreError> {
    let ids = match target {
        Target::Attempt(id) => vec![id],
        Target::Run(run) => reader.attempts_of(run)?.into_iter().map(|(id, _)| id).collect(),
    };
    let mut kept = Vec::new();
    for id in ids {
        let attempt = reader.readable(id)?;
        kept.extend(attempt.filter(|attempt| attempt.outcome.name() == "finished").map(|_| id));
    }
    Ok(kept)
}
