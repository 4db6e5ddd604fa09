use super::*;
use crate::detection::mask::Mask;
use crate::forward_context::{ModelState, initial_statistics};
use crate::models::learning::adam;
use crate::parameters::{Index, Init, count, initial};
use crate::precision::Precision;
use burn::tensor::{Device, TensorData};

#[test]
fn the_parameter_count_matches_the_published_one() {
    let model = MaskRcnn::fifty(90);
    let param_specs = model.param_specs();
    let of = |prefix: &str| -> u64 {
        count(&param_specs.iter().filter(|param_spec| param_spec.name.starts_with(prefix)).cloned().collect::<Vec<_>>())
    };
    // ResNet-50 has 25,557,032, including 2,049,000 of its classifier and 53,120 of its norms.
    assert_eq!(of("backbone.body."), 25_557_032 - 2_049_000 - 53_120);
    // 1 x 1 from 256, 512, 1024 and 2048 channels, and four of 3 x 3, with biases.
    assert_eq!(of("backbone.fpn."), (3840 * 256 + 4 * 256) + 4 * (9 * 256 * 256 + 256));
    assert_eq!(of("rpn."), (9 * 256 * 256 + 256) + 257 * 3 + 257 * 12);
    assert_eq!(of("roi_heads.box"), (12_544 * 1024 + 1024) + (1024 * 1024 + 1024) + 1025 * 91 + 1025 * 364);
    assert_eq!(of("roi_heads.mask"), 4 * (9 * 256 * 256 + 256) + (4 * 256 * 256 + 256) + 257 * 91);
    // torchvision publishes this number.
    assert_eq!(count(&param_specs), 44_401_393);
    assert_eq!(model.statistics().len(), 53 * 4);
    // Frozen norms have four values for each channel; trained norms have two parameters.
    assert_eq!(count(&model.statistics()), 2 * 53_120);
}

#[test]
fn names_match_torchvision() {
    let model = MaskRcnn::fifty(90);
    let param_specs = model.param_specs();
    let find = |name: &str| param_specs.iter().find(|param_spec| param_spec.name == name).expect(name);
    let shapes: [(&str, &[usize]); 13] = [
        ("backbone.body.conv1.weight", &[64, 3, 7, 7]),
        ("backbone.body.layer4.2.conv3.weight", &[2048, 512, 1, 1]),
        ("backbone.fpn.inner_blocks.3.0.weight", &[256, 2048, 1, 1]),
        ("backbone.fpn.layer_blocks.0.0.bias", &[256]),
        ("rpn.head.conv.0.0.weight", &[256, 256, 3, 3]),
        ("rpn.head.cls_logits.weight", &[3, 256, 1, 1]),
        ("rpn.head.bbox_pred.bias", &[12]),
        ("roi_heads.box_head.fc6.weight", &[12_544, 1024]),
        ("roi_heads.box_predictor.cls_score.weight", &[1024, 91]),
        ("roi_heads.box_predictor.bbox_pred.bias", &[364]),
        ("roi_heads.mask_head.3.0.weight", &[256, 256, 3, 3]),
        ("roi_heads.mask_predictor.conv5_mask.weight", &[256, 256, 2, 2]),
        ("roi_heads.mask_predictor.mask_fcn_logits.weight", &[91, 256, 1, 1]),
    ];
    for (name, shape) in shapes {
        assert_eq!(find(name).shape, shape, "{name}");
    }
    assert_eq!(find("roi_heads.mask_predictor.conv5_mask.weight").init, Init::Normal((2.0_f64 / 1024.0).sqrt()));
    assert_eq!(find("roi_heads.mask_predictor.conv5_mask.bias").init, Init::Uniform(1.0 / 32.0));
    assert_eq!(model.statistics()[2].name, "backbone.body.bn1.running_mean");
}

/// A model with its training state, and a batch to train on.
struct Learner {
    model: MaskRcnn,
    parameters: Vec<Tensor<1>>,
    running: Vec<Tensor<1>>,
    moments: Vec<[Tensor<1>; 2]>,
    images: Tensor<4>,
    objects: Vec<Vec<Object>>,
}

impl Learner {
    fn new(model: MaskRcnn, (images, objects): (Tensor<4>, Vec<Vec<Object>>)) -> Self {
        let device = Device::flex();
        let parameters: Vec<Tensor<1>> = initial(&model.param_specs(), 1)
            .into_iter()
            .map(|values| Tensor::from_data(TensorData::from(values.as_slice()), &device))
            .collect();
        let moments = parameters.iter().map(|one| [one.zeros_like(), one.zeros_like()]).collect();
        let running = initial_statistics(&model.statistics(), &device);
        let mut learner = Self { model, parameters, running, moments, images, objects };
        let images = learner.images.clone();
        learner.answer(|model, ctx| model.calibrate(ctx, images));
        learner
    }

