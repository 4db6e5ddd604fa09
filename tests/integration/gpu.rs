//! The GPU room against a library that answers what a script says: through the real loader and the real bindings.

mod counters;

use crate::fake::Fake;
use ledger::gpu::{GpuError, GpuInfo, GpuProcess, Gpus, Look, Meter, usable, visible};
use ledger::record::{Quantity, Source, Table, Value};
use std::cell::Cell;

const H200: &str = "gpu NVIDIA H200\n";

/// A clock that goes on by a millisecond each time it is looked at, so that each call takes one.
fn ticking() -> u64 {
    thread_local!(static NOW: Cell<u64> = const { Cell::new(1_000_000_000) });
    NOW.replace(NOW.get() + 1_000_000)
}

fn load(fake: &Fake) -> Gpus {
    Gpus::load(Some(&fake.path())).unwrap()
}

/// All of them, which have to answer.
fn devices(gpus: &Gpus) -> Vec<GpuInfo> {
    gpus.devices().unwrap().into_iter().map(Result::unwrap).collect()
}

fn meter(gpus: &Gpus) -> Meter<'_> {
    Meter::new(gpus, &devices(gpus), ticking)
}

fn value(look: &Look, quantity: Quantity) -> Option<f64> {
    look.sample.readings.iter().find(|reading| reading.quantity == quantity).map(|reading| reading.value)
}

fn names(look: &Look) -> Vec<&'static str> {
    look.sample.readings.iter().map(|reading| reading.quantity.name()).collect()
}

/// What is unread, and why.
fn unread(look: &Look) -> Vec<(&'static str, &str)> {
    look.unread.iter().map(|(quantity, reason)| (quantity.name(), reason.as_str())).collect()
}

/// The calls of a kind so far.
fn calls(meter: &Meter<'_>, kind: &str) -> i64 {
    meter.cost().get(&format!("telemetry.nvml.{kind}.calls")).map_or(0, |value| value.as_int().unwrap())
}

const UNSUPPORTED: &str = "the requested operation is not available on the target device";

