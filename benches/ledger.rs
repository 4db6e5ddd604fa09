//! How long the ledger's own work takes, beside SQLite doing the same by hand.
//!
//! `cargo bench --no-default-features --bench ledger -- [RUNS …]` (default 1000 10000 100000). The runs are light ones: 20
//! parameters and 10 metrics each, drawn by a splitmix64 generator; the sealed run has 8 telemetry series of 6,000 points
//! and a loss of 1,000. `benches/sqlite_floor.py` makes the same runs with Python's `sqlite3` and asks the same question.
//! `benches/mlflow_beside.py` asks MLflow the same, and is started by hand.
//! Figures are medians; nothing is asserted.
//! `-- --keep DIR RUNS [MODEL]` makes a ledger of that many light runs in `DIR`, all of one model if it is named, and measures nothing.
//! `-- --journal DIR HOURS` makes a ledger with the journal of an attempt whose supervisor was killed, with telemetry of eight GPUs.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench may fail, and prints")]

use ledger::journal::Writer;
use ledger::record::{
    Attempt, Axis, Digest, Direction, Entry, Metric, Nonce, Outcome, Owner, Parts, Phase, Quantity, Reading, Run,
    Sample, Sealed, Series, Source, Table, Tail, Value,
};
use ledger::store::{Piece, Store};
use ledger::wire::encode_series;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Draw(u64);

impl Draw {
    fn new(run: u64, stream: u64) -> Self {
        Self((run + 1) << 16 | stream)
    }

    fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    fn unit(&mut self) -> f64 {
        (self.u64() >> 11) as f64 * 2f64.powi(-53)
    }

    fn pick(&mut self, items: &[&str]) -> Value {
        let at = usize::try_from(self.u64() % items.len() as u64).unwrap();
        items[at].into()
    }

    fn below(&mut self, n: u64) -> Value {
        (self.u64() % n).into()
    }
}

fn light(i: u64) -> Sealed {
    light_of(i, None)
}

fn light_of(i: u64, model: Option<&str>) -> Sealed {
    let mut draw = Draw::new(i, 0);
    let mut config = Table::new();
    let mut put = |name: &str, value: Value| {
        config.insert(name.to_owned(), value);
    };
    let drawn = draw.pick(&["bert", "gpt2", "resnet50", "vit", "llama", "t5", "unet", "whisper"]);
    put("model.name", model.map_or(drawn, Value::from));
    put("data.name", draw.pick(&["imagenet", "wikitext", "coco", "squad", "librispeech"]));
    put("training.optimizer", draw.pick(&["adamw", "sgd", "lion", "adafactor"]));
    put("training.precision", draw.pick(&["fp32", "bf16", "fp16"]));
    put("training.learning_rate", 10f64.powf(-5.0 + 3.0 * draw.unit()).into());
    put("training.batch_size", (1u64 << (3 + draw.u64() % 6)).into());
    put("training.epochs", (1 + draw.u64() % 50).into());
    let seed = draw.u64() % 100_000;
    put("training.weight_decay", (0.1 * draw.unit()).into());
    put("model.dropout", (0.5 * draw.unit()).into());
    put("training.warmup_steps", draw.below(5000));
    put("model.hidden", (256 * (1 + draw.u64() % 16)).into());
    put("model.layers", (2 + draw.u64() % 47).into());
    put("model.heads", (1 + draw.u64() % 32).into());
    put("training.grad_clip", (5.0 * draw.unit()).into());
    let gpu = draw.pick(&["A100", "H100", "H200", "L40S"]);
    put("hardware.gpus", (1u64 << (draw.u64() % 4)).into());
    put("params.commit", format!("{:016x}", draw.u64()).into());
    let host = format!("node{:02}", draw.u64() % 32);
    put("training.schedule", draw.pick(&["cosine", "linear", "constant", "onecycle"]));
    let ranges = [
        ("energy", 1e4, 9.9e5),
        ("loss", 0.05, 5.0),
        ("accuracy", 0.0, 1.0),
        ("val_loss", 0.05, 5.0),
        ("val_accuracy", 0.0, 1.0),
        ("throughput", 50.0, 5000.0),
        ("duration", 60.0, 36000.0),
        ("peak_mem", 1.0, 79.0),
        ("power_mean", 60.0, 640.0),
        ("gpu_util", 0.0, 100.0),
    ];
    let metrics = ranges.map(|(name, low, width)| (name.to_owned(), Metric::new(low + width * draw.unit(), "")));
    let run = Run::new(Parts {
        config: config.into(),
        program: "bench".into(),
        container: "host".into(),
        cuda: "13.0".into(),
        driver: "580".into(),
        device: gpu,
        seed,
    });
    sealed(run, i, metrics.into(), host, Vec::new())
}

