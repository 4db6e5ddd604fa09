//! The layout of a stack's parameters in cuDNN: all in one buffer, in one number format.
//!
//! Knows this layout only, not its use.

use crate::cuda::dnn::descriptors::{code, lengths, made};
use crate::cuda::dnn::library::Dnn;
use crate::cuda::kernels::Unit;
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use crate::cuda::{Fault, check};
use std::ffi::c_int;
use std::ptr::{null_mut, without_provenance_mut};

/// The number of axes with which cuDNN describes a matrix: one, its rows, its columns.
const AXES: usize = 3;

/// The place of a parameter: the transpose of ours, row-major, with the gates in PyTorch's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of values before it.
    pub start: usize,
    /// Gates times hidden features.
    pub rows: usize,
    /// Features of its factor; one for a bias.
    pub columns: usize,
}

/// Returns the places of all parameters in our order: per layer `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`. The
/// weights of all layers precede the biases of all layers.
pub fn places(unit: Unit, layers: usize, [inputs, hidden]: [usize; 2]) -> Vec<Place> {
    let rows = unit.gates() * hidden;
    let mut start = 0;
    let mut next = |columns| {
        let place = Place { start, rows, columns };
        start += rows * columns;
        place
    };
    let weights: Vec<[Place; 2]> =
        (0..layers).map(|layer| [if layer == 0 { inputs } else { hidden }, hidden].map(&mut next)).collect();
    let biases: Vec<[Place; 2]> = (0..layers).map(|_| [1, 1].map(&mut next)).collect();
    weights.into_iter().zip(biases).flat_map(|([a, b], [c, d])| [a, b, c, d]).collect()
}

/// Returns the size of all parameters in bytes, after checking that cuDNN has them at these places.
pub fn bytes(
    dnn: &Dnn,
    handle: Opaque,
    recurrent: Opaque,
    (unit, format): (Unit, Format),
    places: &[Place],
) -> Result<usize, Fault> {
    let mut bytes = 0;
    // SAFETY: the layers were described to cuDNN, and the number can be written to.
    #[expect(unsafe_code, reason = "a function of cuDNN")]
    check("cudnnGetRNNWeightSpaceSize", unsafe { (dnn.size_weights)(handle, recurrent, &raw mut bytes) })?;
    let all: usize = places.iter().map(|place| place.rows * place.columns * format.bytes()).sum();
    let asked = Asked { dnn, handle, recurrent, format, bytes };
    for (layer, of_layer) in places.chunks(4).enumerate() {
        let [of_input, of_hidden, bias_input, bias_hidden] = of_layer else { continue };
        // cuDNN numbers the products by gate, those of the input first.
        let gates = (0..unit.gates()).map(|gate| (gate, of_input, bias_input));
        let gates = gates.chain((0..unit.gates()).map(|gate| (gate, of_hidden, bias_hidden)));
        for (product, (gate, weight, bias)) in gates.enumerate() {
            let expected = [weight, bias].map(|place| expected(unit, format, *place, gate));
            if asked.about([layer, product])? != expected {
                return Err(Fault::Runtime("cuDNN has the weights of recurrent layers otherwise".to_owned()));
            }
        }
    }
    if all == bytes { Ok(bytes) } else { Err(Fault::Runtime("cuDNN has more weights than there are".to_owned())) }
}

/// A part: bytes before it, rows, columns, values from row to row.
type Part = [usize; 4];

fn expected(unit: Unit, format: Format, place: Place, gate: usize) -> Part {
    let rows = place.rows / unit.gates();
    [(place.start + gate * rows * place.columns) * format.bytes(), rows, place.columns, place.columns]
}

/// The subject of a query to cuDNN.
struct Asked<'a> {
    dnn: &'a Dnn,
    handle: Opaque,
    recurrent: Opaque,
    format: Format,
    bytes: usize,
}

impl Asked<'_> {
    /// Returns the places of the weight and the bias of a product.
    fn about(&self, [layer, product]: [usize; 2]) -> Result<[Part; 2], Fault> {
        // cuDNN only computes with this address, but refuses a null pointer.
        let base: Opaque = without_provenance_mut(1 << 20);
        let [layer, product] = lengths([layer, product])?;
        let dnn = self.dnn;
        // SAFETY: `new` can be written to.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let tensor = || made("cudnnCreateTensorDescriptor", |new| unsafe { (dnn.tensor)(new) });
        let (matrix, bias) = (tensor()?, tensor()?);
        let mut places = [null_mut(); 2];
        let [of_matrix, of_bias] = places.each_mut().map(std::ptr::from_mut);
        let (bytes, layers) = (self.bytes, self.recurrent);
        // SAFETY: the layers were described to cuDNN; the descriptors were made above, and both addresses can be written to.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.find_weights)(self.handle, layers, layer, bytes, base, product, matrix, of_matrix, bias, of_bias)
        };
        check("cudnnGetRNNWeightParams", status)?;
        let parts = [self.part(matrix, places[0].addr(), base)?, self.part(bias, places[1].addr(), base)?];
        for tensor in [matrix, bias] {
            // SAFETY: the descriptor was made above, and nobody else has it.
            #[expect(unsafe_code, reason = "a function of cuDNN")]
            check("cudnnDestroyTensorDescriptor", unsafe { (dnn.drop_tensor)(tensor) })?;
        }
        Ok(parts)
    }

    fn part(&self, tensor: Opaque, place: usize, base: Opaque) -> Result<Part, Fault> {
        let (mut kind, mut axes, mut sizes, mut strides) = (0, 0, [0; AXES], [0; AXES]);
        let [asked] = lengths([AXES])?;
        let (kind_at, axes_at) = (&raw mut kind, &raw mut axes);
        // SAFETY: the descriptor was made by the library; as many axes are asked for as there is room for.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status =
            unsafe { (self.dnn.get_axes)(tensor, asked, kind_at, axes_at, sizes.as_mut_ptr(), strides.as_mut_ptr()) };
        check("cudnnGetTensorNdDescriptor", status)?;
        let length = |value: c_int| usize::try_from(value).unwrap_or(0);
        let ([one, rows, columns], [_, down, along]) = (sizes.map(length), strides.map(length));
        if kind != code(self.format) || axes != asked || one != 1 || along != 1 {
            return Err(Fault::Runtime("cuDNN has weights of recurrent layers that are no matrices".to_owned()));
        }
        Ok([place.wrapping_sub(base.addr()), rows, columns, down])
    }
}
