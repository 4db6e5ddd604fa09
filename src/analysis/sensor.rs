//! The response of a board's power sensor or energy counter to the power that is drawn: its period, its averaging
//! window and its delay.
//!
//! Knows the readings, and when a load was on and off. Must not know how either was made, nor where the result is stored.

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
    /// Half the width of its interval.
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

/// The weights of past power in a sensor's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Equal weights within the window.
    Boxcar,
    /// Weights that decrease with age as e^(-age / window): a first-order low-pass filter.
    FirstOrder,
}

impl Shape {
    /// The name in records and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boxcar => "boxcar",
            Self::FirstOrder => "first order",
        }
    }
}

/// A power sensor, or an energy counter, whose growth from tick to tick is a power.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensor {
    /// The time between two updates.
    pub period: Within,
    /// Half of the range of 95% of these times, including the effect of the readings' interval.
    pub spread_s: f64,
    /// The weights of past power.
    pub shape: Shape,
    /// The length of the window that it averages over, or its time constant.
    pub window: Within,
    /// The age of the newest power in an update.
    pub lag: Within,
    /// The mean age of the middle of a reading's window, over all moments of reading.
    pub delay: Within,
    /// The share of the readings' variance that the load explains with these values.
    pub explained: f64,
    /// The number of updates from which the values were estimated.
    pub updates: usize,
    /// The step of a counter in joules; `None` for a power sensor.
    pub quantum_j: Option<f64>,
}

impl Sensor {
    /// The length of the boxcar that reduces white noise by the same factor.
    pub(super) fn window_s(&self) -> f64 {
        match self.shape {
            Shape::Boxcar => self.window.seconds,
            Shape::FirstOrder => 2.0 * self.window.seconds,
        }
    }

    /// The standard deviation of the delay.
    pub(super) fn delay_deviation_s(&self) -> f64 {
        self.delay.half_width / CONFIDENCE
    }

    /// All values, for a record.
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

    /// Reads the result of [`Sensor::to_table`]. `None` for any other table, and for impossible values.
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

/// The longest possible period, window and delay of a sensor.
const LONGEST_S: f64 = 10.0;

fn finite(value: &Value, name: &str) -> Option<f64> {
    value.as_table()?.get(name)?.as_float().filter(|number| number.is_finite())
}

/// The known sensors of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Identifies the results and how they were obtained.
    pub digest: String,
    /// The instantaneous power.
    pub instant: Option<Sensor>,
    /// The averaged power.
    pub average: Option<Sensor>,
    /// The energy counter.
    pub counter: Option<Sensor>,
}

impl Calibration {
    /// The names of the three sensors in records.
    pub const SENSORS: [&'static str; 3] = ["power_instant", "power_average", "energy"];

    /// Reads the sensors in a table under the names of their series, and its `digest`. `None` if there is no sensor.
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
