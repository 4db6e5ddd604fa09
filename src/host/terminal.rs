//! The terminal that an output is.

use std::os::fd::AsFd;

/// How many characters a line of standard output has; none where it is no terminal, or one that does not say.
pub fn columns() -> Option<usize> {
    columns_of(std::io::stdout())
}

/// How many lines standard output shows at once; none where it is no terminal, or one that does not say.
pub fn rows() -> Option<usize> {
    let rows = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?.ws_row;
    (rows > 0).then_some(rows.into())
}

/// [`columns`] of standard error.
pub fn stderr_columns() -> Option<usize> {
    columns_of(std::io::stderr())
}

fn columns_of(output: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
