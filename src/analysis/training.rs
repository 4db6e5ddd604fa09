//! The times of an attempt's training: its steps, its warm-up, and the windows of its epochs.
//!
//! Knows the steps and phases that a worker reported. Must not know the hardware.

use super::measure::Observed;
use super::statistic::{
    median_ns_sorted, median_real, median_sorted, nearest_rank_sorted, number, real, seconds, total,
};
use super::steps::{Steps, Timed};
use super::window::Windows;
use crate::record::{Attempt, Phase, Value, count};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Phases that do not count as training, though a worker may run them within an epoch.
const NO_TRAINING: [&str; 3] = ["eval", "inference", "checkpoint"];
/// Further phases without steps.
const WITHOUT_STEPS: [&str; 2] = ["idle", "inference_batch"];

/// Why steps have no times.
const READ_TOGETHER: &str = "the lines of the steps were read many at a time, so the end of each step is unknown (flush each line; steps that end within microseconds of each other need `t_ns` or `duration_ns`)";
/// If more than one in this many steps was read at once, the first and the last moment do not give the time of the training.
const SHARED: usize = 20;
/// Lines that follow each other faster than this may have waited to be read: it is about ten times the time to read one.
const WAITED_NS: u64 = 20_000;

/// They waited if nothing was read before them for this many times the time in which they were read.
const SILENCE: u64 = 4;

/// The number of training steps at the start of an attempt that measures of time leave out, because the first steps
/// compile, tune and fault in memory. It is a tenth of all steps, at most ten.
pub fn warmup_steps(steps: usize) -> usize {
    (steps / 10).min(10)
}

/// The number of warm-up steps, which metrics leave out and phases with these names do not. `None` if there are none,
/// or if no step lies in such phases.
pub fn warmup_among<'a>(attempt: &Attempt, mut names: impl Iterator<Item = &'a str>) -> Option<i64> {
    let holds_steps = |name: &str| !NO_TRAINING.contains(&name) && !WITHOUT_STEPS.contains(&name);
    let steps = attempt.facts.get("measure.warmup_steps").and_then(Value::as_int).filter(|steps| *steps > 0)?;
    names.any(holds_steps).then_some(steps)
}

/// The first step from which on `over` step times in a row have a coefficient of variation of at most `cv`; `None` if
/// there is none. A step without a duration is in no such row.
pub(super) fn steady_from(durations_ns: impl Iterator<Item = Option<u64>>, cv: f64, over: usize) -> Option<usize> {
    let over = over.max(2);
    let is_steady = |window: &VecDeque<Option<u64>>| {
        let Some(window) = window.iter().copied().collect::<Option<Vec<u64>>>() else { return false };
        let n = number(window.len());
        let mean = window.iter().map(|ns| real(*ns)).sum::<f64>() / n;
        let squares: f64 = window.iter().map(|ns| (real(*ns) - mean).powi(2)).sum();
        (squares / (n - 1.0)).sqrt() <= cv * mean
    };
    let mut window = VecDeque::new();
    for (at, duration_ns) in durations_ns.enumerate() {
        window.push_back(duration_ns);
        if window.len() > over {
            window.pop_front();
        }
        if window.len() == over && is_steady(&window) {
            return Some(at + 1 - over);
        }
    }
    None
}

/// Separates steps that were reported at one moment, because a worker synchronizes its device rarely. The last of them
/// ended at that moment, and each other one before the next began.
pub fn lay_out(phases: &mut [Phase]) {
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for phase in phases.iter_mut().rev() {
        let Some(told) = phase.stop_ns else { continue };
        let limit = next.entry(phase.rank).or_insert(u64::MAX);
        let stop_ns = told.min(*limit);
        phase.start_ns = stop_ns.saturating_sub(told.saturating_sub(phase.start_ns));
        phase.stop_ns = Some(stop_ns);
        *limit = phase.start_ns;
    }
}

