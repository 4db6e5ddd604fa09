//! Metrics that a worker states, and those that follow from them.

use super::*;

#[test]
fn metrics_that_the_worker_states_are_kept() {
    let stated = [("loss", 7.0, ""), ("train_time", 100.0, "s"), ("energy_total", 3.0, "J")];
    let completed = Completed::of(&attempt(1), &stated, Table::new());
    for (name, value, _) in stated {
        assert_eq!(completed.value(name), value);
    }
    assert_eq!(completed.value("edp"), completed.value("energy") * 100.0);
    assert!(!Completed::of(&observed(&[None]), &[], Table::new()).metrics.contains_key("step_time"));
}

/// The metrics of an attempt whose worker states some of them.
fn stating(stated: &[(&str, f64)]) -> Completed {
    let stated: Vec<(&str, f64, &str)> =
        stated.iter().map(|(name, value)| (*name, *value, known_metric(name).map_or("", |known| known.unit))).collect();
    Completed::of(&attempt(1), &stated, Table::new())
}

#[test]
fn metrics_that_follow_from_energy_use_the_stated_one() {
    let completed = stating(&[("energy", 5_000.0), ("power_idle", 10.0), ("tokens_per_sample", 16.0)]);
    completed.assert_near("energy_net", 5_000.0 - 10.0 * completed.value("train_time"), 1e-12);
    completed.assert_near("energy_per_epoch", 2_500.0, 1e-12);
    completed.assert_near("energy_per_sample", 5_000.0 / 640.0, 1e-12);
    completed.assert_near("energy_per_token", 5_000.0 / 640.0 / 16.0, 1e-12);
    completed.assert_near("edp", 5_000.0 * completed.value("train_time"), 1e-12);
    for name in ["energy_net", "energy_per_epoch", "energy_per_sample", "energy_per_token", "edp"] {
        assert_eq!(completed.metrics[name].uncertainty, None, "nobody said how far {name} may be off");
    }
    completed.assert_near("power_mean", 600.0, 1e-6);
    let timed = stating(&[("energy", 5_000.0), ("train_time", 0.005)]);
    completed_edp(&timed, 25.0);
    // Idle power was measured, with an uncertainty of about 5%.
    timed.assert_near("energy_net", 5_000.0 - 120.0 * 0.005, 1e-6);
    assert!(timed.metrics["energy_net"].uncertainty.is_some_and(|half_width| half_width < 0.05));
    let each = stating(&[("energy_per_sample", 2.0), ("tokens_per_sample", 4.0)]);
    completed_edp(&each, each.value("energy") * each.value("train_time"));
    each.assert_near("energy_per_token", 0.5, 1e-12);
}

#[test]
fn metrics_that_follow_from_power_or_time_use_the_stated_one() {
    let powered = stating(&[("power_mean", 100.0)]);
    powered.assert_near("energy", 1_000.0, 1e-9);
    assert_eq!(powered.metrics["energy"].uncertainty, None);
    // The energy is over the computed time; only the product uses the stated one.
    let timed = stating(&[("train_time", 100.0)]);
    timed.assert_near("energy", 6_000.0, 1e-6);
    timed.assert_near("energy_net", 4_800.0, 1e-6);
    completed_edp(&timed, timed.value("energy") * 100.0);
    let stepped = stating(&[("step_time", 0.1), ("flops_per_sample", 2e9), ("matmul_tflops", 1.28)]);
    stepped.assert_near("throughput", 320.0, 1e-12);
    stepped.assert_near("achieved_tflops", 0.64, 1e-12);
    stepped.assert_near("mfu", 50.0, 1e-12);
    let rated = stating(&[("throughput", 1_000.0), ("flops_per_sample", 2e9), ("matmul_tflops", 8.0)]);
    rated.assert_near("achieved_tflops", 2.0, 1e-12);
    rated.assert_near("mfu", 25.0, 1e-12);
    stating(&[("achieved_tflops", 1.0), ("matmul_tflops", 8.0)]).assert_near("mfu", 12.5, 1e-12);
    assert!(!stating(&[("step_time", 0.0)]).metrics.contains_key("throughput"));
    let mut answering = attempt(1);
    answering.phases.push(phase("inference", 1, 40_000, 40_100));
    let stated = [("inference_time", 0.3, "s"), ("inference_batch_size", 4.0, "")];
    let of = |answering: &Observed| Completed::of(answering, &stated, Table::new());
    of(&answering).assert_near("inference_sample_time", 0.075, 1e-12);
    // Also if the time of an answer, or the answer itself, was not observed.
    answering.phases.last_mut().unwrap().stop_ns = Some(40_000 * MS);
    of(&answering).assert_near("inference_sample_time", 0.075, 1e-12);
    answering.phases.pop();
    of(&answering).assert_near("inference_sample_time", 0.075, 1e-12);
    assert!(!of(&answering).metrics.contains_key("inference_p99"));
}

fn completed_edp(completed: &Completed, expected: f64) {
    completed.assert_near("edp", expected, 1e-12);
}
