//! `ledger worker`, hidden: the process that a supervisor starts for an attempt.
//!
//! It ties itself to the supervisor's life. Then it trains the cell that standard input holds, or becomes the program that
//! its arguments name.

use super::failure::{Failure, exit};
use crate::host::{environment, process};
use std::ffi::OsString;

/// What a supervisor starts
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The program to become, with its arguments
    #[arg(last = true)]
    program: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    if let Some(supervisor) = environment::text_var("LEDGER_SUPERVISOR_PID").and_then(|pid| pid.parse().ok()) {
        let tied = process::die_with_parent(supervisor)
            .map_err(|error| Failure::new(exit::FAILED, format!("cannot be tied to the supervisor: {error}")))?;
        if !tied {
            return Err(Failure::new(exit::FAILED, "the supervisor is gone"));
        }
    }
    if let Some(name) = args.program.first() {
        let error = process::exec(&args.program, environment::all());
        let text = format!("cannot start `{}`: {error} (is it on the PATH?)", name.to_string_lossy());
        return Err(Failure::new(exit::FAILED, text));
    }
    train()
}

#[cfg(not(feature = "train"))]
fn train() -> Result<u8, Failure> {
    Err(Failure::new(exit::FAILED, "this ledger was built without its trainer (build with default features)"))
}

#[cfg(feature = "train")]
fn train() -> Result<u8, Failure> {
    trained::train()
}

#[cfg(feature = "train")]
mod trained {
    use super::super::failure::{Failure, exit};
    use super::super::watch::Interruption;
    use crate::engine::Stop;
    use crate::host::{clock, environment};
    use crate::record::{Cell, Event, EventKind, Value};
    use crate::train::{self, Finish, Logged, Sink};
    use crate::wire::{from_json, write_event};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    /// What is not yet in the pipe when the worker is killed is lost: at most this much of it.
    const FLUSH_EVERY: Duration = Duration::from_millis(20);

    /// Writes events to the file that `$LEDGER_EVENTS` names; a run without a supervisor is silent.
    struct Pipe {
        file: Option<File>,
        buffer: Mutex<Vec<u8>>,
    }

    impl Pipe {
        fn flush(&self) {
            // Locked while it writes: lines of two threads must not run into each other.
            let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(mut file) = self.file.as_ref() {
                // If this fails the supervisor is gone, and with it whoever asked for this run: the tie ends this process.
                let _ = file.write_all(&buffer);
            }
            buffer.clear();
        }
    }

    impl Sink for Pipe {
        fn now_ns(&self) -> u64 {
            clock::monotonic_ns()
        }

        fn emit_at(&self, t_ns: u64, kind: EventKind) {
            // These come by the thousand, and say themselves when they were.
            let at_once = !matches!(kind, EventKind::Step { .. } | EventKind::Phase { .. });
            let event = Event { t_ns, rank: 0, kind };
            write_event(&event, &mut self.buffer.lock().unwrap_or_else(PoisonError::into_inner));
            if at_once {
                self.flush();
            }
        }
    }

    pub(super) fn train() -> Result<u8, Failure> {
        let failed = |text: String| Failure::new(exit::FAILED, text);
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| failed(format!("cannot read the cell: {error}")))?;
        let cell = read_cell(&text).ok_or_else(|| failed("standard input holds no cell".to_owned()))?;
        let file = match environment::var("LEDGER_EVENTS") {
            None => None,
            Some(path) => Some(
                File::options()
                    .append(true)
                    .open(&path)
                    .map_err(|error| failed(format!("cannot open `{}`: {error}", path.to_string_lossy())))?,
            ),
        };
        let pipe = Arc::new(Pipe { file, buffer: Mutex::default() });
        let stop = Arc::new(AtomicBool::new(false));
        let interruption = Interruption::install()?;
        let told = Arc::clone(&pipe);
        train::watch_device_log(move |logged, line| match logged {
            Logged::Fault => told.emit(EventKind::Failure { message: line.to_owned() }),
            Logged::Remark => told.emit(EventKind::Fact { name: "device_log".to_owned(), value: line.into() }),
        })
        .map_err(|error| failed(error.to_string()))?;
        let (ticking, halting) = (Arc::clone(&pipe), Arc::clone(&stop));
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(FLUSH_EVERY);
                ticking.flush();
                if interruption.asked() > 0 {
                    halting.store(true, Ordering::SeqCst);
                }
            }
        });
        let tuned = environment::var("LEDGER_KERNELS_TUNED").is_some_and(|tuned| tuned == "1");
        let finish = train::run(&cell, tuned, pipe.as_ref(), &stop);
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
                pipe.emit(EventKind::Failure { message: error.to_string() });
                Err(Failure::new(exit::FAILED, error))
            }
        }
    }

    fn read_cell(text: &str) -> Option<Cell> {
        let Value::Table(mut table) = from_json(text).ok()? else { return None };
        let (Value::Table(config), Value::Table(settings)) = (table.remove("config")?, table.remove("settings")?)
        else {
            return None;
        };
        Some(Cell { config, settings, seed: table.remove("seed")?.as_str()?.parse().ok()? })
    }
}
