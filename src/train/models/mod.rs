//! The models: their parameters, and their forward pass over a batch.
//!
//! A model knows layers and nothing of data files, optimisers, losses or events. Its parameters have the names of the
//! reference implementation.

mod bert;
mod deep_q;
pub mod detector;
mod gpt2;
#[cfg(test)]
mod language;
#[cfg(test)]
mod learning;
mod mask_rcnn;
#[cfg(test)]
mod parity;
mod recurrent;
mod resnet;
pub mod small;
pub mod units;
mod vgg;
mod yolov3;

pub use bert::Bert;
pub use deep_q::DeepQ;
pub use gpt2::Gpt2;
pub use mask_rcnn::MaskRcnn;
pub use recurrent::Recurrent;
pub use resnet::Resnet;
pub use vgg::Vgg;
pub use yolov3::YoloV3;

use crate::forward_context::ForwardContext;
use crate::native::step_graph::{Operand, Operands};
use crate::parameters::ParamSpec;
use burn::tensor::{Int, Tensor};
use units::Units;

/// The input of a model.
#[derive(Clone, Debug)]
pub enum Input {
    /// [rows, features], float32.
    Rows(Tensor<2>),
    /// [rows, channels, height, width], float32.
    Images(Tensor<4>),
    /// [rows, width], ids of tokens.
    Tokens(Tensor<2, Int>),
}

impl Input {
    /// The input of a training step, as constants on the tape.
    pub fn taped(self, ctx: &ForwardContext<'_>) -> Self {
        match self {
            Self::Rows(rows) => Self::Rows(ctx.constant(rows)),
            Self::Images(images) => Self::Images(ctx.constant(images)),
            Self::Tokens(tokens) => Self::Tokens(ctx.indices(tokens)),
        }
    }
}

impl Operands for Input {
    fn operands(&self) -> Option<Vec<Operand>> {
        match self {
            Self::Rows(rows) => rows.operands(),
            Self::Images(images) => images.operands(),
            Self::Tokens(tokens) => tokens.operands(),
        }
    }
}

/// A model.
pub trait Model: Send + Sync {
    /// The parameters, in their fixed order.
    fn param_specs(&self) -> Vec<ParamSpec>;

    /// The running statistics, in their fixed order.
    fn statistics(&self) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// The logits [positions, columns], in float32 or the number format of the context.
    ///
    /// A position is a row, or a token of a row, in order; or only the positions that the context selects. Columns from
    /// [`classes`](Self::classes) on are padding.
    fn forward(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2>;

    /// Whether each position is a token (a language model) and not a whole row.
    fn answers_tokens(&self) -> bool {
        false
    }

    /// Whether the model can [compute logits for some positions only](ForwardContext::select_positions).
    fn selects_positions(&self) -> bool {
        false
    }

    /// The number of classes (for a language model: the vocabulary size).
    fn classes(&self) -> usize;

    /// The model as a sequence of units for pipeline parallelism, if it supports that.
    fn units(&self) -> Option<&dyn Units> {
        None
    }

    /// Floating-point operations of the forward pass over one row.
    ///
    /// Counts two for each multiply-add of matrix products and convolutions and leaves out the rest, as the papers do.
    /// `width` is the number of tokens of a row; other models ignore it.
    fn forward_flops(&self, width: usize) -> u64;

    /// [`forward_flops`](Self::forward_flops) of a forward pass that computes logits for only `positions` positions of the row.
    fn flops_at_positions(&self, width: usize, _positions: usize) -> u64 {
        self.forward_flops(width)
    }
}
