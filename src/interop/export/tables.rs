//! Attempts as tables: one row per attempt, value, point or phase.

use super::frame::{Column, Frame, Kind, Narrowest, is_rounded};
use super::{Entry, PointsOf, StepTimes, TableWriter, each_point};
use crate::record::{Axis, Phase, Series, Table, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The facts that are left out, because they are long lists for the commands that made them.
const LEFT_OUT: [&str; 1] = ["cluster"];

type Cells = Vec<Option<Value>>;

/// The key of a column: section, name, type, and metric. The metric is needed because two names may look alike with their units.
type Head<'a> = (u8, Cow<'a, str>, &'static str, Cow<'a, str>);

/// The columns of the table of attempts, which are known once every attempt was seen. A row contains the attempt's ids,
/// every field of its run, its settings, and its metrics with their units in the heads.
#[derive(Default)]
pub struct WideColumns {
    seen: BTreeMap<Head<'static>, Narrowest>,
}

impl WideColumns {
    /// Includes the names and types of an attempt.
    pub fn see(&mut self, entry: &Entry) {
        each_cell(entry, &mut |head, value| self.seen.entry(owned(head)).or_default().see(value));
    }

    /// Returns the rows of some of the attempts that were seen.
    pub fn frame(&self, entries: &[Entry]) -> Frame {
        let rows = entries.len();
        let mut columns = base(entries);
        let mut taken: BTreeSet<String> = columns.iter().map(|column| column.name.clone()).collect();
        let mut cells: Vec<Cells> = vec![vec![None; rows]; self.seen.len()];
        let places: BTreeMap<&Head<'_>, usize> = self.seen.keys().zip(0..).collect();
        for (row, entry) in entries.iter().enumerate() {
            each_cell(entry, &mut |head, value| {
                let cell = places.get(&head).and_then(|at| cells.get_mut(*at)?.get_mut(row));
                if let Some(cell) = cell {
                    *cell = Some(value.clone());
                }
            });
        }
        for (((_, name, of, _), narrowest), cells) in self.seen.iter().zip(cells) {
            // If a name is taken, the column's type is prefixed: `field.run`.
            let mut name = name.clone().into_owned();
            while !taken.insert(name.clone()) {
                name = format!("{of}.{name}");
            }
            columns.push(Column::new(name, narrowest.kind(), cells));
        }
        Frame { columns, rows }
    }
}

fn owned((section, name, of, metric): Head<'_>) -> Head<'static> {
    (section, name.into_owned().into(), of, metric.into_owned().into())
}

/// Calls `put` with the cells of an attempt, except those of [`base`].
fn each_cell<'a>(entry: &'a Entry, put: &mut dyn FnMut(Head<'a>, &Value)) {
    let (run, attempt) = (&entry.sealed.run, entry.attempt());
    run.config().iter().for_each(|(name, value)| put((0, name.into(), "field", "".into()), value));
    attempt.settings.iter().for_each(|(name, value)| put((0, name.into(), "setting", "".into()), value));
    part_fields(entry).into_iter().for_each(|(name, value)| put((1, name.into(), "part", "".into()), &value));
    for (name, metric) in &attempt.metrics {
        let mut number = |title: &str, of, number: Option<f64>| {
            if let Some(number) = number {
                put((2, headed(title, &metric.unit).into(), of, name.into()), &number.into());
            }
        };
        number(name, "metric", metric.value);
        number(&format!("{name}.uncertainty"), "uncertainty", metric.uncertainty);
    }
}

/// Returns the columns that every attempt has.
fn base(entries: &[Entry]) -> Vec<Column> {
    let all = |name: &str, kind, cell: &dyn Fn(&Entry) -> Option<Value>| {
        Column::new(name, kind, entries.iter().map(cell).collect())
    };
    vec![
        all("attempt", Kind::Text, &|entry| Some(entry.id.to_string().into())),
        all("run", Kind::Text, &|entry| Some(entry.sealed.run.id.to_string().into())),
        all("group", Kind::Text, &|entry| Some(entry.sealed.run.parts.group_id().to_string().into())),
        all("model", Kind::Text, &|entry| Some(entry.sealed.run.model().into())),
        all("seed", Kind::Text, &|entry| Some(entry.sealed.run.parts.seed.to_string().into())),
        all("started", Kind::Moment, &|entry| Some(entry.attempt().started_unix_ms.into())),
        all("outcome", Kind::Text, &|entry| Some(entry.attempt().outcome.name().into())),
        all("reason", Kind::Text, &|entry| entry.attempt().outcome.reason().map(Value::from)),
        all("tainted", Kind::Text, &|entry| {
            let taints = entry.attempt().all_taints();
            (!taints.is_empty()).then(|| taints.join("; ").into())
        }),
    ]
}

/// Returns the fields of program, container, CUDA, driver and device by their full names.
fn part_fields(entry: &Entry) -> BTreeMap<String, Value> {
    let parts = &entry.sealed.run.parts;
    let named = [
        ("program", &parts.program),
        ("container", &parts.container),
        ("cuda", &parts.cuda),
        ("driver", &parts.driver),
        ("device", &parts.device),
    ];
    Value::Table(named.map(|(name, value)| (name.to_owned(), value.clone())).into()).flatten()
}

fn headed(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name} [{unit}]") }
}

