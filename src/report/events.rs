//! The output of `events`: the phases with their times, power and energy.

use super::document::table_of;
use super::number::{duration, quantity, quantity_within};
use super::plain;
use super::table::columns;
use crate::analysis::{PhaseRow, warmup_among};
use crate::record::{Attempt, AttemptId, Quantity, Table, Value};

const NOTHING: &str = "-";
/// Column heads of the GPM counters that are percentages; the document also has the rates.
const COUNTERS: [(&str, Quantity); 4] = [
    ("~~~~>SM", Quantity::SmActive),
    ("~~~~~>OCCUPIED", Quantity::SmOccupancy),
    ("~~~~~>TENSOR", Quantity::TensorActive),
    ("~~~~~>DRAM", Quantity::DramUtil),
];

/// Returns the mean of a GPM counter over the phases of one kind.
fn counter(row: &PhaseRow, quantity: Quantity) -> Option<f64> {
    let (_, mean) = row.counters.iter().find(|(of, _)| *of == quantity)?;
    mean.as_ref().ok().copied()
}

/// Returns the phases of an attempt as text.
pub fn events_text(id: AttemptId, attempt: &Attempt, rows: &[PhaseRow]) -> String {
    let mut text = format!("attempt  {id}\n");
    if let Some(marks) = attempt.facts.get("telemetry.marks").and_then(words).filter(|marks| !marks.is_empty()) {
        text.push_str(&format!("marks    {}\n", plain(&marks.join(" "))));
    }
    if rows.is_empty() {
        text.push_str("it reported no phase\n");
        return text;
    }
    // GPUs before Hopper have no GPM counters, so they get no columns.
    let counters: Vec<(&str, Quantity)> =
        COUNTERS.into_iter().filter(|(_, quantity)| rows.iter().any(|row| counter(row, *quantity).is_some())).collect();
    let mut heads = vec![
        "PHASE",
        ">RANK",
        ">GPU",
        ">COUNT",
        ">TIME",
        "~>MEDIAN",
        "~~>SHARE",
        ">POWER",
        ">ENERGY",
        "~~>A SAMPLE",
        "~~~~>BUSY",
    ];
    heads.extend(counters.iter().map(|(head, _)| *head));
    heads.extend(["~~~~~~>READINGS", "~~~~~>COVERED"]);
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    text.push_str(&columns(
        &heads,
        rows.iter().map(|row| {
            let energy = row.energy.as_ref().ok();
            let of =
                |show: &dyn Fn(&crate::analysis::Energy) -> String| energy.map_or_else(|| NOTHING.to_owned(), show);
            let whole = |percent: f64| format!("{percent:.0}%");
            let mut cells = vec![
                row.name.clone(),
                row.rank.to_string(),
                row.gpu.map_or_else(|| NOTHING.to_owned(), |gpu| gpu.to_string()),
                row.count.to_string(),
                duration(row.total_s),
                duration(row.median_s),
                percent(row.share),
                of(&|energy| quantity(energy.watts(), "W")),
                of(&|energy| quantity_within(energy.joules, "J", Some(energy.half_width()))),
                row.joules_per_sample().map_or_else(|| NOTHING.to_owned(), |joules| quantity(joules, "J")),
                row.utilization.as_ref().map_or_else(|_| NOTHING.to_owned(), |percent| whole(*percent)),
            ];
            let shown = |quantity| counter(row, quantity).map_or_else(|| NOTHING.to_owned(), whole);
            cells.extend(counters.iter().map(|(_, quantity)| shown(*quantity)));
            cells.extend([of(&|energy| energy.readings.to_string()), of(&|energy| percent(energy.coverage))]);
            cells
        }),
    ));
    text.push_str(&warmup_text(warmup_steps(attempt, rows)));
    text.push_str(&sparse_text(attempt, rows));
    // Phases and devices without energy share a line if the reason is the same.
    let mut silent: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows {
        let Err(reason) = &row.energy else { continue };
        // The table already has the count and the length.
        let reason = match reason.split_once(", but ") {
            Some((occurs, why)) if occurs.starts_with("it occurs ") => format!("too short: {why}"),
            _ => reason.clone(),
        };
        let (reason, name) = (plain(&reason), format!("`{}`", plain(&row.name)));
        match silent.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => silent.push((reason, vec![name])),
        }
    }
    for (reason, names) in silent {
        text.push_str(&format!("no energy of {}: {reason}\n", names.join(", ")));
    }
    text
}

