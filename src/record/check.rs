//! What was found when the machine was asked whether it can do something.

use std::fmt;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckState {
    /// It is there and fit.
    Ok,
    /// It is there, with a drawback.
    Warning,
    /// It is not there.
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

/// One thing that was looked for on the machine, what was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked for, in one or two words.
    pub name: &'static str,
    /// How it came out.
    pub state: CheckState,
    /// What was found, or where it was looked for in vain.
    pub found: String,
    /// What follows from it; empty where all is well.
    pub consequence: String,
    /// What to do about it; empty where nothing needs to be done.
    pub fix: String,
}

impl Check {
    /// It is there and fit.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: CheckState::Ok, found: found.into(), consequence: String::new(), fix: String::new() }
    }

    /// It is there, with a drawback.
    pub fn warning(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let state = CheckState::Warning;
        Self { name, state, found: found.into(), consequence: consequence.into(), fix: fix.into() }
    }

    /// It is not there.
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
