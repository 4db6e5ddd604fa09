//! The uncertainty of a calibrated sensor at the edges of windows and between readings.
//!
//! `docs/energy.md` has the formulas and their sources.

use crate::analysis::readings::Readings;
use crate::analysis::sensor::Sensor;
use crate::analysis::statistic::{quadrature, seconds};

/// The variance of a uniform distribution over a length is its square divided by `EVEN`. For a line between two
/// readings it is the square divided by `LINE`.
const EVEN: f64 = 12.0;
const LINE: f64 = 6.0;

/// The uncertainty at one edge of a window, in joules: a part that always has the same sign, and the standard deviation of the rest.
pub(super) struct Edge {
    always: f64,
    deviation: f64,
}

impl Edge {
    /// A step in power by `change` watts at the edge that is seen `deviation_s` seconds early or late. Energy crosses
    /// the edge in only one direction, so it is the positive part of a normal displacement.
    fn crossed(change: f64, deviation_s: f64) -> Self {
        let mean = 1.0 / (2.0 * std::f64::consts::PI).sqrt();
        let deviation = (0.5 - mean * mean).sqrt();
        Self { always: change * deviation_s * mean, deviation: change * deviation_s * deviation }
    }
}

/// Returns half the width of the interval for several edges together, with this normal quantile.
pub(super) fn unknown(edges: impl IntoIterator<Item = Edge>, quantile: f64) -> f64 {
    let edges: Vec<Edge> = edges.into_iter().collect();
    let always: f64 = edges.iter().map(|edge| edge.always).sum();
    always + quantile * quadrature(edges.iter().map(|edge| edge.deviation))
}

/// Returns the edge of an integral over readings that were moved by the sensor's delay.
pub(super) fn integrated_edge(sensor: &Sensor, interval_s: f64, change: f64) -> Edge {
    let spread = [sensor.period.seconds / EVEN.sqrt(), sensor.window_s() / EVEN.sqrt(), interval_s / LINE.sqrt()];
    let deviation_s = quadrature(spread.into_iter().chain([sensor.spread_s / 2.0, sensor.delay_deviation_s()]));
    Edge::crossed(change, deviation_s)
}

/// Returns the edge of a counter whose readings were moved by its delay. A tick is up to half a period early or late,
/// whatever power is drawn. The line between two readings does not show when the power changed between them.
pub(super) fn counted_edge(sensor: &Sensor, interval_s: f64, watts: f64, change: f64) -> Edge {
    let period_s = sensor.period.seconds;
    let tick_s = quadrature([period_s / EVEN.sqrt(), sensor.spread_s / 2.0]);
    // The growth from tick to tick is the energy of one period, or of a shorter or longer time.
    let window_s = (sensor.window_s() - period_s).abs();
    let moved_s = quadrature([window_s / EVEN.sqrt(), interval_s / LINE.sqrt(), sensor.delay_deviation_s()]);
    let (both, moved) = (Edge::crossed(change, quadrature([tick_s, moved_s])), Edge::crossed(change, moved_s));
    Edge { always: both.always, deviation: quadrature([watts.abs() * tick_s, moved.deviation]) }
}

/// The factor from the scatter of readings to the error from time that the sensor does not see: 0 if it sees all of the
/// time. It is the correction for a finite population (Cochran, Sampling Techniques, 3rd ed., section 2.6), applied to
/// the share of the time that is seen.
pub(super) fn missed(sensor: &Sensor, readings: &Readings) -> f64 {
    let interval_s = seconds(readings.interval_ns());
    let renewed_s = interval_s.max(sensor.period.seconds);
    let seen = ((sensor.window_s() - sensor.window.half_width) / renewed_s).clamp(0.0, 1.0);
    // Readings that are more frequent than updates repeat them. They are not additional samples.
    let repeated = if interval_s > 0.0 { (renewed_s / interval_s).max(1.0) } else { 1.0 };
    (1.0 - seen).sqrt() * repeated
}

/// The same factor for a counter that does not see all of the time between two ticks.
pub(super) fn missed_by_counter(sensor: &Sensor) -> f64 {
    let seen = (sensor.window_s() + sensor.window.half_width) / sensor.period.seconds;
    (1.0 - seen.clamp(0.0, 1.0)).sqrt()
}
