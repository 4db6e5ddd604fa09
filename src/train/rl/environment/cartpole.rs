//! CartPole: balance a pole on a cart by pushing the cart to the left or to the right.
//!
//! Barto, Sutton, Anderson: "Neuronlike adaptive elements that can solve difficult learning control problems", IEEE Transactions
//! on Systems, Man, and Cybernetics 13 (1983), with the constants, the limits and the integration of Gymnasium's `CartPole-v1`.
//! Knows the mechanics and nothing of learning.
//!
//! Sine and cosine are computed by their series with basic arithmetic only, whose rounding IEEE 754 defines. So every machine
//! plays the same episode, whatever its mathematical library.

use super::{Environment, Transition};
use crate::number::single;
use crate::rng::Rng;

/// Acceleration of gravity in m/s².
const GRAVITY: f64 = 9.8;

/// Mass of the cart in kg.
const CART: f64 = 1.0;

/// Mass of the pole in kg.
const POLE: f64 = 0.1;

/// Half of the pole's length in m.
const HALF: f64 = 0.5;

/// Force of a push in N.
const FORCE: f64 = 10.0;

/// Seconds of a step.
const TAU: f64 = 0.02;

/// Maximum distance of the cart from the middle in m.
const TRACK: f64 = 2.4;

/// Maximum angle of the pole, 12 degrees, in radians.
const LEAN: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;

/// Every number of the initial state is drawn from -`START` to `START`.
const START: f32 = 0.05;

/// Steps after which an episode is truncated.
const LIMIT: u32 = 500;

/// The cart and its pole. Action 0 pushes to the left, 1 to the right. The reward of every step, including the last, is 1. An
/// episode terminates when the cart is more than 2.4 m from the middle or the pole leans more than 12 degrees. It is truncated
/// after 500 steps. The return of an episode is the number of its steps, 500 at best.
///
/// A frame is the state: position in m, velocity in m/s, angle in radians from upright, angular velocity in rad/s.
#[derive(Clone, Debug)]
pub struct CartPole {
    state: [f64; 4],
    frame: [f32; 4],
    steps: u32,
    last: Transition,
}

impl CartPole {
    /// A cart that does not move until the first `reset`.
    pub fn new() -> Self {
        let last = Transition { terminated: true, ..Transition::default() };
        Self { state: [0.0; 4], frame: [0.0; 4], steps: 0, last }
    }
}

impl Environment for CartPole {
    type Item = f32;

    fn actions(&self) -> usize {
        2
    }

    fn frame_len(&self) -> usize {
        4
    }

    fn stack(&self) -> usize {
        1
    }

    fn best_return(&self) -> f64 {
        f64::from(LIMIT)
    }

    fn reset(&mut self, mut rng: Rng) {
        self.state = [(); 4].map(|()| f64::from(rng.range(-START, START)));
        self.frame = self.state.map(single);
        self.steps = 0;
        self.last = Transition::default();
    }

    fn step(&mut self, action: usize) -> Transition {
        if self.last.ended() {
            return Transition { reward: 0.0, ..self.last };
        }
        self.state = moved(self.state, if action == 0 { -FORCE } else { FORCE });
        self.frame = self.state.map(single);
        self.steps += 1;
        let [position, _, angle, _] = self.state;
        self.last = Transition {
            reward: 1.0,
            terminated: position.abs() > TRACK || angle.abs() > LEAN,
            truncated: self.steps >= LIMIT,
        };
        self.last
    }

    fn frame(&self) -> &[f32] {
        &self.frame
    }

    fn observe(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.frame);
    }
}

/// The state a step later, by explicit Euler integration.
fn moved([position, velocity, angle, turning]: [f64; 4], force: f64) -> [f64; 4] {
    let (sine, cosine) = sine_cosine(angle);
    let push = (force + POLE * HALF * turning * turning * sine) / (CART + POLE);
    let fall = (GRAVITY * sine - cosine * push) / (HALF * (4.0 / 3.0 - POLE * cosine * cosine / (CART + POLE)));
    let pull = push - POLE * HALF * fall * cosine / (CART + POLE);
    [position + TAU * velocity, velocity + TAU * pull, angle + TAU * turning, turning + TAU * fall]
}

/// Terms of each series: the first omitted one is below 10^-19 up to an angle of 0.5, more than twice the limit.
const TERMS: u8 = 8;

