//! Progress bars on standard error while attempts run; plain lines if it is not a terminal.

use super::plain;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The progress of a sweep: one bar for the sweep, and one for each running attempt.
pub struct Progress {
    bars: MultiProgress,
    total: ProgressBar,
    live: bool,
    /// Width of the terminal in characters.
    width: Option<usize>,
}

/// The progress bar of one attempt.
#[derive(Clone)]
pub struct Bar {
    bar: ProgressBar,
}

impl Progress {
    /// Shows the progress of a sweep with this many attempts, on a terminal of this width.
    pub fn new(attempts: u64, width: Option<usize>) -> Self {
        let live = std::io::stderr().is_terminal();
        let target = if live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let total = bars.add(ProgressBar::new(attempts));
        // There is no estimate of the remaining time before the first attempt has ended.
        total.set_style(style("{prefix} {pos}/{len} attempts {bar:30} {elapsed} elapsed"));
        total.set_prefix("sweep");
        if live {
            total.enable_steady_tick(Duration::from_secs(1));
        }
        Self { bars, total, live, width }
    }

    /// Adds the bar of an attempt.
    pub fn begin(&self, id: &str, label: &str) -> Bar {
        let bar = self.bars.insert_before(&self.total, ProgressBar::new(0));
        // This style is used until a number of steps is planned.
        bar.set_style(style("{prefix} {wide_msg} {elapsed} elapsed"));
        bar.set_prefix(plain(&format!("{id} {label}")));
        if self.live {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Bar { bar }
    }

    /// Removes an attempt's bar and writes a line instead.
    pub fn end(&self, bar: Option<&Bar>, line: &str) {
        if let Some(Bar { bar }) = bar {
            bar.finish_and_clear();
            self.bars.remove(bar);
        }
        self.total.inc(1);
        self.total.set_style(style("{prefix} {pos}/{len} attempts {bar:30} {elapsed} elapsed, {eta} left"));
        self.say(line);
    }

    /// Writes a complete line above the bars.
    pub fn say(&self, line: &str) {
        let line = plain(line);
        if self.live {
            // A closed terminal must not stop the sweep.
            let _ = self.bars.println(line);
        } else {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// Returns the greatest length of a line in characters; `None` without a limit.
    pub fn width(&self) -> Option<usize> {
        self.width.filter(|_| self.live)
    }

    /// Removes all bars.
    pub fn finish(&self) {
        self.total.finish_and_clear();
    }
}

impl Bar {
    /// Sets the number of planned steps; 0 if unknown.
    pub fn plan(&self, steps: u64) {
        self.bar.set_length(steps);
        if steps > 0 {
            self.bar.set_style(style("{prefix} {pos}/{len} steps {wide_bar} {msg} {eta} left"));
        }
    }

    /// Sets the last finished step and its loss.
    pub fn step(&self, step: u64, loss: Option<f64>) {
        self.bar.set_position(step);
        let is_planned = self.bar.length().is_some_and(|steps| steps > 0);
        match loss.map(|loss| format!("loss {}", super::significant(loss))) {
            Some(loss) if is_planned => self.bar.set_message(loss),
            Some(loss) => self.bar.set_message(format!("step {step} {loss}")),
            None if is_planned => {}
            None => self.bar.set_message(format!("step {step}")),
        }
    }

    /// Shows the worker's status text.
    pub fn message(&self, message: &str) {
        self.bar.set_message(plain(message));
    }
}

/// Progress of a single task, shown only on a terminal.
pub struct Count {
    bar: ProgressBar,
}

impl Count {
    /// Shows a bar for `what`, for example `attempts`.
    pub fn new(what: &str) -> Self {
        let live = std::io::stderr().is_terminal();
        let target = if live { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.set_style(style("{pos}/{len} {msg} {bar:30} {elapsed} elapsed, {eta} left"));
        bar.set_message(what.to_owned());
        Self { bar }
    }

    /// Sets how many items are done.
    pub fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_messages_cannot_move_the_cursor() {
        let Bar { bar } = Progress::new(1, None).begin("0123abcd", "x \rEVIL is best");
        assert_eq!(bar.prefix(), r"0123abcd x \u{d}EVIL is best");
        let bar = Bar { bar };
        bar.message("epoch 1\u{1b}[31m\nred");
        assert_eq!(bar.bar.message(), r"epoch 1\u{1b}[31m\u{a}red");
    }

    #[test]
    fn without_planned_steps_the_bar_shows_only_the_step() {
        let bar = Progress::new(1, None).begin("0123abcd", "x 1");
        bar.step(3, Some(0.5));
        assert_eq!(bar.bar.message(), "step 3 loss 0.5");
        bar.plan(10);
        bar.step(4, Some(0.25));
        assert_eq!((bar.bar.message().as_str(), bar.bar.length(), bar.bar.position()), ("loss 0.25", Some(10), 4));
    }
}
