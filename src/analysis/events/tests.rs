use super::*;
use crate::record::{Attempt, Axis, Parts, Run, Series, Source, Table, Value};

/// A run on one host with two GPUs and two ranks, and the power of both.
fn sealed(phases: Vec<Phase>, facts: Table) -> Sealed {
    let run = Run::new(Parts::sample());
    let power = |gpu, values: &[f64]| Series {
        positions: (0..).map(|at: u64| at * 1_000_000_000).take(values.len()).collect(),
        values: values.to_vec(),
        ..Series::new(Source::Gpu(gpu).series(Quantity::PowerInstant), "W", Axis::TimeNs)
    };
    let series = vec![power(0, &[100.0, 110.0, 120.0, 130.0]), power(1, &[200.0, 210.0, 220.0, 230.0])];
    let attempt = Attempt {
        run: run.id,
        wall_ns: 4_000_000_000,
        facts,
        series: series.iter().map(Series::summary).collect(),
        phases: Phase::digest_all(&phases),
        ..Attempt::sample()
    };
    Sealed { run, attempt, series, phases }
}

fn phase(name: &str, index: u64, rank: u32, start_ms: u64, stop_ms: Option<u64>) -> Phase {
    let ns = |ms: u64| ms * 1_000_000;
    Phase { name: name.to_owned(), index, rank, start_ns: ns(start_ms), stop_ns: stop_ms.map(ns) }
}

#[test]
fn the_warm_up_is_reported_if_steps_are_shown() {
    let names = ["eval", "idle", "inference_batch", "step"];
    let phases = names.map(|name| phase(name, 1, 0, 500, Some(1500))).to_vec();
    let warmed = |steps: i64| sealed(phases.clone(), Table::from([("measure.warmup_steps".to_owned(), steps.into())]));
    let told = |steps, by, event| events_by(&warmed(steps), by, event).unwrap().warmup_steps;
    assert_eq!((told(10, By::Name, None), told(10, By::Host, Some("step"))), (Some(10), Some(10)));
    assert_eq!((told(0, By::Name, None), told(10, By::Name, Some("eval"))), (None, None));
    let mut still = warmed(10);
    still.phases.retain(|phase| phase.name != "step");
    assert_eq!(events_by(&still, By::Name, None).unwrap().warmup_steps, None);
}

#[test]
fn ranks_of_a_run_are_joined_with_their_own_gpu_and_its_readings() {
    let phases = vec![phase("step", 1, 0, 500, Some(2500)), phase("step", 1, 1, 500, Some(1500))];
    let sealed = sealed(phases, Table::from([("host.name".to_owned(), "node7".into())]));
    let gpus = events_by(&sealed, By::Gpu, None).unwrap();
    let seen: Vec<(&str, Option<f64>, Option<f64>)> =
        gpus.rows.iter().map(|row| (row.key.as_str(), row.time_s.value(), row.means[0].sample.value())).collect();
    // Rank 0 from 0.5 to 2.5 s: readings at 1 s and 2 s; rank 1 from 0.5 to 1.5 s: the one at 1 s.
    assert_eq!(seen, [("gpu.0", Some(2.0), Some(115.0)), ("gpu.1", Some(1.0), Some(210.0))]);
    assert_eq!(gpus.counts, (1, 2, 1));
    let power = &gpus.correlations[0];
    assert_eq!((power.n, power.pearson, power.spearman), (2, None, None), "a line goes through any two points");
    let hosts = events_by(&sealed, By::Host, None).unwrap();
    assert_eq!((hosts.rows.len(), hosts.rows[0].key.as_str(), hosts.rows[0].events), (1, "node7", 2));
    assert_eq!(events_by(&sealed, By::Level, None), Err(EventsFault::NoLevels));
}

#[test]
fn a_single_rank_has_all_gpus() {
    let sealed = sealed(vec![phase("step", 1, 0, 1000, Some(2000))], Table::new());
    let names = events_by(&sealed, By::Name, None).unwrap();
    let row = &names.rows[0];
    assert_eq!((row.events, row.sampled), (1, 1));
    assert_eq!((row.means[0].sample.value(), row.means[0].sample.n), (Some(165.0), 2), "115 W and 215 W");
    // From 1 s to 2 s the readings of 1 s are held: 110 J and 210 J.
    assert_eq!((row.energy_j.value(), row.energy_j.n), (Some(320.0), 1), "it took what both took");
    let gpus = events_by(&sealed, By::Gpu, None).unwrap();
    let each: Vec<Option<f64>> = gpus.rows.iter().map(|row| row.energy_j.value()).collect();
    assert_eq!(each, [Some(110.0), Some(210.0)]);
    assert_eq!((row.means[1].sample.value(), row.means[1].nearest.value()), (None, None), "nobody read a temperature");
}

