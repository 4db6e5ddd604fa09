//! Deep Q-learning without the network: exploration, replay batches, the schedule of updates, and evaluation.
//!
//! Mnih et al.: "Human-level control through deep reinforcement learning", Nature 518 (2015), algorithm 1. Knows environments and
//! replay memories, and of a network only that it returns a value for each action. The caller owns the tensors, the optimiser and the
//! target network:
//!
//! ```text
//! while let Some(batch) = agent.next_batch(&mut network, &mut ended)? {
//!     learn from the batch: squared error up to 1 and linear beyond, towards r + γ · max Q'(s', a), or r where the episode terminated
//!     if agent.target_due() { copy the parameters to the target network }
//! }
//! ```
//!
//! Everything depends only on the seed and on the values that the network returns.

use crate::number::{real, real_len, single, wide};
use crate::rl::environment::Environment;
use crate::rl::replay::{Batch, Replay};
use crate::rng::{Rng, Stream};

/// A network that estimates action values.
pub trait Q<T> {
    /// The error of the network.
    type Error;

    /// The values of all actions for each of `rows` observations, row by row.
    fn values(&mut self, observations: &[T], rows: usize) -> Result<Vec<f32>, Self::Error>;
}

/// The probability of random actions (ε), which falls linearly from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exploration {
    /// The initial probability.
    pub first: f32,
    /// The final probability.
    pub last: f32,
    /// Steps from the initial to the final probability, counted from the start of learning.
    pub over: u64,
}

impl Exploration {
    /// The probability of random actions `steps` steps after the start of learning.
    pub fn share(&self, steps: u64) -> f32 {
        let done = if self.over == 0 { 1.0 } else { single((real(steps) / real(self.over)).min(1.0)) };
        self.first + (self.last - self.first) * done
    }
}

/// The hyperparameters. Steps are actions in the environment; updates are changes of the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Steps of the whole run.
    pub steps: u64,
    /// Transitions per update.
    pub batch: usize,
    /// Capacity of the replay memory, in frames.
    pub capacity: usize,
    /// Random steps before the first update.
    pub learning_starts: u64,
    /// Steps between updates.
    pub train_every: u64,
    /// Updates between copies of the parameters to the target network (C).
    pub target_every: u64,
    /// The discount factor (γ).
    pub discount: f32,
    /// The probability of random actions.
    pub exploration: Exploration,
    /// Whether rewards are clipped to -1..=1 before learning.
    pub clip_rewards: bool,
    /// The factor of rewards after clipping. The loss is linear in errors above 1, so large values (such as 100) are learned like medians
    /// instead of means, and grow without bound if terminal states are rare. With 1 - γ, the values of rewards up to 1 stay within 1.
    pub reward_scale: f32,
}

impl Config {
    /// Number of updates of the whole run.
    #[cfg(test)]
    pub fn updates(&self) -> u64 {
        let every = self.train_every.max(1);
        let before = self.learning_starts.max(1).saturating_sub(1) / every;
        (self.steps / every).saturating_sub(before)
    }
}

/// A finished episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// The step of the run that ended it, from 1.
    pub step: u64,
    /// Its number of steps.
    pub length: u64,
    /// The sum of its rewards, not clipped and not discounted.
    pub score: f64,
}

/// An agent: acts, stores transitions and samples batches.
#[derive(Clone, Debug)]
pub struct Agent<E: Environment> {
    config: Config,
    seed: u64,
    environment: E,
    replay: Replay<E::Item>,
    steps: u64,
    updates: u64,
    episodes: u64,
    /// The current episode.
    current: Option<Episode>,
    observation: Vec<E::Item>,
}

impl<E: Environment> Agent<E> {
    /// An agent that has not acted yet.
    pub fn new(config: Config, seed: u64, environment: E) -> Self {
        let replay = Replay::new(config.capacity, environment.frame_len(), environment.stack());
        let observation = vec![E::Item::default(); environment.observation_len()];
        Self { config, seed, environment, replay, steps: 0, updates: 0, episodes: 0, current: None, observation }
    }

    /// Whether to copy the parameters to the target network after the latest update.
    pub fn target_due(&self) -> bool {
        self.updates > 0 && self.updates.is_multiple_of(self.config.target_every.max(1))
    }

    /// The probability of a random action at the next step.
    pub fn exploration(&self) -> f32 {
        match self.steps.checked_sub(self.config.learning_starts) {
            Some(since) => self.config.exploration.share(since),
            None => 1.0,
        }
    }

