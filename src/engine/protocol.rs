//! How a sweep is measured fairly: in which order, how often, how cool, and whether the machine drifted meanwhile.
//!
//! Everything is read from the settings of the cells, so that it is recorded with each attempt. What is measured of an attempt, and what
//! taints it, is decided in `analysis`.

use super::bind::{Bound, OBSERVE_ONLY};
use super::{Seen, Stop, Watch};
use crate::analysis::{Correlation, Summary};
use crate::gpu::{Gpus, Settings};
use crate::manifest::percent;
use crate::record::{Attempt, Run, RunId, Sealed, Table, Value};
use crate::store::{Reader, Store, StoreError};
use std::time::{Duration, Instant};

/// The setting that marks an attempt as one of the canary's.
pub const CANARY: &str = "protocol.canary";
/// How often a GPU's temperature is looked at while it cools.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// When a run has been executed often enough.
#[derive(Clone, Debug, PartialEq)]
pub struct Until {
    /// Attempts in any case.
    pub min: usize,
    /// Half the width of the 95% interval, as a share of the mean.
    pub share: f64,
    /// Of this metric.
    pub metric: String,
}

impl Until {
    /// What the cell's settings ask for.
    pub fn of(bound: &Bound) -> Option<Self> {
        let settings = &bound.cell.settings;
        let share = settings.get("repeats.until").and_then(Value::as_str).and_then(percent)?;
        let min = settings.get("repeats.min").and_then(Value::as_int).and_then(|min| usize::try_from(min).ok());
        Some(Self { min: min.unwrap_or(2), share, metric: metric(bound) })
    }

    /// Whether what the ledger holds of a run is enough: so many attempts that count, and an interval that is narrow enough.
    ///
    /// # Errors
    /// If the ledger cannot be read; one that does not exist yet holds nothing.
    pub fn is_met(&self, store: &Store, run: RunId) -> Result<bool, StoreError> {
        let values = match store.read(|reader| {
            let mut values = Vec::new();
            for (id, finished) in reader.attempts_of(run)? {
                let attempt = if finished { reader.attempt(id)? } else { None };
                values.extend(attempt.and_then(|attempt| counted(&attempt, &self.metric)));
            }
            Ok(values)
        }) {
            Err(StoreError::Missing(_)) => Vec::new(),
            found => found?,
        };
        Ok(self.is_enough(&values))
    }

    fn is_enough(&self, values: &[f64]) -> bool {
        let Some(summary) = Summary::of(values).filter(|summary| summary.n >= self.min) else { return false };
        summary.half_width().is_some_and(|half_width| half_width <= self.share * summary.mean.abs())
    }
}

/// What was measured of an attempt that counts.
fn counted(attempt: &Attempt, metric: &str) -> Option<f64> {
    attempt.counts().ok()?;
    attempt.measured(metric).ok()
}

/// The metric by which runs of a sweep are watched.
fn metric(bound: &Bound) -> String {
    let named = |key: &str| bound.cell.settings.get(key).and_then(Value::as_str).map(str::to_owned);
    let usual = if bound.gpus.is_empty() { "train_time" } else { "energy" };
    named("repeats.metric").or_else(|| named("objective.metric")).unwrap_or_else(|| usual.to_owned())
}

/// How many finished attempts of a run the ledger holds, of those that the run wants.
pub(super) fn finished_count(reader: &Reader<'_>, bound: &Bound) -> Result<usize, StoreError> {
    // Where nothing is set, though it is asked for, all are alike.
    if bound.settings_to_make().is_none() { reader.finished_count(bound.run.id) } else { filled(reader, &bound.run) }
}

/// How many finished attempts of a run the ledger holds that were made as the run asks.
///
/// # Errors
/// If the ledger cannot be read.
pub fn filled(reader: &Reader<'_>, run: &Run) -> Result<usize, StoreError> {
    if Settings::of(run.config()).is_none() {
        return reader.finished_count(run.id);
    }
    let mut count = 0;
    for (id, finished) in reader.attempts_of(run.id)? {
        let attempt = if finished { reader.attempt(id)? } else { None };
        count += usize::from(attempt.is_some_and(|attempt| fills(&attempt)));
    }
    Ok(count)
}

