//! Deep Q-learning: an environment, a replay memory, a trained network, and a target network that follows it.

use super::inference::Inference;
use super::network::{Network, answer_taped, backward, leaves};
use super::replayed::{Passes, Replayed};
use super::{Gradients, Score, Step, Task};
use crate::TrainError;
use crate::fit::heartbeat::Heartbeat;
use crate::models::Input;
use crate::native::step_graph::Operands;
use crate::number::{real, real_len, single, wide};
use crate::parameters::ParamSpec;
use crate::rl::dqn::{Agent, Config, Q, mean, play};
use crate::rl::environment::{Environment, Item};
use crate::rl::replay::Batch;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use ledger_record::{Digest, Value};
use std::ops::Range;

/// Episodes of an evaluation.
const EPISODES: usize = 100;

/// A network and its environment.
pub struct RlTask<E: Environment> {
    network: Network,
    environment: E,
    agent: Agent<E>,
    rules: Rules,
    seed: u64,
    /// The parameters of the target network.
    target: Vec<Tensor<1>>,
    /// Replayed passes over a batch, and replayed choices of an action.
    learning: Replayed<Passes>,
    acting: Replayed<Tensor<2>>,
    inference: Inference<Input, Tensor<2>>,
}

/// The rules of learning.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How the agent acts and remembers.
    pub config: Config,
    /// Transitions of an epoch.
    pub epoch: usize,
    /// The weight of the trained parameters when the target parameters move.
    pub target_share: f64,
}

impl<E: Environment> RlTask<E> {
    /// A task before its first action.
    pub fn new(network: Network, environment: E, rules: Rules, seed: u64) -> Self {
        let agent = Agent::new(rules.config, seed, environment.clone());
        Self {
            network,
            environment,
            agent,
            rules,
            seed,
            target: Vec::new(),
            learning: Replayed::default(),
            acting: Replayed::default(),
            inference: Inference::default(),
        }
    }

    /// Whether the target moves by a fraction in every update.
    fn moves_always(&self) -> bool {
        self.rules.target_share < 1.0 && self.rules.config.target_every <= 1
    }

    /// Moves the target's parameters towards the trained ones, if that is due (all the way: Mnih et al. 2015; a
    /// fraction: Lillicrap et al., arXiv:1509.02971). Returns whether the replayed step must move them.
    fn follow(&mut self, parameters: &[Tensor<1>]) -> bool {
        let share = self.rules.target_share;
        if self.target.is_empty() || self.agent.target_due() && share == 1.0 {
            self.target = parameters.to_vec();
            return false;
        }
        if self.agent.target_due() && !self.moves_always() {
            follow(&mut self.target, parameters, share);
        }
        self.moves_always()
    }
}

/// Moves parameters by this fraction of the way to others.
fn follow(target: &mut [Tensor<1>], parameters: &[Tensor<1>], share: f64) {
    for (target, parameter) in target.iter_mut().zip(parameters) {
        *target = target.clone() * (1.0 - share) + parameter.clone() * share;
    }
}

/// A network that chooses actions.
struct Acting<'a> {
    network: &'a mut Network,
    parameters: &'a [Tensor<1>],
}

impl<T: Shown> Q<T> for Acting<'_> {
    type Error = TrainError;

    fn values(&mut self, observations: &[T], rows: usize) -> Result<Vec<f32>, TrainError> {
        let sent = T::sent(observations.to_vec(), rows, &self.network.place.device());
        read(self.network.answer(self.parameters, T::input(&sent, 0..observations.len() / rows), |_, answers| answers))
    }
}

/// A network that chooses actions in a training step.
struct ActingInStep<'a> {
    acting: Acting<'a>,
    step: &'a Step<'a>,
    replayed: &'a mut Replayed<Tensor<2>>,
}

impl<T: Shown> Q<T> for ActingInStep<'_> {
    type Error = TrainError;

    fn values(&mut self, observations: &[T], rows: usize) -> Result<Vec<f32>, TrainError> {
        let Acting { network, parameters } = &mut self.acting;
        let sent = T::sent(observations.to_vec(), rows, &network.place.device());
        // A replay cannot update running statistics.
        let may_replay = network.running.is_empty();
        let mut pass = |parameters: &[Tensor<1>], sent| {
            network.answer(parameters, T::input(&sent, 0..observations.len() / rows), |_, answers| answers)
        };
        read(if may_replay {
            self.replayed.answers(self.step, parameters, sent, pass)?
        } else {
            pass(parameters, sent)
        })
    }
}

/// Returns the values of actions, row by row.
fn read(values: Tensor<2>) -> Result<Vec<f32>, TrainError> {
    let [rows, actions] = values.dims();
    values
        .reshape([rows * actions])
        .try_into_vec_as()
        .map_err(|source| TrainError::read("the values of actions", source))
}

