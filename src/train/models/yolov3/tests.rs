mod by_hand;
mod learning;
mod parity;

use super::*;
use crate::detection::boxes::Xyxy;
use crate::parameters::{Init, count};

/// An object with this box.
pub(super) fn object(class: usize, corners: [f32; 4]) -> Object {
    let bounds = Xyxy::new(corners);
    Object { class, bounds, area: f64::from(bounds.area()), crowd: false, mask: None }
}

#[test]
fn parameter_counts_match_the_published_network() {
    let model = YoloV3::darknet53(80);
    let param_specs = model.param_specs();
    assert_eq!(count(&param_specs), 61_949_149);
    // Layer 75 is the first after Darknet-53.
    let number = |param_spec: &ParamSpec| {
        param_spec.name.split('.').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("named")
    };
    let sum =
        |of: &dyn Fn(&ParamSpec) -> bool| count(&param_specs.iter().filter(|one| of(one)).cloned().collect::<Vec<_>>());
    let weight = |param_spec: &ParamSpec| param_spec.shape.len() == 4;
    let output = |param_spec: &ParamSpec| [81, 93, 105].contains(&number(param_spec));
    assert_eq!(sum(&|param_spec| number(param_spec) < 75 && weight(param_spec)), 40_549_216);
    assert_eq!(sum(&|param_spec| number(param_spec) < 75 && !weight(param_spec)), 35_712);
    assert_eq!(sum(&|param_spec| number(param_spec) >= 75 && !output(param_spec) && weight(param_spec)), 20_889_600);
    assert_eq!(sum(&|param_spec| number(param_spec) >= 75 && !output(param_spec) && !weight(param_spec)), 16_896);
    assert_eq!(sum(&|param_spec| output(param_spec) && weight(param_spec)), 456_960);
    assert_eq!(sum(&|param_spec| output(param_spec) && !weight(param_spec)), 765);
    // 72 convolutions with a norm and 3 with a bias.
    assert_eq!((param_specs.len(), model.statistics().len()), (72 * 3 + 3 * 2, 72 * 2));
}

#[test]
fn layers_are_numbered_as_in_darknets_configuration() {
    let param_specs = YoloV3::darknet53(80).param_specs();
    let shape =
        |name: &str| param_specs.iter().find(|param_spec| param_spec.name == name).expect("there").shape.clone();
    let convolution = |n: usize| shape(&format!("module_list.{n}.conv_{n}.weight"));
    let expected: [(usize, [usize; 4]); 13] = [
        (0, [32, 3, 3, 3]),
        (1, [64, 32, 3, 3]),
        (2, [32, 64, 1, 1]),
        (37, [512, 256, 3, 3]),
        (62, [1024, 512, 3, 3]),
        (73, [1024, 512, 3, 3]),
        (75, [512, 1024, 1, 1]),
        (81, [255, 1024, 1, 1]),
        (84, [256, 512, 1, 1]),
        // Inputs: 256 upsampled channels and the fourth stage's 512; at 99, 128 and the third stage's 256.
        (87, [256, 768, 1, 1]),
        (93, [255, 512, 1, 1]),
        (99, [128, 384, 1, 1]),
        (105, [255, 256, 1, 1]),
    ];
    for (n, expected) in expected {
        assert_eq!(convolution(n), expected, "{n}");
    }
    assert_eq!(param_specs[1].name, "module_list.0.batch_norm_0.weight");
    assert_eq!(shape("module_list.105.conv_105.bias"), [255]);
}

#[test]
fn operations_are_the_sum_over_all_convolutions() {
    // Count, output side, input channels times kernel pixels, output channels: the rows of table 1 of the paper, for images of 416 x 416.
    let darknet: [(u64, u64, u64, u64); 16] = [
        (1, 416, 3 * 9, 32),
        (1, 208, 32 * 9, 64),
        (1, 208, 64, 32),
        (1, 208, 32 * 9, 64),
        (1, 104, 64 * 9, 128),
        (2, 104, 128, 64),
        (2, 104, 64 * 9, 128),
        (1, 52, 128 * 9, 256),
        (8, 52, 256, 128),
        (8, 52, 128 * 9, 256),
        (1, 26, 256 * 9, 512),
        (8, 26, 512, 256),
        (8, 26, 256 * 9, 512),
        (1, 13, 512 * 9, 1024),
        (4, 13, 1024, 512),
        (4, 13, 512 * 9, 1024),
    ];
    // The convolutions after Darknet-53.
    let after: [(u64, u64, u64, u64); 13] = [
        (3, 13, 1024, 512),
        (3, 13, 512 * 9, 1024),
        (1, 13, 1024, 255),
        (1, 13, 512, 256),
        (1, 26, 256 + 512, 256),
        (2, 26, 512, 256),
        (3, 26, 256 * 9, 512),
        (1, 26, 512, 255),
        (1, 26, 256, 128),
        (1, 52, 128 + 256, 128),
        (2, 52, 256, 128),
        (3, 52, 128 * 9, 256),
        (1, 52, 256, 255),
    ];
    let rows = darknet.into_iter().chain(after);
    assert_eq!(rows.clone().map(|(many, ..)| many).sum::<u64>(), 75);
    let sum: u64 = rows.map(|(many, side, from, to)| 2 * many * side * side * from * to).sum();
    // Darknet prints 65.864 billion for it; the exact number is that of PyTorch's `FlopCounterMode` (`tests/parity/yolov3.py`).
    assert_eq!(sum, FLOPS);
    let model = YoloV3::darknet53(80);
    assert_eq!(model.forward_flops(416), FLOPS);
    // The operations of every convolution are proportional to the square of the side.
    assert_eq!(model.forward_flops(608) * 13 * 13, FLOPS * 19 * 19);
}

const FLOPS: u64 = 65_864_075_264;

#[test]
fn parameters_are_initialised_as_documented() {
    let param_specs = YoloV3::darknet53(80).param_specs();
    let init = |name: &str| param_specs.iter().find(|param_spec| param_spec.name == name).expect("there").init;
    let Init::Normal(deviation) = init("module_list.1.conv_1.weight") else { panic!("normal") };
    assert!((deviation - (2.0_f64 / (1.01 * 288.0)).sqrt()).abs() < 1e-8);
    assert_eq!(init("module_list.81.conv_81.weight"), Init::Normal(0.01));
    assert_eq!(init("module_list.1.batch_norm_1.weight"), Init::Constant(1.0));
    let Init::Every { period: 85, place: 4, value } = init("module_list.81.conv_81.bias") else { panic!("every") };
    assert!((1.0 / (1.0 + f64::from(-value).exp()) - 0.01).abs() < 1e-8);
}
