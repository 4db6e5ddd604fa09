use super::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn the_sampling_period_is_kept_and_missed_samples_are_counted() {
    assert_eq!(next_due(1000, 1000, 100), (0, 1100));
    assert_eq!(next_due(1000, 1099, 100), (0, 1100));
    assert_eq!(next_due(1000, 1250, 100), (2, 1300));
}

#[test]
fn an_invisible_process_is_foreign_if_the_worker_is_listed() {
    assert_eq!(whose(&[Seen::Nothing; 2], &[true; 2]), [Whose::Unknown; 2], "as in a container");
    assert_eq!(whose(&[Seen::Nothing, Seen::Workers], &[true, false]), [Whose::Foreign, Whose::Workers]);
    assert_eq!(whose(&[Seen::Another, Seen::Nothing], &[false, true]), [Whose::Foreign, Whose::Unknown]);
    let ended = whose(&[Seen::Nothing, Seen::Workers], &[false; 2]);
    assert_eq!(ended, [Whose::Unknown, Whose::Workers], "it may have been the worker's a moment ago");
}

#[test]
fn a_process_that_stays_invisible_for_long_lingers() {
    let mut unseen = BTreeMap::new();
    let mut look = |rank, listed: &[(u32, Seen)], second: u64| {
        lingering(&mut unseen, rank, listed.iter().map(|(pid, seen)| (*pid, seen)), second * 1_000_000_000)
    };
    assert_eq!(look(0, &[(7, Seen::Nothing), (8, Seen::Workers)], 10), [false, false]);
    assert_eq!(look(1, &[(7, Seen::Nothing)], 12), [false], "on another GPU since now");
    assert_eq!(look(0, &[(7, Seen::Nothing), (8, Seen::Nothing)], 20), [true, false]);
    assert_eq!(look(0, &[(8, Seen::Nothing)], 21), [false]);
    assert_eq!(look(0, &[(7, Seen::Nothing), (8, Seen::Nothing)], 30), [false, true], "it was gone meanwhile");
}

#[test]
fn a_process_counts_once_on_all_its_gpus() {
    let count = |gpus: &[&[u32]]| {
        let mut most = BTreeMap::new();
        gpus.iter().for_each(|pids| raise(&mut most, pids));
        most.values().sum::<usize>()
    };
    assert_eq!(count(&[&[7, 8], &[8, 7], &[7]]), 2);
    assert_eq!(count(&[&[7], &[8]]), 2);
    assert_eq!(count(&[&[0, 0], &[0, 9]]), 3, "no number tells them apart");
}

#[test]
fn a_gpu_is_named_with_the_machines_index_if_that_differs() {
    assert_eq!([named(&[4, 1], 0), named(&[4, 1], 1)], ["GPU 0 (number 4 of the machine)", "GPU 1"]);
}

/// Requests a stop from the tenth call on.
#[derive(Default)]
struct Soon(AtomicU32);

impl Stop for Soon {
    fn asked(&self) -> u32 {
        u32::from(self.0.fetch_add(1, Ordering::SeqCst) >= 10)
    }
}

#[test]
fn a_library_that_hangs_is_reported_once() {
    let told = Cell::new(0);
    let wait = |silent: Duration, ready: &Receiver<()>| {
        await_first(ready, &Soon::default(), silent, &|| told.set(told.get() + 1));
        told.replace(0)
    };
    let (sender, ready) = channel();
    assert_eq!(wait(Duration::from_millis(60), &ready), 1);
    assert_eq!(wait(Duration::MAX, &ready), 0, "it may take its time");
    sender.send(()).unwrap();
    assert_eq!(wait(Duration::ZERO, &ready), 0);
}

#[test]
fn the_host_is_sampled_from_before_the_worker_to_its_end() {
    let begun_ns = monotonic_ns();
    let sampler = Sampler::start(Watched { hz: 100, ..Watched::default() }, &0_u32, &|| ()).unwrap();
    let first = sampler.receive();
    assert!(first.iter().any(|entry| matches!(entry, Entry::Sample(sample) if sample.source == Source::Host)));
    sampler.watch(std::process::id());
    let rest = sampler.finish(Duration::from_secs(60));
    let worker = |entry: &Entry| match entry {
        Entry::Sample(sample) => sample.readings.iter().any(|reading| reading.quantity == Quantity::WorkerCpuTime),
        _ => false,
    };
    assert!(rest.iter().any(worker));
    let named = |wanted: &str| {
        rest.iter().find_map(|entry| match entry {
            Entry::Fact { name, value } if name == wanted => value.as_int(),
            _ => None,
        })
    };
    let [due, taken, dropped] = ["telemetry.samples_due", "telemetry.samples_taken", "telemetry.samples_dropped"]
        .map(|name| named(name).unwrap());
    assert!(taken >= 2);
    // Independent of the machine's load: one sample per period, the first, the one at the start and the last.
    let periods = i64::try_from((monotonic_ns() - begun_ns) / 10_000_000).unwrap();
    assert!(due <= periods + 3 && due == taken + dropped, "{due} of {periods}");
}

#[test]
fn nothing_is_sampled_at_rate_zero() {
    assert!(Sampler::start(Watched::default(), &0_u32, &|| ()).is_none());
}

#[test]
fn a_library_that_is_missing_is_the_reason_for_missing_readings() {
    let gpu = GpuInfo {
        index: 0,
        name: "NVIDIA H200".into(),
        uuid: "GPU-1".into(),
        memory_total_bytes: None,
        mig: false,
        pci_bus_id: "0".into(),
    };
    let library = Some(PathBuf::from("/nonexistent/libnvidia-ml.so.1"));
    let sampler =
        Sampler::start(Watched { hz: 10, gpus: vec![gpu], library, ..Watched::default() }, &0_u32, &|| ()).unwrap();
    let all = [sampler.receive(), sampler.finish(Duration::from_secs(60))].concat();
    let reason = all.iter().find_map(|entry| match entry {
        Entry::Unread { source: Source::Gpu(0), quantity: Quantity::Energy, reason } => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.is_some_and(|reason| reason.starts_with("cannot load `/nonexistent/libnvidia-ml.so.1`")));
}
