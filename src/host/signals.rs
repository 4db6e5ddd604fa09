//! Interrupt signals as counters and flags that a loop can poll.

use signal_hook::SigId;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::{flag, low_level};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The signals that ask a command to end. A closing terminal sends the third.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];
const STATUS: &str = "/proc/self/status";

/// Returns those of [`SIGNALS`] that this process handles. Under `nohup` it ignores `SIGHUP`.
fn heeded() -> impl Iterator<Item = i32> {
    let is_ignored = ignores_hangups(&std::fs::read_to_string(STATUS).unwrap_or_default());
    SIGNALS.into_iter().filter(move |signal| *signal != SIGHUP || !is_ignored)
}

/// Whether a process with this status, see proc(5), ignores `SIGHUP`.
fn ignores_hangups(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

/// The number of [`Interrupts`], and the flag that there are none.
///
/// A handler of `signal-hook` cannot be removed. Without [`Interrupts`] it emulates the default behaviour instead.
struct Installed {
    number: usize,
    none: Option<Arc<AtomicBool>>,
}

static INSTALLED: Mutex<Installed> = Mutex::new(Installed { number: 0, none: None });

fn installed() -> MutexGuard<'static, Installed> {
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts `SIGINT`, `SIGTERM` and `SIGHUP` while it exists; they do not end the process.
///
/// A closing terminal causes `SIGHUP` more than once, from the kernel and from the shell; all of them count as one.
/// Under `nohup` none counts.
///
/// No thread is started: each signal writes a byte into a socket of this process. A child process gets the default
/// behaviour back on `exec`. It also receives a terminal's Ctrl-C, unless it has its own process group.
#[derive(Debug)]
pub struct Interrupts {
    arrivals: UnixStream,
    /// Gets a byte for each `SIGHUP`, before `arrivals` does.
    hangups: UnixStream,
    count: AtomicU32,
    hangup_count: AtomicU32,
    terminated: Arc<AtomicBool>,
    actions: Vec<SigId>,
}

impl Interrupts {
    /// Starts counting.
    ///
    /// # Errors
    /// If the system has no more file descriptors or refuses the handlers.
    pub fn install() -> io::Result<Self> {
        let (arrivals, sender) = UnixStream::pair()?;
        arrivals.set_nonblocking(true)?;
        let (hangups, hangup_sender) = UnixStream::pair()?;
        hangups.set_nonblocking(true)?;
        let mut installed = installed();
        let none = match installed.none.take() {
            Some(none) => none,
            None => {
                let none = Arc::new(AtomicBool::new(false));
                for signal in heeded() {
                    flag::register_conditional_default(signal, Arc::clone(&none))?;
                }
                none
            }
        };
        none.store(false, Ordering::SeqCst);
        installed.none = Some(none);
        installed.number += 1;
        drop(installed);

        let terminated = Arc::new(AtomicBool::new(false));
        let (count, hangup_count) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut made = Self { arrivals, hangups, count, hangup_count, terminated, actions: Vec::new() };
        for signal in heeded() {
            if signal == SIGHUP {
                made.actions.push(low_level::pipe::register(signal, hangup_sender.try_clone()?)?);
            }
            made.actions.push(low_level::pipe::register(signal, sender.try_clone()?)?);
        }
        made.actions.push(flag::register(SIGTERM, Arc::clone(&made.terminated))?);
        Ok(made)
    }

    /// Returns how many signals have arrived so far.
    pub fn count(&self) -> u32 {
        // The order matters: every `SIGHUP` in `arrivals` is then already in `hangups`.
        let arrived = drain(&self.arrivals, &self.count);
        let hangups = drain(&self.hangups, &self.hangup_count);
        arrived.saturating_sub(hangups.saturating_sub(1))
    }

    /// Whether one of them was `SIGTERM`.
    pub fn terminated(&self) -> bool {
        self.terminated.load(Ordering::SeqCst)
    }
}

/// Adds the number of bytes waiting in a socket to a counter. Returns the counter.
fn drain(mut socket: &UnixStream, count: &AtomicU32) -> u32 {
    let mut bytes = [0; 64];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => {
                count.fetch_add(u32::try_from(read).unwrap_or(u32::MAX), Ordering::SeqCst);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    count.load(Ordering::SeqCst)
}

/// Readable when a signal has arrived that [`Interrupts::count`] has not counted yet.
impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let mut installed = installed();
        installed.number = installed.number.saturating_sub(1);
        if let (0, Some(none)) = (installed.number, &installed.none) {
            none.store(true, Ordering::SeqCst);
        }
        for action in self.actions.drain(..) {
            low_level::unregister(action);
        }
    }
}

/// Whether `SIGUSR1` has arrived, with which a scheduler warns before the time limit.
///
/// From `install` to the end of the process the signal has no other effect. Otherwise it would end the process.
#[derive(Clone, Debug)]
pub struct Forewarning {
    came: Arc<AtomicBool>,
}

impl Forewarning {
    /// Starts listening.
    ///
    /// # Errors
    /// If the system refuses the handler.
    pub fn install() -> io::Result<Self> {
        let came = Arc::new(AtomicBool::new(false));
        flag::register(SIGUSR1, Arc::clone(&came))?;
        Ok(Self { came })
    }

    /// Whether the signal has arrived.
    pub fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }
}

