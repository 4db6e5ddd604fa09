use super::simulation::{Chance, Model, Steps, read};
use super::*;
use crate::record::{Quantity, Reading, Sample, Source};

const BOXCAR: Model = Model { shape: Shape::Boxcar, period: 100.0, window: 25.0, lag: 0.0, noise: 2.0, jitter: 1.0 };

/// A GPU that draws 90 W and 620 W under the schedule's load, with three sensors that are read about every `poll` ms.
fn watched(models: [Model; 3], quantum: f64, poll: f64, seed: u64) -> Watched {
    let mut chance = Chance(seed);
    let (mut at, mut pulses, mut steps): (f64, Vec<(u64, u64)>, Steps) = (1500.0, Vec::new(), vec![(0.0, 90.0)]);
    let ns = |ms: f64| u64::try_from(number(ms * 1e6)).unwrap() + 5_000_000_000;
    for (on, off) in Watched::schedule(30_000) {
        let (on, off) = (f64::from(u32::try_from(on).unwrap()), f64::from(u32::try_from(off).unwrap()));
        pulses.push((ns(at), ns(at + on)));
        // The pulses have the times that the host knows, and the level varies slightly.
        steps.push((at, 620.0 + 5.0 * chance.normal()));
        steps.push((at + on, 90.0 + chance.normal()));
        at += on + off + chance.even(0.0, 3.0);
    }
    let mut moments = vec![0.0];
    while moments[moments.len() - 1] < at {
        let last = moments[moments.len() - 1];
        moments.push(last + poll * chance.even(0.8, 1.6) + if chance.even(0.0, 1.0) < 0.01 { 8.0 } else { 0.0 });
    }
    let [instant, average, counter] = models;
    let instant = read(&instant.updates(&steps, at, None, &mut chance), &moments);
    let average = read(&average.updates(&steps, at, None, &mut chance), &moments);
    let counter = read(&counter.updates(&steps, at, Some(quantum), &mut chance), &moments);
    let samples = moments.iter().enumerate().map(|(i, moment)| {
        let t_ns = ns(*moment);
        let reading = |quantity, value| Reading { quantity, t_ns, value };
        let readings = vec![
            reading(Quantity::PowerInstant, instant[i]),
            reading(Quantity::PowerAverage, average[i]),
            reading(Quantity::Energy, counter[i]),
        ];
        Sample { source: Source::Gpu(0), t_ns, cost_ns: 1_000_000, readings }
    });
    Watched { pulses, samples: samples.collect() }
}

fn only_instant(mut watched: Watched) -> Watched {
    for sample in &mut watched.samples {
        sample.readings.truncate(1);
    }
    watched
}

fn number(value: f64) -> i64 {
    format!("{value:.0}").parse().unwrap()
}

/// Compares in milliseconds, with a margin of half of the stated interval.
fn assert_within(what: &str, found: Within, truth: f64, most: f64) {
    let (found_ms, half) = (found.seconds * 1e3, found.half_width * 1e3);
    assert!((found_ms - truth).abs() <= 1.5 * half, "{what}: {found_ms} ± {half} ms is not {truth} ms");
    assert!(half <= most, "{what} is known to {half} ms only, and not to {most} ms");
}

