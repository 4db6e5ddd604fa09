//! Puts operations with our own backward pass on Burn's tape.
//!
//! Knows how Burn records operations, and nothing about the operations themselves.

use super::gradient_readiness;
use burn::backend::{Autodiff, Backend, BackendTypes, Cuda, DispatchKindConversion, Flex};
use burn::tensor::{DispatchTensor, Float, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// A backend's tensor, off the tape.
type Values<B> = <B as BackendTypes>::FloatTensorPrimitive;
/// A backend's tensor on the tape.
type Recorded<B> = <Autodiff<B> as BackendTypes>::FloatTensorPrimitive;

/// The maximum number of inputs of [`recorded_all`].
pub const MOST: usize = 33;

/// A tensor of any rank on the tape.
pub struct Taped(OnTape);

#[expect(
    clippy::large_enum_variant,
    reason = "moved once; boxes would be an allocation for each tensor of each operation"
)]
enum OnTape {
    Flex(Recorded<Flex>),
    Cuda(Recorded<Cuda>),
}

/// A tensor of any rank off the tape.
pub struct Plain(OffTape);

#[expect(
    clippy::large_enum_variant,
    reason = "moved once; boxes would be an allocation for each tensor of each operation"
)]
enum OffTape {
    Flex(Values<Flex>),
    Cuda(Values<Cuda>),
}

impl<const D: usize> From<Tensor<D>> for Taped {
    fn from(tensor: Tensor<D>) -> Self {
        if let Ok(tensor) = tensor.clone().try_into_primitive::<Autodiff<Cuda>>() {
            return Self(OnTape::Cuda(tensor));
        }
        match tensor.try_into_primitive::<Autodiff<Flex>>() {
            Ok(tensor) => Self(OnTape::Flex(tensor)),
            Err(error) => panic!("a tensor that should be on the tape is not: {error:?}"),
        }
    }
}

impl<const D: usize> From<Tensor<D>> for Plain {
    fn from(tensor: Tensor<D>) -> Self {
        if let Ok(tensor) = tensor.clone().try_into_primitive::<Cuda>() {
            return Self(OffTape::Cuda(tensor));
        }
        match tensor.try_into_primitive::<Flex>() {
            Ok(tensor) => Self(OffTape::Flex(tensor)),
            Err(error) => panic!("a tensor that should be off the tape is not: {error:?}"),
        }
    }
}

/// Returns a tensor's number on the tape, or `None` if it is not on one.
pub fn numbered<const D: usize>(tensor: &Tensor<D>) -> Option<u64> {
    if let Ok(tensor) = tensor.clone().try_into_primitive::<Autodiff<Cuda>>() {
        return Some(tensor.node.id.value);
    }
    tensor.clone().try_into_primitive::<Autodiff<Flex>>().ok().map(|tensor| tensor.node.id.value)
}

/// Puts a result that was computed off the tape from `inputs` on the tape.
///
/// `backward` converts the gradient of the result into those of the inputs, each in its input's shape and number
/// format. It gets a flag per input whether its gradient is needed; others may be `None`.
pub fn recorded<const N: usize, const D: usize>(
    inputs: [Taped; N],
    answer: Tensor<D>,
    backward: impl FnOnce(Tensor<D>, [bool; N]) -> [Option<Plain>; N] + Send + 'static,
) -> Tensor<D> {
    if inputs.iter().all(|input| matches!(input.0, OnTape::Flex(_))) {
        let inputs = inputs.map(|input| match input.0 {
            OnTape::Flex(input) => input,
            OnTape::Cuda(_) => unreachable!("looked at above"),
        });
        return record::<Flex, N, D>(inputs, answer, backward, |plain| match plain.0 {
            OffTape::Flex(values) => values,
            OffTape::Cuda(_) => panic!("a gradient is on another device than its tensor"),
        });
    }
    let inputs = inputs.map(|input| match input.0 {
        OnTape::Cuda(input) => input,
        OnTape::Flex(_) => panic!("the inputs of an operation are on several devices"),
    });
    record::<Cuda, N, D>(inputs, answer, backward, |plain| match plain.0 {
        OffTape::Cuda(values) => values,
        OffTape::Flex(_) => panic!("a gradient is on another device than its tensor"),
    })
}

