//! Tests of event times: the order of events, the position of steps, and the phases in them.

use super::*;
use crate::run;
use crate::sample::{EventLog, cell, linear_cell, run_recorded};
use crate::task::open;
use burn::tensor::Device;
use ledger_record::Cell;

fn line(event: &EventKind) -> String {
    match event {
        EventKind::Plan { steps, epochs, samples_per_step } => format!("plan {steps} {epochs} {samples_per_step}"),
        EventKind::Status { message } => message.clone(),
        EventKind::Phase { name, index, edge } => format!("{name} {index} {edge:?}"),
        EventKind::Step { step, duration_ns, values } => {
            let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
            format!("{} {step} {}", if duration_ns.is_some() { "step" } else { "after" }, names.join(" "))
        }
        EventKind::Metric { name, unit, .. } => format!("metric {name} {unit}"),
        EventKind::Digest { name, .. } => format!("digest {name}"),
        EventKind::Fact { name, .. } => format!("fact {name}"),
        EventKind::Failure { message } => message.clone(),
    }
}

/// Returns the lines from one to another, inclusive.
fn between(lines: &[String], from: &str, to: &str) -> Vec<String> {
    let at = |wanted: &str| lines.iter().position(|line| line == wanted).unwrap_or_else(|| panic!("no `{wanted}`"));
    lines[at(from)..=at(to)].to_vec()
}

#[test]
fn events_come_in_order() {
    let mut cell = cell("softmax");
    cell.config.insert("training.epochs".to_owned(), 4_i64.into());
    cell.settings.insert("telemetry.idle_s".to_owned(), 60.0.into());
    let recorded = run_recorded(&cell).expect("trains");
    let outline: Vec<String> = recorded.events.iter().map(line).collect();
    let beginning = [
        "fact device_name",
        "fact precision",
        "fact kernels",
        "fact rayon_threads",
        "plan 12 4 16",
        "training 7850 parameters on 40 samples",
        "fact inner_every",
        "epoch 1 Start",
        "step 1 loss",
        "step 2 loss",
        "step 3 loss",
        "epoch 1 Stop",
        "eval 1 Start",
        "eval 1 Stop",
        "after 3 eval_loss eval_accuracy",
        "epoch 2 Start",
    ];
    assert_eq!(outline[..beginning.len()], beginning);
    let last_epoch = [
        "epoch 4 Start",
        "data 10 Start",
        "data 10 Stop",
        "forward 10 Start",
        "forward 10 Stop",
        "backward 10 Start",
        "backward 10 Stop",
        "optimizer 10 Start",
        "optimizer 10 Stop",
        "step 10 loss",
        "step 11 loss",
        "step 12 loss",
        "epoch 4 Stop",
        "eval 4 Start",
        "eval 4 Stop",
        "after 12 eval_loss eval_accuracy",
        "metric eval_loss ",
        "metric accuracy ",
        "metric inference_batch_size ",
        "inference 1 Start",
        "inference 1 Stop",
        "inference 2 Start",
    ];
    assert_eq!(between(&outline, "epoch 4 Start", "inference 2 Start"), last_epoch);
    assert_eq!(outline.iter().filter(|line| line.starts_with("optimizer")).count(), 2);
    let answers = outline.iter().filter(|line| line.starts_with("inference")).count();
    // The clock of these tests moves by 150 ms in each answer, and by 100 ms between two of them, which does not count.
    assert_eq!(answers, 2 * 14);
    assert_eq!(outline[outline.len() - 3..], ["metric loss ", "digest weights", "digest data"]);
    assert_eq!(recorded.facts["inner_every"], 10_i64.into());
}

/// Returns every step with a duration: number, begin, end.
fn steps(events: &[(u64, EventKind)]) -> Vec<(u64, u64, u64)> {
    events
        .iter()
        .filter_map(|(t_ns, event)| match event {
            EventKind::Step { step, duration_ns: Some(duration_ns), .. } => Some((*step, t_ns - duration_ns, *t_ns)),
            _ => None,
        })
        .collect()
}

/// Trains as on a device with a queue, but on the CPU.
fn queued(cell: &Cell, stop: &AtomicBool) -> Vec<(u64, EventKind)> {
    let log = EventLog::default();
    let spec = Spec::read(cell).expect("valid");
    let place = Place::Device(Device::flex());
    let task = open(&spec, &place).expect("generated");
    fit(ProcessGroup::single(), &spec, task, &place, &log, stop, false).expect("trains");
    log.0.into_inner().expect("no panic")
}

