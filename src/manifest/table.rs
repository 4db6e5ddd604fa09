//! The table of all keys of the manifest, in the order in which axes vary: later ones faster, the seed fastest.
//!
//! Checks, expansion, JSON Schema and reference are all derived from this table.

use super::field::{Constant, Field, Interval, Kind, Preset, Role, When};
use super::program::ProgramIdentity;
use super::slurm;

/// The models of the built-in trainer.
pub(super) const MODELS: &[&str] = &[
    "linear",
    "softmax",
    "mnist_mlp",
    "mnist_cnn",
    "resnet50",
    "vgg16",
    "lstm",
    "gru",
    "bert",
    "gpt2",
    "dqn",
    "yolov3",
    "maskrcnn",
];
const DIGIT_MODELS: &[&str] = &["softmax", "mnist_mlp", "mnist_cnn"];
const PICTURE_MODELS: &[&str] = &["resnet50", "vgg16"];
const TEXT_MODELS: &[&str] = &["lstm", "gru", "bert", "gpt2"];
/// Object detectors.
pub(super) const OBJECT_MODELS: &[&str] = &["yolov3", "maskrcnn"];
/// Models that can be split into pipeline stages.
pub(super) const STAGED_MODELS: &[&str] = &["resnet50", "vgg16", "bert", "gpt2"];
/// Models that cannot be split.
pub(super) const WHOLE_MODELS: &[&str] =
    &["linear", "softmax", "mnist_mlp", "mnist_cnn", "lstm", "gru", "dqn", "yolov3", "maskrcnn"];
const PUBLISHED_MODELS: &[&str] = &["resnet50", "vgg16", "lstm", "gru", "bert", "gpt2", "dqn", "yolov3", "maskrcnn"];
/// Models with a tiny variant and a variable number of classes.
const SIZED_MODELS: &[&str] = &["resnet50", "vgg16", "lstm", "gru", "bert", "gpt2", "yolov3", "maskrcnn"];
/// Models that are evaluated.
const EVALUATED_MODELS: &[&str] = &[
    "softmax",
    "mnist_mlp",
    "mnist_cnn",
    "resnet50",
    "vgg16",
    "lstm",
    "gru",
    "bert",
    "gpt2",
    "dqn",
    "yolov3",
    "maskrcnn",
];
/// Which models can be trained on which data.
pub(super) const LEARNABLE: &[(&[&str], &[&str])] = &[
    (&["linear"], &["line"]),
    (DIGIT_MODELS, &["digits", "idx"]),
    (PICTURE_MODELS, &["shapes", "cifar10", "folder"]),
    (TEXT_MODELS, &["grammar", "text"]),
    (&["dqn"], &["cartpole", "catch"]),
    (OBJECT_MODELS, &["scenes", "coco"]),
];
/// The small models, which support only float32.
pub(super) const SMALL_MODELS: &[&str] = &["linear", "softmax", "mnist_mlp", "mnist_cnn"];
/// Whether all attempts must give the same bits.
pub(super) const DETERMINISTIC: &str = "training.deterministic";
/// Most tokens per sample that BERT has positions for.
pub(super) const BERT_POSITIONS: i64 = 512;
/// Detectors require image sides that are multiples of this number of pixels.
pub(super) const OBJECT_STRIDE: i64 = 32;
/// Largest side of images for classification.
pub(super) const LARGEST_PICTURE: i64 = 512;
/// Smallest side of `scenes`.
pub(super) const SMALLEST_SCENE: i64 = 64;
/// Most classes of `scenes`.
pub(super) const SCENE_CLASSES: i64 = 80;
/// Number of samples of the `line` data, which are always one batch.
pub(super) const LINE_SAMPLES: i64 = 4;

const NAME: Kind = Kind::Text { max: 200, lines: false };
const PATH: Kind = Kind::Text { max: 4096, lines: false };
const POSITIVE: Kind = Kind::Int { min: 1, max: i64::MAX };
/// Watts or megahertz. The GPU's own limits are unknown here; larger values are certainly wrong.
const SETTING: Kind = Kind::Int { min: 1, max: 1_000_000 };
const SAMPLES: Kind = Kind::Int { min: 1, max: 1_000_000 };

