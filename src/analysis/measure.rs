//! The metrics that follow from what every worker says, its steps, its phases and its end, and from what the hardware did meanwhile.

use crate::record::{Metric, Phase, Series, Table};
use std::collections::BTreeMap;

/// Training steps at the start of an attempt that no measure of time includes: the first of them compile, tune and fault in
/// memory. A tenth of all steps, at most ten.
pub fn warmup_steps(steps: usize) -> usize {
    (steps / 10).min(10)
}

/// A training step as a worker reported it.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Its number.
    pub step: u64,
    /// When it was over, in nanoseconds since the attempt's start.
    pub t_ns: u64,
    /// How long it took, by the worker.
    pub duration_ns: Option<u64>,
}

/// What the metrics are computed from.
#[derive(Debug, Default)]
pub struct Observed {
    /// Training steps of rank 0 in order.
    pub steps: Vec<Timed>,
    /// Phases by start, the steps among them.
    pub phases: Vec<Phase>,
    /// What was read of the hardware, by the names of the series; positions are nanoseconds since the attempt's start.
    pub telemetry: BTreeMap<String, Series>,
    /// How many GPUs the run uses.
    pub gpus: u32,
    /// Samples a step, if the worker said so.
    pub samples_per_step: Option<u64>,
    /// The last value of `loss` over the steps.
    pub last_loss: Option<f64>,
    /// From the worker's start to its end.
    pub wall_ns: u64,
    /// Processor time of the worker, if it could be read.
    pub cpu_ns: Option<u64>,
    /// Whether somebody saw the end.
    pub ended: bool,
}

impl Observed {
    /// Fills in every metric that the worker did not state itself and that follows from what was seen, and notes beside the attempt's
    /// other facts by what rule it was measured.
    pub fn complete(&self, metrics: &mut BTreeMap<String, Metric>, facts: &mut Table) {
        facts.insert("measure.warmup_steps".to_owned(), warmup_steps(self.steps.len()).into());
        let mut put = |name: &str, metric: Metric| {
            metrics.entry(name.to_owned()).or_insert(metric);
        };
        if self.ended {
            put("wall_time", Metric::new(seconds(self.wall_ns), "s"));
            match self.cpu_ns {
                Some(cpu_ns) => put("cpu_time", Metric::new(seconds(cpu_ns), "s")),
                None => put("cpu_time", Metric::missing("s", "the worker's processor time could not be read")),
            }
        }
        if let Some(loss) = self.last_loss {
            put("loss", Metric::new(loss, ""));
        }
        let durations = self.durations();
        if let Some(step_ns) = median(&durations[warmup_steps(durations.len())..]) {
            put("step_time", Metric::new(step_ns / 1e9, "s"));
            if let Some(samples) = self.samples_per_step.filter(|samples| *samples > 0) {
                put("throughput", Metric::new(real(samples) / (step_ns / 1e9), "samples/s"));
            }
        }
        let epochs: Vec<u64> = self
            .phases
            .iter()
            .filter(|phase| phase.name == "epoch" && phase.rank == 0)
            .filter_map(|phase| Some(phase.stop_ns?.saturating_sub(phase.start_ns)))
            .collect();
        if let Some(epoch_ns) = median(&epochs) {
            put("epoch_time", Metric::new(epoch_ns / 1e9, "s"));
            put("train_time", Metric::new(seconds(epochs.iter().sum()), "s"));
        }
    }

    /// The durations of the training steps: as the worker measured them, else the times between one step and the next.
    fn durations(&self) -> Vec<u64> {
        let stated: Vec<u64> = self.steps.iter().filter_map(|timed| timed.duration_ns).collect();
        if !stated.is_empty() {
            return stated;
        }
        let following = self.steps.windows(2).filter(|pair| pair[1].step == pair[0].step.wrapping_add(1));
        following.map(|pair| pair[1].t_ns.saturating_sub(pair[0].t_ns)).collect()
    }
}

fn seconds(ns: u64) -> f64 {
    real(ns) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days; beyond, microseconds are lost")]
fn real(count: u64) -> f64 {
    count as f64
}

fn median(values: &[u64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(real(lower), real(upper)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(durations: &[Option<u64>]) -> Observed {
        let mut observed = Observed { samples_per_step: Some(8), ended: true, wall_ns: 5, ..Observed::default() };
        observed.last_loss = Some(0.5);
        observed.steps = (1u64..)
            .zip(durations)
            .map(|(step, duration_ns)| Timed { step, t_ns: step * 1_000_000_000, duration_ns: *duration_ns })
            .collect();
        observed
    }

    #[test]
    fn the_warm_up_is_left_out() {
        let mut durations = vec![Some(9_000_000_000); 10];
        durations.extend([Some(2_000_000_000); 90]);
        let mut metrics = BTreeMap::new();
        observed(&durations).complete(&mut metrics, &mut Table::new());
        assert_eq!(metrics["step_time"], Metric::new(2.0, "s"));
        assert_eq!(metrics["throughput"], Metric::new(4.0, "samples/s"));
        assert_eq!(metrics["loss"], Metric::new(0.5, ""));
        assert!(metrics["cpu_time"].reason.is_some());
    }

    #[test]
    fn without_durations_the_times_between_steps_count() {
        let mut metrics = BTreeMap::new();
        observed(&[None, None, None]).complete(&mut metrics, &mut Table::new());
        assert_eq!(metrics["step_time"], Metric::new(1.0, "s"));
    }

    #[test]
    fn what_the_worker_states_stands() {
        let mut metrics = BTreeMap::from([("loss".to_owned(), Metric::new(7.0, ""))]);
        observed(&[None]).complete(&mut metrics, &mut Table::new());
        assert_eq!(metrics["loss"].value, Some(7.0));
        assert!(!metrics.contains_key("step_time"));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3]), Some(3.0));
        assert_eq!(median(&[4, 1, 2, 3]), Some(2.5));
    }
}
