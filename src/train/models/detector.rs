//! The interface of object detectors.
//!
//! Knows boxes, masks and tensors; nothing of data files, optimisers or events.

use crate::data::objects::Object;
use crate::detection::boxes::Xyxy;
use crate::detection::mask::Mask;
use crate::forward_context::ForwardContext;
use crate::parameters::ParamSpec;
use burn::tensor::Tensor;
use std::error::Error;
use std::time::{Duration, Instant};

/// A model that detects objects in images.
pub trait Detector: Send + Sync {
    /// The parameters, in their fixed order.
    fn param_specs(&self) -> Vec<ParamSpec>;

    /// The running statistics, in their fixed order.
    fn statistics(&self) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// The number of classes, without the background.
    fn classes(&self) -> usize;

    /// Whether the model predicts masks.
    fn masks(&self) -> bool {
        false
    }

    /// Initialises statistics that stay frozen afterwards. Called once before the first step, with the step's images
    /// and an inference context.
    fn calibrate(&self, _pass: &mut ForwardContext<'_>, _images: Tensor<4>) {}

    /// The loss of a training step: shape [1], float32, on the tape if the context is.
    ///
    /// `images` [rows, 3, side, side] are float32 from 0 to 1; the caller has applied [`ForwardContext::constant`].
    /// `objects` has the objects of each row.
    fn loss(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        objects: &[Vec<Object>],
        host: &mut HostTime,
    ) -> Result<Tensor<1>, ReadError>;

    /// The first part of inference, whose work depends only on the shape of the images.
    fn features(&self, ctx: &mut ForwardContext<'_>, images: Tensor<4>) -> Vec<Tensor<4>>;

    /// The predictions of each row, best first, from the [features](Self::features) of images of this side.
    fn detect_in(
        &self,
        ctx: &ForwardContext<'_>,
        features: Vec<Tensor<4>>,
        side: usize,
        host: &mut HostTime,
    ) -> Result<Vec<Vec<Prediction>>, ReadError>;

    /// The predictions of each row, best first.
    fn detect(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        host: &mut HostTime,
    ) -> Result<Vec<Vec<Prediction>>, ReadError> {
        let side = images.dims()[3];
        let features = self.features(ctx, images);
        self.detect_in(ctx, features, side, host)
    }

    /// Floating-point operations of a training step's forward pass over one image of this side; a lower bound where the
    /// number depends on the image's objects.
    fn learning_flops(&self, side: usize) -> u64 {
        self.forward_flops(side)
    }

    /// Floating-point operations of the forward pass over one image of this side, counted as in
    /// [`Model::forward_flops`](super::Model::forward_flops).
    fn forward_flops(&self, side: usize) -> u64;
}

/// A predicted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Class index from 0, without the background.
    pub class: usize,
    /// From 0 to 1.
    pub score: f32,
    /// Bounding box in pixels.
    pub bounds: Xyxy,
    /// Mask of the image's size, if the model predicts masks.
    pub mask: Option<Mask>,
}

/// Time that the host spends on matching and suppression while the device may wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTime(pub Duration);

impl HostTime {
    /// Runs `work` and adds its duration.
    pub fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.since(start);
        done
    }

    /// Adds the time since `start`, in which the host waited for such work on other threads.
    pub fn since(&mut self, start: Instant) {
        self.0 += start.elapsed();
    }
}

/// A tensor could not be read from the device.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be read back from the device (its own messages say more)")]
pub struct ReadError {
    /// The name of the tensor.
    pub what: &'static str,
    /// The runtime's message.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl ReadError {
    /// Returns a function that wraps the runtime's error, for `map_err`.
    pub fn of<E: Error + Send + Sync + 'static>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self { what, source: Box::new(source) }
    }
}
