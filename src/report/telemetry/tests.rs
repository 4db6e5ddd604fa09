use super::*;
use crate::record::Digest;
use insta::assert_snapshot;

const TENTH: u64 = 100_000_000;

fn series(name: &str, unit: &str, value: impl Fn(f64) -> f64, (from, to): (u32, u32)) -> Series {
    let mut series = Series::new(name, unit, Axis::TimeNs);
    // There are no samples between 12 and 15 s.
    for tick in (from..to).filter(|tick| !(120..150).contains(tick)) {
        series.push(u64::from(tick) * TENTH + 1_234, value(f64::from(tick) / 10.0));
    }
    series
}

fn telemetry_text(telemetry: &Telemetry) -> String {
    let mut table = TelemetryTable::new((0, telemetry.wall_ns), None);
    telemetry.series.iter().for_each(|series| table.see(series));
    telemetry.series.iter().for_each(|series| table.add(series));
    table.text(telemetry)
}

/// Twenty seconds of several GPUs: idle, then two epochs with an evaluation after each, sampled at 10 Hz.
pub(in crate::report) fn synthetic(gpus: u32) -> Telemetry {
    let busy = |t: f64| if (2.0..18.0).contains(&t) && !(9.0..10.0).contains(&t) { 1.0 } else { 0.0 };
    let mut all = Vec::new();
    for gpu in 0..gpus {
        let shift = f64::from(gpu) * 7.0;
        let mut put = |name: &str, unit: &str, value: &dyn Fn(f64) -> f64| {
            all.push(series(&format!("gpu.{gpu}.{name}"), unit, value, (0, 200)));
        };
        put("clock_memory", "MHz", &|_| 3201.0);
        put("clock_sm", "MHz", &|t| 345.0 + busy(t) * (1635.0 - shift));
        put("energy", "J", &|t| 1e6 + (126.0 * t + (t.clamp(2.0, 18.0) - 2.0) * (400.0 + shift)).floor());
        put("memory_used", "B", &|t| 6e8 + busy(t) * 9e9 + shift * 1e8);
        put("pcie_rx", "B", &|t| (t * 3e6 + shift).floor());
        put("power_average", "W", &|t| 126.0 + busy(t - 0.8) * (380.0 + shift));
        put("power_instant", "W", &|t| 126.0 + busy(t) * (400.0 + shift + 30.0 * (t * 9.0).sin()));
        put("read_time", "ns", &|t| 3.2e6 + (t * 31.0).sin() * 4e5);
        put("temperature", "degC", &|t| (31.0 + busy(t) * t * 1.4 + shift / 7.0).floor());
        put("throttle_reasons", "", &|t| {
            if busy(t) == 0.0 {
                1.0
            } else if t < 6.0 {
                4.0
            } else if t < 8.0 {
                36.0
            } else {
                0.0
            }
        });
        put("utilization_gpu", "%", &|t| busy(t) * (97.0 - shift));
    }
    all.push(series("host.utilization_cpu", "%", |t| 8.0 + busy(t) * 20.0 * (t * 2.0).cos().abs(), (0, 200)));
    all.push(series("host.worker_cpu_time", "s", |t| t * 1.5, (20, 200)));
    all.push(series("host.worker_memory", "B", |t| 1.2e9 + 4e7 * t, (20, 200)));
    let mut phases = Vec::new();
    for (name, index, start, stop) in [
        ("idle", 1, 0, 20),
        ("epoch", 1, 20, 90),
        ("eval", 1, 90, 100),
        ("epoch", 2, 100, 180),
        ("eval", 2, 180, 188),
        ("inference", 1, 188, 200),
    ] {
        let (start_ns, stop_ns) = (start * TENTH, Some(stop * TENTH));
        phases.push(Phase { name: name.to_owned(), index, rank: 0, start_ns, stop_ns });
    }
    Telemetry {
        run: RunId(Digest::of(b"run")),
        model: "mnist_mlp".to_owned(),
        attempt: AttemptId(Digest::of(b"attempt")),
        wall_ns: 200 * TENTH,
        series: all,
        thinned: Vec::new(),
        part: None,
        unread: vec![("gpu.0.pcie_tx".to_owned(), "the driver does not support it".to_owned())],
        facts: [("telemetry.hz".to_owned(), Value::Int(10)), ("telemetry.cost".to_owned(), Value::Float(0.0031))]
            .into(),
        phases,
    }
}

