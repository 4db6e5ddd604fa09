//! Ranks whose model follows a test's script: the samples of each rank, and the end of the run when a rank fails.

use crate::device::{DeviceError, Place};
use crate::fit::fit;
use crate::fit::heartbeat::Heartbeat;
use crate::number::{real_len, single};
use crate::parallel::{Limits, Link, RankContext, run_ranks};
use crate::parameters::{Init, ParamSpec};
use crate::precision::Precision;
use crate::sample::{EventLog, cell};
use crate::spec::{Length, Spec};
use crate::task::{Gradients, Score, Step, Task};
use crate::{Finish, Sink, TrainError};
use burn::tensor::{Device, Tensor, TensorData};
use ledger_record::{Digest, EventKind, PhaseEdge};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// The forward pass of a step, by the step's number and the rank; returns the gradient's factor.
type Script = fn(u64, usize) -> Result<f32, TrainError>;

/// The samples that a rank saw in a step.
type Seen = Arc<Mutex<Vec<(u64, usize, Vec<usize>)>>>;

/// The loss is the mean of the samples' numbers. Each gradient is the loss times the script's factor.
struct Scripted {
    param_specs: Vec<ParamSpec>,
    script: Script,
    seen: Seen,
}

impl Task for Scripted {
    fn param_specs(&self) -> &[ParamSpec] {
        &self.param_specs
    }

    fn samples(&self) -> usize {
        11
    }

    fn gradients(&mut self, step: &Step<'_>, parameters: &[Tensor<1>]) -> Result<Gradients, TrainError> {
        step.inner.phase("data", || {
            self.seen.lock().expect("no panic").push((step.number, step.rank, step.indices.to_vec()));
            Ok(())
        })?;
        let factor = step.inner.phase("forward", || (self.script)(step.number, step.rank))?;
        let mean = single(real_len(step.indices.iter().sum()) / real_len(step.indices.len()));
        let tensor = |len, value| Tensor::from_data(TensorData::new(vec![value; len], [len]), &Device::flex());
        let gradient = |parameter: &Tensor<1>| tensor(parameter.dims()[0], mean * factor * single(step.scale));
        let gradients = parameters.iter().map(gradient).collect();
        Ok(Gradients {
            loss: tensor(1, mean),
            gradients,
            mean_of: Some(step.indices.len()),
            marks: crate::gradient_readiness::ReadyMarks::default(),
        })
    }

    fn evaluate(&mut self, _: &[Tensor<1>], _: &mut Heartbeat<'_>) -> Result<Option<Score>, TrainError> {
        Ok(Some(vec![("eval_loss", 1.0)]))
    }

    fn inference_rows(&self) -> Option<usize> {
        None
    }

    fn prepare_inference(&mut self, _: u64, _: usize) -> Result<(), TrainError> {
        Ok(())
    }

    fn infer(&mut self, _: &[Tensor<1>], _: &Heartbeat<'_>, _: bool) -> Result<(), TrainError> {
        Ok(())
    }

    fn digest(&self) -> Digest {
        Digest::of(b"scripted")
    }
}

/// Much longer than a step takes on a busy machine.
const LIMITS: Limits = Limits { step: Duration::from_secs(2), first: Duration::from_secs(60), last: Duration::ZERO };

/// The time for which a rank hangs, and a bound well below it.
const HANGS: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(60);

/// One sample for each rank and step, 12 steps of gradient descent with learning rate 0.5.
fn spec(ranks: usize, precision: Precision) -> Spec {
    let mut spec = Spec::read(&cell("softmax")).expect("valid");
    spec.length = Length::Steps(12);
    (spec.batch, spec.ranks, spec.precision, spec.learning_rate) = (1, ranks, precision, 0.5);
    spec
}

struct Ended {
    how: Result<Finish, TrainError>,
    took: Duration,
    log: EventLog,
    seen: Vec<(u64, usize, Vec<usize>)>,
}

fn ran(spec: &Spec, stop: &AtomicBool, script: Script) -> Ended {
    ran_at(&Place::Host, spec, stop, script)
}

