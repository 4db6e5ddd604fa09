//! The loss, and its gradient written by hand.
//!
//! All of it is computed on the device, off the tape, and nothing of it is read: the tape gets one operation.

use super::boxes::{class_logits, decoded, objectness, off_tape, overlapping};
use super::places::Places;
use super::targets::{PLANES, Targets};
use crate::forward_context::ForwardContext;
use crate::number::{real_len, single};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Tensor, TensorData};

/// A place without an object does not count if its box overlaps with one by more (section 2.1).
const IGNORED: f64 = 0.5;

/// The loss of answers [rows, entries, places], shape [1], float32. `classes` of the entries are classes.
///
/// The sum over all places of
/// - the cross-entropies of the sigmoids of x and y with where the object's centre lies in the cell, and half the squared errors of the logarithms of width and height, both times 2 − w·h,
///   where w and h are the shares of the object's box in the picture's width and height;
/// - the cross-entropy of the sigmoid of objectness with whether there is an object; a place without one does not count where its box overlaps with that of any object by more than a half;
/// - where there is an object, the cross-entropies of the sigmoids of all classes with whether it is one of them;
///
/// divided by the number of rows.
///
/// The paper says "sum of squared error" for the boxes and gives the gradient: target minus prediction. For x and y cross-entropy has that gradient, and it is Darknet's, which never multiplies by the slope
/// of the sigmoid; for width and height half the squared error has it.
pub fn loss(
    ctx: &ForwardContext<'_>,
    answers: Tensor<3>,
    targets: Targets,
    places: &Places,
    classes: usize,
) -> Tensor<1> {
    let given = off_tape(ctx, &answers);
    let [rows, ..] = given.dims();
    let on_device =
        |values: Vec<f32>, shape: [usize; 3]| Tensor::<3>::from_data(TensorData::new(values, shape), ctx.device());
    let boxes = on_device(targets.boxes, [rows, targets.most, 4]);
    let target = Target::new(
        on_device(targets.dense, [rows, PLANES, places.count()]),
        on_device((0..classes).map(|class| single(real_len(class))).collect(), [1, classes, 1]),
        overlapping(decoded(ctx, &given, places), &boxes, IGNORED),
    );
    let share = 1.0 / real_len(rows);
    let value = target.loss(&given) * share;
    ctx.recorded(
        || [answers.into()],
        value,
        move |upstream: Tensor<1>, _| {
            let factor = (upstream * share).reshape([1, 1, 1]);
            [Some((target.gradient(&given) * factor).into())]
        },
    )
}

/// What the answers are compared with, and how much each counts, [rows, n, places].
struct Target {
    centre: Tensor<3>,
    extent: Tensor<3>,
    /// Of centre and extent.
    weight: Tensor<3>,
    object: Tensor<3>,
    /// Of objectness.
    counted: Tensor<3>,
    classes: Tensor<3>,
}

impl Target {
    /// From the planes of [`Targets::dense`], the numbers of the classes [1, classes, 1], and where a box overlaps with an object.
    fn new(dense: Tensor<3>, numbers: Tensor<3>, overlapping: Tensor<3>) -> Self {
        let planes = |start, count| dense.clone().narrow(1, start, count);
        let object = planes(5, 1);
        // 1 where the numbers are equal, for they are whole, and 0 elsewhere.
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
        let classes = self.classes.dims()[1];
        let planes = |start| answers.clone().narrow(1, start, 2);
        [planes(0), planes(2), objectness(answers), class_logits(answers, classes)]
    }

    fn loss(&self, answers: &Tensor<3>) -> Tensor<1> {
        let [centre, extent, object, classes] = self.parts(answers);
        let error = extent - self.extent.clone();
        let coordinates = cross_entropy(centre, self.centre.clone()) + error.clone() * error * 0.5;
        // x with width and y with height: both have the same weight.
        summed(coordinates * self.weight.clone())
            + summed(cross_entropy(object, self.object.clone()) * self.counted.clone())
            + summed(cross_entropy(classes, self.classes.clone()) * self.object.clone())
    }

    /// Of the loss with respect to the answers.
    fn gradient(&self, answers: &Tensor<3>) -> Tensor<3> {
        let [centre, extent, object, classes] = self.parts(answers);
        let centre = (sigmoid(centre) - self.centre.clone()) * self.weight.clone();
        let extent = (extent - self.extent.clone()) * self.weight.clone();
        let object = (sigmoid(object) - self.object.clone()) * self.counted.clone();
        let classes = (sigmoid(classes) - self.classes.clone()) * self.object.clone();
        Tensor::cat(vec![centre, extent, object, classes], 1)
    }
}

/// −t·ln σ(x) − (1 − t)·ln(1 − σ(x)) of each x with its target t, without a number that overflows.
fn cross_entropy(x: Tensor<3>, target: Tensor<3>) -> Tensor<3> {
    let beyond = (x.clone().abs() * -1.0).exp().log1p();
    x.clone().clamp_min(0.0) - x * target + beyond
}

/// The sum of everything, one dimension at a time, shape [1].
fn summed(values: Tensor<3>) -> Tensor<1> {
    let [rows, entries, _] = values.dims();
    values.sum_dim(2).reshape([1, rows * entries]).sum_dim(1).reshape([1])
}
