use super::*;
use crate::rl::environment::{CartPole, Transition};
use std::convert::Infallible;

/// The target of each row: r + γ · max Q'(s', a), or r if the episode terminated. `next` has the target network's values of all
/// actions in the next observations.
fn targets<T>(batch: &Batch<T>, next: &[f32], discount: f32) -> Vec<f32> {
    let actions = (next.len() / batch.rows.max(1)).max(1);
    let worth = next.chunks_exact(actions).map(|next| next[best(next)]);
    let row = |((reward, goes_on), worth): ((&f32, &f32), f32)| {
        if *goes_on > 0.0 { reward + discount * worth } else { *reward }
    };
    batch.rewards.iter().zip(&batch.continues).zip(worth).map(row).collect()
}

/// A row of cells. Action 1 goes right, 0 left. The cell beyond the last terminates with reward 1, or is a wall. Truncated after
/// `limit` steps.
#[derive(Clone)]
struct Corridor {
    cells: usize,
    walled: bool,
    limit: u32,
    /// Reward of every step that does not reach the end.
    fare: f32,
    at: usize,
    steps: u32,
    frame: [f32; 1],
}

impl Corridor {
    fn new(cells: usize, limit: u32, fare: f32) -> Self {
        Self { cells, walled: false, limit, fare, at: 0, steps: 0, frame: [0.0] }
    }

    fn show(&mut self) {
        self.frame = [f32::from(u8::try_from(self.at).expect("few cells"))];
    }
}

impl Environment for Corridor {
    type Item = f32;

    fn actions(&self) -> usize {
        2
    }

    fn frame_len(&self) -> usize {
        1
    }

    fn stack(&self) -> usize {
        1
    }

    fn best_return(&self) -> f64 {
        1.0
    }

    fn reset(&mut self, mut rng: Rng) {
        (self.at, self.steps) = (rng.below(self.cells), 0);
        self.show();
    }

    fn step(&mut self, action: usize) -> Transition {
        self.at = if action == 1 { self.at + 1 } else { self.at.saturating_sub(1) };
        if self.walled {
            self.at = self.at.min(self.cells - 1);
        }
        self.steps += 1;
        self.show();
        let terminated = self.at == self.cells;
        Transition { reward: if terminated { 1.0 } else { self.fare }, terminated, truncated: self.steps == self.limit }
    }

    fn frame(&self) -> &[f32] {
        &self.frame
    }

    fn observe(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.frame);
    }
}

/// A value for each cell and action, and the copy that serves as the target network.
struct Table {
    values: Vec<f32>,
    copy: Vec<f32>,
    asked: usize,
}

impl Table {
    fn new(cells: usize) -> Self {
        Self { values: vec![0.0; 2 * (cells + 1)], copy: vec![0.0; 2 * (cells + 1)], asked: 0 }
    }

    fn row(observation: f32) -> usize {
        2 * usize::from(crate::number::grey(observation))
    }

    fn learn(&mut self, batch: &Batch<f32>, discount: f32) {
        let look = |table: &[f32]| -> Vec<f32> {
            let next = batch.frames.chunks_exact(2).map(|frames| frames[1]);
            next.flat_map(|seen| table[Self::row(seen)..][..2].to_vec()).collect()
        };
        let wanted = targets(batch, &look(&self.copy), discount);
        for (row, wanted) in wanted.into_iter().enumerate() {
            let spot = Self::row(batch.frames[2 * row]) + usize::try_from(batch.actions[row]).expect("an action");
            self.values[spot] -= 0.5 * huber(self.values[spot] - wanted).1;
        }
    }
}

impl Q<f32> for Table {
    type Error = Infallible;

    fn values(&mut self, observations: &[f32], rows: usize) -> Result<Vec<f32>, Infallible> {
        assert_eq!(observations.len(), rows);
        self.asked += 1;
        Ok(observations.iter().flat_map(|seen| self.values[Self::row(*seen)..][..2].to_vec()).collect())
    }
}

fn config(steps: u64) -> Config {
    Config {
        steps,
        batch: 8,
        capacity: 500,
        learning_starts: 100,
        train_every: 2,
        target_every: 5,
        discount: 0.9,
        exploration: Exploration { first: 1.0, last: 0.2, over: 1000 },
        clip_rewards: false,
        reward_scale: 1.0,
    }
}

