use super::*;
use crate::analysis::Timed;
use crate::record::{Axis, KNOWN_METRICS, Series};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn observed(durations: &[Option<u64>]) -> Observed {
    let mut observed = Observed { samples_per_step: Some(8), ended: true, wall_ns: 5, ..Observed::default() };
    observed.last_loss = Some(0.5);
    observed.steps = (1u64..)
        .zip(durations)
        .map(|(step, duration_ns)| Timed { step, t_ns: step * S, duration_ns: *duration_ns })
        .collect();
    observed
}

struct Completed {
    metrics: BTreeMap<String, Metric>,
    facts: Table,
    warnings: Vec<String>,
}

impl Completed {
    fn of(observed: &Observed, stated: &[(&str, f64, &str)], facts: Table) -> Self {
        let metrics =
            stated.iter().map(|(name, value, unit)| ((*name).to_owned(), Metric::new(*value, *unit))).collect();
        let mut completed = Self { metrics, facts, warnings: Vec::new() };
        observed.complete(&observed.telemetry, &mut completed.metrics, &mut completed.facts, &mut completed.warnings);
        completed
    }

    fn value(&self, name: &str) -> f64 {
        self.metrics[name].value.unwrap_or_else(|| panic!("{name} is missing: {:?}", self.metrics[name].reason))
    }

    fn reason(&self, name: &str) -> &str {
        self.metrics[name].reason.as_deref().unwrap_or_else(|| panic!("{name} is there: {:?}", self.metrics[name]))
    }

    fn fact(&self, name: &str) -> Value {
        Value::Table(self.facts.clone()).flatten().remove(name).unwrap()
    }

    fn assert_near(&self, name: &str, expected: f64, tolerance: f64) {
        let found = self.value(name);
        assert!((found - expected).abs() <= tolerance * expected.abs(), "{name} is {found}, not {expected}");
    }
}

fn phase(name: &str, index: u64, start_ms: u64, stop_ms: u64) -> Phase {
    Phase { name: name.to_owned(), index, rank: 0, start_ns: start_ms * MS, stop_ns: Some(stop_ms * MS) }
}

/// 5 s idle at 120 W, then 20 steps of 0.5 s of which the first two take 10 s each, in two epochs with 3 s of
/// evaluation after each. Compilation draws 200 W, training 600 W and evaluation 300 W. All `gpus` do the same.
fn attempt(gpus: u32) -> Observed {
    let mut stops = vec![15_000, 25_000];
    stops.extend((1..=8).map(|i| 25_000 + 500 * i));
    stops.extend((1..=10).map(|i| 32_000 + 500 * i));
    let mut before = 5_000;
    let mut steps = Steps::default();
    for (step, stop) in (1..).zip(stops) {
        let start = if step == 11 { 32_000 } else { before };
        steps.push(Timed { step, t_ns: stop * MS, duration_ns: Some((stop - start) * MS) });
        before = stop;
    }
    let phases = vec![
        phase("idle", 1, 0, 5_000),
        phase("epoch", 1, 5_000, 29_000),
        phase("eval", 1, 29_000, 32_000),
        phase("epoch", 2, 32_000, 37_000),
        phase("eval", 2, 37_000, 40_000),
    ];
    let watts = |ms: u64| match ms {
        0..5_000 => 120.0,
        5_000..25_000 => 200.0,
        29_000..32_000 | 37_000.. => 300.0,
        _ => 600.0,
    };
    let mut observed = Observed {
        steps,
        phases,
        gpus,
        samples_per_step: Some(32),
        ended: true,
        wall_ns: 40 * S,
        ..Observed::default()
    };
    observed.telemetry_hz = Some(10.0);
    let mut add = |source: Source, quantity: Quantity, value: &dyn Fn(u64) -> f64| {
        let mut series = Series::new(source.series(quantity), quantity.unit(), Axis::TimeNs);
        (0..=400).for_each(|i| series.push(i * 100 * MS, value(i * 100)));
        observed.telemetry.insert(series.name.clone(), series);
    };
    for gpu in 0..gpus {
        let joules = |ms: u64| (0..ms / 100).map(|i| watts(i * 100) / 10.0).sum();
        add(Source::Gpu(gpu), Quantity::PowerInstant, &watts);
        add(Source::Gpu(gpu), Quantity::Energy, &joules);
        add(Source::Gpu(gpu), Quantity::UtilizationGpu, &|ms| if watts(ms) > 500.0 { 90.0 } else { 10.0 });
        add(Source::Gpu(gpu), Quantity::UtilizationMemory, &|_| 40.0);
        add(Source::Gpu(gpu), Quantity::MemoryUsed, &|ms| f64::from(gpu + 1) * 1e9 + real(ms));
    }
    add(Source::Host, Quantity::WorkerCpuTime, &|ms| real(ms) * 2.0 / 1e3);
    add(Source::Host, Quantity::WorkerMemory, &|ms| 5e8 - real(ms));
    observed
}