/// A network that chooses actions and sends a heartbeat before each.
struct Beating<'a, 'b> {
    acting: Acting<'a>,
    heartbeat: &'a mut Heartbeat<'b>,
}

impl<T: Shown> Q<T> for Beating<'_, '_> {
    type Error = TrainError;

    fn values(&mut self, observations: &[T], rows: usize) -> Result<Vec<f32>, TrainError> {
        self.heartbeat.beat(rows);
        self.acting.values(observations, rows)
    }
}

/// An item of a network's input.
pub trait Shown: Item {
    /// Frames on a device.
    type Sent: Operands;

    /// Copies the frames to the device. Each row has the same number of them.
    fn sent(frames: Vec<Self>, rows: usize, device: &Device) -> Self::Sent;

    /// The network's input: these items of each row (a range of whole frames).
    fn input(sent: &Self::Sent, items: Range<usize>) -> Input;
}

/// The numbers of a state.
impl Shown for f32 {
    type Sent = Tensor<2>;

    fn sent(frames: Vec<Self>, rows: usize, device: &Device) -> Tensor<2> {
        let width = frames.len() / rows.max(1);
        Tensor::from_data(TensorData::new(frames, [rows, width]), device)
    }

    fn input(sent: &Tensor<2>, items: Range<usize>) -> Input {
        Input::Rows(sent.clone().narrow(1, items.start, items.len()))
    }
}

/// Frames of 84 x 84 grey values. They are sent as bytes; a network's input has values from 0 to 1.
impl Shown for u8 {
    type Sent = Tensor<4, Int>;

    fn sent(frames: Vec<Self>, rows: usize, device: &Device) -> Tensor<4, Int> {
        let each = frames.len() / (rows * FRAME).max(1);
        Tensor::from_data(TensorData::new(frames, [rows, each, SIDE, SIDE]), (device, DType::U8))
    }

    fn input(sent: &Tensor<4, Int>, items: Range<usize>) -> Input {
        let frames = sent.clone().narrow(1, items.start / FRAME, items.len() / FRAME);
        Input::Images(frames.cast(FloatDType::F32) / 255.0)
    }
}

/// Rows and columns of a frame of grey values, and its number of items.
const SIDE: usize = 84;
const FRAME: usize = SIDE * SIDE;

/// Returns the reward, whether the episode continues (1, else 0) and the action of each row of a batch, [rows, 3].
fn outcomes<T>(batch: &Batch<T>, device: &Device) -> Tensor<2> {
    let of_row = |row: usize| [batch.rewards[row], batch.continues[row], single(f64::from(batch.actions[row]))];
    Tensor::from_data(TensorData::new((0..batch.rows).flat_map(of_row).collect(), [batch.rows, 3]), device)
}

impl<E: Environment<Item: Shown>> Task for RlTask<E> {
    fn param_specs(&self) -> &[ParamSpec] {
        &self.network.param_specs
    }

    fn samples(&self) -> usize {
        self.rules.epoch
    }

    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError> {
        let moves = self.follow(parameters);
        let (share, same_each_time) = (self.rules.target_share, moves == self.moves_always());
        let (seen, frame) = (self.environment.observation_len(), self.environment.frame_len());
        let inner = step.inner;
        let Self { network, learning, acting, agent, target, .. } = self;
        let (inputs, rows) = inner.phase("data", || {
            let mut acting = ActingInStep { acting: Acting { network, parameters }, step, replayed: acting };
            let batch = agent.next_batch(&mut acting, &mut Vec::new())?;
            let batch = batch.ok_or(TrainError::Gradients { found: 0, expected: parameters.len() })?;
            let (device, rows) = (network.place.device(), batch.rows);
            let outcomes = outcomes(&batch, &device);
            Ok(((E::Item::sent(batch.frames, rows, &device), outcomes), rows))
        })?;
        let has_statistics = !network.running.is_empty();
        let (seeds, discount) = ([self.seed, step.number], self.rules.config.discount);
        let reads = (inputs, Some(rows));
        learning.gradients(step, (parameters, target), reads, |parameters, target, (frames, outcomes)| {
            let leaves = leaves(parameters);
            let (ctx, loss) = inner.phase("forward", || {
                if moves {
                    follow(target, parameters, share);
                }
                let [rewards, continues, actions] = [0, 1, 2].map(|column| outcomes.clone().narrow(1, column, 1));
                let next = E::Item::input(&frames, frame..frame + seen);
                let goals = goals(network.answer(target, next, |_, values| values), rewards, continues, discount);
                let (model, mut ctx) = network.training(&leaves, seeds);
                let values = answer_taped(model, &mut ctx, E::Item::input(&frames, 0..seen));
                let loss = huber(values, ctx.indices(actions.int()), ctx.constant(goals));
                Ok((ctx, loss))
            })?;
            let repeats = ctx.repeats() && !has_statistics && same_each_time;
            inner.phase("backward", || Ok((backward(ctx, loss, step, rows), repeats)))
        })
    }

