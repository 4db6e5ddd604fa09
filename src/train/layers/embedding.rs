//! Token and position embeddings.

use super::linear::Maps;
use crate::forward_context::ForwardContext;
use crate::ops::gathered;
use crate::precision::exact;
use burn::tensor::{Int, Tensor, module};

/// Logit columns are padded to a multiple of this, as vocabulary sizes rarely fit the tiles of a matrix product.
const COLUMNS: usize = 64;

/// The embeddings of tokens [rows, width], which are rows of `name.weight` [vocabulary, features]: [rows·width, features] in float32.
pub fn embed(ctx: &ForwardContext<'_>, name: &str, tokens: Tensor<2, Int>) -> Tensor<2> {
    let [rows, width] = tokens.dims();
    let (table, [words, features]) = table(ctx, name);
    let tokens = if ctx.taped() { tokens.inner() } else { tokens };
    let vectors = ctx.off_tape(table.clone()).reshape([words, features]);
    let answer = module::embedding(vectors, tokens.clone()).reshape([rows * width, features]);
    ctx.recorded(
        || [table.into()],
        answer,
        move |gradient, _| [Some(gathered(&tokens, gradient, words).reshape([words * features]).into())],
    )
}

/// The flat parameter `name.weight`, and its shape [vectors, features].
fn table(ctx: &ForwardContext<'_>, name: &str) -> (Tensor<1>, [usize; 2]) {
    let (table, shape) = ctx.flat_parameter(&format!("{name}.weight"));
    let &[vectors, features] = shape else { panic!("`{name}` is no table") };
    (table, [vectors, features])
}

/// The rows of x [positions, features] that the context selects, in the order of selection: [selected, features]. All
/// rows if it has no selection.
pub fn selected_rows(ctx: &ForwardContext<'_>, x: Tensor<2>) -> Tensor<2> {
    let Some(positions) = ctx.selected_positions() else { return x };
    let ([rows, _], [asked], format) = (x.dims(), positions.dims(), x.dtype());
    let answer = ctx.off_tape(x.clone()).select(0, positions.clone());
    ctx.recorded(
        || [x.into()],
        answer,
        move |gradient, _| {
            let gathered = gathered(&positions.reshape([1, asked]), exact(gradient), rows);
            [Some(gathered.cast(format).into())]
        },
    )
}

/// Adds position embeddings, the rows of `name.weight` [at least width, features], to x [rows·width, features].
pub fn add_positions(ctx: &ForwardContext<'_>, name: &str, x: Tensor<2>, [rows, width]: [usize; 2]) -> Tensor<2> {
    let (table, [positions, features]) = table(ctx, name);
    let vectors = ctx.off_tape(table.clone()).reshape([positions, features]).narrow(0, 0, width);
    let sum = ctx.off_tape(x.clone()).reshape([rows, width, features]) + vectors.unsqueeze();
    ctx.recorded(
        || [x.into(), table.into()],
        sum.reshape([rows * width, features]),
        move |gradient, _| {
            let own = gradient.clone().reshape([rows, width * features]).sum_dim(0).reshape([width * features]);
            let others = Tensor::zeros([(positions - width) * features], &own.device());
            let own = if positions == width { own } else { Tensor::cat(vec![own, others], 0) };
            [Some(gradient.into()), Some(own.into())]
        },
    )
}

/// The logits of x [rows, features]: its product with the transposed embedding `name.weight` [vocabulary, features],
/// plus `bias` [vocabulary] (Press and Wolf 2017).
///
/// The output is [rows, vocabulary padded to a multiple of 64] in the number format of the context. Padding is 0.
pub fn unembed(ctx: &ForwardContext<'_>, name: &str, bias: Option<&str>, x: Tensor<2>) -> Tensor<2> {
    let (table, [words, features]) = table(ctx, name);
    let biases = bias.map(|name| ctx.flat_parameter(name).0).into_iter().collect();
    let columns = words.next_multiple_of(COLUMNS);
    let maps = Maps { shape: [words, features], weights: vec![table], biases, table: true, columns };
    maps.apply_named(ctx, &format!("{name} {}", bias.unwrap_or_default()), x)
}
