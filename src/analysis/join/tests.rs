use super::*;
use crate::record::{Attempt, Axis, Parts, Run, Series, Table};

fn join(sealed: &Sealed) -> Vec<PhaseRow> {
    super::join(sealed, &sealed.series)
}

const MS: u64 = 1_000_000;

fn sealed(gpus: u32, phases: Vec<Phase>, series: Vec<Series>) -> Sealed {
    let config: Table = [("hardware.gpus".to_owned(), gpus.into())].into();
    let run = Run::new(Parts { config: config.into(), ..Parts::sample() });
    let attempt = Attempt {
        run: run.id,
        wall_ns: 20_000 * MS,
        settings: [("telemetry.hz".to_owned(), 10i64.into())].into(),
        facts: [("measure.samples_per_step".to_owned(), 8i64.into())].into(),
        series: series.iter().map(Series::summary).collect(),
        ..Attempt::sample()
    };
    Sealed { run, attempt, series, phases }
}

fn phase(name: &str, rank: u32, start_ms: u64, stop_ms: u64) -> Phase {
    Phase { name: name.to_owned(), index: 1, rank, start_ns: start_ms * MS, stop_ns: Some(stop_ms * MS) }
}

fn series(source: Source, quantity: Quantity, value: impl Fn(u64) -> f64) -> Series {
    let mut series = Series::new(source.series(quantity), quantity.unit(), Axis::TimeNs);
    (0..=200).for_each(|i| series.push(i * 100 * MS, value(i * 100)));
    series
}

/// Power of 500 W in the first ten seconds and 100 W after them, on each of the GPUs.
fn telemetry(gpus: u32) -> Vec<Series> {
    let watts = |ms: u64| if ms < 10_000 { 500.0 } else { 100.0 };
    (0..gpus)
        .flat_map(|gpu| {
            [
                series(Source::Gpu(gpu), Quantity::PowerInstant, watts),
                series(Source::Gpu(gpu), Quantity::UtilizationGpu, |ms| watts(ms) / 10.0),
            ]
        })
        .collect()
}

#[test]
fn rows_are_sorted_by_rank_whichever_rank_reports_first() {
    let of = |name: &str| [2, 0, 1].map(|rank| phase(name, rank, 0, 9_000));
    let rows = join(&sealed(0, [of("step"), of("forward")].concat(), Vec::new()));
    let order: Vec<(&str, u32)> = rows.iter().map(|row| (row.name.as_str(), row.rank)).collect();
    assert_eq!(order, [("step", 0), ("step", 1), ("step", 2), ("forward", 0), ("forward", 1), ("forward", 2)]);
}

#[test]
fn phases_are_joined_with_their_power() {
    let mut phases = vec![phase("epoch", 0, 0, 10_000)];
    phases.extend((0..40).map(|i| Phase { index: i + 1, ..phase("step", 0, 250 * i, 250 * i + 249) }));
    phases.extend((0..40).map(|i| phase("data", 0, 250 * i, 250 * i + 9)));
    phases.push(phase("eval", 0, 10_000, 19_000));
    let rows = join(&sealed(1, phases, telemetry(1)));
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["epoch", "step", "data", "eval"]);
    let [epoch, step, data, eval] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((epoch.count, epoch.total_s, epoch.share, epoch.gpu), (1, 10.0, 0.5, Some(0)));
    assert_eq!((step.count, step.median_s), (40, 0.249));
    for row in [epoch, step] {
        let energy = row.energy.as_ref().unwrap();
        assert!((energy.watts() - 500.0).abs() < 5.0, "{row:?}");
        assert!((energy.joules - 500.0 * row.total_s).abs() <= energy.half_width());
        assert!((row.joules_per_sample().unwrap() - energy.joules / 320.0).abs() < 1e-9);
        assert!((row.utilization.as_ref().unwrap() - 50.0).abs() < 0.5);
    }
    let reason = "it occurs 40 times, each for about 9 ms, but power is read every 100 ms, and twice that is needed";
    assert_eq!((data.energy.clone(), data.joules_per_sample()), (Err(reason.to_owned()), None));
    assert!(data.utilization.is_err());
    let energy = eval.energy.as_ref().unwrap();
    assert!((energy.joules - 900.0).abs() <= energy.half_width(), "{energy:?}");
    assert_eq!(eval.joules_per_sample(), None);
}

