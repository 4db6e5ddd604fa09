//! The loss of a one-stage detector at each place of its grids (Redmon and Farhadi 2018, "YOLOv3", section 2), and its gradient.
//!
//! The entries of a place are x, y, width, height, objectness and classes, before any activation function.

use super::computed;
use crate::native::kernels;
use crate::number::{real_len, single};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Tensor, TensorData};

/// Entries before the classes; the last of them is objectness.
const ENTRIES: usize = 5;
/// A place without an object is ignored if its box has an IoU above this with any object (section 2.1).
const IGNORED: f64 = 0.5;
/// Maximum of a side's logarithm. Larger boxes fit no image, and their area may overflow.
const LARGEST: f64 = 20.0;
/// Number of ground-truth boxes that are compared at once.
const TOGETHER: usize = 8;

/// The targets of a batch, off any tape, float32.
pub struct PlaceTargets {
    /// [rows, 7, places]: for the object at a place x and y in its cell, the logarithms of width and height relative to the anchor,
    /// the weight of these four, 1, and the class. Without an object the class is −1 and the rest 0.
    pub dense: Tensor<3>,
    /// Every object's box, [rows, most, 4]: left, top, right, bottom in pixels. Boxes without area (padding) overlap with nothing.
    pub boxes: Tensor<3>,
    /// [1, 5, places]: column and row of a place's cell; the cell's side in pixels; width and height of the anchor in pixels.
    pub planes: Tensor<3>,
}

/// The summed loss of all places, shape [1], for predictions [rows, 5 + classes, places] in float32. Also returns a function that
/// computes the gradient of the predictions, times a factor of shape [1].
pub fn place_loss(
    answers: &Tensor<3>,
    targets: PlaceTargets,
) -> (Tensor<1>, Box<dyn FnOnce(Tensor<1>) -> Tensor<3> + Send>) {
    let PlaceTargets { dense, boxes, planes } = &targets;
    let by_kernel = kernels::PlaceTargets { dense, boxes, planes, ignored: IGNORED, largest: LARGEST };
    if let Some([losses, counted]) = kernels::place_losses(answers, &by_kernel) {
        let (answers, dense) = (answers.clone(), targets.dense);
        let back = move |factor| computed(kernels::place_losses_back(&answers, &dense, &counted, &factor));
        return (summed(losses.unsqueeze_dim(1)), Box::new(back));
    }
    let target = Target::new(targets, answers);
    let (loss, answers) = (target.loss(answers), answers.clone());
    (loss, Box::new(move |factor| target.gradient(&answers) * factor.reshape([1, 1, 1])))
}

/// Left, top, right and bottom of each place's box in pixels, each [rows, 1, places]. The centre is the sigmoid of x and y, relative to
/// the corner of the cell. Width and height are those of the anchor times the exponential of the prediction (section 2.1, figure 2).
pub fn decoded(answers: &Tensor<3>, planes: &Tensor<3>) -> [Tensor<3>; 4] {
    let plane = |n: usize| planes.clone().narrow(1, n, 1);
    let answer = |n: usize| answers.clone().narrow(1, n, 1);
    let [x, y] = [0, 1].map(|n| (sigmoid(answer(n)) + plane(n)) * plane(2));
    let [half_width, half_height] = [2, 3].map(|n| answer(n).clamp_max(LARGEST).exp() * plane(n + 1) * 0.5);
    [x.clone() - half_width.clone(), y.clone() - half_height.clone(), x + half_width, y + half_height]
}

/// Boxes and scores of a detector's outputs, one [rows, boxes · (5 + classes), side, side] for each level, by one
/// kernel: the lines of all places [rows, places, 4 + classes] with left, top, right, bottom and the scores of the
/// classes; and the best score of each place [rows, places]. `None` if the kernel cannot be run.
pub fn place_scores(levels: &[Tensor<4>], boxes: usize, planes: &Tensor<3>) -> Option<(Tensor<3>, Tensor<2>)> {
    kernels::place_scores(levels, boxes, planes, LARGEST)
}

/// The logit of each place's objectness, [rows, 1, places].
pub fn objectness(answers: &Tensor<3>) -> Tensor<3> {
    answers.clone().narrow(1, ENTRIES - 1, 1)
}

/// The logits of the classes, [rows, classes, places].
pub fn class_logits(answers: &Tensor<3>) -> Tensor<3> {
    answers.clone().narrow(1, ENTRIES, answers.dims()[1] - ENTRIES)
}

