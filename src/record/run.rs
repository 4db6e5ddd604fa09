//! A run: a cell bound to an environment, with the hash of both as its id.

use super::digest::digest_id;
use super::{Digest, Table, Value};
use std::fmt;
use std::str::FromStr;

digest_id! {
    /// The id of a run: the hash of its seven parts.
    RunId
}

digest_id! {
    /// The id of runs that differ only in their seed: their attempts are repetitions of one measurement.
    GroupId
}

/// One point of a manifest's grid, with all defaults.
///
/// Fields have dotted names (`training.learning_rate`). Fields in `config` are part of the identity; `settings` are only recorded.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Cell {
    /// Hashed fields.
    pub config: Table,
    /// Fields that do not change what is computed: the experiment's name, limits, telemetry, the location of data.
    pub settings: Table,
    /// The seed of all random numbers of the run.
    pub seed: u64,
}

impl Cell {
    /// The value of a field by its dotted name, hashed or not.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.config.get(field).or_else(|| self.settings.get(field))
    }

    /// The text of a field.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.get(field).and_then(Value::as_str)
    }

    /// The whole number of a field.
    pub fn int(&self, field: &str) -> Option<i64> {
        self.get(field).and_then(Value::as_int)
    }

    /// The number of a field, whole or real.
    pub fn float(&self, field: &str) -> Option<f64> {
        self.get(field).and_then(Value::as_float)
    }
}

/// The parts of a run's id, in hashing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The resolved cell.
    Config,
    /// The program that executes it.
    Program,
    /// The container image's digest, or `host`.
    Container,
    /// CUDA driver API, NVRTC and NCCL versions, or `none`.
    Cuda,
    /// NVIDIA driver version, or `none`.
    Driver,
    /// Product names by rank.
    Device,
    /// The seed.
    Seed,
}

impl Part {
    /// Every part, in hashing order. Frozen.
    pub const ALL: [Self; 7] =
        [Self::Config, Self::Program, Self::Container, Self::Cuda, Self::Driver, Self::Device, Self::Seed];

    /// The name that is hashed and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Program => "program",
            Self::Container => "container",
            Self::Cuda => "cuda",
            Self::Driver => "driver",
            Self::Device => "device",
            Self::Seed => "seed",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The values of the seven parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// See [`Part::Config`].
    pub config: Value,
    /// See [`Part::Program`].
    pub program: Value,
    /// See [`Part::Container`].
    pub container: Value,
    /// See [`Part::Cuda`].
    pub cuda: Value,
    /// See [`Part::Driver`].
    pub driver: Value,
    /// See [`Part::Device`].
    pub device: Value,
    /// See [`Part::Seed`].
    pub seed: u64,
}

impl Parts {
    /// The container part of a run without a container.
    pub const HOST: &str = "host";

    /// A program without configuration on the CPU of a host, for tests.
    #[doc(hidden)]
    pub fn sample() -> Self {
        Self {
            config: Table::new().into(),
            program: "p".into(),
            container: Self::HOST.into(),
            cuda: "none".into(),
            driver: "none".into(),
            device: "cpu".into(),
            seed: 1,
        }
    }

    /// The value of a part. The seed is decimal text, since it may exceed `i64`.
    pub fn value(&self, part: Part) -> Value {
        match part {
            Part::Config => self.config.clone(),
            Part::Program => self.program.clone(),
            Part::Container => self.container.clone(),
            Part::Cuda => self.cuda.clone(),
            Part::Driver => self.driver.clone(),
            Part::Device => self.device.clone(),
            Part::Seed => Value::Str(self.seed.to_string()),
        }
    }

    /// The digest of a part's value.
    pub fn digest(&self, part: Part) -> Digest {
        match part {
            Part::Config => self.config.digest(),
            Part::Program => self.program.digest(),
            Part::Container => self.container.digest(),
            Part::Cuda => self.cuda.digest(),
            Part::Driver => self.driver.digest(),
            Part::Device => self.device.digest(),
            Part::Seed => Value::Str(self.seed.to_string()).digest(),
        }
    }

    /// `BLAKE3("ledger run v1" ‖ for each part in order: name, digest)`, every piece length-prefixed.
    pub fn run_id(&self) -> RunId {
        RunId(self.hash("ledger run v1", &Part::ALL))
    }

    /// As [`run_id`](Self::run_id), without the seed.
    pub fn group_id(&self) -> GroupId {
        GroupId(self.hash("ledger group v1", &Part::ALL[..6]))
    }

    fn hash(&self, domain: &str, parts: &[Part]) -> Digest {
        let digests: Vec<_> = parts.iter().map(|part| (part.name(), self.digest(*part))).collect();
        let pieces: Vec<&[u8]> =
            digests.iter().flat_map(|(name, digest)| [name.as_bytes(), digest.0.as_slice()]).collect();
        Digest::of_pieces(domain, &pieces)
    }
}

/// A cell bound to an environment.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The hash of `parts`.
    pub id: RunId,
    /// The hashed parts.
    pub parts: Parts,
}

impl Run {
    /// Creates a run with the id of the parts.
    pub fn new(parts: Parts) -> Self {
        Self { id: parts.run_id(), parts }
    }

    /// The hashed fields by dotted name.
    pub fn config(&self) -> &Table {
        static EMPTY: Table = Table::new();
        self.parts.config.as_table().unwrap_or(&EMPTY)
    }

    /// The model's name, or `program` for a run without one.
    pub fn model(&self) -> &str {
        self.config().get("model.name").and_then(Value::as_str).unwrap_or("program")
    }
}

/// The process that executes an attempt, identified so that another process can determine whether it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Host name.
    pub host: String,
    /// Changes with every boot of the host.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Start time of that process in clock ticks after boot, since pids are reused.
    pub start_ticks: u64,
}

impl FromStr for Part {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|part| part.name() == name).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_changes_the_id_and_only_the_seed_keeps_the_group() {
        let base = Parts::sample();
        let reseeded = Parts { seed: 2, ..base.clone() };
        assert_eq!(reseeded.group_id(), base.group_id());
        assert_ne!(reseeded.run_id(), base.run_id());
        for part in &Part::ALL[..6] {
            let mut other = base.clone();
            let slot = match part {
                Part::Config => &mut other.config,
                Part::Program => &mut other.program,
                Part::Container => &mut other.container,
                Part::Cuda => &mut other.cuda,
                Part::Driver => &mut other.driver,
                Part::Device | Part::Seed => &mut other.device,
            };
            *slot = "another".into();
            assert_ne!(other.run_id(), base.run_id(), "{part}");
            assert_ne!(other.group_id(), base.group_id(), "{part}");
        }
    }
}
