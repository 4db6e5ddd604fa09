//! NVML's GPM counters, which newer cards have: shares of activity and rates, as means between two samples.

use super::*;

/// A clock that goes on so far each time it is looked at that two looks are more than 150 ms apart.
fn striding() -> u64 {
    thread_local!(static NOW: Cell<u64> = const { Cell::new(1_000_000_000) });
    NOW.replace(NOW.get() + 20_000_000)
}

/// What is read of the GPM counters.
fn counters(look: &Look) -> Vec<String> {
    let counters = look.sample.readings.iter().filter(|reading| Quantity::GPM.contains(&reading.quantity));
    let told = |reading: &ledger::record::Reading| {
        format!("{} = {} {}", reading.quantity.name(), reading.value, reading.quantity.unit())
    };
    counters.map(told).collect()
}

#[test]
fn two_samples_of_the_gpm_counters_give_the_mean_between_them() {
    let fake = Fake::new("clock call 200\ngpu NVIDIA H200\npcie 1 1\ngpm 89 13.5 86.25 15 3 56 0.5 7");
    let gpus = load(&fake);
    let mut meter = Meter::new(&gpus, &devices(&gpus), striding);
    let first = meter.look(0);
    assert_eq!((counters(&first).len(), first.unread.len()), (0, 0), "one sample says nothing");
    let second = meter.look(0);
    let expected = [
        "sm_active = 89 %",
        "sm_occupancy = 13.5 %",
        "tensor_active = 86.25 %",
        "dram_util = 15 %",
        "pcie_tx_rate = 3145728 B/s",
        "pcie_rx_rate = 58720256 B/s",
        "nvlink_tx_rate = 524288 B/s",
        "nvlink_rx_rate = 7340032 B/s",
    ];
    assert_eq!(counters(&second), expected);
    let end = |look: &Look| look.sample.t_ns + look.sample.cost_ns;
    let at = second.sample.readings.iter().find(|reading| reading.quantity == Quantity::SmActive).unwrap().t_ns;
    // Each look ends with its sample, within the last 100 ms by this clock.
    let about = end(&first).midpoint(end(&second));
    assert!((about - 100_000_000..about).contains(&at), "half way from one sample to the next: {at}");
}

#[test]
fn one_thread_at_a_time_samples_gpm_counters() {
    let fake = Fake::new("clock call 200\ngpu NVIDIA H200\npcie 1 1\ngpm 89 13.5 86.25 15 3 56 0.5 7");
    let looking = || {
        let gpus = load(&fake);
        let mut meter = Meter::new(&gpus, &devices(&gpus), striding);
        (0..20).flat_map(|_| meter.look(0).unread).map(|(_, reason)| reason).collect::<Vec<String>>()
    };
    let unread: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(looking)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(unread, [""; 0]);
}

#[test]
fn gpm_counters_are_not_asked_before_they_are_renewed() {
    let fake = Fake::new("clock call 10\ngpu NVIDIA H200\ngpm 89 13.5 86.25 15 3 56 0.5 7");
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let looks: Vec<Look> = (0..20).map(|_| meter.look(0)).collect();
    // A look takes 18 to 22 ms by this clock.
    let read: Vec<usize> = (0..20).filter(|at| !counters(&looks[*at]).is_empty()).collect();
    assert_eq!(read, [8, 16]);
    assert!(looks.iter().flat_map(counters).all(|counter| !counter.contains(" = 0 ")), "none is the 0 of no renewal");
    assert_eq!(calls(&meter, "gpm"), 1 + 3 + 2, "of support, samples and means");
}

#[test]
fn a_gpu_without_gpm_counters_has_the_reason_in_their_place() {
    let told = |fake: &Fake| {
        let gpus = load(fake);
        let mut meter = Meter::new(&gpus, &devices(&gpus), striding);
        let first = meter.look(0);
        let names: Vec<&str> = Quantity::GPM.iter().map(|quantity| quantity.name()).collect();
        let unread = unread(&first);
        let of_gpm: Vec<_> = unread.iter().filter(|(name, _)| names.contains(name)).collect();
        assert_eq!(of_gpm.len(), names.len(), "{unread:?}");
        let reason = of_gpm[0].1.to_owned();
        assert!(of_gpm.iter().all(|(_, other)| *other == reason));
        let second = meter.look(0);
        assert_eq!((second.unread.len(), counters(&second).len()), (0, 0), "said once");
        (reason, calls(&meter, "gpm"))
    };
    let ampere = Fake::new("gpu NVIDIA A100-SXM4-80GB\ncapability 8 0");
    assert_eq!(told(&ampere), ("the GPU has no GPM counters (NVIDIA Hopper or newer has them)".to_owned(), 1));
    let old = Fake::without(&["nvmlGpmQueryDeviceSupport"], H200);
    assert_eq!(told(&old), ("the driver's library has no `nvmlGpmQueryDeviceSupport`".to_owned(), 1));
    let hidden = Fake::new("gpu NVIDIA H200\nfail nvmlGpmSampleGet 4");
    let permission = "`nvmlGpmSampleGet`: the current user does not have permission to perform this operation";
    assert_eq!(told(&hidden), (permission.to_owned(), 3), "it may be given meanwhile");
}

#[test]
fn a_gpm_counter_that_fails_leaves_the_others() {
    let fake =
        Fake::new("clock call 200\ngpu NVIDIA H200\npcie 1 1\ngpm 89 13.5 86.25 nan 3 56 0.5 7\nfail metric.61 3");
    let gpus = load(&fake);
    let mut meter = Meter::new(&gpus, &devices(&gpus), striding);
    meter.look(0);
    let look = meter.look(0);
    let expected = [
        ("dram_util", "`DRAM_BW_UTIL`: NVML gave NaN".to_owned()),
        ("nvlink_tx_rate", format!("`NVLINK_TOTAL_TX_PER_SEC`: {UNSUPPORTED}")),
    ];
    assert_eq!(unread(&look), expected.each_ref().map(|(name, reason)| (*name, reason.as_str())));
    assert_eq!(counters(&look).len(), 6);
}
