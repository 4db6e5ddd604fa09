//! Simulated boards: a load of steps, and sensors with windows, delays and noise.

use super::Shape;
use crate::analysis::statistic::split_mix;

/// Steps of power: each is a time in milliseconds and the power from then on, in watts.
pub(in crate::analysis) type Steps = Vec<(f64, f64)>;

/// Random numbers with a seed.
pub(in crate::analysis) struct Chance(pub(in crate::analysis) u64);

impl Chance {
    /// Uniform between the two.
    pub(in crate::analysis) fn even(&mut self, from: f64, to: f64) -> f64 {
        let share = f64::from(u32::try_from(split_mix(&mut self.0) >> 32).unwrap()) / 4_294_967_296.0;
        from + share * (to - from)
    }

    /// Approximately normal, with mean 0 and standard deviation 1.
    pub(in crate::analysis) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.even(0.0, 1.0)).sum::<f64>() - 6.0
    }
}

/// The energy until a moment in milliseconds, in watts times milliseconds. The first step's power also applies before it.
pub(in crate::analysis) fn work(steps: &Steps, until: f64) -> f64 {
    let first = steps[0];
    if until <= first.0 {
        return first.1 * (until - first.0);
    }
    let ends = steps.iter().skip(1).map(|step| step.0).chain([f64::INFINITY]);
    steps.iter().zip(ends).map(|((from, watts), end)| watts * (end.min(until) - from).max(0.0)).sum()
}

/// A sensor; times in milliseconds.
#[derive(Clone, Copy)]
pub(in crate::analysis) struct Model {
    pub(in crate::analysis) shape: Shape,
    pub(in crate::analysis) period: f64,
    pub(in crate::analysis) window: f64,
    pub(in crate::analysis) lag: f64,
    /// Normal noise of each update, in watts, and the most by which an update may be off its beat.
    pub(in crate::analysis) noise: f64,
    pub(in crate::analysis) jitter: f64,
}

impl Model {
    /// Its value at an update.
    fn sees(&self, steps: &Steps, at: f64) -> f64 {
        let newest = at - self.lag;
        match self.shape {
            Shape::Boxcar => (work(steps, newest) - work(steps, newest - self.window)) / self.window,
            Shape::FirstOrder => {
                let mut level = steps[0].1;
                let ends = steps.iter().skip(1).map(|step| step.0).chain([f64::INFINITY]);
                for ((from, watts), end) in steps.iter().zip(ends) {
                    let length = (end.min(newest) - from).max(0.0);
                    level = watts + (level - watts) * (-length / self.window).exp();
                }
                level
            }
        }
    }

    /// Its updates from before 0 until `until`, each with its time. For a counter the values are its counts, in millijoules.
    pub(in crate::analysis) fn updates(
        &self,
        steps: &Steps,
        until: f64,
        counts: Option<f64>,
        chance: &mut Chance,
    ) -> Vec<(f64, f64)> {
        let (mut at, mut sum, mut updates) = (-chance.even(0.0, self.period) - self.period, 1e6, Vec::new());
        while at < until {
            let watts = self.sees(steps, at) + self.noise * chance.normal();
            sum += watts * self.period;
            let value = counts.map_or((watts * 1e3).round() / 1e3, |quantum| (sum / quantum).floor() * quantum / 1e3);
            updates.push((at + chance.even(-self.jitter, self.jitter), value));
            at += self.period;
        }
        updates
    }
}

/// The readings of updates at these moments.
pub(in crate::analysis) fn read(updates: &[(f64, f64)], moments: &[f64]) -> Vec<f64> {
    let value = |moment: &f64| updates[updates.partition_point(|(at, _)| at <= moment).saturating_sub(1)].1;
    moments.iter().map(value).collect()
}
