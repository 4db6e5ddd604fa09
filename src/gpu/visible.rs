//! The GPUs that CUDA would use, by the rules of `CUDA_VISIBLE_DEVICES`.

use super::{GpuError, GpuInfo, Gpus};
use std::collections::BTreeMap;

/// Why the GPUs that CUDA would use cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum UsableError {
    /// NVML, or one of the GPUs, does not answer.
    #[error(transparent)]
    Silent(#[from] GpuError),
    /// The list of visible devices is invalid.
    #[error(transparent)]
    Visible(#[from] VisibleError),
}

/// Returns the GPUs of this machine that CUDA would use, by rank, as [`visible`] chooses them. Hidden GPUs need not
/// answer.
///
/// # Errors
/// As [`visible`], and if a chosen GPU does not answer.
pub fn usable(gpus: &Gpus, cuda_visible_devices: Option<&str>) -> Result<Vec<GpuInfo>, UsableError> {
    let (devices, mut silent) = in_place(gpus.devices()?);
    let chosen = visible(&devices, cuda_visible_devices)?;
    match chosen.iter().find_map(|gpu| silent.remove(&gpu.index)) {
        Some(error) => Err(error.into()),
        None => Ok(chosen),
    }
}

/// Replaces each GPU that does not answer by a nameless one, because CUDA counts it too. Also returns their errors by
/// index.
pub(super) fn in_place(answers: Vec<Result<GpuInfo, GpuError>>) -> (Vec<GpuInfo>, BTreeMap<u32, GpuError>) {
    let mut silent = BTreeMap::new();
    let placed = (0..).zip(answers).map(|(index, answer)| {
        answer.unwrap_or_else(|error| {
            silent.insert(index, error);
            GpuInfo { index, ..GpuInfo::default() }
        })
    });
    (placed.collect(), silent)
}

/// Why a list of visible devices is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VisibleError {
    /// The variable names a MIG instance.
    #[error(
        "CUDA_VISIBLE_DEVICES names the MIG instance `{entry}` (part of a GPU cannot be measured as a device of its own; name whole GPUs, or turn MIG off)"
    )]
    MigEntry {
        /// The entry.
        entry: String,
    },
    /// The variable names one GPU twice.
    #[error(
        "CUDA_VISIBLE_DEVICES names GPU {index} twice, by `{entry}` the second time (CUDA refuses such a list as an invalid device; name each GPU once)"
    )]
    Repeated {
        /// Its index in NVML's order.
        index: u32,
        /// The second entry that names it.
        entry: String,
    },
    /// A visible GPU is split into MIG instances.
    #[error(
        "GPU {index} is split into MIG instances (part of a GPU cannot be measured as a device of its own; leave it out of CUDA_VISIBLE_DEVICES, or turn MIG off)"
    )]
    Split {
        /// Its index in NVML's order.
        index: u32,
    },
}

/// Returns the GPUs that CUDA would use, by rank, given all GPUs and the value of `CUDA_VISIBLE_DEVICES`.
///
/// The rules are those of the CUDA C++ Programming Guide, section "CUDA Environment Variables":
/// - if it is unset, all are used; if it is empty, none;
/// - entries are separated by commas: indices, or `GPU-` and a prefix of a UUID that fits one GPU only;
/// - the order of the entries is the order of the ranks;
/// - the list ends before its first invalid entry: `-1`, an index too large, or a UUID that fits no GPU or several.
///
/// The guide leaves some cases open. Driver 580 behaves as follows:
/// - the first entry decides between indices and UUIDs, and an entry of the other type is invalid;
/// - an index may follow spaces and a plus, and any text may follow it (`1x` is 1); a UUID has to stand alone;
/// - a list that names a GPU twice before its end makes CUDA fail.
///
/// `devices` must be in CUDA's order. That is NVML's order with `CUDA_DEVICE_ORDER=PCI_BUS_ID`, or if all GPUs are of
/// the same model.
///
/// # Errors
/// If the list names a MIG instance, a GPU twice, or a GPU that is split into MIG instances.
pub fn visible(devices: &[GpuInfo], cuda_visible_devices: Option<&str>) -> Result<Vec<GpuInfo>, VisibleError> {
    let chosen = match cuda_visible_devices {
        None => devices.iter().collect(),
        Some(list) => named(devices, list)?,
    };
    match chosen.iter().find(|device| device.mig) {
        Some(device) => Err(VisibleError::Split { index: device.index }),
        None => Ok(chosen.into_iter().cloned().collect()),
    }
}

fn named<'a>(devices: &'a [GpuInfo], list: &str) -> Result<Vec<&'a GpuInfo>, VisibleError> {
    if list.starts_with("MIG-") {
        return Err(VisibleError::MigEntry { entry: list.split(',').next().unwrap_or(list).to_owned() });
    }
    let by_uuid = list.starts_with("GPU-");
    let mut chosen: Vec<&GpuInfo> = Vec::new();
    for entry in list.split(',') {
        let found = if by_uuid { of_uuid(devices, entry) } else { leading_number(entry).and_then(|i| devices.get(i)) };
        match found {
            Some(device) if chosen.contains(&device) => {
                return Err(VisibleError::Repeated { index: device.index, entry: entry.to_owned() });
            }
            Some(device) => chosen.push(device),
            None => break,
        }
    }
    Ok(chosen)
}