/// The times of an attempt's training.
#[derive(Debug, Default)]
pub(super) struct Training {
    /// The steps with their end, and their duration as far as it is known.
    laps: Steps,
    /// The number of steps in the training, including those that were not logged.
    steps: u64,
    warmup: usize,
    /// The protocol's rule by which the warm-up ended, or the reason if it never did.
    steadied: Option<String>,
    unsteady: Option<String>,
    /// The windows of each epoch, without phases that are not training.
    epochs: Vec<Windows>,
    /// The windows of the training, including the warm-up.
    windows: Windows,
    /// The windows after the warm-up.
    pub(super) measured: Windows,
    /// The median step after the warm-up, in nanoseconds.
    step_ns: Option<f64>,
    /// The 95th percentile of these steps, in nanoseconds, and the number of them with a duration.
    p95_ns: Option<u64>,
    timed: usize,
    /// Whether many steps were read at once, so that their moments are not their ends.
    read_together: bool,
    /// Whether the same applies to the starts of epochs.
    is_late: bool,
}

impl Training {
    pub(super) fn new(observed: &Observed) -> Self {
        let of_rank_0 = || observed.phases.iter().filter(|phase| phase.rank == 0);
        let others = of_rank_0().filter(|phase| NO_TRAINING.contains(&phase.name.as_str()));
        let others: Windows = Windows::new(others.map(|phase| (phase.start_ns, phase.stop_ns.unwrap_or(u64::MAX))));
        let epochs: Vec<(u64, u64)> = of_rank_0()
            .filter(|phase| phase.name == "epoch")
            .filter_map(|phase| Some((phase.start_ns, phase.stop_ns?)))
            .collect();
        // A step without a duration began at the end of the previous step, or of another phase in between.
        let mut borders: Vec<u64> = epochs.iter().map(|(start, _)| *start).collect();
        borders.extend(others.iter().map(|(_, stop)| stop));
        borders.sort_unstable();
        let stands = stands(|| observed.steps.iter().map(|step| step.step));
        let together = read_together(&observed.steps);
        let laps = match together {
            Some(_) => observed.steps.iter().map(|step| Timed { duration_ns: None, ..step }).collect(),
            None => laps(&observed.steps, &borders, stands.clone().next() == Some(1)),
        };
        let is_blurred = together.is_some_and(|together| SHARED * together.most > observed.steps.len());
        // An epoch that begins at the moment of several steps was buffered with them.
        let starts: BTreeSet<u64> = epochs.iter().map(|(start, _)| *start).collect();
        let mut pairs = observed.steps.iter().zip(observed.steps.iter().skip(1));
        let is_late = is_blurred && pairs.any(|(one, next)| one.t_ns == next.t_ns && starts.contains(&one.t_ns));
        let span =
            laps.first().zip(laps.last()).map(|(first, last)| (first.start_ns().unwrap_or(first.t_ns), last.t_ns));
        let spans = Windows::new(epochs.iter().copied());
        let epochs: Vec<Windows> = epochs.into_iter().map(|epoch| Windows::new([epoch]).subtract(&others)).collect();
        let windows = match span {
            Some(_) if is_late || epochs.is_empty() && is_blurred => Windows::default(),
            Some(span) if epochs.is_empty() => Windows::new([span]).subtract(&others),
            _ => Windows::new(epochs.iter().flat_map(Windows::iter)),
        };
        let (warmup, steady) = match observed.bounds.steady {
            None => (warmup_steps(laps.len()), None),
            Some((cv, over)) => match steady_from(laps.iter().map(|lap| lap.duration_ns), cv, over) {
                Some(from) => (from, Some(Ok((cv, over)))),
                None => (warmup_steps(laps.len()), Some(Err((cv, over)))),
            },
        };
        let warm_until = laps.iter().take(warmup).last().map_or(0, |lap| lap.t_ns);
        let mut durations: Vec<u64> = laps.iter().skip(warmup).filter_map(|lap| lap.duration_ns).collect();
        durations.sort_unstable();
        let step_ns = median_sorted(&durations).filter(|ns| *ns > 0.0);
        let (p95_ns, timed) = (nearest_rank_sorted(&durations, 95), durations.len());
        drop(durations);
        let steps = if epochs.is_empty() {
            // The training begins with the first logged step, or at its end. Earlier steps, and steps read with it, are not counted.
            let before = together.filter(|_| !is_blurred).map_or(1, |together| together.first);
            let first = laps.first().is_some_and(|lap| lap.start_ns().is_some() || step_ns.is_some());
            total(stands.skip(before)).saturating_add(u64::from(first))
        } else {
            // If the times of the epochs are unknown, so are the steps in them.
            let is_known = !is_late && !spans.is_empty();
            let in_epochs = stands.zip(laps.iter()).filter(|(_, lap)| !is_known || lap.lies_in(&spans));
            total(in_epochs.map(|(stands, _)| stands))
        };
        Self {
            measured: windows.clip(warm_until, u64::MAX),
            step_ns,
            p95_ns,
            timed,
            steps,
            laps,
            warmup,
            steadied: steady.and_then(Result::ok).map(|(cv, over)| {
                format!(", before the step time's coefficient of variation over {over} steps was {cv} or less")
            }),
            unsteady: steady.and_then(Result::err).map(|(cv, over)| {
                format!("warm-up: no {over} steps in a row have a coefficient of variation of {cv} or less, as the protocol asks")
            }),
            epochs,
            windows,
            read_together: together.is_some(),
            is_late,
        }
    }

