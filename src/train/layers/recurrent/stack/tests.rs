use super::*;
use crate::forward_context::ModelState;
use crate::layers::recurrent::{recurrent_specs, recurrent_stack};
use crate::native::dnn::places;
use crate::native::fault;
use crate::number::{real_len, single};
use crate::parameters::{Index, Init, ParamSpec, initial};
use crate::sample_tensors::{off, read};
use burn::tensor::{Device, FloatDType, TensorData};

#[derive(Clone, Copy, Debug)]
struct Case {
    cell: Cell,
    layers: usize,
    rows: usize,
    width: usize,
    inputs: usize,
    hidden: usize,
}

const REAL: Case = Case { cell: Cell::Lstm, layers: 2, rows: 32, width: 128, inputs: 256, hidden: 512 };
const ODD: Case = Case { cell: Cell::Lstm, layers: 2, rows: 3, width: 5, inputs: 10, hidden: 12 };

/// Random numbers that the number format represents exactly, so that all devices and formats get the same inputs.
fn values(seed: u64, length: usize, bound: f32, format: FloatDType) -> Vec<f32> {
    let values = initial(&[ParamSpec::new("values", &[length], Init::Uniform(bound))], seed).remove(0);
    let values = Tensor::<1>::from_data(TensorData::from(values.as_slice()), &Device::flex());
    read(values.cast(format))
}

