//! BERT with its masked-language-model head (Devlin et al. 2018, "BERT: Pre-training of deep bidirectional
//! transformers", sections 3 and A.2), without the next-sentence task.
//!
//! Parameters are named as in Hugging Face's `BertForMaskedLM`. Initialisation and dropout are those of Google's code.
//! Every row is full and has one segment.

use super::units::{Activation, Unit, Units, through};
use super::{Input, Model};
use crate::forward_context::ForwardContext;
use crate::layers::{
    Attention, Residual, Stream, add_positions, attend, attention_flops, dropout, embed, gelu, layer_norm, linear,
    norm_specs, selected_rows, unembed, zero_bias_specs,
};
use crate::number::wide;
use crate::parameters::{Init, ParamSpec};
use burn::tensor::Tensor;

/// The epsilon of layer normalisation.
const EPSILON: f64 = 1e-12;
/// The initialisation of every weight.
const INIT: Init = Init::Truncated(0.02);
/// The token embedding, whose weights the head shares.
const WORDS: &str = "bert.embeddings.word_embeddings";
/// Number of segment types; only the first is used.
const SEGMENTS: usize = 2;

/// A stack of encoder layers with a head that shares the token embedding's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Bert {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Maximum number of tokens of a row.
    pub width: usize,
    /// Features of a token.
    pub hidden: usize,
    /// Encoder layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Hidden features of a layer's feed-forward block.
    pub inner: usize,
    /// Dropout probability of the embeddings, the attention weights, and the output of each residual branch.
    pub dropout: f64,
}

impl Bert {
    /// BERT-base: 109,514,298 parameters with a vocabulary of 30,522 and rows of up to 512 tokens.
    ///
    /// | part | parameters |
    /// |---|---|
    /// | embeddings of tokens, positions, segments: (30,522 + 512 + 2) · 768, and their norm: 2 · 768 | 23,837,184 |
    /// | 12 layers: 4 · (768² + 768) of attention, 768 · 3,072 + 3,072 and 3,072 · 768 + 768 after it, two norms of 2 · 768: 7,087,872 | 85,054,464 |
    /// | head: 768² + 768, a norm of 2 · 768, a bias for each token: 30,522 | 622,650 |
    pub fn base(vocabulary: usize, width: usize) -> Self {
        Self { vocabulary, width, hidden: 768, layers: 12, heads: 12, inner: 3072, dropout: 0.1 }
    }

    /// Small enough for tests.
    pub fn tiny(vocabulary: usize, width: usize) -> Self {
        Self { vocabulary, width, hidden: 24, layers: 2, heads: 3, inner: 40, dropout: 0.1 }
    }

    /// An encoder layer over [rows·width, hidden].
    fn layer(&self, ctx: &mut ForwardContext<'_>, name: &str, stream: Stream, shape: [usize; 2]) -> Stream {
        let attention = Attention {
            qkv: ["query", "key", "value"].map(|part| format!("{name}.attention.self.{part}")).to_vec(),
            output: format!("{name}.attention.output.dense"),
            heads: self.heads,
            causal: false,
            dropout: self.dropout,
        };
        let seen = attend(ctx, &attention, stream.normed, shape);
        let stream = self.residual(&format!("{name}.attention.output.LayerNorm")).add(ctx, stream.residual, seen);
        let inner = linear(ctx, &format!("{name}.intermediate.dense"), stream.normed);
        let inner = gelu(ctx, inner);
        let added = linear(ctx, &format!("{name}.output.dense"), inner);
        self.residual(&format!("{name}.output.LayerNorm")).add(ctx, stream.residual, added)
    }

    fn embedded(&self, ctx: &mut ForwardContext<'_>, input: Input) -> Activation {
        let Input::Tokens(tokens) = input else { panic!("BERT answers to tokens") };
        let shape = tokens.dims();
        let x = embed(ctx, WORDS, tokens);
        let x = add_positions(ctx, "bert.embeddings.position_embeddings", x, shape);
        let segments = ctx.parameter::<2>("bert.embeddings.token_type_embeddings.weight");
        let x = layer_norm(ctx, "bert.embeddings.LayerNorm", x + segments.narrow(0, 0, 1), EPSILON);
        let x = dropout(ctx, x, self.dropout);
        Activation::Stream(Stream::new(ctx, x), shape)
    }

