//! Sensors that are known: the interval is smaller, and still holds.

use super::*;
use crate::analysis::sensor::simulation::{Chance, Model, Steps, read, work};
use crate::analysis::sensor::{Shape, Within};

const INSTANT: Model = Model { shape: Shape::Boxcar, period: 100.0, window: 25.0, lag: 20.0, noise: 1.0, jitter: 1.0 };
const COUNTER: Model = Model { window: 100.0, lag: 10.0, noise: 0.0, ..INSTANT };

/// Returns the sensor that calibration finds for the model.
fn known(model: Model, is_counter: bool) -> Sensor {
    let within = |ms: f64, half: f64| Within { seconds: ms / 1e3, half_width: half / 1e3 };
    let middle = model.lag + if model.shape == Shape::Boxcar { model.window / 2.0 } else { model.window };
    Sensor {
        period: within(model.period, 0.2),
        spread_s: model.jitter / 1e3,
        shape: model.shape,
        window: within(model.window, 4.0),
        lag: within(model.lag, 4.0),
        delay: within(if is_counter { middle } else { middle + model.period / 2.0 }, 3.0),
        explained: 0.99,
        updates: 300,
        quantum_j: is_counter.then_some(1e-3),
    }
}

/// A window of work between two of rest. Power varies in all three.
struct Case {
    steps: Steps,
    window: (f64, f64),
}

impl Case {
    fn new(chance: &mut Chance) -> Self {
        let (rest, busy) = (chance.even(60.0, 200.0), chance.even(250.0, 700.0));
        let (start, length) = (chance.even(2500.0, 3500.0), chance.even(1200.0, 6000.0));
        let (mut at, mut steps) = (0.0, Vec::new());
        let stop = start + length;
        while at < stop + 3000.0 {
            let level = if (start..stop).contains(&at) { busy } else { rest };
            steps.push((at, level * chance.even(0.93, 1.07)));
            let next = at + chance.even(30.0, 200.0);
            at = [start, stop].into_iter().find(|edge| at < *edge && *edge < next).unwrap_or(next);
        }
        Self { steps, window: (start, stop) }
    }

    fn joules(&self) -> f64 {
        (work(&self.steps, self.window.1) - work(&self.steps, self.window.0)) / 1e3
    }
}

/// Readings about every `every` milliseconds, as series.
fn series_of(case: &Case, models: [Model; 2], every: f64, chance: &mut Chance) -> [Readings; 2] {
    let until = case.window.1 + 2500.0;
    let mut moments = vec![chance.even(0.0, every)];
    while moments[moments.len() - 1] < until {
        moments.push(moments[moments.len() - 1] + every + chance.even(-0.5, 0.5));
    }
    let power = read(&models[0].updates(&case.steps, until, None, chance), &moments);
    let energy = read(&models[1].updates(&case.steps, until, Some(1.0), chance), &moments);
    [("power", power), ("energy", energy)].map(|(name, values)| {
        let at = |ms: &f64| nanoseconds(*ms / 1e3);
        Readings::new(&series(name, moments.iter().map(at).zip(values)), None).unwrap()
    })
}

/// Half the width without the uncertainty of the sensor's gain, which the simulation does not have.
fn beside_gain(energy: &Energy) -> f64 {
    (energy.half_width().powi(2) - energy.uncertainty.sensor.powi(2)).max(0.0).sqrt()
}

/// Returns the percentages of 300 windows that cover the truth with assumed and with known sensors, and the mean ratio
/// of the known interval's width to the assumed one's.
fn compare(instant: Model, method: Method, with_counter: bool, every: f64) -> (f64, f64, f64) {
    let mut chance = Chance(20_260_101);
    let calibration = Calibration {
        digest: "d".to_owned(),
        instant: Some(known(instant, false)),
        average: Some(known(instant, false)),
        counter: Some(known(COUNTER, true)),
    };
    let (mut held, mut narrower, mut all) = ([0.0, 0.0], 0.0, 0.0);
    for _ in 0..300 {
        let case = Case::new(&mut chance);
        let [power, counter] = series_of(&case, [instant, COUNTER], every, &mut chance);
        let (start, stop) = case.window;
        let windows = Windows::new([(nanoseconds(start / 1e3), nanoseconds(stop / 1e3))]);
        let power = Some((method, power));
        let counter = with_counter.then(|| Counter::new(counter));
        let assumed = Meter::new(power.clone(), counter.clone()).unwrap().energy(&windows);
        let known = Meter::calibrated(power, counter, &calibration).unwrap().energy(&windows);
        let (Ok(assumed), Ok(known)) = (assumed, known) else { continue };
        assert_eq!((assumed.calibration.as_deref(), known.calibration.as_deref()), (None, Some("d")));
        let halves = [&assumed, &known].map(beside_gain);
        for (held, (energy, half)) in held.iter_mut().zip([&assumed, &known].into_iter().zip(halves)) {
            *held += f64::from(u8::from((energy.joules - case.joules()).abs() <= half));
        }
        narrower += halves[1] / halves[0];
        all += 1.0;
    }
    assert!(all >= 250.0, "only {all} windows");
    (100.0 * held[0] / all, 100.0 * held[1] / all, narrower / all)
}

#[test]
fn known_sensors_give_a_narrower_interval_that_holds_the_truth() {
    let second = Model { window: 1000.0, lag: 0.0, ..INSTANT };
    let late = Model { window: 100.0, lag: 150.0, ..INSTANT };
    let filter = Model { shape: Shape::FirstOrder, period: 20.0, window: 80.0, ..INSTANT };
    let cases = [
        ("a quarter of the time", INSTANT, Method::PowerInstant, false, 100.0),
        ("read often", Model { window: 100.0, ..INSTANT }, Method::PowerInstant, false, 20.0),
        ("late", late, Method::PowerInstant, false, 100.0),
        ("a filter", filter, Method::PowerInstant, false, 50.0),
        ("a second", second, Method::PowerAverage, false, 100.0),
        ("counted", INSTANT, Method::PowerInstant, true, 100.0),
        ("counted often", INSTANT, Method::PowerInstant, true, 20.0),
        ("counted seldom", INSTANT, Method::PowerInstant, true, 240.0),
    ];
    for (name, model, method, with_counter, every) in cases {
        let (assumed, known, narrower) = compare(model, method, with_counter, every);
        let told =
            format!("{name}: {assumed:.0}% hold by assumption, {known:.0}% by calibration, {narrower:.2} as wide");
        println!("{told}");
        assert!(known >= 95.0, "{told}");
        // An assumption that does not hold is no reference for widths.
        match name {
            "late" | "a filter" => assert!(assumed < 1.0, "{told}"),
            _ => assert!(assumed >= 95.0 && (0.3..0.9).contains(&narrower), "{told}"),
        }
    }
}

#[test]
fn an_empty_calibration_changes_nothing() {
    let mut chance = Chance(7);
    let case = Case::new(&mut chance);
    let [power, counter] = series_of(&case, [INSTANT, COUNTER], 100.0, &mut chance);
    let windows = Windows::new([(S, 6 * S)]);
    let (power, counter) = (Some((Method::PowerInstant, power)), Some(Counter::new(counter)));
    let none = Calibration { digest: "d".to_owned(), ..Calibration::default() };
    let plain = Meter::new(power.clone(), counter.clone()).unwrap().energy(&windows).unwrap();
    assert_eq!(Meter::calibrated(power, counter, &none).unwrap().energy(&windows).unwrap(), plain);
}