/// Calls `last` on a separate thread when `SIGINT`, `SIGTERM` or `SIGHUP` arrives. Then ends the process by that
/// signal.
///
/// It stays in effect until the process ends. Further signals meanwhile have no effect.
///
/// # Errors
/// If the system has no more file descriptors or threads, or refuses the handlers.
pub fn before_end(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (mut arrivals, sender) = UnixStream::pair()?;
    let (terminated, hung_up) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in heeded() {
        // Registered before the byte that wakes the thread.
        match signal {
            SIGTERM => drop(flag::register(signal, Arc::clone(&terminated))?),
            SIGHUP => drop(flag::register(signal, Arc::clone(&hung_up))?),
            _ => {}
        }
        low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    let wait = move || {
        if arrivals.read_exact(&mut [0]).is_ok() {
            last();
            let signal = match (terminated.load(Ordering::SeqCst), hung_up.load(Ordering::SeqCst)) {
                (true, _) => SIGTERM,
                (false, true) => SIGHUP,
                (false, false) => SIGINT,
            };
            // It ends the process. If it fails, the error cannot be reported.
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("last".to_owned()).spawn(wait).map(drop)
}

/// Makes this process survive signals that ask it to end, hang-ups and warnings until it exits, for a process that must
/// outlive everything around it.
///
/// # Errors
/// If the system refuses the handlers.
pub fn outlive() -> io::Result<()> {
    for signal in [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Makes writing to a closed pipe end this process silently (`SIGPIPE`), as `ledger ls | head` requires.
///
/// For commands that only print. A command that supervises a worker must not end this way, and handles
/// [`ErrorKind::BrokenPipe`] instead. Rust's runtime ignores the signal until this call, which cannot be undone.
///
/// # Errors
/// If the system refuses the handler.
pub fn end_on_closed_pipe() -> io::Result<()> {
    flag::register_conditional_default(SIGPIPE, Arc::new(AtomicBool::new(true))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::exit_of;
    use ledger_record::Exit;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Runs one of the ignored tests below in a separate process, because signals affect a whole process.
    fn alone(body: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", &format!("signals::tests::{body}"), "--test-threads=1"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    #[test]
    fn every_interrupt_is_counted() {
        let output = alone("counting").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    #[ignore = "the body of `every_interrupt_is_counted`"]
    fn counting() {
        // Under `nohup` it is ignored from the start.
        let hangups = u32::from(heeded().any(|signal| signal == SIGHUP));
        drop(Interrupts::install().unwrap());
        let interrupts = Interrupts::install().unwrap();
        assert_eq!((interrupts.count(), interrupts.terminated()), (0, false));
        low_level::raise(SIGINT).unwrap();
        assert_eq!((interrupts.count(), interrupts.terminated()), (1, false));
        low_level::raise(SIGINT).unwrap();
        low_level::raise(SIGTERM).unwrap();
        assert_eq!((interrupts.count(), interrupts.terminated()), (3, true));
        assert_eq!(interrupts.count(), 3);

        for _ in 0..3 {
            low_level::raise(SIGHUP).unwrap();
        }
        assert_eq!(interrupts.count(), 3 + hangups, "a terminal that closes hangs up more than once");

        let second = Interrupts::install().unwrap();
        low_level::raise(SIGINT).unwrap();
        assert_eq!((second.count(), interrupts.count()), (1, 4 + hangups));
        drop(interrupts);
        low_level::raise(SIGINT).unwrap();
        assert_eq!((second.count(), second.terminated()), (2, false));
    }

    #[test]
    fn a_process_under_nohup_ignores_hangups() {
        assert!(ignores_hangups("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangups("SigIgn:\t0000000000001000\n") && !ignores_hangups(""));
    }

    #[test]
    fn the_last_is_done_before_the_end() {
        let output = alone("ending").output().unwrap();
        assert_eq!(exit_of(output.status), Exit::Signal(SIGTERM));
        assert!(String::from_utf8_lossy(&output.stderr).contains("the last word"));
    }

    #[test]
    #[ignore = "the body of `the_last_is_done_before_the_end`"]
    fn ending() {
        before_end(|| io::stderr().write_all(b"the last word").unwrap()).unwrap();
        low_level::raise(SIGTERM).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
    }

    #[test]
    fn a_forewarning_is_heard_and_ends_nothing() {
        let output = alone("forewarned").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    #[ignore = "the body of `a_forewarning_is_heard_and_ends_nothing`"]
    fn forewarned() {
        let forewarning = Forewarning::install().unwrap();
        assert!(!forewarning.came());
        low_level::raise(SIGUSR1).unwrap();
        low_level::raise(SIGUSR1).unwrap();
        assert!(forewarning.came() && forewarning.clone().came());
    }

    #[test]
    fn after_the_last_one_is_dropped_the_default_is_back() {
        let output = alone("default").output().unwrap();
        assert_eq!(exit_of(output.status), Exit::Signal(SIGINT));
    }

    #[test]
    #[ignore = "the body of `after_the_last_one_is_dropped_the_default_is_back`"]
    fn default() {
        let interrupts = Interrupts::install().unwrap();
        low_level::raise(SIGINT).unwrap();
        drop(interrupts);
        low_level::raise(SIGINT).unwrap();
    }

    #[test]
    fn a_closed_pipe_ends_quietly() {
        let output = alone("writing").output().unwrap();
        assert_eq!(exit_of(output.status), Exit::Signal(SIGPIPE));
    }

    #[test]
    #[ignore = "the body of `a_closed_pipe_ends_quietly`"]
    fn writing() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        end_on_closed_pipe().unwrap();
        let _ = writer.write(b"x");
    }
}
