//! Cells for the crate's tests, and a sink that stores events.

use crate::device::Place;
use crate::fit::fit;
use crate::parallel::ProcessGroup;
use crate::spec::Spec;
use crate::task::open;
use crate::{Finish, Sink, TrainError, run};
use ledger_record::{Cell, Digest, EventKind, Value};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A cell of one epoch of 40 generated images.
pub fn cell(model: &str) -> Cell {
    let fields: [(&str, Value); 16] = [
        ("model.name", model.into()),
        ("model.hidden", 128_i64.into()),
        ("model.dropout", 0.5.into()),
        ("data.name", "digits".into()),
        ("data.generator_version", 1_i64.into()),
        ("data.seed", 0_i64.into()),
        ("data.train_count", 40_i64.into()),
        ("data.eval_count", 20_i64.into()),
        ("training.optimizer", "sgd".into()),
        ("training.learning_rate", 0.1.into()),
        ("training.schedule", "constant".into()),
        ("training.batch_size", 16_i64.into()),
        ("training.epochs", 1_i64.into()),
        ("training.precision", "fp32".into()),
        ("hardware.device", "cpu".into()),
        ("hardware.gpus", 0_i64.into()),
    ];
    let unused = match model {
        "mnist_cnn" => vec!["model.hidden"],
        "mnist_mlp" => vec!["model.dropout"],
        _ => vec!["model.hidden", "model.dropout"],
    };
    let fields = fields.into_iter().filter(|(name, _)| !unused.contains(name));
    Cell { config: fields.map(|(name, value)| (name.to_owned(), value)).collect(), seed: 1, ..Cell::default() }
}

/// A cell of 1,000 steps on the line.
pub fn linear_cell(optimizer: &str, learning_rate: f64) -> Cell {
    let mut cell = cell("linear");
    cell.config.retain(|name, _| !name.starts_with("data.") && name != "training.epochs");
    let fields: [(&str, Value); 8] = [
        ("model.initial_weight", 0.3.into()),
        ("model.initial_bias", (-0.3).into()),
        ("data.name", "line".into()),
        ("training.optimizer", optimizer.into()),
        ("training.learning_rate", learning_rate.into()),
        ("training.batch_size", 4_i64.into()),
        ("training.steps", 1000_i64.into()),
        ("training.precision", "fp32".into()),
    ];
    cell.config.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    match optimizer {
        "momentum" => {
            cell.config.insert("training.momentum".to_owned(), 0.9.into());
        }
        "adam" => {
            for (name, value) in [("beta1", 0.9), ("beta2", 0.999), ("epsilon", 1e-8)] {
                cell.config.insert(format!("training.{name}"), value.into());
            }
        }
        _ => {}
    }
    cell
}

/// A cell of one epoch of a tiny published model: 48 generated samples, or as many transitions.
pub fn tiny_cell(model: &str) -> Cell {
    let mut cell = cell("softmax");
    let (data, classes) = match model {
        "resnet50" | "vgg16" => ("shapes", 10_i64),
        "yolov3" | "maskrcnn" => ("scenes", 10),
        "dqn" => ("cartpole", 0),
        _ => ("grammar", 200),
    };
    let mut fields: Vec<(&str, Value)> = vec![
        ("model.name", model.into()),
        ("data.name", data.into()),
        ("data.train_count", 48_i64.into()),
        ("training.optimizer", "adam".into()),
        ("training.beta1", 0.9.into()),
        ("training.beta2", 0.999.into()),
        ("training.epsilon", 1e-8.into()),
        ("training.learning_rate", 1e-3.into()),
    ];
    match data {
        "cartpole" => fields.extend([
            ("training.discount", 0.99.into()),
            ("training.exploration_last", 0.05.into()),
            ("training.exploration_steps", 20_i64.into()),
            ("training.replay_capacity", 500_i64.into()),
            ("training.learning_starts", 30_i64.into()),
            ("training.train_every", 2_i64.into()),
            ("training.target_every", 1_i64.into()),
            ("training.target_share", 0.01.into()),
            ("training.reward_scale", 0.01.into()),
        ]),
        _ => fields.extend([
            ("model.size", "tiny".into()),
            ("model.classes", classes.into()),
            match data {
                "shapes" => ("data.side", 32_i64.into()),
                "scenes" => ("data.side", 64_i64.into()),
                _ => ("data.width", 16_i64.into()),
            },
        ]),
    }
    if ["vgg16", "bert", "gpt2"].contains(&model) {
        fields.push(("model.dropout", 0.1.into()));
    }
    cell.config.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
    if data == "cartpole" {
        cell.config.retain(|name, _| !["data.seed", "data.eval_count"].contains(&name.as_str()));
    }
    cell
}