/// As [`recorded`], for two results. `backward` gets both gradients; the second is `None` if nothing depends on the
/// second result. Something must depend on the first.
///
/// On the tape the second result comes after the first, so that its gradient is computed before the first one's.
pub fn recorded_twice<const N: usize, const D: usize, const E: usize>(
    inputs: [Taped; N],
    (first, second): (Tensor<D>, Tensor<E>),
    backward: impl FnOnce((Tensor<D>, Option<Tensor<E>>), [bool; N]) -> [Option<Plain>; N] + Send + 'static,
) -> (Tensor<D>, Tensor<E>) {
    let left = Arc::new(Mutex::new(None));
    let found = Arc::clone(&left);
    let first = recorded(inputs, first, move |gradient, wanted| {
        let of_second = found.lock().unwrap_or_else(PoisonError::into_inner).take();
        backward((gradient, of_second), wanted)
    });
    let second = recorded([first.clone().into()], second, move |gradient, _| {
        *left.lock().unwrap_or_else(PoisonError::into_inner) = Some(gradient);
        [None]
    });
    (first, second)
}

/// As [`recorded`], for a variable number of inputs, at most [`MOST`]; more are a mistake of the caller.
///
/// `backward` returns as many gradients as there are inputs.
pub fn recorded_all<const D: usize>(
    inputs: Vec<Taped>,
    answer: Tensor<D>,
    backward: impl FnOnce(Tensor<D>, &[bool]) -> Vec<Option<Plain>> + Send + 'static,
) -> Tensor<D> {
    // Burn needs the number of inputs at compile time. Inputs without a gradient are added up to the next of these
    // numbers.
    match inputs.len() {
        0..=5 => filled::<5, D>(inputs, answer, backward),
        6..=9 => filled::<9, D>(inputs, answer, backward),
        10..=17 => filled::<17, D>(inputs, answer, backward),
        18..=MOST => filled::<MOST, D>(inputs, answer, backward),
        many => panic!("an operation has {many} inputs, and {MOST} can be recorded"),
    }
}

fn filled<const N: usize, const D: usize>(
    inputs: Vec<Taped>,
    answer: Tensor<D>,
    backward: impl FnOnce(Tensor<D>, &[bool]) -> Vec<Option<Plain>> + Send + 'static,
) -> Tensor<D> {
    let many = inputs.len();
    let mut inputs = inputs.into_iter();
    let mut next = |_| inputs.next().unwrap_or_else(|| Tensor::from_inner(answer.clone()).into());
    let all: [Taped; N] = std::array::from_fn(&mut next);
    recorded(all, answer, move |gradient, wanted| {
        let mut found = backward(gradient, &wanted[..many]).into_iter();
        std::array::from_fn(|_| found.next().flatten())
    })
}

fn record<B: Backend, const N: usize, const D: usize>(
    inputs: [Recorded<B>; N],
    answer: Tensor<D>,
    backward: impl FnOnce(Tensor<D>, [bool; N]) -> [Option<Plain>; N] + Send + 'static,
    values: fn(Plain) -> Values<B>,
) -> Tensor<D>
where
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
    Float: burn::tensor::BackendPrimitive<B, Primitive = Values<B>>
        + burn::tensor::BackendPrimitive<Autodiff<B>, Primitive = Recorded<B>>,
{
    let answer = match answer.try_into_primitive::<B>() {
        Ok(answer) => answer,
        Err(error) => panic!("the answer of an operation is not where its inputs are: {error:?}"),
    };
    let nodes = inputs.map(|input| input.node);
    let rule = Rule::new(move |gradient: Values<B>, wanted| {
        backward(Tensor::from_primitive::<B>(gradient), wanted).map(|gradient| gradient.map(values))
    });
    let answer = match (Ours(PhantomData::<fn() -> B>)).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(rule, answer),
        OpsKind::UnTracked(prepared) => prepared.finish(answer),
    };
    Tensor::from_primitive::<Autodiff<B>>(answer)
}

struct Ours<B>(PhantomData<fn() -> B>);

impl<B> fmt::Debug for Ours<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ours")
    }
}

