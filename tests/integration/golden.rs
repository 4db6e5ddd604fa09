//! What must never change: identities, and the form of what was sealed.
//!
//! `LEDGER_BLESS=1 cargo test` writes the files where they are missing; what is there is never written again.

use crate::sandbox::{Sandbox, repository};
use ledger::record::{
    Attempt, Axis, Digest, Exit, Metric, Nonce, Outcome, Parts, Phase, Run, Sealed, Series, Table, Tail, Value,
};
use ledger::wire::{decode_pack, encode_pack, from_json};
use std::collections::BTreeMap;
use std::fs;

fn bless(path: &std::path::Path, bytes: &[u8]) {
    if std::env::var_os("LEDGER_BLESS").is_some() && !path.exists() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn parts(seed: u64) -> Parts {
    let table = |json: &str| from_json(json).unwrap();
    Parts {
        config: table(
            r#"{"model.name": "mnist_mlp", "model.hidden": 128, "training.learning_rate": 0.001, "training.epochs": 2,
                "data.name": "digits", "hardware.device": "cuda", "hardware.gpus": 1, "params.on": true}"#,
        ),
        program: table(r#"{"trainer": "ledger", "revision": 1, "kernels": ["autotune", "fusion"]}"#),
        container: "host".into(),
        cuda: table(r#"{"driver_api": "13.0", "nvrtc": "13.0"}"#),
        driver: "580.159.04".into(),
        device: table(r#"["NVIDIA H200"]"#),
        seed,
    }
}

#[test]
fn identities_are_what_they_always_were() {
    let values = [
        "true",
        "false",
        "0",
        "-1",
        "9223372036854775807",
        "0.0",
        "-0.0",
        "1.0",
        "0.1",
        "1e300",
        "\"\"",
        "\"ä\"",
        "[]",
        "[1, 2.5, \"x\"]",
        "{}",
        r#"{"b": 1, "a": {"c": []}}"#,
    ];
    let mut lines = String::new();
    for text in values {
        lines.push_str(&format!("value {} {text}\n", from_json(text).unwrap().digest()));
    }
    lines.push_str(&format!("value {} NaN\n", Value::Float(f64::NAN).digest()));
    for seed in [0, 1, u64::MAX] {
        lines.push_str(&format!("run {} seed {seed}\n", parts(seed).run_id()));
    }
    lines.push_str(&format!("group {}\n", parts(0).group_id()));
    lines.push_str(&format!("attempt {}\n", sealed().attempt.id()));
    let path = repository("tests/golden/identity/v1.txt");
    bless(&path, lines.as_bytes());
    assert_eq!(lines, fs::read_to_string(path).unwrap());
}

fn sealed() -> Sealed {
    let run = Run::new(parts(7));
    let mut loss = Series::new("loss", "", Axis::Step);
    let mut power = Series::new("power_w.0", "W", Axis::TimeNs);
    for i in 0..100u32 {
        loss.push(u64::from(i) + 1, f64::from(1.0 / (f32::from(u16::try_from(i).unwrap()) + 1.0)));
        power.push(u64::from(i) * 100_000_000 + u64::from(i % 7), 350.0 + f64::from(i % 13) * 0.125);
    }
    loss.push(101, f64::NAN);
    let series = vec![loss, power];
    let phases = vec![
        Phase { name: "epoch".into(), index: 1, rank: 0, start_ns: 5, stop_ns: Some(900) },
        Phase { name: "eval".into(), index: 1, rank: 0, start_ns: 901, stop_ns: None },
    ];
    let metrics = BTreeMap::from([
        ("accuracy".to_owned(), Metric::new(0.98, "")),
        ("loss".to_owned(), Metric::new(f64::NAN, "")),
        ("cpu_time".to_owned(), Metric::missing("s", "it could not be read")),
    ]);
    let attempt = Attempt {
        run: run.id,
        nonce: Nonce([3; 16]),
        started_unix_ms: 1_750_000_000_123,
        wall_ns: 12_345_678_901,
        outcome: Outcome::Failed { reason: "the worker was ended by SIGSEGV".into() },
        exit: Some(Exit::Signal(11)),
        metrics,
        digests: [("weights".to_owned(), Digest::of(b"weights"))].into(),
        settings: Table::from([("experiment.name".to_owned(), "golden".into())]),
        facts: Table::from([("cpu.logical_cores".to_owned(), Value::Int(2))]),
        warnings: vec!["the host's clock jumped".into()],
        tail: Tail { stderr: "err\n".into(), stdout: "out\n".into(), events: vec!["{}".into()] },
        series: series.iter().map(Series::summary).collect(),
        phases: Phase::digest_all(&phases),
    };
    Sealed { run, attempt, series, phases }
}

#[test]
fn what_was_sealed_in_format_1_is_read_as_it_was() {
    let path = repository("tests/golden/records/v1.ledger");
    bless(&path, &encode_pack(&sealed()).unwrap());
    let read = decode_pack(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(read.attempt.id(), sealed().attempt.id());
    assert_eq!(format!("{read:?}"), format!("{:?}", sealed()));
    let sandbox = Sandbox::new();
    let imported = sandbox.json(&["import", path.to_str().unwrap()], 0);
    assert_eq!(imported["imported"][0]["attempt"], sealed().attempt.id().to_string());
    sandbox.json(&["verify"], 0);
}

#[test]
fn a_ledger_file_of_format_1_is_read_as_it_was() {
    let path = repository("tests/golden/records/v1.redb");
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.ledger_dir()).unwrap();
    let file = sandbox.ledger_dir().join("ledger.redb");
    if std::env::var_os("LEDGER_BLESS").is_some() && !path.exists() {
        sandbox.json(&["import", repository("tests/golden/records/v1.ledger").to_str().unwrap()], 0);
        sandbox.json(&["tag", "latest", "golden"], 0);
        bless(&path, &fs::read(&file).unwrap());
    }
    fs::copy(&path, &file).unwrap();
    sandbox.json(&["verify"], 0);
    let show = sandbox.json(&["show", "golden"], 0);
    assert_eq!(show["attempts"][0]["attempt"], sealed().attempt.id().to_string());
}
