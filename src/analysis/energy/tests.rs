use super::*;
use crate::record::{Axis, Series};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn series(name: &str, points: impl IntoIterator<Item = (u64, f64)>) -> Series {
    let mut series = Series::new(name, "", Axis::TimeNs);
    points.into_iter().for_each(|(at, value)| series.push(at, value));
    series
}

/// Power as a function of time in milliseconds.
struct Truth<'a> {
    watts: &'a dyn Fn(u64) -> f64,
}

impl Truth<'_> {
    /// A meter that reads every `every` ms from `phase` on: power as it is at that moment, and a counter that ticks every
    /// `tick` ms.
    fn meter(&self, phase: u64, every: u64, tick: u64, seconds: u64) -> Meter {
        let times = || (0..).map(|i| phase + i * every).take_while(|ms| *ms <= seconds * 1000);
        let power = series("power", times().map(|ms| (ms * MS, (self.watts)(ms))));
        let mut sum = vec![0.0];
        (0..=seconds * 1000).for_each(|ms| sum.push(sum[sum.len() - 1] + (self.watts)(ms) / 1e3));
        let counter = series("energy", times().map(|ms| (ms * MS, sum[usize::try_from(ms / tick * tick).unwrap()])));
        let power = Readings::new(&power, None).map(|readings| (Method::PowerInstant, readings));
        Meter::new(power, Readings::new(&counter, None).map(Counter::new)).unwrap()
    }
}

fn ms(intervals: &[(u64, u64)]) -> Windows {
    Windows::new(intervals.iter().map(|(start, stop)| (start * MS, stop * MS)))
}

fn without_counter(meter: Meter) -> Meter {
    Meter { counter: None, ..meter }
}

fn without_power(meter: Meter) -> Meter {
    Meter { power: None, ..meter }
}

fn assert_holds(energy: &Energy, truth: f64) -> Result<(), TestCaseError> {
    let off = (energy.joules - truth).abs();
    prop_assert!(off <= energy.half_width() + 1e-6, "{truth} is not in {} ± {}", energy.joules, energy.half_width());
    Ok(())
}

