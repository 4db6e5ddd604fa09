//! The gradient of rows that were taken from a table.

use crate::native::kernels;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

/// The sum of the rows [ids, features] of each row of a table: [rows, features], float32.
pub fn gathered(ids: &Tensor<2, Int>, gradient: Tensor<2>, rows: usize) -> Tensor<2> {
    kernels::embedding_back(ids, &gradient, rows).unwrap_or_else(|| {
        let [many, features] = gradient.dims();
        let none = Tensor::zeros([rows, features], &gradient.device());
        none.select_assign(0, ids.clone().reshape([many]), gradient, IndexingUpdateOp::Add)
    })
}
