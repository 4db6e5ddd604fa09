//! From what a cell asks for to a task: which model, which data.

use super::Task;
use super::finder::Finder;
use super::learner::Learner;
use super::network::Network;
use super::player::{Player, Rules};
use super::small::SmallTask;
use crate::train::DataError;
use crate::train::data::cifar::CifarKind;
use crate::train::data::coco::Parts;
use crate::train::data::objects::ObjectPictures;
use crate::train::data::pictures::Pictures;
use crate::train::data::text::{Objective, Text, Vocabulary, Windows};
use crate::train::dataset::Dataset;
use crate::train::device::Place;
use crate::train::dqn::{Config, Exploration};
use crate::train::environment::{CartPole, Catch, Controls, Environment};
use crate::train::layers::Cell;
use crate::train::models::detector::Detector;
use crate::train::models::{Bert, DeepQ, Gpt2, MaskRcnn, Model, Recurrent, Resnet, Vgg, YoloV3};
use crate::train::number::single;
use crate::train::parameters::Layout;
use crate::train::spec::{
    DetectSpec, Detecting, LearnSpec, Learned, PlaySpec, Published, Seen, Size, Spec, TaskSpec, Tokenizer, World,
};
use std::sync::Arc;

/// What a cell asks for.
pub fn open(spec: &Spec, place: &Place) -> Result<Box<dyn Task>, DataError> {
    match &spec.task {
        TaskSpec::Small { model, data } => {
            Ok(Box::new(SmallTask::new(*model, data, spec.batch, spec.seed, place.clone())?))
        }
        TaskSpec::Learn(learn) => {
            let data = dataset(learn, spec.batch)?;
            if data.train_len() < spec.batch {
                return Err(DataError::Batch { batch: spec.batch, samples: data.train_len() });
            }
            if data.classes() > learn.classes {
                return Err(DataError::Classes { found: data.classes(), model: learn.classes });
            }
            let network = Network::new(model(learn), spec.precision, place);
            Ok(Box::new(Learner::new(network, data, spec.seed, spec.batch)))
        }
        TaskSpec::Play(play) => Ok(player(play, spec, place)),
        TaskSpec::Detect(detect) => finder(detect, spec, place),
    }
}

/// A model that finds objects, and its pictures.
fn finder(detect: &DetectSpec, spec: &Spec, place: &Place) -> Result<Box<dyn Task>, DataError> {
    let data = objects(detect)?;
    if data.train_len() < spec.batch {
        return Err(DataError::Batch { batch: spec.batch, samples: data.train_len() });
    }
    if data.classes() > detect.classes {
        return Err(DataError::Classes { found: data.classes(), model: detect.classes });
    }
    let network = Network::detector(detector(detect), spec.precision, place);
    Ok(Box::new(Finder::new(network, data.into(), spec.seed, spec.batch)))
}

fn detector(detect: &DetectSpec) -> Box<dyn Detector> {
    match (detect.model, detect.size) {
        (Detecting::YoloV3, Size::Full) => Box::new(YoloV3::darknet53(detect.classes)),
        (Detecting::YoloV3, Size::Tiny) => Box::new(YoloV3::tiny(detect.classes)),
        (Detecting::MaskRcnn, Size::Full) => Box::new(MaskRcnn::fifty(detect.classes)),
        (Detecting::MaskRcnn, Size::Tiny) => Box::new(MaskRcnn::tiny(detect.classes)),
    }
}

fn objects(detect: &DetectSpec) -> Result<ObjectPictures, DataError> {
    let parts = if detect.model == Detecting::MaskRcnn { Parts::Masks } else { Parts::Boxes };
    Ok(match &detect.data {
        Seen::Scenes { seed, side, train, eval } => {
            ObjectPictures::scenes(*seed, *side, detect.classes, *train, *eval)?
        }
        Seen::Coco { path, side } => ObjectPictures::coco(path, *side, parts)?,
    })
}