    /// Floating-point operations of the head for this number of positions.
    fn head_flops(&self, positions: usize) -> u64 {
        2 * wide(positions) * wide(self.hidden) * wide(self.hidden + self.vocabulary)
    }

    fn residual<'a>(&self, norm: &'a str) -> Residual<'a> {
        Residual { norm, epsilon: EPSILON, post: true, dropout: self.dropout }
    }
}

impl Model for Bert {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let hidden = self.hidden;
        let table = |name: &str, entries| {
            ParamSpec::new(format!("bert.embeddings.{name}_embeddings.weight"), &[entries, hidden], INIT)
        };
        let affine = |name: &str, inputs, outputs| zero_bias_specs(name, &[inputs, outputs], outputs, INIT);
        let mut param_specs =
            vec![table("word", self.vocabulary), table("position", self.width), table("token_type", SEGMENTS)];
        param_specs.extend(norm_specs("bert.embeddings.LayerNorm", hidden));
        for layer in 0..self.layers {
            let name = |part: &str| format!("bert.encoder.layer.{layer}.{part}");
            for part in ["self.query", "self.key", "self.value", "output.dense"] {
                param_specs.extend(affine(&name(&format!("attention.{part}")), hidden, hidden));
            }
            param_specs.extend(norm_specs(&name("attention.output.LayerNorm"), hidden));
            param_specs.extend(affine(&name("intermediate.dense"), hidden, self.inner));
            param_specs.extend(affine(&name("output.dense"), self.inner, hidden));
            param_specs.extend(norm_specs(&name("output.LayerNorm"), hidden));
        }
        param_specs.push(ParamSpec::new("cls.predictions.bias", &[self.vocabulary], Init::Constant(0.0)));
        param_specs.extend(affine("cls.predictions.transform.dense", hidden, hidden));
        param_specs.extend(norm_specs("cls.predictions.transform.LayerNorm", hidden));
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

    fn selects_positions(&self) -> bool {
        true
    }

    fn forward_flops(&self, width: usize) -> u64 {
        Units::units(self, width).iter().map(|unit| unit.flops).sum()
    }

    fn flops_at_positions(&self, width: usize, positions: usize) -> u64 {
        self.forward_flops(width) - self.head_flops(width - positions.min(width))
    }
}

impl Units for Bert {
    /// The embeddings, each layer, and the head, which shares the embedding's weights.
    fn units(&self, width: usize) -> Vec<Unit> {
        let positions = width;
        let [width, hidden, inner] = [width, self.hidden, self.inner].map(wide);
        let layer = |number: usize| {
            let flops = attention_flops(width, hidden) + 4 * width * hidden * inner;
            Unit::new([format!("bert.encoder.layer.{number}")], flops)
        };
        let head = ["cls.predictions".to_owned(), format!("{WORDS}.weight")];
        let mut units = vec![Unit::new(["bert.embeddings".to_owned()], 0)];
        units.extend((0..self.layers).map(layer));
        units.push(Unit::new(head, self.head_flops(positions)));
        units
    }

    fn unit(&self, ctx: &mut ForwardContext<'_>, number: usize, activation: Activation) -> Activation {
        if let Activation::Input(input) = activation {
            return self.embedded(ctx, input);
        }
        let (stream, shape) = activation.stream();
        if number <= self.layers {
            let name = format!("bert.encoder.layer.{}", number - 1);
            return Activation::Stream(self.layer(ctx, &name, stream, shape), shape);
        }
        let x = selected_rows(ctx, stream.normed);
        let x = linear(ctx, "cls.predictions.transform.dense", x);
        let x = gelu(ctx, x);
        let x = layer_norm(ctx, "cls.predictions.transform.LayerNorm", x, EPSILON);
        Activation::Rows(unembed(ctx, WORDS, Some("cls.predictions.bias"), x))
    }
}
