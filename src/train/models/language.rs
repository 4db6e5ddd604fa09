//! Tests that all language models share.

use super::bert::Bert;
use super::gpt2::Gpt2;
use super::learning::{batch_loss, learned};
use super::parity::{agree, below, computed, tokens, traced};
use super::recurrent::Recurrent;
use super::{Input, Model};
use crate::forward_context::{ForwardContext, ModelState, int_tensor};
use crate::layers::{Cell, cross_entropy};
use crate::number::{real_len, single};
use crate::parameters::{Index, count, initial};
use crate::precision::Precision;
use burn::tensor::{Device, Tensor, TensorData};
use std::collections::BTreeMap;

const VOCABULARY: usize = 61;
const CONTEXT: usize = 9;
const SHAPE: [usize; 2] = [3, 7];

fn bert() -> Bert {
    Bert { dropout: 0.0, ..Bert::tiny(VOCABULARY, CONTEXT) }
}

fn gpt2() -> Gpt2 {
    Gpt2 { dropout: 0.0, ..Gpt2::tiny(VOCABULARY, CONTEXT) }
}

/// Every tiny model, without dropout.
fn tiny() -> [(&'static str, Box<dyn Model>); 4] {
    let recurrent = |cell| Box::new(Recurrent::tiny(cell, VOCABULARY));
    [
        ("bert", Box::new(bert())),
        ("gpt2", Box::new(gpt2())),
        ("lstm", recurrent(Cell::Lstm)),
        ("gru", recurrent(Cell::Gru)),
    ]
}

/// The results of a training step over tokens from the parity formula; every third position has no target.
fn step(model: &dyn Model, shape: [usize; 2], precision: Precision) -> BTreeMap<String, Vec<f64>> {
    let bound = i32::try_from(model.classes()).expect("few");
    let mut targets = below("targets", shape[0] * shape[1], bound);
    targets.iter_mut().step_by(3).for_each(|target| *target = -1);
    computed(model, tokens(shape, bound), &targets, true, precision)
}

/// A model with initial parameters.
struct Trained<'a> {
    model: &'a dyn Model,
    index: Index,
    parameters: Vec<Tensor<1>>,
}

impl<'a> Trained<'a> {
    fn new(model: &'a dyn Model) -> Self {
        let param_specs = model.param_specs();
        let tensor = |values: Vec<f32>| Tensor::from_data(TensorData::from(values.as_slice()), &Device::flex());
        let parameters = initial(&param_specs, 1).into_iter().map(tensor).collect();
        Self { model, index: Index::new(&param_specs), parameters }
    }

    /// The logits [position][class] for rows of tokens: of training step `training`, or of inference if `None`.
    fn answers(&self, tokens: &[i32], shape: [usize; 2], training: Option<u64>) -> Vec<Vec<f32>> {
        let (device, none) = (Device::flex(), Index::default());
        let leaves: Vec<Tensor<1>> = self.parameters.iter().cloned().map(Tensor::from_inner).collect();
        let parameters = if training.is_some() { &leaves } else { &self.parameters };
        let state = ModelState {
            index: &self.index,
            parameters,
            statistics: &none,
            running: &mut [],
            precision: Precision::Fp32,
            device: device.clone(),
        };
        let mut ctx = match training {
            Some(step) => ForwardContext::training(state, 1, step),
            None => ForwardContext::inference(state),
        };
        let tokens = ctx.indices(int_tensor(tokens, shape, &device));
        let answers = self.model.forward(&mut ctx, Input::Tokens(tokens));
        let [positions, columns] = answers.dims();
        assert_eq!(positions, shape[0] * shape[1]);
        let answers: Vec<f32> = ctx.off_tape(answers).try_into_vec_as().expect("readable");
        answers.chunks(columns).map(|row| row[..self.model.classes()].to_vec()).collect()
    }
}

#[test]
fn models_have_the_parameters_of_the_published_ones() {
    assert_eq!(count(&Bert::base(30_522, 512).param_specs()), 109_514_298);
    assert_eq!(count(&Gpt2::small(50_257, 1024).param_specs()), 124_439_808);
    assert_eq!(count(&Recurrent::lstm(10_000).param_specs()), 11_368_208);
    assert_eq!(count(&Recurrent::gru(10_000).param_specs()), 10_448_656);
}

