//! Metrics: single numbers that describe an attempt.

/// A measured number, or the reason why it is missing. Values that are not finite are values: a diverged loss is a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The value; `None` if it could not be measured.
    pub value: Option<f64>,
    /// The unit; empty for a pure number.
    pub unit: String,
    /// Why there is no value.
    pub reason: Option<String>,
    /// Half the width of the 95% interval of the true value, in the unit; `None` if it was not estimated.
    pub uncertainty: Option<f64>,
}

impl Metric {
    /// A measured value.
    pub fn new(value: f64, unit: impl Into<String>) -> Self {
        Self { value: Some(value), unit: unit.into(), reason: None, uncertainty: None }
    }

    /// A measured value with its uncertainty in the same unit.
    pub fn within(value: f64, uncertainty: f64, unit: impl Into<String>) -> Self {
        Self { uncertainty: Some(uncertainty), ..Self::new(value, unit) }
    }

    /// A missing value and why it is missing.
    pub fn missing(unit: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { value: None, unit: unit.into(), reason: Some(reason.into()), uncertainty: None }
    }
}

/// The mean of values; NaN without values. If all values are equal it is exactly that value, which rounding in a sum may miss.
///
/// Means are keys of indexes and ranks in answers, which have to agree to the bit.
pub fn mean(values: &[f64]) -> f64 {
    let sum = |(sum, n): (f64, f64), value: &f64| (sum + value, n + 1.0);
    match values {
        // A negative zero is zero.
        [first, rest @ ..] if rest.iter().all(|value| value == first) => 0.0 + *first,
        _ => {
            let (sum, n) = values.iter().fold((0.0, 0.0), sum);
            sum / n
        }
    }
}

/// The better direction of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Smaller is better: time, energy, loss.
    Minimize,
    /// Larger is better: accuracy, throughput.
    Maximize,
}

impl Direction {
    /// The name used in manifests and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Minimize => "minimize",
            Self::Maximize => "maximize",
        }
    }
}

/// The origin of a metric's value, which determines what an independent repetition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricKind {
    /// Determined by the trained weights: accuracy, loss, return. An independent repetition has another seed.
    Outcome,
    /// Determined by the machine: time, energy, power, memory, utilisation. An independent repetition is another execution.
    Measured,
}

impl MetricKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Outcome, Self::Measured];

    /// The name used in events, maps, manifests and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outcome => "outcome",
            Self::Measured => "measured",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The known properties of a metric with a standard name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricInfo {
    /// The name.
    pub name: &'static str,
    /// The unit; empty for a pure number.
    pub unit: &'static str,
    /// The better direction.
    pub direction: Direction,
    /// Its meaning, in one line.
    pub meaning: &'static str,
}

const fn info(name: &'static str, unit: &'static str, direction: Direction, meaning: &'static str) -> MetricInfo {
    MetricInfo { name, unit, direction, meaning }
}

use Direction::{Maximize, Minimize};

/// The metrics by which models are ranked unless another one is named: the first that an attempt has. The loss is last,
/// because it is of the training, and that of a `dqn` is small if nothing was learned.
pub const JUDGING_METRICS: [&str; 5] = ["accuracy", "perplexity", "mean_return", "eval_loss", "loss"];

