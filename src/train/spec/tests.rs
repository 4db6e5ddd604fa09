use super::*;
use crate::sample::{cell, linear_cell};

fn read(fields: &[(&str, Value)]) -> Result<Spec, SpecError> {
    let mut cell = cell("mnist_cnn");
    for (name, value) in fields {
        cell.config.insert((*name).to_owned(), value.clone());
    }
    Spec::read(&cell)
}

#[test]
fn a_full_cell_is_read() {
    let spec = read(&[]).expect("valid");
    let data = SmallData::Digits { seed: 0, train: 40, eval: 20 };
    assert_eq!(spec.task, TaskSpec::Small { model: Small::Cnn { dropout: 0.5 }, data });
    assert_eq!(spec.length, Length::Epochs(1));
    assert_eq!(spec.device, DeviceSpec::Cpu);
}

#[test]
fn a_missing_field_is_named() {
    for base in [cell("mnist_cnn"), cell("mnist_mlp"), linear_cell("adam", 0.1), linear_cell("momentum", 0.1)] {
        for field in base.config.keys().filter(|field| *field != "hardware.gpus") {
            let mut cell = base.clone();
            cell.config.remove(field);
            let Err(fault) = Spec::read(&cell) else {
                panic!("nobody missed `{field}`");
            };
            assert!(fault.to_string().contains(&format!("`{field}`")), "{fault}");
        }
    }
}

#[test]
fn a_wrong_value_is_named_with_the_allowed_values() {
    let cases: [(&str, Value, &str); 12] = [
        (
            "model.name",
            "resnet".into(),
            "`model.name` is `resnet` (it must be `linear`, `softmax`, `mnist_mlp`, `mnist_cnn`, `resnet50`, `vgg16`, `lstm`, `gru`, `bert`, `gpt2`, `dqn`, `yolov3` or `maskrcnn`)",
        ),
        ("model.dropout", 1.0.into(), "`model.dropout` is `1.0` (it must be at least 0 and below 1)"),
        (
            "data.generator_version",
            2_i64.into(),
            "`data.generator_version` is `2` (it must be 1, the version that this program holds)",
        ),
        ("data.seed", (-1_i64).into(), "`data.seed` is `-1` (it must be a whole number of at least 0)"),
        ("data.train_count", 0_i64.into(), "`data.train_count` is `0` (it must be a whole number, 1 to 1000000)"),
        (
            "training.optimizer",
            "lion".into(),
            "`training.optimizer` is `lion` (it must be `sgd`, `momentum`, `adam` or `adamw`)",
        ),
        (
            "training.learning_rate",
            f64::NAN.into(),
            "`training.learning_rate` is `NaN` (it must be a finite number of at least 0)",
        ),
        ("training.batch_size", 0_i64.into(), "`training.batch_size` is `0` (it must be a whole number, 1 to 65536)"),
        (
            "training.precision",
            "bf16".into(),
            "`training.precision` is `bf16` (it must be `fp32`, the only precision of the small models)",
        ),
        ("training.epochs", "ten".into(), "`training.epochs` is `ten` (it must be a whole number of at least 1)"),
        ("hardware.device", "tpu".into(), "`hardware.device` is `tpu` (it must be `cpu` or `cuda`)"),
        ("hardware.gpus", 2_i64.into(), "`hardware.gpus` is `2` (it must be 0 or 1; on `cpu` none is used)"),
    ];
    for (field, value, message) in cases {
        assert_eq!(read(&[(field, value)]).expect_err(field).to_string(), message);
    }
}

#[test]
fn combinations_are_checked() {
    let both = read(&[("training.steps", 5_i64.into())]).expect_err("both");
    assert_eq!(both, SpecError::Length { found: "both" });
    let line = read(&[("data.name", "line".into()), ("training.batch_size", 4_i64.into())]).expect_err("line");
    assert!(matches!(line, SpecError::Mismatch { .. }), "{line}");
    let gpus = read(&[("hardware.device", "cuda".into()), ("hardware.gpus", 8_i64.into())]).expect_err("gpus");
    assert_eq!(gpus.to_string(), "`hardware.gpus` is `8` (it must be 1, 2 or 4)");
}

