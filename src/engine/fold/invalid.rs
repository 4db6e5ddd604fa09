//! Marks attempts whose worker stated impossible values as invalid.

use crate::analysis::{Implausible, implausible};
use crate::record::{Attempt, Metric, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The beginning of the warning about an impossible value.
pub const IMPOSSIBLE: &str = "invalid: ";

/// Marks the attempt as invalid if the worker stated impossible values. Measured values have other rules.
pub(super) fn invalidate(
    stated: &BTreeSet<String>,
    metrics: &BTreeMap<String, Metric>,
    facts: &mut Table,
    warnings: &mut Vec<String>,
) {
    let faults: Vec<Implausible> =
        implausible(metrics).into_iter().filter(|fault| stated.contains(&fault.metric)).collect();
    if faults.is_empty() {
        return;
    }
    warnings.extend(
        faults.iter().map(|fault| format!("{IMPOSSIBLE}{} (the worker states {})", fault.reason, fault.detail)),
    );
    let reasons: Vec<String> = faults.into_iter().map(|fault| fault.reason).collect();
    facts.insert(Attempt::TAINT.to_owned(), reasons.into());
}
