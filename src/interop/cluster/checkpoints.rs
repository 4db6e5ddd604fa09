//! The event log of a cluster: the start and stop of each event, with its task and host.

use super::names::{Names, SEPARATOR};
use crate::interop::rows::{Faults, ImportError, Rows, Source, shown};
use csv::ByteRecord;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

/// Whether an event starts or stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Edge {
    Start,
    Stop,
}

/// One row of the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) host: u32,
    pub(super) task: u32,
    pub(super) event: u32,
    pub(super) at_ns: i64,
    pub(super) edge: Edge,
    /// The hash of all columns without a meaning here. Rows that differ in them are different rows.
    rest: u64,
}

/// All rows, sorted and without duplicates.
pub(super) struct Checkpoints {
    pub(super) source: Source,
    pub(super) hosts: Vec<String>,
    /// Job and task, with the separator between them.
    pub(super) tasks: Vec<String>,
    pub(super) events: Vec<String>,
    pub(super) marks: Vec<Mark>,
    pub(super) duplicates: usize,
    pub(super) faults: Faults,
}

struct Places {
    timestamp: usize,
    host: usize,
    event: usize,
    edge: usize,
    job: Option<usize>,
    task: usize,
    others: Vec<usize>,
}

impl Places {
    fn new(rows: &Rows) -> Result<Self, ImportError> {
        let mut places = Self {
            timestamp: rows.column("timestamp")?,
            host: rows.column("hostname")?,
            event: rows.column("eventName")?,
            edge: rows.column("eventType")?,
            job: rows.find("jobId"),
            task: rows.column("taskId")?,
            others: Vec::new(),
        };
        let known = [places.timestamp, places.host, places.event, places.edge, places.task];
        places.others = (0..rows.heads().len()).filter(|at| !known.contains(at) && places.job != Some(*at)).collect();
        Ok(places)
    }
}

