//! Simulated experiments: how often intervals cover the true value, and how often equal configurations are said to differ.
//!
//! A short version runs with the tests. `LEDGER_EXPERIMENTS=20000 cargo test --release coverage -- --nocapture` prints
//! the table of docs/measurements.

use super::best::{Contender, Measured, Ordering, place};
use super::pairwise::{Scale, compare};
use super::resample::Random;
use crate::record::{AttemptId, Digest, Direction, MetricKind, Part, Parts, Replicate, Run, Value};
use std::collections::BTreeSet;

/// How values scatter, as shares of a mean of 100.
#[derive(Clone, Copy)]
struct Design {
    name: &'static str,
    kind: MetricKind,
    /// The numbers of seeds, of machines, and of attempts on each machine.
    seeds: u64,
    machines: &'static [u64],
    /// Standard deviations between seeds, machines, rounds and attempts.
    scatter: [f64; 4],
    /// The factor by which the second configuration scatters more between attempts.
    ratio: f64,
    /// Degrees of freedom of the scatter between attempts and seeds; infinite for the normal distribution.
    tails: f64,
    /// Whether attempts are executed in rounds, each configuration once.
    rounds: bool,
    /// Whether each configuration has rounds of its own.
    own_rounds: bool,
    /// Rounds in which the first configuration has a control run too.
    control: &'static [usize],
    /// Rounds in which the second configuration has no valid attempt.
    lost: &'static [usize],
    /// Machines on which the second configuration did not run.
    lacking: &'static [usize],
    /// Whether both configurations have the seeds, rounds and machines in common.
    common: bool,
    /// Whether the interval of the mean is for the mean over all machines, or for that on this one.
    any_machine: bool,
    /// The least coverage.
    least: f64,
}

const OUTCOME: Design = Design {
    name: "",
    kind: MetricKind::Outcome,
    seeds: 3,
    machines: &[1],
    scatter: [1.0, 0.0, 0.0, 0.0],
    ratio: 1.0,
    tails: f64::INFINITY,
    rounds: false,
    own_rounds: false,
    control: &[],
    lost: &[],
    lacking: &[],
    common: false,
    any_machine: true,
    least: 0.94,
};
const MEASURED: Design = Design {
    kind: MetricKind::Measured,
    seeds: 1,
    machines: &[5],
    scatter: [0.0, 2.0, 0.0, 1.0],
    any_machine: false,
    ..OUTCOME
};

