//! Inference times by batch size.
//!
//! Knows the phases that a worker reports: each answered batch is a phase `inference`. Batches of one size lie in a
//! phase `inference_batch` whose index is the number of rows. Without such a phase, all have the size that the worker
//! states as `inference_batch_size`.

use super::window::Windows;
use crate::record::Phase;

/// Answers to batches of one size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answers {
    /// Rows of a batch; `None` if no phase has the size.
    pub(super) rows: Option<u64>,
    /// The start and the stop of each answer, in nanoseconds since the attempt's start.
    pub(super) spans: Vec<(u64, u64)>,
}

impl Answers {
    /// The answers of an attempt by batch size, in the order in which the sizes first occur.
    pub(super) fn of(phases: &[Phase]) -> Vec<Self> {
        let told = |name: &'static str| phases.iter().filter(move |phase| phase.name == name && phase.rank == 0);
        let span = |phase: &Phase| Some((phase.start_ns, phase.stop_ns?));
        let mut all: Vec<Self> = Vec::new();
        for answered in told("inference") {
            let Some((start_ns, stop_ns)) = span(answered) else { continue };
            let around =
                |batch: &&Phase| batch.start_ns <= start_ns && batch.stop_ns.is_none_or(|stop| stop_ns <= stop);
            let rows = told("inference_batch").find(around).map(|batch| batch.index);
            match all.iter_mut().find(|answers| answers.rows == rows) {
                Some(answers) => answers.spans.push((start_ns, stop_ns)),
                None => all.push(Self { rows, spans: vec![(start_ns, stop_ns)] }),
            }
        }
        all
    }

    /// The duration of each answer, in nanoseconds.
    pub(super) fn lengths(&self) -> Vec<u64> {
        self.spans.iter().map(|(start_ns, stop_ns)| stop_ns.saturating_sub(*start_ns)).collect()
    }

    /// The times in which answers were computed.
    pub(super) fn windows(&self) -> Windows {
        Windows::new(self.spans.iter().copied())
    }

    /// Returns functions that name metrics of these answers, the `place`-th of an attempt: with the batch size as a
    /// suffix, and for the first ones also without.
    pub(super) fn names(&self, place: usize) -> impl Iterator<Item = impl Fn(&str) -> String> {
        let sized = self.rows.map(|rows| format!("@{rows}"));
        let plain = (place == 0).then(String::new);
        plain.into_iter().chain(sized).map(|size| move |metric: &str| format!("{metric}{size}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, index: u64, start_ns: u64, stop_ns: Option<u64>) -> Phase {
        Phase { name: name.to_owned(), index, rank: 0, start_ns, stop_ns }
    }

    #[test]
    fn answers_belong_to_the_size_that_they_lie_in() {
        let phases = [
            phase("inference_batch", 8, 0, Some(100)),
            phase("inference", 1, 10, Some(20)),
            phase("inference", 2, 30, Some(45)),
            phase("inference_batch", 1, 100, Some(200)),
            phase("inference", 1, 110, Some(112)),
            phase("inference", 2, 120, None),
        ];
        let found = Answers::of(&phases);
        assert_eq!(found.iter().map(|answers| answers.rows).collect::<Vec<_>>(), [Some(8), Some(1)]);
        assert_eq!([found[0].lengths(), found[1].lengths()], [vec![10, 15], vec![2]]);
        let names = |place: usize| found[place].names(place).map(|name| name("p99")).collect::<Vec<_>>();
        assert_eq!([names(0), names(1)], [vec!["p99", "p99@8"], vec!["p99@1"]]);
        assert_eq!(found[0].windows().length(), 25);
    }

    #[test]
    fn answers_without_a_stated_size_are_one_group() {
        let found = Answers::of(&[phase("inference", 1, 10, Some(20)), phase("eval", 1, 0, Some(5))]);
        assert_eq!(found, [Answers { rows: None, spans: vec![(10, 20)] }]);
        assert_eq!(found[0].names(0).map(|name| name("p99")).collect::<Vec<_>>(), ["p99"]);
        assert!(Answers::of(&[]).is_empty());
    }
}