#[test]
fn the_driver_and_its_gpus_are_told() {
    let fake = Fake::new(
        "driver 570.86.16\ncuda 12080\n\
         gpu NVIDIA H200\nuuid GPU-aaaa\nmemory 150754820096 5\nbus 00000000:3B:00.0\n\
         gpu NVIDIA A100-SXM4-80GB # split\nuuid GPU-bbbb\nmemory 85899345920\nmig 1",
    );
    let gpus = load(&fake);
    assert_eq!(gpus.driver_version().unwrap(), "570.86.16");
    assert_eq!(gpus.cuda_driver_version().unwrap(), (12, 8));
    let devices = devices(&gpus);
    let told: Vec<_> = devices
        .iter()
        .map(|gpu| {
            (gpu.index, gpu.name.as_str(), gpu.uuid.as_str(), gpu.memory_total_bytes, gpu.mig, gpu.pci_bus_id.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            (0, "NVIDIA H200", "GPU-aaaa", Some(150_754_820_096), false, "00000000:3B:00.0"),
            (1, "NVIDIA A100-SXM4-80GB", "GPU-bbbb", Some(85_899_345_920), true, "00000000:01:00.0"),
        ]
    );
    assert_eq!(visible(&devices, Some("GPU-a")).unwrap(), devices[..1]);
    assert!(visible(&devices, None).is_err(), "the second one is split");
}

#[test]
fn a_gpu_that_does_not_answer_is_in_nobodys_way_but_its_own() {
    let fake = Fake::new(
        "gpu NVIDIA H200\nuuid GPU-a\ngpu NVIDIA H200\nuuid GPU-b\nlost_after 0\ngpu NVIDIA H200\nuuid GPU-c",
    );
    let gpus = load(&fake);
    let chosen = |list| {
        let chosen = usable(&gpus, list).map_err(|error| error.to_string())?;
        Ok::<_, String>(chosen.iter().map(|gpu| gpu.index).collect::<Vec<_>>())
    };
    assert_eq!(gpus.count().unwrap(), 3);
    assert_eq!(chosen(Some("0")), Ok(vec![0]));
    assert_eq!(chosen(Some("2,0")), Ok(vec![2, 0]), "it keeps its number");
    assert_eq!(chosen(Some("GPU-c")), Ok(vec![2]));
    for list in [None, Some("0,1")] {
        let error = chosen(list).unwrap_err();
        assert!(error.starts_with("NVML cannot tell of GPU 1 "), "{error}");
    }
}

#[test]
fn a_card_whose_memory_is_not_told_is_a_card_all_the_same() {
    let fake = Fake::new("gpu NVIDIA GB10\nfail nvmlDeviceGetMemoryInfo_v2 3\nfail nvmlDeviceGetMemoryInfo 3");
    let gpus = load(&fake);
    let used = devices(&gpus);
    assert_eq!(used[0].memory_total_bytes, None);
    let facts = Meter::new(&gpus, &used, ticking).facts();
    assert!(!facts.contains_key("gpu.0.memory_total_bytes"));
    assert!(facts["gpu.0.unread.memory_total_bytes"].as_str().unwrap().contains("nvmlDeviceGetMemoryInfo"));
}

#[test]
fn a_driver_that_does_not_start_is_told_apart() {
    let failure = |script: &str| Gpus::load(Some(&Fake::new(script).path())).unwrap_err();
    assert!(matches!(failure("init 9"), GpuError::NoDriver { .. }));
    assert!(matches!(failure("init 18"), GpuError::Mismatch { .. }));
    assert!(matches!(failure("init 999"), GpuError::Call { .. }));
    let fake = Fake::new("fail nvmlDeviceGetCount_v2 15");
    assert!(matches!(load(&fake).devices(), Err(GpuError::Call { what: "the number of GPUs", .. })));
}

#[test]
fn a_look_has_what_the_card_says_in_the_units_of_the_quantities() {
    let fake = Fake::new(
        "clock call 100\ngpu NVIDIA H200\nmemory 150754820096 1073741824\npower 0 126.5\nenergy_base 7000001\n\
         temperature 55\nutilization 90 40\nsm_clock 1755\nmemory_clock 3201\nthrottle 4\npcie 3 5",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    meter.look(0);
    let look = meter.look(0);
    let told: Vec<String> = look
        .sample
        .readings
        .iter()
        .map(|reading| format!("{} = {} {}", reading.quantity.name(), reading.value, reading.quantity.unit()))
        .collect();
    assert_eq!(
        told,
        [
            "power_instant = 126.5 W",
            "power_average = 126.5 W",
            "energy = 7012.651 J",
            "pcie_tx = 300 B",
            "pcie_rx = 500 B",
            "temperature = 55 degC",
            "utilization_gpu = 90 %",
            "utilization_memory = 40 %",
            "memory_used = 1073741824 B",
            "clock_sm = 1755 MHz",
            "clock_memory = 3201 MHz",
            "throttle_reasons = 4 ",
        ]
    );
    assert_eq!((look.unread.len(), look.lost), (0, false));
    assert_eq!(look.sample.source, Source::Gpu(0));
}

#[test]
fn readings_have_the_time_of_their_call() {
    let fake = Fake::new(H200);
    let gpus = load(&fake);
    let look = meter(&gpus).look(0);
    let after = |quantity: Quantity| {
        let reading = look.sample.readings.iter().find(|reading| reading.quantity == quantity).unwrap();
        reading.t_ns - look.sample.t_ns
    };
    // The look's begin, the batched call's begin and end, then the begin of the others, and of the first of them.
    assert_eq!(after(Quantity::PowerInstant), 1_500_000);
    assert_eq!(after(Quantity::Energy), 1_500_000, "one call reads both");
    assert_eq!(after(Quantity::Temperature), 4_500_000);
    assert_eq!(after(Quantity::UtilizationGpu), 6_500_000);
    assert_eq!(after(Quantity::UtilizationMemory), 6_500_000);
    assert_eq!(look.sample.cost_ns, 21_000_000);
}

#[test]
fn power_and_the_counter_follow_one_curve() {
    let fake = Fake::new(
        "clock call 100\ngpu NVIDIA H200\npower 0 126; 1000 700; 1200 300\nenergy_base 5000000\nenergy_tick_ms 100",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let looks: Vec<Look> = (0..=20).map(|_| meter.look(0)).collect();
    let series = |quantity| -> Vec<f64> { looks.iter().map(|look| value(look, quantity).unwrap()).collect() };
    let (power, energy) = (series(Quantity::PowerInstant), series(Quantity::Energy));
    assert_eq!((power[9], power[10], power[11], power[12]), (126.0, 700.0, 700.0, 300.0));
    assert_eq!(energy[0], 5000.0);
    for at in 1..looks.len() {
        let step = energy[at] - energy[at - 1];
        assert!((step - power[at - 1] * 0.1).abs() < 1e-9, "look {at}: {step} J");
    }
    // (500 ms of 126 W + 200 ms of 700 W + 300 ms of 300 W) in a second.
    assert_eq!(value(&looks[15], Quantity::PowerAverage), Some(293.0));
}

#[test]
fn the_counter_ticks_and_may_stop() {
    let script =
        "clock call 50\ngpu NVIDIA H200\npower 0 100\nenergy_base 0\nenergy_tick_ms 100\nenergy_frozen_after 250";
    let fake = Fake::new(script);
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let energy: Vec<f64> = (0..8).map(|_| value(&meter.look(0), Quantity::Energy).unwrap()).collect();
    assert_eq!(energy, [0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0]);
}

#[test]
fn without_the_batched_call_single_ones_stand_in() {
    let fake = Fake::without(
        &["nvmlDeviceGetFieldValues"],
        "clock call 100\ngpu NVIDIA H200\npower 0 100; 100 500\nenergy_base 0",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let look = meter.look(0);
    let missing = "the driver's library has no `nvmlDeviceGetFieldValues`";
    assert_eq!(unread(&look), [("power_instant", missing), ("pcie_tx", missing), ("pcie_rx", missing)]);
    assert_eq!(value(&look, Quantity::PowerAverage), Some(100.0));
    assert_eq!(value(&look, Quantity::Energy), Some(0.0));
    let look = meter.look(0);
    assert_eq!(value(&look, Quantity::Energy), Some(10.0));
    assert_eq!(value(&look, Quantity::PowerInstant), None);
    assert_eq!((unread(&look).len(), names(&look).len()), (0, 9));
    assert_eq!((calls(&meter, "fields"), calls(&meter, "power"), calls(&meter, "energy")), (1, 2, 2));
    assert_eq!(calls(&meter, "compute_capability"), 1);
}

#[test]
fn what_the_power_function_gives_is_named_by_the_chip() {
    let script = "clock call 500\ngpu NVIDIA A100-SXM4-80GB\ncapability 8 0\npower 0 100; 500 300";
    // The chip has no field of averaged power, and its power function must not be taken for one.
    let fake = Fake::new(script);
    let gpus = load(&fake);
    let mut on_the_chip = meter(&gpus);
    let look = on_the_chip.look(0);
    assert_eq!(value(&look, Quantity::PowerInstant), Some(100.0));
    assert_eq!(value(&look, Quantity::PowerAverage), None);
    assert!(unread(&look).contains(&("power_average", &format!("`POWER_AVERAGE`: {UNSUPPORTED}"))));
    assert_eq!(calls(&on_the_chip, "power"), 0);

    let fake = Fake::without(&["nvmlDeviceGetFieldValues"], script);
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    meter.look(0);
    let look = meter.look(0);
    assert_eq!(value(&look, Quantity::PowerInstant), Some(300.0));
    assert_eq!(value(&look, Quantity::PowerAverage), None);
}

#[test]
fn a_field_that_the_driver_lacks_is_asked_once() {
    let fake = Fake::new(
        "clock call 100\ngpu NVIDIA H200\npower 0 100\nenergy_base 0\nfail field.83 3\nfail field.185 2\nfail field.186 2",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let look = meter.look(0);
    let invalid = "`POWER_INSTANT`: a supplied argument was invalid";
    assert_eq!(unread(&look)[0], ("power_instant", invalid));
    assert_eq!(unread(&look).len(), 3, "the counters of PCIe are not there either: {:?}", unread(&look));
    assert_eq!(names(&look)[..2], ["power_average", "energy"]);
    meter.look(0);
    let look = meter.look(0);
    assert_eq!((unread(&look).len(), names(&look)[..2].to_vec()), (0, vec!["power_average", "energy"]));
    assert_eq!((calls(&meter, "fields"), calls(&meter, "power"), calls(&meter, "energy")), (1, 3, 3));
}

#[test]
fn fields_of_any_type_are_taken_and_impossible_values_are_not() {
    let fake = Fake::new(
        "gpu NVIDIA H200\nfield 186 double 126500.5\nfield 185 i64 -1\nfield 83 ulong 4000000000\nfield 197 i64 7\nfield 198 6 1",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let look = meter.look(0);
    assert_eq!(value(&look, Quantity::PowerInstant), Some(126.5005));
    assert_eq!(value(&look, Quantity::Energy), Some(4e6));
    assert_eq!(value(&look, Quantity::PcieTx), Some(7.0));
    let expected = [
        ("power_average", "`POWER_AVERAGE`: what NVML gave is no such value"),
        ("pcie_rx", "`PCIE_COUNT_RX_BYTES`: unexpected enum variant value: 6"),
    ];
    assert_eq!(unread(&look), expected);
    assert_eq!(meter.look(0).unread.len(), 0, "said once");
}

#[test]
fn a_quantity_that_the_card_lacks_is_absent_with_its_reason() {
    let fake = Fake::without(
        &["nvmlDeviceGetCurrentClocksThrottleReasons"],
        "gpu NVIDIA H200\npcie 1 1\nfail nvmlDeviceGetUtilizationRates 3",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let look = meter.look(0);
    let unsupported = format!("`nvmlDeviceGetUtilizationRates`: {UNSUPPORTED}");
    let expected = [
        ("utilization_gpu", unsupported.as_str()),
        ("utilization_memory", unsupported.as_str()),
        ("throttle_reasons", "the driver's library has no `nvmlDeviceGetCurrentClocksThrottleReasons`"),
    ];
    assert_eq!(unread(&look), expected);
    assert_eq!(names(&look).len(), 9);
    let look = meter.look(0);
    assert_eq!((look.unread.len(), names(&look).len()), (0, 9));
    assert_eq!((calls(&meter, "utilization"), calls(&meter, "temperature")), (1, 2));
}

#[test]
fn other_failures_are_tried_again_and_said_when_they_change() {
    let fake = Fake::new(
        "gpu NVIDIA H200\npcie 1 1\nfail nvmlDeviceGetTemperature 4\n\
         fail nvmlDeviceGetUtilizationRates 999 after 1 calls for 2 calls\n\
         fail nvmlDeviceGetCurrentClocksThrottleReasons 999 for 1\n\
         fail nvmlDeviceGetCurrentClocksThrottleReasons 4242 after 2\nfail field.83 999 after 3 for 1",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let (permission, unknown) =
        ("the current user does not have permission to perform this operation", "an internal driver error occurred");
    let temperature = format!("`nvmlDeviceGetTemperature`: {permission}");
    let throttle = |what: &str| format!("`nvmlDeviceGetCurrentClocksThrottleReasons`: {what}");
    let utilization = format!("`nvmlDeviceGetUtilizationRates`: {unknown}");

    let look = meter.look(0);
    assert_eq!(unread(&look), [("temperature", temperature.as_str()), ("throttle_reasons", &throttle(unknown))]);
    let look = meter.look(0);
    assert_eq!(unread(&look), [("utilization_gpu", utilization.as_str()), ("utilization_memory", &utilization)]);
    assert_eq!(value(&look, Quantity::ThrottleReasons), Some(0.0), "it came back");
    let look = meter.look(0);
    assert_eq!(unread(&look), [("throttle_reasons", throttle("unexpected enum variant value: 4242").as_str())]);
    assert_eq!(value(&look, Quantity::UtilizationGpu), None);
    let look = meter.look(0);
    assert_eq!(unread(&look), [("energy", format!("`TOTAL_ENERGY_CONSUMPTION`: {unknown}").as_str())]);
    assert_eq!(value(&look, Quantity::UtilizationGpu), Some(0.0));
    let look = meter.look(0);
    assert!(value(&look, Quantity::Energy).is_some() && look.unread.is_empty());
    assert_eq!((calls(&meter, "temperature"), calls(&meter, "energy")), (5, 0));
    assert!(!look.lost);
}

#[test]
fn a_card_that_is_lost_says_so_and_is_left_alone() {
    // Five calls tell which GPU it is; the first look makes nine, the second is cut off after the batched one.
    let fake = Fake::new("gpu NVIDIA H200\npcie 1 1\nlost_after 15");
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let look = meter.look(0);
    assert_eq!((look.lost, names(&look).len()), (false, 12));
    let look = meter.look(0);
    assert_eq!((look.lost, names(&look).len(), look.unread.len()), (true, 5, 15));
    assert!(
        unread(&look).iter().all(|(_, reason)| *reason == "the GPU is lost: it fell off the bus or is inaccessible")
    );
    assert_eq!((calls(&meter, "temperature"), calls(&meter, "memory")), (2, 1), "nothing is asked of a lost card");
    let look = meter.look(0);
    assert_eq!((look.lost, names(&look).len(), look.unread.len()), (true, 0, 5));
    assert_eq!(meter.look(0).unread.len(), 0);
    assert!(meter.processes(0).unwrap_err().starts_with("the GPU is lost"));

    let fake = Fake::new("gpu NVIDIA H200\nfail field.186 15");
    let gpus = load(&fake);
    let look = Meter::new(&gpus, &devices(&gpus), ticking).look(0);
    assert!(look.lost);
}

#[test]
fn a_card_that_is_not_found_is_looked_for_again() {
    let fake = Fake::new("fail nvmlDeviceGetHandleByUUID 15 for 2\ngpu NVIDIA H200\npcie 1 1");
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let look = meter.look(0);
    assert_eq!((look.lost, names(&look).len(), look.unread.len()), (true, 0, 20));
    let look = meter.look(0);
    assert_eq!((look.lost, names(&look).len(), look.unread.len()), (false, 12, 0));

    let look = meter.look(1);
    assert_eq!(names(&look).len(), 0);
    assert_eq!(unread(&look)[0], ("power_instant", "the run has no GPU of that rank"));
}

#[test]
fn a_slow_call_shows_in_the_cost() {
    fn clock() -> u64 {
        static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        u64::try_from(START.elapsed().as_nanos()).unwrap()
    }
    let fake = Fake::new("gpu NVIDIA H200\nslow nvmlDeviceGetFieldValues 20");
    let gpus = load(&fake);
    let mut meter = Meter::new(&gpus, &devices(&gpus), clock);
    let look = meter.look(0);
    let cost = meter.cost();
    let fields = cost["telemetry.nvml.fields.ns"].as_int().unwrap();
    assert!(fields >= 20_000_000, "{cost:?}");
    assert!(i64::try_from(look.sample.cost_ns).unwrap() >= fields);
    let power = look.sample.readings[0];
    assert!(power.t_ns >= look.sample.t_ns + 10_000_000, "the middle of the call");
}

#[test]
fn what_is_dear_is_read_less_often() {
    let fake = Fake::new(H200);
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let every = |meter: &Meter<'_>| meter.cost()["telemetry.gpu.secondary_every"].as_int().unwrap();
    assert_eq!(every(&meter), 1);
    // The other calls take 14 ms by this clock: 2% of seven times 100 ms. The first look is no measure of it.
    meter.set_period(100_000_000);
    let read: Vec<usize> = (0..14).filter(|_| value(&meter.look(0), Quantity::Temperature).is_some()).collect();
    assert_eq!(read, [0, 1, 8]);
    assert_eq!(every(&meter), 7);
    assert_eq!((calls(&meter, "fields"), calls(&meter, "temperature")), (14, 3));
    let look = meter.look(0);
    assert_eq!(names(&look), ["power_instant", "power_average", "energy"]);
    assert_eq!(look.unread.len(), 0, "what is not due is not unread");
    // Once a second whatever it costs, and at each look where there is one a second or fewer.
    meter.set_period(200_000_000);
    assert_eq!(every(&meter), 4);
    meter.set_period(20_000_000);
    assert_eq!(every(&meter), 35);
    meter.set_period(1_000_000_000);
    assert_eq!(every(&meter), 1);
}

#[test]
fn processes_are_told() {
    let fake = Fake::new(
        "gpu NVIDIA H200\nprocess 4711 1048576\nprocess 4712 none\ngpu NVIDIA H200\ngpu NVIDIA H200\nfail nvmlDeviceGetComputeRunningProcesses_v3 4",
    );
    let gpus = load(&fake);
    let mut meter = meter(&gpus);
    let expected =
        [GpuProcess { pid: 4711, memory_bytes: Some(1 << 20) }, GpuProcess { pid: 4712, memory_bytes: None }];
    assert_eq!(meter.processes(0).unwrap(), expected);
    assert_eq!(meter.processes(1).unwrap(), []);
    let refused = meter.processes(2).unwrap_err();
    assert!(refused.starts_with("`nvmlDeviceGetComputeRunningProcesses_v3`: the current user"), "{refused}");
    assert!(meter.processes(3).is_err());
    assert_eq!(calls(&meter, "processes"), 3);
}

#[test]
fn facts_are_told_by_rank() {
    let fake = Fake::new(
        "topology 0 1 hostbridge\ngpu NVIDIA H200\nuuid GPU-a\nlimits 200 700 650\nvbios 96.01\n\
         gpu NVIDIA A40\nuuid GPU-b\ncapability 8 6\necc 0\npersistence 0\npcie_link 4 8\nmemory 48305799168\nbus 00000000:9A:00.0\n\
         fail nvmlDeviceGetPowerManagementLimitConstraints 3",
    );
    let gpus = load(&fake);
    let mut used = devices(&gpus);
    used.reverse();
    let facts = Meter::new(&gpus, &used, ticking).facts();
    let told: Vec<String> = facts.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let expected = "\
gpu.0.clock_memory_default_mhz = 3201
gpu.0.clock_memory_max_mhz = 3201
gpu.0.clock_memory_set_mhz = 3201
gpu.0.clock_sm_default_mhz = 1980
gpu.0.clock_sm_max_mhz = 1980
gpu.0.clock_sm_set_mhz = 1980
gpu.0.compute_capability = 8.6
gpu.0.compute_mode = default
gpu.0.ecc = false
gpu.0.enforced_power_limit_w = 700.0
gpu.0.index = 1
gpu.0.memory_total_bytes = 48305799168
gpu.0.mig = false
gpu.0.name = NVIDIA A40
gpu.0.pci_bus_id = 00000000:9A:00.0
gpu.0.pcie_generation = 4
gpu.0.pcie_generation_max = 4
gpu.0.pcie_width = 8
gpu.0.pcie_width_max = 8
gpu.0.persistence = false
gpu.0.power_limit_default_w = 700.0
gpu.0.power_limit_w = 700.0
gpu.0.unread.power_limit_max_w = `nvmlDeviceGetPowerManagementLimitConstraints`: the requested operation is not available on the target device
gpu.0.unread.power_limit_min_w = `nvmlDeviceGetPowerManagementLimitConstraints`: the requested operation is not available on the target device
gpu.0.uuid = GPU-b
gpu.0.vbios = 96.00.CF.00.01
gpu.1.clock_memory_default_mhz = 3201
gpu.1.clock_memory_max_mhz = 3201
gpu.1.clock_memory_set_mhz = 3201
gpu.1.clock_sm_default_mhz = 1980
gpu.1.clock_sm_max_mhz = 1980
gpu.1.clock_sm_set_mhz = 1980
gpu.1.compute_capability = 9.0
gpu.1.compute_mode = default
gpu.1.ecc = true
gpu.1.enforced_power_limit_w = 650.0
gpu.1.index = 0
gpu.1.memory_total_bytes = 150754820096
gpu.1.mig = false
gpu.1.name = NVIDIA H200
gpu.1.pci_bus_id = 00000000:00:00.0
gpu.1.pcie_generation = 5
gpu.1.pcie_generation_max = 5
gpu.1.pcie_width = 16
gpu.1.pcie_width_max = 16
gpu.1.persistence = true
gpu.1.power_limit_default_w = 650.0
gpu.1.power_limit_max_w = 700.0
gpu.1.power_limit_min_w = 200.0
gpu.1.power_limit_w = 650.0
gpu.1.uuid = GPU-a
gpu.1.vbios = 96.01
gpu.topology = {0-1 = hostbridge}";
    assert_eq!(told.join("\n"), expected);
}

#[test]
fn facts_that_cannot_be_read_have_reasons() {
    let fake = Fake::without(
        &["nvmlDeviceGetTopologyCommonAncestor"],
        "gpu NVIDIA H200\nfail nvmlDeviceGetVbiosVersion 999\ngpu NVIDIA H200",
    );
    let gpus = load(&fake);
    let mut used = devices(&gpus);
    used[1].uuid = "GPU-elsewhere".into();
    let facts: Table = Meter::new(&gpus, &used, ticking).facts();
    let text = |name: &str| facts.get(name).and_then(Value::as_str).map(str::to_owned);
    let reason = "`nvmlDeviceGetVbiosVersion`: an internal driver error occurred";
    assert_eq!(text("gpu.0.unread.vbios").as_deref(), Some(reason));
    assert_eq!(text("gpu.0.vbios"), None);
    let reason = "`nvmlDeviceGetHandleByUUID`: a query to find an object was unsuccessful";
    assert_eq!(text("gpu.1.unread.ecc").as_deref(), Some(reason));
    assert_eq!(text("gpu.0.unread.topology_1").as_deref(), Some(reason));
    assert!(!facts.contains_key("gpu.topology"));

    let devices = devices(&gpus);
    let facts = Meter::new(&gpus, &devices, ticking).facts();
    let reason = "the driver's library has no `nvmlDeviceGetTopologyCommonAncestor`";
    assert_eq!(facts["gpu.0.unread.topology_1"], reason.into());
}

/// The fake's own: what changes a card is checked, kept and logged.
#[test]
fn setters_are_checked_kept_and_logged() {
    use nvml_wrapper::Nvml;
    use nvml_wrapper::enum_wrappers::device::Clock;
    use nvml_wrapper::enums::device::GpuLockedClocksSetting::Numeric;
    use nvml_wrapper::error::NvmlError;
    let fake = Fake::new(
        "gpu NVIDIA H200\nlimits 200 700 700\nsupported 3201 1980 1965\ngpu NVIDIA H200\nfail nvmlDeviceSetPowerManagementLimit 4",
    );
    {
        let nvml = Nvml::builder().lib_path(fake.path().as_os_str()).init().unwrap();
        let (mut first, mut second) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
        assert!(matches!(first.set_power_management_limit(199_999), Err(NvmlError::InvalidArg)));
        first.set_power_management_limit(300_000).unwrap();
        assert!(matches!(second.set_power_management_limit(300_000), Err(NvmlError::NoPermission)));
        assert_eq!(first.supported_graphics_clocks(3201).unwrap(), [1980, 1965]);
        assert!(matches!(first.set_applications_clocks(3201, 1), Err(NvmlError::InvalidArg)));
        first.set_applications_clocks(3201, 1965).unwrap();
        let bounds = Numeric { min_clock_mhz: 345, max_clock_mhz: 1200 };
        first.set_gpu_locked_clocks(bounds).unwrap();
        assert_eq!(first.clock_info(Clock::SM).unwrap(), 1200);
        first.reset_gpu_locked_clocks().unwrap();
        assert_eq!(first.clock_info(Clock::SM).unwrap(), 1980);
    }
    let nvml = Nvml::builder().lib_path(fake.path().as_os_str()).init().unwrap();
    let (first, second) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    assert_eq!(first.power_management_limit().unwrap(), 300_000, "it stays when NVML is started again");
    assert_eq!(first.applications_clock(Clock::Graphics).unwrap(), 1965);
    assert_eq!(second.power_management_limit().unwrap(), 700_000);
    let expected = "\
0 nvmlDeviceSetPowerManagementLimit 199999 = 2
0 nvmlDeviceSetPowerManagementLimit 300000 = 0
1 nvmlDeviceSetPowerManagementLimit 300000 = 4
0 nvmlDeviceSetApplicationsClocks 3201 1 = 2
0 nvmlDeviceSetApplicationsClocks 3201 1965 = 0
0 nvmlDeviceSetGpuLockedClocks 345 1200 = 0
0 nvmlDeviceResetGpuLockedClocks = 0
";
    assert_eq!(fake.log(), expected);
}