#[test]
fn steps_do_not_overlap_and_inner_phases_lie_in_their_step() {
    let cell = linear_cell("sgd", 0.01);
    let host = EventLog::default();
    run(&cell, false, None, &host, &AtomicBool::new(false)).expect("trains");
    let host = host.0.into_inner().expect("no panic");
    for (events, every) in [(host, 10), (queued(&cell, &AtomicBool::new(false)), 50)] {
        let steps = steps(&events);
        assert_eq!(steps.iter().map(|step| step.0).collect::<Vec<_>>(), (1..=1000).collect::<Vec<_>>());
        assert!(steps.iter().all(|(_, start, stop)| start < stop));
        assert!(steps.windows(2).all(|pair| pair[0].2 <= pair[1].1));
        let mut measured = Vec::new();
        let mut open = None;
        for (t_ns, event) in &events {
            let EventKind::Phase { name, index, edge } = event else { continue };
            if name == "epoch" {
                continue;
            }
            let (_, start, stop) = steps[usize::try_from(*index).expect("small") - 1];
            assert!((start..=stop).contains(t_ns), "{name} {index} at {t_ns}, its step from {start} to {stop}");
            match edge {
                PhaseEdge::Start => assert_eq!(open.replace((name, index)), None),
                PhaseEdge::Stop => {
                    assert_eq!(open.take(), Some((name, index)));
                    measured.push((*index, name.as_str()));
                }
            }
        }
        let expected: Vec<(u64, &str)> = (1..=1000 / every)
            .flat_map(|n| ["data", "forward", "backward", "optimizer"].map(|name| (n * every, name)))
            .collect();
        assert_eq!(measured, expected);
    }
}

#[test]
fn a_device_with_a_queue_is_read_each_step_at_first_and_then_between_measured_steps() {
    let events = queued(&linear_cell("sgd", 0.01), &AtomicBool::new(false));
    // Steps that were read together touch each other. The clock moves between reads.
    let mut batches: Vec<Vec<u64>> = Vec::new();
    let mut last_ns = u64::MAX;
    for (step, start_ns, stop_ns) in steps(&events) {
        match batches.last_mut() {
            Some(batch) if start_ns == last_ns => batch.push(step),
            _ => batches.push(vec![step]),
        }
        last_ns = stop_ns;
    }
    let lengths: Vec<usize> = batches.iter().map(Vec::len).collect();
    assert_eq!(lengths[..5], [1, 1, 1, 6, 1]);
    assert_eq!(lengths[5..11], [39, 1, 49, 1, 49, 1]);
    let outline: Vec<String> = events.iter().map(|(_, event)| line(event)).collect();
    let beginning = [
        "plan 1000 1 4",
        "training 2 parameters on 4 samples",
        "fact inner_every",
        "compiling and tuning kernels for this GPU, which takes minutes once",
        "epoch 1 Start",
        "step 1 loss",
    ];
    assert_eq!(outline[..6], beginning);
    assert!(outline[6].starts_with("first step took 0."), "{}", outline[6]);
    assert_eq!(outline[7..9], ["fact first_step_s", "step 2 loss"]);
}

#[test]
fn a_smaller_batch_is_read_alone() {
    let mut cell = cell("softmax");
    cell.config.insert("training.epochs".to_owned(), 5_i64.into());
    let steps = steps(&queued(&cell, &AtomicBool::new(false)));
    let touching: Vec<u64> = steps.windows(2).filter(|pair| pair[0].2 == pair[1].1).map(|pair| pair[1].0).collect();
    // 16, 16 and 8 samples an epoch; the first three steps and the tenth are read one by one.
    assert_eq!(touching, [5, 8, 14]);
}

/// Both compute p - lr·g in float32, and sum four terms in the same order.
#[test]
fn the_queue_changes_no_bit_of_a_loss() {
    let cell = linear_cell("sgd", 0.01);
    let events = queued(&cell, &AtomicBool::new(false));
    let losses = events.iter().filter_map(|(_, event)| match event {
        EventKind::Step { values, .. } => Some(values[0].1.to_bits()),
        _ => None,
    });
    let host = run_recorded(&cell).expect("trains");
    let expected: Vec<u64> = host.series["loss"].iter().map(|loss| loss.to_bits()).collect();
    assert_eq!(losses.collect::<Vec<_>>(), expected);
}
