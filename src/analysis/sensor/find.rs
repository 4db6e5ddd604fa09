//! Finds the properties of one GPU's sensors from its readings under a known load, or the reason why they cannot be found.

use super::period::{Updates, updates};
use super::response::{Pulses, response};
use super::{Sensor, Within};
use crate::analysis::statistic::{quadrature, seconds, split_mix};
use crate::record::{Quantity, Sample};

/// The fewest pulses from which sensors are calibrated.
const ENOUGH_PULSES: usize = 10;
/// The unit of NVML's energy counter; a counter with another unit is not NVML's.
const MILLIJOULE: f64 = 1e-3;

/// The load on a GPU, and the readings meanwhile. All times are nanoseconds of one clock.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The start and the stop of each pulse of the load, in order.
    pub pulses: Vec<(u64, u64)>,
    /// The readings in order.
    pub samples: Vec<Sample>,
}

const LONG_MS: u64 = 2500;
const SHORTEST_MS: u64 = 20;
const LONGEST_MS: u64 = 600;

impl Watched {
    /// Returns the pulses of a load of about this length, as milliseconds on and off. The first is as long as a sensor
    /// may average. The others last 20 to 600 ms on and off, without a regular period. The same length gives the same
    /// pulses.
    pub fn schedule(length_ms: u64) -> Vec<(u64, u64)> {
        let mut pulses = vec![(LONG_MS, LONG_MS)];
        let (mut state, mut left) = (0, length_ms.saturating_sub(2 * LONG_MS));
        while left > 0 {
            // The logarithm is uniform, so that short times are as frequent as long ones.
            let mut time = || {
                let octave = split_mix(&mut state) % 5;
                let base = SHORTEST_MS << octave;
                (base + split_mix(&mut state) % base).min(LONGEST_MS)
            };
            let (on, off) = (time(), time());
            pulses.push((on, off));
            left = left.saturating_sub(on + off);
        }
        pulses
    }

    fn readings(&self, quantity: Quantity, origin_ns: u64) -> Vec<(u64, f64)> {
        let readings = self.samples.iter().flat_map(|sample| &sample.readings);
        let of_it = readings.filter(|reading| reading.quantity == quantity && reading.value.is_finite());
        of_it.filter_map(|reading| Some((reading.t_ns.checked_sub(origin_ns)?, reading.value))).collect()
    }
}

/// Calibrates each sensor, in the order of [`super::Calibration::SENSORS`]. An error is the reason, as the end of a sentence.
pub fn calibrate(watched: &Watched) -> [Result<Sensor, String>; 3] {
    let quantities = [Quantity::PowerInstant, Quantity::PowerAverage, Quantity::Energy];
    let first_sample = watched.samples.first().map_or(u64::MAX, |sample| sample.t_ns);
    let origin_ns = watched.pulses.first().map_or(0, |(start, _)| *start).min(first_sample);
    let count = watched.pulses.len();
    if count < ENOUGH_PULSES {
        let reason = format!("the load gave {count} pulses, and {ENOUGH_PULSES} are needed");
        return quantities.map(|_| Err(reason.clone()));
    }
    let at = |ns: u64| seconds(ns.saturating_sub(origin_ns));
    let pulses = Pulses::new(watched.pulses.iter().map(|(start, stop)| (at(*start), at(*stop))).collect());
    quantities.map(|quantity| {
        let readings = watched.readings(quantity, origin_ns);
        match quantity {
            Quantity::Energy => counter(&readings, &pulses),
            _ => power(&readings, &pulses),
        }
    })
}

/// Keeps the points from the load's first rise until its effect is over.
fn under_load(mut points: Vec<(f64, f64)>, pulses: &Pulses) -> Vec<(f64, f64)> {
    const MEMORY_S: f64 = 2.0;
    let (first, last) = pulses.ends();
    points.retain(|(at, _)| (first - MEMORY_S..=last + MEMORY_S).contains(at));
    points
}

fn power(readings: &[(u64, f64)], pulses: &Pulses) -> Result<Sensor, String> {
    let updates = updates(readings)?;
    let points = under_load(updates.points.clone(), pulses);
    let found = response(&points, pulses, updates.poll_s)?;
    // Between two updates a reading shows the older one, which is half a period old on average.
    let delay = Within {
        seconds: found.middle.seconds + updates.period.seconds / 2.0,
        half_width: quadrature([found.middle.half_width, updates.period.half_width / 2.0]),
    };
    Ok(Sensor {
        period: updates.period,
        spread_s: updates.spread_s,
        shape: found.shape,
        window: found.window,
        lag: found.lag,
        delay,
        explained: found.explained,
        updates: updates.points.len(),
        quantum_j: None,
    })
}

fn counter(readings: &[(u64, f64)], pulses: &Pulses) -> Result<Sensor, String> {
    if readings.windows(2).any(|pair| pair[1].1 < pair[0].1) {
        return Err("it went backwards".to_owned());
    }
    let updates = updates(readings)?;
    let quantum_j = quantum(&updates)?;
    let period_s = updates.period.seconds;
    // From one tick to the next it grew by a mean power. If a tick was missed, that power is unknown.
    let grown = updates.points.windows(2).filter(|pair| ((pair[1].0 - pair[0].0) / period_s).round() == 1.0);
    let points = grown.map(|pair| (pair[1].0, (pair[1].1 - pair[0].1) / period_s)).collect();
    let found = response(&under_load(points, pulses), pulses, updates.poll_s)?;
    Ok(Sensor {
        period: updates.period,
        spread_s: updates.spread_s,
        shape: found.shape,
        window: found.window,
        lag: found.lag,
        // A tick is half a period after the middle of its window, and half a period old on average when it is read: the two are equal.
        delay: found.middle,
        explained: found.explained,
        updates: updates.points.len(),
        quantum_j: Some(quantum_j),
    })
}

/// The largest step of which every growth is a multiple.
fn quantum(updates: &Updates) -> Result<f64, String> {
    let mut common = 0_u64;
    for pair in updates.points.windows(2) {
        let growth = (pair[1].1 - pair[0].1) / MILLIJOULE;
        let whole = growth.round();
        if (growth - whole).abs() > 0.05 || !(0.0..1e15).contains(&whole) {
            return Err("it does not grow by whole millijoules".to_owned());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and within bounds, as asked above"
        )]
        let whole = whole as u64;
        common = greatest_common_divisor(common, whole);
    }
    #[expect(clippy::cast_precision_loss, reason = "below 10^15")]
    let common = common as f64;
    Ok(common * MILLIJOULE)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
