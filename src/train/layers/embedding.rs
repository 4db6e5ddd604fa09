//! Tables of vectors: one for each token, one for each position.

use super::linear::Maps;
#[cfg(feature = "cuda")]
use crate::native;
use crate::pass::Pass;
use crate::precision::exact;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, module};

/// Columns of a table's product are filled up to a multiple of this: vocabularies are odd numbers, and tiles of a matrix product are not.
const COLUMNS: usize = 64;

/// The vectors of tokens [rows, width], each a row of `name.weight` [vocabulary, features]: [rows·width, features] in float32.
pub fn embed(pass: &Pass<'_>, name: &str, tokens: Tensor<2, Int>) -> Tensor<2> {
    let [rows, width] = tokens.dims();
    let (table, [words, features]) = table(pass, name);
    let tokens = if pass.taped() { tokens.inner() } else { tokens };
    let vectors = pass.off_tape(table.clone()).reshape([words, features]);
    let answer = module::embedding(vectors, tokens.clone()).reshape([rows * width, features]);
    pass.recorded(
        || [table.into()],
        answer,
        move |gradient, _| [Some(gathered(tokens, gradient, words).reshape([words * features]).into())],
    )
}

/// `name.weight` as it is kept, and its shape [vectors, features].
fn table(pass: &Pass<'_>, name: &str) -> (Tensor<1>, [usize; 2]) {
    let (table, shape) = pass.flat(&format!("{name}.weight"));
    let &[vectors, features] = shape else { panic!("`{name}` is no table") };
    (table, [vectors, features])
}

/// The sum of the rows [rows·width, features] of each word: [words, features].
fn gathered(tokens: Tensor<2, Int>, gradient: Tensor<2>, words: usize) -> Tensor<2> {
    #[cfg(feature = "cuda")]
    let (tokens, gradient) = match native::kernels::embedding_back(tokens, gradient, words) {
        Ok(gathered) => return gathered,
        Err(given) => given,
    };
    let [rows, features] = gradient.dims();
    let none = Tensor::zeros([words, features], &gradient.device());
    none.select_assign(0, tokens.reshape([rows]), gradient, IndexingUpdateOp::Add)
}

/// Of x [positions, features] the rows that the pass asks for, in their order: [asked, features]. All of them where it asks for none in
/// particular.
pub fn asked_rows(pass: &Pass<'_>, x: Tensor<2>) -> Tensor<2> {
    let Some(positions) = pass.asked() else { return x };
    let ([rows, _], [asked], format) = (x.dims(), positions.dims(), x.dtype());
    let answer = pass.off_tape(x.clone()).select(0, positions.clone());
    pass.recorded(
        || [x.into()],
        answer,
        move |gradient, _| {
            let gathered = gathered(positions.reshape([1, asked]), exact(gradient), rows);
            [Some(gathered.cast(format).into())]
        },
    )
}

/// Adds to x [rows·width, features] at each position the vector of that position, a row of `name.weight` [at least width, features].
pub fn add_positions(pass: &Pass<'_>, name: &str, x: Tensor<2>, [rows, width]: [usize; 2]) -> Tensor<2> {
    let (table, [positions, features]) = table(pass, name);
    let vectors = pass.off_tape(table.clone()).reshape([positions, features]).narrow(0, 0, width);
    let sum = pass.off_tape(x.clone()).reshape([rows, width, features]) + vectors.unsqueeze();
    pass.recorded(
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
/// (Press and Wolf 2017). [rows, vocabulary filled up to a multiple of 64] in the number format of the pass; what was filled up is 0.
pub fn unembed(pass: &Pass<'_>, name: &str, bias: Option<&str>, x: Tensor<2>) -> Tensor<2> {
    let (table, [words, features]) = table(pass, name);
    let biases = bias.map(|name| pass.flat(name).0).into_iter().collect();
    let columns = words.next_multiple_of(COLUMNS);
    Maps { shape: [words, features], weights: vec![table], biases, table: true, columns }.apply(pass, x)
}