fn eight_cores() -> Table {
    [("cpu.logical_cores".to_owned(), 8i64.into())].into()
}

#[test]
fn ranks_that_wait_for_slower_ones_draw_at_least_idle_power() {
    let mut two = attempt(2);
    let of = |rank, name: &str, start_ms, stop_ms| Phase { rank, ..phase(name, 15, start_ms, stop_ms) };
    two.phases.extend([of(0, "all_reduce", 34_100, 34_250), of(1, "all_reduce", 34_200, 34_240)]);
    let completed = Completed::of(&two, &[], Table::new());
    completed.assert_near("all_reduce_time", 0.05, 1e-12);
    completed.assert_near("all_reduce_exposed", (0.15 + 0.04) / 2.0, 1e-12);
    completed.assert_near("straggler_spread", 0.1, 1e-12);
    // A GPU that draws 120 W when idle waits for 0.1 s in each of 20 steps.
    completed.assert_near("wait_energy", 240.0, 1e-6);
    assert!(completed.metrics["wait_energy"].uncertainty.is_some_and(|half_width| half_width >= 0.05 * 240.0));
    two.phases.retain(|phase| phase.name != "idle");
    assert_eq!(Completed::of(&two, &[], Table::new()).reason("wait_energy"), "the worker reported no phase `idle`");
    assert!(!Completed::of(&attempt(2), &[], Table::new()).metrics.contains_key("wait_energy"));
    let alone = Completed::of(&attempt(1), &[], Table::new());
    assert!(!alone.metrics.contains_key("all_reduce_time"));
}

#[test]
fn stages_without_work_draw_at_least_idle_power() {
    let mut two = attempt(2);
    let of = |rank, name: &str, start_ms, stop_ms| Phase { rank, ..phase(name, 15, start_ms, stop_ms) };
    two.phases.retain(|phase| !(phase.index == 15 && ["forward", "backward"].contains(&phase.name.as_str())));
    two.phases.extend([
        of(0, "forward", 34_000, 34_020),
        of(1, "forward", 34_000, 34_030),
        of(1, "wait", 34_000, 34_010),
        of(1, "backward", 34_030, 34_050),
        of(0, "backward", 34_020, 34_060),
        of(0, "wait", 34_020, 34_040),
    ]);
    let completed = Completed::of(&two, &[], Table::new());
    completed.assert_near("bubble_fraction", 1.0 / 3.0, 1e-12);
    completed.assert_near("straggler_spread", 0.01, 1e-12);
    // Each of two GPUs, which draw 120 W when idle, waits for 0.02 s in each of 20 steps.
    completed.assert_near("wait_energy", 2.0 * 120.0 * 0.02 * 20.0, 1e-6);
    assert!(!completed.metrics.contains_key("all_reduce_time"));
}

#[test]
fn the_warm_up_is_left_out() {
    let mut durations = vec![Some(9 * S); 10];
    durations.extend([Some(2 * S); 90]);
    let completed = Completed::of(&observed(&durations), &[], Table::new());
    assert_eq!(completed.metrics["step_time"], Metric::new(2.0, "s"));
    assert_eq!(completed.metrics["throughput"], Metric::new(4.0, "samples/s"));
    assert_eq!(completed.metrics["loss"], Metric::new(0.5, ""));
    assert_eq!(completed.metrics["warmup_time"], Metric::new(90.0, "s"));
    assert_eq!(completed.facts["measure.warmup_steps"], 10i64.into());
    assert_eq!(completed.facts["measure.samples_per_step"], 8i64.into());
    assert!(completed.facts["measure.rule"].as_str().unwrap().contains("first 10 of 100 logged training steps"));
    assert!(completed.metrics["cpu_time"].reason.is_some());
}