/// An agent in its environment.
fn player(play: &PlaySpec, spec: &Spec, place: &Place) -> Box<dyn Task> {
    let config = Config {
        // The loop decides when it is over.
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
        World::CartPole => Box::new(Player::new(network, CartPole::new(), rules, spec.seed)),
        World::Catch { actions } => Box::new(Player::new(network, Catch::new(controls(actions)), rules, spec.seed)),
    }
}

fn controls(actions: usize) -> Controls {
    if actions == 6 { Controls::Six } else { Controls::Four }
}

fn deep_q(world: World) -> DeepQ {
    match world {
        World::CartPole => DeepQ::cart_pole(CartPole::new().actions()),
        World::Catch { actions } => DeepQ::nature(Catch::new(controls(actions)).actions()),
    }
}

/// The parameters of what a cell asks for.
pub fn layouts(spec: &TaskSpec) -> Vec<Layout> {
    match spec {
        TaskSpec::Small { model, .. } => model.layouts(),
        TaskSpec::Learn(learn) => model(learn).layouts(),
        TaskSpec::Play(play) => deep_q(play.world).layouts(),
        TaskSpec::Detect(detect) => detector(detect).layouts(),
    }
}

fn model(learn: &LearnSpec) -> Box<dyn Model> {
    let LearnSpec { model, size, classes, dropout, .. } = *learn;
    let side = match learn.data {
        Learned::Shapes { side, .. } | Learned::Folder { side, .. } => side,
        _ => 32,
    };
    let width = match learn.data {
        Learned::Grammar { width, .. } | Learned::Text { width, .. } => width,
        _ => 1,
    };
    match (model, size) {
        (Published::Resnet50, Size::Full) => Box::new(Resnet { side, ..Resnet::fifty(classes) }),
        (Published::Resnet50, Size::Tiny) => Box::new(Resnet { side, ..Resnet::tiny(classes) }),
        (Published::Vgg16, Size::Full) => Box::new(Vgg { side, dropout, ..Vgg::sixteen(classes) }),
        (Published::Vgg16, Size::Tiny) => Box::new(Vgg { side, dropout, ..Vgg::tiny(classes) }),
        (Published::Lstm, Size::Full) => Box::new(Recurrent::lstm(classes)),
        (Published::Lstm, Size::Tiny) => Box::new(Recurrent::tiny(Cell::Lstm, classes)),
        (Published::Gru, Size::Full) => Box::new(Recurrent::gru(classes)),
        (Published::Gru, Size::Tiny) => Box::new(Recurrent::tiny(Cell::Gru, classes)),
        (Published::Bert, Size::Full) => Box::new(Bert { dropout, ..Bert::base(classes, 512) }),
        (Published::Bert, Size::Tiny) => Box::new(Bert { dropout, ..Bert::tiny(classes, width) }),
        (Published::Gpt2, Size::Full) => Box::new(Gpt2 { dropout, ..Gpt2::small(classes, 1024) }),
        (Published::Gpt2, Size::Tiny) => Box::new(Gpt2 { dropout, ..Gpt2::tiny(classes, width) }),
    }
}

fn dataset(learn: &LearnSpec, batch: usize) -> Result<Arc<dyn Dataset>, DataError> {
    let objective = if learn.model == Published::Bert { Objective::MaskedToken } else { Objective::NextToken };
    Ok(match &learn.data {
        Learned::Shapes { seed, side, train, eval } => Arc::new(Pictures::shapes(*seed, *side, *train, *eval)?),
        Learned::Cifar { path } => Arc::new(Pictures::cifar(path, CifarKind::Ten)?),
        Learned::Folder { path, side } => Arc::new(Pictures::folder(path, *side)?),
        Learned::Grammar { seed, width, train, eval } => {
            let windows = Windows { width: *width, objective, batch };
            let [train, eval] = [*train, *eval].map(|count| windows.needed(count));
            Arc::new(Text::generate(*seed, learn.classes, train, eval, windows)?)
        }
        Learned::Text { path, width, tokenizer, validation } => {
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