const LINEAR: When = When { field: "model.name", is: &["linear"] };
const DIGIT_LEARNERS: When = When { field: "model.name", is: DIGIT_MODELS };
const PICTURE_LEARNERS: When = When { field: "model.name", is: PICTURE_MODELS };
const TEXT_LEARNERS: When = When { field: "model.name", is: TEXT_MODELS };
const OBJECT_LEARNERS: When = When { field: "model.name", is: OBJECT_MODELS };
const PUBLISHED: When = When { field: "model.name", is: PUBLISHED_MODELS };
const DQN: When = When { field: "model.name", is: &["dqn"] };
const WORLDS: When = When { field: "data.name", is: &["cartpole", "catch"] };
const GENERATED: When = When { field: "data.name", is: GENERATORS };
const GENERATORS: &[&str] = &["digits", "shapes", "grammar", "scenes"];

use Field as F;

/// Every key of the manifest.
pub(super) static FIELDS: &[Field] = &joined::<{ HERE.len() + slurm::FIELDS.len() }>(HERE, slurm::FIELDS);

const fn joined<const N: usize>(first: &[Field], then: &[Field]) -> [Field; N] {
    let mut all = [first[0]; N];
    let mut row = 0;
    while row < N {
        all[row] = if row < first.len() { first[row] } else { then[row - first.len()] };
        row += 1;
    }
    all
}

