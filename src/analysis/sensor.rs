//! What a board's own sensor of power or counter of energy does with the power that is drawn: how often it speaks, of how long a
//! time, and how late.
//!
//! Knows the readings and when a load was on and off. Must not know how either was made, nor where what follows is kept.

mod find;
mod period;
mod response;

use super::statistic::CONFIDENCE;
use crate::record::{Table, Value};

pub use find::{Watched, calibrate};

/// A time in seconds, with half the width of its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    /// The time.
    pub seconds: f64,
    /// How far it may be off.
    pub half_width: f64,
}

impl Within {
    fn to_value(self) -> Value {
        let pair = [("s", self.seconds), ("half_width_s", self.half_width)];
        pair.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<Table>().into()
    }

    fn of(value: &Value) -> Option<Self> {
        let (seconds, half_width) = (finite(value, "s")?, finite(value, "half_width_s")?);
        (half_width >= 0.0).then_some(Self { seconds, half_width })
    }
}

/// How a sensor weighs the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All moments of its window alike.
    Boxcar,
    /// The newest most, each older one by e^(-age / window): a low-pass filter of first order.
    FirstOrder,
}

impl Shape {
    /// The name that is kept and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boxcar => "boxcar",
            Self::FirstOrder => "first order",
        }
    }
}

/// One sensor of power, or a counter of energy, whose growth from tick to tick is a power.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensor {
    /// The time between two updates.
    pub period: Within,
    /// Half of what 95% of these times differ by; how often it was asked is in it too.
    pub spread_s: f64,
    /// How it weighs the past.
    pub shape: Shape,
    /// The length of the window that it averages over, or its time constant.
    pub window: Within,
    /// How old the newest power is that an update has seen.
    pub lag: Within,
    /// How old the middle of what a reading shows is, on average over all moments of reading.
    pub delay: Within,
    /// The share of the readings' variance that the load explains so.
    pub explained: f64,
    /// How many updates it follows from.
    pub updates: usize,
    /// The joules in which a counter counts; none of a sensor of power.
    pub quantum_j: Option<f64>,
}

impl Sensor {
    /// The length of the window that averages as well: that of white noise it leaves as much.
    pub(super) fn window_s(&self) -> f64 {
        match self.shape {
            Shape::Boxcar => self.window.seconds,
            Shape::FirstOrder => 2.0 * self.window.seconds,
        }
    }

    /// One standard deviation of the delay.
    pub(super) fn delay_deviation_s(&self) -> f64 {
        self.delay.half_width / CONFIDENCE
    }

    /// All of it, to be kept.
    pub fn to_table(&self) -> Table {
        let updates: Value = self.updates.into();
        let mut table: Table = [
            ("period", self.period.to_value()),
            ("spread_s", self.spread_s.into()),
            ("shape", self.shape.name().into()),
            ("window", self.window.to_value()),
            ("lag", self.lag.to_value()),
            ("delay", self.delay.to_value()),
            ("explained", self.explained.into()),
            ("updates", updates),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(quantum_j) = self.quantum_j {
            table.insert("quantum_j".to_owned(), quantum_j.into());
        }
        table
    }

    /// Reads what [`Sensor::to_table`] made; none of anything else, and of what no sensor can be.
    pub fn of(table: &Table) -> Option<Self> {
        let within = |name: &str| Within::of(table.get(name)?);
        let number = |name: &str| table.get(name)?.as_float().filter(|value| value.is_finite());
        let shape = [Shape::Boxcar, Shape::FirstOrder];
        let name = table.get("shape")?.as_str()?;
        let sensor = Self {
            period: within("period")?,
            spread_s: number("spread_s")?,
            shape: shape.into_iter().find(|shape| shape.name() == name)?,
            window: within("window")?,
            lag: within("lag")?,
            delay: within("delay")?,
            explained: number("explained")?,
            updates: usize::try_from(table.get("updates")?.as_int()?).ok()?,
            quantum_j: number("quantum_j"),
        };
        let within = |time: f64, most: f64| (0.0..=most).contains(&time);
        let possible = sensor.period.seconds > 0.0
            && within(sensor.period.seconds, LONGEST_S)
            && within(sensor.window.seconds, LONGEST_S)
            && within(sensor.delay.seconds, LONGEST_S);
        possible.then_some(sensor)
    }
}

/// No period, window or delay of a sensor is longer.
const LONGEST_S: f64 = 10.0;

fn finite(value: &Value, name: &str) -> Option<f64> {
    value.as_table()?.get(name)?.as_float().filter(|number| number.is_finite())
}

/// The sensors of one GPU, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Names all that was found, and how.
    pub digest: String,
    /// The power of the moment.
    pub instant: Option<Sensor>,
    /// The averaged power.
    pub average: Option<Sensor>,
    /// The counter of energy.
    pub counter: Option<Sensor>,
}

impl Calibration {
    /// The names of the three, as they are kept and recorded.
    pub const SENSORS: [&'static str; 3] = ["power_instant", "power_average", "energy"];

    /// Reads the sensors that a table holds under the names of their series, and its `digest`; none if there is none.
    pub fn of(table: &Table) -> Option<Self> {
        let sensor = |name: &str| Sensor::of(table.get(name)?.as_table()?);
        let [instant, average, counter] = Self::SENSORS.map(sensor);
        let digest = table.get("digest")?.as_str()?.to_owned();
        [instant, average, counter].iter().any(Option::is_some).then_some(Self { digest, instant, average, counter })
    }
}

#[cfg(test)]
pub(super) mod simulation;
#[cfg(test)]
mod tests;
