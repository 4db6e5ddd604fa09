//! Worlds to act in: a step takes an action and gives a reward.
//!
//! Knows what every environment has in common, and nothing of agents, replay memories or networks. An environment draws no seed
//! of its own: each episode is given a sequence of random numbers, and depends on that sequence and on the actions alone.

mod cartpole;
mod catch;

use crate::rng::Rng;

pub use cartpole::CartPole;
pub use catch::{Catch, Controls};

/// What a step brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transition {
    /// The reward.
    pub reward: f32,
    /// The episode ended in a state from which nothing more can come: its value is 0.
    pub terminated: bool,
    /// The episode was cut off in a state like any other, whose value is not 0. A step can be both; it is then terminated.
    pub truncated: bool,
}

impl Transition {
    /// Whether no step follows in this episode.
    pub fn ended(&self) -> bool {
        self.terminated || self.truncated
    }
}

/// What frames are made of.
pub trait Item: Copy + Default + Send + Sync {}

/// A grey value.
impl Item for u8 {}

/// A number of a state.
impl Item for f32 {}

/// A world with a fixed number of actions. An observation is the newest frames of the episode, the oldest first; where the
/// episode has had fewer, the missing ones are zeros.
pub trait Environment: Clone {
    /// What its frames are made of.
    type Item: Item;

    /// Number of actions; they are counted from 0.
    fn actions(&self) -> usize;

    /// Items of a frame.
    fn frame_len(&self) -> usize;

    /// Frames of an observation.
    fn stack(&self) -> usize;

    /// Numbers of an observation.
    fn observation_len(&self) -> usize {
        self.frame_len() * self.stack()
    }

    /// The greatest sum of rewards of an episode.
    fn best_return(&self) -> f64;

    /// Begins an episode, which is a function of `rng` and of the actions that follow.
    fn reset(&mut self, rng: Rng);

    /// Does an action; one that does not exist is taken for the last one. After the end of an episode nothing changes any more,
    /// and the reward is 0. Before the first `reset` the episode has ended.
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

    /// Drops the oldest frame and gives the place of the newest, which is zero, to be drawn.
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

    /// Writes all frames, the oldest first, into as many items.
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
