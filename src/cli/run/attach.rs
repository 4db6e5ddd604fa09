//! `ledger run --attach PID`: records a process that already runs.
//!
//! The process writes to standard input: one line `{"manifest": TEXT}` first, and `finished` or `interrupted` at the
//! end. Standard output receives one line with the run's id and the pipe for events.

use super::super::context::Context;
use super::super::failure::{Failure, exit, with_holders};
use super::super::output::{print, say};
use super::super::watch::Interruption;
use super::{bound, facts, provenance, shim};
use crate::cli::provenance::Provenance;
use crate::engine::{self, AttachedEnd, Attempted, Launch, Seen, Stop, Watch};
use crate::host::owner;
use crate::manifest::{self, Manifest};
use crate::record::{Digest, Outcome, SourceText, Table, Value};
use crate::wire::{from_json, to_json_line};
use std::io::BufRead;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The manifest's name in errors.
const ORIGIN: &str = "attach.toml";

pub(super) fn run(pid: u32, context: &Context) -> Result<u8, Failure> {
    let usage = |text: String| Failure::new(exit::USAGE, text);
    let process = owner::owner_of(pid).map_err(|error| Failure::new(exit::FAILED, error))?;
    let process = process.ok_or_else(|| usage(format!("there is no process {pid} (give one that runs)")))?;
    let text = manifest_text()?;
    let manifest = manifest::parse(&text, ORIGIN)?;
    provenance::refuse_secrets(Path::new(ORIGIN), &manifest)?;
    let from = source(&text, &manifest);
    let mut bounds = bound(std::slice::from_ref(&manifest), std::slice::from_ref(&from), None, None, true)?;
    let (Some((bound, _)), true) = (bounds.pop(), bounds.is_empty()) else {
        return Err(usage(format!("{ORIGIN}: a process is one run (give each key one value)")));
    };
    if !matches!(bound.launch, Launch::Program { .. }) || bound.image.is_some() {
        return Err(usage(format!("{ORIGIN}: it needs a [program] without a container (the process already runs)")));
    }
    let store = context.store();
    store.write(|writer| from.sources.iter().try_for_each(|source| writer.keep(source)))?;
    let process_side = Side { interruption: Interruption::install()?, end: Arc::default() };
    process_side.listen();
    let came = engine::attach((store, &facts()), bound, process, &shim()?, &Answering, &process_side);
    match came {
        Ok(Attempted::Executed(executed)) => {
            let outcome = &executed.attempt.outcome;
            say(&format!("ledger: recorded {} ({})", executed.id.0.prefix(8), outcome.name()));
            Ok(if *outcome == Outcome::Finished { exit::YES } else { exit::FAILED })
        }
        Ok(Attempted::Stopped) => Ok(exit::INTERRUPTED),
        Ok(Attempted::Elsewhere | Attempted::Complete) => {
            Err(Failure::new(exit::BUSY, "another process records this run (give the params another value, or wait)"))
        }
        Err(error) => Err(Failure::new(exit::LEDGER, with_holders(&error))),
    }
}

fn manifest_text() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    read.map_err(|error| Failure::new(exit::USAGE, format!("cannot read standard input: {error}")))?;
    let manifest = match from_json(line.trim_end()) {
        Ok(Value::Table(mut table)) => table.remove("manifest"),
        _ => None,
    };
    manifest.and_then(|text| text.as_str().map(str::to_owned)).ok_or_else(|| {
        let shown: String = line.trim_end().chars().take(40).collect();
        let text = format!("standard input begins with `{shown}`, which is not `{{\"manifest\": TEXT}}`");
        Failure::new(exit::USAGE, format!("{text} (`ledger_events.attach` starts this command)"))
    })
}

/// Returns the manifest's stored text and the facts of Git.
fn source(text: &str, manifest: &Manifest) -> Provenance {
    let mut from = Provenance::of_folder(&provenance::directory(manifest));
    from.sources.extend(provenance::kept(Digest::of(text.as_bytes()), text.as_bytes()));
    from.facts.extend(SourceText::redacted(&from.sources));
    from
}

/// The input from the attached process: its lines on standard input, and signals.
struct Side {
    interruption: Interruption,
    end: Arc<OnceLock<AttachedEnd>>,
}

impl Side {
    /// Waits for the last line, or for the end of the input.
    fn listen(&self) {
        let end = Arc::clone(&self.end);
        std::thread::spawn(move || {
            let said = |line: String| match line.as_str() {
                "finished" => Some(AttachedEnd::Finished),
                "interrupted" => Some(AttachedEnd::Interrupted),
                _ => None,
            };
            let last = std::io::stdin().lock().lines().map_while(Result::ok).find_map(said);
            let _ = end.set(last.unwrap_or(AttachedEnd::Silent));
        });
    }
}

impl Stop for Side {
    fn asked(&self) -> u32 {
        self.interruption.asked()
    }

    fn time_left(&self) -> Option<Duration> {
        self.interruption.time_left()
    }

    fn attached_end(&self) -> Option<AttachedEnd> {
        self.end.get().copied()
    }
}

/// Prints the answer once, when the pipe for events is ready.
struct Answering;

impl Watch for Answering {
    fn see(&self, seen: Seen<'_>) {
        match seen {
            Seen::Attached(run, events) => {
                let answer: Table = [
                    ("events".to_owned(), events.display().to_string().into()),
                    ("run".to_owned(), run.to_string().into()),
                ]
                .into();
                // A process that has ended needs no answer.
                let _ = print(&format!("{}\n", to_json_line(&answer.into())));
            }
            Seen::Recovered(id) => say(&format!("sealed {}, which was abandoned", id.0.prefix(8))),
            _ => {}
        }
    }
}
