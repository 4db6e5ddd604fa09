//! What was read of the hardware, asked of a sealed attempt.

use crate::sandbox::{Sandbox, repository};
use insta::assert_snapshot;
use ledger::record::{Attempt, Axis, Nonce, Outcome, Parts, Phase, Run, Sealed, Series, Table, Tail, Value};
use ledger::wire::encode_pack;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

/// Four seconds of a GPU, and a loss.
pub fn sealed() -> Sealed {
    let mut series: Vec<Series> = [
        ("gpu.0.energy", "J"),
        ("gpu.0.power_instant", "W"),
        ("gpu.0.throttle_reasons", ""),
        ("gpu.0.read_time", "ns"),
    ]
    .map(|(name, unit)| Series::new(name, unit, Axis::TimeNs))
    .into();
    for tick in 0..40u32 {
        let (at, t) = (u64::from(tick) * 100_000_000, f64::from(tick) / 10.0);
        let values = [5000.0 + 200.0 * t, 190.0 + 5.0 * t, if tick < 10 { 4.0 } else { 0.0 }, 3_300_000.0];
        series.iter_mut().zip(values).for_each(|(series, value)| series.push(at, value));
    }
    let mut loss = Series::new("loss", "", Axis::Step);
    [2.5, 1.25, f64::NAN].into_iter().zip(1..).for_each(|(value, step)| loss.push(step, value));
    series.push(loss);
    series.sort_by(|a, b| a.name.cmp(&b.name));
    let phases =
        vec![Phase { name: "epoch".into(), index: 1, rank: 0, start_ns: 500_000_000, stop_ns: Some(3_500_000_000) }];
    let run = Run::new(Parts {
        config: Value::Table([("model.name".to_owned(), "toy".into())].into()),
        program: "p".into(),
        container: "host".into(),
        cuda: "none".into(),
        driver: "none".into(),
        device: "cpu".into(),
        seed: 1,
    });
    let attempt = Attempt {
        run: run.id,
        nonce: Nonce([7; 16]),
        started_unix_ms: 1_750_000_000_000,
        wall_ns: 4_000_000_000,
        outcome: Outcome::Finished,
        exit: None,
        metrics: BTreeMap::new(),
        digests: BTreeMap::new(),
        settings: Table::new(),
        facts: Table::from([
            ("cpu.logical_cores".to_owned(), Value::Int(2)),
            ("telemetry.hz".to_owned(), Value::Int(10)),
            ("telemetry.unread.gpu.0.pcie_tx".to_owned(), "the driver does not support it".into()),
        ]),
        warnings: Vec::new(),
        tail: Tail::default(),
        series: series.iter().map(Series::summary).collect(),
        phases: Phase::digest_all(&phases),
    };
    Sealed { run, attempt, series, phases }
}

fn imported() -> Sandbox {
    let sandbox = Sandbox::new();
    let pack = sandbox.write("run.ledger", encode_pack(&sealed()).unwrap());
    sandbox.run(&["import", pack.to_str().unwrap()]).expect(0);
    sandbox
}

/// The same of a run on one GPU, in the ledger of a sandbox.
pub fn import_of_a_gpu(sandbox: &Sandbox) {
    let mut sealed = sealed();
    let mut config = sealed.run.config().clone();
    config.insert("hardware.gpus".to_owned(), 1i64.into());
    sealed.run = Run::new(Parts { config: config.into(), ..sealed.run.parts.clone() });
    sealed.attempt.run = sealed.run.id;
    let pack = sandbox.write("run.ledger", encode_pack(&sealed).unwrap());
    sandbox.run(&["import", pack.to_str().unwrap()]).expect(0);
}

