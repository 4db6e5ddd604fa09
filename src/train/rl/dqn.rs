//! Deep Q-learning without the network: when to act at random, what to learn from, towards which values, and how good the result is.
//!
//! Mnih et al.: "Human-level control through deep reinforcement learning", Nature 518 (2015), algorithm 1. Knows environments and
//! replay memories, and of a network only that it gives a value to each action. Tensors, the optimiser and the copy of the
//! parameters that targets are computed with belong to whoever learns:
//!
//! ```text
//! while let Some(batch) = agent.next_batch(&mut network, &mut ended)? {
//!     learn from the batch: squared error up to 1 and linear beyond, towards r + γ · max Q'(s', a), or r where the episode terminated
//!     if agent.target_due() { copy the parameters to those that targets are computed with }
//! }
//! ```
//!
//! Everything is a function of the seed and of the values that the network gives.

use crate::number::{real, real_len, single, wide};
use crate::rl::environment::Environment;
use crate::rl::replay::{Batch, Replay};
use crate::rng::{Rng, Stream};

/// A network, as far as acting needs it.
pub trait Q<T> {
    /// Why it can fail.
    type Error;

    /// The values of all actions for each of `rows` observations: `rows` times the number of actions.
    fn values(&mut self, observations: &[T], rows: usize) -> Result<Vec<f32>, Self::Error>;
}

/// How often an action is random: from 1 linearly to `last` (ε).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exploration {
    /// The share of random actions at the beginning.
    pub first: f32,
    /// The share that stays.
    pub last: f32,
    /// Steps from the one to the other, counted from where learning starts.
    pub over: u64,
}

impl Exploration {
    /// The share of random actions `steps` steps after learning started.
    pub fn share(&self, steps: u64) -> f32 {
        let done = if self.over == 0 { 1.0 } else { single((real(steps) / real(self.over)).min(1.0)) };
        self.first + (self.last - self.first) * done
    }
}

/// How long and from what an agent learns. Steps are actions in the environment; updates are changes of the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Steps of the whole run.
    pub steps: u64,
    /// Transitions of an update.
    pub batch: usize,
    /// Frames that the replay memory holds.
    pub capacity: usize,
    /// Steps that are random, before the first update.
    pub learning_starts: u64,
    /// Steps from an update to the next.
    pub train_every: u64,
    /// Updates from a copy of the parameters to the next (C).
    pub target_every: u64,
    /// What a reward is worth a step earlier (γ).
    pub discount: f32,
    /// How often an action is random.
    pub exploration: Exploration,
    /// Rewards are clipped to -1..=1 before they are learned from.
    pub clip_rewards: bool,
    /// What rewards are multiplied by then. The loss is linear in errors above 1, so that values of 100 are learned like medians
    /// and not like means, and grow without bound where ends are rare: with 1 - γ, values of rewards up to 1 stay within 1.
    pub reward_scale: f32,
}

impl Config {
    /// The values of Mnih et al. 2015, extended data table 1, for 50 million steps of four frames each. The paper's optimiser is
    /// a centred RMSProp with learning rate 0.00025.
    #[cfg(test)]
    pub fn paper() -> Self {
        Self {
            steps: 50_000_000,
            batch: 32,
            capacity: 1_000_000,
            learning_starts: 50_000,
            train_every: 4,
            target_every: 10_000,
            discount: 0.99,
            exploration: Exploration { first: 1.0, last: 0.1, over: 1_000_000 },
            clip_rewards: true,
            reward_scale: 1.0,
        }
    }

    /// Updates that the whole run makes.
    #[cfg(test)]
    pub fn updates(&self) -> u64 {
        let every = self.train_every.max(1);
        let before = self.learning_starts.max(1).saturating_sub(1) / every;
        (self.steps / every).saturating_sub(before)
    }
}

/// An episode that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// The step of the run with which it ended, from 1.
    pub step: u64,
    /// Its number of steps.
    pub length: u64,
    /// The sum of its rewards, not clipped and not discounted.
    pub score: f64,
}

/// Acts, remembers, and says what to learn from.
#[derive(Clone, Debug)]
pub struct Agent<E: Environment> {
    config: Config,
    seed: u64,
    environment: E,
    replay: Replay<E::Item>,
    steps: u64,
    updates: u64,
    episodes: u64,
    /// The episode that is going on.
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

    /// Steps done.
    #[cfg(test)]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates for which a batch was given.
    #[cfg(test)]
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Whether the parameters are to be copied for the targets after the newest update.
    pub fn target_due(&self) -> bool {
        self.updates > 0 && self.updates.is_multiple_of(self.config.target_every.max(1))
    }

    /// The share of random actions at the next step.
    pub fn exploration(&self) -> f32 {
        match self.steps.checked_sub(self.config.learning_starts) {
            Some(since) => self.config.exploration.share(since),
            None => 1.0,
        }
    }

    /// Acts until an update is due and gives what to learn from, or None after the last step. Episodes that end on the way are
    /// appended to `ended`.
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

    /// Does one step, beginning an episode if none is going on, and gives the episode if it ended with this step.
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

/// The first of the greatest values; NaN is the smallest.
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

/// The loss of an error, half its square up to 1 and linear beyond (Huber), and its slope: the error clipped to -1..=1, as the
/// paper has it.
#[cfg(test)]
pub fn huber(error: f32) -> (f32, f32) {
    let loss = if error.abs() <= 1.0 { 0.5 * error * error } else { error.abs() - 0.5 };
    (loss, error.clamp(-1.0, 1.0))
}

/// The scores of that many episodes in which the best action is taken always (ε is 0). No episode that is learned from begins with the same draws. All are played at the same time, so that the network is asked for many rows at
/// once.
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

/// The mean of some scores; 0 of none.
pub fn mean(scores: &[f64]) -> f64 {
    scores.iter().sum::<f64>() / real_len(scores.len()).max(1.0)
}

#[cfg(test)]
mod tests;
