//! An optimiser step over all parameters at once.

use super::compile::Program;
use super::run::{Argument, Launcher, pair, queue};
use super::{count, own, owned, ready, room, same_device, single, tensor};
use crate::cuda::{Cube, Fault};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use cubecl::server::Handle;

/// As in the kernel: parameters per launch, words per parameter, values per block.
const ENTRIES: usize = 48;
const WORDS: usize = 9;
const CHUNK: u32 = 8192;
const THREADS: u32 = 256;

/// The rule of a step, with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// p ← p − g·rate.
    Sgd {
        /// The learning rate.
        rate: f64,
    },
    /// b ← b·momentum + g, p ← p − b·rate.
    Momentum {
        /// The learning rate.
        rate: f64,
        /// The factor with which b decays.
        momentum: f64,
    },
    /// m ← m + (g − m)·keep1, v ← v·beta2 + g²·keep2, p ← p − m/(√v/root + epsilon)·rate.
    Adam {
        /// The learning rate over 1 − β₁ᵗ.
        rate: f64,
        /// 1 − β₁.
        keep1: f64,
        /// β₂.
        beta2: f64,
        /// 1 − β₂.
        keep2: f64,
        /// √(1 − β₂ᵗ).
        root: f64,
        /// ε.
        epsilon: f64,
    },
}

/// The weight decay before the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// Nothing.
    None,
    /// The parameter times this factor is added to the gradient.
    Add(f64),
    /// The parameter is multiplied by this factor.
    Shrink(f64),
}

/// The tensors that a step reads or changes, one entry per parameter in each list. A rule uses the state tensors that
/// it needs and leaves the others unchanged.
pub struct State {
    /// The parameters.
    pub parameters: Vec<Tensor<1>>,
    /// Their gradients.
    pub gradients: Vec<Tensor<1>>,
    /// The optimiser state: momentum's b, or Adam's m and v.
    pub memory: Vec<[Tensor<1>; 2]>,
}

/// The parameters and optimiser state after a step.
pub type Updated = (Vec<Tensor<1>>, Vec<[Tensor<1>; 2]>);

impl Step {
    /// Returns how many of the state tensors the rule reads and changes.
    fn remembers(self) -> usize {
        match self {
            Self::Sgd { .. } => 0,
            Self::Momentum { .. } => 1,
            Self::Adam { .. } => 2,
        }
    }

    /// Returns the kernel's constants, which follow the rule's number and the number of parameters.
    fn constants(self) -> [f64; 6] {
        match self {
            Self::Sgd { rate } => [rate, 0.0, 0.0, 0.0, 1.0, 0.0],
            Self::Momentum { rate, momentum } => [rate, momentum, 0.0, 0.0, 1.0, 0.0],
            Self::Adam { rate, keep1, beta2, keep2, root, epsilon } => [rate, keep1, beta2, keep2, root, epsilon],
        }
    }
}

/// Returns a closure that updates every parameter by `factor` times its gradient, in float32 and by the rule's formula,
/// rounding after each operation. It updates in place if a tensor's memory is not shared. `None` if the kernels cannot
/// run.
pub fn update(
    step: Step,
    decays: &[Decay],
    factor: f32,
    state: &State,
) -> Option<impl FnOnce(State) -> Updated + use<>> {
    let decays = decays.to_vec();
    fits(&decays, step.remembers(), state).then_some(move |state: State| updated(step, &decays, factor, state))
}

fn updated(step: Step, decays: &[Decay], factor: f32, state: State) -> Updated {
    let remembers = step.remembers();
    let State { parameters, gradients, memory } = state;
    let (mut inputs, mut rests) = (Vec::with_capacity(memory.len() * (2 + remembers)), Vec::new());
    for ((parameter, gradient), memory) in parameters.into_iter().zip(gradients).zip(memory) {
        let mut of = [parameter, gradient].into_iter().chain(memory);
        inputs.extend(of.by_ref().take(2 + remembers).map(owned));
        // The state tensors that the step does not use.
        rests.push(of.collect::<Vec<Tensor<1>>>());
    }
    let mut made = launch(step, decays, factor, inputs).into_iter().map(tensor);
    let (mut parameters, mut memory) = (Vec::with_capacity(rests.len()), Vec::with_capacity(rests.len()));
    for rest in rests {
        let mut of: Vec<Tensor<1>> = made.by_ref().take(1 + remembers).chain(rest).collect();
        match (of.pop(), of.pop(), of.pop()) {
            (Some(second), Some(first), Some(parameter)) => {
                parameters.push(parameter);
                memory.push([first, second]);
            }
            _ => unreachable!("a parameter and its memory"),
        }
    }
    (parameters, memory)
}

