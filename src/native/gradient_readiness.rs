//! Gradient readiness: which gradients are complete before the backward pass is over, so that communication can overlap with it.
//!
//! Operations of ours (`tape`) tell of each gradient of a parameter that they have found. Parameters are watched in groups; a group is whole when the last of its gradients has been
//! found, and a mark is put behind the work that computes it. A parameter whose gradient comes from an operation of Burn's own is never told of, so that its group has no mark:
//! whoever wants it waits for the whole pass. So does who wants one that Burn's operations may have used beside ours.

use crate::cuda;
pub use crate::cuda::event::Mark;
use burn::tensor::Device;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Groups of parameters whose gradients are used together, as a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterGroups {
    /// Of each parameter, the number of its group.
    of: Vec<usize>,
    count: usize,
}

/// Marks behind which gradients are complete; empty if the pass was not watched.
#[derive(Clone, Debug, Default)]
pub struct ReadyMarks {
    /// The mark of each group that was complete before the end of the pass.
    pub groups: Vec<Option<Mark>>,
    /// Marks that later ones took the place of. If the pass was captured, its graph still has them.
    pub replaced: Vec<Mark>,
    /// A timed mark behind the whole pass, if waits are measured from there on.
    pub end: Option<Mark>,
    /// Before and behind each pass of a micro-batch through a stage, one behind the other, with their times; none where the step waits between its phases.
    pub passes: Vec<Mark>,
}

/// When a stage worked in a step.
#[derive(Debug)]
pub struct StagePasses {
    /// Before and behind each pass.
    pub borders: Vec<Mark>,
    /// Before and behind the update of the parameters.
    pub update: [Mark; 2],
}

impl StagePasses {
    /// The share of a step, of so many seconds and the update of the parameters left out, in which the stage was in no pass; none where its device has no clock.
    pub fn idle(&self, step_s: f64) -> Option<f64> {
        let [before, behind] = &self.update;
        let span_s = step_s - behind.since(before)?;
        let busy_s: Option<f64> = self.borders.chunks_exact(2).map(|pass| pass[1].since(&pass[0])).sum();
        Some(1.0 - busy_s? / span_s).filter(|_| span_s > 0.0)
    }
}

impl ParameterGroups {
    /// Of parameters whose groups have these numbers.
    pub fn new(of: Vec<usize>) -> Self {
        let count = of.iter().max().map_or(0, |last| last + 1);
        Self { of, count }
    }
}

struct Watcher {
    /// By the tape's number of a parameter: its group.
    groups: HashMap<u64, usize>,
    found: HashSet<u64>,
    /// Of each group, how many gradients are missing.
    missing: Vec<usize>,
    marks: Vec<Option<Mark>>,
    replaced: Vec<Mark>,
    device: Device,
}

thread_local! {
    /// A backward pass is gone through on the thread that asks for it.
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Runs a backward pass and returns where each group was complete. `leaves` are the tape's numbers of the parameters in their order; `None`
/// for those whose gradients are not
/// reported.
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
        // What is found once more is whole later.
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

    /// x·w, recorded.
    fn product(x: &Tensor<1>, w: &Tensor<1>) -> Tensor<1> {
        let (x_values, w_values) = (x.clone().inner(), w.clone().inner());
        let answer = x_values.clone() * w_values.clone();
        recorded([x.clone().into(), w.clone().into()], answer, move |gradient, [of_x, of_w]| {
            [of_x.then(|| (gradient.clone() * w_values).into()), of_w.then(|| (gradient * x_values).into())]
        })
    }

    #[test]
    fn groups_are_whole_where_all_their_gradients_come_from_operations_of_ours() {
        let w: Vec<Tensor<1>> = [2.0, 3.0, 5.0, 7.0].map(leaf).into();
        // The second is used twice, and the third by an operation of Burn's own.
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
        // The first is one that nobody can tell of.
        let leaves = [None, numbered(&w[1]), numbered(&w[2]), numbered(&w[3])];
        let loss = product(&(product(&w[0], &w[1]) + w[2].clone()), &w[3]);
        let (_, marks) = watch_backward(&groups, leaves.into(), &Device::flex(), || loss.backward());
        assert_eq!(marked(&marks), [true, false, false]);
        gradient_found(0);
    }
}
