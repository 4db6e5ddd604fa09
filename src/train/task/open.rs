//! Creates a task from a specification: selects the model and loads the data.

use super::Task;
use super::classification::ClassificationTask;
use super::detection::DetectionTask;
use super::network::Network;
use super::pipeline::{self, Parts, PipelineStage, Stages, cut};
use super::rl::{RlTask, Rules};
use super::small::SmallTask;
use crate::data::Data;
use crate::data::coco::Parts as CocoParts;
use crate::data::dataset::Dataset;
use crate::data::objects::ObjectPictures;
use crate::data::pictures::Pictures;
use crate::data::text::{Objective, Text, Vocabulary, Windows};
use crate::device::Place;
use crate::layers::Cell;
use crate::models::detector::Detector;
use crate::models::{Bert, DeepQ, Gpt2, MaskRcnn, Model, Recurrent, Resnet, Vgg, YoloV3};
use crate::number::single;
use crate::parallel::Endpoint;
use crate::parameters::ParamSpec;
use crate::rl::dqn::{Config, Exploration};
use crate::rl::environment::{CartPole, Catch, Controls, Environment};
use crate::rng::rank_seed;
use crate::spec::{
    ClassificationData, ClassificationSpec, DetectionData, DetectionModel, DetectionSpec, EnvironmentSpec,
    PublishedModel, RlSpec, Size, Small, Spec, TaskSpec, Tokenizer,
};
use crate::{DataError, TrainError};
use std::sync::Arc;

/// The data of a run, loaded once for all of its ranks.
#[derive(Clone)]
pub enum Loaded {
    /// A small model and its data.
    Small(Small, Arc<Data>),
    /// Samples with the target class of each position.
    Classification(ClassificationSpec, Arc<dyn Dataset>),
    /// Environments, which have no data to load.
    Rl(RlSpec),
    /// Pictures with objects.
    Detection(DetectionSpec, Arc<ObjectPictures>),
}

impl Loaded {
    /// Loads the data of a specification, and checks that they suffice.
    pub fn load(spec: &Spec) -> Result<Self, DataError> {
        // Stages of a model work on the same batch.
        let sharers = if spec.micro_batches.is_some() { 1 } else { spec.ranks };
        let batch = [spec.batch, sharers];
        match &spec.task {
            TaskSpec::Small { model, data } => Ok(Self::Small(*model, Data::load(data, batch, spec.seed)?.into())),
            TaskSpec::Classification(learn) => {
                let data = dataset(learn, spec.batch * sharers)?;
                check(batch, [data.train_len(), data.classes()], learn.classes)?;
                Ok(Self::Classification(learn.clone(), data))
            }
            TaskSpec::Rl(play) => Ok(Self::Rl(*play)),
            TaskSpec::Detection(detect) => {
                let data = objects(detect)?;
                check(batch, [data.train_len(), data.classes()], detect.classes)?;
                Ok(Self::Detection(detect.clone(), data.into()))
            }
        }
    }

    /// Returns the task of a rank on a device.
    pub fn task(&self, spec: &Spec, place: &Place, rank: usize) -> Box<dyn Task> {
        match self {
            Self::Small(model, data) => Box::new(SmallTask::new(*model, Arc::clone(data), spec.seed, place.clone())),
            Self::Classification(learn, data) if spec.micro_batches.is_some() => {
                let parts = parts(learn, data, spec);
                let whole = Stages::one(&*parts.model);
                Box::new(PipelineStage::new(parts, Arc::new(whole), 0, None, place))
            }
            Self::Classification(learn, data) => {
                let network = Network::new(model(learn), spec.precision, place);
                Box::new(ClassificationTask::new(network, Arc::clone(data), spec.seed, spec.batch))
            }
            Self::Rl(play) => player(play, spec, place, rank),
            Self::Detection(detect, data) => {
                let network = Network::detector(detector(detect), spec.precision, place);
                Box::new(DetectionTask::new(network, Arc::clone(data), spec.seed, spec.batch))
            }
        }
    }

