//! Other programs that answer a question: started, listened to, and left when they take too long.

use super::{environment, process};
use ledger_record::Exit;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// More output than this is no answer to anything that the house asks.
const MOST_BYTES: u64 = 1 << 28;

/// A program that could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such program.
    #[error("there is no `{0}` on PATH")]
    Absent(String),
    /// It did not answer in time, and was ended.
    #[error("`{program}` did not answer within {seconds} s")]
    Late {
        /// Its name.
        program: String,
        /// How long we waited.
        seconds: u64,
    },
    /// It could not be started.
    #[error("`{program}` cannot be run: {source}")]
    Io {
        /// Its name.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// It was started, and could not be listened to.
    #[error("the output of `{program}` cannot be read: {source}")]
    Unheard {
        /// Its name.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What a program said, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its standard output; what is no UTF-8 is replaced.
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

    /// The first line of what it complained of, without its own name in front.
    pub fn complaint(&self) -> &str {
        let line = self.err.lines().chain(self.out.lines()).find(|line| !line.trim().is_empty());
        line.map_or("it said nothing", str::trim)
    }
}

/// Asks a program that is on `PATH`, in a folder and without the named environment variables. It answers in English, whatever the user's
/// language.
///
/// # Errors
/// If there is no such program, it cannot be started, or it does not end in time; then it is killed.
pub fn ask(
    program: &str,
    arguments: &[&str],
    directory: &Path,
    without: &[&str],
    patience: Duration,
) -> Result<Said, CommandError> {
    converse(program, arguments, directory, (&[("LC_ALL", "C")], without), patience)
}

/// As [`ask`], of a program that hands its environment on to what it starts: that has to be the user's own.
///
/// # Errors
/// As of [`ask`].
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
            // Nobody listens any more after the time is over.
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
    fn what_is_said_and_how_it_ends() {
        let said = shell("pwd; echo \"${HOME-none}\"; echo; echo oh >&2; exit 3", Duration::from_secs(60)).unwrap();
        assert_eq!((said.out.as_str(), said.err.as_str(), said.exit), ("/\nnone\n\n", "oh\n", Exit::Code(3)));
        assert_eq!((said.is_success(), said.complaint()), (false, "oh"));
        let long = shell("head -c 300000 /dev/zero", Duration::from_secs(60)).unwrap();
        assert_eq!(long.out.len(), 300_000, "more than a pipe holds");
    }

    #[test]
    fn what_is_asked_answers_in_english_and_what_is_instructed_has_the_users_language() {
        let script = ["-c", "printf %s \"${LC_ALL-none}\""];
        let patience = Duration::from_secs(60);
        assert_eq!(ask("sh", &script, Path::new("/"), &[], patience).unwrap().out, "C");
        let own = environment::text_var("LC_ALL").unwrap_or_else(|| "none".to_owned());
        assert_eq!(instruct("sh", &script, Path::new("/"), &[], patience).unwrap().out, own);
    }

    #[test]
    fn one_that_hangs_is_left_and_one_that_is_not_there_is_named() {
        let error = shell("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "`sh` did not answer within 0 s");
        let error = ask("no-such-program", &[], Path::new("/"), &[], Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "there is no `no-such-program` on PATH");
    }
}
