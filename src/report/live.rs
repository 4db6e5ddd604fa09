//! Running attempts as a table that is updated in place.

use super::document::table_of;
use super::listing::Running;
use super::number::{bytes, duration, quantity, significant, wall_seconds};
use super::plain::plain;
use super::table::columns;
use crate::record::{Table, Value};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Placeholder for an unknown value.
const NONE: &str = "-";

/// A running attempt and the state of its hardware.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The attempt.
    pub running: Running,
    /// Power of all its GPUs together, in watts.
    pub power_w: Option<f64>,
    /// Temperature of its hottest GPU, in °C.
    pub temperature_c: Option<f64>,
    /// Memory in bytes: of all its GPUs together, or of its processes if it uses no GPU.
    pub memory_bytes: Option<f64>,
    /// Status text reported by the worker.
    pub status: Option<String>,
}

impl Seen {
    fn with(&self) -> String {
        let row = &self.running.row;
        let words = [row.model.as_str(), row.label.as_str()].into_iter().filter(|word| !word.is_empty());
        words.map(str::to_owned).chain([format!("seed {}", row.seed)]).collect::<Vec<_>>().join(" ")
    }

    /// Returns step, loss, power, temperature, memory, elapsed time and remaining time.
    fn cells(&self) -> [String; 7] {
        let running = &self.running;
        let none = || NONE.to_owned();
        [
            running.steps().or_else(|| self.status.clone()).unwrap_or_else(none),
            running.row.loss.map_or_else(none, significant),
            self.power_w.map_or_else(none, |watts| quantity(watts, "W")),
            self.temperature_c.map_or_else(none, |celsius| format!("{celsius:.0} °C")),
            self.memory_bytes.map_or_else(none, whole_bytes),
            wall_seconds(running.row.wall_ns).map_or_else(none, duration),
            running.left_s.map_or_else(none, duration),
        ]
    }

    fn value(&self) -> Value {
        let Value::Table(mut table) = self.running.value() else { return Value::Table(Table::new()) };
        let numbers =
            [("power_w", self.power_w), ("temperature_c", self.temperature_c), ("memory_bytes", self.memory_bytes)];
        table.extend(numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
        table.extend(self.status.as_deref().map(|status| ("status".to_owned(), status.into())));
        Value::Table(table)
    }
}

fn whole_bytes(count: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a memory, from 0")]
    bytes(count.max(0.0) as u64)
}

/// Returns the attempts as a table with lines of at most `width` characters.
pub fn live_text(seen: &[Seen], width: Option<usize>) -> String {
    if seen.is_empty() {
        return "no attempt is running\n".to_owned();
    }
    let heads = ["RUN", ">STEP", ">LOSS", ">POWER", ">TEMP", ">MEMORY", ">TIME", ">LEFT", "WITH", "HOST"];
    let row = |one: &Seen| {
        let mut row = vec![one.running.row.run.0.prefix(8)];
        row.extend(one.cells());
        row.extend([one.with(), one.running.host.clone()]);
        row
    };
    let rows: Vec<Vec<String>> = seen.iter().map(row).collect();
    // Columns without any value are dropped, so that the labels of the attempts have more room.
    let is_known = |at: &usize| rows.iter().any(|row| row.get(*at).is_some_and(|cell| cell != NONE));
    let kept: Vec<usize> = (0..heads.len()).filter(is_known).collect();
    let heads: Vec<&str> = kept.iter().map(|at| heads[*at]).collect();
    let rows = rows.iter().map(|row| kept.iter().map(|at| row[*at].clone()).collect());
    columns(&heads, rows).lines().map(|line| format!("{}\n", fitted(line, width))).collect()
}

/// Returns the attempts as one self-contained line each.
pub fn live_lines(seen: &[Seen]) -> String {
    let line = |one: &Seen| {
        let [step, loss, power, temperature, memory, time, left] = one.cells();
        let known = |text: String| Some(text).filter(|text| text != NONE);
        let words = [
            known(step).map(|step| if one.running.step.is_some() { format!("step {step}") } else { plain(&step) }),
            known(loss).map(|loss| format!("loss {loss}")),
            known(power),
            known(temperature),
            known(memory),
            known(time).map(|time| format!("{time} so far")),
            known(left).map(|left| format!("{left} left")),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        format!("{} {}: {}\n", one.running.row.run.0.prefix(8), plain(&one.with()), words.join(", "))
    };
    seen.iter().map(line).collect()
}

/// Returns the attempts as a document's members.
pub fn live_value(seen: &[Seen]) -> Table {
    table_of([("running", Value::List(seen.iter().map(Seen::value).collect()))])
}

/// Truncates a line to `width` characters, with an ellipsis.
pub fn fitted(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}

/// A text on the terminal that is replaced in place.
pub struct Screen(ProgressBar);

impl Screen {
    /// Creates an empty screen on standard error.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Replaces the shown text.
    pub fn show(&self, text: &str) {
        self.0.set_message(text.trim_end().to_owned());
    }

    /// Leaves the last text on the terminal.
    pub fn finish(&self) {
        self.0.abandon();
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AttemptId, Digest, Nonce, Row, RunId};

    fn seen() -> Seen {
        let row = Row {
            attempt: AttemptId(Digest([7; 32])),
            run: RunId(Digest([0xab; 32])),
            started_unix_ms: 0,
            wall_ns: 90_000_000_000,
            outcome: "running".to_owned(),
            experiment: "e".to_owned(),
            model: "toy".to_owned(),
            label: "x 1\u{1b}[2K".to_owned(),
            seed: 3,
            accuracy: None,
            loss: Some(0.25),
        };
        let running = Running {
            nonce: Nonce([7; 16]),
            row,
            host: "n1".to_owned(),
            step: Some((120, 5000)),
            left_s: Some(3600.0),
        };
        Seen { running, power_w: Some(412.4), temperature_c: Some(61.0), memory_bytes: None, status: None }
    }

    #[test]
    fn running_attempts_are_a_table_that_fits_or_lines_without_a_terminal() {
        insta::assert_snapshot!(live_text(&[seen()], None), @r"
        RUN           STEP  LOSS  POWER   TEMP    TIME        LEFT  WITH                     HOST
        abababab  120/5000  0.25  412 W  61 °C  90.0 s  1 h 00 min  toy x 1\u{1b}[2K seed 3  n1
        ");
        let narrow = live_text(&[seen()], Some(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40) && narrow.contains('…'), "{narrow}");
        insta::assert_snapshot!(live_lines(&[seen()]), @r"abababab toy x 1\u{1b}[2K seed 3: step 120/5000, loss 0.25, 412 W, 61 °C, 90.0 s so far, 1 h 00 min left");
        assert_eq!(live_text(&[], None), "no attempt is running\n");
        let Value::List(items) = &live_value(&[seen()])["running"] else { panic!("no list") };
        let table = items[0].as_table().unwrap();
        assert_eq!(
            (&table["step"], &table["steps"], &table["power_w"]),
            (&120_i64.into(), &5000_i64.into(), &412.4.into())
        );
        assert!(!table.contains_key("memory_bytes"), "nobody read it");
    }
}
