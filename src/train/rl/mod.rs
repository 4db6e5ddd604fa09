//! Reinforcement learning without the network: environments, replay memory and deep Q-learning.

pub mod dqn;
pub mod environment;
pub mod replay;
