//! The rounds of a search: ordinary sweeps, each followed by an evaluation of the ledger's records.

use super::Args;
use crate::analysis::{
    self, Configuration, FINALISTS, HALVING, Ordering, Out, Standing, TimeBound, Trial, attempts_in, configurations,
    count_left_out, halve, place, saving,
};
use crate::cli::best::speed::TIMES;
use crate::cli::bounds::Bound as Limit;
use crate::cli::context::Context;
use crate::cli::failure::{Failure, exit};
use crate::cli::provenance::Provenance;
use crate::cli::run::{axes, facts, shim};
use crate::cli::selection::trials_of;
use crate::cli::sources;
use crate::cli::watch::{Interruption, Watcher};
use crate::engine::{Bound, Cause, EngineError, HoldError, OBSERVE_ONLY, Sweep, plan};
use crate::record::{
    Direction, GroupId, JUDGING_METRICS, MetricKind, Outcome, Run, RunId, Table, Value, Why, known_metric,
};
use crate::report::{self, Baseline, Gone, Learned, Ranking, Round, Tuning};
use std::collections::{BTreeMap, BTreeSet};

/// A configuration that is tried.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    /// The differences from the base.
    pub(super) changes: Table,
    /// Its run with the base's seed.
    pub(super) bound: Bound,
}

/// The setting that marks an attempt of the final round, which has no part in the selection.
pub(super) const CONFIRMS: &str = "tune.confirms";

/// Returns the value of the setting for the search from a run by a metric.
pub(super) fn confirmation(from: RunId, metric: &str) -> String {
    format!("{from} {metric}")
}

/// Binds the configuration with these changes and this seed again; the flag marks an attempt of the final round.
pub(super) type Rebind<'a> = dyn Fn(&Table, u64, bool) -> Result<Bound, String> + 'a;

/// The parameters of a search, without its configurations.
pub(super) struct Search<'a> {
    pub(super) args: &'a Args,
    pub(super) context: &'a Context,
    /// The provenance of all attempts that the search makes.
    pub(super) provenance: Provenance,
    pub(super) direction: Direction,
    /// The kind of the metric: outcomes are repeated with other seeds, measurements by other attempts.
    pub(super) kind: MetricKind,
    pub(super) rebind: &'a Rebind<'a>,
    /// The run from which the search begins. It marks attempts of the final round.
    pub(super) from: RunId,
    pub(super) bounds: Vec<Limit>,
    /// The objective of the base's manifest.
    pub(super) objective: Option<String>,
    pub(super) searched: Vec<String>,
    pub(super) axes: Vec<String>,
    pub(super) not_searched: Vec<String>,
    /// Whether the base attempt left the GPU settings of its manifest unchanged.
    pub(super) is_watched: bool,
}

/// Returns the runs that a configuration needs, with the number of attempts.
type Wanted<'a> = dyn Fn(&Arm) -> Result<Vec<(Bound, Cause)>, Failure> + 'a;

/// The attempts of the final round.
struct Fresh {
    /// The number of attempts per configuration.
    attempts: usize,
    /// Seeds that had no part in the selection.
    seeds: Vec<u64>,
    /// The number of finished attempts that had a part in it, by run.
    before: BTreeMap<RunId, usize>,
}

/// The attempts of a search's configurations in the ledger.
struct Seen {
    trials: Vec<Trial>,
}

impl Seen {
    /// Returns the number of finished attempts of each run.
    fn finished(&self) -> BTreeMap<RunId, usize> {
        let mut counts = BTreeMap::new();
        let finished = self.trials.iter().filter(|trial| trial.attempt.outcome == Outcome::Finished);
        finished.for_each(|trial| *counts.entry(trial.run.id).or_default() += 1);
        counts
    }