/// Returns a note if the built-in trainer timed some phases in a fraction of the steps only.
/// Their share of the attempt is then not the share of their work.
fn sparse_text(attempt: &Attempt, rows: &[PhaseRow]) -> String {
    if !attempt.facts.contains_key("worker.inner_every") {
        return String::new();
    }
    const IN_STEPS: [&str; 4] = ["data", "forward", "backward", "optimizer"];
    let steps = rows.iter().filter(|row| row.name == "step").map(|row| row.count).max().unwrap_or(0);
    let is_sparse = |row: &&PhaseRow| IN_STEPS.contains(&row.name.as_str()) && 2 * row.count < steps;
    let sparse: Vec<&PhaseRow> = rows.iter().filter(is_sparse).collect();
    let Some(most) = sparse.iter().map(|row| row.count).max() else { return String::new() };
    let mut names: Vec<&str> = sparse.iter().map(|row| row.name.as_str()).collect();
    names.dedup();
    let names = names.join(", ");
    format!("{names}: timed in {most} of {steps} steps; compare their medians, not their shares\n")
}

fn warmup_steps(attempt: &Attempt, rows: &[PhaseRow]) -> Option<i64> {
    warmup_among(attempt, rows.iter().map(|row| row.name.as_str()))
}

/// Returns a note that the first steps are warm-up, which metrics leave out and phases include.
/// Empty without warm-up steps.
pub(super) fn warmup_text(steps: Option<i64>) -> String {
    let Some(steps) = steps else { return String::new() };
    let (first, it) = match steps {
        1 => ("first logged step is".to_owned(), "it"),
        _ => (format!("first {steps} logged steps are"), "them"),
    };
    format!("the {first} warm-up, and not left out here; `ledger show` has metrics without {it}\n")
}

