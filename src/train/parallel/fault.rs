//! Fault injection: makes a rank fail at a given point of a run.
//!
//! A fault must be requested explicitly. Other runs do not use this module.

use super::progress::PHASES;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A fault: the rank, the failure, and the point at which it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    rank: usize,
    kind: Kind,
    /// The phase at whose beginning the fault happens.
    what: String,
    /// The index of that phase.
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The thread panics, as Burn does when a device's memory is full.
    Panic,
    /// The thread sleeps forever.
    Hang,
    /// The process aborts, as it does when a driver's library crashes.
    Abort,
}

/// The phases in which a rank may be made to fail. `start` and `end` are outside of a rank's work. A panic in `peak`
/// does not fail the run.
fn phases() -> impl Iterator<Item = &'static str> {
    PHASES.into_iter().filter(|phase| !["start", "peak", "end"].contains(phase))
}

/// The text does not describe a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no fault (it must be a rank, `panic`, `hang` or `abort`, a phase and its number, as in `1 hang forward 5`; phases are {phases})",
    phases = phases().collect::<Vec<_>>().join(", ")
)]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let read = |words: &[&str]| {
            let [rank, kind, what, index] = words else { return None };
            let kind = match *kind {
                "panic" => Kind::Panic,
                "hang" => Kind::Hang,
                "abort" => Kind::Abort,
                _ => return None,
            };
            phases().find(|phase| phase == what)?;
            Some(Self { rank: rank.parse().ok()?, kind, what: (*what).to_owned(), index: index.parse().ok()? })
        };
        read(&words).ok_or_else(|| FaultError(text.to_owned()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Panic => "panic",
            Kind::Hang => "hang",
            Kind::Abort => "abort",
        };
        write!(f, "`{} {kind} {} {}`", self.rank, self.what, self.index)
    }
}

impl Fault {
    /// Whether this is the rank and the phase of the fault.
    pub fn is_at(&self, rank: usize, what: &str, index: u64) -> bool {
        (self.rank, self.what.as_str(), self.index) == (rank, what, index)
    }

    /// Injects the fault, on the thread of its rank.
    pub fn strike(&self) {
        match self.kind {
            Kind::Panic => panic!("a fault was asked for"),
            Kind::Hang => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
            Kind::Abort => std::process::abort(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_four_words() {
        let fault = Fault { rank: 1, kind: Kind::Hang, what: "forward".to_owned(), index: 5 };
        assert_eq!(fault.to_string(), "`1 hang forward 5`");
        assert_eq!("1 hang forward 5".parse(), Ok(fault));
        for text in [
            "",
            "1 hang forward",
            "one hang forward 5",
            "1 sleep forward 5",
            "1 hang forward five",
            "1 hang forwrad 5",
            "0 panic peak 1",
            "1 hang forward 5 6",
        ] {
            let error = text.parse::<Fault>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}` is no fault (it must be a rank, ")), "{error}");
        }
    }

    #[test]
    fn nothing_happens_elsewhere() {
        let fault: Fault = "1 panic forward 5".parse().expect("valid");
        for (rank, what, index) in [(0, "forward", 5), (1, "backward", 5), (1, "forward", 4)] {
            assert!(!fault.is_at(rank, what, index));
        }
        assert!(fault.is_at(1, "forward", 5));
        assert!(std::panic::catch_unwind(|| fault.strike()).is_err());
    }
}