proptest! {
    #[test]
    fn constant_power_is_within_the_stated_uncertainty(
        watts in 20.0..1000.0f64, phase in 0..100u64, every in 20..=150u64, start in 300..3000u64, length in 400..20_000u64,
    ) {
        let constant = |_| watts;
        let truth = Truth { watts: &constant };
        let meter = truth.meter(phase, every, 100, 30);
        let windows = ms(&[(start, start + length)]);
        let exact = watts * real(length) / 1e3;
        let integrated = without_counter(meter.clone()).energy(&windows).unwrap();
        prop_assert!((integrated.joules - exact).abs() < 1e-6 * exact);
        prop_assert!((integrated.half_width() - 0.05 * exact).abs() < 1e-6 * exact, "only the sensor's part is left");
        let energy = meter.energy(&windows).unwrap();
        // The error is a difference of two lags of up to a tick each. With few ticks, only 95% of windows cover the truth.
        if length > 3000 {
            assert_holds(&energy, exact)?;
            assert_holds(&without_power(meter).energy(&windows).unwrap(), exact)?;
            prop_assert!(energy.disagreement().unwrap().abs() < 0.05);
        }
        prop_assert!(energy.method == Method::Counter || length < 10 * (100 + every));
        prop_assert!(energy.method == Method::PowerInstant || length >= 900);
    }

    #[test]
    fn a_straight_line_of_power_is_exact_by_its_trapezoids(
        slope in -10.0..10.0f64, phase in 0..100u64, start in 200..3000u64, length in 200..9000u64,
    ) {
        let line = series("power", (0..200).map(|i| {
            let at = phase + 100 * i;
            (at * MS, 400.0 + slope * real(at) / 1e3)
        }));
        let meter = Meter::new(Some((Method::PowerInstant, Readings::new(&line, None).unwrap())), None).unwrap();
        let energy = meter.energy(&ms(&[(start, start + length)])).unwrap();
        let middle = 400.0 + slope * (real(start) + real(length) / 2.0) / 1e3;
        prop_assert!((energy.watts() - middle).abs() < 1e-6);
    }

    #[test]
    fn the_parts_of_a_window_add_up(
        levels in prop::collection::vec(50.0..700.0f64, 30), cut in 3000..20_000u64, phase in 0..100u64,
    ) {
        let watts = |ms: u64| levels[usize::try_from(ms / 1000).unwrap().min(29)];
        let meter = Truth { watts: &watts }.meter(phase, 100, 100, 29);
        let of = |from: u64, to: u64| meter.energy(&ms(&[(from, to)])).unwrap();
        let (whole, left, right) = (of(1000, 24_000), of(1000, cut), of(cut, 24_000));
        prop_assert!((whole.joules - left.joules - right.joules).abs() < 1e-6 * whole.joules);
        prop_assert!((whole.integrated.unwrap() - left.integrated.unwrap() - right.integrated.unwrap()).abs() < 1e-3);
    }

    #[test]
    fn a_busy_phase_beside_an_idle_one_is_never_given_idle_power(
        busy in 5..2000u64, idle in 5..2000u64, phase in 0..100u64, every in 20..=100u64, with_counter: bool,
    ) {
        // Work exactly in step with the readings could show them only one of the two phases, so this work is uneven.
        let uneven = |i: u64, salt: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> salt) % every;
        let (mut busy_windows, mut idle_windows, mut now) = (Vec::new(), Vec::new(), 500);
        for i in 0..40_000 {
            let (middle, end) = (now + busy + uneven(i, 17), now + busy + uneven(i, 17) + idle + uneven(i, 31));
            if end > 38_000 {
                break;
            }
            busy_windows.push((now, middle));
            idle_windows.push((middle, end));
            now = end;
        }
        let is_busy: Vec<bool> = {
            let windows = ms(&busy_windows);
            (0..=40_000).map(|at| windows.holds(at * MS)).collect()
        };
        let watts = |ms: u64| if is_busy[usize::try_from(ms).unwrap()] { 700.0 } else { 100.0 };
        let meter = Truth { watts: &watts }.meter(phase, every, 100, 40);
        let meter = if with_counter { meter } else { without_counter(meter) };
        for (windows, watts) in [(ms(&busy_windows), 700.0), (ms(&idle_windows), 100.0)] {
            let (energy, seconds) = (meter.energy(&windows), real(windows.length()) / 1e9);
            let Ok(energy) = energy else { continue };
            // An interval of 95% may miss; one of twice its width does not.
            let off = (energy.joules - watts * seconds).abs();
            prop_assert!(off <= 2.0 * energy.half_width(), "{watts} W are taken for {energy:?}");
            prop_assert_eq!(energy.watts() > 400.0, watts > 400.0, "{:?}", energy);
        }
    }

    #[test]
    fn energies_of_two_devices_are_summed(a in 50.0..700.0f64, b in 50.0..700.0f64, length in 3000..20_000u64) {
        let (one, other) = (|_| a, |_| b);
        let windows = ms(&[(500, 500 + length)]);
        let of = |watts: &dyn Fn(u64) -> f64| Truth { watts }.meter(7, 100, 100, 25).energy(&windows).unwrap();
        let (one, other) = (of(&one), of(&other));
        let sum = Energy::sum(&[one.clone(), other.clone()]).unwrap();
        assert_holds(&sum, (a + b) * real(length) / 1e3)?;
        prop_assert!((sum.joules - one.joules - other.joules).abs() < 1e-9);
        prop_assert!((sum.uncertainty.sensor - one.uncertainty.sensor - other.uncertainty.sensor).abs() < 1e-9);
        prop_assert!(sum.half_width() <= one.half_width() + other.half_width() + 1e-9);
        prop_assert!(sum.half_width() >= one.half_width().hypot(other.half_width()) - 1e-9);
        prop_assert_eq!(Energy::sum(std::slice::from_ref(&one)), Some(one));
    }

    #[test]
    fn changes_at_an_edge_are_common_to_all_devices(
        low in 50.0..700.0f64, high in 50.0..700.0f64, at in 1300..1400u64, length in 200..2000u64, phase in 0..100u64,
    ) {
        let watts = |ms: u64| if ms < at || ms >= at + length { low } else { high };
        let one = without_counter(Truth { watts: &watts }.meter(phase, 100, 100, 8)).energy(&ms(&[(at, at + length)])).unwrap();
        let sum = Energy::sum(&[one.clone(), one.clone(), one.clone(), one.clone()]).unwrap();
        assert_holds(&sum, 4.0 * high * real(length) / 1e3)?;
        prop_assert!((sum.half_width() - 4.0 * one.half_width()).abs() < 1e-9 * sum.half_width());
    }

    #[test]
    fn power_averaged_over_a_second_is_within_the_stated_uncertainty_at_the_edges_of_phases(
        low in 50.0..700.0f64, high in 50.0..700.0f64, at in 2000..3000u64, length in 500..6000u64, every in 20..=100u64,
    ) {
        let watts = |ms: u64| if ms < at || ms >= at + length { low } else { high };
        let high_ms = |ms: u64| ms.clamp(at, at + length) - at;
        let average = |ms: u64| low + (high - low) * real(high_ms(ms) - high_ms(ms.saturating_sub(1000))) / 1e3;
        let (now, averaged) = (Truth { watts: &watts }.meter(3, every, 100, 12), Truth { watts: &average }.meter(3, every, 100, 12));
        let averaged = averaged.power.map(|(_, readings)| (Method::PowerAverage, readings));
        let windows = ms(&[(at, at + length)]);
        prop_assert!(without_counter(now).energy(&windows).is_ok());
        match Meter::new(averaged, None).unwrap().energy(&windows) {
            Ok(energy) => {
                prop_assert!(length >= 2000, "{energy:?}");
                assert_holds(&energy, high * real(length) / 1e3)?;
                prop_assert!(energy.uncertainty.edges >= (high - low).abs(), "a second at an edge: {:?}", energy);
            }
            Err(reason) => prop_assert!(length < 2000 && reason.ends_with("but power is an average over 1 s, and twice that is needed"), "{}", reason),
        }
    }

    #[test]
    fn a_step_in_power_at_an_edge_is_within_the_stated_uncertainty(
        low in 50.0..700.0f64, high in 50.0..700.0f64, at in 1000..1200u64, length in 200..4000u64, every in 20..=100u64,
    ) {
        let watts = |ms: u64| if ms < at || ms >= at + length { low } else { high };
        let meter = Truth { watts: &watts }.meter(3, every, 100, 8);
        let energy = without_counter(meter).energy(&ms(&[(at, at + length)])).unwrap();
        assert_holds(&energy, high * real(length) / 1e3)?;
    }
}

