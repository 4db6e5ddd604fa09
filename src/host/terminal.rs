//! The size of the terminal.

use std::os::fd::AsFd;

/// Returns the width of standard output in characters, or `None` if it is not a terminal or does not report it.
pub fn columns() -> Option<usize> {
    columns_of(std::io::stdout())
}

/// Returns the height of standard output in lines, or `None` if it is not a terminal or does not report it.
pub fn rows() -> Option<usize> {
    let rows = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?.ws_row;
    (rows > 0).then_some(rows.into())
}

/// As [`columns`], for standard error.
pub fn stderr_columns() -> Option<usize> {
    columns_of(std::io::stderr())
}

fn columns_of(output: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
