//! How much a run does: what takes less energy or time may have done less.

use crate::record::{Run, Table, Value};

/// How many samples a metric is of, of a configuration of the built-in trainer: all that a run goes through, or those of an epoch. None for a metric that does not grow with them, and
/// where the configuration does not say how many there are.
pub fn samples_behind(metric: &str, run: &Run) -> Option<i64> {
    let config = run.config();
    match metric {
        "energy" | "energy_net" | "energy_total" | "train_time" | "wall_time" | "cpu_time" | "edp" => all(config),
        "energy_per_epoch" | "epoch_time" => count(config, "data.train_count"),
        _ => None,
    }
}

/// The metric that is the same but for the number of samples.
pub fn of_one_sample(metric: &str) -> Option<&'static str> {
    match metric {
        "energy" | "energy_net" | "energy_total" | "energy_per_epoch" => Some("energy_per_sample"),
        "train_time" | "wall_time" | "epoch_time" => Some("throughput"),
        _ => None,
    }
}

fn all(config: &Table) -> Option<i64> {
    let (times, each) = match count(config, "training.steps") {
        Some(steps) => {
            (steps, count(config, "training.batch_global").or_else(|| count(config, "training.batch_size"))?)
        }
        None => (count(config, "training.epochs")?, count(config, "data.train_count")?),
    };
    times.checked_mul(each)
}

fn count(config: &Table, field: &str) -> Option<i64> {
    config.get(field).and_then(Value::as_int)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Parts;

    fn run(fields: &[(&str, i64)]) -> Run {
        let config = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Int(*value))).collect();
        Run::new(Parts {
            config: Value::Table(config),
            program: "p".into(),
            container: "host".into(),
            cuda: "none".into(),
            driver: "none".into(),
            device: "cpu".into(),
            seed: 1,
        })
    }

    #[test]
    fn samples_are_those_of_all_steps_or_epochs() {
        let steps = run(&[("training.steps", 110), ("training.batch_size", 128), ("data.train_count", 20_480)]);
        let shared = [("training.steps", 110), ("training.batch_size", 128), ("training.batch_global", 256)];
        let epochs = run(&[("training.epochs", 3), ("training.batch_size", 128), ("data.train_count", 1_000)]);
        assert_eq!(samples_behind("energy", &steps), Some(14_080));
        assert_eq!(samples_behind("train_time", &run(&shared)), Some(28_160), "all GPUs together");
        assert_eq!(samples_behind("edp", &epochs), Some(3_000));
        assert_eq!(samples_behind("energy_per_epoch", &epochs), Some(1_000));
        assert_eq!(samples_behind("energy_per_sample", &epochs), None);
        assert_eq!(samples_behind("energy", &run(&[("training.epochs", 3)])), None, "files have as many as they have");
        let program = run(&[("params.x", 1)]);
        assert_eq!(samples_behind("energy", &program), None);
    }
}