#[test]
fn without_durations_the_times_between_steps_count() {
    let completed = Completed::of(&observed(&[None, None, None]), &[], Table::new());
    assert_eq!(completed.metrics["step_time"], Metric::new(1.0, "s"));
    assert!(!completed.metrics.contains_key("warmup_time"), "no step of three is warm-up");
}

#[test]
fn energies_leave_warm_up_and_evaluation_out() {
    let completed = Completed::of(&attempt(1), &[("tokens_per_sample", 16.0, "")], eight_cores());
    completed.assert_near("train_time", 10.0, 1e-9);
    completed.assert_near("epoch_time", 5.0, 1e-9);
    completed.assert_near("warmup_time", 20.0, 1e-9);
    completed.assert_near("power_mean", 600.0, 1e-6);
    completed.assert_near("power_idle", 120.0, 1e-6);
    completed.assert_near("energy", 6_000.0, 1e-6);
    completed.assert_near("energy_net", 4_800.0, 1e-6);
    completed.assert_near("energy_total", 600.0 + 4_000.0 + 5_400.0 + 1_800.0, 1e-6);
    completed.assert_near("energy_per_epoch", 3_000.0, 1e-6);
    completed.assert_near("energy_per_sample", 6_000.0 / 640.0, 1e-6);
    completed.assert_near("energy_per_token", 6_000.0 / 640.0 / 16.0, 1e-6);
    completed.assert_near("edp", 60_000.0, 1e-6);
    completed.assert_near("edp_per_sample", 60_000.0 / 640.0 / 640.0, 1e-9);
    for name in ["energy", "energy_net", "energy_total", "energy_per_token", "edp", "power_mean", "power_idle"] {
        let metric = &completed.metrics[name];
        let relative = metric.uncertainty.unwrap() / metric.value.unwrap();
        assert!((0.05..0.3).contains(&relative), "{name}: {relative}");
    }
    completed.assert_near("gpu_util", 90.0, 0.05);
    completed.assert_near("gpu_mem_util", 40.0, 1e-9);
    completed.assert_near("gpu_mem_peak", 1e9 + 40_000.0, 1e-9);
    completed.assert_near("cpu_util", 25.0, 1e-9);
    completed.assert_near("host_mem_peak", 5e8, 1e-9);
    assert_eq!(completed.fact("energy.training.gpu.0.method"), "counter".into());
    assert_eq!(completed.fact("energy.idle.all.coverage"), 1.0.into());
    assert_eq!(completed.facts["telemetry.marks"], Value::List(vec![]));
    assert_eq!(completed.warnings, [""; 0]);
    for (name, metric) in &completed.metrics {
        let known = known_metric(name);
        assert!(known.is_some_and(|known| known.unit == metric.unit) || name == "tokens_per_sample", "{name}");
    }
}

#[test]
fn an_idle_gpu_next_to_a_working_one_causes_a_warning() {
    let mut two = attempt(2);
    let name = Source::Gpu(1).series(Quantity::UtilizationGpu);
    let mut resting = Series::new(name.clone(), "%", Axis::TimeNs);
    (0..=400).for_each(|i| resting.push(i * 100 * MS, 2.0));
    two.telemetry.insert(name, resting);
    let completed = Completed::of(&two, &[], Table::new());
    assert_eq!(completed.fact("utilization.gpu.1"), 2.0.into());
    let warning = "GPU 1 ran kernels in 2.0% of the training's time, GPU 0 in 89.1%: does it take part?";
    assert_eq!(completed.warnings, [warning]);
}

