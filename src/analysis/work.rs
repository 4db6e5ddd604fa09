//! The amount of work of a run: a run with less energy or time may have done less.

use super::statistic::real;
use crate::record::{Digest, Part, Run, Table, Value};
use std::collections::BTreeMap;

/// Returns the number of samples of a metric in a configuration of the built-in trainer: those of the whole run, of an
/// epoch, or of a step of all ranks. For an agent they are the transitions from which it learns. `None` for a metric
/// that does not grow with samples, or if the configuration does not determine their number.
pub fn samples_behind(metric: &str, run: &Run) -> Option<i64> {
    let config = run.config();
    if ["step_time", "step_time_p95"].contains(&metric) {
        return of_a_step(config);
    }
    let [epochs, steps, each] =
        ["training.epochs", "training.steps", "data.train_count"].map(|name| count(config, name));
    let is_agent = run.model() == "dqn";
    match metric {
        metric if grows_with_samples(metric) => match (epochs, steps) {
            // Each update of an agent has a full batch.
            (_, Some(steps)) if is_agent => steps.checked_mul(of_a_step(config)?),
            (Some(epochs), _) if !is_agent => epochs.checked_mul(each?),
            (None, Some(steps)) => of_steps(steps, of_a_step(config)?, each?),
            _ => None,
        },
        // A run with a fixed number of steps may have an incomplete epoch.
        "energy_per_epoch" | "epoch_time" => each.filter(|_| epochs.is_some() && !is_agent),
        _ => None,
    }
}

/// Whether a metric is of the whole run, so that it grows with the amount of work.
pub fn grows_with_samples(metric: &str) -> bool {
    ["energy", "energy_net", "energy_total", "wait_energy", "train_time", "wall_time", "cpu_time", "edp"]
        .contains(&metric)
}

/// Whether a metric is only of the training, which ends before the timed inference begins.
pub fn is_of_training(metric: &str) -> bool {
    [
        "energy",
        "energy_net",
        "energy_per_epoch",
        "energy_per_sample",
        "edp",
        "edp_per_sample",
        "epoch_time",
        "step_time",
        "step_time_p95",
        "throughput",
        "train_time",
    ]
    .contains(&metric)
}

/// Returns the smallest and the largest number of samples of a metric in these runs. `None` if all have the same; runs
/// with an unknown number are ignored.
pub fn unequal_samples<'a>(metric: &str, runs: impl Iterator<Item = &'a Run>) -> Option<(i64, i64)> {
    let samples: Vec<i64> = runs.filter_map(|run| samples_behind(metric, run)).collect();
    let (least, most) = (*samples.iter().min()?, *samples.iter().max()?);
    (least < most).then_some((least, most))
}

/// Fields that determine the length of a training, and the evaluated data.
const OF_LENGTH: [&str; 5] =
    ["training.steps", "training.epochs", "data.train_count", "data.eval_count", "data.digest"];

/// The digest of those parts of a configuration that may change a metric. Timed inference changes no metric of the
/// training. The length of the training changes no metric of a step or a sample.
pub(super) fn digest_behind(metric: &str, run: &Run) -> Digest {
    if !is_of_training(metric) {
        return run.parts.digest(Part::Config);
    }
    let grows = grows_with_samples(metric) || ["energy_per_epoch", "epoch_time"].contains(&metric);
    let is_of_length = |name: &str| !grows && OF_LENGTH.contains(&name);
    let config = run.config().iter().filter(|(name, _)| !name.starts_with("inference.") && !is_of_length(name));
    Value::Table(config.map(|(name, value)| (name.clone(), value.clone())).collect()).digest()
}

/// The corresponding metric per sample.
pub fn of_one_sample(metric: &str) -> Option<&'static str> {
    match metric {
        "energy" | "energy_net" | "energy_total" | "energy_per_epoch" => Some("energy_per_sample"),
        "train_time" | "wall_time" | "epoch_time" | "step_time" => Some("throughput"),
        _ => None,
    }
}

/// The samples of a pass over the data by the built-in trainer, whose last step takes the remaining ones. `None` if the
/// configuration does not state them, for agents, and for other programs, which may leave out the remaining ones.
pub fn samples_of_a_pass(run: &Run) -> Option<i64> {
    let is_built_in = run.parts.program.as_table().is_some_and(|program| !program.contains_key("command"));
    count(run.config(), "data.train_count").filter(|_| is_built_in && run.model() != "dqn")
}

