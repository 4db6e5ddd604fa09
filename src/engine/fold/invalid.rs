//! Attempts whose worker stated what cannot be.

use crate::analysis::{Implausible, implausible};
use crate::record::{Attempt, Metric, Table};
use std::collections::{BTreeMap, BTreeSet};

/// How the warning of an attempt begins whose worker stated an impossible value.
pub const IMPOSSIBLE: &str = "invalid: ";

/// Marks the attempt as invalid where the worker stated impossible values. Measured values have rules of their own.
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
