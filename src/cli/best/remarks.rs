//! What has to be known of single attempts of a ranking, on standard error.

use super::Rest;
use super::quality::tell_quality;
use crate::analysis::{Outlier, outliers};
use crate::cli::drifted::{self, named};
use crate::cli::failure::Failure;
use crate::cli::output::say;
use crate::cli::timed_inference;
use crate::cli::versions;
use crate::engine::{is_changed, is_compiled_late, is_stale, read_files};
use crate::record::{Attempt, AttemptId, MetricKind, Run};
use crate::report::{self, Ranking, count};
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// Prints the notes and warnings of a ranking on standard error. If the answer has several rankings, each line names the model.
pub(super) fn remarks(ranking: &Ranking, asked: &Rest, store: &Store, is_of_several: bool) -> Result<(), Failure> {
    let mut said = Vec::new();
    let first = ranking.places.first().map(|place| &place.contender.run);
    said.extend(first.and_then(|run| versions::apart_note(&ranking.versions, run, &asked.selection)));
    tell_selection(ranking, asked, &mut said);
    tell_quality(ranking, store, &mut said)?;
    let rows = (1..).zip(ranking.places.iter().map(|place| vec![&place.contender]));
    said.extend(versions::averaged(rows, store)?);
    tell_doubtful(ranking, store, &mut said)?;
    let rows = (1..).zip(&ranking.places).filter(|(_, place)| place.contender.agreed.is_empty());
    let runs: Vec<(usize, &Run)> = rows.map(|(number, place)| (number, &place.contender.run)).collect();
    said.extend(versions::of_commands(runs.iter().copied()));
    said.extend(versions::apart(runs.into_iter(), store)?);
    tell_outliers(ranking, store, &mut said)?;
    for line in said {
        match line.split_once(": ") {
            Some((kind, text)) if is_of_several => say(&format!("{kind}: {}: {text}", ranking.model)),
            _ => say(&line),
        }
    }
    Ok(())
}

/// Says what of the question makes the ranking shorter, or its means other ones.
fn tell_selection(ranking: &Ranking, asked: &Rest, said: &mut Vec<String>) {
    let shown: usize = ranking.places.iter().map(|place| place.estimate.attempts + place.dropped).sum();
    let hidden = usize::try_from(ranking.counted).unwrap_or(usize::MAX).saturating_sub(shown);
    if ranking.places.len() == asked.limit() && hidden > 0 && ranking.unmet.is_empty() {
        let verb = if hidden == 1 { "is" } else { "are" };
        said.push(format!(
            "note: {} {verb} of configurations that are not shown (--top shows more)",
            count(hidden, "attempt")
        ));
    }
    let metric = &ranking.metric;
    let is_outcome = ranking.places.first().is_some_and(|place| place.estimate.kind == MetricKind::Outcome);
    if is_outcome && asked.selection.mentions(metric) {
        said.push(format!(
            "note: --where selects attempts by `{metric}`, so bad seeds are missing from means (--at-least and --at-most judge means)"
        ));
    }
}

/// No more rows that mix attempts are named.
const SHOWN: usize = 3;

