//! The terminal that standard output is.

/// How many characters a line of it has; none where standard output is no terminal, or one that does not say.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
