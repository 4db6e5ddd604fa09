//! `ledger worker`, hidden: the process that a supervisor starts for an attempt.
//!
//! It ends when the supervisor ends. It trains the cell from standard input, or executes the program in its arguments.

use super::context::Context;
use super::failure::{Failure, exit};
use crate::gpu::{self, LibraryEnv};
use crate::host::{environment, process};
use crate::wire::to_json_line;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

/// The variable with the folders that the dynamic loader searches first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Execute a worker (started by a supervisor)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Stay beside the program, and end all its processes when the supervisor is gone
    #[arg(long, requires = "program")]
    guard: bool,

    /// Put a load on the GPU instead: each line of standard input is one pulse, in seconds on and seconds off
    #[arg(long, conflicts_with = "program")]
    load: bool,

    /// Look for libraries in these folders too, after those of `LD_LIBRARY_PATH`
    #[arg(long, value_name = "FOLDERS", conflicts_with = "program")]
    libraries: Option<OsString>,

    /// Report which of CUDA's libraries and headers can be loaded here, and end
    #[arg(long, conflicts_with_all = ["program", "load"])]
    survey: bool,

    /// The program to become, with its arguments
    #[arg(last = true)]
    program: Vec<OsString>,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    process::take_name();
    if let Some(folders) = &args.libraries {
        return Err(with_libraries(folders, args.survey));
    }
    if args.survey {
        return survey();
    }
    let supervisor = environment::text_var("LEDGER_SUPERVISOR_PID").and_then(|pid| pid.parse().ok());
    if let (true, Some(supervisor)) = (args.guard, supervisor) {
        let ended = process::guard(&args.program, supervisor);
        let exit = ended.map_err(|error| {
            Failure::new(
                exit::FAILED,
                format!("cannot start the container: {error} (`apptainer exec IMAGE true` says whether it works here)"),
            )
        })?;
        return Ok(process::shell_code(exit));
    }
    if let Some(supervisor) = supervisor {
        let tied = process::die_with_parent(supervisor)
            .map_err(|error| Failure::new(exit::FAILED, format!("cannot be tied to the supervisor: {error}")))?;
        if !tied {
            return Err(Failure::new(exit::FAILED, "the supervisor is gone"));
        }
    }
    if let Some(name) = args.program.first() {
        let error = process::exec(&args.program, environment::all());
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "is it on the PATH, and is the interpreter of its first line there?",
            io::ErrorKind::PermissionDenied => "is it executable?",
            _ if error.raw_os_error() == Some(NO_FORMAT) => "a script needs a first line such as `#!/bin/sh`",
            _ => "the system refuses it",
        };
        return Err(Failure::new(exit::FAILED, format!("cannot start `{}`: {error} ({hint})", name.to_string_lossy())));
    }
    if args.load { trained::load() } else { trained::train() }
}

/// `ENOEXEC`: the file is neither a program nor a script that names its interpreter.
const NO_FORMAT: i32 = 8;

/// Restarts this program, because the loader reads `LD_LIBRARY_PATH` only at the start. Returns only on failure.
fn with_libraries(folders: &OsStr, is_survey: bool) -> Failure {
    let mut path = environment::var(LIBRARY_PATH).filter(|path| !path.is_empty()).unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(folders);
    let others = environment::all().into_iter().filter(|(name, _)| name != LIBRARY_PATH);
    let own = process::own_path().unwrap_or_else(|_| process::OWN_FILE.into());
    let words = ["worker".into()].into_iter().chain(is_survey.then(|| "--survey".into()));
    let command: Vec<OsString> = [own.into()].into_iter().chain(words).collect();
    let error = process::exec(&command, others.chain([(LIBRARY_PATH.into(), path)]));
    Failure::new(exit::FAILED, format!("cannot start this program anew: {error}"))
}

fn survey() -> Result<u8, Failure> {
    let [library_path, cuda_path] = [LIBRARY_PATH, "CUDA_PATH"].map(environment::var);
    let report = gpu::report(&LibraryEnv::usual(library_path.as_deref(), cuda_path.as_deref()));
    let written = writeln!(io::stdout(), "{}", to_json_line(&report.to_value()));
    written.map_err(|error| Failure::new(exit::FAILED, format!("cannot write the report: {error}")))?;
    Ok(exit::YES)
}

#[cfg(not(feature = "train"))]
mod trained {
    use super::{Failure, exit};

    pub(super) fn load() -> Result<u8, Failure> {
        train()
    }

    pub(super) fn train() -> Result<u8, Failure> {
        Err(Failure::new(exit::FAILED, "this `ledger` was built without its trainer (build with default features)"))
    }
}

#[cfg(feature = "train")]
mod trained {
    use super::super::failure::{Failure, exit};
    use super::super::watch::Interruption;
    use crate::engine::Stop;
    use crate::gpu::{Shortage, is_out_of_memory, needed_bytes};
    use crate::host::death::{self, Words};
    use crate::host::process::{Signal, Target, signal};
    use crate::host::{clock, environment};
    use crate::record::{Cell, Event, EventKind, Value};
    use crate::train::{self, Finish, Logged, Sink};
    use crate::wire::{from_json, write_event};
    use std::fmt::{self, Write as _};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    /// The interval between flushes. A killed worker loses at most the output of this time.
    const FLUSH_EVERY: Duration = Duration::from_millis(20);