    fn evaluate(
        &mut self,
        parameters: &[Tensor<1>],
        heartbeat: &mut Heartbeat<'_>,
    ) -> Result<Option<Score>, TrainError> {
        let acting = Acting { network: &mut self.network, parameters };
        let mut acting = Beating { acting, heartbeat };
        let scores = play(&self.environment, self.seed, EPISODES, &mut acting)?;
        Ok(Some(vec![("eval_mean_return", mean(&scores))]))
    }

    fn inference_rows(&self) -> Option<usize> {
        Some(self.rules.config.batch)
    }

    // All states take the same time.
    fn prepare_inference(&mut self, n: u64, rows: usize) -> Result<(), TrainError> {
        if n == 0 {
            (self.learning, self.acting, self.inference) = Default::default();
        }
        let seen = self.environment.observation_len();
        let place = &self.network.place;
        let sent = E::Item::sent(vec![E::Item::default(); rows * seen], rows, &place.device());
        self.inference.prepare(E::Item::input(&sent, 0..seen));
        Ok(place.sync()?)
    }

    fn infer(&mut self, parameters: &[Tensor<1>], _: &Heartbeat<'_>, may_replay: bool) -> Result<(), TrainError> {
        let Self { network, inference, .. } = self;
        inference.answer(network, parameters, may_replay, |model, ctx, input| model.forward(ctx, input)).map(drop)
    }

    fn inference_graph(&self) -> Option<&str> {
        self.inference.graph()
    }

    fn digest(&self) -> Digest {
        // The environment and its episodes identify the data. Its observations depend on the actions.
        let shape = [self.environment.actions(), self.environment.frame_len(), self.environment.stack()];
        let pieces: Vec<[u8; 8]> =
            shape.iter().map(|size| wide(*size).to_le_bytes()).chain([self.seed.to_le_bytes()]).collect();
        Digest::of_pieces("ledger environment v1", &pieces.iter().map(<[u8; 8]>::as_slice).collect::<Vec<_>>())
    }

    fn facts(&self) -> Vec<(&'static str, Value)> {
        vec![("eval_episodes", EPISODES.into()), ("best_possible_return", self.environment.best_return().into())]
    }

    fn static_metrics(&self) -> Vec<(&'static str, f64, &'static str)> {
        let forward = real(self.network.model.forward_flops(1));
        vec![
            // The pass through the target network has no backward pass.
            ("flops_per_sample", 4.0 * forward, "FLOP"),
        ]
    }
}

/// Returns the target of each row, shape [rows, 1]: r + γ · max Q'(s', a), or r if the episode terminated. If a value
/// of the next observation is NaN, so is the target.
fn goals(next: Tensor<2>, rewards: Tensor<2>, continues: Tensor<2>, discount: f32) -> Tensor<2> {
    let worth = crate::precision::exact(next).max_dim(1);
    // A product with 0 would be wrong: the value of a terminal state may be infinite in a diverged network.
    (worth * discount + rewards.clone()).mask_where(continues.lower_equal_elem(0.0), rewards)
}

