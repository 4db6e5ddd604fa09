//! Object detection: a detector and its data.

use super::ahead::Ahead;
use super::inference::Inference;
use super::network::{Network, backward, leaves};
use super::{Gradients, Score, Step, Task};
use crate::data::objects::{Object, ObjectBatch, ObjectPictures};
use crate::detection::boxes::Xywh;
use crate::detection::mask::Mask;
use crate::detection::mean_average_precision::{EvaluationError, Matches, MeanAveragePrecision, match_picture};
use crate::detection::{Detection, Truth};
use crate::fit::WARM_UP;
use crate::fit::heartbeat::Heartbeat;
use crate::models::detector::{Detector, HostTime, Prediction};
use crate::number::real;
use crate::parameters::ParamSpec;
use crate::rng::rank_seed;
use crate::task::evaluate::turn;
use crate::{DataError, TrainError};
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use ledger_record::{Digest, Value};
use rayon::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model and its data.
pub struct DetectionTask {
    network: Network<dyn Detector>,
    data: Arc<ObjectPictures>,
    seed: u64,
    /// Rows of an evaluation batch.
    batch: usize,
    ahead: Ahead<ObjectBatch>,
    /// The part of timed inference that is replayed: the features.
    inference: Inference<Tensor<4>, Vec<Tensor<4>>>,
    share: Share,
}

/// The fraction of step time that the host spends on matching and suppression.
#[derive(Default)]
struct Share {
    host: Duration,
    all: Duration,
    /// The start of the previous step, its epoch, and its host time.
    before: Option<(Instant, u64, Duration)>,
}

impl Share {
    /// Begins a step. The first steps compile and tune, and an evaluation lies between two epochs; neither counts.
    fn begin(&mut self, step: &Step<'_>) {
        let now = Instant::now();
        let counts = |before: &(Instant, u64, Duration)| step.number > WARM_UP + 1 && before.1 == step.epoch;
        if let Some((began, _, host)) = self.before.take().filter(counts) {
            self.host += host;
            self.all += now.duration_since(began);
        }
        self.before = Some((now, step.epoch, Duration::ZERO));
    }

    fn end(&mut self, host: Duration) {
        if let Some((_, _, spent)) = &mut self.before {
            *spent = host;
        }
    }
}

impl DetectionTask {
    /// A task before its first step. Evaluation batches have `batch` rows.
    pub fn new(network: Network<dyn Detector>, data: Arc<ObjectPictures>, seed: u64, batch: usize) -> Self {
        let batch = batch.min(data.eval_len()).max(1);
        Self {
            network,
            data,
            seed,
            batch,
            ahead: Ahead::new(),
            inference: Inference::default(),
            share: Share::default(),
        }
    }

    fn images(&self, bytes: Vec<u8>, rows: usize) -> Tensor<4> {
        let (device, side) = (self.network.place.device(), self.data.side());
        let bytes = Tensor::<4, Int>::from_data(TensorData::new(bytes, [rows, 3, side, side]), (&device, DType::U8));
        bytes.cast(FloatDType::F32) / 255.0
    }

    /// Returns the first rank's pictures of a step.
    fn led(&self, step: &Step<'_>) -> Result<Tensor<4>, DataError> {
        let batch = self.data.train_batch(self.seed, step.epoch, step.lead)?;
        Ok(self.images(batch.pixels, batch.rows))
    }

    /// Returns the predictions for a batch of pictures.
    fn found(&mut self, parameters: &[Tensor<1>], images: Tensor<4>) -> Result<Vec<Vec<Prediction>>, TrainError> {
        let (model, mut ctx) = self.network.inference(parameters);
        Ok(model.detect(&mut ctx, images, &mut HostTime::default())?)
    }
}

/// Accumulates an evaluation's matches of boxes and masks.
struct Evaluator {
    boxes: MeanAveragePrecision,
    masks: Option<MeanAveragePrecision>,
    classes: usize,
}

impl Evaluator {
    fn new(classes: usize, masks: bool) -> Self {
        Self {
            boxes: MeanAveragePrecision::new(classes),
            masks: masks.then(|| MeanAveragePrecision::new(classes)),
            classes,
        }
    }