#[test]
fn selecting_the_positions_with_targets_changes_neither_loss_nor_gradients() {
    let model = bert();
    let ([rows, width], classes) = (SHAPE, model.classes());
    let asked = [1, 4, 7, 7 + 5, 14 + 2, 14];
    let right = [3, 60, 0, 17, 5, -1];
    let mut all = vec![-1; rows * width];
    asked.iter().zip(right).for_each(|(position, class)| all[*position] = class);
    let step = |some: bool| {
        let step = |ctx: &mut ForwardContext<'_>| {
            let targets: &[i32] = if some { &right } else { &all };
            if some {
                ctx.select_positions(int_tensor(
                    &asked.map(|position| i32::try_from(position).expect("small")),
                    [6],
                    ctx.device(),
                ));
            }
            let input = tokens(SHAPE, i32::try_from(classes).expect("few"));
            let Input::Tokens(ids) = input else { panic!("tokens") };
            let answers = model.forward(ctx, Input::Tokens(ctx.indices(ids)));
            assert_eq!(answers.dims()[0], targets.len());
            let targets = ctx.indices(int_tensor(targets, [targets.len()], ctx.device()));
            let loss = cross_entropy(ctx, answers, targets, [classes, 5]);
            [loss.clone(), loss]
        };
        traced([&model.param_specs(), &model.statistics()], step, true, Precision::Fp32)
    };
    let (some, every) = (step(true), step(false));
    let largest = every.values().map(|values| values[0].abs()).fold(0.0, f64::max);
    for (name, values) in &every {
        for (value, other) in values.iter().zip(&some[name]) {
            let near = 1e-5 * values[0].abs().max(1e-3 * largest);
            assert!((value - other).abs() <= near, "{name}: {value} of all and {other} of some");
        }
    }
}

#[test]
fn selecting_positions_lowers_the_operations_of_the_head() {
    // 12 layers as below; then 2·19·768·(768 + 30522).
    assert_eq!(Bert::base(30_522, 512).flops_at_positions(128, 19), 23_260_419_072);
    let (all, gpt2) = (Bert::tiny(61, 9).forward_flops(7), Gpt2::tiny(61, 9));
    assert_eq!(Bert::tiny(61, 9).flops_at_positions(7, 7), all);
    assert_eq!(gpt2.flops_at_positions(7, 3), gpt2.forward_flops(7));
}

#[test]
fn operation_counts_match_a_count_by_hand() {
    // 12 layers of 2·128·4·768² + 4·128²·768 + 4·128·768·3072, then 2·128·768·(768 + 30522).
    assert_eq!(Bert::base(30_522, 512).forward_flops(128), 28_499_116_032);
    // 12 layers of 2·512·4·768² + 4·512²·768 + 16·512·768², then 2·512·768·50257.
    assert_eq!(Gpt2::small(50_257, 1024).forward_flops(512), 136_160_477_184);
    // 2·128·(2048·(256 + 512) + 2048·(512 + 512) + 512·10000), and 1536 instead of 2048.
    assert_eq!(Recurrent::lstm(10_000).forward_flops(128), 2_250_244_096);
    assert_eq!(Recurrent::gru(10_000).forward_flops(128), 2_015_363_072);
}

#[test]
fn tiny_models_compute_what_the_reference_computes() {
    let files = [
        include_str!("../../../tests/parity/bert_tiny.txt"),
        include_str!("../../../tests/parity/gpt2_tiny.txt"),
        include_str!("../../../tests/parity/lstm_tiny.txt"),
        include_str!("../../../tests/parity/gru_tiny.txt"),
    ];
    for ((_, model), file) in tiny().into_iter().zip(files) {
        agree(&step(&*model, SHAPE, Precision::Fp32), file, 1e-4);
    }
}

#[test]
#[ignore = "20 seconds and gigabytes"]
fn bert_base_computes_what_the_reference_computes() {
    let model = Bert { dropout: 0.0, ..Bert::base(30_522, 512) };
    agree(&step(&model, [2, 16], Precision::Fp32), include_str!("../../../tests/parity/bert_base.txt"), 1e-4);
}

#[test]
#[ignore = "20 seconds and gigabytes"]
fn gpt2_small_computes_what_the_reference_computes() {
    let model = Gpt2 { dropout: 0.0, ..Gpt2::small(50_257, 1024) };
    agree(&step(&model, [2, 16], Precision::Fp32), include_str!("../../../tests/parity/gpt2_small.txt"), 1e-4);
}