    /// Acts until an update is due and returns its batch; `None` after the last step. Appends episodes that end on the way to `ended`.
    pub fn next_batch<N: Q<E::Item>>(
        &mut self,
        network: &mut N,
        ended: &mut Vec<Episode>,
    ) -> Result<Option<Batch<E::Item>>, N::Error> {
        while self.steps < self.config.steps {
            ended.extend(self.act(network)?);
            if self.steps >= self.config.learning_starts && self.steps.is_multiple_of(self.config.train_every.max(1)) {
                let mut rng = Rng::new(self.seed, Stream::Replay, self.updates + 1);
                if let Some(batch) = self.replay.sample(self.config.batch, &mut rng) {
                    self.updates += 1;
                    return Ok(Some(batch));
                }
            }
        }
        Ok(None)
    }

    /// Takes one step, starting an episode if necessary. Returns the episode if this step ended it.
    fn act<N: Q<E::Item>>(&mut self, network: &mut N) -> Result<Option<Episode>, N::Error> {
        let mut episode = match self.current.take() {
            Some(episode) => episode,
            None => {
                self.episodes += 1;
                self.environment.reset(Rng::new(self.seed, Stream::TrainEpisode, self.episodes));
                self.replay.begin(self.environment.frame());
                Episode { step: 0, length: 0, score: 0.0 }
            }
        };
        let share = self.exploration();
        self.steps += 1;
        let mut rng = Rng::new(self.seed, Stream::Explore, self.steps);
        let action = if rng.unit() < share {
            rng.below(self.environment.actions())
        } else {
            self.environment.observe(&mut self.observation);
            best(&network.values(&self.observation, 1)?)
        };
        let transition = self.environment.step(action);
        let reward = if self.config.clip_rewards { transition.reward.clamp(-1.0, 1.0) } else { transition.reward };
        self.replay.push(action, reward * self.config.reward_scale, transition.terminated, self.environment.frame());
        episode.step = self.steps;
        episode.length += 1;
        episode.score += f64::from(transition.reward);
        if transition.ended() {
            return Ok(Some(episode));
        }
        self.current = Some(episode);
        Ok(None)
    }
}

/// The index of the first of the largest values; NaN is smaller than any number.
pub fn best(values: &[f32]) -> usize {
    let mut best = 0;
    for (action, value) in values.iter().enumerate() {
        let leader = values[best];
        if *value > leader || (leader.is_nan() && !value.is_nan()) {
            best = action;
        }
    }
    best
}

/// The Huber loss of an error (half its square up to 1 and linear beyond), and its derivative: the error clipped to
/// -1..=1, as in the paper.
#[cfg(test)]
pub fn huber(error: f32) -> (f32, f32) {
    let loss = if error.abs() <= 1.0 { 0.5 * error * error } else { error.abs() - 0.5 };
    (loss, error.clamp(-1.0, 1.0))
}

/// The scores of evaluation episodes with greedy actions (ε is 0). Their random numbers differ from those of all
/// training episodes. All episodes are played at the same time, so that the network evaluates many rows at once.
pub fn play<E: Environment, N: Q<E::Item>>(
    environment: &E,
    seed: u64,
    episodes: usize,
    network: &mut N,
) -> Result<Vec<f64>, N::Error> {
    let (width, actions) = (environment.observation_len(), environment.actions());
    let mut scores = vec![0.0; episodes];
    let mut running: Vec<(usize, E)> = (0..episodes).map(|episode| (episode, environment.clone())).collect();
    for (episode, game) in &mut running {
        game.reset(Rng::new(seed, Stream::EvalEpisode, wide(*episode) + 1));
    }
    while !running.is_empty() {
        let mut observations = vec![E::Item::default(); running.len() * width];
        for ((_, game), out) in running.iter().zip(observations.chunks_exact_mut(width)) {
            game.observe(out);
        }
        let values = network.values(&observations, running.len())?;
        let mut row = 0;
        running.retain_mut(|(episode, game)| {
            let transition = game.step(best(values.get(row * actions..(row + 1) * actions).unwrap_or_default()));
            row += 1;
            scores[*episode] += f64::from(transition.reward);
            !transition.ended()
        });
    }
    Ok(scores)
}

/// The mean of scores; 0 if there are none.
pub fn mean(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / real_len(scores.len()).max(1.0)
}

#[cfg(test)]
mod tests;