    fn of(&self, group: GroupId) -> Option<Configuration<'_>> {
        let own = self.trials.iter().filter(|trial| trial.run.parts.group_id() == group);
        configurations(own, &[]).pop()
    }

    fn standing(&self, arm: &Arm, metric: &str, time: Option<&str>) -> Standing {
        let Some(found) = self.of(arm.bound.run.parts.group_id()) else { return Standing::default() };
        let nothing = BTreeSet::new();
        Standing { mean: found.mean(metric, &nothing), time: time.and_then(|time| found.mean(time, &nothing)) }
    }

    /// Returns the reason why a configuration has no value that counts, or no time.
    fn why_unmeasured(&self, arm: &Arm, metric: &str, time: Option<&str>) -> String {
        self.unmeasured(arm, metric, time).0
    }

    /// Like [`why_unmeasured`](Self::why_unmeasured), and whether another attempt may have a value. It may not if the
    /// metric is missing or absent.
    fn unmeasured(&self, arm: &Arm, metric: &str, time: Option<&str>) -> (String, bool) {
        let found = self.of(arm.bound.run.parts.group_id());
        let trials: Vec<&Trial> = found.map(|found| found.trials).unwrap_or_default();
        let newest = trials.iter().max_by_key(|trial| (trial.attempt.started_unix_ms, trial.id));
        let Some(newest) = newest else { return ("it was not executed".to_owned(), true) };
        let why = |name: &str| Some((name.to_owned(), newest.measured(name, &BTreeSet::new()).err()?));
        let Some((name, left)) = why(metric).or_else(|| why(time?)) else {
            return ("none of its attempts has a value that counts".to_owned(), true);
        };
        let reason = if left.reason.is_empty() { left.why.name() } else { &left.reason };
        let why = format!("no `{name}` that counts: {}", reason.lines().next().unwrap_or_default());
        (why, !matches!(left.why, Why::Missing | Why::Absent))
    }

    fn mean(&self, run: &Run, metric: &str) -> Option<f64> {
        self.of(run.parts.group_id()).and_then(|found| found.mean(metric, &BTreeSet::new()))
    }

    /// Returns the first bound that a configuration does not meet, and its mean.
    fn unmet<'a>(&self, arm: &Arm, bounds: &'a [Limit]) -> Option<(&'a Limit, Option<f64>)> {
        let of = |bound: &'a Limit| (bound, self.mean(&arm.bound.run, &bound.metric));
        bounds.iter().map(of).find(|(bound, mean)| mean.is_none_or(|mean| !bound.is_met(mean)))
    }

    /// Returns the reason if the configuration failed and never finished, because it would fail again.
    fn has_failed(&self, arm: &Arm) -> Option<String> {
        let group = arm.bound.run.parts.group_id();
        let own = || self.trials.iter().filter(|trial| trial.run.parts.group_id() == group);
        let finished = own().any(|trial| trial.attempt.outcome.name() == "finished");
        let failed = own().find(|trial| trial.attempt.outcome.name() == "failed").filter(|_| !finished)?;
        let reason = failed.attempt.outcome.reason().unwrap_or_default();
        Some(format!("failed: {}", reason.lines().next().unwrap_or_default()))
    }
}