/// Names the attempts of an answer that are reruns that drifted, that compiled kernels, or whose value may be stale:
/// they count like all others.
fn tell_doubtful(ranking: &Ranking, store: &Store, said: &mut Vec<String>) -> Result<(), Failure> {
    // Memory, say, is as large without the compilation.
    let is_longer = ["s", "J", "J·s", "W", "samples/s"].contains(&ranking.unit.as_str());
    let (drifted, stale, others, mixed, cold, unlike) = store.read(|reader| {
        let (mut reruns, mut stale, mut others) = (BTreeSet::new(), Vec::new(), Vec::new());
        let (mut mixed, mut cold, mut counted) = (Vec::new(), 0, 0);
        for (number, place) in (1..).zip(&ranking.places) {
            // By name and content of a file that is not in the identity: an attempt that read it.
            let mut read: BTreeMap<String, BTreeMap<String, AttemptId>> = BTreeMap::new();
            for measured in &place.contender.measured {
                let Some(attempt) = reader.readable(measured.attempt)? else { continue };
                counted += 1;
                if attempt.facts.contains_key(Attempt::RERUN_OF) {
                    reruns.insert(measured.attempt);
                }
                if attempt.warnings.iter().any(|warning| is_stale(warning, &ranking.metric)) {
                    stale.push(measured.attempt.0.prefix(8));
                }
                if is_longer && attempt.warnings.iter().any(|warning| is_compiled_late(warning)) {
                    cold += 1;
                }
                if attempt.warnings.iter().any(|warning| is_changed(warning)) {
                    others.push(measured.attempt.0.prefix(8));
                }
                for (name, content) in read_files(&attempt.facts) {
                    let of_name = read.entry(name.to_owned()).or_default();
                    of_name.entry(content.to_owned()).or_insert(measured.attempt);
                }
            }
            mixed.extend(read.iter().filter(|(_, contents)| contents.len() > 1).take(1).map(|(name, contents)| {
                let ids: Vec<String> = contents.values().take(2).map(|id| id.0.prefix(8)).collect();
                let name = report::plain(name);
                format!(
                    "warning: #{number} mixes attempts that read different `{name}` (`ledger diff {}` compares two)",
                    ids.join(" ")
                )
            }));
        }
        let drifted = drifted::drifted(reader, &reruns)?;
        let rows: Vec<_> = ranking.places.iter().map(|place| &place.contender).collect();
        let unlike = timed_inference::unlike(reader, &ranking.metric, &rows)?;
        Ok((drifted, stale, others, mixed, (cold, counted), unlike))
    })?;
    said.extend(unlike);
    mixed.iter().take(SHOWN).for_each(|line| said.push(line.clone()));
    if mixed.len() > SHOWN {
        said.push(format!(
            "warning: so do {} (`ledger show ID` lists what an attempt read)",
            count(mixed.len() - SHOWN, "more row")
        ));
    }
    if let Some(named) = named(&others) {
        said.push(format!(
            "warning: the program changed while attempts ran: {named} (`ledger show ID` names the file, `ledger hide ID` leaves one out)"
        ));
    }
    said.extend(drifted::note("the ranking", &drifted).map(|text| format!("note: {text}")));
    if let (compiled @ 1.., counted) = cold {
        let metric = &ranking.metric;
        said.push(format!(
            "note: `{metric}` may include the compilation of kernels in {compiled} of {} (`ledger run MANIFEST --repeat 1` makes attempts without it)",
            count(counted, "attempt")
        ));
    }
    if let Some(named) = named(&stale) {
        let metric = &ranking.metric;
        said.push(format!(
            "warning: `{metric}` may be stale in {named}: its pattern misses a later line (`ledger show ID` quotes it)"
        ));
    }
    Ok(())
}

/// What of an attempt's telemetry may explain a value that is far off.
const TELEMETRY: [&str; 6] = ["step_time", "power_mean", "gpu_util", "cpu_util", "data_time", "gpu_mem_peak"];

/// Names attempts that are far from the other repetitions of their configuration, and what else is unusual of them.
fn tell_outliers(ranking: &Ranking, store: &Store, said: &mut Vec<String>) -> Result<(), Failure> {
    for (place, id) in ranking.places.iter().zip(&ranking.ids) {
        // Copies and seeds scatter differently: only samples of one attempt each are judged.
        if place.estimate.units.len() != place.estimate.attempts {
            continue;
        }
        for found in outliers(&place.contender.values()) {
            let odd = place.contender.measured[found.at].attempt;
            let others = place.contender.measured.iter().map(|one| one.attempt).filter(|one| *one != odd);
            let (odd, others) = store.read(|reader| {
                let all = others.map(|id| reader.readable(id)).collect::<Result<Vec<_>, _>>()?;
                Ok((reader.readable(odd)?, all.into_iter().flatten().collect::<Vec<_>>()))
            })?;
            let Some(attempt) = odd else { continue };
            let unusual = TELEMETRY.into_iter().filter(|name| *name != ranking.metric).filter_map(|name| {
                let mut values: Vec<f64> = others.iter().filter_map(|other| other.metric(name)).collect();
                values.sort_by(f64::total_cmp);
                let (own, middle) = (attempt.metric(name)?, *values.get(values.len() / 2)?);
                let ratio = own / middle;
                (ratio.is_finite() && (ratio - 1.0).abs() > 0.05)
                    .then(|| format!("{name} {} against {}", report::significant(own), report::significant(middle)))
            });
            let mut why: Vec<String> = unusual.collect();
            why.extend(attempt.warnings.first().cloned());
            let why = if why.is_empty() { "its other metrics are usual".to_owned() } else { why.join(", ") };
            let short = place.contender.measured[found.at].attempt.0.prefix(8);
            said.push(format!(
                "note: outlier of {id}: attempt {short} is {}; {why} (it counts; `ledger hide` leaves it out)",
                how_far(&found)
            ));
        }
    }
    Ok(())
}

/// How far a value is from the others: `1.100× the median, 21.1 standard deviations from the others`.
fn how_far(outlier: &Outlier) -> String {
    let ratio = outlier.ratio.map(|ratio| format!("{ratio:.3}× the median"));
    match outlier.deviations {
        Some(far) => {
            let far = format!("{far:.1} standard deviations from the others");
            ratio.into_iter().chain([far]).collect::<Vec<_>>().join(", ")
        }
        None => format!("{} (the others are all equal)", ratio.unwrap_or_else(|| "not 0".to_owned())),
    }
}
