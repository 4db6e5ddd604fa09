//! GPT-2 (Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3).
//!
//! Parameters are named as in Hugging Face's `GPT2LMHeadModel`.

use super::units::{Activation, Unit, Units, through};
use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{
    Attention, Residual, Stream, add_positions, attend, attention_flops, dropout, embed, gelu_tanh, layer_norm, linear,
    norm_specs, unembed, zero_bias_specs,
};
use crate::number::{real_len, wide};
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// The epsilon of layer normalisation.
const EPSILON: f64 = 1e-5;
/// The token embedding, whose weights the head shares.
const WORDS: &str = "transformer.wte";
/// Standard deviation of the initial weights, except those of the residual projections.
const DEVIATION: f64 = 0.02;

/// A stack of decoder layers with a head that shares the token embedding's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpt2 {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Maximum number of tokens of a row.
    pub context: usize,
    /// Features of a token.
    pub hidden: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Dropout probability of the embeddings, the attention weights, and the output of each residual branch.
    pub dropout: f64,
}

impl Gpt2 {
    /// The paper's smallest model: 124,439,808 parameters with a vocabulary of 50,257 and a context of 1,024 tokens.
    ///
    /// | part | parameters |
    /// |---|---|
    /// | embeddings of tokens and positions: (50,257 + 1,024) · 768 | 39,383,808 |
    /// | 12 layers: 768 · 2,304 + 2,304 and 768² + 768 of attention, 768 · 3,072 + 3,072 and 3,072 · 768 + 768 after it, two norms of 2 · 768: 7,087,872 | 85,054,464 |
    /// | the last norm: 2 · 768 | 1,536 |
    pub fn small(vocabulary: usize, context: usize) -> Self {
        Self { vocabulary, context, hidden: 768, layers: 12, heads: 12, dropout: 0.1 }
    }

    /// Small enough for tests.
    pub fn tiny(vocabulary: usize, context: usize) -> Self {
        Self { vocabulary, context, hidden: 24, layers: 2, heads: 3, dropout: 0.1 }
    }

    /// A decoder layer over [rows·width, hidden]. It also applies the norm of the next layer (or of the head).
    fn layer(&self, ctx: &mut ForwardContext<'_>, layer: usize, stream: Stream, shape: [usize; 2]) -> Stream {
        let name = format!("transformer.h.{layer}");
        let attention = Attention {
            qkv: vec![format!("{name}.attn.c_attn")],
            output: format!("{name}.attn.c_proj"),
            heads: self.heads,
            causal: true,
            dropout: self.dropout,
        };
        let seen = attend(ctx, &attention, stream.normed, shape);
        let stream = self.residual(&format!("{name}.ln_2")).add(ctx, stream.residual, seen);
        let inner = linear(ctx, &format!("{name}.mlp.c_fc"), stream.normed);
        let inner = gelu_tanh(ctx, inner);
        let added = linear(ctx, &format!("{name}.mlp.c_proj"), inner);
        self.residual(&self.norm_before(layer + 1)).add(ctx, stream.residual, added)
    }

    fn embedded(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Activation {
        let Input::Tokens(tokens) = input else { panic!("GPT-2 answers to tokens") };
        let shape = tokens.dims();
        let x = embed(ctx, WORDS, tokens);
        let x = add_positions(ctx, "transformer.wpe", x, shape);
        let residual = dropout(ctx, x, self.dropout);
        let normed = layer_norm(ctx, &self.norm_before(0), residual.clone(), EPSILON);
        Activation::Stream(Stream { residual, normed: ctx.round(normed) }, shape)
    }

    /// The name of the norm before a layer; for `layer == layers`, of the norm before the head.
    fn norm_before(&self, layer: usize) -> String {
        if layer < self.layers { format!("transformer.h.{layer}.ln_1") } else { "transformer.ln_f".to_owned() }
    }

    fn residual<'a>(&self, norm: &'a str) -> Residual<'a> {
        Residual { norm, epsilon: EPSILON, post: false, dropout: self.dropout }
    }
}

impl Model for Gpt2 {
    /// The initial weights of the residual projections are scaled by 1/√(number of projections) (section 2.3).
    fn param_specs(&self) -> Vec<ParamSpec> {
        let hidden = self.hidden;
        let start = Init::Normal(DEVIATION);
        let into_sum = Init::Normal(DEVIATION / real_len(2 * self.layers).sqrt());
        let mut param_specs = vec![
            ParamSpec::new("transformer.wte.weight", &[self.vocabulary, hidden], start),
            ParamSpec::new("transformer.wpe.weight", &[self.context, hidden], start),
        ];
        for layer in 0..self.layers {
            let name = |part: &str| format!("transformer.h.{layer}.{part}");
            let affine =
                |part: &str, inputs, outputs, start| zero_bias_specs(&name(part), &[inputs, outputs], outputs, start);
            param_specs.extend(norm_specs(&name("ln_1"), hidden));
            param_specs.extend(affine("attn.c_attn", hidden, 3 * hidden, start));
            param_specs.extend(affine("attn.c_proj", hidden, hidden, into_sum));
            param_specs.extend(norm_specs(&name("ln_2"), hidden));
            param_specs.extend(affine("mlp.c_fc", hidden, 4 * hidden, start));
            param_specs.extend(affine("mlp.c_proj", 4 * hidden, hidden, into_sum));
        }
        param_specs.extend(norm_specs("transformer.ln_f", hidden));
        param_specs
    }

    /// Panics if the input is not tokens, or if a row has more tokens than the model has positions.
    fn forward(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Tensor<2> {
        through(self, ctx, input)
    }

    fn units(&self) -> Option<&dyn Units> {
        Some(self)
    }

    fn answers_tokens(&self) -> bool {
        true
    }

    fn classes(&self) -> usize {
        self.vocabulary
    }

    fn forward_flops(&self, width: usize) -> u64 {
        Units::units(self, width).iter().map(|unit| unit.flops).sum()
    }
}

impl Units for Gpt2 {
    /// The embeddings with the first layer's norm, each layer with the norm after it, and the head, which shares the embedding's weights.
    fn units(&self, width: usize) -> Vec<Unit> {
        let [width, hidden, vocabulary] = [width, self.hidden, self.vocabulary].map(wide);
        let layer = |number: usize| {
            let own = ["attn", "ln_2", "mlp"].map(|part| format!("transformer.h.{number}.{part}"));
            let [attention, norm, rest] = own;
            let flops = attention_flops(width, hidden) + 16 * width * hidden * hidden;
            Unit::new([attention, norm, rest, self.norm_before(number + 1)], flops)
        };
        let tables = [WORDS.to_owned(), "transformer.wpe".to_owned(), self.norm_before(0)];
        let mut units = vec![Unit::new(tables, 0)];
        units.extend((0..self.layers).map(layer));
        units.push(Unit::new([WORDS.to_owned()], 2 * width * hidden * vocabulary));
        units
    }

    fn unit(&self, ctx: &mut ForwardContext<'_>, number: usize, activation: Activation) -> Activation {
        if let Activation::Input(input) = activation {
            return self.embedded(ctx, input);
        }
        let (stream, shape) = activation.stream();
        if number <= self.layers {
            return Activation::Stream(self.layer(ctx, number - 1, stream, shape), shape);
        }
        Activation::Rows(unembed(ctx, WORDS, None, stream.normed))
    }
}
