//! Results of checks whether the machine can do something.

use std::fmt;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckState {
    /// It is available and suitable.
    Ok,
    /// It is available, with a drawback.
    Warning,
    /// It is not available.
    Missing,
}

impl CheckState {
    /// `ok`, `warning` or `missing`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        }
    }
}

impl fmt::Display for CheckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The check for one thing on the machine: the result, and the fix if it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The subject of the check, in one or two words.
    pub name: &'static str,
    /// The result.
    pub state: CheckState,
    /// The evidence, or the places that were searched without success.
    pub found: String,
    /// The consequence; empty if the result is good.
    pub consequence: String,
    /// The fix; empty if nothing has to be done.
    pub fix: String,
}

impl Check {
    /// Creates a check of something available and suitable.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: CheckState::Ok, found: found.into(), consequence: String::new(), fix: String::new() }
    }

    /// Creates a check of something available with a drawback.
    pub fn warning(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let state = CheckState::Warning;
        Self { name, state, found: found.into(), consequence: consequence.into(), fix: fix.into() }
    }

    /// Creates a check of something that is not available.
    pub fn missing(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let state = CheckState::Missing;
        Self { name, state, found: found.into(), consequence: consequence.into(), fix: fix.into() }
    }
}