fn words(marks: &Value) -> Option<Vec<&str>> {
    match marks {
        Value::List(marks) => Some(marks.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// Returns the phases as a document's members.
pub fn events_value(id: AttemptId, attempt: &Attempt, rows: &[PhaseRow]) -> Table {
    let phases = rows.iter().map(|row| {
        let mut table = table_of([
            ("phase", row.name.as_str().into()),
            ("rank", row.rank.into()),
            ("count", row.count.into()),
            ("time_s", row.total_s.into()),
            ("median_s", row.median_s.into()),
            ("share", row.share.into()),
        ]);
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                table.insert(name.to_owned(), value);
            }
        };
        put("gpu", row.gpu.map(Value::from));
        put("samples", row.samples.map(Value::from));
        put("joules_per_sample", row.joules_per_sample().map(Value::from));
        put("utilization", row.utilization.as_ref().ok().map(|percent| (*percent).into()));
        put("utilization_reason", row.utilization.as_ref().err().map(|reason| reason.as_str().into()));
        let named = |quantity: &Quantity, value: Value| (quantity.name().to_owned(), value);
        let means: Table =
            row.counters.iter().filter_map(|(of, mean)| Some(named(of, (*mean.as_ref().ok()?).into()))).collect();
        let reasons: Table = row
            .counters
            .iter()
            .filter_map(|(of, mean)| Some(named(of, mean.as_ref().err()?.as_str().into())))
            .collect();
        put("counters", (!means.is_empty()).then(|| means.into()));
        put("counters_reason", (!reasons.is_empty()).then(|| reasons.into()));
        match &row.energy {
            Ok(energy) => {
                put("power_w", Some(energy.watts().into()));
                put("energy", Some(energy.to_table().into()));
            }
            Err(reason) => put("energy_reason", Some(reason.as_str().into())),
        }
        Value::Table(table)
    });
    let mut members = table_of([
        ("attempt", id.to_string().into()),
        ("run", attempt.run.to_string().into()),
        ("phases", Value::List(phases.collect())),
    ]);
    if let Some(marks) = attempt.facts.get("telemetry.marks") {
        members.insert("marks".to_owned(), marks.clone());
    }
    if let Some(steps) = warmup_steps(attempt, rows) {
        members.insert("warmup_steps_included".to_owned(), steps.into());
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Energy, Method, Uncertainty};
    use crate::record::Digest;

    fn attempt(marks: &[&str]) -> Attempt {
        Attempt {
            wall_ns: 100_000_000_000,
            facts: [("telemetry.marks".to_owned(), marks.to_vec().into())].into(),
            ..Attempt::sample()
        }
    }

    fn row(name: &str, gpu: Option<u32>, energy: Result<(f64, f64), &str>) -> PhaseRow {
        let energy = energy.map_err(str::to_owned).map(|(joules, sensor)| Energy {
            joules,
            length_s: 31.0,
            method: Method::Counter,
            counter: Some(joules),
            integrated: Some(joules * 0.99),
            fault: None,
            coverage: 0.998,
            readings: 310,
            uncertainty: Uncertainty { sensor, ..Uncertainty::default() },
            calibration: None,
        });
        let utilization = if energy.is_ok() { Ok(93.4) } else { Err("it is short".to_owned()) };
        PhaseRow {
            name: name.to_owned(),
            rank: 0,
            gpu,
            count: 40,
            total_s: 31.0,
            median_s: 0.0775,
            share: 0.31,
            energy,
            utilization,
            counters: Vec::new(),
            samples: (name == "step").then_some(1280.0),
        }
    }

    #[test]
    fn counters_have_columns_where_a_phase_has_them() {
        let mut rows = rows();
        for (row, counted) in rows.iter_mut().zip([true, true, false, false]) {
            let percent = |of: Quantity| if of == Quantity::TensorActive { 41.4 } else { 88.6 };
            let mean = |of| if counted { Ok(percent(of)) } else { Err("it is short".to_owned()) };
            row.counters = Quantity::GPM.map(|of| (of, mean(of))).into();
        }
        let (id, attempt) = (AttemptId(Digest([0xab; 32])), attempt(&[]));
        let text = events_text(id, &attempt, &rows);
        insta::assert_snapshot!(text.lines().skip(1).take(4).collect::<Vec<_>>().join("\n"), @r"
    PHASE  RANK  GPU  COUNT    TIME   MEDIAN  SHARE  POWER          ENERGY  A SAMPLE  BUSY   SM  OCCUPIED  TENSOR  DRAM  READINGS  COVERED
    step      0    0     40  31.0 s  77.5 ms  31.0%  400 W  12.4 kJ ± 5.2%    9.69 J   93%  89%       89%     41%   89%       310    99.8%
    step      0    1     40  31.0 s  77.5 ms  31.0%  387 W  12.0 kJ ± 5.0%    9.38 J   93%  89%       89%     41%   89%       310    99.8%
    data      0    0     40  31.0 s  77.5 ms  31.0%      -               -         -     -    -         -       -     -         -        -
    ");
        let Value::List(phases) = &events_value(id, &attempt, &rows)["phases"] else { panic!() };
        let (step, data) = (phases[0].flatten(), phases[2].flatten());
        assert_eq!((&step["counters.tensor_active"], &step["counters.pcie_rx_rate"]), (&41.4.into(), &88.6.into()));
        assert_eq!(data["counters_reason.sm_active"], "it is short".into());
        assert!(
            !step.keys().any(|name| name.starts_with("counters_reason")) && !data.contains_key("counters.sm_active")
        );
    }

    #[test]
    fn phases_timed_in_few_steps_are_noted_for_the_built_in_trainer() {
        let id = AttemptId(Digest([0xab; 32]));
        let sparse = |count| PhaseRow { count, ..row("data", Some(0), Err("short")) };
        let rows = |count| [row("step", Some(0), Ok((12_403.0, 645.0))), sparse(count)];
        let mut of_trainer = attempt(&[]);
        of_trainer.facts.insert("worker.inner_every".to_owned(), 50_i64.into());
        let told = "data: timed in 2 of 40 steps; compare their medians, not their shares\n";
        assert!(events_text(id, &of_trainer, &rows(2)).contains(told));
        assert!(!events_text(id, &of_trainer, &rows(40)).contains("timed in"), "all are timed");
        assert!(
            !events_text(id, &attempt(&[]), &rows(2)).contains("timed in"),
            "another program's phases may be anywhere"
        );
    }

    fn rows() -> [PhaseRow; 4] {
        let short = "it occurs 40 times, each for about 9 ms, but power is read every 100 ms, and twice that is needed";
        [
            row("step", Some(0), Ok((12_403.0, 645.0))),
            row("step", Some(1), Ok((12_011.0, 601.0))),
            row("data", Some(0), Err(short)),
            row("data", Some(1), Err(short)),
        ]
    }

    #[test]
    fn phases_are_a_table_and_refusals_have_reasons() {
        let id = AttemptId(Digest([0xab; 32]));
        let text = events_text(id, &attempt(&["gap", "frozen_counter"]), &rows());
        insta::assert_snapshot!(text, @r"
        attempt  abababababababababababababababababababababababababababababababab
        marks    gap frozen_counter
        PHASE  RANK  GPU  COUNT    TIME   MEDIAN  SHARE  POWER          ENERGY  A SAMPLE  BUSY  READINGS  COVERED
        step      0    0     40  31.0 s  77.5 ms  31.0%  400 W  12.4 kJ ± 5.2%    9.69 J   93%       310    99.8%
        step      0    1     40  31.0 s  77.5 ms  31.0%  387 W  12.0 kJ ± 5.0%    9.38 J   93%       310    99.8%
        data      0    0     40  31.0 s  77.5 ms  31.0%      -               -         -     -         -        -
        data      0    1     40  31.0 s  77.5 ms  31.0%      -               -         -     -         -        -
        no energy of `data`: too short: power is read every 100 ms, and twice that is needed
        ");
        assert!(!text.contains("warm-up"), "none of its steps is");
        let hostile = events_text(id, &attempt(&["a\u{1b}[2J"]), &[row("x\nstep\u{9b}1A", None, Err("short"))]);
        assert!(hostile.contains(r"a\u{1b}[2J") && hostile.contains(r"no energy of `x\u{a}step\u{9b}1A`"), "{hostile}");
        let none = events_text(id, &attempt(&[]), &[]);
        assert_eq!(none.lines().skip(1).collect::<Vec<_>>(), ["it reported no phase"]);
    }

    #[test]
    fn a_note_says_that_phases_include_the_warm_up() {
        let id = AttemptId(Digest([0xab; 32]));
        let warmed = |steps: i64| {
            let mut attempt = attempt(&[]);
            attempt.facts.insert("measure.warmup_steps".to_owned(), steps.into());
            attempt
        };
        let told = |steps| events_text(id, &warmed(steps), &rows()[..1]).lines().skip(3).collect::<String>();
        assert_eq!(told(0), "");
        assert_eq!(
            told(1),
            "the first logged step is warm-up, and not left out here; `ledger show` has metrics without it"
        );
        assert_eq!(
            told(10),
            "the first 10 logged steps are warm-up, and not left out here; `ledger show` has metrics without them"
        );
        assert_eq!(events_value(id, &warmed(10), &rows())["warmup_steps_included"], 10_i64.into());
        assert!(!events_value(id, &warmed(0), &rows()).contains_key("warmup_steps_included"));
        let without_steps = [row("eval", Some(0), Err("short"))];
        assert!(!events_text(id, &warmed(10), &without_steps).contains("warm-up"));
    }

    #[test]
    fn a_document_has_numbers_or_reasons() {
        let members = events_value(AttemptId(Digest([0xab; 32])), &attempt(&[]), &rows());
        let Value::List(phases) = &members["phases"] else { panic!("{members:?}") };
        let (step, data) = (phases[0].flatten(), phases[2].flatten());
        assert_eq!(step["energy.joules"], 12_403.0.into());
        assert_eq!(step["energy.method"], "counter".into());
        assert_eq!((step["power_w"].as_float(), step["gpu"].as_int()), (Some(12_403.0 / 31.0), Some(0)));
        assert!(!data.contains_key("power_w") && data["energy_reason"].as_str().unwrap().contains("9 ms"));
        assert_eq!(data["utilization_reason"], "it is short".into());
    }
}