#[test]
fn calibration_finds_the_simulated_sensors() {
    let second = Model { window: 1000.0, ..BOXCAR };
    let counts = Model { window: 100.0, noise: 0.5, ..BOXCAR };
    // Sensors like those of an A100 and an H100; one without gaps that is late; a fast one; a filter, as in older GPUs.
    let cases = [
        ("a quarter of the time", BOXCAR),
        ("late", Model { window: 100.0, lag: 60.0, ..BOXCAR }),
        ("99.55 ms", Model { period: 99.55, window: 50.0, lag: 12.0, ..BOXCAR }),
        ("fast", Model { period: 20.0, window: 10.0, lag: 3.0, ..BOXCAR }),
        ("a filter", Model { shape: Shape::FirstOrder, period: 15.0, window: 80.0, lag: 5.0, ..BOXCAR }),
    ];
    for (seed, (name, model)) in (1..).zip(cases) {
        let board = watched([model, second, counts], 1.0, 2.0, seed);
        let [instant, average, counter] = calibrate(&if seed == 1 { board } else { only_instant(board) });
        let instant = instant.unwrap_or_else(|reason| panic!("{name}: {reason}"));
        assert_eq!(instant.shape, model.shape, "{name}: {instant:?}");
        assert_within(name, instant.period, model.period, 0.5);
        assert_within(name, instant.window, model.window, 12.0);
        assert_within(name, instant.lag, model.lag, 12.0);
        let middle = if model.shape == Shape::Boxcar { model.window / 2.0 } else { model.window };
        assert_within(name, instant.delay, model.lag + middle + model.period / 2.0, 6.0);
        assert!(instant.explained > 0.95 && instant.quantum_j.is_none(), "{name}: {instant:?}");
        if seed > 1 {
            continue;
        }
        let average = average.unwrap();
        assert_within("a second", average.window, 1000.0, 40.0);
        assert_within("a second", average.delay, 550.0, 20.0);
        let counter = counter.unwrap();
        assert_within("counter", counter.period, 100.0, 0.5);
        assert_within("counter", counter.delay, 50.0, 6.0);
        assert_eq!(counter.quantum_j, Some(0.001));
        for sensor in [instant, average, counter] {
            assert_eq!(Sensor::of(&sensor.to_table()), Some(sensor), "{name}");
        }
    }
}

#[test]
fn a_coarse_counter_has_its_step() {
    for quantum in [1.0, 15.0, 1000.0] {
        let counts = Model { window: 100.0, noise: 0.5, ..BOXCAR };
        let mut board = watched([BOXCAR, BOXCAR, counts], quantum, 3.0, 9);
        board.samples.iter_mut().for_each(|sample| drop(sample.readings.drain(..2)));
        let [_, _, counter] = calibrate(&board);
        let found = counter.unwrap().quantum_j.unwrap() * 1e3;
        assert!((found - quantum).abs() < 1e-6, "{found} against {quantum} mJ");
    }
}

