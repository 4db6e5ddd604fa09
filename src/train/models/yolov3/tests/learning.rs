//! Tests that the network learns drawn rectangles, and that training is reproducible.

use super::object;
use crate::data::objects::Object;
use crate::forward_context::{ForwardContext, ModelState};
use crate::models::learning::{Learned, learned};
use crate::models::yolov3::{Detector, HostTime, YoloV3};
use crate::parameters::Index;
use crate::precision::Precision;
use burn::tensor::{Device, Tensor, TensorData};

const SIDE: usize = 64;

/// Two images with two rectangles each, in the colours of their classes.
fn objects() -> Vec<Vec<Object>> {
    vec![
        vec![object(0, [4.0, 6.0, 30.0, 26.0]), object(2, [36.0, 40.0, 46.0, 60.0])],
        vec![object(1, [20.0, 10.0, 60.0, 52.0]), object(0, [3.0, 50.0, 13.0, 58.0])],
    ]
}

fn drawn(objects: &[Vec<Object>]) -> Tensor<4> {
    let mut pixels = vec![0.2_f32; objects.len() * 3 * SIDE * SIDE];
    for (picture, objects) in pixels.chunks_exact_mut(3 * SIDE * SIDE).zip(objects) {
        for Object { class, bounds, .. } in objects {
            let plane = &mut picture[class * SIDE * SIDE..(class + 1) * SIDE * SIDE];
            for (n, pixel) in plane.iter_mut().enumerate() {
                let [x, y] = [n % SIDE, n / SIDE].map(|along| f32::from(u8::try_from(along).expect("small")) + 0.5);
                if x > bounds.left && x < bounds.right && y > bounds.top && y < bounds.bottom {
                    *pixel = 0.9;
                }
            }
        }
    }
    Tensor::from_data(TensorData::new(pixels, [objects.len(), 3, SIDE, SIDE]), &Device::flex())
}

fn trained(model: &YoloV3, steps: i32) -> Learned {
    let objects = objects();
    let images = drawn(&objects);
    let mut loss = |ctx: &mut ForwardContext<'_>| {
        let images = ctx.constant(images.clone());
        model.loss(ctx, images, &objects, &mut HostTime::default()).expect("nothing is read")
    };
    learned([&model.param_specs(), &model.statistics()], &mut loss, steps, [1e-2, 0.999])
}

#[test]
fn trained_on_drawn_rectangles_the_network_detects_them() {
    let model = YoloV3::tiny(3);
    let Learned { losses, parameters, mut running } = trained(&model, 60);
    // Up to 252 places with −ln 0.99 each, 2 objects per image with −ln 0.01 each, and the boxes and classes.
    assert!((15.0..40.0).contains(&losses[0]), "{losses:?}");
    assert!(losses.last().is_some_and(|loss| *loss < losses[0] / 3.0), "{losses:?}");
    let state = ModelState {
        index: &Index::new(&model.param_specs()),
        parameters: &parameters,
        statistics: &Index::new(&model.statistics()),
        running: &mut running,
        precision: Precision::Fp32,
        device: Device::flex(),
    };
    let (objects, mut host) = (objects(), HostTime::default());
    let found = model.detect(&mut ForwardContext::inference(state), drawn(&objects), &mut host).expect("readable");
    assert!(host.0 > std::time::Duration::ZERO);
    assert_eq!(found.len(), objects.len());
    for (found, objects) in found.iter().zip(&objects) {
        let best = &found[..objects.len()];
        for object in objects {
            let right = best.iter().find(|found| found.class == object.class).expect("its class");
            assert!(right.bounds.iou(object.bounds) > 0.5 && right.score > 0.3, "{found:?} for {object:?}");
        }
    }
}

#[test]
fn the_same_steps_give_the_same_bits() {
    let bits = || {
        let Learned { losses, parameters, running } = trained(&YoloV3::tiny(3), 2);
        let values = parameters.into_iter().chain(running).flat_map(|tensor| {
            let values: Vec<f32> = tensor.try_into_vec_as().expect("readable");
            values
        });
        losses.into_iter().chain(values).map(f32::to_bits).collect::<Vec<_>>()
    };
    assert!(bits() == bits(), "other bits");
}
