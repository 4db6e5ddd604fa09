//! `ledger diff`

use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::selection::direction_of;
use super::sources::{self, Texts};
use crate::analysis::{self, Contender, Measured, count_lines};
use crate::record::Sealed;
use crate::report;
use crate::store::{Reader, StoreError};
use std::collections::BTreeMap;

/// Compare two attempts: identity, environment, metrics, curves, phases, hardware
///
/// For a run, its newest finished attempt is compared. If both configurations have repetitions, their means are
/// tested as well. P is the probability of such a difference if the true means are equal. Exit code 1 if anything
/// differs.
///
/// Example: ledger diff latest~1 latest
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    a: String,

    /// The other run or attempt
    b: String,
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let (found, repetitions, texts) = context.store().read(|reader| {
        let found = (context::resolve_attempt(reader, &args.a)?, context::resolve_attempt(reader, &args.b)?);
        let repetitions = match &found {
            (Ok((_, a)), Ok((_, b))) => repetitions(reader, a, b)?,
            _ => Repetitions::new(),
        };
        let texts = match &found {
            (Ok((_, a)), Ok((_, b))) => {
                (sources::of_ledger(reader, &a.attempt.facts)?, sources::of_ledger(reader, &b.attempt.facts)?)
            }
            _ => Default::default(),
        };
        Ok((found, repetitions, texts))
    })?;
    let ((_, a), (_, b)) = (found.0?, found.1?);
    let mut difference = analysis::diff(&a, &b);
    let text = |texts: &Texts, digest| texts.get(&digest).cloned();
    let (of_a, of_b) = texts;
    count_lines(&mut difference.parts, &|_, digest| text(&of_a, digest), &|_, digest| text(&of_b, digest));
    let described = |name: &str| {
        let unit = a.attempt.metrics.get(name).map(|metric| analysis::standard(name, metric).unit);
        (unit.unwrap_or_default(), direction_of(name, analysis::stated_direction(&a.attempt, name)).ok())
    };
    let significance = analysis::significance(&repetitions, &described);
    context.answer(
        || report::diff_text(&difference, &significance, &args.a, &args.b),
        || report::diff_value(&difference, &significance),
    )?;
    Ok(if difference.is_empty() { exit::YES } else { exit::NO })
}

/// All repetitions of both configurations, by metric.
type Repetitions = BTreeMap<String, (Contender, Contender)>;

/// Returns no repetitions if both attempts have one configuration, or if the indexes are older and contain attempts
/// that do not count.
fn repetitions(reader: &Reader<'_>, a: &Sealed, b: &Sealed) -> Result<Repetitions, StoreError> {
    let (one, other) = (a.run.parts.group_id(), b.run.parts.group_id());
    let mut found = Repetitions::new();
    if one == other || !reader.is_current() {
        return Ok(found);
    }
    let batch = |one: &Sealed| one.attempt.metric("inference_batch_size").map(f64::to_bits);
    let is_compared =
        |name: &str| b.attempt.metrics.contains_key(name) && (batch(a) == batch(b) || !analysis::is_of_an_answer(name));
    for (name, metric) in a.attempt.metrics.iter().filter(|(name, _)| is_compared(name)) {
        let unit = analysis::standard(name, metric).unit;
        let contender = |Sealed { run, attempt: own, .. }: &Sealed| -> Result<Contender, StoreError> {
            let mut measured = Vec::new();
            for (id, _) in reader.values(run.parts.group_id(), name)? {
                let Some(mut attempt) = reader.readable(id)? else { continue };
                let metric =
                    attempt.metrics.get(name).and_then(|metric| analysis::standard(name, metric).in_unit(&unit));
                let Some((metric, value)) = metric.and_then(|metric| Some((metric.clone(), metric.value?))) else {
                    continue;
                };
                attempt.metrics.insert(name.clone(), metric);
                let Some(run) = reader.run(attempt.run)? else { continue };
                measured.push(Measured::of(id, &run, &attempt, name, value));
            }
            Ok(Contender { run: run.clone(), agreed: Vec::new(), kind: own.metric_kind(name), measured })
        };
        found.insert(name.clone(), (contender(a)?, contender(b)?));
    }
    Ok(found)
}
