//! The table of every key of the manifest, in the order in which axes vary: later ones faster, the seed fastest.
//!
//! Checks, expansion, the JSON Schema and the reference all read this table and nothing else.

use super::field::{Constant, Field, Interval, Kind, Preset, Role, When};

/// The models of the built-in trainer.
pub(super) const MODELS: &[&str] = &["linear", "softmax", "mnist_mlp", "mnist_cnn"];
/// Those that learn images.
pub(super) const IMAGE_MODELS: &[&str] = &["softmax", "mnist_mlp", "mnist_cnn"];
/// The samples of the `line` data, which are always learned together.
pub(super) const LINE_SAMPLES: i64 = 4;

const NAME: Kind = Kind::Text { max: 200, lines: false };
const PATH: Kind = Kind::Text { max: 4096, lines: false };
const POSITIVE: Kind = Kind::Int { min: 1, max: i64::MAX };
const SAMPLES: Kind = Kind::Int { min: 1, max: 1_000_000 };

const LINEAR: When = When { field: "model.name", is: &["linear"] };
const IMAGES: When = When { field: "model.name", is: IMAGE_MODELS };
const DIGITS: When = When { field: "data.name", is: &["digits"] };

use Field as F;

/// Every key of the manifest.
pub(super) static FIELDS: &[Field] = &[
    F::setting("name", NAME, "the experiment's name")
        .called("experiment.name")
        .preset(Preset::Stated("the file's name without `.toml`")),
    F::setting("description", Kind::Text { max: 10_000, lines: true }, "what the experiment asks, for people")
        .called("experiment.description"),
    F::hashed("seed", Kind::Seed, "seeds every random draw; a list repeats the grid for each seed")
        .role(Role::Seed)
        .int(1),
    F::shape("repeats", Kind::Int { min: 1, max: 1000 }, "how many finished attempts each run shall have").int(1),
    F::hashed("model.name", Kind::Known(MODELS), "the model; with `[program]` any name, or none").required(),
    F::hashed("model.initial_weight", Kind::Real(Interval::Any), "W before the first step")
        .real(0.3)
        .when("model.name", &["linear"]),
    F::hashed("model.initial_bias", Kind::Real(Interval::Any), "b before the first step")
        .real(-0.3)
        .when("model.name", &["linear"]),
    F::hashed("model.hidden", Kind::Int { min: 1, max: 65_536 }, "units of the hidden layer")
        .int(128)
        .when("model.name", &["mnist_mlp"]),
    F::hashed("model.dropout", Kind::Real(Interval::Below(1.0)), "share of units that a training step leaves out")
        .real(0.5)
        .when("model.name", &["mnist_cnn"]),
    F::hashed(
        "data.name",
        Kind::Known(&["line", "digits", "idx"]),
        "what is learned; `idx` reads files of MNIST's format",
    )
    .preset(Preset::By(&[(LINEAR, Constant::Text("line")), (IMAGES, Constant::Text("digits"))])),
    F::hashed("data.path", PATH, "folder of the IDX files; a relative path starts at the manifest's folder")
        .role(Role::Setting)
        .required()
        .when("data.name", &["idx"]),
    F::hashed("data.seed", Kind::Int { min: 0, max: i64::MAX }, "seeds the generator of the digits")
        .int(0)
        .when("data.name", &["digits"]),
    F::hashed("data.train_count", SAMPLES, "training samples; for `idx` the first ones of the file, all if absent")
        .preset(Preset::By(&[(DIGITS, Constant::Int(10_000))]))
        .when("data.name", &["digits", "idx"]),
    F::hashed("data.validation_count", Kind::Int { min: 0, max: 1_000_000 }, "samples split off the training file")
        .int(0)
        .when("data.name", &["idx"]),
    F::hashed("data.eval_count", SAMPLES, "samples of the evaluation").int(2000).when("data.name", &["digits"]),
    F::hashed("data.generator_version", POSITIVE, "version of the generator of the digits")
        .role(Role::Constant)
        .int(1)
        .when("data.name", &["digits"]),
    F::hashed("training.optimizer", Kind::Choice(&["sgd", "momentum", "adam"]), "how a step follows the gradient")
        .text("sgd"),
    F::hashed("training.momentum", Kind::Real(Interval::Below(1.0)), "share of the last step that is kept")
        .real(0.9)
        .when("training.optimizer", &["momentum"]),
    F::hashed("training.beta1", Kind::Real(Interval::Below(1.0)), "decay of the mean of gradients")
        .real(0.9)
        .when("training.optimizer", &["adam"]),
    F::hashed("training.beta2", Kind::Real(Interval::Below(1.0)), "decay of the mean of squared gradients")
        .real(0.999)
        .when("training.optimizer", &["adam"]),
    F::hashed("training.epsilon", Kind::Real(Interval::Positive), "added to the root of the mean square")
        .real(1e-8)
        .when("training.optimizer", &["adam"]),
    F::hashed("training.learning_rate", Kind::Real(Interval::Positive), "step size, before the schedule").required(),
    F::hashed("training.schedule", Kind::Choice(&["constant", "step", "cosine"]), "how the step size changes")
        .text("constant"),
    F::hashed("training.schedule_step_size", POSITIVE, "steps between two drops of the step size")
        .required()
        .when("training.schedule", &["step"]),
    F::hashed("training.schedule_gamma", Kind::Real(Interval::UpTo(1.0)), "factor of each drop")
        .real(0.1)
        .when("training.schedule", &["step"]),
    F::hashed("training.batch_size", Kind::Int { min: 1, max: 1_048_576 }, "samples of a step; `linear` takes only 4")
        .preset(Preset::By(&[(LINEAR, Constant::Int(LINE_SAMPLES)), (IMAGES, Constant::Int(64))])),
    F::hashed("training.epochs", POSITIVE, "passes over the training data; exactly one of `epochs` and `steps`"),
    F::hashed("training.steps", POSITIVE, "optimiser steps; exactly one of `epochs` and `steps`"),
    F::hashed("training.precision", Kind::Choice(&["fp32", "fp16", "bf16"]), "number format of the arithmetic")
        .text("fp32"),
    F::hashed("hardware.device", Kind::Choice(&["auto", "cuda", "cpu"]), "`auto` takes a CUDA GPU if there is one")
        .text("auto"),
    F::hashed("hardware.gpus", Kind::OneOf(&[1, 2, 4]), "number of GPUs; absent: one where the device is a GPU")
        .when("hardware.device", &["auto", "cuda"]),
    F::hashed("hardware.parallelism", Kind::Choice(&["none", "data", "pipeline"]), "how several GPUs share the work")
        .text("none"),
    F::hashed("hardware.power_limit_w", POSITIVE, "power limit of each GPU in watts"),
    F::hashed("hardware.sm_clock_mhz", POSITIVE, "locked clock of the multiprocessors in MHz"),
    F::hashed("hardware.memory_clock_mhz", POSITIVE, "locked clock of the memory in MHz"),
    F::hashed("container.image", NAME, "image that the worker runs in; `host` is none")
        .role(Role::Container)
        .text("host"),
    F::shape("program.command", Kind::Texts, "program and arguments; `{name}` stands for a field's value")
        .role(Role::Program)
        .required(),
    F::shape("program.files", Kind::Texts, "files whose contents enter the identity, from the manifest's folder")
        .role(Role::Program),
    F::hashed("params.*", Kind::Scalar, "a parameter of the program, under any name").when("[program]", &["given"]),
    F::setting("telemetry.hz", Kind::Int { min: 0, max: 100 }, "readings of each device a second; 0 is none").int(10),
    F::setting(
        "telemetry.idle_s",
        Kind::Real(Interval::Below(60.0)),
        "seconds of idling on the GPU before the built-in trainer starts, to measure the idle power",
    )
    .when("hardware.device", &["auto", "cuda"])
    .real(2.0),
    F::setting("limits.timeout_s", Kind::Real(Interval::UpTo(31_536_000.0)), "seconds after which an attempt is ended"),
    F::setting("objective.metric", NAME, "the number that decides which run is best"),
    F::setting("objective.direction", Kind::Choice(&["minimize", "maximize"]), "which way it is better")
        .preset(Preset::Stated("known for the metrics that every run records")),
    F::shape("grid.zip", Kind::Grid("a list of lists of keys"), "axes that vary together"),
    F::shape("grid.include", Kind::Grid("a list of tables"), "cells more: each entry replaces the axes that it names"),
    F::shape("grid.exclude", Kind::Grid("a list of tables"), "cells less: those that match all that an entry names"),
];

/// Looks a field up by its dotted name in the manifest; a parameter's name finds the row of all parameters.
pub(super) fn field(key: &str) -> Option<&'static Field> {
    let key = if key.starts_with("params.") { "params.*" } else { key };
    FIELDS.iter().find(|field| field.key == key)
}

/// The tables of the manifest, in the order of their first key.
pub(super) fn sections() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for field in FIELDS {
        let section = field.section();
        if !section.is_empty() && !names.contains(&section) {
            names.push(section);
        }
    }
    names
}