    /// Why step times are missing, if the steps' moments are not their ends.
    pub(super) fn read_together(&self) -> Option<&'static str> {
        self.read_together.then_some(READ_TOGETHER)
    }

    /// Why the end of the warm-up is unknown, if a protocol asks for it.
    pub(super) fn unsteady(&self) -> Option<&str> {
        self.unsteady.as_deref()
    }

    /// The number of steps in the training, including those that the worker did not log.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Why there are no steps in the training.
    pub(super) fn stepless(&self) -> &'static str {
        if self.laps.is_empty() { "the worker reported no step" } else { "no step lies in an epoch" }
    }

    /// The number of epochs with a start and a stop.
    pub(super) fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// The number of epochs that are whole passes, and the share of the steps in them. A run with a fixed number of
    /// steps ends within a pass. If the steps of a pass are unknown, or epochs are not passes, all epochs count as whole.
    pub(super) fn whole_epochs(&self, steps_of_a_pass: Option<u64>) -> (usize, f64) {
        let all = (self.epochs.len(), 1.0);
        let Some(each) = steps_of_a_pass.filter(|each| *each > 0) else { return all };
        let whole = usize::try_from(self.steps / each).unwrap_or(usize::MAX);
        let is_cut = !self.steps.is_multiple_of(each) && whole.checked_add(1) == Some(self.epochs.len());
        if is_cut { (whole, number(whole) * real(each) / real(self.steps)) } else { all }
    }

    /// The rule by which times and energies leave out the warm-up; `None` without steps.
    pub(super) fn rule(&self) -> Option<String> {
        (!self.laps.is_empty()).then(|| {
            if self.warmup == 0 && self.step_ns.is_none() {
                let steadied = self.steadied.as_deref().unwrap_or_default();
                let steps = count(self.laps.len(), "logged training step");
                return format!("there is no warm-up in {steps}{steadied}");
            }
            let times = match self.step_ns {
                Some(_) => "times count each as the median measured step",
                None => "times hold it as it was, since no step after it has a time",
            };
            format!(
                "warm-up is the first {} of {} logged training steps{}: {times}, energies as that time at the mean measured power",
                self.warmup,
                self.laps.len(),
                self.steadied.as_deref().unwrap_or_default()
            )
        })
    }

    fn warm(&self) -> impl Iterator<Item = Timed> {
        self.laps.iter().take(self.warmup)
    }

    pub(super) fn warmup(&self) -> usize {
        self.warmup
    }

    /// The median step after the warm-up, in seconds.
    pub(super) fn step_s(&self) -> Option<f64> {
        self.step_ns.map(|ns| ns / 1e9)
    }

    /// The 95th percentile of the steps after the warm-up, by nearest rank; `None` for fewer than twenty, where it
    /// would be the largest.
    pub(super) fn step_p95_s(&self) -> Option<f64> {
        self.p95_ns.filter(|ns| *ns > 0 && self.timed >= 20).map(seconds)
    }

    /// The time of the warm-up, including compilation; `None` if there are no warm-up steps with a duration.
    pub(super) fn warmup_s(&self) -> Option<f64> {
        let durations: Vec<u64> = self.warm().filter_map(|lap| lap.duration_ns).collect();
        (!durations.is_empty()).then(|| seconds(total(durations)))
    }

    /// The time of the training, with its warm-up replaced by median steps.
    pub(super) fn train_s(&self) -> Option<f64> {
        if self.windows.is_empty() {
            return None;
        }
        let span_is_of_steps = self.epochs.is_empty();
        // If the start of the first step is unknown, the windows begin at its end.
        let unseen = span_is_of_steps && self.laps.first().is_some_and(|lap| lap.start_ns().is_none());
        let missing = if unseen { self.step_s().unwrap_or(0.0) } else { 0.0 };
        let warm = self.warm().filter(|lap| span_is_of_steps || lap.lies_in(&self.windows));
        Some(self.replaced(self.windows.length(), warm) + missing)
    }

    /// The median time of the first `whole` epochs, with their warm-up replaced by median steps.
    pub(super) fn epoch_s(&self, whole: usize) -> Option<f64> {
        let times: Vec<f64> = self
            .epochs
            .iter()
            .take(whole)
            .map(|epoch| {
                let warm = self.warm().filter(|lap| lap.lies_in(epoch));
                self.replaced(epoch.length(), warm)
            })
            .collect();
        // An epoch whose start and stop were read at once has no measured time.
        median_real(&times).filter(|s| *s > 0.0 && !self.is_late)
    }

    /// A time in which the given warm-up steps are replaced by median steps. Steps without a duration cannot be
    /// replaced and are kept.
    fn replaced(&self, length_ns: u64, warm: impl Iterator<Item = Timed>) -> f64 {
        let raw: Vec<u64> = warm.filter_map(|lap| lap.duration_ns).collect();
        let Some(step_s) = self.step_s().filter(|_| !raw.is_empty()) else { return seconds(length_ns) };
        let count = number(raw.len());
        seconds(length_ns.saturating_sub(total(raw))) + count * step_s
    }

    /// Why the energy of the training is unknown.
    pub(super) fn unseen(&self) -> Option<&'static str> {
        if self.windows.is_empty() {
            return self.read_together().or(Some(
                "the worker reported no epoch and no two steps with a duration, so the time of its training is unknown",
            ));
        }
        let after = self.read_together().unwrap_or("nothing of the training came after the warm-up");
        self.measured.is_empty().then_some(after)
    }
}

