//! Environments for reinforcement learning.
//!
//! Knows what all environments have in common, and nothing of agents, replay memories or networks. An environment has no seed: the
//! caller passes each episode a random generator. An episode depends only on that generator and on the actions.

mod cartpole;
mod catch;

use crate::rng::Rng;

pub use cartpole::CartPole;
pub use catch::{Catch, Controls};

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transition {
    /// The reward.
    pub reward: f32,
    /// The episode ended in a terminal state, whose value is 0.
    pub terminated: bool,
    /// The episode was cut off in a non-terminal state, whose value is not 0. If both flags are set, the state is terminal.
    pub truncated: bool,
}

impl Transition {
    /// Whether the episode has ended.
    pub fn ended(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// An element of a frame.
pub trait Item: Copy + Default + Send + Sync {}

/// A grey value.
impl Item for u8 {}

/// A component of a state vector.
impl Item for f32 {}

/// An environment with a fixed number of actions. An observation is the newest frames of the episode, oldest first.
/// Missing frames at the start of an episode are zeros.
pub trait Environment: Clone {
    /// The elements of frames.
    type Item: Item;

    /// Number of actions; they are counted from 0.
    fn actions(&self) -> usize;

    /// Number of items of a frame.
    fn frame_len(&self) -> usize;

    /// Number of frames of an observation.
    fn stack(&self) -> usize;

    /// Number of items of an observation.
    fn observation_len(&self) -> usize {
        self.frame_len() * self.stack()
    }

    /// The maximum return of an episode.
    fn best_return(&self) -> f64;

    /// Starts an episode, which depends only on `rng` and on the following actions.
    fn reset(&mut self, rng: Rng);

    /// Takes an action; an action out of range counts as the last one. After the end of an episode, and before the
    /// first `reset`, nothing changes and the reward is 0.
    fn step(&mut self, action: usize) -> Transition;

    /// The newest frame.
    fn frame(&self) -> &[Self::Item];

    /// Writes the observation into `out`, which must be `observation_len` long.
    fn observe(&self, out: &mut [Self::Item]);
}

/// The newest frames of an episode.
#[derive(Clone, Debug)]
pub struct Stack<T> {
    frame_len: usize,
    items: Vec<T>,
}

impl<T: Item> Stack<T> {
    /// A stack of `frames` zero frames of `frame_len` items.
    pub fn new(frames: usize, frame_len: usize) -> Self {
        Self { frame_len, items: vec![T::default(); frames.max(1) * frame_len] }
    }

    /// Makes all frames zero.
    pub fn clear(&mut self) {
        self.items.fill(T::default());
    }

    /// Drops the oldest frame and returns a zeroed newest frame to draw on.
    pub fn advance(&mut self) -> &mut [T] {
        self.items.copy_within(self.frame_len.., 0);
        let start = self.items.len() - self.frame_len;
        let newest = &mut self.items[start..];
        newest.fill(T::default());
        newest
    }

    /// The newest frame.
    pub fn newest(&self) -> &[T] {
        &self.items[self.items.len() - self.frame_len..]
    }

    /// Writes all frames, oldest first, to `out`, which must have the same length.
    pub fn observe(&self, out: &mut [T]) {
        out.copy_from_slice(&self.items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_keeps_the_newest_frames_in_order() {
        let mut stack = Stack::<u8>::new(3, 2);
        for grey in [51, 102, 153, 204] {
            stack.advance().fill(grey);
        }
        let mut seen = [0; 6];
        stack.observe(&mut seen);
        assert_eq!(seen, [102, 102, 153, 153, 204, 204]);
        assert_eq!(stack.newest(), [204, 204]);
        stack.clear();
        assert!(stack.advance().iter().all(|grey| *grey == 0));
    }
}
