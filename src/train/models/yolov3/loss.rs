//! The loss, with a hand-written gradient.
//!
//! Everything is computed on the device, off the tape, without reading values back. The tape records one operation.

use super::boxes::{off_tape, planes};
use super::places::Places;
use super::targets::{PLANES, Targets};
use crate::forward_context::ForwardContext;
use crate::number::real_len;
use crate::ops::{PlaceTargets, place_loss};
use burn::tensor::{Tensor, TensorData};

/// The loss of predictions [rows, entries, places], shape [1], float32. The entries after the fifth are classes.
///
/// It is the sum over all places, divided by the number of rows, of
/// - the cross-entropies of the sigmoids of x and y with the object's centre in the cell, and half the squared errors
///   of the logarithms of width and height, both times 2 − w·h, where w and h are the object's width and height as
///   fractions of the image's;
/// - the cross-entropy of the sigmoid of objectness with whether there is an object; places without an object are
///   ignored if their box has an IoU above one half with any object;
/// - where there is an object, the cross-entropies of the sigmoids of all classes with whether the object has that class.
///
/// The paper says "sum of squared error" for the boxes and gives the gradient: target minus prediction. Cross-entropy
/// has that gradient for x and y, as in Darknet, which never multiplies by the derivative of the sigmoid. Half the
/// squared error has it for width and height.
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