impl Timed {
    fn start_ns(&self) -> Option<u64> {
        self.duration_ns.map(|duration| self.t_ns.saturating_sub(duration))
    }

    fn lies_in(&self, windows: &Windows) -> bool {
        // The middle decides, because a step has the worker's own duration and may exceed its epoch by the time of an event.
        let middle = self.duration_ns.map_or(self.t_ns, |duration| self.t_ns.saturating_sub(duration / 2));
        windows.holds(middle.min(self.t_ns.saturating_sub(1)))
    }
}

/// The number of steps for which each logged one counts, by their numbers in order: itself and those since the previous
/// one. The first step, and one at which the numbers restart, counts for the usual number of steps, but for no more
/// than its own number.
pub(super) fn stands<I: Iterator<Item = u64> + Clone>(numbers: impl Fn() -> I) -> impl Iterator<Item = u64> + Clone {
    let since = numbers().zip(numbers().skip(1)).filter_map(|(one, next)| next.checked_sub(one)).filter(|n| *n > 0);
    let mut since: Vec<u64> = since.collect();
    since.sort_unstable();
    let usual = median_ns_sorted(&since).unwrap_or(1);
    numbers().scan(u64::MAX, move |before, number| {
        let stands = if number > *before { number - *before } else { number.clamp(1, usual) };
        *before = number;
        Some(stands)
    })
}

