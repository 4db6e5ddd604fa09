//! Recurrent language models: an embedding, a stack of recurrent layers, and a linear layer to the vocabulary.
//!
//! Parameters have the names and default initialisation of PyTorch's `nn.Embedding`, `nn.LSTM` or `nn.GRU`, and
//! `nn.Linear`. Every row starts from a zero state.

use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{Cell, embed, linear, recurrent_flops, recurrent_specs, recurrent_stack};
use crate::number::wide;
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// A recurrent language model.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// The type of the recurrent layers.
    pub cell: Cell,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Features of a token's embedding.
    pub embedded: usize,
    /// Features of the hidden state.
    pub hidden: usize,
    /// Number of recurrent layers.
    pub layers: usize,
}

impl Recurrent {
    /// Two LSTM layers: 11,368,208 parameters with a vocabulary of 10,000.
    ///
    /// | part | parameters |
    /// |---|---|
    /// | embedding: 10,000 · 256 | 2,560,000 |
    /// | first layer: (256 + 512) · 2,048 + 2 · 2,048 | 1,576,960 |
    /// | second layer: (512 + 512) · 2,048 + 2 · 2,048 | 2,101,248 |
    /// | output: 512 · 10,000 + 10,000 | 5,130,000 |
    pub fn lstm(vocabulary: usize) -> Self {
        Self { cell: Cell::Lstm, vocabulary, embedded: 256, hidden: 512, layers: 2 }
    }

    /// Two GRU layers: 10,448,656 parameters with a vocabulary of 10,000.
    ///
    /// | part | parameters |
    /// |---|---|
    /// | embedding: 10,000 · 256 | 2,560,000 |
    /// | first layer: (256 + 512) · 1,536 + 2 · 1,536 | 1,182,720 |
    /// | second layer: (512 + 512) · 1,536 + 2 · 1,536 | 1,575,936 |
    /// | output: 512 · 10,000 + 10,000 | 5,130,000 |
    pub fn gru(vocabulary: usize) -> Self {
        Self { cell: Cell::Gru, ..Self::lstm(vocabulary) }
    }

    /// Small enough for tests.
    pub fn tiny(cell: Cell, vocabulary: usize) -> Self {
        Self { cell, vocabulary, embedded: 10, hidden: 12, layers: 2 }
    }

    /// The prefix of the recurrent layers' parameter names.
    fn name(&self) -> &'static str {
        match self.cell {
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
        }
    }

    fn inputs(&self, layer: usize) -> usize {
        if layer == 0 { self.embedded } else { self.hidden }
    }
}

impl Model for Recurrent {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let mut param_specs =
            vec![ParamSpec::new("embedding.weight", &[self.vocabulary, self.embedded], Init::Normal(1.0))];
        for layer in 0..self.layers {
            let sizes = [self.inputs(layer), self.hidden];
            param_specs.extend(recurrent_specs(self.name(), layer, self.cell, sizes));
        }
        param_specs.extend(ParamSpec::pair("linear", &[self.hidden, self.vocabulary], self.vocabulary));
        param_specs
    }

    /// Panics if the input is not tokens.
    fn forward(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2> {
        let Input::Tokens(tokens) = input else { panic!("a language model answers to tokens") };
        let [rows, width] = tokens.dims();
        // Time is the first dimension, so that the data of one time step is contiguous.
        let x = embed(ctx, "embedding", tokens.transpose());
        let x = recurrent_stack(ctx, self.name(), self.layers, self.cell, x, width);
        let x = x.reshape([width, rows, self.hidden]).swap_dims(0, 1).reshape([rows * width, self.hidden]);
        linear(ctx, "linear", x)
    }

    fn answers_tokens(&self) -> bool {
        true
    }

    fn classes(&self) -> usize {
        self.vocabulary
    }

    fn forward_flops(&self, width: usize) -> u64 {
        let width = wide(width);
        let layer = |layer| recurrent_flops(width, self.cell, [self.inputs(layer), self.hidden].map(wide));
        (0..self.layers).map(layer).sum::<u64>() + 2 * width * wide(self.hidden) * wide(self.vocabulary)
    }
}
