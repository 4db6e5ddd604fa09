//! Catch balls, observed as pixels: an environment with the shapes of an Atari game, small enough to be learned in minutes.
//!
//! Knows the rules and the image and nothing of learning. All positions are whole pixels, and time is in steps.
//!
//! A ball falls diagonally from the top to the paddle at the bottom in 15 steps, and bounces off the walls. The paddle moves 2
//! pixels a step, or 6 in a dash. Without dashes it reaches at most 30 pixels, so it cannot catch every ball. With dashes it
//! can: the longest way is 70 pixels, and 14 dashes and a step to turn around cover 86.
//!
//! The reward is 1 for a caught ball and -1 for a missed one. An episode is truncated after 10 balls (150 steps), not
//! terminated, because the image does not show how many balls are left. The best return is 10.

use super::{Environment, Stack, Transition};
use crate::rng::{Rng, Stream};

/// Pixels of a side.
const SIDE: usize = 84;

/// Frames per observation (Mnih et al. 2015, "agent history length").
const FRAMES: usize = 4;

/// Balls of an episode.
pub const BALLS: u32 = 10;

/// Pixels of a ball's side.
const BALL: usize = 4;

/// The initial row of a ball's upper edge.
const TOP: usize = 1;

/// Rows that a ball falls in a step.
const FALL: usize = 5;

/// The maximum number of columns that a ball moves sideways in a step.
const SLOPE: usize = 3;

/// Pixels of the paddle's width.
const PADDLE: usize = 14;

/// The paddle's first row; it fills all rows below.
const FLOOR: usize = 80;

/// Width of the brighter columns at the side that the paddle faces.
const NOSE: usize = 3;

/// Columns that the paddle moves in a step.
const WALK: usize = 2;

/// Columns that the paddle moves in a dash.
const DASH: usize = 6;

/// Grey value of a ball and of the paddle's nose.
const BRIGHT: u8 = 255;

/// Grey value of the paddle.
const DULL: u8 = 128;

/// The set of actions. Every ball can be caught with either set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controls {
    /// Stay, left, right, and dash to the side that the paddle faces, which is that of its last move.
    Four,
    /// The same, plus dash to the left and dash to the right: as many as Pong has on the Atari 2600.
    Six,
}

/// The two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// The game.
#[derive(Clone, Debug)]
pub struct Catch {
    controls: Controls,
    rng: Rng,
    /// The paddle's left column.
    paddle: usize,
    faces: Side,
    /// The ball's left column.
    column: usize,
    /// The ball's upper row.
    row: usize,
    goes: Side,
    slope: usize,
    balls: u32,
    stack: Stack<u8>,
}

impl Catch {
    /// A game whose episode has ended.
    pub fn new(controls: Controls) -> Self {
        Self {
            controls,
            rng: Rng::new(0, Stream::TrainEpisode, 0),
            paddle: (SIDE - PADDLE) / 2,
            faces: Side::Right,
            column: 0,
            row: TOP,
            goes: Side::Right,
            slope: 0,
            balls: BALLS,
            stack: Stack::new(FRAMES, SIDE * SIDE),
        }
    }

    /// Throws the next ball.
    fn throw(&mut self) {
        self.row = TOP;
        self.column = self.rng.below(SIDE - BALL + 1);
        self.slope = self.rng.below(SLOPE + 1);
        self.goes = if self.rng.below(2) == 0 { Side::Left } else { Side::Right };
    }

    fn go(&mut self, action: usize) {
        let (side, columns) = match (action, self.controls) {
            (0, _) => return,
            (1, _) => (Side::Left, WALK),
            (2, _) => (Side::Right, WALK),
            (3, _) | (_, Controls::Four) => (self.faces, DASH),
            (4, Controls::Six) => (Side::Left, DASH),
            (_, Controls::Six) => (Side::Right, DASH),
        };
        self.faces = side;
        self.paddle = match side {
            Side::Left => self.paddle.saturating_sub(columns),
            Side::Right => (self.paddle + columns).min(SIDE - PADDLE),
        };
    }

    fn fall(&mut self) {
        self.row += FALL;
        let wall = SIDE - BALL;
        (self.column, self.goes) = match self.goes {
            Side::Right if self.column + self.slope > wall => (2 * wall - self.column - self.slope, Side::Left),
            Side::Right => (self.column + self.slope, Side::Right),
            Side::Left if self.slope > self.column => (self.slope - self.column, Side::Right),
            Side::Left => (self.column - self.slope, Side::Left),
        };
    }

    /// Whether paddle and ball share a column.
    fn touches(&self) -> bool {
        self.column < self.paddle + PADDLE && self.paddle < self.column + BALL
    }

    fn paint(&mut self) {
        let frame = self.stack.advance();
        for row in frame.chunks_exact_mut(SIDE).skip(self.row).take(BALL) {
            row[self.column..self.column + BALL].fill(BRIGHT);
        }
        let nose = match self.faces {
            Side::Left => self.paddle,
            Side::Right => self.paddle + PADDLE - NOSE,
        };
        for row in frame.chunks_exact_mut(SIDE).skip(FLOOR) {
            row[self.paddle..self.paddle + PADDLE].fill(DULL);
            row[nose..nose + NOSE].fill(BRIGHT);
        }
    }
}

impl Environment for Catch {
    type Item = u8;

    fn actions(&self) -> usize {
        match self.controls {
            Controls::Four => 4,
            Controls::Six => 6,
        }
    }

    fn frame_len(&self) -> usize {
        SIDE * SIDE
    }

    fn stack(&self) -> usize {
        FRAMES
    }

    fn best_return(&self) -> f64 {
        f64::from(BALLS)
    }

    fn reset(&mut self, rng: Rng) {
        self.rng = rng;
        self.paddle = self.rng.below(SIDE - PADDLE + 1);
        self.faces = if self.rng.below(2) == 0 { Side::Left } else { Side::Right };
        self.balls = 0;
        self.throw();
        self.stack.clear();
        self.paint();
    }

    fn step(&mut self, action: usize) -> Transition {
        if self.balls >= BALLS {
            return Transition { truncated: true, ..Transition::default() };
        }
        self.go(action);
        self.fall();
        let mut reward = 0.0;
        if self.row + BALL >= FLOOR {
            reward = if self.touches() { 1.0 } else { -1.0 };
            self.balls += 1;
            self.throw();
        }
        self.paint();
        Transition { reward, terminated: false, truncated: self.balls >= BALLS }
    }

    fn frame(&self) -> &[u8] {
        self.stack.newest()
    }

    fn observe(&self, out: &mut [u8]) {
        self.stack.observe(out);
    }
}

#[cfg(test)]
mod tests;
