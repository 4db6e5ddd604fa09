//! Every published model through the whole loop, at its smallest size.

use crate::device::Place;
use crate::parameter_count;
use crate::sample::{RecordedRun, run_recorded, run_recorded_on, tiny_cell};
use burn::tensor::Device;
use ledger_record::{Cell, EventKind, PhaseEdge, Value};

const LEARNERS: [&str; 6] = ["resnet50", "vgg16", "lstm", "gru", "bert", "gpt2"];

const DETECTORS: [&str; 2] = ["yolov3", "maskrcnn"];

fn with(model: &str, fields: &[(&str, &str)]) -> Cell {
    let mut cell = tiny_cell(model);
    cell.config.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
    cell
}

#[test]
fn every_model_trains_is_evaluated_and_states_its_work() {
    for model in LEARNERS {
        let RecordedRun { series, metrics, digests, facts, .. } = run_recorded(&tiny_cell(model)).expect(model);
        assert_eq!(series["loss"].len(), 3, "{model}");
        assert!(
            series["loss"].iter().chain(&series["eval_loss"]).all(|loss| (0.5..20.0).contains(loss)),
            "{model}: {series:?}"
        );
        assert!((0.0..=1.0).contains(&metrics["accuracy"]), "{model}: {metrics:?}");
        assert_eq!(metrics["inference_batch_size"], 16.0, "{model}");
        let flops = metrics["flops_per_sample"];
        assert!(metrics["matmul_tflops"] > 0.0, "{model}: {metrics:?}");
        assert!((1e4..1e9).contains(&flops), "{model}: {flops}");
        assert!(digests.contains_key("weights") && digests.contains_key("data"), "{model}");
        let tokens = !["resnet50", "vgg16"].contains(&model);
        assert_eq!(metrics.get("tokens_per_sample"), tokens.then_some(&16.0), "{model}");
        assert_eq!(metrics.get("perplexity"), tokens.then_some(&metrics["eval_loss"].exp()), "{model}");
        let floor = facts.get("eval_loss_floor").and_then(|floor| floor.as_float());
        assert_eq!(floor.is_some(), tokens && model != "bert", "{model}");
        assert!(floor.is_none_or(|floor| metrics["eval_loss"] > floor), "{model}: {floor:?} of {metrics:?}");
    }
}

#[test]
fn every_detector_trains_is_evaluated_and_states_its_work() {
    for model in DETECTORS {
        let RecordedRun { series, metrics, digests, .. } = run_recorded(&tiny_cell(model)).expect(model);
        assert_eq!(series["loss"].len(), 3, "{model}");
        assert!(series["loss"].iter().all(|loss| (0.1..1e4).contains(loss)), "{model}: {series:?}");
        let precisions = ["accuracy", "box_ap_50", "box_ap_75", "mask_ap", "mask_ap_50", "mask_ap_75"];
        let recorded = precisions.map(|name| metrics.get(name).is_some_and(|ap| (0.0..=1.0).contains(ap)));
        assert_eq!(
            recorded,
            [true, true, true, model == "maskrcnn", model == "maskrcnn", model == "maskrcnn"],
            "{model}"
        );
        assert!((1e5..1e10).contains(&metrics["flops_per_sample"]), "{model}: {metrics:?}");
        assert!(digests.contains_key("weights") && digests.contains_key("data"), "{model}");
    }
}

#[test]
fn batches_of_each_size_are_answered_in_a_phase_of_their_own() {
    for model in ["lstm", "dqn"] {
        let mut cell = tiny_cell(model);
        cell.config.insert("inference.batch_sizes".to_owned(), Value::List(vec![100_i64.into(), 1_i64.into()]));
        let recorded = run_recorded(&cell).expect(model);
        assert_eq!(recorded.metrics["inference_batch_size"], 100.0, "{model}");
        let mut sizes: Vec<(u64, usize)> = Vec::new();
        for event in &recorded.events {
            match event {
                EventKind::Phase { name, index, edge: PhaseEdge::Start } if name == "inference_batch" => {
                    sizes.push((*index, 0));
                }
                EventKind::Phase { name, edge: PhaseEdge::Start, .. } if name == "inference" => {
                    sizes.last_mut().expect("within a size").1 += 1;
                }
                _ => {}
            }
        }
        // The batch may have more rows than there are evaluation samples. By the test's clock ten batches are enough.
        assert_eq!(sizes.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [100, 1], "{model}");
        assert!(sizes.iter().all(|(_, answers)| *answers >= 10), "{model}: {sizes:?}");
    }
}

#[test]
fn an_agent_acts_learns_and_plays_a_hundred_episodes() {
    let recorded = run_recorded(&tiny_cell("dqn")).expect("trains");
    assert_eq!(recorded.series["loss"].len(), 3);
    assert!((8.0..=500.0).contains(&recorded.metrics["mean_return"]), "{:?}", recorded.metrics);
    assert_eq!(recorded.facts["best_possible_return"], 500.0.into());
    assert!(!recorded.metrics.contains_key("accuracy") && !recorded.metrics.contains_key("eval_loss"));
}

