//! A cell as the trainer understands it: every field read once, checked, and typed.
//!
//! The only place that knows the names of fields. A missing or wrong field is an error that names it.

use super::optimizer::Rule;
use super::schedule::Schedule;
use crate::record::{Cell, Value};
use std::path::PathBuf;
use std::time::Duration;

/// A field of the cell is missing or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The field is not there.
    #[error("`{field}` is missing (it must be {expected})")]
    Missing {
        /// The field's dotted name.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// The field has a value that is not allowed.
    #[error("`{field}` is `{found}` (it must be {expected})")]
    Wrong {
        /// The field's dotted name.
        field: &'static str,
        /// Its value as written.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Two fields exclude each other, or neither is given.
    #[error("`training.epochs` and `training.steps` are {found} given (give exactly one of them)")]
    Length {
        /// `both` or `not`.
        found: &'static str,
    },
    /// The model cannot learn from that data.
    #[error(
        "`model.name` `{model}` cannot learn from `data.name` `{data}` (`linear` takes `line`, every other model `digits` or `idx`)"
    )]
    Mismatch {
        /// The model's name.
        model: String,
        /// The data's name.
        data: String,
    },
}

/// A model and its hyper-parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelSpec {
    /// y = W·x + b with given initial values; the loss is the sum of squares.
    Linear {
        /// Initial W.
        weight: f64,
        /// Initial b.
        bias: f64,
    },
    /// 784 pixels to 10 classes, one affine map.
    Softmax,
    /// 784 pixels, one hidden layer with ReLU, 10 classes.
    Mlp {
        /// Width of the hidden layer.
        hidden: usize,
    },
    /// Two convolutions with pooling, a layer of 1,024, dropout, 10 classes.
    Cnn {
        /// Share of the 1,024 that is dropped in training.
        dropout: f64,
    },
}

/// The data to learn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    /// Four points on y = 1 - x.
    Line,
    /// Generated handwriting.
    Digits {
        /// Seeds the images.
        seed: u64,
        /// Number of training images.
        train: usize,
        /// Number of evaluation images.
        eval: usize,
    },
    /// IDX files of a directory.
    Idx {
        /// The directory.
        path: PathBuf,
        /// How many training images are held back for evaluation; 0 takes the test files instead.
        validation: usize,
        /// How many training images are used, where not all are.
        train: Option<usize>,
    },
}

/// How long to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Passes over the training data.
    Epochs(u64),
    /// Optimiser steps.
    Steps(u64),
}

/// Where to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// This machine's processor.
    Cpu,
    /// The first CUDA device.
    Cuda,
}

/// All that a run needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What is trained.
    pub model: ModelSpec,
    /// On what.
    pub data: DataSpec,
    /// The optimiser.
    pub rule: Rule,
    /// The initial learning rate.
    pub learning_rate: f64,
    /// How it changes.
    pub schedule: Schedule,
    /// Samples a step.
    pub batch: usize,
    /// How long.
    pub length: Length,
    /// Where.
    pub device: DeviceSpec,
    /// How long a GPU rests before the first step, so that its idle power can be measured; 0 on the CPU.
    pub idle_ns: u64,
    /// Seeds every random draw of the run.
    pub seed: u64,
}

/// The version of the generator that this program holds.
pub const GENERATOR_VERSION: i64 = 1;

/// No data set may have more samples than this: 784 MB of images.
pub const MAX_SAMPLES: usize = 1_000_000;

impl Spec {
    /// Reads a cell.
    pub fn read(cell: &Cell) -> Result<Self, SpecError> {
        let fields = Fields(cell);
        let model = fields.model()?;
        let data = fields.data()?;
        if matches!(model, ModelSpec::Linear { .. }) != (data == DataSpec::Line) {
            return Err(SpecError::Mismatch {
                model: cell.text("model.name").unwrap_or_default().to_owned(),
                data: cell.text("data.name").unwrap_or_default().to_owned(),
            });
        }
        let length = fields.length()?;
        fields.precision()?;
        let device = fields.device()?;
        Ok(Self {
            model,
            rule: fields.rule()?,
            learning_rate: fields.real("training.learning_rate", "a finite number of at least 0", |lr| lr >= 0.0)?,
            schedule: fields.schedule(matches!(length, Length::Epochs(_)))?,
            batch: fields.batch(&data)?,
            length,
            device,
            idle_ns: fields.idle_ns(device)?,
            data,
            seed: cell.seed,
        })
    }