#[test]
fn a_counter_of_few_ticks_holds_in_95_of_100_windows() {
    let constant = |_| 500.0;
    let (mut held, mut all) = (0, 0);
    for phase in (0..100).step_by(7) {
        for every in [33, 50, 99, 100, 101] {
            let meter = without_power(Truth { watts: &constant }.meter(phase, every, 100, 20));
            for start in (2000..2400).step_by(13) {
                let energy = meter.energy(&ms(&[(start, start + 1100)])).unwrap();
                all += 1;
                held += u32::from((energy.joules - 550.0).abs() <= energy.half_width());
            }
        }
    }
    assert!(held * 100 >= all * 95, "{held} of {all}");
}

#[test]
fn windows_that_are_too_short_are_refused_with_the_reason() {
    let constant = |_| 300.0;
    let meter = Truth { watts: &constant }.meter(0, 100, 100, 30);
    let refused = |intervals: &[(u64, u64)]| meter.energy(&ms(intervals)).unwrap_err();
    assert_eq!(refused(&[(1000, 1003)]), "lasts 3 ms, but power is read every 100 ms, and twice that is needed");
    assert_eq!(refused(&[]), "lasts no time");
    let steps: Vec<(u64, u64)> = (10..200).map(|i| (i * 100, i * 100 + 30)).collect();
    assert_eq!(
        refused(&steps),
        "occurs 190 times, each for about 30 ms, but power is read every 100 ms, and twice that is needed"
    );
    assert_eq!(refused(&[(28_000, 40_000)]), "has samples of power for only 16% of its time, but 90% are needed");
    assert_eq!(refused(&[(50_000, 60_000)]), "has no samples of power in its time");
    let seldom = Truth { watts: &constant }.meter(0, 100, 1000, 30);
    let expected = "lasts 1.5 s, but the counter ticks every 1 s, and twice that is needed";
    assert_eq!(seldom.energy(&ms(&[(1000, 2500)])).unwrap_err(), expected);
    assert_eq!(without_power(seldom).energy(&ms(&[(1000, 2500)])).unwrap_err(), expected);
}