    /// Adds the predictions and the objects of pictures.
    fn add(&mut self, found: &[Vec<Prediction>], objects: &[Vec<Object>]) -> Result<(), EvaluationError> {
        let (classes, masks) = (self.classes, self.masks.is_some());
        let matched = found.par_iter().zip(objects).map(|(found, objects)| {
            let boxes = match_picture(classes, &boxes_found(found), &boxes_there(objects))?;
            let masks = masks.then(|| match_picture(classes, &masks_found(found), &masks_there(objects)));
            Ok((boxes, masks.transpose()?))
        });
        let matched: Vec<Result<(Matches, Option<Matches>), EvaluationError>> = matched.collect();
        for picture in matched {
            let (boxes, masks) = picture?;
            self.boxes.add(boxes);
            if let (Some(all), Some(masks)) = (&mut self.masks, masks) {
                all.add(masks);
            }
        }
        Ok(())
    }

    /// Returns mean average precisions; empty without objects.
    fn score(self) -> Score {
        let boxes = self.boxes.finish().summary;
        let masks = self.masks.map(|masks| masks.finish().summary);
        let named = [
            ("eval_accuracy", boxes.ap),
            ("eval_box_ap_50", boxes.ap_50),
            ("eval_box_ap_75", boxes.ap_75),
            ("eval_mask_ap", masks.and_then(|masks| masks.ap)),
            ("eval_mask_ap_50", masks.and_then(|masks| masks.ap_50)),
            ("eval_mask_ap_75", masks.and_then(|masks| masks.ap_75)),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn boxes_found(found: &[Prediction]) -> Vec<Detection<Xywh>> {
    found
        .iter()
        .map(|found| Detection { class: found.class, score: found.score, region: found.bounds.into() })
        .collect()
}

fn boxes_there(objects: &[Object]) -> Vec<Truth<Xywh>> {
    objects.iter().map(|object| truth(object, object.bounds.into())).collect()
}

fn masks_found(found: &[Prediction]) -> Vec<Detection<Mask>> {
    let of =
        |found: &Prediction| Some(Detection { class: found.class, score: found.score, region: found.mask.clone()? });
    found.iter().filter_map(of).collect()
}

fn masks_there(objects: &[Object]) -> Vec<Truth<Mask>> {
    objects.iter().filter_map(|object| Some(truth(object, object.mask.clone()?))).collect()
}

fn truth<R>(object: &Object, region: R) -> Truth<R> {
    Truth { class: object.class, area: object.area, crowd: object.crowd, region }
}

impl Task for DetectionTask {
    fn param_specs(&self) -> &[ParamSpec] {
        &self.network.param_specs
    }

    fn samples(&self) -> usize {
        self.data.train_len()
    }

    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError> {
        self.share.begin(step);
        let (data, seed) = (Arc::clone(&self.data), self.seed);
        let (images, objects) = step.inner.phase("data", || {
            let batch = self.ahead.take(step, move |epoch, indices| Ok(data.train_batch(seed, epoch, indices)?))?;
            Ok((self.images(batch.pixels, batch.rows), batch.objects))
        })?;
        if step.number == 1 {
            // Statistics that are frozen from now on must be the same on every rank.
            let lead = if step.rank == 0 { images.clone() } else { self.led(step)? };
            let (model, mut ctx) = self.network.inference(parameters);
            model.calibrate(&mut ctx, lead);
        }
        let leaves = leaves(parameters);
        let mut host = HostTime::default();
        let (model, mut ctx) = self.network.training(&leaves, [rank_seed(self.seed, step.rank), step.number]);
        let loss = step.inner.phase("forward", || {
            let images = ctx.constant(images);
            Ok(model.loss(&mut ctx, images, &objects, &mut host)?)
        })?;
        self.share.end(host.0);
        step.inner.phase("backward", || Ok(backward(ctx, loss, step, objects.len())))
    }

    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError> {
        let mut evaluator = Evaluator::new(self.network.model.classes(), self.network.model.masks());
        let indices: Vec<usize> = (0..self.data.eval_len()).collect();
        for indices in indices.chunks(self.batch) {
            heartbeat.beat(indices.len());
            let batch = self.data.eval_batch(indices).map_err(DataError::from)?;
            let images = self.images(batch.pixels, batch.rows);
            let found = self.found(parameters, images)?;
            heartbeat.host();
            evaluator.add(&found, &batch.objects)?;
        }
        Ok(Some(evaluator.score()))
    }

    fn inference_rows(&self) -> Option<usize> {
        Some(self.batch)
    }

    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError> {
        if n == 0 {
            // Frees the memory of its graph for the next graph.
            self.inference = Inference::default();
        }
        let batch = self.data.eval_batch(&turn(n, rows, self.data.eval_len())).map_err(DataError::from)?;
        let images = self.images(batch.pixels, batch.rows);
        self.inference.prepare(images);
        Ok(self.network.place.sync()?)
    }

    fn infer(&mut self, parameters: &[Tensor<1>], _: &Heartbeat<'_>, may_replay: bool) -> Result<(), TrainError> {
        let Self { network, inference, .. } = self;
        let features =
            inference.answer(network, parameters, may_replay, |model, ctx, images| model.features(ctx, images))?;
        if let Some(features) = features {
            let (model, ctx) = network.inference(parameters);
            model.detect_in(&ctx, features, self.data.side(), &mut HostTime::default())?;
            self.network.place.sync()?;
        }
        Ok(())
    }

    fn inference_graph(&self) -> Option<&str> {
        self.inference.graph()
    }

    fn digest(&self) -> Digest {
        self.data.digest()
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        self.data.facts()
    }

    fn static_metrics(&self) -> Vec<(&'static str, f64, &'static str)> {
        vec![("flops_per_sample", 3.0 * real(self.network.model.learning_flops(self.data.side())), "FLOP")]
    }

    fn metrics(&self, _values: &[TensorData]) -> Vec<(&'static str, f64)> {
        let Share { host, all, .. } = self.share;
        if all.is_zero() { Vec::new() } else { vec![("matching_share", host.as_secs_f64() / all.as_secs_f64())] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detection::boxes::Xyxy;
    use crate::detection::mask::Size;

    fn bounds(left: f32) -> Xyxy {
        Xyxy { left, top: 10.0, right: left + 20.0, bottom: 30.0 }
    }

    fn mask(left: f32) -> Mask {
        Mask::pasted(Size { width: 64, height: 64 }, bounds(left), 1, &[1.0])
    }

    fn object(class: usize, left: f32) -> Object {
        Object { class, bounds: bounds(left), area: 400.0, crowd: false, mask: Some(mask(left)) }
    }

    fn found(class: usize, left: f32, score: f32) -> Prediction {
        Prediction { class, score, bounds: bounds(left), mask: Some(mask(left)) }
    }

    fn evaluated(found: &[Vec<Prediction>], objects: &[Vec<Object>], masks: bool) -> Score {
        let mut evaluator = Evaluator::new(3, masks);
        evaluator.add(found, objects).expect("known classes");
        evaluator.score()
    }

    #[test]
    fn perfect_predictions_score_one_and_half_of_the_classes_one_half() {
        let objects = [vec![object(0, 5.0), object(2, 30.0)], vec![object(0, 20.0)]];
        let all = [vec![found(0, 5.0, 0.9), found(2, 30.0, 0.8)], vec![found(0, 20.0, 0.7)]];
        for (_, value) in evaluated(&all, &objects, true) {
            assert!((value - 1.0).abs() < 1e-9, "{value}");
        }
        let some = [vec![found(0, 5.0, 0.9), found(1, 30.0, 0.8)], vec![found(0, 20.0, 0.7)]];
        let score = evaluated(&some, &objects, false);
        assert_eq!(score.len(), 3);
        assert!((score[0].1 - 0.5).abs() < 1e-9, "{score:?}");
    }

    #[test]
    fn an_offset_box_counts_only_at_small_overlap_thresholds() {
        // 20 wide and 4 off: 16 of 24.
        let score = evaluated(&[vec![found(0, 9.0, 0.9)]], &[vec![object(0, 5.0)]], false);
        let expected = [("eval_accuracy", 0.4), ("eval_box_ap_50", 1.0), ("eval_box_ap_75", 0.0)];
        for ((name, value), (expected_name, expected)) in score.into_iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((value - expected).abs() < 1e-9, "{name} {value}");
        }
    }

    #[test]
    fn without_objects_there_is_no_score() {
        assert_eq!(evaluated(&[vec![found(0, 5.0, 0.9)]], &[vec![]], true), []);
    }

    #[test]
    fn the_share_excludes_the_first_steps_and_evaluations() {
        use crate::device::Place;
        use crate::sample::EventLog;
        let (place, sink) = (Place::Host, EventLog::default());
        let mut share = Share::default();
        for (number, epoch) in (1..=WARM_UP + 1).map(|number| (number, 1)).chain([(WARM_UP + 2, 2)]) {
            share.begin(&Step { epoch, ..Step::of_rank(0, &[], &place, &sink, number) });
            share.end(Duration::from_millis(3));
            assert_eq!((share.host, share.all), (Duration::ZERO, Duration::ZERO), "step {number}");
        }
        let number = WARM_UP + 3;
        share.begin(&Step { epoch: 2, ..Step::of_rank(0, &[], &place, &sink, number) });
        assert_eq!(share.host, Duration::from_millis(3));
    }
}