/// Returns the hash of some fields of a row; 0 without fields.
pub(super) fn hash(record: &ByteRecord, places: &[usize]) -> u64 {
    if places.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for field in places.iter().filter_map(|place| record.get(*place)) {
        hasher.write(field);
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

/// Joins two parts of a name in a buffer.
pub(super) fn joined(buffer: &mut Vec<u8>, first: &[u8], second: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(first);
    buffer.extend_from_slice(SEPARATOR.encode_utf8(&mut [0; 4]).as_bytes());
    buffer.extend_from_slice(second);
}

/// Reads an event log.
pub(super) fn read(path: &Path) -> Result<Checkpoints, ImportError> {
    let mut rows = Rows::open(path, b',')?;
    let places = Places::new(&rows)?;
    let (mut hosts, mut tasks, mut events) = (Names::default(), Names::default(), Names::default());
    let mut marks = Vec::new();
    let mut faults = Faults::default();
    let mut record = ByteRecord::new();
    let mut key = Vec::new();
    while rows.next(&mut record)? {
        let at_ns = match rows.moment(&record, places.timestamp) {
            Ok(at_ns) => at_ns,
            Err(fault) => {
                faults.add(fault);
                continue;
            }
        };
        let edge = match &record[places.edge] {
            edge if edge.eq_ignore_ascii_case(b"START") => Edge::Start,
            edge if edge.eq_ignore_ascii_case(b"STOP") => Edge::Stop,
            other => {
                let message = format!("eventType `{}` is unknown (START and STOP are known)", shown(other));
                faults.add(rows.fault(&record, message));
                continue;
            }
        };
        joined(&mut key, places.job.and_then(|job| record.get(job)).unwrap_or_default(), &record[places.task]);
        marks.push(Mark {
            host: hosts.code(&record[places.host]),
            task: tasks.code(&key),
            event: events.code(&record[places.event]),
            at_ns,
            edge,
            rest: hash(&record, &places.others),
        });
    }
    marks.sort_unstable();
    let before = marks.len();
    marks.dedup();
    Ok(Checkpoints {
        source: rows.finish(),
        hosts: hosts.into_texts(),
        tasks: tasks.into_texts(),
        events: events.into_texts(),
        duplicates: before - marks.len(),
        marks,
        faults,
    })
}

/// An event from its start to its stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start_ns: i64,
    /// `None` if the event was never stopped.
    pub(super) stop_ns: Option<i64>,
    pub(super) host: u32,
    pub(super) task: u32,
    pub(super) event: u32,
}

/// Pairs each stop with the last open start of the same event, task and host before it. Returns the intervals, and the
/// number of stops without a start.
///
/// A start while another is open replaces it, and the earlier start has no stop. If a stop and a start have the same
/// time, the stop belongs to the event that was open before.
pub(super) fn pair(marks: &[Mark]) -> (Vec<Interval>, usize) {
    let mut intervals = Vec::with_capacity(marks.len() / 2);
    let mut unstarted = 0;
    let key = |mark: &Mark| (mark.host, mark.task, mark.event);
    for of_one in marks.chunk_by(|a, b| key(a) == key(b)) {
        let mut open: Option<Mark> = None;
        let interval = |start: Mark, stop_ns| Interval {
            start_ns: start.at_ns,
            stop_ns,
            host: start.host,
            task: start.task,
            event: start.event,
        };
        for at_once in of_one.chunk_by(|a, b| a.at_ns == b.at_ns) {
            let (mut starts, mut stops) =
                (at_once.iter().filter(is(Edge::Start)), at_once.iter().filter(is(Edge::Stop)));
            let closing = if open.is_some() { stops.next() } else { None };
            if let (Some(start), Some(stop)) = (open, closing) {
                intervals.push(interval(start, Some(stop.at_ns)));
                open = None;
            }
            loop {
                match (starts.next(), stops.next()) {
                    (Some(start), Some(stop)) => intervals.push(interval(*start, Some(stop.at_ns))),
                    (Some(start), None) => intervals.extend(open.replace(*start).map(|start| interval(start, None))),
                    (None, Some(_)) => unstarted += 1,
                    (None, None) => break,
                }
            }
        }
        intervals.extend(open.map(|start| interval(start, None)));
    }
    (intervals, unstarted)
}

fn is(edge: Edge) -> impl Fn(&&Mark) -> bool {
    move |mark| mark.edge == edge
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(marks: &[(i64, Edge)]) -> (Vec<(i64, Option<i64>)>, usize) {
        let mut marks: Vec<Mark> = marks
            .iter()
            .map(|(at_ns, edge)| Mark { host: 0, task: 0, event: 0, at_ns: *at_ns, edge: *edge, rest: 0 })
            .collect();
        marks.sort_unstable();
        let (intervals, unstarted) = pair(&marks);
        (intervals.iter().map(|interval| (interval.start_ns, interval.stop_ns)).collect(), unstarted)
    }

    #[test]
    fn stops_belong_to_the_start_before_them() {
        use Edge::{Start, Stop};
        assert_eq!(pairs(&[(5, Stop), (1, Start)]), (vec![(1, Some(5))], 0));
        assert_eq!(pairs(&[(1, Start), (2, Start), (5, Stop)]), (vec![(1, None), (2, Some(5))], 0));
        assert_eq!(pairs(&[(1, Stop), (2, Start)]), (vec![(2, None)], 1));
        assert_eq!(pairs(&[(3, Start), (3, Stop)]), (vec![(3, Some(3))], 0));
        let touching = [(1, Start), (5, Stop), (5, Start), (9, Stop)];
        assert_eq!(pairs(&touching), (vec![(1, Some(5)), (5, Some(9))], 0));
        assert_eq!(pairs(&[(1, Stop), (2, Stop)]), (vec![], 2));
    }

    #[test]
    fn marks_of_others_are_not_paired() {
        let mark = |host, task, at_ns, edge| Mark { host, task, event: 0, at_ns, edge, rest: 0 };
        let marks = [mark(0, 0, 1, Edge::Start), mark(0, 1, 2, Edge::Stop), mark(1, 0, 3, Edge::Stop)];
        let (intervals, unstarted) = pair(&marks);
        assert_eq!((intervals.len(), intervals[0].stop_ns, unstarted), (1, None, 2));
    }
}
