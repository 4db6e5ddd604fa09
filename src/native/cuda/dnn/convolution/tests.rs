use super::*;
use crate::cuda::dnn::graph::PROPERTIES;
use crate::cuda::dnn::library;
use crate::cuda::dnn::tests::{FORMATS, alone, convolutions, given, read, spread, tolerance};
use crate::cuda::fault;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, FloatDType, TensorData};

const PARTS: [Part; 3] = [Part::Result, Part::OfInput, Part::OfWeight];

/// Images, weights, stride and padding of some layers of ResNet-50.
const LAYERS: [([usize; 4], [usize; 4], usize, usize); 8] = [
    ([32, 64, 56, 56], [256, 64, 1, 1], 1, 0),
    ([32, 128, 28, 28], [128, 128, 3, 3], 1, 1),
    ([32, 512, 7, 7], [512, 512, 3, 3], 1, 1),
    ([32, 3, 224, 224], [64, 3, 7, 7], 2, 3),
    ([32, 256, 56, 56], [64, 256, 1, 1], 1, 0),
    ([32, 64, 56, 56], [64, 64, 3, 3], 1, 1),
    ([32, 1024, 14, 14], [256, 1024, 1, 1], 1, 0),
    ([32, 256, 28, 28], [256, 256, 3, 3], 2, 1),
];

/// An H200, in the format of `CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION`.
const H200: &[u8] = br#"{"deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "deviceName": "NVIDIA H200", "totalGlobalMem": 150754820096,
    "multiProcessorCount": 132, "warpSize": 32, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
    "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, "l2CacheSize": 62914560}"#;

fn square(stride: usize, padding: usize, tf32: bool) -> Convolution {
    Convolution { stride: [stride; 2], padding: [padding; 2], tf32, storage: Storage::Nchw }
}

/// Returns kernel sizes one, three and seven, strides one and two, with and without padding, for odd image sides, few
/// channels and many.
fn cases() -> Vec<([usize; 4], [usize; 4], Convolution)> {
    let mut cases = Vec::new();
    for (side, channels) in [1, 3, 7].into_iter().flat_map(|side| [3, 64].map(|channels| (side, channels))) {
        for (stride, padding) in [(1, 0), (1, side / 2), (2, 0), (2, side / 2)] {
            cases.push(([2, channels, 15, 13], [64, channels, side, side], square(stride, padding, false)));
        }
    }
    // No row of these is a multiple of 16 bytes.
    cases.push(([3, 5, 9, 7], [6, 5, 1, 1], square(1, 0, false)));
    cases.push(([1, 1, 5, 5], [1, 1, 3, 3], square(1, 0, false)));
    cases.push(([2, 7, 11, 9], [3, 7, 3, 3], square(2, 1, false)));
    cases
}

/// Returns the kinds of a case's three computations, with TF32 and without.
fn kinds(input: [usize; 4], weight: [usize; 4], how: Convolution) -> Vec<Kind> {
    let output = output(input, weight, how).unwrap();
    let formats = [(Format::F32, false), (Format::F32, true), (Format::F16, false), (Format::Bf16, false)];
    let kind = |part, (format, tf32)| {
        let how = Convolution { tf32, ..how };
        Kind { card: 0, part, format, input, weight, output, how }
    };
    PARTS.into_iter().flat_map(|part| formats.map(|format| kind(part, format))).collect()
}

/// The library plans for an absent GPU, with all decisions that precede an execution.
#[test]
#[ignore = "needs cuDNN 9.14 and cuBLASLt"]
fn plans_are_made_without_a_card() {
    let graph = graph().unwrap();
    // CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
    let card = Object::new(graph, PROPERTIES, &[(2702, Value::Text(H200))]).unwrap();
    let layers = LAYERS.map(|(input, weight, stride, padding)| (input, weight, square(stride, padding, false)));
    for (large, (input, weight, how)) in
        cases().into_iter().map(|case| (false, case)).chain(layers.map(|case| (true, case)))
    {
        for kind in kinds(input, weight, how) {
            let plan = match planned(graph, kind, &Target::properties(&card)) {
                Ok(plan) => plan.plan,
                Err(fault) => panic!("{kind:?}: {fault}"),
            };
            for (rectified, residual) in [(true, false), (false, false), (true, true)] {
                let kind = Kind { how: Convolution { storage: Storage::Nhwc, ..kind.how }, ..kind };
                // Without tensor cores, float32 has kernels only for small windows.
                let needed = kind.part == Part::Result && (kind.format != Format::F32 || kind.how.tf32);
                let made =
                    biased::planned(graph, kind, biased::Epilogue { residual, rectified }, &Target::properties(&card));
                assert!(made.is_ok() || !needed, "{kind:?} with a bias, residual {residual}: {:?}", made.err());
            }
            let (notes, strict) = (plan.notes(), kind.format == Format::F32 && !kind.how.tf32);
            assert!(!notes.iter().any(|note| [1, 2, 4].contains(note)), "{kind:?}: {notes:?}");
            assert!(!strict || !notes.contains(&0), "{kind:?}: {notes:?}");
            // float32 has none if the environment forbids TF32.
            let forbidden =
                kind.format == Format::F32 && std::env::var("NVIDIA_TF32_OVERRIDE").is_ok_and(|told| told == "0");
            let cores = notes.contains(&0) || strict || forbidden;
            assert!(cores || !large, "{kind:?} without tensor cores: {notes:?}");
            assert!(plan.workspace <= WORKSPACE);
            if large {
                println!("{kind:?}: {notes:?}, {} bytes beside the operands", plan.workspace);
            }
        }
    }
}

