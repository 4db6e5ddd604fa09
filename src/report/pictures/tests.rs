use super::super::figure::{Drawing, tests::assert_well_formed};
use super::super::telemetry::Telemetry;
use super::super::telemetry::tests::synthetic;
use super::*;
use crate::record::{Axis, Phase, Series};
use crate::report::FigureError;
use proptest::prelude::*;

fn plot_svg(telemetry: &Telemetry) -> Result<String, FigureError> {
    Drawing::default().svg(&readings_figure(telemetry)?)
}

/// Writes the plot to the folder `LEDGER_PLOTS`, if that variable is set, for visual inspection.
fn keep(name: &str, svg: &str) {
    if let Some(dir) = std::env::var_os("LEDGER_PLOTS") {
        std::fs::write(std::path::Path::new(&dir).join(name), svg).unwrap();
    }
}

#[test]
fn a_plot_has_all_labels_and_is_deterministic() {
    let telemetry = synthetic(2);
    let svg = plot_svg(&telemetry).unwrap();
    assert_well_formed(&svg);
    assert_eq!(svg, plot_svg(&telemetry).unwrap());
    keep("two.svg", &svg);
    let ids = format!("run {}, attempt {}", telemetry.run.0.prefix(8), telemetry.attempt.0.prefix(8));
    let titles = [
        "power, W",
        "power by the energy counter, W",
        "clocks, MHz",
        "temperature, °C",
        "memory, GiB",
        "utilisation, %",
    ];
    let others =
        ["mnist_mlp", &ids, "epoch 1", "epoch 2", "eval", "inference", "gpu.1.power_instant", "gpu.0 sw_power_cap"];
    for text in titles.iter().chain(&others) {
        assert!(svg.contains(text), "{text}");
    }
    assert_eq!(svg.matches("seconds since the start").count(), 1);
}

#[test]
fn eight_gpus_have_a_panel_for_each_quantity() {
    let svg = plot_svg(&synthetic(8)).unwrap();
    assert_well_formed(&svg);
    keep("eight.svg", &svg);
    for text in ["power_average, W", "power_instant, W", "gpu.7.power_instant"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn many_short_epochs_and_long_names_fit() {
    let mut telemetry = synthetic(1);
    telemetry.model =
        "a <model> & \"more\"\u{1b}[31m with a name that is so long that no title of any plot can hold it".to_owned();
    telemetry.phases = (0..5000)
        .map(|i| Phase {
            name: "epoch".into(),
            index: i + 1,
            rank: 0,
            start_ns: i * 4_000_000,
            stop_ns: Some(i * 4_000_000 + 3_900_000),
        })
        .collect();
    telemetry.phases.push(Phase { name: "eval".into(), index: 1, rank: 0, start_ns: 19_990_000_000, stop_ns: None });
    let mut loss = Series::new("loss.of.a.worker.that.likes.long.names", "", Axis::Step);
    (1..2000u32).for_each(|step| loss.push(step.into(), 2.3 / f64::from(step).sqrt()));
    telemetry.series.push(loss);
    let svg = plot_svg(&telemetry).unwrap();
    assert_well_formed(&svg);
    keep("many.svg", &svg);
    assert!(svg.contains("epoch 1–5000") && svg.contains("&lt;model&gt;") && svg.contains("step"));
    assert!(svg.matches("<rect").count() < 200, "short epochs are drawn as one");
}

#[test]
fn a_long_series_gives_a_small_file() {
    let mut telemetry = synthetic(0);
    let mut power = Series::new("gpu.0.power_instant", "W", Axis::TimeNs);
    (0..864_000u32).for_each(|tick| power.push(u64::from(tick) * 100_000_000, f64::from(tick % 599 * 7919 % 600)));
    telemetry.series = vec![power];
    telemetry.phases.clear();
    let svg = plot_svg(&telemetry).unwrap();
    keep("day.svg", &svg);
    assert!(svg.len() < 100_000, "{}", svg.len());
}

#[test]
fn a_plot_without_finite_values_is_an_error() {
    let mut telemetry = synthetic(0);
    telemetry.series.clear();
    assert!(matches!(plot_svg(&telemetry), Err(FigureError::Empty(_))));
    let mut diverged = Series::new("gpu.0.power_instant", "W", Axis::TimeNs);
    diverged.push(0, f64::NAN);
    telemetry.series.push(diverged);
    assert!(matches!(plot_svg(&telemetry), Err(FigureError::Empty(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_recorded_values_can_be_drawn(
        points in prop::collection::vec((any::<u64>(), prop::num::f64::ANY), 0..20),
        other in prop::collection::vec((0..3_000_000_000u64, -1.0..1.0), 0..20),
        scale in -320..300i32,
        wall_ns in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        name in prop_oneof![Just("gpu.0.power_instant"), Just("gpu.0.energy"), Just("gpu.0.throttle_reasons"), Just("x")],
        axis in prop_oneof![Just(Axis::Step), Just(Axis::TimeNs)],
    ) {
        let mut telemetry = synthetic(0);
        telemetry.wall_ns = wall_ns;
        let mut wild = Series::new(name, "", axis);
        let mut sorted = points;
        sorted.sort_by_key(|point| point.0);
        sorted.into_iter().for_each(|(position, value)| wild.push(position, value));
        let mut tame = Series::new("gpu.1.temperature", "degC", Axis::TimeNs);
        let mut sorted = other;
        sorted.sort_by_key(|point| point.0);
        sorted.into_iter().for_each(|(position, value)| tame.push(position, 1.0 + value * 10f64.powi(scale)));
        telemetry.series.extend([wild, tame]);
        assert_well_formed(&plot_svg(&telemetry).unwrap());
    }
}