/// The samples of `steps` steps of `batch` samples. If the size of a pass is known, the last step of each pass takes the remaining ones.
pub(super) fn trained_on(steps: u64, batch: u64, of_a_pass: Option<i64>) -> f64 {
    let whole = |number: u64| i64::try_from(number).ok();
    let exact = || u64::try_from(of_steps(whole(steps)?, whole(batch)?, of_a_pass?)?).ok();
    exact().map_or_else(|| real(steps) * real(batch), real)
}

/// The samples of `steps` steps, where the last step of each pass takes the remaining ones.
fn of_steps(steps: i64, batch: i64, of_a_pass: i64) -> Option<i64> {
    let steps_of_a_pass = of_a_pass.checked_add(batch.checked_sub(1)?)?.checked_div(batch)?;
    let (passes, rest) = (steps.checked_div(steps_of_a_pass)?, steps.checked_rem(steps_of_a_pass)?);
    passes.checked_mul(of_a_pass)?.checked_add(rest.checked_mul(batch)?)
}

/// The samples of a step over all ranks.
fn of_a_step(config: &Table) -> Option<i64> {
    let batch = count(config, "training.batch_global").or_else(|| {
        let is = |field: &str, value: &str| config.get(field).and_then(Value::as_str) == Some(value);
        // A cell for the CPU has no GPU.
        let one = |field: &str| count(config, field).is_none_or(|ranks| ranks <= 1);
        // Several processes of a program may have a batch each or share one: it is unknown.
        let shared = is("hardware.parallelism", "pipeline") || one("hardware.gpus") && one("hardware.cpu_ranks");
        count(config, "training.batch_size").filter(|_| shared)
    });
    batch.filter(|batch| *batch > 0)
}

fn count(config: &Table, field: &str) -> Option<i64> {
    config.get(field).and_then(Value::as_int)
}

/// Fields of the data that do not change a single sample.
const OF_NO_SAMPLE: [&str; 7] = [
    "data.digest",
    "data.path",
    "data.seed",
    "data.train_count",
    "data.validation_count",
    "data.validation_share",
    "data.eval_count",
];

/// Whether a field changes the samples themselves, for example the size of images, and with it the time they take.
pub fn is_of_sample(name: &str) -> bool {
    name.starts_with("data.") && !OF_NO_SAMPLE.contains(&name)
}

/// Whether all runs have the same model and the same kind of samples.
pub fn have_alike_samples<'a>(runs: impl Iterator<Item = &'a Run>) -> bool {
    let kind = |run: &'a Run| -> BTreeMap<&'a str, &'a Value> {
        let fields = run.config().iter().map(|(name, value)| (name.as_str(), value));
        fields.filter(|(name, _)| *name == "model.name" || is_of_sample(name)).collect()
    };
    let mut kinds = runs.map(kind);
    let first = kinds.next();
    kinds.all(|kind| Some(kind) == first)
}

#[cfg(test)]
mod tests {
    use super::super::trials::tests::trial;
    use super::*;

    fn run(fields: &[(&str, i64)]) -> Run {
        let fields: Vec<(&str, Value)> = fields.iter().map(|(name, value)| (*name, Value::Int(*value))).collect();
        trial(&fields, 1, &[]).run
    }