#[test]
fn the_readings_of_an_attempt_are_a_table() {
    let sandbox = imported();
    assert_snapshot!(sandbox.run(&["telemetry", "latest"]).expect(0), @r"
    attempt 97942878 of run a8cef61e (toy), took 4.00 s

    SERIES                  AS     UNIT  READINGS  MIN   MEAN    MAX   LAST  0 s TO 4.00 s
    gpu.0.energy            rate   W           40  200    200    200    200  ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
    gpu.0.power_instant     level  W           40  190  199.8  209.5  209.5  ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇█████
    gpu.0.read_time         level  ms          40  3.3    3.3    3.3    3.3  ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
    gpu.0.throttle_reasons  flags  -           40    -      -      -      -  ██████████▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
    rate: increase of a counter per second, over at least one second

    why clocks were low, by share of the time
      SERIES                  REASONS
      gpu.0.throttle_reasons  sw_power_cap 25.64%, none 74.36%

    could not be read
      SERIES         BECAUSE
      gpu.0.pcie_tx  the driver does not support it

    recorded about the sampling
      FACT          VALUE
      telemetry.hz  10
    ");
    assert_snapshot!(sandbox.run(&["telemetry", "latest", "--series", "loss,gpu.0.power"]).expect(0), @r"
    attempt 97942878 of run a8cef61e (toy), took 4.00 s

    SERIES               AS     UNIT  READINGS  MIN   MEAN    MAX   LAST  0 s TO 4.00 s
    gpu.0.power_instant  level  W           40  190  199.8  209.5  209.5  ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇█████

    SERIES  AS     UNIT  READINGS   MIN   MEAN  MAX  LAST  STEP 1 TO 3
    loss    level  -            3  1.25  1.875  2.5   NaN  ███▇▇▆▆▆▅▅▄▄▃▃▃▂▂▁▁▁

    recorded about the sampling
      FACT          VALUE
      telemetry.hz  10
    ");
}

#[test]
fn names_prefixes_and_patterns_choose_and_unknown_ones_are_answered() {
    let sandbox = imported();
    let chosen = |series: &str| {
        let document = sandbox.json(&["telemetry", "latest", "--series", series], 0);
        let names =
            document["series"].as_array().unwrap().iter().map(|series| series["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(chosen("gpu.*.e*,loss"), ["gpu.0.energy", "loss"]);
    assert_eq!(chosen("gpu.0").len(), 4);
    let complaint = sandbox.run(&["telemetry", "latest", "--series", "gpu.0.powr_instant"]).complaint(2);
    assert_snapshot!(complaint, @"error: no series matches `gpu.0.powr_instant` (did you mean `gpu.0.power_instant`? there are: gpu.0.energy, gpu.0.pcie_tx, gpu.0.power_instant, gpu.0.read_time, gpu.0.throttle_reasons, loss)");
    // What could not be read is known by its name, and why it was not.
    let unread = sandbox.json(&["telemetry", "latest", "--series", "gpu.0.pcie_tx"], 1);
    assert_eq!(unread["unread"]["gpu.0.pcie_tx"], "the driver does not support it");
    sandbox.run(&["telemetry", "abcd"]).complaint(1);
}

#[test]
fn the_document_and_the_csv_hold_what_was_sealed() {
    let sandbox = imported();
    let document = sandbox.json(&["telemetry", "latest", "--series", "*"], 0);
    let csv = sandbox.run(&["telemetry", "latest", "--csv", "--series", "*"]).expect(0);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("series,unit,axis,position,value"));
    for (at, series) in sealed().series.iter().enumerate() {
        assert_eq!(document["series"][at]["name"], series.name.as_str());
        let positions: Vec<u64> =
            document["series"][at]["positions"].as_array().unwrap().iter().map(|p| p.as_u64().unwrap()).collect();
        assert_eq!(positions, series.positions);
        for (value, json) in series.values.iter().zip(document["series"][at]["values"].as_array().unwrap()) {
            let line: Vec<&str> = lines.next().unwrap().split(',').collect();
            assert_eq!(line[0], series.name);
            assert_eq!(line[4].parse::<f64>().unwrap().to_bits() << 1, value.to_bits() << 1, "{line:?}");
            assert_eq!(json.as_f64(), value.is_finite().then_some(*value));
        }
    }
    assert_eq!(lines.next(), None);
    assert_eq!(document["facts"], serde_json::json!({"telemetry.hz": 10}));
    sandbox.run(&["telemetry", "latest", "--csv", "--json"]).complaint(2);
}

#[test]
fn a_plot_is_a_file_that_replaces_nothing_unasked() {
    let sandbox = imported();
    let plot = |more: &[&str]| sandbox.run(&[&["telemetry", "latest", "--plot", "a.svg"], more].concat());
    let said = plot(&[]).expect(0);
    assert!(said.starts_with("a.svg "), "{said}");
    let first = fs::read_to_string(sandbox.path("a.svg")).unwrap();
    for text in ["<svg ", "toy", "power, W", "epoch 1", "gpu.0 sw_power_cap", "</svg>"] {
        assert!(first.contains(text), "{text}");
    }
    assert!(plot(&[]).complaint(2).contains("(--force replaces it)"));
    sandbox.write("a.svg", "mine");
    plot(&["--force"]).expect(0);
    assert_eq!(fs::read_to_string(sandbox.path("a.svg")).unwrap(), first, "the same readings give the same bytes");
    assert_eq!(sandbox.json(&["telemetry", "latest", "--plot", "b.svg"], 0)["file"], "b.svg");
    let left: Vec<_> = fs::read_dir(sandbox.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("a.svg.")), "{left:?}");
    for nowhere in ["missing/a.svg", "home"] {
        let complaint = sandbox.run(&["telemetry", "latest", "--force", "--plot", nowhere]).complaint(2);
        assert!(complaint.contains(&format!("cannot write `{nowhere}`: ")), "{complaint}");
    }
    let full = sandbox.run(&["telemetry", "latest", "--force", "--plot", "/dev/full"]).complaint(4);
    assert!(full.contains("No space left"), "{full}");
    sandbox.run(&["telemetry", "latest", "--force"]).complaint(2);
    sandbox.run(&["telemetry", "latest", "--series", "gpu.0.pcie_tx", "--plot", "c.svg"]).complaint(1);
    assert!(!sandbox.path("c.svg").exists());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let sandbox = imported();
    let mut child = sandbox.command(&["telemetry", "latest", "--csv"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let said = Sandbox::finish(child);
    assert_eq!(
        (said.code, said.err.replace("note: `gpu.0.pcie_tx` could not be read: the driver does not support it\n", "")),
        (Some(0), String::new())
    );
}

#[test]
fn records_of_before_are_read_as_well() {
    let sandbox = Sandbox::new();
    let golden = repository("tests/golden/records/v1.ledger");
    sandbox.run(&["import", golden.to_str().unwrap()]).expect(0);
    let text = sandbox.run(&["telemetry", "latest"]).expect(0);
    assert!(text.contains("power_w.0  level  W          100  350  350.7"), "{text}");
    let sandbox = Sandbox::new();
    let reference = repository("ledger/reference/mnist_mlp-0738541f.ledger");
    sandbox.run(&["import", reference.to_str().unwrap()]).expect(0);
    assert!(sandbox.run(&["telemetry", "latest"]).expect(1).contains("no hardware samples"));
    sandbox.run(&["telemetry", "latest", "--series", "loss"]).expect(0);
}