    /// Reads the model alone.
    pub fn read_model(cell: &Cell) -> Result<ModelSpec, SpecError> {
        Fields(cell).model()
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

    fn model(&self) -> Result<ModelSpec, SpecError> {
        let name = "`linear`, `softmax`, `mnist_mlp` or `mnist_cnn`";
        match self.name("model.name", name, |name| Some(name.to_owned()))?.as_str() {
            "linear" => Ok(ModelSpec::Linear {
                weight: self.real("model.initial_weight", "a finite number", |_| true)?,
                bias: self.real("model.initial_bias", "a finite number", |_| true)?,
            }),
            "softmax" => Ok(ModelSpec::Softmax),
            "mnist_mlp" => {
                Ok(ModelSpec::Mlp { hidden: self.count("model.hidden", "a whole number, 1 to 65536", 1, 65_536)? })
            }
            "mnist_cnn" => Ok(ModelSpec::Cnn {
                dropout: self.real("model.dropout", "at least 0 and below 1", |p| (0.0..1.0).contains(&p))?,
            }),
            other => Err(SpecError::Wrong { field: "model.name", found: other.to_owned(), expected: name }),
        }
    }

    fn data(&self) -> Result<DataSpec, SpecError> {
        let name = "`line`, `digits` or `idx`";
        let samples = "a whole number, 1 to 1000000";
        match self.name("data.name", name, |name| Some(name.to_owned()))?.as_str() {
            "line" => Ok(DataSpec::Line),
            "digits" => {
                self.need("data.generator_version", "1, the version that this program holds", |value| {
                    value.as_int().filter(|version| *version == GENERATOR_VERSION)
                })?;
                Ok(DataSpec::Digits {
                    seed: self.need("data.seed", "a whole number of at least 0", |value| {
                        value.as_int().and_then(|seed| u64::try_from(seed).ok())
                    })?,
                    train: self.count("data.train_count", samples, 1, MAX_SAMPLES)?,
                    eval: self.count("data.eval_count", samples, 1, MAX_SAMPLES)?,
                })
            }
            "idx" => Ok(DataSpec::Idx {
                path: self.name("data.path", "a directory with IDX files", |path| Some(PathBuf::from(path)))?,
                validation: self.count("data.validation_count", "a whole number, 0 to 1000000", 0, MAX_SAMPLES)?,
                train: match self.0.get("data.train_count") {
                    None => None,
                    Some(_) => Some(self.count("data.train_count", samples, 1, MAX_SAMPLES)?),
                },
            }),
            other => Err(SpecError::Wrong { field: "data.name", found: other.to_owned(), expected: name }),
        }
    }

    fn rule(&self) -> Result<Rule, SpecError> {
        let name = "`sgd`, `momentum` or `adam`";
        let decay = "at least 0 and below 1";
        let decays = |beta: f64| (0.0..1.0).contains(&beta);
        match self.name("training.optimizer", name, |name| Some(name.to_owned()))?.as_str() {
            "sgd" => Ok(Rule::Sgd),
            "momentum" => Ok(Rule::Momentum { momentum: self.real("training.momentum", decay, decays)? }),
            "adam" => Ok(Rule::Adam {
                beta1: self.real("training.beta1", decay, decays)?,
                beta2: self.real("training.beta2", decay, decays)?,
                epsilon: self.real("training.epsilon", "a finite number of at least 0", |epsilon| epsilon >= 0.0)?,
            }),
            other => Err(SpecError::Wrong { field: "training.optimizer", found: other.to_owned(), expected: name }),
        }
    }

    fn schedule(&self, epochs: bool) -> Result<Schedule, SpecError> {
        let name = "`constant`, `step` or `cosine`";
        match self.name("training.schedule", name, |name| Some(name.to_owned()))?.as_str() {
            "constant" => Ok(Schedule::Constant),
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

    fn batch(&self, data: &DataSpec) -> Result<usize, SpecError> {
        match data {
            DataSpec::Line => self.count("training.batch_size", "4, all points of `line`", 4, 4),
            _ => self.count("training.batch_size", "a whole number, 1 to 65536", 1, 65_536),
        }
    }

    fn length(&self) -> Result<Length, SpecError> {
        match (self.0.get("training.epochs").is_some(), self.0.get("training.steps").is_some()) {
            (true, false) => Ok(Length::Epochs(self.long("training.epochs")?)),
            (false, true) => Ok(Length::Steps(self.long("training.steps")?)),
            (true, true) => Err(SpecError::Length { found: "both" }),
            (false, false) => Err(SpecError::Length { found: "not" }),
        }
    }

    fn precision(&self) -> Result<(), SpecError> {
        let expected = "`fp32`, the only precision that this trainer has";
        self.name("training.precision", expected, |name| (name == "fp32").then_some(()))
    }

    fn device(&self) -> Result<DeviceSpec, SpecError> {
        let device = self.name("hardware.device", "`cpu` or `cuda`", |name| match name {
            "cpu" => Some(DeviceSpec::Cpu),
            "cuda" => Some(DeviceSpec::Cuda),
            _ => None,
        })?;
        let allowed = match device {
            DeviceSpec::Cpu => "0 or 1; on `cpu` none is used",
            DeviceSpec::Cuda => "1: this trainer uses one GPU",
        };
        match (device, self.0.get("hardware.gpus")) {
            (DeviceSpec::Cpu, None) => {}
            (DeviceSpec::Cpu, Some(_)) => {
                self.count("hardware.gpus", allowed, 0, 1)?;
            }
            (DeviceSpec::Cuda, _) => {
                self.count("hardware.gpus", allowed, 1, 1)?;
            }
        }
        Ok(device)
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
