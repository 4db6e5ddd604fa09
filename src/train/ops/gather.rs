//! The gradient of a gather of table rows.

use crate::native::kernels;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

/// For each row of a table, the sum of the gradient rows [ids, features] with its id: [rows, features], float32.
pub fn gathered(ids: &Tensor<2, Int>, gradient: Tensor<2>, rows: usize) -> Tensor<2> {
    kernels::embedding_back(ids, &gradient, rows).unwrap_or_else(|| {
        let [many, features] = gradient.dims();
        let none = Tensor::zeros([rows, features], &gradient.device());
        none.select_assign(0, ids.clone().reshape([many]), gradient, IndexingUpdateOp::Add)
    })
}