    /// Returns the cost of each unit of the model on a device. Calls `beat` before each pass.
    pub fn costs(&self, spec: &Spec, place: &Place, beat: &dyn Fn()) -> Result<Vec<f64>, TrainError> {
        match self {
            Self::Classification(learn, data) => pipeline::costs(parts(learn, data, spec), place, beat),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns a stage of the model. There is a cost for each unit, and the stages have about the same cost. Returns
    /// `None` if there are fewer units than stages.
    pub fn stage(
        &self,
        spec: &Spec,
        costs: &[f64],
        place: &Place,
        (number, endpoint): (usize, Endpoint),
    ) -> Option<Box<dyn Task>> {
        let Self::Classification(learn, data) = self else { return None };
        let parts = parts(learn, data, spec);
        let stages = Stages::new(&*parts.model, cut(costs, spec.ranks)?);
        Some(Box::new(PipelineStage::new(parts, Arc::new(stages), number, Some(endpoint), place)))
    }
}

fn parts(learn: &ClassificationSpec, data: &Arc<dyn Dataset>, spec: &Spec) -> Parts {
    Parts {
        model: model(learn),
        precision: spec.precision,
        data: Arc::clone(data),
        seed: spec.seed,
        batch: spec.batch,
        micro_batches: spec.micro_batches.unwrap_or(1),
    }
}

/// Checks that there are enough samples for a step, and no more classes than the model has outputs.
fn check(batch: [usize; 2], [samples, classes]: [usize; 2], model: usize) -> Result<(), DataError> {
    DataError::too_few(batch, samples)?;
    if classes > model { Err(DataError::Classes { found: classes, model }) } else { Ok(()) }
}

/// Returns the task of a run of one rank.
#[cfg(test)]
pub fn open(spec: &Spec, place: &Place) -> Result<Box<dyn Task>, DataError> {
    Ok(Loaded::load(spec)?.task(spec, place, 0))
}

fn detector(detect: &DetectionSpec) -> Box<dyn Detector> {
    match (detect.model, detect.size) {
        (DetectionModel::YoloV3, Size::Full) => Box::new(YoloV3::darknet53(detect.classes)),
        (DetectionModel::YoloV3, Size::Tiny) => Box::new(YoloV3::tiny(detect.classes)),
        (DetectionModel::MaskRcnn, Size::Full) => Box::new(MaskRcnn::fifty(detect.classes)),
        (DetectionModel::MaskRcnn, Size::Tiny) => Box::new(MaskRcnn::tiny(detect.classes)),
    }
}

fn objects(detect: &DetectionSpec) -> Result<ObjectPictures, DataError> {
    let parts = if detect.model == DetectionModel::MaskRcnn { CocoParts::Masks } else { CocoParts::Boxes };
    Ok(match &detect.data {
        DetectionData::Scenes { seed, side, train, eval } => {
            ObjectPictures::scenes(*seed, *side, detect.classes, *train, *eval)?
        }
        DetectionData::Coco { path, side } => ObjectPictures::coco(path, *side, parts)?,
    })
}

/// Returns an agent in its environment. Each rank's agent has its own episodes.
fn player(play: &RlSpec, spec: &Spec, place: &Place, rank: usize) -> Box<dyn Task> {
    let seed = rank_seed(spec.seed, rank);
    let config = Config {
        // The training loop decides when it ends.
        steps: u64::MAX,
        batch: spec.batch,
        capacity: play.replay_capacity,
        learning_starts: play.learning_starts,
        train_every: play.train_every,
        target_every: play.target_every,
        discount: single(play.discount),
        exploration: Exploration { first: 1.0, last: single(play.exploration_last), over: play.exploration_steps },
        clip_rewards: false,
        reward_scale: single(play.reward_scale),
    };
    let rules = Rules { config, epoch: play.epoch, target_share: play.target_share };
    let network = Network::new(Box::new(deep_q(play.world)), spec.precision, place);
    match play.world {
        EnvironmentSpec::CartPole => Box::new(RlTask::new(network, CartPole::new(), rules, seed)),
        EnvironmentSpec::Catch { actions } => {
            Box::new(RlTask::new(network, Catch::new(controls(actions)), rules, seed))
        }
    }
}

fn controls(actions: usize) -> Controls {
    if actions == 6 { Controls::Six } else { Controls::Four }
}

fn deep_q(world: EnvironmentSpec) -> DeepQ {
    match world {
        EnvironmentSpec::CartPole => DeepQ::cart_pole(CartPole::new().actions()),
        EnvironmentSpec::Catch { actions } => DeepQ::nature(Catch::new(controls(actions)).actions()),
    }
}

/// Returns the parameters of the specified model.
pub fn param_specs(spec: &TaskSpec) -> Vec<ParamSpec> {
    match spec {
        TaskSpec::Small { model, .. } => model.param_specs(),
        TaskSpec::Classification(learn) => model(learn).param_specs(),
        TaskSpec::Rl(play) => deep_q(play.world).param_specs(),
        TaskSpec::Detection(detect) => detector(detect).param_specs(),
    }
}

fn model(learn: &ClassificationSpec) -> Box<dyn Model> {
    let ClassificationSpec { model, size, classes, dropout, .. } = *learn;
    let side = match learn.data {
        ClassificationData::Shapes { side, .. } | ClassificationData::Folder { side, .. } => side,
        _ => 32,
    };
    let width = match learn.data {
        ClassificationData::Grammar { width, .. } | ClassificationData::Text { width, .. } => width,
        _ => 1,
    };
    match (model, size) {
        (PublishedModel::Resnet50, Size::Full) => Box::new(Resnet { side, ..Resnet::fifty(classes) }),
        (PublishedModel::Resnet50, Size::Tiny) => Box::new(Resnet { side, ..Resnet::tiny(classes) }),
        (PublishedModel::Vgg16, Size::Full) => Box::new(Vgg { side, dropout, ..Vgg::sixteen(classes) }),
        (PublishedModel::Vgg16, Size::Tiny) => Box::new(Vgg { side, dropout, ..Vgg::tiny(classes) }),
        (PublishedModel::Lstm, Size::Full) => Box::new(Recurrent::lstm(classes)),
        (PublishedModel::Lstm, Size::Tiny) => Box::new(Recurrent::tiny(Cell::Lstm, classes)),
        (PublishedModel::Gru, Size::Full) => Box::new(Recurrent::gru(classes)),
        (PublishedModel::Gru, Size::Tiny) => Box::new(Recurrent::tiny(Cell::Gru, classes)),
        (PublishedModel::Bert, Size::Full) => Box::new(Bert { dropout, ..Bert::base(classes, 512) }),
        (PublishedModel::Bert, Size::Tiny) => Box::new(Bert { dropout, ..Bert::tiny(classes, width) }),
        (PublishedModel::Gpt2, Size::Full) => Box::new(Gpt2 { dropout, ..Gpt2::small(classes, 1024) }),
        (PublishedModel::Gpt2, Size::Tiny) => Box::new(Gpt2 { dropout, ..Gpt2::tiny(classes, width) }),
    }
}

fn dataset(learn: &ClassificationSpec, batch: usize) -> Result<Arc<dyn Dataset>, DataError> {
    let objective = if learn.model == PublishedModel::Bert { Objective::MaskedToken } else { Objective::NextToken };
    Ok(match &learn.data {
        ClassificationData::Shapes { seed, side, train, eval } => {
            Arc::new(Pictures::shapes(*seed, *side, *train, *eval)?)
        }
        ClassificationData::Cifar { path } => Arc::new(Pictures::cifar(path)?),
        ClassificationData::Folder { path, side } => Arc::new(Pictures::folder(path, *side)?),
        ClassificationData::Grammar { seed, width, train, eval } => {
            // `check` tests afterwards whether the samples suffice for a step, so that its error names the right keys.
            let windows = Windows { width: *width, objective, batch: 1 };
            let [train, eval] = [*train, *eval].map(|count| windows.needed(count));
            Arc::new(Text::generate(*seed, learn.classes, train, eval, windows)?)
        }
        ClassificationData::Text { path, width, tokenizer, validation } => {
            let vocabulary = match tokenizer {
                Tokenizer::Bytes => Vocabulary::Bytes,
                Tokenizer::Words => Vocabulary::Words { size: learn.classes },
                Tokenizer::Bpe => Vocabulary::Bpe { size: learn.classes },
                Tokenizer::WordPiece => Vocabulary::WordPiece { size: learn.classes },
            };
            Arc::new(Text::read(path, vocabulary, *validation, Windows { width: *width, objective, batch })?)
        }
    })
}