/// A few points of each kind of series, some of them not finite.
fn short() -> Telemetry {
    let mut telemetry = synthetic(0);
    let mut put = |name: &str, unit: &str, axis: Axis, points: &[(u64, f64)]| {
        let mut series = Series::new(name, unit, axis);
        points.iter().for_each(|(position, value)| series.push(*position, *value));
        telemetry.series.push(series);
    };
    put("gpu.0.energy", "J", Axis::TimeNs, &[(1, 10.5), (1_000_000_001, 110.5), (2_000_000_001, 410.5)]);
    put("gpu.0.throttle_reasons", "", Axis::TimeNs, &[(0, 4.0), (1_500_000_000, 0.0), (2_000_000_000, 0.0)]);
    put(
        "loss",
        "",
        Axis::Step,
        &[(1, 0.1 + 0.2), (2, 1e-7), (3, f64::NAN), (4, f64::INFINITY), (5, f64::NEG_INFINITY)],
    );
    put("odd, \"name\"", "W", Axis::Step, &[]);
    telemetry.series.drain(..3);
    telemetry.wall_ns = 2_000_000_001;
    telemetry
}

#[test]
fn the_table_shows_curves_gaps_and_rates() {
    assert_snapshot!(telemetry_text(&synthetic(1)), @r#"
    attempt ebe1b628 of run a7fceeda (mnist_mlp), took 20.0 s

    SERIES                  AS     UNIT   READINGS     MIN   MEAN    MAX    LAST  0 s TO 20.0 s
    gpu.0.clock_memory      level  MHz         170    3201   3201   3201    3201  ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄      ▄▄▄▄▄▄▄▄▄▄
    gpu.0.clock_sm          level  MHz         170     345   1503   1980     345  ▁▁▁▁██████████████▁▁████      ██████▁▁▁▁
    gpu.0.energy            rate   W           170   125.8  447.6    526   125.8  ▁▁▁▁████████████████████████████████▁▁▁▁
    gpu.0.memory_used       level  GiB         170  0.5588  6.496  8.941  0.5588  ▁▁▁▁██████████████▁▁████      ██████▁▁▁▁
    gpu.0.pcie_rx           rate   MiB/s       170   2.861  2.861  2.861   2.861  ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
    gpu.0.power_average     level  W           170     126  392.9    506     126  ▁▁▁▁▁▃█████████████▅▁▄██      ███████▅▁▁
    gpu.0.power_instant     level  W           170     126    409  555.1     126  ▁▁▁▁██████████████▁▁████      ██████▁▁▁▁
    gpu.0.read_time         level  ms          170     2.8    3.2    3.6   3.565  █▁█▁▇▃▅▄▄▆▂▇▁█▁█▁█▁▇▃▅▄▅      █▁█▁▇▃▆▄▄▄
    gpu.0.temperature       level  °C          170      31  39.66     56      31  ▁▁▁▁▁▂▂▂▂▃▃▃▃▄▄▄▄▄▁▁▅▅▆▆      ██████▁▁▁▁
    gpu.0.throttle_reasons  flags  -           170       -      -      -       -  ████████████████▁▁██▁▁▁▁      ▁▁▁▁▁▁████
    gpu.0.utilization_gpu   level  %           170       0  68.71     97       0  ▁▁▁▁██████████████▁▁████      ██████▁▁▁▁
    host.utilization_cpu    level  %           170       8   16.7     28       8  ▁▁▁▁▃▆█▄▅█▄▄█▅▄█▆▂▁▁▃█▇▂      ▅█▄▄█▅▁▁▁▁
    host.worker_cpu_time    rate   cores       150     1.5    1.5    1.5     1.5      ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
    host.worker_memory      level  GiB         150   1.192  1.506  1.859   1.859      ▁▁▁▁▁▂▂▂▂▃▃▃▃▃▄▄▄▄▅▅      ▆▇▇▇▇█████
    rate: increase of a counter per second, over at least one second

    why clocks were low, by share of the time
      SERIES                  REASONS
      gpu.0.throttle_reasons  idle 29.17%, sw_power_cap 35.71%, sw_thermal 11.9%, none 35.12%

    could not be read
      SERIES         BECAUSE
      gpu.0.pcie_tx  the driver does not support it

    recorded about the sampling
      FACT            VALUE
      telemetry.cost  0.0031
      telemetry.hz    10
    "#);
}

#[test]
fn series_over_steps_have_their_own_table_and_empty_sections_are_left_out() {
    let mut telemetry = short();
    telemetry.facts = Table::new();
    telemetry.unread.clear();
    assert_snapshot!(telemetry_text(&telemetry), @r#"
    attempt ebe1b628 of run a7fceeda (mnist_mlp), took 2.00 s

    SERIES                  AS     UNIT  READINGS  MIN  MEAN  MAX  LAST  0 s TO 2.00 s
    gpu.0.energy            rate   W            3  100   200  300   300  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁████████████████████
    gpu.0.throttle_reasons  flags  -            3    -     -    -     -  ██████████████████████████████▁▁▁▁▁▁▁▁▁▁
    rate: increase of a counter per second, over at least one second

    SERIES       AS     UNIT  READINGS       MIN  MEAN  MAX  LAST  STEP 1 TO 5
    loss         level  -            5  1.000e-7  0.15  0.3    -∞  ██▇▆▅▄▃▂▁▁
    odd, "name"  level  W            0         -     -    -     -

    why clocks were low, by share of the time
      SERIES                  REASONS
      gpu.0.throttle_reasons  sw_power_cap 75%, none 25%
    "#);
    telemetry.series.clear();
    assert_snapshot!(telemetry_text(&telemetry), @r#"
    attempt ebe1b628 of run a7fceeda (mnist_mlp), took 2.00 s
    no hardware samples (`--series` shows series over steps by their names)
    "#);
}

#[test]
fn csv_holds_every_bit() {
    let rows: String = short().series.iter().map(csv_rows).collect();
    assert_snapshot!(format!("{CSV_HEADS}{rows}"), @r#"
    series,unit,axis,position,value
    gpu.0.energy,J,time_s,0.000000001,10.5
    gpu.0.energy,J,time_s,1.000000001,110.5
    gpu.0.energy,J,time_s,2.000000001,410.5
    gpu.0.throttle_reasons,,time_s,0.000000000,4.0
    gpu.0.throttle_reasons,,time_s,1.500000000,0.0
    gpu.0.throttle_reasons,,time_s,2.000000000,0.0
    loss,,step,1,0.30000000000000004
    loss,,step,2,1e-7
    loss,,step,3,NaN
    loss,,step,4,inf
    loss,,step,5,-inf
    "#);
    assert_eq!(csv_field("odd, \"name\""), "\"odd, \"\"name\"\"\"");
}

#[test]
fn the_document_holds_points_figures_and_reasons() {
    let mut telemetry = short();
    telemetry.series.pop();
    assert_snapshot!(crate::wire::to_json_line(&telemetry_value(&telemetry).into()), @r#"{"attempt":"ebe1b628d2c9532c18bc3af49ce460ce6b6a26e0356ad52540699a0d785b1df0","facts":{"telemetry.cost":0.0031,"telemetry.hz":10},"model":"mnist_mlp","run":"a7fceeda275f1d74d7dd05d0139905d286f7fe37b73b0ff295e35c83b36d8c42","series":[{"axis":"time_ns","kind":"counter","name":"gpu.0.energy","positions":[1,1000000001,2000000001],"rate_figures":{"last":300.0,"max":300.0,"mean":200.0,"min":100.0},"unit":"J","values":[10.5,110.5,410.5]},{"axis":"time_ns","kind":"flags","name":"gpu.0.throttle_reasons","positions":[0,1500000000,2000000000],"shares":{"sw_power_cap":0.75},"unit":"","values":[4.0,0.0,0.0]},{"axis":"step","figures":{"last":"-Infinity","max":0.30000000000000004,"mean":0.15000005000000002,"min":1e-7},"kind":"level","name":"loss","positions":[1,2,3,4,5],"unit":"","values":[0.30000000000000004,1e-7,"NaN","Infinity","-Infinity"]}],"unread":{"gpu.0.pcie_tx":"the driver does not support it"},"wall_time_s":2.000000001}"#);
}

#[test]
fn throttle_bits_have_names() {
    assert_eq!([0, 2, 8, 9].map(throttle_reason), ["idle", "sw_power_cap", "display_clocks", "bit_9"]);
}