fn train(config: Config, seed: u64, environment: Corridor) -> (Table, Vec<Episode>) {
    let mut table = Table::new(environment.cells);
    let mut agent = Agent::new(config, seed, environment);
    let mut ended = Vec::new();
    while let Ok(Some(batch)) = agent.next_batch(&mut table, &mut ended) {
        table.learn(&batch, config.discount);
        if agent.target_due() {
            table.copy.clone_from(&table.values);
        }
    }
    assert_eq!((agent.steps, agent.updates), (config.steps, config.updates()));
    (table, ended)
}

#[test]
fn training_finds_the_optimal_values() {
    let (mut table, _) = train(config(6000), 3, Corridor::new(5, 30, 0.0));
    for cell in 0..5_u8 {
        // Right: a factor of 0.9 for every step before the last. Left: one step further, except in the first cell, which has a wall there.
        let right = 0.9_f32.powi(4 - i32::from(cell));
        let left = 0.9_f32.powi(1 + 4 - (i32::from(cell) - 1).max(0));
        let at = Table::row(f32::from(cell));
        for (got, want) in table.values[at..at + 2].iter().zip([left, right]) {
            assert!((got - want).abs() < 0.01, "{got} and not {want} in cell {cell}");
        }
    }
    assert_eq!(play(&Corridor::new(5, 30, 0.0), 3, 50, &mut table), Ok(vec![1.0; 50]));
}

#[test]
fn values_bootstrap_from_truncated_but_not_from_terminal_states() {
    // An endless walk with reward 0.1 per step is worth 0.1 / (1 - 0.9) = 1, although each episode is truncated after 3 steps.
    let (table, ended) = train(config(6000), 1, Corridor { walled: true, ..Corridor::new(3, 3, 0.1) });
    assert!(ended.iter().all(|episode| episode.length == 3));
    assert!(table.values[..6].iter().all(|value| (value - 1.0).abs() < 1e-2), "{:?}", table.values);
    // One cell: right terminates and is worth 1, left is worth 0.1 + 0.9.
    let (table, _) = train(config(2000), 1, Corridor::new(1, 3, 0.1));
    assert!((table.values[1] - 1.0).abs() < 1e-3 && (table.values[0] - 1.0).abs() < 1e-2, "{:?}", table.values);
}

