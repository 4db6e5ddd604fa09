//! The measurement protocol of a sweep: the order of runs, and the cooling of GPUs. Repetitions are in `until`, the
//! canary's drift in `drift`.
//!
//! Everything is read from the settings of the cells, so that it is recorded with each attempt. `analysis` decides what
//! is measured and what taints an attempt.

use super::bound::Bound;
use super::{Seen, Stop, Watch};
use crate::gpu::Gpus;
use crate::record::{Table, Value};
use std::time::{Duration, Instant};

/// The setting that marks an attempt of the canary (control run).
pub const CANARY: &str = "protocol.canary";
/// The polling interval of the temperature.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The order in which a sweep executes its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The seed for shuffling each round. `None` keeps the order.
    pub seed: Option<u64>,
    /// The canary is executed again after this many attempts; 0 is never.
    pub canary_every: usize,
}

impl Order {
    /// The order in the settings of a sweep's first cell. Without a protocol, the order of the cells and no canary.
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

    /// Shuffles the items of a round. `seeds` is the sum of the runs' seeds: sweeps of a manifest over other seeds get
    /// another order, so that no configuration is always first.
    pub fn arrange<T>(self, round: u64, seeds: u64, items: &mut [T]) {
        let Some(seed) = self.seed else { return };
        let mut state = seed ^ (round ^ seeds << 32).wrapping_mul(0xd1b5_4a32_d192_ed03);
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

/// The canary of a run: the same run with marked attempts.
pub fn canary(bound: &Bound) -> Bound {
    let mut canary = bound.clone();
    canary.cell.settings.insert(CANARY.to_owned(), true.into());
    canary
}

/// Waits until the GPUs of a run are as cool as its protocol asks. Returns facts about the wait. Ends early on a
/// request to stop.
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
        // Without a temperature there is nothing to wait for.
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
    use std::collections::BTreeMap;

    #[test]
    fn each_round_has_every_item_once_in_another_order() {
        let order = Order { seed: Some(7), canary_every: 0 };
        let round = |round: u64| {
            let mut items: Vec<u32> = (0..20).collect();
            order.arrange(round, 5, &mut items);
            items
        };
        assert_eq!(round(0), round(0), "the same seed, the same order");
        assert_ne!(round(0), round(1));
        let mut of_others: Vec<u32> = (0..20).collect();
        order.arrange(0, 6, &mut of_others);
        assert_ne!(round(0), of_others, "other seeds, another order");
        assert_ne!(round(0), (0..20).collect::<Vec<_>>());
        let mut sorted = round(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
        let mut untouched = [1, 2, 3];
        Order { seed: None, canary_every: 0 }.arrange(5, 5, &mut untouched);
        assert_eq!(untouched, [1, 2, 3]);
    }

    /// The six orders of three items are equally frequent: chi-squared with 5 degrees of freedom is below 20.5 with a
    /// probability of 99.9%.
    #[test]
    fn orders_are_equally_likely() {
        let mut seen = BTreeMap::<[u8; 3], u32>::new();
        for seed in 0..6000 {
            let mut items = [0, 1, 2];
            Order { seed: Some(seed), canary_every: 0 }.arrange(0, 0, &mut items);
            *seen.entry(items).or_default() += 1;
        }
        let chi: f64 = seen.values().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(seen.len() == 6 && chi < 20.5, "{chi} of {seen:?}");
    }

    #[test]
    fn splitmix_returns_its_published_numbers() {
        let mut state = 1_234_567;
        let drawn: Vec<u64> = (0..3).map(|_| draw(&mut state)).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
