//! Traces for Perfetto and Chrome's tracing: the phases of each rank as bars, every series as a counter.
//!
//! The format is the JSON of Chrome's Trace Event Format: times are in microseconds, `X` is a bar, `C` a counter, `M` a name.

use super::{Entry, File, ID_DIGITS, PointsOf, Sink, StepTimes, each_point, path_name};
use crate::record::{Axis, Phase, Table, Value};
use crate::wire::to_json_line;
use std::collections::BTreeMap;
use std::io;

/// The only process of a trace.
const PROCESS: u32 = 1;

/// Returns the trace of an attempt, as a file named by model and id.
///
/// Bars of one thread nest. A phase that partly overlaps another one goes to a further thread of its rank. A phase
/// without an end lasts until the attempt's end. Points over steps are at the end of their step, and are left out if no
/// phase has that step. Non-finite numbers are left out.
pub fn perfetto_trace<'a>(entry: &'a Entry, points: &'a PointsOf<'a>) -> File<'a> {
    let name = format!("{}-{}.json", entry.short_model(), entry.id.0.prefix(ID_DIGITS));
    File::new(path_name(&name).into(), move |out| {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        let mut events = Events { out, is_first: true };
        events.phases(entry)?;
        events.counters(entry, points)?;
        out.write_all(b"\n],\"otherData\":")?;
        out.write_all(to_json_line(&about(entry)).as_bytes())?;
        out.write_all(b"}\n")
    })
}

/// Returns the ids, device and outcome of the attempt.
fn about(entry: &Entry) -> Value {
    let attempt = entry.attempt();
    let mut about = Table::from([
        ("attempt".to_owned(), entry.id.to_string().into()),
        ("run".to_owned(), entry.sealed.run.id.to_string().into()),
        ("experiment".to_owned(), entry.experiment().into()),
        ("device".to_owned(), entry.sealed.run.parts.device.to_string().into()),
        ("outcome".to_owned(), attempt.outcome.name().into()),
        ("started_unix_ms".to_owned(), attempt.started_unix_ms.into()),
    ]);
    let taints = attempt.all_taints();
    if !taints.is_empty() {
        about.insert("tainted".to_owned(), taints.join("; ").into());
    }
    about.into()
}

struct Events<'o> {
    out: &'o mut dyn Sink,
    is_first: bool,
}

impl Events<'_> {
    fn put(&mut self, event: &str) -> io::Result<()> {
        let before = if std::mem::replace(&mut self.is_first, false) { "\n" } else { ",\n" };
        self.out.write_all(before.as_bytes())?;
        self.out.write_all(event.as_bytes())
    }

    fn name(&mut self, kind: &str, thread: usize, name: &str) -> io::Result<()> {
        let name = text(name);
        self.put(&format!(r#"{{"ph":"M","name":"{kind}","pid":{PROCESS},"tid":{thread},"args":{{"name":{name}}}}}"#))
    }

    fn phases(&mut self, entry: &Entry) -> io::Result<()> {
        self.name("process_name", 0, &entry.title())?;
        let mut phases: Vec<(u64, u64, &Phase)> = entry.sealed.phases.iter().map(|phase| span(phase, entry)).collect();
        phases.sort_by_key(|(start, stop, _)| (*start, std::cmp::Reverse(*stop)));
        // The threads of each rank, and for each thread its number and the ends of its open bars.
        let mut ranks: BTreeMap<u32, Vec<(usize, Vec<u64>)>> = BTreeMap::new();
        let mut threads = 0;
        for (start, stop, phase) in phases {
            let of_rank = ranks.entry(phase.rank).or_default();
            let fits = |(_, open): &mut (usize, Vec<u64>)| {
                while open.last().is_some_and(|end| *end <= start) {
                    open.pop();
                }
                open.last().is_none_or(|end| *end >= stop)
            };
            let at = of_rank.iter_mut().position(fits);
            let place = at.unwrap_or(of_rank.len());
            if at.is_none() {
                threads += 1;
                let name = match of_rank.len() {
                    0 => format!("rank {}", phase.rank),
                    more => format!("rank {} ({})", phase.rank, more + 1),
                };
                of_rank.push((threads, Vec::new()));
                self.name("thread_name", threads, &name)?;
            }
            let Some((thread, open)) = of_rank.get_mut(place) else { continue };
            open.push(stop);
            self.put(&format!(
                r#"{{"ph":"X","name":{},"pid":{PROCESS},"tid":{thread},"ts":{},"dur":{},"args":{{"index":{}}}}}"#,
                text(&phase.name),
                microseconds(start),
                microseconds(stop - start),
                phase.index
            ))?;
        }
        Ok(())
    }

    fn counters(&mut self, entry: &Entry, points: &PointsOf<'_>) -> io::Result<()> {
        let times = StepTimes::new(&entry.sealed.phases);
        for series in &entry.attempt().series {
            let unit = if series.unit.is_empty() { String::new() } else { format!(" [{}]", series.unit) };
            let name = text(&format!("{}{unit}", series.name));
            each_point(points, &series.name, |position, value| {
                let at = if series.axis == Axis::TimeNs { Some(position) } else { times.0.get(&position).copied() };
                let Some(at) = at.filter(|_| value.is_finite()) else { return Ok(()) };
                let at = microseconds(at);
                self.put(&format!(
                    r#"{{"ph":"C","name":{name},"pid":{PROCESS},"ts":{at},"args":{{"value":{value:?}}}}}"#
                ))
            })?;
        }
        Ok(())
    }
}

/// Returns start and stop in ns since the attempt's start.
fn span<'p>(phase: &'p Phase, entry: &Entry) -> (u64, u64, &'p Phase) {
    let stop = phase.stop_ns.unwrap_or(entry.attempt().wall_ns).max(phase.start_ns);
    (phase.start_ns, stop, phase)
}

fn text(text: &str) -> String {
    to_json_line(&text.into())
}

/// Formats nanoseconds as microseconds, without rounding.
fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