    fn answer<T>(&mut self, work: impl FnOnce(&MaskRcnn, &mut ForwardContext<'_>) -> T) -> T {
        let (index, statistics) = (Index::new(&self.model.param_specs()), Index::new(&self.model.statistics()));
        let state = ModelState {
            index: &index,
            parameters: &self.parameters,
            statistics: &statistics,
            running: &mut self.running,
            precision: Precision::Fp32,
            device: Device::flex(),
        };
        work(&self.model, &mut ForwardContext::inference(state))
    }

    /// The loss and the gradients of a training step.
    fn gradients(&mut self, step: u64, precision: Precision) -> (f32, Vec<Tensor<1>>) {
        let (index, statistics) = (Index::new(&self.model.param_specs()), Index::new(&self.model.statistics()));
        let leaves: Vec<Tensor<1>> =
            self.parameters.iter().map(|one| Tensor::from_inner(one.clone()).require_grad()).collect();
        let state = ModelState {
            index: &index,
            parameters: &leaves,
            statistics: &statistics,
            running: &mut self.running,
            precision,
            device: Device::flex(),
        };
        let mut ctx = ForwardContext::training(state, 1, step);
        let images = ctx.constant(self.images.clone());
        let loss = self.model.loss(&mut ctx, images, &self.objects, &mut HostTime::default()).expect("readable");
        assert_eq!(loss.dims(), [1]);
        let names = self.model.param_specs();
        let gradients = ctx.backward(&loss).into_iter().zip(names);
        let gradients =
            gradients.map(|(gradient, param_spec)| gradient.unwrap_or_else(|| panic!("none for {}", param_spec.name)));
        (loss.inner().try_into_scalar().expect("readable"), gradients.collect())
    }

    /// Takes a step of Adam and returns the loss before it.
    fn step(&mut self, step: i32, rate: f64) -> f32 {
        let (loss, gradients) = self.gradients(u64::from(step.unsigned_abs()), Precision::Fp32);
        adam(&mut self.parameters, &mut self.moments, gradients, step, [rate, 0.999]);
        loss
    }

    fn detect(&mut self) -> Vec<Vec<Prediction>> {
        let images = self.images.clone();
        self.answer(|model, ctx| model.detect(ctx, images, &mut HostTime::default()).expect("readable"))
    }
}

/// Two images of 64 x 64 with one or two bright rectangles on an uneven background. The colour of a rectangle is its class.
fn rectangles() -> (Tensor<4>, Vec<Vec<Object>>) {
    let there: [&[(usize, [u8; 4])]; 2] = [&[(0, [6, 10, 30, 34]), (1, [36, 30, 60, 58])], &[(1, [20, 8, 52, 36])]];
    let mut pixels = vec![0.0; 2 * 3 * 64 * 64];
    for (n, pixel) in pixels.iter_mut().enumerate() {
        *pixel = 0.2 + 0.1 * f32::from(u8::try_from(n * 37 % 101).expect("small")) / 101.0;
    }
    let size = Size { width: 64, height: 64 };
    let mut objects = Vec::new();
    for (row, there) in there.iter().enumerate() {
        let object = |(class, edges): &(usize, [u8; 4])| {
            let [left, top, right, bottom] = edges.map(usize::from);
            let mut set = vec![0; 64 * 64];
            for (y, x) in (top..bottom).flat_map(|y| (left..right).map(move |x| (y, x))) {
                set[y * 64 + x] = 1;
                pixels[((row * 3 + class) * 64 + y) * 64 + x] = 0.9;
            }
            let mask = Mask::from_bitmap(size, &set);
            let bounds = Xyxy::new(edges.map(f32::from));
            Object { class: *class, bounds, area: f64::from(mask.area()), crowd: false, mask: Some(mask) }
        };
        objects.push(there.iter().map(object).collect());
    }
    (Tensor::from_data(TensorData::new(pixels, [2, 3, 64, 64]), &Device::flex()), objects)
}

/// Whether each image has as many confident detections as objects, and each object has one of its class whose box and mask have
/// an IoU above one half.
fn right(found: &[Vec<Prediction>], objects: &[Vec<Object>]) -> bool {
    objects.iter().zip(found).all(|(objects, found)| {
        let is = |object: &Object, found: &Prediction| {
            let (there, mask) = (object.mask.as_ref().expect("there"), found.mask.as_ref().expect("told"));
            object.class == found.class && object.bounds.iou(found.bounds) > 0.5 && there.iou(mask, false) > 0.5
        };
        let sure: Vec<&Prediction> = found.iter().filter(|found| found.score > 0.5).collect();
        sure.len() == objects.len() && objects.iter().all(|object| sure.iter().any(|found| is(object, found)))
    })
}

#[test]
#[ignore = "takes half a minute"]
fn one_batch_is_learned_by_heart() {
    let mut learner = Learner::new(MaskRcnn::tiny(2), rectangles());
    let losses: Vec<f32> = (1..=300).map(|step| learner.step(step, 3e-3)).collect();
    assert!(losses[299] < 0.3, "{losses:?}");
    let found = learner.detect();
    assert!(right(&found, &learner.objects), "{found:?}");
}

#[test]
fn a_few_steps_lower_the_loss() {
    let mut learner = Learner::new(MaskRcnn::tiny(2), rectangles());
    let losses: Vec<f32> = (1..=8).map(|step| learner.step(step, 3e-3)).collect();
    assert!(losses[7] < 0.8 * losses[0], "{losses:?}");
}

#[test]
fn a_repeated_step_gives_the_same_bits() {
    let step = || {
        let mut learner = Learner::new(MaskRcnn::tiny(2), rectangles());
        let (loss, gradients) = learner.gradients(1, Precision::Fp32);
        let bits = |tensor: Tensor<1>| -> Vec<u32> {
            let values: Vec<f32> = tensor.try_into_vec_as().expect("readable");
            values.into_iter().map(f32::to_bits).collect()
        };
        (loss.to_bits(), gradients.into_iter().map(bits).collect::<Vec<_>>(), learner.gradients(2, Precision::Fp32).0)
    };
    let one = step();
    assert_eq!(one, step());
    assert_ne!(f32::from_bits(one.0), one.2, "another step draws other boxes");
}

#[test]
fn a_batch_without_objects_has_a_loss_and_all_gradients() {
    let (images, objects) = rectangles();
    for objects in [vec![vec![]; 2], vec![vec![], objects[1].clone()]] {
        let mut learner = Learner::new(MaskRcnn::tiny(2), (images.clone(), objects));
        let (loss, gradients) = learner.gradients(1, Precision::Fp32);
        let sums =
            gradients.into_iter().map(|gradient| gradient.abs().sum().try_into_scalar::<f32>().expect("readable"));
        assert!(loss.is_finite() && sums.into_iter().all(f32::is_finite), "{loss}");
    }
}

#[test]
fn half_precision_gives_about_the_same() {
    let loss = |precision| Learner::new(MaskRcnn::tiny(2), rectangles()).gradients(1, precision).0;
    let exact = loss(Precision::Fp32);
    for precision in [Precision::Fp16, Precision::Bf16] {
        let half = loss(precision);
        // Different boxes may be sampled.
        assert!((half - exact).abs() < 0.1 * exact, "{precision:?}: {half}, not {exact}");
    }
}

#[test]
fn mask_slots_come_in_few_sizes() {
    let model = MaskRcnn::fifty(90);
    assert_eq!([0, 1, 16, 17, 64, 65, 128].map(|many| model.mask_slots(many)), [16, 16, 16, 32, 64, 128, 128]);
}

#[test]
fn operations_are_those_of_convolutions_and_linear_layers() {
    let places = [56_u64, 28, 14, 7, 4].map(|side| side * side);
    let four: u64 = places[..4].iter().sum();
    // ResNet-50 without its classifier; see the tests of `resnet`.
    let body = 8_178_368_512 - 2 * 2048 * 1000;
    let inner = 2 * 256 * (256 * places[0] + 512 * places[1] + 1024 * places[2] + 2048 * places[3]);
    let pyramid = inner + 2 * 9 * 256 * 256 * four;
    let proposals = 2 * (9 * 256 * 256 + 256 * 15) * (four + places[4]);
    let region = 2 * (12_544 * 1024 + 1024 * 1024 + 1024 * 455);
    let mask = 2 * (4 * 9 * 256 * 256 * 196 + 4 * 256 * 256 * 196 + 256 * 784);
    let (model, all) = (MaskRcnn::fifty(90), body + pyramid + proposals);
    assert_eq!(model.forward_flops(224), all + 1000 * region + 100 * mask);
    assert_eq!(model.learning_flops(224), all + 512 * region + 16 * mask);
}
