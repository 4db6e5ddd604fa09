//! The specification of a model and its data.

use super::detection::{DetectionModel, DetectionSpec};
use super::{Fields, SpecError};
use crate::data::{grammar, shapes};
use std::path::PathBuf;

/// The model and its data.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskSpec {
    /// A small model.
    Small {
        /// The model.
        model: Small,
        /// The data.
        data: SmallData,
    },
    /// A published model that classifies images or tokens.
    Classification(ClassificationSpec),
    /// Deep Q-learning in an environment.
    Rl(RlSpec),
    /// A published model that detects objects in pictures.
    Detection(DetectionSpec),
}

/// Deep Q-learning in an environment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RlSpec {
    /// The environment.
    pub world: EnvironmentSpec,
    /// Transitions of an epoch.
    pub epoch: usize,
    /// The discount of a reward for each step before it.
    pub discount: f64,
    /// The final fraction of random actions.
    pub exploration_last: f64,
    /// The steps in the environment until it is reached.
    pub exploration_steps: u64,
    /// Frames that the replay memory holds.
    pub replay_capacity: usize,
    /// Random steps before the first update.
    pub learning_starts: u64,
    /// Steps in the environment between updates.
    pub train_every: u64,
    /// Updates between changes of the target network.
    pub target_every: u64,
    /// The weight of the trained network in such a change.
    pub target_share: f64,
    /// The factor of rewards.
    pub reward_scale: f64,
}

/// An environment of reinforcement learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentSpec {
    /// CartPole-v1, with a network of three layers.
    CartPole,
    /// Catching balls from pixels, with the convolutional network.
    Catch {
        /// The number of actions: 4 or 6.
        actions: usize,
    },
}

/// A published model for classification, and its data.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassificationSpec {
    /// The model.
    pub model: PublishedModel,
    /// The size of the model.
    pub size: Size,
    /// The number of classes, or of tokens in the vocabulary.
    pub classes: usize,
    /// The fraction of values that a training step drops; 0 for a model without dropout.
    pub dropout: f64,
    /// The data.
    pub data: ClassificationData,
}

/// A small model and its hyper-parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Small {
    /// y = W·x + b with given initial values; the loss is the sum of squares.
    Linear {
        /// Initial W.
        weight: f64,
        /// Initial b.
        bias: f64,
    },
    /// 784 pixels to 10 classes, one affine layer.
    Softmax,
    /// 784 pixels, one hidden layer with ReLU, 10 classes.
    Mlp {
        /// Width of the hidden layer.
        hidden: usize,
    },
    /// Two convolutions with pooling, a layer of 1,024, dropout, 10 classes.
    Cnn {
        /// The fraction of the 1,024 values that is dropped in training.
        dropout: f64,
    },
}

/// The data of a small model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmallData {
    /// Four points on y = 1 - x.
    Line,
    /// Generated handwriting.
    Digits {
        /// The seed of the images.
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
        /// The number of training images that are held back for evaluation; 0 uses the test files instead.
        validation: usize,
        /// The number of training images to use; `None` for all.
        train: Option<usize>,
    },
}

/// A published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedModel {
    /// ResNet-50.
    Resnet50,
    /// VGG16.
    Vgg16,
    /// An LSTM language model.
    Lstm,
    /// A GRU language model.
    Gru,
    /// BERT-base with a masked-LM head.
    Bert,
    /// GPT-2 small.
    Gpt2,
}

/// The size of a published model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As published.
    Full,
    /// Small enough for a few steps a second on a processor.
    Tiny,
}

/// The data of classification.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassificationData {
    /// Generated images of shapes.
    Shapes {
        /// The seed of the images.
        seed: u64,
        /// Their height and width.
        side: usize,
        /// Number of training images.
        train: usize,
        /// Number of evaluation images.
        eval: usize,
    },
    /// CIFAR-10's binary files.
    Cifar {
        /// Their directory.
        path: PathBuf,
    },
    /// Folders of image files, one for each class.
    Folder {
        /// The directory that holds `train` and `val`.
        path: PathBuf,
        /// Height and width of the model's input.
        side: usize,
    },
    /// Generated sentences.
    Grammar {
        /// The seed of the sentences.
        seed: u64,
        /// Tokens of a sample.
        width: usize,
        /// Number of training samples.
        train: usize,
        /// Number of evaluation samples.
        eval: usize,
    },
    /// Text files.
    Text {
        /// A file, or a directory of `.txt` files.
        path: PathBuf,
        /// Tokens of a sample.
        width: usize,
        /// The tokenizer.
        tokenizer: Tokenizer,
        /// The fraction of the text, at its end, that is held back for evaluation.
        validation: f64,
    },
}

