use super::*;
use crate::forward_context::ModelState;
use crate::layers::recurrent::recurrent_specs;
use crate::native::fault;
use crate::number::{real_len, single};
use crate::ops::SavedStates;
use crate::parameters::{Index, Init, ParamSpec, initial};
use crate::precision::Precision;
use crate::sample_tensors::{moved, off, read};
use burn::tensor::{Device, FloatDType, TensorData};

const INPUTS: usize = 16;

/// Random numbers that the number format represents exactly, so that all devices and formats get the same inputs.
fn values<const D: usize>(seed: u64, shape: [usize; D], bound: f32, format: FloatDType) -> Tensor<D> {
    let values = initial(&[ParamSpec::new("values", &shape, Init::Uniform(bound))], seed).remove(0);
    let values = Tensor::<D>::from_data(TensorData::new(values, shape), &Device::flex());
    values.cast(format).cast(FloatDType::F32)
}

struct Case {
    cell: Cell,
    rows: usize,
    width: usize,
    hidden: usize,
}

/// The output without a tape and with one, and the gradients of the inputs and of the four parameters. Inputs are in
/// `format`, products in `precision`.
fn computed(case: &Case, device: &Device, format: FloatDType, precision: Precision) -> Vec<(String, Vec<f32>)> {
    let Case { cell, rows, width, hidden } = *case;
    let param_specs = recurrent_specs("rnn", 0, cell, [INPUTS, hidden]);
    let bound = single(1.0 / real_len(hidden).sqrt());
    let flat: Vec<Tensor<1>> = (0..)
        .zip(&param_specs)
        .map(|(seed, param_spec)| moved(&values(seed, [param_spec.len()], bound, format), device))
        .collect();
    let x = moved(&values(10, [width * rows, INPUTS], 1.0, format), device);
    let slope = moved(&values(11, [width * rows, hidden], 1.0, format), device);
    let index = Index::new(&param_specs);
    let none = Index::default();
    let ctx = |parameters, taped| {
        let state = ModelState {
            index: &index,
            parameters,
            statistics: &none,
            running: &mut [],
            precision,
            device: device.clone(),
        };
        if taped { ForwardContext::inference_on_tape(state) } else { ForwardContext::inference(state) }
    };
    let plain = layer(&ctx(&flat, false), "rnn", 0, cell, x.clone(), width);
    let leaves: Vec<Tensor<1>> = flat.iter().map(|flat| Tensor::from_inner(flat.clone()).require_grad()).collect();
    let x = Tensor::from_inner(x).require_grad();
    let answer = layer(&ctx(&leaves, true), "rnn", 0, cell, x.clone(), width);
    let mut tape = (answer.clone() * Tensor::from_inner(slope)).sum().backward();
    let mut found =
        vec![("answer without a tape".to_owned(), read(plain)), ("answer".to_owned(), read(answer.inner()))];
    found.push(("x".to_owned(), read(x.grad_remove(&mut tape).expect("on the tape"))));
    for (param_spec, leaf) in param_specs.iter().zip(&leaves) {
        found.push((param_spec.name.clone(), read(leaf.grad_remove(&mut tape).expect("on the tape"))));
    }
    found
}

fn compare(case: &Case) -> [f32; 3] {
    let Case { cell, rows, width, hidden } = *case;
    // The host computes in float32. The tolerances cover the rounding of gates, states and gradients at every time step.
    [(Precision::Fp32, 4e-3), (Precision::Fp16, 8e-3), (Precision::Bf16, 6e-2)].map(|(precision, tolerance)| {
        let format = precision.format();
        let ours = computed(case, &Device::cuda(0), format, precision);
        assert_eq!(fault(), None, "{cell:?} {precision:?}, {rows} rows, {width} times, {hidden} wide");
        let theirs = computed(case, &Device::flex(), format, Precision::Fp32);
        let mut worst = 0.0_f32;
        for ((what, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            let off = off(ours, theirs);
            let told = format!("{what} of {cell:?} {precision:?}, {rows} rows, {width} times, {hidden} wide");
            assert!(off <= tolerance, "{told}: {off:e} off");
            worst = worst.max(off);
        }
        // The tape must not change the output.
        assert_eq!(ours[0].1, ours[1].1, "{cell:?} {precision:?}");
        worst
    })
}

#[test]
#[ignore = "needs a GPU"]
fn recurrent_layers_are_those_of_the_host_on_gpu() {
    for cell in [Cell::Lstm, Cell::Gru] {
        let mut worst = [0.0_f32; 3];
        for hidden in [8, 24, 512] {
            for width in [1, 2, 17] {
                for rows in [1, 3, 32] {
                    let off = compare(&Case { cell, rows, width, hidden });
                    worst = std::array::from_fn(|format| worst[format].max(off[format]));
                }
            }
        }
        println!("{cell:?}: {worst:?} off at most in fp32, fp16 and bf16");
    }
}

fn weights(cell: Cell, hidden: usize, precision: Precision, device: &Device) -> Weights {
    let gates = cell.gates() * hidden;
    let tensor = |seed, shape: [usize; 2]| moved(&values(seed, shape, 0.1, precision.format()), device);
    Weights {
        precision,
        input: precision.round(tensor(0, [INPUTS, gates])),
        hidden: precision.round(tensor(1, [hidden, gates])),
        biases: [2, 3].map(|seed| tensor(seed, [1, gates])),
    }
}

#[test]
#[ignore = "needs a GPU"]
fn recurrent_loops_run_as_a_whole_on_gpu() {
    let device = Device::cuda(0);
    for (cell, hidden) in [(Cell::Lstm, 512), (Cell::Gru, 512), (Cell::Lstm, 7), (Cell::Gru, 7)] {
        for precision in [Precision::Fp32, Precision::Fp16, Precision::Bf16] {
            let weights = weights(cell, hidden, precision, &device);
            let x = precision.round(moved(&values(10, [5 * 4, INPUTS], 1.0, FloatDType::F32), &device));
            let (answer, course) = weights.forward(cell, x.clone(), 5, true);
            // Not every version of the library supports odd widths in half precision.
            assert!(hidden % 8 != 0 || matches!(course, SavedStates::Whole(_)), "{cell:?} {precision:?}");
            let (gates, before) = weights.backward(answer.clone(), course);
            let (again, course) = weights.forward(cell, x, 5, true);
            assert_eq!(read(answer), read(again.clone()), "{cell:?} {precision:?}");
            let (gates_again, before_again) = weights.backward(again, course);
            assert_eq!(before.dtype(), precision.format().into());
            assert_eq!(gates.input.dtype(), precision.format().into());
            assert_eq!(read(before), read(before_again));
            assert_eq!(read(gates.input), read(gates_again.input), "{cell:?} {precision:?}");
            assert_eq!(read(gates.hidden), read(gates_again.hidden), "{cell:?} {precision:?}");
            assert_eq!(fault(), None);
        }
    }
}

#[test]
fn the_host_goes_through_time_step_by_step() {
    let weights = weights(Cell::Gru, 6, Precision::Fp32, &Device::flex());
    let x = values(10, [3 * 2, INPUTS], 1.0, FloatDType::F32);
    let (answer, course) = weights.forward(Cell::Gru, x, 3, true);
    assert!(matches!(&course, SavedStates::Steps(before, steps) if before.len() == 3 && steps.len() == 3));
    let (gates, before) = weights.backward(answer.clone(), course);
    assert_eq!((gates.input.dims(), gates.hidden.dims(), before.dims()), ([6, 18], [6, 18], [6, 6]));
    assert_eq!(read(before)[12..], read(answer)[..24]);
}
