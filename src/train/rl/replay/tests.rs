use super::*;
use crate::rl::environment::Stack;
use crate::rng::{Rng, Stream};
use proptest::prelude::*;

/// One row of a batch of bytes: observation, action, reward, next observation, continue.
type Row = (Vec<u8>, i32, i32, Vec<u8>, bool);

/// An oracle that stores every transition that was ever pushed, with whole observations.
struct Diary {
    replay: Replay<u8>,
    stack: Stack<u8>,
    /// Each transition with the number of frames stored before the first frame of its observation.
    rows: Vec<(usize, Row)>,
    frames: usize,
    since: usize,
}

impl Diary {
    const STACK: usize = 3;

    fn new(capacity: usize) -> Self {
        let replay = Replay::new(capacity, 1, Self::STACK);
        Self { replay, stack: Stack::new(Self::STACK, 1), rows: Vec::new(), frames: 0, since: 0 }
    }

    fn seen(&self) -> Vec<u8> {
        let mut seen = vec![0; Self::STACK];
        self.stack.observe(&mut seen);
        seen
    }

    /// Plays an episode of this many steps. Frame values cycle from 1 to 250, and actions are the frame count modulo 5.
    fn live(&mut self, steps: usize, terminates: bool) {
        self.stack.clear();
        self.since = self.frames;
        self.show();
        self.replay.begin(self.stack.newest());
        for step in 1..=steps {
            let before = self.seen();
            let (action, reward) = (self.frames % 5, u8::try_from(self.frames % 7).expect("small"));
            let oldest = (self.frames - 1).saturating_sub(Self::STACK - 1).max(self.since);
            self.show();
            let ends = terminates && step == steps;
            self.replay.push(action, f32::from(reward), ends, self.stack.newest());
            let action = i32::try_from(action).expect("small");
            self.rows.push((oldest, (before, action, reward.into(), self.seen(), !ends)));
        }
    }

    fn show(&mut self) {
        self.stack.advance().fill(u8::try_from(self.frames % 250 + 1).expect("small"));
        self.frames += 1;
    }

    /// The transitions that the memory must still contain.
    fn kept(&self) -> Vec<Row> {
        let gone = self.frames.saturating_sub(self.replay.capacity);
        let mut kept: Vec<Row> =
            self.rows.iter().filter(|(oldest, _)| *oldest >= gone).map(|row| row.1.clone()).collect();
        kept.sort();
        kept.dedup();
        kept
    }
}

fn rows(batch: &Batch<u8>) -> Vec<Row> {
    let width = batch.frames.len() / batch.rows;
    let row = |row: usize| {
        (
            batch.frames[row * width..][..Diary::STACK].to_vec(),
            batch.actions[row],
            i32::from(crate::number::grey(batch.rewards[row])),
            batch.frames[row * width + 1..][..Diary::STACK].to_vec(),
            batch.continues[row] == 1.0,
        )
    };
    (0..batch.rows).map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn samples_are_exactly_the_stored_transitions(
        seed: u64,
        capacity in 2..40_usize,
        episodes in proptest::collection::vec((1..12_usize, any::<bool>()), 1..12),
    ) {
        let mut diary = Diary::new(capacity);
        for (steps, terminates) in episodes {
            diary.live(steps, terminates);
        }
        let kept = diary.kept();
        let batch = diary.replay.sample(600, &mut Rng::new(seed, Stream::Replay, 1));
        prop_assert_eq!(batch.is_none(), kept.is_empty());
        if let Some(batch) = batch {
            let mut drawn = rows(&batch);
            drawn.sort();
            drawn.dedup();
            // 600 draws miss one of at most 38 transitions with a probability of 10^-7.
            prop_assert_eq!(drawn, kept);
        }
    }
}

#[test]
fn transitions_are_drawn_uniformly() {
    let mut diary = Diary::new(30);
    for steps in [5, 1, 9, 7, 1, 12] {
        diary.live(steps, true);
    }
    let kept = diary.kept();
    let batch = diary.replay.sample(20_000, &mut Rng::new(1, Stream::Replay, 1)).expect("not empty");
    let drawn = rows(&batch);
    let expected = crate::number::real_len(drawn.len()) / crate::number::real_len(kept.len());
    for row in &kept {
        let count = crate::number::real_len(drawn.iter().filter(|other| *other == row).count());
        // A binomial count; 5 standard deviations are allowed.
        assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{count} and not about {expected}");
    }
}

#[test]
fn truncated_episodes_continue_and_terminated_ones_do_not() {
    for (terminated, want) in [(true, 0.0), (false, 1.0)] {
        let mut replay = Replay::new(10, 2, 1);
        replay.begin(&[0.25_f32, -1.0]);
        replay.push(1, -2.5, terminated, &[0.5, 3.0]);
        replay.begin(&[9.0, 9.0]);
        let batch = replay.sample(1, &mut Rng::new(0, Stream::Replay, 1)).expect("one transition");
        let expected = Batch {
            rows: 1,
            frames: vec![0.25, -1.0, 0.5, 3.0],
            actions: vec![1],
            rewards: vec![-2.5],
            continues: vec![want],
        };
        assert_eq!(batch, expected);
    }
}

#[test]
fn a_memory_without_transitions_has_no_samples() {
    let mut replay = Replay::<u8>::new(10, 1, 4);
    let sample = |replay: &Replay<u8>| replay.sample(2, &mut Rng::new(0, Stream::Replay, 1));
    assert!(replay.slots.is_empty() && sample(&replay).is_none());
    replay.begin(&[1]);
    assert!(replay.slots.len() == 1 && sample(&replay).is_none());
}

#[test]
fn samples_are_reproducible_and_depend_on_the_update() {
    let mut diary = Diary::new(100);
    diary.live(90, false);
    let sample = |update| diary.replay.sample(32, &mut Rng::new(5, Stream::Replay, update)).expect("not empty");
    assert_eq!(sample(1), sample(1));
    assert_ne!(sample(1), sample(2));
}
