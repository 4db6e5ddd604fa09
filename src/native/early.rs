//! Gradients that are whole before the backward pass is over, so that what is done with them need not wait for its end.
//!
//! Operations of ours (`tape`) tell of each gradient of a parameter that they have found. Parameters are watched in groups; a group is whole when the last of its gradients has been
//! found, and a mark is put behind the work that computes it. A parameter whose gradient comes from an operation of Burn's own is never told of, so that its group has no mark:
//! whoever wants it waits for the whole pass. So does who wants one that Burn's operations may have used beside ours.

#[cfg(feature = "cuda")]
pub use super::cuda::event::Mark;
use burn::tensor::Device;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// On other devices a pass has been computed when it returns.
#[cfg(not(feature = "cuda"))]
#[derive(Clone, Debug)]
pub struct Mark;

/// Parameters whose gradients are wanted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Of each parameter, the number of its group.
    of: Vec<usize>,
    count: usize,
}

/// Where gradients were whole; nothing where nobody watched.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// Of each group that was whole before the end of the pass.
    pub groups: Vec<Option<Mark>>,
    /// Behind the whole pass, with its time, where somebody wants to know how long the device waits from there on.
    pub end: Option<Mark>,
    /// Before and behind each pass of a micro-batch through a stage, one behind the other, with their times; none where the step waits between its phases.
    pub passes: Vec<Mark>,
}

/// When a stage worked in a step.
#[derive(Debug)]
pub struct Passes {
    /// Before and behind each pass.
    pub borders: Vec<Mark>,
    /// Before and behind the update of the parameters.
    pub update: [Mark; 2],
}

impl Passes {
    /// The share of a step, of so many seconds and the update of the parameters left out, in which the stage was in no pass; none where its device has no clock.
    pub fn idle(&self, step_s: f64) -> Option<f64> {
        let [before, behind] = &self.update;
        let span_s = step_s - between(before, behind)?;
        let busy_s: Option<f64> = self.borders.chunks_exact(2).map(|pass| between(&pass[0], &pass[1])).sum();
        Some(1.0 - busy_s? / span_s).filter(|_| span_s > 0.0)
    }
}

/// The seconds from a mark with its time to a later one.
#[cfg(feature = "cuda")]
fn between(before: &Mark, behind: &Mark) -> Option<f64> {
    behind.since(before)
}

#[cfg(not(feature = "cuda"))]
fn between(_: &Mark, _: &Mark) -> Option<f64> {
    None
}

impl Groups {
    /// Of parameters whose groups have these numbers.
    pub fn new(of: Vec<usize>) -> Self {
        let count = of.iter().max().map_or(0, |last| last + 1);
        Self { of, count }
    }
}

struct Watch {
    /// By the tape's number of a parameter: its group.
    groups: HashMap<u64, usize>,
    found: HashSet<u64>,
    /// Of each group, how many gradients are missing.
    missing: Vec<usize>,
    marks: Vec<Option<Mark>>,
    device: Device,
}

thread_local! {
    /// A backward pass is gone through on the thread that asks for it.
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// Goes through a backward pass, and says where which groups were whole. `leaves` are the tape's numbers of the parameters in their order; none for those whose gradients nobody can
/// tell of.
pub fn watched<T>(
    groups: &Groups,
    leaves: Vec<Option<u64>>,
    device: &Device,
    backward: impl FnOnce() -> T,
) -> (T, Marks) {
    let mut missing = vec![0; groups.count];
    for group in &groups.of {
        missing[*group] += 1;
    }
    let marks = vec![None; groups.count];
    let groups = leaves.into_iter().zip(&groups.of).filter_map(|(leaf, group)| Some((leaf?, *group))).collect();
    WATCH.set(Some(Watch { groups, found: HashSet::new(), missing, marks, device: device.clone() }));
    let done = backward();
    let groups = WATCH.take().map(|watch| watch.marks).unwrap_or_default();
    (done, Marks { groups, end: None, passes: Vec::new() })
}

/// A gradient of a node of the tape has been found and added to those that were found before.
pub fn found(node: u64) {
    WATCH.with_borrow_mut(|watch| {
        let Some(watch) = watch else { return };
        let Some(group) = watch.groups.get(&node).copied() else { return };
        if watch.found.insert(node) {
            watch.missing[group] -= 1;
        }
        // What is found once more is whole later.
        if watch.missing[group] == 0 {
            watch.marks[group] = Some(mark(&watch.device, false));
        }
    });
}

/// A mark behind all that was asked of a device, with its time.
pub fn end(device: &Device) -> Mark {
    mark(device, true)
}

/// Has a device begin with all that was asked of it.
pub fn begin(device: &Device) {
    #[cfg(feature = "cuda")]
    if let Some(card) = super::cuda::card_of(device) {
        super::cuda::begin(card);
    }
    let _ = device;
}

#[cfg(feature = "cuda")]
fn mark(device: &Device, timed: bool) -> Mark {
    Mark::of(device, timed)
}

#[cfg(not(feature = "cuda"))]
fn mark(_: &Device, _: bool) -> Mark {
    Mark
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
        let marked = |marks: &Marks| marks.groups.iter().map(Option::is_some).collect::<Vec<_>>();
        let groups = Groups::new(vec![2, 2, 1, 0]);
        let (mut tape, marks) = watched(&groups, w.iter().map(numbered).collect(), &Device::flex(), || loss.backward());
        assert_eq!(marked(&marks), [true, false, true]);
        let gradients: Vec<f32> = w
            .iter()
            .flat_map(|leaf| leaf.grad_remove(&mut tape).expect("used").try_into_vec_as::<f32>().expect("readable"))
            .collect();
        assert_eq!(gradients, [63.0, 84.0, 7.0, 23.0]);
        // The first is one that nobody can tell of.
        let leaves = [None, numbered(&w[1]), numbered(&w[2]), numbered(&w[3])];
        let loss = product(&(product(&w[0], &w[1]) + w[2].clone()), &w[3]);
        let (_, marks) = watched(&groups, leaves.into(), &Device::flex(), || loss.backward());
        assert_eq!(marked(&marks), [true, false, false]);
        found(0);
    }
}
