//! Names of metrics that are one slip away from a known one.
//!
//! A table may have any metric, so only a clear slip counts: one letter off, and not into another word of the field.

use crate::record::{KNOWN_METRICS, known_metric};

/// Short names are one letter away from too many others.
const SHORTEST: usize = 5;

/// The known metric that was probably meant.
pub(super) fn slip(name: &str) -> Option<&'static str> {
    if known_metric(name).is_some() || name.len() > 100 {
        return None;
    }
    let lower = name.to_lowercase();
    let is_meant = |known: &str| match strsim::damerau_levenshtein(&lower, known) {
        0 => true,
        1 => lower.len() >= SHORTEST && digits(&lower) == digits(known) && !is_other_word(&lower, known),
        _ => false,
    };
    KNOWN_METRICS.iter().map(|metric| metric.name).find(|known| is_meant(known))
}

/// The digits of a name: percentiles and thresholds are no slips of each other.
fn digits(name: &str) -> String {
    name.chars().filter(char::is_ascii_digit).collect()
}

/// Whether the part in which the two differ is a word that known metrics have, as `cpu` in `cpu_mem_peak`.
fn is_other_word(name: &str, known: &str) -> bool {
    let has = |word: &str| KNOWN_METRICS.iter().any(|metric| metric.name.split('_').any(|part| part == word));
    let mut apart = name.split('_').zip(known.split('_')).filter(|(one, two)| one != two);
    name.split('_').count() == known.split('_').count() && apart.all(|(one, _)| has(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_metrics_are_left_alone() {
        for (name, meant) in [
            ("train_tme", "train_time"),
            ("train_tiem", "train_time"),
            ("Accuracy", "accuracy"),
            ("powermean", "power_mean"),
            ("EDP", "edp"),
            ("throughputs", "throughput"),
        ] {
            assert_eq!(slip(name), Some(meant), "{name}");
        }
        for own in [
            "energy",
            "inference_time@8",
            "step_time_p99",
            "cpu_mem_peak",
            "gpu_time",
            "loss2",
            "wait_time",
            "batch_time",
            "energy_per_batch",
            "epochs_to_target",
            "ede",
            "test_loss",
        ] {
            assert_eq!(slip(own), None, "{own}");
        }
    }
}