/// Returns a table with one row per value: fields, settings, parts, metrics and facts of each attempt.
pub fn long(entries: &[Entry]) -> Frame {
    let mut cells: [Cells; 11] = Default::default();
    for entry in entries {
        let (run, attempt) = (&entry.sealed.run, entry.attempt());
        let ids = [
            entry.id.to_string().into(),
            run.id.to_string().into(),
            run.model().into(),
            run.parts.seed.to_string().into(),
        ];
        let mut add = |kind: &str, name: &str, said: Said| {
            let mut row: Vec<Option<Value>> = ids.iter().cloned().map(Some).collect();
            row.extend([Some(kind.into()), Some(name.into())]);
            row.extend([said.number.map(Value::from), said.text.map(Value::from), said.unit.map(Value::from)]);
            row.extend([said.uncertainty.map(Value::from), said.reason.map(Value::from)]);
            cells.iter_mut().zip(row).for_each(|(cells, cell)| cells.push(cell));
        };
        add(
            "outcome",
            "outcome",
            Said {
                text: Some(attempt.outcome.name().to_owned()),
                reason: attempt.outcome.reason().map(str::to_owned),
                ..Said::default()
            },
        );
        run.config().iter().for_each(|(name, value)| add("field", name, Said::value(value)));
        attempt.settings.iter().for_each(|(name, value)| add("setting", name, Said::value(value)));
        part_fields(entry).iter().for_each(|(name, value)| add("part", name, Said::value(value)));
        for (name, metric) in &attempt.metrics {
            add(
                "metric",
                name,
                Said {
                    number: metric.value,
                    text: None,
                    unit: Some(metric.unit.clone()),
                    uncertainty: metric.uncertainty,
                    reason: metric.reason.clone(),
                },
            );
        }
        let facts: Table =
            attempt.facts.iter().filter(kept).map(|(name, value)| (name.clone(), value.clone())).collect();
        Value::Table(facts).flatten().iter().for_each(|(name, value)| add("fact", name, Said::value(value)));
    }
    let rows = cells[0].len();
    framed(VALUES, cells, rows)
}

/// The columns of the table of values.
const VALUES: [(&str, Kind); 11] = [
    ("attempt", Kind::Text),
    ("run", Kind::Text),
    ("model", Kind::Text),
    ("seed", Kind::Text),
    ("kind", Kind::Text),
    ("name", Kind::Text),
    ("value", Kind::Real),
    ("text", Kind::Text),
    ("unit", Kind::Text),
    ("uncertainty", Kind::Real),
    ("reason", Kind::Text),
];

fn framed<const N: usize>(heads: [(&str, Kind); N], cells: [Cells; N], rows: usize) -> Frame {
    let columns = heads.into_iter().zip(cells).map(|((name, kind), cells)| Column::new(name, kind, cells));
    Frame { columns: columns.collect(), rows }
}

fn kept((name, _): &(&String, &Value)) -> bool {
    !LEFT_OUT.contains(&name.as_str())
}

/// The content of a row in the table of values.
#[derive(Default)]
struct Said {
    number: Option<f64>,
    text: Option<String>,
    unit: Option<String>,
    uncertainty: Option<f64>,
    reason: Option<String>,
}

