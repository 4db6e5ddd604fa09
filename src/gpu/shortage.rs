//! Out of GPU memory: detects it in texts of device runtimes, and formats the message for the user.

use std::fmt;

/// How ledger's own messages about it begin.
const OURS: &str = "out of GPU memory";
/// Messages of other programs: PyTorch, CUDA's runtime and driver, XLA.
const OTHERS: [&str; 4] =
    ["CUDA out of memory", "OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED: Out of memory"];
/// The texts before the size of an allocation in CubeCL's messages.
const BEFORE_SIZE: [&str; 3] =
    ["failed to reserve ", "out of device memory allocating ", "can't allocate buffer of size: "];

/// The phases that belong to a step.
const OF_STEPS: [&str; 5] = ["data", "forward", "backward", "all_reduce", "optimizer"];

/// Whether a text reports that GPU memory ran out.
pub fn is_out_of_memory(text: &str) -> bool {
    text.contains(OURS) || OTHERS.iter().any(|known| text.contains(known)) || needed_bytes(text).is_some()
}

/// Returns the size in bytes of the failed allocation from a CubeCL message, or `None` for other messages.
pub fn needed_bytes(text: &str) -> Option<u64> {
    BEFORE_SIZE.iter().find_map(|before| {
        let (_, rest) = text.split_once(before)?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    })
}

/// An allocation of GPU memory that failed in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage<'a> {
    /// The size of the allocation that failed.
    pub needed_bytes: u64,
    /// The phase and its number (for phases of a step: the step), or `None` if unknown.
    pub during: Option<(&'a str, u64)>,
    /// Free and total bytes of the GPU, or `None` if the driver does not report them.
    pub memory: Option<(u64, u64)>,
    /// Bytes of the GPU in use before the first step, and the samples per step, or `None` before the first step.
    pub before: Option<(u64, u64)>,
}

impl Shortage<'_> {
    /// Returns free and total bytes, or `None` if the runtime has freed enough memory since the allocation failed.
    fn memory_when_full(&self) -> Option<(u64, u64)> {
        self.memory.filter(|(free, _)| *free < self.needed_bytes)
    }

    /// Returns the largest batch that may fit, or `None` without figures or if it is not smaller. It scales the batch
    /// by the memory that the step used plus the failed allocation. As the step was unfinished, it needs at least that
    /// much.
    pub fn largest_batch(&self) -> Option<u64> {
        let ((free, total), (before, batch)) = (self.memory_when_full()?, self.before?);
        let used = total.checked_sub(free)?;
        let of_step = used.checked_add(self.needed_bytes)?.checked_sub(before)?;
        let room = u128::from(total.checked_sub(before)?);
        let largest = (room * u128::from(batch)).checked_div(u128::from(of_step))?;
        u64::try_from(largest).ok().filter(|largest| (1..batch).contains(largest))
    }
}

impl fmt::Display for Shortage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OURS)?;
        match self.during {
            Some((phase, step)) if OF_STEPS.contains(&phase) => write!(f, " in {phase} of step {step}")?,
            Some((phase, _)) => write!(f, " in {phase}")?,
            None => {}
        }
        write!(f, ": {} GiB more were needed", gib(self.needed_bytes))?;
        if let Some((free, total)) = self.memory_when_full() {
            write!(f, ", {} of {} GiB free", gib(free), gib(total))?;
        }
        match self.largest_batch() {
            Some(largest) => write!(f, " (largest batch that may fit, by estimate: {largest})"),
            None => Ok(()),
        }
    }
}

/// Formats bytes as GiB: whole from 10 GiB on, otherwise with up to two decimals.
fn gib(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    if bytes >= 10 * GIB {
        return ((bytes + GIB / 2) / GIB).to_string();
    }
    let hundredths = (u128::from(bytes) * 100 + u128::from(GIB / 2)) / u128::from(GIB);
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    /// As CubeCL 0.11.0-pre.3 logs it.
    const PANIC: &str = "cubecl_common::device::handle::channel::task: CallError(task panicked on device runner thread: failed to reserve \
                         51539607552 bytes of device memory: out of device memory allocating 51539607552 bytes\n)";

    #[test]
    fn needed_bytes_are_read_from_a_panic_of_the_runtime() {
        assert_eq!(needed_bytes(PANIC), Some(48 * GIB));
        assert_eq!(needed_bytes("can't allocate buffer of size: 7\n"), Some(7));
        assert_eq!(needed_bytes("failed to reserve the device"), None);
        assert!(is_out_of_memory(PANIC) && !is_out_of_memory("CallError(task panicked: a kernel was not found)"));
        assert!(is_out_of_memory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 GiB."));
    }

    #[test]
    fn the_message_names_phase_step_memory_and_the_largest_batch() {
        let all = Shortage {
            needed_bytes: 48 * GIB,
            during: Some(("forward", 1)),
            memory: Some((12 * GIB, 140 * GIB)),
            before: Some((2 * GIB, 4096)),
        };
        // 138 GiB are available for steps; 4096 samples need at least 174 GiB.
        assert_eq!(
            all.to_string(),
            "out of GPU memory in forward of step 1: 48 GiB more were needed, 12 of 140 GiB free (largest batch that may fit, by estimate: 3248)"
        );
        let text = |one: Shortage<'_>| one.to_string();
        let given_back = Shortage { memory: Some((101 * GIB, 140 * GIB)), ..all };
        assert_eq!(text(given_back), "out of GPU memory in forward of step 1: 48 GiB more were needed");
        let unknown = Shortage { memory: None, ..all };
        assert_eq!(text(unknown), "out of GPU memory in forward of step 1: 48 GiB more were needed");
        let little = (GIB / 8, 140 * GIB);
        let elsewhere =
            Shortage { during: Some(("eval", 3)), before: None, needed_bytes: GIB / 4, memory: Some(little) };
        assert_eq!(text(elsewhere), "out of GPU memory in eval: 0.25 GiB more were needed, 0.13 of 140 GiB free");
        let shared = Shortage { before: Some((141 * GIB, 4096)), during: None, ..all };
        assert_eq!(shared.largest_batch(), None, "the figures contradict each other");
        assert!(is_out_of_memory(&text(all)));
    }
}