/// Sine and cosine of a small angle (Maclaurin series, summed from the smallest term).
fn sine_cosine(angle: f64) -> (f64, f64) {
    let square = angle * angle;
    let nested = |offset: f64| {
        (1..=TERMS).rev().fold(1.0, |inner, term| {
            let even = 2.0 * f64::from(term);
            1.0 - square * inner / (even * (even + offset))
        })
    };
    (angle * nested(1.0), nested(-1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::real_len;
    use crate::rng::Stream;

    /// Accelerations of cart and pole: the solution of Lagrange's equations of motion for a thin rod of half length l and moment
    /// of inertia m l²/3 about its centre:
    ///
    /// - (M + m) x'' + m l cos θ θ'' = F + m l θ'² sin θ
    /// - m l cos θ x'' + (4/3) m l² θ'' = m g l sin θ
    ///
    /// Solved by Cramer's rule, which shares no intermediate quantity with the formulas above.
    fn accelerations(angle: f64, turning: f64, force: f64) -> (f64, f64) {
        let (a, b, d) = (1.1, 0.1 * 0.5 * angle.cos(), 4.0 / 3.0 * 0.1 * 0.25);
        let (e, f) = (force + 0.05 * turning * turning * angle.sin(), 0.1 * 9.8 * 0.5 * angle.sin());
        let determinant = a * d - b * b;
        ((e * d - b * f) / determinant, (a * f - b * e) / determinant)
    }

    #[test]
    fn a_step_from_rest_matches_values_computed_by_hand() {
        // Upright and at rest, pushed by 10 N: θ'' = -(10/1.1) / (0.5 (4/3 - 0.1/1.1)) = -600/41 rad/s² and
        // x'' = 10/1.1 + 0.05 · (600/41) / 1.1 = 400/41 m/s². After 0.02 s the velocities are 8/41 and -12/41, and nothing
        // has moved yet; a step later the places are 0.02 times these.
        let first = moved([0.0; 4], 10.0);
        for (got, want) in first.into_iter().zip([0.0, 8.0 / 41.0, 0.0, -12.0 / 41.0]) {
            assert!((got - want).abs() < 1e-15, "{got} and not {want}");
        }
        let second = moved(first, -10.0);
        for (got, want) in [second[0], second[2]].into_iter().zip([0.16 / 41.0, -0.24 / 41.0]) {
            assert!((got - want).abs() < 1e-15, "{got} and not {want}");
        }
    }

    #[test]
    fn the_motion_satisfies_lagranges_equations() {
        for (position, velocity, angle, turning, force) in
            [(0.1, -0.3, 0.15, 0.7, 10.0), (-2.0, 1.5, -0.2, -2.1, 10.0), (1.0, 0.0, 0.05, 3.0, -10.0)]
        {
            let (cart, pole) = accelerations(angle, turning, force);
            let want =
                [position + 0.02 * velocity, velocity + 0.02 * cart, angle + 0.02 * turning, turning + 0.02 * pole];
            for (got, want) in moved([position, velocity, angle, turning], force).into_iter().zip(want) {
                assert!((got - want).abs() < 1e-14, "{got} and not {want}");
            }
        }
    }

    #[test]
    fn sine_and_cosine_match_the_standard_library() {
        for step in -50_i8..=50 {
            let angle = f64::from(step) / 100.0;
            let (sine, cosine) = sine_cosine(angle);
            assert!((sine - angle.sin()).abs() < 1.2e-16 && (cosine - angle.cos()).abs() < 2.3e-16, "at {angle}");
        }
    }

    fn begun(episode: u64) -> CartPole {
        let mut cart = CartPole::new();
        cart.reset(Rng::new(1, Stream::TrainEpisode, episode));
        cart
    }

    #[test]
    fn episodes_begin_near_rest_and_are_reproducible() {
        let starts: Vec<Vec<f32>> = (1..=100).map(|episode| begun(episode).frame().to_vec()).collect();
        assert!(starts.iter().flatten().all(|value| value.abs() <= 0.05));
        assert!(starts.iter().flatten().any(|value| value.abs() > 0.045));
        assert_ne!(starts[0], starts[1]);
        assert_eq!(begun(2).frame(), starts[1]);
    }

    #[test]
    fn pushing_one_way_makes_the_pole_fall_and_terminates() {
        let mut cart = begun(1);
        let steps = (1..).find(|_| cart.step(1).ended()).expect("it falls");
        assert!((8..=11).contains(&steps), "{steps} steps");
        assert_eq!(cart.last, Transition { reward: 1.0, terminated: true, truncated: false });
        assert!(cart.frame()[2] < -0.2094);
        let frame = cart.frame;
        assert_eq!(cart.step(0), Transition { reward: 0.0, terminated: true, truncated: false });
        assert_eq!(cart.frame, frame);
    }

    #[test]
    fn leaving_the_track_terminates() {
        let mut cart = begun(1);
        cart.state = [2.399, 0.1, 0.0, 0.0];
        assert!(cart.step(1).terminated);
        cart = begun(1);
        cart.state = [2.399, 0.04, 0.0, 0.0];
        assert!(!cart.step(1).terminated);
    }

    /// A hand-tuned linear feedback policy that pushes towards the side to which the pole will lean.
    fn balance(frame: &[f32]) -> usize {
        usize::from(0.1 * frame[0] + 0.3 * frame[1] + 3.0 * frame[2] + frame[3] > 0.0)
    }

    #[test]
    fn a_balanced_pole_is_truncated_after_500_steps() {
        for episode in 1..=20 {
            let mut cart = begun(episode);
            let last = (1..500).map(|_| cart.step(balance(&cart.frame))).find(Transition::ended);
            assert_eq!(last, None, "episode {episode}");
            assert_eq!(cart.step(balance(&cart.frame)), Transition { reward: 1.0, terminated: false, truncated: true });
            assert!(cart.step(0).truncated && cart.steps == 500);
        }
    }

    #[test]
    fn random_pushes_last_for_about_22_steps() {
        let mut steps = Vec::new();
        for episode in 1..=1000 {
            let mut cart = begun(episode);
            let mut rng = Rng::new(1, Stream::Explore, episode);
            steps.push((1..).find(|_| cart.step(rng.below(2)).ended()).unwrap_or_default());
        }
        // Gymnasium's mean is 22.2 with a standard deviation of 11.8, or 0.37 for a mean of 1,000; 5 of them are allowed.
        let mean = real_len(steps.iter().sum()) / 1000.0;
        assert!((20.3..24.1).contains(&mean), "{mean}");
    }
}
