//! Output of answers and messages: to standard output, on a terminal with colours and a pager, and to standard error.

use super::failure::{Failure, exit};
use crate::host::signals::Interrupts;
use crate::host::{environment, terminal};
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

/// Applies `--color`. Without it, `NO_COLOR`, `CLICOLOR` and `CLICOLOR_FORCE` decide.
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

/// Prints the text of an answer, with its tables fitted to the terminal. With `pages`, a pager shows a long text.
pub(super) fn answer(text: impl FnOnce() -> String, pages: bool) -> Result<(), Failure> {
    let (text, heads) = report::fitted_to(terminal::columns(), text);
    let plain = report::plain_lines(&text);
    let is_long = |rows: usize| lines_on_terminal(&plain) >= rows;
    let text = paint_out().answer(&plain, &heads);
    if pages && std::io::stdout().is_terminal() && terminal::rows().is_some_and(is_long) && page(&text) {
        PRINTED.store(true, Ordering::Relaxed);
        return Ok(());
    }
    write(text.as_bytes())
}

/// Writes a text to standard output; on a terminal, control characters are escaped.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let clean = std::io::stdout().is_terminal().then(|| report::plain_lines(text));
    write(clean.as_deref().unwrap_or(text).as_bytes())
}

/// Writes bytes to standard output. A reader that closed the pipe causes no error.
pub(super) fn write(bytes: &[u8]) -> Result<(), Failure> {
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

/// Writes lines to standard error. The first line is coloured if it begins with `error:`, `warning:` or `note:`.
pub(super) fn tell(text: &str) {
    // If standard error is closed, there is no other place to report that.
    let _ = std::io::stderr().write_all(paint_err().message(&report::plain_lines(text)).as_bytes());
}

/// Returns the user's pager, a program and its arguments without quotes. Returns `None` for `cat` or an empty name.
fn pager() -> Option<Command> {
    let named = environment::text_var("LEDGER_PAGER").or_else(|| environment::text_var("PAGER"));
    let command = named.unwrap_or_else(|| "less".to_owned());
    let mut words = command.split_whitespace();
    if command.trim() == "cat" {
        return None;
    }
    let mut pager = Command::new(words.next()?);
    pager.args(words);
    Some(pager)
}

/// Shows a text in the pager. Returns whether it was shown.
fn page(text: &str) -> bool {
    let Some(mut pager) = pager() else { return false };
    // With these options, `less` exits if all fits, shows colours, and leaves the text on the screen; `lv` shows colours.
    match environment::text_var("LESS") {
        None => pager.env("LESS", "FRX"),
        Some(own) if own.contains(['r', 'R']) => &mut pager,
        Some(own) => pager.env("LESS", format!("{own} -R")),
    };
    if environment::text_var("LV").is_none() {
        pager.env("LV", "-c");
    }
    // The pager handles Ctrl-C: if this process ended first, the shell and the pager would share the terminal.
    let _heard = Interrupts::install();
    let Ok(mut child) = pager.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A person who quits the pager early closes the pipe.
        let _ = input.write_all(text.as_bytes());
    }
    // Some pagers are ended by Ctrl-C. A pager with an error code may have shown nothing, so the text is printed.
    child.wait().is_ok_and(|status| status.code().is_none_or(|code| code == 0))
}

/// Returns the number of lines that a text takes on the terminal.
fn lines_on_terminal(text: &str) -> usize {
    let columns = terminal::columns().unwrap_or(usize::MAX);
    text.lines().map(|line| line.chars().count().div_ceil(columns).max(1)).sum()
}
