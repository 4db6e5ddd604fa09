//! Statements on the statistical certainty of a ranking.

use super::fields::shown_fields;
use super::number::{count, significant};
use super::ranking::Ranking;
use super::sample::{compared_text, machine_word, more_of, needed_text, repeats_for, unit_word};
use crate::analysis::{self, Block, Comparison, Place, Scale, TestMethod, Untested, may_have_probabilities};
use crate::record::MetricKind;
use std::collections::BTreeSet;

/// Describes a test.
fn method_text(method: TestMethod, machine: &str) -> String {
    let named = |block: Block| if block == Block::Machine { machine } else { block.name() };
    match method {
        TestMethod::Welch => "Welch's t-test".to_owned(),
        TestMethod::Paired(block, pairs) => format!("t-test paired by {}, {pairs} pairs", named(block)),
        TestMethod::Within(block, 1) => format!("t-test within the same {}", named(block)),
        TestMethod::Within(block, count) => format!("t-test within the same {count} {}s", named(block)),
        TestMethod::Permutation => "exact permutation test".to_owned(),
    }
}

/// Describes which places differ significantly from the first, which do not, and which are untested and why.
/// It also says what the intervals cover.
pub(super) fn sureness(ranking: &Ranking) -> String {
    let Some(first) = ranking.places.first() else { return String::new() };
    let others =
        || (2u32..).zip(ranking.places.iter().skip(1)).filter_map(|(rank, place)| Some((rank, place.against?)));
    let named = |wanted: &dyn Fn(&analysis::Against) -> bool| -> Vec<String> {
        others().filter(|(_, against)| wanted(against)).map(|(rank, _)| format!("#{rank}")).collect()
    };
    let untested =
        |why: Untested| named(&|against| against.comparison.is_some_and(|comparison| comparison.test == Err(why)));
    // If places have different tests, each test lists its places.
    let methods = |wanted: &[String]| {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for (rank, against) in others() {
            let Some((_, method)) = against.comparison.and_then(|comparison| comparison.test.ok()) else { continue };
            let (method, rank) = (method_text(method, machine_word(first)), format!("#{rank}"));
            if !wanted.contains(&rank) {
                continue;
            }
            match found.iter_mut().find(|(known, _)| *known == method) {
                Some((_, ranks)) => ranks.push(rank),
                None => found.push((method, vec![rank])),
            }
        }
        let is_one = found.len() == 1;
        let one = |(method, ranks): (String, Vec<String>)| {
            if is_one { method } else { format!("{}: {method}", ranks.join(" ")) }
        };
        let mut said: Vec<String> = found.into_iter().map(one).collect();
        if others().filter(|(_, against)| against.corrected.is_some()).count() > 1 {
            said.push("Holm's correction of P".to_owned());
        }
        said.join(if is_one { ", " } else { "; " })
    };
    let mut text = String::new();
    let (alike, apart) = (named(&|one| one.differs() == Some(false)), named(&|one| one.differs() == Some(true)));
    if !alike.is_empty() {
        text.push_str(&format!("no significant difference between #1 and {} ({})\n", alike.join(" "), methods(&alike)));
    }
    // An uncorrected interval may exclude equality although the corrected p does not.
    let is_beside_neutral = |one: Comparison| {
        let neutral = if one.scale == Scale::Ratio { 1.0 } else { 0.0 };
        one.interval.is_some_and(|(low, high)| neutral < low || high < neutral)
    };
    let is_uncorrected =
        |one: &analysis::Against| one.differs() == Some(false) && one.comparison.is_some_and(is_beside_neutral);
    let uncorrected = named(&is_uncorrected);
    if !uncorrected.is_empty() {
        text.push_str(&format!(
            "{}: the interval excludes equality, but P, which is corrected for all pairs, is 0.05 or more\n",
            uncorrected.join(" ")
        ));
    }
    if !apart.is_empty() {
        text.push_str(&format!("#1 differs significantly from {} ({})\n", apart.join(" "), methods(&apart)));
    }
    let (few, still, sensors) =
        (untested(Untested::TooFew), untested(Untested::NoScatter), untested(Untested::Sensors));
    let units = unit_word(first);
    // Repetitions needed for three units in the first row and in each row that is untested for this reason.
    let repeats = |why: Untested| {
        let is_meant = |place: &&Place| {
            place.against.is_none_or(|one| one.comparison.is_some_and(|comparison| comparison.test == Err(why)))
        };
        let missing = |place: &Place| repeats_for(place, 3_usize.saturating_sub(place.estimate.units.len()));
        ranking.places.iter().filter(is_meant).map(missing).max().unwrap_or(0).max(1)
    };
    if !few.is_empty() {
        let has_interval = others().any(|(_, against)| {
            against.comparison.is_some_and(|one| one.test == Err(Untested::TooFew) && one.interval.is_some())
        });
        // Further attempts with one seed do not help.
        let is_seeded = first.estimate.kind == MetricKind::Outcome && first.estimate.seeds > 0;
        let units = if is_seeded { "seeds" } else { &units };
        text.push_str(&format!(
            "not tested: {}; too few {units} for a p below 0.05 (3 or more each are needed: {}){}\n",
            few.join(" "),
            more_of(first, repeats(Untested::TooFew)),
            if has_interval { "; their intervals assume a normal distribution" } else { "" },
        ));
        // A factorial analysis over all rows may have enough values although single rows do not.
        if ranking.places.len() > 3 && shown_fields(&ranking.places).len() > 1 {
            text.push_str("`ledger effects` may test an axis over all rows\n");
        }
    }
    let varies = |rank: &String| {
        let place = ranking.places.iter().zip(1u32..).find(|(_, at)| *rank == format!("#{at}"));
        place.is_some_and(|(place, _)| place.estimate.standard_error.is_some_and(|error| error > 0.0))
    };
    let (constant, still): (Vec<String>, Vec<String>) = still.into_iter().partition(varies);
    let is_tie = |one: Comparison| one.estimate == if one.scale == Scale::Ratio { 1.0 } else { 0.0 };
    let ties = named(&|against| against.comparison.is_some_and(is_tie));
    let (tied, constant): (Vec<String>, Vec<String>) = constant.into_iter().partition(|rank| ties.contains(rank));
    for (ranks, why) in [
        (still, format!("neither these nor #1 vary between {units}")),
        (tied, format!("equal to #1 in all {units} that both have")),
        (constant, format!("their difference from #1 is the same in all {units} that both have")),
    ] {
        if !ranks.is_empty() {
            text.push_str(&format!("not tested: {}; {why}\n", ranks.join(" ")));
        }
    }
    let confounded = untested(Untested::Confounded);
    if !confounded.is_empty() {
        let (own, fix) = match first.estimate.kind {
            MetricKind::Outcome => ("seeds".to_owned(), "give all configurations the same seeds".to_owned()),
            MetricKind::Measured => {
                let own = format!("{}s", machine_word(first));
                let fix = format!("run all configurations on the same {own}");
                (own, fix)
            }
        };
        text.push_str(&format!(
            "not tested: {}; these and #1 did not all run with the same {own}, and the {own} may explain the difference ({fix})\n",
            confounded.join(" ")
        ));
    }
    let rounds = untested(Untested::OtherRounds);
    if !rounds.is_empty() {
        text.push_str(&format!(
            "not tested: {}; these and #1 did not run in the same rounds, and a single round may explain the difference (repeat all of them together: `ledger run MANIFEST --repeat 3`)\n",
            rounds.join(" ")
        ));
    }
    if !sensors.is_empty() {
        text.push_str(&format!(
            "not tested: {}; different sensors measured these and #1, so a t-test needs 3 or more {units} each ({})\n",
            sensors.join(" "),
            more_of(first, repeats(Untested::Sensors)),
        ));
    }
    let dropped: usize = ranking.places.iter().map(|place| place.dropped).sum();
    if dropped > 0 {
        text.push_str(&format!(
            "only common {units} count ({} of other {units} left out): the means of all attempts contradict the test\n",
            count(dropped, "attempt")
        ));
    }
    text.push_str(&common_machines_text(&ranking.places, &units));
    text.push_str(&other_seeds_text(&ranking.places, &ranking.unit));
    text.push_str(&preferred_text(ranking));
    let of_round = named(&|against| against.comparison.is_some_and(|one| one.is_of_one_round));
    if !of_round.is_empty() {
        text.push_str(&format!(
            "VS BEST of {} is over the one round that both have, not over all attempts\n",
            of_round.join(" ")
        ));
    }
    for (is_of_one_round, over, means, fix) in [
        (
            true,
            "in the one round that both have",
            "rounds",
            "repeat all of them together: `ledger run MANIFEST --repeat 3`",
        ),
        (false, &*format!("over common {units}"), &*units, "run all configurations with the same ones"),
    ] {
        let is_better =
            |one: Comparison| one.is_of_one_round == is_of_one_round && one.prefers_other(ranking.direction);
        let better = named(&|against| against.comparison.is_some_and(is_better));
        if !better.is_empty() {
            text.push_str(&format!(
                "warning: {over} better than #1: {}; the means are of different {means} ({fix})\n",
                better.join(" ")
            ));
        }
    }
    let leads = |place: &Place| {
        let (first, direction) = (&first.contender, ranking.direction);
        place.dropped == 0 && analysis::leads_by_other_seeds(first, &place.contender, direction)
    };
    let unled: Vec<String> = (2u32..)
        .zip(ranking.places.iter().skip(1))
        .filter(|(_, place)| leads(place))
        .map(|(rank, _)| format!("#{rank}"))
        .collect();
    if !unled.is_empty() {
        text.push_str(&format!(
            "warning: with the seeds that both have, #1 is no better than {}; the means are of different seeds (run all configurations with the same ones)\n",
            unled.join(" ")
        ));
    }
    text.push_str(&covers_text(&ranking.places));
    text.push_str(&needed_text(&ranking.places));
    text.push_str(&unsure_text(&ranking.places));
    if let Some(tolerance) = ranking.tolerance {
        let within = named(&|against| against.is_within);
        let which = if within.is_empty() { "none".to_owned() } else { within.join(" ") };
        text.push_str(&format!("within {}% of #1: {which}\n", significant(tolerance * 100.0)));
    }
    text
}