#[test]
fn a_working_gpu_that_is_slower_than_another_causes_a_warning() {
    let clocked = |clocks: [f64; 2], used: f64| {
        let mut two = attempt(2);
        let mut put = |rank: u32, quantity: Quantity, unit: &str, value: f64| {
            let name = Source::Gpu(rank).series(quantity);
            let mut series = Series::new(name.clone(), unit, Axis::TimeNs);
            (0..=400).for_each(|i| series.push(i * 100 * MS, value));
            two.telemetry.insert(name, series);
        };
        put(0, Quantity::ClockSm, "MHz", clocks[0]);
        put(1, Quantity::ClockSm, "MHz", clocks[1]);
        put(1, Quantity::UtilizationGpu, "%", used);
        Completed::of(&two, &[], Table::new())
    };
    let slow = clocked([1_867.0, 1_756.0], 95.0);
    let mean = |name: &str| slow.fact(name).as_float().map(f64::round);
    assert_eq!([mean("clock_sm.gpu.0"), mean("clock_sm.gpu.1")], [Some(1_867.0), Some(1_756.0)]);
    let [warning] = slow.warnings.as_slice() else { panic!("{:?}", slow.warnings) };
    assert!(warning.starts_with("the clock of GPU 1 was 1756 MHz in the training's mean, that of GPU 0 1867 MHz: "));
    assert_eq!(clocked([1_980.0, 1_963.0], 95.0).warnings, [""; 0], "as far apart as cards are");
    let resting = clocked([1_980.0, 345.0], 2.0).warnings;
    assert!(resting.len() == 1 && resting[0].contains("does it take part?"), "{resting:?}");
}

#[test]
fn two_gpus_draw_twice_as_much() {
    let (one, two) = (Completed::of(&attempt(1), &[], eight_cores()), Completed::of(&attempt(2), &[], eight_cores()));
    for name in ["energy", "energy_total", "energy_net", "power_mean", "edp"] {
        two.assert_near(name, 2.0 * one.value(name), 1e-9);
        let (a, b) = (one.metrics[name].uncertainty.unwrap(), two.metrics[name].uncertainty.unwrap());
        assert!(b <= 2.0 * a + 1e-6 && b > 1.4 * a, "{name}: {a} and {b}");
    }
    two.assert_near("gpu_util", one.value("gpu_util"), 1e-9);
    two.assert_near("gpu_mem_peak", 2e9 + 40_000.0, 1e-9);
    assert_eq!(two.fact("utilization.gpu.1"), two.fact("utilization.gpu.0"));
    assert_eq!((two.warnings.clone(), one.facts.contains_key("utilization")), (Vec::new(), false));
    assert_eq!(two.fact("energy.training.gpu.1.joules"), two.fact("energy.training.gpu.0.joules"));
}

#[test]
fn missing_metrics_have_a_reason() {
    let mut blind = attempt(1);
    blind.telemetry.clear();
    let completed = Completed::of(&blind, &[], Table::new());
    for name in ["energy", "energy_total", "power_mean", "edp", "gpu_util", "gpu_mem_peak", "cpu_util", "host_mem_peak"]
    {
        assert_eq!(completed.reason(name), "no hardware samples");
    }
    assert!(!completed.facts.contains_key("telemetry.marks") && !completed.facts.contains_key("energy"));
    blind.telemetry_hz = Some(0.0);
    let off = Completed::of(&blind, &[], Table::new());
    assert_eq!(off.reason("energy"), "telemetry is off (`telemetry.hz` = 0)");
    assert!(!off.metrics.contains_key("energy_per_token"), "no tokens were told of");

    let mut bare = attempt(1);
    bare.phases.clear();
    bare.samples_per_step = None;
    let completed = Completed::of(&bare, &[], eight_cores());
    assert_eq!(completed.reason("energy_net"), "the worker reported no phase `idle`");
    assert_eq!(completed.reason("power_idle"), "the worker reported no phase `idle`");
    assert_eq!(completed.reason("energy_per_epoch"), "the worker reported no epoch");
    assert_eq!(completed.reason("energy_per_sample"), "the worker did not report the number of samples per step");
    assert!(completed.value("energy") > 0.0 && completed.value("edp") > 0.0);
    bare.steps = Steps::default();
    bare.ended = false;
    let completed = Completed::of(&bare, &[], Table::new());
    assert!(completed.reason("energy").ends_with("the time of its training is unknown"));
    assert_eq!(completed.reason("cpu_util"), completed.reason("gpu_util"));
    assert_eq!(completed.reason("energy_total"), "the attempt's end was not observed");
    assert_eq!(completed.reason("edp"), completed.reason("energy"));
    assert!(!completed.metrics.contains_key("wall_time"));
    let stated = Completed::of(&bare, &[("energy", 5_000.0, "J")], Table::new());
    assert_eq!(stated.reason("edp"), "the training has no time");

    let mut short = attempt(1);
    short.steps = short.steps.iter().take(3).collect();
    short.phases = vec![phase("epoch", 1, 5_000, 5_003)];
    let completed = Completed::of(&short, &[], eight_cores());
    assert_eq!(
        completed.reason("energy"),
        "the training lasts 3 ms, but power is read every 100 ms, and twice that is needed"
    );
    assert_eq!(
        completed.reason("gpu_util"),
        "the training lasts 3 ms, but utilization is read every 100 ms, and twice that is needed"
    );
}