#[test]
#[ignore = "a second of all cores"]
fn recurrent_models_compute_what_the_reference_computes() {
    let lstm = step(&Recurrent::lstm(10_000), [2, 16], Precision::Fp32);
    agree(&lstm, include_str!("../../../tests/parity/lstm.txt"), 1e-4);
    let gru = step(&Recurrent::gru(10_000), [2, 16], Precision::Fp32);
    agree(&gru, include_str!("../../../tests/parity/gru.txt"), 1e-4);
}

#[test]
fn half_precision_is_near_single_precision() {
    for (name, model) in tiny() {
        let exact = step(&*model, SHAPE, Precision::Fp32);
        let largest = exact.iter().filter(|(name, _)| *name != "answers").map(|(_, v)| v[0]).fold(0.0, f64::max);
        for (precision, bound) in [(Precision::Bf16, 0.05), (Precision::Fp16, 0.01)] {
            let rounded = step(&*model, SHAPE, precision);
            assert_ne!(rounded["answers"], exact["answers"], "{name}: nothing was rounded");
            for (part, values) in rounded {
                let (found, expected) = (values[0], exact[&part][0]);
                let off = (found - expected).abs() / expected.max(0.1 * largest);
                assert!(off < bound, "{name} in {precision:?}: {part} is {found}, in single precision {expected}");
            }
        }
    }
}

#[test]
fn only_bert_attends_to_later_tokens() {
    let [rows, width] = SHAPE;
    let before = below("input", rows * width, 61);
    // The sixth of the second row's seven tokens.
    let changed = width + 5;
    let mut after = before.clone();
    after[changed] = (after[changed] + 1) % 61;
    for (name, model) in tiny() {
        let trained = Trained::new(&*model);
        let [before, after] = [&before, &after].map(|tokens| trained.answers(tokens, SHAPE, None));
        for position in 0..rows * width {
            let expected = match name {
                "bert" => (width..2 * width).contains(&position),
                _ => (changed..2 * width).contains(&position),
            };
            assert_eq!(before[position] != after[position], expected, "{name}: position {position}");
        }
    }
}

#[test]
fn the_logits_of_a_row_do_not_depend_on_other_rows() {
    let [rows, width] = SHAPE;
    let ids = below("input", rows * width, 61);
    for (name, model) in tiny() {
        let trained = Trained::new(&*model);
        let together = trained.answers(&ids, SHAPE, None);
        let alone = trained.answers(&ids[width..2 * width], [1, width], None);
        for (a, b) in together[width..2 * width].concat().iter().zip(alone.concat()) {
            assert!((a - b).abs() < 1e-5, "{name}: {a} beside others, {b} alone");
        }
    }
}

#[test]
fn dropout_applies_in_training_only_and_differs_between_steps() {
    let ids = below("input", SHAPE[0] * SHAPE[1], 61);
    let models: [Box<dyn Model>; 2] =
        [Box::new(Bert::tiny(VOCABULARY, CONTEXT)), Box::new(Gpt2::tiny(VOCABULARY, CONTEXT))];
    for model in models {
        let trained = Trained::new(&*model);
        let answers = |training| trained.answers(&ids, SHAPE, training);
        assert_eq!(answers(None), answers(None));
        assert_eq!(answers(Some(1)), answers(Some(1)));
        assert_ne!(answers(Some(1)), answers(None));
        assert_ne!(answers(Some(1)), answers(Some(2)));
    }
}

#[test]
fn without_dropout_training_and_inference_give_the_same_logits() {
    let ids = below("input", SHAPE[0] * SHAPE[1], 61);
    for (name, model) in tiny() {
        let trained = Trained::new(&*model);
        let [trains, answers] = [Some(1), None].map(|training| trained.answers(&ids, SHAPE, training).concat());
        for (a, b) in trains.iter().zip(&answers) {
            assert!((a - b).abs() < 1e-5, "{name}: {a} in training, {b} otherwise");
        }
    }
}

#[test]
fn tiny_models_overfit_one_batch() {
    let [rows, width] = SHAPE;
    let ids = below("input", rows * width, 61);
    let targets = below("targets", rows * width, 61);
    let input = Input::Tokens(int_tensor(&ids, SHAPE, &Device::flex()));
    for (name, model) in tiny() {
        let mut loss = batch_loss(&*model, &input, &targets);
        let losses = learned([&model.param_specs(), &model.statistics()], &mut loss, 201, [0.02, 0.99]).losses;
        let (first, last) = (losses[0], losses[200]);
        let chance = single(real_len(VOCABULARY).ln());
        assert!((first - chance).abs() < 0.5, "{name} starts at {first}, and chance is {chance}");
        assert!(last < 0.1, "{name} went from {first} to {last}");
    }
}