#[test]
fn short_intervals_that_fill_their_time_share_its_energy() {
    let constant = |_| 300.0;
    let meter = Truth { watts: &constant }.meter(0, 100, 100, 30);
    let steps: Vec<(u64, u64)> = (10..250).map(|i| (i * 100, i * 100 + 95)).collect();
    let energy = meter.energy(&ms(&steps)).unwrap();
    assert!((energy.length_s - 240.0 * 0.095).abs() < 1e-9);
    assert!((energy.watts() - 300.0).abs() < 3.0);
    assert!((energy.uncertainty.breaks / energy.joules - 0.0525).abs() < 1e-3, "{energy:?}");
}

#[test]
fn a_gap_counts_as_the_rest_up_to_a_tenth() {
    let gappy = |missing: std::ops::Range<u64>| {
        let times = (0..200u64).filter(|i| !missing.contains(i)).map(|i| i * 100 * MS);
        let power = series("power", times.map(|at| (at, 250.0)));
        Meter::new(Some((Method::PowerAverage, Readings::new(&power, None).unwrap())), None).unwrap()
    };
    let windows = Windows::new([(0, 19 * S)]);
    let energy = gappy(50..59).energy(&windows).unwrap();
    assert!((energy.joules - 250.0 * 19.0).abs() < 1e-6);
    assert!((energy.coverage - 18.0 / 19.0).abs() < 1e-9);
    assert!((energy.uncertainty.gaps - 250.0).abs() < 1e-6);
    assert_eq!(energy.method.name(), "integrated power_average");
    assert!(gappy(50..80).energy(&windows).is_err());
}

#[test]
fn with_an_invalid_counter_the_integrated_figure_is_used() {
    let constant = |_| 400.0;
    let whole = Truth { watts: &constant }.meter(0, 100, 100, 30);
    let windows = Windows::new([(S, 21 * S)]);
    for (fault, value) in [
        (CounterFault::Backwards, (|i: u32| f64::from(if i < 100 { 40 * i } else { i })) as fn(u32) -> f64),
        (CounterFault::Frozen, |i| f64::from(40 * i.min(100))),
    ] {
        let counter = series("energy", (0u32..300).map(|i| (u64::from(i) * 100 * MS, value(i))));
        let counter = Readings::new(&counter, None).map(Counter::new);
        let meter = Meter::new(whole.power.clone(), counter).unwrap();
        let energy = meter.energy(&windows).unwrap();
        assert_eq!((energy.method, energy.fault, energy.counter), (Method::PowerInstant, Some(fault), None));
        assert!((energy.joules - 8000.0).abs() < 1e-6);
        let blind = without_power(meter).energy(&windows).unwrap_err();
        assert!(blind.starts_with("has a counter of energy that "), "{blind}");
    }
}

#[test]
fn estimators_that_differ_report_their_disagreement() {
    let power = series("power", (0..300).map(|i| (i * 100 * MS, 500.0)));
    let counter = series("energy", (0u32..300).map(|i| (u64::from(i) * 100 * MS, 55.0 * f64::from(i))));
    let read = |series: &Series| Readings::new(series, None).unwrap();
    let meter = Meter::new(Some((Method::PowerInstant, read(&power))), Some(Counter::new(read(&counter)))).unwrap();
    let energy = meter.energy(&Windows::new([(S, 21 * S)])).unwrap();
    assert!((energy.disagreement().unwrap() - 0.1).abs() < 1e-9);
    let table = energy.to_table();
    assert_eq!(table["method"], "counter".into());
    assert!(["counter_j", "integrated_j", "edges_j", "sensor_j"].iter().all(|name| table.contains_key(*name)));
}

#[test]
fn a_sensor_that_is_older_than_the_readings_resolves_by_its_age() {
    let power = series("power", (0..3000u32).map(|i| (u64::from(i) * 10 * MS, f64::from(i / 10 % 7))));
    let meter = Meter::new(Some((Method::PowerInstant, Readings::new(&power, None).unwrap())), None).unwrap();
    assert_eq!(meter.pace().ns, 100 * MS);
    for (hold, interval) in [(500, 100 * MS), (50, S)] {
        let steady = series("power", (0..3000u32).map(|i| (u64::from(i) * 100 * MS, f64::from(i / hold))));
        let meter = Meter::new(Some((Method::PowerInstant, Readings::new(&steady, None).unwrap())), None).unwrap();
        assert_eq!(meter.pace().ns, interval, "few changes tell nothing, and no sensor is slower than a second");
    }
}

mod calibrated;
mod short;
