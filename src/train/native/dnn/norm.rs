//! Batch normalisation as it is while training, and its gradients.

use super::super::library::Opaque;
use super::super::operation::custom;
use super::super::plan::Format;
use super::super::{Fault, format, told};
use super::descriptors::{self, Plans, statistics, tensor};
use super::job::{Places, copy, queue};
use super::library::Dnn;
use super::{card, countable, primitive};
use burn::backend::{Cuda, DType};
use burn::tensor::Tensor;
use std::ffi::c_int;
use std::ptr::from_ref;
use std::sync::{LazyLock, Mutex};

/// `CUDNN_BATCHNORM_SPATIAL`. The persistent kind, which may be faster, sums scaled integers: it is as deterministic, but makes NaN or infinities of
/// finite values that are too far apart.
const MODE: c_int = 1;

/// What a batch was normalised by, in float32, a value for each channel.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// The mean of its values.
    pub mean: Tensor<1>,
    /// One over their deviation: of the variance over all values, with epsilon added.
    pub inverse: Tensor<1>,
}

/// All that cuDNN has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    format: Format,
    shape: [usize; 4],
}

/// A batch normalisation that is ready to run.
struct Plan {
    images: Opaque,
    statistics: Opaque,
    channels: usize,
}

// SAFETY: the descriptors are plain memory of the library, which nobody writes to or frees after the plan was made.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Plan {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Sync for Plan {}

static PLANS: Plans<Kind, Plan> = LazyLock::new(Mutex::default);

/// Normalises each channel over a batch of images, then applies a gain and a bias in float32. Running statistics [mean, variance] move by `share` towards those of the batch, of
/// which the variance is that of samples: over one value less than there are. None where cuDNN cannot do this.
pub fn normalise(
    x: &Tensor<4>,
    [gain, bias]: [&Tensor<1>; 2],
    running: [&Tensor<1>; 2],
    epsilon: f64,
    share: f64,
) -> Option<(Tensor<4>, Statistics, [Tensor<1>; 2])> {
    let (shape, dtype) = (x.dims(), x.dtype());
    // CUDNN_BN_MIN_EPSILON is zero.
    let [running_mean, running_variance] = running;
    let plan = if epsilon >= 0.0 { plan(x, &[gain, bias, running_mean, running_variance]) } else { None }?;
    let given =
        [primitive(x)?, primitive(gain)?, primitive(bias)?, primitive(running_mean)?, primitive(running_variance)?];
    let channels = [shape[1]];
    let outputs = move || {
        let each = || (channels.into(), DType::F32);
        [(shape.into(), dtype), each(), each(), each(), each()]
    };
    let [y, mean, inverse, new_mean, new_variance] = custom("normalise_dnn", given, outputs(), move |inputs| {
        queue(inputs, outputs(), 0, move |dnn, handle, places| plan.forward(dnn, handle, places, epsilon, share))
    });
    let vector = |made| Tensor::from_primitive::<Cuda>(made);
    let statistics = Statistics { mean: vector(mean), inverse: vector(inverse) };
    Some((Tensor::from_primitive::<Cuda>(y), statistics, [vector(new_mean), vector(new_variance)]))
}