/// Groups the ranks of places by a word; places without one are left out.
fn ranks_by<T: PartialEq>(places: &[Place], word: impl Fn(&Place) -> Option<T>) -> Vec<(T, Vec<String>)> {
    let mut found: Vec<(T, Vec<String>)> = Vec::new();
    for (rank, place) in (1u32..).zip(places) {
        let Some(word) = word(place) else { continue };
        match found.iter_mut().find(|(known, _)| *known == word) {
            Some((_, ranks)) => ranks.push(format!("#{rank}")),
            None => found.push((word, vec![format!("#{rank}")])),
        }
    }
    found
}

/// Names the row with a higher P(BEST) than the first one, because it is better on the units that both have.
fn preferred_text(ranking: &Ranking) -> String {
    let Some(first) = ranking.places.first() else { return String::new() };
    let probability = |place: &Place| place.probability.unwrap_or(0.0);
    let others = (2..).zip(&ranking.places[1..]);
    let is_better = |place: &Place| {
        let comparison = place.against.and_then(|against| against.comparison);
        comparison.is_some_and(|comparison| comparison.is_other_better(ranking.direction))
    };
    match others.max_by(|(_, a), (_, b)| probability(a).total_cmp(&probability(b))) {
        Some((rank, other)) if probability(other) > probability(first) && is_better(other) => {
            let test = other.against.and_then(|against| against.comparison?.test.ok());
            let units = match test {
                Some((_, TestMethod::Paired(block, n) | TestMethod::Within(block, n))) if block != Block::Machine => {
                    count(n, block.name())
                }
                Some((_, TestMethod::Paired(_, n) | TestMethod::Within(_, n))) => count(n, machine_word(first)),
                _ => return String::new(),
            };
            format!("#{rank} has a higher P(BEST) than #1: it is better on the {units} that both have\n")
        }
        _ => String::new(),
    }
}

