//! Where answers and messages go: to standard output, on a terminal with colours and a pager, and to standard error.

use super::failure::{Failure, exit};
use crate::host::{environment, signals, terminal};
use crate::report::{self, Paint};
use anstream::{AutoStream, ColorChoice};
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process has written to standard output.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Whether this process has written an answer.
pub(super) fn has_printed() -> bool {
    PRINTED.load(Ordering::Relaxed)
}

/// What `--color` says, for all that this process writes. Its other settings are `NO_COLOR`, `CLICOLOR` and `CLICOLOR_FORCE`.
pub(super) fn choose_colors(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
}

fn paint_out() -> Paint {
    Paint { is_on: AutoStream::choice(&std::io::stdout()) != ColorChoice::Never }
}

fn paint_err() -> Paint {
    Paint { is_on: AutoStream::choice(&std::io::stderr()) != ColorChoice::Never }
}

/// Prints the text of an answer, with its tables fitted to the terminal. `pages` says whether a long one is shown by a pager.
pub(super) fn answer(text: impl FnOnce() -> String, pages: bool) -> Result<(), Failure> {
    let (text, heads) = report::fitted_to(terminal::columns(), text);
    let text = paint_out().answer(&report::plain_lines(&text), &heads);
    let is_long = |rows: usize| text.lines().count() >= rows;
    if pages && std::io::stdout().is_terminal() && terminal::rows().is_some_and(is_long) && page(&text) {
        PRINTED.store(true, Ordering::Relaxed);
        return Ok(());
    }
    write(text.as_bytes())
}

/// Writes to standard output, to a terminal without control characters. A reader that went away ends the command quietly.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let clean = std::io::stdout().is_terminal().then(|| report::plain_lines(text));
    write(clean.as_deref().unwrap_or(text).as_bytes())
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    PRINTED.store(true, Ordering::Relaxed);
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::NO, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error.
pub(super) fn say(line: &str) {
    tell(&format!("{line}\n"));
}

/// Writes lines to standard error; a first one that begins with `error:`, `warning:` or `note:` in its colour.
pub(super) fn tell(text: &str) {
    // Nobody is left to tell if standard error is closed.
    let _ = std::io::stderr().write_all(paint_err().message(&report::plain_lines(text)).as_bytes());
}

/// The pager that the user names, as words between blanks; none if that is no pager at all.
fn pager() -> Option<Command> {
    let named = |name| environment::text_var(name).filter(|command| !command.trim().is_empty());
    let Some(command) = named("LEDGER_PAGER").or_else(|| named("PAGER")) else { return Some(Command::new("less")) };
    if command.trim() == "cat" {
        return None;
    }
    let mut words = command.split_whitespace();
    let mut pager = Command::new(words.next()?);
    pager.args(words);
    Some(pager)
}

/// Shows a text by the pager, as git does. Returns whether there is one.
fn page(text: &str) -> bool {
    let Some(mut pager) = pager() else { return false };
    // `less` ends by itself if all fits, shows colours, and leaves the text on the screen; `lv` shows colours.
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if environment::text_var(name).is_none() {
            pager.env(name, value);
        }
    }
    // Ctrl-C is the pager's: it must not lose the terminal.
    if signals::outlive().is_err() {
        return false;
    }
    let Ok(mut child) = pager.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // Whoever has seen enough closes it.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().is_ok()
}
