//! Runs other programs for their output, with a timeout.

use super::{environment, process};
use ledger_record::Exit;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The maximum output that is read from a program.
const MOST_BYTES: u64 = 1 << 28;

/// Why a program could not be queried.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No such program is on `PATH`.
    #[error("there is no `{0}` on PATH")]
    Absent(String),
    /// It did not end in time, and was killed.
    #[error("`{program}` did not answer within {seconds} s")]
    Late {
        /// The program's name.
        program: String,
        /// The timeout.
        seconds: u64,
    },
    /// It could not be started.
    #[error("`{program}` cannot be run: {source}")]
    Io {
        /// The program's name.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// It was started, but its output or exit status could not be read.
    #[error("the output of `{program}` cannot be read: {source}")]
    Unheard {
        /// The program's name.
        program: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The output of a program, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its standard output; invalid UTF-8 is replaced.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// How it ended.
    pub exit: Exit,
}

impl Said {
    /// Whether it ended with code 0.
    pub fn is_success(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Returns the first non-blank line of its standard error, or else of its standard output.
    pub fn complaint(&self) -> &str {
        let line = self.err.lines().chain(self.out.lines()).find(|line| !line.trim().is_empty());
        line.map_or("it said nothing", str::trim)
    }
}

/// Runs a program from `PATH` in a folder, without the named environment variables. Its messages are in English
/// (`LC_ALL=C`), whatever the user's language.
///
/// # Errors
/// If there is no such program, it cannot be started, or it does not end in time. It is killed then.
pub fn ask(
    program: &str,
    arguments: &[&str],
    directory: &Path,
    without: &[&str],
    patience: Duration,
) -> Result<Said, CommandError> {
    converse(program, arguments, directory, (&[("LC_ALL", "C")], without), patience)
}

/// Like [`ask`], but keeps the user's locale, for a program that passes its environment on to what it starts.
///
/// # Errors
/// As [`ask`].
pub fn instruct(
    program: &str,
    arguments: &[&str],
    directory: &Path,
    without: &[&str],
    patience: Duration,
) -> Result<Said, CommandError> {
    converse(program, arguments, directory, (&[], without), patience)
}

fn converse(
    program: &str,
    arguments: &[&str],
    directory: &Path,
    (with, without): (&[(&str, &str)], &[&str]),
    patience: Duration,
) -> Result<Said, CommandError> {
    let failed = |source| CommandError::Io { program: program.to_owned(), source };
    let unheard = |source| CommandError::Unheard { program: program.to_owned(), source };
    let path = environment::which(program).ok_or_else(|| CommandError::Absent(program.to_owned()))?;
    let mut command = Command::new(path);
    command.args(arguments).current_dir(directory).envs(with.iter().copied()).stdin(Stdio::null());
    for name in without {
        command.env_remove(name);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let listening = listen(&mut child);
    let Ok((out, err)) = listening.recv_timeout(patience) else {
        // It may have ended just now.
        let _ = child.kill();
        child.wait().map_err(unheard)?;
        return Err(CommandError::Late { program: program.to_owned(), seconds: patience.as_secs() });
    };
    let status = child.wait().map_err(unheard)?;
    let text = |bytes: io::Result<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Said { out: text(out).map_err(unheard)?, err: text(err).map_err(unheard)?, exit: process::exit_of(status) })
}

type Heard = (io::Result<Vec<u8>>, io::Result<Vec<u8>>);

fn listen(child: &mut Child) -> mpsc::Receiver<Heard> {
    let (sender, receiver) = mpsc::channel();
    if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
        thread::spawn(move || {
            let errors = thread::spawn(move || read(err));
            let out = read(out);
            let errors = errors.join().unwrap_or_else(|_| Err(io::Error::other("the listener broke down")));
            // The receiver is gone after the timeout.
            let _ = sender.send((out, errors));
        });
    }
    receiver
}

fn read(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Result<Said, CommandError> {
        ask("sh", &["-c", script], Path::new("/"), &["HOME"], patience)
    }

    #[test]
    fn output_and_exit_status_are_returned() {
        let said = shell("pwd; echo \"${HOME-none}\"; echo; echo oh >&2; exit 3", Duration::from_secs(60)).unwrap();
        assert_eq!((said.out.as_str(), said.err.as_str(), said.exit), ("/\nnone\n\n", "oh\n", Exit::Code(3)));
        assert_eq!((said.is_success(), said.complaint()), (false, "oh"));
        let long = shell("head -c 300000 /dev/zero", Duration::from_secs(60)).unwrap();
        assert_eq!(long.out.len(), 300_000, "more than a pipe holds");
    }

    #[test]
    fn ask_sets_the_c_locale_and_instruct_keeps_the_users() {
        let script = ["-c", "printf %s \"${LC_ALL-none}\""];
        let patience = Duration::from_secs(60);
        assert_eq!(ask("sh", &script, Path::new("/"), &[], patience).unwrap().out, "C");
        let own = environment::text_var("LC_ALL").unwrap_or_else(|| "none".to_owned());
        assert_eq!(instruct("sh", &script, Path::new("/"), &[], patience).unwrap().out, own);
    }

    #[test]
    fn hanging_and_missing_programs_are_errors() {
        let error = shell("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "`sh` did not answer within 0 s");
        let error = ask("no-such-program", &[], Path::new("/"), &[], Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "there is no `no-such-program` on PATH");
    }
}