#[test]
fn gpus_share_a_batch_and_the_learning_rate_scales_only_on_request() {
    let on = |gpus: i64, changes: &[(&str, Value)]| {
        let hardware = [
            ("hardware.device", "cuda".into()),
            ("hardware.gpus", gpus.into()),
            ("hardware.parallelism", "data".into()),
        ];
        let all: Vec<(&str, Value)> = hardware.into_iter().chain(changes.iter().cloned()).collect();
        read(&all)
    };
    let alone = read(&[]).expect("valid");
    for (scaling, factor) in [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)] {
        let spec = on(4, &[("training.learning_rate_scaling", scaling.into())]).expect("valid");
        assert_eq!((spec.ranks, spec.batch), (4, alone.batch));
        assert_eq!(spec.learning_rate.to_bits(), (alone.learning_rate * factor).to_bits(), "{scaling}");
    }
    let wrong = on(2, &[("training.batch_global", 7_i64.into())]).expect_err("not twice").to_string();
    assert_eq!(wrong, "`training.batch_global` is `7` (it must be `training.batch_size` times the number of ranks)");
    let wrong = on(2, &[("hardware.parallelism", "pipeline".into())]).expect_err("not here").to_string();
    assert!(wrong.starts_with("`hardware.parallelism` is `pipeline` (it must be `data`"), "{wrong}");
    assert!(on(1, &[]).is_ok(), "one GPU shares with nobody");
}

/// Reads the fields of a detector, with some of them changed; empty text removes one.
fn detector(changes: &[(&str, Value)]) -> Result<DetectionSpec, SpecError> {
    let mut cell = cell("softmax");
    let fields: [(&str, Value); 5] = [
        ("model.name", "yolov3".into()),
        ("model.size", "tiny".into()),
        ("model.classes", 80_i64.into()),
        ("data.name", "scenes".into()),
        ("data.side", 96_i64.into()),
    ];
    cell.config.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    cell.config.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    cell.config.retain(|_, value| value.as_str() != Some(""));
    match Spec::read(&cell)?.task {
        TaskSpec::Detection(spec) => Ok(spec),
        other => panic!("{other:?}"),
    }
}

#[test]
fn detectors_train_on_scenes_and_coco() {
    let spec = detector(&[]).expect("valid");
    let data = DetectionData::Scenes { seed: 0, side: 96, train: 40, eval: 20 };
    assert_eq!(spec, DetectionSpec { model: DetectionModel::YoloV3, size: Size::Tiny, classes: 80, data });
    let coco = [
        ("model.name", "maskrcnn".into()),
        ("data.name", "coco".into()),
        ("data.path", "somewhere".into()),
        ("data.side", 1024_i64.into()),
        ("data.seed", "".into()),
    ];
    let spec = detector(&coco).expect("valid");
    assert_eq!(spec.model, DetectionModel::MaskRcnn);
    assert_eq!(spec.data, DetectionData::Coco { path: "somewhere".into(), side: 1024 });
}

#[test]
fn fields_of_detectors_are_checked() {
    let fault = |name: &'static str, value: Value| detector(&[(name, value)]).expect_err(name).to_string();
    for side in [32_i64, 65, 1056] {
        let expected = format!("`data.side` is `{side}` (it must be a multiple of 32, 64 to 1024)");
        assert_eq!(fault("data.side", side.into()), expected);
    }
    assert_eq!(
        fault("model.classes", 81_i64.into()),
        "`model.classes` is `81` (it must be a whole number, 2 to 80: `scenes` have no more)"
    );
    assert_eq!(
        fault("data.name", "shapes".into()),
        "`model.name` `yolov3` cannot learn from `data.name` `shapes` (it takes `scenes` or `coco`)"
    );
    for field in [
        "data.side",
        "data.seed",
        "data.train_count",
        "data.eval_count",
        "data.generator_version",
        "model.size",
        "model.classes",
    ] {
        assert!(fault(field, "".into()).starts_with(&format!("`{field}` is missing")));
    }
    let coco = [("data.name", "coco".into()), ("data.path", "".into())];
    assert!(detector(&coco).expect_err("no path").to_string().starts_with("`data.path` is missing"));
}

#[test]
fn a_gpu_idles_as_long_as_the_settings_say_and_the_cpu_never() {
    let mut cell = cell("softmax");
    assert_eq!(Spec::read(&cell).expect("valid").idle_ns, 0);
    cell.settings.insert("telemetry.idle_s".to_owned(), 2.5.into());
    assert_eq!(Spec::read(&cell).expect("valid").idle_ns, 0);
    for (name, value) in [("hardware.device", Value::from("cuda")), ("hardware.gpus", 1_i64.into())] {
        cell.config.insert(name.to_owned(), value);
    }
    assert_eq!(Spec::read(&cell).expect("valid").idle_ns, 2_500_000_000);
    for wrong in [-1.0, f64::NAN, 1e9] {
        cell.settings.insert("telemetry.idle_s".to_owned(), wrong.into());
        let fault = Spec::read(&cell).expect_err("no such time").to_string();
        assert!(fault.contains("`telemetry.idle_s`"), "{fault}");
    }
}