impl Search<'_> {
    /// Runs the search; the first arm is the base. After the selection, the winner and the base are executed again, and
    /// the answer uses only these fresh attempts: the mean of a winner among many is biased. Returns `None` if it was
    /// interrupted.
    pub(super) fn run(mut self, mut arms: Vec<Arm>, mut gone: Vec<Gone>) -> Result<Option<Tuning>, Failure> {
        let mut rounds = Vec::new();
        let mut time = None;
        self.check_base(&arms[0])?;
        loop {
            let number = rounds.len();
            // The first round tries each once before any is repeated, because it may fail or be too slow.
            let is_last = number > 0 && arms.len() <= FINALISTS + 1;
            let attempts = attempts_in(u32::try_from(number).unwrap_or(u32::MAX));
            self.leave_failed(&mut arms, &mut gone, number)?;
            let confirming = self.seen(&arms, true)?.finished();
            let wanted = |arm: &Arm| self.repeated(arm, attempts, &confirming);
            let Some(executed) = self.execute(&mut arms, &wanted, &mut gone, number)? else { return Ok(None) };
            rounds.push(Round { configurations: arms.len(), attempts, executed });
            let seen = self.of_round(self.seen(&arms, false)?, &arms[0], attempts);
            let base = self.standing_of_base(&seen, &arms[0], &mut time)?;
            self.leave_short(&seen, &mut arms, &mut gone, number + 1)?;
            let bound = self
                .args
                .slower_at_most
                .zip(base.time)
                .map(|(share, reference)| TimeBound { reference, slower_at_most: share });
            let standings: Vec<Standing> =
                arms[1..].iter().map(|arm| seen.standing(arm, &self.args.metric, time)).collect();
            let keep = if is_last { 1 } else { standings.len().div_ceil(HALVING).max(FINALISTS) };
            let (on, out) = halve(&standings, bound, self.direction, keep);
            for (at, why) in out {
                let arm = &arms[at + 1];
                let why = match why {
                    Out::Unmeasured => seen.why_unmeasured(arm, &self.args.metric, time),
                    Out::Slower(share) => report::too_slow(time.unwrap_or("time"), share),
                    Out::Behind(better) => report::behind(better),
                };
                gone.push(self.gone(arm, number + 1, why)?);
            }
            arms = [0].into_iter().chain(on.into_iter().map(|at| at + 1)).map(|at| arms[at].clone()).collect();
            if is_last || arms.len() == 1 {
                let fresh = self.fresh(&arms)?;
                let wanted = |arm: &Arm| self.confirmed(arm, &fresh);
                let Some(executed) = self.execute(&mut arms, &wanted, &mut gone, number + 1)? else { return Ok(None) };
                rounds.push(Round { configurations: arms.len(), attempts: fresh.attempts, executed });
                return self.answer(&arms, rounds, gone, time).map(Some);
            }
        }
    }

    /// Returns the runs that a configuration needs for this number of independent repetitions. Attempts that confirmed
    /// an earlier search of this type have no part in the selection.
    fn repeated(
        &self,
        arm: &Arm,
        attempts: usize,
        confirming: &BTreeMap<RunId, usize>,
    ) -> Result<Vec<(Bound, Cause)>, Failure> {
        match self.kind {
            MetricKind::Measured => {
                let others = confirming.get(&arm.bound.run.id).copied().unwrap_or(0);
                Ok(vec![(arm.bound.clone(), Cause::Complete(others + attempts))])
            }
            MetricKind::Outcome => {
                Self::seeds(arm, attempts).map(|seed| Ok((self.bound(arm, seed, false)?, Cause::Complete(1)))).collect()
            }
        }
    }

    /// Returns the seeds of each configuration in a round with this number of repetitions.
    fn seeds(base: &Arm, attempts: usize) -> impl Iterator<Item = u64> {
        let first = base.bound.run.parts.seed;
        (0..attempts).map(move |more| first.wrapping_add(u64::try_from(more).unwrap_or(u64::MAX)))
    }

    /// Keeps the attempts of this round. Outcomes are compared over the same seeds, but the ledger may contain other
    /// seeds of some configurations.
    fn of_round(&self, mut seen: Seen, base: &Arm, attempts: usize) -> Seen {
        if self.kind == MetricKind::Outcome {
            let seeds: BTreeSet<u64> = Self::seeds(base, attempts).collect();
            seen.trials.retain(|trial| seeds.contains(&trial.run.parts.seed));
        }
        seen
    }

    fn bound(&self, arm: &Arm, seed: u64, is_fresh: bool) -> Result<Bound, Failure> {
        (self.rebind)(&arm.changes, seed, is_fresh).map_err(|why| Failure::new(exit::USAGE, why))
    }

    /// Returns the attempts of the final round. Fresh seeds are those that had no part in the selection.
    fn fresh(&self, arms: &[Arm]) -> Result<Fresh, Failure> {
        let seen = self.seen(arms, false)?;
        let used: BTreeSet<u64> = seen.trials.iter().map(|trial| trial.run.parts.seed).collect();
        let first = arms[0].bound.run.parts.seed;
        let unused = (0..).map(|more: u64| first.wrapping_add(more)).filter(|seed| !used.contains(seed));
        let attempts = usize::from(match self.kind {
            MetricKind::Measured => self.args.attempts,
            MetricKind::Outcome => self.args.seeds,
        });
        Ok(Fresh { attempts, seeds: unused.take(attempts).collect(), before: seen.finished() })
    }

    fn confirmed(&self, arm: &Arm, fresh: &Fresh) -> Result<Vec<(Bound, Cause)>, Failure> {
        match self.kind {
            MetricKind::Measured => {
                let bound = self.bound(arm, arm.bound.run.parts.seed, true)?;
                let before = fresh.before.get(&bound.run.id).copied().unwrap_or(0);
                Ok(vec![(bound, Cause::Complete(before + fresh.attempts))])
            }
            MetricKind::Outcome => {
                fresh.seeds.iter().map(|seed| Ok((self.bound(arm, *seed, true)?, Cause::Complete(1)))).collect()
            }
        }
    }

    /// Drops the configurations that do not meet the bounds. The base stays, because others are compared with it.
    fn leave_short(&self, seen: &Seen, arms: &mut Vec<Arm>, gone: &mut Vec<Gone>, round: usize) -> Result<(), Failure> {
        let mut kept = Vec::new();
        for (at, arm) in std::mem::take(arms).into_iter().enumerate() {
            match seen.unmet(&arm, &self.bounds).filter(|_| at > 0) {
                Some((bound, mean)) => {
                    let why = match mean {
                        Some(mean) => bound.missed(mean),
                        None => seen.why_unmeasured(&arm, &bound.metric, None),
                    };
                    gone.push(self.gone(&arm, round, why)?);
                }
                None => kept.push(arm),
            }
        }
        *arms = kept;
        Ok(())
    }

    /// Refuses a base that was executed and has no value that counts, because nothing could be compared with it.
    fn check_base(&self, base: &Arm) -> Result<(), Failure> {
        let seen = self.seen(std::slice::from_ref(base), false)?;
        // An attempt without its GPU settings does not represent the base with them.
        let is_one = |trial: &&Trial| {
            let watched = base.bound.settings_to_make().is_some() && trial.attempt.settings.contains_key(OBSERVE_ONLY);
            trial.run.id == base.bound.run.id && trial.attempt.outcome.name() == "finished" && !watched
        };
        if !seen.trials.iter().any(|trial| is_one(&trial)) {
            return Ok(());
        }
        self.standing_of_base(&seen, base, &mut None).map(drop)
    }

    /// Drops the configurations that failed in earlier attempts.
    fn leave_failed(&self, arms: &mut Vec<Arm>, gone: &mut Vec<Gone>, round: usize) -> Result<(), Failure> {
        let seen = self.seen(arms, false)?;
        let mut kept = Vec::new();
        for (at, arm) in std::mem::take(arms).into_iter().enumerate() {
            match seen.has_failed(&arm).filter(|_| at > 0) {
                Some(why) => gone.push(self.gone(&arm, round, why)?),
                None => kept.push(arm),
            }
        }
        *arms = kept;
        Ok(())
    }

    /// Executes the missing attempts of each arm. Returns their number, or `None` if it was interrupted. Arms whose
    /// settings cannot be applied are dropped.
    fn execute(
        &self,
        arms: &mut Vec<Arm>,
        wanted: &Wanted<'_>,
        gone: &mut Vec<Gone>,
        round: usize,
    ) -> Result<Option<usize>, Failure> {
        let store = self.context.store();
        let mut of_arms: Vec<Vec<(Bound, Cause)>> = arms.iter().map(wanted).collect::<Result<_, _>>()?;
        let mut kept = self.provenance.sources.clone();
        for (bound, _) in of_arms.iter_mut().flatten() {
            bound.facts.extend(self.provenance.facts.clone());
            kept.extend(sources::keep(&mut bound.facts, bound.program_files.iter()));
        }
        let runs = |bounds: &Vec<(Bound, Cause)>| bounds.iter().map(|(bound, _)| bound.run.id).collect::<Vec<RunId>>();
        let runs: Vec<Vec<RunId>> = of_arms.iter().map(runs).collect();
        let planned = plan(store, of_arms.into_iter().flatten().collect())?;
        if planned.iter().all(|planned| planned.missing == 0) {
            return Ok(Some(0));
        }
        store.write(|writer| kept.iter().try_for_each(|source| writer.keep(source)))?;
        let interruption = Interruption::install()?;
        let watcher = Watcher::of_search(planned.iter().map(|planned| planned.missing).sum(), &axes(&planned));
        let (facts, shim) = (facts(), shim()?);
        let sweep =
            Sweep { store, facts: &facts, shim: &shim, watch: &watcher, stop: &interruption, jobs: 1, canary: false };
        let report = sweep.run(planned);
        watcher.finish();
        if report.interrupted {
            return Ok(None);
        }
        let mut troubled = report.troubled;
        if let Some(at) =
            troubled.iter().position(|(_, error)| matches!(error, EngineError::Data(_) | EngineError::Program(_)))
        {
            return Err(troubled.swap_remove(at).1.into());
        }
        let base = arms[0].bound.run.id;
        let is_base = |run: &RunId| runs[0].contains(run);
        if let Some((_, why)) = report.untried.iter().find(|(run, _)| is_base(run)) {
            return Err(self.unset_base(base, why));
        }
        // Arms that need no attempts, or use other settings, are not affected.
        let untried = report.untried.into_iter().map(|(run, why)| (run, format!("not tried, since {why}")));
        let mut refused: BTreeMap<RunId, String> = untried.collect();
        for (run, error) in troubled {
            match error {
                EngineError::Hold(error) if !is_base(&run) => drop(refused.insert(run, error.to_string())),
                EngineError::Hold(error @ HoldError::NoPrivilege { .. }) => {
                    return Err(self.unset_base(base, &error.to_string()));
                }
                other => return Err(other.into()),
            }
        }
        let mut kept = Vec::new();
        for (arm, runs) in std::mem::take(arms).into_iter().zip(&runs) {
            match runs.iter().find_map(|run| refused.remove(run)) {
                Some(why) => gone.push(self.gone(&arm, round, why)?),
                None => kept.push(arm),
            }
        }
        *arms = kept;
        Ok(Some(report.executed.len()))
    }

    /// Returns the failure if the base's own settings cannot be applied.
    fn unset_base(&self, base: RunId, why: &str) -> Failure {
        let only_watched =
            if self.is_watched { "; without --set-hardware its GPU settings stay unchanged" } else { "" };
        let text = format!("no search can start from run `{}`: {why}{only_watched}", base.0.prefix(8));
        Failure::new(exit::USAGE, text)
    }

    /// Returns the attempts of these configurations: those of the selection, or those of the final round.
    fn seen(&self, arms: &[Arm], is_fresh: bool) -> Result<Seen, Failure> {
        let groups: BTreeSet<GroupId> = arms.iter().map(|arm| arm.bound.run.parts.group_id()).collect();
        let store = self.context.store_as_it_is();
        let mut trials = store.read(|reader| trials_of(reader, Some(&self.args.model)))?;
        analysis::unify_by_model(&mut trials);
        let mark = confirmation(self.from, &self.args.metric);
        trials.retain(|trial| {
            // Attempts that confirm another search count like ordinary ones here.
            let is_of_search = trial.attempt.settings.get(CONFIRMS).and_then(Value::as_str) == Some(mark.as_str());
            groups.contains(&trial.run.parts.group_id()) && (is_of_search == is_fresh)
        });
        Ok(Seen { trials })
    }

    /// Returns the base's result. The first time metric that it has is the one that is bounded from then on.
    fn standing_of_base(&self, seen: &Seen, base: &Arm, time: &mut Option<&'static str>) -> Result<Standing, Failure> {
        let of = |time: &'static str| seen.standing(base, &self.args.metric, Some(time)).time.is_some();
        *time = time.or_else(|| TIMES.into_iter().find(|time| of(time)));
        let standing = seen.standing(base, &self.args.metric, *time);
        if standing.mean.is_none() {
            let (why, may_change) = seen.unmeasured(base, &self.args.metric, *time);
            let id = base.bound.run.id.0.prefix(8);
            let fix = if may_change {
                format!("`ledger rerun {id}` makes another attempt of it")
            } else {
                "another attempt here has no value either: choose another --metric".to_owned()
            };
            let text = format!("nothing can be compared with the base, run `{id}`: {why} ({fix})");
            return Err(Failure::new(exit::NO, text));
        }
        if self.args.slower_at_most.is_some() && standing.time.is_none() {
            let id = base.bound.run.id.0.prefix(8);
            let text = format!(
                "--slower-at-most: the base, run `{id}`, has no time that counts (`ledger rerun {id}` makes another attempt; without --slower-at-most no time is needed)"
            );
            return Err(Failure::new(exit::NO, text));
        }
        Ok(standing)
    }

    fn gone(&self, arm: &Arm, round: usize, why: String) -> Result<Gone, Failure> {
        let run = arm.bound.run.id;
        let short = self.context.store_as_it_is().read(|reader| reader.short(run.0))?;
        Ok(Gone { run: Some((run, short)), changes: arm.changes.clone(), round, why })
    }

    fn answer(
        &mut self,
        arms: &[Arm],
        rounds: Vec<Round>,
        gone: Vec<Gone>,
        time: Option<&'static str>,
    ) -> Result<Tuning, Failure> {
        let (metric, nothing) = (&self.args.metric, BTreeSet::new());
        let seen = self.seen(arms, true)?;
        let of = |arm: &Arm| seen.of(arm.bound.run.parts.group_id());
        let short = seen.unmet(&arms[0], &self.bounds);
        let enough = arms.iter().skip(usize::from(short.is_some()));
        let contenders = enough.filter_map(|arm| of(arm)?.contender(metric, &nothing)).collect();
        let recorded = seen.trials.iter().find_map(|trial| trial.attempt.metrics.get(metric));
        let known = || known_metric(metric).map(|known| known.unit.to_owned());
        let unit = recorded.map(|metric| metric.unit.clone()).or_else(known).unwrap_or_default();
        let places = place(contenders, Ordering::of(metric, &unit, self.direction));
        let base = &arms[0].bound.run;
        if let Some((bound, mean)) = short.filter(|_| places.is_empty()) {
            let mean = mean.map_or_else(|| "none".to_owned(), report::significant);
            let text = format!(
                "{}: no configuration that was tried has {}, nor has the base ({mean})",
                bound.option(),
                bound.text()
            );
            return Err(Failure::new(exit::NO, text));
        }
        let mean = |run: &Run, metric: &str| seen.mean(run, metric);
        let learned = places.first().and_then(|first| self.learned(&seen, &first.contender.run, base));
        let baseline = places.first().map(|first| {
            let own = &first.contender.run;
            let is_first = own.parts.group_id() == base.parts.group_id();
            let times = time.and_then(|time| Some((mean(own, time)?, mean(base, time)?)));
            let saved = mean(base, metric).and_then(|other| saving((first.estimate.mean, other), times));
            (is_first, saved)
        });
        let winner = places.first().map(|first| &first.contender.run);
        let winner = winner.filter(|own| own.parts.group_id() != base.parts.group_id());
        let missed = winner.map_or_else(Vec::new, |own| {
            let limits = self.bounds.iter().filter_map(|bound| {
                let mean = mean(own, &bound.metric)?;
                (!bound.is_met(mean)).then(|| bound.missed(mean))
            });
            let share = |time: &str| Some(mean(own, time)? / mean(base, time)? - 1.0);
            let slower = time.zip(self.args.slower_at_most);
            let slower = slower.and_then(|(time, most)| Some((time, share(time).filter(|share| *share > most)?)));
            let slower = slower.map(|(time, share)| report::too_slow(time, share));
            limits.chain(slower).collect()
        });
        let store = self.context.store_as_it_is();
        let (ids, base_id) = store.read(|reader| {
            let ids = places.iter().map(|place| reader.short(place.contender.run.id.0)).collect::<Result<_, _>>()?;
            Ok((ids, reader.short(base.id.0)?))
        })?;
        let (counted, left_out) = count_left_out(&seen.trials, metric, &nothing);
        let baseline =
            baseline.filter(|(is_first, saved)| *is_first || saved.is_some()).map(|(is_first, saved)| Baseline {
                id: base_id.clone(),
                run: base.clone(),
                what: "the base".to_owned(),
                time: time.map(str::to_owned),
                saving: saved.filter(|_| !is_first),
            });
        let ranking = Ranking {
            model: self.args.model.clone(),
            metric: metric.clone(),
            unit,
            direction: self.direction,
            places,
            ids,
            counted,
            left_out,
            limited: Vec::new(),
            unmet: short
                .map(|(bound, _)| report::Unmet { limit: bound.text(), configurations: 1, absent: 0 })
                .into_iter()
                .collect(),
            tolerance: None,
            baseline,
            searched: std::mem::take(&mut self.axes),
            versions: Vec::new(),
        };
        Ok(Tuning {
            ranking,
            base: base_id,
            slower_at_most: time.map(str::to_owned).zip(self.args.slower_at_most),
            missed,
            learned,
            searched: std::mem::take(&mut self.searched),
            not_searched: std::mem::take(&mut self.not_searched),
            rounds,
            gone,
        })
    }

    /// Compares what two runs learned: by the base's objective, or else by a usual metric.
    fn learned(&self, seen: &Seen, best: &Run, base: &Run) -> Option<Learned> {
        let is_other =
            |name: &&str| *name != self.args.metric && known_metric(name).is_none_or(|known| !known.is_measured());
        let names = self.objective.as_deref().into_iter().chain(JUDGING_METRICS).filter(is_other);
        names.into_iter().find_map(|name| {
            let (best, base) = (seen.mean(best, name)?, seen.mean(base, name)?);
            Some(Learned { metric: name.to_owned(), best, base })
        })
    }
}