#[test]
fn without_gpus_the_packages_are_measured() {
    let mut cpu = attempt(0);
    let completed = Completed::of(&cpu, &[], eight_cores());
    assert_eq!(completed.reason("energy"), "no GPU is used and the processor's energy counter cannot be read");
    assert!(!completed.metrics.keys().any(|name| name.starts_with("gpu_")));
    for package in 0..2u32 {
        let mut series = Series::new(Source::Package(package).series(Quantity::Energy), "J", Axis::TimeNs);
        (0..=400u32).for_each(|i| series.push(u64::from(i) * 100 * MS, 15.0 * f64::from(i)));
        cpu.telemetry.insert(series.name.clone(), series);
    }
    let completed = Completed::of(&cpu, &[], eight_cores());
    completed.assert_near("energy", 3_000.0, 1e-6);
    assert!(completed.value("energy_net").abs() < 1e-3, "it drew as much while idle");
    completed.assert_near("energy_total", 12_000.0, 1e-6);
    assert_eq!(completed.fact("energy.training.package.1.method"), "counter".into());
}

#[test]
fn faults_of_the_telemetry_are_marked_and_cause_warnings() {
    let mut bad = attempt(1);
    let energy = bad.telemetry.get_mut("gpu.0.energy").unwrap();
    let still = energy.values[280];
    energy.values.iter_mut().skip(280).for_each(|joules| *joules = still);
    for name in ["gpu.0.energy", "gpu.0.power_instant"] {
        let series = bad.telemetry.get_mut(name).unwrap();
        series.positions.drain(100..120);
        series.values.drain(100..120);
    }
    let completed = Completed::of(&bad, &[], eight_cores());
    let marks = Value::List(vec!["frozen_counter".into(), "gap".into()]);
    assert_eq!(completed.facts["telemetry.marks"], marks);
    assert_eq!(
        completed.warnings,
        [
            "GPU 0 was not read for 2.1 s in all (gaps: 1)",
            "the energy counter of GPU 0 stood still while power was drawn; its power samples were integrated instead",
        ]
    );
    assert_eq!(completed.fact("energy.training.gpu.0.method"), "integrated power_instant".into());

    let mut apart = attempt(1);
    apart.telemetry.get_mut("gpu.0.energy").unwrap().values.iter_mut().for_each(|joules| *joules *= 1.08);
    let completed = Completed::of(&apart, &[], eight_cores());
    assert_eq!(completed.facts["telemetry.marks"], Value::List(vec!["disagreement".into()]));
    // The training after its warm-up lasts 9 s, too short for a comparison; the attempt lasts 40 s.
    let expected = "the energy counter of GPU 0 is +7.9% off its integrated power over 40 s (attempt)";
    assert_eq!(completed.warnings, [expected]);
}

#[test]
fn a_gpu_without_readings_is_marked_and_has_no_utilization() {
    let read = |from: usize, to: usize| {
        let mut silent = attempt(1);
        for series in silent.telemetry.values_mut().filter(|series| series.name.starts_with("gpu.")) {
            series.positions = series.positions[from..to].to_vec();
            series.values = series.values[from..to].to_vec();
        }
        let why = ("telemetry.unread.gpu.0.power_instant".to_owned(), "NVML says: unknown error".into());
        Completed::of(&silent, &[], [why].into())
    };
    let completed = read(0, 280);
    assert_eq!(completed.facts["telemetry.marks"], Value::List(vec!["gap".into()]));
    let warning = "GPU 0 was not read for 12 s in all (gaps: 1): NVML says: unknown error";
    assert_eq!(completed.warnings, [warning]);
    assert_eq!(completed.reason("tensor_active"), "`gpu.0.tensor_active` was not read");
    for name in ["gpu_util", "gpu_mem_util"] {
        let reason = completed.reason(name);
        assert!(reason.starts_with("the training has samples of utilization for only 32% of its time"), "{reason}");
    }
    assert!(completed.reason("energy").starts_with("the training has samples of power for only 32% of its time"));
    assert_eq!(read(30, 401).warnings, ["GPU 0 was not read for 3 s in all (gaps: 1): NVML says: unknown error"]);
    assert_eq!(read(3, 398).warnings, [""; 0], "as late as a reading may be");
}