    /// How long a fault logged by a device's thread waits for the run to report its effect and rank.
    const CAUSE_GRACE: Duration = Duration::from_secs(1);

    /// How long this process may take to end after a failure. Threads that wait for a device may block for ever.
    const END_GRACE: Duration = Duration::from_secs(1);

    /// The first fault that a device's thread logged, and when.
    #[derive(Default)]
    struct Held(Mutex<Option<(Instant, String)>>);

    impl Held {
        /// Keeps a fault if there is none yet.
        fn keep(&self, line: &str) {
            self.lock().get_or_insert_with(|| (Instant::now(), line.to_owned()));
        }

        /// Takes the fault if it is at least that old.
        fn after(&self, time: Duration) -> Option<String> {
            self.lock().take_if(|(since, _)| since.elapsed() >= time).map(|(_, line)| line)
        }

        fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Writes events to the file that `$LEDGER_EVENTS` names. Without a supervisor, it writes nothing.
    struct Pipe {
        file: Option<File>,
        buffer: Mutex<Vec<u8>>,
        /// The current work of a run of one rank, and its index.
        doing: Mutex<Option<(&'static str, u64)>>,
    }

    impl Pipe {
        fn flush(&self) {
            // The lock is held while writing, so that lines of two threads do not mix.
            let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(mut file) = self.file.as_ref() {
                // This fails only if the supervisor has ended, and then this process ends too.
                let _ = file.write_all(&buffer);
            }
            buffer.clear();
        }

        /// Returns the message for an out-of-memory line of the device's runtime. Returns `None` for other lines.
        fn shortage(&self, line: &str) -> Option<String> {
            let needed_bytes = needed_bytes(line)?;
            let during = *self.doing.lock().unwrap_or_else(PoisonError::into_inner);
            let (memory, before) = (train::memory(), train::memory_before_steps());
            Some(Shortage { needed_bytes, during, memory, before }.to_string())
        }
    }

    impl Sink for Pipe {
        fn now_ns(&self) -> u64 {
            clock::monotonic_ns()
        }

        fn doing(&self, what: &'static str, index: u64, _: Option<Duration>) {
            *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, index));
        }

        fn emit_from(&self, rank: usize, t_ns: u64, kind: EventKind) {
            // These events are frequent and carry their own times.
            let at_once = !matches!(kind, EventKind::Step { .. } | EventKind::Phase { .. });
            let event = Event { t_ns, rank: u32::try_from(rank).unwrap_or(u32::MAX), kind };
            write_event(&event, &mut self.buffer.lock().unwrap_or_else(PoisonError::into_inner));
            if at_once {
                self.flush();
            }
        }
    }

    fn failed(text: String) -> Failure {
        Failure::new(exit::FAILED, text)
    }