/// The gradients of the images, the gain and the bias, from what was normalised, the gradient of the result and the statistics; or gives all back, where
/// cuDNN cannot do this.
#[expect(clippy::result_large_err, clippy::type_complexity, reason = "what comes back is what was given")]
pub fn normalise_back(
    x: Tensor<4>,
    dy: Tensor<4>,
    gain: Tensor<1>,
    statistics: Statistics,
) -> Result<(Tensor<4>, Tensor<1>, Tensor<1>), (Tensor<4>, Tensor<4>, Tensor<1>, Statistics)> {
    let (shape, dtype) = (x.dims(), x.dtype());
    let fits = dy.dims() == shape && dy.dtype() == dtype && card(&dy) == card(&x);
    let plan = if fits { plan(&x, &[&gain, &statistics.mean, &statistics.inverse]) } else { None };
    let Some(plan) = plan else { return Err((x, dy, gain, statistics)) };
    let (Some(one), Some(two), Some(three), Some(four), Some(five)) =
        (primitive(&x), primitive(&dy), primitive(&gain), primitive(&statistics.mean), primitive(&statistics.inverse))
    else {
        return Err((x, dy, gain, statistics));
    };
    drop((x, dy, gain, statistics));
    let channels = [shape[1]];
    let outputs = move || [(shape.into(), dtype), (channels.into(), DType::F32), (channels.into(), DType::F32)];
    let made = custom("normalise_back_dnn", [one, two, three, four, five], outputs(), move |inputs| {
        queue(inputs, outputs(), 0, |dnn, handle, places| plan.back(dnn, handle, places))
    });
    let [dx, of_gain, of_bias] = made;
    Ok((
        Tensor::from_primitive::<Cuda>(dx),
        Tensor::from_primitive::<Cuda>(of_gain),
        Tensor::from_primitive::<Cuda>(of_bias),
    ))
}

/// The plan for images, where all that has a value for each channel fits them.
fn plan(x: &Tensor<4>, channels: &[&Tensor<1>]) -> Option<&'static Plan> {
    let (shape, place) = (x.dims(), card(x)?);
    let fits = |values: &&Tensor<1>| {
        values.dims() == [shape[1]] && values.dtype() == DType::F32 && card(values) == Some(place)
    };
    if !countable(shape) || !channels.iter().all(fits) {
        return None;
    }
    let kind = Kind { format: format(x.dtype())?, shape };
    descriptors::plan(&PLANS, &kind, |dnn| {
        let images = tensor(dnn, kind.format, kind.shape)?;
        Ok(Plan { images, statistics: statistics(dnn, images, MODE)?, channels: kind.shape[1] })
    })
}

impl Plan {
    fn forward(&self, dnn: &Dnn, handle: Opaque, places: Places<5, 5>, epsilon: f64, share: f64) -> Result<(), Fault> {
        let Places { inputs: [x, gain, bias, old_mean, old_variance], stream, .. } = places;
        let [y, mean, inverse, new_mean, new_variance] = places.outputs;
        // cuDNN moves them where they are.
        for (old, new) in [(old_mean, new_mean), (old_variance, new_variance)] {
            copy(old, new, self.channels, stream)?;
        }
        let (one, nothing) = (1.0_f32, 0.0_f32);
        // SAFETY: the plan was made for images of this shape and format, which lie as it was told and are kept until the work is queued, as are a value
        // for each channel; the scalars are on the host and read at once.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.normalise)(
                handle,
                MODE,
                from_ref(&one).cast(),
                from_ref(&nothing).cast(),
                self.images,
                x,
                self.images,
                y,
                self.statistics,
                gain,
                bias,
                share,
                new_mean,
                new_variance,
                epsilon,
                mean,
                inverse,
            )
        };
        told("cudnnBatchNormalizationForwardTraining", status)
    }

    fn back(&self, dnn: &Dnn, handle: Opaque, places: Places<5, 3>) -> Result<(), Fault> {
        let Places { inputs: [x, dy, gain, mean, inverse], outputs: [dx, of_gain, of_bias], .. } = places;
        let (one, nothing) = (1.0_f32, 0.0_f32);
        // It is in the deviation already: this would only count if the statistics had to be computed again.
        let epsilon = 1e-5;
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe {
            (dnn.normalise_back)(
                handle,
                MODE,
                from_ref(&one).cast(),
                from_ref(&nothing).cast(),
                from_ref(&one).cast(),
                from_ref(&nothing).cast(),
                self.images,
                x,
                self.images,
                dy,
                self.images,
                dx,
                self.statistics,
                gain,
                of_gain,
                of_bias,
                epsilon,
                mean,
                inverse,
            )
        };
        told("cudnnBatchNormalizationBackward", status)
    }
}