fn on<const D: usize>(device: &Device, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

impl Case {
    fn param_specs(&self) -> Vec<ParamSpec> {
        let of_layer = |layer| {
            let inputs = if layer == 0 { self.inputs } else { self.hidden };
            recurrent_specs("rnn", layer, self.cell, [inputs, self.hidden])
        };
        (0..self.layers).flat_map(of_layer).collect()
    }

    /// The parameters, the inputs and the gradient of the output.
    fn given(&self, format: FloatDType) -> (Vec<Vec<f32>>, Vec<f32>, Vec<f32>) {
        let bound = single(1.0 / real_len(self.hidden).sqrt());
        let param_specs = self.param_specs();
        let parameters =
            (0..).zip(&param_specs).map(|(seed, param_spec)| values(seed, param_spec.len(), bound, format)).collect();
        let all = self.width * self.rows;
        (parameters, values(100, all * self.inputs, 1.0, format), values(101, all * self.hidden, 1.0, format))
    }

    /// The output of `stack` without a tape and with one, and the gradients of the inputs and of all parameters.
    fn computed(
        &self,
        device: &Device,
        (format, precision): (FloatDType, Precision),
        stack: impl Fn(&ForwardContext<'_>, Tensor<2>) -> Tensor<2>,
    ) -> Vec<(String, Vec<f32>)> {
        let (param_specs, all) = (self.param_specs(), self.width * self.rows);
        let (parameters, x, slope) = self.given(format);
        let flat: Vec<Tensor<1>> = parameters
            .into_iter()
            .map(|values| {
                let length = values.len();
                on(device, values, [length])
            })
            .collect();
        let (x, slope) = (on(device, x, [all, self.inputs]), on(device, slope, [all, self.hidden]));
        let (index, none) = (Index::new(&param_specs), Index::default());
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
        let plain = stack(&ctx(&flat, false), x.clone());
        let leaves: Vec<Tensor<1>> = flat.iter().map(|flat| Tensor::from_inner(flat.clone()).require_grad()).collect();
        let x = Tensor::from_inner(x).require_grad();
        let answer = stack(&ctx(&leaves, true), x.clone());
        let exact = answer.clone().cast(FloatDType::F32);
        let mut tape = (exact * Tensor::from_inner(slope)).sum().backward();
        let mut found =
            vec![("answer without a tape".to_owned(), read(plain)), ("answer".to_owned(), read(answer.inner()))];
        found.push(("x".to_owned(), read(x.grad_remove(&mut tape).expect("on the tape"))));
        for (param_spec, leaf) in param_specs.iter().zip(&leaves) {
            found.push((param_spec.name.clone(), read(leaf.grad_remove(&mut tape).expect("on the tape"))));
        }
        found
    }

    /// The results of cuDNN.
    fn on_card(&self, precision: Precision, tf32: bool) -> Vec<(String, Vec<f32>)> {
        let Self { cell, layers, width, .. } = *self;
        let found = self.computed(&Device::cuda(0), (precision.format(), precision), |ctx, x| {
            let answer = stack_in(ctx, "rnn", layers, cell, &x, (width, tf32));
            answer.unwrap_or_else(|| panic!("cuDNN does not take {self:?} in {precision:?}"))
        });
        assert_eq!(fault(), None, "{self:?} {precision:?}");
        found
    }

    /// The results of the host in float32, from inputs in `format`.
    fn on_host(&self, format: FloatDType) -> Vec<(String, Vec<f32>)> {
        self.computed(&Device::flex(), (format, Precision::Fp32), |ctx, x| {
            recurrent_stack(ctx, "rnn", self.layers, self.cell, x, self.width)
        })
    }

    /// Compares the results of cuDNN with those of the host and prints the largest difference.
    fn compare(&self) {
        let modes = [
            (Precision::Fp32, false, 1e-4),
            (Precision::Fp32, true, 6e-3),
            // States, cell states and gradients are rounded at every time step.
            (Precision::Fp16, true, 1.5e-2),
            (Precision::Bf16, true, 1e-1),
        ];
        for (precision, tf32, tolerance) in modes {
            let (ours, theirs) = (self.on_card(precision, tf32), self.on_host(precision.format()));
            let mut worst = (0.0_f32, "");
            for ((what, ours), (_, theirs)) in ours.iter().zip(&theirs) {
                let off = off(ours, theirs);
                assert!(off <= tolerance, "{what} of {self:?} {precision:?}, TF32 {tf32}: {off:e} off");
                worst = if off > worst.0 { (off, what) } else { worst };
            }
            println!("{self:?} {precision:?}, TF32 {tf32}: {:.1e} off at most ({})", worst.0, worst.1);
        }
    }
}

/// A stack by the equations of cuDNN's documentation, in float64. Each gate has a matrix for the input and one for the
/// previous state, with a row per feature of the state, and a bias for each.
fn published(case: &Case, weights: &[f64], x: &[f32]) -> Vec<f64> {
    let Case { cell, layers, rows, width, inputs, hidden } = *case;
    let places = places(cell, layers, [inputs, hidden]);
    let mut below: Vec<Vec<f64>> =
        x.chunks(inputs).map(|row| row.iter().map(|value| f64::from(*value)).collect()).collect();
    for of_layer in places.chunks(4) {
        let [of_input, of_state, bias_input, bias_state] = of_layer else { panic!("four to a layer") };
        let gate = |number: usize, feature: usize, from: &[f64], weight: usize, bias: usize| -> f64 {
            let row = weight + (number * hidden + feature) * from.len();
            let product: f64 =
                weights[row..row + from.len()].iter().zip(from).map(|(weight, value)| weight * value).sum();
            product + weights[bias + number * hidden + feature]
        };
        let sigmoid = |value: f64| 1.0 / (1.0 + (-value).exp());
        let mut states = vec![vec![0.0; hidden]; rows];
        let mut memories = states.clone();
        let mut above = Vec::new();
        for time in 0..width {
            for row in 0..rows {
                let (from, before) = (&below[time * rows + row], states[row].clone());
                for feature in 0..hidden {
                    let given = |number| gate(number, feature, from, of_input.start, bias_input.start);
                    let kept = |number| gate(number, feature, &before, of_state.start, bias_state.start);
                    let sum = |number| given(number) + kept(number);
                    states[row][feature] = match cell {
                        Cell::Lstm => {
                            let [input, forget, output] = [0, 1, 3].map(|number| sigmoid(sum(number)));
                            memories[row][feature] = forget * memories[row][feature] + input * sum(2).tanh();
                            output * memories[row][feature].tanh()
                        }
                        Cell::Gru => {
                            let [reset, update] = [0, 1].map(|number| sigmoid(sum(number)));
                            let new = (given(2) + reset * kept(2)).tanh();
                            (1.0 - update) * new + update * before[feature]
                        }
                    };
                }
                above.push(states[row].clone());
            }
        }
        below = above;
    }
    below.concat()
}

#[test]
fn the_cudnn_weight_layout_matches_its_equations() {
    for cell in [Cell::Lstm, Cell::Gru] {
        for layers in [1, 2, 3] {
            let case = Case { cell, layers, ..ODD };
            let (parameters, x, _) = case.given(FloatDType::F32);
            let places = places(cell, layers, [case.inputs, case.hidden]);
            let mut weights = vec![f64::NAN; parameters.iter().map(Vec::len).sum()];
            for (place, parameter) in places.iter().zip(&parameters) {
                for row in 0..place.rows {
                    for column in 0..place.columns {
                        weights[place.start + row * place.columns + column] =
                            f64::from(parameter[column * place.rows + row]);
                    }
                }
            }
            let expected: Vec<f32> = published(&case, &weights, &x).into_iter().map(single).collect();
            let found = case.on_host(FloatDType::F32);
            for (what, found) in &found[..2] {
                assert!(off(found, &expected) < 1e-5, "{what} of {case:?}");
            }
        }
    }
}

#[test]
fn the_host_has_a_gradient_for_every_parameter_of_a_stack() {
    for cell in [Cell::Lstm, Cell::Gru] {
        let case = Case { cell, ..ODD };
        let found = case.on_host(FloatDType::F32);
        let lengths: Vec<usize> = found[3..].iter().map(|(_, gradient)| gradient.len()).collect();
        assert_eq!(lengths, case.param_specs().iter().map(ParamSpec::len).collect::<Vec<_>>());
        assert!(found.iter().all(|(_, values)| values.iter().any(|value| *value != 0.0)), "{cell:?}");
        assert_eq!(found[0].1, found[1].1, "{cell:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn stacks_are_those_of_the_host_on_gpu() {
    for cell in [Cell::Lstm, Cell::Gru] {
        for layers in [1, 2] {
            Case { cell, layers, ..ODD }.compare();
        }
        Case { cell, rows: 1, width: 1, hidden: 7, inputs: 1, ..ODD }.compare();
        Case { cell, rows: 32, width: 17, hidden: 64, inputs: 40, layers: 3 }.compare();
        Case { cell, ..REAL }.compare();
    }
}

#[test]
#[ignore = "needs a GPU"]
fn stacks_are_the_same_five_times_on_gpu() {
    for cell in [Cell::Lstm, Cell::Gru] {
        for case in [Case { cell, ..ODD }, Case { cell, ..REAL }] {
            for (precision, tf32) in
                [(Precision::Fp32, false), (Precision::Fp32, true), (Precision::Fp16, true), (Precision::Bf16, true)]
            {
                let first = case.on_card(precision, tf32);
                for time in 1..5 {
                    for ((what, first), (_, again)) in first.iter().zip(case.on_card(precision, tf32)) {
                        assert!(*first == again, "{what} of {case:?} {precision:?}, TF32 {tf32}, time {time}");
                    }
                }
            }
        }
    }
}