/// A sink that stores the events of the first rank with their times, and those of other ranks apart. Each reading of
/// its clock advances it by 50 ms.
#[derive(Default)]
pub struct EventLog(pub Mutex<Vec<(u64, EventKind)>>, AtomicU64, pub Mutex<Vec<(usize, EventKind)>>);

impl EventLog {
    /// The events without their times.
    pub fn events(&self) -> Vec<EventKind> {
        self.0.lock().expect("no panic while locked").iter().map(|(_, kind)| kind.clone()).collect()
    }
}

impl Sink for EventLog {
    fn now_ns(&self) -> u64 {
        self.1.fetch_add(50_000_000, Ordering::Relaxed)
    }

    fn emit_from(&self, rank: usize, t_ns: u64, kind: EventKind) {
        if rank > 0 {
            self.2.lock().expect("no panic while locked").push((rank, kind));
            return;
        }
        self.0.lock().expect("no panic while locked").push((t_ns, kind));
    }
}

/// The events of a run, sorted by kind.
#[derive(Debug, Default)]
pub struct RecordedRun {
    /// All events.
    pub events: Vec<EventKind>,
    /// Values of steps by name, in order.
    pub series: BTreeMap<String, Vec<f64>>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, f64>,
    /// Facts by name.
    pub facts: BTreeMap<String, Value>,
    /// Digests by name.
    pub digests: BTreeMap<String, Digest>,
}

impl RecordedRun {
    /// Returns the largest difference from another run's series, relative to the first value.
    pub fn apart(&self, other: &Self, series: &str) -> f64 {
        let (one, other) = (&self.series[series], &other.series[series]);
        assert_eq!(one.len(), other.len(), "{series}");
        let scale = one[0].abs().max(1e-3);
        one.iter().zip(other).map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max)
    }
}

/// Runs a cell and sorts its events by kind.
pub fn run_recorded(cell: &Cell) -> Result<RecordedRun, TrainError> {
    let log = EventLog::default();
    let finish = run(cell, false, None, &log, &AtomicBool::new(false))?;
    Ok(sorted(finish, &log))
}

/// Runs a cell on a device and sorts its events by kind.
pub fn run_recorded_on(place: &Place, cell: &Cell) -> Result<RecordedRun, TrainError> {
    let log = EventLog::default();
    let spec = Spec::read(cell)?;
    let task = open(&spec, place)?;
    let finish = fit(ProcessGroup::single(), &spec, task, place, &log, &AtomicBool::new(false), true)?;
    Ok(sorted(finish, &log))
}

fn sorted(finish: Finish, log: &EventLog) -> RecordedRun {
    assert_eq!(finish, Finish::Done);
    let mut recorded = RecordedRun { events: log.events(), ..RecordedRun::default() };
    for (_, event) in &*log.2.lock().expect("no panic while locked") {
        if let EventKind::Fact { name, value } = event {
            recorded.facts.insert(name.clone(), value.clone());
        }
    }
    for event in &recorded.events {
        match event {
            EventKind::Step { values, .. } => {
                for (name, value) in values {
                    recorded.series.entry(name.clone()).or_default().push(*value);
                }
            }
            EventKind::Metric { name, value, .. } => {
                recorded.metrics.insert(name.clone(), *value);
            }
            EventKind::Fact { name, value } => {
                recorded.facts.insert(name.clone(), value.clone());
            }
            EventKind::Digest { name, digest } => {
                recorded.digests.insert(name.clone(), *digest);
            }
            _ => {}
        }
    }
    recorded
}