#[test]
fn sensors_that_cannot_be_calibrated_have_a_reason() {
    let whole = watched([BOXCAR; 3], 1.0, 2.0, 4);
    let (good, mut counted) = (only_instant(whole.clone()), whole);
    counted.samples.iter_mut().for_each(|sample| drop(sample.readings.drain(..2)));
    let reason_of = |good: &Watched, change: &dyn Fn(&mut Watched)| {
        let mut watched = good.clone();
        change(&mut watched);
        calibrate(&watched).map(|found| found.map_or_else(|reason| reason, |found| format!("found {found:?}")))
    };
    let reason = |change: &dyn Fn(&mut Watched)| reason_of(&good, change);
    let of_all = |watched: &mut Watched, value: &mut dyn FnMut(&Reading) -> f64| {
        for reading in watched.samples.iter_mut().flat_map(|sample| &mut sample.readings) {
            reading.value = value(reading);
        }
    };
    let [instant, ..] = reason(&|watched| of_all(watched, &mut |_| 7.0));
    assert_eq!(instant, "it changed 0 times in 32 s, and 20 are needed");
    let [_, _, counter] = reason_of(&counted, &|watched| of_all(watched, &mut |_| 7.0));
    assert_eq!(counter, "it changed 0 times in 32 s, and 20 are needed");
    let [instant, ..] = reason(&|watched| {
        let mut chance = Chance(3);
        of_all(watched, &mut |_| chance.even(0.0, 700.0));
    });
    assert!(instant.starts_with("it changes with every reading, and those come every 2."), "{instant}");
    // Another load: regular updates that are unrelated to ours.
    let [instant, ..] = reason(&|watched| {
        let shifted: Vec<(u64, u64)> =
            watched.pulses.iter().map(|(a, b)| (a + 7_000_000_000, b + 7_000_000_000)).collect();
        watched.pulses = shifted;
    });
    assert!(instant.starts_with("the load explains ") && instant.ends_with("and 70% are needed"), "{instant}");
    let [instant, ..] = reason(&|watched| {
        watched.pulses.iter_mut().for_each(|(start, stop)| (*start, *stop) = (*start + 28_000_000, *stop + 28_000_000));
    });
    assert!(instant.starts_with("it answers ") && instant.ends_with(" ms before the load comes on"), "{instant}");
    let [instant, average, counter] = reason(&|watched| watched.samples.clear());
    assert_eq!([instant, average, counter], ["it was not read"; 3]);
    let [instant, ..] = reason(&|watched| watched.pulses.truncate(3));
    assert_eq!(instant, "the load gave 3 pulses, and 10 are needed");
    let [_, _, counter] = reason_of(&counted, &|watched| {
        let mut left = 5000;
        of_all(watched, &mut |reading| {
            left -= i32::from(reading.quantity == Quantity::Energy);
            if left < 0 { reading.value / 100.0 } else { reading.value }
        });
    });
    assert_eq!(counter, "it went backwards");
    let [_, _, counter] = reason_of(&counted, &|watched| of_all(watched, &mut |reading| reading.value * 0.333_33));
    assert_eq!(counter, "it does not grow by whole millijoules");
    // Random updates.
    let [instant, ..] = reason(&|watched| {
        let (mut chance, mut value) = (Chance(8), 1.0);
        of_all(watched, &mut |_| {
            value = if chance.even(0.0, 1.0) < 0.02 { chance.even(0.0, 700.0) } else { value };
            value
        });
    });
    assert!(instant.contains("off any beat") || instant.contains("no beat"), "{instant}");
}

#[test]
fn the_load_is_irregular_and_reproducible() {
    let pulses = Watched::schedule(30_000);
    assert_eq!(pulses, Watched::schedule(30_000));
    assert_eq!(pulses[0], (2500, 2500));
    let length: u64 = pulses.iter().map(|(on, off)| on + off).sum();
    assert!((30_000..31_300).contains(&length), "{length}");
    let times: Vec<u64> = pulses[1..].iter().flat_map(|(on, off)| [*on, *off]).collect();
    assert!(times.iter().all(|time| (20..=600).contains(time)), "{times:?}");
    let distinct: std::collections::BTreeSet<_> = times.iter().collect();
    assert!(distinct.len() * 2 > times.len() && times.len() > 100, "{} of {}", distinct.len(), times.len());
}

#[test]
fn damaged_sensors_are_not_read() {
    let [instant, ..] = calibrate(&only_instant(watched([BOXCAR; 3], 1.0, 2.0, 4)));
    let table = instant.unwrap().to_table();
    for name in table.keys() {
        let mut damaged = table.clone();
        damaged.remove(name);
        assert_eq!(Sensor::of(&damaged), None, "without {name}");
    }
    for value in [-1.0, 0.0, 11.0, f64::NAN, f64::INFINITY] {
        let mut damaged = table.clone();
        damaged.insert("period".to_owned(), Within { seconds: value, half_width: 0.0 }.to_value());
        assert_eq!(Sensor::of(&damaged), None, "{value}");
    }
    let calibration = |names: &[&str]| {
        let mut all: Table = names.iter().map(|name| ((*name).to_owned(), table.clone().into())).collect();
        all.insert("digest".to_owned(), "d1".into());
        Calibration::of(&all)
    };
    assert_eq!(calibration(&[]), None);
    let found = calibration(&["energy"]).unwrap();
    assert!(found.counter.is_some() && found.instant.is_none() && found.digest == "d1");
}
