//! `ledger completions`, and what a shell completes: ids, tags, models, metrics and fields of the ledger that is meant.

use super::context::Context;
use super::failure::{Failure, exit};
use super::output::print;
use crate::record::Names;
use crate::store::{Reader, StoreError};
use clap::{Arg, Command};
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{ArgValueCompleter, CompletionCandidate, Shell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

/// By this variable a shell asks for completions; its value is the shell's name.
const ASKS: &str = "LEDGER_COMPLETE";
/// So many of the newest attempts are offered.
const NEWEST: usize = 200;

/// Print the completions for a shell: commands, options, and the names that the ledger holds
///
/// Example: ledger completions bash > ~/.local/share/bash-completion/completions/ledger
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args, _context: &Context) -> Result<u8, Failure> {
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Elvish => &Elvish,
        Shell::Fish => &Fish,
        Shell::PowerShell => &Powershell,
        Shell::Zsh => &Zsh,
        _ => &Bash,
    };
    let mut script = Vec::new();
    let written = shell.write_registration(ASKS, "ledger", "ledger", "ledger", &mut script);
    written.map_err(|error| Failure::new(exit::FAILED, error))?;
    print(&String::from_utf8_lossy(&script))?;
    Ok(exit::YES)
}

/// Answers a shell that asks for completions. Returns whether one did.
pub(super) fn answer(command: fn() -> Command) -> bool {
    let arguments = std::env::args_os();
    let here = std::env::current_dir().ok();
    let with_names = move || completed(command());
    // A shell shows nothing of an error.
    CompleteEnv::with_factory(with_names).var(ASKS).try_complete(arguments, here.as_deref()).unwrap_or(true)
}

/// The command whose arguments know what may stand there.
fn completed(command: Command) -> Command {
    command.mut_args(with_candidates).mut_subcommands(completed)
}

fn with_candidates(arg: Arg) -> Arg {
    if !arg.get_possible_values().is_empty() {
        return arg;
    }
    let ask: fn(&Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> = match arg.get_id().as_str() {
        "id" | "ids" | "a" | "b" => ids,
        "model" => models,
        "metric" | "metrics" => metrics,
        "condition" | "group_by" | "by" | "sort" | "columns" | "x" | "y" | "axis" => fields,
        _ => return arg,
    };
    arg.add(ArgValueCompleter::new(move |current: &OsStr| candidates(ask, &current.to_string_lossy())))
}

/// What fits behind the last word of a value: conditions and lists hold several names.
fn candidates(
    ask: fn(&Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError>,
    current: &str,
) -> Vec<CompletionCandidate> {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '~');
    let word =
        current.rfind(|c| !is_of_name(c)).map_or(0, |at| at + current[at..].chars().next().map_or(0, char::len_utf8));
    let (before, word) = current.split_at(word);
    let found = ledger().and_then(|context| {
        let store = context.store_as_it_is();
        store.stop_waiting();
        store.if_there(ask).ok().flatten()
    });
    let fits = |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().starts_with(word);
    found.unwrap_or_default().into_iter().filter(fits).map(|candidate| candidate.add_prefix(before)).collect()
}

/// The ledger that the words of the command line mean; none if it may be another user's.
fn ledger() -> Option<Context> {
    let mut words = std::env::args_os().skip_while(|word| !word.to_string_lossy().starts_with("--ledger"));
    let named = words.next().and_then(|word| match word.to_string_lossy().strip_prefix("--ledger=") {
        Some(path) => Some(PathBuf::from(path)),
        None => words.next().map(PathBuf::from),
    });
    Context::new(named, false, true).ok()
}

fn ids(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    let mut found: Vec<CompletionCandidate> =
        ["latest".to_owned()].into_iter().chain(reader.tags()?.into_keys()).map(CompletionCandidate::new).collect();
    let mut seen = BTreeSet::new();
    for row in reader.recent(0, NEWEST, false)? {
        if seen.insert(row.run) {
            found.push(CompletionCandidate::new(row.run.0.prefix(8)).help(Some(row.model.into())));
        }
    }
    Ok(found)
}

fn models(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    Ok(reader.models()?.into_iter().map(CompletionCandidate::new).collect())
}

fn metrics(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    let metrics: BTreeSet<String> = reader.ranked_metrics()?.into_values().flatten().collect();
    Ok(metrics.into_iter().map(CompletionCandidate::new).collect())
}

fn fields(reader: &Reader<'_>) -> Result<Vec<CompletionCandidate>, StoreError> {
    let Names { identity, metrics, settings, .. } = reader.names()?.unwrap_or_default();
    let fields: BTreeSet<String> = identity.into_iter().chain(metrics).chain(settings).collect();
    Ok(fields.into_iter().map(CompletionCandidate::new).collect())
}