fn ran_at(place: &Place, spec: &Spec, stop: &AtomicBool, script: Script) -> Ended {
    let place = place.clone();
    let (log, seen, own) = (EventLog::default(), Seen::default(), spec.clone());
    let start = Instant::now();
    let noted = Arc::clone(&seen);
    let how = run_ranks(spec.ranks, &Link::Host, &log, stop, None, move |context: RankContext| {
        let param_spec = |name: &str, len| ParamSpec::new(name, &[len], Init::Constant(1.0));
        let param_specs = vec![param_spec("a", 3), param_spec("b", 70)];
        let group = context.process_group(LIMITS, &[3, 70]);
        let task = Box::new(Scripted { param_specs, script, seen: Arc::clone(&noted) });
        fit(group, &own, task, &place, &context.sink, &context.stop, true)
    });
    let mut seen = seen.lock().expect("no panic").clone();
    seen.sort();
    Ended { how, took: start.elapsed(), log, seen }
}

fn on(ranks: usize, script: Script) -> Ended {
    ran(&spec(ranks, Precision::Fp32), &AtomicBool::new(false), script)
}

fn losses(log: &EventLog) -> Vec<f64> {
    let loss = |event: EventKind| match event {
        EventKind::Step { values, duration_ns: Some(_), .. } => values.first().map(|value| value.1),
        _ => None,
    };
    log.events().into_iter().filter_map(loss).collect()
}

fn metric(log: &EventLog, wanted: &str) -> Option<f64> {
    log.events().into_iter().find_map(|event| match event {
        EventKind::Metric { name, value, .. } if name == wanted => Some(value),
        _ => None,
    })
}

#[test]
fn every_sample_of_an_epoch_is_seen_once_by_one_rank() {
    for ranks in [1, 2, 4] {
        let ended = on(ranks, |_, _| Ok(1.0));
        assert_eq!(ended.how.expect("all come"), Finish::Done);
        let steps_per_epoch = 11_u64.div_ceil(u64::try_from(ranks).expect("small"));
        for epoch in 0..12 / steps_per_epoch {
            let of = |step: u64| (epoch * steps_per_epoch + 1..=(epoch + 1) * steps_per_epoch).contains(&step);
            let mut samples: Vec<usize> =
                ended.seen.iter().filter(|seen| of(seen.0)).flat_map(|seen| seen.2.clone()).collect();
            samples.sort_unstable();
            assert_eq!(samples, (0..11).collect::<Vec<_>>(), "epoch {epoch} on {ranks} ranks");
        }
        // The rest of the 11 samples goes to the first ranks. The others take part in the step without a sample.
        let left = ended.seen.iter().filter(|seen| seen.0 == steps_per_epoch).count();
        assert_eq!(left, [(1, 1), (2, 1), (4, 3)].into_iter().find(|(of, _)| *of == ranks).expect("known").1);
        for (number, loss) in (1..).zip(losses(&ended.log)) {
            let samples: Vec<usize> =
                ended.seen.iter().filter(|seen| seen.0 == number).flat_map(|seen| seen.2.clone()).collect();
            let mean = real_len(samples.iter().sum()) / real_len(samples.len());
            assert!((loss - mean).abs() < 1e-6, "step {number} on {ranks} ranks: {loss} and not {mean}");
        }
    }
}

#[test]
fn a_rank_that_panics_ends_the_run_for_all_and_is_named() {
    let ended = on(4, |step, rank| {
        assert!((step, rank) != (3, 2), "out of memory");
        Ok(1.0)
    });
    let error = ended.how.expect_err("it panicked").to_string();
    assert_eq!(error, "rank 2 failed, last in `forward` 3: out of memory");
    assert!(ended.took < SOON, "{:?}", ended.took);
}

#[test]
fn a_rank_that_errs_ends_the_run_for_all_and_is_named() {
    fn script<const WRONG: usize>(step: u64, rank: usize) -> Result<f32, TrainError> {
        if (step, rank) == (5, WRONG) { Err(TrainError::Gradients { found: 0, expected: 1 }) } else { Ok(1.0) }
    }
    for (wrong, script) in [(0, script::<0> as Script), (1, script::<1> as Script)] {
        let ended = on(2, script);
        let error = ended.how.expect_err("it erred").to_string();
        assert!(
            error.starts_with(&format!("rank {wrong} failed, last in `forward` 5: 0 of 1 parameters have")),
            "{error}"
        );
        assert!(ended.took < SOON, "{:?}", ended.took);
    }
}