/// A partly built plan is destroyed.
#[test]
#[ignore = "needs cuDNN 9.14 and cuBLASLt"]
fn an_impossible_plan_is_an_error() {
    let graph = graph().unwrap();
    let card = Object::new(graph, PROPERTIES, &[(2702, Value::Text(H200))]).unwrap();
    let (input, weight, how) = ([2, 8, 9, 9], [8, 8, 3, 3], square(1, 1, true));
    let good = Kind { card: 0, part: Part::Result, format: Format::F32, input, weight, output: [2, 8, 9, 9], how };
    for part in PARTS {
        let good = Kind { part, ..good };
        assert!(planned(graph, good, &Target::properties(&card)).is_ok());
        let wrong = Kind { output: [2, 8, 9, 7], ..good };
        assert!(planned(graph, wrong, &Target::properties(&card)).is_err(), "the result of another window");
    }
    assert!(Object::new(graph, PROPERTIES, &[(2702, Value::Text(b"{}"))]).is_err());
    assert!(Object::new(graph, CONVOLUTION, &[(100, Value::Real(1.0))]).is_err());
    let nothing = Demand { forbidden: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], workspace: 0 };
    // In bfloat16 the gradient of images has no kernel that is deterministic and without notes.
    let tensors = [input, weight, input].into_iter().enumerate();
    let operand = |shape| Operand { format: Format::Bf16, shape, storage: Storage::Nchw };
    let mut parts: Vec<_> = tensors.map(|(place, shape)| operand(shape).given(graph, place).unwrap()).collect();
    parts.push(windows(graph, how).unwrap());
    let operation = operation(graph, Part::OfInput, [0, 1, 2, 3].map(|part| &parts[part])).unwrap();
    let plan = execution::plan(graph, vec![operation], parts, &Target::properties(&card), &nothing);
    assert!(plan.is_err_and(|fault| fault.to_string().contains("no engine")));
}

