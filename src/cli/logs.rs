//! `ledger logs`

use super::cluster::spool;
use super::context::{self, Context};
use super::failure::{Failure, exit};
use super::living;
use super::output;
use crate::cluster::read_result;
use crate::engine::{Living, OutputFollower};
use crate::host::signals;
use crate::journal::JournalError;
use crate::record::{Attempt, AttemptId, OutputFacts, Piece, SourceText, Stream, Table, Target, Value};
use crate::report::{self, table_of};
use crate::store::{Reader, StoreError};
use crate::wire::decode_output;
use std::io::IsTerminal;
use std::time::Duration;

/// Show the standard output and standard error of an attempt
///
/// Works for running attempts too; -f follows until the attempt ends. Up to 2 MiB are kept per attempt: the first
/// and the last MiB of both streams together, without secrets. On a terminal, control characters are escaped.
///
/// Example: ledger logs latest --stderr --tail 20
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A run (its running or newest attempt) or an attempt: an id's prefix, a tag, `latest`, `latest~1`
    #[arg(default_value = "latest")]
    id: String,

    /// Follow the output until the attempt ends
    #[arg(short, long)]
    follow: bool,

    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,

    /// Only standard error
    #[arg(long)]
    stderr: bool,

    /// Only the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
}

/// The interval between two checks for new output.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.follow && context.json {
        return Err(Failure::new(exit::USAGE, "`--follow` prints text as it comes (leave out --json)"));
    }
    // Seals attempts that a supervisor abandoned.
    let store = context.store();
    let text = args.id.as_str();
    if let Some(living) = living::find(context, text)? {
        return args.of_living(&living, context);
    }
    let (id, attempt, output) = store.read(|reader| {
        let (id, attempt) = match find(reader, text)? {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let output = reader.output(&attempt.facts)?;
        Ok(Ok((id, attempt, output)))
    })??;
    let pieces = match output {
        Some(source) => decode_output(&source.kept).map_err(|error| Failure::new(exit::LEDGER, error))?,
        None => return Err(Failure::new(exit::NO, args.nothing(id, &attempt))),
    };
    let pieces = args.chosen(pieces);
    if context.json {
        let known = OutputFacts::LEFT_OUT;
        let mut members = members(&pieces, &attempt.run.to_string(), &attempt.nonce.to_string(), false);
        members.insert("attempt".to_owned(), id.to_string().into());
        members.extend(attempt.facts.get(known).map(|bytes| ("left_out".to_owned(), bytes.clone())));
        output::print(&report::document(members))?;
    } else {
        print(&pieces)?;
    }
    Ok(exit::YES)
}

/// Returns the attempt that a text names; for a run, its newest one.
fn find(reader: &Reader<'_>, text: &str) -> Result<Result<(AttemptId, Attempt), Failure>, StoreError> {
    let id = match context::resolve(reader, text)? {
        Err(failure) => return Ok(Err(failure)),
        Ok(Target::Attempt(id)) => Some(id),
        Ok(Target::Run(run)) => {
            let mut newest = None;
            for (id, _) in reader.attempts_of(run)? {
                newest = newest.max(reader.readable(id)?.map(|attempt| (attempt.started_unix_ms, id)));
            }
            newest.map(|(_, id)| id)
        }
    };
    let attempt = id.map(|id| reader.attempt(id)).transpose()?.flatten();
    Ok(id.zip(attempt).ok_or_else(|| context::no_attempt(text)))
}

