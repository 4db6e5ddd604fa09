//! Reinforcement learning without the network: environments, what an agent remembers, and what it learns from.

pub mod dqn;
pub mod environment;
pub mod replay;