/// Returns the tensors that a step uses, parameter by parameter.
fn tensors(state: &State, remembers: usize) -> impl Iterator<Item = &Tensor<1>> {
    state.parameters.iter().zip(&state.gradients).zip(&state.memory).flat_map(move |((parameter, gradient), memory)| {
        [parameter, gradient].into_iter().chain(memory.iter().take(remembers))
    })
}

fn fits(decays: &[Decay], remembers: usize, state: &State) -> bool {
    let Some(first) = state.parameters.first() else { return false };
    let many = state.parameters.len();
    if [decays.len(), state.gradients.len(), state.memory.len()] != [many; 3] {
        return false;
    }
    let lengths = state.parameters.iter().flat_map(|parameter| std::iter::repeat_n(parameter.dims(), 2 + remembers));
    let fit = |(tensor, length): (&Tensor<1>, [usize; 1])| {
        // A launch counts values and blocks with 32 bits.
        let counted = length[0] > 0 && count(length[0]).is_some();
        counted && tensor.dims() == length && tensor.dtype() == DType::F32 && same_device(tensor, first)
    };
    tensors(state, remembers).zip(lengths).all(fit) && ready(Program::Update, first)
}

/// The update of a parameter, with the indices of its tensors among the buffers.
struct Entry {
    len: u32,
    decay: Decay,
    /// The parameter, its new values, the gradient, the first state tensor, its new values, the second state tensor,
    /// its new values.
    places: [Option<usize>; 7],
}

fn launch(step: Step, decays: &[Decay], factor: f32, inputs: Vec<Cube>) -> Vec<Cube> {
    let per = 2 + step.remembers();
    let inputs: Vec<Cube> = inputs.into_iter().map(into_contiguous).collect();
    let mut made: Vec<Cube> = Vec::with_capacity(inputs.len());
    let mut entries = Vec::with_capacity(decays.len());
    let mut buffers: Vec<&Handle> = Vec::with_capacity(2 * inputs.len());
    let mut news: Vec<Handle> = Vec::with_capacity(inputs.len());
    for (of, decay) in inputs.chunks(per).zip(decays) {
        let mut places = [None; 7];
        for (number, input) in of.iter().enumerate() {
            // The gradient is only read.
            let place = [0, 2, 3, 5][number];
            places[place] = Some(buffers.len());
            buffers.push(&input.handle);
            if number != 1 {
                let in_place = own(input);
                let new = room(input);
                let after = [1, 2, 4, 6][number];
                places[after] = if in_place { places[place] } else { Some(inputs.len() + news.len()) };
                if !in_place {
                    news.push(new.handle.clone());
                }
                made.push(new);
            }
        }
        let len = of.first().and_then(|parameter| count(parameter.meta.shape().num_elements())).unwrap_or(0);
        entries.push(Entry { len, decay: *decay, places });
    }
    buffers.extend(&news);
    if let Some(like) = inputs.first() {
        queue(Program::Update, like, &buffers, move |places, card| {
            entries.chunks(ENTRIES).try_for_each(|entries| some(step, factor, entries, places, card))
        });
    }
    made
}

/// Launches the kernel for as many parameters as its table can take.
fn some(step: Step, factor: f32, entries: &[Entry], places: &[u64], card: &Launcher) -> Result<(), Fault> {
    let mut table = [0_u64; ENTRIES * WORDS];
    let mut blocks = 0_u32;
    for (entry, words) in entries.iter().zip(table.chunks_exact_mut(WORDS)) {
        for (word, place) in words.iter_mut().zip(entry.places) {
            *word = place.and_then(|place| places.get(place).copied()).unwrap_or(0);
        }
        words[7] = pair(entry.len, blocks);
        words[8] = match entry.decay {
            Decay::None => 0,
            Decay::Add(amount) => pair(single(amount).to_bits(), 1),
            Decay::Shrink(amount) => pair(single(amount).to_bits(), 2),
        };
        blocks += entry.len.div_ceil(CHUNK);
    }
    let rule = count(step.remembers()).unwrap_or(0);
    let [rate, keep1, beta2, keep2, root, epsilon] = step.constants().map(|value| single(value).to_bits());
    let constants = [
        pair(rule, count(entries.len()).unwrap_or(0)),
        pair(factor.to_bits(), rate),
        pair(keep1, beta2),
        pair(keep2, root),
        pair(epsilon, 0),
    ];
    card.launch(c"update", [blocks, 1], [THREADS, 1], &[Argument::Words(&table), Argument::Words(&constants)])
}
