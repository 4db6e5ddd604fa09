//! Tables of vectors: one for each token, one for each position.

use super::linear::Maps;
use crate::forward_context::ForwardContext;
use crate::ops::gathered;
use crate::precision::exact;
use burn::tensor::{Int, Tensor, module};

/// Columns of a table's product are filled up to a multiple of this: vocabularies are odd numbers, and tiles of a matrix product are not.
const COLUMNS: usize = 64;

/// The vectors of tokens [rows, width], each a row of `name.weight` [vocabulary, features]: [rows·width, features] in float32.
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

/// `name.weight` as it is kept, and its shape [vectors, features].
fn table(ctx: &ForwardContext<'_>, name: &str) -> (Tensor<1>, [usize; 2]) {
    let (table, shape) = ctx.flat_parameter(&format!("{name}.weight"));
    let &[vectors, features] = shape else { panic!("`{name}` is no table") };
    (table, [vectors, features])
}

/// Of x [positions, features] the rows that the context selects, in their order: [selected, features]. All rows where it selects none in
/// particular.
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

/// Adds to x [rows·width, features] at each position the vector of that position, a row of `name.weight` [at least width, features].
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

/// How near x [rows, features] is to each vector of the table `name.weight` [vocabulary, features], plus `bias` [vocabulary]: answers with the same weights as [`embed`]
/// (Press and Wolf 2017). [rows, vocabulary filled up to a multiple of 64] in the number format of the context; what was filled up is 0.
pub fn unembed(ctx: &ForwardContext<'_>, name: &str, bias: Option<&str>, x: Tensor<2>) -> Tensor<2> {
    let (table, [words, features]) = table(ctx, name);
    let biases = bias.map(|name| ctx.flat_parameter(name).0).into_iter().collect();
    let columns = words.next_multiple_of(COLUMNS);
    let maps = Maps { shape: [words, features], weights: vec![table], biases, table: true, columns };
    maps.apply_named(ctx, &format!("{name} {}", bias.unwrap_or_default()), x)
}