#[test]
fn answers_have_a_median_and_a_tail() {
    let mut answering = observed(&[]);
    let batch = |i: u64| phase("inference", i, 100 * i, 100 * i + i);
    answering.phases = (1..=99).map(batch).collect();
    let completed = Completed::of(&answering, &[], Table::new());
    completed.assert_near("inference_time", 0.050, 1e-9);
    assert_eq!(completed.reason("inference_p99"), "99 batches were answered, and a 99th percentile needs 100");
    answering.phases.push(batch(100));
    Completed::of(&answering, &[], Table::new()).assert_near("inference_p99", 0.099, 1e-9);
    answering.phases.clear();
    assert!(!Completed::of(&answering, &[], Table::new()).metrics.contains_key("inference_p99"));
}

#[test]
fn answers_to_batches_of_several_sizes_are_measured_apart() {
    let mut answering = attempt(1);
    let of_size = |rows: u64, start: u64, each: u64| {
        let answer = move |i: u64| phase("inference", i, start + 2 * each * i, start + 2 * each * i + each);
        std::iter::once(phase("inference_batch", rows, start, start + 2 * each * 4)).chain((0..4).map(answer))
    };
    answering.phases.extend(of_size(8, 15_500, 400));
    answering.phases.extend(of_size(1, 19_500, 600));
    let completed = Completed::of(&answering, &[("inference_batch_size", 8.0, "")], eight_cores());
    for (name, expected) in [
        ("inference_time", 0.4),
        ("inference_time@8", 0.4),
        ("inference_time@1", 0.6),
        ("inference_sample_time@8", 0.05),
        ("inference_sample_time@1", 0.6),
    ] {
        completed.assert_near(name, expected, 1e-9);
    }
    assert!(completed.reason("inference_p99@1").starts_with("4 batches were answered"));
    // If ranks share gradients, only the first answers, even in runs too short for a step with phases. Stages of a
    // pipeline answer together.
    let energy = |ranks_exchange: bool, told: &[(&str, Value)]| {
        let mut two = Observed { phases: answering.phases.clone(), ..attempt(2) };
        if ranks_exchange {
            let of = |rank| Phase { rank, ..phase("all_reduce", 15, 34_100, 34_200) };
            two.phases.extend([of(0), of(1)]);
        }
        let mut facts = eight_cores();
        facts.extend(told.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Completed::of(&two, &[("inference_batch_size", 8.0, "")], facts).value("inference_energy@8")
    };
    let ranks = ("worker.ranks", Value::Int(2));
    let shared = [ranks.clone(), ("worker.batch_global", Value::Int(16))];
    let staged = [ranks.clone(), ("worker.stages", "0-6, 7-13".into())];
    for (one, found) in [("exchange", energy(true, &[])), ("ranks", energy(false, &shared))] {
        assert!((found - 10.0).abs() < 0.5, "{one}: {found}");
    }
    let own = std::slice::from_ref(&ranks);
    for (both, found) in
        [("none", energy(false, &[])), ("another's", energy(false, own)), ("stages", energy(false, &staged))]
    {
        assert!((found - 20.0).abs() < 1.0, "{both}: {found}");
    }
    // The GPU draws as much for one row as for eight.
    for (name, joules) in [("inference_energy", 10.0), ("inference_energy@8", 10.0), ("inference_energy@1", 120.0)] {
        completed.assert_near(name, joules, 0.05);
    }
}

#[test]
fn rates_follow_from_a_model_s_stated_figures() {
    let stated =
        [("inference_batch_size", 4.0, ""), ("flops_per_sample", 2e9, "FLOP"), ("matmul_tflops", 100.0, "TFLOP/s")];
    let mut observed = attempt(1);
    observed.phases.extend([
        phase("data", 3, 10, 40),
        phase("data", 6, 100, 120),
        phase("inference", 1, 40_000, 40_100),
    ]);
    let completed = Completed::of(&observed, &stated, eight_cores());
    completed.assert_near("inference_sample_time", completed.value("inference_time") / 4.0, 1e-12);
    completed.assert_near("achieved_tflops", 2e9 * completed.value("throughput") / 1e12, 1e-12);
    completed.assert_near("mfu", completed.value("achieved_tflops"), 1e-12);
    // The peak was measured on one of the two GPUs.
    let two = Completed::of(&Observed { gpus: 2, ..attempt(2) }, &stated, eight_cores());
    two.assert_near("mfu", two.value("achieved_tflops") / 2.0, 1e-12);
    completed.assert_near("data_time", 0.025, 1e-12);
    let silent = Completed::of(&observed, &[], eight_cores());
    for name in ["inference_sample_time", "inference_energy", "achieved_tflops", "mfu"] {
        assert!(!silent.metrics.contains_key(name), "{name}");
    }
}

#[test]
fn the_slowest_of_twenty_steps_is_no_percentile_of_fewer() {
    let step = |n: u64| Timed { step: n, t_ns: 100 * n, duration_ns: Some(n) };
    let mut steps = Observed { steps: (1..=24).map(step).collect(), ..Observed::default() };
    // Two of 24 steps are warm-up. Of the other 22, the 21st is the first that 95% do not exceed.
    Completed::of(&steps, &[], Table::new()).assert_near("step_time_p95", 23e-9, 1e-9);
    steps.steps = steps.steps.iter().take(20).collect();
    assert!(!Completed::of(&steps, &[], Table::new()).metrics.contains_key("step_time_p95"));
}

#[test]
fn a_time_that_nobody_measured_is_no_zero() {
    let step = |step: u64| Timed { step, t_ns: 300 * MS, duration_ns: None };
    let together = Observed {
        steps: (1..=100).map(step).collect(),
        phases: ["data", "inference", "epoch"].map(|name| phase(name, 1, 300, 300)).to_vec(),
        samples_per_step: Some(8),
        ended: true,
        wall_ns: S,
        ..Observed::default()
    };
    let completed = Completed::of(&together, &[], Table::new());
    for name in
        ["step_time", "step_time_p95", "throughput", "warmup_time", "epoch_time", "train_time", "inference_time"]
    {
        assert!(completed.reason(name).contains("`t_ns`"), "{name}: {}", completed.reason(name));
    }
    for name in ["data_time", "inference_sample_time", "inference_p99"] {
        assert!(!completed.metrics.contains_key(name), "{name}");
    }
    assert!(completed.reason("cpu_util").contains("`t_ns`"), "{}", completed.reason("cpu_util"));
}

#[test]
fn the_manual_names_every_metric_with_its_unit() {
    let manual = include_str!("../../../docs/metrics.md");
    for metric in KNOWN_METRICS {
        let unit = if metric.unit.is_empty() { "–" } else { metric.unit };
        let row = format!("| `{}` | {unit} | {} | {} |", metric.name, metric.direction.name(), metric.kind().name());
        assert!(manual.contains(&row), "docs/metrics.md lacks the row {row}");
    }
    let rows = manual.lines().filter(|line| line.starts_with("| `") && line.contains("mize | ")).count();
    assert_eq!(rows, KNOWN_METRICS.len(), "the manual has rows of metrics that there are not");
}

#[test]
fn a_worker_that_logs_every_fifth_step_has_the_energy_of_all_of_them() {
    let every = Completed::of(&attempt(1), &[("tokens_per_sample", 16.0, "")], eight_cores());
    let mut observed = attempt(1);
    observed.steps = observed.steps.iter().filter(|step| step.step % 5 == 0).collect();
    let fifth = Completed::of(&observed, &[("tokens_per_sample", 16.0, "")], eight_cores());
    // So few steps have no warm-up, so the energies differ, but both are of 20 steps.
    for completed in [every, fifth] {
        let samples = 20.0 * 32.0;
        assert_eq!(completed.value("energy_per_sample"), completed.value("energy") / samples);
        assert_eq!(completed.value("energy_per_token"), completed.value("energy") / samples / 16.0);
    }
}

#[test]
fn samples_are_those_of_the_training_and_the_last_step_of_a_pass_has_the_rest() {
    let samples = |observed: &Observed| {
        let completed = Completed::of(observed, &[], eight_cores());
        completed.value("energy") / completed.value("energy_per_sample")
    };
    // Two passes of ten steps, of which the last has 12 of 32.
    let passes = Observed { samples_of_a_pass: Some(300), ..attempt(1) };
    assert!((samples(&passes) - 600.0).abs() < 1e-6, "{}", samples(&passes));
    // Two steps of 600 samples, in a pass of 1,000 samples.
    let mut short = attempt(1);
    short.steps =
        [15, 25].map(|at| Timed { step: (at - 5) / 10, t_ns: at * S, duration_ns: Some(10 * S) }).into_iter().collect();
    short.phases = vec![phase("epoch", 1, 5_000, 25_000)];
    (short.samples_per_step, short.samples_of_a_pass) = (Some(600), Some(1_000));
    assert!((samples(&short) - 1_000.0).abs() < 1e-6, "{}", samples(&short));
    // A run that is stopped in the second epoch has the energy of the first one, of ten steps.
    let mut stopped = attempt(1);
    stopped.phases[3].stop_ns = None;
    assert!((samples(&stopped) - 320.0).abs() < 1e-6, "{}", samples(&stopped));
    stopped.phases[1] = phase("epoch", 1, 37_500, 39_000);
    let reason = Completed::of(&stopped, &[("energy", 5.0, "J")], eight_cores()).reason("energy_per_sample").to_owned();
    assert_eq!(reason, "no step lies in an epoch");
}

#[test]
fn an_epoch_that_was_cut_short_is_in_no_mean_of_epochs() {
    // Two epochs of ten steps of 32, where a pass has twelve steps.
    let of = |of_a_pass| Observed { samples_of_a_pass: of_a_pass, ..attempt(1) };
    let whole = Completed::of(&of(None), &[], eight_cores());
    let cut = Completed::of(&of(Some(12 * 32)), &[], eight_cores());
    let ratio = cut.value("energy_per_epoch") / whole.value("energy_per_epoch");
    assert!((ratio - 1.2).abs() < 1e-9, "{ratio}");
    let only = Completed::of(&of(Some(100 * 32)), &[], eight_cores());
    assert_eq!(only.value("energy_per_epoch"), whole.value("energy_per_epoch"), "two epochs are no part of one pass");
    let mut one = of(Some(100 * 32));
    one.phases.retain(|phase| phase.name != "epoch");
    one.phases.insert(0, phase("epoch", 1, 5_000, 40_000));
    let one = Completed::of(&one, &[], eight_cores());
    for metric in ["energy_per_epoch", "epoch_time"] {
        assert!(one.reason(metric).starts_with("its only epoch was cut short"), "{metric}");
    }
}

#[test]
fn processor_time_needs_samples_of_nine_tenths_of_the_training() {
    let util = |read_until: u64| {
        let mut series = Series::new(Source::Host.series(Quantity::WorkerCpuTime), "s", Axis::TimeNs);
        let read = (0..=140).map(|i| 100 * i).filter(|ms| *ms <= read_until || *ms > 9_200);
        read.for_each(|ms| series.push(ms * MS, real(ms) / 1e3));
        let facts = eight_cores();
        let given = vec![series];
        let hardware = Hardware::new(&given, &facts, 0, Some(10.0));
        // These eight of a hundred parts are too short for the readings.
        let slivers = (0..8).map(|i| (10_000 + 400 * i, 10_100 + 400 * i));
        let windows = Windows::new([(0, 9_200)].into_iter().chain(slivers).map(|(from, to)| (from * MS, to * MS)));
        cpu_util(&hardware, &facts, &windows)
    };
    assert_eq!(util(9_200), Ok(12.5));
    assert_eq!(util(8_400), Err("the training has too few samples of the worker's processor time".to_owned()));
}

mod stated;
