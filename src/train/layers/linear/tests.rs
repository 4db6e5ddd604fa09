use super::*;
use crate::forward_context::ModelState;
use crate::parameters::{Index, initial};
use crate::precision::exact;
use crate::sample_tensors::{moved, near, read};
use burn::tensor::{Device, TensorData};

/// Inputs and outputs of each map.
const SHAPE: [usize; 2] = [5, 7];
const ROWS: usize = 3;

/// Random numbers between -1 and 1 that every format represents exactly.
fn values<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
    let values = initial(&[ParamSpec::new("values", &shape, Init::Uniform(1.0))], seed).remove(0);
    Tensor::<D>::from_data(TensorData::new(values, shape), &Device::flex())
        .cast(FloatDType::BF16)
        .cast(FloatDType::F16)
        .cast(FloatDType::F32)
}

/// The parameters of maps `0`, `1` and `2`, and of a table of 61 vectors.
fn param_specs() -> Vec<ParamSpec> {
    let start = Init::Uniform(1.0);
    let map = |name: usize| {
        [
            ParamSpec::new(format!("{name}.weight"), &SHAPE, start),
            ParamSpec::new(format!("{name}.bias"), &[SHAPE[1]], start),
        ]
    };
    let mut param_specs: Vec<ParamSpec> = (0..3).flat_map(map).collect();
    param_specs.push(ParamSpec::new("table.weight", &[61, SHAPE[0]], start));
    param_specs.push(ParamSpec::new("table.bias", &[61], start));
    param_specs
}

/// A function of x and the parameters.
type Function = fn(&ForwardContext<'_>, Tensor<2>) -> Tensor<2>;

/// The output for [`ROWS`] rows of x in this format, and the gradients of x and of every parameter; those of unused parameters are empty.
fn computed(function: Function, format: FloatDType, precision: Precision, device: &Device) -> Vec<Vec<f32>> {
    let (param_specs, none) = (param_specs(), Index::default());
    let index = Index::new(&param_specs);
    let leaf = |values: Tensor<1>| Tensor::from_inner(moved(&values, device)).require_grad();
    let parameters: Vec<Tensor<1>> =
        (0..).zip(&param_specs).map(|(seed, param_spec)| leaf(values(seed, [param_spec.len()]))).collect();
    let x = Tensor::from_inner(moved(&values(100, [ROWS, SHAPE[0]]).cast(format), device)).require_grad();
    let state = ModelState {
        index: &index,
        parameters: &parameters,
        statistics: &none,
        running: &mut [],
        precision,
        device: device.clone(),
    };
    let y = function(&ForwardContext::inference_on_tape(state), x.clone());
    let slope = Tensor::from_inner(moved(&values(101, y.dims()), device));
    let mut tape = (exact(y.clone()) * slope).backward();
    let of_x = x.grad_remove(&mut tape).expect("on the tape");
    assert_eq!(of_x.dtype(), DType::from(format), "of x");
    let mut found = vec![read(y.inner()), read(of_x)];
    found.extend(parameters.iter().map(|parameter| {
        let gradient = parameter.grad_remove(&mut tape);
        assert!(gradient.as_ref().is_none_or(|gradient| gradient.dtype() == DType::F32));
        gradient.map(read).unwrap_or_default()
    }));
    found
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|name| name.to_string()).collect()
}

/// The same by Burn's operations in float32.
fn by_burn(ctx: &ForwardContext<'_>, x: Tensor<2>, maps: usize) -> Tensor<2> {
    let answers = names(maps).into_iter().map(|name| {
        let bias = ctx.parameter::<1>(&format!("{name}.bias"));
        exact(x.clone()).matmul(ctx.parameter(&format!("{name}.weight"))) + bias.unsqueeze()
    });
    Tensor::cat(answers.collect(), 1)
}

