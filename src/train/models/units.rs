//! Models as a sequence of units, from which the stages of a pipeline are built.
//!
//! Knows the activations between units, and nothing of devices, ranks or micro-batches.

use super::Input;
use crate::forward_context::ForwardContext;
use crate::layers::Stream;
use burn::tensor::Tensor;

/// A unit of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Prefixes of the names of its parameters and running statistics. A parameter that two units use belongs to both.
    pub names: Vec<String>,
    /// Floating-point operations of its forward pass over one row, as [`Model::forward_flops`](super::Model::forward_flops) counts them.
    pub flops: u64,
}

impl Unit {
    /// A unit with these name prefixes.
    pub fn new<const N: usize>(names: [String; N], flops: u64) -> Self {
        Self { names: names.into(), flops }
    }

    /// Whether the unit uses the parameter or running statistic of this name.
    pub fn has(&self, name: &str) -> bool {
        let below = |prefix: &String| name.strip_prefix(prefix.as_str());
        self.names.iter().any(|prefix| below(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }
}

/// The activation between two units of a model.
#[expect(clippy::large_enum_variant, reason = "moved a few times a step; boxes would be an allocation for each")]
pub enum Activation {
    /// The model's input.
    Input(Input),
    /// [rows, channels, height, width].
    Images(Tensor<4>),
    /// [rows, features]; after the last unit, the logits.
    Rows(Tensor<2>),
    /// The residual stream between the layers of a transformer, with the shape [rows, tokens per row] of its positions.
    Stream(Stream, [usize; 2]),
}

impl Activation {
    /// Returns the images; panics if it is anything else.
    pub fn images(self) -> Tensor<4> {
        match self {
            Self::Input(Input::Images(images)) | Self::Images(images) => images,
            _ => panic!("this part of the model takes images"),
        }
    }

    /// Returns the rows; panics if it is anything else.
    pub fn rows(self) -> Tensor<2> {
        match self {
            Self::Rows(rows) => rows,
            _ => panic!("this part of the model takes rows"),
        }
    }

    /// Returns the stream; panics if it is anything else.
    pub fn stream(self) -> (Stream, [usize; 2]) {
        match self {
            Self::Stream(stream, shape) => (stream, shape),
            _ => panic!("this part of the model takes a stream"),
        }
    }
}

/// A model that consists of units.
pub trait Units: Send + Sync {
    /// The units in their order, for rows of `width` tokens. Each parameter belongs to at least one.
    fn units(&self, width: usize) -> Vec<Unit>;

    /// Applies the unit of this number. The first unit takes the input, and the last one returns the logits.
    fn unit(&self, ctx: &mut ForwardContext<'_>, number: usize, activation: Activation) -> Activation;
}

/// Applies all units in order and returns the logits.
pub fn through(model: &dyn Units, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2> {
    // The number of units does not depend on the width.
    let count = model.units(1).len();
    (0..count).fold(Activation::Input(input), |activation, number| model.unit(ctx, number, activation)).rows()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Bert, Gpt2, Model, Resnet, Vgg};

    #[test]
    fn every_parameter_has_a_unit_and_all_operations_are_counted() {
        let models: [(&str, Box<dyn Model>, usize); 6] = [
            ("resnet50", Box::new(Resnet::fifty(1000)), 18),
            ("vgg16", Box::new(Vgg::sixteen(1000)), 16),
            ("bert", Box::new(Bert::base(30_522, 512)), 14),
            ("gpt2", Box::new(Gpt2::small(50_257, 1024)), 14),
            ("a tiny vgg16", Box::new(Vgg::tiny(10)), 9),
            ("a tiny resnet50", Box::new(Resnet::tiny(10)), 7),
        ];
        for (name, model, count) in models {
            let units = model.units().expect("made of units").units(128);
            assert_eq!(units.len(), count, "{name}");
            assert_eq!(units.iter().map(|unit| unit.flops).sum::<u64>(), model.forward_flops(128), "{name}");
            for param_spec in model.param_specs().into_iter().chain(model.statistics()) {
                let owners = units.iter().filter(|unit| unit.has(&param_spec.name)).count();
                let tied = ["bert.embeddings.word_embeddings.weight", "transformer.wte.weight"];
                let expected = if tied.contains(&param_spec.name.as_str()) { 2 } else { 1 };
                assert_eq!(owners, expected, "{name}: {}", param_spec.name);
            }
        }
    }

    #[test]
    fn prefixes_match_whole_name_components() {
        let unit = Unit::new(["h.1".to_owned(), "head".to_owned()], 0);
        assert!(unit.has("h.1.weight") && unit.has("head"));
        assert!(!unit.has("h.10.weight") && !unit.has("header.bias") && !unit.has("x.h.1"));
    }
}
