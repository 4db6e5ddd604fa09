//! What the answers mean: boxes, made on the device.

use super::OBJECTNESS;
use super::places::{PLANES, Places};
use crate::forward_context::ForwardContext;
use crate::precision::exact;
use crate::tape::clean;
use burn::tensor::activation::sigmoid;
use burn::tensor::{Tensor, TensorData};

/// Beyond, the exponential of a side is no box of any picture, but its square may be no number.
const LARGEST: f32 = 20.0;
/// How many boxes of the truth are compared at once.
const TOGETHER: usize = 8;

/// The three answers of the network [rows, boxes·entries, side, side] as one of [rows, entries, places], float32: x, y, width, height, objectness and classes of every place, before
/// any function.
pub fn joined(answers: Vec<Tensor<4>>) -> Tensor<3> {
    let level = |answer: Tensor<4>| {
        let [rows, channels, height, width] = answer.dims();
        let [entries, cells] = [channels / super::BOXES, height * width];
        let apart = exact(answer).reshape([rows, super::BOXES, entries, cells]).swap_dims(1, 2);
        apart.reshape([rows, entries, super::BOXES * cells])
    };
    Tensor::cat(answers.into_iter().map(level).collect(), 2)
}

/// The same off the tape, without a trace of it.
pub fn off_tape(ctx: &ForwardContext<'_>, answers: &Tensor<3>) -> Tensor<3> {
    clean(ctx.off_tape(answers.clone()))
}

/// Left, top, right and bottom of each place's box in pixels, each [rows, 1, places], of answers that are off the tape: the centre is the sigmoid of x and y from the corner of the cell, width and
/// height are those of the anchor times the exponential (section 2.1, figure 2).
pub fn decoded(ctx: &ForwardContext<'_>, answers: &Tensor<3>, places: &Places) -> [Tensor<3>; 4] {
    let planes = TensorData::new(places.planes(), [1, PLANES, places.count()]);
    let planes = Tensor::<3>::from_data(planes, ctx.device());
    let plane = |n: usize| planes.clone().narrow(1, n, 1);
    let answer = |n: usize| answers.clone().narrow(1, n, 1);
    let [x, y] = [0, 1].map(|n| (sigmoid(answer(n)) + plane(n)) * plane(2));
    let [half_width, half_height] = [2, 3].map(|n| answer(n).clamp_max(LARGEST).exp() * plane(n + 1) * 0.5);
    [x.clone() - half_width.clone(), y.clone() - half_height.clone(), x + half_width, y + half_height]
}

/// 1 for each box whose intersection over union with any of these others [rows, most, 4] is above the threshold and 0 for the rest, [rows, 1, places].
pub fn overlapping(boxes: [Tensor<3>; 4], others: &Tensor<3>, threshold: f64) -> Tensor<3> {
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
        // Above 0 where common / (area + other area − common) is above the threshold; nothing is divided by 0.
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

/// The larger of two values each, of tensors that may have 1 where the other has more.
fn larger(a: Tensor<3>, b: Tensor<3>) -> Tensor<3> {
    a.clone() + (b - a).clamp_min(0.0)
}

/// The smaller; see [`larger`].
fn smaller(a: Tensor<3>, b: Tensor<3>) -> Tensor<3> {
    a.clone() - (a - b).clamp_min(0.0)
}

/// The logit of each place's objectness, [rows, 1, places].
pub fn objectness(answers: &Tensor<3>) -> Tensor<3> {
    answers.clone().narrow(1, OBJECTNESS, 1)
}

/// The logits of the classes, [rows, classes, places].
pub fn class_logits(answers: &Tensor<3>, classes: usize) -> Tensor<3> {
    answers.clone().narrow(1, OBJECTNESS + 1, classes)
}