/// Returns the mean Huber loss over the rows, shape [1]: half the squared error up to 1 and linear beyond, so that the
/// gradient of an error is the error clipped to ±1 (Mnih et al. 2015, Methods).
fn huber(values: Tensor<2>, actions: Tensor<2, Int>, goals: Tensor<2>) -> Tensor<1> {
    let rows = values.dims()[0];
    let error = (crate::precision::exact(values).gather(1, actions) - goals).abs();
    let squared = error.clone().clamp_max(1.0);
    let loss = squared.clone() * squared.clone() * 0.5 + (error - squared);
    loss.reshape([1, rows]).sum_dim(1).reshape([1]) * (1.0 / real_len(rows.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward_context::int_tensor;

    #[test]
    fn frames_become_values_from_0_to_1() {
        let mut bytes = vec![0; 2 * 4 * 84 * 84];
        bytes[84 * 84 + 5] = 51;
        bytes[4 * 84 * 84] = 255;
        let sent = u8::sent(bytes.clone(), 2, &Device::flex());
        let Input::Images(shown) = u8::input(&sent, 0..4 * FRAME) else { panic!("frames are images") };
        assert_eq!(shown.dims(), [2, 4, 84, 84]);
        let shown: Vec<f32> = shown.try_into_vec_as().expect("readable");
        assert!(shown.iter().zip(&bytes).all(|(shown, byte)| *shown == f32::from(*byte) / 255.0));
    }

    #[test]
    fn an_observation_and_the_next_one_are_parts_of_the_sent_frames() {
        let device = Device::flex();
        let sent = f32::sent((0..16_u8).map(f32::from).collect(), 2, &device);
        let part = |items| match f32::input(&sent, items) {
            Input::Rows(rows) => rows.reshape([8]).try_into_vec_as::<f32>().expect("readable"),
            _ => panic!("numbers are rows"),
        };
        assert_eq!(part(0..4), [0.0, 1.0, 2.0, 3.0, 8.0, 9.0, 10.0, 11.0]);
        assert_eq!(part(4..8), [4.0, 5.0, 6.0, 7.0, 12.0, 13.0, 14.0, 15.0]);
        // Five frames, each with its own grey value.
        let frames: Vec<u8> = (0..5).flat_map(|frame: u8| [51 * frame; FRAME]).collect();
        let sent = u8::sent(frames, 1, &device);
        for (first, expected) in [(0, [0.0, 0.2, 0.4, 0.6]), (1, [0.2, 0.4, 0.6, 0.8])] {
            let Input::Images(shown) = u8::input(&sent, first * FRAME..(first + 4) * FRAME) else {
                panic!("frames are images")
            };
            let means = shown.reshape([4, FRAME]).mean_dim(1).reshape([4]).try_into_vec_as::<f32>().expect("readable");
            assert!(means.iter().zip(expected).all(|(mean, expected)| (mean - expected).abs() < 1e-6), "{means:?}");
        }
        let batch = Batch::<u8> {
            rows: 2,
            frames: Vec::new(),
            actions: vec![3, 0],
            rewards: vec![0.5, -1.0],
            continues: vec![1.0, 0.0],
        };
        let told = outcomes(&batch, &device).reshape([6]).try_into_vec_as::<f32>().expect("readable");
        assert_eq!(told, [0.5, 1.0, 3.0, -1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_target_includes_the_next_value_only_if_the_episode_continues() {
        let device = Device::flex();
        let column = |values: [f32; 3]| Tensor::<2>::from_data(TensorData::new(values.to_vec(), [3, 1]), &device);
        let undefined = goals(
            Tensor::from_data([[f32::NAN, 1.0], [1.0, f32::NAN], [f32::NAN, 1.0]], &device),
            column([1.0; 3]),
            column([1.0, 1.0, 0.0]),
            0.99,
        );
        let undefined: Vec<f32> = undefined.reshape([3]).try_into_vec_as().expect("readable");
        assert!(undefined[0].is_nan() && undefined[1].is_nan() && undefined[2] == 1.0);
        let next = [[0.7_f32, 0.3], [f32::INFINITY, 1.0], [-3.0, -2.5]];
        let goals = goals(Tensor::from_data(next, &device), column([1.0, 2.0, -0.1]), column([1.0, 0.0, 1.0]), 0.99);
        let goals: Vec<f32> = goals.reshape([3]).try_into_vec_as().expect("readable");
        assert_eq!(goals, [1.0 + 0.99 * 0.7, 2.0, -0.1 + 0.99 * -2.5]);
    }

    #[test]
    fn the_loss_is_the_papers_and_only_of_the_chosen_actions() {
        let device = Device::flex();
        let values = [[0.5_f32, 9.0, 9.0], [9.0, -2.0, 9.0], [9.0, 9.0, 4.0]];
        let goals = [0.25_f32, 1.5, 0.0];
        let leaf = Tensor::<2>::from_inner(Tensor::from_data(values, &device)).require_grad();
        let actions = int_tensor(&[0, 1, 2], [3, 1], &device);
        let goals_there = Tensor::from_inner(Tensor::from_data(TensorData::new(goals.to_vec(), [3, 1]), &device));
        let loss = huber(leaf.clone(), actions, goals_there);
        let mut tape = loss.backward();
        let of_each: Vec<(f32, f32)> = (0..3).map(|row| crate::rl::dqn::huber(values[row][row] - goals[row])).collect();
        let mean = of_each.iter().map(|(loss, _)| loss).sum::<f32>() / 3.0;
        assert!((loss.inner().try_into_scalar::<f32>().expect("readable") - mean).abs() < 1e-6);
        let slopes: Vec<f32> =
            leaf.grad_remove(&mut tape).expect("on the tape").reshape([9]).try_into_vec_as().expect("readable");
        for (place, slope) in slopes.iter().enumerate() {
            let expected = if place % 4 == 0 { of_each[place / 4].1 / 3.0 } else { 0.0 };
            assert!((slope - expected).abs() < 1e-6, "{slopes:?}");
        }
    }
}