fn sealed(run: Run, i: u64, metrics: BTreeMap<String, Metric>, host: String, series: Vec<Series>) -> Sealed {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&i.to_le_bytes());
    let attempt = Attempt {
        run: run.id,
        nonce: Nonce(nonce),
        started_unix_ms: 1_750_000_000_000 + 600_000 * i64::try_from(i).unwrap(),
        wall_ns: 1_000_000_000,
        outcome: Outcome::Finished,
        exit: None,
        metrics,
        digests: BTreeMap::from([("weights".to_owned(), Digest::of(&i.to_le_bytes()))]),
        settings: Table::from([("experiment.name".to_owned(), "bench".into())]),
        facts: Table::from([("host.name".to_owned(), host.into())]),
        warnings: Vec::new(),
        tail: Tail::default(),
        series: series.iter().map(Series::summary).collect(),
        phases: Phase::digest_all(&[]),
    };
    Sealed { run, attempt, series, phases: Vec::new() }
}

/// Eight telemetry series of 6,000 points at 10 Hz and a loss of 1,000 steps.
fn heavy(i: u64) -> Sealed {
    let shapes = [
        ("power_w", 350.0, 120.0, 600.0, 40.0, 3),
        ("temp_c", 62.0, 8.0, 3000.0, 2.0, 0),
        ("util_gpu", 88.0, 8.0, 150.0, 6.0, 0),
        ("util_mem", 55.0, 10.0, 150.0, 6.0, 0),
        ("mem_used_mb", 41000.0, 1500.0, 6000.0, 64.0, 0),
        ("clock_sm_mhz", 1700.0, 90.0, 600.0, 30.0, 0),
        ("clock_mem_mhz", 2619.0, 0.0, 600.0, 0.0, 0),
        ("fan_pct", 45.0, 10.0, 3000.0, 2.0, 0),
    ];
    let mut series = Vec::new();
    for (j, (name, base, amplitude, period, width, digits)) in (0u64..).zip(shapes) {
        let mut draw = Draw::new(i, 2 + j);
        let mut one = Series::new(name, "", Axis::TimeNs);
        let scale = 10f64.powi(digits);
        for k in 0..6000u32 {
            let wave = (2.0 * std::f64::consts::PI * f64::from(k) / period).sin();
            let value = base + amplitude * wave + width * (draw.unit() - 0.5);
            one.push(u64::from(k) * 100_000_000, (value * scale + 0.5).floor() / scale);
        }
        series.push(one);
    }
    let mut draw = Draw::new(i, 1);
    let mut loss = Series::new("train_loss", "", Axis::Step);
    for k in 0..1000u32 {
        loss.push(u64::from(k) + 1, 0.05 + 5.0 * (-f64::from(k) / 200.0).exp() + 0.02 * (draw.unit() - 0.5));
    }
    series.push(loss);
    let light = light(i);
    sealed(light.run, i, light.attempt.metrics, "node00".to_owned(), series)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed(n: usize, mut work: impl FnMut()) -> Duration {
    work();
    median(
        (0..n)
            .map(|_| {
                let started = Instant::now();
                work();
                started.elapsed()
            })
            .collect(),
    )
}

fn row(what: &str, time: Duration) {
    println!("{what:<58} {:>10.3} ms", time.as_secs_f64() * 1e3);
}

fn process(dir: &Path, args: &[&str]) -> Duration {
    timed(20, || {
        let status =
            Command::new(env!("CARGO_BIN_EXE_ledger")).args(args).env("LEDGER_DIR", dir).stdout(Stdio::null()).status();
        assert!(status.unwrap().success());
    })
}

fn fill(store: &Store, runs: u64) {
    for chunk in (0..runs).collect::<Vec<_>>().chunks(5000) {
        store
            .write(|writer| {
                for i in chunk {
                    writer.seal(&light(*i), 0)?;
                }
                Ok(())
            })
            .unwrap();
    }
}

/// Makes a ledger of that many light runs in a directory, which stays.
fn keep(dir: &str, runs: u64, model: Option<&str>) {
    let store = Store::at(dir);
    let started = Instant::now();
    let mut importer = store.importer(0);
    for start in (0..runs).step_by(5000) {
        let piece: Vec<Sealed> = (start..runs.min(start + 5000)).map(|i| light_of(i, model)).collect();
        importer.add(Piece::of(piece).unwrap()).unwrap();
    }
    importer.finish().unwrap();
    println!("{runs} runs in {:.1} s", started.elapsed().as_secs_f64());
}

/// Writes the journal of a killed attempt: eight GPUs, ten samples a second, for this number of hours.
fn journal(dir: &str, hours: u64) {
    const BETWEEN_NS: u64 = 100_000_000;
    let store = Store::at(dir);
    let none = || Value::from("none");
    let (config, device) = (Table::from([("hardware.gpus".to_owned(), Value::Int(8))]), none());
    let parts = Parts {
        config: config.into(),
        program: none(),
        container: none(),
        cuda: none(),
        driver: none(),
        device,
        seed: 1,
    };
    let run = Run::new(parts);
    let opened = Entry::Opened {
        owner: Owner { start_ticks: 0, ..ledger::host::owner::this_owner().unwrap() },
        nonce: Nonce([1; 16]),
        run: Box::new(run.clone()),
        settings: Table::from([("telemetry.hz".to_owned(), 10.0.into())]),
        facts: Table::new(),
        started_unix_ms: 1_750_000_000_000,
        started_ns: 0,
    };
    std::fs::create_dir_all(store.journals()).unwrap();
    let mut writer = Writer::create(&store.journals(), run.id, Nonce([1; 16]), &opened).unwrap();
    let (mut draw, mut joules) = (Draw::new(1, 0), [0.0; 8]);
    let looks = hours * 3_600_000_000_000 / BETWEEN_NS;
    for look in 1..=looks {
        for (gpu, joules) in (0u32..).zip(&mut joules) {
            let t_ns = look * BETWEEN_NS + u64::from(gpu) * 200_000 + draw.u64() % 50_000;
            let power = 400.0 + (300.0 * draw.unit() * 1000.0).round() / 1000.0;
            *joules += (power * 100.0).round() / 1000.0;
            let whole = |unit: f64| unit.round();
            let values = [
                (Quantity::PowerInstant, power),
                (Quantity::PowerAverage, power - 1.0),
                (Quantity::Energy, *joules),
                (Quantity::Temperature, whole(50.0 + 20.0 * draw.unit())),
                (Quantity::UtilizationGpu, whole(90.0 + 10.0 * draw.unit())),
                (Quantity::UtilizationMemory, whole(40.0 + 20.0 * draw.unit())),
                (Quantity::MemoryUsed, 8e10),
                (Quantity::ClockSm, 1980.0),
                (Quantity::ClockMemory, 2619.0),
                (Quantity::ThrottleReasons, 0.0),
            ];
            let readings = values.map(|(quantity, value)| Reading { quantity, t_ns, value }).to_vec();
            let sample = Sample { source: Source::Gpu(gpu), t_ns, cost_ns: 200_000 + draw.u64() % 50_000, readings };
            writer.append(&Entry::Sample(sample)).unwrap();
        }
        if look % 1000 == 0 {
            writer.flush().unwrap();
        }
    }
    let ended_ns = (looks + 1) * BETWEEN_NS;
    writer.append(&Entry::Ended { outcome: Outcome::Finished, exit: None, ended_ns, cpu_ns: None }).unwrap();
    writer.sync().unwrap();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [flag, dir, runs, model @ ..] = args.as_slice()
        && flag == "--keep"
    {
        return keep(dir, runs.parse().unwrap(), model.first().map(String::as_str));
    }
    if let [flag, dir, hours] = args.as_slice()
        && flag == "--journal"
    {
        return journal(dir, hours.parse().unwrap());
    }
    let asked: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1000, 10_000, 100_000] } else { asked };
    let empty = tempfile::tempdir().unwrap();
    row("process: --version", process(empty.path(), &["--version"]));
    for runs in sizes {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path());
        let started = Instant::now();
        fill(&store, runs);
        let filled = started.elapsed();
        println!("-- {runs} runs, filled in {:.1} s", filled.as_secs_f64());
        merges(&store, runs);
        store
            .read(|reader| {
                let ask = || reader.best("bert", "energy", Direction::Minimize, 1).unwrap();
                println!("   best bert energy: {}", ask()[0].mean);
                row("in process: best of a model, ledger open", timed(200, || drop(ask())));
                Ok(())
            })
            .unwrap();
        row(
            "in process: open, best, close",
            timed(50, || drop(store.read(|reader| reader.best("bert", "energy", Direction::Minimize, 1)).unwrap())),
        );
        row(
            "process: best",
            process(
                dir.path(),
                &["best", "--model", "bert", "--metric", "energy", "--top", "1", "--direction", "minimize"],
            ),
        );
        row(
            "process: best --top 10",
            process(dir.path(), &["best", "--model", "bert", "--metric", "energy", "--direction", "minimize"]),
        );
        let asked =
            ["best", "--model", "bert", "--metric", "energy", "--direction", "minimize", "--where", "gpus == 2"];
        row("process: best --where, every attempt of the model read", process(dir.path(), &asked));
        row("process: ls", process(dir.path(), &["ls"]));
        if runs <= 10_000 {
            row("process: ls --all", process(dir.path(), &["ls", "--all"]));
        }
        row("process: show latest", process(dir.path(), &["show", "latest"]));
        row("process: diff latest latest~1", diff(dir.path()));
        let mut i = runs + 1_000_000;
        row(
            "seal a run of 49,000 points, durable",
            timed(9, || {
                i += 1;
                let one = heavy(i);
                store.write(|writer| writer.seal(&one, 0)).unwrap();
            }) - timed(9, || drop(heavy(i))),
        );
        let id = heavy(i).attempt.id();
        row("read 6,000 points", timed(50, || drop(store.read(|reader| reader.series(id, "power_w")).unwrap())));
        let bytes = |series: &Series| encode_series(series).unwrap().len();
        let one = heavy(i);
        let total: usize = one.series[..8].iter().map(bytes).sum();
        println!(
            "   telemetry: {:.2} bytes a value; loss: {} bytes",
            f64::from(u32::try_from(total).unwrap()) / 48000.0,
            bytes(&one.series[8])
        );
        if let Ok(output) = Command::new("python3").arg("benches/sqlite_floor.py").arg(runs.to_string()).output() {
            print!("{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}

/// Takes the whole ledger into an empty one, then into one that holds as many others, then once more.
fn merges(store: &Store, runs: u64) {
    let dir = tempfile::tempdir().unwrap();
    let into = Store::at(dir.path());
    let merge = |what: &str, other: &Store, new: u64| {
        let started = Instant::now();
        let merged = into.merge(other, 0, &mut |_, _| {}).unwrap();
        assert_eq!((merged.new, merged.faults.len()), (new, 0));
        row(what, started.elapsed());
    };
    merge("merge all into an empty ledger", store, runs);
    merge("merge all once more", store, 0);
    let others = tempfile::tempdir().unwrap();
    let other = Store::at(others.path());
    let begin = 10_000_000;
    other
        .write(|writer| (begin..begin + runs.min(20_000)).try_for_each(|i| writer.seal(&light(i), 0).map(drop)))
        .unwrap();
    merge("merge up to 20,000 into as many as there are", &other, runs.min(20_000));
    let started = Instant::now();
    assert_eq!(into.verify(false, &mut |_, _| {}).unwrap().faults, []);
    row("verify", started.elapsed());
    let started = Instant::now();
    assert_eq!(into.verify(true, &mut |_, _| {}).unwrap().faults, []);
    row("verify --deep", started.elapsed());
}

fn diff(dir: &Path) -> Duration {
    timed(20, || {
        let status = Command::new(env!("CARGO_BIN_EXE_ledger"))
            .args(["diff", "latest", "latest~1"])
            .env("LEDGER_DIR", dir)
            .stdout(Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(1));
    })
}
