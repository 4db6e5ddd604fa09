//! Differences between the GPUs of one attempt during training, and warnings about them.

use super::hardware::device;
use crate::record::{Source, Table};

/// A GPU with less than this share of the busiest one's utilization may take no part.
const AT_REST: f64 = 0.1;
/// A GPU with a clock below this share of the fastest one's slows the others down.
const SLOW: f64 = 0.97;

/// Means over the training after its warm-up. Empty unless they are known for all GPUs.
#[derive(Default)]
pub(super) struct EachGpu {
    /// The share of the time in which kernels ran, in percent.
    pub(super) used: Vec<(Source, f64)>,
    /// The clock of the multiprocessors.
    pub(super) clocks_mhz: Vec<(Source, f64)>,
}

impl EachGpu {
    /// Adds the means of each GPU to the facts if there are several, and warns of GPUs that differ from the others.
    pub(super) fn tell(&self, facts: &mut Table, warnings: &mut Vec<String>) {
        for (name, each) in [("utilization", &self.used), ("clock_sm", &self.clocks_mhz)] {
            if each.len() > 1 {
                let each: Table = each.iter().map(|(gpu, mean)| (gpu.to_string(), (*mean).into())).collect();
                facts.insert(name.to_owned(), each.into());
            }
        }
        warnings.extend(self.at_rest());
        let name = |gpu: Source| facts.get(&format!("{gpu}.name"));
        // Clocks of different models are not comparable.
        let are_alike = self.clocks_mhz.windows(2).all(|two| name(two[0].0) == name(two[1].0));
        warnings.extend(self.slow().filter(|_| are_alike));
    }

    /// Warns of GPUs that were nearly idle while another one worked, for example because each process takes the first GPU.
    fn at_rest(&self) -> Vec<String> {
        let Some((busy, most)) = most(&self.used) else { return Vec::new() };
        let resting = self.used.iter().filter(|(gpu, _)| self.rests(*gpu));
        let told = |(gpu, percent): &(Source, f64)| {
            let (gpu, busy) = (device(*gpu), device(busy));
            format!(
                "{gpu} ran kernels in {percent:.1}% of the training's time, {busy} in {most:.1}%: does it take part?"
            )
        };
        resting.map(told).collect()
    }

    fn rests(&self, gpu: Source) -> bool {
        let most = most(&self.used).map_or(0.0, |(_, most)| most);
        self.used.iter().any(|(other, percent)| *other == gpu && *percent < AT_REST * most)
    }

    /// Warns of the slowest working GPU if it is much slower than the fastest. Clocks of idle GPUs are ignored.
    fn slow(&self) -> Option<String> {
        // Without utilization it is unknown which GPUs are idle.
        most(&self.used)?;
        let working: Vec<(Source, f64)> =
            self.clocks_mhz.iter().copied().filter(|(gpu, _)| !self.rests(*gpu)).collect();
        let (fast, most) = most(&working)?;
        let (slow, least) = working.iter().copied().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (least < SLOW * most).then(|| {
            let (slow, fast) = (device(slow), device(fast));
            format!(
                "the clock of {slow} was {least:.0} MHz in the training's mean, that of {fast} {most:.0} MHz: GPUs that share a step wait for the slowest (its `throttle_reasons` in `ledger telemetry` show the reason)"
            )
        })
    }
}

fn most(each: &[(Source, f64)]) -> Option<(Source, f64)> {
    each.iter().copied().max_by(|(_, a), (_, b)| a.total_cmp(b))
}
