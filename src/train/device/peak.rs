//! The peak throughput of a device in products of large matrices, for comparison with a model's throughput.

use crate::device::Place;
use crate::layers::{Product, product};
use crate::number::{real, wide};
use crate::precision::Precision;
use crate::rng::{Rng, Stream};
use crate::{Sink, TrainError};
use burn::tensor::{Tensor, TensorData};

/// Rows and columns: large enough for a GPU's peak, small enough to fit beside a model. A CPU reaches its peak much sooner.
const SIDE_ON_GPU: usize = 4096;
const SIDE_ON_HOST: usize = 256;

/// The number of rounds, of which the fastest counts, and of products in a round. The first round also warms up.
const ROUNDS: u64 = 6;
const PRODUCTS: u64 = 10;

/// Returns the TFLOP/s of products of square matrices in a number format, counted as for models: 2·side³ a product.
pub fn matmul_tflops(place: &Place, precision: Precision, sink: &dyn Sink) -> Result<f64, TrainError> {
    let side = if place.name().starts_with("Cuda") { SIDE_ON_GPU } else { SIDE_ON_HOST };
    // Random values: a GPU multiplies zeros faster, because they need less power.
    let factor = |index| {
        let mut rng = Rng::new(0, Stream::Peak, index);
        let values: Vec<f32> = (0..side * side).map(|_| rng.range(-1.0, 1.0)).collect();
        precision.round(Tensor::<2>::from_data(TensorData::new(values, [side; 2]), &place.device()))
    };
    let (a, b) = (factor(0), factor(1));
    let mut least_ns = u64::MAX;
    for _ in 0..ROUNDS {
        place.sync()?;
        let start_ns = sink.now_ns();
        let mut last = None;
        for _ in 0..PRODUCTS {
            last = Some(product(a.clone(), b.clone(), Product::of(precision)));
        }
        place.sync()?;
        least_ns = least_ns.min(sink.now_ns().saturating_sub(start_ns));
        drop(last);
    }
    place.check()?;
    let operations = real(PRODUCTS) * 2.0 * real(wide(side)).powi(3);
    Ok(operations / (real(least_ns.max(1)) * 1e3))
}