const DESIGNS: [Design; 28] = [
    Design { name: "3 seeds", ..OUTCOME },
    Design { name: "3 seeds, 5 copies of each", machines: &[5], ..OUTCOME },
    Design {
        name: "5 seeds, 3 attempts of each that differ",
        seeds: 5,
        machines: &[3],
        scatter: [1.0, 0.0, 0.0, 0.5],
        ..OUTCOME
    },
    Design { name: "10 seeds in common", seeds: 10, common: true, scatter: [1.0, 0.0, 0.0, 0.5], ..OUTCOME },
    Design { name: "10 seeds, heavy tails (t, 3)", seeds: 10, tails: 3.0, least: 0.92, ..OUTCOME },
    Design { name: "5 attempts on 1 GPU", common: true, ..MEASURED },
    Design { name: "5 attempts on 1 GPU, 2nd scatters 4x", ratio: 4.0, common: true, ..MEASURED },
    Design {
        name: "10 attempts on 1 GPU, heavy tails (t, 3)",
        machines: &[10],
        tails: 3.0,
        common: true,
        least: 0.92,
        ..MEASURED
    },
    Design {
        name: "6 rounds on 1 GPU",
        machines: &[6],
        scatter: [0.0, 2.0, 1.5, 1.0],
        rounds: true,
        common: true,
        ..MEASURED
    },
    Design {
        name: "6 rounds on 1 GPU, 3 control runs",
        machines: &[6],
        scatter: [0.0, 2.0, 1.5, 1.0],
        rounds: true,
        control: &[0, 3, 5],
        common: true,
        ..MEASURED
    },
    Design {
        name: "6 rounds on 1 GPU, 2nd lost two",
        machines: &[6],
        scatter: [0.0, 2.0, 1.5, 1.0],
        rounds: true,
        lost: &[1, 4],
        common: true,
        ..MEASURED
    },
    Design {
        name: "6 rounds that are alike on 1 GPU, 3 control runs",
        machines: &[6],
        scatter: [0.0, 2.0, 0.0, 1.0],
        rounds: true,
        control: &[0, 3, 5],
        common: true,
        ..MEASURED
    },
    Design {
        name: "3 rounds on 1 GPU, 1 control run",
        machines: &[3],
        scatter: [0.0, 2.0, 1.5, 1.0],
        rounds: true,
        control: &[0],
        common: true,
        ..MEASURED
    },
    Design { name: "4 rounds on 1 GPU, 3 seeds in each", seeds: 3, machines: &[4], ..IN_ROUNDS },
    Design { name: "2 rounds on 1 GPU, 3 seeds in each", seeds: 3, machines: &[2], ..IN_ROUNDS },
    Design { name: "1 round on 1 GPU, 5 seeds in it", seeds: 5, machines: &[1], ..IN_ROUNDS },
    Design { name: "4 rounds on 1 GPU, others for the 2nd", seeds: 3, machines: &[4], own_rounds: true, ..IN_ROUNDS },
    Design { name: "2 GPUs x 4, both on both", machines: &[4, 4], common: true, any_machine: true, ..MEASURED },
    Design { name: "2 hosts x 8, 1st on one, 2nd on other two", machines: &[8, 8], any_machine: true, ..MEASURED },
    Design { name: "3 GPUs x 3, both on all", machines: &[3, 3, 3], common: true, any_machine: true, ..MEASURED },
    Design {
        name: "4 GPUs x 1, the 2nd lacks one",
        machines: &[1; 4],
        lacking: &[2],
        common: true,
        any_machine: true,
        ..MEASURED
    },
    Design {
        name: "6 GPUs x 2, the 2nd lacks two",
        machines: &[2; 6],
        lacking: &[1, 4],
        common: true,
        any_machine: true,
        ..MEASURED
    },
    Design {
        name: "10 GPUs x 1, the 2nd lacks seven",
        machines: &[1; 10],
        lacking: &[1, 2, 4, 5, 6, 8, 9],
        common: true,
        any_machine: true,
        ..MEASURED
    },
    Design { name: "4 GPUs, 1 to 8 attempts", machines: &[1, 2, 4, 8], any_machine: true, ..MEASURED },
    Design { name: "6 GPUs, 1 to 4 attempts", machines: &[1, 2, 2, 3, 3, 4], any_machine: true, ..MEASURED },
    Design {
        name: "6 GPUs that are alike, 1 to 4 attempts",
        machines: &[1, 2, 2, 3, 3, 4],
        scatter: [0.0, 0.0, 0.0, 1.0],
        any_machine: true,
        ..MEASURED
    },
    Design {
        name: "12 GPUs x 2, heavy tails (t, 3)",
        machines: &[2; 12],
        tails: 3.0,
        any_machine: true,
        least: 0.92,
        ..MEASURED
    },
    Design { name: "8 imported rows", machines: &[8], scatter: [0.0, 0.0, 0.0, 3.0], common: true, ..MEASURED },
];

impl Random {
    fn heavy(&mut self, degrees: f64) -> f64 {
        let normal = self.normal();
        if degrees.is_infinite() { normal } else { normal / (self.chi_squared(degrees) / degrees).sqrt() }
    }
}

const IN_ROUNDS: Design = Design { scatter: [0.0, 2.0, 1.5, 1.0], rounds: true, common: true, ..MEASURED };

/// The effects that all configurations of an experiment share.
struct Shared {
    seeds: Vec<f64>,
    machines: Vec<f64>,
    rounds: Vec<f64>,
}

impl Design {
    fn shared(&self, random: &mut Random) -> Shared {
        let [seed, machine, round, _] = self.scatter;
        let most = self.machines.iter().copied().max().unwrap_or(1);
        let mut draw = |n: u64, size: f64, tails: f64| (0..n).map(|_| size * random.heavy(tails)).collect();
        Shared {
            seeds: draw(self.seeds, seed, self.tails),
            machines: draw(self.machines.len() as u64, machine, f64::INFINITY),
            rounds: draw(most, round, f64::INFINITY),
        }
    }

