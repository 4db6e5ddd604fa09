//! The terminal that an output is.

use std::os::fd::AsFd;

/// How many characters a line of standard output has; none where it is no terminal, or one that does not say.
pub fn columns() -> Option<usize> {
    columns_of(std::io::stdout())
}

/// The same of standard error.
pub fn stderr_columns() -> Option<usize> {
    columns_of(std::io::stderr())
}

fn columns_of(output: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
