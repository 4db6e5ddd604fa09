//! `ledger watch`

use super::context::Context;
use super::failure::{Failure, exit};
use super::living::{self, Followed};
use super::output;
use crate::host::{signals, terminal};
use crate::record::{Nonce, Quantity};
use crate::report::{self, Screen, Seen};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Show the running attempts: step, loss, power, temperature, memory, time left
///
/// On a terminal, the table is refreshed in place until no attempt runs. Elsewhere, each attempt prints a line
/// every ten seconds. It shows attempts of this ledger on this host at once, and those of Slurm tasks some seconds
/// later. It only reads journals and does not disturb the attempts.
///
/// Example: ledger watch --once
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the current state once and exit
    #[arg(long)]
    once: bool,
}

/// How often a terminal is refreshed; `LINES` applies to other outputs.
const REFRESH: Duration = Duration::from_secs(1);
const LINES: Duration = Duration::from_secs(10);
/// How long to wait for the next attempt of a sweep.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mut watched = Watched::default();
    // Seals abandoned attempts, which are not running.
    context.store();
    let mut seen = watched.look(context);
    if args.once || context.json {
        let width = terminal::columns();
        context.answer(|| report::live_text(&seen, width), || report::live_value(&seen))?;
        return Ok(if seen.is_empty() { exit::NO } else { exit::YES });
    }
    let screen = std::io::stderr().is_terminal().then(Screen::new);
    // Nothing needs cleanup, so a closed pipe may end the process.
    let _ = signals::end_on_closed_pipe();
    let mut last_seen = Instant::now();
    let has_seen = !seen.is_empty();
    loop {
        match &screen {
            Some(screen) => screen.show(&report::live_text(&seen, terminal::stderr_columns())),
            None => output::print(&report::live_lines(&seen))?,
        }
        if !seen.is_empty() {
            last_seen = Instant::now();
        } else if !has_seen || last_seen.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(if screen.is_some() { REFRESH } else { LINES });
        seen = watched.look(context);
    }
    match screen {
        Some(screen) => screen.finish(),
        None => output::print(&report::live_text(&[], None))?,
    }
    Ok(if has_seen { exit::YES } else { exit::NO })
}

/// The attempts whose journals are followed.
#[derive(Default)]
struct Watched(BTreeMap<Nonce, Followed>);

impl Watched {
    /// Returns the progress of the running attempts, the oldest first.
    fn look(&mut self, context: &Context) -> Vec<Seen> {
        let all = living::all(context);
        self.0.retain(|nonce, _| all.iter().any(|living| living.nonce == *nonce));
        let mut seen = Vec::new();
        for living in all {
            let followed = self.0.entry(living.nonce).or_insert_with(|| Followed::new(living));
            followed.look();
            if !followed.pulse.has_ended && !followed.living.is_over() {
                seen.push(of(followed));
            }
        }
        seen
    }
}

fn of(followed: &Followed) -> Seen {
    let pulse = &followed.pulse;
    let sum = |quantity| pulse.of_gpus(quantity).reduce(|a, b| a + b);
    let worker = || {
        let mut all = pulse.readings.iter().filter(|((_, quantity), _)| *quantity == Quantity::WorkerMemory);
        all.next().map(|(_, bytes)| *bytes)
    };
    Seen {
        running: followed.running(),
        power_w: sum(Quantity::PowerInstant).or_else(|| sum(Quantity::PowerAverage)),
        temperature_c: pulse.of_gpus(Quantity::Temperature).reduce(f64::max),
        memory_bytes: sum(Quantity::MemoryUsed).or_else(worker),
        status: pulse.status.clone(),
    }
}