/// Explains why there is no P(BEST), if only some rows have scatter, or if it contradicts the comparisons with #1.
fn unsure_text(places: &[Place]) -> String {
    let single = (1u32..).zip(places).filter(|(_, place)| place.estimate.standard_error.is_none());
    let single: Vec<String> = single.map(|(rank, _)| format!("#{rank}")).collect();
    let is_sure = places.iter().any(|place| place.probability.is_some());
    if !is_sure && may_have_probabilities(places) {
        return "no P(BEST): by the units that rows have in common, another row leads (--where selects what ran alike)\n".to_owned();
    }
    if is_sure || single.is_empty() || single.len() == places.len() {
        return String::new();
    }
    let verb = if single.len() == 1 { "has" } else { "have" };
    format!("no P(BEST): it needs two or more independent values in each row, and {} {verb} one\n", single.join(" "))
}

/// Describes what the intervals cover if that is less than all seeds and machines, by row where rows differ.
fn covers_text(places: &[Place]) -> String {
    let with_scatter = places.iter().filter(|place| place.estimate.attempts > 1).count();
    let line = |(covers, ranks): &(&str, Vec<String>)| match ranks.len() == with_scatter {
        true => format!("intervals cover {covers}\n"),
        false => format!("intervals of {} cover {covers}\n", ranks.join(" ")),
    };
    let single = (1u32..).zip(places).filter(|(_, place)| place.estimate.attempts == 1 && place.half_width.is_some());
    let single: Vec<String> = single.map(|(rank, _)| format!("#{rank}")).collect();
    let single = match single.as_slice() {
        [] => String::new(),
        ranks => format!("± of {} is the sensors' error alone: a single attempt has no scatter\n", ranks.join(" ")),
    };
    ranks_by(places, |place| place.estimate.covers()).iter().map(line).chain([single]).collect()
}

