//! The network's outputs as predictions for all places, and the cells and anchors of the places.

use super::places::{PLANES, Places};
use crate::forward_context::ForwardContext;
use crate::precision::exact;
use crate::tape::clean;
use burn::tensor::{Tensor, TensorData};

/// Joins the network's three outputs [rows, boxes·entries, side, side] to one tensor [rows, entries, places], float32.
/// Entries are x, y, width, height, objectness and classes, before any activation function.
pub fn joined(answers: Vec<Tensor<4>>) -> Tensor<3> {
    let level = |answer: Tensor<4>| {
        let [rows, channels, height, width] = answer.dims();
        let [entries, cells] = [channels / super::BOXES, height * width];
        let apart = exact(answer).reshape([rows, super::BOXES, entries, cells]).swap_dims(1, 2);
        apart.reshape([rows, entries, super::BOXES * cells])
    };
    Tensor::cat(answers.into_iter().map(level).collect(), 2)
}

/// The predictions off the tape, [clean](crate::tape::clean).
pub fn off_tape<const D: usize>(ctx: &ForwardContext<'_>, answers: &Tensor<D>) -> Tensor<D> {
    clean(ctx.off_tape(answers.clone()))
}

/// The cell and anchor of each place ([`PlaceTargets::planes`](crate::ops::PlaceTargets::planes)).
pub fn planes(ctx: &ForwardContext<'_>, places: &Places) -> Tensor<3> {
    ctx.constant_of(&format!("places of {} pixels", places.side()), || {
        Tensor::from_data(TensorData::new(places.planes(), [1, PLANES, places.count()]), ctx.device())
    })
}