    /// One configuration with a true mean: its attempts, and the mean that its interval is to cover.
    fn contender(
        &self,
        at: i64,
        mean: f64,
        ratio: f64,
        shared: Option<&Shared>,
        random: &mut Random,
    ) -> (Contender, f64) {
        let own = self.shared(random);
        let common = shared.unwrap_or(&own);
        let rounds_of = if self.own_rounds { &own } else { common };
        let first_round = if self.own_rounds { 1000 * u64::try_from(at).unwrap() } else { 0 };
        // Each configuration has its own effect of each seed, half of which is common.
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let seed_of = |seed: usize| match shared {
            Some(shared) => half * (shared.seeds[seed] + own.seeds[seed]),
            None => own.seeds[seed],
        };
        let first_machine = if shared.is_some() { 1 } else { 100 * u64::try_from(at).unwrap() };
        let run = Run::new(Parts {
            config: Value::Table([("params.x".to_owned(), Value::Int(at))].into()),
            ..Parts::sample()
        });
        let mut measured = Vec::new();
        let of_machine = self.machines.iter().enumerate();
        for (machine, attempts) in of_machine.filter(|(machine, _)| at != 2 || !self.lacking.contains(machine)) {
            for seed in 0..usize::try_from(self.seeds).unwrap() {
                let rounds =
                    (0..usize::try_from(*attempts).unwrap()).filter(|round| at != 2 || !self.lost.contains(round));
                let control = self.control.iter().copied().filter(|_| at == 1);
                for attempt in rounds.chain(control) {
                    let copy = self.kind == MetricKind::Outcome && self.scatter[3] == 0.0;
                    let noise = self.scatter[3] * ratio * random.heavy(self.tails);
                    let effect = seed_of(seed) + common.machines[machine] + rounds_of.rounds[attempt];
                    let (seed, attempt, id) = (seed as u64, attempt as u64, measured.len() as u64);
                    let mut digest = [u8::try_from(at).unwrap(); 32];
                    digest[..8].copy_from_slice(&id.to_le_bytes());
                    let seed = if shared.is_some() { seed } else { seed + first_machine };
                    measured.push(Measured {
                        attempt: AttemptId(Digest(digest)),
                        run: run.id,
                        configuration: run.parts.digest(Part::Config),
                        started_unix_ms: 0,
                        value: mean * (1.0 + (effect + noise) / 100.0),
                        half_width: None,
                        sensors: BTreeSet::new(),
                        replicate: Replicate {
                            seed,
                            execution: 1000 + if copy { seed } else { id },
                            machine: first_machine + machine as u64,
                        },
                        round: self.rounds.then_some(first_round + attempt),
                    });
                }
            }
        }
        let here = if self.any_machine { 0.0 } else { common.machines[0] };
        // With a single round, the interval is for the mean in that round.
        let here = if self.rounds && rounds_of.rounds.len() == 1 { here + rounds_of.rounds[0] } else { here };
        (Contender { run, agreed: Vec::new(), kind: self.kind, measured }, mean * (1.0 + here / 100.0))
    }
}

/// The share of experiments in which something holds, of those in which it could be tested.
#[derive(Default)]
struct Share(f64, f64);

impl Share {
    fn add(&mut self, holds: Option<bool>) {
        self.0 += f64::from(u8::from(holds == Some(true)));
        self.1 += f64::from(u8::from(holds.is_some()));
    }

    fn of(&self) -> f64 {
        if self.1 > 0.0 { self.0 / self.1 } else { f64::NAN }
    }
}

#[test]
fn coverage_of_intervals_and_the_family_wise_error_are_as_stated() {
    let experiments: u32 = std::env::var("LEDGER_EXPERIMENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    // Five standard errors of a share near 0.95, so that a fixed seed of another stream passes too.
    let slack = if experiments > 5000 { 0.0 } else { 5.0 * (0.95 * 0.05 / f64::from(experiments)).sqrt() };
    let mut random = Random(2026);
    // Only every fourth experiment is tested, since each one also draws the probabilities of being the best.
    let of_family = 2.0 * slack;
    let mut faults = Vec::new();
    eprintln!("| design | mean | ratio of two | six equal ones, any said to differ |\n|---|--:|--:|--:|");
    for design in DESIGNS {
        let (mut mean, mut ratio, mut family) = (Share::default(), Share::default(), Share::default());
        for _ in 0..experiments {
            let shared = design.common.then(|| design.shared(&mut random));
            let shared = shared.as_ref();
            let (a, truth) = design.contender(1, 100.0, 1.0, shared, &mut random);
            let (b, other) = design.contender(2, 104.0, design.ratio, shared, &mut random);
            let estimate = a.estimate().unwrap();
            mean.add(estimate.half_width().map(|half| (estimate.mean - truth).abs() <= half));
            // On one machine the true ratio is that on this machine, which affects both configurations in the same way.
            let both = if design.any_machine { 1.04 } else { other / truth };
            let found = compare(&a, &b, Scale::Ratio).unwrap();
            ratio.add(found.interval.map(|(low, high)| low <= both && both <= high));
            if random.uniform() > 0.25 {
                continue;
            }
            let size = |at: i64| if at % 2 == 0 { design.ratio } else { 1.0 };
            let six = (1..=6).map(|at| design.contender(at, 100.0, size(at), shared, &mut random).0).collect();
            let places =
                place(six, Ordering { scale: Some(Scale::Ratio), ..Ordering::of("", "", Direction::Minimize) });
            let says: Vec<bool> = places.iter().filter_map(|place| place.against?.differs()).collect();
            family.add((!says.is_empty()).then(|| says.contains(&true)));
        }
        eprintln!(
            "| {} | {:.1}% | {:.1}% | {:.1}% |",
            design.name,
            100.0 * mean.of(),
            100.0 * ratio.of(),
            100.0 * family.of()
        );
        for (what, share) in [("mean", mean.of()), ("ratio", ratio.of())] {
            if share < design.least - slack {
                faults.push(format!("{}: {what} covered in {share}", design.name));
            }
        }
        if family.of() > 0.05 + of_family {
            faults.push(format!("{}: a false difference in {}", design.name, family.of()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