#[test]
#[ignore = "needs a GPU"]
fn windows_of_all_sizes_on_gpu() {
    let _alone = alone();
    for (input, weight, how) in cases() {
        for format in FORMATS {
            let (x, w) = (given(spread(input, 1), format), given(spread(weight, 2), format));
            assert!(convolutions(x.clone(), w.clone(), how, tolerance(format, 1e-5)), "{format:?} {how:?}");
            if format == FloatDType::F32 {
                assert!(convolutions(x, w, Convolution { tf32: true, ..how }, 3e-3), "TF32 {how:?}");
            }
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn windows_over_images_in_nhwc_on_gpu() {
    let _alone = alone();
    for (input, weight, how) in cases() {
        for format in FORMATS {
            let how = Convolution { tf32: true, storage: Storage::Nhwc, ..how };
            let close = if format == FloatDType::F32 { 3e-3 } else { tolerance(format, 1e-5) };
            let (x, w) = (given(spread(input, 1), format), given(spread(weight, 2), format));
            let laid = [&x, &w].map(|tensor: &Tensor<4>| how.storage.laid(tensor.clone()).unwrap());
            let [laid_x, laid_w] = laid;
            assert!(convolutions(laid_x.clone(), laid_w.clone(), how, close), "{format:?} {how:?}");
            // The same operands in another layout, which are copied first.
            let [y, other] = [(laid_x, laid_w), (x, w)].map(|(x, w)| read(convolve(x, w, how).unwrap()));
            assert!(y == other, "{format:?} {how:?}");
        }
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn biases_residuals_and_rectifiers_behind_a_convolution_on_gpu() {
    let _alone = alone();
    let layer = ([4, 64, 28, 28], [128, 64, 3, 3], square(1, 1, true));
    for (input, weight, how) in cases().into_iter().chain([layer]) {
        let behind = [(true, false), (false, false), (true, true)];
        for (format, (rectified, residual)) in
            FORMATS.into_iter().flat_map(|format| behind.map(|behind| (format, behind)))
        {
            let how = Convolution { tf32: true, storage: Storage::Nhwc, ..how };
            let residual = residual.then(|| given::<4>(spread(output(input, weight, how).unwrap(), 6), format));
            let (x, w) = (given::<4>(spread(input, 1), format), given::<4>(spread(weight, 2), format));
            let bias = given::<1>(spread([weight[0]], 5), format);
            let Some(y) = convolve_biased(&x, &w, &bias, residual.as_ref(), rectified, how) else {
                panic!("{format:?} {how:?} refused")
            };
            assert_eq!(y.dims(), output(input, weight, how).unwrap());
            let host = |tensor: Tensor<4>| {
                Tensor::<4>::from_data(TensorData::new(read(tensor.clone()), tensor.dims()), &Device::flex())
            };
            let their = Tensor::<1>::from_data(TensorData::from(read(bias.clone()).as_slice()), &Device::flex());
            let options = ConvOptions::new(how.stride, how.padding, [1, 1], 1);
            let their = conv2d(host(x.clone()), host(w.clone()), Some(their), options);
            let their = residual.iter().fold(their, |their, residual| their + host(residual.clone()));
            let their = read(if rectified { their.clamp_min(0.0) } else { their });
            let largest = their.iter().fold(1e-3_f32, |largest, value| largest.max(value.abs()));
            let close = if format == FloatDType::F32 { 3e-3 } else { tolerance(format, 1e-5) };
            let ours = read(y);
            for (one, other) in ours.iter().zip(&their) {
                assert!((one - other).abs() <= close * largest, "{format:?} {how:?}: {one} for {other}");
            }
            let again = convolve_biased(&x, &w, &bias, residual.as_ref(), rectified, how).unwrap();
            assert!(read(again) == ours, "{format:?} {how:?}: other bits");
        }
    }
    assert_eq!(fault(), None);
}

/// Runs a plan repeatedly, alone and between other work.
#[test]
#[ignore = "needs a GPU"]
fn a_plan_gives_the_same_bits_each_time_on_gpu() {
    let _alone = alone();
    for (input, weight, stride, padding) in LAYERS {
        for (format, tf32) in FORMATS.map(|format| (format, true)).into_iter().chain([(FloatDType::F32, false)]) {
            let how = square(stride, padding, tf32);
            let input = [8, input[1], input[2], input[3]];
            let [_, _, height, width] = output(input, weight, how).unwrap();
            let (x, w) = (given::<4>(spread(input, 1), format), given::<4>(spread(weight, 2), format));
            let dy = given::<4>(spread([input[0], weight[0], height, width], 3), format);
            let once = || {
                let y = convolve(x.clone(), w.clone(), how).unwrap();
                let dx = of_input(dy.clone(), w.clone(), input, how).unwrap();
                let dw = of_weight(x.clone(), dy.clone(), weight, how).unwrap();
                [y, dx, dw]
            };
            let (first, more) = (once(), [once(), once(), once()]);
            let first = first.map(read);
            for again in more {
                assert!(again.map(read) == first, "{input:?} {weight:?} {format:?} {tf32}");
            }
        }
    }
    assert_eq!(fault(), None);
}

/// Compiling a kernel takes up to a second for each layer and batch size.
#[test]
#[ignore = "needs a GPU"]
fn kernels_with_bias_and_residual_are_compiled_already_on_gpu() {
    let _alone = alone();
    let (graph, dnn) = (graph().unwrap(), library::dnn().unwrap());
    for (input, weight, stride, padding) in LAYERS {
        let how = Convolution { storage: Storage::Nhwc, ..square(stride, padding, true) };
        let output = output(input, weight, how).unwrap();
        let kind = Kind { card: 0, part: Part::Result, format: Format::Bf16, input, weight, output, how };
        for residual in [false, true] {
            let epilogue = biased::Epilogue { residual, rectified: true };
            let plan = ask(dnn, 0, |handle| biased::planned(graph, kind, epilogue, &Target::handle(handle))).unwrap();
            assert!(!plan.behaviours().contains(&0), "{kind:?} {epilogue:?}");
        }
    }
}
