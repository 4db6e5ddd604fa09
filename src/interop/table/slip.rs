//! Probable misspellings of known metrics.
//!
//! A table may have any metric, so only a clear misspelling counts: one letter differs, and the result is not another
//! word of the field.

use crate::record::{KNOWN_METRICS, known_metric};

/// The shortest name that is checked: shorter ones are one letter away from too many others.
const SHORTEST: usize = 5;

/// Returns the known metric that was probably meant.
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

/// Returns the digits of a name. Percentiles and thresholds are not misspellings of each other.
fn digits(name: &str) -> String {
    name.chars().filter(char::is_ascii_digit).collect()
}

/// Whether the differing part is a word that occurs in known metrics, such as `cpu` in `cpu_mem_peak`.
fn is_other_word(name: &str, known: &str) -> bool {
    let has = |word: &str| KNOWN_METRICS.iter().any(|metric| metric.name.split('_').any(|part| part == word));
    let mut apart = name.split('_').zip(known.split('_')).filter(|(one, two)| one != two);
    name.split('_').count() == known.split('_').count() && apart.all(|(one, _)| has(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_found_and_other_metrics_are_accepted() {
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
