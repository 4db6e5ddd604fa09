//! Stages as threads of the CPU, compared with one stage with the same micro-batches and with the whole model.

use crate::sample::{run_recorded, tiny_cell};
use ledger_record::{Cell, Value};

const MODELS: [&str; 4] = ["resnet50", "vgg16", "bert", "gpt2"];

fn with(mut cell: Cell, fields: &[(&str, Value)]) -> Cell {
    cell.config.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    cell
}

/// A cell whose steps are cut into micro-batches, for `stages` stages.
fn pipeline(cell: &Cell, stages: i64, micro_batches: i64) -> Cell {
    let cut = with(cell.clone(), &[("training.micro_batches", micro_batches.into())]);
    if stages == 1 {
        return cut;
    }
    with(cut, &[("hardware.cpu_ranks", stages.into()), ("hardware.parallelism", "pipeline".into())])
}

#[test]
fn several_stages_compute_what_one_stage_computes_with_dropout_and_batch_normalisation() {
    for model in MODELS {
        let cell = tiny_cell(model);
        let alone = run_recorded(&pipeline(&cell, 1, 4)).expect(model);
        assert_eq!(alone.facts["micro_batches"], Value::Int(4));
        assert!(!alone.facts.contains_key("stages"));
        for stages in [2, 4] {
            let recorded = run_recorded(&pipeline(&cell, stages, 4)).expect(model);
            let tied = ["bert", "gpt2"].contains(&model);
            for series in ["loss", "eval_loss", "eval_accuracy"] {
                // The gradients of a parameter on two stages are added in another order.
                let bound = if tied { 2e-6 } else { 0.0 };
                assert!(alone.apart(&recorded, series) <= bound, "{model} on {stages}: {series}");
            }
            assert_eq!(recorded.digests["weights"] == alone.digests["weights"], !tied, "{model} on {stages}");
            assert_eq!(recorded.digests["data"], alone.digests["data"]);
            assert_eq!(recorded.metrics["inference_batch_size"], 16.0, "{model}");
            let again = run_recorded(&pipeline(&cell, stages, 4)).expect(model);
            assert_eq!(recorded.digests, again.digests, "{model} on {stages}: the same bits every time");
        }
    }
}

#[test]
fn micro_batches_have_the_loss_of_the_batch_if_samples_are_independent() {
    for model in ["vgg16", "bert", "gpt2"] {
        let cell = with(tiny_cell(model), &[("model.dropout", 0.0.into())]);
        let whole = run_recorded(&cell).expect(model);
        for micro_batches in [1, 4, 5] {
            let recorded = run_recorded(&pipeline(&cell, 2, micro_batches)).expect(model);
            assert!(whole.apart(&recorded, "loss") <= 5e-6, "{model}: {}", whole.apart(&recorded, "loss"));
            assert!(whole.apart(&recorded, "eval_loss") <= 5e-6, "{model}");
        }
    }
}

#[test]
fn clipping_and_loss_scaling_are_the_same_on_all_stages() {
    for (model, precision) in [("gpt2", "fp32"), ("vgg16", "fp16")] {
        let fields = [("training.clip_norm", Value::from(0.5)), ("training.precision", precision.into())];
        let cell = with(tiny_cell(model), &fields);
        let alone = run_recorded(&pipeline(&cell, 1, 2)).expect(model);
        let recorded = run_recorded(&pipeline(&cell, 2, 2)).expect(model);
        assert!(alone.apart(&recorded, "loss") <= 1e-5, "{model}: {}", alone.apart(&recorded, "loss"));
        assert_eq!(alone.metrics.get("skipped_steps"), recorded.metrics.get("skipped_steps"), "{model}");
    }
}

#[test]
fn models_that_cannot_be_cut_are_refused() {
    let refused = |cell: &Cell| run_recorded(cell).expect_err("refused").to_string();
    let found = refused(&pipeline(&tiny_cell("lstm"), 2, 4));
    assert_eq!(
        found,
        "`training.micro_batches` is `4` (it must be absent: only `resnet50`, `vgg16`, `bert` and `gpt2` are cut into stages)"
    );
    let mut cell = pipeline(&tiny_cell("gpt2"), 2, 4);
    cell.config.insert("hardware.parallelism".to_owned(), "data".into());
    assert!(
        refused(&cell).starts_with("`hardware.parallelism` is `data` (it must be `pipeline`"),
        "{}",
        refused(&cell)
    );
}
