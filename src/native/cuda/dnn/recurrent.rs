//! Stacks of recurrent layers in one call, so that cuDNN can compute a layer while the one below it is still running.
//!
//! All rows have the same length and begin with zero states; there is no dropout between layers. The parameters are
//! float32 tensors of ours. Our kernels convert them to cuDNN's order and number format, and their gradients back.
//!
//! Results are the same every time. Recurrent layers are not among the routines whose results NVIDIA allows to differ
//! ("Reproducibility", cuDNN documentation, "Odds and Ends"). The known cause of differences was a workspace of a
//! cuBLAS handle shared by several streams. cuDNN 9.12, 9.19 and 9.28 do not have it: their recurrent layers call only
//! cuBLASLt with an explicit workspace. For a version that has it, NVIDIA's remedy is `CUBLAS_WORKSPACE_CONFIG=:4096:8`
//! in the environment of the process.

mod describe;
mod plan;
#[cfg(test)]
mod tests;
mod weights;

pub use weights::places;

use super::job::queue_all;
use super::{card, countable, primitive, tensor};
use crate::cuda::format;
use crate::cuda::kernels::{Unit, transposes};
use burn::backend::DType;
use burn::tensor::{FloatDType, Tensor};
use plan::{Kind, Plan, plan};

/// Parameters of a layer: `weight_ih` [inputs, gates·hidden], `weight_hh` [hidden, gates·hidden], `bias_ih` and
/// `bias_hh` [gates·hidden], each flat.
const PARAMETERS: usize = 4;

/// The configuration of a stack of recurrent layers, without its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// The cell of all layers.
    pub unit: Unit,
    /// The number of layers.
    pub layers: usize,
    /// The number of time steps.
    pub width: usize,
    /// The number format of products, inputs, outputs and states; sums are in float32.
    pub format: FloatDType,
    /// Whether float32 factors may be rounded to TF32.
    pub tf32: bool,
}

/// A stack of recurrent layers that cuDNN supports.
#[derive(Clone, Copy)]
pub struct Recurrent(&'static Plan);

/// The tensors that the backward pass needs.
pub struct SavedTensors {
    x: Tensor<2>,
    y: Tensor<2>,
    /// The parameters in cuDNN's layout.
    weights: Tensor<1>,
    /// Opaque data of cuDNN, which its backward pass overwrites.
    reserve: Tensor<1>,
    plan: &'static Plan,
}

impl Recurrent {
    /// Prepares a stack for inputs [width·rows, inputs] in any format and the layers' float32 parameters, from the
    /// lowest layer up. `None` if cuDNN does not support it; bfloat16 requires 9.13.
    pub fn of(how: Stack, x: &Tensor<2>, parameters: &[Tensor<1>]) -> Option<Self> {
        let Stack { unit, layers, width, tf32, .. } = how;
        let ([all, inputs], place) = (x.dims(), card(x)?);
        let hidden = parameters.last()?.dims()[0] / unit.gates();
        let rows = all.checked_div(width)?;
        let format = format(how.format.into())?;
        let kind = Kind { card: place, unit, layers, format, tf32, rows, width, inputs, hidden };
        let counted = [[width, rows, inputs.max(hidden), 1], [unit.gates(), hidden, inputs.max(hidden), layers]];
        let lengths = kind.places().into_iter().map(|place| place.rows * place.columns);
        let fits = all == width * rows
            && counted.into_iter().all(countable)
            && parameters.len() == PARAMETERS * layers
            && parameters.iter().zip(lengths).all(|(parameter, length)| {
                parameter.dims() == [length] && parameter.dtype() == DType::F32 && card(parameter) == Some(place)
            });
        if fits && transposes(x) { plan(kind).map(Self) } else { None }
    }

    /// Computes the states of the highest layer at each time step, [width·rows, hidden] in the number format of the
    /// products. With `taped`, also returns what the backward pass needs.
    pub fn forward(self, x: Tensor<2>, parameters: &[Tensor<1>], taped: bool) -> (Tensor<2>, Option<SavedTensors>) {
        let Self(plan) = self;
        let x = plan.rounded(x);
        let given: Option<Vec<_>> = std::iter::once(primitive(&x)).chain(parameters.iter().map(primitive)).collect();
        let Some(given) = given else { unreachable!("all tensors are on the card") };
        let y = (plan.states().into(), plan.dtype());
        let made = if taped {
            let [weights, reserve] = plan.kept();
            let promised = vec![y, (weights.into(), plan.dtype()), (reserve.into(), DType::F32)];
            queue_all(given, promised, [plan.training.workspace], |dnn, handle, at| plan.train(dnn, handle, &at))
        } else {
            queue_all(given, vec![y], [plan.answering, plan.weights], |dnn, handle, at| plan.answer(dnn, handle, &at))
        };
        let mut made = made.into_iter();
        let (y, weights, reserve) = (made.next(), made.next(), made.next());
        let Some(y) = y.map(tensor) else { unreachable!("states were promised") };
        let kept = weights.zip(reserve).map(|(weights, reserve)| SavedTensors {
            x,
            y: y.clone(),
            weights: tensor(weights),
            reserve: tensor(reserve),
            plan,
        });
        (y, kept)
    }
}

impl SavedTensors {
    /// Returns the gradient of x [width·rows, inputs] in the number format of the products, and the gradients of the
    /// parameters, flat and in float32.
    ///
    /// cuDNN computes the parameters' gradients in the number format of the products.
    pub fn backward(self, dy: Tensor<2>) -> (Tensor<2>, Vec<Tensor<1>>) {
        let Self { x, y, weights, reserve, plan } = self;
        assert_eq!(dy.dims(), y.dims(), "the gradient of an answer has its shape");
        let dy = plan.rounded(dy);
        let given = [primitive(&x), primitive(&y), primitive(&dy), primitive(&weights), primitive(&reserve)];
        let given: Option<Vec<_>> = given.into_iter().collect();
        let Some(given) = given else { unreachable!("the forward ran on this card") };
        let shape = x.dims();
        drop((x, y, dy, weights, reserve));
        let parameters = plan.places.iter().map(|place| ([place.rows * place.columns].into(), DType::F32));
        let promised = std::iter::once((shape.into(), plan.dtype())).chain(parameters).collect();
        let scratch = [plan.training.workspace, plan.weights];
        let made = queue_all(given, promised, scratch, |dnn, handle, at| plan.back(dnn, handle, &at));
        let mut made = made.into_iter();
        let Some(dx) = made.next() else { unreachable!("a gradient was promised") };
        (tensor(dx), made.map(tensor).collect())
    }
}