#[test]
fn a_rank_that_hangs_ends_the_run_for_all_and_is_named() {
    fn script<const WRONG: usize>(step: u64, rank: usize) -> Result<f32, TrainError> {
        std::thread::sleep(if (step, rank) == (4, WRONG) { HANGS } else { Duration::ZERO });
        Ok(1.0)
    }
    for (wrong, script) in [(0, script::<0> as Script), (3, script::<3> as Script)] {
        let ended = on(4, script);
        let error = ended.how.expect_err("it hangs").to_string();
        let expected =
            format!("rank {wrong} failed, last in `forward` 4: rank {wrong} did not come to `all_reduce` 4 within 2 s");
        assert_eq!(error, expected);
        assert!((LIMITS.step..SOON).contains(&ended.took), "{:?}", ended.took);
    }
}

/// On a device the steps of the warm-up compile, so their durations say nothing about later steps.
#[test]
fn a_step_that_compiles_gives_a_hanging_rank_no_more_time() {
    let place = Place::Device(Device::flex());
    let ended = ran_at(&place, &spec(2, Precision::Fp32), &AtomicBool::new(false), |step, rank| {
        let long = if step == 2 { Duration::from_secs(1) } else { Duration::ZERO };
        std::thread::sleep(if (step, rank) == (11, 1) { HANGS } else { long });
        Ok(1.0)
    });
    let error = ended.how.expect_err("it hangs").to_string();
    assert!(error.ends_with("rank 1 did not come to `all_reduce` 11 within 2 s"), "{error}");
}

/// A hanging device stops its rank within a step, while the other rank waits for it on its own device. No rank is at a
/// rendezvous.
#[test]
fn ranks_that_hang_within_a_step_of_a_device_are_found() {
    let place = Place::Device(Device::flex());
    let ended = ran_at(&place, &spec(2, Precision::Fp32), &AtomicBool::new(false), |step, _| {
        std::thread::sleep(if step == 11 { HANGS } else { Duration::ZERO });
        Ok(1.0)
    });
    let error = ended.how.expect_err("they hang").to_string();
    assert!(error.contains("last in `forward` 11: it takes longer than 4 s"), "{error}");
}

#[test]
fn a_rank_that_is_late_but_comes_is_waited_for() {
    let ended = on(2, |step, rank| {
        std::thread::sleep(Duration::from_millis(if rank == 1 && step > 2 { 100 } else { 0 }));
        Ok(1.0)
    });
    assert_eq!(ended.how.expect("all come"), Finish::Done);
}

#[test]
fn a_rank_that_hangs_on_its_device_is_found_by_its_limit() {
    let (log, start) = (EventLog::default(), Instant::now());
    let stuck = run_ranks(2, &Link::Host, &log, &AtomicBool::new(false), None, |context: RankContext| {
        if context.rank == 1 {
            context.sink.doing("losses", 7, Some(Duration::from_millis(50)));
            std::thread::sleep(HANGS);
        }
        Ok(Finish::Done)
    });
    let error = stuck.expect_err("it hangs").to_string();
    assert_eq!(error, "rank 1 failed, last in `losses` 7: it takes longer than 0.05 s");
    assert!(start.elapsed() < SOON);
}

#[test]
fn a_failed_gpu_is_named_even_if_another_rank_reports_it_first() {
    let log = EventLog::default();
    let begun = Arc::new(Barrier::new(4));
    let failed = run_ranks(4, &Link::Host, &log, &AtomicBool::new(false), None, move |context: RankContext| {
        context.sink.doing("losses", 7, None);
        begun.wait();
        if context.rank != 1 {
            std::thread::sleep(HANGS);
        }
        Err(DeviceError::Card { card: 2, problem: "cuMemcpyAsync failed (700)".to_owned() }.into())
    });
    let error = failed.expect_err("a card failed").to_string();
    let expected = "rank 2 failed, last in `losses` 7: `Cuda(2)` does not work any more: cuMemcpyAsync failed (700) (run `ledger doctor`)";
    assert_eq!(error, expected);
}

