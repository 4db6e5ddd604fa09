//! Replay memory: a ring buffer of transitions that is sampled uniformly.
//!
//! Lin: "Self-improving reactive agents based on reinforcement learning, planning and teaching", Machine Learning 8 (1992); Mnih
//! et al. 2015. Knows frames, actions and rewards, and nothing of environments or learning.
//!
//! Each frame is stored once, however many observations contain it. Memory grows with the number of stored frames.

use crate::rl::environment::Item;
use crate::rng::Rng;

/// A ring buffer of the newest transitions.
#[derive(Clone, Debug)]
pub struct Replay<T> {
    capacity: usize,
    frame_len: usize,
    stack: usize,
    /// The slot to overwrite next, once the ring is full.
    next: usize,
    slots: Vec<Slot>,
    frames: Vec<T>,
}

/// The place of a frame in its episode, and the transition from it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The action taken. `None` if there is none yet, or if this is the last frame of its episode. Otherwise the next
    /// slot has the next frame.
    action: Option<i32>,
    reward: f32,
    terminated: bool,
    /// Number of earlier frames of the episode in its observation.
    before: usize,
}

/// A batch of transitions, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch<T> {
    /// Number of rows.
    pub rows: usize,
    /// For each row the frames of the observation, oldest first, then the next frame.
    pub frames: Vec<T>,
    /// The actions.
    pub actions: Vec<i32>,
    /// The rewards.
    pub rewards: Vec<f32>,
    /// 0 if the episode terminated with this transition, otherwise 1, even if it was truncated.
    pub continues: Vec<f32>,
}

impl<T: Item> Replay<T> {
    /// An empty memory for `capacity` frames (at least 2) of `frame_len` items, with `stack` frames per observation. An episode of
    /// n steps takes n + 1 frames.
    pub fn new(capacity: usize, frame_len: usize, stack: usize) -> Self {
        Self { capacity: capacity.max(2), frame_len, stack, next: 0, slots: Vec::new(), frames: Vec::new() }
    }

    /// Stores the first frame of an episode.
    pub fn begin(&mut self, frame: &[T]) {
        self.append(0, frame);
    }

    /// Stores a transition and the frame after it. An episode must have begun.
    pub fn push(&mut self, action: usize, reward: f32, terminated: bool, frame: &[T]) {
        let newest = self.newest();
        let before = match self.slots.get_mut(newest) {
            Some(slot) => {
                slot.action = Some(i32::try_from(action).unwrap_or(i32::MAX));
                (slot.reward, slot.terminated) = (reward, terminated);
                slot.before + 1
            }
            None => 0,
        };
        self.append(before.min(self.stack.saturating_sub(1)), frame);
    }

    /// Draws `rows` transitions uniformly with replacement from those whose frames are all stored. `None` if there are none.
    pub fn sample(&self, rows: usize, rng: &mut Rng) -> Option<Batch<T>> {
        let mut batch = Batch {
            rows,
            frames: Vec::with_capacity(rows * self.frame_len * (self.stack + 1)),
            actions: Vec::with_capacity(rows),
            rewards: Vec::with_capacity(rows),
            continues: Vec::with_capacity(rows),
        };
        for _ in 0..rows {
            let (age, slot, action) = self.pick(rng)?;
            batch.actions.push(action);
            batch.rewards.push(slot.reward);
            batch.continues.push(if slot.terminated { 0.0 } else { 1.0 });
            let missing = self.stack.saturating_sub(slot.before + 1);
            batch.frames.resize(batch.frames.len() + missing * self.frame_len, T::default());
            (age.saturating_sub(slot.before)..=age + 1).for_each(|age| batch.frames.extend_from_slice(self.frame(age)));
        }
        Some(batch)
    }

    /// The slot of the frame that is `age` frames newer than the oldest.
    fn place(&self, age: usize) -> usize {
        (self.next + age) % self.slots.len().max(1)
    }

    fn newest(&self) -> usize {
        self.place(self.slots.len().saturating_sub(1))
    }

    fn append(&mut self, before: usize, frame: &[T]) {
        let slot = Slot { action: None, reward: 0.0, terminated: false, before };
        if self.slots.len() < self.capacity {
            self.slots.push(slot);
            self.frames.extend_from_slice(frame);
            return;
        }
        self.slots[self.next] = slot;
        self.frames[self.next * self.frame_len..][..self.frame_len].copy_from_slice(frame);
        self.next = (self.next + 1) % self.capacity;
    }

    /// Draws slots until one has a transition whose frames are all stored. Except for the first few slots, at least every second
    /// one does. If all draws miss, takes the next one.
    fn pick(&self, rng: &mut Rng) -> Option<(usize, Slot, i32)> {
        let whole = |age: usize| {
            let slot = *self.slots.get(self.place(age))?;
            let action = slot.action?;
            (age >= slot.before).then_some((age, slot, action))
        };
        let mut age = 0;
        for _ in 0..DRAWS {
            age = rng.below(self.slots.len());
            if let Some(found) = whole(age) {
                return Some(found);
            }
        }
        (age..self.slots.len()).chain(0..age).find_map(whole)
    }

    fn frame(&self, age: usize) -> &[T] {
        &self.frames[self.place(age) * self.frame_len..][..self.frame_len]
    }
}

/// Maximum number of draws before the memory is searched.
const DRAWS: u8 = 100;

#[cfg(test)]
mod tests;