    fn input() -> Result<String, Failure> {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| failed(format!("cannot read standard input: {error}")))?;
        Ok(text)
    }

    fn pipe() -> Result<Arc<Pipe>, Failure> {
        let file = match environment::var("LEDGER_EVENTS") {
            None => None,
            Some(path) => Some(
                File::options()
                    .append(true)
                    .open(&path)
                    .map_err(|error| failed(format!("cannot open `{}`: {error}", path.to_string_lossy())))?,
            ),
        };
        Ok(Arc::new(Pipe { file, buffer: Mutex::default(), doing: Mutex::default() }))
    }

    /// Puts a load on the GPU until the pulses end or the process is terminated.
    pub(super) fn load() -> Result<u8, Failure> {
        let pulses = read_pulses(&input()?).ok_or_else(|| {
            failed("standard input holds no pulses: `SECONDS_ON SECONDS_OFF` on each line".to_owned())
        })?;
        let pipe = pipe()?;
        let ended = train::load(&pulses, pipe.as_ref(), &AtomicBool::new(false));
        if let Err(error) = &ended {
            pipe.emit(EventKind::Failure { message: error.to_string() });
        }
        pipe.flush();
        ended.map(|_| exit::YES).map_err(|error| Failure::new(exit::FAILED, error))
    }

    fn read_pulses(text: &str) -> Option<Vec<(u64, u64)>> {
        let time = |word: &str| {
            let time = Duration::try_from_secs_f64(word.parse().ok()?).ok()?;
            u64::try_from(time.as_nanos()).ok()
        };
        let pulse = |line: &str| {
            let (on, off) = line.split_once(' ')?;
            Some((time(on)?, time(off)?))
        };
        text.lines().map(pulse).collect()
    }

    /// Writes a fact about a process that a signal ends. It is not a `failure`, after which the supervisor would end a
    /// process that may be writing its core dump. It starts a new line, because the line before may be incomplete.
    fn write_last_phases(signal: &'static str, words: &mut Words) -> fmt::Result {
        words.write_str("\n{\"event\":\"fact\",\"name\":\"last_words\",\"value\":\"")?;
        train::write_last_phases(signal, words)?;
        words.write_str("\"}\n")
    }

    pub(super) fn train() -> Result<u8, Failure> {
        let cell = read_cell(&input()?).ok_or_else(|| failed("standard input holds no cell".to_owned()))?;
        let pipe = pipe()?;
        let stop = Arc::new(AtomicBool::new(false));
        if let Some(file) = &pipe.file {
            death::with_last_words(file, write_last_phases)
                .map_err(|error| failed(format!("signals cannot be handled: {error}")))?;
        }
        let interruption = Interruption::install()?;
        let (told, held) = (Arc::clone(&pipe), Arc::new(Held::default()));
        let holding = Arc::clone(&held);
        train::watch_device_log(move |logged, line| match logged {
            Logged::Fault => {
                // The run may soon give a better message, or none if the process dies of the fault.
                told.emit(EventKind::Fact { name: "device_log".to_owned(), value: line.into() });
                let is_known = told.doing.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                match told.shortage(line) {
                    // The run does not continue, and may wait for the device for ever.
                    Some(message) if is_known => {
                        told.emit(EventKind::Failure { message });
                        end_soon();
                    }
                    // With several ranks, the run reports which one failed.
                    Some(message) => holding.keep(&message),
                    None => holding.keep(line),
                }
            }
            Logged::Remark => told.emit(EventKind::Fact { name: "device_log".to_owned(), value: line.into() }),
        })
        .map_err(|error| failed(error.to_string()))?;
        let (ticking, halting, waiting) = (Arc::clone(&pipe), Arc::clone(&stop), Arc::clone(&held));
        let flush = move || {
            loop {
                std::thread::sleep(FLUSH_EVERY);
                if let Some(message) = waiting.after(CAUSE_GRACE) {
                    if is_out_of_memory(&message) {
                        end_soon();
                    }
                    ticking.emit(EventKind::Failure { message });
                }
                ticking.flush();
                if interruption.asked() > 0 {
                    halting.store(true, Ordering::SeqCst);
                }
            }
        };
        let named = std::thread::Builder::new().name("flush".to_owned()).spawn(flush);
        named.map_err(|error| failed(error.to_string()))?;
        let tuned = environment::var("LEDGER_KERNELS_TUNED").is_some_and(|tuned| tuned == "1");
        let fault = environment::text_var("LEDGER_FAULT").filter(|text| !text.is_empty());
        let fault = fault.map(|text| text.parse()).transpose();
        let fault = fault.map_err(|error: train::FaultError| failed(format!("LEDGER_FAULT: {error}")))?;
        let finish = train::run(&cell, tuned, fault, pipe.as_ref(), &stop);
        let logged = held.after(Duration::ZERO);
        if let (Ok(_), Some(line)) = (&finish, &logged) {
            // Its results are invalid, even if the run finished.
            pipe.emit(EventKind::Failure { message: line.clone() });
        }
        match finish {
            Ok(Finish::Done) => {
                pipe.flush();
                Ok(exit::YES)
            }
            Ok(Finish::Stopped) => {
                pipe.flush();
                Ok(exit::INTERRUPTED)
            }
            Err(error) => {
                let cause = logged.map_or_else(String::new, |line| format!(" (the device's runtime said: {line})"));
                pipe.emit(EventKind::Failure { message: format!("{error}{cause}") });
                end_soon();
                Err(Failure::new(exit::FAILED, error))
            }
        }
    }

    /// Ends this process after [`END_GRACE`], unless it has ended by then.
    fn end_soon() {
        std::thread::spawn(|| {
            std::thread::sleep(END_GRACE);
            let _ = signal(Target::Process(std::process::id()), Signal::Kill);
        });
    }

    fn read_cell(text: &str) -> Option<Cell> {
        let Value::Table(mut table) = from_json(text).ok()? else { return None };
        let (Value::Table(config), Value::Table(settings)) = (table.remove("config")?, table.remove("settings")?)
        else {
            return None;
        };
        Some(Cell { config, settings, seed: table.remove("seed")?.as_str()?.parse().ok()? })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn pulses_are_seconds_on_and_off() {
            let read = |text: &str| read_pulses(text);
            assert_eq!(
                read("2.500 0.020\n0.007 0.6\n"),
                Some(vec![(2_500_000_000, 20_000_000), (7_000_000, 600_000_000)])
            );
            for wrong in ["1\n", "1 x\n", "-1 1\n", "1 1 1\n", "1 inf\n", "{}"] {
                assert_eq!(read(wrong), None, "{wrong}");
            }
        }

        #[test]
        fn a_device_fault_waits_for_its_cause_and_the_first_one_is_kept() {
            let held = Held::default();
            assert_eq!(held.after(Duration::ZERO), None);
            held.keep("out of memory");
            held.keep("what came of it");
            assert_eq!(held.after(Duration::from_secs(100)), None);
            assert_eq!(held.after(Duration::ZERO).as_deref(), Some("out of memory"));
            assert_eq!(held.after(Duration::ZERO), None, "told once");
        }
    }
}