/// A tokenizer: the units that a text is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// Bytes.
    Bytes,
    /// Words separated by white space: the most frequent ones.
    Words,
    /// Byte pairs (Sennrich et al. 2016), as many as the size of the model's vocabulary.
    Bpe,
    /// Word pieces (Schuster and Nakajima 2012).
    WordPiece,
}

/// The generator version of digits and of the environments in this program.
const GENERATOR_VERSION: i64 = 1;

/// The maximum number of samples in a data set: 784 MB of images of digits.
pub const MAX_SAMPLES: usize = 1_000_000;

const SAMPLES: &str = "a whole number, 1 to 1000000";
const MODELS: &str = "`linear`, `softmax`, `mnist_mlp`, `mnist_cnn`, `resnet50`, `vgg16`, `lstm`, `gru`, `bert`, `gpt2`, `dqn`, `yolov3` or `maskrcnn`";

impl Fields<'_> {
    pub(super) fn task(&self) -> Result<TaskSpec, SpecError> {
        let name = self.name("model.name", MODELS, |name| Some(name.to_owned()))?;
        let published = match name.as_str() {
            "linear" | "softmax" | "mnist_mlp" | "mnist_cnn" => return self.small(&name),
            "resnet50" => PublishedModel::Resnet50,
            "vgg16" => PublishedModel::Vgg16,
            "lstm" => PublishedModel::Lstm,
            "gru" => PublishedModel::Gru,
            "bert" => PublishedModel::Bert,
            "gpt2" => PublishedModel::Gpt2,
            "dqn" => return Ok(TaskSpec::Rl(self.play()?)),
            "yolov3" => return Ok(TaskSpec::Detection(self.detect(DetectionModel::YoloV3)?)),
            "maskrcnn" => return Ok(TaskSpec::Detection(self.detect(DetectionModel::MaskRcnn)?)),
            other => {
                return Err(SpecError::Wrong { field: "model.name", found: other.to_owned(), expected: MODELS });
            }
        };
        let drops = matches!(published, PublishedModel::Vgg16 | PublishedModel::Bert | PublishedModel::Gpt2);
        Ok(TaskSpec::Classification(ClassificationSpec {
            data: self.learned([
                matches!(published, PublishedModel::Resnet50 | PublishedModel::Vgg16),
                published == PublishedModel::Bert,
            ])?,
            model: published,
            size: self.size()?,
            classes: self.count("model.classes", "a whole number, 2 to 65535", 2, 65_535)?,
            dropout: if drops { self.dropout()? } else { 0.0 },
        }))
    }

    fn play(&self) -> Result<RlSpec, SpecError> {
        let share = "above 0 and at most 1";
        let shares = |share: f64| share > 0.0 && share <= 1.0;
        let world = match self.data_name()?.as_str() {
            "cartpole" => EnvironmentSpec::CartPole,
            "catch" => EnvironmentSpec::Catch {
                actions: self.need("data.actions", "4 or 6", |value| {
                    value.as_int().and_then(|n| usize::try_from(n).ok()).filter(|n| [4, 6].contains(n))
                })?,
            },
            other => return Err(self.mismatch(other, "`cartpole` or `catch`")),
        };
        self.generator_version(GENERATOR_VERSION)?;
        Ok(RlSpec {
            world,
            epoch: self.train_count()?,
            discount: self.real("training.discount", "at least 0 and below 1", |share| (0.0..1.0).contains(&share))?,
            exploration_last: self
                .real("training.exploration_last", "at least 0 and below 1", |share| (0.0..1.0).contains(&share))?,
            exploration_steps: self.long("training.exploration_steps")?,
            replay_capacity: self.count("training.replay_capacity", "a whole number, 2 to 10000000", 2, 10_000_000)?,
            learning_starts: self.long("training.learning_starts")?,
            train_every: self.long("training.train_every")?,
            target_every: self.long("training.target_every")?,
            target_share: self.real("training.target_share", share, shares)?,
            reward_scale: self.real("training.reward_scale", "a finite number above 0", |scale| scale > 0.0)?,
        })
    }

    fn dropout(&self) -> Result<f64, SpecError> {
        self.real("model.dropout", "at least 0 and below 1", |share| (0.0..1.0).contains(&share))
    }

    fn small(&self, name: &str) -> Result<TaskSpec, SpecError> {
        let model = match name {
            "linear" => Small::Linear {
                weight: self.real("model.initial_weight", "a finite number", |_| true)?,
                bias: self.real("model.initial_bias", "a finite number", |_| true)?,
            },
            "mnist_mlp" => Small::Mlp { hidden: self.count("model.hidden", "a whole number, 1 to 65536", 1, 65_536)? },
            "mnist_cnn" => Small::Cnn { dropout: self.dropout()? },
            _ => Small::Softmax,
        };
        let linear = name == "linear";
        let data = match self.data_name()?.as_str() {
            "line" if linear => SmallData::Line,
            "digits" if !linear => {
                self.generator_version(GENERATOR_VERSION)?;
                SmallData::Digits { seed: self.data_seed()?, train: self.train_count()?, eval: self.eval_count()? }
            }
            "idx" if !linear => SmallData::Idx {
                path: self.path()?,
                validation: self.count("data.validation_count", "a whole number, 0 to 1000000", 0, MAX_SAMPLES)?,
                train: self.0.get("data.train_count").map(|_| self.train_count()).transpose()?,
            },
            other => return Err(self.mismatch(other, if linear { "`line`" } else { "`digits` or `idx`" })),
        };
        Ok(TaskSpec::Small { model, data })
    }

    fn learned(&self, [images, bert]: [bool; 2]) -> Result<ClassificationData, SpecError> {
        let side = || self.count("data.side", "a whole number, 32 to 512", 32, 512);
        let (widest, expected) = if bert {
            (512, "a whole number, 8 to 512: `bert` has 512 positions")
        } else {
            (1024, "a whole number, 8 to 1024")
        };
        let width = || self.count("data.width", expected, 8, widest);
        match self.data_name()?.as_str() {
            "shapes" if images => {
                self.generator_version(shapes::GENERATOR_VERSION)?;
                let (seed, train, eval) = (self.data_seed()?, self.train_count()?, self.eval_count()?);
                Ok(ClassificationData::Shapes { seed, side: side()?, train, eval })
            }
            "cifar10" if images => Ok(ClassificationData::Cifar { path: self.path()? }),
            "folder" if images => Ok(ClassificationData::Folder { path: self.path()?, side: side()? }),
            "grammar" if !images => {
                self.generator_version(grammar::GENERATOR_VERSION)?;
                let (seed, train, eval) = (self.data_seed()?, self.train_count()?, self.eval_count()?);
                Ok(ClassificationData::Grammar { seed, width: width()?, train, eval })
            }
            "text" if !images => Ok(ClassificationData::Text {
                path: self.path()?,
                width: width()?,
                tokenizer: self.name(
                    "data.tokenizer",
                    "`bytes`, `words`, `bpe` or `wordpiece`",
                    |name| match name {
                        "bytes" => Some(Tokenizer::Bytes),
                        "words" => Some(Tokenizer::Words),
                        "bpe" => Some(Tokenizer::Bpe),
                        "wordpiece" => Some(Tokenizer::WordPiece),
                        _ => None,
                    },
                )?,
                validation: self
                    .real("data.validation_share", "above 0 and below 1", |share| share > 0.0 && share < 1.0)?,
            }),
            other => {
                let fit = if images { "`shapes`, `cifar10` or `folder`" } else { "`grammar` or `text`" };
                Err(self.mismatch(other, fit))
            }
        }
    }

    pub(super) fn mismatch(&self, data: &str, fit: &'static str) -> SpecError {
        let model = self.0.text("model.name").unwrap_or_default().to_owned();
        SpecError::Mismatch { model, data: data.to_owned(), fit }
    }

    pub(super) fn data_name(&self) -> Result<String, SpecError> {
        self.name("data.name", "the name of some data", |name| Some(name.to_owned()))
    }

    pub(super) fn generator_version(&self, held: i64) -> Result<i64, SpecError> {
        self.need("data.generator_version", "1, the version that this program holds", |value| {
            value.as_int().filter(|version| *version == held)
        })
    }

    pub(super) fn data_seed(&self) -> Result<u64, SpecError> {
        self.need("data.seed", "a whole number of at least 0", |value| {
            value.as_int().and_then(|seed| u64::try_from(seed).ok())
        })
    }

    pub(super) fn train_count(&self) -> Result<usize, SpecError> {
        self.count("data.train_count", SAMPLES, 1, MAX_SAMPLES)
    }

    pub(super) fn eval_count(&self) -> Result<usize, SpecError> {
        self.count("data.eval_count", SAMPLES, 1, MAX_SAMPLES)
    }

    pub(super) fn path(&self) -> Result<PathBuf, SpecError> {
        self.name("data.path", "a file or directory", |path| Some(PathBuf::from(path)))
    }
}