#[test]
fn an_event_has_no_energy_without_one_of_its_gpus() {
    let mut sealed = sealed(vec![phase("step", 1, 0, 1000, Some(2000))], Table::new());
    let temperature = Series {
        positions: vec![0, 1_000_000_000],
        values: vec![40.0, 41.0],
        ..Series::new(Source::Gpu(1).series(Quantity::Temperature), "°C", Axis::TimeNs)
    };
    sealed.series[1] = temperature;
    let names = events_by(&sealed, By::Name, None).unwrap();
    assert_eq!((names.counts.1, names.rows[0].energy_j.value()), (2, None), "the other one took some, too");
    assert_eq!(names.rows[0].means[0].sample.value(), Some(115.0));
}

#[test]
fn unstopped_events_are_counted_apart_and_one_name_may_be_selected() {
    let phases = vec![
        phase("epoch", 1, 0, 0, Some(3000)),
        phase("step", 1, 0, 0, Some(100)),
        phase("step", 2, 0, 200, Some(300)),
        phase("step", 3, 0, 300, None),
    ];
    let sealed = sealed(phases, Table::new());
    let names = events_by(&sealed, By::Name, None).unwrap();
    assert_eq!(names.unstopped, 1);
    let steps = names.rows.iter().find(|row| row.key == "step").unwrap();
    assert_eq!((steps.events, steps.sampled, steps.time_s.value()), (2, 1, Some(0.1)), "one has the reading at 0 s");
    assert_eq!(events_by(&sealed, By::Host, None).unwrap().event.as_deref(), Some("epoch"), "most time in all");
    assert_eq!(events_by(&sealed, By::Host, Some("step")).unwrap().rows[0].events, 2);
    let fault = events_by(&sealed, By::Name, Some("stp")).unwrap_err().to_string();
    assert_eq!(fault, "no event is called `stp` (there are: epoch, step)");
}

#[test]
fn readings_are_averaged_over_all_or_within_the_events_of_a_gpu() {
    let phases = vec![
        phase("step", 1, 0, 0, Some(1000)),
        phase("step", 2, 0, 2500, Some(3000)),
        phase("step", 1, 1, 500, Some(900)),
        phase("eval", 1, 0, 1000, Some(1500)),
        phase("step", 3, 0, 3000, None),
    ];
    let sealed = sealed(phases, Table::new());
    let steps = Beside::new(&sealed, None);
    assert_eq!(steps.event(), Some("step"), "steps take the most time");
    // 1 s and 0.5 s; an event that was never stopped has no length.
    assert_eq!((steps.length_s(0), steps.length_s(1)), (Some(0.75), Some(0.4)));
    // 100 and 110 in the first event, 130 in the second: each event counts once.
    assert_eq!(steps.reading(0, &sealed.series[0]), Some(117.5));
    assert_eq!(steps.reading(1, &sealed.series[1]), None, "no reading from 0.5 to 0.9 s");
    assert_eq!(mean_of_all(&sealed.series[0]), Some(115.0));
    let eval = Beside::new(&sealed, Some("eval"));
    assert_eq!((eval.length_s(0), eval.length_s(1), eval.length_s(7)), (Some(0.5), None, None));
    assert_eq!(steps.name_of(0), None, "a GPU of a run is known by its UUID");
    let mut counter = sealed.series[0].clone();
    counter.name = Source::Gpu(0).series(Quantity::Energy);
    assert_eq!((steps.reading(0, &counter), mean_of_all(&counter)), (None, None), "a counter's readings have no mean");
}

#[test]
fn gpus_of_a_cluster_are_named_by_their_serial_number() {
    let texts = |texts: &[&str]| Value::List(texts.iter().map(|text| (*text).into()).collect());
    let cluster = Table::from([
        ("hosts".to_owned(), texts(&["a", "b"])),
        ("gpu_hosts".to_owned(), Value::List(vec![0i64.into(), 1i64.into()])),
        ("gpu_serials".to_owned(), texts(&["07", "07"])),
        ("gpu_uuids".to_owned(), texts(&["u", "u"])),
    ]);
    let of = |cluster: Table| {
        sealed(vec![phase("Render", 0, 1, 0, Some(2000))], [("cluster".to_owned(), cluster.into())].into())
    };
    let same = of(cluster.clone());
    let beside = Beside::new(&same, Some("Render"));
    assert_eq!((beside.name_of(0).as_deref(), beside.name_of(1).as_deref()), (Some("07 on a"), Some("07 on b")));
    assert_eq!((beside.length_s(0), beside.length_s(1)), (None, Some(2.0)), "it ran on the second host");
    let mut other = cluster;
    other.insert("gpu_serials".to_owned(), texts(&["07", "08"]));
    assert_eq!(Beside::new(&of(other), None).name_of(1).as_deref(), Some("08"));
}