/// 1 for each box whose IoU with any of the others [rows, most, 4] is above the threshold, otherwise 0: [rows, 1, places].
fn overlapping(boxes: [Tensor<3>; 4], others: &Tensor<3>, threshold: f64) -> Tensor<3> {
    let most = others.dims()[1];
    let [left, top, right, bottom] = boxes;
    let area = (right.clone() - left.clone()) * (bottom.clone() - top.clone());
    let mut largest: Option<Tensor<3>> = None;
    for start in (0..most).step_by(TOGETHER) {
        let few = others.clone().narrow(1, start, TOGETHER.min(most - start));
        // [rows, few, 1] against [rows, 1, places].
        let [from_x, from_y, to_x, to_y] = [0, 1, 2, 3].map(|corner| few.clone().narrow(2, corner, 1));
        let other_area = (to_x.clone() - from_x.clone()) * (to_y.clone() - from_y.clone());
        let width = smaller(right.clone(), to_x) - larger(left.clone(), from_x);
        let height = smaller(bottom.clone(), to_y) - larger(top.clone(), from_y);
        let common = width.clamp_min(0.0) * height.clamp_min(0.0);
        // Positive if common / (area + other area − common) is above the threshold, without a division by 0.
        let excess = common * (1.0 + threshold) - (area.clone() + other_area) * threshold;
        let best = excess.max_dim(1);
        largest = Some(match largest {
            Some(largest) => larger(largest, best),
            None => best,
        });
    }
    match largest {
        Some(largest) => largest.zeros_like().mask_fill(largest.greater_elem(0.0), 1.0),
        None => area.zeros_like(),
    }
}

/// The element-wise maximum, with broadcasting.
fn larger(a: Tensor<3>, b: Tensor<3>) -> Tensor<3> {
    a.clone() + (b - a).clamp_min(0.0)
}

/// The element-wise minimum, with broadcasting.
fn smaller(a: Tensor<3>, b: Tensor<3>) -> Tensor<3> {
    a.clone() - (a - b).clamp_min(0.0)
}

/// Targets and weights as planes [rows, n, places].
struct Target {
    centre: Tensor<3>,
    extent: Tensor<3>,
    /// The weight of centre and extent.
    weight: Tensor<3>,
    object: Tensor<3>,
    /// The weight of objectness.
    counted: Tensor<3>,
    classes: Tensor<3>,
}

impl Target {
    fn new(PlaceTargets { dense, boxes, planes }: PlaceTargets, answers: &Tensor<3>) -> Self {
        let overlapping = overlapping(decoded(answers, &planes), &boxes, IGNORED);
        let numbers: Vec<f32> = (0..answers.dims()[1] - ENTRIES).map(|class| single(real_len(class))).collect();
        let shape = [1, numbers.len(), 1];
        let numbers = Tensor::<3>::from_data(TensorData::new(numbers, shape), &answers.device());
        let planes = |start, count| dense.clone().narrow(1, start, count);
        let object = planes(5, 1);
        // One-hot: the numbers are integers, so this is 1 if they are equal and 0 otherwise.
        let classes = ((planes(6, 1) - numbers).abs() * -1.0 + 1.0).clamp_min(0.0);
        Self {
            centre: planes(0, 2),
            extent: planes(2, 2),
            weight: planes(4, 1),
            counted: overlapping * (object.clone() - 1.0) + 1.0,
            object,
            classes,
        }
    }

    fn parts(&self, answers: &Tensor<3>) -> [Tensor<3>; 4] {
        let planes = |start| answers.clone().narrow(1, start, 2);
        [planes(0), planes(2), objectness(answers), class_logits(answers)]
    }

    fn loss(&self, answers: &Tensor<3>) -> Tensor<1> {
        let [centre, extent, object, classes] = self.parts(answers);
        let error = extent - self.extent.clone();
        let coordinates = cross_entropy(centre, self.centre.clone()) + error.clone() * error * 0.5;
        // Adds x to width and y to height, as all four have the same weight.
        summed(coordinates * self.weight.clone())
            + summed(cross_entropy(object, self.object.clone()) * self.counted.clone())
            + summed(cross_entropy(classes, self.classes.clone()) * self.object.clone())
    }

    /// The gradient of the loss by the predictions.
    fn gradient(&self, answers: &Tensor<3>) -> Tensor<3> {
        let [centre, extent, object, classes] = self.parts(answers);
        let centre = (sigmoid(centre) - self.centre.clone()) * self.weight.clone();
        let extent = (extent - self.extent.clone()) * self.weight.clone();
        let object = (sigmoid(object) - self.object.clone()) * self.counted.clone();
        let classes = (sigmoid(classes) - self.classes.clone()) * self.object.clone();
        Tensor::cat(vec![centre, extent, object, classes], 1)
    }
}

/// −t·ln σ(x) − (1 − t)·ln(1 − σ(x)) of each x with its target t, without overflow.
fn cross_entropy(x: Tensor<3>, target: Tensor<3>) -> Tensor<3> {
    let beyond = (x.clone().abs() * -1.0).exp().log1p();
    x.clone().clamp_min(0.0) - x * target + beyond
}

/// The sum of all values, one dimension at a time, shape [1].
fn summed(values: Tensor<3>) -> Tensor<1> {
    let [rows, entries, _] = values.dims();
    values.sum_dim(2).reshape([1, rows * entries]).sum_dim(1).reshape([1])
}