    #[test]
    fn samples_are_those_of_all_steps_or_epochs() {
        let steps = [("training.steps", 110), ("training.batch_size", 128), ("data.train_count", 20_480)];
        let shared = [steps.as_slice(), &[("training.batch_global", 256), ("hardware.gpus", 2)]].concat();
        let unknown = [steps.as_slice(), &[("hardware.gpus", 2)]].concat();
        let epochs = [("training.epochs", 3), ("training.batch_size", 128), ("data.train_count", 1_000)];
        assert_eq!(samples_behind("energy", &run(&steps)), Some(14_080));
        let cpu = [steps.as_slice(), &[("hardware.gpus", 0)]].concat();
        assert_eq!(samples_behind("energy", &run(&cpu)), Some(14_080));
        assert_eq!(samples_behind("train_time", &run(&shared)), Some(20_480 + 30 * 256), "all GPUs together");
        assert_eq!(samples_behind("energy", &run(&unknown)), None, "a batch of each or of both");
        assert_eq!(samples_behind("edp", &run(&epochs)), Some(3_000));
        assert_eq!(samples_behind("energy_per_epoch", &run(&epochs)), Some(1_000));
        assert_eq!(samples_behind("epoch_time", &run(&steps)), None, "its one epoch ends early");
        assert_eq!(samples_behind("energy_per_sample", &run(&epochs)), None);
        for metric in ["step_time", "step_time_p95"] {
            assert_eq!(samples_behind(metric, &run(&shared)), Some(256), "a step of all");
            assert_eq!(samples_behind(metric, &run(&epochs[..2])), Some(128), "whatever the files have");
            assert_eq!(samples_behind(metric, &run(&unknown)), None);
        }
        assert_eq!(samples_behind("wait_energy", &run(&shared)), samples_behind("energy", &run(&shared)));
        assert_eq!(samples_behind("energy", &run(&epochs[..2])), None, "files have as many as they have");
        assert_eq!(samples_behind("energy", &run(&[("params.x", 1)])), None);
        let agent =
            [("model.name", "dqn".into()), ("training.epochs", Value::Int(3)), ("data.train_count", Value::Int(9))];
        assert_eq!(samples_behind("energy", &trial(&agent, 1, &[]).run), None);
        let updates = [
            ("model.name", "dqn".into()),
            ("training.steps", Value::Int(5)),
            ("training.batch_size", Value::Int(32)),
            ("data.train_count", Value::Int(99)),
        ];
        let agent = trial(&updates, 1, &[]).run;
        assert_eq!([samples_behind("energy", &agent), samples_behind("step_time", &agent)], [Some(160), Some(32)]);
    }

    #[test]
    fn the_length_of_a_training_changes_no_metric_of_a_sample() {
        let of = |metric: &str, fields: &[(&str, i64)]| digest_behind(metric, &run(fields));
        let (short, long) = ([("training.steps", 1), ("params.x", 1)], [("training.steps", 2), ("params.x", 1)]);
        assert_eq!(of("energy_per_sample", &short), of("energy_per_sample", &long));
        assert_ne!(of("energy", &short), of("energy", &long));
        assert_ne!(of("accuracy", &short), of("accuracy", &long));
        assert_ne!(of("throughput", &short), of("throughput", &[("training.steps", 1), ("params.x", 2)]));
        let timed = [("training.steps", 1), ("params.x", 1), ("inference.batch_size", 8)];
        assert_eq!(of("energy", &short), of("energy", &timed));
        assert_ne!(of("inference_time", &short), of("inference_time", &timed));
    }

    #[test]
    fn samples_of_a_pass_are_known_only_for_the_built_in_trainer() {
        let fields = [("data.train_count", 1_000)];
        let made_by = |program: Value, fields: &[(&str, i64)]| {
            let mut parts = run(fields).parts;
            parts.program = program;
            samples_of_a_pass(&Run::new(parts))
        };
        let program = |name: &str| Value::Table([(name.to_owned(), "ledger".into())].into());
        assert_eq!(made_by(program("trainer"), &fields), Some(1_000));
        assert_eq!(made_by(program("trainer"), &[("training.epochs", 3)]), None, "files have as many as they have");
        assert_eq!(made_by(program("command"), &fields), None, "it may leave the rest out");
        assert_eq!([1, 2, 3, 4].map(|steps| trained_on(steps, 600, Some(1_000))), [600.0, 1_000.0, 1_600.0, 2_000.0]);
        assert_eq!([None, Some(0)].map(|pass| trained_on(2, 600, pass)), [1_200.0; 2]);
        assert_eq!((trained_on(3, 0, Some(9)), trained_on(u64::MAX, 1, Some(9))), (0.0, real(u64::MAX)));
    }

    #[test]
    fn the_last_batch_of_a_pass_is_what_is_left() {
        let of = |steps: i64| {
            let fields = [("training.steps", steps), ("training.batch_size", 128), ("data.train_count", 1_000)];
            samples_behind("energy", &run(&fields))
        };
        assert_eq!([of(7), of(8), of(9)], [Some(896), Some(1_000), Some(1_128)]);
    }
}
