//! What every model is that finds objects in pictures.
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

/// A model that finds objects in pictures.
pub trait Detector: Send + Sync {
    /// The parameters in their order.
    fn param_specs(&self) -> Vec<ParamSpec>;

    /// The running statistics in their order.
    fn statistics(&self) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Classes without the background.
    fn classes(&self) -> usize;

    /// Whether it tells masks.
    fn masks(&self) -> bool {
        false
    }

    /// Called once, before the first step, with its pictures and an inference context: sets what is frozen from then on.
    fn calibrate(&self, _pass: &mut ForwardContext<'_>, _images: Tensor<4>) {}

    /// Loss of a training step, shape [1], float32, on the tape if the context is. `images` [rows, 3, side, side], float32 from 0 to 1, are
    /// ready to meet the
    /// parameters ([`ForwardContext::constant`] was applied); each row's objects are given.
    fn loss(
        &self,
        ctx: &mut ForwardContext<'_>,
        images: Tensor<4>,
        objects: &[Vec<Object>],
        host: &mut HostTime,
    ) -> Result<Tensor<1>, ReadError>;

    /// The first part of inference, which is the same work for all images of a shape. Later work depends on what was found.
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

    /// Floating-point operations of the forward pass of a training step over one picture of this side, or less where that depends on what is in it.
    fn learning_flops(&self, side: usize) -> u64 {
        self.forward_flops(side)
    }

    /// Floating-point operations of the forward pass over one picture of this side, as [`Model::forward_flops`](super::Model::forward_flops).
    fn forward_flops(&self, side: usize) -> u64;
}

/// A predicted object.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// From 0, without a background.
    pub class: usize,
    /// From 0 to 1.
    pub score: f32,
    /// In pixels.
    pub bounds: Xyxy,
    /// Of the picture's size, where the model tells masks.
    pub mask: Option<Mask>,
}

/// Time that the host spends on matching and suppression while the device may wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTime(pub Duration);

impl HostTime {
    /// Does a piece of such work, and counts its time.
    pub fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.since(start);
        done
    }

    /// Counts the time since then, in which the host waited for such work of other threads.
    pub fn since(&mut self, start: Instant) {
        self.0 += start.elapsed();
    }
}

/// Values of a device could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be read back from the device (its own messages say more)")]
pub struct ReadError {
    /// What was to be read.
    pub what: &'static str,
    /// The runtime's message.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl ReadError {
    /// Of what was to be read.
    pub fn of<E: Error + Send + Sync + 'static>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self { what, source: Box::new(source) }
    }
}
