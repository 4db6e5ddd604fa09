//! Timed inference of a network. Parameters do not change, so constants are folded, and the rest is replayed.

use super::network::Network;
use super::replayed::Replayed;
use crate::TrainError;
use crate::forward_context::{Folded, ForwardContext};
use crate::native::step_graph::Operands;
use burn::tensor::Tensor;

/// Inference in batches of one size with the same parameters: `A` are the outputs for inputs `I`.
pub struct Inference<I, A> {
    answers: Replayed<A>,
    folded: Folded,
    /// The next batch, on the device.
    next: Option<I>,
}

impl<I, A> Default for Inference<I, A> {
    fn default() -> Self {
        Self { answers: Replayed::Unrecorded, folded: Folded::default(), next: None }
    }
}

impl<I: Operands, A: Clone> Inference<I, A> {
    /// Sets the next batch.
    pub fn prepare(&mut self, input: I) {
        self.next = Some(input);
    }

    /// Returns the outputs of a `forward` pass on the prepared batch, once they are computed. The pass is replayed if
    /// `may_replay`. The next call may overwrite the outputs.
    pub fn answer<M: ?Sized>(
        &mut self,
        network: &mut Network<M>,
        parameters: &[Tensor<1>],
        may_replay: bool,
        mut forward: impl FnMut(&M, &mut ForwardContext<'_>, I) -> A,
    ) -> Result<Option<A>, TrainError> {
        let Some(input) = self.next.take() else { return Ok(None) };
        let (place, running) = (network.place.clone(), network.running.clone());
        let folded = &self.folded;
        let answers = self.answers.inference(&place, (may_replay, &[parameters, &running]), input, |input| {
            let (model, mut ctx) = network.folding(parameters, folded);
            forward(model, &mut ctx, input)
        })?;
        place.sync()?;
        Ok(Some(answers))
    }

    /// Returns [`Replayed::outcome`].
    pub fn graph(&self) -> Option<&str> {
        self.answers.outcome()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Place;
    use crate::forward_context::int_tensor;
    use crate::layers::Cell;
    use crate::models::detector::Detector;
    use crate::models::{Bert, Gpt2, Input, MaskRcnn, Model, Recurrent, Resnet, Vgg, YoloV3};
    use crate::parameters::initial;
    use crate::precision::Precision;
    use burn::tensor::{Device, TensorData};

    fn images([rows, side]: [usize; 2], first: u16, device: &Device) -> Input {
        let all = (0..9973_u16).cycle().step_by(37).take(rows * 3 * side * side);
        let values: Vec<f32> = all.map(|at| (f32::from(first) + f32::from(at)).sin()).collect();
        Input::Images(Tensor::from_data(TensorData::new(values, [rows, 3, side, side]), device))
    }

    fn tokens([rows, width]: [usize; 2], first: u16, device: &Device) -> Input {
        let ids: Vec<i32> =
            (0..rows * width).map(|at| i32::try_from((usize::from(first) + at * 7) % 20).expect("small")).collect();
        Input::Tokens(int_tensor(&ids, [rows, width], device))
    }

    fn of_tokens() -> [Box<dyn Model>; 4] {
        [
            Box::new(Recurrent::tiny(Cell::Lstm, 20)),
            Box::new(Recurrent::tiny(Cell::Gru, 20)),
            Box::new(Bert::tiny(20, 16)),
            Box::new(Gpt2::tiny(20, 16)),
        ]
    }

    fn read(answers: Tensor<2>) -> Vec<f32> {
        answers.cast(burn::tensor::FloatDType::F32).try_into_vec_as().expect("readable")
    }

    /// Checks that inference with folded constants agrees with evaluation within `apart` of the largest output, for
    /// each input.
    fn agrees(model: Box<dyn Model>, inputs: Vec<Input>, precision: Precision, place: &Place, apart: f32) {
        let mut network = Network::new(model, precision, place);
        let there = |values: Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), &place.device());
        // Channels have different gains, biases and statistics.
        let uneven = |values: Vec<f32>| {
            let all = (0_u16..1000).cycle().zip(values);
            there(all.map(|(at, value)| value + 0.1 * (f32::from(at) * 0.7).sin()).collect())
        };
        for running in &mut network.running {
            *running = uneven(running.clone().try_into_vec_as().expect("readable"));
        }
        let values = initial(&network.param_specs, 7).into_iter().zip(&network.param_specs);
        let parameters: Vec<Tensor<1>> =
            values.map(|(values, spec)| if spec.shape.len() == 1 { uneven(values) } else { there(values) }).collect();
        let mut inference = Inference::default();
        let answer = |inference: &mut Inference<_, _>, network: &mut Network| {
            let found = inference.answer(network, &parameters, true, |model, ctx, input| model.forward(ctx, input));
            found.expect("answers")
        };
        for input in inputs {
            let expected = read(network.answer(&parameters, input.clone(), |_, answers| answers));
            inference.prepare(input);
            let found = read(answer(&mut inference, &mut network).expect("prepared"));
            let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            assert!(
                largest > 1e-3 && found.len() == expected.len(),
                "{} answers, the largest {largest}",
                expected.len()
            );
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() <= apart * largest, "{found} instead of {expected}, of {largest}");
            }
        }
        assert!(answer(&mut inference, &mut network).is_none());
        let is_recorded = matches!(place, Place::Device(_)).then_some("recorded");
        assert_eq!(inference.graph(), is_recorded);
    }

    #[test]
    fn folded_constants_give_the_answers_of_evaluation() {
        let device = Device::flex();
        let of_images: [Box<dyn Model>; 2] = [Box::new(Resnet::tiny(10)), Box::new(Vgg::tiny(10))];
        for model in of_images {
            let inputs = [0, 1].map(|first| images([3, 32], first, &device)).to_vec();
            agrees(model, inputs, Precision::Fp32, &Place::Host, 1e-4);
        }
        for model in of_tokens() {
            let inputs = [0, 3].map(|first| tokens([2, 16], first, &device)).to_vec();
            agrees(model, inputs, Precision::Fp32, &Place::Host, 1e-4);
        }
    }

    /// Checks that replayed features agree with those of evaluation within `apart` of the largest one.
    fn features_agree(model: Box<dyn Detector>, side: usize, precision: Precision, place: &Place, apart: f32) {
        let mut network = Network::detector(model, precision, place);
        let there = |values: Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), &place.device());
        let parameters: Vec<Tensor<1>> = initial(&network.param_specs, 7).into_iter().map(there).collect();
        let mut inference = Inference::default();
        for first in 0..4 {
            let Input::Images(images) = images([2, side], first, &place.device()) else { unreachable!("images") };
            let (model, mut ctx) = network.inference(&parameters);
            let expected = model.features(&mut ctx, images.clone());
            inference.prepare(images);
            let found =
                inference.answer(&mut network, &parameters, true, |model, ctx, images| model.features(ctx, images));
            let found = found.expect("answers").expect("prepared");
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.into_iter().zip(expected) {
                assert_eq!(found.dims(), expected.dims());
                assert!(
                    read(expected.clone().flatten(1, 3)).iter().any(|value| value.abs() > 1e-3),
                    "nothing to compare"
                );
                // Channels are pixel coordinates and scores, or the channels of a map. Each has its own largest value.
                for channel in 0..expected.dims()[1] {
                    let of = |features: &Tensor<4>| read(features.clone().narrow(1, channel, 1).flatten(1, 3));
                    let (found, expected) = (of(&found), of(&expected));
                    let largest = expected.iter().fold(1e-6_f32, |largest, value| largest.max(value.abs()));
                    for (found, expected) in found.into_iter().zip(expected) {
                        assert!(
                            (found - expected).abs() <= apart * largest,
                            "{found} instead of {expected}, of {largest} in channel {channel}"
                        );
                    }
                }
            }
        }
        let is_recorded = matches!(place, Place::Device(_)).then_some("recorded");
        assert_eq!(inference.graph(), is_recorded);
    }

    #[test]
    fn features_with_constants_are_those_of_evaluation() {
        features_agree(Box::new(YoloV3::tiny(3)), 64, Precision::Fp32, &Place::Host, 1e-5);
        features_agree(Box::new(MaskRcnn::tiny(3)), 64, Precision::Fp32, &Place::Host, 1e-5);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn replayed_features_are_those_of_evaluation_on_gpu() {
        let place = Place::Device(Device::cuda(burn::tensor::DeviceIndex::Default));
        for (precision, apart) in [(Precision::Fp32, 5e-3), (Precision::Fp16, 2e-2), (Precision::Bf16, 8e-2)] {
            let yolo: [Box<dyn Detector>; 2] = [Box::new(YoloV3::tiny(3)), Box::new(YoloV3::darknet53(80))];
            for model in yolo {
                features_agree(model, 64, precision, &place, apart);
            }
            features_agree(Box::new(MaskRcnn::fifty(5)), 128, precision, &place, apart);
        }
        assert_eq!(crate::native::fault(), None);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn replayed_inference_gives_the_answers_of_evaluation_on_gpu() {
        let device = Device::cuda(burn::tensor::DeviceIndex::Default);
        let place = Place::Device(device.clone());
        // The bounds, relative to the largest output, allow for TF32 and for different roundings in half formats.
        for (precision, apart) in [(Precision::Fp32, 5e-3), (Precision::Fp16, 2e-2), (Precision::Bf16, 8e-2)] {
            let of_images: [Box<dyn Model>; 2] = [Box::new(Resnet::fifty(100)), Box::new(Vgg::sixteen(100))];
            for model in of_images {
                let inputs = [0, 1, 2, 3].map(|first| images([4, 64], first, &device)).to_vec();
                agrees(model, inputs, precision, &place, apart);
            }
            for model in of_tokens() {
                let inputs = [0, 3, 6, 9].map(|first| tokens([2, 16], first, &device)).to_vec();
                agrees(model, inputs, precision, &place, apart);
            }
        }
        assert_eq!(crate::native::fault(), None);
    }
}