impl Said {
    fn value(value: &Value) -> Self {
        let column = Column::inferred("", vec![Some(value.clone())]);
        match value.as_float() {
            Some(number) if !is_rounded(value) => Self { number: Some(number), ..Self::default() },
            _ => Self { text: column.text(0).map(Into::into), ..Self::default() },
        }
    }
}

/// Writes a row for each point of an attempt's series, 65,536 rows at a time. The time of a step is the end of its
/// phase `step`. It is missing if there are no such phases.
///
/// # Errors
/// If a series cannot be read, or if the writer fails.
pub fn write_points<W: Write + Send>(
    entry: &Entry,
    points: &PointsOf<'_>,
    writer: &mut TableWriter<W>,
) -> io::Result<()> {
    const PIECE: usize = 1 << 16;
    let rows = Points { entry, times: StepTimes::new(&entry.sealed.phases) };
    for summary in &entry.attempt().series {
        let empty = || Series::new(summary.name.as_str(), summary.unit.as_str(), summary.axis);
        let mut piece = empty();
        each_point(points, &summary.name, |position, value| {
            piece.push(position, value);
            if piece.values.len() < PIECE {
                return Ok(());
            }
            writer.append(rows.frame(&std::mem::replace(&mut piece, empty())))
        })?;
        writer.append(rows.frame(&piece))?;
    }
    Ok(())
}

struct Points<'a> {
    entry: &'a Entry,
    times: StepTimes,
}

impl Points<'_> {
    /// Returns the rows of a part of a series.
    fn frame(&self, series: &Series) -> Frame {
        let rows = series.values.len();
        let seconds = |position: &u64| match series.axis {
            Axis::TimeNs => Some(*position),
            Axis::Step => Some(self.times.at(*position)).filter(|_| !self.times.0.is_empty()),
        };
        let steps = |position: &u64| if series.axis == Axis::Step { int(*position) } else { None };
        let [attempt, run, model] = ids(self.entry);
        let cells = [
            attempt,
            run,
            model,
            vec![Some(series.name.as_str().into())],
            vec![Some(series.unit.as_str().into())],
            series.positions.iter().map(steps).collect(),
            series.positions.iter().map(|at| seconds(at).and_then(int)).collect(),
            series.values.iter().map(|value| Some((*value).into())).collect(),
        ];
        framed(POINTS, cells, rows)
    }
}

const POINTS: [(&str, Kind); 8] = [
    ("attempt", Kind::Text),
    ("run", Kind::Text),
    ("model", Kind::Text),
    ("series", Kind::Text),
    ("unit", Kind::Text),
    ("step", Kind::Int),
    ("time_ns", Kind::Int),
    ("value", Kind::Real),
];

/// Returns the columns of points without rows, for attempts that have none.
pub fn no_points() -> Frame {
    framed(POINTS, Default::default(), 0)
}

/// Returns a table with one row per phase.
pub fn phases(entry: &Entry, phases: &[Phase]) -> Frame {
    let all = |cell: &dyn Fn(&Phase) -> Option<Value>| phases.iter().map(cell).collect();
    let [attempt, run, model] = ids(entry);
    let cells = [
        attempt,
        run,
        model,
        all(&|phase| Some(phase.name.as_str().into())),
        all(&|phase| int(phase.index)),
        all(&|phase| int(phase.rank.into())),
        all(&|phase| int(phase.start_ns)),
        all(&|phase| phase.stop_ns.and_then(int)),
    ];
    framed(PHASES, cells, phases.len())
}

const PHASES: [(&str, Kind); 8] = [
    ("attempt", Kind::Text),
    ("run", Kind::Text),
    ("model", Kind::Text),
    ("phase", Kind::Text),
    ("index", Kind::Int),
    ("rank", Kind::Int),
    ("start_ns", Kind::Int),
    ("stop_ns", Kind::Int),
];

/// Like [`no_points`], for phases.
pub fn no_phases() -> Frame {
    framed(PHASES, Default::default(), 0)
}

/// Returns the cells by which points and phases are joined with the other tables.
fn ids(entry: &Entry) -> [Cells; 3] {
    let run = &entry.sealed.run;
    [entry.id.to_string(), run.id.to_string(), run.model().to_owned()].map(|text| vec![Some(text.into())])
}

/// Returns an integer cell. Returns `None` if the number does not fit into 63 bits.
fn int(number: u64) -> Option<Value> {
    i64::try_from(number).ok().map(Value::from)
}
