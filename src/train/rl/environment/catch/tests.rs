use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

fn begun(controls: Controls, episode: u64) -> Catch {
    let mut game = Catch::new(controls);
    game.reset(Rng::new(7, Stream::TrainEpisode, episode));
    game
}

/// Plays an episode; its return and number of steps.
fn play(game: &mut Catch, mut policy: impl FnMut(&Catch) -> usize) -> (f32, u32) {
    let (mut score, mut steps) = (0.0, 0);
    loop {
        let transition = game.step(policy(game));
        score += transition.reward;
        steps += 1;
        assert!(!transition.terminated);
        if transition.truncated {
            return (score, steps);
        }
    }
}

/// A policy that moves to where the ball will land, with the four actions that both sets have.
fn oracle(game: &Catch) -> usize {
    let mut ahead = game.clone();
    while ahead.row + BALL < FLOOR {
        ahead.fall();
    }
    let (want, at) = (ahead.column + BALL / 2, game.paddle + PADDLE / 2);
    let side = if want < at { Side::Left } else { Side::Right };
    match want.abs_diff(at) {
        0..=2 => 0,
        off if off > 5 && side == game.faces => 3,
        _ if side == Side::Left => 1,
        _ => 2,
    }
}

#[test]
fn a_policy_that_knows_where_balls_land_catches_all_of_them() {
    for controls in [Controls::Four, Controls::Six] {
        for episode in 1..=200 {
            assert_eq!(play(&mut begun(controls, episode), oracle), (10.0, 150), "{controls:?}, episode {episode}");
        }
    }
}

#[test]
fn without_dashes_not_every_ball_is_caught() {
    let slow = |game: &Catch| match oracle(game) {
        3 if game.faces == Side::Left => 1,
        3 => 2,
        action => action,
    };
    let mean =
        (1..=200_u16).map(|episode| play(&mut begun(Controls::Four, episode.into()), slow).0).sum::<f32>() / 200.0;
    // A mean of 200 has a standard deviation of 0.17; 5 of them are allowed.
    assert!((SLOW - 0.9..SLOW + 0.9).contains(&mean), "{mean}");
}

/// Mean return over 20,000 episodes of a policy that moves to where the ball lands without dashes.
const SLOW: f32 = 5.74;

/// Mean returns of random actions over 20,000 episodes, with four actions and with six. The return of an episode has a standard
/// deviation of 2.5.
const RANDOM: [f32; 2] = [-5.90, -5.90];

fn random(controls: Controls, episodes: u16) -> f32 {
    let mut scores = 0.0;
    for episode in 1..=episodes {
        let mut game = begun(controls, episode.into());
        let mut rng = Rng::new(7, Stream::Explore, episode.into());
        let actions = game.actions();
        scores += play(&mut game, |_| rng.below(actions)).0;
    }
    scores / f32::from(episodes)
}

#[test]
fn random_actions_miss_most_balls() {
    for (controls, want) in [Controls::Four, Controls::Six].into_iter().zip(RANDOM) {
        let mean = random(controls, 400);
        // A mean of 400 has a standard deviation of 0.13; 5 of them are allowed.
        assert!((want - 0.65..want + 0.65).contains(&mean), "{mean} with {controls:?}");
    }
}

#[test]
fn the_image_shows_ball_paddle_and_nose() {
    let mut game = begun(Controls::Four, 1);
    (game.paddle, game.faces, game.column, game.row) = (20, Side::Left, 50, 11);
    game.paint();
    let count = |grey| game.frame().iter().filter(|pixel| **pixel == grey).count();
    assert_eq!((count(BRIGHT), count(DULL)), (4 * 4 + 3 * 4, 11 * 4));
    let at = |row: usize, column: usize| game.frame()[row * 84 + column];
    assert_eq!([at(11, 50), at(14, 53), at(15, 53), at(14, 54), at(10, 50)], [255, 255, 0, 0, 0]);
    assert_eq!([at(80, 19), at(80, 20), at(83, 22), at(83, 23), at(80, 33), at(80, 34)], [0, 255, 255, 128, 128, 0]);
}

#[test]
fn an_observation_begins_with_zeros_and_ends_with_the_newest_frame() {
    let mut game = begun(Controls::Four, 1);
    let mut seen = vec![0; game.observation_len()];
    game.observe(&mut seen);
    assert!(seen[..3 * 7056].iter().all(|value| *value == 0));
    assert!(seen[3 * 7056..].contains(&255));
    let first = seen[3 * 7056..].to_vec();
    game.step(0);
    game.observe(&mut seen);
    assert_eq!(seen[2 * 7056..3 * 7056], first);
    assert_eq!(&seen[3 * 7056..], game.frame());
}

#[test]
fn the_paddle_follows_the_actions_and_stays_inside() {
    let mut game = begun(Controls::Six, 1);
    (game.paddle, game.faces) = (40, Side::Right);
    let mut go = |action: usize| {
        game.go(action);
        (game.paddle, game.faces)
    };
    assert_eq!(go(0), (40, Side::Right));
    assert_eq!(go(3), (46, Side::Right));
    assert_eq!(go(1), (44, Side::Left));
    assert_eq!(go(3), (38, Side::Left));
    assert_eq!(go(2), (40, Side::Right));
    assert_eq!(go(4), (34, Side::Left));
    assert_eq!(go(5), (40, Side::Right));
    assert_eq!((0..9).map(|_| go(4)).last(), Some((0, Side::Left)));
    assert_eq!((0..15).map(|_| go(5)).last(), Some((70, Side::Right)));
}

#[test]
fn a_ball_bounces_off_both_walls() {
    let mut game = begun(Controls::Four, 1);
    (game.column, game.goes, game.slope) = (79, Side::Right, 3);
    game.fall();
    assert_eq!((game.column, game.goes), (78, Side::Left));
    (game.column, game.goes) = (1, Side::Left);
    game.fall();
    assert_eq!((game.column, game.goes), (2, Side::Right));
}

#[test]
fn steps_after_the_end_change_nothing() {
    let mut game = begun(Controls::Four, 1);
    play(&mut game, |_| 0);
    let frame = game.frame().to_vec();
    assert_eq!(game.step(1), Transition { reward: 0.0, terminated: false, truncated: true });
    assert_eq!(game.frame(), frame);
}

#[test]
fn episodes_with_different_random_numbers_differ() {
    let frames = |seed| {
        let mut game = begun(Controls::Four, seed);
        (0..20).map(|_| game.step(0)).for_each(drop);
        game.frame().to_vec()
    };
    let mut all: Vec<Vec<u8>> = (0..20).map(frames).collect();
    all.sort();
    all.dedup();
    assert!(all.len() > 10, "{} of 20 differ", all.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn an_episode_is_a_function_of_its_draws_and_actions(seed: u64, actions in proptest::collection::vec(0..9_usize, 1..60)) {
        let run = |game: &mut Catch, seed| {
            game.reset(Rng::new(seed, Stream::TrainEpisode, 1));
            let rewards: Vec<f32> = actions.iter().map(|action| game.step(*action).reward).collect();
            (rewards, game.frame().to_vec())
        };
        let mut used = begun(Controls::Four, 3);
        used.step(1);
        let first = run(&mut used, seed);
        prop_assert_eq!(&run(&mut Catch::new(Controls::Four), seed), &first);
    }
}