#[test]
fn runs_are_reproducible_and_depend_on_the_seed() {
    let run = |seed| {
        let (table, ended) = train(config(600), seed, Corridor::new(5, 30, 0.0));
        (table.values, ended)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn episodes_are_returned_with_their_lengths_and_scores() {
    let mut table = Table::new(4);
    let mut agent = Agent::new(Config { learning_starts: u64::MAX, ..config(500) }, 9, Corridor::new(4, 6, 0.5));
    let mut ended = Vec::new();
    assert_eq!(agent.next_batch(&mut table, &mut ended), Ok(None));
    assert_eq!(table.asked, 0, "before learning starts every action is random");
    let mut last = 0;
    for episode in &ended {
        assert_eq!(episode.step, last + episode.length);
        last = episode.step;
        let fares = real(episode.length) * 0.5;
        assert!(episode.score == fares || episode.score == fares + 0.5, "{episode:?}");
        assert!(episode.length <= 6);
    }
    assert!(last > 490 && ended.iter().any(|episode| episode.score == real(episode.length) * 0.5 + 0.5));
}

#[test]
fn updates_and_copies_follow_their_schedule() {
    let config = Config { learning_starts: 10, train_every: 4, target_every: 3, ..config(41) };
    let mut agent = Agent::new(config, 0, Corridor::new(5, 30, 0.0));
    let (mut table, mut due) = (Table::new(5), Vec::new());
    while let Ok(Some(batch)) = agent.next_batch(&mut table, &mut Vec::new()) {
        assert_eq!(batch.rows, 8);
        due.push((agent.steps, agent.target_due()));
    }
    let steps = [(12, false), (16, false), (20, true), (24, false), (28, false), (32, true), (36, false), (40, false)];
    assert_eq!(due, steps);
    assert_eq!(config.updates(), 8);
    assert_eq!(Config { learning_starts: 12, ..config }.updates(), 8);
    assert_eq!(Config { learning_starts: 13, ..config }.updates(), 7);
    assert_eq!(Config { learning_starts: 100, ..config }.updates(), 0);
    // Mnih et al. 2015, extended data table 1.
    let paper = Config { steps: 50_000_000, learning_starts: 50_000, ..config };
    assert_eq!(paper.updates(), 12_487_501);
}

#[test]
fn the_probability_of_random_actions_falls_linearly_after_learning_starts() {
    let mut agent = Agent::new(config(10_000), 0, CartPole::new());
    let at = |agent: &mut Agent<CartPole>, steps| {
        agent.steps = steps;
        agent.exploration()
    };
    assert_eq!(at(&mut agent, 0), 1.0);
    assert_eq!(at(&mut agent, 99), 1.0);
    assert!((at(&mut agent, 600) - 0.6).abs() < 1e-6);
    assert!((at(&mut agent, 1100) - 0.2).abs() < 1e-6);
    assert!((at(&mut agent, 9999) - 0.2).abs() < 1e-6);
    assert_eq!(Exploration { first: 1.0, last: 0.3, over: 0 }.share(0), 0.3);
}

#[test]
fn actions_are_random_with_the_right_probability() {
    let exploration = Exploration { first: 0.4, last: 0.4, over: 1 };
    let config = Config { learning_starts: 0, train_every: u64::MAX, exploration, ..config(5000) };
    let mut table = Table::new(5);
    let mut agent = Agent::new(config, 4, Corridor::new(5, 30, 0.0));
    assert_eq!(agent.next_batch(&mut table, &mut Vec::new()), Ok(None));
    // 3,000 expected with a standard deviation of 35; 5 of them are allowed.
    assert!((2825..3175).contains(&table.asked), "{}", table.asked);
}

#[test]
fn batches_have_clipped_rewards_and_episodes_true_scores() {
    let config = Config { clip_rewards: true, train_every: 1, learning_starts: 50, ..config(50) };
    let mut ended = Vec::new();
    let batch = Agent::new(config, 0, Corridor::new(5, 2, -3.0)).next_batch(&mut Table::new(5), &mut ended);
    let batch = batch.expect("infallible").expect("an update is due");
    assert!(batch.rewards.iter().all(|reward| reward.abs() == 1.0) && batch.rewards.contains(&-1.0));
    assert!(ended.iter().any(|episode| episode.score == -6.0));
}

#[test]
fn the_best_action_is_the_first_with_the_largest_value() {
    assert_eq!(best(&[1.0, 3.0, 3.0, 2.0]), 1);
    assert_eq!(best(&[f32::NAN, -5.0, f32::NAN]), 1);
    assert_eq!(best(&[f32::NAN, f32::NAN]), 0);
    assert_eq!(best(&[]), 0);
}

#[test]
fn the_derivative_of_the_huber_loss_is_the_clipped_error() {
    for (error, want) in
        [(0.5, (0.125, 0.5)), (-0.5, (0.125, -0.5)), (1.0, (0.5, 1.0)), (3.0, (2.5, 1.0)), (-3.0, (2.5, -1.0))]
    {
        assert_eq!(huber(error), want);
    }
}

#[test]
fn training_and_evaluation_episodes_all_start_differently() {
    let starts = |stream| -> Vec<Vec<u32>> {
        let start = |episode| {
            let mut cart = CartPole::new();
            cart.reset(Rng::new(5, stream, episode));
            cart.frame().iter().map(|value| value.to_bits()).collect()
        };
        (1..=100).map(start).collect()
    };
    let mut all: Vec<_> = [Stream::TrainEpisode, Stream::EvalEpisode].into_iter().flat_map(starts).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200);
}

#[test]
fn episodes_that_are_played_together_end_independently() {
    // With equal values the first action is taken, and the pole falls to the right.
    struct Indifferent;
    impl Q<f32> for Indifferent {
        type Error = Infallible;
        fn values(&mut self, _: &[f32], rows: usize) -> Result<Vec<f32>, Infallible> {
            Ok(vec![0.0; 2 * rows])
        }
    }
    let together = play(&CartPole::new(), 5, 40, &mut Indifferent).expect("infallible");
    let alone = |episode: u64| {
        let mut cart = CartPole::new();
        cart.reset(Rng::new(5, Stream::EvalEpisode, episode));
        (1..).find(|_| cart.step(0).ended()).map(real).unwrap_or_default()
    };
    assert_eq!(together, (1..=40).map(alone).collect::<Vec<_>>());
    assert!(together.iter().any(|score| *score != together[0]));
    assert_eq!(mean(&[1.0, 2.0, 6.0]), 3.0);
}