fn of_uuid<'a>(devices: &'a [GpuInfo], entry: &str) -> Option<&'a GpuInfo> {
    let mut fitting = devices.iter().filter(|device| entry.starts_with("GPU-") && device.uuid.starts_with(entry));
    fitting.next().filter(|_| fitting.next().is_none())
}

/// Parses as C's `strtoul`, but returns `None` for text without digits or with a minus.
fn leading_number(entry: &str) -> Option<usize> {
    let entry = entry.trim_start();
    let entry = entry.strip_prefix('+').unwrap_or(entry);
    let digits = entry.bytes().take_while(u8::is_ascii_digit).count();
    entry[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUIDS: [&str; 4] = ["GPU-aa11", "GPU-aa22", "GPU-bb11", "GPU-cc11"];

    fn gpus() -> Vec<GpuInfo> {
        let gpu = |(index, uuid): (u32, &str)| GpuInfo {
            index,
            name: "NVIDIA H200".into(),
            uuid: uuid.into(),
            memory_total_bytes: Some(1 << 37),
            ..GpuInfo::default()
        };
        (0..).zip(UUIDS).map(gpu).collect()
    }

    fn indices(list: Option<&str>) -> Vec<u32> {
        visible(&gpus(), list).unwrap().iter().map(|gpu| gpu.index).collect()
    }

    #[test]
    fn unset_is_all_and_empty_is_none() {
        assert_eq!(indices(None), [0, 1, 2, 3]);
        assert!(indices(Some("")).is_empty());
        assert_eq!(visible(&[], None), Ok(vec![]));
        assert_eq!(visible(&[], Some("0")), Ok(vec![]));
    }

    #[test]
    fn entries_order_the_ranks_and_the_first_invalid_one_ends_the_list() {
        let cases: [(&str, &[u32]); 27] = [
            ("0", &[0]),
            ("3,1", &[3, 1]),
            (" 2 , 0", &[2, 0]),
            ("0,-1,1", &[0]),
            ("-1", &[]),
            ("4,0", &[]),
            ("1,4,0", &[1]),
            ("1,4,1", &[1]),
            ("1,,2", &[1]),
            (",0", &[]),
            ("1,x,2", &[1]),
            ("1gpu2,2ampere", &[1, 2]),
            ("0.5", &[0]),
            ("00", &[0]),
            ("+1", &[1]),
            ("99999999999999999999999", &[]),
            ("NoDevFiles", &[]),
            ("0,MIG-1", &[0]),
            ("GPU-bb", &[2]),
            ("GPU-cc11,GPU-aa1", &[3, 0]),
            ("GPU-bb,GPU-aa", &[2]),
            ("GPU-bb,GPU-dd,GPU-cc", &[2]),
            ("GPU-,GPU-cc", &[]),
            (" GPU-bb", &[]),
            ("GPU-bb, GPU-cc", &[2]),
            ("0,GPU-bb", &[0]),
            ("GPU-bb,0", &[2]),
        ];
        for (list, expected) in cases {
            assert_eq!(indices(Some(list)), expected, "{list}");
        }
    }

    #[test]
    fn a_gpu_named_twice_is_an_error_as_it_is_to_cuda() {
        for (list, index, entry) in [("1,2,1", 1, "1"), ("0,00,5", 0, "00"), ("GPU-bb,GPU-bb11", 2, "GPU-bb11")] {
            let expected = VisibleError::Repeated { index, entry: entry.to_owned() };
            assert_eq!(visible(&gpus(), Some(list)), Err(expected), "{list}");
        }
    }

    #[test]
    fn mig_instances_are_errors() {
        let entry = "MIG-GPU-aa11/1/0".to_owned();
        assert_eq!(visible(&gpus(), Some(&format!("{entry},0"))), Err(VisibleError::MigEntry { entry }));
        let mut devices = gpus();
        devices[2].mig = true;
        assert_eq!(visible(&devices, None), Err(VisibleError::Split { index: 2 }));
        assert_eq!(visible(&devices, Some("2")), Err(VisibleError::Split { index: 2 }));
        assert_eq!(visible(&devices, Some("0,3")).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn any_list_of_distinct_gpus_is_used_as_given(order in Just(vec![0_u32, 1, 2, 3]).prop_shuffle(), len in 0..5_usize) {
            let order = &order[..len];
            let list = order.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(indices(Some(&list)), order);
            let uuids = (0..len).map(|i| UUIDS[usize::try_from(order[i]).unwrap()]).collect::<Vec<_>>().join(",");
            prop_assert_eq!(indices(Some(&uuids)), order);
        }

        #[test]
        fn any_text_gives_distinct_gpus_or_an_error(list in "[-+0-9a-cGPUMI, ]{0,20}|.{0,20}") {
            if let Ok(chosen) = visible(&gpus(), Some(&list)) {
                let distinct: std::collections::BTreeSet<_> = chosen.iter().map(|gpu| gpu.index).collect();
                prop_assert_eq!(distinct.len(), chosen.len());
            }
        }
    }
}