/// Each function with its reference in float32.
fn functions() -> [(&'static str, Function, Function); 5] {
    [
        ("one", |ctx, x| linear(ctx, "0", x), |ctx, x| by_burn(ctx, x, 1)),
        ("two", |ctx, x| linear_joined(ctx, &names(2), x), |ctx, x| by_burn(ctx, x, 2)),
        ("three", |ctx, x| linear_joined(ctx, &names(3), x), |ctx, x| by_burn(ctx, x, 3)),
        (
            "a table",
            |ctx, x| {
                let maps = Maps {
                    shape: [61, SHAPE[0]],
                    weights: vec![ctx.flat_parameter("table.weight").0],
                    biases: vec![ctx.flat_parameter("table.bias").0],
                    table: true,
                    columns: 64,
                };
                maps.apply(ctx, x)
            },
            |ctx, x| {
                let table = exact(x).matmul(ctx.parameter::<2>("table.weight").transpose());
                let answers = table + ctx.parameter::<1>("table.bias").unsqueeze();
                let nothing = ctx.constant(Tensor::zeros([ROWS, 3], ctx.device()));
                Tensor::cat(vec![answers, nothing], 1)
            },
        ),
        (
            "without a bias",
            |ctx, x| {
                let weights = vec![ctx.flat_parameter("1.weight").0];
                Maps { shape: SHAPE, weights, biases: Vec::new(), table: false, columns: SHAPE[1] }.apply(ctx, x)
            },
            |ctx, x| exact(x).matmul(ctx.parameter("1.weight")),
        ),
    ]
}

fn agree(device: &Device) {
    let formats = [(Precision::Fp32, 2e-6), (Precision::Fp16, 2e-3), (Precision::Bf16, 1.2e-2)];
    for (what, ours, theirs) in functions() {
        let theirs = computed(theirs, FloatDType::F32, Precision::Fp32, &Device::flex());
        for (precision, tolerance) in formats {
            // TF32 represents every number exactly that both bf16 and fp16 represent.
            for format in [FloatDType::F32, precision.format()] {
                let found = computed(ours, format, precision, device);
                assert_eq!(found, computed(ours, format, precision, device), "{what}: other bits");
                for (part, (ours, theirs)) in found.iter().zip(&theirs).enumerate() {
                    near(&format!("{what} in {precision:?} of {format:?}, part {part}"), ours, theirs, tolerance);
                }
            }
        }
    }
}

#[test]
fn maps_match_burns_operations() {
    agree(&Device::flex());
}

#[test]
#[ignore = "needs a GPU"]
fn maps_on_gpu_have_them_too() {
    agree(&Device::cuda(0));
    assert_eq!(crate::native::fault(), None);
}

#[test]
fn gradients_of_a_bias_are_summed_in_float32() {
    // bf16 has no odd numbers above 256, so a sum of ones would stop there.
    let (rows, device) = (1001, Device::flex());
    let leaf = |tensor: Tensor<1>| Tensor::from_inner(tensor).require_grad();
    let param_specs =
        [ParamSpec::new("0.weight", &[1, 1], Init::Constant(1.0)), ParamSpec::new("0.bias", &[1], Init::Constant(1.0))];
    let parameters = [(); 2].map(|()| leaf(Tensor::ones([1], &device)));
    let (index, none) = (Index::new(&param_specs), Index::default());
    let state = ModelState {
        index: &index,
        parameters: &parameters,
        statistics: &none,
        running: &mut [],
        precision: Precision::Bf16,
        device: device.clone(),
    };
    let ctx = ForwardContext::inference_on_tape(state);
    let x = ctx.constant(Tensor::ones([rows, 1], &device));
    let mut tape = linear(&ctx, "0", x).backward();
    let [_, bias] = parameters;
    assert_eq!(read(bias.grad_remove(&mut tape).expect("used")), [1001.0]);
}

#[test]
#[should_panic(expected = "2 maps side by side, and 1 have a bias")]
fn biases_for_only_some_maps_panic() {
    let device = Device::flex();
    let one = Tensor::ones([1], &device);
    let maps = Maps { shape: [1, 1], weights: vec![one.clone(); 2], biases: vec![one], table: false, columns: 2 };
    maps.apply(&ForwardContext::without_parameters(Precision::Fp32, &device), Tensor::ones([1, 1], &device));
}
