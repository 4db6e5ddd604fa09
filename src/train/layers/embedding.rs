//! Tables of vectors: one for each token, one for each position.

use super::linear::Maps;
#[cfg(feature = "cuda")]
use crate::train::native;
use crate::train::pass::Pass;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, module};

/// Columns of a table's product are filled up to a multiple of this: vocabularies are odd numbers, and tiles of a matrix product are not.
const COLUMNS: usize = 64;

/// The vectors of tokens [rows, width], each a row of `name.weight` [vocabulary, features]: [rows·width, features] in float32.
pub fn embed(pass: &Pass<'_>, name: &str, tokens: Tensor<2, Int>) -> Tensor<2> {
    let [rows, width] = tokens.dims();
    let table = pass.exact::<2>(&format!("{name}.weight"));
    let [words, features] = table.dims();
    let tokens = if pass.taped() { tokens.inner() } else { tokens };
    let answer = module::embedding(pass.off_tape(table.clone()), tokens.clone()).reshape([rows * width, features]);
    pass.recorded(|| [table.into()], answer, move |gradient, _| [Some(gathered(tokens, gradient, words).into())])
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

/// Adds to x [rows·width, features] at each position the vector of that position, a row of `name.weight` [at least width, features].
pub fn add_positions(pass: &Pass<'_>, name: &str, x: Tensor<2>, [rows, width]: [usize; 2]) -> Tensor<2> {
    let features = x.dims()[1];
    let positions = pass.exact::<2>(&format!("{name}.weight")).narrow(0, 0, width);
    (x.reshape([rows, width, features]) + positions.unsqueeze()).reshape([rows * width, features])
}

/// How near x [rows, features] is to each vector of the table `name.weight` [vocabulary, features], plus `bias` [vocabulary]: answers with the same weights as [`embed`]
/// (Press and Wolf 2017). [rows, vocabulary filled up to a multiple of 64] in the number format of the pass; what was filled up is 0.
pub fn unembed(pass: &Pass<'_>, name: &str, bias: Option<&str>, x: Tensor<2>) -> Tensor<2> {
    let (table, shape) = pass.flat(&format!("{name}.weight"));
    let &[words, features] = shape else { panic!("`{name}` is no table") };
    let biases = bias.map(|name| pass.flat(name).0).into_iter().collect();
    let columns = words.next_multiple_of(COLUMNS);
    Maps { shape: [words, features], weights: vec![table], biases, table: true, columns }.apply(pass, x)
}
