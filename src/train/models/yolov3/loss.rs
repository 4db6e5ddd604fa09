//! The loss, and its gradient written by hand.
//!
//! All of it is computed on the device, off the tape, and nothing of it is read: the tape gets one operation.

use super::boxes::{off_tape, planes};
use super::places::Places;
use super::targets::{PLANES, Targets};
use crate::forward_context::ForwardContext;
use crate::number::real_len;
use crate::ops::{PlaceTargets, place_loss};
use burn::tensor::{Tensor, TensorData};

/// The loss of answers [rows, entries, places], shape [1], float32. The entries behind the fifth are classes.
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
pub fn loss(ctx: &ForwardContext<'_>, answers: Tensor<3>, targets: Targets, places: &Places) -> Tensor<1> {
    let given = off_tape(ctx, &answers);
    let [rows, ..] = given.dims();
    let on_device =
        |values: Vec<f32>, shape: [usize; 3]| Tensor::<3>::from_data(TensorData::new(values, shape), ctx.device());
    let targets = PlaceTargets {
        dense: on_device(targets.dense, [rows, PLANES, places.count()]),
        boxes: on_device(targets.boxes, [rows, targets.most, 4]),
        planes: planes(ctx, places),
    };
    let share = 1.0 / real_len(rows);
    let (value, gradient) = place_loss(&given, targets);
    ctx.recorded(
        || [answers.into()],
        value * share,
        move |upstream: Tensor<1>, _| [Some(gradient(upstream * share).into())],
    )
}