impl<B: Backend, const N: usize> Backward<B, N> for Ours<B> {
    type State = Rule<Values<B>, N>;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = ops.state.apply(gradient, wanted).into_iter().flatten();
        for (parent, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
                gradient_readiness::gradient_found(parent.id.value);
            }
        }
    }
}

type Apply<V, const N: usize> = dyn FnOnce(V, [bool; N]) -> [Option<V>; N] + Send;

/// A backward pass, which runs once. The tape requires it to be `Clone` and `Debug`.
struct Rule<V, const N: usize>(Arc<Mutex<Option<Box<Apply<V, N>>>>>);

impl<V, const N: usize> Rule<V, N> {
    fn new(apply: impl FnOnce(V, [bool; N]) -> [Option<V>; N] + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(apply)))))
    }

    fn apply(self, gradient: V, wanted: [bool; N]) -> Option<[Option<V>; N]> {
        let apply = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        apply.map(|apply| apply(gradient, wanted))
    }
}

impl<V, const N: usize> Clone for Rule<V, N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V, const N: usize> fmt::Debug for Rule<V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rule")
    }
}

/// Removes the trace of the tape that Burn leaves on gradients. Otherwise results of integer tensors derived from the
/// tensor would be put on a tape.
pub fn clean<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    let mut tensor = tensor.into_dispatch();
    tensor.checkpointing = None;
    Tensor::from_dispatch(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.try_into_vec_as().expect("readable")
    }

    /// x·w of matrices, by Burn or recorded by us.
    fn product(x: Tensor<2>, w: Tensor<2>, ours: bool) -> Tensor<2> {
        if !ours {
            return x.matmul(w);
        }
        let (x_values, w_values) = (x.clone().inner(), w.clone().inner());
        let answer = x_values.clone().matmul(w_values.clone());
        recorded([x.into(), w.into()], answer, move |gradient, [of_x, of_w]| {
            [
                of_x.then(|| gradient.clone().matmul(w_values.transpose()).into()),
                of_w.then(|| x_values.transpose().matmul(gradient).into()),
            ]
        })
    }

    /// Returns the gradients of a and b, which are used several times in branches that join again.
    fn gradients(ours: bool) -> Vec<f32> {
        let device = Device::flex();
        let leaf = |values: [[f32; 2]; 2]| Tensor::<2>::from_inner(Tensor::from_data(values, &device)).require_grad();
        let (a, b) = (leaf([[1.0, -2.0], [0.5, 3.0]]), leaf([[0.5, 1.0], [-1.0, 2.0]]));
        let x = Tensor::<2>::from_inner(Tensor::from_data([[1.0, 2.0], [3.0, 4.0]], &device));
        let y = product(x, a.clone(), ours);
        let z = product(y.clone(), b.clone(), ours) + y.clone() * y;
        let loss = product(z.clone(), a.clone(), ours) * z;
        let mut tape = loss.reshape([1, 4]).sum_dim(1).backward();
        [a, b].iter().flat_map(|leaf| values(leaf.grad_remove(&mut tape).expect("used"))).collect()
    }

    #[test]
    fn recorded_operations_have_the_gradients_of_the_tape() {
        let [burn, ours] = [false, true].map(gradients);
        assert!(burn.iter().all(|value| value.abs() > 1.0), "{burn:?}");
        for (burn, ours) in burn.iter().zip(&ours) {
            assert!((burn - ours).abs() <= 1e-5 * burn.abs(), "{burn}, ours {ours}");
        }
    }

    #[test]
    fn only_gradients_of_parameters_are_requested() {
        let device = Device::flex();
        let x = Tensor::<1>::from_inner(Tensor::from_data([2.0], &device));
        let w = Tensor::<1>::from_inner(Tensor::from_data([3.0], &device)).require_grad();
        let answer = Tensor::<1>::from_data([6.0], &device);
        let y = recorded([x.into(), w.clone().into()], answer, |gradient, wanted| {
            assert_eq!(wanted, [false, true]);
            [None, Some((gradient * 2.0).into())]
        });
        assert_eq!(values(w.grad_remove(&mut y.backward()).expect("used")), [2.0]);
    }

    /// Returns the gradient of a for a loss of a·b, a + b or both, which are computed together.
    fn gradient_of_two(loss: impl FnOnce(Tensor<1>, Tensor<1>) -> Tensor<1>, ours: bool) -> Vec<f32> {
        let device = Device::flex();
        let leaf = |values: [f32; 2]| Tensor::<1>::from_inner(Tensor::from_data(values, &device)).require_grad();
        let (a, b) = (leaf([2.0, -3.0]), leaf([0.5, 4.0]));
        // Earlier operations, so that more of the tape lies below.
        let before = a.clone() * 3.0;
        let (product, sum) = if ours {
            let (a_values, b_values) = (before.clone().inner(), b.clone().inner());
            let answers = (a_values.clone() * b_values.clone(), a_values.clone() + b_values.clone());
            recorded_twice([before.into(), b.into()], answers, move |(of_product, of_sum), _| {
                let (of_a, of_b) = (of_product.clone() * b_values, of_product * a_values);
                match of_sum {
                    Some(of_sum) => [Some((of_a + of_sum.clone()).into()), Some((of_b + of_sum).into())],
                    None => [Some(of_a.into()), Some(of_b.into())],
                }
            })
        } else {
            (before.clone() * b.clone(), before + b)
        };
        values(a.grad_remove(&mut loss(product, sum).backward()).expect("used"))
    }

    #[test]
    fn two_results_have_the_gradients_of_both() {
        let losses: [fn(Tensor<1>, Tensor<1>) -> Tensor<1>; 4] = [
            |product, _| product.clone() * product,
            |product, sum| product * sum.clone() * sum,
            // The second result is at the end of a longer path than the first, and of a shorter one.
            |product, sum| ((sum.clone() * 2.0).exp() + sum) * 0.1 + product,
            |product, sum| (product * 0.1).exp() * 0.1 + sum,
        ];
        for loss in losses {
            assert_eq!(gradient_of_two(loss, true), gradient_of_two(loss, false));
        }
    }

    /// Σ kᵢ·xᵢ with k = 1, 2, …; every third is a constant. Returns the gradients of the others.
    fn weighted(many: u8) -> Vec<f32> {
        let device = Device::flex();
        let leaf = |n: u8| {
            let value = Tensor::<1>::from_inner(Tensor::from_data([f32::from(n)], &device));
            if n.is_multiple_of(3) { value } else { value.require_grad() }
        };
        let leaves: Vec<Tensor<1>> = (1..=many).map(leaf).collect();
        let answer = Tensor::<1>::from_data([(1..=many).map(|n| f32::from(n) * f32::from(n)).sum::<f32>()], &device);
        let y =
            recorded_all(leaves.iter().map(|leaf| leaf.clone().into()).collect(), answer, move |gradient, wanted| {
                let is_leaf: Vec<bool> = (1..=many).map(|n| !n.is_multiple_of(3)).collect();
                assert_eq!(wanted, is_leaf);
                (1..=many).map(|n| (!n.is_multiple_of(3)).then(|| (gradient.clone() * f32::from(n)).into())).collect()
            });
        let mut tape = y.backward();
        leaves.iter().filter_map(|leaf| leaf.grad_remove(&mut tape)).map(|found| values(found)[0]).collect()
    }

    #[test]
    fn any_number_of_inputs_is_recorded() {
        for many in [1_u8, 5, 6, 9, 10, 18, 33] {
            let expected: Vec<f32> = (1..=many).filter(|n| !n.is_multiple_of(3)).map(f32::from).collect();
            assert_eq!(weighted(many), expected, "{many}");
        }
    }

    #[test]
    #[should_panic(expected = "34 inputs")]
    fn too_many_inputs_are_an_error() {
        weighted(34);
    }

    #[test]
    fn gradients_of_a_backward_rule_are_off_the_tape() {
        let device = Device::flex();
        let w = Tensor::<1>::from_inner(Tensor::from_data([3.0, 1.0], &device)).require_grad();
        let mut tape = (w.clone() * w.clone()).backward();
        let gradient = clean(w.grad_remove(&mut tape).expect("used"));
        let largest = gradient.argmax(0).float();
        let plain = Tensor::<1>::from_data([1.0], &device);
        assert_eq!(values(Tensor::cat(vec![largest, plain], 0)), [0.0, 1.0]);
    }
}