/// Compares rows that have other seeds than the first one and no paired test, on the common seeds.
fn other_seeds_text(places: &[Place], unit: &str) -> String {
    let Some((first, others)) = places.split_first() else { return String::new() };
    let mut found = Vec::new();
    for (rank, place) in (2u32..).zip(others) {
        let comparison = place.against.and_then(|against| against.comparison);
        let is_paired = comparison.is_some_and(|one| matches!(one.test, Ok((_, TestMethod::Paired(..)))));
        if let Some((common, comparison)) = place.on_common_seeds(first).filter(|_| !is_paired) {
            found.push(format!("#{rank} {} on {}", compared_text(&comparison, unit), count(common, "seed")));
        }
    }
    if found.is_empty() {
        String::new()
    } else {
        format!("VS BEST on the seeds that both have: {}\n", found.join("; "))
    }
}

/// Number of common machines that a paired test needs.
const FOR_PAIRS: usize = 3;

/// Names rows compared with the first on common machines only, and rows with too few machines in common.
fn common_machines_text(places: &[Place], units: &str) -> String {
    let Some((first, others)) = places.split_first() else { return String::new() };
    let machines =
        |place: &Place| -> BTreeSet<u64> { place.contender.measured.iter().map(|one| one.replicate.machine).collect() };
    let on_first = machines(first);
    let is_sensed =
        first.estimate.kind == MetricKind::Measured && first.sensor_half_width.is_some_and(|half| half > 0.0);
    let (mut paired, mut unpaired, mut unlike) = (Vec::new(), Vec::new(), Vec::new());
    for (rank, place) in (2u32..).zip(others) {
        let Some(Ok((_, method))) = place.against.and_then(|one| one.comparison).map(|one| one.test) else { continue };
        let own = machines(place);
        match method {
            TestMethod::Paired(Block::Machine, pairs) if pairs < on_first.union(&own).count() => {
                paired.push(format!("#{rank}"));
            }
            TestMethod::Welch if own.intersection(&on_first).count() >= FOR_PAIRS => unlike.push(format!("#{rank}")),
            TestMethod::Welch if is_sensed && own != on_first && !own.is_disjoint(&on_first) => {
                unpaired.push(format!("#{rank}"));
            }
            _ => {}
        }
    }
    let mut text = String::new();
    if !paired.is_empty() {
        let ranks = paired.join(" ");
        text.push_str(&format!("VS BEST of {ranks} is over the {units} that both ran on, not over all attempts\n"));
    }
    if !unlike.is_empty() {
        let ranks = unlike.join(" ");
        text.push_str(&format!(
            "{ranks}: not paired with #1, because some of the configurations of a row did not run on the common {units}\n"
        ));
    }
    if !unpaired.is_empty() {
        let ranks = unpaired.join(" ");
        text.push_str(&format!(
            "{ranks}: too few {units} in common with #1 for pairs, so the sensors' errors do not cancel (run all configurations on the same {units})\n"
        ));
    }
    text
}
