//! The last message of a process that dies of a fatal signal, such as a library's abort or an invalid memory access.

use rustix::io::write;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
use signal_hook::low_level::emulate_default_handler;
use std::fmt;
use std::fs::File;
use std::io;

/// The fatal signals, with their names.
const SIGNALS: [(i32, &str); 5] =
    [(SIGABRT, "SIGABRT"), (SIGBUS, "SIGBUS"), (SIGFPE, "SIGFPE"), (SIGILL, "SIGILL"), (SIGSEGV, "SIGSEGV")];

/// A text of limited length on the stack. A write that does not fit is left out.
pub struct Words {
    bytes: [u8; Self::MOST],
    len: usize,
}

impl Words {
    /// Its maximum length in bytes, which a pipe accepts in one write.
    const MOST: usize = 1024;

    fn new() -> Self {
        Self { bytes: [0; Self::MOST], len: 0 }
    }

    /// Returns the text written so far.
    pub fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Makes this process write a last message to a file before a fatal signal ends it. `words` gets the signal's name. It
/// must neither allocate nor take a lock, because the failed thread may hold the lock.
///
/// # Errors
/// If the system refuses the handlers or another file descriptor.
pub fn with_last_words(file: &File, words: fn(&'static str, &mut Words) -> fmt::Result) -> io::Result<()> {
    for (signal, name) in SIGNALS {
        let file = file.try_clone()?;
        let act = move || {
            let mut last = Words::new();
            if words(name, &mut last).is_ok() {
                // The reader may be gone.
                let _ = write(&file, last.text());
            }
            // This handler replaces the signal's default, so it ends the process itself.
            let _ = emulate_default_handler(signal);
        };
        // SAFETY: the action writes into memory of its stack, to a file that stays open, and ends the process.
        #[expect(unsafe_code, reason = "a handler of a signal")]
        unsafe {
            signal_hook_registry::register_signal_unchecked(signal, act)?;
        }
        on_its_own_stack(signal)?;
    }
    Ok(())
}

/// Makes a signal's handler run on each thread's alternate stack. Otherwise no message, not even Rust's, could be
/// written after a stack overflow.
fn on_its_own_stack(signal: i32) -> io::Result<()> {
    // SAFETY: the action is all zeros before it is read, and what is written back was read from there but for one flag.
    #[expect(unsafe_code, reason = "a handler of a signal")]
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let read = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
        action.sa_flags |= libc::SA_ONSTACK;
        read && libc::sigaction(signal, &raw const action, std::ptr::null_mut()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn a_write_that_does_not_fit_is_left_out() {
        let mut words = Words::new();
        write!(words, "rank {} ", 3).expect("room");
        assert!(words.write_str(&"x".repeat(Words::MOST)).is_err());
        assert_eq!(words.text(), b"rank 3 ");
    }
}