/// Every metric that ledger itself records.
pub const KNOWN_METRICS: &[MetricInfo] = &[
    info(
        "accuracy",
        "",
        Maximize,
        "share of right answers on the evaluation data, at the end; of detectors the average precision of boxes",
    ),
    info("achieved_tflops", "TFLOP/s", Maximize, "flops_per_sample x throughput: the model's operations, by formula"),
    info(
        "all_reduce_exposed",
        "s",
        Minimize,
        "median time that a step is in phase `all_reduce` and not in `backward`, mean over the ranks",
    ),
    info(
        "all_reduce_time",
        "s",
        Minimize,
        "median time from when the last rank has its gradients to when all ranks have those of all",
    ),
    info("box_ap_50", "", Maximize, "mean average precision of boxes that overlap a right one by half"),
    info("box_ap_75", "", Maximize, "mean average precision of boxes that overlap a right one by three quarters"),
    info(
        "bubble_fraction",
        "",
        Minimize,
        "share of the stages' time in the passes of a step in which they wait or have nothing to do",
    ),
    info("cpu_time", "s", Minimize, "processor time of the worker, user and system, all threads"),
    info("cpu_util", "%", Maximize, "share of all processors' time that the worker had while it trained"),
    info("data_time", "s", Minimize, "median time that a training step waits for its data"),
    info(
        "dram_util",
        "%",
        Maximize,
        "share of the memory's bandwidth that was used, while training, mean over the GPUs (GPM)",
    ),
    info("edp", "J·s", Minimize, "energy x train_time"),
    info("edp_per_sample", "J·s", Minimize, "energy_per_sample x train_time / samples trained on"),
    info("energy", "J", Minimize, "energy of the training, evaluation left out, warm-up counted as measured steps"),
    info("energy_net", "J", Minimize, "energy - power_idle x train_time"),
    info("energy_per_epoch", "J", Minimize, "energy / epochs"),
    info("energy_per_sample", "J", Minimize, "energy / samples trained on"),
    info("energy_per_token", "J", Minimize, "energy_per_sample / tokens_per_sample"),
    info("energy_total", "J", Minimize, "energy from the worker's start to its end"),
    info(
        "epoch_time",
        "s",
        Minimize,
        "median time of one epoch, evaluation left out, warm-up counted as measured steps",
    ),
    info("eval_loss", "", Minimize, "mean loss on the evaluation data, at the end"),
    info("gpu_mem_peak", "B", Minimize, "most memory taken on any one GPU, by whichever process"),
    info(
        "gpu_mem_util",
        "%",
        Maximize,
        "share of the time in which memory of the GPUs was read or written, while training",
    ),
    info("gpu_util", "%", Maximize, "share of the time in which the GPUs ran a kernel, while training"),
    info("host_mem_peak", "B", Minimize, "most memory resident, of the worker and all that it started"),
    info("inference_energy", "J", Minimize, "energy of the answers to evaluation data / samples answered"),
    info("inference_p99", "s", Minimize, "99th percentile of the time to answer one batch, by nearest rank"),
    info("inference_time", "s", Minimize, "median time to answer one batch of evaluation data"),
    info("inference_sample_time", "s", Minimize, "inference_time / inference_batch_size"),
    info("loss", "", Minimize, "training loss at the last step"),
    info("mask_ap", "", Maximize, "mean average precision of masks, over overlaps from .50 to .95"),
    info("mask_ap_50", "", Maximize, "mean average precision of masks that overlap a right one by half"),
    info("mask_ap_75", "", Maximize, "mean average precision of masks that overlap a right one by three quarters"),
    info(
        "matching_share",
        "",
        Minimize,
        "share of the training steps' time in which the host matches and suppresses boxes",
    ),
    info("mean_return", "", Maximize, "mean sum of rewards of 100 episodes played greedily, at the end"),
    info(
        "mfu",
        "%",
        Maximize,
        "achieved_tflops / matmul_tflops, what products of large matrices reached on the same device",
    ),
    info(
        "nvlink_rx_rate",
        "B/s",
        Minimize,
        "bytes received over all NVLinks a second, while training, mean over the GPUs (GPM)",
    ),
    info(
        "nvlink_tx_rate",
        "B/s",
        Minimize,
        "bytes sent over all NVLinks a second, while training, mean over the GPUs (GPM)",
    ),
    info(
        "pcie_rx_rate",
        "B/s",
        Minimize,
        "bytes received over PCIe a second, while training, mean over the GPUs (GPM)",
    ),
    info("pcie_tx_rate", "B/s", Minimize, "bytes sent over PCIe a second, while training, mean over the GPUs (GPM)"),
    info("perplexity", "", Minimize, "exponential of eval_loss: among how many tokens the model hesitates"),
    info("power_idle", "W", Minimize, "mean power in phase `idle`, before the training"),
    info("power_mean", "W", Minimize, "mean power of the training after warm-up, evaluation left out"),
    info("skipped_steps", "", Minimize, "training steps that changed nothing because a gradient overflowed"),
    info(
        "sm_active",
        "%",
        Maximize,
        "share of the time in which a multiprocessor had work, while training, mean over the GPUs (GPM)",
    ),
    info(
        "sm_occupancy",
        "%",
        Maximize,
        "warps resident on the multiprocessors / the most they hold, while training, mean over the GPUs (GPM)",
    ),
    info("step_time", "s", Minimize, "median time of one training step after warm-up"),
    info("step_time_p95", "s", Minimize, "95th percentile of the time of a training step after warm-up"),
    info(
        "straggler_spread",
        "s",
        Minimize,
        "median time of a step from when the first rank has its gradients to when the last one has them",
    ),
    info(
        "tensor_active",
        "%",
        Maximize,
        "share of the time in which tensor cores worked, while training, mean over the GPUs (GPM)",
    ),
    info("throughput", "samples/s", Maximize, "training samples a second after warm-up: samples a step / step_time"),
    info(
        "train_time",
        "s",
        Minimize,
        "time of all training epochs, evaluation left out, warm-up counted as measured steps",
    ),
    info("wait_energy", "J", Minimize, "energy at idle power of GPUs that wait for other ranks, while training"),
    info("wall_time", "s", Minimize, "from the worker's start to its end"),
    info("warmup_time", "s", Minimize, "what the warm-up steps took, compilation in it"),
];

/// Looks a metric up by name. `inference_time@8` is `inference_time` at batches of 8, and so on.
pub fn known_metric(name: &str) -> Option<&'static MetricInfo> {
    let sized = |(name, rows): (&'_ str, &str)| {
        (name.starts_with("inference_") && !rows.is_empty() && rows.bytes().all(|byte| byte.is_ascii_digit()))
            .then_some(name.len())
    };
    let end = name.split_once('@').and_then(sized).unwrap_or(name.len());
    KNOWN_METRICS.iter().find(|metric| Some(metric.name) == name.get(..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_equal_values_is_that_value() {
        for n in 1..40 {
            assert_eq!(mean(&vec![0.1; n]).to_bits(), 0.1f64.to_bits(), "{n}");
        }
        assert_eq!((mean(&[1.0, 2.0, 6.0]), mean(&[-0.0]).to_bits()), (3.0, 0));
        assert!(mean(&[]).is_nan());
    }

    #[test]
    fn metrics_of_one_size_of_batch_are_known_by_their_plain_name() {
        let known = |name| known_metric(name).map(|metric| metric.name);
        assert_eq!(known("inference_time"), Some("inference_time"));
        assert_eq!(known("inference_energy@128"), Some("inference_energy"));
        for unknown in ["inference_time@", "inference_time@big", "step_time@8", "inference_times@8"] {
            assert_eq!(known(unknown), None, "{unknown}");
        }
    }
}
