//! The trainer's typed form of a cell: every field is read once and checked.
//!
//! The only place that knows the names of fields. An error names the missing or wrong field.

use crate::number::real_len;
use crate::optimizer::schedule::Schedule;
use crate::optimizer::{Decay, Rule};
use crate::precision::Precision;
use ledger_record::{Cell, Value};
use std::time::Duration;

mod detection;
mod task;

pub use detection::{DetectionData, DetectionModel, DetectionSpec};
pub use task::{
    ClassificationData, ClassificationSpec, EnvironmentSpec, MAX_SAMPLES, PublishedModel, RlSpec, Size, Small,
    SmallData, TaskSpec, Tokenizer,
};

/// A field of the cell is missing or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The field is missing.
    #[error("`{field}` is missing (it must be {expected})")]
    Missing {
        /// The field's dotted name.
        field: &'static str,
        /// The allowed values.
        expected: &'static str,
    },
    /// The field has a value that is not allowed.
    #[error("`{field}` is `{found}` (it must be {expected})")]
    Wrong {
        /// The field's dotted name.
        field: &'static str,
        /// Its value as written.
        found: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// Two fields exclude each other, or neither is given.
    #[error("`training.epochs` and `training.steps` are {found} given (give exactly one of them)")]
    Length {
        /// `both` or `not`.
        found: &'static str,
    },
    /// The model cannot train on these data.
    #[error("`model.name` `{model}` cannot learn from `data.name` `{data}` (it takes {fit})")]
    Mismatch {
        /// The model's name.
        model: String,
        /// The data's name.
        data: String,
        /// The data that the model can train on.
        fit: &'static str,
    },
}

/// The length of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Passes over the training data.
    Epochs(u64),
    /// Optimiser steps.
    Steps(u64),
}

/// The type of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// This machine's processor.
    Cpu,
    /// CUDA devices, starting with the first one.
    Cuda,
}

/// The specification of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The model and its data.
    pub task: TaskSpec,
    /// The optimiser.
    pub rule: Rule,
    /// The weight decay.
    pub decay: Decay,
    /// The maximum norm of all gradients together; a larger gradient is scaled down.
    pub clip_norm: Option<f64>,
    /// The number of warm-up steps, in which the learning rate rises to the schedule's value.
    pub warmup: u64,
    /// Number format of products and convolutions.
    pub precision: Precision,
    /// The initial learning rate, scaled by the number of ranks if requested.
    pub learning_rate: f64,
    /// The learning rate schedule.
    pub schedule: Schedule,
    /// Samples that each rank takes in a step.
    pub batch: usize,
    /// How many ranks share each step.
    pub ranks: usize,
    /// The number of micro-batches in a step. Several ranks are then stages of a pipeline.
    pub micro_batches: Option<usize>,
    /// The batch sizes of timed inference; empty for the task's own size.
    pub inference: Vec<usize>,
    /// The length of training.
    pub length: Length,
    /// The device.
    pub device: DeviceSpec,
    /// GiB of memory that each device may use, if it is to act as a smaller one.
    pub memory_limit_gib: Option<u64>,
    /// The time in which a GPU idles before the first step, so that its idle power can be measured; 0 on the CPU.
    pub idle_ns: u64,
    /// The seed of every random draw of the run.
    pub seed: u64,
}

impl Spec {
    /// Reads a cell.
    pub fn read(cell: &Cell) -> Result<Self, SpecError> {
        let fields = Fields(cell);
        let task = fields.task()?;
        let length = fields.length()?;
        let device = fields.device()?;
        let micro_batches = fields.micro_batches(&task)?;
        let ranks = fields.ranks(device, micro_batches.is_some())?;
        let sharers = if micro_batches.is_some() { 1 } else { ranks };
        let (rule, decay) = fields.rule()?;
        Ok(Self {
            precision: fields.precision(&task)?,
            rule,
            decay,
            clip_norm: fields.optional("training.clip_norm", "a finite number above 0", |norm| norm > 0.0)?,
            warmup: match cell.get("training.warmup_steps") {
                Some(_) => fields.long("training.warmup_steps")?,
                None => 0,
            },
            learning_rate: fields.learning_rate(ranks)?,
            schedule: fields.schedule(matches!(length, Length::Epochs(_)))?,
            batch: fields.batch(&task, sharers)?,
            ranks,
            micro_batches,
            inference: fields.inference()?,
            length,
            device,
            memory_limit_gib: match cell.get("hardware.memory_limit_gib") {
                Some(_) if device == DeviceSpec::Cpu => {
                    let expected = "absent: a processor's memory is left as it is";
                    fields.need("hardware.memory_limit_gib", expected, |_| None)?
                }
                Some(_) => Some(fields.long("hardware.memory_limit_gib")?),
                None => None,
            },
            idle_ns: fields.idle_ns(device)?,
            task,
            seed: cell.seed,
        })
    }

