//! Event files for TensorBoard.
//!
//! Its scalars have 32 bits, so numbers lose digits.

use super::{Entry, File, ID_DIGITS, PointsOf, Sink, StepTimes, each_point, path_name};
use crate::interop::event_file::{FILE_VERSION, STEP, SUMMARY, WALL_TIME, record};
use crate::interop::protobuf::Message;
use crate::record::Axis;
use std::io;
use std::path::PathBuf;

/// Returns the event file of an attempt, in a folder named by model and id. It contains every series, every metric at
/// the last step, and all fields as text.
///
/// Tags are names of series, and `metric/NAME`. The steps of series over time are the indexes of their points, and each
/// point has its own time.
pub fn tensorboard_file<'a>(entry: &'a Entry, points: &'a PointsOf<'a>) -> File<'a> {
    let id = entry.id.0.prefix(ID_DIGITS);
    let name = format!("events.out.tfevents.{}.ledger.{id}", entry.attempt().started_unix_ms.div_euclid(1000));
    let folder = PathBuf::from(path_name(entry.experiment())).join(path_name(&format!("{}-{id}", entry.short_model())));
    File::new(folder.join(name), move |out| write(entry, points, out))
}

fn write(entry: &Entry, points: &PointsOf<'_>, out: &mut dyn Sink) -> io::Result<()> {
    let attempt = entry.attempt();
    let started_s = seconds(attempt.started_unix_ms, 0);
    let mut put = |message| out.write_all(&record(message));
    put(Message::default().double(WALL_TIME, started_s).text(FILE_VERSION, "brain.Event:2"))?;
    let fields = entry.fields().into_iter().chain([("seed".to_owned(), entry.sealed.run.parts.seed.to_string())]);
    let text = fields.map(|(name, value)| format!("    {name} = {value}\n")).collect::<String>();
    put(event(started_s, 0, &text_value("fields", &text)))?;
    let doubts: Vec<&str> = attempt.outcome.reason().into_iter().chain(attempt.all_taints()).collect();
    if !doubts.is_empty() {
        let text = format!("    {}: {}\n", attempt.standing(), doubts.join("; "));
        put(event(started_s, 0, &text_value("outcome", &text)))?;
    }
    let times = StepTimes::new(&entry.sealed.phases);
    let mut last_step = 0;
    for series in &attempt.series {
        let mut index = 0;
        each_point(points, &series.name, |position, value| {
            let (step, at_ns) = match series.axis {
                Axis::Step => (position, times.at(position)),
                Axis::TimeNs => (index, position),
            };
            index += 1;
            if series.axis == Axis::Step {
                last_step = last_step.max(position);
            }
            let at_s = seconds(attempt.started_unix_ms, at_ns);
            put(event(at_s, step, &scalar(&series.name, value)))
        })?;
    }
    let ended_s = seconds(attempt.started_unix_ms, attempt.wall_ns);
    for (name, metric) in &attempt.metrics {
        if let Some(value) = metric.value {
            put(event(ended_s, last_step, &scalar(&format!("metric/{name}"), value)))?;
        }
    }
    Ok(())
}

fn event(at_s: f64, step: u64, value: &Message) -> Message {
    Message::default().double(WALL_TIME, at_s).int(STEP, step).message(SUMMARY, &Message::default().message(1, value))
}

/// Returns a `Summary.Value` with one number.
fn scalar(tag: &str, value: f64) -> Message {
    #[expect(clippy::cast_possible_truncation, reason = "the format has 32 bits")]
    let value = value as f32;
    Message::default().text(1, tag).float(2, value)
}

/// Returns a `Summary.Value` with a text: a tensor of one string, for the plugin `text`.
fn text_value(tag: &str, text: &str) -> Message {
    const STRING: u64 = 7;
    let plugin = Message::default().message(1, &Message::default().text(1, "text"));
    let shape = Message::default().message(2, &Message::default().int(1, 1));
    let tensor = Message::default().int(1, STRING).message(2, &shape).text(8, text);
    Message::default().text(1, tag).message(8, &tensor).message(9, &plugin)
}

/// Returns seconds since the Unix epoch.
fn seconds(started_unix_ms: i64, position_ns: u64) -> f64 {
    let whole = i64::try_from(position_ns / 1_000_000).unwrap_or(i64::MAX);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of this age are far below 2^53")]
    let ms = started_unix_ms.saturating_add(whole) as f64;
    ms / 1e3
}