impl Args {
    fn of_living(&self, living: &Living, context: &Context) -> Result<u8, Failure> {
        if self.follow {
            // Nothing needs cleanup: Ctrl-C and a closed pipe end the process at once.
            let _ = signals::end_on_closed_pipe();
        }
        let mut follower = OutputFollower::new(&living.journal);
        let mut pieces = follower.read().map_err(unread)?;
        if !self.follow {
            pieces.extend(follower.rest());
        }
        let pieces = self.chosen(pieces);
        if context.json {
            let members = members(&pieces, &living.run.id.to_string(), &living.nonce.to_string(), true);
            output::print(&report::document(members))?;
            return Ok(exit::YES);
        }
        print(&pieces)?;
        if !self.follow {
            return Ok(exit::YES);
        }
        loop {
            let is_over = living.is_over();
            print(&self.of_streams(follower.read().map_err(unread)?))?;
            if is_over {
                self.last_words(living, follower, context)?;
                return Ok(exit::YES);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Prints the output of the record that follows the output printed from the journal.
    fn last_words(&self, living: &Living, mut follower: OutputFollower, context: &Context) -> Result<(), Failure> {
        // Seals the attempt, if its supervisor died.
        let sealed = context.store().read(|reader| {
            let Some((_, sealed)) = reader.sealed_as(living.nonce)? else { return Ok(None) };
            reader.output(&sealed.attempt.facts)
        });
        let sealed = match sealed {
            Ok(None) => on_node(living, context),
            sealed => sealed.ok().flatten(),
        };
        let rest = match sealed {
            Some(source) => follower.behind(decode_output(&source.kept).unwrap_or_default()),
            None => follower.rest(),
        };
        print(&self.of_streams(rest))
    }

    fn nothing(&self, id: AttemptId, attempt: &Attempt) -> String {
        let id = id.0.prefix(8);
        match OutputFacts::digest_in(&attempt.facts) {
            Some(_) => {
                format!("this ledger does not hold the output of attempt {id} (`ledger pack` and `merge` include it)")
            }
            None if attempt.facts.contains_key("attached") => {
                format!("no output of attempt {id} is recorded: `attach` does not record it")
            }
            None => {
                format!("no output of attempt {id} is recorded: its program wrote none, or an older ledger sealed it")
            }
        }
    }

    fn of_streams(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        let is_wanted = |piece: &Piece| match piece {
            Piece::Text(Stream::Stdout, _) => !self.stderr,
            Piece::Text(Stream::Stderr, _) => !self.stdout,
            Piece::LeftOut(_) => true,
        };
        pieces.into_iter().filter(is_wanted).collect()
    }

    /// Returns the selected streams, cut to the last lines that are asked for.
    fn chosen(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        let mut pieces = self.of_streams(pieces);
        let Some(mut left) = self.tail else { return pieces };
        let mut first = pieces.len();
        while first > 0 && left > 0 {
            first -= 1;
            let Piece::Text(_, text) = &mut pieces[first] else { continue };
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let shown = lines.len().min(left);
            left -= shown;
            *text = lines[lines.len() - shown..].concat();
        }
        pieces.split_off(first)
    }
}

/// Returns the output of an attempt that a Slurm task has sealed and that was not collected yet.
fn on_node(living: &Living, context: &Context) -> Option<SourceText> {
    let folders = spool(context, None).open().unwrap_or_default();
    let mut packs = folders.iter().flat_map(|folder| folder.packs().unwrap_or_default());
    let path = packs.find(|path| path.to_string_lossy().contains(&living.nonce.to_string()))?;
    let (packed, sources) = read_result(&path).ok()?;
    let digest = OutputFacts::digest_in(&packed.sealed.attempt.facts)?;
    sources.into_iter().find(|source| source.original == digest)
}

fn unread(error: JournalError) -> Failure {
    Failure::new(exit::LEDGER, error)
}

fn members(pieces: &[Piece], run: &str, nonce: &str, is_running: bool) -> Table {
    let item = |piece: &Piece| match piece {
        Piece::Text(stream, text) => table_of([("stream", stream.name().into()), ("text", text.as_str().into())]),
        Piece::LeftOut(bytes) => table_of([("left_out", (*bytes).into())]),
    };
    let pieces = pieces.iter().map(|piece| Value::Table(item(piece))).collect();
    table_of([
        ("run", run.into()),
        ("nonce", nonce.into()),
        ("running", is_running.into()),
        ("output", Value::List(pieces)),
    ])
}

/// Prints standard output and standard error in their order, both to standard output.
fn print(pieces: &[Piece]) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut text = String::new();
    for piece in pieces {
        match piece {
            // A progress bar that overwrites its line is shown as several lines.
            Piece::Text(_, written) if is_terminal => {
                text.push_str(&report::plain_lines(&written.replace("\r\n", "\n").replace('\r', "\n")));
            }
            Piece::Text(_, written) => text.push_str(written),
            Piece::LeftOut(bytes) => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(&format!("[… {} are left out …]\n", report::count(*bytes, "byte")));
            }
        }
    }
    output::write(text.as_bytes())
}
