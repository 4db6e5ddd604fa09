use super::*;
use crate::record::Axis;

const TICK: u64 = 100_000_000;

/// A hundred readings, ten per second.
fn series(source: Source, quantity: Quantity, value: impl Fn(u32) -> f64) -> (String, Series) {
    let mut series = Series::new(source.series(quantity), quantity.unit(), Axis::TimeNs);
    (0..100).for_each(|tick| series.push(u64::from(tick) * TICK, value(tick)));
    (series.name.clone(), series)
}

fn reasons(settings: &[(&str, Value)], facts: &[(&str, Value)], telemetry: Vec<(String, Series)>) -> Vec<String> {
    of_cell(&[], true, settings, facts, telemetry)
}

/// As [`reasons`], for a cell that requests settings, and for an attempt that may have reported no training.
fn of_cell(
    config: &[(&str, i64)],
    trained: bool,
    settings: &[(&str, Value)],
    facts: &[(&str, Value)],
    telemetry: Vec<(String, Series)>,
) -> Vec<String> {
    let table = |pairs: &[(&str, Value)]| -> Table {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let config = config.iter().map(|(key, value)| (format!("hardware.{key}"), Value::Int(*value))).collect();
    let bounds = Bounds::of(&config, &table(settings));
    let measured = Windows::new([(20 * TICK, 100 * TICK)]);
    let telemetry: std::collections::BTreeMap<String, Series> = telemetry.into_iter().collect();
    let evidence = Evidence {
        bounds: &bounds,
        facts: &table(facts),
        telemetry: &telemetry,
        measured: &measured,
        trained,
        wall_ns: 100 * TICK,
        gpus: 1,
        unsteady: None,
        speaks: true,
    };
    evidence.reasons()
}

const GPU: Source = Source::Gpu(0);

#[test]
fn throttles_count_in_the_measured_windows_and_by_their_share() {
    let told = |value: fn(u32) -> f64| reasons(&[], &[], vec![series(GPU, Quantity::ThrottleReasons, value)]);
    assert_eq!(told(|tick| if tick < 20 { 64.0 } else { 4.0 }), [""; 0], "before the measured window");
    assert_eq!(told(|tick| if tick == 50 { 64.0 } else { 0.0 }).len(), 1, "one in 80");
    assert_eq!(told(|tick| if tick < 60 { 8.0 } else { 0.0 }), ["throttled: GPU 0, hw_slowdown in 50% of the samples"]);
    assert_eq!(told(|_| 7.0), [""; 0], "idle, set clocks and the power limit are how the card was set");
}

#[test]
fn clocks_that_drift_are_distinguished_from_clocks_that_flicker() {
    let told = |value: fn(u32) -> f64| reasons(&[], &[], vec![series(GPU, Quantity::ClockSm, value)]);
    assert_eq!(told(|tick| if tick % 2 == 0 { 1980.0 } else { 1500.0 }), [""; 0]);
    assert_eq!(
        told(|tick| if tick < 60 { 1980.0 } else { 1800.0 }),
        [
            "clocks moved: GPU 0's multiprocessors ran at 1980 MHz in the first half of the training and at 1800 MHz in the second"
        ]
    );
    assert_eq!(told(|tick| if tick < 60 { 1980.0 } else { 1935.0 }), [""; 0], "2.3%");
}

#[test]
fn without_training_idle_clocks_are_no_reason() {
    let clock = |value: fn(u32) -> f64| vec![series(GPU, Quantity::ClockSm, value)];
    let told = |config: &[(&str, i64)], value| of_cell(config, false, &[], &[], clock(value));
    assert_eq!(told(&[], |tick| if tick < 60 { 1980.0 } else { 345.0 }), [""; 0]);
    let asked = [("sm_clock_mhz", 1500)];
    assert_eq!(told(&asked, |tick| if tick < 80 { 1500.0 } else { 345.0 }), [""; 0]);
    assert_eq!(told(&asked, |_| 1980.0).len(), 1, "it never ran as asked");
    assert_eq!(of_cell(&asked, true, &[], &[], clock(|tick| if tick < 80 { 1500.0 } else { 345.0 })).len(), 1);
}

#[test]
fn a_gpu_at_its_requested_power_limit_may_miss_its_clock() {
    let told = |config: &[(&str, i64)], capped: fn(u32) -> f64| {
        let clock = series(GPU, Quantity::ClockSm, |tick| if tick < 60 { 1980.0 } else { 1400.0 });
        let facts = [("gpu.0.power_limit_w", 300.0.into()), ("hardware.set", true.into())];
        of_cell(config, true, &[], &facts, vec![clock, series(GPU, Quantity::ThrottleReasons, capped)])
    };
    let both = [("power_limit_w", 300), ("sm_clock_mhz", 1980)];
    assert_eq!(told(&both, |tick| if tick < 60 { 0.0 } else { 4.0 }), [""; 0]);
    assert_eq!(told(&both, |_| 4.0), [""; 0], "at its limit all the time");
    assert_eq!(told(&both, |_| 0.0).len(), 1, "something else keeps it from its clock");
    assert_eq!(
        told(&[("sm_clock_mhz", 1980)], |tick| if tick < 60 { 0.0 } else { 4.0 }).len(),
        1,
        "no limit was asked for"
    );
}

#[test]
fn settings_left_by_another_attempt_are_a_reason() {
    let told = reasons(&[], &[("hardware.left_set", "/r/a.json".into())], vec![]);
    assert_eq!(
        told,
        ["settings of others: `/r/a.json` names a GPU of this attempt that another one has set, or cannot be read"]
    );
}

#[test]
fn a_limit_that_was_changed_meanwhile_is_a_reason() {
    let told = |config: &[(&str, i64)], after: f64| {
        let facts = [("gpu.0.power_limit_w", 300.0.into()), ("gpu.0.power_limit_after_w", after.into())];
        of_cell(config, true, &[], &facts, vec![])
    };
    let changed = ["power limit: GPU 0 had 300 W at the beginning and 500 W at the end"];
    assert_eq!(told(&[("power_limit_w", 300)], 500.0), changed);
    assert_eq!(told(&[], 500.0), changed, "whatever was asked for");
    assert_eq!(told(&[("power_limit_w", 300)], 300.2), [""; 0]);
}

#[test]
fn a_protocol_asks_for_readings_and_for_a_cool_start() {
    let temperature = |first: f64| series(GPU, Quantity::Temperature, move |tick| if tick == 0 { first } else { 70.0 });
    let power = || series(GPU, Quantity::PowerInstant, |_| 400.0);
    let cool: &[(&str, Value)] = &[("protocol.cool_to_c", 45.0.into())];
    assert_eq!(reasons(cool, &[], vec![temperature(45.0)]), [""; 0]);
    assert_eq!(
        reasons(cool, &[], vec![]),
        ["hot start: the temperature of GPU 0 at the start was not read, but the protocol allows at most 45 °C"]
    );
    assert_eq!(
        reasons(cool, &[], vec![temperature(46.0)]),
        ["hot start: GPU 0 began at 46 °C, but the protocol allows at most 45 °C"]
    );
    let waited = |start_c: f64| reasons(cool, &[("protocol.start_c", start_c.into())], vec![temperature(46.0)]).len();
    assert_eq!((waited(45.0), waited(46.0)), (0, 1), "it waited until it was cool; it waited in vain");
    assert_eq!(reasons(cool, &[("protocol.start_c", 45.0.into())], vec![]).len(), 1, "of another card, maybe");
    let band: &[(&str, Value)] = &[("protocol.cool_to_c", 45.0.into()), ("protocol.min_start_c", 40.0.into())];
    assert_eq!(reasons(band, &[], vec![temperature(40.0)]), [""; 0]);
    assert_eq!(
        reasons(band, &[], vec![temperature(39.0)]),
        ["cold start: GPU 0 began at 39 °C, but the protocol requires at least 40 °C"]
    );
    assert_eq!(reasons(band, &[], vec![]).len(), 2, "nobody knows how hot it was, nor how cold");
    let protocol = |seconds: f64, readings: i64| {
        let bounds = [("protocol.min_window_s", seconds.into()), ("protocol.min_readings", Value::Int(readings))];
        reasons(&bounds, &[], vec![power()])
    };
    assert_eq!(protocol(8.0, 80), [""; 0], "8 s with 80 readings");
    let text = "too few samples: 8.0 s with 80 readings were measured, but the protocol requires";
    assert_eq!(protocol(10.0, 60), [format!("{text} 10 s and 60")]);
    assert_eq!(protocol(5.0, 81), [format!("{text} 5 s and 81")]);
    assert_eq!(reasons(&[("protocol.container", "required".into())], &[], vec![]).len(), 1);
    let image = |image: &str| [("protocol.container", "required".into()), ("container.image", image.into())];
    assert_eq!(reasons(&image("train.sif"), &[], vec![]), [""; 0], "the worker is started in it");
    assert_eq!(reasons(&image("host"), &[], vec![]).len(), 1);
    let inside = |facts: &[(&str, Value)]| reasons(&[("protocol.container", "required".into())], facts, vec![]);
    let kind = ("container.kind", Value::from("docker"));
    assert_eq!(
        inside(std::slice::from_ref(&kind)),
        [
            "container missing: the protocol requires one, but the attempt ran in one (docker) of which no image is known (`container.image` names one)"
        ]
    );
    assert_eq!(inside(&[kind, ("container.image", "d.io/debian:12".into())]), [""; 0]);
}

#[test]
fn a_host_is_overloaded_by_others_and_not_by_the_worker() {
    let told = |busy: f64, worker_cores: f64| {
        let time = series(Source::Host, Quantity::WorkerCpuTime, move |tick| worker_cores * f64::from(tick) / 10.0);
        let busy = series(Source::Host, Quantity::UtilizationCpu, move |_| busy);
        reasons(&[], &[("cpu.logical_cores", Value::Int(4))], vec![time, busy])
    };
    assert_eq!(told(100.0, 4.0), [""; 0], "the worker's own work");
    assert_eq!(told(80.0, 0.5), [""; 0], "there is time left");
    assert_eq!(told(95.0, 2.0), ["host overloaded: its processors were 95% busy, 45% of their time with other work"]);
}

#[test]
fn many_pages_from_swap_are_a_reason() {
    // Over ten seconds a thousand pages are a hundred per second.
    for few in [0, 3, 1024] {
        assert_eq!(reasons(&[], &[("host.swapped_in_pages", Value::Int(few))], vec![]), [""; 0]);
    }
    assert_eq!(
        reasons(&[], &[("host.swapped_in_pages", Value::Int(1025))], vec![]),
        ["page faults to swap: 1025 pages came back from swap meanwhile"]
    );
}