/// The first rank's gradient is finite, the other's is not.
#[test]
fn all_ranks_skip_a_step_when_one_gradient_is_not_finite() {
    let script: Script = |step, rank| Ok(if (step, rank) == (2, 1) { f32::INFINITY } else { 0.001 });
    let ended = ran(&spec(2, Precision::Fp16), &AtomicBool::new(false), script);
    assert_eq!(ended.how.expect("all come"), Finish::Done);
    assert_eq!(metric(&ended.log, "skipped_steps"), Some(1.0));
    let digest = |log: &EventLog| {
        log.events().into_iter().find_map(|event| match event {
            EventKind::Digest { name, digest } if name == "weights" => Some(digest),
            _ => None,
        })
    };
    // Powers of two change no digit: a step that does nothing equals a skipped step.
    let still: Script = |step, _| Ok(if step == 2 { 0.0 } else { 0.001 });
    let expected = ran(&spec(2, Precision::Fp32), &AtomicBool::new(false), still);
    assert_eq!(digest(&ended.log), digest(&expected.log));
    assert!(digest(&expected.log).is_some());
}

#[test]
fn a_stop_ends_all_ranks_at_the_same_step() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let (stop, mut spec) = (Arc::new(AtomicBool::new(false)), spec(4, Precision::Fp32));
    spec.length = Length::Steps(1_000_000);
    let soon = Arc::clone(&stop);
    std::thread::spawn(move || {
        while DONE.load(Ordering::Relaxed) < 40 {
            std::thread::yield_now();
        }
        soon.store(true, Ordering::Relaxed);
    });
    let ended = ran(&spec, &stop, |_, _| {
        DONE.fetch_add(1, Ordering::Relaxed);
        Ok(1.0)
    });
    assert_eq!(ended.how.expect("all come"), Finish::Stopped);
    let mut last = [0; 4];
    for (step, rank, _) in &ended.seen {
        last[*rank] = *step;
    }
    assert!(last.iter().max() <= last.iter().min().map(|least| least + 1).as_ref(), "{last:?}");
    assert!(!ended.log.events().iter().any(|event| matches!(event, EventKind::Digest { .. })));
}

#[test]
fn each_rank_reports_its_phases_and_the_first_all_else() {
    let ended = on(2, |_, _| Ok(1.0));
    assert_eq!(ended.how.expect("all come"), Finish::Done);
    let phases = |events: Vec<EventKind>| -> Vec<(String, u64)> {
        let started = |event| match event {
            EventKind::Phase { name, index, edge: PhaseEdge::Start } => Some((name, index)),
            _ => None,
        };
        events.into_iter().filter_map(started).collect()
    };
    let of_first = phases(ended.log.events());
    let others = ended.log.2.lock().expect("no panic").clone();
    assert!(others.iter().all(|(rank, _)| *rank == 1));
    let others: Vec<EventKind> = others.into_iter().map(|(_, event)| event).collect();
    // Epochs of 6 steps; the tenth step is measured from inside.
    let expected = [
        ("epoch", 1),
        ("eval", 1),
        ("epoch", 2),
        ("data", 10),
        ("forward", 10),
        ("all_reduce", 10),
        ("optimizer", 10),
        ("eval", 2),
    ];
    let named = |expected: &[(&str, u64)]| {
        expected.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect::<Vec<_>>()
    };
    assert_eq!(of_first, named(&expected));
    let not_eval: Vec<(&str, u64)> = expected.into_iter().filter(|phase| phase.0 != "eval").collect();
    assert_eq!(phases(others.clone()), named(&not_eval));
    let steps = others
        .iter()
        .filter(|event| matches!(event, EventKind::Step { duration_ns: Some(_), values, .. } if values.is_empty()));
    assert_eq!(steps.count(), 12);
    let digests = others.iter().filter(|event| matches!(event, EventKind::Digest { name, .. } if name == "shard.1"));
    assert_eq!(digests.count(), 1);
    let other = |event: &EventKind| {
        matches!(event, EventKind::Phase { .. } | EventKind::Step { .. } | EventKind::Digest { .. })
    };
    assert!(others.iter().all(other), "{others:?}");
    let fact = |wanted: &str| {
        ended.log.events().into_iter().find_map(|event| match event {
            EventKind::Fact { name, value } if name == wanted => {
                value.as_float().or(value.as_int().and_then(|n| i32::try_from(n).ok()).map(f64::from))
            }
            _ => None,
        })
    };
    assert_eq!((fact("ranks"), fact("batch_global"), fact("last_batch")), (Some(2.0), Some(2.0), Some(1.0)));
    // 3 and 70 values, each starting at a multiple of 64.
    assert_eq!(fact("all_reduce_mib"), Some(192.0 * 4.0 / 1_048_576.0));
}
