//! Gradient readiness: detects which gradients are complete before the end of the backward pass, so that communication
//! can overlap with it.
//!
//! Our operations (`tape`) report each parameter's gradient that they have computed. Parameters are watched in groups.
//! A group is complete when its last gradient has been computed, and a mark is then put after the work that computes
//! it. Gradients from Burn's own operations are not reported, so their group has no mark and is complete only at the
//! end of the pass. The same applies to parameters that both our and Burn's operations may use.

use crate::cuda;
pub use crate::cuda::event::Mark;
use burn::tensor::Device;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Groups of parameters whose gradients are used together, as a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterGroups {
    /// The index of each parameter's group.
    of: Vec<usize>,
    count: usize,
}

/// Marks behind which gradients are complete; empty if the pass was not watched.
#[derive(Clone, Debug, Default)]
pub struct ReadyMarks {
    /// The mark of each group that was complete before the end of the pass.
    pub groups: Vec<Option<Mark>>,
    /// Marks that later ones replaced. If the pass was captured, its graph still records them.
    pub replaced: Vec<Mark>,
    /// A timed mark after the whole pass, if waits are measured from there on.
    pub end: Option<Mark>,
    /// Timed marks before and after each pass of a micro-batch through a stage; empty if the step waits between its
    /// phases.
    pub passes: Vec<Mark>,
}

/// The times at which a stage worked in a step.
#[derive(Debug)]
pub struct StagePasses {
    /// Marks before and after each pass.
    pub borders: Vec<Mark>,
    /// Marks before and after the update of the parameters.
    pub update: [Mark; 2],
}

impl StagePasses {
    /// Returns the share of a step of `step_s` seconds, without the update of the parameters, in which the stage was in
    /// no pass. `None` if its device has no timing.
    pub fn idle(&self, step_s: f64) -> Option<f64> {
        let [before, behind] = &self.update;
        let span_s = step_s - behind.since(before)?;
        let busy_s: Option<f64> = self.borders.chunks_exact(2).map(|pass| pass[1].since(&pass[0])).sum();
        Some(1.0 - busy_s? / span_s).filter(|_| span_s > 0.0)
    }
}

impl ParameterGroups {
    /// Creates groups from the index of each parameter's group.
    pub fn new(of: Vec<usize>) -> Self {
        let count = of.iter().max().map_or(0, |last| last + 1);
        Self { of, count }
    }
}

struct Watcher {
    /// The group of each parameter, by its number on the tape.
    groups: HashMap<u64, usize>,
    found: HashSet<u64>,
    /// The number of missing gradients of each group.
    missing: Vec<usize>,
    marks: Vec<Option<Mark>>,
    replaced: Vec<Mark>,
    device: Device,
}

thread_local! {
    /// A backward pass runs on the thread that requests it.
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Runs a backward pass and returns marks where each group was complete. `leaves` are the parameters' numbers on the
/// tape, in order; `None` for those whose gradients are not reported.
pub fn watch_backward<T>(
    groups: &ParameterGroups,
    leaves: Vec<Option<u64>>,
    device: &Device,
    backward: impl FnOnce() -> T,
) -> (T, ReadyMarks) {
    let mut missing = vec![0; groups.count];
    for group in &groups.of {
        missing[*group] += 1;
    }
    let marks = vec![None; groups.count];
    let groups = leaves.into_iter().zip(&groups.of).filter_map(|(leaf, group)| Some((leaf?, *group))).collect();
    let (found, replaced) = (HashSet::new(), Vec::new());
    WATCHER.set(Some(Watcher { groups, found, missing, marks, replaced, device: device.clone() }));
    let done = backward();
    let (groups, replaced) = WATCHER.take().map(|watcher| (watcher.marks, watcher.replaced)).unwrap_or_default();
    (done, ReadyMarks { groups, replaced, ..ReadyMarks::default() })
}

/// Reports that a gradient of a node of the tape was computed and accumulated.
pub fn gradient_found(node: u64) {
    WATCHER.with_borrow_mut(|watcher| {
        let Some(watcher) = watcher else { return };
        let Some(group) = watcher.groups.get(&node).copied() else { return };
        if watcher.found.insert(node) {
            watcher.missing[group] -= 1;
        }
        // A gradient that is reported again is complete only later.
        if watcher.missing[group] == 0 {
            let before = watcher.marks[group].replace(Mark::of(&watcher.device, false));
            watcher.replaced.extend(before);
        }
    });
}

/// Submits all queued work to a device.
pub fn begin(device: &Device) {
    if let Some(card) = cuda::card_of(device) {
        cuda::begin(card);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{numbered, recorded};
    use burn::tensor::Tensor;

    fn leaf(value: f32) -> Tensor<1> {
        Tensor::from_inner(Tensor::from_data([value], &Device::flex())).require_grad()
    }

    /// x·w, recorded on the tape.
    fn product(x: &Tensor<1>, w: &Tensor<1>) -> Tensor<1> {
        let (x_values, w_values) = (x.clone().inner(), w.clone().inner());
        let answer = x_values.clone() * w_values.clone();
        recorded([x.clone().into(), w.clone().into()], answer, move |gradient, [of_x, of_w]| {
            [of_x.then(|| (gradient.clone() * w_values).into()), of_w.then(|| (gradient * x_values).into())]
        })
    }

    #[test]
    fn groups_are_complete_if_our_operations_report_all_their_gradients() {
        let w: Vec<Tensor<1>> = [2.0, 3.0, 5.0, 7.0].map(leaf).into();
        // The second is used twice, and the third by one of Burn's operations.
        let y = product(&product(&w[0], &w[1]), &w[1]) + w[2].clone();
        let loss = product(&y, &w[3]);
        let marked = |marks: &ReadyMarks| marks.groups.iter().map(Option::is_some).collect::<Vec<_>>();
        let groups = ParameterGroups::new(vec![2, 2, 1, 0]);
        let (mut tape, marks) =
            watch_backward(&groups, w.iter().map(numbered).collect(), &Device::flex(), || loss.backward());
        assert_eq!(marked(&marks), [true, false, true]);
        let gradients: Vec<f32> = w
            .iter()
            .flat_map(|leaf| leaf.grad_remove(&mut tape).expect("used").try_into_vec_as::<f32>().expect("readable"))
            .collect();
        assert_eq!(gradients, [63.0, 84.0, 7.0, 23.0]);
        // The first is not reported.
        let leaves = [None, numbered(&w[1]), numbered(&w[2]), numbered(&w[3])];
        let loss = product(&(product(&w[0], &w[1]) + w[2].clone()), &w[3]);
        let (_, marks) = watch_backward(&groups, leaves.into(), &Device::flex(), || loss.backward());
        assert_eq!(marked(&marks), [true, false, false]);
        gradient_found(0);
    }
}
