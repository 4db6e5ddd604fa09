//! Tables of vectors: one for each token, one for each position.

use super::linear::{multiply, widen};
use crate::train::pass::Pass;
use burn::tensor::{Int, Tensor, module};

/// Columns of a table's product are filled up to a multiple of this: vocabularies are odd numbers, and tiles of a matrix product are not.
const COLUMNS: usize = 64;

/// The vectors of tokens [rows, width], each a row of `name.weight` [vocabulary, features]: [rows·width, features] in float32.
pub fn embed(pass: &Pass<'_>, name: &str, tokens: Tensor<2, Int>) -> Tensor<2> {
    let [rows, width] = tokens.dims();
    let table = pass.exact::<2>(&format!("{name}.weight"));
    let features = table.dims()[1];
    module::embedding(table, tokens).reshape([rows * width, features])
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
    let table = widen(pass.weight::<2>(&format!("{name}.weight")), 0, COLUMNS);
    let answers = multiply(pass, x, table.transpose());
    let Some(bias) = bias else { return answers };
    answers + widen(pass.weight::<1>(bias).unsqueeze(), 1, COLUMNS)
}