/// Every key except those of `[slurm]`.
const HERE: &[Field] = &[
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
    F::hashed("model.size", Kind::Choice(&["full", "tiny"]), "`full` as published, `tiny` for trying it out on a CPU")
        .text("full")
        .when("model.name", SIZED_MODELS),
    F::hashed(
        "model.classes",
        Kind::Int { min: 2, max: 65_535 },
        "different answers: classes of images or objects, tokens of the vocabulary; at full size as published",
    )
    .preset(Preset::By(&[
        (PICTURE_LEARNERS, Constant::Int(1000)),
        (OBJECT_LEARNERS, Constant::Int(80)),
        (When { field: "model.size", is: &["tiny"] }, Constant::Int(512)),
        (When { field: "model.name", is: &["lstm", "gru"] }, Constant::Int(10_000)),
        (When { field: "model.name", is: &["bert"] }, Constant::Int(30_522)),
        (When { field: "model.name", is: &["gpt2"] }, Constant::Int(50_257)),
    ]))
    .when("model.name", SIZED_MODELS),
    F::hashed("model.dropout", Kind::Real(Interval::Below(1.0)), "share of units that a training step leaves out")
        .preset(Preset::By(&[
            (When { field: "model.name", is: &["mnist_cnn", "vgg16"] }, Constant::Real(0.5)),
            (When { field: "model.name", is: &["bert", "gpt2"] }, Constant::Real(0.1)),
        ]))
        .when("model.name", &["mnist_cnn", "vgg16", "bert", "gpt2"]),
    F::hashed(
        "data.name",
        Kind::Known(&[
            "line", "digits", "idx", "shapes", "cifar10", "folder", "grammar", "text", "cartpole", "catch", "scenes", "coco",
        ]),
        "what is learned (docs/data.md)",
    )
    .preset(Preset::By(&[
        (LINEAR, Constant::Text("line")),
        (DIGIT_LEARNERS, Constant::Text("digits")),
        (PICTURE_LEARNERS, Constant::Text("shapes")),
        (TEXT_LEARNERS, Constant::Text("grammar")),
        (DQN, Constant::Text("cartpole")),
        (OBJECT_LEARNERS, Constant::Text("scenes")),
    ])),
    F::hashed("data.path", PATH, "folder or file of the data; a relative path starts at the manifest's folder")
        .role(Role::Setting)
        .required()
        .when("data.name", &["idx", "cifar10", "folder", "text", "coco"]),
    F::hashed(
        "data.side",
        Kind::Int { min: 32, max: 1024 },
        "height and width of an image in pixels; `shapes` and `folder` at most 512, `scenes` and `coco` a multiple of 32",
    )
    .preset(Preset::By(&[
        (When { field: "data.name", is: &["shapes"] }, Constant::Int(64)),
        (When { field: "data.name", is: &["folder"] }, Constant::Int(224)),
        (When { field: "model.name", is: &["yolov3"] }, Constant::Int(416)),
        (When { field: "model.name", is: &["maskrcnn"] }, Constant::Int(512)),
    ]))
    .when("data.name", &["shapes", "folder", "scenes", "coco"]),
    F::hashed("data.width", Kind::Int { min: 8, max: 1024 }, "tokens of a sample")
        .preset(Preset::By(&[
            (When { field: "model.name", is: &["gpt2"] }, Constant::Int(512)),
            (TEXT_LEARNERS, Constant::Int(128)),
        ]))
        .when("data.name", &["grammar", "text"]),
    F::hashed("data.tokenizer", Kind::Choice(&["bytes", "words", "bpe", "wordpiece"]), "what a text is cut into")
        .preset(Preset::By(&[
            (When { field: "model.name", is: &["bert"] }, Constant::Text("wordpiece")),
            (TEXT_LEARNERS, Constant::Text("bpe")),
        ]))
        .when("data.name", &["text"]),
    F::hashed("data.validation_share", Kind::Real(Interval::Below(1.0)), "share of a text, its end, to evaluate with; the built-in trainer needs one above 0")
        .real(0.1)
        .when("data.name", &["text"]),
    F::hashed("data.actions", Kind::OneOf(&[4, 6]), "actions of the game; 6 are as many as Pong has")
        .int(4)
        .when("data.name", &["catch"]),
    F::hashed("data.seed", Kind::Int { min: 0, max: i64::MAX }, "seeds the generator of the data")
        .int(0)
        .when("data.name", GENERATORS),
    F::hashed(
        "data.train_count",
        SAMPLES,
        "training samples of an epoch, no more than there are. For `idx`: the first ones of the file, with `data.validation_count` ones that are drawn by the seed; absent: all",
    )
    .preset(Preset::By(&[(GENERATED, Constant::Int(10_000)), (WORLDS, Constant::Int(64_000))]))
    .when("data.name", &["digits", "idx", "shapes", "grammar", "scenes", "cartpole", "catch"]),
    F::hashed("data.validation_count", Kind::Int { min: 0, max: 1_000_000 }, "samples split off the training file")
        .int(0)
        .when("data.name", &["idx"]),
    F::hashed("data.eval_count", SAMPLES, "samples of the evaluation")
        .preset(Preset::By(&[
            (When { field: "data.name", is: &["grammar"] }, Constant::Int(500)),
            (GENERATED, Constant::Int(2000)),
        ]))
        .when("data.name", GENERATORS),
    F::hashed("data.generator_version", POSITIVE, "version of the generator of the data")
        .role(Role::Constant)
        .int(1)
        .when("data.name", &["digits", "shapes", "grammar", "scenes", "cartpole", "catch"]),
    F::hashed(
        "training.optimizer",
        Kind::Choice(&["sgd", "momentum", "adam", "adamw"]),
        "how a step follows the gradient",
    )
    .text("sgd"),
    F::hashed("training.momentum", Kind::Real(Interval::Below(1.0)), "share of the last step that is kept")
        .real(0.9)
        .when("training.optimizer", &["momentum"]),
    F::hashed("training.beta1", Kind::Real(Interval::Below(1.0)), "decay of the mean of gradients")
        .real(0.9)
        .when("training.optimizer", &["adam", "adamw"]),
    F::hashed("training.beta2", Kind::Real(Interval::Below(1.0)), "decay of the mean of squared gradients")
        .real(0.999)
        .when("training.optimizer", &["adam", "adamw"]),
    F::hashed("training.epsilon", Kind::Real(Interval::Positive), "added to the root of the mean square")
        .real(1e-8)
        .when("training.optimizer", &["adam", "adamw"]),
    F::hashed(
        "training.weight_decay",
        Kind::Real(Interval::Below(1.0)),
        "share by which weights shrink (`adamw`), or that the gradient gets of them; biases and norms excepted",
    )
    .preset(Preset::By(&[(When { field: "training.optimizer", is: &["adamw"] }, Constant::Real(0.01))])),
    F::hashed("training.clip_norm", Kind::Real(Interval::Positive), "greatest norm of all gradients together"),
    F::hashed("training.learning_rate", Kind::Real(Interval::Positive), "step size, before the schedule").required(),
    F::hashed(
        "training.schedule",
        Kind::Choice(&["constant", "step", "linear", "cosine"]),
        "how the step size changes",
    )
    .text("constant"),
    F::hashed("training.schedule_step_size", POSITIVE, "epochs between two drops of the step size; steps, where `training.steps` is given")
        .required()
        .when("training.schedule", &["step"]),
    F::hashed("training.schedule_gamma", Kind::Real(Interval::UpTo(1.0)), "factor of each drop")
        .real(0.1)
        .when("training.schedule", &["step"]),
    F::hashed("training.warmup_steps", POSITIVE, "first steps, in which the step size rises from 0"),
    F::hashed("training.discount", Kind::Real(Interval::Below(1.0)), "what a reward is worth one step earlier")
        .real(0.99)
        .when("model.name", &["dqn"]),
    F::hashed("training.exploration_last", Kind::Real(Interval::Below(1.0)), "share of random actions that stays")
        .real(0.05)
        .when("model.name", &["dqn"]),
    F::hashed("training.exploration_steps", POSITIVE, "steps in the environment, from `training.learning_starts` on, until only that share is left; before, all actions are random")
        .int(100_000)
        .when("model.name", &["dqn"]),
    F::hashed("training.replay_capacity", Kind::Int { min: 2, max: 10_000_000 }, "frames that are remembered")
        .preset(Preset::By(&[
            (When { field: "data.name", is: &["cartpole"] }, Constant::Int(200_000)),
            (WORLDS, Constant::Int(100_000)),
        ]))
        .when("model.name", &["dqn"]),
    F::hashed("training.learning_starts", POSITIVE, "random steps in the environment before the first update")
        .int(1000)
        .when("model.name", &["dqn"]),
    F::hashed("training.train_every", POSITIVE, "steps in the environment from an update to the next")
        .preset(Preset::By(&[
            (When { field: "data.name", is: &["cartpole"] }, Constant::Int(8)),
            (WORLDS, Constant::Int(4)),
        ]))
        .when("model.name", &["dqn"]),
    F::hashed("training.target_every", POSITIVE, "updates from a change of the target network to the next")
        .int(1)
        .when("model.name", &["dqn"]),
    F::hashed("training.target_share", Kind::Real(Interval::UpTo(1.0)), "by what share it becomes the trained one")
        .real(0.01)
        .when("model.name", &["dqn"]),
    F::hashed("training.reward_scale", Kind::Real(Interval::Positive), "what rewards are multiplied by")
        .preset(Preset::By(&[
            (When { field: "data.name", is: &["cartpole"] }, Constant::Real(0.01)),
            (WORLDS, Constant::Real(1.0)),
        ]))
        .when("model.name", &["dqn"]),
    F::hashed("training.batch_size", Kind::Int { min: 1, max: 1_048_576 }, "samples of a step on each GPU, and on all stages of a pipeline; the built-in trainer takes at most 65536, `linear` only 4")
        .preset(Preset::By(&[
            (LINEAR, Constant::Int(LINE_SAMPLES)),
            (DIGIT_LEARNERS, Constant::Int(64)),
            (DQN, Constant::Int(64)),
            (When { field: "model.name", is: &["maskrcnn"] }, Constant::Int(16)),
            (PUBLISHED, Constant::Int(32)),
        ])),
    F::hashed(
        "training.batch_global",
        Kind::Int { min: 1, max: 1_048_576 },
        "samples of a step on all GPUs together, in place of `batch_size`",
    )
    .preset(Preset::Stated("`batch_size` × GPUs where several share the work; none for one")),
    F::hashed("training.epochs", POSITIVE, "passes over the training data; exactly one of `epochs` and `steps`"),
    F::hashed("training.steps", POSITIVE, "optimiser steps; exactly one of `epochs` and `steps`"),
    F::hashed("training.precision", Kind::Choice(&["fp32", "fp16", "bf16"]), "number format of the arithmetic")
        .text("fp32"),
    F::hashed(
        DETERMINISTIC,
        Kind::Flag,
        "kernels of a GPU are chosen once, and never again by their times; the same bits in each attempt (docs/reproducibility.md); absent: false",
    ),
    F::listed(
        "inference.batch_sizes",
        Kind::Counts { max: 65_536, most: 16 },
        "samples of a batch that is answered after the training; each size is measured, one after the other; absent: one size, that of evaluation",
    )
    .when("model.name", EVALUATED_MODELS),
    F::hashed(
        "hardware.device",
        Kind::Choice(&["auto", "cuda", "cpu"]),
        "`auto` takes a CUDA GPU if there is one; of one that cannot be used, `run` says why",
    )
    .text("auto"),
    F::hashed("hardware.gpus", Kind::OneOf(&[1, 2, 4]), "number of GPUs; absent: one where the device is a GPU")
        .when("hardware.device", &["auto", "cuda"]),
    F::hashed(
        "hardware.cpu_ranks",
        Kind::OneOf(&[1, 2, 4]),
        "threads of the CPU that share the work as GPUs do, to try that out; absent: one",
    )
    .when("hardware.device", &["cpu"]),
    F::hashed("hardware.parallelism", Kind::Choice(&["none", "data", "pipeline"]), "how several GPUs share the work")
        .text("none"),
    F::hashed(
        "training.learning_rate_scaling",
        Kind::Choice(&["none", "linear", "sqrt"]),
        "what the step size is multiplied by: 1, the number of GPUs, or its square root",
    )
    .text("none")
    .when("hardware.parallelism", &["data"]),
    F::hashed(
        "training.micro_batches",
        Kind::Int { min: 1, max: 64 },
        "parts of a batch that go through the stages of a pipeline one behind the other",
    )
    .int(8)
    .when("hardware.parallelism", &["pipeline"]),
    F::hashed(
        "hardware.memory_limit_gib",
        POSITIVE,
        "makes each GPU as small as one of so many GiB, by taking the rest of its memory; absent: as it is",
    )
    .when("hardware.device", &["auto", "cuda"]),
    F::hashed("hardware.power_limit_w", SETTING, "power limit of each GPU in watts, set for the attempt (docs/hardware.md)")
        .when("hardware.device", &["auto", "cuda"]),
    F::hashed("hardware.sm_clock_mhz", SETTING, "clock at which the multiprocessors are locked for the attempt, in MHz")
        .when("hardware.device", &["auto", "cuda"]),
    F::hashed("hardware.memory_clock_mhz", SETTING, "clock at which the memory is locked for the attempt, in MHz")
        .when("hardware.device", &["auto", "cuda"]),
    F::hashed("container.image", NAME, "image that the worker runs in; `host` is none")
        .role(Role::Container)
        .text("host"),
    F::setting("container.binds", Kind::Binds, "files and folders of the host that are visible in the image; read-only without `:rw`")
        .role(Role::Container),
    F::shape("program.command", Kind::Texts, "program and arguments; `{name}` stands for a field's value")
        .role(Role::Program)
        .required(),
    F::shape("program.files", Kind::Texts, "files whose contents enter the identity, from the manifest's folder")
        .role(Role::Program),
    F::shape(
        "program.identity",
        Kind::Choice(&ProgramIdentity::NAMES),
        "what of the program enters the identity: `closure` is the files above, all local files that it imports, its interpreter and its \
         packages; `files` is `program.files` alone; `git` is the files above with commit and patch of the repository",
    )
    .role(Role::Program)
    .preset(Preset::Stated("closure")),
    F::shape("program.metrics", Kind::Patterns, "metrics that are found in the standard output").role(Role::Program),
    F::hashed("params.*", Kind::Scalar, "a parameter of the program, under any name").when("[program]", &["given"]),
    F::setting("telemetry.hz", Kind::Int { min: 0, max: 100 }, "readings of each device a second; 0 is none").int(10),
    F::setting(
        "telemetry.idle_s",
        Kind::Real(Interval::Below(60.0)),
        "seconds of idling on the GPU before the built-in trainer starts, to measure the idle power",
    )
    .when("hardware.device", &["auto", "cuda"])
    .real(2.0),
    F::setting("repeats.min", Kind::Int { min: 2, max: 1000 }, "attempts that each run gets in any case").int(3),
    F::setting("repeats.max", Kind::Int { min: 2, max: 1000 }, "attempts after which it is enough in any case").int(10),
    F::setting(
        "repeats.until",
        Kind::Word { max: 20 },
        "half the width of the 95% interval, as a share of the mean, at which it is enough: `\"2%\"`",
    )
    .required(),
    F::setting("repeats.metric", NAME, "the metric whose interval counts")
        .preset(Preset::Stated("`objective.metric` if it is not learned, else `energy` on GPUs and `train_time` without")),
    F::setting(
        "protocol.warmup_cv",
        Kind::Real(Interval::Below(1.0)),
        "warm-up lasts until the step time's coefficient of variation is at most this",
    )
    .real(0.05),
    F::setting("protocol.warmup_over", Kind::Int { min: 2, max: 10_000 }, "over so many steps").int(10),
    F::setting("protocol.min_window_s", Kind::Real(Interval::Below(86_400.0)), "seconds that are measured at least")
        .real(10.0),
    F::setting("protocol.min_readings", Kind::Int { min: 0, max: 1_000_000 }, "readings of power in them at least")
        .int(60),
    F::setting(
        "protocol.cool_to_c",
        Kind::Int { min: 1, max: 120 },
        "no attempt begins before its GPUs are that cool, in °C; absent: none waits",
    ),
    F::setting(
        "protocol.min_start_c",
        Kind::Int { min: 1, max: 120 },
        "an attempt with a GPU that is colder at its beginning, in °C, is stamped as a cold start; absent: none is",
    ),
    F::setting(
        "protocol.cool_timeout_s",
        Kind::Real(Interval::UpTo(86_400.0)),
        "seconds after which it begins all the same, as a hot start",
    )
    .real(600.0),
    F::setting(
        "protocol.order",
        Kind::Choice(&["shuffled", "written"]),
        "each round executes every run once, in an order that is shuffled anew or as written",
    )
    .text("shuffled"),
    F::setting("protocol.order_seed", Kind::Int { min: 0, max: i64::MAX }, "seeds the shuffling, with the seeds of the runs").int(0),
    F::setting(
        "protocol.canary_every",
        Kind::Int { min: 0, max: 1000 },
        "the first cell is executed once more after so many attempts, so that drift is seen; 0 is never",
    )
    .int(5),
    F::setting("protocol.container", Kind::Choice(&["any", "required"]), "whether attempts outside of a container whose image is known count")
        .text("any"),
    F::setting("limits.timeout_s", Kind::Real(Interval::UpTo(31_536_000.0)), "seconds after which an attempt is ended"),
    F::setting("objective.metric", NAME, "the number that decides which run is best"),
    F::setting("objective.direction", Kind::Choice(&["minimize", "maximize"]), "which way it is better")
        .preset(Preset::Stated("known for the metrics that every run records")),
    F::shape("grid.zip", Kind::Grid("a list of lists of keys"), "axes that vary together"),
    F::shape("grid.include", Kind::Grid("a list of tables"), "cells more: each entry replaces the axes that it names"),
    F::shape("grid.exclude", Kind::Grid("a list of tables"), "cells less: those that match all that an entry names"),
];

/// Returns the field with this dotted name in the manifest. All parameters share one row.
pub(super) fn field(key: &str) -> Option<&'static Field> {
    let key = if key.starts_with("params.") { "params.*" } else { key };
    FIELDS.iter().find(|field| field.key == key)
}

/// Returns the tables of the manifest, in the order of their first keys.
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