/// The numbers of steps that were read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Together {
    /// At the first time.
    first: usize,
    /// The largest number.
    most: usize,
}

/// The number of steps that were reported at one moment.
struct Moment {
    t_ns: u64,
    len: usize,
}

/// Returns how steps were read if most of them share a moment and none has a duration: their lines were buffered and
/// read at once. If only some steps share a moment, the supervisor was late for them, and the result is `None`.
fn read_together(steps: &Steps) -> Option<Together> {
    let pairs = || steps.iter().zip(steps.iter().skip(1));
    // The first step of each shared moment is counted with its successor.
    let (mut shared, mut before) = (0, None);
    for (one, next) in pairs() {
        if one.t_ns == next.t_ns {
            shared += if before == Some(one.t_ns) { 1 } else { 2 };
            before = Some(one.t_ns);
        } else {
            before = None;
        }
    }
    if 2 * shared <= steps.len() || steps.iter().any(|step| step.duration_ns.is_some()) {
        return None;
    }
    let mut moments: Vec<Moment> = Vec::new();
    for Timed { t_ns, .. } in steps.iter() {
        match moments.last_mut() {
            Some(moment) if moment.t_ns == t_ns => moment.len += 1,
            _ => moments.push(Moment { t_ns, len: 1 }),
        }
    }
    // A pipe has a fixed capacity, so lines that were buffered for long are read in several turns.
    let waited = |one: &Moment, next: &Moment| {
        let patience = WAITED_NS.saturating_mul(u64::try_from(one.len).unwrap_or(u64::MAX));
        next.t_ns.saturating_sub(one.t_ns) < patience
    };
    let (mut at_once, mut silent_since_ns) = (Vec::new(), 0);
    for turns in moments.chunk_by(waited) {
        let (Some(first), Some(last)) = (turns.first(), turns.last()) else { continue };
        let silence_ns = first.t_ns.saturating_sub(silent_since_ns);
        silent_since_ns = last.t_ns;
        let lens = turns.iter().map(|moment| moment.len);
        // Steps that are really this fast come without such a silence.
        if last.t_ns.saturating_sub(first.t_ns).saturating_mul(SILENCE) < silence_ns {
            at_once.push(lens.sum());
        } else {
            at_once.extend(lens);
        }
    }
    Some(Together { first: *at_once.first()?, most: at_once.into_iter().max()? })
}

/// The steps in time: with the worker's durations, or else from one step to the next. `borders` are moments at which a
/// step may begin, and `first_alone` means that no step before the first was left out.
fn laps(steps: &Steps, borders: &[u64], first_alone: bool) -> Steps {
    let stated = steps.iter().any(|step| step.duration_ns.is_some());
    if stated {
        let mut next = u64::MAX;
        let lap = |step: Timed| {
            let lap = Timed { t_ns: step.t_ns.min(next), ..step };
            next = lap.start_ns().unwrap_or(lap.t_ns);
            lap
        };
        let backwards: Steps = steps.iter().rev().map(lap).collect();
        return backwards.iter().rev().collect();
    }
    let mut before: Option<Timed> = None;
    let lap = |step: Timed| {
        let follows = before.filter(|before| step.step == before.step.wrapping_add(1)).map(|before| before.t_ns);
        let border = borders[..borders.partition_point(|border| *border < step.t_ns)].last().copied();
        // Only a step that follows the previous one, or is the first of all, is known to have begun at a border.
        let start_ns = if follows.is_some() || before.is_none() && first_alone { follows.max(border) } else { None };
        before = Some(step);
        Timed { duration_ns: start_ns.map(|start| step.t_ns.saturating_sub(start)), ..step }
    };
    steps.iter().map(lap).collect()
}

/// Samples per second at this step time.
pub(super) fn throughput(samples_per_step: u64, step_s: f64) -> f64 {
    real(samples_per_step) / step_s
}

#[cfg(test)]
mod tests;