    /// Reads only the model and its data.
    pub fn read_task(cell: &Cell) -> Result<TaskSpec, SpecError> {
        Fields(cell).task()
    }
}

struct Fields<'a>(&'a Cell);

impl Fields<'_> {
    fn need<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<T, SpecError> {
        let value = self.0.get(field).ok_or(SpecError::Missing { field, expected })?;
        read(value).ok_or_else(|| SpecError::Wrong { field, found: value.to_string(), expected })
    }

    fn real(&self, field: &'static str, expected: &'static str, fits: fn(f64) -> bool) -> Result<f64, SpecError> {
        self.need(field, expected, |value| value.as_float().filter(|number| number.is_finite() && fits(*number)))
    }

    fn optional(
        &self,
        field: &'static str,
        expected: &'static str,
        fits: fn(f64) -> bool,
    ) -> Result<Option<f64>, SpecError> {
        self.0.get(field).map(|_| self.real(field, expected, fits)).transpose()
    }

    fn count(&self, field: &'static str, expected: &'static str, min: usize, max: usize) -> Result<usize, SpecError> {
        self.need(field, expected, |value| {
            value.as_int().and_then(|n| usize::try_from(n).ok()).filter(|n| (min..=max).contains(n))
        })
    }

    fn name<T>(
        &self,
        field: &'static str,
        expected: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SpecError> {
        self.need(field, expected, |value| value.as_str().and_then(&read))
    }

    fn size(&self) -> Result<Size, SpecError> {
        self.name("model.size", "`full` or `tiny`", |size| match size {
            "full" => Some(Size::Full),
            "tiny" => Some(Size::Tiny),
            _ => None,
        })
    }

    fn rule(&self) -> Result<(Rule, Decay), SpecError> {
        let name = "`sgd`, `momentum`, `adam` or `adamw`";
        let decay = "at least 0 and below 1";
        let decays = |beta: f64| (0.0..1.0).contains(&beta);
        let found = self.name("training.optimizer", name, |name| Some(name.to_owned()))?;
        let rule = match found.as_str() {
            "sgd" => Rule::Sgd,
            "momentum" => Rule::Momentum { momentum: self.real("training.momentum", decay, decays)? },
            "adam" | "adamw" => Rule::Adam {
                beta1: self.real("training.beta1", decay, decays)?,
                beta2: self.real("training.beta2", decay, decays)?,
                epsilon: self.real("training.epsilon", "a finite number of at least 0", |epsilon| epsilon >= 0.0)?,
            },
            other => {
                return Err(SpecError::Wrong { field: "training.optimizer", found: other.to_owned(), expected: name });
            }
        };
        Ok((
            rule,
            match self.optional("training.weight_decay", decay, decays)? {
                Some(share) if found == "adamw" => Decay::Decoupled(share),
                Some(share) if share > 0.0 => Decay::Coupled(share),
                _ => Decay::None,
            },
        ))
    }

    fn learning_rate(&self, ranks: usize) -> Result<f64, SpecError> {
        let rate = self.real("training.learning_rate", "a finite number of at least 0", |lr| lr >= 0.0)?;
        let field = "training.learning_rate_scaling";
        if self.0.get(field).is_none() {
            return Ok(rate);
        }
        self.name(field, "`none`, `linear` or `sqrt`", |name| match name {
            "none" => Some(rate),
            "linear" => Some(rate * real_len(ranks)),
            "sqrt" => Some(rate * real_len(ranks).sqrt()),
            _ => None,
        })
    }

    fn schedule(&self, epochs: bool) -> Result<Schedule, SpecError> {
        let name = "`constant`, `step`, `linear` or `cosine`";
        match self.name("training.schedule", name, |name| Some(name.to_owned()))?.as_str() {
            "constant" => Ok(Schedule::Constant),
            "linear" => Ok(Schedule::Linear),
            "cosine" => Ok(Schedule::Cosine),
            "step" => Ok(Schedule::Step {
                every: self.long("training.schedule_step_size")?,
                gamma: self.real("training.schedule_gamma", "a finite number above 0", |gamma| gamma > 0.0)?,
                epochs,
            }),
            other => Err(SpecError::Wrong { field: "training.schedule", found: other.to_owned(), expected: name }),
        }
    }

    fn long(&self, field: &'static str) -> Result<u64, SpecError> {
        self.need(field, "a whole number of at least 1", |value| {
            value.as_int().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
        })
    }

    /// Returns the samples of a rank in a step. If the cell also gives the global batch size, both must agree.
    fn batch(&self, task: &TaskSpec, ranks: usize) -> Result<usize, SpecError> {
        let batch = match (task, ranks) {
            (TaskSpec::Small { data: SmallData::Line, .. }, 1) => {
                self.count("training.batch_size", "4, all points of `line`", 4, 4)?
            }
            (TaskSpec::Small { data: SmallData::Line, .. }, _) => {
                let each = 4 / ranks;
                self.count("training.batch_size", "all 4 points of `line` over the ranks", each, each)?
            }
            _ => self.count("training.batch_size", "a whole number, 1 to 65536", 1, 65_536)?,
        };
        if self.0.get("training.batch_global").is_some() {
            let all = batch * ranks;
            self.count("training.batch_global", "`training.batch_size` times the number of ranks", all, all)?;
        }
        Ok(batch)
    }

    fn inference(&self) -> Result<Vec<usize>, SpecError> {
        let field = "inference.batch_sizes";
        if self.0.get(field).is_none() {
            return Ok(Vec::new());
        }
        let count =
            |value: &Value| value.as_int().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=65_536).contains(n));
        self.need(field, "a list of whole numbers, 1 to 65536", |value| match value {
            Value::List(sizes) if !sizes.is_empty() => sizes.iter().map(count).collect(),
            _ => None,
        })
    }

    fn length(&self) -> Result<Length, SpecError> {
        match (self.0.get("training.epochs").is_some(), self.0.get("training.steps").is_some()) {
            (true, false) => Ok(Length::Epochs(self.long("training.epochs")?)),
            (false, true) => Ok(Length::Steps(self.long("training.steps")?)),
            (true, true) => Err(SpecError::Length { found: "both" }),
            (false, false) => Err(SpecError::Length { found: "not" }),
        }
    }

    fn precision(&self, task: &TaskSpec) -> Result<Precision, SpecError> {
        if let TaskSpec::Small { .. } = task {
            let expected = "`fp32`, the only precision of the small models";
            return self.name("training.precision", expected, |name| (name == "fp32").then_some(Precision::Fp32));
        }
        self.name("training.precision", "`fp32`, `fp16` or `bf16`", Precision::of)
    }

    fn device(&self) -> Result<DeviceSpec, SpecError> {
        let device = self.name("hardware.device", "`cpu` or `cuda`", |name| match name {
            "cpu" => Some(DeviceSpec::Cpu),
            "cuda" => Some(DeviceSpec::Cuda),
            _ => None,
        })?;
        if device == DeviceSpec::Cpu && self.0.get("hardware.gpus").is_some() {
            self.count("hardware.gpus", "0 or 1; on `cpu` none is used", 0, 1)?;
        }
        Ok(device)
    }

    /// Returns the number of ranks that share a step. On several GPUs each rank has a GPU. On the CPU ranks are
    /// threads.
    fn ranks(&self, device: DeviceSpec, cut: bool) -> Result<usize, SpecError> {
        let field = match device {
            DeviceSpec::Cuda => "hardware.gpus",
            DeviceSpec::Cpu if self.0.get("hardware.cpu_ranks").is_none() => return Ok(1),
            DeviceSpec::Cpu => "hardware.cpu_ranks",
        };
        let ranks = self.need(field, "1, 2 or 4", |value| {
            value.as_int().and_then(|n| usize::try_from(n).ok()).filter(|n| [1, 2, 4].contains(n))
        })?;
        if ranks > 1 {
            let expected = if cut {
                "`pipeline`, for which micro-batches are"
            } else {
                "`data`, or `pipeline` with `training.micro_batches`"
            };
            let fit = if cut { "pipeline" } else { "data" };
            self.name("hardware.parallelism", expected, |name| (name == fit).then_some(()))?;
        }
        Ok(ranks)
    }

    /// Returns the number of micro-batches in a step. Only models that can be cut into stages may have any.
    fn micro_batches(&self, task: &TaskSpec) -> Result<Option<usize>, SpecError> {
        let field = "training.micro_batches";
        if self.0.get(field).is_none() {
            return Ok(None);
        }
        let stages = [PublishedModel::Resnet50, PublishedModel::Vgg16, PublishedModel::Bert, PublishedModel::Gpt2];
        let staged = matches!(task, TaskSpec::Classification(learn) if stages.contains(&learn.model));
        let expected = if staged {
            "a whole number, 1 to 64"
        } else {
            "absent: only `resnet50`, `vgg16`, `bert` and `gpt2` are cut into stages"
        };
        self.count(field, expected, 1, if staged { 64 } else { 0 }).map(Some)
    }

    fn idle_ns(&self, device: DeviceSpec) -> Result<u64, SpecError> {
        let field = "telemetry.idle_s";
        if self.0.get(field).is_none() {
            return Ok(0);
        }
        let seconds = self.real(field, "seconds, 0 to 3600", |seconds| (0.0..=3600.0).contains(&seconds))?;
        let time = if device == DeviceSpec::Cuda { Duration::from_secs_f64(seconds) } else { Duration::ZERO };
        Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
