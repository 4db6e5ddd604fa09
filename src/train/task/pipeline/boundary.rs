//! Activations at the boundary of two stages, on tapes and as messages.

use crate::layers::Stream;
use crate::models::units::Activation;
use crate::parallel::FlatTensor;
use crate::tape::{Plain, Taped, clean, recorded_all};
use burn::tensor::{Gradients, Tensor};

/// The tensors at a boundary between stages, on a tape or off it.
#[expect(clippy::large_enum_variant, reason = "moved a few times a step; boxes would be an allocation for each")]
#[derive(Clone)]
pub enum Boundary {
    /// [rows, channels, height, width].
    Images(Tensor<4>),
    /// [rows, features].
    Rows(Tensor<2>),
    /// Residual and normalised values, both [rows · width, features], and rows and width.
    Stream([Tensor<2>; 2], [usize; 2]),
}

impl Boundary {
    /// The boundary after a unit.
    pub fn of(activation: Activation) -> Self {
        match activation {
            Activation::Images(images) => Self::Images(images),
            Activation::Rows(rows) => Self::Rows(rows),
            Activation::Stream(Stream { residual, normed }, shape) => Self::Stream([residual, normed], shape),
            Activation::Input(_) => panic!("a model's input is no boundary"),
        }
    }

    /// Returns the input of the next unit.
    pub fn activation(self) -> Activation {
        match self {
            Self::Images(images) => Activation::Images(images),
            Self::Rows(rows) => Activation::Rows(rows),
            Self::Stream([residual, normed], shape) => Activation::Stream(Stream { residual, normed }, shape),
        }
    }

    /// Returns the tensors off their tape.
    pub fn off_tape(self) -> Self {
        match self {
            Self::Images(images) => Self::Images(images.inner()),
            Self::Rows(rows) => Self::Rows(rows.inner()),
            Self::Stream(both, shape) => Self::Stream(both.map(Tensor::inner), shape),
        }
    }

    /// Returns the tensors as leaves of a new tape.
    pub fn leaves(self) -> Self {
        fn leaf<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
            Tensor::from_inner(tensor).require_grad()
        }
        match self {
            Self::Images(images) => Self::Images(leaf(images)),
            Self::Rows(rows) => Self::Rows(leaf(rows)),
            Self::Stream(both, shape) => Self::Stream(both.map(leaf), shape),
        }
    }

    /// Returns the tensors as they are sent, off any tape.
    pub fn into_flat_tensors(self) -> Vec<FlatTensor> {
        fn flat<const D: usize>(tensor: Tensor<D>, shape: Vec<usize>) -> FlatTensor {
            FlatTensor { values: tensor.flatten::<1>(0, D - 1), shape }
        }
        match self {
            Self::Images(images) => {
                let shape = images.dims().to_vec();
                vec![flat(images, shape)]
            }
            Self::Rows(rows) => {
                let shape = rows.dims().to_vec();
                vec![flat(rows, shape)]
            }
            Self::Stream(both, [rows, width]) => both
                .map(|tensor| {
                    let features = tensor.dims()[1];
                    flat(tensor, vec![rows, width, features])
                })
                .into(),
        }
    }

    /// Restores a boundary from received tensors. Panics on anything that [`Self::into_flat_tensors`] does not make: a
    /// fault of the stages' code.
    pub fn from_flat_tensors(tensors: Vec<FlatTensor>) -> Self {
        let mut tensors = tensors.into_iter();
        let Some(FlatTensor { values, shape }) = tensors.next() else { panic!("nothing came from the stage before") };
        match (shape.as_slice(), tensors.next()) {
            (&[a, b, c, d], None) => Self::Images(values.reshape([a, b, c, d])),
            (&[rows, features], None) => Self::Rows(values.reshape([rows, features])),
            (&[rows, width, features], Some(other)) => {
                let both = [values, other.values].map(|tensor| tensor.reshape([rows * width, features]));
                Self::Stream(both, [rows, width])
            }
            _ => panic!("a stage cannot take up tensors of shape {shape:?}"),
        }
    }

    /// Returns the gradients of leaves after a backward pass, in the leaves' formats; zeros if nothing depends on a
    /// leaf.
    pub fn gradients(&self, tape: &mut Gradients) -> Self {
        fn of<const D: usize>(leaf: &Tensor<D>, tape: &mut Gradients) -> Tensor<D> {
            let none = || leaf.clone().inner().zeros_like();
            let found = leaf.grad_remove(tape).map_or_else(none, clean);
            if found.dtype() == leaf.dtype() { found } else { found.cast(leaf.dtype()) }
        }
        match self {
            Self::Images(images) => Self::Images(of(images, tape)),
            Self::Rows(rows) => Self::Rows(of(rows, tape)),
            Self::Stream([residual, normed], shape) => Self::Stream([of(residual, tape), of(normed, tape)], *shape),
        }
    }

    /// Returns a root on the tape that depends only on these tensors. A backward pass from it starts with the given
    /// gradients of the tensors.
    pub fn root(self, gradients: Self) -> Tensor<1> {
        let (nodes, device): (Vec<Taped>, _) = match self {
            Self::Images(images) => (vec![images.clone().into()], images.device()),
            Self::Rows(rows) => (vec![rows.clone().into()], rows.device()),
            Self::Stream([residual, normed], _) => {
                let device = residual.device();
                (vec![residual.into(), normed.into()], device)
            }
        };
        let plain: Vec<Plain> = match gradients {
            Self::Images(images) => vec![images.into()],
            Self::Rows(rows) => vec![rows.into()],
            Self::Stream(both, _) => both.map(Plain::from).into(),
        };
        let zero = Tensor::<1>::zeros([1], &device.inner());
        recorded_all(nodes, zero, move |_, _| plain.into_iter().map(Some).collect())
    }

    /// Returns gradients that are all 1, in the formats of these tensors, off any tape.
    pub fn ones(&self) -> Self {
        match self {
            Self::Images(images) => Self::Images(images.ones_like()),
            Self::Rows(rows) => Self::Rows(rows.ones_like()),
            Self::Stream(both, shape) => Self::Stream(both.each_ref().map(|tensor| tensor.ones_like()), *shape),
        }
    }
}
