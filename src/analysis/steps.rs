//! Training steps, of which an attempt may have millions, in a few bytes each.

/// A training step as a worker reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Its number.
    pub step: u64,
    /// When it ended, in nanoseconds since the attempt's start.
    pub t_ns: u64,
    /// Its duration, if the worker reported it.
    pub duration_ns: Option<u64>,
}

/// The number of steps in a packed block.
const BLOCK: usize = 1024;

/// Training steps in the order in which they were reported.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Blocks of [`BLOCK`] steps, stored as differences.
    packed: Vec<Box<[u8]>>,
    /// The steps after the last whole block.
    rest: Vec<Timed>,
}

impl Steps {
    /// The number of steps.
    pub fn len(&self) -> usize {
        self.packed.len() * BLOCK + self.rest.len()
    }

    /// Whether there is no step.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of whole blocks, in bytes.
    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.packed.iter().map(|block| block.len()).sum()
    }

    /// Adds a step.
    pub fn push(&mut self, step: Timed) {
        self.rest.push(step);
        if self.rest.len() == BLOCK {
            self.packed.push(packed(&self.rest));
            self.rest.clear();
        }
    }

    /// Each step, forwards or backwards.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Timed> + Clone + '_ {
        self.packed.iter().flat_map(|block| unpacked(block)).chain(self.rest.iter().copied())
    }

    /// The first step.
    pub fn first(&self) -> Option<Timed> {
        self.iter().next()
    }

    /// The last step.
    pub fn last(&self) -> Option<Timed> {
        self.iter().next_back()
    }
}

impl FromIterator<Timed> for Steps {
    fn from_iter<I: IntoIterator<Item = Timed>>(steps: I) -> Self {
        let mut all = Self::default();
        steps.into_iter().for_each(|step| all.push(step));
        all
    }
}

/// The length that marks a missing value.
const MISSING: u8 = 15;

/// Packs steps: two bytes with the lengths of three differences for each step, followed by the differences.
fn packed(steps: &[Timed]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(steps.len() * 10);
    let mut before = [0; 3];
    for Timed { step, t_ns, duration_ns } in steps.iter().copied() {
        let head = bytes.len();
        bytes.extend_from_slice(&[0; 2]);
        let mut lengths = [MISSING; 3];
        for (at, value) in [Some(step), Some(t_ns), duration_ns].into_iter().enumerate() {
            let Some(value) = value else { continue };
            let word = zigzag(value.wrapping_sub(before[at])).to_le_bytes();
            let length = word.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.extend_from_slice(&word[..length]);
            lengths[at] = u8::try_from(length).unwrap_or(MISSING);
            before[at] = value;
        }
        bytes[head] = lengths[0] << 4 | lengths[1];
        bytes[head + 1] = lengths[2];
    }
    bytes.into_boxed_slice()
}

fn unpacked(mut bytes: &[u8]) -> std::vec::IntoIter<Timed> {
    let mut steps = Vec::with_capacity(BLOCK);
    let mut before = [0; 3];
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        bytes = rest;
        let mut values = [None; 3];
        for (at, length) in [head[0] >> 4, head[0] & 15, head[1]].into_iter().enumerate() {
            let Some((difference, rest)) = bytes.split_at_checked(usize::from(length)).filter(|_| length != MISSING)
            else {
                continue;
            };
            bytes = rest;
            let mut word = [0; 8];
            word[..difference.len()].copy_from_slice(difference);
            before[at] = unzigzag(u64::from_le_bytes(word)).wrapping_add(before[at]);
            values[at] = Some(before[at]);
        }
        let [step, t_ns, duration_ns] = values;
        steps.push(Timed { step: step.unwrap_or(0), t_ns: t_ns.unwrap_or(0), duration_ns });
    }
    steps.into_iter()
}

/// Maps small differences of both signs to numbers with leading zeros.
fn zigzag(difference: u64) -> u64 {
    let sign = difference >> 63;
    difference << 1 ^ sign.wrapping_neg()
}

fn unzigzag(code: u64) -> u64 {
    code >> 1 ^ (code & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_step_takes_ten_bytes_or_less() {
        let step = |step: u64| Timed {
            step,
            t_ns: step * 98_765_432 + step % 977,
            duration_ns: Some(98_000_000 + step % 977),
        };
        let steps: Steps = (1..=100_000).map(step).collect();
        assert!(steps.kept_bytes() <= 10 * 100_000, "{}", steps.kept_bytes());
    }

    fn any_word() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0..1000u64, Just(u64::MAX)]
    }

    proptest! {
        #[test]
        fn steps_come_back_in_both_directions(
            told in prop::collection::vec((any_word(), any_word(), prop::option::of(any_word())), 0..3000)
        ) {
            let told: Vec<Timed> =
                told.into_iter().map(|(step, t_ns, duration_ns)| Timed { step, t_ns, duration_ns }).collect();
            let steps: Steps = told.iter().copied().collect();
            prop_assert_eq!(steps.iter().collect::<Vec<_>>(), told.clone());
            prop_assert!(steps.iter().rev().eq(told.iter().rev().copied()));
            prop_assert_eq!((steps.first(), steps.last()), (told.first().copied(), told.last().copied()));
            prop_assert_eq!((steps.len(), steps.is_empty()), (told.len(), told.is_empty()));
        }
    }
}
