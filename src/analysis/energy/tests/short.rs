//! Attempts with so few readings that a sensor's period is hardly known.

use super::*;
use crate::analysis::sensor::Shape;
use crate::analysis::sensor::simulation::{Chance, Model, Steps, read, work};

const POWER: Model = Model { shape: Shape::Boxcar, period: 100.0, window: 25.0, lag: 0.0, noise: 0.5, jitter: 0.0 };
const COUNTER: Model = Model { window: 100.0, noise: 0.0, ..POWER };

#[test]
fn a_counter_that_ticked_a_few_times_gives_no_short_phase_the_power_of_another() {
    let constant = |_| 600.0;
    let (mut held, mut all) = (0, 0);
    for start in (300..400).step_by(7) {
        let meter = Truth { watts: &constant }.meter(start, 10, 100, 1);
        for length in [140, 170, 200] {
            let refused = meter.energy(&ms(&[(start + 100, start + 100 + length)])).unwrap_err();
            assert!(refused.contains("but the counter's period is at most 10"), "{refused}");
        }
        for stop in (900..1000).step_by(7) {
            let energy = meter.energy(&ms(&[(start, stop)])).unwrap();
            all += 1;
            held += u32::from((energy.joules - 0.6 * real(stop - start)).abs() <= energy.half_width());
        }
    }
    assert!(held * 100 >= all * 95, "{held} of {all}");
}

#[test]
fn a_counter_that_ticked_a_few_times_is_no_figure_beside_power() {
    let constant = |_| 400.0;
    for phase in (0..250).step_by(10) {
        let meter = Truth { watts: &constant }.meter(phase, 250, 1000, 3);
        let windows = ms(&[(phase, 2900)]);
        let energy = meter.energy(&windows).unwrap();
        assert_eq!((energy.method, energy.counter, energy.fault), (Method::PowerInstant, None, None));
        assert!((energy.joules - 0.4 * real(2900 - phase)).abs() < 0.1 * energy.joules);
    }
}

/// Example: the energy counter of a processor package, which ticks every millisecond, in an attempt of a quarter of a
/// second.
#[test]
fn a_counter_with_a_new_value_in_each_reading_is_as_fast_as_it_is_read() {
    let of = |points: &[(u64, f64)]| {
        let counter = series("energy", points.iter().map(|(ms, joules)| (ms * MS, *joules)));
        Meter::new(None, Readings::new(&counter, None).map(Counter::new)).unwrap()
    };
    let meter = of(&[(0, 0.0), (100, 1.5), (200, 3.0), (260, 3.9)]);
    let energy = meter.energy(&ms(&[(0, 250)])).unwrap();
    assert!((energy.joules - 3.75).abs() < 1e-9);
    assert!(energy.half_width() > 0.4 * energy.joules, "it may tick every 130 ms: {energy:?}");
    let short = "lasts 190 ms, but the counter is read every 100 ms, and twice that is needed";
    assert_eq!(meter.energy(&ms(&[(0, 190)])).unwrap_err(), short);
    let slow = "but the counter's period is at most 125 ms, and twice that is needed";
    let held = of(&[(0, 0.0), (50, 0.75), (100, 0.75), (150, 2.25), (200, 2.25), (250, 3.75)]);
    assert!(held.energy(&ms(&[(0, 240)])).unwrap_err().ends_with(slow));
    let soon = of(&[(0, 0.0), (100, 1.5), (200, 3.0), (220, 4.5)]);
    assert!(soon.energy(&ms(&[(0, 215)])).is_err(), "what changed in the last 20 ms was late");
}

#[test]
fn a_counter_that_never_ticked_is_no_figure() {
    let still = series("energy", (0..9u64).map(|i| (i * 100 * MS, 5.0)));
    let meter = Meter::new(None, Readings::new(&still, None).map(Counter::new)).unwrap();
    assert_eq!(meter.energy(&ms(&[(0, 800)])).unwrap_err(), "has a counter of energy that hardly ticked");
}

#[test]
fn pulses_as_short_as_a_sensor_s_period_are_refused_however_often_it_is_read() {
    let mut chance = Chance(11);
    for noise in [0.0, 0.5] {
        for _ in 0..50 {
            let mut pulses: Steps = vec![(0.0, 100.0)];
            pulses.extend(
                (0..2).flat_map(|i| [(100.0 + 230.0 * f64::from(i), 600.0), (200.0 + 230.0 * f64::from(i), 100.0)]),
            );
            let updates = Model { noise, ..POWER }.updates(&pulses, 560.0, None, &mut chance);
            let moments: Vec<f64> = (0..56u32).map(|i| 10.0 * f64::from(i)).collect();
            let power = series("power", (0..).map(|i| 10 * i * MS).zip(read(&updates, &moments)));
            let power = Readings::new(&power, None).map(|readings| (Method::PowerInstant, readings));
            let meter = Meter::new(power, None).unwrap();
            for window in [(100, 200), (200, 330), (330, 430), (430, 560)] {
                assert!(meter.energy(&ms(&[window])).is_err(), "{window:?}");
            }
        }
    }
}

/// Returns levels of power of 0.15 to 0.8 s each, and the window of one of them.
fn levels(chance: &mut Chance, until: f64) -> (Steps, (f64, f64)) {
    let (mut steps, mut at): (Steps, f64) = (Vec::new(), 0.0);
    while at < until {
        steps.push((at, chance.even(80.0, 700.0)));
        at += chance.even(150.0, 800.0);
    }
    let place = usize::try_from(nanoseconds(chance.even(0.0, 1.0)) % u64::try_from(steps.len()).unwrap()).unwrap();
    let stop = steps.get(place + 1).map_or(until, |step| step.0);
    let start = steps[place].0;
    (steps, (start, stop))
}

#[test]
fn intervals_of_short_attempts_cover_the_truth() {
    let mut chance = Chance(2_026);
    for (every, with_counter) in [(10.0, false), (10.0, true), (50.0, true), (100.0, false), (100.0, true)] {
        let (mut held, mut all) = (0.0, 0.0);
        for _ in 0..2000 {
            let until = chance.even(500.0, 2500.0);
            let (steps, (start, stop)) = levels(&mut chance, until);
            let mut moments = vec![chance.even(0.0, 5.0)];
            while moments[moments.len() - 1] + every < until {
                moments.push(moments[moments.len() - 1] + every);
            }
            let readings = |model: Model, counts: Option<f64>, chance: &mut Chance| {
                let values = read(&model.updates(&steps, until, counts, chance), &moments);
                Readings::new(&series("", moments.iter().map(|ms| nanoseconds(*ms / 1e3)).zip(values)), None).unwrap()
            };
            let power = (Method::PowerInstant, readings(POWER, None, &mut chance));
            let counter = readings(COUNTER, Some(1.0), &mut chance);
            let meter = Meter::new(Some(power), with_counter.then(|| Counter::new(counter))).unwrap();
            let windows = Windows::new([(nanoseconds(start / 1e3), nanoseconds(stop / 1e3))]);
            let Ok(energy) = meter.energy(&windows) else { continue };
            let truth = (work(&steps, stop) - work(&steps, start)) / 1e3;
            all += 1.0;
            held += f64::from(u8::from((energy.joules - truth).abs() <= energy.half_width()));
        }
        println!("every {every} ms, counter {with_counter}: {held} of {all}");
        assert!(all > 100.0 && held >= 0.95 * all, "every {every} ms, counter {with_counter}: {held} of {all}");
    }
}