#[test]
fn other_number_formats_give_nearly_the_same_losses() {
    for model in ["resnet50", "lstm", "gpt2", "dqn"] {
        let losses = |precision| run_recorded(&with(model, &[("training.precision", precision)])).expect(model);
        let exact = losses("fp32");
        assert!(!exact.metrics.contains_key("skipped_steps"));
        for (precision, bound) in [("bf16", 0.03), ("fp16", 0.005)] {
            let rounded = losses(precision);
            let pairs: Vec<_> = rounded.series["loss"].iter().zip(&exact.series["loss"]).collect();
            assert!((pairs[0].0 - pairs[0].1).abs() <= bound * pairs[0].1 + 1e-4, "{model} in {precision}: {pairs:?}");
            // Each step builds on the rounding of the previous ones, and batch normalisation of few samples amplifies
            // it.
            assert!(
                pairs.iter().all(|(a, b)| (*a - *b).abs() <= 0.15 * *b + 1e-4),
                "{model} in {precision}: {pairs:?}"
            );
            assert_ne!(rounded.digests["weights"], exact.digests["weights"], "{model} in {precision}");
        }
    }
}

#[test]
fn a_step_with_an_overflowing_gradient_is_skipped_and_counted() {
    let mut wild = with("lstm", &[("training.precision", "fp16"), ("training.optimizer", "sgd")]);
    // After the first step the weights exceed binary16, and all gradients become non-finite.
    wild.config.insert("training.learning_rate".to_owned(), 1e12.into());
    let recorded = run_recorded(&wild).expect("a finished run");
    assert_eq!(recorded.metrics["skipped_steps"], 2.0, "{:?}", recorded.series);
}

#[test]
fn clipping_and_warm_up_slow_the_first_steps_down() {
    let mut slow = with("lstm", &[("training.optimizer", "sgd")]);
    slow.config.insert("training.learning_rate".to_owned(), 1.0.into());
    let weights = |cell: &Cell| run_recorded(cell).expect("trains").series["loss"].clone();
    let plain = weights(&slow);
    for (field, value) in [("training.warmup_steps", 100_i64.into()), ("training.clip_norm", 1e-6.into())] {
        let mut cell = slow.clone();
        cell.config.insert(field.to_owned(), value);
        let found = weights(&cell);
        assert_eq!(found[0], plain[0], "{field}");
        assert!(found[2] > plain[2] + 1e-3, "{field}: {found:?} and {plain:?}");
    }
}

#[test]
fn too_many_classes_and_too_few_samples_are_refused() {
    let fault = |cell: &Cell| run_recorded(cell).expect_err("refused").to_string();
    let mut cell = tiny_cell("resnet50");
    cell.config.insert("model.classes".to_owned(), 9_i64.into());
    assert_eq!(fault(&cell), "the data have 10 classes, but `model.classes` is 9 (raise it)");
    let mut cell = tiny_cell("resnet50");
    cell.config.insert("training.batch_size".to_owned(), 49_i64.into());
    assert!(fault(&cell).contains("the data have 48 training samples"));
    let mut cell = tiny_cell("gpt2");
    cell.config.insert("data.name".to_owned(), "shapes".into());
    assert_eq!(
        fault(&cell),
        "`model.name` `gpt2` cannot learn from `data.name` `shapes` (it takes `grammar` or `text`)"
    );
}

#[test]
fn full_models_have_the_published_number_of_parameters() {
    let published: [(&str, i64, u64); 6] = [
        ("resnet50", 1000, 25_557_032),
        ("vgg16", 1000, 138_357_544),
        ("lstm", 10_000, 11_368_208),
        ("gru", 10_000, 10_448_656),
        ("bert", 30_522, 109_514_298),
        ("gpt2", 50_257, 124_439_808),
    ];
    for (model, classes, count) in published {
        let mut cell = with(model, &[("model.size", "full")]);
        cell.config.insert("model.classes".to_owned(), classes.into());
        assert_eq!(parameter_count(&cell).expect(model), count, "{model}");
    }
    for (model, classes, count) in [("yolov3", 80_i64, 61_949_149), ("maskrcnn", 90, 44_401_393)] {
        let mut cell = with(model, &[("model.size", "full")]);
        cell.config.insert("model.classes".to_owned(), classes.into());
        cell.config.insert("data.name".to_owned(), "coco".into());
        cell.config.insert("data.path".to_owned(), "nowhere".into());
        assert_eq!(parameter_count(&cell).expect(model), count, "{model}");
    }
    assert_eq!(parameter_count(&tiny_cell("dqn")).expect("valid"), 17_410);
    let mut catch = with("dqn", &[("data.name", "catch")]);
    catch.config.insert("data.actions".to_owned(), 4_i64.into());
    assert_eq!(parameter_count(&catch).expect("valid"), 1_686_180);
}

#[test]
fn a_device_with_a_queue_has_the_losses_of_the_host() {
    for model in LEARNERS.into_iter().chain(DETECTORS).chain(["dqn"]) {
        // Optimisers of host and device round differently. In a detector a box near a threshold may then be chosen on
        // one of them only. That also depends on the processor's vector instructions.
        let detects = DETECTORS.contains(&model);
        let close = if detects { 3e-2 } else { 1e-3 };
        let cell = tiny_cell(model);
        let host = run_recorded(&cell).expect(model);
        let device = run_recorded_on(&Place::Device(Device::flex()), &cell).expect(model);
        for name in ["loss", "eval_loss", "eval_accuracy", "eval_mean_return"] {
            let [host, device] =
                [&host, &device].map(|recorded| recorded.series.get(name).cloned().unwrap_or_default());
            assert_eq!(host.len(), device.len(), "{model}: {name}");
            if detects && name == "eval_accuracy" {
                continue;
            }
            for (host, device) in host.iter().zip(&device) {
                assert!((host - device).abs() <= close * host.abs(), "{model}: {name} {device}, the host's {host}");
            }
        }
    }
}