/// Whether a finished attempt is one of those that its cell wants. One that only watched, on a card that was not set as the cell asks,
/// was made of something else.
fn fills(attempt: &Attempt) -> bool {
    !attempt.settings.contains_key(OBSERVE_ONLY) || attempt.disturbances().is_empty()
}

/// In which order a sweep executes its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Seeds the shuffling of each round; none leaves the order as it is.
    pub seed: Option<u64>,
    /// After so many attempts the canary is executed once more; 0 is never.
    pub canary_every: usize,
}

impl Order {
    /// What the settings of a sweep's first cell ask for; without a protocol, the order of the cells and no canary.
    pub fn of(bound: Option<&Bound>) -> Self {
        let settings = bound.map(|bound| &bound.cell.settings);
        let number =
            |key: &str| settings?.get(key).and_then(Value::as_int).and_then(|number| u64::try_from(number).ok());
        let shuffled = settings.is_some_and(|settings| settings.get("protocol.order") == Some(&"shuffled".into()));
        Self {
            seed: if shuffled { number("protocol.order_seed").or(Some(0)) } else { None },
            canary_every: number("protocol.canary_every").and_then(|every| usize::try_from(every).ok()).unwrap_or(0),
        }
    }

    /// Puts the items of a round in its order.
    pub fn arrange<T>(self, round: u64, items: &mut [T]) {
        let Some(seed) = self.seed else { return };
        let mut state = seed ^ round.wrapping_mul(0xd1b5_4a32_d192_ed03);
        for last in (1..items.len()).rev() {
            let among = u64::try_from(last + 1).unwrap_or(u64::MAX);
            let at = usize::try_from(draw(&mut state) % among).unwrap_or(0);
            items.swap(at, last);
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers from the same seed on every machine.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The run as its canary: the same run, whose attempts are marked.
pub fn canary(bound: &Bound) -> Bound {
    let mut canary = bound.clone();
    canary.cell.settings.insert(CANARY.to_owned(), true.into());
    canary
}

/// What the canary's attempts of one sweep say.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The metric that was watched.
    pub metric: String,
    /// How many attempts of the canary count.
    pub attempts: usize,
    /// How far the line through them goes from the first to the last, as a share of their mean.
    pub share: f64,
    /// The probability of such a line, or a steeper one, where nothing drifts; none of fewer than three attempts.
    pub p: Option<f64>,
}

impl Drift {
    /// From the attempts of a sweep in the order of their ends; none where fewer than two of the canary count.
    pub fn of<'a>(bound: &Bound, executed: impl IntoIterator<Item = &'a Sealed>) -> Option<Self> {
        let metric = metric(bound);
        let of_canary = executed.into_iter().filter(|sealed| sealed.attempt.settings.contains_key(CANARY));
        let values = of_canary.filter_map(|sealed| {
            let value = counted(&sealed.attempt, &metric)?;
            #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact for 285,000 years")]
            Some((sealed.attempt.started_unix_ms as f64, value))
        });
        let mut points: Vec<(f64, f64)> = values.collect();
        let (first, last) = (points.first()?.0, points.last()?.0);
        points.iter_mut().for_each(|point| point.0 -= first);
        let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
        let mean = Summary::of(&values)?.mean;
        if values.len() < 2 || mean == 0.0 {
            return None;
        }
        // Values that do not vary have no line, and do not drift.
        let line = Correlation::of(&points);
        let (slope, p) = line.map_or((0.0, None), |line| (line.slope, line.pearson_p));
        Some(Self { metric, attempts: points.len(), share: slope * (last - first) / mean, p })
    }
}

/// Waits until the GPUs of a run are as cool as its protocol asks, and says how long that took. Ends early when it is told to stop.
pub(super) fn cool_down(bound: &Bound, watch: &dyn Watch, stop: &dyn Stop) -> Table {
    let settings = &bound.cell.settings;
    let Some(bound_c) = settings.get("protocol.cool_to_c").and_then(Value::as_float) else { return Table::new() };
    if bound.gpus.is_empty() {
        return Table::new();
    }
    let patience = settings.get("protocol.cool_timeout_s").and_then(Value::as_float).unwrap_or(600.0);
    let Ok(gpus) = Gpus::load(bound.nvml.as_deref()) else { return Table::new() };
    let since = Instant::now();
    let mut told = false;
    let hottest = loop {
        let temperatures = bound.gpus.iter().filter_map(|gpu| gpus.temperature_c(&gpu.uuid).ok());
        // A card that does not tell its temperature cannot be waited for.
        let Some(hottest) = temperatures.max() else { return Table::new() };
        if f64::from(hottest) <= bound_c || since.elapsed().as_secs_f64() >= patience || stop.asked() > 0 {
            break hottest;
        }
        if !std::mem::replace(&mut told, true) {
            watch.see(Seen::Cooling(bound, hottest));
        }
        std::thread::sleep(LOOK_EVERY);
    };
    [
        ("protocol.cooled_s".to_owned(), since.elapsed().as_secs_f64().into()),
        ("protocol.start_c".to_owned(), hottest.into()),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Digest, Metric, Nonce, Outcome, Tail};
    use std::collections::BTreeMap;

    #[test]
    fn a_round_has_every_item_once_and_each_round_another_order() {
        let order = Order { seed: Some(7), canary_every: 0 };
        let round = |round: u64| {
            let mut items: Vec<u32> = (0..20).collect();
            order.arrange(round, &mut items);
            items
        };
        assert_eq!(round(0), round(0), "the same seed, the same order");
        assert_ne!(round(0), round(1));
        assert_ne!(round(0), (0..20).collect::<Vec<_>>());
        let mut sorted = round(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        let mut untouched = [1, 2, 3];
        Order { seed: None, canary_every: 0 }.arrange(5, &mut untouched);
        assert_eq!(untouched, [1, 2, 3]);
    }

    /// Each of the six orders of three items comes up as often as the others: chi-squared with 5 degrees of freedom is below 20.5
    /// with a probability of 99.9%.
    #[test]
    fn orders_are_equally_likely() {
        let mut seen = BTreeMap::<[u8; 3], u32>::new();
        for seed in 0..6000 {
            let mut items = [0, 1, 2];
            Order { seed: Some(seed), canary_every: 0 }.arrange(0, &mut items);
            *seen.entry(items).or_default() += 1;
        }
        let chi: f64 = seen.values().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(seen.len() == 6 && chi < 20.5, "{chi} of {seen:?}");
    }

    #[test]
    fn splitmix_gives_its_published_numbers() {
        let mut state = 1_234_567;
        let drawn: Vec<u64> = (0..3).map(|_| draw(&mut state)).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    fn attempt(energy_j: f64, outcome: Outcome, facts: Table) -> Attempt {
        Attempt {
            run: RunId(Digest([1; 32])),
            nonce: Nonce([7; 16]),
            started_unix_ms: 0,
            wall_ns: 1,
            outcome,
            exit: None,
            metrics: [("energy".to_owned(), Metric::new(energy_j, "J"))].into(),
            digests: BTreeMap::new(),
            settings: Table::new(),
            facts,
            warnings: Vec::new(),
            tail: Tail::default(),
            series: Vec::new(),
            phases: Digest([0; 32]),
        }
    }

    #[test]
    fn attempts_that_do_not_count_are_no_part_of_drift_and_interval() {
        let finished = || Outcome::Finished;
        let cut_short = Outcome::Interrupted { reason: "it was stopped on request".to_owned() };
        let tainted: Table = [("worker.tainted".to_owned(), "the fan failed".into())].into();
        assert_eq!(counted(&attempt(5.0, finished(), Table::new()), "energy"), Some(5.0));
        assert_eq!(counted(&attempt(2.5, cut_short, Table::new()), "energy"), None);
        assert_eq!(counted(&attempt(5.0, finished(), tainted), "energy"), None);
    }

    #[test]
    fn intervals_end_the_repetitions() {
        let until = Until { min: 3, share: 0.02, metric: "energy".to_owned() };
        assert!(!until.is_enough(&[]));
        assert!(!until.is_enough(&[100.0, 100.0]), "too few, however alike");
        assert!(until.is_enough(&[100.0, 100.0, 100.0]));
        // Deviation 1, three values: 4.3027 * 1 / sqrt(3) = 2.484.
        assert!(!until.is_enough(&[99.0, 100.0, 101.0]));
        // The same scatter of five: deviation 0.7071 * 2.776 / sqrt(5) = 0.878.
        assert!(until.is_enough(&[99.0, 100.0, 101.0, 100.0, 100.0]));
    }
}