#[test]
fn a_rank_has_its_gpu_and_the_first_also_those_of_ranks_without_phases() {
    let devices = |gpus: u32, ranks: &[u32]| -> Vec<(u32, Option<u32>)> {
        let phases = ranks.iter().map(|rank| phase("epoch", *rank, 0, 9_000)).collect();
        join(&sealed(gpus, phases, telemetry(gpus))).iter().map(|row| (row.rank, row.gpu)).collect()
    };
    assert_eq!(devices(2, &[0, 1]), [(0, Some(0)), (1, Some(1))]);
    assert_eq!(devices(2, &[0]), [(0, Some(0)), (0, Some(1))]);
    assert_eq!(devices(0, &[0]), [(0, None)]);
    assert_eq!(devices(1, &[0, 5]), [(0, Some(0)), (5, None)]);
}

#[test]
fn phases_at_one_time_and_phases_without_telemetry_are_refused() {
    let phases = vec![phase("step", 0, 0, 5_000), phase("step", 0, 100, 5_100)];
    let rows = join(&sealed(1, phases, telemetry(1)));
    assert_eq!(rows[0].energy, Err("several of them overlap in time".to_owned()));
    let rows = join(&sealed(1, vec![phase("epoch", 0, 0, 5_000)], vec![]));
    assert_eq!(rows[0].energy, Err("no hardware samples".to_owned()));
    assert_eq!(rows[0].utilization, Err("no hardware samples".to_owned()));
    assert!(join(&sealed(1, vec![], telemetry(1))).is_empty());
}

#[test]
fn a_phase_that_was_never_stopped_lasts_to_the_end() {
    let open = Phase { stop_ns: None, ..phase("epoch", 0, 12_000, 0) };
    let rows = join(&sealed(1, vec![open], telemetry(1)));
    assert_eq!((rows[0].total_s, rows[0].share), (8.0, 0.4));
}

#[test]
fn without_gpus_the_energy_is_that_of_the_packages() {
    let package = series(Source::Package(0), Quantity::Energy, |ms| real(ms) * 0.065);
    let rows = join(&sealed(0, vec![phase("epoch", 0, 1_000, 9_000)], vec![package]));
    assert!((rows[0].energy.as_ref().unwrap().watts() - 65.0).abs() < 1e-6);
    assert_eq!(rows[0].utilization, Err("no GPU is used".to_owned()));
}

#[test]
fn an_epoch_has_the_samples_of_steps_that_were_not_logged() {
    let mut phases = vec![phase("epoch", 0, 0, 10_000)];
    phases.extend((1..=8).map(|i| Phase { index: 5 * i, ..phase("step", 0, 1250 * i - 250, 1250 * i) }));
    let rows = join(&sealed(1, phases, telemetry(1)));
    assert_eq!((rows[0].samples, rows[1].samples), (Some(320.0), Some(64.0)), "{rows:?}");
}

#[test]
fn the_last_step_of_a_pass_has_the_samples_that_are_left() {
    let mut phases = vec![phase("epoch", 0, 0, 5_000), phase("epoch", 0, 5_000, 10_000)];
    phases.extend((0..4).map(|i| Phase { index: i + 1, ..phase("step", 0, 2_500 * i, 2_500 * i + 2_500) }));
    let mut trained = sealed(1, phases, telemetry(1));
    let mut parts = trained.run.parts.clone();
    parts.config =
        Value::Table([("hardware.gpus".to_owned(), 1i64.into()), ("data.train_count".to_owned(), 10i64.into())].into());
    parts.program = Value::Table([("trainer".to_owned(), "ledger".into())].into());
    trained.run = Run::new(parts);
    let samples: Vec<Option<f64>> = join(&trained).iter().map(|row| row.samples).collect();
    assert_eq!(samples, [Some(20.0); 2], "a step of 8 and one of 2 in each of two passes");
}

#[test]
fn a_rank_beyond_the_gpus_has_no_energy() {
    let rows = join(&sealed(2, vec![phase("epoch", 0, 0, 9_000), phase("epoch", 2, 0, 9_000)], telemetry(2)));
    let last = rows.last().unwrap();
    assert_eq!((last.rank, last.gpu, rows[0].energy.is_ok()), (2, None, true));
    assert_eq!(
        (last.energy.clone(), last.utilization.clone().err()),
        (Err("rank 2 has no GPU".to_owned()), Some("rank 2 has no GPU".to_owned()),)
    );
}

#[test]
fn sums_of_times_saturate() {
    // Twice half of the range would be 0 in a sum that wraps.
    let endless = Phase { stop_ns: Some(1 << 63), ..phase("epoch", 0, 0, 0) };
    let rows = join(&sealed(1, vec![endless.clone(), endless], telemetry(1)));
    assert_eq!((rows[0].count, rows[0].total_s), (2, seconds(u64::MAX)));
    assert_eq!(rows[0].energy, Err("several of them overlap in time".to_owned()));
}
